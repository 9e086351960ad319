"""Logs of every server, and pasted reports, to typed events: one dialect a file; nothing here judges."""

from .reader import LogFollower, collect_log, read_log, tail_events

__all__ = ["LogFollower", "collect_log", "read_log", "tail_events"]
