"""Evidence → facts, one file a kind; each file's derivations are found by walking this package. Pure: no clock, no disk, no network."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from rules.engine.derivation import Derivation, Derivations, gather


@cache
def all_derivations() -> Derivations:
    """Give every derivation, joined and ordered. ValueError if they go in a circle."""
    found: list[Derivation] = []
    for info in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{info.name}")
        found.extend(gather(module))
    return Derivations(set(found))
