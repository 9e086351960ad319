"""Answers that stand for what can also be measured or read: one line each, so that what is open is exactly what could still say it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rules.derive.numbers import GIB
from rules.engine.derivation import mirror
from rules.facts import (
    ALLOC_BYTES,
    ALLOC_FAILED,
    ALLOC_OVER_LIMIT,
    ALLOC_ROOM,
    CLIENT_WINDOW,
    CONFIG_IGNORED,
    CONTEXT_SHIFT_ON,
    CONTEXT_SHIFT_SEEN,
    CORRUPT_SEEN,
    CRASH_SEEN,
    DEVICE_COUNT,
    DEVICE_TOTAL_BYTES,
    FAILURE_ABOUT,
    FAILURE_STABLE,
    FAILURE_STAGE,
    FAILURE_TOKENS,
    FLASH_ATTENTION,
    FLASH_FORCED_OFF,
    FREE_REPORTED_ZERO,
    GPU_VENDOR,
    KV_BITS,
    KV_BYTES,
    KV_SMALLER_TYPE_SET,
    KV_TYPES_DIFFER,
    LINK_SLOW,
    MEMORY_FALLS_BACK,
    MEMORY_LIMIT_BYTES,
    OOM_KILLED,
    OS,
    OUTPUT_TOKENS,
    PASSED_TOKENS,
    POOL_FULL_SEEN,
    PROCESSED_TOKENS,
    PROJECTOR,
    RAM_BYTES,
    RECALL_HARMED_SHORT,
    RECURRENT,
    ROPE_SET,
    SENT_TOKENS,
    SMALLER_BATCH_WORKS,
    SMALLER_WINDOW_WORKS,
    SPECULATION,
    SPEED_STEP,
    TOLD_ANSWER_RESERVE,
    TOLD_CACHE_GIB,
    TOLD_CACHE_TYPE,
    TOLD_CLIENT_WINDOW,
    TOLD_ERROR_KIND,
    TOLD_ESTIMATE,
    TOLD_FAILED_WHILE,
    TOLD_FAILS_AT,
    TOLD_FLASH_ATTENTION,
    TOLD_GPU_GIB,
    TOLD_GPU_MAKER,
    TOLD_KERNEL_LOG,
    TOLD_LINK,
    TOLD_MEMORY_AFTER,
    TOLD_MICRO_BATCH,
    TOLD_MODEL_KIND,
    TOLD_OS,
    TOLD_POSITION_SCALING,
    TOLD_PROCESSED_TOKENS,
    TOLD_PROJECTOR,
    TOLD_RAM_GIB,
    TOLD_REFUSED_GIB,
    TOLD_ROOM_LEFT,
    TOLD_SAID_TRUNCATED,
    TOLD_SAME_LENGTH,
    TOLD_SENT_TOKENS,
    TOLD_SETTING_HAS_EFFECT,
    TOLD_SEVERAL_GPUS,
    TOLD_SHIFT_ON,
    TOLD_SHORT_IS_RIGHT,
    TOLD_SLOTS,
    TOLD_SLOW_SHAPE,
    TOLD_SMALLER_BATCH,
    TOLD_SMALLER_WINDOW,
    TOLD_SPECULATION,
    TOLD_TOTAL_TOKENS,
    TOLD_WEIGHTS_GIB,
    TOLD_WHAT_IS_WRONG,
    TOLD_WINDOW_ASKED,
    TOLD_WINDOW_SET,
    TOLD_WINDOW_SHOWN,
    TOLD_WINDOW_TRAINED,
    TOLD_WINDOW_WANTED,
    TOLD_WORKS_AT,
    TOTAL_TOKENS,
    TRUNCATED_SEEN,
    UBATCH,
    V_QUANTISED,
    WEIGHTS_BYTES,
    WINDOW_ASKED,
    WINDOW_IN_FORCE,
    WINDOW_SET,
    WINDOW_SLOTS,
    WINDOW_TRAINED,
    WINDOW_WANTED,
)

_MEMORY = frozenset({"gpu-memory", "one-piece", "host-memory", "memory-guard", "create-context"})


def _gib(value: float) -> int | None:
    return int(value * GIB) or None


def _whole(value: float) -> int | None:
    return int(value) if value and float(value).is_integer() else None


def _true_in(values: Collection[str]) -> Any:
    return lambda value: True if value in values else None


def _among(values: Collection[str], no: Collection[str] = ()) -> Any:
    return lambda value: True if value in values else False if not no or value in no else None


def _bits(value: str) -> float | None:
    return {"f16": 16.0, "q8": 8.5, "q5-q6": 5.5, "q4": 4.5}.get(value)


def _component(value: str) -> str | None:
    return {"weights": "weights", "cache": "kv", "buffers": "compute", "picture": "projector"}.get(value)


MIRRORS = (
    # windows and requests
    mirror(TOLD_WINDOW_ASKED, WINDOW_ASKED, _whole),
    mirror(TOLD_WINDOW_SHOWN, WINDOW_IN_FORCE, _whole),
    mirror(TOLD_WINDOW_TRAINED, WINDOW_TRAINED, _whole),
    mirror(TOLD_WINDOW_WANTED, WINDOW_WANTED, _whole),
    mirror(TOLD_SLOTS, WINDOW_SLOTS, _whole),
    mirror(TOLD_CLIENT_WINDOW, CLIENT_WINDOW, _whole),
    mirror(TOLD_ANSWER_RESERVE, OUTPUT_TOKENS, _whole),
    mirror(TOLD_WINDOW_SET, WINDOW_SET, lambda value: value != "not-set"),
    mirror(TOLD_SETTING_HAS_EFFECT, CONFIG_IGNORED, lambda value: not value),
    mirror(TOLD_SENT_TOKENS, SENT_TOKENS, _whole),
    mirror(TOLD_PROCESSED_TOKENS, PROCESSED_TOKENS, _whole),
    mirror(TOLD_TOTAL_TOKENS, TOTAL_TOKENS, _whole),
    # where it fails
    mirror(TOLD_FAILS_AT, FAILURE_TOKENS, _whole),
    mirror(TOLD_WORKS_AT, PASSED_TOKENS, _whole),
    mirror(TOLD_SAME_LENGTH, FAILURE_STABLE, _among({"exact", "about"})),
    mirror(TOLD_ERROR_KIND, FAILURE_ABOUT),
    mirror(TOLD_ERROR_KIND, CRASH_SEEN, _true_in({"internal"})),
    mirror(TOLD_FAILED_WHILE, FAILURE_STAGE),
    mirror(TOLD_KERNEL_LOG, OOM_KILLED, lambda value: True if "killed" in value else None),
    mirror(TOLD_SMALLER_WINDOW, SMALLER_WINDOW_WORKS, _among({"cures"})),
    mirror(TOLD_SMALLER_BATCH, SMALLER_BATCH_WORKS, _among({"cures", "later"})),
    # allocations
    mirror(TOLD_ERROR_KIND, ALLOC_FAILED, _true_in(_MEMORY)),
    mirror(TOLD_ERROR_KIND, ALLOC_OVER_LIMIT, _true_in({"one-piece"})),
    mirror(TOLD_REFUSED_GIB, ALLOC_BYTES, _gib),
    mirror(TOLD_ROOM_LEFT, ALLOC_ROOM, _among({"plenty", "nearly-all"})),
    mirror(TOLD_WEIGHTS_GIB, WEIGHTS_BYTES, _gib),
    mirror(TOLD_CACHE_GIB, KV_BYTES, _gib),
    mirror(TOLD_GPU_GIB, DEVICE_TOTAL_BYTES, _gib),
    mirror(TOLD_GPU_GIB, MEMORY_LIMIT_BYTES, _gib),
    mirror(TOLD_RAM_GIB, RAM_BYTES, _gib),
    mirror(TOLD_SEVERAL_GPUS, DEVICE_COUNT, lambda value: 1 if value == "one" else 2),
    mirror(TOLD_LINK, LINK_SLOW, lambda value: value == "slow"),
    mirror(TOLD_ESTIMATE, FREE_REPORTED_ZERO, lambda value: value == "zero"),
    mirror(TOLD_MEMORY_AFTER, MEMORY_FALLS_BACK, _among({"falls"})),
    # settings
    mirror(TOLD_MICRO_BATCH, UBATCH, _whole),
    mirror(TOLD_CACHE_TYPE, KV_BITS, _bits),
    mirror(TOLD_CACHE_TYPE, KV_SMALLER_TYPE_SET, _among({"q8", "q5-q6", "q4", "quantised", "mixed"}, no={"f16"})),
    mirror(TOLD_CACHE_TYPE, KV_TYPES_DIFFER, _among({"mixed"}, no={"f16", "q8", "q5-q6", "q4"})),
    mirror(TOLD_CACHE_TYPE, V_QUANTISED, _among({"q8", "q5-q6", "q4", "quantised"}, no={"f16"})),
    mirror(TOLD_FLASH_ATTENTION, FLASH_ATTENTION),
    mirror(TOLD_FLASH_ATTENTION, FLASH_FORCED_OFF, _among({"forced-off"}, no={"on", "off"})),
    mirror(TOLD_SPECULATION, SPECULATION, lambda value: value != "none"),
    mirror(TOLD_PROJECTOR, PROJECTOR),
    mirror(TOLD_SHIFT_ON, CONTEXT_SHIFT_ON),
    mirror(TOLD_MODEL_KIND, RECURRENT, lambda value: "hybrid" in value),
    mirror(TOLD_POSITION_SCALING, ROPE_SET, _among({"set"}, no={"none", "needed"})),
    # what it looks like
    mirror(TOLD_SHORT_IS_RIGHT, RECALL_HARMED_SHORT, lambda value: not value),
    mirror(TOLD_SAID_TRUNCATED, TRUNCATED_SEEN, lambda value: value or None),
    mirror(TOLD_WHAT_IS_WRONG, TRUNCATED_SEEN, lambda value: True if "all-but-end-lost" in value else None),
    mirror(TOLD_WHAT_IS_WRONG, CORRUPT_SEEN, lambda value: "nonsense" in value),
    mirror(TOLD_ERROR_KIND, CONTEXT_SHIFT_SEEN, _true_in({"shift"})),
    mirror(TOLD_ERROR_KIND, POOL_FULL_SEEN, _true_in({"no-room"})),
    mirror(TOLD_SLOW_SHAPE, SPEED_STEP, lambda value: value == "step"),
    mirror(TOLD_OS, OS, lambda value: "wsl" if value == "wsl2" else value),
    mirror(TOLD_GPU_MAKER, GPU_VENDOR, lambda value: None if value == "mixed" else (value,)),
)
"""Every answer that stands for another fact."""
