"""The door: put our own folder first on the path, answer ``--version`` at once, else hand over to the command line.

In a wheel this file is ``ctxdoctor/__init__.py`` and the four floors lie beside it; in an editable install it is found through the checkout.
"""

from __future__ import annotations

import sys
from pathlib import Path

__version__ = "0.1.0"


def _own_floors_first() -> None:
    """Make ``import diagnose`` mean ours, also beside packages that use the same plain names."""
    here = Path(__file__).resolve().parent
    floor = here if (here / "diagnose").is_dir() else here.parent
    wanted = str(floor)
    if sys.path[:1] != [wanted]:
        sys.path.insert(0, wanted)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"ctxdoctor {__version__}\n")
        return
    _own_floors_first()
    from diagnose.cli import run

    sys.exit(run(sys.argv[1:]))
