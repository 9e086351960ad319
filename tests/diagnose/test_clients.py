"""What clients believe beside what the server has: read where a file was named or a plain yes was given, and never else."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from diagnose import interview
from diagnose.case import Case
from diagnose.cli import command_line
from diagnose.clients import add_named, at_home, clients_of, said_of
from diagnose.document import document_of
from diagnose.history import settle
from diagnose.options import RunOptions
from diagnose.prompter import Way
from diagnose.readback import difference, read_back
from diagnose.running import Walk
from diagnose.steps import with_command
from diagnose.ui import Silent
from diagnose.watching import _behind
from probes.evidence.client import ClientModel, ClientSettings, WatchSummary
from probes.evidence.errors import BadFileError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import TruncationReading
from probes.evidence.rungs import Criteria, RungResult
from probes.evidence.subject import BackendIdentity, ModelIdentity, WindowReading
from reports.document import ClientValues
from rules.catalogue import facts_of, judge_evidence, rule_of
from rules.engine import outcome_of
from rules.verdict import Cost, NextTest, expectations_of
from tests.diagnose.llama_like import LlamaLike
from tests.diagnose.test_interview import SERVER, Scripted, performed, walked

QUESTION = "settings files of clients"
URL = "http://127.0.0.1:8080"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    """A home with OpenCode's and Codex's settings at their usual places, the one about this server, the other not."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    opencode(tmp_path / ".config" / "opencode" / "opencode.json", URL)
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text(
        'model = "gpt"\nmodel_provider = "cloud"\nmodel_context_window = 272000\n'
        '[model_providers.cloud]\nbase_url = "https://api.example.com/v1"\nenv_key = "SECRET_KEY"\n'
    )
    return tmp_path


def opencode(path: Path, url: str, context: int = 131_072) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    limit = {"context": context, "output": 8192}
    options = {"baseURL": f"{url}/v1", "apiKey": "sk-very-secret"}
    told = {"provider": {"local": {"options": options, "models": {"some-model": {"limit": limit}}}}}
    path.write_text(json.dumps({"$schema": "https://opencode.ai/config.json"} | told))
    return path


@pytest.fixture
def opened(monkeypatch):
    """The names of settings files that were opened."""
    names: list[str] = []
    real = io.open

    def watch(file: Any, *more: Any, **named: Any) -> Any:
        name = Path(str(file)).name
        if name in {"opencode.json", "config.toml"}:
            names.append(name)
        return real(file, *more, **named)

    monkeypatch.setattr(io, "open", watch)
    return names


def person(client: str, may: Any) -> Scripted:
    script = {"What goes wrong": "forgetting", "Which kind of program": client, QUESTION: may}
    return Scripted({title: given for title, given in script.items() if given is not None})


def walk(who: Scripted, monkeypatch) -> dict[str, Any]:
    performed(monkeypatch)
    measured = interview.perform

    def seen(case: Case, *given: Any, **named: Any) -> Walk:
        one = measured(case, *given, **named)
        case.add(found(BackendIdentity(name="llama.cpp", url=URL), source="server", run=one.run))
        return one

    monkeypatch.setattr(interview, "perform", seen)
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    walked(who, [SERVER])
    with Case.open("one", read_only=True) as case:
        return json.loads(document_of(case).to_json())


# -- consent ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("may", ["no", Way.DO_NOT_KNOW, None])
def test_nothing_is_read_without_a_plain_yes(may, monkeypatch, opened):
    """Law: no, "I don't know" and Enter alone (no is what stands there) open no file; the question names them all."""
    who = person("agent", may)
    document = walk(who, monkeypatch)
    (asked,) = [screen for screen in who.screens if QUESTION in screen.title]
    assert "~/.config/opencode/opencode.json (opencode)" in asked.title
    assert "~/.codex/config.toml (codex)" in asked.title
    assert asked.chosen == ("no",)
    assert asked.do_not_know
    assert opened == []
    assert document["clients"] == []
    assert not [one for one in document["evidence"] if one["kind"] == "client_settings"]


def test_a_yes_holds_them_against_the_server_and_is_asked_once(monkeypatch, opened, home):
    who = person("agent", [Way.HELP, "yes"])
    document = walk(who, monkeypatch)
    assert set(opened) == {"opencode.json", "config.toml"}
    assert any("keys are not read" in text for text in who.told)
    mine, other = sorted(document["clients"], key=lambda one: not one["applies"])
    assert (mine["client"], mine["context"], mine["output"], mine["applies"]) == ("opencode", 131_072, 8192, True)
    assert (other["client"], other["applies"], other["context"], other["base_url"]) == ("codex", False, None, None)
    assert "codex: its settings file has no entry for this server and model." in document["notes"]
    assert "very-secret" not in json.dumps(document)
    assert "SECRET_KEY" not in json.dumps(document)
    again = person("agent", "no")
    walked(again, [SERVER])
    assert sum(QUESTION in screen.title for screen in who.screens) == 2  # once for help
    assert not [screen for screen in again.screens if QUESTION in screen.title]


def test_without_a_server_there_is_nothing_to_hold_them_against(monkeypatch, opened):
    who = person("agent", "yes")
    who.script["Which one is it about"] = ["nothing"]
    monkeypatch.setattr(interview, "ask_further", lambda _talk, _one: None)
    walked(who, [])
    assert not [screen for screen in who.screens if QUESTION in screen.title]
    assert opened == []


@pytest.mark.parametrize("client", ["script", "own-page", "benchmark", Way.DO_NOT_KNOW])
def test_who_has_no_such_client_is_not_asked(client, monkeypatch, opened):
    who = person(client, "yes")
    walk(who, monkeypatch)
    assert not [screen for screen in who.screens if QUESTION in screen.title]
    assert opened == []


def test_where_there_is_no_such_file_nobody_is_asked(monkeypatch, home):
    (home / ".config" / "opencode" / "opencode.json").unlink()
    (home / ".codex" / "config.toml").unlink()
    who = person("agent", "yes")
    walk(who, monkeypatch)
    assert not [screen for screen in who.screens if QUESTION in screen.title]


def test_at_most_seven_screens_stand_before_the_first_probe_with_such_files(monkeypatch):
    who = person("agent", "no")
    walk(who, monkeypatch)
    start = next(number for number, screen in enumerate(who.screens) if screen.title == "Start?")
    assert start <= 7
    assert [number > start for number, screen in enumerate(who.screens) if QUESTION in screen.title] == [True]


def test_a_file_that_cannot_be_read_is_said_and_the_walk_goes_on(monkeypatch, home):
    (home / ".codex" / "config.toml").write_text("= no toml")
    document = walk(person("agent", "yes"), monkeypatch)
    assert [one["client"] for one in document["clients"]] == ["opencode"]
    assert any("config.toml" in (one["unavailable"] or {}).get("note", "") for one in document["evidence"])


# -- named files --------------------------------------------------------------------------------------------------------------------------


def test_a_named_file_is_evidence_of_the_run_and_stands_in_the_report(home, capsys):
    with LlamaLike(512) as server:
        file = opencode(home / "agent" / "opencode.json", server.url)
        asked = ["--ladder", "256", "--budget", "4s", "--case", "r", "--quiet"]
        command_line(["run", server.url, "--client", str(file), *asked, "--format", "json"])
    document = json.loads(capsys.readouterr().out)
    assert [(one["client"], one["applies"], one["context"]) for one in document["clients"]] == [
        ("opencode", True, 131_072)
    ]
    facts = {
        fact["id"]: fact["found"]
        for cause in document["verdict"]["causes"]
        for clue in cause["clues"]
        for fact in clue["facts"]
    }
    assert facts["client.window_of_in_force"] == 256.0
    said = (
        "opencode reckons with a window of 131,072 tokens and the server has 512: what lies between is refused or cut."
    )
    assert said in document["notes"]
    command_line(["report", "r", "--out", "-", "--format", "md"])
    text = capsys.readouterr().out
    assert "window 131,072 tokens, answer 8,192 tokens" in text
    assert str(home) not in text
    command_line(["report", "r", "--out", "-", "--format", "md", "--lang", "ko"])
    korean = capsys.readouterr().out
    assert "131,072" in korean
    assert "reckons" not in korean
    assert "very-secret" not in json.dumps(document) + text + korean


def test_a_wrong_file_is_2_before_anything_is_sent(home, capsys):
    (home / "x.json").write_text("{}")
    with LlamaLike(512) as server:
        for command in (
            ["run", server.url],
            ["check", server.url],
            ["triage", "--symptom", "flaky"],
            ["watch", server.url],
        ):
            assert command_line([*command, "--client", str(home / "x.json")]) == 2
            assert len(capsys.readouterr().err.splitlines()) == 1
        assert server.asked == []


def test_no_command_reads_a_file_at_its_usual_place_unasked(opened, capsys):
    """Law: neither ``run`` nor ``check`` nor ``triage`` looks there by itself."""
    with LlamaLike(512) as server:
        command_line(["run", server.url, "--ladder", "256", "--budget", "3s", "--quiet", "--format", "json"])
        command_line(["check", server.url, "--quiet"])
    command_line(["triage", "--symptom", "forgetting", "--format", "json"])
    capsys.readouterr()
    assert opened == []


def test_triage_takes_a_named_file(home, capsys):
    file = opencode(home / "opencode.json", URL)
    assert command_line(["triage", "--client", str(file), "--format", "json"]) in {1, 4}
    document = json.loads(capsys.readouterr().out)
    assert [one["context"] for one in document["clients"]] == [131_072]


def test_a_run_that_goes_on_does_not_read_it_twice_and_a_file_that_is_gone_is_said(home):
    file = opencode(home / "opencode.json", URL)
    with Case.create("forgetting", tool_version="1", name="x") as case:
        options = RunOptions(clients=(str(file), str(home / "gone.json")))
        case.append("run", {"options": options.model_dump(mode="json")}, run=1)
        one = Walk(case, options, Silent(), Criteria())
        add_named(one)
        add_named(one)
        pieces = [piece for piece in case.evidence(1).all if piece.kind == ClientSettings.kind]
    assert [piece.data is not None for piece in pieces] == [True, False]
    assert "gone.json" in pieces[1].unavailable.note


# -- what follows from it -----------------------------------------------------------------------------------------------------------------


def believing(context: int | None, url: str = URL, **more: Any) -> Any:
    model = ClientModel(model="m", base_url=url, context=context, **more)
    return found(ClientSettings(client="opencode", path="/x/opencode.json", models=(model,)), source="file")


def watched(requests: int, errors: dict[str, int] | None = None) -> Any:
    return found(WatchSummary(requests=requests, errors=errors or {}), source="measured")


def rung(tokens: int) -> Any:
    one = RungResult(rung=tokens, input_tokens=tokens, attempt=1, result="passed", prefill_tps=500.0, cold=True)
    return found(one, source="measured")


def server(window: int) -> list[Any]:
    return [
        found(BackendIdentity(name="llama.cpp", url=URL), source="server"),
        found(ModelIdentity(name="m"), source="server"),
        found(WindowReading(in_force=window), source="server"),
    ]


def test_only_the_entry_about_this_server_speaks_for_a_mismatch():
    """Law: the same settings about another server change nothing in the verdict."""
    about = judge_evidence(EvidenceSet([*server(16_384), believing(131_072)]), "run")[0].of("client-ctx-mismatch")
    other = judge_evidence(EvidenceSet([*server(16_384), believing(131_072, "http://10.0.0.9:1")]), "run")[0]
    none = judge_evidence(EvidenceSet(server(16_384)), "run")[0]
    assert about.now >= none.of("client-ctx-mismatch").now + 10
    assert other.of("client-ctx-mismatch").now == none.of("client-ctx-mismatch").now


def test_what_a_person_changes_in_the_client_is_seen_by_a_rerun():
    """The next test of that cause changes the client's window: it is one variable, read back."""
    before, after = (read_back(EvidenceSet([*server(16_384), believing(n)])) for n in (131_072, 16_384))
    changed = difference(before, after).single
    assert (changed.name, changed.before, changed.after) == ("client.ctx", 131_072, 16_384)
    once = difference(before, read_back(EvidenceSet(server(16_384))))
    assert once.variables == ()
    assert "client.ctx" in once.unread


def test_the_next_test_says_where_in_the_clients_settings():
    """Law: what is to be changed is named with its file and its setting, and so is the way back; without such a file nothing is."""
    step = NextTest(
        kind="change",
        variable="client.ctx",
        start=131_072,
        to=16_384,
        cost=Cost(minutes=5, quality="none"),
        reason="so",
    )
    told = with_command(step, EvidenceSet([*server(16_384), believing(131_072)]))
    assert told.command.splitlines() == [
        "In the settings of opencode (/x/opencode.json), set limit.context of this model to 16384.",
        "Then measure again, so that the change is seen: ctxdoctor rerun --client /x/opencode.json",
    ]
    assert told.undo == "In the settings of opencode (/x/opencode.json), set limit.context of this model to 131072."
    assert with_command(step, EvidenceSet([*server(16_384), believing(131_072, "http://10.0.0.9:1")])) == step


def test_a_change_in_the_client_is_neither_proved_nor_disproved_by_the_server():
    """Law: a probe's own overlong prompt says nothing of the client; only the client's own requests do. The change is not called a loss."""
    expected = rule_of("client-ctx-mismatch").tests[0].expects[0]
    refused = found(TruncationReading(verdict="refused", sent=20_000, window=16_384), source="measured")
    seen = [[refused], [watched(3)], [watched(3, {"exceeds-window": 2})]]
    outcomes = [outcome_of(expected.when, facts_of(EvidenceSet([*server(16_384), *more]))) for more in seen]
    assert outcomes == ["cannot-tell", "held", "failed"]
    with Case.create("forgetting", tool_version="1", name="x") as case:
        for run, believed in ((1, 131_072), (2, 16_384)):
            case.append("run", {"options": {}}, run=run)
            for piece in (*server(16_384), believing(believed), rung(4096)):
                case.add(piece.model_copy(update={"run": run}))
            case.add(found(read_back(case.evidence(run)), source="measured", run=run))
            if run == 1:
                step = NextTest(
                    kind="change",
                    variable="client.ctx",
                    start=131_072,
                    to=16_384,
                    cost=Cost(minutes=5, quality="none"),
                    reason="so",
                    expects=expectations_of([expected], facts_of(case.evidence(1))),
                )
                case.append("next-test", step.model_dump(mode="json"), run=1)
            made = settle(case, run)
            case.append("run-ended", {}, run=run)
    assert [one.name for one in made.variables] == ["client.ctx"]
    assert (made.prediction, made.kept) == ("cannot-tell", None)
    assert "ctxdoctor watch" in " ".join(made.notes)


@pytest.mark.parametrize(
    ("client", "window", "said"),
    [
        ({"applies": False}, 8192, ["no entry"]),
        ({"applies": True}, 8192, ["name no window"]),
        ({"applies": True, "context": 8192, "output": 1024}, 8192, []),
        ({"applies": True, "context": 131_072}, 8192, ["refused or cut"]),
        ({"applies": True, "context": 2048}, 8192, ["too early"]),
        ({"applies": True, "context": 8192, "output": 8192}, 8192, ["leaves little"]),
        ({"applies": True, "context": 131_072, "output": 8192}, None, []),
    ],
)
def test_what_is_said_of_a_belief(client, window, said):
    told = [one.english for one in said_of(ClientValues(client="aider", **client), window)]
    assert len(told) == len(said)
    assert all(part in text for part, text in zip(said, told, strict=True))


def test_the_newest_reading_of_a_file_counts():
    values = clients_of(EvidenceSet([*server(8192), believing(131_072), believing(8192)]))
    assert [one.context for one in values] == [8192]


def test_a_client_that_points_at_the_watch_is_about_the_server_behind_it():
    settings = believing(8192, "http://localhost:9001/v1").payload()
    moved = _behind(settings, "http://127.0.0.1:9001", "8080")
    assert moved.belief(URL).context == 8192
    assert settings.belief(URL) is None


def test_a_file_of_the_home_folder_is_named_without_it(home):
    assert at_home(str(home / "a" / "b.json")) == "~/a/b.json"
    assert at_home("/etc/b.json") == "/etc/b.json"


def test_a_file_that_was_named_wrongly_is_one_typed_line(home):
    from diagnose.clients import read_named

    with pytest.raises(BadFileError) as caught:
        read_named([str(home / "nothing.json")])
    assert "\n" not in str(caught.value)
