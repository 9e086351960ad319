"""Opening the server of a run: the user's command is started where one was given, and what answers is recognised."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from diagnose import look
from diagnose.leftovers import noted
from diagnose.lms import unload_before
from diagnose.running import Walk
from diagnose.standing import put_into_force
from probes.backends.base import Backend
from probes.backends.commands import detect_backend, parse_command
from probes.backends.http import Http
from probes.evidence.errors import CouldNotLookError, CtxDoctorError, InputError, LaunchFailedError
from probes.evidence.records import found
from probes.evidence.request import Launch
from probes.evidence.subject import BackendIdentity
from probes.evidence.words import words
from probes.launch import Server, address_of, holder_of
from probes.process import that_matters

LEAST_START_S = 5.0
"""A server is given this long to start, however short the budget is."""


def patience_s(one: Walk) -> float:
    """Give for how long a server that starts or loads is waited for: no longer than the run may take, in seconds."""
    return min(one.options.load_deadline_s, max(LEAST_START_S, one.options.budget_s))


def cut_off(launch: Launch, one: Walk) -> bool:
    """Say whether we stopped waiting for a server because of the budget: whether it would have come up nobody knows, and it is no failed start."""
    running = not launch.healthy and launch.exit_code is None and launch.signal is None
    return running and patience_s(one) < one.options.load_deadline_s


@contextlib.contextmanager
def opened(one: Walk) -> Iterator[None]:
    """Start the server where a command was given, and find out which one answers."""
    one.log_paths += [Path(path) for path in one.options.logs]
    with contextlib.ExitStack() as stack:
        one.closing = stack
        url = one.options.url
        if one.options.launch:
            url = stack.enter_context(_launched(one))
            if url is None:
                yield
                return
        if url is None:
            raise InputError("no server: give its address, for example `ctxdoctor run 8080`, or --launch 'COMMAND'")
        http = stack.enter_context(Http(url, one.api_key))
        one.backend = _recognised(one, http)
        for evidence in put_into_force(one.backend, one.options.settings, one.run):
            one.add(evidence)
        yield


@contextlib.contextmanager
def _launched(one: Walk) -> Iterator[str | None]:
    """Start the user's command; a failed start is evidence, and gives None."""
    command = one.options.launch or ()
    one.case.make_room()
    for evidence in look.at_machine(one.run, None, "before load"):
        one.add(evidence)
    log_path = one.case.folder / "logs" / f"server-run{one.run}-{len(one.mine(Launch)) + 1}.log"
    settings = parse_command(command, that_matters({**os.environ, **one.options.launch_env}))
    one.add(found(settings, source="process", run=one.run, origin="launch command"))
    name = one.options.backend or detect_backend(command)
    if name is not None:
        # a server that does not start can still be told by its command
        identity = BackendIdentity(name=name, recognised_by="its command line", local=True)
        one.add(found(identity, source="process", run=one.run, origin="launch command"))
    for evidence in look.asked_window(settings, one.run, "launch command"):
        one.add(evidence)
    server = Server(
        command,
        log_path=log_path,
        environment=one.options.launch_env,
        address_space_bytes=one.options.address_space_bytes,
    )
    one.server = server
    one.log_paths.append(log_path)
    port = settings.settings.get("port")
    wanted = port.value if port is not None and isinstance(port.value, int) else None
    one.ui.say(words("Starting the server: {command}", command=" ".join(settings.command or command)))
    holder = holder_of(wanted) if wanted is not None else None
    if holder is not None:
        # a second copy would fail at the port, or take the memory of the first
        why = f"port {wanted} is in use by {holder}; is the server running already? Stop it, or give its address without --launch"
        raise LaunchFailedError(why)
    shown = tuple(settings.command or command)
    unload_before(command)
    _trial_starts(one, shown, wanted)
    with noted(shown, server.marker) as started, server:
        server.start()
        started(server.pid, server.created)
        launch = server.wait_healthy(
            lambda pid: address_of(pid, answers_health, wanted),
            patience_s(one),
            lambda waited, deadline: one.ui.progress(
                "the server loads its model", waited / deadline, f"{waited:.0f} s"
            ),
        )
        given = one.options.url
        if launch.exit_code == 0 and given and answers_health(given):
            # a command that only tells a running server to load a model (`lms load`) ends well; the server is where its address says
            one.server = None
            launch = launch.model_copy(
                update={"healthy": True, "why": "the command told a running server what to load"}
            )
            server.url = given
        elif launch.healthy and given and answers_health(given):
            # started here and reached through something that stands before it: it is measured as its clients see it
            server.url = given
        if cut_off(launch, one):
            late = f"the budget ({patience_s(one):.0f} s) ended while the server was still starting; give more time with --budget"
            one.ui.say(words("Nothing was measured: {why}", why=late))
            raise CouldNotLookError(late)
        one.add(found(launch.model_copy(update={"command": shown}), source="measured", run=one.run))
        if not launch.healthy:
            one.ui.say(words("The server did not start: {why}", why=launch.why))
        yield server.url if launch.healthy else None


def _trial_starts(one: Walk, shown: tuple[str, ...], port: int | None) -> None:
    """Start and stop the server some times before the run itself, where whether it starts is what was predicted."""
    ends = time.monotonic() + one.options.budget_s / 2
    for number in range(1, one.options.starts):
        if time.monotonic() > ends:
            return
        server = Server(
            one.options.launch or (),
            log_path=one.case.folder / "logs" / f"server-run{one.run}-start{number}.log",
            environment=one.options.launch_env,
            address_space_bytes=one.options.address_space_bytes,
        )
        with noted(shown, server.marker) as started, server:
            server.start()
            started(server.pid, server.created)
            launch = server.wait_healthy(lambda pid: address_of(pid, answers_health, port), patience_s(one))
        if cut_off(launch, one):
            return
        one.add(
            found(
                launch.model_copy(update={"command": shown}), source="measured", run=one.run, origin=f"start {number}"
            )
        )


NOT_READY = frozenset({502, 503, 504})
"""What a server that still loads answers, or a proxy whose server does not answer."""


def answers_health(url: str) -> bool:
    """Say whether something at an address speaks HTTP and is done loading."""
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status not in NOT_READY
    except CtxDoctorError:
        return False


def _recognised(one: Walk, http: Http) -> Backend:
    """Find out which server answers; one that still loads is waited for."""
    options = one.options
    return look.recognised(http, one.ui, hint=options.backend, model=options.model, deadline_s=patience_s(one))
