"""The same request many times on made-up servers whose trouble is known: which condition it belongs to, and what so many tries can say."""

import threading
import time

import pytest

from diagnose.findings import said_by_probes
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Completion, ConcurrencyTrial, RequestError, TruncationReading
from probes.ladder.flaky import trial_in_words
from probes.repeat import RepeatProbe
from rules.catalogue import facts_of, rule_of
from rules.engine import Known, find
from rules.facts import FAILURE_KINDS, FAILURE_ROUND_SECONDS, POOL_FULL_SEEN, SYMPTOM, TOGETHER_FAILS
from tests.probes.made_up import MadeUp, context


class Pool(MadeUp):
    """Requests at the same time share one pool of cells; whoever comes when it is full is thrown out."""

    def __init__(self, cells, beside=0, **more):
        super().__init__(**more)
        self.cells = cells
        self.taken = beside
        self.beside = beside
        self.lock = threading.Lock()

    def busy(self):
        return self.beside > 0

    def complete(self, ask):
        size = len(ask.prompt.split())
        with self.lock:
            self.taken += size
            full = self.taken > self.cells
        time.sleep(0.05)
        with self.lock:
            self.taken -= size
        if full:
            return Completion(
                error=RequestError(error="pool-exhausted", status=500, message="no free cells for task 17")
            )
        return super().complete(ask)


class GivesUp(MadeUp):
    """A proxy before it closes the connection after ``limit`` seconds; cold prompts take longer than that."""

    def __init__(self, limit, **more):
        super().__init__(**more)
        self.limit = limit

    def complete(self, ask):
        answer = super().complete(ask)
        if answer.client_total_s > self.limit:
            error = RequestError(error="connection-lost", message="closed after 2 bytes", after_s=self.limit + 0.02)
            return Completion(error=error)
        return answer


def tried(backend, **more):
    probe = RepeatProbe(1000, **({"most_tries": 3, "concurrency": 2} | more))
    evidence = list(probe.collect(context(backend)))
    return probe.reading, EvidenceSet(evidence)


def test_a_shared_pool_fails_only_together():
    """Law: what passes alone and fails at once belongs to load, and the rule for a full pool is the one that fires."""
    trial, evidence = tried(Pool(1500))
    assert (trial.alone_passed, trial.alone_tried) == (3, 3)
    assert trial.together_passed < trial.together_tried == 2
    facts = facts_of(evidence).learn({SYMPTOM: Known("flaky")})
    assert facts.value(TOGETHER_FAILS) is True
    assert facts.value(POOL_FULL_SEEN) is True
    assert find(rule_of("kv-pool-exhausted"), facts, SYMPTOM, frozenset()).band == "likely"


def test_what_so_few_tries_can_say_is_said():
    """Law: three passes are no proof: the sentence gives the exact bound."""
    trial, evidence = tried(MadeUp())
    said = [one.english for one in said_by_probes(evidence)]
    assert any("3 of 3 passed: that leaves a failure rate of up to 63 %." in one for one in said)
    assert any("It takes 59 passes in a row" in one for one in said)
    assert trial.standing == "steady"
    assert trial.warm_passed is True


@pytest.mark.parametrize(
    ("alone", "together", "needed"),
    [((4, 6), (0, 0), 8), ((3, 6), (2, 2), 5), ((6, 6), (1, 2), 5), ((0, 6), (0, 2), None), ((6, 6), (0, 2), None)],
)
def test_how_many_passes_would_show_that_a_change_helped_is_said(alone, together, needed):
    """Law: by the share that failed; where it fails each time one pass says it all, and nothing is said."""
    trial = ConcurrencyTrial(
        prompt_tokens=1000,
        concurrency=max(1, together[1]),
        alone_passed=alone[0],
        alone_tried=alone[1],
        together_passed=together[0],
        together_tried=together[1],
        standing="flaky",
    )
    said = [one.english for one in trial_in_words(trial) if "passes in a row" in one.english]
    assert len(said) == (needed is not None)
    assert needed is None or f"{needed} passes in a row come by chance only once in 20 times" in said[0]


def test_a_round_number_of_seconds_again_and_again_is_a_time_limit():
    """Law: failures at one small round number, more than once, are somebody's limit, whatever the error is called."""
    trial, evidence = tried(GivesUp(5.0, prefill_tps=100.0))
    assert trial.round_timeout_s == 5
    facts = facts_of(evidence).learn({SYMPTOM: Known("flaky")})
    assert facts.value(FAILURE_ROUND_SECONDS) is True
    assert "timeout" in facts.value(FAILURE_KINDS)
    assert find(rule_of("client-proxy-timeout"), facts, SYMPTOM, frozenset()).band == "likely"
    assert any("after 5 seconds" in one.english for one in trial_in_words(trial))


@pytest.mark.parametrize("limit", [3.7, 7.4, 12.9])
def test_a_number_of_seconds_that_is_not_round_is_none(limit):
    trial, evidence = tried(GivesUp(limit, prefill_tps=50.0))
    assert trial.alone_passed == 0
    assert trial.round_timeout_s is None
    assert facts_of(evidence).value(FAILURE_ROUND_SECONDS) is False


def test_one_failure_at_a_round_number_is_no_limit():
    """Law: one time alone may stand at five seconds by chance."""

    class Once(MadeUp):
        def complete(self, ask):
            answer = super().complete(ask)
            if len(self.asked) == 4:
                return Completion(error=RequestError(error="connection-lost", message="gone", after_s=5.02))
            return answer

    trial, evidence = tried(Once())
    assert trial.standing == "flaky"
    assert trial.round_timeout_s is None
    assert facts_of(evidence).value(FAILURE_ROUND_SECONDS) is False


def test_a_request_that_fails_cold_and_passes_warm_is_told_apart():
    """Law: where the second try finds the prompt in the cache, that is another condition, not chance."""
    trial, _evidence = tried(GivesUp(5.0, prefill_tps=100.0), concurrency=1)
    assert trial.alone_passed == 0
    assert trial.warm_passed is True
    assert trial.standing in {"cold-only", "flaky"}


def test_the_first_request_after_the_load_is_told_apart():
    """Law: a failure of the very first request alone is said to be so."""

    class SlowStart(MadeUp):
        def complete(self, ask):
            answer = super().complete(ask)
            if len(self.asked) == 1:
                return Completion(error=RequestError(error="timeout", message="no answer", after_s=31.4))
            return answer

    trial, _evidence = tried(SlowStart())
    assert trial.standing == "first-only"
    assert any("first request after the load" in one.english for one in trial_in_words(trial))


def test_somebody_elses_request_is_seen_and_said():
    trial, _evidence = tried(Pool(5000, beside=200), concurrency=1)
    assert trial.busy_beside >= 3
    assert any("Somebody else" in one.english for one in trial_in_words(trial))


def test_more_tries_are_made_where_the_budget_holds_them():
    """Law: as many tries as the share of the budget holds, no more than asked; a dead server ends it."""
    many, _evidence = tried(MadeUp(), most_tries=12)
    assert many.alone_tried == 12
    failing, _evidence = tried(MadeUp(dies_above=100), most_tries=12)
    assert failing.alone_tried == 3
    assert failing.standing == "fails-always"


def test_the_length_is_what_the_budget_holds_but_not_below_what_the_pool_needs():
    """Law: on a slow server the request is shortened; where slots share a pool, not so far that it can no longer fill it."""
    around = context(MadeUp())
    around.prefill_tps = 10.0
    around.ends_at = time.monotonic() + 100
    assert RepeatProbe(20_000).affordable(around) == 256
    assert RepeatProbe(20_000, least=4500).affordable(around) == 4500
    around.prefill_tps = 100_000.0
    assert RepeatProbe(20_000, least=4500).affordable(around) == 20_000


def test_errors_are_grouped_whatever_numbers_they_carry():
    trial = ConcurrencyTrial(
        concurrency=1,
        prompt_tokens=10,
        alone_passed=0,
        alone_tried=3,
        together_passed=0,
        together_tried=0,
        errors=tuple(
            RequestError(error="server-error", message=f"task {n} failed at 0x{n:04x}") for n in (11, 222, 3333)
        ),
    )
    said = [one.english for one in trial_in_words(trial)]
    assert any(one.startswith("3 times server-error") for one in said)


def test_our_own_cut_request_is_nobody_elses():
    """Law: a server that still works on a request of ours that was cut is not said to serve somebody else."""

    class StillBusy(GivesUp):
        def busy(self):
            return bool(self.asked)

    trial, _evidence = tried(StillBusy(5.0, prefill_tps=100.0))
    assert trial.alone_passed == 0
    assert trial.busy_beside == 0


@pytest.mark.parametrize(("tokens", "kinds"), [(2404, None), (1800, ("too-long",))])
def test_what_a_probe_sent_to_be_refused_is_no_failure(tokens, kinds):
    """Law: the log's line about our own prompt above the window says nothing about the user's trouble; any other refusal does."""
    evidence = [
        found(
            TruncationReading(verdict="refused", sent=2403, processed=2404, window=2048),
            source="measured",
            origin="truncation",
        ),
        found(LogEvent(event="refused", line=1, text="refused", tokens=tokens, limit=2048), source="log"),
    ]
    assert facts_of(EvidenceSet(evidence)).value(FAILURE_KINDS) == kinds
