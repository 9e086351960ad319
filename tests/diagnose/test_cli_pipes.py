"""What stands around a command: pipes that break, input that is piped in, names that are new, and what a killed call left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from diagnose.case import Case
from diagnose.cli import LOOKS_BACK, command_line
from diagnose.cli.options import settings_of
from diagnose.means import with_settings
from diagnose.options import RunOptions
from probes.evidence.errors import InputError, NotOfferedError
from probes.launch import alive
from tests.diagnose.llama_like import LlamaLike

LOG = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5000.00 MiB on device 0: cudaMalloc failed: out of memory\n"
)
TOOL = [sys.executable, "-m", "diagnose"]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", str(Path.cwd()))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "server.log").write_text(LOG)
    return tmp_path / "here"


def code_into_head(arguments):
    """Give the exit code of a command whose reader takes one byte and goes, and what it said."""
    tool = subprocess.Popen([*TOOL, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    tool.stdout.read(1)
    tool.stdout.close()
    said = tool.stderr.read().decode()
    tool.stderr.close()
    return tool.wait(60), said


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["triage", "server.log", "--all"], 4),
        (["facts", "--format", "json"], 0),
    ],
)
def test_a_reader_that_goes_away_changes_no_exit_code(home, arguments, code):
    """Law: ``ctxdoctor … | head`` ends as without head, and says nothing about it."""
    got, said = code_into_head(arguments)
    assert got == code
    assert "Broken" not in said
    assert "fault" not in said


@pytest.mark.skipif(os.name != "posix", reason="streams that are closed before the start are POSIX's")
def test_a_stdout_that_is_closed_breaks_nothing(home):
    done = subprocess.run(
        [sys.executable, "-c", "import os, sys; os.close(1); os.execv(sys.executable, [sys.executable, '-m', 'diagnose', 'triage', 'server.log'])"],
        stderr=subprocess.PIPE, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 4
    assert b"fault" not in done.stderr


def test_triage_reads_what_is_piped_into_it(home):
    done = subprocess.run([*TOOL, "triage", "--format", "json"], input=LOG, capture_output=True, text=True, check=False)
    assert "Reading standard input" in done.stderr
    assert any("cudaMalloc" in one["text"] for one in json.loads(done.stdout)["log_lines"])


@pytest.mark.parametrize("shown", ["md", "html", "json", "bug-report", "terminal"])
def test_a_piped_triage_leaves_no_file_behind(home, shown):
    """The report in the current folder is that of ``run`` and ``demo`` alone."""
    before = sorted(path.name for path in Path.cwd().iterdir())
    subprocess.run(
        [*TOOL, "triage", "--format", shown, "--for", "llama.cpp"],
        input=LOG,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(path.name for path in Path.cwd().iterdir()) == before


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")  # noqa: PTH110 - a device
def test_an_output_that_is_full_is_said_in_one_line(home):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run([*TOOL, "triage", "server.log", "--format", "json", "--quiet"], stdout=full, stderr=subprocess.PIPE, check=False)  # fmt: skip
    assert done.returncode == 3
    assert b"cannot be written" in done.stderr
    assert b"fault" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="streams that are closed before the start are POSIX's")
def test_a_stdin_that_is_closed_is_bad_input(home):
    code = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'diagnose', 'triage', '-'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 2
    assert b"standard input is closed" in done.stderr


def test_an_empty_input_is_no_evidence(home):
    done = subprocess.run([*TOOL, "triage"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert "Reading" not in done.stderr


def test_triage_does_not_wait_for_an_input_that_says_nothing(home):
    """The open input of a script that goes on: only read where nothing else was given."""
    holds, writes = os.pipe()
    try:
        begun = time.monotonic()
        done = subprocess.run(
            [*TOOL, "triage", "server.log"], stdin=holds, capture_output=True, check=False, timeout=60
        )
        assert time.monotonic() - begun < 30
        assert b"Reading" not in done.stderr
    finally:
        os.close(holds)
        os.close(writes)


def test_a_new_case_is_said_and_a_similar_name_too(home, capsys):
    """``run URL --case TYPO`` begins a case of its own: said, so that nobody takes it for the other."""
    Case.create("flaky", tool_version="1", name="mycase").close()
    with LlamaLike() as server:
        command_line(["run", server.url, "--case", "mycsae", "--budget", "3s"])
    said = capsys.readouterr().err
    assert "New case mycsae" in said
    assert "another one: mycase" in said


# -- what a killed call left ------------------------------------------------------------------------------------------------------------------

LEFT = """
import sys, time
from pathlib import Path
from diagnose.leftovers import noted
from probes.launch import Server
command = [sys.executable, '-c', 'import time; time.sleep(600)']
server = Server(command, log_path=Path('left.log'))
with noted(command, server.marker) as started, server:
    server.start()
    started(server.pid, server.created)
    print(server.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("arguments", [["cases"], ["triage", "server.log"], ["report", "a"], ["check", "1"]])
def test_any_command_that_looks_at_a_machine_or_a_case_ends_what_was_left(home, capsys, arguments):
    assert arguments[0] in LOOKS_BACK
    Case.create("flaky", tool_version="1", name="a").close()
    tool = subprocess.Popen([sys.executable, "-c", LEFT], stdout=subprocess.PIPE, text=True)
    try:
        left = psutil.Process(int(tool.stdout.readline()))
        tool.send_signal(signal.SIGKILL)
        tool.wait()
        assert alive(left)
        command_line(arguments)
        assert "left running was ended" in capsys.readouterr().err
        assert not alive(left)
        command_line(arguments)
        assert "left running" not in capsys.readouterr().err
    finally:
        tool.kill()
        tool.wait()
        tool.stdout.close()


def test_looking_for_what_was_left_costs_nothing_where_there_is_nothing(home):
    """No module is loaded for it that the command does not need anyway."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "diagnose", "cases"], capture_output=True, text=True, check=True
    )
    for dear in ("diagnose.restoring", "diagnose.leftovers", "probes.launch", "psutil"):
        assert f" {dear}\n" not in done.stderr, dear


# -- --set ------------------------------------------------------------------------------------------------------------------------------------


def test_settings_are_read_as_what_they_are():
    assert settings_of(["ctx=16k", "parallel=2", "kv_type_k=q8_0", "mmap=false", "rope_freq_scale=0.5"]) == {
        "ctx": 16_384, "parallel": 2, "kv_type_k": "q8_0", "mmap": False, "rope_freq_scale": 0.5
    }  # fmt: skip
    assert settings_of(None) == {}
    for wrong in ("ctx", "=5", "ctx=", "Ctx=5", "ctx=many"):
        with pytest.raises(InputError, match="--set"):
            settings_of([wrong])


def test_settings_go_into_the_command_or_to_the_running_server():
    """Law: where there is a command, one flag of it each; else the server's own interface, for this run only."""
    options = RunOptions(launch=("llama-server", "-c", "4096"))
    made = with_settings(options, {"ctx": 8192, "parallel": 1})
    assert made.launch == ("llama-server", "-c", "8192", "-np", "1")
    assert made.settings == {}
    there = with_settings(RunOptions(url="http://127.0.0.1:1"), {"ctx": 8192})
    assert there.settings == {"ctx": 8192}
    assert with_settings(there, {}).settings == {}
    with pytest.raises(NotOfferedError):
        with_settings(options, {"no_such_thing": 1})
