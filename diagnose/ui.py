"""What the walk needs of a user interface: to say something, to show progress, to ask whether to go on. The terminal's is in ``console``."""

from __future__ import annotations

from typing import Protocol

from probes.evidence.words import Words


class Ui(Protocol):
    """A user interface."""

    def say(self, said: Words) -> None:
        """Tell one thing, on its own line."""

    def progress(self, what: str, done: float, detail: str) -> None:
        """Show how far something is: ``done`` from 0 to 1."""

    def finish_progress(self) -> None:
        """Take the progress display away."""


class Silent:
    """Says nothing: for tests and ``--quiet``."""

    def say(self, said: Words) -> None:
        """Say nothing."""

    def progress(self, what: str, done: float, detail: str) -> None:
        """Show nothing."""

    def finish_progress(self) -> None:
        """Nothing to take away."""
