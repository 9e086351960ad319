"""Sizes and lengths as people write them: ``16GiB``, ``500 MB``, ``8k``, ``128K``. One place, so that every option reads them alike."""

from __future__ import annotations

import re

from .errors import InputError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_UNITS = {
    "": 1,
    "B": 1,
    "KIB": KIB,
    "MIB": MIB,
    "GIB": GIB,
    "TIB": 1024**4,
    "K": KIB,
    "M": MIB,
    "G": GIB,
    "T": 1024**4,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
}
"""A bare letter is binary, as llama-server and Docker read it; ``GB`` is decimal, as the word says."""

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]{0,3})")
_LENGTH = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kKmM]?)")
_MOST_BYTES = 1 << 62
LEAST_MEMORY = 64 * MIB
"""Fewer bytes than this, written without a unit, are a forgotten unit."""
_MOST_TOKENS = 1 << 40


def parse_size(text: str | float) -> int:
    """Read a size in bytes: a number, or a number with KiB, MiB, GiB, TiB or KB, MB, GB, TB. InputError if it is none."""
    if isinstance(text, bool):
        raise InputError("a size is a number with a unit, such as 16GiB or 500MB")
    if isinstance(text, int):
        text = str(text)
    elif isinstance(text, float):
        text = f"{text:f}".rstrip("0").rstrip(".") if abs(text) < 1e18 else "?"
    match = _SIZE.fullmatch(text.strip().replace("_", ""))
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise InputError(f"cannot read {_shown(text)} as a size; write it like 16GiB, 500MB or 1073741824")
    value = _times(match[1], unit)
    if value > _MOST_BYTES:
        raise InputError(f"{_shown(text)} is larger than any memory; write a size like 16GiB")
    return value


def parse_memory(text: str | float, option: str, *, nothing: bool = True) -> int:
    """Read an amount of memory that ``option`` gives. InputError where the unit was forgotten: no device and no margin has 24 bytes.

    ``nothing``: whether 0 is an answer, as it is for a margin.
    """
    size = parse_size(text)
    plain = str(text).strip()
    if size == 0 and nothing:
        return 0
    if size < LEAST_MEMORY and (plain[-1:].isdigit() or re.search(r"[0-9]\s*[bB]$", plain)):
        digits = plain.rstrip("bB ") if size else "24"
        raise InputError(
            f"{option} {_shown(plain)} would be {show_size(size)}; write the unit, such as {digits}GiB or {digits}MiB"
        )
    return size


def parse_length(text: str | float) -> int:
    """Read a length in tokens: 8192, 8k, 128K or 1M, where k is 1,024 and M is 1,048,576. InputError if it is none."""
    if isinstance(text, bool):
        raise InputError("a length is a number of tokens, such as 8192 or 128k")
    if isinstance(text, int):
        text = str(text)
    elif isinstance(text, float):
        text = f"{text:f}".rstrip("0").rstrip(".") if abs(text) < 1e18 else "?"
    plain = text.strip().replace("_", "")
    if re.fullmatch(r"[0-9]{1,3}(,[0-9]{3})+", plain):
        plain = plain.replace(",", "")
    match = _LENGTH.fullmatch(plain)
    if match is None:
        raise InputError(f"cannot read {_shown(text)} as a length in tokens; write it like 8192, 8k or 128K")
    unit = {"": 1, "k": KIB, "m": KIB * KIB}[match[2].lower()]
    value = _times(match[1], unit)
    if unit == 1 and "." in match[1] and float(match[1]) != value:
        raise InputError(f"{_shown(text)} is not a whole number of tokens; write it like 8192, 8k or 128K")
    if value > _MOST_TOKENS:
        raise InputError(f"{_shown(text)} tokens are more than any model can take; write a length like 128k")
    return value


def show_size(size: int) -> str:
    """Write a size for people: GiB or MiB with two digits after the point, bytes below one KiB."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if abs(size) >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size} B"


def _times(number: str, unit: int) -> int:
    # Integers only: 0.1 GiB as a float product would differ between readers of the same text.
    whole, _, part = number.partition(".")
    return int(whole) * unit + (int(part) * unit // 10 ** len(part) if part else 0)


def _shown(text: str) -> str:
    cut = text if len(text) <= 40 else text[:39] + "…"
    return repr(cut)
