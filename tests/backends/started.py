"""A server that a test starts on a free loopback port, waits for and ends: that process only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from probes.backends.http import Http
from probes.evidence.errors import CouldNotLookError

SHOWN = 4000
"""Characters of its log that a failure shows."""


@contextlib.contextmanager
def started(
    command: Sequence[str],
    port: int,
    log: Path,
    *,
    path: str = "/health",
    seconds: float = 90.0,
    environment: Mapping[str, str | None] | None = None,
) -> Iterator[str]:
    """Start a command and give its address once ``path`` answers 200. What ``environment`` gives as None is taken out."""
    url = f"http://127.0.0.1:{port}"
    told = {name: value for name, value in {**os.environ, **(environment or {})}.items() if value is not None}
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, env=told) as process:
        try:
            deadline = time.monotonic() + seconds
            with Http(url) as http:
                while not _answers(http, path):
                    assert process.poll() is None, log.read_text(errors="replace")[-SHOWN:]
                    assert time.monotonic() < deadline, log.read_text(errors="replace")[-SHOWN:]
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()


def _answers(http: Http, path: str) -> bool:
    try:
        return http.get(path, deadline_s=2).status == 200
    except CouldNotLookError:
        return False


def until(true: object, seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.1)
