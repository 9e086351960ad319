"""A soak → what became of a session of many turns."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.soak import SoakReading
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import (
    SESSION_ONE_PIECE_RIGHT,
    SESSION_REPEATS,
    SESSION_REREAD,
    SESSION_STATE_LOST,
    SESSION_VERIFIED,
)

FEWEST_TURNS = 6
"""A session of fewer turns was not long."""


@derivation(
    reads=(SoakReading,),
    gives=(SESSION_VERIFIED, SESSION_REPEATS, SESSION_STATE_LOST, SESSION_ONE_PIECE_RIGHT, SESSION_REREAD),
)
def session(sight: Sight) -> Iterator[Reading]:
    """Give what went wrong, and that nothing did only where the session reached its length. It is run where it is asked for: nothing is open."""
    latest = sight.last(SoakReading)
    if latest is None:
        reason = sight.why_not(SoakReading)
        why = reason.note if reason is not None else "no session of many turns was run"
        for fact in (SESSION_VERIFIED, SESSION_REPEATS, SESSION_STATE_LOST, SESSION_ONE_PIECE_RIGHT, SESSION_REREAD):
            yield unread(fact, "not-offered", why)
        return
    evidence, soak = latest
    reached = soak.stopped == "target" and len(soak.turns) >= FEWEST_TURNS
    yield reading(SESSION_VERIFIED, soak.verified_tokens or None, evidence)
    asked = soak.able and any(turn.state_asked for turn in soak.turns)
    # Who repeats itself from the first turns on, or cannot keep a state at all, does not drift.
    drifted = soak.loop_turn is not None and soak.able and soak.loop_turn > FEWEST_TURNS
    for fact, lost, tried in (
        (SESSION_REPEATS, drifted, soak.able and (drifted or soak.loop_turn is None)),
        (SESSION_STATE_LOST, soak.state_lost_turn is not None, asked),
    ):
        if lost:
            yield reading(fact, True, evidence)
        elif reached and tried:
            yield reading(fact, False, evidence)
        else:
            yield unread(
                fact,
                "failed",
                "the session ended before its length" if tried else "the model cannot hold even a short session",
            )
    if soak.one_piece_right is not None:
        yield reading(SESSION_ONE_PIECE_RIGHT, soak.one_piece_right, evidence)
    else:
        yield unread(SESSION_ONE_PIECE_RIGHT, "not-offered", "it was not asked in one piece")
    if soak.compared_turns:
        yield reading(SESSION_REREAD, soak.reread_turns / soak.compared_turns, evidence)
