"""What every probe is: what it asks of the server, what it costs, and the evidence it yields."""

from __future__ import annotations

import contextlib
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

from probes.evidence.errors import CtxDoctorError, NotOfferedError
from probes.evidence.machine import SampledPeaks
from probes.evidence.request import Completion, ProcessEnded, RequestError, TornStream
from probes.evidence.words import words

if TYPE_CHECKING:
    from probes.backends.base import Ask, Backend
    from probes.evidence.records import Evidence
    from probes.gpu.sampler import Sampler
    from probes.ladder.text import Counter


IMPOSSIBLE = 1.2
ROUNDING_S = 0.05
"""A server's own times may be rounded, but not be longer than its client waited by more than this: so many times, and seconds."""
BEGINNING = 64
"""Characters by which two prompts are told to be of the same text."""
BUSY_PAUSES_S = (2.0, 4.0, 8.0)
"""A request that is turned away because others are served is sent again after so long, and after the last is taken as refused."""
GATEWAY_PAUSES_S = (0.5, 1.0, 1.5)
"""A request that a gateway answered instead of the server is sent again after so long: that says nothing about its length."""
AS_IT_COMES = frozenset({"repeat"})
"""Purposes whose requests count as they come: whether one is turned away is what they ask."""
LEAST_PATIENCE_S = 15.0
"""A request that is under way when the budget ends is waited for so long."""
LATE_PATIENCE_S = 3.0
"""And one that is sent after that, by what was begun before, no longer than this."""
USED_UP = words("the budget was used up before; give a larger one with --budget").english
"""Why a probe was not begun where hardly any time was left."""
UNENDED = words(
    "the budget was used up by an answer that had begun and did not end; look at what stands between this program and the server"
).english
"""The same, where such an answer was seen."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a probe sends and how long it may take, said before it starts."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """How a probe reports: what, how far (0 to 1), and a line of detail."""

    report: Callable[[str, float, str], None] = field(default=lambda _what, _done, _detail: None)


@dataclass(slots=True)
class Sent:
    """What was sent to the server so far."""

    requests: int = 0
    prompt_tokens: int = 0
    processed_tokens: int = 0
    generated_tokens: int = 0

    def count(self, completion: Completion) -> None:
        """Add one completion."""
        self.requests += 1
        self.prompt_tokens += completion.prompt_tokens or completion.sent_tokens or 0
        self.processed_tokens += completion.processed_tokens or 0
        self.generated_tokens += completion.generated_tokens or 0


def _impossible(completion: Completion) -> RequestError | None:
    """Say what cannot be: a server that worked longer on an answer than we waited for it. Somebody else gave that answer, at another time."""
    told = (completion.server_prompt_s or 0.0) + (completion.server_generation_s or 0.0)
    waited = completion.client_total_s
    if completion.error is not None or waited is None or told <= IMPOSSIBLE * waited + ROUNDING_S:
        return None
    message = (
        f"the answer came after {waited:.2f} s and says that the server worked on it for {told:.2f} s: "
        "it is not the server's own; does a proxy in between answer from a cache, or change the times?"
    )
    return RequestError(error="bad-answer", message=message, after_s=round(waited, 3))


class Phase:
    """What a phase of sampling left: its peaks, or None where nothing is sampled."""

    peaks: SampledPeaks | None = None


@dataclass(slots=True)
class ProbeContext:
    """What a probe gets to work with."""

    backend: Backend
    counter: Counter
    """How tokens are counted; its name says by whom."""
    sampler: Sampler | None = None
    progress: Progress = field(default_factory=Progress)
    sent: Sent = field(default_factory=Sent)
    run: int = 1
    seed: int = 0
    ends_at: float = field(default_factory=lambda: time.monotonic() + 3600)
    """When the budget is used up (monotonic clock)."""
    process_ended: Callable[[], ProcessEnded | None] = field(default=lambda: None)
    """Says whether the server's process has ended, where it can be watched."""
    given_up: bool = False
    """Whether a request ended for us and not for the server, which was not seen idle since."""
    answers: Callable[[], bool] = field(default=lambda: False)
    """Says whether the server answers, asked for a moment after a connection was lost; False too where nothing can tell."""
    revive: Callable[[], bool] = field(default=lambda: False)
    """Brings back a server that went away: it is waited for, or started anew where that is allowed. True where it answers again."""
    start_anew: Callable[[], bool] | None = None
    """Starts the server anew on purpose; None where it may not be. True where it answers again."""
    prefill_tps: float | None = None
    """Slowest prefill speed seen so far; deadlines grow from it."""
    doubt: str = ""
    """Why what this server tells of its answers cannot be believed, where that was seen: nothing is proved by its counts then."""
    share: float | None = None
    """Where tokens are only estimated: the share of an estimate that the server counted at the first length."""
    asked: int = 0
    """So many requests were sent."""
    salt: tuple[str, str] = ("", "")
    """How the last prompt begins that no cache may know, and what was put before it."""
    torn: TornStream | None = None
    """How streamed answers arrive torn, where that was seen: from then on answers are asked for in one piece."""
    stream_was_held: bool = False
    """Whether a streamed answer was held against the same in one piece."""
    turned_away: list[RequestError] = field(default_factory=list)
    """Refusals of requests that were sent again, since they were taken as evidence last."""
    gateway_stays: bool = False
    """Whether a gateway answered instead of the server until no more was asked again: then it is asked again once only."""
    unended: str = ""
    """What was said of an answer that had begun and did not end, where that was seen."""

    def complete(self, ask: Ask, sent_tokens: int | None = None, purpose: str = "") -> Completion:
        """Send one completion and count it.

        Each is a request unlike any other: a proxy that answers by itself what it has seen before finds nothing. A prompt that is to be read cold begins
        like no other, too, where the server cannot switch its prompt cache off for one request; what follows on it keeps that beginning, and so goes
        on from it.
        """
        if self.torn is not None:
            ask = replace(ask, stream=False)
        try:
            completion = self._let_in(ask, patient=purpose not in AS_IT_COMES)
        except NotOfferedError:
            raise
        except CtxDoctorError:
            # what came back could not be read; it was sent all the same
            self.sent.count(Completion(sent_tokens=sent_tokens))
            raise
        impossible = _impossible(completion)
        if impossible is not None:
            completion = completion.model_copy(update={"error": impossible})
            self.doubt = self.doubt or impossible.message
        completion = completion.model_copy(update={"sent_tokens": sent_tokens, "purpose": purpose})
        self.sent.count(completion)
        if completion.error is not None and completion.error.error in {"timeout", "connection-lost"}:
            self.given_up = True
        if completion.error is not None and completion.error.unended:
            self.unended = completion.error.message
        speed = completion.prefill_tps
        if speed and (completion.processed_tokens or 0) >= 256:
            self.prefill_tps = min(self.prefill_tps or speed, speed)
        return completion

    def held_against_whole(self, ask: Ask, streamed: Completion) -> Completion | None:
        """Ask once more for an answer in one piece, once in a run: that answer where pieces of the streamed one were lost or changed places, else None.

        A proxy that tears a stream would else make a model forget. Both are asked for anew: what follows a prompt that was read cold and one that was
        read again may differ by itself.
        """
        if self.stream_was_held or self.torn is not None or streamed.error is not None:
            return None
        if (streamed.client_total_s or 0.0) > QUICK * self.time_left():
            # twice as much again would be for the lengths
            return None
        self.stream_was_held = True
        # read cold: the very same prompt again makes a server with sliding windows complain of what its cache cannot go back to
        cold = replace(ask, use_cache=False, cache_as_served=False)
        try:
            again = self.complete(cold, streamed.sent_tokens, "streamed again")
            whole = self.complete(replace(cold, stream=False), streamed.sent_tokens, "in one piece")
        except CtxDoctorError:
            # a look beside the measurement, which stands without it
            return None
        if again.error is not None or whole.error is not None or whole.text is None:
            return None
        self.torn = torn(again, whole)
        return whole if self.torn is not None else None

    def _let_in(self, ask: Ask, *, patient: bool) -> Completion:
        """Send one completion; one that says nothing about its length is sent again a few times.

        It is turned away because others are served, or answered by a gateway that got no answer itself.
        """
        busy, gateway = iter(BUSY_PAUSES_S), iter(GATEWAY_PAUSES_S[: 1 if self.gateway_stays else None])
        while True:
            completion = self.backend.complete(self._unlike_any(ask))
            refused = completion.error
            if refused is None:
                self.gateway_stays = False
                return completion
            if not patient:
                return completion
            pause: float | None = None
            if refused.error == "busy":
                pause = next(busy, None)
            elif refused.gateway and self.process_ended() is None:
                pause = next(gateway, None)
                self.gateway_stays = pause is None
            if pause is None or self.time_left() <= pause:
                return completion
            self.sent.count(completion)
            if refused.error == "busy":
                self.turned_away.append(refused)
                self.progress.report("busy", 0.0, f"the server is busy with others; asked again in {pause:.0f} s")
            else:
                self.progress.report("busy", 0.0, f"a gateway answered, not the server; asked again in {pause:.1f} s")
            time.sleep(pause)

    def _unlike_any(self, ask: Ask) -> Ask:
        # at temperature 0 another seed changes nothing but the request
        self.asked += 1
        ask = replace(ask, seed=ask.seed + self.asked)
        if ask.salt or ask.cache_as_served:
            return ask
        text = ask.prompt if ask.prompt is not None else (ask.messages or ({},))[0].get("content", "")
        begins = text[:BEGINNING]
        if not ask.use_cache:
            first = random.Random(f"cold {self.seed} {self.run}").randrange(1000)
            salted = not self.backend.can("cache-off")
            self.salt = (begins, f"{(first + self.asked) % 1000:03d} ") if salted else ("", "")
        elif begins != self.salt[0]:
            return ask
        return replace(ask, salt=self.salt[1])

    def deadline_for(self, prompt_tokens: int, generated_tokens: int = 64) -> float:
        """Give a deadline from the speeds seen so far: four times what they promise, and a minute; never far beyond the budget.

        Ten minutes where nothing is known yet.
        """
        left = max(LATE_PATIENCE_S, self.time_left() + LEAST_PATIENCE_S)
        if self.prefill_tps is None:
            return min(left, max(600.0, prompt_tokens / 20))
        return min(left, 60.0 + 4 * prompt_tokens / self.prefill_tps + generated_tokens * 2.0)

    def window_now(self) -> int | None:
        """Ask the server for the window that is in force at this moment; None where it does not say."""
        try:
            self.backend.forget()
            return self.backend.window().in_force
        except CtxDoctorError:
            return None

    def used_by_others(self) -> bool | None:
        """Say whether someone else's request is running; None where the server does not tell, or may still work on one that we gave up."""
        try:
            busy = self.backend.busy()
        except CtxDoctorError:
            return None
        if busy is False:
            self.given_up = False
        return None if self.given_up else busy

    def time_left(self) -> float:
        """Give the seconds that the budget has left."""
        return self.ends_at - time.monotonic()

    @contextlib.contextmanager
    def sampled(self, name: str, rung: int | None = None, attempt: int | None = None) -> Iterator[Phase]:
        """Sample devices and host during a phase, where a sampler runs."""
        phase = Phase()
        if self.sampler is None:
            yield phase
            return
        with self.sampler.phase(name, rung=rung, attempt=attempt) as sampled:
            yield phase
        phase.peaks = sampled.peaks


QUICK = 0.05
"""An answer is asked for again where it took at most this share of what the budget has left."""
LOST = 2
"""Fewer characters may be white space at an end."""


def torn(streamed: Completion, whole: Completion) -> TornStream | None:
    """Say how a streamed answer differs from the same in one piece, where its pieces were lost or moved; None where it is whole, or simply another.

    Lost: it is the whole with gaps, and the server counts as many generated tokens for both. Moved: the same characters in another order.
    """
    # a token that is no whole character is given in one way or the other: that tears nothing
    pieces, all_of_it = ((one.text or "").replace("\ufffd", "") for one in (streamed, whole))
    gone = len(all_of_it) - len(pieces)
    counts = {streamed.generated_tokens, whole.generated_tokens} - {None}
    rest = iter(all_of_it)
    lost = gone >= LOST and len(counts) <= 1 and all(one in rest for one in pieces)
    moved = gone == 0 and pieces != all_of_it and sorted(pieces) == sorted(all_of_it)
    if not (lost or moved):
        return None
    return TornStream(streamed_characters=len(pieces), whole_characters=len(all_of_it), moved=moved)


class Probe(ABC):
    """One probe. ``collect`` yields evidence as it is found, so that each piece is on disk before the next measurement."""

    id: ClassVar[str]
    gives: ClassVar[tuple[str, ...]] = ()
    """Kinds of evidence that it may yield."""
    stops_itself: ClassVar[bool] = False
    """Whether it keeps to what the budget has left by itself, and is worth beginning also where not all of it fits."""

    @abstractmethod
    def cost(self, context: ProbeContext) -> Cost:
        """Say beforehand what it would send."""

    @abstractmethod
    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Measure, and yield evidence; a failure is evidence too."""
