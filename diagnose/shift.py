"""How far a change of a memory setting moves the window at which memory is full, by the arithmetic of the model's architecture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from probes.evidence.errors import CtxDoctorError
from probes.evidence.machine import Device
from probes.evidence.subject import Configuration, Setting

LEVERS = frozenset(
    {"kv_type", "kv_type_k", "kv_type_v", "parallel", "kv_unified", "ubatch", "batch", "swa_full", "gpu_layers", "flash_attention", "kv_offload"}
)  # fmt: skip
"""Settings whose memory is worked out."""
STEP = 256
MOST = 1 << 26


def shifted(
    model: str | Path, before: Configuration, full_at: int, variable: str, value: Any, devices: Sequence[Device] = ()
) -> int | None:
    """Give the window of one slot that needs, after the change, what ``full_at`` tokens need before it. None where it cannot be worked out.

    On each device no more may be needed than before, on the host no more than before; so the room there is need not be known.
    """
    if variable not in LEVERS or full_at <= 0:
        return None
    from probes.model_file.planner import GivenDevice, Model, Planner  # noqa: PLC0415 - dear, and only for this
    from probes.model_file.session import options_of, settings_of  # noqa: PLC0415

    try:
        found = Model.read(model)
        if found.shape is None:
            return None

        def planner(configuration: Configuration) -> Planner:
            given = tuple(GivenDevice(one.id, one.name, one.free_bytes, 0) for one in devices)
            return Planner(
                found,
                settings_of(configuration),
                given,
                GivenDevice("host", "host memory", None, 0),
                options_of(configuration, len(given)),
            )

        one, two = planner(before), planner(changed(before, variable, value))
        if one.refused is not None or two.refused is not None:
            return None
        slots_before, slots_after = (
            1 if each.settings.kv_unified else max(1, each.settings.parallel) for each in (one, two)
        )
        room = [need.need for need in one.at(full_at * slots_before).all()]

        def fits(tokens: int) -> bool:
            return all(need.need <= limit for need, limit in zip(two.at(tokens * slots_after).all(), room, strict=True))

        low, high = 0, STEP
        while fits(high) and high < MOST:
            low, high = high, high * 2
        while high - low > STEP // 4:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
    except (CtxDoctorError, OSError, ValueError):
        return None
    return low or None


def changed(configuration: Configuration, variable: str, value: Any) -> Configuration:
    """Give the configuration with one variable changed; ``kv_type`` stands for both sides, or ``k/v``."""
    settings = dict(configuration.settings)
    sides = {"kv_type": ("kv_type_k", "kv_type_v")}.get(variable, (variable,))
    values = str(value).split("/") if variable == "kv_type" and "/" in str(value) else [value] * len(sides)
    for name, one in zip(sides, values, strict=False):
        if one is None or one == "not set":
            settings.pop(name, None)
        else:
            settings[name] = Setting(value=one, source="user")
    return configuration.model_copy(update={"settings": settings})
