"""Conditions over facts: what is asked, what came of it with every value that was looked at, and what could still come of it.

Every part is evaluated, always: the leaves of a trace are exactly the facts of the condition. A condition is data as well: :meth:`Condition.to_json`
and :func:`from_json` keep it in a case, to be evaluated again on a later run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from .fact import ALL_WAYS, Fact, Facts, Known, Term, Unknown, Vocabulary, Way
from .truth import Truth, conjunction, disjunction, negation, truth_of

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One fact that a condition looked at, and what was found."""

    fact: Fact[Any]
    found: Known[Any] | Unknown


@dataclass(frozen=True, slots=True)
class Trace:
    """What came of a condition: its truth, its leaves, and the traces of its parts."""

    condition: Condition
    truth: Truth
    own: tuple[Leaf, ...] = ()
    parts: tuple[Trace, ...] = ()

    def leaves(self) -> Iterator[Leaf]:
        """Give every leaf, in the order in which the condition names them, each fact once."""
        seen: set[Fact[Any]] = set()
        for leaf in self._all():
            if leaf.fact not in seen:
                seen.add(leaf.fact)
                yield leaf

    def _all(self) -> Iterator[Leaf]:
        yield from self.own
        for part in self.parts:
            yield from part._all()

    def unsettled(self) -> tuple[Leaf, ...]:
        """Give the unknown leaves that keep this from being settled; none exactly when it is settled."""
        if self.truth.settled:
            return ()
        found: dict[Fact[Any], Leaf] = {leaf.fact: leaf for leaf in self.own if isinstance(leaf.found, Unknown)}
        for part in self.parts:
            for leaf in part.unsettled():
                found.setdefault(leaf.fact, leaf)
        return tuple(found.values())


class Condition(ABC):
    """A question about facts that is true, false or unknown. ``bool()`` of it raises; evaluate it."""

    def __bool__(self) -> NoReturn:
        """Refuse. TypeError: `and`, `or`, `not` and chained comparisons would silently drop a part."""
        raise TypeError("a condition has no truth value of Python's; use all_of, any_of, not_, and evaluate()")

    @abstractmethod
    def facts(self) -> frozenset[Fact[Any]]:
        """Give every fact that it looks at."""

    @abstractmethod
    def evaluate(self, facts: Facts) -> Trace:
        """Evaluate every part, and give the trace."""

    @abstractmethod
    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what the truth is or could become once what can be closed by these ways is closed."""

    @abstractmethod
    def to_json(self) -> Json:
        """Give it as data."""

    def open_facts(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Fact[Any]]:
        """Give the facts that keep it unsettled and can still be closed by these ways."""
        return frozenset(
            leaf.fact
            for leaf in self.evaluate(facts).unsettled()
            if isinstance(leaf.found, Unknown) and leaf.found.is_open(ways)
        )

    def frozen(self, facts: Facts) -> Condition:
        """Put in the values that ``before`` stands for: what is left can be judged on a later run's facts alone."""
        del facts
        return self

    def has_before(self) -> bool:
        """Say whether it refers to the run before."""
        return False


def _reach_of_leaf(
    found: Known[Any] | Unknown, ways: frozenset[Way], known: Callable[[Any], Truth]
) -> frozenset[Truth]:
    if isinstance(found, Known):
        return frozenset({known(found.value)})
    return frozenset(Truth) if found.is_open(ways) else frozenset({Truth.UNKNOWN})


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    ">": lambda a, b: a > b,
    "<": lambda a, b: a < b,
    ">=": lambda a, b: a >= b,
    "<=": lambda a, b: a <= b,
}


@dataclass(frozen=True, slots=True)
class Compare(Condition):
    """A fact against a number, another fact times a factor, or its own value of the run before."""

    fact: Fact[Any]
    operator: str
    other: object

    def __post_init__(self) -> None:
        """Refuse what cannot be compared. TypeError."""
        if self.fact.kind not in {int, float}:
            raise TypeError(f"{self.fact.id} is no number and has no order")
        other = self.other.fact if isinstance(self.other, Term) else self.other
        number = (
            other.kind in {int, float}
            if isinstance(other, Fact)
            else isinstance(other, (int, float)) and not isinstance(other, bool)
        )
        if not number:
            raise TypeError(f"{self.fact.id} cannot be compared with {other!r}")

    def facts(self) -> frozenset[Fact[Any]]:
        """Give the fact, and the other one if it is compared with one."""
        other = {self.other.fact} if isinstance(self.other, Term) and not self.other.before else set()
        return frozenset({self.fact, *other})

    def _found(self, facts: Facts) -> tuple[Leaf, ...]:
        leaves = [Leaf(self.fact, facts.get(self.fact))]
        if isinstance(self.other, Term) and not self.other.before and self.other.fact is not self.fact:
            leaves.append(Leaf(self.other.fact, facts.get(self.other.fact)))
        return tuple(leaves)

    def _bound(self, facts: Facts) -> Known[Any] | Unknown:
        if not isinstance(self.other, Term):
            return Known(self.other)
        if self.other.before:
            return Unknown("not-run", "the run before is not known here")
        found = facts.get(self.other.fact)
        return Known(found.value * self.other.factor, found.source) if isinstance(found, Known) else found

    def evaluate(self, facts: Facts) -> Trace:
        """Compare, if both sides are known."""
        found, bound = facts.get(self.fact), self._bound(facts)
        truth = Truth.UNKNOWN
        if isinstance(found, Known) and isinstance(bound, Known):
            truth = truth_of(_OPERATORS[self.operator](found.value, bound.value))
        return Trace(self, truth, self._found(facts))

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it: anything while both sides are known or can be closed."""
        sides = (facts.get(self.fact), self._bound(facts))
        unknown = [side for side in sides if isinstance(side, Unknown)]
        if not unknown:
            return frozenset({self.evaluate(facts).truth})
        closable = all(side.is_open(ways) for side in unknown)
        return frozenset(Truth) if closable else frozenset({Truth.UNKNOWN})

    def has_before(self) -> bool:
        """Say whether it is compared with the run before."""
        return isinstance(self.other, Term) and self.other.before

    def frozen(self, facts: Facts) -> Condition:
        """Put in the value of the run before; where that is unknown, nothing can be told ever."""
        if not isinstance(self.other, Term) or not self.other.before:
            return self
        found = facts.get(self.other.fact)
        if isinstance(found, Unknown):
            return CannotTell(f"{self.other.fact.id} was unknown before the change")
        return Compare(self.fact, self.operator, found.value * self.other.factor)

    def to_json(self) -> Json:
        """Give it as data."""
        if not isinstance(self.other, Term):
            return {"op": self.operator, "fact": self.fact.id, "value": self.other}
        return {
            "op": self.operator,
            "fact": self.fact.id,
            "other": self.other.fact.id,
            "factor": self.other.factor,
            "before": self.other.before,
        }


@dataclass(frozen=True, slots=True)
class OneOf(Condition):
    """A fact is one of some values."""

    fact: Fact[Any]
    values: tuple[Any, ...]

    def __post_init__(self) -> None:
        """Refuse values that the fact cannot have: such a condition would never be true. ImpossibleValueError, ValueError."""
        if not self.values:
            raise ValueError(f"{self.fact.id}: one of nothing is never true")
        for value in self.values:
            self.fact.admit(value, source="user", origin="a rule")

    def facts(self) -> frozenset[Fact[Any]]:
        """Give the one fact."""
        return frozenset({self.fact})

    def evaluate(self, facts: Facts) -> Trace:
        """Look whether the value is among them."""
        found = facts.get(self.fact)
        truth = truth_of(found.value in self.values) if isinstance(found, Known) else Truth.UNKNOWN
        return Trace(self, truth, (Leaf(self.fact, found),))

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        return _reach_of_leaf(facts.get(self.fact), ways, lambda value: truth_of(value in self.values))

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "one-of", "fact": self.fact.id, "values": list(self.values)}


@dataclass(frozen=True, slots=True)
class Has(Condition):
    """A tuple fact has a member."""

    fact: Fact[Any]
    member: str

    def __post_init__(self) -> None:
        """Refuse what the fact cannot hold. TypeError, ImpossibleValueError."""
        if self.fact.kind is not tuple:
            raise TypeError(f"{self.fact.id} has no members")
        self.fact.admit((self.member,), source="user", origin="a rule")

    def facts(self) -> frozenset[Fact[Any]]:
        """Give the one fact."""
        return frozenset({self.fact})

    def evaluate(self, facts: Facts) -> Trace:
        """Look whether it is a member."""
        found = facts.get(self.fact)
        truth = truth_of(self.member in found.value) if isinstance(found, Known) else Truth.UNKNOWN
        return Trace(self, truth, (Leaf(self.fact, found),))

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        return _reach_of_leaf(facts.get(self.fact), ways, lambda value: truth_of(self.member in value))

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "has", "fact": self.fact.id, "member": self.member}


@dataclass(frozen=True, slots=True)
class IsKnown(Condition):
    """A fact is known: true; cannot become known: false; still open: unknown."""

    fact: Fact[Any]

    def facts(self) -> frozenset[Fact[Any]]:
        """Give the one fact."""
        return frozenset({self.fact})

    def evaluate(self, facts: Facts) -> Trace:
        """Look whether it is known. What is open stays unknown here, so that learning it never overturns a false."""
        found = facts.get(self.fact)
        truth = Truth.TRUE
        if isinstance(found, Unknown):
            truth = Truth.UNKNOWN if found.is_open() else Truth.FALSE
        return Trace(self, truth, (Leaf(self.fact, found),))

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        found = facts.get(self.fact)
        if isinstance(found, Unknown) and found.is_open():
            return frozenset(Truth) if found.is_open(ways) else frozenset({Truth.UNKNOWN})
        return frozenset({self.evaluate(facts).truth})

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "known", "fact": self.fact.id}


@dataclass(frozen=True, slots=True)
class _Parts(Condition):
    parts: tuple[Condition, ...]

    def facts(self) -> frozenset[Fact[Any]]:
        """Give the facts of all parts."""
        return frozenset().union(*(part.facts() for part in self.parts))

    def has_before(self) -> bool:
        """Say whether a part refers to the run before."""
        return any(part.has_before() for part in self.parts)


def _combine(sets: list[frozenset[Truth]], combine: Callable[[tuple[Truth, ...]], Truth]) -> frozenset[Truth]:
    # Folded two at a time: Kleene's and/or are associative, so the number of combinations stays at nine a step.
    result = frozenset({combine(())})
    for other in sets:
        result = frozenset(combine((a, b)) for a in result for b in other)
    return result


@dataclass(frozen=True, slots=True)
class AllOf(_Parts):
    """All parts hold."""

    def evaluate(self, facts: Facts) -> Trace:
        """Evaluate every part, and combine them with and."""
        traces = tuple(part.evaluate(facts) for part in self.parts)
        return Trace(self, conjunction(t.truth for t in traces), (), traces)

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        return _combine([part.reach(facts, ways) for part in self.parts], conjunction)

    def frozen(self, facts: Facts) -> Condition:
        """Freeze every part."""
        return AllOf(tuple(part.frozen(facts) for part in self.parts))

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "all", "of": [part.to_json() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class AnyOf(_Parts):
    """At least one part holds."""

    def evaluate(self, facts: Facts) -> Trace:
        """Evaluate every part, and combine them with or."""
        traces = tuple(part.evaluate(facts) for part in self.parts)
        return Trace(self, disjunction(t.truth for t in traces), (), traces)

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        return _combine([part.reach(facts, ways) for part in self.parts], disjunction)

    def frozen(self, facts: Facts) -> Condition:
        """Freeze every part."""
        return AnyOf(tuple(part.frozen(facts) for part in self.parts))

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "any", "of": [part.to_json() for part in self.parts]}


@dataclass(frozen=True, slots=True)
class Not(_Parts):
    """The one part does not hold."""

    def evaluate(self, facts: Facts) -> Trace:
        """Evaluate the part, and turn it round."""
        trace = self.parts[0].evaluate(facts)
        return Trace(self, negation(trace.truth), (), (trace,))

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Give what may come of it."""
        return frozenset(negation(truth) for truth in self.parts[0].reach(facts, ways))

    def frozen(self, facts: Facts) -> Condition:
        """Freeze the part."""
        return Not((self.parts[0].frozen(facts),))

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "not", "of": [self.parts[0].to_json()]}


@dataclass(frozen=True, slots=True)
class CannotTell(Condition):
    """What can never be told, with why: a prediction whose starting value was not measured."""

    why: str

    def facts(self) -> frozenset[Fact[Any]]:
        """Give no fact."""
        return frozenset()

    def evaluate(self, facts: Facts) -> Trace:
        """Stay unknown."""
        del facts
        return Trace(self, Truth.UNKNOWN)

    def reach(self, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Truth]:
        """Stay unknown."""
        del facts, ways
        return frozenset({Truth.UNKNOWN})

    def to_json(self) -> Json:
        """Give it as data."""
        return {"op": "cannot-tell", "why": self.why}


def all_of(*parts: Condition) -> Condition:
    """Condition: all of these hold. ValueError without any."""
    return AllOf(_some(parts))


def any_of(*parts: Condition) -> Condition:
    """Condition: at least one of these holds. ValueError without any."""
    return AnyOf(_some(parts))


def not_(part: Condition) -> Condition:
    """Condition: this does not hold."""
    return Not((part,))


def _some(parts: tuple[Condition, ...]) -> tuple[Condition, ...]:
    if not parts:
        raise ValueError("a condition of no parts says nothing")
    return parts


_GROUPS: dict[str, Callable[..., Condition]] = {"all": all_of, "any": any_of, "not": not_}


def from_json(data: Mapping[str, Any], vocabulary: Vocabulary) -> Condition:
    """Read a condition back. ValueError on what is no condition or names a fact that no longer exists."""
    try:
        operator = data["op"]
        if operator in _GROUPS:
            return _GROUPS[operator](*(from_json(part, vocabulary) for part in data["of"]))
        if operator == "cannot-tell":
            return CannotTell(str(data["why"]))
        fact = vocabulary[data["fact"]]
        if operator == "one-of":
            return OneOf(fact, tuple(tuple(v) if isinstance(v, list) else v for v in data["values"]))
        if operator == "has":
            return Has(fact, data["member"])
        if operator == "known":
            return IsKnown(fact)
        if operator in _OPERATORS:
            other = (
                Term(vocabulary[data["other"]], data["factor"], data["before"]) if "other" in data else data["value"]
            )
            return Compare(fact, operator, other)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"not a stored condition: {error}") from error
    raise ValueError(f"not a stored condition: {operator!r}")


def describe(condition: Condition) -> str:
    """Give the condition as one line for catalogues and traces, in fact ids: no message, nothing to translate."""
    match condition:
        case Compare(fact, operator, Term() as term):
            factor = f" × {term.factor:g}" if term.factor != 1.0 else ""
            return f"{fact.id} {operator} {'before: ' if term.before else ''}{term.fact.id}{factor}"
        case Compare(fact, operator, other):
            return f"{fact.id} {operator} {other}"
        case OneOf(fact, (value,)):
            return f"{fact.id} is {_plain(value)}"
        case OneOf(fact, values):
            return f"{fact.id} in ({', '.join(_plain(v) for v in values)})"
        case Has(fact, member):
            return f"{fact.id} has {member}"
        case IsKnown(fact):
            return f"{fact.id} is known"
        case AllOf(parts):
            return f"all of ({'; '.join(describe(p) for p in parts)})"
        case AnyOf(parts):
            return f"any of ({'; '.join(describe(p) for p in parts)})"
        case Not(parts):
            return f"not ({describe(parts[0])})"
        case CannotTell(why):
            return f"cannot tell: {why}"
        case _:
            raise TypeError(f"no condition: {condition!r}")


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


Outcome = Literal["held", "failed", "cannot-tell"]
"""What came of a prediction."""


def outcome_of(condition: Condition, facts: Facts) -> Outcome:
    """Judge a prediction on the facts of a re-run."""
    outcomes: dict[Truth, Outcome] = {Truth.TRUE: "held", Truth.FALSE: "failed", Truth.UNKNOWN: "cannot-tell"}
    return outcomes[condition.evaluate(facts).truth]
