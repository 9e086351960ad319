"""The cache at the asked (or defaulted) window and type does not fit.

What it looks for
    An allocation of the cache that fails after the weights were placed; a cache that is a large part of what the server may use; a failure that goes
    away with a smaller window; a window that nobody set and that is the model's own.

Why it happens
    The cache grows with the window, layer by layer, and is reserved in one go at load by most servers. The model's own window may be longer than
    any cache that fits, and some servers put the cache on the card whatever the layers do.

What would prove it wrong
    With half of the window the same allocation fails at the same size.

References
    - llama.cpp: "failed to allocate buffer for kv cache", "KV buffer size"; `--ctx-size 0` takes the trained window; `--no-kv-offload`.
    - vLLM: "KV cache is needed, which is larger than the available KV cache memory".
    - Look-alikes: weights-leave-no-room (weights fail first), compute-buffer-too-big (scratch fails after the cache was placed),
      kv-quant-needs-flash-attn (refused with room to spare), parallel-multiplies-kv (a multiple by slots).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_ROOM,
    IS_MEMORY_FAILURE,
    KV_BYTES,
    KV_OF_WEIGHTS,
    KV_SHARE,
    KV_SMALLER_TYPE_SET,
    KV_TYPE_K,
    LAUNCH_FAILED,
    OVERFLOW_COMPONENT,
    SAFE_CTX,
    SAFE_CTX_KEYS_8BIT,
    SERVER_NAMES_WINDOW,
    SMALLER_BATCH_WORKS,
    SMALLER_WINDOW_WORKS,
    SPECULATION,
    TOLD_CHANGED,
    V_CACHE_NEEDS_FLASH,
    WEIGHTS_SHARE,
    WINDOW_ASKED,
    WINDOW_ASKED_OF_TRAINED,
    WINDOW_IN_FORCE,
    WINDOW_TRAINED,
    WINDOW_UNSET_LONG,
    WINDOW_WANTED,
)

RULE = Rule(
    cause="kv-cache-size",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    explains=("cpu-layer-offload", "vram-spill-shared-memory"),
    clues=(
        Clue(
            words("The allocation that failed was for the cache."),
            ALLOC_COMPONENT.one_of("kv", "state"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The server itself names a shorter window that its cache would hold."),
            SERVER_NAMES_WINDOW.is_(True),
            if_true=STRONG,
        ),
        Clue(
            words("The cache is at least a quarter of what the server may use."),
            KV_SHARE > 0.25,
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(words("It works with a smaller window."), SMALLER_WINDOW_WORKS.is_(True), if_true=FAIR, if_false=-FAIR),
        Clue(words("No window was set, and the model's own is long."), WINDOW_UNSET_LONG.is_(True), if_true=FAIR),
        Clue(words("A longer window was set before it began."), TOLD_CHANGED.has("window"), if_true=SLIGHT),
        Clue(words("More memory was free on the device than was asked for."), ALLOC_ROOM.is_(True), if_true=-FAIR),
        Clue(
            words("The weights alone are more than nine tenths of what the server may use."),
            WEIGHTS_SHARE > 0.9,
            if_true=-FAIR,
        ),
        Clue(words("It works with a smaller micro-batch."), SMALLER_BATCH_WORKS.is_(True), if_true=-SLIGHT),
        Clue(
            words("The cache is larger than the weights, or than sixteen gigabytes."),
            any_of(KV_OF_WEIGHTS > 1.0, KV_BYTES > 16_000_000_000),
            if_true=SLIGHT,
        ),
        Clue(
            words("The engine says that a quantised V cache needs flash attention."),
            V_CACHE_NEEDS_FLASH.is_(True),
            if_true=-STRONG,
        ),
        Clue(words("Speculation is on, and takes a cache of its own."), SPECULATION.is_(True), if_true=-SLIGHT),
        Clue(
            words("By the model file, it is the cache that passes the memory that there is."),
            OVERFLOW_COMPONENT.one_of("kv", "state"),
            if_true=FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            when=any_of(WINDOW_ASKED_OF_TRAINED > 1.02, WINDOW_UNSET_LONG.is_(True), WINDOW_ASKED.above(WINDOW_WANTED)),
            start=WINDOW_ASKED,
            to=Computed(
                words("what is wanted, at most what the model was trained for, where that fits by what is known"),
                lambda facts: _useful(
                    facts.value(WINDOW_WANTED),
                    facts.value(WINDOW_TRAINED),
                    facts.value(WINDOW_ASKED),
                    facts.value(SAFE_CTX),
                ),
            ),
            keep=("kv_type_k", "kv_type_v", "ubatch", "parallel", "gpu_layers"),
            minutes=4,
            reason=words(
                "A window beyond what is wanted, or beyond the model's training, only costs memory: nothing is lost without it."
            ),
            also=("default-ctx-tier-changed", "ctx-capped-by-engine"),
            expects=(
                Expect("kv-cache-size", LAUNCH_FAILED.is_(False), words("It loads: the cache shrinks in proportion.")),
                Expect(
                    "weights-leave-no-room",
                    LAUNCH_FAILED.is_(True),
                    words("If the weights leave no room, it fails as before."),
                ),
            ),
        ),
        Test(
            variable="kv_type_k",
            when=all_of(
                not_(KV_SMALLER_TYPE_SET.is_(True)), not_(KV_SHARE > 1.2), not_(SAFE_CTX_KEYS_8BIT.below(WINDOW_ASKED))
            ),
            start=KV_TYPE_K,
            to="q8_0",
            keep=("ctx", "ubatch", "parallel", "gpu_layers"),
            quality="some",
            minutes=4,
            reason=words(
                "Eight bits for keys take a quarter off the cache and cost hardly any quality; values follow in a step of their own."
            ),
            expects=(
                Expect(
                    "kv-cache-size",
                    LAUNCH_FAILED.is_(False),
                    words("It loads, with a cache that is a quarter smaller."),
                ),
            ),
        ),
        Test(
            variable="ctx",
            start=WINDOW_ASKED,
            to=Computed(
                words(
                    "the longest window that fits by the model file or the server's own words; half of the window where neither tells"
                ),
                lambda facts: _shorter(
                    facts.value(WINDOW_ASKED) or facts.value(WINDOW_IN_FORCE) or facts.value(WINDOW_TRAINED),
                    facts.value(SAFE_CTX),
                ),
            ),
            keep=("kv_type_k", "kv_type_v", "ubatch", "parallel", "gpu_layers"),
            quality="much",
            minutes=4,
            reason=words("A shorter window needs a smaller cache in proportion, and nothing else changes."),
            also=("default-ctx-tier-changed",),
            expects=(
                Expect("kv-cache-size", LAUNCH_FAILED.is_(False), words("It loads: the cache is smaller.")),
                Expect(
                    "weights-leave-no-room",
                    LAUNCH_FAILED.is_(True),
                    words("If the weights leave no room, it fails as before."),
                ),
            ),
        ),
        Test(
            variable="shorter-window",
            kind="habit",
            minutes=2,
            reason=words("Keep the shorter window for every day, and the long one for the jobs that need it."),
        ),
    ),
)


def _shorter(window: int | None, fits: int | None) -> int | None:
    if fits == 0:
        return None
    if fits is not None and (window is None or fits < window):
        return fits
    return window // 2 if window else None


def _useful(wanted: int | None, trained: int | None, asked: int | None, fits: int | None) -> int | None:
    known = [window for window in (wanted, trained) if window]
    target = min(known) if known else fits or 8192
    if fits is not None and fits < target:
        return None
    return target if asked is None or target < asked else None
