"""Page-locked host memory is refused and reported as GPU out of memory.

What it looks for
    A pinned (host) allocation that fails; an out-of-memory message while the card is almost empty; weights in system memory that are large against
    the RAM, or a limit on locked memory.

Why it happens
    Buffers that the GPU reads directly must be locked in RAM. Drivers allow a share of it only (about half on some systems, less in WSL and containers),
    and the refusal comes back with the GPU's words.

What would prove it wrong
    With pinned memory off the same message comes, at the same size.

References
    - CUDA: cudaMallocHost and cudaHostAlloc; llama.cpp's `GGML_CUDA_NO_PINNED`, CUDA_Host buffers; `ulimit -l`.
    - Look-alikes: weights-leave-no-room (the card is full), cpu-offload-transfer (works, slowly), memory-estimate-bug.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    ALLOC_PLACE,
    FAILURE_ABOUT,
    LAYERS_ON_CPU,
    OS,
    TOLD_ON_GPU,
    TOLD_ROOM_LEFT,
    WEIGHTS_OF_RAM,
)

RULE = Rule(
    cause="pinned-host-memory-limit",
    prior={"immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("The allocation that failed was for page-locked host memory."),
            any_of(ALLOC_PLACE.is_("pinned"), ALLOC_COMPONENT.is_("pinned")),
            if_true=DECISIVE,
            if_false=-FAIR,
        ),
        Clue(
            words("The card was almost empty when it failed."),
            TOLD_ROOM_LEFT.is_("nearly-all"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Weights are kept in system memory."),
            any_of(TOLD_ON_GPU.one_of("some-layers", "experts", "none"), LAYERS_ON_CPU > 0),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The weights are more than a third of the system memory."),
            WEIGHTS_OF_RAM > 0.35,
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It runs inside Windows' Linux, or on Windows, where less may be locked."),
            OS.one_of("wsl", "windows"),
            if_true=SLIGHT,
        ),
        Clue(
            words("The message is out of memory of a device."),
            FAILURE_ABOUT.one_of("gpu-memory", "host-memory"),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
    ),
    tests=(
        Test(
            variable="env.GGML_CUDA_NO_PINNED",
            start=None,
            to="1",
            keep=("ctx", "gpu_layers", "overrides", "ubatch"),
            minutes=4,
            reason=words(
                "Without page-locked buffers ordinary memory is used; copies are somewhat slower, and nothing is lost."
            ),
            expects=(
                Expect(
                    "pinned-host-memory-limit",
                    not_(ALLOC_FAILED.is_(True)),
                    words("It loads, and the card fills as planned."),
                ),
            ),
        ),
    ),
)
