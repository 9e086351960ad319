"""Windows: asked, trained, per slot, in force, and how they stand to each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence
from probes.evidence.request import TruncationReading
from probes.evidence.rungs import LadderPlan
from probes.evidence.subject import Configuration, ModelFile, ModelIdentity, WindowReading
from rules.derive.cards import never_started
from rules.derive.numbers import COMMON_DEFAULTS, near, ratio
from rules.derive.settings import LLAMA_FAMILY, stretch_of, tells_all
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.engine.fact import Known
from rules.facts import (
    BACKEND,
    CLIENT_OVER_SERVER,
    CLIENT_WINDOW,
    CONFIG_IGNORED,
    OUTPUT_OF_WINDOW,
    OUTPUT_TOKENS,
    POOL_FULL_SEEN,
    ROOM_FOR_INPUT_SMALL,
    TOGETHER_FAILS,
    WINDOW_ASKED,
    WINDOW_ASKED_OF_TRAINED,
    WINDOW_CAP_REASON,
    WINDOW_DEFAULT,
    WINDOW_DIFFERS,
    WINDOW_DIFFERS_UNEXPLAINED,
    WINDOW_IN_FORCE,
    WINDOW_IN_FORCE_IS_TRAINED,
    WINDOW_IS_DIVIDED,
    WINDOW_IS_KNOWN_DEFAULT,
    WINDOW_PER_SLOT,
    WINDOW_POOL,
    WINDOW_POOL_HOLDS_ALL,
    WINDOW_SET,
    WINDOW_SHARE_OF_ASKED,
    WINDOW_SLOTS,
    WINDOW_TRAINED,
    WINDOW_UNIFIED,
    WINDOW_UNSET_LONG,
    WINDOW_WANTED,
)

ROUNDING_TOKENS = 256
"""Engines round a window to blocks of up to so many tokens."""
STRETCHED = "yarn"
"""Key of a log's line that says to which length the server took the training length to be stretched."""
AS_GIVEN = "max_model_len"
"""Key of a log's line that says which window each request was given at the start, whether or not it fitted."""
LONG_DEFAULT = 32768
"""From here on a window that nobody asked for is worth a word."""


@derivation(
    reads=(WindowReading, LogEvent, Configuration, ModelFile, ModelIdentity, LadderPlan, TruncationReading),
    gives=(
        WINDOW_ASKED,
        WINDOW_TRAINED,
        WINDOW_PER_SLOT,
        WINDOW_SLOTS,
        WINDOW_UNIFIED,
        WINDOW_POOL,
        WINDOW_IN_FORCE,
        WINDOW_DEFAULT,
        WINDOW_WANTED,
        WINDOW_CAP_REASON,
        CLIENT_WINDOW,
        OUTPUT_TOKENS,
    ),
)
def windows(sight: Sight) -> Iterator[Reading]:
    """Give every window that anyone names. The log comes first: what a server says now stands above what its log said at load.

    Where the load failed, no window ever was in force: what the log calls so is what the server was told to make.
    """
    logged = sight.of(LogEvent)
    no_training = stretched(logged, sight.of(Configuration), sight.of(ModelFile), sight.of(WindowReading))
    never = never_started(event for _evidence, event in logged)
    # where the number of slots is not told, the slots that a log lists are that many at least
    counted = any(event.event == "slots" and event.count for _evidence, event in logged)
    for evidence, event in logged:
        if event.event == "window" and event.tokens:
            fact_of = {
                "asked": WINDOW_ASKED,
                "in-force": WINDOW_POOL,
                "per-slot": WINDOW_PER_SLOT,
                "trained": WINDOW_TRAINED,
                "default": WINDOW_DEFAULT,
                "pool": WINDOW_POOL,
            }.get(event.which or "")
            if fact_of is not None and not (fact_of is WINDOW_TRAINED and event.tokens in no_training):
                yield reading(fact_of, event.tokens, evidence)
            if event.which == "per-slot" and event.count and not counted:
                yield reading(WINDOW_SLOTS, event.count, evidence)
            if event.which == "per-slot" and not never:
                yield reading(WINDOW_IN_FORCE, event.tokens, evidence)
            elif (event.which == "in-force" or event.key == AS_GIVEN) and never and not _told_asked(sight):
                yield reading(WINDOW_ASKED, event.tokens, evidence)
        elif event.event == "kv-pool":
            # what vLLM and SGLang make is one pool of blocks for all requests
            yield reading(WINDOW_POOL, event.tokens or None, evidence)
            yield reading(WINDOW_UNIFIED, True if event.tokens else None, evidence)
        elif event.event == "slots":
            if event.count:
                yield reading(WINDOW_SLOTS, event.count, evidence)
            if event.unified is not None:
                yield reading(WINDOW_UNIFIED, event.unified, evidence)
        elif event.event == "window-capped" and event.tokens:
            reason = event.reason if event.reason in WINDOW_CAP_REASON.choices else "other"
            if event.reason == "trained" and event.of:
                if event.tokens not in no_training:
                    yield reading(WINDOW_TRAINED, event.tokens, evidence)
                yield reading(WINDOW_IN_FORCE, event.tokens, evidence)
                if event.of > event.tokens and not _told_asked(sight):
                    # more than the model's own window is only made for who asks for it; the whole where slots divide it
                    yield reading(WINDOW_ASKED, max(event.of, _made(sight)), evidence)
            if reason != "other":
                yield reading(WINDOW_CAP_REASON, reason, evidence)
        elif event.event == "refused" and event.limit and event.reason != "batch":
            yield reading(WINDOW_IN_FORCE, event.limit, evidence)
    for evidence, configuration in sight.of(Configuration):
        for name, fact in (("ctx", WINDOW_ASKED), ("parallel", WINDOW_SLOTS), ("max_tokens", OUTPUT_TOKENS)):
            setting = configuration.settings.get(name)
            if (
                setting is not None
                and isinstance(setting.value, (int, float))
                and not isinstance(setting.value, bool)
                and setting.value > 0
            ):
                yield reading(fact, int(setting.value), evidence, source=setting.source)
        setting = configuration.settings.get("kv_unified")
        if setting is not None and isinstance(setting.value, bool):
            yield reading(WINDOW_UNIFIED, setting.value, evidence, source=setting.source)
    for evidence, file in sight.of(ModelFile):
        yield reading(WINDOW_TRAINED, file.trained_window or None, evidence)
    for evidence, identity in sight.of(ModelIdentity):
        if identity.trained_window not in no_training:
            yield reading(WINDOW_TRAINED, identity.trained_window or None, evidence)
    for evidence, cut in sight.of(TruncationReading):
        if cut.verdict == "refused" and cut.window:
            # by what a server refuses it shows its window, whatever else is told of it
            yield reading(WINDOW_IN_FORCE, cut.window, evidence)
    for evidence, plan in sight.of(LadderPlan):
        yield reading(WINDOW_WANTED, plan.target, evidence)
    for evidence, window in sight.of(WindowReading):
        yield reading(WINDOW_ASKED, window.asked or None, evidence)
        if window.trained not in no_training:
            yield reading(WINDOW_TRAINED, window.trained or None, evidence)
        yield reading(WINDOW_PER_SLOT, window.per_slot or None, evidence)
        yield reading(WINDOW_SLOTS, window.slots or None, evidence)
        yield reading(WINDOW_UNIFIED, window.unified, evidence)
        yield reading(WINDOW_POOL, window.pool or None, evidence)
        yield reading(WINDOW_IN_FORCE, window.in_force or None, evidence)
        yield reading(WINDOW_DEFAULT, window.default or None, evidence)


def stretched(
    logged: Sequence[tuple[Evidence, LogEvent]],
    configurations: Sequence[tuple[Evidence, Configuration]],
    files: Sequence[tuple[Evidence, ModelFile]],
    windows: Sequence[tuple[Evidence, WindowReading]],
) -> frozenset[int]:
    """Give the lengths that are no training length, in tokens: an original length times the scale that was set.

    With YaRN set by hand, llama.cpp tells such a length as the trained one, over HTTP too. A position is within the training by the model file's own length.
    """
    own = {file.trained_window for _e, file in files} | {
        event.tokens
        for _e, event in logged
        if event.event == "window" and event.which == "trained" and event.key != STRETCHED
    }
    lengths = {event.tokens for _e, event in logged if event.event == "window" and event.key == STRETCHED}
    for _e, configuration in configurations[-1:]:
        factor = stretch_of(configuration)
        if factor is not None and _setting(configuration, "rope_scaling") == STRETCHED:
            originals = own | {_setting(configuration, "yarn_orig_ctx")}
            lengths |= {round(one * factor) for one in originals if isinstance(one, int) and one > 0}
            if not any(own):
                # only the server tells: its length, or that length by the scale, is the file's own, and nothing says which
                lengths |= {
                    window.trained
                    for _w, window in windows
                    if window.trained
                    and window.in_force
                    and window.trained / factor < window.in_force <= window.trained
                }
    return frozenset(one for one in lengths if one) - own


def _setting(configuration: Configuration, name: str) -> object:
    setting = configuration.settings.get(name)
    return setting.value if setting is not None else None


def _told_asked(sight: Sight) -> bool:
    """Say whether a command line or the server tells what was asked for: exact, where a log's window is rounded."""
    return any(window.asked for _e, window in sight.of(WindowReading)) or any(
        "ctx" in configuration.settings for _e, configuration in sight.of(Configuration)
    )


def _made(sight: Sight) -> int:
    """Give the largest window that a log says was made for all slots together; 0 where none says so."""
    return max(
        (one.tokens or 0 for _e, one in sight.of(LogEvent) if one.event == "window" and one.which == "in-force"),
        default=0,
    )


@derivation(reads=(Configuration,), needs=(WINDOW_ASKED, WINDOW_TRAINED, BACKEND), gives=(WINDOW_SET,))
def window_set(sight: Sight) -> Iterator[Reading]:
    """Say whether anyone set a window. A known command line without one says no; of a log, the trained window may be a default."""
    asked, trained = sight.known(WINDOW_ASKED), sight.known(WINDOW_TRAINED)
    by_default = asked is not None and asked.source == "log" and trained is not None and asked.value == trained.value
    if asked is not None and not by_default:
        yield reading(WINDOW_SET, True, source=asked.source, origin=asked.origin)
        return
    known = sight.known(BACKEND)
    for evidence, configuration in sight.of(Configuration):
        if known is not None and known.value in LLAMA_FAMILY and tells_all(configuration):
            yield reading(WINDOW_SET, False, evidence)


@derivation(reads=(LogEvent,), gives=(CONFIG_IGNORED,))
def ignored(sight: Sight) -> Iterator[Reading]:
    """Say whether a setting was given and had no effect."""
    for evidence, event in sight.of(LogEvent):
        if event.event == "config-ignored":
            yield reading(CONFIG_IGNORED, True, evidence)


def _weaker(*known: Known[Any]) -> Known[Any]:
    return max(known, key=lambda k: k.rank)


@derivation(
    needs=(
        WINDOW_ASKED,
        WINDOW_TRAINED,
        WINDOW_IN_FORCE,
        WINDOW_PER_SLOT,
        WINDOW_SLOTS,
        WINDOW_UNIFIED,
        WINDOW_POOL,
        WINDOW_SET,
        POOL_FULL_SEEN,
        TOGETHER_FAILS,
    ),
    gives=(
        WINDOW_SHARE_OF_ASKED,
        WINDOW_ASKED_OF_TRAINED,
        WINDOW_IN_FORCE_IS_TRAINED,
        WINDOW_IS_DIVIDED,
        WINDOW_IS_KNOWN_DEFAULT,
        WINDOW_DIFFERS,
        WINDOW_DIFFERS_UNEXPLAINED,
        WINDOW_UNSET_LONG,
        WINDOW_POOL_HOLDS_ALL,
    ),
)
def compared(sight: Sight) -> Iterator[Reading]:
    """Compare the windows. A comparison is as good as the weaker of its sources."""
    asked, trained, force = sight.known(WINDOW_ASKED), sight.known(WINDOW_TRAINED), sight.known(WINDOW_IN_FORCE)
    slots, unified = sight.known(WINDOW_SLOTS), sight.known(WINDOW_UNIFIED)
    one = sight.known(WINDOW_PER_SLOT) or force
    whole = asked or (trained if sight.known(WINDOW_SET) is None else None)
    pool = sight.known(WINDOW_POOL)
    if asked is None and pool is not None and one is not None and pool.value > one.value:
        # a log that does not hold the command line tells how much was made for all slots together
        whole = pool
    if asked is not None and trained is not None:
        by = _weaker(asked, trained)
        yield reading(WINDOW_ASKED_OF_TRAINED, ratio(asked.value, trained.value), source=by.source, origin=by.origin)
    is_trained = None
    if force is not None and trained is not None:
        is_trained = near(force.value, trained.value, 0.01, ROUNDING_TOKENS)
        yield reading(WINDOW_IN_FORCE_IS_TRAINED, is_trained, source=_weaker(force, trained).source)
    failed = next(
        (
            known
            for fact in (POOL_FULL_SEEN, TOGETHER_FAILS)
            if (known := sight.known(fact)) is not None and known.value
        ),
        None,
    )
    if failed is not None:
        # whatever its size: it did not hold what came
        yield reading(WINDOW_POOL_HOLDS_ALL, False, source=failed.source, origin=failed.origin)
    elif pool is not None and slots is not None and slots.value > 1 and one is not None:
        by = _weaker(pool, slots, one)
        yield reading(WINDOW_POOL_HOLDS_ALL, pool.value >= slots.value * one.value, source=by.source, origin=by.origin)
    is_divided = None
    if slots is not None and slots.value == 1:
        is_divided = False
        yield reading(WINDOW_IS_DIVIDED, False, source=slots.source)
    elif unified is not None and unified.value:
        is_divided = False
        yield reading(WINDOW_IS_DIVIDED, False, source=unified.source)
    elif whole is not None and slots is not None and one is not None and slots.value > 1:
        share = whole.value / slots.value
        if near(one.value, share, 0.02, ROUNDING_TOKENS) and one.value < 0.95 * whole.value:
            is_divided = True
            yield reading(WINDOW_IS_DIVIDED, True, source=_weaker(whole, one, slots).source)
        else:
            is_divided = False
            yield reading(WINDOW_IS_DIVIDED, False, source=_weaker(whole, one, slots).source)
    if asked is not None and force is not None:
        by = _weaker(asked, force)
        share_of_asked = ratio(force.value, asked.value)
        yield reading(WINDOW_SHARE_OF_ASKED, share_of_asked, source=by.source, origin=by.origin)
        differs = not near(asked.value, force.value, 0.05, ROUNDING_TOKENS)
        yield reading(WINDOW_DIFFERS, differs, source=by.source, origin=by.origin)
        capped = bool(is_trained) and trained is not None and asked.value > trained.value
        if not differs:
            yield reading(WINDOW_DIFFERS_UNEXPLAINED, False, source=by.source, origin=by.origin)
        elif trained is not None or force.value in COMMON_DEFAULTS:  # what may be the trained window is not unexplained
            yield reading(
                WINDOW_DIFFERS_UNEXPLAINED, not (capped or bool(is_divided)), source=by.source, origin=by.origin
            )
    is_set = sight.known(WINDOW_SET)
    if force is not None:
        yield reading(WINDOW_IS_KNOWN_DEFAULT, force.value in COMMON_DEFAULTS, source=force.source)
        if is_set is not None:
            by_set = _weaker(is_set, force)
            long = not is_set.value and force.value >= LONG_DEFAULT
            yield reading(WINDOW_UNSET_LONG, long, source=by_set.source, origin=by_set.origin)
    elif is_set is not None and is_set.value:
        yield reading(WINDOW_UNSET_LONG, False, source=is_set.source, origin=is_set.origin)


@derivation(
    needs=(CLIENT_WINDOW, WINDOW_ASKED, WINDOW_IN_FORCE, OUTPUT_TOKENS),
    gives=(CLIENT_OVER_SERVER, OUTPUT_OF_WINDOW, ROOM_FOR_INPUT_SMALL),
)
def client(sight: Sight) -> Iterator[Reading]:
    """Compare what the client reckons with, and what it reserves, with the window in force."""
    force = sight.known(WINDOW_IN_FORCE) or sight.known(WINDOW_ASKED)
    believed, output = sight.known(CLIENT_WINDOW), sight.known(OUTPUT_TOKENS)
    if force is None or not force.value:
        return
    if believed is not None:
        yield reading(CLIENT_OVER_SERVER, ratio(believed.value, force.value), source=believed.source)
    if output is not None:
        yield reading(OUTPUT_OF_WINDOW, ratio(output.value, force.value), source=output.source)
        yield reading(ROOM_FOR_INPUT_SMALL, output.value > force.value / 3, source=output.source)
