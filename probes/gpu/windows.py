"""Windows: dedicated and shared memory of each adapter and process, from the system's performance counters, in any language.

These counters are the only ones that show a spill under WDDM: when a card is full, the driver moves pages to shared system memory and no
error is seen. Counters are added by their English names, which works on every language of Windows.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from ctypes import wintypes
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device, DeviceProcess
from probes.gpu.base import PIDS_NONE, DeviceSample, DeviceSource, Notes, plausible, plausible_float
from probes.gpu.processes import Holders

Luid = tuple[int, int]
"""Which adapter, until the next restart: (high, low) part."""

COUNTERS: dict[str, str] = {
    "adapter-dedicated": r"\GPU Adapter Memory(*)\Dedicated Usage",
    "adapter-shared": r"\GPU Adapter Memory(*)\Shared Usage",
    "process-dedicated": r"\GPU Process Memory(*)\Dedicated Usage",
    "process-shared": r"\GPU Process Memory(*)\Shared Usage",
    "engine": r"\GPU Engine(*)\Utilization Percentage",
}

_INSTANCE = re.compile(
    r"(?:pid_(?P<pid>\d{1,10})_)?luid_0x(?P<high>[0-9a-f]{1,8})_0x(?P<low>[0-9a-f]{1,8})_phys_(?P<phys>\d{1,3})"
    r"(?:_eng_(?P<engine>\d{1,4})(?:_engtype_(?P<type>.{0,40}))?)?(?:#\d+)?",
    re.IGNORECASE,
)
_MOST_ITEMS = 20_000


@dataclass(frozen=True, slots=True)
class Instance:
    """What an instance's name tells: ``pid_4321_luid_0x00000000_0x0000D3A1_phys_0``, say."""

    luid: Luid
    pid: int | None
    part: int
    engine: int | None = None
    kind: str | None = None


def parse_instance(name: str) -> Instance | None:
    """Read the name of an instance; None if it is not one of the graphics counters' (they are the same in every language)."""
    match = _INSTANCE.fullmatch(name)
    if match is None:
        return None
    return Instance(
        luid=(int(match["high"], 16), int(match["low"], 16)),
        pid=int(match["pid"]) if match["pid"] is not None else None,
        part=int(match["phys"]),
        engine=int(match["engine"]) if match["engine"] is not None else None,
        kind=match["type"],
    )


@dataclass(slots=True)
class Usage:
    """One adapter's memory and use at one moment. Bytes and percent; processes: pid → (dedicated, shared)."""

    dedicated: int | None = None
    shared: int | None = None
    busy: float | None = None
    processes: dict[int, tuple[int | None, int | None]] = field(default_factory=dict)


def usage_of(readings: Mapping[str, Sequence[tuple[str, float]]]) -> dict[Luid, Usage]:
    """Sort the instances of all counters by adapter. Values that are no plausible size, and names that are not understood, are left out."""
    found: dict[Luid, Usage] = {}
    engines: dict[Luid, dict[tuple[int, int], float]] = {}
    for counter, items in readings.items():
        for name, value in items[:_MOST_ITEMS]:
            instance = parse_instance(name)
            if instance is None:
                continue
            usage = found.setdefault(instance.luid, Usage())
            if counter == "engine":
                percent = plausible_float(value, most=10_000)
                if percent is not None and instance.engine is not None:
                    load = engines.setdefault(instance.luid, {})
                    key = (instance.part, instance.engine)
                    load[key] = load.get(key, 0.0) + percent
                continue
            size = plausible(value)
            if size is None:
                continue
            if counter == "adapter-dedicated":
                usage.dedicated = (usage.dedicated or 0) + size
            elif counter == "adapter-shared":
                usage.shared = (usage.shared or 0) + size
            elif instance.pid is not None:
                own, shared = usage.processes.get(instance.pid, (None, None))
                if counter == "process-dedicated":
                    own = (own or 0) + size
                else:
                    shared = (shared or 0) + size
                usage.processes[instance.pid] = own, shared
    for luid, load in engines.items():
        # As the Task Manager does: the busiest engine, over all processes.
        found[luid].busy = min(100.0, max(load.values()))
    return found


# --- the counters' library -------------------------------------------------------------------------------------------------------


class _Value(ctypes.Union):
    _fields_ = [("double", ctypes.c_double), ("large", ctypes.c_longlong)]


class _Counter(ctypes.Structure):
    _fields_ = [("status", wintypes.DWORD), ("value", _Value)]


class _Item(ctypes.Structure):
    _fields_ = [("name", ctypes.c_wchar_p), ("counter", _Counter)]


_LARGE, _DOUBLE, _NO_CAP = 0x400, 0x200, 0x8000
_MORE_DATA = 0x800007D2
_NO_DATA = frozenset({0x800007D5, 0xC0000BC6, 0x800007D6})
_ABSENT = frozenset({0xC0000BB8, 0xC0000BB9, 0xC0000BC4, 0xC0000BC0})
_VALID = frozenset({0, 1})
_MOST_BUFFER = 16 << 20


class Pdh:
    """One query of the performance counters (pdh.dll)."""

    def __init__(self, library: Any) -> None:
        self._dll = library
        self._query = ctypes.c_void_p()
        self._counters: dict[str, ctypes.c_void_p] = {}
        library.PdhOpenQueryW.argtypes = [ctypes.c_wchar_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p)]
        library.PdhAddEnglishCounterW.argtypes = [
            ctypes.c_void_p, ctypes.c_wchar_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
        ]  # fmt: skip
        library.PdhCollectQueryData.argtypes = [ctypes.c_void_p]
        library.PdhGetFormattedCounterArrayW.argtypes = [
            ctypes.c_void_p, wintypes.DWORD, ctypes.POINTER(wintypes.DWORD), ctypes.POINTER(wintypes.DWORD), ctypes.c_void_p,
        ]  # fmt: skip
        library.PdhCloseQuery.argtypes = [ctypes.c_void_p]
        status = library.PdhOpenQueryW(None, 0, ctypes.byref(self._query)) & 0xFFFFFFFF
        if status:
            raise NotOfferedError(f"the performance counters cannot be opened (PDH 0x{status:08X})")

    def add(self, counters: Mapping[str, str]) -> dict[str, int]:
        """Add counters by their English names; gives those that are refused, with the code."""
        refused: dict[str, int] = {}
        for name, path in counters.items():
            counter = ctypes.c_void_p()
            status = self._dll.PdhAddEnglishCounterW(self._query, path, 0, ctypes.byref(counter)) & 0xFFFFFFFF
            if status:
                refused[name] = status
            else:
                self._counters[name] = counter
        return refused

    def collect(self) -> dict[str, list[tuple[str, float]]]:
        """Collect every counter: name → instances with their values. NotOfferedError if the query as a whole fails."""
        status = self._dll.PdhCollectQueryData(self._query) & 0xFFFFFFFF
        if status in _NO_DATA:
            return {name: [] for name in self._counters}  # no process uses the GPU at this moment
        if status:
            raise NotOfferedError(f"the performance counters cannot be read (PDH 0x{status:08X})")
        return {
            name: self._array(counter, _DOUBLE | _NO_CAP if name == "engine" else _LARGE)
            for name, counter in self._counters.items()
        }

    def _array(self, counter: ctypes.c_void_p, kind: int) -> list[tuple[str, float]]:
        size, count = wintypes.DWORD(0), wintypes.DWORD(0)
        # Processes come and go: between asking for the size and for the values the array can have grown.
        for _attempt in range(4):
            buffer = ctypes.create_string_buffer(size.value) if size.value else None
            status = (
                self._dll.PdhGetFormattedCounterArrayW(counter, kind, ctypes.byref(size), ctypes.byref(count), buffer)
                & 0xFFFFFFFF
            )
            if status == _MORE_DATA:
                if size.value > _MOST_BUFFER:
                    return []
                continue
            if status or buffer is None:
                return []
            if count.value * ctypes.sizeof(_Item) > len(buffer):
                return []
            items = ctypes.cast(buffer, ctypes.POINTER(_Item))
            found = []
            for index in range(min(count.value, _MOST_ITEMS)):
                item = items[index]
                if item.counter.status in _VALID and item.name is not None:
                    value = item.counter.value.double if kind & _DOUBLE else item.counter.value.large
                    found.append((str(item.name), value))
            return found
        return []

    def close(self) -> None:
        """Close the query."""
        self._dll.PdhCloseQuery(self._query)


# --- adapters --------------------------------------------------------------------------------------------------------------------

_VENDORS: dict[int, Literal["nvidia", "amd", "intel"]] = {
    0x10DE: "nvidia",
    0x1002: "amd",
    0x1022: "amd",
    0x8086: "intel",
}
_MICROSOFT = 0x1414
"""Its adapters are drawn by the processor."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter as Windows knows it. Sizes in bytes; ``bus``: PCI (bus, device, function)."""

    luid: Luid
    name: str
    vendor: int | None = None
    dedicated_total: int | None = None
    shared_total: int | None = None
    driver: str | None = None
    bus: tuple[int, int, int] | None = None

    @property
    def pci(self) -> str | None:
        """The PCI address as the others write it; Windows has one domain on the machines that this is for."""
        return f"0000:{self.bus[0]:02x}:{self.bus[1]:02x}.{self.bus[2]:x}" if self.bus is not None else None


def adapters_of(keys: Sequence[Mapping[str, object]]) -> tuple[Adapter, ...]:
    """Make adapters of the values that Windows keeps of each below SOFTWARE/Microsoft/DirectX. Without a LUID one cannot be matched."""
    found: dict[Luid, Adapter] = {}
    for key in keys[:256]:
        number = key.get("AdapterLuid")
        if not isinstance(number, int) or not 0 <= number < 1 << 64:
            continue
        vendor = key.get("VendorId")
        name = key.get("Description")
        luid = (number >> 32, number & 0xFFFFFFFF)
        found[luid] = Adapter(
            luid=luid,
            name=name[:200] if isinstance(name, str) and name else "graphics adapter",
            vendor=vendor if isinstance(vendor, int) else None,
            dedicated_total=plausible(key.get("DedicatedVideoMemory")),
            shared_total=plausible(key.get("SharedSystemMemory")),
            driver=_version(key.get("DriverVersion")),
        )
    return tuple(found.values())


def _version(value: object) -> str | None:
    if not isinstance(value, int) or not 0 < value < 1 << 64:
        return None
    return ".".join(str(value >> shift & 0xFFFF) for shift in (48, 32, 16, 0))


def _registry() -> list[dict[str, object]]:
    """Read what Windows keeps of its adapters."""
    keys: list[dict[str, object]] = []
    if sys.platform == "win32":
        import winreg  # noqa: PLC0415 - only on that system

        with (
            contextlib.suppress(OSError),
            winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"SOFTWARE\Microsoft\DirectX") as top,
        ):
            for index in range(256):
                with winreg.OpenKey(top, winreg.EnumKey(top, index)) as one:
                    values: dict[str, object] = {}
                    for name in (
                        "AdapterLuid",
                        "Description",
                        "VendorId",
                        "DedicatedVideoMemory",
                        "SharedSystemMemory",
                        "DriverVersion",
                    ):
                        with contextlib.suppress(OSError):
                            values[name] = winreg.QueryValueEx(one, name)[0]
                    keys.append(values)
    return keys


class _OpenFromLuid(ctypes.Structure):
    _fields_ = [("low", wintypes.DWORD), ("high", wintypes.LONG), ("handle", wintypes.UINT)]


class _QueryInfo(ctypes.Structure):
    _fields_ = [("handle", wintypes.UINT), ("kind", ctypes.c_int), ("data", ctypes.c_void_p), ("size", wintypes.UINT)]


_SEGMENT_SIZES, _ADDRESS = 3, 6


def ask_kernel(adapter: Adapter, gdi: Any) -> Adapter:
    """Fill in sizes and PCI address from the graphics kernel (gdi32's D3DKMT calls); what it refuses stays as it was."""
    opened = _OpenFromLuid(adapter.luid[1], ctypes.c_long(adapter.luid[0]).value, 0)
    if gdi.D3DKMTOpenAdapterFromLuid(ctypes.byref(opened)):
        return adapter
    try:
        sizes = (ctypes.c_ulonglong * 3)()  # dedicated video, dedicated system, shared system
        address = (wintypes.UINT * 3)()
        dedicated, shared, bus = adapter.dedicated_total, adapter.shared_total, adapter.bus
        if _query(gdi, opened.handle, _SEGMENT_SIZES, sizes):
            dedicated = plausible(int(sizes[0])) or dedicated
            shared = plausible(int(sizes[2])) or shared
        if _query(gdi, opened.handle, _ADDRESS, address) and address[0] < 256 and address[1] < 32 and address[2] < 8:
            bus = (int(address[0]), int(address[1]), int(address[2]))
    finally:
        handle = wintypes.UINT(opened.handle)
        gdi.D3DKMTCloseAdapter(ctypes.byref(handle))
    return Adapter(adapter.luid, adapter.name, adapter.vendor, dedicated, shared, adapter.driver, bus)


def _query(gdi: Any, handle: int, kind: int, data: Any) -> bool:
    question = _QueryInfo(handle, kind, ctypes.cast(data, ctypes.c_void_p), ctypes.sizeof(data))
    return bool(gdi.D3DKMTQueryAdapterInfo(ctypes.byref(question)) == 0)


def _load(name: str) -> Any:
    if sys.platform != "win32":
        raise NotOfferedError("these counters are Windows' own")
    try:
        return ctypes.WinDLL(name)
    except OSError as error:
        raise NotOfferedError(f"{name} cannot be loaded: {error}") from error


class Windows(DeviceSource):
    """All adapters of a Windows machine; for NVIDIA's it adds to NVML what only Windows knows."""

    name: ClassVar[str] = "windows"
    pace_s: ClassVar[float] = 0.2

    def __init__(self, pdh: Pdh, adapters: Callable[[], Sequence[Adapter]]) -> None:
        self._pdh = pdh
        self._find = adapters
        self._adapters: tuple[Adapter, ...] = ()

    @classmethod
    def open(cls) -> Windows:
        """Open the counters. NotOfferedError before Windows 10 1709, and on other systems."""
        pdh = Pdh(_load("pdh"))
        gdi = _load("gdi32")
        return cls.over(pdh, lambda: [ask_kernel(one, gdi) for one in adapters_of(_registry())])

    @classmethod
    def over(cls, pdh: Pdh, adapters: Callable[[], Sequence[Adapter]]) -> Windows:
        """Build it over an opened query and a finder of adapters."""
        refused = pdh.add(COUNTERS)
        if {"adapter-dedicated", "process-shared"} <= refused.keys():
            pdh.close()
            code = refused["adapter-dedicated"]
            why = (
                "this Windows has no graphics counters (they came with Windows 10 1709)"
                if code in _ABSENT
                else "they are refused"
            )
            raise NotOfferedError(f"{why} (PDH 0x{code:08X})")
        source = cls(pdh, adapters)
        pdh.collect()  # a rate needs a first reading
        return source

    def _seen(self) -> tuple[dict[Luid, Usage], tuple[Adapter, ...]]:
        usage = usage_of(self._pdh.collect())
        known = {one.luid for one in self._adapters}
        if not self._adapters or not usage.keys() <= known:
            told = {one.luid: one for one in self._find()}
            # Keys of adapters that are gone stay in the registry: one without counters is not there.
            self._adapters = tuple(told.get(luid) or Adapter(luid, "graphics adapter") for luid in sorted(usage))
        return usage, tuple(one for one in self._adapters if one.vendor != _MICROSOFT)

    def identities(self) -> tuple[Device, ...]:
        """Say which adapters there are, to match them with another source's."""
        _usage, adapters = self._seen()
        return tuple(self._plain(index, one) for index, one in enumerate(adapters))

    @staticmethod
    def _plain(index: int, one: Adapter) -> Device:
        return Device(id=f"windows:{index}", name=one.name, vendor=_VENDORS.get(one.vendor or 0, "other"), pci=one.pci)

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read every adapter with the processes that hold its memory."""
        naming = holders or Holders(None)
        usage, adapters = self._seen()
        result = []
        for index, one in enumerate(adapters):
            now = usage.get(one.luid, Usage())
            notes = Notes()
            total = one.dedicated_total or None
            small = total is None or total < 1 << 30
            plain = self._plain(index, one)
            if plain.vendor != "nvidia" and not small:
                notes.add("whether this GPU is part of the processor is not told by Windows")
            used = now.dedicated
            if used is not None and total is not None and used > total:
                notes.add("Windows counts more dedicated memory than the adapter has")
            result.append(
                plain.model_copy(
                    update={
                        "memory": "dedicated"
                        if plain.vendor == "nvidia"
                        else ("unified" if small and total is not None else "unknown"),
                        "total_bytes": total,
                        "used_bytes": used,
                        "free_bytes": None if total is None or used is None or used > total else total - used,
                        "shared_used_bytes": now.shared,
                        "shared_total_bytes": one.shared_total,
                        "driver": one.driver,
                        "utilization_percent": now.busy,
                        "processes": self._processes(now, naming),
                        "notes": notes.all(),
                    }
                )
            )
        return tuple(result)

    @staticmethod
    def _processes(now: Usage, naming: Holders) -> tuple[DeviceProcess, ...]:
        found = [
            naming.describe(pid, own, shared=shared) for pid, (own, shared) in now.processes.items() if own or shared
        ]
        return tuple(sorted(found, key=lambda one: (-(one.used_bytes or 0), -(one.shared_bytes or 0), one.pid)))[:256]

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read dedicated and shared memory of every adapter, and what of it is the server's."""
        del full
        usage, adapters = self._seen()
        samples = []
        for index, one in enumerate(adapters):
            now = usage.get(one.luid)
            sample = DeviceSample(f"windows:{index}")
            samples.append(sample)
            if now is None:
                sample.lost = "its counters are gone: the driver restarted, or the card was removed"
                continue
            mine = [pair for pid, pair in now.processes.items() if pid in server_pids]
            total = one.dedicated_total
            sample.total_bytes, sample.used_bytes, sample.shared_bytes = total, now.dedicated, now.shared
            if total is not None and now.dedicated is not None and now.dedicated <= total:
                sample.free_bytes = total - now.dedicated
            sample.server_bytes = sum(own for own, _ in mine if own is not None) if mine else None
            sample.server_shared_bytes = sum(shared for _, shared in mine if shared is not None) if mine else None
            sample.utilization_percent = now.busy
        return samples

    def close(self) -> None:
        """Close the counters."""
        self._pdh.close()
