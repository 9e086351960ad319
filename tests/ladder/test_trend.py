"""Depth has its price: seconds per token on a line, and two lines compared each by its own base."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.ladder.trend import compare_slopes, fit, median_points

LENGTHS = (8192, 32_768, 65_536, 73_728, 98_304, 129_024)


def smooth(length, base=0.02, slope=1.5e-7):
    return 1 / (base + slope * length)


def test_attempts_at_one_length_are_one_point_and_what_is_no_speed_is_none():
    """The median of each length, rising; nothing, nought and below are left out."""
    assert median_points([(2000, 5.0), (1000, 9.0), (1000, 10.0), (1000, 40.0)]) == ((1000, 10.0), (2000, 5.0))
    assert median_points([(1000, float("nan")), (2000, 0.0), (3000, -1.0)]) == ()


def test_one_slow_reading_does_not_bend_the_line():
    """Law: the fit is by medians."""
    points = [(n, smooth(n) * (0.2 if n == 65_536 else 1)) for n in LENGTHS]
    line = fit(median_points(points))
    assert line.base == pytest.approx(0.02, rel=0.05)
    assert line.slope == pytest.approx(1.5e-7, rel=0.2)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.001, 1), st.floats(0, 1e-5), st.floats(0.05, 20), st.permutations(LENGTHS))
def test_laws(base, slope, factor, order):
    """A straight line is found exactly, whatever its unit; the order of the points does not matter."""
    points = [(n, factor * smooth(n, base, slope)) for n in order]
    line = fit(median_points(points))
    assert line == fit(median_points(sorted(points)))
    for length, tps in points:
        assert line.base + line.slope * length == pytest.approx(1 / tps, rel=1e-6)


def test_slopes_are_compared_relative_to_each_ones_own_base():
    own = [(n, smooth(n, 0.02, 3e-7)) for n in LENGTHS]
    control = [(n, 5 * smooth(n, 0.02, 1e-7)) for n in LENGTHS]
    assert compare_slopes(own, control).ratio == pytest.approx(3, rel=0.01)
    assert compare_slopes(own[:1], control) is None
    assert fit(median_points([(1, 1.0)])) is None
