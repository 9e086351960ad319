"""Proves that a report is only what we wrote: it is parsed, and everything that a reader of Markdown or HTML could act on is looked for.

Used at every rendering and by the tests. It knows nothing of how text was escaped; it sees only the result.
"""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST_MARKDOWN: Final = 60_000
LONGEST_HTML: Final = 400 * 1024

BLOCKS: Final = frozenset(
    f"{name}_{end}"
    for name in (
        "heading",
        "paragraph",
        "bullet_list",
        "ordered_list",
        "list_item",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    )
    for end in ("open", "close")
) | {"inline", "fence", "html_block", "hr"}
INLINES: Final = frozenset({"text", "code_inline", "strong_open", "strong_close", "softbreak"})
FENCES: Final = frozenset({"text", "sh", "mermaid", "json", "text chart", "text heat", "text stacks"})
FOLD: Final = re.compile(r"(?:<details>\n<summary>[^<>\n]*</summary>|</details>)\n?")
# What a chart of ours is made of, and no more. mermaid's own parser (10.9.3 and 11.17.2, in Chromium) took and drew charts of these lines.
_MERMAID_LINE = re.compile(
    r'%%\{init: \{"themeVariables": \{"xyChart": \{"plotColorPalette": "#[0-9a-f]{6}(?:, #[0-9a-f]{6})*"\}\}\}\}%%|'
    r'xychart-beta|    title "[^"`]*"|    x-axis "[^"`]*" \["[0-9.]+[Kk]?"(?:, "[0-9.]+[Kk]?")*\]|'
    r'    y-axis "[^"`]*" 0 --> [0-9.]+|    line \[[0-9.]+(?:, [0-9.]+)*\]'
)
ACTIVE: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    ("a mention", re.compile(r"(?<!\w)@[A-Za-z0-9]")),
    ("an e-mail address", re.compile(r"\w@\w")),
    ("a reference to an issue", re.compile(r"#\d|\bGH-\d", re.IGNORECASE)),
    ("a hash of a commit", re.compile(r"\b(?=[0-9]*[a-f])[0-9a-f]{7,40}\b", re.IGNORECASE)),
    ("an address", re.compile(r"[A-Za-z0-9]://|\bwww\.\w|\bmailto:", re.IGNORECASE)),
    ("mathematics", re.compile(r"\$")),
    ("an emoji name", re.compile(r":[A-Za-z_+][\w+-]{0,60}:")),
    ("a footnote or a link", re.compile(r"\[\^|\]\(|\]\[|\[\[")),
    ("HTML", re.compile(r"<[A-Za-z/!?]")),
    ("an open code span or emphasis", re.compile(r"[`*]|(?<!\w)_|_(?!\w)|~~")),
    ("a task's box", re.compile(r"^\[[ xX]\] ")),
)
UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)


@cache
def parser() -> MarkdownIt:
    """Give the parser that reports are checked and turned into HTML with: CommonMark with tables."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - only where a report is drawn

    return MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def check(markdown: str) -> tuple[str, ...]:
    """Say what in this Markdown is active or out of place; nothing means that everything from outside stayed text."""
    problems: list[str] = []
    if len(markdown) > LONGEST_MARKDOWN:
        problems.append(f"longer than {LONGEST_MARKDOWN} characters: {len(markdown)}")
    if UNSEEN.search(markdown):
        problems.append("an invisible character")
    folds = 0
    for token in parser().parse(markdown):
        if token.type not in BLOCKS:
            problems.append(f"a block of type {token.type}: {token.content[:80]!r}")
        elif token.type == "heading_open" and token.markup in {"=", "-"}:
            problems.append("an underlined heading")
        elif token.type == "fence":
            problems += _fence(token.info, token.content)
        elif token.type == "html_block":
            if not FOLD.fullmatch(token.content):
                problems.append(f"HTML: {token.content[:80]!r}")
            folds += 1 if token.content.startswith("<details>") else -1
            if folds not in {0, 1}:
                problems.append("folds that do not match")
        for inline in token.children or ():
            if inline.type not in INLINES:
                problems.append(f"{inline.type}: {(inline.content or token.content)[:80]!r}")
            elif inline.type == "text":
                problems += [f"{what}: {inline.content[:80]!r}" for what, sign in ACTIVE if sign.search(inline.content)]
    if folds:
        problems.append("a fold that stays open")
    return tuple(problems)


def _fence(info: str, content: str) -> list[str]:
    if info not in FENCES:
        return [f"a fence of kind {info[:40]!r}"]
    if info == "mermaid":
        return [f"in mermaid: {line[:80]!r}" for line in content.splitlines() if not _MERMAID_LINE.fullmatch(line)]
    return []


# HTML ----------------------------------------------------------------------------------------------------------------

_TAGS: Final = {
    "html": {"lang"},
    "meta": {"charset", "name", "content", "http-equiv"},
    "svg": {"class", "viewbox", "role", "aria-labelledby", "aria-hidden"},
    "div": {"class", "role", "tabindex", "aria-label"},
    "details": {"open", "class"},
    "figure": {"class"},
    "ul": {"class"},
    "pre": {"class", "tabindex"},
    "th": {"scope", "class"},
    "td": {"class"},
    "title": {"id"},
    "desc": {"id"},
    "g": {"class"},
    "rect": {"class", "x", "y", "width", "height"},
    "circle": {"cx", "cy", "r"},
    "path": {"d"},
    "line": {"class", "x1", "x2", "y1", "y2"},
    "polyline": {"class", "points"},
    "text": {"class", "x", "y", "text-anchor"},
    **{
        name: set()
        for name in (
            "head", "style", "body", "main", "header", "footer", "h1", "h2", "h3", "h4", "p", "li", "ol", "table", "thead", "tbody", "tr",
            "code", "strong", "summary", "hr", "figcaption", "br",
        )
    },
}  # fmt: skip


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self.open: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        allowed = _TAGS.get(tag)
        if allowed is None:
            self.problems.append(f"a tag {tag!r}")
            return
        self.problems += [f"an attribute {name!r} of {tag!r}" for name, _ in attrs if name not in allowed]
        values = dict(attrs)
        if tag == "meta" and values.get("http-equiv"):
            self.policy = values.get("content") or ""
        if tag not in {"meta", "hr", "br"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.problems.append(f"an end tag {tag!r} out of place")

    def handle_comment(self, data: str) -> None:
        self.problems.append(f"a comment: {data[:40]!r}")

    def unknown_decl(self, data: str) -> None:
        self.problems.append(f"a declaration: {data[:40]!r}")

    def handle_pi(self, data: str) -> None:
        self.problems.append(f"an instruction: {data[:40]!r}")


def check_html(html: str) -> tuple[str, ...]:
    """Say what in this page is not of the few tags and attributes that a report is made of; none of them can load or run anything."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    problems = reader.problems
    if reader.open:
        problems.append(f"tags that stay open: {reader.open[:5]}")
    if "default-src 'none'" not in reader.policy:
        problems.append("no content security policy")
    if len(html.encode("utf-8", "surrogatepass")) > LONGEST_HTML:
        problems.append(f"longer than {LONGEST_HTML} bytes")
    return tuple(problems)
