"""The line of progress while a length is measured: its tokens, the speed seen so far and the wait that it promises, and the memory in use now."""

from __future__ import annotations

from probes.base import ProbeContext
from probes.evidence.sizes import show_size

MOST_DEVICES = 4


def length_line(context: ProbeContext, tokens: int) -> str:
    """Say ``N tokens``, and after it what is known: tokens per second, seconds that a cold prefill takes, each device's and the server's memory."""
    parts = [f"{tokens} tokens"]
    if context.prefill_tps:
        parts += [f"{context.prefill_tps:.0f} tokens/s", f"{tokens / context.prefill_tps:.0f} s"]
    latest = context.sampler.latest() if context.sampler is not None else None
    if latest is not None:
        for name, device in sorted(latest.devices.items())[:MOST_DEVICES]:
            if device.used_bytes is not None:
                parts.append(f"{name} {show_size(device.used_bytes)}")
        if latest.server is not None and latest.server.rss is not None:
            parts.append(f"RAM {show_size(latest.server.rss)}")
    return ", ".join(parts)
