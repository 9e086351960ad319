"""The process behind a loopback address: its command line and the environment variables that decide about memory and windows."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import psutil

from probes.evidence.errors import NotOfferedError

ENVIRONMENT_THAT_MATTERS = re.compile(
    r"^(?:LLAMA_|GGML_|OLLAMA_|CUDA_|NVIDIA_VISIBLE|HIP_|ROCR_|HSA_|GPU_|ZES_|ONEAPI_|SYCL_|VLLM_|SGLANG_|SGL_|PYTORCH_|MLX_|METAL_|MTL_|VK_|LMS_|MALLOC_)"
)
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A server's process: id, command line, variables. ``environment`` None: not allowed to read it."""

    pid: int
    created: float
    argv: tuple[str, ...]
    environment: dict[str, str] | None = None
    cwd: str | None = None
    children: tuple[int, ...] = field(default=())


def that_matters(environment: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that decide about memory, devices and windows; what may be a key is masked."""
    return {
        name: ("(set)" if _SECRET.search(name) else value)
        for name, value in environment.items()
        if ENVIRONMENT_THAT_MATTERS.match(name)
    }


def port_of(url: str) -> int:
    """Give the port of an address, the scheme's own where none is written."""
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)


def process_behind(url: str) -> ServerProcess:
    """Find who listens at a loopback address. NotOfferedError, with the reason, where that cannot be told."""
    port = port_of(url)
    pid = listener(port)
    if pid is None:
        raise NotOfferedError(
            f"no process that this user may look at listens on port {port}; it may run as another user or in a container"
        )
    return read_process(pid)


def read_process(pid: int) -> ServerProcess:
    """Read command line and environment of a process. NotOfferedError where the system does not allow it."""
    try:
        process = psutil.Process(pid)
        argv = tuple(process.cmdline())
        created = process.create_time()
    except psutil.Error as error:
        raise NotOfferedError(f"the command line of process {pid} cannot be read ({type(error).__name__})") from error
    environment: dict[str, str] | None = None
    with contextlib.suppress(psutil.Error, OSError):
        environment = that_matters(process.environ())
    cwd = None
    with contextlib.suppress(psutil.Error, OSError):
        cwd = process.cwd()
    children: tuple[int, ...] = ()
    with contextlib.suppress(psutil.Error):
        children = tuple(child.pid for child in process.children(recursive=True))
    return ServerProcess(pid, created, argv, environment, cwd, children)


def listener(port: int) -> int | None:
    """Give the process that listens on a TCP port; None where nobody does or it cannot be told."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return int(connection.pid)
        return None
    # macOS allows the whole table to root only; our own processes are enough for most people
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            for own in process.net_connections(kind="tcp"):
                if own.status == psutil.CONN_LISTEN and own.laddr and own.laddr.port == port:
                    return int(process.pid)
    return None


def listening_ports(pid: int) -> list[int]:
    """Give the TCP ports on which a process or its children listen, lowest first."""
    found: set[int] = set()
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, OSError):
                for connection in one.net_connections(kind="tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr:
                        found.add(int(connection.laddr.port))
    return sorted(found)


def free_port() -> int:
    """Give a loopback port that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
