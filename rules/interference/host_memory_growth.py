"""Prompt caches, checkpoints or pools grow in system memory until the kernel kills or swaps.

What it looks for
    System memory of the server that grows with requests while the card's does not; a store of earlier prompts
    without a limit or with a large one; a killed
    process or swap after hours; several conversations that take turns; a fresh start that cures it for a while.

Why it happens
    Servers keep the state of earlier prompts in system memory to be quick when they come back: by default up to 8
    GiB for each llama-server process, and more for
    checkpoints of hybrid models. A limit bounds the store, not the peak; wrappers may pass none at all. The card's monitor sees none of it.

What would prove it wrong
    With the store switched off, nothing else changed, the server's memory grows as before.

References
    - llama.cpp: `--cache-ram`, `--ctx-checkpoints`; mlx-lm: `--prompt-cache-bytes`; SGLang: hierarchical cache; the
      kernel's "Out of memory: Killed process".
    - Look-alikes: mmap-or-swap-paging (from the start, weights too large), server-state-bug (no growth), weights-leave-no-room.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_AT_START,
    FAILURE_KINDS,
    OOM_KILLED,
    SERVER_GROWTH_BYTES,
    STORED_PROMPTS_LARGE,
    SWAP_GROWTH_BYTES,
    TOLD_CACHE_OFF,
    TOLD_DISK,
    TOLD_FRESH_START,
    TOLD_GPU_SEEN,
    TOLD_KERNEL_LOG,
    TOLD_MEMORY_GROWS,
    TOLD_REQUESTS_BETWEEN,
    TOLD_WHEN,
)

RULE = Rule(
    cause="host-memory-growth",
    prior={"flaky": SLIGHT, "slow-long-context": SLIGHT},
    explains=("mmap-or-swap-paging", "prompt-cache-evicted"),
    clues=(
        Clue(
            words("System memory grows over hours or requests."),
            TOLD_MEMORY_GROWS.one_of("ram", "both"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The server's own memory grew by more than a GiB while it was measured."),
            SERVER_GROWTH_BYTES > 2**30,
            if_true=FAIR,
        ),
        Clue(
            words("The kernel killed a process for lack of memory."),
            any_of(OOM_KILLED.is_(True), TOLD_KERNEL_LOG.has("killed")),
            if_true=FAIR,
        ),
        Clue(words("What was refused is system memory."), FAILURE_KINDS.has("host-memory"), if_true=FAIR),
        Clue(
            words("Earlier prompts may be kept without a limit, or up to 4 GiB and more."),
            STORED_PROMPTS_LARGE.is_(True),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It comes after hours or many requests, or with pictures."),
            any_of(TOLD_WHEN.has("over-time"), TOLD_WHEN.has("with-picture")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("Swap grows."), any_of(TOLD_DISK.is_("swap"), SWAP_GROWTH_BYTES > 256 * 2**20), if_true=FAIR),
        Clue(
            words("A fresh start cures it, at least for a while."),
            TOLD_FRESH_START.one_of("cures", "for-a-while"),
            if_true=SLIGHT,
        ),
        Clue(
            words("With the prompt cache off it does not happen."),
            TOLD_CACHE_OFF.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The server lost the card, and computes on the processor."),
            TOLD_GPU_SEEN.one_of("unused", "gone"),
            if_true=-FAIR,
        ),
        Clue(words("It fails while the server starts."), FAILURE_AT_START.is_(True), if_true=-STRONG),
        Clue(words("Several conversations take turns."), TOLD_REQUESTS_BETWEEN.is_(True), if_true=SLIGHT),
    ),
    tests=(
        Test(
            variable="cache_ram_mib",
            start=8192,
            to=1024,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel", "ctx_checkpoints"),
            minutes=15,
            reason=words(
                "A small store of earlier prompts bounds the growth. It costs time when an old conversation comes back, and no quality."
            ),
            expects=(
                Expect(
                    "host-memory-growth",
                    before(SERVER_GROWTH_BYTES) * 0.6 > SERVER_GROWTH_BYTES,
                    words("The server's memory stays far smaller over the same requests."),
                ),
                Expect(
                    "mmap-or-swap-paging",
                    before(SERVER_GROWTH_BYTES) * 0.6 <= SERVER_GROWTH_BYTES,
                    words("If the weights themselves are paged, nothing changes."),
                ),
            ),
        ),
    ),
)
