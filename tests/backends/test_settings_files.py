"""Settings that a server keeps in files come out under the names of a command line; only a file that is named is read, and a bad one is one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose.look import at_process
from diagnose.triage import gather
from probes.backends.commands import parse_command
from probes.backends.settings_files import MOST_BYTES, read_settings_file, with_files
from probes.evidence.errors import BadFileError, CtxDoctorError, InputError
from probes.evidence.records import EvidenceSet
from probes.evidence.subject import BackendIdentity, Configuration, WindowReading
from probes.process import ServerProcess, read_process

KCPPS = {
    "model": None,
    "model_param": "/models/Q-Q4_K_M.gguf",
    "port": 5001,
    "contextsize": 16384,
    "gpulayers": -1,
    "quantkv": 1,
    "flashattention": True,
    "blasbatchsize": 512,
    "tensor_split": [3.0, 1.0],
    "ropeconfig": [0.0, 10000.0],
    "noshift": False,
    "smartcontext": False,
    "moecpu": 0,
    "mmproj": "",
    "draftmodel": None,
    "usecublas": ["normal", "0"],
    "password": "s3cret",
    "adminpassword": "s3cret",
}
TABBY = """\
# a comment
network:
  host: 127.0.0.1
  port: 5000
model:
  model_dir: models
  model_name: Q-exl3
  max_seq_len: 65536
  cache_size: 32768
  cache_mode: 8,6
  chunk_size: 2048
  gpu_split: [20, 24]
  gpu_split_auto: false
  rope_alpha:
  max_batch_size: 4
  vision: true
draft_model:
  draft_model_name: D-exl3
"""
FLAGS = """\
# only used by the one-click installer
--listen --api   # a comment
--ctx-size 24576 --cache-type q8_0
--extra-flags "--ctx-checkpoints 8 --no-kv-unified"
"""
SWAP = """\
macros:
  server: llama-server --port ${PORT}
models:
  coder:
    cmd: |
      # the large one
      ${server}
      -m /m/coder.gguf
      -c 65536 -np 2
      --cache-type-k q8_0 --api-key s3cret
    ttl: 300
  small:
    cmd: ${server} -m /m/small.gguf -c 4096
"""
LM_STUDIO = {
    "preset": "",
    "load": {
        "fields": [
            {"key": "llm.load.contextLength", "value": 32768},
            {"key": "llm.load.llama.flashAttention", "value": True},
            {"key": "llm.load.llama.kCacheQuantizationType", "value": {"checked": True, "value": "q8_0"}},
            {"key": "llm.load.llama.vCacheQuantizationType", "value": {"checked": False, "value": "q4_0"}},
        ]
    },
}


def values(configuration: Configuration) -> dict:
    return {name: setting.value for name, setting in configuration.settings.items()}


@pytest.mark.parametrize(
    ("name", "text", "model", "backend", "expected"),
    [
        (
            "x.kcpps",
            json.dumps(KCPPS),
            None,
            "koboldcpp",
            {
                "model_path": "/models/Q-Q4_K_M.gguf",
                "port": 5001,
                "ctx": 16384,
                "gpu_layers": "auto",
                "kv_type_k": "q8_0",
                "kv_type_v": "q8_0",
                "flash_attention": "on",
                "batch": 512,
                "ubatch": 512,
                "tensor_split": [3.0, 1.0],
                "context_shift": True,
                "smart_context": False,
            },
        ),
        (
            "config.yml",
            TABBY,
            None,
            "tabbyapi",
            {
                "host": "127.0.0.1",
                "port": 5000,
                "model_path": "models/Q-exl3",
                "model_dir": "models",
                "ctx": 65536,
                "pool": 32768,
                "kv_type_k": "exl-q8",
                "kv_type_v": "exl-q6",
                "batch": 2048,
                "tensor_split": [20.0, 24.0],
                "gpu_split_auto": False,
                "parallel": 4,
                "mmproj": True,
                "draft_model": "D-exl3",
            },
        ),
        (
            "CMD_FLAGS.txt",
            FLAGS,
            None,
            "text-generation-webui",
            {
                "ctx": 24576,
                "kv_type_k": "q8_0",
                "kv_type_v": "q8_0",
                "extra_flags": "--ctx-checkpoints 8 --no-kv-unified",
                "ctx_checkpoints": 8,
                "kv_unified": False,
            },
        ),
        (
            "settings.yaml",
            "preset: x\ntruncation_length: 12288\nmax_new_tokens: 512\n",
            None,
            "text-generation-webui",
            {"truncation_length": 12288, "n_predict": 512},
        ),
        (
            "models.json",
            '{"host": "0.0.0.0", "models": [{"model": "/m/a.gguf", "n_ctx": 8192, "n_gpu_layers": -1, "flash_attn": true}]}',
            None,
            "llama-cpp-python",
            {
                "model_path": "/m/a.gguf",
                "ctx": 8192,
                "gpu_layers": -1,
                "flash_attention": "on",
            },
        ),
        (
            "serve.yaml",
            "model: q/Q\nmax-model-len: 32k\ngpu-memory-utilization: 0.9\nenable-prefix-caching: false\n",
            None,
            "vllm",
            {"model_path": "q/Q", "ctx": 32000, "memory_share": 0.9, "cache_prompt": False},
        ),
        (
            "serve.yaml",
            "model-path: q/Q\ncontext-length: 131072\nmem-fraction-static: 0.85\nallow-auto-truncate: true\nkv-cache-dtype: fp8_e5m2\n",
            None,
            "sglang",
            {
                "model_path": "q/Q",
                "ctx": 131072,
                "memory_share": 0.85,
                "auto_truncate": True,
                "kv_type_k": "fp8_e5m2",
                "kv_type_v": "fp8_e5m2",
            },
        ),
        (
            "config.yaml",
            SWAP,
            "coder",
            "llama-swap",
            {"model_path": "/m/coder.gguf", "ctx": 65536, "parallel": 2, "kv_type_k": "q8_0"},
        ),
        (
            "model.json",
            json.dumps(LM_STUDIO),
            None,
            "lm-studio",
            {"ctx": 32768, "flash_attention": "on", "kv_type_k": "q8_0"},
        ),
        (
            "presets.ini",
            "[*]\nctx-size = 4096\n[big]\nctx-size = 65536\nLLAMA_ARG_CACHE_TYPE_K = q8_0\n",
            "big",
            "llama.cpp",
            {"ctx": 65536, "kv_type_k": "q8_0"},
        ),
    ],
)
def test_each_servers_file_is_read_into_the_same_names(tmp_path, name, text, model, backend, expected):
    """Window, cache types, layers, batches: as the command line of that server would have said them; no key is kept."""
    path = tmp_path / name
    path.write_text(text)
    read = read_settings_file(path, model)
    assert read.backend == backend
    assert values(read.configuration) == expected
    assert all(setting.source == "file" for setting in read.configuration.settings.values())
    assert "s3cret" not in read.configuration.model_dump_json()


def test_what_a_file_says_is_what_the_command_line_says():
    """The same settings, by file and by flags, are the same variables and values."""
    by_flags = parse_command(
        [
            "koboldcpp",
            "--model",
            "/m/a.gguf",
            "--contextsize",
            "16384",
            "--quantkv",
            "2",
            "--flashattention",
            "--gpulayers",
            "20",
            "--tensor_split",
            "3",
            "1",
        ]
    )
    from probes.backends.commands import parse_named

    by_file = parse_named(
        {
            "model": "/m/a.gguf",
            "contextsize": 16384,
            "quantkv": 2,
            "flashattention": True,
            "gpulayers": 20,
            "tensor_split": [3, 1],
        },
        "koboldcpp",
    )
    assert values(by_flags) == values(by_file)


def of_process(argv, cwd, pid=None, environment=None) -> ServerProcess:
    return ServerProcess(pid or os.getpid(), 0.0, tuple(argv), environment or {}, str(cwd))


def test_files_are_read_where_the_process_names_them(tmp_path):
    """By option, by position, by the working folder; relative names from there; the command line stands above."""
    (tmp_path / "x.kcpps").write_text(json.dumps(KCPPS))
    for argv in (["koboldcpp", "--config", "x.kcpps"], ["koboldcpp", "x.kcpps"], ["koboldcpp", f"{tmp_path}/x.kcpps"]):
        assert values(with_files(of_process(argv, tmp_path), "koboldcpp"))["ctx"] == 16384
    (tmp_path / "config.yml").write_text(TABBY)
    told = with_files(of_process(["python", "main.py", "--cache-mode", "Q4"], tmp_path), "tabbyapi")
    assert (told.settings["ctx"].value, told.settings["ctx"].source) == (65536, "file")
    assert (told.settings["kv_type_k"].value, told.settings["kv_type_k"].source) == ("exl-q4", "process")
    user = tmp_path / "user_data"
    (user / "models").mkdir(parents=True)
    (user / "CMD_FLAGS.txt").write_text(FLAGS)
    (user / "models" / "config-user.yaml").write_text(
        "Q\\.gguf$:\n  loader: llama.cpp\n  gpu_layers: 33\nother$:\n  gpu_layers: 1\n"
    )
    told = with_files(
        of_process(["python", "server.py", "--ctx-size", "8192", "--model", "Q.gguf"], tmp_path),
        "text-generation-webui",
    )
    assert (told.settings["ctx"].value, told.settings["kv_type_k"].value, told.settings["gpu_layers"].value) == (
        8192,
        "q8_0",
        33,
    )


def test_what_is_said_twice_and_differs_is_not_guessed(tmp_path):
    """KoboldCpp's versions disagree about who wins: the value is not known, and both are said."""
    (tmp_path / "x.kcpps").write_text(json.dumps(KCPPS))
    argv = ["koboldcpp", "--config", "x.kcpps", "--contextsize", "8192", "--quantkv", "1"]
    told = with_files(of_process(argv, tmp_path), "koboldcpp")
    assert "ctx" not in told.settings
    assert "8192" in told.unread["ctx"]
    assert "16384" in told.unread["ctx"]
    assert told.settings["kv_type_k"].value == "q8_0"


def test_no_other_file_is_read(tmp_path):
    """A file that nothing names stays closed; a pipe or device is none; a server of another kind names none."""
    (tmp_path / "x.kcpps").write_text(json.dumps(KCPPS))
    (tmp_path / "config.yml").write_text(TABBY)
    assert "ctx" not in with_files(of_process(["koboldcpp", "--model", "a.gguf"], tmp_path), "koboldcpp").settings
    assert "ctx" not in with_files(of_process(["llama-server", "-m", "a"], tmp_path), "llama.cpp").settings
    os.mkfifo(tmp_path / "pipe.kcpps")
    begun = time.monotonic()
    assert "ctx" not in with_files(of_process(["koboldcpp", "--config", "pipe.kcpps"], tmp_path), "koboldcpp").settings
    with pytest.raises(BadFileError):
        read_settings_file(tmp_path / "pipe.kcpps")
    assert time.monotonic() - begun < 5


def test_a_real_process_tells_its_file(tmp_path):
    """A process that is started as TabbyAPI is: its folder, and in it its file, are found by its id."""
    (tmp_path / "config.yml").write_text(TABBY)
    (tmp_path / "main.py").write_text("import time\ntime.sleep(60)\n")
    with subprocess.Popen([sys.executable, "main.py"], cwd=tmp_path) as process:
        try:
            deadline = time.monotonic() + 10
            while "main.py" not in read_process(process.pid).argv and time.monotonic() < deadline:
                time.sleep(0.05)
            seen = EvidenceSet(at_process(read_process(process.pid), "", "tabbyapi", 1))
        finally:
            process.kill()
    assert seen.last(Configuration).settings["pool"].value == 32768
    assert seen.last(WindowReading).asked == 65536


def test_triage_takes_a_servers_file(tmp_path):
    """A settings file that the user gives says which server it is, and the window that was asked for."""
    path = tmp_path / "mine.kcpps"
    path.write_text(json.dumps(KCPPS))
    seen = EvidenceSet(gather([str(path)]).evidence)
    assert seen.last(BackendIdentity).name == "koboldcpp"
    assert seen.last(Configuration).settings["kv_type_k"].value == "q8_0"
    assert seen.last(WindowReading).asked == 16384


def test_several_models_need_a_name(tmp_path):
    """One of several models is not picked by chance."""
    path = tmp_path / "config.yaml"
    path.write_text(SWAP)
    with pytest.raises(InputError, match="coder, small"):
        read_settings_file(path)
    with pytest.raises(InputError, match="coder, small"):
        gather([str(path)])
    assert EvidenceSet(gather([str(path)], model="small").evidence).last(WindowReading).asked == 4096
    with pytest.raises(InputError, match="nobody"):
        read_settings_file(path, "nobody")


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)


def _typed(path):
    try:
        return read_settings_file(path).configuration.model_dump_json()
    except CtxDoctorError as error:
        return error


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "7",
        "{",
        "[" * 100_000,
        "a: [" * 3000,
        BOMB,
        BOMB + "model: {max_seq_len: *m, cache_mode: *l, model_name: q}\n",
        "? [a]\n: b\n",
        "{1: 2, null: 3, 2026-13-45: x}",
        "!!python/object/apply:os.system ['true']",
        "\x00\x01\x02",
        "x" * (MOST_BYTES + 1),
        "model: {max_seq_len: .nan, cache_size: -.inf, gpu_split: [a, {}], cache_mode: {}}",
        f"model: {{max_seq_len: 0x{'f' * 9000}, model_name: a}}\n? 0x{'f' * 9000}\n: 7\n",
        "models: {a: {cmd: '${a}'}, b: 7}\nmacros: {a: '${a}${a}'}",
    ],
    ids=range(17),
)
def test_a_bad_file_is_one_line(tmp_path, text):
    """Whatever stands in it: settings, or a typed error of one line; soon, and without much memory."""
    begun = time.monotonic()
    for name in ("a.kcpps", "a.yml", "CMD_FLAGS.txt", "a.ini", "a.json"):
        path = tmp_path / name
        path.write_text(text)
        told = _typed(path)
        assert "\n" not in str(told) if isinstance(told, CtxDoctorError) else told
    assert time.monotonic() - begun < 20


def test_a_file_that_cannot_be_read_is_said(tmp_path):
    """The session goes on without it, and says why."""
    (tmp_path / "config.yml").write_bytes(b"\xff\xfe\x00")
    told = with_files(of_process(["python", "main.py"], tmp_path), "tabbyapi")
    assert any("config.yml" in name for name in told.unread)
    with pytest.raises(BadFileError, match="No such file"):
        read_settings_file(tmp_path / "none.kcpps")


def test_a_growing_file_has_a_bound(tmp_path):
    """A file that another program writes to without end is read up to its bound."""
    path = tmp_path / "a.kcpps"
    stop = threading.Event()

    def write() -> None:
        with path.open("w") as file:
            while not stop.is_set():
                file.write(" " * 100_000)
                file.flush()
                time.sleep(0.001)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        time.sleep(0.1)
        with pytest.raises(BadFileError):
            read_settings_file(path)
    finally:
        stop.set()
        thread.join()


_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(["8192", "q8_0", "8,6", "on", "--extra-flags", "FP16", "-1"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
_names = st.sampled_from(
    [
        *KCPPS,
        "models",
        "model",
        "load",
        "fields",
        "cmd",
        "macros",
        "max_seq_len",
        "cache_mode",
        "gpu_split",
        "truncation_length",
        "preset",
        "n_ctx",
        "max-model-len",
        "network",
        "draft_model",
        "extra_flags",
        "speculative-config",
        "row_split",
    ]
)


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(_names, _values | st.dictionaries(_names, _values, max_size=5), max_size=6),
    st.sampled_from(["a.kcpps", "a.json", "a.yaml"]),
    st.none() | st.just("a"),
)
def test_any_data_is_settings_or_a_typed_error(tmp_path, data, name, model):
    """Any JSON or YAML: nothing but settings that a record can hold, or a typed error."""
    path = tmp_path / name
    path.write_text(json.dumps(data))
    try:
        told = read_settings_file(path, model).configuration
    except CtxDoctorError:
        return
    assert Configuration.model_validate_json(told.model_dump_json()).settings.keys() == told.settings.keys()
