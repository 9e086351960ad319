"""After a kill -9 of the tool the next call ends what was left running, and only that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from diagnose.leftovers import _home, end_leftovers, noted
from probes.launch import alive, marked

TOOL = """
import sys, time
from pathlib import Path
from diagnose.leftovers import noted
from probes.launch import Server
command = [sys.executable, '-c', sys.argv[1]]
server = Server(command, log_path=Path(sys.argv[2]))
with noted(command, server.marker) as started, server:
    server.start()
    if sys.argv[3] == 'told':
        started(server.pid, server.created)
    print(server.pid, server.marker, flush=True)
    time.sleep(600)
"""
SLEEPS = "import time; time.sleep(600)"
DAEMON = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\ntime.sleep(600)"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    return tmp_path


def tool(home, code, told="told"):
    child = subprocess.Popen(
        [sys.executable, "-c", TOOL, code, str(home / "log"), told], stdout=subprocess.PIPE, text=True
    )
    pid, marker = child.stdout.readline().split()
    return child, int(pid), marker


def settled(marker, *, but=0):
    """Give the one process of a launch, once the forking is over."""
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        found = [one for one in marked(marker) if one.pid != but and (not but or one.ppid() != but)]
        if len(found) == 1 and (not but or len(marked(marker)) == 1):
            return found[0]
        time.sleep(0.02)
    raise AssertionError("it did not settle")


@pytest.mark.parametrize(("code", "told"), [(SLEEPS, "told"), (SLEEPS, "not yet told"), (DAEMON, "told")])
def test_what_a_killed_tool_left_is_ended_by_the_next_call(home, code, told):
    """Also when it was killed before it knew the process id, and when the command had gone into the background."""
    child, pid, marker = tool(home, code, told)
    try:
        left = settled(marker, but=pid if code is DAEMON else 0)
        assert end_leftovers() == []  # its tool lives
        assert alive(left)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert alive(left)
        assert [said.startswith(sys.executable) for said in end_leftovers()] == [True]
        assert not alive(left)
        assert end_leftovers() == []
        assert list(_home().iterdir()) == []
    finally:
        child.kill()
        child.wait()
        child.stdout.close()
        for one in marked(marker):
            one.kill()


def test_nothing_else_is_ended(home):
    """Law: not a process that got the id of one that was left, not one with the same command; an unreadable note is dropped."""
    bystander = subprocess.Popen([sys.executable, "-c", SLEEPS])
    try:
        _home().mkdir(parents=True)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        note = {
            "pid": bystander.pid,
            "created": psutil.Process(bystander.pid).create_time() - 50,
            "marker": "of-another-launch",
            "owner": dead.pid,
            "owner_created": 1.0,
            "command": [sys.executable, "-c", SLEEPS],
        }
        (_home() / "a.json").write_text(json.dumps(note))
        (_home() / "b.json").write_text("{")
        (_home() / "c.json").write_text(json.dumps(note | {"pid": 0, "created": 0.0, "marker": ""}))
        assert end_leftovers() == []
        assert bystander.poll() is None
        assert list(_home().iterdir()) == []
    finally:
        bystander.kill()
        bystander.wait()


def test_the_note_is_gone_when_the_block_ends_however_it_ends(home):
    with noted(["server"], "abc") as started:
        started(os.getpid(), 1.0)
        assert json.loads((_home() / "abc.json").read_text())["pid"] == os.getpid()
    assert list(_home().iterdir()) == []
    with pytest.raises(KeyboardInterrupt), noted(["server"], "abc"):
        raise KeyboardInterrupt
    assert list(_home().iterdir()) == []
