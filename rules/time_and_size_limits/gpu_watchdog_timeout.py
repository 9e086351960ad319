"""The OS or driver ends a GPU job that takes too long; it moves with the micro-batch, not with memory.

What it looks for
    A card that is lost, hung or not ready at a long prompt while memory is free; a kernel log that says that a job timed out; a length of failure that
    moves when the micro-batch is halved; an interface or system that has such a watchdog.

Why it happens
    Operating systems reset a card whose single job runs past a limit: two seconds on Windows (also inside WSL2), ten seconds or less for compute rings of
    some Linux drivers, a few seconds on Metal. The time of one attention job grows with micro-batch times depth, so it trips at a certain length.

What would prove it wrong
    With the micro-batch halved, nothing else changed, it fails at the same length; or memory is full when it fails.

References
    - Windows: TDR, `TdrDelay`; amdgpu: `lockup_timeout`, "ring … timeout" in the kernel log; Metal: "Impacting Interactivity" on stderr.
    - Look-alikes: backend-kernel-bug (a launch limit also moves with the micro-batch, but the error is an invalid argument, and no reset is logged),
      hardware-fault (under load at any length, the card is gone), driver-kernel-bug.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    FAILURE_TOKENS,
    GPU_API,
    HARDWARE_SEEN,
    OS,
    TOLD_GPU_SEEN,
    TOLD_KERNEL_LOG,
    TOLD_ROOM_LEFT,
    TOLD_SAME_LENGTH,
    TOLD_SMALLER_BATCH,
    TOLD_WHEN,
    UBATCH,
    WATCHDOG_SEEN,
)

RULE = Rule(
    cause="gpu-watchdog-timeout",
    prior={"fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("A log says that a job of the card took too long, or that the card was reset."),
            any_of(WATCHDOG_SEEN.is_(True), TOLD_KERNEL_LOG.has("gpu-timeout")),
            if_true=DECISIVE,
        ),
        Clue(
            words("The card was lost, hung, timed out or is not ready."),
            FAILURE_KINDS.has("device-lost"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("With a smaller micro-batch it works, or fails later."),
            TOLD_SMALLER_BATCH.one_of("cures", "later"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("It happens with long prompts or answers."),
            any_of(TOLD_WHEN.has("long-prompt"), TOLD_WHEN.has("long-answer")),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The system or interface is one with a watchdog over jobs."),
            any_of(GPU_API.one_of("vulkan", "metal", "rocm", "sycl"), OS.one_of("windows", "wsl", "macos")),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("Much memory was free."), TOLD_ROOM_LEFT.one_of("plenty", "nearly-all"), if_true=SLIGHT),
        Clue(
            words("It fails at about the same length each time."),
            TOLD_SAME_LENGTH.one_of("exact", "about"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("The card is gone for the system too."), TOLD_GPU_SEEN.is_("gone"), if_true=-SLIGHT),
        Clue(words("The driver reported a hardware error."), HARDWARE_SEEN.is_(True), if_true=-FAIR),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("half of the micro-batch"), lambda facts: max(32, (facts.value(UBATCH) or 512) // 2)),
            keep=("ctx", "batch", "kv_type_k", "kv_type_v", "flash_attention"),
            minutes=8,
            reason=words("Half the micro-batch halves the time of one job. It costs some speed, and no quality."),
            expects=(
                Expect(
                    "gpu-watchdog-timeout",
                    before(FAILURE_TOKENS) * 1.3 < FAILURE_TOKENS,
                    words("It fails at nearly twice the length, or not at all."),
                ),
                Expect(
                    "kv-cache-size",
                    before(FAILURE_TOKENS) * 1.3 >= FAILURE_TOKENS,
                    words("If it is memory, it fails at the same length."),
                ),
            ),
        ),
    ),
)
