"""Wrong masks or windows for that architecture in that engine.

What it looks for
    Nonsense past a fixed length while short texts are right, in one engine and not in another with the same weights; an architecture with sliding
    windows, sinks, or other special attention; a new model or a new version.

Why it happens
    Engines rebuild each architecture by hand. A sliding window that is not passed on, a mask that is off, a position that is counted twice: all of
    these are harmless on short texts and fatal past the window's length.

What would prove it wrong
    Another engine, with the same weights and settings, goes wrong at the same length.

References
    - SGLang and Gemma 3's sliding window; llama.cpp's per-architecture fixes; attention sinks of gpt-oss.
    - Look-alikes: rope-scaling-misuse (position values differ from the file's), effective-context-quality (gradual, the same everywhere),
      kv-cache-corruption-bug (only after a cache hit), silent-truncation-default-ctx.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before, not_
from rules.facts import (
    CORRUPT_SEEN,
    FAILURE_OF_WINDOW,
    FAILURE_TOKENS,
    FLASH_ATTENTION,
    NOT_CUT,
    RECALL_AT_LONGEST,
    RECALL_DROP_SURE,
    RECALL_HARMED_SHORT,
    RECURRENT,
    ROPE_WRONG,
    SLIDING_WINDOW,
    TOLD_CACHE_OFF,
    TOLD_CHANGED,
    TOLD_FLASH_ATTENTION_TURNED,
    TOLD_MODEL_KIND,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_MODELS,
    TOLD_POSITION_SCALING,
    TOLD_WORSE_WHEN,
    V_QUANTISED,
)

RULE = Rule(
    cause="backend-attention-bug",
    prior={"forgetting": SLIGHT},
    clues=(
        Clue(
            words("Another program is right with the same model and text."),
            TOLD_OTHER_ENGINE.is_("works"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Broken output was seen, rather than plausible mistakes."),
            CORRUPT_SEEN.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It goes wrong suddenly, past a fixed length."),
            TOLD_WORSE_WHEN.one_of("step", "setting"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The length is far below the window, near a sliding window's size."),
            any_of(
                # Not where a window that nobody set would end: 512, 2048, 4096.
                all_of(FAILURE_TOKENS > 570, FAILURE_TOKENS < 1900),
                all_of(FAILURE_TOKENS > 2150, FAILURE_TOKENS < 3900),
                all_of(FAILURE_TOKENS > 4250, FAILURE_TOKENS < 10000),
                all_of(FAILURE_OF_WINDOW > 0.0, FAILURE_OF_WINDOW < 0.3),
            ),
            if_true=SLIGHT,
        ),
        Clue(
            words("The model has sliding-window, compressed or recurrent attention."),
            any_of(
                TOLD_MODEL_KIND.has("sliding"),
                TOLD_MODEL_KIND.has("hybrid"),
                TOLD_MODEL_KIND.has("mla"),
                SLIDING_WINDOW > 0,
                RECURRENT.is_(True),
            ),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Other models are right on the same server."),
            TOLD_OTHER_MODELS.one_of("fine", "smaller-fine"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("Short texts are right."), RECALL_HARMED_SHORT.is_(False), if_false=-SLIGHT),
        Clue(
            words("It began with another version of the server, or another model."),
            any_of(TOLD_CHANGED.has("server"), TOLD_CHANGED.has("model")),
            if_true=SLIGHT,
        ),
        Clue(
            words("It is right when flash attention is switched the other way."),
            TOLD_FLASH_ATTENTION_TURNED.is_("cures"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("Text was lost before it was processed."), NOT_CUT.is_(False), if_true=-STRONG),
        Clue(words("Positions are scaled otherwise than the model file says."), ROPE_WRONG.is_(True), if_true=-STRONG),
        Clue(
            words("The model needs position scaling for this length, and it is not set."),
            TOLD_POSITION_SCALING.is_("needed"),
            if_true=-FAIR,
        ),
        Clue(words("It is right with the prompt cache off."), TOLD_CACHE_OFF.is_(True), if_true=-FAIR),
    ),
    tests=(
        Test(
            variable="flash_attention",
            start=FLASH_ATTENTION,
            to=Computed(words("the other way"), lambda facts: "off" if facts.value(FLASH_ATTENTION) != "off" else "on"),
            keep=("ctx", "kv_type_k", "kv_type_v"),
            minutes=5,
            when=not_(V_QUANTISED.is_(True)),
            reason=words("Another kernel computes the same attention: what goes away with it was the kernel's."),
            expects=(
                Expect(
                    "backend-attention-bug",
                    any_of(before(RECALL_AT_LONGEST) * 1.3 < RECALL_AT_LONGEST, RECALL_DROP_SURE.is_(False)),
                    words("The same text past that length is right."),
                ),
            ),
        ),
        Test(
            variable="other-engine",
            kind="habit",
            minutes=30,
            reason=words(
                "Run the same weights and prompt in another program: if it is right there, report it with both outputs."
            ),
        ),
    ),
)
