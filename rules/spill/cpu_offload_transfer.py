"""Weights kept in RAM are copied to the GPU; the bus is the limit.

What it looks for
    Weights (often experts) kept in system memory on purpose while the card computes: slow reading of prompts, a card and a processor that both wait, a slow
    link, and reading that becomes faster with a larger micro-batch, slower with a smaller one.

Why it happens
    For a large batch it pays to copy a layer's weights to the card and compute there. Each micro-batch then moves all of those weights over the bus once, so
    the time of a prefill is the bytes over the bus times the number of micro-batches.

What would prove it wrong
    With the micro-batch doubled, nothing else changed, the prefill is not faster; or with the copy switched off it is as fast.

References
    - llama.cpp: `--cpu-moe`, `--override-tensor`, `--no-op-offload`, `--ubatch-size`; vLLM: `--cpu-offload-gb`; KTransformers.
    - Look-alikes: cpu-layer-offload (the processor computes; the window pushed layers away), mmap-or-swap-paging (the disk is busy), gpu-transfer-bound.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    LINK_SLOW,
    LINK_USE,
    PREFILL_LONG,
    TOLD_BUSY,
    TOLD_DISK,
    TOLD_ON_GPU,
    TOLD_SLOW_PART,
    TOLD_SMALLER_BATCH,
    UBATCH,
)

LINK_FULL = 0.6

RULE = Rule(
    cause="cpu-offload-transfer",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("Experts or some layers are kept in system memory."),
            TOLD_ON_GPU.one_of("experts", "some-layers"),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(words("The card is connected over a slow link."), LINK_SLOW.is_(True), if_true=FAIR),
        Clue(
            words("Most of what the link can carry went over it."), LINK_USE > LINK_FULL, if_true=STRONG, if_false=-FAIR
        ),
        Clue(
            words("Reading the prompt is slow."),
            TOLD_SLOW_PART.one_of("reading", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The processor is not what is busy."),
            TOLD_BUSY.one_of("neither", "gpu-low-power", "gpu"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("It is worse with a smaller micro-batch."), TOLD_SMALLER_BATCH.is_("worse"), if_true=STRONG),
        Clue(words("The disk is quiet."), TOLD_DISK.is_("quiet"), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(
            words("It fails instead of being slow."),
            any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("create-context")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("twice the micro-batch"), lambda facts: 2 * (facts.value(UBATCH) or 512)),
            keep=("ctx", "kv_type_k", "kv_type_v", "overrides", "cpu_moe"),
            minutes=8,
            reason=words(
                "With twice the micro-batch the weights cross the bus half as often. It costs memory for working buffers, and no quality."
            ),
            expects=(
                Expect(
                    "cpu-offload-transfer",
                    before(PREFILL_LONG) * 1.4 < PREFILL_LONG,
                    words("Prefill becomes faster by nearly two."),
                ),
                Expect(
                    "depth-cost",
                    before(PREFILL_LONG) * 1.4 >= PREFILL_LONG,
                    words("If it is the price of length, it stays about the same."),
                ),
            ),
        ),
    ),
)
