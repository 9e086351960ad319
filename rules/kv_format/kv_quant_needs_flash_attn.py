"""A quantised V cache is asked for with flash attention off.

What it looks for
    The engine's own words; or a V cache of few bits while flash attention is off or was switched off by the engine for this model or card, failing at
    once while the context is made, with memory to spare.

Why it happens
    Without the fused kernel, values are read transposed, which block-quantised types do not allow. Some architectures and cards switch flash attention
    off by themselves, and a server-wide cache type then makes exactly those models fail.

What would prove it wrong
    It fails with the cache at 16 bits as well.

References
    - llama.cpp: "V cache quantization requires flash_attn", "quantized V cache requires flash_attn to be enabled"; "forcing off".
    - Look-alikes: kv-cache-size (memory is short), kv-quant-no-gpu-kernel (flash attention is on).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    ALLOC_ROOM,
    FAILURE_ABOUT,
    FAILURE_STAGE,
    FLASH_ATTENTION,
    FLASH_FORCED_OFF,
    KV_TYPE_V,
    KV_TYPES_DIFFER,
    LAUNCH_FAILED,
    TOLD_CACHE_MORE_BITS,
    TOLD_CHANGED,
    TOLD_OTHER_MODELS,
    V_CACHE_NEEDS_FLASH,
    V_QUANTISED,
)

RULE = Rule(
    cause="kv-quant-needs-flash-attn",
    prior={"immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("The engine says that a quantised V cache needs flash attention."),
            V_CACHE_NEEDS_FLASH.is_(True),
            if_true=DECISIVE,
        ),
        Clue(
            words("The V cache is quantised, and flash attention is off or was switched off."),
            all_of(
                V_QUANTISED.is_(True), any_of(FLASH_ATTENTION.one_of("off", "forced-off"), FLASH_FORCED_OFF.is_(True))
            ),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("It failed while the cache or the context was made."),
            FAILURE_STAGE.one_of("cache", "buffers"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The message is about the context or a setting, not about memory."),
            FAILURE_ABOUT.one_of("create-context", "needs-setting"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("More memory was free on the device than was asked for."),
            ALLOC_ROOM.is_(True),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("Other models load with the same settings."), TOLD_OTHER_MODELS.is_("fine"), if_true=SLIGHT),
        Clue(words("The cache type was changed before it began."), TOLD_CHANGED.has("cache-type"), if_true=SLIGHT),
        Clue(words("With more bits it loads."), TOLD_CACHE_MORE_BITS.is_("cures"), if_true=SLIGHT, if_false=-STRONG),
        Clue(words("K and V have different types."), KV_TYPES_DIFFER.is_(True), if_true=-SLIGHT),
    ),
    tests=(
        Test(
            variable="flash_attention",
            when=not_(FLASH_FORCED_OFF.is_(True)),
            start=FLASH_ATTENTION,
            to="on",
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=3,
            reason=words("With flash attention the quantised cache can be read; nothing else changes."),
            expects=(Expect("kv-quant-needs-flash-attn", LAUNCH_FAILED.is_(False), words("It loads.")),),
        ),
        Test(
            variable="kv_type_v",
            start=KV_TYPE_V,
            to="f16",
            keep=("ctx", "kv_type_k"),
            minutes=3,
            reason=words("Values of 16 bits need no flash attention; keys may stay quantised."),
            also=("kv-quant-no-gpu-kernel",),
            expects=(
                Expect("kv-quant-needs-flash-attn", LAUNCH_FAILED.is_(False), words("It loads, with a larger cache.")),
            ),
        ),
    ),
)
