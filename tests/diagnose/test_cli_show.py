"""What the tool knows, asks and writes can be shown, and every document is what its schema says."""

from __future__ import annotations

import json

import pytest

from diagnose.cli import command_line
from diagnose.questions import QUESTIONS
from diagnose.schema import DOCUMENTS, FactsDocument, QuestionsDocument, RulesDocument, names, schema_of, schemas
from probes.evidence.records import Payload
from rules.catalogue import all_rules
from rules.causes import CAUSES
from rules.facts import VOCABULARY


def shown(capsys, *arguments):
    assert command_line([*arguments]) == 0
    return capsys.readouterr().out


def test_rules_are_the_whole_catalogue_in_its_documents_form(capsys):
    document = json.loads(shown(capsys, "rules", "--format", "json"))
    assert [one["id"] for one in document] == [rule.id for rule in all_rules()]
    RulesDocument.model_validate(document)
    for key in ("id", "cause", "family", "words", "document", "clues", "next_test", "cases"):
        assert all(key in one for one in document)
    text = shown(capsys, "rules")
    assert all(rule.id in text for rule in all_rules())


def test_one_rule_is_shown_whole(capsys):
    rule = all_rules()[0]
    text = " ".join(shown(capsys, "rules", rule.id).split())
    for clue in rule.clues:
        assert clue.words.english in text
    for test in rule.tests:
        assert " ".join(test.reason.english.split()) in text
    assert "What would prove it wrong" in text
    assert [one["id"] for one in json.loads(shown(capsys, "rules", rule.id, "--format", "json"))] == [rule.id]


def test_rules_are_found_by_family(capsys):
    family = all_rules()[0].family
    document = json.loads(shown(capsys, "rules", family, "--format", "json"))
    assert {one["family"] for one in document} == {family}
    assert len(document) == sum(rule.family == family for rule in all_rules())


def test_facts_and_questions_are_whole(capsys):
    facts = json.loads(shown(capsys, "facts", "--format", "json"))
    assert {one["id"] for one in facts} == {fact.id for fact in VOCABULARY}
    FactsDocument.model_validate(facts)
    questions = json.loads(shown(capsys, "questions", "--format", "json"))
    assert [one["id"] for one in questions] == [one.id for one in QUESTIONS]
    QuestionsDocument.model_validate(questions)
    text = shown(capsys, "facts") + shown(capsys, "questions")
    for one in (*VOCABULARY, *QUESTIONS):
        assert one.id in text
        assert str(one.words) in text
    assert [one["id"].split(".")[0] for one in json.loads(shown(capsys, "facts", "window", "--format", "json"))].count(
        "window"
    ) >= 3


def test_the_answers_of_a_question_are_shown_as_a_file_takes_them(capsys):
    text = shown(capsys, "questions", "symptom")
    assert text.startswith("symptom = ")
    assert "immediate-oom" in text


def test_every_document_and_kind_of_evidence_has_a_schema(capsys):
    document = json.loads(shown(capsys, "schema"))
    assert set(document) == {*DOCUMENTS, "evidence-data"}
    assert set(DOCUMENTS) >= {"case", "estimate", "check", "rules", "facts", "questions", "answer", "journal-entry"}
    own = {kind for kind, payload in Payload.kinds.items() if payload.__module__.startswith("probes.")}
    assert set(document["evidence-data"]) >= own >= {"rung", "log_event", "watched_request", "devices"}
    for name in names():
        if name != "evidence-data":
            assert schema_of(name)["$schema"].startswith("https://json-schema.org/")
    assert json.loads(shown(capsys, "schema", "case")) == schemas()["case"]
    assert "case" in shown(capsys, "schema", "--format", "text").split()


def test_the_case_schema_has_every_key_of_the_contract():
    properties = schema_of("case")["properties"]
    wanted = "schema_version tool case subject criteria rungs window verdict verdicts next_test changes evidence sent unknown"
    assert set(wanted.split()) <= set(properties)
    check = schema_of("check")["properties"]
    assert {"schema_version", "backend", "model", "window", "truncation", "memory", "flags", "sent", "unknown"} <= set(
        check
    )


@pytest.mark.parametrize(
    "arguments", [["rules", "slots-divide"], ["facts", "windw"], ["questions", "sympton"], ["schema", "cse"]]
)
def test_a_name_that_does_not_exist_is_2_and_says_where_they_are(arguments, capsys):
    assert command_line(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "lists them" in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize("name", ["rules", "facts", "questions", "schema", "cases"])
def test_a_result_goes_into_a_file_where_one_is_named(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    path = tmp_path / "x.json"
    assert command_line([name, "--format", "json", "--out", str(path)]) == 0
    assert capsys.readouterr().out == ""
    json.loads(path.read_text())


def test_every_cause_is_shown_in_words_by_its_rule(capsys):
    text = shown(capsys, "rules")
    for rule in all_rules():
        assert str(CAUSES[rule.cause].words) in text
