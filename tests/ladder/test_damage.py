"""Chains of facts, the distance of distributions, loops and state: damage that needles do not see."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.ladder.damage import chain_lines, divergence, draw_chains, summarise
from probes.ladder.session import draw_state, find_loops, likeness, repeated_share, score_state, state_tail, tail_cycle
from probes.ladder.text import generated


class TestChains:
    """Each step needs the one before."""

    def test_only_the_chain_leads_to_the_word(self):
        """Following the notes by hand gives the value; the first box's own line does not hold it; all lines are there once."""
        chains = draw_chains(4, 3)
        lines = chain_lines(chains, 4)
        assert sorted(lines) == sorted(line for c in chains for line in c.lines())
        notes = {line.split()[1]: line.rstrip(".").split()[-1] for line in lines}
        for chain in chains:
            place, steps = chain.names[0], 0
            while place in notes:
                place, steps = notes[place], steps + 1
            assert place == chain.value
            assert steps == 4
            assert chain.hit(f"The last note says **{chain.value.upper()}**.")
            assert not chain.hit(chains[0 if chain is not chains[0] else 1].value)
            assert chain.value not in chain.tail()

    def test_too_many_are_refused(self):
        """Names are not used twice."""
        with pytest.raises(ValueError, match="at most"):
            draw_chains(1, 30, 4)


def logs(**shares):
    return {t: math.log(p) for t, p in shares.items()}


class TestDivergence:
    """Top-k lists of natural log-probabilities."""

    def test_the_same_is_nothing(self):
        """Identical lists: 0 bits, same top, whole overlap."""
        d = divergence(logs(a=0.6, b=0.3), logs(a=0.6, b=0.3))
        assert (d.js, d.same_top, d.overlap) == (pytest.approx(0, abs=1e-12), True, 1.0)

    def test_nothing_in_common_is_one(self):
        """Two certainties about different tokens: 1 bit."""
        d = divergence(logs(a=1.0), logs(b=1.0))
        assert (d.js, d.same_top, d.overlap) == (pytest.approx(1), False, 0.0)

    def test_a_shift_is_between(self):
        """More of a shift, more bits."""
        small = divergence(logs(a=0.6, b=0.4), logs(a=0.55, b=0.45)).js
        large = divergence(logs(a=0.6, b=0.4), logs(a=0.2, b=0.8)).js
        assert 0 < small < large < 1

    @settings(max_examples=60, deadline=None)
    @given(
        st.dictionaries(st.sampled_from("abcdef"), st.floats(-30, 0), min_size=1),
        st.dictionaries(st.sampled_from("abcdef"), st.floats(-30, 0), min_size=1),
    )
    def test_laws(self, p, q):
        """Symmetric, between 0 and 1."""
        d = divergence(p, q)
        assert 0 <= d.js <= 1
        assert d.js == pytest.approx(divergence(q, p).js, abs=1e-9)

    def test_what_is_no_distribution_is_refused(self):
        """Empty, positive or not a number."""
        for wrong in ({}, {"a": 0.5}, {"a": float("nan")}):
            with pytest.raises(ValueError, match="distribution"):
                divergence(wrong, {"a": -1.0})

    def test_many_positions(self):
        """Median and tail."""
        pieces = [divergence(logs(a=1.0), logs(a=1.0))] * 19 + [divergence(logs(a=1.0), logs(b=1.0))]
        total = summarise(pieces)
        assert (total.median, total.same_top, total.positions) == (pytest.approx(0), 0.95, 20)
        with pytest.raises(ValueError, match="no position"):
            summarise([])


def paragraph(seed, units=30):
    stream = generated(seed)
    return "".join(next(stream).text for _ in range(units))


class TestLoops:
    """A model that repeats itself."""

    def test_ordinary_text_is_no_loop(self):
        """Different paragraphs, a code block, a table."""
        answers = [paragraph(n) for n in range(6)]
        assert find_loops(answers) == ()
        assert find_loops(["| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n" + "-" * 60]) == ()

    def test_a_sentence_over_and_over(self):
        """Inside one answer, by n-grams."""
        loops = find_loops([paragraph(1), "I will now fix the bug in the parser for you. " * 20])
        assert [(x.kind, x.turn) for x in loops] == [("inside", 2)]
        assert "fix the bug" in loops[0].sample

    def test_an_endless_tail(self):
        """A good beginning that ends in a cycle."""
        text = paragraph(2) + "the the end of the line " * 12
        assert tail_cycle(text) >= 10
        assert find_loops([text])[0].kind == "inside"
        assert tail_cycle(paragraph(2)) == 1

    def test_the_turn_before_once_more(self):
        """Across turns, by edit distance: a word changed is still the same answer."""
        first = paragraph(3, 10)
        second = first.replace("the", "a", 2)
        assert likeness(first, second) > 0.9
        loops = find_loops([first, paragraph(4, 10), second])
        assert [(x.kind, x.turn, x.like_turn) for x in loops] == [("across", 3, 1)]

    def test_short_answers_may_be_the_same(self):
        """ "Done." twice is no loop."""
        assert find_loops(["Done.", "Done.", "Done."]) == ()

    @settings(max_examples=40, deadline=None)
    @given(st.text(max_size=120), st.text(max_size=120))
    def test_laws(self, a, b):
        """Likeness is symmetric, 1 with itself, between 0 and 1; shares lie between 0 and 1."""
        assert likeness(a, a) == 1.0
        assert 0 <= likeness(a, b) <= 1
        assert likeness(a, b) == pytest.approx(likeness(b, a))
        assert 0 <= repeated_share(a + b)[0] <= 1
        assert tail_cycle(a + b) >= 1

    def test_long_answers_are_bounded(self):
        """A megabyte of repetition is looked at in bounded time."""
        rng = random.Random(1)
        assert find_loops(["ab " * 400_000, "".join(rng.choice("ab ") for _ in range(400_000))])[0].turn == 1


class TestState:
    """The task's state over a session."""

    def test_the_latest_word_counts(self):
        """All right, all stale, in between."""
        plan = draw_state(2, 20)
        now, early = plan.at(20), plan.at(6)
        answer = "\n".join(f"{k} = {v}" for k, v in now.items())
        assert score_state(answer, plan, 20) == type(score_state(answer, plan, 20))(6, 6, 0)
        old = score_state("\n".join(f"{k} = {v}" for k, v in early.items()), plan, 20)
        changed = sum(now[k] != early[k] for k in now)
        assert changed >= 3
        assert (old.right, old.stale) == (6 - changed, changed)
        assert score_state("I do not remember.", plan, 20).right == 0
        assert all(key in state_tail(now) for key in now)
        assert not any(value in state_tail(now) for value in now.values())

    def test_a_change_always_changes(self):
        """No name gets the word that it has."""
        plan = draw_state(3, 60)
        for before, change in enumerate(plan.changes):
            assert plan.at(before).get(change.key) != change.value
