"""What a case's runs prove together: what was changed between two of them, whether a prediction came, what was gained, the ledger.

Only exactly one known change is scored. A cause is *confirmed* only by a prediction that came after exactly one change, seen three times.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.case import Case
from diagnose.plan import GIVES
from diagnose.readback import GROUPS, Changed, Difference, difference
from diagnose.shift import shifted
from diagnose.window import by_rung, window_verdict
from probes.backends.commands import as_text, change_command, detect_backend
from probes.evidence.changes import PredictionScored, Snapshot
from probes.evidence.errors import CtxDoctorError
from probes.evidence.machine import DeviceReadings, HostReading
from probes.evidence.records import Payload, found
from probes.evidence.request import Launch
from probes.evidence.rungs import RungResult
from probes.evidence.subject import BackendIdentity, Configuration, WindowReading
from probes.evidence.words import Words, words
from probes.ladder.flaky import Group, same_share
from probes.ladder.scoring import pooled
from reports.document import ChangedVariable, ChangeMade, ComparedValue, Message, Standing, message
from rules.catalogue import facts_of
from rules.derive import all_derivations
from rules.engine import Fact, Facts, from_json
from rules.facts import FAILURE_TOKENS, IS_MEMORY_FAILURE, LAUNCH_FAILED, VOCABULARY, WINDOW_ASKED, WINDOW_IN_FORCE
from rules.verdict import Expectation, NextTest, score_each

ATTEMPTS = 3
"""So often what was predicted has to be seen before a cause is confirmed."""
SPEED_NOISE = 0.1
"""Speeds of two runs that differ by less than a tenth are the same."""
SPEED_NOISE_OF_FEW = 0.3
"""Where there are fewer than five attempts, or one on a side, less than this is the same."""
BUSY = 0.75
"""Of all cores busy when a run began: then speeds of two runs cannot be compared."""
SURELY_DIFFERENT = 0.05
"""Chance below which two shares of recalled facts are taken to differ."""
MIB = 1 << 20


# -- snapshots ------------------------------------------------------------------------------------------------------------------------------


def snapshot_of(case: Case, run: int, when: str = "before") -> Snapshot | None:
    """Give the configuration that was read back in a run, or None."""
    kept = [one for record, one in case.evidence(run).of(Snapshot) if one.when == when and record.run == run]
    return kept[-1] if kept else None


def compared_with(case: Case, run: int) -> tuple[int, Difference] | None:
    """Choose the earlier run to compare with, and give what differs.

    The last one where nothing changed since. Else the latest from which exactly one variable differs, one for which a prediction was given before
    others: so the step after one that was undone, or the half of a double change, is held against the run that it differs from in one variable.
    """
    now = snapshot_of(case, run)
    if now is None:
        return None
    earlier: list[tuple[int, Difference]] = []
    for other in range(run - 1, 0, -1):
        then = snapshot_of(case, other)
        if then is not None and case.has_ended(other):
            earlier.append((other, difference(then, now)))
    if not earlier:
        return None
    if not earlier[0][1].variables:
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


# -- predictions ----------------------------------------------------------------------------------------------------------------------------


def steps_given(case: Case, first: int, last: int) -> list[tuple[int, NextTest]]:
    """Give the changes that were proposed in these runs, the latest first."""
    given = [
        (entry.run, NextTest.model_validate(entry.data))
        for entry in case.of("next-test")
        if first <= entry.run <= last and entry.data.get("kind") == "change"
    ]
    return given[::-1]


def is_about(step: NextTest, changed: Changed) -> bool:
    """Say whether a proposed change is of the variable that was changed."""
    if step.variable == changed.name or (step.variable, changed.name) in {
        ("ctx", "window_in_force"),
        ("parallel", "slots_in_force"),
        ("kv_type", "kv_type_in_force"),
    }:
        return True
    return any(changed.name == group and step.variable in {group, *members} for group, members, _needs in GROUPS)


def is_exactly(step: NextTest, changed: Changed) -> bool:
    """Say whether a variable was changed to the value that was proposed."""
    if step.to is None:
        return True
    to = [*step.to] if isinstance(step.to, tuple) else step.to
    after = changed.after
    shown = {str(after).lower(), *(part.strip().lower() for part in str(after).split("/"))}
    if isinstance(to, bool) or str(to).lower() in {"none", "off"}:
        return str(to).lower() in shown or (not to and after in {None, False, "none", "off"})
    if isinstance(to, int | float) and isinstance(after, int | float):
        return abs(to - after) <= 0.01 * max(abs(to), abs(after))
    return to == after or str(to).lower() in shown


def facts_in(expectations: Iterable[Expectation]) -> frozenset[Fact[Any]]:
    """Give the facts on which predictions rest; a prediction that cannot be read any more rests on none."""
    facts: set[Fact[Any]] = set()
    for one in expectations:
        try:
            facts |= from_json(one.when, VOCABULARY).facts()
        except ValueError:
            continue
    return frozenset(facts)


def kinds_behind(facts: Iterable[Fact[Any]]) -> frozenset[type[Payload]]:
    """Give the kinds of evidence from which facts are derived, also by way of other facts."""
    derivations = all_derivations()
    kinds: set[type[Payload]] = set()
    waiting, seen = list(facts), set()
    while waiting:
        fact = waiting.pop()
        if fact in seen:
            continue
        seen.add(fact)
        for giver in derivations.givers.get(fact, ()):
            kinds |= set(giver.reads)
            waiting += giver.needs
    return frozenset(kinds)


def measured_first(expectations: Sequence[Expectation]) -> tuple[str, ...]:
    """Give the probes that the first prediction needs, in the order in which they are run before all others."""
    directly = {
        kind
        for fact in facts_in(expectations[:1])
        for giver in all_derivations().givers.get(fact, ())
        for kind in giver.reads
    }
    needed = [name for name, kinds in GIVES.items() if directly & set(kinds) and name not in {"recall", "speed"}]
    if "ladder" in needed:
        # its way of asking is found at the short rung
        needed.insert(needed.index("ladder"), "recall")
    return tuple(dict.fromkeys(needed))


def starts_needed(expectations: Sequence[Expectation]) -> int:
    """Give how often the server has to be started for the first prediction to be seen often enough."""
    return ATTEMPTS if facts_in(expectations[:1]) == {LAUNCH_FAILED} else 1


def attempts_in(case: Case, run: int, against: int, expectation: Expectation) -> int:
    """Count how often a run shows what was predicted: starts where it is about starting, else attempts at the length that decides."""
    evidence = case.evidence(run)
    if facts_in([expectation]) == {LAUNCH_FAILED}:
        starts = [one.healthy for _record, one in evidence.of(Launch)]
        if starts:
            return len(starts) if len(set(starts)) == 1 else 0
        return 1
    rungs = by_rung(one for _record, one in evidence.of(RungResult))
    if not rungs:
        return 1
    then = facts_of(case.evidence(against))
    beyond_what = then.value(FAILURE_TOKENS) or 0
    if not beyond_what and WINDOW_IN_FORCE in facts_in([expectation]):
        beyond_what = then.value(WINDOW_IN_FORCE) or 0
    passing = [length for length in rungs if {one.result for one in rungs[length]} == {"passed"}]
    beyond = [length for length in passing if length >= beyond_what]
    if beyond:
        return max(len(rungs[length]) for length in beyond)
    failing = [length for length in rungs if "passed" not in {one.result for one in rungs[length]}]
    # nothing ran where it failed before: that it fails again is seen as often as it was tried, and what a server says of itself once
    return len(rungs[min(failing)]) if failing else 1


def arithmetic(case: Case, run: int, variable: str, value: Any) -> tuple[int, int] | None:
    """Give the window at which a run's memory was full, and the one at which it is full after a change. None where it was not memory, or unknown.

    Where the server did not start, the window that was asked for stands for it.
    """
    evidence = case.evidence(run)
    facts = facts_of(evidence)
    if facts.value(IS_MEMORY_FAILURE) is not True:
        return None
    full_at = facts.value(WINDOW_ASKED) if facts.value(LAUNCH_FAILED) else facts.value(FAILURE_TOKENS)
    configurations = [one for _record, one in evidence.of(Configuration) if one.command]
    snapshot = snapshot_of(case, run)
    model = snapshot.values.get("model_path") if snapshot is not None else None
    path = model.value.get("path") if model is not None and isinstance(model.value, dict) else None
    if not full_at or not configurations or not path or not Path(str(path)).is_file():
        return None
    devices = next((one.devices for _record, one in evidence.of(DeviceReadings)), ())
    after = shifted(str(path), configurations[0], int(full_at), variable, value, devices)
    return None if after is None else (int(full_at), after)


# -- comparing ------------------------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Comparison:
    """Two runs side by side. ``gains`` and ``losses``: in capacity, speed or recall, beyond the noise."""

    rows: list[ComparedValue] = field(default_factory=list)
    gains: list[Words] = field(default_factory=list)
    losses: list[Words] = field(default_factory=list)
    names: list[Words] = field(default_factory=list)
    comparable: bool = False

    def row(self, name: Words, before: Any, after: Any, standing: Standing, **more: Any) -> None:
        """Put one thing beside the other."""
        self.names.append(name)
        self.rows.append(ComparedValue(name=name.english, before=before, after=after, standing=standing, **more))


def compare(case: Case, before: int, after: int) -> Comparison:
    """Compare what two runs measured: window, speeds, recall and memory, each with its noise."""
    result = Comparison()
    _starts(case, before, after, result)
    _windows(case, before, after, result)
    first = by_rung(one for record, one in case.evidence(before).of(RungResult) if record.run == before)
    second = by_rung(one for record, one in case.evidence(after).of(RungResult) if record.run == after)
    common = [
        length
        for length in first
        if any(one.result == "passed" for one in first[length])
        and any(one.result == "passed" for one in second.get(length, ()))
    ]
    busy = _busy(case, before) or _busy(case, after)
    for length in dict.fromkeys((*common[:1], *common[-1:])):
        _speeds(length, first[length], second[length], result, busy=busy)
        _recall(length, first[length], second[length], result)
    if common:
        _memory(common[-1], first[common[-1]], second[common[-1]], result)
    result.comparable = result.comparable or bool(common)
    return result


def _starts(case: Case, before: int, after: int, result: Comparison) -> None:
    def started(run: int) -> bool | None:
        launches = [one.healthy for one in case.payloads(Launch, run)]
        if launches:
            return all(launches)
        return True if case.payloads(BackendIdentity, run) else None

    was, now = started(before), started(after)
    if was is None or now is None:
        return
    result.comparable = True
    if was and now:
        return
    standing: Standing = "same" if was == now else "better" if now else "worse"
    result.row(words("The server starts"), was, now, standing)
    if standing == "better":
        result.gains.append(words("The server starts now."))
    elif standing == "worse":
        result.losses.append(words("The server does not start any more."))


def _windows(case: Case, before: int, after: int, result: Comparison) -> None:
    one, two = window_verdict(case, before), window_verdict(case, after)
    in_force = [
        next((int(w.in_force) for w in reversed(case.payloads(WindowReading, run)) if w.in_force), None)
        for run in (before, after)
    ]
    rows: tuple[tuple[Words, int | None, int | None, bool], ...] = (
        (words("Window in force"), in_force[0], in_force[1], False),
        (words("Longest prompt that ran"), one.fits, two.fits, True),
        (words("Longest prompt that was fast enough"), one.fast_enough, two.fast_enough, False),
        (words("Longest prompt that was used"), one.recalls, two.recalls, True),
        (words("Verified prompt"), one.verified, two.verified, True),
    )
    for name, was, now, counts in rows:
        if was is None and now is None:
            continue
        noise = max(64, max(was or 0, now or 0) // 50)
        grown = (now or 0) - (was or 0)
        standing: Standing = "same" if abs(grown) <= noise else "better" if grown > 0 else "worse"
        measured_both = bool(one.lengths) and bool(two.lengths)
        if (was is None or now is None) and not measured_both:
            # no length was measured in one of them: there is nothing to hold the other against
            standing = "unknown"
        result.row(name, was, now, standing, unit="tokens", noise=noise)
        if counts and standing in {"better", "worse"}:
            said = words(
                "{what}: {before} tokens before, {after} after.", what=name.english, before=_told(was), after=_told(now)
            )
            (result.gains if standing == "better" else result.losses).append(said)


def _told(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def _busy(case: Case, run: int) -> bool:
    readings = case.payloads(HostReading, run)
    return any(one.load_1min is not None and one.cores and one.load_1min > BUSY * one.cores for one in readings[:1])


def _speeds(
    length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison, *, busy: bool
) -> None:
    speeds = (
        (words("Prefill at {length} tokens", length=f"{length:,}"), "prefill_tps"),
        (words("Generation at {length} tokens", length=f"{length:,}"), "generation_tps"),
    )
    for name, attribute in speeds:
        was = [float(value) for one in before if one.cold is not False and (value := getattr(one, attribute))]
        now = [float(value) for one in after if one.cold is not False and (value := getattr(one, attribute))]
        if not was or not now:
            continue
        old, new = statistics.median(was), statistics.median(now)
        spread = max(max(was) - min(was), max(now) - min(now)) / 2
        few = len(was) + len(now) < 5 or min(len(was), len(now)) < 2
        noise = max(spread, (SPEED_NOISE_OF_FEW if few else SPEED_NOISE) * old)
        standing: Standing = "same"
        note = None
        if abs(new - old) > noise:
            if busy:
                standing, note = "unknown", words("The machine was busy with something else.").english
            elif min(now) > max(was) or max(now) < min(was):
                standing = "better" if new > old else "worse"
        result.row(name, round(old, 1), round(new, 1), standing, unit="tokens/s", noise=round(noise, 1), note=note)
        if standing in {"better", "worse"}:
            said = words(
                "{what}: {before} tokens per second before, {after} after.",
                what=name.english,
                before=f"{old:,.0f}",
                after=f"{new:,.0f}",
            )
            (result.gains if standing == "better" else result.losses).append(said)


def _recall(length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison) -> None:
    scores = [
        pooled([one.canaries for one in attempts if one.canaries is not None and one.canaries.asked])
        for attempts in (before, after)
        if any(one.canaries is not None and one.canaries.asked for one in attempts)
    ]
    if len(scores) < 2:
        return
    was, now = scores[0].hit / scores[0].asked, scores[1].hit / scores[1].asked
    chance = same_share(Group(scores[0].hit, scores[0].asked, ()), Group(scores[1].hit, scores[1].asked, ()))
    standing: Standing = "same" if chance > SURELY_DIFFERENT else "better" if now > was else "worse"
    name = words("Recall at {length} tokens", length=f"{length:,}")
    noise = 1.96 * (0.25 / min(one.asked for one in scores)) ** 0.5
    result.row(name, round(was, 3), round(now, 3), standing, unit="share", noise=round(noise, 3))
    if standing in {"better", "worse"}:
        said = words(
            "{what}: {before} before, {after} after.", what=name.english, before=f"{was:.0%}", after=f"{now:.0%}"
        )
        (result.gains if standing == "better" else result.losses).append(said)


def _memory(length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison) -> None:
    def peaks(attempts: Sequence[RungResult]) -> dict[str, list[int]]:
        table: dict[str, list[int]] = {}
        for one in attempts:
            for peak in one.devices:
                table.setdefault(peak.id, []).append(peak.peak_bytes)
            if one.host_peak_bytes is not None:
                table.setdefault("host", []).append(one.host_peak_bytes)
        return table

    was, now = peaks(before), peaks(after)
    for where in sorted(set(was) & set(now)):
        old, new = max(was[where]), max(now[where])
        noise = max(max(was[where]) - min(was[where]), max(now[where]) - min(now[where]), 32 * MIB, old // 100)
        standing: Standing = "same" if abs(new - old) <= noise else "better" if new < old else "worse"
        name = (
            words("Peak of the server's system memory at {length} tokens", length=f"{length:,}")
            if where == "host"
            else words("Peak memory of {device} at {length} tokens", device=where, length=f"{length:,}")
        )
        result.row(name, old, new, standing, unit="bytes", noise=noise)


# -- settling -------------------------------------------------------------------------------------------------------------------------------


def settle(case: Case, run: int) -> ChangeMade | None:
    """Say what was changed before a run and what that proves, and write it into the journal. None: there is no run to compare with.

    To be called when the run's evidence is complete and before it is judged: a prediction that failed is evidence against its cause.
    """
    done = [ChangeMade.model_validate(entry.data) for entry in case.of("change", run)]
    if done:
        return done[-1]
    _keep_what_failed(case, run)
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


def _gained(entry: _Entry) -> None:
    """Say what was gained and lost, and whether the change is worth keeping."""
    compared = entry.compared
    for said in (*compared.gains, *compared.losses):
        entry.note(said)
    if not compared.comparable:
        entry.note(words("Nothing was measured in both runs, so what the change gained cannot be told."))
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
    before = _line(case, against)
    if before is not None and before.cause is not None and before.prediction == "held":
        given = _expectation(case, before)
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
    undone = _undoes(case, entry, changed)
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


def _undoes(case: Case, entry: _Entry, changed: Changed) -> int | None:
    """Say which run's change this one takes back, if any."""
    before = _line(case, entry.against)
    if before is None or len(before.variables) != 1 or before.kept:
        return None
    then = before.variables[0]
    if then.name == changed.name and str(then.before) == str(changed.after) and str(then.after) == str(changed.before):
        return before.run
    return None


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


# -- commands -------------------------------------------------------------------------------------------------------------------------------


def command_of(case: Case, run: int) -> tuple[str, ...] | None:
    """Give the server's command line as a run had it, or None."""
    commands = [one.command for _record, one in case.evidence(run).of(Configuration) if one.command]
    return commands[0] if commands else None


LEVERS = ("speculation", "mmproj", "mmproj_offload", "ubatch", "batch", "tensor_split", "split_mode", "parallel", "kv_unified", "flash_attention",
          "kv_type", "kv_type_k", "kv_type_v", "model_path", "ctx")  # fmt: skip
"""What costs no quality comes first: the order in which changes are told apart."""


def separating(case: Case, against: int, variables: Sequence[Changed]) -> list[str]:
    """Give the commands that change one variable alone, from the command of the run that is compared with: the A/B that tells them apart."""
    base = command_of(case, against)
    if base is None:
        return []
    backend = detect_backend(base)
    commands: list[str] = []
    for one in sorted(variables, key=lambda each: LEVERS.index(each.name) if each.name in LEVERS else len(LEVERS)):
        if not one.asked or isinstance(one.after, Mapping):
            continue
        try:
            changed = list(base)
            if isinstance(one.after, str) and "/" in one.after and one.name == "kv_type":
                for side, value in zip(("kv_type_k", "kv_type_v"), one.after.split("/"), strict=False):
                    changed = change_command(changed, backend, side, None if value == "not set" else value)
            elif one.name == "model_path":
                continue
            else:
                changed = change_command(base, backend, one.name, one.after)
        except CtxDoctorError:
            continue
        if list(changed) != list(base):
            commands.append(as_text(changed))
    return commands[:4]


# -- the ledger -----------------------------------------------------------------------------------------------------------------------------


def ledger(case: Case) -> list[ChangeMade]:
    """Give what was changed before each run and what came of it, oldest first."""
    return [ChangeMade.model_validate(entry.data) for entry in case.of("change")]


def _line(case: Case, run: int) -> ChangeMade | None:
    lines = [one for one in ledger(case) if one.run == run]
    return lines[-1] if lines else None


def _expectation(case: Case, line: ChangeMade) -> tuple[int, Expectation] | None:
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
        before = _line(case, line.against or 0)
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


def facts_at(case: Case, run: int) -> Facts:
    """Give the facts of a run."""
    return facts_of(case.evidence(run))
