"""Speculation costs more than it gains at length.

What it looks for
    Slow writing with a draft model, MTP or another speculation on; faster with it off; few drafted tokens accepted; a fall at the length at which the
    draft's own window is full.

Why it happens
    Each step runs the draft several times and the main model over several tokens. Where few are accepted (unusual text, a draft that cannot see the whole
    context, a draft whose own window is full and is read again), that work is lost; and verifying several tokens is dear at depth.

What would prove it wrong
    With speculation off, nothing else changed, it writes no faster at the same length.

References
    - llama.cpp: `--spec-type`, `--draft-max`, `--ctx-size-draft`, "draft acceptance rate"; vLLM: `--speculative-config`; SGLang: EAGLE options.
    - Look-alikes: depth-cost, draft-mtp-vram (the draft takes the memory), cpu-layer-offload (the draft pushed layers off the card).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    DRAFT_ACCEPTED,
    DRAFT_ACCEPTED_LONG,
    DRAFT_WINDOW_FULL,
    FAILURE_KINDS,
    GENERATION_LONG,
    SPECULATION,
    SPECULATION_GAIN,
    SPEED_SHAPE,
    TOLD_CHANGED,
    TOLD_SLOW_PART,
    TOLD_SPECULATION_OFF,
)

RULE = Rule(
    cause="speculative-overhead",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(words("Speculation is on."), SPECULATION.is_(True), if_true=SLIGHT, if_false=-DECISIVE),
        Clue(
            words("It is faster with speculation off."),
            TOLD_SPECULATION_OFF.is_("cures"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words(
                "By the time that drafting took and by what was accepted, writing is slower with speculation than without."
            ),
            SPECULATION_GAIN < 0.95,
            # an upper bound: above one it does not say that speculation gains, so nothing follows then
            if_true=DECISIVE,
        ),
        Clue(
            # one token more for each step at best costs several of the draft's steps and the check of all of them
            words("In longer answers fewer than one in six drafted tokens was accepted."),
            DRAFT_ACCEPTED_LONG < 0.16,
            if_true=STRONG,
        ),
        Clue(words("The draft's own window is full."), DRAFT_WINDOW_FULL.is_(True), if_true=STRONG),
        Clue(
            words("Fewer than four in ten drafted tokens were accepted."),
            DRAFT_ACCEPTED < 0.4,
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("Writing is what is slow."), TOLD_SLOW_PART.one_of("writing", "both"), if_true=FAIR, if_false=-FAIR),
        Clue(words("Speculation was turned on before it began."), TOLD_CHANGED.has("speculation"), if_true=FAIR),
        Clue(
            words("Speed falls at a certain length, or smoothly with it."),
            SPEED_SHAPE.one_of("step", "slope", "steep"),
            if_true=SLIGHT,
        ),
        Clue(
            words("It fails instead of being slow."),
            any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("create-context")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="speculation",
            start="on",
            to="off",
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch", "parallel"),
            minutes=5,
            reason=words("It costs no quality at all, and frees memory."),
            also=("draft-mtp-vram",),
            when=SPECULATION.is_(True),
            expects=(
                Expect(
                    "speculative-overhead",
                    before(GENERATION_LONG) * 1.1 < GENERATION_LONG,
                    words("Writing becomes faster at the longest length."),
                ),
                Expect(
                    "depth-cost",
                    before(GENERATION_LONG) * 1.1 >= GENERATION_LONG,
                    words("If it is the price of length, writing is no faster."),
                ),
            ),
        ),
    ),
)
