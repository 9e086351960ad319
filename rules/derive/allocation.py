"""What was allocated and what could not be: by component, against what was free, allowed and expected."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from probes.evidence.events import LogEvent
from probes.evidence.machine import DeviceReadings, HostReading, MemoryBudget
from probes.evidence.records import Evidence, Source
from probes.evidence.request import Launch
from probes.evidence.subject import ModelFile
from rules.derive.cards import cards, on_card
from rules.derive.failure import over_one_piece
from rules.derive.numbers import GIB, near, ratio
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.engine.fact import Known
from rules.facts import (
    ADDRESS_LIMIT_BYTES,
    ALLOC_API,
    ALLOC_BYTES,
    ALLOC_COMPONENT,
    ALLOC_FAILED,
    ALLOC_FREE_BYTES,
    ALLOC_FREE_RATIO,
    ALLOC_LIMIT_BYTES,
    ALLOC_OF_DEVICE,
    ALLOC_OVER_LIMIT,
    ALLOC_PLACE,
    ALLOC_ROOM,
    COMPONENTS,
    COMPUTE_BYTES,
    COMPUTE_OF_KV,
    COMPUTE_SHARE,
    DEVICE_COUNT,
    DEVICE_FREE_BYTES,
    DEVICE_TOTAL_BYTES,
    DRAFT_BYTES,
    FREE_REPORTED_ZERO,
    KV_BITS,
    KV_BYTES,
    KV_EXPECTED_BYTES,
    KV_OF_WEIGHTS,
    KV_OVER_EXPECTED,
    KV_SHARE,
    KV_SMALLER_TYPE_SET,
    KV_STREAMS,
    KV_TYPES_DIFFER,
    KV_WHOLE_PER_SLOT,
    LOADED_OF_DEVICE,
    MEMORY_FALLS_BACK,
    MEMORY_LIMIT_BYTES,
    MODEL_BYTES,
    OUTPUT_BYTES,
    PIPELINE_COPIES,
    PROJECTOR_BYTES,
    RAM_BYTES,
    SPECULATION,
    SWA_CACHE_FULL,
    TOLD_ERROR_KIND,
    TOLD_FAILED_WHILE,
    TOLD_GPU_GIB,
    TOLD_GPU_MAKER,
    TOLD_LOADED_GIB,
    TOLD_RAM_GIB,
    V_QUANTISED,
    WEIGHTS_BYTES,
    WEIGHTS_OF_RAM,
    WEIGHTS_SHARE,
    WINDOW_ASKED,
    WINDOW_IN_FORCE,
    WINDOW_POOL,
    WINDOW_SLOTS,
    WINDOW_TRAINED,
    WORKING_SET_PASSED,
)

_MEMORY = frozenset({"gpu-memory", "one-piece", "host-memory", "memory-guard", "create-context"})


UNBOUNDED = frozenset({"cpu", "cuda", "rocm", "torch", "musa"})
"""Interfaces that bound no single piece below the whole memory."""


@derivation(
    reads=(LogEvent,),
    gives=(
        ALLOC_FAILED,
        ALLOC_COMPONENT,
        ALLOC_PLACE,
        ALLOC_API,
        ALLOC_BYTES,
        ALLOC_FREE_BYTES,
        ALLOC_LIMIT_BYTES,
        ALLOC_OVER_LIMIT,
        ALLOC_ROOM,
        WORKING_SET_PASSED,
    ),
)
def failed(sight: Sight) -> Iterator[Reading]:
    """Give the allocation that failed: the largest that the log names, and the component that any of its lines tells."""
    events = [(evidence, event) for evidence, event in sight.of(LogEvent) if event.event == "alloc-failed"]
    for evidence, event in events:
        yield reading(ALLOC_FAILED, True, evidence)
        if event.component in COMPONENTS and event.component != "other":
            yield reading(ALLOC_COMPONENT, event.component, evidence)
        yield reading(ALLOC_LIMIT_BYTES, event.limit_bytes, evidence)
        if over_one_piece(event):
            yield reading(ALLOC_OVER_LIMIT, True, evidence)
        elif (event.limit_bytes and event.size_bytes) or event.api in UNBOUNDED:
            yield reading(ALLOC_OVER_LIMIT, False, evidence)
    for evidence, event in sight.of(LogEvent):
        over = event.size_bytes is None or event.limit_bytes is None or event.size_bytes > event.limit_bytes
        if event.event == "memory-use" and event.key == "metal-working-set" and over:
            yield reading(WORKING_SET_PASSED, True, evidence)
    sized = [(event.size_bytes, evidence, event) for evidence, event in events if event.size_bytes]
    if sized:
        size, evidence, event = max(sized, key=lambda s: s[0])
        yield reading(ALLOC_BYTES, size, evidence)
        free = (
            event.free_bytes
            if event.free_bytes is not None
            else next((e.free_bytes for _, e in events if e.free_bytes is not None), None)
        )
        yield reading(ALLOC_FREE_BYTES, free, evidence)
        if free is not None:
            yield reading(ALLOC_ROOM, free > 1.02 * size, evidence)
    for evidence, event in events:
        api = event.api or ""
        if api:
            yield reading(ALLOC_API, api, evidence)
        if api == "host-pinned" or event.component == "pinned" or (event.device or "").upper().endswith("_HOST"):
            yield reading(ALLOC_PLACE, "pinned", evidence)
        elif api or event.device:
            yield reading(
                ALLOC_PLACE,
                "cpu" if api == "cpu" or (event.device or "").upper().startswith("CPU") else "gpu",
                evidence,
            )


@derivation(
    reads=(LogEvent,), needs=(MEMORY_LIMIT_BYTES, ADDRESS_LIMIT_BYTES, WEIGHTS_BYTES, MODEL_BYTES), gives=(ALLOC_ROOM,)
)
def room_by_arithmetic(sight: Sight) -> Iterator[Reading]:
    """Say that no room was there where the limit of the process refused, or where weights and what was asked for are more than there is."""
    limit, address = sight.known(MEMORY_LIMIT_BYTES), sight.known(ADDRESS_LIMIT_BYTES)
    weights = sight.known(WEIGHTS_BYTES) or sight.known(MODEL_BYTES)
    for evidence, event in sight.of(LogEvent):
        if event.event != "alloc-failed" or event.component == "pinned" or event.api == "host-pinned":
            continue
        if address is not None and event.api == "cpu":
            yield reading(ALLOC_ROOM, False, evidence)
        elif (
            limit is not None and weights is not None and event.size_bytes and event.component not in {None, "weights"}
        ):
            yield reading(ALLOC_ROOM, False if event.size_bytes + weights.value > limit.value else None, evidence)


OF_A_DRIVER = 256 << 20
"""A driver and its libraries take so much of a card for themselves, which no log shows."""


@derivation(reads=(LogEvent,), gives=(ALLOC_ROOM,))
def room_left(sight: Sight) -> Iterator[Reading]:
    """Reckon what was left on the card that refused: free before loading, less what was placed there. A log that says itself what was free is believed."""
    events = sight.of(LogEvent)
    if any(event.event == "alloc-failed" and event.free_bytes is not None for _evidence, event in events):
        return
    for card in cards(events).values():
        size = max(card.failed.values(), default=0)
        if card.left is None or not size or not card.placed:
            continue
        if card.left <= max(1.02 * size, size + OF_A_DRIVER):
            yield reading(ALLOC_ROOM, False, card.evidence)
        elif card.left > max(1.1 * size, size + 4 * OF_A_DRIVER):
            yield reading(ALLOC_ROOM, True, card.evidence)


@derivation(needs=(TOLD_FAILED_WHILE, TOLD_ERROR_KIND), gives=(ALLOC_COMPONENT,))
def told_component(sight: Sight) -> Iterator[Reading]:
    """Take the stage that was told for the component, where the failure is about memory or does not say."""
    stage, about = sight.known(TOLD_FAILED_WHILE), sight.known(TOLD_ERROR_KIND)
    if stage is not None and (about is None or about.value in _MEMORY or about.value == "internal"):
        component = {"weights": "weights", "cache": "kv", "buffers": "compute", "picture": "projector"}.get(stage.value)
        yield reading(ALLOC_COMPONENT, component, source=stage.source, origin=stage.origin)


@derivation(needs=(TOLD_RAM_GIB, TOLD_GPU_MAKER, TOLD_GPU_GIB), gives=(MEMORY_LIMIT_BYTES,))
def told_limit(sight: Sight) -> Iterator[Reading]:
    """Take system memory for the limit where the accelerator shares it or there is none."""
    ram, maker = sight.known(TOLD_RAM_GIB), sight.known(TOLD_GPU_MAKER)
    if (
        ram is not None
        and ram.value
        and maker is not None
        and maker.value in {"apple", "none"}
        and sight.known(TOLD_GPU_GIB) is None
    ):
        share = 0.7 if maker.value == "apple" else 1.0
        yield reading(MEMORY_LIMIT_BYTES, int(ram.value * GIB * share), source=ram.source, origin=ram.origin)


@derivation(needs=(TOLD_LOADED_GIB, DEVICE_TOTAL_BYTES), gives=(LOADED_OF_DEVICE,))
def told_loaded(sight: Sight) -> Iterator[Reading]:
    """Compare what the loaded model takes, as it was told, with the devices."""
    loaded, total = sight.known(TOLD_LOADED_GIB), sight.known(DEVICE_TOTAL_BYTES)
    if loaded is not None and total is not None:
        yield reading(LOADED_OF_DEVICE, ratio(loaded.value * GIB, total.value), source=loaded.source)


@derivation(
    reads=(LogEvent, MemoryBudget, ModelFile),
    gives=(WEIGHTS_BYTES, KV_BYTES, COMPUTE_BYTES, OUTPUT_BYTES, DRAFT_BYTES, PROJECTOR_BYTES),
)
def placed(sight: Sight) -> Iterator[Reading]:
    """Add up what was placed, by component; of compute buffers the largest. A piece of the cache that could not be had is a part of the cache."""
    facts = {
        "weights": WEIGHTS_BYTES,
        "kv": KV_BYTES,
        "state": KV_BYTES,
        "output": OUTPUT_BYTES,
        "draft": DRAFT_BYTES,
        "projector": PROJECTOR_BYTES,
    }
    for evidence, file in sight.of(ModelFile):
        yield reading(WEIGHTS_BYTES, file.weights_bytes or file.size_bytes, evidence)
    sums: dict[str, int] = {}
    compute = 0
    last: Evidence | None = None
    seen: set[tuple[str, str, int]] = set()
    refused: dict[str, int] = {}
    for evidence, event in sight.of(LogEvent):
        if event.event == "alloc-failed" and event.component in {"kv", "state"} and event.size_bytes:
            refused[event.device or ""] = max(refused.get(event.device or "", 0), event.size_bytes)
            last = evidence
        elif event.event == "loading" and refused:
            # the next attempt: what the last had placed was given back
            for name in ("kv", "state", "kv-total"):
                sums.pop(name, None)
            refused.clear()
        if (
            event.event == "buffer"
            and event.component
            and event.size_bytes
            and event.key not in {"breakdown", "planner"}
        ):
            key = (event.device or "", event.component, event.size_bytes)
            if key in seen and event.component == "weights":
                continue  # printed once for the planner's dry run and once for the load
            seen.add(key)
            last = evidence
            if event.component == "compute":
                compute = max(compute, event.size_bytes)
            else:
                sums[event.component] = sums.get(event.component, 0) + event.size_bytes
        elif event.event == "kv-cache" and event.size_bytes and event.which in {None, "base", "main"}:
            last = evidence
            sums["kv-total"] = max(sums.get("kv-total", 0), event.size_bytes)
        elif event.event == "projector" and event.size_bytes:
            last = evidence
            sums["projector"] = max(sums.get("projector", 0), event.size_bytes)
    if last is not None:
        cache = max(sums.pop("kv", 0) + sums.pop("state", 0), sums.pop("kv-total", 0)) + sum(refused.values())
        yield reading(KV_BYTES, cache or None, last)
        yield reading(COMPUTE_BYTES, compute or None, last)
        for component, size in sums.items():
            if component in facts:
                yield reading(facts[component], size, last)
    for evidence, budget in sight.of(MemoryBudget):
        if budget.basis == "model":
            continue  # what is expected was not placed
        by: dict[str, int] = {}
        for buffer in budget.buffers:
            by[buffer.component] = by.get(buffer.component, 0) + buffer.size_bytes
        source: Source = evidence.source if budget.basis == "log" else "file"
        for component, fact in facts.items():
            if component in by and component not in {"kv", "state"}:
                yield reading(fact, by[component], evidence, source=source)
        if budget.basis == "log" and ("kv" in by or "state" in by):
            size = by.get("kv", 0) + by.get("state", 0) + sum(refused.values())
            yield reading(KV_BYTES, size, evidence, source=source)
        if "compute" in by:
            yield reading(
                COMPUTE_BYTES,
                max(b.size_bytes for b in budget.buffers if b.component == "compute"),
                evidence,
                source=source,
            )


@derivation(
    reads=(LogEvent,),
    needs=(KV_BYTES, WINDOW_POOL),
    gives=(KV_BITS, KV_SMALLER_TYPE_SET, KV_TYPES_DIFFER, V_QUANTISED),
)
def sixteen_bits(sight: Sight) -> Iterator[Reading]:
    """Know a cache of sixteen bits by its size: two bytes for keys and values of each layer, head and place. Other sizes may have other reasons."""
    cache, window = sight.known(KV_BYTES), sight.known(WINDOW_POOL)
    shape: dict[str, int] = {}
    for _evidence, event in sight.of(LogEvent):
        if event.event == "kv-cache" and event.type_k:
            return  # the log says it itself
        if event.event == "model-info" and event.key and isinstance(event.value, int) and event.value > 0:
            shape[event.key] = event.value
    if (
        cache is None
        or window is None
        or cache.source != "log"
        or not {"n_layer", "n_head_kv", "n_embd_head_k"} <= set(shape)
    ):
        return
    plain = 2 * 2 * shape["n_layer"] * shape["n_head_kv"] * shape["n_embd_head_k"] * window.value
    if near(cache.value, plain, 0.01):
        yield reading(KV_BITS, 16.0, source=cache.source, origin=cache.origin)
        for fact in (KV_SMALLER_TYPE_SET, KV_TYPES_DIFFER, V_QUANTISED):
            yield reading(fact, False, source=cache.source, origin=cache.origin)


@derivation(
    reads=(ModelFile, MemoryBudget),
    needs=(WINDOW_ASKED, WINDOW_TRAINED, KV_BITS),
    gives=(KV_EXPECTED_BYTES,),
)
def expected(sight: Sight) -> Iterator[Reading]:
    """Give the cache that this window and type need: by the planner's arithmetic, else by the file's bytes for one token."""
    window = sight.known(WINDOW_ASKED) or sight.known(WINDOW_TRAINED)
    bits = sight.known(KV_BITS)
    planned = [
        (evidence, budget.kv_least_bytes or sum(b.size_bytes for b in budget.buffers if b.component in {"kv", "state"}))
        for evidence, budget in sight.of(MemoryBudget)
        if budget.basis != "log"
    ]
    for evidence, cache in planned[-1:]:
        # the planner knows each layer, so the file's bytes for one token have nothing to add
        yield reading(KV_EXPECTED_BYTES, cache or None, evidence, source="file")
    for evidence, file in sight.of(ModelFile) if not any(cache for _evidence, cache in planned) else ():
        # The bytes for one token are those of full-attention layers: other layers have caches that do not grow so.
        plain = not file.sliding_window and not file.recurrent
        if plain and file.kv_bytes_per_token and window is not None:
            share = bits.value / 16 if bits is not None else 1.0
            yield reading(KV_EXPECTED_BYTES, int(file.kv_bytes_per_token * window.value * share), evidence)


def _all_on_host(events: Sequence[tuple[Evidence, LogEvent]]) -> Evidence | None:
    """Give the line by which a log shows that no accelerator is in use: places are listed, weights and work among them, and all are the host's."""
    placed = [
        (evidence, event)
        for evidence, event in events
        if event.event in {"device-found", "buffer", "alloc-failed"} and event.device
    ]
    if any(on_card(event.device or "") for _evidence, event in placed):
        return None
    if any(event.event == "layers-offloaded" and event.count for _evidence, event in events):
        return None
    made = {event.component: evidence for evidence, event in placed if event.event == "buffer"}
    return made.get("weights") if {"weights", "compute"} <= made.keys() else None


@derivation(
    reads=(DeviceReadings, HostReading, LogEvent, Launch),
    gives=(
        DEVICE_COUNT,
        DEVICE_TOTAL_BYTES,
        DEVICE_FREE_BYTES,
        MEMORY_LIMIT_BYTES,
        ADDRESS_LIMIT_BYTES,
        RAM_BYTES,
        FREE_REPORTED_ZERO,
    ),
)
def room(sight: Sight) -> Iterator[Reading]:
    """Give the memory that there is: devices, host, and the least of what the server may use."""
    events = sight.of(LogEvent)
    for evidence, event in events:
        if event.event == "device-found" and event.device and on_card(event.device) and event.free_bytes == 0:
            yield reading(FREE_REPORTED_ZERO, True, evidence)
    introduced = [(e, v) for e, v in events if v.event == "device-found"]
    found = cards(introduced)
    if found:
        evidence = next(iter(found.values())).evidence
        yield reading(DEVICE_COUNT, len(found), evidence)
        totals = [card.total for card in found.values() if card.total]
        free = [card.free for card in found.values() if card.free is not None]
        if len(totals) == len(found):
            yield reading(DEVICE_TOTAL_BYTES, sum(totals), evidence)
        if len(free) == len(found):
            yield reading(DEVICE_FREE_BYTES, sum(free), evidence)
            yield reading(MEMORY_LIMIT_BYTES, sum(free) or None, evidence)
    elif (on_host := _all_on_host(events)) is not None:
        yield reading(DEVICE_COUNT, 0, on_host)
    readings = sight.of(DeviceReadings)
    for evidence, devices in readings[:1]:
        yield reading(DEVICE_COUNT, len(devices.devices), evidence)
        totals = [d.total_bytes for d in devices.devices if d.total_bytes is not None]
        if totals and len(totals) == len(devices.devices):
            yield reading(DEVICE_TOTAL_BYTES, sum(totals), evidence)
        free = [d.free_bytes for d in devices.devices if d.free_bytes is not None]
        if free and len(free) == len(devices.devices) and "before" in devices.when:
            yield reading(DEVICE_FREE_BYTES, sum(free), evidence)
    host = sight.last(HostReading)
    if host is not None:
        yield reading(RAM_BYTES, host[1].ram_bytes, host[0])
    limits = [
        (launch.address_space_limit_bytes, evidence)
        for evidence, launch in sight.of(Launch)
        if launch.address_space_limit_bytes
    ]
    if host is not None and host[1].address_space_limit_bytes:
        limits.append((host[1].address_space_limit_bytes, host[0]))
    for limit, evidence in limits:
        yield reading(ADDRESS_LIMIT_BYTES, limit, evidence)
        yield reading(MEMORY_LIMIT_BYTES, limit, evidence)
    if not limits and readings and not readings[0][1].devices and host is not None:
        known = [n for n in (host[1].ram_bytes, host[1].cgroup_limit_bytes) if n]
        if known:
            yield reading(MEMORY_LIMIT_BYTES, min(known), host[0])


def _worse(*known: Known[int]) -> Known[int]:
    return max(known, key=lambda k: k.rank)


@derivation(
    needs=(
        ALLOC_BYTES, ALLOC_FREE_BYTES, DEVICE_TOTAL_BYTES, DEVICE_FREE_BYTES, MEMORY_LIMIT_BYTES, WEIGHTS_BYTES, MODEL_BYTES, KV_BYTES,
        KV_EXPECTED_BYTES, COMPUTE_BYTES, RAM_BYTES, ALLOC_COMPONENT, SPECULATION,
    ),
    gives=(
        ALLOC_FREE_RATIO, ALLOC_OF_DEVICE, WEIGHTS_SHARE, KV_SHARE, COMPUTE_SHARE, KV_OF_WEIGHTS, KV_OVER_EXPECTED, COMPUTE_OF_KV, WEIGHTS_OF_RAM,
    ),
)  # fmt: skip
def shares(sight: Sight) -> Iterator[Reading]:
    """Give the shares. Where a compute buffer is what could not be had, its size is the one that was refused."""
    alloc, free, limit = sight.known(ALLOC_BYTES), sight.known(ALLOC_FREE_BYTES), sight.known(MEMORY_LIMIT_BYTES)
    total = sight.known(DEVICE_TOTAL_BYTES)
    weights = sight.known(WEIGHTS_BYTES) or sight.known(MODEL_BYTES)
    component = sight.known(ALLOC_COMPONENT)
    refused = component.value if component is not None and alloc is not None else None
    cache = sight.known(KV_BYTES) or (alloc if refused == "kv" else None)
    compute = alloc if refused == "compute" else sight.known(COMPUTE_BYTES)
    need = cache or sight.known(KV_EXPECTED_BYTES)
    if refused == "kv" and alloc is not None and (need is None or need.value < alloc.value):
        need = alloc
    speculation = sight.known(SPECULATION)
    # a draft keeps a cache of its own, which a log gives in the same words as the model's
    mixed = speculation is not None and speculation.value
    for of, to, fact in (
        (alloc, free, ALLOC_FREE_RATIO),
        (alloc, total, ALLOC_OF_DEVICE),
        (weights, limit, WEIGHTS_SHARE),
        (need, limit, KV_SHARE),
        (compute, limit, COMPUTE_SHARE),
        (cache, weights, KV_OF_WEIGHTS),
        (None if mixed else cache, sight.known(KV_EXPECTED_BYTES), KV_OVER_EXPECTED),
        (compute, cache, COMPUTE_OF_KV),
        (weights, sight.known(RAM_BYTES), WEIGHTS_OF_RAM),
    ):
        if of is not None and to is not None:
            yield reading(fact, ratio(of.value, to.value), source=_worse(of, to).source)


@derivation(reads=(LogEvent,), gives=(MEMORY_FALLS_BACK,))
def after(sight: Sight) -> Iterator[Reading]:
    """Say whether memory falls back after the failure: by a log that gives the memory in use after a refused size."""
    peak = 0
    for evidence, event in sight.of(LogEvent):
        if event.event == "alloc-failed" and event.size_bytes and event.limit_bytes and not over_one_piece(event):
            peak = event.size_bytes
        elif event.event == "memory-use" and event.size_bytes and peak:
            yield reading(MEMORY_FALLS_BACK, event.size_bytes < 0.85 * peak, evidence)


@derivation(
    reads=(LogEvent,),
    needs=(WINDOW_ASKED, WINDOW_IN_FORCE, WINDOW_SLOTS),
    gives=(KV_STREAMS, KV_WHOLE_PER_SLOT, SWA_CACHE_FULL, PIPELINE_COPIES),
)
def layout(sight: Sight) -> Iterator[Reading]:
    """Say how the cache is laid out: streams, whether each has the whole window, full-length sliding-window caches, pipeline copies."""
    asked = sight.known(WINDOW_ASKED)
    for evidence, event in sight.of(LogEvent):
        if event.event == "kv-cache":
            if event.streams and event.which in {None, "base", "main"}:
                yield reading(KV_STREAMS, event.streams, evidence)
                if event.tokens and asked is not None and event.streams > 1:
                    yield reading(KV_WHOLE_PER_SLOT, near(event.tokens, asked.value, 0.02, 256), evidence)
            if event.which == "swa" and event.reason == "full-size":
                yield reading(SWA_CACHE_FULL, True, evidence)
        elif event.event == "pipeline-copies":
            if event.reason and "without" in event.reason:
                continue
            # The line without a number is printed by builds whose number is fixed at four.
            yield reading(PIPELINE_COPIES, event.count or 4, evidence)
