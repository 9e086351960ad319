"""The client changes text near the start of the prompt each turn.

What it looks for
    A chat that is read in whole (or, while it is shifted, sometimes in whole) although the server keeps a cache: the very same prompt is fast the second time;
    a client that adds dates, counters, checksums, memories, world notes or re-ordered tools; a client that was updated; another client that is fast.

Why it happens
    A cache of prompts is a cache of beginnings. One changed token makes everything behind it new, so a header with the time, a version or a summary that is
    rewritten each turn costs a full prefill each turn.

What would prove it wrong
    The raw bodies of two consecutive requests have the same beginning, up to the new message.

References
    - The watch proxy of this tool counts how much of each prompt's beginning equals the one before. llama.cpp logs the similarity of a slot's prompt.
    - KoboldCpp's context shift needs the new prompt to be the old one less one block.
    - Look-alikes: prompt-cache-miss-swa-hybrid (this model only), prompt-cache-evicted (other requests or a pause), prompt-cache-not-implemented.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    BEGINNING_CHANGED,
    CACHED_ON_EXTENSION,
    CACHED_ON_REPEAT,
    CACHED_ON_RETURN,
    CONTEXT_SHIFT_SEEN,
    FULL_REPROCESS_REASON,
    REUSED_SHARE,
    SPEED_SHAPE,
    TOLD_CHANGED,
    TOLD_CLIENT,
    TOLD_OTHER_CLIENT,
    TOLD_OTHER_MODELS,
    TOLD_PREFIX_CHANGES,
    TOLD_REQUESTS_BETWEEN,
    TOLD_REREADS,
    TOLD_SAME_PROMPT_AGAIN,
    TOLD_SHIFT_ON,
    TOLD_SLOW_PART,
    TOLD_WHEN,
)

RULE = Rule(
    cause="prompt-cache-miss-prefix-changed",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The client changes something near the beginning of each prompt."),
            TOLD_PREFIX_CHANGES.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The log says that the prompt differs from the one before."),
            FULL_REPROCESS_REASON.is_("prefix"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("All of the chat is read again, at each message or at some."),
            TOLD_REREADS.one_of("all", "sometimes-all"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("The client was changed before it began."), TOLD_CHANGED.has("client"), if_true=FAIR),
        Clue(
            words("The client is one that builds prompts itself."),
            TOLD_CLIENT.one_of("agent", "chat-app", "retrieval", "proxy"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The very same prompt is fast the second time."),
            TOLD_SAME_PROMPT_AGAIN.is_("second"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Another client is fast with the same server and model."), TOLD_OTHER_CLIENT.is_(True), if_true=FAIR
        ),
        Clue(
            words("Reading is what is slow."),
            TOLD_SLOW_PART.one_of("reading", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The log shows turns that reused less than half of the prompt."), REUSED_SHARE < 0.5, if_true=SLIGHT
        ),
        Clue(words("It comes after a pause."), TOLD_WHEN.has("after-idle"), if_true=-STRONG),
        Clue(
            words(
                "With context shift on, some turns are quick and others are not: the text before was changed in those."
            ),
            all_of(any_of(TOLD_SHIFT_ON.is_(True), CONTEXT_SHIFT_SEEN.is_(True)), SPEED_SHAPE.is_("alternates")),
            if_true=FAIR,
        ),
        Clue(words("Other models on the same server are fine."), TOLD_OTHER_MODELS.is_("fine"), if_true=-FAIR),
        Clue(words("Other requests come between."), TOLD_REQUESTS_BETWEEN.is_(True), if_true=-FAIR),
        Clue(
            words("Our own prompts left with one beginning and reached the server with different ones."),
            BEGINNING_CHANGED.is_(True),
            if_true=DECISIVE,
        ),
        Clue(
            words("Our own requests, with one beginning, are served from the cache."),
            all_of(
                CACHED_ON_REPEAT > 0.8,
                CACHED_ON_EXTENSION > 0.8,
                any_of(not_(CACHED_ON_RETURN.known()), CACHED_ON_RETURN > 0.5),
            ),
            if_true=FAIR,
            if_false=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="the client's changing header",
            kind="habit",
            minutes=10,
            reason=words(
                "Compare the raw bodies of two consecutive requests: reuse ends at the first character that differs. Switch off what the client puts there."
            ),
            expects=(
                Expect("prompt-cache-miss-prefix-changed", REUSED_SHARE > 0.8, words("Only the new message is read.")),
            ),
        ),
        Test(
            variable="cache-reuse",
            kind="probe",
            minutes=4,
            reason=words(
                "If our own prompts with one beginning come from the cache, the server is right and the client changes its text."
            ),
        ),
    ),
)
