"""Prompt cache and slots together: what a repeated prompt cost, what logs say of the cache, what happens to requests at the same time."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.events import LogEvent
from probes.evidence.request import CacheReuse, ConcurrencyTrial, RequestError
from probes.evidence.rungs import RungResult
from probes.evidence.subject import ModelFile
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import (
    BEGINNING_CHANGED,
    CACHE_EVICTED_SEEN,
    CACHE_OFF_WORKS,
    CACHED_ON_EXTENSION,
    CACHED_ON_REPEAT,
    CACHED_ON_RETURN,
    CORRUPT_SEEN,
    FULL_REPROCESS_REASON,
    FULL_REPROCESS_SEEN,
    POOL_FULL_SEEN,
    TOGETHER_FAILS,
    TOLD_ALONE_PASSES,
    TOLD_WHEN,
)

RESUMED = 0.5
ALIKE = 0.2
FIRST_TOKENS = 4
"""Between these two, a cache that works found where two texts part: fewer tokens are a beginning that any two prompts share."""


def _has_neither(sight: Sight, *, hybrid_too: bool) -> bool:
    """Say whether the model is known to have no sliding window, and no recurrent layers where that counts, too."""
    file = sight.last(ModelFile)
    if file is not None:
        windowless, stateless = not file[1].sliding_window, file[1].recurrent is False
    else:
        told = {
            str(event.value)
            for _evidence, event in sight.of(LogEvent)
            if event.event == "model-info" and event.key == "n_swa"
        }
        windowless, stateless = told == {"0"}, False
    return windowless and (stateless or not hybrid_too)


@derivation(
    reads=(CacheReuse, LogEvent, RungResult, ConcurrencyTrial, ModelFile),
    gives=(
        CACHED_ON_REPEAT, CACHED_ON_EXTENSION, CACHED_ON_RETURN, CACHE_OFF_WORKS, FULL_REPROCESS_SEEN, FULL_REPROCESS_REASON, CACHE_EVICTED_SEEN, CORRUPT_SEEN,
    ),
)  # fmt: skip
def reuse(sight: Sight) -> Iterator[Reading]:
    """Give what came from the cache, and what logs say of it.

    A log's reason for reading all again is not taken where even a prompt that we repeated at once did not come from the cache: that is another trouble;
    nor where this program sent texts that have nothing in common, one after the other, and did not ask what is resumed: a server says the same of those.
    """
    measured = sight.last(CacheReuse)
    ours = measured is None and (sight.last(RungResult) is not None or sight.last(ConcurrencyTrial) is not None)
    unused = (
        measured is not None
        and measured[1].cached_on_repeat is not None
        and measured[1].cached_on_repeat < RESUMED * measured[1].prefix_tokens
    )
    for evidence, event in sight.of(LogEvent):
        if event.event == "full-reprocess":
            yield reading(FULL_REPROCESS_SEEN, True, evidence)
            if unused or ours:
                continue
            # llama.cpp's own words leave open which of the two; both are one cause
            reason = "swa" if event.reason == "swa-or-hybrid" else event.reason or "unknown"
            if reason == "swa" and _has_neither(sight, hybrid_too=event.reason == "swa-or-hybrid"):
                # it calls that likely; a slot whose stored state could not be put back says the same
                reason = "unknown"
            yield reading(
                FULL_REPROCESS_REASON, reason if reason in FULL_REPROCESS_REASON.choices else "unknown", evidence
            )
        elif event.event == "cache-evicted":
            yield reading(CACHE_EVICTED_SEEN, True, evidence)
        elif event.event == "corrupt-output":
            yield reading(CORRUPT_SEEN, True, evidence)
    for evidence, cached in sight.of(CacheReuse):
        # prompts that arrived with different beginnings were no repeats: nothing follows about repeats
        if cached.prefix_tokens and not _changed_on_the_way(cached):
            for tokens, fact in (
                (cached.cached_on_repeat, CACHED_ON_REPEAT),
                (cached.cached_on_extension, CACHED_ON_EXTENSION),
                (cached.cached_on_return, CACHED_ON_RETURN),
            ):
                if tokens is not None:
                    yield reading(fact, min(1.0, tokens / cached.prefix_tokens), evidence)
        yield reading(CACHE_OFF_WORKS, cached.switched_off_works, evidence)


@derivation(reads=(CacheReuse,), gives=(BEGINNING_CHANGED,))
def beginning(sight: Sight) -> Iterator[Reading]:
    """Say whether our own prompts of one beginning reached the server with different ones.

    A cache that is off or cannot go back gives none of the tokens. One that gives the first few and no more has compared two texts that part there: what
    stands between this program and the server writes something into the beginning.
    """
    latest = sight.last(CacheReuse)
    if latest is None:
        return
    evidence, cached = latest
    repeated, extended = cached.cached_on_repeat, cached.cached_on_extension
    if _changed_on_the_way(cached):
        yield reading(BEGINNING_CHANGED, True, evidence)
    elif cached.prefix_tokens and min(repeated or 0, extended or 0) >= RESUMED * cached.prefix_tokens:
        yield reading(BEGINNING_CHANGED, False, evidence)


def _changed_on_the_way(cached: CacheReuse) -> bool:
    counts = (cached.cached_on_repeat, cached.cached_on_extension)
    return all(n is not None and FIRST_TOKENS <= n < ALIKE * (cached.prefix_tokens or 0) for n in counts)


@derivation(
    reads=(ConcurrencyTrial, LogEvent, RequestError),
    gives=(TOGETHER_FAILS, POOL_FULL_SEEN),
)
def together(sight: Sight) -> Iterator[Reading]:
    """Say whether requests that pass alone fail together, and whether the cache was found full."""
    for evidence, event in sight.of(LogEvent):
        if (
            event.event == "pool-full"
            or (event.event == "decode-failed" and event.reason == "no-slot")
            or event.event == "preempted"
        ):
            yield reading(POOL_FULL_SEEN, True, evidence)
    for evidence, error in sight.of(RequestError):
        if error.error == "pool-exhausted":
            yield reading(POOL_FULL_SEEN, True, evidence)
    for evidence, trial in sight.of(ConcurrencyTrial):
        if trial.alone_tried and trial.together_tried and trial.alone_passed == trial.alone_tried:
            yield reading(TOGETHER_FAILS, trial.together_passed < trial.together_tried, evidence)
        if any(error.error == "pool-exhausted" for error in trial.errors):
            yield reading(POOL_FULL_SEEN, True, evidence)


@derivation(needs=(TOLD_ALONE_PASSES, TOLD_WHEN), gives=(TOGETHER_FAILS,))
def told_together(sight: Sight) -> Iterator[Reading]:
    """Take what was told: it fails when several run together, and not because each fails alone."""
    alone, when = sight.known(TOLD_ALONE_PASSES), sight.known(TOLD_WHEN)
    if when is not None and "together" in when.value and (alone is None or alone.value):
        yield reading(TOGETHER_FAILS, True, source=when.source, origin=when.origin)
