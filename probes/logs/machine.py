"""What a log tells of the machine and of the program that wrote it: its devices with their memory, its name and version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from probes.evidence.events import LogEvent

MOST_DEVICES = 64
_INNER = {"llamacpp": "llama.cpp", "mlx": "mlx_lm", "vllm": "vllm", "sglang": "sglang", "tabbyapi": "tabbyapi"}
_OUTER = {
    "ollama": "ollama",
    "koboldcpp": "koboldcpp",
    "lmstudio": "lm-studio",
    "text-generation-webui": "text-generation-webui",
    "llama-cpp-python": "llama-cpp-python",
    "ik": "ik_llama.cpp",
    "beellama": "beellama.cpp",
}
"""Programs that hold another one and show its lines too: their own lines decide."""
_BY_BUILD = frozenset({"llama.cpp", "ik_llama.cpp", "beellama.cpp"})
_NO_VOTE = frozenset({"refused", "http", "generic-error", "generic-warning", "crash", "command"})
"""Lines of these kinds are quoted from one program by another."""
_DEVICE = re.compile(
    r"(?P<api>CUDA|ROCm|HIP|Vulkan|SYCL|Metal|MTL|CANN|MUSA|OpenCL|GPU)?[ :-]?(?P<index>\d{1,3})?", re.IGNORECASE
)
_MAKERS = (
    ("nvidia", re.compile(r"nvidia|geforce|\b[rg]tx\b|tesla|quadro|\b[ABHL]\d{2,3}\b", re.IGNORECASE)),
    ("amd", re.compile(r"\bamd\b|radeon|instinct|\bgfx\d|\bmi\d{2,3}", re.IGNORECASE)),
    ("intel", re.compile(r"intel|\barc\b", re.IGNORECASE)),
    ("apple", re.compile(r"apple|\bm[1-9]\b", re.IGNORECASE)),
    ("moore-threads", re.compile(r"\bmtt\b|moore threads", re.IGNORECASE)),
)
_API_MAKERS = {"cuda": "nvidia", "metal": "apple", "mtl": "apple", "rocm": "amd", "hip": "amd", "musa": "moore-threads"}


@dataclass(frozen=True, slots=True)
class SeenDevice:
    """An accelerator, as far as a log names it. ``free_bytes``: free when its log first said so, before anything was loaded."""

    id: str
    name: str | None = None
    vendor: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True)
class SeenProgram:
    """The program that wrote a log."""

    name: str
    version: str | None = None
    build: str | None = None


def devices_in(events: Iterable[LogEvent]) -> tuple[SeenDevice, ...]:
    """Give the accelerators that a log names, each once, by whatever names its lines call them."""
    seen: dict[str, SeenDevice] = {}
    for event in events:
        if event.event not in {"device-found", "buffer", "kv-cache", "alloc-failed"} or not event.device:
            continue
        place = _place(event)
        if place is None:
            continue
        first = event.event == "device-found"
        key, shown = place
        device = seen.get(key)
        if device is None:
            if len(seen) >= MOST_DEVICES:
                continue
            device = SeenDevice(shown)
        name = event.name if first else None
        if len(shown) > len(device.id) and device.id.isdecimal():
            device = replace(device, id=shown)
        seen[key] = replace(
            device,
            name=device.name or name,
            vendor=device.vendor or _maker(name, shown, event.key),
            # "0 MiB" is what a driver says that does not know
            total_bytes=device.total_bytes or event.total_bytes or None,
            free_bytes=device.free_bytes if device.free_bytes is not None or not first else event.free_bytes,
            driver=device.driver or (event.value if first and isinstance(event.value, str) else None),
        )
    return tuple(seen.values())


def _place(event: LogEvent) -> tuple[str, str] | None:
    """Give a device's key and its name for people; None for what is no accelerator."""
    said = str(event.device)
    if re.search(r"cpu|host|blas|\brpc", f"{said} {event.key if event.event == 'device-found' else ''}", re.IGNORECASE):
        return None
    match = _DEVICE.fullmatch(said)
    if match is None or not (match["api"] or match["index"]):
        # An identifier of a driver, or a name: it stands for itself, where a line introduces it.
        return (said.lower(), said[:80]) if event.event == "device-found" else None
    if (match["api"] or "").lower() in {"metal", "mtl"}:
        return "0", "Metal"
    return match["index"] or "0", said


def _maker(name: str | None, device: str, key: str | None) -> str | None:
    for maker, pattern in _MAKERS:
        if name and pattern.search(name):
            return maker
    if name:
        return None
    api = re.match(r"[a-z]+", device.lower()) or (key and re.match(r"[a-z]+", key.lower()))
    # llama.cpp's ROCm build calls its devices by the names of CUDA until it names one.
    return _API_MAKERS.get(api[0]) if api else None


def program_in(events: Iterable[LogEvent]) -> SeenProgram | None:
    """Say which program wrote the lines: what it says of itself, else whose lines they are."""
    votes: Counter[str] = Counter()
    versions: dict[str, str] = {}
    said: Counter[str] = Counter()
    for event in events:
        if event.event == "program" and event.name:
            said[event.name] += 1
            if event.version:
                versions[event.name] = event.version
        name = _OUTER.get(event.dialect) or _INNER.get(event.dialect)
        if name is not None and event.event not in _NO_VOTE:
            votes[name] += 1
    outer = [name for name in (*said, *votes) if name in _OUTER.values()]
    if outer:
        best = max(outer, key=lambda name: said[name] + votes[name])
    elif said or votes:
        best = (said or votes).most_common(1)[0][0]
    else:
        return None
    version = versions.get(best)
    number = re.match(r"b?(\d{3,6})\b", version or "")
    if best in _BY_BUILD and number is not None:
        # These count their builds: the number is the version, as their server tells it.
        return SeenProgram(best, f"b{number[1]}", version)
    return SeenProgram(best, version)
