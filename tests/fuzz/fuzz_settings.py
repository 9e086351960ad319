"""Fuzz target of the readers of settings files, of servers and of clients: ``python tests/fuzz/fuzz_settings.py [corpus]`` (needs atheris; README.md says how)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def one(data: bytes) -> None:
    """Read bytes as every settings file that is known: settings that can be written down, or a typed error of one line."""
    from probes.backends.settings_files import read_settings_file
    from probes.client_config import read_client_config
    from probes.evidence.errors import CtxDoctorError

    names = ("a.kcpps", "config.yml", "CMD_FLAGS.txt", "a.json", "a.ini", "config.toml", "settings.yaml")
    name, model = names[data[0] % len(names)] if data else names[0], "a" if data[1:2] > b"\x80" else None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data[2:])
        for read in (lambda: read_settings_file(path, model).configuration, lambda: read_client_config(path)):
            try:
                told = read()
            except CtxDoctorError as error:
                assert "\n" not in str(error)  # noqa: PT017 - a fuzz target is no test function
                continue
            assert type(told).model_validate_json(told.model_dump_json())


if __name__ == "__main__":
    import atheris

    with atheris.instrument_imports(include=["probes", "diagnose"]):
        one(b"warm up")
    atheris.Setup(sys.argv, one)
    atheris.Fuzz()
