"""Model files: what a header says, and what a window needs in memory.

- :func:`read_model` gives the :class:`~probes.evidence.subject.ModelFile` payload;
- :func:`memory` gives what one context of llama.cpp allocates (caches and states, exact), or why it is refused;
- :func:`budget` gives the :class:`~probes.evidence.machine.MemoryBudget` payload: every device's sum and the longest window that fits.

They are imported when they are first called, because a header must be readable in a few starts of the interpreter and their classes are not.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs more to import than reading a header takes; type checkers know this name
if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from probes.evidence.machine import Device, MemoryBudget
    from probes.evidence.subject import Configuration, ModelFile

    from .context import ContextSettings, Memory, Refused
    from .planner import Model, Options


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read the header of a model: a GGUF file (whole or split), or a folder with config.json and safetensors.

    BadFileError if it is none of these or is damaged.
    """
    from .payload import read_model as read  # noqa: PLC0415 - see above

    return read(path)


def memory(model: str | os.PathLike[str] | Model, settings: ContextSettings) -> Memory | Refused:
    """Give what one llama.cpp context with these settings allocates for a GGUF model, in bytes, or why llama.cpp refuses them.

    BadFileError for the file; UnknownShapeError where the architecture or a key that decides is not known.
    """
    from .session import memory_for  # noqa: PLC0415

    return memory_for(model, settings)


def budget(
    model: str | os.PathLike[str] | Model,
    configuration: Configuration | ContextSettings,
    devices: Sequence[Device],
    *,
    ram_available_bytes: int | None = None,
    margin_bytes: int | None = None,
    options: Options | None = None,
) -> MemoryBudget:
    """Predict memory by device and component for a configuration, and the longest window of one slot that fits.

    ``devices`` as the drivers tell them (``free_bytes`` is what counts), ``margin_bytes`` for each of them (default 1 GiB). Basis ``model``;
    ``error_bytes`` is the work space's. BadFileError, UnknownShapeError; RefusedSettingError where llama.cpp would not start.
    """
    from .session import budget_for  # noqa: PLC0415

    return budget_for(model, configuration, devices, ram_available_bytes, margin_bytes, options)
