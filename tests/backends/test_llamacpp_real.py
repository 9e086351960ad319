"""llama.cpp itself, with a model of random weights: recognised alone, through the recording proxy, and below llama-swap's paths."""

from __future__ import annotations

import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2 as httpx
import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.overflow import overflow_rule
from probes.backends.recognise import MOST_GETS, recognise
from probes.watch import Watch
from tests.tiny_model import make_model, serving

pytestmark = [pytest.mark.real_server]
WINDOW, SLOTS = 3000, 3
PER_SLOT = 1024  # 3000 is padded to 3072 cells, and three slots share them


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start the embedded server on a free loopback port, and end that process only."""
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("llama")
    model = make_model(folder / "tiny.gguf")
    with serving(folder, model, "-c", str(WINDOW), "-np", str(SLOTS), "-no-kvu") as url:
        yield url


class _Swap(BaseHTTPRequestHandler):
    """A stand-in for llama-swap: its own answers, and the real server below ``/upstream/tiny``, with the ``Server`` header taken out."""

    protocol_version = "HTTP/1.1"
    behind = ""

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        own = {
            "/api/version": b'{"version":"250","commit":"abc","build_date":"x"}',
            "/running": b'{"running":[{"model":"tiny","state":"ready","cmd":"llama-server -m tiny.gguf -c 3000 -np 3","proxy":"","ttl":0}]}',
        }
        if self.path in own:
            self._give(200, "application/json", own[self.path])
        else:
            self._through(None)

    def do_POST(self) -> None:
        self._through(self.rfile.read(int(self.headers["content-length"])))

    def _through(self, body: bytes | None) -> None:
        if not self.path.startswith("/upstream/tiny/"):
            self._give(404, "application/json", b'{"src":"llama-swap","error":{"message":"not found"}}')
            return
        url = self.behind + self.path.removeprefix("/upstream/tiny")
        answer = httpx.request(
            "GET" if body is None else "POST",
            url,
            content=body,
            headers={"Content-Type": "application/json"},
            timeout=30,
        )
        self._give(answer.status_code, answer.headers["content-type"], answer.content)

    def _give(self, status: int, kind: str, data: bytes) -> None:
        self.wfile.write(
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        )


@pytest.fixture
def swap(server):
    handler = type("Swap", (_Swap,), {"behind": server})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as front:
        thread = threading.Thread(target=front.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{front.server_address[1]}"
        front.shutdown()
        thread.join(5)


def check(backend) -> None:
    """The whole of it: window, exact counts, the cache off, a refusal with its numbers."""
    window = backend.window()
    assert (window.per_slot, window.slots, window.in_force) == (PER_SLOT, SLOTS, PER_SLOT)
    text = "abcdefgh " * 60
    tokens = backend.count_tokens(text)
    told = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False))
    assert told.error is None
    assert told.cached_tokens == 0
    assert told.processed_tokens == told.prompt_tokens
    # A beginning-of-text token may stand in front.
    assert told.prompt_tokens - tokens in {0, 1}
    assert told.generated_tokens == 3
    over = backend.complete(Ask(prompt="x" * (PER_SLOT + 100), max_tokens=1))
    assert over.error is not None
    assert (over.error.error, over.error.window) == ("exceeds-window", PER_SLOT)
    assert over.error.prompt_tokens >= PER_SLOT + 100
    assert overflow_rule(tokens, told.prompt_tokens, PER_SLOT, backend=backend.name) is None


def test_alone(server):
    """Few GETs, quickly."""
    with Http(server) as http:
        started = time.monotonic()
        backend = recognise(http)
        assert time.monotonic() - started < 2
        assert http.requests_sent <= MOST_GETS
        assert (backend.name, backend.identity().router) == ("llama.cpp", False)
        check(backend)


def test_through_the_recording_proxy(server):
    """The proxy changes nothing that the backend sees, and its record has the server's counts."""
    with Watch(server) as watch, Http(watch.url) as http:
        backend = recognise(http)
        assert backend.name == "llama.cpp"
        check(backend)
        deadline = time.monotonic() + 5
        while len(watch.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        answered, refused = watch.requests
        assert (answered.generated_tokens, answered.cached_tokens, answered.streamed) == (3, 0, True)
        assert answered.first_token_s is not None
        assert (refused.error, refused.error_window) == ("exceeds-window", PER_SLOT)


def test_below_llama_swaps_paths(swap):
    """Recognised as what it is, with the command that llama-swap tells."""
    with Http(swap) as http:
        backend = recognise(http)
        assert backend.name == "llama-swap"
        identity = backend.identity()
        assert (identity.name, identity.router) == ("llama.cpp", True)
        assert backend.window().asked == WINDOW
        check(backend)
