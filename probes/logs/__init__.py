"""Logs of every server, and pasted reports, to typed events and evidence; nothing here judges.

``read_log`` gives every event of a log, ``collect_log`` a bounded number of them with a summary, ``tail_events`` those of a piece of text,
``LogFollower`` those of a log that grows. ``read_pasted`` reads a bug report, ``read_any`` decides what a file or text is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from .reader import LogFollower, collect_log, read_log, tail_events

if TYPE_CHECKING:
    from .pasted import Kind, kind_of, read_any, read_pasted

__all__ = ["Kind", "LogFollower", "collect_log", "kind_of", "read_any", "read_log", "read_pasted", "tail_events"]


def __getattr__(name: str) -> object:
    """Load the reading of people's prose only for who wants it: its hundreds of phrases take longer to prepare than a session's own work."""
    if name in {"Kind", "kind_of", "read_any", "read_pasted"}:
        return getattr(importlib.import_module(".pasted", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
