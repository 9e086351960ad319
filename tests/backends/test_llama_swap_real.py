"""llama-swap itself, in front of the embedded llama.cpp with two tiny models: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_LLAMA_SWAP`` (``CTXDOCTOR_LLAMA_SWAP=llama-swap``, or its path); its
configuration and address are added here.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import threading
import time

import pytest

from diagnose.cli import command_line
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.llama_swap import LlamaSwap
from probes.backends.recognise import MOST_GETS, recognise
from probes.evidence.errors import NotOfferedError, StillLoadingError
from probes.logs import read_log
from probes.logs.told import settings_told
from probes.process import free_port
from tests.tiny_model import SERVER, make_model

from .started import started, until

GIVEN = os.environ.get("CTXDOCTOR_LLAMA_SWAP", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_LLAMA_SWAP gives no command that starts llama-swap"),
]
CONFIGURATION = """
healthCheckTimeout: 60
logLevel: debug
logToStdout: both
startPort: {port}
macros:
  server: {python} {server} --host 127.0.0.1 -lv 4 -t 1 --port ${{PORT}}
models:
  coder:
    cmd: |
      ${{server}}
      # a comment of llama-swap's own
      -m {folder}/coder.gguf -c 4096 -np 2 -no-kvu -ctk q8_0 -ctv q8_0 -fa on
    aliases: [gpt-4o]
  author/small:
    cmd: ${{server}} -m {folder}/small.gguf -c 2048 -np 1
    ttl: 3
  broken:
    cmd: ${{server}} -m {folder}/none.gguf -c 2048
"""


@pytest.fixture(scope="module")
def swap(tmp_path_factory):
    """llama-swap with three models, of which one does not start: its address, and its log."""
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("swap")
    make_model(folder / "coder.gguf", trained=8192, name="coder")
    make_model(folder / "small.gguf", trained=4096, name="small", seed=3)
    text = CONFIGURATION.format(port=free_port(), python=sys.executable, server=SERVER, folder=folder)
    (folder / "config.yaml").write_text(text)
    port = free_port()
    command = [*shlex.split(GIVEN), "-config", str(folder / "config.yaml"), "-listen", f"127.0.0.1:{port}"]
    with started(command, port, folder / "log") as url:
        yield url, folder / "log"


@pytest.fixture
def http(swap):
    """A client of llama-swap that runs nothing yet."""
    with Http(swap[0]) as client:
        client.get("/unload", deadline_s=60)
        until(lambda: states(client) == {})
        yield client


def states(http: Http) -> dict[str, str]:
    """Say what runs, by name."""
    return {one.name: one.state for one in LlamaSwap(http).running()}


def tells(http: Http) -> bool:
    """Say whether this version tells commands, starting models and aliases; until the end of 2025 it did not."""
    return http.get("/api/version").status == 200


def load(http: Http, model: str) -> int:
    """Send a request as any client does, which loads the model."""
    body = {"model": model, "prompt": "hello", "max_tokens": 1}
    return http.post_json("/v1/completions", body, deadline_s=90).status


def test_nothing_is_loaded_by_looking(http):
    """Recognised within a few GETs; what runs nowhere is not asked, with words that say what to do."""
    before, began = http.requests_sent, time.monotonic()
    backend = recognise(http)
    assert time.monotonic() - began < 2
    assert http.requests_sent - before <= MOST_GETS
    assert backend.name == "llama-swap"
    assert backend.identity().name == "llama-swap"
    for model in (None, "coder", "gpt-4o", "author/small", "unheard-of"):
        one = recognise(http, model=model)
        for look in (one.window, one.model_identity, one.configuration):
            with pytest.raises(NotOfferedError, match="send it one request"):
                look()
    assert states(http) == {}


@pytest.mark.parametrize("model", [None, "coder", "gpt-4o"])
def test_the_model_that_runs_is_looked_through_to(http, model):
    """Window, settings, counts, both clocks and a refusal of the server behind; also where the model is named by an alias."""
    assert load(http, "coder") == 200
    if model == "gpt-4o" and not tells(http):
        pytest.skip("this version tells no aliases")
    backend = recognise(http, model=model)
    identity = backend.identity()
    assert (identity.name, identity.router) == ("llama.cpp", True)
    window = backend.window()
    assert (window.trained, window.per_slot, window.slots) == (8192, 2048, 2)
    assert window.asked == (4096 if tells(http) else None)
    settings = backend.configuration().settings
    assert not tells(http) or {
        name: settings[name].value for name in ("ctx", "parallel", "kv_type_k", "kv_type_v", "flash_attention")
    } == {
        "ctx": 4096,
        "parallel": 2,
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
        "flash_attention": "on",
    }
    text = "abcdefgh " * 60
    assert backend.count_tokens(text) == len(text)
    told = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False))
    assert (told.error, told.prompt_tokens, told.cached_tokens, told.generated_tokens) == (None, len(text), 0, 3)
    assert told.server_prompt_s is not None
    over = backend.complete(Ask(prompt="x" * 2100, max_tokens=1)).error
    assert over is not None
    assert (over.error, over.prompt_tokens, over.window) == ("exceeds-window", 2100, 2048)
    assert backend.busy() is False


def test_a_name_with_a_stroke_goes_through(http):
    """Model names as they stand on Hugging Face hold one."""
    assert load(http, "author/small") == 200
    backend = recognise(http, model="author/small")
    assert backend.window().in_force == 2048
    assert backend.complete(Ask(prompt="hello", max_tokens=2)).error is None


def test_a_model_that_starts_is_waited_for(http, tmp_path):
    """While it starts it is said to be starting; a look waits for it, and loads nothing itself."""
    from diagnose import look
    from diagnose.ui import Silent

    if not tells(http):
        pytest.skip("this version tells of no model that starts")
    thread = threading.Thread(target=load, args=(http, "coder"))
    thread.start()
    try:
        until(lambda: states(http) == {"coder": "starting"})
        with pytest.raises(StillLoadingError):
            recognise(http).window()
        backend = look.recognised(http, Silent(), hint=None, model=None, deadline_s=60)
        assert backend.window().slots == 2
    finally:
        thread.join(90)
    assert states(http) == {"coder": "ready"}


def test_another_clients_model_in_the_middle(http):
    """A look after the swap says that the model runs no more, and does not swap it back; a completion does."""
    assert load(http, "coder") == 200
    backend = recognise(http, model="coder")
    assert backend.window().slots == 2
    assert load(http, "author/small") == 200
    assert states(http) == {"author/small": "ready"}
    assert backend.busy() is None
    with pytest.raises(NotOfferedError):
        backend.forget()
    with pytest.raises(NotOfferedError):
        recognise(http, model="coder").window()
    assert states(http) == {"author/small": "ready"}
    told = backend.complete(Ask(prompt="hello there", max_tokens=2))
    assert told.error is None
    assert states(http) == {"coder": "ready"}


def test_a_model_that_was_unloaded_for_idleness(http):
    """Its time to live passes; a look says so and loads nothing, a completion loads it."""
    assert load(http, "author/small") == 200
    backend = recognise(http, model="author/small")
    assert backend.window().slots == 1
    until(lambda: states(http) == {})
    assert backend.busy() is None
    assert states(http) == {}
    assert backend.complete(Ask(prompt="hello there", max_tokens=2)).error is None


def test_a_model_that_does_not_start(http):
    """Its own error, typed; nothing runs afterwards."""
    body = {"model": "broken", "prompt": "hello", "max_tokens": 1}
    reply = http.post_json("/v1/completions", body, deadline_s=90)
    assert reply.status >= 500
    assert states(http) == {}
    with pytest.raises(NotOfferedError):
        recognise(http, model="broken").window()


def test_a_check_and_a_run(http, tmp_path, monkeypatch, capsys):
    """The whole session through llama-swap, with the command that it tells."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert load(http, "coder") == 200
    assert command_line(["check", http.base_url, "--model", "coder", "--quiet", "--format", "json"]) in {0, 1}
    document = json.loads(capsys.readouterr().out)
    assert document["truncation"]["verdict"] == "refused"
    assert document["window"]["in_force"] == 2048
    arguments = [
        "run",
        http.base_url,
        "--model",
        "coder",
        "--target",
        "1500",
        "--budget",
        "60s",
        "--quiet",
        "--format",
        "json",
    ]
    assert command_line(arguments) in {0, 1, 4}
    document = json.loads(capsys.readouterr().out)
    assert document["subject"]["window"]["asked"] == 4096
    assert [rung for rung in document["rungs"] if rung["result"] == "passed"]


def test_its_log(http, swap):
    """What the proxy says of itself is read beside what the servers behind say."""
    load(http, "broken")
    load(http, "author/small")
    until(lambda: states(http) == {})
    events = list(read_log(swap[1]))
    assert {"http", "command", "load-failed", "window", "kv-cache", "slept"} <= {event.event for event in events}
    told = settings_told(events)
    assert told is not None
    assert told[1].settings["ctx"].value == 2048
