"""What was allocated, where, and what did not fit: from the start of the server and its log. Nothing is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from probes.base import Cost, Probe, ProbeContext
from probes.evidence.events import LogEvent
from probes.evidence.machine import BufferTruth, MemoryBudget
from probes.evidence.records import Evidence, found, not_found

NOT_ALLOCATED = frozenset({"breakdown", "planner"})
"""Sums and plans that a log prints beside the buffers themselves."""
_COMPONENTS = {"weights", "kv", "state", "compute", "output", "draft", "projector"}


def logged_buffers(events: Iterable[LogEvent]) -> tuple[BufferTruth, ...]:
    """Give the buffers that a log names as allocated; its sums and plans are left out."""
    return tuple(
        BufferTruth(
            device=event.device or "unknown",
            component=event.component if event.component in _COMPONENTS else "other",
            size_bytes=event.size_bytes,
            line=event.line or None,
        )
        for event in events
        if event.event == "buffer"
        and event.key not in NOT_ALLOCATED
        and event.size_bytes is not None
        and event.size_bytes >= 0
    )


class AllocationProbe(Probe):
    """Adds up the buffers that a log names, by device and component."""

    id: ClassVar[str] = "allocation"
    gives: ClassVar[tuple[str, ...]] = (MemoryBudget.kind,)

    def __init__(self, events: Sequence[LogEvent], *, ctx: int | None = None, log_was_read: bool = True) -> None:
        self.events = tuple(events)
        self.ctx = ctx
        self.log_was_read = log_was_read
        self.budget: MemoryBudget | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """Nothing."""
        del context
        return Cost()

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the budget that the log tells."""
        buffers = logged_buffers(self.events)
        if not buffers:
            why = (
                "the log names no buffers; llama-server prints them with -lv 4"
                if self.log_was_read
                else "no log was given"
            )
            yield not_found(MemoryBudget, "not-run", why, source="log", run=context.run, origin="allocation")
            return
        self.budget = MemoryBudget(basis="log", ctx=self.ctx, buffers=buffers)
        yield found(self.budget, source="log", run=context.run, origin="allocation")
