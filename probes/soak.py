"""A soak: a session of many turns that grows to a target, as an agent's or a chat's does.

Each turn says one change of the task's state and gives a piece of text to work on; now and then the whole state is asked for, in a question that
does not become part of the session. It ends at the target, or where the session goes wrong twice in a row; what was whole until then is the verified
session length. A lost state is asked once more with the user's own words in one piece, in a fresh session: that tells a session that drifted from a
text that is too long.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from probes.attempt import REASONING_ROOM, as_request_error
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import BudgetEndedError, CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion, RequestError
from probes.evidence.soak import SoakReading, SoakTurn
from probes.ladder.scoring import without_reasoning
from probes.ladder.session import StatePlan, StateScore, draw_state, find_loops, score_state, state_tail
from probes.ladder.text import generated

TURNS = 24
"""Turns to the target, where their size allows it."""
LEAST_TURN = 96
ANSWER_TOKENS = 96
STATE_TOKENS = 96
STATE_NAMES = 6
CHECK_EVERY = 3
HELD = 0.75
"""The state is lost below this share of what the first check gave."""
REREAD = 0.5
LOOK_BACK = 6
"""An answer is compared with so many before it."""
ROOM = 512
"""Left below the window for the answer and the question of state."""

Stopped = Literal["target", "budget", "failed", "looping", "state-lost", "ended"]
Message = dict[str, str]


@dataclass(slots=True)
class _Session:
    """The session so far."""

    plan: StatePlan
    messages: list[Message] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    turns: list[SoakTurn] = field(default_factory=list)
    first_share: float | None = None
    lost: int | None = None
    """The first of the checks in a row that lost the state."""
    lost_in_a_row: int = 0
    looped: int | None = None
    looped_in_a_row: int = 0
    good: SoakTurn | None = None
    """The last turn at which everything was whole and the state was asked."""


class SoakProbe(Probe):
    """Grows a session to ``target`` tokens (answers included), within what the budget has left."""

    id: ClassVar[str] = "soak"
    gives: ClassVar[tuple[str, ...]] = (SoakReading.kind,)
    stops_itself: ClassVar[bool] = True

    def __init__(self, target: int, *, turns: int = TURNS, chat: bool = True, reasoning: bool = False) -> None:
        self.target = target
        self.wanted_turns = turns
        self.chat = chat
        self.room = REASONING_ROOM if reasoning else 0
        self.reading: SoakReading | None = None

    def _turn_tokens(self) -> int:
        """Tokens of text that each turn brings."""
        return max(LEAST_TURN, self.target // self.wanted_turns - ANSWER_TOKENS)

    def cost(self, context: ProbeContext) -> Cost:
        """With a prompt cache each token is read once; the state is asked on top."""
        turns = max(1, self.target // (self._turn_tokens() + ANSWER_TOKENS))
        checks = turns // CHECK_EVERY
        speed = context.prefill_tps or 500.0
        generated_tokens = turns * ANSWER_TOKENS + checks * STATE_TOKENS
        seconds = self.target / speed + generated_tokens / 20
        return Cost(turns + checks, self.target * (turns + checks) // 2, generated_tokens, seconds)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield one reading of the whole session."""
        if not self.chat:
            why = "this model goes on with a text and does not hold a conversation, so a session of turns says nothing"
            yield not_found(SoakReading, "not-offered", why, run=context.run, origin="soak")
            return
        session = _Session(draw_state(context.seed + 49_979_687, 10_000, STATE_NAMES))
        stopped, error = self._grow(context, session)
        one_piece = self._in_one_piece(context, session) if stopped == "state-lost" else None
        self.reading = self._reading(session, stopped, error, one_piece)
        context.progress.report("a session of many turns", 1.0, f"{self.reading.longest_tokens} tokens")
        yield found(self.reading, source="measured", run=context.run, origin="soak")
        if error is not None:
            yield found(error, source="measured", run=context.run, origin="soak")

    # -- the session ----------------------------------------------------------------------------------------------------------------------

    def _grow(self, context: ProbeContext, session: _Session) -> tuple[Stopped, RequestError | None]:
        pieces = _pieces(context, self._turn_tokens())
        for number in range(1, 10_000):
            last = session.turns[-1] if session.turns else None
            if last is not None and last.prompt_tokens >= self.target:
                return "target", None
            # a turn takes about what the one before took; a second one is kept for the question of state
            if context.time_left() < 2 * ((last.total_s if last is not None else None) or 1.0):
                return "budget", None
            context.progress.report(
                "a session of many turns",
                min(0.99, (last.prompt_tokens if last is not None else 0) / max(1, self.target)),
                f"turn {number}, {last.prompt_tokens if last is not None else 0} of {self.target} tokens",
            )
            try:
                piece = next(pieces)
            except BudgetEndedError:
                return "budget", None
            turn, error = self._turn(context, session, number, piece)
            if error is not None:
                if context.process_ended() is not None:
                    return "ended", error
                return "failed", error
            session.turns.append(turn)
            if self._is_looping(session, turn):
                return "looping", None
            if turn.state_asked and self._lost_state(session, turn):
                return "state-lost", None
            if turn.state_asked and not turn.loops and session.lost_in_a_row == 0:
                session.good = turn
        return "budget", None

    def _turn(
        self, context: ProbeContext, session: _Session, number: int, piece: str
    ) -> tuple[SoakTurn, RequestError | None]:
        """One turn, and every few turns the question of state beside it."""
        change = session.plan.changes[number - 1]
        words = f"{change.line}\n\nHere is the next part of the material:\n\n{piece}\n\nSay in one or two sentences what this part is about."
        session.messages.append({"role": "user", "content": words})
        with context.sampled(f"turn {number}") as phase:
            answer = self._ask(context, session.messages, ANSWER_TOKENS + self.room)
        nothing = SoakTurn(turn=number, prompt_tokens=answer.prompt_tokens or 0)
        if answer.error is not None:
            return nothing, answer.error
        text = without_reasoning(answer.text or "")
        session.answers.append(text)
        session.messages.append({"role": "assistant", "content": text})
        scored = StateScore(0, 0, 0)
        if number >= STATE_NAMES and number % CHECK_EVERY == 0:
            question = {"role": "user", "content": state_tail(session.plan.at(number))}
            told = self._ask(context, [*session.messages, question], STATE_TOKENS + self.room)
            if told.error is not None:
                return nothing, told.error
            scored = score_state(told.text or "", session.plan, number)
        near = session.answers[-LOOK_BACK:]
        loops = any(loop.turn == len(near) for loop in find_loops(near))
        peak = phase.peaks.server_peak.rss_bytes if phase.peaks and phase.peaks.server_peak else None
        return (
            SoakTurn(
                turn=number,
                prompt_tokens=answer.prompt_tokens or 0,
                processed_tokens=answer.processed_tokens,
                generated_tokens=answer.generated_tokens,
                generation_tps=answer.generation_tps,
                total_s=answer.client_total_s,
                server_bytes=peak,
                state_asked=scored.asked,
                state_right=scored.right,
                state_stale=scored.stale,
                loops=loops,
            ),
            None,
        )

    def _ask(self, context: ProbeContext, messages: Sequence[Message], budget: int) -> Completion:
        ask = Ask(
            messages=tuple(messages),
            max_tokens=budget,
            cache_as_served=True,
            seed=context.seed,
            deadline_s=context.deadline_for(self.target, budget),
        )
        try:
            return context.complete(ask, purpose="soak")
        except CtxDoctorError as failure:
            return Completion(error=as_request_error(failure))

    @staticmethod
    def _is_looping(session: _Session, turn: SoakTurn) -> bool:
        """Say whether two turns in a row repeat; one may well be chance."""
        if not turn.loops:
            session.looped, session.looped_in_a_row = None, 0
            return False
        session.looped = session.looped or turn.turn
        session.looped_in_a_row += 1
        return session.looped_in_a_row >= 2

    @staticmethod
    def _lost_state(session: _Session, turn: SoakTurn) -> bool:
        """Say whether two checks in a row lost the state; the first check is the model's own base."""
        share = turn.state_right / turn.state_asked
        if session.first_share is None:
            session.first_share = share
        able = session.first_share >= 0.5
        if not able or share >= HELD * session.first_share:
            session.lost, session.lost_in_a_row = None, 0
            return False
        session.lost = session.lost or turn.turn
        session.lost_in_a_row += 1
        return session.lost_in_a_row >= 2

    def _in_one_piece(self, context: ProbeContext, session: _Session) -> bool | None:
        """Ask the state of all the user's words in one message of a fresh session. None where that could not be asked."""
        turn = session.turns[-1].turn
        words = "\n\n".join(one["content"] for one in session.messages if one["role"] == "user")
        question = f"{words}\n\n{state_tail(session.plan.at(turn))}"
        told = self._ask(context, [{"role": "user", "content": question}], STATE_TOKENS + self.room)
        if told.error is not None:
            return None
        scored = score_state(told.text or "", session.plan, turn)
        return scored.right / scored.asked >= HELD * (session.first_share or 1.0)

    # -- what it came to ------------------------------------------------------------------------------------------------------------------

    def _reading(
        self,
        session: _Session,
        stopped: Stopped,
        error: RequestError | None,
        one_piece: bool | None,
    ) -> SoakReading:
        turns = session.turns
        told = [one for one in turns[2:] if one.processed_tokens is not None and one.prompt_tokens]
        able = session.first_share is None or session.first_share >= 0.5
        good = session.good
        if not able or session.first_share is None:
            # nothing can be said about the state: what ran without an error and without repetition is what was seen
            clean = [one for one in turns if not one.loops]
            good = clean[-1] if clean and session.looped is None else None
        third = max(1, len(turns) // 3)
        return SoakReading(
            target_tokens=self.target,
            turns=tuple(turns[:400]),
            longest_tokens=max((one.prompt_tokens for one in turns), default=0),
            verified_tokens=good.prompt_tokens if good is not None else 0,
            verified_turns=good.turn if good is not None else 0,
            stopped=stopped,
            able=able,
            loop_turn=session.looped if session.looped_in_a_row >= 2 else None,
            state_lost_turn=session.lost if session.lost_in_a_row >= 2 else None,
            one_piece_right=one_piece,
            compared_turns=len(told),
            reread_turns=sum((one.processed_tokens or 0) > REREAD * one.prompt_tokens for one in told),
            growth_bytes=_growth(
                [one.server_bytes for one in turns[:third]], [one.server_bytes for one in turns[-third:]]
            ),
            slowed_to=_share(
                [one.generation_tps for one in turns[:third]], [one.generation_tps for one in turns[-third:]]
            ),
            error=error,
            why=error.message[:500] if error is not None else "",
        )


def _pieces(context: ProbeContext, tokens: int) -> Iterator[str]:
    """Give pieces of generated text of about so many tokens each."""
    parts: list[str] = []
    step = 1 if tokens < 500 else 4
    for unit in generated(context.seed + 86_028_121):
        parts.append(unit.text)
        if len(parts) % step == 0 and context.counter.count("".join(parts)) >= tokens:
            yield "".join(parts).strip()
            parts = []


def _growth(first: Sequence[int | None], last: Sequence[int | None]) -> int | None:
    before, after = [one for one in first if one], [one for one in last if one]
    return int(statistics.median(after) - statistics.median(before)) if before and after else None


def _share(first: Sequence[float | None], last: Sequence[float | None]) -> float | None:
    before, after = [one for one in first if one], [one for one in last if one]
    return round(statistics.median(after) / statistics.median(before), 4) if before and after else None
