"""Triage takes whatever a user has, never a network; each wrong thing is one line, and the line that shows the cause is in the report."""

from __future__ import annotations

import io
import json
import socket
import sys
import time
import tomllib

import pytest

from diagnose.case import JOURNAL, Case
from diagnose.cli import command_line
from diagnose.export import exported
from diagnose.judging import judge_run
from diagnose.options import RunOptions
from diagnose.questions import question
from diagnose.running import Walk
from diagnose.triage import FIRST_STEPS, assemble, gather, judge_gathered, of_backend, of_command, of_document
from probes.backends.recognise import BACKENDS
from probes.evidence.answers import Answer
from probes.evidence.changes import JudgedAs
from probes.evidence.client import ClientSettings
from probes.evidence.errors import BadFileError, CaseNewerError, InputError
from probes.evidence.events import LogEvent, LogSummary
from probes.evidence.records import EvidenceSet, found
from probes.evidence.rungs import Criteria
from probes.evidence.subject import Configuration, WindowReading
from rules.verdict import Verdict
from tests.replay import REPORTS

LOG = """\
main: server is starting
llama_context: n_ctx         = 65536
llama_kv_cache:      CUDA0 KV buffer size = 16384.00 MiB
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
"""
FAILING_LINE = 4


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def log(home):
    path = home / "server.log"
    path.write_text(LOG)
    return path


def triaged(capsys, *arguments):
    """Run triage and give its exit code, its document and what it said."""
    code = command_line(["triage", *map(str, arguments), "--format", "json"])
    told = capsys.readouterr()
    return code, json.loads(told.out) if told.out else None, told.err


def one_line(error: str) -> bool:
    return len(error.strip().splitlines()) == 1 and "Traceback" not in error and error.startswith("ctxdoctor: ")


# -- what is given ------------------------------------------------------------------------------------------------------------------------


def test_the_line_that_shows_the_cause_is_in_the_report_with_its_number(log, capsys):
    code, document, _said = triaged(capsys, log, "--symptom", "immediate-oom")
    assert code in {1, 4}
    assert {"log": "server.log", "line": FAILING_LINE}.items() <= {
        k: v for one in document["log_lines"] if "cudaMalloc failed" in one["text"] for k, v in one.items()
    }.items()
    assert document["case"]["symptom"] == "immediate-oom"
    assert document["rungs"] == []
    assert document["verdict"]["causes"][0]["clues"]


def test_the_terminal_shows_the_line_and_what_to_do_next(log, capsys):
    assert command_line(["triage", str(log), "--symptom", "immediate-oom", "--quiet"]) == 4
    out = capsys.readouterr().out
    assert f"server.log:{FAILING_LINE}" in out
    assert "Most useful next" in out


def test_a_line_that_only_speaks_for_one_cause_is_quoted_whatever_kind_it_is(home, capsys):
    """Law: a line on which a clue for a leading cause rests is worth quoting, also where its kind alone is not."""
    report = tomllib.loads((REPORTS / "ik-749-sched-max-copies-280gb.toml").read_text())
    (home / "a.toml").write_text("\n".join(f"{k} = {json.dumps(v)}" for k, v in report["answers"].items()))
    (home / "s.log").write_text(report["log"])
    code, document, _said = triaged(capsys, "s.log", "--answers", "a.toml")
    assert code == 1
    assert document["verdict"]["named"] == [report["cause"]]
    cited = {
        fact["source"]
        for clue in document["verdict"]["causes"][0]["clues"]
        for fact in clue["facts"]
        if clue["weight"] > 0
    }
    assert "log" in cited
    assert document["log_lines"]


def test_a_pasted_report_gives_its_own_line_numbers_and_its_prose_as_answers(home, capsys):
    text = f"# It dies\n\nOut of memory at load with `llama-server -m m.gguf -c 65536`.\n\n```\n{LOG}```\n"
    (home / "issue.md").write_text(text)
    _code, document, _said = triaged(capsys, "issue.md")
    lines = text.split("\n")
    for one in document["log_lines"]:
        assert one["line"] is None or " ".join(one["text"].split()) in " ".join(lines[one["line"] - 1].split())
    assert any(one["line"] for one in document["log_lines"])
    assert any(one["kind"] == "answer" and one["source"] == "report" for one in document["evidence"])


def test_standard_input_is_read_once(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(LOG.encode())))
    _code, document, _said = triaged(capsys, "-")
    assert any("cudaMalloc" in one["text"] for one in document["log_lines"])
    code, _document, said = triaged(capsys, "-", "--log", "-")
    assert code == 2
    assert one_line(said)


def test_answers_may_be_a_file_among_the_others_or_the_option(home, log, capsys):
    (home / "a.toml").write_text('symptom = "immediate-oom"\nwhen = ["at-load"]\n')
    _code, one, _said = triaged(capsys, log, "a.toml")
    _code, other, _said = triaged(capsys, log, "--answers", "a.toml")
    assert one["case"]["symptom"] == other["case"]["symptom"] == "immediate-oom"
    assert one["verdict"]["causes"] == other["verdict"]["causes"]


def test_an_exported_case_and_a_folder_are_judged_again_to_the_same_verdict(log, home, capsys):
    _code, first, _said = triaged(capsys, log, "--symptom", "immediate-oom")
    (home / "case.json").write_text(json.dumps(first))
    _code, from_document, _said = triaged(capsys, "case.json")
    _code, from_folder, _said = triaged(capsys, home.parent / "home" / "cases" / first["case"]["id"])
    _code, from_name, _said = triaged(capsys, first["case"]["id"])
    (home / "sent.txt").write_bytes(
        (home.parent / "home" / "cases" / first["case"]["id"] / JOURNAL).read_bytes() + b'{"torn'
    )
    _code, from_journal, _said = triaged(capsys, "sent.txt")
    for again in (from_document, from_folder, from_name, from_journal):
        assert again["case"]["symptom"] == "immediate-oom"
        assert [(c["id"], c["now"]) for c in again["verdict"]["causes"]] == [
            (c["id"], c["now"]) for c in first["verdict"]["causes"]
        ]


def test_a_case_with_records_that_nobody_knows_is_read_as_far_as_it_goes():
    good = found(Answer(question="symptom", value="flaky"), source="user").model_dump(mode="json")
    document = {
        "schema_version": 1,
        "case": {"id": "x"},
        "evidence": [
            good,
            {"kind": "rung", "source": "measured", "data": {"nonsense": 1}},
            {"kind": "not-invented-yet", "source": "measured", "data": {}},
            7,
        ],
    }
    evidence = EvidenceSet(of_document(json.dumps(document), "x.json"))
    assert evidence.last(Answer).value == "flaky"
    assert any(one.unavailable and "3 records" in one.unavailable.note for one in evidence.all)
    with pytest.raises(BadFileError, match="none of its"):
        of_document(json.dumps(document | {"evidence": [7]}), "x.json")
    with pytest.raises(CaseNewerError, match="newer"):
        of_document(json.dumps(document | {"schema_version": 99}), "x.json")


def test_the_last_run_of_a_case_is_judged_with_what_was_said_before_any():
    pieces = [
        found(Answer(question="symptom", value="flaky"), source="user", run=0),
        found(WindowReading(in_force=4096), source="server", run=1),
        found(WindowReading(in_force=8192), source="server", run=2),
    ]
    text = json.dumps({"schema_version": 1, "evidence": [one.model_dump(mode="json") for one in pieces]})
    evidence = EvidenceSet(of_document(text, "x.json"))
    assert [w.in_force for _r, w in evidence.of(WindowReading)] == [8192]
    assert evidence.last(Answer).value == "flaky"


def test_a_clients_settings_are_taken_as_what_the_client_believes(home):
    settings = {
        "$schema": "https://opencode.ai/config.json",
        "provider": {"local": {"models": {"m": {"limit": {"context": 131072, "output": 8192}}}}},
    }
    (home / "opencode.json").write_text(json.dumps(settings))
    gathered = gather(["opencode.json"])
    told = EvidenceSet(gathered.evidence).last(ClientSettings)
    assert [one.context for one in told.models] == [131072]


def test_a_command_gives_settings_and_the_next_command(log, capsys):
    command = "llama-server -m m.gguf -c 65536 -ngl 99 -np 2"
    _code, document, _said = triaged(capsys, log, "--command", command, "--symptom", "immediate-oom")
    assert document["subject"]["window"]["asked"] == 65536
    assert document["subject"]["backend"]["command"] == command.split()
    evidence = EvidenceSet(of_command(command))
    assert evidence.last(Configuration).settings["parallel"].value == 2
    assert {one.source for one in evidence.all} == {"user"}
    with pytest.raises(InputError, match="starts no server"):
        of_command("rm -rf /")


def test_every_server_that_is_recognised_can_be_named():
    choices = question("backend").choice_ids()
    assert set(BACKENDS) <= set(choices)
    for name in choices:
        assert of_backend(name)[1].data["value"] == name
    with pytest.raises(InputError, match="--backend takes"):
        of_backend("llamma.cpp")


def test_a_log_is_read_as_a_log_where_that_is_said(home):
    """Law: --log does not guess; prose in it becomes no answers."""
    (home / "x.txt").write_text("I ran out of memory when loading the model, said the fox.\n" + LOG)
    gathered = gather(logs=["x.txt"])
    assert {one.kind for one in gathered.evidence} == {LogEvent.kind, LogSummary.kind}


# -- nothing, and wrong things --------------------------------------------------------------------------------------------------------------


def test_no_evidence_at_all_ends_with_4_and_the_three_most_useful_things(capsys):
    code, document, _said = triaged(capsys)
    assert code == 4
    assert document["verdict"]["named"] == []
    assert document["verdict"]["would_decide"] == [one.english for one in FIRST_STEPS]
    assert len(FIRST_STEPS) == 3
    assert document["next_test"] is not None


def test_an_empty_file_is_no_evidence_and_says_so(home, capsys):
    (home / "empty.log").write_text("")
    code, document, said = triaged(capsys, "empty.log")
    assert code == 4
    assert "empty.log is empty" in said
    assert len(document["verdict"]["would_decide"]) == 3


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x7fELF" + bytes(range(256)) * 50, "program"),
        (b"GGUF" + bytes(200), "GGUF"),
        (bytes(range(256)) * 300, "binary"),
    ],
)
def test_a_binary_file_is_refused_in_one_line(home, capsys, content, word):
    (home / "x.log").write_bytes(content)
    code, document, said = triaged(capsys, "x.log")
    assert (code, document) == (2, None)
    assert one_line(said)
    assert word in said


def test_one_bad_file_does_not_spoil_the_others(log, home, capsys):
    (home / "x.bin").write_bytes(b"\x7fELF" + bytes(range(256)) * 50)
    code, document, said = triaged(capsys, "x.bin", log, "missing.log", "--symptom", "immediate-oom")
    assert code in {1, 4}
    assert "x.bin is a program" in said
    assert "missing.log" in said
    assert any("cudaMalloc" in one["text"] for one in document["log_lines"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["missing.log"],
        ["."],
        ["a\0b"],
        ["x" * 5000],
        ["--symptom", "headache"],
        ["--backend", "llamma"],
        ["--command", "not a server"],
        ["--answers", "wrong.toml"],
        ["--answers", "missing.toml"],
        ["wrong.toml"],
        ["newer.json"],
        ["--format", "pdf"],
        ["--case", "taken", "--symptom", "flaky"],
        ["--case", "../../x", "--symptom", "flaky"],
    ],
    ids=lambda a: " ".join(a)[:30].replace("\0", "NUL"),
)
def test_what_is_wrong_is_one_line_and_2(home, capsys, arguments):
    (home / "wrong.toml").write_text('symptom = "flaky"\nhow_bad = "very"\n')
    (home / "newer.json").write_text(json.dumps({"schema_version": 99, "case": {"id": "x"}, "evidence": []}))
    Case.create(None, tool_version="1", name="taken").close()
    assert command_line(["triage", *arguments]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert one_line(told.err)


def test_a_wrong_key_in_an_answers_file_is_said_with_its_line(home, capsys):
    (home / "a.toml").write_text('symptom = "flaky"\n\nhow_bad = "very"\n')
    command_line(["triage", "--answers", "a.toml"])
    assert "a.toml, line 3" in capsys.readouterr().err


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_a_long_log_is_read_whole_in_a_few_seconds(home, how, monkeypatch):
    noise = "slot update_slots: id 0 | task 1 | prompt processing progress, n_tokens = 2048\nnothing here\n" * 300
    path = home / "long.log"
    with path.open("w") as file:
        for _ in range(300):
            file.write(noise)
        file.write(LOG)
    assert path.stat().st_size > 8e6  # more than a report may have
    started = time.process_time()
    if how == "stdin":
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    gathered = gather([str(path) if how == "file" else "-"])
    assert time.process_time() - started < 8
    evidence = EvidenceSet(gathered.evidence)
    failed = [event for _r, event in evidence.of(LogEvent) if event.event == "alloc-failed"]
    assert failed[0].line == 300 * 600 + FAILING_LINE
    assert len(gathered.evidence) < 3000


def test_no_connection_is_made(log, capsys, monkeypatch):
    def refuse(*_arguments):
        raise AssertionError("triage tried to reach a network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    code, _document, _said = triaged(
        capsys, log, "--symptom", "immediate-oom", "--command", "llama-server -m m.gguf -c 65536"
    )
    assert code in {1, 4}


def test_the_case_is_kept_and_can_be_gone_on_with(log, capsys):
    command_line(["triage", str(log), "--case", "mine", "--symptom", "immediate-oom", "--quiet"])
    capsys.readouterr()
    case = Case.open("mine", read_only=True)
    assert case.symptom == "immediate-oom"
    assert case.has_ended(1)
    assert (case.folder / "case.json").is_file()
    assert (case.folder / "report.md").is_file()
    assert case.evidence(2).last(Answer).value == "immediate-oom"
    assert case.evidence(2).last(LogEvent) is None


def test_what_is_in_memory_and_what_is_in_files_is_the_same_evidence(log):
    """Law: the replay's assembly and the command's differ in names and runs, not in what is said."""
    answers = [Answer(question="symptom", value="immediate-oom")]
    one = assemble(answers=answers, log=LOG, name="server.log")
    other = gather([str(log)], answers=answers).evidence

    def said(evidence):
        return sorted(
            (piece.kind, piece.source, json.dumps(piece.data, sort_keys=True))
            for piece in evidence
            if piece.kind != "log_summary"
        )

    assert said(one) == said(other)


@pytest.mark.parametrize("mode", ["run", "session", "triage"])
def test_an_exported_case_is_judged_as_it_was(tmp_path, monkeypatch, mode):
    """Law: what a case's own report names, triage of its export names; with something added to it, it is judged anew."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    with Case.create("fixed-length-error", tool_version="1", name="measured") as case:
        case.append("run", {"options": {}}, run=1)
        case.add(found(Answer(question="symptom", value="fixed-length-error"), source="user", run=0))
        case.add(found(WindowReading(asked=32768, in_force=8192, per_slot=8192, slots=4), source="server", run=1))
        verdict, _step = judge_run(Walk(case, RunOptions(), _Silent(), Criteria(), mode=mode))
        judge_run(Walk(case, RunOptions(), _Silent(), Criteria(), mode=mode))
        assert len(case.payloads(JudgedAs, 1)) == (mode != "triage")
        case.append("run-ended", {}, run=1)
        path = tmp_path / "case.json"
        path.write_text(exported(case), encoding="utf-8")

    def elsewhere(name, *answers):
        with judge_gathered(gather([str(path)], answers=answers), _Silent(), name=name) as other:
            return Verdict.model_validate([entry.data for entry in other.of("verdict", 1)][-1])

    def weighed(one):
        return one.named, [(cause.id, cause.low, cause.now, cause.high) for cause in one.causes]

    assert weighed(elsewhere("alone")) == weighed(verdict)
    more = elsewhere(
        "more", Answer(question="symptom", value="fixed-length-error")
    )  # said again: nothing new, and yet a person is there
    assert (weighed(more) == weighed(verdict)) == (mode == "triage")


class _Silent:
    """Nobody reads."""

    def say(self, *_said):
        """Nothing."""
