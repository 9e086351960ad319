"""``python -m ctxdoctor``, and ``python -m diagnose`` in a checkout."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if __package__ == "ctxdoctor":
        from ctxdoctor import own_floors_first

        own_floors_first()
    from diagnose.cli import command_line

    sys.exit(command_line(sys.argv[1:]))
