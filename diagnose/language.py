"""Which language the interface speaks: ``--lang``, else the locale; catalogues are gettext's, in ``locales/``."""

from __future__ import annotations

import gettext
import locale
import os
from pathlib import Path

from probes.evidence.errors import InputError
from probes.evidence.words import use_translation

LANGUAGES = ("en", "ko")
DOMAIN = "ctxdoctor"
LOCALES = Path(__file__).resolve().parent / "locales"


def choose(asked: str | None) -> str:
    """Set the language and give its code. InputError for one that there is no catalogue of."""
    if asked is not None and asked not in LANGUAGES:
        raise InputError(f"--lang is {' or '.join(LANGUAGES)}, not {asked!r}")
    code = asked or _from_locale()
    if code == "en":
        use_translation(None)
        return code
    catalogue = gettext.translation(DOMAIN, LOCALES, languages=[code], fallback=True)
    use_translation(catalogue.gettext)
    return code


def _from_locale() -> str:
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        value = os.environ.get(name, "")
        if value:
            return "ko" if value.lower().startswith("ko") else "en"
    found = (locale.getlocale()[0] or "").lower()
    return "ko" if found.startswith(("ko", "korean")) else "en"
