"""llama-manager: the window that it grows on demand."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "llama-manager"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("window", "with a context window of", r"serving (?P<name>\S+) with a context window of (?P<tokens>\d+)", which="in-force", key="rung"),
    rule("window-capped", "requires capacity increase to", r"tokens_in (?P<count>\d+) requires capacity increase to (?P<tokens>\d+)", reason="grown"),
    rule("fit", "new ctx cap: ", r"applying strategies \[(?P<reason>[^\]]{0,200})\]; new ctx cap: (?P<tokens>\d+)", key="strategies"),
)
# fmt: on
