"""The next test as it can be run: by the user's own command, or inside the script that hides the server's."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.means import with_settings
from diagnose.options import RunOptions
from diagnose.steps import with_command
from probes.evidence.errors import NotOfferedError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.subject import BackendIdentity, Configuration
from rules.verdict import Cost, NextTest

CHANGE = NextTest(kind="change", variable="ctx", start=16384, to=8192, cost=Cost(minutes=3, quality="none"), reason="")


def made(*command: str) -> NextTest:
    pieces = [
        found(Configuration(command=command), source="process", origin="launch command"),
        found(BackendIdentity(name="llama.cpp"), source="server"),
    ]
    return with_command(CHANGE, EvidenceSet(pieces))


@pytest.mark.parametrize("shell", [(), ("bash",), ("sh", "-e")])
def test_a_script_that_takes_no_settings_is_changed_inside(tmp_path: Path, shell: tuple[str, ...]) -> None:
    """Law: no command is proposed that changes nothing. The setting is written where the script has it, and its name is said."""
    script = tmp_path / "start.sh"
    script.write_text("#!/bin/bash\nulimit -v 3000000\nexec llama-server -m m.gguf -c 16384\n", encoding="utf-8")
    command = made(*shell, str(script)).command
    assert command is not None
    where, how = command.splitlines()
    assert where.startswith("Inside start.sh")
    assert "-c 8192" in how
    assert str(script) not in command


def test_a_script_that_passes_nothing_on_is_not_given_a_setting_for_an_experiment(tmp_path: Path) -> None:
    """Law: what would change nothing is refused with what to do, and the server is not started for it."""
    script = tmp_path / "serve.sh"
    script.write_text("#!/bin/sh\nexec llama-server -m m.gguf -c 4096\n", encoding="utf-8")
    options = RunOptions(launch=("bash", str(script)))
    with pytest.raises(NotOfferedError, match=r"serve\.sh does not pass settings on"):
        with_settings(options, {"ctx": 8192})
    with pytest.raises(NotOfferedError, match="lms load"):
        with_settings(RunOptions(launch=("lms", "server", "start")), {"ctx": 8192})
    given = with_settings(RunOptions(launch=("llama-server", "-m", "m.gguf")), {"ctx": 8192}).launch
    assert given == ("llama-server", "-m", "m.gguf", "-c", "8192")


@pytest.mark.parametrize("passes", ['"$@"', "$*", "${@:1}", "-c $1"])
def test_a_script_that_passes_its_settings_on_is_a_command(tmp_path: Path, passes: str) -> None:
    """It takes what is added, as a program does; so is a script in another language, which reads its own arguments."""
    script = tmp_path / "start.sh"
    script.write_text(f"#!/bin/sh\nexec llama-server -m m.gguf {passes}\n", encoding="utf-8")
    assert made(str(script)).command == f"{script} -c 8192"
    other = tmp_path / "start.py"
    other.write_text("#!/usr/bin/env python3\nimport server\n", encoding="utf-8")
    assert made(str(other)).command == f"{other} -c 8192"
    assert made("llama-server", "-m", "m.gguf").command == "llama-server -m m.gguf -c 8192"
