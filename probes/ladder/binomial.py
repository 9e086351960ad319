"""Exact binomial arithmetic, without scipy: how much a handful of trials can say."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Interval(NamedTuple):
    """A share's bounds, 0 to 1."""

    low: float
    high: float


def at_most(hits: int, tried: int, p: float) -> float:
    """Give the probability of ``hits`` or fewer in ``tried`` at a true share of ``p``."""
    if hits >= tried:
        return 1.0
    if hits < 0:
        return 0.0
    if p <= 0:
        return 1.0
    if p >= 1:
        return 0.0
    log_p, log_q = math.log(p), math.log1p(-p)
    total = math.lgamma(tried + 1)
    terms = [
        total - math.lgamma(k + 1) - math.lgamma(tried - k + 1) + k * log_p + (tried - k) * log_q
        for k in range(hits + 1)
    ]
    return min(1.0, math.fsum(math.exp(t) for t in terms))


def upper_bound(hits: int, tried: int, confidence: float = 0.95) -> float:
    """Give the largest true share that ``hits`` of ``tried`` leaves open, one-sided and exact (Clopper-Pearson). 3 failures-free of 3: 0.63."""
    if tried <= 0 or hits >= tried:
        return 1.0
    return _solve(lambda p: at_most(hits, tried, p), 1 - confidence)


def lower_bound(hits: int, tried: int, confidence: float = 0.95) -> float:
    """Give the smallest true share that ``hits`` of ``tried`` leaves open, one-sided and exact."""
    if tried <= 0 or hits <= 0:
        return 0.0
    return 1 - upper_bound(tried - hits, tried, confidence)


def clopper_pearson(hits: int, tried: int, confidence: float = 0.95) -> Interval:
    """Give the exact two-sided interval of a share. (0, 1) where nothing was tried."""
    side = 1 - (1 - confidence) / 2
    return Interval(lower_bound(hits, tried, side), upper_bound(hits, tried, side))


def _solve(falling: Callable[[float], float], value: float) -> float:
    """Find p in 0…1 where a function that falls with p takes a value, by halving."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if falling(middle) > value:
            low = middle
        else:
            high = middle
    return (low + high) / 2
