"""No device that answers: what is on the bus all the same, so that "no GPU" can be told from "a GPU without its driver"."""

from __future__ import annotations

from pathlib import Path

from probes.gpu.base import read_text

_ROOT = Path("/")
VENDORS = {0x10DE: "NVIDIA", 0x1002: "AMD", 0x8086: "Intel"}


def cards_on_bus(*, root: Path = _ROOT) -> tuple[tuple[str, str, str | None], ...]:
    """List display and 3D controllers on the PCI bus: (vendor, address, kernel driver or None). Empty where there is no such bus to read."""
    found = []
    try:
        folders = sorted((root / "sys/bus/pci/devices").iterdir())[:1024]
    except OSError:
        return ()
    for folder in folders:
        kind = (read_text(folder / "class") or "").strip()
        if not kind.startswith("0x03") and not kind.startswith("0x1200"):  # 0x12: processing accelerators
            continue
        try:
            vendor = int((read_text(folder / "vendor") or "").strip(), 16)
        except ValueError:
            continue
        if vendor not in VENDORS:
            continue
        try:
            driver = (folder / "driver").resolve(strict=True).name
        except OSError:
            driver = None
        found.append((VENDORS[vendor], folder.name, driver))
    return tuple(found)


def silent_cards(answering: set[str], *, root: Path = _ROOT) -> tuple[str, ...]:
    """Say which cards are on the bus but answered through no interface. ``answering``: PCI addresses of those that did, lower case."""
    notes = []
    for vendor, address, driver in cards_on_bus(root=root):
        if address.lower() in answering:
            continue
        if driver is None:
            notes.append(f"a {vendor} card is on the bus at {address}, but no kernel driver is bound to it")
        elif driver.startswith("vfio"):
            notes.append(
                f"a {vendor} card is on the bus at {address}, but it is handed to a virtual machine ({driver})"
            )
        else:
            notes.append(
                f"a {vendor} card is on the bus at {address} with the driver {driver}, but its memory could not be read"
            )
    return tuple(notes)
