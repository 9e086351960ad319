"""The engine's own planner misjudges the need, or was given a wrong free value.

What it looks for
    A server that sizes itself; an estimate that differs from what is used, or a free value of zero; another version or another program that fits the same
    load.

Why it happens
    Planners use formulas by architecture and a free value from the driver. A new architecture, several devices, hybrid layers or a driver that reports
    nothing make them place too much or divide by zero.

What would prove it wrong
    With the placement set by hand to what the planner chose, it still fails although the measured need fits.

References
    - Ollama's memory estimates, llama.cpp's `--fit`, LM Studio's guardrails; `cudaMemGetInfo`, `hipMemGetInfo`.
    - Look-alikes: other-process-vram (the memory is taken), mmproj-vram (the planner leaves the projector out), default-ctx-tier-changed.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    ALLOC_FAILED,
    BACKEND,
    FAILURE_ABOUT,
    FAILURE_AT_START,
    FIT_FAILED_SEEN,
    FREE_REPORTED_ZERO,
    GPU_LAYERS,
    OTHER_VRAM_BYTES,
    PLAN_OF_PREDICTED,
    TOLD_ESTIMATE,
    TOLD_OLDER_VERSION,
    TOLD_OTHER_ENGINE,
    TOLD_OTHERS_ON_GPU,
    TOLD_SELF_SIZED,
    TOLD_WHEN,
)

RULE = Rule(
    cause="memory-estimate-bug",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The estimate is far from what is used, or looks wrong."),
            TOLD_ESTIMATE.one_of("too-low", "too-high", "zero", "wrong"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(words("A device reported no free memory at all."), FREE_REPORTED_ZERO.is_(True), if_true=FAIR),
        Clue(
            words("The server chose by itself how much to put on the card."),
            TOLD_SELF_SIZED.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The engine's own plan has less than two thirds of what the model file needs."),
            PLAN_OF_PREDICTED < 0.67,
            if_true=FAIR,
        ),
        Clue(words("The engine's own planner could not make it fit."), FIT_FAILED_SEEN.is_(True), if_true=FAIR),
        Clue(
            words("Another version, or another program, fits the same load."),
            any_of(TOLD_OLDER_VERSION.is_(True), TOLD_OTHER_ENGINE.is_("works")),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The server is one that plans by itself."),
            BACKEND.one_of("ollama", "lm-studio", "koboldcpp"),
            if_true=SLIGHT,
        ),
        Clue(
            words("The failure is about memory, or is an internal error while loading."),
            any_of(
                FAILURE_ABOUT.one_of("gpu-memory", "host-memory", "memory-guard"),
                all_of(FAILURE_ABOUT.is_("internal"), FAILURE_AT_START.is_(True)),
            ),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("A picture or a projector is in play, which planners leave out."),
            TOLD_WHEN.has("with-picture"),
            if_true=-FAIR,
        ),
        Clue(
            words("Another program holds the device's memory."),
            any_of(TOLD_OTHERS_ON_GPU.has("other-program"), OTHER_VRAM_BYTES > 1_000_000_000),
            if_true=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="gpu_layers",
            start=GPU_LAYERS,
            to=Computed(
                words("a number set by hand, three quarters of the layers"),
                lambda facts: _by_hand(facts.value(GPU_LAYERS)),
            ),
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words("A placement that is set by hand leaves the planner out."),
            expects=(
                Expect(
                    "memory-estimate-bug",
                    not_(ALLOC_FAILED.is_(True)),
                    words("It loads, and the memory that is used is what was measured before."),
                ),
            ),
        ),
        Test(
            variable="other-version",
            kind="habit",
            minutes=20,
            reason=words(
                "Run the same load on the version before or after (or plain llama-server with the same file): if it fits, report both estimates."
            ),
        ),
    ),
)


def _by_hand(layers: int | None) -> int | None:
    return layers * 3 // 4 if layers and 0 < layers < 999 else None
