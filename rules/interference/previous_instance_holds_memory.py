"""An earlier runner still holds it.

What it looks for
    A load that fails right after a restart or a change of the model, and sometimes works with the very same settings; an earlier process that has not ended; a
    second try some seconds later that passes.

Why it happens
    A process that is told to end keeps its memory until its last job is done and the driver has let go; a runner may hang and never end. The new one counts
    or allocates while both are there.

What would prove it wrong
    After waiting until the card is empty, nothing else changed, the load fails the same way.

References
    - Ollama: "gpu VRAM usage didn't recover within timeout"; `nvidia-smi` shows the old process; macOS: the old process's footprint.
    - Look-alikes: other-process-vram (another program), memory-fragmentation (one process, many loads), weights-leave-no-room (always fails).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of
from rules.facts import (
    FAILURE_KINDS,
    LAUNCH_FAILED,
    MEMORY_NOT_FREED,
    TOLD_FAILED_WHILE,
    TOLD_FRESH_START,
    TOLD_OTHERS_ON_GPU,
    TOLD_RANDOM_RELOAD,
    TOLD_RETRY_PASSES,
    TOLD_WHEN,
)

RULE = Rule(
    cause="previous-instance-holds-memory",
    prior={"flaky": SLIGHT, "immediate-oom": SLIGHT},
    clues=(
        Clue(
            words("It happens right after a restart or another load."),
            TOLD_WHEN.has("after-restart"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("An earlier run has not ended, or has just been stopped."),
            TOLD_OTHERS_ON_GPU.has("earlier-run"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("What does not fit is memory of the card."),
            any_of(FAILURE_KINDS.has("gpu-memory"), FAILURE_KINDS.has("memory-guard"), FAILURE_KINDS.has("one-piece")),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("Sometimes it works, with nothing changed."),
            TOLD_RANDOM_RELOAD.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("The second try passes."), TOLD_RETRY_PASSES.is_(True), if_true=FAIR),
        Clue(
            words("The log says that an earlier run's memory was not given back in time."),
            MEMORY_NOT_FREED.is_(True),
            if_true=STRONG,
        ),
        Clue(
            words("It fails while loading or warming up."),
            TOLD_FAILED_WHILE.one_of("weights", "cache", "buffers"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Only a restart of the computer cures it, or nothing does."),
            TOLD_FRESH_START.is_("no"),
            if_true=-SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="the pause before the next start",
            kind="habit",
            to="until the card is empty",
            minutes=2,
            reason=words(
                "Stop the old process, wait until the card's memory is free, and start again with nothing changed. It costs nothing."
            ),
            expects=(Expect("previous-instance-holds-memory", LAUNCH_FAILED.is_(False), words("It loads each time.")),),
        ),
    ),
)
