"""The same request again and again, alone and at the same time: what a flaky run depends on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

from probes.attempt import as_request_error
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion, ConcurrencyTrial, RequestError
from probes.ladder.rungs import build_ladder


class RepeatProbe(Probe):
    """``tries`` requests of ``tokens`` tokens one after the other, then ``concurrency`` at once."""

    id: ClassVar[str] = "repeat"
    gives: ClassVar[tuple[str, ...]] = (ConcurrencyTrial.kind, RequestError.kind)

    def __init__(self, tokens: int, *, tries: int = 3, concurrency: int = 2, generate: int = 8) -> None:
        self.tokens = tokens
        self.tries = tries
        self.concurrency = concurrency
        self.generate = generate
        self.reading: ConcurrencyTrial | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """Every request is cold."""
        requests = self.tries + (self.concurrency if self.concurrency > 1 else 0)
        speed = context.prefill_tps or 500.0
        return Cost(requests, requests * self.tokens, requests * self.generate, requests * self.tokens / speed)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the errors that were seen and the trial as a whole."""
        try:
            count = max(self.concurrency, 2)
            texts = [
                build_ladder(
                    (self.tokens,), context.counter, seed=context.seed + 15_485_863 + number, reserve=16
                ).rungs[0]
                for number in range(count)
            ]
        except CtxDoctorError as failure:
            yield not_found(ConcurrencyTrial, "failed", str(failure), run=context.run, origin="repeat")
            return
        deadline = context.deadline_for(self.tokens * max(1, self.concurrency), self.generate)

        def send(number: int) -> Completion:
            text = texts[number % len(texts)]
            ask = Ask(prompt=text.text, max_tokens=self.generate, use_cache=False, deadline_s=deadline)
            try:
                return context.complete(ask, sent_tokens=text.tokens, purpose="repeat")
            except CtxDoctorError as failure:
                return Completion(error=as_request_error(failure), sent_tokens=text.tokens)

        alone: list[Completion] = []
        for number in range(self.tries):
            context.progress.report(
                "the same request again",
                number / (self.tries + 1),
                f"{self.tokens} tokens, {number + 1} of {self.tries}",
            )
            alone.append(send(0))
            if context.process_ended() is not None:
                break
        together: list[Completion | None] = []
        if self.concurrency > 1 and context.process_ended() is None:
            context.progress.report(
                "the same request at once", self.tries / (self.tries + 1), f"{self.concurrency} at a time"
            )
            together = [None] * self.concurrency

            def work(number: int) -> None:
                together[number] = send(number)

            threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(self.concurrency)]
            for thread in threads:
                thread.start()
            for thread in threads:
                # joined in short waits, so that Ctrl-C is seen
                while thread.is_alive():
                    thread.join(0.2)
        finished = [one for one in together if one is not None]
        errors = [one.error for one in [*alone, *finished] if one.error is not None]
        for error in errors:
            yield found(error, source="measured", run=context.run, origin="repeat")
        ended = context.process_ended()
        if ended is not None:
            yield found(
                ended.model_copy(update={"during": "repeat", "at_prompt_tokens": self.tokens}),
                source="measured",
                run=context.run,
            )
        self.reading = ConcurrencyTrial(
            concurrency=max(1, self.concurrency),
            prompt_tokens=texts[0].tokens,
            alone_passed=sum(one.error is None for one in alone),
            alone_tried=len(alone),
            together_passed=sum(one.error is None for one in finished),
            together_tried=len(finished),
            errors=tuple(errors),
            alone_s=tuple(round(one.client_total_s or 0.0, 3) for one in alone),
            together_s=tuple(round(one.client_total_s or 0.0, 3) for one in finished),
        )
        yield found(self.reading, source="measured", run=context.run, origin="repeat")
        context.progress.report("the same request at once", 1.0, "done")
