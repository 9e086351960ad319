"""Facts: named, typed, with a unit and a plausible range; and what is known of them.

A fact that is written in a condition makes a condition: ``WINDOW < ASKED * 0.9``, ``FLASH.is_(True)``, ``KIND.one_of("kv", "compute")``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

from probes.evidence.errors import ImpossibleValueError
from probes.evidence.records import STANDING, Source, Standing, Why
from probes.evidence.words import Words

if TYPE_CHECKING:
    from .condition import Condition

T = TypeVar("T")

Way = Literal["ask", "give", "probe"]
"""How an unknown can be closed: the user is asked, gives a log, command or file, or a probe looks."""

ALL_WAYS: frozenset[Way] = frozenset({"ask", "give", "probe"})
_RANK: dict[Standing, int] = {"measured": 0, "read": 1, "answered": 2}


@dataclass(frozen=True, slots=True)
class Known(Generic[T]):
    """A value that was found, and who says it. ``origin``: an endpoint, a file and line, a question."""

    value: T
    source: Source = "measured"
    origin: str = ""

    @property
    def rank(self) -> tuple[int, int]:
        """Order by which sources beat each other: measured, read, answered; pasted prose comes last. Smaller wins."""
        return _RANK[STANDING[self.source]], int(self.source == "report")


@dataclass(frozen=True, slots=True)
class Unknown:
    """Why nothing is known, and by which ways it could be closed. Only *not asked* and *not run* can be closed at all."""

    why: Why
    note: str = ""
    ways: frozenset[Way] = ALL_WAYS

    def is_open(self, ways: frozenset[Way] = ALL_WAYS) -> bool:
        """Say whether one of these ways could still close it."""
        return self.why in {"not-asked", "not-run"} and bool(self.ways & ways)


@dataclass(frozen=True, eq=False, slots=True)
class Fact(Generic[T]):
    """One word of the vocabulary.

    ``id`` is dotted; ``kind`` the Python type of its values (int, float, bool, str, or tuple of str); ``low`` and ``high`` are plausible bounds
    in ``unit``, both allowed; ``choices`` bound a str or each member of a tuple. ``question`` is the id of the question that asks for it, whose choices
    are values of this fact. ``near`` is the share by which sources may differ without contradicting each other, where they count a little differently.
    Identity is by object; two facts of one id are refused by :class:`Vocabulary`.
    """

    id: str
    kind: type[T]
    words: Words
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    question: str | None = None
    near: float | None = None

    def __post_init__(self) -> None:
        """Refuse a malformed fact. ValueError."""
        if not self.id or self.id != self.id.strip().lower() or " " in self.id:
            raise ValueError(f"a fact's id is lower case, without spaces: {self.id!r}")
        if self.kind not in {int, float, bool, str, tuple}:
            raise ValueError(f"{self.id}: facts are int, float, bool, str or tuple, not {self.kind}")
        if self.kind in {int, float} and (self.low is None or self.high is None):
            raise ValueError(f"{self.id}: a number needs a plausible range")

    def admit(self, value: object, *, source: Source, origin: str = "") -> Known[T]:
        """Let a value in, or refuse it at the door. ImpossibleValueError names the source.

        An int is taken for a float, and a float without a fraction for an int.
        """
        where = f"{source}{f', {origin}' if origin else ''}"
        if self.kind is tuple and isinstance(value, (list, set, frozenset)):
            value = tuple(sorted(str(v) for v in value))
        if self.kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, self.kind) or (isinstance(value, bool) and self.kind is not bool):
            raise ImpossibleValueError(
                f"{self.id} ({where}): {value!r:.80} is not a value of type {self.kind.__name__}; correct it there"
            )
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            low, high = cast("float", self.low), cast("float", self.high)
            if not math.isfinite(value) or not low <= value <= high:
                unit = f" {self.unit}" if self.unit else ""
                raise ImpossibleValueError(
                    f"{self.id} ({where}): {value} is outside {low:g} to {high:g}{unit}; correct it there"
                )
        if self.choices:
            members = value if isinstance(value, tuple) else (value,)
            for member in members:
                if member not in self.choices:
                    raise ImpossibleValueError(
                        f"{self.id} ({where}): {member!r:.80} is none of {', '.join(self.choices)}; correct it there"
                    )
        return Known(value, source, origin)

    # Conditions: imported late, because a condition is made of facts.

    def __gt__(self, other: T | Term) -> Condition:
        """Condition: the value is above ``other``."""
        return _compare(self, ">", other)

    def __lt__(self, other: T | Term) -> Condition:
        """Condition: the value is below ``other``."""
        return _compare(self, "<", other)

    def __ge__(self, other: T | Term) -> Condition:
        """Condition: the value is at least ``other``."""
        return _compare(self, ">=", other)

    def __le__(self, other: T | Term) -> Condition:
        """Condition: the value is at most ``other``."""
        return _compare(self, "<=", other)

    def __mul__(self, factor: float) -> Term:
        """Give this fact times a factor, for the right side of a comparison."""
        return Term(cast("Fact[Any]", self), factor)

    def above(self, other: Fact[Any]) -> Condition:
        """Condition: the value is above another fact's."""
        return _compare(self, ">", Term(other))

    def below(self, other: Fact[Any]) -> Condition:
        """Condition: the value is below another fact's."""
        return _compare(self, "<", Term(other))

    def is_(self, value: T) -> Condition:
        """Condition: the value is exactly this one."""
        from .condition import OneOf  # noqa: PLC0415

        return OneOf(cast("Fact[Any]", self), (value,))

    def one_of(self, *values: T) -> Condition:
        """Condition: the value is one of these."""
        from .condition import OneOf  # noqa: PLC0415

        return OneOf(cast("Fact[Any]", self), values)

    def has(self, member: str) -> Condition:
        """Condition, for tuples: this is among its members."""
        from .condition import Has  # noqa: PLC0415

        return Has(cast("Fact[Any]", self), member)

    def known(self) -> Condition:
        """Condition: true when known, false when it cannot become known, unknown while it is open."""
        from .condition import IsKnown  # noqa: PLC0415

        return IsKnown(cast("Fact[Any]", self))


@dataclass(frozen=True, slots=True)
class Term:
    """A fact times a factor; ``before``: its value in the run before, for what a re-run is expected to show."""

    fact: Fact[Any]
    factor: float = 1.0
    before: bool = False

    def __mul__(self, factor: float) -> Term:
        """Give the term times another factor."""
        return Term(self.fact, self.factor * factor, self.before)


def before(fact: Fact[Any]) -> Term:
    """Give a fact's value in the run before the change. Only what a test expects may use it."""
    return Term(fact, before=True)


def _compare(fact: Fact[Any], operator: str, other: object) -> Condition:
    from .condition import Compare  # noqa: PLC0415

    return Compare(fact, operator, Term(other) if isinstance(other, Fact) else other)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Sources that disagree about one fact: which value was taken, and what the others said."""

    fact: Fact[Any]
    taken: Known[Any]
    others: tuple[Known[Any], ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that was refused at the door: which fact, and the line that says why and from whom."""

    fact: Fact[Any]
    message: str


@dataclass(frozen=True)
class Facts:
    """What is known at one moment: fact → :class:`Known` or :class:`Unknown`. What is absent was not run."""

    values: Mapping[Fact[Any], Known[Any] | Unknown] = field(default_factory=dict)
    conflicts: tuple[Conflict, ...] = ()
    refused: tuple[Refusal, ...] = ()

    def get(self, fact: Fact[T]) -> Known[T] | Unknown:
        """Give what is known of a fact."""
        return cast("Known[T] | Unknown", self.values.get(cast("Fact[Any]", fact), _NEVER_RUN))

    def value(self, fact: Fact[T]) -> T | None:
        """Give the value, or None where it is unknown."""
        found = self.get(fact)
        return found.value if isinstance(found, Known) else None

    def learn(self, news: Mapping[Fact[Any], Known[Any] | Unknown]) -> Facts:
        """Give the same facts with some replaced."""
        return Facts({**self.values, **news}, self.conflicts, self.refused)

    def known(self) -> Iterator[tuple[Fact[Any], Known[Any]]]:
        """Give every fact that is known, in the order of ids."""
        for fact in sorted(self.values, key=lambda f: f.id):
            found = self.values[fact]
            if isinstance(found, Known):
                yield fact, found


_NEVER_RUN = Unknown("not-run")


class Vocabulary:
    """Facts by id. ValueError on two of one id."""

    def __init__(self, facts: Iterable[Fact[Any]]) -> None:
        self._facts: dict[str, Fact[Any]] = {}
        for fact in facts:
            if self._facts.setdefault(fact.id, fact) is not fact:
                raise ValueError(f"two facts are called {fact.id}")

    def __getitem__(self, fact_id: str) -> Fact[Any]:
        """Give the fact of that id. KeyError."""
        return self._facts[fact_id]

    def __contains__(self, fact_id: object) -> bool:
        """Say whether there is a fact of that id."""
        return fact_id in self._facts

    def __iter__(self) -> Iterator[Fact[Any]]:
        """Give all facts in the order of ids."""
        return iter(sorted(self._facts.values(), key=lambda f: f.id))

    def __len__(self) -> int:
        """Say how many facts there are."""
        return len(self._facts)
