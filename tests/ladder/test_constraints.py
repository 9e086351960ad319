"""Coding constraints are scored by parsing, never by running or by another model."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.ladder.constraints import Constraint, draw_task, score_code

NAME = Constraint("name", "sum_known_rows")
NO_LEN = Constraint("forbidden-call", "len")
DOC = Constraint("docstring", "Summary:")
SIGNATURE = Constraint("signature", "items, fallback")
GOOD = '```python\ndef sum_known_rows(items, fallback):\n    """Summary: adds up."""\n    return sum(i[1] for i in items if i[0]) or fallback\n```'


def test_all_kept():
    """Fenced, with talk around it, after reasoning."""
    for answer in (GOOD, f"Sure!\n{GOOD}\nThis works.", f"<think>use len?\n```python\nlen(x)\n```</think>{GOOD}"):
        score = score_code(answer, (NAME, NO_LEN, DOC, SIGNATURE))
        assert (score.met, score.asked, score.failed) == (4, 4, ())


@pytest.mark.parametrize(
    ("change", "constraint"),
    [
        (("sum_known_rows", "sum_rows"), NAME),
        (("items if i[0]", "items if len(i)"), NO_LEN),
        (("Summary: adds", "Adds"), DOC),
        (("items, fallback)", "items, default, fallback)"), SIGNATURE),
    ],
)
def test_each_is_seen(change, constraint):
    """One broken rule is one failed constraint, named in its words."""
    score = score_code(GOOD.replace(*change), (NAME, NO_LEN, DOC, SIGNATURE))
    assert score.met == 3
    assert score.failed == (constraint.text,)


def test_more_kinds():
    """Required calls, constants, prefixes, lambdas and methods."""
    code = "LIMIT = 3\ndef f(a):\n    t_x = a.strip()\n    return max(t_x, key=lambda v: v)\n"
    met = lambda kind, value: score_code(code, (Constraint(kind, value),)).met == 1  # noqa: E731
    assert met("required-call", "strip")
    assert met("constant", "LIMIT")
    assert not met("constant", "MOST")
    assert met("prefix", "t_")
    assert not met("prefix", "tmp_")
    assert not met("forbidden-call", "lambda")
    assert not met("forbidden-call", "a.strip")
    assert met("forbidden-call", "print")


def test_the_old_code_is_not_held_against_it():
    """An answer may repeat the function it was given; the rules are for the new one."""
    old = "def total(rows):\n    return len(rows)\n"
    score = score_code(f"```python\n{old}\n\n{GOOD[10:]}", (NAME, NO_LEN, DOC), original=old)
    assert score.met == 3
    assert score_code(f"```python\n{old}```", (NAME, NO_LEN), original=old).met == 0


def test_code_that_was_cut_off_counts_as_far_as_it_goes():
    """The output budget may end in the middle of a line."""
    assert score_code(GOOD[:-4] + "\n\ndef helper(x):\n    return (x +", (NAME, DOC)).met == 2
    assert score_code("def sum_known_rows(items", (NAME,)).met == 0


@pytest.mark.parametrize(
    "answer", ["", "I cannot do that.", "```python\n```", "```\x00def f(): pass```", "(" * 5000, "x = 1"]
)
def test_no_code_keeps_nothing(answer):
    """Absence is not obedience: a forbidden call that was never made by no code counts as broken."""
    assert score_code(answer, (NAME, NO_LEN)).met == 0


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=200)
    | st.from_regex(r"(```(python)?\n|def f\(a\):\n|    return a\n|\(|\)|:){0,14}", fullmatch=True)
)
def test_no_answer_breaks_it(answer):
    """Whatever a model writes: a score."""
    assert 0 <= score_code(answer, (NAME, NO_LEN, DOC)).met <= 3


def test_tasks_depend_on_the_seed():
    """Three rules for start, middle and end; restated in the request or not; the given code is what is asked about."""
    tasks = {draw_task(n) for n in range(20)}
    assert len(tasks) > 10
    for task in tasks:
        assert len(task.planted()) == len(task.constraints) == 3
        assert all(c.text in line for c, line in zip(task.constraints, task.planted(), strict=True))
        assert all(c.text[1:] in task.request() for c in task.constraints)
        assert not any(c.value in task.request(restated=False).replace(task.code, "") for c in task.constraints[:1])
        assert task.code in task.request()
