"""A case survives anything that can happen to the tool or the disk."""

import errno
import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from diagnose import case as case_module
from diagnose.case import JOURNAL, Case, find, folders
from diagnose.perform import open_or_create
from probes.evidence.answers import Answer
from probes.evidence.errors import BadFileError, CaseBusyError, CaseError, CaseNewerError, DiskFullError
from probes.evidence.records import found


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    return tmp_path / "cases"


def answer(value, run=1):
    return found(Answer(question="symptom", value=value), source="user", run=run)


def test_what_was_added_is_there_when_opened_again(home):
    """Law: open(close(case)) gives the same records."""
    with Case.create("flaky", tool_version="1", name="a") as case:
        case.append("run", {"url": "x"}, run=1)
        case.add(answer("forgetting"))
    with Case.open("a") as again:
        assert again.run == 1
        assert again.symptom == "forgetting"
        assert again.evidence(1).last(Answer).value == "forgetting"


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_last_line_is_dropped_and_the_rest_stands(home, cut):
    """Law: a crash in the middle of a write loses at most that write."""
    with Case.create("flaky", tool_version="1", name="a") as case:
        case.add(answer("flaky"))
        case.add(answer("forgetting"))
    path = home / "a" / JOURNAL
    path.write_bytes(path.read_bytes()[: -cut - 1])
    with Case.open("a") as again:
        assert [e.data["data"]["value"] for e in again.of("evidence")] == ["flaky"]
        assert again.dropped
        again.add(answer("slow-long-context"))
    with Case.open("a") as third:
        assert [e.data["data"]["value"] for e in third.of("evidence")] == ["flaky", "slow-long-context"]


def test_a_damaged_line_in_the_middle_is_said_with_its_number(home):
    with Case.create("flaky", tool_version="1", name="a") as case:
        case.add(answer("flaky"))
    path = home / "a" / JOURNAL
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], "rubbish", lines[1]]) + "\n")
    with pytest.raises(BadFileError, match="line 2"):
        Case.open("a")


def test_a_newer_case_is_refused(home):
    with Case.create("flaky", tool_version="1", name="a"):
        pass
    path = home / "a" / JOURNAL
    document = json.loads(path.read_text()) | {"schema_version": 99, "new_thing": 1}
    path.write_text(json.dumps(document) + "\n")
    with pytest.raises(CaseNewerError, match="newer"):
        Case.open("a")


def test_two_openers_are_refused_and_a_reader_is_not(home):
    with Case.create("flaky", tool_version="1", name="a"):
        with pytest.raises(CaseBusyError, match="another"):
            Case.open("a")
        assert Case.open("a", read_only=True).id == "a"
    Case.open("a").close()


def test_a_full_disk_keeps_the_record_that_was_just_measured(home, monkeypatch):
    """Law: when the disk fills during a write, the reserve is given up for that very record, and the user is told."""
    with Case.create("flaky", tool_version="1", name="a") as case:
        real = Case._write
        state = {"failed": False}

        def full_once(self, line):
            if not state["failed"]:
                state["failed"] = True
                self._file = self._file or (self.folder / JOURNAL).open("ab", buffering=0)
                self._file.write(line.encode()[: len(line) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            assert not (self.folder / ".reserve").exists()
            real(self, line)

        monkeypatch.setattr(Case, "_write", full_once)
        with pytest.raises(DiskFullError, match="full"):
            case.add(answer("forgetting"))
    monkeypatch.undo()
    with Case.open("a", home=home) as again:
        assert again.symptom == "forgetting"


def test_no_measurement_is_begun_on_a_full_disk(home, monkeypatch):
    with Case.create("flaky", tool_version="1", name="a") as case:
        monkeypatch.setattr(case_module.shutil, "disk_usage", lambda _path: type("U", (), {"free": 1000})())
        with pytest.raises(DiskFullError, match="make room"):
            case.make_room()


def test_names_are_found_by_beginning_and_never_outside(home):
    for name in ("20260101-x", "20260101-y", "20260102-z"):
        Case.create("flaky", tool_version="1", name=name).close()
    assert find("20260102").name == "20260102-z"
    with pytest.raises(CaseError, match="several"):
        find("20260101")
    for bad in ("../../etc", "nothing", ""):
        with pytest.raises(CaseError):
            find(bad)
    os.utime(home / "20260101-y" / JOURNAL, (time.time() + 50,) * 2)
    assert folders()[0].name == "20260101-y"
    assert find(None).name == "20260101-y"


def _write_for_ever(folder: str) -> None:
    with Case.open(Path(folder)) as case:
        number = 0
        while True:
            number += 1
            case.add(answer(f"number {number}"))


def test_kill_9_at_any_moment_loses_nothing_that_was_finished(home):
    """Law: after SIGKILL the journal opens, its records are in order, and the case can be taken at once."""
    Case.create("flaky", tool_version="1", name="a").close()
    context = multiprocessing.get_context("spawn")
    last = 0
    for wait in (0.02, 0.11, 0.05):
        process = context.Process(target=_write_for_ever, args=(str(home / "a"),), daemon=True)
        process.start()
        path = home / "a" / JOURNAL
        size = path.stat().st_size
        ends = time.monotonic() + 30
        while path.stat().st_size == size and time.monotonic() < ends:
            time.sleep(0.01)
        time.sleep(wait)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with Case.open("a") as case:
            numbers = [entry.number for entry in case.entries]
            assert numbers == sorted(set(numbers))
            assert len(numbers) > last
            last = len(numbers)


def test_going_on_with_a_case_that_does_not_exist_is_no_new_case(home, capsys):
    """Law: a mistyped name with nothing to measure is an error, and leaves nothing behind."""
    from diagnose.cli import command_line

    assert command_line(["run", "--case", "nosuch"]) == 2
    assert "no case" in capsys.readouterr().err
    assert folders() == []


def test_a_name_of_ones_own_that_begins_another_is_a_new_case(home):
    """Law: --case takes a person's name whole; the beginning is enough only for a name that was made from the time."""
    with open_or_create("np3u", None) as longer:
        longer.append("run", {"options": {}}, run=1)
    with open_or_create("np3", None) as shorter:
        assert shorter.id == "np3"
    with open_or_create("np3", None) as again:
        assert again.folder == shorter.folder
    with open_or_create(None, None) as made:
        stamped = made.id
    with open_or_create(stamped[:-2], None) as found_again:
        assert found_again.id == stamped
