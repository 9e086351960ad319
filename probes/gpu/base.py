"""What every source of device counters is: how it is opened, what it reads once, what it reads ten times a second.

One file a vendor implements :class:`DeviceSource`; it is imported only when asked, and says NotOfferedError when its driver is not there.
A number that a driver gives is taken as it is or not at all: what is absent, absurd or refused becomes None with a note.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from probes.evidence.machine import Device, DeviceLink
    from probes.gpu.processes import Holders

PRESSURE_LEVELS: dict[int, Literal["normal", "warning", "critical"]] = {1: "normal", 2: "warning", 4: "critical"}

PIDS_NONE: frozenset[int] = frozenset()

MOST_BYTES = 1 << 50
"""No machine that this tool meets has a pebibyte; what is above is a driver's "not available" or a fault."""

MOST_FILE_BYTES = 1 << 16
"""More than any file of /proc or /sys that is read here has. Longer ones are cut: nothing from outside may eat memory."""


@dataclass(slots=True)
class DeviceSample:
    """One device at one moment, the cheap counters only. None: not told (or not asked this time). Bytes, percent, watts, °C."""

    id: str
    used_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    shared_bytes: int | None = None
    server_bytes: int | None = None
    server_shared_bytes: int | None = None
    utilization_percent: float | None = None
    power_watts: float | None = None
    temperature_c: float | None = None
    link_generation: int | None = None
    link_width: int | None = None
    link_sent: int | None = None
    """From the device to the host, bytes a second. Dear to ask, so only every few seconds."""
    link_received: int | None = None
    link_replays: int | None = None
    """Packets that had to be sent again, counted by the driver."""
    throttle: frozenset[str] = frozenset()
    pressure: int | None = None
    """The system's own level of memory pressure (macOS): a key of :data:`PRESSURE_LEVELS`."""
    lost: str | None = None
    """Why this device did not answer, if it did not."""


@dataclass(slots=True)
class Notes:
    """Notes without repeats, in the order in which they came, at most so many: a source may fail ten times a second."""

    most: int = 32
    texts: dict[str, float] = field(default_factory=dict)
    """Each note, and when it was last true (monotonic, seconds)."""

    def add(self, text: str) -> None:
        """Keep ``text`` if it is known or there is room."""
        text = " ".join(text.split())[:500]
        if text in self.texts or len(self.texts) < self.most:
            self.texts[text] = time.monotonic()

    def all(self) -> tuple[str, ...]:
        """Give every note once."""
        return tuple(self.texts)

    def since(self, when: float) -> tuple[str, ...]:
        """Give those that were true at that time or later."""
        return tuple(text for text, last in tuple(self.texts.items()) if last >= when)


class DeviceSource(ABC):
    """One interface to devices. Its methods may be called from different threads, never two at once."""

    name: ClassVar[str]
    pace_s: ClassVar[float] = 0.0
    """Least seconds between two samples; 0: cheap enough for every tick. A dear source is sampled beside the ticks, as seldom as its
    cost asks for."""

    @classmethod
    @abstractmethod
    def open(cls) -> DeviceSource:
        """Load the library or look for the files. NotOfferedError with one line of why, if there is nothing to ask."""

    @abstractmethod
    def devices(self, holders: Holders | None = None) -> tuple[Device, ...]:
        """Read all there is to know of each device. NotOfferedError if the driver went away as a whole.

        ``holders`` names the processes that hold memory, seen from the server under test.
        """

    @abstractmethod
    def sample(self, server_pids: frozenset[int] = PIDS_NONE, *, full: bool = False) -> Sequence[DeviceSample]:
        """Read the cheap counters; with ``full`` also power, use, temperature, throttle and link.

        A single device that fails is a sample with ``lost``; NotOfferedError if the driver went away as a whole.
        """

    def scan(self, server_pids: frozenset[int] = PIDS_NONE) -> None:  # noqa: B027 - most have nothing to look up
        """Look up what ``sample`` needs and is dear to find (open files of processes, say). Called every ten seconds or so."""

    def identities(self) -> tuple[Device, ...]:
        """Say which devices there are, to match them with another source's: id, name, vendor and PCI address are enough."""
        return ()

    def links(self) -> tuple[DeviceLink, ...]:
        """Say how devices reach each other, where the driver tells."""
        return ()

    def close(self) -> None:  # noqa: B027 - files need no closing
        """Let go of the library."""


def plausible(value: object, *, most: int = MOST_BYTES) -> int | None:
    """Give a whole number from outside as it is, or None where it is no number, negative or beyond ``most``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if value != value or not 0 <= value <= most:  # noqa: PLR0124 - the test for not-a-number without importing math
        return None
    return int(value)


def plausible_float(value: object, *, least: float = 0.0, most: float = 1e6) -> float | None:
    """Give a number from outside as a float, or None where it is none or outside of the range."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    number = float(value)
    return number if least <= number <= most else None


def read_text(path: Path | str, *, most: int = MOST_FILE_BYTES) -> str | None:
    """Read a small file of /proc or /sys; None if it is absent, refused or vanishes. Undecodable bytes are replaced."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - no buffer: this is called ten times a second
            return file.read(most).decode("utf-8", "replace")
    except (OSError, ValueError):
        return None


def read_int(path: Path | str, *, most: int = MOST_BYTES) -> int | None:
    """Read a file that holds one whole number; None if there is no such file or no such number."""
    text = read_text(path, most=64)
    if text is None:
        return None
    try:
        return plausible(int(text.strip(), 0), most=most)
    except ValueError:
        return None


def generation_of_speed(text: str) -> int | None:
    """Give the PCIe generation of a link speed as sysfs writes it ("16.0 GT/s PCIe"); None if it is not one."""
    speed = text.strip().split(" ", 1)[0]
    return {
        "2.5": 1,
        "5.0": 2,
        "5": 2,
        "8.0": 3,
        "8": 3,
        "16.0": 4,
        "16": 4,
        "32.0": 5,
        "32": 5,
        "64.0": 6,
        "64": 6,
    }.get(speed)


def describe_link(
    generation: int | None, width: int | None, most_generation: int | None, most_width: int | None
) -> str | None:
    """Write a link for people: "PCIe 4.0 x8 (of 4.0 x16)"; None if nothing of it is known."""
    if generation is None and width is None:
        return None

    def one(gen: int | None, lanes: int | None) -> str:
        return " ".join(filter(None, (f"{gen}.0" if gen is not None else "", f"x{lanes}" if lanes is not None else "")))

    most = one(most_generation, most_width)
    return f"PCIe {one(generation, width)}" + (f" (of {most})" if most else "")
