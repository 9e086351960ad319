"""What stands beside the demo's server: a proxy that closes what takes too long and nothing else."""

import http.client
import http.server
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from diagnose import demo
from probes.process import free_port


class Slow(http.server.BaseHTTPRequestHandler):
    """Answers ``/fast`` at once and anything else after two seconds."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        if self.path != "/fast":
            time.sleep(2.0)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments):
        pass


class Quiet(http.server.ThreadingHTTPServer):
    """A client that left is no news."""

    daemon_threads = True

    def handle_error(self, request, address):
        pass


@pytest.fixture
def server():
    with Quiet(("127.0.0.1", 0), Slow) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def planted(**more):
    return demo.Scenario("flaky", (), (), "", (), **more)


def fetch(url, seconds=5.0):
    ends = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.read()
        except urllib.error.URLError as error:
            # the proxy's own start takes a moment
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > ends:
                raise
            time.sleep(0.05)


def test_the_proxy_passes_what_is_quick_and_closes_what_takes_longer(server):
    """Law: answers within the limit pass whole, again and again; a longer one ends with a closed connection at the limit."""
    with demo.beside(planted(beside="gives-up:1"), server.server_port) as front:
        for _number in range(3):
            assert fetch(f"{front}/fast") == b"ok"
        began = time.monotonic()
        with pytest.raises((OSError, http.client.HTTPException)):
            fetch(f"{front}/slow")
        assert 0.9 <= time.monotonic() - began <= 1.9
        assert fetch(f"{front}/fast") == b"ok"


def test_the_proxy_waits_for_a_server_that_starts_later(server):
    """Law: nothing behind it is a closed connection, not the end of the proxy."""
    port = free_port()
    with demo.beside(planted(beside="gives-up:5"), port) as front:
        with pytest.raises((OSError, http.client.HTTPException)):
            fetch(f"{front}/fast", seconds=3)
        with Quiet(("127.0.0.1", port), Slow) as late:
            threading.Thread(target=late.serve_forever, daemon=True).start()
            assert fetch(f"{front}/fast") == b"ok"
            late.shutdown()


def test_nothing_beside_outlives_the_demo(server):
    """Law: a proxy whose parent was killed ends by itself."""
    script = f"import os,subprocess,sys,time;p=subprocess.Popen([sys.executable,{str(Path(demo.BESIDE))!r},str(os.getpid()),'gives-up:5','{free_port()}','{server.server_port}'],stdout=subprocess.DEVNULL);print(p.pid,flush=True);time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    import psutil

    ends = time.monotonic() + 10
    while time.monotonic() < ends and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


class Echo(http.server.BaseHTTPRequestHandler):
    """Gives back what it was sent, after ``server.takes`` seconds."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(self.server.takes)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, *_arguments):
        pass


@pytest.fixture
def echo():
    with Quiet(("127.0.0.1", 0), Echo) as one:
        one.takes = 0.0
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one
        one.shutdown()
        thread.join()


def post(url, body):
    request = urllib.request.Request(url, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_gateway_that_writes_the_time_changes_the_beginning_of_each_prompt_and_nothing_else(echo):
    """Law: two equal prompts arrive with different beginnings and the same text after them; other requests pass as they are."""
    with demo.beside(planted(beside="puts-the-time-in-front"), echo.server_port) as front:
        assert fetch(f"{front}/health") == b"ok"
        arrived = [post(f"{front}/completion", {"prompt": "Once", "n_predict": 1})[1] for _number in range(2)]
        assert arrived[0]["prompt"] != arrived[1]["prompt"]
        assert all(one["prompt"].endswith("] Once") and one["n_predict"] == 1 for one in arrived)
        chat = post(f"{front}/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]})[1]
        assert chat["messages"][0]["content"].endswith("] Hello")
        assert post(f"{front}/tokenize", {"content": "Once"})[1] == {"content": "Once"}


def test_the_gateway_that_lets_one_through_turns_the_second_away_at_once(echo):
    """Law: a request beside another is answered 429 and leaves the first alone; what is no completion passes."""
    echo.takes = 1.5
    with demo.beside(planted(beside="one-at-a-time"), echo.server_port) as front:
        assert fetch(f"{front}/health") == b"ok"
        answers = []
        first = threading.Thread(target=lambda: answers.append(post(f"{front}/completion", {"prompt": "a"})))
        first.start()
        time.sleep(0.5)
        began = time.monotonic()
        status, refusal = post(f"{front}/completion", {"prompt": "b"})
        assert status == 429
        assert "Too many requests" in refusal["error"]["message"]
        assert time.monotonic() - began < 1.0
        first.join()
        assert answers == [(200, {"prompt": "a"})]


@pytest.mark.parametrize("name", ["flaky", "slow-long-context", "forgetting"])
def test_seeds_in_a_row_plant_everything_and_the_answers_never_say_what(name, monkeypatch):
    """Law: each seed plants one fault, several seeds all of them; the session is told the symptom, and nothing else that depends on the seed."""
    monkeypatch.setattr(demo, "rewritten", lambda model, *_changed: model)
    made = [demo.scenario(name, seed, Path("model.gguf")) for seed in range(12)]
    assert len({one.planted for one in made}) >= 3
    assert len({one.answers for one in made}) == 1
    assert {one.question for one in made[0].answers} == {"symptom"}
    assert all(one.causes for one in made)
