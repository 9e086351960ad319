"""The ledger of a case: what was changed before each run and what came of it, which causes that confirmed, and what was tried."""

from __future__ import annotations

from diagnose.case import Case
from diagnose.prediction import ATTEMPTS, is_about, is_exactly, steps_given
from diagnose.readback import Changed
from probes.evidence.changes import PredictionScored
from reports.document import ChangeMade
from rules.verdict import Expectation


def ledger(case: Case) -> list[ChangeMade]:
    """Give what was changed before each run and what came of it, oldest first."""
    return [ChangeMade.model_validate(entry.data) for entry in case.of("change")]


def line_of(case: Case, run: int) -> ChangeMade | None:
    """Give the line of one run, or None."""
    lines = [one for one in ledger(case) if one.run == run]
    return lines[-1] if lines else None


def kept_run(case: Case, run: int) -> int:
    """Give the run whose configuration stands once all changes are undone that gained nothing: this one, or an earlier one."""
    line = line_of(case, run)
    while line is not None and line.kept is False and line.against:
        run = line.against
        line = line_of(case, run)
    return run


def scored_by(case: Case, line: ChangeMade) -> tuple[int, Expectation] | None:
    """Give the prediction that a line of the ledger was scored by, and the run that gave it."""
    scored = [
        one
        for record, one in case.evidence(line.run).of(PredictionScored)
        if record.run == line.run and one.cause == line.cause
    ]
    for one in scored:
        for given_in, step in steps_given(case, one.given_in, one.given_in):
            for expectation in step.expects:
                if expectation.cause == line.cause and expectation.words == line.predicted:
                    return given_in, expectation
    return None


def confirmed(case: Case, run: int | None = None) -> dict[str, int]:
    """Give the causes that were confirmed up to a run, each with the run that did it.

    By exactly one change after which what was predicted came, seen three times: in that run, or in it and in runs of the same configuration.
    A prediction that does not come later takes it back.
    """
    causes: dict[str, int] = {}
    rooted: dict[int, bool] = {}
    for line in ledger(case):
        if run is not None and line.run > run:
            break
        root = line.single is True or (not line.variables and rooted.get(line.against or 0, False))
        rooted[line.run] = root and line.prediction == "held"
        if line.cause is None:
            continue
        if line.prediction == "failed":
            causes.pop(line.cause, None)
        elif rooted[line.run] and (line.attempts or 0) >= ATTEMPTS and _exact(case, line):
            causes.setdefault(line.cause, line.run)
    return causes


def _exact(case: Case, line: ChangeMade) -> bool:
    """Say whether the value that was proposed is the one that was set; a line without a change is as exact as the one it repeats."""
    if not line.variables:
        before = line_of(case, line.against or 0)
        return before is not None and _exact(case, before)
    one = line.variables[0]
    changed = Changed(one.name, one.before, one.after, "process")
    return any(
        is_exactly(step, changed)
        for _run, step in steps_given(case, line.against or 0, line.run - 1)
        if is_about(step, changed)
    )


def tried(case: Case, run: int) -> set[tuple[str, str]]:
    """Give the changes that were made up to a run, as what tells tests apart: the variable and the value that it went to."""
    made: set[tuple[str, str]] = set()
    for line in ledger(case):
        if line.run > run or len(line.variables) != 1:
            continue
        one = line.variables[0]
        changed = Changed(one.name, one.before, one.after, "process")
        for _run, step in steps_given(case, 0, line.run - 1):
            if is_about(step, changed) and is_exactly(step, changed):
                made.add((step.variable, repr(step.to)))
    return made
