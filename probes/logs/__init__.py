"""Logs of every server, and pasted reports, to typed events and evidence; nothing here judges.

``read_log`` gives every event of a log, ``collect_log`` a bounded number of them with a summary, ``tail_events`` those of a piece of text,
``LogFollower`` those of a log that grows. ``read_pasted`` reads a bug report, ``read_any`` decides what a file or text is.
"""

from .pasted import Kind, kind_of, read_any, read_pasted
from .reader import LogFollower, collect_log, read_log, tail_events

__all__ = ["Kind", "LogFollower", "collect_log", "kind_of", "read_any", "read_log", "read_pasted", "tail_events"]
