"""Public reports beyond the development set: the cause that the thread ended with stands among the first three, and no wrong one is named."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from probes.evidence.records import EvidenceSet
from probes.logs import read_pasted
from rules.catalogue import judge_evidence

THREADS = tomllib.loads((Path(__file__).parent / "public_threads.toml").read_text(encoding="utf-8"))["thread"]


@pytest.mark.parametrize("thread", THREADS, ids=[one["url"].split("github.com/")[1] for one in THREADS])
def test_the_cause_of_a_public_thread_is_among_the_first_three(thread: dict[str, str]) -> None:
    judgement, _facts = judge_evidence(EvidenceSet(read_pasted(thread["text"])), "triage")
    weighed = [finding.cause for finding in judgement.findings if finding.now > 0]
    assert thread["cause"] in weighed[:3]
    assert set(judgement.named) <= {thread["cause"]}
