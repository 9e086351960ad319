"""Which device holds which layer, as llama.cpp decides it, and the split that evens devices out.

Source: llama.cpp build 11434, ``llama_model_base::load_tensors``: layers go to devices in order, by the cumulated split; the output layer
counts as one more layer; the input embedding stays on the host.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from probes.evidence.errors import InputError

from .compute import HostWeights

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .gguf_header import GgufHeader
    from .shape import Shape

HOST = -1
"""Stands for the host in a placement; devices count from 0."""


def place_layers(layers: int, gpu_layers: int | None, split: Sequence[float]) -> list[int]:
    """Give the device of each layer, and of the output layer as the last entry.

    ``gpu_layers`` None is all of them. ``split`` has one share a device; without devices everything is on the host.
    """
    entries = layers + 1
    if not split:
        return [HOST] * entries
    wanted = entries if gpu_layers is None or gpu_layers < 0 else gpu_layers
    first = max(entries - wanted, 0)
    acting = min(wanted, entries)
    bounds = _bounds(split)
    place = []
    for layer in range(entries):
        at = layer - first
        place.append(HOST if at < 0 or at >= acting else min(bisect_right(bounds, _f32(at / acting)), len(split) - 1))
    return place


def _bounds(split: Sequence[float]) -> list[float]:
    if any(share < 0 for share in split) or not any(share > 0 for share in split):
        raise InputError("a tensor split has shares of 0 or more, at least one above 0")
    total = 0.0
    sums = []
    for share in split:
        total = _f32(total + _f32(share))
        sums.append(total)
    return [_f32(entry / total) for entry in sums]


def _f32(value: float) -> float:
    # llama.cpp computes the split in single precision; where a layer falls on a bound this decides.
    return float(struct.unpack("f", struct.pack("f", value))[0])


class Weights:
    """Bytes of tensors: by layer, of the input, of the output; what is not loaded is left out."""

    __slots__ = ("input", "layers", "names", "output", "tied", "unknown_types")

    def __init__(self, header: GgufHeader, shape: Shape, *, drafting: bool) -> None:
        self.layers = [0] * shape.layers_all
        self.input = self.output = 0
        self.unknown_types: set[int] = set()
        self.names: list[tuple[str, int, int]] = []
        tied = 0
        has_output = False
        for tensor in header.tensors:
            size = tensor.size_bytes
            if size is None:
                self.unknown_types.add(tensor.type)
                continue
            layer = _layer_of(tensor.name)
            if layer is not None and layer < shape.layers_all:
                if layer >= shape.layers and not drafting and not shape.router and shape.layers:
                    continue  # prediction layers are loaded only for a draft
                self.layers[layer] += size
                self.names.append((tensor.name, layer, size))
            elif tensor.name.startswith(("output", "cls", "norm", "dense_")):
                has_output = has_output or tensor.name == "output.weight"
                self.output += size
                self.names.append((tensor.name, shape.layers_all, size))
            else:
                if tensor.name == "token_embd.weight":
                    tied = size
                self.input += size
                self.names.append((tensor.name, HOST, size))
        self.tied = tied if not has_output else 0
        if self.tied:
            self.names.append(("token_embd.weight (as output)", shape.layers_all, tied))

    def by_layer(self) -> list[int]:
        """Give a fresh list of each layer's bytes, those of the output last."""
        return [*self.layers, self.output + self.tied]

    def on_devices(
        self, place: Sequence[int], devices: int, overrides: Sequence[tuple[str, int]] = ()
    ) -> tuple[list[int], int]:
        """Give the bytes on each device, and on the host. ``overrides``: (regular expression, device or HOST), the first match counts."""
        on = [0] * devices
        host = 0
        for name, _layer, size, device in self._placed(place, overrides):
            if name.endswith("(as output)") and device == HOST:
                continue  # the table in host memory serves as output too
            if device == HOST:
                host += size
            else:
                on[device] += size
        return on, host

    def largest_on_host(self, place: Sequence[int], overrides: Sequence[tuple[str, int]] = ()) -> HostWeights:
        """Give the largest tensors that stay in host memory and are multiplied with: of feed-forward layers, of attention, of the output."""
        feed_forward = attention = output = 0
        for name, layer, size, device in self._placed(place, overrides):
            if device != HOST or layer == HOST:
                continue
            if layer == len(self.layers):
                output = max(output, size)
            elif ".ffn_" in name:
                feed_forward = max(feed_forward, size)
            else:
                attention = max(attention, size)
        return HostWeights(feed_forward, attention, output)

    def _placed(
        self, place: Sequence[int], overrides: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[str, int, int, int]]:
        """Yield each tensor's name, layer, bytes and device."""
        rules: list[tuple[Callable[[str], object], int]] = []
        for pattern, target in overrides:
            try:
                rules.append((re.compile(pattern).search, target))
            except re.error as error:
                raise InputError(f"the override {pattern[:80]!r} is no regular expression: {error}") from None
        for name, layer, size in self.names:
            usual = HOST if layer == HOST else place[layer]
            yield name, layer, size, next((target for search, target in rules if search(name)), usual)


def _layer_of(name: str) -> int | None:
    if not name.startswith("blk."):
        return None
    number = name[4:].partition(".")[0]
    return int(number) if number.isascii() and number.isdigit() and len(number) < 5 else None


def fill_in_order(costs: Sequence[int], rooms: Sequence[int]) -> list[int] | None:
    """Put layers on devices in order, each as full as its room allows: the count on each device, or None if they do not fit.

    In a fixed order of devices this succeeds whenever any split does.
    """
    counts = [0] * len(rooms)
    device = 0
    left = rooms[0] if rooms else 0
    for cost in costs:
        while cost > left:
            device += 1
            if device >= len(rooms):
                return None
            left = rooms[device]
        left -= cost
        counts[device] += 1
    return counts
