"""Draws a report: the document → redacted → a view within limits → a template → checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from html import escape as escape_html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from probes.evidence.errors import InputError
from probes.evidence.words import Words, speaking, words

from . import plots
from .check import LONGEST_MARKDOWN, check
from .compose import QUOTED_EVIDENCE, build
from .escape import ROOM, Markdown, Ours, Sentence, Several, cell, clip, code, fence, finalize, prose, visible, width
from .figures import count, number, percent, seconds, size
from .view import STEPS, Limits, Quote, View

if TYPE_CHECKING:
    from jinja2 import Environment

    from .document import CaseDocument
    from .redact import Redactor

Format = Literal["md", "html", "json", "bug-report", "terminal"]
FORMATS: Final[tuple[Format, ...]] = ("md", "html", "json", "bug-report", "terminal")
TEMPLATES: Final = Path(__file__).parent / "templates"


def render(
    document: CaseDocument,
    format: Format = "md",  # noqa: A002 - the option's own name
    *,
    target: str | None = None,
    lang: str = "en",
    redact: bool = True,
    redactor: Redactor | None = None,
    translate: Callable[[str], str] | None = None,
    columns: int = 80,
) -> str:
    """Draw ``document`` in one of :data:`FORMATS`.

    ``target`` is the project whose bug form is filled (``bug-report`` only; by default the document's own backend). ``lang`` "en" is English
    whatever language is in force; any other is drawn with ``translate``, else with the language in force. ``redact`` replaces keys, names and
    addresses before anything is drawn; ``redactor`` brings names and secrets that are known. ``columns`` is the terminal's width.

    InputError for an unknown format or target.
    """
    if format not in FORMATS:
        raise InputError(f"unknown format {format!r}: choose from {', '.join(FORMATS)}")
    from probes.evidence.words import looking_up  # noqa: PLC0415 - read at the moment of drawing

    look_up = None if lang == "en" else translate or looking_up()
    with speaking(look_up):
        left_out: tuple[Words, ...] = ()
        if format != "json":
            # Everything else of the evidence is in the document's other parts already.
            document = document.model_copy(
                update={"evidence": tuple(e for e in document.evidence if e.kind in QUOTED_EVIDENCE)}
            )
        if redact:
            from .redact import redact_document  # noqa: PLC0415 - its patterns are only compiled where they are used

            document, left_out = redact_document(document, redactor)
        if format == "json":
            return document.to_json() + "\n"
        if format == "terminal":
            from .terminal import text  # noqa: PLC0415 - brings rich

            return text(build(document), columns=columns)
        if format == "bug-report":
            from .forms import form_for  # noqa: PLC0415 - only for this format

            form = form_for(target or document.subject.backend.name)
            return _within(document, left_out, redact, lambda view: _draw_form(view, document, form))
        markdown = _within(document, left_out, redact, _draw_markdown)
        if format == "md":
            return markdown
        from .page import page  # noqa: PLC0415 - only for this format

        view = build(document)
        return page(markdown, view, lang=lang)


def _within(
    document: CaseDocument,
    left_out: tuple[Words, ...],
    redacted: bool,
    draw: Callable[[View], str],
) -> str:
    """Draw at the widest limits that keep the report under the tracker's limit; what is worth least goes first."""
    text = ""
    for limits in STEPS:
        view = build(document, limits)
        view.left_out, view.redacted = left_out, redacted
        token = ROOM.set(limits.room)
        try:
            text = draw(view)
        finally:
            ROOM.reset(token)
        if len(text) <= LONGEST_MARKDOWN:
            break
    problems = check(text)
    if not problems:
        return text
    # Nothing known leads here; if something does, the report is still given, as text in which nothing can act.
    body = clip(visible(text, lines=True), LONGEST_MARKDOWN - 2_000)
    note = str(words("This report is shown as plain text, because text from outside could not be kept in its place."))
    return f"{note}\n\n{fence(body, whole=True)}\n"


def _draw_markdown(view: View) -> str:
    return tidy(environment().get_template("report.md.j2").render(**tables(view), view=view))


def _draw_form(view: View, document: CaseDocument, form: Any) -> str:
    from .forms import filled, server_of_another, title_of  # noqa: PLC0415 - only for this format

    template = environment().get_template("bug_report.md.j2")
    return tidy(
        template.render(
            view=view,
            form=form,
            fields=filled(form, view, document),
            title=title_of(form, document),
            other=server_of_another(form, document),
        )
    )


@cache
def environment() -> Environment:
    """Give the template environment: every expression is escaped for Markdown unless it was made as Markdown here."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - heavy, and only needed here

    env = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=False,  # noqa: S701 - HTML's escapes are not Markdown's: finalize escapes every expression
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=False,
    )
    env.globals.update(words=words, table=table, ours=lambda value: Ours(str(value)), count=count)
    env.filters.update(
        ready=Markdown,
        prose=prose,
        code=code,
        codes=codes,
        sentences=lambda values: Markdown("; ".join(finalize(value) for value in values)),
        said=lambda value: Markdown(finalize(value)),
        causes=lambda pairs: Markdown(
            "; ".join(f"{prose(title)} ({code(id_)})" if title else code(id_) for id_, title in pairs)
        ),
        shown=shown,
        signed=lambda value: Ours(f"{value:+g}".replace("-", "−")),
        score=lambda value: Ours(f"{value:g}".replace("-", "−")),
        summary=lambda title: Markdown(escape_html(visible(str(title)), quote=False)),
        heading=Markdown,  # a form's own title, written in forms.py
        command_text=lambda said: fence(visible(str(said))),
        command=lambda text: fence(visible(text), "sh", longest_line=ROOM.get().command),
        fence=fence,
        joined="\n".join,
        quoted=quoted,
        mermaid=plots.mermaid,
        text_form=plots.text_form,
        heat_text=plots.heat_text,
        stack_text=plots.stack_text,
    )
    return env


def codes(values: Iterable[object]) -> Markdown:
    """Give code spans with commas between."""
    return Markdown(", ".join(code(value) for value in values))


def shown(value: object) -> Markdown | Ours:
    """Give a value of the view: a sentence of ours, a number of ours, or text from outside as code."""
    if isinstance(value, Ours | Markdown):
        return value
    return Markdown(finalize(value)) if isinstance(value, Words) or value is None else code(value)


def quoted(quote: Quote) -> Markdown:
    """Give lines of a log with their numbers."""
    wide = max((len(str(n)) for n, _ in quote.lines if n), default=0)
    lines = []
    for n, text in quote.lines:
        exact = visible(text, lines=True).replace("\n", " ")
        lines.append(f"{n or '':>{wide}}  {exact}" if wide else exact)
    return fence("\n".join(lines))


# Tables --------------------------------------------------------------------------------------------------------------


def table(head: Sequence[Words], rows: Sequence[Sequence[object]]) -> Markdown:
    """Give a table whose columns stand under each other also where it is read as plain text."""
    lines = [[cell(Markdown(finalize(value))) for value in line] for line in (head, *rows)]
    wide = [min(max(width(line[i]) for line in lines), 44) for i in range(len(head))]

    def drawn(line: Sequence[str]) -> str:
        return "| " + " | ".join(text + " " * max(0, wide[i] - width(text)) for i, text in enumerate(line)) + " |"

    rule = "| " + " | ".join("-" * max(3, w) for w in wide) + " |"
    return Markdown("\n".join([drawn(lines[0]), rule, *(drawn(line) for line in lines[1:])]))


def tables(view: View) -> dict[str, Any]:
    """Give the rows of the report's tables."""
    head: list[Words] = [
        words("Input tokens"),
        words("Try"),
        words("Result"),
        words("Prefill, tok/s"),
        words("Generation, tok/s"),
    ]
    head += [words("First token"), words("Canaries"), words("Constraints")]
    several = view.runs > 1 or len({row.run for row in view.rungs}) > 1
    if several:
        head.insert(0, words("Run"))
    head += [words("Peak of device {number}", number=Ours(str(i))) for i in range(1, len(view.devices) + 1)]
    host = any(row.host_peak is not None for row in view.rungs)
    if host:
        head.append(words("Peak of host"))
    failed = any(row.error for row in view.rungs)
    if failed:
        head.append(words("Error"))
    rows: list[list[object]] = []
    for row in view.rungs:
        line: list[object] = [Ours(str(row.run))] if several else []
        line += [count(row.tokens), Ours(str(row.attempt)), row.result]
        line += [_with_change(row.prefill, row.prefill_change), _with_change(row.generation, row.generation_change)]
        line += [
            seconds(row.first_token) if row.first_token is not None else None,
            Ours(row.canaries or "–"),
            Ours(row.constraints or "–"),
        ]
        line += [size(peak) if peak is not None else None for peak in row.peaks]
        if host:
            line.append(size(row.host_peak) if row.host_peak is not None else None)
        if failed:
            line.append(code(row.error, longest=min(ROOM.get().name, 160)) if row.error else None)
        rows.append(line)
    target = words("unknown") if view.target is None else None
    return {
        "questions": [
            [q.name, count(q.tokens) if q.tokens is not None else words("unknown"), q.answer] for q in view.questions
        ],
        "target": target,
        "baseline": [
            [area.name if i == 0 else Ours(""), item.label, shown(item.value)]
            for area in view.baseline
            for i, item in enumerate(item for item in area.items if item.value is not None)
        ],
        "not_looked_at": [_lacking(*group) for group in view.not_looked_at],
        "errors": [
            text for text in view.errors if text not in {line for quote in view.quotes for _, line in quote.lines}
        ],
        "rung_head": head,
        "rungs": rows,
        "set_aside": [
            [prose(title) if title else code(id_), band, Markdown(finalize(because or None))]
            for id_, title, band, because in view.set_aside
        ],
        "changes": [
            [
                Ours(str(c.run)),
                code(c.variable),
                code(c.before),
                code(c.after),
                c.single,
                c.prediction,
                c.kept,
                prose(c.conclusion),
            ]
            for c in view.changes
        ],
        "compared": [
            (
                pair,
                [
                    [prose(row.name), row.before, row.after, row.noise, row.standing, prose(row.note)]
                    for row in pair.rows
                ],
            )
            for pair in view.compared
        ],
        "conflicts": [
            [
                prose(fact),
                shown(believed),
                shown(source),
                shown(other),
                shown(other_source),
            ]
            for fact, believed, source, other, other_source in view.conflicts
        ],
    }


def _with_change(value: float | None, change: float | None) -> Ours | None:
    if value is None:
        return None
    if change is None or abs(change) < 0.005:
        return number(value)
    sign = "+" if change > 0 else ""
    return Ours(f"{number(value)} ({sign}{percent(change)})")


def _lacking(why: Words | None, note: str, areas: Sequence[tuple[Words, Sequence[Words]]]) -> Words:
    """Give one line for all that is not known for one reason."""
    said = [
        words("{area}: {things}", area=name, things=Ours(", ".join(str(label) for label in labels)))
        for name, labels in areas
    ]
    things = Several(tuple(said))
    if note:
        return words("Unknown ({why}): {things}", why=Sentence(note), things=things)
    return (
        words("Unknown ({why}): {things}", why=why, things=things)
        if why
        else words("Not looked at: {things}", things=things)
    )


def tidy(markdown: str) -> str:
    """Take away blank lines that are one too many, but none inside a fence; end with one line feed."""
    lines: list[str] = []
    fenced = ""
    for line in markdown.split("\n"):
        if fenced:
            lines.append(line)
            if line == fenced:
                fenced = ""
            continue
        ticks = line[: len(line) - len(line.lstrip("`"))]
        if len(ticks) >= 3 and "`" not in line[len(ticks) :]:
            fenced = ticks
        kept = line.rstrip()
        if kept or (lines and lines[-1]):
            lines.append(kept)
    return "\n".join(lines).strip("\n") + "\n"


__all__ = ["FORMATS", "Format", "Limits", "render", "table"]
