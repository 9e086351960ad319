"""The text of ``sh -c``: the one simple command in it that starts a server, found and rewritten without touching anything around it.

Quotes, expansions (``$MODEL``), redirections, pipes, ``cd`` and ``export`` stay as they are written: only words that change are written anew.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

MOST_TEXT = 262_144
_OPERATOR = re.compile(r"\|\||&&|;;|\|&|[|;&\n()]")
_REDIRECTION = re.compile(r"(?:\d*|&)(?:>>|>\||>&|<<<|<<|<&|<>|>|<)(?:&?\d+|-)?")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


@dataclass(frozen=True, slots=True)
class Word:
    """A word as the shell reads it, and where it stands in the text."""

    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Simple:
    """One simple command: its words without redirections, and the variables that were set in front of it in the same text."""

    words: tuple[Word, ...]
    environment: dict[str, str]

    @property
    def argv(self) -> list[str]:
        """The words' texts."""
        return [word.text for word in self.words]


def simple_commands(text: str) -> list[Simple]:
    """Take a shell's text apart. Never raises; what is no plain list of commands gives odd ones, in which no server is found."""
    text = text[:MOST_TEXT]
    found: list[Simple] = []
    environment: dict[str, str] = {}
    words: list[Word] = []
    skip_next = False
    at = 0

    def close() -> None:
        nonlocal words
        if words:
            argv = [word.text for word in words]
            settings = argv[1:] if argv[0] == "export" else argv
            if all(_ASSIGNMENT.match(word) for word in settings):
                environment.update((word.partition("=")[0], word.partition("=")[2]) for word in settings)
            else:
                found.append(Simple(tuple(words), dict(environment)))
        words = []

    while at < len(text):
        redirection = _REDIRECTION.match(text, at)
        operator = _OPERATOR.match(text, at)
        if text[at] == "\\" and text[at + 1 : at + 2] == "\n":
            at += 2
        elif redirection is not None:
            # a target that is a word of its own is no word of the command
            skip_next = not re.search(r"(?:&?\d+|-)$", redirection[0])
            at = redirection.end()
        elif operator is not None:
            close()
            at = operator.end()
        elif text[at].isspace():
            at += 1
        elif text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            word, at = _word(text, at)
            if skip_next:
                skip_next = False
            else:
                words.append(word)
    close()
    return found


def _word(text: str, start: int) -> tuple[Word, int]:
    at, quote, told = start, "", []
    while at < len(text):
        character = text[at]
        if quote == "'":
            if character == "'":
                quote = ""
            else:
                told.append(character)
        elif character == "\\" and at + 1 < len(text):
            after = text[at + 1]
            if quote == '"' and after not in '"\\$`\n':
                told.append(character)
            if after != "\n":
                told.append(after)
            at += 1
        elif quote == '"':
            if character == '"':
                quote = ""
            else:
                told.append(character)
        elif character in "'\"":
            quote = character
        elif character.isspace() or character in "|;&()<>":
            break
        else:
            told.append(character)
        at += 1
    return Word("".join(told), start, at), max(at, start + 1)


def server_in(text: str, is_server: Callable[[Sequence[str]], bool]) -> Simple | None:
    """Give the last simple command that starts a server; None where there is none."""
    return next((one for one in reversed(simple_commands(text)) if is_server(one.argv)), None)


def rewritten(text: str, command: Simple, changed: Sequence[str]) -> str:
    """Write the text with other words in one command; words that stay are left as they are written, quotes and expansions with them."""
    old = command.argv
    result, at = [], command.words[0].start
    head = text[:at]
    for kind, first, last, new_first, new_last in SequenceMatcher(
        None, old, list(changed), autojunk=False
    ).get_opcodes():
        if kind == "equal":
            result.append(text[at : command.words[last - 1].end])
            at = command.words[last - 1].end
            continue
        new = " ".join(_quoted(word) for word in changed[new_first:new_last])
        if kind == "insert":
            # behind the word before it; at the front of the command, before the word that follows
            result.append(f" {new}" if first else f"{new} ")
            continue
        result.append(text[at : command.words[first].start])
        result.append(new)
        at = command.words[last - 1].end
        if kind == "delete" and result:
            # the space in front of what is gone
            result[-2] = result[-2].rstrip(" ") if first else result[-2]
    return head + "".join(result) + text[at:]


def _quoted(word: str) -> str:
    match = _ASSIGNMENT.match(word)
    return match.group() + shlex.quote(word[match.end() :]) if match else shlex.quote(word)
