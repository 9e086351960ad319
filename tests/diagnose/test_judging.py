"""What is proposed next after a run is judged: never a change to what is set already."""

from __future__ import annotations

import pytest

from diagnose.judging import set_already
from probes.evidence.answers import Answer
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import CacheReuse
from probes.evidence.subject import BackendIdentity, Configuration, Setting
from rules.catalogue import judge_evidence
from rules.verdict import next_step


@pytest.mark.parametrize(("values", "offered"), [((True,), False), ((False,), True), ((), True), ((True, False), True)])
def test_a_setting_is_not_changed_to_what_it_is(values, offered):
    """Law: a change to the value that the configuration holds, by what was read last, changes nothing, and is not proposed."""
    settings = [Configuration(settings={"cache_prompt": Setting(value=one, source="process")}) for one in values]
    reuse = CacheReuse(prefix_tokens=1000, cached_on_repeat=0, cached_on_extension=0, cached_on_return=0)
    never = Answer(question="same_prompt_again", value="never")
    pieces = (BackendIdentity(name="llama.cpp"), *settings, reuse, never)
    evidence = EvidenceSet([found(one, source="measured") for one in pieces])
    judgement, facts = judge_evidence(evidence, "session")
    past, proposed = set_already(evidence), set()
    while (step := next_step(judgement, facts, (), past)) is not None:
        proposed.add((step.variable, step.to))
        past = past | {(step.variable, repr(step.to))}
    assert judgement.findings[0].cause == "prompt-cache-not-implemented"
    assert (("cache_prompt", True) in proposed) is offered
