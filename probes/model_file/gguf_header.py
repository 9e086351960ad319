"""GGUF headers, versions 2 and 3, whole or split, of either byte order: keys and tensor descriptions, never tensor data.

Written for speed: a vocabulary of 150,000 words is walked by the lengths of its strings, and no Python object is made of a word. Nothing here
imports more than the standard library's smallest modules, because the whole of it must fit in a few starts of the interpreter.

Everything from the file is bounded before it is believed: counts by what can still follow in the file, lengths by the file's end.
Whatever does not hold raises :class:`~probes.evidence.errors.BadFileError` with one line.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from itertools import repeat

from probes.evidence.errors import BadFileError

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

MAGIC = b"GGUF"
SCALAR_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Value type → bytes. 8 is a string, 9 an array."""
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING = 8
_ARRAY = 9

MOST_KEYS = 1 << 16
MOST_TENSORS = 1 << 20
MOST_STRINGS = 1 << 23
"""Of one array: eight million, many times the largest vocabulary; walking them takes about half a second."""
MOST_PARTS = 1024
KEEP_NUMBERS = 1 << 14
"""Numeric arrays up to this length are kept (one value a layer); longer ones are token scores and types."""
KEEP_STRINGS = 64
KEEP_TEXT = 1 << 16
_SMALLEST_KEY = 8 + 1 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 4 + 8

_WORTH_IT = 1024
"""Strings from which on the fast walk is tried."""

TENSOR_TYPES: dict[int, tuple[str, int, int]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22),
    7: ("q5_1", 32, 24),
    8: ("q8_0", 32, 34),
    9: ("q8_1", 32, 36),
    10: ("q2_K", 256, 84),
    11: ("q3_K", 256, 110),
    12: ("q4_K", 256, 144),
    13: ("q5_K", 256, 176),
    14: ("q6_K", 256, 210),
    15: ("q8_K", 256, 292),
    16: ("iq2_xxs", 256, 66),
    17: ("iq2_xs", 256, 74),
    18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50),
    20: ("iq4_nl", 32, 18),
    21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82),
    23: ("iq4_xs", 256, 136),
    24: ("i8", 1, 1),
    25: ("i16", 1, 2),
    26: ("i32", 1, 4),
    27: ("i64", 1, 8),
    28: ("f64", 1, 8),
    29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2),
    34: ("tq1_0", 256, 54),
    35: ("tq2_0", 256, 66),
    39: ("mxfp4", 32, 17),
    40: ("nvfp4", 64, 36),
    41: ("q1_0", 128, 18),
    42: ("q2_0", 64, 18),
}
"""ggml type → (name, elements a block, bytes a block)."""


class Skipped:
    """An array or text that was passed over: what it holds and how many."""

    __slots__ = ("length", "type")

    def __init__(self, kind: int, length: int) -> None:
        self.type = kind
        self.length = length

    def __repr__(self) -> str:
        return f"Skipped({self.type}, {self.length})"


class Tensor:
    """One tensor's description. ``offset`` counts from the start of its own file's data."""

    __slots__ = ("name", "offset", "part", "shape", "type")

    def __init__(self, name: str, shape: tuple[int, ...], kind: int, offset: int, part: int) -> None:
        self.name = name
        self.shape = shape
        self.type = kind
        self.offset = offset
        self.part = part

    @property
    def elements(self) -> int:
        """Count the elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def size_bytes(self) -> int | None:
        """Give the size in bytes; None for a type that is not known here."""
        known = TENSOR_TYPES.get(self.type)
        if known is None:
            return None
        return self.elements // known[1] * known[2]


class GgufHeader:
    """What the header says. ``keys`` maps each key to its value; long arrays are :class:`Skipped`."""

    __slots__ = ("alignment", "data_offsets", "keys", "order", "parts", "path", "sizes", "tensors", "version")

    def __init__(self, path: str) -> None:
        self.path = path
        self.version = 0
        self.order = "<"
        self.keys: dict[str, Value | Skipped] = {}
        self.tensors: list[Tensor] = []
        self.parts: list[str] = [path]
        self.sizes: list[int] = []
        self.data_offsets: list[int] = []
        self.alignment = 32

    @property
    def size_bytes(self) -> int:
        """Give the size of all parts on disk."""
        return sum(self.sizes)

    @property
    def architecture(self) -> str | None:
        """Give ``general.architecture``, None if it is absent or no text."""
        value = self.keys.get("general.architecture")
        return value if isinstance(value, str) else None

    def count(self, key: str) -> int | None:
        """Count the entries of an array key, kept or skipped; None if it is no array."""
        value = self.keys.get(key)
        if isinstance(value, Skipped):
            return value.length
        return len(value) if isinstance(value, tuple) else None

    def layers_held(self) -> set[int]:
        """Give the layers that have a tensor in the files: the first number in a tensor's name is its layer's."""
        held = set()
        for tensor in self.tensors:
            for piece in tensor.name.split("."):
                if piece.isdigit() and piece.isascii() and len(piece) < 6:
                    held.add(int(piece))
                    break
        return held

    def missing_bytes(self) -> int:
        """Say how many bytes of tensor data lie beyond the end of the files: an incomplete download, 0 if complete."""
        ends = [0] * len(self.parts)
        for tensor in self.tensors:
            size = tensor.size_bytes or 0
            ends[tensor.part] = max(ends[tensor.part], tensor.offset + size)
        return sum(
            max(0, offset + end - size)
            for offset, end, size in zip(self.data_offsets, ends, self.sizes, strict=True)
            if end
        )

    def hash(self) -> str:
        """Give the SHA-256 of all header bytes (keys and tensor descriptions), in order of the parts."""
        import hashlib  # noqa: PLC0415 - not needed for an estimate

        digest = hashlib.sha256()
        for part, offset in zip(self.parts, self.data_offsets, strict=True):
            left = offset
            with open(part, "rb") as file:  # noqa: PTH123 - pathlib costs more than the read
                while left > 0 and (piece := file.read(min(left, 1 << 20))):
                    digest.update(piece)
                    left -= len(piece)
        return digest.hexdigest()


def read_header(path: str | os.PathLike[str]) -> GgufHeader:
    """Read the header of a GGUF file, and of all its parts where it is split. BadFileError if it is none or is damaged."""
    name = os.fspath(path)
    first = name
    split = _split_name(name)
    if split is not None and split[1] != 1:
        # llama.cpp wants the first part; whoever names another one means the model.
        first = f"{split[0]}-00001-of-{split[2]:05d}.gguf"
        if not os.path.exists(first):  # noqa: PTH110
            raise BadFileError(
                f"{_short(name)} is one part of a split model and the first, {_short(first)}, is missing"
            )
    header = GgufHeader(first)
    _read_part(header, first, 0)
    count = _whole(header.keys.get("split.count"))
    if count > 1:
        _read_other_parts(header, first, count)
    return header


def _split_name(path: str) -> tuple[str, int, int] | None:
    """Take ``…-00002-of-00005.gguf`` apart: what comes before, which part, of how many. None for any other name."""
    number, of, count = path[-19:-14], path[-14:-10], path[-10:-5]
    digits = number + count
    if path[-20:-19] != "-" or of != "-of-" or path[-5:] != ".gguf" or not (digits.isascii() and digits.isdigit()):
        return None
    return path[:-20], int(number), int(count)


def _read_other_parts(header: GgufHeader, first: str, count: int) -> None:
    if count > MOST_PARTS:
        raise BadFileError(f"{_short(first)} says that it has {count} parts; at most {MOST_PARTS} are believed")
    if _whole(header.keys.get("split.no")) != 0:
        raise BadFileError(f"{_short(first)} is not the first part of its model; give the first part")
    split = _split_name(first)
    if split is None or split[2] != count:
        raise BadFileError(
            f"{_short(first)} is the first of {count} parts, but is not named …-00001-of-{count:05d}.gguf, so the others cannot be found"
        )
    names = [f"{split[0]}-{number + 1:05d}-of-{count:05d}.gguf" for number in range(count)]
    absent = [part for part in names if not os.path.exists(part)]  # noqa: PTH110
    if absent:
        raise BadFileError(
            f"{len(absent)} of {count} parts are missing, the first of them {_short(absent[0])}; put all parts into one folder"
        )
    for number in range(1, count):
        keys = _read_part(header, names[number], number)
        if _whole(keys.get("split.no"), -1) != number or _whole(keys.get("split.count"), -1) != count:
            raise BadFileError(f"{_short(names[number])} is not part {number + 1} of {count}, whatever its name says")
        header.parts.append(names[number])
    said = _whole(header.keys.get("split.tensors.count"))
    if said and said != len(header.tensors):
        raise BadFileError(
            f"the parts of {_short(first)} hold {len(header.tensors)} tensors together, not {said} as they say"
        )


def _read_part(header: GgufHeader, path: str, part: int) -> dict[str, Value | Skipped]:
    """Read one file into the header; give its own keys."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise BadFileError(f"cannot open {_short(path)}: {error.strerror or error}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise BadFileError(f"{_short(path)} is not a file; give the model file itself")
        size = status.st_size
        if size < 24:
            raise BadFileError(f"{_short(path)} has {size} bytes: too short for a GGUF model")
        try:
            with mmap.mmap(handle, 0, access=mmap.ACCESS_READ) as data:
                keys = _read_mapped(data, size, path, header, part)
        except (OSError, ValueError) as error:
            raise BadFileError(f"cannot read {_short(path)}: {error}") from None
        except (struct.error, IndexError):
            raise BadFileError(f"{_short(path)} ends in the middle of its header: the file is incomplete") from None
    finally:
        os.close(handle)
    header.sizes.append(size)
    return keys


def _read_mapped(data: mmap.mmap, size: int, path: str, header: GgufHeader, part: int) -> dict[str, Value | Skipped]:
    reader = _Reader(data, size, path)
    before = len(header.tensors)
    try:
        return reader.read(header, part)
    except (BadFileError, struct.error, IndexError):
        if not reader.guessed:
            raise
    # The fast walk may have been wrong: the exact one decides.
    del header.tensors[before:]
    return _Reader(data, size, path, exact=True).read(header, part)


class _Reader:
    """Walks one mapped file. Positions beyond the end are refused before anything is made of them."""

    __slots__ = ("data", "exact", "guessed", "order", "path", "position", "size", "u32", "u64")

    def __init__(self, data: mmap.mmap, size: int, path: str, *, exact: bool = False) -> None:
        self.exact = exact
        self.guessed = False
        self.data = data
        self.size = size
        self.path = path
        self.position = 0
        self.order = "<"

    def read(self, header: GgufHeader, part: int) -> dict[str, Value | Skipped]:
        data = self.data
        if data[:4] != MAGIC:
            raise BadFileError(f"{_short(self.path)} is not a GGUF model (it does not begin with GGUF)")
        version = int.from_bytes(data[4:8], "little")
        if version and not version & 0xFFFF:  # written on a machine of the other byte order
            self.order = ">"
            version = int.from_bytes(data[4:8], "big")
        if version not in (2, 3):
            raise BadFileError(f"{_short(self.path)} is GGUF version {version}; versions 2 and 3 can be read")
        if part == 0:
            header.version, header.order = version, self.order
        elif self.order != header.order:
            raise BadFileError(f"{_short(self.path)} has another byte order than the first part of the model")
        self.u32 = struct.Struct(self.order + "I").unpack_from
        self.u64 = struct.Struct(self.order + "Q").unpack_from
        tensors = self.u64(data, 8)[0]
        keys = self.u64(data, 16)[0]
        self.position = 24
        self._believe(keys, MOST_KEYS, _SMALLEST_KEY, "keys")
        self._believe(tensors, MOST_TENSORS, _SMALLEST_TENSOR, "tensors")
        own: dict[str, Value | Skipped] = {}
        for _ in range(keys):
            name = self._text("a key", 1 << 16)
            if self.guessed and not (name.isascii() and name.isprintable() and name):
                raise BadFileError(f"{_short(self.path)} has a key that is no text")
            if name in own:
                raise BadFileError(f"{_short(self.path)} has the key {_short(name)} twice")
            own[name] = self._value(name)
        if part == 0:
            header.keys = own
        alignment = _whole(own.get("general.alignment"), 32)
        if alignment < 1 or alignment > 1 << 20 or alignment & (alignment - 1):
            raise BadFileError(f"{_short(self.path)} has an alignment of {alignment}, which is no power of two")
        self._tensors(header, tensors, part)
        header.alignment = alignment
        header.data_offsets.append(-(-self.position // alignment) * alignment)
        return own

    def _believe(self, count: int, most: int, smallest: int, what: str) -> None:
        if count > most or count * smallest > self.size - self.position:
            raise BadFileError(
                f"{_short(self.path)} says that it has {count} {what}, more than can be in it: damaged or not a model"
            )

    def _text(self, what: str, most: int) -> str:
        length = self.u64(self.data, self.position)[0]
        start = self.position + 8
        if length > self.size - start or length > most:
            raise BadFileError(f"{_short(self.path)}: {what} is said to be {length} bytes long: damaged or incomplete")
        self.position = start + length
        return self.data[start : self.position].decode("utf-8", "replace")

    def _value(self, name: str) -> Value | Skipped:
        kind = self.u32(self.data, self.position)[0]
        self.position += 4
        if kind == _STRING:
            length = self.u64(self.data, self.position)[0]
            if length > KEEP_TEXT:
                self._skip_bytes(8 + length, name)
                return Skipped(_STRING, 1)
            return self._text(f"the value of {_short(name)}", KEEP_TEXT)
        if kind == _ARRAY:
            return self._array(name)
        return self._number(kind, name)

    def _number(self, kind: int, name: str) -> Scalar:
        code = _CODES.get(kind)
        if code is None:
            raise BadFileError(f"{_short(self.path)}: the key {_short(name)} has the unknown value type {kind}")
        value: Scalar = struct.unpack_from(self.order + code, self.data, self.position)[0]
        self.position += SCALAR_SIZES[kind]
        return value

    def _array(self, name: str) -> Value | Skipped:
        kind = self.u32(self.data, self.position)[0]
        count = self.u64(self.data, self.position + 4)[0]
        self.position += 12
        if kind == _STRING:
            self._believe(count, MOST_STRINGS, 8, f"entries in {_short(name)}")
            if count <= KEEP_STRINGS:
                start = self.position
                self._skip_strings(count, name)
                if self.position - start > KEEP_TEXT:
                    return Skipped(kind, count)
                self.position = start
                return tuple(self._text(f"an entry of {_short(name)}", KEEP_TEXT) for _ in range(count))
            self._skip_strings(count, name)
            return Skipped(kind, count)
        size = SCALAR_SIZES.get(kind)
        if size is None:
            what = "an array of arrays" if kind == _ARRAY else f"an array of the unknown type {kind}"
            raise BadFileError(f"{_short(self.path)}: the key {_short(name)} is {what}")
        if count * size > self.size - self.position:
            raise BadFileError(
                f"{_short(self.path)}: {_short(name)} is said to have {count} entries, more than the file can hold"
            )
        if count > KEEP_NUMBERS:
            self.position += count * size
            return Skipped(kind, count)
        value: tuple[Scalar, ...] = struct.unpack_from(f"{self.order}{count}{_CODES[kind]}", self.data, self.position)
        self.position += count * size
        return value

    def _skip_bytes(self, length: int, name: str) -> None:
        if length > self.size - self.position:
            raise BadFileError(
                f"{_short(self.path)}: {_short(name)} reaches {length} bytes, beyond the end of the file"
            )
        self.position += length

    def _skip_strings(self, count: int, name: str) -> None:
        position = self._skip_short(count) if count >= _WORTH_IT and not self.exact and self.order == "<" else None
        if position is None:
            position = self._skip_exactly(count, name)
        self.position = position

    def _skip_short(self, count: int) -> int | None:
        """Walk the words of a vocabulary by the lowest byte of each length: twice as fast. None where it leaves the file.

        Words are shorter than 256 bytes. Should one be longer, this walk ends somewhere inside a word, where no key can be read: then, as
        whenever anything later in the header does not hold, the exact walk reads the header again and decides.
        """
        data, position = self.data, self.position
        try:
            for _ in repeat(None, count // 4):
                position += data[position] + 8
                position += data[position] + 8
                position += data[position] + 8
                position += data[position] + 8
            for _ in range(count % 4):
                position += data[position] + 8
        except IndexError:
            return None
        self.guessed = True
        return position

    def _skip_exactly(self, count: int, name: str) -> int:
        # Lengths are added without a test of each: unpack_from raises at the file's end, so a length that points beyond it stops the
        # walk at the next string, and the last one is tested below.
        position, data, length_at = self.position, self.data, self.u64
        try:
            for _ in repeat(None, count):
                position += length_at(data, position)[0] + 8
        except (struct.error, OverflowError):
            raise BadFileError(f"{_short(self.path)}: {_short(name)} reaches beyond the end of the file") from None
        if position > self.size:
            raise BadFileError(f"{_short(self.path)}: {_short(name)} reaches beyond the end of the file")
        return position

    def _tensors(self, header: GgufHeader, count: int, part: int) -> None:
        data, u32 = self.data, self.u32
        dims = [struct.Struct(f"{self.order}{n}QIQ") for n in range(5)]
        for _ in range(count):
            name = self._text("a tensor's name", 1 << 12)
            if self.guessed and not name.isprintable():
                raise BadFileError(f"{_short(self.path)} has a tensor whose name is no text")
            rank = u32(data, self.position)[0]
            if rank > 4:
                raise BadFileError(
                    f"{_short(self.path)}: the tensor {_short(name)} has {rank} dimensions, 4 is the most"
                )
            layout = dims[rank]
            *shape, kind, offset = layout.unpack_from(data, self.position + 4)
            self.position += 4 + layout.size
            elements = 1
            for length in shape:
                elements *= length
            if elements > 1 << 62 or offset > 1 << 62:
                raise BadFileError(f"{_short(self.path)}: the tensor {_short(name)} is larger than any file")
            header.tensors.append(Tensor(name, tuple(shape), kind, offset, part))


def _whole(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _short(text: str) -> str:
    shown = "".join(c if c.isprintable() else "?" for c in text)
    return shown if len(shown) <= 120 else "…" + shown[-119:]
