"""Each log belongs to its run: what another server wrote before is no evidence about this one."""

from __future__ import annotations

import pytest

from diagnose.case import Case
from diagnose.options import RunOptions
from diagnose.run_logs import before_measuring, events_now, read_logs
from diagnose.running import Walk
from probes.evidence.events import LogEvent
from probes.evidence.records import found
from probes.evidence.rungs import Criteria
from probes.evidence.subject import Configuration

FIRST = "llama_context: n_ctx         = 65536\n" * 3
SECOND = "llama_context: n_ctx         = 32768\n"


class _Silent:
    """Nobody reads."""

    def say(self, *_said):
        """Nothing."""


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    with Case.create(None, tool_version="1", name="a") as one:
        yield one


def windows(case, *logs, command=None, launch=None):
    """Do the part of a run that reads its logs: the windows that they tell, as they are kept and as they are read meanwhile."""
    case.append("run", {"options": {}}, run=case.run + 1)
    one = Walk(case, RunOptions(launch=launch), _Silent(), Criteria(), log_paths=list(logs))
    if command is not None:
        case.add(found(Configuration(command=command), source="process", run=one.run))
    now = [event.tokens for event in events_now(one)]
    read_logs(one)
    kept = [event.tokens for event in case.payloads(LogEvent, one.run)]
    case.append("run-ended", {}, run=one.run)
    assert now == kept
    return set(kept)


def test_the_log_of_another_server_is_not_read_again(case, tmp_path):
    """A server that we start has a log of its own; the one that was given for an earlier run is that run's."""
    given, own = tmp_path / "server.log", tmp_path / "own.log"
    given.write_text(FIRST)
    assert windows(case, given) == {65536}
    own.write_text(SECOND)
    assert windows(case, given, own, launch=("llama-server",)) == {32768}
    assert windows(case, given, launch=("llama-server",)) == set()
    missing = [one for one in case.evidence(case.run).all if one.kind == LogEvent.kind]
    assert "earlier run" in missing[0].model_dump_json()


@pytest.mark.parametrize("launch", [None, ("llama-server", "-c", "32768")])
def test_of_a_log_that_is_written_on_what_is_new_is_read(case, tmp_path, launch):
    log = tmp_path / "server.log"
    log.write_text(FIRST)
    assert windows(case, log, command=("llama-server", "-c", "65536")) == {65536}
    with log.open("a") as more:
        more.write(SECOND)
    assert windows(case, log, command=("llama-server", "-c", "32768"), launch=launch) == {32768}


def test_a_log_that_is_written_anew_is_read_whole(case, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(FIRST)
    assert windows(case, log, command=("llama-server", "-c", "65536")) == {65536}
    log.write_text(SECOND + "\n" * 500)
    assert windows(case, log, command=("llama-server", "-c", "32768")) == {32768}


def test_the_log_of_a_server_that_goes_on_is_read_as_before(case, tmp_path):
    """What it wrote when it started holds as long as it runs."""
    log = tmp_path / "server.log"
    log.write_text(FIRST)
    assert windows(case, log, command=("llama-server", "-c", "65536")) == {65536}
    assert windows(case, log, command=("llama-server", "-c", "65536")) == {65536}


TURN = "slot get_availabl: id  0 | task -1 | selected slot by LCP similarity, sim_best = 0.113 (> 0.100 thold), f_keep = 0.779\n"


def shares(case):
    return [event.similarity for event in case.payloads(LogEvent, case.run) if event.event == "cache-reuse"]


def test_the_turns_that_we_sent_ourselves_are_no_turns_of_the_users_client(case, tmp_path):
    """Law: what a log says of prompts as a client builds them counts up to our first prompt; a log that came up since is all ours."""
    log, own = tmp_path / "server.log", tmp_path / "own.log"
    log.write_text(TURN.replace("0.113", "0.221"))
    case.append("run", {"options": {}}, run=1)
    one = Walk(case, RunOptions(), _Silent(), Criteria(), log_paths=[log])
    before_measuring(one)
    with log.open("a") as more:
        more.write(TURN + FIRST)
    own.write_text(TURN + SECOND)
    # a run that is gone on with knows where its first process began to send
    again = Walk(case, RunOptions(), _Silent(), Criteria(), log_paths=[log, own])
    before_measuring(again)
    read_logs(again)
    assert shares(case) == [0.221]
    assert {event.tokens for event in case.payloads(LogEvent, 1) if event.event == "window"} == {65536, 32768}


def test_without_a_prompt_of_ours_every_turn_is_a_clients(case, tmp_path):
    """Where nothing was sent, the whole log is the user's."""
    log = tmp_path / "server.log"
    log.write_text(TURN + SECOND)
    case.append("run", {"options": {}}, run=1)
    read_logs(Walk(case, RunOptions(), _Silent(), Criteria(), log_paths=[log]))
    assert shares(case) == [0.113]
