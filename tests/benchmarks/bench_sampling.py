"""What sampling costs: CPU time at 10 Hz as a share of one core, by hand: ``python tests/benchmarks/bench_sampling.py [SECONDS]``.

Each case samples a real process (with a child) for a while and divides the CPU time that this process spent meanwhile by the time that
passed; this process does nothing else. Cases: host and process alone; with four devices that answer through the real NVML binding from a
library built for the tests (so what is counted is this side of the driver); with eight. The law: at most 1 % of a core, at the full rate.
"""

# ruff: noqa: T201 - it is run by hand, and prints
from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

LIMIT = 0.01


def build(folder: Path) -> bool:
    """Build the library; false where there is no compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return False
    source = ROOT / "tests" / "gpu" / "fake_nvml.c"
    subprocess.run([compiler, "-shared", "-fPIC", "-O2", "-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.1", source], check=True)
    return True


def scenario(count: int, pid: int) -> str:
    """Give a scenario of so many cards, each with the process on its list."""
    lines = []
    for i in range(count):
        lines += [
            f"{i} name NVIDIA RTX A{i}000", f"{i} uuid GPU-{i}", f"{i} pci 00000000:{i + 1:02d}:00.0", f"{i} total {24 << 30}", f"{i} free {8 << 30}",
            f"{i} reserved {300 << 20}", f"{i} gen 4", f"{i} width 16", f"{i} gen_max 4", f"{i} width_max 16", f"{i} power 200000", f"{i} busy 97",
            f"{i} temperature 66", f"{i} process {pid} {15 << 30}", f"{i} process 1 {1 << 20}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def measure(seconds: float, pid: int) -> None:
    """Measure in this process, and print share of a core, rate reached, and its own account."""
    from probes.gpu.sampler import Sampler

    with Sampler(pid) as sampler:
        time.sleep(1.0)  # opening is paid once
        before = resource.getrusage(resource.RUSAGE_SELF)
        with sampler.phase("measured") as phase:
            time.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        peaks = phase.peaks
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"{spent / peaks.seconds:.6f} {peaks.hz:.3f} {peaks.cost_core_share or 0:.6f} {len(peaks.devices_peak_bytes)}")


def main() -> int:
    """Run every case in a process of its own, and print a table of ratios."""
    if len(sys.argv) == 4 and sys.argv[1] == "--measure":
        measure(float(sys.argv[2]), int(sys.argv[3]))
        return 0
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    worst = 0.0
    code = "import subprocess, sys, time; x = b'x' * 300_000_000; subprocess.Popen(['sleep', '600']); print(1, flush=True); time.sleep(600)"
    with tempfile.TemporaryDirectory() as name, subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as server:
        folder = Path(name)
        try:
            assert server.stdout is not None
            server.stdout.readline()
            built = build(folder)
            print(f"{'case':<34} {'share of a core':>16} {'of the limit':>13} {'rate reached':>13} {'own account':>12}")
            for label, count in (("host and process", 0), ("and 4 NVIDIA devices", 4), ("and 8 NVIDIA devices", 8)):
                if count and not built:
                    print(f"{label:<34} no C compiler")
                    continue
                environment = dict(os.environ)
                if count:
                    (folder / "scenario").write_text(scenario(count, server.pid))
                    environment |= {"LD_LIBRARY_PATH": str(folder), "FAKE_NVML": str(folder / "scenario")}
                done = subprocess.run(
                    [sys.executable, __file__, "--measure", str(seconds), str(server.pid)], capture_output=True, text=True, check=True, env=environment
                )
                share, hz, own, devices = (float(word) for word in done.stdout.split())
                assert devices == count
                worst = max(worst, share)
                print(f"{label:<34} {share:>15.4%} {share / LIMIT:>13.2f} {hz:>10.2f} Hz {own:>12.4%}")
        finally:
            os.killpg(server.pid, 9)
    return int(worst > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
