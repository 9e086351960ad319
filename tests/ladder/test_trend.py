"""A slope is the price of depth; a step, or a bend, is a symptom."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.ladder.trend import change_from_first, compare_slopes, find_trend, fit, median_points

LENGTHS = (8192, 32_768, 65_536, 73_728, 98_304, 129_024)


def smooth(length, base=0.02, slope=1.5e-7):
    return 1 / (base + slope * length)


@pytest.mark.parametrize("seed", range(10))
def test_the_ordinary_price_of_depth_is_smooth(seed):
    """Speed that halves smoothly over 126K, with 5 % noise, is no symptom."""
    rng = random.Random(seed)
    trend = find_trend([(n, smooth(n) * rng.uniform(0.95, 1.05)) for n in LENGTHS for _ in range(3)])
    assert trend.shape == "smooth"
    assert trend.departure is None


@pytest.mark.parametrize("at", [73_728, 98_304, 129_024])
def test_a_step_is_found_where_it_is(at):
    """From a length on at a fifth of the speed: a step, between the rung before and this one."""
    trend = find_trend([(n, smooth(n) * (0.2 if n >= at else 1)) for n in LENGTHS])
    assert trend.shape == "step"
    assert trend.departure.length == at
    assert trend.departure.after == LENGTHS[LENGTHS.index(at) - 1]
    assert trend.departure.below == pytest.approx(0.8, abs=0.02)


def test_a_step_at_the_second_length():
    """Only the shortest is on the fast side: found against the line of the others."""
    trend = find_trend([(n, 50.0 if n == 8192 else smooth(n, 0.1)) for n in LENGTHS])
    assert trend.shape == "step"
    assert trend.departure.length == 32_768


def test_a_bend_grows():
    """Slower and slower from 72K on: a bend."""
    trend = find_trend([(n, 1 / (0.02 + 1.5e-7 * n + 8e-7 * max(0, n - 66_000))) for n in LENGTHS])
    assert trend.shape == "bend"
    assert trend.departure.length in (73_728, 98_304)


def test_one_slow_reading_between_good_ones_is_noise():
    """A wall does not go away at the next length."""
    points = [(n, smooth(n) * (0.4 if n == 65_536 else 1)) for n in LENGTHS]
    assert find_trend(points).shape == "smooth"


def test_too_few_lengths_tell_nothing():
    """Two lengths make no trend; nothing at all neither."""
    assert find_trend([(1000, 5.0), (2000, 1.0)]).shape == "cannot-tell"
    assert find_trend([]).line is None
    assert find_trend([(1000, float("nan")), (2000, 0.0), (3000, -1.0)]).points == ()


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 1), st.floats(0, 1e-5), st.floats(0.05, 20), st.permutations(LENGTHS))
def test_laws(base, slope, factor, order):
    """A straight line is always smooth, whatever its unit; the order of the points does not matter; the fit is exact."""
    points = [(n, factor * smooth(n, base, slope)) for n in order]
    trend = find_trend(points)
    assert trend.shape == "smooth"
    assert trend == find_trend(sorted(points))
    for length, tps in points:
        assert trend.line.tps(length) == pytest.approx(tps, rel=1e-6)


def test_control_and_change():
    """Slopes are compared relative to each one's own base; changes against the shortest length."""
    own = [(n, smooth(n, 0.02, 3e-7)) for n in LENGTHS]
    control = [(n, 5 * smooth(n, 0.02, 1e-7)) for n in LENGTHS]
    slopes = compare_slopes(own, control)
    assert slopes.ratio == pytest.approx(3, rel=0.01)
    assert compare_slopes(own[:1], control) is None
    assert change_from_first([(2000, 5.0), (1000, 10.0), (1000, 10.0)]) == ((1000, 10.0, 0.0), (2000, 5.0, -0.5))
    assert fit(median_points([(1, 1.0)])) is None
