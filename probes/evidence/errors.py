"""Everything that ctxdoctor raises on purpose, one tree; each leaf says in one line what to do.

::

    CtxDoctorError
    ├── InputError                 exit 2: what the user gave is wrong
    │   ├── BadFileError           a file that is not what it was given as (model, log, answers, criteria)
    │   ├── CaseError              a case that cannot be opened
    │   │   ├── CaseBusyError      another process has it
    │   │   └── CaseNewerError     written by a newer version
    │   ├── RefusedSettingError    a setting that the engine would refuse
    │   └── ImpossibleValueError   a value outside its fact's range, with its source named
    ├── CouldNotLookError          exit 3: the server could not be asked
    │   ├── UnreachableError       nothing listens, or the name does not resolve
    │   ├── WrongKeyError          401 or 403
    │   ├── StillLoadingError      the deadline passed while it loaded
    │   ├── ServerDiedError        the connection broke or the process ended
    │   ├── NoAnswerInTimeError    a deadline passed while it answered
    │   ├── BadAnswerError         not what was asked for: no JSON, too long, endless, lying
    │   └── NotOfferedError        this server or machine does not offer that
    ├── RequestFailedError         the server answered with an error of its own, typed in ``kind``
    ├── LaunchFailedError          exit 3: a server did not start (usually recorded as evidence instead)
    ├── DiskFullError              exit 3: said before a measurement is lost
    └── InterruptedByUserError     exit 130: Ctrl-C; the case is kept
"""

from __future__ import annotations

TYPE_CHECKING = (
    False  # typing costs more to import than reading a model's header may take; type checkers know this name
)
if TYPE_CHECKING:
    from typing import ClassVar


class CtxDoctorError(Exception):
    """Something that the user should know, in one line that says what to do."""

    exit_code: ClassVar[int] = 3

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))

    def __str__(self) -> str:
        """Give the one line."""
        return str(self.args[0])


class InputError(CtxDoctorError):
    """What the user gave is wrong."""

    exit_code = 2


class BadFileError(InputError):
    """A file is not what it was given as."""


class CaseError(InputError):
    """A case cannot be opened."""


class CaseBusyError(CaseError):
    """Another process works on this case."""


class CaseNewerError(CaseError):
    """The case was written by a newer version."""


class RefusedSettingError(InputError):
    """A setting that the engine would refuse."""


class ImpossibleValueError(InputError):
    """A value is outside what its fact can be; the source is named."""


class CouldNotLookError(CtxDoctorError):
    """The server could not be asked."""


class UnreachableError(CouldNotLookError):
    """Nothing listens there."""


class WrongKeyError(CouldNotLookError):
    """The server wants another key."""


class StillLoadingError(CouldNotLookError):
    """The server was still loading when the deadline passed."""


class ServerDiedError(CouldNotLookError):
    """The connection broke, or the process ended."""


class NoAnswerInTimeError(CouldNotLookError):
    """A deadline passed while the server answered."""


class BadAnswerError(CouldNotLookError):
    """The answer is not what was asked for: no JSON, too long, endless, or it contradicts itself."""


class NotOfferedError(CouldNotLookError):
    """This server or machine does not offer that. ``status``: of the HTTP answer that says so; 0 where none does."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class RequestFailedError(CtxDoctorError):
    """The server refused or failed a request with an error of its own.

    ``kind`` is one of :data:`probes.evidence.request.ERROR_KINDS`; ``status`` the HTTP status (0 if none); ``prompt_tokens`` and
    ``window`` where the server said them.
    """

    def __init__(
        self, message: str, *, kind: str, status: int = 0, prompt_tokens: int | None = None, window: int | None = None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.prompt_tokens = prompt_tokens
        self.window = window


class LaunchFailedError(CtxDoctorError):
    """A server did not start."""


class DiskFullError(CtxDoctorError):
    """There is no room for the next record."""


class BudgetEndedError(Exception):
    """The run's time is over while something was to be asked. Beside the tree on purpose: no probe may take it for a failure of the server.

    Raised only where a run gave its end; the run itself catches it.
    """


class InterruptedByUserError(CtxDoctorError):
    """Ctrl-C; the case is kept."""

    exit_code = 130
