"""What a session costs beside the server's own work: ``python tests/benchmarks/bench_overhead.py [--longest] [--profile FILE] [-- OPTIONS OF RUN]``.

A whole ``ctxdoctor run`` on the embedded server, in a process of its own, from its start to its end: interpreter, imports, reading the machine,
texts, judging and writing the case included. Its wall time is held against the time in which at least one request was with the server. What is
left is our own work; so is the processor time that the process spent while requests were under way (reading streams, sampling). The law:
both together at most 2 % of the wall time. Takes about three minutes; ``--longest`` prints between which requests most of it was spent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

LIMIT = 0.02


class Flights:
    """Adds up the time in which requests were under way, in whatever thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.under_way = 0
        self.wall = self.processor = 0.0
        self.requests = 0
        self.since = (0.0, 0.0)
        self.landed = (time.monotonic(), "the start")
        self.gaps: list[tuple[float, str, str]] = []

    def begin(self, path: str) -> None:
        """Note that a request leaves."""
        with self.lock:
            self.requests += 1
            self.under_way += 1
            if self.under_way == 1:
                self.since = (time.monotonic(), time.process_time())
                self.gaps.append((self.since[0] - self.landed[0], self.landed[1], path))

    def end(self, path: str) -> None:
        """Note that an answer is read to its end."""
        with self.lock:
            self.under_way -= 1
            if self.under_way == 0:
                now = time.monotonic()
                self.wall += now - self.since[0]
                self.processor += time.process_time() - self.since[1]
                self.landed = (now, path)


def session(out: str, arguments: list[str], profile: str | None) -> int:
    """Run the command line in this process with every request noted, and write down the sums."""
    from probes.backends import http

    flights = Flights()
    exchange: Any = http._Exchange
    enter, leave = exchange.__enter__, exchange.__exit__

    def entered(self: Any) -> Any:
        flights.begin(self.path)
        try:
            return enter(self)
        except BaseException:
            flights.end(self.path)
            raise

    def left(self: Any, *exc: object) -> None:
        try:
            leave(self, *exc)
        finally:
            flights.end(self.path)

    exchange.__enter__, exchange.__exit__ = entered, left
    from diagnose.cli import command_line

    watch = None
    if profile is not None:
        import cProfile

        watch = cProfile.Profile(time.thread_time if profile.endswith(".cpu") else time.perf_counter)
        watch.enable()
    try:
        code = command_line(arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    if watch is not None:
        watch.disable()
        watch.dump_stats(str(profile))
    flights.gaps.append((time.monotonic() - flights.landed[0], flights.landed[1], "the end"))
    told = {
        "wall": flights.wall,
        "processor": flights.processor,
        "requests": flights.requests,
        "gaps": sorted(flights.gaps, reverse=True)[:12],
        "code": code,
        "spent": time.process_time(),
    }
    Path(out).write_text(json.dumps(told), encoding="utf-8")
    return 0


def main() -> int:
    """Start the server, run the session, print shares."""
    if len(sys.argv) > 2 and sys.argv[1] == "--session":
        profile = sys.argv[3] or None
        return session(sys.argv[2], sys.argv[4:], profile)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--window", type=int, default=8192)
    parser.add_argument("--threads", type=int, default=1, help="of the server (default 1)")
    parser.add_argument("--model", help="a GGUF file (default: the demo's)")
    parser.add_argument("--longest", action="store_true", help="print the longest stretches without a request")
    parser.add_argument(
        "--profile", help="write a cProfile file of the session (it costs time itself); FILE.cpu counts processor time"
    )
    parser.add_argument("options", nargs="*", help="more options of `ctxdoctor run`")
    options = parser.parse_args()
    from diagnose.demo import model_path, server_command
    from probes.backends.http import Http
    from probes.evidence.errors import CtxDoctorError
    from probes.launch import Server, address_of
    from probes.process import free_port

    def answers(url: str) -> bool:
        try:
            with Http(url, connect_s=1.0) as http:
                return http.get("/health", deadline_s=2.0).status == 200
        except CtxDoctorError:
            return False

    threads = str(options.threads)
    flags = ("-c", str(options.window), "-np", "1", "-t", threads, "-tb", threads)
    command = server_command(model_path(options.model), free_port(), flags)
    with tempfile.TemporaryDirectory() as name, Server(command, log_path=Path(name) / "server.log") as server:
        folder = Path(name)
        server.start()
        launch = server.wait_healthy(lambda pid: address_of(pid, answers), 120)
        if not launch.healthy:
            print(f"the server did not start: {launch.why}")
            return 1
        surroundings = {**os.environ, "CTXDOCTOR_HOME": str(folder / "home"), "NO_COLOR": "1"}
        # an installed program has its bytecode on disk from its first start on
        surroundings.pop("PYTHONDONTWRITEBYTECODE", None)
        surroundings["PYTHONPYCACHEPREFIX"] = str(folder / "bytecode")

        def walk(told: Path, profile: str, *asked: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, __file__, "--session", str(told), profile, *asked]
            return subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False, cwd=folder)

        walk(folder / "first", "", "check", str(server.url))
        walk(folder / "first", "", "run", str(server.url), "--budget", "10s", "--ladder", "512", "--repeat", "1")
        asked = ["run", str(server.url), "--log", str(server.log_path), *options.options]
        begun = time.monotonic()
        done = walk(folder / "told", options.profile or "", *asked)
        whole = time.monotonic() - begun
        if done.returncode != 0 or not (folder / "told").exists():
            print(done.stdout, done.stderr)
            return 1
        told = json.loads((folder / "told").read_text(encoding="utf-8"))
    between = whole - told["wall"]
    share = (between + told["processor"]) / whole
    print(
        f"session of {whole:.1f} s, {told['requests']} requests, {told['wall']:.1f} s with the server (ended with {told['code']}): "
        f"{between:.2f} s ({between / whole:.2%}) between requests, {told['processor']:.2f} s ({told['processor'] / whole:.2%}) of processor time "
        f"meanwhile; together {share:.2%} of the wall time (at most {LIMIT:.0%})"
    )
    if options.longest:
        print(f"processor time in all: {told['spent']:.2f} s")
        for seconds, before, after in told["gaps"]:
            print(f"  {seconds:7.3f} s from {before} to {after}")
    return int(share > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
