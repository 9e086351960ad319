"""Old text is thrown away when the window is full, or the shift corrupts or crashes.

What it looks for
    A shift in the log or the message; trouble exactly when prompt and answer together fill the window; shift switched on, or an architecture or cache
    type that cannot be shifted.

Why it happens
    When the window is full, some servers drop the oldest half and move the rest, so that writing can go on. The model then has lost the start (system
    prompt, task), and positions were rewritten in place. Sliding-window, recurrent or quantised caches often cannot be moved: the engine crashes
    or writes nonsense from there.

What would prove it wrong
    With shift off (or a longer window) the same text fails at the same place.

References
    - llama.cpp: `--context-shift`, "slot context shift"; KoboldCpp's shift; `ctx_shift is not supported`.
    - Look-alikes: silent truncation (at the prompt, before anything is written), long-session-drift (the window is not full), output-budget-eats-window.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, Clue, Computed, Expect, Rule, Test, all_of, any_of, before, not_
from rules.facts import (
    BACKEND,
    CONTEXT_SHIFT_ON,
    CONTEXT_SHIFT_SEEN,
    FAILURE_ABOUT,
    FAILURE_TOKENS,
    SLIDING_WINDOW,
    SPEED_COMPLAINT,
    TOLD_CACHE_MORE_BITS,
    TOLD_MODEL_KIND,
    TOLD_NEW_CHAT,
    TOLD_WHAT_IS_WRONG,
    TOLD_WHEN,
    TOTAL_OF_WINDOW,
    WINDOW_IN_FORCE,
    WINDOW_TRAINED,
)

RULE = Rule(
    cause="context-shift",
    prior={"forgetting": SLIGHT, "fixed-length-error": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(
            words("The server threw away old text to go on (context shift), or says so."),
            CONTEXT_SHIFT_SEEN.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("A new, empty chat goes wrong too: nothing of it was thrown away."),
            TOLD_NEW_CHAT.is_(False),
            if_true=-FAIR,
        ),
        Clue(words("What is complained of is the speed."), SPEED_COMPLAINT.is_(True), if_true=-FAIR),
        Clue(
            words("It goes wrong when the chat has filled its window, or in the middle of a long answer."),
            any_of(TOLD_WHEN.has("window-full"), TOLD_WHEN.has("long-answer")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("Context shift is on."), CONTEXT_SHIFT_ON.is_(True), if_true=SLIGHT, if_false=-FAIR),
        Clue(
            words("Prompt and answer together are about the window when it stops or goes wrong."),
            all_of(TOTAL_OF_WINDOW > 0.93, TOTAL_OF_WINDOW < 1.1),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It crashes or writes nonsense from there on, or the beginning is lost."),
            any_of(
                FAILURE_ABOUT.one_of("shift", "internal"),
                TOLD_WHAT_IS_WRONG.has("nonsense"),
                TOLD_WHAT_IS_WRONG.has("beginning-lost"),
                TOLD_WHAT_IS_WRONG.has("repeats"),
            ),
            if_true=SLIGHT,
        ),
        Clue(
            words("The cache is quantised, and with more bits it works."),
            TOLD_CACHE_MORE_BITS.is_("cures"),
            if_true=SLIGHT,
        ),
        Clue(
            words("The model has sliding-window or recurrent layers, whose cache cannot be shifted everywhere."),
            any_of(TOLD_MODEL_KIND.has("sliding"), TOLD_MODEL_KIND.has("hybrid"), SLIDING_WINDOW > 0),
            if_true=SLIGHT,
        ),
        Clue(
            words("The server is one that shifts by default or did so."),
            BACKEND.one_of(
                "koboldcpp", "llama.cpp", "llama-cpp-python", "text-generation-webui", "ollama", "lm-studio"
            ),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="context_shift",
            start=CONTEXT_SHIFT_ON,
            to=False,
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words("Without shift the end of the window is an honest end: nothing is thrown away or moved."),
            expects=(
                Expect(
                    "context-shift",
                    not_(CONTEXT_SHIFT_SEEN.is_(True)),
                    words(
                        "At the end of the window it stops with an error or a finished answer, and does not crash or forget."
                    ),
                ),
            ),
        ),
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("twice the window in force, at most the trained one"),
                lambda facts: (
                    min(2 * (facts.value(WINDOW_IN_FORCE) or 0), facts.value(WINDOW_TRAINED) or 2**30) or None
                ),
            ),
            keep=("kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words("With a window that is not filled, nothing has to be shifted."),
            expects=(
                Expect(
                    "context-shift",
                    before(FAILURE_TOKENS) * 1.5 < FAILURE_TOKENS,
                    words("It goes wrong at twice the length."),
                ),
            ),
        ),
    ),
)
