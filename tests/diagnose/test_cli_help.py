"""Every command says what it does and what each of its options means; asking for help loads nothing heavy."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import get_type_hints

import pytest

from diagnose.cli import COMMANDS, command_line, help_text

ROOT = Path(__file__).parents[2]
HEAVY = ("transformers", "pynvml", "jinja2", "numpy", "gguf", "httpx2", "rich", "torch", "typer")


def command(name):
    return getattr(import_module(f"diagnose.cli.{COMMANDS[name][0]}"), f"{name}_command")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert command_line([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert f"ctxdoctor {name}" in out
    assert "--help" in out
    assert inspect.getdoc(command(name)).split("\n")[0].split(":")[0][:40] in " ".join(out.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_help(name):
    for parameter, kind in get_type_hints(command(name), include_extras=True).items():
        if parameter == "return":
            continue
        told = [one for one in getattr(kind, "__metadata__", ()) if getattr(one, "help", None)]
        assert told, f"{name} {parameter}"


def test_the_overview_names_every_command_and_exit_code():
    text = help_text()
    for name in COMMANDS:
        assert re.search(rf"^  {name}\s", text, re.MULTILINE)
    for code in ("0", "1", "2", "3", "4", "130"):
        assert code in text


def test_an_unknown_command_suggests_the_near_one(capsys):
    assert command_line(["triag"]) == 2
    assert "did you mean 'triage'" in capsys.readouterr().err


def test_without_a_terminal_and_a_command_there_is_help_and_2(capsys):
    assert command_line([]) == 2
    assert "Commands:" in capsys.readouterr().err


def test_asking_for_help_loads_nothing_heavy():
    code = (
        "import sys; from diagnose.cli import command_line; command_line(['--help']);"
        f"print([one for one in {HEAVY!r} if one in sys.modules], file=sys.stderr)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stderr.strip() == "[]"
