"""Where exactly it fails: the wanted length first, then the boundary between the longest that passed and the shortest that did not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probes.attempt import as_request_error, outcome_of
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import BudgetEndedError, CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import FailingLength, RequestError
from probes.ladder.rungs import SMALLEST_RUNG, build_ladder


class FixedLengthProbe(Probe):
    """Bisects a failure by length. ``passed``: the longest length that is known to work; ``failed``: one that does not, or is not known to."""

    id: ClassVar[str] = "fixed-length"
    stops_itself: ClassVar[bool] = True
    gives: ClassVar[tuple[str, ...]] = (FailingLength.kind, RequestError.kind)

    def __init__(
        self, wanted: int, *, passed: int = 0, failed: int | None = None, resolution: int | None = None, steps: int = 6
    ) -> None:
        self.wanted = wanted
        self.passed = passed
        self.failed = failed
        self.resolution = resolution if resolution is not None else max(128, wanted // 64)
        self.steps = steps
        self.reading: FailingLength | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """One request at the wanted length, and up to ``steps`` between; refused ones cost nothing."""
        speed = context.prefill_tps or 500.0
        tokens = self.wanted + self.steps * (self.passed + self.wanted) // 2
        return Cost(1 + self.steps, tokens, 1 + self.steps, tokens / speed)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield what each length said, and the boundary."""
        low, high = self.passed, self.failed
        last_error: RequestError | None = None
        died = False
        tried = 0
        length = self.wanted if high is None else (low + high) // 2
        while tried <= self.steps and context.time_left() > 0 and length >= SMALLEST_RUNG:
            tried += 1
            context.progress.report("where it fails", tried / (self.steps + 1), f"{length} tokens")
            try:
                error = self._try(context, length)
            except BudgetEndedError:
                tried -= 1
                break
            if error is None:
                low = max(low, length)
            else:
                yield found(error, source="measured", run=context.run, origin=f"fixed-length {length}")
                high = length if high is None else min(high, length)
                last_error = error
                # a server that says its own boundary need not be asked on
                if error.error == "exceeds-window" and error.window:
                    high = min(high, error.window)
                    break
                ended = context.process_ended()
                if ended is not None or outcome_of(error, ended) in {"died", "timeout"}:
                    died = ended is not None
                    if ended is not None:
                        yield found(
                            ended.model_copy(update={"during": "fixed-length", "at_prompt_tokens": length}),
                            source="measured",
                            run=context.run,
                        )
                    break
            if high is None or high - low <= self.resolution:
                break
            length = (low + high) // 2
        if tried == 0:
            yield not_found(FailingLength, "failed", "no length could be tried", run=context.run, origin="fixed-length")
            return
        self.reading = FailingLength(
            longest_passed=low or None,
            shortest_failed=high,
            wanted=self.wanted,
            resolution=self.resolution,
            error=last_error,
            died=died,
            tried=tried,
        )
        yield found(self.reading, source="measured", run=context.run, origin="fixed-length")
        context.progress.report("where it fails", 1.0, "done")

    def _try(self, context: ProbeContext, length: int) -> RequestError | None:
        try:
            text = build_ladder((length,), context.counter, seed=context.seed + 32_452_843, reserve=16).rungs[0]
            ask = Ask(prompt=text.text, max_tokens=1, use_cache=True, deadline_s=context.deadline_for(length))
            return context.complete(ask, sent_tokens=text.tokens, purpose="fixed-length").error
        except CtxDoctorError as failure:
            return as_request_error(failure)
