"""Speed against length: the trend of the shorter rungs, a departure from it, and whether that is a step or a slope.

Reading at depth costs something by itself: the time for one token grows with length in a straight line, the speed falls smoothly. So the trend
is fitted to seconds per token, robustly (Theil-Sen), and only a departure from it is a symptom.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

DEPARTURE = 0.2
"""A speed this far below the trend is a departure."""
FEWEST = 3
"""Fewer lengths make no trend."""

Shape = Literal["smooth", "step", "bend", "cannot-tell"]


class Point(NamedTuple):
    """One speed at one length: tokens, and tokens per second."""

    length: float
    tps: float


@dataclass(frozen=True, slots=True)
class Line:
    """Seconds per token at a length: ``base`` + ``slope`` times the length."""

    base: float
    slope: float

    def tps(self, length: float) -> float:
        """Give the speed that the trend expects; infinite where the line has no positive time."""
        seconds = self.base + self.slope * length
        return 1 / seconds if seconds > 0 else math.inf


@dataclass(frozen=True, slots=True)
class Departure:
    """The first length at which the speed left the trend of the lengths below it."""

    length: float
    """The first length that departs."""
    after: float
    """The longest length that was still on the trend."""
    expected_tps: float
    found_tps: float

    @property
    def below(self) -> float:
        """How far below the trend, as a share (0.2: a fifth)."""
        return 1 - self.found_tps / self.expected_tps


@dataclass(frozen=True, slots=True)
class Trend:
    """What a row of speeds looks like.

    ``shape``: *smooth* (the ordinary price of depth), *step* (one break, and then a level or line of its own), *bend* (from a length on it falls
    faster and faster), *cannot-tell* (too few lengths).
    """

    shape: Shape
    line: Line | None
    departure: Departure | None
    points: tuple[Point, ...]


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


def find_trend(points: Sequence[tuple[float, float]], *, departure: float = DEPARTURE) -> Trend:
    """Look at speeds by length: (tokens, tokens per second), in any order, several at one length allowed.

    A length departs if its speed is ``departure`` or more below what the line through all shorter lengths expects, and so are all longer ones
    (one slow reading between two good ones is noise, not a wall).
    """
    rows = median_points(points)
    if len(rows) < FEWEST:
        return Trend("cannot-tell", fit(rows), None, rows)
    first: Departure | None = None
    for n in range(2, len(rows)):
        line = fit(rows[:n])
        assert line is not None
        if all(p.tps <= line.tps(p.length) * (1 - departure) for p in rows[n:]):
            first = Departure(rows[n].length, rows[n - 1].length, line.tps(rows[n].length), rows[n].tps)
            return Trend(_shape(rows, n, line), line, first, rows)
    early = _early_step(rows, departure)
    if early is not None:
        return early
    return Trend("smooth", fit(rows), None, rows)


def _early_step(rows: Sequence[Point], departure: float) -> Trend | None:
    """Find a break right after the shortest length, which two points cannot show: the rest lies on a line that misses the first by far.

    The shortest rung must be more than half faster than the line of the others says; a line of three or more is needed.
    """
    if len(rows) < FEWEST + 1:
        return None
    rest = fit(rows[1:])
    if rest is None or rows[0].tps < rest.tps(rows[0].length) * (1 + 2.5 * departure):
        return None
    gap = Departure(rows[1].length, rows[0].length, rows[0].tps, rows[1].tps)
    return Trend("step", rest, gap, tuple(rows))


def _shape(rows: Sequence[Point], n: int, line: Line) -> Shape:
    """Tell a step from a bend by the excess time over the trend.

    After a step the excess stays about what it was at once; in a bend it starts near nothing and grows with each length. One length beyond the
    break shows a step only if it is far off.
    """
    excess = [max(0.0, 1 / p.tps - 1 / line.tps(p.length)) for p in rows[n:]]
    expected = 1 / line.tps(rows[n].length)
    if len(excess) == 1:
        return "step" if excess[0] >= 0.6 * expected else "bend"
    return "step" if excess[0] >= 0.5 * max(excess) else "bend"


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


def change_from_first(points: Sequence[tuple[float, float]]) -> tuple[tuple[float, float, float], ...]:
    """Give (length, tokens per second, change from the shortest length as a share), as people compare speeds."""
    rows = median_points(points)
    return tuple((p.length, p.tps, p.tps / rows[0].tps - 1) for p in rows)
