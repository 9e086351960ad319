"""The endpoint drops the option that was sent.

What it looks for
    A window that is sent with each request by an endpoint that has no such option, without effect; prompt and answer together that end at a common
    default; the same option working at the server's own endpoint.

Why it happens
    OpenAI-style endpoints have no field for the window. Unknown fields are dropped without a word, so the server's default holds for every call,
    whatever the client sends.

What would prove it wrong
    The same option sent to the server's own endpoint does not change the window either.

References
    - Ollama `/v1/chat/completions` and `num_ctx`; `options` of `/api/chat`.
    - Look-alikes: silent-truncation-default-ctx (nothing was sent), server-config-not-applied (set at the server), output-budget-eats-window.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, any_of, before
from rules.facts import (
    CONFIG_IGNORED,
    NOT_CUT,
    PROCESSED_IS_DEFAULT,
    TOLD_OTHER_WAY_IN,
    TOLD_WAY_IN,
    TOLD_WINDOW_SET,
    TOTAL_IS_DEFAULT,
    WINDOW_ASKED,
    WINDOW_IN_FORCE,
    WINDOW_WANTED,
)

RULE = Rule(
    cause="request-option-ignored",
    prior={"forgetting": SLIGHT, "fixed-length-error": SLIGHT},
    explains=("silent-truncation-default-ctx",),
    clues=(
        Clue(
            words("The window is sent with each request, or set in the client."),
            TOLD_WINDOW_SET.one_of("request", "client"),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(words("Changing it makes no difference."), CONFIG_IGNORED.is_(True), if_true=FAIR, if_false=-FAIR),
        Clue(
            words("Prompt and answer together, or the processed part of the prompt, end at a common default window."),
            any_of(TOTAL_IS_DEFAULT.is_(True), PROCESSED_IS_DEFAULT.is_(True)),
            if_true=FAIR,
        ),
        Clue(
            words("Requests go in by an OpenAI- or Anthropic-style address."),
            TOLD_WAY_IN.one_of("openai", "anthropic"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The same text works by another way in."), TOLD_OTHER_WAY_IN.is_(True), if_true=FAIR, if_false=-SLIGHT
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("the window that is wanted"),
                lambda facts: facts.value(WINDOW_WANTED) or facts.value(WINDOW_ASKED),
            ),
            keep=("parallel",),
            minutes=4,
            reason=words("Set at the server (or in the model file) the window holds for every endpoint."),
            also=("silent-truncation-default-ctx",),
            expects=(
                Expect(
                    "request-option-ignored",
                    any_of(before(WINDOW_IN_FORCE) * 1.5 < WINDOW_IN_FORCE, NOT_CUT.is_(True)),
                    words("The window in force grows, and prompt and answer together pass the old sum."),
                ),
            ),
        ),
        Test(
            variable="way_in",
            kind="habit",
            minutes=5,
            reason=words(
                "Send one request with the option to the server's own endpoint, and add up the token counts again."
            ),
        ),
    ),
)
