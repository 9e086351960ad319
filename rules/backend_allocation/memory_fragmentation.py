"""Enough is free on the device, but not in one piece.

What it looks for
    An allocation smaller than what is free that fails, after other loads and unloads or hours of work; a fresh start that cures it.

Why it happens
    Allocators and drivers hand out pieces; models that come and go leave holes. One buffer wants one hole.

What would prove it wrong
    On a freshly started machine the very same load fails.

References
    - PyTorch's "reserved but unallocated" and expandable segments; drivers with small apertures.
    - Look-alikes: backend-single-allocation-limit (fails on a fresh machine too), previous-instance-holds-memory (little is free),
      host-memory-growth.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_FAILED,
    ALLOC_OVER_LIMIT,
    ALLOC_PLACE,
    ALLOC_ROOM,
    FAILURE_ABOUT,
    TOLD_CHANGED,
    TOLD_FRESH_START,
    TOLD_GPU_SEEN,
    TOLD_MEMORY_GROWS,
    TOLD_OTHERS_ON_GPU,
    TOLD_RANDOM_RELOAD,
    TOLD_WHEN,
    UBATCH,
)

RULE = Rule(
    cause="memory-fragmentation",
    prior={"flaky": SLIGHT, "immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("More memory was free on the device than was asked for."),
            ALLOC_ROOM.is_(True),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(
            words("A fresh start cures it, at least for a while."),
            TOLD_FRESH_START.one_of("cures", "for-a-while"),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(
            words("It comes after hours of use, or after other models were loaded and unloaded."),
            any_of(TOLD_WHEN.has("over-time"), TOLD_CHANGED.has("model")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("An earlier run has not ended, or has just been stopped: the memory may still be held."),
            TOLD_OTHERS_ON_GPU.has("earlier-run"),
            if_true=-FAIR,
        ),
        Clue(
            words("It changes from one load to the next, with nothing changed."),
            TOLD_RANDOM_RELOAD.is_(True),
            if_true=SLIGHT,
        ),
        Clue(
            words("The allocation is over what the interface allows in one piece."),
            ALLOC_OVER_LIMIT.is_(True),
            if_true=-STRONG,
        ),
        Clue(
            words("The failure is about memory of a device."),
            FAILURE_ABOUT.one_of("gpu-memory", "memory-guard"),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(words("Memory of the device grows over hours."), TOLD_MEMORY_GROWS.one_of("gpu", "both"), if_true=SLIGHT),
        Clue(
            words("The server lost the card, and computes on the processor."),
            TOLD_GPU_SEEN.one_of("unused", "gone"),
            if_true=-STRONG,
        ),
        Clue(words("Page-locked host memory was asked for."), ALLOC_PLACE.is_("pinned"), if_true=-FAIR),
    ),
    tests=(
        Test(
            variable="fresh-start",
            kind="habit",
            minutes=5,
            reason=words(
                "Restart the server (and what else uses the card) before a large load, load the largest model first, and do not change models in between."
            ),
        ),
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(words("half of what is set"), lambda facts: (facts.value(UBATCH) or 512) // 2 or None),
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words("Smaller pieces fit into smaller holes; the cost is some prefill speed."),
            also=("compute-buffer-too-big", "prefill-activation-peak"),
            expects=(
                Expect("memory-fragmentation", not_(ALLOC_FAILED.is_(True)), words("It loads without a restart.")),
            ),
        ),
    ),
)
