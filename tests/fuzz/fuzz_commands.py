"""Fuzz target of the readers of command lines, Modelfiles and presets: ``python tests/fuzz/fuzz_commands.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as everything that a command can be: nothing may be raised, and what comes out can be written down and read again."""
    from probes.backends.commands import (
        as_text,
        detect_backend,
        parse_command,
        parse_modelfile,
        parse_named,
        parse_preset,
        split_command,
    )
    from probes.backends.flags import FLAGS
    from probes.evidence.subject import Configuration

    text = data[1:].decode("utf-8", "replace")
    argv = split_command(text)
    if not any(set(word) & set("\\^`\r\n") for word in argv):
        # what joins lines is joined wherever it stands: commands are pasted, and their quotes are not always whole
        assert split_command(as_text(argv)) == argv
    names = sorted(FLAGS)
    backend = names[data[0] % len(names)] if data else None
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = dict(line.partition("=")[::2] for line in text.splitlines())
    told = told if isinstance(told, dict) else {"a": told}
    detect_backend(argv)
    for read in (
        parse_command(argv, dict(word.partition("=")[::2] for word in argv)),
        parse_command(argv, None, backend),
        parse_modelfile(text),
        parse_preset(text),
        parse_named(told, backend or names[0]),
    ):
        assert Configuration.model_validate_json(read.model_dump_json()).settings.keys() == read.settings.keys()


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes", "diagnose"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
