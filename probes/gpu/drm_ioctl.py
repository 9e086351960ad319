"""What the kernel's graphics drivers tell only when asked through their device file: memory regions, and whether a GPU is part of the processor.

The layouts are the kernel's stable interface (amdgpu_drm.h, i915_drm.h, xe_drm.h). Each question is read-only.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from probes.gpu.base import plausible

Call = Callable[[int, int, "ctypes.Array[ctypes.c_char]"], None]
"""(open file, request, buffer that is read and written); OSError if the driver refuses."""

_MOST_REPLY = 1 << 16


def request(number: int, size: int, *, read: bool) -> int:
    """Encode a driver's request number: written, or written and read back."""
    return ((3 if read else 1) << 30) | (size << 16) | (ord("d") << 8) | (0x40 + number)


def kernel_call(file: int, code: int, buffer: ctypes.Array[ctypes.c_char]) -> None:
    """Ask the real kernel."""
    if sys.platform != "linux":
        raise OSError("only on Linux")
    import fcntl  # noqa: PLC0415 - not on Windows

    fcntl.ioctl(file, code, buffer, True)


@dataclass(frozen=True, slots=True)
class Region:
    """One region of memory. ``free`` None: the driver tells it only to a privileged process."""

    kind: Literal["system", "device"]
    total: int | None
    free: int | None


def amd_is_integrated(file: int, device: int | None, call: Call = kernel_call) -> bool | None:
    """Ask amdgpu whether the GPU is part of the processor; None if it does not say, or answers about another device."""
    reply = ctypes.create_string_buffer(512)
    # drm_amdgpu_info: pointer, size, query (0x16: device information), and 16 bytes that this query does not use
    question = ctypes.create_string_buffer(struct.pack("=QII16x", ctypes.addressof(reply), len(reply), 0x16), 32)
    try:
        call(file, request(0x05, 32, read=False), question)
    except OSError:
        return None
    (told,) = struct.unpack_from("=I", reply, 0)
    (flags,) = struct.unpack_from("=Q", reply, 136)
    if told == 0 or (device is not None and told != device):
        return None
    return bool(flags & 1)


def xe_regions(file: int, call: Call = kernel_call) -> tuple[Region, ...] | None:
    """Ask xe for its memory regions; None if it refuses."""

    def ask(reply: ctypes.Array[ctypes.c_char] | None) -> int:
        size = 0 if reply is None else len(reply)
        where = 0 if reply is None else ctypes.addressof(reply)
        # drm_xe_device_query: extensions, query (1: memory regions), size, data, two reserved
        question = ctypes.create_string_buffer(struct.pack("=QIIQ16x", 0, 1, size, where), 40)
        call(file, request(0x00, 40, read=True), question)
        return int(struct.unpack_from("=QII", question, 0)[2])

    try:
        size = ask(None)
        if not 8 <= size <= _MOST_REPLY:
            return None
        reply = ctypes.create_string_buffer(size)
        ask(reply)
    except OSError:
        return None
    return parse_xe_regions(reply.raw)


def parse_xe_regions(reply: bytes) -> tuple[Region, ...] | None:
    """Read drm_xe_query_mem_regions: a count, then entries of 88 bytes. ``used`` is 0 for an unprivileged process: not told."""
    if len(reply) < 8:
        return None
    (count,) = struct.unpack_from("=I", reply, 0)
    if count > 64 or 8 + 88 * count > len(reply):
        return None
    regions = []
    for index in range(count):
        kind, _instance, _page, total, used = struct.unpack_from("=HHIQQ", reply, 8 + 88 * index)
        size = plausible(total)
        free = size - used if size is not None and 0 < used <= size else None
        regions.append(Region("device" if kind == 1 else "system", size, free))
    return tuple(regions)


def i915_regions(file: int, call: Call = kernel_call) -> tuple[Region, ...] | None:
    """Ask i915 for its memory regions; None if it refuses."""

    def ask(reply: ctypes.Array[ctypes.c_char] | None) -> int:
        # drm_i915_query_item: id (4: memory regions), length, flags, data; drm_i915_query: one item
        where = 0 if reply is None else ctypes.addressof(reply)
        item = ctypes.create_string_buffer(struct.pack("=QiIQ", 4, 0 if reply is None else len(reply), 0, where), 24)
        question = ctypes.create_string_buffer(struct.pack("=IIQ", 1, 0, ctypes.addressof(item)), 16)
        call(file, request(0x39, 16, read=True), question)
        return int(struct.unpack_from("=Qi", item, 0)[1])

    try:
        size = ask(None)
        if not 16 <= size <= _MOST_REPLY:
            return None
        reply = ctypes.create_string_buffer(size)
        if ask(reply) <= 0:
            return None
    except OSError:
        return None
    return parse_i915_regions(reply.raw)


def parse_i915_regions(reply: bytes) -> tuple[Region, ...] | None:
    """Read drm_i915_query_memory_regions: a count, 12 reserved bytes, entries of 88 bytes. All unallocated: not told, or truly unused."""
    if len(reply) < 16:
        return None
    (count,) = struct.unpack_from("=I", reply, 0)
    if count > 64 or 16 + 88 * count > len(reply):
        return None
    regions = []
    for index in range(count):
        kind, _instance, _pad, probed, left = struct.unpack_from("=HHIQQ", reply, 16 + 88 * index)
        size = plausible(probed)
        free = left if size is not None and left < size else None
        regions.append(Region("device" if kind == 1 else "system", size, free))
    return tuple(regions)


def open_node(path: str) -> int | None:
    """Open a device file for questions; None if it is absent or not allowed."""
    try:
        return os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return None
