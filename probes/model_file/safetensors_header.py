"""A model folder as Hugging Face lays it out: config.json and the headers of its safetensors files; never tensor data.

Format: https://huggingface.co/docs/safetensors (an 8-byte little-endian length, then so many bytes of JSON).
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from probes.evidence.errors import BadFileError

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_HEADER = 100 * 1024**2
"""The format's own bound for one file's header."""
MOST_CONFIG = 4 * 1024**2
MOST_FILES = 4096
_OTHER_PARTS = ("vision", "visual", "image", "vit", "audio", "speech", "talker", "code2wav", "mtp", "eagle", "medusa")
"""Names of parts beside the language model's trunk, which number layers of their own."""


class ModelFolder:
    """What a folder says: its configuration, and how many bytes of tensors its files hold."""

    __slots__ = (
        "config",
        "files",
        "headers",
        "layers_held",
        "missing_bytes",
        "path",
        "size_bytes",
        "tensors",
        "weights_bytes",
    )

    def __init__(self, path: str) -> None:
        self.path = path
        self.config: dict[str, Any] = {}
        self.files: list[str] = []
        self.headers = b""
        self.size_bytes = 0
        self.weights_bytes = 0
        self.missing_bytes = 0
        """How many bytes of tensor data lie beyond the end of the files: an incomplete download, 0 if complete."""
        self.tensors = 0
        self.layers_held: set[int] = set()
        """Which layers of the language model have a tensor in the files."""

    @property
    def text_config(self) -> dict[str, Any]:
        """Give the part about the language model: models with pictures or sound nest it."""
        for name in ("text_config", "llm_config", "language_config"):
            nested = self.config.get(name)
            if isinstance(nested, dict):
                return {**self.config, **nested}
        return self.config

    def hash(self) -> str:
        """Give the SHA-256 of the configuration and all headers."""
        import hashlib  # noqa: PLC0415 - not needed for an estimate

        return hashlib.sha256(json.dumps(self.config, sort_keys=True).encode() + self.headers).hexdigest()


def read_folder(path: str | os.PathLike[str]) -> ModelFolder:
    """Read config.json and all safetensors headers of a folder. BadFileError if there are none, or a file is damaged or missing."""
    folder = ModelFolder(os.fspath(path))
    config = os.path.join(folder.path, "config.json")  # noqa: PTH118 - paths stay text here
    if os.path.isdir(folder.path) and not os.path.exists(config):  # noqa: PTH110, PTH112
        ggufs = sorted(name for name in os.listdir(folder.path) if name.endswith(".gguf"))  # noqa: PTH208
        if ggufs:
            raise BadFileError(
                f"{folder.path[-120:]} holds GGUF files and no config.json; give one of them, such as {ggufs[0][:120]}"
            )
        raise BadFileError(f"{folder.path[-120:]} has no config.json; give a model's folder, or a GGUF file")
    folder.config = _json_file(config, MOST_CONFIG)
    try:
        names = sorted(name for name in os.listdir(folder.path) if name.endswith(".safetensors"))  # noqa: PTH208
    except OSError as error:
        raise BadFileError(f"cannot list {folder.path[:200]}: {error.strerror or error}") from None
    if len(names) > MOST_FILES:
        raise BadFileError(
            f"{folder.path[:200]} holds {len(names)} safetensors files; at most {MOST_FILES} are believed"
        )
    index = os.path.join(folder.path, "model.safetensors.index.json")  # noqa: PTH118
    if os.path.exists(index):  # noqa: PTH110
        listed = _json_file(index, MOST_HEADER).get("weight_map")
        wanted = {name for name in listed.values() if isinstance(name, str)} if isinstance(listed, dict) else set()
        missing = sorted(wanted - set(names))
        if missing:
            raise BadFileError(
                f"{len(missing)} of {len(wanted)} weight files are missing, the first of them {missing[0][:120]}; download the rest"
            )
        if wanted:
            names = sorted(wanted)
    if not names:
        raise BadFileError(f"{folder.path[:200]} has a config.json but no safetensors files; give the model's folder")
    for name in names:
        file = os.path.join(folder.path, name)  # noqa: PTH118
        header = read_file_header(file)
        folder.files.append(file)
        size_bytes = os.path.getsize(file)  # noqa: PTH202
        folder.size_bytes += size_bytes
        last = 0
        for tensor, start, end in _tensors(header, file):
            folder.weights_bytes += end - start
            folder.tensors += 1
            last = max(last, end)
            layer = _layer_of(tensor)
            if layer is not None:
                folder.layers_held.add(layer)
        folder.missing_bytes += max(0, _data_start(file) + last - size_bytes)
    return folder


def read_file_header(path: str) -> dict[str, Any]:
    """Read one safetensors file's header. BadFileError if it is none."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, MOST_HEADER):
                raise BadFileError(f"{path[-120:]} says that its header has {length} bytes: damaged or incomplete")
            raw = file.read(length)
    except OSError as error:
        raise BadFileError(f"cannot open {path[-120:]}: {error.strerror or error}") from None
    return _object(raw, path)


def _data_start(path: str) -> int:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            return 8 + int.from_bytes(file.read(8), "little")
    except OSError as error:
        raise BadFileError(f"cannot open {path[-120:]}: {error.strerror or error}") from None


def _layer_of(name: str) -> int | None:
    """Give the layer of the language model that a tensor belongs to, None for others: the first number in its name is the layer's.

    ``model.layers.3.mlp.experts.7.w1`` is of layer 3; what sees or hears has layers of its own, which count for nothing here.
    """
    before: list[str] = []
    for piece in name.split("."):
        if piece.isascii() and piece.isdigit() and len(piece) < 6:
            return int(piece) if before else None
        if any(word in piece.lower() for word in _OTHER_PARTS):
            return None
        before.append(piece)
    return None


def _tensors(header: dict[str, Any], path: str) -> Iterator[tuple[str, int, int]]:
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
        if (
            not isinstance(offsets, list)
            or len(offsets) != 2
            or not all(isinstance(at, int) and not isinstance(at, bool) for at in offsets)
            or not 0 <= offsets[0] <= offsets[1] < 1 << 62
        ):
            raise BadFileError(f"{path[-120:]}: the tensor {name[:80]!r} has no valid place in the file")
        yield name, offsets[0], offsets[1]


def _json_file(path: str, most: int) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123
            raw = file.read(most + 1)
    except OSError as error:
        raise BadFileError(f"cannot open {path[-120:]}: {error.strerror or error}") from None
    if len(raw) > most:
        raise BadFileError(f"{path[-120:]} is larger than any model's configuration")
    return _object(raw, path)


def _object(raw: bytes, path: str) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadFileError(f"{path[-120:]} is not valid JSON: damaged or incomplete") from None
    if not isinstance(value, dict):
        raise BadFileError(f"{path[-120:]} does not hold an object")
    return value
