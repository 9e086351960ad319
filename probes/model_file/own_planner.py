"""llama.cpp's own planner, ``llama-fit-params``: what it prints for a model and settings, as a basis for the work space.

It builds the graphs of a context without allocating them and prints, for each device, MiB of weights, context and work space. Two things it does otherwise
than llama-server: it knows no ``--kv-unified``, so a cache for all slots is asked as one slot; and it reserves logits for the whole micro-batch, so where
those make the peak it gives only an upper bound for a server.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from probes.evidence.errors import BadAnswerError, NoAnswerInTimeError, NotOfferedError

from .context import CACHE_TYPES, ContextSettings

if TYPE_CHECKING:
    from .planner import Options

PROGRAM = "llama-fit-params"
DEADLINE_S = 60.0
_MIB = 1024**2
_MOST_OUTPUT = 1 << 20
_LINE = re.compile(r"^(\S{1,100}) (\d{1,9}) (\d{1,9}) (\d{1,9}) ?$", re.MULTILINE)
_MOST_DEVICES = 64


class PlannedDevice(NamedTuple):
    """One line of its answer, in bytes, rounded down to MiB by the program. ``name`` as llama.cpp names the device, ``Host`` for the host."""

    name: str
    weights: int
    context: int
    compute: int


def find_planner(*beside: str | None) -> str | None:
    """Find the program: beside one of these files (a server's binary), or on the path. None if there is none."""
    for path in beside:
        if not path:
            continue
        found = shutil.which(PROGRAM, path=str(Path(shutil.which(path) or path).resolve().parent))
        if found:
            return found
    return shutil.which(PROGRAM)


def arguments(model: str, settings: ContextSettings, options: Options) -> list[str]:
    """Give the command line for it. NotOfferedError for what it cannot be asked."""
    for name in (settings.kv_k, settings.kv_v):
        if name not in CACHE_TYPES or CACHE_TYPES[name].fork:
            raise NotOfferedError(f"{PROGRAM} has no cache type {name[:40]}")
    if options.draft or settings.kind != "default":
        raise NotOfferedError(f"{PROGRAM} plans a model alone, without a draft")
    if any(target >= 0 for _pattern, target in options.overrides):
        raise NotOfferedError(f"{PROGRAM} is asked only for overrides to the CPU: devices have other names there")
    command = [
        "--model", model, "--fit-print", "on", "--ctx-size", str(settings.ctx),
        "--batch-size", str(settings.batch), "--ubatch-size", str(settings.ubatch),
        "--parallel", str(1 if settings.kv_unified else max(1, settings.parallel)),
        "--cache-type-k", settings.kv_k, "--cache-type-v", settings.kv_v, "--flash-attn", settings.flash_attn,
    ]  # fmt: skip
    if settings.swa_full:
        command.append("--swa-full")
    if not options.kv_offload:
        command.append("--no-kv-offload")
    if options.gpu_layers is not None:
        command += ["--n-gpu-layers", str(options.gpu_layers)]
    if options.tensor_split:
        command += ["--tensor-split", ",".join(f"{share:g}" for share in options.tensor_split)]
    for pattern, _target in options.overrides:
        command += ["--override-tensor", f"{pattern}=CPU"]
    return command


def parse_answer(text: str) -> tuple[PlannedDevice, ...]:
    """Read its lines, the host last. BadAnswerError if they are not there."""
    found = [
        PlannedDevice(name, *(int(size) * _MIB for size in sizes))
        for name, *sizes in _LINE.findall(text[:_MOST_OUTPUT])
    ]
    if not found or found[-1].name != "Host" or len(found) > _MOST_DEVICES:
        raise BadAnswerError(f"{PROGRAM} printed no sizes; is it a llama.cpp of 2025-12 or later?")
    return tuple(found)


def ask_planner(
    program: str, model: str, settings: ContextSettings, options: Options, *, deadline_s: float = DEADLINE_S
) -> tuple[PlannedDevice, ...]:
    """Run it and read its answer. It opens each device for a moment and allocates nothing of the model there.

    NotOfferedError for what it cannot be asked or where it does not start, NoAnswerInTimeError, BadAnswerError.
    """
    command = [program, *arguments(model, settings, options)]
    # A file takes what it prints: a pipe that nobody reads would stop it, and one that is read to its end takes memory without a bound.
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as complained:
        try:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=complained,
                start_new_session=True,
                cwd=tempfile.gettempdir(),
            )
        except OSError as error:
            raise NotOfferedError(f"{program[:200]} does not start: {error.strerror or error}") from None
        try:
            code = child.wait(deadline_s)
        except subprocess.TimeoutExpired:
            raise NoAnswerInTimeError(f"{PROGRAM} did not answer in {deadline_s:.0f} s; leave --planner out") from None
        finally:
            _end(child)
        said.seek(0)
        complained.seek(0)
        if code:
            why = complained.read(_MOST_OUTPUT).decode("utf-8", "replace")
            lines = [line.strip() for line in why.splitlines() if "error" in line.lower() or "failed" in line.lower()]
            raise BadAnswerError(f"{PROGRAM} ended with {code}: {(lines or ['no reason given'])[-1][:300]}")
        return parse_answer(said.read(_MOST_OUTPUT).decode("utf-8", "replace"))


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        with contextlib.suppress(OSError):
            if hasattr(os, "killpg"):
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.kill()
        child.wait()
