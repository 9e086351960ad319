"""What can be found out before anybody is asked: which servers listen on this machine, what they are, and the windows that they say."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil

from diagnose.look import asked_window, find_process
from probes.backends.base import Backend
from probes.backends.http import Http
from probes.backends.recognise import recognise, recognise_command
from probes.backends.settings_files import with_files
from probes.evidence.errors import CtxDoctorError, StillLoadingError, WrongKeyError
from probes.evidence.subject import WindowReading

USUAL_PORTS = (8080, 8081, 8082, 8090, 8000, 8001, 11434, 1234, 5000, 5001, 7860, 9292, 10240, 30000)
"""Where the known servers listen when nobody says otherwise."""
MOST_SECONDS = 6.0
MOST_SERVERS = 12
WHOLE_TYPES = frozenset({None, "f16", "bf16", "f32", "auto"})
_HERE = frozenset({"127.0.0.1", "0.0.0.0", "::", "::1", "::ffff:127.0.0.1"})  # noqa: S104 - compared with, not bound


@dataclass(frozen=True, slots=True)
class Seen:
    """One server that answers, as far as it can be told without sending a prompt. Lengths in tokens."""

    url: str
    backend: str | None = None
    model: str | None = None
    window: int | None = None
    asked: int | None = None
    trained: int | None = None
    slots: int | None = None
    quantised: bool = False
    """Whether its command line asks for a cache of fewer than 16 bits."""
    wants_key: bool = False
    loading: bool = False


def local_ports() -> list[int]:
    """Give the loopback ports that may be a server's: the usual ones that listen, and those of processes that a known command started."""
    listening: dict[int, int | None] = {}
    try:
        for connection in psutil.net_connections(kind="tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.ip in _HERE:
                listening[int(connection.laddr.port)] = connection.pid
    except (psutil.Error, OSError):
        # macOS shows the whole table to root only: the usual ports are knocked at instead
        return [port for port in USUAL_PORTS if _listens(port)]
    known = [
        port for port, pid in sorted(listening.items()) if port not in USUAL_PORTS and pid and _is_known_server(pid)
    ]
    return [*known, *(port for port in USUAL_PORTS if port in listening)]


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=0.2):
        return True
    return False


def _is_known_server(pid: int) -> bool:
    with contextlib.suppress(psutil.Error, OSError):
        return recognise_command(psutil.Process(pid).cmdline()) is not None
    return False


def find_servers(
    api_key: str | None = None, ports: Iterable[int] | None = None, *, within_s: float = MOST_SECONDS
) -> list[Seen]:
    """Look at the loopback ports, all at the same time, and give the model servers that answered before the time is over."""
    candidates = list(local_ports() if ports is None else ports)[:MOST_SERVERS]
    answers: queue.SimpleQueue[tuple[int, Seen | None]] = queue.SimpleQueue()

    def look(place: int, port: int) -> None:
        try:
            answers.put((place, look_at(f"http://127.0.0.1:{port}", api_key)))
        except Exception:
            # another program may answer whatever it likes; this is only a look around
            answers.put((place, None))

    for place, port in enumerate(candidates):
        threading.Thread(target=look, args=(place, port), name=f"look at {port}", daemon=True).start()
    ends = time.monotonic() + within_s
    found: list[tuple[int, Seen]] = []
    for _ in candidates:
        try:
            place, seen = answers.get(timeout=max(0.0, ends - time.monotonic()))
        except queue.Empty:
            break
        if seen is not None:
            found.append((place, seen))
    return [seen for _place, seen in sorted(found, key=lambda one: one[0])]


def look_at(url: str, api_key: str | None = None, backend: str | None = None, model: str | None = None) -> Seen | None:
    """Look at one address without sending a prompt. None where no model server answers; never raises for what a server does."""
    with Http(url, api_key, connect_s=1.0) as http:
        try:
            one = recognise(http, backend, model=model)
        except WrongKeyError:
            return Seen(url, wants_key=True)
        except StillLoadingError:
            return Seen(url, loading=True)
        except CtxDoctorError:
            return None
        return _described(url, one)


def _described(url: str, backend: Backend) -> Seen:
    window, model, command, quantised = WindowReading(), None, None, False
    with contextlib.suppress(CtxDoctorError):
        window = backend.window()
    with contextlib.suppress(CtxDoctorError):
        model = None if backend.disturbed else backend.model_identity().name
    process, _why = find_process(backend.holder())
    if process is not None:
        settings = with_files(process, backend.engine, backend.model)
        path = settings.settings.get("model_path")
        if model is None and path is not None and isinstance(path.value, str):
            model = path.value.replace("\\", "/").rsplit("/", 1)[-1]
        types = [settings.settings.get(name) for name in ("kv_type_k", "kv_type_v")]
        quantised = any(one is not None and one.value not in WHOLE_TYPES for one in types)
        for piece in asked_window(settings, 0, "process"):
            command = payload if isinstance(payload := piece.payload(), WindowReading) else None
    told = command or WindowReading()
    return Seen(
        url,
        backend.name,
        model,
        window.in_force,
        told.asked or window.asked,
        window.trained,
        window.slots or told.slots,
        quantised,
    )
