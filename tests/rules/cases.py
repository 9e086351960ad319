"""The cases beside the rules, as facts."""

from __future__ import annotations

from typing import Any

from rules.catalogue import Case
from rules.engine import Fact, Facts, Known, Unknown
from rules.facts import VOCABULARY


def facts_of_case(case: Case) -> Facts:
    """Give the facts of a case; what it does not name can no longer be found out, unless it says so. ImpossibleValueError."""
    values: dict[Fact[Any], Known[Any] | Unknown] = {}
    if not case.open:
        values.update({fact: Unknown("not-offered", "not in this case") for fact in VOCABULARY})
    for name, value in case.facts.items():
        fact = VOCABULARY[name]
        values[fact] = fact.admit(
            tuple(value) if isinstance(value, list) else value, source="measured", origin=case.name
        )
    return Facts(values)
