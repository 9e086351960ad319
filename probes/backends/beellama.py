"""beellama.cpp: llama-server of mainline, with more cache types and speculation; told by its command line or log only.

No HTTP field names it (docs/beellama-args.md of v0.4.4): ``commands.detect_backend`` knows what starts it, ``logs.dialects.beellama`` what it prints,
``model_file.context`` the sizes of its cache types.
"""

from __future__ import annotations

from typing import ClassVar

from probes.backends.base import Signs
from probes.backends.llamacpp import LlamaCpp


class BeeLlama(LlamaCpp):
    """llama-server of beellama.cpp. Over HTTP it is mainline's."""

    name: ClassVar[str] = "beellama.cpp"

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """Never by HTTP: it answers as mainline does."""
        del signs
        return None
