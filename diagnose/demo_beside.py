"""What stands beside the demo's server in some scenarios: a proxy that gives up, or somebody else's requests. Run as a script, of its own.

``python demo_beside.py PARENT proxy SECONDS PORT SERVER-PORT`` relays a port to the server and closes every connection whose answer takes longer.
``python demo_beside.py PARENT neighbour SERVER-PORT WORDS`` keeps asking the server about a text of so many words, with short pauses.
Both end with the process that started them (``PARENT``, its id).
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

PIECE = 65_536
PAUSE_S = 0.5


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


def neighbour(parent: int, port: int, words: int) -> None:
    """Ask again and again, about another text each time, until the parent is gone."""
    number = 0
    while os.getppid() == parent:
        number += 1
        body = {
            "prompt": f"Note {number}. " + "The river rose again that night. " * (words // 6),
            "n_predict": 64,
            "ignore_eos": True,
            "cache_prompt": False,
        }
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            connection.getresponse().read()
        time.sleep(PAUSE_S)


def main(arguments: list[str]) -> int:
    """Do what was asked until the parent is gone."""
    parent, what, *numbers = arguments
    if what == "proxy":
        proxy(int(parent), float(numbers[0]), int(numbers[1]), int(numbers[2]))
    else:
        neighbour(int(parent), int(numbers[0]), int(numbers[1]))
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # threads that still relay would keep the interpreter from ending
    os._exit(code)
