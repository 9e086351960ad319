"""ik_llama.cpp's server on answers that a real one gave: counts, log-probabilities, its cut, and what a refused prompt leaves behind."""

from __future__ import annotations

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import recognise

from .loopback import Loopback

RECORDED = "ik_llama.cpp-8337e4cd-real"


@pytest.fixture
def playing():
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        yield server, recognise(http)


def test_the_recorded_server(playing):
    """Windows of all and of a slot; tokens; a cold prompt whole, and one whose beginning is known in part."""
    server, backend = playing
    assert backend.name == "ik_llama.cpp"
    window = backend.window()
    assert (window.asked, window.per_slot, window.slots, window.in_force, window.trained) == (
        4096,
        2048,
        2,
        2048,
        131_072,
    )
    assert backend.model_identity().name == "tiny.gguf"
    assert (backend.count_tokens("hi"), backend.busy()) == (2, False)
    server.choose["POST /completion"] = "cold"
    cold = backend.complete(Ask(prompt="x", max_tokens=4, use_cache=False))
    assert (cold.prompt_tokens, cold.processed_tokens, cold.cached_tokens, cold.generated_tokens) == (900, 900, 0, 4)
    assert cold.server_prompt_s is not None
    assert (cold.finish, cold.truncated) == ("limit", False)
    server.choose.clear()
    warm = backend.complete(Ask(prompt="x", max_tokens=4))
    assert warm.prompt_tokens == 916
    assert warm.cached_tokens + warm.processed_tokens == 916
    assert warm.cached_tokens >= 900


def test_the_recorded_log_probabilities_come_once(playing):
    """Its last event tells those of all positions again: two tokens are two."""
    server, backend = playing
    server.choose["POST /completion"] = "likely"
    told = backend.complete(Ask(prompt="abc", max_tokens=2, logprobs=5))
    assert [len(table) for table in told.logprobs] == [5, 5]


def test_the_recorded_cut(playing):
    """With context shift blocks of half a window are dropped without an error, and the answer says truncated."""
    server, backend = playing
    server.choose["POST /completion"] = "cut"
    told = backend.complete(Ask(prompt="x", max_tokens=1, use_cache=False))
    assert (told.error, told.truncated, told.prompt_tokens) == (None, True, 1406)


def test_a_pool_without_free_cells_is_no_long_prompt(playing):
    """A prompt that is too long is refused in other words before: this one says that the cells of the pool are taken."""
    server, backend = playing
    server.choose["POST /completion"] = "window-full"
    assert backend.complete(Ask(prompt="x", max_tokens=1)).error.error == "pool-exhausted"


def test_what_a_refused_prompt_leaves_behind_is_cleared_away(playing):
    """It is read all the same, and stays in its slot: each slot gets one token in its place once none works."""
    server, backend = playing
    server.choose["POST /completion"] = "too-long"
    told = backend.complete(Ask(prompt="x", max_tokens=1, deadline_s=5))
    assert told.error.error == "exceeds-window"
    assert [body.get("id_slot") for body in server.bodies("/completion")] == [None, 0, 1]
    assert all(body["n_predict"] == 1 and body["cache_prompt"] is False for body in server.bodies("/completion")[1:])
