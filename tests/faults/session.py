"""A whole session by the command line, against a server that the test has started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str, folder: Path, budget: str = "90s") -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    """Run ``ctxdoctor run`` with its cases in a folder; gives its document, and the process with what it said."""
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "run", *arguments, "--format", "json", "--budget", budget],
        env={**os.environ, "CTXDOCTOR_HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout), done


def of_kind(document: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Give what was found of a kind of evidence."""
    return [one["data"] for one in document["evidence"] if one["kind"] == kind and one["data"]]
