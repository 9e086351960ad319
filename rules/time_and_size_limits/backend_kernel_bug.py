"""A kernel fails at size: 32-bit overflow, launch dimension over 65535, bounds.

What it looks for
    A kernel error (invalid argument or configuration, illegal access) at a long prompt with memory to spare; a length or a micro-batch at a power of two or
    over 65535; cured by another cache type, the other attention kernel, a smaller micro-batch or another engine; only some models.

Why it happens
    Kernels compute sizes in 32 bits, put the number of tokens into a launch dimension that ends at 65535, or were never run at that shape. The call fails, or
    computes garbage that shows up later as a NaN or an "invalid probability" somewhere else.

What would prove it wrong
    With the micro-batch halved below the limit (or the other attention kernel), nothing else changed, it fails at the same length in the same way.

References
    - CUDA programming guide, limits of launch dimensions (y and z: 65535); `compute-sanitizer` names the kernel.
    - Look-alikes: gpu-watchdog-timeout (the card is reset, and says so), kv-cache-size (out of memory), driver-kernel-bug (also in other engines).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    FAILURE_TOKENS,
    NEAR_POWER_OF_TWO,
    OVER_LAUNCH_LIMIT,
    SPEED_COMPLAINT,
    TOLD_CACHE_MORE_BITS,
    TOLD_FLASH_ATTENTION_TURNED,
    TOLD_GPU_SEEN,
    TOLD_KERNEL_LOG,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_MACHINES,
    TOLD_OTHER_MODELS,
    TOLD_ROOM_LEFT,
    TOLD_SMALLER_BATCH,
    TOLD_WHEN,
    UBATCH,
    WATCHDOG_SEEN,
)

RULE = Rule(
    cause="backend-kernel-bug",
    prior={"fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The error is a kernel's, and not about memory."),
            FAILURE_KINDS.has("kernel"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(words("A count that kernels launch with is over 65535."), OVER_LAUNCH_LIMIT.is_(True), if_true=STRONG),
        Clue(words("It fails at a power of two."), NEAR_POWER_OF_TWO.is_(True), if_true=FAIR),
        Clue(words("What is complained of is the speed."), SPEED_COMPLAINT.is_(True), if_true=-FAIR),
        Clue(words("A cache of more bits cures it."), TOLD_CACHE_MORE_BITS.is_("cures"), if_true=FAIR),
        Clue(words("The other attention kernel cures it."), TOLD_FLASH_ATTENTION_TURNED.is_("cures"), if_true=FAIR),
        Clue(
            words("A smaller micro-batch cures it, or it fails later."),
            TOLD_SMALLER_BATCH.one_of("cures", "later"),
            if_true=FAIR,
        ),
        Clue(words("Another engine does it on the same machine."), TOLD_OTHER_ENGINE.is_("works"), if_true=FAIR),
        Clue(words("Other models are fine."), TOLD_OTHER_MODELS.one_of("fine", "smaller-fine"), if_true=SLIGHT),
        Clue(words("It was seen on other machines too."), TOLD_OTHER_MACHINES.is_("many"), if_true=SLIGHT),
        Clue(words("Little memory was free."), TOLD_ROOM_LEFT.is_("little"), if_true=-SLIGHT, if_false=SLIGHT),
        Clue(
            words("It happens with long prompts or answers."),
            any_of(TOLD_WHEN.has("long-prompt"), TOLD_WHEN.has("long-answer")),
            if_true=SLIGHT,
        ),
        Clue(
            words("A watchdog, the bus or the driver reported a fault."),
            any_of(
                WATCHDOG_SEEN.is_(True),
                TOLD_KERNEL_LOG.has("gpu-timeout"),
                TOLD_KERNEL_LOG.has("bus"),
                TOLD_GPU_SEEN.is_("gone"),
            ),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("half of the micro-batch"), lambda facts: max(32, (facts.value(UBATCH) or 512) // 2)),
            keep=("ctx", "kv_type_k", "kv_type_v", "flash_attention"),
            minutes=8,
            reason=words("A launch that is too large becomes half as large. It costs some speed, and no quality."),
            also=("gpu-watchdog-timeout",),
            expects=(
                Expect(
                    "backend-kernel-bug",
                    before(FAILURE_TOKENS) * 1.2 < FAILURE_TOKENS,
                    words("It passes, or fails at a greater length."),
                ),
                Expect(
                    "kv-cache-size",
                    before(FAILURE_TOKENS) * 1.2 >= FAILURE_TOKENS,
                    words("If it is memory, it fails at the same length."),
                ),
            ),
        ),
    ),
)
