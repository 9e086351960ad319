"""After many turns the state is lost and the model repeats itself, before any memory limit.

What it looks for
    Trouble that goes with the number of turns or hours, not with a length or a limit; repetition, contradictions, a lost task; a new chat that
    is right; a window that is far from full.

Why it happens
    A long conversation holds its own mistakes, tool output and abandoned plans, and the model takes them up again. Each turn adds a little noise, and
    what was agreed at the start is one voice among many. Nothing is broken: it is the session that is too long.

What would prove it wrong
    The same text given in one piece, in a fresh session, goes wrong in the same way; or the window was full.

References
    - "Lost in multi-turn conversation" studies; agents' advice to compact and to start anew.
    - Look-alikes: context-shift (the window is full), kv-cache-corruption-bug (from the second turn, nonsense), host-memory-growth (slower, killed).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Rule, Test, any_of
from rules.facts import (
    CONTEXT_SHIFT_SEEN,
    RECALL_DROP_SURE,
    ROPE_WRONG,
    SENT_OF_WINDOW,
    SESSION_ONE_PIECE_RIGHT,
    SESSION_REPEATS,
    SESSION_STATE_LOST,
    TOLD_CLIENT,
    TOLD_NEW_CHAT,
    TOLD_WHAT_IS_WRONG,
    TOLD_WHEN,
    TOLD_WORSE_WHEN,
    TOTAL_OF_WINDOW,
)

RULE = Rule(
    cause="long-session-drift",
    prior={"forgetting": SLIGHT},
    clues=(
        Clue(
            words("It gets worse with the number of turns or hours."),
            TOLD_WORSE_WHEN.is_("turns"),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("In a session of many turns it began to repeat itself, or lost the state of its task."),
            any_of(SESSION_REPEATS.is_(True), SESSION_STATE_LOST.is_(True)),
            if_true=STRONG,
            if_false=-FAIR,
        ),
        Clue(
            words("The same words, in one piece and in a fresh session, are remembered."),
            SESSION_ONE_PIECE_RIGHT.is_(True),
            if_true=FAIR,
            if_false=-STRONG,
        ),
        Clue(
            words("It repeats itself, or loses the thread of its task."),
            any_of(TOLD_WHAT_IS_WRONG.has("repeats"), TOLD_WHAT_IS_WRONG.has("lost-thread")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(words("It comes after hours of use."), TOLD_WHEN.has("over-time"), if_true=FAIR),
        Clue(words("A new chat is right again."), TOLD_NEW_CHAT.is_(True), if_true=SLIGHT, if_false=-FAIR),
        Clue(
            words("The window is far from full."),
            any_of(SENT_OF_WINDOW < 0.8, TOTAL_OF_WINDOW < 0.8),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("An agent or a chat program keeps the session."),
            TOLD_CLIENT.one_of("agent", "chat-app"),
            if_true=SLIGHT,
        ),
        Clue(words("Recall falls with length in a single prompt."), RECALL_DROP_SURE.is_(True), if_true=-SLIGHT),
        Clue(words("Old text was thrown away (context shift)."), CONTEXT_SHIFT_SEEN.is_(True), if_true=-FAIR),
        Clue(words("Positions are scaled otherwise than the model file says."), ROPE_WRONG.is_(True), if_true=-STRONG),
    ),
    tests=(
        Test(
            variable="new-session",
            kind="habit",
            minutes=5,
            reason=words(
                "End a session before it drifts: let the model write a short summary of the state, and start a new one with it."
            ),
        ),
    ),
)
