"""Two real llama.cpp servers with one tiny random model, under two cache types: control run, next tokens and chains as the server gives them."""

import pytest

from probes.attempt import Asking, Attempts
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.base import ProbeContext
from probes.cache_reuse import CacheReuseProbe
from probes.control import ControlProbe, control_at
from probes.counting import counter_for
from probes.damage import POSITIONS, DamageProbe
from probes.evidence.control import ControlRun
from probes.evidence.damage import NextTokens
from probes.evidence.errors import CtxDoctorError
from probes.ladder.rungs import build_ladder
from probes.launch import Server, address_of
from probes.soak import SoakProbe
from tests.tiny_model import make_model, server_command

pytestmark = [pytest.mark.real_server, pytest.mark.timeout(200)]


def answers(url):
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status == 200
    except CtxDoctorError:
        return False


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    model = make_model(folder / "tiny.gguf", trained=8192)
    fine = Server(server_command(model, "-c", "4096", "-np", "1"), log_path=folder / "fine.log")
    coarse = Server(
        server_command(model, "-c", "4096", "-np", "1", "-fa", "on", "-ctk", "q4_0", "-ctv", "q4_0"),
        log_path=folder / "coarse.log",
    )
    with fine, coarse:
        for one in (fine, coarse):
            one.start()
        for one in (fine, coarse):
            launch = one.wait_healthy(lambda pid: address_of(pid, answers), 60)
            assert launch.healthy, one.log_path.read_text()
        yield fine.url, coarse.url


@pytest.fixture
def contexts(servers):
    with Http(servers[0]) as first, Http(servers[1]) as second:
        yield tuple(
            ProbeContext(backend=one, counter=counter_for(one)) for one in (recognise(first), recognise(second))
        )


def test_the_next_tokens_of_two_cache_types_are_compared(contexts):
    """Law: the same cache repeats its distributions; another type's differ, and by how much is a number."""
    fine, coarse = contexts
    first = DamageProbe(1024, style="completion", types=(None, None))
    list(first.collect(fine))
    assert len(first.next_tokens.positions) == POSITIONS
    assert all(len(one.top) >= 5 for one in first.next_tokens.positions)
    second = DamageProbe(1024, style="completion", types=("q4_0", "q4_0"), earlier=[(1, first.next_tokens)])
    evidence = list(second.collect(coarse))
    assert NextTokens.kind in {one.kind for one in evidence}
    assert second.divergence.positions == POSITIONS
    assert second.divergence.median > 0
    again = DamageProbe(1024, style="completion", types=("f16", "f16"), earlier=[(1, first.next_tokens)])
    list(again.collect(fine))
    assert again.divergence.median < second.divergence.median


def test_a_control_of_the_same_model_under_another_cache_type_is_compared_with_in_one_run(servers, contexts):
    """Law: the control's cache types are read from its own process; the same type, or another model, is no comparison."""
    fine, coarse = contexts
    probe = DamageProbe(1024, style="completion", types=("q4_0", "q4_0"), control=lambda: control_at(servers[0]))
    evidence = list(probe.collect(coarse))
    assert probe.divergence.median > 0
    assert (probe.divergence.other_type_k, probe.divergence.other_server) == (None, servers[0])
    assert len([one for one in evidence if one.kind == NextTokens.kind]) == 1
    alike = DamageProbe(1024, style="completion", types=(None, None), control=lambda: control_at(servers[0]))
    said = [one for one in alike.collect(fine) if one.kind == "token_divergence"]
    assert alike.divergence is None
    assert "the same cache type" in said[0].unavailable.note
    other = DamageProbe(
        1024, style="completion", model="another", types=("q4_0", "q4_0"), control=lambda: control_at(servers[0])
    )
    said = [one for one in other.collect(coarse) if one.kind == "token_divergence"]
    assert "another model" in said[0].unavailable.note


def test_a_control_run_between_two_real_servers(servers, contexts):
    """Law: the control's lengths are those of the server under test, and its speeds are its own server's."""
    fine, _coarse = contexts
    texts = build_ladder((1024, 3072), fine.counter, seed=2, reserve=64).rungs
    attempts = Attempts(fine, Asking())
    own = []
    for number, text in enumerate(texts):
        list(attempts.measure(text, number + 1, canaries=text.canaries[:1], scored=False))
        own.append(attempts.result)
    probe = ControlProbe(lambda: control_at(servers[1]), own)
    [evidence] = list(probe.collect(fine))
    assert evidence.kind == ControlRun.kind
    run = probe.reading
    assert [round(one.tokens / 100) for one in run.control] == [round(one.tokens / 100) for one in run.own]
    assert all(one.prefill_tps and one.generation_tps for one in (*run.own, *run.control))


def test_going_back_in_a_chat_comes_from_the_cache_of_a_plain_model(contexts):
    """Law: a model that attends to everything can be cut anywhere: going back costs nothing."""
    fine, _coarse = contexts
    probe = CacheReuseProbe(1024)
    list(probe.collect(fine))
    assert probe.reading.cached_on_return > 0.9 * probe.reading.prefix_tokens
    assert probe.reading.switched_off_works is True


def test_a_session_of_turns_against_a_real_server(contexts):
    """Law: a real session grows turn by turn, and a model of random weights, which babbles, is found to repeat itself or to be unable, not forgetful."""
    fine, _coarse = contexts
    probe = SoakProbe(1600, turns=8)
    list(probe.collect(fine))
    soak = probe.reading
    assert soak.stopped in {"target", "looping"}
    assert len(soak.turns) >= 2
    assert all(one.generated_tokens and one.total_s for one in soak.turns)
    assert (soak.loop_turn is not None) is (soak.stopped == "looping")
    assert [one.prompt_tokens for one in soak.turns] == sorted(one.prompt_tokens for one in soak.turns)
    assert soak.reread_turns <= soak.compared_turns // 2
    assert soak.state_lost_turn is None
