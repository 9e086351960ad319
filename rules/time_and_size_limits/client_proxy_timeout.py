"""A client or proxy gives up after a round number of seconds during a long prefill.

What it looks for
    A failure after the same, round number of seconds (30, 60, 300, 600) whatever the length; a timeout or a closed connection while the server goes on; the
    very same request passes when it is sent again; another client has no trouble.

Why it happens
    Nothing comes back while a long prompt is read, and HTTP libraries, agents and reverse proxies end a silent connection. The server may finish reading
    the prompt all the same, so that the second try finds it in the cache and is quick.

What would prove it wrong
    With the client's limit doubled (or with a client that has none), nothing else changed, it fails after the same time, or the server's log shows an error.

References
    - nginx `proxy_read_timeout` (60 s), load balancers (60 or 300 s), the OpenAI client libraries (600 s), undici's body timeout (300 s).
    - Look-alikes: server-state-bug ("unstable server"), concurrency-limit (refused at once), gpu-watchdog-timeout (the server fails too).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, any_of
from rules.facts import (
    CANCELLED_SECONDS,
    FAILURE_KINDS,
    FAILURE_ROUND_SECONDS,
    PROCESS_DIED,
    TOLD_CLIENT,
    TOLD_OTHER_CLIENT,
    TOLD_RETRY_PASSES,
    TOLD_SAME_SECONDS,
    TOLD_WHEN,
)

RULE = Rule(
    cause="client-proxy-timeout",
    explains=("prompt-cache-miss-swa-hybrid",),
    prior={"flaky": SLIGHT, "fixed-length-error": SLIGHT},
    clues=(
        Clue(
            words("It fails after a round number of seconds."),
            FAILURE_ROUND_SECONDS.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("What is reported is a timeout or a closed connection."),
            FAILURE_KINDS.has("timeout"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The very same request passes when it is sent again."), TOLD_RETRY_PASSES.is_(True), if_true=FAIR),
        Clue(
            words("It takes the same number of seconds, whatever the length."),
            TOLD_SAME_SECONDS.is_(True),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(words("The log says that a client went away after many seconds."), CANCELLED_SECONDS >= 25, if_true=FAIR),
        Clue(
            words("Another client has no trouble with the same server."),
            TOLD_OTHER_CLIENT.is_(True),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("A program with limits of its own stands between the user and the server."),
            TOLD_CLIENT.one_of("agent", "proxy", "chat-app", "retrieval"),
            if_true=SLIGHT,
        ),
        Clue(
            words("It happens with long prompts, and not at load."),
            any_of(TOLD_WHEN.has("long-prompt"), TOLD_WHEN.has("long-answer"), TOLD_WHEN.has("now-and-then")),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(words("The server's process ended."), PROCESS_DIED.is_(True), if_true=-STRONG),
    ),
    tests=(
        Test(
            variable="the client's time limit",
            kind="habit",
            to="at least twice the seconds after which it fails now",
            minutes=10,
            reason=words(
                "Send the same request with a client that has no time limit (curl without one), and note the seconds until the first token."
            ),
            expects=(
                Expect(
                    "client-proxy-timeout",
                    FAILURE_KINDS.has("none"),
                    words("It passes, after more seconds than the limit was."),
                ),
            ),
        ),
    ),
)
