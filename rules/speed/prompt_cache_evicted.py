"""Another request or an idle policy throws the cached prefix away.

What it looks for
    A chat that is sometimes read in whole and sometimes not: after a pause, or after other requests (titles, summaries, other agents or users) came between;
    few slots; log lines about a slot or cache that was erased.

Why it happens
    A slot keeps one conversation. Another request takes the slot, a timer empties it to save memory, or a bounded store drops the oldest entry. The next
    message of the first conversation then finds nothing.

What would prove it wrong
    With nothing else sent in between and no pause, it is read in whole all the same.

References
    - llama.cpp: `--parallel`, `--cache-ram`, `--slot-prompt-similarity`; Ollama: `keep_alive`; vLLM: free blocks are reused
      oldest first; wrappers with idle timers.
    - Look-alikes: prompt-cache-miss-prefix-changed (each turn, whatever comes between), prompt-cache-miss-swa-hybrid, host-memory-growth (the store itself).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of
from rules.facts import (
    CACHE_EVICTED_SEEN,
    CACHED_ON_EXTENSION,
    SPEED_SHAPE,
    TOLD_MEMORY_GROWS,
    TOLD_PREFIX_CHANGES,
    TOLD_REQUESTS_BETWEEN,
    TOLD_REREADS,
    TOLD_SAME_PROMPT_AGAIN,
    TOLD_SLOW_PART,
    TOLD_WHEN,
    WINDOW_SLOTS,
)

RULE = Rule(
    cause="prompt-cache-evicted",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("Other requests come between two messages of the chat."),
            TOLD_REQUESTS_BETWEEN.is_(True),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It comes after a pause, or when several requests run."),
            any_of(TOLD_WHEN.has("after-idle"), TOLD_WHEN.has("together")),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(words("The log says that a cached prompt was thrown away."), CACHE_EVICTED_SEEN.is_(True), if_true=STRONG),
        Clue(
            words("All is read again, at some messages or at each."),
            TOLD_REREADS.one_of("all", "sometimes-all"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The very same prompt, sent again at once, is fast."),
            TOLD_SAME_PROMPT_AGAIN.is_("second"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Reading is what is slow."),
            TOLD_SLOW_PART.one_of("reading", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("Some messages are fast and some slow."), SPEED_SHAPE.is_("alternates"), if_true=SLIGHT),
        Clue(words("The client changes the prompt near its beginning."), TOLD_PREFIX_CHANGES.is_(True), if_true=-FAIR),
        Clue(
            words("System memory grows over time: what is thrown away follows from that."),
            TOLD_MEMORY_GROWS.one_of("ram", "both"),
            if_true=-FAIR,
        ),
        Clue(words("The server has one slot."), WINDOW_SLOTS < 2, if_true=SLIGHT),
    ),
    tests=(
        Test(
            variable="parallel",
            start=WINDOW_SLOTS,
            to=Computed(words("one slot more"), lambda facts: (facts.value(WINDOW_SLOTS) or 1) + 1),
            keep=("kv_type_k", "kv_type_v", "cache_prompt", "cache_ram_mib"),
            minutes=6,
            reason=words(
                "With a slot more, side requests need not take the chat's. It costs memory; see that the window of a slot stays as it is."
            ),
            when=TOLD_REQUESTS_BETWEEN.is_(True),
            expects=(
                Expect(
                    "prompt-cache-evicted",
                    TOLD_REREADS.is_("only-new"),
                    words("The chat's next message reads only what is new."),
                ),
                Expect(
                    "prompt-cache-miss-prefix-changed",
                    TOLD_REREADS.one_of("all", "sometimes-all"),
                    words("If the client changes the prompt, it is read in whole as before."),
                ),
            ),
        ),
        Test(
            variable="the pause between two messages",
            kind="habit",
            minutes=5,
            reason=words(
                "Send the next message once after ten seconds and once after ninety, with nothing in between, and compare the time to the first token."
            ),
            expects=(
                Expect(
                    "prompt-cache-evicted",
                    CACHED_ON_EXTENSION > 0.8,
                    words("Without a pause and without others, it comes from the cache."),
                ),
            ),
        ),
    ),
)
