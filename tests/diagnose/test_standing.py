"""Experiments on a server that goes on running: settings by its own interface, put back after each run, also after this process was killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from diagnose.auto import choose, walk_auto
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.ledger import confirmed, ledger
from diagnose.lms import unload_command
from diagnose.means import ByCommand, ByInterface
from diagnose.notes import notes_home
from diagnose.options import RunOptions
from diagnose.restoring import restore_interrupted, restoring
from diagnose.separating import command_of
from diagnose.standing import kept_as_it_was
from diagnose.steps import with_command
from diagnose.ui import Silent
from probes.backends.commands import parse_command
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.backends.standing import standing_of
from probes.evidence.errors import InputError, NotOfferedError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Launch
from probes.evidence.rungs import Criteria
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading
from rules.verdict import Cost, NextTest
from tests.backends.standing_like import LmStudioLike, OllamaLike, RouterLike
from tests.backends.tiny_mlx import make_model
from tests.diagnose.told import Told, own_home


@pytest.fixture
def home(tmp_path, monkeypatch):
    return own_home(tmp_path, monkeypatch)


def run_auto_at(server, name, target, capsys, *more):
    """Walk, with a tokenizer that counts as the server does: one token a byte."""
    folder = Path("tokenizer")
    if not folder.exists():
        folder.mkdir()
        make_model(folder)
    code = command_line(
        ["run", server.url, "--auto", "--yes", "--target", str(target), "--budget", "60s", "--case", name,
         "--symptom", "forgetting", "--format", "json", "--tokenizer", str(folder), *more]
    )  # fmt: skip
    shown = capsys.readouterr()
    return code, json.loads(shown.out), shown.err


def test_auto_raises_ollamas_window_by_options_confirms_it_and_puts_it_back(home, capsys):
    """The whole way without a restart: silent cut named, window as long as the target, prediction held, the model loaded as before."""
    with OllamaLike(window=1024) as server:
        _code, document, said = run_auto_at(server, "o", 4096, capsys)
        assert server.loads == [{"num_ctx": 4096}, {"num_ctx": 1024}]
        assert server.options == {"num_ctx": 1024}
    with Case.open("o", read_only=True) as case:
        (line,) = ledger(case)
        assert ([one.name for one in line.variables], line.single, line.prediction, line.kept) == (
            ["ctx"],
            True,
            "held",
            True,
        )
        assert (line.variables[0].before, line.variables[0].after) == (1024, 4096)
        assert confirmed(case) == {"silent-truncation-half-window": 2}
        steps = [entry.data for entry in case.of("next-test", 1)][-1]
    assert document["window"]["in_force"] == 4096
    assert 'each request with "options": {"num_ctx": 4096}' in said
    assert "PARAMETER num_ctx 4096" in said  # how to keep it: a Modelfile
    assert "PARAMETER num_ctx 4096" in steps["command"]
    assert "loaded as it was before" in said
    assert list(notes_home().iterdir()) == []


def test_rerun_puts_a_setting_into_force_for_that_run_only(home, capsys):
    """``rerun --set``: the change is known as asked for, the model is put back, and the next rerun is without it."""
    Path("tokenizer").mkdir()
    make_model(Path("tokenizer"))
    asked = ("--tokenizer", "tokenizer", "--ladder", "300", "--budget", "5s", "--quiet", "--format", "json")
    with OllamaLike(window=1024) as server:
        command_line(["run", server.url, "--case", "r", *asked])
        capsys.readouterr()
        command_line(["rerun", "r", "--set", "ctx=2k", *asked])
        line = json.loads(capsys.readouterr().out)["changes"][-1]
        assert [(one["name"], one["before"], one["after"]) for one in line["variables"]] == [("ctx", 1024, 2048)]
        assert server.options == {"num_ctx": 1024}
        command_line(["rerun", "r", *asked])
        line = json.loads(capsys.readouterr().out)["changes"][-1]
        assert [(one["name"], one["before"], one["after"]) for one in line["variables"]] in ([], [("ctx", 2048, 1024)])
        assert server.loads == [{"num_ctx": 2048}, {"num_ctx": 1024}]


def test_a_window_that_does_not_load_is_undone_and_said(home, capsys):
    """A model that does not load with a setting is a start that failed: the change is not kept, the model stands as before."""
    with OllamaLike(window=1024, fits=2048) as server:
        _code, document, said = run_auto_at(server, "o", 4096, capsys)
        assert server.options == {"num_ctx": 1024}
    with Case.open("o", read_only=True) as case:
        assert [line.kept for line in ledger(case)] == [False]
        (launch,) = case.payloads(Launch, 2)
        assert not launch.healthy
        assert "more system memory" in launch.why
    assert "It gained nothing and is undone" in said
    assert document["window"]["in_force"] == 1024


def test_nothing_is_put_into_force_where_it_could_not_be_put_back(home):
    """Law: no setting is changed before what stands was read and written down; an unknown one is refused."""
    with OllamaLike() as server, Http(server.url) as http, Case.create("flaky", tool_version="1", name="a") as case:
        one = ByInterface(standing_of(recognise(http)))
        with pytest.raises(NotOfferedError):
            one.changed("tensor_split", [1, 1])
        assert one.changed("ctx", 8192).changed("ctx", 8192).settings == {"ctx": 8192}
        told = Told()
        with kept_as_it_was(case, RunOptions(url=server.url), told):
            pass
        assert server.loads == []
        assert told.lines == []
    with (
        RouterLike(slots=2) as router,
        Case.create("flaky", tool_version="1", name="b") as case,
        kept_as_it_was(case, RunOptions(url=router.url, settings={"ctx": 4096}), Silent()),
    ):
        assert not notes_home().exists() or list(notes_home().iterdir()) == []


def test_auto_without_a_command_needs_a_server_that_can_be_changed(home, capsys):
    from tests.diagnose.llama_like import LlamaLike

    with LlamaLike() as server:
        assert command_line(["run", server.url, "--auto", "--yes", "--case", "x", "--quiet"]) == 2
    assert "--launch" in capsys.readouterr().err
    with Case.create("flaky", tool_version="1", name="a") as case, pytest.raises(InputError, match="--launch"):
        walk_auto(
            case, RunOptions(url="http://127.0.0.1:1"), Criteria(), (), Silent(), lambda *_: None, lambda _said: True
        )


KILLED = """
import sys, time
from diagnose.case import Case
from diagnose.options import RunOptions
from diagnose.standing import kept_as_it_was, put_into_force
from diagnose.ui import Silent
from probes.backends.commands import parse_command
from probes.backends.http import Http
from probes.backends.recognise import recognise
url = sys.argv[1]
with Case.create('flaky', tool_version='1', name='killed') as case:
    options = RunOptions(url=url, settings={'ctx': 8192})
    with Http(url) as http, kept_as_it_was(case, options, Silent()):
        list(put_into_force(recognise(http), options.settings, 1))
        print('put', flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("like", "stands", "changed"),
    [
        (OllamaLike, lambda s: s.options["num_ctx"], 1024),
        (LmStudioLike, lambda s: s.instances["m"]["context_length"], 4096),
    ],
)
def test_after_a_kill_9_the_next_call_puts_the_model_back(home, like, stands, changed):
    """Law: what was changed is put back, it is said, and a second call does nothing more."""
    with like() as server:
        tool = subprocess.Popen([sys.executable, "-c", KILLED, server.url], stdout=subprocess.PIPE, text=True)
        try:
            assert tool.stdout.readline() == "put\n"
            assert stands(server) == 8192
            assert restore_interrupted() == []  # its process lives
            tool.send_signal(signal.SIGKILL)
            tool.wait()
            said = " ".join(map(str, restore_interrupted()))
            assert "case: killed" in said or "case killed" in said
            assert "as it was before" in said
            assert stands(server) == changed
            assert restore_interrupted() == []
        finally:
            tool.kill()
            tool.wait()
            tool.stdout.close()


def test_a_server_that_is_gone_is_said_and_not_waited_for(home):
    note = {
        "owner": 1,
        "owner_created": 1.0,
        "case": "c",
        "standing": {"backend": "ollama", "url": "http://127.0.0.1:1", "model": "m", "before": {"loaded": True}},
    }
    notes_home().mkdir(parents=True)
    (notes_home() / "a.json").write_text(json.dumps(note))
    begun = time.monotonic()
    said = " ".join(map(str, restore_interrupted()))
    assert "could not be put back" in said
    assert time.monotonic() - begun < 8
    assert list(notes_home().iterdir()) == []


# -- lms load ---------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "unloads"),
    [
        (("lms", "load", "qwen/qwen3-8b", "--context-length", "8192"), ["lms", "unload", "qwen/qwen3-8b"]),
        (("/opt/lms", "load", "m", "--identifier", "mine"), ["/opt/lms", "unload", "mine"]),
        (("lms", "load", "m", "--identifier=mine"), ["lms", "unload", "mine"]),
        (("lms", "server", "start"), None),
        (("llama-server", "-m", "x.gguf"), None),
    ],
)
def test_what_lms_loaded_is_unloaded_before_it_loads_again(command, unloads):
    assert unload_command(command) == unloads


def test_lms_loads_the_users_model_again_at_the_end(home):
    """Law: unload, then the very command of the user; what the experiment loaded does not stay beside it."""
    log = home / "log"
    lms = home / "lms"
    lms.write_text(f'#!/bin/sh\necho "$@" >> {log}\n')
    lms.chmod(0o755)
    told = Told()
    command = (str(lms), "load", "m", "--context-length", "4096")
    with (
        Case.create("flaky", tool_version="1", name="a") as case,
        restoring(case, command, {}, told, lambda _said: True),
    ):
        pass
    assert log.read_text().splitlines() == ["unload m", "load m --context-length 4096"]
    assert "loaded again by your own command" in told.text
    lms.write_text("#!/bin/sh\nexit 3\n")
    with (
        Case.create("flaky", tool_version="1", name="b") as case,
        restoring(case, command, {}, told, lambda _said: True),
    ):
        pass
    assert "Load it yourself" in told.text


# -- what is printed ----------------------------------------------------------------------------------------------------------------------------


def test_ollamas_own_ways_go_before_the_environment_of_its_server():
    """A Modelfile's window wins over OLLAMA_CONTEXT_LENGTH, so the environment alone is no instruction."""
    step = NextTest(kind="change", variable="ctx", start=4096, to=16_384, cost=Cost(minutes=1), reason="")
    evidence = EvidenceSet(
        [
            found(BackendIdentity(name="ollama"), source="server"),
            found(ModelIdentity(name="m"), source="server"),
            found(Configuration(command=("ollama", "serve")), source="process"),
        ]
    )
    made = with_command(step, evidence)
    assert "PARAMETER num_ctx 16384" in made.command
    assert "PARAMETER num_ctx 4096" in made.undo
    kv = step.model_copy(update={"variable": "kv_type", "start": "f16", "to": "q8_0"})
    assert "OLLAMA_KV_CACHE_TYPE=q8_0 ollama serve" in with_command(kv, evidence).command
    # one number is both batch sizes of its runner
    batch = step.model_copy(update={"variable": "ubatch", "start": 2048, "to": 512})
    assert "PARAMETER num_batch 512" in with_command(batch, evidence).command


@pytest.mark.parametrize(
    ("asked", "default", "told"), [(4096, None, False), (4096, 8192, False), (None, None, True), (8192, 8192, True)]
)
def test_where_a_model_sets_its_window_the_environment_is_no_way_to_change_it(asked, default, told):
    """It would do nothing: what the Modelfile says goes before it. Where the model sets none, both ways are told."""
    step = NextTest(kind="change", variable="ctx", start=4096, to=16_384, cost=Cost(minutes=1), reason="")
    evidence = EvidenceSet(
        [
            found(BackendIdentity(name="ollama"), source="server"),
            found(ModelIdentity(name="m"), source="server"),
            found(WindowReading(asked=asked, default=default), source="server"),
        ]
    )
    made = with_command(step, evidence)
    assert "PARAMETER num_ctx 16384" in made.command
    assert ("OLLAMA_CONTEXT_LENGTH" in made.command) is told
    assert ("OLLAMA_CONTEXT_LENGTH" in made.undo) is told


def test_llama_manager_is_told_by_reload():
    step = NextTest(kind="change", variable="ctx", start=4096, to=16_384, cost=Cost(minutes=1), reason="")
    evidence = EvidenceSet(
        [
            found(BackendIdentity(name="llama-manager"), source="server"),
            found(ModelIdentity(name="big"), source="server"),
        ]
    )
    made = with_command(step, evidence)
    assert "/reload" in made.command
    assert '"n_ctx": 16384' in made.command
    assert '"n_ctx": 4096' in made.undo


def test_the_command_of_a_case_is_what_a_person_starts(home):
    """Not the command line of a child that the server started by itself."""
    with Case.create("flaky", tool_version="1", name="a") as case:
        case.append("run", {"options": {}}, run=1)
        case.add(found(Configuration(command=("llama-server", "--port", "5")), source="server", run=1))
        case.add(found(BackendIdentity(name="ollama"), source="server", run=1))
        assert command_of(case, 1) is None
        case.add(found(Configuration(command=("ollama", "serve")), source="process", run=1))
        assert command_of(case, 1) == ("ollama", "serve")


@pytest.mark.parametrize(
    ("command", "variable", "value", "becomes"),
    [
        ("vllm serve m --max-model-len 8192", "ctx", 16_384, "vllm serve m --max-model-len 16384"),
        ("vllm serve m --kv-cache-dtype=fp8", "kv_type", "auto", "vllm serve m --kv-cache-dtype=auto"),
        (
            "python -m mlx_lm server --model m",
            "batch",
            512,
            "python -m mlx_lm server --model m --prefill-step-size 512",
        ),
        ("lms load m --context-length 4096", "ctx", 8192, "lms load m --context-length 8192"),
        ("OLLAMA_NUM_PARALLEL=4 ollama serve", "parallel", 1, "OLLAMA_NUM_PARALLEL=1 ollama serve"),
        ("nice -n 5 llama-server --parallel=4", "parallel", 1, "nice -n 5 llama-server --parallel=1"),
    ],
)
def test_servers_that_are_started_again_have_one_flag_changed(command, variable, value, becomes):
    means = ByCommand(tuple(shlex.split(command)))
    changed = means.changed(variable, value)
    assert changed.shown() == becomes == means.steps(variable, value)
    assert changed.put(RunOptions(launch=means.command)).launch == changed.command
    assert changed.changed(variable, value) is changed


def test_what_a_person_launched_is_what_is_printed(home):
    """Law: wrappers, folder and variables of --launch stay in the printed command; of a process, the variables that hold for it."""
    step = NextTest(kind="change", variable="parallel", start=2, to=1, cost=Cost(minutes=1), reason="")
    shell = ("sh", "-c", 'cd "a b" && exec llama-server -m "$M" -np 2')
    process = parse_command(("llama-server", "-m", "m", "-np", "2"), {"LLAMA_ARG_CTX_SIZE": "2048", "HOME": "/root"})
    launched = found(parse_command(shell), source="process", origin="launch command")
    seen = found(process, source="process", origin="process 7")
    assert with_command(step, EvidenceSet([launched, seen])).command == shlex.join(
        ("sh", "-c", 'cd "a b" && exec llama-server -m "$M" -np 1')
    )
    made = with_command(step, EvidenceSet([seen]))
    assert made.command == "LLAMA_ARG_CTX_SIZE=2048 llama-server -m m -np 1"
    assert made.undo == "LLAMA_ARG_CTX_SIZE=2048 llama-server -m m -np 2"
    ctx = step.model_copy(update={"variable": "ctx", "start": 2048, "to": 4096})
    assert with_command(ctx, EvidenceSet([seen])).command == "LLAMA_ARG_CTX_SIZE=4096 llama-server -m m -np 2"


def test_only_what_the_interface_takes_is_chosen(home):
    """Slots of Ollama are in its environment: nothing that its requests could change."""
    with (
        OllamaLike(window=1024) as server,
        Http(server.url) as http,
        Case.create("forgetting", tool_version="1", name="a") as case,
    ):
        case.append("run", {"options": {}}, run=1)
        means = ByInterface(standing_of(recognise(http)))
        assert choose(case, 1, means, set(), RunOptions(target=4096)) is None
    assert Path(os.fspath(home)).exists()
