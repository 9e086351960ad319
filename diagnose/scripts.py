"""Scripts that start a server: which of them take settings from the command that starts them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_PASSES_ON = re.compile(r"\$[@*1-9]|\$\{[@*1-9]|%[*1-9]|[$@]args\b|\bgetopts?\b", re.IGNORECASE)
_SHELL = re.compile(rb"\b(?:ba|z|da|k|fi)?sh\b")
_SCRIPT_BYTES = 65_536


def deaf_script(argv: Sequence[str]) -> str | None:
    """Give the script that starts the server where it takes no settings from its command: one that is added there changes nothing.

    None for a program, for a script that passes them on, and where the file cannot be read here.
    """
    for word in list(argv)[:4]:
        path = Path(word).expanduser()
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                head = file.read(_SCRIPT_BYTES)
        except (OSError, ValueError):
            continue
        first = head.split(b"\n", 1)[0]
        shell = (first.startswith(b"#!") and _SHELL.search(first)) or path.suffix.lower() in {
            ".sh",
            ".bash",
            ".zsh",
            ".bat",
            ".cmd",
            ".ps1",
        }
        if b"\0" in head:
            continue  # a program: of a shell the script comes next
        if not shell:
            return None
        return None if _PASSES_ON.search(head.decode("utf-8", "replace")) else path.name
    return None
