"""Walks the ladder: asks the planner what to measure next, measures it, until the window is found and proved.

The planner (:mod:`probes.ladder.search`) is a pure function of what was measured, so a walk that was interrupted goes on where the journal ends. What
passes is not decided here: ``passes`` is given. Lengths between rungs are cut from the next longer rung's text, so that every text still begins
with the shorter ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from probes.attempt import Asking, Attempts
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import BudgetEndedError
from probes.evidence.records import Evidence, found
from probes.evidence.rungs import Criteria, LadderFound, LadderPlan, RungResult, WindowChanged
from probes.evidence.words import words
from probes.ladder.canaries import DEPTHS, Canary
from probes.ladder.constraints import Task
from probes.ladder.rungs import Ladder, RungText
from probes.ladder.search import (
    Cache,
    Found,
    Reading,
    SearchPlan,
    Step,
    forecast,
    next_step,
    reading_of,
    resumes,
    stand,
)
from probes.ladder.text import Counter, cut_to_tokens

Passes = Callable[[Sequence[RungResult]], bool | None]
"""Given all attempts at one length: True (passes), False (does not), None (cannot be told)."""


MOST_DEATHS = 8
"""So often a server may go away and come back within one ladder."""
MOST_AGAIN = 4
"""Beyond the agreed repeats, a length is read so often again at the most."""


class LadderProbe(Probe):
    """The rungs of one plan. ``done``: attempts that were measured before (the base, or before an interruption)."""

    id: ClassVar[str] = "ladder"
    stops_itself: ClassVar[bool] = True
    gives: ClassVar[tuple[str, ...]] = (RungResult.kind, LadderFound.kind, WindowChanged.kind)

    def __init__(
        self,
        plan: LadderPlan,
        texts: Ladder,
        asking: Asking,
        criteria: Criteria,
        passes: Passes,
        done: Iterable[RungResult] = (),
        *,
        window: int | None = None,
        task: Task | None = None,
        proof_first: bool = True,
    ) -> None:
        self.plan = plan
        self.texts = texts
        self.asking = asking
        self.criteria = criteria
        self.passes = passes
        self.window = window
        self.task = task
        self.results: list[RungResult] = list(done)
        self.found: Found | None = None
        self._asked: dict[int, set[str]] = {}
        """The facts that were asked for, by length."""
        self.search = SearchPlan(
            rungs=plan.rungs,
            resolution=plan.resolution,
            repeats=criteria.repeats,
            predicted=plan.predicted,
            proof_first=proof_first,
            restarts=MOST_DEATHS,
        )

    def cost(self, context: ProbeContext) -> Cost:
        """What the search will cost if the top passes; what was measured already is taken off."""
        cast = forecast(self.search)
        tokens = max(0, cast.if_top_passes - sum(one.processed_tokens or 0 for one in self.results))
        attempts = len(self.plan.rungs) + self.criteria.repeats
        asks = attempts * (1 if self.asking.several else 9)
        speed = context.prefill_tps or 500.0
        return Cost(
            requests=asks,
            prompt_tokens=tokens,
            generated_tokens=attempts * self.asking.budget(9) + 8 * (asks - attempts),
            seconds=tokens / speed,
        )

    @property
    def cache(self) -> Cache:
        """Whether the server was seen to go on from what it had read before."""
        return resumes(self.readings(), self.search)

    def readings(self) -> list[Reading]:
        """Give what was measured as the planner sees it."""
        readings = []
        for place, one in enumerate(self.results):
            same = [other for other in self.results[: place + 1] if other.rung == one.rung]
            ok = self.passes(same) if one.result == "passed" else False
            readings.append(reading_of(one, ok, limit=self.window if one.result == "refused" else None))
        return readings

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield rungs as they are measured, and at the end what was found."""
        attempts = Attempts(context, self.asking)
        while True:
            left = context.time_left()
            spent = sum(one.total_s or 0.0 for one in self.results)
            step = next_step(replace(self.search, budget_s=spent + max(0.001, left)), self.readings())
            if isinstance(step, Found):
                self.found = step
                break
            if step.attempt > self.criteria.repeats + MOST_AGAIN:
                self.found = replace(
                    stand(self.search, self.readings()),
                    why=words("{length} tokens were tried as often as makes sense.", length=step.length),
                )
                break
            try:
                text = self.text_for(step, context.counter)
            except BudgetEndedError:
                self.found = stand(self.search, self.readings())
                break
            proof = step.purpose == "verify"
            yield from attempts.measure(
                text,
                step.attempt,
                cold=step.cold,
                task=self.task if proof else None,
                non_literal=text.non_literal if proof and not self._named(step.length) else (),
            )
            if attempts.result is None:
                # the budget ended in the middle, or the length has no room for a text: nothing more can be learned
                self.found = stand(self.search, self.readings())
                break
            self.results.append(attempts.result)
            changed = window_changed(self.results)
            if changed is not None:
                yield found(changed, source="measured", run=context.run, origin="ladder")
                self.found = replace(
                    stand(self.search, self.readings()),
                    stop="window-changed",
                    why=words(
                        "The window changed from {before} to {after} tokens while it was measured.",
                        before=changed.before,
                        after=changed.after,
                    ),
                )
                break
            lost = attempts.result.error_kind == "connection-lost"
            if (lost or attempts.result.result == "died") and not self._goes_on(context):
                self.found = stand(replace(self.search, restarts=0), self.readings(), "died")
                break
        yield found(
            LadderFound(
                longest_passed=self.found.length,
                passes_in_a_row=self.found.passes,
                asked_in_a_row=self.found.repeats,
                shortest_failed=self.found.above,
                stopped=self.found.stop,
                cache=self.cache,
                uncached_tokens=self.found.tokens,
                why=self.found.why.english,
            ),
            source="measured",
            run=context.run,
            origin="ladder",
        )

    def _named(self, length: int) -> bool:
        """Say whether non-literal facts were asked at a length already: asking the same again tells nothing new."""
        return any(
            one.rung == length and one.canaries is not None and one.canaries.non_literal_asked for one in self.results
        )

    def _goes_on(self, context: ProbeContext) -> bool:
        """After a death: say whether there is anything left to measure, and bring the server back for it."""
        step = next_step(self.search, self.readings())
        return isinstance(step, Step) and context.time_left() > 0 and context.revive()

    def text_for(self, step: Step, counter: Counter) -> RungText:
        """Give the text of a length, planned or between two planned ones; for a second look at a length, with other facts to ask for."""
        planned = next((text for text in self.texts.rungs if text.rung == step.length), None)
        text = planned or self._cut(step.length, counter)
        if step.purpose == "more":
            anywhere = set().union(*self._asked.values())
            left = [one for one in text.distractors if one.key not in anywhere]
            if len(left) < len(DEPTHS):
                # asked at another length it is a new question here; the same again at this one would tell nothing
                here = self._asked.get(step.length, set())
                left = [one for one in (*text.canaries, *text.distractors) if one.key not in here]
            if len(left) >= len(DEPTHS):
                more = _nearest(left, len(DEPTHS))
                rest = tuple(one for one in (*text.canaries, *text.distractors) if one not in more)
                text = replace(text, canaries=more, distractors=rest)
        self._asked.setdefault(step.length, set()).update(one.key for one in text.canaries)
        return text

    def _cut(self, length: int, counter: Counter) -> RungText:
        longer = next(text for text in self.texts.rungs if text.rung > length)
        reserve = longer.rung - longer.tokens
        size, tokens = cut_to_tokens(longer.text, length - reserve, counter)
        inside = [
            one for one in (*longer.canaries, *longer.distractors) if one.at >= 0 and one.at + len(one.line) < size
        ]
        inside = [one.moved(round(one.at / size, 4), one.at) for one in inside]
        hidden = [one for one in longer.non_literal if one.at >= 0 and one.at + len(one.line) < size]
        chosen = _nearest(inside, len(DEPTHS))
        rest = tuple(one for one in inside if one not in chosen)
        return replace(
            longer,
            rung=length,
            text=longer.text[:size],
            tokens=tokens,
            canaries=chosen,
            distractors=rest,
            non_literal=tuple(one.moved(round(one.at / size, 4), one.at) for one in hidden),
        )


def window_changed(results: Sequence[RungResult]) -> WindowChanged | None:
    """Say whether the server gave another window than at the first attempt: it was started anew by someone, with other settings."""
    told = [one for one in results if one.window]
    first, last = (told[0], told[-1]) if told else (None, None)
    if first is None or last is None or first.window is None or last.window is None or first.window == last.window:
        return None
    return WindowChanged(before=first.window, after=last.window, at_rung=last.rung, attempt=last.attempt)


def _nearest(facts: Sequence[Canary], count: int) -> tuple[Canary, ...]:
    """Choose, for each wanted depth, the fact that stands nearest to it and is not chosen yet."""
    left = list(facts)
    chosen: list[Canary] = []
    for depth in DEPTHS[:count]:
        if not left:
            break
        best = min(left, key=lambda one: abs(one.depth - depth))
        left.remove(best)
        chosen.append(best)
    return tuple(sorted(chosen, key=lambda one: one.depth))
