"""``python -m ctxdoctor``."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    sys.path.insert(0, str(here if (here / "diagnose").is_dir() else here.parent))
    from diagnose.cli import run

    sys.exit(run(sys.argv[1:]))
