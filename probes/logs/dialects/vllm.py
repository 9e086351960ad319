# ruff: noqa: E501, ARG001 - a pattern is read best on one line; every maker takes the match and its fields
"""vLLM: load, pool, throughput and refusal lines of the V0 and V1 engines."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "vllm"


def _throughput(match: re.Match[str], fields: Fields) -> Found:
    found: Found = []
    running, waiting = integer(match["running"] or ""), integer(match["waiting"] or "")
    found.append(("queue", {"count": running, "of": waiting, "key": "running-waiting"}))
    for group, phase in (("prompt", "prefill"), ("generation", "generation")):
        speed = number(match[group] or "")
        if speed:
            found.append(("timing", {"phase": phase, "tps": speed, "key": "engine-average"}))
    usage, hits = number(match["usage"] or ""), number(match["hits"] or "")
    if usage is not None:
        found.append(("memory-use", {"key": "kv-pool", "value": usage / 100, "component": "kv"}))
    if hits is not None:
        found.append(("cache-reuse", {"key": "hit-rate", "similarity": hits / 100}))
    preempted = integer(match["preempted"] or "")
    if preempted:
        found.append(("preempted", {"count": preempted}))
    return found


def _too_long(match: re.Match[str], fields: Fields) -> Found:
    asked = integer(match["requested"] or "")
    if asked is not None and fields.get("tokens") is None:
        fields["tokens"] = asked
    if "at least" in match[0]:
        # cut to one above what fits before it was counted
        fields["tokens"] = None
    answer = integer(match["completion"] or "")
    return [("refused", {**{k: v for k, v in fields.items() if k not in {"requested", "completion"}}, "count": answer})]


def _cut_before(match: re.Match[str], fields: Fields) -> Found:
    most = integer(match["most"] or "")
    if most is not None and fields.get("tokens") == most + 1:
        fields["tokens"] = None
    return [("refused", {name: value for name, value in fields.items() if name != "most"})]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("program", ("vLLM API server version", "vLLM server version", "LLM engine (v"), r"(?:vLLM (?:API )?server version|LLM engine \()\s*v?(?P<version>[\w.+-]+)", name="vllm"),
    # the newer versions print theirs beside a name drawn of blocks
    rule("program", "  version ", r"\u2588\s{2}version\s+v?(?P<version>\d[\w.+-]{0,60})\s*$", name="vllm"),
    rule("command", "non-default args", r"non-default args: (?P<value>\{.{0,480})"),
    rule("window", "Using max model len", r"Using max model len (?P<tokens>\d+)", which="per-slot", key="max_model_len"),
    rule("buffer", ("Model loading took", "model weights take"), r"(?:Model loading took|model weights take) (?P<size_gib>[\d.]+) ?GiB", component="weights", device="GPU"),
    rule("kv-pool", "KV cache size: ", r"\b(?P<device>\w{1,20}) KV cache size: (?P<tokens>[\d,]+) tokens(?:.*?for (?P<of>[\d,]+) tokens per request: (?P<number>[\d.]+)x)?"),
    rule("kv-pool", "Maximum concurrency for", r"Maximum concurrency for (?P<of>[\d,]+) tokens per request: (?P<number>[\d.]+)x"),
    rule("kv-pool", "Available KV cache memory", r"Available KV cache memory: (?P<size_gib>-?[\d.]+) GiB", key="available"),
    rule("kv-pool", "# GPU blocks", r"# (?:GPU|cuda) blocks: (?P<count>\d+), # CPU blocks: (?P<of>\d+)", key="blocks", flags=re.IGNORECASE),
    rule("kv-pool", " GiB for KV cache", r"(?:(?:Explicitly|Auto) set \((?P<size_gib>[\d.]+)/(?P<total_gib>[\d.]+)\)|VLLM_CPU_KVCACHE_SPACE not set\. Using (?P<size_gib2>[\d.]+)) GiB for KV cache", device="CPU", key="available"),
    rule("kv-pool", "# cuda blocks", r"# cuda blocks: (?P<count>\d+), # CPU blocks: (?P<of>\d+)", key="blocks"),
    rule("alloc-failed", "No available memory for the cache blocks", component="kv", api="torch", reason="no room for the cache"),
    rule("alloc-failed", ("To serve at least one request", "larger than the available KV cache memory"), r"max seq len \((?P<tokens>\d+)\).*?(?P<size_gib>[\d.]+) GiB KV cache is needed.*?available KV cache memory \((?P<free_gib>[\d.]+) GiB\)(?:.*?estimated maximum model length is (?P<limit>\d+))?|larger than the available KV cache memory", component="kv", api="torch", reason="one request does not fit"),
    rule("alloc-failed", ("is larger than the maximum number of tokens that can be stored",), r"max seq len \((?P<tokens>\d+)\) is larger than the maximum number of tokens that can be stored in KV cache \((?P<limit>\d+)\)", component="kv", api="torch", reason="one request does not fit"),
    rule("window-capped", "Auto-fit max_model_len: reduced from", r"Auto-fit max_model_len: reduced from (?P<of>\d+) to (?P<tokens>\d+) to fit in available KV cache memory \((?P<size_gib>[\d.]+) GiB", reason="fit"),
    rule("window", "Auto-fit max_model_len: full model context length", r"full model context length (?P<tokens>\d+) fits", which="per-slot", key="max_model_len"),
    rule("alloc-failed", "Cannot auto-fit max_model_len", component="kv", api="torch", reason="cannot fit any window"),
    rule("window-capped", "User-specified max_model_len", r"max_model_len \((?P<of>\d+)\) is greater than the derived max_model_len \((?:[^\d)]*)(?P<tokens>\d+)", reason="trained"),
    rule("alloc-failed", "on startup is less than desired GPU memory utilization", r"Free memory on device (?P<device>\S*) ?\((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is less than desired GPU memory utilization \([\d.]+, (?P<size_gib>[\d.]+) GiB\)", api="torch", reason="held by others at start"),
    rule("alloc-failed", "on startup is less than desired CPU memory utilization", r"Available memory on node \S+ \((?P<free_gib>[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on startup is less than desired CPU memory utilization \([\d.]+, (?P<size_gib>[\d.]+) GiB\)", device="CPU", api="torch", reason="held by others at start"),
    rule("alloc-failed", "allocation is less than requested memory for kv", r"Available memory on node \S+ \((?P<free_gib>-?[\d.]+)/(?P<total_gib>[\d.]+) GiB\) on kv cache allocation is less than requested memory for kv \((?P<size_gib>-?[\d.]+)", device="CPU", component="kv", api="torch", reason="no room for the cache"),
    rule("alloc-failed", ("not enough GPU memory", "when warming up sampler", "out of memory when warming"), r"not enough GPU memory|CUDA out of memory occurred when warming up sampler(?: with (?P<count>\d+))?", api="torch", reason="at start"),
    # parts come and go between versions, and the device is named: each is looked for by itself
    rule("queue", "Avg prompt throughput", r"Avg prompt throughput: (?P<prompt>[\d.]+) tokens/s, Avg generation throughput: (?P<generation>[\d.]+) tokens/s(?:.*?, Running: (?P<running>\d+) reqs)?(?:.*?, (?:Waiting|Pending): (?P<waiting>\d+) reqs)?(?:.*?, Preemptions: (?P<preempted>\d+))?(?:.*?, [\w +]{1,40}? KV cache usage: (?P<usage>[\d.]+)%)?(?:.*?, Prefix cache hit rate: (?:GPU: )?(?P<hits>[\d.]+)%)?", make=_throughput),
    rule("speculation", "SpecDecoding metrics", r"SpecDecoding metrics: .*?Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<count>\d+) tokens(?:.*?Avg Draft acceptance rate: (?P<percent>[\d.]+)%)?", key="acceptance"),
    rule("speculation", "Draft acceptance rate: ", r"Draft acceptance rate: (?P<number>[\d.]+), System efficiency: [\d.]+, Number of speculative tokens: \d+, Number of accepted tokens: (?P<accepted>\d+), Number of draft tokens: (?P<count>\d+)", key="acceptance"),
    rule("preempted", ("is preempted by", "preempted by PreemptionMode"), r"preempted by (?:PreemptionMode\.)?(?P<reason>\w+)(?:.*?total_num_cumulative_preemption=(?P<count>\d+))?", level="warning"),
    rule("graph", ("Capturing the model for CUDA graphs", "Capturing cudagraphs", "CUDA graphs can take additional", "before starting graph capture"), key="cuda-graphs-begin"),
    rule("graph", ("Graph capturing finished", "Capturing CUDA graph"), r"Graph capturing finished in (?P<seconds>[\d.]+) secs, took (?P<size_gib>[\d.]+) GiB", key="cuda-graphs"),
    rule("refused", ("maximum context length is", "maximum context length of"), r"maximum context length (?:is|of) (?P<limit>[\d,]+) tokens(?:\.? However, (?:you requested (?:about )?(?P<requested>[\d,]+) (?:output )?tokens(?: \((?P<tokens>[\d,]+) (?:in the (?:messages|prompt)|of text input)(?:, \d+ of tool input)?(?:, (?P<completion>\d+) in the (?:completion|output))?)?|your (?:prompt|request) (?:contains|has) (?:at least )?(?P<tokens2>[\d,]+) (?:input )?tokens)| and your request has (?P<tokens3>[\d,]+) input tokens)?", make=_too_long),
    rule("refused", "context length is only", r"You passed (?:(?P<tokens>[\d,]+) input tokens|[\d,]+ input characters) and requested [\d,]+ output tokens\W+However, the model's context length is only (?P<limit>[\d,]+) tokens(?:, resulting in a maximum input length of (?P<most>\d{1,12}))?", make=_cut_before),
    rule("refused", "is longer than the maximum model length", r"\(length (?P<tokens>\d+)\) is longer than the maximum model length of (?P<limit>\d+)"),
    rule("refused", "cannot be greater than max_model_len", r"max_(?:completion_)?tokens=(?P<tokens>\d+) ?cannot be greater than max_model_len=(?:\w+=)?(?P<limit>\d+)", reason="output budget"),
    rule("crash", ("EngineDeadError", "EngineCore encountered a"), r"EngineDeadError|EngineCore encountered (?:an issue|a fatal error)", key="engine"),
    rule("kernel-error", "Unsupported CPU attention configuration", r"Unsupported CPU attention configuration: (?P<reason>[^\n]{1,200})", api="cpu"),
    rule("load-failed", ("Engine core initialization failed", "Engine process failed to start"), r"Engine core initialization failed|Engine process failed to start", reason="engine"),
    rule("load-failed", ("max_num_batched_tokens (", "is smaller than max_model_len"), r"max_num_batched_tokens \((?P<tokens>\d+)\) is smaller than max_model_len \((?P<limit>\d+)\)", reason="batched tokens below window"),
    rule("full-reprocess", "Prefix caching is not supported", reason="not-supported", level="warning"),
)
# fmt: on
