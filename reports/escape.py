"""Text from outside stays text: how a string is put into Markdown so that no reader of Markdown makes anything of it.

Every expression of a Markdown template goes through :func:`finalize`. Only what is already :class:`Markdown` passes as it is; everything else
is treated as text from outside. There are three places for it:

- :func:`code`, a code span: GitHub and its kin link nothing inside one (mentions, issues, hashes, addresses);
- :func:`prose`, a sentence: words of letters stay words, any word with a sign that could mean something becomes a code span;
- :func:`fence`, a block of lines, fenced by more backticks than it holds.

Control, direction and other invisible characters are shown by their number: what is read is what is there.
"""

from __future__ import annotations

import re
import unicodedata
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from probes.evidence.words import Words


@dataclass(frozen=True, slots=True)
class Room:
    """How many characters one text may take, by where it stands."""

    name: int = 300
    sentence: int = 1_500
    line: int = 500
    command: int = 4_000
    lines: int = 200


ROOM: Final[ContextVar[Room]] = ContextVar("ctxdoctor_report_room", default=Room())  # noqa: B039 - immutable
"""The room in force while a report is drawn; a report that is too long is drawn again with less."""


class Markdown(str):
    """Markdown that was made here. Only this module and the templates make it."""

    __slots__ = ()


class Ours(str):
    """Plain text that was made here, of digits, units and letters: it needs no escape in Markdown."""

    __slots__ = ()


class Sentence(str):
    """A sentence from outside, as a value within one of ours: it is shown as prose, not as a name."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Several:
    """Several values within one of our sentences, each shown as it would be alone."""

    values: tuple[object, ...]

    def __str__(self) -> str:
        """Give them as plain text."""
        return "; ".join(str(value) for value in self.values)


_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
# Everything else is looked at one by one; this range is what English and Korean reports are made of.
_ODD = re.compile(
    r"[^\t\n\x20-\x7e\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u3001-\u3029\u3130-\u3163\uac00-\ud7a3]"
)
_STEERING = re.compile(r"[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_MARKS_IN_A_ROW = 3
_NAMED = {0x00: "NUL", 0x1B: "ESC"}


def plain_json(text: str) -> str:
    """Write a JSON document so that a terminal shows it as it is: what steers a terminal or turns text around is escaped by its number.

    It stays the same JSON value: JSON has such characters only within strings, and there an escape means the character.
    """
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def visible(text: str, *, lines: bool = False) -> str:
    """Show what cannot be seen: control, direction, zero-width and unassigned characters by their number; terminal codes go.

    ``lines`` keeps line feeds; otherwise every white space becomes one blank.
    """
    text = _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    if _ODD.search(text):
        text = _show_odd(text)
    if lines:
        return text.replace("\t", "    ")
    return " ".join(text.split())


def _show_odd(text: str) -> str:
    out: list[str] = []
    marks = 0
    for char in text:
        category = unicodedata.category(char)
        if category in {"Mn", "Me"}:
            marks += 1
            # A pile of marks climbs over the neighbouring lines.
            if marks <= _MARKS_IN_A_ROW:
                out.append(char)
            continue
        marks = 0
        if char in "\t\n":
            out.append(char)
        elif char in _BLANK_LETTERS or category in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}:
            out.append(f"⟨{_NAMED.get(ord(char), f'U+{ord(char):04X}')}⟩")
        elif category == "Zs":
            out.append(" ")
        else:
            out.append(char)
    return "".join(out)


def clip(text: str, longest: int) -> str:
    """Cut a text to at most ``longest`` characters, and say that it was cut."""
    if len(text) <= longest:
        return text
    note = f" … (+{len(text) - longest})"
    return text[: max(0, longest - len(note))] + note


def _ticks(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    return "`" * (longest + 1)


def code(value: object, *, longest: int | None = None) -> Markdown:
    """Give a code span with exactly this text on one line; an empty text is a dash."""
    text = clip(visible(str(value)), longest or ROOM.get().name)
    if not text.strip():
        return Markdown("–")
    return Markdown(_span(text))


def _span(text: str) -> str:
    ticks = _ticks(text)
    # A blank on both sides is taken off again; it is needed where a backtick or a blank stands at an end.
    pad = " " if text[0] in "` " or text[-1] in "` " else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"


_RISKY = re.compile(
    r"""[\\`*_{}\[\]<>~|&$@#^]        # signs of Markdown, HTML, mathematics, mentions, issues
      | ://  | www\. | mailto:        # addresses
      | :[\w+-]+: | ^[!%]\w            # emoji names; references of other trackers
      | \bGH-\d | ^--?[A-Za-z]        # references; options of a command
      | \b[0-9a-f]{7,64}\b            # hashes
      | \w\.[A-Za-z]{2,}              # names of hosts and files
    """,
    re.VERBOSE | re.IGNORECASE,
)
_STARTS_BLOCK = re.compile(r"^(?:[-+=:]+|\d{1,9}[.)])$")
_NUMBER = re.compile(r"^[(]?[-+−]?\d[\d,.]*(?:[%KMG]i?B?)?[),.;:]*$")
_TRAILING = re.compile(r"^(.+?)([.,;:!?)]*)$", re.DOTALL)
_PARTICLE = re.compile(r"([\x21-\x7e]+)([가-힣]{1,6})")
"""A name with the Korean particle or counter that follows it: that is a word of the sentence, not of the name."""
_IN_TICKS = re.compile(r"`([^`]+)`")


def prose(value: object, *, longest: int | None = None) -> Markdown:
    """Give a sentence on one line in which nothing is active. Words between backticks, and words that could mean something, become code."""
    text = clip(visible(str(value)), longest or ROOM.get().sentence)
    pieces: list[str] = []
    at = 0
    for match in _IN_TICKS.finditer(text):
        pieces += _words_of(text[at : match.start()])
        pieces.append(_glue(text, match.start()) + _span(match.group(1).strip() or "–"))
        at = match.end()
        while at < len(text) and text[at] in ".,;:!?)":
            pieces[-1] += text[at]
            at += 1
    pieces += _words_of(text[at:])
    if pieces and _STARTS_BLOCK.match(pieces[0]):
        pieces[0] = _span(pieces[0])
    return Markdown(" ".join(pieces) if pieces else "–")


def _glue(text: str, start: int) -> str:
    return "(" if start and text[start - 1] == "(" else ""


def _words_of(text: str) -> list[str]:
    found: list[str] = []
    risky: list[str] = []

    def close() -> None:
        if risky:
            whole = " ".join(risky)
            match = _TRAILING.match(whole)
            body, tail = (match.group(1), match.group(2)) if match else (whole, "")
            particle = _PARTICLE.fullmatch(body)
            if particle is not None:
                body, tail = particle.group(1), particle.group(2) + tail
            if tail.endswith(")") and "(" in body:
                body, tail = whole, ""
            found.append(_span(body) + tail)
            risky.clear()

    for word in text.split():
        if word == "(":
            continue
        if _RISKY.search(word) and not _NUMBER.match(word):
            risky.append(word)
        else:
            close()
            found.append(word)
    close()
    return found


def cell(value: Markdown) -> Markdown:
    """Give Markdown that may stand in a table: its pipes are escaped, also inside code, where a table wants it so.

    An odd number of backslashes must stand before each pipe, or one reader takes the pipe for the end of the cell and another does not.
    """

    def escaped(match: re.Match[str]) -> str:
        slashes = len(match.group(1))
        return "\\" * (slashes + 1 if slashes % 2 == 0 else slashes + 2) + "|"

    return Markdown(re.sub(r"(\\*)\|", escaped, value.replace("\n", " ")))


def fence(text: str, info: str = "text", *, longest_line: int | None = None, whole: bool = False) -> Markdown:
    """Give a fenced block of lines. ``info`` is ours, never from outside; ``whole`` cuts nothing (a drawing of ours)."""
    shown = visible(text, lines=True)
    room = ROOM.get()
    lines = [line.rstrip() if whole else clip(line.rstrip(), longest_line or room.line) for line in shown.split("\n")]
    if len(lines) > room.lines and not whole:
        lines = [*lines[: room.lines], f"… (+{len(lines) - room.lines})"]
    while lines and not lines[0]:
        lines.pop(0)
    while lines and not lines[-1]:
        lines.pop()
    body = "\n".join(lines)
    ticks = _ticks(body)
    ticks = "`" * max(3, len(ticks))
    return Markdown(f"{ticks}{info}\n{body}\n{ticks}")


def finalize(value: object) -> str:
    """Turn what a template's expression gave into Markdown; Jinja calls it for each expression."""
    if isinstance(value, Markdown | Ours):
        return value
    if isinstance(value, Words):
        return sentence(value)
    if value is None:
        return "–"
    if isinstance(value, int | float):
        return str(value)
    return prose(value)


def sentence(said: Words) -> Markdown:
    """Give a message of ours as Markdown. The message is trusted, its values are not: a string among them becomes a code span."""
    return Markdown(str(Words(said.text, {name: _safe(value) for name, value in said.values.items()})))


def _safe(value: object) -> object:
    if isinstance(value, Markdown | Ours | int | float) or value is None:
        return value
    if isinstance(value, Several):
        return Markdown("; ".join(str(_safe(one)) for one in value.values))
    if isinstance(value, Sentence):
        return prose(value)
    return sentence(value) if isinstance(value, Words) else code(value)


def width(text: str) -> int:
    """Count the columns that a text takes: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 0 if unicodedata.combining(char) else 1 for char in text
    )
