"""What is told apart by asking once more in another way: facts found by their meaning, and requests to a freshly started server."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.replay import FreshReplay
from probes.evidence.rungs import RungResult, WayOfAsking
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import FIRST_AFTER_LOAD_FAILS, FRESH_FAILS, RECALL_BY_MEANING, RECALL_BY_MEANING_SHORT


@derivation(reads=(WayOfAsking, RungResult), gives=(RECALL_BY_MEANING_SHORT, RECALL_BY_MEANING))
def by_meaning(sight: Sight) -> Iterator[Reading]:
    """Give the shares of facts that were found although the question shares no word with them. No verdict on recall rests on them."""
    ways = [(evidence, way) for evidence, way in sight.of(WayOfAsking) if way.non_literal_asked]
    if ways:
        evidence, way = ways[-1]
        yield reading(RECALL_BY_MEANING_SHORT, way.non_literal_hit / way.non_literal_asked, evidence)
    else:
        yield unread(RECALL_BY_MEANING_SHORT, "not-offered", "no facts were asked by their meaning")
    asked = [
        (evidence, rung.canaries)
        for evidence, rung in sight.of(RungResult)
        if rung.canaries is not None and rung.canaries.non_literal_asked
    ]
    if asked:
        evidence, score = asked[-1]
        yield reading(RECALL_BY_MEANING, (score.non_literal_hit or 0) / (score.non_literal_asked or 1), evidence)
    else:
        yield unread(RECALL_BY_MEANING, "not-offered", "no facts were asked by their meaning at length")


@derivation(reads=(FreshReplay,), gives=(FIRST_AFTER_LOAD_FAILS, FRESH_FAILS))
def fresh(sight: Sight) -> Iterator[Reading]:
    """Say whether only the first request after loading fails, and whether a fresh server fails at all. It is started anew only where it may be."""
    latest = sight.last(FreshReplay)
    if latest is None:
        for fact in (FIRST_AFTER_LOAD_FAILS, FRESH_FAILS):
            yield unread(fact, "not-offered", "the server was not started anew for a replay")
        return
    evidence, replay = latest
    first, later = replay.first != "passed", replay.later_passed < replay.later_tried
    yield reading(FRESH_FAILS, first or later, evidence)
    if replay.later_tried:
        yield reading(FIRST_AFTER_LOAD_FAILS, first and not later, evidence)
    else:
        yield unread(FIRST_AFTER_LOAD_FAILS, "failed", "nothing was sent after the first request")
