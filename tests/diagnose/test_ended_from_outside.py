"""What ends the tool from outside, or ends its time, leaves no server behind and no made-up finding."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from diagnose import cli, session
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.cli.pipes import unbreakable
from probes.base import ProbeContext
from probes.launch import alive
from tests.tiny_model import make_model, server_command

ROOT = Path(__file__).resolve().parents[2]
SLEEPER = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(120)"


def sleeping(file: Path) -> str:
    """Give the command of a server that never answers and writes its process id into a file."""
    return shlex.join([sys.executable, "-c", SLEEPER, str(file)])


def python(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script that imports the tool. It hears an interrupt, also where whoever runs the tests ignores them."""
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def pid_in(file: Path, within_s: float = 30.0) -> int:
    ends = time.monotonic() + within_s
    while time.monotonic() < ends:
        if file.exists() and file.read_text():
            return int(file.read_text())
        time.sleep(0.05)
    raise AssertionError("the server was not started")


def gone(pid: int) -> bool:
    try:
        return not alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return True


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_the_tool_ends_its_server_and_keeps_the_case(tmp_path, monkeypatch, name):
    """Law: a closed terminal (SIGHUP) is an interruption like SIGTERM: 130, no orphan, the case can be gone on with."""
    home = tmp_path / "home"
    monkeypatch.setenv("CTXDOCTOR_HOME", str(home))
    tool = subprocess.Popen(
        [sys.executable, "-m", "diagnose", "run", "--launch", sleeping(tmp_path / "pid"), "--case", "one"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        pid = pid_in(tmp_path / "pid")
        tool.send_signal(getattr(signal, name))
        _out, said = tool.communicate(timeout=30)
    finally:
        tool.kill()
        tool.communicate()
    assert tool.returncode == 130
    assert gone(pid)
    assert "Traceback" not in said
    assert "ctxdoctor run --case one" in said
    assert not Case.open("one", read_only=True).has_ended(1)


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_hangup_that_is_ignored_stays_ignored():
    """Law: under ``nohup`` the tool outlives its terminal."""
    script = (
        "import os, signal; from diagnose.perform import end_cleanly\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); end_cleanly()\n"
        "os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    )
    done = python(script)
    assert done.stdout == "alive\n", done.stderr


SWALLOWED = {
    "a finaliser": """
class One:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def swallow():
    One()
""",
    "a weak reference's callback": """
import weakref
class One: pass
def swallow():
    one = One()
    kept = weakref.ref(one, lambda _: signal.raise_signal(signal.SIGINT))
    del one
""",
    "twice": """
class One:
    def __init__(self, deep):
        self.deep = deep
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        if self.deep:
            One(False)
def swallow():
    One(True)
    One(True)
""",
}


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("where", SWALLOWED)
def test_an_interrupt_that_python_drops_comes_again(where: str) -> None:
    """Law: Python only reports an interrupt that falls into a finaliser or a callback as ignored; the tool ends all the same, with 130."""
    script = (
        f"import signal, sys, time\n{SWALLOWED[where]}\n"
        "import diagnose.cli as cli\n"
        "def work(arguments):\n"
        "    swallow()\n"
        "    time.sleep(30)\n"
        "    return 0\n"
        "cli._dispatch = work\n"
        "sys.exit(cli.command_line(['run']))"
    )
    began = time.monotonic()
    done = python(script)
    assert done.returncode == 130, done.stderr
    assert time.monotonic() - began < 20
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_second_ctrl_c_changes_nothing_about_the_last_words(monkeypatch, capsys):
    """Law: who presses Ctrl-C twice gets one word and 130, and Ctrl-C is what it was for whoever called."""

    def work(_arguments):
        raise KeyboardInterrupt

    def twice(text, /, **_values):
        signal.raise_signal(signal.SIGINT)
        return text

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(cli, "_dispatch", work)
    monkeypatch.setattr("probes.evidence.words.words", twice)
    try:
        assert cli.command_line(["run"]) == 130
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.skipif(os.name != "posix", reason="terminals of POSIX")
def test_a_terminal_that_was_closed_swallows_what_is_still_to_say(monkeypatch):
    """Law: telling a closed terminal how to go on raises nothing, so that the way out is walked to its end."""
    master, slave = os.openpty()
    with os.fdopen(slave, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        with unbreakable():
            os.close(master)
            sys.stderr.write("go on with …\n")
            sys.stderr.flush()


def test_waiting_for_a_server_to_start_ends_with_the_budget(tmp_path, monkeypatch, capsys):
    """Law: --budget bounds the start too; that our time ended is no failed start, and nothing is blamed for it."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    begun = time.monotonic()
    code = command_line(
        ["run", "--launch", sleeping(tmp_path / "pid"), "--case", "one", "--budget", "5s", "--format", "json"]
    )
    assert time.monotonic() - begun < 40
    assert gone(pid_in(tmp_path / "pid"))
    assert code == 3
    out, said = capsys.readouterr()
    document = json.loads(out)
    assert any("while the server was still starting" in note for note in document["notes"])
    assert "while the server was still starting" in said
    assert document["verdict"]["named"] == []
    assert not [one for one in document["evidence"] if one["kind"] == "launch" and one["data"]]


@pytest.mark.real_server
def test_what_the_start_took_is_taken_from_the_same_budget(tmp_path, monkeypatch, capsys):
    """Law: --budget is the time of the whole run: a server that starts slowly leaves less for what is measured."""
    pytest.importorskip("xllamacpp")
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    left = []

    class Seen(ProbeContext):
        def __init__(self, **given):
            left.append(given["ends_at"] - time.monotonic())
            super().__init__(**given)

    monkeypatch.setattr(session, "ProbeContext", Seen)
    command = shlex.join(server_command(make_model(tmp_path / "tiny.gguf"), "-c", "1024", "-np", "1"))
    slowly = shlex.join(["bash", "-c", f"sleep 4; exec {command}"])
    command_line(["run", "--launch", slowly, "--budget", "60s", "--ladder", "512", "--format", "json"])
    (seconds,) = left
    assert 10 < seconds < 56
    assert json.loads(capsys.readouterr().out)["rungs"]


def test_options_without_a_command_name_the_command_where_there_is_no_terminal(capsys):
    """Law: what a guided walk said to go on with is understood without a terminal too: the command is named, and it is no unknown command."""
    assert command_line(["--case", "my case"]) == 2
    said = capsys.readouterr().err
    assert "ctxdoctor run --case 'my case'" in said
    assert "there is no command" not in said


@pytest.mark.parametrize(
    ("code", "said"),
    [("pass", "without an error and left no server"), ("raise SystemExit(7)", "with exit code 7")],
)
def test_a_command_that_starts_no_server_is_said_in_the_result(tmp_path, monkeypatch, capsys, code, said):
    """Law: the screen says that the command ended, and how; nobody has to guess it from a question about logs."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    command_line(["run", "--launch", shlex.join([sys.executable, "-c", code]), "--quiet"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "The server did not start: " in shown
    assert said in shown
