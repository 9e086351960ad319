"""What a case's runs prove together: what was changed between two of them, whether a prediction came, what was gained, the ledger.

Only exactly one known change is scored. A cause is *confirmed* only by a prediction that came after exactly one change, seen three times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from diagnose.case import Case
from diagnose.comparison import Comparison, compare
from diagnose.ledger import line_of, scored_by
from diagnose.prediction import ATTEMPTS, arithmetic, attempts_in, is_about, is_exactly, steps_given
from diagnose.readback import Changed, Difference, difference
from diagnose.separating import command_of, separating
from diagnose.snapshots import changed_during, saw_nothing, snapshot_of
from diagnose.window import window_verdict
from probes.backends.commands import as_text
from probes.evidence.changes import PredictionScored
from probes.evidence.records import found
from probes.evidence.request import Launch
from probes.evidence.words import Words, words
from reports.document import ChangedVariable, ChangeMade, ComparedValue, Message, message
from rules.catalogue import facts_of
from rules.verdict import Expectation, score_each


def compared_with(case: Case, run: int) -> tuple[int, Difference] | None:
    """Choose the earlier run to compare with, and give what differs.

    The last one where nothing changed since, or whose own change was taken back. Else the latest from which exactly one variable differs, one for
    which a prediction was given before others: so the step after one that was undone, or the half of a double change, is held against the run that
    it differs from in one variable.
    """
    now = snapshot_of(case, run)
    if now is None:
        return None
    earlier: list[tuple[int, Difference]] = []
    for other in range(run - 1, 0, -1):
        then = snapshot_of(case, other)
        if then is not None and case.has_ended(other) and saw_nothing(case, other) is None:
            earlier.append((other, difference(then, now)))
    if not earlier:
        return None
    if not earlier[0][1].variables or _takes_back(case, *earlier[0]) is not None:
        return earlier[0]
    singles = [one for one in earlier if one[1].single is not None]
    predicted = [
        (other, differs)
        for other, differs in singles
        if any(
            differs.single is not None and is_about(step, differs.single)
            for _run, step in steps_given(case, other, other)
        )
    ]
    unchanged = [one for one in earlier if not one[1].variables]
    return next(iter((*predicted, *singles, *unchanged)), earlier[0])


def _takes_back(case: Case, against: int, differs: Difference) -> int | None:
    """Say which run's change is taken back, that gained nothing; None where it is no such thing."""
    before = line_of(case, against)
    changed = differs.single
    if before is None or changed is None or len(before.variables) != 1 or before.kept:
        return None
    then = before.variables[0]
    if then.name == changed.name and str(then.before) == str(changed.after) and str(then.after) == str(changed.before):
        return before.run
    return None


def settle(case: Case, run: int) -> ChangeMade | None:
    """Say what was changed before a run and what that proves, and write it into the journal. None: there is no run to compare with, or it saw nothing.

    To be called when the run's evidence is complete and before it is judged: a prediction that failed is evidence against its cause.
    """
    done = [ChangeMade.model_validate(entry.data) for entry in case.of("change", run)]
    if done:
        return done[-1]
    _keep_what_failed(case, run)
    if saw_nothing(case, run) is not None:
        # it repeats nothing, tests no prediction, and shows no noise
        return None
    chosen = compared_with(case, run)
    if chosen is None:
        return None
    against, differs = chosen
    during = changed_during(case, run)
    variables = (
        *differs.variables,
        *(one for one in during if one.name not in {each.name for each in differs.variables}),
    )
    compared = compare(case, against, run)
    entry = _Entry(case, run, against, variables, differs, compared)
    if not variables:
        _nothing_changed(entry)
    elif len(variables) == 1:
        _one_changed(entry, variables[0])
    else:
        _several_changed(entry)
    if during:
        entry.note(
            words(
                "While this run was measured, this changed by itself: {names}.",
                names=", ".join(one.name for one in during),
            )
        )
    made = entry.made()
    case.append("change", made.model_dump(mode="json"), run=run)
    return made


def _keep_what_failed(case: Case, run: int) -> None:
    """Take the predictions that failed in earlier runs along: they stay evidence."""
    last: dict[str, PredictionScored] = {}
    for _record, scored in case.evidence().of(PredictionScored):
        last[scored.cause] = scored
    for scored in last.values():
        if scored.outcome == "failed" and scored.scored_in < run:
            case.add(found(scored, source="measured", run=run, origin=f"run {scored.scored_in}"))


class _Entry:
    """One line of the ledger in the making."""

    def __init__(
        self,
        case: Case,
        run: int,
        against: int,
        variables: tuple[Changed, ...],
        differs: Difference,
        compared: Comparison,
    ) -> None:
        self.case, self.run, self.against = case, run, against
        self.variables, self.differs, self.compared = variables, differs, compared
        self.values: dict[str, Any] = {"single": len(variables) == 1}
        self.notes: list[Words] = []
        self.conclusion: Words | None = None

    def note(self, said: Words) -> None:
        self.notes.append(said)

    def made(self) -> ChangeMade:
        moved = self.differs.moved
        if moved:
            self.note(
                words(
                    "This moved with it and is no change of its own: {names}.",
                    names=", ".join(_shown(one) for one in moved),
                )
            )
        if self.differs.unread:
            self.note(
                words(
                    "This could not be read in both runs, so it may have changed as well: {names}.",
                    names=", ".join(sorted(self.differs.unread)),
                )
            )
        said = [one for one in (self.conclusion, *self.notes) if one is not None]
        return ChangeMade(
            run=self.run,
            against=self.against,
            variables=tuple(_variable(one) for one in self.variables),
            moved=tuple(_variable(one) for one in moved),
            may_have_changed=tuple(sorted(self.differs.unread)),
            comparison=tuple(self.compared.rows),
            conclusion=self.conclusion.english if self.conclusion is not None else None,
            notes=tuple(one.english for one in self.notes),
            said=tuple(_unique([message(one) for one in (*said, *self.compared.names)])),
            **self.values,
        )


def _unique(said: Iterable[Message]) -> list[Message]:
    return list({one.english: one for one in said}.values())


def _variable(one: Changed) -> ChangedVariable:
    return ChangedVariable(name=one.name, before=one.before, after=one.after, source=one.source)


def _shown(one: Changed) -> str:
    return f"{one.name} {_brief(one.before)} → {_brief(one.after)}"


def _brief(value: Any) -> str:
    if value is None:
        return "not set"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {part}" for name, part in value.items())[:120]
    if isinstance(value, list | tuple):
        return ", ".join(str(part) for part in value)[:120]
    return str(value)[:120]


OF_CLIENT = "client."
"""How the names of a client's settings begin."""


def _gained(entry: _Entry) -> None:
    """Say what was gained and lost, and whether the change is worth keeping."""
    compared = entry.compared
    for said in (*compared.gains, *compared.losses):
        entry.note(said)
    if not compared.comparable:
        entry.note(words("Nothing was measured in both runs, so what the change gained cannot be told."))
        entry.values["kept"] = None
        return
    if all(one.name.startswith(OF_CLIENT) for one in entry.variables):
        entry.note(
            words(
                "It is a setting of the client: what it gains, measurements of the server do not show. See the client's own requests: ctxdoctor watch URL."
            )
        )
        entry.values["kept"] = None
        return
    entry.values["kept"] = bool(compared.gains)
    if not compared.gains and not any(one.asked for one in entry.variables):
        entry.note(words("It gained nothing in capacity, speed or recall, and nobody asked for it."))
    elif not compared.gains:
        entry.note(words("It gained nothing in capacity, speed or recall: undo it before the next change."))
        undo = command_of(entry.case, entry.against)
        if undo:
            entry.note(words("The command without it: {command}", command=as_text(undo)))


def _nothing_changed(entry: _Entry) -> None:
    case, run, against = entry.case, entry.run, entry.against
    before = line_of(case, against)
    if before is not None and before.cause is not None and before.prediction == "held":
        given = scored_by(case, before)
        if given is not None:
            outcome = score_each([given[1]], facts_of(case.evidence(run)))[given[1].cause]
            again = attempts_in(case, run, before.against or against, given[1]) if outcome == "held" else 0
            attempts = (before.attempts or 0) + again if outcome != "failed" else 0
            entry.values |= {
                "prediction": outcome,
                "cause": before.cause,
                "predicted": given[1].words,
                "attempts": attempts,
            }
            _record(entry, given[0], given[1], outcome, attempts)
            if outcome == "held":
                entry.conclusion = words(
                    "Nothing changed since run {against}, and what was predicted came again: {attempts} attempts in all.",
                    against=against,
                    attempts=attempts,
                )
                return
            if outcome == "failed":
                entry.conclusion = words(
                    "Nothing changed since run {against}, and what was predicted then did not come this time: it is not stable.",
                    against=against,
                )
                return
    steady = [row for row in entry.compared.rows if row.standing in {"better", "worse"}]
    if steady:
        entry.conclusion = words(
            "Nothing that can be read changed since run {against}, and yet it differs beyond the usual noise: {what}. The same configuration gives both.",
            against=against,
            what=", ".join(row.name for row in steady),
        )
    else:
        entry.conclusion = words(
            "Nothing changed since run {against}: what differs is noise, and shows how large the noise is.",
            against=against,
        )
    for said in _spread(entry.compared.rows):
        entry.note(said)


def _spread(rows: Iterable[ComparedValue]) -> list[Words]:
    return [
        words(
            "{name}: {before} and {after} {unit}.",
            name=row.name,
            before=row.before,
            after=row.after,
            unit=row.unit or "",
        )
        for row in rows
        if row.unit in {"tokens/s", "share"}
    ]


def _one_changed(entry: _Entry, changed: Changed) -> None:
    case, run, against = entry.case, entry.run, entry.against
    given = [(r, step) for r, step in steps_given(case, against, run - 1) if is_about(step, changed) and step.expects]
    # the one that was given on what is compared with, before one that came after another change
    given.sort(key=lambda one: one[0] != against)
    undone = _takes_back(case, against, entry.differs)
    if undone is not None:
        entry.values |= {"prediction": "none", "kept": True}
        entry.conclusion = words("The change of run {run} was undone.", run=undone)
        return
    if not given:
        entry.values["prediction"] = "none"
        entry.conclusion = (
            words(
                "Exactly one variable changed, {name}; nothing was predicted for it, so it confirms no cause.",
                name=changed.name,
            )
            if changed.asked
            else words(
                "{name} changed without being asked to; nothing was predicted for it, so it confirms no cause.",
                name=changed.name,
            )
        )
        last = steps_given(case, against, run - 1)
        if last:
            entry.note(words("The next test was about {variable}; it was not made.", variable=last[0][1].variable))
        _gained(entry)
        return
    _memory_by_arithmetic(entry, changed)
    given_in, step = given[0]
    exact = is_exactly(step, changed)
    facts = facts_of(case.evidence(run))
    outcomes = score_each(step.expects, facts)
    first = step.expects[0]
    outcome = outcomes[first.cause]
    if outcome == "failed" and not exact:
        outcome = "cannot-tell"
    attempts = attempts_in(case, run, against, first) if outcome == "held" else 0
    entry.values |= {"prediction": outcome, "cause": first.cause, "predicted": first.words, "attempts": attempts}
    for expectation in step.expects:
        scored = outcome if expectation is first else outcomes[expectation.cause]
        if expectation is first or (scored == "failed" and exact):
            _record(entry, given_in, expectation, scored, attempts if expectation is first else 1)
    if outcome == "held" and exact and attempts >= ATTEMPTS:
        entry.conclusion = words(
            "Exactly one variable changed, {name}, and what was predicted came in {attempts} attempts: run {run} confirms {cause}.",
            name=changed.name,
            attempts=attempts,
            run=run,
            cause=first.cause,
        )
    elif outcome == "held":
        entry.conclusion = words(
            "Exactly one variable changed, {name}, and what {cause} predicts came. It was seen {attempts} of {needed} times: run it again unchanged "
            "to confirm it.",
            name=changed.name,
            cause=first.cause,
            attempts=attempts,
            needed=ATTEMPTS,
        )
    elif outcome == "failed":
        entry.conclusion = words(
            "Exactly one variable changed, {name}, and what {cause} predicts did not come: strong evidence against it.",
            name=changed.name,
            cause=first.cause,
        )
    else:
        entry.conclusion = words(
            "Exactly one variable changed, {name}, but whether what {cause} predicts came cannot be told.",
            name=changed.name,
            cause=first.cause,
        )
    if not exact:
        entry.note(
            words(
                "The test was to set {name} to {wanted}; it was set to {after}.",
                name=changed.name,
                wanted=_brief(step.to),
                after=_brief(changed.after),
            )
        )
    _gained(entry)


def _memory_by_arithmetic(entry: _Entry, changed: Changed) -> None:
    shift = arithmetic(entry.case, entry.against, changed.name, changed.after)
    if shift is not None:
        entry.note(
            words(
                "By the arithmetic of the model, memory that is full at {before} tokens before the change is full at {after} after it.",
                before=f"{shift[0]:,}",
                after=f"{shift[1]:,}",
            )
        )


def _record(entry: _Entry, given_in: int, expectation: Expectation, outcome: Any, attempts: int) -> None:
    scored = PredictionScored(
        cause=expectation.cause,
        variable=entry.variables[0].name if entry.variables else "",
        outcome=outcome,
        scored_in=entry.run,
        given_in=given_in,
        attempts=attempts,
        said=expectation.words,
    )
    entry.case.add(
        found(scored, source="measured", run=entry.run, origin=f"run {entry.run} against run {entry.against}")
    )


def _several_changed(entry: _Entry) -> None:
    """Two or more: the stack as a whole, and no cause."""
    names = ", ".join(one.name for one in entry.variables)
    entry.values |= {"prediction": "none", "separate": tuple(separating(entry.case, entry.against, entry.variables))}
    verdict = window_verdict(entry.case, entry.run)
    launches = [one.healthy for one in entry.case.payloads(Launch, entry.run)]
    count = len(entry.variables)
    if verdict.verified is not None:
        entry.conclusion = words(
            "{count} variables changed together ({names}). This stack as a whole passed {tokens} tokens; it is not proved that one of them alone did it, "
            "so no single cause is named.",
            count=count,
            names=names,
            tokens=f"{verdict.verified:,}",
        )
    elif verdict.fits is not None and all(launches):
        entry.conclusion = words(
            "{count} variables changed together ({names}). This stack as a whole runs {tokens} tokens; it is not proved that one of them alone did it, "
            "so no single cause is named.",
            count=count,
            names=names,
            tokens=f"{verdict.fits:,}",
        )
    else:
        entry.conclusion = words(
            "{count} variables changed together ({names}). This stack as a whole did not pass; which of them was at fault is not proved, "
            "so no single cause is named.",
            count=count,
            names=names,
        )
    if entry.values["separate"]:
        entry.note(
            words(
                "To tell them apart, change one alone and run it again: {commands}",
                commands="; ".join(entry.values["separate"]),
            )
        )
    else:
        entry.note(
            words("To tell them apart, go back to what run {run} had and change one of them alone.", run=entry.against)
        )
    unasked = [one.name for one in entry.variables if not one.asked]
    if unasked:
        entry.note(words("Nobody asked for these to change: {names}.", names=", ".join(unasked)))
    _gained(entry)
