"""A model's header as evidence: the values that decide about the window."""

from __future__ import annotations

import os
from contextlib import suppress

from probes.evidence.subject import ModelFile

from .context import ContextSettings, Refused, plan
from .engines import FolderShape, read_folder_shape
from .gguf_header import GgufHeader, read_header
from .safetensors_header import ModelFolder, read_folder
from .shape import Shape, UnknownShapeError, read_shape

FILE_TYPES: dict[int, str] = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    3: "Q4_1",
    7: "Q8_0",
    8: "Q5_0",
    9: "Q5_1",
    10: "Q2_K",
    11: "Q3_K_S",
    12: "Q3_K_M",
    13: "Q3_K_L",
    14: "Q4_K_S",
    15: "Q4_K_M",
    16: "Q5_K_S",
    17: "Q5_K_M",
    18: "Q6_K",
    19: "IQ2_XXS",
    20: "IQ2_XS",
    21: "Q2_K_S",
    22: "IQ3_XS",
    23: "IQ3_XXS",
    24: "IQ1_S",
    25: "IQ4_NL",
    26: "IQ3_S",
    27: "IQ3_M",
    28: "IQ2_S",
    29: "IQ2_M",
    30: "IQ4_XS",
    31: "IQ1_M",
    32: "BF16",
    36: "TQ1_0",
    37: "TQ2_0",
    38: "MXFP4",
    39: "NVFP4",
}
"""``general.file_type`` → its usual name."""


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read a model's header. See :func:`probes.model_file.read_model`."""
    if os.path.isdir(path):  # noqa: PTH112 - one of the few places where speed counts
        return describe_folder(read_folder(path))
    return describe(read_header(path))


def describe(header: GgufHeader) -> ModelFile:
    """Put a GGUF header's values into the payload. What the file does not say, or what is not known here, is None."""
    own = f"{header.architecture}." if header.architecture else ""
    keys = header.keys
    factor = _number(keys.get(f"{own}rope.scaling.factor"))
    window = _whole(keys.get(f"{own}attention.sliding_window"))
    sizes = [tensor.size_bytes for tensor in header.tensors]
    file_type = _whole(keys.get("general.file_type"))
    template = keys.get("tokenizer.chat_template")
    shape = _shape(header)
    return ModelFile(
        path=header.path,
        format="gguf",
        size_bytes=header.size_bytes,
        header_hash=header.hash(),
        architecture=_text(header.architecture),
        name=_text(keys.get("general.name")),
        quantization=None if file_type is None else FILE_TYPES.get(file_type & 0x3FF, f"type {file_type}"),
        trained_window=_whole(keys.get(f"{own}context_length")),
        layers=_whole(keys.get(f"{own}block_count")),
        rope_freq_base=_number(keys.get(f"{own}rope.freq_base")),
        rope_scaling_type=_text(keys.get(f"{own}rope.scaling.type")),
        rope_scaling_factor=factor or None,
        rope_original_context=_whole(keys.get(f"{own}rope.scaling.original_context_length")) or None,
        sliding_window=(shape.window if shape.windowed else None) if shape else window or None,
        recurrent=None if shape is None else any(shape.recurrent),
        chat_template=template is not None and template != "",
        weights_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
        kv_bytes_per_token=None if shape is None else _per_token(shape),
        vocabulary=(shape.vocabulary or None) if shape else None,
    )


def describe_folder(folder: ModelFolder) -> ModelFile:
    """Put a folder's configuration into the payload."""
    config = folder.text_config
    scaling = config.get("rope_scaling") or config.get("rope_parameters")
    scaling = scaling if isinstance(scaling, dict) else {}
    quantisation = folder.config.get("quantization_config") or folder.config.get("quantization") or {}
    method = quantisation.get("quant_method") or quantisation.get("bits") if isinstance(quantisation, dict) else None
    shape: FolderShape | None = None
    with suppress(UnknownShapeError):
        shape = read_folder_shape(folder)
    return ModelFile(
        path=folder.path,
        format="safetensors",
        size_bytes=folder.size_bytes,
        header_hash=folder.hash(),
        architecture=shape.architecture[:1024] if shape else _text(config.get("model_type")),
        name=_text(config.get("_name_or_path")),
        quantization=str(method)[:64] if isinstance(method, str | int) else None,
        trained_window=_whole(config.get("max_position_embeddings")),
        layers=_whole(config.get("num_hidden_layers")),
        rope_freq_base=_number(config.get("rope_theta") or scaling.get("rope_theta")),
        rope_scaling_type=_text(scaling.get("rope_type") or scaling.get("type")),
        rope_scaling_factor=_number(scaling.get("factor")),
        rope_original_context=_whole(scaling.get("original_max_position_embeddings")),
        sliding_window=shape.window or None if shape else None,
        recurrent=None if shape is None else shape.state_layers > 0,
        chat_template=os.path.exists(os.path.join(folder.path, "chat_template.jinja")) or None,  # noqa: PTH110, PTH118
        weights_bytes=folder.weights_bytes,
        kv_bytes_per_token=None if shape is None else 2.0 * shape.full_layers * shape.full_row,
    )


def _shape(header: GgufHeader) -> Shape | None:
    try:
        return read_shape(header)
    except UnknownShapeError:
        return None


def _per_token(shape: Shape) -> float | None:
    """Bytes that one more token adds: f16, caches that grow with the window."""
    planned = plan(shape, ContextSettings())
    if isinstance(planned, Refused):
        return None
    grows = {"full": 1.0, "csa": 1 / 4, "hca": 1 / 128, "window": 0.0}
    return sum((part.k_row + part.v_row) * grows[part.size] for part in planned.parts)


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):  # noqa: PLR0124
        return None
    return float(value)


def _text(value: object) -> str | None:
    return value[:1024] if isinstance(value, str) else None
