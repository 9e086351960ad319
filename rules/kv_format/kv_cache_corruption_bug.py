"""Stored or restored cache state is wrong.

What it looks for
    A first answer that is right and later ones that are nonsense; trouble for prompts that begin like an earlier one, and none on a fresh cache;
    right again with the prompt cache off, flushed, or after a restart.

Why it happens
    Cached state is restored at the wrong position, for the wrong sequence, in the wrong type, or is shared while it is being released. Architectures
    whose state is more than keys and values (recurrent, compressed, sliding) are hit first.

What would prove it wrong
    The same conversation is wrong on a fresh server with the prompt cache off.

References
    - llama.cpp: `--ctx-checkpoints`, state restore fixes; SGLang's radix cache and `flush_cache`; vLLM's prefix caching.
    - Look-alikes: long-session-drift (slowly, and plausible), context-shift (when the window is full), backend-attention-bug (on a fresh prompt too).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, not_
from rules.facts import (
    BACKEND,
    CACHED_ON_REPEAT,
    CONTEXT_SHIFT_SEEN,
    CORRUPT_SEEN,
    FAILURE_STAGE,
    KV_SMALLER_TYPE_SET,
    RECALL_DROP_SURE,
    RECURRENT,
    TOLD_CACHE_OFF,
    TOLD_FRESH_START,
    TOLD_MODEL_KIND,
    TOLD_NEW_CHAT,
    TOLD_SAME_BEGINNING,
    TOLD_SAME_PROMPT_AGAIN,
    TOLD_WHEN,
)

NOTHING = 0.02
"""Share of a repeated prompt under which nothing came from the cache."""

RULE = Rule(
    cause="kv-cache-corruption-bug",
    prior={"forgetting": SLIGHT, "flaky": SLIGHT},
    clues=(
        Clue(
            words(
                "The first answer is right, and it goes wrong from the second message, after a restore, or for a repeated beginning."
            ),
            any_of(TOLD_WHEN.has("second-turn"), TOLD_WHEN.has("repeated-prompt"), TOLD_WHEN.has("after-idle")),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("It is right with the prompt cache off."), TOLD_CACHE_OFF.is_(True), if_true=STRONG, if_false=-STRONG
        ),
        Clue(
            words("It goes wrong again and again for one beginning, while others are right."),
            TOLD_SAME_BEGINNING.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("Broken output was seen, rather than plausible mistakes."),
            CORRUPT_SEEN.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("A new chat, or a fresh start, is right again."),
            any_of(TOLD_NEW_CHAT.is_(True), TOLD_FRESH_START.one_of("cures", "for-a-while")),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("It failed while an earlier prompt was restored."), FAILURE_STAGE.is_("restoring"), if_true=STRONG),
        Clue(
            words("The model keeps more than keys and values, or its cache is quantised."),
            any_of(
                TOLD_MODEL_KIND.has("hybrid"),
                TOLD_MODEL_KIND.has("mla"),
                TOLD_MODEL_KIND.has("sliding"),
                RECURRENT.is_(True),
                KV_SMALLER_TYPE_SET.is_(True),
            ),
            if_true=SLIGHT,
        ),
        Clue(words("Old text was thrown away (context shift)."), CONTEXT_SHIFT_SEEN.is_(True), if_true=-FAIR),
        Clue(
            words("Nothing of a repeated prompt comes from the cache: what is stored is not used."),
            any_of(TOLD_SAME_PROMPT_AGAIN.is_("never"), CACHED_ON_REPEAT < NOTHING),
            if_true=-FAIR,
        ),
        Clue(words("Recall falls with length on cold prompts."), RECALL_DROP_SURE.is_(True), if_true=-FAIR),
    ),
    tests=(
        Test(
            variable="cache_prompt",
            to=False,
            start=True,
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words(
                "Without the prompt cache nothing is restored: every turn is read anew, slower and from a clean state."
            ),
            expects=(
                Expect(
                    "kv-cache-corruption-bug",
                    not_(CORRUPT_SEEN.is_(True)),
                    words("The same conversation is right from the second turn on as well."),
                ),
                Expect(
                    "backend-attention-bug",
                    CORRUPT_SEEN.is_(True),
                    words("If attention itself is wrong, it stays wrong."),
                ),
            ),
        ),
        Test(
            variable="ctx_checkpoints",
            start=None,
            to=0,
            when=BACKEND.one_of("llama.cpp", "ik_llama.cpp", "beellama.cpp"),
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words("Without stored checkpoints no state is restored in the middle of a prompt."),
            expects=(Expect("kv-cache-corruption-bug", not_(CORRUPT_SEEN.is_(True)), words("Later turns are right.")),),
        ),
    ),
)
