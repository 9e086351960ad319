"""Small arithmetic that several derivations share: ratios that cannot divide by zero, sizes, windows that are defaults."""

from __future__ import annotations

import math
from collections.abc import Iterable

GIB = 2**30

COMMON_DEFAULTS = frozenset({512, 2048, 4096, 8192, 16384, 32768, 262144})
"""Windows that servers take when none is set: llama.cpp once 512, Ollama 2048 and 4096 and by tiers 32768 and 262144, LM Studio 4096, front ends
2048 to 8192."""


def ratio(of: float, to: float) -> float | None:
    """Give ``of / to``; None where that is no finite number."""
    if to <= 0 or not math.isfinite(of) or not math.isfinite(to):
        return None
    return of / to


def positive(value: float | None) -> float | None:
    """Give the value if it is above zero: zero stands for "as the model says" in most settings."""
    return value if value is not None and value > 0 else None


def near(one: float, two: float, share: float = 0.02, tokens: float = 0.0) -> bool:
    """Say whether two numbers are the same within a share of the larger, or within an absolute difference."""
    return abs(one - two) <= max(share * max(abs(one), abs(two)), tokens)


PROBE_TOKENS = 128
"""A server counts a prompt that we sent within so many tokens of our own count."""


def sent_on_purpose(tokens: int | None, probes: Iterable[int | None]) -> bool:
    """Say whether a refused length is one that a probe sent in order to be refused: that is no failure of the user's."""
    return tokens is not None and any(sent is not None and abs(tokens - sent) <= PROBE_TOKENS for sent in probes)


def fisher_less(hit_a: int, asked_a: int, hit_b: int, asked_b: int) -> float:
    """Give the probability that a score as low as ``hit_b`` of ``asked_b`` comes by chance if both have one true share (one-sided, exact)."""
    hits, asked = hit_a + hit_b, asked_a + asked_b
    total = math.comb(asked, hits)
    if total == 0:
        return 1.0
    low = max(0, hits - asked_a)
    return sum(math.comb(asked_b, k) * math.comb(asked_a, hits - k) for k in range(low, hit_b + 1)) / total


LEAST_TIMED_S = 0.1
"""A prefill that took less is mostly overhead: its speed says nothing about length."""


def tells_speed(tokens: int, cached: int | None, tokens_per_second: float | None) -> bool:
    """Say whether a prompt took long enough to be read for its speed to mean something."""
    return bool(tokens_per_second) and (tokens - (cached or 0)) / (tokens_per_second or 1.0) >= LEAST_TIMED_S
