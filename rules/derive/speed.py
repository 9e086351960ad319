"""Speed over length: at both ends, how it falls, and where it falls off a step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from probes.evidence.records import Evidence
from probes.evidence.rungs import RungResult
from rules.derive.numbers import ratio, tells_speed
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import (
    GENERATION_LONG,
    GENERATION_RATIO,
    GENERATION_SHORT,
    LENGTH_RATIO,
    PREFILL_LONG,
    PREFILL_RATIO,
    PREFILL_SHORT,
    SPEED_STEP,
    SPEED_STEP_FACTOR,
    SPEED_STEP_TOKENS,
)

STEP = 0.8
"""Speed at a length, as a share of the trend of shorter ones, from which on it is a step."""
STEP_AT_ONE = 0.6
"""The same where only one length stands beyond it: one slow reading may be chance."""
SCATTER = 3.0
"""A step is this many times as deep as the readings before it scatter about their own trend."""
"""Speed that falls below this share of what the trend of the shorter rungs promises has fallen off a step."""


@derivation(
    reads=(RungResult,),
    gives=(
        PREFILL_SHORT, PREFILL_LONG, GENERATION_SHORT, GENERATION_LONG, PREFILL_RATIO, GENERATION_RATIO, LENGTH_RATIO, SPEED_STEP, SPEED_STEP_TOKENS,
        SPEED_STEP_FACTOR,
    ),
)  # fmt: skip
def over_length(sight: Sight) -> Iterator[Reading]:
    """Give the speeds of cold attempts, the median at each length."""
    rungs = [(e, r) for e, r in sight.of(RungResult) if r.error_kind is None and r.cold is not False and r.input_tokens]
    found: list[tuple[float, int, Evidence]] = []
    looked: Evidence | None = None
    lengths: set[int] = set()
    for name, short, long, fall in (
        ("prefill_tps", PREFILL_SHORT, PREFILL_LONG, PREFILL_RATIO),
        ("generation_tps", GENERATION_SHORT, GENERATION_LONG, GENERATION_RATIO),
    ):
        told = [
            (e, r)
            for e, r in rungs
            if getattr(r, name)
            and (name != "prefill_tps" or tells_speed(r.input_tokens, r.cached_tokens, r.prefill_tps))
        ]
        points = _medians([(r.rung or r.input_tokens, getattr(r, name), e) for e, r in told])
        if not points:
            continue
        lengths |= {tokens for tokens, _, _ in points}
        (_, first, one), (_, last, two) = points[0], points[-1]
        yield reading(short, first, one)
        if len(points) > 1:
            yield reading(long, last, two)
            yield reading(fall, ratio(last, first), two)
        if len(points) >= 4:
            looked = two
            step = change_point([(tokens, speed) for tokens, speed, _ in points])
            if step is not None:
                found.append((step[1], step[0], two))
    if (lengths and looked is not None) or len(lengths) > 1:
        yield reading(LENGTH_RATIO, ratio(max(lengths), min(lengths)), looked or rungs[-1][0])
    if found:
        factor, tokens, evidence = min(found, key=lambda step: step[0])
        yield reading(SPEED_STEP, True, evidence)
        yield reading(SPEED_STEP_TOKENS, tokens, evidence)
        yield reading(SPEED_STEP_FACTOR, factor, evidence)
    elif looked is not None:
        yield reading(SPEED_STEP, False, looked)


def _medians(points: Sequence[tuple[int, float, Evidence]]) -> list[tuple[int, float, Evidence]]:
    by: dict[int, list[tuple[float, Evidence]]] = {}
    for tokens, speed, evidence in points:
        by.setdefault(tokens, []).append((speed, evidence))
    result = []
    for tokens in sorted(by):
        speeds = sorted(speed for speed, _ in by[tokens])
        result.append((tokens, speeds[len(speeds) // 2], by[tokens][-1][1]))
    return result


def change_point(points: Sequence[tuple[float, float]]) -> tuple[int, float] | None:
    """Find the first length whose speed is a step below the trend of the shorter ones: (length, speed as a share of the trend).

    The trend is time for one token, which attention lets grow in proportion to length: ``1/speed = a + b·length``, by least squares over what is
    shorter, never falling. At least three shorter lengths, and whatever follows stays below as well.
    """
    for index in range(3, len(points)):
        before = points[:index]
        n = len(before)
        xs, ys = [x for x, _ in before], [1.0 / y for _, y in before]
        mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
        spread = math.fsum((x - mean_x) ** 2 for x in xs)
        slope = (
            max(0.0, math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread)
            if spread
            else 0.0
        )

        def promised(tokens: float, slope: float = slope, x0: float = mean_x, y0: float = mean_y) -> float:
            return 1.0 / max(y0 + slope * (tokens - x0), 1e-9)

        shares = [speed / promised(tokens) for tokens, speed in points[index:]]
        scatter = max(abs(1 - speed / promised(tokens)) for tokens, speed in before)
        deep = min(STEP if len(shares) > 1 else STEP_AT_ONE, 1 - SCATTER * scatter)
        if all(share < deep for share in shares):
            return int(points[index][0]), min(shares)
    return None
