"""What a run will send and how long it may take, said before the server gets a single prompt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from diagnose.detect import Seen
from diagnose.plan import order_for, over_many_turns
from diagnose.session import DAMAGE_TOKENS, SHORT_RUNG_CANARIES, output_reserve
from probes.attempt import Asking
from probes.base import Probe, ProbeContext
from probes.cache_reuse import CacheReuseProbe
from probes.damage import DamageProbe
from probes.evidence.answers import Answer
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.fixed_length import FixedLengthProbe
from probes.ladder.canaries import Canary
from probes.ladder.rungs import Ladder, RungText, ladder_rungs
from probes.ladder_walk import LadderProbe
from probes.recall import RecallProbe
from probes.repeat import RepeatProbe
from probes.soak import ROOM as SOAK_ROOM
from probes.soak import SoakProbe
from probes.speed import SpeedProbe
from probes.truncation import REFUSES_UNPROCESSED, TruncationProbe

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
class _Named:
    """What costs are told from beforehand: the server's name and no more."""

    name: str


def _text(rung: int) -> RungText:
    return RungText(rung, "", rung, tuple(Canary("", "") for _ in range(SHORT_RUNG_CANARIES)), ())


def forecast(
    seen: Seen,
    symptom: str | None,
    target: int | None,
    criteria: Criteria,
    budget_s: float,
    answers: Iterable[Answer] = (),
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
    soak = over_many_turns(symptom, answers)
    names = order_for(symptom, soak=soak, damage=symptom in {None, "forgetting"} and seen.quantised)
    known = _named(names, seen, window, target, output, rungs, criteria, budget_s)
    context = ProbeContext(
        backend=cast("Any", _Named(seen.backend or "")),
        counter=cast("Any", _Named("")),
        ends_at=time.monotonic() + budget_s,
    )
    costs = [probe.cost(context) for probe in known]
    return Forecast(
        rungs,
        sum(cost.requests for cost in costs),
        sum(cost.prompt_tokens for cost in costs),
        sum(cost.generated_tokens for cost in costs),
        sum(
            cost.seconds or cost.prompt_tokens / GUESSED_TPS + cost.generated_tokens / GUESSED_GENERATION_TPS
            for cost in costs
        ),
    )


def _named(
    names: Sequence[str],
    seen: Seen,
    window: int,
    target: int | None,
    output: int,
    rungs: tuple[int, ...],
    criteria: Criteria,
    budget_s: float,
) -> list[Probe]:
    """Make the probes of those names as a run would make them that knows no more than this."""
    plan = LadderPlan(rungs=rungs, target=target, output_tokens=output, seed=0, why="", tokenizer="")
    texts = Ladder(tuple(_text(rung) for rung in rungs), 0, "", 0)
    slots = seen.slots or 1
    together = min(max(2, slots), 4)
    wanted = target - output if target else window
    afford = int(budget_s * 50)
    probes: dict[str, Probe] = {
        "recall": RecallProbe(texts.rungs[0]),
        "ladder": LadderProbe(plan, texts, Asking(), criteria, lambda _results: None),
        "repeat": RepeatProbe(
            max(256, int(window * 0.6)),
            least=int(window * 1.1 / together) if slots > 1 else 256,
            concurrency=together,
        ),
        "cache-reuse": CacheReuseProbe(max(256, min(1536, window // 4))),
        "speed": SpeedProbe([texts.rungs[0], texts.rungs[-1]], first_attempt=10),
        "damage": DamageProbe(min(DAMAGE_TOKENS, window // 2)),
        "soak": SoakProbe(max(SOAK_ROOM, min(window, target or window) - output - SOAK_ROOM)),
    }
    truncation = TruncationProbe(window, afford=afford)
    if seen.backend in REFUSES_UNPROCESSED or truncation.length() <= afford:
        probes["truncation"] = truncation
    if wanted > window - output:
        probes["fixed-length"] = FixedLengthProbe(wanted)
    return [probes[name] for name in names if name in probes]
