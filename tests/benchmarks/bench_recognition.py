"""How many harmless GETs and seconds recognition takes, for each server that is known, on the loopback. By hand: ``python -m tests.benchmarks.bench_recognition``.

At most 16 GETs and 2 seconds for any of them. The servers are recordings played on the loopback; with ``--real`` a real llama.cpp and a real
mlx_lm.server are started and recognised, too (mlx_lm.server is confirmed by its first completion, which is not counted).
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, MOST_SECONDS, recognise
from probes.evidence.errors import CouldNotLookError
from probes.process import free_port
from tests.backends import tiny_mlx
from tests.backends.loopback import Loopback
from tests.backends.test_recognise import RECORDED
from tests.tiny_model import make_model, server_command

RUNS = 15


def measure(url: str) -> tuple[str, int, list[float]]:
    """Recognise the server at an address several times: its name, the GETs of one time, and the seconds of each."""
    name, gets, seconds = "", 0, []
    for _run in range(RUNS):
        with Http(url) as http:
            begun = time.perf_counter()
            name = recognise(http).name
            seconds.append(time.perf_counter() - begun)
            gets = max(gets, http.requests_sent)
    return name, gets, seconds


@contextlib.contextmanager
def started(command: list[str], port: int, **environment: str) -> Iterator[str]:
    """Start a server, wait until it answers, and end that process."""
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=quiet, stderr=quiet, env={**os.environ, **environment}) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            with Http(url) as http:
                for _try in range(900):
                    with contextlib.suppress(CouldNotLookError):
                        if http.get("/health", deadline_s=2).status == 200:
                            break
                    if process.poll() is not None:
                        raise SystemExit("a server did not start")
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            process.wait(20)


def say(shown: str, expected: str, measured: tuple[str, int, list[float]]) -> bool:
    """Print one line; true where the bounds are kept and the name is right."""
    name, gets, seconds = measured
    good = name == expected and gets <= MOST_GETS and max(seconds) <= MOST_SECONDS
    print(
        f"{shown:<30} {name:<24} {gets:3} GETs   median {statistics.median(seconds):6.3f} s, slowest {max(seconds):6.3f} s"
        f"{'' if good else '   OUT OF BOUNDS'}"
    )
    return good


def main() -> int:
    """Print a line for each server; 1 where one is out of bounds."""
    good = True
    for recording, backend in RECORDED.items():
        with Loopback.playing(recording) as server:
            good &= say(recording, backend, measure(server.url))
    if "--real" in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as name:
            folder, port = Path(name), free_port()
            model = make_model(folder / "tiny.gguf")
            with started(list(server_command(model, "-c", "2048", "-np", "1", port=port)), port) as url:
                good &= say("llama.cpp, running", "llama.cpp", measure(url))
            tiny_mlx.make_model(folder)
            port = free_port()
            command = [sys.executable, "-m", "mlx_lm", "server", "--model", name, "--port", str(port)]
            with started(command, port, HF_HUB_OFFLINE="1", HF_HOME=str(folder / "hub")) as url:
                good &= say("mlx_lm.server, running", "mlx_lm", measure(url))
    print(f"at most {MOST_GETS} GETs and {MOST_SECONDS:.0f} s, {RUNS} times each: {'kept' if good else 'NOT KEPT'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
