"""A watch is a run of a case: what passed becomes evidence as it passes, the end is judged, and no text is kept."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from diagnose import look
from diagnose.case import JOURNAL, Case
from diagnose.cli import command_line
from diagnose.watching import in_words, summary_words
from probes.evidence.client import ClientSettings, WatchedRequest, WatchSummary
from probes.evidence.subject import BackendIdentity, WindowReading
from tests.diagnose.llama_like import LlamaLike

ROOT = Path(__file__).parents[2]
SECRET = "the password is swordfish"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setattr(look, "find_process", lambda _url: (None, "not looked for"))
    return tmp_path / "home" / "cases"


def free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(port: int, prompt: str, give_up: float = 30.0) -> int:
    """Send one completion as a client does, as soon as somebody listens; gives the status."""
    ends = time.monotonic() + give_up
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        try:
            connection.request("POST", "/completion", json.dumps({"prompt": prompt, "n_predict": 1}))
            response = connection.getresponse()
            response.read()
            return response.status
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.05)
        finally:
            connection.close()


def test_what_passes_becomes_evidence_and_the_end_is_judged(capsys):
    port = free_port()
    statuses: list[int] = []
    with LlamaLike(64) as server:
        client = threading.Thread(
            target=lambda: statuses.extend(ask(port, f"{SECRET} " * size) for size in (4, 5, 100)), daemon=True
        )
        client.start()
        code = command_line(
            [
                "watch",
                server.url,
                "--listen",
                f"127.0.0.1:{port}",
                "--budget",
                "2s",
                "--case",
                "seen",
                "--symptom",
                "fixed-length-error",
            ]
        )
        client.join(10)
    told = capsys.readouterr()
    assert code in {1, 4}
    assert statuses == [200, 200, 400]
    case = Case.open("seen", read_only=True)
    requests = case.payloads(WatchedRequest, 1)
    assert [one.status for one in requests] == [200, 200, 400]
    assert requests[-1].error == "exceeds-window"
    assert case.payloads(WatchSummary, 1)[-1].requests == 3
    assert case.payloads(BackendIdentity, 1)[-1].name == "llama.cpp"
    assert case.payloads(WindowReading, 1)[-1].in_force == 64
    assert case.symptom == "fixed-length-error"
    assert case.has_ended(1)
    assert f"127.0.0.1:{port}" in told.err
    assert "Requests seen: 3" in told.out
    assert "swordfish" not in (case.folder / JOURNAL).read_text() + told.out + told.err


def test_a_server_that_is_not_there_yet_does_not_stop_the_watch(capsys):
    code = command_line(["watch", str(free_port()), "--budget", "1s", "--format", "json"])
    told = capsys.readouterr()
    assert code == 3
    assert "nothing answers" in told.err
    document = json.loads(told.out)
    # the result says it too: "Requests seen: 0" alone looks like a client that sent nothing
    assert any("nothing answers" in note for note in document["notes"])


def test_a_clients_settings_that_are_named_are_read(tmp_path, capsys):
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"local": {"models": {"m": {"limit": {"context": 131072, "output": 8192}}}}},
    }
    (tmp_path / "opencode.json").write_text(json.dumps(settings))
    command_line(
        [
            "watch",
            str(free_port()),
            "--budget",
            "1s",
            "--client",
            str(tmp_path / "opencode.json"),
            "--case",
            "c",
            "--quiet",
        ]
    )
    assert Case.open("c", read_only=True).payloads(ClientSettings, 1)[-1].models[0].context == 131072
    (tmp_path / "x.json").write_text("{}")
    capsys.readouterr()
    assert command_line(["watch", "8080", "--client", str(tmp_path / "x.json")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [[], ["8080", "--listen", "0.0.0.0:8090"], ["8080", "--listen", "here"], ["8080", "--budget", "soon"], ["ftp://x"]],
)
def test_what_cannot_be_watched_is_2_and_one_line(arguments, capsys):
    assert command_line(["watch", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1


def test_ctrl_c_is_the_way_to_end_it(home):
    port = free_port()
    with LlamaLike(64) as server:
        child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "diagnose",
                "watch",
                server.url,
                "--listen",
                f"127.0.0.1:{port}",
                "--case",
                "mine",
                "--format",
                "json",
            ],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert ask(port, "hello " * 10) == 200
            journal = home / "mine" / JOURNAL
            ends = time.monotonic() + 20
            while '"kind":"watched_request"' not in journal.read_text() and time.monotonic() < ends:
                time.sleep(0.05)
            child.send_signal(signal.SIGINT)
            out, said = child.communicate(timeout=30)
        finally:
            child.kill()
            child.communicate()
    assert child.returncode in {1, 4}
    assert "Traceback" not in said
    assert json.loads(out)["case"]["id"] == "mine"
    assert Case.open("mine", read_only=True).payloads(WatchSummary, 1)[-1].requests == 1


def test_every_finding_of_a_watch_is_said():
    summary = WatchSummary(
        requests=9,
        errors={"timeout": 2},
        longest_prompt_tokens=9000,
        turns_compared=6,
        prefix_broken=5,
        changing_header_at_chars=128,
        changing_header_in="message 1, system",
        history_shortened=2,
        client_timeout_s=60.0,
        client_left=3,
        believed_window=8192,
        turns_lost=1,
        lost_sent_tokens=2056,
        lost_processed_tokens=1146,
    )
    text = "\n".join(one.english for one in summary_words(summary))
    for word in ("9", "timeout × 2", "9000", "5 of 6", "128", "message 1, system", "60.0 s", "8192", "2056", "1146"):
        assert word in text
    assert "None" not in text
    line = in_words(
        WatchedRequest(number=1, path="/v1/x", prompt_chars=100, before_chars=200, same_as_before_chars=50)
    ).english
    assert "50%" in line


def test_a_request_whose_tokens_were_not_told_says_its_characters():
    """Law: a stream without usage is no prompt of "? tokens": what was seen of it is said."""
    line = in_words(WatchedRequest(number=1, path="/v1/x", prompt_chars=12_345)).english
    assert "12,345 characters" in line
    assert "?" not in line
