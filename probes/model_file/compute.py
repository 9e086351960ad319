"""How much work space a context takes: a model fitted to what llama.cpp measured, with its error stated.

llama.cpp's own graph planner decides this number and no closed form gives it. The planner reuses buffers, so the peak is one phase: either a
feed-forward layer (inputs, branches, output) or attention (scores without flash attention, widened copies of an f32 cache with it). The
terms below are those phases; they were fitted to 2,590 contexts of 91 models measured on the CPU (tests/model_file/kv_truth.json.xz).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import ContextSettings, Memory, Plan
    from .shape import Shape

ERROR_SHARE = 0.25
"""Of the compute buffers of models of real size, nine of ten are within this share (see tests)."""
ERROR_BYTES = 16 * 1024**2
"""Below this the error does not matter, and small models differ by more."""

_F32 = 4


def compute_bytes(planned: Plan, memory: Memory, settings: ContextSettings) -> int:
    """Estimate the compute buffers of one context, in bytes, for one device that holds the whole model."""
    shape = planned.shape
    tokens = memory.ubatch
    # T5 adds a position bias to every score, so its scores are always there.
    flash = settings.flash_attn != "off" and shape.architecture not in {"grok", "t5"}
    attended = [(part, cache) for part, cache in zip(planned.parts, memory.caches, strict=True) if cache.layers]
    masks = 0
    scores = 0
    copies = 0
    for part, cache in attended:
        if part.name in {"base", "main", "swa"}:
            masks += cache.cells * tokens * (2 if flash else _F32)
            if not flash:
                scores = max(scores, cache.cells * tokens * _F32 * max(shape.heads))
            elif settings.kv_k == "f32" or settings.kv_v == "f32":
                streams = cache.streams
                copies = max(copies, cache.cells * streams * (max(part.k_rows) + max(part.v_rows)) // 2)
        elif part.name == "indexer":
            scores = max(scores, cache.cells * tokens * (4 + 2 * shape.indexer_rows))
    if planned.shape.rule.memory == "none":
        masks = tokens * tokens * 2
        scores = 0 if flash else tokens * tokens * _F32 * max(shape.heads, default=1)
    feed_forward = tokens * _F32 * _feed_forward(shape)
    attention = tokens * _F32 * _attention(shape, flash=flash) + scores + copies
    outputs = _F32 * max(1, settings.parallel) * shape.vocabulary
    scan = tokens * _F32 * 5 * (shape.width + shape.conv_width) if shape.state else 0
    own_inputs = tokens * _F32 * (2 * shape.layers_all * shape.layer_input + shape.width) if shape.layer_input else 0
    return masks + max(feed_forward, attention, outputs, scan) + own_inputs


def _feed_forward(shape: Shape) -> int:
    """Floats a token in the widest feed-forward layer: its input and residuals, its branches, its output."""
    width = max(shape.feed_forward, default=0)
    dense = width * (3 if shape.gated else 1)
    experts = 0
    if shape.experts_used:
        each = shape.feed_forward_experts or width
        experts = shape.experts_used * 3 * each
        if shape.width > 2 * each:  # the output does not fit where the branches were
            experts += shape.experts_used * shape.width
        if shape.feed_forward_experts and not shape.dense_lead:
            dense = 0
    return 5 * shape.width + max(dense, experts)


def _attention(shape: Shape, *, flash: bool) -> int:
    """Floats a token in attention: residuals, queries, keys, values and their result."""
    queries = max(shape.heads, default=0) * shape.head_k
    floats = 4 * shape.width + 2 * queries
    if shape.compressed:  # queries are taken into the compressed space and back
        floats += 2 * queries
    return floats if flash else floats + queries // 2
