"""The window in force is proved by the probe itself: HTTP 200 with fewer tokens counted than sent, above the window, and all of them below it."""

from __future__ import annotations

import time

import pytest

from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.request import TruncationReading
from probes.ladder.text import Counter, weigh
from probes.truncation import TruncationProbe

from .cutting import Cutting, blocks, front, half, tail, words_of

WINDOW = 1024
WORDS = Counter(count=lambda text: len(words_of(text)), name="the model's own")


def probed(server, *, window=None, counter=None, afford=10**9, left=3600.0) -> TruncationReading:
    with Http(server.url) as http:
        backend = recognise(http)
        counter = counter or counter_for(backend) or WORDS
        context = ProbeContext(backend=backend, counter=counter, ends_at=time.monotonic() + left)
        probe = TruncationProbe(window or backend.window().in_force, afford=afford)
        evidence = [piece.payload() for piece in probe.collect(context) if piece.data is not None]
    return next(one for one in evidence if isinstance(one, TruncationReading))


@pytest.mark.parametrize(
    ("name", "law", "rule"),
    [
        ("ollama-0.33.0", half(WINDOW), "half-window"),
        ("koboldcpp-1.102", front(WINDOW), "head-cut"),
        ("sglang-0.5.23", tail(WINDOW), "tail-cut"),
        ("lm-studio-0.4", front(WINDOW), "window-cut"),
        ("ik_llama.cpp-8337e4cd", blocks(WINDOW), "half-window"),
    ],
)
def test_each_known_rule_is_seen_above_the_window_and_not_below_it(name, law, rule):
    """Above: an answer, no error, fewer tokens counted, and the rule of that server. Just below: every token was processed."""
    with Cutting(name, WINDOW, law) as server:
        counter = WORDS if name.startswith(("ollama", "lm-studio")) else None
        reading = probed(server, counter=counter)
    assert (reading.verdict, reading.rule, reading.window) == ("truncated", rule, WINDOW)
    assert reading.sent > WINDOW
    assert reading.processed <= WINDOW
    assert WINDOW > reading.below_sent >= 0.9 * WINDOW
    assert abs(reading.below_processed - reading.below_sent) <= 8
    above, below = server.processed[-2:]
    assert above[0] > WINDOW >= above[1]
    assert below[0] == below[1]


@pytest.mark.parametrize(("kept", "rule"), [(4096, "default-window"), (2050, "half-window")])
def test_a_window_in_a_request_that_is_ignored(kept, rule):
    """Ollama's OpenAI endpoint behind a proxy: the client asks for 16,384 tokens, the default of 4,096 holds, and every prompt is cut to it."""
    with Cutting("openai-compatible-proxy", 0, lambda sent, _output: sent if sent < 4096 else kept) as server:
        reading = probed(server, window=16_384, counter=WORDS)
    assert (reading.verdict, reading.rule, reading.processed) == ("truncated", rule, kept)
    assert reading.below_processed == kept


def test_ollama_that_took_another_window_than_was_asked_for():
    """The loaded window is what counts: asked for 16,384 in a request that was ignored, 4,096 were processed."""
    with Cutting("ollama-0.33.0", 4096, half(4096)) as server:
        reading = probed(server, window=16_384, counter=WORDS)
        assert reading.rule == "half-window"
        assert probed(server, counter=WORDS).below_processed > 3900
        assert all(body["options"]["num_ctx"] == 4096 for body in server.bodies("/api/generate"))


def test_a_server_that_cuts_nothing_is_not_asked_twice():
    """All tokens counted above the window: no window is enforced, one request says so."""
    with Cutting("koboldcpp-1.102", WINDOW, lambda sent, _output: sent) as server:
        reading = probed(server)
        assert len(server.processed) == 1
    assert (reading.verdict, reading.rule, reading.below_sent) == ("none", None, None)


@pytest.mark.parametrize("counts", [lambda _sent, _out: 100, lambda _sent, _out: 7, lambda sent, _out: sent // 3])
def test_counts_that_do_not_follow_the_prompt_prove_nothing(counts):
    """A count that is the same whatever is sent, or a share of it, is no count: a cut is not claimed from it."""
    with Cutting("openai-compatible-proxy", 0, counts) as server:
        reading = probed(server, window=WINDOW, counter=WORDS)
        assert len(server.processed) == 3
    assert reading.verdict == "unknown"
    assert reading.rule is None
    assert "cannot be believed" in reading.message


def test_counts_above_what_was_sent_prove_nothing():
    """More than was sent is no proof that all was processed."""
    with Cutting("openai-compatible-proxy", 0, lambda sent, _out: sent) as server:
        server.law = lambda sent, _out: 10 * sent
        server._kept = lambda text, output: 10 * len(words_of(text))
        reading = probed(server, window=WINDOW, counter=WORDS)
    assert reading.verdict == "unknown"
    assert "cannot be believed" in reading.message


def test_the_budget_is_kept():
    """What would cost more than may be spent is not sent, and its price is said; a short look at the counts is always affordable."""
    with Cutting("koboldcpp-1.102", WINDOW, front(WINDOW)) as server:
        assert probed(server, afford=100).would_cost_tokens > WINDOW
        assert server.processed == []
        reading = probed(server, afford=1300, left=0.0)
        assert reading.verdict == "truncated"
        assert reading.below_sent is None
        assert sum(sent for sent, _kept in server.processed) < 1300 + 700
        # where the server is quick, a look below the window costs next to nothing of the time that is left
        assert probed(server, afford=1300).below_sent is not None


def test_a_calibrated_counter_keeps_its_distance():
    """Where tokens are only estimated, the prompt below the window stays below it all the same, and a cut is seen."""
    with Cutting("lm-studio-0.4", WINDOW, front(WINDOW)) as server:
        server.count = lambda text: round(1.1 * weigh(text)) + 12
        reading = probed(server)
    assert reading.verdict == "truncated"
    above, below = server.processed[-2:]
    assert above[0] > WINDOW > below[0] >= 0.9 * WINDOW
    assert below[0] == below[1]


def test_an_estimate_that_is_far_off_proves_nothing():
    """A tokenizer unlike any other makes the estimate wrong by a quarter: no cut is claimed from it, and --tokenizer is asked for."""
    with Cutting("lm-studio-0.4", WINDOW, front(WINDOW)) as server:
        reading = probed(server)
    assert reading.verdict == "unknown"
    assert "--tokenizer" in reading.message


@pytest.mark.real_server
def test_ollamas_half_window_really_processed(tmp_path):
    """The stand-in's child really processes what is left: half of the window above it, the whole prompt below."""
    from tests.tiny_model import make_model

    from . import test_ollama_child as ollama

    process, url = ollama.start(tmp_path, make_model(tmp_path / "tiny.gguf"))
    try:
        with Http(url) as http:
            backend = recognise(http)
            context = ProbeContext(backend=backend, counter=counter_for(backend))
            probe = TruncationProbe(backend.window().in_force)
            list(probe.collect(context))
    finally:
        ollama.end(process)
    reading = probe.reading
    assert (reading.verdict, reading.rule, reading.processed) == ("truncated", "half-window", ollama.WINDOW // 2)
    assert reading.below_sent > 0.9 * ollama.WINDOW
    assert abs(reading.below_processed - reading.below_sent) <= 16
