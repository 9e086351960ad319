"""The model's own base: how it is asked, and what it recalls of the shortest rung. Everything longer is compared with this."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probes.attempt import Asking, Attempts, decide_asking
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.rungs import RecallBase, RungResult, WayOfAsking
from probes.ladder.constraints import Task
from probes.ladder.rungs import RungText
from probes.ladder.scoring import BASE_CANARIES, able


class RecallProbe(Probe):
    """Measures the base at the shortest rung, in the ``way`` that was found, or decided here. ``asking`` and ``result`` hold what came of it."""

    id: ClassVar[str] = "recall"
    stops_itself: ClassVar[bool] = True
    gives: ClassVar[tuple[str, ...]] = (RecallBase.kind, RungResult.kind)

    def __init__(
        self, text: RungText, *, measure_tokens: int = 48, task: Task | None = None, way: WayOfAsking | None = None
    ) -> None:
        self.text = text
        self.way = way
        self.task = task
        self.measure_tokens = measure_tokens
        self.asking: Asking | None = None
        self.base: RecallBase | None = None
        self.result: RungResult | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """The base: one prefill and a tail a canary; before it, where that was not done yet, a look in up to three ways."""
        del context
        look = 0 if self.way is not None else 12
        asks = len(self.text.canaries) + look
        return Cost(
            requests=asks, prompt_tokens=self.text.tokens * (4 if look else 1) + asks * 24, generated_tokens=asks * 16
        )

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the first rung (attempt 1, all base canaries) and the base."""
        way = self.way
        if way is not None:
            asking, shares = Asking(way.style, way.several, way.reasoning), way.ways
        else:
            context.progress.report("how this model answers best", 0.0, f"{self.text.tokens} tokens")
            asking, shares = decide_asking(context, self.text)
        asking = Asking(asking.style, asking.several, asking.reasoning, self.measure_tokens)
        attempts = Attempts(context, asking)
        yield from attempts.measure(self.text, 1, task=self.task)
        self.asking, self.result = asking, attempts.result
        score = attempts.result.canaries if attempts.result else None
        if score is None or score.asked == 0:
            why = attempts.result.error if attempts.result and attempts.result.error else "no canary was answered"
            yield not_found(RecallBase, "failed", why, run=context.run, origin="recall")
            return
        self.base = RecallBase(
            style=asking.style,
            constraints_met=attempts.result.constraints.met
            if attempts.result and attempts.result.constraints
            else None,
            constraints_asked=attempts.result.constraints.asked
            if attempts.result and attempts.result.constraints
            else None,
            several=asking.several,
            reasoning=asking.reasoning,
            at_tokens=self.text.tokens,
            hit=score.hit,
            asked=score.asked,
            able=able(score.hit, score.asked),
            enough=score.asked >= BASE_CANARIES,
            ways={name: round(share, 3) for name, share in shares.items()},
        )
        yield found(self.base, source="measured", run=context.run, origin="recall")
