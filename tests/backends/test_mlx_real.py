"""mlx_lm.server itself, on the CPU, with a tiny model: everything that the recordings claim, for real."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.overflow import overflow_rule
from probes.backends.recognise import recognise
from probes.process import free_port

from .started import started
from .tiny_mlx import TRAINED, make_model

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.real_server]
mlx_lm = pytest.importorskip("mlx_lm", reason="mlx-lm is not installed")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start the server on a free loopback port, and end that process only."""
    folder = tmp_path_factory.mktemp("model")
    make_model(folder)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "mlx_lm",
        "server",
        "--model",
        str(folder),
        "--port",
        str(port),
        "--prompt-cache-size",
        "7",
    ]
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    with started(command, port, folder / "log", environment=environment) as url, Http(url) as http:
        yield http, folder


@pytest.fixture
def backend(server):
    http, _folder = server
    return recognise(http)


def test_it_is_recognised_quickly_and_confirmed_by_its_first_completion(server):
    """Few GETs within two seconds; the version is the installed one, from the completion's fingerprint."""
    http, _folder = server
    before, started = http.requests_sent, time.monotonic()
    backend = recognise(http)
    assert time.monotonic() - started < 2
    assert http.requests_sent - before <= 16
    assert backend.name == "mlx_lm"
    assert backend.identity().version is None
    assert backend.complete(Ask(prompt="hi", max_tokens=1)).error is None
    assert backend.identity().version == mlx_lm.__version__
    assert backend.identity().recognised_by.startswith("system_fingerprint")


def test_window_and_settings_come_from_its_process_and_folder(server, backend):
    """It enforces no window: only the trained length is known, and its settings are its command line."""
    _http, folder = server
    window = backend.window()
    assert (window.trained, window.in_force) == (TRAINED, None)
    settings = backend.configuration().settings
    assert settings["cache_sequences"].value == 7
    assert settings["model_path"].value == str(folder)
    assert backend.model_identity().architecture == "llama"


def test_counts_are_exact_and_the_cache_is_seen_and_defeated(backend):
    """One token a byte: the prompt's count is exact; a repeat is cached; a salt in front of it is not."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    first = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False, salt="a1 "))
    assert first.error is None
    assert (first.prompt_tokens, first.cached_tokens, first.generated_tokens) == (len(text) + 3, 0, 3)
    assert first.finish == "length"
    again = backend.complete(Ask(prompt=text, max_tokens=3, salt="a1 "))
    assert again.prompt_tokens == first.prompt_tokens
    assert again.cached_tokens >= len(text) // 2
    assert again.processed_tokens == again.prompt_tokens - again.cached_tokens
    salted = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False, salt="b2 "))
    assert salted.cached_tokens == 0
    assert salted.processed_tokens == salted.prompt_tokens
    assert 0 < salted.client_first_token_s <= salted.client_total_s


def test_a_chat_is_counted_with_its_template(backend):
    """The template's own tokens are in the server's count."""
    told = backend.complete(Ask(messages=({"role": "user", "content": "hello"},), max_tokens=2))
    assert told.prompt_tokens == len("user: hello\nassistant:")


@pytest.mark.parametrize("ask", [{"prompt": "The quick brown"}, {"messages": ({"role": "user", "content": "hi"},)}])
def test_the_next_token_has_its_log_probabilities(backend, ask):
    """Ten of each position, by id, on both endpoints; a shared prompt gives the same table, cached or not."""
    told = backend.complete(Ask(max_tokens=2, logprobs=10, **ask))
    assert told.error is None
    assert [len(table) for table in told.logprobs] == [10, 10]
    assert all(name.isdecimal() for name in told.logprobs[0])
    assert sum(math.exp(value) for value in told.logprobs[0].values()) <= 1.0001
    assert told.generated_tokens == 2
    again = backend.complete(Ask(max_tokens=1, logprobs=10, **ask))
    assert again.logprobs[0] == pytest.approx(told.logprobs[0], abs=1e-3)


def test_more_than_it_gives_is_asked_for_no_more(backend):
    """It refuses a request for more than eleven: the most that it gives is asked for instead."""
    told = backend.complete(Ask(prompt="The", max_tokens=1, logprobs=20))
    assert told.error is None
    assert len(told.logprobs[0]) == 10


def test_a_prompt_above_the_trained_length_is_not_cut(backend):
    """No window is enforced: what was sent is processed, far above what the model was trained for."""
    text = "x" * (TRAINED + 500)
    told = backend.complete(Ask(prompt=text, max_tokens=1, use_cache=False, salt="c3 "))
    assert told.error is None
    assert told.prompt_tokens == len(text) + 3
    assert overflow_rule(len(text) + 3, told.prompt_tokens, TRAINED, backend="mlx_lm") is None


def test_a_model_that_is_not_there_is_a_typed_refusal(server):
    """A name that it cannot load is refused, and the server lives on."""
    http, _folder = server
    backend = recognise(http, model="no/such-model")
    told = backend.complete(Ask(prompt="hi", max_tokens=1, deadline_s=60))
    assert told.error is not None
    assert told.error.error in {"not-found", "server-error", "bad-request"}
    assert recognise(http).complete(Ask(prompt="hi", max_tokens=1)).error is None


def test_a_whole_session_reads_every_claimed_length_cold(server, tmp_path):
    """Recognised, windows, truncation, speeds, ladder: no window is enforced, and what is claimed was processed from its beginning, salted each time."""
    http, folder = server
    command = [sys.executable, "-m", "diagnose", "run", http.base_url, "--target", "1600", "--ladder", "768,1400"]
    done = subprocess.run(
        [*command, "--tokenizer", str(folder), "--repeat", "2", "--budget", "90", "--format", "json", "--quiet"],
        env={**os.environ, "CTXDOCTOR_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode in {0, 1, 4}, done.stderr
    told = json.loads(done.stdout)
    assert told["subject"]["backend"]["name"] == "mlx_lm"
    assert told["subject"]["backend"]["version"] == mlx_lm.__version__
    assert told["subject"]["window"]["trained"] == TRAINED
    assert told["subject"]["window"]["in_force"] is None
    [cut] = [one["data"] for one in told["evidence"] if one["kind"] == "truncation"]
    assert cut["verdict"] == "none"
    assert cut["processed"] >= cut["sent"]
    top = [one for one in told["rungs"] if one["input_tokens"] > 1000]
    assert len(top) >= 2
    assert {one["result"] for one in top} == {"passed"}
    # its cache cannot be switched off for one request: the salt keeps it out, by the server's own count
    assert sum(one["cached_tokens"] <= 16 for one in top) >= 2
    assert all(one["prefill_tps"] for one in top)
    # of a model that is next to nothing but attention, its price is all that may be named
    assert set(told["verdict"]["named"]) <= {"attention-kernel-slow", "depth-cost"}
