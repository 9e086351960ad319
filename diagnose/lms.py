"""``lms load``: a command that starts no server, but has a running LM Studio load a model; what it loaded is unloaded before it loads again."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Sequence

from probes.backends.commands import detect_backend, parse_command
from probes.evidence.words import Words, words

LOAD_S = 600.0
"""LM Studio is given so long to load a model."""
UNLOAD_S = 60.0


def unload_command(command: Sequence[str]) -> list[str] | None:
    """Give the command that takes away what ``lms load`` loaded: else a second instance would be loaded beside it. None for any other command."""
    own = list(command)
    if detect_backend(own) != "lm-studio" or "load" not in own:
        return None
    at = own.index("load")
    read = parse_command(own).settings
    model = read.get("model_path")
    flag = next((n for n, word in enumerate(own) if word.partition("=")[0] == "--identifier"), None)
    named = model.value if model is not None else None
    if flag is not None:
        named = own[flag].partition("=")[2] or (own[flag + 1] if flag + 1 < len(own) else named)
    return [*own[:at], "unload", str(named)] if named else None


def unload_before(command: Sequence[str]) -> None:
    """Unload the model that a command loads into a running server; nothing for a command that starts a server."""
    unload = unload_command(command)
    if unload is not None:
        # that it was not loaded is no fault
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(unload, stdin=subprocess.DEVNULL, capture_output=True, timeout=UNLOAD_S, check=False)


def load_again(command: Sequence[str], shown: str) -> Words:
    """Load the model with the user's own command again."""
    unload_before(command)
    try:
        done = subprocess.run(list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=LOAD_S, check=False)
        why = None if done.returncode == 0 else f"exit code {done.returncode}"
    except (OSError, subprocess.SubprocessError) as error:
        why = type(error).__name__
    if why is not None:
        return words("The model could not be loaded again ({why}). Load it yourself: {command}", why=why, command=shown)
    return words("The model is loaded again by your own command: {command}", command=shown)
