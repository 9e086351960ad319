"""The launch command as people write it: wrappers, variables, quotes and shells around a server; one setting changes, and all else stays as it is."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.backends.commands import as_text, change_command, detect_backend, parse_command, server_words
from probes.backends.shell import rewritten, server_in, simple_commands
from probes.evidence.errors import CtxDoctorError, NotOfferedError

SERVER = "llama-server -m m.gguf -c 2048 -np 2"
CHANGED = "llama-server -m m.gguf -c 2048 -np 1"


@pytest.mark.parametrize(
    "around",
    [
        "{}",
        "A=1 {}",
        "env A=1 {}",
        "env -u A -i B=2 {}",
        "nice {}",
        "nice -n 5 {}",
        "nice -5 ionice -c2 -n7 {}",
        "taskset -c 0,1 {}",
        "taskset 0x3 {}",
        "numactl --cpunodebind=0 --membind=0 {}",
        "stdbuf -oL nohup {}",
        "timeout -k 5 600 {}",
        "chrt -f 50 {}",
        "prlimit --as=1000000 {}",
        "setarch x86_64 -R {}",
        "xvfb-run -a {}",
        "strace -f -o log {}",
        "gdb --args {}",
        "uv run {}",
        "uv run --with a --python 3.12 {}",
        "conda run -n llama {}",
        "conda run --name env {}",
        "sudo -u llama {}",
        "systemd-run --user --scope -p MemoryMax=8G {}",
    ],
)
def test_wrappers_stay_and_the_flag_is_the_servers(around):
    """Law: the words of the wrapper are never taken for the server's, and never change."""
    argv = shlex.split(around.format(SERVER))
    assert detect_backend(argv) == "llama.cpp"
    assert parse_command(argv).settings["parallel"].value == 2
    assert as_text(change_command(argv, None, "parallel", 1)) == as_text(shlex.split(around.format(CHANGED)))
    assert server_words(argv) == SERVER.split()


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        "exec {}",
        "cd '/my models' && {}",
        "cd /models; exec {}",
        "set -e\ncd /models\n{}\n",
        "{} > /tmp/log 2>&1",
        "{} 2>&1 | tee 'a log'",
        "{} >>log 2>/dev/null &",
        "export A=1; {}",
        "A=1 nice -n 5 {}",
        "{} --alias 'a b' --chat-template \"$T\"",
        '{} --model-url "$(cat url)"',
        "mkdir -p logs || true; {}   # with a word",
        "{} \\\n  --host 127.0.0.1",
        "echo llama-server; {}",
    ],
)
def test_in_a_shell_only_the_value_changes(text):
    """Law: redirections, pipes, expansions, quotes and what runs before it are written as before, to the letter."""
    argv = ["sh", "-c", text.format(SERVER)]
    assert detect_backend(argv) == "llama.cpp"
    assert parse_command(argv).settings["parallel"].value == 2
    assert change_command(argv, None, "parallel", 1) == ["sh", "-c", text.format(CHANGED)]
    without = change_command(argv, None, "parallel", None)
    assert without == ["sh", "-c", text.format(SERVER.replace(" -np 2", ""))]


def test_a_new_flag_stands_behind_the_servers_last_word_and_before_what_follows():
    argv = ["bash", "-lc", 'cd /m && llama-server -m "$MODEL" 2>&1 | tee log']
    assert change_command(argv, None, "ctx", 8192)[2] == 'cd /m && llama-server -m "$MODEL" -c 8192 2>&1 | tee log'


def test_variables_in_front_of_it_in_the_shell_are_read():
    argv = ["sh", "-c", "export LLAMA_ARG_N_PARALLEL=4; LLAMA_ARG_CTX_SIZE=4096 llama-server -m m.gguf"]
    read = parse_command(argv).settings
    assert (read["parallel"].value, read["ctx"].value) == (4, 4096)
    assert "LLAMA_ARG_CTX_SIZE=8192 llama-server" in change_command(argv, None, "ctx", 8192)[2]
    # the flag wins over what was exported before
    assert parse_command(change_command(argv, None, "parallel", 1)).settings["parallel"].value == 1


def test_a_value_that_the_shell_puts_in_is_replaced_as_a_whole():
    argv = ["sh", "-c", "llama-server -m m.gguf -np ${N:-4} -c 2048"]
    assert change_command(argv, None, "parallel", 1)[2] == "llama-server -m m.gguf -np 1 -c 2048"


@pytest.mark.parametrize("text", ["./start.sh && ./other.sh", "", "for i in 1 2; do ./run $i; done"])
def test_a_shell_in_which_no_server_is_known_is_left_alone(text):
    argv = ["sh", "-c", text]
    assert detect_backend(argv) is None
    with pytest.raises(NotOfferedError):
        change_command(argv, None, "parallel", 1)
    parse_command(argv)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("llama-server --parallel=2 -c 1", "llama-server --parallel=1 -c 1"),
        ("llama-server --parallel 4 -np 2", "llama-server --parallel 4 -np 1"),
        ("llama-server -np 2 --parallel 2", "llama-server -np 2 --parallel 1"),
        ("LLAMA_ARG_N_PARALLEL=4 llama-server -np 2", "LLAMA_ARG_N_PARALLEL=4 llama-server -np 1"),
        ("LLAMA_ARG_N_PARALLEL=4 llama-server", "LLAMA_ARG_N_PARALLEL=1 llama-server"),
        ("env LLAMA_ARG_N_PARALLEL=4 nice llama-server", "env LLAMA_ARG_N_PARALLEL=1 nice llama-server"),
    ],
)
def test_the_place_that_is_in_force_is_the_one_that_changes(before, after):
    """The last of several flags counts, and a flag before the environment."""
    assert as_text(change_command(shlex.split(before), None, "parallel", 1)) == after
    assert parse_command(shlex.split(after)).settings["parallel"].value == 1


@pytest.mark.parametrize(
    ("command", "variable"),
    [("koboldcpp", "flash_attention"), ("llama-server -fa on", "flash_attention"), ("llama-server", "speculation"),
     ("llama-server --mmproj p", "mmproj"), ("llama-server --cpu-moe", "cpu_moe"), ("llama-server --no-mmap", "mmap")],
)  # fmt: skip
def test_a_value_of_another_kind_is_written_or_refused(command, variable):
    """Law: a list where a switch is wanted is no fault of the tool."""
    made = None
    with contextlib.suppress(CtxDoctorError):
        made = change_command(shlex.split(command), None, variable, [1.0, 2.0])
    assert made is None or all(isinstance(word, str) for word in made)


WORD = st.text(alphabet="ab $'\"\\-=;|&<>#\n", min_size=1, max_size=6)


@settings(max_examples=150, deadline=None)
@given(st.lists(WORD, max_size=5), st.sampled_from(["", "cd /x && ", "A='b c' ", "true; "]), st.integers(1, 99))
def test_any_words_survive_a_change_in_a_shell(words, before, value):
    """Law: quoted words around the flag are read back as they were, whatever is in them."""
    argv = ["llama-server", "-c", "2048", *("--alias", *words[:1]) * bool(words), "-m", "m.gguf"]
    text = before + shlex.join(argv)
    new = change_command(["sh", "-c", text], None, "ctx", value)[2]
    inner = server_in(new, lambda one: detect_backend(one) is not None)
    assert inner.argv[-len(argv) :] == [*argv[:2], str(value), *argv[3:]]


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet="ab '\"\\$()|;&<>#\n=-", max_size=40))
def test_any_text_is_taken_apart_without_a_fault(text):
    for one in simple_commands(text):
        assert rewritten(text, one, one.argv) == text
