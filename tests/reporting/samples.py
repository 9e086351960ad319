"""Cases to draw: made by hand from what the articles and public threads describe, with every part of the document filled."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from probes.evidence.records import Evidence, Unavailable
from reports.document import CaseDocument

AT = datetime(2026, 10, 3, 9, 30, tzinfo=UTC)
GIB = 2**30


def spill(**changes: Any) -> CaseDocument:
    """A card that fills at 64K: generation falls off a step; the cause is named, the next test changes the cache type."""
    lengths = (8192, 32768, 65536, 73728, 98304, 129024)
    prefill = (488.25, 455.0, 421.0, 160.0, 71.0, 41.01)
    generation = (42.3, 39.9, 37.0, 21.0, 18.4, 16.0)
    recall = (9, 9, 9, 8, 8, 7)
    rungs = []
    for i, n in enumerate(lengths):
        for attempt in range(1, 4 if n == 65536 else 2):
            rungs.append(  # noqa: PERF401 - two loops read better
                {
                    "run": 1,
                    "input_tokens": n,
                    "planned_tokens": n,
                    "output_tokens": 256,
                    "cached_tokens": 0,
                    "attempt": attempt,
                    "result": "passed" if n <= 65536 else "failed",
                    "error": None if n <= 65536 else "generation speed 16.0 tok/s is below the criterion of 30 tok/s",
                    "prefill_tps": prefill[i] + attempt - 1,
                    "generation_tps": generation[i] + (attempt - 1) / 10,
                    "first_token_s": n / prefill[i],
                    "canaries": {
                        "hit": recall[i],
                        "asked": 9,
                        "by_depth": [{"depth": d / 10, "hit": d <= recall[i]} for d in range(1, 10)],
                    },
                    "constraints": {"met": 3, "asked": 3},
                    "devices": [
                        {"id": "nvidia:0", "peak_bytes": min(int((8.2 + n / 9000) * GIB), int(15.7 * GIB))},
                        {"id": "nvidia:1", "peak_bytes": int((4.1 + n / 40000) * GIB)},
                    ],
                    "host_peak_bytes": int((3 + max(0, n - 65536) / 20000) * GIB),
                }
            )
    data: dict[str, Any] = {
        "tool": {"name": "ctxdoctor", "version": "0.1.0"},
        "case": {
            "id": "2026-10-03-qwen-spill",
            "symptom": "slow-long-context",
            "created": AT,
            "runs": [{"id": 1, "at": AT}],
        },
        "subject": {
            "model": {
                "name": "Qwen3.8-27B-UD-Q5_K_M",
                "path": "/home/alice/models/Qwen3.8-27B-UD-Q5_K_M.gguf",
                "size_bytes": 19_327_352_832,
                "quantization": "Q5_K_M",
                "architecture": "qwen35",
                "trained_window": 262144,
                "header_hash": "9f2c1e0db7a44c5a",
            },
            "backend": {
                "name": "llama.cpp",
                "version": "b11549",
                "build": "b11549 (42b4109e)",
                "url": "http://gpubox.lan:8080",
                "how_run": "started by hand",
                "command": [
                    "llama-server",
                    "-m",
                    "/home/alice/models/Qwen3.8-27B-UD-Q5_K_M.gguf",
                    "-c",
                    "131072",
                    "--cache-type-k",
                    "f16",
                    "--cache-type-v",
                    "f16",
                    "-ngl",
                    "99",
                    "--tensor-split",
                    "2,1",
                    "--api-key",
                    "hunter2-very-secret",
                ],
            },
            "window": {"asked": 131072, "trained": 262144, "per_slot": 131072, "slots": 1, "in_force": 131072},
            "kv_cache": {
                "type_k": "f16",
                "type_v": "f16",
                "placement": "GPU",
                "bytes_per_token": 65536,
                "unified": False,
            },
            "hardware": {
                "devices": [
                    {
                        "id": "nvidia:0",
                        "name": "NVIDIA GeForce RTX 5060 Ti",
                        "vendor": "nvidia",
                        "total_bytes": 16 * GIB,
                        "free_bytes": 15 * GIB,
                        "driver": "580.65.06",
                        "link": "PCIe 5.0 x8 (of x8)",
                    },
                    {
                        "id": "nvidia:1",
                        "name": "NVIDIA GeForce RTX 3070",
                        "vendor": "nvidia",
                        "total_bytes": 8 * GIB,
                        "free_bytes": 7 * GIB,
                        "driver": "580.65.06",
                        "link": "PCIe 3.0 x4 (of x16)",
                    },
                ],
                "ram_bytes": 64 * GIB,
                "os": "Windows 11 (26100)",
                "cpu": "AMD Ryzen 7 7700",
            },
            "placement": {"gpu_layers": 99, "tensor_split": "2,1", "split_mode": "layer", "overrides": None},
            "runtime": {
                "batch": 2048,
                "ubatch": 512,
                "flash_attention": True,
                "parallel": 1,
                "speculation": None,
                "projector": False,
                "rope": None,
                "threads": 8,
                "sampling": {"temperature": 0.0, "top_k": 1},
                "output_tokens": 256,
            },
        },
        "criteria": {
            "repeats": 3,
            "min_canaries": 0.9,
            "min_of_own_base": 0.85,
            "min_constraints": 1.0,
            "min_prefill_tps": 200.0,
            "min_generation_tps": 30.0,
            "max_first_token_s": 180.0,
            "margin_bytes": GIB,
            "fixed_at": AT,
            "hash": "4be7a90c12d35f68",
        },
        "rungs": rungs,
        "window": {
            "asked": 131072,
            "trained": 262144,
            "in_force": 131072,
            "verified_input_tokens": 65536,
            "output_tokens": 256,
            "fits": {"tokens": 129024, "ok": True},
            "fast_enough": {"tokens": 65536, "ok": False},
            "recalls": {"tokens": 65536, "ok": False},
            "statement": None,
        },
        "verdict": {
            "run": 1,
            "named": ["vram-spill-shared-memory"],
            "confirmed": [],
            "abstained_because": None,
            "causes": [
                {
                    "id": "vram-spill-shared-memory",
                    "family": "spill",
                    "band": "likely",
                    "low": 22,
                    "now": 25,
                    "high": 28,
                    "explains": [],
                    "words": "the driver moves video memory to shared system memory",
                    "clues": [
                        {
                            "words": "Generation speed falls off a step where a card is full",
                            "truth": "true",
                            "weight": 10,
                            "facts": [
                                {
                                    "id": "speed.generation.step_at",
                                    "found": 73728,
                                    "source": "measured",
                                    "unit": "tokens",
                                },
                                {"id": "device.peak_share", "found": 0.98, "source": "measured"},
                            ],
                        },
                        {
                            "words": "Shared memory of the device grows with length",
                            "truth": "true",
                            "weight": 10,
                            "facts": [
                                {
                                    "id": "memory.shared_growth_bytes",
                                    "found": 4_294_967_296,
                                    "source": "machine",
                                    "unit": "bytes",
                                }
                            ],
                        },
                        {
                            "words": "An allocation failed",
                            "truth": "false",
                            "weight": 5,
                            "facts": [{"id": "log.alloc_failed", "found": False, "source": "log"}],
                        },
                        {
                            "words": "A control model that surely fits shows no step",
                            "truth": "unknown",
                            "weight": 3,
                            "facts": [{"id": "control.step", "why_unknown": "not-run"}],
                        },
                    ],
                    "overturned_by": ["A control model that falls off the same step"],
                },
                {
                    "id": "depth-cost",
                    "family": "speed",
                    "band": "possible",
                    "low": -4,
                    "now": 6,
                    "high": 9,
                    "explains": [],
                    "words": "the ordinary price of attention at this length",
                    "clues": [
                        {
                            "words": "Speed falls with length",
                            "truth": "true",
                            "weight": 6,
                            "facts": [{"id": "speed.slope", "found": -0.62, "source": "measured"}],
                        },
                        {
                            "words": "The fall is smooth",
                            "truth": "false",
                            "weight": -10,
                            "facts": [{"id": "speed.smooth", "found": False, "source": "measured"}],
                        },
                    ],
                },
            ],
            "set_aside": [
                {
                    "id": "client-proxy-timeout",
                    "band": "ruled-out",
                    "words": "a client or proxy gives up after a round time",
                    "because": "A request ended at a round number of seconds",
                    "because_holds": False,
                },
                {
                    "id": "context-shift",
                    "band": "unlikely",
                    "words": "old text is thrown away when the window is full",
                    "because": "The server processed as many tokens as were sent.",
                    "because_holds": True,
                },
            ],
            "would_decide": ["The same lengths with a model that surely fits"],
        },
        "next_test": {
            "kind": "change",
            "variable": "cache_type",
            "from": "f16",
            "to": "q8_0",
            "command": "llama-server -m /home/alice/models/Qwen3.8-27B-UD-Q5_K_M.gguf -c 131072 --cache-type-k q8_0 --cache-type-v q8_0 -ngl 99 --tensor-split 2,1 --api-key hunter2-very-secret",
            "undo": "--cache-type-k f16 --cache-type-v f16",
            "keep": ["model file", "window", "tensor split", "driver", "content order, sampling and output budget"],
            "expects": [
                {"cause": "vram-spill-shared-memory", "words": "The step moves to about twice the length, or goes"}
            ],
            "cost": {"minutes": 14, "tokens": 410_000, "quality": "some"},
            "reason": "It halves what each token needs, so the step must move if the card's memory is what runs out",
        },
        "changes": [],
        "evidence": [
            Evidence(
                kind="answer", source="user", at=AT, data={"question": "what-changed", "value": "longer documents"}
            ).model_dump(mode="json"),
        ],
        "sent": {"requests": 31, "prompt_tokens": 612_000, "generated_tokens": 7_936},
        "unknown": {
            "subject.placement.overrides": Unavailable(
                why="not-offered", note="no flag of this kind on the command line"
            ).model_dump(),
            "subject.runtime.speculation": Unavailable(why="not-asked").model_dump(),
        },
        "log_lines": [
            {
                "text": "load_tensors: offloaded 65/65 layers to GPU",
                "log": "server.log",
                "line": 112,
                "worth": 4,
                "cause": "vram-spill-shared-memory",
            },
            {
                "text": "llama_kv_cache: size = 8192.00 MiB (131072 cells, 64 layers, 1/1 seqs), K (f16): 4096.00 MiB, V (f16): 4096.00 MiB",
                "log": "server.log",
                "line": 140,
                "worth": 8,
            },
            {
                "text": "srv  log_server_r: request: POST /completion 192.168.1.23 200",
                "log": "server.log",
                "line": 201,
                "worth": 1,
            },
        ],
        "memory": {
            "basis": "log",
            "ctx": 131072,
            "devices": [
                {
                    "id": "nvidia:0",
                    "weights_bytes": 12 * GIB,
                    "kv_bytes": int(5.4 * GIB),
                    "compute_bytes": int(0.9 * GIB),
                    "total_bytes": 16 * GIB,
                },
                {
                    "id": "nvidia:1",
                    "weights_bytes": int(4.5 * GIB),
                    "kv_bytes": int(2.6 * GIB),
                    "compute_bytes": int(0.4 * GIB),
                    "total_bytes": 8 * GIB,
                },
            ],
        },
        "ladder": {
            "rungs": list(lengths),
            "target": 129024,
            "style": "question",
            "able": True,
            "base_hit": 27,
            "base_asked": 27,
            "tokenizer": "server",
            "seed": 7,
        },
        "reproduce": {
            "endpoint": "POST /completion",
            "body": '{"prompt": "…", "n_predict": 256, "temperature": 0, "cache_prompt": false}',
            "fill": "prose with facts such as `ORBIT-17 = copper.` at every tenth of the text",
            "input_tokens": 73728,
            "output_tokens": 256,
        },
        "notes": ["The server was not restarted between the lengths."],
    }
    data.update(changes)
    return CaseDocument.model_validate(data)


def healthy() -> CaseDocument:
    """Nothing wrong: the wanted window is verified."""
    whole = spill().model_dump(mode="json", by_alias=True)
    rungs = []
    for rung in whole["rungs"]:
        rungs.append(
            {
                **rung,
                "result": "passed",
                "error": None,
                "generation_tps": 42.0 - rung["input_tokens"] / 32768,
                "prefill_tps": 488.0 - rung["input_tokens"] / 4096,
            }
        )
        rungs[-1]["canaries"] = {
            "hit": 9,
            "asked": 9,
            "by_depth": [{"depth": d / 10, "hit": True} for d in range(1, 10)],
        }
    whole.update(
        case={**whole["case"], "id": "2026-10-03-healthy", "symptom": None},
        rungs=rungs,
        verdict={"run": 1, "named": [], "confirmed": [], "abstained_because": None, "causes": []},
        next_test=None,
        window={
            "asked": 131072,
            "trained": 262144,
            "in_force": 131072,
            "verified_input_tokens": 129024,
            "output_tokens": 256,
            "fits": {"tokens": 129024, "ok": True},
            "fast_enough": {"tokens": 129024, "ok": True},
            "recalls": {"tokens": 129024, "ok": True},
        },
        unknown={},
        notes=[],
    )
    return CaseDocument.model_validate(whole)


def bare() -> CaseDocument:
    """A failed start: no length was measured, hardly anything is known; two runs, one change that held."""
    return CaseDocument.model_validate(
        {
            "tool": {"name": "ctxdoctor", "version": "0.1.0"},
            "case": {
                "id": "2026-10-04-oom",
                "symptom": "immediate-oom",
                "created": AT,
                "runs": [{"id": 1, "at": AT}, {"id": 2, "at": AT + timedelta(hours=1)}],
            },
            "subject": {"backend": {"name": "ollama", "version": "0.13.1"}, "model": {"name": "gemma3:27b"}},
            "verdict": {
                "run": 2,
                "named": [],
                "confirmed": [],
                "abstained_because": "Two causes explain what was seen and nothing that was measured tells them apart",
                "causes": [
                    {
                        "id": "kv-cache-size",
                        "family": "kv-format",
                        "band": "possible",
                        "low": 2,
                        "now": 9,
                        "high": 15,
                        "clues": [
                            {
                                "words": "The allocation that failed was the cache",
                                "truth": "true",
                                "weight": 6,
                                "facts": [{"id": "log.failed_component", "found": "kv", "source": "log"}],
                            }
                        ],
                    },
                    {
                        "id": "weights-leave-no-room",
                        "family": "backend-allocation",
                        "band": "open",
                        "low": -3,
                        "now": 0,
                        "high": 13,
                        "clues": [
                            {
                                "words": "Hardly anything is free after the weights",
                                "truth": "unknown",
                                "weight": 10,
                                "facts": [{"id": "device.free_after_weights", "why_unknown": "not-run"}],
                            }
                        ],
                    },
                ],
                "would_decide": ["Free memory of each device right after the weights are loaded"],
            },
            "next_test": {
                "kind": "probe",
                "variable": "allocation",
                "from": None,
                "to": None,
                "cost": {"minutes": 1, "tokens": 0, "quality": "none"},
                "reason": "It closes the fact with the greatest weight per minute",
            },
            "changes": [
                {
                    "run": 2,
                    "variables": [{"name": "OLLAMA_NUM_PARALLEL", "before": 4, "after": 1, "source": "process"}],
                    "single": True,
                    "prediction": "failed",
                    "conclusion": "The failure did not move, so the number of slots is not what decides",
                    "kept": False,
                }
            ],
            "log_lines": [
                {
                    "text": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB on device 0: cudaMalloc failed: out of memory",
                    "log": "ollama.log",
                    "line": 88,
                    "worth": 10,
                    "is_error": True,
                }
            ],
            "unknown": {
                "rungs": {"why": "not-run", "note": "the server did not start"},
                "subject.hardware.devices": {"why": "not-offered", "note": "no NVIDIA driver"},
            },
            "conflicts": [
                {
                    "fact": "window.asked",
                    "words": "Window asked for",
                    "believed": 131072,
                    "believed_source": "process",
                    "other": 32768,
                    "other_source": "user",
                }
            ],
        }
    )


def wide(rungs: int = 60, devices: int = 4) -> CaseDocument:
    """As many lengths and devices as the numbers of the specification speak of."""
    whole = spill().model_dump(mode="json", by_alias=True)
    whole["subject"]["hardware"]["devices"] = [
        {**whole["subject"]["hardware"]["devices"][0], "id": f"nvidia:{i}", "name": f"NVIDIA H200 number {i}"}
        for i in range(devices)
    ]
    sample = whole["rungs"][0]
    whole["rungs"] = [
        {
            **sample,
            "input_tokens": 2048 * (i + 1),
            "planned_tokens": 2048 * (i + 1),
            "prefill_tps": 500 / (1 + i / 40),
            "generation_tps": 40 / (1 + i / 30) * (0.5 if i > 40 else 1),
            "canaries": {
                "hit": 9 - i // 20,
                "asked": 9,
                "by_depth": [{"depth": d / 10, "hit": (d + i) % 7 > 0} for d in range(1, 10)],
            },
            "devices": [
                {"id": f"nvidia:{k}", "peak_bytes": int((4 + i / 10 + math.sin(k)) * GIB)} for k in range(devices)
            ],
        }
        for i in range(rungs)
    ]
    whole["memory"]["devices"] = [{**whole["memory"]["devices"][0], "id": f"nvidia:{i}"} for i in range(devices)]
    return CaseDocument.model_validate(whole)


SAMPLES = {"spill": spill, "healthy": healthy, "bare": bare, "wide": wide}
