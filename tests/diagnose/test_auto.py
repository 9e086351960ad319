"""The walk that changes one thing after another by itself: what it does, when it stops, and that the server is as it was at the end."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from diagnose import auto, look
from diagnose.auto import choose, run_auto, terminal_asks, walk_auto
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.goal import SLACK, nothing_left, reached
from diagnose.ledger import confirmed, ledger
from diagnose.leftovers import end_leftovers
from diagnose.means import ByCommand
from diagnose.notes import notes_home
from diagnose.opening import answers_health
from diagnose.options import RunOptions
from diagnose.restoring import restore_interrupted, restoring, running_already
from diagnose.ui import Silent
from diagnose.window import LengthVerdict, WindowVerdict
from probes.evidence.errors import InputError
from probes.evidence.records import found
from probes.evidence.request import Launch
from probes.evidence.rungs import Criteria
from probes.evidence.subject import BackendIdentity, Configuration, Setting, WindowReading
from probes.evidence.words import words
from probes.process import free_port, listener
from reports.document import ChangeMade
from tests.diagnose.told import Told, own_home

sys.path.insert(0, str(Path(__file__).parent.parent))
from tiny_model import make_model, server_command


@pytest.fixture
def home(tmp_path, monkeypatch):
    own_home(tmp_path, monkeypatch)
    real = look.read_host

    def alone(*args, **more):
        reading = real(*args, **more)
        still = {
            "ram_available_bytes": (reading.ram_bytes or 0) // 2,
            "load_1min": 0.1,
            "other_servers": (),
            "busy_processes": (),
        }
        return reading.model_copy(update=still)

    monkeypatch.setattr(look, "read_host", alone)
    return tmp_path


# -- the walk, on made-up runs --------------------------------------------------------------------------------------------------------------

COMMAND = ("llama-server", "-m", "m.gguf", "-c", "8192", "-np", "4", "--port", "1")


class Runs:
    """Runs that are made up: what each command gives. ``kept`` by command; the window is divided by the slots until one slot is left."""

    def __init__(self, case, monkeypatch, kept=lambda _command: True, divided=lambda command: "4" in command):
        self.case, self.kept, self.divided = case, kept, divided
        self.commands = []
        self.budgets = []
        monkeypatch.setattr(auto, "window_verdict", lambda _case, run: self.verdicts[run])
        self.verdicts = {}

    def __call__(self, case, options, criteria, answers):
        run = case.run + 1
        command = tuple(options.launch)
        self.commands.append(command)
        self.budgets.append(options.budget_s)
        case.append("run", {"options": options.model_dump(mode="json")}, run=run)
        slots = int(command[command.index("-np") + 1])
        window = 8192 // slots if self.divided(command) else 8192
        for payload in (
            BackendIdentity(name="llama.cpp"),
            WindowReading(in_force=window, slots=slots, per_slot=window, asked=8192, trained=131072),
            Configuration(
                settings={
                    "parallel": Setting(value=slots, source="server"),
                    "ctx": Setting(value=8192, source="process"),
                },
                command=command,
            ),
        ):
            case.add(found(payload, source="server", run=run))
        if len(self.commands) > 1:
            made = ChangeMade(
                run=run, against=run - 1, single=True, prediction="held", kept=self.kept(command), conclusion="Said."
            )
            case.append("change", made.model_dump(mode="json"), run=run)
        case.append("run-ended", {}, run=run)
        self.verdicts[run] = WindowVerdict(target_input=8000, target_reached=window >= 8000)
        return SimpleNamespace(run=run, options=options, could_not_look=None)


def walk(case, runs, ask=lambda _said: True, **more):
    told = Told()
    options = RunOptions(launch=COMMAND, **({"budget_s": 600.0} | more))
    outcome = walk_auto(case, options, Criteria(), (), told, runs, ask)
    return outcome, told


def test_it_walks_until_the_target_is_verified(home, monkeypatch):
    with Case.create("fixed-length-error", tool_version="1", name="a") as case:
        runs = Runs(case, monkeypatch)
        outcome, told = walk(case, runs)
    assert outcome.reached
    assert [command[command.index("-np") + 1] for command in runs.commands] == ["4", "1"]
    assert outcome.means.command == runs.commands[-1]
    assert outcome.best == 2
    assert "Step 1: change parallel from 4 to 1" in told.text
    assert "Expected if slots-divide-ctx" in told.text
    assert "unchanged" in told.text  # the user's own command at the end
    assert "-np 4" in told.lines[-1]


def test_a_step_without_a_gain_is_undone_before_the_next_and_never_made_again(home, monkeypatch):
    """Law: the next command is made from the last one that was kept; nothing is tried twice; the walk ends."""
    with Case.create("fixed-length-error", tool_version="1", name="a") as case:
        runs = Runs(case, monkeypatch, kept=lambda _command: False, divided=lambda _command: True)
        runs.verdicts = {}
        outcome, told = walk(case, runs)
    assert not outcome.reached
    assert outcome.means.command == COMMAND
    assert outcome.best == 1
    assert len(set(runs.commands)) == len(runs.commands)
    for command in runs.commands[1:]:
        assert sum(a != b for a, b in zip(command, COMMAND, strict=False)) + abs(len(command) - len(COMMAND)) <= 2
    assert "is undone" in told.text
    assert "Nothing is left" in str(outcome.why)


def test_a_step_that_is_declined_is_not_made(home, monkeypatch):
    asked = []

    def no(said):
        asked.append(str(said))
        return False

    with Case.create("fixed-length-error", tool_version="1", name="a") as case:
        runs = Runs(case, monkeypatch)
        outcome, _told = walk(case, runs, no)
    assert len(runs.commands) == 1
    assert asked
    assert outcome.steps == 0


def test_it_stops_when_the_budget_is_used(home, monkeypatch):
    """Each run gets what is left; none is begun with next to nothing."""
    with Case.create("fixed-length-error", tool_version="1", name="a") as case:
        runs = Runs(case, monkeypatch)
        outcome, _told = walk(case, runs, budget_s=4.0)
        assert len(runs.commands) == 1
        assert "budget" in str(outcome.why)


def test_only_steps_that_keep_quality_are_taken(home, monkeypatch):
    """A smaller cache type or window is never chosen, whatever leads; the target is no option to be lowered."""
    with Case.create("fixed-length-error", tool_version="1", name="a") as case:
        runs = Runs(case, monkeypatch)
        runs(case, RunOptions(launch=COMMAND), Criteria(), ())
        passed = set()
        seen = []
        while (chosen := choose(case, 1, ByCommand(COMMAND), passed, RunOptions(target=8192))) is not None:
            step, means = chosen
            command = means.command
            passed.add((step.variable, repr(step.to)))
            seen.append(step)
            assert step.kind == "change"
            assert step.cost.quality == "none"
            assert command != COMMAND
            assert step.undo == shlex.join(COMMAND)
            assert step.command == shlex.join(command)
        assert [step.variable for step in seen][:1] == ["parallel"]


def test_the_command_is_needed(home):
    with Case.create("flaky", tool_version="1", name="a") as case, pytest.raises(InputError, match="--launch"):
        walk_auto(
            case, RunOptions(url="http://127.0.0.1:1"), Criteria(), (), Told(), lambda *_: None, lambda _said: True
        )


def test_without_a_terminal_it_wants_to_be_told_to_go_unasked(home, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert command_line(["run", "--launch", "llama-server -m x.gguf", "--auto", "--case", "x", "--quiet"]) == 2
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(("typed", "given"), [("\n", True), ("y\n", True), ("n\n", False), ("what\nno\n", False)])
def test_enter_is_yes_and_the_end_of_input_leaves(monkeypatch, typed, given):
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
    assert terminal_asks(words("Do this step?")) is given
    with pytest.raises(KeyboardInterrupt):
        terminal_asks(words("Do this step?"))


@pytest.mark.parametrize(
    ("to", "start", "target", "given"),
    [
        (2048, 1024, 4096, 4096),  # longer, and in one step as long as wanted
        (32_768, 1024, 4096, 4096),  # and no longer
        (32_768, 4096, 4096, None),  # it is long enough
        (16_384, 32_768, 8192, 16_384),  # shorter saves memory, down to the target
        (4096, 32_768, 8192, None),
        (8192, None, 4096, 8192),
        (2048, None, 4096, None),
    ],
)
def test_a_window_is_changed_only_on_the_way_to_the_target(to, start, target, given):
    assert auto._on_the_way(to, start, target) == given


def test_a_model_that_cannot_do_the_recall_test_reaches_its_target_by_what_can_be_tested():
    assert reached(WindowVerdict(target_input=1000, target_reached=True))
    assert reached(WindowVerdict(target_input=1000, unable=True, fits=1000, fast_enough=995))
    assert not reached(WindowVerdict(target_input=1000, unable=True, fits=1000, fast_enough=None))
    assert not reached(WindowVerdict(target_input=1000, unable=False, fits=1000, fast_enough=1000))
    assert not reached(WindowVerdict(fits=1000, fast_enough=1000, unable=True))
    assert reached(WindowVerdict(target_input=3904, unable=True, fits=3827, fast_enough=3827))
    assert not reached(WindowVerdict(target_input=3904, unable=True, fits=3700, fast_enough=3700))


def test_where_all_lengths_held_or_the_target_is_reached_nothing_is_left():
    held = LengthVerdict(1000, 3, fits=True, fast_enough=True, recalls=None)
    assert nothing_left(WindowVerdict(lengths=(held,)))
    assert not nothing_left(WindowVerdict(lengths=()))
    assert not nothing_left(WindowVerdict(lengths=(held, replace(held, fits=False))))
    assert not nothing_left(WindowVerdict(lengths=(held, replace(held, recalls=False))))
    assert not nothing_left(WindowVerdict(lengths=(held,), target_input=4000, target_reached=False))


# -- the server as it was -------------------------------------------------------------------------------------------------------------------

SERVES = """
import http.server, os, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.environ.get('MINE', '-').encode())
    def log_message(self, *a): pass
http.server.HTTPServer(('127.0.0.1', int(sys.argv[sys.argv.index('--port') + 1])), Answer).serve_forever()
"""


@pytest.fixture
def own(home):
    """A server of the user's that runs; gives its command. Whatever listens on its port at the end is ended."""
    script = home / "llama_server.py"
    script.write_text(SERVES)
    port = free_port()
    command = (sys.executable, str(script), "--port", str(port))
    process = subprocess.Popen(command, env={**os.environ, "MINE": "kept"}, cwd=home)
    ends = time.monotonic() + 20
    while not answers_health(f"http://127.0.0.1:{port}") and time.monotonic() < ends:
        time.sleep(0.02)
    yield SimpleNamespace(command=command, port=port, pid=process.pid, script=script)
    process.kill()
    process.wait()
    left = listener(port)
    if left is not None:
        psutil.Process(left).kill()


def test_a_server_that_ran_before_is_stopped_and_started_again_as_it_was(own, home):
    """Law: same command, environment and folder; it outlives us; and no note is left."""
    told = Told()
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        restoring(case, own.command, {}, told, lambda _said: True),
    ):
        assert listener(own.port) is None
        (note,) = notes_home().iterdir()
        assert note.stat().st_mode & 0o077 == 0
    pid = listener(own.port)
    assert pid not in {None, own.pid}
    again = psutil.Process(pid)
    assert tuple(again.cmdline()) == own.command
    assert again.environ()["MINE"] == "kept"
    assert again.cwd() == str(home)
    assert os.getsid(pid) == pid
    assert "started again as it was" in told.text
    assert list(notes_home().iterdir()) == []


def test_it_is_started_again_also_after_an_interrupt(own, home):
    told = Told()
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        pytest.raises(KeyboardInterrupt),
        restoring(case, own.command, {}, told, lambda _said: True),
    ):
        raise KeyboardInterrupt
    assert listener(own.port) not in {None, own.pid}


def test_a_server_that_runs_is_not_stopped_without_a_yes(own, home):
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        pytest.raises(InputError, match="stop it"),
        restoring(case, own.command, {}, Told(), lambda _said: False),
    ):
        raise AssertionError
    assert listener(own.port) == own.pid


def test_only_the_very_same_command_is_taken_for_the_users_server(own):
    assert running_already(own.command).pid == own.pid
    assert running_already((*own.command, "-c", "4096")) is None
    assert running_already((own.command[0], str(own.script), "--port", str(free_port()))) is None
    assert running_already(("llama-server", "-m", "x.gguf")) is None


@pytest.mark.parametrize("around", [("nice", "-n", "3"), ("env", "A=1"), ("A=1",)])
def test_wrappers_are_no_part_of_the_process_that_runs(own, around):
    """Law: the user's server is found behind what started it, and is started again as niced as it was."""
    assert running_already((*around, *own.command)).pid == own.pid
    shell = ("sh", "-c", "exec " + shlex.join(own.command) + " 2>&1")
    assert running_already(shell).pid == own.pid


def test_niceness_and_processors_are_kept(own, home):
    before = psutil.Process(own.pid)
    before.nice(3)
    cpus = before.cpu_affinity()[:1]
    before.cpu_affinity(cpus)
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        restoring(case, ("nice", "-n", "3", *own.command), {}, Told(), lambda _said: True),
    ):
        assert listener(own.port) is None
    again = psutil.Process(listener(own.port))
    assert (again.nice(), again.cpu_affinity()) == (3, cpus)


def test_a_server_that_did_not_run_before_is_only_named(home):
    told = Told()
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        restoring(case, COMMAND, {}, told, lambda _said: True),
    ):
        pass
    assert "own command is unchanged" in told.text
    assert "-np 4" in told.text


def test_an_unreadable_note_is_dropped_and_a_living_walk_is_left_alone(home):
    notes_home().mkdir(parents=True)
    (notes_home() / "bad.json").write_text("{")
    parent = psutil.Process(os.getppid())
    living = {
        "owner": parent.pid,
        "owner_created": parent.create_time(),
        "command": ["x"],
        "shown": "x",
        "running": None,
    }
    (notes_home() / "living.json").write_text(json.dumps(living))
    assert restore_interrupted() == []
    assert [path.name for path in notes_home().iterdir()] == ["living.json"]


KILLED = """
import sys, time
from diagnose.case import Case
from diagnose.leftovers import noted
from diagnose.restoring import restoring
from diagnose.ui import Silent
from probes.launch import Server
from pathlib import Path
command = tuple(sys.argv[2:])
changed = (*command, '--changed')
with Case.create('flaky', tool_version='1', name='killed') as case, restoring(case, command, {}, Silent(), lambda _said: True):
    server = Server(changed, log_path=Path(sys.argv[1]))
    with noted(changed, server.marker) as started, server:
        server.start()
        started(server.pid, server.created)
        print(server.pid, flush=True)
        time.sleep(600)
"""


def test_after_a_kill_9_the_next_call_ends_the_experiment_and_starts_the_users_server(own, home):
    """Law: what was left is ended, the server stands as it was, it is said, and a second call does nothing more."""
    tool = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(home / "log"), *own.command], stdout=subprocess.PIPE, text=True
    )
    try:
        experiment = int(tool.stdout.readline())
        tool.send_signal(signal.SIGKILL)
        tool.wait()
        assert psutil.pid_exists(experiment)
        assert len(end_leftovers()) == 1
        said = " ".join(str(one) for one in restore_interrupted())
        assert "case killed was interrupted" in said
        assert "started again as it was" in said
        again = psutil.Process(listener(own.port))
        assert tuple(again.cmdline()) == own.command
        assert again.environ()["MINE"] == "kept"
        assert restore_interrupted() == []
        assert listener(own.port) == again.pid
    finally:
        tool.kill()
        tool.wait()
        tool.stdout.close()


def test_a_command_that_only_tells_a_running_server_what_to_load_is_followed_by_its_address(own, home):
    """``lms load`` and the like end well and leave no process: the server is where the user says."""
    from diagnose.opening import _launched
    from diagnose.running import Walk

    options = RunOptions(launch=(sys.executable, "-c", "pass"), url=f"http://127.0.0.1:{own.port}")
    with Case.create("flaky", tool_version="1", name="a") as case:
        case.append("run", {"options": {}}, run=1)
        one = Walk(case, options, Silent(), Criteria())
        with _launched(one) as url:
            assert url == options.url
        nobody = options.model_copy(update={"url": f"http://127.0.0.1:{free_port()}"})
        with _launched(Walk(case, nobody, Silent(), Criteria())) as url:
            assert url is None
        assert [launch.healthy for launch in one.mine(Launch)] == [True, False]


# -- for real -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.real_server
def test_two_single_steps_in_the_right_order_reach_the_target(home, capsys):
    """Chain (e): it does not even load (a quantised cache without flash attention), and then its window is divided. Nothing is left running."""
    model = make_model(home / "model.gguf")
    command = server_command(model, "-c", "2048", "-np", "2", "-fa", "off", "-ctv", "q8_0")
    port = int(command[command.index("--port") + 1])
    command_line(
        ["run", "--launch", shlex.join(command), "--auto", "--yes", "--case", "e", "--target", "2048", "--budget",
         "90s", "--format", "json"]
    )  # fmt: skip
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    with Case.open("e", read_only=True) as case:
        lines = ledger(case)
        assert [[one.name for one in line.variables] for line in lines] == [["flash_attention"], ["parallel"]]
        assert [(line.single, line.prediction, line.kept) for line in lines] == [(True, "held", True)] * 2
        assert confirmed(case) == {"kv-quant-needs-flash-attn": 2, "slots-divide-ctx": 3}
    assert document["window"]["fits"]["tokens"] >= 2048 - document["window"]["output_tokens"] - SLACK
    assert [change["run"] for change in document["changes"]] == [2, 3]
    assert shown.err.index("Step 1: change flash_attention") < shown.err.index("Step 2: change parallel")
    assert "own command is unchanged" in shown.err
    assert "The best command that was found" in shown.err
    assert listener(port) is None
    assert not [one for one in psutil.process_iter(["cmdline"]) if str(model) in " ".join(one.info["cmdline"] or ())]


@pytest.mark.real_server
def test_run_auto_tells_the_best_command(home, monkeypatch):
    told = Told()
    monkeypatch.setattr(
        auto,
        "walk_auto",
        lambda *_args: auto.Outcome(
            2, ByCommand(("llama-server", "-np", "1")), words("The target is verified."), 1, reached=True
        ),
    )
    with Case.create("flaky", tool_version="1", name="a") as case:
        outcome = run_auto(case, RunOptions(launch=COMMAND), Criteria(), (), told, yes=True)
    assert outcome.best == 2
    assert "The target is verified." in told.lines[0]
    assert "llama-server -np 1" in told.lines[1]
