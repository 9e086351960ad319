"""A deadline over a whole exchange, headers included: an HTTP library's time-outs begin anew with every byte that drips in.

:func:`hold_to_deadline` wraps a client's sockets once; inside ``with until(moment)`` no read, write or handshake of this thread waits beyond it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpcore2 as httpcore

if TYPE_CHECKING:
    import ssl

    import httpx2 as httpx

_mine = threading.local()


@contextmanager
def until(moment: float) -> Iterator[None]:
    """Let no wait of this thread go beyond ``moment`` (of ``time.monotonic``); the narrower one holds where they are nested."""
    before: float | None = getattr(_mine, "moment", None)
    _mine.moment = moment if before is None else min(before, moment)
    try:
        yield
    finally:
        _mine.moment = before


def _left(timeout: float | None, error: type[Exception]) -> float | None:
    moment: float | None = getattr(_mine, "moment", None)
    if moment is None:
        return timeout
    left = moment - time.monotonic()
    if left <= 0:
        raise error("the deadline of the whole exchange passed")
    return left if timeout is None else min(timeout, left)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream) -> None:
        self._inner = inner

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout)))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _Network(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend) -> None:
        self._inner = inner

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, left, local_address, socket_options))

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        left = _left(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_unix_socket(path, left, socket_options))

    def sleep(self, seconds: float) -> None:
        self._inner.sleep(seconds)


def hold_to_deadline(client: httpx.Client) -> None:
    """Wrap the sockets of a client's transports, those for proxies included. Once for each client, before its first request."""
    for transport in (client._transport, *client._mounts.values()):
        pool = getattr(transport, "_pool", None)
        inner = getattr(pool, "_network_backend", None)
        if pool is not None and isinstance(inner, httpcore.NetworkBackend) and not isinstance(inner, _Network):
            pool._network_backend = _Network(inner)
