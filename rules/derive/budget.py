"""What the model file predicts: the longest window, what overflows where, what one change would do, and how well the log agrees."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.events import LogEvent
from probes.evidence.machine import MemoryBudget, MemoryOverflow, MemoryScore
from rules.derive.numbers import ratio
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_ROOM,
    COMPONENTS,
    FULL_FIRST,
    LOGGED_OF_PREDICTED,
    LONGEST_WINDOW,
    OTHER_SPLIT_FITS,
    OVERFLOW_BYTES,
    OVERFLOW_COMPONENT,
    OVERFLOW_DEVICE,
    PLAN_OF_PREDICTED,
    SAFE_CTX,
    SAFE_CTX_KEYS_8BIT,
    SAFE_GPU_LAYERS,
    SAFE_SPLIT,
    SAFE_UBATCH,
    SERVER_NAMES_WINDOW,
    SMALLER_WINDOW_WORKS,
)

_COARSE = 1024
"""A window to ask for is a whole number of these, where it is many: free memory breathes, and the same advice should come twice."""


def _plain(window: int) -> int:
    return window if window < 8 * _COARSE else window // _COARSE * _COARSE


@derivation(
    reads=(MemoryBudget,),
    gives=(LONGEST_WINDOW, FULL_FIRST, SAFE_CTX, SAFE_CTX_KEYS_8BIT, SAFE_UBATCH, SAFE_GPU_LAYERS, SAFE_SPLIT),
)
def longest(sight: Sight) -> Iterator[Reading]:
    """Give the longest window, and what each change alone would do, by the newest prediction."""
    for evidence, budget in [one for one in sight.of(MemoryBudget) if one[1].basis == "model"][-1:]:
        yield reading(LONGEST_WINDOW, budget.longest_window, evidence)
        if budget.limited_by not in {None, "trained window"}:
            yield reading(FULL_FIRST, budget.limited_by, evidence)
        steps = budget.steps
        if steps is None:
            continue
        for fact, window in ((SAFE_CTX, steps.ctx), (SAFE_CTX_KEYS_8BIT, steps.ctx_with_keys_8bit)):
            yield reading(fact, None if window is None else _plain(window), evidence)
        yield reading(SAFE_UBATCH, steps.ubatch, evidence)
        yield reading(SAFE_GPU_LAYERS, steps.gpu_layers, evidence)
        yield reading(SAFE_SPLIT, tuple(map(str, steps.tensor_split)) or None, evidence)


@derivation(
    reads=(LogEvent,), gives=(SERVER_NAMES_WINDOW, SAFE_CTX, SAFE_CTX_KEYS_8BIT, SMALLER_WINDOW_WORKS, ALLOC_ROOM)
)
def estimated_by_server(sight: Sight) -> Iterator[Reading]:
    """Say what a server reckons that refuses a window for its cache, and names the longest that would fit (vLLM does)."""
    failed = [(evidence, event) for evidence, event in sight.of(LogEvent) if event.event == "alloc-failed"]
    named = [
        (evidence, event, event.limit)
        for evidence, event in failed
        if event.component == "kv" and event.limit and event.tokens and event.limit < event.tokens
    ]
    for evidence, _event in [] if named else failed[:1]:
        yield reading(SERVER_NAMES_WINDOW, False, evidence)
    for evidence, event, limit in named:
        yield reading(SERVER_NAMES_WINDOW, True, evidence)
        yield reading(SAFE_CTX, _plain(limit), evidence)
        if event.dialect == "vllm":
            # its eight bits hold for keys and values
            yield reading(SAFE_CTX_KEYS_8BIT, _plain(2 * limit), evidence)
        yield reading(SMALLER_WINDOW_WORKS, True, evidence)
        yield reading(ALLOC_ROOM, False, evidence)


@derivation(reads=(MemoryOverflow,), gives=(OVERFLOW_COMPONENT, OVERFLOW_DEVICE, OVERFLOW_BYTES, OTHER_SPLIT_FITS))
def overflowed(sight: Sight) -> Iterator[Reading]:
    """Give what does not fit by the prediction, on the device that lacks most, and whether another split would do."""
    short = [(evidence, one) for evidence, one in sight.of(MemoryOverflow) if one.basis == "model"]
    if not short:
        return
    evidence, worst = max(short, key=lambda each: each[1].lacking_bytes or 0)
    yield reading(OVERFLOW_COMPONENT, worst.component, evidence)
    yield reading(OVERFLOW_DEVICE, worst.device, evidence)
    yield reading(OVERFLOW_BYTES, worst.lacking_bytes, evidence)
    if worst.device != "host":
        yield reading(OTHER_SPLIT_FITS, bool(worst.other_split), evidence)


@derivation(reads=(MemoryOverflow,), gives=(ALLOC_COMPONENT,))
def component_by_size(sight: Sight) -> Iterator[Reading]:
    """Say what a failed allocation was for where the log does not, but a predicted buffer has its size."""
    for evidence, one in sight.of(MemoryOverflow):
        named = one.component if one.component in COMPONENTS else one.note.removeprefix("it was for ")
        if one.basis == "log" and named in COMPONENTS and named != "other":
            yield reading(ALLOC_COMPONENT, named, evidence)


@derivation(reads=(MemoryScore,), gives=(LOGGED_OF_PREDICTED,))
def scored(sight: Sight) -> Iterator[Reading]:
    """Give by how much the log differs from the prediction, on the device where they disagree most."""
    for evidence, score in sight.of(MemoryScore)[-1:]:
        known = [one for one in score.differences if one.predicted_bytes > 0]
        if known:
            worst = max(known, key=lambda one: (not one.agrees, abs(one.logged_bytes - one.predicted_bytes)))
            yield reading(LOGGED_OF_PREDICTED, ratio(worst.logged_bytes, worst.predicted_bytes), evidence)


@derivation(reads=(MemoryBudget, LogEvent), gives=(PLAN_OF_PREDICTED,))
def planned(sight: Sight) -> Iterator[Reading]:
    """Compare what the engine's own planner projected with what the model file needs, all devices together."""
    predicted = [budget for _evidence, budget in sight.of(MemoryBudget) if budget.basis == "model"]
    buffers = predicted[-1].buffers if predicted else ()
    for evidence, event in sight.of(LogEvent):
        if event.event == "fit" and event.key == "projected" and event.size_bytes:
            on_host = event.device == "host"
            need = sum(one.size_bytes for one in buffers if on_host or one.device != "host")
            yield reading(PLAN_OF_PREDICTED, ratio(event.size_bytes, need), evidence)
