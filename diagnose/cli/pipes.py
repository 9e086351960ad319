"""Output whose reader went away, as ``| head`` or a closed terminal: what is left to say goes nowhere, and the exit code is the command's own."""

from __future__ import annotations

import contextlib
import errno
import os
import sys

TYPE_CHECKING = False  # typing costs more to import than the launcher; type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


class _Unbreakable:
    """A stream that goes on into nothing when its pipe breaks or its terminal is closed. All else is the stream's own."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._terminal = False
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._terminal = bool(stream.isatty())  # asked now: a terminal that was closed is none any more

    def _nobody_reads(self, error: OSError) -> bool:
        """Say whether the reader is gone. A terminal that was closed answers with EIO, which from a file is a broken disk."""
        return isinstance(error, BrokenPipeError) or (self._terminal and error.errno == errno.EIO)

    def write(self, text: str) -> int:
        """Write, if anybody reads."""
        try:
            return int(self._stream.write(text))
        except OSError as error:
            if not self._nobody_reads(error):
                raise
            self._into_nothing()
            return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush, if anybody reads."""
        try:
            self._stream.flush()
        except OSError as error:
            if not self._nobody_reads(error):
                raise
            self._into_nothing()

    def _into_nothing(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(nowhere, self._stream.fileno())
        finally:
            os.close(nowhere)
        # what the broken pipe did not take
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def unbreakable() -> Iterator[None]:
    """Let neither stdout nor stderr break the block; a stream that was closed before the start is opened into nothing."""
    before = sys.stdout, sys.stderr
    with contextlib.ExitStack() as stack:
        out, err = (
            one if one is not None else stack.enter_context(open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123 - pathlib costs more
            for one in before
        )
        sys.stdout, sys.stderr = _Unbreakable(out), _Unbreakable(err)
        try:
            yield
        finally:
            for one in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    one.flush()
            sys.stdout, sys.stderr = before
