"""Answers → facts: each answer becomes the fact of its question, and where the same thing can be measured or read, that fact too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probes.evidence.answers import Answer, Mechanisms
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.engine.fact import Fact
from rules.facts import LIKE_CAUSES, LIKEST_CAUSE, NAMED_MECHANISMS, VOCABULARY

ASKED: dict[str, Fact[Any]] = {fact.question: fact for fact in VOCABULARY if fact.question is not None}
"""Question → the fact that it asks for."""


@derivation(reads=(Answer,), gives=tuple(ASKED.values()))
def answers(sight: Sight) -> Iterator[Reading]:
    """Give every answer as its question's fact. "I don't know" cannot be asked again; what was not asked is open.

    A question that makes no sense after the other answers is said to be so: absent evidence whose origin is the question's id.
    """
    senseless = dict(sight.absent(Answer))
    given = {answer.question: (evidence, answer) for evidence, answer in sight.of(Answer)}
    for question, fact in ASKED.items():
        if question not in given:
            reason = senseless.get(question)
            yield unread(fact, reason.why if reason else "not-asked", reason.note if reason else "")
            continue
        evidence, answer = given[question]
        if answer.value is None:
            yield unread(fact, "failed", "the answer was: I don't know")
        else:
            yield reading(fact, answer.value, evidence, origin=evidence.origin or question)


@derivation(reads=(Mechanisms,), gives=(NAMED_MECHANISMS, LIKE_CAUSES, LIKEST_CAUSE))
def named_mechanisms(sight: Sight) -> Iterator[Reading]:
    """Give what a pasted report names itself, and what its words are like. Nothing can be asked for it: who tells more answers questions."""
    told = [(evidence, payload) for evidence, payload in sight.of(Mechanisms)]
    named = [(evidence, payload.named) for evidence, payload in told if payload.named]
    like = [(evidence, payload.like) for evidence, payload in told if payload.like]
    if named:
        evidence, causes = named[-1]
        yield reading(NAMED_MECHANISMS, causes, evidence, origin=evidence.origin or "report")
    else:
        yield unread(NAMED_MECHANISMS, "not-offered", "no report was pasted that names one")
    if like:
        evidence, causes = like[-1]
        yield reading(LIKE_CAUSES, causes, evidence, origin=evidence.origin or "report")
        yield reading(LIKEST_CAUSE, causes[0], evidence, origin=evidence.origin or "report")
    else:
        yield unread(LIKE_CAUSES, "not-offered", "no report was pasted that tells one")
        yield unread(LIKEST_CAUSE, "not-offered", "no report was pasted that tells one")
