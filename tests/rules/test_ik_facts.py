"""Facts of ik_llama.cpp: a guess of its log about a model is held against what the model is."""

from __future__ import annotations

from typing import Any

import pytest

from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, Payload, found
from probes.evidence.subject import BackendIdentity, ModelFile
from rules import facts as f
from rules.catalogue import facts_of


def facts(*payloads: Payload) -> Any:
    return facts_of(
        EvidenceSet([found(one, source="log" if isinstance(one, LogEvent) else "file") for one in payloads])
    )


def file(**what: Any) -> ModelFile:
    return ModelFile(path="m.gguf", size_bytes=1, format="gguf", header_hash="0", **what)


@pytest.mark.parametrize(
    ("reason", "told", "expected"),
    [
        ("swa", (), "swa"),
        ("swa", (LogEvent(event="model-info", key="n_swa", value=512, line=1),), "swa"),
        ("swa", (LogEvent(event="model-info", key="n_swa", value=0, line=1),), "unknown"),
        ("swa-or-hybrid", (LogEvent(event="model-info", key="n_swa", value=0, line=1),), "swa"),
        ("swa-or-hybrid", (file(sliding_window=None, recurrent=True),), "swa"),
        ("swa-or-hybrid", (file(sliding_window=None, recurrent=False),), "unknown"),
        ("swa-or-hybrid", (file(sliding_window=512, recurrent=False),), "swa"),
    ],
)
def test_what_a_log_calls_likely_is_not_taken_against_the_model(reason, told, expected):
    """Law: layers that the model does not have are no reason to read all again; a stored state that was not put back says the same."""
    line = LogEvent(event="full-reprocess", reason=reason, line=9)
    assert facts(line, *told).value(f.FULL_REPROCESS_REASON) == expected


def test_a_command_cannot_tell_a_fork():
    """Law: its program is called llama-server, too; what the log or the server says of itself is no contradiction to that."""
    guess = BackendIdentity(name="llama.cpp", recognised_by="its command line")
    own = LogEvent(event="program", name="ik_llama.cpp", line=1)
    assert facts(guess).value(f.BACKEND) == "llama.cpp"
    got = facts(guess, own)
    assert got.value(f.BACKEND) == "ik_llama.cpp"
    assert not [one for one in got.conflicts if one.fact is f.BACKEND]
    assert (
        facts(guess, BackendIdentity(name="ik_llama.cpp", recognised_by="Server: ik_llama.cpp at /props")).value(
            f.BACKEND
        )
        == "ik_llama.cpp"
    )
