"""Which sources of device counters a machine offers: each opened with a deadline, each absent one with its reason."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, TypeVar

from probes.evidence.errors import CtxDoctorError, NoAnswerInTimeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.gpu.base import DeviceSource

T = TypeVar("T")
OPEN_DEADLINE_S = 10.0
"""How long one driver may take to load and to answer. A first NVIDIA call without persistence mode takes about two seconds."""


def within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """Run ``work`` and give its result; NoAnswerInTimeError if it takes longer. A driver that hangs is left behind in its thread."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # handed to the caller below
            errors.append(error)

    thread = threading.Thread(target=run, name=f"ask {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise NoAnswerInTimeError(
            f"{what} did not answer within {seconds:g} s: its driver hangs; look at the system's log, or restart the machine"
        )
    if errors:
        raise errors[0]
    return results[0]


def _open_nvml() -> DeviceSource:
    from probes.gpu.nvml import Nvml  # noqa: PLC0415

    return Nvml.open()


def _open_amd() -> DeviceSource:
    from probes.gpu.amd import Amd  # noqa: PLC0415

    return Amd.open()


def _open_intel() -> DeviceSource:
    from probes.gpu.intel import Intel  # noqa: PLC0415

    return Intel.open()


def _open_drm() -> DeviceSource:
    from probes.gpu.drm_fdinfo import Drm  # noqa: PLC0415

    return Drm.open()


def _open_apple() -> DeviceSource:
    from probes.gpu.apple import Apple  # noqa: PLC0415

    return Apple.open()


def _open_windows() -> DeviceSource:
    from probes.gpu.windows import Windows  # noqa: PLC0415

    return Windows.open()


def candidates(system: str = sys.platform) -> dict[str, Callable[[], DeviceSource]]:
    """Give the sources that make sense on a system, in the order in which they are asked."""
    if system == "darwin":
        return {"apple": _open_apple}
    if system == "win32":
        return {"nvml": _open_nvml, "windows": _open_windows}
    return {"nvml": _open_nvml, "amd": _open_amd, "intel": _open_intel, "drm-fdinfo": _open_drm}


def open_sources(
    *, deadline_s: float = OPEN_DEADLINE_S, asked: dict[str, Callable[[], DeviceSource]] | None = None
) -> tuple[list[DeviceSource], dict[str, str]]:
    """Open every source that this machine offers: (sources, name of each absent one → why). Nothing is raised."""
    sources: list[DeviceSource] = []
    absent: dict[str, str] = {}
    for name, opener in (candidates() if asked is None else asked).items():
        try:
            sources.append(within(deadline_s, name, opener))
        except (CtxDoctorError, ImportError) as error:
            absent[name] = str(error)
        except Exception as error:  # a vendor's binding may raise anything; the others are still asked
            absent[name] = f"{type(error).__name__}: {error}"[:500]
    return sources, absent
