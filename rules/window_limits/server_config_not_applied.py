"""The setting never reached the loader.

What it looks for
    A window in force that is neither the one asked for, nor the trained one, nor a share by slots; a setting without any effect; a window set in a
    file or a service that the running process does not show.

Why it happens
    The setting stands where this process does not read it: another user's environment, a service file that was not reloaded, a preset of another
    model, a router that starts the worker with its own arguments, a misspelt key. The server then takes its default, silently.

What would prove it wrong
    The running process's own command line and environment hold the setting, and the window in force is still another.

References
    - `/proc/<pid>/environ` and `cmdline`, `systemctl show`, `ollama show`, `/props`, `lms ps`.
    - Look-alikes: ctx-capped-by-engine (equal to the trained window), slots-divide-ctx (a share), request-option-ignored (set in the request).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of
from rules.facts import (
    CONFIG_IGNORED,
    TOLD_CHANGED,
    TOLD_OTHER_MODELS,
    TOLD_WINDOW_SET,
    WINDOW_ASKED,
    WINDOW_CAP_REASON,
    WINDOW_DIFFERS_UNEXPLAINED,
    WINDOW_IN_FORCE,
    WINDOW_IS_KNOWN_DEFAULT,
    WINDOW_SHARE_OF_ASKED,
)

RULE = Rule(
    cause="server-config-not-applied",
    prior={"forgetting": SLIGHT, "fixed-length-error": SLIGHT},
    explains=("silent-truncation-default-ctx",),
    clues=(
        Clue(
            words("The window in force is neither the one asked for, nor the trained one, nor a share by slots."),
            WINDOW_DIFFERS_UNEXPLAINED.is_(True),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("Changing the setting has no effect, or the log says that it was ignored."),
            CONFIG_IGNORED.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The window was set in a file, a service or a preset of the server."),
            TOLD_WINDOW_SET.one_of("server-start", "config-file", "model"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("The window in force is a common default."), WINDOW_IS_KNOWN_DEFAULT.is_(True), if_true=SLIGHT),
        Clue(words("The log says that the window was capped."), WINDOW_CAP_REASON.known(), if_true=-FAIR),
        Clue(
            words("The same setting comes into force for other models."), TOLD_OTHER_MODELS.is_("fine"), if_true=-FAIR
        ),
        Clue(
            words("It was set up anew, updated, or moved to another way of starting."),
            any_of(TOLD_CHANGED.has("server"), TOLD_CHANGED.has("other-setting"), TOLD_CHANGED.has("window")),
            if_true=SLIGHT,
        ),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=WINDOW_ASKED,
            keep=("parallel", "kv_type_k", "kv_type_v"),
            minutes=5,
            reason=words("Set on the command line of the very process, the window cannot be lost on the way."),
            expects=(
                Expect(
                    "server-config-not-applied",
                    WINDOW_SHARE_OF_ASKED > 0.95,
                    words("The window in force becomes the one asked for."),
                ),
                Expect(
                    "ctx-capped-by-engine",
                    WINDOW_SHARE_OF_ASKED < 0.95,
                    words("If the engine caps the window, it stays smaller."),
                ),
            ),
        ),
    ),
)
