"""Samples over time: spans that merge, and the peaks of a stretch of them.

A :class:`Span` is one tick, or several folded into one. Levels (memory in use) merge by their highest or lowest; what is counted up
(faults, bytes swapped) is kept as the growth since the tick before, so that a counter that starts anew costs one step, not the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from probes.evidence.machine import SampledPeaks, ServerMemory
from probes.gpu.base import PRESSURE_LEVELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from probes.gpu.base import DeviceSample


def higher(a: int | None, b: int | None) -> int | None:
    """Give the greater of two levels; an unknown one says nothing."""
    if a is None:
        return b
    return a if b is None or a >= b else b


def lower(a: int | None, b: int | None) -> int | None:
    """Give the smaller of two levels; an unknown one says nothing."""
    if a is None:
        return b
    return a if b is None or a <= b else b


def _top(a: float | None, b: float | None) -> float | None:
    if a is None:
        return b
    return a if b is None or a >= b else b


def _sum(a: int | None, b: int | None) -> int | None:
    if a is None:
        return b
    return a if b is None else a + b


@dataclass(slots=True)
class DeviceSpan:
    """One device over a span."""

    used: int | None = None
    free: int | None = None
    shared: int | None = None
    server: int | None = None
    server_shared: int | None = None
    busy_sum: float = 0.0
    busy_count: int = 0
    busy_top: float | None = None
    power_sum: float = 0.0
    power_count: int = 0
    temperature: float | None = None
    link: int | None = None
    link_width: int | None = None
    link_sent: int | None = None
    link_received: int | None = None
    replays_first: int | None = None
    replays_last: int | None = None
    replays_grown: int | None = None
    throttle: frozenset[str] = frozenset()
    lost: str | None = None

    @classmethod
    def of(cls, sample: DeviceSample) -> DeviceSpan:
        """Make the span of one sample."""
        busy, power = sample.utilization_percent, sample.power_watts
        return cls(
            used=sample.used_bytes,
            free=sample.free_bytes,
            shared=sample.shared_bytes,
            server=sample.server_bytes,
            server_shared=sample.server_shared_bytes,
            busy_sum=busy or 0.0,
            busy_count=busy is not None,
            busy_top=busy,
            power_sum=power or 0.0,
            power_count=power is not None,
            temperature=sample.temperature_c,
            link=sample.link_generation,
            link_width=sample.link_width,
            link_sent=sample.link_sent,
            link_received=sample.link_received,
            replays_first=sample.link_replays,
            replays_last=sample.link_replays,
            throttle=sample.throttle,
            lost=sample.lost,
        )

    def _replayed(self, other: DeviceSpan) -> int | None:
        """Count what the link sent again between the two; a counter that went back has started anew, and tells nothing."""
        before, after = self.replays_last, other.replays_first
        return after - before if before is not None and after is not None and after >= before else None

    def merged(self, other: DeviceSpan) -> DeviceSpan:
        """Give both as one."""
        return DeviceSpan(
            used=higher(self.used, other.used),
            free=lower(self.free, other.free),
            shared=higher(self.shared, other.shared),
            server=higher(self.server, other.server),
            server_shared=higher(self.server_shared, other.server_shared),
            busy_sum=self.busy_sum + other.busy_sum,
            busy_count=self.busy_count + other.busy_count,
            busy_top=_top(self.busy_top, other.busy_top),
            power_sum=self.power_sum + other.power_sum,
            power_count=self.power_count + other.power_count,
            temperature=_top(self.temperature, other.temperature),
            link=higher(self.link, other.link),
            link_width=higher(self.link_width, other.link_width),
            link_sent=higher(self.link_sent, other.link_sent),
            link_received=higher(self.link_received, other.link_received),
            replays_first=self.replays_first if self.replays_first is not None else other.replays_first,
            replays_last=other.replays_last if other.replays_last is not None else self.replays_last,
            replays_grown=_sum(_sum(self.replays_grown, other.replays_grown), self._replayed(other)),
            throttle=self.throttle | other.throttle,
            lost=other.lost or self.lost,
        )


@dataclass(slots=True)
class Span:
    """One tick, or several in a row. ``start`` and ``end`` on the monotonic clock, seconds; ``grown_…`` since the tick before."""

    start: float
    end: float
    ticks: int = 1
    scheduled: int = 1
    """How many of the ticks came by the clock; the others were asked for at the edges of a phase."""
    cpu_s: float = 0.0
    devices: dict[str, DeviceSpan] = field(default_factory=dict)
    available: int | None = None
    swap_used: int | None = None
    cgroup_used: int | None = None
    rss: int | None = None
    high: int | None = None
    """The kernel's own high-water mark, where it rose since the tick before: a peak between two ticks, not a level."""
    uss: int | None = None
    server_swap: int | None = None
    server_gone: float | None = None
    pressure: int | None = None
    grown_faults: int | None = None
    grown_read: int | None = None
    grown_swap_in: int | None = None
    grown_swap_out: int | None = None
    grown_stall_some_us: int | None = None
    grown_stall_full_us: int | None = None
    grown_oom_kills: int | None = None
    server_faults: int | None = None
    """The counter itself, for the records before and after."""
    server_read: int | None = None

    def merged(self, other: Span) -> Span:
        """Give this and a later one as one."""
        devices = dict(self.devices)
        for name, one in other.devices.items():
            known = devices.get(name)
            devices[name] = one if known is None else known.merged(one)
        return Span(
            start=self.start,
            end=other.end,
            ticks=self.ticks + other.ticks,
            scheduled=self.scheduled + other.scheduled,
            cpu_s=self.cpu_s + other.cpu_s,
            devices=devices,
            available=lower(self.available, other.available),
            swap_used=higher(self.swap_used, other.swap_used),
            cgroup_used=higher(self.cgroup_used, other.cgroup_used),
            rss=higher(self.rss, other.rss),
            high=higher(self.high, other.high),
            uss=higher(self.uss, other.uss),
            server_swap=higher(self.server_swap, other.server_swap),
            server_gone=self.server_gone if self.server_gone is not None else other.server_gone,
            pressure=higher(self.pressure, other.pressure),
            grown_faults=_sum(self.grown_faults, other.grown_faults),
            grown_read=_sum(self.grown_read, other.grown_read),
            grown_swap_in=_sum(self.grown_swap_in, other.grown_swap_in),
            grown_swap_out=_sum(self.grown_swap_out, other.grown_swap_out),
            grown_stall_some_us=_sum(self.grown_stall_some_us, other.grown_stall_some_us),
            grown_stall_full_us=_sum(self.grown_stall_full_us, other.grown_stall_full_us),
            grown_oom_kills=_sum(self.grown_oom_kills, other.grown_oom_kills),
            server_faults=other.server_faults if other.server_faults is not None else self.server_faults,
            server_read=other.server_read if other.server_read is not None else self.server_read,
        )

    def server(self, *, peak: bool = False) -> ServerMemory | None:
        """Give the server's memory of this span, or None if nothing of it is known."""
        if self.rss is None and self.server_faults is None:
            return None
        return ServerMemory(
            rss_bytes=higher(self.rss, self.high) if peak else self.rss,
            uss_bytes=self.uss,
            swap_bytes=self.server_swap,
            major_faults=None if peak else self.server_faults,
            read_bytes=None if peak else self.server_read,
        )


@dataclass(slots=True)
class Counter:
    """Something that only counts up; gives its growth. A step back (a driver or process that began anew) counts as none."""

    last: int | None = None
    went_back: bool = False

    def grown(self, value: int | None) -> int | None:
        """Give the growth since the value before; None while there is nothing to compare with."""
        if value is None:
            return None
        before, self.last = self.last, value
        if before is None:
            return None
        if value < before:
            self.went_back = True
            return 0
        return value - before


MOST_SPANS = 8192


def fold(spans: list[Span]) -> list[Span]:
    """Merge neighbours in pairs, so that a phase of days stays small. The ends are kept: they are the state before and the newest one."""
    if len(spans) < 4:
        return spans
    inner = spans[1:-1]
    pairs = [a.merged(b) for a, b in zip(inner[::2], inner[1::2], strict=False)]
    return [spans[0], *pairs, *(inner[-1:] if len(inner) % 2 else []), spans[-1]]


def _percent(stalled_us: int | None, seconds: float) -> float | None:
    if stalled_us is None or seconds <= 0:
        return None
    return round(min(100.0, stalled_us / seconds / 10_000), 3)


def peaks_of(
    spans: Sequence[Span],
    *,
    phase: str,
    rung: int | None = None,
    attempt: int | None = None,
    begun: float,
    ended: float,
    asked_hz: float,
    notes: Iterable[str] = (),
) -> SampledPeaks:
    """Give the peaks of a stretch of spans, oldest first. The first span is the state before: its growth belongs to what was before."""
    seconds = max(0.0, ended - begun)
    if not spans:
        return SampledPeaks(
            phase=phase, rung=rung, attempt=attempt, samples=0, seconds=seconds, hz=0.0, asked_hz=asked_hz,
            notes=(*notes, "no sample was taken in this phase"),
        )  # fmt: skip
    first, last = spans[0], spans[-1]
    whole = replace(
        first, high=None, grown_faults=None, grown_read=None, grown_swap_in=None, grown_swap_out=None, grown_stall_some_us=None,
        grown_stall_full_us=None, grown_oom_kills=None,
    )  # fmt: skip
    for span in spans[1:]:
        whole = whole.merged(span)
    said = list(notes)
    # A rate says little over less than a few intervals; the edges of a phase are sampled in any case.
    hz = whole.scheduled / seconds if seconds * asked_hz >= 3 else (whole.ticks / seconds if seconds > 0 else 0.0)
    hz = min(hz, asked_hz)
    if seconds * asked_hz >= 10 and hz < 0.8 * asked_hz:
        said.append(f"sampled {hz:.1f} times a second instead of {asked_hz:g}; short peaks can be missed")
    devices = whole.devices
    return SampledPeaks(
        phase=phase,
        rung=rung,
        attempt=attempt,
        samples=whole.ticks,
        seconds=seconds,
        hz=round(hz, 3),
        asked_hz=asked_hz,
        cost_core_share=round(whole.cpu_s / seconds, 5) if seconds > 0 else None,
        devices_peak_bytes={k: d.used for k, d in devices.items() if d.used is not None},
        devices_min_free_bytes={k: d.free for k, d in devices.items() if d.free is not None},
        devices_before_bytes={k: d.used for k, d in first.devices.items() if d.used is not None},
        shared_peak_bytes={k: d.shared for k, d in devices.items() if d.shared is not None},
        shared_before_bytes={k: d.shared for k, d in first.devices.items() if d.shared is not None},
        server_devices_peak_bytes={k: d.server for k, d in devices.items() if d.server is not None},
        server_shared_before_bytes={
            k: d.server_shared for k, d in first.devices.items() if d.server_shared is not None
        },
        server_shared_peak_bytes={k: d.server_shared for k, d in devices.items() if d.server_shared is not None},
        utilization_mean={k: round(d.busy_sum / d.busy_count, 2) for k, d in devices.items() if d.busy_count},
        utilization_max={k: d.busy_top for k, d in devices.items() if d.busy_top is not None},
        power_mean_watts={k: round(d.power_sum / d.power_count, 2) for k, d in devices.items() if d.power_count},
        temperature_max_c={k: d.temperature for k, d in devices.items() if d.temperature is not None},
        link_generation_best={k: d.link for k, d in devices.items() if d.link is not None},
        link_width_best={k: d.link_width for k, d in devices.items() if d.link_width is not None},
        link_sent_max_bps={k: d.link_sent for k, d in devices.items() if d.link_sent is not None},
        link_received_max_bps={k: d.link_received for k, d in devices.items() if d.link_received is not None},
        link_replays={k: d.replays_grown for k, d in devices.items() if d.replays_grown is not None},
        throttle={k: tuple(sorted(d.throttle)) for k, d in devices.items() if d.throttle},
        devices_lost={k: d.lost for k, d in devices.items() if d.lost is not None},
        host_min_available_bytes=whole.available,
        swap_peak_bytes=whole.swap_used,
        swapped_in_bytes=whole.grown_swap_in,
        swapped_out_bytes=whole.grown_swap_out,
        memory_pressure_some=_percent(whole.grown_stall_some_us, last.end - first.end),
        memory_pressure_full=_percent(whole.grown_stall_full_us, last.end - first.end),
        pressure_level=PRESSURE_LEVELS.get(whole.pressure or 0),
        cgroup_peak_bytes=whole.cgroup_used,
        oom_kills=whole.grown_oom_kills,
        server_before=first.server(),
        server_peak=whole.server(peak=True),
        server_after=last.server() if last.server_gone is None else None,
        server_gone_after_s=None if whole.server_gone is None else round(max(0.0, whole.server_gone - begun), 3),
        major_faults=whole.grown_faults,
        server_read_bytes=whole.grown_read,
        notes=tuple(said),
    )
