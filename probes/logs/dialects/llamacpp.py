# ruff: noqa: E501, ARG001, ARG005 - a pattern is read best on one line; every maker takes the match and its fields
"""llama.cpp (llama-server, llama-cli, libllama, ggml) in its old and new forms, and whatever embeds it.

Formats of the builds of 2023 to 2026: function names before the colon change often and are not relied on; the text after them is.
"""

from __future__ import annotations

import re

from probes.evidence.events import EventKind
from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "llamacpp"

_PROJECTOR_HEADS = re.compile(r"(?:alloc_compute_meta|reserve_compute_meta|warmup|clip_\w+|mtmd\w*)\s*:")
_COMPONENTS = {"model": "weights", "kv": "kv", "rs": "state", "compute": "compute", "output": "output"}


def _buffer(match: re.Match[str], fields: Fields) -> Found:
    device = fields.get("device") or ""
    what = (match["what"] or "").split()[-1:] or [""]
    component = _COMPONENTS.get(what[0].lower())
    head = match.string[: match.start("device")]
    if _PROJECTOR_HEADS.search(head):
        component = "projector"
    elif component is None:
        component = (
            "weights"
            if "load_tensors" in head
            else "kv"
            if "kv_cache" in head
            else "state"
            if match["state"]
            else "other"
        )
    if not re.match(
        r"(?:CUDA|ROCm|HIP|MUSA|Vulkan|SYCL|MTL|Metal|CPU|RPC|Meta|CANN|OpenCL|HTP|BLAS|Kompute|GPU|VK|NPU|ACCEL|WebGPU|ZenDNN)",
        device,
        re.IGNORECASE,
    ):
        return []
    fields.update(device=device, component=component)
    return [("buffer", fields)]


def _kv_total(match: re.Match[str], fields: Fields) -> Found:
    head = match.string[: match.start()]
    seqs, streams = integer(match["seqs"] or ""), integer(match["streams"] or "")
    fields["streams"] = streams if streams is not None else seqs
    fields["count"] = seqs
    fields["which"] = "indexer" if "indexer" in head else "base"
    return [("kv-cache", fields)]


def _kv_self(match: re.Match[str], fields: Fields) -> Found:
    fields.setdefault("which", "base")
    if fields.get("type_v") == "not used":
        fields["type_v"] = None
    return [("kv-cache", fields)]


def _creating(match: re.Match[str], fields: Fields) -> Found:
    what = " ".join(match["what"].lower().split())
    fields["which"] = {"non-swa": "base", "swa": "swa", "main": "main", "indexer": "indexer"}.get(
        what, what.replace(" ", "-")
    )
    return [("kv-cache", fields)]


def _context_value(match: re.Match[str], fields: Fields) -> Found:
    key, text = match["key"], match["text"].strip().strip("'")
    value = integer(text)
    if key in {"n_ctx", "n_ctx_seq", "n_ctx_per_seq"}:
        if value is None:
            return []
        return [("window", {"which": "in-force" if key == "n_ctx" else "per-slot", "tokens": value, "key": key})]
    if key == "flash_attn":
        return [
            ("flash-attention", {"on": None if text == "auto" else text in {"enabled", "1", "true"}, "reason": text})
        ]
    if key == "n_seq_max":
        return [("slots", {"count": value, "key": key})]
    if key == "kv_unified":
        return [("slots", {"unified": text in {"true", "1"}, "key": key})]
    if key in {"freq_base", "freq_scale"}:
        return [("rope", {"key": key, "value": number(text)})]
    return [("model-info", {"key": key, "value": value if value is not None else text})]


_INFO_KEYS = {
    "n_ctx_train": "n_ctx_train", "n_ctx_orig_yarn": "n_ctx_orig_yarn", "n_layer": "n_layer", "n_layer_all": "n_layer", "n_swa": "n_swa",
    "n_head": "n_head", "n_head_kv": "n_head_kv", "n_embd_head_k": "n_embd_head_k", "n_vocab": "n_vocab", "n_expert": "n_expert",
    "n_layer_nextn": "n_layer_nextn", "arch": "arch", "file type": "file_type", "ftype": "file_type", "model ftype": "file_type",
    "file size": "file_size", "model size": "file_size", "model params": "n_params", "general.name": "name", "model type": "model_type",
    "rope scaling": "rope_scaling", "freq_base_train": "freq_base_train", "freq_scale_train": "freq_scale_train",
    "n_yarn_orig_ctx": "n_ctx_orig_yarn", "rope type": "rope_type", "ssm_d_state": "ssm_d_state",
}  # fmt: skip


def _print_info(match: re.Match[str], fields: Fields) -> Found:
    key = _INFO_KEYS.get(match["key"].strip())
    text = match["text"].strip()
    if key is None or not text:
        return []
    if key in {"rope_scaling", "freq_base_train", "freq_scale_train", "rope_type"}:
        value = number(text)
        return [("rope", {"key": key, "value": text if value is None else value})]
    if key == "n_ctx_train":
        return [("window", {"which": "trained", "tokens": integer(text), "key": key})]
    if key == "file_size":
        size = re.match(r"([\d.]+)\s*([GM])i?B", text)
        amount = number(size[1]) if size else None
        if amount is None or size is None:
            return []
        return [("model-info", {"key": key, "size_bytes": round(amount * (1 << (30 if size[2] == "G" else 20)))})]
    value = integer(text) if key.startswith("n_") else None
    return [("model-info", {"key": key, "value": value if value is not None else text})]


_META_KEYS = {
    "context_length": "n_ctx_train", "block_count": "n_layer", "attention.sliding_window": "n_swa", "rope.freq_base": "freq_base_train",
    "rope.scaling.type": "rope_scaling", "rope.scaling.factor": "rope_scaling_factor", "attention.head_count_kv": "n_head_kv",
    "rope.scaling.original_context_length": "n_ctx_orig_yarn", "full_attention_interval": "full_attention_interval",
    "general.architecture": "arch", "general.name": "name",
}  # fmt: skip


def _meta(match: re.Match[str], fields: Fields) -> Found:
    full = match["key"]
    key = _META_KEYS.get(full) or _META_KEYS.get(full.partition(".")[2])
    text = match["text"].strip()
    if key is None or not text or text.startswith("arr["):
        return []
    if key == "n_ctx_train":
        return [("window", {"which": "trained", "tokens": integer(text), "key": full})]
    value = number(text)
    kind: EventKind = "rope" if key.startswith(("rope", "freq", "n_ctx_orig")) else "model-info"
    return [(kind, {"key": key, "value": text if value is None else int(value) if value == int(value) else value})]


def _cuda_alloc(match: re.Match[str], fields: Fields) -> Found:
    why = match["why"].lower()
    fields["api"] = "cuda" if "hip" not in why and "rocm" not in match.string.lower() else "rocm"
    return [("alloc-failed", fields)]


def _api_of(name: str) -> str | None:
    low = name.lower()
    for start, api in (
        ("cuda_host", "host-pinned"), ("rocm_host", "host-pinned"), ("hip_host", "host-pinned"), ("cuda", "cuda"), ("rocm", "rocm"),
        ("hip", "rocm"), ("musa", "musa"), ("vulkan", "vulkan"), ("vk", "vulkan"), ("sycl", "sycl"), ("mtl", "metal"), ("metal", "metal"),
        ("cpu", "cpu"), ("rpc", "rpc"), ("cann", "cann"), ("opencl", "opencl"),
    ):  # fmt: skip
        if low.startswith(start):
            return api
    return None


def _named_alloc(match: re.Match[str], fields: Fields) -> Found:
    api = _api_of(fields.get("device") or "")
    if api == "host-pinned":
        fields["component"] = fields.get("component") or "pinned"
    if api is not None and "api" not in fields:
        fields["api"] = api
    return [("alloc-failed", fields)]


TOO_FAST_TPS = 150_000
"""Tokens that no model reads in a second."""


def _timing(match: re.Match[str], fields: Fields) -> Found:
    fields["phase"] = {"prompt eval": "prefill", "eval": "generation", "total": "total"}[
        " ".join(match["what"].split())
    ]
    if fields["phase"] == "total" or not fields.get("tokens"):
        return []
    if fields.get("tps") is None and fields.get("seconds"):
        fields["tps"] = round(fields["tokens"] / fields["seconds"], 4)
    if fields["phase"] == "prefill" and (
        not fields.get("seconds") or fields["tokens"] / fields["seconds"] > TOO_FAST_TPS
    ):
        # a program that leaves it to later to wait for the result, such as llama-cpp-python, stops the clock before the work is done
        return []
    return [("timing", fields)]


def _progress(match: re.Match[str], fields: Fields) -> Found:
    share = number(match["share"])
    tokens = fields.get("tokens")
    if tokens and share and 0 < share <= 1.0001:
        fields["of"] = round(tokens / share)
    if fields.get("seconds") and fields.get("tps") is None and tokens:
        fields["tps"] = round(tokens / fields["seconds"], 4)
    return [("prefill-progress", fields)]


def _refused(match: re.Match[str], fields: Fields) -> Found:
    return [("refused", fields)]


def _decode_off(match: re.Match[str], fields: Fields) -> Found:
    text, code = match.string, fields.get("code")
    if "ontext size has been exceeded" in text or code == 1:
        return [("pool-full", {**fields, "reason": "no-slot"})]
    return [("decode-failed", {**fields, "reason": "batch" if code == -1 else "compute"})]


def _ret(match: re.Match[str], fields: Fields) -> Found:
    code = fields.get("code")
    fields["reason"] = {1: "no-slot", -1: "batch", 2: "aborted"}.get(code if code is not None else 99, "compute")
    return [("decode-failed", fields)]


def _checkpoint(match: re.Match[str], fields: Fields) -> Found:
    fields["key"] = {"cr": "created", "re": "restored"}.get(match["what"][:2].lower(), "erased")
    return [("checkpoint", fields)]


def _similarity(match: re.Match[str], fields: Fields) -> Found:
    fields["key"] = "lcp-similarity"
    return [("cache-reuse", fields)]


def _reprocess(match: re.Match[str], fields: Fields) -> Found:
    text = match.string.lower()
    fields["reason"] = (
        "swa"
        if "swa" in text and "hybrid" not in text
        else "hybrid"
        if "hybrid" in text or "recurrent" in text
        else "unknown"
    )
    if "swa or" in text or ("swa" in text and "hybrid" in text):
        fields["reason"] = "swa-or-hybrid"
    return [("full-reprocess", fields)]


def _draft_rate(match: re.Match[str], fields: Fields) -> Found:
    fields.setdefault("key", "acceptance")
    return [("speculation", fields)]


def _metal_status(match: re.Match[str], fields: Fields) -> Found:
    fields["api"] = "metal"
    fields["reason"] = f"command buffer failed with status {fields.get('code')}"
    return [("kernel-error", fields)]


def _table_row(match: re.Match[str], fields: Fields) -> Found:
    found: Found = []
    device = match["device"].strip()
    for group, component in (("model", "weights"), ("context", "kv"), ("compute", "compute")):
        value = number(match[group])
        if value is not None:
            found.append(
                (
                    "buffer",
                    {"device": device, "component": component, "size_bytes": round(value * 2**20), "key": "breakdown"},
                )
            )
    if match["all"] is not None:
        total, free = number(match["all"]), number(match["left"])
        found.append(
            (
                "device-found",
                {
                    "device": device, "key": "breakdown", "name": match["title"],
                    "total_bytes": round((total or 0) * 2**20), "free_bytes": round((free or 0) * 2**20),
                },
            )
        )  # fmt: skip
    return found


def _fit(match: re.Match[str], fields: Fields) -> Found:
    text = match.string
    if "context size reduced" in text:
        return [("window-capped", {**fields, "reason": "fit"}), ("fit", {**fields, "key": "reduced-context"})]
    for words, key in (
        ("failed to fit", "failed"), ("encountered an error", "failed"), ("cannot meet", "too-big"), ("projected to use", "projected"),
        ("no changes needed", "fits"), ("successfully fit", "fitted"), ("set by user", "fixed-by-user"), ("full context size", "fixed-by-user"),
        ("default model context size", "default"), ("did not report memory", "no-memory-report"), ("layers, ", "placed"),
    ):  # fmt: skip
        if words in text:
            return [("fit", {**fields, "key": key})]
    return [("fit", fields)] if len(fields) > 1 else []


_MS = r"(?P<seconds_ms>[\d.]+)\s*ms"
_FREE = r"(?P<free_mib>\d+) MiB free"


def _cache_alloc(match: re.Match[str], fields: Fields) -> Found:
    component = "compute" if match["compute"] else "state" if match["kv"] in {"rs", "DSV4"} else "kv"
    return [("alloc-failed", {"component": component})]


def _slots(match: re.Match[str], fields: Fields) -> Found:
    found: Found = [("slots", {key: fields.get(key) for key in ("count", "unified")})]
    if fields.get("tokens"):
        found.append(("window", {"which": "per-slot", "tokens": fields["tokens"], "key": "n_ctx_slot"}))
    return found


def _against_trained(match: re.Match[str], fields: Fields) -> Found:
    key = "over-trained" if match["sign"] == ">" else "under-trained"
    return [
        ("window", {"which": "per-slot", "tokens": fields["tokens"], "of": fields["of"], "key": key}),
        ("window", {"which": "trained", "tokens": fields["of"], "key": "n_ctx_train"}),
    ]


def _host_alloc(match: re.Match[str], fields: Fields) -> Found:
    cache = bool(match["cache"])
    reason = "prompt cache" if cache else "host memory"
    return [("alloc-failed", {"api": "cpu", "component": "other" if cache else None, "reason": reason})]


def _shift(match: re.Match[str], fields: Fields) -> Found:
    reason = fields.get("reason") or ""
    return [("context-shift", {**fields, "key": "off" if "disabled" in reason or "not support" in reason else None})]


# fmt: off
RULES: tuple[Rule, ...] = (
    # --- start, program, devices
    rule("program", ("build: ", " with cc", "build info", "build_info"), r"\b(?:main|build|cmn\s.*|srv\s.*|build_info)\s*[:=]\s*(?:build\s*[=:]?\s*)?(?P<version>b?\d{3,6}(?:-[0-9a-f]{6,12}| \([0-9a-f]{6,12}\)))", name="llama.cpp"),
    rule("program", "build_info: ", r"build_info:\s*(?P<version>b\d+-\w+)", name="llama.cpp"),
    rule("command", ("llama-server -", "llama-server.exe -", "llama-cli -", "llama-bench -", "llama-server --", "/server -m "), r"(?<![^\s\"])(?P<value>(?:\S{0,300}/|[A-Za-z]:\\\S{0,300})?(?:llama-(?:server|cli|bench|perplexity)(?:\.exe)?|server)[\"']?\s{1,4}-{1,2}[a-zA-Z].{0,480})"),
    rule("loading", ("loading draft model", "creating MTP draft context", "loading draft"), which="draft"),
    rule("loading", ("loading model '", 'loading model"', "loaded meta data with", "loading model from"), r"loading model(?: from)?\s*['\"]?(?P<name>[^'\"\s]+)|loaded meta data with \d+ key-value pairs and \d+ tensors from (?P<name2>.+?) \(version"),
    rule("device-found", "- using device ", r"using device (?P<device>\S+)\s+\((?P<name>[^()]*(?:\([^()]*\)[^()]*)*)\)(?:\s+\([^)]*\))?\s+-\s+" + _FREE),
    rule("device-found", ": using device ", r"using device (?P<device>\S+)\s+\((?P<name>[^()]*(?:\([^()]*\)[^()]*)*)\)(?:\s+\([^)]*\))?\s+-\s+" + _FREE),
    rule("device-found", " MiB free)", r"-\s+(?P<device>[A-Za-z]+\d*)\s*:\s+(?P<name>.+?) \((?P<total_mib>\d+) MiB, " + _FREE + r"\)"),
    rule("device-found", "compute capability", r"Device (?P<device>\d+): (?P<name>[^,]+),\s*(?:\S+ \(0x[0-9a-f]+\), )?.*?compute capability \S+?,?(?:\s+VMM: \w+)?(?:.*?VRAM: (?P<total_mib>\d+) MiB)?", key="cuda"),
    rule("device-found", "VMM: ", r"Device (?P<device>\d+): (?P<name>[^,]+),.*VMM: \w+(?:.*?VRAM: (?P<total_mib>\d+) MiB)?", key="cuda"),
    rule("device-found", "ggml_vulkan: ", r"ggml_vulkan: (?P<device>\d+) = (?P<name>.+?) \(", key="vulkan"),
    rule("device-found", "recommendedMaxWorkingSetSize", r"recommendedMaxWorkingSetSize\s*=\s*(?P<limit_mb>[\d.]+)\s*MB", device="Metal", key="metal"),
    rule("memory-use", "current allocated size is greater", r"(?:\((?P<size_mib>[\d.]+) / (?P<limit_mib>[\d.]+)\).*)?current allocated size is greater than the recommended max working set size", key="metal-working-set", level="warning"),
    # a build without a GPU's interface, or a machine without one: nothing was lost
    rule("config-ignored", "no usable GPU found", r"no usable GPU found", key="gpu_layers", level="warning"),
    rule("device-lost", ("no CUDA-capable device", "failed to initialize CUDA", "failed to initialize ROCm", "cudaGetDeviceCount"), r"no (?:CUDA|ROCm)-capable device|failed to initialize (?:CUDA|ROCm)(?:: (?P<reason>.*))?|cudaGetDeviceCount\S* (?:failed|returned)\S* ?(?P<reason2>.*)"),
    rule("generic-warning", "cudaMemGetInfo failed", r"cudaMemGetInfo failed \((?P<reason>[^)]*)\)", key="free-memory-unknown"),
    # --- allocation failures (before anything that shares their words)
    rule("alloc-failed", ("cudaMalloc failed", "hipMalloc failed"), r"allocating (?P<size_mib>[\d.]+) MiB on device (?P<device>\d+): (?P<why>(?:cuda|hip)Malloc failed)(?:: (?P<reason>.+))?", make=_cuda_alloc),
    rule("alloc-failed", ("cudaMalloc failed", "hipMalloc failed"), r"(?P<why>(?:cuda|hip)Malloc failed)(?:: (?P<reason>[\w ]+))?", make=_cuda_alloc),
    rule("alloc-failed", ("of pinned memory", "pinned memory ("), r"failed to allocate (?P<size_mib>[\d.]+) MiB of pinned memory|Failed to allocate pinned memory", component="pinned", api="host-pinned"),
    rule("alloc-failed", "ggml_gallocr_reserve", r"failed to allocate (?P<device>\S+) buffer of size (?P<size_b>\d+)", component="compute", make=_named_alloc),
    rule("alloc-failed", "unable to allocate", r"unable to allocate (?P<device>\S+) buffer", component="weights", make=_named_alloc),
    rule("alloc-failed", "buffer of size", r"failed to allocate (?P<device>[A-Za-z]\S*) (?:buffer|tensor) of size (?P<size_b>\d+)", make=_named_alloc),
    rule("alloc-failed", "failed to allocate output buffer", r"failed to allocate output buffer of size (?P<size_mib>[\d.]+) MiB", component="output"),
    rule("alloc-failed", "failed to allocate buffer of size", r"failed to allocate buffer of size (?P<size_b>\d+)", api="cpu", make=lambda m, f: [("alloc-failed", {**f, "device": "CPU"})]),
    rule("alloc-failed", "insufficient memory (attempted", r"insufficient memory \(attempted to allocate (?P<size_mib>[\d.]+) MB\)", api="cpu", device="CPU"),
    rule("alloc-failed", ("failed to allocate buffer for", "failed to allocate compute", "failed to create memory", "failed to allocate KV", "failed to allocate kv", "llama_kv_cache_init() failed", "failed to allocate graph"), r"failed to allocate buffer for (?:the )?(?P<kv>kv|rs|DSV4)|failed to allocate (?P<compute>compute|graph)|(?P<kv2>failed to create memory|failed to allocate (?:KV|kv)|llama_kv_cache_init\(\) failed)", make=_cache_alloc),
    rule("alloc-failed", ("failed to allocate Metal buffer", "failed to allocate buffer, size"), r"failed to allocate Metal buffer of (?P<size_b>\d+) bytes|failed to allocate buffer, size =\s*(?P<size_mib>[\d.]+) MiB", api="metal"),
    rule("kernel-error", "command buffer", r"command buffer (?:\d+ )?failed with status (?P<code>\d+)", make=_metal_status),
    rule("kernel-error", "backend is in error state", api="metal", reason="error state from an earlier failure"),
    rule("config-ignored", "failed to mlock", r"failed to mlock (?P<size_b>\d+)-byte buffer", key="mlock", level="warning"),
    rule("alloc-failed", ("failed to allocate memory for prompt cache", "std::bad_alloc", "bad allocation", "Cannot allocate memory"), r"(?P<cache>failed to allocate memory for prompt cache)|std::bad_alloc|bad allocation|Cannot allocate memory", api="cpu", make=_host_alloc),
    # --- errors of the device
    rule("kernel-error", ("ggml_cuda_compute_forward", "ggml_metal_op_encode", "failed to compute graph", "graph_compute: ggml_backend", "failed with error -"), r"\b(?P<key>\w{1,80}): (?P<reason>\S{1,60} failed|unsupported op[^\n]{0,80}|failed to compute graph[^\n]{0,60}|ggml_backend_sched_graph_compute_async failed[^\n]{0,40})", make=lambda m, f: [("unsupported" if "unsupported" in m["reason"] else "decode-failed", {**f, "reason": "compute" if "unsupported" not in m["reason"] else m["reason"]})]),
    # --- refused loads
    rule("load-failed", ("requires flash_attn", "requires Flash Attention", "requires flash attention"), r"V cache (?:quantization )?(?:requires|was requested, but this requires) [Ff]lash[_ ][Aa]tt|requires flash_attn to be enabled", reason="quantised V cache needs flash attention", component="kv"),
    rule("load-failed", "does not support different K", r"model does not support different K \((?P<type_k>\S+)\) and V \((?P<type_v>\S+)\)", reason="different K and V types"),
    rule("load-failed", "does not divide", r"(?P<key>[KV]) cache type (?P<type_k>\S+) with block size \d+ does not divide", reason="cache type does not fit the head size"),
    rule("flash-attention", ("forcing off", "flash_attn is not compatible", "flash attention not supported"), r"flash_attn is not compatible with (?P<reason>[^\n]+?)\s*- forcing off|(?P<reason2>flash[_ ]att\w* not supported[^\n]{0,80})", on=False, level="warning"),
    rule("flash-attention", "enabling flash_attn since", on=True, reason="needed for a quantised V cache"),
    rule("flash-attention", "usually due to missing support", r"layer (?P<count>\d+) is assigned to device (?P<device>\S+) but (?P<reason>[^\n]+?) is assigned to device (?P<value>\S+)", on=False, level="warning", key="moved"),
    rule("flash-attention", ("Flash Attention was auto", "Flash Attention not supported", "Flash Attention is disabled", "Flash Attention enabled", "Flash Attention disabled"), r"Flash Attention (?:was auto, set to (?P<on>enabled|disabled)|(?P<on2>enabled|disabled)|not supported|is disabled)", key="auto"),
    rule("unsupported", ("set to disabled", "it will be disabled", "will be disabled", "is not supported by this", "is not supported by multimodal"), r"\b(?P<key>[A-Za-z_][\w-]{1,40}(?: [\w-]{1,30}){0,3}?) (?:is )?not supported(?: by (?P<reason>[^,\n]+))?, (?:set to|it will be) disabled|\b(?P<key2>\w{1,60}) (?:is not supported by [^,\n]+|will be disabled)", level="warning"),
    rule("load-failed", ("error loading model", "failed to load model", "failed to create context", "failed to create_context", "exiting due to model loading error", "failed to initialize the context", "unable to load model", "Failed to create context", "unable to create llama context", "unable to create context", "failed to load draft model", "failed to create MTP context", "failed to load multimodal", "unknown model architecture", "Failed to create llama_context", "Failed to load model from"), r"error loading model: (?P<reason>[^\n]+)|failed to initialize the context: (?P<reason2>[^\n]+)|(?P<reason3>unknown model architecture[^\n]{0,80})|(?:[Ff]ailed to (?:load|create|initialize)|unable to (?:load|create)|exiting due to)[^\n]{0,160}"),
    rule("load-failed", ("_M_range_check", "std::out_of_range", "vector::_M"), r"(?P<reason>(?:vector|basic_string|map|array|deque)::_M_range_check[^\n]{0,120}|std::out_of_range[^\n]{0,120}|invalid vector subscript)", make=lambda m, f: [("crash", f)]),
    # --- windows, slots
    rule("window", "n_slots = ", r"initializing(?: slots)?, n_slots = (?P<count>\d+)(?:, n_ctx_slot = (?P<tokens>\d+))?(?:, kv_unified = '?(?P<unified>\w+))?", make=_slots),
    rule("slots", "n_parallel is set to auto", r"n_parallel = (?P<count>\d+)(?: and kv_unified = (?P<unified>\w+))?", key="auto"),
    rule("window", "new slot", r"id\s+(?P<slot>\d+) \| task -?\d+ \| new slot,? n_ctx(?:_slot)? = (?P<tokens>\d+)|new slot[\",].*?n_ctx_slot[\"=: ]+(?P<tokens2>\d+)", which="per-slot", key="slot"),
    rule("window", 'n_ctx_slot":', r"n_ctx_slot[\"=: ]+(?P<tokens>\d+)", which="per-slot", key="slot"),
    rule("window-capped", "--kv-unified-per-slot", r"capping per-slot context \((?P<of>\d+)\) to --kv-unified-per-slot \((?P<tokens>\d+)\)", reason="per-slot"),
    rule("window-capped", ("exceeds the training context", "exceeds training context"), r"slot context \((?P<of>\d+)\) exceeds the training context of the model \((?P<tokens>\d+)\)(?P<capped> - capping)?", reason="trained"),
    rule("window", ("will not be utilized", "possible training context overflow"), r"n_ctx(?:_seq|_per_seq|_pre_seq)? \((?P<tokens>\d+)\) (?P<sign>[<>]) n_ctx_train \((?P<of>\d+)\)", make=_against_trained),
    rule("window-capped", "n_ctx is not divisible", r"rounding down to (?P<tokens>\d+)", reason="rounding"),
    rule("window", "re-adjusting n_ctx_train", r"re-adjusting n_ctx_train\s?\((?P<tokens>\d+)\)", which="trained", key="n_ctx_train"),
    rule("window", "n_ctx_train adjusted", r"n_ctx_train adjusted to (?P<tokens>\d+)", which="stretched", key="yarn"),
    rule("window", ("n_ctx  ", "n_ctx         = ", "n_ctx_seq  ", "n_ctx_per_seq ", "n_ctx      ", "n_seq_max  ", "n_seq_max ", "n_batch  ", "n_ubatch  ", "flash_attn  ", "flash_attn = ", "kv_unified  ", "freq_base  ", "freq_scale ", "n_rs_seq"), r"^(?:.*\b(?:llama_\w+|constructor|llama_init_from_model)\s*:\s*|\s*)(?P<key>n_ctx|n_ctx_seq|n_ctx_per_seq|n_seq_max|n_batch|n_ubatch|flash_attn|kv_unified|freq_base|freq_scale|mla_attn|n_rs_seq)\s*=\s*(?P<text>\S+)\s*$", make=_context_value),
    rule("window", ("print_info: ", "llm_load_print_meta: "), r"(?:print_info|llm_load_print_meta):\s{0,4}(?P<key>\w[\w. ]{0,40}?)\s{0,30}=\s{0,4}(?P<text>[^\n]{0,400})", make=_print_info),
    rule("window", "- kv ", r"- kv\s+\d+:\s+(?P<key>[\w.-]+)\s+\S+\s*=\s*(?P<text>[^\n]{0,200})", make=_meta),
    rule("model-info", "system_info: n_threads", r"system_info: n_threads\s{0,4}=\s{0,4}(?P<value>\d{1,5})\b", key="n_threads"),
    # --- buffers and cache
    rule("layers-offloaded", "layers to GPU", r"offloaded\s+(?P<count>\d+)/(?P<of>\d+)\s+layers to GPU"),
    rule("buffer", "buffer size", r"(?<![\w.\-])(?P<device>[A-Za-z][\w.\-():]{0,40}(?:\[[^\]\s]{1,80}\])?)\s{1,20}(?P<what>model|KV|RS|compute|output|(?P<state>DSV4 \S{1,30} state|\w{1,30} state))?\s{0,8}buffer size\s{0,4}=\s*(?P<size_mib>[\d.]+)\s*MiB", make=_buffer),
    rule("kv-cache", ("seqs), K (", "seqs),  K ("), r"size =\s*(?P<size_mib>[\d.]+) MiB \(\s*(?P<tokens>\d+) cells,\s*(?P<layers>\d+) layers,\s*(?P<seqs>\d+)(?:/\s*(?P<streams>\d+))? seqs\),\s*K \((?P<type_k>\w+)\):\s*[\d.]+ MiB,\s*V \((?P<type_v>\w+)\)", make=_kv_total),
    rule("kv-cache", "rs_seq), R (", r"size =\s*(?P<size_mib>[\d.]+) MiB \(\s*(?P<tokens>\d+) cells,\s*(?P<layers>\d+) layers,\s*(?P<count>\d+) seqs", which="state"),
    rule("kv-cache", "seqs), R (", r"size =\s*(?P<size_mib>[\d.]+) MiB \(\s*(?P<tokens>\d+) cells,\s*(?P<layers>\d+) layers,\s*(?P<count>\d+) seqs", which="state"),
    rule("kv-cache", ("KV self size", "kv self size"), r"KV self size\s*=\s*(?P<size_mib>[\d.]+) Mi?B(?:,\s*(?:K|c\^KV) \((?P<type_k>\w+)\):[^,]*(?:,\s*(?:V|kv\^T)(?: \((?P<type_v>\w+)\))?)?)?", make=_kv_self),
    rule("kv-cache", ("KV cache, size = ", "KV cache: size = "), r"creating\s+(?P<what>[\w -]*?)\s*KV cache[,:]? size = (?P<tokens>\d+) cells", make=_creating),
    rule("kv-cache", "using full-size SWA cache", which="swa", reason="full-size", level="warning"),
    rule("kv-cache", "kv cache size ", r"kv cache size\s*=\s*(?P<size_mib>[\d.]+) Mi?B", which="base"),
    rule("kv-cache", "padding V cache to", r"padding V cache to (?P<count>\d+)", which="base", reason="v-padding", level="warning"),
    rule("pipeline-copies", ("pipeline parallelism enabled", "sched copies", "without pipeline parallelism"), r"pipeline parallelism enabled(?: \(n_copies\s*=\s*(?P<count>\d+)\))?|sched copies\s*=\s*(?P<count2>\d+)|(?P<reason>retrying without pipeline parallelism)"),
    rule("graph", "graph splits", r"graph splits\s*=\s*(?P<count>\d+)", key="splits"),
    rule("graph", "worst-case: n_tokens", r"worst-case: n_tokens = (?P<tokens>\d+), n_seqs = (?P<count>\d+)", key="worst-case"),
    rule("buffer", "memory usage of mmproj", r"worst-case memory usage of mmproj is (?P<size_mib>[\d.]+) MiB", component="projector", make=lambda m, f: [("projector", f)]),
    rule("projector", ("loaded multimodal model", "loaded multimodal"), r"loaded multimodal model,? '?(?P<name>[^'\n]*)"),
    rule("projector", ("clip_model_loader: model size", "clip_init: model size", "clip_ctx: CLIP using"), r"model size:\s*(?P<size_mib>[\d.]+) Mi?B|CLIP using (?P<device>\w+) backend"),
    rule("buffer", "|   - ", r"\|\s+- (?P<device>[^|(]+?)(?: \((?P<title>[^|]*?)\))?\s*\|\s*(?:(?P<all>\d+)\s*=\s*(?P<left>\d+)\s*\+\s*\()?\s*\d+\s*=\s*(?P<model>\d+)\s*\+\s*(?P<context>\d+)\s*\+\s*(?P<compute>\d+)", make=_table_row),
    # --- fit
    rule("fit", ("params_fit", "fit_params", "device memory vs.", "host memory vs."), r"(?:params_fit\w*|fit_params\w*|\bfit): (?:.*?reduced from (?P<of>\d+) to (?P<tokens>\d+))?(?:.*?projected to use (?P<size_mib>\d+) MiB of (?P<device>device|host) memory vs\. (?P<free_mib>\d+))?(?:.*?(?:will leave|need to reduce device memory by|free memory target of) (?P<limit_mib>\d+))?(?:.*?set by user to (?P<tokens2>\d+))?", make=_fit),
    rule("model-loaded", ("model loaded", "llama server listening", "server is listening on", "listening on http", "HTTP server is listening"), r"model loaded|listening on"),
    # --- a prompt too long, a full cache
    rule("refused", "tokens) exceeds the available", r"request \((?P<tokens>\d+) tokens\) exceeds the available\W*$", make=_refused),
    rule("refused", ("exceeds the available context", "exceed_context_size", "exceeds available context"), r"(?:request \((?P<tokens>\d+) tokens\) )?exceeds? (?:the )?available context(?: size)?(?: \((?P<limit>\d+) tokens\))?", make=_refused),
    rule("refused", "is larger than the max context size", r"input \((?P<tokens>\d+) tokens\) is larger than the max context size \((?P<limit>\d+) tokens\)"),
    rule("refused", ("too large to process", "increase the physical batch size"), r"input (?:\((?P<tokens>\d+) tokens\) )?is too large to process.*?batch size: (?P<limit>\d+)", reason="batch"),
    rule("truncated", "input truncated", r"input truncated, n_ctx = (?P<limit>\d+), n_keep = \d+, n_left = \d+, n_prompt_tokens = (?P<tokens>\d+)|input truncated"),
    rule("truncated", ("truncated = 1", 'truncated": true', '"truncated":true'), r"n_(?:tokens|past|ctx) = (?P<tokens>\d+), truncated = 1|\"truncated\":\s*true", reason="window-reached"),
    rule("context-shift", ("slot context shift", "context shift", "context shifted", "context_shift"), r"context shift,? n_keep = (?P<kept>\d+), n_left = (?P<of>\d+), n_discard = (?P<count>\d+)|(?P<reason>applying context shift|context shifted|context shift is (?:disabled|not supported|enabled)[^\n]{0,80}|does not support context shift[^\n]{0,40})", make=_shift),
    rule("pool-full", ("find free space in the KV cache", "KV cache is full", "no more free cells", "purging slot"), r"failed to find free space in the KV cache.*?(?:n_batch = (?P<count>\d+))?(?:, ret = (?P<code>-?\d+))?$|KV cache is full|purging slot (?P<slot>\d+) with (?P<tokens>\d+) tokens|no more free cells", level="warning"),
    rule("pool-full", ("find a memory slot", "could not find a KV slot", "failed to find a slot", "find a kv cache slot"), r"(?:failed to find a memory slot|could not find a KV slot|failed to find a slot|find a kv cache slot) for batch of size (?:=\s*)?(?P<count>\d+)|could not find a KV slot", reason="no-slot", level="warning"),
    rule("pool-full", ("ontext size has been exceeded", "Invalid input batch", "Compute error."), r"(?:ontext size has been exceeded|Invalid input batch|Compute error)\.?(?:.*?off = -?\d+)?(?:,? n_batch = (?P<count>\d+))?(?:,? ret = (?P<code>-?\d+))?", make=_decode_off),
    rule("decode-failed", ("failed to decode", "llama_decode failed", "llama_decode: ", "NoKvSlot", "decode() failed"), r"failed to decode(?: the batch)?(?:,? n_batch = (?P<count>\d+))?(?:,? ret = (?P<code>-?\d+))?|llama_decode(?: returned| failed)[^\d\n-]*(?P<code2>-?\d+)?|(?P<slot_error>NoKvSlot)|decode\(\) failed", make=lambda m, f: [("decode-failed", {**f, "reason": "no-slot"})] if m["slot_error"] else _ret(m, f)),
    rule("decode-failed", ("failed to prepare attention ubatches", "failed to prepare recurrent ubatches", "failed to initialize batch", "inconsistent sequence positions"), reason="batch"),
    rule("corrupt-output", ("invalid token", "invalid logits", "NaN detected", "nan detected", "found nan", "probability tensor contains", "all logits are", "non-finite"), r"invalid token (?:id )?(?P<code>-?\d+)|(?P<reason>invalid logits|NaN detected|nan detected|found nan|probability tensor contains[^\n]{0,60}|non-finite[^\n]{0,60}|all logits are (?:nan|NaN|-inf))"),
    # --- slots at work
    rule("request", ("n_prompt_tokens = ", "new prompt, "), r"new prompt, n_ctx_slot = (?P<limit>\d+), n_keep = -?\d+, (?:n_prompt_tokens|task\.n_tokens) = (?P<tokens>\d+)"),
    rule("prefill-progress", "prompt processing", r"prompt processing(?: progress)?, n_(?:tokens|past) =\s*(?P<tokens>\d+)(?:, (?:batch\.)?n_tokens = (?P<count>\d+))?, progress = (?P<share>[\d.]+)(?:, t =\s*(?P<seconds>[\d.]+) s(?: / (?P<tps>[\d.]+) tokens per second)?)?", make=_progress),
    rule("request", "prompt done", r"prompt done, n_(?:past|tokens) = (?P<tokens>\d+)", key="prompt-done"),
    rule("full-reprocess", ("forcing full prompt re-processing", "full prompt re-processing", "full prompt reprocessing"), make=_reprocess),
    rule("checkpoint", "context checkpoint", r"(?P<what>created|restored|erasing old|erased invalidated|erasing|removing) (?:old )?context checkpoint(?: (?P<count>\d+) of (?P<of>\d+))?(?:.*?n_tokens = (?P<tokens>\d+))?.*?size = (?P<size_mib>[\d.]+) MiB", make=_checkpoint),
    rule("cache-reuse", ("LCP similarity", "lcp similarity"), r"LCP similarity, (?:f_)?sim_best = (?P<similarity>[\d.]+)", make=_similarity, flags=re.IGNORECASE),
    rule("cache-reuse", "selected slot by LRU", key="lru"),
    rule("cache-reuse", ("memory_seq_rm", "kv cache rm"), r"(?:cached )?n_(?:tokens|past) = (?P<tokens>\d+),?.*memory_seq_rm|kv cache rm \[(?P<tokens2>\d+),", key="kept"),
    rule("cache-reuse", "reusing chunk with size", r"reusing chunk with size (?P<tokens>\d+)", key="chunk"),
    rule("cache-reuse", "need to evaluate at least", r"n_past = (?P<tokens>\d+), (?:task\.n_tokens\(\)|n_prompt_tokens) = (?P<of>\d+)", key="full-hit"),
    rule("cache-store", ("total state size", "prompt cache is enabled", "cache state: ", "prompt is already in the cache"), r"cache state: (?P<count>\d+) prompts, (?P<size_mib>[\d.]+) MiB \(limits: (?P<limit_mib>[\d.]+) MiB, (?P<limit>\d+) tokens|saving prompt with length (?P<tokens>\d+), total state size = (?P<size_mib2>[\d.]+) MiB|prompt cache is enabled, size limit: (?P<limit_mib2>[\d.]+) MiB|prompt cache is enabled, size limit: (?P<value>no limit)|(?P<key>prompt is already in the cache)"),
    rule("cache-evicted", ("cache size limit", "cache token limit", "removing oldest entry", "exceeds cache size limit"), r"prompt state size (?P<size_mib>[\d.]+) MiB exceeds cache size limit (?P<limit_mib>[\d.]+) MiB|removing oldest entry \(size = (?P<size_mib2>[\d.]+) MiB\)"),
    rule("timing", ("prompt eval time", "  eval time =", ":eval time =", "eval time  ="), r"(?P<what>prompt eval|eval|total) time\s*=\s*" + _MS + r"\s*/\s*(?P<tokens>\d+)\s*(?:tokens|runs)\s*\(\s*[\d.]+ ms per token,\s*(?P<tps>[\d.]+|inf|nan) tokens per second\)", make=_timing),
    rule("timing", ("prompt eval time", "  eval time =", ":eval time =", "eval time  ="), r"(?P<what>prompt eval|eval) time\s*=\s*" + _MS + r"\s*/\s*(?P<tokens>\d+)\s*(?:tokens|runs)", make=_timing),
    rule("timing", "tg_3s", r"n_gen =\s*(?P<tokens>\d+), tg =\s*(?P<tps>[\d.]+) t/s", phase="generation", key="so-far"),
    rule("timing", "± ", r"\|\s*(?P<key>pp|tg)(?P<tokens>\d+)(?: @ d(?P<of>\d+))?\s*\|\s*(?P<tps>[\d.]+)\s*±", make=lambda m, f: [("timing", {**f, "phase": "prefill" if m["key"] == "pp" else "generation", "key": "bench"})]),
    rule("speculation", ("draft acceptance", "n_drafted", "acceptance rate"), r"draft acceptance(?: rate)? = (?P<number>[\d.]+) \(\s*(?P<accepted>\d+) accepted /\s*(?P<count>\d+) generated", make=_draft_rate),
    rule("speculation", "#gen tokens", r"#gen tokens =\s*(?P<of>\d+), #acc tokens =\s*(?P<accepted>\d+).*dur\(b,g,a\) = [\d.]+, (?P<seconds_ms>[\d.]+)", key="drafting"),
    rule("speculation", ("n_accept", "n_drafted"), r"n_(?:accept|acc)\w*\s*=\s*(?P<accepted>\d+)|n_drafted\s*=\s*(?P<count>\d+)", make=_draft_rate),
    rule("speculation", ("speculative decoding not supported", "speculative decoding will"), reason="not supported", on=False, level="warning"),
    rule("speculation", ("adding speculative implementation", "speculative decoding context initialized", "speculative decoding enabled", "MTP context", "draft model loaded"), r"(?P<reason>draft-\w+|MTP|eagle\w*|ngram[\w-]*)?", on=True),
    rule("cancelled", ("cancel task", "task cancelled", "request cancelled", "connection closed before"), r"cancel task, id_task = (?P<task>\d+)|cancel"),
    rule("http", "log_server_request", r"request: (?P<key>[A-Z]+) (?P<name>\S+)(?: \S+)? (?P<status>\d{3})"),
    rule("http", "done request: ", r"request: (?P<key>[A-Z]+) (?P<name>\S+) \S+ (?P<status>\d{3})"),
    rule("slept", ("entering sleeping state", "exiting sleeping state"), r"(?P<key>entering|exiting) sleeping state"),
    rule("crash", ("GGML_ASSERT", "GGML_ABORT", "ggml_abort", "llama_abort"), r"GGML_ASSERT(?:: ?\S+:\d+: ?|\()(?P<reason>[^\n]{0,160})|(?P<reason2>GGML_ABORT|ggml_abort|llama_abort)"),
    rule("load-failed", ("error: invalid argument", "error while handling argument", "unknown argument"), r"(?:invalid argument|error while handling argument|unknown argument)[: ]+\"?(?P<key>[^\s\":]+)", reason="command line"),
)
# fmt: on
