# ruff: noqa: E501 - a pattern is read and compared best on one line
"""TabbyAPI and ExLlama (v2, v3)."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, number, rule

NAME = "tabbyapi"


def _metrics(match: re.Match[str], _fields: Fields) -> Found:
    text = match.string
    cached, new = integer(match["cached"] or ""), integer(match["new"] or "")
    found: Found = []
    if new is not None:
        found.append(("cache-reuse", {"tokens": cached, "of": new + (cached or 0), "key": "metrics"}))
    speed = re.search(r"new tokens at ([\d.,]+) T/s", text)
    if speed is not None:
        found.append(("timing", {"phase": "prefill", "tokens": new, "tps": number(speed[1])}))
    generated = re.search(r"(\d+) tokens generated", text)
    rate = re.search(r"Generate: ([\d.,]+) T/s", text)
    if rate is not None:
        found.append(
            (
                "timing",
                {"phase": "generation", "tokens": integer(generated[1]) if generated else None, "tps": number(rate[1])},
            )
        )
    context = re.search(r"Context: (\d+) tokens", text)
    if context is not None:
        found.append(("request", {"tokens": integer(context[1])}))
    return found


def _pages(match: re.Match[str], fields: Fields) -> Found:
    """A job is the prompt and the longest answer that was asked for together, counted in pages of the cache."""
    pages, page = integer(match["pages"]), integer(match["page"] or "")
    tokens = pages * page if pages is not None and page is not None else None
    told = {key: value for key, value in fields.items() if key not in {"pages", "page"}}
    return [("refused", {**told, "tokens": tokens, "reason": "prompt-and-answer"})]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("timing", "Metrics (ID: ", r"Metrics \(ID.*?Process: (?P<cached>[\d,]+) cached tokens and (?P<new>[\d,]+) new tokens", make=_metrics),
    rule("timing", "Metrics: ", r"\b(?P<generated>\d{1,9}) tokens generated in [\d.]+ seconds.*?Process: (?P<cached>[\d,]+) cached tokens and (?P<new>[\d,]+) new tokens", make=_metrics),
    rule("alloc-failed", ("Insufficient VRAM in split", "Insufficient VRAM for model", "Insufficient space in device allocation"), component="weights", api="torch", reason="split leaves no room"),
    rule("refused", "Job requires", r"Job requires (?P<pages>\d{1,9}) pages \(only \d{1,9} available\)(?:[^\n]{0,80}?Total cache allocated is \d{1,9} \* (?P<page>\d{1,6}) = (?P<limit>\d{1,9}) tokens)?", make=_pages),
    rule("refused", ("exceeds the available context size of", "Initial job allocation requires", "Job requires"), r"(?:Prompt length (?P<tokens>\d+)|requires (?P<tokens2>\d+) (?:cache )?tokens)[^\d\n]{0,60}exceeds the available context size of (?P<limit>\d+)"),
    rule("refused", ("is greater than max_seq_len", "exceeds max_seq_len", "exceeds the context length of"), r"(?:[Cc]ontext|[Pp]rompt)? ?(?:length )?\b(?P<tokens>\d{1,9}) (?:is greater than|exceeds) (?:max_seq_len|the context length of) \(?(?P<limit>\d+)"),
    rule("window", "max_seq_len", r"max_seq_len\"?[ :=]+(?P<tokens>\d+)", which="in-force", key="max_seq_len"),
    rule("config-ignored", ("exllamav2 config", "Draft model is disabled", "is not supported by exllama"), r"is not supported by exllama\w*|Draft model is disabled", level="warning"),
)
# fmt: on
