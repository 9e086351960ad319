"""Log dialects: one file each, rules from lines to events. Logs embed one another, so every rule is tried on every log."""

from __future__ import annotations

from dataclasses import replace

from ..rule import Rule
from . import llamacpp

_MODULES = (llamacpp,)

DIALECTS: tuple[str, ...] = tuple(module.NAME for module in _MODULES)
"""Names of the dialects, in the order in which their rules are tried."""


def all_rules(first: str | None = None) -> tuple[Rule, ...]:
    """Give the rules of all dialects in the order to try them; those of ``first`` at the front."""
    modules = sorted(_MODULES, key=lambda module: module.NAME != first)
    return tuple(replace(one, dialect=module.NAME) for module in modules for one in module.RULES)
