"""What stands around a log's line: journald and docker JSON, llama.cpp's ``--log-jsonl``, terminal codes, times, levels, prefixes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

MAX_LINE = 65_536
"""Bytes of a line that are looked at; the rest of a longer one is skipped."""

FRAME_LITERALS = ('"fit_memory_breakdown"', '"MESSAGE":[', '"MESSAGE" : [', '"MESSAGE": [')
"""Lines that must be taken out of their frame before their text can be searched."""

Level = Literal["error", "warning", "info", "debug"]

_ANSI = re.compile(r"\x1b(?:\[[0-9;:<=>?]*[ -/]*[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)|[@-Z\\^_=>()#78][0-9A-B]?)")
_CONTROLS = dict.fromkeys((*range(9), *range(11, 13), *range(14, 32), 127))
_MONTHS = "Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_TIME = re.compile(
    r"""^[\s|]*(?:\S{1,40}\s*\|\s)?(?:\[\d{2,7}\]\s)?(?:\([\w.-]{1,40}\spid=\d{1,9}\)\s)?[\[(<]?(?:
        (?P<iso>\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)
      | (?P<llama>\d{1,7}\.\d\d\.\d{3}\.\d{3})\s
      | (?P<kernel>\s{0,8}\d{1,9}\.\d{6})\]
      | (?P<syslog>(?:"""
    + _MONTHS
    + r""")\s{1,2}\d{1,2}\s\d\d:\d\d:\d\d)
      | (?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\s(?P<vllm>\d\d-\d\d\s\d\d:\d\d:\d\d)
      | (?P<clock>\d\d:\d\d:\d\d(?:[.,-]\d{1,6})?)
    )""",
    re.VERBOSE,
)
_SLOG_TIME = re.compile(r"\btime=\"?([0-9T:.+Z-]{19,40})")
_LEVEL = re.compile(
    r"""\blevel=(?P<slog>DEBUG|INFO|WARN|ERROR|FATAL)
      | (?:^|[\s\[(|:<])(?P<word>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL)(?=[\s\])|:>]|$)
      | (?:^|\])\s?\d{1,7}\.\d\d\.\d{3}\.\d{3}\s(?P<letter>[IWED])\s
    """,
    re.VERBOSE,
)
_LEVELS: dict[str, Level] = {
    "DEBUG": "debug", "INFO": "info", "WARN": "warning", "WARNING": "warning", "ERROR": "error", "CRITICAL": "error", "FATAL": "error",
    "D": "debug", "I": "info", "W": "warning", "E": "error", "debug": "debug", "info": "info", "warn": "warning", "warning": "warning",
    "error": "error", "fatal": "error",
}  # fmt: skip
_PRIORITIES: dict[str, Level] = {
    "0": "error",
    "1": "error",
    "2": "error",
    "3": "error",
    "4": "warning",
    "5": "info",
    "6": "info",
    "7": "debug",
}


@dataclass(slots=True)
class Line:
    """One line without its frame."""

    text: str
    time: str | None = None
    level: Level | None = None
    rows: list[dict[str, Any]] = field(default_factory=list)
    """Rows of llama.cpp's memory breakdown, where the line is one."""


def clean(text: str) -> str:
    """Take terminal codes and control characters out."""
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    return text.translate(_CONTROLS) if not text.isprintable() else text


def read_line(raw: bytes) -> list[Line]:
    """Decode a raw line, take it out of its JSON frame, and give the lines within it (a message may hold several)."""
    text = raw[:MAX_LINE].decode("utf-8", "replace")
    stripped = text.lstrip("\ufeff \t")
    if stripped.startswith("{"):
        framed = _unframe(stripped, 3)
        if framed is not None:
            return framed
    return [_plain(text)]


def _plain(text: str) -> Line:
    text = clean(text).strip("\r\n")
    time, level = time_and_level(text)
    return Line(text, time, level)


def time_and_level(text: str) -> tuple[str | None, Level | None]:
    """Find a line's own time and level in its first characters."""
    head = text[:240]
    slog = _SLOG_TIME.search(head)
    if slog is not None:
        time: str | None = slog[1]
    else:
        match = _TIME.match(head)
        time = next((found.strip() for found in match.groups() if found), None) if match is not None else None
    found = _LEVEL.search(head)
    return time, _LEVELS[found[found.lastgroup or 0]] if found is not None else None


def _unframe(text: str, depth: int) -> list[Line] | None:
    """Take the message out of a JSON object; None if this is no frame that is known."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    if entry.get("type") == "fit_memory_breakdown":
        return _breakdown(entry)
    message, time, level = _message(entry)
    if message is None:
        return None
    lines: list[Line] = []
    for part in message.splitlines()[:200]:
        inner = _unframe(part, depth - 1) if depth and part.lstrip().startswith("{") else None
        for line in inner if inner is not None else [_plain(part)]:
            line.time = line.time if line.time is not None and len(line.time) > 12 else (time or line.time)
            line.level = line.level or level
            lines.append(line)
    return lines


def _message(entry: dict[str, Any]) -> tuple[str | None, str | None, Level | None]:
    if "MESSAGE" in entry:  # journald
        message = entry["MESSAGE"]
        if isinstance(message, list):  # how journald writes bytes that are no plain text, terminal codes among them
            message = bytes(b & 255 for b in message[:MAX_LINE] if isinstance(b, int)).decode("utf-8", "replace")
        identifier = entry.get("SYSLOG_IDENTIFIER")
        if identifier == "kernel" and isinstance(message, str) and not message.startswith("kernel:"):
            message = f"kernel: {message}"
        time = entry.get("__REALTIME_TIMESTAMP") or entry.get("_SOURCE_REALTIME_TIMESTAMP")
        return _text(message), _text(time), _PRIORITIES.get(str(entry.get("PRIORITY")))
    if isinstance(entry.get("log"), str) and ("stream" in entry or "time" in entry):  # docker json-file
        return entry["log"], _text(entry.get("time")), None
    for key in (
        "msg",
        "message",
    ):  # llama.cpp --log-jsonl, older llama.cpp --log-format json, and other structured logs
        if isinstance(entry.get(key), str):
            rest = " ".join(
                f"{k}={v}" for k, v in list(entry.items())[:40] if k not in {key, "type", "time"} and _simple(v)
            )
            jsonl = entry.get("type") == "log"
            level = entry.get("level")
            text = entry[key] if jsonl or not rest else f"{entry[key]} {rest}"
            time = entry.get("time", entry.get("timestamp", entry.get("ts")))
            return text, _text(time), _LEVELS.get(level if isinstance(level, str) else "")
    return None, None, None


def _simple(value: object) -> bool:
    return isinstance(value, str | int | float | bool) and len(str(value)) < 400


def _text(value: object) -> str | None:
    if isinstance(value, bool) or value is None:
        return None
    return str(value)[:MAX_LINE] if isinstance(value, str | int | float) else None


def _breakdown(entry: dict[str, Any]) -> list[Line]:
    data = entry.get("data")
    rows = data.get("rows") if isinstance(data, dict) else None
    if not isinstance(rows, list):
        return []
    return [Line("memory breakdown", rows=[row for row in rows[:64] if isinstance(row, dict)])]
