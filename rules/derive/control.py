"""A control run → whether the model under test slows down with length as a model that surely fits does, or more."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.control import ControlRun
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import CONTROL_LOST_MORE, CONTROL_SAYS

ALIKE = 1.25
"""Losing at most so many times what the control loses is alike."""
STEEPER = 1.6
"""From here on the control does not explain the loss. Between the two lies what one measurement of each cannot tell."""


def lost_more(run: ControlRun) -> float | None:
    """Give the larger of both losses, prefill's and generation's, as a multiple of the control's; None where neither was compared.

    Both lines are read over the span of lengths of the model under test, so that the control's own lengths need not be quite the same.
    """
    if len(run.own) < 2:
        return None
    span = (run.own[-1].tokens - run.own[0].tokens) / 1000
    start = run.own[0].tokens / 1000
    losses = []
    for own, control in (
        (run.own_prefill_slope, run.control_prefill_slope),
        (run.own_generation_slope, run.control_generation_slope),
    ):
        if own is not None and control is not None:
            mine = 1 + own * span / (1 + own * start)
            theirs = 1 + control * span / (1 + control * start)
            losses.append(mine / theirs)
    return max(losses) if losses else None


@derivation(reads=(ControlRun,), gives=(CONTROL_SAYS, CONTROL_LOST_MORE))
def control(sight: Sight) -> Iterator[Reading]:
    """Compare the two slopes. Without a control server nothing is open: the tool cannot get one by itself."""
    latest = sight.last(ControlRun)
    if latest is None:
        reason = sight.why_not(ControlRun)
        why = reason.note if reason is not None else "no control server was given"
        yield unread(CONTROL_SAYS, "not-offered", why)
        yield unread(CONTROL_LOST_MORE, "not-offered", why)
        return
    evidence, run = latest
    times = lost_more(run)
    if times is None:
        yield unread(CONTROL_SAYS, "failed", "the control run gave no slope")
        return
    yield reading(CONTROL_LOST_MORE, times, evidence)
    if times <= ALIKE:
        yield reading(CONTROL_SAYS, "alike", evidence)
    elif times >= STEEPER:
        yield reading(CONTROL_SAYS, "steeper", evidence)
    else:
        yield unread(CONTROL_SAYS, "failed", "the two slopes are too near to each other to be told apart")
