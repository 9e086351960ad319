"""There is no GPU attention kernel for that cache type or pair.

What it looks for
    A cache of few bits that makes everything slow at every length (or makes the load fail), while more bits are fast; different types for K and V; a
    busy processor; a log that says where attention went.

Why it happens
    Attention kernels are compiled for some head sizes, types and pairs only. What is missing runs on the CPU, and data goes back and forth for each
    layer; or the context is not created at all, with words that sound like memory.

What would prove it wrong
    With a cache of 16 bits it is as slow, or fails in the same way.

References
    - llama.cpp: `GGML_CUDA_FA_ALL_QUANTS`, "layer … is assigned to device … but … (usually due to missing support)".
    - Look-alikes: kv-quant-needs-flash-attn (flash attention is off), attention-kernel-slow (slow at depth, with f16 too), cpu-layer-offload.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_ABOUT,
    FLASH_ATTENTION,
    FLASH_FORCED_OFF,
    KERNEL_MISSING_SEEN,
    KV_SMALLER_TYPE_SET,
    KV_TYPE_K,
    KV_TYPE_V,
    KV_TYPES_DIFFER,
    LAUNCH_FAILED,
    PREFILL_SHORT,
    TOLD_BUSY,
    TOLD_CACHE_MORE_BITS,
    TOLD_CHANGED,
    TOLD_SLOW_SHAPE,
    TOLD_WHAT_IS_WRONG,
)

RULE = Rule(
    cause="kv-quant-no-gpu-kernel",
    prior={"slow-long-context": SLIGHT, "immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("The cache has a smaller type than 16 bits."),
            KV_SMALLER_TYPE_SET.is_(True),
            if_true=SLIGHT,
            if_false=-DECISIVE,
        ),
        Clue(words("K and V have different types."), KV_TYPES_DIFFER.is_(True), if_true=FAIR),
        Clue(
            words("With more bits it works or is fast."),
            TOLD_CACHE_MORE_BITS.is_("cures"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("It is slow at every length."),
            TOLD_SLOW_SHAPE.one_of("always", "per-load"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The engine has no kernel for this type, or moved attention away from the card."),
            KERNEL_MISSING_SEEN.is_(True),
            if_true=STRONG,
        ),
        Clue(
            words("The cache type was changed before it began."),
            TOLD_CHANGED.has("cache-type"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The processor is busy while it is slow."),
            TOLD_BUSY.one_of("cpu", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The context could not be created, with no word of memory."),
            FAILURE_ABOUT.one_of("create-context", "needs-setting", "kernel"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Flash attention is off, or was switched off."),
            any_of(FLASH_ATTENTION.one_of("off", "forced-off"), FLASH_FORCED_OFF.is_(True)),
            if_true=-FAIR,
        ),
        Clue(
            words("It reasons worse or writes nonsense, rather than being slow."),
            any_of(TOLD_WHAT_IS_WRONG.has("reasoning"), TOLD_WHAT_IS_WRONG.has("nonsense")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="kv_type_v",
            when=KV_TYPES_DIFFER.is_(True),
            start=KV_TYPE_V,
            to=KV_TYPE_K,
            keep=("ctx", "flash_attention"),
            minutes=4,
            reason=words("Equal types have a kernel more often than pairs."),
            expects=(
                Expect(
                    "kv-quant-no-gpu-kernel",
                    any_of(LAUNCH_FAILED.is_(False), before(PREFILL_SHORT) * 1.5 < PREFILL_SHORT),
                    words("It loads, or is much faster."),
                ),
            ),
        ),
        Test(
            variable="kv_type_k",
            start=KV_TYPE_K,
            to="f16",
            keep=("ctx", "flash_attention"),
            minutes=4,
            reason=words("Sixteen bits have a kernel everywhere; the cache gets larger."),
            expects=(
                Expect(
                    "kv-quant-no-gpu-kernel",
                    any_of(LAUNCH_FAILED.is_(False), before(PREFILL_SHORT) * 1.5 < PREFILL_SHORT),
                    words("It loads, or is much faster at every length."),
                ),
            ),
        ),
    ),
)
