"""A draft model, an MTP head or their cache take the room.

What it looks for
    Speculation that was turned on before memory ran short, and a cure by turning it off; a draft whose context is as long as the main one's, or the whole
    pool's.

Why it happens
    A draft has weights, a cache and scratch of its own. Its context is often raised to the main model's (or to the sum of all slots), its cache is not
    quantised with the main one's, and the planner does not count it.

What would prove it wrong
    Without speculation, nothing else changed, the same allocation fails.

References
    - llama.cpp: `--spec-type`, `-md`, `--ctx-size-draft`; vLLM's speculative config.
    - Look-alikes: kv-cache-size (no speculation), compute-buffer-too-big (a large micro-batch), speculative-overhead (fits, and is slow).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, not_
from rules.facts import (
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    DRAFT_BYTES,
    FAILURE_AT_START,
    IS_MEMORY_FAILURE,
    LAUNCH_FAILED,
    SPECULATION,
    TOLD_CHANGED,
    TOLD_SPECULATION,
    TOLD_SPECULATION_OFF,
    WINDOW_SLOTS,
)

RULE = Rule(
    cause="draft-mtp-vram",
    prior={"immediate-oom": SLIGHT},
    explains=("kv-cache-size", "cpu-layer-offload"),
    clues=(
        Clue(words("Speculation is on."), SPECULATION.is_(True), if_true=FAIR, if_false=-DECISIVE),
        Clue(
            words("It fits with speculation off."), TOLD_SPECULATION_OFF.is_("cures"), if_true=STRONG, if_false=-STRONG
        ),
        Clue(
            words("It began when speculation was turned on."),
            TOLD_CHANGED.has("speculation"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("The allocation that failed was for the draft."), ALLOC_COMPONENT.is_("draft"), if_true=STRONG),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("The draft is a model or head with a cache of its own."),
            TOLD_SPECULATION.one_of("draft", "built-in"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The server has more than one slot, for each of which a draft may be sized."),
            WINDOW_SLOTS > 1,
            if_true=SLIGHT,
        ),
        Clue(words("The draft's memory is known and small."), DRAFT_BYTES < 200_000_000, if_true=-FAIR),
        Clue(words("It fails while the server starts."), FAILURE_AT_START.is_(True), if_false=-SLIGHT),
    ),
    tests=(
        Test(
            variable="speculation",
            start=Computed(words("as it is set"), lambda facts: "on" if facts.value(SPECULATION) else None),
            to="none",
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel", "ubatch"),
            minutes=4,
            reason=words(
                "Without speculation its weights, cache and scratch are not needed; quality stays exactly the same."
            ),
            also=("speculative-overhead",),
            expects=(
                Expect(
                    "draft-mtp-vram",
                    any_of(LAUNCH_FAILED.is_(False), not_(ALLOC_FAILED.is_(True))),
                    words("It loads at the same window."),
                ),
                Expect(
                    "kv-cache-size",
                    ALLOC_FAILED.is_(True),
                    words("If the main cache does not fit, it fails as before."),
                ),
            ),
        ),
    ),
)
