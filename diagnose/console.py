"""The terminal: talk and progress on stderr, results on stdout; plain lines where the terminal cannot do more."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

from diagnose.language import spoken
from probes.evidence.words import Words, words


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
        text = str(said)
        if "--" not in text:  # what is there to be copied is not broken by us
            from diagnose.prompter import columns_of, fitted  # noqa: PLC0415 - only where something is said

            text = fitted(text, columns_of(sys.stderr))
        sys.stderr.write(f"{text}\n")
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
                sys.stderr.write(f"  {what}: {done:.0%} ({_with_rest(detail, left)})\n")
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
        self._progress.update(self._task, description=what, completed=done, detail=_with_rest(detail, left))

    def finish_progress(self) -> None:
        """Take the progress display away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
            self._task = None


def _with_rest(detail: str, left: float | None) -> str:
    """Give a line of detail in the language in force, with the time that is left where it is known."""
    # the length, and after it speed, wait and memory, which are told in units
    tokens = re.fullmatch(r"(\d+) tokens((?:, [^,]+)*)", detail)
    told = f"{words('{tokens} tokens', tokens=tokens[1])}{tokens[2]}" if tokens else spoken(detail)
    if left is None or left < 1:
        return told
    return str(words("{detail}, about {seconds} s left", detail=told, seconds=f"{left:.0f}"))


def write_out(text: str) -> None:
    """Write a result to stdout, whatever its encoding can hold."""
    try:
        sys.stdout.write(text)
    except UnicodeEncodeError:
        encoding = sys.stdout.encoding or "ascii"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()
