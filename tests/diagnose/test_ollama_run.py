"""A run on an Ollama that has nothing loaded: the model is loaded before it is looked at, and why it could not be is read as its log would be."""

from __future__ import annotations

import json

import pytest

from diagnose.cli import command_line
from tests.backends.standing_like import OllamaLike, say
from tests.diagnose.told import own_home

NO_ROOM = (
    "llama-server process has terminated: exit status 1: ggml_aligned_malloc: insufficient memory (attempted to allocate 600.07 MB)\n"
    "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 629219360\n"
    "ggml_gallocr_reserve_n_impl: failed to allocate CPU buffer of size 629219360\n"
    "graph_reserve: failed to allocate compute buffers\n"
    "llama_init_from_model: failed to initialize the context: failed to allocate compute pp buffers"
)
"""What Ollama 0.33.0-rc2 really answered under an address-space limit."""


@pytest.fixture
def home(tmp_path, monkeypatch):
    return own_home(tmp_path, monkeypatch)


def test_a_model_that_is_not_loaded_is_loaded_first(home, tmp_path):
    """So its window is known before a prompt is sent; nothing is sent before the load, and it is loaded once."""
    with OllamaLike(window=1024, loaded=False) as server:
        out = tmp_path / "out.json"
        command_line(["run", server.url, "--budget", "5s", "--quiet", "--format", "json", "--out", str(out)])
        told = json.loads(out.read_text())
    bodies = server.bodies("/api/generate")
    assert "prompt" not in bodies[0]
    assert server.loads == [{"num_ctx": 1024}]
    assert all(body["options"].get("num_ctx") == 1024 for body in bodies[1:])
    assert told["subject"]["window"]["in_force"] == 1024


def test_a_model_that_does_not_load_is_said_in_the_servers_words_and_read_as_its_log(home, tmp_path):
    """No word of a tokenizer that is missing; the buffer that found no room, and its size, stand in the answer."""
    with OllamaLike(window=1024, loaded=False) as server:
        server.faults["POST /api/generate"] = lambda handler: say(handler, {"error": NO_ROOM}, 500)
        out = tmp_path / "out.json"
        command = ["run", server.url, "--budget", "5s", "--quiet", "--symptom", "immediate-oom"]
        code = command_line([*command, "--format", "json", "--out", str(out)])
        text = out.read_text()
    assert len(server.bodies("/api/generate")) == 1
    assert code in {1, 3}
    assert "does not load the model" in text
    assert "this server cannot count tokens" not in text
    assert json.loads(text)["verdict"]["causes"][0]["id"] == "compute-buffer-too-big"
