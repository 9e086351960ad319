"""Fuzz target of the log reader and its dialects: ``python tests/fuzz/fuzz_logs.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as a log: only a typed error may come out."""
    from probes.evidence.errors import CtxDoctorError
    from probes.logs import collect_log, tail_events

    try:
        events, summary = collect_log(io.BytesIO(data), "fuzz", max_events=50)
    except CtxDoctorError:
        return
    assert len(events) <= 50
    assert summary.lines >= 0
    tail_events(data.decode("utf-8", "replace"))


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
