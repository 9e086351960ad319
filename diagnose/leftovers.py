"""Servers that this tool started: written down while they run, so that a later call can end what a killed one left, and only that."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from diagnose.case import data_home, write_whole
from probes.evidence.errors import CtxDoctorError
from probes.launch import end_group


def _home() -> Path:
    return data_home() / "launched"


@contextlib.contextmanager
def noted(pid: int, created: float, command: tuple[str, ...]) -> Iterator[None]:
    """Keep a note of a started server while the block runs."""
    folder = _home()
    path = folder / f"{pid}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        me = psutil.Process()
        note = {
            "pid": pid,
            "created": created,
            "owner": me.pid,
            "owner_created": me.create_time(),
            "command": list(command),
        }
        write_whole(path, json.dumps(note))
    except (OSError, psutil.Error, CtxDoctorError):
        # the server is stopped at the end of the block all the same; only a killed tool would leave it
        pass
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def _alive(pid: int, created: float) -> bool:
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
            pid, created = int(note["pid"]), float(note["created"])
            owner, owner_created = int(note["owner"]), float(note["owner_created"])
            command = " ".join(str(part) for part in note["command"])
        except (OSError, ValueError, KeyError, TypeError):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if owner != os.getpid() and _alive(owner, owner_created):
            continue
        if owner == os.getpid():
            continue
        if _alive(pid, created) and end_group(pid, created, 8.0):
            ended.append(command)
        with contextlib.suppress(OSError):
            path.unlink()
    return ended
