"""Starts, watches and stops a server process: no shell, its own process group, output captured with a size limit."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

import psutil

from probes.backends.commands import split_environment
from probes.evidence.errors import InputError, InterruptedByUserError, LaunchFailedError
from probes.evidence.request import Launch, ProcessEnded
from probes.process import listener, listening_ports

LOG_LIMIT_BYTES = 32 * 1024 * 1024
"""Per file; one older file is kept, so a server that prints without end costs at most twice this."""

MARKER = "CTXDOCTOR_LAUNCH"
"""An environment variable that every process of one launch inherits: so that also a process that left its parent and its group is found again."""

_LOOK_S = 0.002
"""A program that cannot get its memory ends within milliseconds."""

Healthy = Callable[[int], str | None]
"""Asked again and again with the process id: the server's address once it answers, else None."""


def split_command(text: str) -> list[str]:
    """Split a command as a POSIX shell would, without running one. InputError where a shell would be needed."""
    try:
        parts = shlex.split(text, posix=os.name == "posix")
    except ValueError as error:
        raise InputError(f"the command cannot be split ({error}); check its quotes") from error
    if not parts:
        raise InputError("the command is empty; give for example --launch 'llama-server -m model.gguf -c 32768'")
    for part in parts:
        if (
            part in {"|", "||", "&&", ";", "&", ">", ">>", "<", "2>&1"}
            or part.startswith(("$(", "`"))
            or part.endswith(";")
        ):
            raise InputError(
                f"the command holds {part!r}, which needs a shell; give the server's own command and its arguments"
            )
    return parts


class Output:
    """Copies a child's output into a file, line buffered, and starts a new file at the limit."""

    def __init__(self, stream: IO[bytes], path: Path, limit: int = LOG_LIMIT_BYTES) -> None:
        self.path = path
        self.limit = limit
        self.total = 0
        self._stream = stream
        self._thread = threading.Thread(target=self._copy, name="server output", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        written = 0
        out = self.path.open("ab")
        try:
            while piece := os.read(self._stream.fileno(), 65_536):
                self.total += len(piece)
                if written + len(piece) > self.limit:
                    out.close()
                    with contextlib.suppress(OSError):
                        self.path.replace(self.path.with_name(self.path.name + ".1"))
                    out = self.path.open("ab")
                    written = 0
                # a full disk must not stop the server: the pipe goes on being read
                with contextlib.suppress(OSError):
                    out.write(piece)
                    out.flush()
                written += len(piece)
        except (OSError, ValueError):
            pass
        finally:
            with contextlib.suppress(OSError):
                out.close()

    def finish(self, wait_s: float = 2.0) -> None:
        """Wait until what was printed is in the file."""
        self._thread.join(wait_s)


class Server:
    """One server that we started. Use as a context manager: it is stopped whatever happens."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        environment: Mapping[str, str] | None = None,
        address_space_bytes: int | None = None,
        cwd: str | None = None,
    ) -> None:
        self.command = tuple(command)
        variables, words_of_program = split_environment(command)
        self._argv = words_of_program if variables else list(command)
        self.log_path = log_path
        self.environment = {**(environment or {}), **variables}
        self.address_space_bytes = address_space_bytes
        self.cwd = cwd
        self.marker = secrets.token_hex(12)
        self.url: str | None = None
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._output: Output | None = None
        self._created = 0.0
        self._daemons: list[psutil.Process] = []
        self._mapped: int | None = None

    def __enter__(self) -> Server:  # noqa: PYI034 - tests name the class
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id. LaunchFailedError before the start."""
        if self._process is None:
            raise LaunchFailedError("the server was not started")
        return self._process.pid

    @property
    def created(self) -> float:
        """When the process was made, as the system says; with the id it is never anybody else."""
        return self._created

    def start(self) -> None:
        """Start the process. LaunchFailedError where that is not possible at all."""
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        self.started_at = time.monotonic()
        if not self._argv:
            raise LaunchFailedError(
                "the command has no program, only variables; give the server's own command in --launch"
            )
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment, MARKER: self.marker},
                cwd=self.cwd,
                start_new_session=os.name == "posix",
            )
        except FileNotFoundError as error:
            raise LaunchFailedError(f"there is no program {self._argv[0]!r}; give its full path in --launch") from error
        except PermissionError as error:
            raise LaunchFailedError(
                f"{self._argv[0]!r} may not be run; check that it is a program and executable"
            ) from error
        except OSError as error:
            raise LaunchFailedError(f"{self._argv[0]!r} could not be started ({error.strerror})") from error
        with contextlib.suppress(psutil.Error):
            self._created = psutil.Process(self._process.pid).create_time()
        if self.address_space_bytes is not None:
            limit_address_space(self._process.pid, self.address_space_bytes)
            threading.Thread(target=self._watch_mapped, name="server mapped", daemon=True).start()
        assert self._process.stdout is not None
        self._output = Output(self._process.stdout, self.log_path)

    def wait_healthy(
        self, healthy: Healthy, deadline_s: float, on_wait: Callable[[float, float], None] | None = None
    ) -> Launch:
        """Wait until ``healthy`` gives an address, the process ends, or the deadline passes; all three are evidence."""
        while True:
            waited = time.monotonic() - self.started_at
            if self._process is not None and self._process.poll() is not None:
                self._see_daemons()
            ended = self.ended()
            if ended is not None:
                self._finish_output()
                return self._launch(healthy=False, ended=ended, why=self._why_ended(ended))
            url = next((found for pid in self._watched() if (found := healthy(pid)) is not None), None)
            if url is not None:
                self.url = url
                return self._launch(healthy=True, why="the command went into the background" if self._daemons else "")
            if waited > deadline_s:
                return self._launch(healthy=False, why=f"it did not answer within {deadline_s:.0f} s")
            if on_wait is not None:
                on_wait(waited, deadline_s)
            time.sleep(0.1 if waited < 10 else 0.5)

    def _see_daemons(self) -> None:
        """Look for what a command that ended left in the background. It was born before its parent ended, so it is there now or never."""
        self._daemons = [one for one in self._daemons if alive(one)] or marked(self.marker)

    def _watched(self) -> list[int]:
        """Give the processes of which one may be the server."""
        return [one.pid for one in self._daemons] or [self.pid]

    def _why_ended(self, ended: ProcessEnded) -> str:
        """Say why it ended, as far as its last lines tell."""
        tail = ""
        with contextlib.suppress(OSError), self.log_path.open("rb") as file:
            file.seek(max(0, self.log_path.stat().st_size - 8192))
            tail = file.read(8192).decode("utf-8", "replace")
        for pattern, why in _LAST_WORDS:
            if re.search(pattern, tail, re.IGNORECASE):
                return f"the process ended before it answered; {why}"
        if ended.signal == "SIGILL":  # a child of ours gets the signal, and no shell that would put it into words
            return f"the process ended before it answered; {_WRONG_PROCESSOR}"
        if ended.exit_code == 0:
            seconds = time.monotonic() - self.started_at
            return f"the command ended after {seconds:.1f} s without an error and left no server; give the command that starts the server"
        if ended.exit_code is not None:
            return f"the process ended before it answered, with exit code {ended.exit_code}"
        if ended.signal is not None:
            return f"the process ended before it answered, by {ended.signal}"
        return "the process ended before it answered"

    def _launch(self, *, healthy: bool, ended: ProcessEnded | None = None, why: str = "") -> Launch:
        return Launch(
            command=self.command,
            healthy=healthy,
            exit_code=ended.exit_code if ended else None,
            signal=ended.signal if ended else None,
            seconds=round(time.monotonic() - self.started_at, 3),
            log_path=str(self.log_path),
            why=why,
            address_space_limit_bytes=self.address_space_bytes,
            address_space_peak_bytes=self._mapped,
        )

    def _watch_mapped(self) -> None:
        """Read the process's peak of mapped memory until it ends: the kernel keeps the peak, so the last look has all but its last moment."""
        process = self._process
        assert process is not None
        while process.returncode is None:
            try:
                status = Path(f"/proc/{process.pid}/status").read_text("ascii", "replace")
            except OSError:
                return
            peak = re.search(r"^VmPeak:\s+(\d+) kB", status, re.MULTILINE)
            if peak is None:  # it has ended and waits to be collected
                return
            self._mapped = int(peak[1]) * 1024
            time.sleep(_LOOK_S)

    def ended(self) -> ProcessEnded | None:
        """Say how the process ended, or None while it runs."""
        if self._process is None:
            return None
        code = self._process.poll()
        if code is None:
            return None
        if self._daemons:
            if any(alive(one) for one in self._daemons):
                return None
            # how a process ended that is not our child, the system does not tell
            return ProcessEnded()
        if code < 0:
            name = str(-code)
            with contextlib.suppress(ValueError):
                name = signal.Signals(-code).name
            return ProcessEnded(exit_code=None, signal=name)
        return ProcessEnded(exit_code=code)

    def _finish_output(self) -> None:
        if self._output is not None:
            self._output.finish()

    def stop(self, grace_s: float = 8.0) -> float:
        """End the processes of this launch and nothing else: SIGTERM, then SIGKILL. Gives the seconds it took."""
        if self._process is None:
            return 0.0
        begun = time.monotonic()
        if self._process.poll() is None or marked(self.marker):
            end_launch(self.marker, self._process.pid, self._created, grace_s, self._process)
        self._finish_output()
        with contextlib.suppress(OSError, ValueError):
            if self._process.stdout is not None:
                self._process.stdout.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5.0)
        return time.monotonic() - begun


def limit_address_space(pid: int, limit_bytes: int) -> None:
    """Limit what a process may map. LaunchFailedError where the system has no such limit (it is Linux's)."""
    if not sys.platform.startswith("linux"):
        raise LaunchFailedError("this system has no address-space limit for a process")
    import resource  # noqa: PLC0415 - does not exist on Windows

    try:
        resource.prlimit(pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    except ProcessLookupError:
        return
    except (OSError, ValueError) as error:
        raise LaunchFailedError(f"the address space of the server could not be limited ({error})") from error


def alive(process: psutil.Process) -> bool:
    """Say whether a process runs; one that only waits to be collected does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def marked(marker: str) -> list[psutil.Process]:
    """Give the processes that carry the mark of one launch, whoever their parent is now. Others' processes cannot be read and are not ours."""
    found: list[psutil.Process] = []
    if not marker:
        return found
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARKER) == marker and alive(process):
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def end_launch(
    marker: str, pid: int, created: float, grace_s: float, process: subprocess.Popen[bytes] | None = None
) -> bool:
    """End all processes of one launch: the one that was started, its children, and what carries its mark. True if any ran."""

    def everyone_now() -> list[psutil.Process]:
        found: dict[int, psutil.Process] = {}
        with contextlib.suppress(psutil.Error, ValueError):
            root = psutil.Process(pid) if pid > 0 and created else None
            if root is not None and abs(root.create_time() - created) <= 1.0:
                for one in (root, *root.children(recursive=True)):
                    found[one.pid] = one
        for one in marked(marker):
            found.setdefault(one.pid, one)
        found.pop(os.getpid(), None)
        return [one for one in found.values() if alive(one)]

    everyone = everyone_now()
    ran = bool(everyone)
    interrupted = False
    for send_kill in (False, True, True):
        for one in everyone:
            with contextlib.suppress(psutil.Error):
                if send_kill:
                    one.kill()
                else:
                    one.terminate()
        ends = time.monotonic() + (3.0 if send_kill else grace_s)
        while time.monotonic() < ends:
            try:
                if process is not None:
                    process.poll()
                everyone = [one for one in everyone if alive(one)]
                if not everyone:
                    break
                time.sleep(0.02)
            except KeyboardInterrupt:
                # a second Ctrl-C means: now
                interrupted = True
                break
        if not everyone:
            # what was born while the others ended
            everyone = everyone_now()
            if not everyone:
                break
    if interrupted:
        raise InterruptedByUserError("interrupted; the server that was started has been ended")
    return ran


def holder_of(port: int) -> str | None:
    """Say who listens on a loopback port already: a process's id and name, or that it cannot be told who; None if nobody does."""
    pid = listener(port)
    if pid is not None:
        name = ""
        with contextlib.suppress(psutil.Error):
            name = psutil.Process(pid).name()
        return f"process {pid}{f' ({name})' if name else ''}"
    with socket.socket() as trial:
        trial.settimeout(0.5)
        return "another process" if trial.connect_ex(("127.0.0.1", port)) == 0 else None


_WRONG_PROCESSOR = "this build does not fit the processor"
_LAST_WORDS: tuple[tuple[str, str], ...] = (
    (
        r"address already in use|couldn't bind|could not bind|failed to bind|port .{0,20}in use|EADDRINUSE|only one usage of each socket",
        "its port is in use already: is the server running? Give its address without --launch, or another --port in the command",
    ),
    (
        r"not a (?:tty|terminal)|isatty|inappropriate ioctl|/dev/tty|requires? a (?:tty|terminal)|no controlling terminal",
        "it wants a terminal, and is started without one: take its interactive mode out of the command",
    ),
    (r"illegal instruction", _WRONG_PROCESSOR),
    (
        r"error while loading shared libraries|cannot open shared object|dll load failed|library not loaded",
        "a library that it needs is not found",
    ),
)
"""Last words of a server → what they mean, for people."""


def address_of(pid: int, answers: Callable[[str], bool], wanted_port: int | None = None) -> str | None:
    """Give the loopback address on which a started process answers: the wanted port first, else any on which it listens."""
    ports = listening_ports(pid)
    if wanted_port is not None and wanted_port in ports:
        ports = [wanted_port, *[port for port in ports if port != wanted_port]]
    for port in ports[:8]:
        url = f"http://127.0.0.1:{port}"
        if answers(url):
            return url
    return None
