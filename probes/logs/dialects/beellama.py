# ruff: noqa: E501 - a pattern is read and compared best on one line
"""beellama.cpp and forks like it: mainline with DFlash, CopySpec and their own cache modes."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "beellama"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("speculation", ("DFlash enabled for", "dflash: ", "DFlash: "), r"DFlash enabled for (?P<value>\S+)|(?i:dflash): ", on=True, reason="dflash"),
    rule("speculation", ("CopySpec", "copyspec: "), r"CopySpec(?: enabled)?|copyspec:", on=True, reason="copyspec"),
    rule("kv-cache", ("kvarn", "turbo2", "turbo3", "turbo4"), r"(?:K|type_k|cache type k)[ =(:]+(?P<type_k>(?:kvarn|turbo)\w+)\)?.*?(?:V|type_v|cache type v)[ =(:]+(?P<type_v>\w+)", which="base", key="mode"),
)
# fmt: on
