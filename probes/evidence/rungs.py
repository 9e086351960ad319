"""The ladder's criteria and results."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field

from .records import Payload, Record, Text
from .request import Outcome


class Criteria(Payload):
    """Pass criteria, written down before the first rung. ``hash`` covers every value."""

    kind: ClassVar[str] = "criteria"
    repeats: int = Field(default=3, ge=1, le=100)
    min_canaries: float = Field(default=0.9, ge=0, le=1, description="share of canaries that must be recalled")
    min_of_own_base: float = Field(default=0.85, ge=0, le=1, description="share of the model's own short score")
    min_constraints: float = Field(default=1.0, ge=0, le=1)
    min_prefill_tps: float | None = Field(default=None, ge=0)
    min_generation_tps: float | None = Field(default=None, ge=0)
    max_first_token_s: float | None = Field(default=None, ge=0)
    margin_bytes: int | None = Field(default=None, ge=0)
    fixed_at: datetime | None = None

    @property
    def hash(self) -> str:
        """Sixteen hex digits over all values but the time."""
        return hashlib.sha256(self.model_dump_json(exclude={"fixed_at"}).encode()).hexdigest()[:16]


class DepthHit(Record):
    """One canary: where it stood (0 to 1 of the text's length) and whether it was recalled."""

    depth: float = Field(ge=0, le=1)
    hit: bool


class CanaryScore(Record):
    """Canaries of one attempt."""

    hit: int = Field(ge=0)
    asked: int = Field(ge=0)
    by_depth: tuple[DepthHit, ...] = ()
    non_literal_hit: int | None = Field(default=None, ge=0)
    non_literal_asked: int | None = Field(default=None, ge=0)


class ConstraintScore(Record):
    """Coding constraints of one attempt."""

    met: int = Field(ge=0)
    asked: int = Field(ge=0)
    failed: tuple[Text, ...] = ()


class DevicePeak(Record):
    """The most memory one device held during an attempt, sampled."""

    id: str
    peak_bytes: int = Field(ge=0)


class RungResult(Payload):
    """One attempt at one length."""

    kind: ClassVar[str] = "rung"
    rung: int = Field(ge=0, description="the length that was planned, in tokens")
    input_tokens: int = Field(ge=0, description="as the server counted; as we counted where it did not say")
    output_tokens: int = Field(default=0, ge=0)
    cached_tokens: int | None = Field(default=None, ge=0)
    attempt: int = Field(ge=1)
    result: Outcome
    error: Text | None = None
    error_kind: str | None = None
    prefill_tps: float | None = Field(default=None, ge=0)
    generation_tps: float | None = Field(default=None, ge=0)
    first_token_s: float | None = Field(default=None, ge=0)
    client_prefill_tps: float | None = Field(default=None, ge=0)
    client_generation_tps: float | None = Field(default=None, ge=0)
    total_s: float | None = Field(default=None, ge=0)
    canaries: CanaryScore | None = None
    constraints: ConstraintScore | None = None
    devices: tuple[DevicePeak, ...] = ()
    host_peak_bytes: int | None = Field(default=None, ge=0)
    cold: bool | None = Field(default=None, description="whether nothing came from the prompt cache")
    cache_asked: bool | None = Field(
        default=None, description="whether the request let the server use its prompt cache"
    )
    processed_tokens: int | None = Field(
        default=None, ge=0, description="prompt tokens evaluated by all requests of the attempt"
    )
    window: int | None = Field(default=None, ge=0, description="window that the server said when the attempt had ended")
    busy_beside: bool | None = Field(
        default=None, description="whether someone else's request was running when the attempt began"
    )
    purpose: str | None = Field(default=None, description="climb, bisect, verify, above, more, base")
    prompt_hash: str | None = None


class RecallBase(Payload):
    """The model's own score at the shortest rung, and whether it can do the test at all."""

    kind: ClassVar[str] = "recall_base"
    style: Literal["question", "completion"]
    at_tokens: int = Field(ge=0)
    hit: int = Field(ge=0)
    asked: int = Field(ge=1)
    able: bool = Field(description="false when the base is under one third: the model cannot do the test")
    constraints_met: int | None = Field(default=None, ge=0, description="coding constraints kept at the shortest rung")
    constraints_asked: int | None = Field(default=None, ge=0)
    several: bool = Field(default=False, description="whether several canaries are asked in one request")
    reasoning: bool = Field(default=False, description="whether the model reasons before it answers")
    enough: bool = Field(default=True, description="whether enough canaries were asked to make a base")
    ways: dict[str, float] = Field(default_factory=dict, description="way of asking → share of hits in the first look")


class WayOfAsking(Payload):
    """How this model is asked, and what it can be asked, as a short text showed; fixed from then on."""

    kind: ClassVar[str] = "way_of_asking"
    style: Literal["question", "completion"]
    several: bool = Field(default=False, description="whether several canaries are asked in one request")
    reasoning: bool = Field(default=False, description="whether the model reasons before it answers")
    ways: dict[str, float] = Field(default_factory=dict, description="way of asking → share of hits in the first look")
    at_tokens: int = Field(ge=0)
    near_duplicates: float = Field(
        default=0.0, ge=0, le=1, description="share of facts in the ladder's texts whose name is like another one's"
    )
    twins_hit: int | None = Field(default=None, ge=0, description="facts recalled from a text with near-duplicates")
    twins_asked: int | None = Field(default=None, ge=0)
    non_literal_hit: int = Field(default=0, ge=0, description="facts found whose question shares no word with them")
    non_literal_asked: int = Field(default=0, ge=0)
    non_literal: bool = Field(default=False, description="whether such facts are asked at length too")


class LadderPlan(Payload):
    """What was planned before the first rung, and the order of it."""

    kind: ClassVar[str] = "ladder_plan"
    rungs: tuple[int, ...]
    target: int | None = None
    output_tokens: int = Field(ge=0)
    seed: int = 0
    why: Text = ""
    tokenizer: Text = Field(default="", description="who counted: server, transformers, calibration")
    resolution: int | None = Field(
        default=None, description="how finely the boundary is searched; None: the rungs alone"
    )
    predicted: int | None = Field(default=None, description="longest length that the memory model expects to fit")


class LadderFound(Payload):
    """How the walk up the ladder ended."""

    kind: ClassVar[str] = "ladder_found"
    longest_passed: int | None = Field(default=None, ge=0)
    passes_in_a_row: int = Field(ge=0)
    asked_in_a_row: int = Field(ge=1)
    shortest_failed: int | None = Field(default=None, ge=0)
    stopped: str
    cache: Literal["resumes", "none", "unknown"] = Field(
        default="unknown", description="whether the server went on from what it had read, where it was allowed to"
    )
    uncached_tokens: int = Field(ge=0)
    why: Text = ""


class WindowChanged(Payload):
    """The server gave another window than before, in the middle of a ladder. Attempts from before and after are not compared."""

    kind: ClassVar[str] = "window_changed"
    before: int = Field(ge=1)
    after: int = Field(ge=1)
    at_rung: int = Field(ge=0)
    attempt: int = Field(ge=1)
