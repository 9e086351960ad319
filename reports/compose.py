"""Document → view. It judges nothing: what it adds up is what was measured, and what it leaves out it says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from probes.evidence import words as language
from probes.evidence.words import Words, words

from .baseline import baseline, command_line, criteria, edges
from .escape import Ours, Sentence, Several, clip, visible
from .figures import (
    BANDS,
    COMPONENTS,
    FAMILIES,
    NO,
    OUTCOMES,
    PREDICTIONS,
    QUALITIES,
    SOURCES,
    STANDINGS,
    SYMPTOMS,
    TIMES,
    WHY_UNKNOWN,
    YES,
    count,
    moment,
    number,
    percent,
    plain,
    seconds,
    size,
)
from .memory import memory_shown
from .view import (
    STEPS,
    CauseRow,
    Change,
    Chart,
    ClueRow,
    ComparedRow,
    FactRow,
    HeatMap,
    Item,
    Limits,
    Mark,
    Question,
    Quote,
    RungRow,
    RunsCompared,
    Series,
    Stack,
    Test,
    Text,
    View,
)

if TYPE_CHECKING:
    from .document import (
        CaseDocument,
        CauseFound,
        ClueFound,
        DeviceValues,
        FactFound,
        NextTest,
        PutBack,
        Reached,
        Rung,
        SetAside,
        VerdictValues,
    )

# Building ------------------------------------------------------------------------------------------------------------


class _Builder:
    """Makes a view within limits, and notes what was cut."""

    def __init__(self, document: CaseDocument, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.cut: list[Words] = []
        self.asked = {"subject.kv_cache.type_v"}
        """Paths whose reason the baseline tells; both types of the cache stand in one place."""
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
            lambda place: self._value(message.values.get(place.group(1), place.group(0))),
            translated,
        )

    def _value(self, value: object) -> str:
        """Give a value of a sentence; a sentence of ours within it is told too, a single word may be a name."""
        text = plain(value)
        return self.tell(text) if " " in text.strip() and len(text) < _LONGEST_WITHIN else text

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
        self.asked.add(path)
        return (WHY_UNKNOWN[reason.why], reason.note) if reason is not None else (None, "")

    def item(self, label: Words, value: Text | None, path: str = "") -> Item:
        """Make a value of the baseline."""
        if value is None or value == "":
            why, note = self.why(path) if path else (None, "")
            self.asked.add(path)
            return Item(label, None, why, self.tell(note))
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
    areas = baseline(
        document,
        make.item,
        document.subject.hardware.devices[
            : make.some(document.subject.hardware.devices, limits.peaks, words("Devices"))
        ],
        errors,
        make.tell(document.subject.backend.how_run) if document.subject.backend.how_run else None,
        run,
    )
    told, others = _worth_telling(verdict)
    hinted = [cause for cause in others if any(_holds_for(clue) for clue in cause.clues)]
    aside_for_a_reason = sorted((a for a in verdict.set_aside if a.because), key=lambda a: a.band != "ruled-out")
    view = View(
        limits=limits,
        tool=f"{document.tool.name} {document.tool.version}",
        case_id=document.case.id,
        created=moment(document.case.created),
        run=run,
        runs=max(len(document.case.runs), 1),
        symptom=SYMPTOMS.get(document.case.symptom) if document.case.symptom else None,
        verdict=head,
        shown_by=_shown_by(document) if not good else (),
        good=good,
        statement=make.tell(document.window.statement) if document.window.statement else window_statement(document),
        questions=(
            Question(words("Does it fit?"), document.window.fits.tokens, document.window.fits.ok),
            Question(words("Is it fast enough?"), document.window.fast_enough.tokens, document.window.fast_enough.ok),
            Question(words("Does it use the text?"), document.window.recalls.tokens, document.window.recalls.ok),
        ),
        target=document.ladder.target if document.ladder else None,
        next_test=_next_test(make, document.next_test),
        no_next_test=_without_test(document, good=bool(good)),
        criteria=criteria(document),
        baseline=areas,
        rungs=rows,
        devices=tuple((d.id, d.name or d.id) for d in document.subject.hardware.devices[: limits.peaks]),
        charts=charts,
        heat=heat_map([r for r in document.rungs if r.run == run]),
        stacks=stacks,
        memory=memory_shown(memory, lambda items, what: make.some(items, limits.unknown, what)),
        stack_at=memory.ctx if memory else None,
        stack_basis=(memory.basis or "") if memory else "",
        causes=_causes(make, told),
        open=tuple((cause.id, _title(make, cause)) for cause in hinted)[:_MOST_OPEN],
        open_more=max(len(hinted) - _MOST_OPEN, 0),
        open_unseen=tuple(cause.id for cause in others if not any(_holds_for(clue) for clue in cause.clues)),
        set_aside=tuple(
            (aside.id, _unstopped(make.tell(aside.words or "")), BANDS[aside.band], _because(make, aside))
            for aside in aside_for_a_reason[: limits.reasons]
        ),
        also_aside=tuple(aside.id for aside in aside_for_a_reason[limits.reasons :])[: limits.unknown],
        without_a_sign=tuple(aside.id for aside in verdict.set_aside if not aside.because),
        would_decide=tuple(make.tell(each) for each in verdict.would_decide[: limits.lists]),
        errors=errors,
        quotes=_quotes(make),
        changes=_changes(make),
        compared=_compared(make),
        conflicts=tuple(
            (
                make.tell(c.words) if c.words else c.fact,
                _found(c.believed, c.unit),
                _source(c.believed_source),
                _found(c.other, c.unit),
                _source(c.other_source),
            )
            for c in document.conflicts[: make.some(document.conflicts, limits.lists, words("Contradictions"))]
        ),
        unknown=_unknown(make),
        notes=tuple(make.tell(note) for note in document.notes[: limits.lists]),
        measured=_measured(make),
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


def verdict_words(document: CaseDocument, make: _Builder | None = None) -> tuple[tuple[Words, ...], bool | None]:
    """Say the verdict, a sentence for each thing it says, the first of them the verdict in one line; and whether it is good news."""
    make = make or _Builder(document, STEPS[0])
    verdict = document.verdict
    titles = {cause.id: _title(make, cause) for cause in verdict.causes}
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
    stopped = document.unknown.get("evidence.session")
    if stopped is not None and not document.rungs and not any(c.band == "likely" for c in leaders):
        # nothing was seen: what is merely possible would only hide that
        return (words("Could not look: {why}", why=Sentence(make.tell(stopped.note))),), None
    rungs = document.ladder.rungs if document.ladder is not None else ()
    # a budget that ended the way up leaves the longer lengths unseen: then nothing is said of them
    to_the_top = tokens is not None and (not rungs or tokens >= 0.85 * max(rungs))
    well = to_the_top and all(part.ok is not False for part in _three(document))
    if well and all(c.band == "possible" for c in leaders):
        # what is merely possible is no finding where everything that was asked for was seen to work
        return (words("Nothing wrong was found: {tokens} input tokens are verified", tokens=count(tokens or 0)),), True
    if leaders:
        said.append(words("No single cause is named. Leading: {cause}", cause=named(leaders[0].id)))
        said += [words("Also in play: {cause}", cause=named(c.id)) for c in leaders[1:]]
    elif document.rungs and tokens is not None:
        said.append(words("No cause is named; {tokens} input tokens are verified", tokens=count(tokens)))
    else:
        said.append(words("No cause can be named from what was found"))
    if verdict.abstained_because:
        said.append(words("Why: {reason}", reason=Sentence(make.tell(verdict.abstained_because))))
    return tuple(said), None


SHOWN_LINES, SHOWN_WIDE = 2, 200
"""How many log lines stand beside the verdict, and how many characters of each."""


def _shown_by(document: CaseDocument) -> tuple[tuple[str, str], ...]:
    """Give the lines that show the cause that the verdict begins with, at most two: a maintainer looks for these first."""
    verdict = document.verdict
    leaders = [c.id for c in verdict.causes if c.band in {"likely", "disputed", "possible"}]
    first = next(iter((*verdict.confirmed, *verdict.named, *leaders)), None)
    lines = [line for line in document.log_lines if line.cause is not None and line.cause == first]
    best = sorted(lines, key=lambda line: (not line.is_error, -line.worth))[:SHOWN_LINES]
    told = [line for line in lines if line in best]
    return tuple(
        (f"{line.log or 'log'}:{line.line}" if line.line else line.log or "log", clip(line.text, SHOWN_WIDE))
        for line in told
    )


def _three(document: CaseDocument) -> tuple[Reached, Reached, Reached]:
    return document.window.fits, document.window.fast_enough, document.window.recalls


def window_statement(document: CaseDocument) -> Words:
    """Say which window was proved, or what failed, in one sentence. It claims only what was measured."""
    window = document.window
    tokens = window.verified_input_tokens
    if tokens is not None:
        repeats = document.criteria.repeats or 1
        times = TIMES.get(repeats) or words("{number} times in a row", number=count(repeats))
        speed = window.fast_enough.ok is not None or window.fast_enough.tokens is not None
        recall = window.recalls.ok is not None or window.recalls.tokens is not None
        if speed and recall:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} "
                "with the required speed and recall.",
                tokens=count(tokens),
                times=times,
            )
        if recall:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} "
                "with the required recall; no speed was required.",
                tokens=count(tokens),
                times=times,
            )
        if speed:
            return words(
                "This model, backend, cache and hardware passed {tokens} input tokens {times} "
                "with the required speed; recall is unknown.",
                tokens=count(tokens),
                times=times,
            )
        return words(
            "This model, backend, cache and hardware accepted {tokens} input tokens {times}; "
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
        by_length = _some_lengths(by_length)
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
    if lines and len(x) >= 2:
        charts.append(Chart("memory", words("Peak memory by input length"), words("memory"), x, tuple(lines), "size"))
    # In a chart of its own: a large host would press the devices flat.
    host = tuple(
        max((float(r.host_peak_bytes) for r in rungs if r.host_peak_bytes is not None), default=None)
        for rungs in by_length.values()
    )
    if any(v is not None for v in host) and len(x) >= 2:
        series = Series(words("host memory"), host)
        charts.append(
            Chart("host", words("Peak of host memory by input length"), words("memory"), x, (series,), "size")
        )
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


def _some_lengths(by_length: dict[int, list[Rung]]) -> dict[int, list[Rung]]:
    """Give no more lengths than can be drawn, the shortest and the longest among them."""
    keys = list(by_length)
    if len(keys) <= _MOST_LENGTHS:
        return by_length
    step = (len(keys) - 1) / (_MOST_LENGTHS - 1)
    return {keys[round(i * step)]: by_length[keys[round(i * step)]] for i in range(_MOST_LENGTHS)}


QUOTED_EVIDENCE: Final = frozenset({"request_error", "launch"})
"""Kinds of evidence that are quoted as they are: the exact errors in them."""


def departure(x: Sequence[int], values: Sequence[float | None]) -> Mark | None:
    """Say whether a speed curve falls off a step, slopes, or is flat. None with fewer than three points.

    The time for one token grows linearly with length where only depth costs, so a step is where it is more than a third
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
    with_depths = [rung for rung in rungs if rung.canaries and rung.canaries.by_depth]
    for length, group in _some_lengths(_lengths(with_depths)).items():
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


def _fact(make: _Builder, fact: FactFound) -> FactRow:
    # A fact is told by its words; its id is for programs, and stands in the JSON and in the trace of `explain`.
    name = _unstopped(make.tell(fact.words)) if fact.words else fact.id
    if fact.why_unknown:
        return FactRow(name, None, None, WHY_UNKNOWN.get(fact.why_unknown, words("unknown")))
    if fact.found is None:
        return FactRow(name, None, _source(fact.source) if fact.source else None, words("unknown"))
    if fact.found_words:
        said = Several(tuple(Sentence(_unstopped(make.tell(one))) for one in fact.found_words))
        return FactRow(name, words("{id}", id=said), _source(fact.source) if fact.source else None, None)
    return FactRow(name, _found(fact.found, fact.unit), _source(fact.source) if fact.source else None, None)


def _found(value: object, unit: str | None) -> Text:
    """Give what was found, in its unit."""
    if isinstance(value, bool):
        return YES if value else NO
    if not isinstance(value, int | float):
        return plain(value)
    match unit:
        case "bytes":
            return size(value)
        case "GiB":
            return size(value * 2**30)
        case "tokens":
            return words("{tokens} tokens", tokens=count(value))
        case "seconds" | "s":
            return seconds(value)
        case "share":
            return percent(value)
        case "ratio":
            return percent(value) if abs(value) <= 1 else words("{times} ×", times=number(value))
        case "tokens/s":
            return words("{speed} tokens per second", speed=number(value))
    # What is counted stands in the fact's name: slots, layers, devices.
    return Ours((f"{value:,}" if isinstance(value, int) else f"{value:.4g}").replace("-", "−"))


def _clues(make: _Builder, clues: Iterable[ClueFound]) -> tuple[ClueRow, ...]:
    ordered = sorted(clues, key=lambda c: -abs(c.weight or 0))
    shown = ordered[: make.some(ordered, make.limits.clues, words("Clues"))]
    return tuple(
        ClueRow(
            _unstopped(make.tell(c.words)),
            {"true": True, "false": False}.get(c.truth),
            c.weight,
            tuple(_fact(make, f) for f in c.facts[: make.limits.facts]),
        )
        for c in shown
    )


def _because(make: _Builder, aside: SetAside) -> Words | str:
    clue = _unstopped(make.tell(aside.because or ""))
    if aside.because_holds is None or not clue:
        return clue
    if aside.because_holds:
        return words("yes: {clue}", clue=Sentence(clue))
    return words("no: {clue}", clue=Sentence(clue))


def _unstopped(text: str) -> str:
    """Give a sentence without its full stop: it stands within another."""
    return text.rstrip(". ")


def _title(make: _Builder, cause: CauseFound) -> str:
    return _unstopped(make.tell(cause.words or ""))


def _cause(make: _Builder, verdict: VerdictValues, cause: CauseFound) -> CauseRow:
    known = [c for c in cause.clues if c.truth != "unknown"]
    unknown = sorted((c for c in cause.clues if c.truth == "unknown"), key=lambda c: -abs(c.weight or 0))
    shown = min(len(unknown), make.limits.unknown_clues)
    return CauseRow(
        id=cause.id,
        title=_title(make, cause),
        family=FAMILIES.get(cause.family) or words("{family}", family=cause.family),
        band=BANDS[cause.band],
        interval=(cause.low, cause.now, cause.high),
        named=cause.id in verdict.named,
        confirmed=cause.id in verdict.confirmed,
        explains=cause.explains[: make.limits.lists],
        clues_for=_clues(make, (c for c in known if (c.weight or 0) > 0)),
        clues_against=_clues(make, (c for c in known if (c.weight or 0) < 0)),
        unknown=_by_why(make, unknown[:shown]),
        more_unknown=len(unknown) - shown,
        overturned_by=tuple(_cause_in_words(make, each) for each in cause.overturned_by[:_MOST_RIVALS]),
        more_rivals=max(len(cause.overturned_by) - _MOST_RIVALS, 0),
    )


def _cause_in_words(make: _Builder, text: str) -> Words:
    """Give a rival by its title where it is a cause of this document; another sentence as it is."""
    verdict = make.document.verdict
    titles = {one.id: one.words for one in verdict.causes} | {one.id: one.words for one in verdict.set_aside}
    if titles.get(text):
        return words("{title} ({id})", title=Sentence(_unstopped(make.tell(titles[text] or ""))), id=text)
    return words("{id}", id=Sentence(make.tell(text)))


_MOST_RIVALS: Final = 5


def _by_why(make: _Builder, clues: Sequence[ClueFound]) -> tuple[tuple[Words, tuple[str, ...]], ...]:
    """Gather clues that nobody could weigh by the reason: each reason is one line."""
    groups: dict[str, list[str]] = {}
    for clue in clues:
        why = next((fact.why_unknown for fact in clue.facts if fact.why_unknown), None) or ""
        groups.setdefault(why, []).append(_unstopped(make.tell(clue.words)))
    return tuple((WHY_UNKNOWN.get(why, words("unknown")), tuple(said)) for why, said in groups.items())


def _holds_for(clue: ClueFound) -> bool:
    return clue.truth != "unknown" and (clue.weight or 0) > 0


_MOST_OPEN: Final = 5
"""So many causes that are merely not excluded are told by name; the others are counted."""
_SPEAKS: Final = 6.0
"""A clue of this weight is worth telling a cause for that is merely open."""


def _worth_telling(verdict: VerdictValues) -> tuple[list[CauseFound], list[CauseFound]]:
    """Part the causes into those that something speaks for, which are told whole, and those that are only not excluded, which are listed.

    Where causes are given that are unlikely or ruled out, all were asked for, and all are told.
    """
    if any(cause.band in {"unlikely", "ruled-out"} for cause in verdict.causes):
        return list(verdict.causes), []
    told: list[CauseFound] = []
    others: list[CauseFound] = []
    for cause in verdict.causes:
        speaks = any(clue.truth != "unknown" and (clue.weight or 0) >= _SPEAKS for clue in cause.clues)
        singled_out = cause.id in verdict.named or cause.id in verdict.confirmed
        (told if singled_out or cause.band != "open" or speaks else others).append(cause)
    return told, others


def _causes(make: _Builder, told: Sequence[CauseFound]) -> tuple[CauseRow, ...]:
    shown = told[: make.some(told, make.limits.causes, words("Causes"))]
    return tuple(_cause(make, make.document.verdict, cause) for cause in shown)


def _unknown(make: _Builder) -> tuple[tuple[Words, str, tuple[str, ...]], ...]:
    """Give what is unknown and not said in the baseline already, by the reason."""
    left = [(path, reason) for path, reason in make.document.unknown.items() if path not in make.asked]
    groups: dict[tuple[str, str], list[str]] = {}
    for path, reason in left[: make.some(left, make.limits.unknown, words("Unknown values"))]:
        groups.setdefault((reason.why, reason.note), []).append(path)
    return tuple((WHY_UNKNOWN[why], make.tell(note), tuple(paths)) for (why, note), paths in groups.items())


def _next_test(make: _Builder, test: NextTest | None) -> Test | None:
    if test is None:
        return None
    variable = test.variable or ""
    before = plain(test.from_) if test.from_ is not None else ""
    after = plain(test.to) if test.to is not None else ""
    reason: Text = make.tell(test.reason or "")
    how: list[Words] = []
    if test.question or test.decides or test.tells:
        how, reason = _asked(make, test)
    if test.kind == "change" and test.first:
        # two steps in one command are never called one
        lead = words(
            "Two steps. First undo what gained nothing: {undone}. Then change {variable} from {before} to {after}.",
            undone=Several(tuple(_put_back(one) for one in test.first)),
            variable=variable or "?",
            before=before or Sentence(words("not set")),
            after=after or Sentence(words("not set")),
        )
    elif test.kind == "change" and variable and before and after:
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
    elif test.kind == "probe" and test.variable in PROBES:
        lead = words("Measure more: {variable}", variable=Sentence(PROBES[test.variable]))
    elif test.kind == "probe":
        lead = words("Measure more: {variable}", variable=variable or after or "?")
    elif test.kind == "answer" and test.question:
        lead = words("Answer a question: {variable}", variable=Sentence(make.tell(test.question)))
    elif test.kind == "answer" and test.variable == "log":
        lead = words("Give the server's log, from its start to the failure, with --log FILE.")
    elif test.kind == "answer":
        lead = words("Answer a question: {variable}", variable=variable or after or "?")
    elif reason or after or variable:
        # A habit has no setting: what to do is its reason.
        lead = words("Change a habit: {habit}", habit=Sentence(reason or make.tell(after or variable)))
        reason = ""
    else:
        lead = words("Change a habit, not a setting.")
    command = test.command or ""
    if _TO_DO.match(command):
        how += [words("{id}", id=Sentence(make.tell(line))) for line in command.splitlines() if line.strip()]
        command = ""
    undo: Text = test.undo or ""
    if _TO_DO.match(test.undo or ""):
        back = tuple(Sentence(make.tell(line)) for line in (test.undo or "").splitlines() if line.strip())
        undo = words("{id}", id=Several(back))
    return Test(
        lead=lead,
        command=command,
        undo=undo,
        keep=tuple(make.tell(k) for k in test.keep[: make.limits.lists]),
        expects=tuple((e.cause, make.tell(e.words)) for e in test.expects[: make.limits.lists]),
        cost=_cost(test),
        reason=reason,
        kind=test.kind,
        how=tuple(how),
        undoes=bool(test.first),
    )


def _without_test(document: CaseDocument, *, good: bool) -> Words:
    """Say what it means that no test is proposed: where the budget cut the measuring off, more of it is what is left."""
    if good:
        return words("Nothing has to be changed.")
    if document.ladder is not None and document.ladder.stopped == "budget":
        return words(
            "No change is left to try. The budget ended before all lengths were measured: a larger budget (--budget) tells more."
        )
    return words("Nothing is left to try.")


def _put_back(one: PutBack) -> Words:
    """Say from what to what a setting is put back."""
    before, after = (plain(each) if each is not None else "" for each in (one.from_, one.to))
    return words(
        "{variable} ({before} → {after})",
        variable=one.variable,
        before=before or Sentence(words("not set")),
        after=after or Sentence(words("not set")),
    )


def _asked(make: _Builder, test: NextTest) -> tuple[list[Words], Text]:
    """Say how a question is answered, and why it is asked, in words: ids are for programs."""
    how = []
    if test.question:
        line = f'{test.variable} = "…"'
        how.append(words("Write {line} into a file and give the file with {option}", line=line, option="--answers"))
    if test.choices:
        offered = [words("{id} ({words})", id=one.id, words=Sentence(make.tell(one.words))) for one in test.choices]
        how.append(words("Choices: {choices}", choices=Several(tuple(offered[:_MOST_CHOICES]))))
        if len(offered) > _MOST_CHOICES:
            rest = Several(tuple(one.id for one in test.choices[_MOST_CHOICES:]))
            how.append(words("Or: {choices}", choices=rest))
    causes = Several(tuple(Sentence(_unstopped(make.tell(one))) for one in test.decides[:3]))
    facts = Several(tuple(Sentence(_unstopped(make.tell(one))) for one in test.tells[:4]))
    if test.decides and test.tells and not test.question:
        return how, words("It finds out: {facts}. It can still decide about: {causes}", facts=facts, causes=causes)
    if test.decides:
        return how, words("It can still decide about: {causes}", causes=causes)
    return how, make.tell(test.reason or "")


PROBES: Final = {
    "truncation": words("what becomes of a prompt that is longer than the window"),
    "recall": words("whether facts of a text are found again"),
    "ladder": words("one length after another, up to the window"),
    "fixed-length": words("at which length exactly it fails"),
    "repeat": words("the same request again and again"),
    "cache-reuse": words("what comes from the prompt cache"),
    "speed": words("the speed at each length"),
}
"""What a probe measures, in words: its id is for programs."""
_MOST_CHOICES: Final = 6
_LONGEST_WITHIN: Final = 400
_TO_DO: Final = re.compile(r"[A-Z][a-z]+ [a-z]")
"""What a person is to do, in words, begins so; a command that can be run does not."""


def _cost(test: NextTest) -> Words:
    minutes = Ours(f"{test.cost.minutes:.3g}") if test.cost.minutes is not None else words("unknown")
    tokens = count(test.cost.tokens) if test.cost.tokens is not None else words("unknown")
    quality = QUALITIES[test.cost.quality] if test.cost.quality else words("cost in quality unknown")
    if test.kind == "answer" and not test.cost.tokens:
        # a question is put to a person: nothing is sent
        return words("minutes: {minutes}; no tokens; {quality}", minutes=minutes, quality=quality)
    return words("minutes: {minutes}; tokens: {tokens}; {quality}", minutes=minutes, tokens=tokens, quality=quality)


def _measured(make: _Builder) -> tuple[Item, ...]:
    """How the lengths and the recall were measured."""
    ladder = make.document.ladder
    if ladder is None:
        return ()
    styles = {"question": words("a question to a chat model"), "completion": words("a completion of a base model")}
    base = (
        words("{hit} of {asked}", hit=count(ladder.base_hit), asked=count(ladder.base_asked))
        if ladder.base_hit is not None and ladder.base_asked
        else None
    )
    items = [
        (
            words("Wanted input"),
            words("{tokens} tokens", tokens=count(ladder.target)) if ladder.target is not None else None,
        ),
        (words("Tokens were counted by"), ladder.tokenizer),
        (words("Recall was asked by"), styles.get(ladder.style or "")),
        (words("Recalled at the shortest length, the model's own base"), base),
        (words("Seed of the text"), Ours(str(ladder.seed)) if ladder.seed is not None else None),
    ]
    out = [Item(label, value) for label, value in items if value]
    if ladder.able is False:
        out.append(
            Item(
                words("Note"),
                words(
                    "This model cannot do the recall test even at the shortest length: recall is unknown, not passed."
                ),
            )
        )
    return tuple(out)


def _errors(make: _Builder) -> tuple[str, ...]:
    """Exact error texts: of requests, then of the logs, each once."""
    texts = [r.error for r in make.document.rungs if r.error]
    texts += [line.text for line in make.document.log_lines if line.is_error]
    for piece in make.document.evidence:
        if piece.data is None:
            continue
        if piece.kind == "request_error" and isinstance(piece.data.get("message"), str):
            if _rightly_refused(make.document, piece.data):
                continue
            texts.append(piece.data["message"])
        if piece.kind == "launch" and piece.data.get("healthy") is False and isinstance(piece.data.get("why"), str):
            texts.append(piece.data["why"])
    once = [text for text in dict.fromkeys(texts) if visible(text)]
    return tuple(once[: make.some(once, make.limits.errors, words("Error texts"))])


def _rightly_refused(document: CaseDocument, error: dict[str, Any]) -> bool:
    """Say whether a request that failed is no fault: longer than any window asked for or in force, as a probe sends it so that it be refused."""
    if error.get("error") == "timeout" and document.rungs and all(rung.result == "passed" for rung in document.rungs):
        # A probe that had little time left; a server that was too slow for a length shows it at that length.
        return True
    sent, window = error.get("prompt_tokens"), document.subject.window
    longest = max((n for n in (window.asked, window.in_force, window.per_slot) if n is not None), default=None)
    return error.get("error") == "exceeds-window" and isinstance(sent, int) and longest is not None and sent > longest


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


def _compared(make: _Builder) -> tuple[RunsCompared, ...]:
    """Give each run beside the one that it is compared with, the newest first where not all can be shown."""
    found = []
    for change in make.document.changes:
        if change.against is None or not (change.comparison or change.notes):
            continue
        rows = tuple(
            ComparedRow(
                name=make.tell(row.name),
                before=_measure(row.before, row.unit),
                after=_measure(row.after, row.unit),
                noise=_measure(row.noise, row.unit) if row.noise is not None else "",
                standing=STANDINGS[row.standing],
                note=make.tell(row.note or ""),
            )
            for row in change.comparison
        )
        found.append(RunsCompared(change.run, change.against, rows, tuple(make.tell(note) for note in change.notes)))
    return tuple(found[-make.some(found, max(1, make.limits.changes // 6), words("Comparisons of runs")) :])


def _measure(value: object, unit: str | None) -> Text:
    if value is None:
        return words("unknown")
    if isinstance(value, bool):
        return YES if value else NO
    if not isinstance(value, int | float):
        return plain(value)
    if unit == "bytes":
        return size(value)
    if unit == "share":
        return percent(value)
    if unit == "tokens":
        return count(value)
    return number(value)
