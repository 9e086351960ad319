"""What a log tells of the machine and of its program stands in the document, where nothing else tells it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from diagnose.document import subject_of
from probes.evidence.machine import Device, DeviceReadings
from probes.evidence.records import Evidence, EvidenceSet, found
from probes.logs import read_log, tail_events
from probes.logs.dialects import DIALECTS
from probes.logs.machine import _INNER, _OUTER, MOST_DEVICES, devices_in, program_in
from rules.catalogue import facts_of
from rules.derive.settings import _WRITES
from rules.facts import BACKEND

MIB = 1 << 20
RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
LLAMACPP = """ggml_cuda_init: found 2 CUDA devices (Total VRAM: 48248 MiB):
  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes, VRAM: 24124 MiB
  Device 1: NVIDIA GeForce RTX 3090, compute capability 8.6, VMM: yes, VRAM: 24124 MiB
build: 7438 (ef83fb860) with GNU 13.3.0 for Linux x86_64
llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 3090) (0000:01:00.0) - 23870 MiB free
llama_model_load_from_file_impl: using device CUDA1 (NVIDIA GeForce RTX 3090) (0000:02:00.0) - 23702 MiB free
load_tensors:        CUDA0 model buffer size = 11500.12 MiB
load_tensors:   CPU_Mapped model buffer size =   400.12 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6564.00 MiB on device 0: cudaMalloc failed: out of memory
"""
OLLAMA = """time=2026-04-19T15:11:33.612-05:00 level=INFO source=types.go:42 msg="inference compute" id=GPU-1f2e filter_id="" library=CUDA compute=8.9 name=CUDA0 description="NVIDIA GeForce RTX 4090" libdirs=ollama,cuda_v12 driver=12.8 pci_id=0000:01:00.0 type=discrete total="24.0 GiB" available="22.1 GiB"
llama_kv_cache:      CUDA0 KV buffer size =  6564.00 MiB
"""
TORCH = """INFO 10-08 09:19:30 [api_server.py:1839] vLLM API server version 0.11.0
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.15 GiB. GPU 0 has a total capacity of 79.25 GiB of which 287.94 MiB is free.
"""
METAL = """ggml_metal_init: recommendedMaxWorkingSetSize  = 51539.61 MB
llama_kv_cache:      Metal KV buffer size =  1024.00 MiB
"""
BUFFERS = """llama_kv_cache:    Vulkan0 KV buffer size =  1024.00 MiB
llama_kv_cache:        CPU KV buffer size =  1024.00 MiB
llama_context: Vulkan_Host  output buffer size =     0.58 MiB
"""


@pytest.mark.parametrize(
    ("log", "devices"),
    [
        (
            LLAMACPP,
            [
                ("CUDA0", "NVIDIA GeForce RTX 3090", "nvidia", 24124 * MIB, 23870 * MIB),
                ("CUDA1", "NVIDIA GeForce RTX 3090", "nvidia", 24124 * MIB, 23702 * MIB),
            ],
        ),
        (OLLAMA, [("CUDA0", "NVIDIA GeForce RTX 4090", "nvidia", 24 << 30, 23729694310)]),
        (TORCH, [("0", None, None, 85094039552, None)]),
        (METAL, [("Metal", None, "apple", None, None)]),
        (BUFFERS, [("Vulkan0", None, None, None, None)]),
        ("nothing of note\n", []),
    ],
)
def test_each_device_once_with_what_any_line_says_of_it(log: str, devices: list[tuple[Any, ...]]) -> None:
    seen = devices_in(tail_events(log))
    assert [(one.id, one.name, one.vendor, one.total_bytes, one.free_bytes) for one in seen] == devices


@pytest.mark.parametrize(
    ("log", "program"),
    [
        (LLAMACPP, ("llama.cpp", "b7438", "7438 (ef83fb860)")),
        (OLLAMA, ("ollama", None, None)),
        (TORCH, ("vllm", "0.11.0", None)),
        (METAL, ("llama.cpp", None, None)),
    ],
)
def test_the_program_is_named_by_its_own_lines_the_outer_one_first(log: str, program: tuple[str | None, ...]) -> None:
    seen = program_in(tail_events(log))
    assert seen is not None
    assert (seen.name, seen.version, seen.build) == program


def test_no_lines_name_no_program_and_a_quoted_refusal_names_none() -> None:
    assert program_in([]) is None
    assert program_in(tail_events("Error 400: This model's maximum context length is 4096 tokens.")) is None


def test_a_flood_of_devices_is_bounded() -> None:
    log = "".join(f"llama_kv_cache: CUDA{number} KV buffer size = 1.00 MiB\n" for number in range(200))
    assert len(devices_in(tail_events(log))) == MOST_DEVICES


def _evidence(log: str) -> list[Evidence]:
    return [found(event, source="log", run=1) for event in tail_events(log)]


def test_the_document_names_them_and_a_drivers_word_goes_first() -> None:
    subject = subject_of(EvidenceSet(_evidence(LLAMACPP)), {})
    assert [one.id for one in subject.hardware.devices] == ["CUDA0", "CUDA1"]
    assert (subject.backend.name, subject.backend.version) == ("llama.cpp", "b7438")
    read = DeviceReadings(devices=(Device(id="GPU-1", name="RTX 3090", vendor="nvidia"),))
    subject = subject_of(EvidenceSet([*_evidence(LLAMACPP), found(read, source="machine", run=1)]), {})
    assert [one.id for one in subject.hardware.devices] == ["GPU-1"]


def test_every_dialect_that_names_a_program_is_one():
    """A name that no dialect has would never be seen."""
    assert {*_INNER, *_OUTER, *_WRITES} <= {*DIALECTS}


def test_llama_cpp_python_is_told_by_its_lines():
    """Its own lines between those of llama.cpp; the time that it takes for reading a prompt is none, and gives no speed."""
    events = list(read_log(RECORDED / "llama-cpp-python-0.3.36.log"))
    program = program_in(events)
    assert program is not None
    assert program.name == "llama-cpp-python"
    assert facts_of(EvidenceSet([found(event, source="log") for event in events])).value(BACKEND) == "llama-cpp-python"
    timings = [event for event in events if event.event == "timing"]
    assert {event.phase for event in timings} == {"generation"}
    assert {2048} == {event.tokens for event in events if event.event == "window" and event.which == "in-force"}
    assert [(event.tokens, event.limit) for event in events if event.event == "refused"] == [(3000, 2048)]
