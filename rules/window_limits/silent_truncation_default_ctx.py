"""The prompt is cut to a default window, with no error.

What it looks for
    A prompt that was cut without an error, in a server where nobody set a window or where the way in that was used has a default of its own, and
    a count of processed tokens that is one of the common defaults; or a prompt that fits into the window that is told and was cut all the same.

Why it happens
    Servers and front ends take a small window where none is set, by design: it loads everywhere. A prompt that is longer loses its beginning or its
    end, and the answer comes with HTTP 200. What is set in one place (a page, a preset) may not hold for another way in (the API).

What would prove it wrong
    With a window set that is longer than the prompt, the count of processed tokens stays the same; or nothing was cut at all.

References
    - Ollama: `num_ctx`, `OLLAMA_CONTEXT_LENGTH`, "truncating input prompt" with limit, prompt and keep.
    - llama.cpp's early default of 512; text-generation-webui's `truncation_length` for its API.
    - Look-alikes: silent-truncation-half-window (the count is half of a window and two), output-budget-eats-window (the reserve explains the rest),
      request-option-ignored (a window was sent with the request), effective-context-quality (nothing was cut).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    FAILURE_AT_START,
    FAILURE_TOKENS,
    NOT_CUT,
    PROCESSED_IS_DEFAULT,
    PROCESSED_IS_HALF,
    PROCESSED_TOKENS,
    ROOM_FOR_INPUT_SMALL,
    SENT_TOKENS,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_WAY_IN,
    TOLD_WHAT_IS_WRONG,
    TOLD_WHEN,
    TOLD_WINDOW_SET,
    TOLD_WORSE_WHEN,
    TRUNCATED_BELOW,
    TRUNCATED_SEEN,
    WINDOW_IN_FORCE,
    WINDOW_IS_DIVIDED,
    WINDOW_SET,
    WINDOW_TRAINED,
    WINDOW_UNSET_LONG,
    WINDOW_WANTED,
)

RULE = Rule(
    cause="silent-truncation-default-ctx",
    prior={"forgetting": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(words("No window was set."), WINDOW_SET.is_(False), if_true=FAIR),
        Clue(
            words("The window in force is long although nobody asked for it."),
            WINDOW_UNSET_LONG.is_(True),
            if_true=-FAIR,
        ),
        Clue(words("A prompt was cut without an error."), TRUNCATED_SEEN.is_(True), if_true=FAIR, if_false=-STRONG),
        Clue(
            words("A prompt that fits into the window that is told was cut all the same."),
            TRUNCATED_BELOW.is_(True),
            if_true=FAIR,
        ),
        Clue(
            words("The tokens processed are a common default window."),
            PROCESSED_IS_DEFAULT.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The tokens processed are half of a window and two."), PROCESSED_IS_HALF.is_(True), if_true=-STRONG),
        Clue(
            words("It begins to go wrong at a common default window."),
            any_of(
                all_of(FAILURE_TOKENS > 460, FAILURE_TOKENS < 570),
                all_of(FAILURE_TOKENS > 1900, FAILURE_TOKENS < 2150),
                all_of(FAILURE_TOKENS > 3900, FAILURE_TOKENS < 4250),
            ),
            if_true=FAIR,
        ),
        Clue(words("It fails while the server starts."), FAILURE_AT_START.is_(True), if_true=-STRONG),
        Clue(
            words("The same text is right by another way in, such as the server's own page."),
            TOLD_OTHER_WAY_IN.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Only the last part, or not the beginning, of the text is known to it."),
            any_of(
                TOLD_WHAT_IS_WRONG.has("all-but-end-lost"),
                TOLD_WHAT_IS_WRONG.has("beginning-lost"),
                TOLD_WHAT_IS_WRONG.has("made-up"),
            ),
            if_true=SLIGHT,
        ),
        Clue(words("The request carried a window of its own."), TOLD_WINDOW_SET.is_("request"), if_true=-FAIR),
        Clue(
            words("The reserve for the answer takes a large part of the window."),
            ROOM_FOR_INPUT_SMALL.is_(True),
            if_true=-FAIR,
        ),
        Clue(
            words("It goes wrong suddenly past a length, or already in the middle of a long answer."),
            any_of(TOLD_WORSE_WHEN.is_("step"), TOLD_WHEN.has("long-answer")),
            if_true=SLIGHT,
        ),
        Clue(words("The same model is right in another program."), TOLD_OTHER_ENGINE.is_("works"), if_false=-SLIGHT),
        Clue(
            words("One slot has the asked window divided by the number of slots."),
            WINDOW_IS_DIVIDED.is_(True),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="the way to the server",
            kind="habit",
            to="the server's own address, with nothing between",
            minutes=5,
            when=TRUNCATED_BELOW.is_(True),
            reason=words(
                "Send the same prompt to the server itself, past every proxy, gateway and front end, and compare the prompt tokens that the answer counts: "
                "where all are counted, what stood between cuts the text; where they are not, the server has a limit of its own for requests."
            ),
            expects=(
                Expect(
                    "silent-truncation-default-ctx",
                    NOT_CUT.is_(True),
                    words("All tokens are processed: what stood between cut the text."),
                ),
            ),
        ),
        Test(
            variable="ctx",
            when=any_of(TRUNCATED_BELOW.is_(False), PROCESSED_IS_DEFAULT.is_(True)),
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("the wanted window, else twice the tokens sent, at most the trained one"),
                lambda facts: _enough(
                    facts.value(WINDOW_WANTED), facts.value(SENT_TOKENS), facts.value(WINDOW_TRAINED)
                ),
            ),
            keep=("parallel", "kv_type_k", "kv_type_v"),
            minutes=4,
            reason=words("A window that is set is longer than the default, and the whole prompt is processed."),
            also=("silent-truncation-half-window", "default-ctx-tier-changed"),
            expects=(
                Expect(
                    "silent-truncation-default-ctx",
                    any_of(before(PROCESSED_TOKENS) * 1.5 < PROCESSED_TOKENS, NOT_CUT.is_(True)),
                    words("More tokens are processed: as many as were sent."),
                ),
                Expect(
                    "effective-context-quality",
                    before(PROCESSED_TOKENS) * 1.02 >= PROCESSED_TOKENS,
                    words("If it is the model, as many tokens are processed as before, and it still forgets."),
                ),
            ),
        ),
    ),
)


def _enough(wanted: int | None, sent: int | None, trained: int | None) -> int | None:
    if wanted is None and sent is None:
        return None
    target = wanted or -(-2 * (sent or 0) // 1024) * 1024
    return min(target, trained) if trained else target
