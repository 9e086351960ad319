# ruff: noqa: E501 - a pattern is read and compared best on one line
"""MLX servers: mlx_lm.server, oMLX, mlx-serve, vMLX, mlx-engine, Ollama's MLX runner."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "mlx"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("prefill-progress", "rompt processing progress: ", r"rompt processing progress:\s*(?P<tokens>\d+)\s*/\s*(?P<of>\d+)"),
    rule("cache-store", ("KV Caches: ", "Prompt Cache: "), r"(?:KV Caches|Prompt Cache): (?P<count>\d+) seq(?:uences)?, (?P<size_gb>[\d.]+) GB(?:, latest user cache (?P<tokens>\d+) tokens)?", key="all"),
    rule("cache-store", " sequences, ", r"- (?P<key>assistant|user|system): (?P<count>\d+) sequences, (?P<size_gb>[\d.]+) GB"),
    rule("crash", "generation thread died", r"generation thread died:? ?(?P<reason>[^\n]{0,200})"),
    rule("alloc-failed", ("greater than the maximum allowed buffer size", "[metal::malloc]"), r"allocate (?P<size_b>\d+) bytes which is greater than the maximum allowed buffer size of (?P<limit_b>\d+) bytes", api="mlx", reason="over the largest single allocation"),
    rule("alloc-failed", ("[malloc] Unable to allocate", "[malloc_or_wait] Unable"), r"Unable to allocate (?P<size_b>\d+) bytes", api="mlx"),
    rule("alloc-failed", ("too large for available memory", "predicted peak would require"), r"(?:Prefill context|prompt|context) too large for available memory|predicted peak would require ~?(?P<size_h>[\d.]+ ?[KMGT]B)", api="mlx", component="activation", reason="memory guard"),
    rule("alloc-failed", "Prefill force-stopped", r"force-stopped at (?P<tokens>\d+) tokens: memory (?P<size_h>[\d.]+ ?[KMGT]B) exceeds (?:ceiling|limit) (?P<limit_h>[\d.]+ ?[KMGT]B)", api="mlx", component="activation", reason="memory guard"),
    rule("alloc-failed", ("emory limit exceeded during prefill", "emory limit exceeded"), r"[Mm]emory limit exceeded(?P<prefill> during prefill)?", make=lambda m, _f: [("alloc-failed", {"api": "mlx", "reason": "memory guard", "component": "activation" if m["prefill"] else None})]),
    rule("memory-use", "emory pressure level", r"[Mm]emory pressure level: (?P<reason>\w+ -> \w+|\w+)(?:.*?current=(?P<size_h>[\d.]+ ?[KMGT]B))?(?:.*?ceiling=(?P<limit_h>[\d.]+ ?[KMGT]B))?", key="pressure"),
    rule("memory-use", "Peak memory: ", r"Peak memory:\s*(?P<size_h>[\d.]+ [KMGT]B)", key="peak"),
    rule("memory-use", "close to the maximum recommended size", r"requires (?P<size_mb>\d+) MB which is close to the maximum recommended size of (?P<limit_mb>\d+) MB", key="metal-working-set", level="warning"),
    rule("timing", "tokens-per-sec", r"(?P<what>Prompt|Generation): (?P<tokens>\d+) tokens, (?P<tps>[\d.]+) tokens-per-sec", make=lambda m, f: [("timing", {**{k: v for k, v in f.items() if k != "what"}, "phase": "prefill" if m["what"] == "Prompt" else "generation"})]),
    rule("program", ("Starting httpd at", "mlx_lm.server is not recommended"), r"Starting httpd at (?P<value>\S+)", name="mlx_lm"),
    rule("model-loaded", "Batch eval all weights", r"Batch eval all weights: (?P<seconds_ms>\d+) ?ms", key="weights"),
)
# fmt: on
