"""Servers that start the one that is measured: llama-swap, llama.cpp's router. A setting is changed in their configuration, not in a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from probes.backends.commands import as_text, change_command
from probes.backends.flags import FLAGS, Flag
from probes.evidence.errors import NotOfferedError
from probes.evidence.words import Words, words

LLAMA_SWAP = "llama-swap"
ROUTER = "llama.cpp router"


def front_steps(front: str, backend: str, variable: str, value: Any, model: str) -> tuple[Words, ...]:
    """Say in steps how a setting of a model is changed where ``front`` starts its server. NotOfferedError where it is not known how."""
    if front not in {LLAMA_SWAP, ROUTER}:
        raise NotOfferedError(f"how {front} starts its servers is not known; change {variable} by hand")
    flags = [
        flag for flag in FLAGS.get(backend, ()) if {variable, f"{variable}_k", f"{variable}_v"} & {*flag.variables}
    ]
    if not flags:
        raise NotOfferedError(f"{backend} has no setting for {variable}")
    names = [name for flag in flags for name in (*flag.names, *flag.off)]
    written = [] if value is None else change_command(["SERVER"], backend, variable, value)[1:]
    if front == LLAMA_SWAP:
        return _in_command(names, written, model)
    return _in_preset(FLAGS[backend], names, written, model)


def _in_command(names: list[str], written: list[str], model: str) -> tuple[Words, ...]:
    change = (
        words(
            "In llama-swap's configuration, write {flags} into the command (cmd) of {model}, in place of the same option if it is there.",
            flags=as_text(written),
            model=model,
        )
        if written
        else words(
            "In llama-swap's configuration, take this option out of the command (cmd) of {model}: {names}",
            model=model,
            names=", ".join(names),
        )
    )
    again = words(
        "Let llama-swap read its configuration again (with -watch-config it does so by itself), and send the model one request, which loads it."
    )
    return change, again


def _in_preset(flags: Sequence[Flag], names: list[str], written: list[str], model: str) -> tuple[Words, ...]:
    change = (
        words(
            "In the section [{model}] of the file of the router's --models-preset, write: {lines}",
            model=model,
            lines=_lines(flags, written),
        )
        if written
        else words(
            "In the section [{model}] of the file of the router's --models-preset, take out the line of this option: {names}",
            model=model,
            names=", ".join(name.lstrip("-") for name in names),
        )
    )
    other = words(
        "Without such a file, change the router's own command instead: {flags}", flags=as_text(written or names)
    )
    return change, other, words("Start the router again, and send the model one request, which loads it.")


def _lines(flags: Sequence[Flag], written: Sequence[str]) -> str:
    """Write options as lines of a preset: the long name without its dashes, and a value; a switch is true or false."""
    lines = []
    for at, word in enumerate(written):
        flag = next((flag for flag in flags if word in {*flag.names, *flag.off}), None)
        if flag is None:
            continue
        off = word in flag.off
        long = [name[2:] for name in (*flag.names, *flag.off) if name.startswith("--")]
        positive = [name for name in long if not name.startswith("no-")] or [name.removeprefix("no-") for name in long]
        key = max(positive, key=len, default=word.lstrip("-"))
        takes = flag.takes_value and not off and at + 1 < len(written)
        # an option that has only a name with "no" is turned off by its other name
        lines.append(f"{key} = {written[at + 1] if takes else 'false' if off or key not in long else 'true'}")
    return "; ".join(lines)
