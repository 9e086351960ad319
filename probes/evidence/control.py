"""A control run: the same lengths on a model that surely fits, beside the one under test."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from .records import Payload, Record, Text


class SpeedAt(Record):
    """Speeds of one cold prompt at one length."""

    tokens: int = Field(ge=1, description="as the server that was asked counted")
    prefill_tps: float | None = Field(default=None, gt=0)
    generation_tps: float | None = Field(default=None, gt=0)


class ControlRun(Payload):
    """Speeds over length, side by side.

    A slope is the share of its own time for one token at no depth that each 1,000 tokens of depth add; None where fewer than two lengths were
    measured. Counts are each server's own: a word may be more tokens for one model than for the other.
    """

    kind: ClassVar[str] = "control_run"
    model: Text | None = Field(default=None, description="the control's model, as its server says")
    server: Text | None = None
    same_server: bool = Field(
        default=False, description="whether the control is another model on the server under test"
    )
    own: tuple[SpeedAt, ...] = ()
    control: tuple[SpeedAt, ...] = ()
    own_prefill_slope: float | None = Field(default=None, ge=0)
    control_prefill_slope: float | None = Field(default=None, ge=0)
    own_generation_slope: float | None = Field(default=None, ge=0)
    control_generation_slope: float | None = Field(default=None, ge=0)
