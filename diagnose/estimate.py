"""The ``estimate`` document's records: what a model, a window and a cache type need on each device, and the longest window that fits.

The document is worked out in :mod:`diagnose.estimating`, without these classes, because ``estimate`` answers in a few starts of the
interpreter and a thousand settings in a second; here it is described, for the schema and for those who want it typed.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from probes.evidence.records import Record, Text, Unavailable

from .estimating import SCHEMA_VERSION, document


class EstimateModel(Record):
    """Which model was read."""

    path: Text
    architecture: Text | None = None
    trained_window: int | None = None
    weights_bytes: int | None = None


class EstimateSettings(Record):
    """What was asked. ``ctx`` 0 is the trained window; ``flash_attn`` auto, on or off."""

    ctx: int | None = None
    kv_k: Text | None = None
    kv_v: Text | None = None
    parallel: int | None = None
    kv_unified: bool | None = None
    batch: int | None = None
    ubatch: int | None = None
    swa_full: bool | None = None
    flash_attn: Text | None = None
    context_type: Text | None = None
    n_rs_seq: int | None = None


class EstimateCache(Record):
    """One cache: ``cells`` of one stream, bytes of all streams, and the indices of its layers."""

    name: str
    cells: int
    streams: int
    layers: tuple[int, ...]
    k_bytes: int
    v_bytes: int


class EstimateKv(Record):
    """All caches. ``range_bytes``: where only a range can be given."""

    bytes: int | None = None
    parts: tuple[EstimateCache, ...] = ()
    range_bytes: tuple[int, int] | None = None


class EstimateDevice(Record):
    """One device's sum. ``memory``: dedicated, unified (shares the host's memory) or host."""

    id: str
    name: Text
    free_bytes: int | None
    margin_bytes: int
    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    compute_bytes: int
    other_bytes: int
    need_bytes: int
    fits: bool | None
    memory: Literal["dedicated", "unified", "host"] = "dedicated"


class EstimateLongest(Record):
    """The longest window of one slot that fits; ``limited_by`` a device's id, or ``trained window``."""

    tokens: int | None = None
    limited_by: Text | None = None


class EstimateLever(Record):
    """One lever on top of those before it. ``tensor_split``: the exact one, for the lever ``split``."""

    lever: str
    tokens: int
    gain: int
    weights_bytes: int
    context_bytes: int
    costs_quality: bool
    tensor_split: tuple[int, ...] | None = None


class EstimateCacheType(Record):
    """The longest window with one cache type for keys and values, all else as asked."""

    kv: str
    tokens: int | None = None
    limited_by: Text | None = None
    refused_because: Text | None = None


class EstimateBasis(Record):
    """Where the work space is from, and by how many bytes it may be off."""

    compute: Literal["log", "planner", "model"] = "model"
    error: int | None = None
    engine: Text = "llama.cpp"
    """Whose arithmetic it is."""


class Estimate(Record):
    """The whole document."""

    schema_version: int = SCHEMA_VERSION
    model: EstimateModel
    settings: EstimateSettings
    result: Literal["ok", "refused", "unknown"]
    refused_because: Text | None = None
    ctx_in_force: int | None = None
    ctx_per_slot: int | None = None
    kv: EstimateKv = EstimateKv()
    state_bytes: int | None = None
    compute_bytes: int | None = None
    output_bytes: int | None = None
    draft_bytes: int | None = None
    projector_bytes: int | None = None
    devices: tuple[EstimateDevice, ...] = ()
    longest_window: EstimateLongest = EstimateLongest()
    levers: tuple[EstimateLever, ...] = ()
    by_cache_type: tuple[EstimateCacheType, ...] = ()
    even_split: tuple[int, ...] | None = None
    basis: EstimateBasis = EstimateBasis()
    unknown: dict[str, Unavailable] = Field(default_factory=dict)


def estimate(*arguments: Any, **options: Any) -> Estimate:
    """Give the document as a record. Takes what :func:`diagnose.estimating.document` takes."""
    return Estimate.model_validate(document(*arguments, **options))
