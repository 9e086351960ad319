"""The window is divided by the number of slots.

What it looks for
    More than one slot, each with the asked window divided by their number, and prompts that are refused or cut at that share although they are
    shorter than the window that was asked for.

Why it happens
    A server that answers several requests at once gives each of them a fixed part of the cache. An explicit number of slots divides the window;
    an automatic one may share it instead, which fails in another way (kv-pool-exhausted).

What would prove it wrong
    With one slot, nothing else changed, the window in force stays as it was, or prompts fail at the same length.

References
    - llama.cpp server: `--parallel`, `--kv-unified`, `n_ctx_seq` in the load lines and `/slots`.
    - Ollama before 0.19 and its `OLLAMA_NUM_PARALLEL`.
    - Look-alikes: ctx-capped-by-engine (the share is the trained window), client-ctx-mismatch (the server has the whole window),
      kv-pool-exhausted (each slot shows the whole window, and only requests together fail).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    CRASH_SEEN,
    FAILURE_KINDS,
    FAILURE_OF_SHARE,
    REFUSED_BELOW_ASKED,
    TOLD_SLOTS_SET,
    TOLD_WHAT_IS_WRONG,
    TRUNCATED_SEEN,
    WINDOW_IN_FORCE,
    WINDOW_IS_DIVIDED,
    WINDOW_SLOTS,
)

RULE = Rule(
    cause="slots-divide-ctx",
    prior={"fixed-length-error": SLIGHT, "forgetting": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(
            words("One slot has the asked window divided by the number of slots."),
            WINDOW_IS_DIVIDED.is_(True),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Prompts fail or are cut at a length that is the window divided by the slots."),
            all_of(FAILURE_OF_SHARE > 0.7, FAILURE_OF_SHARE < 1.35),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("A prompt shorter than the window that was asked for was refused or cut."),
            any_of(REFUSED_BELOW_ASKED.is_(True), TRUNCATED_SEEN.is_(True)),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("The server has more than one slot."), WINDOW_SLOTS > 1, if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("The beginning of the text is lost, or things are made up that stand in it."),
            any_of(TOLD_WHAT_IS_WRONG.has("beginning-lost"), TOLD_WHAT_IS_WRONG.has("made-up")),
            if_true=SLIGHT,
        ),
        Clue(
            words("It crashed, or failed for lack of memory, rather than refusing or cutting a prompt."),
            any_of(
                CRASH_SEEN.is_(True),
                FAILURE_KINDS.has("gpu-memory"),
                FAILURE_KINDS.has("host-memory"),
                FAILURE_KINDS.has("create-context"),
                FAILURE_KINDS.has("kernel"),
                FAILURE_KINDS.has("device-lost"),
            ),
            if_true=-FAIR,
        ),
        Clue(words("The number of slots was set by hand."), TOLD_SLOTS_SET.is_("set"), if_true=SLIGHT),
    ),
    tests=(
        Test(
            variable="parallel",
            start=WINDOW_SLOTS,
            to=1,
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch"),
            minutes=3,
            reason=words("With one slot, one request gets the whole window."),
            also=("kv-pool-exhausted", "parallel-multiplies-kv"),
            expects=(
                Expect(
                    "slots-divide-ctx",
                    before(WINDOW_IN_FORCE) * 1.5 < WINDOW_IN_FORCE,
                    words("The window in force grows by the number of slots."),
                ),
                Expect(
                    "ctx-capped-by-engine",
                    before(WINDOW_IN_FORCE) * 1.01 >= WINDOW_IN_FORCE,
                    words("If the engine caps the window, it stays as it is."),
                ),
            ),
        ),
    ),
)
