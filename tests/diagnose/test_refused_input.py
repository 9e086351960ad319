"""Bad input leaves no case behind, and only a name that was given is held against others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from diagnose.case import Case, cases_home, folders
from diagnose.cli import command_line
from probes.evidence.errors import CaseError, InputError

ROOT = Path(__file__).resolve().parents[2]
HEARD = "9"
"""A port on which nobody listens: what is asked there can fail, and is a result."""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CTXDOCTOR_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", HEARD, "--text", "nofolder"],
        ["run", HEARD, "--api-key", "two\nlines"],
        ["watch", HEARD, "--api-key", "two\nlines", "--budget", "1s"],
        ["run", "--launch", "true", "--set", "no-such-setting=1"],
    ],
)
def test_bad_input_leaves_no_case(arguments, capsys):
    """Law: what is refused with 2 makes no case: `report` and `rerun` take the newest."""
    assert command_line(arguments) == 2
    assert folders() == []
    assert "New case" not in capsys.readouterr().err


def test_a_case_is_taken_away_only_if_it_was_made_here_and_nothing_was_sent():
    with pytest.raises(InputError), Case.create(None, tool_version="1", name="new"):
        raise InputError("refused")
    assert folders() == []
    with pytest.raises(CaseError), Case.create(None, tool_version="1", name="disk"):
        raise CaseError("cannot be written")
    late = Case.create(None, tool_version="1", name="sent")
    late.append("sent", {"requests": 1})
    with pytest.raises(InputError), late:
        raise InputError("late")
    with pytest.raises(InputError), Case.open("sent"):
        raise InputError("refused")
    with Case.open("disk") as case:
        case.discard()
    assert {one.name for one in folders()} == {"disk", "sent"}


def test_a_triage_of_nothing_leaves_no_case(tmp_path):
    """Law: where nothing was given there is nothing to come back to; what to give is said all the same."""
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "triage"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(ROOT), "CTXDOCTOR_HOME": str(tmp_path / "home"), "PATH": ""},
    )
    assert done.returncode == 4, done.stderr
    assert "triage FILE" in done.stdout
    assert "Case: " not in done.stderr
    assert folders() == []
    assert not any(cases_home().iterdir())


def test_only_a_name_that_was_given_is_held_against_others(capsys):
    """Law: names that were made are alike by their dates, which is no mistake of anybody."""
    for _ in range(2):
        assert command_line(["run", HEARD]) == 3
    assert "similar name" not in capsys.readouterr().err
