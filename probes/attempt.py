"""One attempt at one length: the text, its canaries asked, both clocks, the peaks; scored, not judged.

The first request of an attempt carries the measurement: its prompt is cold (cache off or defeated), so its prefill is the whole text. Where the
canaries have to be asked one by one, the others follow on the cached text and cost only their tail. Every length asks in the same way, with
the same output budget and sampling.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from probes.backends.base import Ask
from probes.base import Phase, ProbeContext
from probes.evidence.errors import BudgetEndedError, CtxDoctorError, NotOfferedError, UnreachableError, WrongKeyError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion, ErrorKind, Outcome, ProcessEnded, RequestError
from probes.evidence.rungs import CanaryScore, ConstraintScore, DevicePeak, RungResult
from probes.ladder.canaries import (
    Canary,
    NonLiteral,
    Style,
    answer_tokens,
    completion_tail,
    non_literal_tail,
    question_tail,
)
from probes.ladder.constraints import Task, score_code
from probes.ladder.rungs import RungText
from probes.ladder.scoring import hits_completion, hits_list, hits_name, score
from probes.showing import length_line

SEVERAL = 9
"""At most so many canaries in one question."""
REASONING_ROOM = 1024
"""Tokens on top for a model that reasons before it answers."""
FEW = 3
"""So many canaries are asked where each one costs a whole prefill."""
FRAME_TOKENS = 256
"""What a chat template may add beyond what is known."""
MOST_OVER = 1.25
"""A server that counts more than this times what was planned does not count the prompt that was sent."""
TEMPLATE_BEGINNING = 64
"""Tokens that a template may put before a text."""
TIMED_S = 1.0
TOO_SOON = 10.0
"""A length that took this many seconds and is read again so many times sooner came from a cache, whatever was asked."""
LEAST_PREFILL = 128
"""Fewer tokens than this are mostly overhead."""
CODE_TOKENS = 400
"""Output budget of the code change."""
CHEAP_TOKENS = 4096
"""Up to this length the code change is asked also where it costs a prefill of its own."""
MOST_LOOK = 0.15
"""The look for the way of asking takes at most this share of what the budget has left, and one request more."""
RESUMED = 0.5
"""A follow-up that had to process more than this share of its prompt was not resumed from the cache."""


@dataclass(frozen=True, slots=True)
class Asking:
    """How this model is asked, decided once at the short rung and then fixed."""

    style: Style = "completion"
    several: bool = False
    reasoning: bool = False
    measure_tokens: int = 48
    """Output budget of the measured request, the same at every length."""

    def budget(self, canaries: int) -> int:
        """Give the output budget of one request that asks so many canaries."""
        needed = answer_tokens(canaries, self.style) + (REASONING_ROOM if self.reasoning else 0)
        return max(needed, self.measure_tokens)


def outcome_of(error: RequestError | None, ended: ProcessEnded | None, *, lives: bool = False) -> Outcome:
    """Say what became of an attempt from its error. ``lives``: the server answers all the same, so that only the connection was cut."""
    if error is None:
        return "passed"
    if error.error == "timeout":
        return "timeout"
    if ended is not None or (error.error == "connection-lost" and not lives):
        return "died"
    if error.error == "exceeds-window":
        return "refused"
    return "failed"


def with_rules(text: str, task: Task) -> str:
    """Plant a task's coding rules at the start, in the middle (between two paragraphs) and at the end of a text."""
    first, *between, last = task.planted()
    middle = text.find("\n\n", len(text) // 2)
    middle = middle + 2 if middle >= 0 else len(text) // 2
    return "\n\n".join(part for part in (first, text[:middle].rstrip(), *between, text[middle:].strip(), last) if part)


def as_request_error(failure: CtxDoctorError) -> RequestError:
    """Make a record of a request that could not even be asked."""
    kinds: tuple[tuple[type[CtxDoctorError], ErrorKind], ...] = (
        (WrongKeyError, "wrong-key"),
        (UnreachableError, "connection-lost"),
        (NotOfferedError, "not-supported"),
    )
    for failure_type, kind in kinds:
        if isinstance(failure, failure_type):
            return RequestError(error=kind, message=str(failure))
    return RequestError(error="bad-answer", message=str(failure))


class Attempts:
    """Measures attempts for one ladder; remembers whether follow-ups are resumed from the prompt cache."""

    def __init__(self, context: ProbeContext, asking: Asking) -> None:
        self.context = context
        self.asking = asking
        self.resumes: bool | None = None
        self.busy: bool | None = None
        self.result: RungResult | None = None
        self.completions: list[Completion] = []
        self.hits: list[tuple[Canary, bool]] = []
        self.named: list[bool] = []
        """For each non-literal fact that was asked, whether its person was named."""
        self._asked: Ask | None = None
        self._first: list[Canary] = []
        self._cold_s: dict[int, float] = {}
        self._tails: dict[int, int] = {}

    def ask(self, text: str, canaries: Sequence[Canary], *, cold: bool, tokens: int, measured: bool) -> Completion:
        """Ask about canaries after the text, in the way that was decided."""
        asking = self.asking
        budget = (
            asking.budget(len(canaries)) if measured or asking.style == "question" else answer_tokens(1, "completion")
        )
        common: dict[str, Any] = {
            "max_tokens": budget,
            "use_cache": not cold,
            "seed": self.context.seed,
            "deadline_s": self.context.deadline_for(tokens, budget),
        }
        if asking.style == "completion":
            # the answer is one word; only the measured request goes on, for the speed of generation
            stop = () if measured else (".", "\n")
            ask = Ask(prompt=text + completion_tail(canaries[0]), stop=stop, **common)
        else:
            ask = Ask(messages=({"role": "user", "content": text + question_tail(canaries)},), **common)
        self._asked = ask
        return self.context.complete(ask, sent_tokens=tokens, purpose="rung")

    def score(self, completion: Completion, canaries: Sequence[Canary]) -> None:
        """Score an answer, and keep the hits. The first that misses a fact is held against the same in one piece: its stream may be torn."""
        hits = self._hits(completion, canaries)
        cheap = self.resumes or (completion.sent_tokens or 0) <= CHEAP_TOKENS
        if not all(hits) and self._asked is not None and cheap:
            whole = self.context.held_against_whole(self._asked, completion)
            hits = hits if whole is None else self._hits(whole, canaries)
        self.hits += zip(canaries, hits, strict=True)

    def _hits(self, completion: Completion, canaries: Sequence[Canary]) -> list[bool]:
        answer = completion.text or ""
        if self.asking.style == "completion":
            return [hits_completion(answer, canaries[0])]
        return list(hits_list(answer, canaries))

    def measure(
        self,
        text: RungText,
        attempt: int,
        *,
        cold: bool = True,
        canaries: Sequence[Canary] | None = None,
        scored: bool = True,
        task: Task | None = None,
        non_literal: Sequence[NonLiteral] = (),
    ) -> Iterator[Evidence]:
        """Measure one attempt and yield its evidence: peaks, then the rung. The result stays in ``result``.

        ``non_literal`` facts are asked last of the canaries, where the text stays in the cache.
        """
        context = self.context
        left = list(text.canaries if canaries is None else canaries)
        if self.asking.style != "question":
            # a base model goes on with a text; it does not carry out a request
            task = None
        prompt = text.text if task is None else with_rules(text.text, task)
        groups = _groups(left, SEVERAL if self.asking.several else 1)
        self.completions, self.hits, self.result = [], [], None
        self.named = []
        self._first = groups[0] if groups else []
        if not groups or not text.text.strip():
            yield not_found(
                RungResult,
                "not-run",
                f"{text.rung} tokens leave no room for a text with facts",
                run=context.run,
                origin="rung",
            )
            return
        error: RequestError | None = None
        self.busy = context.used_by_others()
        name = f"rung {text.rung} attempt {attempt}"
        with context.sampled(name, text.rung, attempt) as phase:
            for number, group in enumerate(groups):
                if number and ((self.resumes is False and number >= FEW) or context.time_left() <= 0):
                    break
                done = number / max(1, len(groups))
                context.progress.report(name, done, length_line(context, text.tokens))
                try:
                    completion = self.ask(
                        prompt, group, cold=cold and number == 0, tokens=text.tokens, measured=number == 0
                    )
                except CtxDoctorError as failure:
                    completion = Completion(error=as_request_error(failure))
                self.completions.append(completion)
                if completion.error is not None:
                    error = completion.error
                    break
                if scored:
                    self.score(completion, group)
                if number == 1:
                    self._see_resumption(completion)
                    if self.resumes is False and len(groups) > FEW:
                        groups[2:] = _spread(groups[2:], FEW - 2)
            if non_literal and scored and error is None:
                error = self.ask_non_literal(prompt, non_literal, text.tokens)
            constraints = None
            if task is not None and error is None and (self.resumes is not False or text.tokens <= CHEAP_TOKENS):
                constraints, error = self._ask_code(prompt, task, text.tokens)
        context.progress.report(name, 1.0, length_line(context, text.tokens))
        if error is not None and error.error == "timeout" and context.time_left() <= 0:
            # our own patience ended, not the server's: nothing is known about this length
            note = f"the budget ended while {text.rung} tokens were waited for; the server was silent or slow"
            if error.unended:
                note = (
                    f"the budget ended while {text.rung} tokens were waited for; the answer had begun and did not end"
                )
            yield not_found(RungResult, "not-run", note, run=context.run, origin=name)
            return
        ended = context.process_ended() if error is not None else None
        if phase.peaks is not None:
            yield found(phase.peaks, source="measured", run=context.run, origin=name)
        if ended is not None:
            yield found(
                ended.model_copy(update={"during": name, "at_prompt_tokens": text.rung}),
                source="measured",
                run=context.run,
                origin=name,
            )
        self.result = self._result(text, attempt, error, ended, phase, cold=cold, constraints=constraints)
        yield found(self.result, source="measured", run=context.run, origin=name)

    def ask_non_literal(
        self, prompt: str, facts: Sequence[NonLiteral], tokens: int, others: Sequence[NonLiteral] = ()
    ) -> RequestError | None:
        """Ask facts whose question shares no word with them, one by one; not where each one costs a long prefill.

        ``others`` stand in the text too: an answer that names one of their people as well is none.
        """
        style = self.asking.style
        budget = 12 + (REASONING_ROOM if self.asking.reasoning and style == "question" else 0)
        distinct = list({one.fact: one for one in facts}.values())
        for one in distinct:
            if self.context.time_left() <= 0 or (self.resumes is False and tokens > CHEAP_TOKENS):
                return None
            tail = non_literal_tail(one, style)
            common: dict[str, Any] = {
                "max_tokens": budget,
                "seed": self.context.seed,
                "deadline_s": self.context.deadline_for(tokens, budget),
            }
            if style == "completion":
                ask = Ask(prompt=prompt + tail, stop=(".", "\n"), **common)
            else:
                ask = Ask(messages=({"role": "user", "content": prompt + tail},), **common)
            try:
                completion = self.context.complete(ask, sent_tokens=tokens, purpose="non-literal")
            except CtxDoctorError as failure:
                return as_request_error(failure)
            self.completions.append(completion)
            if completion.error is not None:
                # no room for the longer question is our own doing, not the length's failure
                return None if completion.error.error == "exceeds-window" else completion.error
            self._see_resumption(completion)
            self.named.append(hits_name(completion.text or "", one, [*distinct, *others], style))
        return None

    def _ask_code(self, prompt: str, task: Task, tokens: int) -> tuple[ConstraintScore | None, RequestError | None]:
        """Ask for the small code change after the same text, and score what it keeps of the rules."""
        budget = CODE_TOKENS + (REASONING_ROOM if self.asking.reasoning else 0)
        ask = Ask(
            messages=({"role": "user", "content": prompt + task.request()},),
            max_tokens=budget,
            seed=self.context.seed,
            deadline_s=self.context.deadline_for(tokens, budget),
        )
        try:
            completion = self.context.complete(ask, sent_tokens=tokens, purpose="constraints")
        except CtxDoctorError as failure:
            return None, as_request_error(failure)
        self.completions.append(completion)
        if completion.error is not None:
            # no room for the longer question is our own doing, not the length's failure
            return None, None if completion.error.error == "exceeds-window" else completion.error
        return score_code(completion.text or "", task.constraints, task.code), None

    def _tail_tokens(self, text: RungText) -> int:
        """Count the question of the measured request, once for each number of canaries."""
        group = self._first or list(text.canaries[: SEVERAL if self.asking.several else 1])
        if not group:
            return 0
        if len(group) not in self._tails:
            tail = completion_tail(group[0]) if self.asking.style == "completion" else question_tail(group)
            try:
                self._tails[len(group)] = self.context.counter.count(tail)
            except (CtxDoctorError, BudgetEndedError):
                # what was measured stands without it
                return 0
        return self._tails[len(group)]

    def _share(self, counted: int, sent: int) -> float:
        """Give the share of an estimate that the server counts. Exact counters: 1. Where tokens are estimated the first length shows it."""
        if not self.context.counter.name.startswith("calibration"):
            return 1.0
        if self.context.share is None and 0.6 < counted / max(1, sent) < 1.6:
            self.context.share = counted / sent
        return min(1.0, self.context.share or 1.0)

    def _was_cold(self, rung: int, first: Completion, *, asked: bool) -> bool | None:
        """Say whether nothing came from the cache: by the server's count, else by the time that the same length took before."""
        told = _was_cold(first, asked=asked)
        took = first.server_prompt_s if first.server_prompt_s is not None else first.client_first_token_s
        if told is not None or took is None or not asked:
            return told
        before = self._cold_s.get(rung, 0.0)
        self._cold_s[rung] = max(before, took)
        return False if before >= TIMED_S and took < before / TOO_SOON else None

    def _see_resumption(self, completion: Completion) -> None:
        prompt, processed = completion.prompt_tokens, completion.processed_tokens
        if prompt and processed is not None and prompt >= 512:
            self.resumes = processed <= RESUMED * prompt

    def _result(
        self,
        text: RungText,
        attempt: int,
        error: RequestError | None,
        ended: ProcessEnded | None,
        phase: Phase,
        *,
        cold: bool,
        constraints: ConstraintScore | None = None,
    ) -> RungResult:
        first = self.completions[0] if self.completions else Completion()
        counted = first.prompt_tokens
        lives = error is not None and error.error == "connection-lost" and ended is None and self.context.answers()
        outcome = outcome_of(error, ended, lives=lives)
        message = error.message if error else None
        kind: str | None = error.error if error else None
        sent = text.tokens + self._tail_tokens(text)
        expected = max(text.rung, sent)
        if outcome == "passed" and counted is not None and counted > MOST_OVER * expected + FRAME_TOKENS:
            outcome, kind = "failed", "bad-answer"
            message = (
                f"about {text.rung} tokens were sent and the server counted {counted}; its counts cannot be believed"
            )
            self.context.doubt = self.context.doubt or message
            counted = None
        elif outcome == "passed" and self.context.doubt:
            outcome, kind, message, counted = "failed", "bad-answer", self.context.doubt, None
        elif outcome == "passed" and counted is not None and counted < 0.9 * self._share(counted, sent) * sent:
            # an answer came, but not to the text that was sent
            outcome, kind = "failed", "truncated"
            message = f"{sent} tokens were sent and {counted} were processed; the answer came without an error"
        if counted is None:
            counted = error.prompt_tokens if error is not None and error.prompt_tokens is not None else text.rung
        canaries: CanaryScore | None = None
        if self.hits:
            canaries = score(
                [one for one, _hit in self.hits],
                [hit for _one, hit in self.hits],
                non_literal_hits=self.named or None,
            )
        peaks = phase.peaks
        measured = outcome in {"passed", "failed"} and kind is None
        return RungResult(
            rung=text.rung,
            input_tokens=counted,
            output_tokens=first.generated_tokens or 0,
            cached_tokens=first.cached_tokens,
            attempt=attempt,
            result=outcome,
            error=message,
            error_kind=kind,
            prefill_tps=_rounded(first.prefill_tps) if measured and _tells_prefill(first) else None,
            generation_tps=_rounded(first.generation_tps) if measured else None,
            first_token_s=_rounded(first.client_first_token_s),
            client_prefill_tps=_rounded(_client_prefill(first)) if measured and _tells_prefill(first) else None,
            client_generation_tps=_rounded(_client_generation(first)) if measured else None,
            total_s=_rounded(sum(one.client_total_s or 0.0 for one in self.completions)),
            canaries=canaries,
            constraints=constraints,
            devices=tuple(
                DevicePeak(id=device, peak_bytes=value)
                for device, value in sorted((peaks.devices_peak_bytes if peaks else {}).items())
            ),
            host_peak_bytes=(peaks.server_peak.rss_bytes if peaks and peaks.server_peak else None),
            cold=cold if error is not None else self._was_cold(text.rung, first, asked=cold),
            cache_asked=not cold,
            processed_tokens=_processed(self.completions),
            prompt_hash=text.hash,
            window=None if ended is not None else self.context.window_now(),
            busy_beside=self.busy,
        )


def _tells_prefill(first: Completion) -> bool:
    """Say whether enough of the prompt was processed to speak of a prefill speed: the few tokens after a cached text tell none."""
    return first.processed_tokens is None or first.processed_tokens >= min(
        LEAST_PREFILL, first.prompt_tokens or LEAST_PREFILL
    )


def _processed(completions: Sequence[Completion]) -> int | None:
    """Add up the prompt tokens that the server evaluated; None where one of the answers does not say."""
    counts = [one.processed_tokens for one in completions if one.error is None]
    return sum(count for count in counts if count is not None) if counts and None not in counts else None


def _was_cold(first: Completion, *, asked: bool) -> bool | None:
    """Say whether nothing came from the cache: by the server's count where there is one, else not known unless it was not asked for."""
    if first.cached_tokens is not None:
        # what stands before every prompt (a template's beginning, its system message) is the same each time, and is no part of the text
        return first.cached_tokens <= max(16, min(TEMPLATE_BEGINNING, (first.prompt_tokens or 0) // 8))
    return None if asked else False


def _client_prefill(completion: Completion) -> float | None:
    if completion.at_once or not completion.client_first_token_s or not completion.processed_tokens:
        return None
    return completion.processed_tokens / completion.client_first_token_s


def _client_generation(completion: Completion) -> float | None:
    n, total, first = completion.generated_tokens, completion.client_total_s, completion.client_first_token_s
    if n is None or n < 2 or total is None or first is None or total <= first or completion.at_once:
        return None
    return (n - 1) / (total - first)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _groups(canaries: Sequence[Canary], size: int) -> list[list[Canary]]:
    return [list(canaries[start : start + size]) for start in range(0, len(canaries), size)]


def _spread(groups: list[list[Canary]], count: int) -> list[list[Canary]]:
    """Keep ``count`` groups spread over the text, its end included."""
    if count <= 0:
        return []
    if len(groups) <= count:
        return groups
    step = len(groups) / count
    return [groups[min(len(groups) - 1, int((index + 1) * step) - 1)] for index in range(count)]


WELL = 0.75
"""A way of asking in which so much is recalled at a short length needs no better one."""
_THINKS = ("<think", "<|channel|>", "<thinking", "<reasoning")


def decide_asking(context: ProbeContext, text: RungText) -> tuple[Asking, dict[str, float]]:
    """Look briefly, at a short length, in which way this model answers best: chat question (several or one) or completion.

    Gives the way, and the share of hits of each way that was tried; a way that does well ends the look. A model that reasons first is given the
    room for it. A server without one of the endpoints is asked in the other. On a server so slow that the look would take much of what the budget
    has left, it ends with what is known by then: the lengths are what the budget is for. A way in which nothing was recalled is then worth less than
    one that was not tried.
    """
    ends = time.monotonic() + MOST_LOOK * context.time_left()
    sample = list(text.canaries[:: max(1, len(text.canaries) // 4)])[:4]
    shares: dict[str, float] = {}
    refused: set[str] = set()
    ways = {
        "question-several": Asking(style="question", several=True, measure_tokens=0),
        "completion": Asking(style="completion", measure_tokens=0),
        "question-single": Asking(style="question", measure_tokens=0),
    }
    reasoning = False
    for name, way in ways.items():
        if (shares and time.monotonic() > ends) or context.time_left() <= 0:
            break
        share, thinks = _share_of(context, text, way, sample, ends)
        if thinks and way.style == "question":
            reasoning = True
            share, _ = _share_of(context, text, replace(way, reasoning=True), sample, ends)
        if share is None:
            refused.add(name)
        else:
            shares[name] = share
            if share >= WELL:
                break
    if not shares:
        return Asking(), {}
    best = max(shares, key=lambda name: shares[name])
    untried = [name for name in ways if name not in shares and name not in refused]
    chosen = ways[untried[0] if untried and not shares[best] else best]
    return Asking(chosen.style, chosen.several, reasoning and chosen.style == "question"), shares


def _share_of(
    context: ProbeContext, text: RungText, way: Asking, sample: Sequence[Canary], ends: float
) -> tuple[float | None, bool]:
    """Ask a sample in one way: the share of hits (None where that way is not offered), and whether the model was seen to reason.

    After ``ends``, by the monotonic clock, nothing more is asked than the first.
    """
    if not sample:
        return None, False
    attempts = Attempts(context, way)
    asked = list(sample) if way.several or way.style == "completion" else list(sample)[:2]
    thinks = False
    for group in _groups(asked, SEVERAL if way.several else 1):
        if attempts.hits and time.monotonic() > ends:
            break
        try:
            completion = attempts.ask(text.text, group, cold=False, tokens=text.tokens, measured=False)
        except NotOfferedError:
            return None, False
        if completion.error is not None:
            return None, False
        thinks = thinks or any(sign in (completion.text or "") for sign in _THINKS)
        attempts.score(completion, group)
        if thinks and not way.reasoning:
            break
    return sum(hit for _canary, hit in attempts.hits) / max(1, len(attempts.hits)), thinks
