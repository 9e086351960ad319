"""What a projector (the part for pictures) takes: its weights, and the work space of its encoder at the picture that llama.cpp warms up with.

Facts: llama.cpp build 11434 (``tools/mtmd/clip.cpp``). The encoder's graph is reserved once, for a picture of a size that depends on the kind of projector;
larger pictures are scaled down to what the kind allows, so that is its peak or near it. The terms are fitted to public logs of three encoders (see tests).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from probes.evidence.errors import BadFileError

from .architectures import PROJECTORS

if TYPE_CHECKING:
    from .gguf_header import GgufHeader

ERROR_SHARE = 0.25
"""By which share the work space may be off."""
_F32 = 4
_SIDES = {
    "qwen2vl_merger": (46, 2), "qwen2.5vl_merger": (46, 2), "qwen3vl_merger": (46, 2), "ling3vl": (46, 2), "mimovl": (46, 2), "glm4v": (46, 2),
    "glm5v": (46, 2), "exaone4_5": (46, 2), "dots_ocr": (46, 1), "dots3note_v": (46, 1), "hunyuanvl": (32, 2), "muse-glimmer": (32, 2),
    "paddleocr": (28, 2), "pixtral": (16, 1), "lightonocr": (16, 1), "kimivl": (16, 1), "gemma4v": (16, 3), "gemma4uv": (16, 3), "phi4": (16, 1),
    "minimax_m3": (16, 2), "youtuvl": (16, 2),
}  # fmt: skip
"""Kind → tokens a side of the picture it warms up with, and patches that are merged into a token, a side, where the file does not tell."""
_AS_TRAINED = frozenset(
    "mlp ldp ldpv2 resampler adapter gemma3 idefics3 internvl llama4 lfm2 janus_pro cogvlm granite4_vision step3vl nemotron_v2_vl".split()  # noqa: SIM905
)
"""Kinds that warm up with the picture size that the file gives."""
_MOST_PATCHES = 1 << 20


class Projector(NamedTuple):
    """Bytes of a projector. ``compute`` and ``inputs`` are None where the kind of encoder is not known here."""

    kind: str
    weights: int
    compute: int | None
    inputs: int | None
    """The picture itself, in host memory."""


def read_projector(path: str | os.PathLike[str], *, flash_attn: str = "auto") -> Projector:
    """Read a projector's header. BadFileError if it is no GGUF file."""
    from .gguf_header import read_header  # noqa: PLC0415 - the caller may have the header already

    header = read_header(path)
    if header.architecture not in PROJECTORS:
        raise BadFileError(
            f"{os.fspath(path)[-120:]} is no projector (its architecture is {header.architecture!r:.60}); give the mmproj file that belongs to the model"
        )
    return projector_of(header, flash_attn=flash_attn)


def projector_of(header: GgufHeader, *, flash_attn: str = "auto") -> Projector:
    """Work out what a projector takes. Without flash attention every patch is scored against every other at once."""
    keys = header.keys
    kind = keys.get("clip.vision.projector_type") or keys.get("clip.projector_type") or ""
    kind = kind[:100] if isinstance(kind, str) else ""
    weights = sum(tensor.size_bytes or 0 for tensor in header.tensors)

    def whole(name: str, default: int = 0) -> int:
        value = keys.get(f"clip.vision.{name}")
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 20 else default

    width, wide, patch = whole("embedding_length"), whole("feed_forward_length"), whole("patch_size")
    heads, size = whole("attention.head_count"), whole("image_size")
    if kind in _SIDES:
        tokens, merged = _SIDES[kind]
        side = tokens * whole("spatial_merge_size", whole("projector.scale_factor", merged))
    elif kind in _AS_TRAINED and patch:
        side = size // patch
    else:
        side = 0
    patches = side * side
    if not (width and wide and patch and 0 < patches <= _MOST_PATCHES):
        return Projector(kind, weights, None, None)
    gated = any(".ffn_gate" in tensor.name for tensor in header.tensors)
    floats = 3 * wide + 4 * width if gated else wide + 3 * width
    scores = patches * patches * heads * _F32 if flash_attn == "off" else 0
    return Projector(kind, weights, patches * floats * _F32 + scores, 3 * (side * patch) ** 2 * _F32)
