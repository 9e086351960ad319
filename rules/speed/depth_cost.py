"""The ordinary price of attention and bandwidth at this length; an operating boundary, not a fault.

What it looks for
    A smooth fall of speed with length, no step, no error, everything on the card, only new text read at each message; a new chat is fast again; another
    engine falls as much.

Why it happens
    Each new token reads the whole cache once, and each prompt token attends to all before it. Both grow with length on every engine and card. Whether the
    speed at a length is acceptable is the user's to say.

What would prove it wrong
    A model that surely fits, run over the same lengths, keeps its speed; or there is a step in the curve.

References
    - The control run of this tool tells spill from the ordinary cost. llama-bench: `-d` for speed at depth.
    - Look-alikes: vram-spill-shared-memory (a step), attention-kernel-slow (much steeper than in proportion), prompt-cache-miss-… (all is read again).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Rule, Test, all_of, any_of, not_
from rules.facts import (
    CONTROL_SAYS,
    FAILURE_KINDS,
    SPEED_COMPLAINT,
    SPEED_SHAPE,
    SPEED_STEP,
    TOLD_BUSY,
    TOLD_CHANGED,
    TOLD_DISK,
    TOLD_FLASH_ATTENTION_TURNED,
    TOLD_NEW_CHAT,
    TOLD_ON_GPU,
    TOLD_OTHER_CLIENT,
    TOLD_OTHER_ENGINE,
    TOLD_REREADS,
    TOLD_SHARED_MEMORY,
)

RULE = Rule(
    cause="depth-cost",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("Speed falls smoothly with length."),
            all_of(SPEED_SHAPE.is_("slope"), SPEED_COMPLAINT.is_(True)),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("A model that surely fits slows down as much over the same lengths."),
            CONTROL_SAYS.is_("alike"),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(words("There is a step in the measured speed."), SPEED_STEP.is_(True), if_true=-STRONG),
        Clue(words("A new chat is fast again."), TOLD_NEW_CHAT.is_(True), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(words("All weights are on the card."), TOLD_ON_GPU.is_("all"), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(words("Shared memory is not in use."), not_(TOLD_SHARED_MEMORY.is_(True)), if_true=SLIGHT, if_false=-FAIR),
        Clue(words("Another engine falls as much."), TOLD_OTHER_ENGINE.is_("same"), if_true=FAIR, if_false=-SLIGHT),
        Clue(
            words("Only new text is read at each message."),
            TOLD_REREADS.is_("only-new"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("The card is busy."), TOLD_BUSY.is_("gpu"), if_true=SLIGHT),
        Clue(words("Disk and swap are quiet."), TOLD_DISK.is_("quiet"), if_true=SLIGHT, if_false=-FAIR),
        Clue(
            words("A program was changed before it began."),
            any_of(TOLD_CHANGED.has("server"), TOLD_CHANGED.has("client")),
            if_true=-FAIR,
        ),
        Clue(
            words("Another client is fast with the same server and model."), TOLD_OTHER_CLIENT.is_(True), if_true=-FAIR
        ),
        Clue(
            words("It is faster with flash attention switched the other way."),
            TOLD_FLASH_ATTENTION_TURNED.is_("cures"),
            if_true=-FAIR,
        ),
        Clue(
            words("It fails instead of being slow."),
            any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("device-lost"), FAILURE_KINDS.has("kernel")),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="two windows",
            kind="habit",
            minutes=1,
            reason=words(
                "Keep the shorter window for every day, and the long one for the jobs that need it; retrieve or summarise instead of sending everything."
            ),
        ),
    ),
)
