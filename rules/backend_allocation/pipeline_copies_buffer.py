"""Several devices turn on pipeline parallelism, and buffers are kept several times.

What it looks for
    More than one device, a log that says that copies are kept, and a compute buffer out of all proportion; one device needs less.

Why it happens
    To keep several devices busy at once the scheduler keeps inputs and graphs n times (four by default in many builds). With weights partly in
    system memory, or large batches, the copies alone can be larger than the model.

What would prove it wrong
    With one device, or a build with one copy, the same buffer is as large.

References
    - llama.cpp and ik_llama.cpp: "pipeline parallelism enabled (n_copies=4)", `GGML_SCHED_MAX_COPIES`.
    - Look-alikes: compute-buffer-too-big (proportional to the micro-batch), uneven-gpu-split.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    ALLOC_BYTES,
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    COMPUTE_BYTES,
    COMPUTE_OF_KV,
    DEVICE_COUNT,
    LAUNCH_FAILED,
    LAYERS_ON_CPU,
    PIPELINE_COPIES,
    SMALLER_BATCH_WORKS,
    SMALLER_WINDOW_WORKS,
    TOLD_CHANGED,
    TOLD_ON_GPU,
    TOLD_ONE_CARD_WORKS,
    UBATCH,
)

RULE = Rule(
    cause="pipeline-copies-buffer",
    prior={"immediate-oom": SLIGHT},
    explains=("compute-buffer-too-big",),
    clues=(
        Clue(words("Copies are kept for pipeline parallelism."), PIPELINE_COPIES > 1, if_true=FAIR, if_false=-FAIR),
        Clue(words("More than one device is in use."), DEVICE_COUNT > 1, if_true=SLIGHT, if_false=-DECISIVE),
        Clue(
            words("The compute buffer is many times the cache."),
            all_of(COMPUTE_OF_KV > 4.0, ALLOC_FAILED.is_(True)),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The allocation that failed was for the graph's scratch."),
            ALLOC_COMPONENT.one_of("compute", "output"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("It needs less, or works, with one device or without pipeline parallelism."),
            TOLD_ONE_CARD_WORKS.is_(True),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(words("A device was added before it began."), TOLD_CHANGED.has("hardware"), if_true=FAIR),
        Clue(
            words("Some weights are in system memory, so that the graph changes place often."),
            any_of(TOLD_ON_GPU.one_of("experts", "some-layers"), LAYERS_ON_CPU > 0),
            if_true=SLIGHT,
        ),
        Clue(words("It works with a smaller micro-batch."), SMALLER_BATCH_WORKS.is_(True), if_true=-SLIGHT),
        Clue(words("It works with a smaller window."), SMALLER_WINDOW_WORKS.is_(True), if_true=-SLIGHT),
    ),
    tests=(
        Test(
            variable="pipeline_copies",
            start=PIPELINE_COPIES,
            to=1,
            keep=("ctx", "ubatch", "tensor_split", "kv_type_k", "kv_type_v"),
            minutes=20,
            reason=words(
                "With one copy (a build with GGML_SCHED_MAX_COPIES=1, or pipeline parallelism off) the graph is kept once."
            ),
            expects=(
                Expect(
                    "pipeline-copies-buffer",
                    any_of(LAUNCH_FAILED.is_(False), before(COMPUTE_BYTES) * 0.6 > COMPUTE_BYTES),
                    words("It loads: the compute buffer shrinks by the number of copies."),
                ),
                Expect(
                    "compute-buffer-too-big",
                    ALLOC_COMPONENT.is_("compute"),
                    words("If scratch is too large by itself, it still fails."),
                ),
            ),
        ),
        Test(
            variable="ubatch",
            start=UBATCH,
            to=256,
            keep=("ctx", "tensor_split"),
            minutes=4,
            reason=words("Each copy is as large as the micro-batch makes it."),
            also=("compute-buffer-too-big",),
            expects=(
                Expect(
                    "pipeline-copies-buffer",
                    any_of(LAUNCH_FAILED.is_(False), before(ALLOC_BYTES) * 0.7 > ALLOC_BYTES),
                    words("The buffer shrinks in proportion."),
                ),
            ),
        ),
    ),
)
