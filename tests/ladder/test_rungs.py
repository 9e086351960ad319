"""Which lengths are tried, and the nested text: every rung a beginning of the next, its own nine canaries at 10 % … 90 %."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import InputError
from probes.ladder.canaries import (
    CODE_WORDS,
    DEPTHS,
    NON_LITERAL,
    VALUES,
    answer_tokens,
    completion_tail,
    draw,
    draw_non_literal,
    question_tail,
)
from probes.ladder.rungs import NEAR_DUPLICATES, SMALLEST_RUNG, WANTED_RUNGS, build_ladder, ladder_rungs, parse_ladder
from probes.ladder.text import Counter, Unit
from tests.ladder.tokens import Tokens, split


class TestLengths:
    """Rungs above the window are dropped; if fewer than four remain, all are scaled."""

    def test_a_large_window_keeps_the_six(self):
        """8K … 126K where all fit."""
        assert ladder_rungs(131_072, 2048) == WANTED_RUNGS

    def test_those_above_the_window_are_dropped(self):
        """Five remain at 100K."""
        assert ladder_rungs(100_000, 512) == WANTED_RUNGS[:5]

    def test_fewer_than_four_scale_all_six(self):
        """At 40K only two would remain: six rungs, in the same proportions, the highest filling the window."""
        rungs = ladder_rungs(40_960, 960)
        assert len(rungs) == 6
        assert rungs[-1] == 40_000
        assert rungs[0] == 8192 * 40_000 // 129_024

    def test_the_target_is_the_end(self):
        """A ladder ends exactly where the target leaves room for the answer, and no rung crowds it."""
        rungs = ladder_rungs(262_144, 1000, target=100_000)
        assert rungs[-1] == 99_000
        assert 98_304 not in rungs
        assert ladder_rungs(32_768, 768, target=100_000)[-1] == 32_000

    def test_no_room_is_said(self):
        """One line that says which option to change."""
        with pytest.raises(InputError, match="--output-tokens"):
            ladder_rungs(512, 400)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(600, 2_000_000), st.integers(1, 300), st.none() | st.integers(600, 2_000_000))
    def test_rungs_rise_and_fit(self, window, output, target):
        """Whatever the window: rising, unique, room for the answer, and at least one."""
        rungs = ladder_rungs(window, output, target)
        assert all(b > a for a, b in itertools.pairwise(rungs))
        assert rungs[0] >= SMALLEST_RUNG
        assert rungs[-1] + output <= window

    def test_an_explicit_ladder_is_read(self):
        """Lengths take k and K; order and repeats do not matter; what is wrong is named."""
        assert parse_ladder("8192, 32k,128K,8192") == (8192, 32_768, 131_072)
        assert parse_ladder("auto") is None
        for wrong in ("8192,3x", "", "100", "-5", "9" * 12, ",".join(str(i) for i in range(300, 400))):
            with pytest.raises(InputError):
                parse_ladder(wrong)


def build(rungs, *, ids=True, seed=1, **options):
    tokens = Tokens()
    return build_ladder(rungs, tokens.counter(ids=ids), seed=seed, **options), tokens


class TestNestedText:
    """The text of a ladder."""

    @pytest.mark.parametrize("ids", [True, False])
    def test_each_is_a_beginning_of_the_next(self, ids):
        """A server with a prompt cache reads only what was added; each has its length within 0.1 % (and 8 tokens)."""
        ladder, _ = build(ladder_rungs(32_768, 256), ids=ids)
        for shorter, longer in itertools.pairwise(ladder.rungs):
            assert longer.text.startswith(shorter.text)
        for rung in ladder.rungs:
            assert rung.tokens == len(split(rung.text))
            assert abs(rung.tokens - (rung.rung - 64)) <= (0 if ids else max(8, rung.rung // 1000))

    @pytest.mark.parametrize("window", [8192, 131_072])
    def test_each_has_its_nine_at_its_own_depths(self, window):
        """Nine of its own within 3 % of their depth in tokens, counted; all others standing in it are distractors."""
        ladder, _ = build(ladder_rungs(window, 128))
        for rung in ladder.rungs:
            assert len(rung.canaries) == 9
            for canary, depth in zip(rung.canaries, DEPTHS, strict=True):
                assert rung.text[canary.at :].startswith(canary.line)
                true = len(split(rung.text[: canary.at])) / rung.tokens
                # One line of filler is the finest step; in the shortest rung that is several percent.
                assert true == pytest.approx(depth, abs=0.03 + 40 / rung.tokens)
                assert canary.depth == pytest.approx(true, abs=0.02)
            for other in rung.distractors:
                assert other.line in rung.text
            keys = [c.key for c in (*rung.canaries, *rung.distractors)]
            assert len(set(keys)) == len(keys)
        assert len(ladder.rungs[-1].distractors) >= 9

    def test_128k_for_four_calls(self):
        """A single 131,072-token prompt takes at most four calls to the tokenizer, with or without ids."""
        for ids, off in ((True, 0), (False, 131)):
            ladder, tokens = build([131_072], ids=ids, reserve=0)
            assert tokens.asked <= 4
            assert ladder.calls == tokens.asked
            assert abs(ladder.rungs[0].tokens - 131_072) <= off

    def test_the_base_may_have_more(self):
        """27 canaries in the shortest rung, nine in the others."""
        ladder, _ = build([2048, 4096], base_depths=[(n + 1) / 28 for n in range(27)])
        assert [len(r.canaries) for r in ladder.rungs] == [27, 9]

    @pytest.mark.parametrize("window", [1200, 2048, 4096, 8192, 32_768])
    @pytest.mark.parametrize("seed", [1, 2, 3])
    def test_no_fact_of_a_rung_is_cut_off(self, window, seed):
        """Also in a small window, where facts stand close: 27 in the base from 2K on, nine in each other rung."""
        depths = [(n + 0.5) / 27 for n in range(27)]
        ladder, _ = build(ladder_rungs(window, 128), seed=seed, base_depths=depths)
        counts = [len(r.canaries) for r in ladder.rungs]
        if window >= 2048:
            assert counts == [27] + [9] * (len(counts) - 1)
        else:  # hardly more than facts: most of them stand
            assert min(counts) >= 7

    def test_non_literal_facts_stand_in_every_rung(self):
        """Each rung has its own, apart from the literal ones."""
        ladder, _ = build([2048, 4096], non_literal=4)
        for rung in ladder.rungs:
            assert len(rung.non_literal) == 4
            assert all(rung.text[n.at :].startswith(n.fact) for n in rung.non_literal)

    def test_a_single_rung_has_distractors_too(self):
        """Nine facts that nobody asks for, unless it is so short that they would be most of it; as many as were asked for."""
        assert len(build([2048])[0].rungs[0].distractors) == 9
        assert build([512])[0].rungs[0].distractors == ()
        plain, more = (len(build([2048, 4096], distractors=n)[0].rungs[-1].distractors) for n in (0, 5))
        assert more == plain + 5

    def test_facts_stand_in_paragraphs_of_their_own(self):
        """An empty line before and after, wherever they were planted: the same pattern in prose, code and logs."""
        ladder, _ = build([512, 4096])
        text = ladder.rungs[-1].text
        for fact in (*ladder.rungs[-1].canaries, *ladder.rungs[-1].distractors):
            assert text[fact.at - 2 : fact.at] == "\n\n"
            assert text[fact.at :].startswith(f"{fact.line}\n\n")

    def test_rungs_share_facts_that_stand_near_enough(self):
        """Six rungs of nine and a base of 27 are fewer than 55 facts, each rung still with its own nine at its own depths."""
        ladder, _ = build(ladder_rungs(8192, 128), base_depths=[(n + 0.5) / 27 for n in range(27)])
        top = ladder.rungs[-1]
        assert len(top.canaries) + len(top.distractors) < 55
        asked = [c.key for r in ladder.rungs for c in r.canaries]
        assert len(set(asked)) < len(asked)

    def test_near_duplicates_are_as_many_as_wished(self):
        """Some where they are asked for, more on demand, none by default."""

        def twins(**options):
            rung = build(ladder_rungs(8192, 128), **options)[0].rungs[-1]
            names = [f.key.split("-")[0] for f in (*rung.canaries, *rung.distractors)]
            return len(names) - len(set(names))

        assert twins() == 0
        assert 3 <= twins(near_duplicates=NEAR_DUPLICATES) < twins(near_duplicates=0.9)

    def test_own_text_is_used(self):
        """A user's own stream fills the text; facts are planted in it all the same."""
        tokens = Tokens()
        ladder = build_ladder(
            [1024], tokens.counter(), filler=lambda: (Unit(f"own line {n}\n", "own") for n in itertools.count())
        )
        assert "own line 7\n" in ladder.rungs[0].text
        assert len(ladder.rungs[0].canaries) == 9

    def test_the_seed_decides(self):
        """Same seed, same prompt (its hash is recorded); another seed, other facts."""
        first, again, other = (build([1024], seed=s)[0].rungs[0] for s in (1, 1, 2))
        assert first.hash == again.hash != other.hash
        assert {c.value for c in first.canaries} != {c.value for c in other.canaries}

    @pytest.mark.parametrize(
        "count", [lambda _t: 10, lambda _t: 0, lambda t: len(t) ** 2, lambda t: 500 if len(t) < 20_000 else 900]
    )
    def test_a_tokenizer_that_lies_is_an_error(self, count):
        """One that never counts enough, or far too much, ends with a message, not with an endless text."""
        with pytest.raises(InputError, match="--tokenizer"):
            build_ladder([100_000], Counter(count=count))

    def test_a_rung_without_room_is_an_error(self):
        """The question must leave room for the text."""
        with pytest.raises(InputError):
            build([256], reserve=200)


class TestFacts:
    """Canaries cannot be guessed, and their keys have near-duplicates."""

    def test_no_key_twice(self):
        """A thousand facts, a thousand keys, of the form WORD-NN, values from the list, evenly used."""
        facts = list(itertools.islice(draw(3), 1000))
        assert len({f.key for f in facts}) == 1000
        assert {f.key.split("-")[0] for f in facts} == set(CODE_WORDS)
        counts = [sum(f.value == v for f in facts) for v in VALUES]
        assert max(counts) - min(counts) <= 1

    def test_near_duplicates_are_there(self):
        """Words come back with swapped digits or the next number: reading half a key is not enough."""
        keys = [f.key for f in itertools.islice(draw(3, near=0.5), 50)]
        twins = [k for k in keys if f"{k[:-2]}{k[-1]}{k[-2]}" in keys and k[-1] != k[-2]]
        neighbours = [k for k in keys if f"{k[:-2]}{int(k[-2:]) + 1}" in keys]
        assert len(twins) + len(neighbours) >= 20
        few = [f.key.split("-")[0] for f in itertools.islice(draw(3), 50)]
        assert len(set(few)) == 50

    def test_the_ways_of_asking(self):
        """Completion tails begin alike (a prompt cache reads only the name); a question names each key once and gives no value away."""
        facts = list(itertools.islice(draw(1), 3))
        tails = [completion_tail(f) for f in facts]
        assert len({t[: -len(f.completion)] for t, f in zip(tails, facts, strict=True)}) == 1
        assert all(t.endswith(f"{f.key} =") for t, f in zip(tails, facts, strict=True))
        for asked in (facts, facts[:1]):
            question = question_tail(asked)
            assert all(question.count(f.key) == 1 for f in asked)
            assert not any(f.value in question for f in asked)
        assert answer_tokens(9, "question") > answer_tokens(1, "question") > answer_tokens(1, "completion")

    def test_values_are_single_plain_words(self):
        """So that a strict comparison is fair."""
        assert all(v.isalpha() and v.islower() and v.isascii() for v in VALUES)
        assert len(set(VALUES)) == len(VALUES) >= 100

    def test_non_literal_questions_share_no_word(self):
        """Not one word of question or completion stands in the fact, articles and the like excepted."""
        small = {
            "a",
            "an",
            "the",
            "is",
            "in",
            "of",
            "to",
            "who",
            "with",
            "for",
            "during",
            "has",
            "does",
            "one",
            "not",
            "and",
            "on",
            "at",
        }
        for fact, question, completion in NON_LITERAL:
            words = {w.strip(".,?{}").casefold() for w in fact.split()} - small
            for text in (question, completion):
                asked = {w.strip(".,?").casefold() for w in text.split()} - small
                assert not words & asked, (fact, text)
                # Nor a word that begins alike: play/plays, flight/flights.
                assert not {(a, b) for a in words for b in asked if len(a) > 3 and len(b) > 3 and (a[:5] == b[:5])}, (
                    fact,
                    text,
                )
        assert len({i.name for i in draw_non_literal(2, 18)}) == 18
