"""A low-bit cache harms reasoning or small models, while needle tests still pass.

What it looks for
    A cache of few bits, answers that reason, count or use tools worse (planted facts may still be found), and a cure by more bits at the same
    length.

Why it happens
    Rounding errors in keys and values add up along chains of steps; looking one fact up needs far less precision than reasoning over many. Small
    models, keys with outliers and few bits suffer first.

What would prove it wrong
    With 16 bits, nothing else changed, the score is as low.

References
    - KIVI and KVQuant on keys against values; llama.cpp's `--cache-type-k/-v`; perplexity and task scores by type.
    - Look-alikes: effective-context-quality (16 bits), rope-scaling-misuse, kv-cache-corruption-bug (nonsense after a cache hit).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    CHAINS_BREAK,
    CHAINS_RIGHT,
    CORRUPT_SEEN,
    FAILURE_ABOUT,
    KV_BITS,
    KV_SMALLER_TYPE_SET,
    KV_TYPE_K,
    NEXT_TOKEN_DIVERGENCE,
    NEXT_TOKEN_HARMED,
    NOT_CUT,
    RECALL_ABLE,
    RECALL_AT_LONGEST,
    RECALL_BASE,
    RECALL_DROP_SURE,
    RECALL_HARMED_SHORT,
    ROPE_WRONG,
    SPEED_COMPLAINT,
    TOLD_CACHE_MORE_BITS,
    TOLD_CHANGED,
    TOLD_WHAT_IS_WRONG,
    TOLD_WORSE_WHEN,
)

RULE = Rule(
    cause="kv-quant-quality",
    prior={"forgetting": SLIGHT},
    clues=(
        Clue(words("The cache has five bits or fewer."), KV_BITS < 5.9, if_true=SLIGHT, if_false=-SLIGHT),
        Clue(
            words("The cache has a smaller type than 16 bits."),
            KV_SMALLER_TYPE_SET.is_(True),
            if_false=-DECISIVE,
        ),
        Clue(
            words("With more bits the answers are right."),
            TOLD_CACHE_MORE_BITS.is_("cures"),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("It finds facts, but reasons, counts or uses tools worse; or a score fell."),
            any_of(TOLD_WHAT_IS_WRONG.has("reasoning"), TOLD_WHAT_IS_WRONG.has("score-fell")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The same text is gone on with differently than under a cache of more bits."),
            NEXT_TOKEN_HARMED.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("Single facts are found, but chains of facts are not followed."),
            CHAINS_BREAK.is_(True),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("The cache type was changed before it began."), TOLD_CHANGED.has("cache-type"), if_true=SLIGHT),
        Clue(
            words("It is worse as soon as that setting is on, at any length."),
            TOLD_WORSE_WHEN.is_("setting"),
            if_true=SLIGHT,
        ),
        Clue(words("Positions are scaled otherwise than the model file says."), ROPE_WRONG.is_(True), if_true=-FAIR),
        Clue(words("Text was lost before it was processed."), NOT_CUT.is_(False), if_true=-STRONG),
        Clue(words("Broken output was seen, rather than plausible mistakes."), CORRUPT_SEEN.is_(True), if_true=-FAIR),
        Clue(words("What is complained of is the speed."), SPEED_COMPLAINT.is_(True), if_true=-FAIR),
        Clue(
            words("Recall falls, or is harmed at short lengths already."),
            any_of(RECALL_DROP_SURE.is_(True), RECALL_HARMED_SHORT.is_(True)),
            if_true=SLIGHT,
        ),
        Clue(
            words("It ends with an error, or is slow, rather than wrong."),
            FAILURE_ABOUT.one_of("gpu-memory", "create-context", "kernel", "too-long", "internal"),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="kv_type_k",
            start=KV_TYPE_K,
            to=Computed(
                words("one step more: q8_0 below eight bits, else f16"),
                lambda facts: "q8_0" if (facts.value(KV_BITS) or 4) < 8 else "f16",
            ),
            keep=("ctx", "kv_type_v"),
            minutes=8,
            reason=words("Keys suffer first; more bits for them cost memory and no quality."),
            expects=(
                Expect(
                    "kv-quant-quality",
                    any_of(
                        before(RECALL_AT_LONGEST) * 1.15 < RECALL_AT_LONGEST,
                        all_of(before(RECALL_BASE) * 1.1 < RECALL_BASE, RECALL_ABLE.is_(True)),
                        before(CHAINS_RIGHT) * 1.5 < CHAINS_RIGHT,
                        before(NEXT_TOKEN_DIVERGENCE) * 0.7 > NEXT_TOKEN_DIVERGENCE,
                    ),
                    words(
                        "The same questions are answered better at the same length, or the same text is gone on with more as under sixteen bits."
                    ),
                ),
                Expect(
                    "effective-context-quality",
                    before(RECALL_AT_LONGEST) * 1.1 > RECALL_AT_LONGEST,
                    words("If it is the model itself, the score stays as it is."),
                ),
            ),
        ),
    ),
)
