"""What a report shows, as plain data made from the document. It judges nothing and draws nothing.

A value is one of three things, and every drawing keeps them apart: :class:`~probes.evidence.words.Words`, a sentence of ours with its values;
:class:`~reports.escape.Ours`, a number or unit of ours; any other ``str``, text from outside.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from probes.evidence.words import Words, words

from .escape import Room
from .figures import NO, YES, number, percent, size

if TYPE_CHECKING:
    from .escape import Ours
    from .memory import MemoryShown

Text = Words | str
"""What a place of the report holds; :class:`~reports.escape.Ours` is a ``str``."""

# Parts ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Item:
    """One value of the baseline. ``value`` None: not known, and ``why`` says so."""

    label: Words
    value: Text | None
    why: Words | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Area:
    """One area of the baseline."""

    name: Words
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One of the three questions: how far it held, and whether it held at the target."""

    name: Words
    tokens: int | None
    ok: bool | None

    @property
    def answer(self) -> Words:
        """Give the answer at the wanted length."""
        if self.ok is None:
            return words("unknown")
        return YES if self.ok else NO


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a chart: its name and a value at each x, None where there is none."""

    name: Text
    values: tuple[float | None, ...]
    limit: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a curve departs: between which two x, and how."""

    shape: Literal["step", "slope", "flat"]
    after: int
    words: Words


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve against the input's length."""

    id: str
    title: Words
    unit: Words
    x: tuple[int, ...]
    series: tuple[Series, ...]
    kind: Literal["speed", "size", "share"]
    mark: Mark | None = None
    top: float | None = None

    def text(self, value: float) -> Ours:
        """Give a value in the chart's unit."""
        if self.kind == "size":
            return size(value)
        return percent(value) if self.kind == "share" else number(value)


@dataclass(frozen=True, slots=True)
class HeatMap:
    """Recall by length and depth: hits and asked for each pair, None where nothing was asked."""

    lengths: tuple[int, ...]
    depths: tuple[float, ...]
    cells: tuple[tuple[tuple[float, int] | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """One device's memory by component; ``total`` is the device's size."""

    name: Text
    parts: tuple[tuple[Words, int], ...]
    total: int | None


@dataclass(frozen=True, slots=True)
class RungRow:
    """One attempt."""

    run: int
    tokens: int
    attempt: int
    result: Words
    passed: bool
    prefill: float | None
    prefill_change: float | None
    generation: float | None
    generation_change: float | None
    first_token: float | None
    canaries: str
    constraints: str
    peaks: tuple[int | None, ...]
    host_peak: int | None
    cached: int | None
    error: str


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact behind a clue: its name for people, else its id, and what was found."""

    name: str
    found: Text | None
    source: Text | None
    why: Words | None


@dataclass(frozen=True, slots=True)
class ClueRow:
    """A clue, whether it holds, and the facts it rests on."""

    words: str
    holds: bool | None
    weight: float | None
    facts: tuple[FactRow, ...]


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause: what speaks for it, against it, and what is not known, by why it is not."""

    id: str
    title: str
    family: Words
    band: Words
    interval: tuple[float, float, float]
    named: bool
    confirmed: bool
    explains: tuple[str, ...]
    clues_for: tuple[ClueRow, ...]
    clues_against: tuple[ClueRow, ...]
    unknown: tuple[tuple[Words, tuple[str, ...]], ...]
    more_unknown: int
    overturned_by: tuple[Words, ...]
    more_rivals: int


@dataclass(frozen=True, slots=True)
class Test:
    """The next single step, as a person does it."""

    __test__ = False  # not a test of pytest

    lead: Words
    command: str
    undo: Text
    keep: tuple[str, ...]
    expects: tuple[tuple[str, str], ...]
    cost: Words
    reason: Text
    kind: str
    how: tuple[Words, ...] = ()
    undoes: bool = False
    """Whether something is undone first: then it is two steps."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the ledger."""

    run: int
    variable: str
    before: str
    after: str
    single: Words
    prediction: Words
    conclusion: str
    kept: Words


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One thing that was measured in two runs: before, after, the noise, and which is better."""

    name: str
    before: Text
    after: Text
    noise: Text
    standing: Words
    note: str = ""


@dataclass(frozen=True, slots=True)
class RunsCompared:
    """Two runs side by side, and what else is to be said of the change between them."""

    run: int
    against: int
    rows: tuple[ComparedRow, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Quote:
    """Lines of one log, exactly as printed."""

    log: str
    lines: tuple[tuple[int | None, str], ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each kind is shown: what is worth least is cut first."""

    log_lines: int = 80
    rungs: int = 200
    facts: int = 8
    clues: int = 16
    unknown_clues: int = 5
    causes: int = 12
    errors: int = 20
    unknown: int = 60
    changes: int = 60
    peaks: int = 8
    lists: int = 20
    reasons: int = 10
    room: Room = field(default_factory=Room)


STEPS: Final[tuple[Limits, ...]] = (
    Limits(),
    Limits(log_lines=40, unknown=30, facts=4, causes=8, errors=12),
    Limits(
        log_lines=24,
        rungs=80,
        unknown=20,
        facts=2,
        clues=10,
        causes=6,
        errors=8,
        changes=30,
        lists=12,
        reasons=8,
        room=Room(200, 800, 300, 2_000, 60),
    ),
    Limits(
        log_lines=12,
        rungs=40,
        unknown=12,
        facts=1,
        clues=6,
        causes=4,
        errors=5,
        changes=12,
        peaks=4,
        lists=8,
        reasons=5,
        room=Room(120, 400, 200, 1_000, 20),
    ),
    Limits(
        log_lines=6,
        rungs=16,
        unknown=8,
        facts=0,
        clues=4,
        causes=3,
        errors=3,
        changes=6,
        peaks=2,
        lists=5,
        reasons=3,
        room=Room(80, 200, 120, 600, 8),
    ),
    Limits(
        log_lines=3,
        rungs=8,
        unknown=4,
        facts=0,
        clues=2,
        causes=2,
        errors=2,
        changes=3,
        peaks=1,
        lists=3,
        reasons=2,
        room=Room(50, 100, 80, 400, 4),
    ),
)
"""Each narrower than the one before; the last bounds a report by its form alone."""


@dataclass(slots=True)
class View:
    """The whole report."""

    limits: Limits
    tool: str
    case_id: str
    created: Ours | None
    run: int
    runs: int
    symptom: Words | None
    verdict: tuple[Words, ...]
    good: bool | None
    shown_by: tuple[tuple[str, str], ...]
    """Log lines on which the first cause rests: where each stands, and its text."""
    statement: Text
    questions: tuple[Question, ...]
    target: int | None
    next_test: Test | None
    no_next_test: Words
    """What is said where there is none."""
    criteria: tuple[Item, ...]
    baseline: tuple[Area, ...]
    rungs: tuple[RungRow, ...]
    devices: tuple[tuple[str, str], ...]
    charts: tuple[Chart, ...]
    heat: HeatMap | None
    memory: MemoryShown | None
    stacks: tuple[Stack, ...]
    stack_at: int | None
    stack_basis: str
    causes: tuple[CauseRow, ...]
    open: tuple[tuple[str, str], ...]
    open_more: int
    open_unseen: tuple[str, ...]
    set_aside: tuple[tuple[str, str, Words, Text], ...]
    also_aside: tuple[str, ...]
    without_a_sign: tuple[str, ...]
    would_decide: tuple[str, ...]
    errors: tuple[str, ...]
    quotes: tuple[Quote, ...]
    changes: tuple[Change, ...]
    compared: tuple[RunsCompared, ...]
    conflicts: tuple[tuple[str, Text, Text, Text, Text], ...]
    unknown: tuple[tuple[Words, str, tuple[str, ...]], ...]
    notes: tuple[str, ...]
    measured: tuple[Item, ...]
    sent: tuple[Item, ...]
    command: str
    first_failing: int | None
    last_passing: int | None
    cut: tuple[Words, ...] = ()
    left_out: tuple[Words, ...] = ()
    redacted: bool = True
    kept_back: list[Words] = field(default_factory=list)

    @property
    def measured_any(self) -> bool:
        """Say whether any of the three questions has an answer."""
        return any(q.tokens is not None or q.ok is not None for q in self.questions)

    @property
    def sent_any(self) -> bool:
        """Say whether anything was sent to a server."""
        return any(item.value != "0" for item in self.sent)

    @property
    def not_looked_at(self) -> tuple[tuple[Words | None, str, tuple[tuple[Words, tuple[Words, ...]], ...]], ...]:
        """Give what the baseline lacks: why, a note, and by area what it is."""
        groups: dict[tuple[str, str], tuple[Words | None, dict[str, tuple[Words, list[Words]]]]] = {}
        for area in self.baseline:
            for item in area.items:
                if item.value is None:
                    _, areas = groups.setdefault((item.why.text if item.why else "", item.note), (item.why, {}))
                    areas.setdefault(area.name.text, (area.name, []))[1].append(item.label)
        return tuple(
            (why, note, tuple((name, tuple(labels)) for name, labels in areas.values()))
            for (_, note), (why, areas) in groups.items()
        )
