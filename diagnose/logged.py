"""What a server's log tells of what was under test: the model, the cache, the settings in force. It fills what nothing else tells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from probes.allocation import NOT_ALLOCATED
from probes.evidence.events import LogEvent
from rules.derive.cards import never_started

_CACHE = frozenset({"kv", "state"})
_ROPE = {"freq_base": "rope_freq_base", "freq_scale": "rope_freq_scale", "rope_scaling": "rope_scaling"}
_SCALES = {"K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_PARAMETERS = re.compile(r"(\d{1,6}(?:\.\d{1,4})?)\s*([KMBT])\b", re.ASCII)
_SYSTEMS = (
    ("Linux", re.compile(r"-linux|\bubuntu\b|\bdebian\b|\bfedora\b", re.IGNORECASE)),
    ("macOS", re.compile(r"-darwin|\bmacos\b", re.IGNORECASE)),
    ("Windows", re.compile(r"-windows|-mingw|\bMSVC\b|\bwindows\b", re.IGNORECASE)),
)
_PLACES = re.compile(r"\(?([A-Za-z]:[\\/]\S.*|[~/.]\S.*|\S.*\.gguf)\)?")


@dataclass(slots=True)
class Logged:
    """What a log tells; None where it does not. Sizes in bytes, windows in tokens. ``never_started``: its load failed."""

    name: str | None = None
    path: str | None = None
    size_bytes: int | None = None
    quantization: str | None = None
    architecture: str | None = None
    parameters: int | None = None
    trained_window: int | None = None
    layers: int | None = None
    gpu_layers: int | None = None
    batch: int | None = None
    ubatch: int | None = None
    threads: int | None = None
    flash_attention: str | None = None
    kv_unified: bool | None = None
    kv_places: tuple[str, ...] = ()
    kv_bytes: int | None = None
    kv_refused: int | None = None
    window_made: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    rope: dict[str, Any] = field(default_factory=dict)
    os: str | None = None
    never_started: bool = False


def _count(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        return int(value[:9])
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def told_by_log(events: Iterable[LogEvent]) -> Logged:
    """Gather what log lines tell of their subject: the last word of each, and what one load placed or could not place of the cache."""
    told = Logged()
    said = list(events)
    places: dict[str, int] = {}
    whole = 0
    failed = False
    for event in said:
        match event.event:
            case "model-info":
                _model(told, event)
            case "loading":
                if event.name and _PLACES.fullmatch(event.name):
                    told.path = event.name
                if failed:
                    places.clear()
                    whole, failed, told.kv_refused = 0, False, None
            case "window" if event.which == "trained" and event.tokens:
                told.trained_window = event.tokens
            case "window" if event.which == "in-force" and event.tokens:
                told.window_made = event.tokens
            case "layers-offloaded":
                told.gpu_layers = event.count if event.count is not None else told.gpu_layers
            case "flash-attention" if event.on is not None:
                told.flash_attention = "on" if event.on else "off"
            case "slots" if event.unified is not None:
                told.kv_unified = event.unified
            case "rope" if event.key in _ROPE and event.value is not None:
                told.rope[_ROPE[event.key]] = event.value
            case "program":
                told.os = next((name for name, pattern in _SYSTEMS if pattern.search(event.text)), told.os)
            case "kv-cache" if event.key not in NOT_ALLOCATED:
                whole += event.size_bytes or 0
            case "buffer" if event.component in _CACHE and event.device and event.key not in NOT_ALLOCATED:
                places[event.device] = places.get(event.device, 0) + (event.size_bytes or 0)
            case "alloc-failed" if event.component in _CACHE:
                failed = True
                place = event.device or ""
                places[place] = places.get(place, 0) + (event.size_bytes or 0)
                told.kv_refused = (told.kv_refused or 0) + (event.size_bytes or 0)
            case "alloc-failed":
                failed = True
    told.kv_places = tuple(sorted(place for place in places if place))
    told.kv_bytes = max(whole, sum(places.values())) or None
    told.never_started = never_started(said)
    return told


Q8_OF_F16 = 8.5 / 16
"""Bits of q8_0, its scales included, of those of f16."""


def cache_is_f16(told: Logged) -> bool:
    """Say whether the cache has sixteen bits, by its size and the model's shape: keys and values of each layer and head at every place."""
    if not (told.kv_bytes and told.window_made and told.layers and told.kv_heads and told.head_size):
        return False
    plain = 2 * 2 * told.layers * told.kv_heads * told.head_size * told.window_made
    return abs(told.kv_bytes - plain) <= 0.01 * plain


def _model(told: Logged, event: LogEvent) -> None:
    value = event.value
    match event.key:
        case "name":
            told.name = _text(value) or told.name
        case "arch":
            told.architecture = _text(value) or told.architecture
        case "file_type":
            told.quantization = _text(value) or told.quantization
        case "file_size":
            told.size_bytes = event.size_bytes or told.size_bytes
        case "n_params":
            known = _PARAMETERS.search(value) if isinstance(value, str) else None
            told.parameters = round(float(known[1]) * _SCALES[known[2]]) if known else told.parameters
        case "n_layer":
            told.layers = _count(value) or told.layers
        case "n_head_kv":
            told.kv_heads = _count(value)
        case "n_embd_head_k":
            told.head_size = _count(value)
        case "n_batch":
            told.batch = _count(value) or told.batch
        case "n_ubatch":
            told.ubatch = _count(value) or told.ubatch
        case "n_threads":
            told.threads = _count(value) or told.threads
        case _:
            pass
