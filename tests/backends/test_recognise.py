"""A server is told by harmless GETs, whatever it imitates and whatever a proxy takes away."""

from __future__ import annotations

import socket
import time

import pytest

from probes.backends.beellama import BeeLlama
from probes.backends.http import Http
from probes.backends.llama_router import LlamaRouter
from probes.backends.recognise import BACKENDS, MOST_GETS, MOST_SECONDS, recognise, recognise_command
from probes.evidence.errors import (
    CtxDoctorError,
    InputError,
    NoAnswerInTimeError,
    NotOfferedError,
    StillLoadingError,
    UnreachableError,
    WrongKeyError,
)

from .loopback import Loopback, hang_up, no_http, plain, redirect, silence

RECORDED = {
    "koboldcpp-1.102": "koboldcpp",
    "tabbyapi-e632af41": "tabbyapi",
    "llama-swap-250": "llama-swap",
    "llama-swap-170": "llama-swap",
    "ollama-0.33.0": "ollama",
    "lm-studio-0.4": "lm-studio",
    "lm-studio-0.3.17": "lm-studio",
    "vllm-0.33.0": "vllm",
    "sglang-0.5.23": "sglang",
    "ik_llama.cpp-8337e4cd": "ik_llama.cpp",
    "llama.cpp-b11434": "llama.cpp",
    "llama.cpp-b11434-router": "llama.cpp",
    "llama-manager-2026": "llama-manager",
    "text-generation-webui-4.7.3": "text-generation-webui",
    "text-generation-webui-4.7.3-transformers": "text-generation-webui",
    "llama-cpp-python-0.3.36": "llama-cpp-python",
    "mlx_lm-0.32.2": "mlx_lm",
    "openai-compatible-proxy": "openai-compatible",
}


@pytest.mark.parametrize(("name", "backend"), RECORDED.items())
def test_each_server_is_recognised_by_few_harmless_gets(name, backend):
    """At most 16 GETs and 2 seconds; no POST; nothing that names a model, which could load it."""
    with Loopback.playing(name) as server, Http(server.url) as http:
        started = time.monotonic()
        found = recognise(http)
        assert time.monotonic() - started < MOST_SECONDS
        assert found.name == backend
        assert isinstance(found, LlamaRouter) == (name == "llama.cpp-b11434-router")
        assert len(server.asked) <= MOST_GETS
        assert {method for method, _path, _body in server.asked} == {"GET"}
        assert not any("model=" in path or "upstream" in path or "load" in path for path in server.paths)


@pytest.mark.parametrize(("name", "backend"), [(n, b) for n, b in RECORDED.items() if b != "mlx_lm"])
def test_a_proxy_that_strips_the_server_header_changes_nothing(name, backend):
    """Every server but mlx_lm.server, whose only early sign that header is, has a sign in its answers."""
    with Loopback.playing(name, strip=("Server",)) as server, Http(server.url) as http:
        assert recognise(http).name == backend


def test_mlx_without_its_header_is_not_guessed():
    """Without the header it is an OpenAI server like any other, until its completion tells."""
    with Loopback.playing("mlx_lm-0.32.2", strip=("Server",)) as server, Http(server.url) as http:
        assert recognise(http).name == "openai-compatible"
    with Loopback.playing("mlx_lm-0.32.2", strip=("Server",)) as server, Http(server.url) as http:
        assert recognise(http, "mlx_lm").name == "mlx_lm"


def test_mlx_that_lists_no_cache_is_still_found():
    """Without a model cache it answers its list of models with 200 and nothing."""
    with Loopback.playing("mlx_lm-0.32.2") as server, Http(server.url) as http:
        server.choose["GET /v1/models"] = "no-cache"
        assert recognise(http).name == "mlx_lm"


def test_a_loading_server_is_said_to_load_with_its_kind():
    """llama-server answers 503 to everything while it loads."""
    with (
        Loopback.playing("llama.cpp-b11434-loading") as server,
        Http(server.url) as http,
        pytest.raises(StillLoadingError, match=r"llama\.cpp"),
    ):
        recognise(http)


def test_a_server_that_wants_another_key_says_so():
    """A wrong key is not an unknown server."""
    with (
        Loopback.playing("llama.cpp-b11434-key") as server,
        Http(server.url) as http,
        pytest.raises(WrongKeyError, match=r"llama\.cpp"),
    ):
        recognise(http)
    guarded = {
        f"GET {path}": {"status": 401, "json": {"error": "Unauthorized"}}
        for path in ("/v1/models", "/v1/internal/model/info")
    }
    with (
        Loopback({"GET /version": {"json": {"version": "0.33.0"}}, **guarded}) as server,
        Http(server.url) as http,
        pytest.raises(WrongKeyError, match="vllm"),
    ):
        recognise(http)
    with (
        Loopback({}, default={"status": 401, "json": {"error": "Unauthorized"}}) as server,
        Http(server.url) as http,
        pytest.raises(WrongKeyError),
    ):
        recognise(http)


def test_a_hint_decides_only_where_the_answers_do_not():
    """A fork that answers as mainline does; a name against the answers; a name that does not exist."""
    with Loopback.playing("llama.cpp-b11434") as server, Http(server.url) as http:
        assert isinstance(recognise(http, "beellama.cpp"), BeeLlama)
        assert recognise(http, "ollama").name == "llama.cpp"
        with pytest.raises(InputError, match="koboldcpp"):
            recognise(http, "nonsense")


def test_nothing_there_and_something_else_there():
    """No listener, a web page, a stranger's protocol, silence: each its own error, in time."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with Http(f"http://127.0.0.1:{port}") as http, pytest.raises(UnreachableError):
        recognise(http)
    cases = [
        (plain("<html><title>Welcome to nginx!</title></html>", "text/html"), NotOfferedError),
        (plain('{"data": 5, "models": {"a": null}, "version": {}, "software": []}'), NotOfferedError),
        (plain("[]"), NotOfferedError),
        (plain('"text"'), NotOfferedError),
        (redirect("http://192.0.2.1/elsewhere"), CtxDoctorError),
        (hang_up, CtxDoctorError),
        (no_http, CtxDoctorError),
        (silence, NoAnswerInTimeError),
    ]
    for fault, expected in cases:
        with Loopback() as server, Http(server.url) as http:
            server.faults["*"] = fault
            started = time.monotonic()
            with pytest.raises(expected):
                recognise(http)
            assert time.monotonic() - started < MOST_SECONDS + 1
            assert len(server.asked) <= MOST_GETS


def test_lies_of_the_right_shape_are_not_believed():
    """Objects where lists belong, numbers where texts belong, a thousand empty entries."""
    lies = {
        "GET /v1/models": {"json": {"data": [None, 5, "x", {"owned_by": ["vllm"]}] * 250}},
        "GET /api/v1/models": {"json": {"models": [{"loaded_instances": None}]}},
        "GET /version": {"json": {"version": []}},
        "GET /props": {"json": {"build_info": "b1-x"}},
        "GET /openapi.json": {"json": {"paths": ["/extras/tokenize"]}},
        "GET /running": {"json": {"running": 7}},
        "GET /api/version": {"json": {"version": "1", "commit": "x"}},
    }
    with Loopback(lies) as server, Http(server.url) as http:
        assert recognise(http).name == "openai-compatible"


def test_a_fork_is_told_by_its_command():
    """beellama.cpp has no sign over HTTP."""
    assert recognise_command(["llama-server", "-m", "x", "-ctk", "kvarn5"]) is BeeLlama
    assert recognise_command(["nginx"]) is None
    assert recognise_command(["llama-server", "-ctv", "turbo3_tcq"]) is BeeLlama
    assert recognise_command(["llama-server", "-ctv", "q8_0"]) is not BeeLlama


def test_every_backend_says_what_it_offers():
    """Each names itself once and offers at least who it is."""
    assert all("identity" in cls.offers for cls in BACKENDS.values())
    assert set(BACKENDS) >= set(RECORDED.values()) | {"beellama.cpp"}
