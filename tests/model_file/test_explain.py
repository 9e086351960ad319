"""Laws of the explanation: a prediction is scored device by device, and the component that crosses the line is named with its lack."""

from __future__ import annotations

import pytest

from probes.evidence.events import LogEvent
from probes.evidence.machine import BufferTruth, Device, DeviceProcess, MemoryBudget
from probes.evidence.records import Payload, found
from probes.model_file import budget as predict
from probes.model_file.context import ContextSettings
from probes.model_file.explain import failed_allocation, overflows, place_of, score

GIB, MIB = 1024**3, 1024**2


def budget(basis, *buffers):
    return MemoryBudget(
        basis=basis, buffers=tuple(BufferTruth(device=d, component=c, size_bytes=s) for d, c, s in buffers)
    )


def card(index=0, **how):
    return Device(id=f"nvidia:{index}", name=f"card {index}", vendor="nvidia", **how)


@pytest.mark.parametrize(
    ("name", "place"),
    [("CUDA0", "#0"), ("CUDA1", "#1"), ("nvidia:1", "#1"), ("CPU", "host"), ("CPU_Mapped", "host"), ("CUDA_Host", "host"), ("Metal", "#0"), ("Vulkan3", "#3")],
)  # fmt: skip
def test_names_of_the_same_device(name, place):
    assert place_of(name) == place


def test_a_prediction_is_scored_by_device():
    guess = budget("model", ("nvidia:0", "weights", 5 * GIB), ("nvidia:0", "kv", GIB), ("host", "weights", GIB))
    log = budget(
        "log", ("CUDA0", "weights", 5 * GIB), ("CUDA0", "kv", GIB + 50 * MIB), ("CPU_Mapped", "weights", GIB + 300 * MIB),
        ("CPU_REPACK", "weights", 9 * GIB),
    )  # fmt: skip
    one, other = score(guess, log, ["nvidia:0"]).differences
    assert (one.device, one.agrees, one.worst_component) == ("#0", True, "kv")
    assert (other.device, other.agrees) == ("host", False)


@pytest.mark.parametrize(("free", "component"), [(4, "weights"), (5.5, "kv"), (6.2, "compute"), (7, None)])
def test_the_component_that_crosses_the_line_is_named(free, component):
    need = budget("model", ("nvidia:0", "weights", 5 * GIB), ("nvidia:0", "kv", GIB), ("nvidia:0", "compute", GIB // 2))
    result = overflows(need, [card(free_bytes=int(free * GIB))])
    assert [one.component for one in result] == ([component] if component else [])
    if result:
        assert result[0].lacking_bytes == int(6.5 * GIB) - int(free * GIB)
        assert Payload.kinds["memory_overflow"].model_validate(found(result[0], source="file").data) == result[0]


def test_another_process_or_the_driver_is_named_where_it_makes_the_difference():
    need = budget("model", ("nvidia:0", "weights", 5 * GIB))
    other = (
        DeviceProcess(pid=7, name="game", used_bytes=2 * GIB),
        DeviceProcess(pid=8, used_bytes=9 * GIB, is_server=True),
    )
    assert overflows(need, [card(free_bytes=4 * GIB, processes=other)])[0].component == "other-process"
    assert overflows(need, [card(free_bytes=5 * GIB - MIB, reserved_bytes=300 * MIB)])[0].component == "driver-reserve"
    assert overflows(need, [card(free_bytes=2 * GIB, reserved_bytes=300 * MIB)])[0].component == "weights"
    assert overflows(need, [card(free_bytes=None)]) == []


@pytest.mark.parametrize(
    ("event", "component", "lacking"),
    [
        ({"size_bytes": GIB, "free_bytes": GIB // 2, "component": "compute"}, "compute", GIB // 2),
        ({"size_bytes": GIB, "free_bytes": 2 * GIB, "component": "kv"}, "fragmentation", 0),
        ({"size_bytes": 5 * GIB, "limit_bytes": 4 * GIB, "free_bytes": 9 * GIB}, "oversized-piece", GIB),
        ({"size_bytes": GIB, "api": "host-pinned"}, "pinned-host", None),
        ({"size_bytes": 3 * GIB + MIB}, "kv", None),
        ({"size_bytes": 17}, "other", None),
    ],
)
def test_a_failed_allocation_says_what_it_was_for(event, component, lacking):
    need = budget("model", ("nvidia:0", "kv", 3 * GIB), ("nvidia:0", "weights", 5 * GIB))
    events = [LogEvent(event="slots", line=1), LogEvent(event="alloc-failed", line=2, device="CUDA0", **event)]
    result = failed_allocation(events, need)
    assert (result.component, result.lacking_bytes, result.device) == (component, lacking, "CUDA0")
    assert failed_allocation(events[:1], need) is None


def test_from_a_file_to_the_device_that_fills_first(truth_models):
    """16 GB and 8 GB are not 24 GB: the prediction names the small card and its caches."""
    devices = [card(0, free_bytes=16 * GIB), card(1, free_bytes=8 * GIB)]
    need = predict(truth_models["real-llama-3.1-8b.gguf"], ContextSettings(ctx=131072), devices)
    [one] = overflows(need, devices, margin_bytes=GIB)
    assert (one.device, one.component) == ("nvidia:1", "compute")
    assert one.lacking_bytes > 0
