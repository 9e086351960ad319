"""Slot, pool or position accounting goes wrong over time.

What it looks for
    Requests that are right on a fresh server fail after others have filled a window, been cancelled or run for long:
    a new, short chat fails with a message
    about the window, the shift or free cells; only a fresh start cures it; the card has memory, and no kernel fails.

Why it happens
    A server counts positions, cells and slots across requests. A path that forgets to set a counter back (after an
    overflow, a cancelled request, a shift) leaves
    the slot in a state in which nothing fits, or in which it waits for ever.

What would prove it wrong
    The same short request fails on a freshly started server too.

References
    - llama.cpp: `GET /slots`, "failed to find free space in the KV cache"; vLLM and SGLang: the number of free blocks with no request running.
    - Look-alikes: kv-pool-exhausted (others are running at that moment), kv-cache-corruption-bug (wrong text, not an error), host-memory-growth.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of
from rules.facts import (
    FAILURE_ABOUT,
    FAILURE_KINDS,
    TOLD_CHANGED,
    TOLD_FRESH_START,
    TOLD_GPU_SEEN,
    TOLD_MEMORY_GROWS,
    TOLD_NEW_CHAT,
    TOLD_RETRY_PASSES,
    TOLD_SAME_BEGINNING,
    TOLD_SHORT_IS_RIGHT,
    TOLD_WHEN,
)

_OTHERS_OWN = (
    "gpu-memory",
    "host-memory",
    "one-piece",
    "memory-guard",
    "create-context",
    "kernel",
    "device-lost",
    "machine-restarts",
    "needs-setting",
    "too-many",
)
"""Kinds of failure that have causes of their own. A refusal, a time limit, or silence, may also be a server's that went wrong."""

RULE = Rule(
    cause="server-state-bug",
    prior={"flaky": SLIGHT},
    clues=(
        Clue(
            words("A fresh start of the server cures it."),
            TOLD_FRESH_START.one_of("cures", "for-a-while"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(words("A new, empty chat fails too."), TOLD_NEW_CHAT.is_(False), if_true=FAIR, if_false=-FAIR),
        Clue(
            words("The error is about a shift or free cells, or an internal one."),
            any_of(FAILURE_KINDS.has("shift"), FAILURE_KINDS.has("no-room"), FAILURE_KINDS.has("internal")),
            if_true=FAIR,
        ),
        Clue(
            words("The error is about memory, a kernel, the device or a setting."),
            FAILURE_ABOUT.one_of(*_OTHERS_OWN),
            if_true=-FAIR,
        ),
        Clue(
            words("It comes after a window was full, after hours, or now and then."),
            any_of(TOLD_WHEN.has("window-full"), TOLD_WHEN.has("over-time"), TOLD_WHEN.has("now-and-then")),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("Short requests fail too."), TOLD_SHORT_IS_RIGHT.is_(False), if_true=SLIGHT),
        Clue(words("The very same request fails again."), TOLD_RETRY_PASSES.is_(False), if_true=SLIGHT),
        Clue(words("The server was changed before it began."), TOLD_CHANGED.has("server"), if_true=SLIGHT),
        Clue(
            words("A memory grows over time: then it is that."),
            TOLD_MEMORY_GROWS.one_of("ram", "gpu", "both"),
            if_true=-SLIGHT,
        ),
        Clue(words("Only prompts with one beginning go wrong."), TOLD_SAME_BEGINNING.is_(True), if_true=-SLIGHT),
        Clue(
            words("The server lost the card, and computes on the processor."),
            TOLD_GPU_SEEN.one_of("unused", "gone"),
            if_true=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="a fresh start before the failing request",
            kind="habit",
            minutes=4,
            reason=words(
                "Restart the server and send only the request that failed. If it passes, send the history before it, and then it again."
            ),
            expects=(
                Expect(
                    "server-state-bug",
                    FAILURE_KINDS.has("none"),
                    words("It passes on a fresh server, and fails after the others."),
                ),
            ),
        ),
    ),
)
