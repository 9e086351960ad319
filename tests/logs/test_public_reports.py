"""In the log of each public report the event that matters is found, on its line."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from probes.logs import tail_events

REPORTS = Path(__file__).parents[1] / "reports"

MATTERS: dict[str, list[tuple[int, str, dict[str, Any]]]] = {
    "ik-749-sched-max-copies-280gb": [
        (3, "pipeline-copies", {"count": 4}),
        (4, "alloc-failed", {"component": "compute", "device": "CUDA0", "api": "cuda"}),
        (1, "kv-cache", {"type_k": "f16"}),
    ],
    "kobold-1882-compute-buffer-150k": [(6, "alloc-failed", {"component": "compute"}), (3, "kv-cache", {"tokens": 150272}), (4, "pipeline-copies", {})],
    "ollama-17427-half-window": [(2, "window", {"tokens": 65536, "which": "in-force"}), (4, "reply", {"tokens": 32770}), (2, "placement", {"value": 1.0})],
    "ollama-10368-ragflow-2048": [(1, "truncated", {"limit": 2048, "tokens": 5065, "kept": 2048})],
    "llamacpp-23652-unified-kv-overrun": [(4, "window", {"tokens": 1024, "which": "per-slot", "slot": 3})],
    "mlxserve-44-restart-race-oom": [(4, "alloc-failed", {"api": "metal"})],
    "vmlx-50-metal-malloc-83k": [(1, "alloc-failed", {"size_bytes": 447143641344, "limit_bytes": 373662154752, "reason": "over the largest single allocation"})],
    "omlx-1522-prefill-transient": [(1, "alloc-failed", {"component": "activation", "limit_bytes": 42_000_000_000}), (4, "memory-use", {"size_bytes": 24_600_000_000})],
    "ollama-9683-gemma3-kvq8": [(2, "timing", {"phase": "generation", "tps": 18.73}), (4, "timing", {"tps": 27.95})],
    "llamacpppython-96-mixed-kv-fails": [(1, "load-failed", {})],
    "openhuman-3550-lmstudio-nkeep": [(1, "refused", {"tokens": 10247, "limit": 4096})],
    "llamacpp-16983-second-chat-fails": [(1, "cache-reuse", {"similarity": 0.333}), (4, "cache-store", {})],
    "llamacpp-27076-strix-depth-131072": [(1, "device-lost", {"api": "vulkan"})],
    "textgen-5787-output-reserve-1299": [(1, "truncated", {"limit": 4096, "reason": "output-reserve", "kept": 1299, "count": 2797})],
    "kobold-681-sillytavern-shift": [(3, "context-shift", {"count": 240}), (1, "timing", {"phase": "prefill", "tps": 338.83}), (1, "window", {"tokens": 12288})],
    "ollama-18131-mlx-prefix-swap": [(3, "window", {"tokens": 73728}), (2, "placement", {"value": 1.0}), (1, "placement", {"size_bytes": 18_000_000_000})],
    "turboquant-350-localai-cache-ram-minus1": [(1, "alloc-failed", {"component": "pinned"})],
    "ollama-15043-grok-kvq8-panic": [(1, "flash-attention", {"on": False}), (2, "load-failed", {"component": "kv"})],
    "ollama-6647-suspend-999": [(1, "device-lost", {"code": 999}), (2, "device-lost", {"code": 999})],
    "ollama-6026-openwebui-1026": [(1, "reply", {"tokens": 1026, "count": 238})],
    "ollama-434-metal-workingset": [(1, "memory-use", {"key": "metal-working-set"}), (2, "kernel-error", {"api": "metal", "code": 5}), (3, "crash", {})],
    "llamacpp-27638-intel-fa-quadratic": [(1, "prefill-progress", {"tokens": 4373, "tps": 688.6}), (2, "prefill-progress", {"tokens": 8469, "tps": 303.29})],
    "club3090-50-wsl-tdr-157k": [(1, "kernel-error", {"api": "cuda", "reason": "device not ready"}), (2, "crash", {})],
    "ollama-5239-asymmetric-order": [(1, "device-found", {"name": "NVIDIA GeForce RTX 2080 Ti"}), (2, "device-found", {"device": "1"})],
    "rocmfpx-101-zero-free": [(1, "crash", {})],
    "llamacpp-25502-sycl-4gb": [(1, "alloc-failed", {"api": "sycl"})],
    "llamacpp-19724-glm47-65k": [(3, "kernel-error", {"reason": "invalid argument", "key": "launch_fattn"}), (2, "request", {"tokens": 65370})],
    "ik-854-ling-64k-grid": [(1, "kernel-error", {"tokens": 65536, "limit": 65535}), (3, "kernel-error", {"reason": "invalid argument"})],
    "llamacpp-21692-two-processes": [(4, "alloc-failed", {"api": "cuda", "reason": "out of memory", "device": "0"}), (2, "prefill-progress", {"tokens": 118784})],
    "ollama-14332-upgrade-ctx-tier": [(1, "layers-offloaded", {"count": 89, "of": 89}), (2, "buffer", {"component": "weights"}), (3, "window", {"tokens": 4096})],
}  # fmt: skip


def _log(case: str) -> str:
    with (REPORTS / f"{case}.toml").open("rb") as file:
        return str(tomllib.load(file).get("log", "")).removeprefix("\n")


def test_every_report_with_a_log_is_in_the_list() -> None:
    with_log = {path.stem for path in REPORTS.glob("*.toml") if _log(path.stem).strip()}
    assert with_log <= set(MATTERS)


@pytest.mark.parametrize("case", MATTERS)
def test_what_matters_in_the_log_is_found_on_its_line(case: str) -> None:
    events = tail_events(_log(case))
    for line, kind, fields in MATTERS[case]:
        fitting = [event for event in events if event.event == kind and event.line == line]
        assert fitting, (case, line, kind, [(event.line, event.event) for event in events])
        assert any(all(getattr(event, name) == value for name, value in fields.items()) for event in fitting), (
            case,
            kind,
            fitting,
        )
