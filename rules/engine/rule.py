"""A rule: one cause, the clues for and against it, and the one change that would show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal

from probes.evidence.words import Words

from .condition import Condition
from .fact import Fact, Facts

SLIGHT, FAIR, STRONG, DECISIVE = 3, 6, 10, 20
"""Sizes of a clue in decibans: 2:1, 4:1, 10:1 and 100:1. Named, so that an argument is about kinds and not about numbers."""

SIZES: Mapping[str, int] = {"none": 0, "slight": SLIGHT, "fair": FAIR, "strong": STRONG, "decisive": DECISIVE}

Quality = Literal["none", "some", "much"]
TestKind = Literal["change", "probe", "answer", "habit"]


@dataclass(frozen=True, slots=True)
class Clue:
    """A condition, and what it weighs for the cause when it is true and when it is false (a minus speaks against).

    ``words`` say what is asked, as a statement that is true or false. Unknown weighs nothing.
    """

    words: Words
    when: Condition
    if_true: int = 0
    if_false: int = 0
    firm: bool = True
    """What is not firm orders causes and names none: it counts now, and never for the least that a cause can come to."""

    def __post_init__(self) -> None:
        """Refuse a weight that is no named size, and a clue that cannot move anything. ValueError."""
        for weight in (self.if_true, self.if_false):
            if abs(weight) not in SIZES.values():
                raise ValueError(f"{self.words.english}: {weight} is no named size")
        if self.if_true == 0 and self.if_false == 0:
            raise ValueError(f"{self.words.english}: this clue weighs nothing")
        if self.if_true * self.if_false > 0:
            raise ValueError(f"{self.words.english}: true and false may not point the same way")
        if self.when.has_before():
            raise ValueError(f"{self.words.english}: a clue knows no run before")


@dataclass(frozen=True, slots=True)
class Expect:
    """What a re-run shows after the change, if ``cause`` is what is wrong. ``when`` may use ``before(fact)``."""

    cause: str
    when: Condition
    words: Words


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that is worked out from facts; ``words`` say how, for the catalogue. None: it cannot be worked out."""

    words: Words
    value: Callable[[Facts], Any]


@dataclass(frozen=True, slots=True)
class Test:
    """One change of one variable (or a probe, an answer, a habit), and what it should show.

    ``variable`` is a name of :class:`probes.evidence.subject.Configuration`, or for other kinds the id of the probe, question or habit.
    ``start`` and ``to`` are values, facts or :class:`Computed`. ``when``: offered only where this is not false. ``keep``: what must stay as it is.
    ``expects``: the first speaks for the rule's own cause; others say what rivals would show instead. ``also``: causes that the same change
    would cure too, so that it does not tell them apart.
    """

    __test__ = False  # not a test case of pytest

    variable: str
    reason: Words
    kind: TestKind = "change"
    start: Any = None
    to: Any = None
    keep: tuple[str, ...] = ()
    expects: tuple[Expect, ...] = ()
    also: tuple[str, ...] = ()
    quality: Quality = "none"
    minutes: float = 5.0
    when: Condition | None = None
    unset: bool = False
    """The change takes the setting out, so that the default (or the model file's value) holds: ``to`` is then None."""

    def __post_init__(self) -> None:
        """Refuse a change without a prediction: it could not be judged. ValueError."""
        if self.kind == "change" and not self.expects:
            raise ValueError(f"{self.variable}: a change needs a prediction")
        if self.unset and self.to is not None:
            raise ValueError(f"{self.variable}: what is taken out has no value")
        if self.when is not None and self.when.has_before():
            raise ValueError(f"{self.variable}: the condition of a test knows no run before")

    def value_of(self, what: object, facts: Facts) -> Any:
        """Give a start or target as a plain value on these facts; None where it cannot be told."""
        if isinstance(what, Fact):
            return facts.value(what)
        if isinstance(what, Computed):
            return what.value(facts)
        return what


@dataclass(frozen=True, slots=True)
class Rule:
    """All that speaks for and against one cause.

    ``prior``: symptom → size, at most slight: a symptom opens causes and closes none. ``explains``: causes that follow from this one.
    ``tests`` in order of preference. ``id``, ``family`` and ``document`` are filled in by the catalogue from the file.
    """

    cause: str
    clues: tuple[Clue, ...]
    tests: tuple[Test, ...]
    explains: tuple[str, ...] = ()
    prior: Mapping[str, int] = field(default_factory=dict)
    id: str = ""
    family: str = ""
    document: str = ""

    def __post_init__(self) -> None:
        """Refuse a rule that counts a fact twice, or lets a symptom decide. ValueError."""
        if not self.clues:
            raise ValueError(f"{self.cause}: a rule needs clues")
        for one, two in combinations(self.clues, 2):
            shared = one.when.facts() & two.when.facts()
            if shared:
                names = ", ".join(sorted(fact.id for fact in shared))
                raise ValueError(
                    f"{self.cause}: two clues rest on {names}: {one.words.english!r} and {two.words.english!r}"
                )
        for symptom, weight in self.prior.items():
            if weight not in {0, SLIGHT}:
                raise ValueError(f"{self.cause}: the prior for {symptom} may be slight and for, not {weight}")
        if self.cause in self.explains:
            raise ValueError(f"{self.cause}: a cause does not explain itself")
        for test in self.tests:
            if test.expects and test.expects[0].cause != self.cause:
                raise ValueError(f"{self.cause}: the first prediction of a test is about the rule's own cause")
