"""Position scaling is missing, wrong, or chosen by the allocated window.

What it looks for
    A position base or scale in force that is not the model file's within its training; a window beyond the training without scaling; a model with
    factors for short and long windows; and a score that is harmed at short lengths too, or breaks at one length.

Why it happens
    A model knows positions only as it was trained to see them. A base or scale set by hand (or an old file without its factors) puts the words at
    places that it never saw: near ones blur, far ones are lost. Some models choose the factors by the window that is allocated, so that
    merely allocating more changes short answers.

What would prove it wrong
    With the file's own values the score stays as low at the same lengths.

References
    - llama.cpp: `--rope-freq-base`, `--rope-freq-scale`, `--rope-scaling`, `freq_base` and `freq_base_train` at load; YaRN; LongRoPE (Phi-3), Llama 3.1's
      factors.
    - Look-alikes: effective-context-quality (positions are as in the file), backend-attention-bug (another engine is right with the same
      values), kv-quant-quality.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import (
    DECISIVE,
    FAIR,
    SLIGHT,
    STRONG,
    Clue,
    Computed,
    Expect,
    Rule,
    Test,
    all_of,
    any_of,
    before,
    not_,
)
from rules.facts import (
    FAILURE_AT_START,
    FAILURE_OF_TRAINED,
    IS_MEMORY_FAILURE,
    KV_BITS,
    NOT_CUT,
    RECALL_ABLE,
    RECALL_AT_LONGEST,
    RECALL_BASE,
    RECALL_DROP_SURE,
    RECALL_HARMED_SHORT,
    ROPE_BASE_RATIO,
    ROPE_BASE_SET,
    ROPE_CHOSEN_BY_WINDOW,
    ROPE_MISSING,
    ROPE_SCALE_FLAG,
    ROPE_SCALE_RATIO,
    ROPE_SCALE_SET,
    ROPE_WRONG,
    SMALLER_WINDOW_WORKS,
    TOLD_CHANGED,
    TOLD_FAILS_AT,
    TOLD_OTHER_ENGINE,
    TOLD_POSITION_SCALING,
    TOLD_WINDOW_ASKED,
    TOLD_WORSE_WHEN,
    WINDOW_IN_FORCE,
    WINDOW_TRAINED,
)

RULE = Rule(
    cause="rope-scaling-misuse",
    prior={"forgetting": SLIGHT},
    explains=("effective-context-quality",),
    clues=(
        Clue(
            words(
                "Positions are scaled otherwise than the model file says, or the window is longer than the training and nothing is scaled."
            ),
            any_of(ROPE_WRONG.is_(True), ROPE_MISSING.is_(True)),
            if_true=DECISIVE,
            if_false=-STRONG,
        ),
        Clue(
            words(
                "Position scaling was set by hand, comes from an old file, is chosen by the window, or is needed and not set."
            ),
            TOLD_POSITION_SCALING.one_of("set", "file", "auto", "needed"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Recall falls with length by more than chance, or is harmed at short lengths already."),
            any_of(RECALL_DROP_SURE.is_(True), RECALL_HARMED_SHORT.is_(True)),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("It gets worse as soon as a longer window is set, even with the same short prompt."),
            any_of(TOLD_WORSE_WHEN.is_("allocated"), ROPE_CHOSEN_BY_WINDOW.is_(True)),
            if_true=FAIR,
        ),
        Clue(
            words("It breaks at a length far below the trained window."),
            all_of(FAILURE_OF_TRAINED > 0.01, FAILURE_OF_TRAINED < 0.6),
            if_true=SLIGHT,
        ),
        Clue(
            words("A smaller window makes the answers right."),
            all_of(SMALLER_WINDOW_WORKS.is_(True), IS_MEMORY_FAILURE.is_(False)),
            if_true=SLIGHT,
        ),
        Clue(
            words("It fails while the server starts: nothing was answered, rightly or wrongly."),
            FAILURE_AT_START.is_(True),
            if_true=-DECISIVE,
        ),
        Clue(words("Text was lost before it was processed."), NOT_CUT.is_(False), if_true=-STRONG),
        Clue(
            words("The same model is right in another program, or with a file converted anew."),
            TOLD_OTHER_ENGINE.is_("works"),
            if_true=SLIGHT,
        ),
        Clue(words("It is suddenly worse past a length."), TOLD_FAILS_AT.above(TOLD_WINDOW_ASKED), if_true=SLIGHT),
        Clue(
            words("It begins after the model or the window was changed."),
            any_of(TOLD_CHANGED.has("model"), TOLD_CHANGED.has("window")),
            if_true=SLIGHT,
        ),
        Clue(words("A cache of few bits is in use."), KV_BITS < 5.9, if_true=-SLIGHT),
    ),
    tests=(
        Test(
            variable="rope_freq_base",
            when=any_of(ROPE_BASE_RATIO < 0.98, ROPE_BASE_RATIO > 1.02),
            start=ROPE_BASE_SET,
            unset=True,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            minutes=5,
            reason=words("Without the setting, the base is the one that the model was trained with."),
            expects=(
                Expect(
                    "rope-scaling-misuse",
                    any_of(
                        before(RECALL_AT_LONGEST) * 1.3 < RECALL_AT_LONGEST,
                        all_of(before(RECALL_BASE) * 1.1 < RECALL_BASE, RECALL_AT_LONGEST > 0.5),
                    ),
                    words("Recall rises at every length, and no longer falls so steeply."),
                ),
                Expect(
                    "effective-context-quality",
                    before(RECALL_AT_LONGEST) * 1.15 > RECALL_AT_LONGEST,
                    words("If it is the model itself, recall at length stays as it is."),
                ),
            ),
        ),
        Test(
            variable="rope_freq_scale",
            when=all_of(
                any_of(ROPE_SCALE_RATIO < 0.98, ROPE_SCALE_RATIO > 1.02), not_(ROPE_SCALE_FLAG.is_("rope_scale"))
            ),
            start=ROPE_SCALE_SET,
            unset=True,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            minutes=5,
            reason=words("Without the setting, the scale is the one that the model was trained with."),
            expects=(
                Expect(
                    "rope-scaling-misuse",
                    any_of(
                        before(RECALL_AT_LONGEST) * 1.3 < RECALL_AT_LONGEST,
                        all_of(before(RECALL_BASE) * 1.1 < RECALL_BASE, RECALL_AT_LONGEST > 0.5),
                    ),
                    words("Recall rises at every length, and no longer falls so steeply."),
                ),
            ),
        ),
        Test(
            variable="rope_scale",
            when=all_of(any_of(ROPE_SCALE_RATIO < 0.98, ROPE_SCALE_RATIO > 1.02), ROPE_SCALE_FLAG.is_("rope_scale")),
            start=ROPE_SCALE_SET,
            unset=True,
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel"),
            minutes=5,
            reason=words("Without the setting, the scale is the one that the model was trained with."),
            expects=(
                Expect(
                    "rope-scaling-misuse",
                    any_of(
                        before(RECALL_AT_LONGEST) * 1.3 < RECALL_AT_LONGEST,
                        all_of(before(RECALL_BASE) * 1.1 < RECALL_BASE, RECALL_AT_LONGEST > 0.5),
                    ),
                    words("Recall rises at every length, and no longer falls so steeply."),
                ),
            ),
        ),
        Test(
            variable="ctx",
            when=all_of(not_(ROPE_BASE_RATIO > 1.02), not_(ROPE_BASE_RATIO < 0.98)),
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("the trained window, or half of the one in force"),
                lambda facts: (
                    min((facts.value(WINDOW_IN_FORCE) or 0) // 2, facts.value(WINDOW_TRAINED) or 2**30) or None
                ),
            ),
            keep=("kv_type_k", "kv_type_v", "parallel"),
            quality="none",
            minutes=8,
            reason=words("With a window inside the training no scaling is needed; the same short prompt is compared."),
            expects=(
                Expect(
                    "rope-scaling-misuse",
                    all_of(before(RECALL_BASE) * 1.1 < RECALL_BASE, RECALL_ABLE.is_(True)),
                    words("The same short prompt is answered better."),
                ),
            ),
        ),
    ),
)
