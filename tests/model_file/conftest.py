"""The reference set, and a writer of small GGUF files."""

from __future__ import annotations

import json
import lzma
import struct
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def truth():
    return json.loads(lzma.decompress((HERE / "kv_truth.json.xz").read_bytes()))


@pytest.fixture(scope="session")
def truth_models(truth, tmp_path_factory):
    """Paths of all models of the set: headers alone, the tensor data is not there."""
    folder = tmp_path_factory.mktemp("kv_truth")
    paths = {}
    for name, model in truth["models"].items():
        paths[name] = folder / name
        paths[name].write_bytes(bytes.fromhex(model["head"]))
    return paths


@pytest.fixture(scope="session")
def more_truth():
    return json.loads(lzma.decompress((HERE / "kv_truth_more.json.xz").read_bytes()))


@pytest.fixture(scope="session")
def more_truth_models(more_truth, tmp_path_factory):
    """Paths of the second set's models: keys and a few dummy tensors."""
    folder = tmp_path_factory.mktemp("kv_truth_more")
    paths = {}
    for name, head in more_truth["models"].items():
        paths[name] = folder / name
        paths[name].write_bytes(bytes.fromhex(head))
    return paths


_KINDS = {
    "u8": 0,
    "i8": 1,
    "u16": 2,
    "i16": 3,
    "u32": 4,
    "i32": 5,
    "f32": 6,
    "bool": 7,
    "str": 8,
    "u64": 10,
    "i64": 11,
    "f64": 12,
}
_CODES = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "f32": "f",
    "bool": "?",
    "u64": "Q",
    "i64": "q",
    "f64": "d",
}


class Gguf:
    """Builds the bytes of a GGUF file. Values: int (u32), bool, float, str, a list of one of these, or (kind, value)."""

    def __init__(self, order="<", version=3):
        self.order, self.version = order, version
        self.keys = []
        self.tensors = []
        self.offset = 0

    def pack(self, code, *values):
        return struct.pack(self.order + code, *values)

    def string(self, text):
        raw = text if isinstance(text, bytes) else text.encode()
        return self.pack("Q", len(raw)) + raw

    def value(self, value):
        if isinstance(value, tuple):
            kind, value = value
        elif isinstance(value, bool):
            kind = "bool"
        elif isinstance(value, int):
            kind = "u32"
        elif isinstance(value, float):
            kind = "f32"
        elif isinstance(value, str):
            kind = "str"
        else:
            kind = {bool: "bool", int: "u32", float: "f32", str: "str", bytes: "str"}[type(value[0])]
        if isinstance(value, list):
            body = b"".join(self.string(v) if kind == "str" else self.pack(_CODES[kind], v) for v in value)
            return self.pack("IIQ", 9, _KINDS[kind], len(value)) + body
        return self.pack("I", _KINDS[kind]) + (self.string(value) if kind == "str" else self.pack(_CODES[kind], value))

    def add(self, name, value):
        self.keys.append(self.string(name) + self.value(value))
        return self

    def tensor(self, name, shape, kind=1, size=None):
        self.tensors.append(self.string(name) + self.pack(f"I{len(shape)}QIQ", len(shape), *shape, kind, self.offset))
        self.offset += (size if size is not None else 2 * _product(shape) if kind == 1 else 0) + 31 & ~31
        return self

    def bytes(self, *, data=False):
        body = (
            b"GGUF"
            + self.pack("IQQ", self.version, len(self.tensors), len(self.keys))
            + b"".join(self.keys)
            + b"".join(self.tensors)
        )
        return body + bytes(-len(body) % 32) + (bytes(self.offset) if data else b"")


def _product(shape):
    count = 1
    for size in shape:
        count *= size
    return count


@pytest.fixture
def gguf():
    """Class that writes GGUF files."""
    return Gguf


@pytest.fixture
def model(tmp_path):
    """Write a model of an architecture with some keys; gives its path. Defaults: two layers, 64 wide, 4 heads of 16, trained to 4096."""

    def make(architecture, name="model.gguf", tensors=(), **keys):
        writer = Gguf().add("general.architecture", architecture)
        given = {
            "context_length": 4096,
            "embedding_length": 64,
            "block_count": 2,
            "attention.head_count": 4,
            **{key.replace("__", "."): value for key, value in keys.items()},
        }
        for key, value in given.items():
            if value is not None:
                writer.add(
                    key if key.startswith(("general.", "tokenizer.", "split.")) else f"{architecture}.{key}", value
                )
        for tensor in tensors:
            writer.tensor(*tensor)
        path = tmp_path / name
        path.write_bytes(writer.bytes())
        return path

    return make
