"""The split counts weights only and leaves no room for cache and activations on a card.

What it looks for
    Several devices that have the memory in all, a split that the program makes by itself (or that was set by weights), and a failure in the midst of
    loading or at the first cache or working buffer; equal cards, of which the first is filled to the brim.

Why it happens
    Loaders that fill one card after another, or share weights by free memory at the start, forget what each card needs later: its part of the cache,
    activations, the library's own workspace. A card that is full of weights fails at the first thing that comes after them.

What would prove it wrong
    With a reserve of 2 GB on each card (or a first share smaller by 2 GB), nothing else changed, it fails at the same point.

References
    - ExLlama / TabbyAPI: `gpu_split`, `autosplit_reserve`; llama.cpp: `--tensor-split`, `--fit-target`; vLLM: `--gpu-memory-utilization`.
    - Look-alikes: uneven-gpu-split (cards of different sizes, or shares in the wrong order), weights-leave-no-room (all cards together are too small).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    BACKEND,
    FAILURE_KINDS,
    FAILURE_TOKENS,
    LAUNCH_FAILED,
    NEED_OF_DEVICES,
    ONE_DEVICE_FULL,
    OTHER_SPLIT_FITS,
    SAFE_SPLIT,
    SEVERAL_DEVICES,
    TOLD_FAILED_WHILE,
    TOLD_OTHER_SPLIT,
    TOLD_SPLIT,
    UNEQUAL_DEVICES,
)

RULE = Rule(
    cause="gpu-split-no-headroom",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(words("More than one device is in use."), SEVERAL_DEVICES.is_(True), if_false=-DECISIVE),
        Clue(
            words("The program makes the split, or it was set by shares."),
            all_of(TOLD_SPLIT.one_of("automatic", "set"), TOLD_FAILED_WHILE.one_of("weights", "cache", "buffers")),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("All devices together have the memory that it takes."),
            NEED_OF_DEVICES < 0.97,
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("The devices have one size."), UNEQUAL_DEVICES.is_(False), if_true=SLIGHT, if_false=-SLIGHT),
        Clue(words("One device was full while another had room."), ONE_DEVICE_FULL.is_(True), if_true=FAIR),
        Clue(
            words("The loader is one that fills card after card."),
            BACKEND.one_of("tabbyapi", "text-generation-webui"),
            if_true=SLIGHT,
        ),
        Clue(
            words("It works with a reserve on each card, or with another split."),
            TOLD_OTHER_SPLIT.is_(True),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("What does not fit is memory of a device."),
            FAILURE_KINDS.has("gpu-memory"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("By the model file, a device overflows that would not with another split."),
            OTHER_SPLIT_FITS.is_(True),
            if_true=SLIGHT,
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
            also=("uneven-gpu-split",),
            expects=(
                Expect(
                    "gpu-split-no-headroom",
                    any_of(LAUNCH_FAILED.is_(False), before(FAILURE_TOKENS) * 1.1 < FAILURE_TOKENS),
                    words("It loads, or the length at which it fails moves up."),
                ),
            ),
        ),
        Test(
            variable="tensor_split",
            kind="habit",
            to="a first share that is 2 GB smaller",
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch"),
            minutes=5,
            reason=words("A reserve on each card is room for what comes after the weights. It costs no quality."),
            also=("uneven-gpu-split",),
            expects=(
                Expect(
                    "gpu-split-no-headroom",
                    any_of(LAUNCH_FAILED.is_(False), before(FAILURE_TOKENS) * 1.1 < FAILURE_TOKENS),
                    words("It loads, or goes further."),
                ),
                Expect(
                    "weights-leave-no-room",
                    LAUNCH_FAILED.is_(True),
                    words("If the weights are too large for all cards, it fails as before."),
                ),
            ),
        ),
    ),
)
