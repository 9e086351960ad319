# ruff: noqa: E501 - a pattern is read and compared best on one line
"""LM Studio: its own texts of both APIs; the llama.cpp lines within its log are llama.cpp's."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "lmstudio"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("refused", ("tokens to keep from the initial prompt", "when context the overflows", "when the context overflows", "Cannot truncate prompt with n_keep"), r"(?:tokens to keep from the initial prompt.*?)?n_keep:? ?\(?(?P<tokens>\d+)\)?\s*>=\s*n_ctx:? ?\(?(?P<limit>\d+)\)?|keep the first (?P<tokens2>\d+) tokens when.*?context length of only (?P<limit2>\d+) tokens|n_keep \((?P<tokens3>\d+)\) >= n_ctx \((?P<limit3>\d+)\)|tokens to keep from the initial prompt is greater", reason="keep"),
    rule("truncated", "does not currently support mid-generation context overflow", r"Reached context length of (?P<limit>\d+) tokens with model \(arch: (?P<name>[^)]*)\)", reason="window-reached"),
    rule("crash", ("crashed without additional information", "The model has crashed", "The model crashed"), r"(?:crashed without additional information|model has crashed)[^(\n]{0,80}(?:\(Exit code:? ?(?P<code>\d+)\))?"),
    rule("load-failed", ("Error loading model.", "Failed to load the model", "Model loading aborted", "insufficient system resources"), r"Error loading model\.(?: \(Exit code: (?P<code>\d+)\))?|(?P<reason>[Mm]odel loading aborted[^\n]{0,120}|insufficient system resources)|Failed to load the model"),
    rule("fit", "for VRAM overflow calculations", r"using '(?P<tokens>\d+)' as context length.*?Original context length: '(?P<of>\d+)'", key="planner"),
    rule("prefill-progress", "rompt processing progress: ", r"rompt processing progress:\s*(?P<percent>[\d.]+)\s*%"),
    rule("cancelled", ("Client disconnected", "client disconnected. Stopping"), r"[Cc]lient disconnected"),
    rule("program", "[LM STUDIO SERVER]", r"\[LM STUDIO SERVER\] (?P<value>Server started|Success! HTTP server listening)[^\n]{0,100}", name="lm-studio"),
    rule("window", ("loaded_context_length", '"contextLength"', "loaded with context length"), r"loaded_context_length\"?\s*[:=]\s*(?P<tokens>\d+)|\"contextLength\"\s*:\s*(?P<tokens2>\d+)|loaded with context length of (?:only )?(?P<tokens3>\d+)", which="in-force", key="loaded"),
)
# fmt: on
