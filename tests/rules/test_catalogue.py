"""Every rule: complete, documented, with cases that come out; every cause has one; the generated page is fresh."""

from __future__ import annotations

import json
import time

import pytest

from rules.catalogue import HEADINGS, all_rules, cases_of, facts_document, judge_facts, readme, rule_of, rules_document
from rules.catalogue import main as catalogue_main
from rules.causes import CAUSES, FAMILIES, SYMPTOMS
from rules.engine import Facts, find
from rules.facts import SYMPTOM, VOCABULARY
from tests.rules.cases import facts_of_case

RULES = all_rules()
CASES = [(rule, case) for rule in RULES for case in cases_of(rule)]


@pytest.mark.parametrize(("rule", "case"), CASES, ids=[f"{r.id}: {c.name}" for r, c in CASES])
def test_a_case_comes_out_in_its_band(rule, case):
    """What the case says of the rule is what the rule says of the case."""
    finding = find(rule, facts_of_case(case), SYMPTOM)
    assert finding.band in case.bands, (finding.low, finding.now, finding.high)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_has_a_case_of_each_kind_and_what_it_is_mistaken_for(rule):
    """One that fires, one that stays silent, one that cannot tell."""
    kinds = {case.kind for case in cases_of(rule)}
    assert {"fires", "silent", "cannot-tell"} <= kinds
    fires = [c for c in cases_of(rule) if c.kind == "fires"]
    assert all(set(c.bands) <= {"likely", "possible", "disputed"} for c in fires)
    assert any(c.bands == ("likely",) for c in fires)
    assert all("likely" not in c.bands for c in cases_of(rule) if c.kind != "fires")


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_rule_argues_both_ways_and_proposes_something(rule):
    """Clues for and clues against, from several facts, and something to try."""
    weights = [w for clue in rule.clues for w in (clue.if_true, clue.if_false)]
    assert max(weights) > 0
    assert min(weights) < 0
    assert len(rule.clues) >= 3
    assert rule.tests
    assert set(rule.prior) <= set(SYMPTOMS)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_what_is_proposed_to_be_measured_or_asked_is_there_by_that_name(rule):
    """By another name it would be proposed again in the run that has just done it."""
    from diagnose.plan import GIVES
    from diagnose.questions import QUESTIONS

    assert {test.variable for test in rule.tests if test.kind == "probe"} <= set(GIVES)
    assert {test.variable for test in rule.tests if test.kind == "answer"} <= {one.id for one in QUESTIONS}


BY_HAND = {"client.ctx", "max_tokens", "iogpu.wired_limit_mb", "pipeline_copies"}
"""Variables that no server's command line has: the client's, the system's, the build's."""


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.id)
def test_a_change_is_of_a_variable_that_a_server_has(rule):
    """What is proposed as a change can be written into a command, or is known to be made elsewhere."""
    from probes.backends import flags

    tables = [value for value in vars(flags).values() if isinstance(value, tuple)]
    known = {name for table in tables for flag in table if isinstance(flag, flags.Flag) for name in flag.variables} | {
        "kv_type"
    }
    for test in rule.tests:
        if test.kind == "change" and not test.variable.startswith(("env.", "client.")):
            assert test.variable in known | BY_HAND, test.variable


def test_every_cause_has_a_rule():
    """The vocabulary of causes and the rules are one and the same."""
    assert {rule.cause for rule in RULES} == set(CAUSES)


def test_every_rule_lies_in_the_folder_of_its_family_and_is_documented():
    """Headings are fixed; the first line is a sentence."""
    for rule in RULES:
        assert rule.family in FAMILIES
        first = rule.document.strip().splitlines()[0]
        assert first.endswith("."), rule.id
        for heading in HEADINGS:
            assert heading in rule.document


def test_the_readme_is_fresh():
    """rules/README.md is what the rules say; run python -m rules.catalogue where this fails."""
    assert catalogue_main(["--check"]) == 0
    assert readme().startswith("# Rules\n")


def test_documents_hold_every_key_and_are_plain_data():
    """The rules and facts documents are JSON with the keys that others rely on."""
    rules, facts = json.loads(json.dumps(rules_document())), json.loads(json.dumps(facts_document()))
    assert all(
        {"id", "cause", "family", "words", "document", "clues", "next_test", "cases"} <= set(rule) for rule in rules
    )
    assert all({"words", "if_true", "if_false", "facts"} <= set(clue) for rule in rules for clue in rule["clues"])
    assert all({"id", "words", "unit", "low", "high", "derived_from"} <= set(fact) for fact in facts)
    assert len(facts) == len(VOCABULARY)
    assert rule_of(rules[0]["id"]).cause == rules[0]["cause"]


def test_questions_and_facts_agree():
    """Each question feeds a fact of the vocabulary, whose values are the question's choices, in its range and unit."""
    from diagnose.questions import QUESTIONS

    for question in QUESTIONS:
        fact = VOCABULARY[question.fact]
        assert fact.question == question.id
        assert set(question.choice_ids()) == set(fact.choices), question.id
        kind = {"choice": str, "many": tuple, "tokens": int, "number": float, "text": str, "yes-no": bool}[
            question.type
        ]
        assert fact.kind is kind, question.id
        if question.low is not None and question.high is not None:
            assert fact.low <= question.low, question.id
            assert question.high <= fact.high, question.id
    assert {f.question for f in VOCABULARY if f.question} == {q.id for q in QUESTIONS}


def test_nothing_known_gives_nothing_likely():
    """With no fact at all no cause is likely, possible or named."""
    judgement = judge_facts(Facts())
    assert judgement.named == ()
    assert {f.band for f in judgement.findings} <= {"open", "unlikely"}


def test_judging_all_rules_takes_at_most_fifty_milliseconds():
    """Best of several, on any machine that runs tests."""
    facts = [facts_of_case(case) for _, case in CASES[:12]]
    best = min(_timed(one) for one in facts for _ in range(2))
    assert best < 0.050


def _timed(facts):
    start = time.perf_counter()
    judge_facts(facts, "triage")
    return time.perf_counter() - start
