"""Log dialects: one file each, rules from lines to events. Logs embed one another, so every rule is tried on every log."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from probes.logs.dialects import (
    answers,
    beellama,
    driver,
    generic,
    ik,
    kernel,
    koboldcpp,
    llamacpp,
    llamacpp_python,
    llamamanager,
    llamaswap,
    lmstudio,
    mlx,
    ollama,
    sglang,
    tabbyapi,
    textgen,
    torch,
    vllm,
)
from probes.logs.rule import Rule

_MODULES: tuple[ModuleType, ...] = (
    ollama, lmstudio, mlx, vllm, sglang, koboldcpp, tabbyapi, textgen, llamacpp_python, llamaswap, llamamanager, beellama, ik, torch,
    llamacpp, kernel, driver, answers, generic,
)  # fmt: skip
"""The order in which rules are tried: what speaks for one server alone comes before what many say."""

DIALECTS: tuple[str, ...] = tuple(module.NAME for module in _MODULES)
"""Names of the dialects, in the order in which their rules are tried."""


def all_rules(first: str | None = None) -> tuple[Rule, ...]:
    """Give the rules of all dialects in the order to try them; those of ``first`` at the front."""
    modules = [*(one for one in _MODULES if first == one.NAME), *(one for one in _MODULES if first != one.NAME)]
    return tuple(replace(one, dialect=module.NAME) for module in modules for one in module.RULES)
