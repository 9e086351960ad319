"""What a report shows, as plain data made from the document. It judges nothing and draws nothing.

A value is one of three things, and every drawing keeps them apart: :class:`~probes.evidence.words.Words`, a sentence of ours with its values;
:class:`~reports.escape.Ours`, a number or unit of ours; any other ``str``, text from outside.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from probes.evidence import words as language
from probes.evidence.words import Words, words

from .escape import Ours, Sentence, visible

if TYPE_CHECKING:
    from .document import (
        CaseDocument,
        CauseFound,
        ClueFound,
        DeviceValues,
        FactFound,
        NextTest,
        Reached,
        Rung,
        VerdictValues,
    )

Text = Words | Ours | str
"""What a place of the report holds."""

BANDS: Final[dict[str, Words]] = {
    "disputed": words("disputed"),
    "likely": words("likely"),
    "possible": words("possible"),
    "open": words("open"),
    "unlikely": words("unlikely"),
    "ruled-out": words("ruled out"),
}
SYMPTOMS: Final[dict[str, Words]] = {
    "immediate-oom": words("out of memory at once"),
    "fixed-length-error": words("an error always near the same length"),
    "slow-long-context": words("too slow at length"),
    "forgetting": words("forgets the beginning"),
    "flaky": words("the same run passes and fails"),
}
OUTCOMES: Final[dict[str, Words]] = {
    "passed": words("passed"),
    "failed": words("failed"),
    "refused": words("refused"),
    "died": words("server died"),
    "timeout": words("timed out"),
}
FAMILIES: Final[dict[str, Words]] = {
    "kv-format": words("KV cache format"),
    "backend-allocation": words("backend allocation"),
    "uneven-split": words("uneven split over devices"),
    "spill": words("memory spill"),
    "effective-context": words("effective context"),
    "window-limits": words("limits of the window"),
    "time-and-size-limits": words("limits of time and size"),
    "speed": words("speed"),
    "interference": words("interference"),
}
WHY_UNKNOWN: Final[dict[str, Words]] = {
    "not-asked": words("not asked"),
    "not-run": words("not measured"),
    "failed": words("could not be measured"),
    "not-offered": words("this server or machine does not tell"),
}
PREDICTIONS: Final[dict[str, Words]] = {
    "held": words("held"),
    "failed": words("failed"),
    "cannot-tell": words("cannot tell"),
    "none": words("no prediction"),
}
QUALITIES: Final[dict[str, Words]] = {
    "none": words("costs no quality"),
    "some": words("costs some quality"),
    "much": words("costs much quality"),
}
SOURCES: Final[dict[str, Words]] = {
    "measured": words("measured"),
    "server": words("server"),
    "process": words("command line"),
    "log": words("log"),
    "file": words("file"),
    "machine": words("machine"),
    "user": words("answer"),
    "report": words("pasted report"),
}
COMPONENTS: Final[tuple[tuple[str, Words], ...]] = (
    ("weights_bytes", words("weights")),
    ("kv_bytes", words("KV cache")),
    ("state_bytes", words("recurrent state")),
    ("compute_bytes", words("compute buffers")),
    ("other_bytes", words("other")),
)
YES: Final = words("yes")
NO: Final = words("no")


# Numbers -------------------------------------------------------------------------------------------------------------


def count(value: float) -> Ours:
    """Give a whole number with commas between thousands."""
    return Ours(f"{value:,.0f}")


def size(value: float) -> Ours:
    """Give a size in the largest binary unit that leaves at least one."""
    number, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            break
        number /= 1024
    return Ours(f"{number:,.0f} {unit}" if unit in {"B", "KiB"} else f"{number:,.2f} {unit}")


def number(value: float) -> Ours:
    """Give a number with three digits that matter."""
    if value == 0:
        return Ours("0")
    if abs(value) >= 100:
        return Ours(f"{value:,.0f}")
    return Ours(f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}")


def seconds(value: float) -> Ours:
    """Give a time in seconds, or minutes where it is long."""
    return Ours(f"{number(value)} s" if value < 180 else f"{value / 60:.1f} min")


def percent(value: float) -> Ours:
    """Give a share as per cent, with its sign where it is negative."""
    return Ours(f"{value * 100:.0f} %".replace("-", "−"))


def moment(value: datetime | None) -> Ours | None:
    """Give a time in UTC to the second."""
    return Ours(value.strftime("%Y-%m-%d %H:%M:%S UTC")) if value is not None else None


def short_length(tokens: int) -> Ours:
    """Give a length as people say it: 8K, 32K; the number where it is no round one."""
    if tokens >= 1024 and tokens % 1024 == 0:
        return Ours(f"{tokens // 1024}K")
    return Ours(f"{tokens / 1000:.1f}k" if tokens >= 10_000 else f"{tokens}")


def plain(value: object) -> str:
    """Give any value of the document as text from outside."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    return str(value)


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
    """A fact behind a clue."""

    id: str
    found: str | None
    source: Text | None
    why: Words | None


@dataclass(frozen=True, slots=True)
class ClueRow:
    """A clue, with the facts it rests on."""

    words: str
    weight: float | None
    facts: tuple[FactRow, ...]


@dataclass(frozen=True, slots=True)
class CauseRow:
    """A cause: what speaks for it, against it, and what is not known."""

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
    clues_unknown: tuple[ClueRow, ...]
    overturned_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Test:
    """The next single step, as a person does it."""

    __test__ = False  # not a test of pytest

    lead: Words
    command: str
    undo: str
    keep: tuple[str, ...]
    expects: tuple[tuple[str, str], ...]
    cost: Words
    reason: str
    kind: str


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
class Quote:
    """Lines of one log, exactly as printed."""

    log: str
    lines: tuple[tuple[int | None, str], ...]


@dataclass(slots=True)
class Limits:
    """How much of each kind is shown: what is cut first is worth least."""

    log_lines: int = 80
    rungs: int = 200
    facts: int = 8
    clues: int = 16
    causes: int = 12
    errors: int = 20
    unknown: int = 60
    changes: int = 60
    line: int = 500
    cell: int = 300
    text: int = 1_500
    peaks: int = 8
    items: int = 12
    lists: int = 20


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
        line=300,
        cell=200,
        text=800,
        lists=12,
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
        line=200,
        cell=120,
        text=400,
        peaks=4,
        lists=8,
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
        line=120,
        cell=80,
        text=200,
        peaks=2,
        lists=5,
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
        line=80,
        cell=60,
        text=120,
        peaks=1,
        items=6,
        lists=3,
    ),
)


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
    statement: Text
    questions: tuple[Question, ...]
    target: int | None
    next_test: Test | None
    criteria: tuple[Item, ...]
    baseline: tuple[Area, ...]
    rungs: tuple[RungRow, ...]
    devices: tuple[tuple[str, str], ...]
    charts: tuple[Chart, ...]
    heat: HeatMap | None
    stacks: tuple[Stack, ...]
    stack_at: int | None
    stack_basis: str
    causes: tuple[CauseRow, ...]
    set_aside: tuple[tuple[str, str, Words, str], ...]
    would_decide: tuple[str, ...]
    errors: tuple[str, ...]
    quotes: tuple[Quote, ...]
    changes: tuple[Change, ...]
    conflicts: tuple[tuple[str, str, Text, str, Text], ...]
    unknown: tuple[tuple[str, Words, str], ...]
    notes: tuple[str, ...]
    sent: tuple[Item, ...]
    command: str
    first_failing: int | None
    last_passing: int | None
    cut: tuple[Words, ...] = ()
    left_out: tuple[Words, ...] = ()
    redacted: bool = True
    kept_back: list[Words] = field(default_factory=list)


# Building ------------------------------------------------------------------------------------------------------------


class _Builder:
    """Makes a view within limits, and notes what was cut."""

    def __init__(self, document: CaseDocument, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.cut: list[Words] = []
        self.said = {message.english: message for message in document.messages}

    def tell(self, text: str) -> str:
        """Give a text of the document in the language in force, where it is known how."""
        look_up = language.looking_up()
        if look_up is None:
            return text
        message = self.said.get(text)
        if message is None:
            return look_up(text) if text else text
        translated = look_up(message.text)
        if translated == message.text:
            return text
        # Not str.format: what is in a document that came from elsewhere must not choose a format.
        return re.sub(
            r"\{(\w+)(?:[:!][^{}]*)?\}",
            lambda place: plain(message.values.get(place.group(1), place.group(0))),
            translated,
        )

    def some(self, items: Sequence[object], most: int, what: Words) -> int:
        """Say how many are shown, and note how many are not."""
        if len(items) > most:
            self.cut.append(
                words("{what}: {shown} of {all} shown", what=what, shown=Ours(str(most)), all=Ours(str(len(items))))
            )
        return most

    def why(self, path: str) -> tuple[Words | None, str]:
        """Say why the value at this path is not known."""
        reason = self.document.unknown.get(path)
        while reason is None and "." in path:
            path = path.rpartition(".")[0]
            reason = self.document.unknown.get(path)
        return (WHY_UNKNOWN[reason.why], reason.note) if reason is not None else (None, "")

    def item(self, label: Words, value: Text | None, path: str = "") -> Item:
        """Make a value of the baseline."""
        if value is None or value == "":
            why, note = self.why(path) if path else (None, "")
            return Item(label, None, why, note)
        return Item(label, value)


def build(document: CaseDocument, limits: Limits | None = None) -> View:
    """Make the view of a case."""
    limits = limits or STEPS[0]
    make = _Builder(document, limits)
    verdict = document.verdict
    run = max([verdict.run, *(r.run for r in document.rungs)], default=1)
    rows = _rungs(make)
    charts = _charts(make, run)
    stacks = _stacks(make)
    failing, passing = edges(document.rungs, run)
    memory = document.memory
    errors = _errors(make)
    head, good = verdict_words(document, make)
    view = View(
        limits=limits,
        tool=f"{document.tool.name} {document.tool.version}",
        case_id=document.case.id,
        created=moment(document.case.created),
        run=run,
        runs=max(len(document.case.runs), 1),
        symptom=SYMPTOMS.get(document.case.symptom) if document.case.symptom else None,
        verdict=head,
        good=good,
        statement=make.tell(document.window.statement) if document.window.statement else window_statement(document),
        questions=(
            Question(words("Does it fit?"), document.window.fits.tokens, document.window.fits.ok),
            Question(words("Is it fast enough?"), document.window.fast_enough.tokens, document.window.fast_enough.ok),
            Question(words("Does it use the text?"), document.window.recalls.tokens, document.window.recalls.ok),
        ),
        target=document.ladder.target if document.ladder else None,
        next_test=_next_test(make, document.next_test),
        criteria=_criteria(make),
        baseline=_baseline(make, failing, run),
        rungs=rows,
        devices=tuple((d.id, d.name or d.id) for d in document.subject.hardware.devices[: limits.peaks]),
        charts=charts,
        heat=heat_map([r for r in document.rungs if r.run == run]),
        stacks=stacks,
        stack_at=memory.ctx if memory else None,
        stack_basis=(memory.basis or "") if memory else "",
        causes=_causes(make, verdict),
        set_aside=tuple(
            (aside.id, make.tell(aside.words or ""), BANDS[aside.band], make.tell(aside.because or ""))
            for aside in verdict.set_aside[: make.some(verdict.set_aside, limits.lists, words("Causes set aside"))]
        ),
        would_decide=tuple(make.tell(each) for each in verdict.would_decide[: limits.lists]),
        errors=errors,
        quotes=_quotes(make),
        changes=_changes(make),
        conflicts=tuple(
            (
                make.tell(c.words) if c.words else c.fact,
                plain(c.believed),
                _source(c.believed_source),
                plain(c.other),
                _source(c.other_source),
            )
            for c in document.conflicts[: make.some(document.conflicts, limits.lists, words("Contradictions"))]
        ),
        unknown=tuple(
            (path, WHY_UNKNOWN[reason.why], reason.note)
            for path, reason in list(document.unknown.items())[
                : make.some(list(document.unknown), limits.unknown, words("Unknown values"))
            ]
        ),
        notes=tuple(make.tell(note) for note in document.notes[: limits.lists]),
        sent=(
            Item(words("Requests"), count(document.sent.requests)),
            Item(words("Prompt tokens"), count(document.sent.prompt_tokens)),
            Item(words("Generated tokens"), count(document.sent.generated_tokens)),
        ),
        command=command_line(document),
        first_failing=failing,
        last_passing=passing,
    )
    return replace(view, cut=tuple(make.cut))


def command_line(document: CaseDocument) -> str:
    """Give the server's command line as it is typed; empty where it is not known."""
    argv = document.subject.backend.command
    if not argv:
        return ""
    environment = [f"{name}={shlex.quote(value)}" for name, value in document.subject.backend.environment.items()]
    return " ".join([*environment, *(shlex.quote(word) for word in argv)])


def edges(rungs: Sequence[Rung], run: int) -> tuple[int | None, int | None]:
    """Give the first failing and the last passing length of a run: the shortest that never passed whole, the longest below it that did."""
    by_length: dict[int, list[bool]] = {}
    for rung in rungs:
        if rung.run == run:
            by_length.setdefault(rung.planned_tokens or rung.input_tokens, []).append(rung.result == "passed")
    failing = min((length for length, passed in by_length.items() if not all(passed)), default=None)
    passing = max(
        (length for length, passed in by_length.items() if all(passed) and (failing is None or length < failing)),
        default=None,
    )
    return failing, passing


def verdict_words(document: CaseDocument, make: _Builder | None = None) -> tuple[tuple[Words, ...], bool | None]:
    """Say the verdict, a sentence for each thing it says, the first of them the verdict in one line; and whether it is good news."""
    make = make or _Builder(document, STEPS[0])
    verdict = document.verdict
    titles = {cause.id: make.tell(cause.words or "") for cause in verdict.causes}
    tokens = document.window.verified_input_tokens

    def named(cause: str) -> Words:
        title = titles.get(cause, "")
        return words("{title} ({id})", title=Sentence(title), id=cause) if title else words("{id}", id=cause)

    if verdict.confirmed:
        return tuple(
            words("Confirmed by a re-run with one change: {cause}", cause=named(c)) for c in verdict.confirmed
        ), False
    if verdict.named:
        return tuple(words("Named cause: {cause}", cause=named(c)) for c in verdict.named), False
    leaders = [c for c in verdict.causes if c.band in {"likely", "disputed", "possible"}][:3]
    said: list[Words] = []
    if leaders:
        said.append(words("No single cause is named. Leading: {cause}", cause=named(leaders[0].id)))
        said += [words("Also in play: {cause}", cause=named(c.id)) for c in leaders[1:]]
    elif tokens is not None and all(part.ok is not False for part in _three(document)):
        return (words("Nothing wrong was found: {tokens} input tokens are verified", tokens=count(tokens)),), True
    elif document.rungs and tokens is not None:
        said.append(words("No cause is named; {tokens} input tokens are verified", tokens=count(tokens)))
    else:
        said.append(words("No cause can be named from what was found"))
    if verdict.abstained_because:
        said.append(words("Why: {reason}", reason=Sentence(make.tell(verdict.abstained_because))))
    return tuple(said), None


def _three(document: CaseDocument) -> tuple[Reached, Reached, Reached]:
    return document.window.fits, document.window.fast_enough, document.window.recalls


def window_statement(document: CaseDocument) -> Words:
    """Say which window was proved, or what failed, in one sentence. It claims only what was measured."""
    window = document.window
    tokens = window.verified_input_tokens
    if tokens is not None:
        times = Ours(str(document.criteria.repeats or 1))
        speed = window.fast_enough.ok is not None or window.fast_enough.tokens is not None
        recall = window.recalls.ok is not None or window.recalls.tokens is not None
        if speed and recall:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} times in a row "
                "with the required speed and recall.",
                tokens=count(tokens),
                times=times,
            )
        if recall:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} times in a row "
                "with the required recall; no speed was required.",
                tokens=count(tokens),
                times=times,
            )
        if speed:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} times in a row "
                "with the required speed; recall is unknown.",
                tokens=count(tokens),
                times=times,
            )
        return words(
            "This model, backend, cache and hardware accepted {tokens} input tokens {times} times in a row; "
            "no speed was required and recall is unknown.",
            tokens=count(tokens),
            times=times,
        )
    if not document.rungs:
        return words("No window was measured.")
    parts = {"fits": window.fits.tokens, "fast": window.fast_enough.tokens, "recalls": window.recalls.tokens}
    if any(value is not None for value in parts.values()):
        shown = {name: count(value) if value is not None else words("unknown") for name, value in parts.items()}
        return words(
            "No length met every criterion. It fits up to {fits} tokens, is fast enough up to {fast}, and uses the text up to {recalls}.",
            **shown,
        )
    return words("No length met every criterion.")


def _source(source: str | None) -> Text:
    return SOURCES.get(source, source) if source else Ours("–")


def _lengths(rungs: Iterable[Rung]) -> dict[int, list[Rung]]:
    by_length: dict[int, list[Rung]] = {}
    for rung in rungs:
        by_length.setdefault(rung.planned_tokens or rung.input_tokens, []).append(rung)
    return dict(sorted(by_length.items()))


def _rungs(make: _Builder) -> tuple[RungRow, ...]:
    document, limits = make.document, make.limits
    rungs = sorted(document.rungs, key=lambda r: (r.run, r.planned_tokens or r.input_tokens, r.attempt))
    if len(rungs) > limits.rungs:
        make.some(rungs, limits.rungs, words("Measured lengths"))
        # What failed, the newest run and the longest lengths say most.
        worth = sorted(rungs, key=lambda r: (r.result == "passed", -r.run, -r.input_tokens))[: limits.rungs]
        kept = {id(r) for r in worth}
        rungs = [r for r in rungs if id(r) in kept]
    first: dict[int, tuple[float | None, float | None]] = {}
    for rung in sorted(document.rungs, key=lambda r: (r.run, r.planned_tokens or r.input_tokens, r.attempt)):
        if rung.run not in first and rung.prefill_tps is not None:
            first[rung.run] = (rung.prefill_tps, rung.generation_tps)
    devices = [d.id for d in document.subject.hardware.devices[: limits.peaks]]
    rows = []
    for rung in rungs:
        base = first.get(rung.run, (None, None))
        peaks = {d.id: d.peak_bytes for d in rung.devices}
        rows.append(
            RungRow(
                run=rung.run,
                tokens=rung.input_tokens,
                attempt=rung.attempt,
                result=OUTCOMES[rung.result],
                passed=rung.result == "passed",
                prefill=rung.prefill_tps,
                prefill_change=_change(rung.prefill_tps, base[0]),
                generation=rung.generation_tps,
                generation_change=_change(rung.generation_tps, base[1]),
                first_token=rung.first_token_s,
                canaries=f"{rung.canaries.hit}/{rung.canaries.asked}" if rung.canaries else "",
                constraints=f"{rung.constraints.met}/{rung.constraints.asked}" if rung.constraints else "",
                peaks=tuple(peaks.get(device) for device in devices),
                host_peak=rung.host_peak_bytes,
                cached=rung.cached_tokens,
                error=rung.error or "",
            )
        )
    return tuple(rows)


def _change(value: float | None, base: float | None) -> float | None:
    return value / base - 1 if value is not None and base else None


def _middle(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(median(known)) if known else None


def _charts(make: _Builder, run: int) -> tuple[Chart, ...]:
    by_length = _lengths(r for r in make.document.rungs if r.run == run)
    if len(by_length) > _MOST_LENGTHS:
        make.cut.append(
            words(
                "Charts: {shown} of {all} lengths drawn", shown=Ours(str(_MOST_LENGTHS)), all=Ours(str(len(by_length)))
            )
        )
        keys = list(by_length)
        step = (len(keys) - 1) / (_MOST_LENGTHS - 1)
        by_length = {keys[round(i * step)]: by_length[keys[round(i * step)]] for i in range(_MOST_LENGTHS)}
    x = tuple(by_length)
    charts = []
    speeds = {id(r): (r.prefill_tps, r.generation_tps) for rungs in by_length.values() for r in rungs}
    for which, id_, title in (
        (0, "prefill", words("Prefill speed by input length")),
        (1, "generation", words("Generation speed by input length")),
    ):
        values = tuple(_middle(speeds[id(r)][which] for r in rungs) for rungs in by_length.values())
        if sum(v is not None for v in values) >= 2:
            series = Series(title, values)
            mark = departure(x, values)
            charts.append(Chart(id_, title, words("tokens per second"), x, (series,), "speed", mark))
    lines = []
    devices: dict[str, DeviceValues | None] = {d.id: d for d in make.document.subject.hardware.devices}
    for rungs in by_length.values():
        for rung in rungs:
            for peak in rung.devices:
                devices.setdefault(peak.id, None)
    for id_, device in list(devices.items())[: make.limits.peaks]:
        values = tuple(
            max((float(d.peak_bytes) for r in rungs for d in r.devices if d.id == id_), default=None)
            for rungs in by_length.values()
        )
        if any(v is not None for v in values):
            limit = float(device.total_bytes) if device and device.total_bytes else None
            lines.append(Series((device.name if device else None) or id_, values, limit))
    host = tuple(
        max((float(r.host_peak_bytes) for r in rungs if r.host_peak_bytes is not None), default=None)
        for rungs in by_length.values()
    )
    if any(v is not None for v in host):
        ram = make.document.subject.hardware.ram_bytes
        lines.append(Series(words("host memory"), host, float(ram) if ram else None))
    if lines and len(x) >= 2:
        charts.append(Chart("memory", words("Peak memory by input length"), words("memory"), x, tuple(lines), "size"))
    recall = tuple(
        (
            sum(r.canaries.hit for r in rungs if r.canaries) / asked
            if (asked := sum(r.canaries.asked for r in rungs if r.canaries))
            else None
        )
        for rungs in by_length.values()
    )
    if sum(v is not None for v in recall) >= 2:
        series = Series(words("canaries recalled"), recall, make.document.criteria.min_canaries)
        charts.append(
            Chart("recall", words("Recall by input length"), words("canaries recalled"), x, (series,), "share", top=1.0)
        )
    return tuple(charts)


_MOST_LENGTHS: Final = 24


def departure(x: Sequence[int], values: Sequence[float | None]) -> Mark | None:
    """Say whether a speed curve falls off a step, slopes, or is flat. None with fewer than three points.

    The time for one token grows linearly with length where only depth costs (KNOWLEDGE.md, 11), so a step is where it is more than a third
    above the line through the shorter lengths.
    """
    points = [(n, 1 / v, at) for at, (n, v) in enumerate(zip(x, values, strict=True)) if v]
    if len(points) < 3:
        return None
    worst: tuple[float, int, float] | None = None
    for i in range(2, len(points)):
        expected = _line(points[:i], points[i][0])
        excess = points[i][1] / expected if expected > 0 else 1.0
        drop = points[i - 1][1] / points[i][1] - 1
        if excess > _STEP_EXCESS and drop < -_STEP_DROP:
            worst = (excess, points[i][2], drop)
            break
    if worst is not None:
        at = worst[1]
        before = max(j for j in range(at) if values[j])
        return Mark(
            "step",
            at,
            words(
                "A step between {before} and {after} tokens: {change}, beyond the trend of the shorter lengths",
                before=count(x[before]),
                after=count(x[at]),
                change=percent(worst[2]),
            ),
        )
    whole = points[0][1] / points[-1][1] - 1
    if whole < -0.1:
        return Mark(
            "slope",
            points[-1][2],
            words("A slope without a step: {change} from the first length to the last", change=percent(whole)),
        )
    return Mark(
        "flat",
        points[-1][2],
        words("No fall worth a mark: {change} from the first length to the last", change=percent(whole)),
    )


_STEP_EXCESS: Final = 4 / 3
_STEP_DROP: Final = 0.2


def _line(points: Sequence[tuple[int, float, int]], at: int) -> float:
    n = len(points)
    mean_x = sum(p[0] for p in points) / n
    mean_y = sum(p[1] for p in points) / n
    spread = sum((p[0] - mean_x) ** 2 for p in points)
    slope = sum((p[0] - mean_x) * (p[1] - mean_y) for p in points) / spread if spread else 0.0
    # Depth never makes a token cheaper; a falling line is noise.
    return mean_y + max(slope, 0.0) * (at - mean_x)


def heat_map(rungs: Sequence[Rung]) -> HeatMap | None:
    """Gather recall by length and depth, in tenths of the text."""
    tally: dict[int, dict[float, tuple[float, int]]] = {}
    depths: set[float] = set()
    for length, group in list(_lengths(rungs).items())[:_MOST_LENGTHS]:
        for rung in group:
            for score in rung.canaries.by_depth if rung.canaries else ():
                depth = round(score.depth, 1)
                hit, asked = tally.setdefault(length, {}).get(depth, (0.0, 0))
                tally[length][depth] = (hit + float(score.hit), asked + 1)
                depths.add(depth)
    if not tally:
        return None
    lengths = tuple(tally)
    rows = tuple(sorted(depths))
    return HeatMap(lengths, rows, tuple(tuple(tally[n].get(d) for n in lengths) for d in rows))


def _stacks(make: _Builder) -> tuple[Stack, ...]:
    memory = make.document.memory
    if memory is None:
        return ()
    names = {d.id: d.name for d in make.document.subject.hardware.devices}
    sizes = {d.id: d.total_bytes for d in make.document.subject.hardware.devices}
    stacks = []
    for device in memory.devices[: make.some(memory.devices, make.limits.peaks, words("Devices"))]:
        parts = tuple((name, value) for key, name in COMPONENTS if (value := getattr(device, key)))
        if parts:
            total = device.total_bytes or sizes.get(device.id)
            stacks.append(Stack(device.name or names.get(device.id) or device.id, parts, total))
    return tuple(stacks)


def _fact(fact: FactFound) -> FactRow:
    if fact.why_unknown:
        return FactRow(fact.id, None, None, WHY_UNKNOWN.get(fact.why_unknown, words("unknown")))
    shown = plain(fact.found) if fact.found is not None else None
    if shown is not None and fact.unit:
        shown = f"{shown} {fact.unit}"
    return FactRow(
        fact.id, shown, _source(fact.source) if fact.source else None, None if shown is not None else words("unknown")
    )


def _clues(make: _Builder, clues: Iterable[ClueFound]) -> tuple[ClueRow, ...]:
    ordered = sorted(clues, key=lambda c: -abs(c.weight or 0))
    shown = ordered[: make.some(ordered, make.limits.clues, words("Clues"))]
    return tuple(
        ClueRow(make.tell(c.words), c.weight, tuple(_fact(f) for f in c.facts[: make.limits.facts])) for c in shown
    )


def _cause(make: _Builder, verdict: VerdictValues, cause: CauseFound) -> CauseRow:
    known = [c for c in cause.clues if c.truth != "unknown"]
    return CauseRow(
        id=cause.id,
        title=make.tell(cause.words or ""),
        family=FAMILIES.get(cause.family) or words("{family}", family=cause.family),
        band=BANDS[cause.band],
        interval=(cause.low, cause.now, cause.high),
        named=cause.id in verdict.named,
        confirmed=cause.id in verdict.confirmed,
        explains=cause.explains[: make.limits.lists],
        clues_for=_clues(make, (c for c in known if (c.weight or 0) > 0)),
        clues_against=_clues(make, (c for c in known if (c.weight or 0) < 0)),
        clues_unknown=_clues(make, (c for c in cause.clues if c.truth == "unknown")),
        overturned_by=tuple(make.tell(each) for each in cause.overturned_by[: make.limits.lists]),
    )


def _causes(make: _Builder, verdict: VerdictValues) -> tuple[CauseRow, ...]:
    shown = verdict.causes[: make.some(verdict.causes, make.limits.causes, words("Causes"))]
    return tuple(_cause(make, verdict, cause) for cause in shown)


def _next_test(make: _Builder, test: NextTest | None) -> Test | None:
    if test is None:
        return None
    variable = test.variable or ""
    before = plain(test.from_) if test.from_ is not None else ""
    after = plain(test.to) if test.to is not None else ""
    if test.kind == "change" and variable and before and after:
        lead = words(
            "Change {variable} from {before} to {after}, and nothing else.",
            variable=variable,
            before=before,
            after=after,
        )
    elif test.kind == "change" and variable and after:
        lead = words("Set {variable} to {after}, and change nothing else.", variable=variable, after=after)
    elif test.kind == "change" and variable and before:
        lead = words("Remove {variable} (it is {before}), and change nothing else.", variable=variable, before=before)
    elif test.kind == "change":
        lead = words("Change {variable}, and nothing else.", variable=variable or "?")
    elif test.kind == "probe":
        lead = words("Measure more: {variable}", variable=variable or after or "?")
    elif test.kind == "answer":
        lead = words("Answer a question: {variable}", variable=variable or after or "?")
    elif after or variable:
        lead = words("Change a habit: {habit}", habit=Sentence(make.tell(after or variable)))
    else:
        lead = words("Change a habit, not a setting.")
    return Test(
        lead=lead,
        command=test.command or "",
        undo=test.undo or "",
        keep=tuple(make.tell(k) for k in test.keep[: make.limits.lists]),
        expects=tuple((e.cause, make.tell(e.words)) for e in test.expects[: make.limits.lists]),
        cost=_cost(test),
        reason=make.tell(test.reason or ""),
        kind=test.kind,
    )


def _cost(test: NextTest) -> Words:
    minutes = number(test.cost.minutes) if test.cost.minutes is not None else words("unknown")
    tokens = count(test.cost.tokens) if test.cost.tokens is not None else words("unknown")
    quality = QUALITIES[test.cost.quality] if test.cost.quality else words("cost in quality unknown")
    return words("minutes: {minutes}; tokens: {tokens}; {quality}", minutes=minutes, tokens=tokens, quality=quality)


def _criteria(make: _Builder) -> tuple[Item, ...]:
    c = make.document.criteria
    share = [
        (words("Repeats at the important length"), count(c.repeats) if c.repeats is not None else None),
        (words("Canaries recalled, at least"), percent(c.min_canaries) if c.min_canaries is not None else None),
        (
            words("Share of the model's own short score, at least"),
            percent(c.min_of_own_base) if c.min_of_own_base is not None else None,
        ),
        (
            words("Coding constraints met, at least"),
            percent(c.min_constraints) if c.min_constraints is not None else None,
        ),
        (words("Prefill, at least"), _speed(c.min_prefill_tps)),
        (words("Generation, at least"), _speed(c.min_generation_tps)),
        (words("First token within"), seconds(c.max_first_token_s) if c.max_first_token_s is not None else None),
        (words("Memory kept free on each device"), size(c.margin_bytes) if c.margin_bytes is not None else None),
        (words("Fixed at"), moment(c.fixed_at)),
        (words("Fingerprint"), c.hash),
    ]
    return tuple(Item(label, value) for label, value in share if value is not None)


def _speed(value: float | None) -> Words | None:
    return words("{speed} tokens per second", speed=number(value)) if value is not None else None


def _tokens(value: int | None) -> Words | None:
    return words("{tokens} tokens", tokens=count(value)) if value is not None else None


def _flag(value: bool | str | None) -> Text | None:
    if isinstance(value, bool):
        return words("on") if value else words("off")
    return value


def _baseline(make: _Builder, failing: int | None, run: int) -> tuple[Area, ...]:
    """Everything that another person needs to run it again, in the eight areas that people are asked to record."""
    document = make.document
    s = document.subject
    item = make.item
    rungs = [r for r in document.rungs if r.run == run]
    longest = max((r.input_tokens for r in rungs), default=None)
    errors = [r for r in rungs if r.error]
    peak = {
        d.id: max((p.peak_bytes for r in rungs for p in r.devices if p.id == d.id), default=None)
        for d in s.hardware.devices
    }
    host = max((r.host_peak_bytes for r in rungs if r.host_peak_bytes is not None), default=None)
    cache = " / ".join(t for t in (s.kv_cache.type_k, s.kv_cache.type_v) if t)
    last = _at_longest_passing(rungs)
    shown = s.hardware.devices[: make.some(s.hardware.devices, make.limits.peaks, words("Devices"))]
    devices = [
        item(
            words("Device"),
            words(
                "{name}; memory {total}; free {free}; driver {driver}; link {link}",
                name=d.name or d.id,
                total=size(d.total_bytes) if d.total_bytes is not None else words("unknown"),
                free=size(d.free_bytes) if d.free_bytes is not None else words("unknown"),
                driver=d.driver or words("unknown"),
                link=d.link or words("unknown"),
            ),
        )
        for d in shown
    ] or [item(words("Device"), None, "subject.hardware.devices")]
    return (
        Area(
            words("Model"),
            (
                item(words("Name"), s.model.name, "subject.model.name"),
                item(words("File"), s.model.path, "subject.model.path"),
                item(words("Quantisation of the weights"), s.model.quantization, "subject.model.quantization"),
                item(
                    words("Size"),
                    size(s.model.size_bytes) if s.model.size_bytes is not None else None,
                    "subject.model.size_bytes",
                ),
                item(words("Architecture"), s.model.architecture, "subject.model.architecture"),
                item(words("Fingerprint of the header"), s.model.header_hash, "subject.model.header_hash"),
            ),
        ),
        Area(
            words("Backend"),
            (
                item(words("Name"), s.backend.name, "subject.backend.name"),
                item(words("Version"), s.backend.version, "subject.backend.version"),
                item(words("Build"), s.backend.build, "subject.backend.build"),
                item(
                    words("How it is run"),
                    make.tell(s.backend.how_run) if s.backend.how_run else None,
                    "subject.backend.how_run",
                ),
                item(words("Command line"), command_line(document) or None, "subject.backend.command"),
            ),
        ),
        Area(
            words("Context"),
            (
                item(words("Window asked for"), _tokens(s.window.asked), "subject.window.asked"),
                item(words("Window in force"), _tokens(s.window.in_force), "subject.window.in_force"),
                item(words("Window trained"), _tokens(s.window.trained), "subject.window.trained"),
                item(words("Window of each slot"), _tokens(s.window.per_slot), "subject.window.per_slot"),
                item(
                    words("Slots"),
                    count(s.window.slots) if s.window.slots is not None else None,
                    "subject.window.slots",
                ),
                item(words("Longest input that was sent"), _tokens(longest), "rungs"),
                item(
                    words("Tokens kept for the answer"), _tokens(document.window.output_tokens), "window.output_tokens"
                ),
            ),
        ),
        Area(
            words("KV cache"),
            (
                item(words("Type of K and V"), cache or None, "subject.kv_cache.type_k"),
                item(words("Where it lies"), s.kv_cache.placement, "subject.kv_cache.placement"),
                item(
                    words("Bytes for each token"),
                    number(s.kv_cache.bytes_per_token) if s.kv_cache.bytes_per_token is not None else None,
                    "subject.kv_cache.bytes_per_token",
                ),
                item(words("One pool for all slots"), _flag(s.kv_cache.unified), "subject.kv_cache.unified"),
                item(
                    words("Size"),
                    size(s.kv_cache.size_bytes) if s.kv_cache.size_bytes is not None else None,
                    "subject.kv_cache.size_bytes",
                ),
            ),
        ),
        Area(
            words("Hardware"),
            (
                *devices,
                item(
                    words("System memory"),
                    size(s.hardware.ram_bytes) if s.hardware.ram_bytes is not None else None,
                    "subject.hardware.ram_bytes",
                ),
                item(words("Processor"), s.hardware.cpu, "subject.hardware.cpu"),
                item(words("Operating system"), s.hardware.os, "subject.hardware.os"),
            ),
        ),
        Area(
            words("Placement"),
            (
                item(
                    words("Layers on the GPU"),
                    plain(s.placement.gpu_layers) if s.placement.gpu_layers is not None else None,
                    "subject.placement.gpu_layers",
                ),
                item(
                    words("Split over devices"),
                    plain(s.placement.tensor_split) if s.placement.tensor_split is not None else None,
                    "subject.placement.tensor_split",
                ),
                item(words("Way of splitting"), s.placement.split_mode, "subject.placement.split_mode"),
                item(
                    words("Overrides"),
                    plain(s.placement.overrides) if s.placement.overrides is not None else None,
                    "subject.placement.overrides",
                ),
            ),
        ),
        Area(
            words("Runtime"),
            (
                item(words("Batch"), _count(s.runtime.batch), "subject.runtime.batch"),
                item(words("Micro-batch"), _count(s.runtime.ubatch), "subject.runtime.ubatch"),
                item(words("Requests at once"), _count(s.runtime.parallel), "subject.runtime.parallel"),
                item(words("Flash attention"), _flag(s.runtime.flash_attention), "subject.runtime.flash_attention"),
                item(words("Speculation"), _flag(s.runtime.speculation), "subject.runtime.speculation"),
                item(words("Vision projector"), _flag(s.runtime.projector), "subject.runtime.projector"),
                item(
                    words("Position scaling"),
                    plain(s.runtime.rope) if s.runtime.rope is not None else None,
                    "subject.runtime.rope",
                ),
                item(words("Threads"), _count(s.runtime.threads), "subject.runtime.threads"),
                item(
                    words("Sampling"),
                    plain(s.runtime.sampling) if s.runtime.sampling is not None else None,
                    "subject.runtime.sampling",
                ),
                item(words("Longest answer"), _tokens(s.runtime.output_tokens), "subject.runtime.output_tokens"),
            ),
        ),
        Area(
            words("Result"),
            (
                item(words("First failing length"), _tokens(failing), "rungs")
                if failing
                else item(words("First failing length"), words("none")),
                item(words("Last passing length"), _tokens(last.input_tokens) if last else None, "rungs"),
                item(words("Error"), errors[0].error, "rungs") if errors else item(words("Error"), words("none")),
                *(
                    item(words("Peak memory"), words("{device}: {peak}", device=d.name or d.id, peak=size(p)))
                    for d in shown
                    if (p := peak.get(d.id)) is not None
                ),
                item(words("Peak of host memory"), size(host) if host is not None else None, "rungs.host_peak_bytes"),
                item(
                    words("Prefill at the last passing length"),
                    _speed(last.prefill_tps) if last else None,
                    "rungs.prefill_tps",
                ),
                item(
                    words("Generation at the last passing length"),
                    _speed(last.generation_tps) if last else None,
                    "rungs.generation_tps",
                ),
            ),
        ),
    )


def _count(value: int | None) -> Ours | None:
    return count(value) if value is not None else None


def _at_longest_passing(rungs: Sequence[Rung]) -> Rung | None:
    return max((r for r in rungs if r.result == "passed"), key=lambda r: r.input_tokens, default=None)


def _errors(make: _Builder) -> tuple[str, ...]:
    """Exact error texts: of requests, then of the logs, each once."""
    texts = [r.error for r in make.document.rungs if r.error]
    texts += [line.text for line in make.document.log_lines if line.is_error]
    for piece in make.document.evidence:
        if piece.data is None:
            continue
        if piece.kind == "request_error" and isinstance(piece.data.get("message"), str):
            texts.append(piece.data["message"])
        if piece.kind == "launch" and piece.data.get("healthy") is False and isinstance(piece.data.get("why"), str):
            texts.append(piece.data["why"])
    once = [text for text in dict.fromkeys(texts) if visible(text)]
    return tuple(once[: make.some(once, make.limits.errors, words("Error texts"))])


def _quotes(make: _Builder) -> tuple[Quote, ...]:
    lines = list(make.document.log_lines)
    if len(lines) > make.limits.log_lines:
        make.some(lines, make.limits.log_lines, words("Log lines"))
        order = sorted(range(len(lines)), key=lambda i: (not lines[i].is_error, -lines[i].worth, i))[
            : make.limits.log_lines
        ]
        lines = [lines[i] for i in sorted(order)]
    logs: dict[str, list[tuple[int | None, str]]] = {}
    for line in lines:
        logs.setdefault(line.log or "", []).append((line.line, line.text))
    return tuple(Quote(log, tuple(quoted)) for log, quoted in logs.items())


def _changes(make: _Builder) -> tuple[Change, ...]:
    rows = []
    for change in make.document.changes:
        for i, variable in enumerate(change.variables or (None,)):
            rows.append(
                Change(
                    run=change.run,
                    variable=variable.name if variable else "",
                    before=plain(variable.before) if variable and variable.before is not None else "",
                    after=plain(variable.after) if variable and variable.after is not None else "",
                    single=words("unknown") if change.single is None else YES if change.single else NO,
                    prediction=PREDICTIONS[change.prediction],
                    conclusion=make.tell(change.conclusion or "") if i == 0 else "",
                    kept=words("undecided") if change.kept is None else YES if change.kept else NO,
                )
            )
    return tuple(rows[-make.some(rows, make.limits.changes, words("Changes")) :])
