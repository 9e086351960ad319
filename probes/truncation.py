"""Tokens sent against tokens processed, above the window: refused, cut without a word, or neither.

A prompt over the window is refused unprocessed by an honest server and costs nothing. Where a server would process it, the price is known before:
the probe asks only up to ``afford`` tokens, and says what the rest would cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probes.attempt import as_request_error
from probes.backends.base import Ask
from probes.backends.overflow import overflow_rule
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion, RequestError, TruncationReading
from probes.ladder.rungs import build_ladder

OVER = 1.15
"""How far above the window is sent: far enough for a cut to be seen, near enough to cost little."""
MOST_TOKENS = 1_200_000
"""A longer text is not written for this: what it would tell is not worth the minutes."""
REFUSES_UNPROCESSED = frozenset({"llama.cpp", "vllm", "sglang", "tabbyapi", "llama-cpp-python", "ik_llama.cpp"})
"""Servers that check the length before they process anything."""


class TruncationProbe(Probe):
    """Sends one prompt above ``window``."""

    id: ClassVar[str] = "truncation"
    gives: ClassVar[tuple[str, ...]] = (TruncationReading.kind, RequestError.kind)

    def __init__(self, window: int, *, afford: int = 1_000_000_000) -> None:
        self.window = window
        self.afford = afford
        self.reading: TruncationReading | None = None

    def length(self) -> int:
        """Give the prompt length that is sent."""
        return int(self.window * OVER) + 64

    def cost(self, context: ProbeContext) -> Cost:
        """One request; processed only by a server that does not refuse it. None where it would cost too much."""
        price = self._price(context)
        return Cost() if price > self.afford else Cost(requests=1, prompt_tokens=price, generated_tokens=1)

    def _price(self, context: ProbeContext) -> int:
        """Give the prompt tokens that the server would process."""
        return 0 if context.backend.name in REFUSES_UNPROCESSED else self.length()

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield one reading."""
        length = self.length()
        if self._price(context) > self.afford or length > MOST_TOKENS:
            self.reading = TruncationReading(verdict="unknown", window=self.window, would_cost_tokens=length)
            yield found(self.reading, source="measured", run=context.run, origin="truncation")
            return
        context.progress.report("a prompt above the window", 0.0, f"{length} tokens")
        try:
            ladder = build_ladder((length,), context.counter, seed=context.seed + 7919, reserve=16)
            text = ladder.rungs[0]
            completion = context.complete(
                Ask(prompt=text.text, max_tokens=1, use_cache=False, deadline_s=context.deadline_for(length)),
                sent_tokens=text.tokens,
                purpose="truncation",
            )
        except CtxDoctorError as failure:
            yield found(as_request_error(failure), source="measured", run=context.run, origin="truncation")
            yield not_found(TruncationReading, "failed", str(failure), run=context.run, origin="truncation")
            return
        self.reading = read(completion, text.tokens, self.window, context.backend.name)
        if completion.error is not None:
            yield found(completion.error, source="measured", run=context.run, origin="truncation")
        yield found(self.reading, source="measured", run=context.run, origin="truncation")
        context.progress.report("a prompt above the window", 1.0, self.reading.verdict)


def read(completion: Completion, sent: int, window: int, backend: str = "") -> TruncationReading:
    """Say what an answer to an overlong prompt means."""
    error = completion.error
    if error is not None:
        verdict = "refused" if error.error in {"exceeds-window", "pool-exhausted", "bad-request"} else "unknown"
        return TruncationReading(
            verdict=verdict,
            sent=sent,
            processed=error.prompt_tokens,
            window=error.window or window,
            message=error.message,
        )
    processed = completion.prompt_tokens
    if processed is None:
        return TruncationReading(
            verdict="unknown", sent=sent, window=window, message="the server does not say how much it processed"
        )
    if processed >= 0.95 * sent:
        return TruncationReading(verdict="none", sent=sent, processed=processed, window=window)
    rule = overflow_rule(sent, processed, window, backend=backend, output_tokens=1)
    return TruncationReading(verdict="truncated", sent=sent, processed=processed, window=window, rule=rule)
