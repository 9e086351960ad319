# ruff: noqa: E501 - a pattern is read and compared best on one line
"""ik_llama.cpp: an older llama.cpp line with its own server; what it says in other words than mainline."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, rule

NAME = "ik"


def _timings(match: re.Match[str], fields: Fields) -> Found:
    fields["phase"] = "prefill" if "prompt" in match["what"] else "generation"
    return [("timing", fields)]


def _build(match: re.Match[str], _fields: Fields) -> Found:
    """Its build; older mainline says the same, so it is no name."""
    return [("program", {"version": f"{match['build']}-{match['commit']}"})] if match["build"] != "0" else []


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("program", "HAVE_FANCY_SIMD is", r"=== HAVE_FANCY_SIMD is", name="ik_llama.cpp"),
    rule("program", "build info | tid", r"build info \| tid=.* build=(?P<build>\d+) commit=\"(?P<commit>\w+)\"", make=_build),
    rule("refused", "context_length_exceeded: ", r"context_length_exceeded"),
    # a prompt that is longer than its window is refused before: this says that the cells are taken, or lie apart
    rule("pool-full", "Input prompt is too big compared to KV size", reason="no-slot"),
    rule("pool-full", "KV cache is full - try increasing", reason="no-slot"),
    rule("model-info", "mla_attn  ", r"mla_attn\s*=\s*(?P<value>\d+)", key="mla_attn"),
    rule("cache-reuse", "======== Prompt cache: cache size", r"Prompt cache: cache size: (?P<count>\d+), n_keep: (?P<kept>-?\d+)(?:.*?f_keep:? (?P<similarity>[\d.]+))?", key="prompt-cache"),
    rule("cache-reuse", ('msg="kv cache rm', "kv cache rm [p0, end) | "), r"kv cache rm.*?\bp0=(?P<tokens>\d+)", key="kept"),
    rule("window", "n_ctx_slot=", r"n_ctx_slot=(?P<tokens>\d+)", which="per-slot", key="slot"),
    rule("timing", ("n_tokens_second=", "n_prompt_tokens_processed="), r"(?P<what>prompt eval|generation eval|eval) time\s*=\s*(?P<seconds_ms>[\d.]+) ms /\s*(?P<tokens>\d+) (?:tokens|runs)\s*\(\s*[\d.]+ ms per token,\s*(?P<tps>[\d.]+)", make=_timings),
    rule("truncated", 'msg="input truncated', r"input truncated.*?n_ctx=(?P<limit>\d+).*?n_prompt_tokens=(?P<tokens>\d+)"),
    rule("context-shift", ('msg="slot context shift', "slot context shift | "), r"slot context shift.*?n_keep=(?P<kept>\d+).*?n_discard=(?P<count>\d+)|slot context shift.*?n_discard=(?P<count2>\d+)"),
)
# fmt: on
