"""The control run: what both lose with length is the price of length; what only one loses is not."""

from contextlib import contextmanager

import pytest

from diagnose.plan import order_for
from probes.attempt import Asking, Attempts
from probes.control import ControlProbe, same_origin, split_model
from probes.evidence.control import ControlRun
from probes.evidence.errors import UnreachableError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.rungs import RungResult
from probes.ladder.rungs import build_ladder
from rules.catalogue import facts_of, judge_facts, rule_of
from rules.engine import Known, find
from rules.facts import CONTROL_LOST_MORE, CONTROL_SAYS, SPEED_COMPLAINT, SPEED_SHAPE, SYMPTOM
from tests.probes.made_up import MadeUp, context, counter

LENGTHS = (1024, 4096, 8192)


class Slowing(MadeUp):
    """A server that takes longer for each token the longer the text is: ``per_1000`` is the share that each 1,000 tokens add."""

    def __init__(self, per_1000, **more):
        super().__init__(**more)
        self.per_1000 = per_1000

    def complete(self, ask):
        answer = super().complete(ask)
        if answer.error is not None:
            return answer
        slower = 1 + self.per_1000 * answer.prompt_tokens / 1000
        return answer.model_copy(
            update={
                "server_prompt_s": answer.server_prompt_s * slower,
                "server_generation_s": answer.server_generation_s * slower,
                "client_first_token_s": answer.client_first_token_s * slower,
                "client_total_s": answer.client_total_s * slower,
            }
        )


def own_rungs(backend, lengths=LENGTHS):
    around = context(backend)
    texts = build_ladder(lengths, around.counter, seed=5, reserve=64).rungs
    attempts = Attempts(around, Asking())
    for number, text in enumerate(texts):
        list(attempts.measure(text, number + 1, canaries=text.canaries[:1], scored=False))
        yield attempts.result


def opened(backend):
    @contextmanager
    def connect():
        yield backend, counter()

    return connect


def compared(own, control, lengths=LENGTHS):
    mine = Slowing(own)
    probe = ControlProbe(opened(Slowing(control)), list(own_rungs(mine, lengths)))
    evidence = list(probe.collect(context(mine)))
    return probe, facts_of(EvidenceSet(evidence)), evidence


@pytest.mark.parametrize(
    ("own", "control", "says"),
    [(0.05, 0.05, "alike"), (0.05, 0.08, "alike"), (0.0, 0.0, "alike"), (1.0, 0.05, "steeper"), (0.3, 0.0, "steeper")],
)
def test_the_difference_of_the_slopes_is_a_fact(own, control, says):
    """Law: losing as much as (or less than) the control is alike; losing far more is steeper."""
    probe, facts, _evidence = compared(own, control)
    assert probe.reading.own_prefill_slope == pytest.approx(own, abs=0.01)
    assert probe.reading.control_prefill_slope == pytest.approx(control, abs=0.01)
    assert facts.value(CONTROL_SAYS) == says
    assert (facts.value(CONTROL_LOST_MORE) > 1.5) is (says == "steeper")


def test_the_controls_own_rungs_are_no_evidence_about_the_server_under_test():
    """Law: only the comparison is kept; no rung of another server stands in the case."""
    _probe, _facts, evidence = compared(0.1, 0.1)
    assert [one.kind for one in evidence] == [ControlRun.kind]


def test_what_is_missing_on_the_server_under_test_is_measured_first():
    """Law: with fewer than two cold lengths the probe asks the server under test itself, and that is evidence."""
    mine = Slowing(0.2)
    around = context(mine)
    texts = build_ladder(LENGTHS, around.counter, seed=5, reserve=64).rungs
    probe = ControlProbe(opened(Slowing(0.0)), [], texts)
    evidence = list(probe.collect(around))
    assert [one.kind for one in evidence] == [RungResult.kind, RungResult.kind, ControlRun.kind]
    assert len(probe.reading.control) == 2


@pytest.mark.parametrize("window", [900, 2000])
def test_a_control_whose_window_is_too_short_says_so(window):
    """Law: a control that cannot hold two of the lengths gives no comparison, with why; nothing is asked of it beyond its window."""
    control = Slowing(0.0, window=window)
    mine = Slowing(0.3)
    [evidence] = list(ControlProbe(opened(control), list(own_rungs(mine))).collect(context(mine)))
    assert evidence.unavailable.why == "failed"
    assert "control" in evidence.unavailable.note
    assert control.asked == []


def test_a_control_that_does_not_answer_costs_the_run_nothing():
    """Law: what goes wrong at the control is said, and says nothing about the server under test."""

    @contextmanager
    def connect():
        raise UnreachableError("nothing listens at 127.0.0.1:1")
        yield

    mine = Slowing(0.3)
    [evidence] = list(ControlProbe(connect, list(own_rungs(mine))).collect(context(mine)))
    facts = facts_of(EvidenceSet([evidence]))
    assert "nothing listens" in facts.get(CONTROL_SAYS).note
    assert not facts.get(CONTROL_SAYS).is_open()


def test_a_control_dying_half_way_is_said():
    mine = Slowing(0.3)
    control = Slowing(0.0, dies_above=2000)
    [evidence] = list(ControlProbe(opened(control), list(own_rungs(mine))).collect(context(mine)))
    assert "control" in evidence.unavailable.note


def test_without_a_control_nothing_is_open():
    """Law: the tool cannot get a second server by itself, so an untaken control run holds up no verdict."""
    assert not facts_of(EvidenceSet([])).get(CONTROL_SAYS).is_open()


def test_a_control_that_keeps_its_speed_takes_the_price_of_length_back():
    """Law: "the ordinary price of length" is named with a control that loses as much, and not with one that keeps its speed."""
    known = {SYMPTOM: Known("slow-long-context"), SPEED_SHAPE: Known("slope"), SPEED_COMPLAINT: Known(True)}
    bands = {}
    for own, control in ((0.1, 0.1), (1.0, 0.0)):
        _probe, facts, _evidence = compared(own, control)
        bands[own] = find(rule_of("depth-cost"), facts.learn(known), SYMPTOM, frozenset())
    assert bands[0.1].band == "likely"
    assert bands[1.0].band != "likely"
    spill = find(rule_of("vram-spill-shared-memory"), facts.learn(known), SYMPTOM, frozenset())
    assert spill.now > 0
    assert judge_facts(facts.learn(known)).of("depth-cost").now < 10


def test_addresses_and_models():
    """Law: a key goes to no other server; ``URL#MODEL`` is another model of one server."""
    assert split_model("http://127.0.0.1:8080#small") == ("http://127.0.0.1:8080", "small")
    assert split_model("8080") == ("8080", None)
    assert same_origin("8080#small", "http://127.0.0.1:8080")
    assert same_origin("localhost:8080", "http://127.0.0.1:8080/")
    assert not same_origin("8081", "http://127.0.0.1:8080")
    assert not same_origin("not a url at all", "http://127.0.0.1:8080")


def test_the_plan_has_a_control_run_only_where_a_control_was_given():
    assert "control" not in order_for("slow-long-context")
    assert order_for("slow-long-context", control=True)[-1] == "control"
    assert order_for("flaky", control=True)[-1] == "control"


def test_the_comparison_survives_the_journal():
    probe, _facts, _evidence = compared(0.1, 0.3)
    again = found(probe.reading, source="measured").payload()
    assert again == probe.reading
