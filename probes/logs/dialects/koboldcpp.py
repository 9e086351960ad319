# ruff: noqa: E501 - a pattern is read and compared best on one line
"""KoboldCpp: its console lines; the llama.cpp lines within it are llama.cpp's."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "koboldcpp"


def _limit(match: re.Match[str], _fields: Fields) -> Found:
    found: Found = [
        ("reply", {"of": integer(match["used"]), "limit": integer(match["limit"]), "key": "ctx-limit"}),
        ("window", {"which": "in-force", "tokens": integer(match["limit"]), "key": "ctx-limit"}),
    ]
    for name, phase in (("Process", "prefill"), ("Generate", "generation")):
        timed = re.search(rf"{name}:([\d.]+)s \((?:[\d.]+ms/T = )?([\d.]+)T/s\)", match.string)
        if timed is not None:
            seconds, speed = number(timed[1]), number(timed[2])
            tokens = round(seconds * speed) if seconds is not None and speed is not None else None
            found.append(("timing", {"phase": phase, "seconds": seconds, "tps": speed, "tokens": tokens}))
    return found


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("reply", "CtxLimit:", r"CtxLimit:\s*(?P<used>\d+)/(?P<limit>\d+)", make=_limit),
    rule("context-shift", "Context Shifting: Erased", r"Context Shifting: Erased (?P<count>\d+) tokens at position (?P<kept>\d+)"),
    rule("context-shift", "Smart Context Triggered", r"Smart Context Triggered! Buffered Token Allowance: (?P<count>\d+)", key="smart-context"),
    rule("cache-reuse", "Reusing Smart Context", r"Reusing Smart Context: (?P<tokens>\d+)", key="smart-context"),
    rule("prefill-progress", "Processing Prompt", r"Processing Prompt(?: \[\w+\])? \((?P<tokens>\d+) / (?P<of>\d+) tokens\)"),
    rule("decode-failed", "Failed to predict at token position", r"Failed to predict at token position (?P<tokens>\d+)", reason="compute"),
    rule("program", ("Welcome to KoboldCpp", "KoboldCpp - Version"), r"KoboldCpp - Version (?P<version>[\d.]+\w*)", name="koboldcpp"),
    rule("config-ignored", ("ContextShift is disabled", "context shifting disabled", "Context shift disabled", "ContextShift will be disabled", "not compatible with context shift"), r"(?i:context ?shift\w*) (?:is |will be )?disabled[^\n]{0,80}|not compatible with context shift", key="context_shift", level="warning"),
    rule("window", "Allocated context", r"(?:Loaded|Allocated) context(?: size)?(?: of)?:? (?P<tokens>\d+)", which="in-force"),
)
# fmt: on
