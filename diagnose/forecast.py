"""What a run will send and how long it may take, said before the server gets a single prompt: the costs of the very probes that it will make."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from diagnose import agenda
from diagnose.detect import Seen
from diagnose.shape import SHORT_RUNG_CANARIES, Shape, output_reserve
from probes.base import ProbeContext
from probes.evidence.answers import Answer
from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.words import Words, words
from probes.ladder.canaries import Canary
from probes.ladder.rungs import Ladder, RungText, ladder_rungs

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

    @property
    def engine(self) -> str:
        """The program that reads the prompts."""
        return self.name


def told(ahead: Forecast, budget_s: float) -> tuple[Words, ...]:
    """Say lengths, requests, tokens and minutes, a line each."""
    return (
        words("- Prompt lengths that are tried, in tokens: {lengths}", lengths=", ".join(map(str, ahead.rungs))),
        words(
            "- At most {requests} requests with {prompt} prompt tokens in all, and {generated} tokens of answers",
            requests=ahead.requests,
            prompt=ahead.prompt_tokens,
            generated=ahead.generated_tokens,
        ),
        words(
            "- About {minutes} min at {speed} prompt tokens per second; after {budget} min nothing new is begun",
            minutes=max(1, round(ahead.seconds / 60)),
            speed=f"{GUESSED_TPS:.0f}",
            budget=max(1, round(budget_s / 60)),
        ),
    )


def _text(rung: int) -> RungText:
    return RungText(rung, "", rung, tuple(Canary("", "") for _ in range(SHORT_RUNG_CANARIES)), ())


def _blank(rungs: tuple[int, ...]) -> Ladder:
    """Give texts of those lengths that are not written: costs need no more."""
    return Ladder(tuple(_text(rung) for rung in rungs), 0, "", 0)


def forecast(
    seen: Seen,
    symptom: str | None,
    target: int | None,
    criteria: Criteria,
    budget_s: float,
    answers: Iterable[Answer] = (),
    *,
    control_url: str | None = None,
    soak: int | None = None,
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
    known = agenda.Known(
        shape=Shape(window, target, output, rungs, partial(_blank, rungs)),
        plan=LadderPlan(rungs=rungs, target=target, output_tokens=output),
        criteria=criteria,
        budget_s=budget_s,
        symptom=symptom,
        answers=tuple(answers),
        server=seen.url,
        control_url=control_url,
        soak=soak,
        slots=seen.slots or 1,
        quantised=seen.quantised,
    )
    return of(replace(known, backend=seen.backend or ""), seen.backend or "")


def of(known: agenda.Known, backend: str) -> Forecast:
    """Add up what the probes would send that a run makes which knows no more than this."""
    known = replace(known, shape=replace(known.shape, written=partial(_blank, known.shape.rungs)))
    context = ProbeContext(
        backend=cast("Any", _Named(backend)), counter=cast("Any", _Named("")), ends_at=time.monotonic() + known.budget_s
    )
    probes = [agenda.probe(name, known) for name in agenda.order(known)]
    costs = [probe.cost(context) for probe in probes if probe is not None]
    return Forecast(
        known.shape.rungs,
        sum(cost.requests for cost in costs),
        sum(cost.prompt_tokens for cost in costs),
        sum(cost.generated_tokens for cost in costs),
        sum(
            cost.seconds or cost.prompt_tokens / GUESSED_TPS + cost.generated_tokens / GUESSED_GENERATION_TPS
            for cost in costs
        ),
    )
