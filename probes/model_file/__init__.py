"""Model files: what a header says, and what a window needs in memory.

``read_model(path)`` gives the :class:`~probes.evidence.subject.ModelFile` payload; it is imported when it is first called, because a header
must be readable in a few starts of the interpreter and the payload's class is not.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs more to import than reading a header takes; type checkers know this name
if TYPE_CHECKING:
    import os

    from probes.evidence.subject import ModelFile


def read_model(path: str | os.PathLike[str]) -> ModelFile:
    """Read the header of a model: a GGUF file (whole or split), or a folder with config.json and safetensors.

    BadFileError if it is none of these or is damaged.
    """
    from .payload import read_model as read  # noqa: PLC0415 - see above

    return read(path)
