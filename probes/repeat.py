"""The same request again and again, alone and at the same time: what a flaky run depends on.

First it is sent once alone, cold, and then several at once: that tells most. Then again alone, as often as the budget's share holds, and once with the
cache left to the server. Which condition the failures belong to is worked out in :mod:`probes.ladder.flaky`; the trial keeps the counts.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from typing import ClassVar

from probes.attempt import as_request_error, outcome_of
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.replay import FreshReplay
from probes.evidence.request import Completion, ConcurrencyTrial, RequestError
from probes.ladder.flaky import FlakyReading, Try, read_tries
from probes.ladder.rungs import RungText, build_ladder

SHARE = 0.4
"""Part of the time that is left which the trial may take."""
LEAST_TOKENS = 256
REPLAYS = 2
"""So often a request is sent again after it was a fresh server's first."""
GUESSED_TPS = 150.0
"""Where nothing passed yet that could be timed: a processor's speed, so that a slow server is not asked for more than the budget holds."""


class RepeatProbe(Probe):
    """At least ``tries`` requests one after the other, then ``concurrency`` at once.

    ``tokens``: their length at the most; it is shortened to what the budget holds, but not below ``least``.
    """

    id: ClassVar[str] = "repeat"
    gives: ClassVar[tuple[str, ...]] = (ConcurrencyTrial.kind, RequestError.kind, FreshReplay.kind)
    stops_itself: ClassVar[bool] = True

    def __init__(
        self,
        tokens: int,
        *,
        least: int = LEAST_TOKENS,
        tries: int = 3,
        most_tries: int = 20,
        concurrency: int = 2,
        generate: int = 8,
        fresh: bool = False,
    ) -> None:
        self.tokens = tokens
        self.least = min(tokens, least)
        self.tries = tries
        self.most_tries = max(tries, most_tries)
        self.concurrency = concurrency
        self.generate = generate
        self.fresh = fresh
        self.reading: ConcurrencyTrial | None = None
        self.taken: FlakyReading | None = None
        self._tries: list[Try] = []

    def _least(self) -> int:
        return self.tries + (self.concurrency if self.concurrency > 1 else 0)

    def affordable(self, context: ProbeContext) -> int:
        """Give the length that the trial's share of the budget holds, by the slowest prefill seen so far, or a cautious guess."""
        speed = context.prefill_tps or GUESSED_TPS
        held = SHARE * max(0.0, context.time_left()) * speed / self._least()
        return max(self.least, min(self.tokens, int(held)))

    def cost(self, context: ProbeContext) -> Cost:
        """Every request but one is cold."""
        requests, tokens = self._least() + 1, self.affordable(context)
        speed = context.prefill_tps or GUESSED_TPS
        return Cost(requests, requests * tokens, requests * self.generate, (requests - 1) * tokens / speed)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the errors that were seen and the trial as a whole."""
        tokens = self.affordable(context)
        try:
            texts = [
                build_ladder((tokens,), context.counter, seed=context.seed + 15_485_863 + number, reserve=16).rungs[0]
                for number in range(max(self.concurrency, 2))
            ]
        except CtxDoctorError as failure:
            yield not_found(ConcurrencyTrial, "failed", str(failure), run=context.run, origin="repeat")
            return
        self._tries = []
        begun = time.monotonic()
        ends = begun + SHARE * max(0.0, context.time_left())
        alone = [self._send(context, texts[0], cold=True, concurrency=1)]
        each = time.monotonic() - begun
        together: list[Completion] = []
        # at once they take as long as one after the other, at the most
        if self.concurrency > 1 and each * self.concurrency < context.time_left():
            together = self._together(context, texts)
        alone += self._alone(context, texts[0], each, ends)
        warm = None
        if context.process_ended() is None and each < context.time_left():
            warm = self._send(context, texts[0], cold=False, concurrency=1)
        for completion in (*alone, *([warm] if warm is not None else ()), *together):
            if completion.error is not None:
                yield found(completion.error, source="measured", run=context.run, origin="repeat")
        ended = context.process_ended()
        if ended is not None:
            yield found(
                ended.model_copy(update={"during": "repeat", "at_prompt_tokens": tokens}),
                source="measured",
                run=context.run,
            )
        self.taken = read_tries(self._tries)
        self.reading = self._reading(texts[0].tokens, alone, warm, together)
        yield found(self.reading, source="measured", run=context.run, origin="repeat")
        failed = any(not one.passed for one in self._tries)
        if self.fresh or failed:
            yield from self._replayed(context, texts[0], each)
        context.progress.report("the same request at once", 1.0, "done")

    def _replayed(self, context: ProbeContext, text: RungText, each: float) -> Iterator[Evidence]:
        """Send it to a freshly started server, where one may be started: as its very first request, and again after that."""
        if context.start_anew is None:
            why = "the server was not started here, so it is not started anew; with --launch it can be"
            yield not_found(FreshReplay, "not-offered", why, run=context.run, origin="repeat")
            return
        if (REPLAYS + 1) * each > context.time_left():
            yield not_found(FreshReplay, "not-run", "the budget holds no replay", run=context.run, origin="repeat")
            return
        begun = time.monotonic()
        if not context.start_anew():
            why = "the server was started anew and did not answer again"
            yield not_found(FreshReplay, "failed", why, run=context.run, origin="repeat")
            return
        loaded = time.monotonic() - begun
        first = self._send(context, text, cold=True, concurrency=1, fresh=True)
        outcomes = [self._tries[-1]]
        errors = [first.error]
        for _number in range(REPLAYS):
            if context.process_ended() is not None or each > context.time_left():
                break
            errors.append(self._send(context, text, cold=True, concurrency=1).error)
            outcomes.append(self._tries[-1])
        later = outcomes[1:]
        yield found(
            FreshReplay(
                prompt_tokens=text.tokens,
                load_s=round(loaded, 3),
                first=outcomes[0].outcome,
                first_s=round(outcomes[0].seconds, 3),
                later_passed=sum(one.passed for one in later),
                later_tried=len(later),
                later_s=tuple(round(one.seconds, 3) for one in later),
                error=errors[0] or next((one for one in reversed(errors) if one is not None), None),
            ),
            source="measured",
            run=context.run,
            origin="fresh server",
        )

    def _alone(self, context: ProbeContext, text: RungText, each: float, ends: float) -> list[Completion]:
        """Send it cold, one after the other: ``tries`` times in all where the budget holds them, and more until ``ends``."""
        done: list[Completion] = []
        while len(done) + 1 < self.most_tries:
            number, now = len(done) + 2, time.monotonic()
            if context.process_ended() is not None or each > context.time_left():
                break
            if number > self.tries and (now + each > ends or all(one.error is not None for one in done)):
                break
            context.progress.report(
                "the same request again", (number - 1) / (self.tries + 1), f"{text.tokens} tokens, number {number}"
            )
            done.append(self._send(context, text, cold=True, concurrency=1))
        return done

    def _together(self, context: ProbeContext, texts: Sequence[RungText]) -> list[Completion]:
        if context.process_ended() is not None:
            return []
        context.progress.report(
            "the same request at once", self.tries / (self.tries + 1), f"{self.concurrency} at a time"
        )
        results: list[Completion | None] = [None] * self.concurrency

        def work(number: int) -> None:
            results[number] = self._send(context, texts[number % len(texts)], cold=True, concurrency=self.concurrency)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(self.concurrency)]
        for thread in threads:
            thread.start()
        for thread in threads:
            # joined in short waits, so that Ctrl-C is seen
            while thread.is_alive():
                thread.join(0.2)
        return [one for one in results if one is not None]

    def _send(
        self, context: ProbeContext, text: RungText, *, cold: bool, concurrency: int, fresh: bool = False
    ) -> Completion:
        """Send the request once and keep how it went; a failure to ask is a failed try."""
        busy: bool | None = None
        # after a failure the server may still work on our own request, for which nobody waits any more
        left_over = not self._tries[-1].passed if self._tries else context.prefill_tps is None
        if concurrency == 1 and not left_over:
            with contextlib.suppress(CtxDoctorError):
                busy = context.backend.busy()
        first = fresh or context.sent.requests == 0
        deadline = context.deadline_for(text.tokens * max(1, self.concurrency), self.generate)
        ask = Ask(
            prompt=text.text,
            max_tokens=self.generate,
            use_cache=not cold,
            cache_as_served=not cold,
            deadline_s=deadline,
        )
        begun = time.monotonic()
        try:
            completion = context.complete(ask, sent_tokens=text.tokens, purpose="repeat")
        except CtxDoctorError as failure:
            completion = Completion(error=as_request_error(failure), sent_tokens=text.tokens)
        seconds = completion.client_total_s
        if seconds is None:
            seconds = time.monotonic() - begun
        error = completion.error
        self._tries.append(
            Try(
                outcome=outcome_of(error, None),
                seconds=error.after_s if error is not None and error.after_s is not None else seconds,
                error_kind=error.error if error is not None else None,
                error=error.message if error is not None else "",
                cached_tokens=None if cold else completion.cached_tokens,
                first_after_load=first,
                concurrency=concurrency,
                busy_beside=busy,
            )
        )
        return completion

    def _reading(
        self, tokens: int, alone: Sequence[Completion], warm: Completion | None, together: Sequence[Completion]
    ) -> ConcurrencyTrial:
        taken = self.taken
        assert taken is not None
        # one time alone may stand at a round number by chance; two of one kind do not
        limits = [group.timeout_s for group in taken.errors if group.timeout_s is not None and group.count >= 2]
        everything = [*alone, *([warm] if warm is not None else ()), *together]
        return ConcurrencyTrial(
            concurrency=max(1, self.concurrency),
            prompt_tokens=tokens,
            alone_passed=sum(one.error is None for one in alone),
            alone_tried=len(alone),
            together_passed=sum(one.error is None for one in together),
            together_tried=len(together),
            errors=tuple(one.error for one in everything if one.error is not None),
            alone_s=tuple(round(one.client_total_s or 0.0, 3) for one in alone),
            together_s=tuple(round(one.client_total_s or 0.0, 3) for one in together),
            warm_passed=None if warm is None else warm.error is None,
            standing=taken.standing,
            round_timeout_s=limits[0] if limits else None,
            busy_beside=taken.beside,
        )
