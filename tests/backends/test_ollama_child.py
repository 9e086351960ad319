"""Ollama's own API tells no tokenizer, slots or cache types: they come from the llama-server that it runs, a real one here, found by its process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from diagnose.cli import command_line
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.ollama import Ollama
from probes.backends.recognise import recognise
from probes.counting import counter_for
from probes.evidence.errors import CouldNotLookError, NotOfferedError
from probes.process import free_port
from tests.tiny_model import make_model

pytestmark = [pytest.mark.real_server]
WINDOW, PARALLEL = 1024, 2
ELSEWHERE = 8192
"""The window of the server's environment, which goes for models that set none: these set one."""


def start(folder: Path, *models: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start the stand-in with its children on a free port. The caller ends it."""
    pytest.importorskip("xllamacpp")
    port = free_port()
    script = Path(__file__).with_name("ollama_like.py")
    command = [sys.executable, str(script), str(port), str(WINDOW), str(PARALLEL), *map(str, models)]
    environment = {**os.environ, "OLLAMA_CONTEXT_LENGTH": str(ELSEWHERE), "OLLAMA_NUM_PARALLEL": str(PARALLEL)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 60
    with Http(url) as http:
        while True:
            try:
                if http.get("/", deadline_s=2).status == 200:
                    return process, url
            except CouldNotLookError:
                pass
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.1)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()


@pytest.fixture(scope="module")
def ollama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ollama")
    model = make_model(folder / "tiny.gguf")
    process, url = start(folder, model)
    try:
        with Http(url) as http:
            yield http, model
    finally:
        end(process)


def test_its_command_line_and_windows_are_found_through_the_child(ollama):
    """Cache types, batches and slots are the child's; the window is what one request may use, not the child's whole."""
    http, model = ollama
    backend = recognise(http)
    assert isinstance(backend, Ollama)
    child = backend.child()
    argv = psutil.Process(child.pid).cmdline()
    assert argv[0].endswith("llama-server")
    assert child.configuration.settings["model_path"].value == str(model)
    assert child.configuration.settings["ctx"].value == WINDOW * PARALLEL
    assert child.backend.window().slots == PARALLEL
    assert child.backend.window().per_slot == WINDOW
    window = backend.window()
    assert (window.asked, window.in_force, window.slots, window.trained) == (WINDOW, WINDOW, PARALLEL, 131_072)
    told = backend.configuration()
    expected = {
        "ctx": WINDOW,
        "parallel": PARALLEL,
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
        "flash_attention": "on",
        "batch": 512,
        "ubatch": 256,
    }
    assert {name: told.settings[name].value for name in expected} == expected
    assert told.command is not None
    assert "--cache-type-k" in told.command
    assert not {"kv_type_k", "parallel"} & set(told.unread)


def test_the_models_own_window_goes_before_the_environments_and_slots_share_none(ollama, capsys):
    """What was asked for is what the Modelfile asks for; each slot has it whole. Nothing was ignored, and nothing divided."""
    http, _model = ollama
    window = recognise(http).window()
    assert (window.asked, window.default, window.in_force, window.slots) == (WINDOW, ELSEWHERE, WINDOW, PARALLEL)
    command_line(["check", http.base_url, "--format", "json", "--quiet"])
    told = json.loads(capsys.readouterr().out)
    assert (told["window"]["asked"], told["window"]["in_force"]) == (WINDOW, WINDOW)
    raised = {flag["id"] for flag in told["flags"]}
    assert not raised & {"slots-divide-window", "window-smaller-than-asked", "default-window", "default-window-to-come"}


def test_tokens_are_counted_by_the_child_exactly(ollama):
    """The counter is the server's own, and what Ollama then says it processed is that count."""
    http, _model = ollama
    backend = recognise(http)
    counter = counter_for(backend)
    assert counter is not None
    assert counter.name == "server"
    text = "the quick brown fox " * 20
    assert backend.detokenize(backend.tokenize(text)) == text
    for ask in (Ask(prompt=text, max_tokens=2), Ask(messages=({"role": "user", "content": text},), max_tokens=2)):
        told = backend.complete(ask)
        assert told.error is None
        assert told.prompt_tokens - counter.count(text) in range(16)
        assert told.generated_tokens == 2
        assert told.server_prompt_s > 0


def test_busy_is_what_the_childs_slots_say(ollama):
    """While another client's request runs, its slot says so."""
    http, _model = ollama
    backend = recognise(http)
    assert backend.busy() is False
    child = backend.child().backend
    seen = threading.Event()

    def work():
        # an answer of this model takes milliseconds: one after another, until one was seen
        ends = time.monotonic() + 30
        while not seen.is_set() and time.monotonic() < ends:
            child.complete(Ask(prompt="x" * 900, max_tokens=100, deadline_s=30))

    other = threading.Thread(target=work)
    other.start()
    while other.is_alive() and not seen.is_set():
        if backend.busy() is True:
            seen.set()
    other.join()
    assert seen.is_set()


def test_of_two_loaded_models_the_right_child_is_asked(tmp_path):
    """The model's file, which Ollama tells, says which llama-server holds it; and a child that died is said, not guessed."""
    first, second = make_model(tmp_path / "one.gguf"), make_model(tmp_path / "two.gguf", seed=1)
    process, url = start(tmp_path, first, second)
    try:
        with Http(url) as http:
            backends = {name: recognise(http, model=name) for name in ("one", "two")}
            for name, model in (("one", first), ("two", second)):
                child = backends[name].child()
                assert child.configuration.settings["model_path"].value == str(model)
                assert backends[name].window().slots == PARALLEL
            with pytest.raises(NotOfferedError):
                recognise(http).model_name()
            os.kill(backends["one"].child().pid, signal.SIGKILL)
            deadline = time.monotonic() + 5
            while time.monotonic() < deadline:
                told = recognise(http, model="one").configuration()
                if "kv_type_k" in told.unread:
                    break
                time.sleep(0.05)
            assert "kv_type_k" not in told.settings
            assert told.settings["ctx"].value == WINDOW
            # the other model's llama-server is not taken for this one's
            with pytest.raises(NotOfferedError):
                recognise(http, model="one").tokenize("x")
            assert recognise(http, model="two").tokenize("x")
    finally:
        end(process)
