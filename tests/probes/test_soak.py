"""Sessions of many turns on made-up servers that go wrong in one known way, or in none."""

import re

import pytest

from diagnose.findings import said_by_probes
from diagnose.plan import order_for, over_many_turns
from probes.evidence.answers import Answer
from probes.evidence.records import EvidenceSet
from probes.evidence.request import Completion, RequestError
from probes.soak import SoakProbe
from rules.catalogue import facts_of, rule_of
from rules.engine import Known, find
from rules.facts import (
    SESSION_ONE_PIECE_RIGHT,
    SESSION_REPEATS,
    SESSION_REREAD,
    SESSION_STATE_LOST,
    SESSION_VERIFIED,
    SYMPTOM,
)
from tests.probes.made_up import MadeUp, context


class Chats(MadeUp):
    """Holds a conversation: ``loops_from``, ``forgets_from``: the turn from which it repeats itself, or answers the state with old words.

    ``in_one_piece``: whether it knows the state of a single message all the same.
    """

    def __init__(self, *, loops_from=None, forgets_from=None, in_one_piece=True, unable=False, **more):
        super().__init__(style="question", **more)
        self.loops_from = loops_from
        self.forgets_from = forgets_from
        self.in_one_piece = in_one_piece
        self.unable = unable

    def complete(self, ask):
        self.turn = sum(one["role"] == "user" for one in ask.messages)
        self.alone = len(ask.messages) == 1
        # the whole session is one prompt
        flat = "\n\n".join(one["content"] for one in ask.messages)
        whole = type(ask)(
            messages=({"role": "user", "content": flat},), max_tokens=ask.max_tokens, use_cache=ask.use_cache
        )
        return super().complete(whole)

    def answer(self, text, length, *, chat):
        asked = re.search(r"these names now: ([^?]+)\?", text)
        if asked and "NAME-NUMBER" in text.rsplit("\n", 3)[-1]:
            changes = re.findall(r"From now on ([A-Z]+-\d+) = (\w+)\.", text)
            forgets = self.forgets_from is not None and self.turn >= self.forgets_from
            if self.alone:
                forgets = self.forgets_from is not None and not self.in_one_piece
            state = dict(reversed(changes)) if forgets else dict(changes)
            if self.unable:
                state = {}
            return "\n".join(f"{name.strip()} = {state.get(name.strip(), 'nothing')}" for name in asked[1].split(","))
        if self.loops_from is not None and self.turn >= self.loops_from:
            return (
                "The part is about the old harbour and the people who once worked there, in winter and in summer alike."
            )
        return f"Part {self.turn} says {text[-400:-300]} and then {length} {text[100 + self.turn * 7 : 160 + self.turn * 7]}."


def soaked(backend, target=8000, **more):
    around = context(backend)
    for name, value in more.items():
        setattr(around, name, value)
    probe = SoakProbe(target)
    evidence = list(probe.collect(around))
    return probe.reading, EvidenceSet(evidence)


def test_a_session_that_stays_whole_is_verified_up_to_its_length():
    """Law: the verified length is that of the last turn at which all was asked and right, near the target; each token was read about once."""
    backend = Chats()
    soak, evidence = soaked(backend)
    assert soak.stopped == "target"
    assert soak.longest_tokens >= 8000
    assert soak.verified_tokens > 0.8 * soak.longest_tokens
    assert soak.reread_turns == 0
    facts = facts_of(evidence)
    assert facts.value(SESSION_REPEATS) is False
    assert facts.value(SESSION_STATE_LOST) is False
    assert facts.value(SESSION_VERIFIED) == soak.verified_tokens
    assert (
        find(rule_of("long-session-drift"), facts.learn({SYMPTOM: Known("forgetting")}), SYMPTOM, frozenset()).now < 0
    )
    assert any("stayed whole" in one.english for one in said_by_probes(evidence))


def test_a_model_that_repeats_itself_is_found_at_its_turn():
    """Law: two turns in a row that repeat end the session; what was whole before is claimed, no more."""
    soak, evidence = soaked(Chats(loops_from=10))
    assert soak.stopped == "looping"
    assert 10 <= soak.loop_turn <= 12
    assert soak.verified_turns < soak.loop_turn
    facts = facts_of(evidence).learn({SYMPTOM: Known("forgetting")})
    assert facts.value(SESSION_REPEATS) is True
    assert find(rule_of("long-session-drift"), facts, SYMPTOM, frozenset()).band == "likely"
    assert any("start anew" in one.english for one in said_by_probes(evidence))


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_a_lost_state_is_told_from_a_text_that_is_too_long(in_one_piece):
    """Law: drift is only what the same words in one piece do not show."""
    soak, evidence = soaked(Chats(forgets_from=14, in_one_piece=in_one_piece))
    assert soak.stopped == "state-lost"
    assert 13 <= soak.state_lost_turn <= 17
    assert soak.one_piece_right is in_one_piece
    assert any(turn.state_stale for turn in soak.turns)
    facts = facts_of(evidence).learn({SYMPTOM: Known("forgetting")})
    assert facts.value(SESSION_ONE_PIECE_RIGHT) is in_one_piece
    found = find(rule_of("long-session-drift"), facts, SYMPTOM, frozenset())
    assert (found.band == "likely") is in_one_piece


def test_a_server_that_reads_everything_again_each_turn_is_seen():
    soak, evidence = soaked(Chats(resumes=False))
    assert soak.reread_turns == soak.compared_turns > 5
    assert facts_of(evidence).value(SESSION_REREAD) == 1.0
    assert any("read again" in one.english for one in said_by_probes(evidence))


def test_slowing_is_said():
    class Tires(Chats):
        def complete(self, ask):
            answer = super().complete(ask)
            slower = answer.server_generation_s * self.turn / 5
            return answer.model_copy(
                update={
                    "server_generation_s": answer.server_generation_s + slower,
                    "client_total_s": answer.client_total_s + slower,
                }
            )

    soak, evidence = soaked(Tires())
    assert soak.slowed_to < 0.5
    assert any("slower" in one.english for one in said_by_probes(evidence))


def test_an_error_ends_it_with_what_was_whole_before():
    """Law: a refusal or a dead server is a result: the error, and the length before it."""
    soak, evidence = soaked(Chats(window=5000))
    assert soak.stopped == "failed"
    assert soak.error.error == "exceeds-window"
    assert 0 < soak.verified_tokens <= 5000
    assert facts_of(evidence).value(SESSION_STATE_LOST) is None


def test_a_model_that_cannot_keep_a_state_is_not_blamed():
    """Law: what the first check did not show, no later one can lose."""
    soak, evidence = soaked(Chats(unable=True))
    assert not soak.able
    assert soak.state_lost_turn is None
    assert facts_of(evidence).value(SESSION_STATE_LOST) is None


@pytest.mark.parametrize("more", [{"loops_from": 2}, {"loops_from": 8, "unable": True}])
def test_a_model_that_babbles_anyway_does_not_drift(more):
    """Law: repetition from the first turns on, or by a model that can keep no state at all, is no drift of a long session."""
    soak, evidence = soaked(Chats(**more))
    assert soak.stopped == "looping"
    assert facts_of(evidence).value(SESSION_REPEATS) is None


def test_the_budget_is_kept():
    soak, _evidence = soaked(Chats(), ends_at=0.0)
    assert soak.stopped == "budget"
    assert soak.turns == ()


def test_a_server_that_fails_once_in_the_middle_is_no_crash():
    class Fails(Chats):
        def complete(self, ask):
            if len(self.asked) > 6:
                return Completion(error=RequestError(error="server-error", status=500, message="oops"))
            return super().complete(ask)

    soak, _evidence = soaked(Fails())
    assert soak.stopped == "failed"
    assert soak.why == "oops"


def test_a_model_that_only_goes_on_with_a_text_holds_no_session():
    [evidence] = list(SoakProbe(4000, chat=False).collect(context(MadeUp())))
    assert evidence.unavailable.why == "not-offered"


def test_without_a_soak_nothing_is_open():
    """Law: a session takes long and is run where it is asked for; that it was not holds up no verdict."""
    facts = facts_of(EvidenceSet([]))
    assert not any(facts.get(one).is_open() for one in (SESSION_REPEATS, SESSION_STATE_LOST, SESSION_ONE_PIECE_RIGHT))


@pytest.mark.parametrize(
    ("symptom", "question", "value", "wanted"),
    [
        ("forgetting", "worse_when", "turns", True),
        ("flaky", "when", ("over-time", "at-load"), True),
        ("forgetting", "worse_when", "gradually", False),
        ("slow-long-context", "worse_when", "turns", False),
        ("flaky", "when", None, False),
    ],
)
def test_it_is_run_where_it_was_asked_for_or_the_answers_say_so(symptom, question, value, wanted):
    answers = [Answer(question="symptom", value=symptom), Answer(question=question, value=value)]
    assert over_many_turns(symptom, answers) is wanted
    assert ("soak" in order_for(symptom, soak=over_many_turns(symptom, answers))) is wanted
