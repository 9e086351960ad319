# ruff: noqa: E501 - a pattern is read and compared best on one line
"""SGLang: pools, batches, retractions and refusals."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "sglang"


def _prefill(match: re.Match[str], _fields: Fields) -> Found:
    text = match.string
    new, cached = _number(r"#new-token: (\d+)", text), _number(r"#cached-token: (\d+)", text)
    found: Found = []
    if new is not None:
        found.append(("cache-reuse", {"tokens": cached, "of": new + (cached or 0), "key": "prefill-batch"}))
    speed = re.search(r"input throughput \(token/s\): ([\d.]+)", text)
    if speed is not None and number(speed[1]):
        found.append(("timing", {"phase": "prefill", "tokens": new, "tps": number(speed[1])}))
    return [*found, *_usage(text)]


def _decode(match: re.Match[str], _fields: Fields) -> Found:
    text = match.string
    speed = re.search(r"gen throughput \(token/s\): ([\d.]+)", text)
    found: Found = []
    if speed is not None:
        found.append(
            (
                "timing",
                {
                    "phase": "generation",
                    "tokens": _number(r"#(?:full )?token: (\d+)", text),
                    "tps": number(speed[1]),
                    "key": "batch",
                },
            )
        )
    return [*found, *_usage(text)]


def _usage(text: str) -> Found:
    usage = re.search(r"(?:full )?token usage: ([\d.]+)", text)
    running, queued = _number(r"#running-req: (\d+)", text), _number(r"#queue-req: (\d+)", text)
    found: Found = [("queue", {"count": running, "of": queued, "key": "running-waiting"})]
    if usage is not None:
        found.append(("memory-use", {"key": "kv-pool", "component": "kv", "value": number(usage[1])}))
    return found


def _number(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return integer(match[1]) if match else None


def _pool(match: re.Match[str], fields: Fields) -> Found:
    found: Found = [("kv-pool", {"tokens": fields.get("tokens"), "key": "max_total_num_tokens"})]
    window = _number(r"context_len=(\d+)", match.string)
    if window is not None:
        found.append(("window", {"which": "in-force", "tokens": window, "key": "context_len"}))
    chunk = _number(r"chunked_prefill_size=(\d+)", match.string)
    if chunk is not None:
        found.append(("model-info", {"key": "chunked_prefill_size", "value": chunk}))
    return found


def _allocated(match: re.Match[str], fields: Fields) -> Found:
    sizes = [number(text) or 0.0 for text in re.findall(r"\b(?:K|V|KV) size: ([\d.]+) GB", match.string)]
    return [("kv-pool", {**fields, "size_bytes": round(sum(sizes) * (1 << 30)), "key": "allocated"})]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("kv-pool", "KV Cache is allocated", r"KV Cache is allocated\.(?: dtype: (?P<type_k>[\w.]+),)? #tokens: (?P<tokens>\d+)", make=_allocated),
    rule("kv-pool", "max_total_num_tokens=", r"max_total_num_tokens=(?P<tokens>\d+)", make=_pool),
    rule("memory-use", ("Memory pool end", "Load weight begin", "Load weight end", "Capture cuda graph end"), r"(?P<key>Memory pool end|Load weight begin|Load weight end|Capture cuda graph end).*?avail mem=(?P<free_gib>[\d.]+) GB"),
    rule("queue", "Prefill batch", r"Prefill batch", make=_prefill),
    rule("queue", "Decode batch", r"Decode batch", make=_decode),
    rule("pool-full", "KV cache pool is full", r"KV cache pool is full\. Retract requests\.(?: #retracted_reqs: (?P<count>\d+))?", level="warning"),
    rule("preempted", "Decode out of memory happened", r"#retracted_reqs: (?P<count>\d+)|Decode out of memory happened", level="warning"),
    rule("pool-full", ("Prefill out of memory", "Decode out of memory. Try"), r"(?P<reason>Prefill|Decode) out of memory"),
    rule("alloc-failed", "try to increase --mem-fraction-static", component="kv", api="torch", reason="no room for the cache"),
    rule("refused", ("is longer than the model's context length", "exceeds the maximum allowed length", "Requested token count exceeds"), r"[Ii]nput(?: length)? \((?P<tokens>\d+) tokens\) (?:is longer than the model's context length|exceeds the maximum allowed length) \((?P<limit>\d+) tokens\)(?P<cut>\. Truncating)?|maximum context length of (?P<limit2>\d+) tokens\. You requested a total of (?P<tokens2>\d+)", make=lambda m, f: [("truncated" if m["cut"] else "refused", {k: v for k, v in f.items() if k != "cut"})]),
    rule("truncated", "Request length is longer than the KV cache pool size", r"origin_input_ids\)=(?P<tokens>\d+), max_req_input_len=(?P<limit>\d+)", level="warning"),
    rule("watchdog", "Watchdog timeout", r"[Ww]atchdog timeout \(self\.watchdog_timeout=(?P<seconds>[\d.]+)|Watchdog timeout", api="engine"),
    rule("program", "server_args=ServerArgs", r"server_args=ServerArgs\((?P<value>.{0,480})", name="sglang"),
)
# fmt: on
