"""What a client's settings and its own requests say, as facts, and which causes they bring forward."""

from __future__ import annotations

import pytest

from probes.evidence.client import ClientModel, ClientSettings, WatchSummary
from probes.evidence.records import EvidenceSet, found
from probes.evidence.subject import ModelIdentity, WindowReading
from rules.catalogue import facts_of, judge_evidence
from rules.facts import (
    CANCELLED_SECONDS,
    CLIENT_WINDOW,
    OUTPUT_TOKENS,
    PROCESSED_TOKENS,
    SENT_TOKENS,
    TOLD_PREFIX_CHANGES,
    TRUNCATED_SEEN,
)


def settings(*models, default=None):
    return found(
        ClientSettings(client="opencode", models=models, default_model=default), source="file", origin="opencode.json"
    )


def served(name):
    return found(ModelIdentity(name=name), source="server")


def watch(**told):
    return found(WatchSummary(requests=10, **told), source="measured", origin="watch")


SMALL = ClientModel(model="other-7b", context=8192, output=1024)
LARGE = ClientModel(model="Org/Qwen3-32B-Q4_K_M", context=131_072, output=4096)


@pytest.mark.parametrize(
    ("evidence", "window", "output"),
    [
        ([settings(LARGE)], 131_072, 4096),
        ([settings(SMALL, LARGE)], None, None),
        ([settings(SMALL, LARGE, default="other-7b")], 8192, 1024),
        ([settings(SMALL, LARGE, default="other-7b"), served("models/qwen3-32b-q4_k_m.gguf")], 131_072, 4096),
        ([settings(ClientModel(model="x"))], None, None),
    ],
)
def test_the_window_of_the_model_under_test_is_taken_and_nothing_is_guessed(evidence, window, output):
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(CLIENT_WINDOW) == window
    assert facts.value(OUTPUT_TOKENS) == output


def test_a_turn_that_lost_tokens_on_its_way_was_cut_without_an_error():
    """What a watch reckons to have been sent stands against what the server counted; without such a turn nothing is claimed."""
    facts = facts_of(EvidenceSet([watch(turns_lost=2, lost_sent_tokens=2056, lost_processed_tokens=1146)]))
    assert (facts.value(SENT_TOKENS), facts.value(PROCESSED_TOKENS)) == (2056, 1146)
    assert facts.value(TRUNCATED_SEEN) is True
    assert facts_of(EvidenceSet([watch()])).value(TRUNCATED_SEEN) is None


@pytest.mark.parametrize(
    ("told", "changes"),
    [
        ({"turns_compared": 6, "prefix_broken": 5, "changing_header_at_chars": 128}, True),
        ({"turns_compared": 6, "prefix_broken": 0}, False),
        ({"turns_compared": 1, "prefix_broken": 0}, None),
        ({"turns_compared": 6, "prefix_broken": 2}, None),
    ],
)
def test_beginnings_are_said_to_change_or_to_stay_only_where_that_was_seen(told, changes):
    assert facts_of(EvidenceSet([watch(**told)])).value(TOLD_PREFIX_CHANGES) is changes


def test_what_was_seen_stands_above_what_the_settings_say():
    facts = facts_of(EvidenceSet([settings(LARGE), watch(believed_window=32_768, client_timeout_s=60.0)]))
    assert facts.value(CLIENT_WINDOW) == 32_768
    assert facts.value(CANCELLED_SECONDS) == 60.0
    assert any(one.fact is CLIENT_WINDOW for one in facts.conflicts)


def test_a_client_that_believes_in_another_window_comes_forward():
    evidence = EvidenceSet([settings(LARGE), found(WindowReading(in_force=16_384), source="server")])
    finding = judge_evidence(evidence, "triage")[0].of("client-ctx-mismatch")
    assert any(clue.now >= 10 for clue in finding.clues)


def test_a_header_that_changes_comes_forward():
    judgement, _facts = judge_evidence(
        EvidenceSet([watch(turns_compared=6, prefix_broken=6, changing_header_at_chars=64)]), "triage"
    )
    assert judgement.of("prompt-cache-miss-prefix-changed").now >= 10
