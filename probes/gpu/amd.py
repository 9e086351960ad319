"""AMD devices: the kernel's own files (amdgpu, Linux) for memory, and amdsmi, where ROCm brings it, for names and processes."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device, DeviceProcess
from probes.gpu.base import (
    PIDS_NONE,
    DeviceSample,
    DeviceSource,
    Notes,
    describe_link,
    generation_of_speed,
    plausible,
    plausible_float,
    read_int,
    read_text,
)  # fmt: skip
from probes.gpu.drm_fdinfo import ROOT, Card, FdinfoReader, cards, describe_holders, link_of
from probes.gpu.drm_ioctl import Call, amd_is_integrated, kernel_call, open_node
from probes.gpu.matching import pci_key
from probes.gpu.processes import Holders

if TYPE_CHECKING:
    from collections.abc import Sequence

AMD_VENDOR = 0x1002
_LEAST_CARD = 1 << 30


@dataclass(slots=True)
class _Amd:
    card: Card
    id: str
    name: str
    unified: bool | None
    sensors: Path | None
    paths: dict[str, str] = field(default_factory=dict)


def is_integrated(card: Card, root: Path, vram: int | None, call: Call = kernel_call) -> bool | None:
    """Say whether a GPU is part of the processor (APU): the driver's own word, else its memory chips; None where neither tells.

    The sizes alone do not: GTT is half of the RAM for a card with memory of its own as well.
    """
    for node in sorted(card.nodes, reverse=True):  # renderD… first: it needs no display rights
        file = open_node(str(root / "dev/dri" / node))
        if file is None:
            continue
        try:
            said = amd_is_integrated(file, card.device, call)
        finally:
            os.close(file)
        if said is not None:
            return said
    maker = (read_text(card.folder / "mem_info_vram_vendor") or "").strip().lower()
    if maker not in {"", "unknown"}:
        return False  # memory chips with a maker's name are soldered to a card
    # A carve-out this small is on no card that holds a model.
    return True if vram is not None and vram < _LEAST_CARD else None


def _sensors(folder: Path) -> Path | None:
    try:
        return next((one for one in sorted((folder / "hwmon").iterdir()) if one.name.startswith("hwmon")), None)
    except OSError:
        return None


class Amd(DeviceSource):
    """All AMD devices of a Linux machine."""

    name: ClassVar[str] = "amd"

    def __init__(self, found: Sequence[Card], root: Path = ROOT, smi: Any = None, call: Call = kernel_call) -> None:
        self._root = root
        self._call = call
        self._reader = FdinfoReader(root)
        self._smi = smi
        self._amds = [self._one(index, card) for index, card in enumerate(found)]

    @classmethod
    def open(cls, root: Path = ROOT, call: Call = kernel_call) -> Amd:
        """Look for amdgpu cards, and for amdsmi. NotOfferedError if there is no such card."""
        found = [card for card in cards(root=root) if card.vendor == AMD_VENDOR and card.driver in {"amdgpu", None}]
        if not found:
            raise NotOfferedError("no AMD card with the amdgpu driver is on this machine")
        return cls(found, root, _load_smi() if root == ROOT else None, call)

    def _one(self, index: int, card: Card) -> _Amd:
        folder = card.folder
        name = (read_text(folder / "product_name") or "").strip()[:200]
        if not name:
            name = f"AMD GPU {card.device:04x}" if card.device is not None else "AMD GPU"
        files = (
            "mem_info_vram_used",
            "mem_info_vram_total",
            "mem_info_gtt_used",
            "mem_info_gtt_total",
            "gpu_busy_percent",
        )
        unified = is_integrated(card, self._root, read_int(folder / "mem_info_vram_total"), self._call)
        return _Amd(card, f"amd:{index}", name, unified, _sensors(folder), {one: str(folder / one) for one in files})

    # --- once ------------------------------------------------------------------------------------------------------------------

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read everything of every card."""
        naming = holders or Holders(None)
        self._reader.scan()
        users = self._reader.by_device()
        told = _smi_facts(self._smi)
        return tuple(self._device(one, users, told.get(pci_key(one.card.pci) or "", {}), naming) for one in self._amds)

    def _device(
        self,
        one: _Amd,
        users: dict[str, dict[int, tuple[int | None, int | None]]],
        told: dict[str, Any],
        naming: Holders,
    ) -> Device:
        notes = Notes()
        folder = one.card.folder
        link = link_of(folder)
        sample = self._memory(one)
        total, shared_total = sample.total_bytes, read_int(one.paths["mem_info_gtt_total"])
        if total is None:
            notes.add("the kernel does not tell this card's memory (mem_info_vram_total)")
        if one.unified:
            notes.add(
                "part of the processor: what it calls its own memory is a part of the RAM, and models live in GTT, which is RAM too"
            )
        if one.unified is None:
            notes.add(
                "whether this GPU is part of the processor could not be told: its device file may not be opened by this user"
            )
        if sample.used_bytes is None and total is not None and read_int(one.paths["mem_info_vram_used"]) is not None:
            notes.add("the kernel says that more is in use than there is")
        if self._reader.refused:
            notes.add("processes of other users cannot be read: what they hold is missing")
        mine = users.get((one.card.pci or "").lower(), {})
        processes = describe_holders(mine, naming, unified=bool(one.unified))
        processes = _with_smi(processes, told.get("processes"), naming)
        width = link.width
        return Device(
            id=one.id,
            name=_smi_text(told.get("name")) or one.name,
            vendor="amd",
            memory="unknown" if one.unified is None else ("unified" if one.unified else "dedicated"),
            total_bytes=total,
            free_bytes=sample.free_bytes,
            used_bytes=sample.used_bytes,
            shared_used_bytes=sample.shared_bytes,
            shared_total_bytes=shared_total,
            carved_bytes=total if one.unified else None,
            driver=_smi_text(told.get("driver")) or "amdgpu",
            uuid=_smi_text(told.get("uuid")) or _unique(folder),
            pci=one.card.pci,
            link=describe_link(link.generation, width, link.generation_max, link.width_max),
            link_generation=link.generation,
            link_width=width,
            link_generation_max=link.generation_max,
            link_width_max=link.width_max,
            utilization_percent=self._busy(one),
            power_watts=self._power(one),
            power_limit_watts=self._micro(one, "power1_cap"),
            temperature_c=self._temperature(one),
            throttle=_smi_throttle(told.get("violations")),
            processes=processes,
            notes=notes.all(),
        )

    # --- ten times a second ----------------------------------------------------------------------------------------------------

    def _memory(self, one: _Amd) -> DeviceSample:
        total, used = read_int(one.paths["mem_info_vram_total"]), read_int(one.paths["mem_info_vram_used"])
        sample = DeviceSample(one.id, total_bytes=total, shared_bytes=read_int(one.paths["mem_info_gtt_used"]))
        if used is not None and (total is None or used <= total):
            sample.used_bytes = used
            sample.free_bytes = None if total is None else total - used
        return sample

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read VRAM and GTT of every card; with ``full`` the rest too."""
        users = self._reader.by_device(server_pids) if server_pids and self._reader.found else {}
        samples = []
        for one in self._amds:
            sample = self._memory(one)
            if sample.used_bytes is None and sample.total_bytes is None and not one.card.folder.exists():
                sample.lost = "its files are gone: the card was removed or its driver unloaded"
            mine = users.get((one.card.pci or "").lower(), {}).values()
            own = [pair[0] for pair in mine if pair[0] is not None]
            shared = [pair[1] for pair in mine if pair[1] is not None]
            sample.server_bytes, sample.server_shared_bytes = sum(own) if own else None, sum(shared) if shared else None
            if full:
                sample.utilization_percent, sample.power_watts = self._busy(one), self._power(one)
                sample.temperature_c = self._temperature(one)
                speed = read_text(one.card.folder / "current_link_speed")
                sample.link_generation = generation_of_speed(speed) if speed else None
            samples.append(sample)
        return samples

    def scan(self, server_pids: frozenset[int] = PIDS_NONE) -> None:
        """Find the server's open files on devices."""
        if server_pids:
            self._reader.scan(server_pids)

    def _busy(self, one: _Amd) -> float | None:
        return plausible_float(read_int(one.paths["gpu_busy_percent"], most=100), most=100)

    def _micro(self, one: _Amd, name: str) -> float | None:
        value = read_int(one.sensors / name, most=10_000_000_000) if one.sensors is not None else None
        return None if value is None else value / 1e6

    def _power(self, one: _Amd) -> float | None:
        average = self._micro(one, "power1_average")
        return average if average is not None else self._micro(one, "power1_input")

    def _temperature(self, one: _Amd) -> float | None:
        value = read_int(one.sensors / "temp1_input", most=200_000) if one.sensors is not None else None
        return None if value is None else value / 1000

    def close(self) -> None:
        """Leave amdsmi."""
        if self._smi is not None:
            with contextlib.suppress(Exception):  # it is being left, and its own exceptions are many
                self._smi.amdsmi_shut_down()


def _unique(folder: Path) -> str | None:
    text = (read_text(folder / "unique_id") or "").strip()
    return text if re.fullmatch(r"[0-9a-fA-F]{8,32}", text) else None


# --- amdsmi ----------------------------------------------------------------------------------------------------------------------


def _load_smi() -> Any:
    """Load and start amdsmi; None where ROCm is not installed or it does not start. The kernel's files do without it."""
    try:
        import amdsmi  # noqa: PLC0415 - a vendor library, loaded only when its devices are asked for

        amdsmi.amdsmi_init()
    except Exception:  # it raises KeyError, OSError and its own when ROCm is incomplete
        return None
    return amdsmi


def _smi_text(value: object) -> str | None:
    """Give a text of amdsmi; its "N/A" is none."""
    return value.strip()[:200] if isinstance(value, str) and value.strip() not in {"", "N/A"} else None


def _smi_throttle(violations: object) -> tuple[str, ...] | None:
    if not isinstance(violations, dict):
        return None
    names = {
        "active_ppt_pwr": "power-cap", "active_socket_thrm": "thermal-socket", "active_vr_thrm": "thermal-regulator",
        "active_hbm_thrm": "thermal-memory", "active_prochot_thrm": "thermal-hardware",
    }  # fmt: skip
    told = {key: violations[key] for key in names if violations.get(key) not in {None, "N/A"}}
    return tuple(names[key] for key, active in told.items() if active is True or active == 1) if told else None


def _smi_facts(smi: Any) -> dict[str, dict[str, Any]]:
    """Ask amdsmi about each device: PCI address → what it tells. A question that fails is left out."""
    facts: dict[str, dict[str, Any]] = {}
    if smi is None:
        return facts

    def ask(name: str, handle: Any) -> Any:
        try:
            return getattr(smi, name)(handle)
        except Exception:  # unsupported here; amdsmi has many exceptions and renames functions between versions
            return None

    try:
        handles = list(smi.amdsmi_get_processor_handles())[:64]
    except Exception:  # as above
        return facts
    for handle in handles:
        key = pci_key(_smi_text(ask("amdsmi_get_gpu_device_bdf", handle)))
        if key is None:
            continue
        asic = ask("amdsmi_get_gpu_asic_info", handle)
        driver = ask("amdsmi_get_gpu_driver_info", handle)
        facts[key] = {
            "name": asic.get("market_name") if isinstance(asic, dict) else None,
            "driver": driver.get("driver_version") if isinstance(driver, dict) else None,
            "uuid": ask("amdsmi_get_gpu_device_uuid", handle),
            "processes": ask("amdsmi_get_gpu_process_list", handle),
            "violations": ask("amdsmi_get_violation_status", handle),
        }
    return facts


def _with_smi(processes: tuple[DeviceProcess, ...], entries: object, naming: Holders) -> tuple[DeviceProcess, ...]:
    """Add the processes that only amdsmi lists: those of the compute driver, which have no fdinfo of ours to read."""
    if not isinstance(entries, list | tuple):
        return processes
    known = {one.pid for one in processes}
    more = []
    for entry in entries[:4096]:
        if not isinstance(entry, dict):
            continue
        pid = plausible(entry.get("pid"), most=1 << 32)
        if pid is None or pid in known:
            continue
        parts = entry.get("memory_usage")
        parts = parts if isinstance(parts, dict) else {}
        used = plausible(parts.get("vram_mem"))
        shared = plausible(parts.get("gtt_mem"))
        if not used and not shared:
            continue
        known.add(pid)
        more.append(naming.describe(pid, used, name=_smi_text(entry.get("name")), shared=shared))
    return tuple(sorted((*processes, *more), key=lambda one: (-(one.used_bytes or 0), one.pid)))
