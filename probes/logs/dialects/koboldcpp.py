# ruff: noqa: E501 - a pattern is read and compared best on one line
"""KoboldCpp: its console lines, of 1.76 to 1.116; the llama.cpp lines within it are llama.cpp's."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "koboldcpp"


def _limit(match: re.Match[str], _fields: Fields) -> Found:
    """An answer's line. Newer versions say how many tokens were really read, older ones give times and speeds alone."""
    line = match.string
    used, limit = integer(match["used"]), integer(match["limit"])
    made = re.search(r"(?:Amt|Generated):(\d+)/\d+", line)
    count = integer(made[1]) if made is not None else None
    prompt = used - count if used is not None and count is not None and used >= count else None
    found: Found = [
        ("reply", {"tokens": prompt, "count": count, "of": used, "limit": limit, "key": "ctx-limit"}),
        ("window", {"which": "in-force", "tokens": limit, "key": "ctx-limit"}),
    ]
    for name, phase in (("Process", "prefill"), ("Generate", "generation")):
        timed = re.search(rf"{name}(?:e?d:(\d+)(?:/\d+)? in |:)([\d.]+)s \((?:[\d.]+ms/T = )?([\d.]+)T/s\)", line)
        if timed is None:
            continue
        seconds, speed = number(timed[2]), number(timed[3])
        tokens = integer(timed[1]) if timed[1] else None
        if phase == "prefill" and tokens is not None and prompt is not None and 0 < tokens < prompt:
            found.append(("cache-reuse", {"tokens": prompt - tokens, "of": prompt, "key": "fast-forward"}))
        if tokens is None and seconds is not None and speed is not None:
            tokens = round(seconds * speed)
        found.append(("timing", {"phase": phase, "seconds": seconds, "tps": speed, "tokens": tokens}))
    return found


DEFAULTS = frozenset({8192, 4096})
"""Windows that it takes by itself, the newer versions' first: they are printed like one that was asked for."""


def _options(match: re.Match[str], fields: Fields) -> Found:
    """Its options, as it prints them all at the start, also those that nobody gave."""
    line = match.string
    tokens = fields.get("tokens")
    found: Found = [
        ("command", {"value": line[match.start() : match.start() + 20_000].strip(), "key": "options"}),
        ("window", {"which": "per-slot", "tokens": tokens, "key": "contextsize"}),
    ]
    if tokens not in DEFAULTS:
        found.append(("window", {"which": "asked", "tokens": tokens, "key": "contextsize"}))
    if re.search(r"\bnoshift=True", line):
        found.append(("context-shift", {"key": "off"}))
    return found


def _rope(match: re.Match[str], _fields: Fields) -> Found:
    pairs = (("freq_scale", match["scale"]), ("freq_base", match["base"]))
    return [("rope", {"key": key, "value": number(text)}) for key, text in pairs]


def _loaded(match: re.Match[str], _fields: Fields) -> Found:
    return [("model-loaded", {}) if match["ok"] == "True" else ("load-failed", {"reason": "the model did not load"})]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("reply", "CtxLimit:", r"CtxLimit:\s*(?P<used>\d+)/(?P<limit>\d+)", make=_limit),
    rule("reply", "BatchRequest:", r"BatchRequest:(?P<task>\d+), Prompt:(?P<tokens>\d+), Generated:(?P<count>\d+)/\d+", key="batch"),
    rule("command", "Namespace(", r"Namespace\([^\n]{0,20000}?\bcontextsize=(?P<tokens>\d+)", make=_options),
    rule("loading", "Loading Text Model: ", r"Loading Text Model: (?:.{0,400}[/\\])?(?P<name>[^/\\\n]+)"),
    rule("model-loaded", "Load Text Model OK: ", r"Load Text Model OK: (?P<ok>True|False)", make=_loaded),
    rule("load-failed", "Could not load text model", r"Could not load text model"),
    rule("slots", "Continuous batching: prepared", r"prepared (?P<count>\d+) GGUF sequence slots"),
    rule("context-shift", "Context Shifting: Erased", r"Context Shifting: Erased (?P<count>\d+) tokens at position (?P<kept>\d+)"),
    rule("context-shift", "Smart Context Triggered", r"Smart Context Triggered! Buffered Token Allowance: (?P<count>\d+)", key="smart-context"),
    rule("cache-reuse", "Reusing Smart Context", r"Reusing Smart Context: (?P<tokens>\d+)", key="smart-context"),
    rule("prefill-progress", "Processing Prompt", r"Processing Prompt(?: \[\w+\])? \((?P<tokens>\d+) / (?P<of>\d+) tokens\)"),
    rule("truncated", "You are trying to generate text with max_length", r"max_length \((?P<count>\d+)\) near or exceeding max_context_length limit \((?P<limit>\d+)\)", reason="answer"),
    rule("window-capped", "exceeds allocated context size", r"max_context_length=(?P<of>\d+) exceeds allocated context size of (?P<tokens>\d+)", reason="request"),
    rule("decode-failed", "Failed to predict at token position", r"Failed to predict at token position (?P<tokens>\d+)", reason="compute"),
    rule("decode-failed", "Model Warmup Failed!", r"Model Warmup Failed! \(code:(?P<code>-?\d+)\)", reason="compute"),
    rule("pool-full", "find a big KV slot", r"Couldn't find a big KV slot", reason="no-slot", level="warning"),
    rule("program", ("Welcome to KoboldCpp", "KoboldCpp - Version"), r"KoboldCpp - Version (?P<version>[\d.]+\w*)", name="koboldcpp"),
    # it is on by itself: where a model or another option does not allow it, nothing that was asked for is ignored
    rule("context-shift", ("ContextShift is disabled", "context shifting disabled", "ontext shifting is DISABLED", "Context shift disabled", "context shift will be disabled", "ContextShift will be disabled", "not compatible with context shift", "context shifting has been disabled"), r"(?i:context ?shift\w*) (?i:(?:is |will be |has been )?disabled)[^\n]{0,80}|not compatible with context shift", key="off", level="warning"),
    rule("config-ignored", "Quantized KV was used without flash attention", key="kv_type_v", level="warning"),
    rule("window", "Allocated context", r"(?:Loaded|Allocated) context(?: size)?(?: of)?:? (?P<tokens>\d+)", which="in-force"),
    rule("rope", ("RoPE Scaling: Using (scale:", "Custom RoPE scaling (scale:"), r"\(scale:(?P<scale>[\d.]+), base:(?P<base>[\d.]+)\)", make=_rope),
)
# fmt: on
