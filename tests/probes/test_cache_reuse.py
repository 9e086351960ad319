"""The prompt cache as an ordinary client finds it: kept, switched off, or one that cannot go back."""

import pytest

from probes.cache_reuse import CacheReuseProbe
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, found
from probes.evidence.subject import BackendIdentity, Configuration, Setting
from rules.catalogue import facts_of, judge_facts
from rules.engine import Known
from rules.facts import (
    CACHED_ON_EXTENSION,
    CACHED_ON_REPEAT,
    CACHED_ON_RETURN,
    FULL_REPROCESS_REASON,
    PROMPT_CACHE_ON,
    SLIDING_WINDOW,
    SPEED_COMPLAINT,
    SYMPTOM,
)
from tests.probes.made_up import MadeUp, context, pieces


class Forward(MadeUp):
    """A state that can go on but not back further than ``back`` tokens, as a sliding window without checkpoints."""

    back = 200

    def complete(self, ask):
        before, new = list(self.cache), pieces(ask.prompt)
        common = next(
            (n for n, (a, b) in enumerate(zip(before, new, strict=False)) if a != b), min(len(before), len(new))
        )
        if len(before) - common > self.back:
            self.cache = []
        return super().complete(ask)


class OffByDefault(MadeUp):
    """Uses its cache only where a request asks for it."""

    def complete(self, ask):
        if ask.cache_as_served:
            ask = type(ask)(prompt=ask.prompt, max_tokens=ask.max_tokens, use_cache=False)
        return super().complete(ask)


def looked(backend):
    probe = CacheReuseProbe(1000)
    return probe.reading, facts_of(EvidenceSet(list(probe.collect(context(backend)))))


def test_a_cache_that_can_go_back_is_whole():
    _reading, facts = looked(MadeUp())
    assert all(facts.value(one) > 0.9 for one in (CACHED_ON_REPEAT, CACHED_ON_EXTENSION, CACHED_ON_RETURN))


def test_a_state_that_cannot_go_back_is_seen_only_when_a_chat_goes_back():
    """Law: repeated and extended prompts are quick, the earlier one is read anew; with sliding-window layers that has a name."""
    _reading, facts = looked(Forward())
    assert facts.value(CACHED_ON_REPEAT) > 0.9
    assert facts.value(CACHED_ON_EXTENSION) > 0.9
    assert facts.value(CACHED_ON_RETURN) == 0
    told = {SYMPTOM: Known("slow-long-context"), SPEED_COMPLAINT: Known(True), SLIDING_WINDOW: Known(512)}
    judged = judge_facts(facts.learn(told), "run")
    assert judged.named == ("prompt-cache-miss-swa-hybrid",)


def test_a_cache_that_is_off_unless_a_request_asks_is_found_off():
    """Law: what an ordinary client gets is measured, not what a request could ask for; settings that say so name it."""
    probe = CacheReuseProbe(1000)
    evidence = list(probe.collect(context(OffByDefault())))
    settings = Configuration(
        settings={"cache_prompt": Setting(value=False, source="process")}, command=("llama-server",)
    )
    evidence += [
        found(BackendIdentity(name="llama.cpp"), source="server"),
        found(settings, source="process"),
    ]
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(CACHED_ON_REPEAT) == 0
    assert facts.value(PROMPT_CACHE_ON) is False
    judged = judge_facts(facts.learn({SYMPTOM: Known("slow-long-context"), SLIDING_WINDOW: Known(512)}), "run")
    assert judged.named == ("prompt-cache-not-implemented",)


@pytest.mark.parametrize(
    ("said", "reason"),
    [("swa-or-hybrid", "swa"), ("hybrid", "hybrid"), ("prefix", "prefix"), ("moon", "unknown"), (None, "unknown")],
)
def test_the_logs_reason_is_one_of_ours(said, reason):
    event = found(LogEvent(event="full-reprocess", line=1, text="x", reason=said), source="log")
    assert facts_of(EvidenceSet([event])).value(FULL_REPROCESS_REASON) == reason
