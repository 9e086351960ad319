"""NVIDIA devices through NVML (the package nvidia-ml-py, module ``pynvml``).

What counts as ground truth is ``free`` and ``total - free - reserved``: drivers disagree whether their ``used`` holds the reserved part.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import psutil

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device, DeviceLink, DeviceProcess
from probes.gpu.base import PIDS_NONE, DeviceSample, DeviceSource, Notes, describe_link, plausible, plausible_float
from probes.gpu.host import virtualisation
from probes.gpu.processes import Holders

if TYPE_CHECKING:
    from collections.abc import Sequence

_THROTTLE = {
    0x2: "applications-clocks",
    0x4: "power-cap",
    0x8: "hardware-slowdown",
    0x10: "sync-boost",
    0x20: "thermal-software",
    0x40: "thermal-hardware",
    0x80: "power-brake",
    0x100: "display-clocks",
}
"""Bits of the clocks' event reasons. Idle (1) is no throttling and is left out."""

_DRIVER_MODELS = {0: "WDDM", 1: "TCC", 2: "MCDM"}
Path = Literal["internal", "one-switch", "many-switches", "host-bridge", "numa-node", "system"]
_TOPOLOGY: dict[int, Path] = {
    0: "internal",
    10: "one-switch",
    20: "many-switches",
    30: "host-bridge",
    40: "numa-node",
    50: "system",
}
_PEER_WHY = {
    1: "the chipset does not support it",
    2: "these cards do not support it",
    3: "they hang on different root complexes",
    4: "switched off in the registry",
    5: "not supported",
}
_PEER_READ, _PEER_NVLINK = 0, 2  # literal: the binding's own constant for the first is a tuple by mistake

_SENT, _RECEIVED = 0, 1
_LINK_S = 4.0
"""Seconds between two measurements of a card's link."""

_DRIVER_AWAY = frozenset({1, 9, 12, 18})  # uninitialised, not loaded, library gone, versions differ
_DEVICE_AWAY = frozenset({10, 11, 15, 16, 17, 999})  # timeout, interrupts, lost, reset required, system, unknown

_UNIFIED_BOARDS = re.compile(r"\b(GB10|DGX Spark|Orin|Xavier|Thor|Tegra|Jetson)\b", re.IGNORECASE)
"""Boards whose GPU has no memory of its own; their driver refuses the memory question."""

_UNLISTED_BYTES = 300 << 20
"""In use beyond this with no process listed: the list is incomplete, it is not just the driver's own."""


class _LostError(Exception):
    """One device does not answer any more."""


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Name the reasons that are set; what has no name is given as its bit."""
    unknown = bits & ~(0x1 | sum(_THROTTLE))
    names = [name for bit, name in _THROTTLE.items() if bits & bit]
    return (*names, *((f"0x{unknown:x}",) if 0 < unknown < 1 << 32 else ()))


@dataclass(frozen=True, slots=True)
class Memory:
    """A device's memory in bytes. ``used`` is what programs hold: without what the driver reserves, where it tells that apart."""

    total: int | None
    free: int | None
    used: int | None
    reserved: int | None = None
    odd: str | None = None


def memory_of(total: object, free: object, reserved: object, used: object) -> Memory:
    """Make sense of what the driver says. ``reserved`` None: not told apart. What contradicts itself is left out, with a note."""
    whole, left = plausible(total), plausible(free)
    if whole is None or left is None or whole == 0:
        return Memory(whole or None, left, None, odd="the driver gives no usable memory sizes")
    if left > whole:
        return Memory(whole, None, None, odd="the driver says that more is free than there is")
    kept = plausible(reserved) if reserved is not None else None
    if kept is not None and kept > whole - left:
        return Memory(whole, left, whole - left, odd="the driver says that more is reserved than is in use")
    if kept is None:
        # Version 1: used and free make the total; what the driver keeps is within used.
        said = plausible(used)
        return Memory(whole, left, said if said is not None and said <= whole - left else whole - left)
    return Memory(whole, left, whole - left - kept, kept)


@dataclass(slots=True)
class _Card:
    """One handle, and what it turned out not to support: that is not asked again."""

    id: str
    handle: Any
    name: str = ""
    v2: bool = True
    unsupported: set[str] = field(default_factory=set)
    unified: bool = False
    lost: str | None = None
    link_asked: float = float("-inf")
    """When the link's throughput was last asked (monotonic, seconds)."""


class Nvml(DeviceSource):
    """All NVIDIA devices."""

    name: ClassVar[str] = "nvml"

    def __init__(self, binding: Any) -> None:
        self._nvml = binding
        self._cards: list[_Card] | None = None
        self._open = True

    @classmethod
    def open(cls) -> Nvml:
        """Load NVML. NotOfferedError with the reason: no binding, no library, no driver, another version than the kernel module's."""
        try:
            import pynvml  # noqa: PLC0415 - a vendor library, loaded only when its devices are asked for
        except ImportError as error:
            raise NotOfferedError(f"the module pynvml is missing: install nvidia-ml-py ({error})") from error
        if not hasattr(pynvml, "nvmlDeviceGetComputeRunningProcesses_v3"):
            raise NotOfferedError(
                "the module pynvml is another package or too old: uninstall it and install nvidia-ml-py"
            )
        source = cls(pynvml)
        source._init()
        return source

    def _init(self) -> None:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NotOfferedError(self._why_no_driver(error)) from error
        self._open = True

    @staticmethod
    def _why_no_driver(error: Any) -> str:
        code = getattr(error, "value", None)
        return {
            9: "the NVIDIA kernel driver is not loaded",
            12: "there is no NVIDIA driver library (NVML) on this machine",
            18: "the NVIDIA driver was updated without a restart (library and kernel module differ): restart the machine",
            4: "NVML may not be used by this user",
        }.get(code if isinstance(code, int) else -1, f"NVML does not start: {error}")

    # --- calls -----------------------------------------------------------------------------------------------------------------

    def _ask(self, card: _Card, name: str, *arguments: Any) -> Any:
        """Call one function about one card; None where it is not supported. _LostError, NotOfferedError where card or driver went away."""
        if name in card.unsupported:
            return None
        try:
            return getattr(self._nvml, name)(card.handle, *arguments)
        except self._nvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _DRIVER_AWAY:
                self._open = False
                raise NotOfferedError(f"the NVIDIA driver went away: {error}") from error
            if code in _DEVICE_AWAY:
                raise _LostError(str(error)) from error
            card.unsupported.add(name)  # not supported, or not allowed: neither changes while we look
            return None
        except (
            Exception
        ):  # a name that this binding or driver lacks raises errors of several kinds, none of them NVML's own
            card.unsupported.add(name)
            return None

    def _first(self, card: _Card, *names: str) -> Any:
        """Call the newest of several versions of a function that this driver has."""
        for name in names:
            answer = self._ask(card, name)
            if answer is not None:
                return answer
        return None

    def _all_cards(self) -> list[_Card]:
        if self._cards is not None:
            return self._cards
        try:
            count = int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise NotOfferedError(f"NVML does not count its devices: {error}") from error
        cards: list[_Card] = []
        for index in range(min(count, 256)):
            card = _Card(f"nvidia:{index}", None)
            try:
                card.handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
            except self._nvml.NVMLError as error:
                card.lost = str(error)
            cards.append(card)
            if card.lost is None:
                try:
                    card.name = _text(self._ask(card, "nvmlDeviceGetName")) or ""
                    cards.extend(self._parts(card))
                except _LostError as error:
                    card.lost = str(error)
        self._cards = cards
        return cards

    def _parts(self, card: _Card) -> list[_Card]:
        """Give the parts (MIG) that a card is divided into; each is a device of its own."""
        mode = self._ask(card, "nvmlDeviceGetMigMode")
        if not mode or mode[0] != 1:
            return []
        parts: list[_Card] = []
        for index in range(min(int(self._ask(card, "nvmlDeviceGetMaxMigDeviceCount") or 0), 64)):
            try:
                handle = self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, index)
            except self._nvml.NVMLError:
                continue
            part = _Card(f"{card.id}/mig:{index}", handle)
            part.name = _text(self._ask(part, "nvmlDeviceGetName")) or f"{card.name} part {index}"
            parts.append(part)
        return parts

    def _memory(self, card: _Card) -> Memory:
        info = None
        if card.v2:
            info = self._ask(card, "nvmlDeviceGetMemoryInfo", self._nvml.nvmlMemory_v2)
            if info is None:
                card.v2 = False
                card.unsupported.discard("nvmlDeviceGetMemoryInfo")
            else:
                return memory_of(info.total, info.free, info.reserved, info.used)
        info = self._ask(card, "nvmlDeviceGetMemoryInfo")
        if info is not None:
            return memory_of(info.total, info.free, None, info.used)
        if _UNIFIED_BOARDS.search(card.name):
            card.unified = True
            machine = psutil.virtual_memory()
            return memory_of(machine.total, machine.available, None, None)
        return Memory(None, None, None, odd="the driver does not tell this device's memory")

    def _throttle(self, card: _Card) -> tuple[str, ...] | None:
        bits = self._ask(card, "nvmlDeviceGetCurrentClocksEventReasons")
        if bits is None:
            bits = self._ask(card, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return None if bits is None else throttle_reasons(int(bits))

    def _watts(self, card: _Card, name: str) -> float | None:
        milliwatts = plausible_float(self._ask(card, name), most=1e7)
        return None if milliwatts is None else milliwatts / 1000

    def _busy(self, card: _Card) -> float | None:
        rates = self._ask(card, "nvmlDeviceGetUtilizationRates")
        return None if rates is None else plausible_float(rates.gpu, most=100)

    # --- once ------------------------------------------------------------------------------------------------------------------

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read everything of every device; one that fails is there with a note."""
        self._revive()
        driver: str | None = None
        with contextlib.suppress(self._nvml.NVMLError):
            driver = _text(self._nvml.nvmlSystemGetDriverVersion())
        where = virtualisation() or ""
        holders = holders or Holders(None)
        result = []
        for card in self._all_cards():
            try:
                result.append(self._device(card, driver, where, holders))
            except _LostError as error:
                card.lost = str(error)
                result.append(
                    Device(
                        id=card.id, name=card.name or "NVIDIA device", vendor="nvidia", memory="unknown", driver=driver,
                        notes=(f"this device does not answer: {error}",),
                    )
                )  # fmt: skip
        return tuple(result)

    def _device(self, card: _Card, driver: str | None, where: str, holders: Holders) -> Device:
        if card.handle is None:
            raise _LostError(card.lost or "no handle")
        notes = Notes()
        memory = self._memory(card)
        if memory.odd is not None:
            notes.add(memory.odd)
        if card.unified:
            notes.add("this board's GPU uses the machine's own memory: its sizes are those of the RAM")
        models = self._first(
            card, "nvmlDeviceGetDriverModel_v2", "nvmlDeviceGetDriverModel_v1", "nvmlDeviceGetDriverModel"
        )  # [current, pending]
        model = _DRIVER_MODELS.get(models[0]) if models else None
        generation = plausible(self._ask(card, "nvmlDeviceGetCurrPcieLinkGeneration"), most=16)
        width = plausible(self._ask(card, "nvmlDeviceGetCurrPcieLinkWidth"), most=64)
        generation_max = plausible(self._ask(card, "nvmlDeviceGetMaxPcieLinkGeneration"), most=16)
        width_max = plausible(self._ask(card, "nvmlDeviceGetMaxPcieLinkWidth"), most=64)
        pci = self._ask(card, "nvmlDeviceGetPciInfo")
        processes = self._processes(card, memory, model, where, holders, notes)
        return Device(
            id=card.id,
            name=card.name[:200] or "NVIDIA device",
            vendor="nvidia",
            memory="unified" if card.unified else ("dedicated" if memory.total is not None else "unknown"),
            total_bytes=memory.total,
            free_bytes=memory.free,
            used_bytes=memory.used,
            reserved_bytes=memory.reserved,
            driver=driver,
            driver_model=model,
            uuid=_text(self._ask(card, "nvmlDeviceGetUUID")),
            pci=_text(pci.busId) if pci is not None else None,
            link=describe_link(generation, width, generation_max, width_max),
            link_generation=generation,
            link_width=width,
            link_generation_max=generation_max,
            link_width_max=width_max,
            utilization_percent=self._busy(card),
            power_watts=self._watts(card, "nvmlDeviceGetPowerUsage"),
            power_limit_watts=self._watts(card, "nvmlDeviceGetPowerManagementLimit"),
            temperature_c=plausible_float(self._ask(card, "nvmlDeviceGetTemperature", 0), least=-50, most=200),
            throttle=self._throttle(card),
            processes=processes,
            notes=notes.all(),
        )

    def _held(self, card: _Card) -> dict[int, int | None] | None:
        """Give pid → bytes (None: not told) of all that hold memory; None if no list can be had."""
        held: dict[int, int | None] = {}
        any_list = False
        for kind in ("Compute", "Graphics", "MPSCompute"):
            entries = self._first(
                card, *(f"nvmlDeviceGet{kind}RunningProcesses{version}" for version in ("_v3", "_v2", ""))
            )
            if entries is None:
                continue
            any_list = True
            for entry in entries[:4096]:
                pid = plausible(entry.pid, most=1 << 32)
                if pid is None:
                    continue
                used = plausible(entry.usedGpuMemory)
                known = held.get(pid)
                # A process can be on several lists; each gives its whole use.
                held[pid] = used if known is None else (known if used is None else max(known, used))
        return held if any_list else None

    def _processes(
        self, card: _Card, memory: Memory, model: str | None, where: str, holders: Holders, notes: Notes
    ) -> tuple[DeviceProcess, ...] | None:
        held = self._held(card)
        if held is None:
            notes.add("the driver does not list processes for this device")
            return None
        if any(used is None for used in held.values()):
            notes.add(
                "under WDDM Windows owns the memory: the driver does not say how much each process holds"
                if model == "WDDM"
                else "the driver does not say how much some processes hold (rights, a container, or a divided card)"
            )
        told = sum(used or 0 for used in held.values())
        if not held and memory.used is not None and memory.used > _UNLISTED_BYTES:
            notes.add(
                "memory is in use but no process is listed: "
                + (
                    "a container or WSL does not see the processes outside of it"
                    if where
                    else "processes of others may be hidden"
                )
            )
        elif held and memory.used is not None and memory.total and told > memory.total * 2:
            notes.add(
                "the processes hold more than the device has, by the driver's word: their sizes cannot be trusted"
            )
            held = dict.fromkeys(held)
        found = tuple(holders.describe(pid, used) for pid, used in held.items())
        if any(one.name is None for one in found):
            notes.add(
                "some processes that hold memory have no name here: they run outside of this container or belong to others"
            )
        return tuple(sorted(found, key=lambda one: (-(one.used_bytes or 0), one.pid)))

    def links(self) -> tuple[DeviceLink, ...]:
        """Say how each pair of cards is connected and whether one may read the other's memory."""
        cards = [card for card in self._all_cards() if "/" not in card.id and card.handle is not None][:16]
        found = []
        for i, a in enumerate(cards):
            for b in cards[i + 1 :]:
                try:
                    level = self._ask(a, "nvmlDeviceGetTopologyCommonAncestor", b.handle)
                    peer = self._ask(a, "nvmlDeviceGetP2PStatus", b.handle, _PEER_READ)
                    nvlink = self._ask(a, "nvmlDeviceGetP2PStatus", b.handle, _PEER_NVLINK)
                except _LostError:
                    continue
                found.append(
                    DeviceLink(
                        a=a.id,
                        b=b.id,
                        path=_TOPOLOGY.get(level) if isinstance(level, int) else None,
                        peer_access=None if peer is None or peer == 6 else peer == 0,  # 6: unknown
                        peer_why_not=_PEER_WHY.get(peer) if isinstance(peer, int) else None,
                        nvlink=None if nvlink is None or nvlink == 6 else nvlink == 0,
                    )
                )
        return tuple(found)

    def identities(self) -> tuple[Device, ...]:
        """Say which cards there are."""
        found = []
        for card in self._all_cards():
            if card.handle is None:
                continue
            with contextlib.suppress(_LostError):
                pci = self._ask(card, "nvmlDeviceGetPciInfo")
                name = card.name[:200] or "NVIDIA device"
                found.append(
                    Device(id=card.id, name=name, vendor="nvidia", pci=_text(pci.busId) if pci is not None else None)
                )
        return tuple(found)

    # --- ten times a second ----------------------------------------------------------------------------------------------------

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read memory of every device; with ``full`` the rest too, and what the server holds."""
        self._revive()
        samples = []
        for card in self._all_cards():
            sample = DeviceSample(card.id)
            samples.append(sample)
            if card.handle is None:
                sample.lost = card.lost
                continue
            try:
                memory = self._memory(card)
                sample.used_bytes, sample.free_bytes, sample.total_bytes = memory.used, memory.free, memory.total
                if full:
                    self._sample_more(card, sample, server_pids)
            except _LostError as error:
                sample.lost = str(error)
        return samples

    def _sample_more(self, card: _Card, sample: DeviceSample, server_pids: frozenset[int]) -> None:
        sample.utilization_percent = self._busy(card)
        sample.power_watts = self._watts(card, "nvmlDeviceGetPowerUsage")
        sample.temperature_c = plausible_float(self._ask(card, "nvmlDeviceGetTemperature", 0), least=-50, most=200)
        sample.link_generation = plausible(self._ask(card, "nvmlDeviceGetCurrPcieLinkGeneration"), most=16)
        sample.link_width = plausible(self._ask(card, "nvmlDeviceGetCurrPcieLinkWidth"), most=64)
        sample.link_replays = plausible(self._ask(card, "nvmlDeviceGetPcieReplayCounter"), most=1 << 32)
        self._sample_link(card, sample)
        sample.throttle = frozenset(self._throttle(card) or ())
        if server_pids:
            mine = [used for pid, used in (self._held(card) or {}).items() if pid in server_pids]
            # Not listed can mean hidden as well as nothing held, so it is not zero.
            told = [used for used in mine if used is not None]
            sample.server_bytes = sum(told) if told and len(told) == len(mine) else None

    def _sample_link(self, card: _Card, sample: DeviceSample) -> None:
        """Measure what goes over the link, every few seconds and of one card at a time: each of the two calls takes the driver 20 ms."""
        now = time.monotonic()
        if now - max(one.link_asked for one in self._cards or (card,)) < _LINK_S / max(1, len(self._cards or ())):
            return
        if now - card.link_asked < _LINK_S:
            return
        card.link_asked = now
        for direction, name in ((_SENT, "link_sent"), (_RECEIVED, "link_received")):
            kib = plausible(self._ask(card, "nvmlDeviceGetPcieThroughput", direction), most=1 << 31)
            setattr(sample, name, None if kib is None else kib * 1000)

    def _revive(self) -> None:
        """Start NVML again after the driver went away; NotOfferedError while it stays away."""
        if self._open:
            return
        self._cards = None
        self._init()

    def close(self) -> None:
        """Leave NVML; its library counts how often it was started."""
        if self._open:
            self._open = False
            try:
                self._nvml.nvmlShutdown()
            except self._nvml.NVMLError:
                return


def _text(value: object) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value.strip()[:200] or None if isinstance(value, str) else None
