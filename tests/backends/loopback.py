"""A server on the loopback that plays recorded or documented answers, and faults.

Answers stand in ``tests/recordings/http/<backend>-<version>/answers.json``, with their source: ``GET /path`` or ``POST /path`` → an answer; a name
after ``#`` is a variant that a test chooses. An answer has ``status``, ``headers``, and one of ``json``, ``text``, ``sse`` or ``ndjson``; ``by`` holds
others for a field of the request with a certain text.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

RECORDINGS = Path(__file__).parent.parent / "recordings" / "http"

Fault = Callable[["_Handler"], None]


def recording(name: str) -> dict[str, Any]:
    """Read one recording whole."""
    return json.loads((RECORDINGS / name / "answers.json").read_text(encoding="utf-8"))


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests do on purpose."""


class Loopback:
    """The server. ``asked``: (method, path, body) of every request; ``choose``: route → variant; ``faults``: route → what to do instead."""

    def __init__(
        self,
        answers: dict[str, Any] | None = None,
        *,
        default: dict[str, Any] | None = None,
        strip: tuple[str, ...] = (),
    ) -> None:
        self.answers = answers or {}
        self.default = default or {"status": 404, "json": {"error": "not found"}}
        self.strip = tuple(name.lower() for name in strip)
        """Headers that a proxy in front would take out."""
        self.asked: list[tuple[str, str, Any]] = []
        self.choose: dict[str, str] = {}
        self.faults: dict[str, Fault] = {}
        self.stopping = threading.Event()
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = _Quiet(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @classmethod
    def playing(cls, name: str, **more: Any) -> Self:
        """Play a recording."""
        told = recording(name)
        return cls(told["answers"], default=told.get("default"), **more)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def paths(self) -> list[str]:
        return [path for _method, path, _body in self.asked]

    def bodies(self, path: str) -> list[Any]:
        """Give the bodies of every POST to a path."""
        return [body for method, asked, body in self.asked if method == "POST" and asked == path]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class _Handler(BaseHTTPRequestHandler):
    owner: Loopback
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve("GET", None)

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body: Any = json.loads(data)
        except ValueError:
            body = data
        self._serve("POST", body)

    def _serve(self, method: str, body: Any) -> None:
        self.owner.asked.append((method, self.path, body))
        bare = self.path.split("?")[0]
        for route in (f"{method} {self.path}", f"{method} {bare}", "*"):
            if route in self.owner.faults:
                with contextlib.suppress(OSError):
                    self.owner.faults[route](self)
                self.close_connection = True
                return
        answer = self.owner.default
        for route in (f"{method} {self.path}", f"{method} {bare}"):
            variant = self.owner.choose.get(route)
            told = self.owner.answers.get(f"{route}#{variant}" if variant else route)
            if told is not None:
                answer = told
                break
        if "sequence" in answer:
            # One answer after the other; the last one stays.
            number = sum(1 for asked, path, _body in self.owner.asked if (asked, path) == (method, self.path)) - 1
            answer = answer["sequence"][min(number, len(answer["sequence"]) - 1)]
        for key, answers in answer.get("by", {}).items():
            # an answer that depends on what was sent: field → its text → answer
            told = body.get(key) if isinstance(body, dict) else None
            answer = answers.get(told, answer) if isinstance(told, str) else answer
        with contextlib.suppress(OSError):
            self.answer(answer)

    def send_head(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        """Send status, headers exactly as given (no Date, no Server of our own) and a body, in one write."""
        kept = [f"{name}: {value}\r\n" for name, value in headers.items() if name.lower() not in self.owner.strip]
        self.wfile.write(f"HTTP/1.1 {status} X\r\n{''.join(kept)}\r\n".encode() + body)

    def answer(self, told: dict[str, Any]) -> None:
        headers = {**self.owner.default.get("headers", {}), **told.get("headers", {})}
        if "sse" in told or "ndjson" in told:
            kind = "text/event-stream" if "sse" in told else "application/x-ndjson"
            self.send_head(told.get("status", 200), {"Content-Type": kind, "Transfer-Encoding": "chunked", **headers})
            for event in told.get("sse", told.get("ndjson")):
                if isinstance(event, dict) and set(event) == {"wait_s"}:
                    time.sleep(event["wait_s"])
                    continue
                text = event if isinstance(event, str) else json.dumps(event)
                line = (
                    f"data: {text}\n\n"
                    if "sse" in told and not text.startswith(":")
                    else text + ("\n\n" if "sse" in told else "\n")
                )
                self.chunk(line.encode())
            if not told.get("cut"):
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        data = json.dumps(told["json"]).encode() if "json" in told else told.get("text", "").encode()
        kind = "application/json" if "json" in told else "text/plain; charset=utf-8"
        self.send_head(
            told.get("status", 200), {"Content-Type": kind, "Content-Length": str(len(data)), **headers}, data
        )

    def chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


# --- faults --------------------------------------------------------------------------------------------------------------------------------


def plain(text: str | bytes, kind: str = "application/json", status: int = 200) -> Fault:
    """Answer exactly this."""
    data = text.encode() if isinstance(text, str) else text

    def act(handler: _Handler) -> None:
        handler.send_head(status, {"Content-Type": kind, "Content-Length": str(len(data))})
        handler.wfile.write(data)

    return act


def redirect(where: str) -> Fault:
    """Send the client elsewhere."""

    def act(handler: _Handler) -> None:
        handler.send_head(302, {"Location": where, "Content-Length": "0"})

    return act


def cut_short(text: str, promised: int = 100_000) -> Fault:
    """Promise more than comes, then close."""

    def act(handler: _Handler) -> None:
        handler.send_head(200, {"Content-Type": "application/json", "Content-Length": str(promised)})
        handler.wfile.write(text.encode())
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    return act


def endless(piece: bytes, kind: str = "text/event-stream", pause_s: float = 0.0) -> Fault:
    """Send the same piece for ever: an endless stream, a 10 GB answer, a slow drip."""

    def act(handler: _Handler) -> None:
        handler.send_head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked"})
        while not handler.owner.stopping.is_set():
            handler.chunk(piece)
            if pause_s:
                time.sleep(pause_s)

    return act


def claims(length: int, kind: str = "application/json") -> Fault:
    """Claim a body of that length, and send it as long as someone reads."""

    def act(handler: _Handler) -> None:
        handler.send_head(200, {"Content-Type": kind, "Content-Length": str(length)})
        block = b'"' + b"x" * (1 << 20)
        while not handler.owner.stopping.is_set():
            handler.wfile.write(block)

    return act


def dripping_head(pause_s: float = 0.2) -> Fault:
    """Send the headers a byte at a time, and never end them."""

    def act(handler: _Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not handler.owner.stopping.is_set():
            handler.wfile.write(b"a")
            handler.wfile.flush()
            time.sleep(pause_s)

    return act


def silence(handler: _Handler) -> None:
    """Take the request and say nothing."""
    handler.owner.stopping.wait(60)


def hang_up(handler: _Handler) -> None:
    """Close without an answer."""
    handler.connection.shutdown(socket.SHUT_RDWR)


def no_http(handler: _Handler) -> None:
    """Answer in another protocol."""
    handler.wfile.write(b"SSH-2.0-OpenSSH_9.6\r\n")


def streamed(*events: Any, done: bool = True) -> dict[str, Any]:
    """Make a streamed answer of events."""
    return {"sse": [*events, *(["[DONE]"] if done else [])]}
