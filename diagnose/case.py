"""One case on disk: an append-only journal, flushed to the disk record by record, that opens again after any death of the tool.

A folder holds ``journal.jsonl`` (the truth), ``case.json`` (derived), ``report.md`` and ``logs/``. A line that was torn by a crash is the last one
and is dropped, with a note; everything before it stands. Records of other floors are kept as those floors made them.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from filelock import FileLock, Timeout
from pydantic import Field, ValidationError

from probes.evidence.errors import BadFileError, CaseBusyError, CaseError, CaseNewerError, DiskFullError, InputError
from probes.evidence.records import SCHEMA_VERSION, Evidence, EvidenceSet, P, Payload, Record, utc_now

JOURNAL = "journal.jsonl"
ROOM_WANTED_BYTES = 8 * 1024 * 1024
"""Less free than this, and no new measurement is begun."""
RESERVE_BYTES = 512 * 1024
"""Kept aside in every open case, and given up when the disk fills, so that what was just measured can still be written."""

EntryType = Literal[
    "case",  # opened: id, symptom, tool, …
    "run",  # a run begins: run, how (options that resume needs)
    "evidence",
    "probe-done",  # run, probe: all its evidence is in
    "verdict",  # run, the verdict's record
    "next-test",  # run, the test that was given, with what it expects
    "change",  # run, what changed against the run before
    "sent",  # run, what was sent so far
    "run-ended",  # run, outcome
    "note",
]


class Entry(Record):
    """One line of the journal."""

    schema_version: int = SCHEMA_VERSION
    number: int = Field(ge=1)
    type: EntryType
    at: datetime
    run: int = 0
    data: dict[str, Any] = Field(default_factory=dict)


def data_home() -> Path:
    """Give the folder of all cases: CTXDOCTOR_HOME, else the user's data folder."""
    given = os.environ.get("CTXDOCTOR_HOME")
    if given:
        return Path(given).expanduser()
    import platformdirs  # noqa: PLC0415 - only when a case is touched

    return Path(platformdirs.user_data_dir("ctxdoctor", appauthor=False))


def cases_home() -> Path:
    """Give the folder in which cases lie."""
    return data_home() / "cases"


def new_id(symptom: str | None, now: datetime | None = None) -> str:
    """Make a case's name: when, what, and four letters so that two in one second differ."""
    stamp = (now or utc_now()).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{symptom or 'case'}-{secrets.token_hex(2)}"


class Case:
    """One open case. Use :meth:`create` or :meth:`open`; close it, or use it as a context manager."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self.entries: list[Entry] = []
        self.dropped: str | None = None
        self._lock: FileLock | None = None
        self._file: Any = None
        self._sets: dict[int | None, tuple[int, EvidenceSet]] = {}
        self.named = False
        """Whether it was made just now, under a name that the user gave."""
        self._made_here = False

    # -- opening ---------------------------------------------------------------------------------------------------------------------

    @classmethod
    def create(
        cls, symptom: str | None, *, tool_version: str, home: Path | None = None, name: str | None = None
    ) -> Self:
        """Make a new case folder and its first record."""
        home = home or cases_home()
        case_id = name or new_id(symptom)
        if not re.fullmatch(r"\w[\w.\-]{0,119}", case_id):
            raise CaseError(
                f"a case cannot be called {case_id[:60]!r}; use letters, digits, - _ and ., and begin with a letter or digit"
            )
        folder = home / case_id
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=False)
        except FileExistsError as error:
            raise CaseError(
                f"there is a case {case_id} already; give another name with --case, or run it again with `rerun`"
            ) from error
        except OSError as error:
            raise _disk(error, folder) from error
        case = cls(folder)
        case._made_here, case.named = True, name is not None
        case._take()
        case.append("case", {"id": case_id, "symptom": symptom, "tool": {"name": "ctxdoctor", "version": tool_version}})
        return case

    @classmethod
    def open(cls, name: str | Path | None, *, read_only: bool = False, home: Path | None = None) -> Self:
        """Open a case by name or path; None is the newest. CaseError, CaseBusyError, CaseNewerError."""
        case = cls(find(name, home), read_only=read_only)
        if not read_only:
            case._take()
        try:
            case._read()
        except BaseException:
            case.close()
            raise
        return case

    def _take(self) -> None:
        lock = FileLock(str(self.folder / ".lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout as error:
            raise CaseBusyError(
                f"case {self.folder.name} is open in another ctxdoctor process; wait for it, or work on another case"
            ) from error
        except OSError as error:
            raise _disk(error, self.folder) from error
        self._lock = lock
        reserve = self.folder / ".reserve"
        with contextlib.suppress(OSError):
            if not reserve.exists():
                reserve.write_bytes(os.urandom(RESERVE_BYTES))

    def _read(self) -> None:
        path = self.folder / JOURNAL
        try:
            raw = path.read_bytes()
        except FileNotFoundError as error:
            raise CaseError(f"{self.folder} is no case: it has no {JOURNAL}") from error
        except OSError as error:
            raise CaseError(f"{path} cannot be read ({error.strerror})") from error
        lines = raw.split(b"\n")
        good = 0
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                good += len(line) + 1
                continue
            last = all(not rest.strip() for rest in lines[number:])
            try:
                document = json.loads(line)
                newer = document.get("schema_version", 1) > SCHEMA_VERSION if isinstance(document, dict) else False
                if newer:
                    raise CaseNewerError(
                        f"case {self.folder.name} was written by a newer ctxdoctor (schema {document['schema_version']}); update this one"
                    )
                entry = Entry.model_validate(document)
            except (ValueError, ValidationError, TypeError) as error:
                if last:
                    self.dropped = f"the last line of the journal was torn and is left out ({len(line)} bytes)"
                    break
                raise BadFileError(
                    f"line {number} of {path} is damaged; mend or remove that line, the rest is kept ({type(error).__name__})"
                ) from error
            self.entries.append(entry)
            good += len(line) + 1
        if not self.entries:
            raise BadFileError(f"case {self.folder.name} holds no record that can be read: {path} is empty or damaged")
        if self.dropped and not self.read_only:
            with path.open("r+b") as file:
                file.truncate(min(good, len(raw)))
        elif raw and not raw.endswith(b"\n") and not self.read_only:
            with path.open("ab") as file:
                file.write(b"\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        refused = isinstance(error, InputError) and not isinstance(error, CaseError)
        if refused and not any(True for _ in self.of("sent")):
            # a case that only holds what was refused would be the newest, which `report` and `rerun` take
            self.discard()
        self.close()

    def discard(self) -> None:
        """Close a case and take it away again, if it was made just now; one that was there before stays."""
        self.close()
        if self._made_here:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Give the case back."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None
        if self._lock is not None:
            with contextlib.suppress(OSError):
                (self.folder / ".reserve").unlink(missing_ok=True)
            self._lock.release()
            self._lock = None

    # -- writing ---------------------------------------------------------------------------------------------------------------------

    def make_room(self) -> None:
        """Make sure that the next measurement can be written. DiskFullError before it is begun."""
        try:
            free = shutil.disk_usage(self.folder).free
        except OSError:
            return
        if free < ROOM_WANTED_BYTES:
            raise DiskFullError(
                f"only {free >> 20} MiB are free where the case lies ({self.folder}); make room and run it again with --case {self.folder.name}"
            )

    def append(self, kind: EntryType, data: dict[str, Any], *, run: int | None = None) -> Entry:
        """Write one record and wait until it is on the disk."""
        if self.read_only:
            raise CaseError("this case was opened for reading only")
        entry = Entry(
            number=len(self.entries) + 1,
            type=kind,
            at=utc_now(),
            run=self.run if run is None else run,
            data=data,
        )
        self._write_safely(entry.model_dump_json() + "\n", [entry])
        return entry

    def _write_safely(self, line: str, entries: Sequence[Entry]) -> None:
        """Write, and where the disk is full give up the reserve so that these records are kept; then say that it is full."""
        try:
            self._write(line)
        except OSError as error:
            if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise _disk(error, self.folder) from error
            (self.folder / ".reserve").unlink(missing_ok=True)
            try:
                self._mend_tail()
                self._write(line)
            except OSError as again:
                raise _disk(again, self.folder) from again
            self.entries.extend(entries)
            raise _disk(error, self.folder) from error
        self.entries.extend(entries)

    def _write(self, line: str) -> None:
        if self._file is None:
            self._file = (self.folder / JOURNAL).open("ab", buffering=0)
        data = line.encode()
        while data:
            written = self._file.write(data)
            data = data[written:]
        os.fsync(self._file.fileno())

    def _mend_tail(self) -> None:
        """Cut off the half of a record that a full disk left."""
        if self._file is not None:
            self._file.close()
            self._file = None
        path = self.folder / JOURNAL
        raw = path.read_bytes()
        end = raw.rfind(b"\n") + 1
        with path.open("r+b") as file:
            file.truncate(end)

    def add(self, evidence: Evidence) -> Evidence:
        """Write one piece of evidence."""
        self.append("evidence", evidence.model_dump(mode="json", exclude_none=True), run=evidence.run)
        return evidence

    def add_all(self, pieces: Sequence[Evidence]) -> None:
        """Write many pieces that were found in one go (a log's events) with one wait for the disk."""
        entries = [
            Entry(
                number=len(self.entries) + 1 + place,
                type="evidence",
                at=utc_now(),
                run=piece.run,
                data=piece.model_dump(mode="json", exclude_none=True),
            )
            for place, piece in enumerate(pieces)
        ]
        if not entries:
            return
        if self.read_only:
            raise CaseError("this case was opened for reading only")
        self._write_safely("".join(entry.model_dump_json() + "\n" for entry in entries), entries)

    def write_file(self, name: str, text: str) -> Path:
        """Write a derived file whole or not at all."""
        path = self.folder / name
        write_whole(path, text)
        return path

    # -- reading ---------------------------------------------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        """The case's name."""
        return self.folder.name

    @property
    def head(self) -> dict[str, Any]:
        """The first record: symptom, tool."""
        for entry in self.entries:
            if entry.type == "case":
                return entry.data
        return {}

    @property
    def symptom(self) -> str | None:
        """The symptom, as answered last."""
        value = self.head.get("symptom")
        for entry in self.entries:
            if entry.type == "evidence" and entry.data.get("kind") == "answer":
                answer = entry.data.get("data") or {}
                if answer.get("question") == "symptom" and answer.get("value"):
                    value = answer["value"]
        return value if isinstance(value, str) else None

    @property
    def created(self) -> datetime | None:
        """When the case was opened."""
        return self.entries[0].at if self.entries else None

    @property
    def run(self) -> int:
        """The current run's number; 0 before the first."""
        return max((entry.run for entry in self.entries if entry.type == "run"), default=0)

    def of(self, kind: EntryType, run: int | None = None) -> Iterator[Entry]:
        """Give the entries of a type, oldest first, of one run or of all."""
        return (entry for entry in self.entries if entry.type == kind and (run is None or entry.run == run))

    def evidence(self, run: int | None = None) -> EvidenceSet:
        """Give the evidence of one run (with what was said before any run), or of all."""
        kept = self._sets.get(run)
        if kept is not None and kept[0] == len(self.entries):
            return kept[1]
        found: list[Evidence] = []
        for entry in self.of("evidence"):
            if run is None or entry.run in {0, run}:
                try:
                    piece = Evidence.model_validate(entry.data)
                    if piece.data is not None and piece.kind in Payload.kinds:
                        piece.payload()
                    found.append(piece)
                except ValidationError as error:
                    raise BadFileError(
                        f"record {entry.number} of case {self.id} is not evidence as this version knows it ({error.error_count()} faults)"
                    ) from error
        evidence = EvidenceSet(found)
        self._sets[run] = (len(self.entries), evidence)
        return evidence

    def payloads(self, kind: type[P], run: int | None = None) -> list[P]:
        """Give the payloads of one kind, oldest first."""
        return [payload for _evidence, payload in self.evidence(run).of(kind)]

    def has_ended(self, run: int) -> bool:
        """Say whether a run came to its end."""
        return any(True for _ in self.of("run-ended", run))

    def done_probes(self, run: int) -> set[str]:
        """Give the probes of a run whose evidence is complete."""
        return {str(entry.data.get("probe")) for entry in self.of("probe-done", run)}


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, through a neighbour. DiskFullError, CaseError."""
    if path.exists() and not path.is_file():
        # a rename over it would take the place of a device or a pipe that others use
        raise CaseError(f"{path} is no regular file, and is not replaced; give the name of a file")
    neighbour = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with neighbour.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        neighbour.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            neighbour.unlink(missing_ok=True)
        raise _disk(error, path.parent) from error


def find(name: str | Path | None, home: Path | None = None) -> Path:
    """Give a case's folder by name, unambiguous beginning of a name, or path; None is the newest. CaseError."""
    home = home or cases_home()
    if name is None:
        newest = folders(home)
        if not newest:
            raise CaseError("there is no case yet; start with `ctxdoctor run URL` or `ctxdoctor demo`")
        return newest[0]
    text = str(name)
    try:
        path = Path(name).expanduser()
        if path.name == JOURNAL:
            path = path.parent
        if (path / JOURNAL).is_file():
            return path.resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise CaseError(f"there is no case {text[:60]!r}; `ctxdoctor cases` lists them") from error
    if re.fullmatch(r"[\w.\-]+", text):
        exact = home / text
        if (exact / JOURNAL).is_file():
            return exact
        matching = [folder for folder in folders(home) if folder.name.startswith(text)]
        if len(matching) == 1:
            return matching[0]
        if matching:
            names = ", ".join(folder.name for folder in matching[:4])
            raise CaseError(f"{text!r} is the beginning of several cases ({names}); write one whole")
    raise CaseError(f"there is no case {text[:200]!r}; `ctxdoctor cases` lists them")


def folders(home: Path | None = None) -> list[Path]:
    """Give the folders of all cases, newest first."""
    home = home or cases_home()
    try:
        found = [folder for folder in home.iterdir() if (folder / JOURNAL).is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda folder: ((folder / JOURNAL).stat().st_mtime, folder.name), reverse=True)


def _disk(error: OSError, where: Path) -> CaseError | DiskFullError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(
            f"the disk is full where the case lies ({where}); make room, then run again with --case; nothing measured is lost"
        )
    return CaseError(
        f"{where} cannot be written ({error.strerror or error}); set CTXDOCTOR_HOME to a folder that you may write to"
    )
