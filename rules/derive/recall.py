"""The recall curve → can the model do the test, does it fall with length by more than chance, and where in the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from probes.evidence.records import Evidence
from probes.evidence.rungs import RecallBase, RungResult
from rules.derive.numbers import fisher_less, ratio
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import (
    RECALL_ABLE,
    RECALL_AT_LONGEST,
    RECALL_BASE,
    RECALL_BASE_TOKENS,
    RECALL_DROP_SURE,
    RECALL_DROP_TOKENS,
    RECALL_HARMED_SHORT,
    RECALL_OF_BASE,
    RECALL_START_LOST,
    WINDOW_TRAINED,
)

KEPT = 0.85
"""A length passes at this share of the model's own base (NoLiMa)."""
CHANCE = 0.05
"""A drop that chance makes as often as this is no drop."""
ENOUGH = 6
"""Fewer canaries than this at one length say nothing about its share."""
FAR = 2.0
"""Only at this multiple of the base's length, or beyond, has anyone looked whether recall falls."""
UNABLE = "the model cannot do the test at a short length"
CLEAN_BASE = 0.9
"""A model that can do the test well answers at least so many of the short text."""


@dataclass(frozen=True, slots=True)
class Point:
    """All attempts at one length that were answered, together."""

    tokens: int
    hit: int
    asked: int
    start: tuple[int, int]
    end: tuple[int, int]
    evidence: Evidence


def curve(rungs: Sequence[tuple[Evidence, RungResult]]) -> list[Point]:
    """Put attempts at one length together, shortest first. A failed criterion is an answer too; a refusal is none."""
    by_length: dict[int, list[tuple[Evidence, RungResult]]] = {}
    for evidence, rung in rungs:
        if rung.canaries is not None and rung.canaries.asked and rung.error_kind in {None, "truncated"}:
            by_length.setdefault(rung.rung or rung.input_tokens, []).append((evidence, rung))
    points = []
    for tokens in sorted(by_length):
        scores = [rung.canaries for _, rung in by_length[tokens] if rung.canaries is not None]
        depths = [one for score in scores for one in score.by_depth]
        start = [one.hit for one in depths if one.depth <= 1 / 3]
        end = [one.hit for one in depths if one.depth >= 2 / 3]
        points.append(
            Point(
                tokens,
                sum(score.hit for score in scores),
                sum(score.asked for score in scores),
                (sum(start), len(start)),
                (sum(end), len(end)),
                by_length[tokens][-1][0],
            )
        )
    return points


@derivation(reads=(RecallBase, RungResult), gives=(RECALL_ABLE, RECALL_BASE, RECALL_BASE_TOKENS))
def base(sight: Sight) -> Iterator[Reading]:
    """Give the model's own score at the shortest length."""
    for evidence, own in sight.of(RecallBase):
        yield reading(RECALL_ABLE, own.able, evidence)
        yield reading(RECALL_BASE, min(1.0, own.hit / own.asked), evidence)
        yield reading(RECALL_BASE_TOKENS, own.at_tokens, evidence)


@derivation(
    reads=(RecallBase, RungResult),
    needs=(RECALL_ABLE,),
    gives=(RECALL_AT_LONGEST, RECALL_OF_BASE, RECALL_DROP_SURE, RECALL_DROP_TOKENS, RECALL_START_LOST),
)
def drop(sight: Sight) -> Iterator[Reading]:
    """Compare the lengths with the base, by exact arithmetic: what chance does as often is no drop."""
    able = sight.known(RECALL_ABLE)
    own = sight.last(RecallBase)
    if own is None:
        return
    if able is not None and not able.value:
        for fact in (RECALL_AT_LONGEST, RECALL_OF_BASE, RECALL_DROP_SURE, RECALL_DROP_TOKENS, RECALL_START_LOST):
            yield unread(fact, "failed", UNABLE)
        return
    of_base = own[1]
    longer = [p for p in curve(sight.of(RungResult)) if p.tokens > 1.2 * of_base.at_tokens and p.asked >= ENOUGH]
    if not longer:
        return
    last = longer[-1]
    own_share = of_base.hit / of_base.asked
    yield reading(RECALL_AT_LONGEST, last.hit / last.asked, last.evidence)
    yield reading(RECALL_OF_BASE, ratio(last.hit / last.asked, own_share), last.evidence)
    sure = [
        p
        for p in longer
        if p.hit / p.asked < KEPT * own_share and fisher_less(of_base.hit, of_base.asked, p.hit, p.asked) < CHANCE
    ]
    below = [p for p in longer if p.hit / p.asked < KEPT * own_share]
    # The longest length has to be down as well: a dip in between that comes back is chance, however rare.
    if sure and last in below:
        yield reading(RECALL_DROP_SURE, True, sure[0].evidence)
        yield reading(RECALL_DROP_TOKENS, sure[0].tokens, sure[0].evidence)
    elif not sure and last not in below and last.tokens >= FAR * of_base.at_tokens:
        yield reading(RECALL_DROP_SURE, False, last.evidence)
    else:
        why = (
            "no length beyond twice the base was answered"
            if last not in below
            else "too few canaries to tell a drop from chance"
        )
        yield unread(RECALL_DROP_SURE, "failed", why)
    starts, ends = (
        (sum(p.start[0] for p in longer), sum(p.start[1] for p in longer)),
        (sum(p.end[0] for p in longer), sum(p.end[1] for p in longer)),
    )
    if starts[1] >= ENOUGH // 2 and ends[1] >= ENOUGH // 2:
        lost = (
            starts[0] / starts[1] < 0.5 * ends[0] / ends[1]
            and fisher_less(ends[0], ends[1], starts[0], starts[1]) < CHANCE
        )
        yield reading(RECALL_START_LOST, lost, last.evidence)


@derivation(
    reads=(RecallBase,),
    needs=(RECALL_ABLE, RECALL_BASE, RECALL_BASE_TOKENS, WINDOW_TRAINED),
    gives=(RECALL_HARMED_SHORT,),
)
def short(sight: Sight) -> Iterator[Reading]:
    """Say whether recall is harmed already far below the training length. A weak model is weak everywhere: that is a base, not a harm."""
    own, at, trained = sight.known(RECALL_BASE), sight.known(RECALL_BASE_TOKENS), sight.known(WINDOW_TRAINED)
    able = sight.known(RECALL_ABLE)
    if able is not None and not able.value:
        yield unread(RECALL_HARMED_SHORT, "failed", UNABLE)
        return
    if own is not None and at is not None and trained is not None and at.value < trained.value / 2:
        yield reading(RECALL_HARMED_SHORT, own.value < CLEAN_BASE, source=own.source)
