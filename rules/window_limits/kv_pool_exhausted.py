"""Slots share one pool of cache, and it is full.

What it looks for
    Requests that pass alone and fail together; slots that each show the whole window; a log or an answer that says that no free cell was found.

Why it happens
    With a shared (unified) pool each slot may use all of it, so the sum of what is alive must fit, not each request. The number shown for a slot
    is no promise. Whoever comes last, or everybody, is thrown out when the cells run out.

What would prove it wrong
    With one request at a time the failure stays; or the slots have parts of their own.

References
    - llama.cpp server: automatic slots with `--kv-unified`, "failed to find free space in the KV cache", "Context size has been exceeded", "purging slot".
    - vLLM and SGLang: preemption and retraction when the pool is full.
    - Look-alikes: slots-divide-ctx (one request alone fails at a share), concurrency-limit (refused at once, by a count, not by tokens),
      prefill-activation-peak (out of memory, not out of cells).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    FAILURE_ABOUT,
    POOL_FULL_SEEN,
    TOGETHER_FAILS,
    TOLD_SLOTS_SET,
    WINDOW_IS_DIVIDED,
    WINDOW_POOL_HOLDS_ALL,
    WINDOW_SHARE_OF_ASKED,
    WINDOW_SLOTS,
    WINDOW_UNIFIED,
)

RULE = Rule(
    cause="kv-pool-exhausted",
    prior={"flaky": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(words("The server found no free cells in its cache."), POOL_FULL_SEEN.is_(True), if_true=STRONG),
        Clue(words("Requests that pass alone fail together."), TOGETHER_FAILS.is_(True), if_true=FAIR, if_false=-FAIR),
        Clue(
            words("The slots share one pool: each shows the whole window."),
            any_of(
                WINDOW_UNIFIED.is_(True),
                all_of(WINDOW_SLOTS > 1, WINDOW_SHARE_OF_ASKED > 0.95),
            ),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The pool holds the whole window of every slot at once."),
            WINDOW_POOL_HOLDS_ALL.is_(True),
            if_true=-STRONG,
        ),
        Clue(words("The number of slots was chosen by the server."), TOLD_SLOTS_SET.is_("chosen"), if_true=SLIGHT),
        Clue(
            words("The failure is about the window or room in the cache, not about memory of a device."),
            FAILURE_ABOUT.one_of("no-room", "too-long"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="parallel",
            start=WINDOW_SLOTS,
            to=1,
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words("With one slot nobody else takes cells: requests wait for each other instead of failing."),
            also=("slots-divide-ctx", "parallel-multiplies-kv"),
            expects=(
                Expect(
                    "kv-pool-exhausted",
                    not_(TOGETHER_FAILS.is_(True)),
                    words("The same requests, sent together, all pass, one after the other."),
                ),
            ),
        ),
        Test(
            variable="kv_unified",
            start=WINDOW_UNIFIED,
            to=False,
            keep=("ctx", "parallel"),
            quality="some",
            minutes=4,
            reason=words("With a part of its own, each slot has a limit that can be foreseen, and is smaller."),
            expects=(
                Expect(
                    "kv-pool-exhausted",
                    WINDOW_IS_DIVIDED.is_(True),
                    words("Each slot shows its share, and prompts over it are refused at once."),
                ),
            ),
        ),
    ),
)
