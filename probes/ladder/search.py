"""The boundary by search: what to measure next, given everything that was measured, for as few tokens as the proof allows.

The planner is a pure function of the plan and of the readings so far, so that a search that was interrupted goes on where it stood: read the
readings back from the journal and ask for the next step. It climbs (each rung's text begins with the one before, so that a server that keeps its
prompt cache reads only what was added), bisects between the longest length that passes and the shortest that does not, reads the claimed
length cold until it has passed ``repeats`` times in a row, and reads once above it unless the server refuses that anyway.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from probes.evidence.request import Outcome
from probes.evidence.rungs import RungResult
from probes.evidence.words import Words, words

Cache = Literal["resumes", "none", "unknown"]
Purpose = Literal["climb", "bisect", "verify", "above", "more"]
Stop = Literal["verified", "nothing-passes", "budget", "unproven", "died", "window-changed"]

RESOLUTION = 2048
GRAIN = 64
"""Lengths that are made up are multiples of this."""
SHORTEST = 256
"""Nothing shorter is tried where the first rung does not pass."""
MOST_STEPS = 200
MOST_MORE = 2
"""How often more canaries are asked where recall is unsure."""


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """What is fixed before the first step.

    ``rungs``: lengths to climb, in tokens, rising; the last is the longest that is of interest. ``predicted``: the longest length that the memory
    model expects to fit. ``resolution`` None: the rungs alone (``--ladder``), all of them, without bisecting. ``budget_tokens`` counts prompt tokens
    that the server really evaluates; ``budget_s`` is time.
    """

    rungs: tuple[int, ...]
    resolution: int | None = RESOLUTION
    repeats: int = 3
    predicted: int | None = None
    cache: Cache = "unknown"
    budget_tokens: int | None = None
    budget_s: float | None = None
    restarts: int = 0
    """How often the server may be started again after it died; at the next death the search ends."""
    proof_first: bool = True
    """Whether a longer length is tried only if the budget holds its proof too. False where a failure is looked for: the way up comes first, and
    what is left of the budget proves what it found."""
    question_tokens: int = 64
    """What the questions of one reading cost on top, where the text is in the cache."""

    def __post_init__(self) -> None:
        """Check what would make a search senseless. ValueError says which."""
        if not self.rungs or any(b <= a for a, b in itertools.pairwise(self.rungs)) or self.rungs[0] < 1:
            raise ValueError("rungs must rise and be positive")
        if self.repeats < 1 or (self.resolution is not None and self.resolution < 1):
            raise ValueError("repeats and resolution must be positive")

    @property
    def top(self) -> int:
        """The longest length of interest."""
        return self.rungs[-1]


@dataclass(frozen=True, slots=True)
class Reading:
    """One finished attempt as the planner sees it. ``ok`` None: recall is unsure and more canaries may settle it."""

    length: int
    ok: bool | None
    cold: bool
    outcome: Outcome = "passed"
    processed_tokens: int | None = None
    """Prompt tokens that the server really evaluated; None counts as the whole length when cold, and as expected otherwise."""
    cached_tokens: int | None = None
    seconds: float = 0.0
    limit: int | None = None
    """The longest prompt that the server says it takes, where a refusal told it."""
    cache_asked: bool | None = None
    """Whether the request let the server use its cache; None: as ``cold`` says."""
    cut: bool = False
    """Whether only the connection was lost, and the server lives: for the search that is a death, which costs no start."""

    @property
    def hard(self) -> bool:
        """Whether the server refused or died: proof enough, and not to be repeated."""
        return self.outcome in ("refused", "died")

    @property
    def refused(self) -> bool:
        """Whether the server did not even begin."""
        return self.outcome == "refused"


@dataclass(frozen=True, slots=True)
class Step:
    """What to measure next. ``expected_tokens``: prompt tokens that the server will have to evaluate."""

    length: int
    cold: bool
    purpose: Purpose
    attempt: int
    expected_tokens: int
    why: Words


@dataclass(frozen=True, slots=True)
class Found:
    """How the search ended: the claimed length (None: nothing passes), how often it passed cold, and what stands above."""

    length: int | None
    passes: int
    repeats: int
    above: int | None
    """The shortest length that does not pass, None where the top passes."""
    above_outcome: Outcome | None
    above_proved: bool
    """Refused, or read cold and failed, or there is nothing above."""
    stop: Stop
    tokens: int
    seconds: float
    why: Words

    @property
    def verified(self) -> bool:
        """Whether the claimed length passed as often as it had to."""
        return self.length is not None and self.passes >= self.repeats


@dataclass(slots=True)
class _State:
    """What the readings say so far."""

    plan: SearchPlan
    readings: Sequence[Reading]
    failing: set[int] = field(default_factory=set)
    passing: set[int] = field(default_factory=set)
    unsure: dict[int, int] = field(default_factory=dict)
    cold_run: dict[int, int] = field(default_factory=dict)
    warm_to: int = 0
    cache: Cache = "unknown"
    tokens: int = 0
    seconds: float = 0.0
    limit: int | None = None
    deaths: int = 0

    def __post_init__(self) -> None:
        self.cache = self.plan.cache
        for r in self.readings:
            self._add(r)

    def _add(self, r: Reading) -> None:
        expected = self.cost(r.length, cold=r.cold)
        self.tokens += 0 if r.refused else expected if r.processed_tokens is None else r.processed_tokens
        self.seconds += r.seconds
        asked = not r.cold if r.cache_asked is None else r.cache_asked
        if asked and r.cached_tokens is not None and self.warm_to >= 256 and not r.hard:
            reusable = min(self.warm_to, r.length)
            self.cache = "resumes" if r.cached_tokens >= reusable // 2 else "none"
        if r.limit is not None:
            self.limit = r.limit if self.limit is None else min(self.limit, r.limit)
        if r.ok is None:
            self.unsure[r.length] = self.unsure.get(r.length, 0) + 1
            if self.unsure[r.length] > MOST_MORE:
                self.failing.add(r.length)
        elif r.ok:
            self.unsure.pop(r.length, None)
            self.passing.add(r.length)
        else:
            self.failing.add(r.length)
        if r.cold:
            self.cold_run[r.length] = self.cold_run.get(r.length, 0) + 1 if r.ok else 0
        if not r.refused and r.outcome != "died":
            self.warm_to = max(self.warm_to, r.length) if self.cache != "none" else 0
        elif r.outcome == "died":
            self.warm_to = 0
            self.deaths += 1

    def cost(self, length: int, *, cold: bool) -> int:
        """Guess the prompt tokens that the server must evaluate."""
        if cold or self.cache == "none" or (self.cache == "unknown" and not self.warm_to):
            return length
        return max(0, length - self.warm_to) + self.plan.question_tokens

    @property
    def high(self) -> int | None:
        """The shortest length that does not pass."""
        return min(self.failing, default=None)

    @property
    def low(self) -> int | None:
        """The longest length that passes, below every failure."""
        high = self.high
        return max((p for p in self.passing if p not in self.failing and (high is None or p < high)), default=None)

    def tried(self, length: int) -> int:
        return sum(r.length == length for r in self.readings)

    def outcome_at(self, length: int) -> Outcome | None:
        """Give the last bad outcome at a length."""
        return next((r.outcome for r in reversed(self.readings) if r.length == length and not r.ok), None)


def next_step(plan: SearchPlan, readings: Sequence[Reading]) -> Step | Found:
    """Say what to measure next, or how the search ended. Pure: the same readings give the same step."""
    state = _State(plan, readings)
    if state.deaths > plan.restarts:
        return _found(state, "died")
    step = _next(state)
    if step is None or len(readings) >= MOST_STEPS:
        return _found(state, "verified" if state.low is not None else "nothing-passes")
    if not _affordable(state, step):
        cheaper = _verify(state) if step.purpose in ("climb", "bisect") else None
        if cheaper is not None and _affordable(state, cheaper):
            return cheaper
        return _found(state, "budget")
    return step


def stand(plan: SearchPlan, readings: Sequence[Reading], stop: Stop = "budget") -> Found:
    """Say what was found so far, for a search that has to end here, and why it has to."""
    return _found(_State(plan, readings), stop)


def _next(state: _State) -> Step | None:
    for length, count in state.unsure.items():
        if 0 < count <= MOST_MORE and length not in state.failing:
            return _step(state, length, "more", cold=False)
    if state.plan.resolution is None:
        return _fixed(state)
    return _climb(state) or _bisect(state) or _verify(state) or _above(state)


def _climb(state: _State) -> Step | None:
    """Go up the rungs until one does not pass."""
    if state.high is not None:
        return None
    reached = state.low or 0
    for rung in _climbing(state):
        if rung > reached:
            return _step(state, rung, "climb", cold=state.cache == "none" or not state.readings)
    return None


def _climbing(state: _State) -> list[int]:
    """Give the lengths to climb.

    Every rung where the text before is not read again. Where the server reads everything anew each time, fewer: each at least twice the one
    before. A prediction adds a length just below it and one just above.
    """
    plan = state.plan
    rungs = list(plan.rungs)
    if state.cache == "none":
        rungs = [*_doubling(rungs[:-1]), rungs[-1]]
    if plan.predicted is not None and rungs[0] < plan.predicted < plan.top:
        step = plan.resolution or RESOLUTION
        rungs += [
            r for r in (_grain(plan.predicted - step / 2), _grain(plan.predicted + step / 2)) if rungs[0] < r < plan.top
        ]
    return sorted(set(rungs))


def _doubling(rungs: Sequence[int]) -> list[int]:
    out = list(rungs[:1])
    for rung in rungs[1:]:
        if rung >= 2 * out[-1]:
            out.append(rung)
    return out


def _bisect(state: _State) -> Step | None:
    """Halve the gap between the longest that passes and the shortest that does not, or go straight to a limit that the server told."""
    low, high, resolution = state.low or 0, state.high, state.plan.resolution
    if high is None or resolution is None or high - low <= resolution or (not low and high < 2 * SHORTEST):
        return None
    limit = state.limit
    if limit is not None and low < limit < high and limit not in state.failing:
        return _step(state, limit, "bisect", cold=state.cache == "none")
    # The limit itself passes and one resolution above it is refused: that is the boundary.
    at_limit = limit is not None and low >= limit - GRAIN
    middle = low + resolution if at_limit else max(_grain((low + high) / 2), low + 1)
    middle = min(middle, high - 1)
    return _step(state, middle, "bisect", cold=state.cache == "none")


def _verify(state: _State) -> Step | None:
    """Read the claimed length cold, until it passed often enough in a row."""
    low = state.low
    if low is None or state.cold_run.get(low, 0) >= state.plan.repeats:
        return None
    return _step(state, low, "verify", cold=True)


def _above(state: _State) -> Step | None:
    """Read once cold above the claimed length, unless that was refused or read cold already."""
    high = state.high
    if high is None or any(r.length == high and not r.ok and (r.cold or r.hard) for r in state.readings):
        return None
    if sum(r.length == high and r.cold for r in state.readings):
        return None
    return _step(state, high, "above", cold=True)


def _fixed(state: _State) -> Step | None:
    """Read every rung once (none above one that was refused or killed the server), then the longest that passes until it is verified."""
    for rung in state.plan.rungs:
        if state.tried(rung):
            continue
        if any(f < rung and state.outcome_at(f) in ("refused", "died") for f in state.failing):
            break
        return _step(state, rung, "climb", cold=state.cache == "none" or not state.readings)
    return _verify(state)


def _step(state: _State, length: int, purpose: Purpose, *, cold: bool) -> Step:
    attempt = state.tried(length) + 1
    why = {
        "climb": words("The next length of the ladder: {length} tokens.", length=length),
        "bisect": words(
            "Between {low} tokens, which pass, and {high}, which do not.", low=state.low or 0, high=state.high
        ),
        "verify": words(
            "Pass {n} of {of} in a row, cold, at {length} tokens.",
            n=state.cold_run.get(length, 0) + 1,
            of=state.plan.repeats,
            length=length,
        ),
        "above": words("Once above the claimed length, cold: {length} tokens.", length=length),
        "more": words("More facts are asked at {length} tokens, to tell forgetting from chance.", length=length),
    }[purpose]
    return Step(length, cold, purpose, attempt, state.cost(length, cold=cold), why)


def _affordable(state: _State, step: Step) -> bool:
    """Whether a step, and the proof that must follow it, stay within the budget."""
    plan = state.plan
    proof = 0
    if plan.proof_first and step.purpose in ("climb", "bisect", "more"):
        claimed = max(state.low or 0, step.length if step.purpose == "climb" else 0)
        # A length is worth trying only if it could be proved as well; cold passes that it has already count.
        proof = claimed * max(0, plan.repeats - state.cold_run.get(claimed, 0) - (step.cold and step.length == claimed))
    if plan.budget_tokens is not None and state.tokens + step.expected_tokens + proof > plan.budget_tokens:
        return False
    if plan.budget_s is None or not state.seconds or not state.tokens:
        return True
    pace = (
        state.seconds / state.tokens
    )  # prefill slows down with depth, so this is a lower bound; the budget is checked again before each step
    return state.seconds + (step.expected_tokens + proof) * pace <= plan.budget_s


def _found(state: _State, stop: Stop) -> Found:
    low, high, plan = state.low, state.high, state.plan
    passes = state.cold_run.get(low, 0) if low is not None else 0
    proved = high is None or any(r.length == high and not r.ok and (r.cold or r.hard) for r in state.readings)
    if low is not None and stop == "verified" and passes < plan.repeats:
        stop = "unproven"
    if stop == "died" and passes >= plan.repeats and proved:
        stop = "verified"
    if low is None:
        why = words(
            "No length passed; the shortest that was tried is {length} tokens.",
            length=min((r.length for r in state.readings), default=0),
        )
        stop = stop if stop in ("budget", "died") else "nothing-passes"
    elif stop == "budget" and passes >= plan.repeats:
        # what was planned and what was counted differ by some tokens: the length that is proved is said elsewhere, as it was counted
        why = words(
            "The length that was planned as {length} tokens passed {n} times in a row, cold; then the budget ended. A larger budget looks further.",
            length=low,
            n=passes,
        )
    elif stop == "budget":
        why = words(
            "The budget ended before the proof: {length} tokens ran on the way up and passed {n} of {of} times cold; a larger budget proves more.",
            length=low,
            n=passes,
            of=plan.repeats,
        )
    elif stop == "died":
        deaths = [r for r in state.readings if r.outcome == "died"]
        at = high if high is not None else max((r.length for r in deaths), default=low)
        why = (
            words(
                "The connection was cut at {high} tokens while the server lives; {length} passed {n} of {of} times before.",
                high=at,
                length=low,
                n=passes,
                of=plan.repeats,
            )
            if deaths and all(r.cut for r in deaths)
            else words(
                "The server died at {high} tokens; {length} passed {n} of {of} times before.",
                high=at,
                length=low,
                n=passes,
                of=plan.repeats,
            )
        )
    elif high is None:
        why = words("{length} tokens passed {n} times in a row; nothing longer was of interest.", length=low, n=passes)
    else:
        why = words("{length} tokens passed {n} times in a row; {high} do not pass.", length=low, n=passes, high=high)
    return Found(
        low,
        passes,
        plan.repeats,
        high,
        state.outcome_at(high) if high is not None else None,
        proved,
        stop,
        state.tokens,
        state.seconds,
        why,
    )


def _grain(value: float) -> int:
    return max(GRAIN, round(value / GRAIN) * GRAIN)


def default_resolution(top: int) -> int:
    """Give the resolution to search with: 2K tokens, and less where the whole window is small."""
    return min(RESOLUTION, max(2 * GRAIN, _grain(top / 32)))


def reading_of(result: RungResult, ok: bool | None, *, limit: int | None = None) -> Reading:
    """Read a recorded attempt back for the planner."""
    processed = None if result.cached_tokens is None else max(0, result.input_tokens - result.cached_tokens)
    cut = result.result == "failed" and result.error_kind == "connection-lost"
    return Reading(
        length=result.rung,
        ok=ok,
        # a server that does not count its cache is believed where it was asked to leave the cache out
        cold=result.cold if result.cold is not None else result.cache_asked is False,
        outcome="died" if cut else result.result,
        processed_tokens=result.processed_tokens if result.processed_tokens is not None else processed,
        cached_tokens=result.cached_tokens,
        seconds=result.total_s or 0.0,
        limit=limit,
        cache_asked=result.cache_asked,
        cut=cut,
    )


def resumes(readings: Sequence[Reading], plan: SearchPlan) -> Cache:
    """Say whether the server was seen to go on from what it had read before."""
    return _State(plan, readings).cache


# --- what it will cost ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a search will cost, in prompt tokens that the server must evaluate: if the top passes, and at the most."""

    if_top_passes: int
    at_most: int
    requests_at_most: int

    def seconds(self, prefill_tps: float) -> tuple[float, float]:
        """Give both in seconds of prefill at a speed."""
        return self.if_top_passes / prefill_tps, self.at_most / prefill_tps


def forecast(plan: SearchPlan) -> Forecast:
    """Announce what a search will cost, by walking it: once with a top that passes, and with a break just below and in the middle of each gap."""
    free = replace(plan, budget_tokens=None, budget_s=None)
    top, requests = _walk(free, plan.top)
    worst, most = top, requests
    for low, high in zip((0, *plan.rungs), plan.rungs, strict=False):
        for limit in (high - 1, (low + high) // 2):
            tokens, steps = _walk(free, limit)
            worst, most = max(worst, tokens), max(most, steps)
    if plan.budget_tokens is not None:
        worst, top = min(worst, plan.budget_tokens), min(top, plan.budget_tokens)
    return Forecast(top, worst, most)


def _walk(plan: SearchPlan, limit: int) -> tuple[int, int]:
    """Walk a search on a made-up server that keeps its cache as the plan says and passes up to ``limit``: tokens and requests."""
    readings: list[Reading] = []
    kept = 0
    while isinstance(step := next_step(plan, readings), Step):
        cached = 0 if step.cold or plan.cache == "none" else min(kept, step.length)
        kept = max(kept, step.length)
        readings.append(
            Reading(
                step.length,
                step.length <= limit,
                step.cold or not cached,
                "passed" if step.length <= limit else "failed",
                step.length - cached,
                cached,
            )
        )
    return step.tokens, len(readings)
