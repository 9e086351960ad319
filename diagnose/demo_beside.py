"""What stands beside the demo's server in some scenarios: a proxy with a fault, and another client. Run as a script, of its own.

``python demo_beside.py PARENT KIND PORT SERVER-PORT`` listens at a port and hands requests to the server. It ends with the process that started it
(``PARENT``, its id). Kinds:

- ``gives-up:SECONDS``: closes every connection whose answer takes longer;
- ``puts-the-time-in-front``: writes the time at the beginning of every prompt, as agents and chat programs do;
- ``one-at-a-time``: answers 429 while another request runs, and another client sends one now and then.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PIECE = 65_536
PAUSE_S = 4.0
"""Between two requests of the other client: it keeps the server busy for a part of the time."""
KINDS = ("gives-up", "puts-the-time-in-front", "one-at-a-time")
ASKS = ("/completion", "/completions", "/v1/completions", "/v1/chat/completions", "/chat/completions")


class Relay:
    """One connection: bytes go both ways until either side ends, or the answer to what was sent takes longer than the limit."""

    def __init__(self, client: socket.socket, port: int, limit_s: float) -> None:
        self.client = client
        self.port = port
        self.limit_s = limit_s
        self.asked_at: float | None = None

    def run(self) -> None:
        """Relay one connection to its end."""
        try:
            upstream = socket.create_connection(("127.0.0.1", self.port), timeout=5)
        except OSError:
            # nothing behind yet: a client sees a closed connection, as it does while a server starts
            self.client.close()
            return
        upstream.settimeout(0.1)
        sending = threading.Thread(target=self._send, args=(upstream,), daemon=True)
        sending.start()
        self._answer(upstream)
        for one in (upstream, self.client):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _send(self, upstream: socket.socket) -> None:
        try:
            while data := self.client.recv(PIECE):
                self.asked_at = time.monotonic()
                upstream.sendall(data)
            upstream.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def _answer(self, upstream: socket.socket) -> None:
        while True:
            asked = self.asked_at
            if asked is not None and time.monotonic() - asked > self.limit_s:
                return
            try:
                data = upstream.recv(PIECE)
            except TimeoutError:
                continue
            except OSError:
                return
            if not data:
                return
            try:
                self.client.sendall(data)
            except OSError:
                return


class Gateway(ThreadingHTTPServer):
    """A proxy that reads requests: it changes prompts, or lets one through at a time."""

    daemon_threads = True

    def __init__(self, kind: str, outside: int, inside: int) -> None:
        super().__init__(("127.0.0.1", outside), Hand)
        self.kind = kind
        self.inside = inside
        self.busy = threading.Lock()

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has gone is no news."""
        del request, client_address


class Hand(BaseHTTPRequestHandler):
    """Hands one request on, and its answer back as it comes."""

    server: Gateway

    def do_GET(self) -> None:
        """Pass a question about the server."""
        self._pass(None)

    def do_POST(self) -> None:
        """Pass a request, changed or refused as this kind does."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.split("?")[0] not in ASKS:
            self._pass(body)
        elif self.server.kind == "puts-the-time-in-front":
            self._pass(with_time(body))
        elif self.server.busy.acquire(blocking=False):
            try:
                self._pass(body)
            finally:
                self.server.busy.release()
        else:
            refusal = {
                "error": {"message": "Too many requests: one at a time", "type": "rate_limit_exceeded", "code": 429}
            }
            self._reply(429, json.dumps(refusal).encode())

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _pass(self, body: bytes | None) -> None:
        upstream = http.client.HTTPConnection("127.0.0.1", self.server.inside, timeout=600)
        keep = {
            name: value
            for name, value in self.headers.items()
            if name.lower() in {"content-type", "authorization", "accept"}
        }
        try:
            upstream.request(self.command, self.path, body, keep)
            answer = upstream.getresponse()
        except OSError:
            # nothing behind yet: a client sees a closed connection
            self.close_connection = True
            return
        with contextlib.suppress(OSError), contextlib.closing(upstream):
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Length", "Server"):
                if value := answer.getheader(name):
                    self.send_header(name, value)
            self.end_headers()
            while data := answer.read1(PIECE):
                self.wfile.write(data)
                self.wfile.flush()

    def version_string(self) -> str:
        """The server behind is the one that names itself."""
        return "gateway"

    def log_message(self, *_arguments: object) -> None:
        """Nothing is written: the session's own output is on this terminal."""


def with_time(body: bytes) -> bytes:
    """Give a request's body with the time in front of its prompt; as it is where it has none."""
    try:
        asked = json.loads(body)
    except ValueError:
        return body
    head = f"[{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}] "
    if isinstance(asked.get("prompt"), str):
        asked["prompt"] = head + asked["prompt"]
    elif isinstance(asked.get("messages"), list) and asked["messages"]:
        first = asked["messages"][0]
        if isinstance(first, dict) and isinstance(first.get("content"), str):
            first["content"] = head + first["content"]
    return json.dumps(asked).encode()


def other_client(outside: int) -> None:
    """Ask for a short text now and then, for as long as this process lives."""
    prompt = " ".join(f"Note {number}: the lamp was lit and the boats came in." for number in range(20))
    asked = json.dumps({"prompt": prompt, "n_predict": 64, "ignore_eos": True}).encode()
    while True:
        time.sleep(PAUSE_S)
        connection = http.client.HTTPConnection("127.0.0.1", outside, timeout=60)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("POST", "/completion", asked, {"Content-Type": "application/json"})
            connection.getresponse().read()


def giving_up(parent: int, limit_s: float, outside: int, inside: int) -> None:
    """Relay until the parent is gone."""
    with socket.create_server(("127.0.0.1", outside)) as listener:
        listener.settimeout(0.5)
        while os.getppid() == parent:
            try:
                client, _address = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=Relay(client, inside, limit_s).run, daemon=True).start()


def gateway(parent: int, kind: str, outside: int, inside: int) -> None:
    """Hand requests on until the parent is gone."""
    serving = Gateway(kind, outside, inside)
    threading.Thread(target=serving.serve_forever, daemon=True).start()
    if kind == "one-at-a-time":
        threading.Thread(target=other_client, args=(outside,), daemon=True).start()
    while os.getppid() == parent:
        time.sleep(0.5)


def main(arguments: list[str]) -> int:
    """Stand beside the server until the parent is gone."""
    parent, named, outside, inside = arguments
    kind, _, seconds = named.partition(":")
    if kind not in KINDS:
        sys.stderr.write(f"there is no kind {kind!r}\n")
        return 2
    if kind == "gives-up":
        giving_up(int(parent), float(seconds), int(outside), int(inside))
    else:
        gateway(int(parent), kind, int(outside), int(inside))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # threads that still relay would keep the interpreter from ending
    os._exit(code)
