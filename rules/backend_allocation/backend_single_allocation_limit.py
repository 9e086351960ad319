"""One buffer is over what the driver or API allows in one piece.

What it looks for
    An error that names a maximum buffer size, or an allocation of gigabytes that fails through Vulkan, SYCL, OpenCL or Metal while much more is
    free, on a fresh machine as well.

Why it happens
    Interfaces bound a single buffer (often 2 or 4 GiB, or a share of the memory), whatever the total. A tensor over the whole sequence, a cache in one
    piece or an unchunked activation passes that bound at a certain length.

What would prove it wrong
    The same size in one piece is granted by that interface.

References
    - Vulkan maxMemoryAllocationSize and maxStorageBufferRange, `GGML_VK_FORCE_MAX_ALLOCATION_SIZE`; Level Zero's relaxed limits; Metal maxBufferLength.
    - Look-alikes: memory-fragmentation (cured by a fresh start), metal-wired-limit (the total), compute-buffer-too-big (the memory is short).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before, not_
from rules.facts import (
    ALLOC_BYTES,
    ALLOC_FAILED,
    ALLOC_OVER_LIMIT,
    ALLOC_ROOM,
    FAILURE_TOKENS,
    GPU_API,
    GPU_VENDOR,
    IS_MEMORY_FAILURE,
    SMALLER_BATCH_WORKS,
    TOLD_FRESH_START,
    UBATCH,
)

RULE = Rule(
    cause="backend-single-allocation-limit",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The allocation is over what the interface allows in one piece."),
            ALLOC_OVER_LIMIT.is_(True),
            if_true=DECISIVE,
            if_false=-STRONG,
        ),
        Clue(
            words("More memory was free on the device than was asked for."),
            ALLOC_ROOM.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The device is used through Vulkan, SYCL, OpenCL or Metal."),
            GPU_API.one_of("vulkan", "sycl", "metal", "other"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The maker is one whose interfaces bound a single buffer at a few gigabytes."),
            any_of(GPU_VENDOR.has("intel"), GPU_VENDOR.has("other")),
            if_true=SLIGHT,
        ),
        Clue(
            words("One piece of more than two gigabytes was asked for."),
            ALLOC_BYTES > 2_000_000_000,
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("A fresh start cures it."), TOLD_FRESH_START.one_of("cures", "for-a-while"), if_true=-FAIR),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("It works with a smaller micro-batch, or fails later."), SMALLER_BATCH_WORKS.is_(True), if_true=SLIGHT
        ),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("half of what is set"), lambda facts: (facts.value(UBATCH) or 512) // 2 or None),
            keep=("ctx", "kv_type_k", "kv_type_v", "gpu_layers"),
            minutes=4,
            reason=words(
                "Half of the micro-batch makes the largest piece smaller, if it is scratch; the total was never the limit."
            ),
            also=("compute-buffer-too-big", "prefill-activation-peak"),
            expects=(
                Expect(
                    "backend-single-allocation-limit",
                    any_of(before(FAILURE_TOKENS) * 1.5 < FAILURE_TOKENS, not_(ALLOC_FAILED.is_(True))),
                    words("It passes, or fails at about twice the length."),
                ),
            ),
        ),
        Test(
            variable="env.UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS",
            when=GPU_API.is_("sycl"),
            start=None,
            to="1",
            keep=("ctx", "ubatch"),
            minutes=3,
            reason=words("On that stack pieces over 4 GB have to be allowed explicitly."),
            expects=(
                Expect(
                    "backend-single-allocation-limit",
                    not_(ALLOC_FAILED.is_(True)),
                    words("The same load passes that point."),
                ),
            ),
        ),
    ),
)
