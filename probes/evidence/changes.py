"""The configuration of a run as it was read back, variable by variable, and what became of a prediction."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from .records import Payload, Record, Source, Text


class ReadBack(Record):
    """One variable's value as it was found in force.

    ``asked``: somebody set it (command line, environment, file); else the server or the machine says what it took by itself.
    """

    value: Any = None
    source: Source
    asked: bool = False
    asked_value: Any = Field(
        default=None, description="what was asked for, where the server says that it took something else"
    )
    raw: Text = ""


class Snapshot(Payload):
    """The configuration read back once. A variable that cannot be read is in ``unknown``, with why: it may have changed unseen."""

    kind: ClassVar[str] = "snapshot"
    when: Literal["before", "after"]
    values: dict[str, ReadBack] = Field(default_factory=dict)
    unknown: dict[str, Text] = Field(default_factory=dict)
    command_seen: bool = Field(
        default=False, description="whether the command line was read: what is not on it is not set"
    )


class PredictionScored(Payload):
    """What a change was expected to show if ``cause`` is what is wrong, and whether it did."""

    kind: ClassVar[str] = "prediction"
    cause: str
    variable: Text
    outcome: Literal["held", "failed", "cannot-tell"]
    scored_in: int = Field(ge=1, description="the run that was measured after the change")
    given_in: int = Field(ge=0, description="the run that gave the prediction")
    attempts: int = Field(
        ge=0, description="how often what was predicted was seen, all runs of that configuration together"
    )
    said: Text = ""


class JudgedAs(Payload):
    """In which way a run was judged: what could still be asked or measured then, decides what is named. An exported case is judged in the same way."""

    kind: ClassVar[str] = "judged_as"
    mode: Literal["session", "run", "triage"]
