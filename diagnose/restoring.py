"""The user's own server, left as it was: stopped while an experiment needs its place, started again at the end, also after this process was killed."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from diagnose.case import Case
from diagnose.lms import load_again, unload_command
from diagnose.notes import Notes, left_by_others, notes_home
from diagnose.opening import answers_health
from diagnose.standing import put_back_noted
from diagnose.ui import Ui
from probes.backends.commands import as_text, masked, parse_command, server_words
from probes.evidence.errors import InputError
from probes.evidence.words import Words, words
from probes.launch import MARKER, address_of, end_launch
from probes.process import listener, that_matters

Ask = Callable[[Words], bool]

_outliving: list[subprocess.Popen[bytes]] = []
"""Servers that were started for the user and go on when this process ends: nobody waits for them."""
RESTART_S = 600.0
"""A server that was running before is waited for so long when it is started again."""


@dataclass(frozen=True, slots=True)
class Running:
    """A server that ran before the walk began."""

    pid: int
    created: float
    argv: tuple[str, ...]
    environment: dict[str, str]
    cwd: str | None
    port: int
    nice: int | None = None
    cpus: tuple[int, ...] | None = None


def running_already(command: Sequence[str]) -> Running | None:
    """Give the server that runs with this very command, if there is one and it answers."""
    setting = parse_command(command).settings.get("port")
    port = setting.value if setting is not None and isinstance(setting.value, int) else None
    pid = listener(port) if port is not None else None
    if pid is None or port is None or not answers_health(f"http://127.0.0.1:{port}"):
        return None
    try:
        process = psutil.Process(pid)
        argv = tuple(process.cmdline())
        if not _same_command(argv, command):
            return None
        cpus = getattr(process, "cpu_affinity", None)
        return Running(
            pid,
            process.create_time(),
            argv,
            process.environ(),
            process.cwd(),
            port,
            int(process.nice()),
            tuple(cpus()) if cpus is not None else None,
        )
    except psutil.Error:
        return None


def _same_command(argv: Sequence[str], command: Sequence[str]) -> bool:
    """Say whether a process runs this command; wrappers such as nice, variables and a shell around it are no part of the process."""

    def same(one: Sequence[str], two: Sequence[str]) -> bool:
        return bool(two) and list(one[1:]) == list(two[1:]) and Path(one[0]).name == Path(two[0]).name

    return bool(argv) and (same(argv, list(command)) or same(argv, server_words(command)))


@contextlib.contextmanager
def restoring(
    case: Case, original: Sequence[str], environment: Mapping[str, str], terminal: Ui, ask: Ask
) -> Iterator[None]:
    """Stop the user's server where it runs, and leave it as it was when the block ends, however it ends.

    A note on disk, readable by its user alone, lets the next call do that where this process is killed.
    """
    before = running_already(original)
    if before is not None and not ask(
        words(
            "The server is running already (process {pid}). It is stopped for the tests, and started again as it is now at the end. Go on?",
            pid=before.pid,
        )
    ):
        raise InputError("the server is running; stop it, or measure it as it is: give its address without --launch")
    note = Notes.write(
        {
            "case": case.id,
            "command": list(original),
            "shown": as_text(
                [*(f"{name}={value}" for name, value in that_matters(environment).items()), *masked(original)]
            ),
            "running": None if before is None else asdict(before),
        }
    )
    try:
        if before is not None:
            terminal.say(words("Stopping the server (process {pid}).", pid=before.pid))
            end_launch("", before.pid, before.created, 30.0)
        yield
    finally:
        told = note.read()
        if told is not None:
            for said in restore(told, case.folder / "logs" / "restored.log"):
                terminal.say(said)
        note.remove()


def restore(note: Mapping[str, Any], log: Path, wait_s: float = RESTART_S) -> list[Words]:
    """Put the user's server back as it was: started again where it ran before, else only named. Never starts a second one."""
    shown = str(note.get("shown", ""))
    standing = note.get("standing")
    if isinstance(standing, dict):
        return [put_back_noted(standing)]
    loader = [str(word) for word in note.get("command") or []]
    if unload_command(loader) is not None:
        return [load_again(loader, shown)]
    running = note.get("running")
    if not isinstance(running, dict):
        return [words("Nothing of it is left running; your own command is unchanged: {command}", command=shown)]
    port = int(running.get("port", 0))
    if listener(port) is not None:
        return [words("Your server is running: {command}", command=shown)]
    environment = {str(k): str(v) for k, v in dict(running.get("environment") or {}).items() if k != MARKER}
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            process = subprocess.Popen(
                [str(word) for word in running["argv"]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=environment or None,
                cwd=running.get("cwd"),
                start_new_session=os.name == "posix",
            )
    except (OSError, KeyError) as error:
        return [
            words(
                "Your server could not be started again ({why}). Start it yourself: {command}",
                why=type(error).__name__,
                command=shown,
            )
        ]
    _outliving.append(process)
    _as_before(process.pid, running)
    ends = time.monotonic() + wait_s
    while time.monotonic() < ends:
        if address_of(process.pid, answers_health, port) is not None:
            return [
                words(
                    "Your server was started again as it was (process {pid}): {command}", pid=process.pid, command=shown
                )
            ]
        if process.poll() not in {None, 0}:
            break
        time.sleep(0.1)
    return [
        words(
            "Your server was started again but does not answer yet; look at {log}. Its command: {command}",
            log=str(log),
            command=shown,
        )
    ]


def _as_before(pid: int, running: Mapping[str, Any]) -> None:
    """Give a process the niceness and the processors that it had, as far as this user may."""
    with contextlib.suppress(psutil.Error, OSError, ValueError, TypeError):
        process = psutil.Process(pid)
        cpus = running.get("cpus")
        if cpus and hasattr(process, "cpu_affinity"):
            process.cpu_affinity([int(one) for one in cpus])
        if running.get("nice") is not None and process.nice() != running["nice"]:
            process.nice(int(running["nice"]))


def restore_interrupted(wait_s: float = RESTART_S) -> list[Words]:
    """Put right what walks and runs left that were killed; gives what was done. One whose process lives is left alone.

    ``wait_s``: how long a server is waited for that is started again.
    """
    said: list[Words] = []
    for one, note in left_by_others():
        if isinstance(note.get("standing"), dict) or isinstance(note.get("command"), list):
            said.append(words("An experiment of case {case} was interrupted.", case=str(note.get("case", "?"))))
            said += restore(note, notes_home() / "restored.log", wait_s)
        one.remove()
    return said
