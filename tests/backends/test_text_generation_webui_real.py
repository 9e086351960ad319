"""text-generation-webui itself, with models of random weights and both of its loaders that run on a CPU: everything that the recordings claim, for real.

It is no dependency: give the command that starts it from its own folder in ``CTXDOCTOR_TEXT_GENERATION_WEBUI``
(``CTXDOCTOR_TEXT_GENERATION_WEBUI='env -C textgen python server.py'``); model, window and port are added here. Its llama.cpp loader needs a
llama-server, its Transformers loader PyTorch; what it cannot load is skipped.
"""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import psutil
import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.backends.settings_files import with_files
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.errors import NotOfferedError, ServerDiedError
from probes.evidence.request import TruncationReading
from probes.logs import read_log
from probes.logs.machine import program_in
from probes.process import free_port, process_behind
from probes.truncation import TruncationProbe
from tests.tiny_model import make_model

from . import tiny_mlx
from .started import started, until

GIVEN = os.environ.get("CTXDOCTOR_TEXT_GENERATION_WEBUI", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(
        not GIVEN, reason="CTXDOCTOR_TEXT_GENERATION_WEBUI gives no command that starts text-generation-webui"
    ),
]
WINDOW = 2048
HEALTH = "/v1/internal/health"


def command(port: int, models: Path, *more: str) -> list[str]:
    return [*shlex.split(GIVEN), "--nowebui", "--api", "--api-port", str(port), "--model-dir", str(models), *more]


def loaded(url: str) -> None:
    with Http(url) as http:
        try:
            recognise(http).model_identity()
        except NotOfferedError as error:
            pytest.skip(f"this text-generation-webui cannot load the model: {error}")


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """Its llama.cpp loader: two slots in a window of 4096, and a cache type that it does not hand on. Address, and log."""
    models = tmp_path_factory.mktemp("llama")
    make_model(models / "tiny.gguf")
    port, log = free_port(), models / "log"
    more = ("--model", "tiny.gguf", "--loader", "llama.cpp", "--ctx-size", str(2 * WINDOW), "--parallel", "2")
    with started(
        command(port, models, *more, "--cache-type", "q5_1", "--threads", "1"), port, log, path=HEALTH, seconds=180
    ) as url:
        loaded(url)
        yield url, log


@pytest.fixture(scope="module")
def torch(tmp_path_factory):
    """Its Transformers loader, told a window that it does not take: the model's own is 2048."""
    models = tmp_path_factory.mktemp("torch")
    (models / "tiny-hf").mkdir()
    tiny_mlx.make_model(models / "tiny-hf")
    port, log = free_port(), models / "log"
    more = ("--model", "tiny-hf", "--loader", "Transformers", "--cpu", "--ctx-size", str(2 * WINDOW))
    with started(command(port, models, *more), port, log, path=HEALTH, seconds=240) as url:
        loaded(url)
        yield url, log


@pytest.fixture(params=["llama", "torch"])
def server(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def backend(server):
    with Http(server[0]) as http:
        yield recognise(http)


def probed(backend, window: int) -> TruncationReading:
    context = ProbeContext(backend=backend, counter=counter_for(backend), ends_at=time.monotonic() + 600)
    told = [one.payload() for one in TruncationProbe(window).collect(context) if one.data is not None]
    return next(one for one in told if isinstance(one, TruncationReading))


def test_recognised_with_its_model_and_window(server):
    """Few GETs, quickly; the window that one request may use, whatever was asked for, found without running anything."""
    with Http(server[0]) as http:
        began = time.monotonic()
        backend = recognise(http)
        assert time.monotonic() - began < 2
        assert http.requests_sent <= MOST_GETS
        assert backend.name == "text-generation-webui"
        model = backend.model_identity()
        assert Path(model.path).name == model.name
        assert backend.window().in_force == WINDOW


def test_settings_of_both_processes(llama):
    """What was asked for is on its own command line; what holds is on that of its llama-server."""
    with Http(llama[0]) as http:
        backend = recognise(http)
        own = with_files(process_behind(http.base_url), backend.engine).settings
        assert (own["ctx"].value, own["parallel"].value, own["kv_type_k"].value) == (2 * WINDOW, 2, "q5_1")
        holds = backend.configuration().settings
        assert (holds["ctx"].value, holds["parallel"].value, holds["flash_attention"].value) == (2 * WINDOW, 2, "on")
        assert (holds["kv_type_k"].value, holds["loader"].value) == ("f16", "llama.cpp")
        window = backend.window()
        assert (window.slots, window.per_slot, window.trained) == (2, WINDOW, 131_072)


def test_tokens_are_counted_and_written_back(backend):
    """One token a byte here, whatever stands before every text; a chat is counted without running it."""
    text = "ORBIT-17 = copper.\n"
    assert backend.count_tokens(text * 10) == len(text) * 10
    assert backend.detokenize(backend.tokenize(text)) == text
    chat = ({"role": "user", "content": "hi " * 2000},)
    assert backend.count_chat_tokens(chat) >= 6000


def test_counts_of_a_completion_and_of_a_chat(backend):
    """Of the prompt, exact; of the answer, at most what was asked for. No clock of its own."""
    for ask in (
        Ask(prompt="abcdefgh " * 100, max_tokens=4, use_cache=False, salt="x9 "),
        Ask(prompt="abcdefgh " * 100, max_tokens=4, use_cache=False, salt="x8 ", stream=False),
    ):
        told = backend.complete(ask)
        assert told.error is None
        assert told.prompt_tokens in {903, 904}
        assert told.processed_tokens == told.prompt_tokens
        assert 1 <= told.generated_tokens <= 4
        assert told.server_prompt_s is None
        assert told.client_total_s > 0
    chat = ({"role": "user", "content": "abcdefgh " * 100},)
    told = backend.complete(Ask(messages=chat, max_tokens=4))
    assert told.error is None
    assert told.prompt_tokens == backend.count_chat_tokens(chat)


def test_log_probabilities(backend):
    """The model's own: of random weights none is certain."""
    told = backend.complete(Ask(prompt="abc", max_tokens=3, logprobs=5))
    assert len(told.logprobs) == 3
    assert all(-9.3 < value < -0.1 for table in told.logprobs for value in table.values())


def test_above_the_window_its_llama_server_refuses(llama):
    """Answered with HTTP 200 and an empty text, streamed or not, and seen for what it is; just below, all is read."""
    with Http(llama[0]) as http:
        backend = recognise(http)
        for stream in (True, False):
            told = backend.complete(Ask(prompt="abcdefgh " * 400, max_tokens=4, stream=stream))
            assert (told.error.error, told.error.prompt_tokens, told.error.window) == ("exceeds-window", 3600, WINDOW)
        reading = probed(backend, WINDOW)
    assert (reading.verdict, reading.window, reading.silent) == ("refused", WINDOW, True)


def test_above_the_window_its_transformers_loader_cuts(torch):
    """HTTP 200 and the whole prompt in its count, of which only the end was read."""
    with Http(torch[0]) as http:
        backend = recognise(http)
        told = backend.complete(Ask(prompt="abcdefgh " * 400, max_tokens=4))
        assert (told.error, told.prompt_tokens, told.truncated) == (None, WINDOW - 4, True)
        reading = probed(backend, WINDOW)
    assert (reading.verdict, reading.rule, reading.processed) == ("truncated", "head-cut", WINDOW - 1)
    assert f"context {WINDOW - 4}" in " ".join(torch[1].read_text(errors="replace").split())


def test_an_answer_that_failed_is_no_empty_answer(torch):
    """Something that fails while it generates leaves HTTP 200 and an empty text: here a setting that its sampler cannot read."""
    with Http(torch[0]) as http:
        backend = recognise(http)
        asked = backend.request

        def with_a_fault(ask: Ask):
            path, body = asked(ask)
            return path, body | {"dry_multiplier": 1, "dry_sequence_breakers": "[", "do_sample": True, "temperature": 1}

        backend.request = with_a_fault
        told = backend.complete(Ask(prompt="abc def", max_tokens=3))
    assert (told.error.error, told.error.status) == ("server-error", 200)


def test_what_its_log_tells(server, backend):
    """Who wrote it, the window, and each answer."""
    backend.complete(Ask(prompt="abc " * 50, max_tokens=2))
    time.sleep(0.3)
    events = list(read_log(server[1]))
    assert program_in(events).name == "text-generation-webui"
    assert {"program", "loading", "model-loaded", "window", "reply"} <= {event.event for event in events}
    assert any(event.event == "reply" and event.tokens in {200, 201} for event in events)


def test_chats_above_the_window_are_cut_before_its_llama_server(tmp_path):
    """With one slot: a raw prompt is refused without an error, a chat of that length is shortened without a word."""
    make_model(tmp_path / "tiny.gguf")
    port = free_port()
    more = ("--model", "tiny.gguf", "--loader", "llama.cpp", "--ctx-size", str(WINDOW), "--threads", "1")
    own = command(port, tmp_path, *more)
    with started(own, port, tmp_path / "log", path=HEALTH, seconds=120) as url, Http(url) as http:
        loaded(url)
        reading = probed(recognise(http), WINDOW)
    assert (reading.verdict, reading.processed) == ("truncated", WINDOW - 1)
    assert "User message truncated" in (tmp_path / "log").read_text(errors="replace")


def test_no_model(tmp_path):
    """Nothing is loaded by being looked at, and that is said."""
    port = free_port()
    with started(command(port, tmp_path), port, tmp_path / "log", path=HEALTH, seconds=120) as url, Http(url) as http:
        backend = recognise(http)
        for look in (backend.model_identity, backend.window):
            with pytest.raises(NotOfferedError, match="no model loaded"):
                look()


def test_its_llama_server_that_is_gone(llama):
    """The last test of this server: it answers on, names its model, and has none."""
    with Http(llama[0]) as http:
        backend = recognise(http)
        child = psutil.Process(backend.child().pid)
        child.kill()
        until(backend.lost)
        told = backend.complete(Ask(prompt="abc", max_tokens=2))
        assert told.error.error == "connection-lost"
        assert "llama-server has ended" in told.error.message
        with pytest.raises(ServerDiedError):
            backend.tokenize("abc")
        with pytest.raises(NotOfferedError, match="has none loaded"):
            backend.model_identity()
