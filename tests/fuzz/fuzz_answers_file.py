"""Fuzz target of the readers of answers and of exported cases: ``python tests/fuzz/fuzz_answers_file.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as an answers file and as an exported case: answers and evidence, or a typed error of one line."""
    from diagnose.answers_file import parse_answers
    from diagnose.triage import of_document
    from probes.evidence.errors import CtxDoctorError

    text = data.decode("utf-8", "replace")
    for read in (
        lambda: parse_answers(text, name="a", as_json=False),
        lambda: parse_answers(text, name="a", as_json=True),
        lambda: of_document(text, "a"),
    ):
        try:
            read()
        except CtxDoctorError as error:
            assert "\n" not in str(error)  # noqa: PT017 - a fuzz target is no test function


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes", "diagnose"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
