"""Servers that start others: what is asked of whom, which process holds the model, and where a setting is changed. Nothing is loaded by looking."""

from __future__ import annotations

import contextlib

import pytest

from diagnose.steps import with_command
from probes.backends.base import Ask
from probes.backends.commands import parse_preset
from probes.backends.fronts import LLAMA_SWAP, ROUTER, front_steps
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.backends.settings_files import with_files
from probes.evidence.errors import NotOfferedError, StillLoadingError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.subject import BackendIdentity, Configuration
from probes.process import ServerProcess
from rules.verdict import Cost, NextTest

from .loopback import Loopback, recording

SWAP, ROUTED = "llama-swap-250", "llama.cpp-b11434-router"


@contextlib.contextmanager
def played(name: str, model: str | None = None, **chosen: str):
    with Loopback.playing(name) as server, Http(server.url) as http:
        server.choose |= {f"GET /{path.replace('__', '/')}": variant for path, variant in chosen.items()}
        yield server, recognise(http, model=model)


def test_a_model_may_be_named_by_its_alias():
    """The list of models tells the aliases; another name is not taken for one."""
    with played(SWAP, "gpt-4o") as (server, backend):
        assert backend.window().slots == 3
        assert backend.model == "coder"
        assert all("gpt-4o" not in path for path in server.paths)
    with played(SWAP, "gpt-5") as (server, backend):
        with pytest.raises(NotOfferedError, match="no such model running"):
            backend.window()
        assert not any("upstream" in path for path in server.paths)
    with played(ROUTED, "gpt-4o") as (_server, backend):
        assert backend.window().slots == 3
        assert backend.model == "big"


def test_no_look_follows_a_model_that_was_unloaded():
    """Another client's model has its place, or its time is over: nothing below ``/upstream`` is asked any more until a completion is."""
    for variant in ("another", "none", "stopping"):
        with played(SWAP, "coder") as (server, backend):
            assert backend.window().slots == 3
            server.choose["GET /running"] = variant
            server.asked.clear()
            assert backend.busy() is None
            with pytest.raises(NotOfferedError):
                backend.forget()
            with pytest.raises(NotOfferedError):
                backend.window()
            assert not any("upstream" in path for path in server.paths)


def test_a_completion_loads_again_what_was_unloaded_since():
    """A run that has begun goes on: what is sent to its model brings it back. Before the first look nothing is sent to a model that is not loaded."""
    with played(SWAP, "coder") as (server, backend):
        backend.window()
        server.choose["GET /running"] = "another"
        with pytest.raises(NotOfferedError):
            backend.forget()
        assert backend.identity().name == "llama.cpp"
        assert backend.complete(Ask(prompt="x")).error is None
    with Loopback.playing(ROUTED) as server, Http(server.url) as http:
        backend = recognise(http, model="big")
        backend.window()
        server.answers["GET /v1/models"]["json"]["data"][0]["status"]["value"] = "unloaded"
        backend.forget()
        with pytest.raises(NotOfferedError):
            backend.window()
        assert backend.complete(Ask(prompt="x")).error is None
        with pytest.raises(NotOfferedError):
            recognise(http, model="big").complete(Ask(prompt="x"))


def test_a_completion_of_a_model_that_does_not_start_is_an_error_of_the_server():
    """With llama-swap's own words."""
    with played(SWAP) as (server, backend):
        server.choose["POST /upstream/coder/completion"] = "did-not-start"
        error = backend.complete(Ask(prompt="x")).error
        assert (error.error, error.status) == ("server-error", 500)
        assert "exited prematurely" in error.message


def test_a_model_that_a_router_could_not_load_is_said_to_have_failed():
    """With its exit code; it is not asked."""
    with (
        played(ROUTED, "broken") as (_server, backend),
        pytest.raises(NotOfferedError, match="failed with exit code 1"),
    ):
        backend.window()


def test_a_gateway_error_at_once_is_asked_again():
    """llama-swap took a connection that the server had just closed: nothing was asked, so nothing is said of the length. A second one stands."""
    lost = {"status": 502, "text": ""}
    answer = recording(SWAP)["answers"]["POST /upstream/coder/completion"]
    for answers, asked, error in (([lost, answer], 2, None), ([lost, lost, answer], 2, "connection-lost")):
        with played(SWAP) as (server, backend):
            server.answers["POST /upstream/coder/completion"] = {"sequence": answers}
            told = backend.complete(Ask(prompt="x"))
            assert (told.error.error if told.error else None) == error
            assert len(server.bodies("/upstream/coder/completion")) == asked
    with played(SWAP) as (server, backend):
        backend.window()
        server.answers["POST /upstream/coder/completion"] = {"sequence": [lost, answer]}
        server.choose["GET /running"] = "none"
        assert backend.complete(Ask(prompt="x")).error.error == "connection-lost"


def test_a_model_that_is_loading_is_said_to_be():
    """So that a look waits for it instead of asking the user to load it."""
    with played(SWAP, running="starting") as (_server, backend), pytest.raises(StillLoadingError):
        backend.still_loading()
    with Loopback.playing(ROUTED) as server, Http(server.url) as http:
        server.answers["GET /v1/models"]["json"]["data"][1]["status"]["value"] = "loading"
        with pytest.raises(StillLoadingError):
            recognise(http, model="small").still_loading()
        recognise(http, model="big").still_loading()
    for name in (SWAP, ROUTED, "llama.cpp-b11434"):
        with played(name) as (_server, backend):
            backend.still_loading()


@pytest.mark.parametrize(("name", "port"), [(SWAP, 41_000), (ROUTED, 41_001)])
def test_the_process_that_holds_the_model_is_the_one_behind(name, port):
    """Its command line and memory are looked at, not those of what stands before it."""
    with played(name) as (server, backend):
        assert backend.holder().rsplit(":", 1)[1] == str(port)
        assert server.bodies("/completion") == []
    with played(SWAP, running="none") as (server, backend):
        assert backend.holder() == server.url


def test_the_server_behind_says_what_it_is_and_can():
    """The prompt cache is switched off where that server can, and an overlong prompt is known to be refused unprocessed."""
    with played(SWAP) as (_server, backend):
        assert (backend.engine, backend.can("cache-off")) == ("llama-swap", False)
        backend.window()
        assert (backend.engine, backend.can("cache-off"), backend.can("server-times")) == ("llama.cpp", True, True)
        identity = backend.identity()
        assert (identity.front, identity.front_model) == (LLAMA_SWAP, "coder")
    with played(ROUTED, "big") as (_server, backend):
        assert (backend.identity().front, backend.identity().front_model) == (ROUTER, "big")
    with played("llama.cpp-b11434") as (server, backend):
        assert (backend.engine, backend.holder(), backend.identity().front) == ("llama.cpp", server.url, None)


def test_a_llama_swap_of_before_is_told_by_its_models():
    """Until the end of 2025 it had no ``/api/version``, and its ``/running`` no command."""
    with played("llama-swap-170") as (server, backend):
        assert backend.name == "llama-swap"
        assert len(server.asked) <= MOST_GETS
        assert not any("upstream" in path for path in server.paths)
        assert backend.window().slots == 3
        assert backend.configuration().command is None
        assert backend.identity().front == LLAMA_SWAP
        assert backend.holder() == server.url


def swap_process(tmp_path, text: str) -> ServerProcess:
    (tmp_path / "config.yaml").write_text(text)
    return ServerProcess(1, 0.0, ("llama-swap", "-config", "config.yaml", "-listen", ":8080"), {}, str(tmp_path))


TEXT = """
macros:
  server: llama-server --port ${PORT}
models:
  coder:
    cmd: ${server} -m /m/coder.gguf -c 65536 -np 2
  small:
    cmd: ${server} -m /m/small.gguf -c 2048
"""


def test_llama_swaps_own_command_is_none_of_the_servers(tmp_path, monkeypatch):
    """Where the server behind cannot be seen, its command comes from llama-swap's file; llama-swap's flags are never the server's."""
    process = swap_process(tmp_path, TEXT)
    monkeypatch.setattr("probes.backends.settings_files._of_process", lambda _process, name: tmp_path / name)
    read = with_files(process, "llama.cpp", "coder")
    assert {name: read.settings[name].value for name in ("ctx", "parallel")} == {"ctx": 65_536, "parallel": 2}
    assert read.command[0] == "llama-server"
    for model in (None, "unheard-of"):
        unread = with_files(process, "llama-swap", model)
        assert (unread.settings, unread.command) == ({}, None)
        assert unread.unread
    (tmp_path / "config.yaml").write_text("models: {coder: {cmd: [1]}}")
    assert with_files(process, "llama-swap", "coder").settings == {}


@pytest.mark.parametrize(
    ("front", "says"),
    [(LLAMA_SWAP, "In llama-swap's configuration, write -np {n} into"), (ROUTER, "write: parallel = {n}")],
)
def test_a_setting_is_changed_where_the_front_keeps_it(front, says):
    """The next test is steps in the front's configuration, not a command that nobody starts by hand."""
    steps = front_steps(front, "llama.cpp", "parallel", 1, "coder")
    assert says.format(n=1) in steps[0].english
    assert "coder" in steps[0].english
    assert "one request" in steps[-1].english
    pieces = [
        found(Configuration(command=("llama-server", "-np", "2")), source="process"),
        found(BackendIdentity(name="llama.cpp", router=True, front=front, front_model="coder"), source="server"),
    ]
    change = NextTest(
        kind="change", variable="parallel", start=2, to=1, cost=Cost(minutes=3, quality="none"), reason=""
    )
    step = with_command(change, EvidenceSet(pieces))
    assert step.command.splitlines() == [one.english for one in steps]
    assert says.format(n=2) in step.undo
    with pytest.raises(NotOfferedError):
        front_steps("another", "llama.cpp", "parallel", 1, "coder")
    with pytest.raises(NotOfferedError):
        front_steps(front, "llama.cpp", "unheard_of", 1, "coder")


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("ctx", 65_536, "ctx-size = 65536"),
        ("kv_unified", True, "kv-unified = true"),
        ("kv_unified", False, "kv-unified = false"),
        ("kv_offload", False, "kv-offload = false"),
        ("mmproj_offload", False, "mmproj-offload = false"),
        ("swa_full", True, "swa-full = true"),
        ("flash_attention", "on", "flash-attn = on"),
        ("kv_type", "q8_0", "cache-type-k = q8_0; cache-type-v = q8_0"),
        ("tensor_split", [1.0, 2.0], "tensor-split = 1,2"),
        ("mmap", False, "load-mode = none"),
    ],
)
def test_lines_of_a_preset_are_read_back_as_the_setting(variable, value, line):
    """The long name without its dashes; what is written there is what our own reader of presets reads."""
    step = front_steps(ROUTER, "llama.cpp", variable, value, "m")[0].english
    assert step.endswith(f"write: {line}")
    read = parse_preset("[m]\n" + line.replace("; ", "\n") + "\n", "m").settings
    told = read["kv_type_k" if variable == "kv_type" else variable].value
    assert told == value
    out = front_steps(ROUTER, "llama.cpp", variable, None, "m")[0].english
    assert "take out the line" in out
