"""Power supply, circuit, riser, card.

What it looks for
    A card that vanishes from the bus, bus or memory errors in the kernel's log, after minutes of heavy load and
    whatever the length; on this machine only; gone
    with a lower power limit, other cables, another slot or circuit.

Why it happens
    Inference holds a card at full power for minutes, and prefill bursts draw more than the average. A supply, a
    cable, a riser or a card at its limit fails then.
    Length only matters because a long prompt is a long load.

What would prove it wrong
    With the power limit lowered by a quarter for an hour, nothing else changed, it fails as often; or other machines have it too.

References
    - NVIDIA Xid 79 ("fallen off the bus"), 48, 63, 94 and 95 (memory); PCIe AER in `dmesg`; `nvidia-smi -pl`; amdgpu RAS counters.
    - Look-alikes: gpu-watchdog-timeout (at a length, the card is still there), driver-kernel-bug (several machines), gpu-lost-at-runtime.
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Rule, Test, any_of
from rules.facts import (
    FAILURE_KINDS,
    HARDWARE_SEEN,
    TOLD_GPU_SEEN,
    TOLD_KERNEL_LOG,
    TOLD_OTHER_MACHINES,
    TOLD_POWER,
    TOLD_SAME_LENGTH,
    TOLD_SMALLER_BATCH,
    TOLD_WHEN,
)

RULE = Rule(
    cause="hardware-fault",
    prior={"flaky": SLIGHT},
    clues=(
        Clue(
            words("The card fell off the bus, or the bus or the card's memory reported errors."),
            any_of(TOLD_KERNEL_LOG.has("bus"), HARDWARE_SEEN.is_(True)),
            if_true=STRONG,
        ),
        Clue(words("The card is gone for the system too."), TOLD_GPU_SEEN.is_("gone"), if_true=STRONG, if_false=-FAIR),
        Clue(
            words("It hangs by the load: power, heat, cable, slot."),
            TOLD_POWER.one_of("yes", "load"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("It comes after minutes of hard work, whatever the length."),
            TOLD_WHEN.has("under-load"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It does not depend on the length."),
            TOLD_SAME_LENGTH.one_of("any", "varies"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("Only this machine has it."), TOLD_OTHER_MACHINES.is_("one"), if_true=SLIGHT, if_false=-FAIR),
        Clue(
            words("The card was lost, or the computer stopped."),
            any_of(FAILURE_KINDS.has("device-lost"), FAILURE_KINDS.has("machine-restarts")),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("A smaller micro-batch cures it, or it fails later."),
            TOLD_SMALLER_BATCH.one_of("cures", "later"),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="the card's power limit",
            kind="habit",
            to="three quarters of its default",
            minutes=60,
            reason=words(
                "Lower the card's power limit by a quarter and run the same load for an hour. It costs some speed, and no quality."
            ),
        ),
    ),
)
