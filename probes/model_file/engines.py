"""Caches of vLLM, SGLang, MLX and ExLlama, from a model's config.json.

These engines do not allocate one cache a window: vLLM and SGLang fill what is left of the device with one pool of blocks, MLX grows in steps, and
ExLlama allocates pages. Facts: vLLM 0.33, SGLang 0.5.23, mlx-lm 0.32, TabbyAPI with ExLlamaV3 (Aug 2026).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .shape import UnknownShapeError

if TYPE_CHECKING:
    from .safetensors_header import ModelFolder
    from .shape import Shape

ENGINES = ("vllm", "sglang", "mlx_lm", "exllama")
BLOCK = {"vllm": 16, "sglang": 1, "mlx_lm": 256, "exllama": 256}
"""Tokens by which a cache grows: vLLM's block, SGLang's page, MLX's step, ExLlama's page."""
GGUF_ENGINES = ("vllm", "sglang")
"""Those that can load a GGUF file."""
_MOST = 1 << 32
_MOST_LAYERS = 4096
_WINDOW_KINDS = frozenset({"sliding_attention", "chunked_attention"})
_STATE_KINDS = frozenset({"linear_attention", "mamba", "conv", "recurrent", "short_conv"})
"""What config.json calls layers that keep no key and value of every token."""


@dataclass(frozen=True, slots=True)
class FolderShape:
    """Elements that a token leaves behind, by kind of layer. ``window`` 0: no layer slides."""

    architecture: str
    trained_window: int
    layers: int
    full_layers: int
    window_layers: int
    window: int
    full_row: int
    window_row: int
    state_layers: int
    state_elements: int
    """Of one state layer and sequence: convolution and state together; 0 with state layers: not known."""
    dtype: str
    group_size: int = 0
    """Of MLX's own quantisation of the weights."""
    full_at: tuple[int, ...] = ()
    window_at: tuple[int, ...] = ()
    """Which layers those are; what the model's file does not say is in the order that its counts give."""


def read_folder_shape(folder: ModelFolder) -> FolderShape:
    """Read the dimensions from config.json. UnknownShapeError where it does not say enough."""
    config = folder.text_config
    architectures = config.get("architectures")
    name = config.get("model_type") or (architectures[0] if isinstance(architectures, list) and architectures else None)
    if not isinstance(name, str):
        raise UnknownShapeError("config.json does not name the model's type", ("model_type",))
    layers = _whole(config, "num_hidden_layers", "n_layer", "num_layers")
    heads = _whole(config, "num_attention_heads", "n_head")
    width = _whole(config, "hidden_size", "n_embd", "d_model")
    kv_heads = _whole(config, "num_key_value_heads", default=heads)
    head = _whole(config, "head_dim", default=width // heads if heads else 0)
    window = _whole(config, "sliding_window", default=0)
    full_row = window_row = 2 * kv_heads * head
    rank, rope = _whole(config, "kv_lora_rank", default=0), _whole(config, "qk_rope_head_dim", default=0)
    if rank:
        full_row = window_row = rank + rope
    if not 0 < layers <= _MOST_LAYERS:
        raise UnknownShapeError(f"num_hidden_layers is {layers}, which no model has", ("num_hidden_layers",))
    kinds = config.get("layer_types")
    full, sliding, states = layers, 0, 0
    if isinstance(kinds, list):
        kinds = kinds[:layers]
        if len(kinds) < layers or not all(isinstance(kind, str) for kind in kinds):
            raise UnknownShapeError(f"config.json does not list a type for each of {layers} layers", ("layer_types",))
        sliding = sum(1 for kind in kinds if kind in _WINDOW_KINDS)
        states = sum(1 for kind in kinds if kind in _STATE_KINDS)
        full = layers - sliding - states
    elif window and config.get("use_sliding_window", True):
        pattern = _whole(config, "sliding_window_pattern", default=1)
        full = layers // pattern if pattern > 1 else 0
        sliding = layers - full
    elif _whole(config, "full_attention_interval", default=0) > 1:
        full = layers // _whole(config, "full_attention_interval")
        states = layers - full
    if sliding and not window:
        window = _whole(config, "attention_chunk_size", default=0)
        if not window:
            raise UnknownShapeError("config.json lists sliding layers but no window", ("sliding_window",))
    if not full_row and states < layers:
        raise UnknownShapeError("config.json gives keys and values no width", ("num_key_value_heads", "head_dim"))
    if states + sliding + full != layers or full < 0:
        raise UnknownShapeError("config.json's layer types do not add up", ("layer_types",))
    quantisation = config.get("quantization")
    return FolderShape(
        architecture=name,
        trained_window=_whole(config, "max_position_embeddings", "n_positions", "seq_length", default=0),
        layers=layers,
        full_layers=full,
        window_layers=sliding,
        window=window if sliding else 0,
        full_row=full_row,
        window_row=window_row,
        state_layers=states,
        state_elements=_state(config),
        dtype=str(config.get("dtype") or config.get("torch_dtype") or "bfloat16").removeprefix("torch."),
        group_size=quantisation["group_size"]
        if isinstance(quantisation, dict) and isinstance(quantisation.get("group_size"), int)
        else 0,
        full_at=tuple(at for at, kind in enumerate(_order(kinds, layers, full, sliding, config)) if kind == "full"),
        window_at=tuple(at for at, kind in enumerate(_order(kinds, layers, full, sliding, config)) if kind == "window"),
    )


def _order(kinds: object, layers: int, full: int, sliding: int, config: dict[str, Any]) -> list[str]:
    """Say what each layer keeps: as listed, or every n-th one all tokens and the others a window or a state."""
    if isinstance(kinds, list):
        return ["window" if kind in _WINDOW_KINDS else "state" if kind in _STATE_KINDS else "full" for kind in kinds]
    if full == layers:
        return ["full"] * layers
    other = "window" if sliding else "state"
    name = "sliding_window_pattern" if sliding else "full_attention_interval"
    every = _whole(config, name, default=1) if full else 0
    return ["full" if every and at % every == every - 1 else other for at in range(layers)]


def gguf_shape(shape: Shape) -> FolderShape:
    """Give the dimensions of a GGUF file's model as these engines cache them. UnknownShapeError for what they keep otherwise than counted here."""
    if shape.rule.memory != "attention" or shape.kv_from_start >= 0:
        raise UnknownShapeError(f"how a cache of {shape.architecture} is laid out from a GGUF file is not known here")
    rows: dict[bool, set[int]] = {False: set(), True: set()}
    at: dict[bool, list[int]] = {False: [], True: []}
    for layer in range(shape.layers):
        inside = shape.windowed and shape.in_window[layer]
        row = shape.key_row(layer) + (0 if shape.compressed else shape.value_row(layer))
        if row:
            rows[inside].add(row)
            at[inside].append(layer)
    if len(rows[False]) > 1 or len(rows[True]) > 1:
        raise UnknownShapeError(
            f"the layers of {shape.architecture} differ in width, which is not counted for this engine"
        )
    return FolderShape(
        architecture=shape.architecture,
        trained_window=shape.trained_window,
        layers=shape.layers,
        full_layers=len(at[False]),
        window_layers=len(at[True]),
        window=shape.window if at[True] else 0,
        full_row=max(rows[False], default=0),
        window_row=max(rows[True], default=0),
        state_layers=0,
        state_elements=0,
        dtype="float16",
        full_at=tuple(at[False]),
        window_at=tuple(at[True]),
    )


def guess_engine(folder: ModelFolder) -> str:
    """Say which engine such a folder is made for: MLX and ExLlama mark theirs; else vLLM."""
    if isinstance(folder.config.get("quantization"), dict):
        return "mlx_lm"
    method = folder.config.get("quantization_config")
    if isinstance(method, dict) and method.get("quant_method") in {"exl2", "exl3"}:
        return "exllama"
    return "vllm"


def bytes_per_element(engine: str, kv: str, dtype: str) -> float | None:
    """Give what one cached element takes; None for a type that this engine has not.

    ``kv``: auto, f16, bf16, f32, fp8 (vLLM, SGLang), q4, q6, q8 (MLX in groups of 64 with a 16-bit scale and bias; ExLlama in groups of
    32 with a 16-bit scale).
    """
    name = kv.lower()
    wide = 4.0 if dtype == "float32" else 2.0
    if name in {"auto", ""}:
        return wide
    if name in {"f16", "fp16", "bf16", "float16", "bfloat16"}:
        return 2.0
    if name in {"f32", "float32"}:
        return 4.0
    if engine in {"vllm", "sglang"}:
        return 1.0 if name.startswith("fp8") else None
    bits = name.removeprefix("q").removesuffix("_0")
    if name[:1] != "q" or not bits.isascii() or not bits.isdigit() or not 2 <= int(bits) <= 8:
        return None
    return int(bits) / 8 + (4 / 64 if engine == "mlx_lm" else 2 / 32)


def pool_bytes(shape: FolderShape, engine: str, tokens: int, key: float, value: float, sequences: int = 1) -> int:
    """Give the bytes of caches for one window in each of ``sequences``; ``key`` and ``value``: bytes an element."""
    step = BLOCK[engine]
    cells = -(-tokens // step) * step
    inside = min(cells, -(-shape.window // step) * step)
    each = (key + value) / 2
    total = shape.full_layers * shape.full_row * cells + shape.window_layers * shape.window_row * inside
    return int(total * each + 0.5) * sequences


def longest_pool(shape: FolderShape, engine: str, room: int, key: float, value: float) -> int:
    """Give the tokens that fit in ``room`` bytes, in whole blocks, for one sequence; the trained window at most where it is known."""
    step = BLOCK[engine]
    most = shape.trained_window or 1 << 24
    if pool_bytes(shape, engine, most, key, value) <= room:
        return most
    low, high = 0, -(-most // step)
    while high - low > 1:
        middle = (low + high) // 2
        if pool_bytes(shape, engine, middle * step, key, value) <= room:
            low = middle
        else:
            high = middle
    return low * step


def _state(config: dict[str, Any]) -> int:
    """Elements of one linear-attention layer's state and convolution (gated delta net); 0 where the keys are not there."""
    try:
        keys, values = _whole(config, "linear_num_key_heads"), _whole(config, "linear_num_value_heads")
        key, value = _whole(config, "linear_key_head_dim"), _whole(config, "linear_value_head_dim")
        kernel = _whole(config, "linear_conv_kernel_dim")
    except UnknownShapeError:
        return 0
    return values * key * value + max(kernel - 1, 0) * (2 * keys * key + values * value)


def _whole(config: dict[str, Any], *names: str, default: int | None = None) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            if not 0 <= value < _MOST:
                raise UnknownShapeError(f"{name} is {value}, which no model has", (name,))
            return value
    if default is None:
        raise UnknownShapeError(f"config.json lacks {names[0]}", (names[0],))
    return default
