"""The cards that a log names, each once by whatever names its lines call it, with what the last load put on them and what it could not."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence

_ID = re.compile(
    r"(?P<api>CUDA|ROCm|HIP|Vulkan|SYCL|Metal|MTL|CANN|MUSA|OpenCL|GPU)?[ :_-]?(?P<index>\d{1,3})?",
    re.IGNORECASE | re.ASCII,
)
_CACHE = frozenset({"kv", "state"})
WORKED = frozenset(
    {"timing", "prefill-progress", "first-token", "request", "refused", "truncated", "context-shift", "decode-failed", "reply", "cache-reuse", "model-loaded"}
)  # fmt: skip
"""What only a server that has started does."""


def on_card(device: str) -> bool:
    """Say whether a log's place is on an accelerator."""
    return not device.upper().startswith("CPU") and "HOST" not in device.upper()


def card_key(device: str) -> str:
    """Give one key for the names of one card: "0" and "CUDA0" are the same, an identifier stands for itself."""
    match = _ID.fullmatch(device)
    if match is None or not (match["api"] or match["index"]):
        return device.lower()
    return match["index"] or "0"


@dataclass(slots=True)
class Card:
    """One card. Sizes in bytes. ``placed``: component → what the last load put there; ``failed``: what it could not have."""

    evidence: Evidence
    name: str | None = None
    total: int | None = None
    free: int | None = None
    placed: dict[str, int] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)

    @property
    def left(self) -> int | None:
        """Give what was free before loading, less what was placed; None where that is not known."""
        return None if self.free is None else self.free - sum(self.placed.values())


def cards(events: Iterable[tuple[Evidence, LogEvent]]) -> dict[str, Card]:
    """Give the cards that a log names, with what its last attempt to load put on each and could not put there.

    An attempt that follows a failed one begins anew: what the first had placed was given back.
    """
    found: dict[str, Card] = {}
    failed = False
    for evidence, event in events:
        if event.event == "loading" and failed:
            failed = False
            for card in found.values():
                card.placed.clear()
                card.failed.clear()
        if event.event not in {"device-found", "buffer", "alloc-failed"} or not event.device:
            continue
        if not on_card(event.device) or event.key in {"breakdown", "planner"}:
            continue
        key = card_key(event.device)
        introduced = event.event == "device-found"
        if key not in found:
            if not introduced and not _ID.fullmatch(event.device):
                continue
            found[key] = Card(evidence)
        card = found[key]
        if introduced:
            card.name = card.name or event.name
            card.total = card.total or event.total_bytes or None
            card.free = event.free_bytes if card.free is None else card.free
        elif event.event == "buffer" and event.size_bytes and event.component:
            component = "kv" if event.component in _CACHE else event.component
            known = card.placed.get(component, 0)
            # a load's dry run prints the weights as the load does; of compute buffers only one is alive
            once = component in {"weights", "compute"}
            card.placed[component] = max(known, event.size_bytes) if once else known + event.size_bytes
        elif event.event == "alloc-failed" and event.size_bytes and event.component != "pinned":
            failed = True
            component = "kv" if event.component in _CACHE else event.component or "other"
            card.failed[component] = max(card.failed.get(component, 0), event.size_bytes)
    return found


def never_started(events: Iterable[LogEvent]) -> bool:
    """Say whether the load of a log failed, and nothing that only a started server does was seen."""
    failed = False
    for event in events:
        if event.event == "load-failed":
            failed = True
        elif event.event in WORKED:
            return False
    return failed
