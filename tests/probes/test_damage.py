"""Damage that needles do not see, on a made-up server whose cache is as coarse as it is told to be."""

import json
import math
import re

import pytest

from diagnose.findings import said_by_probes
from diagnose.plan import order_for
from probes.backends.base import Ask
from probes.backends.http import StreamPiece
from probes.backends.llamacpp import _Reading
from probes.damage import POSITIONS, DamageProbe, compare
from probes.evidence.damage import ChainScore, NextTokens, TokenDivergence
from probes.evidence.records import EvidenceSet, found
from rules.catalogue import facts_of, rule_of
from rules.engine import Known, find
from rules.facts import (
    CHAINS_BREAK,
    CHAINS_RIGHT,
    KV_BITS,
    KV_SMALLER_TYPE_SET,
    NEXT_TOKEN_HARMED,
    NEXT_TOKEN_SAME,
    SYMPTOM,
)
from tests.probes.made_up import MadeUp, context


class Coarse(MadeUp):
    """Its next-token distribution is shifted by ``error`` (in natural log units) for the likeliest token; it follows chains of ``follows`` steps."""

    def __init__(self, error=0.0, follows=9, gives=True, **more):
        super().__init__(style="question", **more)
        self.error = error
        self.follows = follows
        self.gives = gives

    def complete(self, ask):
        answer = super().complete(ask)
        if not ask.logprobs or not self.gives:
            return answer
        number = len(ask.prompt)
        first = -0.4 - (number % 5) / 10 - self.error
        rest = math.log(max(1e-9, 1 - math.exp(first)))
        top = {str(number % 97): first, str(number % 97 + 100): rest - 0.7, str(number % 97 + 200): rest - 0.7}
        return answer.model_copy(update={"logprobs": (top,)})

    def answer(self, text, length, *, chat):
        start = re.search(r"Start at box ([A-Z]+-\d+) and follow", text)
        if start:
            notes = dict(re.findall(r"Box ([A-Z]+-\d+) holds a note that says: (?:see box )?([^.\n]+)\.", text))
            at = start[1]
            for _step in range(self.follows):
                if at not in notes:
                    break
                at = notes[at]
            return f"The last note says: {at}."
        return super().answer(text, length, chat=chat)


def measured(backend, types=("q4_0", "q4_0"), earlier=(), tokens=2048):
    probe = DamageProbe(tokens, style="question", model="m", types=types, earlier=earlier)
    return probe, list(probe.collect(context(backend)))


def test_the_same_cache_gives_the_same_distributions_and_follows_chains():
    """Law: nothing is harmed where nothing differs; the text is the same in each run of a seed."""
    first, _evidence = measured(Coarse(), ("f16", "f16"))
    assert len(first.next_tokens.positions) == POSITIONS
    second, evidence = measured(Coarse(), ("q8_0", "q8_0"), [(1, first.next_tokens)])
    assert second.divergence.median == 0
    assert second.divergence.same_top == 1
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(NEXT_TOKEN_HARMED) is False
    assert facts.value(CHAINS_RIGHT) == 1.0
    assert facts.value(CHAINS_BREAK) is False


def test_a_coarse_cache_is_seen_although_single_facts_are_found():
    """Law: with every single fact found, another continuation and broken chains still name the cache type."""
    fine, _evidence = measured(Coarse(), ("f16", "f16"))
    probe, evidence = measured(Coarse(error=1.5, follows=1), ("q4_0", "q4_0"), [(1, fine.next_tokens)])
    assert probe.chains.single_hit == probe.chains.single_asked
    assert probe.chains.hit == 0
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(NEXT_TOKEN_HARMED) is True
    assert facts.value(CHAINS_BREAK) is True
    known = {SYMPTOM: Known("forgetting"), KV_BITS: Known(4.5), KV_SMALLER_TYPE_SET: Known(True)}
    assert find(rule_of("kv-quant-quality"), facts.learn(known), SYMPTOM, frozenset()).band == "likely"
    said = " ".join(one.english for one in said_by_probes(EvidenceSet(evidence)))
    assert "Chains of 3 facts" in said
    assert "Compared with run 1 (f16/f16 cache)" in said


def test_the_run_with_more_bits_is_not_blamed_for_the_difference():
    """Law: a comparison speaks about the cache of fewer bits only."""
    coarse, _evidence = measured(Coarse(error=1.5), ("q4_0", "q4_0"))
    _probe, evidence = measured(Coarse(), (None, None), [(1, coarse.next_tokens)])
    assert any(one.kind == TokenDivergence.kind for one in evidence)
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(NEXT_TOKEN_SAME) is None
    assert not facts.get(NEXT_TOKEN_HARMED).is_open()


def test_only_the_same_text_and_model_under_another_type_are_compared():
    first, _evidence = measured(Coarse(), ("f16", "f16"))
    again, _evidence = measured(Coarse(), ("f16", "f16"), [(1, first.next_tokens)])
    assert again.divergence is None
    other = first.next_tokens.model_copy(update={"text_hash": "0" * 16})
    assert compare(first.next_tokens, other, 1) is None
    assert compare(first.next_tokens, first.next_tokens.model_copy(update={"model": "another"}), 1) is None


def test_a_server_without_log_probabilities_still_gives_the_chains():
    _probe, evidence = measured(Coarse(gives=False))
    assert [one.kind for one in evidence] == [ChainScore.kind, NextTokens.kind]
    assert "log-probabilities" in evidence[1].unavailable.note


def test_a_server_that_dies_is_said():
    _probe, evidence = measured(Coarse(dies_above=500))
    assert all(one.unavailable is not None for one in evidence)


def test_llama_servers_streamed_probabilities_are_read_and_checked():
    """Law: what is no log-probability is left out; ids tell tokens of one spelling apart."""
    reading = _Reading(Ask(prompt="x", logprobs=3))
    position = {
        "id": 5,
        "token": "a",
        "logprob": -0.1,
        "top_logprobs": [
            {"id": 5, "token": "a", "logprob": -0.1},
            {"id": 6, "token": "a", "logprob": -2.5},
            {"id": 7, "token": "b", "logprob": None},
            {"id": 8, "token": "c", "logprob": 3.0},
            "nonsense",
        ],
    }
    for event in (
        {"content": "a", "completion_probabilities": [position, 17]},
        {"content": "", "stop": True, "tokens_predicted": 1},
    ):
        reading.piece(StreamPiece(0.1, json.dumps(event)))
    completion = reading.result(0.2)
    assert completion.logprobs == ({"5": -0.1, "6": -2.5},)
    assert found(completion, source="measured").payload() == completion


@pytest.mark.parametrize(
    ("mine", "other", "fewer"),
    [
        ("q4_0", "q8_0", True),
        ("q8_0", None, True),
        ("turbo3", "q8_0", True),
        ("f16", "bf16", False),
        (None, "q8_0", False),
        ("weird", "f16", False),
    ],
)
def test_runs_are_compared_where_this_one_has_fewer_bits(mine, other, fewer):
    """Law: where none was named, or the name tells none, it is what servers take: sixteen."""
    told = TokenDivergence(
        other_run=1,
        type_k=mine,
        type_v=mine,
        other_type_k=other,
        other_type_v=other,
        positions=24,
        same_top=0.5,
        median=0.9,
        p95=1.0,
    )
    facts = facts_of(EvidenceSet([found(told, source="measured")]))
    assert (facts.value(NEXT_TOKEN_HARMED) is True) is fewer


def test_it_is_asked_where_the_cache_is_quantised():
    assert "damage" not in order_for("forgetting")
    assert order_for("forgetting", damage=True)[-1] == "damage"
    beside = order_for("forgetting", damage=True, control=True)
    assert beside.index("damage") < beside.index("ladder")
    assert beside.count("damage") == 1
