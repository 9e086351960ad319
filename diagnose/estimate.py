"""The ``estimate`` document: what a model, a window and a cache type need on each device, and the longest window that fits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from probes.evidence.errors import InputError
from probes.evidence.records import Record, Text, Unavailable
from probes.evidence.sizes import parse_length
from probes.evidence.words import words
from probes.model_file.budget import LEVERS, Budget, DeviceNeed, GivenDevice, Model, Options, Planner
from probes.model_file.context import CACHE_TYPES, DEFAULT_PARALLEL, ContextSettings, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from probes.model_file.budget import Longest

SCHEMA_VERSION = 1


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


_ALIASES = {
    "n_ctx": "ctx",
    "ctx_size": "ctx",
    "cache_type_k": "kv_k",
    "cache_type_v": "kv_v",
    "n_parallel": "parallel",
    "n_batch": "batch",
    "n_ubatch": "ubatch",
    "flash_attention": "flash_attn",
    "rollback": "n_rs_seq",
    "kind": "context_type",
}
_MOST = {"ctx": 1 << 30, "parallel": 1 << 16, "batch": 1 << 24, "ubatch": 1 << 24, "n_rs_seq": 64}
_TRUTH = {"true": True, "on": True, "1": True, "yes": True, "false": False, "off": False, "0": False, "no": False}


def settings_from(given: Mapping[str, Any]) -> tuple[ContextSettings, dict[str, Unavailable]]:
    """Read settings by their contract names; what is absent is as llama-server has it. InputError for a value that cannot be read.

    Also gives what was passed over, by path.
    """
    values: dict[str, Any] = {}
    ignored: dict[str, Unavailable] = {}
    for key, value in given.items():
        name = _ALIASES.get(key, key)
        if name not in EstimateSettings.model_fields:
            ignored[f"settings.{key[:64]}"] = Unavailable(why="not-offered", note="no setting of this name; it was left out")
        elif value is not None:
            values[name] = value
    parallel = _count(values, "parallel", DEFAULT_PARALLEL)
    unified = _flag(values, "kv_unified", default="parallel" not in values)
    batch = _count(values, "batch", 2048)
    ubatch = _count(values, "ubatch", 512)
    if parallel < 1 or (batch == 0 and ubatch == 0):
        raise InputError("parallel is at least 1, and batch and ubatch are not both 0")
    return (
        ContextSettings(
            ctx=_count(values, "ctx", 0),
            kv_k=_kind(values, "kv_k"),
            kv_v=_kind(values, "kv_v"),
            parallel=parallel,
            kv_unified=unified,
            batch=batch or ubatch,
            ubatch=ubatch,
            swa_full=_flag(values, "swa_full", default=False),
            flash_attn=_flash(values.get("flash_attn", "auto")),
            kind=_choice(values, "context_type", ("default", "mtp")),
            rollback=_count(values, "n_rs_seq", 0),
        ),
        ignored,
    )


def _count(values: Mapping[str, Any], name: str, default: int) -> int:
    value = values.get(name, default)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        count = parse_length(value)
        if count <= _MOST[name]:
            return count
    raise InputError(f"{name} must be a number from 0 to {_MOST[name]}")


def _flag(values: Mapping[str, Any], name: str, *, default: bool) -> bool:
    value = values.get(name, default)
    if isinstance(value, str):
        value = _TRUTH.get(value.lower())
    elif isinstance(value, int) and value in (0, 1):
        value = bool(value)
    if not isinstance(value, bool):
        raise InputError(f"{name} must be true or false")
    return value


def _kind(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name, "f16")
    if not isinstance(value, str) or len(value) > 64:
        raise InputError(f"{name} must be the name of a cache type, such as f16 or q8_0")
    return value if value in CACHE_TYPES else value.lower()


def _flash(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value).lower() if isinstance(value, str | int) else ""
    text = {"1": "on", "0": "off", "-1": "auto", "true": "on", "false": "off", "enabled": "on", "disabled": "off"}.get(text, text)
    if text not in {"auto", "on", "off"}:
        raise InputError("flash_attn must be on, off or auto")
    return text


def _choice(values: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = values.get(name, known[0])
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}")
    return str(value)


def shown_settings(settings: ContextSettings) -> EstimateSettings:
    """Give the settings as the document shows them."""
    return EstimateSettings(
        ctx=settings.ctx,
        kv_k=settings.kv_k,
        kv_v=settings.kv_v,
        parallel=settings.parallel,
        kv_unified=settings.kv_unified,
        batch=settings.batch,
        ubatch=settings.ubatch,
        swa_full=settings.swa_full,
        flash_attn=settings.flash_attn,
        context_type=settings.kind,
        n_rs_seq=settings.rollback,
    )


def shown_model(model: Model) -> EstimateModel:
    """Give the model as the document shows it."""
    architecture = model.header.architecture
    trained = model.header.keys.get(f"{architecture}.context_length")
    return EstimateModel(
        path=model.header.path,
        architecture=None if architecture is None else architecture[:200],
        trained_window=trained if isinstance(trained, int) and not isinstance(trained, bool) and trained >= 0 else None,
        weights_bytes=model.weights_bytes,
    )


def estimate(
    model: Model,
    settings: ContextSettings,
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    options: Options | None = None,
    *,
    draft: Model | None = None,
    order: tuple[str, ...] = LEVERS,
    compare: bool = True,
    notes: Mapping[str, Unavailable] | None = None,
) -> Estimate:
    """Make the document. ``compare`` False leaves out levers and the comparison of cache types."""
    options = options or Options()
    unknown = dict(notes or {})
    if model.shape is None:
        return _unknown(model, settings, unknown)
    if settings.kv_k not in CACHE_TYPES or settings.kv_v not in CACHE_TYPES:
        wrong = settings.kv_k if settings.kv_k not in CACHE_TYPES else settings.kv_v
        said = Refused(f"unsupported cache type: {wrong}", f"use one of {', '.join(CACHE_TYPES)}")
        return _refused(model, settings, said, unknown)
    planner = Planner(model, settings, devices, host, options, draft)
    if planner.refused is not None:
        return _refused(model, settings, planner.refused, unknown)
    for name in (settings.kv_k, settings.kv_v):
        fork = CACHE_TYPES[name].fork
        if fork:
            unknown[f"settings.{name}"] = Unavailable(why="not-offered", note=f"only {fork} has the cache type {name}")
    budget = planner.at(settings.ctx)
    _note(model, planner, budget, unknown)
    longest = planner.longest()
    levers = planner.levers(order) if compare and longest is not None else []
    memory = budget.memory
    return Estimate(
        model=shown_model(model),
        settings=shown_settings(settings),
        result="ok",
        ctx_in_force=memory.ctx,
        ctx_per_slot=memory.ctx_per_slot,
        kv=EstimateKv(
            bytes=memory.kv_bytes,
            parts=tuple(
                EstimateCache(
                    name=cache.name,
                    cells=cache.cells,
                    streams=cache.streams,
                    layers=cache.layers,
                    k_bytes=cache.k_bytes,
                    v_bytes=cache.v_bytes,
                )
                for cache in memory.caches
            ),
        ),
        state_bytes=memory.state_bytes,
        compute_bytes=budget.compute_bytes,
        output_bytes=memory.output_bytes,
        draft_bytes=budget.draft_bytes,
        projector_bytes=budget.projector_bytes,
        devices=tuple(_device(need, host=need is budget.host) for need in budget.all()),
        longest_window=_longest(longest),
        levers=tuple(
            EstimateLever(
                lever=lever.lever,
                tokens=lever.tokens,
                gain=lever.gain,
                weights_bytes=lever.weights_bytes,
                context_bytes=lever.context_bytes,
                costs_quality=lever.costs_quality,
                tensor_split=lever.tensor_split or None,
            )
            for lever in levers
        ),
        by_cache_type=_by_cache_type(planner) if compare and longest is not None else (),
        even_split=planner.best_split(settings.ctx or (model.shape.trained_window or None)) if compare else None,
        basis=EstimateBasis(error=planner.error_bytes(budget.compute_bytes)),
        unknown=unknown,
    )


def _note(model: Model, planner: Planner, budget: Budget, unknown: dict[str, Unavailable]) -> None:
    """Say what the numbers leave out."""
    missing = model.header.missing_bytes()
    if missing:
        unknown["model.file"] = Unavailable(
            why="failed", note=f"{missing} bytes of tensor data are missing at the end of the file: an incomplete download?"
        )
    odd = model.weights(drafting=True).unknown_types
    if odd:
        unknown["model.weights_bytes"] = Unavailable(
            why="not-offered", note=f"tensors of type {', '.join(map(str, sorted(odd)))} are not counted: their size is not known here"
        )
    if planner.shape.vocabulary == 0:
        unknown["output_bytes"] = Unavailable(why="failed", note="the header has no vocabulary, so the output buffer is counted as 0")
    if planner.options.projector_bytes:
        unknown["projector_bytes"] = Unavailable(
            why="not-offered", note="weights only: the projector's own work space depends on the picture and is not counted"
        )
    for need in budget.all():
        if need.device.free_bytes is None:
            unknown[f"devices.{need.device.id}.fits"] = Unavailable(why="not-asked", note="its free memory is not known")


def _device(need: DeviceNeed, *, host: bool) -> EstimateDevice:
    device = need.device
    return EstimateDevice(
        id=device.id,
        name=device.name,
        free_bytes=device.free_bytes,
        margin_bytes=device.margin_bytes,
        weights_bytes=need.weights,
        kv_bytes=need.kv,
        state_bytes=need.state,
        compute_bytes=need.compute,
        other_bytes=need.other,
        need_bytes=need.need,
        fits=need.fits,
        memory="host" if host else "unified" if device.unified else "dedicated",
    )


def _longest(longest: Longest | None) -> EstimateLongest:
    return EstimateLongest() if longest is None else EstimateLongest(tokens=longest.tokens, limited_by=longest.limited_by)


def _by_cache_type(planner: Planner) -> tuple[EstimateCacheType, ...]:
    rows = []
    for kind in CACHE_TYPES.values():
        if kind.fork:
            continue
        settings = replace(planner.settings, kv_k=kind.name, kv_v=kind.name)
        other = Planner(planner.model, settings, planner.devices, planner.host, planner.options, planner.draft)
        if other.refused is not None:
            rows.append(EstimateCacheType(kv=kind.name, refused_because=str(other.refused)))
            continue
        found = other.longest()
        if found is not None:
            rows.append(EstimateCacheType(kv=kind.name, tokens=found.tokens, limited_by=found.limited_by))
    return tuple(rows)


def _refused(
    model: Model, settings: ContextSettings, refused: Refused, unknown: dict[str, Unavailable]
) -> Estimate:
    return Estimate(
        model=shown_model(model),
        settings=shown_settings(settings),
        result="refused",
        refused_because=str(refused),
        unknown={**unknown, "kv": Unavailable(why="not-offered", note="the engine does not start with these settings")},
    )


def _unknown(model: Model, settings: ContextSettings, unknown: dict[str, Unavailable]) -> Estimate:
    """Say that the architecture or a deciding key is not known, which, and the range that can be given."""
    reason = model.unknown
    assert reason is not None
    missing = f"; missing or impossible: {', '.join(reason.missing)}" if reason.missing else ""
    bounds = plain_range(model, settings)
    note = f"{reason.why}{missing}"
    if bounds is not None:
        note += f"; if every layer keeps plain keys and values the caches take {bounds[1]} bytes, and with any other mechanism less"
    unknown["kv"] = Unavailable(why="not-offered", note=note[:4000])
    return Estimate(
        model=shown_model(model),
        settings=shown_settings(settings),
        result="unknown",
        kv=EstimateKv(range_bytes=bounds),
        unknown=unknown,
    )


def plain_range(model: Model, settings: ContextSettings) -> tuple[int, int] | None:
    """Give the range that caches of an unknown architecture can be in: nothing, up to plain attention in every layer.

    None where not even the keys for that are there.
    """
    keys = model.header.keys
    own = f"{model.header.architecture}."
    found: dict[str, int] = {}
    for name in ("block_count", "embedding_length", "context_length", "attention.head_count"):
        value = keys.get(own + name)
        if isinstance(value, tuple):
            numbers = [entry for entry in value if isinstance(entry, int)]
            value = max(numbers, default=0)
        if not isinstance(value, int) or not 0 < value < 1 << 32:
            return None
        found[name] = value
    kv_heads = keys.get(own + "attention.head_count_kv", found["attention.head_count"])
    if isinstance(kv_heads, tuple):
        kv_heads = max((entry for entry in kv_heads if isinstance(entry, int)), default=0)
    if not isinstance(kv_heads, int) or not 0 < kv_heads < 1 << 32 or found["block_count"] > 4096:
        return None
    head = found["embedding_length"] // found["attention.head_count"]
    widths = []
    for name in ("attention.key_length", "attention.value_length"):
        value = keys.get(own + name, head)
        if not isinstance(value, int) or not 0 <= value < 1 << 24:
            return None
        widths.append(value or head)
    if settings.kv_k not in CACHE_TYPES or settings.kv_v not in CACHE_TYPES:
        return None
    asked = settings.ctx or found["context_length"]
    slots = 1 if settings.kv_unified else settings.parallel
    cells = -(-asked // (256 * slots)) * 256 * slots
    per_token = sum(
        -(-kv_heads * width * CACHE_TYPES[name].size // CACHE_TYPES[name].block)
        for width, name in zip(widths, (settings.kv_k, settings.kv_v), strict=True)
    )
    return 0, cells * found["block_count"] * per_token


def bad_line(model: Model, line: int, why: str) -> Estimate:
    """Make the document for a line of settings that could not be read."""
    return Estimate(
        model=shown_model(model),
        settings=EstimateSettings(),
        result="unknown",
        unknown={"settings": Unavailable(why="failed", note=f"line {line}: {why}"[:2000])},
    )


LEVER_WORDS = {
    "baseline": words("as asked"),
    "speculation-off": words("speculation off"),
    "projector-cpu": words("projector to the CPU"),
    "micro-batch": words("micro-batch 128"),
    "split": words("split evened out"),
    "kv-q8_0": words("8-bit cache (q8_0)"),
    "kv-q4_0": words("4-bit cache (q4_0)"),
}
"""What each lever is called."""
