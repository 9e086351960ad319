"""Devices and host → who holds memory, what spilled, what grew, what was paged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from probes.evidence.events import LogEvent
from probes.evidence.machine import DeviceReadings, HostReading, SampledPeaks
from probes.evidence.records import Evidence
from probes.evidence.subject import ModelFile
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import (
    DEVICE_FILL,
    DEVICE_LOST_SEEN,
    DEVICE_USE,
    FIT_FAILED_SEEN,
    GPU_VENDOR,
    GRAPHS_SEEN,
    HARDWARE_SEEN,
    KERNEL_ERROR_SEEN,
    KERNEL_MISSING_SEEN,
    LINK_REPLAYS,
    LINK_SLOW,
    LINK_USE,
    MAJOR_FAULTS,
    OS,
    OTHER_VRAM_BYTES,
    POWER_RATIO,
    RAM_AVAILABLE_BYTES,
    READ_OF_WEIGHTS,
    SERVER_GROWTH_BYTES,
    SHARED_GROWTH_BYTES,
    SPILL_SEEN,
    SWAP_GROWTH_BYTES,
    SWAP_USED_BYTES,
    UNSUPPORTED_SEEN,
    V_CACHE_NEEDS_FLASH,
    WATCHDOG_SEEN,
)

_MAKERS = (
    ("nvidia", re.compile(r"nvidia|geforce|\b[rg]tx\b|tesla|quadro", re.IGNORECASE)),
    ("amd", re.compile(r"\bamd\b|radeon|instinct|\bgfx\d", re.IGNORECASE)),
    ("intel", re.compile(r"intel|\barc\b", re.IGNORECASE)),
    ("apple", re.compile(r"apple|\bm[1-9]\b", re.IGNORECASE)),
)


def _makers(sight: Sight) -> Iterator[Reading]:
    """Read the makers from the names that a log's devices have; a device of Metal is Apple's without one."""
    seen: dict[str, Evidence] = {}
    for evidence, event in sight.of(LogEvent):
        if event.event != "device-found":
            continue
        maker = next((maker for maker, pattern in _MAKERS if pattern.search(event.name or "")), None)
        if maker is None and re.match(r"metal|mtl", event.device or "", re.IGNORECASE):
            maker = "apple"
        if maker is not None:
            seen.setdefault(maker, evidence)
    if seen:
        yield reading(GPU_VENDOR, tuple(sorted(seen)), next(iter(seen.values())))


@derivation(reads=(HostReading, DeviceReadings, LogEvent), gives=(OS, GPU_VENDOR))
def kind(sight: Sight) -> Iterator[Reading]:
    """Give the operating system and the makers of the accelerators."""
    for evidence, host in sight.of(HostReading):
        name = host.os.lower()
        wsl = "wsl" in (host.virtualised or "").lower()
        known = (("linux", "linux"), ("windows", "windows"), ("darwin", "macos"), ("macos", "macos"))
        system = "wsl" if wsl else next((system for word, system in known if word in name), "other")
        yield reading(OS, system, evidence)
    for evidence, devices in sight.of(DeviceReadings):
        yield reading(GPU_VENDOR, tuple(sorted({d.vendor for d in devices.devices})) or ("none",), evidence)
    if not sight.of(DeviceReadings):
        yield from _makers(sight)


@derivation(
    reads=(DeviceReadings, HostReading, SampledPeaks),
    gives=(
        OTHER_VRAM_BYTES, SHARED_GROWTH_BYTES, SWAP_USED_BYTES, SWAP_GROWTH_BYTES, MAJOR_FAULTS, RAM_AVAILABLE_BYTES, SERVER_GROWTH_BYTES,
    ),
)  # fmt: skip
def memory(sight: Sight) -> Iterator[Reading]:
    """Give what other programs hold, what spilled to the host, what swap and the server grew by, and pages read back."""
    for evidence, devices in sight.of(DeviceReadings):
        known = [p for d in devices.devices for p in (d.processes or ()) if p.used_bytes is not None]
        if (
            devices.devices
            and any(d.processes is not None for d in devices.devices)
            and any(p.is_server for p in known)
        ):
            yield reading(OTHER_VRAM_BYTES, sum(p.used_bytes or 0 for p in known if p.is_server is False), evidence)
    for evidence, host in sight.of(HostReading):
        yield reading(SWAP_USED_BYTES, host.swap_used_bytes, evidence)
        yield reading(RAM_AVAILABLE_BYTES, host.ram_available_bytes, evidence)
    peaks = sight.of(SampledPeaks)
    if not peaks:
        return
    last = peaks[-1][0]
    growth = [
        peak - p.shared_before_bytes[device]
        for _, p in peaks
        for device, peak in p.shared_peak_bytes.items()
        if device in p.shared_before_bytes
    ]
    if growth:
        yield reading(SHARED_GROWTH_BYTES, max(0, *growth) if len(growth) > 1 else max(0, growth[0]), last)
    swap = [p.swap_peak_bytes for _, p in peaks if p.swap_peak_bytes is not None]
    if swap:
        yield reading(SWAP_GROWTH_BYTES, max(0, max(swap) - swap[0]), last)
    faults = [p.major_faults for _, p in peaks if p.major_faults is not None]
    if faults:
        yield reading(MAJOR_FAULTS, sum(faults), last)
    before = [
        p.server_before.rss_bytes
        for _, p in peaks
        if p.server_before is not None and p.server_before.rss_bytes is not None
    ]
    after = [
        p.server_after.rss_bytes
        for _, p in peaks
        if p.server_after is not None and p.server_after.rss_bytes is not None
    ]
    if before and after:
        yield reading(SERVER_GROWTH_BYTES, max(0, after[-1] - before[0]), last)


@derivation(reads=(DeviceReadings, SampledPeaks), gives=(DEVICE_FILL, POWER_RATIO, DEVICE_USE))
def at_length(sight: Sight) -> Iterator[Reading]:
    """Give how full, how busy and how hungry the devices were at the longest length, against the shortest.

    Memory that spills shows as a full device that is busy while it draws less: it waits. What a driver does not tell stays unknown.
    """
    total = {
        device.id: device.total_bytes
        for _evidence, readings in sight.of(DeviceReadings)
        for device in readings.devices
        if device.total_bytes and device.memory == "dedicated"
    }
    rungs = [(evidence, one) for evidence, one in sight.of(SampledPeaks) if one.rung]
    if not rungs:
        return
    lengths = sorted({one.rung for _evidence, one in rungs if one.rung})
    long = [(evidence, one) for evidence, one in rungs if one.rung == lengths[-1]]
    last = long[-1][0]
    fills = [
        used / total[device]
        for _evidence, one in long
        for device, used in one.devices_peak_bytes.items()
        if device in total
    ]
    if fills:
        yield reading(DEVICE_FILL, round(min(max(fills), 1.0), 4), last)
    busy = [mean for _evidence, one in long for mean in one.utilization_mean.values()]
    if busy:
        yield reading(DEVICE_USE, round(min(max(busy), 100.0), 2), last)
    powers = {
        length: [sum(one.power_mean_watts.values()) for _e, one in rungs if one.rung == length and one.power_mean_watts]
        for length in (lengths[0], lengths[-1])
    }
    short, at_long = powers[lengths[0]], powers[lengths[-1]]
    if len(lengths) > 1 and short and at_long and median(short) > 0:
        yield reading(POWER_RATIO, round(median(at_long) / median(short), 4), last)


@derivation(reads=(ModelFile, SampledPeaks), gives=(READ_OF_WEIGHTS,))
def paging(sight: Sight) -> Iterator[Reading]:
    """Give how often over the server read its weights while rungs ran.

    Pages come back with their neighbours, so few faults can stand for much that is read: what counts is what came from storage.
    """
    weights = [one.size_bytes for _evidence, one in sight.of(ModelFile) if one.size_bytes]
    reads = [
        (evidence, one.server_read_bytes)
        for evidence, one in sight.of(SampledPeaks)
        if one.rung and one.server_read_bytes is not None
    ]
    if weights and reads:
        yield reading(READ_OF_WEIGHTS, round(sum(size for _e, size in reads) / weights[-1], 4), reads[-1][0])


_LANE_BPS = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6, 7: 15125e6}
"""PCIe generation → bytes a second and lane, each way, after encoding."""
SLOW_LINK_BPS = 4.2e9
"""Four lanes of PCIe 3.0: below that or at it a card waits for its link where layers are shared or weights are fetched."""


@derivation(reads=(DeviceReadings, SampledPeaks), gives=(LINK_SLOW, LINK_USE, LINK_REPLAYS))
def link(sight: Sight) -> Iterator[Reading]:
    """Give whether a device's link is slow, how much of it was used, and what it had to send again.

    A link rests at a low generation and wakes under load, so its speed is that of the best generation and the most lanes that were seen.
    """
    generation: dict[str, int] = {}
    lanes: dict[str, int] = {}
    last: Evidence | None = None
    for evidence, readings in sight.of(DeviceReadings):
        for device in readings.devices:
            # at rest the generation says nothing; what both ends can do does
            best = device.link_generation_max or device.link_generation
            if best and device.link_width:
                generation[device.id] = best
                lanes[device.id] = max(lanes.get(device.id, 0), device.link_width)
                last = evidence
    peaks = sight.of(SampledPeaks)
    busy = False
    for evidence, one in peaks:
        for name, width in one.link_width_best.items():
            lanes[name] = max(lanes.get(name, 0), width)
            last = evidence
        busy = busy or any(use > _BUSY_PERCENT for use in one.utilization_max.values())
    if busy:
        seen: dict[str, int] = {}
        for _evidence, one in peaks:
            for name, top in one.link_generation_best.items():
                seen[name] = max(seen.get(name, 0), top)
        generation |= seen
    carried = {
        device: _LANE_BPS[best] * lanes[device]
        for device, best in generation.items()
        if best in _LANE_BPS and lanes.get(device)
    }
    if carried and last is not None:
        yield reading(LINK_SLOW, min(carried.values()) <= SLOW_LINK_BPS, last)
    uses = [
        (bps / carried[device], evidence)
        for evidence, one in peaks
        for told in (one.link_sent_max_bps, one.link_received_max_bps)
        for device, bps in told.items()
        if device in carried
    ]
    if uses:
        share, evidence = max(uses, key=lambda use: use[0])
        yield reading(LINK_USE, round(min(share, 1.0), 4), evidence)
    replays = [sum(one.link_replays.values()) for _evidence, one in peaks if one.link_replays]
    if replays:
        yield reading(LINK_REPLAYS, sum(replays), peaks[-1][0])


_BUSY_PERCENT = 50.0

_SEEN = {
    "kernel-error": KERNEL_ERROR_SEEN,
    "device-lost": DEVICE_LOST_SEEN,
    "watchdog": WATCHDOG_SEEN,
    "hardware": HARDWARE_SEEN,
    "spill": SPILL_SEEN,
    "unsupported": UNSUPPORTED_SEEN,
}


@derivation(
    reads=(LogEvent,),
    gives=(*_SEEN.values(), V_CACHE_NEEDS_FLASH, KERNEL_MISSING_SEEN, FIT_FAILED_SEEN, GRAPHS_SEEN),
)
def seen(sight: Sight) -> Iterator[Reading]:
    """Give what a log says in so many words. What it does not say stays unknown."""
    for evidence, event in sight.of(LogEvent):
        if event.event in _SEEN:
            yield reading(_SEEN[event.event], True, evidence)
        text = f"{event.text} {event.reason or ''}".lower()
        if event.event in {"load-failed", "generic-error", "unsupported"} and "flash" in text and "v cache" in text:
            yield reading(V_CACHE_NEEDS_FLASH, True, evidence)
        if event.event in {"kernel-error", "load-failed", "unsupported"} and any(
            phrase in text
            for phrase in (
                "no kernel",
                "unsupported op",
                "not supported",
                "different k",
                "does not fit the head",
                "moved",
            )
        ):
            yield reading(KERNEL_MISSING_SEEN, True, evidence)
        if event.event == "flash-attention" and event.key == "moved":
            yield reading(KERNEL_MISSING_SEEN, True, evidence)
        if event.event == "fit" and event.level in {"warning", "error"}:
            yield reading(FIT_FAILED_SEEN, True, evidence)
        if event.event in {"alloc-failed", "generic-error", "crash", "graph"} and (
            "graph capture" in text or "capturing" in text or "capture graph" in text
        ):
            yield reading(GRAPHS_SEEN, True, evidence)
