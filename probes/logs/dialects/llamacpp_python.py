# ruff: noqa: E501 - a pattern is read and compared best on one line
"""llama-cpp-python and its server."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "llama-cpp-python"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("refused", ("exceed context window", "exceeds context window"), r"Requested tokens \((?P<tokens>\d+)\) exceeds? context window of (?P<limit>\d+)"),
    rule("cache-reuse", "prefix-match hit", r"(?:\b(?P<tokens>\d{1,9}) )?prefix-match hit(?:, remaining (?P<count>\d+) prompt tokens to eval)?", key="prefix-match"),
    rule("cache-reuse", ("Llama._create_completion: cache hit", "Llama._create_completion: cache miss"), r"cache (?P<key>hit|miss)"),
    rule("decode-failed", "llama_decode returned", r"llama_decode returned (?P<code>-?\d+)", reason="compute", make=lambda _m, f: [("decode-failed", {**f, "reason": {1: "no-slot", -1: "batch"}.get(f.get("code", 0), "compute")})]),
)
# fmt: on
