"""Which language the interface speaks: ``--lang``, else the locale; catalogues are gettext's, in ``locales/``."""

from __future__ import annotations

import gettext
import locale
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from probes.evidence.errors import InputError
from probes.evidence.words import looking_up, use_translation, words

LANGUAGES = ("en", "ko")
DOMAIN = "ctxdoctor"
LOCALES = Path(__file__).resolve().parent / "locales"
RULES = Path(__file__).resolve().parents[1] / "rules"


def choose(asked: str | None) -> str:
    """Set the language and give its code. InputError for one that there is no catalogue of."""
    if asked is not None and asked not in LANGUAGES:
        raise InputError(f"--lang is {' or '.join(LANGUAGES)}, not {asked!r}")
    code = asked or _from_locale()
    use_translation(None if code == "en" else catalogue(code))
    return code


def in_force() -> str:
    """Give the code of the language that is spoken now."""
    return "en" if looking_up() is None else "ko"


def spoken(text: str) -> str:
    """Give an English text of ours (an error, a line of progress) in the language in force, where it is known how."""
    look_up = looking_up()
    return text if look_up is None else look_up(text)


def catalogue(code: str) -> Callable[[str], str]:
    """Give the look-up of a language: the compiled catalogue, or the readable one where it is newer or alone (a bare checkout).

    A sentence whose values are in it already (an error, a note of an older run) is told by the form that it was made from.
    """
    from diagnose.locales.sentences import Sentences  # noqa: PLC0415 - not needed in English

    messages = _messages(code)
    whole = messages.get
    made = cache(Sentences(messages, lambda text: whole(text, text)).say)
    return lambda text: whole(text) or made(text)


def _messages(code: str) -> dict[str, str]:
    folder = LOCALES / code / "LC_MESSAGES"
    compiled, readable = folder / f"{DOMAIN}.mo", folder / f"{DOMAIN}.po"
    if _age(compiled) >= _age(readable):
        found = gettext.translation(DOMAIN, LOCALES, languages=[code], fallback=True)
        return {one: said for one, said in getattr(found, "_catalog", {}).items() if one and isinstance(one, str)}
    from diagnose.locales.po import read_po  # noqa: PLC0415 - not needed where the catalogue was compiled

    return read_po(readable.read_text(encoding="utf-8"))


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -1.0


def document_of(rule_id: str, family: str, english: str) -> str:
    """Give a rule's longer text: the page beside it in the language in force, else its docstring."""
    code = in_force()
    if code == "en":
        return english
    path = RULES / family.replace("-", "_") / f"{rule_id.replace('-', '_')}.{code}.md"
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return english


def help_in_words(command: Any, name: str) -> str:
    """Give a command's help in the language in force. ``command``: as the option library made it."""
    if command.help:
        command.help = spoken(command.help)
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text:
            parameter.help = spoken(text)
    # letters of this script are two columns wide
    text = command.get_help(command.make_context(name, [], resilient_parsing=True, terminal_width=62))
    for english, said in HELP_HEADINGS.items():
        text = text.replace(english, str(said))
    return f"{text}\n"


HELP_HEADINGS = {
    "Usage:": words("Usage:"),
    "Options:": words("Options:"),
    "Arguments:": words("Arguments:"),
    "Show this message and exit.": words("Show this message and exit."),
    "[default:": words("[default:"),
}
"""What the option library itself says."""


def _from_locale() -> str:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "ko" if value.lower().startswith("ko") else "en"
    found = (locale.getlocale()[0] or "").lower()
    return "ko" if found.startswith(("ko", "korean")) else "en"
