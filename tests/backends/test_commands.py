"""Command lines are read into settings and written again with one of them changed."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.backends.commands import (
    as_text,
    change_command,
    change_steps,
    detect_backend,
    masked,
    parse_command,
    parse_modelfile,
    parse_preset,
    split_command,
    split_environment,
)
from probes.backends.flags import FLAGS
from probes.evidence.errors import CtxDoctorError, NotOfferedError, RefusedSettingError


def values(text: str, environment: dict[str, str] | None = None, backend: str | None = None) -> dict[str, object]:
    read = parse_command(split_command(text), environment, backend)
    return {name: setting.value for name, setting in read.settings.items()}


def test_long_and_short_spellings_mean_the_same():
    """Short, long and underscored spellings, and a value after =, set the same variable."""
    short = "llama-server -m m.gguf -c 65536 -np 4 -b 4096 -ub 1024 -ngl 99 -ctk q8_0 -ctv q4_0 -fa on -ts 3,1 -sm row -mg 1 -kvu"
    long = (
        "llama-server --model m.gguf --ctx-size=65536 --parallel 4 --batch_size 4096 --ubatch-size 1024 --n-gpu-layers 99 "
        "--cache-type-k q8_0 --cache-type-v=q4_0 --flash-attn on --tensor-split 3,1 --split-mode row --main-gpu 1 --kv-unified"
    )
    assert values(short) == values(long)
    assert values(short) == {
        "model_path": "m.gguf",
        "ctx": 65536,
        "parallel": 4,
        "batch": 4096,
        "ubatch": 1024,
        "gpu_layers": 99,
        "kv_type_k": "q8_0",
        "kv_type_v": "q4_0",
        "flash_attention": "on",
        "tensor_split": [3.0, 1.0],
        "split_mode": "row",
        "main_gpu": 1,
        "kv_unified": True,
    }


def test_command_line_wins_over_environment_and_the_last_flag_over_the_first():
    """llama-server reads its environment first and its flags after it, in order."""
    environment = {
        "LLAMA_ARG_CTX_SIZE": "4096",
        "LLAMA_ARG_UBATCH": "256",
        "LLAMA_ARG_NO_KV_OFFLOAD": "1",
        "LLAMA_ARG_KV_UNIFIED": "off",
    }
    assert values("llama-server -c 1024 -c 2048", environment) == {
        "ctx": 2048,
        "ubatch": 256,
        "kv_offload": False,
        "kv_unified": False,
    }


def test_environment_is_kept_where_it_decides_about_devices_and_never_a_secret():
    """Variables that choose devices stay as env.NAME; keys and tokens do not."""
    read = values(
        "llama-server -c 1", {"CUDA_VISIBLE_DEVICES": "1,0", "HF_TOKEN": "x", "OLLAMA_API_KEY": "y", "PATH": "/bin"}
    )
    assert read == {"ctx": 1, "env.CUDA_VISIBLE_DEVICES": "1,0"}
    assert masked(["llama-server", "--api-key", "abc", "--hf-token=def", "LLAMA_API_KEY=z"]) == (
        "llama-server",
        "--api-key",
        "***",
        "--hf-token=***",
        "LLAMA_API_KEY=***",
    )


def test_switches_in_both_directions_and_bare_flash_attention():
    """A bare -fa is on; a value after it is taken only if it can be one; --no-… turns off."""
    assert values("llama-server -fa -c 8") == {"flash_attention": "on", "ctx": 8}
    assert values("llama-server -fa off --no-mmap --mlock -nkvo --no-context-shift --swa-full --no-kv-unified") == {
        "flash_attention": "off",
        "mmap": False,
        "mlock": True,
        "kv_offload": False,
        "context_shift": False,
        "swa_full": True,
        "kv_unified": False,
    }


def test_load_mode_tells_mmap_and_mlock():
    """Newer builds say mmap and mlock in one word."""
    assert values("llama-server --load-mode mmap+mlock") == {"load_mode": "mmap+mlock", "mmap": True, "mlock": True}
    assert values("llama-server -lm none")["mmap"] is False


def test_lists_that_repeat_add_up_and_expert_layers():
    """Several -ot are all in force; -cmoe is all layers, -ncmoe a number of them."""
    assert values("llama-server -ot a=CPU -ot b=CUDA0,c=CPU")["overrides"] == ["a=CPU", "b=CUDA0", "c=CPU"]
    assert values("llama-server -cmoe")["cpu_moe"] is True
    assert values("llama-server -ncmoe 12")["cpu_moe"] == 12


def test_a_value_that_does_not_fit_is_unread_not_guessed():
    """What cannot be read is named with what stood there."""
    read = parse_command(["llama-server", "-c", "lots", "-ub", "512"])
    assert set(read.settings) == {"ubatch"}
    assert "-c lots" in read.unread["ctx"]
    assert "ctx" in parse_command(["llama-server", "-c"]).unread


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("/opt/llama.cpp/build/bin/llama-server -m x", "llama.cpp"),
        (r"C:\tools\llama-server.exe -m C:\models\x.gguf", "llama.cpp"),
        ("llama-server -m x -mla 3 -amb 512 -fmoe", "ik_llama.cpp"),
        ("./ik_llama.cpp/build/bin/llama-server -m x", "ik_llama.cpp"),
        ("llama-server -m x -ctk q8_KV", "ik_llama.cpp"),
        ("llama-server -m x -ctk kvarn5 -ctv kvarn5", "beellama.cpp"),
        ("llama-server -m x --spec-type dflash -md d", "beellama.cpp"),
        ("CUDA_VISIBLE_DEVICES=1 numactl -N 0 llama-server -m x", "llama.cpp"),
        (
            "docker run --gpus all -v /m:/m -p 8080:8080 ghcr.io/ggml-org/llama.cpp:server-cuda -m /m/x -c 4096",
            "llama.cpp",
        ),
        ("sh -c 'llama-server -m x -c 4096'", "llama.cpp"),
        ("ollama serve", "ollama"),
        ("lms load m --context-length 8192", "lm-studio"),
        ("vllm serve m --max-model-len 32k", "vllm"),
        ("python3 -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("python -m sglang.launch_server --model-path m", "sglang"),
        ("python -m mlx_lm server --model m", "mlx_lm"),
        ("/usr/bin/python3.11 /venv/bin/mlx_lm.server --model m", "mlx_lm"),
        ("koboldcpp-linux-x64 --model m.gguf", "koboldcpp"),
        ("python koboldcpp.py m.gguf 5001", "koboldcpp"),
        ("python3 -m llama_cpp.server --model m", "llama-cpp-python"),
        ("python server.py --model m --loader llama.cpp", "text-generation-webui"),
        ("python main.py --max-seq-len 8192 --cache-mode Q4", "tabbyapi"),
        ("llama-swap -config c.yaml", "llama-swap"),
        ("/venv/bin/python3 /app/diagnose/llama_server.py -m x -c 8192", "llama.cpp"),
        ("nginx -g 'daemon off;'", None),
        ("", None),
    ],
)
def test_the_server_is_told_from_its_command(text, backend):
    """Program, module, image and flags that only a fork takes tell which server a command starts."""
    assert detect_backend(split_command(text)) == backend


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            (
                "vllm serve Qwen/Q --max-model-len 32k --max-num-seqs 8 --kv-cache-dtype fp8 --gpu-memory-utilization 0.9 -tp 2 "
                '--no-enable-prefix-caching --speculative-config \'{"method":"mtp","num_speculative_tokens":2}\''
            ),
            {
                "model_path": "Qwen/Q",
                "ctx": 32000,
                "parallel": 8,
                "kv_type_k": "fp8",
                "kv_type_v": "fp8",
                "memory_share": 0.9,
                "tensor_parallel": 2,
                "cache_prompt": False,
                "speculation": "mtp",
                "draft_n_max": 2,
            },
        ),
        (
            (
                "python -m sglang.launch_server --model-path m --context-length 131072 --mem-fraction-static 0.8 --chunked-prefill-size 2048 "
                "--disable-radix-cache --allow-auto-truncate"
            ),
            {
                "model_path": "m",
                "ctx": 131072,
                "memory_share": 0.8,
                "ubatch": 2048,
                "cache_prompt": False,
                "auto_truncate": True,
            },
        ),
        (
            "python -m mlx_lm.server --model m --kv-bits 8 --kv-group-size 64 --prefill-step-size 512",
            {"model_path": "m", "kv_type_k": "mlx-q8", "kv_type_v": "mlx-q8", "kv_group_size": 64, "batch": 512},
        ),
        (
            "koboldcpp --model m.gguf --contextsize 16384 --gpulayers -1 --tensor_split 7 3 --quantkv 1 --flashattention --ropeconfig 0.5 10000",
            {
                "model_path": "m.gguf",
                "ctx": 16384,
                "gpu_layers": -1,
                "tensor_split": [7.0, 3.0],
                "kv_type_k": "q8_0",
                "kv_type_v": "q8_0",
                "flash_attention": "on",
                "rope_freq_scale": 0.5,
                "rope_freq_base": 10000.0,
            },
        ),
        (
            "python main.py --max-seq-len 65536 --cache-size 131072 --cache-mode 6,5",
            {"ctx": 65536, "pool": 131072, "kv_type_k": "exl-q6", "kv_type_v": "exl-q5"},
        ),
        ("lms load qwen --context-length 32768 --gpu max", {"model_path": "qwen", "ctx": 32768, "gpu_ratio": "max"}),
        (
            "python3 -m llama_cpp.server --model m --n_ctx 4096 --type_k 8 --flash_attn true --n_gpu_layers -1",
            {"model_path": "m", "ctx": 4096, "kv_type_k": "q8_0", "flash_attention": "on", "gpu_layers": -1},
        ),
    ],
)
def test_every_server_in_the_same_words(text, expected):
    """The same variable has the same name and kind of value, whatever the server calls it."""
    assert values(text) == expected


def test_ollama_environment_modelfile_and_options():
    """Ollama's three places say the same variables."""
    assert values(
        "ollama serve", {"OLLAMA_CONTEXT_LENGTH": "8192", "OLLAMA_FLASH_ATTENTION": "1", "OLLAMA_KV_CACHE_TYPE": "q8_0"}
    ) == {
        "ctx": 8192,
        "flash_attention": "on",
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
    }
    read = parse_modelfile('FROM llama3\nPARAMETER num_ctx 32768\nnum_gpu 20\nPARAMETER stop "x"\n').settings
    assert {k: v.value for k, v in read.items()} == {"model_path": "llama3", "ctx": 32768, "gpu_layers": 20}


def test_presets_hold_long_flags_and_environment_names():
    """A preset's section adds to [*]."""
    text = "[*]\nctx-size = 8192\n[big]\nLLAMA_ARG_CTX_SIZE = 65536\nn-gpu-layers = 99\n[other]\nc = 1\n"
    read = {k: v.value for k, v in parse_preset(text, "big").settings.items()}
    assert read == {"ctx": 65536, "gpu_layers": 99}


def test_commands_as_people_paste_them():
    """Continuation lines, prompt signs, quotes, Windows paths, pipes."""
    assert split_command("$ ./llama-server \\\n  -m 'my model.gguf' \\\n  -c 4096 2>&1 | tee log") == [
        "./llama-server",
        "-m",
        "my model.gguf",
        "-c",
        "4096",
    ]
    assert split_command('llama-server.exe ^\r\n -m "C:\\My Models\\a.gguf" ^\r\n -c 8192') == [
        "llama-server.exe",
        "-m",
        "C:\\My Models\\a.gguf",
        "-c",
        "8192",
    ]
    assert split_command("llama-server -m x\n  -c 4096\nSome prose about it") == [
        "llama-server",
        "-m",
        "x",
        "-c",
        "4096",
    ]


def change(text: str, variable: str, value: object, backend: str | None = None) -> str:
    return as_text(change_command(split_command(text), backend, variable, value))


@pytest.mark.parametrize(
    ("before", "variable", "value", "after"),
    [
        ("llama-server -m x -c 65536 -ngl 99", "ctx", 32768, "llama-server -m x -c 32768 -ngl 99"),
        ("llama-server -m x --ctx-size=65536", "ctx", 32768, "llama-server -m x --ctx-size=32768"),
        ("llama-server -m x", "ubatch", 256, "llama-server -m x -ub 256"),
        ("llama-server -m x -ub 2048", "ubatch", None, "llama-server -m x"),
        ("LLAMA_ARG_CTX_SIZE=65536 llama-server -m x", "ctx", 8192, "LLAMA_ARG_CTX_SIZE=8192 llama-server -m x"),
        ("llama-server -m x -kvu", "kv_unified", False, "llama-server -m x -no-kvu"),
        ("llama-server -m x --no-kv-offload", "kv_offload", True, "llama-server -m x --kv-offload"),
        ("llama-server -m x -fa", "flash_attention", "off", "llama-server -m x"),
        ("llama-server -m x -fa off", "flash_attention", "on", "llama-server -m x -fa on"),
        ("llama-server -m x -ts 1,1", "tensor_split", [2.5, 1], "llama-server -m x -ts 2.5,1"),
        ("llama-server -m x -ot a=CPU -ot b=CPU", "overrides", ["c=CUDA1"], "llama-server -m x -ot c=CUDA1"),
        (
            "llama-server -m x -md d -ngld 99 --spec-type draft-simple",
            "speculation",
            None,
            "llama-server -m x -ngld 99",
        ),
        ("llama-server -hf a/b --mmproj p", "mmproj", None, "llama-server -hf a/b --no-mmproj"),
        ("llama-server -m x --mmproj p -c 1", "mmproj", None, "llama-server -m x -c 1"),
        ("llama-server -m x --mlock", "mlock", None, "llama-server -m x"),
        ("llama-server -m x -lm mmap", "mlock", True, "llama-server -m x -lm mmap+mlock"),
        ("llama-server -m x --no-mmap", "mmap", True, "llama-server -m x --mmap"),
        ("llama-server -m x -cmoe", "cpu_moe", 12, "llama-server -m x -ncmoe 12"),
        ("llama-server -m x -ctk q8_0", "kv_type", "f16", "llama-server -m x -ctk f16 -ctv f16"),
        ("sh -c 'llama-server -m x -c 4'", "ctx", 8, "sh -c 'llama-server -m x -c 8'"),
        (
            "docker run -e LLAMA_ARG_CTX_SIZE=4 ghcr.io/ggml-org/llama.cpp:server -m x",
            "ctx",
            8,
            "docker run -e LLAMA_ARG_CTX_SIZE=8 ghcr.io/ggml-org/llama.cpp:server -m x",
        ),
        (
            "llama-server -m x",
            "env.GGML_CUDA_ENABLE_UNIFIED_MEMORY",
            1,
            "GGML_CUDA_ENABLE_UNIFIED_MEMORY=1 llama-server -m x",
        ),
        ("ollama serve", "ctx", 32768, "OLLAMA_CONTEXT_LENGTH=32768 ollama serve"),
        ("ollama serve", "flash_attention", "on", "OLLAMA_FLASH_ATTENTION=1 ollama serve"),
        ("vllm serve m --kv-cache-dtype fp8", "kv_type", "auto", "vllm serve m --kv-cache-dtype auto"),
        ("koboldcpp --model m --quantkv 2", "kv_type_k", "q8_0", "koboldcpp --model m --quantkv 1"),
        ("koboldcpp --model m --tensor_split 1 1", "tensor_split", [2, 1], "koboldcpp --model m --tensor_split 2 1"),
        ("python -m mlx_lm server --model m", "kv_type", "mlx-q8", "python -m mlx_lm server --model m --kv-bits 8"),
        ("lms load m --context-length 4096", "ctx", 8192, "lms load m --context-length 8192"),
    ],
)
def test_only_that_setting_changes(before, variable, value, after):
    """The changed command differs in that setting alone, in the user's own spelling and place."""
    assert change(before, variable, value) == after
    changed = values(after)
    unchanged = values(before)
    touched = {variable, "kv_type_k", "kv_type_v", "draft_model", "mmproj_auto", "load_mode", "model_path"} | (
        {"speculation"} if variable == "speculation" else set()
    )
    assert {k: v for k, v in changed.items() if k not in touched} == {
        k: v for k, v in unchanged.items() if k not in touched
    }


def test_what_has_no_place_is_refused_with_a_reason():
    """A setting that the server lacks, or a value that cannot be written, is a typed error."""
    with pytest.raises(NotOfferedError, match="no command-line setting"):
        change_command(["vllm", "serve", "m"], None, "gpu_layers", 3)
    with pytest.raises(NotOfferedError):
        change_command(["nginx"], None, "ctx", 3)
    with pytest.raises(RefusedSettingError, match="f16"):
        change_command(["koboldcpp", "--model", "m"], None, "kv_type_k", "q5_0")


def test_steps_where_there_is_no_command():
    """Ollama and LM Studio are changed in their own ways, each step a whole sentence with its line."""
    steps = [str(s) for s in change_steps("ollama", "ctx", 32768, model="qwen3:8b")]
    assert any("PARAMETER num_ctx 32768" in s and "FROM qwen3:8b" in s for s in steps)
    assert any("OLLAMA_CONTEXT_LENGTH=32768 ollama serve" in s for s in steps)
    assert any('"context_length": 32768' in str(s) for s in change_steps("lm-studio", "ctx", 32768, model="m"))
    assert str(change_steps("vllm", "ctx", 1024)[0]).endswith("--max-model-len 1024")
    assert str(change_steps("llama.cpp", "ctx", 8, argv=["llama-server", "-c", "4"])[0]).endswith("llama-server -c 8")
    with pytest.raises(NotOfferedError):
        change_steps("ollama", "tensor_split", [1, 1])
    with pytest.raises(NotOfferedError):
        change_steps("llama-manager", "ctx", 1)


_words = st.one_of(
    st.sampled_from([n for table in FLAGS.values() for f in table for n in (*f.names, *f.off)]),
    st.sampled_from(
        [
            "docker",
            "run",
            "sh",
            "-c",
            "env",
            "A=1",
            "llama-server",
            "vllm",
            "serve",
            "python",
            "-m",
            "mlx_lm",
            "koboldcpp",
            "lms",
            "load",
            "-e",
        ]
    ),
    st.text(max_size=12),
    st.integers(-(10**30), 10**30).map(str),
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_words, max_size=14),
    st.sampled_from([None, *FLAGS]),
    st.dictionaries(st.sampled_from(["LLAMA_ARG_CTX_SIZE", "N_CTX", "OLLAMA_CONTEXT_LENGTH"]), st.text(max_size=8)),
)
def test_nothing_that_is_read_raises(argv, backend, environment):
    """Any words at all are read without an error, and what was read can be written to disk and back."""
    read = parse_command(argv, environment, backend)
    assert type(read).model_validate_json(read.model_dump_json()) == read
    split_environment(argv)


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab -'\"\\^`$#>|&;\n\r\t=.exeC:/"), max_size=60))
def test_any_text_splits(text):
    """Text of any kind splits into words; what a shell quoted comes back."""
    split_command(text)
    if "\\" not in text and ".exe" not in text:
        words_ = ["llama-server", "-m", text.replace("\n", " ").replace("\r", " ").replace("^", "").replace("`", "")]
        if (
            words_[2] not in {"|", "||", "&&", "&", ";", ">", ">>", "<", "|&"}
            and not words_[2].endswith(";")
            and not words_[2].startswith((">", "&>"))
        ):
            assert split_command(as_text(words_)) == words_


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_words, min_size=1, max_size=10),
    st.sampled_from(["ctx", "parallel", "kv_type_k", "flash_attention", "tensor_split", "mmap", "cpu_moe"]),
    st.sampled_from([None, 8, True, False, "on", "q8_0", [1.0, 2.0]]),
)
def test_changing_any_command_gives_a_command_or_a_typed_error(argv, variable, value):
    """Whatever the command, the change is a list of words that a shell reads back, or a typed error."""
    try:
        changed = change_command(argv, None, variable, value)
    except CtxDoctorError:
        return
    assert shlex.split(as_text(changed)) == changed


@pytest.mark.parametrize(
    "argv",
    [["a", "foo;"], ["llama-server", "-ot", "blk=CPU;", "-c", "1"], ["a", ";;;;"], ["a", "|", "b"], ["a", "2>&1"]],
)
def test_what_stands_in_quotes_is_no_operator(argv):
    """A command that is written and read again is the same, also where a word looks like the shell's."""
    assert split_command(as_text(argv)) == argv
    assert split_command(as_text(argv) + " ; ls") == argv
