"""A real llama.cpp behind a proxy that lies: what is inconsistent is said, no window is claimed that was not read, and no wrong cause is named.

The one lie that no count and no clock can show is a cut whose counts are made to fit: there the facts planted in the text are what is missing, and
recall decides (tests/probes/test_walk_made_up.py). Here the model has random weights, so a length passes where it was read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from diagnose import look
from probes.attempt import Asking
from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.records import Evidence, EvidenceSet
from probes.evidence.request import TruncationReading
from probes.evidence.rungs import Criteria, LadderPlan, RungResult
from probes.ladder.rungs import build_ladder
from probes.ladder.text import Counter
from probes.ladder_walk import LadderProbe
from probes.truncation import TruncationProbe
from rules.catalogue import judge_evidence
from tests.tiny_model import make_model, serving

from .hostile_proxy import (
    Buffering,
    Caching,
    Counts,
    Cutting,
    HostileProxy,
    Html,
    Latency,
    Lie,
    NoTimings,
    OtherName,
    OtherProps,
    SlowTimes,
)

pytestmark = [pytest.mark.real_server]
WINDOW = 2048
RUNGS = (768, 1536)
REPEATS = 2
BYTES = Counter(
    count=lambda text: len(text.encode()),
    tokenize=lambda text: list(text.encode()),
    detokenize=lambda ids: bytes(ids).decode(),
    name="the model's own",
)
"""One token a byte, as the model's tokenizer has it: it is not asked over and over."""


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    """The embedded server on a free loopback port; that process only is ended."""
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("llama")
    # large enough for a prompt to take long enough to be timed
    model = make_model(folder / "tiny.gguf", trained=16_384, layers=2, heads=8)
    with serving(folder, model, "-c", str(WINDOW), "-np", "1") as url:
        yield url


@dataclass
class Walked:
    """What a session that looks, tries the window from above and climbs the ladder has found."""

    backend: str
    evidence: list[Evidence]
    truncation: TruncationReading
    rungs: list[RungResult]
    verified: int | None
    named: tuple[str, ...]
    doubt: str
    conflicts: set[str]


def walk(url: str, *, window: int | None = None, attempts: int = REPEATS) -> Walked:
    with Http(url) as http:
        backend = recognise(http)
        counter = BYTES if backend.name == "llama.cpp" else counter_for(backend)
        context = ProbeContext(backend=backend, counter=counter, seed=3, ends_at=time.monotonic() + 60)
        evidence: list[Evidence] = list(look.at_server(backend, 1))
        told = window or backend.window().in_force
        probe = TruncationProbe(told)
        evidence += probe.collect(context)
        texts = build_ladder(RUNGS, context.counter, seed=3, reserve=360)
        criteria = Criteria(repeats=attempts)

        def passes(results: Any) -> bool:
            return all(one.result == "passed" for one in results)

        plan = LadderPlan(rungs=RUNGS, output_tokens=16, seed=3)
        ladder = LadderProbe(
            plan, texts, Asking(style="question", several=True, measure_tokens=16), criteria, passes, window=told
        )
        evidence += ladder.collect(context)
    judgement, facts = judge_evidence(EvidenceSet(evidence))
    assert ladder.found is not None
    return Walked(
        backend.name,
        evidence,
        probe.reading or TruncationReading(verdict="unknown"),
        ladder.results,
        ladder.found.length if ladder.found.verified else None,
        tuple(judgement.named),
        context.doubt,
        {conflict.fact.id for conflict in facts.conflicts},
    )


@pytest.mark.parametrize(
    "lie",
    [Lie(), NoTimings(), OtherName(), Buffering(), Caching(), Latency(0.15)],
    ids=["honest", "no-times", "other-name", "buffering", "caching", "slow"],
)
def test_what_only_hides_or_delays_changes_no_claim(behind, lie):
    """Counts are right and every cold prompt is read: the longest rung is verified, and nothing is named."""
    with HostileProxy(behind, lie) as proxy:
        walked = walk(proxy.url)
    assert walked.backend == "llama.cpp"
    assert (walked.truncation.verdict, walked.truncation.window) == ("refused", WINDOW)
    assert walked.verified == RUNGS[-1]
    assert walked.named == ()
    assert walked.doubt == ""
    cold = [one for one in walked.rungs if one.rung == RUNGS[-1] and not one.cache_asked]
    assert len(cold) >= REPEATS
    assert all((one.cached_tokens or 0) <= 16 for one in cold)
    if isinstance(lie, Caching):
        assert lie.served == 0


@pytest.mark.parametrize(
    "rewrite",
    [lambda n: n // 2, lambda n: 3 * n, lambda _n: 100, lambda _n: 7],
    ids=["half", "three-times", "constant", "seven"],
)
def test_counts_that_are_rewritten_prove_no_window(behind, rewrite):
    """(a) Nothing is verified, no truncation is named, and it is said that the counts cannot be believed."""
    with HostileProxy(behind, Counts(rewrite)) as proxy:
        walked = walk(proxy.url)
    assert walked.verified is None
    assert walked.named == ()
    assert "cannot be believed" in walked.doubt
    assert {one.error_kind for one in walked.rungs} == {"bad-answer"}
    assert walked.truncation.verdict != "truncated"


@pytest.mark.parametrize("lie", [Caching(("seed",)), SlowTimes()], ids=["caches-whatever-the-seed", "times-of-another"])
def test_answers_that_are_not_this_requests_are_none(behind, lie):
    """(b, c) An answer that comes sooner than the server worked on it is somebody else's: no length is verified by it."""
    with HostileProxy(behind, lie) as proxy:
        walked = walk(proxy.url, attempts=3)
    assert walked.verified is None
    assert walked.named == ()
    assert "proxy" in walked.doubt
    replayed = [one for one in walked.rungs if one.error_kind == "bad-answer"]
    assert replayed
    assert all("not the server's own" in one.error for one in replayed)


def test_web_pages_for_unknown_paths_leave_the_protocol(behind):
    """(d) HTTP 200 with HTML is no answer: what is left is a server of the OpenAI protocol, measured by its usage counter."""
    with HostileProxy(behind, Html()) as proxy:
        with Http(proxy.url) as http:
            assert recognise(http).name == "openai-compatible"
            assert http.requests_sent <= MOST_GETS
        walked = walk(proxy.url)
    assert walked.backend == "openai-compatible"
    assert walked.truncation.verdict in {"refused", "unknown"}
    assert walked.named == ()
    assert all(one.input_tokens < WINDOW for one in walked.rungs if one.result == "passed")
    cold = [one for one in walked.rungs if one.cold]
    assert cold
    assert all(one.cached_tokens <= 64 for one in cold)


def test_a_stream_that_is_kept_back_tells_no_speed_by_our_clock(behind):
    """(f) The first token comes with the last: our clock does not divide by nothing, and the server's own clock is used."""

    class Both(NoTimings):
        keeps_back = True

    with Http(behind) as http:
        # random weights may end at once, or write bytes that are no text
        asks = (Ask(prompt=letter * 600, max_tokens=24) for letter in "xabcdefghijklmn")
        ask = next(one for one in asks if recognise(http).complete(one).at_once is False)
    told = {}
    for name, lie in {"kept back": Buffering(), "no times, too": Both(), "no times": NoTimings()}.items():
        with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
            told[name] = recognise(http).complete(ask)
    assert told["kept back"].at_once is True
    assert told["kept back"].generation_tps == pytest.approx(
        (told["kept back"].generated_tokens - 1) / told["kept back"].server_generation_s
    )
    both = told["no times, too"]
    assert both.at_once is True
    assert (both.server_prompt_s, both.prefill_tps, both.generation_tps) == (None, None, None)
    assert told["no times"].at_once is False


def test_a_silent_cut_is_seen_and_is_not_the_servers_window(behind):
    """(g) Nothing longer than what gets through is claimed; that a prompt within the window is cut, too, is said, and no known rule is blamed."""
    with HostileProxy(behind, Cutting(1000)) as proxy:
        walked = walk(proxy.url)
    assert walked.truncation.verdict == "truncated"
    assert walked.truncation.rule == "unknown-cut"
    assert walked.truncation.below_processed == 1000 < walked.truncation.below_sent < WINDOW
    assert walked.verified is None or walked.verified <= 1000
    assert all(one.error_kind == "truncated" for one in walked.rungs if one.rung > 1100)
    assert walked.named == ()


@pytest.mark.parametrize("window", [32_768, 1024])
def test_another_servers_window_is_contradicted_by_the_refusal(behind, window):
    """(h) A larger window that is told is not believed once a shorter one refuses; a smaller one costs nothing but the claim above it."""
    with HostileProxy(behind, OtherProps(window)) as proxy:
        walked = walk(proxy.url)
    if window > WINDOW:
        assert (walked.truncation.verdict, walked.truncation.window) == ("refused", WINDOW)
        assert "window.in_force" in walked.conflicts
        assert walked.verified == RUNGS[-1] < WINDOW
    else:
        assert walked.truncation.verdict == "none"
        assert walked.truncation.processed > window
    assert walked.named == ()


def test_a_slow_proxy_is_recognised_all_the_same(behind):
    """(i) Answers that come late are waited for, each for as long as it takes; a server that is silent is not."""
    with HostileProxy(behind, Latency(0.45)) as proxy, Http(proxy.url) as http:
        begun = time.monotonic()
        assert recognise(http).name == "llama.cpp"
        assert http.requests_sent <= MOST_GETS
        assert time.monotonic() - begun < 10


def test_a_cut_whose_counts_are_made_to_fit_is_at_least_not_contradicted(behind):
    """(g, a) No count shows it; what is said is what the counts say, and recall has to tell. The prompt was never read whole."""
    lie = Cutting(1000, hides=True)
    with HostileProxy(behind, lie) as proxy:
        walked = walk(proxy.url)
    assert walked.truncation.verdict == "none"
    assert walked.named == ()
