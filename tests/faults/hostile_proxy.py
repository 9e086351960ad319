"""A proxy on the loopback before a real server, that lies in one way or another: counts, times, caches, other servers' answers.

Each lie is a subclass of :class:`Lie`; a plain one passes everything through. What reached the server stands in ``reached``.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

COUNTS = frozenset({"prompt_tokens", "tokens_evaluated", "prompt_n", "n_prompt_tokens", "total_tokens"})


def everywhere(told: Any, change: Callable[[str, Any], Any]) -> Any:
    """Change the values of an answer, at any depth, by name."""
    if isinstance(told, dict):
        return {key: change(key, everywhere(value, change)) for key, value in told.items()}
    if isinstance(told, list):
        return [everywhere(one, change) for one in told]
    return told


class Lie:
    """What becomes of a request and of its answer. ``None`` from ``instead``: the server is asked."""

    keeps_back = False
    """Whether the whole answer is collected before any of it is handed on."""
    waits_s = 0.0
    never_ends = False
    """Whether a stream goes on with a word now and then, and has no end."""

    def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
        del method, path, body
        return None

    def request(self, path: str, body: Any) -> Any:
        del path
        return body

    def answer(self, path: str, told: Any) -> Any:
        del path
        return told

    def seen(self, path: str, body: Any, answer: tuple[int, str, bytes]) -> None:
        """Take note of a whole answer (only where it is kept back)."""


class Counts(Lie):
    """(a) Rewrites every count of prompt tokens."""

    def __init__(self, rewrite: Callable[[int], int]) -> None:
        self.rewrite = rewrite

    def answer(self, path: str, told: Any) -> Any:
        del path

        def change(key: str, value: Any) -> Any:
            return self.rewrite(value) if key in COUNTS and type(value) is int else value

        return everywhere(told, change)


class NoTimings(Lie):
    """(b) Strips the server's own times and counts of what was processed; the protocol's usage stays."""

    def answer(self, path: str, told: Any) -> Any:
        del path
        if isinstance(told, dict):
            told = {key: value for key, value in told.items() if key not in {"timings", "prompt_progress"}}
        return told


class SlowTimes(Lie):
    """(b') Says that the server took a hundred times as long as it did."""

    def answer(self, path: str, told: Any) -> Any:
        del path
        return everywhere(told, lambda key, value: value * 100 if key in {"prompt_ms", "predicted_ms"} else value)


class Caching(Lie):
    """(c) Answers a request that it has seen before by itself. ``blind``: to what of a request it does not look."""

    keeps_back = True

    def __init__(self, blind: tuple[str, ...] = ()) -> None:
        self.blind = blind
        self.known: dict[str, tuple[int, str, bytes]] = {}
        self.served = 0

    def _key(self, path: str, body: Any) -> str:
        kept = {key: value for key, value in body.items() if key not in self.blind} if isinstance(body, dict) else body
        return hashlib.sha256(f"{path} {json.dumps(kept, sort_keys=True)}".encode()).hexdigest()

    def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
        told = self.known.get(self._key(path, body)) if method == "POST" else None
        self.served += told is not None
        return told

    def seen(self, path: str, body: Any, answer: tuple[int, str, bytes]) -> None:
        self.known[self._key(path, body)] = answer


class Html(Lie):
    """(d) Serves a web page, with HTTP 200, for every path that is not the protocol's."""

    page = b"<!doctype html><html><head><title>Chat</title></head><body><div id=root></div></body></html>"

    def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
        del method, body
        return None if path.startswith("/v1/") else (200, "text/html", self.page)


class OtherName(Lie):
    """(e) Rewrites the model's name wherever it stands."""

    def answer(self, path: str, told: Any) -> Any:
        del path

        def change(key: str, value: Any) -> Any:
            if (
                key in {"model", "id", "model_alias", "name"}
                and isinstance(value, str)
                and not value.startswith("chat")
            ):
                return "frontier-large"
            return "/models/frontier-large.gguf" if key == "model_path" else value

        return everywhere(told, change)


class Buffering(Lie):
    """(f) Keeps the whole stream back, so that the first token comes with the last."""

    keeps_back = True


class Cutting(Lie):
    """(g) Cuts long prompts to their end, silently. ``hides``: counts are made to fit what the client sent."""

    def __init__(self, most: int, *, hides: bool = False) -> None:
        self.most, self.hides = most, hides
        self.sent = threading.local()

    def request(self, path: str, body: Any) -> Any:
        del path
        if not isinstance(body, dict):
            return body
        text = body.get("prompt") or next((m.get("content", "") for m in body.get("messages", [])), "")
        self.sent.characters = len(text)
        if len(text) <= self.most:
            return body
        if "prompt" in body:
            return {**body, "prompt": text[-self.most :]}
        return {**body, "messages": [{"role": "user", "content": text[-self.most :]}]}

    def answer(self, path: str, told: Any) -> Any:
        del path
        sent = getattr(self.sent, "characters", 0)
        if not self.hides or sent <= self.most:
            return told

        def change(key: str, value: Any) -> Any:
            # one token a character in the model of these tests
            return value + sent - self.most if key in COUNTS and type(value) is int else value

        return everywhere(told, change)


class OtherProps(Lie):
    """(h) Answers ``/props`` and the list of models as another server would: another window, more slots, another build."""

    def __init__(self, window: int) -> None:
        self.window = window

    def answer(self, path: str, told: Any) -> Any:
        if path.startswith("/props"):
            settings = {**told.get("default_generation_settings", {}), "n_ctx": self.window}
            return {**told, "default_generation_settings": settings, "build_info": "b99999-fffffff"}
        if path.startswith("/v1/models"):
            return everywhere(told, lambda key, value: self.window if key == "n_ctx" else value)
        return told


class Latency(Lie):
    """(i) Takes its time with everything."""

    def __init__(self, seconds: float) -> None:
        self.waits_s = seconds


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HostileProxy

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._pass("GET", None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body: Any = json.loads(data)
        except ValueError:
            body = None
        self._pass("POST", body)

    def _pass(self, method: str, body: Any) -> None:
        lie = self.owner.lie
        if lie.waits_s:
            time.sleep(lie.waits_s)
        own = lie.instead(method, self.path, body)
        if own is not None:
            self._give(*own)
            return
        self.owner.reached.append((method, self.path))
        sent = lie.request(self.path, body)
        behind = urlsplit(self.owner.behind)
        with contextlib.closing(http.client.HTTPConnection(behind.hostname, behind.port, timeout=120)) as connection:
            data = None if sent is None else json.dumps(sent)
            connection.request(method, self.path, data, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            kind = answer.getheader("content-type") or "application/json"
            if kind.startswith("text/event-stream"):
                self._stream(lie, body, answer, kind)
                return
            raw = answer.read()
            with contextlib.suppress(ValueError):
                raw = json.dumps(lie.answer(self.path, json.loads(raw))).encode()
            self._give(answer.status, kind, raw)

    def _events(self, lie: Lie, answer: http.client.HTTPResponse) -> Iterator[bytes]:
        while lie.never_ends:
            told = {"choices": [{"delta": {"content": "on "}}]} if "chat" in self.path else {"content": "on "}
            yield b"data: " + json.dumps(told).encode() + b"\n\n"
            time.sleep(0.3)
        for line in answer:
            if line.startswith(b"data: {"):
                told = lie.answer(self.path, json.loads(line[6:]))
                yield b"data: " + json.dumps(told).encode() + b"\n"
            else:
                yield line

    def _stream(self, lie: Lie, body: Any, answer: http.client.HTTPResponse, kind: str) -> None:
        if lie.keeps_back:
            whole = b"".join(self._events(lie, answer))
            lie.seen(self.path, body, (answer.status, kind, whole))
            self._give(answer.status, kind, whole)
            return
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        self.wfile.write(head.encode())
        for line in self._events(lie, answer):
            self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
        self.close_connection = True

    def _give(self, status: int, kind: str, data: bytes) -> None:
        head = (
            f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        self.wfile.write(head.encode() + data)
        self.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is no fault of the proxy's."""


class HostileProxy:
    """The proxy, as a context manager; ``url`` is where the client is pointed."""

    def __init__(self, behind: str, lie: Lie) -> None:
        self.behind, self.lie = behind, lie
        self.reached: list[tuple[str, str]] = []
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)
