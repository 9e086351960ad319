"""The terminal: talk and progress on stderr, results on stdout; plain lines where the terminal cannot do more."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from diagnose.language import spoken
from probes.evidence.words import Words


def is_dumb() -> bool:
    """Say whether the terminal can only print lines."""
    return os.environ.get("TERM") == "dumb" or not sys.stderr.isatty()


class Terminal:
    """The user interface of the command line. With ``quiet`` only errors are shown."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._progress: Any = None
        self._task: Any = None
        self._last_line = 0.0
        self._last_what = ""
        self._began: dict[str, float] = {}

    def say(self, said: Words) -> None:
        """Tell one thing, on its own line."""
        if self.quiet:
            return
        self.finish_progress()
        sys.stderr.write(f"{said}\n")
        sys.stderr.flush()

    def progress(self, what: str, done: float, detail: str) -> None:
        """Show how far something is, and how long it may still take."""
        if self.quiet:
            return
        what = spoken(what)
        now = time.monotonic()
        began = self._began.setdefault(what, now)
        done = min(1.0, max(0.0, done))
        left = (now - began) * (1 - done) / done if done > 0.02 else None
        if is_dumb():
            # at most a line every five seconds, and one for each new thing
            if what != self._last_what or now - self._last_line > 5:
                self._last_line, self._last_what = now, what
                rest = f", about {left:.0f} s left" if left is not None and left >= 1 else ""
                sys.stderr.write(f"  {what}: {done:.0%} ({detail}{rest})\n")
                sys.stderr.flush()
            return
        if self._progress is None:
            from rich.console import Console  # noqa: PLC0415 - only in a real terminal
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415

            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=20),
                TextColumn("{task.fields[detail]}", markup=False),
                TimeElapsedColumn(),
                console=Console(stderr=True, no_color=bool(os.environ.get("NO_COLOR"))),
                transient=True,
            )
            self._progress.start()
            self._task = self._progress.add_task(what, total=1.0, detail=detail)
        rest = f"{detail}, {left:.0f} s left" if left is not None and left >= 1 else detail
        self._progress.update(self._task, description=what, completed=done, detail=rest)

    def finish_progress(self) -> None:
        """Take the progress display away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._task = None


def write_out(text: str) -> None:
    """Write a result to stdout, whatever its encoding can hold."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()
