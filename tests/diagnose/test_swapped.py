"""A model that was unloaded and loaded again while it was measured is said to have been."""

from __future__ import annotations

from diagnose.findings import said_by_probes
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Restarted


def test_it_is_said():
    """Times of single requests may hold a load, and the prompt cache was lost."""
    one = found(Restarted(because="swapped", healthy=True, seconds=0.0), source="measured")
    assert any("unloaded and loaded again" in words.english for words in said_by_probes(EvidenceSet([one])))
    assert not any("loaded again" in words.english for words in said_by_probes(EvidenceSet([])))
