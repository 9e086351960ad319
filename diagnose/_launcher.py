"""The door: put our own folder first on the path, answer ``--version`` at once, else hand over to the command line.

In a wheel this file is ``ctxdoctor/__init__.py`` and the four floors lie beside it. In an editable install it is alone in site-packages, and a
``.pth`` file beside its package names the checkout.
"""

from __future__ import annotations

import os
import sys

__version__ = "0.1.0"


def _home() -> str:
    """Give the folder that holds the ``diagnose`` this file belongs to."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.path.isdir(os.path.join(here, "diagnose")):
        return here
    parent = os.path.dirname(here)
    if os.path.isfile(os.path.join(parent, "diagnose", "_launcher.py")):
        return parent
    try:
        with open(os.path.join(parent, "_ctxdoctor.pth"), encoding="utf-8") as file:
            for line in file:
                if os.path.isfile(os.path.join(line.strip(), "diagnose", "_launcher.py")):
                    return line.strip()
    except OSError:
        pass
    raise SystemExit("ctxdoctor: the installation is incomplete; install it again")


def own_floors_first() -> None:
    """Make ``import diagnose`` mean ours, also beside packages that use the same plain names."""
    wanted = _home()
    if sys.path[:1] != [wanted]:
        sys.path.insert(0, wanted)


def main() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        sys.stdout.write(f"ctxdoctor {__version__}\n")
        return
    own_floors_first()
    from diagnose.cli import command_line

    sys.exit(command_line(sys.argv[1:]))
