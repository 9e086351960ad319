"""Passing activations of a prefill chunk overflow.

What it looks for
    A failure while a prompt is read, not at load; memory that falls back at once; several long prompts at the same time; an engine filled to the brim; a
    guard that stopped it.

Why it happens
    Activations grow with the chunk and with what is read at the same time, and live only for a step. They are not in the plan of weights and cache. An
    attention fallback for unusual head sizes, or several prefills in one step, makes a peak that nobody reserved.

What would prove it wrong
    With a smaller chunk the peak stays as high; or memory stays full after the failure.

References
    - vLLM: `--max-num-batched-tokens`, `--gpu-memory-utilization`; MLX: `prefill_step_size`; servers' own memory guards.
    - Look-alikes: kv-cache-size (fails at load), kv-pool-exhausted (no cells, memory is there), backend-single-allocation-limit.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before, not_
from rules.facts import (
    ALLOC_BYTES,
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    ALLOC_OVER_LIMIT,
    FAILURE_ABOUT,
    FAILURE_STAGE,
    FAILURE_TOKENS,
    MEMORY_FALLS_BACK,
    MEMORY_SHARE_SET,
    POOL_FULL_SEEN,
    PROJECTOR,
    SMALLER_BATCH_WORKS,
    TOGETHER_FAILS,
    TOLD_ESTIMATE,
    TOLD_WHEN,
    UBATCH,
)

RULE = Rule(
    cause="prefill-activation-peak",
    prior={"fixed-length-error": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(words("It failed while a prompt was read."), FAILURE_STAGE.is_("reading"), if_true=FAIR, if_false=-FAIR),
        Clue(
            words("Memory falls back at once after the failure."),
            MEMORY_FALLS_BACK.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("Requests that pass alone fail together."), TOGETHER_FAILS.is_(True), if_true=FAIR),
        Clue(
            words("The failure is about memory of a device, or a guard stopped it."),
            FAILURE_ABOUT.one_of("gpu-memory", "memory-guard"),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("What could not be had was an activation."),
            ALLOC_COMPONENT.is_("activation"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("The engine may fill more than 92 % of the card."), MEMORY_SHARE_SET > 0.92, if_true=FAIR),
        Clue(
            words("It works, or fails later, with a smaller chunk."),
            SMALLER_BATCH_WORKS.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("The piece that was refused is under four gigabytes."), ALLOC_BYTES < 4_000_000_000, if_true=SLIGHT),
        Clue(words("It comes with long prompts only."), TOLD_WHEN.has("long-prompt"), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(
            words("The allocation is over what the interface allows in one piece."),
            ALLOC_OVER_LIMIT.is_(True),
            if_true=-STRONG,
        ),
        Clue(
            words("The estimate is far from what is used, or looks wrong."),
            TOLD_ESTIMATE.one_of("too-low", "too-high", "zero", "wrong"),
            if_true=-SLIGHT,
        ),
        Clue(words("The server found no free cells in its cache."), POOL_FULL_SEEN.is_(True), if_true=-FAIR),
        Clue(words("A projector is in play."), PROJECTOR.is_(True), if_true=-SLIGHT),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("half of the chunk"), lambda facts: (facts.value(UBATCH) or 512) // 2 or None),
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            minutes=4,
            reason=words("Activations grow with the chunk; a smaller one costs some prefill speed and no quality."),
            also=("compute-buffer-too-big",),
            expects=(
                Expect(
                    "prefill-activation-peak",
                    any_of(before(FAILURE_TOKENS) * 1.3 < FAILURE_TOKENS, not_(ALLOC_FAILED.is_(True))),
                    words("The same prompt passes, with a lower peak."),
                ),
                Expect(
                    "kv-cache-size",
                    before(FAILURE_TOKENS) * 1.1 >= FAILURE_TOKENS,
                    words("If the cache is what grows, it fails at the same length."),
                ),
            ),
        ),
        Test(
            variable="memory_share",
            when=MEMORY_SHARE_SET.known(),
            start=MEMORY_SHARE_SET,
            to=Computed(
                words("seven hundredths less"), lambda facts: round((facts.value(MEMORY_SHARE_SET) or 0.9) - 0.07, 2)
            ),
            keep=("ctx", "parallel"),
            minutes=5,
            reason=words("A smaller share leaves room for activations; the cache holds fewer tokens."),
            also=("engine-reserve-overhead",),
            expects=(
                Expect(
                    "prefill-activation-peak", not_(ALLOC_FAILED.is_(True)), words("The same requests pass together.")
                ),
            ),
        ),
    ),
)
