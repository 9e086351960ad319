"""A line of any server, in the words of its source, becomes the event that it means."""

from __future__ import annotations

from typing import Any

import pytest

from probes.logs import tail_events
from probes.logs.dialects import DIALECTS, all_rules
from probes.logs.rule import EVENT_FIELDS

MIB = 1 << 20
GIB = 1 << 30

LINES: list[tuple[str, str, dict[str, Any]]] = [
    # llama.cpp, server
    ("0.01.769.558 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'", "slots", {"count": 4, "unified": True}),
    ("0.01.769.558 I srv    load_model: initializing, n_slots = 4, n_ctx_slot = 8192, kv_unified = 'true'", "window", {"tokens": 8192, "which": "per-slot"}),
    ("srv  load_model: initializing slots, n_slots = 2", "slots", {"count": 2}),
    ("srv  load_model: capping per-slot context (65536) to --kv-unified-per-slot (16384)", "window-capped", {"of": 65536, "tokens": 16384, "reason": "per-slot"}),
    ("0.02.1 W srv  load_model: the slot context (131072) exceeds the training context of the model (40960) - capping", "window-capped", {"of": 131072, "tokens": 40960, "reason": "trained"}),
    ("W srv  load_model: ctx_shift is not supported by multimodal, it will be disabled", "unsupported", {"key": "ctx_shift"}),
    ("W llama_context: Flash Attention not supported, set to disabled", "flash-attention", {"on": None}),
    ("W llama_context: layer 3 is assigned to device CUDA0 but the Flash Attention tensor is assigned to device CPU (usually due to missing support)", "flash-attention", {"on": False, "device": "CUDA0", "value": "CPU"}),
    ("warning: no usable GPU found, --gpu-layers option will be ignored", "config-ignored", {"key": "gpu_layers"}),
    ("E srv  load_model: failed to load model, '/m.gguf'", "load-failed", {}),
    ("llama_model_load: error loading model: unknown model architecture: 'qwen9'", "load-failed", {"reason": "unknown model architecture: 'qwen9'"}),
    ("slot print_timing: id  0 | task 0 | prompt processing, n_tokens =   4373, progress = 0.15, t =   6.35 s / 688.60 tokens per second", "prefill-progress", {"tokens": 4373, "seconds": 6.35, "tps": 688.6}),
    ("slot update_slots: id  0 | task 0 | prompt processing progress, n_past = 2048, n_tokens = 2048, progress = 0.500000", "prefill-progress", {"tokens": 2048, "of": 4096}),
    ("slot print_timing: id  1 | task 17 | prompt eval time =     336.86 ms /     1 tokens (  336.86 ms per token,     2.97 tokens per second)", "timing", {"phase": "prefill", "tokens": 1, "tps": 2.97}),
    ("llama_print_timings:        eval time =    4511.96 ms /    16 runs   (  300.80 ms per token,     3.32 tokens per second)", "timing", {"phase": "generation", "tokens": 16}),
    ("slot print_timing: id  0 | task 9 | draft acceptance = 0.75000 (   75 accepted /   100 generated), mean len =  3.00", "speculation", {"accepted": 75, "count": 100, "value": 0.75}),
    ("1.30.881.856 I spec common_specu: statistics     draft-simple: #calls(b,g,a) =    6     36     36, #gen drafts =     36, #acc drafts =    36, #gen tokens =    258, #acc tokens =   246, #mean acc len = 7.83, #acc rate/pos = (1.000, 1.000, 1.000, 0.833, 0.833, 0.833, 0.667, 0.667), dur(b,g,a) = 0.047, 32989.713, 0.038 ms", "speculation", {"key": "drafting", "of": 258, "accepted": 246}),
    ("slot print_timing: id  0 | task 9 | draft acceptance rate = 0.57576 (  171 accepted /   297 generated)", "speculation", {"accepted": 171, "count": 297}),
    ("E srv  send_error: task id = 34, error: request (1500 tokens) exceeds the available context size (1024 tokens), try increasing it", "refused", {"tokens": 1500, "limit": 1024}),
    ("the request exceeds the available context size, try increasing it", "refused", {}),
    ("srv  update_slots: input (9000 tokens) is too large to process. increase the physical batch size (current batch size: 512)", "refused", {"tokens": 9000, "limit": 512, "reason": "batch"}),
    ("W srv          stop: cancel task, id_task = 34", "cancelled", {"task": 34}),
    ("W slot update_slots: id  0 | task 7 | slot context shift, n_keep = 1, n_left = 4094, n_discard = 2047", "context-shift", {"kept": 1, "of": 4094, "count": 2047}),
    ("W srv decode: failed to find free space in the KV cache, retrying with smaller batch size, off = 0, n_batch = 256, ret = 1", "pool-full", {"count": 256, "code": 1}),
    ("W decode: failed to find a memory slot for batch of size 512", "pool-full", {"count": 512, "reason": "no-slot"}),
    ("W srv  try_clear_id: purging slot 2 with 12345 tokens", "pool-full", {"slot": 2, "tokens": 12345}),
    ("E srv        decode: Context size has been exceeded. off = 384, n_batch = 1, ret = 1", "pool-full", {"reason": "no-slot", "count": 1}),
    ("E srv        decode: Compute error. off = 0, n_batch = 512, ret = -3", "decode-failed", {"code": -3, "reason": "compute"}),
    ("update_slots : failed to decode the batch, n_batch = 1, ret = 1", "decode-failed", {"code": 1, "reason": "no-slot"}),
    ("llama_decode: failed to decode, ret = -2", "decode-failed", {"code": -2, "reason": "compute"}),
    ("W slot operator(): id  0 | task 3 | forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see https://x)", "full-reprocess", {"reason": "swa-or-hybrid"}),
    ("slot update_slots: id  3 | task 5 | restored context checkpoint (pos_min = 100, pos_max = 8191, n_tokens = 8192, n_past = 8192, size = 61.250 MiB)", "checkpoint", {"key": "restored", "tokens": 8192, "size_bytes": round(61.25 * MIB)}),
    ("slot update_slots: id  3 | task 5 | erased invalidated context checkpoint (pos_min = 1, pos_max = 2, n_tokens = 3, n_swa = 1, pos_next = 0, size = 10.000 MiB)", "checkpoint", {"key": "erased"}),
    ("slot get_availabl: id  1 | task -1 | selected slot by LCP similarity, f_sim_best = 0.998 (> 0.100 thold), f_keep = 0.976", "cache-reuse", {"similarity": 0.998}),
    ("slot update_slots: id  1 | task 17 | cached n_tokens = 600, memory_seq_rm [600, end)", "cache-reuse", {"tokens": 600, "key": "kept"}),
    ("srv        update:  - cache state: 27 prompts, 7377.676 MiB (limits: 8192.000 MiB, 131072 tokens, 145000 est)", "cache-store", {"count": 27, "size_bytes": round(7377.676 * MIB), "limit_bytes": 8 * GIB}),
    ("srv   prompt_save:  - saving prompt with length 99, total state size = 10.830 MiB", "cache-store", {"tokens": 99}),
    ("W srv  update:  - cache size limit reached, removing oldest entry (size = 512.000 MiB)", "cache-evicted", {"size_bytes": 512 * MIB}),
    ("E srv  alloc: failed to allocate memory for prompt cache state: std::bad_alloc", "alloc-failed", {"reason": "prompt cache", "api": "cpu"}),
    ("W input truncated, n_ctx = 4096, n_keep = 0, n_left = 4096, n_prompt_tokens = 9000", "truncated", {"limit": 4096, "tokens": 9000}),
    ("slot      release: id  1 | task 0 | stop processing: n_tokens = 1024, truncated = 1", "truncated", {"tokens": 1024}),
    # exllamav2 and tabbyAPI
    ("AssertionError: Job requires 33 pages (only 32 available) and cannot be enqueued. Total cache allocated is 32 * 256 = 8192 tokens", "refused", {"tokens": 8448, "limit": 8192, "reason": "prompt-and-answer"}),
    ("Job requires 33 pages (only 32 available)", "refused", {"tokens": None, "limit": None}),
    # an old ggml's numbered error
    ("CUDA error 2 at ggml-cuda.cu:3844: out of memory", "alloc-failed", {"code": 2, "api": "cuda"}),
    ("CUDA error 700 at ggml-cuda.cu:6951: an illegal memory access was encountered", "kernel-error", {"code": 700}),
    # llama.cpp, load and memory, old and new
    ("llama_model_load_from_file_impl: using device CUDA0 (NVIDIA GeForce RTX 4090) (0000:01:00.0) - 23013 MiB free", "device-found", {"device": "CUDA0", "free_bytes": 23013 * MIB}),
    ("ggml_cuda_init:   Device 0: NVIDIA GeForce RTX 4090, compute capability 8.9, VMM: yes, VRAM: 24080 MiB", "device-found", {"device": "0", "total_bytes": 24080 * MIB}),
    ("load_tensors:      ROCm0 model buffer size = 12345.67 MiB", "buffer", {"device": "ROCm0", "component": "weights", "size_bytes": round(12345.67 * MIB)}),
    ("llm_load_tensors:  CUDA_Host buffer size =   281.81 MiB", "buffer", {"device": "CUDA_Host", "component": "weights"}),
    ("llama_kv_cache_init:      Vulkan0 KV buffer size =   512.00 MiB", "buffer", {"device": "Vulkan0", "component": "kv"}),
    ("llama_memory_recurrent:      CUDA0 RS buffer size =   147.00 MiB", "buffer", {"component": "state"}),
    ("sched_reserve:      SYCL0 compute buffer size =   304.75 MiB", "buffer", {"device": "SYCL0", "component": "compute"}),
    ("llama_context: RPC0[192.168.1.2:50052] compute buffer size =   304.75 MiB", "buffer", {"device": "RPC0[192.168.1.2:50052]", "component": "compute"}),
    ("alloc_compute_meta:      CUDA0 compute buffer size =   198.93 MiB", "buffer", {"component": "projector"}),
    ("llama_kv_cache_unified: size =  512.00 MiB (  4096 cells,  32 layers,  1/ 1 seqs), K (f16):  256.00 MiB, V (f16):  256.00 MiB", "kv-cache", {"tokens": 4096, "layers": 32, "streams": 1, "size_bytes": 512 * MIB}),
    ("llama_kv_cache: size =   27.42 MiB (  1024 cells,  30 layers,  3/3 seqs), K (q8_0):   17.93 MiB, V (q4_0):    9.49 MiB", "kv-cache", {"tokens": 1024, "streams": 3, "count": 3, "type_k": "q8_0", "type_v": "q4_0"}),
    ("llama_new_context_with_model: KV self size  = 4096.00 MiB, K (f16): 2048.00 MiB, V (f16): 2048.00 MiB", "kv-cache", {"size_bytes": 4 * GIB, "type_k": "f16", "type_v": "f16"}),
    ("llama_kv_cache_iswa: creating     SWA KV cache, size = 1536 cells", "kv-cache", {"which": "swa", "tokens": 1536}),
    ("llama_kv_cache_iswa: creating non-SWA KV cache, size = 32768 cells", "kv-cache", {"which": "base", "tokens": 32768}),
    ("llama_memory_recurrent: size =  149.62 MiB (     1 cells,  64 layers,  1 seqs), R (f32):    5.62 MiB, S (f32):  144.00 MiB", "kv-cache", {"which": "state", "layers": 64}),
    ("llama_context: n_ctx                 = 131072", "window", {"which": "in-force", "tokens": 131072}),
    ("llama_new_context_with_model: n_ctx      = 32768", "window", {"which": "in-force", "tokens": 32768}),
    ("llama_context: n_ctx_per_seq         = 2048", "window", {"which": "per-slot", "tokens": 2048}),
    ("W llama_context: n_ctx_per_seq (65536) > n_ctx_train (32768) -- possible training context overflow", "window", {"tokens": 65536, "of": 32768, "key": "over-trained"}),
    ("llama_context: flash_attn            = disabled", "flash-attention", {"on": False}),
    ("llama_new_context_with_model: flash_attn = 1", "flash-attention", {"on": True}),
    ("print_info: n_ctx_train      = 40960", "window", {"which": "trained", "tokens": 40960}),
    ("llm_load_print_meta: n_ctx_train      = 4096", "window", {"which": "trained", "tokens": 4096}),
    ("llama_model_loader: - kv  11:                       qwen3.context_length u32              = 40960", "window", {"which": "trained", "tokens": 40960}),
    ("llama_init_from_model: custom YaRN scaling detected, re-adjusting n_ctx_train(8192)...", "window", {"which": "trained", "tokens": 8192}),
    ("llama_init_from_model: n_ctx_train adjusted to 16384", "window", {"which": "stretched", "tokens": 16384, "key": "yarn"}),
    ("print_info: rope scaling     = yarn", "rope", {"key": "rope_scaling", "value": "yarn"}),
    ("llama_context: pipeline parallelism enabled (n_copies=4)", "pipeline-copies", {"count": 4}),
    ("load_tensors: offloaded 20/49 layers to GPU", "layers-offloaded", {"count": 20, "of": 49}),
    ("llama_context: graph splits = 396 (with bs=512), 3 (with bs=1)", "graph", {"count": 396, "key": "splits"}),
    ("llama_params_fit_impl: context size reduced from 131072 to 40960 -> need 1234 MiB less memory in total", "window-capped", {"of": 131072, "tokens": 40960, "reason": "fit"}),
    ("common_params_fit_impl: projected to use 30123 MiB of device memory vs. 22000 MiB of free device memory", "fit", {"key": "projected", "size_bytes": 30123 * MIB, "free_bytes": 22000 * MIB}),
    ("W common_fit_params: failed to fit params to free device memory: n_gpu_layers already set by user to 99, abort", "fit", {"key": "failed"}),
    ("common_memory_breakdown_print: |   - CUDA0 (RTX 4090) | 24080 = 1234 + (22000 = 18000 + 3000 + 1000) + 846 |", "buffer", {"device": "CUDA0", "component": "weights", "size_bytes": 18000 * MIB}),
    ('{"type":"fit_memory_breakdown","data":{"unit":"MiB","rows":[{"kind":"device","name":"CUDA0","description":"RTX","total":24080,"free":900,"self":22000,"model":18000,"context":3000,"compute":1000,"unaccounted":846}]}}', "device-found", {"device": "CUDA0", "free_bytes": 900 * MIB}),
    ('{"type":"log","time":1,"level":"error","msg":"srv  load_model: failed to load model, \'x\'\\n"}', "load-failed", {"level": "error"}),
    # refusals and failed allocations
    ("llama_init_from_model: failed to initialize the context: quantized V cache was requested, but this requires Flash Attention", "load-failed", {"reason": "quantised V cache needs flash attention"}),
    ("llama_new_context_with_model: V cache quantization requires flash_attn", "load-failed", {"reason": "quantised V cache needs flash attention"}),
    ("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 1: cudaMalloc failed: out of memory", "alloc-failed", {"device": "1", "api": "cuda", "size_bytes": 4 * GIB}),
    ("ggml_gallocr_reserve_n_impl: failed to allocate ROCm0 buffer of size 5000000000", "alloc-failed", {"device": "ROCm0", "api": "rocm", "component": "compute", "size_bytes": 5_000_000_000}),
    ("ggml_gallocr_reserve_n: failed to allocate CUDA_Host buffer of size 5000000000", "alloc-failed", {"device": "CUDA_Host", "api": "host-pinned"}),
    ("ggml_cuda_host_malloc: failed to allocate 9000.00 MiB of pinned memory: out of memory", "alloc-failed", {"component": "pinned", "api": "host-pinned", "size_bytes": 9000 * MIB}),
    ("llama_model_load: error loading model: unable to allocate CUDA0 buffer", "alloc-failed", {"component": "weights", "device": "CUDA0"}),
    ("ggml_vulkan: Device memory allocation of size 6442450944 failed.", "alloc-failed", {"api": "vulkan", "size_bytes": 6 * GIB}),
    ("ggml_vulkan: Requested buffer size exceeds device buffer size limit: ErrorOutOfDeviceMemory", "alloc-failed", {"api": "vulkan", "reason": "over the largest single allocation"}),
    ("error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)", "alloc-failed", {"api": "metal"}),
    ("ggml_metal_synchronize: error: command buffer 0 failed with status 5", "kernel-error", {"api": "metal", "code": 5}),
    ("error 39 UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY, Error OP MUL_MAT", "alloc-failed", {"api": "sycl"}),
    ("E ggml_aligned_malloc: insufficient memory (attempted to allocate 7200.00 MB)", "alloc-failed", {"api": "cpu", "size_bytes": 7200 * MIB}),
    # devices
    ("CUDA error: an illegal memory access was encountered", "kernel-error", {"api": "cuda"}),
    ("ROCm error: unspecified launch failure", "kernel-error", {"api": "rocm"}),
    ("CUDA error: out of memory", "alloc-failed", {"api": "cuda"}),
    ("vk::Queue::submit: ErrorDeviceLost", "device-lost", {"api": "vulkan"}),
    ("GGML_ASSERT(n_ctx % 256 == 0) failed", "crash", {}),
    # other servers
    ("2026/08/01 The model crashed without additional information. (Exit code: 6)", "crash", {"code": 6}),
    ("Trying to keep the first 9012 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough.", "refused", {"tokens": 9012, "limit": 4096}),
    ("Cannot truncate prompt with n_keep (5000) >= n_ctx (4096)", "refused", {"tokens": 5000, "limit": 4096}),
    ("Reached context length of 8192 tokens with model (arch: gemma3) that does not currently support mid-generation context overflow.", "truncated", {"limit": 8192}),
    ("omlx.scheduler - WARNING - Prefill force-stopped at 90000 tokens: memory 42.8GB exceeds ceiling 42.0GB", "alloc-failed", {"component": "activation", "tokens": 90000}),
    ("Prompt: 1234 tokens, 567.800 tokens-per-sec", "timing", {"phase": "prefill", "tps": 567.8}),
    ("The decoder prompt (length 40000) is longer than the maximum model length of 32768.", "refused", {"tokens": 40000, "limit": 32768}),
    ("WARNING 05-01 10:00:00 Sequence group 5 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=51", "preempted", {"count": 51}),
    ("# GPU blocks: 2500, # CPU blocks: 512", "kv-pool", {"count": 2500}),
    ("Maximum concurrency for 4,096 tokens per request: 1.23x", "kv-pool", {"of": 4096, "value": 1.23}),
    ("Metrics (ID: a1): 64 tokens generated in 3.2 seconds (Queue: 0.0 s, Process: 4096 cached tokens and 812 new tokens at 1500.5 T/s, Generate: 24.1 T/s, Context: 4908 tokens)", "cache-reuse", {"tokens": 4096, "of": 4908}),
    ("RuntimeError: Insufficient VRAM in split for model and cache", "alloc-failed", {"component": "weights"}),
    ("Prompt length 9000 exceeds the available context size of 8192 tokens", "refused", {"tokens": 9000, "limit": 8192}),
    ("User message truncated from 9000 to 4000 tokens. Context full: 8192", "truncated", {"tokens": 9000, "kept": 4000}),
    ("ValueError: Requested tokens (5000) exceed context window of 2048", "refused", {"tokens": 5000, "limit": 2048}),
    ("[WARN] group: starting broken failed: upstream command exited prematurely", "load-failed", {"name": "broken", "reason": "upstream command exited prematurely"}),
    ("[WARN] group: starting author/slow failed: health check timed out after 30s", "timeout", {"reason": "load", "seconds": 30}),
    ("[WARN] <coder> upstream process exited unexpectedly", "crash", {"key": "upstream"}),
    ("[INFO] <author/small> Unloading model, TTL of 8s reached", "slept", {"name": "author/small", "seconds": 8, "key": "idle"}),
    ("2026/11/30 03:51:50 http: proxy error: EOF", "http", {"status": 502, "reason": "EOF"}),
    ('[INFO] Request 127.0.0.1 "POST /upstream/coder/completion HTTP/1.1" 502 0 "ctxdoctor" 1.366569ms', "http", {"status": 502, "name": "/upstream/coder/completion"}),
    ("[DEBUG] <coder> Executing start command: llama-server --port 41000 -m /m.gguf -c 65536, env: HF_TOKEN=secret", "command", {"value": "llama-server --port 41000 -m /m.gguf -c 65536"}),
    ("Llama.generate: 811 prefix-match found but partial kv removal not supported, re-evaluating full prompt", "full-reprocess", {"tokens": 811, "reason": "swa-or-hybrid"}),
    ("Llama.generate: full prompt already cached, skipping reset", "cache-reuse", {"key": "whole"}),
    ("Disconnected from client (via refresh/close) Address(host='127.0.0.1', port=50000)", "cancelled", {}),
    ("ValueError: Failed to create llama_context", "load-failed", {"reason": "Failed to create llama_context"}),
    ("ValueError: Requested tokens (9001) exceed context window of 4096", "refused", {"tokens": 9001, "limit": 4096}),
    ("Llama.generate: 811 prefix-match hit, remaining 12 prompt tokens to eval", "cache-reuse", {"tokens": 811, "count": 12}),
    ("serving qwen with a context window of 65536 tokens", "window", {"tokens": 65536}),
    ("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.98 GiB of which 1.20 GiB is free.", "alloc-failed", {"api": "torch", "size_bytes": 2 * GIB}),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.69 GiB total capacity; 22.10 GiB already allocated; 10.69 MiB free; 22.90 GiB reserved in total by PyTorch)", "alloc-failed", {"size_bytes": 20 * MIB, "free_bytes": round(10.69 * MIB)}),
    # the system
    ("kernel: Out of memory: Killed process 4321 (llama-server) total-vm:1kB, anon-rss:1024kB, file-rss:0kB, shmem-rss:0kB", "oom-killer", {"pid": 4321, "name": "llama-server", "size_bytes": MIB}),
    ("ollama.service: A process of this unit has been killed by the OOM killer.", "oom-killer", {}),
    ("amdgpu: [drm] ring gfx_0.0.0 timeout, signaled seq=1, emitted seq=3", "watchdog", {"api": "drm"}),
    ("NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.", "hardware", {"code": 79}),
    ("NVRM: Xid (PCI:0000:01:00): 79, pid=1, name=x, GPU has fallen off the bus.", "device-lost", {}),
    ("Display driver nvlddmkm stopped responding and has successfully recovered.", "watchdog", {"api": "tdr"}),
    ('panic(cpu 4 caller 0xfffffe00): "completeMemory() prepare count underflow" @IOGPUMemory.cpp:550', "crash", {"key": "kernel-panic"}),
    ("systemd[1]: llama.service: Main process exited, code=killed, status=9/KILL", "crash", {"code": 9}),
    # clients
    ("litellm.Timeout: APITimeoutError - Request timed out after 600.0 seconds", "timeout", {"seconds": 600.0}),
    ("upstream timed out (110: Connection timed out) while reading response header from upstream", "timeout", {"reason": "proxy"}),
    ("TypeError: fetch failed cause: HeadersTimeoutError: Headers Timeout Error code: 'UND_ERR_HEADERS_TIMEOUT'", "timeout", {"reason": "client"}),
    ('"usage":{"prompt_tokens":193,"completion_tokens":3903,"total_tokens":4096}', "reply", {"tokens": 193, "count": 3903, "of": 4096}),
    # a program that nobody knows
    ("2026-01-01 12:00:00 myserver ERROR could not do the thing 17", "generic-error", {"level": "error"}),
    ("panic: runtime error: index out of range [5]", "crash", {}),
    ("Segmentation fault (core dumped)", "crash", {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "kind", "fields"), LINES, ids=[f"{number}-{kind}" for number, (_l, kind, _f) in enumerate(LINES)]
)
def test_each_documented_line_gives_its_event_with_its_numbers(line: str, kind: str, fields: dict[str, Any]) -> None:
    events = [event for event in tail_events(line) if event.event == kind]
    assert events, [event.event for event in tail_events(line)]
    assert events[0].line == 1
    for name, value in fields.items():
        found = getattr(events[0], name)
        assert (
            found == pytest.approx(value, rel=1e-3)
            if isinstance(value, float | int) and not isinstance(value, bool)
            else found == value
        ), (name, found)


@pytest.mark.parametrize(
    "frame",
    [
        "\x1b[31m{}\x1b[0m",
        "llama-1  | {}",
        "[49787] {}",
        "Nov 29 20:30:11 host llama-server[77]: {}",
        '{{"log":"{}\\n","stream":"stderr","time":"2026-01-01T00:00:00Z"}}',
        '{{"MESSAGE":"{}","PRIORITY":"3","__REALTIME_TIMESTAMP":"1"}}',
        "2026-01-01T00:00:00.000000000Z stderr F {}",
    ],
)
def test_a_line_means_the_same_in_every_frame(frame: str) -> None:
    line = "W decode: failed to find a memory slot for batch of size 512"
    assert [(event.event, event.count) for event in tail_events(frame.format(line))] == [("pool-full", 512)]


def test_journald_byte_arrays_are_read() -> None:
    message = list(b"\x1b[33mW decode: failed to find a memory slot for batch of size 512\x1b[0m")
    for gap in ("", " "):  # as journald writes it, and as it is after a script
        framed = f'{{"MESSAGE":{gap}{message},"PRIORITY":"4"}}'
        assert [event.event for event in tail_events(framed)] == ["pool-full"]


def test_every_rule_has_literals_and_fields_that_events_have() -> None:
    for rule in all_rules():
        assert rule.literals, rule
        assert all(len(literal.encode()) >= 3 for literal in rule.literals), rule
        assert not set(rule.fixed) - EVENT_FIELDS, rule
        assert rule.dialect in DIALECTS


def test_quiet_chatter_gives_no_events() -> None:
    chatter = [
        "0.01.781.690 I srv  update_slots: all slots are idle",
        '127.0.0.1 - - [29/Nov/2026] "GET /health HTTP/1.1" 200 -',
        "the user asked about errors of memory in chapter five",
        "INFO:     Application startup complete.",
    ]
    assert [event for line in chatter for event in tail_events(line)] == []


def test_every_pattern_compiles_and_needs_one_of_its_literals() -> None:
    for rule in all_rules():
        assert rule.pattern.pattern == rule.text
        # Nothing may match the empty line: a rule that does says something about every line.
        assert not rule.pattern.fullmatch("") or rule.make is not None or rule.event == "speculation", rule
