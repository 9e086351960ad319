"""Where the bytes of a log come from: a file, a compressed file, a stream; in blocks, bounded, and refused if they are no text."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, cast

from probes.evidence.errors import BadFileError

BLOCK = 1 << 20
MAX_UNPACKED = 64 << 30
"""A compressed file that unpacks to more is read up to here and called incomplete: it is a trap, or nobody's log."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"GGUF", "a GGUF model file"),
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x89PNG", "a picture"),
    (b"\xff\xd8\xff", "a picture"),
    (b"%PDF", "a PDF document"),
    (b"MZ\x90\x00", "a program"),
    (b"SQLite format 3", "a database"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive (unpack it first)"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive (unpack it first)"),
    (b"LPKSHHRH", "a journal file (use `journalctl -o json`)"),
)
_PACKED: tuple[tuple[bytes, str], ...] = ((b"\x1f\x8b", "gz"), (b"BZh", "bz2"), (b"\xfd7zXZ\x00", "xz"))
_TEXT_BYTES = bytes([7, 8, 9, 10, 12, 13, 27, *range(32, 127)])
_UTF16_SAMPLE = 4096


class _Limited(io.RawIOBase):
    """A file up to the size it had when it was opened: what a running server appends meanwhile is not read."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        super().__init__()
        self._file = file
        self._left = left

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._left if size is None or size < 0 else min(size, self._left)
        if wanted <= 0:
            return b""
        data = self._file.read(wanted)
        self._left -= len(data)
        return data

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


class Source:
    """One log's bytes. ``blocks`` may be walked once; ``read`` counts bytes of text; ``incomplete`` says why it ended early."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.read = 0
        self.incomplete: str | None = None
        self._stream = stream

    def blocks(self) -> Iterator[bytes]:
        """Give the text in blocks of about a megabyte, UTF-16 turned into UTF-8. BadFileError if it is binary or cannot be read."""
        try:
            stream, packed = _unpacked(self._stream, self.name)
            decoder: codecs.IncrementalDecoder | None = None
            while True:
                block = self._read_block(stream, packed=packed)
                if not block:
                    return
                if self.read == 0:
                    self._refuse_binary(block)
                    decoder = _utf16_decoder(block)
                text = block if decoder is None else decoder.decode(block).encode("utf-8", "replace")
                self.read += len(text) or 1
                yield text
                if self.incomplete is not None:
                    return
                if self.read >= MAX_UNPACKED and packed:
                    self.incomplete = f"it unpacks to more than {MAX_UNPACKED >> 30} GiB; only the beginning was read"
                    return
        finally:
            self.close()

    def _read_block(self, stream: BinaryIO, *, packed: bool) -> bytes:
        """Read about a megabyte; what was read before an error is kept, and the error said in ``incomplete``."""
        pieces: list[bytes] = []
        size = 0
        # What unpacks gives its data in small pieces, so that a broken end costs only the last of them.
        read = cast("io.BufferedReader", stream).read1 if packed else stream.read
        try:
            while size < BLOCK:
                piece = read(BLOCK - size)
                if not piece:
                    break
                pieces.append(piece)
                size += len(piece)
        except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
            self.incomplete = f"reading stopped: {_one_line(error)}"
            if not size and not self.read:
                raise BadFileError(f"{self.name} cannot be read: {_one_line(error)}") from error
        return b"".join(pieces)

    def close(self) -> None:
        """Close the file, unless it is standard input."""
        if self._stream is not getattr(sys.stdin, "buffer", None):
            self._stream.close()

    def _refuse_binary(self, first: bytes) -> None:
        for magic, what in _MAGIC:
            if first.startswith(magic):
                raise BadFileError(f"{self.name} is {what}, not a log; give the server's output as text")
        sample = first[:65_536]
        if not sample or _utf16_decoder(first) is not None:
            return
        odd = sample.translate(None, _TEXT_BYTES)
        high = sum(1 for byte in odd if byte >= 0x80) if odd else 0
        controls = len(odd) - high
        nuls = odd.count(0)
        # A crash or a full disk leaves runs of NULs in real logs: they count only where nothing else is there.
        text = len(sample) - len(odd)
        if (
            controls - nuls > len(sample) // 20
            or nuls > 20 * (text + high)
            or (high > len(sample) // 3 and not _is_utf8(sample))
        ):
            raise BadFileError(f"{self.name} is a binary file, not a log; give the server's output as text")


def _is_utf8(sample: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample)
    except UnicodeDecodeError:
        return False
    return True


def _utf16_decoder(first: bytes) -> codecs.IncrementalDecoder | None:
    """PowerShell's ``>`` writes UTF-16: with a mark, or (appended) without one."""
    if first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return codecs.getincrementaldecoder("utf-16")("replace")
    sample = first[:_UTF16_SAMPLE]
    if len(sample) < 16:
        return None
    half = len(sample) // 2
    if sample[1::2].count(0) > half * 0.9 and sample[0::2].count(0) < half * 0.1:
        return codecs.getincrementaldecoder("utf-16-le")("replace")
    if sample[0::2].count(0) > half * 0.9 and sample[1::2].count(0) < half * 0.1:
        return codecs.getincrementaldecoder("utf-16-be")("replace")
    return None


def _unpacked(stream: BinaryIO, name: str) -> tuple[BinaryIO, bool]:
    """Give a stream of the text, and whether it had to be unpacked."""
    try:
        head = stream.read(8) or b""
    except (OSError, ValueError) as error:
        raise BadFileError(f"{name} cannot be read: {_one_line(error)}") from error
    if not isinstance(head, bytes):
        raise BadFileError(f"{name} does not give bytes; open it in binary mode")
    packed = next((kind for magic, kind in _PACKED if head.startswith(magic)), None)
    whole = cast("BinaryIO", _Rejoined(head, stream))
    return (whole, False) if packed is None else (_OPEN[packed](whole), True)


_OPEN: dict[str, Callable[[BinaryIO], BinaryIO]] = {
    "gz": lambda whole: cast("BinaryIO", gzip.GzipFile(fileobj=whole)),
    "bz2": lambda whole: cast("BinaryIO", bz2.BZ2File(whole)),
    "xz": lambda whole: cast("BinaryIO", lzma.LZMAFile(whole)),  # noqa: SIM115 - it is closed with its source
}


class _Rejoined(io.RawIOBase):
    """A stream with its first bytes put back."""

    def __init__(self, head: bytes, stream: BinaryIO) -> None:
        super().__init__()
        self._head = head
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        if not self._head:
            return self._stream.read(-1 if size is None else size) or b""
        if size is None or size < 0:
            data, self._head = self._head, b""
            return data + (self._stream.read() or b"")
        data, self._head = self._head[:size], self._head[size:]
        return data

    def readinto(self, buffer: object) -> int:
        view = memoryview(cast("bytearray", buffer)).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)


def open_source(log: str | os.PathLike[str] | BinaryIO, name: str | None = None) -> Source:
    """Open a log: a path, ``-`` for standard input, or a binary stream. BadFileError if it cannot be opened or is no regular file."""
    if not isinstance(log, str | os.PathLike):
        return Source(log, name or str(getattr(log, "name", "log")))
    if str(log) == "-":
        return Source(sys.stdin.buffer, name or "standard input")
    path = Path(log)
    try:
        file = path.open("rb")
    except (OSError, ValueError) as error:
        raise BadFileError(f"the log {path.name!r} cannot be opened: {_one_line(error)}") from error
    status = os.fstat(file.fileno())
    if stat.S_ISREG(status.st_mode):
        return Source(cast("BinaryIO", _Limited(cast("BinaryIO", file), status.st_size)), name or path.name)
    if stat.S_ISFIFO(status.st_mode) or stat.S_ISSOCK(status.st_mode):
        return Source(cast("BinaryIO", file), name or path.name)
    file.close()
    raise BadFileError(f"{path.name!r} is a device, not a log file; pipe the output into `-` instead")


_ROTATED = re.compile(r"(?P<number>\d{1,6})$")


def rotation(path: str | os.PathLike[str]) -> list[Path]:
    """Give a log and its rotated predecessors, oldest first: ``x.log.2.gz``, ``x.log.1``, ``x.log``; Ollama's ``server-1.log``."""
    newest = Path(path)
    found: list[tuple[int, str, Path]] = []
    try:
        siblings = list(newest.parent.iterdir())
    except OSError:
        return [newest]
    for sibling in siblings[:100_000]:
        bare = sibling.name
        for ending in (".gz", ".bz2", ".xz"):
            bare = bare.removesuffix(ending)
        age: str | None = None
        if bare.startswith(newest.name + "."):
            age = bare[len(newest.name) + 1 :]
        elif newest.suffix and bare.endswith(newest.suffix) and bare.startswith(newest.stem + "-"):
            age = bare[len(newest.stem) + 1 : -len(newest.suffix)]
        if age is None or _ROTATED.fullmatch(age) is None or not sibling.is_file():
            continue
        # Small numbers count backwards (1 is the newest), dates forwards.
        order = -int(age) if len(age) < 6 else int(age) - 10**9
        found.append((order, sibling.name, sibling))
    return [*(item[2] for item in sorted(found)), newest]


def _one_line(error: BaseException) -> str:
    return " ".join(str(getattr(error, "strerror", None) or error or type(error).__name__).split())[:200]
