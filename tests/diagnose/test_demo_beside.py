"""What stands beside the demo's server: a proxy that closes what takes too long and nothing else."""

import http.client
import http.server
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
    with demo.beside(planted(gives_up_s=1), server.server_port) as front:
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
    with demo.beside(planted(gives_up_s=5), port) as front:
        with pytest.raises((OSError, http.client.HTTPException)):
            fetch(f"{front}/fast", seconds=3)
        with Quiet(("127.0.0.1", port), Slow) as late:
            threading.Thread(target=late.serve_forever, daemon=True).start()
            assert fetch(f"{front}/fast") == b"ok"
            late.shutdown()


def test_nothing_beside_outlives_the_demo(server):
    """Law: a proxy whose parent was killed ends by itself."""
    script = f"import os,subprocess,sys,time;p=subprocess.Popen([sys.executable,{str(Path(demo.BESIDE))!r},str(os.getpid()),'5','{free_port()}','{server.server_port}'],stdout=subprocess.DEVNULL);print(p.pid,flush=True);time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait()
    import psutil

    ends = time.monotonic() + 10
    while time.monotonic() < ends and psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.1)
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("name", ["flaky", "slow-long-context"])
def test_seeds_in_a_row_plant_everything_and_the_answers_never_say_what(name):
    """Law: each seed plants one fault, several seeds all of them; the session is told the symptom, and nothing else that depends on the seed."""
    made = [demo.scenario(name, seed, Path("model.gguf")) for seed in range(6)]
    assert len({one.planted for one in made}) >= 2
    assert len({one.answers for one in made}) == 1
    assert {one.question for one in made[0].answers} == {"symptom"}
    assert all(one.causes for one in made)
