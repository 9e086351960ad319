"""Prediction against log, and which component overflowed: arithmetic only, from a budget, devices and the failed allocation.

Components fill a device in the order in which llama.cpp allocates them: weights, caches and states, work space, then draft and projector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from probes.evidence.machine import MemoryDifference, MemoryOverflow, MemoryScore

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from probes.evidence.events import LogEvent
    from probes.evidence.machine import Device, MemoryBudget

MIB = 1024**2
TOLERANCE_SHARE = 0.03
TOLERANCE_BYTES = 100 * MIB
ORDER = ("weights", "kv", "state", "compute", "output", "draft", "projector", "other")
_SAME = 0.02
"""An allocation is taken for the component whose predicted size is so near."""

Blame = Literal[
    "weights", "kv", "state", "compute", "output", "draft", "projector", "other",
    "other-process", "driver-reserve", "oversized-piece", "fragmentation", "pinned-host",
]  # fmt: skip


def place_of(device: str, names: Sequence[str] = ()) -> str:
    """Give one name for the same device in logs and predictions: ``host``, or ``#`` and its index.

    ``names``: the prediction's devices in order. ``CUDA1``, ``ROCm1``, ``nvidia:1``, ``gpu1`` are all ``#1``; a device's index
    counts within its own kind, as servers count. Buffers of the CPU and pinned ones (``CUDA_Host``) are the host's.
    """
    if device in names:
        return f"#{list(names).index(device)}"
    low = device.lower()
    if low.startswith(("cpu", "host", "blas")) or low.endswith("_host") or low == "unknown":
        return "host"
    digits = ""
    for letter in reversed(low):
        if not letter.isascii() or not letter.isdigit():
            break
        digits = letter + digits
    return f"#{int(digits[-4:])}" if digits else "#0"


def score(predicted: MemoryBudget, logged: MemoryBudget, devices: Sequence[str] = ()) -> MemoryScore:
    """Hold a prediction against the log's buffers, device by device; devices that only one of both names count as 0 in the other."""
    sums: dict[str, dict[str, list[int]]] = {}
    for at, budget in enumerate((predicted, logged)):
        for buffer in budget.buffers:
            # A rearranged copy of weights on the CPU replaces nothing in the file: it is no part of a prediction from the file.
            if at == 1 and "REPACK" in buffer.device.upper():
                continue
            pair = sums.setdefault(place_of(buffer.device, devices), {}).setdefault(buffer.component, [0, 0])
            pair[at] += buffer.size_bytes
    differences = []
    for place, components in sorted(sums.items()):
        guess = sum(pair[0] for pair in components.values())
        truth = sum(pair[1] for pair in components.values())
        worst = max(components, key=lambda name: abs(components[name][0] - components[name][1]))
        off = components[worst][0] != components[worst][1]
        differences.append(
            MemoryDifference(
                device=place,
                predicted_bytes=guess,
                logged_bytes=truth,
                agrees=abs(guess - truth) <= max(TOLERANCE_SHARE * truth, TOLERANCE_BYTES),
                worst_component=worst if off else None,
            )
        )
    return MemoryScore(differences=tuple(differences))


def overflows(
    budget: MemoryBudget, devices: Sequence[Device], *, margin_bytes: int = 0, host_free_bytes: int | None = None
) -> list[MemoryOverflow]:
    """Say for each device that is too small by the budget which component crosses the line, and by how much in all.

    Where it would fit but for another process, or but for what the driver holds, that is named instead. The host is looked at where what it
    can give is told.
    """
    found: list[MemoryOverflow] = []
    names = [device.id for device in devices]
    for index, device in enumerate(devices):
        if device.free_bytes is None:
            continue
        sizes = dict.fromkeys(ORDER, 0)
        for buffer in budget.buffers:
            if place_of(buffer.device, names) == f"#{index}":
                sizes[buffer.component] += buffer.size_bytes
        need = sum(sizes.values()) + margin_bytes
        lacking = need - device.free_bytes
        if lacking <= 0:
            continue
        others = sum(p.used_bytes or 0 for p in device.processes or () if p.is_server is not True)
        blame: Blame = _crossing(sizes, device.free_bytes - margin_bytes)
        note = ""
        if others >= lacking:
            holder = max(
                (p for p in device.processes or () if p.is_server is not True), key=lambda p: p.used_bytes or 0
            )
            blame, note = "other-process", f"{holder.name or holder.pid} holds {holder.used_bytes} bytes"
        elif device.reserved_bytes and device.reserved_bytes >= lacking:
            blame, note = "driver-reserve", f"the driver itself holds {device.reserved_bytes} bytes"
        found.append(MemoryOverflow(device=device.id, component=blame, lacking_bytes=lacking, basis="model", note=note))
    if host_free_bytes is not None:
        sizes = dict.fromkeys(ORDER, 0)
        for buffer in budget.buffers:
            if place_of(buffer.device, names) == "host":
                sizes[buffer.component] += buffer.size_bytes
        lacking = sum(sizes.values()) - host_free_bytes
        if lacking > 0:
            blame = _crossing(sizes, host_free_bytes)
            found.append(MemoryOverflow(device="host", component=blame, lacking_bytes=lacking, basis="model"))
    return found


def _crossing(sizes: dict[str, int], room: int) -> Blame:
    filled = 0
    last: Blame = "other"
    for component in ("weights", "kv", "state", "compute", "output", "draft", "projector", "other"):
        size = sizes[component]
        if not size:
            continue
        filled += size
        last = component
        if filled > room:
            return last
    return last


def failed_allocation(events: Iterable[LogEvent], budget: MemoryBudget | None = None) -> MemoryOverflow | None:
    """Read the first failed allocation of a log: what it was for, and why there was no room. None if the log has none.

    A component that the log does not name is taken from the prediction where a predicted buffer is as large (within 2 %).
    """
    for event in events:
        if event.event != "alloc-failed":
            continue
        size, free, limit = event.size_bytes, event.free_bytes, event.limit_bytes
        component: Blame = event.component if event.component in ORDER else _by_size(size, budget)  # type: ignore[assignment]
        lacking = max(0, size - free) if size is not None and free is not None else None
        note = f"it was for {component}" if component != "other" else ""
        if event.api == "host-pinned" or event.component == "pinned":
            blame: Blame = "pinned-host"
        elif size is not None and limit is not None and size > limit:
            blame, lacking = "oversized-piece", size - limit
        elif size is not None and free is not None and free >= size:
            blame = "fragmentation"
        else:
            blame, note = component, ""
        return MemoryOverflow(
            device=event.device or "unknown",
            component=blame,
            lacking_bytes=lacking,
            piece_bytes=size,
            basis="log",
            note=note,
        )
    return None


def _by_size(size: int | None, budget: MemoryBudget | None) -> Blame:
    if size is None or size <= 0 or budget is None:
        return "other"
    near = [buffer for buffer in budget.buffers if abs(buffer.size_bytes - size) <= _SAME * size]
    return min(near, key=lambda buffer: abs(buffer.size_bytes - size)).component if near else "other"
