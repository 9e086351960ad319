"""The whole session against a real llama.cpp server that the test starts: recognised, measured, judged, reported; killed and resumed."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.case import JOURNAL, Case
from probes.backends.http import Http
from probes.backends.llamacpp import LlamaCpp
from probes.backends.recognise import recognise
from probes.evidence.errors import CtxDoctorError
from probes.evidence.rungs import RungResult
from probes.launch import Server, address_of
from tests.tiny_model import make_model, server_command

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.real_server, pytest.mark.timeout(300)]


def answers(url):
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status == 200
    except CtxDoctorError:
        return False


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", trained=16384)


@pytest.fixture(scope="module")
def server(model, tmp_path_factory):
    log = tmp_path_factory.mktemp("log") / "server.log"
    with Server(server_command(model, "-c", "6144", "-np", "2"), log_path=log) as one:
        one.start()
        launch = one.wait_healthy(lambda pid: address_of(pid, answers), 60)
        assert launch.healthy, log.read_text()
        yield one


def ctxdoctor(*arguments, home, cwd, check=False):
    return subprocess.run(
        [sys.executable, "-m", "diagnose", *arguments],
        env={**os.environ, "CTXDOCTOR_HOME": str(home), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=240,
        check=check,
    )


def test_the_backend_tells_what_is_really_so(server):
    """Law: window per slot, slots, trained window, counts and both clocks are those of the running server."""
    with Http(server.url) as http:
        backend = recognise(http)
        assert isinstance(backend, LlamaCpp)
        window = backend.window()
        assert (window.per_slot, window.slots, window.trained, window.in_force) == (3072, 2, 16384, 3072)
        ids = backend.tokenize("one two three")
        assert backend.detokenize(ids).strip() == "one two three"


def test_a_run_measures_judges_and_reports(server, tmp_path):
    """Law: a server started by hand with slots that divide its window: the cause is first, every key of the contract is there."""
    done = ctxdoctor(
        "run",
        server.url,
        "--symptom",
        "fixed-length-error",
        "--target",
        "6k",
        "--log",
        str(server.log_path),
        "--format",
        "json",
        "--ladder",
        "1024,2048",
        home=tmp_path / "home",
        cwd=tmp_path,
    )
    assert done.returncode in {1, 4}, done.stderr
    document = json.loads(done.stdout)
    assert document["subject"]["window"] == {
        "asked": 6144,
        "trained": 16384,
        "per_slot": 3072,
        "slots": 2,
        "in_force": 3072,
    }
    assert document["subject"]["backend"]["name"] == "llama.cpp"
    assert document["verdict"]["causes"][0]["id"] == "slots-divide-ctx"
    assert done.returncode == 1
    said = re.search(r"At most (\d+) requests with (\d+) prompt tokens", done.stderr)
    assert said, done.stderr
    # what is said before is the most; no run sends half as much again
    assert document["sent"]["requests"] <= 1.5 * int(said[1])
    assert document["sent"]["requests"] > 0
    assert document["criteria"]["hash"]
    assert {
        "case",
        "subject",
        "criteria",
        "rungs",
        "window",
        "verdict",
        "verdicts",
        "next_test",
        "changes",
        "evidence",
        "sent",
        "unknown",
    } <= set(document)
    test = document["next_test"]
    assert test["variable"] == "parallel"
    assert "-np 1" in test["command"]
    assert test["undo"]
    report = (tmp_path / "ctxdoctor-report.md").read_text()
    assert "slots-divide-ctx" in report
    assert all(one["first_token_s"] is None or one["first_token_s"] >= 0 for one in document["rungs"])


def test_kill_9_in_the_middle_then_resume_measures_no_rung_twice(server, tmp_path):
    """Law: after SIGKILL at a random moment, ``run --case`` goes on: no attempt is lost, none is measured twice."""
    home = tmp_path / "home"
    command = [
        sys.executable,
        "-m",
        "diagnose",
        "run",
        server.url,
        "--case",
        "k",
        "--ladder",
        "512,1024,1536,2048,2560",
        "--quiet",
    ]
    environment = {**os.environ, "CTXDOCTOR_HOME": str(home), "PYTHONPATH": str(ROOT)}
    journal = home / "cases" / "k" / JOURNAL
    for wanted in (2, 4):
        process = subprocess.Popen(
            command if wanted == 2 else [*command[:4], "--case", "k", "--quiet"],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        ends = time.monotonic() + 120
        while time.monotonic() < ends and process.poll() is None:
            if journal.exists() and journal.read_text(errors="replace").count('"kind":"rung"') >= wanted:
                break
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stderr.close()
    with Case.open(journal.parent) as case:
        before = [(one.rung, one.attempt) for one in case.payloads(RungResult)]
    done = ctxdoctor("run", "--case", "k", "--format", "json", home=home, cwd=tmp_path)
    assert done.returncode in {0, 1, 4}, done.stderr
    with Case.open(journal.parent) as case:
        after = [(one.rung, one.attempt) for one in case.payloads(RungResult)]
        assert case.run == 1
        assert case.has_ended(1)
    assert after[: len(before)] == before
    assert len(after) == len(set(after))
    assert len(after) >= 5


def test_a_failed_launch_is_evidence_and_names_what_did_not_fit(model, tmp_path):
    """Law: a server that does not start gives a report with its own lines, and the command with one flag changed."""
    command = " ".join(server_command(model, "-c", "4096", "-ctv", "q4_0", "-fa", "off"))
    done = ctxdoctor(
        "run",
        "--launch",
        command,
        "--symptom",
        "immediate-oom",
        "--format",
        "json",
        home=tmp_path / "home",
        cwd=tmp_path,
    )
    document = json.loads(done.stdout)
    assert document["verdict"]["causes"][0]["id"] == "kv-quant-needs-flash-attn"
    assert done.returncode == 1
    assert any(
        "flash_attn" in line["text"].lower() or "flash attention" in line["text"].lower()
        for line in document["log_lines"]
    )


def test_a_launched_server_is_stopped_and_only_that(model, tmp_path, server):
    """Law: after a run with --launch nothing that it started is left; a server that was there before still answers."""
    import psutil

    command = " ".join(server_command(model, "-c", "2048", "-np", "1"))
    before = {one.pid for one in psutil.process_iter()}
    done = ctxdoctor(
        "run", "--launch", command, "--ladder", "512,1024", "--format", "json", home=tmp_path / "home", cwd=tmp_path
    )
    document = json.loads(done.stdout)
    assert document["rungs"]
    left = [
        one
        for one in psutil.process_iter(["cmdline"])
        if one.pid not in before and "llama_server.py" in " ".join(one.info["cmdline"] or ())
    ]
    assert [one for one in left if str(model) in " ".join(one.info["cmdline"])] == []
    assert answers(server.url)


def test_a_program_that_shows_no_flags_gives_no_defaults(model, tmp_path):
    """Law: a server inside another program has settings that nobody sees; none of them is taken for the default."""
    import xllamacpp  # noqa: F401

    from diagnose.look import at_process
    from probes.evidence.subject import Configuration
    from probes.process import process_behind

    script = tmp_path / "serve.py"
    script.write_text(
        "import sys, time, xllamacpp\n"
        "p = xllamacpp.CommonParams()\n"
        f"p.model.path = {str(model)!r}\n"
        "p.n_ctx = 1024; p.port = 0; p.hostnames = ['127.0.0.1']; p.cpuparams.n_threads = 1\n"
        "s = xllamacpp.Server(p)\n"
        "print(s.listening_address, flush=True)\n"
        "time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http"), url
        pieces = list(at_process(process_behind(url), "", "llama.cpp", 1))
        reading = next(one.payload() for one in pieces if one.kind == Configuration.kind)
        assert reading.command is None
        assert "serve.py" in reading.unread["command"]
        assert not [name for name in reading.settings if not name.startswith("env.")]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
