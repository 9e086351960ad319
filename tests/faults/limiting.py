"""A proxy with a limit of its own in front of a real server of the tiny model: longer prompts are refused, cut, dropped, torn, or kill the server.

Run by its path, it is a server that dies: ``python limiting.py LIMIT PORT [FAULT] -- COMMAND`` starts the command, passes everything on from PORT, and ends with
SIGKILL, its server first, at a prompt of more than LIMIT tokens (one a byte).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Proxy:
    """Passes everything on, but completions of more than ``limit`` bytes' worth of tokens (one a byte with the tiny model) meet the fault."""

    def __init__(self, target: str, fault: str, limit: int, kill: Callable[[], None], port: int = 0) -> None:
        self.target, self.fault, self.limit, self.kill = urlsplit(target), fault, limit, kill
        handler = type("Handler", (_Handler,), {"proxy": self})
        self.server = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's own name
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        proxy = self.proxy
        if self.path.endswith(("completion", "completions")):
            body, length = _cut(body, proxy.limit if proxy.fault == "cuts" else None)
            if proxy.fault == "no-logprobs" and (b'"n_probs"' in body or b'"logprobs"' in body):
                self._answer(400, b'{"error": {"message": "logprobs is not supported", "code": 400}}')
                return
            if length > proxy.limit:
                if proxy.fault == "kills":
                    proxy.kill()
                if proxy.fault in {"kills", "hangs-up"}:
                    self.connection.close()
                    return
                if proxy.fault == "refuses":
                    self._answer(413, b'{"error": {"message": "request entity too large", "code": 413}}')
                    return
        self._pass(body)

    def _pass(self, body: bytes | None) -> None:
        target = self.proxy.target
        inner = HTTPConnection(target.hostname or "", target.port, timeout=300)
        try:
            headers = {"Content-Type": "application/json"} if body is not None else {}
            inner.request(self.command, self.path, body, headers)
            answer = inner.getresponse()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.getheader("Content-Type") or "application/json")
            self.send_header("Connection", "close")
            self.end_headers()
            streamed = "event-stream" in (answer.getheader("Content-Type") or "")
            if streamed and self.proxy.fault in {"drops", "swaps"}:
                events = answer.read().split(b"\n\n")
                self.wfile.write(b"\n\n".join(_torn(events, swap=self.proxy.fault == "swaps")))
                return
            while piece := answer.read1(65536):
                self.wfile.write(piece)
                self.wfile.flush()
        except (OSError, HTTPException):
            self.connection.close()
        finally:
            inner.close()
            self.close_connection = True

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _torn(events: list[bytes], *, swap: bool) -> list[bytes]:
    """Leave out every third event of a stream, or swap every third with the one after it; the last ones, with the counts, stay where they are."""
    head, tail = events[:-3], events[-3:]
    for place in range(1, len(head) - 1, 3):
        if swap:
            head[place], head[place + 1] = head[place + 1], head[place]
        else:
            head[place] = b""
    return [one for one in head if one] + tail


def _cut(body: bytes, to: int | None) -> tuple[bytes, int]:
    """Measure a prompt, one token a byte, and cut it to its last ``to`` tokens where that is asked."""
    asked = json.loads(body)
    prompt = asked.get("prompt")
    if isinstance(prompt, list):
        length = len(prompt)
        if to is not None and length > to:
            asked["prompt"] = prompt[-to:]
    elif isinstance(prompt, str):
        raw = prompt.encode()
        length = len(raw)
        if to is not None and length > to:
            asked["prompt"] = raw[-to:].decode(errors="ignore")
    else:
        last = asked["messages"][-1]
        raw = str(last["content"]).encode()
        length = len(raw)
        if to is not None and length > to:
            last["content"] = raw[-to:].decode(errors="ignore")
    return json.dumps(asked).encode(), length


def main(limit: int, port: int, command: list[str], fault: str = "kills") -> None:
    """Serve until the limit is passed, or the command ends."""
    inner = subprocess.Popen(command)

    def die() -> None:
        sys.stderr.write(f"E ggml_abort: a prompt of more than {limit} tokens\n")
        sys.stderr.flush()
        inner.kill()
        os.kill(os.getpid(), signal.SIGKILL)

    at = command[command.index("--port") + 1]
    Proxy(f"http://127.0.0.1:{at}", fault, limit, die, port)
    signal.signal(signal.SIGTERM, lambda *_: inner.terminate())
    with contextlib.suppress(KeyboardInterrupt):
        inner.wait()


if __name__ == "__main__":
    begins = sys.argv.index("--")
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[begins + 1 :], *sys.argv[3:begins])
