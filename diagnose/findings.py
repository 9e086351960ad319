"""What single probes found, in sentences for the report's notes: repetition, control run, soak, damage."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.control import ControlRun
from probes.evidence.records import EvidenceSet
from probes.evidence.request import ConcurrencyTrial
from probes.evidence.words import Words, words
from probes.ladder.flaky import trial_in_words


def said_by_probes(evidence: EvidenceSet) -> tuple[Words, ...]:
    """Give the sentences of the newest reading of each probe."""
    trial, control = evidence.last(ConcurrencyTrial), evidence.last(ControlRun)
    said: list[Words] = []
    if trial is not None:
        said += trial_in_words(trial)
    if control is not None:
        said += control_in_words(control)
    return tuple(said)


def control_in_words(run: ControlRun) -> Iterator[Words]:
    """Say both slopes of the prefill and of the generation, in percent of the time for a token, by 1,000 tokens."""
    for own, control, said in (
        (
            run.own_prefill_slope,
            run.control_prefill_slope,
            words(
                "Each 1,000 tokens of length add {own} % to the reading time of a token, and {control} % on the control.",
                own=_percent(run.own_prefill_slope),
                control=_percent(run.control_prefill_slope),
            ),
        ),
        (
            run.own_generation_slope,
            run.control_generation_slope,
            words(
                "Each 1,000 tokens of length add {own} % to the writing time of a token, and {control} % on the control.",
                own=_percent(run.own_generation_slope),
                control=_percent(run.control_generation_slope),
            ),
        ),
    ):
        if own is not None and control is not None:
            yield said


def _percent(slope: float | None) -> str:
    return "?" if slope is None else f"{slope * 100:.1f}"
