"""Laws of the header reader: what is in the file is read, whatever is not a model is refused in one line, and nothing is believed unbounded."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.evidence.errors import BadFileError
from probes.model_file.gguf_header import Skipped, read_header


def write(path, raw):
    path.write_bytes(raw)
    return path


def sample(gguf, **how):
    writer = gguf(**how)
    writer.add("general.architecture", "llama").add("llama.block_count", 2).add("llama.rope.freq_base", 5e5)
    writer.add("llama.attention.head_count_kv", [8, 0]).add("tokenizer.ggml.tokens", ["a", "", "word"]).add(
        "tokenizer.ggml.add_bos_token", True
    )
    writer.add("some.big", ("u64", 1 << 40)).add("some.signed", ("i32", -5))
    return writer.tensor("token_embd.weight", (64, 32)).tensor("blk.0.attn_q.weight", (64, 64), 2, 64 * 64 // 32 * 18)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("version", [2, 3])
def test_reads_keys_and_tensors_of_both_versions_and_byte_orders(gguf, tmp_path, order, version):
    header = read_header(write(tmp_path / "m.gguf", sample(gguf, order=order, version=version).bytes(data=True)))
    assert header.order == order
    assert header.version == version
    assert header.architecture == "llama"
    assert header.keys["llama.block_count"] == 2
    assert header.keys["llama.attention.head_count_kv"] == (8, 0)
    assert header.keys["tokenizer.ggml.tokens"] == ("a", "", "word")
    assert header.keys["tokenizer.ggml.add_bos_token"] is True
    assert header.keys["some.big"] == 1 << 40
    assert header.keys["some.signed"] == -5
    assert [(t.name, t.shape, t.size_bytes) for t in header.tensors] == [
        ("token_embd.weight", (64, 32), 4096),
        ("blk.0.attn_q.weight", (64, 64), 2304),
    ]
    assert header.missing_bytes() == 0
    assert len(header.hash()) == 64


def test_the_hash_follows_the_header_and_nothing_else(gguf, tmp_path):
    one, other = sample(gguf), sample(gguf)
    a = read_header(write(tmp_path / "a.gguf", one.bytes(data=True)))
    b = read_header(write(tmp_path / "b.gguf", other.bytes() + b"\x07" * other.offset))
    c = read_header(write(tmp_path / "c.gguf", sample(gguf).add("x", 1).bytes(data=True)))
    assert a.hash() == b.hash() != c.hash()


def test_an_incomplete_download_is_read_and_said(gguf, tmp_path):
    raw = sample(gguf).bytes(data=True)
    assert read_header(write(tmp_path / "m.gguf", raw[:-1000])).missing_bytes() == 1000


@pytest.mark.parametrize(
    "words",
    [["w" * (n % 40) for n in range(5000)], ["w" * (n % 700) for n in range(5000)], ["\0" * 9] * 2000, [""] * 3000],
)
def test_vocabularies_are_skipped_whatever_their_words_are(gguf, tmp_path, words):
    """Law: short words, words longer than the fast walk can take, words of zeros and empty ones all leave the keys after them readable."""
    raw = gguf().add("a", words).add("b", ["x"] * 2000).add("c", 7).tensor("t", (4,)).bytes(data=True)
    header = read_header(write(tmp_path / "m.gguf", raw))
    assert isinstance(header.keys["a"], Skipped)
    assert header.count("a") == len(words)
    assert header.count("b") == 2000
    assert header.keys["c"] == 7
    assert header.tensors[0].name == "t"


def test_a_large_vocabulary_makes_no_objects(gguf, tmp_path):
    path = write(tmp_path / "m.gguf", gguf().add("tokenizer.ggml.tokens", [f"word{n}" for n in range(150_000)]).bytes())
    read_header(path)
    tracemalloc.start()
    header = read_header(path)
    _now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert header.count("tokenizer.ggml.tokens") == 150_000
    assert peak < 200_000


def parts(gguf, folder, count, stem="m", **wrong):
    for number in range(count):
        writer = gguf()
        if number == 0:
            writer.add("general.architecture", "llama")
        writer.add("split.no", ("u16", wrong.get(f"no{number}", number))).add(
            "split.count", ("u16", wrong.get("of", count))
        )
        writer.add("split.tensors.count", ("i32", wrong.get("tensors", count)))
        writer.tensor(f"blk.{number}.t", (64,))
        write(folder / f"{stem}-{number + 1:05d}-of-{count:05d}.gguf", writer.bytes(data=True))
    return folder / f"{stem}-00001-of-{count:05d}.gguf"


def test_split_files_are_read_as_one(gguf, tmp_path):
    """Law: any part that is named means the whole model."""
    first = parts(gguf, tmp_path, 3)
    header = read_header(first)
    assert [t.name for t in header.tensors] == ["blk.0.t", "blk.1.t", "blk.2.t"]
    assert len(header.parts) == 3
    assert header.missing_bytes() == 0
    assert read_header(tmp_path / "m-00002-of-00003.gguf").hash() == header.hash()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda f: (f / "m-00002-of-00003.gguf").unlink(), "1 of 3 parts are missing"),
        (lambda f: (f / "m-00003-of-00003.gguf").write_bytes((f / "m-00001-of-00003.gguf").read_bytes()), "not part 3 of 3"),
        (lambda f: ((f / "m-00002-of-00003.gguf").unlink(), (f / "m-00002-of-00003.gguf").symlink_to(f / "m-00001-of-00003.gguf")), "not part 2 of 3"),
    ],
)  # fmt: skip
def test_missing_parts_and_circles_are_refused(gguf, tmp_path, change, says):
    first = parts(gguf, tmp_path, 3)
    change(tmp_path)
    with pytest.raises(BadFileError, match=says):
        read_header(first)


def test_other_faults_of_splits(gguf, tmp_path):
    with pytest.raises(BadFileError, match="first"):
        read_header(write(tmp_path / "m-00002-of-00003.gguf", b"GGUF" + bytes(100)))
    with pytest.raises(BadFileError, match="at most"):
        read_header(parts(gguf, tmp_path, 2, "n", of=60_000))
    with pytest.raises(BadFileError, match="tensors"):
        read_header(parts(gguf, tmp_path, 2, "o", tensors=9))
    with pytest.raises(BadFileError, match="not named"):
        read_header(write(tmp_path / "odd.gguf", gguf().add("split.no", 0).add("split.count", 2).bytes()))


def raw_header(keys=b"", n_keys=1, n_tensors=0, version=3, magic=b"GGUF"):
    return magic + struct.pack("<IQQ", version, n_tensors, n_keys) + keys


KEY = struct.pack("<Q", 1) + b"k"


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "too short"),
        (b"GGUF", "too short"),
        (b"\x89PNG" + bytes(100), "does not begin with GGUF"),
        (raw_header(version=1) + bytes(64), "version 1"),
        (raw_header(version=4) + bytes(64), "version 4"),
        (raw_header(n_keys=1 << 40) + bytes(64), "keys, more than can be in it"),
        (raw_header(n_keys=0, n_tensors=1 << 50) + bytes(64), "tensors, more than can be in it"),
        (raw_header(struct.pack("<Q", 1 << 60)) + bytes(64), "bytes long"),
        (raw_header(KEY + struct.pack("<I", 99)) + bytes(64), "unknown value type 99"),
        (raw_header(KEY + struct.pack("<IQ", 8, 1 << 62)) + bytes(64), "beyond the end"),
        (raw_header(KEY + struct.pack("<IIQ", 9, 9, 1)) + bytes(64), "array of arrays"),
        (raw_header(KEY + struct.pack("<IIQ", 9, 77, 1)) + bytes(64), "unknown type 77"),
        (raw_header(KEY + struct.pack("<IIQ", 9, 4, 1 << 61)) + bytes(64), "more than the file can hold"),
        (raw_header(KEY + struct.pack("<IIQ", 9, 8, 1 << 61)) + bytes(64), "more than can be in it"),
        (raw_header(KEY + struct.pack("<IIQQ", 9, 8, 2, 1 << 63) + bytes(64)), "beyond the end"),
        (raw_header((KEY + struct.pack("<II", 4, 1)) * 2, n_keys=2) + bytes(64), "twice"),
        (raw_header(KEY + struct.pack("<II", 10, 1)), "middle of its header"),
        (raw_header(n_keys=0, n_tensors=1, keys=KEY + struct.pack("<I", 9)) + bytes(64), "9 dimensions"),
        (raw_header(n_keys=0, n_tensors=1, keys=KEY + struct.pack("<IQQIQ", 2, 1 << 40, 1 << 40, 0, 0)) + bytes(64), "larger than any file"),
        (raw_header(struct.pack("<Q", 17) + b"general.alignment" + struct.pack("<II", 4, 3)) + bytes(64), "power of two"),
    ],
)  # fmt: skip
def test_hostile_headers_are_refused_in_one_line(tmp_path, raw, says):
    with pytest.raises(BadFileError, match=says) as caught:
        read_header(write(tmp_path / "m.gguf", raw))
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path):
    with pytest.raises(BadFileError, match="cannot open"):
        read_header(tmp_path / "none.gguf")
    with pytest.raises(BadFileError, match=r"not a file|cannot open"):
        read_header(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(BadFileError, match="not a file"):
        read_header(pipe)
    with pytest.raises(BadFileError, match="not a file"):
        read_header("/dev/zero")


@pytest.fixture
def base(gguf, tmp_path):
    raw = sample(gguf).add("words", ["abc"] * 1500).bytes(data=True)
    return raw, tmp_path / "m.gguf"


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.integers(0, 1 << 16), changes=st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=6)
)
def test_damaged_headers_are_read_or_refused_but_nothing_else(base, cut, changes):
    """Law: whatever bytes change, the reader gives a header or BadFileError, within a second."""
    raw, path = base
    damaged = bytearray(raw[: cut % (len(raw) + 1)] if cut % 3 else raw)
    for at, value in changes:
        if damaged:
            damaged[at % len(damaged)] = value
    path.write_bytes(damaged)
    start = time.monotonic()
    header = None
    with suppress(BadFileError):
        header = read_header(path)
    assert header is None or header.missing_bytes() >= 0
    assert time.monotonic() - start < 5


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_any_bytes_after_the_magic_are_read_or_refused(tmp_path, raw):
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF\x03\0\0\0" + raw)
    with suppress(BadFileError):
        assert read_header(path).version == 3
