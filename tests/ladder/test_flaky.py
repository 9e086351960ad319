"""Flaky runs: outcomes grouped, bounds in words, timeouts noticed, conditions told apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.ladder.flaky import (
    Group,
    Try,
    bounds_in_words,
    group_errors,
    pattern_of,
    read_tries,
    round_timeout,
    same_share,
    tries_needed,
)


def ok(**changes):
    return Try("passed", 1.0, **changes)


def bad(error="boom", seconds=1.0, **changes):
    return Try("failed", seconds, "server-error", error, **changes)


def test_bounds_in_words():
    """What the issue of a few tries leaves open, in whole percent, never 0 % or 100 % where it is not."""
    assert "3 of 3 passed" in str(bounds_in_words(3, 3))
    assert "up to 63 %" in str(bounds_in_words(3, 3))
    assert "up to 14 %" in str(bounds_in_words(20, 20))
    assert "at least 37 %" in str(bounds_in_words(0, 3))
    assert str(bounds_in_words(8, 10)).endswith("between 3 % and 56 %.")
    assert "0.1 %" in str(bounds_in_words(3000, 3000))
    assert "Nothing" in str(bounds_in_words(0, 0))


def test_how_many_tries_are_needed():
    """To show that fewer than 5 % fail, 59 in a row must pass."""
    assert tries_needed(0.05) == 59
    assert tries_needed(0.5) == 5
    assert tries_needed(0.999) == 1
    with pytest.raises(ValueError, match="between"):
        tries_needed(0)


@pytest.mark.parametrize(
    ("seconds", "limit"), [(30.05, 30), (60.9, 60), (300.4, 300), (601.2, 600), (120.0, 120), (29.95, 30)]
)
def test_round_numbers_are_timeouts(seconds, limit):
    """Just at or after a round number."""
    assert round_timeout(seconds) == limit


@pytest.mark.parametrize("seconds", [29.5, 31.7, 63.0, 305.0, 587.0, 0.2, 75.0])
def test_other_numbers_are_not(seconds):
    """Before it, or well after."""
    assert round_timeout(seconds) is None


def test_errors_are_grouped_by_what_stays():
    """Numbers, addresses, ids and paths differ; the error is the same."""
    tries = [
        bad("slot 3: failed at 0x7f12ab with 71234 tokens, /tmp/a/b.log"),
        bad("slot 1: failed at 0x7f99cd with 9 tokens, /var/x/y.log"),
        bad("gateway timeout", 60.2),
        bad("gateway timeout", 60.4),
        bad("gateway timeout", 60.3),
    ]
    groups = group_errors(tries)
    assert [g.count for g in groups] == [3, 2]
    assert groups[0].timeout_s == 60
    assert groups[1].timeout_s is None
    assert pattern_of("x" * 10_000) == "x" * 300


class TestConditions:
    """Which condition the failures belong to."""

    def test_all_alike(self):
        """All pass, all fail, nothing tried."""
        assert read_tries([ok()] * 3).standing == "steady"
        assert read_tries([bad()] * 3).standing == "fails-always"
        assert read_tries([]).standing == "nothing"

    def test_only_the_first_after_loading(self):
        """It does work that no later one does."""
        reading = read_tries([bad(first_after_load=True), *[ok(cached_tokens=5)] * 4])
        assert reading.standing == "first-only"
        assert reading.by_stage["first-after-load"].passed == 0
        assert reading.by_stage["warm"].passed == 4

    def test_only_beside_others(self):
        """Alone it passes six times, at two together it fails five of six."""
        tries = [*[ok()] * 6, *[bad(concurrency=2)] * 5, ok(concurrency=2)]
        reading = read_tries(tries)
        assert reading.standing == "load-only"
        assert reading.by_concurrency[2].tried == 6

    def test_only_cold(self):
        """The very same request passes once its text is in the cache."""
        assert read_tries([bad(), bad(), *[ok(cached_tokens=900)] * 5]).standing == "cold-only"

    def test_two_tries_prove_no_condition(self):
        """One pass alone and one failure of two together may be chance."""
        assert read_tries([ok(), bad(concurrency=2), ok(concurrency=2)]).standing == "flaky"

    def test_load_beside_is_counted(self):
        """Somebody else's work is named, not hidden."""
        assert read_tries([ok(busy_beside=True), ok(busy_beside=False), ok()]).beside == 1


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 12), st.integers(0, 12), st.integers(0, 12), st.integers(0, 12))
def test_fisher_is_a_probability(a, b, c, d):
    """Between 0 and 1, the same both ways, 1 for equal groups."""
    first, second = Group(a, a + b, ()), Group(c, c + d, ())
    p = same_share(first, second)
    assert 0 <= p <= 1
    assert p == pytest.approx(same_share(second, first))
    assert same_share(first, first) == pytest.approx(1)


def test_fisher_known_value():
    """The lady tasting tea: 3 of 4 against 1 of 4 is 0.486 (two-sided)."""
    assert same_share(Group(3, 4, ()), Group(1, 4, ())) == pytest.approx(0.4857, abs=1e-4)
    assert same_share(Group(10, 10, ()), Group(0, 10, ())) < 0.0001


@settings(max_examples=60, deadline=None)
@given(st.lists(st.builds(
    Try, st.sampled_from(["passed", "failed", "refused", "died", "timeout"]), st.floats(0, 4000), st.none() | st.just("timeout"),
    st.text(max_size=40), st.none() | st.integers(0, 99), st.booleans(), st.integers(1, 3),
), max_size=12))  # fmt: skip
def test_any_tries_can_be_read(tries):
    """Every try is in one stage and one concurrency; every failure in one group."""
    reading = read_tries(tries)
    assert sum(g.tried for g in reading.by_stage.values()) == reading.tried == len(tries)
    assert sum(g.tried for g in reading.by_concurrency.values()) == len(tries)
    assert sum(g.count for g in reading.errors) == reading.tried - reading.passed
    assert str(reading.bounds)
