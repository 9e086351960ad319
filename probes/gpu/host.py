"""The host: memory, swap, pressure, groups with limits, what it runs in, and who else is busy."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from probes.evidence.machine import DeviceProcess, HostReading
from probes.gpu.base import MOST_BYTES, Notes, plausible, plausible_float, read_int, read_text
from probes.gpu.processes import family, other_servers, parse_kib_field, server_kind

if TYPE_CHECKING:
    from probes.gpu.apple import MacMemory

_ROOT = Path("/")


# --- pressure (PSI) --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Pressure:
    """One line of a PSI file: percent of time over 10 s, and microseconds of waiting since boot."""

    avg10: float | None = None
    total_us: int | None = None


_PSI = re.compile(rb"^(some|full) (.*)$", re.MULTILINE)


def parse_pressure(data: bytes) -> tuple[Pressure, Pressure]:
    """Read a PSI file (/proc/pressure/memory): (some, full). A line that is absent or not understood is empty."""
    found = {b"some": Pressure(), b"full": Pressure()}
    for match in _PSI.finditer(data[:1024]):
        values = dict(part.split(b"=", 1) for part in match[2].split() if b"=" in part)
        average: float | None = None
        total: int | None = None
        with contextlib.suppress(ValueError):
            average = plausible_float(float(values.get(b"avg10", b"nan")), most=100.0)
        with contextlib.suppress(ValueError):
            total = plausible(int(values.get(b"total", b"")), most=1 << 62)
        found[match[1]] = Pressure(average, total)
    return found[b"some"], found[b"full"]


# --- memory groups ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """The memory group that limits a process. Sizes in bytes; ``limit`` None: no limit below the machine's own."""

    version: int
    folder: Path
    limit: int | None = None
    used: int | None = None
    swap_limit: int | None = None
    oom_kills: int | None = None
    oom_events: int | None = None

    @property
    def usage_file(self) -> Path:
        """Where it says how much is in use."""
        return self.folder / ("memory.current" if self.version == 2 else "memory.usage_in_bytes")

    @property
    def events_file(self) -> Path:
        """Where it counts the kernel's kills."""
        return self.folder / ("memory.events" if self.version == 2 else "memory.oom_control")


def parse_keys(text: str) -> dict[str, int]:
    """Read lines of "key number"; others are skipped."""
    found: dict[str, int] = {}
    for line in text.splitlines()[:256]:
        key, _, value = line.partition(" ")
        if value.strip().isdecimal() and len(value) < 24:
            number = plausible(int(value), most=1 << 63)
            if number is not None:
                found[key] = number
    return found


def _limit(path: Path) -> int | None:
    # "max", and version 1's huge number, are no limit: both fall out of the plausible range.
    return read_int(path)


def _mount_root(mountinfo: str, kind: str, controller: str | None) -> tuple[str, str] | None:
    """Find where a hierarchy is mounted: (its root within the hierarchy, the mount point)."""
    for line in mountinfo.splitlines()[:4096]:
        left, _, right = line.partition(" - ")
        fields, tail = left.split(" "), right.split(" ")
        if len(fields) < 5 or not tail or tail[0] != kind:
            continue
        if controller is not None and controller not in tail[-1].split(","):
            continue
        return fields[3], fields[4]
    return None


def memory_group(pid: int | None = None, *, root: Path = _ROOT) -> MemoryGroup | None:
    """Find the memory group that limits a process (this one by default): the tightest from its own up to the mount. None: there is none.

    Reads /proc/PID/cgroup and mountinfo under ``root``; version 2 first, then version 1.
    """
    who = "self" if pid is None else str(pid)
    membership = read_text(root / "proc" / who / "cgroup")
    if membership is None:
        return None
    mountinfo = read_text(root / "proc" / "self" / "mountinfo", most=1 << 20) or ""
    paths: dict[str, str] = {}
    for line in membership.splitlines()[:64]:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number.isdecimal() and path.startswith("/"):
            for one in controllers.split(","):
                paths[one] = path
    for version, controller in ((1, "memory"), (2, "")):
        if controller not in paths:
            continue
        mount = _mount_root(mountinfo, "cgroup" if version == 1 else "cgroup2", controller if version == 1 else None)
        where = mount or ("/", "/sys/fs/cgroup/memory" if version == 1 else "/sys/fs/cgroup")
        found = _tightest(version, root, where, paths[controller])
        if found is not None:
            return found
    return None


def _tightest(version: int, root: Path, mount: tuple[str, str], path: str) -> MemoryGroup | None:
    base = root / mount[1].lstrip("/")
    inner = path
    if mount[0] != "/" and (path == mount[0] or path.startswith(mount[0].rstrip("/") + "/")):
        inner = path[len(mount[0]) :]  # in a container the mount shows only the container's own part of the tree
    parts = [part for part in inner.split("/") if part not in {"", "."}]
    if ".." in parts or len(parts) > 64:
        parts = []
    usage = "memory.current" if version == 2 else "memory.usage_in_bytes"
    best: MemoryGroup | None = None
    for count in range(len(parts), -1, -1):
        folder = base.joinpath(*parts[:count])
        group = _read_group(version, folder)
        if group is None:
            continue
        if best is None or (group.limit is not None and (best.limit is None or group.limit < best.limit)):
            best = group
    if best is None and (base / usage).exists():
        return _read_group(version, base)
    return best


def _read_group(version: int, folder: Path) -> MemoryGroup | None:
    if version == 2:
        limit, used = _limit(folder / "memory.max"), read_int(folder / "memory.current")
        if used is None and limit is None and not (folder / "memory.max").exists():
            return None
        events = parse_keys(read_text(folder / "memory.events") or "")
        return MemoryGroup(
            2, folder, limit, used, _limit(folder / "memory.swap.max"), events.get("oom_kill"), events.get("oom")
        )
    limit, used = _limit(folder / "memory.limit_in_bytes"), read_int(folder / "memory.usage_in_bytes")
    if used is None and limit is None:
        return None
    control = parse_keys(read_text(folder / "memory.oom_control") or "")
    both = _limit(folder / "memory.memsw.limit_in_bytes")
    swap = None if both is None or limit is None else max(0, both - limit)
    return MemoryGroup(1, folder, limit, used, swap, control.get("oom_kill"), None)


# --- limits of a process ---------------------------------------------------------------------------------------------------------


def parse_limits(text: str) -> dict[str, int | None]:
    """Read the soft limits of /proc/PID/limits in bytes: name → value, None for unlimited."""
    found: dict[str, int | None] = {}
    for line in text.splitlines()[1:64]:
        match = re.match(r"(.{25}) (\S+)\s+(\S+)\s+bytes", line)
        if match and (match[2] == "unlimited" or match[2].isdecimal()):
            found[match[1].strip()] = None if match[2] == "unlimited" else plausible(int(match[2]), most=MOST_BYTES)
    return found


# --- where we run ----------------------------------------------------------------------------------------------------------------


def virtualisation(*, root: Path = _ROOT) -> str | None:
    """Say whether this is WSL, a container or a virtual machine, as far as it shows; None if nothing does."""
    found = []
    release = read_text(root / "proc/sys/kernel/osrelease") or ""
    if "microsoft" in release.lower():
        found.append("WSL2" if "wsl2" in release.lower() or "microsoft-standard" in release else "WSL1")
    groups = read_text(root / "proc/1/cgroup") or ""
    engine = re.search(r"docker|kubepods|libpod|lxc|containerd", groups)
    if (root / ".dockerenv").exists():
        found.append("container (docker)")
    elif (root / "run/.containerenv").exists():
        found.append("container (podman)")
    elif engine:
        found.append(f"container ({engine[0]})")
    else:
        told = re.search(r"(?:^|\0)container=([\w.-]{1,32})", read_text(root / "proc/1/environ") or "")
        if told:
            found.append(f"container ({told[1]})")
    if not any("WSL" in one for one in found):
        product = (read_text(root / "sys/class/dmi/id/product_name") or "").strip()
        maker = (read_text(root / "sys/class/dmi/id/sys_vendor") or "").strip()
        machine = next(
            (name for name in ("KVM", "VMware", "VirtualBox", "Virtual Machine", "QEMU", "HVM domU", "Amazon EC2", "Google Compute")
             if name.lower() in f"{product} {maker}".lower()), None,
        )  # fmt: skip
        if machine is not None:
            found.append(f"virtual machine ({machine})")
        elif re.search(r"^flags\s*:.*\bhypervisor\b", read_text(root / "proc/cpuinfo") or "", re.MULTILINE):
            found.append("virtual machine")
    return ", ".join(found) or None


def cpu_name(*, root: Path = _ROOT) -> str | None:
    """Give the processor's name as the system has it."""
    match = re.search(
        r"^(?:model name|Model|Processor)\s*:\s*(.+)$", read_text(root / "proc/cpuinfo") or "", re.MULTILINE
    )
    return (match[1].strip() if match else platform.processor())[:200] or None


# --- the cheap counters, ten times a second --------------------------------------------------------------------------------------


@dataclass(slots=True)
class HostTick:
    """The host at one moment. Counters count from boot; bytes and microseconds."""

    available: int | None = None
    swap_used: int | None = None
    swap_in: int | None = None
    swap_out: int | None = None
    stall_some_us: int | None = None
    stall_full_us: int | None = None
    pressure: float | None = None
    group_used: int | None = None
    oom_kills: int | None = None


@dataclass(slots=True)
class HostWatch:
    """Reads the host's counters through files that stay open, else through psutil."""

    root: Path = _ROOT
    _files: dict[str, int] = field(default_factory=dict)
    _old: list[int] = field(default_factory=list)
    _linux: bool = field(default_factory=lambda: sys.platform == "linux")
    _page: int = field(default_factory=lambda: os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096)

    def open(self) -> None:
        """Open what there is; call once."""
        if not self._linux:
            return
        for name in ("meminfo", "vmstat", "pressure/memory"):
            with contextlib.suppress(OSError):
                self._files[name] = os.open(self.root / "proc" / name, os.O_RDONLY)

    def follow(self, pid: int | None) -> None:
        """Read the memory group of that process from now on; of this one if it is None."""
        if not self._linux:
            return
        group = (memory_group(pid, root=self.root) if pid is not None else None) or memory_group(root=self.root)
        paths = {} if group is None else {"usage": group.usage_file, "events": group.events_file}
        for name in ("usage", "events"):
            old = self._files.pop(name, None)
            if old is not None:  # a tick may be reading it: closed with the rest
                self._old.append(old)
            if name in paths:
                with contextlib.suppress(OSError):
                    self._files[name] = os.open(paths[name], os.O_RDONLY)

    def _read(self, name: str, most: int) -> bytes:
        file = self._files.get(name)
        if file is None:
            return b""
        try:
            return os.pread(file, most, 0)
        except OSError:
            return b""

    def tick(self, *, full: bool) -> HostTick:
        """Read memory; with ``full`` also what swapped in and out, pressure, and the group's use."""
        now = HostTick()
        if not self._linux:
            with contextlib.suppress(OSError, RuntimeError, psutil.Error):
                now.available = plausible(psutil.virtual_memory().available)
                if full:
                    swap = psutil.swap_memory()
                    now.swap_used, now.swap_in, now.swap_out = plausible(swap.used), int(swap.sin), int(swap.sout)
            return now
        memory = self._read("meminfo", 2048)
        now.available = parse_kib_field(memory, b"MemAvailable")
        total, free = parse_kib_field(memory, b"SwapTotal"), parse_kib_field(memory, b"SwapFree")
        now.swap_used = None if total is None or free is None else max(0, total - free)
        if "usage" in self._files:
            used = self._read("usage", 32).strip()
            now.group_used = plausible(int(used)) if used.isdigit() and len(used) < 20 else None
        if full:
            some, fully = parse_pressure(self._read("pressure/memory", 512))
            now.pressure, now.stall_some_us, now.stall_full_us = some.avg10, some.total_us, fully.total_us
            if "events" in self._files:
                now.oom_kills = parse_keys(self._read("events", 1024).decode("latin-1")).get("oom_kill")
            # Without swap nothing can be swapped; the file is long, so it is not read then.
            now.swap_in, now.swap_out = (0, 0) if total == 0 else self._swapped()
        return now

    def _swapped(self) -> tuple[int | None, int | None]:
        data = self._read("vmstat", 1 << 15)

        def value(name: bytes) -> int | None:
            at = data.find(b"\n" + name + b" ")
            if at < 0:
                return None
            word = data[at + len(name) + 2 : data.find(b"\n", at + 1)]
            return int(word) * self._page if word.isdigit() and len(word) < 20 else None

        return value(b"pswpin"), value(b"pswpout")

    def close(self) -> None:
        """Close the files."""
        for file in (*self._files.values(), *self._old):
            with contextlib.suppress(OSError):
                os.close(file)
        self._files.clear()
        self._old.clear()


# --- everything, once ------------------------------------------------------------------------------------------------------------

BUSY_CPU_PERCENT = 50.0
BUSY_MEMORY_SHARE = 0.05


def busy_processes(
    server_pid: int | None, ram_bytes: int | None, *, window_s: float = 0.2, most: int = 8
) -> tuple[DeviceProcess, ...]:
    """Find what else takes half a core or more, or 5 % of the memory or more; the server and this program left out."""
    left_out = family(server_pid) | {os.getpid()}
    before: dict[int, tuple[psutil.Process, float]] = {}
    started = time.monotonic()
    for pid in psutil.pids():
        if pid in left_out or pid == 0:
            continue
        try:
            process = psutil.Process(pid)
            times = process.cpu_times()
            before[pid] = process, times.user + times.system
        except (psutil.Error, OSError):
            continue
    time.sleep(max(0.0, window_s))
    seconds = max(0.01, time.monotonic() - started)
    found: list[DeviceProcess] = []
    for pid, (process, spent) in before.items():
        try:
            times = process.cpu_times()
            percent = max(0.0, times.user + times.system - spent) / seconds * 100
            rss = process.memory_info().rss
            heavy = ram_bytes is not None and rss >= BUSY_MEMORY_SHARE * ram_bytes
            if percent < BUSY_CPU_PERCENT and not heavy:
                continue
            name = process.name()
            kind = server_kind(name, process.cmdline())
        except (psutil.Error, OSError):
            continue
        found.append(
            DeviceProcess(pid=pid, name=name[:200], rss_bytes=rss, cpu_percent=round(percent, 1), server_kind=kind)
        )
    found.sort(key=lambda one: (-(one.cpu_percent or 0), -(one.rss_bytes or 0), one.pid))
    return tuple(found[:most])


def read_host(server_pid: int | None = None, *, root: Path = _ROOT, busy_window_s: float = 0.2) -> HostReading:
    """Read the machine once: memory, swap, pressure, limits, what it runs in, who else is busy. Takes about ``busy_window_s`` seconds.

    Nothing is raised: what cannot be read is None. ``root`` is where /proc and /sys are looked for.
    """
    notes = Notes()
    linux = sys.platform == "linux"
    ram = available = swap_total = swap_used = locked = None
    faults: int | None = None
    some = fully = Pressure()
    group: MemoryGroup | None = None
    limits: dict[str, int | None] = {}
    mac: MacMemory | None = None
    if linux:
        memory = (read_text(root / "proc/meminfo") or "").encode()
        ram, available = parse_kib_field(memory, b"MemTotal"), parse_kib_field(memory, b"MemAvailable")
        swap_total, locked = parse_kib_field(memory, b"SwapTotal"), parse_kib_field(memory, b"Mlocked")
        swap_free = parse_kib_field(memory, b"SwapFree")
        swap_used = None if swap_total is None or swap_free is None else max(0, swap_total - swap_free)
        if ram is None:
            notes.add("/proc/meminfo cannot be read")
        some, fully = parse_pressure((read_text(root / "proc/pressure/memory") or "").encode())
        if some.avg10 is None:
            notes.add("this kernel does not tell memory pressure (PSI)")
        faults = parse_keys(read_text(root / "proc/vmstat") or "").get("pgmajfault")
        group = memory_group(server_pid, root=root)
        limits = (
            parse_limits(read_text(root / "proc" / str(server_pid) / "limits") or "") if server_pid is not None else {}
        )
    else:
        with contextlib.suppress(OSError, RuntimeError, psutil.Error):
            machine = psutil.virtual_memory()
            ram, available = plausible(machine.total), plausible(machine.available)
            swap = psutil.swap_memory()
            swap_total, swap_used = plausible(swap.total), plausible(swap.used)
        if sys.platform == "darwin":
            from probes.gpu.apple import read_memory  # noqa: PLC0415 - only on that system

            mac = read_memory()
    load: float | None = None
    with contextlib.suppress(OSError, AttributeError):
        load = plausible_float(psutil.getloadavg()[0])
    busy: tuple[DeviceProcess, ...] = ()
    servers: tuple[DeviceProcess, ...] = ()
    if root == _ROOT:
        try:
            busy = busy_processes(server_pid, ram, window_s=busy_window_s)
            servers = other_servers(server_pid)
        except (psutil.Error, OSError) as error:
            notes.add(f"other processes cannot be listed: {error}")
    return HostReading(
        os=f"{platform.system()} {platform.release()} {platform.machine()}".strip() or "unknown",
        cpu=cpu_name(root=root),
        cores=psutil.cpu_count(),
        ram_bytes=ram,
        ram_available_bytes=available,
        swap_total_bytes=swap_total,
        swap_used_bytes=swap_used,
        cgroup_limit_bytes=group.limit if group else None,
        cgroup_used_bytes=group.used if group else None,
        cgroup_version=group.version if group else None,
        cgroup_swap_limit_bytes=group.swap_limit if group else None,
        oom_kills=group.oom_kills if group else None,
        oom_events=group.oom_events if group else None,
        virtualised=virtualisation(root=root) if linux else None,
        load_1min=load,
        busy_processes=busy,
        other_servers=servers,
        pressure_some_percent=some.avg10,
        pressure_full_percent=fully.avg10,
        pressure_level=mac.level if mac else None,
        free_percent=mac.free_percent if mac else None,
        wired_bytes=mac.wired if mac else None,
        compressed_bytes=mac.compressed if mac else None,
        locked_bytes=locked,
        address_space_limit_bytes=limits.get("Max address space"),
        locked_limit_bytes=limits.get("Max locked memory"),
        major_faults=faults,
        notes=(*notes.all(), *(mac.notes if mac else ())),
    )
