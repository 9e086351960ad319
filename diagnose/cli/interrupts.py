"""Ctrl-C that always arrives: Python drops an interrupt that falls into a finaliser or a weak reference's callback; here it comes again."""

from __future__ import annotations

import contextlib
import sys

TYPE_CHECKING = False  # typing costs more to import than the launcher; type checkers know this name
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

AGAIN_AFTER_S = 0.02
"""How long after it was dropped an interrupt comes again: by then the callback that swallowed it is over."""


def _come_again(waiting: list[bool]) -> None:
    """Send it again in a moment, once: ``waiting`` holds something while one is on its way, so that the way out is not interrupted by a second."""
    if waiting:
        return
    waiting.append(True)
    import signal  # noqa: PLC0415 - only where an interrupt was dropped
    import threading  # noqa: PLC0415

    main = threading.main_thread().ident
    # where SIGINT is ignored, what was dropped came of SIGTERM or SIGHUP, which are treated as interrupts too
    number = signal.SIGINT if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN else signal.SIGTERM

    def send() -> None:
        waiting.clear()
        if main is not None and hasattr(signal, "pthread_kill"):
            signal.pthread_kill(main, number)  # ends what the main thread waits for in the system, too
        else:
            signal.raise_signal(number)

    timer = threading.Timer(AGAIN_AFTER_S, send)
    timer.daemon = True
    timer.start()


@contextlib.contextmanager
def once_is_enough() -> Iterator[None]:
    """Let further interrupts pass within the block: the person has pressed Ctrl-C, and the last words are being said."""
    import signal  # noqa: PLC0415
    import threading  # noqa: PLC0415

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextlib.contextmanager
def never_lost() -> Iterator[None]:
    """Send an interrupt again within the block where Python could only report it as "ignored". All else is reported as before."""
    before = sys.unraisablehook
    waiting: list[bool] = []

    def hook(unraisable: Any) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _come_again(waiting)
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before
