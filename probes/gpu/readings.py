"""All devices at one moment, put together from every source that answers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import psutil

from probes.evidence.errors import CtxDoctorError
from probes.evidence.machine import Device, DeviceLink, DeviceReadings
from probes.gpu.base import Notes
from probes.gpu.matching import VARIABLES, cuda_order, joined, pci_key
from probes.gpu.none import silent_cards
from probes.gpu.processes import Holders
from probes.gpu.sources import open_sources, within

if TYPE_CHECKING:
    from collections.abc import Callable

    from probes.gpu.base import DeviceSource


def visibility(server_pid: int | None) -> tuple[dict[str, str] | None, dict[str, str]]:
    """Read the server's environment: (all of it that concerns devices, or None if it may not be read; the same, cut for a record)."""
    if server_pid is None:
        return None, {}
    try:
        environment = psutil.Process(server_pid).environ()
    except (psutil.Error, OSError, ValueError, OverflowError):
        return None, {}
    found = {name: value for name, value in environment.items() if name in VARIABLES}
    return found, {name: value[:500] for name, value in found.items()}


def collect(
    server_pid: int | None = None,
    *,
    when: str = "",
    deadline_s: float = 10.0,
    asked: dict[str, Callable[[], DeviceSource]] | None = None,
) -> DeviceReadings:
    """Read every source once and join what they say about the same device. Nothing is raised."""
    sources, absent = open_sources(deadline_s=deadline_s, asked=asked)
    names = [*absent, *(source.name for source in sources)]
    notes = Notes()
    holders = Holders(server_pid)
    devices: tuple[Device, ...] = ()
    links: tuple[DeviceLink, ...] = ()
    for source in sources:
        try:
            more = within(deadline_s, source.name, lambda source=source: source.devices(holders))  # type: ignore[misc]
            devices = joined(devices, more, notes)
            links += within(deadline_s, source.name, source.links)
        except CtxDoctorError as error:
            absent[source.name] = str(error)
        except Exception as error:  # a vendor's binding may raise anything; the others are still read
            absent[source.name] = f"{type(error).__name__}: {error}"[:500]
        else:
            with contextlib.suppress(Exception):
                source.close()
    environment, shown = visibility(server_pid)
    devices = cuda_order(devices, environment, notes)
    for text in silent_cards({key for key in (pci_key(one.pci) for one in devices) if key is not None}):
        notes.add(text)
    return DeviceReadings(
        devices=devices,
        when=when,
        sources=tuple(dict.fromkeys(sorted(names, key=_order))),
        absent=absent,
        links=links,
        visibility=shown,
        notes=notes.all(),
    )


def _order(name: str) -> int:
    known = ("nvml", "amd", "intel", "drm-fdinfo", "apple", "windows")
    return known.index(name) if name in known else len(known)
