"""Real servers that go away in the middle of a ladder: dead at a length, started anew, another window, somebody else at work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

import pytest

from diagnose.opening import answers_health
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.launch import Server, address_of
from probes.process import free_port
from tests.faults import limiting
from tests.faults.session import of_kind, run
from tests.tiny_model import make_model, server_command

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", trained=16384)


def test_a_server_that_dies_at_a_length_is_started_again_and_the_walk_goes_on_below(model, tmp_path):
    """Law: the length, the signal and the last log line are named; what is below is measured and proved on the server that was started again."""
    port = free_port()
    inner = server_command(model, "-c", "6144", "-np", "1")
    command = " ".join((sys.executable, limiting.__file__, "3000", str(port), "--", *inner))
    document, done = run(f"http://127.0.0.1:{port}", "--launch", command, folder=tmp_path)
    died = [one for one in document["rungs"] if one["result"] == "died"]
    ended = of_kind(document, "process_ended")
    assert died, done.stderr
    assert all(one["input_tokens"] > 2900 for one in died)
    assert {one["signal"] for one in ended} == {"SIGKILL"}
    assert min(one["at_prompt_tokens"] for one in ended) > 2900
    assert any("ggml_abort" in line["text"] for line in document["log_lines"])
    restarts = of_kind(document, "restarted")
    assert restarts
    assert all(one["because"] == "died" and one["healthy"] for one in restarts)
    resolution = of_kind(document, "ladder_plan")[-1]["resolution"]
    claimed = document["window"]["fits"]["tokens"]
    # the chat template is not seen by the proxy
    assert 3000 - resolution - 64 <= claimed <= 3032
    assert "three times in a row" in document["window"]["statement"]
    places = [document["rungs"].index(one) for one in died]
    assert any(one["result"] == "passed" for one in document["rungs"][min(places) + 1 :])


def test_a_server_that_only_drops_connections_is_walked_on_below(model, tmp_path):
    """Law: a connection that is dropped at a length is no dead server and no memory that is full: said, and the length is found to its resolution."""
    with Server(server_command(model, "-c", "4096", "-np", "1"), log_path=tmp_path / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        proxy = limiting.Proxy(server.url, "hangs-up", 2500, lambda: None)
        document, _done = run(proxy.url, folder=tmp_path)
    resolution = of_kind(document, "ladder_plan")[-1]["resolution"]
    assert 2500 - resolution - 64 <= document["window"]["fits"]["tokens"] <= 2500
    cut = [one for one in document["rungs"] if one["error_kind"] == "connection-lost"]
    assert cut
    assert {one["result"] for one in cut} == {"failed"}
    assert "the connection was cut while the server lives" in document["window"]["statement"]
    assert not of_kind(document, "process_ended")


def test_a_window_that_changes_in_the_middle_is_said_and_nothing_is_mixed(model, tmp_path):
    """Law: somebody starts the server with another window while it is measured: said, the walk ends, and no window is claimed from both."""
    port = free_port()

    def start(ctx):
        one = Server(server_command(model, "-c", str(ctx), "-np", "1", port=port), log_path=tmp_path / f"log{ctx}")
        one.start()
        assert one.wait_healthy(lambda pid: address_of(pid, answers_health, port), 60).healthy
        return one

    first = start(8192)
    others = []
    home = tmp_path / "home"

    def swap():
        ends = time.monotonic() + 100
        while time.monotonic() < ends:
            journals = list(home.glob("cases/*/journal.jsonl"))
            if journals and journals[0].read_text(errors="replace").count('"kind":"rung"') >= 2:
                break
            time.sleep(0.02)
        os.kill(first.pid, signal.SIGKILL)
        others.append(start(4096))

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        document, _done = run(f"http://127.0.0.1:{port}", folder=tmp_path)
    finally:
        thread.join()
        for one in (first, *others):
            one.stop()
    changed = of_kind(document, "window_changed")
    assert [(one["before"], one["after"]) for one in changed] == [(8192, 4096)]
    assert document["window"]["verified_input_tokens"] is None
    assert "8,192" in document["window"]["statement"]
    assert "4,096" in document["window"]["statement"]
    assert document["window"]["fits"]["ok"] is not True or document["window"]["fits"]["tokens"] < 4096


def test_somebody_else_at_work_is_noticed_and_said(model, tmp_path):
    """Law: a slot that somebody else keeps busy is seen before an attempt, kept with it, and stands in the report."""
    with Server(server_command(model, "-c", "8192", "-np", "2"), log_path=tmp_path / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        stop = threading.Event()

        def keep_busy():
            with Http(server.url) as http:
                backend = recognise(http)
                while not stop.is_set():
                    backend.complete(Ask(prompt="once upon a time", max_tokens=3000, deadline_s=20))

        thread = threading.Thread(target=keep_busy)
        thread.start()
        try:
            document, _done = run(server.url, "--ladder", "512,1024", folder=tmp_path)
        finally:
            stop.set()
            thread.join()
    assert sum(bool(one["busy_beside"]) for one in of_kind(document, "rung")) >= 1
    assert any("someone else" in note for note in document["notes"])


def test_a_flaky_run_with_launch_replays_on_a_fresh_server(model, tmp_path):
    """Law: where the server may be started again, the request is sent to a fresh one, and what came of it stands in evidence and report."""
    command = " ".join(server_command(model, "-c", "4096", "-np", "1"))
    document, _done = run("--launch", command, "--symptom", "flaky", "--ladder", "512,1024", folder=tmp_path)
    (replay,) = of_kind(document, "fresh_replay")
    assert (replay["first"], replay["later_passed"], replay["later_tried"]) == ("passed", 2, 2)
    assert [one["because"] for one in of_kind(document, "restarted")] == ["fresh"]
    assert any("freshly started" in note for note in document["notes"])
    assert document["window"]["fits"]["ok"] is True


@pytest.mark.parametrize("fault", ["drops", "swaps"])
def test_a_stream_that_is_torn_changes_no_length(model, tmp_path, fault):
    """Law: chunks that are lost or out of order end no session, and the window is the server's all the same."""
    with Server(server_command(model, "-c", "4096", "-np", "1"), log_path=tmp_path / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        proxy = limiting.Proxy(server.url, fault, 0, lambda: None)
        document, done = run(proxy.url, "--ladder", "512,2048", folder=tmp_path)
    assert 2000 <= document["window"]["fits"]["tokens"] <= 2048, done.stderr
    assert document["verdict"]["named"] == []


def test_a_server_that_nobody_may_start_again_tells_of_short_prompts_before_the_one_that_ends_it(model, tmp_path):
    """Law: the prompt above the window comes after the short ones where a dead server stays dead; what was measured before it stands."""
    with Server(server_command(model, "-c", "6144", "-np", "1"), log_path=tmp_path / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        proxy = limiting.Proxy(server.url, "kills", 3000, lambda: os.kill(server.pid, signal.SIGKILL))
        document, done = run(proxy.url, folder=tmp_path)
    assert [one["result"] for one in document["rungs"]][:1] == ["passed"], done.stderr
    assert of_kind(document, "request_error")[-1]["error"] == "connection-lost"


def test_a_server_that_refuses_log_probabilities_is_measured_all_the_same(model, tmp_path):
    """Law: where next tokens cannot be compared, that stands as not offered; the window and the chains of facts are measured."""
    flags = ("-c", "4096", "-np", "1", "-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")
    port = free_port()
    command = (
        sys.executable,
        limiting.__file__,
        "9999999",
        str(port),
        "no-logprobs",
        "--",
        *server_command(model, *flags),
    )
    asked = ("--launch", " ".join(command), "--symptom", "forgetting", "--ladder", "512,1024")
    document, done = run(f"http://127.0.0.1:{port}", *asked, folder=tmp_path)
    pieces = [one for one in document["evidence"] if one["kind"] == "next_tokens"]
    assert pieces, done.stderr
    assert all(one["data"] is None and one["unavailable"]["why"] == "not-offered" for one in pieces)
    assert document["window"]["fits"]["ok"] is True


def test_a_server_of_somebody_else_that_dies_is_waited_for_once(model, tmp_path):
    """Law: a server that is not ours is not started; it is waited for once, and what cannot be measured any more is said, without a wait for each."""
    with Server(server_command(model, "-c", "6144", "-np", "1"), log_path=tmp_path / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        home = tmp_path / "home"

        def kill():
            ends = time.monotonic() + 100
            while time.monotonic() < ends:
                journals = list(home.glob("cases/*/journal.jsonl"))
                if journals and journals[0].read_text(errors="replace").count('"kind":"rung"') >= 1:
                    break
                time.sleep(0.02)
            os.kill(server.pid, signal.SIGKILL)

        thread = threading.Thread(target=kill)
        thread.start()
        begun = time.monotonic()
        document, done = run(server.url, "--symptom", "flaky", folder=tmp_path)
        took = time.monotonic() - begun
        thread.join()
    assert done.stderr.count("it is waited for") == 1
    assert took < 90
    assert of_kind(document, "restarted") == []
    assert [one["data"] for one in document["evidence"] if one["kind"] == "cache-reuse"] == [None]
