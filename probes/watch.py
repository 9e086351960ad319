"""A recording proxy on the loopback, put between a client and its server: bytes pass through unchanged; counts, times, errors and keyed hashes stay.

No text and no key is kept: a prompt is cut into blocks of :data:`BLOCK` characters whose hashes are chained with a key that lives as long as the watch,
so that equal beginnings are seen and nothing can be read back.
"""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import ipaddress
import json
import math
import re
import secrets
import select
import socket
import ssl
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlsplit

from probes.backends.http import normalise_url
from probes.backends.refusals import type_refusal
from probes.evidence.client import WatchedRequest, WatchSummary
from probes.evidence.errors import InputError, UnreachableError
from probes.evidence.request import ErrorKind

BLOCK = 64
MOST_BODY = 64 * 1024 * 1024
MOST_AT_ONCE = 64
MOST_LINE = 1024 * 1024
REPEATED = 8
"""So many pieces alike at the end of an answer without an end are one that the server broke off because it repeats itself."""
GOES_ON = 0.9
"""A prompt that shares so much of the one before goes on from it."""
FEWER = 0.9
"""Counted tokens below this share of a shorter prompt's are no difference of templates."""
REMEMBERED = 24
CONNECT_S = 10.0
LONGEST_S = 7200.0
IDLE_S = 600.0

_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
    }
)
_COMPLETIONS = re.compile(r"/(?:chat/completions|completions|completion|generate|chat|messages|responses|infill)$")


# --- what a request looked like ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Shape:
    """A prompt as hashes: one chained hash a block, and where each part (tools, a message) begins. What is left after the last block has none."""

    blocks: list[bytes] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Of each block, the position behind it."""
    chars: int = 0
    parts: list[tuple[int, str]] = field(default_factory=list)
    messages: int | None = None
    tools: int | None = None
    model: str | None = None
    asked_tokens: int | None = None
    asked_window: int | None = None
    whole: str | None = None

    def part_at(self, position: int) -> str | None:
        """Name the part that holds a position."""
        name = None
        for begin, part in self.parts:
            if begin <= position:
                name = part
        return name


def _count(value: object) -> int | None:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not math.isfinite(value)
        or not 0 <= value < 1 << 40
    ):
        return None
    return int(value)


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _segments(body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give the parts of a prompt in the order in which templates put them: tools, the system text, then messages or the raw prompt."""
    if body.get("tools"):
        yield "tools", json.dumps(body["tools"], sort_keys=True, ensure_ascii=False)
    system = body.get("system")
    if system:
        yield "system", system if isinstance(system, str) else json.dumps(system, ensure_ascii=False)
    for key in ("messages", "input"):
        for number, message in enumerate(_list(body.get(key))):
            role = _object(message).get("role")
            content = _object(message).get("content")
            told = {k: v for k, v in _object(message).items() if k in {"tool_calls", "reasoning_content", "name"} and v}
            text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
            yield (
                f"message {number + 1}, {str(role)[:20]}",
                f"\x1e{role}\x1f{text}" + (json.dumps(told, ensure_ascii=False) if told else ""),
            )
    for key in ("prompt", "text", "input"):
        value = body.get(key)
        if isinstance(value, str):
            yield "prompt", value
        elif key == "prompt" and isinstance(value, list):
            yield "prompt", json.dumps(value)


def _shape(body: dict[str, Any], key: bytes) -> _Shape:
    """Hash a request's prompt, block by block."""
    shape = _Shape()
    chain = hashlib.blake2b(key=key, digest_size=16)
    rest = ""

    def add(text: str) -> None:
        chain.update(text.encode("utf-8", "surrogatepass"))
        shape.blocks.append(chain.digest()[:8])
        shape.ends.append((shape.ends[-1] if shape.ends else 0) + len(text))

    for name, text in _segments(body):
        if rest:
            # A block ends with its part, so that the first block that differs lies in one part.
            add(rest)
        shape.parts.append((shape.chars, name))
        shape.chars += len(text)
        full = len(text) // BLOCK * BLOCK
        for at in range(0, full, BLOCK):
            add(text[at : at + BLOCK])
        rest = text[full:]
    chain.update(b"\x00" + rest.encode("utf-8", "surrogatepass"))
    shape.whole = chain.hexdigest()[:16] if shape.chars else None
    options = _object(body.get("options"))
    shape.messages = len(body["messages"]) if isinstance(body.get("messages"), list) else None
    shape.tools = len(body["tools"]) if isinstance(body.get("tools"), list) else None
    model = body.get("model")
    shape.model = model[:500] if isinstance(model, str) else None
    for holder, names in (
        (body, ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict", "max_length")),
        (options, ("num_predict",)),
        (_object(body.get("sampling_params")), ("max_new_tokens",)),
    ):
        for name in names:
            shape.asked_tokens = shape.asked_tokens if shape.asked_tokens is not None else _count(holder.get(name))
    shape.asked_window = _count(options.get("num_ctx"))
    if shape.asked_window is None:
        shape.asked_window = _count(body.get("max_context_length"))
    return shape


def _common(one: _Shape, other: _Shape) -> int:
    """Count the blocks that two prompts begin with alike. The hashes are chained, so the last equal one decides."""
    low, high = 0, min(len(one.blocks), len(other.blocks))
    while low < high:
        middle = (low + high + 1) // 2
        if one.blocks[middle - 1] == other.blocks[middle - 1]:
            low = middle
        else:
            high = middle - 1
    return low


# --- what an answer told -----------------------------------------------------------------------------------------------------------------


class _Tap:
    """Listens to an answer on its way through: counts, the first token, the end, errors. Keeps a line at the most."""

    def __init__(self, status: int, kind: str) -> None:
        self.status = status
        self.lines = "event-stream" in kind or "ndjson" in kind
        self.started = time.monotonic()
        self.rest = b""
        self.first_s: float | None = None
        self.prompt: int | None = None
        self.cached: int | None = None
        self.generated: int | None = None
        self.finish: str | None = None
        self.error: ErrorKind | None = None
        self.error_prompt: int | None = None
        self.error_window: int | None = None
        self.ended = False
        self._last, self._alike = "", 0

    def feed(self, data: bytes) -> None:
        """Take bytes as they pass."""
        if self.lines:
            *lines, self.rest = (self.rest + data).split(b"\n")
            if len(self.rest) > MOST_LINE:
                self.rest = b""
            for line in lines:
                self._line(line)
        elif len(self.rest) < 4 * MOST_LINE:
            self.rest += data

    def finished(self) -> None:
        """Take the end of the body."""
        if self.lines:
            self._line(self.rest)
            if not self.ended and self.finish is None and self._alike >= REPEATED:
                # Ollama ends an answer that repeats itself without a word
                self.finish = "repetition"
        else:
            self._event(self.rest, whole=True)
        self.rest = b""

    def _line(self, line: bytes) -> None:
        line = line.strip()
        if line.startswith(b"data:"):
            line = line[5:].strip()
        if line == b"[DONE]":
            self.ended = True
        elif line.startswith(b"{"):
            self._event(line, whole=False)

    def _event(self, data: bytes, *, whole: bool) -> None:
        try:
            event = json.loads(data)
        except (ValueError, RecursionError):
            if whole and self.status >= 400:
                self._failed(data[:2000].decode("utf-8", "replace"))
            return
        if not isinstance(event, dict):
            return
        if event.get("error") or event.get("object") == "error" or (whole and self.status >= 400):
            self._failed(event)
            return
        choice = _object(next(iter(_list(event.get("choices"))), None))
        if not whole and self.first_s is None and _has_text(event, choice):
            self.first_s = time.monotonic() - self.started
        message = _object(event.get("message"))
        if event.get("done") is False:
            self._piece(event.get("response") or message.get("content"))
        usage = (
            _object(event.get("usage"))
            or _object(message.get("usage"))
            or _object(_object(event.get("response")).get("usage"))
        )
        timings = _object(event.get("timings"))
        cached = _object(usage.get("prompt_tokens_details")).get("cached_tokens", usage.get("cache_read_input_tokens"))
        for name, values in (
            (
                "prompt",
                (
                    usage.get("prompt_tokens"),
                    usage.get("input_tokens"),
                    event.get("prompt_eval_count"),
                    event.get("tokens_evaluated"),
                ),
            ),
            ("cached", (timings.get("cache_n"), cached)),
            (
                "generated",
                (
                    usage.get("completion_tokens"),
                    usage.get("output_tokens"),
                    event.get("eval_count"),
                    event.get("tokens_predicted"),
                ),
            ),
        ):
            for value in values:
                number = _count(value)
                if number is not None:
                    setattr(self, name, number)
                    break
        for value in (
            choice.get("finish_reason"),
            event.get("done_reason"),
            event.get("stop_type"),
            event.get("stop_reason"),
        ):
            if isinstance(value, str) and value and value != "none":
                self.finish = value[:40]
        if (
            event.get("done") is True
            or event.get("stop") is True
            or event.get("type") in {"message_stop", "response.completed"}
            or whole
        ):
            self.ended = True

    def _piece(self, text: object) -> None:
        if isinstance(text, str) and text:
            self._alike = self._alike + 1 if text.strip() == self._last else 1
            self._last = text.strip()

    def _failed(self, body: object) -> None:
        told = type_refusal(self.status if self.status >= 400 else 500, body)
        self.error, self.error_prompt, self.error_window = told.error, told.prompt_tokens, told.window


def _has_text(event: dict[str, Any], choice: dict[str, Any]) -> bool:
    delta, message = _object(choice.get("delta")), _object(event.get("message"))
    inner = event.get("delta")
    texts = (
        *(delta.get(k) for k in ("content", "reasoning_content", "reasoning", "tool_calls")),
        *(choice.get("text"), event.get("content"), event.get("response"), event.get("thinking"), event.get("text")),
        *(message.get(k) for k in ("content", "thinking", "tool_calls")),
        *((inner.get(k) for k in ("text", "thinking", "partial_json")) if isinstance(inner, dict) else (inner,)),
    )
    return any(isinstance(text, str | list) and bool(text) for text in texts)


# --- the proxy ---------------------------------------------------------------------------------------------------------------------------


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def handle_error(self, request: object, client_address: object) -> None:
        """A connection that broke is recorded where it is known what it was for."""


class Watch:
    """The proxy. Start it, point the client at :attr:`url`, stop it; each request is handed to ``on_request`` as it ends."""

    def __init__(
        self,
        server_url: str,
        *,
        listen: str = "127.0.0.1:0",
        on_request: Callable[[WatchedRequest], None] | None = None,
    ) -> None:
        """``listen``: a loopback address and port (0: any free one). InputError for any other address; UnreachableError if it is taken."""
        self.server_url = normalise_url(server_url)
        host, port = _listen_address(listen)
        self.on_request = on_request
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._before: deque[_Shape] = deque(maxlen=REMEMBERED)
        self._requests: list[WatchedRequest] = []
        self._number = 0
        self.running = threading.Semaphore(MOST_AT_ONCE)
        handler = type("Handler", (_Handler,), {"watch": self})
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._server = type("Server", (_Server,), {"address_family": family})((host, port), handler)
        except OSError as error:
            raise UnreachableError(
                f"{listen} cannot be listened on ({error.strerror}); give another port with --listen"
            ) from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True, name="watch"
        )

    @property
    def url(self) -> str:
        """The address that the client is to be pointed at."""
        host, port = self._server.server_address[:2]
        host = host.decode() if isinstance(host, bytes) else host
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def start(self) -> None:
        """Listen, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening. What is under way is cut off."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5)
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    def compare(self, shape: _Shape) -> dict[str, Any]:
        """Compare a prompt with the earlier one most like it, and remember it."""
        with self._lock:
            best, best_common = None, -1
            for earlier in reversed(self._before):
                if earlier.model == shape.model and earlier.blocks:
                    common = _common(shape, earlier)
                    if common > best_common:
                        best, best_common = earlier, common
            if shape.blocks:
                self._before.append(shape)
        if best is None:
            return {}
        shared = shape.ends[best_common - 1] if best_common > 0 else 0
        # A prompt that only goes on differs nowhere: all whole blocks of the shorter one are equal.
        goes_on = best_common >= min(len(best.blocks), len(shape.blocks))
        return {
            "same_as_before_chars": shared,
            "before_chars": best.chars,
            "differs_in": None if goes_on else shape.part_at(shared),
        }

    def record(self, **told: Any) -> None:
        """Keep one request's record and hand it on."""
        with self._lock:
            self._number += 1
            request = WatchedRequest(number=self._number, **told)
            if len(self._requests) < 100_000:
                self._requests.append(request)
        if self.on_request is not None:
            self.on_request(request)

    @property
    def requests(self) -> tuple[WatchedRequest, ...]:
        """All records so far."""
        with self._lock:
            return tuple(self._requests)

    def summary(self) -> WatchSummary:
        """What all requests so far show together."""
        return summarise(self.requests)


def _listen_address(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    host = host.strip("[]") or "127.0.0.1"
    host = "127.0.0.1" if host == "localhost" else host
    try:
        number = int(port)
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError as error:
        raise InputError(f"{listen!r} is no address to listen on; write for example 127.0.0.1:8090") from error
    if not loopback or not 0 <= number < 65536:
        raise InputError(
            f"{listen!r} is not on this machine's loopback; write for example 127.0.0.1:8090, since prompts pass through here"
        )
    return host, number


class _Handler(BaseHTTPRequestHandler):
    watch: Watch
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S
    disable_nagle_algorithm = True

    def log_message(self, *_args: object) -> None:
        """Nothing is logged: a path may hold a key."""

    def __getattr__(self, name: str) -> Any:
        # Every method passes through: GET, POST, OPTIONS, DELETE …
        if name.startswith("do_"):
            return self._pass
        raise AttributeError(name)

    def _body(self) -> bytes | None:
        """Read the request's body; None where it is too large or broken."""
        if "chunked" in (self.headers.get("transfer-encoding") or "").lower():
            parts: list[bytes] = []
            size = 0
            while True:
                line = self.rfile.readline(100).split(b";")[0].strip()
                length = int(line, 16) if re.fullmatch(rb"[0-9A-Fa-f]{1,8}", line) else -1
                if length < 0 or size + length > MOST_BODY:
                    return None
                if length == 0:
                    while self.rfile.readline(8192).strip():
                        pass
                    return b"".join(parts)
                parts.append(self.rfile.read(length))
                size += length
                self.rfile.readline(10)
        text = self.headers.get("content-length") or "0"
        if not re.fullmatch(r"\d{1,12}", text) or int(text) > MOST_BODY:
            return None
        return self.rfile.read(int(text))

    def _pass(self) -> None:
        if not self.watch.running.acquire(blocking=False):
            self._refuse(503, "ctxdoctor watch: more than 64 requests at once")
            return
        try:
            body = self._body()
            if body is None:
                self._refuse(413, "ctxdoctor watch: the request is broken, or larger than 64 MiB")
                return
            _Passage(self, body).run()
        except OSError:
            self.close_connection = True
        finally:
            self.watch.running.release()

    def _refuse(self, status: int, message: str) -> None:
        """Answer in the proxy's own name."""
        self.close_connection = True
        data = json.dumps({"error": {"message": message, "type": "ctxdoctor_watch", "code": status}}).encode()
        with contextlib.suppress(OSError):
            self.send_response_only(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(data)


class _Passage:
    """One request on its way through."""

    def __init__(self, handler: _Handler, body: bytes) -> None:
        self.handler = handler
        self.watch = handler.watch
        self.body = body
        self.started = time.monotonic()
        self.path = handler.path.split("?", maxsplit=1)[0][:500]
        self.told: dict[str, Any] = {"path": self.path}
        self.tap: _Tap | None = None
        self.left_s: float | None = None
        self.done = threading.Event()
        self.connection: http.client.HTTPConnection | None = None
        self.recorded = handler.command == "POST" and bool(_COMPLETIONS.search(self.path))

    def run(self) -> None:
        """Send the request on, and the answer back, and record what was seen."""
        if self.recorded:
            self._look_at_body()
        error: ErrorKind | None = None
        watcher = threading.Thread(target=self._watch_client, daemon=True, name="watch-client")
        try:
            response = self._send(watcher)
            self.told["status"] = response.status
            self._give_back(response)
        except _ServerGoneError:
            error = "connection-lost"
            self.handler.close_connection = True
        except OSError:
            # The client went away while it was written to; not where only the end mark of the whole answer was left.
            if self.left_s is None and not self.done.is_set():
                self.left_s = time.monotonic() - self.started
            self.handler.close_connection = True
        finally:
            self.done.set()
            if self.connection is not None:
                self.connection.close()
        if self.recorded:
            self._record(error)

    def _look_at_body(self) -> None:
        try:
            body = json.loads(self.body)
        except (ValueError, RecursionError):
            return
        if not isinstance(body, dict):
            return
        try:
            shape = _shape(body, self.watch._key)
        except (ValueError, RecursionError):
            return
        self.told |= {
            "model": shape.model,
            "streamed": body.get("stream") is True or (self.path.startswith("/api/") and body.get("stream") is None),
            "messages": shape.messages,
            "tools": shape.tools,
            "prompt_chars": shape.chars,
            "prompt_hash": shape.whole,
            "asked_tokens": shape.asked_tokens,
            "asked_window": shape.asked_window,
            **self.watch.compare(shape),
        }

    def _send(self, watcher: threading.Thread) -> http.client.HTTPResponse:
        parts = urlsplit(self.watch.server_url)
        kind: Any = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        more = {"context": ssl.create_default_context()} if parts.scheme == "https" else {}
        self.connection = kind(parts.hostname or "", parts.port, timeout=CONNECT_S, **more)
        connection = self.connection
        try:
            connection.connect()
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock.settimeout(LONGEST_S)
            connection.putrequest(
                self.handler.command, parts.path + self.handler.path, skip_host=True, skip_accept_encoding=True
            )
            connection.putheader("Host", parts.netloc)
            for name, value in self.handler.headers.items():
                if name.lower() not in _HOP | {"host", "content-length", "accept-encoding", "expect"}:
                    connection.putheader(name, value)
            # A packed answer could not be counted.
            connection.putheader("Accept-Encoding", "identity")
            if self.body or self.handler.command in {"POST", "PUT", "PATCH"}:
                connection.putheader("Content-Length", str(len(self.body)))
            connection.endheaders(self.body or None)
            watcher.start()
            return connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            if self.left_s is None:
                self.told["status"] = 502
                self.handler._refuse(
                    502, f"ctxdoctor watch: {self.watch.server_url} does not answer ({type(error).__name__})"
                )
            raise _ServerGoneError from error

    def _give_back(self, response: http.client.HTTPResponse) -> None:
        handler = self.handler
        handler.send_response_only(response.status, response.reason)
        length = response.getheader("content-length")
        for name, value in response.getheaders():
            if name.lower() not in _HOP:
                handler.send_header(name, value)
        bare = handler.command == "HEAD" or response.status in {204, 304} or response.status < 200
        chunked = length is None and not bare and handler.request_version != "HTTP/1.0"
        if chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        if length is None and not chunked and not bare:
            handler.send_header("Connection", "close")
            handler.close_connection = True
        handler.end_headers()
        self.tap = _Tap(response.status, response.getheader("content-type") or "")
        self.tap.started = self.started
        if bare:
            return
        size = 0
        while True:
            try:
                data = response.read1(65_536)
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise _ServerGoneError from error
            if not data:
                break
            size += len(data)
            if length is not None and length.isascii() and length.isdigit() and size >= int(length):
                # a client that has it all may close before we know that it was written
                self.done.set()
            handler.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n" if chunked else data)
            handler.wfile.flush()
            self.tap.feed(data)
        if length is not None and length.isascii() and length.isdigit() and size < int(length):
            raise _ServerGoneError
        self.done.set()
        if chunked:
            handler.wfile.write(b"0\r\n\r\n")
        self.tap.finished()

    def _watch_client(self) -> None:
        """See the client hang up while the server still works, and pass that on by hanging up on the server."""
        client = self.handler.connection
        while not self.done.wait(0.05):
            try:
                readable, _, _ = select.select([client], [], [], 0.2)
                if readable and client.recv(1, socket.MSG_PEEK) == b"":
                    break
                if readable:
                    # It sends the next request already: nothing to see here before this one is answered.
                    self.done.wait(0.2)
            except (OSError, ValueError):
                break
        if self.done.is_set():
            return
        self.left_s = time.monotonic() - self.started
        sock = self.connection.sock if self.connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def _record(self, error: ErrorKind | None) -> None:
        tap = self.tap
        told = dict(self.told)
        if tap is not None:
            told |= {
                "prompt_tokens": tap.prompt,
                "cached_tokens": tap.cached,
                "generated_tokens": tap.generated,
                "first_token_s": None if tap.first_s is None else round(tap.first_s, 6),
                "finish": tap.finish,
                "error_prompt_tokens": tap.error_prompt,
                "error_window": tap.error_window,
            }
            error = tap.error or error
            if (
                error is None
                and told.get("streamed")
                and told.get("status") == 200
                and not tap.ended
                and tap.finish is None
                and self.left_s is None
            ):
                error = "connection-lost"
        if self.left_s is not None:
            # The client hung up; that the server's answer broke off then is no fault of the server.
            error = None if error == "connection-lost" else error
            told["client_left_s"] = round(self.left_s, 3)
        self.watch.record(**told, error=error, total_s=round(time.monotonic() - self.started, 6))


class _ServerGoneError(Exception):
    """The server does not answer, or its answer broke off."""


# --- all requests together -----------------------------------------------------------------------------------------------------------------


def summarise(requests: tuple[WatchedRequest, ...] | list[WatchedRequest]) -> WatchSummary:
    """Put together what all requests show: a beginning that changes every turn, a client's time-out, a window that it believes in."""
    errors: dict[str, int] = {}
    for request in requests:
        if request.error is not None:
            errors[request.error] = errors.get(request.error, 0) + 1
    compared = [
        r
        for r in requests
        if r.same_as_before_chars is not None and r.before_chars and (r.prompt_chars or 0) >= 8 * BLOCK
    ]
    # A turn that shares next to nothing with any earlier prompt is another conversation, unless it shares its beginning's length again and again.
    broken = [
        r
        for r in compared
        if r.differs_in is not None
        and (r.same_as_before_chars or 0) < 0.9 * min(r.before_chars or 0, r.prompt_chars or 0)
    ]
    at, where = _changing_header(compared, broken)
    shortened = [
        r
        for r in compared
        if (r.prompt_chars or 0) < 0.9 * (r.before_chars or 0)
        and 0.05 * (r.before_chars or 0) < (r.same_as_before_chars or 0) < 0.9 * (r.prompt_chars or 0)
    ]
    left = [r.client_left_s for r in requests if r.client_left_s is not None]
    windows = {r.asked_window for r in requests if r.asked_window}
    asked = windows.pop() if len(windows) == 1 else None
    return WatchSummary(
        requests=len(requests),
        errors=errors,
        longest_prompt_tokens=max((r.prompt_tokens for r in requests if r.prompt_tokens is not None), default=None),
        longest_prompt_chars=max((r.prompt_chars for r in requests if r.prompt_chars is not None), default=None),
        turns_compared=len(compared),
        prefix_broken=len(broken),
        changing_header_at_chars=at,
        changing_header_in=where,
        history_shortened=len(shortened),
        client_timeout_s=_timeout(left),
        client_left=len(left),
        asked_window=asked,
        believed_window=asked if asked is not None else _believed(requests),
        **_lost(requests),
    )


def _lost(requests: Sequence[WatchedRequest]) -> dict[str, int]:
    """Find turns of which the server counted fewer tokens than of the shorter turn that they begin with: what is missing was dropped without an error.

    How many it should have counted is reckoned from the shorter turn: so many tokens for a character.
    """
    lost: list[tuple[float, int, int]] = []
    for at, request in enumerate(requests):
        chars, before, tokens = request.prompt_chars or 0, request.before_chars or 0, request.prompt_tokens
        goes_on = chars > before > 0 and (request.same_as_before_chars or 0) >= GOES_ON * before
        if not goes_on or tokens is None or request.error is not None:
            continue
        earlier = [one.prompt_tokens for one in requests[:at] if one.prompt_chars == before and one.prompt_tokens]
        if earlier and tokens < FEWER * earlier[-1]:
            sent = round(earlier[-1] * chars / before)
            lost.append((tokens / sent, sent, tokens))
    if not lost:
        return {}
    _share, sent, tokens = min(lost)
    return {"turns_lost": len(lost), "lost_sent_tokens": sent, "lost_processed_tokens": tokens}


def _changing_header(compared: list[WatchedRequest], broken: list[WatchedRequest]) -> tuple[int | None, str | None]:
    """Find a place near the beginning where prompts differ again and again: the same place in at least three turns, and in most of them."""
    places: dict[tuple[int, str], int] = {}
    for request in broken:
        if not _in_header(request):
            continue
        place = ((request.same_as_before_chars or 0) // BLOCK, request.differs_in or "")
        places[place] = places.get(place, 0) + 1
    if not places:
        return None, None
    (block, where), times = max(places.items(), key=lambda item: item[1])
    if times < 3 or times < 0.5 * len(compared):
        return None, None
    return block * BLOCK, where


def _in_header(request: WatchedRequest) -> bool:
    """Say whether the first difference lies in what should stay the same: tools, the system text, or the beginning of a conversation that goes on.

    One-shot requests under the same system text differ in their user's message, which is as it should be.
    """
    where = request.differs_in or ""
    if where in {"tools", "system"} or re.match(r"message 1, (?:system|developer)", where):
        return True
    if where.startswith("message 1,"):
        return (request.messages or 0) >= 3
    return where == "prompt" and (request.prompt_chars or 0) > (request.before_chars or 0)


def _timeout(left: list[float]) -> float | None:
    """Tell a time-out from people who press stop: at least two waits of the same length, within a second or three percent, of most of them."""
    for candidate in sorted(left):
        alike = [one for one in left if abs(one - candidate) <= max(1.0, 0.03 * candidate)]
        if candidate >= 5.0 and len(alike) >= 2 and len(alike) >= 0.6 * len(left):
            return round(statistics.median(alike), 1)
    return None


def _believed(requests: tuple[WatchedRequest, ...] | list[WatchedRequest]) -> int | None:
    """Tell the window that a client keeps to: its history was shortened at least twice, each time just below the same count."""
    peaks: list[int] = []
    highest = 0
    for request in requests:
        tokens = request.prompt_tokens
        if tokens is None:
            continue
        if highest and tokens < 0.7 * highest:
            peaks.append(highest)
            highest = 0
        highest = max(highest, tokens)
    if len(peaks) >= 2 and max(peaks) <= 1.15 * min(peaks):
        return max(peaks)
    return None
