"""Chains of facts, and next-token distributions compared with a run under another cache type."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.damage import ChainScore, TokenDivergence
from rules.derive.settings import bits_of
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import CHAINS_BREAK, CHAINS_RIGHT, NEXT_TOKEN_DIVERGENCE, NEXT_TOKEN_HARMED, NEXT_TOKEN_SAME

FOUND = 0.8
"""From this share of single facts on, the text is read well."""
BROKEN = 0.34
HARMED_SAME = 0.85
HARMED_BITS = 0.03
"""Seen on Gemma 3 270M at 1,024 tokens, against f16: q8_0 keeps 24 of 24 likeliest tokens at a median of 0.001 bits, q4_0 19 of 24 at 0.034."""


def _bits(kind: str | None) -> float:
    """Give the bits of a cache type by its name; 16 where none was named, which is what servers take, or a name tells none."""
    return (bits_of(kind) if kind else None) or 16.0


@derivation(reads=(ChainScore,), gives=(CHAINS_RIGHT, CHAINS_BREAK))
def chains(sight: Sight) -> Iterator[Reading]:
    """Give the share of chains that were followed. They are asked where the cache is quantised: else nothing is open."""
    latest = sight.last(ChainScore)
    if latest is None:
        for fact in (CHAINS_RIGHT, CHAINS_BREAK):
            yield unread(fact, "not-offered", "chains of facts were not asked")
        return
    evidence, score = latest
    if score.single_hit / score.single_asked >= FOUND:
        yield reading(CHAINS_RIGHT, score.hit / score.asked, evidence)
        yield reading(CHAINS_BREAK, score.hit / score.asked < BROKEN, evidence)
        return
    for fact in (CHAINS_RIGHT, CHAINS_BREAK):
        yield unread(fact, "failed", "single facts are not found either")


@derivation(reads=(TokenDivergence,), gives=(NEXT_TOKEN_SAME, NEXT_TOKEN_DIVERGENCE, NEXT_TOKEN_HARMED))
def next_tokens(sight: Sight) -> Iterator[Reading]:
    """Compare with a run of more bits. The other way round it says nothing about this run's cache."""
    latest = sight.last(TokenDivergence)
    if latest is not None:
        evidence, apart = latest
        mine = min(_bits(apart.type_k), _bits(apart.type_v))
        if mine < min(_bits(apart.other_type_k), _bits(apart.other_type_v)):
            yield reading(NEXT_TOKEN_SAME, apart.same_top, evidence)
            yield reading(NEXT_TOKEN_DIVERGENCE, apart.median, evidence)
            harmed = apart.same_top < HARMED_SAME or apart.median > HARMED_BITS
            yield reading(NEXT_TOKEN_HARMED, harmed, evidence)
            return
    for fact in (NEXT_TOKEN_SAME, NEXT_TOKEN_DIVERGENCE, NEXT_TOKEN_HARMED):
        yield unread(fact, "not-offered", "there is no run of the same text under a cache of more bits to compare with")
