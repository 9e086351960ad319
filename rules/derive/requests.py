"""Tokens sent against tokens processed, and what the server does with a prompt that is too long."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.client import WatchSummary
from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence, Source
from probes.evidence.request import Completion, TruncationReading
from probes.evidence.rungs import RungResult
from rules.derive.numbers import COMMON_DEFAULTS, ratio
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import (
    CONTEXT_SHIFT_SEEN,
    NOT_CUT,
    PROCESSED_IS_DEFAULT,
    PROCESSED_IS_HALF,
    PROCESSED_OF_SENT,
    PROCESSED_TOKENS,
    SENT_OF_WINDOW,
    SENT_TOKENS,
    TOLD_PROCESSED_TOKENS,
    TOLD_SENT_TOKENS,
    TOTAL_IS_DEFAULT,
    TOTAL_OF_WINDOW,
    TOTAL_TOKENS,
    TRUNCATED_BELOW,
    TRUNCATED_SEEN,
    TRUNCATION,
    TRUNCATION_RULE,
    WINDOW_ASKED,
    WINDOW_IN_FORCE,
)

CUT = 0.9
"""Below this share of what was sent, text was lost; above, it is the difference between two tokenizers."""


@derivation(
    reads=(TruncationReading, RungResult, Completion, LogEvent, WatchSummary),
    gives=(SENT_TOKENS, PROCESSED_TOKENS, PROCESSED_OF_SENT, TOTAL_TOKENS, TRUNCATION, TRUNCATION_RULE, NOT_CUT),
)
def counts(sight: Sight) -> Iterator[Reading]:
    """Give tokens sent and processed of the prompt that lost most, and whether anything was lost below the window."""
    pairs: list[tuple[float, int, int, Source, str]] = []
    whole: Evidence | None = None
    for evidence, event in sight.of(LogEvent):
        if event.event == "truncated" and event.tokens and event.kept:
            pairs.append((event.kept / event.tokens, event.tokens, event.kept, evidence.source, evidence.origin))
        elif event.event == "reply" and event.tokens:
            yield reading(PROCESSED_TOKENS, event.tokens, evidence)
            if event.count and event.of and event.of == event.tokens + event.count:
                yield reading(TOTAL_TOKENS, event.of, evidence)
    for evidence, rung in sight.of(RungResult):
        if rung.result == "passed" or (rung.result == "failed" and rung.error_kind is None):
            whole = evidence
        if rung.error_kind == "truncated":
            pairs.append(
                (rung.input_tokens / max(1, rung.rung), rung.rung, rung.input_tokens, evidence.source, evidence.origin)
            )
    for evidence, completion in sight.of(Completion):
        if completion.sent_tokens and completion.prompt_tokens and completion.error is None:
            share = completion.prompt_tokens / completion.sent_tokens
            whole = evidence if share >= CUT else whole
            if share < CUT:
                pairs.append(
                    (share, completion.sent_tokens, completion.prompt_tokens, evidence.source, evidence.origin)
                )
    for evidence, cut in sight.of(TruncationReading):
        if cut.verdict != "unknown":
            yield reading(TRUNCATION, cut.verdict, evidence)
            yield reading(TRUNCATION_RULE, cut.rule, evidence)
        if cut.verdict == "truncated" and cut.sent and cut.processed is not None:
            pairs.append((cut.processed / cut.sent, cut.sent, cut.processed, evidence.source, evidence.origin))
    for evidence, seen in sight.of(WatchSummary):
        if seen.lost_sent_tokens and seen.lost_processed_tokens is not None:
            sent, done = seen.lost_sent_tokens, seen.lost_processed_tokens
            pairs.append((done / sent, sent, done, evidence.source, evidence.origin))
    if pairs:
        share, sent, done, source, origin = min(pairs, key=lambda pair: pair[0])
        yield reading(SENT_TOKENS, sent, source=source, origin=origin)
        yield reading(PROCESSED_TOKENS, done, source=source, origin=origin)
        yield reading(PROCESSED_OF_SENT, share, source=source, origin=origin)
    lost = [pair for pair in pairs if pair[0] < CUT]
    if lost:
        yield reading(NOT_CUT, False, source=lost[0][3], origin=lost[0][4])
    elif whole is not None:
        yield reading(NOT_CUT, True, whole)
    elif pairs:
        yield reading(NOT_CUT, True, source=pairs[0][3], origin=pairs[0][4])


@derivation(needs=(TOLD_SENT_TOKENS, TOLD_PROCESSED_TOKENS), gives=(PROCESSED_OF_SENT, NOT_CUT))
def told_counts(sight: Sight) -> Iterator[Reading]:
    """Compare the tokens that were told as sent with those told as processed."""
    sent, done = sight.known(TOLD_SENT_TOKENS), sight.known(TOLD_PROCESSED_TOKENS)
    if sent is not None and sent.value and done is not None and done.value:
        yield reading(PROCESSED_OF_SENT, done.value / sent.value, source=done.source, origin=done.origin)
        yield reading(NOT_CUT, done.value >= CUT * sent.value, source=done.source, origin=done.origin)


@derivation(reads=(LogEvent, RungResult), needs=(WINDOW_IN_FORCE,), gives=(CONTEXT_SHIFT_SEEN,))
def shifted(sight: Sight) -> Iterator[Reading]:
    """Say whether old text was thrown away: by the log; not where every attempt stayed within the window.

    KoboldCpp says the same where its cache only follows a prompt that lacks some of the one before, as the prompts that this program sends do.
    """
    ours = sight.last(RungResult) is not None
    seen = [
        evidence
        for evidence, event in sight.of(LogEvent)
        if event.event == "context-shift" and event.key != "off" and not (ours and event.dialect == "koboldcpp")
    ]
    for evidence in seen:
        yield reading(CONTEXT_SHIFT_SEEN, True, evidence)
    window = sight.known(WINDOW_IN_FORCE)
    answered = [
        (e, rung) for e, rung in sight.of(RungResult) if rung.result in {"passed", "failed"} and rung.error_kind is None
    ]
    if not seen and window is not None and answered:
        fits = all(rung.input_tokens + rung.output_tokens <= window.value for _, rung in answered)
        yield reading(CONTEXT_SHIFT_SEEN, False if fits else None, answered[-1][0])


@derivation(reads=(TruncationReading, RungResult), gives=(TRUNCATED_BELOW,))
def cut_below_the_window(sight: Sight) -> Iterator[Reading]:
    """Say whether text was lost of a prompt that fits into the window that the server tells: then something cuts at another length."""
    for evidence, probe in sight.of(TruncationReading):
        if probe.below_sent and probe.below_processed is not None and probe.verdict != "unknown":
            yield reading(TRUNCATED_BELOW, probe.below_processed < CUT * probe.below_sent, evidence)
    for evidence, rung in sight.of(RungResult):
        if rung.error_kind == "truncated" and rung.window and rung.rung <= rung.window:
            yield reading(TRUNCATED_BELOW, True, evidence)


@derivation(reads=(LogEvent,), needs=(PROCESSED_OF_SENT, TRUNCATION, NOT_CUT), gives=(TRUNCATED_SEEN,))
def cut(sight: Sight) -> Iterator[Reading]:
    """Say whether a prompt was cut without an error."""
    for evidence, event in sight.of(LogEvent):
        if event.event == "truncated" and event.reason != "window-reached":
            yield reading(TRUNCATED_SEEN, True, evidence)
    share, verdict, whole = sight.known(PROCESSED_OF_SENT), sight.known(TRUNCATION), sight.known(NOT_CUT)
    if verdict is not None:
        yield reading(TRUNCATED_SEEN, verdict.value == "truncated", source=verdict.source, origin=verdict.origin)
    if share is not None and share.value < CUT:
        yield reading(TRUNCATED_SEEN, True, source=share.source, origin=share.origin)
    elif whole is not None and whole.value and verdict is None:
        yield reading(TRUNCATED_SEEN, False, source=whole.source, origin=whole.origin)


WRITTEN: frozenset[Source] = frozenset({"process", "file", "log"})
"""Where a window that was asked for is written down, and not only remembered."""


@derivation(
    needs=(PROCESSED_TOKENS, TOTAL_TOKENS, SENT_TOKENS, WINDOW_IN_FORCE, WINDOW_ASKED, TRUNCATION_RULE),
    gives=(PROCESSED_IS_HALF, PROCESSED_IS_DEFAULT, TOTAL_IS_DEFAULT, TOTAL_OF_WINDOW, SENT_OF_WINDOW),
)
def patterns(sight: Sight) -> Iterator[Reading]:
    """Say which known number the count of processed tokens is."""
    done, total, sent = sight.known(PROCESSED_TOKENS), sight.known(TOTAL_TOKENS), sight.known(SENT_TOKENS)
    force, asked = sight.known(WINDOW_IN_FORCE), sight.known(WINDOW_ASKED)
    rule = sight.known(TRUNCATION_RULE)
    windows = {known.value for known in (force, asked) if known is not None}
    if rule is not None:
        yield reading(PROCESSED_IS_HALF, rule.value == "half-window", source=rule.source)
    elif done is not None:
        candidates = windows or COMMON_DEFAULTS
        half = any(abs(done.value - (window / 2 + 2)) <= 1 for window in candidates)
        # A prompt that fits may have any length: half a window is only half a window if more was sent.
        fitted = sent is not None and done.value >= CUT * sent.value
        yield reading(PROCESSED_IS_HALF, half and not fitted, source=done.source, origin=done.origin)
    if done is not None:
        default = done.value in COMMON_DEFAULTS or any(0 <= window - done.value <= 2 for window in COMMON_DEFAULTS)
        fitted = sent is not None and done.value >= CUT * sent.value
        # who asked for a window of 2,048 tokens has asked for it, though it is a default elsewhere
        meant = asked is not None and asked.source in WRITTEN and 0 <= asked.value - done.value <= 2
        yield reading(
            PROCESSED_IS_DEFAULT, default and not fitted and not meant, source=done.source, origin=done.origin
        )
    if total is not None:
        yield reading(
            TOTAL_IS_DEFAULT,
            any(abs(window - total.value) <= 1 for window in COMMON_DEFAULTS),
            source=total.source,
            origin=total.origin,
        )
        if force is not None:
            yield reading(TOTAL_OF_WINDOW, ratio(total.value, force.value), source=total.source)
    if sent is not None and force is not None:
        yield reading(SENT_OF_WINDOW, ratio(sent.value, force.value), source=sent.source)
