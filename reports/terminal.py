"""The report in a terminal: verdict, window, next command, bands as words, curves as one line. It is whole at 80 columns, without colour and piped."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from probes.evidence.words import Words, words

from .compose import build
from .escape import Ours, Several, clip, visible, width
from .figures import BANDS, count, number, percent, size
from .plots import sparkline

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from .document import CaseDocument
    from .view import Chart, Question, View

_BAND_STYLE: Final = {"likely": "bold red", "disputed": "bold magenta", "possible": "yellow", "open": "cyan"}
_CAUSES: Final = 5


def _how_far(question: Question) -> Words | str:
    """Answer one of the three questions: at the wanted length, and up to where it held where that is shorter."""
    if question.tokens is None:
        return question.answer
    if question.ok:
        return f"{question.answer} ({count(question.tokens)})"
    if question.ok is None:
        return words("up to {tokens}; at the wanted length unknown", tokens=count(question.tokens))
    return words("up to {tokens}, not at the wanted length", tokens=count(question.tokens))


def summary(document: CaseDocument, console: Console) -> None:
    """Print the report of a case on a console."""
    draw(build(document), console)


def text(view: View, *, columns: int = 80) -> str:
    """Give the report as plain text without colour."""
    from rich.console import Console  # noqa: PLC0415 - heavy, and only needed here

    sink = io.StringIO()
    console = Console(
        file=sink, width=columns, color_system=None, force_terminal=False, highlight=False, emoji=False, markup=False
    )
    draw(view, console)
    return "\n".join(line.rstrip() for line in sink.getvalue().splitlines()) + "\n"


def _say(value: Words | str) -> str:
    return visible(str(value))


def draw(view: View, console: Console) -> None:
    """Draw a view on a console. Text from outside is never read as markup."""
    from rich.text import Text  # noqa: PLC0415 - heavy, and only needed here

    def put(value: Words | str, style: str = "", indent: int = 0) -> None:
        console.print(_wrapped(value, style, indent, console), soft_wrap=True)

    def head(title: Words) -> None:
        console.print()
        console.print(Text(str(title), style="bold underline"))

    style = "bold green" if view.good else "bold red" if view.good is False else "bold yellow"
    for i, said in enumerate(view.verdict):
        put(said, style if i == 0 else "")
    put(view.statement)
    if not view.measured_any:
        put(words("Not looked at: {things}", things=Several(tuple(q.name for q in view.questions))), "dim")
    answers = "; ".join(f"{question.name} {_how_far(question)}" for question in view.questions)
    if view.measured_any:
        put(answers, "dim")

    head(words("Next test"))
    test = view.next_test
    if test is None:
        put(view.no_next_test)
    else:
        put(test.lead, "bold")
        if test.command:
            # On lines of its own and unbroken: it is there to be copied.
            console.print()
            console.print(Text(_say(test.command), style="cyan"), soft_wrap=True)
            console.print()
        for each in test.how:
            put(each, indent=2)
        if test.keep:
            put(words("Keep still: {things}", things=Ours("; ".join(test.keep))), indent=2)
        for expected_of, expected in test.expects:
            put(words("Expect, if it is {cause}: {expected}", cause=expected_of, expected=expected), indent=2)
        if test.reason:
            put(words("Why this one: {reason}", reason=test.reason), indent=2)
        put(words("Cost: {cost}", cost=test.cost), indent=2)
        if test.undo:
            put(words("To undo: {undo}", undo=test.undo), indent=2)

    if view.causes:
        head(words("Causes"))
        bands = {str(name): id_ for id_, name in BANDS.items()}
        wide = max(width(str(cause.band)) for cause in view.causes[:_CAUSES])
        for cause in view.causes[:_CAUSES]:
            band = str(cause.band)
            title = f"{visible(cause.title)} ({visible(cause.id)})" if cause.title else visible(cause.id)
            lines = wrap(title, max(console.width - wide - 2, 20))
            label = (band + " " * (wide - width(band)), _BAND_STYLE.get(bands.get(band, ""), ""))
            console.print(Text.assemble(label, "  ", ("\n" + " " * (wide + 2)).join(lines)), soft_wrap=True)
        if len(view.causes) > _CAUSES:
            put(words("and {number} more", number=Ours(str(len(view.causes) - _CAUSES))), "dim")

    if view.charts:
        head(words("By input length"))
        for chart in view.charts:
            _curve(chart, console)

    failed = [row for row in view.rungs if not row.passed]
    if failed:
        head(words("What failed"))
        for row in failed[:4]:
            put(
                words(
                    "{tokens} tokens: {result}. {error}",
                    tokens=count(row.tokens),
                    result=row.result,
                    error=clip(visible(row.error), 240),
                )
            )
        if len(failed) > 4:
            put(words("and {number} more", number=Ours(str(len(failed) - 4))), "dim")

    for note in view.notes:
        console.print()
        put(note)
    console.print()
    put(
        words(
            "Sent: {requests} requests, {prompt} prompt tokens, {generated} generated tokens. Case {case}.",
            requests=view.sent[0].value,
            prompt=view.sent[1].value,
            generated=view.sent[2].value,
            case=view.case_id,
        ),
        "dim",
    )


def _curve(chart: Chart, console: Console) -> None:
    from rich.text import Text  # noqa: PLC0415 - heavy, and only needed here

    first, last = count(chart.x[0]), count(chart.x[-1])
    console.print(Text(f"{chart.title}  {first} … {last}", style="dim"), soft_wrap=True)
    for series in chart.series:
        known = [v for v in series.values if v is not None]
        if not known:
            continue
        ends = f"{_figure(chart, known[0])} → {_figure(chart, known[-1])}"
        if chart.kind == "speed" and known[0]:
            ends += f"  ({percent(known[-1] / known[0] - 1)})"
        if series.limit and chart.kind == "size":
            ends += f"  / {size(series.limit)}"
        # A terminal that cannot show blocks still has both ends as numbers.
        curve = sparkline(series.values) if "utf" in (console.encoding or "utf").lower() else ""
        room = console.width - len(curve) - len(ends) - 6
        name = f"  {clip(_say(series.name), max(room, 12))}" if len(chart.series) > 1 else ""
        console.print(Text(f"  {curve}  {ends}{name}"), soft_wrap=True)
    if chart.mark is not None and chart.mark.shape != "flat":
        console.print(_wrapped(chart.mark.words, "", 2, console), soft_wrap=True)


def _figure(chart: Chart, value: float) -> str:
    return f"{number(value)} tok/s" if chart.kind == "speed" else str(chart.text(value))


def _wrapped(value: Words | str, style: str, indent: int, console: Console) -> Text:
    """Break a text between words at the console's width, with an indent; a word is never broken."""
    from rich.text import Text as RichText  # noqa: PLC0415 - heavy, and only needed here

    lead = " " * indent
    return RichText("\n".join(lead + line for line in wrap(_say(value), max(console.width, 30) - indent)), style=style)


def wrap(text: str, columns: int) -> list[str]:
    """Break a text between words into lines of at most so many columns; a word that is longer stays whole."""
    lines: list[str] = []
    line, used = "", 0
    for word in text.split():
        wide = width(word)
        if line and used + 1 + wide > columns:
            lines.append(line)
            line, used = word, wide
        else:
            line, used = (f"{line} {word}", used + 1 + wide) if line else (word, wide)
    return [*lines, line]
