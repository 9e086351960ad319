"""One piece of evidence: what it is, who says so, when, and either its data or why there is none.

The data of each kind is a :class:`Payload`, registered by its ``kind``; a journal line is read back into the very same class. Nothing here
judges: a number is what the source gave, with its unit in the name (``_bytes``, ``_s``, ``_tps``, ``_tokens``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, model_validator

SCHEMA_VERSION = 1

Why = Literal["not-asked", "not-run", "failed", "not-offered"]
"""Why something is unknown. Only the first two are open: asking or probing can close them."""

Source = Literal["measured", "server", "process", "log", "file", "machine", "user", "report"]
"""Who says it. ``measured``: we did, with our own request or counter; ``server``: its HTTP answer; ``process``: its command line or
environment; ``log``: its log; ``file``: a model or configuration file; ``machine``: the operating system or a driver; ``user``: an answer;
``report``: prose that was pasted (at most a fair weight)."""

Standing = Literal["measured", "read", "answered"]
STANDING: dict[Source, Standing] = {
    "measured": "measured",
    "server": "read",
    "process": "read",
    "log": "read",
    "file": "read",
    "machine": "read",
    "user": "answered",
    "report": "answered",
}
"""Measured beats read, read beats answered."""


def whole_characters(value: Any) -> Any:
    """Replace halves of surrogate pairs, which JSON escapes and file names can carry and no UTF-8 file can; leave all else alone."""
    if not isinstance(value, str) or value.isascii():
        return value
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


Text = Annotated[str, BeforeValidator(whole_characters), StringConstraints(max_length=65_536)]
"""Text from outside: bounded, never trusted, escaped where it is shown."""


def utc_now() -> datetime:
    """Give the time now, in UTC, to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


class Record(BaseModel):
    """Base of everything that is written to disk: closed, immutable, finite numbers only."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, ser_json_inf_nan="null")


class Payload(Record):
    """Base of the data of one kind of evidence. A subclass sets ``kind`` and is found again by it."""

    kind: ClassVar[str] = ""
    kinds: ClassVar[dict[str, type[Payload]]] = {}

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Register the kind; two classes of one kind are a mistake."""
        super().__pydantic_init_subclass__(**kwargs)
        if not cls.kind:
            return
        known = Payload.kinds.get(cls.kind)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise TypeError(f"two payloads are of kind {cls.kind!r}: {known.__qualname__} and {cls.__qualname__}")
        Payload.kinds[cls.kind] = cls


class Unavailable(Record):
    """Why a piece of evidence could not be had. A failed probe is evidence too."""

    why: Why
    note: Text = ""


P = TypeVar("P", bound=Payload)


class Evidence(Record):
    """One piece of evidence: either ``data`` of its kind, or ``unavailable``."""

    schema_version: int = SCHEMA_VERSION
    kind: str
    run: int = Field(default=1, ge=0, description="which run of the case, from 1; 0 is before any run")
    source: Source
    at: datetime = Field(default_factory=utc_now)
    origin: Text = Field(default="", description="where exactly: an endpoint, a file and line, a question's id")
    data: dict[str, Any] | None = None
    unavailable: Unavailable | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.data is None) == (self.unavailable is None):
            raise ValueError("evidence has either data or a reason why there is none")
        return self

    @property
    def standing(self) -> Standing:
        """Say how far this source reaches in a conflict."""
        return STANDING[self.source]

    def payload(self) -> Payload:
        """Read the data back as its class. ValueError if there is none or the kind is unknown."""
        if self.data is None:
            raise ValueError(f"no data in evidence of kind {self.kind}")
        known = Payload.kinds.get(self.kind) or _kind(self.kind)
        if known is None:
            raise ValueError(f"unknown kind of evidence: {self.kind}")
        return known.model_validate(self.data)


def _kind(name: str) -> type[Payload] | None:
    """Look for a kind in the modules of this package that were not needed so far."""
    import importlib  # noqa: PLC0415 - rarely needed, and this module is imported by everything
    import pkgutil  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        importlib.import_module(f"{__package__}.{module.name}")
    return Payload.kinds.get(name)


def found(payload: Payload, *, source: Source, run: int = 1, origin: str = "", at: datetime | None = None) -> Evidence:
    """Make evidence of something that was found."""
    return Evidence(
        kind=payload.kind,
        run=run,
        source=source,
        origin=origin,
        data=payload.model_dump(mode="json"),
        at=at or utc_now(),
    )


def not_found(
    kind: type[Payload] | str, why: Why, note: str = "", *, source: Source = "measured", run: int = 1, origin: str = ""
) -> Evidence:
    """Make evidence that something could not be had, with why."""
    name = kind if isinstance(kind, str) else kind.kind
    return Evidence(kind=name, run=run, source=source, origin=origin, unavailable=Unavailable(why=why, note=note))


class EvidenceSet:
    """All evidence of one run, by kind; the only thing that derivations read."""

    def __init__(self, evidence: list[Evidence] | tuple[Evidence, ...]) -> None:
        self.all: tuple[Evidence, ...] = tuple(evidence)
        self._read: dict[str, list[tuple[Evidence, Payload]]] = {}

    def of(self, kind: type[P]) -> list[tuple[Evidence, P]]:
        """Give every piece of that kind that has data, oldest first, with its record."""
        if kind.kind not in self._read:
            self._read[kind.kind] = [(e, e.payload()) for e in self.all if e.kind == kind.kind and e.data is not None]
        return cast("list[tuple[Evidence, P]]", self._read[kind.kind])

    def last(self, kind: type[P]) -> P | None:
        """Give the newest payload of that kind, or None."""
        pieces = self.of(kind)
        return pieces[-1][1] if pieces else None

    def why_not(self, kind: type[Payload]) -> Unavailable | None:
        """Say why there is none of that kind, where a probe said so; None if it was never tried."""
        reasons = [e.unavailable for e in self.all if e.kind == kind.kind and e.unavailable is not None]
        return reasons[-1] if reasons else None
