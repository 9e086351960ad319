"""Another program, or another process of the same server, holds video memory.

What it looks for
    Memory of the card that is held by something else than the server's process; a limit that wanders with what else runs, or that appeared with an update
    that starts a second process; a model that should fit and does not.

Why it happens
    A desktop, a browser, an image generator, a second server, or a parent process that opens a GPU context of its own each hold hundreds of megabytes or more.
    What was sized to the card's total then lacks exactly that.

What would prove it wrong
    With everything else on the card ended, nothing else changed, it fails at the same length; or the driver lists no other process.

References
    - `nvidia-smi` (processes), `nvtop`, `rocm-smi --showpids`, Task Manager's dedicated GPU memory by process, fdinfo on Linux.
    - Look-alikes: previous-instance-holds-memory (an earlier run of the server itself), kv-cache-size (nothing else is there), memory-estimate-bug.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of, before
from rules.facts import (
    ALLOC_FAILED,
    FAILURE_KINDS,
    FAILURE_TOKENS,
    NEED_OF_DEVICES,
    OTHER_VRAM_BYTES,
    TOLD_OLDER_VERSION,
    TOLD_OTHERS_ON_GPU,
    TOLD_RANDOM_RELOAD,
    TOLD_SAME_LENGTH,
)

RULE = Rule(
    cause="other-process-vram",
    prior={"immediate-oom": SLIGHT, "fixed-length-error": SLIGHT, "flaky": SLIGHT},
    explains=("vram-spill-shared-memory", "cpu-layer-offload"),
    clues=(
        Clue(
            words("Another program or process uses the card."),
            all_of(
                any_of(
                    TOLD_OTHERS_ON_GPU.has("other-program"),
                    TOLD_OTHERS_ON_GPU.has("same-server"),
                    TOLD_OTHERS_ON_GPU.has("screen"),
                ),
                any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("create-context")),
            ),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Others hold more than half a GiB of the card."),
            all_of(OTHER_VRAM_BYTES > 512 * 2**20, ALLOC_FAILED.is_(True)),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The length at which it fails varies."), TOLD_SAME_LENGTH.is_("varies"), if_true=SLIGHT),
        Clue(words("It changes from one load to the next."), TOLD_RANDOM_RELOAD.is_(True), if_true=SLIGHT),
        Clue(
            words("The model with its window would fit the card alone."),
            NEED_OF_DEVICES < 0.95,
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("The version before the update needs less."), TOLD_OLDER_VERSION.is_(True), if_true=SLIGHT),
    ),
    tests=(
        Test(
            variable="other programs on the card",
            kind="habit",
            to="ended",
            minutes=3,
            reason=words(
                "List the processes on the card, end those that are not the server's, and load again. It costs nothing."
            ),
            expects=(
                Expect(
                    "other-process-vram",
                    any_of(
                        before(FAILURE_TOKENS) * 1.05 < FAILURE_TOKENS,
                        before(OTHER_VRAM_BYTES) * 0.5 > OTHER_VRAM_BYTES,
                    ),
                    words("It loads, or the length at which it fails moves up."),
                ),
            ),
        ),
    ),
)
