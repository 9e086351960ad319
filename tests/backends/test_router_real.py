"""llama-server's router mode, with tiny models: everything that the recordings claim, for real.

The llama.cpp of the tests' own package is built without it: give the command that starts another build's llama-server in ``CTXDOCTOR_LLAMA_SERVER``
(``CTXDOCTOR_LLAMA_SERVER=llama-server``, or its path); its presets and address are added here.
"""

from __future__ import annotations

import json
import os
import shlex
import threading

import pytest

from diagnose import look
from diagnose.cli import command_line
from diagnose.ui import Silent
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.llama_router import LlamaRouter
from probes.backends.recognise import MOST_GETS, recognise
from probes.evidence.errors import NotOfferedError
from probes.logs import read_log
from probes.process import free_port, process_behind
from tests.tiny_model import make_model

from .started import started, until

GIVEN = os.environ.get("CTXDOCTOR_LLAMA_SERVER", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_LLAMA_SERVER gives no command that starts llama-server"),
]
PRESETS = """
version = 1

[*]
threads = 1

[coder]
model = {folder}/coder.gguf
ctx-size = 4096
parallel = 2
kv-unified = false
cache-type-k = q8_0
cache-type-v = q8_0
flash-attn = on
alias = gpt-4o

[small]
model = {folder}/small.gguf
ctx-size = 2048
parallel = 1

[broken]
model = {folder}/none.gguf
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory):
    """A router that keeps one of three models loaded, of which one does not load: its address, and its log."""
    folder = tmp_path_factory.mktemp("router")
    make_model(folder / "coder.gguf", trained=8192, name="coder")
    make_model(folder / "small.gguf", trained=4096, name="small", seed=3)
    (folder / "presets.ini").write_text(PRESETS.format(folder=folder))
    port = free_port()
    own = ("--host", "127.0.0.1", "--port", str(port), "--models-preset", str(folder / "presets.ini"))
    command = [*shlex.split(GIVEN), *own, "--models-max", "1", "-lv", "4"]
    with started(command, port, folder / "log") as url:
        yield url, folder / "log"


@pytest.fixture
def http(router):
    """A client of a router that has nothing loaded."""
    with Http(router[0]) as client:
        for name in loaded(client):
            client.post_json("/models/unload", {"model": name}, deadline_s=60)
        until(lambda: set(states(client).values()) == {"unloaded"})
        yield client


def states(http: Http) -> dict[str, str]:
    """Say the state of each model, by name."""
    return {one.name: one.state for one in LlamaRouter(http).models()}


def loaded(http: Http) -> list[str]:
    return [name for name, state in states(http).items() if state != "unloaded"]


def load(http: Http, model: str) -> int:
    """Send a request as any client does, which loads the model."""
    return http.post_json("/completion", {"model": model, "prompt": "hello", "n_predict": 1}, deadline_s=90).status


def test_nothing_is_loaded_by_looking(http):
    """Recognised within a few GETs; no model is asked that is not loaded, with words that say what to do."""
    before = http.requests_sent
    backend = recognise(http)
    assert http.requests_sent - before <= MOST_GETS
    assert isinstance(backend, LlamaRouter)
    assert backend.identity().router is True
    for model, says in ((None, "no model loaded"), ("coder", "unloaded"), ("gpt-4o", "unloaded"), ("nix", "knows no")):
        one = recognise(http, model=model)
        for ask in (one.window, one.model_identity, one.configuration, lambda one=one: one.complete(Ask(prompt="x"))):
            with pytest.raises(NotOfferedError, match=says):
                ask()
    assert loaded(http) == []


@pytest.mark.parametrize("model", [None, "coder", "gpt-4o"])
def test_the_loaded_model_is_looked_through_to(http, model):
    """Window, settings, counts, both clocks and a refusal of its own process; also where the model is named by an alias."""
    assert load(http, "coder") == 200
    backend = recognise(http, model=model)
    window = backend.window()
    assert (window.asked, window.trained, window.per_slot, window.slots) == (4096, 8192, 2048, 2)
    assert backend.model_identity().name == "coder"
    settings = backend.configuration().settings
    expected = {"ctx": 4096, "parallel": 2, "kv_type_k": "q8_0", "flash_attention": "on", "kv_unified": False}
    assert {name: settings[name].value for name in expected} == expected
    assert "--ctx-size" in process_behind(backend.holder()).argv
    text = "abcdefgh " * 60
    assert backend.count_tokens(text) == len(text)
    told = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False))
    assert (told.error, told.prompt_tokens, told.cached_tokens, told.generated_tokens) == (None, len(text), 0, 3)
    again = backend.complete(Ask(prompt=text + "more", max_tokens=1))
    assert (again.cached_tokens, again.processed_tokens) == (len(text), 4)
    over = backend.complete(Ask(prompt="x" * 2100, max_tokens=1)).error
    assert (over.error, over.prompt_tokens, over.window) == ("exceeds-window", 2100, 2048)
    assert backend.count_chat_tokens([{"role": "user", "content": "hi"}]) > 2
    assert backend.complete(Ask(messages=({"role": "user", "content": "hi"},), max_tokens=2)).error is None
    assert backend.busy() is False


def test_a_model_that_loads_is_waited_for(http):
    """A look waits for it, and loads nothing itself."""
    thread = threading.Thread(target=load, args=(http, "coder"))
    thread.start()
    try:
        until(lambda: states(http)["coder"] != "unloaded")
        backend = look.recognised(http, Silent(), hint=None, model="coder", deadline_s=60)
        assert backend.window().slots == 2
    finally:
        thread.join(90)
    assert loaded(http) == ["coder"]


def test_another_clients_model_in_the_middle(http):
    """With room for one, another model takes its place: a look says so and loads nothing, a completion brings it back."""
    assert load(http, "coder") == 200
    backend = recognise(http, model="coder")
    assert backend.window().slots == 2
    assert load(http, "small") == 200
    assert loaded(http) == ["small"]
    assert backend.busy() is None
    backend.forget()
    with pytest.raises(NotOfferedError):
        backend.window()
    with pytest.raises(NotOfferedError):
        recognise(http, model="coder").window()
    assert loaded(http) == ["small"]
    assert backend.complete(Ask(prompt="hello there", max_tokens=2)).error is None
    assert loaded(http) == ["coder"]


def test_a_model_that_does_not_load(http):
    """An error of the server, and from then on the words say that it failed."""
    assert load(http, "broken") >= 400
    with pytest.raises(NotOfferedError, match="failed with exit code"):
        recognise(http, model="broken").window()


def test_a_check_and_a_run(http, tmp_path, monkeypatch, capsys):
    """The whole session through the router; the next test is a change of its presets."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert load(http, "coder") == 200
    assert command_line(["check", http.base_url, "--model", "coder", "--quiet", "--format", "json"]) in {0, 1}
    document = json.loads(capsys.readouterr().out)
    assert document["truncation"]["verdict"] == "refused"
    assert document["window"]["in_force"] == 2048
    asked = ["--model", "coder", "--target", "3000", "--budget", "60s", "--quiet", "--format", "json"]
    assert command_line(["run", http.base_url, *asked]) in {0, 1, 4}
    document = json.loads(capsys.readouterr().out)
    assert document["subject"]["window"]["asked"] == 4096
    assert [rung for rung in document["rungs"] if rung["result"] == "passed"]
    assert document["verdict"]["causes"][0]["id"] == "slots-divide-ctx"
    assert "--models-preset" in document["next_test"]["command"]


def test_its_log(http, router):
    """The router's own lines and those of its models, which it prints with their port in front."""
    load(http, "broken")
    load(http, "coder")
    kinds = {event.event for event in read_log(router[1])}
    assert {"window", "kv-cache", "slots", "load-failed", "model-loaded"} <= kinds
