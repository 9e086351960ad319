"""GPU driver, firmware or OS kernel fault.

What it looks for
    The whole computer stops or restarts, the kernel panics, or a page fault or firmware error of the card is logged; after an update of the driver or the
    system; on several machines of one make, and with other engines too; only a restart of the computer helps.

Why it happens
    Heavy wiring and release of memory, large mappings and long queues reach paths in drivers and firmware that ordinary programs do not. No program in user
    space may bring a machine down: when one does, the fault is below it.

What would prove it wrong
    With the driver or system as it was before, nothing else changed, it happens as before; or only this machine has it (then think of hardware).

References
    - `dmesg`, `journalctl -k -b -1`, macOS panic reports, Windows bug-check codes 0x116, 0x119 and 0x133.
    - Look-alikes: hardware-fault (one machine, under load), gpu-watchdog-timeout (a job that is too long), backend-kernel-bug (one engine).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Rule, Test, any_of
from rules.facts import (
    FAILURE_KINDS,
    TOLD_CHANGED,
    TOLD_FRESH_START,
    TOLD_KERNEL_LOG,
    TOLD_OTHER_ENGINE,
    TOLD_OTHER_MACHINES,
    TOLD_POWER,
)

RULE = Rule(
    cause="driver-kernel-bug",
    prior={"flaky": SLIGHT},
    clues=(
        Clue(
            words("The whole computer stops or restarts."),
            FAILURE_KINDS.has("machine-restarts"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The kernel stopped, or logged a page fault or firmware error of the card."),
            any_of(TOLD_KERNEL_LOG.has("panic"), TOLD_KERNEL_LOG.has("card-error")),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The driver or the system was updated before it began."),
            TOLD_CHANGED.has("driver"),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("It was seen on other machines too."),
            TOLD_OTHER_MACHINES.one_of("many", "one-kind"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("Other engines have it too."), TOLD_OTHER_ENGINE.is_("same"), if_true=FAIR, if_false=-SLIGHT),
        Clue(words("Only a restart of the computer cures it."), TOLD_FRESH_START.is_("reboot-only"), if_true=FAIR),
        Clue(words("It goes away with less power, or in another slot."), TOLD_POWER.is_("yes"), if_true=-STRONG),
    ),
    tests=(
        Test(
            variable="the driver's version",
            kind="habit",
            to="the one before",
            minutes=30,
            reason=words(
                "Go back to the driver or system as it was before, and run the same. Until then, keep a smaller share of memory in use."
            ),
        ),
    ),
)
