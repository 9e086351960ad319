"""The engine path keeps no prompt cache.

What it looks for
    The very same prompt, sent again at once with nothing in between, is read in whole each time; no cached tokens in any reply; a path without a cache:
    pictures loaded, a batch interface, a wrapper that starts anew for each request, a cache that is switched off.

Why it happens
    Not every server, and not every path of one, keeps state between requests. Some switch reuse off with a projector, with certain samplers, for embeddings,
    or for architectures they cannot cut; some have it off by default.

What would prove it wrong
    A repeat of the same prompt reports cached tokens, or is several times as fast.

References
    - `cached_tokens`, `cache_n` or `prompt_eval_count` in replies; llama.cpp `--no-cache-prompt`; vLLM `--no-enable-prefix-caching`; mlx-lm's prompt cache.
    - Look-alikes: prompt-cache-miss-prefix-changed (a repeat is fast), prompt-cache-miss-swa-hybrid (the third time is fast).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test
from rules.facts import (
    BEGINNING_CHANGED,
    CACHED_ON_REPEAT,
    PROJECTOR,
    PROMPT_CACHE_ON,
    TOLD_CHANGED,
    TOLD_OTHER_ENGINE,
    TOLD_PREFIX_CHANGES,
    TOLD_REREADS,
    TOLD_SAME_PROMPT_AGAIN,
    TOLD_SLOW_PART,
)

RULE = Rule(
    cause="prompt-cache-not-implemented",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The very same prompt is never fast."),
            TOLD_SAME_PROMPT_AGAIN.is_("never"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Nothing of a repeated prompt came from the cache."),
            CACHED_ON_REPEAT < 0.02,
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The server's settings switch the prompt cache off."),
            PROMPT_CACHE_ON.is_(False),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("All of the chat is read again at each message."),
            TOLD_REREADS.is_("all"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Reading is what is slow."),
            TOLD_SLOW_PART.one_of("reading", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("Another engine is fast."), TOLD_OTHER_ENGINE.is_("works"), if_true=SLIGHT),
        Clue(words("A part for pictures is loaded."), PROJECTOR.is_(True), if_true=SLIGHT),
        Clue(words("The client changes the prompt near its beginning."), TOLD_PREFIX_CHANGES.is_(True), if_true=-FAIR),
        Clue(words("The client was changed before it began."), TOLD_CHANGED.has("client"), if_true=-FAIR),
        Clue(
            words("Our own prompts left with one beginning and reached the server with different ones."),
            BEGINNING_CHANGED.is_(True),
            if_true=-DECISIVE,
        ),
    ),
    tests=(
        Test(
            variable="cache-reuse",
            kind="probe",
            minutes=3,
            reason=words(
                "Send one prompt twice with nothing in between: the server says how much of it came from the cache."
            ),
        ),
        Test(
            variable="cache_prompt",
            start=False,
            to=True,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            minutes=4,
            reason=words("If the cache is only switched off, switching it on costs no quality."),
            when=CACHED_ON_REPEAT < 0.02,
            expects=(
                Expect(
                    "prompt-cache-not-implemented",
                    CACHED_ON_REPEAT > 0.5,
                    words("A repeated prompt comes from the cache."),
                ),
            ),
        ),
    ),
)
