"""Whatever goes wrong between the tool, the server and the disk: one line that says what to do, the right exit code, and nothing measured is lost."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from diagnose import case as case_module
from diagnose import look
from diagnose import session as session_module
from diagnose.case import JOURNAL, Case
from diagnose.cli import command_line
from diagnose.options import RunOptions
from probes.evidence.request import RequestError
from probes.evidence.rungs import RecallBase, RungResult
from tests.backends.loopback import Loopback, claims, cut_short, endless, hang_up, no_http, plain, silence
from tests.diagnose.llama_like import LlamaLike, answer

ROOT = Path(__file__).parents[2]
QUICK = ("--ladder", "512,1024", "--budget", "60s", "--repeat", "1")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CTXDOCTOR_API_KEY", raising=False)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(look, "find_process", lambda _url: (None, "not looked for"))
    return tmp_path / "home"


def document_of(case: str = "") -> dict:
    found = sorted((Path(os.environ["CTXDOCTOR_HOME"]) / "cases").glob(f"{case}*/case.json"))
    return json.loads(found[-1].read_text())


def one_line(error: str) -> str:
    """Give the one line that says what went wrong; there is no second one and no traceback."""
    assert "Traceback" not in error
    lines = [line for line in error.splitlines() if line.startswith("ctxdoctor: ")]
    assert len(lines) == 1
    assert "fault in ctxdoctor" not in lines[0]
    return lines[0]


# -- a server that cannot be looked at ------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def test_nothing_listens_there(capsys):
    """Law: what could not be looked at is evidence too, told as a result with exit 3."""
    assert command_line(["run", str(free_port()), "--quiet"]) == 3
    assert "Traceback" not in capsys.readouterr().err
    document = document_of()
    assert any("nothing answers at" in one for one in document["notes"])
    assert document["verdict"]["named"] == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (no_http, "does not speak HTTP|broke the connection"),
        (hang_up, "broke the connection"),
        (plain("<html>It works!</html>", "text/html"), "none of the servers"),
        (plain("{}", status=401), "wants a key"),
        (plain("[" * 100_000), "none of the servers"),
        (cut_short('{"a":'), "broke the connection"),
        (claims(10 << 30), "longer than|still answering"),
        (endless(b'{"a": 1}\n' * 1000, "application/json"), "longer than|within|still answering"),
        (silence, "within"),
    ],
    ids=["no-http", "hangs-up", "web-page", "wrong-key", "deep-json", "cut-short", "10-gb", "endless", "silent"],
)
def test_something_else_or_something_broken_listens_there(capsys, fault, said):
    import re

    with Loopback() as server:
        server.faults["*"] = fault
        started = time.monotonic()
        code = command_line(["run", server.url, "--quiet"])
        assert time.monotonic() - started < 15
    assert code == 3
    assert "Traceback" not in capsys.readouterr().err
    notes = document_of()["notes"]
    assert any(re.search(said, one) for one in notes), notes


def test_a_server_that_loads_is_waited_for_up_to_its_deadline(capsys, monkeypatch):
    monkeypatch.setattr(
        RunOptions,
        "__init__",
        lambda self, real=RunOptions.__init__, **values: real(self, **{"load_deadline_s": 1.0, **values}),
    )
    with Loopback.playing("llama.cpp-b11434-loading") as server:
        assert command_line(["run", server.url]) == 3
    assert "the server loads its model" in capsys.readouterr().err
    assert any("still loading" in one for one in document_of()["notes"])


# -- a server that goes wrong while it is measured ------------------------------------------------------------------------------------------


def of_the_longer_rung(tokens: int) -> bool:
    """Say whether a prompt belongs to the second rung of QUICK: not to the base, nor above the window."""
    return 700 < tokens < 2048


def dies(handler, tokens):
    """Answer, and at the second rung hang up for good."""
    if of_the_longer_rung(tokens):
        handler.owner.faults["*"] = hang_up
        hang_up(handler)
        return
    answer(handler, tokens)


def test_a_server_that_dies_in_the_middle_of_a_rung_leaves_typed_evidence(capsys):
    with LlamaLike(2048, complete=dies) as server:
        code = command_line(["run", server.url, "--case", "dying", *QUICK, "--repeat", "3", "--quiet"])
    assert code in {1, 3, 4}
    assert "Traceback" not in capsys.readouterr().err
    case = Case.open("dying", read_only=True)
    assert case.has_ended(1)
    died = [one for one in case.payloads(RungResult, 1) if one.result == "died"]
    errors = [one.error for one in case.payloads(RequestError, 1)]
    assert died or "connection-lost" in errors
    assert case.payloads(RecallBase, 1)
    assert document_of("dying")["rungs"]


@pytest.mark.parametrize(
    "fault",
    [
        plain("<html>proxy error</html>", "text/html", 200),
        plain('{"content": NaN}'),
        endless(b'data: {"content": "x", "stop": false}\n\n', pause_s=0.0),
        cut_short('{"content"'),
        plain("out of memory", "text/plain", 500),
    ],
    ids=["web-page", "nan", "endless", "cut-short", "500"],
)
def test_answers_that_are_none_end_the_run_and_not_the_tool(capsys, monkeypatch, fault):
    from probes.base import ProbeContext

    monkeypatch.setattr(ProbeContext, "deadline_for", lambda *_a: 0.6)
    with LlamaLike(2048, complete=lambda handler, _count: fault(handler)) as server:
        started = time.monotonic()
        code = command_line(["run", server.url, "--case", "odd", *QUICK, "--quiet"])
        assert time.monotonic() - started < 60
    assert code in {1, 3, 4}
    assert "Traceback" not in capsys.readouterr().err
    assert Case.open("odd", read_only=True).has_ended(1)


# -- Ctrl-C ---------------------------------------------------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_measured_and_the_run_goes_on_from_there(capsys, home):
    """Law: 130, the way to go on is said, and a finished probe is not measured again."""
    blocked = threading.Event()

    def complete(handler, tokens):
        if of_the_longer_rung(tokens):
            blocked.set()
            handler.owner.stopping.wait(60)
            return
        answer(handler, tokens)

    with LlamaLike(2048, complete=complete) as server:
        child = subprocess.Popen(
            [sys.executable, "-m", "diagnose", "run", server.url, "--case", "stopped", *QUICK],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert blocked.wait(60)
            child.send_signal(signal.SIGINT)
            _out, said = child.communicate(timeout=30)
        finally:
            child.kill()
            child.communicate()
        assert child.returncode == 130
        assert "Traceback" not in said
        assert "ctxdoctor run --case stopped" in said
        before = Case.open("stopped", read_only=True)
        assert not before.has_ended(1)
        bases = len(before.payloads(RecallBase, 1))
        assert bases == 1
        done = before.done_probes(1)
        assert "recall" in done
        server.complete = None
        server.prompts.clear()
        assert command_line(["run", "--case", "stopped", "--quiet"]) in {0, 1, 4}
    after = Case.open("stopped", read_only=True)
    assert after.run == 1
    assert after.has_ended(1)
    assert len(after.payloads(RecallBase, 1)) == bases
    assert "Traceback" not in capsys.readouterr().err


def test_sigint_before_anything_is_130_too(monkeypatch, capsys):
    def interrupt(*_a, **_k):
        raise KeyboardInterrupt

    monkeypatch.setattr(session_module, "opened", interrupt)
    assert command_line(["run", "1"]) == 130
    assert "Traceback" not in capsys.readouterr().err


# -- the disk -------------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path, monkeypatch):
    """A file system of four megabytes, where this user may make one; else one that says so of itself."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = False
    if shutil.which("mount") and hasattr(os, "geteuid") and os.geteuid() == 0:
        told = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, check=False
        )
        made = told.returncode == 0
    if not made:
        monkeypatch.setattr(case_module.shutil, "disk_usage", lambda _path: type("Usage", (), {"free": 3 << 20})())
    monkeypatch.setenv("CTXDOCTOR_HOME", str(folder))
    yield folder
    if made:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_full_disk_is_said_before_a_measurement_is_lost(small_disk, capsys):
    with LlamaLike(2048) as server:
        assert command_line(["run", server.url, "--case", "full", *QUICK, "--quiet"]) == 3
        assert server.prompts == []
    assert "make room" in one_line(capsys.readouterr().err)
    assert (small_disk / "cases" / "full" / JOURNAL).is_file()
    assert Case.open("full", read_only=True).run == 1


def test_a_disk_that_fills_while_a_rung_runs_keeps_that_rung(monkeypatch, capsys):
    import errno

    real = Case._write
    failed = []

    def full(self, line):
        if '"kind":"rung"' in line and not failed:
            failed.append(line)
            raise OSError(errno.ENOSPC, "No space left on device")
        real(self, line)

    monkeypatch.setattr(Case, "_write", full)
    with LlamaLike(2048) as server:
        assert command_line(["run", server.url, "--case", "filling", *QUICK, "--quiet"]) == 3
    assert "full" in one_line(capsys.readouterr().err)
    assert len(Case.open("filling", read_only=True).payloads(RungResult, 1)) == 1


def test_a_home_that_cannot_be_written_says_what_to_set(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "file"))
    assert command_line(["triage", "--symptom", "flaky"]) == 2
    assert "CTXDOCTOR_HOME" in one_line(capsys.readouterr().err)


# -- what was given -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "no server"),
        (["run", "8080", "--answers", "a.toml"], "line 2"),
        (["run", "8080", "--symptom", "headache"], "immediate-oom"),
        (["run", "8080", "--target", "many"], "--target"),
        (["run", "8080", "--budget", "soon"], "--budget"),
        (["run", "8080", "--criteria", "a.toml"], "criteria"),
        (["run", "8080", "--backend", "llamma"], "--backend takes"),
        (["run", "ht!tp://x y"], "address"),
        (["run", "--launch", "llama-server | tee log"], "shell"),
        (["run", "--case", "newer"], "newer"),
        (["report", "newer"], "newer"),
        (["explain", "newer"], "newer"),
        (["report", "damaged"], "line 2"),
        (["report", "nowhere"], "no case"),
        (["report", "strange"], "record 2"),
        (["triage", "strange"], "record 2"),
        (["triage", "newer"], "written by a newer ctxdoctor"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_was_given_wrongly_is_2_and_one_line(arguments, said, capsys):
    Path("a.toml").write_text('symptom = "flaky"\nhow_bad = "very"\n')
    for name, line in (("newer", None), ("damaged", "rubbish")):
        Case.create("flaky", tool_version="1", name=name).close()
        path = Path(os.environ["CTXDOCTOR_HOME"]) / "cases" / name / JOURNAL
        first = json.loads(path.read_text())
        if line is None:
            path.write_text(json.dumps(first | {"schema_version": 99, "surprise": 1}) + "\n")
        else:
            path.write_text(f"{json.dumps(first)}\n{line}\n{json.dumps(first | {'number': 2})}\n")
    with Case.create("flaky", tool_version="1", name="strange") as case:
        case.append("evidence", {"kind": "rung", "source": "measured", "data": {"attempt": "first"}}, run=1)
    assert command_line(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in one_line(told.err)


def test_two_at_one_case_are_refused(capsys):
    with Case.create("flaky", tool_version="1", name="mine"):
        assert command_line(["run", "8080", "--case", "mine"]) == 2
    assert "another ctxdoctor process" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize(
    "arguments", [["runn"], ["run", "--nonsense"], ["run", "--seed", "x"], ["report", "a", "b", "c"]]
)
def test_wrong_usage_is_2_and_names_the_help(arguments, capsys):
    assert command_line(arguments) == 2
    assert "--help" in capsys.readouterr().err
