"""Memory of graphics devices by process, from the kernel's own files (/proc/PID/fdinfo), for every driver that writes them.

Also :class:`Drm`, for cards of vendors that have no file of their own here. See the kernel's page "DRM client usage stats".
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device, DeviceProcess
from probes.gpu.base import PIDS_NONE, DeviceSample, DeviceSource, generation_of_speed, plausible, read_int, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from probes.gpu.processes import Holders

ROOT = Path("/")
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_LINE = re.compile(r"drm-(memory|total|resident|shared)-([\w.-]{1,64}):\s*(\d{1,20})\s*(|B|KiB|MiB|GiB)\s*")
_MOST_FILES = 4096
_MOST_PROCESSES = 8192


@dataclass(frozen=True, slots=True)
class Client:
    """One user of one device: bytes by region and kind of count. ``pdev``: PCI address; ``client``: unique within a device."""

    driver: str
    pdev: str | None
    client: str | None
    regions: dict[str, dict[str, int]] = field(default_factory=dict, hash=False)

    def bytes_in(self, *prefixes: str) -> int | None:
        """Sum the regions whose names begin so: what is resident, else all of it, else the older single count. None if none is told."""
        total: int | None = None
        for region, counts in self.regions.items():
            if not region.startswith(prefixes):
                continue
            for kind in ("resident", "memory", "total"):
                if kind in counts:
                    total = (total or 0) + counts[kind]
                    break
        return total

    @property
    def device_bytes(self) -> int | None:
        """Memory of the device itself."""
        return self.bytes_in("vram", "local", "stolen-local")

    @property
    def shared_bytes(self) -> int | None:
        """System memory that the device uses."""
        return self.bytes_in("gtt", "system", "cpu")


def parse_fdinfo(text: str) -> Client | None:
    """Read one file of fdinfo; None if it is not of a graphics device. Lines that are not understood are skipped."""
    if "drm-driver:" not in text:
        return None
    values: dict[str, str] = {}
    regions: dict[str, dict[str, int]] = {}
    for line in text.splitlines()[:512]:
        match = _LINE.fullmatch(line)
        if match:
            size = plausible(int(match[3]) * _UNITS[match[4]])
            if size is not None and len(regions) < 64:
                regions.setdefault(match[2], {})[match[1]] = size
        elif line.startswith("drm-"):
            key, _, value = line.partition(":")
            values.setdefault(key, value.strip()[:200])
    return Client(
        values.get("drm-driver", ""), values.get("drm-pdev") or None, values.get("drm-client-id") or None, regions
    )


@dataclass(slots=True)
class FdinfoReader:
    """Finds and reads the fdinfo files of processes. Finding is dear; reading what was found is cheap."""

    root: Path = ROOT
    found: dict[int, tuple[str, ...]] = field(default_factory=dict)
    refused: int = 0

    def scan(self, pids: Iterable[int] | None = None) -> None:
        """Look for open files on graphics devices: of ``pids``, else of all processes that may be read."""
        self.refused = 0
        if pids is None:
            try:
                names = os.listdir(self.root / "proc")  # noqa: PTH208 - thousands of names
            except OSError:
                names = []
            wanted = [int(name) for name in names if name.isdecimal()][:_MOST_PROCESSES]
        else:
            wanted = sorted(pids)
        found: dict[int, tuple[str, ...]] = {}
        for pid in wanted:
            files = self._files(pid)
            if files:
                found[pid] = files
        if pids is None:
            self.found = found
        else:
            self.found = {**{pid: files for pid, files in self.found.items() if pid not in set(wanted)}, **found}

    def _files(self, pid: int) -> tuple[str, ...]:
        folder = self.root / "proc" / str(pid)
        try:
            names = os.listdir(folder / "fd")  # noqa: PTH208
        except PermissionError:
            self.refused += 1
            return ()
        except OSError:
            return ()
        files = []
        for name in names[:_MOST_FILES]:
            try:
                target = os.readlink(folder / "fd" / name)  # noqa: PTH115
            except OSError:
                continue
            if target.startswith(("/dev/dri/", "/dev/accel/")):
                files.append(str(folder / "fdinfo" / name))
        return tuple(files)

    def clients(self, pids: Iterable[int] | None = None) -> dict[int, list[Client]]:
        """Read what was found: pid → its clients, each (device, client) once although a process may have it open often."""
        result: dict[int, list[Client]] = {}
        for pid in sorted(self.found if pids is None else set(pids) & self.found.keys()):
            seen: set[tuple[str, str]] = set()
            for path in self.found[pid]:
                text = read_text(path, most=16_384)
                client = parse_fdinfo(text) if text is not None else None
                if client is None:
                    continue
                key = (client.pdev or "", client.client or path)
                if key not in seen:
                    seen.add(key)
                    result.setdefault(pid, []).append(client)
        return result

    def by_device(self, pids: Iterable[int] | None = None) -> dict[str, dict[int, tuple[int | None, int | None]]]:
        """Sum by device: PCI address → pid → (bytes of the device, bytes of system memory).

        A client that several processes share (an inherited file) is counted for the first of them only.
        """
        result: dict[str, dict[int, tuple[int | None, int | None]]] = {}
        shared: set[tuple[str, str]] = set()
        for pid, clients in self.clients(pids).items():
            for client in clients:
                pdev = (client.pdev or "").lower()
                if client.client is not None:
                    if (pdev, client.client) in shared:
                        continue
                    shared.add((pdev, client.client))
                own, other = result.setdefault(pdev, {}).get(pid, (None, None))
                result[pdev][pid] = _plus(own, client.device_bytes), _plus(other, client.shared_bytes)
        return result


def _plus(a: int | None, b: int | None) -> int | None:
    return b if a is None else (a if b is None else a + b)


def describe_holders(
    users: dict[int, tuple[int | None, int | None]], holders: Holders, *, unified: bool = False
) -> tuple[DeviceProcess, ...]:
    """Name those that hold memory, greatest first; who holds none (a desktop's idle client) is left out."""
    found = []
    for pid, (own, shared) in users.items():
        if not own and not shared:
            continue
        used = _plus(own, shared) if unified else own
        found.append(holders.describe(pid, used, shared=shared))
    return tuple(sorted(found, key=lambda one: (-(one.used_bytes or 0), -(one.shared_bytes or 0), one.pid)))


@dataclass(frozen=True, slots=True)
class Card:
    """A graphics card as sysfs has it."""

    folder: Path
    vendor: int
    pci: str | None
    driver: str | None
    device: int | None = None
    nodes: tuple[str, ...] = ()
    """Names of its files below /dev/dri."""


def cards(*, root: Path = ROOT) -> tuple[Card, ...]:
    """List the graphics cards of /sys/class/drm in the order of the bus; connectors and control nodes are left out."""
    base = root / "sys/class/drm"
    try:
        names = os.listdir(base)  # noqa: PTH208
    except OSError:
        return ()
    found: dict[str, Card] = {}
    for name in sorted(names, key=lambda one: (len(one), one))[:512]:
        if not re.fullmatch(r"card\d+|renderD\d+", name):
            continue
        folder = base / name / "device"
        event = read_text(folder / "uevent") or ""
        values = dict(line.split("=", 1) for line in event.splitlines() if "=" in line)
        pci = values.get("PCI_SLOT_NAME")
        try:
            vendor = int((read_text(folder / "vendor") or "").strip(), 16)
        except ValueError:
            vendor = 0
        try:
            device: int | None = int((read_text(folder / "device") or "").strip(), 16)
        except ValueError:
            device = None
        key = pci or os.path.realpath(folder)
        known = found.get(key)
        if known is None:
            found[key] = Card(folder, vendor, pci, values.get("DRIVER"), device, (name,))
        else:
            found[key] = Card(known.folder, vendor, pci, known.driver, device, (*known.nodes, name))
    return tuple(found[key] for key in sorted(found))


@dataclass(frozen=True, slots=True)
class Link:
    """A card's PCIe link as sysfs has it; fields None where the file is absent or says "Unknown"."""

    generation: int | None = None
    width: int | None = None
    generation_max: int | None = None
    width_max: int | None = None


def link_of(folder: Path) -> Link:
    """Read a device's link from sysfs."""
    return Link(
        generation_of_speed(read_text(folder / "current_link_speed") or ""),
        read_int(folder / "current_link_width", most=64) or None,
        generation_of_speed(read_text(folder / "max_link_speed") or ""),
        read_int(folder / "max_link_width", most=64) or None,
    )


OTHERS_KNOWN = frozenset({0x10DE, 0x1002, 0x8086})
"""Vendors that have a file of their own here."""


class Drm(DeviceSource):
    """Cards of any other vendor, and NVIDIA's under the open kernel driver (nouveau), which NVML does not know."""

    name: ClassVar[str] = "drm-fdinfo"

    def __init__(self, found: Sequence[Card], root: Path = ROOT) -> None:
        self._cards = tuple(found)
        self._reader = FdinfoReader(root)
        self._root = root

    @classmethod
    def open(cls, root: Path = ROOT) -> Drm:
        """Look for such cards. NotOfferedError if there is none."""
        found = [card for card in cards(root=root) if card.vendor not in OTHERS_KNOWN or card.driver == "nouveau"]
        if not found:
            raise NotOfferedError("no graphics card of another vendor is on this machine")
        return cls(found, root)

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read each card: only what processes hold is told, not how large the memory is."""
        from probes.gpu.processes import Holders as Naming  # noqa: PLC0415 - only when names are wanted

        naming = holders or Naming(None)
        self._reader.scan()
        users = self._reader.by_device()
        result = []
        for index, card in enumerate(self._cards):
            mine = users.get((card.pci or "").lower(), {})
            sums = [_sum(one[part] for one in mine.values()) for part in (0, 1)]
            notes = ["this driver tells what processes hold, not how much memory there is"]
            if self._reader.refused:
                notes.append("processes of other users cannot be read: what they hold is missing")
            result.append(
                Device(
                    id=f"drm:{index}", name=f"{card.driver or 'graphics'} {card.pci or ''}".strip(), vendor="other", memory="unknown",
                    shared_used_bytes=sums[1], driver=card.driver, pci=card.pci, processes=describe_holders(mine, naming),
                    notes=tuple(notes),
                )
            )  # fmt: skip
        return tuple(result)

    def scan(self, server_pids: frozenset[int] = PIDS_NONE) -> None:
        """Find the server's open files on devices."""
        self._reader.scan(server_pids)

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read what the server holds of each card."""
        del full
        users = self._reader.by_device(server_pids)
        samples = []
        for index, card in enumerate(self._cards):
            mine = users.get((card.pci or "").lower(), {}).values()
            samples.append(
                DeviceSample(
                    f"drm:{index}",
                    server_bytes=_sum(one[0] for one in mine),
                    server_shared_bytes=_sum(one[1] for one in mine),
                )
            )
        return samples


def _sum(values: Iterable[int | None]) -> int | None:
    told = [value for value in values if value is not None]
    return sum(told) if told else None
