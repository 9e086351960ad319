"""How much work space a context takes: a model fitted to what llama.cpp measured, with its error stated.

llama.cpp's own graph planner decides this number and no closed form gives it. The planner reuses buffers, so the peak is one phase: a feed-forward layer
(inputs, branches, output), attention (scores without flash attention, widened copies of an f32 cache with it), a state's scan, or the output layer's
logits. Attention masks live as long as the layers do. The terms were fitted to 2,590 contexts of 91 models measured on the CPU
(tests/model_file/kv_truth.json.xz) and are held against logs of real devices (tests/model_file/gpu_logs.toml).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import ContextSettings, Memory, Plan
    from .shape import Shape

ERROR_SHARE = 0.25
"""Of the compute buffers of models of real size, nine of ten are within this share (see tests)."""
ERROR_BYTES = 16 * 1024**2
"""Below this the error does not matter, and small models differ by more."""

_F32 = 4


class HostWeights(NamedTuple):
    """The largest tensors in host memory, in bytes: a device that works on a large batch copies them into its work space, one at a time."""

    feed_forward: int = 0
    attention: int = 0
    output: int = 0


NOTHING = HostWeights()


class Phases(NamedTuple):
    """The parts of one context's work space in bytes, for a device that holds the whole model."""

    masks: int
    cast: int
    """Masks as f32 that older builds hold besides, until they are cast."""
    feed_forward: int
    attention: int
    scan: int
    outputs: int
    layer_inputs: int
    chosen: int
    """Which tokens each layer's indexer chose: kept to the end."""
    inputs: int
    """Embeddings of one micro-batch: what goes into the first layer."""

    def peak(self, *, logits: bool = True, copied: HostWeights = NOTHING) -> int:
        """Give the largest phase. ``logits``: whether the device has the output layer; ``copied``: weights that it must fetch."""
        layers = max(
            self.feed_forward + copied.feed_forward,
            self.attention + copied.attention + self.cast,
            self.scan + copied.attention,
        )
        last = self.outputs + copied.output if logits else 0
        return max(self.masks + layers, last) + self.layer_inputs + self.chosen


def compute_bytes(planned: Plan, memory: Memory, settings: ContextSettings) -> int:
    """Estimate the compute buffers of one context, in bytes, for one device that holds the whole model."""
    return phases(planned, memory, settings).peak()


def phases(planned: Plan, memory: Memory, settings: ContextSettings) -> Phases:
    """Estimate the phases of one context's graph."""
    shape = planned.shape
    tokens = memory.ubatch
    # T5 adds a position bias to every score, so its scores are always there.
    flash = settings.flash_attn != "off" and shape.architecture not in {"grok", "t5"}
    mask = 2 if flash else _F32
    masks = 0
    scores = 0
    copies = 0
    for part, cache in zip(planned.parts, memory.caches, strict=True):
        if not cache.layers:
            continue
        if part.name in {"base", "main", "swa"}:
            masks += cache.cells * tokens * mask
            if not flash:
                scores = max(scores, cache.cells * tokens * _F32 * max(shape.heads))
            elif settings.kv_k == "f32" or settings.kv_v == "f32":
                copies = max(copies, cache.cells * cache.streams * (max(part.k_rows) + max(part.v_rows)) // 2)
        elif part.name == "indexer" and shape.rule.memory != "msa":
            scores = max(scores, cache.cells * tokens * (4 + 2 * shape.indexer_rows))
        elif part.name == "indexer" and not settings.kv_unified:
            # each key head has scores and a mask of its own; over a unified cache this kind attends densely
            scores = max(scores, cache.cells * tokens * (1 + 9 * max(shape.kv_heads)))
    if shape.rule.memory == "none":
        masks = tokens * tokens * 2
        scores = 0 if flash else tokens * tokens * _F32 * max(shape.heads, default=1)
    # A model with an encoder gets logits for every token, whatever is asked.
    rows = tokens if shape.architecture in {"t5", "t5encoder"} else settings.outputs or max(1, settings.parallel)
    return Phases(
        masks=masks,
        cast=2 * masks if flash and settings.wide_masks else 0,
        feed_forward=tokens * _F32 * _feed_forward(shape),
        attention=tokens * _F32 * _attention(shape, flash=flash) + scores + copies,
        scan=tokens * _F32 * _scan(shape),
        outputs=_F32 * min(rows, max(tokens, 1)) * (shape.vocabulary + shape.width),
        layer_inputs=tokens * _F32 * (2 * shape.layers_all * shape.layer_input + shape.width)
        if shape.layer_input
        else 0,
        chosen=_chosen(planned, memory),
        inputs=tokens * _F32 * shape.width,
    )


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
    if shape.compressed:
        # queries before and after they are taken into the compressed space, and the result there
        return 2 * shape.width + 2 * queries + 2 * max(shape.heads, default=0) * shape.head_mla
    floats = 4 * shape.width + 2 * queries
    return floats if flash else floats + queries // 2


def _chosen(planned: Plan, memory: Memory) -> int:
    """Bytes of the indices that sparse attention over compressed keys works with, layer by layer."""
    shape = planned.shape
    if shape.rule.memory not in {"dsa", "dsa-window"} or not shape.indexer_top:
        return 0
    for part, cache in zip(planned.parts, memory.caches, strict=True):
        if part.name == "indexer":
            return len(part.layers) * min(shape.indexer_top, cache.cells) * memory.ubatch * 4
    return 0


def _scan(shape: Shape) -> int:
    """Floats a token in a layer that carries a state on."""
    if not shape.state or shape.rule.recurrent == "interval":
        return 0  # gated delta nets work in chunks: a feed-forward layer takes more
    if shape.token_shift:
        return 20 * shape.width
    return 5 * (shape.width + shape.conv_width)
