"""Ollama itself, with the llama-server that it runs and models of random weights: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_OLLAMA`` (``CTXDOCTOR_OLLAMA='ollama serve'``); address, home, settings and models
are added here, and the account's own models are not touched.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import time
import urllib.request

import psutil
import pytest

from diagnose.cli import command_line
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.ollama import Ollama
from probes.backends.recognise import MOST_GETS, recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.errors import NotOfferedError
from probes.evidence.request import TruncationReading
from probes.logs import collect_log
from probes.process import free_port
from probes.truncation import TruncationProbe
from tests.diagnose.told import own_home
from tests.tiny_model import make_model

from .started import started, until

GIVEN = os.environ.get("CTXDOCTOR_OLLAMA", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_OLLAMA gives no command that starts Ollama"),
]
WINDOW, DEFAULT, TRAINED, PARALLEL = 2048, 3072, 8192, 2


def create(url, name, file, **parameters):
    """Make a model of a file, as ``ollama create`` does."""
    data = file.read_bytes()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"

    def send(path, body):
        with urllib.request.urlopen(urllib.request.Request(url + path, data=body), timeout=60) as reply:
            return reply.read()

    with Http(url) as http:
        if http.get("/api/tags").json_object()["models"] == [] or name == "other":
            send(f"/api/blobs/{digest}", data)
    body = {"model": name, "files": {file.name: digest}, "parameters": parameters, "stream": False}
    assert b"success" in send("/api/create", json.dumps(body).encode())


@pytest.fixture(scope="module")
def ollama(tmp_path_factory):
    """Ollama with two models of one file, of which one brings a window with it, and another model: its address, and its log."""
    folder = tmp_path_factory.mktemp("ollama")
    one = make_model(folder / "one.gguf", trained=TRAINED)
    other = make_model(folder / "other.gguf", seed=1, name="other")
    port = free_port()
    told = {
        "HOME": str(folder),
        "OLLAMA_HOST": f"127.0.0.1:{port}",
        "OLLAMA_MODELS": str(folder / "models"),
        "OLLAMA_NO_CLOUD": "1",
        "OLLAMA_CONTEXT_LENGTH": str(DEFAULT),
        "OLLAMA_NUM_PARALLEL": str(PARALLEL),
    }
    with started(shlex.split(GIVEN), port, folder / "log", path="/api/version", environment=told) as url:
        create(url, "plain", one)
        create(url, "own", one, num_ctx=WINDOW)
        create(url, "other", other, num_ctx=4096)
        yield url, folder / "log"


@pytest.fixture
def http(ollama):
    """A client of Ollama that has nothing loaded."""
    with Http(ollama[0]) as client:

        def loaded():
            return client.get("/api/ps").json_object()["models"]

        for model in loaded():
            client.post_json("/api/generate", {"model": model["name"], "keep_alive": 0}, deadline_s=30)
        until(lambda: loaded() == [])
        yield client


def test_recognised_and_nothing_loaded(http):
    """By a few GETs; which of several models is meant has to be said; what is asked for is told before a model is loaded."""
    backend = recognise(http)
    assert isinstance(backend, Ollama)
    assert backend.identity().version
    with pytest.raises(NotOfferedError, match="--model"):
        backend.model_name()
    for name, asked in (("plain", DEFAULT), ("own", WINDOW)):
        window = recognise(http, model=name).window()
        assert (window.asked, window.default, window.trained, window.in_force) == (asked, DEFAULT, TRAINED, None)
    assert http.get("/api/ps").json_object()["models"] == []
    assert MOST_GETS


def test_windows_settings_and_the_child_of_the_model_that_is_loaded(http):
    """The model's own window goes before the environment's; each slot has it whole; models of one file share one llama-server."""
    own = recognise(http, model="own")
    assert own.wake() is None
    window = own.window()
    assert (window.asked, window.in_force, window.per_slot, window.slots) == (WINDOW, WINDOW, WINDOW, PARALLEL)
    told = own.configuration()
    assert told.settings["ctx"].value == WINDOW
    assert told.settings["parallel"].value == PARALLEL
    assert own.child().configuration.settings["ctx"].value == WINDOW * PARALLEL
    plain = recognise(http, model="plain")
    assert plain.window().in_force is None
    with pytest.raises(NotOfferedError):
        plain.child()
    plain.wake()
    assert plain.window().in_force == DEFAULT
    assert own.window().in_force is None
    other = recognise(http, model="other")
    other.wake()
    assert other.child().pid != plain.child().pid
    assert (other.window().in_force, plain.window().in_force) == (4096, DEFAULT)


def test_counts_clocks_and_the_cache(http):
    """One token a byte here; counts are exact, the cached part included; a request of ours never loads the model anew."""
    backend = recognise(http, model="own")
    backend.wake()
    child = backend.child().pid
    counter = counter_for(backend)
    assert counter.name == "server"
    text = "The depot received 14 crates from Aldmoor. " * 10
    assert counter.count(text) == len(text)
    assert backend.detokenize(backend.tokenize(text)) == text
    told = backend.complete(Ask(prompt=text, max_tokens=4, use_cache=False, salt="x9 "))
    assert told.error is None
    assert (told.prompt_tokens, told.processed_tokens, told.generated_tokens) == (433, 433, 4)
    assert 0 < told.server_prompt_s <= told.client_total_s
    again = backend.complete(Ask(prompt="x9 " + text, max_tokens=4))
    assert again.prompt_tokens == 433
    assert again.server_prompt_s < 10 * told.server_prompt_s
    assert len(backend.complete(Ask(prompt="abc", max_tokens=3, logprobs=5)).logprobs) == 3
    assert backend.busy() is False
    assert backend.child().pid == child


def test_an_answer_that_repeats_itself_is_an_answer(http):
    """At temperature 0 this model says one character again and again; Ollama breaks that off, and the server lives."""
    backend = recognise(http, model="own")
    told = backend.complete(Ask(prompt="abc", max_tokens=300))
    assert told.error is None
    assert told.finish in {"repetition", "length"}
    assert told.generated_tokens > 8


def test_what_is_too_long(http):
    """A raw prompt is cut to half of the window and a few, a chat loses whole messages, and one message over the window is refused."""
    backend = recognise(http, model="own")
    backend.wake()
    context = ProbeContext(backend=backend, counter=counter_for(backend), ends_at=time.monotonic() + 600)
    found = [one.payload() for one in TruncationProbe(WINDOW).collect(context) if one.data is not None]
    reading = next(one for one in found if isinstance(one, TruncationReading))
    assert (reading.verdict, reading.rule) == ("truncated", "half-window")
    assert reading.processed == WINDOW // 2 + 2
    assert reading.below_processed >= reading.below_sent
    turns = [("user", "y" * 1500), ("assistant", "z" * 400), ("user", "x" * 1000)]
    messages = tuple({"role": role, "content": content} for role, content in turns)
    told = backend.complete(Ask(messages=messages, max_tokens=2))
    assert told.error is None
    assert 1400 <= told.prompt_tokens < WINDOW
    refused = backend.complete(Ask(messages=({"role": "user", "content": "x" * 3000},), max_tokens=2)).error
    assert (refused.error, refused.window) == ("exceeds-window", WINDOW)


def test_a_model_that_went_is_loaded_again_with_its_window(http):
    """Unloaded in the middle of a run: the next count or request brings it back as it was."""
    backend = recognise(http, model="plain")
    backend.options = {"num_ctx": 1024}
    backend.wake()
    assert backend.window().in_force == 1024
    backend.options = {}
    http.post_json("/api/generate", {"model": "plain", "keep_alive": 0}, deadline_s=30)
    until(lambda: backend.running() == {})
    assert len(backend.tokenize("abc")) == 3
    assert backend.window().in_force == 1024


def test_a_runner_that_dies_is_no_refusal(http):
    """Ended under a request, or before it: a failure of the server, and the next request is answered."""
    backend = recognise(http, model="own")
    backend.wake()
    psutil.Process(backend.child().pid).kill()
    told = backend.complete(Ask(prompt="abc", max_tokens=2))
    assert told.error is None or told.error.error in {"server-error", "connection-lost"}
    until(lambda: backend.complete(Ask(prompt="abc", max_tokens=2)).error is None)


def test_a_run_names_the_cut_and_the_log_says_the_same(ollama, http, tmp_path, monkeypatch, capsys):
    """As a user does it: a run for forgetting, and its log triaged."""
    own_home(tmp_path, monkeypatch)
    url, log = ollama
    out = tmp_path / "out.json"
    command_line(
        [
            "run",
            url,
            "--model",
            "own",
            "--budget",
            "1m",
            "--quiet",
            "--symptom",
            "forgetting",
            "--format",
            "json",
            "--out",
            str(out),
        ]
    )
    told = json.loads(out.read_text())
    assert told["verdict"]["named"] == ["silent-truncation-half-window"]
    assert told["subject"]["window"]["asked"] == WINDOW
    assert "PARAMETER num_ctx 4096" in json.dumps(told["next_test"])
    assert "OLLAMA_CONTEXT_LENGTH" not in json.dumps(told["next_test"])
    events, _summary = collect_log(log)
    assert any(event.event == "truncated" and event.kept == WINDOW // 2 + 2 for event in events)
    assert {event.tokens for event in events if event.event == "window" and event.which == "asked"} <= {
        WINDOW,
        DEFAULT,
        4096,
        1024,
    }
    assert {event.count for event in events if event.event == "slots"} - {None} == {PARALLEL}
    capsys.readouterr()
    command_line(["triage", "--log", str(log), "--symptom", "forgetting"])
    assert "silent-truncation-half-window" in capsys.readouterr().out
