"""A proxy or engine refuses requests over a parallel limit.

What it looks for
    Requests that are refused at once (429, 503, "too many", "busy") when several run together, and pass alone, whatever their length.

Why it happens
    Servers and proxies bound how many requests run or wait. An agent that fans out, titles of chats and retries count too. What is over the bound is refused
    before any token is read.

What would prove it wrong
    With one request at a time, nothing else changed, the same request is refused.

References
    - Ollama: `OLLAMA_MAX_QUEUE`, `OLLAMA_NUM_PARALLEL`; vLLM: `--max-num-seqs`; llama-swap: `concurrencyLimit`; reverse proxies: `limit_conn`.
    - Look-alikes: kv-pool-exhausted (the error is about the window or free cells), client-proxy-timeout (after a time, not at once).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test
from rules.facts import FAILURE_KINDS, FAILURE_SECONDS, TOGETHER_FAILS, TOLD_ALONE_PASSES, TOLD_CLIENT, TOLD_WHEN

RULE = Rule(
    cause="concurrency-limit",
    prior={"flaky": SLIGHT},
    clues=(
        Clue(
            words("What is reported is too many requests, or a busy server."),
            FAILURE_KINDS.has("too-many"),
            if_true=DECISIVE,
            if_false=-STRONG,
        ),
        Clue(words("The same request passes alone."), TOLD_ALONE_PASSES.is_(True), if_true=SLIGHT, if_false=-STRONG),
        Clue(
            words("Requests that pass alone failed together when it was measured."),
            TOGETHER_FAILS.is_(True),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("It happens when several requests come together."),
            TOLD_WHEN.has("together"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(words("A proxy stands before the server."), TOLD_CLIENT.is_("proxy"), if_true=SLIGHT),
        Clue(words("It fails within two seconds."), FAILURE_SECONDS < 2, if_true=FAIR, if_false=-SLIGHT),
    ),
    tests=(
        Test(
            variable="requests at a time",
            kind="habit",
            to="1",
            minutes=5,
            reason=words(
                "Let the client send one request at a time, or raise the limit of the proxy or engine to the number that is needed."
            ),
            expects=(Expect("concurrency-limit", TOGETHER_FAILS.is_(False), words("Nothing is refused any more.")),),
        ),
    ),
)
