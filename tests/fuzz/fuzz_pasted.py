"""Fuzz target of the reader of pasted reports: ``python tests/fuzz/fuzz_pasted.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as a pasted report: nothing may be raised, and every source is the report or its log."""
    from probes.logs import kind_of, read_pasted

    text = data.decode("utf-8", "replace")
    kind_of(text)
    for evidence in read_pasted(text):
        assert evidence.source in {"log", "report"}


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
