"""The ladder on made-up servers whose truth is known: what passes is claimed, what does not is found to the stated resolution."""

import time
from functools import partial

import pytest

from diagnose.findings import said_by_probes
from diagnose.window import judge_window, passes
from probes.attempt import Asking, Attempts
from probes.backends.base import Ask
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Completion, RequestError, TruncationReading
from probes.evidence.rungs import Criteria, LadderFound, LadderPlan, RecallBase, RungResult
from probes.evidence.words import words
from probes.ladder.constraints import draw_task
from probes.ladder.rungs import build_ladder
from probes.ladder.search import Step
from probes.ladder_walk import LadderProbe
from probes.recall import RecallProbe
from probes.truncation import TruncationProbe
from tests.probes.made_up import MadeUp, context

RUNGS = (1024, 2048, 4096, 6144, 8192)


def climb(backend, *, rungs=RUNGS, resolution=256, criteria=None, done=(), task=None):
    criteria = criteria or Criteria()
    around = context(backend)
    texts = build_ladder(rungs, around.counter, seed=3, reserve=160, base_depths=[(n + 0.5) / 27 for n in range(27)])
    recall = RecallProbe(texts.rungs[0], task=task)
    evidence = list(recall.collect(around))
    assert recall.asking is not None
    plan = LadderPlan(rungs=rungs, output_tokens=64, resolution=resolution)
    ladder = LadderProbe(
        plan,
        texts,
        recall.asking,
        criteria,
        partial(passes, criteria, recall.base),
        done or [recall.result],
        window=backend.windowed,
        task=task,
    )
    evidence += list(ladder.collect(around))
    results = [one.payload() for one in evidence if one.kind == RungResult.kind]
    return recall.base, results, ladder, judge_window(results, criteria, recall.base, target_input=None, window=None)


@pytest.mark.parametrize("style", ["completion", "question"])
def test_a_healthy_server_is_verified_at_the_top_three_times_cold(style):
    """Law: what passes everywhere is claimed at the top, after as many cold passes as the criteria ask."""
    base, results, _ladder, verdict = climb(MadeUp(style=style))
    assert base.style == style
    assert (base.hit, base.asked) == (27, 27)
    top = [one for one in results if one.rung == RUNGS[-1]]
    assert sum(one.cold is True for one in top) == 3
    assert verdict.verified == top[-1].input_tokens
    assert "three times in a row" in verdict.statement.english


def test_nested_texts_cost_little_more_than_the_longest():
    """Law: with a prompt cache the way up costs about one prefill of the top, and the proof three more."""
    backend = MadeUp()
    climb(backend)
    processed = sum(length - cached for length, cached in backend.asked)
    assert processed < 4.6 * RUNGS[-1]


def test_without_a_cache_few_facts_are_asked_at_each_length():
    """Law: where each question costs a whole prefill, not every fact is asked."""
    backend = MadeUp(resumes=False)
    _base, results, _ladder, verdict = climb(backend, rungs=(1024, 4096))
    assert verdict.verified is not None
    assert all(one.canaries.asked <= 9 for one in results[1:])
    assert min(one.canaries.asked for one in results[1:]) <= 3


@pytest.mark.parametrize("resumes", [True, False])
def test_whether_the_server_goes_on_from_what_it_read_is_said(resumes):
    """Law: a server that reads each longer text anew is noticed, fewer lengths are tried, and the report says so."""
    _base, results, ladder, _verdict = climb(MadeUp(resumes=resumes))
    assert ladder.cache == ("resumes" if resumes else "none")
    assert (len({one.rung for one in results}) < len(RUNGS)) is not resumes
    walked = LadderFound(passes_in_a_row=3, asked_in_a_row=3, stopped="verified", cache=ladder.cache, uncached_tokens=1)
    said = [one.english for one in said_by_probes(EvidenceSet([found(walked, source="measured")]))]
    assert any("from its beginning" in one for one in said) is not resumes


@pytest.mark.parametrize("limit", [3000, 5000, 7777])
def test_forgetting_is_found_to_the_resolution_and_is_no_capacity_failure(limit):
    """Law: the claimed length passes, the next one above by at most the resolution does not, and it fits all the same."""
    base, _results, ladder, verdict = climb(MadeUp(forgets_above=limit))
    assert base.able
    assert verdict.verified is not None
    assert limit - 400 <= verdict.verified <= limit
    assert verdict.fits > verdict.verified
    assert ladder.found.above - ladder.found.length <= 256
    assert "effective context" in verdict.statement.english


@pytest.mark.parametrize("limit", [3000, 6000])
def test_a_window_is_found_and_nothing_above_it_is_asked_twice(limit):
    """Law: a refusal ends the way up at once and is proof enough above."""
    _base, results, _ladder, verdict = climb(MadeUp(window=limit))
    refused = [one for one in results if one.result == "refused"]
    assert refused
    assert verdict.verified is not None
    assert limit - 500 <= verdict.verified <= limit
    assert len({one.rung for one in refused}) == len(refused)


def test_too_slow_is_an_operating_boundary():
    """Law: a speed that was asked for and not reached fails the length, and the statement says that it ran."""
    _base, _results, _ladder, verdict = climb(MadeUp(prefill_tps=500.0), criteria=Criteria(min_prefill_tps=600.0))
    assert verdict.verified is None
    assert verdict.fits is not None
    assert "fast" in verdict.statement.english


def test_a_silent_cut_is_a_failure_although_it_answers():
    """Law: HTTP 200 with fewer tokens processed than sent is truncation, whatever the text says."""
    _base, results, _ladder, verdict = climb(MadeUp(cuts_above=3000))
    cut = [one for one in results if one.error_kind == "truncated"]
    assert cut
    assert all(one.rung > 3000 for one in cut)
    assert verdict.verified <= 3000


def test_what_was_measured_before_an_interruption_is_not_measured_again():
    """Law: a walk that is given its first readings goes on behind them and ends with the same claim."""
    base, results, _ladder, verdict = climb(MadeUp())
    half = results[: len(results) // 2]
    backend = MadeUp()
    around = context(backend)
    texts = build_ladder(RUNGS, around.counter, seed=3, reserve=160, base_depths=[(n + 0.5) / 27 for n in range(27)])
    asking = RecallProbe(texts.rungs[0])
    list(asking.collect(around))
    before = len(backend.asked)
    criteria = Criteria()
    plan = LadderPlan(rungs=RUNGS, output_tokens=64, resolution=256)
    again = LadderProbe(
        plan, texts, asking.asking, criteria, partial(passes, criteria, base), half, window=backend.windowed
    )
    new = [one.payload() for one in again.collect(around) if one.kind == RungResult.kind]
    assert {(one.rung, one.attempt) for one in new} == {(one.rung, one.attempt) for one in results[len(half) :]}
    assert len(backend.asked) > before
    assert judge_window([*half, *new], criteria, base, target_input=None, window=None).verified == verdict.verified


def test_a_model_that_cannot_do_the_test_is_said_to_be_so():
    """Law: a base under one third leaves recall unknown, neither passed nor failed."""

    class Babbles(MadeUp):
        def answer(self, text, length, *, chat):
            return " banana"

    base, _results, _ladder, verdict = climb(Babbles(), rungs=(1024, 2048))
    assert base.able is False
    assert verdict.verified is None
    assert verdict.unable
    assert "cannot do the recall test" in verdict.statement.english


@pytest.mark.parametrize("keeps", [True, False])
def test_coding_rules_are_asked_at_the_base_and_at_the_proof(keeps):
    """Law: a model that keeps the rules of a short text has to keep them at length; one that never does is not blamed."""
    task = draw_task(3)
    base, results, _ladder, verdict = climb(
        MadeUp(style="question", keeps_rules=keeps), rungs=(1024, 2048, 4096), task=task
    )
    scored = [one for one in results if one.constraints is not None]
    assert base.constraints_asked == 3
    assert (base.constraints_met == 3) is keeps
    assert len(scored) >= 3
    assert verdict.verified is not None


@pytest.mark.parametrize(
    ("backend", "wanted"),
    [(MadeUp(window=2000), "refused"), (MadeUp(cuts_above=2000), "truncated"), (MadeUp(), "none")],
)
def test_truncation_is_told_from_refusal_and_from_nothing(backend, wanted):
    around = context(backend)
    evidence = [one.payload() for one in TruncationProbe(2000).collect(around)]
    reading = next(one for one in evidence if isinstance(one, TruncationReading))
    assert reading.verdict == wanted
    if wanted == "truncated":
        assert reading.processed < reading.sent


def test_a_dear_truncation_probe_is_not_sent_and_says_its_price():
    around = context(MadeUp())
    backend = around.backend
    reading = next(one.payload() for one in TruncationProbe(2000, afford=100).collect(around))
    assert reading.verdict == "unknown"
    assert reading.would_cost_tokens >= 2000
    assert backend.asked == []


def test_the_plan_of_the_walk_is_in_the_evidence():
    base, _results, ladder, _verdict = climb(MadeUp(), rungs=(1024, 2048))
    assert isinstance(base, RecallBase)
    assert ladder.found.verified
    assert LadderFound.kind in ladder.gives


def test_a_server_that_fails_everything_long_is_not_asked_for_ever():
    """Law: a failure that repeats at one length is asked a bounded number of times, and none is called passed."""

    class Fails(MadeUp):
        def complete(self, ask):
            answer = super().complete(ask)
            if (answer.prompt_tokens or 0) > 1500:
                return Completion(error=RequestError(error="server-error", status=500, message="it broke"))
            return answer

    backend = Fails()
    _base, results, _ladder, verdict = climb(backend)
    assert len([one for one in results if one.result == "failed"]) <= 8
    assert all(one.input_tokens <= 1500 for one in results if one.result == "passed")
    assert verdict.verified is None or verdict.verified <= 1500


def test_a_server_that_counts_no_cache_is_still_verified():
    """Law: where nobody says what came from the cache, asking to leave it out counts as cold, and the walk ends."""

    class Silent(MadeUp):
        def complete(self, ask):
            return super().complete(ask).model_copy(update={"cached_tokens": None, "processed_tokens": None})

    _base, results, _ladder, verdict = climb(Silent(), rungs=(1024, 2048))
    assert verdict.verified is not None
    assert len(results) < 12


def test_counts_far_above_what_was_sent_are_not_believed():
    """Law: a server that counts more tokens than were sent verifies nothing by it."""

    class Boasts(MadeUp):
        def complete(self, ask):
            answer = super().complete(ask)
            return answer.model_copy(update={"prompt_tokens": (answer.prompt_tokens or 0) + 5000})

    _base, results, _ladder, verdict = climb(Boasts(), rungs=(1024, 2048))
    assert verdict.verified is None
    assert all("cannot be believed" in one.error for one in results)
    assert max(one.input_tokens for one in results) <= 2048


def test_refused_and_passed_lengths_are_counted_alike():
    """Law: a refusal stands at the length that the server named, so that no passed length lies above a refused one."""
    _base, results, _ladder, _verdict = climb(MadeUp(window=3000))
    refused = min(one.input_tokens for one in results if one.result == "refused")
    assert refused > 3000
    assert max(one.input_tokens for one in results if one.result == "passed") <= 3000


def test_a_request_does_not_outlast_the_budget_by_much():
    """Law: a deadline grows with the speeds seen, but never far beyond what the budget has left."""
    around = context(MadeUp(), ends_at=time.monotonic() + 5)
    assert around.deadline_for(100_000) <= 25
    around.prefill_tps = 1.0
    assert around.deadline_for(100_000) <= 25


class TurnsAway(MadeUp):
    """Answers 429 to every third request, or to all: others are served."""

    def __init__(self, every=3, **more):
        super().__init__(**more)
        self.every = every
        self.calls = 0

    def complete(self, ask):
        self.calls += 1
        if self.calls % self.every == 0:
            return Completion(error=RequestError(error="busy", status=429, message="one at a time"))
        return super().complete(ask)


def test_a_request_that_is_turned_away_because_others_are_served_is_sent_again(monkeypatch):
    """Law: a refusal for load says nothing about a length: the window is found, and the refusals are kept as evidence of their own."""
    monkeypatch.setattr("probes.base.BUSY_PAUSES_S", (0.0, 0.0, 0.0))
    _base, results, _ladder, verdict = climb(TurnsAway())
    assert all(one.error_kind is None for one in results)
    assert verdict.verified == [one.input_tokens for one in results if one.rung == RUNGS[-1]][-1]
    around = context(TurnsAway())
    for _number in range(4):
        assert around.complete(Ask(prompt="a b c")).error is None
    assert [one.message for one in around.turned_away] == ["one at a time"]


def test_a_server_that_turns_everything_away_is_not_asked_for_ever(monkeypatch):
    monkeypatch.setattr("probes.base.BUSY_PAUSES_S", (0.0, 0.0, 0.0))
    backend = TurnsAway(every=1)
    assert context(backend).complete(Ask(prompt="a b c")).error.error == "busy"
    assert backend.calls == 4
    # where being turned away is what is asked, each counts as it comes
    backend.calls = 0
    assert context(backend).complete(Ask(prompt="a b c"), purpose="repeat").error.error == "busy"
    assert backend.calls == 1


def test_a_cold_reading_that_comes_far_too_soon_was_none():
    """Law: where the server counts no cached tokens, the same length read ten times sooner than before came from a cache."""

    class Untold(MadeUp):
        def complete(self, ask):
            self.speed = 100.0 if len(self.asked) == 0 else 10_000.0
            answer = super().complete(ask)
            return answer.model_copy(update={"cached_tokens": None})

    around = context(Untold())
    text = build_ladder((1024,), around.counter, seed=3, reserve=64).rungs[0]
    attempts = Attempts(around, Asking())
    cold = []
    for number in range(3):
        list(attempts.measure(text, number + 1, canaries=text.canaries[:1], scored=False))
        cold.append(attempts.result.cold)
    assert cold == [None, False, False]


def test_a_second_look_at_a_length_never_asks_the_same_facts_while_there_are_others() -> None:
    """Law: where too few facts were never asked, those of other lengths are asked before those of this one: the same question tells nothing new."""
    counter = context(MadeUp()).counter
    texts = build_ladder((1024, 2048, 4096), counter, seed=3, reserve=160)
    plan = LadderPlan(rungs=(1024, 2048, 4096), output_tokens=16, resolution=None)
    ladder = LadderProbe(plan, texts, Asking(style="completion"), Criteria(), lambda _results: None)

    def look(length, purpose):
        step = Step(length, cold=False, purpose=purpose, attempt=1, expected_tokens=length, why=words("…"))
        return {one.key for one in ladder.text_for(step, counter).canaries}

    for length in (1024, 2048):
        look(length, "climb")
        look(length, "more")
    first = look(4096, "climb")
    second = look(4096, "more")
    assert len(second) == len(first)
    assert first.isdisjoint(second)
