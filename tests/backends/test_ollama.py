"""Ollama as it really answers (0.33.0-rc2, recorded): its counts, its two ways with what is too long, an answer that repeats itself, a runner that dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.ollama import Ollama, full_name
from probes.backends.recognise import MOST_GETS, recognise
from probes.backends.refusals import type_refusal
from probes.base import ProbeContext
from probes.counting import Counter
from probes.evidence.errors import NotOfferedError
from probes.truncation import PACE, TruncationProbe
from tests.backends.loopback import Loopback, recording

RECORDED = "ollama-0.33.0-rc2"
PROMPT, CHAT = Ask(prompt="abc", max_tokens=4), Ask(messages=({"role": "user", "content": "hi"},), max_tokens=4)


@pytest.fixture
def played():
    """The recording, and the backend that was recognised by it."""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        yield server, recognise(http)


def test_recognised_without_loading_a_model(played):
    """By GETs alone, few of them; the model under test is the one that is loaded, its window the one that it is loaded with."""
    server, backend = played
    assert isinstance(backend, Ollama)
    assert {method for method, _path, _body in server.asked} == {"GET"}
    assert len(server.asked) <= MOST_GETS
    assert backend.identity().version == "0.33.0-rc2"
    window = backend.window()
    assert (window.asked, window.trained, window.in_force, window.per_slot) == (2048, 8192, 2048, 2048)
    identity = backend.model_identity()
    assert (identity.name, identity.architecture, identity.chat_template) == ("tiny:latest", "llama", True)
    # its own word for a file type that it has no name for
    assert identity.quantization is None
    assert "POST /api/generate" not in {f"{method} {path}" for method, path, _body in server.asked}


def test_counts_and_clocks(played):
    """The count is the whole prompt's, also where most of it came from the cache; times are nanoseconds."""
    server, backend = played
    cold = backend.complete(Ask(prompt="text", max_tokens=4, use_cache=False, salt="x9 "))
    assert (cold.prompt_tokens, cold.processed_tokens, cold.generated_tokens) == (643, 643, 4)
    assert 0 < cold.server_prompt_s < 10
    server.choose["POST /api/generate"] = "known"
    known = backend.complete(PROMPT)
    assert known.prompt_tokens == 643
    assert server.bodies("/api/generate")[0]["options"]["num_ctx"] == 2048
    server.choose["POST /api/generate"] = "likely"
    likely = backend.complete(Ask(prompt="abc", max_tokens=2, logprobs=3)).logprobs
    assert len(likely) == 2
    assert all(2 <= len(table) <= 3 and max(table.values()) < 0 for table in likely)


def test_a_prompt_is_cut_and_a_chat_loses_whole_messages_but_one_long_message_is_refused(played):
    """All three are what 0.33 really does: half the window of a raw prompt, the older messages of a chat, HTTP 400 for a last message over the window."""
    server, backend = played
    server.choose["POST /api/generate"] = "cut"
    cut = backend.complete(PROMPT)
    assert (cut.error, cut.prompt_tokens) == (None, 2048 // 2 + 2)
    server.choose["POST /api/chat"] = "messages-dropped"
    dropped = backend.complete(CHAT)
    assert (dropped.error, dropped.prompt_tokens) == (None, 1429)
    server.choose["POST /api/chat"] = "too-long"
    refused = backend.complete(CHAT).error
    assert (refused.error, refused.status, refused.prompt_tokens, refused.window) == ("exceeds-window", 400, 3017, 2048)


def test_an_answer_that_repeats_itself_is_an_answer(played):
    """Ollama breaks it off without an end mark, a reason or counts: the server lives, and the connection was not lost."""
    server, backend = played
    server.choose["POST /api/generate"] = "repeats"
    told = backend.complete(Ask(prompt="abc", max_tokens=300))
    assert told.error is None
    assert told.finish == "repetition"
    assert told.generated_tokens == 31
    assert told.prompt_tokens is None
    assert told.text == "@" * 31


@pytest.mark.parametrize(
    ("pieces", "lost"),
    [
        (["a", "b", "c"], True),
        (["@"] * 4, True),
        (["a", *["@"] * 12], False),
        ([" ", "\n", "  "] * 6, False),
        ([], True),
    ],
)
def test_a_stream_that_ends_early_is_lost_unless_it_repeats(pieces, lost):
    """Only the repeats tell the one from the other; blanks are all alike."""
    events = [{"response": piece, "done": False} for piece in pieces]
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        server.answers["POST /api/generate"] = {"ndjson": events}
        told = recognise(http).complete(PROMPT)
    assert (told.error is not None) is lost
    assert told.error is None or told.error.error == "connection-lost"


def test_a_runner_that_died_did_not_refuse_anything(played):
    """Its error carries what the runner printed last, which was of other requests: a prompt that fits was not too long."""
    server, backend = played
    server.choose["POST /api/generate"] = "runner-died"
    error = backend.complete(PROMPT).error
    assert "exceeds the available context size" in error.message
    assert (error.error, error.prompt_tokens, error.window) == ("server-error", None, None)
    ran_out = "llama-server process has terminated: exit status 1: cudaMalloc failed: out of memory"
    assert type_refusal(500, {"error": ran_out}).error == "out-of-memory"


def test_other_errors(played):
    """A model that is not there, and a prompt that may not be cut."""
    server, backend = played
    server.choose["POST /api/generate"] = "no-model"
    assert backend.complete(PROMPT).error.error == "not-found"
    server.choose["POST /api/generate"] = "no-shift"
    assert backend.complete(PROMPT).error.error == "exceeds-window"


def listed(*names):
    return {"json": {"object": "list", "data": [{"id": name, "object": "model"} for name in names]}}


def test_which_model_is_meant():
    """The one that is loaded; where none is, the only one that there is; else it says which ones there are."""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        backend = recognise(http)
        assert backend.model_name() == "tiny:latest"
        # unloaded in the middle of a run: still the one under test
        server.choose["GET /api/ps"] = "none"
        server.answers["GET /v1/models"] = listed("a:latest", "tiny:latest")
        backend.forget()
        assert backend.model_name() == "tiny:latest"
        assert backend.window().in_force is None
        with pytest.raises(
            NotOfferedError, match=r"none of its 2 models loaded; name one with --model \(a:latest, tiny:latest\)"
        ):
            recognise(http).model_name()
        server.answers["GET /v1/models"] = listed("only:7b")
        assert recognise(http).model_name() == "only:7b"
        server.answers["GET /v1/models"] = {"json": {"object": "list", "data": None}}
        with pytest.raises(NotOfferedError, match="ollama pull"):
            Ollama(http).model_name()


def test_a_name_is_compared_as_ollama_compares_it():
    """With and without its tag, the host and folder that are taken by themselves, and its case."""
    same = {full_name(n) for n in ("tiny", "Tiny:latest", "library/tiny", "registry.ollama.ai/library/tiny:latest")}
    assert same == {"tiny:latest"}
    assert full_name("hf.co/someone/Model-GGUF:Q4_K_M") == "hf.co/someone/model-gguf:q4_k_m"
    assert full_name("me/tiny") != full_name("tiny")
    assert full_name(None) == ""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        assert recognise(http, model="registry.ollama.ai/library/TINY").window().in_force == 2048
        assert recognise(http, model="tiny:other").window().in_force is None


def test_a_model_that_is_not_loaded_has_no_llama_server(played):
    """Models made of one file share one llama-server: while another of them is loaded, its settings are not this one's."""
    server, _backend = played
    with Http(server.url) as http, pytest.raises(NotOfferedError, match="not loaded"):
        recognise(http, model="tiny8k").child()


def test_the_speed_of_reading_decides_what_is_affordable(played):
    """A short budget does not keep the probe from a prompt that a quick server reads in a moment: a short one shows how quick it is."""
    server, backend = played
    counter = Counter(count=len, name="one a byte")
    context = ProbeContext(backend=backend, counter=counter)
    probe = TruncationProbe(2048, afford=1000, by_speed=True)
    assert probe.cost(context).requests == 3
    list(probe.collect(context))
    sent = [len(body["prompt"]) for body in server.bodies("/api/generate")]
    assert PACE - 64 <= sent[0] <= PACE + 64
    assert sent[1] > 2048
    slow = ProbeContext(backend=backend, counter=counter, ends_at=0.0)
    probe = TruncationProbe(2048, afford=1000, by_speed=True)
    list(probe.collect(slow))
    assert probe.reading.would_cost_tokens > 2048


def ends_in(seconds):
    """A loaded model, as ``/api/ps`` tells it, that is unloaded in so many seconds."""
    told = recording(RECORDED)["answers"]["GET /api/ps"]["json"]
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    told["models"][0]["expires_at"] = at.strftime("%Y-%m-%dT%H:%M:%S.%f") + "789Z"
    return {"json": told}


@pytest.mark.parametrize(
    ("seconds", "stays", "anew"),
    [(3, "5m", "5m"), (290, None, "5m"), (3600, None, "3600s"), (9e9, None, -1)],
)
def test_a_model_stays_loaded_while_it_is_measured(seconds, stays, anew):
    """One that is unloaded soon is asked to stay; of one that stays anyway nothing is asked, and loaded anew it stays as long as before."""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        server.answers["GET /api/ps"] = ends_in(seconds)
        backend = recognise(http)
        backend.complete(PROMPT)
        assert server.bodies("/api/generate")[0].get("keep_alive") == stays
        assert backend.stays_anew() == {"keep_alive": anew}
        server.answers["GET /api/ps"]["json"]["models"][0]["expires_at"] = "never"
        assert backend.left_s() is None
        server.choose["GET /api/ps"] = "none"
        backend.wake()
        assert server.bodies("/api/generate")[-1]["keep_alive"] == "5m"
        assert "prompt" not in server.bodies("/api/generate")[-1]


def test_what_was_asked_for_is_what_a_request_asked_for_last(played):
    """A run's own option goes before the Modelfile; a longer window than both ask for came from somebody's request."""
    server, backend = played
    backend.options = {"num_ctx": 1024}
    assert backend.window().asked == 2048
    backend.options = {"num_ctx": 8192}
    assert (backend.window().asked, backend.window().in_force) == (8192, 2048)
    backend.options = {}
    server.answers["GET /api/ps"]["json"]["models"][0]["context_length"] = 6000
    assert (backend.window().asked, backend.window().in_force) == (6000, 6000)
