"""A vision projector, or its spike while encoding, takes the room.

What it looks for
    A failure with the first picture while text runs well; a projector that is loaded on the card; a cure by moving it to the processor or leaving it out.

Why it happens
    The projector has weights and scratch of its own, and encoding a large picture needs a passing peak. Automatic placement fills the card without
    counting either.

What would prove it wrong
    Without the projector, the same text fails as well; or the picture fails with the projector on the processor too.

References
    - llama.cpp: `--no-mmproj-offload`, "worst-case memory usage of mmproj", `alloc_compute_meta`.
    - Look-alikes: memory-estimate-bug (text fails too), prefill-activation-peak (long text, no picture).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    FAILURE_ABOUT,
    FAILURE_STAGE,
    PROJECTOR,
    TOLD_PROJECTOR_OFF,
    TOLD_SELF_SIZED,
    TOLD_WHEN,
)

RULE = Rule(
    cause="mmproj-vram",
    prior={"immediate-oom": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(
            words("It fails when a picture is sent."),
            any_of(TOLD_WHEN.has("with-picture"), FAILURE_STAGE.is_("picture")),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("A vision projector is loaded."), PROJECTOR.is_(True), if_true=SLIGHT, if_false=-DECISIVE),
        Clue(
            words("It works without the projector, or without pictures."),
            TOLD_PROJECTOR_OFF.is_("cures"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The allocation that failed was for the projector."), ALLOC_COMPONENT.is_("projector"), if_true=STRONG
        ),
        Clue(
            words("The failure is about memory."),
            FAILURE_ABOUT.one_of("gpu-memory", "one-piece", "memory-guard"),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("The server chose by itself how much to put on the card."), TOLD_SELF_SIZED.is_(True), if_true=SLIGHT
        ),
    ),
    tests=(
        Test(
            variable="mmproj_offload",
            start=True,
            to=False,
            keep=("ctx", "mmproj", "gpu_layers", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words(
                "On the processor the projector takes nothing from the card; pictures are encoded more slowly, and nothing is lost."
            ),
            expects=(Expect("mmproj-vram", not_(ALLOC_FAILED.is_(True)), words("The same picture passes.")),),
        ),
    ),
)
