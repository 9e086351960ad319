"""Scoring is strict about the value and lenient about case, punctuation and reasoning; recall is judged with the noise in mind."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.rungs import Criteria
from probes.ladder.binomial import at_most, clopper_pearson, lower_bound, upper_bound
from probes.ladder.canaries import Canary, NonLiteral
from probes.ladder.scoring import (
    by_depth,
    hits_completion,
    hits_list,
    hits_name,
    hits_question,
    judge_recall,
    pooled,
    score,
    without_reasoning,
)

COPPER = Canary("ORBIT-17", "copper", 0.1, 5)
WALNUT = Canary("ORBIT-71", "walnut", 0.5, 50)
MAPLE = Canary("HELIX-30", "maple", 0.9, 90)


class TestOne:
    """One canary."""

    @pytest.mark.parametrize(
        "answer",
        [" copper.\nORBIT-18 = silver", "Copper", " **copper**", ' "copper".', "<think>silver?</think> copper"],
    )
    def test_a_completion_that_begins_with_the_value(self, answer):
        """The first word counts, decoration does not."""
        assert hits_completion(answer, COPPER)

    @pytest.mark.parametrize(
        "answer", [" silver. ORBIT-17 = copper", "", " coppery", " the copper", "...", "<think>copper"]
    )
    def test_anything_else_is_a_miss(self, answer):
        """A later word, a longer word, an open reasoning block."""
        assert not hits_completion(answer, COPPER)

    @pytest.mark.parametrize(
        "answer",
        ["copper", "Copper.", "The word is **copper**.", "ORBIT-17 = copper", "orbit 17: Copper", "ORBIT\u201117 \u2192 copper", "COPPER\n",
         "<think>maybe silver, or walnut</think>\ncopper", "silver, walnut…</think>copper", "<|channel|>analysis<|message|>silver<|end|><|channel|>final<|message|>copper",
         "ORBIT-17 is `copper`, while ORBIT-71 is walnut"],
    )  # fmt: skip
    def test_a_right_answer_in_any_clothes(self, answer):
        """Case, dashes, markdown, reasoning."""
        assert hits_question(answer, COPPER)

    @pytest.mark.parametrize(
        "answer",
        ["walnut", "copper or walnut", "It is not copper.", "ORBIT-17 = walnut", "ORBIT-17 = copper\nORBIT-17 = walnut", "", "I don't know",
         "<think>copper", "ORBIT-170 = copper is not ORBIT-17 = silver", "coppersmith"],
    )  # fmt: skip
    def test_a_wrong_or_hedged_answer(self, answer):
        """Another value, two values, a denial, reasoning that never ends."""
        assert not hits_question(answer, COPPER)


class TestMany:
    """Several canaries in one answer."""

    def test_lines_with_names(self):
        """In any order, with other facts beside; each key is read whole."""
        answer = "HELIX-30 = Maple\n- **ORBIT-71**: walnut\n* ORBIT-17 -> copper\nORBIT-18 = silver"
        assert hits_list(answer, [COPPER, WALNUT, MAPLE]) == (True, True, True)
        assert hits_list("ORBIT-71 = copper\nORBIT-17 = walnut", [COPPER, WALNUT]) == (False, False)

    def test_bare_words_count_only_in_order_and_number(self):
        """Three words for three questions are an answer; two or four are not."""
        assert hits_list("copper\nwalnut\nmaple", [COPPER, WALNUT, MAPLE]) == (True, True, True)
        assert hits_list("1. copper\n2. maple\n3. walnut", [COPPER, WALNUT, MAPLE]) == (True, False, False)
        assert hits_list("copper, walnut, maple.", [COPPER, WALNUT, MAPLE]) == (True, True, True)
        assert hits_list("copper\nwalnut", [COPPER, WALNUT, MAPLE]) == (False, False, False)

    def test_a_contradiction_is_a_miss(self):
        """The same name with two words."""
        assert hits_list("ORBIT-17 = copper\nORBIT-17 = silver\nORBIT-71 = walnut", [COPPER, WALNUT]) == (False, True)

    def test_a_name_and_no_other(self):
        """Non-literal: the person, and none of the others."""
        yuki, calvin = NonLiteral("…", "…", "…", "Yuki"), NonLiteral("…", "…", "…", "Calvin")
        assert hits_name("It was Yuki.", yuki, [calvin])
        assert not hits_name("Yuki or Calvin", yuki, [calvin])
        assert hits_name(" Yuki, who", yuki, style="completion")
        assert not hits_name(" a man, Yuki", yuki, style="completion")


@settings(max_examples=80, deadline=None)
@given(
    st.text(max_size=300)
    | st.from_regex(r"(<think>|</think>|<\|channel\|>|[a-z ]{0,9}|ORBIT-17 = ){0,12}", fullmatch=True)
)
def test_no_answer_breaks_the_scoring(answer):
    """Whatever a model says: a verdict, no error; an empty rest is a miss."""
    hits_completion(answer, COPPER)
    hits_list(answer, [COPPER, WALNUT])
    if not without_reasoning(answer):
        assert not hits_question(answer, COPPER)


def test_a_huge_answer_is_bounded():
    """Ten million characters are cut before they are looked at."""
    assert not hits_question("x " * 5_000_000 + "copper", COPPER)
    assert hits_question("<think>" * 20_000 + "</think>" * 20_000 + "x", COPPER) is False


def test_scores_by_depth_add_up():
    """Attempts are pooled, depths kept."""
    first = score([COPPER, WALNUT, MAPLE], [True, False, True], non_literal_hits=[True, False])
    second = score([COPPER, WALNUT, MAPLE], [True, True, False])
    both = pooled([first, second])
    assert (both.hit, both.asked, both.non_literal_hit, both.non_literal_asked) == (4, 6, 1, 2)
    assert by_depth([first, second]) == ((0.1, 2, 2), (0.5, 1, 2), (0.9, 1, 2))


class TestRecall:
    """85 % of the own base, the absolute criterion where the base reaches it, and noise."""

    CRITERIA = Criteria()

    def verdict(self, hit, asked, base_hit=27, base_asked=27, criteria=CRITERIA):
        return judge_recall(hit, asked, base_hit, base_asked, criteria).standing

    def test_a_strong_base_must_reach_the_absolute_criterion(self):
        """27 of 27 at the base: 90 % are needed."""
        assert self.verdict(27, 27) == "holds"
        assert self.verdict(25, 27) == "holds"
        assert self.verdict(12, 27) == "falls"

    def test_a_weak_base_is_its_own_measure(self):
        """15 of 27 at the base: 85 % of that are enough, less is a fall."""
        assert self.verdict(13, 27, 15, 27) == "holds"
        assert self.verdict(4, 27, 15, 27) == "falls"

    def test_noise_is_not_forgetting(self):
        """8 of 9 is below 90 % and proves nothing; more canaries settle it."""
        assert self.verdict(8, 9) == "unsure"
        assert judge_recall(8, 9, 27, 27, self.CRITERIA).ok is None
        assert self.verdict(5, 9) == "falls"

    def test_a_base_under_a_third_cannot_do_the_test(self):
        """Then recall is unknown, not passed and not failed."""
        assert self.verdict(9, 9, 8, 27) == "unable"
        assert judge_recall(9, 9, 8, 27, self.CRITERIA).ok is None

    def test_the_criteria_count(self):
        """Other criteria, another verdict."""
        assert self.verdict(22, 27, criteria=Criteria(min_canaries=0.5, min_of_own_base=0.8)) == "holds"

    def test_nothing_asked_is_an_error(self):
        """No share of nothing."""
        with pytest.raises(ValueError, match="no canary"):
            judge_recall(0, 0, 27, 27, self.CRITERIA)


class TestBinomial:
    """Exact bounds."""

    def test_what_few_tries_leave_open(self):
        """3 of 3 leaves up to 63 %, 20 of 20 up to 14 % (one-sided, 95 %: 1 - 0.05 ** (1/n))."""
        assert upper_bound(0, 3) == pytest.approx(1 - 0.05 ** (1 / 3), abs=1e-9)
        assert upper_bound(0, 20) == pytest.approx(1 - 0.05 ** (1 / 20), abs=1e-9)
        assert lower_bound(3, 3) == pytest.approx(0.05 ** (1 / 3), abs=1e-9)

    def test_known_values(self):
        """Clopper-Pearson of 8 of 10: 0.4439 … 0.9748 (a published table)."""
        low, high = clopper_pearson(8, 10)
        assert (low, high) == (pytest.approx(0.4439, abs=1e-4), pytest.approx(0.9748, abs=1e-4))
        assert clopper_pearson(0, 0) == (0.0, 1.0)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1, 200), st.data())
    def test_laws(self, tried, data):
        """Both tails overlap in one value; the interval holds the share; a bound is where the tail has its probability."""
        hits = data.draw(st.integers(0, tried))
        p = data.draw(st.floats(0.001, 0.999))
        assert at_most(hits, tried, p) + at_most(tried - hits - 1, tried, 1 - p) == pytest.approx(1, abs=1e-9)
        low, high = clopper_pearson(hits, tried)
        assert low - 1e-9 <= hits / tried <= high + 1e-9
        if hits < tried:
            assert at_most(hits, tried, upper_bound(hits, tried)) == pytest.approx(0.05, abs=1e-6)
