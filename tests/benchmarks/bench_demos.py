"""Every planted fault of the demo, really run, by hand: ``python tests/benchmarks/bench_demos.py [SCENARIO:SEED …]``.

Prints for each what was planted, what was named, and how long it took; the laws: what was planted and nothing else is named, within two minutes on two
idle cores. All of them take about 25 minutes; a part of them is in the ordinary test run too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

LIMIT_S = 120
ALL = (
    "healthy:0",
    *(f"immediate-oom:{seed}" for seed in range(2)),
    *(f"fixed-length-error:{seed}" for seed in range(3)),
    *(f"forgetting:{seed}" for seed in range(4)),
    *(f"flaky:{seed}" for seed in range(3)),
    *(f"slow-long-context:{seed}" for seed in range(4)),
)


def demo(scenario: str, seed: str, home: Path) -> tuple[float, list[str]]:
    """Run one: seconds, and what was named."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "demo", scenario, "--seed", seed, "--format", "json", "--quiet"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "CTXDOCTOR_HOME": str(home)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    took = time.monotonic() - began
    try:
        return took, json.loads(done.stdout)["verdict"]["named"]
    except (ValueError, KeyError):
        return took, [f"failed with {done.returncode}: {done.stderr.strip()[-200:]}"]


def main(chosen: list[str]) -> int:
    """Run the chosen ones, else all. 1 where something else was named than planted, or it took too long."""
    from diagnose import demo as planting

    wrong = 0
    print(f"{'scenario':<24}{'seconds':>8}  {'right':<6} planted; named")
    for one in chosen or ALL:
        scenario, _, seed = one.partition(":")
        planted = planting.scenario(scenario, int(seed or 0), planting.model_path())
        with tempfile.TemporaryDirectory() as home:
            took, named = demo(scenario, seed or "0", Path(home))
        right = set(named) == set(planted.causes) and took <= LIMIT_S
        wrong += not right
        print(
            f"{one:<24}{took:>8.0f}  {'yes' if right else 'NO':<6} {planted.planted}; {', '.join(named) or 'nothing'}",
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
