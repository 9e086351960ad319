"""Samples devices, host and server in the background, and keeps the peaks of each phase.

    with Sampler(pid) as sampler:
        with sampler.phase("rung 8192 attempt 1", rung=8192, attempt=1) as phase:
            ...
        phase.peaks                                # SampledPeaks, with the rate that was reached
        phase.part("prefill", 0.0, 12.5)           # the same for a part, when its times are known only afterwards

Two threads. One ticks (ten times a second by default) and reads what is cheap; the other reads what is dear (the server's own pages, its
children, open files of processes, counters that need a program), as seldom as its cost asks for. Both measure their own CPU time and slow
down rather than cost more than 1 % of a core. The caller's thread never calls a driver: one that hangs delays a phase by half a second at
each edge, and the notes say so.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from probes.evidence.errors import CtxDoctorError
from probes.gpu.base import DeviceSample, Notes
from probes.gpu.host import HostTick, HostWatch
from probes.gpu.matching import match
from probes.gpu.processes import ServerReading, ServerWatch
from probes.gpu.sources import open_sources
from probes.gpu.spans import MOST_SPANS, Counter, DeviceSpan, Span, fold, peaks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from probes.evidence.machine import Device, SampledPeaks
    from probes.gpu.base import DeviceSource

BUDGET = 0.01
"""Share of one core that sampling at ten times a second may cost, all of it."""
_TICK_SHARE, _DEAR_SHARE = 0.7, 0.1
"""Of the budget: for the ticks, and for each kind of dear reading."""
_FULL_S = 0.5
"""How often power, faults and what else is less urgent are read within the ticks."""
_EDGE_WAIT_S = 0.5
_RETRY_S = 10.0
_TREE_S = 2.0


@dataclass(frozen=True, slots=True)
class Latest:
    """What was read last, for a live display. ``at``: seconds on the monotonic clock; ``devices`` by id."""

    at: float
    devices: dict[str, DeviceSample]
    host: HostTick
    server: ServerReading | None


@dataclass(slots=True, eq=False)
class Phase:
    """One phase: a stretch of samples with a name. ``peaks`` can be read at any time; after the end it no longer changes."""

    name: str
    rung: int | None
    attempt: int | None
    sampler: Sampler = field(repr=False)
    begun: float = 0.0
    ended: float | None = None
    spans: list[Span] = field(default_factory=list, repr=False)
    notes: tuple[str, ...] | None = field(default=None, repr=False)

    @property
    def peaks(self) -> SampledPeaks:
        """The peaks from the beginning to the end, or to now."""
        return self.sampler._peaks(self, self.name, None, None)

    def part(self, name: str, start_s: float, end_s: float) -> SampledPeaks:
        """Give the peaks of a part of this phase, in seconds from its beginning: prefill and generation, say."""
        return self.sampler._peaks(self, name, start_s, end_s)

    def end(self) -> None:
        """End the phase; again is no harm."""
        self.sampler._end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()


@dataclass(slots=True)
class _Source:
    """A source of device counters and how it fares."""

    source: DeviceSource
    lock: threading.Lock = field(default_factory=threading.Lock)
    down_until: float = 0.0
    why: str = ""
    ids: set[str] = field(default_factory=set)
    """Devices that it ever told of, so that they are lost rather than forgotten."""
    dear: tuple[DeviceSample, ...] = ()


@dataclass(slots=True)
class _Dear:
    """Something dear to read, and when it is due again."""

    run: Callable[[], None]
    least_s: float
    wall: bool = False
    """Whether its cost is spent outside of this thread (another program), so that the clock is the only measure."""
    hurries: bool = False
    """Whether it is wanted early at the edge of a phase, as far as its cost allows."""
    due: float = 0.0
    soonest: float = 0.0


class Sampler:
    """Samples in the background. ``pid``: the server's process, None if it is not on this machine; ``hz``: ticks a second.

    ``sources`` is for tests; by default everything that this machine offers is opened. Nothing is raised for a device, a process or a right
    that is missing: it is a note of the peaks.
    """

    def __init__(
        self,
        pid: int | None,
        hz: float = 10.0,
        *,
        sources: Sequence[DeviceSource] | None = None,
        host: HostWatch | None = None,
        dear_s: float = 10.0,
    ) -> None:
        if not 0.1 <= hz <= 100:
            raise ValueError("a sample rate is from 0.1 to 100 a second")
        self.hz = hz
        self._budget = BUDGET * max(1.0, hz / 10)
        self._dear_s = dear_s
        self._given = sources
        self._sources: list[_Source] = []
        self._host = host or HostWatch()
        self._server: ServerWatch | None = None
        self._pid = pid
        self._notes = Notes()
        self._condition = threading.Condition()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._ready = threading.Event()
        self._asked = 0
        self._served = 0
        self._phases: list[Phase] = []
        self._last: Span | None = None
        self._latest: Latest | None = None
        self._threads: list[threading.Thread] = []
        self._uss: int | None = None
        self._hurry = threading.Event()
        self._dear_cpu = 0.0
        self._gone_at: float | None = None
        self._counters: dict[str, Counter] = {}
        self._aliases: dict[str, str] = {}

    # --- from outside ----------------------------------------------------------------------------------------------------------

    def start(self) -> Sampler:
        """Start sampling; waits until the first sample is there, at most five seconds. Again is no harm."""
        if self._threads:
            return self
        self._stopping.clear()
        if self._pid is not None:
            self._watch(self._pid)
        self._host.follow(self._pid)
        self._threads = [
            threading.Thread(target=self._tick_loop, name="sampler", daemon=True),
            threading.Thread(target=self._dear_loop, name="sampler-dear", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if not self._ready.wait(5.0):
            self._notes.add("the devices' drivers did not answer within five seconds")
        return self

    def stop(self) -> None:
        """Stop sampling; phases that are open end now. Again is no harm."""
        if not self._threads:
            return
        for phase in tuple(self._phases):
            self._end(phase)
        self._stopping.set()
        self._wake.set()
        self._hurry.set()
        for thread in self._threads:
            thread.join(2.0)
        hung = any(thread.is_alive() for thread in self._threads)
        self._threads = []
        self._ready.clear()
        if hung:  # a driver that does not come back: closing beneath it would be worse than leaving it open
            return
        for one in self._sources:
            one.source.close()
        self._sources = []
        self._host.close()
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def follow(self, pid: int | None) -> None:
        """Watch another server process from now on: one that was started after the sampler."""
        self._pid = pid
        if not self._threads:
            return
        if pid is None:
            self._server = None
        else:
            self._watch(pid)
        self._host.follow(pid)

    def phase(self, name: str, *, rung: int | None = None, attempt: int | None = None) -> Phase:
        """Begin a phase; use it as a context, or call its ``end``. Phases may overlap and nest. Starts the sampler if need be."""
        self.start()
        phase = Phase(name, rung, attempt, self)
        self._edge()
        with self._condition:
            phase.begun = time.monotonic()
            if self._last is not None:
                phase.spans.append(self._last)
            self._phases.append(phase)
        return phase

    def latest(self) -> Latest | None:
        """Give what was read last; None before the first sample."""
        return self._latest

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be read, and why."""
        return self._notes.all()

    # --- phases ----------------------------------------------------------------------------------------------------------------

    def _edge(self) -> None:
        """Have a full sample taken now, and wait for it a little."""
        with self._condition:
            self._asked += 1
            asked = self._asked
            self._wake.set()
            self._hurry.set()
            if not self._condition.wait_for(lambda: self._served >= asked or self._stopping.is_set(), _EDGE_WAIT_S):
                self._notes.add(
                    "a driver did not answer within half a second at the edge of a phase: that sample is missing"
                )

    def _end(self, phase: Phase) -> None:
        if phase.ended is not None:
            return
        ended = time.monotonic()
        if self._threads and not self._stopping.is_set():
            self._edge()
        with self._condition:
            phase.ended = ended
            # What is read only now and then was still true at the beginning if it was so a little before.
            phase.notes = self._notes.since(phase.begun - self._dear_s)
            if phase in self._phases:
                self._phases.remove(phase)

    def _peaks(self, phase: Phase, name: str, start_s: float | None, end_s: float | None) -> SampledPeaks:
        with self._condition:
            spans = list(phase.spans)
        begun, ended = phase.begun, phase.ended if phase.ended is not None else time.monotonic()
        if start_s is not None and end_s is not None:
            first, last = begun + max(0.0, start_s), min(ended, begun + max(0.0, end_s))
            last = max(first, last)
            # One sample before the part is its beginning, one after it its end.
            inside = [i for i, span in enumerate(spans) if span.end > first and span.start < last]
            low = max(0, (inside[0] if inside else sum(span.end <= first for span in spans)) - 1)
            high = min(len(spans), (inside[-1] if inside else low) + 2)
            spans, begun, ended = spans[low:high], first, last
        notes = phase.notes if phase.notes is not None else self._notes.since(phase.begun - self._dear_s)
        return peaks_of(
            spans,
            phase=name,
            rung=phase.rung,
            attempt=phase.attempt,
            begun=begun,
            ended=ended,
            asked_hz=self.hz,
            notes=notes,
        )

    # --- ticks -----------------------------------------------------------------------------------------------------------------

    def _watch(self, pid: int) -> None:
        server = ServerWatch(pid)
        server.refresh()
        self._gone_at = None
        self._counters.pop("major faults", None)
        self._counters.pop("bytes read", None)
        self._server = server

    def _open_sources(self) -> None:
        if self._given is not None:
            self._sources = [_Source(source) for source in self._given]
            self._match()
            return
        opened, _absent = open_sources()
        self._sources = [_Source(source) for source in opened]
        self._match()

    def _match(self) -> None:
        """Learn which devices of different sources are the same one, so that each stands once under the first one's id."""
        if len(self._sources) < 2:
            return
        first: tuple[Device, ...] = ()
        for one in self._sources:
            try:
                seen = one.source.identities()
            except Exception as error:  # a binding may raise anything; unmatched devices stand apart
                self._notes.add(f"{one.source.name} does not say which devices it has: {error}")
                continue
            for new in seen:
                at = match(first, new, seen)
                if at is not None:
                    self._aliases[new.id] = first[at].id
            first += seen

    def _tick_loop(self) -> None:
        self._open_sources()
        self._host.open()
        due = time.monotonic()
        full_due = due
        cost = 0.0
        spent = time.thread_time()
        while not self._stopping.is_set():
            now = time.monotonic()
            with self._condition:
                asked = self._asked
                edge = asked != self._served
            scheduled = now >= due
            if scheduled or edge:
                full = edge or now >= full_due
                if full:
                    full_due = now + _FULL_S - 0.01
                span = self._tick(full=full)
                span.scheduled = int(scheduled)
                before, spent = spent, time.thread_time()
                mine = spent - before
                span.cpu_s = mine + self._dear_cpu
                self._dear_cpu = 0.0
                cost = mine if cost == 0.0 else 0.9 * cost + 0.1 * mine
                self._keep(span, asked)
                self._ready.set()
                if scheduled:
                    step = max(1 / self.hz, cost / (self._budget * _TICK_SHARE))
                    due = due + step if due + step > time.monotonic() else time.monotonic() + step
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()

    def _keep(self, span: Span, asked: int) -> None:
        with self._condition:
            self._last = span
            for phase in self._phases:
                phase.spans.append(span)
                if len(phase.spans) > MOST_SPANS:
                    phase.spans = fold(phase.spans)
            self._served = asked
            self._condition.notify_all()

    def _tick(self, *, full: bool) -> Span:
        start = time.monotonic()
        server = self._server
        pids = server.pids if server is not None else frozenset()
        samples: dict[str, DeviceSample] = {}
        for one in self._sources:
            for sample in self._ask(one, pids, full):
                sample.id = self._aliases.get(sample.id, sample.id)
                known = samples.get(sample.id)
                samples[sample.id] = sample if known is None else _joined(known, sample)
        host = self._host.tick(full=full)
        reading = server.tick(full=full) if server is not None else None
        now = time.monotonic()
        span = Span(
            start=start, end=now, available=host.available, swap_used=host.swap_used, cgroup_used=host.group_used
        )
        span.devices = {name: DeviceSpan.of(sample) for name, sample in samples.items()}
        span.pressure = max(
            (sample.pressure for sample in samples.values() if sample.pressure is not None), default=None
        )
        if reading is not None:
            self._add_server(span, reading, now)
        if full:
            span.grown_swap_in = self._grown("bytes swapped in", host.swap_in)
            span.grown_swap_out = self._grown("bytes swapped out", host.swap_out)
            span.grown_stall_some_us = self._grown("memory pressure (some)", host.stall_some_us)
            span.grown_stall_full_us = self._grown("memory pressure (full)", host.stall_full_us)
            span.grown_oom_kills = self._grown("out-of-memory kills", host.oom_kills)
        self._latest = Latest(now, samples, host, reading)
        return span

    def _add_server(self, span: Span, reading: ServerReading, now: float) -> None:
        if not reading.alive:
            if self._gone_at is None:
                self._gone_at = now
            span.server_gone = self._gone_at
            return
        span.rss, span.high = reading.rss, reading.peak
        span.server_swap = reading.swap
        span.server_faults, span.server_read = reading.faults, reading.read
        span.grown_faults = self._grown("major faults", reading.faults)
        span.grown_read = self._grown("bytes read", reading.read)
        # Each reading of the server's own pages belongs to the one tick after it: later it would be a stale number beside fresh ones.
        span.uss, self._uss = self._uss, None

    def _grown(self, name: str, value: int | None) -> int | None:
        counter = self._counters.setdefault(name, Counter())
        grown = counter.grown(value)
        if counter.went_back:
            counter.went_back = False
            self._notes.add(f"the counter of {name} went backwards: it began anew, and its growth is a lower bound")
        return grown

    def _ask(self, one: _Source, pids: frozenset[int], full: bool) -> Sequence[DeviceSample]:
        if one.down_until > time.monotonic():
            return [DeviceSample(name, lost=one.why) for name in one.ids]
        if one.source.pace_s > 0:  # read beside the ticks; here only once each time
            samples, one.dear = one.dear, ()
            return samples
        if not one.lock.acquire(blocking=False):
            return ()
        try:
            return self._sample(one, pids, full=full)
        finally:
            one.lock.release()

    def _sample(self, one: _Source, pids: frozenset[int], *, full: bool) -> Sequence[DeviceSample]:
        try:
            samples = one.source.sample(pids, full=full)
        except CtxDoctorError as error:
            one.down_until = time.monotonic() + _RETRY_S
            one.why = str(error)
            self._notes.add(f"{one.source.name} stopped answering: {error}")
            return [DeviceSample(name, lost=one.why) for name in one.ids]
        except Exception as error:  # a driver's binding may raise anything; sampling goes on without it
            one.down_until = time.monotonic() + _RETRY_S
            one.why = f"{type(error).__name__}: {error}"
            self._notes.add(f"{one.source.name} failed: {one.why}")
            return [DeviceSample(name, lost=one.why) for name in one.ids]
        one.ids.update(sample.id for sample in samples)
        for sample in samples:
            if sample.lost is not None:
                self._notes.add(f"{sample.id} does not answer: {sample.lost}")
        return samples

    # --- what is dear ----------------------------------------------------------------------------------------------------------

    def _dear_loop(self) -> None:
        self._ready.wait(30.0)
        tasks = [_Dear(self._read_tree, _TREE_S), _Dear(self._read_uss, self._dear_s, hurries=True)]
        for one in self._sources:
            if one.source.pace_s > 0:
                tasks.append(_Dear(lambda one=one: self._sample_dear(one), one.source.pace_s, wall=True))  # type: ignore[misc]
            tasks.append(_Dear(lambda one=one: self._scan(one), self._dear_s))  # type: ignore[misc]
        while not self._stopping.is_set():
            now = time.monotonic()
            hurry = self._hurry.is_set()
            self._hurry.clear()
            for task in tasks:
                if hurry and task.hurries:
                    task.due = min(task.due, task.soonest)
                if task.due > now:
                    continue
                began, spent = time.monotonic(), time.thread_time()
                try:
                    task.run()
                except Exception as error:  # whatever a driver or the system does here, the peaks go on
                    self._notes.add(f"a slow counter failed: {type(error).__name__}: {error}")
                cost = time.thread_time() - spent
                if task.wall:
                    cost = max(cost, time.monotonic() - began)
                self._dear_cpu += cost
                ended, pause = time.monotonic(), cost / (self._budget * _DEAR_SHARE)
                task.due, task.soonest = ended + max(task.least_s, pause), ended + max(1.0, pause)
            self._hurry.wait(max(0.02, min(task.due for task in tasks) - time.monotonic()))

    def _read_tree(self) -> None:
        if self._server is not None:
            self._server.refresh()

    def _read_uss(self) -> None:
        server = self._server
        if server is None or not server.pids:
            return
        uss, why = server.uss()
        self._uss = uss
        if why is not None:
            self._notes.add(why)

    def _scan(self, one: _Source) -> None:
        pids = self._server.pids if self._server is not None else frozenset()
        with one.lock:
            one.source.scan(pids)

    def _sample_dear(self, one: _Source) -> None:
        pids = self._server.pids if self._server is not None else frozenset()
        if one.down_until > time.monotonic():
            return
        with one.lock:
            one.dear = tuple(self._sample(one, pids, full=True))


def _joined(a: DeviceSample, b: DeviceSample) -> DeviceSample:
    """Fill what the first source does not tell about a device from the second one."""
    joined = DeviceSample(id=a.id, lost=a.lost or b.lost, throttle=a.throttle | b.throttle)
    for name in DeviceSample.__slots__:
        if name not in {"id", "lost", "throttle"}:
            first = getattr(a, name)
            setattr(joined, name, getattr(b, name) if first is None else first)
    return joined
