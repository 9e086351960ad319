"""Mapped weights or anonymous memory are paged to and from disk.

What it looks for
    A disk that is read without end (or swap that grows) while text crawls, neither processor nor card at work, weights that come near to the system's memory,
    and a smaller model that is fine.

Why it happens
    Weights are mapped from their file; the system may drop such pages whenever it wants the memory for something else, and reads them again for every token.
    Anonymous memory over what the machine has goes to swap, and comes back page by page.

What would prove it wrong
    With mapping switched off (or the weights locked), nothing else changed, the disk is as busy and the text as slow.

References
    - llama.cpp: `--no-mmap`, `--mlock`; Ollama: `use_mmap`; Linux: `vmstat`, major page faults, memory pressure (`/proc/pressure/memory`).
    - Look-alikes: host-memory-growth (what grows until the machine pages: the root of this one), cpu-layer-offload (the processor is busy).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, before
from rules.facts import (
    CONTROL_SAYS,
    GENERATION_SHORT,
    MAJOR_FAULTS,
    READ_OF_WEIGHTS,
    SPEED_SHAPE,
    SWAP_GROWTH_BYTES,
    TOLD_BUSY,
    TOLD_DISK,
    TOLD_MEMORY_GROWS,
    TOLD_ON_GPU,
    TOLD_OTHER_MODELS,
    WEIGHTS_OF_RAM,
)

RULE = Rule(
    cause="mmap-or-swap-paging",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The disk is read all the time, or swap grows."),
            TOLD_DISK.one_of("reads", "swap"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The server had to read many pages back from disk."),
            MAJOR_FAULTS > 100_000,
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("While it was measured the server read its weights from storage more than twice over."),
            READ_OF_WEIGHTS > 2.0,
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(words("Swap grew while it ran."), SWAP_GROWTH_BYTES > 256 * 2**20, if_true=FAIR, if_false=-SLIGHT),
        Clue(words("The weights come near to the system's memory."), WEIGHTS_OF_RAM > 0.6, if_true=FAIR),
        Clue(
            words("Weights are in system memory."),
            TOLD_ON_GPU.one_of("none", "some-layers", "experts"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("It slows down more than a model that surely fits does over the same lengths."),
            CONTROL_SAYS.is_("steeper"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("Smaller models are fine."), TOLD_OTHER_MODELS.is_("smaller-fine"), if_true=FAIR),
        Clue(words("Neither processor nor card is at work."), TOLD_BUSY.is_("neither"), if_true=FAIR),
        Clue(words("It is slow at every length."), SPEED_SHAPE.one_of("always", "step", "per-load"), if_true=SLIGHT),
        Clue(
            words("Memory grows over time: paging follows from that."),
            TOLD_MEMORY_GROWS.one_of("ram", "both"),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="mmap",
            start=True,
            to=False,
            keep=("ctx", "kv_type_k", "kv_type_v", "gpu_layers", "threads"),
            minutes=5,
            reason=words(
                "Weights that are read into memory of their own cannot be dropped and read again. It costs no quality."
            ),
            expects=(
                Expect(
                    "mmap-or-swap-paging",
                    before(GENERATION_SHORT) * 1.3 < GENERATION_SHORT,
                    words("The disk falls quiet, and the text comes faster."),
                ),
                Expect(
                    "cpu-layer-offload",
                    before(GENERATION_SHORT) * 1.3 >= GENERATION_SHORT,
                    words("If layers are computed by the processor, it stays as slow."),
                ),
            ),
        ),
    ),
)
