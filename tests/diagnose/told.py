"""What the tests of walks share: someone who listens, and a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.ui import Silent
from probes.evidence.words import Words


class Told(Silent):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, said: Words) -> None:
        self.lines.append(str(said))

    @property
    def text(self) -> str:
        """All that was said, a line each."""
        return "\n".join(self.lines)


def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep cases in a folder of the test, and stand in an empty one."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path
