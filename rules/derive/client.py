"""The client's side: the window that it reckons with, by its settings or by what it sent, beginnings that change, and when it hangs up."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.client import ClientSettings, WatchSummary
from probes.evidence.subject import BackendIdentity, ModelIdentity
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import CANCELLED_SECONDS, CLIENT_REFUSED, CLIENT_WINDOW, OUTPUT_TOKENS, TOLD_PREFIX_CHANGES

ENOUGH_TURNS = 3
"""So many turns that go on from the one before, before their beginnings are said to stay."""


@derivation(reads=(ClientSettings, ModelIdentity, BackendIdentity), gives=(CLIENT_WINDOW, OUTPUT_TOKENS))
def believed(sight: Sight) -> Iterator[Reading]:
    """Give the window and the answer's budget by the client's settings, where they say one value for the server and model under test."""
    served = {model.name for _evidence, model in sight.of(ModelIdentity) if model.name}
    urls = [server.url for _evidence, server in sight.of(BackendIdentity) if server.url]
    for evidence, settings in sight.of(ClientSettings):
        mine = settings.belief(urls[-1] if urls else None, served)
        if mine is not None:
            yield reading(CLIENT_WINDOW, mine.context or None, evidence)
            yield reading(OUTPUT_TOKENS, mine.output or None, evidence)


@derivation(reads=(WatchSummary,), gives=(CLIENT_WINDOW, CLIENT_REFUSED, TOLD_PREFIX_CHANGES, CANCELLED_SECONDS))
def watched(sight: Sight) -> Iterator[Reading]:
    """Give what a client's requests showed on their way: its window, refusals, whether their beginnings change, and after what time it gives up."""
    for evidence, summary in sight.of(WatchSummary):
        yield reading(CLIENT_WINDOW, summary.believed_window or None, evidence)
        if summary.requests:
            yield reading(CLIENT_REFUSED, summary.errors.get("exceeds-window", 0) > 0, evidence)
        yield reading(CANCELLED_SECONDS, summary.client_timeout_s, evidence)
        if summary.changing_header_at_chars is not None:
            yield reading(TOLD_PREFIX_CHANGES, True, evidence)
        elif summary.turns_compared >= ENOUGH_TURNS and summary.prefix_broken == 0:
            yield reading(TOLD_PREFIX_CHANGES, False, evidence)
