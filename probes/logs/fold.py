"""Keeps the number of events of a log bounded: repeats are folded into one event that says how many and up to which line."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from probes.evidence.events import LogEvent

from .rule import FAILURES, LOADING

_MAX_GROUPS = 400
_PER_GROUP = 96
_KEY = ("event", "dialect", "component", "reason", "api", "which", "phase", "key", "code", "name", "device")
_VARYING = {
    "line",
    "last_line",
    "count_seen",
    "text",
    "time",
    "slot",
    "task",
    "log",
    "seconds",
    "tps_low",
    "tps_high",
    "tokens_high",
    "further",
    "further_lines",
}


@dataclass(slots=True)
class _Kept:
    event: LogEvent
    seen: int
    last: int | None
    tps_low: float | None
    tps_high: float | None
    tokens_high: int | None
    slot_high: int | None
    signature: tuple[Any, ...]
    order: int

    def take(self, other: _Kept) -> None:
        """Fold a later one into this one."""
        self.seen += other.seen
        ends = [at for at in (self.last, other.last, other.event.line) if at is not None]
        self.last = max(ends) if self.event.log == other.event.log else self.last
        lows = [speed for speed in (self.tps_low, other.tps_low) if speed is not None]
        highs = [speed for speed in (self.tps_high, other.tps_high) if speed is not None]
        most = [tokens for tokens in (self.tokens_high, other.tokens_high) if tokens is not None]
        self.tps_low = min(lows, default=None)
        self.tps_high = max(highs, default=None)
        self.tokens_high = max(most, default=None)
        slots = [slot for slot in (self.slot_high, other.slot_high) if slot is not None]
        self.slot_high = max(slots, default=None)

    def done(self) -> LogEvent:
        """Give the event with what was folded into it."""
        if self.seen == self.event.count_seen and self.last == self.event.last_line:
            return self.event
        update = {
            "count_seen": self.seen,
            "last_line": self.last,
            "tps_low": self.tps_low,
            "tps_high": self.tps_high,
            "tokens_high": self.tokens_high,
        }
        if self.event.which == "per-slot" and self.event.count is None and self.slot_high:
            # slots are numbered from 0: the highest number says how many there are at least
            update["count"] = self.slot_high + 1
        return self.event.model_copy(update=update)


@dataclass(slots=True)
class _Group:
    failure: bool
    kept: list[_Kept] = field(default_factory=list)

    def thin(self, limit: int) -> int:
        """Fold until at most ``limit`` are left, evenly in the middle; first and last stay. Gives how many went."""
        before = len(self.kept)
        while len(self.kept) > max(limit, 1):
            edge = max(limit // 4, 1)
            if len(self.kept) <= 2 * edge + 1:
                last = self.kept.pop()
                if limit >= 2 and len(self.kept) > 1:
                    self.kept[-2].take(self.kept[-1])
                    self.kept[-1] = last
                else:
                    self.kept[-1].take(last)
                continue
            head, middle, tail = self.kept[:edge], self.kept[edge:-edge], self.kept[-edge:]
            thinned: list[_Kept] = []
            for index, one in enumerate(middle):
                if index % 2 == 0:
                    thinned.append(one)
                else:
                    thinned[-1].take(one)
            self.kept = head + thinned + tail
        return before - len(self.kept)


class Folder:
    """Takes events one by one and keeps at most ``limit`` of them."""

    def __init__(self, limit: int = 5000) -> None:
        self._limit = max(limit, 1)
        self._groups: dict[tuple[Any, ...], _Group] = {}
        self._size = 0
        self._order = 0
        self._load = 0
        self.counts: Counter[str] = Counter()

    def next_file(self) -> None:
        """Say that another file follows: its lines are no repeats of this one's."""
        self._load += 1

    def add(self, event: LogEvent) -> None:
        """Take one event."""
        self.counts[event.event] += event.count_seen
        if event.event in {"program", "command", "loading"}:
            self._load += 1
        key = tuple(getattr(event, name) for name in _KEY)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= _MAX_GROUPS:
                key = (event.event,)
                group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = _Group(event.event in FAILURES)
        self._order += 1
        kept = _Kept(
            event,
            event.count_seen,
            event.last_line,
            event.tps,
            event.tps,
            event.tokens,
            event.slot,
            self._signature(event),
            self._order,
        )
        if group.kept and group.kept[-1].signature == kept.signature:
            group.kept[-1].take(kept)
            return
        group.kept.append(kept)
        self._size += 1
        if len(group.kept) > _PER_GROUP:
            self._size -= group.thin(_PER_GROUP * 2 // 3)
        if self._size > 2 * self._limit:
            self._shrink(self._limit)

    def _signature(self, event: LogEvent) -> tuple[Any, ...]:
        if event.event == "pool-full":  # one failure is told many times, with ever smaller batches
            return (event.event, event.reason, event.code)
        values = tuple(value for name, value in event.__dict__.items() if name not in _VARYING)
        return (self._load, *values) if event.event in LOADING else values

    def _shrink(self, limit: int) -> None:
        per_group = _PER_GROUP
        while self._size > limit and per_group > 1:
            per_group //= 2
            for group in self._groups.values():
                if self._size <= limit:
                    break
                self._size -= group.thin(per_group * 2 if group.failure else per_group)
        if self._size > limit:  # more groups than events allowed: failures first, then the oldest
            ordered = sorted(self._groups.items(), key=lambda item: (not item[1].failure, item[1].kept[0].order))
            self._groups = dict(ordered[:limit])
            self._size = 0
            for group in self._groups.values():
                group.thin(1)
                self._size += len(group.kept)

    def events(self) -> list[LogEvent]:
        """Give what was kept, in the order it came."""
        self._shrink(self._limit)
        kept = [one for group in self._groups.values() for one in group.kept]
        return [one.done() for one in sorted(kept, key=lambda one: one.order)]
