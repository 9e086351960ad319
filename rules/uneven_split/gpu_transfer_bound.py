"""Traffic between devices over a slow link is what limits speed at length.

What it looks for
    Several devices with everything in its place and no error, slow at every length; a slow link, every layer shared between the cards, cards that wait
    for each other; faster on one card.

Why it happens
    With layers shared between cards (tensor parallel, row or graph split) each token's activations cross the link many times; with whole layers on each
    card only once. Over one or four lanes, a riser, Thunderbolt or a network, that is what takes the time, most in the prefill of long prompts.

What would prove it wrong
    On one card alone (a smaller model, the same length), or with whole layers on each card, it is as slow.

References
    - llama.cpp: `--split-mode layer|row`; vLLM and SGLang: `--tensor-parallel-size`, `--pipeline-parallel-size`;
      `nvidia-smi topo -m` and the link columns of `nvidia-smi -q`.
    - Look-alikes: vram-spill-shared-memory (a step, shared memory in use), cpu-offload-transfer (between card and system memory), depth-cost.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of, before
from rules.facts import (
    FAILURE_KINDS,
    LINK_SLOW,
    LINK_USE,
    PREFILL_LONG,
    SEVERAL_DEVICES,
    SPEED_SHAPE,
    TOLD_BUSY,
    TOLD_ONE_CARD_FASTER,
    TOLD_SHARED_MEMORY,
    TOLD_SPLIT,
)

LINK_FULL = 0.6
"""From this share of a link on, what goes over it waits: measured over 20 ms, a full one shows 0.6 to 0.9."""

RULE = Rule(
    cause="gpu-transfer-bound",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(words("More than one device is in use."), SEVERAL_DEVICES.is_(True), if_false=-DECISIVE),
        Clue(words("A device is connected over a slow link."), LINK_SLOW.is_(True), if_true=STRONG, if_false=-SLIGHT),
        Clue(
            words("Most of what the link can carry went over it."), LINK_USE > LINK_FULL, if_true=STRONG, if_false=-FAIR
        ),
        Clue(
            words("It is faster on one card, or on fewer."),
            TOLD_ONE_CARD_FASTER.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("Every layer is shared between the cards."), TOLD_SPLIT.is_("tensor"), if_true=FAIR),
        Clue(
            words("It is slow at every length, or falls smoothly."),
            SPEED_SHAPE.one_of("always", "slope"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("The cards wait rather than compute."), TOLD_BUSY.one_of("neither", "gpu-low-power"), if_true=FAIR),
        Clue(words("Shared memory is in use."), TOLD_SHARED_MEMORY.is_(True), if_true=-FAIR),
        Clue(
            words("It fails for lack of memory, or the device or the machine goes down."),
            any_of(
                FAILURE_KINDS.has("gpu-memory"),
                FAILURE_KINDS.has("one-piece"),
                FAILURE_KINDS.has("create-context"),
                FAILURE_KINDS.has("kernel"),
                FAILURE_KINDS.has("device-lost"),
                FAILURE_KINDS.has("machine-restarts"),
            ),
            if_true=-STRONG,
        ),
    ),
    tests=(
        Test(
            variable="split_mode",
            to="layer",
            keep=("ctx", "kv_type_k", "kv_type_v", "ubatch", "tensor_split"),
            minutes=8,
            reason=words(
                "With whole layers on each card, the link is crossed once for each card and token. It costs no quality."
            ),
            expects=(
                Expect(
                    "gpu-transfer-bound",
                    before(PREFILL_LONG) * 1.2 < PREFILL_LONG,
                    words("Prefill at the longest length becomes faster."),
                ),
                Expect(
                    "depth-cost",
                    before(PREFILL_LONG) * 1.2 >= PREFILL_LONG,
                    words("If it is the price of length, the speed stays."),
                ),
            ),
        ),
    ),
)
