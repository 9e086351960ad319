"""What a run will send and how long it may take, said before the server gets a single prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from diagnose.detect import Seen
from diagnose.plan import order_for
from diagnose.session import SHORT_RUNG_CANARIES, output_reserve
from probes.attempt import Asking
from probes.base import Cost, ProbeContext
from probes.cache_reuse import CacheReuseProbe
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.fixed_length import FixedLengthProbe
from probes.ladder.canaries import Canary
from probes.ladder.rungs import Ladder, RungText, ladder_rungs
from probes.ladder_walk import LadderProbe
from probes.recall import RecallProbe
from probes.repeat import RepeatProbe
from probes.speed import SpeedProbe
from probes.truncation import TruncationProbe

GUESSED_TPS = 500.0
"""Prefill speed that times are told with before any was measured; the sentence says so."""
GUESSED_GENERATION_TPS = 20.0


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run would send at most. ``seconds`` rests on guessed speeds."""

    rungs: tuple[int, ...]
    requests: int
    prompt_tokens: int
    generated_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Server:
    name: str


@dataclass(frozen=True, slots=True)
class _Beforehand:
    """The part of a probe's context that costs are told from."""

    backend: _Server
    prefill_tps: float | None = field(default=None)


def _text(rung: int) -> RungText:
    return RungText(rung, "", rung, tuple(Canary("", "") for _ in range(SHORT_RUNG_CANARIES)), ())


def forecast(
    seen: Seen, symptom: str | None, target: int | None, criteria: Criteria, budget_s: float
) -> Forecast | None:
    """Add up what the probes of a symptom would send. None where the window is not known yet, or is too small for a ladder."""
    window = seen.window or target or seen.asked or seen.trained
    if window is None:
        return None
    output = output_reserve(min(window, target or window), None)
    try:
        rungs = ladder_rungs(window, output, target)
    except InputError:
        return None
    costs = _costs(order_for(symptom), seen, window, target, output, rungs, criteria, budget_s)
    prompt = sum(cost.prompt_tokens for cost in costs)
    generated = sum(cost.generated_tokens for cost in costs)
    return Forecast(
        rungs,
        sum(cost.requests for cost in costs),
        prompt,
        generated,
        prompt / GUESSED_TPS + generated / GUESSED_GENERATION_TPS,
    )


def _costs(
    names: Sequence[str],
    seen: Seen,
    window: int,
    target: int | None,
    output: int,
    rungs: tuple[int, ...],
    criteria: Criteria,
    budget_s: float,
) -> list[Cost]:
    context = cast("ProbeContext", _Beforehand(_Server(seen.backend or "")))
    plan = LadderPlan(rungs=rungs, target=target, output_tokens=output, seed=0, why="", tokenizer="")
    texts = Ladder(tuple(_text(rung) for rung in rungs), 0, "", 0)
    slots = seen.slots or 1
    wanted = target - output if target else window
    probes: dict[str, Any] = {
        "truncation": TruncationProbe(window, afford=int(budget_s * 50)),
        "recall": RecallProbe(texts.rungs[0]),
        "ladder": LadderProbe(plan, texts, Asking(), criteria, lambda _results: None),
        "repeat": RepeatProbe(max(256, int(window * 0.6)), concurrency=min(max(2, slots), 4)),
        "cache-reuse": CacheReuseProbe(max(256, min(1536, window // 4))),
        "speed": SpeedProbe([texts.rungs[0], texts.rungs[-1]], first_attempt=10),
    }
    if wanted > window - output:
        probes["fixed-length"] = FixedLengthProbe(wanted)
    found = []
    for name in names:
        if name in probes:
            cost = probes[name].cost(context)
            if name == "truncation" and cost.prompt_tokens > probes[name].afford:
                continue
            found.append(cost)
    return found
