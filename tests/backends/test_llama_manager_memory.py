"""Where llama-manager's own llama-server says that the memory is: asked by one GET that loads nothing, evidence of the run, held against a prediction."""

from __future__ import annotations

import pytest

from diagnose import look, memory
from diagnose.document import _memory
from probes import process
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import BufferTruth, MemoryBudget, MemoryScore
from probes.evidence.records import EvidenceSet, found
from rules import facts as f
from rules.catalogue import facts_of
from tests.backends.loopback import Loopback, plain

RECORDING = "llama-manager-2026"
GB = 10**9


class _Process:
    def __init__(self, *argv: str, children: tuple[int, ...] = ()) -> None:
        self.argv, self.environment, self.children = argv, {}, children


@pytest.fixture
def played(monkeypatch):
    """The manager, and the llama-server behind it: both play the recording, each at an address of its own."""
    with Loopback.playing(RECORDING) as manager, Loopback.playing(RECORDING) as router:
        port = router.url.rpartition(":")[2]
        child = _Process("/opt/llama-server", "--models-preset", "p.ini", "--host", "127.0.0.1", "--port", port)
        monkeypatch.setattr(process, "process_behind", lambda _url: _Process("node", children=(7,)))
        monkeypatch.setattr(process, "read_process", lambda _pid: child)
        yield manager, router


def looked(manager: Loopback, model: str | None = None) -> EvidenceSet:
    with Http(manager.url) as http:
        return EvidenceSet(list(look.at_server(recognise(http, model=model), 1)))


@pytest.mark.parametrize("model", [None, "big", "coder"])
def test_one_get_that_loads_nothing_tells_it_by_device_and_component(played, model):
    """Law: the model is named by its own name, whatever it was called, and never loaded for the answer."""
    manager, router = played
    seen = looked(manager, model)
    ((record, told),) = seen.of(MemoryBudget)
    assert record.source == "server"
    assert {one.component: one.size_bytes for one in told.buffers} == {
        "weights": 16 * GB,
        "kv": 5 * GB,
        "compute": GB // 2,
        "draft": 1_050_000_000,
        "projector": GB,
    }
    assert [(method, path) for method, path, _body in router.asked] == [("GET", "/memory?model=big&autoload=false")]
    assert all(method == "GET" for method, _path, _body in manager.asked)


def test_it_is_facts_and_stands_in_the_document_as_the_servers_own(played):
    seen = looked(played[0])
    facts = facts_of(seen)
    assert facts.value(f.KV_BYTES) == 5 * GB
    assert facts.get(f.KV_BYTES).source == "server"
    shown = _memory(seen)
    assert shown.basis == "server"
    assert [(one.id, one.weights_bytes, one.kv_bytes) for one in shown.devices] == [("CUDA0", 16 * GB, 5 * GB)]


@pytest.mark.parametrize(("kv", "agrees"), [(5 * GB, True), (9 * GB, False)])
def test_it_is_held_against_the_prediction(played, kv, agrees):
    """Law: what the server tells counts as what its log would."""
    sizes = {"weights": 16 * GB, "kv": kv, "compute": GB // 2, "draft": 1_050_000_000, "projector": GB}
    predicted = MemoryBudget(
        basis="model",
        buffers=tuple(BufferTruth(device="CUDA0", component=name, size_bytes=size) for name, size in sizes.items()),
    )
    seen = looked(played[0])
    whole = EvidenceSet([found(predicted, source="file"), *seen.all])
    (score,) = [one.payload() for one in memory.explain(whole, 1) if one.kind == MemoryScore.kind]
    assert [one.agrees for one in score.differences] == [agrees]


def test_where_it_cannot_be_asked_it_is_not_offered_with_the_reason(played, monkeypatch):
    manager, router = played
    router.faults["GET /memory"] = plain('{"error":"not found"}', status=404)
    assert "HTTP 404" in looked(manager).why_not(MemoryBudget).note
    router.faults["GET /memory"] = plain('{"devices":[]}')
    assert "sizes by device" in looked(manager).why_not(MemoryBudget).note
    monkeypatch.setattr(process, "process_behind", lambda _url: _Process("node"))
    unseen = looked(manager).why_not(MemoryBudget)
    assert unseen.why == "not-offered"
    assert "no llama-server" in unseen.note


def test_a_manager_elsewhere_or_without_a_model_is_not_asked(played):
    manager, router = played
    manager.faults["GET /v1/models"] = plain(
        '{"data":[{"id":"big","owned_by":"llama-manager","aliases":[],"active":false}]}'
    )
    assert "no model active" in looked(manager).why_not(MemoryBudget).note
    assert router.asked == []


def test_other_servers_are_not_asked_and_nothing_is_said_of_them():
    """Law: only one server tells it; all others are asked for nothing, and their logs are not called missing."""
    with Loopback.playing("llama.cpp-b11434") as server:
        seen = looked(server)
        assert not [path for path in server.paths if path.startswith("/memory")]
    assert not [one for one in seen.all if one.kind == MemoryBudget.kind]


def test_a_closed_port_behind_it_fails_in_one_line(monkeypatch):
    child = _Process("/opt/llama-server", "--models-preset", "p.ini", "--port", "9")
    monkeypatch.setattr(process, "process_behind", lambda _url: _Process("node", children=(7,)))
    monkeypatch.setattr(process, "read_process", lambda _pid: child)
    with Loopback.playing(RECORDING) as manager:
        why = looked(manager).why_not(MemoryBudget)
    assert why.why == "failed"
    assert "\n" not in why.note


def test_the_router_alone_is_no_model(played):
    """A model that the router does not know is refused by it, and not loaded."""
    from probes.backends.llama_manager import ask_memory

    _manager, router = played
    with Http(router.url) as http, pytest.raises(NotOfferedError):
        ask_memory(http, "other")
