"""Logs of a server that cannot allocate what it needs, in llama.cpp's format: one or two cards, three interfaces, cache or compute buffer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PATH = "/srv/models/Example-24B-Instruct-Q4_K_M.gguf"


class OnCard(NamedTuple):
    """What a card had free, and what went onto it, in MiB."""

    name: str
    free: int
    weights: float
    kv: float


def _refusal(api: str, index: int, mib: float) -> str:
    size = int(mib * 2**20)
    if api == "Vulkan":
        return f"ggml_vulkan: Device memory allocation of size {size} failed.\nggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory"
    call = "hipMalloc" if api == "ROCm" else "cudaMalloc"
    return f"ggml_backend_cuda_buffer_type_alloc_buffer: allocating {mib:.2f} MiB on device {index}: {call} failed: out of memory"


def oom_log(
    cards: Sequence[OnCard],
    *,
    api: str = "CUDA",
    window: int = 49152,
    trained: int = 32768,
    compute: float | None = None,
) -> str:
    """Write a log in which the last card's cache cannot be had; with ``compute``, the cache can, and the first card's compute buffer cannot."""
    lines = []
    if api == "Vulkan":
        lines.append(f"ggml_vulkan: Found {len(cards)} Vulkan devices:")
        lines += [
            f"ggml_vulkan: {i} = {card.name} (driver) | uma: 0 | fp16: 1 | bf16: 0 | warp size: 32"
            for i, card in enumerate(cards)
        ]
    else:
        lines.append(f"ggml_cuda_init: found {len(cards)} {api} devices:")
        lines += [f"  Device {i}: {card.name}, compute capability 8.6, VMM: yes" for i, card in enumerate(cards)]
    lines += [
        "build: 6123 (79c1160b) with cc (Ubuntu 13.3.0) 13.3.0 for x86_64-linux-gnu",
        "system_info: n_threads = 6 (n_threads_batch = 6) / 12 | CUDA : ARCHS = 860 | CPU : SSE3 = 1 |",
        "main: HTTP server is listening, hostname: 127.0.0.1, port: 8080, http threads: 11",
        f"srv    load_model: loading model '{PATH}'",
    ]
    lines += [
        f"llama_model_load_from_file_impl: using device {api}{i} ({card.name}) - {card.free} MiB free"
        for i, card in enumerate(cards)
    ]
    lines += [
        f"llama_model_loader: loaded meta data with 33 key-value pairs and 771 tensors from {PATH} (version GGUF V3 (latest))",
        "print_info: file type   = Q4_K - Medium",
        "print_info: file size   = 13.34 GiB (4.86 BPW)",
        "print_info: arch             = llama",
        f"print_info: n_ctx_train      = {trained}",
        "print_info: n_layer          = 40",
        "print_info: n_head_kv        = 8",
        "print_info: n_embd_head_k    = 128",
        "print_info: rope type        = 0",
        "print_info: rope scaling     = linear",
        "print_info: freq_base_train  = 1000000.0",
        "print_info: freq_scale_train = 1",
        "print_info: model params     = 23.57 B",
        "print_info: general.name     = Example 24B Instruct",
        "load_tensors: offloaded 41/41 layers to GPU",
    ]
    lines += [f"load_tensors: {api}{i} model buffer size = {card.weights:.2f} MiB" for i, card in enumerate(cards)]
    lines += [
        "llama_context: constructing llama_context",
        "llama_context: n_seq_max     = 1",
        f"llama_context: n_ctx         = {window}",
        f"llama_context: n_ctx_per_seq = {window}",
        "llama_context: n_batch       = 2048",
        "llama_context: n_ubatch      = 256",
        "llama_context: flash_attn    = 0",
        "llama_context: kv_unified    = false",
        "llama_context: freq_base     = 1000000.0",
        "llama_context: freq_scale    = 1",
    ]
    held = list(enumerate(cards)) if compute is not None else list(enumerate(cards))[:-1]
    lines += [f"llama_kv_cache_unified: {api}{i} KV buffer size = {card.kv:.2f} MiB" for i, card in held]
    last = len(cards) - 1
    if compute is None:
        lines += [
            _refusal(api, last, cards[last].kv),
            f"alloc_tensor_range: failed to allocate {api}{last} buffer of size {int(cards[last].kv * 2**20)}",
            "llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache",
        ]
    else:
        total = sum(card.kv for card in cards)
        lines += [
            f"llama_kv_cache_unified: size = {total:.2f} MiB ({window} cells,  40 layers,  1/1 seqs), K (f16): {total / 2:.2f} MiB, V (f16): {total / 2:.2f} MiB",
            _refusal(api, 0, compute),
            f"ggml_gallocr_reserve_n: failed to allocate {api}0 buffer of size {int(compute * 2**20)}",
            "graph_reserve: failed to allocate compute buffers",
            "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers",
        ]
    lines += [
        f"common_init_from_params: failed to create context with model '{PATH}'",
        f"srv    load_model: failed to load model, '{PATH}'",
        "main: exiting due to model loading error",
    ]
    return "\n".join(lines) + "\n"
