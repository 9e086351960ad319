"""Walks the ladder: every rung once, upwards; then the length that matters as often as the criteria ask.

What passes is not decided here: ``passes`` is given. A rung that is in the journal already is not measured again. A rung that was refused, died or
hung ends the way up; what is below it is what can be claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import ClassVar

from probes.attempt import Asking, Attempts
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.records import Evidence
from probes.evidence.rungs import Criteria, LadderPlan, RungResult
from probes.ladder.rungs import Ladder, RungText

Passes = Callable[[Sequence[RungResult]], bool | None]
"""Given all attempts at one length: True (passes), False (does not), None (cannot be told)."""

HARD_STOPS = frozenset({"refused", "died", "timeout", "failed"})


class LadderProbe(Probe):
    """The rungs of one plan. ``done``: attempts that were measured before an interruption."""

    id: ClassVar[str] = "ladder"
    gives: ClassVar[tuple[str, ...]] = (RungResult.kind,)

    def __init__(
        self,
        plan: LadderPlan,
        texts: Ladder,
        asking: Asking,
        criteria: Criteria,
        passes: Passes,
        done: Iterable[RungResult] = (),
    ) -> None:
        self.plan = plan
        self.texts = texts
        self.asking = asking
        self.criteria = criteria
        self.passes = passes
        self.results: dict[int, list[RungResult]] = {}
        self.stopped_because = ""
        for result in done:
            self.results.setdefault(result.rung, []).append(result)

    def cost(self, context: ProbeContext) -> Cost:
        """What is left of the ladder, with the repeats at its top."""
        left = [rung for rung in self.plan.rungs if rung not in self.results]
        repeats = max(0, self.criteria.repeats - 1)
        top = max(self.plan.rungs)
        tokens = sum(left) + repeats * top
        asks = 1 if self.asking.several else 9
        speed = context.prefill_tps or 500.0
        return Cost(
            requests=asks * (len(left) + repeats),
            prompt_tokens=tokens,
            generated_tokens=(len(left) + repeats) * (self.asking.budget(9) + 8 * (asks - 1)),
            seconds=tokens / speed + (len(left) + repeats) * asks * 0.5,
        )

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield rungs as they are measured."""
        attempts = Attempts(context, self.asking)
        for rung in self.plan.rungs:
            if self.results.get(rung):
                if self.results[rung][0].result in HARD_STOPS and self.results[rung][0].error_kind != "bad-answer":
                    self.stopped_because = f"{rung} tokens did not pass"
                    break
                continue
            if context.time_left() <= 0:
                self.stopped_because = "the budget was used up"
                break
            result = yield from self._attempt(context, attempts, self.texts.at(rung), 1)
            if result.result in HARD_STOPS:
                self.stopped_because = f"{rung} tokens: {result.result}"
                break
        yield from self._settle(context, attempts)

    def _attempt(
        self, context: ProbeContext, attempts: Attempts, text: RungText, number: int
    ) -> Generator[Evidence, None, RungResult]:
        yield from attempts.measure(text, number)
        assert attempts.result is not None
        self.results.setdefault(text.rung, []).append(attempts.result)
        return attempts.result

    def important(self) -> int | None:
        """Give the length that matters: the highest planned one (the target) if it may pass, else the longest that does."""
        for rung in sorted(self.results, reverse=True):
            if self.passes(self.results[rung]) is not False:
                return rung
        return None

    def _settle(self, context: ProbeContext, attempts: Attempts) -> Iterator[Evidence]:
        """Repeat at the length that matters; where a repeat fails, the next shorter one is the one that matters."""
        while (rung := self.important()) is not None:
            while len(self.results[rung]) < self.criteria.repeats:
                if context.time_left() <= 0:
                    self.stopped_because = self.stopped_because or "the budget was used up"
                    return
                number = len(self.results[rung]) + 1
                result = yield from self._attempt(context, attempts, self.texts.at(rung), number)
                if result.result == "died":
                    self.stopped_because = f"the server died at {rung} tokens, attempt {result.attempt}"
                    return
                if self.passes(self.results[rung]) is False:
                    break
            else:
                if self.passes(self.results[rung]) is not False:
                    return
