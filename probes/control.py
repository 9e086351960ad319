"""The same lengths on a control server, whose model surely fits: what it loses with length is the ordinary price, what is lost beyond is not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import ClassVar
from urllib.parse import urlsplit

from probes.attempt import Asking, Attempts
from probes.backends.base import Backend
from probes.backends.http import Http, normalise_url
from probes.backends.recognise import recognise
from probes.backends.settings_files import with_files
from probes.base import Cost, Probe, ProbeContext
from probes.counting import counter_for, within
from probes.evidence.control import ControlRun, SpeedAt
from probes.evidence.errors import CtxDoctorError, NotOfferedError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.rungs import RungResult
from probes.evidence.subject import Setting
from probes.ladder.rungs import RungText, build_ladder
from probes.ladder.text import Counter
from probes.ladder.trend import compare_slopes
from probes.process import process_behind

GENERATE = 32
MOST_LENGTHS = 4
FIRST_ATTEMPT = 40
"""Attempts that this probe asks of the server under test are numbered from here on, apart from all others."""

Connect = Callable[[], AbstractContextManager[tuple[Backend, Counter]]]
"""Opens the control server: its backend, and how its tokens are counted."""


def split_model(url: str) -> tuple[str, str | None]:
    """Split ``URL#MODEL``: another model on the same (or another) server is a control too."""
    address, _, model = url.partition("#")
    return address, model or None


@contextlib.contextmanager
def control_at(url: str, api_key: str | None = None, tokenizer: str | None = None) -> Iterator[tuple[Backend, Counter]]:
    """Open the control at an address. CouldNotLookError where nothing answers there, or its tokens cannot be counted."""
    address, model = split_model(url)
    with Http(address, api_key) as http:
        backend = recognise(http, None, model=model)
        counter = counter_for(backend, tokenizer)
        if counter is None:
            raise NotOfferedError(
                "the control server cannot count tokens; use a llama.cpp, vLLM or SGLang server as control"
            )
        yield backend, counter


def cache_types(backend: Backend) -> tuple[str | None, str | None]:
    """Give the types of the K and V cache that a server on this machine was told; None where none was, or none can be read."""
    try:
        return types_in(with_files(process_behind(backend.http.base_url), backend.name).settings)
    except CtxDoctorError:
        return None, None


def types_in(settings: Mapping[str, Setting]) -> tuple[str | None, str | None]:
    """Give the types of the K and V cache among settings; None where none is set."""
    told = [settings.get(name) for name in ("kv_type_k", "kv_type_v")]
    kinds = [one.value.lower() if one is not None and isinstance(one.value, str) else None for one in told]
    return kinds[0], kinds[1]


def same_origin(one: str, two: str) -> bool:
    """Say whether two addresses are the same server: a key is sent to no other. Addresses as people type them."""

    def origin(url: str) -> tuple[str, str | None, int | None]:
        parts = urlsplit(normalise_url(split_model(url)[0]))
        host = parts.hostname or ""
        return parts.scheme, "127.0.0.1" if host == "localhost" else host, parts.port

    try:
        return origin(one) == origin(two)
    except (ValueError, CtxDoctorError):
        return False


def cold_speeds(rungs: Sequence[RungResult]) -> tuple[SpeedAt, ...]:
    """Give the median speeds of all cold attempts, by length, shortest first."""
    by_length: dict[int, list[RungResult]] = {}
    for one in rungs:
        if one.cold is not False and one.error_kind is None and one.input_tokens and one.prefill_tps:
            by_length.setdefault(one.rung or one.input_tokens, []).append(one)
    found_speeds = []
    for _rung, attempts in sorted(by_length.items()):
        found_speeds.append(
            SpeedAt(
                tokens=attempts[-1].input_tokens,
                prefill_tps=_median([one.prefill_tps for one in attempts]),
                generation_tps=_median([one.generation_tps for one in attempts]),
            )
        )
    return tuple(found_speeds)


def _median(values: Sequence[float | None]) -> float | None:
    ranked = sorted(value for value in values if value)
    return ranked[len(ranked) // 2] if ranked else None


def slopes(own: Sequence[SpeedAt], control: Sequence[SpeedAt], name: str) -> tuple[float | None, float | None]:
    """Give both slopes of one speed, own first; None for both where either has fewer than two lengths."""

    def points(speeds: Sequence[SpeedAt]) -> list[tuple[float, float]]:
        return [(float(one.tokens), float(getattr(one, name))) for one in speeds if getattr(one, name)]

    compared = compare_slopes(points(own), points(control))
    return (None, None) if compared is None else (compared.own, compared.control)


class ControlProbe(Probe):
    """Measures the lengths at which the server under test was measured cold on the control; own lengths first where they are missing."""

    id: ClassVar[str] = "control"
    gives: ClassVar[tuple[str, ...]] = (ControlRun.kind, RungResult.kind)

    def __init__(
        self,
        connect: Connect,
        own: Sequence[RungResult],
        texts: Sequence[RungText] = (),
        *,
        same_server: bool = False,
        generate: int = GENERATE,
    ) -> None:
        self.connect = connect
        self.own = list(own)
        self.texts = tuple(texts)
        self.same_server = same_server
        self.generate = generate
        self.reading: ControlRun | None = None

    def _missing(self) -> tuple[RungText, ...]:
        """Give the texts that the server under test still has to be asked, so that it has two lengths."""
        if len(cold_speeds(self.own)) >= 2 or not self.texts:
            return ()
        return (self.texts[0], self.texts[-1]) if len(self.texts) > 1 else self.texts

    def _lengths(self) -> list[int]:
        known = sorted({one.rung or one.input_tokens for one in self.own if one.cold is not False and one.prefill_tps})
        if len(known) <= MOST_LENGTHS:
            return known
        step = (len(known) - 1) / (MOST_LENGTHS - 1)
        return [known[round(number * step)] for number in range(MOST_LENGTHS)]

    def cost(self, context: ProbeContext) -> Cost:
        """One cold request a length on the control, and what is missing on the server under test."""
        own = [text.tokens for text in self._missing()]
        lengths = self._lengths() or own
        tokens = sum(lengths) + sum(own)
        speed = context.prefill_tps or 500.0
        count = len(lengths) + len(own)
        return Cost(count, tokens, count * self.generate, tokens / speed + 2 * count)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield one comparison, and before it the rungs that were missing. What goes wrong at the control says nothing about the server under test."""
        own = Attempts(context, Asking(style="completion", measure_tokens=self.generate))
        for number, text in enumerate(self._missing()):
            yield from own.measure(text, FIRST_ATTEMPT + number, canaries=text.canaries[:1], scored=False)
            if own.result is None or own.result.result != "passed":
                break
            self.own.append(own.result)
        lengths = self._lengths()
        if len(lengths) < 2:
            why = "the server under test was measured at fewer than two lengths"
            yield not_found(ControlRun, "failed", why, run=context.run, origin="control")
            return
        try:
            with self.connect() as (backend, counter):
                measured, why = self._measure(context, backend, within(counter, context.ends_at), lengths)
                model = backend.model_identity().name
                name = backend.name
        except CtxDoctorError as failure:
            yield not_found(ControlRun, "failed", f"the control server: {failure}", run=context.run, origin="control")
            return
        if len(measured) < 2:
            why = f"the control server: {why or 'fewer than two lengths passed'}"
            yield not_found(ControlRun, "failed", why, run=context.run, origin="control")
            return
        mine, other = cold_speeds(self.own), cold_speeds(measured)
        prefill, generation = slopes(mine, other, "prefill_tps"), slopes(mine, other, "generation_tps")
        self.reading = ControlRun(
            model=model,
            server=name,
            same_server=self.same_server,
            own=mine,
            control=other,
            own_prefill_slope=prefill[0],
            control_prefill_slope=prefill[1],
            own_generation_slope=generation[0],
            control_generation_slope=generation[1],
        )
        yield found(self.reading, source="measured", run=context.run, origin="control")

    def _measure(
        self, context: ProbeContext, backend: Backend, counter: Counter, lengths: Sequence[int]
    ) -> tuple[list[RungResult], str]:
        """Ask the control. Its rungs are no evidence about the server under test, so only the comparison is kept."""
        window = backend.window().in_force
        usable = [length for length in lengths if window is None or length + self.generate <= window]
        if len(usable) < 2:
            return [], f"its window of {window} tokens holds fewer than two of the lengths"
        texts = build_ladder(usable, counter, seed=context.seed + 32_452_843, reserve=64).rungs
        beside = ProbeContext(
            backend=backend,
            counter=counter,
            progress=context.progress,
            sent=context.sent,
            run=context.run,
            seed=context.seed,
            ends_at=context.ends_at,
        )
        results: list[RungResult] = []
        for style in ("completion", "question"):
            attempts = Attempts(beside, Asking(style=style, measure_tokens=self.generate))
            for number, text in enumerate(texts):
                if context.time_left() <= 0:
                    return results, "the budget was used up"
                context.progress.report("control", number / len(texts), f"{text.tokens} tokens on the control server")
                for _evidence in attempts.measure(text, number + 1, canaries=text.canaries[:1], scored=False):
                    pass
                result = attempts.result
                if result is None or result.result != "passed":
                    why = result.error if result is not None and result.error else "a length did not pass"
                    if (
                        not results
                        and style == "completion"
                        and result is not None
                        and result.error_kind == "not-supported"
                    ):
                        break
                    return results, why
                results.append(result)
            if results:
                return results, ""
        return results, "it offers neither completions nor chat"
