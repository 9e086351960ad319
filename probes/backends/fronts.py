"""Servers that start the one that is measured: llama-swap, llama.cpp's router. A setting is changed in their configuration, not in a command."""

from __future__ import annotations

from typing import Any

from probes.backends.commands import change_steps
from probes.evidence.errors import NotOfferedError
from probes.evidence.words import Words, words

LLAMA_SWAP = "llama-swap"
ROUTER = "llama.cpp router"


def front_steps(front: str, backend: str, variable: str, value: Any, model: str) -> tuple[Words, ...]:
    """Say in steps how a setting of a model is changed where ``front`` starts its server. NotOfferedError where it is not known how."""
    [change, *_more] = change_steps(backend, variable, value)
    if front == LLAMA_SWAP:
        return (
            words("In llama-swap's configuration, change the command (cmd) of the model {model}.", model=model),
            change,
            words(
                "Let llama-swap read its configuration again (with -watch-config it does so by itself), and send the model one request, which loads it."
            ),
        )
    if front == ROUTER:
        return (
            words(
                "In the file of the router's --models-preset, change the section of the model {model}; without such a file, the router's own command.",
                model=model,
            ),
            change,
            words("Start the router again, and send the model one request, which loads it."),
        )
    raise NotOfferedError(f"how {front} starts its servers is not known; change {variable} by hand")
