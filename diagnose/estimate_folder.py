"""The ``estimate`` document for engines that fill a pool instead of one cache a window: a folder with config.json and safetensors, or a GGUF file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.estimating import (
    ALIASES,
    Document,
    Why,
    blank,
    left_to_the_engine,
    settings_from,
    shown_model,
    uncovered,
    unfinished,
)
from probes.evidence.errors import InputError
from probes.evidence.words import words
from probes.model_file.engines import (
    BLOCK,
    ENGINES,
    GGUF_ENGINES,
    FolderShape,
    bytes_per_element,
    gguf_shape,
    guess_engine,
    longest_pool,
    pool_bytes,
    read_folder_shape,
)
from probes.model_file.safetensors_header import ModelFolder, read_folder
from probes.model_file.shape import UnknownShapeError

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from probes.model_file.context import ContextSettings
    from probes.model_file.planner import GivenDevice, Model

_PLANNED_ONLY = {
    "kv_unified": None, "batch": None, "ubatch": None, "swa_full": False, "flash_attn": "auto", "tensor_split": None, "gpu_layers": None,
    "override": None, "cpu_moe": False, "n_cpu_moe": 0, "no_kv_offload": False, "draft": None, "mmproj": None, "no_mmproj_offload": False,
    "levers": None, "planner": None, "build": None,
}  # fmt: skip
"""Options that only llama.cpp's arithmetic here takes, with what stands for "not given"."""
_NAMES = {"mlx": "mlx_lm", "mlx-lm": "mlx_lm", "tabbyapi": "exllama", "exllamav3": "exllama", "exllamav2": "exllama"}


class FolderModel:
    """A folder read once."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.shape: FolderShape | None = None
        self.unknown: UnknownShapeError | None = None
        self.path = folder.path
        self.weights_bytes = folder.weights_bytes
        self.unfinished: dict[str, Why] = {}
        self.covered = True
        """Whether every layer of the configuration has tensors, so that the weights' sum means something."""
        try:
            self.shape = read_folder_shape(folder)
        except UnknownShapeError as error:
            self.unknown = error
        if folder.missing_bytes:
            self.unfinished["model.file"] = unfinished(folder.missing_bytes, folder.weights_bytes)
        if self.shape is not None:
            self._compare(self.shape.layers)

    def _compare(self, layers: int) -> None:
        held = sum(1 for layer in self.folder.layers_held if layer < layers)
        if held < layers:
            self.covered = False
            self.unfinished["model.weights_bytes"] = uncovered(held, layers)

    def engine(self, backend: str | None) -> str:
        """Give the engine to plan for. InputError if it cannot load such a folder."""
        if backend is None:
            return guess_engine(self.folder)
        name = _name(backend)
        if name not in ENGINES:
            raise InputError(f"a safetensors folder runs on {', '.join(ENGINES)}, not on {backend[:40]!r}")
        return name

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FolderModel:
        """Read a folder. BadFileError if it is no model."""
        return cls(read_folder(path))

    def shown(self) -> Document:
        """Give the model as the document shows it."""
        shape = self.shape
        return {
            "path": self.path,
            "architecture": shape.architecture[:200] if shape else None,
            "trained_window": shape.trained_window or None if shape else None,
            "weights_bytes": self.weights_bytes,
        }


class GgufInPool:
    """A GGUF file for an engine with a pool."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.path = model.header.path
        self.weights_bytes = model.weights_bytes
        self.unfinished: dict[str, Why] = {}
        self.covered = True
        self.shape: FolderShape | None = None
        self.unknown = model.unknown
        if model.missing_bytes:
            self.unfinished["model.file"] = unfinished(model.missing_bytes, model.weights_bytes)
        if not model.covered and model.shape is not None:
            self.covered = False
            self.unfinished["model.weights_bytes"] = uncovered(model.layers_held, model.shape.layers)
        if model.shape is not None:
            try:
                self.shape = gguf_shape(model.shape)
            except UnknownShapeError as error:
                self.unknown = error

    def engine(self, backend: str | None) -> str:
        """Give the engine to plan for. InputError if it cannot load a GGUF file."""
        name = "vllm" if backend is None else _name(backend)
        if name not in GGUF_ENGINES:
            raise InputError(
                f"a GGUF file is not loaded by {backend!r:.60}; leave --backend out for llama.cpp and what is made of it, or name {' or '.join(GGUF_ENGINES)}"
            )
        return name

    def shown(self) -> Document:
        """Give the model as the document shows it."""
        return shown_model(self.model)


PoolModel = FolderModel | GgufInPool


def passed_over(choices: Mapping[str, Any], engine: str) -> dict[str, Why]:
    """Say which of the options that were given count for nothing with this engine, by path."""
    return {
        f"settings.{name}": {
            "why": "not-offered",
            "note": words("not counted for {engine}; it was left out", engine=engine).english,
        }
        for name, absent in _PLANNED_ONLY.items()
        if choices.get(name) not in (absent, None)
    }


def folder_document(
    model: PoolModel,
    given: Mapping[str, Any],
    backend: str | None,
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    notes: Mapping[str, Why],
) -> Document:
    """Make the document. One window for each of ``parallel`` sequences (default 1); weights and caches evenly on all devices."""
    engine = model.engine(backend)
    given = {ALIASES.get(name, name): value for name, value in given.items() if value is not None}
    if left_to_the_engine(given.get("parallel")):
        given.pop("parallel")
    values = {"parallel": 1, **given}
    kinds: dict[str, str] = {name: str(values.pop(name)) for name in ("kv_k", "kv_v") if name in values}
    settings, ignored = settings_from(values)
    unknown: dict[str, Why] = {**model.unfinished, **notes, **ignored, **passed_over(given, engine)}
    shape = model.shape
    if shape is None:
        reason = model.unknown
        assert reason is not None
        unknown["kv"] = {
            "why": "not-offered",
            "note": f"{reason.why}; missing or impossible: {', '.join(reason.missing)}"[:4000],
        }
        return _named(blank(model.shown(), settings, "unknown", unknown), kinds, engine)
    key, value = (bytes_per_element(engine, kinds.get(name, "auto"), shape.dtype) for name in ("kv_k", "kv_v"))
    if key is None or value is None:
        found = blank(model.shown(), settings, "refused", unknown)
        found["refused_because"] = (
            f"{engine} has no cache type {kinds.get('kv_k') if key is None else kinds.get('kv_v')}"
        )
        return _named(found, kinds, engine)
    if engine != "exllama" and kinds.get("kv_k", "auto").lower() != kinds.get("kv_v", "auto").lower():
        found = blank(model.shown(), settings, "refused", unknown)
        found["refused_because"] = words("{engine} has one cache type for keys and values", engine=engine).english
        return _named(found, kinds, engine)
    if engine in {"vllm", "sglang"} and shape.trained_window and settings.ctx > shape.trained_window:
        unknown["settings.ctx"] = {
            "why": "not-offered",
            "note": words(
                "longer than the {trained} tokens that the model was trained to: {engine} refuses that unless it is told to allow it",
                trained=shape.trained_window,
                engine=engine,
            ).english,
        }
    return _named(_pool(model, shape, engine, settings, (key, value), devices, host, unknown), kinds, engine)


def _pool(
    model: PoolModel,
    shape: FolderShape,
    engine: str,
    settings: ContextSettings,
    sizes: tuple[float, float],
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    unknown: dict[str, Why],
) -> Document:
    asked = settings.ctx or shape.trained_window
    if asked == 0:
        raise InputError("the model does not say how long it was trained; give a window with --ctx")
    step = BLOCK[engine]
    window = -(-asked // step) * step
    kv = pool_bytes(shape, engine, asked, *sizes, sequences=settings.parallel)
    state = shape.state_layers * shape.state_elements * 4 * settings.parallel
    if shape.state_layers and not shape.state_elements:
        unknown["state_bytes"] = {
            "why": "not-offered",
            "note": f"how large {shape.architecture}'s states are is not known here",
        }
    unknown["compute_bytes"] = {
        "why": "not-offered",
        "note": words("{engine} measures its own work space at start; read it from its log", engine=engine).english,
    }
    found = blank(model.shown(), settings, "ok", unknown)
    found["ctx_in_force"], found["ctx_per_slot"] = window, window
    found["kv"]["bytes"] = kv
    found["kv"]["parts"] = _parts(shape, engine, asked, sizes, settings.parallel)
    found["state_bytes"] = state
    found["draft_bytes"] = found["projector_bytes"] = 0
    holders = devices or (host,)
    for device in holders:
        share = len(holders)
        need = (model.weights_bytes + kv + state) // share
        free = device.free_bytes
        found["devices"].append(
            {
                "id": device.id,
                "name": device.name,
                "free_bytes": free,
                "margin_bytes": device.margin_bytes,
                "weights_bytes": model.weights_bytes // share,
                "kv_bytes": kv // share,
                "state_bytes": state // share,
                "compute_bytes": 0,
                "other_bytes": 0,
                "need_bytes": need,
                "fits": None if free is None or not model.covered else need + device.margin_bytes <= free,
                "memory": "unified" if device.unified else "dedicated" if devices else "host",
            }
        )
    if model.covered and all(device.free_bytes is not None for device in holders):
        # Shares are equal, so the device with the least room decides.
        least = min(holders, key=lambda device: (device.free_bytes or 0) - device.margin_bytes)
        room = ((least.free_bytes or 0) - least.margin_bytes) * len(holders) - model.weights_bytes - state
        tokens = longest_pool(shape, engine, room // settings.parallel, *sizes) if room > 0 else 0
        limit = "trained window" if tokens and tokens == shape.trained_window else least.id
        found["longest_window"] = {"tokens": tokens, "limited_by": limit}
    return found


def _parts(shape: FolderShape, engine: str, tokens: int, sizes: tuple[float, float], sequences: int) -> list[Document]:
    step = BLOCK[engine]
    cells = -(-tokens // step) * step
    rows = [
        ("base", cells, shape.full_layers, shape.full_row, shape.full_at),
        ("swa", min(cells, -(-shape.window // step) * step), shape.window_layers, shape.window_row, shape.window_at),
    ]
    parts: list[Document] = []
    for name, count, layers, row, places in rows:
        if layers:
            half = row * count * layers / 2 * sequences
            parts.append(
                {
                    "name": name,
                    "cells": count,
                    "streams": sequences,
                    "layers": list(places),
                    "k_bytes": int(half * sizes[0] + 0.5),
                    "v_bytes": int(half * sizes[1] + 0.5),
                }
            )
    return parts


def _named(found: Document, kinds: Mapping[str, str], engine: str) -> Document:
    found["basis"]["engine"] = engine
    found["settings"].update({name: kinds.get(name, "auto") for name in ("kv_k", "kv_v")})
    return found


def _name(backend: str) -> str:
    return _NAMES.get(backend.lower(), backend.lower())


def bad_folder_line(model: PoolModel, line: int, why: str) -> Document:
    """Make the document for a line of settings that could not be read."""
    return blank(model.shown(), None, "unknown", {"settings": {"why": "failed", "note": f"line {line}: {why}"[:2000]}})
