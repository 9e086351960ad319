"""Apple's unified memory: the working-set limit, what the GPU uses, pressure, swap and the compressor. Needs no administrator.

Memory here is the machine's own. What a process may use for the GPU is a limit below the RAM (``working_set_limit_bytes``), moved by
``sysctl iogpu.wired_limit_mb``; a model that does not fit under it fails although memory is free.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device, DeviceProcess
from probes.gpu.base import PIDS_NONE, PRESSURE_LEVELS, DeviceSample, DeviceSource, Notes, plausible, plausible_float
from probes.gpu.processes import Holders

Run = Callable[[Sequence[str]], "str | None"]
"""Runs a program of the system and gives what it printed; None if it failed or took too long."""

_MOST_OUTPUT = 1 << 20
_SYSCTLS = (
    "hw.memsize", "hw.pagesize", "iogpu.wired_limit_mb", "kern.memorystatus_vm_pressure_level", "vm.swapusage", "machdep.cpu.brand_string",
)  # fmt: skip


def run_tool(command: Sequence[str], *, timeout_s: float = 5.0) -> str | None:
    """Run a program of the system with plain English output; None if it is absent, fails or does not end in time."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, timeout=timeout_s, check=False, stdin=subprocess.DEVNULL,
            env={"LC_ALL": "C", "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"},
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    # sysctl says 1 when one of several names is unknown, and still prints the others
    return done.stdout[:_MOST_OUTPUT].decode("utf-8", "replace") or None


# --- parsers ---------------------------------------------------------------------------------------------------------------------


def parse_sysctl(text: str) -> dict[str, str]:
    """Read lines of "name: value"."""
    found: dict[str, str] = {}
    for line in text.splitlines()[:256]:
        name, mark, value = line.partition(": ")
        if mark and re.fullmatch(r"[\w.]{1,80}", name):
            found[name] = value.strip()[:500]
    return found


def whole(text: str | None) -> int | None:
    """Read a whole number that stands alone."""
    return plausible(int(text)) if text is not None and re.fullmatch(r"\d{1,20}", text.strip()) else None


_SWAP = re.compile(r"(total|used|free) = (\d{1,12})(?:[.,](\d{1,4}))?([KMGT]?)")


def parse_swapusage(text: str) -> dict[str, int]:
    """Read vm.swapusage ("total = 2048.00M  used = …"), in bytes. Some languages write a comma for the point."""
    found: dict[str, int] = {}
    for name, before, after, unit in _SWAP.findall(text[:1000]):
        size = plausible(
            float(f"{before}.{after or 0}") * {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}[unit]
        )
        if size is not None:
            found[name] = size
    return found


def parse_vm_stat(text: str) -> dict[str, int]:
    """Read vm_stat: each name → number of pages (or events), and ``page size`` in bytes. Empty without a page size."""
    size = re.search(r"page size of (\d{3,6}) bytes", text[:500])
    if size is None:
        return {}
    found = {"page size": int(size[1])}
    for line in text.splitlines()[1:128]:
        match = re.fullmatch(r'"?([A-Za-z][\w \-]{1,60})"?:\s+(\d{1,15})\.?\s*', line)
        if match:
            found[match[1]] = int(match[2])
    return found


def parse_memory_pressure(text: str) -> float | None:
    """Read the percentage of free memory that ``memory_pressure`` ends with."""
    match = re.search(r"System-wide memory free percentage:\s*(\d{1,3})%", text[-4000:])
    return plausible_float(int(match[1]), most=100) if match else None


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One GPU as ioreg lists it. Bytes and percent."""

    name: str | None
    in_use: int | None
    allocated: int | None
    busy: float | None
    cores: int | None = None
    vram_total: int | None = None
    vram_used: int | None = None


def parse_ioreg(text: str) -> tuple[Accelerator, ...]:
    """Read ``ioreg -r -d 1 -c IOAccelerator``: one entry for each node that has performance statistics."""
    found = []
    for node in re.split(r"(?m)^\s*[|\s]*\+-o ", text[:_MOST_OUTPUT])[1:17]:
        statistics = re.search(r'"PerformanceStatistics" = \{([^{}]{0,20000})\}', node)
        if statistics is None:
            continue
        values = {name: int(number) for name, number in re.findall(r'"([^"]{1,80})"=(\d{1,20})', statistics[1])}
        name = re.search(r'"model" = (?:"([^"]{1,200})"|<"([^"]{1,200})">)', node)
        cores = re.search(r'"gpu-core-count" = (\d{1,4})', node)
        vram = re.search(r'"VRAM,totalMB" = (\d{1,8})', node)
        found.append(
            Accelerator(
                name=(name[1] or name[2]) if name else None,
                in_use=plausible(values.get("In use system memory")),
                allocated=plausible(values.get("Alloc system memory")),
                busy=plausible_float(values.get("Device Utilization %"), most=100),
                cores=int(cores[1]) if cores else None,
                vram_total=int(vram[1]) << 20 if vram else None,
                vram_used=plausible(values.get("vramUsedBytes")),
            )
        )
    return tuple(found)


_SIZE = r"(\d{1,12}(?:\.\d{1,3})?) ?(B|KB|MB|GB|TB)"
_SIZE_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


def parse_footprint(text: str) -> tuple[int | None, int | None]:
    """Read ``footprint PID``: (the whole footprint, what of it is the GPU's: the IOAccelerator rows), in bytes."""
    total = re.search(rf"Footprint: {_SIZE}", text[:100_000])
    graphics: int | None = None
    for line in text[:100_000].splitlines():
        row = re.match(rf"\s*{_SIZE}\s+{_SIZE}\s+{_SIZE}\s+\d+\s+IOAccelerator", line)
        if row:
            graphics = (graphics or 0) + int(float(row[1]) * _SIZE_UNITS[row[2]])
    return (int(float(total[1]) * _SIZE_UNITS[total[2]]) if total else None), graphics


# --- the machine's memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MacMemory:
    """What macOS tells beside RAM and swap."""

    level: Literal["normal", "warning", "critical"] | None = None
    free_percent: float | None = None
    wired: int | None = None
    compressed: int | None = None
    swap_used: int | None = None
    swapped_out_pages: int | None = None
    notes: tuple[str, ...] = ()


def read_memory(run: Run = run_tool) -> MacMemory:
    """Read pressure, wired and compressed memory. What a program does not tell is None, with a note."""
    notes = Notes()
    values = parse_sysctl(run(("sysctl", *_SYSCTLS)) or "")
    pages = parse_vm_stat(run(("vm_stat",)) or "")
    free = parse_memory_pressure(run(("memory_pressure", "-Q")) or "")
    size = pages.get("page size")

    def in_bytes(name: str) -> int | None:
        return plausible(pages[name] * size) if size is not None and name in pages else None

    if not pages:
        notes.add("vm_stat gave nothing that can be read")
    if "kern.memorystatus_vm_pressure_level" not in values:
        notes.add("the system's memory pressure could not be read")
    return MacMemory(
        level=PRESSURE_LEVELS.get(whole(values.get("kern.memorystatus_vm_pressure_level")) or 0),
        free_percent=free,
        wired=in_bytes("Pages wired down"),
        compressed=in_bytes("Pages occupied by compressor"),
        swap_used=parse_swapusage(values.get("vm.swapusage", "")).get("used"),
        swapped_out_pages=pages.get("Swapouts"),
        notes=notes.all(),
    )


def metal_working_set() -> int | None:
    """Ask Metal how much one process may use for the GPU (recommendedMaxWorkingSetSize), in bytes; None where there is no Metal."""
    if sys.platform != "darwin":
        return None
    try:
        metal = ctypes.CDLL("/System/Library/Frameworks/Metal.framework/Metal")
        objc = ctypes.CDLL("/usr/lib/libobjc.A.dylib")
        metal.MTLCreateSystemDefaultDevice.restype = ctypes.c_void_p
        objc.sel_registerName.restype = ctypes.c_void_p
        objc.sel_registerName.argtypes = [ctypes.c_char_p]
        device = metal.MTLCreateSystemDefaultDevice()
        if not device:
            return None
        send = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p, ctypes.c_void_p)(("objc_msgSend", objc))
        return plausible(send(device, objc.sel_registerName(b"recommendedMaxWorkingSetSize"))) or None
    except (OSError, AttributeError, ValueError):
        return None


# --- the device ------------------------------------------------------------------------------------------------------------------


class Apple(DeviceSource):
    """The GPU of an Apple machine. Its counters need a program each, so it is sampled beside the ticks."""

    name: ClassVar[str] = "apple"
    pace_s: ClassVar[float] = 1.0

    def __init__(self, run: Run = run_tool, working_set: Callable[[], int | None] = metal_working_set) -> None:
        self._run = run
        self._working_set = working_set
        self._limit: int | None = None
        self._limit_known = False

    @classmethod
    def open(cls, run: Run = run_tool, working_set: Callable[[], int | None] = metal_working_set) -> Apple:
        """Look for a GPU. NotOfferedError if ioreg lists none."""
        source = cls(run, working_set)
        if not source._accelerators():
            raise NotOfferedError("ioreg lists no GPU on this machine")
        return source

    def _accelerators(self) -> tuple[Accelerator, ...]:
        return parse_ioreg(self._run(("ioreg", "-r", "-d", "1", "-c", "IOAccelerator")) or "")

    def _set_limit(self, values: dict[str, str]) -> int | None:
        """Give the working-set limit: as the user set it, else as Metal says; None if neither tells."""
        if not self._limit_known:
            self._limit_known = True
            chosen = whole(values.get("iogpu.wired_limit_mb"))
            # 0 is the system's own limit, which only Metal tells.
            self._limit = chosen << 20 if chosen else self._working_set()
        return self._limit

    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read the GPU, its limit, and what the server holds."""
        naming = holders or Holders(None)
        values = parse_sysctl(self._run(("sysctl", *_SYSCTLS)) or "")
        self._limit_known = False
        limit = self._set_limit(values)
        result = []
        for index, one in enumerate(self._accelerators()):
            notes = Notes()
            dedicated = one.vram_total is not None
            total = one.vram_total if dedicated else limit
            used = one.vram_used if dedicated else one.in_use
            if not dedicated:
                notes.add("unified memory: total is what one process may use for the GPU, not memory of its own")
                if limit is None:
                    notes.add("the working-set limit could not be read: how much the GPU may use is not known")
                elif whole(values.get("iogpu.wired_limit_mb")):
                    notes.add("the working-set limit was set by hand (iogpu.wired_limit_mb)")
            result.append(
                Device(
                    id=f"apple:{index}",
                    name=one.name or values.get("machdep.cpu.brand_string") or "Apple GPU",
                    vendor="apple",
                    memory="dedicated" if dedicated else "unified",
                    total_bytes=total,
                    free_bytes=None if total is None or used is None else max(0, total - used),
                    used_bytes=used,
                    shared_used_bytes=one.in_use if dedicated else None,
                    working_set_limit_bytes=None if dedicated else limit,
                    utilization_percent=one.busy,
                    processes=self._server(naming) if index == 0 else None,
                    notes=(*notes.all(), "only the server's own use is told; other processes are not listed"),
                )
            )
        return tuple(result)

    def _server(self, naming: Holders) -> tuple[DeviceProcess, ...] | None:
        found = []
        for pid in sorted(naming.server_pids):
            footprint, graphics = parse_footprint(self._run(("footprint", str(pid))) or "")
            if graphics is not None:
                found.append(naming.describe(pid, graphics).model_copy(update={"rss_bytes": footprint}))
        return tuple(found) or None

    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read the GPU's memory and use, and the system's pressure."""
        del server_pids, full
        values = parse_sysctl(
            self._run(("sysctl", "iogpu.wired_limit_mb", "kern.memorystatus_vm_pressure_level")) or ""
        )
        limit = self._set_limit(values)
        level = whole(values.get("kern.memorystatus_vm_pressure_level"))
        samples = []
        for index, one in enumerate(self._accelerators()):
            total = one.vram_total if one.vram_total is not None else limit
            used = one.vram_used if one.vram_total is not None else one.in_use
            samples.append(
                DeviceSample(
                    f"apple:{index}",
                    used_bytes=used,
                    free_bytes=None if total is None or used is None else max(0, total - used),
                    total_bytes=total,
                    utilization_percent=one.busy,
                    pressure=level if level in PRESSURE_LEVELS else None,
                )
            )
        return samples
