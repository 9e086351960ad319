"""A log that goes over several starts of a server: what an earlier start had placed was given back when it ended."""

from __future__ import annotations

from collections.abc import Sequence

from probes.evidence.events import LogEvent

PLACED = frozenset({"buffer", "kv-cache", "kv-pool", "projector", "placement"})
"""What a start says that it holds from then on."""


def of_last_start(events: Sequence[LogEvent]) -> list[LogEvent]:
    """Leave out what earlier starts of the same program placed, where a later start placed something itself.

    A start is told by the program's name and version, which servers print once as they begin. A last start that did not come as far leaves what the
    one before it had placed; failures, windows and requests of every start stay.
    """
    began: dict[str, int] = {}
    """For each program, where its last start that placed anything begins."""
    pending: dict[str, int] = {}
    for place, event in enumerate(events):
        if event.event == "program" and event.name:
            # its lines of one beginning stand together, before anything is placed
            pending.setdefault(event.name, place)
        elif event.event in PLACED and pending:
            began |= pending
            pending.clear()
    if not began:
        return list(events)
    last = max(began.values())
    return [event for place, event in enumerate(events) if place >= last or event.event not in PLACED]
