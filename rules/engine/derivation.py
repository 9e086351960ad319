"""Evidence → facts: pure functions that declare what they read and what they give, in an order that is checked when they are joined.

A derivation yields readings. Where several give one fact, the best source is taken (measured beats read, read beats answered, pasted prose comes
last) and a contradiction is kept. A value that cannot be is refused at the door, with its source named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, TypeVar

from probes.evidence.errors import ImpossibleValueError
from probes.evidence.records import Evidence, EvidenceSet, Payload, Source, Unavailable, Why

from .fact import ALL_WAYS, Conflict, Fact, Facts, Known, Refusal, Unknown, Way

P = TypeVar("P", bound=Payload)

ROUNDING = 0.02
"""Numbers this near to each other are no contradiction: sources round (MiB, GB, "about 72K")."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One derivation's word on one fact: a value with its source, or why there is none."""

    fact: Fact[Any]
    value: Any = None
    source: Source = "measured"
    origin: str = ""
    why: Why | None = None
    note: str = ""


def reading(
    fact: Fact[Any], value: object, evidence: Evidence | None = None, *, source: Source | None = None, origin: str = ""
) -> Reading:
    """Give a reading of a value; its source and origin are those of the evidence unless given. None says nothing, and is passed over."""
    of = source or (evidence.source if evidence else "measured")
    return Reading(fact, value, of, origin or (evidence.origin if evidence else ""))


def unread(fact: Fact[Any], why: Why, note: str = "") -> Reading:
    """Give the reason why a fact cannot be read."""
    return Reading(fact, why=why, note=note)


class Sight:
    """What one derivation may see: the kinds of evidence and the facts that it declared, nothing else. LookupError otherwise."""

    def __init__(
        self, evidence: EvidenceSet, facts: Facts, kinds: frozenset[str], needs: frozenset[Fact[Any]], name: str
    ) -> None:
        self._evidence = evidence
        self._facts = facts
        self._kinds = kinds
        self._needs = needs
        self._name = name

    def of(self, kind: type[P]) -> list[tuple[Evidence, P]]:
        """Give every piece of that kind that has data, oldest first, with its record."""
        self._allow(kind)
        return self._evidence.of(kind)

    def last(self, kind: type[P]) -> tuple[Evidence, P] | None:
        """Give the newest piece of that kind with its record, or None."""
        pieces = self.of(kind)
        return pieces[-1] if pieces else None

    def why_not(self, kind: type[Payload]) -> Unavailable | None:
        """Say why there is none of that kind, where a probe said so."""
        self._allow(kind)
        return self._evidence.why_not(kind)

    def absent(self, kind: type[Payload]) -> list[tuple[str, Unavailable]]:
        """Give what of that kind could not be had: the origin of each, and why."""
        self._allow(kind)
        return [
            (e.origin, e.unavailable) for e in self._evidence.all if e.kind == kind.kind and e.unavailable is not None
        ]

    def known(self, fact: Fact[Any]) -> Known[Any] | None:
        """Give a fact that was derived before, or None where it is unknown."""
        if fact not in self._needs:
            raise LookupError(f"{self._name} needs {fact.id} without saying so")
        found = self._facts.get(fact)
        return found if isinstance(found, Known) else None

    def _allow(self, kind: type[Payload]) -> None:
        if kind.kind not in self._kinds:
            raise LookupError(f"{self._name} reads {kind.kind} without saying so")


@dataclass(frozen=True, slots=True)
class Derivation:
    """One function from evidence and facts to readings, with what it reads, needs and gives."""

    name: str
    reads: tuple[type[Payload], ...]
    needs: tuple[Fact[Any], ...]
    gives: tuple[Fact[Any], ...]
    run: Callable[[Sight], Iterable[Reading]]


def derivation(
    *, gives: Iterable[Fact[Any]], reads: Iterable[type[Payload]] = (), needs: Iterable[Fact[Any]] = ()
) -> Callable[[Callable[[Sight], Iterable[Reading]]], Derivation]:
    """Declare a derivation: which payloads it reads, which facts it needs, which it gives."""

    def declare(function: Callable[[Sight], Iterable[Reading]]) -> Derivation:
        name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"
        return Derivation(name, tuple(reads), tuple(needs), tuple(gives), function)

    return declare


def mirror(asked: Fact[Any], fact: Fact[Any], convert: Callable[[Any], Any] = lambda value: value) -> Derivation:
    """Make a derivation that gives one fact by another's value, with its source. ``convert`` gives None where it says nothing.

    One fact each, so that what is still open is exactly what could still say it.
    """

    def run(sight: Sight) -> Iterator[Reading]:
        known = sight.known(asked)
        if known is not None:
            yield reading(fact, convert(known.value), source=known.source, origin=known.origin)

    return Derivation(f"{asked.id} → {fact.id}", (), (asked,), (fact,), run)


GIVEN_KINDS: frozenset[str] = frozenset(
    {
        *("log_event", "log_summary", "configuration", "model_file", "memory_budget", "launch", "process_ended"),
        *("client_settings", "watch_summary"),
    }
)
"""Kinds that a user can hand over without a live server."""


def _way_of(kind: str) -> Way:
    if kind == "answer":
        return "ask"
    return "give" if kind in GIVEN_KINDS else "probe"


class Derivations:
    """Derivations joined and ordered. ValueError on a circle, or on a fact that is needed and that nothing gives."""

    def __init__(self, derivations: Iterable[Derivation]) -> None:
        all_of_them = sorted(derivations, key=lambda d: d.name)
        self.givers: dict[Fact[Any], list[Derivation]] = {}
        for one in all_of_them:
            for fact in one.gives:
                self.givers.setdefault(fact, []).append(one)
        before: dict[str, set[str]] = {one.name: set() for one in all_of_them}
        if len(before) != len(all_of_them):
            raise ValueError("two derivations have one name")
        for one in all_of_them:
            for fact in one.needs:
                if fact not in self.givers:
                    raise ValueError(f"{one.name} needs {fact.id}, which nothing gives")
                before[one.name] |= {giver.name for giver in self.givers[fact]}
        by_name = {one.name: one for one in all_of_them}
        try:
            self.ordered: tuple[Derivation, ...] = tuple(
                by_name[name] for name in TopologicalSorter(before).static_order()
            )
        except CycleError as error:
            raise ValueError(f"derivations go in a circle: {' → '.join(error.args[1])}") from None
        self.ways: dict[Fact[Any], frozenset[Way]] = {}
        for one in self.ordered:
            for fact in one.gives:
                self.ways[fact] = self.ways.get(fact, frozenset()) | self._ways_of(one)
        # Where several derivations give one fact, those that ran earlier saw only a part of its ways; a second pass settles what hangs on it.
        for one in self.ordered:
            for fact in one.gives:
                self.ways[fact] |= self._ways_of(one)

    def _ways_of(self, one: Derivation) -> frozenset[Way]:
        ways = {_way_of(kind.kind) for kind in one.reads}
        for fact in one.needs:
            ways |= self.ways.get(fact, frozenset())
        return frozenset(ways)

    def derive(self, evidence: EvidenceSet) -> Facts:
        """Give the facts of this evidence. Pure; nothing from outside makes it raise: what cannot be is refused and listed."""
        known: dict[Fact[Any], list[Known[Any]]] = {}
        unknown: dict[Fact[Any], list[tuple[Unknown, Derivation]]] = {}
        refused: list[Refusal] = []
        settled: dict[Fact[Any], Known[Any] | Unknown] = {}
        conflicts: list[Conflict] = []
        waiting = {fact: len(givers) for fact, givers in self.givers.items()}
        present = {e.kind for e in evidence.all if e.data is not None}
        for one in self.ordered:
            facts = Facts(settled)
            sight = Sight(evidence, facts, frozenset(kind.kind for kind in one.reads), frozenset(one.needs), one.name)
            said: set[Fact[Any]] = set()
            for word in one.run(sight):
                if word.fact not in one.gives:
                    raise LookupError(f"{one.name} gives {word.fact.id} without saying so")
                if word.value is None and word.why is None:
                    continue
                said.add(word.fact)
                if word.why is not None:
                    unknown.setdefault(word.fact, []).append((Unknown(word.why, word.note), one))
                    continue
                try:
                    known.setdefault(word.fact, []).append(
                        word.fact.admit(word.value, source=word.source, origin=word.origin)
                    )
                except ImpossibleValueError as error:
                    refused.append(Refusal(word.fact, str(error)))
                    unknown.setdefault(word.fact, []).append((Unknown("failed", str(error)), one))
            for fact in one.gives:
                if fact not in said:
                    unknown.setdefault(fact, []).append((self._why_silent(one, evidence, present, facts), one))
                waiting[fact] -= 1
                if waiting[fact] == 0:
                    settled[fact] = self._settle(fact, known.get(fact, []), unknown.get(fact, []), conflicts)
        return Facts(settled, tuple(conflicts), tuple(refused))

    @staticmethod
    def _why_silent(one: Derivation, evidence: EvidenceSet, present: set[str], facts: Facts) -> Unknown:
        """Say why a derivation had no word on a fact: nothing to read yet, a fact that it needs is open, or what was read does not tell."""
        needed = [facts.get(fact) for fact in one.needs]
        still_open = [found for found in needed if isinstance(found, Unknown) and found.is_open()]
        missing = [kind for kind in one.reads if kind.kind not in present]
        if still_open:
            ways = frozenset().union(*(found.ways for found in still_open))
            return Unknown(
                still_open[0].why,
                still_open[0].note,
                ways | {_way_of(kind.kind) for kind in missing if not evidence.why_not(kind)},
            )
        if len(missing) < len(one.reads) or (one.needs and not one.reads):
            return Unknown("not-offered", "what was read does not tell")
        for kind in missing:
            reason = evidence.why_not(kind)
            if reason is not None:
                return Unknown(reason.why, reason.note)
        asked = all(kind.kind == "answer" for kind in missing) and bool(missing)
        return Unknown(
            "not-asked" if asked else "not-run", "", frozenset(_way_of(kind.kind) for kind in missing) or ALL_WAYS
        )

    def _settle(
        self,
        fact: Fact[Any],
        known: list[Known[Any]],
        unknown: list[tuple[Unknown, Derivation]],
        conflicts: list[Conflict],
    ) -> Known[Any] | Unknown:
        if known:
            # Of equal rank the latest word stands: evidence is read oldest first.
            best: Known[Any] = min(reversed(known), key=lambda k: k.rank)
            others = tuple(k for k in known if k is not best and not _agree(k.value, best.value, fact.near))
            if others:
                conflicts.append(Conflict(fact, best, others))
            return best
        ways: set[Way] = set()
        reason: Unknown | None = None
        for word, one in unknown:
            if word.is_open():
                ways |= word.ways if word.ways != ALL_WAYS else self._ways_of(one)
                reason = word if reason is None or not reason.is_open() else reason
            elif reason is None or (reason.why == "not-offered" and not reason.is_open()):
                reason = word
        reason = reason or Unknown("not-run")
        return Unknown(reason.why, reason.note, frozenset(ways) if ways else ALL_WAYS)


def _agree(one: object, two: object, near: float | None = None) -> bool:
    if (
        isinstance(one, bool)
        or isinstance(two, bool)
        or not isinstance(one, (int, float))
        or not isinstance(two, (int, float))
    ):
        return one == two
    return abs(one - two) <= (ROUNDING if near is None else near) * max(abs(one), abs(two))


def gather(module: object) -> Iterator[Derivation]:
    """Give the derivations of a module: those that it names, and those in tuples that it names."""
    for value in vars(module).values():
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, Derivation):
                yield one
