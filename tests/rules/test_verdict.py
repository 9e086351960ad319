"""The verdict's records and predictions: plain data, kept and scored later."""

from __future__ import annotations

import json

from probes.evidence.words import words
from rules.catalogue import cases_of, facts_of, judge_facts, rule_of
from rules.engine import Closer, Facts, Known, Unknown
from rules.facts import ROPE_WRONG, SMALLER_WINDOW_WORKS, VOCABULARY, WINDOW_IN_FORCE, WINDOW_SLOTS
from rules.verdict import Expectation, NextTest, next_step, score_each, verdict_of
from tests.rules.cases import facts_of_case


def slots(**more):
    case = next(c for c in cases_of(rule_of("slots-divide-ctx")) if c.kind == "fires")
    return facts_of_case(case).learn({WINDOW_IN_FORCE: Known(2048, "server"), **more})


def test_a_verdict_is_plain_data_sorted_with_the_likely_first():
    """Every key of the contract; unlikely causes only on demand; trace with values, sources and reasons."""
    facts = slots()
    verdict = verdict_of(judge_facts(facts), facts, run=2)
    document = json.loads(json.dumps(verdict.document()))
    assert document["run"] == 2
    assert document["named"] == ["slots-divide-ctx"]
    assert {"run", "named", "confirmed", "abstained_because", "causes"} <= set(document)
    first = document["causes"][0]
    assert {"id", "family", "band", "low", "now", "high", "explains", "clues"} <= set(first)
    assert first["id"] == "slots-divide-ctx"
    clue = first["clues"][0]
    assert {"words", "truth", "weight", "facts"} <= set(clue)
    assert {"id", "found", "source", "why_unknown"} <= set(clue["facts"][0])
    assert all(c["band"] not in {"unlikely", "ruled-out"} for c in document["causes"])
    assert len(verdict.document(everything=True)["causes"]) == 59


def test_a_next_test_carries_values_and_leaves_the_command_open():
    """Variable, from and to are values; command and undo are for whoever can write them."""
    facts = slots()
    step = next_step(judge_facts(facts), facts)
    document = json.loads(json.dumps(step.document()))
    assert (document["kind"], document["variable"], document["from"], document["to"]) == ("change", "parallel", 4, 1)
    assert document["command"] is None
    assert document["cost"]["quality"] == "none"
    assert document["expects"][0]["cause"] == "slots-divide-ctx"
    assert NextTest.model_validate_json(step.model_dump_json()) == step


def test_a_prediction_is_scored_on_the_facts_of_the_re_run():
    """Held, failed, or cannot tell; frozen on the run before, whatever was kept in between."""
    facts = slots()
    step = next_step(judge_facts(facts), facts)
    kept = [Expectation.model_validate_json(e.model_dump_json()) for e in step.expects]
    for found, outcome in ((Known(8192), "held"), (Known(2048), "failed"), (Unknown("failed"), "cannot-tell")):
        assert score_each(kept, Facts({WINDOW_IN_FORCE: found}))["slots-divide-ctx"] == outcome
    assert score_each(kept, Facts({WINDOW_IN_FORCE: Known(2048)}))["ctx-capped-by-engine"] == "held"


def test_a_prediction_about_a_fact_that_is_gone_cannot_be_told():
    """A case from an older version is scored as far as it can be read, and never raises."""
    old = Expectation(cause="slots-divide-ctx", words="it grows", when={"op": ">", "fact": "window.of_old", "value": 3})
    assert score_each([old], Facts()) == {"slots-divide-ctx": "cannot-tell"}


def test_while_nothing_is_named_a_quick_look_comes_before_a_change():
    """A question that can still decide is asked first; once a cause is named, its change is proposed."""
    closers = [
        Closer("smaller_window", "ask", frozenset({SMALLER_WINDOW_WORKS}), 0.2),
        Closer("slots", "ask", frozenset({WINDOW_SLOTS}), 0.2),
    ]
    facts = Facts()
    step = next_step(judge_facts(facts), facts, closers)
    assert step.kind == "answer"
    assert step.variable in {"smaller_window", "slots"}
    named = slots()
    assert next_step(judge_facts(named), named, closers).kind == "change"


def test_a_client_is_not_told_less_where_more_is_wanted_and_the_model_can_do_it():
    """Law: the change that reaches what is wanted is proposed, and no step away from it."""
    told = {
        "symptom": "fixed-length-error",
        "failure.refused_over_window": True,
        "failure.about": "too-long",
        "window.in_force": 4096,
        "window.asked": 4096,
        "window.slots": 1,
        "told.client": "agent",
    }
    for wanted, trained, change in ((6144, 8192, ("ctx", 6144)), (6144, 4096, ("client.ctx", 4096))):
        values = {**told, "window.wanted": wanted, "window.trained": trained}
        facts = Facts(
            {VOCABULARY[name]: VOCABULARY[name].admit(value, source="measured") for name, value in values.items()}
        )
        step = next_step(judge_facts(facts), facts)
        assert (step.variable, step.to) == change


def test_there_is_nothing_left_to_try_only_when_nothing_is():
    """No leader and nothing open: no step."""
    facts = Facts({fact: Unknown("not-offered") for fact in VOCABULARY})
    assert next_step(judge_facts(facts), facts) is None


def test_conflicts_and_refusals_are_in_the_verdict():
    """A contradiction and a refused value are told, with their sources."""
    from probes.evidence.answers import Answer
    from probes.evidence.records import EvidenceSet, found
    from probes.evidence.subject import WindowReading

    evidence = EvidenceSet(
        [
            found(Answer(question="slots", value=1), source="user"),
            found(WindowReading(slots=4), source="server"),
            found(Answer(question="gpu_gib", value=-5.0), source="user"),
        ]
    )
    facts = facts_of(evidence)
    document = verdict_of(judge_facts(facts), facts).document()
    assert [c["id"] for c in document["conflicts"]] == ["window.slots"]
    assert document["conflicts"][0]["taken"]["source"] == "server"
    assert any("device" in line or "gpu_gib" in line for line in document["refused"])


def test_words_are_english_in_documents_whatever_the_language():
    """JSON carries English; reports translate from ids."""
    from probes.evidence.words import use_translation

    facts = slots().learn({ROPE_WRONG: Known(False)})
    use_translation(lambda text: "번역")
    try:
        verdict = verdict_of(judge_facts(facts), facts)
        assert str(words("x")) == "번역"
        assert all("번역" not in clue.words for cause in verdict.causes for clue in cause.clues)
    finally:
        use_translation(None)
