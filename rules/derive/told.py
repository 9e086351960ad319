"""Answers → facts: each answer becomes the fact of its question, and where the same thing can be measured or read, that fact too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probes.evidence.answers import Answer, Mechanisms
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.engine.fact import Fact
from rules.facts import NAMED_MECHANISMS, VOCABULARY

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


@derivation(reads=(Mechanisms,), gives=(NAMED_MECHANISMS,))
def named_mechanisms(sight: Sight) -> Iterator[Reading]:
    """Give what a pasted report names itself. Nothing can be asked for it: who tells more answers questions."""
    named = [(evidence, payload) for evidence, payload in sight.of(Mechanisms) if payload.named]
    if not named:
        yield unread(NAMED_MECHANISMS, "not-offered", "no report was pasted that names one")
        return
    evidence, payload = named[-1]
    yield reading(NAMED_MECHANISMS, payload.named, evidence, origin=evidence.origin or "report")
