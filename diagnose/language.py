"""Which language the interface speaks: ``--lang``, else the locale; catalogues are gettext's, in ``locales/``."""

from __future__ import annotations

import gettext
import locale
import os
from collections.abc import Callable
from pathlib import Path

from probes.evidence.errors import InputError
from probes.evidence.words import looking_up, use_translation

LANGUAGES = ("en", "ko")
DOMAIN = "ctxdoctor"
LOCALES = Path(__file__).resolve().parent / "locales"


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


def catalogue(code: str) -> Callable[[str], str]:
    """Give the look-up of a language: the compiled catalogue, or the readable one where it is newer or alone (a bare checkout)."""
    folder = LOCALES / code / "LC_MESSAGES"
    compiled, readable = folder / f"{DOMAIN}.mo", folder / f"{DOMAIN}.po"
    if _age(compiled) < _age(readable):
        from diagnose.locales.po import read_po  # noqa: PLC0415 - not needed where the catalogue was compiled

        messages = read_po(readable.read_text(encoding="utf-8"))
        return lambda text: messages.get(text, text)
    return gettext.translation(DOMAIN, LOCALES, languages=[code], fallback=True).gettext


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return -1.0


def _from_locale() -> str:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "ko" if value.lower().startswith("ko") else "en"
    found = (locale.getlocale()[0] or "").lower()
    return "ko" if found.startswith(("ko", "korean")) else "en"
