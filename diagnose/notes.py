"""Notes of what is changed on the user's machine for a while, so that the next call can put it right where this process is killed."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from diagnose.case import data_home
from diagnose.leftovers import lives
from probes.evidence.errors import InputError


def notes_home() -> Path:
    """Give the folder in which the notes lie."""
    return data_home() / "auto"


@dataclass(frozen=True, slots=True)
class Notes:
    """One note on disk, readable by its user alone."""

    path: Path

    @classmethod
    def write(cls, told: Mapping[str, Any]) -> Self:
        """Write one, with its owner. InputError where it cannot be written: then nothing may be changed."""
        me = psutil.Process()
        path = notes_home() / f"{secrets.token_hex(8)}.json"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump({"owner": me.pid, "owner_created": me.create_time(), **told}, file)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise InputError(
                f"what is changed could not be written down ({error.strerror}), so it could not be put back; set CTXDOCTOR_HOME"
            ) from error
        return cls(path)

    def read(self) -> dict[str, Any] | None:
        """Give what it says; None where it cannot be read."""
        try:
            note = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return note if isinstance(note, dict) else None

    def remove(self) -> None:
        """Take it away."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)


def left_by_others() -> Iterator[tuple[Notes, dict[str, Any]]]:
    """Give the notes whose process is gone; one that cannot be read is taken away. Cheap where there is none."""
    try:
        paths = sorted(notes_home().glob("*.json"))
    except OSError:
        return
    for path in paths:
        one = Notes(path)
        note = one.read()
        try:
            owner, created = (int(note["owner"]), float(note["owner_created"])) if note is not None else (0, 0.0)
        except (KeyError, TypeError, ValueError):
            note = None
        if note is None:
            one.remove()
        elif owner != os.getpid() and not lives(owner, created):
            yield one, note
