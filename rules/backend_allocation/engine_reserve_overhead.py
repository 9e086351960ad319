"""CUDA graphs or other reserves beyond weights and cache do not fit.

What it looks for
    Memory that runs out while graphs are captured or the engine warms up, after weights and cache were placed; an engine that fills a fixed share of the
    card; an upgrade that captures more.

Why it happens
    Engines take a share of the card for weights and cache and then record graphs for many batch sizes, or reserve workspaces, out of the rest. A new
    engine version records more; quantised weights need more workspaces.

What would prove it wrong
    With graphs off (eager mode), nothing else changed, it fails at the same point.

References
    - vLLM: `--enforce-eager`, "Graph capturing", `--gpu-memory-utilization`; SGLang: `--cuda-graph-max-bs`, `--mem-fraction-static`.
    - Look-alikes: kv-cache-size (the cache is what fails), prefill-activation-peak (while a prompt is read), memory-estimate-bug.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    ALLOC_FAILED,
    BACKEND,
    FAILURE_ABOUT,
    FAILURE_AT_START,
    FAILURE_STAGE,
    GRAPHS_SEEN,
    MEMORY_SHARE_SET,
    TOLD_CHANGED,
    TOLD_OLDER_VERSION,
    TOLD_OTHERS_ON_GPU,
)

RULE = Rule(
    cause="engine-reserve-overhead",
    prior={"immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("Memory ran out while graphs were captured or other reserves were made."),
            GRAPHS_SEEN.is_(True),
            if_true=STRONG,
        ),
        Clue(
            words("The server is one that fills a share of the card and captures graphs."),
            BACKEND.one_of("vllm", "sglang", "tabbyapi"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("It began with another version of the server."),
            all_of(TOLD_CHANGED.has("server"), not_(TOLD_CHANGED.has("window"))),
            if_true=SLIGHT,
        ),
        Clue(
            words("The version before works with the same settings."),
            TOLD_OLDER_VERSION.is_(True),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It failed while buffers were reserved or it warmed up."),
            FAILURE_STAGE.is_("buffers"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("It fails while the server starts, before any request."),
            FAILURE_AT_START.is_(True),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(words("The engine may fill more than 92 % of the card."), MEMORY_SHARE_SET > 0.92, if_true=SLIGHT),
        Clue(
            words("The failure is about memory of a device."),
            FAILURE_ABOUT.one_of("gpu-memory", "memory-guard"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("Another program holds the device's memory."),
            any_of(TOLD_OTHERS_ON_GPU.has("other-program"), TOLD_OTHERS_ON_GPU.has("earlier-run")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="eager",
            start=False,
            to=True,
            keep=("ctx", "memory_share", "kv_type_k", "kv_type_v", "parallel"),
            minutes=5,
            reason=words("Without graphs nothing is captured; it costs some speed at small batches and no quality."),
            expects=(
                Expect("engine-reserve-overhead", not_(ALLOC_FAILED.is_(True)), words("It starts.")),
                Expect(
                    "kv-cache-size", ALLOC_FAILED.is_(True), words("If the cache does not fit, it fails as before.")
                ),
            ),
        ),
        Test(
            variable="memory_share",
            start=MEMORY_SHARE_SET,
            to=Computed(
                words("eight hundredths less"), lambda facts: round((facts.value(MEMORY_SHARE_SET) or 0.9) - 0.08, 2)
            ),
            keep=("ctx",),
            minutes=5,
            quality="none",
            reason=words("A smaller share leaves room for reserves; the cache holds fewer tokens."),
            also=("prefill-activation-peak",),
            expects=(
                Expect(
                    "engine-reserve-overhead",
                    not_(ALLOC_FAILED.is_(True)),
                    words("It starts, with room for fewer tokens."),
                ),
            ),
        ),
    ),
)
