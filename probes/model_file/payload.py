"""A model's header as evidence: the values that decide about the window."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from probes.evidence.subject import ModelFile

from .gguf_header import GgufHeader, Skipped, read_header

if TYPE_CHECKING:
    from .gguf_header import Value

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
    return describe(read_header(path))


def describe(header: GgufHeader) -> ModelFile:
    """Put a GGUF header's values into the payload. What the file does not say is None."""
    own = f"{header.architecture}." if header.architecture else ""
    keys = header.keys
    factor = _number(keys.get(f"{own}rope.scaling.factor"))
    window = _whole(keys.get(f"{own}attention.sliding_window"))
    sizes = [tensor.size_bytes for tensor in header.tensors]
    file_type = _whole(keys.get("general.file_type"))
    template = keys.get("tokenizer.chat_template")
    return ModelFile(
        path=header.path,
        format="gguf",
        size_bytes=header.size_bytes,
        header_hash=header.hash(),
        architecture=header.architecture,
        name=_text(keys.get("general.name")),
        quantization=None if file_type is None else FILE_TYPES.get(file_type & 0x3FF, f"type {file_type}"),
        trained_window=_whole(keys.get(f"{own}context_length")),
        layers=_whole(keys.get(f"{own}block_count")),
        rope_freq_base=_number(keys.get(f"{own}rope.freq_base")),
        rope_scaling_type=_text(keys.get(f"{own}rope.scaling.type")),
        rope_scaling_factor=factor or None,
        rope_original_context=_whole(keys.get(f"{own}rope.scaling.original_context_length")) or None,
        sliding_window=window or None,
        chat_template=template is not None and template != "",
        weights_bytes=None if None in sizes else sum(size for size in sizes if size is not None),
    )


def _whole(value: Value | Skipped | None) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _number(value: Value | Skipped | None) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) == float("inf"):  # noqa: PLR0124
        return None
    return float(value)


def _text(value: Value | Skipped | None) -> str | None:
    return value[:1024] if isinstance(value, str) else None
