"""Hardly anything is free right after the weights are loaded.

What it looks for
    An allocation of weights that fails, or weights that are most of what the server may use; the same failure with a small window.

Why it happens
    The model file is nearly as large as the memory. What is left cannot hold a cache, scratch and the driver's own share, whatever the window.

What would prove it wrong
    With a much smaller window, nothing else changed, it loads and runs.

References
    - llama.cpp: "unable to allocate … buffer" in load_model, "model buffer size"; vLLM: "No available memory for the cache blocks".
    - Look-alikes: kv-cache-size (a smaller window cures it), other-process-vram (the memory is there, and taken), metal-wired-limit.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_PLACE,
    ALLOC_ROOM,
    DEVICE_COUNT,
    FAILURE_AT_START,
    GPU_LAYERS,
    GPU_VENDOR,
    IS_MEMORY_FAILURE,
    LAUNCH_FAILED,
    OVERFLOW_COMPONENT,
    SAFE_GPU_LAYERS,
    SMALLER_WINDOW_WORKS,
    SPECULATION,
    TOLD_OTHER_MODELS,
    TOLD_OTHERS_ON_GPU,
    WEIGHTS_SHARE,
)

RULE = Rule(
    cause="weights-leave-no-room",
    prior={"immediate-oom": SLIGHT},
    explains=("cpu-layer-offload", "vram-spill-shared-memory"),
    clues=(
        Clue(
            words("The allocation that failed was for weights."),
            ALLOC_COMPONENT.is_("weights"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The weights are more than half of what the server may use."),
            WEIGHTS_SHARE > 0.5,
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(words("It works with a smaller window."), SMALLER_WINDOW_WORKS.is_(False), if_true=FAIR, if_false=-FAIR),
        Clue(
            words("It fails while the server loads, whatever is sent."),
            FAILURE_AT_START.is_(True),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Only smaller models work on the same server."), TOLD_OTHER_MODELS.is_("smaller-fine"), if_true=SLIGHT
        ),
        Clue(words("More memory was free on the device than was asked for."), ALLOC_ROOM.is_(True), if_true=-FAIR),
        Clue(
            words("Another program holds the device's memory."),
            any_of(
                TOLD_OTHERS_ON_GPU.has("other-program"),
                TOLD_OTHERS_ON_GPU.has("earlier-run"),
                TOLD_OTHERS_ON_GPU.has("same-server"),
            ),
            if_true=-SLIGHT,
        ),
        Clue(words("Speculation, with a model or head of its own, is on."), SPECULATION.is_(True), if_true=-SLIGHT),
        Clue(words("Several devices share the weights."), DEVICE_COUNT > 1, if_true=-SLIGHT),
        Clue(
            words("By the model file, the weights alone pass the memory that there is."),
            OVERFLOW_COMPONENT.is_("weights"),
            if_true=FAIR,
        ),
    ),
    tests=(
        Test(
            variable="gpu_layers",
            start=GPU_LAYERS,
            when=not_(any_of(ALLOC_PLACE.is_("cpu"), GPU_VENDOR.has("none"))),
            to=Computed(
                words("as many layers as fit by the model file; three quarters of them where that is not known"),
                lambda facts: _fewer(facts.value(GPU_LAYERS), facts.value(SAFE_GPU_LAYERS)),
            ),
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words("Layers in system memory make room; it is slower, and costs no quality."),
            also=("kv-cache-size",),
            expects=(Expect("weights-leave-no-room", LAUNCH_FAILED.is_(False), words("It loads, slower.")),),
        ),
        Test(
            variable="smaller-weights",
            kind="habit",
            quality="some",
            minutes=30,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            reason=words(
                "Take the same model with smaller weights, one quantisation down: they leave room for the cache, and the window stays as it is."
            ),
            expects=(
                Expect("weights-leave-no-room", LAUNCH_FAILED.is_(False), words("It loads with the same window.")),
                Expect(
                    "kv-cache-size",
                    LAUNCH_FAILED.is_(True),
                    words("If the cache is what does not fit, it fails at the cache, as before."),
                ),
            ),
        ),
        Test(
            variable="smaller-model",
            kind="habit",
            minutes=30,
            reason=words(
                "Take a model that is at most three quarters of the memory: the rest is for the cache, scratch and the driver."
            ),
        ),
    ),
)


def _fewer(layers: int | None, fit: int | None) -> int | None:
    if fit is not None:
        return fit
    return layers * 3 // 4 if layers and layers > 0 and layers < 999 else None
