"""Fuzz target of the readers of model files' headers: ``python tests/fuzz/fuzz_headers.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as a GGUF and as a safetensors file: a model, or a typed error."""
    from probes.evidence.errors import CtxDoctorError
    from probes.model_file import read_model

    with tempfile.TemporaryDirectory() as folder:
        for name, content in (("a.gguf", b"GGUF\x03\0\0\0" + data), ("b.gguf", data), ("a.safetensors", data)):
            path = Path(folder) / name
            path.write_bytes(content)
            try:
                read_model(str(path))
            except CtxDoctorError as error:
                assert "\n" not in str(error)  # noqa: PT017 - a fuzz target is no test function


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes", "diagnose"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
