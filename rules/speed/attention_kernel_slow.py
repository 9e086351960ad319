"""The attention kernel is slow at depth for that GPU or head size.

What it looks for
    Speed that falls much faster than in proportion from a short length on, with the card busy and everything in its place; the other attention kernel or
    another engine does better on the same machine; an interface with few tuned kernels.

Why it happens
    Attention is quadratic in all engines, but a good kernel keeps its share small up to long lengths. For some head sizes, cache types, cards and interfaces
    there is only a generic kernel, or none that uses matrix units, and its share rules from a few thousand tokens on.

What would prove it wrong
    With flash attention switched the other way (and a 16-bit cache), nothing else changed, the ratio between the speeds at 4K and 28K stays.

References
    - llama.cpp: `--flash-attn`, `test-backend-ops perf -o FLASH_ATTN_EXT`; vLLM: `VLLM_ATTENTION_BACKEND`; SGLang: `--attention-backend`.
    - Look-alikes: depth-cost (a slope as every engine has it), kv-quant-no-gpu-kernel (the cache type moves it to the processor),
      vram-spill-shared-memory (a step).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, before
from rules.facts import (
    CONTROL_SAYS,
    FLASH_ATTENTION,
    GPU_API,
    PREFILL_RATIO,
    SPEED_SHAPE,
    TOLD_BUSY,
    TOLD_CACHE_MORE_BITS,
    TOLD_FLASH_ATTENTION_TURNED,
    TOLD_ON_GPU,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_MODELS,
    TOLD_REREADS,
    TOLD_SHARED_MEMORY,
)

RULE = Rule(
    cause="attention-kernel-slow",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("Speed falls much faster than in proportion to length."),
            SPEED_SHAPE.is_("steep"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("It slows down more than another model does over the same lengths."),
            CONTROL_SAYS.is_("steeper"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It is fast with the other attention kernel."),
            TOLD_FLASH_ATTENTION_TURNED.is_("cures"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The interface has fewer tuned kernels."),
            GPU_API.one_of("vulkan", "rocm", "sycl", "metal"),
            if_true=SLIGHT,
        ),
        Clue(
            words("Another engine is faster on the same machine."),
            TOLD_OTHER_ENGINE.is_("works"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("Other models are fine."), TOLD_OTHER_MODELS.is_("fine"), if_true=SLIGHT),
        Clue(words("The card is busy."), TOLD_BUSY.one_of("gpu", "both"), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(
            words("It is fast with a cache of more bits: then it is the format."),
            TOLD_CACHE_MORE_BITS.is_("cures"),
            if_true=-FAIR,
        ),
        Clue(
            words("Weights are in system memory."), TOLD_ON_GPU.one_of("some-layers", "experts", "none"), if_true=-FAIR
        ),
        Clue(words("Shared memory is in use."), TOLD_SHARED_MEMORY.is_(True), if_true=-STRONG),
        Clue(
            words("All is read again at each message."),
            TOLD_REREADS.one_of("all", "sometimes-all", "some-thousand"),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="flash_attention",
            start=FLASH_ATTENTION,
            to=Computed(words("the other way"), lambda facts: "on" if facts.value(FLASH_ATTENTION) == "off" else "off"),
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch"),
            minutes=8,
            reason=words(
                "It is another kernel for the same work. Without it more working memory is needed; it costs no quality."
            ),
            expects=(
                Expect(
                    "attention-kernel-slow",
                    before(PREFILL_RATIO) * 1.5 < PREFILL_RATIO,
                    words("More of the speed is kept at length."),
                ),
                Expect(
                    "depth-cost",
                    before(PREFILL_RATIO) * 1.5 >= PREFILL_RATIO,
                    words("If it is the price of length, as much is lost as before."),
                ),
            ),
        ),
    ),
)
