"""Every parallel request reserves a whole window.

What it looks for
    More than one slot, each with a cache of the whole window; a cache that is a multiple of what one window needs; a need that grows by a constant
    with each slot.

Why it happens
    Some servers take the window as the window of one request and multiply it by the number of requests at once; others divide it. A number that was
    set for two users doubles the cache, and layers leave the card for it.

What would prove it wrong
    With one slot the cache stays as large.

References
    - Ollama: `OLLAMA_NUM_PARALLEL` times `OLLAMA_CONTEXT_LENGTH`; LM Studio's parallel requests; llama.cpp's streams in "n_seq_max".
    - Look-alikes: slots-divide-ctx (each has a share), kv-cache-size (one slot), other-process-vram.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    BACKEND,
    FAILURE_STAGE,
    KV_BYTES,
    KV_OF_WEIGHTS,
    KV_WHOLE_PER_SLOT,
    LAYERS_ON_CPU,
    SPECULATION,
    TOLD_CHANGED,
    TOLD_ON_GPU,
    TOLD_SLOTS_SET,
    TOLD_WHAT_IS_WRONG,
    WINDOW_IS_DIVIDED,
    WINDOW_SLOTS,
    WINDOW_UNIFIED,
)

RULE = Rule(
    cause="parallel-multiplies-kv",
    prior={"immediate-oom": SLIGHT, "slow-long-context": SLIGHT},
    explains=("cpu-layer-offload", "vram-spill-shared-memory", "kv-cache-size"),
    clues=(
        Clue(words("The server has more than one slot."), WINDOW_SLOTS > 1, if_true=SLIGHT, if_false=-DECISIVE),
        Clue(
            words("It answers wrongly, rather than running short of memory."),
            any_of(
                TOLD_WHAT_IS_WRONG.has("made-up"),
                TOLD_WHAT_IS_WRONG.has("beginning-lost"),
                TOLD_WHAT_IS_WRONG.has("all-but-end-lost"),
            ),
            if_true=-FAIR,
        ),
        Clue(
            words("Every slot has a cache of the whole window of its own."),
            KV_WHOLE_PER_SLOT.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The cache is at least three quarters of the weights."),
            KV_OF_WEIGHTS > 0.75,
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The server is one that multiplies the window by its slots."),
            BACKEND.one_of("ollama", "lm-studio", "mlx_lm"),
            if_true=SLIGHT,
        ),
        Clue(
            words("The number of slots was set by hand, or raised."),
            any_of(TOLD_SLOTS_SET.is_("set"), TOLD_CHANGED.has("slots")),
            if_true=SLIGHT,
        ),
        Clue(
            words("Layers are not on the card."),
            any_of(LAYERS_ON_CPU > 0, TOLD_ON_GPU.is_("some-layers")),
            if_true=SLIGHT,
        ),
        Clue(
            words("One slot has the window divided by the number of slots, or all share one pool."),
            any_of(WINDOW_IS_DIVIDED.is_(True), WINDOW_UNIFIED.is_(True)),
            if_true=-STRONG,
        ),
        Clue(words("Speculation is on, and takes a cache of its own."), SPECULATION.is_(True), if_true=-SLIGHT),
        Clue(
            words("Memory runs out while a prompt is read, after everything was placed."),
            FAILURE_STAGE.is_("reading"),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="parallel",
            start=WINDOW_SLOTS,
            to=1,
            keep=("ctx", "kv_type_k", "kv_type_v", "gpu_layers"),
            minutes=4,
            reason=words("One slot needs one cache; requests wait for each other."),
            also=("slots-divide-ctx", "kv-pool-exhausted"),
            expects=(
                Expect(
                    "parallel-multiplies-kv",
                    any_of(before(KV_BYTES) * 0.7 > KV_BYTES, before(LAYERS_ON_CPU) > LAYERS_ON_CPU),
                    words("The cache shrinks by the number of slots, and layers return to the card."),
                ),
            ),
        ),
    ),
)
