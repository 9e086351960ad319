"""The driver moves pages to shared system memory: no error, the GPU busy, hardly any memory traffic.

What it looks for
    A card that is (nearly) full, no error, and speed that falls off a step: at the length where the card is full, or from one load to the next. Shared or
    GTT memory that grows with it. The card says that it is busy, yet draws little power.

Why it happens
    Windows' display driver model and some Linux drivers do not refuse an allocation over the card's memory: they place or move it to system memory, which
    the card reads over the bus, ten to fifty times slower. Which pages go depends on what else holds the card at that moment.

What would prove it wrong
    With 1 GB kept free on the card (a shorter window), nothing else changed, it is as slow, and shared memory stays at zero.

References
    - Windows: Task Manager's shared GPU memory; the NVIDIA driver's "sysmem fallback policy"; Linux: amdgpu's `mem_info_gtt_used`.
    - Look-alikes: cpu-layer-offload (the program itself keeps layers in system memory; the processor is busy), depth-cost (a slope, no step),
      other-process-vram (what takes the room), gpu-transfer-bound.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    CONTROL_SAYS,
    DEVICE_COUNT,
    DEVICE_FILL,
    FAILURE_KINDS,
    GENERATION_LONG,
    NEED_OF_DEVICES,
    ONE_DEVICE_FULL,
    OS,
    POWER_RATIO,
    SHARED_GROWTH_BYTES,
    SPEED_SHAPE,
    SPEED_STEP,
    SPILL_SEEN,
    TOLD_BUSY,
    TOLD_GPU_MAKER,
    TOLD_ON_GPU,
    TOLD_RANDOM_RELOAD,
    TOLD_ROOM_LEFT,
    TOLD_SHARED_MEMORY,
    WINDOW_ASKED,
)

RULE = Rule(
    cause="vram-spill-shared-memory",
    prior={"slow-long-context": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(
            words("Shared memory of the card is in use while it is slow."),
            TOLD_SHARED_MEMORY.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("Shared memory grew while it ran."), SHARED_GROWTH_BYTES > 500 * 2**20, if_true=STRONG, if_false=-FAIR
        ),
        Clue(words("The log says that memory went to the host."), SPILL_SEEN.is_(True), if_true=FAIR),
        Clue(
            words("Speed falls off a step, or changes from load to load."),
            any_of(SPEED_SHAPE.one_of("step", "per-load"), SPEED_STEP.is_(True)),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It slows down more than a model that surely fits does over the same lengths."),
            CONTROL_SAYS.is_("steeper"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("It changes from one load to the next."), TOLD_RANDOM_RELOAD.is_(True), if_true=FAIR),
        Clue(
            words("What the model takes nearly fills the card, or more."),
            NEED_OF_DEVICES > 0.9,
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The card was at least 92 % full at the longest length."),
            DEVICE_FILL >= 0.92,
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The cards draw clearly less power at the longest length: they wait."),
            POWER_RATIO < 0.8,
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("It runs on Windows."), OS.one_of("windows", "wsl"), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(
            words("The card is busy, not the processor."),
            TOLD_BUSY.one_of("gpu", "gpu-low-power"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("One device was full while another had room."), ONE_DEVICE_FULL.is_(True), if_true=FAIR),
        Clue(
            words("Little memory was free on the card."), TOLD_ROOM_LEFT.is_("little"), if_true=SLIGHT, if_false=-SLIGHT
        ),
        Clue(
            words("The program itself keeps weights in system memory."),
            TOLD_ON_GPU.one_of("some-layers", "experts", "none"),
            if_true=-FAIR,
        ),
        Clue(
            words("Processor and graphics share one memory, or there is no card."),
            any_of(TOLD_GPU_MAKER.one_of("apple", "none"), DEVICE_COUNT < 1),
            if_true=-STRONG,
        ),
        Clue(
            words("It fails for lack of memory instead of becoming slow."),
            any_of(
                FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("one-piece"), FAILURE_KINDS.has("create-context")
            ),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_ASKED,
            to=Computed(
                words("three quarters of the window"),
                lambda facts: (facts.value(WINDOW_ASKED) or 0) * 3 // 4 // 256 * 256 or None,
            ),
            keep=("kv_type_k", "kv_type_v", "ubatch", "gpu_layers", "parallel"),
            minutes=5,
            reason=words(
                "With room on the card nothing has to move. The window is given back once it is known what spills."
            ),
            quality="some",
            expects=(
                Expect(
                    "vram-spill-shared-memory",
                    before(GENERATION_LONG) * 1.3 < GENERATION_LONG,
                    words("The speed comes back, and shared memory stays at zero."),
                ),
                Expect(
                    "depth-cost",
                    before(GENERATION_LONG) * 1.3 >= GENERATION_LONG,
                    words("If it is the price of length, the speed at the same length stays."),
                ),
            ),
        ),
    ),
)
