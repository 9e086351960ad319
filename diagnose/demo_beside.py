"""What stands beside the demo's server in one scenario: a proxy that gives up. Run as a script, of its own.

``python demo_beside.py PARENT SECONDS PORT SERVER-PORT`` relays a port to the server and closes every connection whose answer takes longer. It ends
with the process that started it (``PARENT``, its id).
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

PIECE = 65_536


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


def proxy(parent: int, limit_s: float, outside: int, inside: int) -> None:
    """Relay until the parent is gone."""
    with socket.create_server(("127.0.0.1", outside)) as listener:
        listener.settimeout(0.5)
        while os.getppid() == parent:
            try:
                client, _address = listener.accept()
            except TimeoutError:
                continue
            threading.Thread(target=Relay(client, inside, limit_s).run, daemon=True).start()


def main(arguments: list[str]) -> int:
    """Relay until the parent is gone."""
    parent, limit_s, outside, inside = arguments
    proxy(int(parent), float(limit_s), int(outside), int(inside))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # threads that still relay would keep the interpreter from ending
    os._exit(code)
