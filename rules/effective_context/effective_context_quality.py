"""The model itself is weaker at length; nothing is cut and nothing is misconfigured.

What it looks for
    Recall that falls with length by more than chance while every token was processed, positions are as the model file says, the cache is not of few
    bits, and the same happens in another engine; often the middle of the text is lost first, little by little.

Why it happens
    A trained window says how long texts were, not how well they are used. Attention is spread thinner over more text; small models, base models and
    models with sliding windows lose it sooner. The effective window is the longest length at which a model keeps most of its own short score.

What would prove it wrong
    A configuration or an engine in which the same model keeps its score at the same length.

References
    - RULER (effective length at a fixed score), NoLiMa (85 % of the model's own base), Lost in the Middle.
    - Look-alikes: rope-scaling-misuse (position values differ from the file's), silent truncation (fewer tokens processed than sent),
      kv-quant-quality (better with more bits), backend-attention-bug (another engine is right).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Rule, Test, all_of, any_of, not_
from rules.facts import (
    CONTEXT_SHIFT_SEEN,
    KV_BITS,
    NOT_CUT,
    RECALL_DROP_SURE,
    RECALL_HARMED_SHORT,
    REFUSED_BELOW_ASKED,
    ROPE_MISSING,
    ROPE_WRONG,
    TOLD_OTHER_ENGINE,
    TOLD_WHAT_IS_WRONG,
    TOLD_WORSE_WHEN,
)

RULE = Rule(
    cause="effective-context-quality",
    prior={"forgetting": SLIGHT},
    clues=(
        Clue(
            # One clue of all three: recall that falls says nothing about the model while text may have been lost or positions are not known to be right.
            words(
                "Recall falls with length by more than chance, though every token was processed and positions are as the model file says."
            ),
            all_of(RECALL_DROP_SURE.is_(True), NOT_CUT.is_(True), ROPE_WRONG.is_(False), not_(ROPE_MISSING.is_(True))),
            if_true=DECISIVE,
            if_false=-STRONG,
        ),
        Clue(words("The cache has five bits or fewer."), KV_BITS < 5.9, if_true=-FAIR),
        Clue(
            words("It gets worse little by little with length, the middle first."),
            any_of(TOLD_WORSE_WHEN.is_("gradually"), TOLD_WHAT_IS_WRONG.has("middle-lost")),
            if_true=FAIR,
        ),
        Clue(
            words("Another program does the same with this model."),
            TOLD_OTHER_ENGINE.is_("same"),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(words("Short texts are right."), RECALL_HARMED_SHORT.is_(False), if_false=-FAIR),
        Clue(words("Old text was thrown away while it ran."), CONTEXT_SHIFT_SEEN.is_(True), if_true=-FAIR),
        Clue(
            words("A prompt was refused: it answers with an error, not with forgetting."),
            REFUSED_BELOW_ASKED.is_(True),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="stay-below",
            kind="habit",
            minutes=10,
            reason=words(
                "Keep to the longest length at which it recalls; retrieve, split or summarise what is longer, and put what matters at the end."
            ),
        ),
        Test(
            variable="other-model",
            kind="habit",
            minutes=30,
            reason=words(
                "Measure another model on the same ladder: if it keeps its score at this length, the model was the limit."
            ),
        ),
    ),
)
