"""The change loop's numbers on the embedded server: ``uv run python tests/benchmarks/bench_changes.py [diff|shift|starts]``.

``diff``: 30 single changes, each really made to a server that is started with it, and 30 starts without a change (none missed, none reported).
``shift``: the window at which memory is full, foretold and found, for the memory levers under an address-space limit (within 5 % or 2,048 tokens).
``starts``: what starting and stopping adds to what the server itself needs (at most 2 s). ``tests/diagnose`` holds the quick versions.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from diagnose import look
from diagnose.opening import answers_health
from diagnose.readback import difference, read_back
from diagnose.shift import shifted
from probes.backends.commands import change_command, parse_command
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.evidence.changes import Snapshot
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Launch
from probes.launch import Server, address_of
from probes.logs.reader import collect_log
from probes.process import free_port
from tests.tiny_model import make_model, server_command

REPEATS = 30
LIMIT = int(0.7 * (1 << 30))

Flags = tuple[str, ...]
BASE: Flags = ("-c", "4096", "-np", "2", "-b", "512", "-ub", "256", "-ctk", "f16", "-ctv", "f16", "-fa", "on")


def say(line: str) -> None:
    """Print a line at once: a start takes seconds."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def set_to(flags: Flags, *pairs: str) -> Flags:
    """Give flags with other values; a flag that is not there is added."""
    words = list(flags)
    for flag, value in zip(pairs[::2], pairs[1::2], strict=True):
        if flag in words:
            words[words.index(flag) + 1] = value
        else:
            words += [flag, value]
    return tuple(words)


# -- diff ---------------------------------------------------------------------------------------------------------------------------------------


def snapshot(model: Path, flags: Flags, environment: dict[str, str], limit: int | None = None) -> Snapshot:
    """Start the server, read its configuration back from everywhere as a run does, and stop it."""
    command = server_command(model, *flags, port=free_port())
    log = model.parent / "server.log"
    log.unlink(missing_ok=True)
    before = list(look.at_machine(1, None, "before load"))
    with Server(command, log_path=log, environment=environment, address_space_bytes=limit) as server:
        server.start()
        launch = server.wait_healthy(lambda pid: address_of(pid, answers_health), 120)
        assert launch.healthy, (flags, launch.why)
        with Http(server.url or "") as http:
            backend = recognise(http)
            process, why = look.find_process(server.url or "")
            pieces = [
                *before,
                found(launch, source="measured"),
                *look.at_server(backend, 1),
                *look.at_process(process, why, backend.name, 1),
                *look.at_machine(1, server.pid, "before run"),
                *look.at_model_file(str(model), 1, local=True),
            ]
    events, _summary = collect_log(log)
    evidence = EvidenceSet([*pieces, *(found(one, source="log", run=1) for one in events)])
    assert evidence.of(Launch)
    return read_back(evidence)


PLANTED: dict[str, tuple[Flags, dict[str, str], str]] = {
    "window": (set_to(BASE, "-c", "8192"), {}, "ctx"),
    "a small window": (set_to(BASE, "-c", "1024"), {}, "ctx"),
    "one slot": (set_to(BASE, "-np", "1"), {}, "parallel"),
    "four slots": (set_to(BASE, "-np", "4"), {}, "parallel"),
    "unified cache": ((*BASE, "--kv-unified"), {}, "kv_unified"),
    "batch": (set_to(BASE, "-b", "1024"), {}, "batch"),
    "micro-batch": (set_to(BASE, "-ub", "128"), {}, "ubatch"),
    "both cache types": (set_to(BASE, "-ctk", "q8_0", "-ctv", "q8_0"), {}, "kv_type"),
    "both cache types, four bits": (set_to(BASE, "-ctk", "q4_0", "-ctv", "q4_0"), {}, "kv_type"),
    "the K type alone": (set_to(BASE, "-ctk", "q8_0"), {}, "kv_type_k"),
    "the V type alone": (set_to(BASE, "-ctv", "q8_0"), {}, "kv_type_v"),
    "flash attention": (set_to(BASE, "-fa", "off"), {}, "flash_attention"),
    "threads": (set_to(BASE, "-t", "2"), {}, "threads"),
    "the position base": ((*BASE, "--rope-freq-base", "20000"), {}, "rope_freq_base"),
    "position scaling": ((*BASE, "--rope-scaling", "linear", "--rope-scale", "2"), {}, "rope_scaling"),
    "the position scale alone": ((*BASE, "--rope-freq-scale", "0.5"), {}, "rope_freq_scale"),
    "context shift": ((*BASE, "--context-shift"), {}, "context_shift"),
    "no prompt cache": ((*BASE, "--no-cache-prompt"), {}, "cache_prompt"),
    "prompt cache size": ((*BASE, "--cache-ram", "0"), {}, "cache_ram_mib"),
    "reuse": ((*BASE, "--cache-reuse", "64"), {}, "cache_reuse"),
    "checkpoints": ((*BASE, "--ctx-checkpoints", "4"), {}, "ctx_checkpoints"),
    "longest answer": ((*BASE, "-n", "64"), {}, "n_predict"),
    "cache in system memory": ((*BASE, "--no-kv-offload"), {}, "kv_offload"),
    "split mode": ((*BASE, "-sm", "none"), {}, "split_mode"),
    "no mapping": ((*BASE, "--no-mmap"), {}, "mmap"),
    "whole window cache": ((*BASE, "--swa-full"), {}, "swa_full"),
    "a variable of the server's": (BASE, {"LLAMA_ARG_CTX_CHECKPOINTS": "2"}, "ctx_checkpoints"),
    "a variable of a device": (BASE, {"CUDA_VISIBLE_DEVICES": "7"}, "env.CUDA_VISIBLE_DEVICES"),
    "an address-space limit": (BASE, {}, "address_space_limit"),
    "another model under the same name": (BASE, {}, "model_path"),
}


def diff() -> None:
    """Each planted change against the start without it."""
    assert len(PLANTED) >= 30
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "model.gguf")
        first = snapshot(model, BASE, {})
        missed: list[str] = []
        for name, (flags, environment, variable) in PLANTED.items():
            if variable == "model_path":
                make_model(model, seed=1)
            now = snapshot(model, flags, environment, 8 << 30 if variable == "address_space_limit" else None)
            if variable == "model_path":
                make_model(model)
            seen = [one.name for one in difference(first, now).variables]
            if seen != [variable]:
                missed.append(name)
            say(f"  {name}: {', '.join(seen) or 'nothing'}{'' if seen == [variable] else f'  (planted: {variable})'}")
        say(f"planted changes that were found as one variable: {len(PLANTED) - len(missed)} of {len(PLANTED)}")
        reported = 0
        for number in range(REPEATS):
            seen = [one.name for one in difference(first, snapshot(model, BASE, {})).variables]
            if seen:
                reported += 1
                say(f"  start {number + 1} without a change: {', '.join(seen)}")
        say(f"starts without a change that reported one: {reported} of {REPEATS}")


# -- shift --------------------------------------------------------------------------------------------------------------------------------------

LEVERS: dict[str, tuple[str, object]] = {
    "8-bit cache": ("kv_type", "q8_0"),
    "4-bit cache": ("kv_type", "q4_0"),
    "8-bit K alone": ("kv_type_k", "q8_0"),
    "two slots": ("parallel", 2),
    "a larger micro-batch": ("ubatch", 1024),
}
ROOMY: Flags = ("-np", "1", "-b", "1024", "-ub", "256", "-fa", "on")


def full_at(loads: Callable[[int], bool], low: int, high: int) -> int:
    """Bisect the longest window that loads, to 1 %."""
    assert loads(low)
    while loads(high):
        high *= 2
    while high - low > max(256, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if loads(middle) else (low, middle)
    return low


def shift() -> None:
    """The longest window of one slot, before and after each lever."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "model.gguf", layers=4, heads=8, head_size=64, trained=1 << 20)

        def command(window: int, variable: str | None = None, value: object = None) -> tuple[str, ...]:
            slots = value if variable == "parallel" and isinstance(value, int) else 1
            made = list(server_command(model, "-c", str(window * slots), *ROOMY, port=free_port()))
            return tuple(change_command(made, "llama.cpp", variable, value) if variable else made)

        def loads(argv: tuple[str, ...]) -> bool:
            # the C library reserves address space for each thread that allocates, 64 MiB at a time: no memory, but it counts here
            calm = {"MALLOC_ARENA_MAX": "1"}
            log = model.parent / "s.log"
            with Server(argv, log_path=log, environment=calm, address_space_bytes=LIMIT) as server:
                server.start()
                return server.wait_healthy(lambda pid: address_of(pid, answers_health), 120).healthy

        before = full_at(lambda window: loads(command(window)), 2048, 65_536)
        say(f"full at {before:,} tokens under {LIMIT >> 20} MiB")
        for name, (variable, value) in LEVERS.items():
            told = shifted(model, parse_command(command(before)), before, variable, value)
            if told is None:
                say(f"  {name}: no prediction")
                continue
            real = full_at(lambda w, v=variable, x=value: loads(command(w, v, x)), 512, max(1024, told))  # type: ignore[misc]
            off = abs(told - real)
            good = off <= max(0.05 * real, 2048)
            say(f"  {name}: foretold {told:,}, found {real:,}, off by {off / real:.1%}{'' if good else '  (too far)'}")


# -- starts -------------------------------------------------------------------------------------------------------------------------------------


def starts() -> None:
    """Seconds from the start to the first answer and of the stop, by the system alone and by the tool."""
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder) / "model.gguf")
        plain: list[float] = []
        ours: list[float] = []
        for _ in range(5):
            port = free_port()
            begun = time.monotonic()
            process = subprocess.Popen(
                server_command(model, *BASE, port=port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            while not answers_health(f"http://127.0.0.1:{port}"):
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            process.wait(30)
            plain.append(time.monotonic() - begun)
            begun = time.monotonic()
            with Server(server_command(model, *BASE, port=free_port()), log_path=model.parent / "s.log") as server:
                server.start()
                assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
            ours.append(time.monotonic() - begun)
        alone, with_tool = statistics.median(plain), statistics.median(ours)
        say(
            f"start and stop: {alone:.2f} s alone, {with_tool:.2f} s by the tool: adds {with_tool - alone:.2f} s (at most 2 s)"
        )


if __name__ == "__main__":
    os.environ.setdefault("CTXDOCTOR_HOME", tempfile.mkdtemp())
    for part in sys.argv[1:] or ["diff", "shift", "starts"]:
        {"diff": diff, "shift": shift, "starts": starts}[part]()
