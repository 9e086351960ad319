"""One self-contained HTML page, made from the report's own Markdown: charts drawn where the Markdown has them, nothing loaded, nothing run."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from probes.evidence.words import words

from . import plots
from .check import FOLD, check_html, parser
from .escape import visible
from .render import TEMPLATES

if TYPE_CHECKING:
    from markdown_it.token import Token

    from .view import View


@cache
def _style() -> tuple[str, str]:
    """Give the style sheet and its hash for the policy."""
    style = (TEMPLATES / "page.css").read_text(encoding="utf-8").strip()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return style, f"sha256-{digest}"


def page(markdown: str, view: View, *, lang: str = "en") -> str:
    """Give the page. What is not of the few tags of a report is shown as text; the result is checked."""
    style, digest = _style()
    body = _body(markdown, view)
    title = visible(str(view.verdict[0]))
    policy = f"default-src 'none'; style-src '{digest}'; base-uri 'none'; form-action 'none'"
    html = (
        f'<!DOCTYPE html>\n<html lang="{escape(lang)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
    if check_html(html):
        # Nothing known leads here; the text is given all the same, where nothing can act.
        plain = f"<pre>{escape(visible(markdown, lines=True))}</pre>"
        html = html.replace(body, plain)
    return html


def _body(markdown: str, view: View) -> str:
    drawn = [chart for chart in view.charts if plots.mermaid(chart) is not None]
    charts = iter(drawn)
    md = parser()
    tokens = md.parse(markdown)
    out: list[str] = []
    numeric: set[int] = set()
    column = 0
    # A token that is not drawn here is drawn by the parser's own renderer, which escapes.
    for at, token in enumerate(tokens):
        match token.type:
            case "fence":
                out.append(_fence(token, view, charts))
            case "html_block":
                out.append(_fold(token.content))
            case "table_open":
                numeric = _columns(tokens, at)
                out.append(
                    f'<div class="table" role="region" tabindex="0" aria-label="{escape(str(words("table")))}"><table>\n'
                )
            case "table_close":
                out.append("</table></div>\n")
            case "tr_open":
                column = 0
                out.append("<tr>")
            case "th_open" | "td_open":
                out.append(_cell(token, tokens[at + 1].content, column in numeric))
                column += 1
            case "inline":
                out.append(_inline(token.children or ()))
            case _:
                out.append(md.renderer.render([token], md.options, {}))
    return "".join(out)


_NUMERIC = re.compile(r"[\d,.−+ ()%]+(?:[KMGT]?i?B|s|min)?|–|\d+/\d+")
_LONG = 40


def _columns(tokens: Sequence[Token], start: int) -> set[int]:
    """Find the columns of the table at ``start`` that hold nothing but numbers."""
    numeric: dict[int, bool] = {}
    column = 0
    for at in range(start, len(tokens)):
        kind = tokens[at].type
        if kind == "table_close":
            break
        if kind == "tr_open":
            column = 0
        elif kind == "td_open":
            numeric[column] = numeric.get(column, True) and bool(_NUMERIC.fullmatch(tokens[at + 1].content))
            column += 1
    return {column for column, only in numeric.items() if only}


def _cell(token: Token, content: str, numeric: bool) -> str:
    kinds = " ".join(name for name, is_so in (("number", numeric), ("long", len(content) > _LONG)) if is_so)
    scope = ' scope="col"' if token.tag == "th" else ""
    return f'<{token.tag}{scope} class="{kinds}">' if kinds else f"<{token.tag}{scope}>"


_UNIT = re.compile(r"(?<=\d) (?=(?:%|[KMGT]iB|B|s|min|tok/s)(?![A-Za-z]))")


def _joined(text: str) -> str:
    """Keep a number and its unit on one line."""
    return _UNIT.sub("\u00a0", text)


def _inline(children: Sequence[Token]) -> str:
    out = []
    for child in children:
        match child.type:
            case "text":
                out.append(_joined(escape(child.content, quote=False)))
            case "code_inline":
                out.append(f"<code>{escape(child.content, quote=False)}</code>")
            case "softbreak" | "hardbreak":
                out.append("\n")
            case "strong_open":
                out.append("<strong>")
            case "strong_close":
                out.append("</strong>")
            case _:
                out.append(escape(child.content or child.markup, quote=False))
    return "".join(out)


def _fold(content: str) -> str:
    match = FOLD.fullmatch(content)
    if match is None:
        return f"<p>{escape(content)}</p>"
    # Open here: a page is read and printed whole.
    return content.replace("<details>", "<details open>")


def _fence(token: Token, view: View, charts: Any) -> str:
    info = token.info.strip()
    if info == "mermaid":
        chart = next(charts, None)
        if chart is None:
            return ""
        notes = [str(chart.mark.words)] if chart.mark is not None else []
        if chart.kind == "size" and any(series.limit for series in chart.series):
            notes.append(str(words("Broken lines: the size of each device.")))
        if chart.kind == "share" and any(series.limit for series in chart.series):
            notes.append(str(words("Broken line: the criterion.")))
        caption = "".join(f"<figcaption>{_joined(escape(note))}</figcaption>" for note in notes)
        return f'<figure class="plot">{plots.svg(chart)}{caption}</figure>\n'
    kind = ' class="command"' if info == "sh" else ""
    text = f'<pre tabindex="0"{kind}><code>{escape(token.content, quote=False)}</code></pre>\n'
    if info == "text heat" and view.heat is not None:
        return f'<figure class="plot">{plots.svg_heat(view.heat)}</figure>\n' + _as_text(text)
    if info == "text stacks" and view.stacks:
        return f'<figure class="plot">{plots.svg_stacks(view.stacks)}</figure>\n' + _as_text(text)
    if info == "text chart":
        return _as_text(text)
    return text


def _as_text(text: str) -> str:
    return f'<details class="figures"><summary>{escape(str(words("The same in figures")))}</summary>{text}</details>\n'
