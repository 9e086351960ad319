"""Work out the ``estimate`` document as plain data: see :mod:`diagnose.estimate` for its records and the contract for its meaning.

Nothing heavy is imported here: a document for each of a thousand settings must cost milliseconds, not the interpreter's patience.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from probes.evidence.errors import CouldNotLookError, InputError, NotOfferedError
from probes.evidence.sizes import parse_length
from probes.evidence.words import words
from probes.model_file.context import CACHE_TYPES, DEFAULT_PARALLEL, ContextSettings, Refused, types_by_engine
from probes.model_file.planner import LEVERS, Budget, DeviceNeed, GivenDevice, Model, Options, Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from probes.model_file.planner import Longest

SCHEMA_VERSION = 1
_MOST_KEPT = 1024
Document = dict[str, Any]
Why = dict[str, str]
"""``why`` (not-asked, not-run, failed, not-offered) and ``note``."""
SETTINGS = (
    "ctx", "kv_k", "kv_v", "parallel", "kv_unified", "batch", "ubatch", "swa_full", "flash_attn", "context_type", "n_rs_seq",
)  # fmt: skip


def _why(why: str, note: str) -> Why:
    return {"why": why, "note": note}


ALIASES = {
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


def settings_from(given: Mapping[str, Any]) -> tuple[ContextSettings, dict[str, Why]]:
    """Read settings by their contract names; what is absent is as llama-server has it. InputError for a value that cannot be read.

    Also gives what was passed over, by path.
    """
    values: dict[str, Any] = {}
    ignored: dict[str, Why] = {}
    for key, value in given.items():
        name = ALIASES.get(key, key)
        if name not in SETTINGS:
            ignored[f"settings.{key[:64]}"] = _why("not-offered", "no setting of this name; it was left out")
        elif value is not None:
            values[name] = value
    if left_to_the_engine(values.get("parallel")):
        values.pop("parallel")
    parallel = _count(values, "parallel", DEFAULT_PARALLEL)
    unified = _flag(values, "kv_unified", default="parallel" not in values)
    batch = _count(values, "batch", 2048)
    ubatch = _count(values, "ubatch", 512)
    if parallel < 1:
        raise InputError("parallel is at least 1: how many requests are worked on at a time")
    if batch == 0 and ubatch == 0:
        raise InputError("batch and ubatch are not both 0")
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


def left_to_the_engine(parallel: object) -> bool:
    """Say whether a number of slots is llama-server's way to write "as if none were asked for"."""
    return not isinstance(parallel, bool) and str(parallel).strip().lower() in {"auto", "-1"}


def _count(values: Mapping[str, Any], name: str, default: int) -> int:
    value = values.get(name, default)
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            count = parse_length(value)
        except InputError:
            if name == "ctx":
                raise
        else:
            if count <= _MOST[name]:
                return count
    raise _no_count(name, _cut(value))


def _no_count(name: str, given: str) -> InputError:
    most = _MOST[name]
    if name == "ctx":
        return InputError(
            f"ctx is a window of at most {most} tokens, such as 8192 or 128K, and 0 the trained one; not {given}"
        )
    if name == "parallel":
        return InputError(f"parallel is a number of slots from 1 to {most}, or auto; not {given}")
    if name == "n_rs_seq":
        return InputError(f"n_rs_seq is a number of states to go back to, from 0 to {most}; not {given}")
    return InputError(f"{name} is a number of tokens worked on at a time, from 0 to {most}; not {given}")


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:39] + "…"


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
    text = {"1": "on", "0": "off", "-1": "auto", "true": "on", "false": "off", "enabled": "on", "disabled": "off"}.get(
        text, text
    )
    if text not in {"auto", "on", "off"}:
        raise InputError("flash_attn must be on, off or auto")
    return text


def _choice(values: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    value = values.get(name, known[0])
    if value not in known:
        raise InputError(f"{name} must be one of {', '.join(known)}")
    return str(value)


def shown_settings(settings: ContextSettings | None) -> Document:
    """Give the settings as the document shows them; all null where they could not be read."""
    if settings is None:
        return dict.fromkeys(SETTINGS)
    return {
        "ctx": settings.ctx,
        "kv_k": settings.kv_k,
        "kv_v": settings.kv_v,
        "parallel": settings.parallel,
        "kv_unified": settings.kv_unified,
        "batch": settings.batch,
        "ubatch": settings.ubatch,
        "swa_full": settings.swa_full,
        "flash_attn": settings.flash_attn,
        "context_type": settings.kind,
        "n_rs_seq": settings.rollback,
    }


def shown_model(model: Model) -> Document:
    """Give the model as the document shows it."""
    architecture = model.header.architecture
    trained = model.header.keys.get(f"{architecture}.context_length")
    return {
        "path": model.header.path,
        "architecture": None if architecture is None else architecture[:200],
        "trained_window": trained
        if isinstance(trained, int) and not isinstance(trained, bool) and trained >= 0
        else None,
        "weights_bytes": model.weights_bytes,
    }


def blank(model: Document, settings: ContextSettings | None, result: str, unknown: Mapping[str, Why]) -> Document:
    """Give a document in which nothing is known yet."""
    return {
        "schema_version": SCHEMA_VERSION,
        "model": model,
        "settings": shown_settings(settings),
        "result": result,
        "refused_because": None,
        "ctx_in_force": None,
        "ctx_per_slot": None,
        "kv": {"bytes": None, "parts": [], "range_bytes": None},
        "state_bytes": None,
        "compute_bytes": None,
        "output_bytes": None,
        "draft_bytes": None,
        "projector_bytes": None,
        "devices": [],
        "longest_window": {"tokens": None, "limited_by": None},
        "levers": [],
        "by_cache_type": [],
        "even_split": None,
        "basis": {"compute": "model", "error": None, "engine": "llama.cpp"},
        "unknown": dict(unknown),
    }


def document(
    model: Model,
    settings: ContextSettings,
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    options: Options | None = None,
    *,
    draft: Model | None = None,
    order: tuple[str, ...] = LEVERS,
    compare: bool = True,
    notes: Mapping[str, Why] | None = None,
    own_planner: str | None = None,
) -> Document:
    """Make the document. ``compare`` False leaves out levers, even split and the comparison of cache types.

    ``own_planner``: a ``llama-fit-params`` of this machine, whose work space is taken where it can be.
    """
    options = options or Options()
    unknown = dict(notes or {})
    for path, file in (("model.file", model), ("draft.file", draft)):
        if file is not None and file.missing_bytes:
            unknown[path] = unfinished(file.missing_bytes, file.weights_bytes)
    if model.shape is None:
        return _unknown(model, settings, unknown)
    if not model.covered:
        unknown["model.weights_bytes"] = uncovered(model.layers_held, model.shape.layers)
    for name in (settings.kv_k, settings.kv_v):
        if name not in CACHE_TYPES:
            said = Refused(f"unsupported cache type: {name}", f"use one of {types_by_engine()}")
            return _refused(model, settings, said, unknown)
        if CACHE_TYPES[name].fork:
            unknown[f"settings.{name}"] = _why(
                "not-offered", f"only {CACHE_TYPES[name].fork} has the cache type {name}"
            )
    planner = Planner(model, settings, devices, host, options, draft)
    if planner.refused is not None:
        return _refused(model, settings, planner.refused, unknown)
    if own_planner is not None:
        planner = _with_own(planner, own_planner, unknown)
    budget = planner.at(settings.ctx)
    _note(model, planner, budget, unknown)
    longest = planner.longest() if model.covered else None
    compare = compare and longest is not None
    memory = budget.memory
    found = blank(shown_model(model), settings, "ok", unknown)
    found["ctx_in_force"] = memory.ctx
    found["ctx_per_slot"] = memory.ctx_per_slot
    found["kv"] = {
        "bytes": memory.kv_bytes,
        "parts": [
            {
                "name": cache.name,
                "cells": cache.cells,
                "streams": cache.streams,
                "layers": list(cache.layers),
                "k_bytes": cache.k_bytes,
                "v_bytes": cache.v_bytes,
            }
            for cache in memory.caches
        ],
        "range_bytes": None,
    }
    found["state_bytes"] = memory.state_bytes
    found["compute_bytes"] = budget.compute_bytes
    found["output_bytes"] = memory.output_bytes
    found["draft_bytes"] = budget.draft_bytes
    found["projector_bytes"] = budget.projector_bytes
    found["devices"] = [_device(need, host=need is budget.host) for need in budget.all()]
    if not model.covered:
        for device in found["devices"]:
            device["fits"] = None
    found["longest_window"] = _longest(longest)
    if compare:
        # Neither depends on the window, so many settings in a row share them.
        found["levers"] = _once(planner, "levers", order, lambda: _levers(planner, order))
        found["by_cache_type"] = _once(planner, "types", (), lambda: _by_cache_type(planner))
        split = planner.best_split(settings.ctx or model.shape.trained_window or None)
        found["even_split"] = None if split is None else list(split)
    found["basis"]["compute"] = "planner" if planner.corrections else "model"
    found["basis"]["error"] = planner.error_bytes(budget)
    return found


def _with_own(planner: Planner, program: str, unknown: dict[str, Why]) -> Planner:
    """Take the work space from llama.cpp's own planner; where it cannot be had, say why and leave the model's."""
    from probes.model_file.own_planner import PROGRAM, ask_planner  # noqa: PLC0415 - starts a program: only when asked to

    ctx = planner.settings.ctx
    try:
        lines = ask_planner(program, planner.model.header.path, planner.settings, planner.options)
    except NotOfferedError as error:
        unknown["basis.compute"] = _why("not-offered", str(error))
        return planner
    except CouldNotLookError as error:
        unknown["basis.compute"] = _why("failed", str(error))
        return planner
    if len(lines) != len(planner.devices) + 1:
        note = f"{PROGRAM} sees {len(lines) - 1} devices, and {len(planner.devices)} are planned for"
        unknown["basis.compute"] = _why("not-offered", note)
        return planner
    corrected = planner.corrected(ctx, [line.compute for line in lines])
    held = sum(need.kv + need.state for need in corrected.at(ctx).all())
    told = sum(line.context for line in lines)
    if not planner.settings.kv_unified and abs(held - told) > (len(lines) + 1) * 1024**2:
        note = f"{PROGRAM} says {told} bytes of caches and states, the arithmetic here {held}: is it another version?"
        unknown["basis.kv"] = _why("failed", note)
    return corrected


def _device(need: DeviceNeed, *, host: bool) -> Document:
    device = need.device
    return {
        "id": device.id,
        "name": device.name,
        "free_bytes": device.free_bytes,
        "margin_bytes": device.margin_bytes,
        "weights_bytes": need.weights,
        "kv_bytes": need.kv,
        "state_bytes": need.state,
        "compute_bytes": need.compute,
        "other_bytes": need.other,
        "need_bytes": need.need,
        "fits": need.fits,
        "memory": "host" if host else "unified" if device.unified else "dedicated",
    }


def _longest(longest: Longest | None) -> Document:
    if longest is None:
        return {"tokens": None, "limited_by": None}
    return {"tokens": longest.tokens, "limited_by": longest.limited_by}


def _levers(planner: Planner, order: tuple[str, ...]) -> list[Document]:
    return [
        {
            "lever": lever.lever,
            "tokens": lever.tokens,
            "gain": lever.gain,
            "weights_bytes": lever.weights_bytes,
            "context_bytes": lever.context_bytes,
            "costs_quality": lever.costs_quality,
            "tensor_split": list(lever.tensor_split) or None,
        }
        for lever in planner.levers(order)
    ]


def _once(planner: Planner, what: str, order: tuple[str, ...], work: Callable[[], list[Document]]) -> list[Document]:
    settings = replace(planner.settings, ctx=0)
    if what == "types":
        settings = replace(settings, kv_k="f16", kv_v="f16")
    key = (
        what,
        order,
        settings,
        planner.devices,
        planner.host,
        planner.options,
        id(planner.draft),
        planner.corrections,
    )
    known = planner.model.answers
    if key not in known:
        if len(known) >= _MOST_KEPT:
            known.clear()
        known[key] = work()
    return cast("list[Document]", known[key])


def _by_cache_type(planner: Planner) -> list[Document]:
    rows: list[Document] = []
    for kind in CACHE_TYPES.values():
        if kind.fork:
            continue
        settings = replace(planner.settings, kv_k=kind.name, kv_v=kind.name)
        other = Planner(
            planner.model, settings, planner.devices, planner.host, planner.options, planner.draft, planner.corrections
        )
        row: Document = {"kv": kind.name, "tokens": None, "limited_by": None, "refused_because": None}
        if other.refused is not None:
            row["refused_because"] = str(other.refused)
        else:
            row.update(_longest(other.longest()))
        rows.append(row)
    return rows


def _refused(model: Model, settings: ContextSettings, refused: Refused, unknown: dict[str, Why]) -> Document:
    unknown["kv"] = _why("not-offered", "the engine does not start with these settings")
    found = blank(shown_model(model), settings, "refused", unknown)
    found["refused_because"] = str(refused)
    return found


def _unknown(model: Model, settings: ContextSettings, unknown: dict[str, Why]) -> Document:
    """Say that the architecture or a deciding key is not known, which, and the range that can be given."""
    reason = model.unknown
    assert reason is not None
    missing = f"; missing or impossible: {', '.join(reason.missing)}" if reason.missing else ""
    bounds = plain_range(model, settings)
    note = f"{reason.why}{missing}"
    if bounds is not None:
        note += f"; if every layer keeps plain keys and values the caches take {bounds[1]} bytes, and with any other mechanism less"
    unknown["kv"] = _why("not-offered", note[:4000])
    found = blank(shown_model(model), settings, "unknown", unknown)
    found["kv"]["range_bytes"] = None if bounds is None else list(bounds)
    return found


def uncovered(held: int, layers: int) -> Why:
    """Say that the files lack layers, so that the sum of their weights is not the model's."""
    return _why(
        "failed",
        words(
            "the files hold tensors of {held} of the {layers} layers that the model should have, so nothing is said about fitting: "
            "download the model again, or give the file or folder that holds all of it",
            held=held,
            layers=layers,
        ).english,
    )


def unfinished(missing: int, weights: int) -> Why:
    """Say that a file is not all there; what it needs is known from its header all the same."""
    share = max(1, round(100 * min(1.0, missing / weights))) if weights else 100
    return _why(
        "failed",
        words(
            "{missing} bytes of tensor data ({share} %) are missing at the end of the file, an incomplete download? It cannot be loaded as it is; "
            "the numbers are what the whole file will need",
            missing=missing,
            share=share,
        ).english,
    )


def bad_line(model: Model, line: int, why: str) -> Document:
    """Make the document for a line of settings that could not be read."""
    return blank(shown_model(model), None, "unknown", {"settings": _why("failed", f"line {line}: {why}"[:2000])})


def _note(model: Model, planner: Planner, budget: Budget, unknown: dict[str, Why]) -> None:
    """Say what the numbers leave out."""
    odd = model.weights(drafting=True).unknown_types
    if odd:
        unknown["model.weights_bytes"] = _why(
            "not-offered",
            f"tensors of type {', '.join(map(str, sorted(odd)))} are not counted: their size is not known here",
        )
    if planner.shape.vocabulary == 0:
        unknown["output_bytes"] = _why("failed", "the header has no vocabulary, so the output buffer is counted as 0")
    if planner.options.projector_bytes and not planner.options.projector_inputs:
        unknown["projector_bytes"] = _why(
            "not-offered", "weights only: how much work space this kind of projector takes is not known here"
        )
    for need in budget.all():
        if need.device.free_bytes is None:
            unknown[f"devices.{need.device.id}.fits"] = _why("not-asked", "its free memory is not known")


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


LEVER_WORDS = {
    "baseline": words("settings as given"),
    "speculation-off": words("speculation off"),
    "projector-cpu": words("projector to the CPU"),
    "micro-batch": words("micro-batch 128"),
    "split": words("split evened out"),
    "kv-q8_0": words("8-bit cache (q8_0)"),
    "kv-q4_0": words("4-bit cache (q4_0)"),
}
"""What each lever is called."""
