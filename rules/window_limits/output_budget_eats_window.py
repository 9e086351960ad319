"""The reserve for the answer is taken from the window for the input.

What it looks for
    A longest answer that is a large part of the window, and a prompt that is cut (or an answer that ends early) at the window less that reserve.

Why it happens
    Window = prompt + answer. A program that reserves the longest allowed answer beforehand leaves the rest to the prompt, and trims it without
    a word; one that does not runs into the end of the window while writing.

What would prove it wrong
    With a small reserve, nothing else changed, the prompt is cut at the same length.

References
    - text-generation-webui: "available context length"; `max_new_tokens`, `max_tokens`, `num_predict`.
    - Look-alikes: silent-truncation-default-ctx (the cut is at the whole window), request-option-ignored.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    NOT_CUT,
    OUTPUT_OF_WINDOW,
    OUTPUT_TOKENS,
    PROCESSED_TOKENS,
    ROOM_FOR_INPUT_SMALL,
    TOLD_WHAT_IS_WRONG,
    TRUNCATED_SEEN,
    WINDOW_IN_FORCE,
)

RULE = Rule(
    cause="output-budget-eats-window",
    prior={"forgetting": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("The reserve for the answer leaves less than two thirds of the window for the input."),
            ROOM_FOR_INPUT_SMALL.is_(True),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The prompt was cut, the beginning was lost, or the answer ended early."),
            any_of(
                TRUNCATED_SEEN.is_(True), TOLD_WHAT_IS_WRONG.has("cut-off"), TOLD_WHAT_IS_WRONG.has("beginning-lost")
            ),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Tokens processed and the reserve together are about the window."),
            all_of(PROCESSED_TOKENS < WINDOW_IN_FORCE * 0.7, OUTPUT_OF_WINDOW > 0.3),
            if_true=SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="max_tokens",
            start=OUTPUT_TOKENS,
            to=Computed(
                words("an eighth of the window"), lambda facts: max(64, (facts.value(WINDOW_IN_FORCE) or 4096) // 8)
            ),
            keep=("ctx",),
            minutes=2,
            reason=words("A smaller reserve leaves more of the window to the text."),
            expects=(
                Expect(
                    "output-budget-eats-window",
                    any_of(before(PROCESSED_TOKENS) * 1.2 < PROCESSED_TOKENS, NOT_CUT.is_(True)),
                    words("More of the prompt is processed."),
                ),
            ),
        ),
    ),
)
