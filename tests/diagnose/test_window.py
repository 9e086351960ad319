"""The verdicts on a length and on the window: fits, fast enough, recalls, each on its own; and what is said of a server that went away or changed."""

import json

import pytest

from diagnose.case import Case
from diagnose.document import _rung
from diagnose.findings import said_by_probes
from diagnose.options import RunOptions
from diagnose.running import begin
from diagnose.window import judge_length, judge_window, other_criteria, passes, reaches
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import TruncationReading
from probes.evidence.rungs import CanaryScore, ConstraintScore, Criteria, DepthHit, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import WindowReading

BASE = RecallBase(style="question", at_tokens=1024, hit=27, asked=27, able=True, constraints_met=3, constraints_asked=3)


def canaries(hit, asked=9):
    places = tuple(DepthHit(depth=(n + 1) / (asked + 1), hit=n < hit) for n in range(asked))
    return CanaryScore(hit=hit, asked=asked, by_depth=places)


def rung(length=8192, attempt=1, **changes):
    values = {
        "rung": length, "input_tokens": length, "attempt": attempt, "result": "passed", "prefill_tps": 500.0,
        "generation_tps": 20.0, "first_token_s": 16.0, "canaries": canaries(9), "cold": True, "prompt_hash": "a" * 16,
    }  # fmt: skip
    return RungResult(**{**values, **changes})


def three(one):
    return one.fits, one.fast_enough, one.recalls


def window_of(results, criteria=None, base=BASE, **more):
    return judge_window(results, criteria or Criteria(), base, **{"target_input": None, "window": None, **more})


def proved(length):
    return [rung(length, attempt) for attempt in (1, 2, 3)]


def test_a_length_that_does_everything_holds_three_times_in_a_row():
    one = judge_length(proved(8192), Criteria(min_generation_tps=10), BASE)
    assert three(one) == (True, True, True)
    assert one.holds(3)
    assert not judge_length(proved(8192)[:2], Criteria(), BASE).holds(3)


@pytest.mark.parametrize(
    ("changes", "criteria", "verdict", "said"),
    [
        ({"generation_tps": 3.0}, Criteria(min_generation_tps=10), (True, False, True), "operating boundary"),
        ({"first_token_s": 99.0}, Criteria(max_first_token_s=20), (True, False, True), "operating boundary"),
        ({"canaries": canaries(3)}, Criteria(), (True, True, False), "effective context"),
        ({"constraints": ConstraintScore(met=2, asked=3)}, Criteria(), (True, True, False), "effective context"),
        ({"result": "refused", "error": "too long", "error_kind": "exceeds-window"}, Criteria(), (False, None, None), "did not run"),
        ({"result": "died", "error": "gone", "error_kind": "connection-lost"}, Criteria(), (False, None, None), "went away: gone"),
        ({"result": "failed", "error": "gone", "error_kind": "connection-lost"}, Criteria(), (False, None, None), "proves no limit of the server: gone"),
        ({"result": "timeout", "error": "…", "error_kind": "timeout"}, Criteria(), (None, False, None), "no answer came in time"),
        ({"result": "failed", "error": "…", "error_kind": "truncated", "input_tokens": 900}, Criteria(), (False, None, None), "12,000 tokens was cut to 900"),
    ],
    ids=["slow", "late-first-token", "forgets", "breaks-rules", "refused", "died", "lost", "timeout", "cut"],
)  # fmt: skip
def test_each_verdict_stands_on_its_own_and_the_statement_names_the_kind(changes, criteria, verdict, said):
    """Law: slow and forgetful are no failures of capacity, a timeout proves none; what was proved below stands, with what is above it by its kind."""
    above = rung(12000, **changes)
    assert three(judge_length([above], criteria, BASE)) == verdict
    assert passes(criteria, BASE, [above]) is False
    window = window_of([*proved(8192), above], criteria)
    assert window.verified == 8192
    assert said in window.statement.english


def test_a_little_short_is_unsure_and_more_facts_settle_it():
    """Law: what chance explains is neither passed nor failed; facts asked again count once."""
    one = rung(canaries=canaries(8))
    assert judge_length([one], Criteria(), BASE).recalls is None
    assert judge_length([one, one.model_copy(update={"attempt": 2})], Criteria(), BASE).recalls is None
    others = [rung(attempt=2 + n, prompt_hash=f"{n}" * 16, canaries=canaries(9)) for n in range(2)]
    assert judge_length([one, *others], Criteria(), BASE).recalls is True


def test_a_model_that_cannot_do_the_test_is_searched_by_what_can_be_told():
    base = BASE.model_copy(update={"hit": 5, "able": False})
    assert passes(Criteria(), base, [rung(canaries=canaries(1))]) is True
    assert window_of(proved(8192), base=base).verified is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"result": "failed", "error": "gone", "error_kind": "connection-lost"}, "cut while the server lives"),
        ({"result": "died", "error": "gone", "error_kind": "connection-lost"}, "the server went away: gone"),
        ({"result": "refused", "error": "too long"}, "9,000 tokens did not run"),
        (
            {"result": "failed", "error": "…", "error_kind": "truncated", "input_tokens": 900},
            "Text of 9,000 tokens was cut to 900 without an error",
        ),
        ({"result": "timeout", "error": "…", "error_kind": "timeout"}, "no answer came in time"),
        ({"generation_tps": 3.0}, "run but are too slow"),
    ],
)
def test_what_fails_above_is_said_of_a_model_that_cannot_do_the_recall_test_too(changes, said):
    """Law: that recall is unknown hides nothing of what became of the longer lengths."""
    unable = BASE.model_copy(update={"able": False, "hit": 0})
    failed = rung(9000, 1).model_copy(update=changes)
    statement = window_of([*proved(8192), failed], Criteria(min_generation_tps=10), unable).statement.english
    assert "recall is unknown" in statement
    assert said in statement


def test_facts_found_by_meaning_are_no_part_of_the_verdict():
    """Law: a text whose facts are all found by name and none by meaning recalls."""
    one = rung(canaries=canaries(9).model_copy(update={"non_literal_hit": 0, "non_literal_asked": 6}))
    assert judge_length([one], Criteria(), BASE).recalls is True


def test_facts_found_by_meaning_stand_in_the_document_beside_the_recall_curve():
    """Law: every attempt has its recall by depth; facts whose question shares no word with them are counted apart, and null where none was asked."""
    one = rung(canaries=canaries(7).model_copy(update={"non_literal_hit": 2, "non_literal_asked": 6}))
    shown = json.loads(_rung(1, one).model_dump_json())["canaries"]
    assert (shown["hit"], shown["asked"], shown["non_literal_hit"], shown["non_literal_asked"]) == (7, 9, 2, 6)
    assert [place["hit"] for place in shown["by_depth"]] == [True] * 7 + [False] * 2
    assert [place["depth"] for place in shown["by_depth"]] == sorted(place["depth"] for place in shown["by_depth"])
    assert _rung(1, rung()).canaries.non_literal_asked is None


def test_attempts_under_two_windows_are_not_mixed():
    """Law: where the window changed in between, nothing is claimed, and both windows are named."""
    results = [*(one.model_copy(update={"window": 16384}) for one in proved(8192)), rung(4000, window=4096)]
    window = window_of(results, target_input=8000)
    assert window.verified is None
    assert window.target_reached is None
    assert [one.tokens for one in window.lengths] == [4000]
    assert "16,384" in window.statement.english
    assert "4,096" in window.statement.english
    same = [one.model_copy(update={"window": 16384}) for one in proved(8192)]
    assert window_of([*same, rung(4000, window=None)]).verified == 8192


def test_the_verdict_under_other_criteria_is_another_one():
    """Law: the hash covers every criterion and nothing else; the same attempts under other criteria give their own verdict."""
    loose, strict = Criteria(min_generation_tps=10), Criteria(min_generation_tps=30)
    assert loose.hash != strict.hash
    assert loose.hash == Criteria(min_generation_tps=10).hash
    assert window_of(proved(8192), loose).verified == 8192
    assert window_of(proved(8192), strict).verified is None


def test_a_run_under_other_criteria_says_so(tmp_path, monkeypatch):
    """Law: criteria of a run are written before its first rung, with a hash; a run under others names what changed, one under the same says nothing."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    with Case.create(None, tool_version="0", name="c") as case:
        for criteria in (Criteria(), Criteria(), Criteria(min_generation_tps=30)):
            _options, fixed, resumed = begin(case, RunOptions(), criteria)
            assert not resumed
            assert fixed.fixed_at is not None
            again = begin(case, RunOptions(), Criteria(repeats=9))
            assert (again[1].repeats, again[2]) == (3, True)
            case.append("run-ended", {})
        assert other_criteria(case, 1) is None
        assert other_criteria(case, 2) is None
        said = other_criteria(case, 3)
        assert "min_generation_tps" in said.english
        assert Criteria(min_generation_tps=30).hash in said.english


@pytest.mark.parametrize(
    ("tokens", "aim", "there"),
    [(1831, 1856, True), (1780, 1856, False), (129_700, 131_000, True), (129_600, 131_000, False), (749, 768, True)],
)
def test_a_text_that_ends_a_little_before_the_wanted_length_reaches_it(tokens, aim, there):
    """Law: the questions' own room costs nobody the target, and a length that is really shorter is not taken for it."""
    assert reaches(tokens, aim) is there
    results = [rung(aim, attempt, input_tokens=tokens) for attempt in (1, 2, 3)]
    assert (window_of(results, target_input=aim).target_reached is True) is there


@pytest.mark.parametrize(("left", "said"), [(900, True), (3949, False), (None, False)])
def test_text_that_is_lost_below_the_window_is_said_first_of_all(left, said):
    """Law: what was measured to be cut within the window that is told stands among the notes, whatever causes are named."""
    probe = TruncationReading(
        verdict="truncated",
        sent=4758,
        processed=900,
        window=4096,
        below_sent=3949 if left else None,
        below_processed=left,
    )
    evidence = EvidenceSet([found(probe, source="measured")])
    notes = [one.english for one in said_by_probes(evidence)]
    assert (
        any("of 3,949 tokens that fit into the window of 4,096, 900 were processed" in note for note in notes) is said
    )


@pytest.mark.parametrize(
    ("target", "trained", "said"), [(6144, 8192, "trained for 8,192"), (6144, 4096, "is set."), (4000, 8192, None)]
)
def test_a_target_above_the_window_is_said_whatever_is_named(target, trained, said):
    """Law: who wants more than the window in force is told so, and what the model could do."""
    window = WindowReading(in_force=4096, trained=trained)
    plan = LadderPlan(rungs=(512,), target=target, output_tokens=64)
    evidence = EvidenceSet([found(one, source="measured") for one in (window, plan)])
    notes = [one.english for one in said_by_probes(evidence) if "Wanted are" in one.english]
    assert (notes and notes[0].endswith(f"{said}{'' if said.endswith('.') else '.'}")) if said else not notes
