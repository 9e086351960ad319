"""Laws of ``ctxdoctor estimate``: the contract's document, one line an error, one document a line of settings."""

from __future__ import annotations

import inspect
import io
import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.cli import command_line
from diagnose.estimate import Estimate, estimate
from diagnose.estimating import SETTINGS, settings_from
from probes.evidence.errors import InputError
from probes.evidence.sizes import parse_length, parse_size, show_size
from probes.evidence.words import speaking
from probes.model_file.context import ContextSettings
from probes.model_file.planner import GivenDevice, Model
from tests.tiny_model import make_model

ROOT = Path(__file__).parents[2]
CONTRACT = {
    "": {
        "schema_version", "model", "settings", "result", "refused_because", "ctx_in_force", "ctx_per_slot", "kv", "state_bytes", "compute_bytes",
        "output_bytes", "draft_bytes", "projector_bytes", "devices", "longest_window", "levers", "basis", "unknown",
    },
    "model": {"path", "architecture", "trained_window", "weights_bytes"},
    "settings": {"ctx", "kv_k", "kv_v", "parallel", "kv_unified", "batch", "ubatch", "swa_full", "flash_attn"},
    "kv": {"bytes", "parts"},
    "longest_window": {"tokens", "limited_by"},
    "basis": {"compute", "error"},
}  # fmt: skip
DEVICE = {
    "id", "name", "free_bytes", "margin_bytes", "weights_bytes", "kv_bytes", "state_bytes", "compute_bytes", "other_bytes", "need_bytes", "fits",
}  # fmt: skip
LEVER = {"lever", "tokens", "gain", "weights_bytes", "context_bytes", "costs_quality"}
PART = {"name", "cells", "streams", "layers", "k_bytes", "v_bytes"}


@pytest.fixture
def ask(capsys):
    """Run the command in this process: (exit code, standard output, standard error)."""

    def call(*arguments):
        with speaking(None):  # --lang stays in force in the process: it must not reach the next test
            code = command_line(["estimate", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def safetensors(sizes):
    """Write a safetensors file of 16-bit tensors: name → bytes."""
    header, at = {}, 0
    for name, size in sizes.items():
        header[name] = {"dtype": "BF16", "shape": [size // 2], "data_offsets": [at, at + size]}
        at += size
    raw = json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + bytes(at)


@pytest.fixture
def folder(tmp_path):
    """Write a folder of a model with six layers, every third of which attends to all; its tensors are given."""

    def make(sizes, **config):
        own = {
            "model_type": "llama", "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 256,
            "max_position_embeddings": 8192, "sliding_window": 512, "sliding_window_pattern": 3, **config,
        }  # fmt: skip
        (tmp_path / "config.json").write_text(json.dumps(own))
        (tmp_path / "model.safetensors").write_bytes(safetensors(sizes))
        return tmp_path

    return make


@pytest.fixture
def whole(model):
    """Write a whole GGUF file of a plain model, or one that ends ``cut`` bytes early."""

    def make(cut=0, layers=2):
        names = ("token_embd", "blk.0.attn_q", "blk.1.attn_q")[: 1 + layers]
        tensors = [(f"{name}.weight", (64, 1024 if at == 0 else 512)) for at, name in enumerate(names)]
        path = model("llama", tensors=tensors, tokenizer__ggml__tokens=["a", "b"])
        raw = path.read_bytes() + bytes(2 * 64 * 1024 + layers * 64 * 1024)
        path.write_bytes(raw[: len(raw) - cut])
        return path

    return make


@pytest.fixture
def llama(truth_models):
    return truth_models["real-llama-3.1-8b.gguf"]


def test_the_document_is_the_contracts(ask, llama):
    code, out, err = ask(
        llama, "--gpu", "16GiB", "--gpu", "card two=8GB", "-c", "32k", "--format", "json", "--margin", "512MiB"
    )
    assert (code, err) == (0, "")
    found = json.loads(out)
    for part, keys in CONTRACT.items():
        assert keys <= set(found[part] if part else found), part
    assert all(set(device) >= DEVICE for device in found["devices"])
    assert all(set(lever) >= LEVER for lever in found["levers"])
    assert all(set(part) == PART for part in found["kv"]["parts"])
    assert [device["id"] for device in found["devices"]] == ["gpu0", "gpu1", "host"]
    assert found["devices"][1]["name"] == "card two"
    assert found["devices"][1]["free_bytes"] == 8_000_000_000
    assert found["devices"][0]["margin_bytes"] == 512 * 1024**2
    assert found["kv"]["bytes"] == 4 * 1024**3
    assert found["ctx_in_force"] == found["ctx_per_slot"] == 32768
    assert found["result"] == "ok"
    assert found["basis"]["compute"] == "model"
    assert found["basis"]["error"] > 0
    assert found["settings"]["parallel"] == 4
    assert found["settings"]["kv_unified"] is True
    assert Estimate.model_validate(found).model_dump(mode="json") == found


def test_records_and_plain_documents_are_the_same(truth_models):
    """Law: every document, of whatever result, is valid by the published schema, and nothing is lost on the way."""
    device, host = GivenDevice("g", "G", 1 << 33), GivenDevice("host", "h", None)
    for name in ("gemma3.gguf", "qwen35.gguf", "nomic-bert.gguf", "mamba2.gguf"):
        model = Model.read(truth_models[name])
        for asked in (ContextSettings(), ContextSettings(kv_k="q4_0", kv_v="nope"), ContextSettings(parallel=900)):
            assert estimate(model, asked, (device,), host).schema_version == 1
    assert "properties" in Estimate.model_json_schema()


def test_text_is_drawn_with_what_matters(ask, llama):
    code, out, _err = ask(llama, "--gpu", "16GiB", "--gpu", "8GiB", "-c", "128K")
    assert code == 0
    for piece in (
        "llama",
        "131,072",
        "GPU 1",
        "Fills first: GPU 1",
        "Longest window that fits",
        "--tensor-split",
        "q8_0",
    ):
        assert piece in out
    code, out, _err = ask(llama, "--kv", "q8_0/q4_0", "-fa", "off")
    assert code == 0
    assert "quantized V cache" in out


def test_settings_lines_are_answered_in_order(ask, llama, tmp_path):
    """Law: one document a line, a bad line too, the model read once; exit 0."""
    file = tmp_path / "settings.jsonl"
    file.write_text(
        '{"ctx": 8192, "kv_k": "q8_0", "kv_v": "q8_0"}\n\nnot json\n{"ctx": -5}\n[1]\n{"ctx": "8k", "odd": 1}\n{"kv_v": "q4_0", "flash_attn": "off"}\n'
    )
    code, out, err = ask(llama, "--settings", file, "--gpu", "16GiB")
    assert code == 0
    found = [json.loads(line) for line in out.splitlines()]
    assert [one["result"] for one in found] == ["ok", "unknown", "unknown", "unknown", "ok", "refused"]
    assert found[0]["kv"]["bytes"] == 32 * 2 * 1024 * 8192 * 34 // 32
    assert "line 3" in found[1]["unknown"]["settings"]["note"]
    assert found[4]["unknown"]["settings.odd"]["why"] == "not-offered"
    assert found[5]["refused_because"].startswith("quantized V cache requires flash_attn to be enabled")
    assert len(err.splitlines()) == 3
    for one in found:
        Estimate.model_validate(one)


def test_settings_from_standard_input_and_command_line_defaults(llama, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"ctx": 4096}\n{}\n')))
    assert (
        command_line(["estimate", str(llama), "--settings", "-", "--kv", "q4_0", "--ctx", "2048", "--gpu", "8GiB"]) == 0
    )
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["ctx_in_force"], second["ctx_in_force"]) == (4096, 2048)
    assert first["settings"]["kv_v"] == "q4_0"


def test_the_reference_set_through_the_command(ask, truth, truth_models, tmp_path):
    """Law: what the command answers to lines of settings is what llama.cpp did."""
    names = {
        "s_n_ctx": "ctx",
        "n_parallel": "parallel",
        "n_batch": "batch",
        "n_ubatch": "ubatch",
        "cache_type_k": "kv_k",
        "cache_type_v": "kv_v",
    }
    for gguf in ("gemma3.gguf", "glm-dsa.gguf", "qwen35.gguf", "real-minicpm3-4b.gguf"):
        records = [record for record in truth["records"] if record["gguf"] == gguf]
        file = tmp_path / "s.jsonl"
        file.write_text(
            "\n".join(
                json.dumps({names.get(k, "ctx" if k == "n_ctx" else k): v for k, v in r["settings"].items()})
                for r in records
            )
        )
        _code, out, _err = ask(truth_models[gguf], "--settings", file, "--gpu", "80GiB")
        for record, line in zip(records, out.splitlines(), strict=True):
            found = json.loads(line)
            assert found["result"] == ("ok" if record["result"] == "ok" else "refused"), record["id"]
            if record["result"] == "ok":
                assert found["kv"]["bytes"] + found["state_bytes"] == record["memory_bytes"]
                assert (found["ctx_in_force"], found["ctx_per_slot"]) == (record["n_ctx"], record["n_ctx_seq"])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none.gguf"], "cannot open"),
        (["MODEL", "--gpu", "lots"], "as a size"),
        (["MODEL", "-c", "many"], "as a length"),
        (["MODEL", "--kv", "q8_0/"], "cache type"),
        (["MODEL", "--format", "xml"], "text or json"),
        (["MODEL", "--tensor-split", "1,x", "--gpu", "1GiB"], "list of numbers"),
        (["MODEL", "--tensor-split", "1,2,3", "--gpu", "1GiB"], "3 shares for 1"),
        (["MODEL", "--gpu-layers", "some"], "number of layers"),
        (["MODEL", "--levers", "magic"], "no lever"),
        (["MODEL", "--levers", "kv-nope"], "no lever"),
        (["MODEL", "--levers", ","], "list of levers"),
        (["MODEL", "--kv", "q8_0/q4_0/f16"], "cache type"),
        (["MODEL", "--gpu", "8GiB", "--margin", "1GiB", "--margin", "1GiB", "--margin", "1GiB"], "3 times"),
        (["MODEL", "--gpu", "8GiB", "--mmproj", "MODEL"], "no projector"),
        (["MODEL", "--gpu", "8GiB", "--backend", ""], "not loaded"),
        (["MODEL", "--gpu", "8GiB", "--override-tensor", "a=gpu0,b"], "divided by commas"),
        (["MODEL", "--batch", "0", "--ubatch", "0"], "not both 0"),
        (["MODEL", "--override-tensor", "x"], "override is written"),
        (["MODEL", "--override-tensor", "x=gpu7"], "override goes to"),
        (["MODEL", "--settings", "none.jsonl"], "cannot read the settings"),
        (["MODEL", "--draft", "none.gguf"], "cannot open"),
        (["MODEL", "--flash-attn", "maybe"], "flash_attn"),
        (["MODEL", "--parallel", "0"], "at least 1"),
        (["MODEL", "--nonsense"], "nonsense"),
        (["MODEL", "MODEL"], "MODEL|extra|unexpected"),
        ([], "MODEL"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(ask, llama, arguments, says):
    code, out, err = ask(*[llama if one == "MODEL" else one for one in arguments])
    assert code == 2
    assert out == ""
    assert len(err.strip().splitlines()) == 1
    assert any(word in err for word in says.split("|"))


def test_an_unknown_architecture_says_what_can_be_said(ask, model):
    code, out, _err = ask(model("nope", attention__head_count_kv=2), "--format", "json", "--gpu", "8GiB")
    found = json.loads(out)
    assert code == 0
    assert found["result"] == "unknown"
    assert "unknown architecture 'nope'" in found["unknown"]["kv"]["note"]
    assert found["kv"]["range_bytes"] == [0, 2 * 2 * 16 * 2 * 2 * 4096]
    code, out, _err = ask(model("gpt-oss", name="g.gguf"), "--format", "json", "--gpu", "8GiB")
    assert "gpt-oss.attention.sliding_window" in json.loads(out)["unknown"]["kv"]["note"]


def test_a_folder_is_estimated_for_its_engine(ask, tmp_path):
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "llama",
                "num_hidden_layers": 4,
                "num_attention_heads": 8,
                "num_key_value_heads": 2,
                "hidden_size": 256,
                "max_position_embeddings": 8192,
            }
        )
    )
    held = dict.fromkeys([f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(4)], 64)
    (tmp_path / "model.safetensors").write_bytes(safetensors(held))
    code, out, _err = ask(
        tmp_path, "--format", "json", "--gpu", "1GiB", "--margin", "100MiB", "--ctx", "1000", "--backend", "vllm"
    )
    found = json.loads(out)
    assert code == 0
    assert found["ctx_in_force"] == 1008
    assert found["kv"]["bytes"] == 4 * 128 * 1008 * 2
    assert found["longest_window"] == {"tokens": 8192, "limited_by": "trained window"}
    Estimate.model_validate(found)
    code, _out, err = ask(tmp_path, "--backend", "notepad")
    assert code == 2
    assert "notepad" in err
    code, out, _err = ask(tmp_path, "--kv", "fp8", "--gpu", "1GiB")
    assert code == 0
    assert "Longest window" in out


def test_the_quick_reader_and_the_option_library_have_the_same_options(llama):
    """Law: what one takes the other takes, with the same defaults, so a plain command line means the same either way."""
    import typer

    from diagnose.cli import estimate_run
    from diagnose.cli.estimate import estimate_command

    parameters = dict(inspect.signature(estimate_command).parameters)
    parameters.pop("model")
    assert {name: p.default for name, p in parameters.items()} == estimate_run.DEFAULTS
    app = typer.Typer()
    app.command()(estimate_command)
    flags = {}
    for option in typer.main.get_command(app).params:
        for flag in (*option.opts, *option.secondary_opts):
            flags[flag] = option.name
    for flag in ("model", "--help", "--install-completion", "--show-completion"):
        flags.pop(flag, None)
    table = {
        **estimate_run.VALUES,
        **estimate_run.REPEATED,
        **{flag: name for flag, (name, _value) in estimate_run.FLAGS.items()},
    }
    assert {
        flag: name for flag, name in flags.items() if name not in ("install_completion", "show_completion")
    } == table
    assert estimate_run.quick([str(llama), "--help"]) is None


def test_the_quick_way_imports_nothing_heavy(llama):
    """Law: one JSON answer needs neither the option library nor pydantic, rich, numpy or a driver."""
    script = (
        "import sys; from diagnose.cli import command_line; "
        f"code = command_line(['estimate', {str(llama)!r}, '--format', 'json', '--gpu', '8GiB']); "
        "bad = sorted(set(sys.modules) & {'typer', 'click', 'pydantic', 'rich', 'numpy', 'pynvml', 'transformers', 'jinja2', 'httpx2'}); "
        "sys.stderr.write(repr((code, bad)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == "(0, [])"


def test_an_output_file_is_written(ask, llama, tmp_path):
    code, out, _err = ask(llama, "--format=json", "--gpu=8GiB", "--out", tmp_path / "e.json")
    assert (code, out) == (0, "")
    assert json.loads((tmp_path / "e.json").read_text())["result"] == "ok"
    code, _out, err = ask(llama, "--out", tmp_path / "no" / "e.json")
    assert code == 2
    assert "cannot write" in err


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*SETTINGS, "n_ctx", "x"]),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(),
            st.floats(),
            st.text(max_size=8),
            st.lists(st.integers(), max_size=2),
        ),
        max_size=5,
    )
)
def test_any_settings_are_read_or_refused(given_settings):
    """Law: whatever a line holds, settings come out or InputError with one line."""
    found = ContextSettings()
    with suppress(InputError):
        found, _ignored = settings_from(given_settings)
    assert found.parallel >= 1
    assert found.ctx >= 0


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16GiB", 16 << 30),
        ("1.5 GB", 1_500_000_000),
        ("500MB", 500_000_000),
        ("4k", 4096),
        ("7", 7),
        ("2TiB", 2 << 40),
        ("1g", 1 << 30),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "tokens"),
    [("8192", 8192), ("8k", 8192), ("128K", 131072), ("1M", 1 << 20), ("131,072", 131072), ("0.5k", 512), (4096, 4096)],
)
def test_lengths(text, tokens):
    assert parse_length(text) == tokens


@pytest.mark.parametrize(
    "text", ["", "k", "8 thousand", "-1", "1e9", "nan", "9" * 40, "8KiBs", "1.5", True, float("inf")]
)
def test_what_is_no_size_or_length_is_refused(text):
    with pytest.raises(InputError):
        parse_length(text)
    if text != "1.5":
        with pytest.raises(InputError):
            parse_size(text)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 50))
def test_sizes_are_read_as_they_are_written(size):
    assert parse_size(size) == size
    assert parse_size(f"{size}MiB") == size << 20 if size < 1 << 40 else True
    assert isinstance(show_size(size), str)


@pytest.mark.parametrize("option", ["--gpu", "--ram", "--margin"])
@pytest.mark.parametrize("text", ["24", "0024", "24B", "24 b", "16384", "1.5"])
def test_memory_without_its_unit_is_refused_with_how_to_write_it(ask, llama, option, text):
    """Law: no device, host or margin has a handful of bytes, so a bare number is a forgotten unit in every option."""
    code, out, err = ask(llama, *([] if option == "--gpu" else ["--gpu", "8GiB"]), option, text)
    assert (code, out) == (2, "")
    assert option in err
    assert "GiB" in err
    assert len(err.splitlines()) == 1


def test_memory_with_a_unit_or_plainly_in_bytes_is_taken(ask, llama):
    for text, size in (("a=24GiB", 24 << 30), ("25769803776", 24 << 30), ("64MiB", 64 << 20), ("100k", 102400)):
        code, out, _err = ask(llama, "--gpu", text, "--margin", "0", "--format", "json")
        assert code == 0
        assert json.loads(out)["devices"][0]["free_bytes"] == size
    assert ask(llama, "--gpu", "0")[0] == ask(llama, "--gpu", "b=0")[0] == 2


_LAYERS = [f"model.layers.{layer}.mlp.experts.9.w1.weight" for layer in range(6)]


@pytest.mark.parametrize(
    ("names", "held"),
    [
        (["model.embed_tokens.weight"], 0),
        (_LAYERS[:2], 2),
        ([f"model.vision_tower.encoder.layers.{layer}.w" for layer in range(6)], 0),
        ([*_LAYERS[:5], "model.layers.6.nextn.weight"], 5),
    ],
)
def test_a_folder_that_lacks_layers_claims_no_fit(ask, folder, names, held):
    """Law: where the files do not hold every layer of the configuration, that is said first and nothing is said to fit."""
    path = folder(dict.fromkeys(names, 64))
    code, out, _err = ask(path, "--gpu", "24GiB", "--backend", "vllm", "--format", "json")
    found = json.loads(out)
    assert code == 0
    assert [device["fits"] for device in found["devices"]] == [None]
    assert found["longest_window"] == {"tokens": None, "limited_by": None}
    assert f"{held} of the 6 layers" in found["unknown"]["model.weights_bytes"]["note"]
    Estimate.model_validate(found)
    code, out, _err = ask(path, "--gpu", "24GiB", "--backend", "vllm")
    assert f"{held} of the 6 layers" in out.splitlines()[0]
    assert "yes" not in out


@pytest.mark.parametrize("more", [[], ["--backend", "vllm"]])
@pytest.mark.parametrize("layers", [0, 1, 2])
def test_a_file_that_lacks_layers_claims_no_fit(ask, whole, layers, more):
    """Law: as for a folder: a header that names more layers than there are tensors for has no sum of weights to go by."""
    path = whole(layers=layers)
    code, out, _err = ask(path, "--gpu", "24GiB", "--format", "json", *more)
    found = json.loads(out)
    assert code == 0
    assert found["devices"][0]["fits"] is (True if layers == 2 else None)
    assert (found["longest_window"]["tokens"] is None) == (layers < 2)
    Estimate.model_validate(found)
    first = ask(path, "--gpu", "24GiB", *more)[1].splitlines()[0]
    assert (f"{layers} of the 2 layers" in first) == (layers < 2)


def test_a_whole_folder_fits_and_counts_its_layers(ask, folder):
    for names in (_LAYERS, [name.replace("model.layers", "transformer.h") for name in _LAYERS]):
        code, out, _err = ask(folder(dict.fromkeys(names, 64)), "--gpu", "24GiB", "--format", "json")
        found = json.loads(out)
        assert (code, found["devices"][0]["fits"]) == (0, True)
        assert [(part["name"], part["layers"]) for part in found["kv"]["parts"]] == [
            ("base", [2, 5]),
            ("swa", [0, 1, 3, 4]),
        ]
        assert found["basis"]["engine"] == "vllm"
        assert not {"model.file", "model.weights_bytes"} & set(found["unknown"])


def test_a_folder_whose_file_ends_early_says_so_first(ask, folder):
    path = folder(dict.fromkeys(_LAYERS, 64))
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-192])
    code, out, _err = ask(path, "--gpu", "24GiB")
    assert code == 0
    assert "192 bytes of tensor data (50 %) are missing" in out.splitlines()[0]


def test_an_unfinished_file_is_said_before_anything_else(ask, whole):
    """Law: what the header says is still worked out, for the file as it will be, but what is missing comes first."""
    code, out, _err = ask(whole(cut=98304), "--gpu", "24GiB", "--format", "json")
    found = json.loads(out)
    assert (code, found["result"]) == (0, "ok")
    assert "98304 bytes of tensor data (38 %)" in found["unknown"]["model.file"]["note"]
    for more in ([], ["--backend", "vllm"], ["--kv", "q4_0", "-fa", "off"]):
        code, out, _err = ask(whole(cut=98304), "--gpu", "24GiB", *more)
        assert code == 0
        assert "98304 bytes" in out.splitlines()[0]
        assert out.count("98304") == 1
    assert "missing" not in ask(whole(), "--gpu", "24GiB")[1]


def test_a_gguf_file_is_planned_by_the_rules_of_the_engine_that_is_named(ask, whole):
    """Law: --backend is followed, or refused in one line; what only llama.cpp takes is said to be left out."""
    path = whole()
    found = {}
    for backend in ("llama.cpp", "ollama", "koboldcpp", "vllm", "sglang"):
        code, out, _err = ask(
            path, "--gpu", "24GiB", "-c", "1000", "-ngl", "1", "--backend", backend, "--format", "json"
        )
        assert code == 0
        found[backend] = json.loads(out)
        Estimate.model_validate(found[backend])
    assert [found[one]["ctx_in_force"] for one in found] == [1024, 1024, 1024, 1008, 1000]
    assert [found[one]["basis"]["engine"] for one in ("llama.cpp", "vllm", "sglang")] == ["llama.cpp", "vllm", "sglang"]
    assert found["vllm"]["kv"]["bytes"] == 2 * 2 * 64 * 2 * 1008
    assert found["vllm"]["kv"]["parts"][0]["layers"] == [0, 1]
    assert "ollama may choose" in found["ollama"]["unknown"]["basis.engine"]["note"]
    assert "settings.gpu_layers" in found["vllm"]["unknown"]
    assert "settings.gpu_layers" not in found["llama.cpp"]["unknown"]
    for backend in ("mlx_lm", "exllama", "nonsense"):
        code, out, err = ask(path, "--backend", backend)
        assert (code, out, len(err.splitlines())) == (2, "", 1)
        assert backend in err
    code, out, _err = ask(path, "--backend", "vllm", "--kv", "q8_0")
    assert "vllm refuses" in out
    assert "llama.cpp" not in out


def test_what_an_engine_with_a_pool_refuses_or_warns_of_is_told(ask, whole, tmp_path):
    """Law: one cache type where the engine has one; a window over the trained one is not passed over; lines of settings mean the same by any name."""
    path = whole()
    file = tmp_path / "s.jsonl"
    file.write_text(
        '{"cache_type_k": "fp8"}\n{"kv_k": "fp8", "kv_v": "fp8", "n_ctx": 8192}\n{"cache_type_k": "fp8", "cache_type_v": "fp8", "parallel": "auto"}\n'
    )
    code, out, _err = ask(path, "--backend", "vllm", "--gpu", "8GiB", "--settings", file)
    one, long, auto = map(json.loads, out.splitlines())
    assert code == 0
    assert (one["result"], one["refused_because"]) == ("refused", "vllm has one cache type for keys and values")
    assert "trained to" in long["unknown"]["settings.ctx"]["note"]
    assert auto["settings"]["parallel"] == 1
    assert auto["kv"]["bytes"] == 2 * 2 * 64 * 4096


def test_overrides_in_one_list_are_as_several(ask, llama):
    shown = [
        ask(llama, "--gpu", "24GiB", "--format", "json", *more)[1]
        for more in (["-ot", r"blk\.1\.=cpu,blk\.2\.=cpu"], ["-ot", r"blk\.1\.=cpu", "-ot", r"blk\.2\.=cpu"], [])
    ]
    assert shown[0] == shown[1] != shown[2]


def test_layers_that_another_engine_keeps_otherwise_are_not_guessed(ask, truth_models):
    code, out, _err = ask(truth_models["qwen35.gguf"], "--backend", "vllm", "--format", "json", "--gpu", "8GiB")
    assert code == 0
    assert json.loads(out)["result"] == "unknown"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-np", "-3"], "number of slots"),
        (["-np", "many"], "number of slots"),
        (["-b", "x"], "batch is a number of tokens"),
        (["-ub", "-1"], "ubatch is a number of tokens"),
        (["-c", "-1"], "length in tokens"),
        (["-c", "1000000000000"], "ctx is a window of"),
        (["-ngl", "-5"], "number of layers"),
    ],
)
def test_a_bad_number_is_told_what_the_number_is(ask, llama, arguments, says):
    code, out, err = ask(llama, *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert says == "length in tokens" or "length in tokens" not in err


def test_slots_left_to_the_server_are_its_default(ask, llama):
    shown = [
        ask(llama, "--gpu", "24GiB", "--format", "json", *more)[1] for more in ([], ["-np", "auto"], ["-np", "-1"])
    ]
    assert shown[0] == shown[1] == shown[2]


def test_where_only_the_margin_does_not_fit_the_text_says_so(ask, whole):
    """Law: need within what is free, but not with the margin: the margin is named, with the option that sets it, and setting it helps."""
    path = whole()
    code, out, _err = ask(path, "--gpu", "1GiB")
    assert code == 0
    assert "safety margin of 1.00 GiB" in out
    assert "--margin" in out
    _code, out, _err = ask(path, "--gpu", "1GiB", "--margin", "100MiB")
    assert "safety margin of" not in out
    assert "Longest window that fits: 4,096" in out


def test_an_older_build_reserves_logits_for_the_whole_micro_batch(ask, llama):
    """Law: with an older build the work space grows by about those logits; what is no build number is an error of the user."""
    sizes = {}
    for build in ("b11434", "5898"):
        code, out, _ = ask(llama, "--gpu", "24GiB", "--ctx", "8192", "--format", "json", "--build", build)
        assert code == 0
        sizes[build] = json.loads(out)["devices"][0]["compute_bytes"]
    assert sizes["5898"] - sizes["b11434"] > 100 * 1024**2
    assert ask(llama, "--build", "tomorrow")[0] == 2


def test_what_comes_first_is_said_in_the_readers_language(ask, whole):
    """Law: the document keeps its notes in English; drawn for people they are in the language asked for."""
    path = whole(cut=98304)
    code, out, _err = ask(path, "--gpu", "24GiB", "--backend", "vllm", "-ngl", "1", "--lang", "ko")
    assert code == 0
    assert "98304" in out.splitlines()[0]
    assert not {"missing", "download", "counted", "measures"} & set(out.split())
    code, out, _err = ask(path, "--gpu", "24GiB", "--lang", "ko", "--format", "json")
    assert "are missing at the end" in json.loads(out)["unknown"]["model.file"]["note"]


def test_what_people_read_holds_no_key_of_the_document_and_no_even_split_of_zero(ask, tmp_path):
    """Law: devices are told by their names, a split that leaves one out is not called even, and the longest window is not "as asked"."""
    path = make_model(tmp_path / "tiny.gguf", trained=8192)
    code, out, _err = ask(path, "--ctx", "128k", "--gpu", "16GiB", "--gpu", "8GiB")
    assert code == 0
    assert "devices." not in out
    assert "host memory: its free memory is not known" in " ".join(out.split())
    assert "as asked" not in out
    assert "vened out" not in out
    assert "fewer devices" in out
    _code, korean, _err = ask(path, "--ctx", "128k", "--gpu", "16GiB", "--lang", "ko")
    assert "trained window" not in korean
    assert "host memory" not in korean


def test_cache_types_of_forks_are_listed_under_their_forks(ask, tmp_path):
    """Law: where a type is refused, the list does not offer a fork's types as llama.cpp's own."""
    _code, out, _err = ask(make_model(tmp_path / "tiny.gguf", trained=8192), "--kv", "q3_0")
    said = " ".join(out.split())
    own, *forks = said.split("use one of ")[1].split("; ")
    assert "turbo" not in own
    assert "q8_KV" not in own
    assert any(fork.startswith("beellama.cpp: turbo2") for fork in forks)
