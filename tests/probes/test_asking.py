"""What a model can be asked is found out on a short text, and decides what stands in the ladder's texts."""

from functools import partial

import pytest

from diagnose.window import judge_window, passes
from probes.asking import NON_LITERAL, AskingProbe
from probes.evidence.rungs import Criteria, LadderPlan, RungResult
from probes.ladder.rungs import NEAR_DUPLICATES, build_ladder
from probes.ladder_walk import LadderProbe
from probes.recall import RecallProbe
from tests.probes.made_up import MadeUp, context

RUNGS = (1024, 2048, 4096)


def way_of(backend):
    (evidence,) = AskingProbe(1024, reserve=96).collect(context(backend))
    return evidence.payload()


def walk(backend):
    """Do what a session does: the way, texts by it, the base, the ladder."""
    around = context(backend)
    probe = AskingProbe(RUNGS[0], reserve=96)
    list(probe.collect(around))
    texts = build_ladder(
        RUNGS,
        around.counter,
        seed=3,
        reserve=160,
        base_depths=[(n + 0.5) / 27 for n in range(27)],
        non_literal=NON_LITERAL if probe.way.non_literal else 0,
        near_duplicates=probe.way.near_duplicates,
    )
    recall = RecallProbe(texts.rungs[0], way=probe.way)
    evidence = list(recall.collect(around))
    criteria = Criteria()
    plan = LadderPlan(rungs=RUNGS, output_tokens=64, resolution=256)
    ladder = LadderProbe(
        plan, texts, recall.asking, criteria, partial(passes, criteria, recall.base), [recall.result], window=100_000
    )
    evidence += list(ladder.collect(around))
    results = [one.payload() for one in evidence if one.kind == RungResult.kind]
    return results, judge_window(results, criteria, recall.base, target_input=None, window=None)


@pytest.mark.parametrize("style", ["completion", "question"])
def test_a_model_that_finds_by_meaning_is_asked_so_once_at_the_claimed_length(style):
    """Law: such facts are planted at every length and asked once where the window is proved; they are counted apart from the others."""
    results, verdict = walk(MadeUp(style=style, by_meaning_up_to=100_000))
    asked = [one for one in results if one.canaries.non_literal_asked]
    assert [one.rung for one in asked] == [RUNGS[-1]]
    assert asked[0].canaries.non_literal_hit == asked[0].canaries.non_literal_asked >= 4
    assert asked[0].canaries.asked == 9
    assert verdict.verified is not None


def test_facts_that_are_lost_by_meaning_alone_change_no_verdict_of_recall():
    """Law: a model that finds by meaning when short and not when long keeps its window; the loss is in the evidence."""
    results, verdict = walk(MadeUp(by_meaning_up_to=1500))
    (asked,) = [one for one in results if one.canaries.non_literal_asked]
    assert asked.canaries.non_literal_hit == 0
    assert verdict.verified == asked.input_tokens


def test_a_model_that_cannot_is_not_asked_and_its_texts_hold_no_such_facts():
    """Law: what a model cannot do in a short text is not asked at length, and costs nothing there."""
    way = way_of(MadeUp())
    assert (way.non_literal, way.non_literal_hit) == (False, 0)
    assert 0 < way.non_literal_asked < NON_LITERAL
    dear = way_of(MadeUp(resumes=False))
    assert 0 < dear.non_literal_asked <= 2
    results, _verdict = walk(MadeUp())
    assert all(one.canaries.non_literal_asked is None for one in results)


def test_near_duplicates_are_for_chat_models_that_tell_them_apart():
    """Law: a chat model that tells names apart gets names that are alike; one that does not, and a base model, get none."""
    assert way_of(MadeUp(style="question")).near_duplicates == NEAR_DUPLICATES
    confused = way_of(MadeUp(style="question", tells_twins=False))
    assert confused.near_duplicates == 0.0
    assert confused.twins_hit < confused.twins_asked
    base = way_of(MadeUp())
    assert (base.near_duplicates, base.twins_asked) == (0.0, None)


def test_a_server_that_cannot_be_asked_decides_nothing():
    """Law: where no way is answered, the piece of evidence says so, and the base decides later."""

    class Broken(MadeUp):
        def complete(self, ask):
            return super().complete(ask).model_copy(update={"text": ""})

    way = way_of(Broken())
    assert (way.non_literal, way.near_duplicates) == (False, 0.0)


def test_on_a_slow_server_a_way_that_was_not_tried_is_worth_more_than_one_that_failed():
    """Law: the look takes a small share of the budget, and ends with a way in which the model may still answer."""
    import time

    class Slow(MadeUp):
        def complete(self, ask):
            time.sleep(0.1)
            return super().complete(ask)

    slow = Slow(style="completion")
    around = context(slow, ends_at=time.monotonic() + 0.6)
    (evidence,) = AskingProbe(1024, reserve=96).collect(around)
    way = evidence.payload()
    assert way.ways == {"question-several": 0.0}
    assert way.style == "completion"
    assert around.asked <= 3
    quick = way_of(MadeUp(style="completion"))
    assert quick.style == "completion"
    assert "completion" in quick.ways
