"""A GGUF of random weights in Llama's shape that llama.cpp loads in milliseconds: one token a byte, thousands of tokens a second.

For limits, memory and speed; it recalls nothing. ``server_command`` starts it with the embedded server (``diagnose/llama_server.py``).
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parent.parent / "diagnose" / "llama_server.py"
TRAINED = 131_072
CHAT = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"


def _byte_characters() -> list[str]:
    """The 256 characters that stand for bytes in a byte-level vocabulary, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def make_model(
    path: Path,
    *,
    trained: int = TRAINED,
    layers: int = 2,
    heads: int = 2,
    head_size: int = 32,
    name: str = "tiny",
    seed: int = 0,
    sliding: int | None = None,
) -> Path:
    """Write the model. One token of f16 cache takes ``layers * 4 * heads * head_size`` bytes (256 by default).

    With ``sliding`` it has Gemma 3's shape and every layer (up to five) looks back so many tokens at most: time grows with the length and not with
    its square, which is what 128K tokens on one core need.
    """
    gguf = pytest.importorskip("gguf")
    numpy = pytest.importorskip("numpy")
    hidden, inner = heads * head_size, 2 * heads * head_size
    random = numpy.random.default_rng(seed)

    def weights(*shape: int):
        return (random.standard_normal(shape) * 0.05).astype(numpy.float32)

    tokens = [*_byte_characters(), "<s>", "</s>"]
    writer = gguf.GGUFWriter(str(path), "llama" if sliding is None else "gemma3")
    writer.add_name(name)
    writer.add_context_length(trained)
    writer.add_embedding_length(hidden)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    if sliding is None:
        writer.add_rope_dimension_count(head_size)
    else:
        writer.add_key_length(head_size)
        writer.add_value_length(head_size)
        writer.add_sliding_window(sliding)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.NORMAL] * 256 + [gguf.TokenType.CONTROL] * 2)
    # a merge has to be there; this one makes nothing of ordinary text
    writer.add_token_merges(["Ā ā"])
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHAT)
    ones = numpy.ones(hidden, numpy.float32)
    writer.add_tensor("token_embd.weight", weights(len(tokens), hidden))
    writer.add_tensor("output_norm.weight", ones)
    for layer in range(layers):
        for tensor, shape in {
            "attn_q": (hidden, hidden),
            "attn_k": (hidden, hidden),
            "attn_v": (hidden, hidden),
            "attn_output": (hidden, hidden),
            "ffn_gate": (inner, hidden),
            "ffn_up": (inner, hidden),
            "ffn_down": (hidden, inner),
        }.items():
            writer.add_tensor(f"blk.{layer}.{tensor}.weight", weights(*shape))
        norms = ["attn_norm", "ffn_norm"]
        if sliding is not None:
            norms += ["post_attention_norm", "post_ffw_norm"]
            for norm in ("attn_q_norm", "attn_k_norm"):
                writer.add_tensor(f"blk.{layer}.{norm}.weight", numpy.ones(head_size, numpy.float32))
        for norm in norms:
            writer.add_tensor(f"blk.{layer}.{norm}.weight", ones)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def server_command(model: Path, *flags: str, port: int | None = None) -> tuple[str, ...]:
    """Give a command that serves the model on a free loopback port, with one thread and the load lines in its log."""
    pytest.importorskip("xllamacpp")
    from probes.process import free_port

    fixed: Sequence[str] = (
        "--host",
        "127.0.0.1",
        "--port",
        str(port or free_port()),
        "-lv",
        "4",
        "-t",
        "1",
        "-tb",
        "1",
    )
    return (sys.executable, str(SERVER), "-m", str(model), *fixed, "--poll", "0", "--no-warmup", *flags)


@contextlib.contextmanager
def serving(folder: Path, model: Path, *flags: str) -> Iterator[str]:
    """Serve the model on a free loopback port and give its address once it answers; at the end that process only is ended. Its log: ``folder/log``."""
    from probes.backends.http import Http
    from probes.evidence.errors import CouldNotLookError
    from probes.process import free_port

    port = free_port()
    command = server_command(model, *flags, port=port)
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 60
            with Http(url) as http:
                while not _healthy(http, CouldNotLookError):
                    assert process.poll() is None, (folder / "log").read_text()
                    assert time.monotonic() < deadline, (folder / "log").read_text()
                    time.sleep(0.1)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def _healthy(http: Any, unreachable: type[Exception]) -> bool:
    try:
        return bool(http.get("/health", deadline_s=2).status == 200)
    except unreachable:
        return False
