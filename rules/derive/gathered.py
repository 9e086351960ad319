"""Where answers, logs and counters say one thing: joined into one fact, so that no rule counts one observation twice."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Iterator

from probes.evidence.events import LogEvent
from probes.evidence.machine import DeviceReadings, SampledPeaks
from probes.evidence.records import STANDING, Evidence, Source
from probes.evidence.request import Completion, RequestError, TruncationReading
from probes.evidence.rungs import Criteria, RungResult
from probes.evidence.subject import Configuration
from rules.derive.cards import cards
from rules.derive.failure import only_follows
from rules.derive.numbers import sent_on_purpose, tells_speed
from rules.engine.derivation import Reading, Sight, derivation, mirror, reading
from rules.facts import (
    CANCELLED_SECONDS,
    COMPUTE_BYTES,
    DEVICE_TOTAL_BYTES,
    DRAFT_ACCEPTED,
    DRAFT_ACCEPTED_LONG,
    DRAFT_WINDOW_FULL,
    FAILURE_KINDS,
    GPU_API,
    GPU_NOT_INITIALISED,
    KV_BYTES,
    LAYERS_ON_CPU,
    MEMORY_NOT_FREED,
    NEAR_POWER_OF_TWO,
    NEED_OF_DEVICES,
    ONE_DEVICE_FULL,
    OVER_LAUNCH_LIMIT,
    PART_ON_CPU,
    REPEATED_LIMIT_SECONDS,
    REUSED_SHARE,
    SEVERAL_DEVICES,
    SPECULATION_GAIN,
    SPEED_COMPLAINT,
    SPEED_SHAPE,
    STORED_PROMPTS_LARGE,
    SYMPTOM,
    TOLD_CACHE_GIB,
    TOLD_DRAFT_WINDOW,
    TOLD_ERROR_KIND,
    TOLD_FAILS_AT,
    TOLD_GPU_API,
    TOLD_GPU_GIB,
    TOLD_LOADED_GIB,
    TOLD_MICRO_BATCH,
    TOLD_RAM_GIB,
    TOLD_REREADS,
    TOLD_SENT_TOKENS,
    TOLD_SEVERAL_GPUS,
    TOLD_SLOW_PART,
    TOLD_SLOW_SHAPE,
    TOLD_SPEED_BY_LENGTH,
    TOLD_SPEED_WANTED,
    TOLD_STORED_PROMPTS_GIB,
    TOLD_TOTAL_TOKENS,
    TOLD_WEIGHTS_GIB,
    TOLD_WHICH_CARD,
    UNEQUAL_DEVICES,
    WEIGHTS_OF_RAM,
)

GIB = 2**30
LAUNCH_LIMIT = 65_535
"""CUDA's largest second and third launch dimension."""

_BY_EVENT = {
    "kernel-error": "kernel",
    "crash": "internal",
    "device-lost": "device-lost",
    "watchdog": "device-lost",
    "hardware": "device-lost",
    "oom-killer": "host-memory",
    "refused": "too-long",
    "pool-full": "no-room",
    "timeout": "timeout",
}
_BY_REQUEST = {
    "exceeds-window": "too-long",
    "pool-exhausted": "no-room",
    "out-of-memory": "gpu-memory",
    "timeout": "timeout",
    "busy": "too-many",
    "not-supported": "needs-setting",
}
_BY_STATUS = {429: "too-many", 503: "too-many", 408: "timeout", 504: "timeout"}


_LOST = re.compile(r"not ready|timed? ?out|time limit|lost|hang", re.IGNORECASE)
_NO_CONTEXT = re.compile(r"(?:create|initiali[sz]e)[ _](?:the )?(?:\w+ )?context", re.IGNORECASE)


def _kind_of(event: LogEvent) -> str | None:
    if event.event == "alloc-failed" and event.reason == "memory guard":
        return "memory-guard"
    if event.event == "kernel-error" and _LOST.search(event.reason or ""):
        return "device-lost"
    if event.event == "load-failed":
        return "create-context" if _NO_CONTEXT.search(event.text) else None
    if event.event == "alloc-failed":
        if event.limit_bytes and event.size_bytes and event.size_bytes > event.limit_bytes:
            return "one-piece"
        return "host-memory" if event.api in {"cpu", "host-pinned"} or event.component == "pinned" else "gpu-memory"
    if event.event == "decode-failed":
        return {"no-slot": "no-room", "batch": "internal"}.get(event.reason or "")
    if event.event == "http":
        return _BY_STATUS.get(event.status or 0)
    return _BY_EVENT.get(event.event)


ENOUGH_DRAFTED = 40
"""Fewer drafted tokens say nothing about a share of them."""
WAITED_S = 5.0
"""What is read in less has no shape that anybody would see."""
LONG_ANSWER = 16
LINES_OF_AN_ANSWER = 8
"""So many lines further at most stands what was accepted in an answer whose times a log has given."""


@derivation(
    reads=(LogEvent, RequestError, RungResult, TruncationReading),
    needs=(TOLD_ERROR_KIND, REPEATED_LIMIT_SECONDS),
    gives=(FAILURE_KINDS,),
)
def failure_kinds(sight: Sight) -> Iterator[Reading]:
    """Join what was said, what the logs hold and what requests ended with. The best of their sources speaks for it."""
    kinds: dict[str, tuple[Source, str]] = {}
    told = sight.known(TOLD_ERROR_KIND)
    if told is not None:
        kinds[told.value] = (told.source, told.origin)
    ours = [cut.sent for _evidence, cut in sight.of(TruncationReading)]
    seen: list[LogEvent] = []
    for evidence, event in sight.of(LogEvent):
        kind = _kind_of(event)
        if event.event == "refused" and sent_on_purpose(event.tokens, ours):
            continue
        if kind is not None and not only_follows(event, seen):
            seen.append(event)
            kinds[kind] = (evidence.source, evidence.origin)
    for evidence, error in sight.of(RequestError):
        if error.error in _BY_REQUEST and evidence.origin != "truncation":  # refused on purpose
            kinds[_BY_REQUEST[error.error]] = (evidence.source, evidence.origin)
    for evidence, rung in sight.of(RungResult):
        if rung.error_kind in _BY_REQUEST:
            kinds[_BY_REQUEST[rung.error_kind]] = (evidence.source, evidence.origin)
    limit = sight.known(REPEATED_LIMIT_SECONDS)
    if limit is not None:
        # closed again and again after one round number of seconds: somebody's time limit, whatever the error says
        kinds["timeout"] = (limit.source, limit.origin)
    if len(kinds) > 1:
        kinds.pop("none", None)
    if kinds:
        source, origin = min(kinds.values(), key=lambda one: (_ORDER[STANDING[one[0]]], one[0] == "report"))
        yield reading(FAILURE_KINDS, tuple(sorted(kinds)), source=source, origin=origin)


_ORDER = {"measured": 0, "read": 1, "answered": 2}


_APIS = {
    "cuda": "cuda",
    "rocm": "rocm",
    "hip": "rocm",
    "vulkan": "vulkan",
    "sycl": "sycl",
    "metal": "metal",
    "mlx": "metal",
}
_DEVICE_API = re.compile(r"(CUDA|ROCm|HIP|Vulkan|SYCL|Metal|MTL)\d*", re.ASCII)


@derivation(reads=(LogEvent,), gives=(GPU_API,))
def gpu_api(sight: Sight) -> Iterator[Reading]:
    """Read the interface from an event's own word or the device's name."""
    for evidence, event in sight.of(LogEvent):
        if event.api in _APIS:
            yield reading(GPU_API, _APIS[event.api], evidence)
            return
        name = _DEVICE_API.match(event.device or "")
        if name is not None:
            yield reading(GPU_API, _APIS.get(name[1].lower(), "metal"), evidence)
            return


@derivation(reads=(DeviceReadings, LogEvent), gives=(SEVERAL_DEVICES, UNEQUAL_DEVICES))
def devices(sight: Sight) -> Iterator[Reading]:
    """Count devices and compare their sizes: the driver's word, and the log's."""
    measured = sight.last(DeviceReadings)
    if measured is not None:
        evidence, found = measured
        yield reading(SEVERAL_DEVICES, len(found.devices) > 1, evidence)
        sizes = [d.total_bytes for d in found.devices if d.total_bytes]
        yield reading(UNEQUAL_DEVICES, len(sizes) > 1 and max(sizes) > 1.1 * min(sizes), evidence)
    logged = cards(sight.of(LogEvent))
    if len(logged) > 1:
        evidence = next(iter(logged.values())).evidence
        yield reading(SEVERAL_DEVICES, True, evidence)
        totals = [card.total for card in logged.values() if card.total]
        if len(totals) == len(logged):
            yield reading(UNEQUAL_DEVICES, max(totals) > 1.1 * min(totals), evidence)
            return
        # What was free before loading tells as much where the cards are of two kinds; of one kind, another program may have a part of one.
        free = [card.free for card in logged.values() if card.free]
        if len(free) == len(logged):
            one_kind = len({card.name for card in logged.values()}) == 1
            if max(free) <= 1.1 * min(free):
                yield reading(UNEQUAL_DEVICES, False, evidence)
            elif not one_kind:
                yield reading(UNEQUAL_DEVICES, True, evidence)


@derivation(reads=(LogEvent,), gives=(ONE_DEVICE_FULL,))
def one_card_refused(sight: Sight) -> Iterator[Reading]:
    """One card had no room for its piece while another has over 15 % left, and more than the piece: by the log's own sizes of one load."""
    found = cards(sight.of(LogEvent))
    full = [card for card in found.values() if card.failed and card.placed]
    if len(found) < 2 or len(full) != 1 or any(card.left is None or not card.placed for card in found.values()):
        return
    size = max(full[0].failed.values())
    if (full[0].left or 0) > max(1.1 * size, size + GIB):
        return  # it had room: something else refused
    with_room = [
        card
        for card in found.values()
        if card is not full[0] and (card.left or 0) > max(size, 0.15 * (card.total or card.free or 0))
    ]
    yield reading(ONE_DEVICE_FULL, bool(with_room), full[0].evidence)


@derivation(reads=(SampledPeaks, DeviceReadings), gives=(ONE_DEVICE_FULL,))
def one_device_full(sight: Sight) -> Iterator[Reading]:
    """One device under 3 % free at its peak while another kept over 15 %."""
    found = sight.last(DeviceReadings)
    totals = {d.id: d.total_bytes for d in found[1].devices if d.total_bytes} if found else {}
    least: dict[str, int] = {}
    evidence = None
    for piece, peaks in sight.of(SampledPeaks):
        for name, free in peaks.devices_min_free_bytes.items():
            least[name] = min(free, least.get(name, free))
            evidence = piece
    shares = {name: free / totals[name] for name, free in least.items() if name in totals}
    if len(shares) > 1 and evidence is not None:
        yield reading(ONE_DEVICE_FULL, min(shares.values()) < 0.03 and max(shares.values()) > 0.15, evidence)


@derivation(
    reads=(LogEvent,),
    needs=(
        TOLD_GPU_GIB, TOLD_LOADED_GIB, TOLD_WEIGHTS_GIB, TOLD_CACHE_GIB, KV_BYTES, COMPUTE_BYTES, DEVICE_TOTAL_BYTES,
    ),
    gives=(NEED_OF_DEVICES,),
)  # fmt: skip
def need_of_devices(sight: Sight) -> Iterator[Reading]:
    """Compare what the model takes with what the cards have: by the log's own sizes, card by card, else as it was told.

    What could not be had is a part of the need. What a log gives completes what was told: weights alone are not what a loaded model takes.
    """
    total, loaded = sight.known(TOLD_GPU_GIB), sight.known(TOLD_LOADED_GIB)
    weights, cache = sight.known(TOLD_WEIGHTS_GIB), sight.known(TOLD_CACHE_GIB)
    if total is not None and total.value > 0:
        need = loaded.value if loaded else None
        if need is None and weights is not None:
            more = (
                cache.value if cache else sum(k.value for k in map(sight.known, (KV_BYTES, COMPUTE_BYTES)) if k) / GIB
            )
            need = weights.value + more
        if need is not None:
            yield reading(NEED_OF_DEVICES, need / total.value, source=total.source, origin=total.origin)
    found = cards(sight.of(LogEvent))
    needed = sum(sum(card.placed.values()) + sum(card.failed.values()) for card in found.values())
    whole = all(card.placed.get("weights") for card in found.values()) and any(
        "kv" in card.placed or "kv" in card.failed for card in found.values()
    )
    room = [card.total or card.free for card in found.values()]
    has = sight.known(DEVICE_TOTAL_BYTES)
    size = sum(each for each in room if each) if found and all(room) else has.value if has is not None else None
    if whole and size:
        yield reading(NEED_OF_DEVICES, needed / size, next(iter(found.values())).evidence)


@derivation(needs=(TOLD_WEIGHTS_GIB, TOLD_RAM_GIB), gives=(WEIGHTS_OF_RAM,))
def weights_of_ram(sight: Sight) -> Iterator[Reading]:
    """Compare the weights with the system's memory."""
    weights, ram = sight.known(TOLD_WEIGHTS_GIB), sight.known(TOLD_RAM_GIB)
    if weights and ram and ram.value > 0:
        yield reading(WEIGHTS_OF_RAM, weights.value / ram.value, source=ram.source, origin=ram.origin)


_PAIR = re.compile(r"(\d{1,9}(?:\.\d{1,4})?)\s*([kK]?)\s*[=:]\s*(\d{1,7}(?:\.\d{1,4})?)", re.ASCII)


def parse_pairs(text: str) -> list[tuple[float, float]]:
    """Read "4096=688, 8k: 303" as pairs of tokens and tokens a second, shortest first."""
    pairs = [(float(n) * (1024 if k else 1), float(speed)) for n, k, speed in _PAIR.findall(text[:2000])]
    return sorted((n, speed) for n, speed in pairs if n > 0 and speed > 0)


def shape_of(pairs: Iterable[tuple[float, float]]) -> str | None:
    """Name the shape of a speed over length; None where it does not fall, or too little is known.

    A whole prompt's speed that falls in proportion to its length means that its time goes with the square: attention alone may come to that
    far out, where everything else is small beside it, but not over a short span from a short start. A step falls by two fifths within a third more length.
    """
    points = sorted(set(pairs))
    if len(points) < 2 or points[-1][0] < 1.8 * points[0][0]:
        return None
    first, last = points[0], points[-1]
    kept = last[1] / first[1]
    for (n, speed), (m, next_speed) in itertools.pairwise(points):
        if next_speed < 0.6 * speed and m <= 1.35 * n:
            return "step"
    if first[0] <= 16_384 and kept < 1.3 * first[0] / last[0]:
        return "steep"
    return "slope" if kept < 0.9 else None


def _medians(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Give the median speed at each length, shortest first; none where the longest is read in no time: its speeds are chance, and nobody waits."""
    by: dict[float, list[float]] = {}
    for tokens, speed in pairs:
        by.setdefault(tokens, []).append(speed)
    points = [(tokens, statistics.median(speeds)) for tokens, speeds in sorted(by.items())]
    waited = points[-1][0] / points[-1][1] if points and points[-1][1] else 0.0
    return points if waited >= WAITED_S else []


@derivation(reads=(LogEvent, RungResult), gives=(SPEED_SHAPE,))
def speed_shape(sight: Sight) -> Iterator[Reading]:
    """Name the shape of the prefill speed: measured, else by the log's timings."""
    rungs = [
        (e, r)
        for e, r in sight.of(RungResult)
        if r.cold is not False and tells_speed(r.input_tokens, r.cached_tokens, r.prefill_tps)
    ]
    shape = shape_of(_medians((float(r.input_tokens), float(r.prefill_tps or 0)) for _e, r in rungs))
    if shape is not None:
        yield reading(SPEED_SHAPE, shape, rungs[-1][0])
    timed = [
        (e, v)
        for e, v in sight.of(LogEvent)
        if v.event in {"timing", "prefill-progress"}
        and v.phase != "generation"
        and v.tokens
        and v.tps
        and v.tokens >= 1024
    ]
    shape = shape_of(_medians((float(v.tokens or 0), float(v.tps or 0)) for _e, v in timed))
    if shape in {"steep", "step"}:  # a log's turns reuse the cache: a mere slope of its numbers says little
        yield reading(SPEED_SHAPE, shape, timed[-1][0])


@derivation(needs=(TOLD_SPEED_BY_LENGTH, TOLD_SLOW_SHAPE), gives=(SPEED_SHAPE,))
def told_shape(sight: Sight) -> Iterator[Reading]:
    """Take the user's numbers, else the user's word."""
    pairs, word = sight.known(TOLD_SPEED_BY_LENGTH), sight.known(TOLD_SLOW_SHAPE)
    shape = shape_of(parse_pairs(pairs.value)) if pairs is not None else None
    if pairs is not None and shape is not None:
        yield reading(SPEED_SHAPE, shape, source=pairs.source, origin=pairs.origin)
    elif word is not None:
        yield reading(SPEED_SHAPE, word.value, source=word.source, origin=word.origin)


_LIMIT_WORDS = re.compile(r"\b65535\b|\bgrid dim|launch dim|\binvalid configuration argument\b", re.IGNORECASE)


@derivation(reads=(Configuration, LogEvent), gives=(OVER_LAUNCH_LIMIT,))
def over_launch_limit(sight: Sight) -> Iterator[Reading]:
    """A kernel's launch is over its limit by the error's own words, or by a micro-batch that cannot be a launch dimension."""
    for evidence, event in sight.of(LogEvent):
        failed = event.event in {"kernel-error", "crash", "generic-error", "generic-warning"}
        if failed and (event.limit == LAUNCH_LIMIT or _LIMIT_WORDS.search(event.text)):
            yield reading(OVER_LAUNCH_LIMIT, True, evidence)
            return
    for evidence, configuration in sight.of(Configuration):
        setting = configuration.settings.get("ubatch")
        if setting is not None and isinstance(setting.value, int):
            yield reading(OVER_LAUNCH_LIMIT, setting.value > LAUNCH_LIMIT, evidence)
            return


@derivation(reads=(RungResult,), gives=(NEAR_POWER_OF_TWO,))
def near_power_of_two(sight: Sight) -> Iterator[Reading]:
    """The length of the failure is within 0.6 % of 32768 or a higher power of two."""
    failed = [(e, r.input_tokens) for e, r in sight.of(RungResult) if r.result in {"failed", "died"} and r.input_tokens]
    if failed:
        evidence, tokens = min(failed, key=lambda one: one[1])
        yield reading(NEAR_POWER_OF_TWO, _near(tokens), evidence)


def _near(tokens: float) -> bool:
    return any(abs(tokens - 2**power) <= 0.006 * 2**power for power in range(15, 24))


@derivation(reads=(Completion, LogEvent), gives=(DRAFT_ACCEPTED,))
def drafting(sight: Sight) -> Iterator[Reading]:
    """How much of what was drafted was taken."""
    drafted = [(e, c) for e, c in sight.of(Completion) if c.drafted_tokens and c.accepted_tokens is not None]
    if drafted:
        total = sum(c.drafted_tokens or 0 for _e, c in drafted)
        yield reading(
            DRAFT_ACCEPTED, min(1.0, sum(c.accepted_tokens or 0 for _e, c in drafted) / total), drafted[-1][0]
        )
    for evidence, event in reversed([(e, v) for e, v in sight.of(LogEvent) if v.event == "speculation"]):
        drafted_tokens = event.of or event.count
        if event.accepted is not None and drafted_tokens:
            yield reading(DRAFT_ACCEPTED, min(1.0, event.accepted / drafted_tokens), evidence)
            return


@derivation(reads=(LogEvent,), gives=(SPECULATION_GAIN, DRAFT_ACCEPTED_LONG))
def gain(sight: Sight) -> Iterator[Reading]:
    """What speculation multiplied the generation speed by, at best, from the log's times of answers, what was accepted in each, and the time of drafting.

    Without it, each token would have taken a step of the main model. A step that checks a draft takes at least as long as one of a single token, so the
    time of the steps that were made, one for each token that was not drafted, gives an upper bound for a step: the speed without is that fast or faster.
    """
    logged = [(e, v) for e, v in sight.of(LogEvent)]
    totals = [(e, v) for e, v in logged if v.event == "speculation" and v.key == "drafting" and v.of]
    shares: list[tuple[float, Evidence]] = []
    tokens = steps = drafted = 0
    taken = 0.0
    written: LogEvent | None = None
    for e, event in logged:
        if event.event == "timing" and event.phase == "generation" and event.key is None:
            written = event
        elif event.event == "speculation" and event.key == "acceptance" and written is not None:
            # the line that follows an answer's times; answers of a few tokens end in the middle of a draft, and folded lines belong to several
            near = written.log == event.log and 0 <= event.line - written.line <= LINES_OF_AN_ANSWER
            answer, accepted = (written.tokens or 1) - 1, event.accepted or 0
            alone = written.count_seen == event.count_seen == 1
            offered = event.count or event.of or 0
            if near and alone and written.seconds and answer >= LONG_ANSWER and accepted < answer:
                tokens, steps = tokens + answer, steps + answer - accepted
                drafted, taken = drafted + offered, taken + written.seconds
                if offered >= ENOUGH_DRAFTED:
                    shares.append((min(1.0, accepted / offered), e))
            written = None
    if shares:
        yield reading(DRAFT_ACCEPTED_LONG, statistics.median(share for share, _e in shares), shares[-1][1])
    if not totals:
        return
    evidence, total = totals[-1]
    checking = taken - drafted * (total.seconds or 0.0) / (total.of or 1)
    if drafted >= ENOUGH_DRAFTED and 0 < checking <= taken:
        yield reading(SPECULATION_GAIN, tokens * checking / (steps * taken), evidence)


@derivation(needs=(TOLD_DRAFT_WINDOW, TOLD_FAILS_AT, TOLD_SENT_TOKENS, TOLD_TOTAL_TOKENS), gives=(DRAFT_WINDOW_FULL,))
def draft_window_full(sight: Sight) -> Iterator[Reading]:
    """Compare the draft's own window with the longest text that was told of."""
    window = sight.known(TOLD_DRAFT_WINDOW)
    used = [
        k.value for k in (sight.known(f) for f in (TOLD_FAILS_AT, TOLD_SENT_TOKENS, TOLD_TOTAL_TOKENS)) if k is not None
    ]
    if window is not None and window.value > 0 and used:
        yield reading(DRAFT_WINDOW_FULL, max(used) >= 0.9 * window.value, source=window.source, origin=window.origin)


@derivation(reads=(Configuration, LogEvent), gives=(STORED_PROMPTS_LARGE,))
def stored_prompts(sight: Sight) -> Iterator[Reading]:
    """No limit (a negative one), or 4 GiB and more; under 1 GiB is small."""
    limits: list[tuple[Evidence, float]] = []
    for evidence, configuration in sight.of(Configuration):
        setting = configuration.settings.get("cache_ram_mib")
        if setting is not None and isinstance(setting.value, (int, float)) and not isinstance(setting.value, bool):
            limits.append((evidence, setting.value / 1024 if setting.value >= 0 else -1.0))
    for evidence, event in sight.of(LogEvent):
        if event.event == "cache-store" and event.limit_bytes is not None:
            limits.append((evidence, event.limit_bytes / GIB))
    for evidence, gib in limits:
        yield reading(STORED_PROMPTS_LARGE, _large_store(gib), evidence)


def _large_store(gib: float) -> bool | None:
    return True if gib < 0 or gib >= 4 else False if gib < 1 else None


@derivation(reads=(LogEvent,), gives=(CANCELLED_SECONDS, REUSED_SHARE))
def requests_in_logs(sight: Sight) -> Iterator[Reading]:
    """When clients gave up, and the least share of a prompt that was reused."""
    shares: list[tuple[float, Evidence]] = []
    for evidence, event in sight.of(LogEvent):
        if event.event == "cancelled" and event.seconds is not None:
            yield reading(CANCELLED_SECONDS, event.seconds, evidence)
        if event.event == "cache-reuse":
            if event.tokens is not None and event.of:
                shares.append((min(1.0, event.tokens / event.of), evidence))
            elif event.similarity is not None:
                shares.append((min(1.0, max(0.0, event.similarity)), evidence))
    if shares:
        least, evidence = min(shares, key=lambda one: one[0])
        yield reading(REUSED_SHARE, least, evidence)


@derivation(reads=(LogEvent,), gives=(PART_ON_CPU, MEMORY_NOT_FREED))
def placed(sight: Sight) -> Iterator[Reading]:
    """Read the server's own word on what is where ("45%/55% CPU/GPU"), and on memory that did not come back."""
    for evidence, event in sight.of(LogEvent):
        if event.event == "placement" and isinstance(event.value, (int, float)):
            yield reading(PART_ON_CPU, event.value < 0.97, evidence)
        if event.event == "memory-use" and event.key == "not-freed":
            yield reading(MEMORY_NOT_FREED, True, evidence)


_NOT_STARTED = re.compile(
    r"cudart init failure|cuda(?:SetDevice|Init)? err(?:or)?:? ?999|no cuda-?capable device|failed to initiali[sz]e (?:cuda|nvml|rocm|hip|vulkan)"
    r"|ggml_cuda_init: failed|unable to load cudart|cuInit|no compatible gpus? (?:were|was) discovered|hsa_init failed|couldn't communicate with the nvidia",
    re.IGNORECASE,
)


@derivation(reads=(LogEvent,), gives=(GPU_NOT_INITIALISED,))
def gpu_not_initialised(sight: Sight) -> Iterator[Reading]:
    """A runtime that cannot open the card says so, and the server goes on with the processor."""
    for evidence, event in sight.of(LogEvent):
        if _NOT_STARTED.search(event.text[:500]):
            yield reading(GPU_NOT_INITIALISED, True, evidence)
            return


@derivation(reads=(Criteria, RungResult), needs=(TOLD_SPEED_WANTED,), gives=(SPEED_COMPLAINT,))
def speed_complaint(sight: Sight) -> Iterator[Reading]:
    """A speed that falls with length is no fault by itself: somebody must find it too low, or it is under the criterion."""
    wanted = sight.known(TOLD_SPEED_WANTED)
    criteria = sight.last(Criteria)
    least_write = criteria[1].min_generation_tps if criteria else None
    least_read = criteria[1].min_prefill_tps if criteria else None
    if least_write is None and wanted is not None:
        least_write = wanted.value
    measured = [(e, r) for e, r in sight.of(RungResult) if r.result == "passed" and (r.generation_tps or r.prefill_tps)]
    for evidence, rung in measured:
        slow_write = least_write is not None and rung.generation_tps is not None and rung.generation_tps < least_write
        slow_read = least_read is not None and rung.prefill_tps is not None and rung.prefill_tps < least_read
        if slow_write or slow_read:
            yield reading(SPEED_COMPLAINT, True, evidence)
            return
    if measured and (least_write is not None or least_read is not None):
        yield reading(SPEED_COMPLAINT, False, measured[-1][0])


TOLD = (
    mirror(LAYERS_ON_CPU, PART_ON_CPU, lambda layers: layers > 0),
    mirror(TOLD_GPU_API, GPU_API),
    mirror(TOLD_SEVERAL_GPUS, SEVERAL_DEVICES, lambda how: how != "one"),
    mirror(TOLD_SEVERAL_GPUS, UNEQUAL_DEVICES, {"one": False, "equal": False, "unequal": True}.get),
    mirror(TOLD_WHICH_CARD, ONE_DEVICE_FULL, lambda which: which == "one"),
    mirror(TOLD_MICRO_BATCH, OVER_LAUNCH_LIMIT, lambda tokens: tokens > LAUNCH_LIMIT),
    mirror(TOLD_FAILS_AT, NEAR_POWER_OF_TWO, _near),
    mirror(TOLD_STORED_PROMPTS_GIB, STORED_PROMPTS_LARGE, _large_store),
    # Who says what is slow, or how, finds it too slow.
    mirror(TOLD_SLOW_SHAPE, SPEED_COMPLAINT, lambda _shape: True),
    mirror(TOLD_SLOW_PART, SPEED_COMPLAINT, lambda _part: True),
    mirror(SYMPTOM, SPEED_COMPLAINT, lambda symptom: True if symptom == "slow-long-context" else None),
    mirror(TOLD_SPEED_BY_LENGTH, SPEED_COMPLAINT, lambda _pairs: True),
    mirror(TOLD_REREADS, SPEED_COMPLAINT, lambda how: True if how != "only-new" else None),
)
"""Answers that stand for one of these facts."""
