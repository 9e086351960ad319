"""One card overflows while another has room.

What it looks for
    Several devices, memory in all that would do, and one of them full at the moment of the failure; more so where the devices differ in size, where
    their order or number changed, or where another split works.

Why it happens
    Each device is a limit of its own. Shares by a fixed proportion, by the order in which one part of the program lists the cards, or by weights
    alone can put more on the smaller card than it holds. 16 GB and 8 GB are not a pool of 24 GB.

What would prove it wrong
    With a share moved from the full card to the other, nothing else changed, it fails at the same length and on the same card, or both are full.

References
    - llama.cpp: `--tensor-split`, `--main-gpu`, `CUDA_DEVICE_ORDER=PCI_BUS_ID`; Ollama and LM Studio plan the split themselves.
    - Look-alikes: gpu-split-no-headroom (equal cards, filled one after the other without a reserve), kv-cache-size (all cards are full),
      other-process-vram (the full card is full before loading).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    FAILURE_TOKENS,
    LAUNCH_FAILED,
    NEED_OF_DEVICES,
    ONE_DEVICE_FULL,
    OTHER_SPLIT_FITS,
    SAFE_SPLIT,
    SEVERAL_DEVICES,
    TOLD_CHANGED,
    TOLD_OTHER_SPLIT,
    TOLD_ROOM_LEFT,
    UNEQUAL_DEVICES,
)

RULE = Rule(
    cause="uneven-gpu-split",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    explains=("vram-spill-shared-memory",),
    clues=(
        Clue(words("More than one device is in use."), SEVERAL_DEVICES.is_(True), if_false=-DECISIVE),
        Clue(
            words("One device was full while another had room."),
            ONE_DEVICE_FULL.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The devices have different sizes."), UNEQUAL_DEVICES.is_(True), if_true=FAIR, if_false=-SLIGHT),
        Clue(
            words("It works with another split or order of cards."),
            TOLD_OTHER_SPLIT.is_(True),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("All devices together have the memory that it takes."),
            all_of(FAILURE_KINDS.has("gpu-memory"), NEED_OF_DEVICES < 0.92),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The server, a card or the split was changed before it began."),
            any_of(TOLD_CHANGED.has("server"), TOLD_CHANGED.has("hardware"), TOLD_CHANGED.has("split")),
            if_true=SLIGHT,
        ),
        Clue(words("There was plenty of memory free."), TOLD_ROOM_LEFT.is_("plenty"), if_true=SLIGHT),
        Clue(
            words("By the model file, a device overflows that would not with another split."),
            OTHER_SPLIT_FITS.is_(True),
            if_true=STRONG,
        ),
    ),
    tests=(
        Test(
            variable="tensor_split",
            when=SAFE_SPLIT.known(),
            to=SAFE_SPLIT,
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch", "parallel"),
            minutes=5,
            reason=words(
                "With this split every card holds its layers and its part of the cache, by the model file. It costs no quality."
            ),
            also=("gpu-split-no-headroom",),
            expects=(
                Expect(
                    "uneven-gpu-split",
                    any_of(LAUNCH_FAILED.is_(False), before(FAILURE_TOKENS) * 1.1 < FAILURE_TOKENS),
                    words("It loads, or the length at which it fails moves up."),
                ),
            ),
        ),
        Test(
            variable="tensor_split",
            kind="habit",
            to="less on the card that was full, by a tenth of its memory",
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch", "parallel"),
            minutes=5,
            reason=words("The memory is there; only its place is wrong. It costs no quality."),
            also=("gpu-split-no-headroom",),
            expects=(
                Expect(
                    "uneven-gpu-split",
                    any_of(before(FAILURE_TOKENS) * 1.1 < FAILURE_TOKENS, ONE_DEVICE_FULL.is_(False)),
                    words("It loads, or the length at which it fails moves up."),
                ),
                Expect(
                    "kv-cache-size",
                    before(FAILURE_TOKENS) * 1.1 >= FAILURE_TOKENS,
                    words("If the cache is too large for all cards, the length stays."),
                ),
            ),
        ),
    ),
)
