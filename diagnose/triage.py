"""Whatever a user has, as evidence: logs, a pasted report, an exported case, a case folder, a client's settings, answers, a command. Never a network.

:func:`gather` reads what the command line was given; :func:`assemble` puts together what is in memory already. Both give the same evidence.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagnose.answers_file import as_evidence, parse_answers
from probes.backends.commands import detect_backend, parse_command, split_command
from probes.evidence.answers import Answer
from probes.evidence.errors import BadFileError, CaseError, CaseNewerError, CtxDoctorError, InputError
from probes.evidence.records import SCHEMA_VERSION, Evidence, Source, found, not_found
from probes.evidence.subject import BackendIdentity, Configuration, Setting, WindowReading
from probes.evidence.words import words
from probes.logs.pasted import MAX_REPORT, kind_of, read_pasted
from probes.logs.reader import collect_log, tail_events
from probes.logs.source import Source as Bytes
from probes.logs.source import open_source
from probes.logs.told import settings_told
from reports.document import message

if TYPE_CHECKING:
    from diagnose.case import Case
    from diagnose.ui import Ui

MOST_CASE_BYTES = 256 << 20
"""An exported case that is larger is none of ours."""
MOST_EVENTS = 2000
"""At most so many events of one log: repeats are folded, failures kept longest."""
_SETTINGS_SUFFIXES = frozenset({".json", ".jsonc", ".yaml", ".yml", ".toml"})
_JOURNAL_LINE = re.compile(r"\s*\{\s*\"schema_version\":\s*\d+,\s*\"number\":\s*\d+,\s*\"type\":")
_RUN = 1
_BEFORE = 0
"""Answers belong to no run: they hold for the runs that may follow."""


@dataclass(slots=True)
class Gathered:
    """What was read. ``problems``: one line for each thing that could not be read, or said nothing."""

    evidence: list[Evidence] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    failures: list[CtxDoctorError] = field(default_factory=list)
    alone: bool = False
    """Whether one file is all that was given."""

    @property
    def empty(self) -> bool:
        """Say whether nothing is known at all."""
        return not any(piece.data is not None and piece.kind != "log_summary" for piece in self.evidence)

    @property
    def symptom(self) -> str | None:
        """The symptom, as it was said last by who ranks highest: an answer before prose."""
        told = [
            (piece.source == "user", place, str((piece.data or {}).get("value")))
            for place, piece in enumerate(self.evidence)
            if piece.kind == Answer.kind
            and (piece.data or {}).get("question") == "symptom"
            and (piece.data or {}).get("value")
        ]
        return max(told)[2] if told else None


def assemble(
    *,
    answers: Sequence[Answer] = (),
    settings: Mapping[str, Any] | None = None,
    log: str = "",
    name: str = "log",
    run: int = _RUN,
) -> list[Evidence]:
    """Give the evidence of answers, of settings by variable name, and of a piece of log text, in that order."""
    evidence = as_evidence(list(answers), run=run)
    if settings:
        typed = {key: Setting(value=value, source="user", raw=f"{key} = {value}") for key, value in settings.items()}
        evidence.append(found(Configuration(settings=typed), source="user", run=run, origin="settings"))
    evidence += [
        found(event, source="log", run=run, origin=f"log, line {event.line}") for event in tail_events(log, name)
    ]
    return evidence


def gather(
    files: Sequence[str] = (),
    *,
    logs: Sequence[str] = (),
    clients: Sequence[str] = (),
    answers: Sequence[Answer] = (),
    command: str | None = None,
    backend: str | None = None,
    model: str | None = None,
) -> Gathered:
    """Read everything that was given. ``-`` among the files is standard input; ``model`` says which one of a settings file that holds several.

    A file that cannot be read is a problem in one line, kept as evidence; where nothing else was given it is raised. An answers file, a client's
    settings file, a command or a server's name that is wrong is raised at once. BadFileError, CaseNewerError, InputError.
    """
    believed = _named_clients(clients)
    gathered = Gathered()
    if files.count("-") + logs.count("-") > 1:
        raise InputError("standard input can be read once: give `-` a single time")
    for given in files:
        _take(gathered, given, given, model=model)
    for given in logs:
        _take(gathered, given, given, as_log=True)
    gathered.alone = len(files) == 1 and not (logs or clients or answers or command or backend)
    gathered.evidence += believed
    if command is not None:
        gathered.evidence += of_command(command, backend)
    if backend is not None:
        gathered.evidence += of_backend(backend)
    gathered.evidence += as_evidence(list(answers), run=_BEFORE)
    if gathered.failures and gathered.empty:
        raise gathered.failures[0]
    return gathered


def _take(gathered: Gathered, given: str, name: str, *, as_log: bool = False, model: str | None = None) -> None:
    try:
        evidence = read_log(given) if as_log else read_file(given, model)
    except CaseNewerError:
        raise
    except CtxDoctorError as error:
        gathered.failures.append(error)
        gathered.problems.append(str(error))
        gathered.evidence.append(not_found("log_summary", "failed", str(error), source="log", run=_RUN, origin=name))
        return
    if not any(piece.kind != "log_summary" for piece in evidence):
        gathered.problems.append(_silent(evidence, given))
    gathered.evidence += evidence


def _silent(evidence: Sequence[Evidence], given: str) -> str:
    name = "standard input" if given == "-" else given
    lines = next((piece.data.get("lines", 0) for piece in evidence if piece.data), 0)
    return (
        f"{name}: nothing of what it holds is known to any server's log or to the questionnaire ({lines} lines)"
        if lines
        else f"{name} is empty"
    )


# -- judging ----------------------------------------------------------------------------------------------------------------------------


def judge_gathered(gathered: Gathered, ui: Ui, *, name: str | None = None, backend: str | None = None) -> Case:
    """Make a case of what was gathered and judge it. The case is open; the caller closes it. CaseError, DiskFullError."""
    from diagnose.case import Case  # noqa: PLC0415 - reading is useful without it
    from diagnose.judging import judge_run  # noqa: PLC0415
    from diagnose.options import RunOptions  # noqa: PLC0415
    from diagnose.running import Walk  # noqa: PLC0415
    from diagnose.version import version  # noqa: PLC0415
    from probes.evidence.changes import JudgedAs  # noqa: PLC0415
    from probes.evidence.rungs import Criteria  # noqa: PLC0415

    case = Case.create(gathered.symptom, tool_version=version(), name=name)
    try:
        options = RunOptions(backend=backend)
        case.append("run", {"options": options.model_dump(mode="json"), "mode": "triage"}, run=_RUN)
        case.add_all(gathered.evidence)
        # a case that was judged elsewhere, with nothing added to it, is judged to the same verdict
        before = case.payloads(JudgedAs, _RUN) if gathered.alone else []
        judge_run(Walk(case, options, ui, Criteria(), mode="triage"), judged_as=before[-1].mode if before else None)
        if gathered.empty:
            case.append("note", {"would_decide": [message(each).model_dump(mode="json") for each in FIRST_STEPS]})
        case.append("run-ended", {"could_not_look": None})
    except BaseException:
        case.close()
        raise
    return case


FIRST_STEPS = (
    words(
        "Give the server's log, from its start to the failure: ctxdoctor triage FILE. It tells sizes, windows and the failure itself."
    ),
    words("Give the command that starts the server: ctxdoctor triage --command 'llama-server …'."),
    words(
        "Say what happens: --symptom SYMPTOM, or --answers FILE (ctxdoctor questions lists them); or ctxdoctor run URL while it runs."
    ),
)
"""What to do where nothing is known at all."""


# -- commands and names -----------------------------------------------------------------------------------------------------------------


def of_command(text: str, backend: str | None = None) -> list[Evidence]:
    """Give the evidence of the command line that starts the server. InputError where it is no such command."""
    open_quote = _unclosed(text)
    if open_quote is not None:
        raise InputError(
            f"--command: the quote {text[open_quote]} before {text[open_quote + 1 :][:40]!r} is not closed; close it"
        )
    argv = split_command(text)
    known = detect_backend(argv)
    if not argv or (known is None and backend is None):
        raise InputError(
            f"--command {text[:60]!r} starts no server that is known; give the whole line, such as 'llama-server -m model.gguf -c 32768', or add --backend"
        )
    settings = parse_command(argv, None, backend if known is None else known, source="user")
    evidence = [found(settings, source="user", run=_RUN, origin="--command")]
    asked, slots, unified = (settings.settings.get(name) for name in ("ctx", "parallel", "kv_unified"))
    values: dict[str, Any] = {
        "asked": asked.value if asked and isinstance(asked.value, int) and asked.value > 0 else None,
        "slots": slots.value if slots and isinstance(slots.value, int) and slots.value > 0 else None,
        "unified": unified.value if unified and isinstance(unified.value, bool) else None,
    }
    if any(value is not None for value in values.values()):
        evidence.append(found(WindowReading(**values), source="user", run=_RUN, origin="--command"))
    if known is not None and backend is None:
        evidence.append(
            found(BackendIdentity(name=known, recognised_by="its command"), source="user", run=_RUN, origin="--command")
        )
    return evidence


def _unclosed(text: str) -> int | None:
    """Give the place of a quote that is opened and never closed."""
    opened: int | None = None
    escapes = re.search(r"[A-Za-z]:\\", text) is None  # a folder's name of Windows may end before a quote
    for place, character in enumerate(text):
        if opened is None:
            if character in "'\"" and not (escapes and text[place - 1 : place] == "\\"):
                opened = place
        elif character == text[opened] and not (escapes and character == '"' and text[place - 1] == "\\"):
            opened = None
    return opened


def of_backend(name: str) -> list[Evidence]:
    """Give the evidence of ``--backend``. InputError lists the names."""
    from diagnose.questions import question  # noqa: PLC0415 - only where a name was given

    known = question("backend").choice_ids()
    if name not in known:
        raise InputError(f"no server is called {name!r}; --backend takes {', '.join(known)}")
    return [
        found(BackendIdentity(name=name, recognised_by="--backend"), source="user", run=_RUN, origin="--backend"),
        found(Answer(question="backend", value=name), source="user", run=_BEFORE, origin="--backend"),
    ]


# -- files ------------------------------------------------------------------------------------------------------------------------------


class _Blocks(io.RawIOBase):
    """A stream made of blocks that come one by one."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        super().__init__()
        self._blocks = blocks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = block
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._left))
        view[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def read_file(given: str, model: str | None = None) -> list[Evidence]:
    """Find out what a file is and read it: a log, a report, answers, an exported case, a client's or a server's settings; a folder: a case.

    BadFileError, InputError, CaseError, CaseNewerError.
    """
    from diagnose.case import JOURNAL, find  # noqa: PLC0415 - the case's machinery is needed only for folders

    if given != "-":
        path = Path(given).expanduser()
        try:
            folder = path.is_dir()
            there = folder or path.exists()
        except (OSError, ValueError):
            folder = there = False
        if not there:
            try:
                known = find(given)
            except CaseError as error:
                raise BadFileError(f"{given[:200]!r} is neither a file nor a case; check the name") from error
            return of_case(known)
        if folder and not (path / JOURNAL).is_file():
            raise BadFileError(f"{given[:200]!r} is a folder without a case; give the files in it")
        if folder or path.name == JOURNAL:
            return of_case(path)
    source, pieces, whole = _begin(given)
    data = b"".join(pieces)
    text = data.decode("utf-8", "replace")
    if _JOURNAL_LINE.match(text):
        return of_journal(_rest(data, source, source.name), source.name)
    kind = kind_of(text[:262_144])
    if kind == "case":
        return of_document(_rest(data, source, source.name), source.name)
    if kind == "answers" and whole:
        as_json = given.lower().endswith(".json") or text.lstrip("\ufeff \t\r\n").startswith("{")
        return as_evidence(parse_answers(text.lstrip("\ufeff"), name=source.name, as_json=as_json), run=_BEFORE)
    if given != "-" and _may_be_a_servers(Path(given)):
        told = _server_settings(Path(given).expanduser(), model)
        if told:
            return told
    if given != "-" and Path(given).suffix.lower() in _SETTINGS_SUFFIXES:
        settings = _client_settings(Path(given))
        if settings:
            return settings
    _refuse_list(text, source.name, given)
    if kind == "report" and whole:
        pasted = [_placed(piece) for piece in read_pasted(text, source.name)]
        if pasted or not text.strip():
            return pasted
    if whole:
        return _collected(io.BytesIO(data), source.name)

    def all_blocks() -> Iterator[bytes]:
        yield data
        yield from source.later

    return _collected(io.BufferedReader(_Blocks(all_blocks())), source.name)


def _refuse_list(text: str, name: str, given: str) -> None:
    """Refuse a JSON list: no log, no report and no case is one. BadFileError."""
    if not text.lstrip("\ufeff \t\r\n").startswith("["):
        return
    try:
        json.loads(text.lstrip("\ufeff"))
    except RecursionError as error:
        raise BadFileError(f"{name} is JSON that is nested too deep; an exported case is one object") from error
    except ValueError as error:
        if given.lower().endswith(".json"):
            raise BadFileError(
                f"{name} is called JSON and is none; export the case again, or give the log itself"
            ) from error
        return
    raise BadFileError(f"{name} is a JSON list; an exported case is one object, and a log has its records line by line")


def read_log(given: str) -> list[Evidence]:
    """Read a file that is a log, whatever it looks like; ``-`` is standard input. BadFileError."""
    return _collected("-" if given == "-" else Path(given).expanduser(), None)


def _collected(log: Any, name: str | None) -> list[Evidence]:
    events, summary = collect_log(log, name, max_events=MOST_EVENTS)
    name = name or summary.log
    told = settings_told(events)
    from diagnose.look import told_in_log  # noqa: PLC0415 - looks at machines, too, and is slow to load

    return [
        *(found(event, source="log", run=_RUN, origin=f"{name}, line {event.line}") for event in events),
        *(told_in_log(told[1], _RUN, f"{name}, line {told[0].line}") if told else []),
        found(summary, source="log", run=_RUN, origin=name),
    ]


class _Opened:
    """A source whose blocks were begun."""

    def __init__(self, source: Bytes) -> None:
        self.name = source.name
        self.later = source.blocks()


def _begin(given: str) -> tuple[_Opened, list[bytes], bool]:
    """Read what a report could be long: the source, its blocks so far, and whether that is all of it."""
    source = _Opened(open_source(given if given == "-" else Path(given).expanduser()))
    pieces: list[bytes] = []
    size = 0
    for block in source.later:
        pieces.append(block)
        size += len(block)
        if size > MAX_REPORT:
            return source, pieces, False
    return source, pieces, True


def _rest(data: bytes, source: _Opened, name: str) -> str:
    pieces, size = [data], len(data)
    for block in source.later:
        size += len(block)
        if size > MOST_CASE_BYTES:
            raise BadFileError(f"{name} is larger than {MOST_CASE_BYTES >> 20} MiB; that is no exported case")
        pieces.append(block)
    return b"".join(pieces).decode("utf-8", "replace")


def _may_be_a_servers(path: Path) -> bool:
    from probes.backends.settings_files import NAMES, SUFFIXES  # noqa: PLC0415 - only for files

    return path.name.lower() in NAMES or path.suffix.lower() in SUFFIXES


def _server_settings(path: Path, model: str | None) -> list[Evidence]:
    """Give the evidence of a server's settings file; nothing where it is none. InputError where it holds several models and none was named."""
    from diagnose.look import asked_window  # noqa: PLC0415 - looks at machines, too, and is slow to load
    from probes.backends.settings_files import read_settings_file  # noqa: PLC0415

    try:
        read = read_settings_file(path, model)
    except BadFileError:
        return []
    evidence = [
        found(read.configuration, source="file", run=_RUN, origin=path.name),
        found(
            BackendIdentity(name=read.backend, recognised_by=f"its settings file {path.name}"[:200]),
            source="file",
            run=_RUN,
            origin=path.name,
        ),
    ]
    return [*evidence, *asked_window(read.configuration, _RUN, path.name, source="file")]


def _named_clients(paths: Sequence[str]) -> list[Evidence]:
    """Give the evidence of clients' settings files that were named as such. BadFileError for one that is none."""
    if not paths:
        return []
    from diagnose.clients import as_evidence as of_settings  # noqa: PLC0415 - only where one was named
    from diagnose.clients import read_named  # noqa: PLC0415

    return [of_settings(settings, _RUN) for settings in read_named(paths)]


def _client_settings(path: Path) -> list[Evidence]:
    from probes.client_config import read_client_config  # noqa: PLC0415 - only for files that may be one

    try:
        settings = read_client_config(path)
    except CtxDoctorError:
        return []
    return [found(settings, source="file", run=_RUN, origin=path.name)]


def _placed(piece: Evidence) -> Evidence:
    """Put a piece of a report where it belongs: what a person says before any run, the rest into it."""
    return piece.model_copy(update={"run": _BEFORE if piece.kind == Answer.kind else _RUN})


# -- cases ------------------------------------------------------------------------------------------------------------------------------


def of_case(folder: Path) -> list[Evidence]:
    """Give the evidence of a case folder's last run, to be judged again. CaseError, CaseNewerError, BadFileError."""
    from diagnose.case import Case  # noqa: PLC0415

    case = Case.open(folder, read_only=True)
    pieces = _last_run(list(case.evidence(None).all))
    return _with_symptom(pieces, case.symptom)


def of_document(text: str, name: str) -> list[Evidence]:
    """Give the evidence of a case document (``case.json``, or what ``cases export`` wrote). BadFileError, CaseNewerError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadFileError(f"{name} begins like an exported case, but is no JSON ({type(error).__name__})") from error
    if not isinstance(data, dict):
        raise BadFileError(f"{name} begins like an exported case, but is none")
    version = data.get("schema_version")
    if isinstance(version, int) and version > SCHEMA_VERSION:
        raise CaseNewerError(f"{name} was written by a newer ctxdoctor (schema {version}); update this one")
    raw: list[Any] = [*_items(data.get("evidence"))]
    for key in ("entries", "records", "journal"):
        raw += [
            entry.get("data")
            for entry in _items(data.get(key))
            if isinstance(entry, dict) and entry.get("type") == "evidence"
        ]
    pieces: list[Evidence] = []
    strange = 0
    for one in raw:
        try:
            piece = Evidence.model_validate(one)
            if piece.data is not None:
                piece.payload()
        except ValueError:
            strange += 1
            continue
        pieces.append(piece)
    if not raw:
        raise BadFileError(
            f"{name} is an exported case without evidence; export it again with `ctxdoctor cases export`"
        )
    if raw and not pieces:
        raise BadFileError(f"{name} is an exported case, but none of its {len(raw)} records can be read")
    head = data.get("case")
    symptom = head.get("symptom") if isinstance(head, dict) else None
    evidence = _with_symptom(_last_run(pieces), symptom if isinstance(symptom, str) else None)
    if strange:
        evidence.append(
            not_found(
                "case", "failed", f"{strange} records of {name} cannot be read", source="file", run=_RUN, origin=name
            )
        )
    return evidence


def of_journal(text: str, name: str) -> list[Evidence]:
    """Give the evidence of a case's journal that lies somewhere by itself; a torn last line is left out. BadFileError, CaseNewerError."""
    entries: list[Any] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError) as error:
            if number == len(lines):
                break
            raise BadFileError(f"line {number} of {name} is damaged; mend or remove that line") from error
        version = entry.get("schema_version") if isinstance(entry, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise CaseNewerError(f"{name} was written by a newer ctxdoctor (schema {version}); update this one")
        entries.append(entry)
    head = next((one.get("data") for one in entries if isinstance(one, dict) and one.get("type") == "case"), None)
    return of_document(json.dumps({"case": head, "entries": entries}), name)


def _items(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _last_run(pieces: list[Evidence]) -> list[Evidence]:
    last = max((piece.run for piece in pieces), default=0)
    return [
        piece.model_copy(update={"run": _BEFORE if piece.run == 0 else _RUN})
        for piece in pieces
        if piece.run in {0, last}
    ]


def _with_symptom(pieces: list[Evidence], symptom: str | None) -> list[Evidence]:
    from rules.causes import SYMPTOMS  # noqa: PLC0415 - only for cases

    told = any(piece.kind == Answer.kind and (piece.data or {}).get("question") == "symptom" for piece in pieces)
    if told or symptom not in SYMPTOMS:
        return pieces
    source: Source = "user"
    return [
        found(Answer(question="symptom", value=symptom), source=source, run=_BEFORE, origin="symptom"),
        *pieces,
    ]
