"""Damage that needles do not see: a chain of facts that depend on each other, and the distance of two next-token distributions."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from probes.ladder.canaries import CODE_WORDS, VALUES
from probes.ladder.scoring import normalised, without_reasoning


@dataclass(frozen=True, slots=True)
class Chain:
    """Facts of which each needs the one before: boxes in boxes, with a word in the last."""

    names: tuple[str, ...]
    value: str

    def lines(self) -> tuple[str, ...]:
        """Give the facts in order of the chain; plant them in another one."""
        steps = [
            f"Box {a} holds a note that says: see box {b}." for a, b in zip(self.names, self.names[1:], strict=False)
        ]
        return (*steps, f"Box {self.names[-1]} holds a note that says: {self.value}.")

    def tail(self) -> str:
        """Give the end of the prompt for a chat model."""
        return (
            f"\n\nStart at box {self.names[0]} and follow the notes of the text above from box to box. "
            "Which word does the last note say? Answer with that one word."
        )

    def hit(self, answer: str) -> bool:
        """Say whether an answer gives the last word, and no other value."""
        found = {w for w in re.findall(r"[a-z]+", normalised(without_reasoning(answer))) if w in _VALUES}
        return found == {self.value}


_VALUES = frozenset(VALUES)


def draw_chains(seed: int, count: int, steps: int = 4) -> tuple[Chain, ...]:
    """Give chains of ``steps`` facts. Chains stand side by side in one text, each the other's distractor; no name or value comes twice."""
    rng = random.Random(f"chain {seed}")
    names = [f"{w}-{rng.randrange(10, 100)}" for w in rng.sample(CODE_WORDS, min(len(CODE_WORDS), count * steps))]
    values = rng.sample(VALUES, count)
    if len(names) < count * steps:
        raise ValueError(f"at most {len(CODE_WORDS)} facts in all chains")
    return tuple(Chain(tuple(names[n * steps : (n + 1) * steps]), values[n]) for n in range(count))


def chain_lines(chains: Sequence[Chain], seed: int) -> tuple[str, ...]:
    """Give all facts of all chains in a mixed order, in which no fact stands right after the one it needs."""
    lines = [line for chain in chains for line in chain.lines()]
    random.Random(f"chain order {seed}").shuffle(lines)
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class Divergence:
    """How far two next-token distributions are apart, over the tokens that either shows.

    ``js``: Jensen-Shannon divergence in bits (0 the same, 1 nothing in common), the unseen rest of each counted as one token; ``same_top``: the
    likeliest token is the same; ``overlap``: shared part of the top-k lists, 0 to 1.
    """

    js: float
    same_top: bool
    overlap: float


def divergence(first: Mapping[str, float], second: Mapping[str, float]) -> Divergence:
    """Compare two top-k lists of natural log-probabilities by token. ValueError where one is empty or no log-probability."""
    p, q = _shares(first), _shares(second)
    tokens = set(p) | set(q)
    js = 0.0
    # What one list does not show is somewhere in its rest; counting that as a token of its own keeps the divergence a lower bound.
    rest_p, rest_q = max(0.0, 1 - sum(p.values())), max(0.0, 1 - sum(q.values()))
    for a, b in [*((p.get(t, 0.0), q.get(t, 0.0)) for t in tokens), (rest_p, rest_q)]:
        m = (a + b) / 2
        js += (a * math.log2(a / m) if a else 0.0) / 2 + (b * math.log2(b / m) if b else 0.0) / 2
    top_p, top_q = max(p, key=lambda t: p[t]), max(q, key=lambda t: q[t])
    return Divergence(min(1.0, max(0.0, js)), top_p == top_q, len(set(p) & set(q)) / max(len(p), len(q)))


def _shares(logs: Mapping[str, float]) -> dict[str, float]:
    if not logs or any(math.isnan(v) or v > 1e-6 for v in logs.values()):
        raise ValueError("a distribution is a token's natural log-probability, 0 or less, for at least one token")
    shares = {t: math.exp(v) for t, v in logs.items()}
    total = sum(shares.values())
    return {t: v / total for t, v in shares.items()} if total > 1 else shares


@dataclass(frozen=True, slots=True)
class Divergences:
    """Many positions taken together: median and 95th percentile of the divergence in bits, share of positions with the same likeliest token."""

    positions: int
    median: float
    p95: float
    same_top: float


def summarise(pieces: Sequence[Divergence]) -> Divergences:
    """Take many positions together. ValueError where there is none."""
    if not pieces:
        raise ValueError("no position was compared")
    ranked = sorted(d.js for d in pieces)
    middle = len(ranked) // 2
    median = ranked[middle] if len(ranked) % 2 else (ranked[middle - 1] + ranked[middle]) / 2
    p95 = ranked[min(len(ranked) - 1, math.ceil(0.95 * len(ranked)) - 1)]
    return Divergences(len(ranked), median, p95, sum(d.same_top for d in pieces) / len(pieces))
