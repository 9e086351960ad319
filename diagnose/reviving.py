"""A server that went away in the middle of a run: waited for, or started anew where we started it; and a fresh one for a replay.

Only a server that this run started is started anew, with the same command, at the same address, and not for ever.
"""

from __future__ import annotations

import time
from typing import Literal

import psutil

from diagnose.leftovers import noted
from diagnose.opening import answers_health
from diagnose.running import Walk
from probes.backends.commands import parse_command
from probes.evidence.records import found
from probes.evidence.request import ProcessEnded, Restarted
from probes.evidence.words import words
from probes.launch import Server, address_of

MOST_RESTARTS = 8
"""So often one run starts its server anew at the most."""
LINGERS_S = 3.0
"""A server that only dropped a connection answers within this time."""
RETURNS_S = 20.0
"""Somebody else's server may be watched by something that starts it anew: it is waited for so long."""


def ended(one: Walk, pid: int | None) -> ProcessEnded | None:
    """Say whether the server's process is gone. ``pid``: of a server that was not started here."""
    if one.server is not None and (gone := one.server.ended()) is not None:
        return gone
    if one.backend is not None and one.backend.lost():
        # what stands before the process that held the model lives on
        return ProcessEnded()
    if one.server is not None or pid is None:
        return None
    try:
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return None
    except psutil.NoSuchProcess:
        pass
    except psutil.Error:
        return None
    return ProcessEnded()


def still_answers(one: Walk, pid: int | None, ends: float) -> bool:
    """Say whether the server lives and answers, so that only a connection to it was cut. ``ends``: of the run, by the monotonic clock."""
    if one.backend is None or ended(one, pid) is not None:
        return False
    holder = one.backend.holder()
    if holder == one.backend.http.base_url and one.backend.apart:
        # what stands before a server answers whether the server lives or not
        return False
    return _answers(holder, min(LINGERS_S, ends - time.monotonic()))


def revive(one: Walk, pid: int | None, ends: float) -> bool:
    """Bring the server back after it went away. True where it answers again before ``ends`` (monotonic clock)."""
    if one.backend is None:
        return False
    url = one.backend.http.base_url
    if still_answers(one, pid, ends):
        return True
    if one.server is not None:
        return start_anew(one, "died", ends)
    if one.waited:
        # it did not come back once: from then on it is only looked whether it is there
        return _answers(url, 0.0) and not one.backend.lost()
    one.waited = True
    one.ui.say(words("The server went away; it is waited for, in case something starts it again."))
    left = time.monotonic() + min(RETURNS_S, ends - time.monotonic())
    back = _answers(url, left - time.monotonic()) and not one.backend.lost()
    while not back and _answers(url, 0.0) and time.monotonic() < left:
        # what stands before the server answers meanwhile
        time.sleep(1.0)
        back = not one.backend.lost()
    one.waited = not back
    return back


def start_anew(one: Walk, because: Literal["died", "fresh"], ends: float) -> bool:
    """Start this run's own server once more with its command, and say so in the journal. True where it answers at the same address."""
    old, backend = one.server, one.backend
    if old is None or backend is None or one.closing is None or one.restarts >= MOST_RESTARTS:
        return False
    one.restarts += 1
    one.ui.say(
        words("The server died; it is started again.")
        if because == "died"
        else words("The server is started anew, for the same request as its first one.")
    )
    old.stop()
    command = one.options.launch or ()
    settings = parse_command(command, one.options.launch_env)
    port = settings.settings.get("port")
    wanted = port.value if port is not None and isinstance(port.value, int) else None
    log_path = one.case.folder / "logs" / f"server-run{one.run}-again{one.restarts}.log"
    server = Server(
        command,
        log_path=log_path,
        environment=one.options.launch_env,
        address_space_bytes=one.options.address_space_bytes,
    )
    note = one.closing.enter_context(noted(tuple(settings.command or command), server.marker))
    one.closing.enter_context(server)
    one.server = server
    one.log_paths.append(log_path)
    server.start()
    note(server.pid, server.created)
    patience = max(1.0, min(one.options.load_deadline_s, ends - time.monotonic()))
    launch = server.wait_healthy(
        lambda pid: address_of(pid, answers_health, wanted),
        patience,
        lambda waited, deadline: one.ui.progress("the server loads its model", waited / deadline, f"{waited:.0f} s"),
    )
    # a server that is reached through something that stands before it is asked there
    healthy = launch.healthy and _answers(backend.http.base_url, LINGERS_S)
    why = launch.why if healthy or not launch.healthy else "it answers at another address than before"
    one.add(
        found(
            Restarted(because=because, healthy=healthy, seconds=launch.seconds, log_path=launch.log_path, why=why),
            source="measured",
            run=one.run,
            origin=f"restart {one.restarts}",
        )
    )
    return healthy


def _answers(url: str, within_s: float) -> bool:
    """Wait until something answers there, at least one try."""
    ends = time.monotonic() + within_s
    while not answers_health(url):
        if time.monotonic() >= ends:
            return False
        time.sleep(0.2)
    return True
