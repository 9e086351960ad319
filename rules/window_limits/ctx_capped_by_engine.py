"""The engine clamps the window to the training length or the sliding window.

What it looks for
    A window in force that is smaller than the one asked for and equal to the model's trained window, or a log line that says that it was capped.

Why it happens
    The window was asked for without regard to the model: engines take the smaller of the request and the training length, some only for the
    request while the memory is allocated in full, and say so in one line at load time that nobody reads.

What would prove it wrong
    The trained window is not smaller than the one asked for, or the window in force is something else than the trained one.

References
    - llama.cpp server: "exceeds the training context", and `n_ctx` of `/props` and `/slots` against `-c`.
    - vLLM refuses to start where `--max-model-len` is above the model's own length.
    - Look-alikes: slots-divide-ctx (a fraction by the number of slots), silent-truncation-default-ctx (nothing was asked for),
      server-config-not-applied (the window is neither the asked nor the trained one).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, not_
from rules.facts import (
    FAILURE_OF_TRAINED,
    REFUSED_BELOW_ASKED,
    TOLD_OTHER_MODELS,
    TRUNCATED_SEEN,
    WINDOW_ASKED,
    WINDOW_ASKED_OF_TRAINED,
    WINDOW_CAP_REASON,
    WINDOW_DIFFERS,
    WINDOW_IN_FORCE_IS_TRAINED,
    WINDOW_IS_DIVIDED,
    WINDOW_IS_KNOWN_DEFAULT,
    WINDOW_SHARE_OF_ASKED,
    WINDOW_TRAINED,
)

RULE = Rule(
    cause="ctx-capped-by-engine",
    prior={"fixed-length-error": SLIGHT, "forgetting": SLIGHT},
    clues=(
        Clue(
            words("The window in force is smaller than the one asked for, and it is the trained window."),
            all_of(WINDOW_SHARE_OF_ASKED < 0.95, WINDOW_IN_FORCE_IS_TRAINED.is_(True)),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The window in force is another than the one asked for, and no default and no share by slots."),
            all_of(WINDOW_DIFFERS.is_(True), WINDOW_IS_KNOWN_DEFAULT.is_(False), not_(WINDOW_IS_DIVIDED.is_(True))),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Other models get the window asked for, or are fine, on the same server."),
            TOLD_OTHER_MODELS.is_("fine"),
            if_true=FAIR,
        ),
        Clue(
            words("The window asked for is longer than the model was trained for."),
            WINDOW_ASKED_OF_TRAINED > 1.02,
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("The log says that the window was capped at the trained one."),
            WINDOW_CAP_REASON.is_("trained"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Prompts fail or are cut near the trained window."),
            all_of(FAILURE_OF_TRAINED > 0.85, FAILURE_OF_TRAINED < 1.35),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("A prompt shorter than the window that was asked for was refused or cut."),
            any_of(REFUSED_BELOW_ASKED.is_(True), TRUNCATED_SEEN.is_(True)),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_ASKED,
            to=WINDOW_TRAINED,
            keep=("parallel", "kv_type_k", "kv_type_v"),
            minutes=3,
            reason=words(
                "Asking for the trained window loses nothing that was in force, and frees what was allocated for the rest."
            ),
            expects=(
                Expect(
                    "ctx-capped-by-engine",
                    all_of(WINDOW_SHARE_OF_ASKED > 0.98, WINDOW_IN_FORCE_IS_TRAINED.is_(True)),
                    words("The window in force stays at the trained one, and is now the one asked for."),
                ),
            ),
        ),
        Test(
            variable="longer-window-model",
            kind="habit",
            minutes=30,
            reason=words(
                "For more than its trained window, take a model that was trained for it, or retrieve and summarise instead of sending all."
            ),
        ),
    ),
)
