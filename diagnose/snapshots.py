"""The configuration of each run as it was read back: which runs differ in what, and what changed while a run was measured."""

from __future__ import annotations

from diagnose.case import Case
from diagnose.readback import Changed, Value, difference
from diagnose.window import by_rung
from probes.evidence.changes import Snapshot
from probes.evidence.request import Launch
from probes.evidence.rungs import RungResult
from rules.verdict import Undone


def snapshot_of(case: Case, run: int, when: str = "before") -> Snapshot | None:
    """Give the configuration that was read back in a run, or None."""
    kept = [one for record, one in case.evidence(run).of(Snapshot) if one.when == when and record.run == run]
    return kept[-1] if kept else None


def saw_nothing(case: Case, run: int) -> str | None:
    """Say why a run saw nothing of its server: it was not reached, or not even started. None where something was seen, if only a failed start."""
    pieces = [piece for piece in case.evidence(run).all if piece.run == run]
    if "look" in case.done_probes(run) or any(piece.kind in {Launch.kind, RungResult.kind} for piece in pieces):
        return None
    notes = [piece.unavailable.note for piece in pieces if piece.kind == "session" and piece.unavailable is not None]
    return notes[-1] if notes else None


def lengths_before(case: Case, run: int) -> tuple[int, ...]:
    """Give the lengths that a run has to measure too, so that it can be compared with the last one: its shortest, and its longest that ran."""
    for other in range(run - 1, 0, -1):
        rungs = by_rung(one for record, one in case.evidence(other).of(RungResult) if record.run == other)
        passing = [length for length, attempts in rungs.items() if all(one.result == "passed" for one in attempts)]
        if passing:
            return tuple(dict.fromkeys((passing[0], passing[-1])))
    return ()


_INSIDE = frozenset({"backend", "model_path", "driver", "devices", "other_load", "window_in_force", "parallel", "ctx"})


def changed_during(case: Case, run: int) -> tuple[Changed, ...]:
    """Give what changed while a run was measured, without being asked."""
    before, after = snapshot_of(case, run), snapshot_of(case, run, "after")
    if before is None or after is None:
        return ()
    return tuple(one for one in difference(before, after).variables if one.name in _INSIDE)


def put_back(case: Case, run: int, kept: int) -> tuple[Undone, ...]:
    """Give what somebody has to set back for an earlier run's configuration to stand again; what changed by itself nobody can."""
    now, then = snapshot_of(case, run), snapshot_of(case, kept)
    if kept == run or now is None or then is None:
        return ()
    return tuple(
        Undone(variable=one.name, start=_plainly(one.before), to=_plainly(one.after))
        for one in difference(now, then).variables
        if one.asked
    )


def _plainly(value: Value) -> bool | int | float | str | None:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
