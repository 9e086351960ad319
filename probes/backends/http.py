"""The one HTTP client: bounded answers, a deadline on every wait, no redirects to elsewhere, typed errors."""

from __future__ import annotations

import ipaddress
import json
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

import httpx2 as httpx

from probes.backends.deadline import hold_to_deadline, until
from probes.evidence.errors import (
    BadAnswerError,
    InputError,
    NoAnswerInTimeError,
    ServerDiedError,
    UnreachableError,
    WrongKeyError,
)

MOST_BYTES = 64 * 1024 * 1024
"""A whole answer that is not streamed, at the most. The largest honest one is the tokens of a long prompt, a few MiB."""

MOST_STREAM_BYTES = 512 * 1024 * 1024
MOST_LINE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    elapsed_s: float

    @property
    def text(self) -> str:
        """The body as text; bytes that are no UTF-8 are replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """Decode the body. BadAnswerError if it is no JSON, or holds NaN or infinity."""
        return strict_json(self.text)

    def json_object(self) -> dict[str, Any]:
        """Decode the body, which has to be an object. BadAnswerError otherwise."""
        value = self.json()
        if not isinstance(value, dict):
            raise BadAnswerError("the server answered JSON, but not an object; is another program listening there?")
        return value


@dataclass(frozen=True, slots=True)
class StreamPiece:
    """One event of a stream: seconds since the request was sent, and its data (after ``data:`` for SSE, a line for NDJSON)."""

    at_s: float
    data: str


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def strict_json(text: str) -> Any:
    """Decode JSON; BadAnswerError on anything else, NaN and infinity included."""
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        start = " ".join(text[:60].split())
        raise BadAnswerError(
            f"the answer is not JSON (it begins {start!r}); check that the address is the server's own and not a web page or proxy"
        ) from error


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("number out of range")
    return value


def count(value: object, most: int = 1 << 40) -> int | None:
    """Take a count from an answer: a whole number from 0 to ``most``, else None. Booleans are no counts."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if not math.isfinite(value) or value < 0 or value > most or value != int(value):
        return None
    return int(value)


def seconds(value: object, per: float = 1.0) -> float | None:
    """Take a duration from an answer, given in units of which ``per`` make a second; None if it makes no sense."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    result = float(value) / per
    return result if math.isfinite(result) and 0 <= result < 10_000_000 else None


def text_of(value: object, most: int = 4096) -> str | None:
    """Take a text from an answer, cut to ``most`` characters; None if it is none."""
    return value[:most] if isinstance(value, str) else None


def check_key(key: str) -> None:
    """Check that an HTTP header can carry a key. InputError."""
    if not key.isascii() or not key.isprintable():
        raise InputError("the API key holds characters that no HTTP header can carry; check CTXDOCTOR_API_KEY")


def normalise_url(url: str) -> str:
    """Make a base URL of what people type: ``8080``, ``localhost:8080``, ``http://host/v1/``. InputError if it cannot be one."""
    text = url.strip()
    if re.fullmatch(r"\d{1,5}", text):
        text = f"127.0.0.1:{text}"
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise InputError(f"{url!r} is no address; write for example http://127.0.0.1:8080") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        raise InputError(f"{url!r} is no address; write for example http://127.0.0.1:8080")
    if parts.username or parts.password:
        raise InputError(
            "the address holds a user or password; give the key with --api-key or CTXDOCTOR_API_KEY instead"
        )
    path = parts.path.rstrip("/")
    for ending in ("/v1/chat/completions", "/v1/completions", "/v1/models", "/v1", "/api"):
        if path.endswith(ending):
            path = path[: -len(ending)]
            break
    return urlunsplit((parts.scheme, parts.netloc, path, "", ""))


def is_loopback(url: str) -> bool:
    """Say whether the address is this machine's own loopback."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Http:
    """A client for one server. Close it, or use it as a context manager."""

    def __init__(self, base_url: str, api_key: str | None = None, connect_s: float = 5.0) -> None:
        self.base_url = normalise_url(base_url)
        self.connect_s = connect_s
        self.requests_sent = 0
        headers = {
            "User-Agent": "ctxdoctor",
            "Accept": "application/json, text/event-stream, */*",
            "Accept-Encoding": "identity",
        }
        self.key_given = bool(api_key)
        if api_key:
            check_key(api_key)
            headers["Authorization"] = f"Bearer {api_key}"
        # A proxy from the environment is for the outside, never for this machine's own server.
        self._client = httpx.Client(
            headers=headers,
            follow_redirects=False,
            # an idle connection that the server has just closed would look like a server that died
            limits=httpx.Limits(max_keepalive_connections=0),
            trust_env=not is_loopback(self.base_url),
        )
        hold_to_deadline(self._client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def get(self, path: str, *, deadline_s: float = 10.0) -> Reply:
        """Send a GET. Non-2xx statuses come back; what could not be had raises (see the errors' tree)."""
        return self._whole("GET", path, None, deadline_s)

    def get_json(self, path: str, *, deadline_s: float = 10.0) -> tuple[int, Any]:
        """Send a GET and decode its JSON: (status, value), value None where the body is no JSON."""
        reply = self.get(path, deadline_s=deadline_s)
        try:
            return reply.status, reply.json()
        except BadAnswerError:
            return reply.status, None

    def post_json(self, path: str, body: object, *, deadline_s: float) -> Reply:
        """Send a POST with a JSON body and wait for the whole answer."""
        return self._whole("POST", path, body, deadline_s)

    def _whole(self, method: str, path: str, body: object, deadline_s: float) -> Reply:
        pieces: list[bytes] = []
        size = 0
        started = time.monotonic()
        with _Exchange(self, method, path, body, deadline_s) as exchange:
            for piece in exchange.pieces():
                size += len(piece)
                if size > MOST_BYTES:
                    raise BadAnswerError(
                        f"the answer to {path} is longer than {MOST_BYTES >> 20} MiB and was cut off; is this a language model server?"
                    )
                pieces.append(piece)
            status, headers = exchange.status, exchange.headers
        return self._checked(Reply(status, headers, b"".join(pieces), time.monotonic() - started), path)

    def _checked(self, reply: Reply, path: str) -> Reply:
        if reply.status in {401, 403}:
            if not self.key_given:
                raise WrongKeyError(
                    f"the server wants a key (HTTP {reply.status} for {path}); set CTXDOCTOR_API_KEY or give --api-key"
                )
            raise WrongKeyError(
                f"the server wants another key (HTTP {reply.status} for {path}); set CTXDOCTOR_API_KEY or give --api-key"
            )
        if 300 <= reply.status < 400:
            where = reply.headers.get("location", "elsewhere")[:200]
            raise BadAnswerError(
                f"the server sends {path} on to {where!r}, which is not followed; give that address if it is yours"
            )
        return reply

    def stream(
        self, path: str, body: object, *, deadline_s: float, idle_s: float | None = None
    ) -> Iterator[StreamPiece | Reply]:
        """Send a POST and give its events as they come.

        Yields :class:`StreamPiece`; where the server answers a plain body instead of a stream (an error, mostly) one :class:`Reply`.
        ``idle_s``: the longest silence between two pieces. Ends with the connection; whether the end was marked is the caller's to see.
        """
        started = time.monotonic()
        with _Exchange(self, "POST", path, body, deadline_s, idle_s) as exchange:
            kind = exchange.headers.get("content-type", "").split(";")[0].strip().lower()
            streaming = kind in {"text/event-stream", "application/x-ndjson"} and exchange.status < 400
            if not streaming:
                collected = bytearray()
                for piece in exchange.pieces():
                    collected += piece
                    if len(collected) > MOST_BYTES:
                        raise BadAnswerError(
                            f"the answer to {path} is longer than {MOST_BYTES >> 20} MiB and was cut off"
                        )
                reply = Reply(exchange.status, exchange.headers, bytes(collected), time.monotonic() - started)
                yield self._checked(reply, path)
                return
            rest = bytearray()
            size = 0
            for piece in exchange.pieces():
                size += len(piece)
                if size > MOST_STREAM_BYTES:
                    raise BadAnswerError("the stream does not end; it was cut off at 512 MiB")
                rest += piece
                *lines, tail = rest.split(b"\n")
                rest = bytearray(tail)
                if len(rest) > MOST_LINE_BYTES:
                    raise BadAnswerError("one event of the stream is longer than 8 MiB; it was cut off")
                now = time.monotonic() - started
                for line in lines:
                    data = _event_data(line)
                    if data is not None:
                        yield StreamPiece(now, data)
            data = _event_data(bytes(rest))
            if data is not None:
                yield StreamPiece(time.monotonic() - started, data)


def _event_data(line: bytes | bytearray) -> str | None:
    text = bytes(line).decode("utf-8", "replace").strip("\r")
    if not text.strip() or text.startswith(":"):
        return None
    if text.startswith("data:"):
        return text[5:].strip()
    if text.startswith(("event:", "id:", "retry:")):
        return None
    return text.strip()


class _Exchange:
    """One request under way, with every failure typed and a deadline over all of it."""

    def __init__(
        self, http: Http, method: str, path: str, body: object, deadline_s: float, idle_s: float | None = None
    ) -> None:
        self.http = http
        self.path = path
        self.deadline_s = deadline_s
        self.ends = time.monotonic() + deadline_s
        wait = min(deadline_s, idle_s) if idle_s is not None else deadline_s
        http.requests_sent += 1
        content = (
            None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
        )
        headers = {} if content is None else {"Content-Type": "application/json"}
        self._request = http._client.build_request(
            method,
            http.base_url + path,
            content=content,
            headers=headers,
            timeout=httpx.Timeout(wait, connect=min(http.connect_s, deadline_s), pool=5.0),
        )
        self._response: httpx.Response | None = None
        self.status = 0
        self.headers: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        with until(self.ends):
            response = self._typed(lambda: self.http._client.send(self._request, stream=True))
        self._response = response
        self.status = response.status_code
        self.headers = {k.lower(): v for k, v in response.headers.items()}
        return self

    def __exit__(self, *_exc: object) -> None:
        if self._response is not None:
            self._response.close()

    def pieces(self) -> Iterator[bytes]:
        """Give the body piece by piece until it ends or the deadline passes."""
        assert self._response is not None
        pieces = self._response.iter_raw()
        while True:
            with until(self.ends):
                piece = self._typed(lambda: next(pieces, None))
            if piece is None:
                return
            if time.monotonic() > self.ends:
                raise NoAnswerInTimeError(f"{self.path} was still answering after {self.deadline_s:.0f} s")
            yield piece

    def _typed(self, act: Any) -> Any:
        try:
            return act()
        except httpx.ConnectTimeout as error:
            raise UnreachableError(
                f"{self.http.base_url} did not take a connection within {self.http.connect_s:.0f} s; check the address and the firewall"
            ) from error
        except httpx.ConnectError as error:
            raise UnreachableError(
                f"nothing answers at {self.http.base_url} ({_short(error)}); start the server or give its address with --url"
            ) from error
        except httpx.TimeoutException as error:
            raise NoAnswerInTimeError(f"no answer to {self.path} within {self.deadline_s:.0f} s") from error
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, httpx.CloseError) as error:
            text = str(error)
            if (
                isinstance(error, httpx.RemoteProtocolError)
                and "disconnect" not in text
                and "incomplete" not in text
                and "closed" not in text
            ):
                raise BadAnswerError(
                    f"{self.http.base_url} does not speak HTTP ({_short(error)}); check the port"
                ) from error
            raise ServerDiedError(
                f"the server broke the connection during {self.path} ({_short(error)}); see its log"
            ) from error
        except httpx.HTTPError as error:
            raise BadAnswerError(f"the answer to {self.path} cannot be read ({_short(error)})") from error
        except (httpx.InvalidURL, UnicodeError) as error:
            raise InputError(
                f"{self.http.base_url!r} is no address; write for example http://127.0.0.1:8080"
            ) from error


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120] or type(error).__name__
