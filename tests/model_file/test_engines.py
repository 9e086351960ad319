"""Laws of model folders: configuration and safetensors headers, and the caches of engines that fill a pool."""

from __future__ import annotations

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.evidence.errors import BadFileError
from probes.model_file import read_model
from probes.model_file.engines import bytes_per_element, guess_engine, longest_pool, pool_bytes, read_folder_shape
from probes.model_file.safetensors_header import read_file_header, read_folder
from probes.model_file.shape import UnknownShapeError

CONFIG = {
    "model_type": "llama", "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 256,
    "max_position_embeddings": 8192, "torch_dtype": "bfloat16",
}  # fmt: skip


def tensors(sizes):
    header, at = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(at)


@pytest.fixture
def folder(tmp_path):
    def make(files=None, **config):
        (tmp_path / "config.json").write_text(
            json.dumps({key: value for key, value in {**CONFIG, **config}.items() if value is not None})
        )
        for name, raw in (files or {"model.safetensors": tensors({"a": 64, "b": 128})}).items():
            (tmp_path / name).write_bytes(raw)
        return tmp_path

    return make


def test_plain_attention_by_engine(folder):
    shape = read_folder_shape(read_folder(folder()))
    assert (shape.full_layers, shape.full_row) == (4, 128)
    assert pool_bytes(shape, "vllm", 1000, 2, 2) == 4 * 128 * 1008 * 2
    assert pool_bytes(shape, "sglang", 1000, 1, 1) == 4 * 128 * 1000
    assert pool_bytes(shape, "mlx_lm", 1000, 2, 2, sequences=3) == 3 * 4 * 128 * 1024 * 2


def test_windows_compressed_keys_and_states(folder):
    sliding = read_folder_shape(
        read_folder(folder(sliding_window=512, layer_types=["sliding_attention"] * 3 + ["full_attention"]))
    )
    assert (sliding.full_layers, sliding.window_layers, sliding.window) == (1, 3, 512)
    assert pool_bytes(sliding, "vllm", 4096, 2, 2) == 128 * 2 * (4096 + 3 * 512)
    mla = read_folder_shape(read_folder(folder(kv_lora_rank=512, qk_rope_head_dim=64)))
    assert mla.full_row == 576
    hybrid = read_folder_shape(
        read_folder(
            folder(
                layer_types=["linear_attention", "full_attention"] * 2, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
                linear_value_head_dim=16, linear_conv_kernel_dim=4,
            )
        )
    )  # fmt: skip
    assert (hybrid.full_layers, hybrid.state_layers) == (2, 2)
    assert hybrid.state_elements == 4 * 16 * 16 + 3 * (2 * 2 * 16 + 4 * 16)
    nested = read_folder_shape(read_folder(folder(text_config={"num_hidden_layers": 7, "hidden_size": 64})))
    assert nested.layers == 7


def test_cache_types_and_engines(folder):
    assert bytes_per_element("vllm", "fp8", "bfloat16") == 1
    assert bytes_per_element("vllm", "q8_0", "bfloat16") is None
    assert bytes_per_element("mlx_lm", "q8", "float16") == 1 + 4 / 64
    assert bytes_per_element("exllama", "q4", "float16") == 0.5 + 2 / 32
    assert bytes_per_element("mlx_lm", "auto", "float32") == 4
    assert guess_engine(read_folder(folder())) == "vllm"
    assert guess_engine(read_folder(folder(quantization={"group_size": 64, "bits": 4}))) == "mlx_lm"
    assert guess_engine(read_folder(folder(quantization_config={"quant_method": "exl3"}))) == "exllama"


@settings(max_examples=50, deadline=None)
@given(room=st.integers(0, 1 << 24))
def test_the_longest_pool_fits_and_one_block_more_does_not(room):
    from probes.model_file.engines import FolderShape

    shape = FolderShape("x", 8192, 4, 2, 2, 512, 128, 128, 0, 0, "bfloat16")
    tokens = longest_pool(shape, "vllm", room, 2, 2)
    assert pool_bytes(shape, "vllm", tokens, 2, 2) <= room
    if tokens < 8192:
        assert pool_bytes(shape, "vllm", tokens + 16, 2, 2) > room


def test_a_folder_as_evidence(folder):
    found = read_model(folder(rope_theta=1e6))
    assert (found.format, found.architecture, found.trained_window, found.weights_bytes) == (
        "safetensors",
        "llama",
        8192,
        192,
    )
    assert found.rope_freq_base == 1e6
    assert found.kv_bytes_per_token == 2 * 4 * 128


@pytest.mark.parametrize(
    ("config", "missing"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers"),
        ({"model_type": None}, "model_type"),
        ({"num_attention_heads": -1}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 1 << 31}, "num_hidden_layers"),
        ({"num_key_value_heads": 0}, "num_key_value_heads"),
        ({"layer_types": [["full_attention"]] * 4}, "layer_types"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": [None] * 4}, "layer_types"),
    ],
)
def test_missing_keys_are_named(folder, config, missing):
    with pytest.raises(UnknownShapeError) as caught:
        read_folder_shape(read_folder(folder(**config)))
    assert missing in caught.value.missing


def test_a_folder_of_another_kind_says_what_to_give_instead(tmp_path):
    with pytest.raises(BadFileError, match="a model's folder, or a GGUF file"):
        read_folder(tmp_path)
    (tmp_path / "b.gguf").write_bytes(b"")
    (tmp_path / "a-00001-of-00002.gguf").write_bytes(b"")
    with pytest.raises(BadFileError, match=r"such as a-00001-of-00002\.gguf"):
        read_folder(tmp_path)


def test_damaged_folders_are_refused(folder, tmp_path):
    path = folder()
    (path / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}})
    )
    with pytest.raises(BadFileError, match="missing"):
        read_folder(path)
    (path / "model.safetensors.index.json").unlink()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 50) + b"{}")
    with pytest.raises(BadFileError, match="header has"):
        read_folder(path)
    (path / "config.json").write_text("[" * 100_000)
    with pytest.raises(BadFileError, match="JSON"):
        read_folder(path)
    with pytest.raises(BadFileError):
        read_folder(tmp_path / "nothing")


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=80), st.booleans())
def test_any_bytes_are_read_or_refused(tmp_path, raw, honest):
    path = tmp_path / "m.safetensors"
    path.write_bytes((struct.pack("<Q", len(raw)) if honest else b"") + raw)
    found = {}
    with suppress(BadFileError):
        found = read_file_header(str(path))
    assert isinstance(found, dict)
