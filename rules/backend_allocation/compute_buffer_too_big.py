"""The graph (scratch) buffer does not fit.

What it looks for
    An allocation of a compute buffer that fails after weights and cache were placed; a large micro-batch, or attention without the fused kernel; a
    cure by a smaller micro-batch.

Why it happens
    Scratch holds the activations of one micro-batch against the whole window, and the output layer holds the vocabulary times the micro-batch. Both are
    reserved once for the worst case, so a large `-ub` at a long window asks for gigabytes.

What would prove it wrong
    With the micro-batch at an eighth the same allocation fails at the same size.

References
    - llama.cpp: "failed to allocate compute buffers", "compute buffer size", `-ub`; ggml_gallocr_reserve.
    - Look-alikes: pipeline-copies-buffer (the graph is kept several times), kv-cache-size (the cache fails first), uneven-gpu-split (one card only).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_OVER_LIMIT,
    COMPUTE_BYTES,
    COMPUTE_OF_KV,
    COMPUTE_SHARE,
    FLASH_ATTENTION,
    IS_MEMORY_FAILURE,
    LAUNCH_FAILED,
    OVERFLOW_COMPONENT,
    SAFE_UBATCH,
    SMALLER_BATCH_WORKS,
    SPECULATION,
    TOLD_CHANGED,
    UBATCH,
)

RULE = Rule(
    cause="compute-buffer-too-big",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The allocation that failed was for the graph's scratch."),
            ALLOC_COMPONENT.one_of("compute", "output"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(words("The micro-batch is 1024 or more."), UBATCH >= 1024, if_true=FAIR, if_false=-SLIGHT),
        Clue(
            words("It works, or fails later, with a smaller micro-batch."),
            SMALLER_BATCH_WORKS.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The compute buffer is at least a tenth of what the server may use."),
            COMPUTE_SHARE > 0.1,
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Flash attention is off, so that scratch grows with the window."),
            FLASH_ATTENTION.one_of("off", "forced-off"),
            if_true=SLIGHT,
        ),
        Clue(words("The micro-batch was raised before it began."), TOLD_CHANGED.has("batch"), if_true=FAIR),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("The compute buffer is many times the cache: more than one graph is kept."),
            COMPUTE_OF_KV > 8.0,
            if_true=-FAIR,
        ),
        Clue(words("Speculation is on, with a context of its own."), SPECULATION.is_(True), if_true=-FAIR),
        Clue(
            words("The allocation is over what the interface allows in one piece."),
            ALLOC_OVER_LIMIT.is_(True),
            if_true=-FAIR,
        ),
        Clue(
            words("By the model file, it is the scratch that passes the memory that there is."),
            OVERFLOW_COMPONENT.one_of("compute", "output"),
            if_true=FAIR,
        ),
    ),
    tests=(
        Test(
            variable="ubatch",
            start=UBATCH,
            to=Computed(
                words("the largest that fits by the model file; 512, or half of what is set, where that is not known"),
                lambda facts: facts.value(SAFE_UBATCH) or _smaller(facts.value(UBATCH)),
            ),
            keep=("ctx", "batch", "kv_type_k", "kv_type_v", "gpu_layers", "tensor_split"),
            minutes=4,
            reason=words("Scratch grows with the micro-batch; a smaller one costs some prefill speed and no quality."),
            also=("prefill-activation-peak",),
            expects=(
                Expect(
                    "compute-buffer-too-big",
                    any_of(LAUNCH_FAILED.is_(False), before(COMPUTE_BYTES) * 0.7 > COMPUTE_BYTES),
                    words("It loads: the compute buffer shrinks in proportion."),
                ),
                Expect(
                    "kv-cache-size",
                    ALLOC_COMPONENT.is_("kv"),
                    words("If the cache is what does not fit, it fails as before."),
                ),
            ),
        ),
        Test(
            variable="flash_attention",
            when=FLASH_ATTENTION.is_("off"),
            start=FLASH_ATTENTION,
            to="on",
            keep=("ctx", "ubatch"),
            minutes=4,
            reason=words("The fused kernel keeps no matrix of the whole window."),
            expects=(
                Expect(
                    "compute-buffer-too-big", LAUNCH_FAILED.is_(False), words("It loads with a smaller compute buffer.")
                ),
            ),
        ),
    ),
)


def _smaller(ubatch: int | None) -> int | None:
    if ubatch is None:
        return 256
    return 512 if ubatch > 512 else ubatch // 2 if ubatch > 32 else None
