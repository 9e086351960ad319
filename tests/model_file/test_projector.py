"""Laws of what a projector takes: its encoder's work space as public logs have it, what is not known is not counted and said."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.cli import command_line
from probes.model_file.projector import ERROR_SHARE, read_projector

MIB = 1024**2
LOGGED = [
    # Qwen3.6 27B and 35B: 1472 x 1472, flash attention on, CUDA, 2026-05
    ("qwen3vl_merger", (1152, 4304, 16, 16), 768, {"spatial_merge_size": 2}, False, "auto", 248.10, 24.93),
    # Qwen3.5 4B: the same picture, b10218
    ("qwen3vl_merger", (1024, 4096, 16, 16), 768, {"spatial_merge_size": 2}, False, "auto", 223.30, None),
    # Mistral Small 3 (pixtral): 448 x 448, CPU, 2026
    ("pixtral", (1024, 4096, 16, 14), 1540, {"spatial_merge_size": 2}, True, "auto", 64.49, None),
    # the first again, where flash attention could not be had: CUDA, 2026-05
    ("qwen3vl_merger", (1152, 4304, 16, 16), 768, {"spatial_merge_size": 2}, False, "off", 4657.81, None),
    # Gemma 3: 896 x 896 without flash attention, CUDA, 2025
    ("gemma3", (1152, 4304, 16, 14), 896, {}, False, "off", 1132.00, None),
]


def write(gguf, path, kind, dimensions, size, more, *, gated):
    width, wide, heads, patch = dimensions
    writer = gguf().add("general.architecture", "clip").add("clip.projector_type", kind)
    keys = {
        "embedding_length": width,
        "feed_forward_length": wide,
        "attention.head_count": heads,
        "patch_size": patch,
        "image_size": size,
        **more,
    }
    for name, value in keys.items():
        writer.add(f"clip.vision.{name}", value)
    writer.tensor("v.blk.0.ffn_up.weight", (width, wide))
    if gated:
        writer.tensor("v.blk.0.ffn_gate.weight", (width, wide))
    path.write_bytes(writer.bytes())
    return path


@pytest.mark.parametrize(("kind", "dimensions", "size", "more", "gated", "flash", "logged", "host"), LOGGED)
def test_work_space_is_what_logs_say(kind, dimensions, size, more, gated, flash, logged, host, gguf, tmp_path):
    """Law: within the stated share of what five logs of four encoders say; the picture itself is in host memory."""
    path = write(gguf, tmp_path / "mmproj.gguf", kind, dimensions, size, more, gated=gated)
    found = read_projector(path, flash_attn=flash)
    assert found.compute / MIB == pytest.approx(logged, rel=ERROR_SHARE / 4)
    if host is not None:
        assert found.inputs / MIB == pytest.approx(host, rel=0.02)
    assert found.weights == dimensions[0] * dimensions[1] * 2 * (2 if gated else 1)


def test_estimate_counts_it_on_the_device_or_on_the_host(gguf, tmp_path, truth_models, capsys):
    """Law: weights and work space are where the projector is, the picture on the host, and the error grows by its own."""
    path = write(
        gguf,
        tmp_path / "mmproj.gguf",
        "qwen3vl_merger",
        (1152, 4304, 16, 16),
        768,
        {"spatial_merge_size": 2},
        gated=False,
    )
    sizes = {}
    for name, more in (
        ("without", []),
        ("device", ["--mmproj", path]),
        ("host", ["--mmproj", path, "--no-mmproj-offload"]),
    ):
        arguments = [
            truth_models["real-llama-3.1-8b.gguf"],
            "--gpu",
            "24GiB",
            "--ctx",
            "8192",
            "--format",
            "json",
            *more,
        ]
        assert command_line(["estimate", *map(str, arguments)]) == 0
        found = json.loads(capsys.readouterr().out)
        sizes[name] = [device["other_bytes"] for device in found["devices"]], found["basis"]["error"]
        assert "projector_bytes" not in found["unknown"]
    projector = read_projector(path)
    base, host = sizes["without"][0]
    taken = projector.weights + projector.compute
    assert sizes["device"][0] == [base + taken, host + projector.inputs]
    assert sizes["host"][0] == [base, host + taken + projector.inputs]
    assert sizes["device"][1] == sizes["without"][1] + projector.compute // 4


def test_a_kind_that_is_not_known_says_so(gguf, tmp_path, truth_models, capsys):
    path = write(gguf, tmp_path / "mmproj.gguf", "from-tomorrow", (64, 128, 2, 8), 64, {}, gated=False)
    assert read_projector(path)[2:] == (None, None)
    code = command_line(
        [
            "estimate",
            str(truth_models["real-llama-3.1-8b.gguf"]),
            "--mmproj",
            str(path),
            "--format",
            "json",
            "--gpu",
            "24GiB",
        ]
    )
    found = json.loads(capsys.readouterr().out)
    assert code == 0
    assert "not known here" in found["unknown"]["projector_bytes"]["note"]
    assert found["projector_bytes"] == 64 * 128 * 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["qwen3vl_merger", "gemma3", "mlp", "audio", ""]),
    dimensions=st.tuples(*[st.integers(0, 1 << 31)] * 4),
    size=st.integers(0, 1 << 31),
    merge=st.integers(0, 1 << 31),
)
def test_absurd_headers_give_no_number_and_no_fault(gguf, tmp_path, kind, dimensions, size, merge):
    path = write(gguf, tmp_path / "mmproj.gguf", kind, dimensions, size, {"spatial_merge_size": merge}, gated=False)
    found = read_projector(path)
    assert found.compute is None or 0 < found.compute < 1 << 62
