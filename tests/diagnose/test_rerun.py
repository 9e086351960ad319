"""Chains of real experiments on the embedded server, with the truth known: one change, its prediction, and what that proves."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from diagnose import look
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.export import export_case
from diagnose.ledger import confirmed, ledger
from diagnose.opening import answers_health
from diagnose.shift import shifted
from diagnose.snapshots import snapshot_of
from diagnose.triage import of_case, read_file
from probes.backends.commands import parse_command
from probes.evidence.errors import InputError
from probes.evidence.records import EvidenceSet
from probes.launch import Server, address_of
from probes.process import free_port
from rules.catalogue import facts_of, judge_evidence, rule_of
from rules.verdict import Cost, NextTest, Verdict, expectations_of

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_model import make_model, server_command

pytestmark = pytest.mark.real_server


@pytest.fixture
def quiet(tmp_path, monkeypatch):
    """A home of its own; other tests' servers are no part of the experiment, and speeds of a crowded machine are not compared."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    real = look.read_host

    def alone(*args, **more):
        reading = real(*args, **more)
        still = {
            "ram_available_bytes": (reading.ram_bytes or 0) // 2,
            "load_1min": 1000.0,
            "other_servers": (),
            "busy_processes": (),
        }
        return reading.model_copy(update=still)

    monkeypatch.setattr(look, "read_host", alone)
    return tmp_path


def measure(command, name, *more, target="2048"):
    return command_line(
        ["run", "--launch", shlex.join(command), "--case", name, "--target", target, "--ladder", "300,1500", "--budget", "60s", "--quiet",
         "--format", "json", *more]
    )  # fmt: skip


def again(name, *more):
    return command_line(["rerun", name, "--budget", "60s", "--quiet", "--format", "json", *more])


def changed(command, **flags):
    """The same command with other values; a flag that is not in it is added."""
    words = list(command)
    for name, value in flags.items():
        flag = f"-{name}"
        if flag in words:
            words[words.index(flag) + 1] = str(value)
        else:
            words += [flag, str(value)]
    return tuple(words)


def give(case, rule, variable, start, to):
    """Give the test of a rule as the next one of the first run, with the rule's own predictions, whatever the session proposed."""
    test = next(test for test in rule_of(rule).tests if test.variable == variable and test.expects)
    expects = expectations_of(test.expects, facts_of(case.evidence(1)))
    step = NextTest(
        kind="change",
        variable=variable,
        start=start,
        to=to,
        expects=expects,
        cost=Cost(minutes=3),
        reason="",
        cause=rule,
    )
    case.append("next-test", step.model_dump(mode="json"), run=1)


def verdict_of_run(case, run):
    return Verdict.model_validate([entry.data for entry in case.of("verdict", run)][-1])


def test_slots_alone_confirm_and_slots_with_the_cache_type_do_not(quiet, capsys):
    """Chains (a), (b), (g) of one case: refused with the separating A/B; confirmed; noise; and a model file replaced under its name."""
    model = make_model(quiet / "model.gguf")
    command = server_command(model, "-c", "2048", "-np", "2")
    measure(command, "slots")
    first = json.loads(capsys.readouterr().out)
    assert first["verdict"]["named"] == ["slots-divide-ctx"]
    assert (first["next_test"]["variable"], first["next_test"]["to"]) == ("parallel", 1)
    assert first["changes"] == []

    # (b) the slots and the cache type together
    again("slots", "--launch", shlex.join(changed(command, np=1, ctk="q8_0", ctv="q8_0")))
    both = json.loads(capsys.readouterr().out)["changes"][0]
    assert {one["name"] for one in both["variables"]} == {"parallel", "kv_type"}
    assert (both["single"], both["prediction"]) == (False, "none")
    assert "stack as a whole" in both["conclusion"]
    assert [("-np 1" in one, "q8_0" in one) for one in both["separate"]] == [(True, False), (False, True)]

    # (a) what the A/B asked for
    again("slots", "--launch", both["separate"][0])
    document = json.loads(capsys.readouterr().out)
    alone = document["changes"][1]
    assert [(one["name"], one["before"], one["after"]) for one in alone["variables"]] == [("parallel", 2, 1)]
    assert (alone["single"], alone["prediction"], alone["kept"], alone["against"]) == (True, "held", True, 1)
    assert alone["attempts"] >= 3
    assert document["verdict"]["confirmed"] == ["slots-divide-ctx"]
    assert document["window"]["in_force"] == 2048
    report = (quiet / "home" / "cases" / "slots" / "report.md").read_text()
    assert "slots-divide-ctx" in report
    assert "parallel" in report

    # unchanged: noise
    again("slots")
    same = json.loads(capsys.readouterr().out)["changes"][2]
    assert same["variables"] == []
    assert same["prediction"] == "held"

    # (g) another model of the same size and header under the same name
    make_model(quiet / "model.gguf", seed=1)
    again("slots")
    replaced = json.loads(capsys.readouterr().out)["changes"][3]
    assert [one["name"] for one in replaced["variables"]] == ["model_path"]
    assert replaced["single"] is True
    assert replaced["prediction"] == "none"

    with Case.open("slots", read_only=True) as case:
        assert confirmed(case) == {"slots-divide-ctx": 3}
        assert [one.run for one in ledger(case)] == [2, 3, 4, 5]
        assert all(snapshot_of(case, run, when) is not None for run in range(1, 6) for when in ("before", "after"))
        # exported, and judged elsewhere to the same verdict
        path = export_case(case, quiet / "slots.json")
        assert str(Path.home()) not in path.read_text() or Path.home() == Path("/")
        for mode in ("run", "triage"):
            here, _facts = judge_evidence(EvidenceSet(of_case(case.folder)), mode)
            there, _facts = judge_evidence(EvidenceSet(read_file(str(path))), mode)
            assert [(one.cause, one.low, one.now, one.high) for one in there.findings] == [
                (one.cause, one.low, one.now, one.high) for one in here.findings
            ]
        again_there, _facts = judge_evidence(EvidenceSet(read_file(str(path))), "run")
        assert again_there.named == verdict_of_run(case, 5).named


def test_a_change_that_does_nothing_is_refuted_and_is_to_be_undone(quiet, capsys):
    """Chain (d): the window looks divided, but it is the training length that caps it; one slot changes nothing."""
    model = make_model(quiet / "model.gguf", trained=1024)
    command = server_command(model, "-c", "2048", "-np", "2")
    measure(command, "cap")
    first = json.loads(capsys.readouterr().out)
    with Case.open("cap") as case:
        # whatever led here, the user tries the slots; their prediction is that of the rule
        give(case, "slots-divide-ctx", "parallel", 2, 1)
    again("cap", "--launch", shlex.join(changed(command, np=1)))
    document = json.loads(capsys.readouterr().out)
    line = document["changes"][0]
    assert (line["single"], line["prediction"], line["kept"]) == (True, "failed", False)
    assert line["cause"] == "slots-divide-ctx"
    assert any("undo it" in note for note in line["notes"])
    assert document["verdict"]["confirmed"] == []
    assert "slots-divide-ctx" not in document["verdict"]["named"]
    assert first["window"]["in_force"] == document["window"]["in_force"]


def test_a_server_that_was_killed_between_the_runs(quiet, capsys):
    """Chain (f): the case stands, the next run says that nobody answers, and goes on when the server is there again."""
    model = make_model(quiet / "model.gguf")
    port = free_port()
    command = server_command(model, "-c", "1024", "-np", "1", port=port)
    with Server(command, log_path=quiet / "s.log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 30).healthy
        command_line(
            ["run", str(port), "--case", "killed", "--ladder", "300", "--budget", "30s", "--quiet", "--format", "json"]
        )
        assert json.loads(capsys.readouterr().out)["window"]["in_force"] == 1024
        os.kill(server.pid, signal.SIGKILL)
    assert again("killed") == 3
    capsys.readouterr()
    with Server(command, log_path=quiet / "s.log") as server:
        server.start()
        assert server.wait_healthy(lambda pid: address_of(pid, answers_health), 30).healthy
        again("killed")
    document = json.loads(capsys.readouterr().out)
    assert document["window"]["in_force"] == 1024
    (line,) = document["changes"]
    assert (line["run"], line["against"], line["variables"]) == (3, 1, [])


LIMIT = int(0.7 * (1 << 30))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the address-space limit is Linux's")
def test_the_predicted_shift_of_a_smaller_cache_is_within_five_per_cent(quiet):
    """Chain (c): under an address-space limit, the window at which memory is full with an 8-bit cache is foretold from the one with 16 bits."""
    model = make_model(quiet / "model.gguf", layers=4, heads=8, head_size=64, trained=1 << 20)

    def command(window, *more):
        return server_command(model, "-c", str(window), "-np", "1", "-b", "256", "-ub", "256", *more)

    def loads(window, *more):
        # the C library reserves address space for each thread that allocates, which is no memory
        calm = {"MALLOC_ARENA_MAX": "1"}
        server = Server(command(window, *more), log_path=quiet / "s.log", environment=calm, address_space_bytes=LIMIT)
        with server:
            server.start()
            return server.wait_healthy(lambda pid: address_of(pid, answers_health), 30).healthy

    low, high = 4096, 53_248
    assert loads(low)
    # how much of the limit the libraries themselves take differs from one machine to the next
    while loads(high):
        low, high = high, high * 3 // 2
        assert high < 1 << 20
    while high - low > max(512, low // 33):
        middle = (low + high) // 2
        low, high = (middle, high) if loads(middle) else (low, middle)
    wanted = shifted(model, parse_command(command(low)), low, "kv_type", "q8_0")
    assert wanted is not None
    assert 1.5 < wanted / low < 1.95
    q8 = ("-ctk", "q8_0", "-ctv", "q8_0")
    slack = max(0.05 * wanted, 2048)
    assert loads(int(wanted - slack), *q8)
    assert not loads(int(wanted * high / low + slack), *q8)


def test_a_launch_under_a_limit_is_predicted_started_three_times_and_confirmed(quiet):
    """Chain (c), in a case: a cache that does not fit, half the window, three starts; and the arithmetic is told."""
    if not sys.platform.startswith("linux"):
        pytest.skip("the address-space limit is Linux's")
    from diagnose.cli.rerun import options_for
    from diagnose.console import Terminal
    from diagnose.options import RunOptions
    from diagnose.perform import perform
    from probes.evidence.rungs import Criteria

    model = make_model(quiet / "model.gguf", trained=1 << 22)
    command = server_command(model, "-c", "2000000", "-np", "1", "-b", "256", "-ub", "256")
    terminal = Terminal(quiet=True)
    options = RunOptions(
        launch=command, address_space_bytes=LIMIT, budget_s=20, output_tokens=64, target=4096, ladder=(1024,)
    )
    with Case.create("immediate-oom", tool_version="1", name="limit") as case:
        perform(case, options, Criteria(), (), terminal, mode="run")
        assert "kv-cache-size" in verdict_of_run(case, 1).named
        give(case, "kv-cache-size", "ctx", 2000000, 50000)
        smaller = changed(command, c=50000)
        asked = RunOptions(launch=smaller, address_space_bytes=LIMIT, budget_s=15, target=4096)
        perform(case, options_for(case, asked), Criteria(), (), terminal, mode="run")
        (line,) = ledger(case)
        assert line.single is True
        assert [one.name for one in line.variables] == ["ctx"]
        assert (line.prediction, line.attempts, line.kept) == ("held", 3, True)
        assert confirmed(case) == {"kv-cache-size": 2}


# -- the command itself ---------------------------------------------------------------------------------------------------------------------


def test_a_case_without_a_run_or_no_case_at_all_is_said(quiet, capsys):
    assert command_line(["rerun", "nothing-of-the-kind"]) == 2
    assert "no case" in capsys.readouterr().err
    Case.create("flaky", tool_version="1", name="empty").close()
    assert command_line(["rerun", "empty"]) == 2
    assert "no run to compare with" in capsys.readouterr().err


def test_an_export_is_not_written_over_another_file(quiet):
    with Case.create("flaky", tool_version="1", name="a") as case:
        other = quiet / "notes.json"
        other.write_text("my notes")
        with pytest.raises(InputError, match="already"):
            export_case(case, other)
        assert other.read_text() == "my notes"
        path = export_case(case, quiet)
        assert path == quiet / "a.json"
        assert export_case(case, path) == path
        with pytest.raises(InputError, match="cannot be written"):
            export_case(case, quiet / "no" / "such" / "folder.json")
