"""Tokens sent against tokens processed, just above the window and just below it: refused, cut without a word, or neither.

A prompt over the window is refused unprocessed by an honest server and costs nothing. Where a server would process it, the price is known before:
the probe asks only up to ``afford`` tokens, and says what the rest would cost.

A cut is claimed from the server's own counts, so the counts are put to the test first: a prompt that fits has to be counted whole. A server, or a proxy
before it, that counts the same whatever is sent has told nothing. Where a prompt just below the window is cut as well, the window in force is another
than the one that is told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

from probes.attempt import as_request_error
from probes.backends.base import Ask
from probes.backends.overflow import close, cut, overflow_rule
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError, InputError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion, RequestError, TruncationReading
from probes.ladder.rungs import build_ladder

OVER = 1.15
"""How far above the window is sent: far enough for a cut to be seen, near enough to cost little."""
UNDER = 0.97
"""How far below it: room for the answer, a template's tokens and a counter that is off by one in a hundred."""
WHOLE = 0.95
"""A prompt of which so much is counted was not cut."""
TOO_MANY = 1.25
"""A count above so many times of what was sent is none of this prompt."""
SHORT = 0.6
"""A prompt of this share of what was processed fits whatever the window is."""
QUICK = 0.05
"""A look may take this share of the time that is left, also where its tokens were not foreseen."""
PACE = 512
"""A prompt of so many tokens shows how fast prompts are read, where no other was sent yet."""
MOST_TOKENS = 1_200_000
"""A longer text is not written for this: what it would tell is not worth the minutes."""
SEEN_AS_FINE = 200
"""The HTTP status of a refusal that a client takes for an answer."""
REFUSES_UNPROCESSED = frozenset({"llama.cpp", "vllm", "sglang", "tabbyapi", "llama-cpp-python", "beellama.cpp"})
"""Servers that check the length before they process anything. ik_llama.cpp does, and then reads the prompt all the same."""


class TruncationProbe(Probe):
    """Sends one prompt above ``window``; where that is not refused, and always with ``below``, one just below it."""

    id: ClassVar[str] = "truncation"
    gives: ClassVar[tuple[str, ...]] = (TruncationReading.kind, RequestError.kind)

    def __init__(
        self, window: int, *, afford: int = 1_000_000_000, below: bool = False, by_speed: bool = False
    ) -> None:
        """``by_speed``: more than ``afford`` is sent where the server reads it in a small share of the time that is left."""
        self.window = window
        self.afford = afford
        self.by_speed = by_speed
        self.below = below
        self.reading: TruncationReading | None = None

    def length(self) -> int:
        """Give the prompt length that is sent above the window."""
        return int(self.window * OVER) + 64

    def length_below(self, context: ProbeContext) -> int:
        """Give the prompt length that is sent below the window: as near to it as the counter is exact."""
        spread = re.search(r"within (\d+(?:\.\d+)?)%", context.counter.name)
        share = UNDER - (2 * float(spread[1]) / 100 if spread else 0.0)
        return max(32, int(self.window * max(0.5, share)) - 8)

    def cost(self, context: ProbeContext) -> Cost:
        """One request where it is refused; else two or three, of which the last is short."""
        refused = context.backend.engine in REFUSES_UNPROCESSED
        under = self.length_below(context) if self.below or not refused else 0
        above = 0 if refused else self.length()
        requests = 2 if under else 1
        pace = PACE if self.by_speed and above > self.afford and context.prefill_tps is None else 0
        return Cost(
            requests=requests + (1 if pace else 0),
            prompt_tokens=above + under + pace,
            generated_tokens=requests + (1 if pace else 0),
        )

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield one reading."""
        length = self.length()
        refuses = context.backend.engine in REFUSES_UNPROCESSED
        needed = 0 if refuses else length
        if length > MOST_TOKENS or (needed > self.afford and not self._is_quick(context, needed)):
            self.reading = TruncationReading(verdict="unknown", window=self.window, would_cost_tokens=length)
            yield found(self.reading, source="measured", run=context.run, origin="truncation")
            return
        context.progress.report("a prompt above the window", 0.0, f"{length} tokens")
        try:
            sent, completion = self._send(context, length)
            reading = read(completion, sent, self.window, context.backend.engine)
            if reading.silent and self._affordable(context, 0, self.window):
                reading = self._as_chat(context, reading)
            answered = completion.error is None and completion.prompt_tokens is not None
            if reading.verdict == "truncated" or self.below or (answered and reading.verdict == "unknown"):
                reading = self._held_against_less(context, reading, spent=0 if reading.verdict == "refused" else sent)
        except CtxDoctorError as failure:
            yield found(as_request_error(failure), source="measured", run=context.run, origin="truncation")
            yield not_found(TruncationReading, "failed", str(failure), run=context.run, origin="truncation")
            return
        if reading.verdict == "unknown" and reading.processed is not None:
            context.doubt = context.doubt or reading.message
        elif _fits_and_is_refused(reading):
            # a prompt that fits is not refused for its length: the number is not that of the prompt
            why = f"a prompt of {reading.sent} tokens was refused and counted as {reading.processed}, which would have fitted"
            reading = reading.model_copy(update={"message": f"{why}; the counts cannot be believed: {reading.message}"})
            context.doubt = context.doubt or f"{why}; the server's counts cannot be believed"
        self.reading = reading
        if completion.error is not None:
            yield found(completion.error, source="measured", run=context.run, origin="truncation")
        yield found(reading, source="measured", run=context.run, origin="truncation")
        context.progress.report("a prompt above the window", 1.0, reading.verdict)

    def _send(self, context: ProbeContext, length: int) -> tuple[int, Completion]:
        """Send a text of about so many tokens, cold: how many it has, and the answer."""
        ladder = build_ladder((length,), context.counter, seed=context.seed + 7919, reserve=16)
        text = ladder.rungs[0]
        ask = Ask(
            prompt=text.text,
            max_tokens=1,
            use_cache=False,
            deadline_s=context.deadline_for(length),
        )
        completion = context.complete(ask, sent_tokens=text.tokens, purpose="truncation")
        if completion.error is not None and completion.error.error == "not-supported":
            # a server, or what stands before it, that takes chats only
            chat = replace(ask, prompt=None, messages=({"role": "user", "content": text.text},))
            completion = context.complete(chat, sent_tokens=text.tokens, purpose="truncation")
        return text.tokens, completion

    def _as_chat(self, context: ProbeContext, refused: TruncationReading) -> TruncationReading:
        """Send a chat of that length to a server that refuses raw prompts without an error: it may shorten chats, which most clients send."""
        ladder = build_ladder((self.length(),), context.counter, seed=context.seed + 104_729, reserve=16)
        text = ladder.rungs[0]
        messages = ({"role": "user", "content": text.text},)
        ask = Ask(messages=messages, max_tokens=1, use_cache=False, deadline_s=context.deadline_for(text.tokens))
        completion = context.complete(ask, sent_tokens=text.tokens, purpose="truncation")
        processed = completion.prompt_tokens
        if completion.error is not None or processed is None or not cut(text.tokens, processed):
            return refused
        return TruncationReading(
            verdict="truncated",
            sent=text.tokens,
            processed=processed,
            window=self.window,
            rule=overflow_rule(text.tokens, processed, self.window, output_tokens=1),
            message=f"a chat was cut; a raw prompt of {refused.sent} tokens was answered with an empty text and no error",
        )

    def _affordable(self, context: ProbeContext, spent: int, more: int) -> bool:
        """Say whether so many tokens more are within what may be spent, or take little of the time that is left at the speed that was seen."""
        return spent + more <= self.afford or self._reads_quickly(context, more)

    def _is_quick(self, context: ProbeContext, tokens: int) -> bool:
        """Say whether so many tokens are read in a small share of the time that is left; a short prompt tells how fast, where none has yet."""
        if not self.by_speed:
            return False
        if context.prefill_tps is None and self.afford >= PACE:
            context.progress.report("how fast prompts are read", 0.0, f"{PACE} tokens")
            try:
                self._send(context, PACE)
            except CtxDoctorError:
                return False
        return self._reads_quickly(context, tokens)

    @staticmethod
    def _reads_quickly(context: ProbeContext, tokens: int) -> bool:
        return context.prefill_tps is not None and tokens / context.prefill_tps < QUICK * context.time_left()

    def _held_against_less(self, context: ProbeContext, above: TruncationReading, spent: int) -> TruncationReading:
        """Send a prompt just below the window and, where that is cut too, a short one; give what all of them together show."""
        length = self.length_below(context)
        if spent and not self._affordable(context, spent, length) and above.processed:
            # what lies between that which was kept and the window is told as well by a shorter one
            length = min(length, int(above.processed * 1.4) + 64)
        reading = above
        under: tuple[int, int] | None = None
        if (not spent or self._affordable(context, spent, length)) and length <= MOST_TOKENS:
            context.progress.report("a prompt just below the window", 0.5, f"{length} tokens")
            sent, completion = self._send(context, length)
            error, processed = completion.error, completion.prompt_tokens
            if error is not None and error.error == "exceeds-window":
                return TruncationReading(
                    verdict="refused",
                    sent=sent,
                    processed=error.prompt_tokens,
                    window=error.window or self.window,
                    below_sent=sent,
                    message=f"{sent} tokens were refused within the window of {self.window} that is told: {error.message}",
                )
            if error is None and processed is not None:
                under = (sent, processed)
                reading = reading.model_copy(update={"below_sent": sent, "below_processed": processed})
        if under is not None and _whole(*under) and above.verdict != "unknown":
            return reading
        if under is None and above.verdict == "refused":
            return reading
        counts = [(above.sent or 0, above.processed)] if above.processed is not None else []
        counts += [under] if under is not None else []
        least = min((processed for _sent, processed in counts), default=0)
        try:
            sent, completion = self._send(context, min(max(256, int(least * SHORT)), self.window // 2, 2048))
        except InputError:
            # a window in which no text has room twice
            return reading
        if completion.error is not None or completion.prompt_tokens is None:
            return reading
        if not _whole(sent, completion.prompt_tokens) or reading.verdict == "unknown":
            told = ", ".join(f"{m} for {n}" for n, m in [*counts, (sent, completion.prompt_tokens)])
            why = f"the server's counts cannot be believed (counted for sent: {told}); is there a proxy in between?"
            if context.counter.name.startswith("calibration"):
                why = f"tokens are only estimated here, and the server's counts do not fit (counted for sent: {told}); give --tokenizer"
            return reading.model_copy(update={"verdict": "unknown", "rule": None, "message": why})
        return _cut_within(reading, self.window, context.backend.engine) if under is not None else reading


def _fits_and_is_refused(reading: TruncationReading) -> bool:
    if reading.verdict != "refused" or reading.processed is None or not reading.window:
        return False
    return reading.processed < min(reading.window, 0.8 * (reading.sent or 0))


def _whole(sent: int, processed: int) -> bool:
    """Say whether a count may be that of all that was sent."""
    return WHOLE * sent - 16 <= processed <= TOO_MANY * sent + 256


def _cut_within(reading: TruncationReading, window: int, backend: str) -> TruncationReading:
    """Give the reading of a server that cuts even what fits into the window that it tells, counts being right: the window is another."""
    sent, processed = reading.below_sent or 0, reading.below_processed or 0
    if processed > TOO_MANY * sent + 256:
        return reading
    rule = overflow_rule(sent, processed, window, backend=backend, output_tokens=1)
    if rule == "half-window" and close(processed, window / 2, 0.06):
        # half of a window is kept of what does not fit into it, and this did
        rule = "unknown-cut"
    message = f"{sent} tokens fit into the window of {window} that is told, and {processed} of them were processed"
    if reading.verdict == "truncated":
        return reading.model_copy(update={"rule": rule or reading.rule, "message": message})
    return reading.model_copy(
        update={"verdict": "truncated", "sent": sent, "processed": processed, "rule": rule, "message": message}
    )


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
            silent=verdict == "refused" and error.status == SEEN_AS_FINE,
            message=error.message,
        )
    processed = completion.prompt_tokens
    if processed is None:
        return TruncationReading(
            verdict="unknown", sent=sent, window=window, message="the server does not say how much it processed"
        )
    if processed > TOO_MANY * sent + 256:
        return TruncationReading(
            verdict="unknown",
            sent=sent,
            processed=processed,
            window=window,
            message=f"the server counted {processed} tokens where {sent} were sent; its counts cannot be believed",
        )
    if processed >= WHOLE * sent:
        return TruncationReading(verdict="none", sent=sent, processed=processed, window=window)
    rule = overflow_rule(sent, processed, window, backend=backend, output_tokens=1)
    return TruncationReading(verdict="truncated", sent=sent, processed=processed, window=window, rule=rule)
