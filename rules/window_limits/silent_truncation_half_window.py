"""Overflow cuts to about half of the window.

What it looks for
    A count of processed tokens that is half of the window and two, for a prompt that is longer than the window; a prompt that just fits is
    processed whole.

Why it happens
    Some engines make room for the answer by throwing away half of the window once a prompt is over it. The jump from all to half at one token more
    is the mark of that rule, and nothing in the reply says so.

What would prove it wrong
    With a window longer than the prompt, the count of processed tokens does not become the count that was sent.

References
    - Ollama's runner: keep, discard and `num_ctx/2 + 2`; `prompt_eval_count` in the reply. So it cuts a raw prompt and `/v1/completions`; a chat loses
      its oldest messages whole (0.33).
    - Look-alikes: silent-truncation-default-ctx (the count is a whole window), context-shift (it happens while writing, not at the prompt).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    BACKEND,
    NOT_CUT,
    PASSED_TOKENS,
    PROCESSED_IS_HALF,
    PROCESSED_TOKENS,
    TOLD_WORSE_WHEN,
    TRUNCATED_SEEN,
    WINDOW_IN_FORCE,
    WINDOW_TRAINED,
)

RULE = Rule(
    cause="silent-truncation-half-window",
    prior={"forgetting": SLIGHT},
    clues=(
        Clue(
            words("The tokens processed are half of a window and two."),
            PROCESSED_IS_HALF.is_(True),
            if_true=DECISIVE,
            if_false=-STRONG,
        ),
        Clue(words("A prompt was cut without an error."), TRUNCATED_SEEN.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("A prompt that just fits the window is processed whole."),
            all_of(PASSED_TOKENS > WINDOW_IN_FORCE * 0.9, PASSED_TOKENS <= WINDOW_IN_FORCE * 1.0),
            if_true=SLIGHT,
        ),
        Clue(
            words("The server is one whose overflow rule this is."),
            BACKEND.one_of("ollama", "llama.cpp", "llama-cpp-python", "koboldcpp", "ik_llama.cpp", "lm-studio"),
            if_true=SLIGHT,
        ),
        Clue(
            words("It goes wrong suddenly, past a length."),
            TOLD_WORSE_WHEN.is_("step"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("twice the window in force, at most the trained one"),
                lambda facts: min(2 * (facts.value(WINDOW_IN_FORCE) or 2048), facts.value(WINDOW_TRAINED) or 2**30),
            ),
            keep=("parallel", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words("With a window longer than the prompt, the overflow rule does not come into play."),
            also=("silent-truncation-default-ctx",),
            expects=(
                Expect(
                    "silent-truncation-half-window",
                    any_of(before(PROCESSED_TOKENS) * 1.5 < PROCESSED_TOKENS, NOT_CUT.is_(True)),
                    words("The whole prompt is processed: about twice as many tokens as before."),
                ),
            ),
        ),
        Test(
            variable="shorter-prompt",
            kind="habit",
            minutes=5,
            reason=words(
                "Keep prompts below the window less the answer: one token more costs half of the text. Retrieve or summarise instead."
            ),
        ),
    ),
)
