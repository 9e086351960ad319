# ruff: noqa: E501 - a pattern is read and compared best on one line
"""llama-cpp-python and its server."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "llama-cpp-python"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("refused", ("exceed context window", "exceeds context window"), r"Requested tokens \((?P<tokens>\d+)\) exceeds? context window of (?P<limit>\d+)"),
    rule("full-reprocess", "partial kv removal not supported", r"(?:\b(?P<tokens>\d{1,9}) )?prefix-match found but partial kv removal not supported", reason="swa-or-hybrid"),
    rule("cache-reuse", "full prompt already cached", key="whole"),
    rule("cancelled", "Disconnected from client (via refresh/close)"),
    rule("load-failed", ("Failed to create llama_context", "Failed to load model from file: ", "Model path does not exist: "), r"ValueError: (?P<reason>Failed to create llama_context|Failed to load model from file|Model path does not exist)"),
    rule("cache-reuse", "prefix-match hit", r"(?:\b(?P<tokens>\d{1,9}) )?prefix-match hit(?:, remaining (?P<count>\d+) prompt tokens to eval)?", key="prefix-match"),
    rule("cache-reuse", ("Llama._create_completion: cache hit", "Llama._create_completion: cache miss"), r"cache (?P<key>hit|miss)"),
    rule("decode-failed", "llama_decode returned", r"llama_decode returned (?P<code>-?\d+)", reason="compute", make=lambda _m, f: [("decode-failed", {**f, "reason": {1: "no-slot", -1: "batch"}.get(f.get("code", 0), "compute")})]),
)
# fmt: on
