"""Intel devices under i915 and xe (Linux): regions by question to the driver, use by process from fdinfo, the rest from sysfs.

Neither driver has files with the size of its memory, and both tell free memory only to a privileged process. What this user's processes
hold is known from fdinfo; what others hold is not, and a note says so.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device
from probes.gpu.base import PIDS_NONE, DeviceSample, DeviceSource, Notes, describe_link, read_int
from probes.gpu.drm_fdinfo import ROOT, Card, FdinfoReader, cards, describe_holders, link_of
from probes.gpu.drm_ioctl import Call, Region, i915_regions, kernel_call, open_node, xe_regions
from probes.gpu.processes import Holders

if TYPE_CHECKING:
    from collections.abc import Sequence

INTEL_VENDOR = 0x8086
Users = dict[int, tuple[int | None, int | None]]


@dataclass(slots=True)
class _Intel:
    card: Card
    id: str
    regions: tuple[Region, ...] | None

    @property
    def total(self) -> int | None:
        """Size of the device's own memory; None if the driver does not tell or there is none."""
        own = [one.total for one in self.regions or () if one.kind == "device" and one.total is not None]
        return sum(own) if own else None

    @property
    def unified(self) -> bool | None:
        """Whether it has no memory of its own; None where that is not told."""
        return None if self.regions is None else not any(one.kind == "device" for one in self.regions)


class Intel(DeviceSource):
    """All Intel devices of a Linux machine."""

    name: ClassVar[str] = "intel"

    def __init__(self, found: Sequence[Card], root: Path = ROOT, call: Call = kernel_call) -> None:
        self._root = root
        self._call = call
        self._reader = FdinfoReader(root)
        self._intels = [_Intel(card, f"intel:{index}", self._regions(card)) for index, card in enumerate(found)]

    @classmethod
    def open(cls, root: Path = ROOT, call: Call = kernel_call) -> Intel:
        """Look for i915 and xe cards. NotOfferedError if there is none."""
        found = [card for card in cards(root=root) if card.vendor == INTEL_VENDOR and card.driver in {"i915", "xe"}]
        if not found:
            raise NotOfferedError("no Intel card with the i915 or xe driver is on this machine")
        return cls(found, root, call)

    def _regions(self, card: Card) -> tuple[Region, ...] | None:
        ask = xe_regions if card.driver == "xe" else i915_regions
        for node in sorted(card.nodes, reverse=True):  # renderD… first: it needs no display rights
            file = open_node(str(self._root / "dev/dri" / node))
            if file is None:
                continue
            try:
                regions = ask(file, self._call)
            finally:
                os.close(file)
            if regions is not None:
                return regions
        return None

    def _free(self, one: _Intel) -> int | None:
        regions = self._regions(one.card)
        own = [region.free for region in regions or () if region.kind == "device"]
        known = [free for free in own if free is not None]
        return sum(known) if known and len(known) == len(own) else None

    # --- once ------------------------------------------------------------------------------------------------------------------

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read everything of every card."""
        naming = holders or Holders(None)
        self._reader.scan()
        users = self._reader.by_device()
        return tuple(self._device(one, users.get((one.card.pci or "").lower(), {}), naming) for one in self._intels)

    def _device(self, one: _Intel, users: Users, naming: Holders) -> Device:
        notes = Notes()
        link = link_of(one.card.folder)
        total, free = one.total, self._free(one)
        if one.unified:
            notes.add("part of the processor: it uses the machine's own memory")
        elif total is None:
            notes.add(
                "the driver does not tell the size of this card's memory: the device file may not be opened by this user"
            )
        if free is None and total is not None:
            notes.add(
                "the driver tells free memory only to a privileged process: only what this user's processes hold is known"
            )
        if self._reader.refused:
            notes.add("processes of other users cannot be read: what they hold is missing")
        shared = _told(users, 1)
        return Device(
            id=one.id,
            name=f"Intel GPU {one.card.device:04x}" if one.card.device is not None else "Intel GPU",
            vendor="intel",
            memory="unknown" if one.unified is None else ("unified" if one.unified else "dedicated"),
            total_bytes=total,
            free_bytes=free,
            used_bytes=None if total is None or free is None else total - free,
            shared_used_bytes=shared,
            driver=one.card.driver,
            pci=one.card.pci,
            link=None
            if one.unified
            else describe_link(link.generation, link.width, link.generation_max, link.width_max),
            link_generation=link.generation,
            link_width=link.width,
            link_generation_max=link.generation_max,
            link_width_max=link.width_max,
            throttle=throttle_reasons(one.card),
            processes=describe_holders(users, naming, unified=bool(one.unified)),
            notes=notes.all(),
        )

    # --- ten times a second ----------------------------------------------------------------------------------------------------

    def scan(self, server_pids: frozenset[int] = PIDS_NONE) -> None:
        """Find the open files on devices: of every process that may be read, as only their sum tells what is in use."""
        del server_pids
        self._reader.scan()

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read what processes hold; with ``full`` free memory as well, where the driver tells it."""
        # Others are read with the full sample only: there may be a whole desktop of them.
        users = self._reader.by_device(None if full else server_pids)
        samples = []
        for one in self._intels:
            mine = users.get((one.card.pci or "").lower(), {})
            server = {pid: pair for pid, pair in mine.items() if pid in server_pids}
            sample = DeviceSample(one.id, total_bytes=one.total)
            sample.server_bytes, sample.server_shared_bytes = _told(server, 0), _told(server, 1)
            if full:
                sample.shared_bytes = _told(mine, 1)
                free = self._free(one)
                if free is not None and one.total is not None:
                    sample.free_bytes, sample.used_bytes = free, one.total - free
                sample.throttle = frozenset(throttle_reasons(one.card) or ())
            if not one.card.folder.exists():
                sample.lost = "its files are gone: the card was removed or its driver unloaded"
            samples.append(sample)
        return samples


def _told(users: Users, part: int) -> int | None:
    told = [pair[part] for pair in users.values()]
    known = [one for one in told if one is not None]
    return sum(known) if known else None


def throttle_reasons(card: Card) -> tuple[str, ...] | None:
    """Read why the GPU is slowed down from sysfs (i915: gt/gt0/throttle_reason_…, xe: tile0/gt0/freq0/throttle/reason_…); None: not told."""
    drm = card.folder / "drm"
    folders: list[tuple[Path, str]] = [(card.folder / "tile0/gt0/freq0/throttle", "reason_")]
    folders.extend((drm / node / "gt/gt0", "throttle_reason_") for node in card.nodes if node.startswith("card"))
    for folder, prefix in folders:
        try:
            names = sorted(name for name in os.listdir(folder) if name.startswith(prefix))  # noqa: PTH208 - names only
        except OSError:
            continue
        if names:
            active = (name.removeprefix(prefix) for name in names if read_int(folder / name, most=1) == 1)
            return tuple(name for name in active if name != "status")
    return None
