"""beellama.cpp: llama-server of mainline, with more cache types and speculation; told by its command line or log only.

No HTTP field names it (docs/beellama-args.md of v0.4.4), so it is recognised from what starts it or from what it prints.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from probes.backends.base import Signs
from probes.backends.commands import detect_backend
from probes.backends.llamacpp import LlamaCpp

_LOG = re.compile(
    r"DFlash enabled for|CopySpec|kvarn\d|\bturbo[234](?:_tcq)?\b|BeeLlama|beellama|KV cache precision tail",
    re.IGNORECASE,
)

KVARN_WIDTHS = (2, 3, 4, 5, 6, 8)

BYTES_PER_VALUE: Mapping[str, float] = MappingProxyType(
    {
        # Records of 128 values: the width's bits and 0.375 bits of scales a value. The README says 5.375 for kvarn5; the growth that
        # docs/beellama-features.md measured for kvarn4 (420 MiB of K for 49,152 tokens of 16,384 values) gives the same 0.375.
        **{f"kvarn{width}": (width + 0.375) / 8 for width in KVARN_WIDTHS},
        # Blocks of 128 values.
        "turbo2": 34 / 128,
        "turbo2_tcq": 36 / 128,
        "turbo3": 50 / 128,
        "turbo3_tcq": 52 / 128,
        "turbo4": 66 / 128,
        "q6_0": 26 / 32,
    }
)
"""Cache mode → bytes of one K or V value in the compressed body. The exact ends of ``kvarn`` come on top: :func:`exact_tokens`."""


def exact_tokens(mode: str, tail_tokens: int = 0) -> int:
    """Give how many newest tokens a cache mode keeps in f16 beside its records: at least 128 for ``kvarn``, whole groups of 128."""
    if not mode.startswith("kvarn"):
        return max(0, tail_tokens)
    return max(128, -(-max(0, tail_tokens) // 128) * 128)


class BeeLlama(LlamaCpp):
    """llama-server of beellama.cpp. Over HTTP it is mainline's."""

    name: ClassVar[str] = "beellama.cpp"

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """Never by HTTP: it answers as mainline does."""
        del signs
        return None

    @classmethod
    def recognise_command(cls, argv: Sequence[str]) -> str | None:
        """By cache types, speculation types or options that only it takes, or its folder's name."""
        return "its command line" if detect_backend(argv) == cls.name else None

    @classmethod
    def recognise_log(cls, line: str) -> str | None:
        """By lines that only it prints."""
        return "a line of its log" if _LOG.search(line[:2000]) else None
