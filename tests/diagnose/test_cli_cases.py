"""A case can be listed, drawn again and explained, by name, by path, or as the newest; reading never changes it."""

from __future__ import annotations

import json
import os

import pytest

from diagnose.case import JOURNAL, Case, write_whole
from diagnose.cli import command_line
from diagnose.explain import ExplainDocument, explain
from diagnose.schema import CasesDocument
from probes.evidence.answers import Answer
from probes.evidence.errors import CaseError
from probes.evidence.records import found
from probes.evidence.subject import ModelIdentity, WindowReading
from reports.check import check
from rules.causes import CAUSES
from rules.verdict import verdict_of

LOG = """\
llama_context: n_ctx         = 65536
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 16384.00 MiB on device 0: cudaMalloc failed: out of memory
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "home" / "cases"


@pytest.fixture
def case(tmp_path, capsys):
    (tmp_path / "work" / "server.log").write_text(LOG)
    command_line(["triage", "server.log", "--symptom", "immediate-oom", "--case", "first", "--quiet"])
    capsys.readouterr()
    return "first"


def out(capsys, *arguments, code=0):
    assert command_line([*arguments]) == code
    return capsys.readouterr().out


# -- report -------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [[], ["first"], ["fir"], ["--case", "first"]])
def test_a_report_is_drawn_again(case, capsys, which):
    text = out(capsys, "report", *which)
    assert "server.log" in text
    assert "cudaMalloc failed" in text
    assert not check(text)


def test_every_format_is_drawn(case, capsys):
    assert "<html" in out(capsys, "report", "--format", "html")
    assert json.loads(out(capsys, "report", "--format", "json"))["case"]["id"] == "first"
    assert "Bug report for" in out(capsys, "report", "--format", "bug-report", "--for", "llama.cpp")
    assert out(capsys, "report", "--for", "ollama") == out(
        capsys, "report", "--format", "bug-report", "--for", "ollama"
    )
    assert "Next test" in out(capsys, "report", "--format", "terminal")
    more = json.loads(out(capsys, "report", "--format", "json", "--all"))["verdict"]["causes"]
    assert len(more) > len(json.loads(out(capsys, "report", "--format", "json"))["verdict"]["causes"])


def test_reading_changes_nothing_and_works_while_another_process_has_the_case(case, home, capsys):
    before = {path: path.read_bytes() for path in (home / case).rglob("*") if path.is_file() and path.name[0] != "."}
    with Case.open(case):
        out(capsys, "report")
        out(capsys, "explain")
        out(capsys, "cases")
    assert {path: path.read_bytes() for path in before} == before


def test_personal_things_are_replaced_unless_asked_for(tmp_path, capsys):
    (tmp_path / "work" / "p.log").write_text(
        "llama_model_loader: loaded meta data from /home/marymajor/models/m.gguf\n" + LOG
    )
    command_line(["triage", "p.log", "--command", "llama-server -m /home/marymajor/models/m.gguf -c 65536", "--quiet"])
    capsys.readouterr()
    assert "marymajor" not in out(capsys, "report")
    assert "marymajor" not in out(capsys, "report", "--format", "json")
    assert "marymajor" in out(capsys, "report", "--no-redact")


def test_a_report_goes_into_a_file(case, tmp_path, capsys):
    assert out(capsys, "report", "--out", str(tmp_path / "r.md")) == ""
    assert "cudaMalloc" in (tmp_path / "r.md").read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "--run", "9"],
        ["report", "--format", "pdf"],
        ["report", "--for", "nobody"],
        ["explain", "--run", "9"],
        ["explain", "first", "nope"],
    ],
)
def test_what_cannot_be_shown_is_2(case, arguments, capsys):
    assert command_line(arguments) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert len(told.err.splitlines()) == 1


def test_without_any_case_there_is_one_line(capsys):
    for command in ("report", "explain"):
        assert command_line([command]) == 2
        assert "there is no case yet" in capsys.readouterr().err
    assert "no case yet" in out(capsys, "cases")
    assert json.loads(out(capsys, "cases", "--format", "json")) == []


# -- explain ------------------------------------------------------------------------------------------------------------------------------


def test_the_trace_shows_values_with_who_says_them_and_where(case, capsys):
    document = ExplainDocument.model_validate_json(out(capsys, "explain", "--format", "json"))
    facts = [fact for cause in document.causes for clue in cause.clues_for for fact in clue.facts]
    assert any(fact.source == "log" and fact.origin == "server.log, line 2" for fact in facts)
    assert any(fact.source == "user" and fact.id == "symptom" for fact in facts)
    unknown = [
        fact for cause in document.causes for clue in cause.clues_unknown for fact in clue.facts if fact.found is None
    ]
    assert unknown
    assert all(fact.why_unknown for fact in unknown)
    text = out(capsys, "explain")
    assert "[log: server.log, line 2]" in text
    assert "What would overturn this" in text
    assert f"Runner-up: {document.runner_up}" in text


def test_one_cause_is_explained_in_the_newest_case_or_in_that_case(case, capsys):
    one = json.loads(out(capsys, "explain", "kv-cache-size", "--format", "json"))
    other = json.loads(out(capsys, "explain", "first", "kv-cache-size", "--format", "json"))
    assert one == other
    assert [cause["id"] for cause in one["causes"]] == ["kv-cache-size"]
    everything = json.loads(out(capsys, "explain", "--all", "--format", "json"))
    assert {cause["id"] for cause in everything["causes"]} == set(CAUSES)


def test_every_clue_is_in_exactly_one_group_and_sums_to_the_score(case):
    """Law: for, against and unknown share out the clues; what weighs now adds up to the cause's score."""
    for cause in explain(Case.open(case, read_only=True), everything=True).causes:
        groups = (cause.clues_for, cause.clues_against, cause.clues_unknown)
        clues = [clue for group in groups for clue in group]
        assert sum(clue.weight for clue in clues) == cause.now
        assert sum(clue.low for clue in clues) == cause.low
        assert sum(clue.high for clue in clues) == cause.high
        assert all(clue.truth != "unknown" for clue in (*cause.clues_for, *cause.clues_against))
        assert all(clue.weight > 0 for clue in cause.clues_for)


def test_sources_that_disagree_are_both_shown(home):
    with Case.create("forgetting", tool_version="1", name="two") as case:
        case.append("run", {"options": {}}, run=1)
        case.add(found(WindowReading(in_force=4096), source="server", run=1, origin="/props"))
        case.add(found(Answer(question="window_shown", value=32768), source="user", run=1, origin="window_shown"))
        from rules.catalogue import judge_evidence

        judgement, facts = judge_evidence(case.evidence(1), "triage")
        case.append("verdict", verdict_of(judgement, facts, run=1).model_dump(mode="json"))
        told = {one.fact: one for one in explain(case).conflicts}
    assert told["window.in_force"].believed.found == 4096
    assert told["window.in_force"].believed.source == "server"
    assert [other.found for other in told["window.in_force"].others] == [32768]


def test_a_case_that_was_not_judged_says_so(home, capsys):
    with Case.create("flaky", tool_version="1", name="young") as case:
        case.append("run", {"options": {}}, run=1)
    assert command_line(["explain", "young"]) == 2
    assert "was not judged yet" in capsys.readouterr().err
    assert command_line(["report", "young"]) == 0


# -- cases --------------------------------------------------------------------------------------------------------------------------------


def test_cases_are_listed_newest_first_one_line_each(case, home, capsys):
    Case.create("flaky", tool_version="1", name="second").close()
    os.utime(home / "second" / JOURNAL, (2e9, 2e9))
    lines = out(capsys, "cases").splitlines()
    assert [line.split()[0] for line in lines] == ["second", "first"]
    assert "immediate-oom" in lines[1]
    listed = json.loads(out(capsys, "cases", "--format", "json"))
    CasesDocument.model_validate(listed)
    assert [one["runs"] for one in listed] == [0, 1]


def test_a_damaged_case_does_not_hide_the_others(case, home, capsys):
    for name, content in (
        ("binary", bytes(range(256)) * 10),
        ("empty", b""),
        ("lines", b"{\n[1\nnull\n7\n" + b"x" * 1000),
    ):
        (home / name).mkdir()
        (home / name / JOURNAL).write_bytes(content)
    lines = out(capsys, "cases").splitlines()
    assert {line.split()[0] for line in lines} == {"binary", "empty", "lines", "first"}
    assert all("damaged" in line for line in lines if not line.startswith("first"))


def test_a_case_that_holds_nothing_is_no_inconclusive_one(case, home, capsys):
    """A journal without a record is said to be damaged, one of a later version to be that; neither is drawn as a case without a cause."""
    later = b'{"schema_version":99,"number":1,"type":"case","at":"2026-01-01T00:00:00Z","data":{}}\n'
    for name, content in (("garbage", b"garbage\n"), ("empty", b""), ("later", later)):
        (home / name).mkdir()
        (home / name / JOURNAL).write_bytes(content)
        assert command_line(["report", name]) == 2
        said = capsys.readouterr()
        assert not said.out
        assert ("newer" if name == "later" else "no record") in said.err
    lines = {line.split()[0]: line for line in out(capsys, "cases").splitlines()}
    assert "newer" in lines["later"]
    assert "damaged" in lines["garbage"]


@pytest.mark.parametrize(
    "command", [["report", "first"], ["cases", "export", "first"], ["triage", "--symptom", "flaky"]]
)
def test_a_place_that_takes_no_file_is_named(case, tmp_path, capsys, command):
    """What is wrong with ``--out`` is said of the path that was given, as bad input."""
    for given in ("", str(tmp_path / "none" / "x.md"), *([] if command[0] == "cases" else [str(tmp_path)])):
        assert command_line([*command, "--out", given]) == 2
        said = capsys.readouterr().err
        assert given in said
        assert "--out" in said
        assert "CTXDOCTOR_HOME" not in said
        assert "fault" not in said


def test_a_file_that_is_replaced_is_said_to_be(case, tmp_path, capsys):
    (tmp_path / "keep.md").write_text("mine")
    for command in (["report", "first"], ["triage", "--symptom", "flaky"]):
        command_line([*command, "--out", str(tmp_path / "keep.md")])
        assert "eplaced" in capsys.readouterr().err


def test_an_export_goes_to_standard_output_where_that_is_asked_for(case, capsys):
    assert json.loads(out(capsys, "cases", "export", "first", "--out", "-"))["case"]["id"] == "first"


@pytest.mark.parametrize("evidence", [None, [], "x"])
def test_an_export_without_its_evidence_is_damaged_not_empty(case, tmp_path, capsys, evidence):
    document = json.loads(out(capsys, "cases", "export", "first", "--out", "-"))
    document |= {"evidence": evidence}
    (tmp_path / "a.json").write_text(json.dumps(document))
    assert command_line(["triage", str(tmp_path / "a.json")]) == 2
    assert "without evidence" in capsys.readouterr().err


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX's")
@pytest.mark.parametrize(
    "command", [["report", "first"], ["cases", "export", "first"], ["triage", "--symptom", "flaky"]]
)
def test_what_is_no_regular_file_is_never_replaced(case, tmp_path, capsys, command):
    """A device or a pipe that others use stays what it is."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert command_line([*command, "--out", str(pipe)]) == 2
    assert pipe.is_fifo()
    with pytest.raises(CaseError):
        write_whole(pipe, "x")
    assert pipe.is_fifo()


@pytest.mark.parametrize("text", ["[1,2]", "[" * 100_000])
def test_a_list_is_no_case(home, tmp_path, capsys, text):
    (tmp_path / "a.json").write_text(text)
    assert command_line(["triage", str(tmp_path / "a.json")]) == 2
    said = capsys.readouterr().err
    assert "JSON" in said
    assert len(said.splitlines()) == 1


def test_a_quote_that_stays_open_is_named(home, capsys):
    assert command_line(["triage", "--command", "llama-server -c 'unclosed"]) == 2
    assert "'unclosed'" in capsys.readouterr().err


def test_what_a_case_calls_itself_stays_text(home, capsys):
    with Case.create("flaky", tool_version="1", name="evil") as case:
        case.add(found(Answer(question="symptom", value="\x1b[2Jevil\nline"), source="user"))
    text = out(capsys, "cases")
    assert "\x1b" not in text
    assert len(text.splitlines()) == 1


def test_something_else_to_do_with_cases_is_2(capsys):
    assert command_line(["cases", "delete"]) == 2
    assert "cases export" in capsys.readouterr().err


def test_a_case_is_written_as_one_file_that_is_judged_to_the_same_verdict(case, tmp_path, capsys):
    path = tmp_path / "sent.json"
    assert out(capsys, "cases", "export", "first", "--out", str(path)).strip() == str(path)
    first = json.loads(out(capsys, "report", "first", "--format", "json"))
    command_line(["triage", str(path), "--format", "json", "--quiet"])
    again = json.loads(capsys.readouterr().out)
    assert again["case"]["symptom"] == first["case"]["symptom"]
    assert [(one["id"], one["now"]) for one in again["verdict"]["causes"]] == [
        (one["id"], one["now"]) for one in first["verdict"]["causes"]
    ]
    assert out(capsys, "cases", "export", "first").strip().endswith("first.json")
    (tmp_path / "mine.txt").write_text("my own")
    assert command_line(["cases", "export", "first", "--out", str(tmp_path / "mine.txt")]) == 2
    assert (tmp_path / "mine.txt").read_text() == "my own"


def test_a_confirmed_cause_is_told_in_the_list(case, capsys):
    """Law: the list says what the report says: a case whose cause a re-run confirmed is none with "nothing named"."""
    with Case.open(case) as one:
        one.append("run", {"options": {}}, run=2)
        one.append("verdict", {"run": 2, "named": [], "confirmed": ["slots-divide-ctx"]}, run=2)
    line = out(capsys, "cases").splitlines()[0]
    assert "slots-divide-ctx (confirmed)" in line
    assert "nothing named" not in line
    [item] = json.loads(out(capsys, "cases", "--format", "json"))
    assert (item["named"], item["confirmed"]) == ([], ["slots-divide-ctx"])
    CasesDocument.model_validate([item])


STEERING = "\x7f\x80\x9b31m\x9f\u061c\u200e\u2028\u2029\u202a\u202e\u2066\u2069"


def test_json_steers_no_terminal_and_keeps_its_value(case, capsys):
    """Law: a name from outside holds no character, in any JSON that is printed, which a terminal obeys or which turns the text around."""
    name = f"tiny {STEERING} 한글 é"
    with Case.open(case) as opened:
        opened.add(found(ModelIdentity(name=name), source="server", run=1))
    for arguments in (["report", "--no-redact"], ["explain"], ["cases"]):
        printed = out(capsys, *arguments, "--format", "json")
        assert not set(STEERING.replace("31m", "")) & set(printed), arguments
        assert json.loads(printed)
        if arguments[0] != "explain":
            assert name in repr_free(json.loads(printed)), arguments


def repr_free(value: object) -> str:
    """Give all strings of a JSON value, one after the other."""
    if isinstance(value, dict):
        return "\n".join(map(repr_free, value.values()))
    if isinstance(value, list):
        return "\n".join(map(repr_free, value))
    return str(value)


def test_the_json_of_a_case_is_drawn_as_the_case_is(case, capsys, tmp_path):
    """Law: what was exported can be drawn again where the case is not; a file that is none, and a run that it does not hold, are said in one line."""
    file = tmp_path / "exported.json"
    file.write_text(out(capsys, "report", "--format", "json", "--no-redact"))
    assert out(capsys, "report", str(file)) == out(capsys, "report")
    for text in ("{}", "[1", "[" * 100_000, '{"schema_version": 99}'):
        file.write_text(text)
        assert command_line(["report", str(file)]) == 2, text[:20]
        assert len(capsys.readouterr().err.strip().splitlines()) == 1
    file.write_text(json.dumps({}))
    assert command_line(["report", str(file), "--run", "1"]) == 2
    assert "--run" in capsys.readouterr().err
