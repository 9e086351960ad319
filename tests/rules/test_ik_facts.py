"""Facts of ik_llama.cpp: a guess of its log about a model is held against what the model is."""

from __future__ import annotations

from typing import Any

import pytest

from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, Payload, found
from probes.evidence.subject import ModelFile
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
