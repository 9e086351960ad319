"""Where the memory goes, as a report shows it: the prediction beside the log, what overflowed, and what each change would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from probes.evidence.words import Words, words

from .document import ComponentMemory, MemoryByComponent
from .escape import Ours
from .figures import COMPONENTS, NO, YES, count, size

Cell = Words | Ours | str
Row = tuple[Cell, ...]

LEVERS: Final[dict[str, Words]] = {
    "baseline": words("as asked"),
    "speculation-off": words("speculation off"),
    "projector-cpu": words("projector to the CPU"),
    "micro-batch": words("micro-batch 128"),
    "split": words("split evened out"),
    "kv-q8_0": words("8-bit cache (q8_0)"),
    "kv-q4_0": words("4-bit cache (q4_0)"),
}
PARTS: Final[dict[str, Words]] = {
    "weights": words("weights"),
    "kv": words("KV cache"),
    "state": words("recurrent state"),
    "compute": words("compute buffers"),
    "output": words("output buffers"),
    "draft": words("draft model"),
    "projector": words("vision projector"),
    "other-process": words("another program"),
    "driver-reserve": words("the driver's own share"),
    "oversized-piece": words("one piece larger than is allowed"),
    "fragmentation": words("no piece large enough is left"),
    "pinned-host": words("pinned host memory"),
}
_OTHER: Final = words("other")
_HEADS: Final[dict[str, tuple[Words, ...]]] = {
    "log": (words("Device"), words("Part"), words("Predicted"), words("By the log")),
    "server": (words("Device"), words("Part"), words("Predicted"), words("By the server")),
}


@dataclass(frozen=True, slots=True)
class MemoryShown:
    """The section: sentences, and tables with their heads. An empty table is not drawn."""

    said: tuple[Words, ...]
    compared: tuple[Row, ...]
    levers: tuple[Row, ...]
    cache_types: tuple[Row, ...]
    compared_head: tuple[Words, ...]
    levers_head: tuple[Words, ...] = (
        words("Change, on top of those before"),
        words("Longest window"),
        words("Gain"),
        words("Weights"),
        words("Cache"),
        words("Costs quality"),
    )
    cache_types_head: tuple[Words, ...] = (words("Cache type alone"), words("Longest window"))


def memory_shown(
    memory: MemoryByComponent | None, most: Callable[[Sequence[object], Words], int]
) -> MemoryShown | None:
    """Make the section; None where nothing was predicted. ``most`` says how many of a list are shown, and notes what is cut."""
    if memory is None or not memory.predicted:
        return None
    rows: list[Row] = []
    for place in memory.compared[: most(memory.compared, words("Devices"))]:
        rows += _device(place.device, place.predicted, place.logged)
    levers = memory.levers[: most(memory.levers, words("Changes"))]
    types = memory.cache_types[: most(memory.cache_types, words("Cache types"))]
    return MemoryShown(
        said=tuple(_said(memory)),
        compared=tuple(rows),
        levers=tuple(
            (
                LEVERS.get(one.lever, one.lever),
                count(one.tokens),
                Ours(f"{one.gain:+,}".replace("-", "−")),
                size(one.weights_bytes),
                size(one.context_bytes),
                YES if one.costs_quality else NO,
            )
            for one in levers
        ),
        cache_types=tuple(
            (
                one.kv,
                words("refused") if one.refused else count(one.tokens) if one.tokens is not None else words("unknown"),
            )
            for one in types
        ),
        compared_head=_HEADS["server" if memory.basis == "server" else "log"],
    )


def _device(name: str, predicted: ComponentMemory | None, logged: ComponentMemory | None) -> list[Row]:
    """Give a device's rows: each part that either names, and the sum."""
    rows: list[Row] = []
    sums = [0, 0]
    for key, part in COMPONENTS:
        pair = [getattr(one, key) if one is not None else None for one in (predicted, logged)]
        if any(pair):
            sums = [total + (value or 0) for total, value in zip(sums, pair, strict=True)]
            rows.append((name, part, *(size(value) if value else Ours("–") for value in pair)))
    if len(rows) > 1:
        rows.append((name, words("in all"), size(sums[0]), size(sums[1]) if logged is not None else Ours("–")))
    return rows


def _said(memory: MemoryByComponent) -> list[Words]:
    said = []
    if memory.predicted_ctx is not None and memory.error_bytes is not None:
        said.append(
            words(
                "Predicted from the model file for a window of {tokens} tokens; it may be off by {error}.",
                tokens=count(memory.predicted_ctx),
                error=size(memory.error_bytes),
            )
        )
    if memory.longest_window is not None:
        said.append(
            words(
                "Longest window that fits: {tokens}; it is what the model was trained for.",
                tokens=count(memory.longest_window),
            )
            if memory.limited_by == "trained window"
            else words(
                "Longest window that fits: {tokens}; full first: {device}.",
                tokens=count(memory.longest_window),
                device=memory.limited_by or words("unknown"),
            )
        )
    for one in memory.overflowed:
        part = PARTS.get(one.component, _OTHER)
        if one.basis == "model":
            said.append(
                words(
                    "By the prediction, {device} lacks {size}; what crosses the line: {part}.",
                    device=one.device,
                    size=size(one.lacking_bytes or 0),
                    part=part,
                )
            )
        elif one.piece_bytes is not None:
            said.append(
                words(
                    "By the log, {device} could not give {size}; it was for: {part}.",
                    device=one.device,
                    size=size(one.piece_bytes),
                    part=part,
                )
            )
        else:
            said.append(
                words("By the log, an allocation on {device} failed; it was for: {part}.", device=one.device, part=part)
            )
        if one.other_split:
            said.append(
                words(
                    "A split that fits: {split} (--tensor-split).",
                    split=",".join(str(share) for share in one.other_split),
                )
            )
    said.extend(
        words(
            "On {device} prediction and log differ by more than 3 % and 100 MiB: take the log's numbers.",
            device=place.device,
        )
        for place in memory.compared
        if place.agrees is False
    )
    return said
