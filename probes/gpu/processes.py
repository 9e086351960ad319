"""Processes: which inference server one is, what belongs to the server under test, and that server's own memory over time."""

from __future__ import annotations

import contextlib
import ntpath
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from probes.evidence.machine import DeviceProcess
from probes.gpu.base import plausible, read_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

PROC = Path("/proc")

# Names of programs, as the last part of argv[0] without ".exe".
_PROGRAMS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"llama[-_]server|llama-cpp-server|llamafile(-.*)?|.*\.llamafile", re.IGNORECASE), "llama.cpp"),
    (re.compile(r"ollama|ollama[-_]llama[-_]server|ollama[-_]runner|ollama app", re.IGNORECASE), "ollama"),
    (re.compile(r"lms|lm[ -]?studio.*|llmster", re.IGNORECASE), "lm-studio"),
    (re.compile(r"kobold_?cpp.*", re.IGNORECASE), "koboldcpp"),
    (re.compile(r"vllm|vllm::.*", re.IGNORECASE), "vllm"),
    (re.compile(r"sglang|sglang::.*", re.IGNORECASE), "sglang"),
    (re.compile(r"mlx_lm(\.server)?", re.IGNORECASE), "mlx_lm"),
    (re.compile(r"llama-swap.*", re.IGNORECASE), "llama-swap"),
    (re.compile(r"text-generation-(launcher|server|router)", re.IGNORECASE), "tgi"),
    (re.compile(r"local-?ai", re.IGNORECASE), "localai"),
    (re.compile(r"aphrodite", re.IGNORECASE), "aphrodite"),
)
# Modules that an interpreter is told to run (-m), and scripts.
_MODULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"vllm(\..+)?"), "vllm"),
    (re.compile(r"sglang(\..+)?"), "sglang"),
    (re.compile(r"mlx_lm(\.server)?"), "mlx_lm"),
    (re.compile(r"llama_cpp\.server(\..+)?"), "llama-cpp-python"),
    (re.compile(r"xllamacpp(\..+)?"), "llama.cpp"),
    (re.compile(r"aphrodite(\..+)?"), "aphrodite"),
)
_SCRIPTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(.*[/\\])?(vllm|sglang)"), ""),
    (re.compile(r"(.*[/\\])?mlx_lm(\.server)?"), "mlx_lm"),
    (re.compile(r"(.*[/\\])?koboldcpp\.py", re.IGNORECASE), "koboldcpp"),
    (re.compile(r".*tabbyapi.*[/\\](main|start)\.py", re.IGNORECASE), "tabbyapi"),
    (re.compile(r".*text-generation-webui.*[/\\]server\.py", re.IGNORECASE), "text-generation-webui"),
    (re.compile(r"(.*[/\\])?(xllamacpp[^/\\]*|llama_server\.py)", re.IGNORECASE), "llama.cpp"),
)
_INTERPRETER = re.compile(r"(python|pypy)[\d.]*w?|uv|uvx", re.IGNORECASE)
_MOST_ARGUMENTS = 64


def server_kind(name: str, command: Sequence[str]) -> str | None:
    """Say which inference server a process is, by its program's name, the module or script that it runs; None if it looks like none.

    Only what *runs* counts: an editor that has a server's log open, or a search for its name, is no server.
    """
    program = ntpath.basename(command[0] if command else name).removesuffix(".exe").strip()
    for text in (program, name.removesuffix(".exe").strip()):
        for pattern, kind in _PROGRAMS:
            if text and pattern.fullmatch(text):
                return kind
    if not command or not _INTERPRETER.fullmatch(program):
        return None
    rest = list(command[1:_MOST_ARGUMENTS])
    while rest:
        word = rest.pop(0)
        if word == "-m":
            return _first(_MODULES, rest[0]) if rest else None
        if word == "-c":
            return None
        if word in {"-X", "-W"} and rest:
            rest.pop(0)
        elif not word.startswith("-"):
            script = _first(_SCRIPTS, word)
            return ntpath.basename(word) if script == "" else script
    return None


def _first(table: tuple[tuple[re.Pattern[str], str], ...], text: str) -> str | None:
    return next((kind for pattern, kind in table if pattern.fullmatch(text)), None)


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of one process. ``started``: seconds since the epoch."""

    pid: int
    name: str
    kind: str | None = None
    program: str | None = None
    started: float | None = None
    rss: int | None = None


def look_up(pid: int) -> Known | None:
    """Give name, kind and start of a process; None if there is none (any more). What may not be read is left out."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            name = process.name()
            command: list[str] = []
            program: str | None = None
            rss: int | None = None
            started: float | None = None
            with contextlib.suppress(psutil.AccessDenied, OSError):
                command = process.cmdline()
            with contextlib.suppress(psutil.AccessDenied, OSError):
                program = process.exe() or None
            with contextlib.suppress(psutil.AccessDenied, OSError):
                rss = process.memory_info().rss
            with contextlib.suppress(psutil.AccessDenied, OSError):
                started = process.create_time()
    except (psutil.Error, OSError, ValueError, OverflowError, TypeError):
        return None
    if not name and command:
        name = ntpath.basename(command[0])
    return Known(pid, name[:200], server_kind(name, command), program, started, rss)


def family(pid: int | None) -> frozenset[int]:
    """Give a process and all that descend from it; empty if there is none."""
    if pid is None:
        return frozenset()
    try:
        process = psutil.Process(pid)
        return frozenset((pid, *(child.pid for child in process.children(recursive=True))))
    except (psutil.Error, OSError, ValueError, OverflowError):
        return frozenset()


def ancestors(pid: int | None) -> frozenset[int]:
    """Give the processes that a process descends from."""
    if pid is None:
        return frozenset()
    try:
        return frozenset(parent.pid for parent in psutil.Process(pid).parents())
    except (psutil.Error, OSError, ValueError, OverflowError):
        return frozenset()


class Holders:
    """Names the processes that hold a device's memory, seen from the server under test."""

    def __init__(self, server_pid: int | None, server_pids: frozenset[int] | None = None) -> None:
        self.server = look_up(server_pid) if server_pid is not None else None
        self.server_pids = family(server_pid) if server_pids is None else server_pids
        self._above = ancestors(server_pid)

    def describe(
        self, pid: int, used: int | None, *, name: str | None = None, shared: int | None = None
    ) -> DeviceProcess:
        """Make the record of one holder. ``used``: bytes, None where the driver does not say."""
        known = look_up(pid) if pid > 0 else None
        return DeviceProcess(
            pid=pid,
            name=(known.name if known and known.name else name),
            used_bytes=used,
            shared_bytes=shared,
            is_server=(pid in self.server_pids) if self.server_pids else None,
            server_kind=known.kind if known else None,
            previous_instance=self._previous(known),
            rss_bytes=known.rss if known else None,
        )

    def _previous(self, known: Known | None) -> bool | None:
        """Say whether it is the same server, left over: the same program, started before, and neither part of it nor above it."""
        server = self.server
        if server is None or known is None:
            return None
        if known.pid in self.server_pids or known.pid in self._above:
            return False
        same = known.kind == server.kind if known.kind is not None else False
        if server.kind is None:  # a program of no known name: the same file is the same server
            same = known.program is not None and known.program == server.program
        if not same:
            return False
        if known.started is None or server.started is None:
            return None
        return known.started < server.started


def other_servers(server_pid: int | None, *, processes: Iterable[int] | None = None) -> tuple[DeviceProcess, ...]:
    """Find the inference servers on this machine, the one under test and its children left out."""
    holders = Holders(server_pid)
    found = []
    own = {os.getpid(), *ancestors(os.getpid())}
    for pid in psutil.pids() if processes is None else processes:
        if pid in holders.server_pids or pid in own or pid in holders._above:
            continue
        try:
            process = psutil.Process(pid)
            command = process.cmdline()
            kind = server_kind(process.name(), command)
        except (psutil.Error, OSError, ValueError):
            continue
        if kind is not None:
            found.append(holders.describe(pid, None))
    return tuple(found[:64])


# --- the server's own memory, ten times a second ---------------------------------------------------------------------------------


@dataclass(slots=True)
class ServerReading:
    """The server's processes at one moment, summed. None: not told."""

    rss: int | None = None
    swap: int | None = None
    faults: int | None = None
    read: int | None = None
    peak: int | None = None
    """The kernel's own high-water mark of the only process, where it rose since the reading before."""
    alive: bool = True


@dataclass(slots=True)
class _Linux:
    """One process through files of /proc that stay open: an open one refers to this very process, never to a later one of its number."""

    pid: int
    folder: Path
    statm: int
    stat: int
    status: int
    io: int | None
    faults: int = 0
    read: int | None = None
    swap: int | None = None
    high: int | None = None

    @classmethod
    def open(cls, pid: int, root: Path) -> _Linux | None:
        folder = root / str(pid)
        opened: list[int] = []
        try:
            opened.extend(os.open(folder / name, os.O_RDONLY) for name in ("statm", "stat", "status"))
        except OSError:
            for one in opened:
                os.close(one)
            return None
        try:
            io: int | None = os.open(folder / "io", os.O_RDONLY)
        except OSError:  # another user's
            io = None
        return cls(pid, folder, opened[0], opened[1], opened[2], io)

    def close(self) -> None:
        for one in (self.statm, self.stat, self.status, *(() if self.io is None else (self.io,))):
            with contextlib.suppress(OSError):
                os.close(one)


_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def parse_stat(data: bytes) -> tuple[str, int] | None:
    """Read state and major faults from /proc/PID/stat. The name may hold spaces and brackets: fields count from the last bracket."""
    after = data[data.rfind(b")") + 2 :].split(b" ", 11)
    try:
        return after[0].decode("ascii"), int(after[9])
    except (IndexError, ValueError):
        return None


def parse_kib_field(data: bytes, name: bytes) -> int | None:
    """Read a field of /proc/meminfo, status or smaps_rollup ("VmSwap:  12 kB") in bytes; None if it is not there."""
    at = data.find(b"\n" + name + b":")
    if at < 0 and not data.startswith(name + b":"):
        return None
    at = 0 if at < 0 else at + 1
    words = data[at + len(name) + 1 : data.find(b"\n", at) if data.find(b"\n", at) > 0 else None].split()
    try:
        return plausible(int(words[0]) * 1024) if len(words) == 2 and words[1] == b"kB" else None
    except (ValueError, IndexError):
        return None


def parse_uss(text: bytes) -> tuple[int | None, int | None]:
    """Read USS (private pages) and swap from /proc/PID/smaps_rollup, in bytes."""
    clean, dirty = parse_kib_field(text, b"Private_Clean"), parse_kib_field(text, b"Private_Dirty")
    huge = parse_kib_field(text, b"Private_Hugetlb") or 0
    return (None if clean is None or dirty is None else clean + dirty + huge), parse_kib_field(text, b"Swap")


@dataclass(slots=True)
class ServerWatch:
    """Counters of the server's process and its children. ``tick`` is cheap; ``refresh`` and ``uss`` are dear."""

    pid: int
    proc: Path = PROC
    pids: frozenset[int] = frozenset()
    _open: dict[int, _Linux] = field(default_factory=dict)
    _lost_faults: int = 0
    _lost_read: int = 0
    _gone: bool = False
    _linux: bool = field(default_factory=lambda: sys.platform == "linux")

    def refresh(self) -> None:
        """Look for children that came or went."""
        if self._gone:
            return
        if self._linux:
            pids = family(self.pid) if self.proc == PROC else frozenset({self.pid})
            for pid in pids - self._open.keys():
                one = _Linux.open(pid, self.proc)
                if one is not None:
                    self._open[pid] = one
            if self.pid not in self._open:
                self._gone = True
            self.pids = frozenset(self._open)
        else:
            self.pids = family(self.pid)
            self._gone = not self.pids

    def tick(self, *, full: bool) -> ServerReading:
        """Read memory; with ``full`` also faults, swap and bytes read."""
        if self._gone:
            return ServerReading(alive=False)
        return self._tick_linux(full) if self._linux else self._tick_psutil(full)

    def _drop(self, pid: int) -> None:
        one = self._open.pop(pid, None)
        if one is None:
            return
        # What an ended child had counted stays counted: the sum over the family only grows.
        self._lost_faults += one.faults
        self._lost_read += one.read or 0
        one.close()
        self.pids = frozenset(self._open)
        if pid == self.pid:
            self._gone = True

    def _tick_linux(self, full: bool) -> ServerReading:
        reading = ServerReading(rss=0)
        swap: int | None = None
        read: int | None = None
        only = len(self._open) == 1
        for pid, one in list(self._open.items()):
            try:
                pages = os.pread(one.statm, 128, 0).split(b" ")
                rss = int(pages[1]) * _PAGE
                if not rss or full:
                    state = parse_stat(os.pread(one.stat, 1024, 0))
                    if state is None or state[0] in "ZX":
                        self._drop(pid)
                        continue
                    one.faults = max(one.faults, state[1])
            except (OSError, ValueError, IndexError):
                self._drop(pid)
                continue
            reading.rss = (reading.rss or 0) + rss
            if full:
                self._read_more(one, reading, only)
            if one.swap is not None:
                swap = (swap or 0) + one.swap
            if one.read is not None:
                read = (read or 0) + one.read
        if self._gone or not self._open:
            return ServerReading(alive=False)
        reading.swap = swap
        if full:
            reading.faults = self._lost_faults + sum(one.faults for one in self._open.values())
            reading.read = None if read is None else read + self._lost_read
        return reading

    @staticmethod
    def _read_more(one: _Linux, reading: ServerReading, only: bool) -> None:
        with contextlib.suppress(OSError):
            status = os.pread(one.status, 4096, 0)
            one.swap = parse_kib_field(status, b"VmSwap")
            high = parse_kib_field(status, b"VmHWM")
            if only and high is not None and one.high is not None and high > one.high:
                reading.peak = high
            one.high = high
        if one.io is not None:
            with contextlib.suppress(OSError, ValueError, IndexError):
                text = os.pread(one.io, 512, 0)
                at = text.index(b"\nread_bytes:")
                one.read = int(text[at + 12 : text.index(b"\n", at + 1)])

    def _tick_psutil(self, full: bool) -> ServerReading:
        reading = ServerReading()
        for pid in self.pids:
            try:
                process = psutil.Process(pid)
                if full and process.status() == psutil.STATUS_ZOMBIE:
                    raise psutil.NoSuchProcess(pid)
                info = process.memory_info()
            except psutil.AccessDenied:
                continue
            except (psutil.Error, OSError):
                if pid == self.pid:
                    self._gone = True
                    return ServerReading(alive=False)
                continue
            reading.rss = (reading.rss or 0) + info.rss
            # macOS counts page-ins (from disk) apart; Windows' number holds soft faults too and would mislead.
            if full and sys.platform == "darwin":
                reading.faults = (reading.faults or 0) + int(getattr(info, "pageins", 0))
        return reading

    def uss(self) -> tuple[int | None, str | None]:
        """Read the memory that belongs to the server alone (USS, bytes), or None and why. Dear: walks all its pages."""
        total: int | None = None
        for pid in self.pids:
            one: int | None
            if self._linux:
                text = read_text(self.proc / str(pid) / "smaps_rollup", most=8192)
                one = parse_uss(text.encode())[0] if text else None
            else:
                try:
                    one = int(psutil.Process(pid).memory_full_info().uss)
                except (psutil.Error, OSError, AttributeError):
                    one = None
            if one is None:
                if pid == self.pid and not self._gone:
                    return (
                        None,
                        "the server's own pages (USS) cannot be read: that needs the same user or an administrator",
                    )
                continue
            total = (total or 0) + one
        return total, None

    def close(self) -> None:
        """Close the files of /proc."""
        for one in self._open.values():
            one.close()
        self._open.clear()
