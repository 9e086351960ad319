"""The one version, read where it is written: the launcher in a checkout, the distribution's own data in a wheel."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed


def version() -> str:
    """Give the version."""
    try:
        return installed("ctxdoctor")
    except PackageNotFoundError:
        return "0.1.0"
