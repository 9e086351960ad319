"""Numbers, and the words for ids, as every form of the report shows them."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Final

from probes.evidence.words import Words, words

from .escape import Ours

BANDS: Final[dict[str, Words]] = {
    "disputed": words("disputed"),
    "likely": words("likely"),
    "possible": words("possible"),
    "open": words("open"),
    "unlikely": words("unlikely"),
    "ruled-out": words("ruled out"),
}
SYMPTOMS: Final[dict[str, Words]] = {
    "immediate-oom": words("out of memory at once"),
    "fixed-length-error": words("an error always near the same length"),
    "slow-long-context": words("too slow at length"),
    "forgetting": words("forgets the beginning"),
    "flaky": words("the same run passes and fails"),
}
OUTCOMES: Final[dict[str, Words]] = {
    "passed": words("passed"),
    "failed": words("failed"),
    "refused": words("refused"),
    "died": words("server died"),
    "timeout": words("timed out"),
}
FAMILIES: Final[dict[str, Words]] = {
    "kv-format": words("KV cache format"),
    "backend-allocation": words("backend allocation"),
    "uneven-split": words("uneven split over devices"),
    "spill": words("memory spill"),
    "effective-context": words("effective context"),
    "window-limits": words("limits of the window"),
    "time-and-size-limits": words("limits of time and size"),
    "speed": words("speed"),
    "interference": words("interference"),
}
WHY_UNKNOWN: Final[dict[str, Words]] = {
    "not-asked": words("not asked"),
    "not-run": words("not measured"),
    "failed": words("could not be measured"),
    "not-offered": words("this server or machine does not tell"),
}
PREDICTIONS: Final[dict[str, Words]] = {
    "held": words("held"),
    "failed": words("failed"),
    "cannot-tell": words("cannot tell"),
    "none": words("no prediction"),
}
STANDINGS: Final[dict[str, Words]] = {
    "better": words("better"),
    "worse": words("worse"),
    "same": words("the same, within the noise"),
    "unknown": words("cannot tell"),
}
QUALITIES: Final[dict[str, Words]] = {
    "none": words("costs no quality"),
    "some": words("costs some quality"),
    "much": words("costs much quality"),
}
SOURCES: Final[dict[str, Words]] = {
    "measured": words("measured"),
    "server": words("server"),
    "process": words("command line"),
    "log": words("log"),
    "file": words("file"),
    "machine": words("machine"),
    "user": words("answer"),
    "--command": words("command line"),
    "report": words("pasted report"),
}
COMPONENTS: Final[tuple[tuple[str, Words], ...]] = (
    ("weights_bytes", words("weights")),
    ("kv_bytes", words("KV cache")),
    ("state_bytes", words("recurrent state")),
    ("compute_bytes", words("compute buffers")),
    ("other_bytes", words("other")),
)
TIMES: Final[dict[int, Words]] = {1: words("once"), 2: words("twice in a row"), 3: words("three times in a row")}
YES: Final = words("yes")
NO: Final = words("no")


# Numbers -------------------------------------------------------------------------------------------------------------


def count(value: float) -> Ours:
    """Give a whole number with commas between thousands."""
    return Ours(f"{value:,.0f}")


def size(value: float) -> Ours:
    """Give a size in the largest binary unit that leaves at least one."""
    number, unit = float(value), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(number) < 1024 or unit == "TiB":
            break
        number /= 1024
    text = f"{number:,.0f} {unit}" if unit in {"B", "KiB"} else f"{number:,.2f} {unit}"
    return Ours(text.replace("-", "−"))


def number(value: float) -> Ours:
    """Give a number with three digits that matter."""
    if value == 0:
        return Ours("0")
    if abs(value) >= 100:
        return Ours(f"{value:,.0f}")
    return Ours(f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}")


def seconds(value: float) -> Ours:
    """Give a time in seconds, or minutes where it is long."""
    return Ours(f"{number(value)} s" if value < 180 else f"{value / 60:.1f} min")


def percent(value: float) -> Ours:
    """Give a share as per cent, with its sign where it is negative."""
    return Ours(f"{value * 100:.0f} %".replace("-", "−"))


def moment(value: datetime | None) -> Ours | None:
    """Give a time in UTC to the second."""
    return Ours(value.strftime("%Y-%m-%d %H:%M:%S UTC")) if value is not None else None


def short_length(tokens: int) -> Ours:
    """Give a length as people say it: 8K, 32K; the number where it is no round one."""
    if tokens >= 1024 and tokens % 1024 == 0:
        return Ours(f"{tokens // 1024}K")
    return Ours(f"{tokens / 1000:.1f}k" if tokens >= 10_000 else f"{tokens}")


def plain(value: object) -> str:
    """Give any value of the document as text from outside."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, list | tuple):
        return ", ".join(plain(item) for item in value)
    return str(value)
