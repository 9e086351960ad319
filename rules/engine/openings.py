"""What to do next: the probe, question or file that carries the most weight per minute, and the one change that tells the leaders apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Literal

from .condition import Condition
from .fact import Fact, Facts, Unknown
from .judge import Finding, Judgement
from .rule import Quality, Rule, Test
from .truth import Truth


@dataclass(frozen=True, slots=True)
class Closer:
    """Something that can close unknowns: a question, a probe, or a file to be given; which facts, and what it costs in minutes."""

    id: str
    kind: Literal["ask", "give", "probe"]
    facts: frozenset[Fact[Any]]
    minutes: float


@dataclass(frozen=True, slots=True)
class Opening:
    """One closer, how many decibans it could move among the causes in play, and those causes: the ones that lead first, then the most moved."""

    closer: Closer
    weight: float
    causes: tuple[str, ...]

    @property
    def per_minute(self) -> float:
        """Give decibans per minute."""
        return self.weight / max(self.closer.minutes, 0.05)


def open_weights(judgement: Judgement) -> dict[Fact[Any], dict[str, float]]:
    """Give for each open fact what it could move for each cause in play. A clue's width is shared among its open facts."""
    weights: dict[Fact[Any], dict[str, float]] = {}
    for finding in judgement.in_play():
        for clue in finding.clues:
            if not clue.open:
                continue
            facts = [
                leaf.fact
                for leaf in clue.trace.unsettled()
                if isinstance(leaf.found, Unknown) and leaf.found.is_open(judgement.ways)
            ]
            for fact in facts:
                share = weights.setdefault(fact, {})
                share[finding.cause] = share.get(finding.cause, 0.0) + (clue.high - clue.low) / len(facts)
    return weights


_SPOKEN_FOR = frozenset({"likely", "possible", "disputed"})
_UNSPOKEN = 0.1


def openings(judgement: Judgement, closers: Iterable[Closer]) -> tuple[Opening, ...]:
    """Give what could still be found out, the most weight per minute first. What moves nothing is left out: then is the time to stop.

    What tells the causes apart that lead counts in full, what could only raise one for which nothing speaks yet a tenth: many of those together
    would drown the question that matters.
    """
    weights = open_weights(judgement)
    spoken_for = {finding.cause for finding in judgement.findings if finding.band in _SPOKEN_FOR}
    counts = {True: 1.0, False: _UNSPOKEN if spoken_for else 1.0}
    found = []
    for closer in closers:
        by_cause: dict[str, float] = {}
        for fact in closer.facts:
            for cause, weight in weights.get(fact, {}).items():
                by_cause[cause] = by_cause.get(cause, 0.0) + weight * counts[cause in spoken_for]
        if by_cause:
            causes = tuple(sorted(by_cause, key=lambda cause: (cause not in spoken_for, -by_cause[cause], cause)))
            found.append(Opening(closer, sum(by_cause.values()), causes))
    return tuple(sorted(found, key=lambda o: (-o.per_minute, o.closer.id)))


def can_change_verdict(judgement: Judgement, facts: Collection[Fact[Any]]) -> bool:
    """Say whether closing these facts could change what is named or which cause leads: if not, do not ask.

    A cause in play whose high passes the lead's low, or a named cause whose low could lose its lead, and that rests on one of the facts.
    """
    lead = max((f.low for f in judgement.findings if f.cause in judgement.named), default=None)
    for finding in judgement.in_play():
        if not finding.open_facts(judgement.ways) & frozenset(facts):
            continue
        if lead is None or finding.cause in judgement.named or finding.high > lead:
            return True
    return False


_QUALITY: dict[Quality, int] = {"none": 0, "some": 1, "much": 2}


@dataclass(frozen=True, slots=True)
class Choice:
    """The next test, of which rule, and which leaders it tells apart from the rest."""

    test: Test
    rule: Rule
    splits: bool
    moves: tuple[str, ...]
    stays: tuple[str, ...]


def tried_key(test: Test, facts: Facts) -> tuple[str, str]:
    """Give what tells two tests apart in a case's history: the variable and the value that it goes to."""
    return (test.variable, repr(test.value_of(test.to, facts)))


def offered(test: Test, facts: Facts, tried: Collection[tuple[str, str]] = ()) -> bool:
    """Say whether a test can be proposed: it applies, it changes something, and it was not tried yet."""
    if test.when is not None and _truth(test.when, facts) is Truth.FALSE:
        return False
    if test.kind == "change":
        to, start = test.value_of(test.to, facts), test.value_of(test.start, facts)
        if to == start or (to is None and not test.unset):
            return False
    return tried_key(test, facts) not in tried


def next_test(judgement: Judgement, facts: Facts, tried: Collection[tuple[str, str]] = ()) -> Choice | None:
    """Choose one test for the leaders; None if there is none left, or no leader.

    A lever that costs quality is not proposed while a free one is untried, one for a cause that is not named not while a named one has any, and a
    habit not while there is a change. Then the one that tells the leaders apart, then the one that costs least, then the quickest, then the one
    for the cause that leads.
    """
    leaders = judgement.leaders()
    causes = [finding.cause for finding in leaders]
    choices: list[tuple[tuple[Any, ...], Choice]] = []
    for place, finding in enumerate(leaders):
        for order, test in enumerate(finding.rule.tests):
            if not offered(test, facts, tried):
                continue
            moves = tuple(
                cause
                for cause in causes
                if cause == finding.cause or cause in test.also or cause in finding.rule.explains
            )
            stays = tuple(cause for cause in causes if cause not in moves)
            splits = bool(stays) and test.kind == "change"
            named_first = int(bool(judgement.named) and finding.cause not in judgement.named)
            key = (
                named_first,
                test.kind == "habit",
                _QUALITY[test.quality] > 0,
                not splits,
                _QUALITY[test.quality],
                test.minutes,
                place,
                order,
            )
            choices.append((key, Choice(test, finding.rule, splits, moves, stays)))
    return min(choices, key=lambda c: c[0])[1] if choices else None


def leading(judgement: Judgement) -> Finding | None:
    """Give the finding that leads, or None."""
    leaders = judgement.leaders()
    return leaders[0] if leaders else None


def _truth(condition: Condition, facts: Facts) -> Truth:
    return condition.evaluate(facts).truth
