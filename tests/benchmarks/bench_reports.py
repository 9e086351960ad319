"""Run by hand: how long a report takes, how large it is, how fast a log is redacted and in how much memory.

python -m tests.benchmarks.bench_reports [MEGABYTES]
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Iterable
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median
from typing import TextIO

from reports.redact import Redactor
from reports.render import FORMATS, render
from tests.reporting.samples import spill, wide

LOG = (
    "slot update_slots: id  0 | task {n} | prompt processing progress, n_past = {n}, n_tokens = 2048, progress = 0.{n}",
    "llama_model_loader: - kv  {n}:                 qwen3.attention.head_count u32              = {n}",
    "srv  log_server_r: request: POST /completion 192.168.1.23 200",
    "prompt eval time =   {n}.67 ms / 8192 tokens (    1.51 ms per token,   {n}.55 tokens per second)",
    "load_tensors:        CUDA{n} model buffer size = {n}.67 MiB",
    'time=2026-10-03T09:30:00.{n}+09:00 level=INFO source=server.go:1288 msg="llama runner started in {n}.51 seconds"',
    "Oct 03 09:30:11 gpubox kernel: amdgpu 0000:03:00.0: ring gfx_0.0.0 timeout, signaled seq={n}, emitted seq={n}",
    "INFO 10-03 09:30:11 [loggers.py:118] Engine 000: Avg prompt throughput: {n}.2 tokens/s, Running: {n} reqs, GPU KV cache usage: {n}.3%",
    "main: server is listening on http://127.0.0.1:8080 - starting the main loop",
    '  File "/home/alice/.venv/lib/python3.11/site-packages/vllm/engine.py", line {n}, in step',
)
WORDS = (
    "llama",
    "kv",
    "cache",
    "layer",
    "tensor",
    "buffer",
    "size",
    "device",
    "prompt",
    "eval",
    "time",
    "token",
    "slot",
    "launch",
    "update",
    "rope",
)


def write_log(path: Path, megabytes: int, *, repeating: bool) -> int:
    random = Random(7)
    size = 0
    lines = cycle(LOG)
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1_000_000:
            if repeating:
                block = "\n".join(next(lines).format(n=random.randrange(10**6)) for _ in range(500)) + "\n"
            else:
                block = (
                    "\n".join(
                        " ".join(
                            f"{random.choice(WORDS)}={random.randrange(10**4)}" for _ in range(random.randrange(4, 16))
                        )
                        for _ in range(500)
                    )
                    + "\n"
                )
            size += file.write(block)
    return size


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Counting:
    """Takes what is written and counts it."""

    size = 0

    def write(self, text: str) -> int:
        self.size += len(text)
        return len(text)

    def writelines(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            self.write(piece)


def resident() -> int:
    """Give this process's memory in bytes, as Linux tells; 0 elsewhere."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
    except OSError:
        return 0


def redaction(megabytes: int, *, repeating: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "server.log"
        size = write_log(path, megabytes, repeating=repeating)
        gc.collect()
        before = resident()
        sink: TextIO = Counting()  # type: ignore[assignment]
        start, worked = time.perf_counter(), time.process_time()
        with path.open(encoding="utf-8", errors="replace") as source:
            Redactor(local=False).stream(source, sink)
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        grown = (resident() - before) / 2**20
    kind = "a log whose lines repeat" if repeating else "a log of ever new lines"
    say(
        f"redaction of {kind}, {size / 1e6:.0f} MB: {size / 1e6 / worked:.1f} MB/s of processor time, {size / 1e6 / seconds:.1f} MB/s by the clock "
        f"(at least 5), memory grew by {grown:.1f} MiB"
    )


def rendering() -> None:
    for name, document, most in (("60 rungs, 4 devices", wide(), 500), ("an ordinary case", spill(), 300)):
        for form in FORMATS:
            times = []
            for _ in range(7):
                start = time.perf_counter()
                report = render(document, form, target="llama.cpp")
                times.append((time.perf_counter() - start) * 1_000)
            say(
                f"{name}, {form}: first {times[0]:.0f} ms, then {median(times[1:]):.0f} ms (at most {most}); {len(report.encode()) / 1024:.0f} KiB"
            )


if __name__ == "__main__":
    rendering()
    for again in (True, False):
        redaction(int(sys.argv[1]) if len(sys.argv) > 1 else 100, repeating=again)
