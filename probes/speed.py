"""Prefill and generation speed at a length, apart and on both clocks: the server's where it tells, and ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from probes.attempt import Asking, Attempts
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.records import Evidence
from probes.evidence.rungs import RungResult
from probes.ladder.rungs import RungText

GENERATE = 64
"""Tokens generated at each length: enough that one slow token does not decide."""


class SpeedProbe(Probe):
    """Measures texts cold, one request each; recall is not asked. Attempts are numbered on from ``first_attempt``."""

    id: ClassVar[str] = "speed"
    gives: ClassVar[tuple[str, ...]] = (RungResult.kind,)

    def __init__(self, texts: Sequence[RungText], *, first_attempt: int = 1, generate: int = GENERATE) -> None:
        self.texts = tuple(texts)
        self.first_attempt = first_attempt
        self.generate = generate
        self.results: list[RungResult] = []

    def cost(self, context: ProbeContext) -> Cost:
        """One cold request a length."""
        tokens = sum(text.tokens for text in self.texts)
        speed = context.prefill_tps or 500.0
        return Cost(len(self.texts), tokens, len(self.texts) * self.generate, tokens / speed + len(self.texts) * 4)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield a rung without canaries for each length; a failure ends it."""
        attempts = Attempts(context, Asking(style="completion", measure_tokens=self.generate))
        for number, text in enumerate(self.texts):
            if context.time_left() <= 0:
                return
            yield from attempts.measure(text, self.first_attempt + number, canaries=text.canaries[:1], scored=False)
            if attempts.result is None:
                return
            self.results.append(attempts.result)
            if attempts.result.result != "passed":
                return
