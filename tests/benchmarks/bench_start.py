"""How long the command line takes to answer, as multiples of ``python -c pass`` in the same run. By hand: ``python -m tests.benchmarks.bench_start``."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 21


def seconds(command: list[str]) -> float:
    """Time one run of a command."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return time.perf_counter() - begun


def main() -> None:
    """Print median ratios of interleaved pairs."""
    script = str(Path(sys.executable).with_name("ctxdoctor"))
    for name, arguments, most in (("--version", ["--version"], 5), ("--help", ["--help"], 12)):
        ratios = []
        for _ in range(RUNS):
            nothing = seconds([sys.executable, "-c", "pass"])
            ratios.append(seconds([script, *arguments]) / nothing)
        ratios.sort()
        print(
            f"{name:<10} {statistics.median(ratios):5.2f} × python -c pass   ({ratios[2]:.2f} to {ratios[-3]:.2f}, {RUNS} pairs; at most {most})"
        )


if __name__ == "__main__":
    main()
