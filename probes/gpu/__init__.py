"""Devices, and who holds their memory: one file a vendor, imported only when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probes.gpu.sources import OPEN_DEADLINE_S, candidates, open_sources, within

if TYPE_CHECKING:
    from probes.evidence.machine import DeviceReadings


def read_devices(
    server_pid: int | None = None, *, when: str = "", deadline_s: float = OPEN_DEADLINE_S
) -> DeviceReadings:
    """Read all devices once, with the processes that hold their memory. Empty devices and ``absent``: looked, and there is none.

    ``server_pid`` tells which of those processes is the server under test. Nothing is raised; each driver has ``deadline_s`` seconds.
    """
    from probes.gpu.readings import collect  # noqa: PLC0415 - heavy parts are loaded when devices are asked for

    return collect(server_pid, when=when, deadline_s=deadline_s)


__all__ = ["candidates", "open_sources", "read_devices", "within"]
