"""Where and how it fails: lengths, kinds, stages, seconds, ends of processes; from rungs, requests, starts, logs and answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence, Source
from probes.evidence.request import (
    Completion,
    ConcurrencyTrial,
    FailingLength,
    Launch,
    ProcessEnded,
    RequestError,
    TruncationReading,
)
from probes.evidence.rungs import RungResult
from rules.derive.numbers import near, ratio, sent_on_purpose
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.facts import (
    ALLOC_COMPONENT,
    CRASH_SEEN,
    ERROR_KINDS_SEEN,
    EXIT_SIGNAL,
    FAILURE_ABOUT,
    FAILURE_AT_START,
    FAILURE_OF_ASKED,
    FAILURE_OF_SHARE,
    FAILURE_OF_TRAINED,
    FAILURE_OF_WINDOW,
    FAILURE_ROUND_SECONDS,
    FAILURE_SECONDS,
    FAILURE_STABLE,
    FAILURE_STAGE,
    FAILURE_TOKENS,
    IS_MEMORY_FAILURE,
    LAUNCH_FAILED,
    OOM_KILLED,
    PASSED_TOKENS,
    PROCESS_DIED,
    REFUSAL_LIMIT,
    REFUSED_BELOW_ASKED,
    REFUSED_OVER_WINDOW,
    REPEATED_LIMIT_SECONDS,
    SYMPTOM,
    TOLD_FAILED_WHILE,
    TOLD_SECONDS_TO_FAILURE,
    TOLD_WHEN,
    WINDOW_ASKED,
    WINDOW_IN_FORCE,
    WINDOW_SLOTS,
    WINDOW_TRAINED,
)

MEMORY_KINDS = frozenset({"gpu-memory", "one-piece", "host-memory", "memory-guard", "create-context"})
FAILED = frozenset({"failed", "refused", "died", "timeout"})

_ABOUT_OF_ERROR: Mapping[str, str] = {
    "exceeds-window": "too-long",
    "pool-exhausted": "no-room",
    "out-of-memory": "gpu-memory",
    "connection-lost": "timeout",
    "timeout": "timeout",
    "busy": "too-many",
    "server-error": "internal",
    "not-supported": "needs-setting",
}


@derivation(
    reads=(RungResult, FailingLength),
    gives=(FAILURE_TOKENS, PASSED_TOKENS, FAILURE_STABLE),
)
def lengths(sight: Sight) -> Iterator[Reading]:
    """Give the shortest prompt that failed and the longest that passed."""
    failed: dict[int, list[Evidence]] = {}
    passed: list[tuple[int, Evidence]] = []
    for evidence, rung in sight.of(RungResult):
        if rung.result in FAILED and rung.error_kind not in {"wrong-key", "bad-answer"}:
            failed.setdefault(max(rung.rung, rung.input_tokens), []).append(evidence)
        elif rung.result == "passed":
            passed.append((rung.input_tokens, evidence))
    if failed:
        shortest = min(failed)
        yield reading(FAILURE_TOKENS, shortest, failed[shortest][0])
        if len(failed[shortest]) > 1:
            again = [tokens for tokens, _ in passed if near(tokens, shortest, 0.02)]
            yield reading(FAILURE_STABLE, not again, failed[shortest][-1])
    if passed:
        longest, evidence = max(passed, key=lambda p: p[0])
        yield reading(PASSED_TOKENS, longest, evidence)
    for evidence, found in sight.of(FailingLength):
        yield reading(FAILURE_TOKENS, found.shortest_failed, evidence)
        yield reading(PASSED_TOKENS, found.longest_passed, evidence)


@derivation(
    needs=(FAILURE_TOKENS, WINDOW_IN_FORCE, WINDOW_ASKED, WINDOW_TRAINED, WINDOW_SLOTS),
    gives=(FAILURE_OF_WINDOW, FAILURE_OF_ASKED, FAILURE_OF_TRAINED, FAILURE_OF_SHARE),
)
def against_windows(sight: Sight) -> Iterator[Reading]:
    """Give the failing length as a share of each window."""
    failing = sight.known(FAILURE_TOKENS)
    if failing is None:
        return
    for window, fact in (
        (WINDOW_IN_FORCE, FAILURE_OF_WINDOW),
        (WINDOW_ASKED, FAILURE_OF_ASKED),
        (WINDOW_TRAINED, FAILURE_OF_TRAINED),
    ):
        known = sight.known(window)
        if known is not None:
            yield reading(fact, ratio(failing.value, known.value), source=failing.source)
    asked, slots = sight.known(WINDOW_ASKED), sight.known(WINDOW_SLOTS)
    if asked is not None and slots is not None and slots.value > 1:
        yield reading(FAILURE_OF_SHARE, ratio(failing.value, asked.value / slots.value), source=failing.source)


@derivation(
    reads=(RungResult, RequestError, Completion, TruncationReading, LogEvent),
    needs=(WINDOW_ASKED,),
    gives=(ERROR_KINDS_SEEN, REFUSED_OVER_WINDOW, REFUSAL_LIMIT, REFUSED_BELOW_ASKED),
)
def refusals(sight: Sight) -> Iterator[Reading]:
    """Give the kinds of error that were seen, and whether a prompt shorter than the window asked for was refused."""
    kinds: set[str] = set()
    last: Evidence | None = None
    refused: list[tuple[int | None, int | None, Evidence]] = []
    for evidence, error in sight.of(RequestError):
        kinds.add(error.error)
        last = evidence
        if error.error == "exceeds-window":
            refused.append((error.prompt_tokens, error.window, evidence))
    for evidence, completion in sight.of(Completion):
        last = last or evidence
        if completion.error is not None:
            kinds.add(completion.error.error)
            last = evidence
            if completion.error.error == "exceeds-window":
                refused.append(
                    (completion.error.prompt_tokens or completion.sent_tokens, completion.error.window, evidence)
                )
    for evidence, rung in sight.of(RungResult):
        last = last or evidence
        if rung.error_kind in ERROR_KINDS_SEEN.choices:
            kinds.add(rung.error_kind)
            last = evidence
        if rung.result == "refused" and rung.error_kind == "exceeds-window":
            refused.append((max(rung.rung, rung.input_tokens), None, evidence))
    for evidence, cut in sight.of(TruncationReading):
        if cut.verdict == "refused":
            refused.append((cut.processed or cut.sent, cut.window, evidence))
    for evidence, event in sight.of(LogEvent):
        if event.event == "refused" and event.reason != "batch":
            refused.append((event.tokens, event.limit, evidence))
    if last is not None:
        yield reading(ERROR_KINDS_SEEN, tuple(sorted(kinds)), last)
    for _tokens, limit, evidence in refused:
        yield reading(REFUSED_OVER_WINDOW, True, evidence)
        yield reading(REFUSAL_LIMIT, limit, evidence)
    asked = sight.known(WINDOW_ASKED)
    lengths = [(tokens, evidence) for tokens, _, evidence in refused if tokens]
    if asked is not None and lengths:
        shortest, evidence = min(lengths, key=lambda pair: pair[0])
        yield reading(REFUSED_BELOW_ASKED, shortest < 0.98 * asked.value, evidence)
    elif asked is not None and any(
        rung.result == "passed" and rung.input_tokens > 0.9 * asked.value for _, rung in sight.of(RungResult)
    ):
        yield reading(REFUSED_BELOW_ASKED, False)


@derivation(
    reads=(RequestError, RungResult, LogEvent, Launch, ProcessEnded, TruncationReading),
    gives=(FAILURE_ABOUT, LAUNCH_FAILED, PROCESS_DIED, EXIT_SIGNAL, OOM_KILLED, CRASH_SEEN),
)
def kinds(sight: Sight) -> Iterator[Reading]:
    """Say what the failure is about, and how processes ended. What the log says stands above what a client saw of it."""
    about: tuple[str, Evidence] | None = None
    for evidence, rung in sight.of(RungResult):
        kind = _ABOUT_OF_ERROR.get(rung.error_kind or "")
        if kind is not None:
            about = (kind, evidence)
    for evidence, error in sight.of(RequestError):
        # What a probe sent on purpose to be refused is no failure of the user's.
        if error.error in _ABOUT_OF_ERROR and evidence.origin != "truncation":
            about = (_ABOUT_OF_ERROR[error.error], evidence)
    if about is not None:
        # Read, not measured: the client sees a lost connection where the log sees the reason.
        yield reading(FAILURE_ABOUT, about[0], about[1], source="server")
    ours = [cut.sent for _evidence, cut in sight.of(TruncationReading)]
    seen: list[LogEvent] = []
    for evidence, event in sight.of(LogEvent):
        kind = _about_of_event(event)
        if event.event == "refused" and sent_on_purpose(event.tokens, ours):
            continue
        if kind is not None and not only_follows(event, seen):
            seen.append(event)
            yield reading(FAILURE_ABOUT, kind, evidence)
        if event.event == "crash":
            yield reading(CRASH_SEEN, True, evidence)
        elif event.event == "oom-killer":
            yield reading(OOM_KILLED, True, evidence)
    for evidence, launch in sight.of(Launch):
        yield reading(LAUNCH_FAILED, not launch.healthy, evidence)
        yield reading(EXIT_SIGNAL, launch.signal, evidence)
        yield reading(PROCESS_DIED, (not launch.healthy) or None, evidence)
    for evidence, ended in sight.of(ProcessEnded):
        yield reading(PROCESS_DIED, True, evidence)
        yield reading(EXIT_SIGNAL, ended.signal, evidence)


_STAGE = {
    "weights": "weights",
    "kv": "cache",
    "state": "cache",
    "compute": "buffers",
    "activation": "reading",
    "projector": "picture",
}


@derivation(reads=(ProcessEnded, LogEvent), needs=(ALLOC_COMPONENT,), gives=(FAILURE_STAGE,))
def stage(sight: Sight) -> Iterator[Reading]:
    """Say at which stage it failed: by what could not be allocated, or by the request during which the server ended."""
    component = sight.known(ALLOC_COMPONENT)
    if component is not None and component.source not in {"user", "report"}:
        yield reading(FAILURE_STAGE, _STAGE.get(component.value), source=component.source, origin=component.origin)
    recording = any(
        event.event == "graph" and event.key == "cuda-graphs-begin" for _evidence, event in sight.of(LogEvent)
    )
    for evidence, event in sight.of(LogEvent):
        if event.event == "alloc-failed" and recording and component is None:
            # Graphs are recorded while the server starts, after weights and cache found their place.
            yield reading(FAILURE_STAGE, "buffers", evidence)
        # ggml's pool of scratch memory is asked only while a graph is computed: the load was over by then.
        if event.event == "alloc-failed" and event.key == "alloc" and component is None:
            yield reading(FAILURE_STAGE, "reading", evidence)
    for evidence, ended in sight.of(ProcessEnded):
        if ended.during.startswith("rung"):
            yield reading(FAILURE_STAGE, "reading", evidence)


_NAMES_ITS_REASON = frozenset({"alloc-failed", "kernel-error", "device-lost", "watchdog", "oom-killer"})


def only_follows(event: LogEvent, before: list[LogEvent]) -> bool:
    """Say whether a failure is no more than what came of one before: a crash, or a command buffer that ended, after a refused allocation."""
    if event.event == "crash" and event.key != "kernel-panic":
        return any(one.event in _NAMES_ITS_REASON for one in before)
    if event.event == "kernel-error" and event.api == "metal" and (event.reason or "").startswith("command buffer"):
        return any(one.event in {"alloc-failed", "watchdog"} and one.api == "metal" for one in before)
    return False


def over_one_piece(event: LogEvent) -> bool:
    """Say whether what was refused is over the largest single piece: a server's own guard over the total is not."""
    reason = (event.reason or "").lower()
    if "guard" in reason or "pressure" in reason:
        return False
    if "single allocation" in reason or "maximum allowed buffer" in reason:
        return True
    return bool(event.size_bytes and event.limit_bytes and event.size_bytes > event.limit_bytes)


def _about_of_event(event: LogEvent) -> str | None:
    match event.event:
        case "alloc-failed":
            reason = (event.reason or "").lower()
            if "guard" in reason or "pressure" in reason:
                return "memory-guard"
            if over_one_piece(event):
                return "one-piece"
            return "host-memory" if event.api == "cpu" else "gpu-memory"
        case "refused":
            return "too-long" if event.reason != "batch" else None
        case "pool-full":
            return "no-room"
        case "kernel-error":
            return "kernel"
        case "device-lost" | "watchdog":
            return "device-lost"
        case "oom-killer":
            return "host-memory"
        case "crash":
            return "internal"
        case "decode-failed" if event.reason == "batch":
            # What the server keeps of a slot and what it sends for it do not go together.
            return "internal"
        case "timeout" | "cancelled":
            return "timeout"
        case _:
            return None


@derivation(
    reads=(Launch, RungResult, RequestError, LogEvent),
    needs=(TOLD_WHEN, TOLD_FAILED_WHILE, LAUNCH_FAILED),
    gives=(FAILURE_AT_START,),
)
def at_start(sight: Sight) -> Iterator[Reading]:
    """Say whether it fails before any request: by the start that was watched, the log's refused load, or what was told."""
    when, stage, launch = sight.known(TOLD_WHEN), sight.known(TOLD_FAILED_WHILE), sight.known(LAUNCH_FAILED)
    if stage is not None and stage.value in {"reading", "writing", "picture", "restoring", "idle"}:
        yield reading(FAILURE_AT_START, False, source=stage.source, origin=stage.origin)
    elif when is not None:
        yield reading(FAILURE_AT_START, "at-load" in when.value, source=when.source, origin=when.origin)
    for evidence, event in sight.of(LogEvent):
        if event.event == "load-failed":
            yield reading(FAILURE_AT_START, True, evidence)
    if launch is not None:
        yield reading(FAILURE_AT_START, launch.value, source=launch.source, origin=launch.origin)
    for evidence, _rung in sight.of(RungResult):
        # A server that was asked anything has started.
        yield reading(FAILURE_AT_START, False, evidence)


@derivation(reads=(RungResult,), needs=(FAILURE_ABOUT, SYMPTOM), gives=(IS_MEMORY_FAILURE,))
def memory_failure(sight: Sight) -> Iterator[Reading]:
    """Say whether the failure is about memory. Where slowness or forgetting is complained of, or nothing, and every length ran, it is not."""
    about, symptom = sight.known(FAILURE_ABOUT), sight.known(SYMPTOM)
    if about is not None:
        yield reading(IS_MEMORY_FAILURE, about.value in MEMORY_KINDS, source=about.source, origin=about.origin)
        return
    rungs = sight.of(RungResult)
    complained = None if symptom is None else symptom.value
    ran = [evidence for evidence, rung in rungs if rung.error_kind is None and rung.result in {"passed", "failed"}]
    if complained in {None, "slow-long-context", "forgetting"} and len(rungs) == len(ran) > 1:
        yield reading(IS_MEMORY_FAILURE, False, ran[-1])


@derivation(reads=(ConcurrencyTrial,), gives=(REPEATED_LIMIT_SECONDS,))
def repeated_limit(sight: Sight) -> Iterator[Reading]:
    """Give the time limit that a trial found. Where none was made nothing is open: errors and logs tell of limits too."""
    limits = [
        (evidence, trial.round_timeout_s) for evidence, trial in sight.of(ConcurrencyTrial) if trial.round_timeout_s
    ]
    if limits:
        yield reading(REPEATED_LIMIT_SECONDS, float(limits[-1][1]), limits[-1][0])
    else:
        yield unread(
            REPEATED_LIMIT_SECONDS, "not-offered", "no request failed again and again after one round number of seconds"
        )


ROUND_SECONDS = (30.0, 60.0, 100.0, 120.0, 180.0, 240.0, 300.0, 600.0, 900.0, 1200.0, 1800.0, 3600.0)


_CAME_TO_NOTHING = frozenset({408, 499, 500, 502, 504})
"""Statuses of a request that ended without an answer: what its server writes as its time is when it ended."""


@derivation(
    reads=(RequestError, LogEvent),
    needs=(TOLD_SECONDS_TO_FAILURE, REPEATED_LIMIT_SECONDS),
    gives=(FAILURE_SECONDS, FAILURE_ROUND_SECONDS),
)
def seconds(sight: Sight) -> Iterator[Reading]:
    """Give the seconds until it failed, and whether that is a round number as timeouts are."""
    found: list[tuple[float, Source, str]] = []
    told = sight.known(TOLD_SECONDS_TO_FAILURE)
    if told is not None:
        found.append((told.value, told.source, told.origin))
    for evidence, event in sight.of(LogEvent):
        if event.seconds and (
            event.event in {"timeout", "cancelled"} or (event.event == "http" and event.status in _CAME_TO_NOTHING)
        ):
            found.append((event.seconds, evidence.source, evidence.origin))
    for evidence, error in sight.of(RequestError):
        if error.error in {"timeout", "connection-lost"} and error.after_s:
            found.append((error.after_s, evidence.source, evidence.origin))
    # A few seconds are round by chance as often as not: only the same number again and again makes one a limit.
    limit = sight.known(REPEATED_LIMIT_SECONDS)
    for value, source, origin in found:
        yield reading(FAILURE_SECONDS, float(value), source=source, origin=origin)
        is_round = any(near(value, r, 0.015, 1.0) for r in ROUND_SECONDS) or (
            limit is not None and near(value, limit.value, 0.03, 0.5)
        )
        yield reading(FAILURE_ROUND_SECONDS, is_round, source=source, origin=origin)
