"""Who counts tokens: the server's own tokenizer first, else the model's own through transformers, else the server's usage counter, calibrated.

A server's tokenizer may stand behind a proxy: a bad answer that passes is asked for again, and a text that is too long for what stands there is
estimated from what was counted of its parts.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from probes.backends.base import Ask, Backend
from probes.backends.deadline import until
from probes.base import GATEWAY_PAUSES_S, USED_UP, Sent
from probes.evidence.errors import (
    BadAnswerError,
    BudgetEndedError,
    CtxDoctorError,
    InputError,
    NoAnswerInTimeError,
    NotOfferedError,
    ServerDiedError,
)
from probes.evidence.request import Completion
from probes.ladder.text import Counter, generated, weigh
from probes.tokenizer import calibrate, open_tokenizer

SAMPLE_CHARACTERS = 6000
SUSPICIOUS = 0.2
"""A share of the shorter text's count that no ordinary template adds."""
SHORT = "one two three"
PAUSES_S = (0.2, 0.5, 1.0, 1.0)
"""A count that could not be had is asked for again after so long."""
PASSING = frozenset({408, 429, 500, 502, 503, 504, *range(520, 528)})
"""Statuses of answers that may be others the next time."""
LITTLE_S = 2.0
"""A count that is under way when the run's time ends is waited for so long."""
PATIENCE_S = 60.0
MOST_S = 120.0
LEAST_PATIENCE_S = 5.0
LEAST_PART = 500
"""Characters of a part, at the least, from which a text's tokens are estimated."""
LEAST_SPREAD = 0.01
MOST_KNOWN = 64
T = TypeVar("T")


def counter_for(
    backend: Backend,
    tokenizer: str | None = None,
    model_folder: str | None = None,
    sent: Sent | None = None,
    *,
    ends_at: float = math.inf,
) -> Counter | None:
    """Give the best counter that can be had; None where nothing can count. A tokenizer that was named by the user is used whatever else there is.

    ``sent`` counts the two short requests of a calibration. ``ends_at``: when the run's time is over (monotonic clock); nothing is asked after it, and
    BudgetEndedError is raised.
    """
    if tokenizer is not None:
        return open_tokenizer(tokenizer, fetch=False).counter()
    counter = _of_server(backend, ends_at)
    if counter is not None:
        return counter
    if model_folder is not None:
        with contextlib.suppress(CtxDoctorError):
            return open_tokenizer(model_folder).counter()
    return _calibrated(backend, sent, ends_at)


def within(counter: Counter, ends_at: float) -> Counter:
    """Let a server's counter ask nothing after a run's end (monotonic clock); gives the counter."""
    if isinstance(counter, ServerCounter):
        counter.ends_at = ends_at
    return counter


def check_time(ends_at: float) -> float:
    """Give the seconds that are left until then (monotonic clock). BudgetEndedError where there are none."""
    left = ends_at - time.monotonic()
    if left <= 0:
        raise BudgetEndedError(USED_UP)
    return left


class ServerCounter(Counter):
    """The server's own tokenizer, asked again where an answer is bad, and not after the run's end.

    A text that is not counted because of its length is estimated by what parts of it count; from then on the name says calibration, as the counts of long
    texts are no longer the server's.
    """

    def __init__(self, backend: Backend, ends_at: float = math.inf) -> None:
        super().__init__(self._count, tokenize=self._tokenize, detokenize=self._detokenize, name="server")
        self.backend = backend
        self.ends_at = ends_at
        self.answered = False
        """Whether it has counted: then it offers that, whatever an answer says."""
        self.too_long = math.inf
        """Characters of the shortest text that was not counted, where a part of it was."""
        self._known: list[tuple[int, float, int]] = []
        """Characters, weight and tokens of texts that were counted."""

    def ids(self, text: str) -> tuple[int, Sequence[int] | None]:
        """Count a text, and give its ids where both ways are offered, and the text is not too long for them."""
        self.calls += 1
        if self.tokenize is None or len(text) >= self.too_long:
            return self._count(text), None
        try:
            ids = self._tokenize(text)
        except CtxDoctorError as failure:
            return self._estimate_after(text, failure), None
        self._learn(text, len(ids))
        return len(ids), ids if self.detokenize is not None else None

    def text(self, ids: Sequence[int]) -> str:
        """Give the text of ids; an empty one, and none from then on, where they cannot be had back."""
        self.calls += 1
        try:
            return self._detokenize(ids)
        except CtxDoctorError:
            self.detokenize = None
            return ""

    def once_offered(self) -> bool:
        """Find out what is offered, by a few words. False where it does not count."""
        left = check_time(self.ends_at)
        # a proxy that never ends an answer must not take all the time for three words
        with until(time.monotonic() + min(PATIENCE_S, max(LEAST_PATIENCE_S, left / 2))):
            try:
                if self.asked(lambda: self.backend.count_tokens(SHORT)) < 1:
                    return False
            except CtxDoctorError:
                return False
            try:
                back = self._detokenize(self._tokenize(SHORT))
            except CtxDoctorError:
                back = ""
        if "two" not in back:
            self.tokenize = self.detokenize = None
        self.answered = True
        return True

    def asked(self, act: Callable[[], T], pauses: Sequence[float] = PAUSES_S) -> T:
        """Ask, and again after each pause while the answer is one that may be another the next time."""
        for pause in (*pauses, None):
            left = check_time(self.ends_at)
            try:
                with until(time.monotonic() + left + LITTLE_S if left < math.inf else math.inf):
                    told = act()
            except CtxDoctorError as failure:
                left = check_time(self.ends_at)
                if pause is None or left <= pause or not self._passes(failure):
                    raise
                time.sleep(pause)
            else:
                return told
        raise AssertionError

    def _passes(self, failure: CtxDoctorError) -> bool:
        if isinstance(failure, NotOfferedError):
            return failure.status in PASSING or (self.answered and failure.status == 0)
        return isinstance(failure, ServerDiedError | BadAnswerError)

    def _count(self, text: str) -> int:
        if len(text) >= self.too_long:
            return self._estimate(text)
        try:
            counted = self.asked(lambda: self.backend.count_tokens(text))
        except CtxDoctorError as failure:
            return self._estimate_after(text, failure)
        self._learn(text, counted)
        return counted

    def _tokenize(self, text: str) -> Sequence[int]:
        return self.asked(lambda: self.backend.tokenize(text))

    def _detokenize(self, ids: Sequence[int]) -> str:
        return self.asked(lambda: self.backend.detokenize(ids))

    def _learn(self, text: str, counted: int) -> None:
        if len(text) >= LEAST_PART and counted > 0 and len(self._known) < MOST_KNOWN:
            self._known.append((len(text), weigh(text), counted))

    def _rate(self) -> tuple[float, float, float]:
        """Give how far the texts that were counted are from an estimate, at the most, and the tokens of a character and of a weight.

        One of both is 0: that which tells their counts less well.
        """
        found = []
        for size in (0, 1):
            rate = sum(one[2] for one in self._known) / sum(one[size] for one in self._known)
            found.append((max(abs(rate * one[size] - one[2]) / one[2] for one in self._known), rate))
        (by_size, a_character), (by_weight, a_weight) = found
        return (by_size, a_character, 0.0) if by_size < by_weight else (by_weight, 0.0, a_weight)

    def _estimate(self, text: str) -> int:
        _spread, a_character, a_weight = self._rate()
        return round(a_character * len(text) if a_character else a_weight * weigh(text))

    def _estimate_after(self, text: str, failure: CtxDoctorError) -> int:
        """Estimate a text that was not counted: by its parts, which show whether it was too long, else by what was counted before. Else the failure."""
        if not isinstance(failure, NotOfferedError | ServerDiedError | BadAnswerError | NoAnswerInTimeError):
            raise failure
        size = len(text)
        while size // 2 >= LEAST_PART and not isinstance(failure, NoAnswerInTimeError):
            before, size = size, size // 2
            if self._part(text[:size]):
                self.too_long = min(self.too_long, before)
                # by several, so that it is known how far they differ
                middle = (len(text) - size) // 2
                for part in (text[middle : middle + size], text[-size:]):
                    self._part(part)
                break
        if not self._known:
            raise failure
        spread = max(LEAST_SPREAD, self._rate()[0])
        self.name = f"calibration by the server's counts of shorter texts (within {spread:.1%})"
        return self._estimate(text)

    def _part(self, part: str) -> bool:
        """Count a part of a text and learn from it; False where it is not counted."""
        try:
            counted = self.asked(lambda: self.backend.count_tokens(part), PAUSES_S[:1])
        except CtxDoctorError:
            return False
        self._learn(part, counted)
        return counted > 0


def _of_server(backend: Backend, ends_at: float) -> Counter | None:
    counter = ServerCounter(backend, ends_at)
    return counter if counter.once_offered() else None


def _calibrated(backend: Backend, sent: Sent | None, ends_at: float) -> Counter | None:
    """Count by weight, scaled by what the server's usage counter says of two texts of different length. Two short requests."""
    text = ""
    for unit in generated(7):
        text += unit.text
        if len(text) > SAMPLE_CHARACTERS:
            break
    counts: list[tuple[str, int]] = []
    # a small window refuses the longer ones
    for share in (3, 1, 6, 12):
        if len(counts) < 2:
            part = text[: len(text) // share]
            counted = _counted(backend, part, sent, ends_at)
            counts += [(part, counted)] if counted is not None else []
        if share == 1 and not counts:
            return None
    if len(counts) < 2:
        return None
    try:
        found = calibrate(counts)
        if found.overhead > SUSPICIOUS * min(counted for _part, counted in counts):
            # so much beside the text is a long template, or the longer text was cut: a shorter one tells which
            part = text[: len(text) // 6]
            counted = _counted(backend, part, sent, ends_at)
            if counted is not None and (part, counted) not in counts:
                found = calibrate([(part, counted), counts[0]])
        return found.counter()
    except InputError:
        return None


def _counted(backend: Backend, part: str, sent: Sent | None, ends_at: float) -> int | None:
    """Ask how many tokens a text has for the server, as raw text or, where it takes none, as a chat. None where it does not say."""
    for ask in (
        Ask(prompt=part, max_tokens=1, use_cache=False),
        Ask(messages=({"role": "user", "content": part},), max_tokens=1, use_cache=False),
    ):
        with contextlib.suppress(NotOfferedError):
            answer = _complete(backend, ask, sent, ends_at)
            if answer.error is None and answer.prompt_tokens:
                return answer.prompt_tokens
    return None


def _complete(backend: Backend, ask: Ask, sent: Sent | None, ends_at: float) -> Completion:
    """Send one completion, and again where a gateway answers instead of the server."""
    for pause in (*GATEWAY_PAUSES_S, None):
        left = check_time(ends_at)
        answer = backend.complete(replace(ask, deadline_s=min(MOST_S, left + LITTLE_S)))
        if sent is not None:
            sent.count(answer)
        if pause is None or answer.error is None or not answer.error.gateway:
            break
        if check_time(ends_at) > pause:
            time.sleep(pause)
    return answer
