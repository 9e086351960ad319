"""Servers that this tool started: written down before they start, so that a later call can end what a killed one left, and only that."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psutil

from diagnose.case import data_home, write_whole
from probes.evidence.errors import CtxDoctorError
from probes.launch import end_launch


def _home() -> Path:
    return data_home() / "launched"


@contextlib.contextmanager
def noted(command: Sequence[str], marker: str) -> Iterator[Callable[[int, float], None]]:
    """Keep a note of a server while the block runs. What is given tells its process id and time of birth, once it has started."""
    path = _home() / f"{marker}.json"

    def write(pid: int = 0, created: float = 0.0) -> None:
        me = psutil.Process()
        note = {
            "pid": pid,
            "created": created,
            "marker": marker,
            "owner": me.pid,
            "owner_created": me.create_time(),
            "command": list(command),
        }
        # the server is stopped at the end of the block all the same; only a killed tool would leave it
        with contextlib.suppress(OSError, psutil.Error, CtxDoctorError):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, json.dumps(note))

    write()
    try:
        yield write
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def lives(pid: int, created: float) -> bool:
    """Say whether the process of that id and time of birth still runs."""
    try:
        return abs(psutil.Process(pid).create_time() - created) < 1.0
    except psutil.Error:
        return False


def end_leftovers() -> list[str]:
    """End servers whose ctxdoctor is gone; gives their commands. A server whose ctxdoctor lives is left alone."""
    ended: list[str] = []
    try:
        notes = sorted(_home().glob("*.json"))
    except OSError:
        return ended
    for path in notes:
        try:
            note = json.loads(path.read_text(encoding="utf-8"))
            pid, created, marker = int(note["pid"]), float(note["created"]), str(note["marker"])
            owner, owner_created = int(note["owner"]), float(note["owner_created"])
            command = " ".join(str(part) for part in note["command"])
        except (OSError, ValueError, KeyError, TypeError):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if owner == os.getpid() or lives(owner, owner_created):
            continue
        if end_launch(marker, pid, created, 8.0):
            ended.append(command)
        with contextlib.suppress(OSError):
            path.unlink()
    return ended
