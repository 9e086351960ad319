"""The predictions that a session uses: from evidence (configuration, devices) to a memory budget."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from probes.evidence.errors import InputError, RefusedSettingError
from probes.evidence.machine import BufferTruth, MemoryBudget
from probes.evidence.sizes import parse_length

from .context import DEFAULT_PARALLEL, ContextSettings, Memory, Refused, memory_of
from .planner import DEFAULT_MARGIN, GivenDevice, Model, Options, Planner
from .shape import UnknownShapeError

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from probes.evidence.machine import Device
    from probes.evidence.subject import Configuration


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


def given_devices(devices: Sequence[Device], margin_bytes: int | None = None) -> tuple[GivenDevice, ...]:
    """Take devices as drivers tell them."""
    margin = DEFAULT_MARGIN if margin_bytes is None else margin_bytes
    return tuple(
        GivenDevice(device.id, device.name, device.free_bytes, margin, unified=device.memory == "unified")
        for device in devices
    )


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
    given = given_devices(devices, margin_bytes)
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
    planner = Planner(found, settings, given, host, options)
    if planner.refused is not None:
        raise RefusedSettingError(str(planner.refused))
    at = planner.at(settings.ctx)
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
    longest = planner.longest()
    return MemoryBudget(
        basis="model",
        ctx=at.memory.ctx,
        buffers=tuple(buffers),
        longest_window=None if longest is None else longest.tokens,
        limited_by=None if longest is None else longest.limited_by,
        error_bytes=planner.error_bytes(at.compute_bytes),
    )
