"""A gateway before a real llama.cpp: bad answers that pass, texts that it takes only up to a size, time that it eats. None of it is the server's limit."""

from __future__ import annotations

import itertools
import json
import math
import time
from typing import Any

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http, StreamPiece
from probes.backends.llamacpp import _Reading, type_error
from probes.backends.recognise import recognise
from probes.backends.refusals import type_refusal
from probes.base import GATEWAY_PAUSES_S, ProbeContext
from probes.counting import LITTLE_S, ServerCounter, counter_for
from probes.evidence.errors import BudgetEndedError, ServerDiedError
from probes.ladder.rungs import build_ladder
from tests.faults.session import of_kind, run
from tests.tiny_model import make_model, serving

from .hostile_proxy import HostileProxy, Lie

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(240)]
PAGE = b"<html><head><title>%d</title></head><body><center><h1>Bad Gateway</h1></center><hr>nginx</body></html>"
LIMIT = 9000


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    pytest.importorskip("xllamacpp")
    folder = tmp_path_factory.mktemp("llama")
    model = make_model(folder / "tiny.gguf", trained=16_384)
    with serving(folder, model, "-c", "4096", "-np", "1") as url:
        yield url


def page(status: int) -> tuple[int, str, bytes]:
    return status, "text/html", PAGE % status


class SometimesBad(Lie):
    """A web page with this status for the first requests of a path, or for every so many of them."""

    def __init__(self, status: int, path: str, *, first: int = 0, every: int = 0) -> None:
        self.status, self.path, self.first, self.every = status, path, first, every
        self.number = itertools.count(1)
        self.bad = 0

    def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
        del body
        if method != "POST" or not path.endswith(self.path):
            return None
        number = next(self.number)
        if number <= self.first or (self.every and number % self.every == 0):
            self.bad += 1
            return page(self.status)
        return None


class TooLarge(Lie):
    """Texts to be counted are taken up to a size: above it a web page with 413, or the connection is cut."""

    def __init__(self, *, cuts: bool) -> None:
        self.cuts = cuts
        self.refused = 0

    def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
        if method != "POST" or not path.endswith("tokenize") or len(str(body)) <= LIMIT:
            return None
        self.refused += 1
        if self.cuts:
            raise ConnectionResetError
        return page(413)


class SlowPosts(Lie):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def instead(self, method: str, path: str, body: Any) -> None:
        del path, body
        if method == "POST":
            time.sleep(self.seconds)


def test_one_bad_answer_to_a_count_is_asked_for_again(behind):
    """Law: a gateway's page in place of a count, now and then, changes no count and ends nothing."""
    lie = SometimesBad(502, "/tokenize", every=3)
    with Http(behind) as http:
        plain = counter_for(recognise(http))
        wanted = build_ladder((512, 2048), plain, seed=3)
    with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
        counter = counter_for(recognise(http))
        assert build_ladder((512, 2048), counter, seed=3).rungs == wanted.rungs
    assert lie.bad >= 1
    assert counter.name == "server"


def test_no_more_is_sent_where_nothing_is_bad(behind):
    """Law: the care costs nothing: the same requests as by asking the backend itself."""
    with HostileProxy(behind, Lie()) as proxy, Http(proxy.url) as http:
        backend = recognise(http)
        proxy.reached.clear()
        counter = counter_for(backend)
        counter.ids("some text")
        counter.count("some text")
    assert [path for method, path in proxy.reached if method == "POST"] == [
        "/tokenize",
        "/tokenize",
        "/detokenize",
        "/tokenize",
        "/tokenize",
    ]


@pytest.mark.parametrize("cuts", [False, True], ids=["413", "cut"])
def test_a_text_that_is_too_long_to_be_counted_is_estimated_by_its_parts(behind, cuts):
    """Law: what a gateway does not let through for its size is counted by its parts; the name says so, and the size is not tried over and over."""
    lie = TooLarge(cuts=cuts)
    with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
        counter = counter_for(recognise(http))
        texts = build_ladder((2048, 16_384), counter, seed=3).rungs
    # one token a byte: the truth is known
    for text in texts:
        assert abs(len(text.text.encode()) - text.tokens) < 0.05 * text.tokens
    assert counter.name.startswith("calibration by the server's counts")
    assert 1 <= lie.refused <= 12


def test_a_session_behind_such_a_gateway_measures_and_says_who_counted(behind, tmp_path):
    """Law: neither ends the session, and its document says that tokens were estimated."""
    with HostileProxy(behind, TooLarge(cuts=False)) as proxy:
        document, done = run(proxy.url, folder=tmp_path, budget="60s")
    assert done.returncode != 3, done.stderr
    assert any(one["result"] == "passed" for one in document["rungs"])
    names = [one["tokenizer"] for one in of_kind(document, "ladder_plan")]
    assert names[0] == "server"
    assert names[-1].startswith("calibration by the server's counts")


def test_a_gateway_in_place_of_the_server_proves_no_limit(behind):
    """Law: one page with 502 is asked again and passes; what comes after it costs nothing more."""
    lie = SometimesBad(502, "completion", first=1)
    with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
        context = ProbeContext(backend=recognise(http), counter=counter_for(recognise(http)))
        told = context.complete(Ask(prompt="one two three", max_tokens=2))
        assert told.error is None
        assert context.sent.requests == 2
        context.complete(Ask(prompt="one two three four", max_tokens=2))
        assert context.sent.requests == 3


def test_a_gateway_that_stays_is_what_it_was_within_three_seconds(behind):
    """Law: the error stays a lost connection; a server that is really dead costs the pauses once, and then nearly nothing."""
    lie = SometimesBad(502, "completion", every=1)
    with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
        context = ProbeContext(backend=recognise(http), counter=counter_for(recognise(http)))
        begun = time.monotonic()
        told = context.complete(Ask(prompt="one two three", max_tokens=2))
        took = time.monotonic() - begun
        assert told.error is not None
        assert told.error.error == "connection-lost"
        assert sum(GATEWAY_PAUSES_S) <= took < sum(GATEWAY_PAUSES_S) + 1.5
        before = lie.bad
        context.complete(Ask(prompt="one two three four", max_tokens=2))
        assert lie.bad == before + 2


def test_the_servers_own_error_is_not_asked_again(behind):
    """Law: a server's own JSON error with the status of a gateway is its answer."""

    class Own(Lie):
        asked = 0

        def instead(self, method: str, path: str, body: Any) -> tuple[int, str, bytes] | None:
            del method, body
            if not path.endswith("completion"):
                return None
            self.asked += 1
            return (
                502,
                "application/json",
                b'{"error": {"code": 502, "message": "compute failed", "type": "server_error"}}',
            )

    lie = Own()
    with HostileProxy(behind, lie) as proxy, Http(proxy.url) as http:
        context = ProbeContext(backend=recognise(http), counter=counter_for(recognise(http)))
        assert context.complete(Ask(prompt="one", max_tokens=2)).error is not None
    assert lie.asked == 1


def test_no_count_is_asked_for_after_the_end(behind):
    """Law: a counter with an end asks nothing after it, and what is under way then is waited for a little only."""
    with HostileProxy(behind, SlowPosts(0.4)) as proxy, Http(proxy.url) as http:
        backend = recognise(http)
        counter = counter_for(backend, ends_at=time.monotonic() + 3)
        begun = time.monotonic()
        with pytest.raises(BudgetEndedError):
            build_ladder([256 + 64 * number for number in range(16)], counter, seed=3)
        assert time.monotonic() - begun < 3
        proxy.reached.clear()
        with pytest.raises(BudgetEndedError):
            counter.count("more")
        assert not proxy.reached
        slow = ServerCounter(backend, time.monotonic() + 0.1)
        proxy.lie = SlowPosts(8)
        begun = time.monotonic()
        with pytest.raises(BudgetEndedError):
            slow.count("some text")
        assert time.monotonic() - begun < LITTLE_S + 1


def test_a_budget_is_kept_where_each_request_takes_long(behind, tmp_path):
    """Law: a session ends with its budget, little more, and says that the budget ended."""
    with HostileProxy(behind, SlowPosts(6)) as proxy:
        begun = time.monotonic()
        document, done = run(proxy.url, folder=tmp_path, budget="20s")
        took = time.monotonic() - begun
    assert took < 20 + 15 + 10, done.stderr
    assert done.returncode != 3, done.stderr
    told = [one["unavailable"]["note"] for one in document["evidence"] if one["unavailable"]]
    assert any("the budget was used up" in note for note in told), told


def test_an_answer_that_never_ends_is_said_to_be_that(behind, tmp_path):
    """Law: where an answer began and did not end until the budget was over, that is said, and not that the server is slow."""

    class Endless(Lie):
        never_ends = True

    with HostileProxy(behind, Endless()) as proxy:
        begun = time.monotonic()
        document, done = run(proxy.url, folder=tmp_path, budget="6s")
        took = time.monotonic() - begun
    assert took < 6 + 15 + 12, done.stderr
    notes = " ".join(document["notes"])
    assert "did not end" in notes
    assert "this server is slow" not in notes


def test_failures_that_are_no_passing_ones_are_told_at_once():
    """Law: a connection that is cut each time ends the asking after its pauses, with the failure itself."""

    class Gone:
        calls = 0

        def count_tokens(self, text: str) -> int:
            del text
            self.calls += 1
            raise ServerDiedError("the server broke the connection")

    gone = Gone()
    counter = ServerCounter(gone, math.inf)  # type: ignore[arg-type]
    with pytest.raises(ServerDiedError):
        counter.count("short")
    assert gone.calls <= 6


def test_a_stream_that_tells_each_batch_is_no_liar(tmp_path):
    """Law: a server that tells its progress after each few tokens of the prompt is read to its end."""
    model = make_model(tmp_path / "tiny.gguf", trained=8192)
    seen: list[int] = []
    with serving(tmp_path, model, "-c", "4096", "-np", "1", "-ub", "8", "-b", "8") as url, Http(url) as http:
        backend = recognise(http)
        for ask in (
            Ask(prompt="abcd efg " * 400, max_tokens=4, on_progress=lambda done, _all: seen.append(done)),
            Ask(messages=({"role": "user", "content": "abcd efg " * 400},), max_tokens=4),
        ):
            told = backend.complete(ask)
            assert told.error is None
            assert (told.prompt_tokens or 0) >= 3600
    assert len(seen) > 4 * 4 + 256


@pytest.mark.parametrize("event", [{"content": "", "prompt_progress": {"processed": 1, "total": 9}}, {"choices": []}])
def test_a_stream_that_goes_on_without_a_text_has_an_end(event):
    """Law: events that tell of progress, or of nothing, come at most about once for each token of a prompt; then the stream is cut off."""
    reading = _Reading(Ask(prompt="word " * 1000, max_tokens=4))
    number = next(n for n in range(100_000) if reading.piece(StreamPiece(0.1, json.dumps(event))))
    assert 5000 <= number < 20_000
    assert reading.error is not None
    assert reading.error.error == "bad-answer"


def test_only_what_stands_before_a_server_is_a_gateway():
    """Law: a page or a bare text with the status of a gateway is one's; a server's own error object is the server's, whatever its status."""
    for status in (502, 503, 504, 522):
        for body in ("<html>Bad Gateway</html>", "upstream connect error", {"message": "no healthy upstream"}):
            assert type_refusal(status, body).gateway, (status, body)
            assert type_error(status, body).gateway, (status, body)
        for body in ({"error": {"message": "compute failed"}}, {"error": "x"}, {"detail": "x"}):
            assert not type_refusal(status, body).gateway
            assert not type_error(status, body).gateway
    assert not type_refusal(500, "<html>Internal Server Error</html>").gateway
    # what is kept of a case is as it was
    assert "gateway" not in type_refusal(502, "Bad Gateway").model_dump(mode="json")
