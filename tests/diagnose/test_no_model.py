"""Servers of many models of which none is loaded: said in words that help, and none is loaded by asking."""

import json

import pytest

from diagnose.cli import command_line
from tests.backends.loopback import Loopback

ROUTERS = {
    "llama.cpp-b11434-router": ("GET /v1/models", None, "small", "unloaded"),
    "llama-swap-250": ("GET /running", "none", None, "no such model running"),
}


@pytest.fixture(params=ROUTERS)
def router(request, tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    route, variant, model, says = ROUTERS[request.param]
    with Loopback.playing(request.param) as server:
        if variant is not None:
            server.choose[route] = variant
        yield server, (["--model", model] if model else []), says


def test_a_run_says_what_to_do(router, capsys):
    """Law: a run on a router whose model is not loaded ends as one that could not look, and says to load it; not that a tokenizer is missing."""
    server, named, says = router
    assert command_line(["run", server.url, *named, "--quiet", "--format", "json"]) == 3
    told = capsys.readouterr()
    assert says in told.out + told.err
    assert "--tokenizer" not in told.err
    assert not [path for method, path, _body in server.asked if method == "POST"]


def test_a_check_says_it_too(router, capsys):
    """Law: what is not known of the window has its reason, and nothing was sent."""
    server, named, says = router
    assert command_line(["check", server.url, *named, "--quiet", "--format", "json"]) == 4
    document = json.loads(capsys.readouterr().out)
    assert says in document["truncation"]["note"]
    assert document["sent"]["requests"] == 0
