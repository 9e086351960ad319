"""The JSON Schemas of every document, made from the code that writes them or, for plain lists, described here and held to it by tests."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, RootModel

from diagnose.case import Entry
from diagnose.check import CheckDocument
from diagnose.estimate import Estimate
from diagnose.explain import ExplainDocument
from probes.evidence import answers, client, events, machine, request, rungs, subject
from probes.evidence.answers import Answer
from probes.evidence.records import Evidence, Payload, Text
from reports.document import CaseDocument, Part, Quality, TestKind


class RuleClue(Part):
    """One clue of a rule: decibans if it holds and if it does not; ``when`` is its condition."""

    words: Text
    if_true: int
    if_false: int
    facts: tuple[str, ...]
    when: Text


class RuleExpectation(Part):
    """What a re-run shows under a cause."""

    cause: str
    words: Text


class RuleTestCost(Part):
    """What a test costs."""

    minutes: float
    quality: Quality


class RuleTest(Part):
    """One change, probe, question or habit that a rule proposes."""

    kind: TestKind
    variable: str
    from_: Any = Field(default=None, alias="from")
    to: Any = None
    keep: tuple[str, ...] = ()
    reason: Text
    expects: tuple[RuleExpectation, ...] = ()
    cost: RuleTestCost


class RuleCase(Part):
    """One case of a rule: facts, and the bands that may come out."""

    name: str
    kind: Literal["fires", "silent", "cannot-tell", "look-alike"]
    band: tuple[str, ...]
    facts: dict[str, Any]


class RuleItem(Part):
    """One rule of the catalogue."""

    id: str
    cause: str
    family: str
    words: Text
    document: str
    explains: tuple[str, ...] = ()
    prior: dict[str, int] = Field(default_factory=dict)
    clues: tuple[RuleClue, ...]
    next_test: RuleTest | None = None
    tests: tuple[RuleTest, ...] = ()
    cases: tuple[RuleCase, ...] = ()


class RulesDocument(RootModel[tuple[RuleItem, ...]]):
    """The ``rules`` document."""


class FactItem(Part):
    """One fact of the vocabulary. ``derived_from``: kinds of evidence and other facts."""

    id: str
    words: Text
    type: Literal["int", "float", "bool", "str", "tuple"]
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    question: str | None = None
    derived_from: tuple[str, ...] = ()


class FactsDocument(RootModel[tuple[FactItem, ...]]):
    """The ``facts`` document."""


class ChoiceItem(Part):
    """One choice."""

    id: str
    words: Text


class QuestionItem(Part):
    """One question. ``asked_when``: a condition on other answers, as data."""

    id: str
    words: Text
    why: Text
    choices: tuple[ChoiceItem, ...] = ()
    type: Literal["choice", "many", "tokens", "number", "text", "yes-no"]
    asked_when: dict[str, Any] | None = None
    fact: str
    core: bool = False
    detectable: bool = False
    unit: str | None = None
    low: float | None = None
    high: float | None = None
    example: str | None = None


class QuestionsDocument(RootModel[tuple[QuestionItem, ...]]):
    """The ``questions`` document."""


class CaseItem(Part):
    """One case of the history."""

    id: str
    created: str | None = None
    symptom: str | None = None
    runs: int = 0
    model: str | None = None
    named: tuple[str, ...] = ()
    confirmed: tuple[str, ...] = ()
    verified_input_tokens: int | None = None
    path: str
    error: str | None = None


class CasesDocument(RootModel[tuple[CaseItem, ...]]):
    """The ``cases`` document."""


DOCUMENTS: dict[str, type[BaseModel]] = {
    "case": CaseDocument,
    "estimate": Estimate,
    "check": CheckDocument,
    "explain": ExplainDocument,
    "rules": RulesDocument,
    "facts": FactsDocument,
    "questions": QuestionsDocument,
    "cases": CasesDocument,
    "answer": Answer,
    "evidence": Evidence,
    "journal-entry": Entry,
}
"""Name → the class that describes it."""


def schemas() -> dict[str, Any]:
    """Give the JSON Schema of every document, and of the data of every kind of evidence (under ``evidence-data``)."""
    found: dict[str, Any] = {name: _schema(kind) for name, kind in DOCUMENTS.items()}
    found["evidence-data"] = {name: _schema(kind) for name, kind in sorted(_payloads().items())}
    return found


def schema_of(name: str) -> dict[str, Any]:
    """Give one schema: a document's, or that of a kind of evidence. KeyError."""
    if name == "evidence-data":
        return {kind: _schema(payload) for kind, payload in sorted(_payloads().items())}
    known = DOCUMENTS.get(name) or _payloads().get(name)
    if known is None:
        raise KeyError(name)
    return _schema(known)


def names() -> tuple[str, ...]:
    """Give every name that :func:`schema_of` takes."""
    return (*DOCUMENTS, "evidence-data", *sorted(set(_payloads()) - set(DOCUMENTS)))


_KINDS_IN = (answers, client, events, machine, request, rungs, subject)
"""Importing a module registers its kinds of evidence; every one is to be in the schema."""


def _payloads() -> dict[str, type[Payload]]:
    return dict(Payload.kinds)


def _schema(kind: type[BaseModel]) -> dict[str, Any]:
    schema = kind.model_json_schema(mode="serialization", by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
