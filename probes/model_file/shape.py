"""A model's dimensions as far as memory depends on them, layer by layer, read from a GGUF header.

Follows llama.cpp's own reading of the keys (build 11434: ``llama_model_base::load_hparams`` and each model's ``load_arch_hparams``), with its
defaults. Where a key that decides is absent or impossible, :class:`UnknownShapeError` says which, and nothing is guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .architectures import NEEDS_TARGET, PROJECTORS, RULES, Rule

if TYPE_CHECKING:
    from .gguf_header import GgufHeader, Scalar, Skipped

MOST_LAYERS = 512
"""llama.cpp's own bound."""
_MOST = 1 << 32
_KEYS_FROM_START = 20
"""Gemma 3n: only the first 20 layers have keys and values of their own."""
_CSA, _HCA = 4, 128
"""DeepSeek V4's two compression ratios."""


class UnknownShapeError(Exception):
    """The header does not say enough. ``missing``: full names of the keys that are absent or impossible."""

    def __init__(self, why: str, missing: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why = why
        self.missing = missing


@dataclass(slots=True)
class Shape:
    """Dimensions that decide about memory. Lists have one entry a layer, draft (MTP) layers included."""

    architecture: str
    rule: Rule
    trained_window: int
    width: int
    layers_all: int
    draft_layers: int
    heads: list[int]
    kv_heads: list[int]
    feed_forward: list[int]
    head_k: int
    head_v: int
    head_k_window: int
    head_v_window: int
    vocabulary: int
    causal: bool = True
    compressed: bool = False
    """MLA: one compressed key a token, no values."""
    head_mla: int = 0
    """Width of a key head before compression."""
    windowed: bool = False
    window: int = 0
    in_window: list[bool] = field(default_factory=list)
    recurrent: list[bool] = field(default_factory=list)
    kv_from_start: int = -1
    router: bool = False
    conv_state: int = 0
    """Elements of the convolution (or token shift) state of one layer and sequence."""
    state: int = 0
    conv_width: int = 0
    """Channels of that convolution."""
    token_shift: bool = False
    """Whether layers look at the token before (RWKV)."""
    layer_input: int = 0
    """Width of the input that each layer gets of its own (Gemma 3n and 4); 0: none."""
    ngram_state: int = 0
    ngram_layers: tuple[int, ...] = ()
    indexer: int = 0
    """Width of an indexer's key; 0: none."""
    indexer_rows: int = 1
    indexer_top: int = 0
    """How many tokens an indexer chooses."""
    indexer_full: list[bool] = field(default_factory=list)
    dense_lead: int = 0
    ratios: list[int] = field(default_factory=list)
    experts: int = 0
    experts_used: int = 0
    feed_forward_experts: int = 0
    experts_shared: int = 0
    """Feed-forward width of the experts that every token goes through."""
    gated: bool = True
    """Whether feed-forward layers multiply two branches (or hold both in one double-wide tensor)."""
    output_width: int = 0
    needs_target: bool = False

    @property
    def layers(self) -> int:
        """Count the layers without those that only draft."""
        return self.layers_all - self.draft_layers

    def key_head(self, layer: int) -> int:
        """Give the width of one key head in that layer."""
        return self.head_k_window if self.in_window[layer] else self.head_k

    def value_head(self, layer: int) -> int:
        """Give the width of one value head in that layer."""
        return self.head_v_window if self.in_window[layer] else self.head_v

    def key_row(self, layer: int) -> int:
        """Count the key elements of one token in that layer."""
        return self.key_head(layer) * self.kv_heads[layer]

    def value_row(self, layer: int) -> int:
        """Count the value elements of one token in that layer."""
        return self.value_head(layer) * self.kv_heads[layer]


class _Keys:
    """The keys of one architecture, with llama.cpp's rules about scalars and arrays."""

    def __init__(self, header: GgufHeader, architecture: str) -> None:
        self.keys = header.keys
        self.prefix = f"{architecture}."
        self.absent: list[str] = []

    def raw(self, name: str) -> Scalar | tuple[Scalar, ...] | Skipped | None:
        return self.keys.get(self.prefix + name)

    def whole(self, name: str, default: int | None = None) -> int:
        """Give a whole number of 0 or more; without a default an absent key is noted as missing."""
        value = self.raw(name)
        if isinstance(value, int):
            if not 0 <= value < _MOST:
                raise UnknownShapeError(f"{self.prefix}{name} is {value}, which no model has", (self.prefix + name,))
            return int(value)
        if value is not None and not isinstance(value, float):
            # A list where one number is due: llama.cpp refuses it where it must be there and ignores it elsewhere.
            value = None
        if default is None:
            self.absent.append(self.prefix + name)
            return 0
        return default

    def listed(self, name: str) -> list[int] | None:
        """Give a list of numbers, None if the key is absent or no list."""
        value = self.raw(name)
        if not isinstance(value, tuple) or isinstance(value, str) or not all(isinstance(v, int) for v in value):
            return None
        if not hasattr(value, "_fields"):
            return [int(v) for v in value]
        return None

    def per_layer(self, name: str, count: int, default: list[int] | None) -> list[int] | None:
        """Give one number a layer: a scalar stands for every layer, a list must have one entry for each."""
        listed = self.listed(name)
        if listed is not None:
            if len(listed) != count:
                raise UnknownShapeError(
                    f"{self.prefix}{name} has {len(listed)} entries for {count} layers", (self.prefix + name,)
                )
            if any(not 0 <= value < _MOST for value in listed):
                raise UnknownShapeError(f"{self.prefix}{name} has an impossible entry", (self.prefix + name,))
            return listed
        if isinstance(self.raw(name), int):
            return [self.whole(name)] * count
        return default


def read_shape(header: GgufHeader) -> Shape:
    """Read the dimensions of a model. UnknownShapeError where the header does not say enough or the architecture is not known."""
    architecture = header.architecture
    if architecture is None:
        raise UnknownShapeError("the file does not name its architecture", ("general.architecture",))
    if architecture in PROJECTORS:
        raise UnknownShapeError("this is a projector (multimodal part), not a model: give it with --mmproj")
    rule = RULES.get(architecture)
    if rule is None:
        raise UnknownShapeError(f"unknown architecture {architecture[:80]!r}")
    keys = _Keys(header, architecture)
    shape = _common(header, keys, architecture, rule)
    _compressed(shape, keys)
    _windows(shape, keys)
    _states(shape, keys)
    _indexers(shape, keys)
    _special(shape, keys, header)
    for name in rule.needs:
        if keys.raw(name) is None:
            keys.absent.append(keys.prefix + name)
    if keys.absent:
        missing = tuple(dict.fromkeys(keys.absent))
        raise UnknownShapeError(f"the header lacks {', '.join(missing)}", missing)
    if rule.memory not in {"none", "recurrent"} and not shape.head_k:
        raise UnknownShapeError(
            "the model has no attention heads in its first layer", (f"{architecture}.attention.head_count",)
        )
    return shape


def _common(header: GgufHeader, keys: _Keys, architecture: str, rule: Rule) -> Shape:
    trained = keys.whole("context_length")
    width = keys.whole("embedding_length")
    count = keys.whole("block_count")
    if keys.absent:
        raise UnknownShapeError(f"the header lacks {', '.join(keys.absent)}", tuple(keys.absent))
    if not 0 < count <= MOST_LAYERS:
        raise UnknownShapeError(f"{count} layers: llama.cpp takes 1 to {MOST_LAYERS}", (f"{keys.prefix}block_count",))
    draft = keys.whole("nextn_predict_layers", 0)
    if draft > count:
        raise UnknownShapeError(f"{draft} draft layers of {count} layers", (f"{keys.prefix}nextn_predict_layers",))
    heads = keys.per_layer("attention.head_count", count, None)
    if heads is None:
        if rule.memory not in {"none", "recurrent"}:
            keys.absent.append(f"{keys.prefix}attention.head_count")
        heads = [0] * count
    kv_heads = keys.per_layer("attention.head_count_kv", count, heads) or heads
    feed_forward = keys.per_layer("feed_forward_length", count, [0] * count) or [0] * count
    head_k = head_v = 0
    if heads[0] > 0 or architecture == "plamo2":  # which may begin with a layer that has no heads
        head_k = keys.whole("attention.key_length", width // heads[0] if heads[0] else 0)
        head_v = keys.whole("attention.value_length", width // heads[0] if heads[0] else 0)
    used = keys.per_layer("expert_used_count", count, [0] * count) or [0]
    experts_width = keys.per_layer("expert_feed_forward_length", count, [0] * count) or [0]
    return Shape(
        architecture=architecture,
        rule=rule,
        trained_window=trained,
        width=width,
        layers_all=count,
        draft_layers=draft,
        heads=list(heads),
        kv_heads=list(kv_heads),
        feed_forward=list(feed_forward),
        head_k=head_k,
        head_v=head_v,
        head_k_window=keys.whole("attention.key_length_swa", head_k) if head_k else 0,
        head_v_window=keys.whole("attention.value_length_swa", head_v) if head_v else 0,
        vocabulary=header.count("tokenizer.ggml.tokens") or keys.whole("vocab_size", 0) or _rows(header),
        causal=rule.causal and keys.raw("attention.causal") is not False,
        in_window=[False] * count,
        recurrent=[rule.memory == "recurrent"] * count,
        indexer_full=[False] * count,
        dense_lead=keys.whole("leading_dense_block_count", 0),
        experts=keys.whole("expert_count", 0),
        experts_used=max(used),
        feed_forward_experts=max(experts_width),
        experts_shared=keys.whole("expert_shared_feed_forward_length", 0),
        gated=_gated(header, max(feed_forward)),
        output_width=keys.whole("embedding_length_out", 0) or width,
        needs_target=architecture in NEEDS_TARGET,
    )


def _rows(header: GgufHeader) -> int:
    """Count the rows of the embedding table: the vocabulary where the header has no list of words."""
    for tensor in header.tensors:
        if tensor.name == "token_embd.weight" and len(tensor.shape) > 1:
            return tensor.shape[1]
    return 0


def _gated(header: GgufHeader, feed_forward: int) -> bool:
    for tensor in header.tensors:
        if ".ffn_gate" in tensor.name or (".ffn_up." in tensor.name and tensor.shape[-1] == 2 * feed_forward):
            return True
    return not header.tensors


def _compressed(shape: Shape, keys: _Keys) -> None:
    if shape.rule.mla:
        key, value = keys.whole("attention.key_length_mla", 0), keys.whole("attention.value_length_mla", 0)
        shape.compressed = key != 0 and value != 0
        shape.head_mla = key
    if shape.architecture in {"kimi-k3", "glm5-next"}:
        shape.head_v = keys.whole("attention.kv_lora_rank", shape.head_v)


def _windows(shape: Shape, keys: _Keys) -> None:
    window = shape.rule.window
    if window is None:
        return
    given = keys.raw("attention.sliding_window")
    size = keys.whole("attention.sliding_window", 0)
    if window.when == "if-key" and size == 0:
        return
    if window.when == "unless-zero" and given is not None and size == 0:
        return
    if window.when == "64-layers" and shape.layers != 64:
        return
    if window.when == "always" and window.size is None and given is None:
        keys.absent.append(f"{keys.prefix}attention.sliding_window")
    shape.windowed = True
    shape.window = window.fixed or (size if given is not None else window.size or 0)
    listed = keys.listed("attention.sliding_window_pattern")
    if window.attention_layers:
        shape.in_window = [heads > 0 and layer < shape.layers for layer, heads in enumerate(shape.kv_heads)]
        return
    if listed is not None:
        shape.in_window = [bool(entry) for entry in (*listed, *[0] * shape.layers_all)[: shape.layers_all]]
    elif window.period is None:
        keys.absent.append(f"{keys.prefix}attention.sliding_window_pattern")
    else:
        period = keys.whole("attention.sliding_window_pattern", window.period)
        shape.in_window = [
            layer < shape.layers and _slides(layer, period, window.full_first) for layer in range(shape.layers_all)
        ]


def _slides(layer: int, period: int, full_first: bool) -> bool:
    if period == 0:
        return True
    return layer % period != 0 if full_first else layer % period < period - 1


def _states(shape: Shape, keys: _Keys) -> None:
    rule = shape.rule
    if rule.recurrent == "every":
        shape.recurrent = [True] * shape.layers_all
    elif rule.recurrent == "no-kv-heads":
        shape.recurrent = [heads == 0 and layer < shape.layers for layer, heads in enumerate(shape.kv_heads)]
        if shape.architecture == "glm5-next":
            shape.recurrent = [heads == 0 for heads in shape.kv_heads]
    elif rule.recurrent == "no-kv-heads-no-ffn":
        shape.recurrent = [
            layer < shape.layers and shape.kv_heads[layer] == 0 and shape.feed_forward[layer] == 0
            for layer in range(shape.layers_all)
        ]
    elif rule.recurrent == "interval":
        listed = keys.per_layer("attention.recurrent_layers", shape.layers_all, None)
        if listed is not None:
            shape.recurrent = [bool(entry) for entry in listed]
        else:
            interval = keys.whole("full_attention_interval", rule.interval)
            if interval == 0:
                raise UnknownShapeError(
                    f"{keys.prefix}full_attention_interval is 0", (f"{keys.prefix}full_attention_interval",)
                )
            shape.recurrent = [
                layer < shape.layers and (layer + 1) % interval != 0 for layer in range(shape.layers_all)
            ]
    if rule.memory not in {"recurrent", "hybrid", "hybrid-indexed"}:
        return
    conv = keys.whole("ssm.conv_kernel", 0)
    head_size = keys.whole("wkv.head_size", 0) if "wkv.head_size" in rule.needs else 0
    cache = keys.whole("shortconv.l_cache", 0) if "shortconv.l_cache" in rule.needs else 0
    delta = keys.whole("kda.head_dim", 0) if "kda.head_dim" in rule.needs else 0
    if head_size:
        shape.conv_state = keys.whole("token_shift_count", 2) * shape.width
        shape.state = shape.width * head_size
        shape.token_shift = True
    elif cache:
        shape.conv_state = shape.width * (cache - 1)
        shape.state = 0
    elif delta:
        shape.conv_state = 3 * (conv - 1 if conv else 3) * shape.heads[0] * delta
        shape.state = delta * delta * shape.heads[0]
    elif shape.architecture == "minimax-01":
        shape.state = shape.head_k * shape.head_k * shape.heads[0]
    else:
        inner, size = keys.whole("ssm.inner_size", 0), keys.whole("ssm.state_size", 0)
        groups = keys.whole("ssm.group_count", 0) if rule.groups else 0
        shape.conv_width = inner + 2 * groups * size
        shape.conv_state = max(conv - 1, 0) * shape.conv_width
        shape.state = size * inner


def _indexers(shape: Shape, keys: _Keys) -> None:
    if shape.rule.memory not in {"dsa", "dsa-window", "msa", "dsv4", "hybrid-indexed"}:
        return
    shape.indexer = keys.whole("attention.indexer.key_length", 0)
    shape.indexer_top = keys.whole("attention.indexer.top_k", 0)
    every = [True] * shape.layers
    none = [False] * shape.layers
    default = none
    if shape.architecture in {"glm5-next", "deepseek32"}:
        default = every
    elif shape.architecture == "glm-dsa":
        # Before version 5.2 (trained below one million) every layer has an indexer of its own, later one in four.
        later = [layer < 2 or (layer < 78 and (layer - 2) % 4 == 0) for layer in range(shape.layers)]
        default = every if shape.trained_window < 1 << 20 else later
    if shape.architecture == "dots3note":
        listed = keys.listed("attention.indexer.types")
        full = [bool(entry) for entry in (*(listed or []), *[0] * shape.layers)[: shape.layers]]
    else:
        types = (
            keys.per_layer("attention.indexer.types", shape.layers, None)
            if shape.architecture != "deepseek32"
            else None
        )
        full = default if types is None else [bool(entry) for entry in types]
    shape.indexer_full = [*full, *[False] * shape.draft_layers]
    if shape.architecture == "hy_v4" and keys.whole("attention.indexer.top_k", 0) == 0:
        shape.indexer = 0
    if shape.architecture == "glm5-next":
        shape.indexer_rows = 3  # key, gate and pooled key beside each other
    if shape.architecture == "qwen4exp":
        ratios = keys.per_layer("attention.compress_ratios", shape.layers_all, [0] * shape.layers_all) or []
        shape.indexer_rows = 2 if any(ratios) else 1  # key and pooled key


def _special(shape: Shape, keys: _Keys, header: GgufHeader) -> None:
    name = shape.architecture
    shape.layer_input = keys.whole("embedding_length_per_layer_input", 256 if name == "gemma3n" else 0)
    if name == "gemma3n":
        shape.kv_from_start = _KEYS_FROM_START
    elif name == "gemma4":
        shape.kv_from_start = shape.layers_all - keys.whole("attention.shared_kv_layers", 0)
    elif name == "deepseek4":
        _deepseek4(shape, keys, header)
    elif name == "qwen4exp":
        layers = keys.listed("ple.layers") or []
        if layers:
            kernel, size = keys.whole("ple.conv_kernel", 0), keys.whole("ple.ngram_size", 0)
            shape.ngram_state = max(kernel - 1, 0) * size * keys.whole("hyper_connection.count", 0) * shape.width
            shape.ngram_layers = tuple(layers)
    elif name == "graniteswitch":
        # One more layer with a single head, which every request goes through.
        shape.router = True
        for per_layer, entry in ((shape.heads, 1), (shape.kv_heads, 1), (shape.feed_forward, 0)):
            del per_layer[shape.layers :]
            per_layer.append(entry)
        shape.layers_all, shape.draft_layers = shape.layers + 1, 1
        shape.in_window = [False] * shape.layers_all
        shape.recurrent = [False] * shape.layers_all
    elif name == "nanbeige":
        loops = keys.whole("num_loops", 1)
        if loops < 1 or shape.layers * loops > MOST_LAYERS:
            raise UnknownShapeError(f"{loops} loops over {shape.layers} layers", (f"{keys.prefix}num_loops",))
        if loops > 1:
            count = shape.layers
            for values in (shape.heads, shape.kv_heads, shape.feed_forward):
                values[:] = values[:count] * loops
            shape.layers_all = count * loops
            shape.draft_layers = min(shape.draft_layers, shape.layers_all)
            shape.in_window = [False] * shape.layers_all
            shape.recurrent = [False] * shape.layers_all
    elif name in {"dflash", "eagle3"}:
        names = {tensor.name for tensor in header.tensors}
        shape.needs_target = not {"token_embd.weight", "output.weight"} <= names
        if name == "dflash" and keys.whole("hyper_connection.count", 0) > 0:
            shape.windowed, shape.window = True, keys.whole("attention.sliding_window", 0)
            shape.in_window = [True] * shape.layers_all


def _deepseek4(shape: Shape, keys: _Keys, header: GgufHeader) -> None:
    if shape.draft_layers:
        probe = f"blk.{shape.layers}.nextn.eh_proj.weight"
        if not any(tensor.name == probe for tensor in header.tensors):
            shape.draft_layers = 0
    ratios = keys.listed("attention.compress_ratios") or []
    if len(ratios) < shape.layers_all:
        raise UnknownShapeError(
            f"{len(ratios)} compression ratios for {shape.layers_all} layers",
            (f"{keys.prefix}attention.compress_ratios",),
        )
    shape.ratios = ratios[: shape.layers_all]
    shape.in_window = [True] * shape.layers_all
