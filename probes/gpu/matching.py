"""Which device is which: the driver's order, CUDA's order, a server's "CUDA0", PCI addresses, UUIDs and names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from probes.evidence.machine import Device
    from probes.gpu.base import Notes

VARIABLES = frozenset({
    "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL", "HSA_OVERRIDE_GFX_VERSION", "GGML_VK_VISIBLE_DEVICES", "ONEAPI_DEVICE_SELECTOR", "ZE_AFFINITY_MASK",
    "ZE_FLAT_DEVICE_HIERARCHY", "GGML_CUDA_ENABLE_UNIFIED_MEMORY", "GGML_CUDA_NO_PINNED", "GGML_METAL_DEVICES",
})  # fmt: skip
"""Variables of a server's environment that hide, reorder or change devices."""

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?", re.IGNORECASE)


def pci_key(text: str | None) -> str | None:
    """Bring a PCI address to one form, "0000:01:00.0", whatever length of domain it was written with; None if it is none."""
    match = _PCI.fullmatch(text.strip()) if text else None
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2].lower()}:{match[3].lower()}.{match[4] or '0'}"


def match(devices: Sequence[Device], new: Device, beside: Sequence[Device]) -> int | None:
    """Find which of ``devices`` a second source's ``new`` is: by PCI address, else by id, else by a name that only one has.

    ``beside``: all devices of the second source. Gives the index, or None if there is none or more than one that fits.
    """
    key = pci_key(new.pci)
    at = [i for i, old in enumerate(devices) if key is not None and pci_key(old.pci) == key]
    at = at or [i for i, old in enumerate(devices) if old.id == new.id]
    if not at and (key is None or all(pci_key(old.pci) is None for old in devices)):
        at = [i for i, old in enumerate(devices) if old.vendor == new.vendor and _plain(old.name) == _plain(new.name)]
        twins = [other for other in beside if other.vendor == new.vendor and _plain(other.name) == _plain(new.name)]
        if len(at) > 1 or len(twins) > 1:
            return None
    return at[0] if at else None


def joined(devices: tuple[Device, ...], more: tuple[Device, ...], notes: Notes) -> tuple[Device, ...]:
    """Join what a second source says to what is there; a device that cannot be matched stands apart, with a note."""
    result = list(devices)
    for new in more:
        at = match(devices, new, more)
        if at is not None:
            result[at] = _filled(result[at], new)
            continue
        if any(old.vendor == new.vendor for old in devices):
            notes.add(
                f"{new.name} ({new.id}) could not be matched with a device of another interface: what it says stands apart"
            )
        result.append(new)
    return tuple(result)


def _filled(first: Device, second: Device) -> Device:
    """Keep what the first says; what it leaves open is taken from the second."""
    update: dict[str, object] = {}
    for name in type(first).model_fields:
        mine, other = getattr(first, name), getattr(second, name)
        if name == "notes":
            update[name] = tuple(dict.fromkeys((*mine, *other)))
        elif name == "processes":
            update[name] = _holders(first, second)
        elif mine is None and other is not None:
            update[name] = other
    return first.model_copy(update=update)


def _holders(first: Device, second: Device) -> object:
    if first.processes is None or second.processes is None:
        return first.processes if second.processes is None else second.processes
    by_pid = {one.pid: one for one in first.processes}
    for one in second.processes:
        known = by_pid.get(one.pid)
        if known is None:
            by_pid[one.pid] = one
        else:
            fields = {k: getattr(one, k) for k in type(one).model_fields if getattr(known, k) is None}
            by_pid[one.pid] = known.model_copy(update=fields)
    return tuple(by_pid.values())


def visible(text: str | None, uuids: Sequence[str | None]) -> tuple[list[int] | None, str | None]:
    """Read CUDA_VISIBLE_DEVICES over ``uuids`` (one for each device, in CUDA's order): (indices that are seen in order, what is odd).

    As CUDA does: the list ends at the first entry that names no device; an empty one hides all; a device named twice hides all. Entries are
    indices or the beginning of a UUID. (None, why) where it cannot be told.
    """
    if text is None:
        return list(range(len(uuids))), None
    seen: list[int] = []
    for entry in text.split(","):
        word = entry.strip()
        if word.startswith("MIG-"):
            return None, "CUDA_VISIBLE_DEVICES names a part of a device (MIG): indices cannot be matched"
        if word.upper().startswith("GPU-"):
            at = [i for i, uuid in enumerate(uuids) if uuid is not None and uuid.lower().startswith(word.lower())]
            if any(uuid is None for uuid in uuids) and len(at) != 1:
                return None, "CUDA_VISIBLE_DEVICES names a UUID, and the driver does not tell them all"
            if len(at) != 1:
                return seen, f"CUDA_VISIBLE_DEVICES names {word[:60]}, which is no device here: the list ends there"
            index = at[0]
        else:
            digits = re.match(r"[+-]?\d{1,9}", word)
            index = int(digits[0]) if digits else -1
            if not 0 <= index < len(uuids):
                if not text.strip():
                    return [], "CUDA_VISIBLE_DEVICES is empty: every device is hidden from the server"
                return seen, f"CUDA_VISIBLE_DEVICES has {word[:60]!r}, which is no device here: the list ends there"
        if index in seen:
            return [], "CUDA_VISIBLE_DEVICES names a device twice: CUDA then shows none"
        seen.append(index)
    return seen, None


def cuda_order(devices: tuple[Device, ...], environment: Mapping[str, str] | None, notes: Notes) -> tuple[Device, ...]:
    """Give each NVIDIA device the index under which the server sees it, where that is certain.

    NVML counts by PCI address. CUDA does so with CUDA_DEVICE_ORDER=PCI_BUS_ID; else the fastest comes first, which among unlike cards cannot
    be told from outside: their index stays None, and their server's log must be matched by name or PCI address (:func:`match_named`).
    ``environment``: the server's variables; None if they may not be read, and then only a single card is certain.
    """
    cards = [i for i, one in enumerate(devices) if one.vendor == "nvidia" and "/" not in one.id]
    if not cards:
        return devices
    if environment is None:
        if len(cards) > 1:
            notes.add("the server's environment cannot be read: which index it gives to which card is not certain")
        return devices if len(cards) > 1 else _numbered(devices, {cards[0]: 0})
    by_bus = environment.get("CUDA_DEVICE_ORDER", "").strip().upper() == "PCI_BUS_ID"
    alike = len({devices[i].name for i in cards}) == 1
    chosen = environment.get("CUDA_VISIBLE_DEVICES")
    uuids = [devices[i].uuid for i in cards]
    seen, odd = visible(chosen, uuids)
    if odd is not None:
        notes.add(odd)
    if seen is None:
        return devices
    named = (
        chosen is not None
        and all(word.strip().upper().startswith("GPU-") for word in chosen.split(","))
        and bool(chosen.strip())
    )
    if not (by_bus or alike or named or len(cards) == 1 or not seen):
        notes.add(
            "unlike cards without CUDA_DEVICE_ORDER=PCI_BUS_ID: CUDA puts the fastest first, the driver counts by slot; match by name"
        )
        return devices
    return _numbered(devices, {cards[index]: order for order, index in enumerate(seen)})


def _numbered(devices: tuple[Device, ...], order: Mapping[int, int]) -> tuple[Device, ...]:
    return tuple(
        one.model_copy(update={"cuda_index": order[i]}) if i in order else one for i, one in enumerate(devices)
    )


def match_named(
    seen: Sequence[tuple[str, str | None, int | None]], devices: Sequence[Device]
) -> tuple[str | None, ...]:
    """Match devices as a server's log names them to devices as the driver does.

    ``seen``: (name, PCI address or None, total bytes or None) in the server's order. Gives the device's id for each, None where more than one
    fits. By PCI address; else by name; among equal names by size; among equal cards in the order of the bus only when all of them are seen.
    """
    result: list[str | None] = [None] * len(seen)
    free = list(devices)
    for i, (_name, pci, _total) in enumerate(seen):
        key = pci_key(pci)
        hit = next((one for one in free if key is not None and pci_key(one.pci) == key), None)
        if hit is not None:
            result[i] = hit.id
            free.remove(hit)
    for name in dict.fromkeys(name for i, (name, _pci, _total) in enumerate(seen) if result[i] is None):
        wanted = [i for i, one in enumerate(seen) if one[0] == name and result[i] is None]
        fits = [one for one in free if _plain(one.name) == _plain(name)]
        if len(fits) == len(wanted):
            for i, one in zip(wanted, fits, strict=True):
                result[i] = one.id
        elif len(wanted) == 1:
            sized = [one for one in fits if _near(one.total_bytes, seen[wanted[0]][2])]
            if len(sized) == 1:
                result[wanted[0]] = sized[0].id
    return tuple(result)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _near(a: int | None, b: int | None) -> bool:
    # A server says what its runtime gives, a little less than the driver's total.
    return a is not None and b is not None and abs(a - b) <= max(a, b) * 0.05
