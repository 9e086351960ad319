"""How dear headers and estimates are, in starts of the interpreter: ``python tests/benchmarks/bench_estimate.py``.

Prints one JSON object. Laws: a header with a vocabulary of 150,000 words and as many merges, as a whole process, at most 4 times
``python -c pass``; ``estimate`` with JSON at most 40 times; and how many settings a second are answered from one reading.
"""

from __future__ import annotations

import json
import lzma
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROUNDS = 15


def string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def write_model(path: Path, words: int = 150_000) -> Path:
    """Write a header as a large model has it: vocabulary, merges, scores, types, 300 tensors."""
    numbers = {
        "context_length": 131072,
        "embedding_length": 4096,
        "block_count": 32,
        "attention.head_count": 32,
        "attention.head_count_kv": 8,
    }
    keys = [string("general.architecture") + struct.pack("<I", 8) + string("llama")]
    keys += [string(f"llama.{name}") + struct.pack("<II", 4, value) for name, value in numbers.items()]
    for name, kind, body in (
        ("tokens", 8, b"".join(string(f"word{n}") for n in range(words))),
        ("scores", 6, bytes(4 * words)),
        ("token_type", 5, bytes(4 * words)),
        ("merges", 8, b"".join(string(f"wo rd{n}") for n in range(words))),
    ):
        keys.append(string(f"tokenizer.ggml.{name}") + struct.pack("<IIQ", 9, kind, words) + body)
    tensors = [
        string(f"blk.{n // 10}.t{n % 10}.weight") + struct.pack("<IQQIQ", 2, 32, 32, 0, 4096 * n) for n in range(300)
    ]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys) + b"".join(tensors))
    return path


def seconds(*arguments: str, given: str | None = None) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, check=True, text=True, input=given)
    return time.perf_counter() - start


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        path = str(write_model(Path(folder) / "large.gguf"))
        header = f"from probes.model_file.gguf_header import read_header; read_header({path!r})"
        plain, read, whole = [], [], []
        for _ in range(ROUNDS):  # in turn, so that a busy machine slows all alike
            plain.append(seconds("-c", "pass"))
            read.append(seconds("-c", header))
            whole.append(
                seconds("-m", "diagnose", "estimate", path, "--format", "json", "--gpu", "16GiB", "--gpu", "8GiB")
            )
        lines = "\n".join(json.dumps({"ctx": 1024 * n, "kv_k": "q8_0", "kv_v": "q8_0"}) for n in range(1, 501))
        many = seconds("-m", "diagnose", "estimate", path, "--settings", "-", "--gpu", "16GiB", given=lines)
    truth = json.loads(lzma.decompress((ROOT / "tests" / "model_file" / "kv_truth.json.xz").read_bytes()))
    return {
        "pass_ms": 1e3 * statistics.median(plain),
        "header_ratio": statistics.median(read) / statistics.median(plain),
        "header_ratio_allowed": 4,
        "estimate_ratio": statistics.median(whole) / statistics.median(plain),
        "estimate_ratio_allowed": 40,
        "settings_a_second": 500 / many,
        "reference_records": len(truth["records"]),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(), indent=2) + "\n")
