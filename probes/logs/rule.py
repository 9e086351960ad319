"""What a dialect is made of: rules that turn one line into events, declared by the names of the pattern's groups."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from probes.evidence.events import EventKind, LogEvent

Fields = dict[str, Any]
Kind = EventKind | Literal["attach"]
"""``attach``: no event of its own; its fields belong to the failure a few lines before."""
Found = list[tuple[Kind, Fields]]
Make = Callable[[re.Match[str], Fields], Found]

_KIB = {
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZES = ("size", "free", "total", "limit")
_INTEGERS = frozenset(
    [
        "tokens",
        "of",
        "kept",
        "limit",
        "count",
        "layers",
        "streams",
        "slot",
        "task",
        "code",
        "status",
        "pid",
        "accepted",
        "last_line",
    ]
)
_FLOATS = frozenset(["seconds", "tps", "similarity"])
_FLAGS = frozenset(["on", "unified"])
_TRUE = frozenset(["1", "true", "on", "enabled", "yes", "t"])
_LARGEST = 2**62
_ENDING = re.compile(r"\d+$")
_HUMAN = re.compile(r"^\s*([\d.,]+)\s*([KMGT]?)(i?)B?(?:ytes)?\s*$", re.IGNORECASE)
_GO = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s|µs|us|ns)")
_GO_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "us": 1e-6, "ns": 1e-9}

FAILURES: frozenset[str] = frozenset(
    [
        "alloc-failed", "load-failed", "decode-failed", "kernel-error", "crash", "device-lost", "watchdog", "oom-killer", "corrupt-output",
        "refused", "truncated", "pool-full", "hardware", "timeout", "spill", "config-ignored", "generic-error",
    ]
)  # fmt: skip
"""Kinds that are kept first when a log has more events than fit."""

LOADING: frozenset[str] = frozenset(
    [
        "program", "command", "loading", "model-info", "device-found", "buffer", "layers-offloaded", "kv-cache", "kv-pool", "window",
        "window-capped", "slots", "flash-attention", "pipeline-copies", "fit", "rope", "projector", "model-loaded", "placement", "graph",
    ]
)  # fmt: skip
"""Kinds that describe one load of a model: the same again after another load is news, not a repeat."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line. ``literals``: at least one of them is in each line that the pattern can match (they steer the fast search)."""

    event: EventKind
    literals: tuple[str, ...]
    text: str
    """The pattern as text: compiled when the first line asks for it, for most logs ask for few."""
    flags: int = 0
    fixed: Mapping[str, Any] = field(default_factory=dict)
    make: Make | None = None
    level: str | None = None
    dialect: str = ""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled pattern."""
        return _compiled(self.text, self.flags)

    def events(self, line: str) -> Found:
        """Give the events of a line: kind and fields; empty if it is not such a line."""
        match = self.pattern.search(line)
        if match is None:
            return []
        fields = {**self.fixed, **read_groups(match)}
        if self.make is not None:
            return self.make(match, fields)
        return [(self.event, fields)]


def rule(
    event: EventKind,
    literals: str | tuple[str, ...],
    pattern: str | None = None,
    *,
    make: Make | None = None,
    level: str | None = None,
    flags: int = 0,
    **fixed: Any,
) -> Rule:
    """Declare a rule. Without a pattern, each literal as it stands is enough."""
    words = (literals,) if isinstance(literals, str) else literals
    text = pattern if pattern is not None else "|".join(re.escape(word) for word in words)
    return Rule(event=event, literals=words, text=text, flags=int(flags), fixed=fixed, make=make, level=level)


@cache
def _compiled(text: str, flags: int) -> re.Pattern[str]:
    return re.compile(text, flags)


def read_groups(match: re.Match[str]) -> Fields:
    """Turn named groups into fields: ``size_mib`` → ``size_bytes``, ``seconds_ms`` → ``seconds``, ``tokens2`` → ``tokens``.

    A group that did not take part, or whose number makes no sense, gives nothing.
    """
    fields: Fields = {}
    for group, text in match.groupdict().items():
        if text is None:
            continue
        name = _ENDING.sub("", group)
        key, value = _convert(name, text.strip())
        if value is not None and fields.get(key) is None:
            fields[key] = value
    return fields


def _convert(name: str, text: str) -> tuple[str, Any]:
    if name in _INTEGERS:
        return name, integer(text)
    if name in _FLOATS:
        return name, number(text)
    if name in _FLAGS:
        return name, text.strip("'\"").lower() in _TRUE
    head, _, unit = name.rpartition("_")
    if head in _SIZES:
        return f"{head}_bytes", human_bytes(text) if unit == "h" else size_bytes(text, unit)
    if head == "seconds":
        if unit == "go":
            return "seconds", go_seconds(text)
        value = number(text)
        return "seconds", None if value is None else value * {"ms": 1e-3, "us": 1e-6, "ns": 1e-9, "m": 60.0}.get(
            unit, 1.0
        )
    if head in _INTEGERS and unit == "k":
        value = number(text)
        return head, None if value is None else round(value * 1024)
    if name == "percent":
        value = number(text)
        return "value", None if value is None else value / 100
    if name == "number":
        return "value", number(text)
    return name, text[:500]


def integer(text: str) -> int | None:
    """Read a whole number, thousands commas allowed; None if it is none or absurdly large."""
    digits = text.replace(",", "").replace("_", "")
    if len(digits) > 20:
        return None
    try:
        value = int(digits)
    except ValueError:
        whole = number(text)
        if whole is None or whole != int(whole):
            return None
        value = int(whole)
    return value if abs(value) < _LARGEST else None


def number(text: str) -> float | None:
    """Read a finite number; None if it is none."""
    if len(text) > 40:
        return None
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and abs(value) < _LARGEST else None


def size_bytes(text: str, unit: str) -> int | None:
    """Read a size in the unit of the name: b, kib, mib, gib, kb, mb, gb."""
    value = number(text)
    if value is None:
        return None
    size = value * _KIB.get(unit.lower(), 1)
    return round(size) if abs(size) < _LARGEST else None


def human_bytes(text: str) -> int | None:
    """Read ``12.3 GiB``, ``12.3GB``, ``40.0G``. A bare K/M/G is taken as binary, as Go's and nvidia's short forms mean it."""
    match = _HUMAN.match(text)
    if match is None:
        return None
    letter = match[2].lower()
    binary = bool(match[3]) or not text.strip().lower().endswith("b")
    return size_bytes(match[1], f"{letter}{'i' if binary and letter else ''}b" if letter else "b")


def go_seconds(text: str) -> float | None:
    """Read a Go duration: ``1m2.5s``, ``350ms``, ``2h0m0s``."""
    parts = _GO.findall(text[:60])
    if not parts:
        return None
    total = 0.0
    for amount, unit in parts:
        value = number(amount)
        if value is None:
            return None
        total += value * _GO_SECONDS[unit]
    return total


EVENT_FIELDS = frozenset(LogEvent.model_fields)
