"""The fuzz targets run on random bytes without the fuzzer, so that they do not rot."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path

import pytest

TARGETS = Path(__file__).parents[1] / "fuzz"


@pytest.mark.parametrize("name", sorted(path.stem for path in TARGETS.glob("fuzz_*.py")))
def test_the_target_takes_random_and_recorded_bytes(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, TARGETS / f"{name}.py")
    assert spec is not None and spec.loader is not None  # noqa: PT018
    target = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(target)
    rng = random.Random(11)
    recorded = [path.read_bytes() for path in sorted((TARGETS.parent / "recordings").glob("*/**/*.log"))]
    recorded += [path.read_bytes() for path in sorted((TARGETS.parent / "recordings" / "http").glob("*/*.json"))]
    for _ in range(30):
        data = bytearray(rng.choice(recorded)[: rng.randrange(1, 3000)])
        for _cut in range(rng.randrange(12)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        target.one(bytes(data))
        target.one(rng.randbytes(rng.randrange(400)))
