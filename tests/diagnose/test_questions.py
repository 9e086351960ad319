"""Laws of the questionnaire and of answers files."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.answers_file import as_evidence, check_answers, key_lines, parse_answers, parse_length, read_answers
from diagnose.questions import (
    CORE,
    DO_NOT_KNOW,
    QUESTIONS,
    AllOf,
    AnyOf,
    Is,
    closes,
    core_questions,
    follow_ups,
    question,
    to_document,
)
from probes.evidence.answers import Answer
from probes.evidence.errors import BadFileError
from rules.catalogue import all_rules
from rules.facts import VOCABULARY

SYMPTOMS = ("immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky")


def references(condition: object) -> list[Is]:
    if isinstance(condition, Is):
        return [condition]
    return [r for test in condition.tests for r in references(test)] if isinstance(condition, (AnyOf, AllOf)) else []


def test_ids_are_unique_and_every_question_says_why():
    ids = [q.id for q in QUESTIONS]
    assert len(ids) == len(set(ids))
    facts = [q.fact for q in QUESTIONS]
    assert len(facts) == len(set(facts))
    for q in QUESTIONS:
        assert q.why.english.endswith(".")
        assert q.words.english
        assert (q.type in {"choice", "many"}) == bool(q.choices), q.id
        assert len(set(q.choice_ids())) == len(q.choices), q.id
        assert DO_NOT_KNOW not in q.choice_ids()


def test_a_number_has_a_range_a_unit_and_an_example_that_is_accepted():
    for q in QUESTIONS:
        if q.type in {"tokens", "number"}:
            assert q.low is not None, q.id
            assert q.high is not None, q.id
            assert q.unit, q.id
            assert check_answers({q.id: q.example.split(" or ")[0]}), q.id


def test_conditions_name_questions_that_come_first_and_choices_that_exist():
    order = {q.id: n for n, q in enumerate(QUESTIONS)}
    for q in QUESTIONS:
        for r in references(q.asked_when):
            allowed = {
                *question(r.question).choice_ids(),
                *(("yes", "no") if question(r.question).type == "yes-no" else ()),
            }
            assert set(r.ids) <= allowed, (q.id, r)
            assert r.question != q.id
    assert order["symptom"] == 0


@pytest.mark.parametrize("symptom", SYMPTOMS)
def test_at_most_seven_questions_before_the_first_probe(symptom):
    asked = core_questions({"symptom": symptom})
    assert 1 <= len(asked) <= 7
    assert asked[0].id == "symptom"


def test_symptoms_are_those_of_the_command_line():
    assert question("symptom").choice_ids() == SYMPTOMS


def test_a_follow_up_is_asked_only_for_an_open_fact_and_only_where_it_makes_sense():
    assert follow_ups([], {"symptom": "flaky"}) == ()
    # A derived fact is closed by the questions that it is derived from.
    assert {"which_card"} <= {q.id for q in follow_ups(["device.one_full_other_free"], {"symptom": "immediate-oom"})}
    asked = follow_ups(["told.power", "told.retry_passes"], {"symptom": "flaky"})
    assert [q.id for q in asked] == ["power", "retry_passes"]
    assert [q.id for q in follow_ups(["told.power", "told.retry_passes"], {"symptom": "fixed-length-error"})] == [
        "retry_passes"
    ]
    assert follow_ups(["told.power"], {"symptom": "flaky", "power": None}) == ()
    assert not any(q.core for q in follow_ups([q.fact for q in QUESTIONS], {}))


def test_an_unknown_answer_does_not_close_the_questions_behind_it():
    assert question("cache_more_bits").applies({"cache_type": None}) is None
    assert question("cache_more_bits").applies({"cache_type": "f16"}) is False
    assert question("cache_more_bits").applies({"cache_type": "q4"}) is True


def test_every_question_can_be_answered_with_i_do_not_know():
    answers = check_answers({q.id: DO_NOT_KNOW for q in QUESTIONS})
    assert [a.value for a in answers] == [None] * len(QUESTIONS)
    evidence = as_evidence(answers)
    assert {e.source for e in evidence} == {"user"}
    assert evidence[0].payload() == Answer(question="symptom", value=None)


def test_the_document_has_what_the_contract_says():
    document = json.loads(json.dumps(to_document()))
    assert len(document) == len(QUESTIONS)
    for entry in document:
        assert {"id", "words", "why", "choices", "type", "asked_when", "fact"} <= set(entry)
        assert all(set(c) == {"id", "words"} for c in entry["choices"])


def test_toml_and_json_say_the_same(tmp_path):
    toml = tmp_path / "a.toml"
    toml.write_text(
        'symptom = "flaky"\nwhen = ["together", "long-prompt"]\nwindow_wanted = "128K"\nretry_passes = true\n'
        f'gpu_gib = "24 GiB"\nerror_text = """a\nfoo = 1\n"""\nfails_at = "{DO_NOT_KNOW}"\n'
    )
    js = tmp_path / "a.json"
    js.write_text(
        json.dumps(
            {
                "answers": {
                    "symptom": "flaky",
                    "when": ["long-prompt", "together"],
                    "window_wanted": 131072,
                    "retry_passes": "yes",
                    "gpu_gib": 24,
                    "error_text": "a\nfoo = 1\n",
                    "fails_at": None,
                }
            }
        )
    )
    assert read_answers(toml) == read_answers(js)
    assert {a.question: a.value for a in read_answers(toml)}["when"] == ("long-prompt", "together")


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('symptom = "flaky"\n\nsympton = "flaky"\n', 3, "did you mean 'symptom'"),
        ('symptom = "flakey"\n', 1, "did you mean 'flaky'"),
        ('x_text = """\nsymptom = 1\n"""\nsymptom = "flaky"\n', 1, "no question"),
        ('error_text = """\nsymptom = 1\n"""\nwhen = 3\n', 4, "is not one of"),
        ("[answers]\nretry_passes = 7\n", 2, "needs true, false"),
        ('[answers]\nsymptom = "flaky"\nfails_at = -3\n', 3, "outside"),
        ("fails_at = 3.5\n", 1, "whole number"),
        ("fails_at = inf\n", 1, "needs a number"),
        ('gpu_gib = "24 apples"\n', 1, "needs a number"),
        ("when = []\n", 1, "empty list"),
        ('when = ["dont-know", "always"]\n', 1, "stands alone"),
        ('symptom = "flaky"\n[answers]\nretry_passes = true\n', 1, "outside of [answers]"),
        ("symptom = flaky\n", 1, "not TOML"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_in_one_line(text, line, says):
    with pytest.raises(BadFileError) as caught:
        parse_answers(text, name="mine.toml")
    message = str(caught.value)
    assert says in message
    assert f"line {line}" in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ('{"symptom": "flaky",\n "fails": 3}', 2, "did you mean 'fails_at'"),
        ('{"symptom": "flaky",\n "symptom": "flaky"}', 2, "twice"),
        ('{"symptom": "flaky",\n "when": {"a": 1}}', 2, "is not one of"),
        ('{"symptom": \n', 2, "not JSON"),
    ],
)
def test_the_same_for_json(text, line, says):
    with pytest.raises(BadFileError) as caught:
        parse_answers(text, name="mine.json", as_json=True)
    assert says in str(caught.value)
    assert f"line {line}" in str(caught.value)


def test_a_file_that_is_no_answers_file_is_refused_in_one_line(tmp_path):
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 1_000_001)
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\n\xff\xfe")
    deep = tmp_path / "deep.json"
    deep.write_text('{"symptom": ' + "[" * 100_000)
    array = tmp_path / "array.json"
    array.write_text("[1, 2]")
    for path in (tmp_path / "absent.toml", tmp_path, large, binary, deep, array):
        with pytest.raises(BadFileError) as caught:
            read_answers(path)
        assert len(str(caught.value).splitlines()) == 1
        assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("8192", 8192),
        ("8k", 8192),
        ("128K", 131072),
        ("1M", 1048576),
        ("131,072", 131072),
        ("32_768", 32768),
        ("0.5K", 512),
        ("K", None),
        ("-1", None),
    ],
)
def test_lengths(text, tokens):
    assert parse_length(text) == tokens


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
def test_any_text_is_answers_or_one_line(text):
    for as_json in (False, True):
        try:
            answers = parse_answers(text, as_json=as_json)
        except BadFileError as wrong:
            assert "\n" not in str(wrong)  # noqa: PT017 - most texts are refused, some are not
        else:
            assert all(a.question in {q.id for q in QUESTIONS} for a in answers)


@given(
    st.sampled_from(QUESTIONS),
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=20),
        st.lists(st.text(max_size=5), max_size=3),
    ),
)
@settings(max_examples=200, deadline=None)
def test_any_value_is_kept_in_its_type_or_refused(asked, value):
    try:
        (answer,) = check_answers({asked.id: value})
    except BadFileError:
        return
    kinds = {"choice": str, "many": tuple, "tokens": int, "number": (int, float), "text": str, "yes-no": bool}
    assert answer.value is None or isinstance(answer.value, kinds[asked.type])


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.text(max_size=40), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_the_line_of_a_json_key_is_where_it_stands(mapping):
    text = json.dumps(mapping, indent=1)
    lines = key_lines(text, as_json=True)
    for key in mapping:
        assert f'"{key}":' in text.split("\n")[lines[key] - 1]


def test_a_hostile_file_costs_no_time():
    started = time.monotonic()
    for text in (
        '{"' + '":1,"'.join(f"k{n}" for n in range(50_000)) + '":1}',
        "a=" + '"' * 300_000,
        "\n".join(f'k{n} = ""' for n in range(50_000)),
    ):
        with pytest.raises(BadFileError):
            parse_answers(text, as_json=text.startswith("{"))
    assert time.monotonic() - started < 10


def test_every_question_feeds_a_fact_of_the_vocabulary_in_its_own_type_and_choices():
    kinds = {"choice": str, "many": tuple, "tokens": int, "number": float, "text": str, "yes-no": bool}
    for q in QUESTIONS:
        fact = VOCABULARY[q.fact]
        assert fact.kind is kinds[q.type], q.id
        assert fact.question == q.id
        if q.choices:
            assert set(fact.choices) == set(q.choice_ids()), q.id


def test_every_follow_up_can_change_a_verdict():
    used = {fact.id for rule in all_rules() for clue in rule.clues for fact in clue.when.facts()}
    idle = [q.id for q in QUESTIONS if not q.core and q.id != "error_text" and not closes(q.id) & used]
    assert idle == []


def test_the_text_of_an_error_is_read_like_a_log():
    answers = check_answers({"error_text": "CUDA error: an illegal memory access was encountered"})
    kinds = [e.kind for e in as_evidence(answers)]
    assert kinds[0] == "answer"
    assert "log_event" in kinds
    assert {e.source for e in as_evidence(answers, source="report")} == {"report"}


def test_core_questions_are_marked():
    assert all(q.core for q in CORE)
    assert not any(q.core for q in QUESTIONS[len(CORE) :])
