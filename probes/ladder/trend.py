"""Speed against length: a line through seconds per token, and two such lines side by side.

Reading at depth costs something by itself: the time for one token grows with length in a straight line, the speed falls smoothly. So the line is
fitted to seconds per token, robustly (Theil-Sen).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Point(NamedTuple):
    """One speed at one length: tokens, and tokens per second."""

    length: float
    tps: float


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds per token at a length: ``base`` + ``slope`` times the length."""

    base: float
    slope: float


def median_points(points: Sequence[tuple[float, float]]) -> tuple[Point, ...]:
    """Take attempts at the same length together by their median, rising; values that are no speed are left out."""
    table: dict[float, list[float]] = {}
    for length, tps in points:
        if math.isfinite(length) and math.isfinite(tps) and tps > 0 and length >= 0:
            table.setdefault(length, []).append(tps)
    return tuple(Point(length, _median(values)) for length, values in sorted(table.items()))


def _median(values: Sequence[float]) -> float:
    ranked = sorted(values)
    middle = len(ranked) // 2
    return ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2


def fit(points: Sequence[Point]) -> Line | None:
    """Fit seconds per token by length: the median of all slopes, never falling. None for fewer than two lengths."""
    if len(points) < 2:
        return None
    slopes = [(1 / b.tps - 1 / a.tps) / (b.length - a.length) for a, b in itertools.combinations(points, 2)]
    slope = max(0.0, _median(slopes))
    return Line(_median([1 / p.tps - slope * p.length for p in points]), slope)


@dataclass(frozen=True, slots=True)
class Slopes:
    """Two trends side by side, the one under test and the control: seconds per token added by each 1,000 tokens of depth."""

    own: float
    control: float

    @property
    def ratio(self) -> float | None:
        """How many times steeper the own one is, each by its own base; None where the control does not slow down at all."""
        return self.own / self.control if self.control > 0 else None


def compare_slopes(own: Sequence[tuple[float, float]], control: Sequence[tuple[float, float]]) -> Slopes | None:
    """Compare how much each slows down, relative to its speed at no depth. None where either has fewer than two lengths."""
    lines = [fit(median_points(p)) for p in (own, control)]
    relative = [line.slope * 1000 / line.base if line is not None and line.base > 0 else None for line in lines]
    if relative[0] is None or relative[1] is None:
        return None
    return Slopes(relative[0], relative[1])
