# ruff: noqa: E501 - a pattern is read and compared best on one line
"""text-generation-webui: what it loads and cuts, and what each answer took. Its llama-server's lines stand among its own."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "text-generation-webui"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("program", ("Starting TextGen", "Starting Text generation web UI"), r"Starting (?:TextGen|Text generation web UI)\b", name="text-generation-webui"),
    rule("loading", 'INFO     Loading "', r'INFO +Loading "(?P<name>[^"]{1,400})"'),
    rule("window", "| ctx_size=", r"gpu_layers=\S+ \| ctx_size=(?P<tokens>\d+) \|", which="asked", key="ctx_size"),
    rule("load-failed", ("Error loading the model with llama.cpp", "Failed to load the model"), r"(?:Error loading the model with llama\.cpp: |Failed to load the model)(?P<reason>.{0,200})", level="error"),
    rule("model-loaded", '" in ', r'INFO +Loaded "(?P<name>[^"]{1,400})" in (?P<seconds>[\d.]+) seconds'),
    rule("truncated", "The input has been truncated", r"The input has been truncated\.?(?: Context length: (?P<limit>\d+))?(?:.*?max_new_tokens: (?P<count>\d+))?(?:.*?available context length: (?P<kept>\d+))?", reason="output-reserve", level="warning"),
    rule("truncated", "available context length:", r"max_new_tokens: (?P<count>\d+), available context length: (?P<kept>\d+)", reason="output-reserve"),
    rule("truncated", "message truncated from", r"truncated from (?P<tokens>\d+) to (?P<kept>\d+) tokens", reason="messages-dropped"),
    rule("window", "CONTEXT LENGTH: ", r"CONTEXT LENGTH: (?P<tokens>\d+)", which="in-force", key="loader"),
    rule("window", "TRUNCATION LENGTH: ", r"TRUNCATION LENGTH: (?P<tokens>\d+)", which="in-force", key="truncation_length"),
    # its seconds are those of reading and writing together, so they are no speed of either; without a token nothing need have been read
    rule("reply", "Output generated in ", r"Output generated in (?P<seconds>[\d.]+) seconds \([\d.]+ (?:tokens/s|it/s), (?P<count>[1-9]\d*) tokens(?:, context (?P<tokens>\d+))?"),
    rule("refused", "Failed to build the chat prompt", reason="output budget"),
    rule("refused", "max_new_tokens >= truncation_length", reason="output budget"),
)
# fmt: on
