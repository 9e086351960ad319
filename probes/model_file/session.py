"""The predictions that a session uses: from evidence (configuration, devices) to a memory budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probes.evidence.errors import InputError, RefusedSettingError
from probes.evidence.machine import (
    BudgetCacheType,
    BudgetDevice,
    BudgetLever,
    BudgetSteps,
    BufferTruth,
    MemoryBudget,
)
from probes.evidence.sizes import parse_length

from .context import CACHE_TYPES, DEFAULT_PARALLEL, ContextSettings, Memory, Refused, memory_of
from .planner import DEFAULT_MARGIN, Budget, GivenDevice, Model, Options, Planner
from .shape import UnknownShapeError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence

    from probes.evidence.machine import Device
    from probes.evidence.subject import Configuration


_LEAST_UBATCH = 32


def _read(model: str | os.PathLike[str] | Model) -> Model:
    found = model if isinstance(model, Model) else Model.read(model)
    if found.unknown is not None:
        raise UnknownShapeError(found.unknown.why, found.unknown.missing)
    return found


def memory_for(model: str | os.PathLike[str] | Model, settings: ContextSettings) -> Memory | Refused:
    """See :func:`probes.model_file.memory`."""
    planned = _read(model).plan(settings)
    return planned if isinstance(planned, Refused) else memory_of(planned, settings)


def settings_of(configuration: Configuration) -> ContextSettings:
    """Read llama.cpp's context settings from a configuration; what it does not have is as the server has it by itself.

    A value that cannot be read is passed over: a prediction from what is known is better than none.
    """
    parallel = _number(configuration, "parallel")
    unified = _value(configuration, "kv_unified")
    slots = parallel if parallel is not None and parallel > 0 else DEFAULT_PARALLEL
    defaults = ContextSettings()
    return ContextSettings(
        ctx=_number(configuration, "ctx") or 0,
        kv_k=str(_value(configuration, "kv_type_k") or defaults.kv_k),
        kv_v=str(_value(configuration, "kv_type_v") or defaults.kv_v),
        parallel=slots,
        kv_unified=unified if isinstance(unified, bool) else parallel is None or parallel <= 0,
        batch=_number(configuration, "batch") or defaults.batch,
        ubatch=_number(configuration, "ubatch") or defaults.ubatch,
        swa_full=_value(configuration, "swa_full") is True,
        flash_attn=_flash(_value(configuration, "flash_attention")),
    )


def options_of(configuration: Configuration, devices: int) -> Options:
    """Read placement from a configuration. Overrides and a draft model are not in it by size, so they are left out."""
    split = _value(configuration, "tensor_split")
    shares: tuple[float, ...] = ()
    if isinstance(split, str):
        split = split.replace("/", ",").split(",")
    if isinstance(split, list | tuple) and 0 < len(split) <= devices:
        try:
            shares = tuple(float(share) for share in split)
        except (TypeError, ValueError):
            shares = ()
        if any(not 0 <= share < 1e9 for share in shares) or not any(shares):
            shares = ()
    return Options(
        gpu_layers=_number(configuration, "gpu_layers"),
        tensor_split=(*shares, *[0.0] * (devices - len(shares))) if shares else (),
        kv_offload=_value(configuration, "kv_offload") is not False,
        draft="mtp" if "mtp" in str(_value(configuration, "speculation") or "") else "",
    )


def _value(configuration: Configuration, name: str) -> Any:
    setting = configuration.settings.get(name)
    return None if setting is None else setting.value


def _number(configuration: Configuration, name: str) -> int | None:
    value = _value(configuration, name)
    if isinstance(value, bool) or value is None:
        return None
    try:
        return parse_length(value) if isinstance(value, str | int | float) else None
    except InputError:
        return None


def _flash(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    text = str(value).lower()
    return {"on": "on", "1": "on", "true": "on", "off": "off", "0": "off", "false": "off"}.get(text, "auto")


def as_usable(device: Device, ram_available_bytes: int | None, ram_bytes: int | None = None) -> Device:
    """Give a device with what can really be had in it as its sizes. Dedicated memory is as its driver tells.

    Apple's is below the working-set limit, which the driver tells. A processor's own graphics (AMD) have what was set apart for them at start and, through
    GTT, the RAM as far as it is free; boards and chips whose driver tells no size have the RAM.
    """
    if device.memory != "unified" or device.working_set_limit_bytes is not None or device.vendor == "apple":
        return device
    if device.shared_total_bytes is None and device.free_bytes is not None and device.carved_bytes is None:
        return device
    apart = (device.free_bytes or 0) if device.carved_bytes is not None else 0
    reach = ram_available_bytes
    whole = ram_bytes
    if device.shared_total_bytes is not None:
        left = max(0, device.shared_total_bytes - (device.shared_used_bytes or 0))
        reach = left if reach is None else min(left, reach)
        whole = device.shared_total_bytes
    free = None if reach is None else apart + reach
    total = None if whole is None else (device.carved_bytes or 0) + whole
    return device.model_copy(update={"free_bytes": free, "total_bytes": total, "carved_bytes": apart})


def given_device(device: Device, margin_bytes: int, *, whole: bool = False) -> GivenDevice:
    """Take a device (see :func:`as_usable`) to plan for: with what is free, or with the ``whole`` of it where that is told."""
    size = device.total_bytes if whole and device.total_bytes is not None else device.free_bytes
    unified = device.memory == "unified"
    own = (device.carved_bytes or 0) if unified else 0
    return GivenDevice(device.id, device.name, size, margin_bytes, unified=unified, own_bytes=own)


def given_devices(
    devices: Sequence[Device], margin_bytes: int | None = None, ram_available_bytes: int | None = None
) -> tuple[GivenDevice, ...]:
    """Take devices as drivers tell them."""
    margin = DEFAULT_MARGIN if margin_bytes is None else margin_bytes
    return tuple(given_device(as_usable(device, ram_available_bytes), margin) for device in devices)


def budget_for(
    model: str | os.PathLike[str] | Model,
    configuration: Configuration | ContextSettings,
    devices: Sequence[Device],
    ram_available_bytes: int | None = None,
    margin_bytes: int | None = None,
    options: Options | None = None,
) -> MemoryBudget:
    """See :func:`probes.model_file.planner`."""
    found = _read(model)
    given = given_devices(devices, margin_bytes, ram_available_bytes)
    if isinstance(configuration, ContextSettings):
        settings = configuration
        options = options or Options()
    else:
        settings = settings_of(configuration)
        options = options or options_of(configuration, len(given))
    assert found.shape is not None
    if options.draft == "mtp" and not found.shape.draft_layers:
        options = replace(options, draft="")
    host = GivenDevice(
        "host", "host memory", ram_available_bytes, DEFAULT_MARGIN if margin_bytes is None else margin_bytes
    )
    return budget_of(found, settings, given, host, options)


def budget_of(
    model: Model,
    settings: ContextSettings,
    devices: tuple[GivenDevice, ...],
    host: GivenDevice,
    options: Options,
    draft: Model | None = None,
    *,
    more_error: int = 0,
) -> MemoryBudget:
    """Make the budget: buffers at the window asked, the longest that fits, the levers, and what one change alone would do.

    ``more_error``: by how many bytes what is free may be off, beside the work space. The model's dimensions must be known.
    RefusedSettingError where llama.cpp would not start.
    """
    planner = Planner(model, settings, devices, host, options, draft)
    if planner.refused is not None:
        raise RefusedSettingError(str(planner.refused))
    at = planner.at(settings.ctx)
    longest = planner.longest()
    error = planner.error_bytes(at) + more_error
    # what one change does is said for the window that it leads to, and so is its error
    near = planner.error_bytes(longest.budget) + more_error if longest and longest.budget else error
    return MemoryBudget(
        basis="model",
        ctx=at.memory.ctx,
        buffers=tuple(_buffers(at)),
        longest_window=None if longest is None else longest.tokens,
        limited_by=None if longest is None else longest.limited_by,
        error_bytes=error,
        devices=tuple(
            BudgetDevice(
                id=need.device.id,
                need_bytes=need.need,
                free_bytes=None if need.device.free_bytes is None else max(0, need.device.free_bytes),
                margin_bytes=need.device.margin_bytes,
                fits=need.fits,
            )
            for need in at.all()
        ),
        levers=()
        if longest is None
        else tuple(
            BudgetLever(
                lever=lever.lever,
                tokens=lever.tokens,
                gain=lever.gain,
                weights_bytes=lever.weights_bytes,
                context_bytes=lever.context_bytes,
                costs_quality=lever.costs_quality,
                tensor_split=lever.tensor_split,
            )
            for lever in planner.levers()
        ),
        by_cache_type=() if longest is None else tuple(_cache_types(planner)),
        steps=None if longest is None else _steps(planner, settings.ctx, near),
        kv_least_bytes=_kv_least(planner, settings),
    )


def _buffers(at: Budget) -> list[BufferTruth]:
    buffers = []
    for need in at.all():
        for component, size in (
            ("weights", need.weights),
            ("kv", need.kv),
            ("state", need.state),
            ("compute", need.compute),
        ):
            if size:
                buffers.append(BufferTruth(device=need.device.id, component=component, size_bytes=size))
    if at.memory.output_bytes:
        buffers.append(BufferTruth(device="host", component="output", size_bytes=at.memory.output_bytes))
    if at.draft_bytes:
        buffers.append(
            BufferTruth(
                device=at.devices[-1].device.id if at.devices else "host", component="draft", size_bytes=at.draft_bytes
            )
        )
    if at.projector_bytes:
        needs = [need for need in at.all() if need.other >= at.projector_bytes]
        device = needs[0].device.id if needs else "host"
        buffers.append(BufferTruth(device=device, component="projector", size_bytes=at.projector_bytes))
    return buffers


def _kv_least(planner: Planner, settings: ContextSettings) -> int | None:
    planned = planner.model.plan(replace(planner.settings, swa_full=False))
    if isinstance(planned, Refused):
        return None
    memory = memory_of(planned, replace(planner.settings, ctx=settings.ctx, swa_full=False))
    return memory.kv_bytes + memory.state_bytes


def _cache_types(planner: Planner) -> Iterator[BudgetCacheType]:
    for kind in CACHE_TYPES.values():
        if kind.fork:
            continue
        other = _with(planner, replace(planner.settings, kv_k=kind.name, kv_v=kind.name))
        if other.refused is not None:
            yield BudgetCacheType(kv=kind.name, refused_because=str(other.refused))
        else:
            longest = other.longest()
            yield BudgetCacheType(kv=kind.name, tokens=None if longest is None else longest.tokens)


def _with(planner: Planner, settings: ContextSettings, options: Options | None = None, more_margin: int = 0) -> Planner:
    """Give the planner with other settings or options, and with so much more kept free on each device."""
    devices = tuple(replace(one, margin_bytes=one.margin_bytes + more_margin) for one in planner.devices)
    host = replace(planner.host, margin_bytes=planner.host.margin_bytes + more_margin)
    return Planner(
        planner.model, settings, devices, host, options or planner.options, planner.draft, planner.corrections
    )


def _whole_ctx(planner: Planner) -> int | None:
    """Give the longest ``--ctx-size`` that fits, for all slots together."""
    longest = planner.longest() if planner.refused is None else None
    slots = 1 if planner.settings.kv_unified else max(1, planner.settings.parallel)
    return None if longest is None else longest.tokens * slots


def _steps(planner: Planner, ctx: int, error: int) -> BudgetSteps:
    """Say what one change alone would do, with room for the prediction's error."""
    settings = planner.settings
    safe = _with(planner, settings, more_margin=error)
    keys = None
    if CACHE_TYPES[settings.kv_k].size * 32 > 34 * CACHE_TYPES[settings.kv_k].block:
        keys = _whole_ctx(_with(planner, replace(settings, kv_k="q8_0"), more_margin=error))
    ubatch = None
    size = 1 << max(0, (settings.ubatch - 1).bit_length() - 1)
    while ubatch is None and size >= _LEAST_UBATCH:
        if _with(planner, replace(settings, ubatch=size), more_margin=error).fits(ctx):
            ubatch = size
        size //= 2
    return BudgetSteps(
        ctx=_whole_ctx(safe),
        ctx_with_keys_8bit=keys,
        ubatch=ubatch,
        gpu_layers=_gpu_layers(safe, ctx),
        tensor_split=() if safe.fits(ctx) else safe.best_split(ctx or planner.shape.trained_window or None) or (),
    )


def _gpu_layers(safe: Planner, ctx: int) -> int | None:
    """Find the most layers on devices with which this window fits; None without devices, where all fit, or where none do."""
    if not safe.devices or safe.fits(ctx) is not False:
        return None
    low, high = -1, safe.shape.layers_all + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _with(safe, safe.settings, replace(safe.options, gpu_layers=middle)).fits(ctx) is not False:
            low = middle
        else:
            high = middle
    return low if low >= 0 else None
