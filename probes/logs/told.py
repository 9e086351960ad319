"""Settings that a log prints as a whole, as Configuration, at each start: vLLM's ``non-default args``, KoboldCpp's ``Namespace(…)``, llama-swap's command."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from probes.backends.commands import parse_command, parse_named, split_command
from probes.backends.settings_files import read_printed_options
from probes.evidence.events import LogEvent
from probes.evidence.subject import Configuration
from probes.logs.dialects.koboldcpp import DEFAULTS

_PAIR = re.compile(
    r"""['"](?P<name>\w{1,80})['"]:\s(?P<value>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|-?[\d.]+(?:e[+-]?\d+)?|True|False|\[[^\[\]{}]*\]|\{[^{}]*\})(?=[,}])"""
)
_MOST = 4096
_PRINTS = frozenset({"vllm", "koboldcpp", "llama-swap"})


def settings_told(events: Iterable[LogEvent]) -> tuple[LogEvent, Configuration] | None:
    """Give the settings of the newest start that a log prints, and the event that has them; None where it prints none. Never raises on bad input."""
    newest = None
    for event in events:
        if event.event == "command" and event.dialect in _PRINTS and isinstance(event.value, str):
            newest = event
    if newest is None:
        return None
    if newest.dialect == "koboldcpp":
        return _koboldcpp(newest)
    printed = str(newest.value)
    if newest.dialect == "llama-swap":
        # the server that it starts, whichever that is
        read = parse_command(split_command(printed), source="log")
        return (newest, read) if read.settings else None
    named = _named(printed)
    read = (
        parse_command(_as_command(named), None, "vllm", source="log")
        # what was cut off may have held more settings
        if printed.rstrip().endswith("}")
        else parse_named(named, "vllm", source="log")
    )
    return (newest, read) if read.settings else None


def _as_command(named: Mapping[str, Any]) -> list[str]:
    """Write the command that prints such settings."""
    own = ["vllm", "serve", *([str(named["model"])] if "model" in named else [])]
    for name, value in named.items():
        flag = "--" + name.replace("_", "-")
        if name == "model":
            continue
        if isinstance(value, bool):
            own.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list):
            own += [flag, *map(str, value[:256])]
        else:
            own += [flag, str(value)]
    return own


def _koboldcpp(event: LogEvent) -> tuple[LogEvent, Configuration] | None:
    read = read_printed_options(str(event.value))
    if read is None or not read.settings:
        return None
    settings = {
        name: one.model_copy(update={"source": "log"})
        for name, one in read.settings.items()
        if not (name == "ctx" and one.value in DEFAULTS) and not (name == "context_shift" and one.value is True)
    }
    return event, read.model_copy(update={"settings": settings})


def _named(printed: str) -> Mapping[str, Any]:
    """Read a dictionary as Python prints it, also one whose end is cut off or that holds what is no plain value."""
    found: dict[str, Any] = {}
    for match in _PAIR.finditer(printed[:_MOST]):
        try:
            value = ast.literal_eval(match["value"])
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        if match["name"] == "model_tag":
            found.setdefault("model", value)
        elif isinstance(value, dict):
            # a part of its own, which is written as JSON on the command line
            found[match["name"]] = _json(value)
        else:
            found[match["name"]] = value
    return found


def _json(value: dict[Any, Any]) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError):
        return "{}"
