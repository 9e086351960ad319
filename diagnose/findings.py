"""What single probes found, in sentences for the report's notes: repetition, control run, soak, damage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from diagnose.logged import Q8_OF_F16, Logged, cache_is_f16, told_by_log
from probes.base import UNENDED, USED_UP
from probes.evidence.control import ControlRun
from probes.evidence.damage import ChainScore, TokenDivergence
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet
from probes.evidence.replay import FreshReplay
from probes.evidence.request import (
    TURNED_AWAY,
    ConcurrencyTrial,
    RequestError,
    Restarted,
    TornStream,
    TruncationReading,
)
from probes.evidence.rungs import LadderFound, LadderPlan, RungResult, WayOfAsking, WindowChanged
from probes.evidence.sizes import MIB, show_size
from probes.evidence.soak import SoakReading
from probes.evidence.subject import WindowReading
from probes.evidence.words import Words, words
from probes.ladder.flaky import trial_in_words
from rules.derive.requests import CUT

GROWN = 256 * MIB
SLOWED = 0.75


def said_by_probes(evidence: EvidenceSet) -> tuple[Words, ...]:
    """Give the sentences of the newest reading of each probe."""
    trial, control = evidence.last(ConcurrencyTrial), evidence.last(ControlRun)
    said: list[Words] = []
    if trial is not None:
        said += trial_in_words(trial)
    if control is not None:
        said += control_in_words(control)
    said += refused_cache_in_words(told_by_log(event for _evidence, event in evidence.of(LogEvent)))
    soak = evidence.last(SoakReading)
    if soak is not None:
        said += soak_in_words(soak)
    chains, apart = evidence.last(ChainScore), evidence.last(TokenDivergence)
    if chains is not None:
        said.append(chains_in_words(chains))
    if apart is not None:
        said.append(divergence_in_words(apart))
    said += beside_in_words([one for _evidence, one in evidence.of(RungResult)])
    notes = {piece.unavailable.note for piece in evidence.all if piece.unavailable is not None}
    if notes & {USED_UP, UNENDED} and not evidence.of(RungResult):
        said.append(
            words(
                "The budget ended before any length was measured: an answer had begun, and its stream did not end. "
                "Look at what stands between this program and the server."
            )
            if UNENDED in notes
            else words(
                "The budget ended before any length was measured: this server is slow, or the budget small. Give more time with --budget."
            )
        )
    walked = evidence.last(LadderFound)
    if walked is not None and walked.cache == "none":
        said.append(
            words(
                "The server read each longer text from its beginning although it might have used its prompt cache, so fewer lengths were tried."
            )
        )
    changed = evidence.last(WindowChanged)
    if changed is not None:
        said.append(
            words(
                "After {after} tokens became the window instead of {before}, nothing was measured further: somebody started the server with other settings.",
                before=changed.before,
                after=changed.after,
            )
        )
    replay = evidence.last(FreshReplay)
    if replay is not None:
        said.append(replay_in_words(replay))
    said += by_meaning_in_words(evidence)
    plan, window = evidence.last(LadderPlan), evidence.last(WindowReading)
    if plan is not None and plan.target and window is not None and 0 < (window.in_force or 0) < plan.target:
        if (window.trained or 0) >= plan.target:
            said.append(
                words(
                    "Wanted are {target} tokens, and the window in force has {window}: nothing longer passes before a longer one is set. "
                    "The model was trained for {trained}.",
                    target=f"{plan.target:,}",
                    window=f"{window.in_force:,}",
                    trained=f"{window.trained:,}",
                )
            )
        else:
            said.append(
                words(
                    "Wanted are {target} tokens, and the window in force has {window}: nothing longer passes before a longer one is set.",
                    target=f"{plan.target:,}",
                    window=f"{window.in_force:,}",
                )
            )
    probe = evidence.last(TruncationReading)
    if probe is not None and probe.verdict == "truncated" and probe.below_sent and probe.window:
        left = probe.below_processed if probe.below_processed is not None else probe.below_sent
        if left < CUT * probe.below_sent:
            said.append(
                words(
                    "Text is lost on the way, without an error: of {sent} tokens that fit into the window of {window}, {left} were processed. "
                    "Either the server has another limit for requests than the window that it tells, or something between it and this program cuts.",
                    sent=f"{probe.below_sent:,}",
                    window=f"{probe.window:,}",
                    left=f"{left:,}",
                )
            )
    torn = evidence.last(TornStream)
    if torn is not None:
        said.append(torn_in_words(torn))
    if any(piece.origin.endswith(TURNED_AWAY) for piece, _error in evidence.of(RequestError)):
        said.append(
            words(
                "Some requests were turned away because others were served, and sent again after a pause: somebody else uses the server, "
                "or it takes few at a time."
            )
        )
    restarts = [one for _evidence, one in evidence.of(Restarted) if one.because == "died"]
    if restarts:
        said.append(words("The server died and was started again, this many times: {count}.", count=len(restarts)))
    if any(one.because == "swapped" for _evidence, one in evidence.of(Restarted)):
        said.append(
            words(
                "The model was unloaded and loaded again while it was measured: another model took its place for a while, or its time to live was over. "
                "What was kept in its prompt cache was lost then, and one request waited for the load."
            )
        )
    return tuple(said)


def refused_cache_in_words(told: Logged) -> Iterator[Words]:
    """Say what a cache that could not be had comes to in all, and what the usual changes would save."""
    if not (told.kv_refused and told.kv_bytes and told.window_made and told.never_started):
        return
    yield words(
        "By the log, the cache for {tokens} tokens takes {size} in all; {refused} of it could not be had. Half of the window saves {half}.",
        tokens=f"{told.window_made:,}",
        size=show_size(told.kv_bytes),
        refused=show_size(told.kv_refused),
        half=show_size(told.kv_bytes // 2),
    )
    if cache_is_f16(told):
        yield words(
            "Its type is f16, by its size: q8_0 for keys and values (with flash attention on) would save {saved}.",
            saved=show_size(int(told.kv_bytes * (1 - Q8_OF_F16))),
        )


def torn_in_words(torn: TornStream) -> Words:
    """Say how streamed answers arrive."""
    if torn.moved:
        return words(
            "Streamed answers arrive with their pieces in another order: what stands between the server and its client tears them. "
            "From then on answers were asked for in one piece."
        )
    return words(
        "Streamed answers arrive with gaps ({streamed} of {whole} characters): what stands between the server and its client loses pieces. "
        "From then on answers were asked for in one piece.",
        streamed=torn.streamed_characters,
        whole=torn.whole_characters,
    )


def replay_in_words(replay: FreshReplay) -> Words:
    """Say what became of the request as the first one of a fresh server, and after it."""
    values = {"passed": replay.later_passed, "tried": replay.later_tried}
    if replay.first == "passed":
        return words(
            "On a freshly started server the same request passed as the first one, and {passed} of {tried} times after it.",
            **values,
        )
    return words(
        "On a freshly started server the same request did not pass as the first one ({outcome}), and passed {passed} of {tried} times after it.",
        outcome=replay.first,
        **values,
    )


def by_meaning_in_words(evidence: EvidenceSet) -> Iterator[Words]:
    """Say how many facts were found whose question shares no word with them; apart from recall, and no part of its verdict."""
    way = evidence.last(WayOfAsking)
    if way is None or not way.non_literal_asked:
        return
    if not way.non_literal:
        yield words(
            "Facts whose question shares no word with them: {hit} of {asked} in a short text, too few to ask them at length.",
            hit=way.non_literal_hit,
            asked=way.non_literal_asked,
        )
        return
    for _evidence, rung in evidence.of(RungResult):
        if rung.canaries is not None and rung.canaries.non_literal_asked:
            yield words(
                "Facts whose question shares no word with them, which is no part of the verdict on recall: {hit} of {asked} at {tokens} tokens; "
                "{short} of {short_asked} in a short text.",
                hit=rung.canaries.non_literal_hit or 0,
                asked=rung.canaries.non_literal_asked,
                tokens=f"{rung.input_tokens:,}",
                short=way.non_literal_hit,
                short_asked=way.non_literal_asked,
            )


def beside_in_words(rungs: Sequence[RungResult]) -> Iterator[Words]:
    """Say during how many attempts someone else used the server: their speeds are not what the server can do."""
    told = [one for one in rungs if one.busy_beside is not None]
    busy = [one for one in told if one.busy_beside]
    if busy:
        yield words(
            "Before {count} of {told} attempts someone else's request was running on the server: speeds measured then are too low.",
            count=len(busy),
            told=len(told),
        )


_ENDED = {
    "budget": words("The session of many turns ended with the budget, not at its length."),
    "failed": words("The session of many turns ended with an error."),
    "ended": words("The server ended during the session of many turns."),
}


def soak_in_words(soak: SoakReading) -> Iterator[Words]:
    """Say how far the session stayed whole, what went wrong, and what to do before that length."""
    if soak.verified_tokens:
        yield words(
            "A session of {turns} turns stayed whole up to {tokens} tokens.",
            turns=soak.verified_turns,
            tokens=soak.verified_tokens,
        )
    if soak.loop_turn is not None:
        yield words("From turn {turn} on the model repeated itself.", turn=soak.loop_turn)
    if soak.state_lost_turn is not None:
        yield words("From turn {turn} on the state of the task was lost.", turn=soak.state_lost_turn)
    if soak.one_piece_right is True:
        yield words("The same words in one piece were remembered: it is the session that drifts, not the length.")
    elif soak.one_piece_right is False:
        yield words("The same words in one piece were forgotten too: it is the length, not the session.")
    if soak.able and (soak.loop_turn is not None or soak.state_lost_turn is not None):
        yield words("Before that length, let the model write a short summary of the state, and start anew with it.")
    if not soak.able:
        yield words("This model cannot keep the state of a task even in a short session, so nothing is said about it.")
    if soak.compared_turns and soak.reread_turns > soak.compared_turns / 2:
        yield words(
            "In {count} of {turns} turns most of the session was read again.",
            count=soak.reread_turns,
            turns=soak.compared_turns,
        )
    if soak.growth_bytes is not None and soak.growth_bytes > GROWN:
        yield words("The server's memory grew by {size} during the session.", size=show_size(soak.growth_bytes))
    if soak.slowed_to is not None and soak.slowed_to < SLOWED:
        yield words(
            "Writing became slower in the session: {percent} % of its first speed.", percent=round(soak.slowed_to * 100)
        )
    if soak.stopped in _ENDED:
        yield _ENDED[soak.stopped]


def divergence_in_words(apart: TokenDivergence) -> Words:
    """Say how far the next tokens of two runs, or two servers, are apart."""
    if apart.other_server is not None:
        return words(
            "Compared with the control server ({other} cache), the likeliest next token is the same at {same} % of {count} places; "
            "the median distance is {bits} bits.",
            other=f"{apart.other_type_k or 'default'}/{apart.other_type_v or 'default'}",
            same=round(apart.same_top * 100),
            count=apart.positions,
            bits=f"{apart.median:.4f}",
        )
    return words(
        "Compared with run {run} ({other} cache), the likeliest next token is the same at {same} % of {count} places; the median distance is {bits} bits.",
        run=apart.other_run,
        other=f"{apart.other_type_k or 'default'}/{apart.other_type_v or 'default'}",
        same=round(apart.same_top * 100),
        count=apart.positions,
        bits=f"{apart.median:.4f}",
    )


def chains_in_words(score: ChainScore) -> Words:
    """Say how many chains of facts were followed, beside single facts."""
    return words(
        "Chains of {steps} facts followed to their end: {hit} of {asked}; single facts of the same text: {single} of {single_asked}.",
        steps=score.steps,
        hit=score.hit,
        asked=score.asked,
        single=score.single_hit,
        single_asked=score.single_asked,
    )


def control_in_words(run: ControlRun) -> Iterator[Words]:
    """Say both slopes of the prefill and of the generation, in percent of the time for a token, by 1,000 tokens."""
    for own, control, said in (
        (
            run.own_prefill_slope,
            run.control_prefill_slope,
            words(
                "Each 1,000 tokens of length add {own} % to the reading time of a token, and {control} % on the control.",
                own=_percent(run.own_prefill_slope),
                control=_percent(run.control_prefill_slope),
            ),
        ),
        (
            run.own_generation_slope,
            run.control_generation_slope,
            words(
                "Each 1,000 tokens of length add {own} % to the writing time of a token, and {control} % on the control.",
                own=_percent(run.own_generation_slope),
                control=_percent(run.control_generation_slope),
            ),
        ),
    ):
        if own is not None and control is not None:
            yield said


def _percent(slope: float | None) -> str:
    return "?" if slope is None else f"{slope * 100:.1f}"
