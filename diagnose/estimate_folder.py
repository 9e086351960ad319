"""The ``estimate`` document for a folder with config.json and safetensors: engines that fill a pool instead of one cache a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.estimating import Document, Why, blank, settings_from
from probes.evidence.errors import InputError
from probes.model_file.engines import (
    BLOCK,
    ENGINES,
    FolderShape,
    bytes_per_element,
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
    from probes.model_file.planner import GivenDevice

_NAMES = {"mlx": "mlx_lm", "mlx-lm": "mlx_lm", "tabbyapi": "exllama", "exllamav3": "exllama", "exllamav2": "exllama"}


class FolderModel:
    """A folder read once."""

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.shape: FolderShape | None = None
        self.unknown: UnknownShapeError | None = None
        try:
            self.shape = read_folder_shape(folder)
        except UnknownShapeError as error:
            self.unknown = error

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> FolderModel:
        """Read a folder. BadFileError if it is no model."""
        return cls(read_folder(path))

    def shown(self) -> Document:
        """Give the model as the document shows it."""
        shape = self.shape
        return {
            "path": self.folder.path,
            "architecture": shape.architecture[:200] if shape else None,
            "trained_window": shape.trained_window or None if shape else None,
            "weights_bytes": self.folder.weights_bytes,
        }


def folder_document(
    model: FolderModel,
    given: Mapping[str, Any],
    backend: str | None,
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    notes: Mapping[str, Why],
) -> Document:
    """Make the document. One window for each of ``parallel`` sequences (default 1); weights and caches evenly on all devices."""
    engine = _engine(backend, model)
    values = {"parallel": 1, **{name: value for name, value in given.items() if value is not None}}
    kinds: dict[str, str] = {name: str(values.pop(name)) for name in ("kv_k", "kv_v") if name in values}
    settings, ignored = settings_from(values)
    unknown: dict[str, Why] = {**notes, **ignored}
    shape = model.shape
    if shape is None:
        reason = model.unknown
        assert reason is not None
        unknown["kv"] = {
            "why": "not-offered",
            "note": f"{reason.why}; missing or impossible: {', '.join(reason.missing)}"[:4000],
        }
        return _named(blank(model.shown(), settings, "unknown", unknown), kinds)
    key, value = (bytes_per_element(engine, kinds.get(name, "auto"), shape.dtype) for name in ("kv_k", "kv_v"))
    if key is None or value is None:
        found = blank(model.shown(), settings, "refused", unknown)
        found["refused_because"] = (
            f"{engine} has no cache type {kinds.get('kv_k') if key is None else kinds.get('kv_v')}"
        )
        return _named(found, kinds)
    return _named(_pool(model, shape, engine, settings, (key, value), devices, host, unknown), kinds)


def _pool(
    model: FolderModel,
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
        "note": f"{engine} measures its own work space at start; read it from its log",
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
        need = (model.folder.weights_bytes + kv + state) // share
        free = device.free_bytes
        found["devices"].append(
            {
                "id": device.id,
                "name": device.name,
                "free_bytes": free,
                "margin_bytes": device.margin_bytes,
                "weights_bytes": model.folder.weights_bytes // share,
                "kv_bytes": kv // share,
                "state_bytes": state // share,
                "compute_bytes": 0,
                "other_bytes": 0,
                "need_bytes": need,
                "fits": None if free is None else need + device.margin_bytes <= free,
                "memory": "unified" if device.unified else "dedicated" if devices else "host",
            }
        )
    if all(device.free_bytes is not None for device in holders):
        # Shares are equal, so the device with the least room decides.
        least = min(holders, key=lambda device: (device.free_bytes or 0) - device.margin_bytes)
        room = ((least.free_bytes or 0) - least.margin_bytes) * len(holders) - model.folder.weights_bytes - state
        tokens = longest_pool(shape, engine, room // settings.parallel, *sizes) if room > 0 else 0
        limit = "trained window" if tokens and tokens == shape.trained_window else least.id
        found["longest_window"] = {"tokens": tokens, "limited_by": limit}
    return found


def _parts(shape: FolderShape, engine: str, tokens: int, sizes: tuple[float, float], sequences: int) -> list[Document]:
    step = BLOCK[engine]
    cells = -(-tokens // step) * step
    rows = [
        ("base", cells, shape.full_layers, shape.full_row),
        ("swa", min(cells, -(-shape.window // step) * step), shape.window_layers, shape.window_row),
    ]
    parts: list[Document] = []
    for name, count, layers, row in rows:
        if layers:
            half = row * count * layers / 2 * sequences
            parts.append(
                {
                    "name": name,
                    "cells": count,
                    "streams": sequences,
                    "layers": [],
                    "k_bytes": int(half * sizes[0] + 0.5),
                    "v_bytes": int(half * sizes[1] + 0.5),
                }
            )
    return parts


def _named(found: Document, kinds: Mapping[str, str]) -> Document:
    found["settings"].update({name: kinds.get(name, "auto") for name in ("kv_k", "kv_v")})
    return found


def _engine(backend: str | None, model: FolderModel) -> str:
    if backend is None:
        return guess_engine(model.folder)
    name = _NAMES.get(backend.lower(), backend.lower())
    if name not in ENGINES:
        raise InputError(f"a safetensors folder runs on {', '.join(ENGINES)}, not on {backend[:40]!r}")
    return name


def bad_folder_line(model: FolderModel, line: int, why: str) -> Document:
    """Make the document for a line of settings that could not be read."""
    return blank(model.shown(), None, "unknown", {"settings": {"why": "failed", "note": f"line {line}: {why}"[:2000]}})
