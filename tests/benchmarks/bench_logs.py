"""How fast a log is read, against ``grep -cE`` with the same literals, and how much memory that takes.

``python tests/benchmarks/bench_logs.py [--mib 1024] [--kind mixed|busy|quiet] [--repeat 3]`` builds the log in a temporary folder and prints
the ratio and the peak memory. ``mixed`` is a busy server's log with requests, timings and chatter; ``busy`` has nothing but lines that mean
something; ``quiet`` almost none.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

REQUEST = """\
{t} I slot get_availabl: id  {s} | task -1 | selected slot by LCP similarity, sim_best = 0.{a:03d} (> 0.100 thold), f_keep = 0.{b:03d}
{t} I slot launch_slot_: id  {s} | task {k} | processing task, is_child = 0
{t} I slot update_slots: id  {s} | task {k} | new prompt, n_ctx_slot = 131072, n_keep = 0, task.n_tokens = {n}
{t} I slot update_slots: id  {s} | task {k} | n_tokens = {m}, memory_seq_rm [{m}, end)
{t} I slot update_slots: id  {s} | task {k} | prompt processing progress, n_tokens = {n}, batch.n_tokens = 2048, progress = 0.{a:03d}000
{t} I slot print_timing: id  {s} | task {k} | prompt eval time = {x:10.2f} ms / {n:5d} tokens (    0.90 ms per token,  1110.11 tokens per second)
{t} I slot print_timing: id  {s} | task {k} |        eval time = {x:10.2f} ms /   {a:3d} tokens (   25.00 ms per token,    40.00 tokens per second)
{t} I slot      release: id  {s} | task {k} | stop processing: n_tokens = {n}, truncated = 0
{t} I srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200
"""
CHATTER = [
    "{t} D srv  update_chat_: Parsing chat message: the user asks for a refactoring of module {k} and the assistant thinks about it {n}",
    "{t} D que    start_loop: processing new tasks, waiting for {k} more to come in the queue of slot {s}",
    "{t} D res          send: sending result for task id = {k}, delta of {a} bytes with content that nobody will ever look at again",
    "{t} I srv  params_from_: Chat format: Content-only, reasoning {n}, tools {a}, grammar lazy, thinking forced open {b}",
]
RARE = "{t} W decode: failed to find a memory slot for batch of size {a}"


def build(path: Path, mib: int, kind: str) -> None:
    """Write a log of that size; the same each time."""
    rng = random.Random(5)
    share = {"mixed": 0.12, "busy": 1.0, "quiet": 0.001}[kind]
    wanted = mib << 20
    # Unique megabytes up to 64, then the same again: building must not take longer than reading.
    parts: list[bytes] = []
    size = 0
    clock = 0
    while size < min(wanted, 64 << 20):
        lines: list[str] = []
        for _ in range(2000):
            clock += 1
            values = {
                "t": f"{clock // 6000}.{clock // 100 % 60:02d}.{clock % 100 * 10:03d}.{rng.randrange(1000):03d}", "s": rng.randrange(4),
                "k": clock, "n": rng.randrange(100, 99999), "m": rng.randrange(99999), "a": rng.randrange(100, 999),
                "b": rng.randrange(100, 999), "x": rng.random() * 90000,
            }  # fmt: skip
            if rng.random() < share / 4:
                lines.append(REQUEST.format(**values).rstrip("\n"))
            elif kind != "busy":
                lines.append(rng.choice(CHATTER).format(**values))
            if rng.random() < 0.0002:
                lines.append(RARE.format(**values))
        block = ("\n".join(lines) + "\n").encode()
        parts.append(block)
        size += len(block)
    with path.open("wb") as file:
        written = 0
        while written < wanted:
            for block in parts:
                file.write(block)
                written += len(block)
                if written >= wanted:
                    break


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--kind", choices=("mixed", "busy", "quiet"), default="mixed")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--read", type=Path, help="(used by itself) read this log and print seconds, megabytes, events")
    options = parser.parse_args()
    if options.read is not None:
        from probes.logs import collect_log

        begun = time.perf_counter()
        events, summary = collect_log(options.read)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(time.perf_counter() - begun, peak, len(events), summary.lines)
        return 0
    if shutil.which("grep") is None:
        print("grep is not installed: nothing to compare with")
        return 1
    from probes.logs.dialects import all_rules

    literals = sorted({literal for rule in all_rules() for literal in rule.literals})
    with tempfile.TemporaryDirectory() as folder:
        log, patterns = Path(folder) / "server.log", Path(folder) / "patterns"
        build(log, options.mib, options.kind)
        patterns.write_text(
            "\n".join(re.sub(r"([.\[\]{}()*+?^$|\\])", r"\\\1", literal) for literal in literals) + "\n"
        )
        ours: list[float] = []
        theirs: list[float] = []
        seen = ""
        for _ in range(options.repeat):  # interleaved, so that a busy moment hits both
            begun = time.perf_counter()
            found = subprocess.run(
                ["grep", "-cE", "-f", str(patterns), str(log)],
                check=False,
                capture_output=True,
                text=True,
                env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            )
            theirs.append(time.perf_counter() - begun)
            out = subprocess.run(
                [sys.executable, __file__, "--read", str(log)], check=True, capture_output=True, text=True
            ).stdout.split()
            ours.append(float(out[0]))
            seen = f"{float(out[1]):.0f} MB peak, {out[2]} events of {out[3]} lines ({found.stdout.strip()} lines hold a literal)"
        best_ours, best_theirs = min(ours), min(theirs)
        print(
            f"{options.kind} log of {log.stat().st_size >> 20} MiB, {len(literals)} literals: ours {best_ours:.2f} s, grep -cE {best_theirs:.2f} s, "
            f"ratio {best_ours / best_theirs:.2f}; {seen}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
