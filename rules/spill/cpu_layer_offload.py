"""The window pushed whole layers to the CPU.

What it looks for
    Layers that are not on the card although it could hold the weights, fewer than before or with a shorter window; a loaded size over the card's memory; the
    processor busy while the card idles; another program with a smaller window is fast.

Why it happens
    Programs that fit a model to the card count weights and cache for the window asked for, and put what does not fit into system memory, layer by layer.
    Each such layer is computed by the processor at a tenth of the speed or less. A client that asks for a long window is enough to trigger it.

What would prove it wrong
    With a window of 4096, nothing else changed, as many layers stay off the card, or it is as slow with all of them on it.

References
    - Ollama: the PROCESSOR and CONTEXT columns of `ollama ps`; llama.cpp: "offloaded N/M layers to GPU", `--fit`; LM Studio: GPU offload.
    - Look-alikes: vram-spill-shared-memory (the driver moved it; all layers are "on the card"), parallel-multiplies-kv and default-ctx-tier-changed (why
      the window's cache is so large: the roots of this one), mmap-or-swap-paging (the disk is busy).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    GENERATION_SHORT,
    LAYERS_ON_CPU,
    NEED_OF_DEVICES,
    PART_ON_CPU,
    SPEED_COMPLAINT,
    SPEED_SHAPE,
    TOLD_BUSY,
    TOLD_CHANGED,
    TOLD_DISK,
    TOLD_LAYERS_FELL,
    TOLD_ON_GPU,
    TOLD_OTHER_CLIENT,
    TOLD_SHARED_MEMORY,
    TOLD_SMALLER_WINDOW,
    TOLD_WINDOW_SET,
    WINDOW_ASKED,
    WINDOW_SLOTS,
)

RULE = Rule(
    cause="cpu-layer-offload",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("Some layers are in system memory."), TOLD_ON_GPU.is_("some-layers"), if_true=SLIGHT, if_false=-FAIR
        ),
        Clue(
            words("The log or the server says that layers are not on the card."),
            PART_ON_CPU.is_(True),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(
            words("Fewer layers went to the card than before or than expected."),
            TOLD_LAYERS_FELL.is_(True),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("What the loaded model takes is more than the card has."),
            all_of(NEED_OF_DEVICES > 1.0, SPEED_COMPLAINT.is_(True)),
            if_true=STRONG,
        ),
        Clue(words("The processor is busy."), TOLD_BUSY.one_of("cpu", "both"), if_true=FAIR, if_false=-SLIGHT),
        Clue(
            words("It is fast with a smaller window."), TOLD_SMALLER_WINDOW.is_("cures"), if_true=FAIR, if_false=-SLIGHT
        ),
        Clue(
            words("Another client is fast with the same server and model."), TOLD_OTHER_CLIENT.is_(True), if_true=SLIGHT
        ),
        Clue(words("It is slow at every length."), SPEED_SHAPE.is_("always"), if_true=SLIGHT),
        Clue(
            words("Several slots each reserve a window: what is on the processor follows from that."),
            WINDOW_SLOTS > 1,
            if_true=-FAIR,
        ),
        Clue(
            words("The server was changed and chooses the window itself: what is on the processor follows from that."),
            all_of(TOLD_CHANGED.has("server"), TOLD_WINDOW_SET.is_("not-set")),
            if_true=-FAIR,
        ),
        Clue(words("Shared memory of the card is in use."), TOLD_SHARED_MEMORY.is_(True), if_true=-FAIR),
        Clue(words("The disk is read all the time."), TOLD_DISK.is_("reads"), if_true=-FAIR),
        Clue(
            words("It fails instead of becoming slow."),
            any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("create-context")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_ASKED,
            to=8192,
            keep=("kv_type_k", "kv_type_v", "ubatch", "parallel", "model_path"),
            minutes=4,
            reason=words("A shorter window needs less cache, so that all layers have room on the card."),
            also=("kv-cache-size", "vram-spill-shared-memory"),
            quality="some",
            expects=(
                Expect(
                    "cpu-layer-offload",
                    any_of(before(LAYERS_ON_CPU) > LAYERS_ON_CPU, before(GENERATION_SHORT) * 1.3 < GENERATION_SHORT),
                    words("More layers go to the card, and the speed of short prompts rises."),
                ),
                Expect(
                    "depth-cost",
                    before(GENERATION_SHORT) * 1.3 >= GENERATION_SHORT,
                    words("If it is the price of length, short prompts are as fast as before."),
                ),
            ),
        ),
    ),
)
