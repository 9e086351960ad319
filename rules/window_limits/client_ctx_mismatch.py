"""The client budgets with another window than the one loaded.

What it looks for
    A client that reckons with more than the window in force, or does not ask for it, and requests that are refused as too long by an amount that
    the client thinks is allowed.

Why it happens
    Clients take the window from a table of model names, from the trained length, or from a setting of their own, and never ask the server. They trim
    too late; or they believe in a smaller window and trim too early.

What would prove it wrong
    The client's budget is at most the window in force, and it still overflows.

References
    - LM Studio: "The number of tokens to keep from the initial prompt is greater than the context length"; agents' model tables.
    - Look-alikes: slots-divide-ctx and ctx-capped-by-engine (the server has less than it was asked for), silent-truncation-default-ctx (no error).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before, not_
from rules.facts import (
    CLIENT_OVER_SERVER,
    CLIENT_REFUSED,
    CLIENT_WINDOW,
    FAILURE_ABOUT,
    FAILURE_TOKENS,
    REFUSED_OVER_WINDOW,
    SENT_OF_WINDOW,
    TOLD_CHANGED,
    TOLD_CLIENT,
    TOLD_OTHER_CLIENT,
    TRUNCATED_SEEN,
    WINDOW_DIFFERS,
    WINDOW_IN_FORCE,
    WINDOW_IS_DIVIDED,
    WINDOW_SHARE_OF_ASKED,
    WINDOW_TRAINED,
    WINDOW_WANTED,
)

_WANTS_MORE = all_of(WINDOW_WANTED > WINDOW_IN_FORCE * 1.0, WINDOW_TRAINED > WINDOW_IN_FORCE * 1.0)


def _enough(client: int | None, wanted: int | None, trained: int | None) -> int | None:
    """Give the longer of what the client reckons with and what is wanted, else the trained window; never more than that one."""
    aim = max(client or 0, wanted or 0) or trained or 0
    return min(aim, trained or 2**30) or None


RULE = Rule(
    cause="client-ctx-mismatch",
    prior={"fixed-length-error": SLIGHT, "forgetting": SLIGHT, "slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The client reckons with another window than the one in force."),
            any_of(CLIENT_OVER_SERVER > 1.05, CLIENT_OVER_SERVER < 0.6),
            if_true=STRONG,
            if_false=-STRONG,
        ),
        Clue(
            words("The prompt that was sent is longer than the window in force, and was refused as too long."),
            all_of(any_of(SENT_OF_WINDOW > 1.0, REFUSED_OVER_WINDOW.is_(True)), FAILURE_ABOUT.is_("too-long")),
            if_true=STRONG,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The window in force is the one that the server was told, less than the trained one."),
            all_of(WINDOW_IN_FORCE < WINDOW_TRAINED * 0.9, not_(WINDOW_DIFFERS.is_(True))),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("An agent, a chat application or a retrieval program builds the prompts."),
            TOLD_CLIENT.one_of("agent", "chat-app", "retrieval", "proxy"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Another program works well with the same server."),
            TOLD_OTHER_CLIENT.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(words("A client was changed before it began."), TOLD_CHANGED.has("client"), if_true=SLIGHT),
        Clue(words("The answers forget the beginning without any error."), TRUNCATED_SEEN.is_(True), if_true=-SLIGHT),
        Clue(
            words("One slot has the asked window divided by the number of slots."),
            WINDOW_IS_DIVIDED.is_(True),
            if_true=-FAIR,
        ),
        Clue(words("The server itself gave less than it was asked for."), WINDOW_SHARE_OF_ASKED < 0.9, if_true=-FAIR),
    ),
    tests=(
        Test(
            variable="client.ctx",
            start=CLIENT_WINDOW,
            to=WINDOW_IN_FORCE,
            keep=("ctx",),
            minutes=5,
            # a client that is told less reaches no length that is wanted and that the model can do
            when=not_(_WANTS_MORE),
            reason=words("Told the window that is loaded, the client trims in time; nothing changes at the server."),
            expects=(
                Expect(
                    "client-ctx-mismatch",
                    CLIENT_REFUSED.is_(False),
                    words("No request of the client is refused as too long any more (ctxdoctor watch shows it)."),
                ),
            ),
        ),
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("the window that the client reckons with or that is wanted, at most the trained one"),
                lambda facts: _enough(
                    facts.value(CLIENT_WINDOW), facts.value(WINDOW_WANTED), facts.value(WINDOW_TRAINED)
                ),
            ),
            keep=("kv_type_k", "kv_type_v", "parallel"),
            minutes=6,
            reason=words("With a window above what the client sends at least, its first request fits."),
            expects=(
                Expect(
                    "client-ctx-mismatch",
                    before(FAILURE_TOKENS) * 1.2 < FAILURE_TOKENS,
                    words("The same request passes."),
                ),
            ),
        ),
    ),
)
