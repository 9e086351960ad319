"""``ctxdoctor explain``: why the verdict is what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli import options as opt
from diagnose.cli.check import ResultFile, ShortFormat, put, text_or_json
from diagnose.language import spoken
from probes.evidence.words import words

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.explain import ExplainDocument, ExplainedCause, ExplainedClue, ExplainedFact


def explain_command(
    case_name: Annotated[
        str | None,
        typer.Argument(metavar="CASE", help="A case's name or path; absent: the newest.", show_default=False),
    ] = None,
    cause: Annotated[
        str | None,
        typer.Argument(metavar="CAUSE", help="A cause's id; absent: the leader and the runner-up.", show_default=False),
    ] = None,
    case_option: Annotated[
        str | None, typer.Option("--case", help="The case, as the argument.", show_default=False)
    ] = None,
    run: Annotated[
        int | None, typer.Option("--run", min=1, help="As of this run of the case.", show_default="the last")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every cause, unlikely ones too.")] = False,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Show the trace: clues for, against and unknown, with the values found, where they came from, and what would overturn the verdict."""
    del lang, quiet  # the language was read before the command line was built; there is no talk here
    shown = text_or_json(format)
    from diagnose.case import Case, find  # noqa: PLC0415
    from diagnose.explain import explain  # noqa: PLC0415
    from probes.evidence.errors import CaseError, InputError  # noqa: PLC0415
    from rules.causes import CAUSES  # noqa: PLC0415

    name = case_name or case_option
    if case_name is not None and cause is None and case_name in CAUSES:
        # `explain CAUSE` means the newest case, unless there is one of that name.
        try:
            find(case_name)
        except CaseError:
            name, cause = case_option, case_name
    case = Case.open(name, read_only=True)
    if run is not None and run > case.run:
        raise InputError(f"case {case.id} has {case.run} runs; --run {run} is none of them")
    document = explain(case, (cause,) if cause else (), run, everything=everything)
    put(document.to_json() if shown == "json" else in_text(document), out)
    return 0


def in_text(document: ExplainDocument) -> str:
    """Give the trace as a person reads it."""
    return "\n".join(line.rstrip() for line in _lines(document)) + "\n"


def _lines(document: ExplainDocument) -> Iterator[str]:
    from reports.escape import visible  # noqa: PLC0415

    yield str(words("Case {case}, run {run}", case=document.case, run=document.run))
    if document.named:
        yield str(words("Named: {causes}", causes=", ".join(document.named)))
    else:
        yield str(words("Nothing is named. {why}", why=visible(spoken(document.abstained_because or ""))))
    if document.runner_up:
        yield str(words("Runner-up: {cause}", cause=document.runner_up))
    for cause in document.causes:
        yield ""
        yield from _cause(cause)
    if document.would_overturn:
        yield ""
        yield str(words("What would overturn this"))
        for one in document.would_overturn:
            yield f"  {one.cause} ({one.now} → {one.high})"
            for said in one.by:
                yield f"    {visible(spoken(said))}"
    elif document.named:
        yield ""
        yield str(words("Nothing that is still open could overturn this."))
    for conflict in document.conflicts:
        yield ""
        yield str(words("Sources disagree about: {fact}", fact=conflict.fact))
        yield "  " + str(words("believed: {value}", value=_fact(conflict.believed)))
        for other in conflict.others:
            yield "  " + str(words("set aside: {value}", value=_fact(other)))
    if document.would_decide:
        yield ""
        yield str(words("What would decide"))
        for said in document.would_decide:
            yield f"  {visible(spoken(said))}"
    if document.others:
        yield ""
        yield str(words("Also in play: {causes}", causes=", ".join(document.others)))
    if document.open:
        yield str(words("Open, with nothing for or against yet: {number}", number=document.open))


def _cause(cause: ExplainedCause) -> Iterator[str]:
    from reports.escape import visible  # noqa: PLC0415
    from reports.figures import BANDS  # noqa: PLC0415

    yield f"{cause.id}: {visible(spoken(cause.words or ''))}"
    yield f"  {BANDS[cause.band]}; {cause.low} / {cause.now} / {cause.high}"
    if cause.explains:
        yield "  " + str(words("Explains: {causes}", causes=", ".join(cause.explains)))
    for title, clues in (
        (words("For"), cause.clues_for),
        (words("Against, or nothing"), cause.clues_against),
        (words("Unknown"), cause.clues_unknown),
    ):
        if clues:
            yield f"  {title}"
        for clue in clues:
            yield from _clue(clue)


def _clue(clue: ExplainedClue) -> Iterator[str]:
    from reports.escape import visible  # noqa: PLC0415

    weight = f"{clue.weight:+d}" if clue.low == clue.high else f"{clue.low:+d} … {clue.high:+d}"
    yield f"    {weight:>11}  {visible(spoken(clue.words))} [{clue.truth}]"
    for fact in clue.facts:
        yield f"                 {_fact(fact)}"


def _fact(fact: ExplainedFact) -> str:
    from reports.escape import visible  # noqa: PLC0415
    from reports.figures import WHY_UNKNOWN  # noqa: PLC0415

    if fact.why_unknown is not None or fact.found is None:
        note = f" ({visible(spoken(fact.note))})" if fact.note else ""
        return f"{fact.id}: {words('unknown')}, {WHY_UNKNOWN[fact.why_unknown] if fact.why_unknown else ''}{note}"
    unit = f" {'×' if fact.unit == 'ratio' else fact.unit}" if fact.unit and not isinstance(fact.found, bool) else ""
    found = ", ".join(map(_shown, fact.found)) if isinstance(fact.found, tuple | list) else _shown(fact.found)
    origin = f": {visible(fact.origin)}" if fact.origin else ""
    return f"{fact.id} = {visible(found)}{unit}  [{fact.source}{origin}]"


def _shown(value: object) -> str:
    """Give a value with the digits that matter."""
    return f"{value:.4g}" if isinstance(value, float) and abs(value) < 10_000 else str(value)
