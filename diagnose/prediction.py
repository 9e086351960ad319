"""What a proposed change predicts: whether a change is the one that was proposed, what its prediction needs, and how often it was seen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from diagnose.case import Case
from diagnose.plan import GIVES
from diagnose.readback import GROUPS, Changed
from diagnose.shift import shifted
from diagnose.snapshots import snapshot_of
from diagnose.window import by_rung
from probes.evidence.machine import DeviceReadings
from probes.evidence.request import Launch
from probes.evidence.rungs import RungResult
from probes.evidence.subject import Configuration
from rules.catalogue import facts_of
from rules.derive import all_derivations
from rules.engine import Fact, from_json
from rules.facts import FAILURE_TOKENS, IS_MEMORY_FAILURE, LAUNCH_FAILED, VOCABULARY, WINDOW_ASKED, WINDOW_IN_FORCE
from rules.verdict import Expectation, NextTest

ATTEMPTS = 3
"""So often what was predicted has to be seen before a cause is confirmed."""


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
