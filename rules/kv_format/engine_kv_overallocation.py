"""The engine allocates more cache than the architecture needs.

What it looks for
    A cache that is a multiple of what the model file's arithmetic says; full-length cache for sliding-window layers; another engine that needs far
    less for the same window.

Why it happens
    An engine that does not know an architecture's short caches (sliding windows, compressed or recurrent state) keeps the full length for every
    layer; some do so on purpose, for context shift or cache reuse.

What would prove it wrong
    The allocated cache is what the architecture's formula gives.

References
    - llama.cpp: `--swa-full`, "using full-size SWA cache"; engines without iSWA for Gemma, gpt-oss; MLA without absorbed caches.
    - Look-alikes: parallel-multiplies-kv (a multiple by slots), kv-cache-size (the formula's own need).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    ALLOC_COMPONENT,
    IS_MEMORY_FAILURE,
    KV_BYTES,
    KV_OVER_EXPECTED,
    LOGGED_OF_PREDICTED,
    RECURRENT,
    SLIDING_WINDOW,
    SWA_CACHE_FULL,
    SWA_FULL,
    TOLD_MODEL_KIND,
    TOLD_NEED_EXCESS,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_MODELS,
    WINDOW_SLOTS,
)

RULE = Rule(
    cause="engine-kv-overallocation",
    prior={"immediate-oom": SLIGHT},
    explains=("kv-cache-size",),
    clues=(
        Clue(
            words("The cache is more than one and a half times what the architecture needs."),
            KV_OVER_EXPECTED > 1.5,
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Sliding-window layers keep a cache of full length."),
            any_of(SWA_CACHE_FULL.is_(True), SWA_FULL.is_(True)),
            if_true=STRONG,
        ),
        Clue(
            words("The cache takes more than its maker, another program or arithmetic says."),
            TOLD_NEED_EXCESS.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The model has layers that need less than a full-length cache."),
            any_of(
                SLIDING_WINDOW > 0,
                RECURRENT.is_(True),
                TOLD_MODEL_KIND.has("sliding"),
                TOLD_MODEL_KIND.has("hybrid"),
                TOLD_MODEL_KIND.has("mla"),
            ),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("Another program does with less."), TOLD_OTHER_ENGINE.is_("works"), if_true=FAIR, if_false=-FAIR),
        Clue(words("Other models fit as expected."), TOLD_OTHER_MODELS.is_("fine"), if_true=SLIGHT),
        Clue(words("The server has more than one slot."), WINDOW_SLOTS > 1, if_true=-SLIGHT),
        Clue(
            words("What could not be allocated was the cache, if anything."),
            ALLOC_COMPONENT.one_of("kv", "state"),
            if_false=-FAIR,
        ),
        Clue(words("The failure is about memory."), IS_MEMORY_FAILURE.is_(True), if_false=-DECISIVE),
        Clue(
            words("In all, the log has half more than the model file needs with these settings."),
            LOGGED_OF_PREDICTED > 1.5,
            if_true=SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="swa_full",
            when=any_of(SWA_FULL.is_(True), SWA_CACHE_FULL.is_(True)),
            start=SWA_FULL,
            to=False,
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words(
                "Sliding-window layers then keep their window only; a cached beginning can be resumed at fewer places."
            ),
            expects=(
                Expect(
                    "engine-kv-overallocation",
                    before(KV_BYTES) * 0.7 > KV_BYTES,
                    words("The cache shrinks to a fraction."),
                ),
            ),
        ),
        Test(
            variable="other-engine",
            kind="habit",
            minutes=30,
            reason=words(
                "Load the same file in another program at the same window, and compare the cache: if it is a fraction there, report both numbers."
            ),
        ),
    ),
)
