"""The device is lost to the process, which goes on with the CPU.

What it looks for
    A server that used the card and now computes on the processor, without an error to the user: after the computer
    slept, after a container lost its rights, after
    a driver update under a running server; the system still sees the card; the log says that the runtime could not be started.

Why it happens
    A driver's state does not survive a suspend, a module reload or a change of device rights. The runtime's first call then fails (CUDA error 999 and the
    like), and programs that can fall back do so quietly.

What would prove it wrong
    After the driver's module was reloaded or the computer restarted, nothing else changed, the processor still computes.

References
    - NVIDIA: reload `nvidia_uvm`, `NVreg_PreserveVideoMemoryAllocations`; containers: device cgroups lost at
      `systemctl daemon-reload`; ROCm: `/dev/kfd` rights.
    - Look-alikes: cpu-layer-offload (the window pushed layers away; no failure to start), hardware-fault (the card is gone for the system too).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Rule, Test, any_of
from rules.facts import (
    FAILURE_KINDS,
    GPU_NOT_INITIALISED,
    HARDWARE_SEEN,
    TOLD_FRESH_START,
    TOLD_GPU_SEEN,
    TOLD_KERNEL_LOG,
    TOLD_WHEN,
)

RULE = Rule(
    cause="gpu-lost-at-runtime",
    prior={"flaky": SLIGHT, "slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The system sees the card, but the server computes on the processor."),
            TOLD_GPU_SEEN.is_("unused"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("It comes after the computer slept."), TOLD_WHEN.has("after-sleep"), if_true=STRONG),
        Clue(words("The log says that the card could not be started."), GPU_NOT_INITIALISED.is_(True), if_true=STRONG),
        Clue(
            words("A fresh start of the server or the computer cures it."),
            TOLD_FRESH_START.one_of("reboot-only", "cures", "for-a-while"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("It fails for lack of memory."), FAILURE_KINDS.has("gpu-memory"), if_true=-STRONG),
        Clue(
            words("The bus or the hardware reported a fault."),
            any_of(TOLD_KERNEL_LOG.has("bus"), HARDWARE_SEEN.is_(True)),
            if_true=-FAIR,
        ),
    ),
    tests=(
        Test(
            variable="the driver's state",
            kind="habit",
            to="reloaded",
            minutes=5,
            reason=words(
                "Reload the driver's module (or restart the computer), start the server, and run the same request before the computer sleeps."
            ),
        ),
    ),
)
