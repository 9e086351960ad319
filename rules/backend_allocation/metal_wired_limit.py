"""The share of unified memory that the GPU may hold is exceeded.

What it looks for
    An Apple machine; weights and cache that pass about two thirds of the memory (three quarters on large ones); a log that compares an allocated size with the
    recommended working set; a command buffer that fails for lack of memory.

Why it happens
    The GPU may wire only a part of unified memory. Loading succeeds, since pages are mapped, and the first computation that needs all of it fails.

What would prove it wrong
    The sum is below the limit that the log names; or it fails as well with a raised limit.

References
    - llama.cpp: recommendedMaxWorkingSetSize, "current allocated size is greater than the recommended max working set size"; `sysctl iogpu.wired_limit_mb`.
    - Look-alikes: backend-single-allocation-limit (one piece), prefill-activation-peak (falls back after the failure), mmap-or-swap-paging.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_FAILED,
    ALLOC_OVER_LIMIT,
    GPU_API,
    GPU_VENDOR,
    IS_MEMORY_FAILURE,
    MEMORY_FALLS_BACK,
    OS,
    RAM_BYTES,
    TOLD_WHEN,
    WEIGHTS_OF_RAM,
    WORKING_SET_PASSED,
)

RULE = Rule(
    cause="metal-wired-limit",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The machine is Apple's, with one memory for all."),
            any_of(GPU_VENDOR.has("apple"), OS.is_("macos"), GPU_API.is_("metal")),
            if_true=SLIGHT,
            if_false=-DECISIVE,
        ),
        Clue(
            words("The share of unified memory that the GPU may hold was passed."),
            WORKING_SET_PASSED.is_(True),
            if_true=DECISIVE,
        ),
        Clue(
            words("The weights are more than six tenths of the system memory."),
            WEIGHTS_OF_RAM > 0.6,
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-FAIR),
        Clue(
            words("The allocation is over what the interface allows in one piece."),
            ALLOC_OVER_LIMIT.is_(True),
            if_true=-STRONG,
        ),
        Clue(words("Memory falls back at once after the failure."), MEMORY_FALLS_BACK.is_(True), if_true=-FAIR),
        Clue(
            words("It fails at the first request, although it loaded."), TOLD_WHEN.has("first-request"), if_true=SLIGHT
        ),
    ),
    tests=(
        Test(
            variable="iogpu.wired_limit_mb",
            start=None,
            to=Computed(words("the memory less four gigabytes"), lambda facts: _wired(facts.value(RAM_BYTES))),
            keep=("ctx", "gpu_layers"),
            minutes=3,
            reason=words(
                "A raised limit lets the GPU hold more, until the next start of the machine; four gigabytes are left for the system."
            ),
            expects=(
                Expect(
                    "metal-wired-limit",
                    not_(ALLOC_FAILED.is_(True)),
                    words("The same load passes its first computation."),
                ),
            ),
        ),
        Test(
            variable="smaller-weights",
            kind="habit",
            minutes=30,
            reason=words("Take weights that are at most six tenths of the memory."),
        ),
    ),
)


def _wired(ram: int | None) -> int | None:
    return (ram - 4 * 2**30) // 2**20 if ram and ram > 12 * 2**30 else None
