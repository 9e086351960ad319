"""A session of many turns: how far it got, and what became of speed, memory, state and answers on the way."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from .records import Payload, Record, Text
from .request import RequestError


class SoakTurn(Record):
    """One turn: counts and times, never the text."""

    turn: int = Field(ge=1)
    prompt_tokens: int = Field(ge=0, description="as the server counted the whole session so far")
    processed_tokens: int | None = Field(default=None, ge=0)
    generated_tokens: int | None = Field(default=None, ge=0)
    generation_tps: float | None = Field(default=None, ge=0)
    total_s: float | None = Field(default=None, ge=0)
    server_bytes: int | None = Field(default=None, ge=0, description="the server's own memory at its peak in this turn")
    state_asked: int = Field(default=0, ge=0)
    state_right: int = Field(default=0, ge=0)
    state_stale: int = Field(default=0, ge=0, description="answered with what was true before")
    loops: bool = Field(default=False, description="the answer repeats itself or an earlier one")


class SoakReading(Payload):
    """A session that grew turn by turn. ``verified_tokens``: up to here every turn passed, knew its state and did not repeat itself."""

    kind: ClassVar[str] = "soak"
    target_tokens: int = Field(ge=0)
    turns: tuple[SoakTurn, ...] = ()
    longest_tokens: int = Field(default=0, ge=0)
    verified_tokens: int = Field(default=0, ge=0)
    verified_turns: int = Field(default=0, ge=0)
    stopped: Literal["target", "budget", "failed", "looping", "state-lost", "ended"]
    able: bool = Field(default=True, description="whether the model could give the state at the first check at all")
    loop_turn: int | None = Field(default=None, ge=1, description="first of two turns in a row that repeat")
    state_lost_turn: int | None = Field(default=None, ge=1, description="first of two checks in a row that lost it")
    one_piece_right: bool | None = Field(
        default=None, description="whether the same user's words, given in one piece to a fresh session, are remembered"
    )
    compared_turns: int = Field(
        default=0, ge=0, description="turns whose processed tokens were told, from the third on"
    )
    reread_turns: int = Field(
        default=0, ge=0, description="of these, turns in which over half of the session was read again"
    )
    growth_bytes: int | None = Field(
        default=None, description="server's memory, last third of the turns less the first"
    )
    slowed_to: float | None = Field(
        default=None, ge=0, description="generation speed, last third as a share of the first"
    )
    error: RequestError | None = None
    why: Text = ""
