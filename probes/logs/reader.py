"""From a log to typed events: streamed in constant memory, every line number kept, whatever the lines hold."""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, cast

from ahocorasick_rs import AhoCorasick, MatchKind

from probes.evidence.errors import BadFileError, InputError
from probes.evidence.events import EventKind, LogEvent, LogSummary

from .dialects import DIALECTS, all_rules
from .fold import Folder
from .frame import FRAME_LITERALS, Level, Line, read_line
from .rule import EVENT_FIELDS, FAILURES, Fields, Found, Kind, Rule
from .scan import Candidate, Scanner
from .source import BLOCK, open_source, rotation
from .starts import of_last_start

Log = str | os.PathLike[str] | BinaryIO

MAX_TEXT = 500
MAX_MATCHED = 4000
"""Characters that a pattern is tried on: no line of any server says a thing in more."""
HOT_AFTER = 400
"""Lines of one kind that are read one by one before they are sampled; failures get five times as many."""
NEAR_LINES = 8
"""How far apart the lines of one failure may be: the error, its device, its function, what was being allocated."""
_NEVER = 1 << 62
MAX_STEP = 64 << 20
"""How much of a growing log one look takes in; the next look goes on from there."""


class _Rules:
    """The rules in force, and which of them to try for a line."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules
        owners: dict[str, list[int]] = {}
        for index, one in enumerate(rules):
            for literal in one.literals:
                owners.setdefault(literal, []).append(index)
        self.literals = tuple(owners)
        self._owners = tuple(tuple(found) for found in owners.values())
        self._search = AhoCorasick(self.literals, matchkind=MatchKind.Standard)
        self.wanted = (*self.literals, *FRAME_LITERALS)
        """What the scanner looks for: words of the rules, and frames that hide them."""
        self.hot_after = (
            *(
                HOT_AFTER * (5 if any(rules[index].event in FAILURES for index in found) else 1)
                for found in self._owners
            ),
            *(_NEVER for _literal in FRAME_LITERALS),
        )

    def match_all(self, text: str) -> list[tuple[Rule, Found]]:
        """Give what the line says; of an overlong one, what stands around the words that any rule looks for."""
        if len(text) <= MAX_MATCHED:
            found = self.match(text)
            return [] if found is None else [found]
        pieces: list[tuple[Rule, Found]] = []
        end = 0
        for _which, begin, stop in self._search.find_matches_as_indexes(text):
            if begin < end:
                continue
            piece = text[max(begin - MAX_MATCHED // 4, end) : begin + MAX_MATCHED // 2]
            end = max(begin + MAX_MATCHED // 2, stop)
            found = self.match(piece)
            if found is not None:
                pieces.append(found)
            if len(pieces) == 8:
                break
        return pieces

    def match(self, text: str) -> tuple[Rule, Found] | None:
        """Give the first rule that the line obeys, and its events."""
        hits = {which for which, _start, _end in self._search.find_matches_as_indexes(text, overlapping=True)}
        if not hits:
            return None
        for index in sorted({owner for which in hits for owner in self._owners[which]}):
            events = self.rules[index].events(text)
            if events:
                return self.rules[index], events
        return None


@cache
def _rules(dialect: str | None) -> _Rules:
    return _Rules(all_rules(dialect))


class _Failure:
    """A failure whose further lines may still follow."""

    def __init__(self, kind: EventKind, fields: Fields, last: int) -> None:
        self.kind = kind
        self.fields = fields
        self.last = last


class LineParser:
    """Turns candidate lines into events; remembers what is being loaded and joins the lines of one failure."""

    def __init__(self, name: str = "", dialect: str | None = None) -> None:
        if dialect is not None and dialect not in DIALECTS:
            raise InputError(f"there is no log dialect {dialect!r}; one of: {', '.join(DIALECTS)}")
        self.rules = _rules(dialect)
        self._name = name[:MAX_TEXT]
        self._pending: _Failure | None = None
        self._loading: str | None = None
        self._draft = False
        self._asks_for_more = False

    def feed(self, candidate: Candidate) -> Iterator[LogEvent]:
        """Give the events that are complete with this line."""
        if self._pending is not None and candidate.line - self._pending.last > NEAR_LINES:
            yield from self.flush()
        for line in read_line(candidate.raw):
            if line.rows:
                for row in line.rows:
                    for kind, fields in _breakdown(row):
                        yield from self._take(kind, fields, line, "llamacpp", candidate)
                continue
            if "\r" in line.text:
                for part in line.text.split("\r")[-64:]:
                    yield from self._line(Line(part, line.time, line.level), candidate)
            else:
                yield from self._line(line, candidate)

    def flush(self) -> Iterator[LogEvent]:
        """Give the failure that was still waiting for further lines."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        fields = pending.fields
        if pending.kind == "alloc-failed" and fields.get("component") is None and self._loading is not None:
            fields["component"] = self._loading
        yield _event(pending.kind, fields)

    def _line(self, line: Line, candidate: Candidate) -> Iterator[LogEvent]:
        for matched, events in self.rules.match_all(line.text):
            if line.level is None and matched.level is not None:
                line.level = cast("Level", matched.level)
            for kind, fields in events:
                yield from self._take(kind, fields, line, matched.dialect, candidate)

    def _take(self, kind: Kind, fields: Fields, line: Line, dialect: str, candidate: Candidate) -> Iterator[LogEvent]:
        weak = fields.pop("_weak", False)
        pending = self._pending
        if kind == "attach":
            if pending is not None:
                _fill(pending.fields, fields)
                _further(pending.fields, candidate.line, line.text)
                pending.last = candidate.line
                pending.fields["last_line"] = candidate.line
            return
        self._remember(kind, fields, dialect)
        level = line.level or ("error" if kind in FAILURES else None)
        fields.update(
            line=candidate.line, last_line=candidate.last, count_seen=candidate.weight, text=line.text.strip()[:MAX_TEXT], dialect=dialect,
            log=self._name, time=line.time, level=level,
        )  # fmt: skip
        if kind not in {"alloc-failed", "kernel-error"}:
            yield from self.flush()
            yield _event(kind, fields)
            return
        if pending is not None and _same_failure(pending, kind, fields, weak=weak):
            if pending.fields.pop("_weak", False):
                pending.kind = kind
                _fill(
                    fields, {k: v for k, v in pending.fields.items() if k not in {"text", "last_line"}}, over=("line",)
                )
                pending.fields = fields
            else:
                if pending.fields["dialect"] == "generic":
                    pending.fields.update(dialect=dialect, text=fields["text"])
                else:
                    _further(pending.fields, candidate.line, line.text)
                _fill(pending.fields, {k: v for k, v in fields.items() if k not in {"line", "count_seen"}})
            pending.fields["last_line"] = pending.last = candidate.line
            return
        yield from self.flush()
        if weak:
            fields["_weak"] = True
        self._pending = _Failure(kind, fields, candidate.line)

    def _remember(self, kind: EventKind, fields: Fields, dialect: str) -> None:
        """Keep in mind what is being loaded: an allocation that fails without saying what for belongs to that.

        And by whom: KoboldCpp asks llama.cpp within it for more window than it uses, and for a sequence more than it serves.
        """
        if kind == "program":
            self._asks_for_more = fields.get("name") == "koboldcpp"
        elif self._asks_for_more and dialect == "llamacpp":
            if kind == "window" and fields.get("which") in {"in-force", "per-slot"}:
                fields["which"] = "allocated"
            elif kind == "slots" and fields.get("key") == "n_seq_max" and (fields.get("count") or 0) > 1:
                fields["count"] -= 1
            elif kind == "model-info" and fields.get("key") == "n_batch":
                fields["key"] = "n_batch_asked_within"  # doubled for pipelines
        if kind == "loading":
            self._draft = fields.get("which") == "draft"
            self._loading = "weights"
        elif kind in {"program", "slots", "model-loaded"}:
            self._draft = False
            self._loading = None
        elif kind == "window" and self._loading == "weights":
            self._loading = "kv"
        elif kind == "kv-cache" and self._loading is not None and fields.get("size_bytes") is not None:
            self._loading = "compute"
        if self._draft and kind in {"buffer", "kv-cache", "window", "alloc-failed", "layers-offloaded"}:
            fields.setdefault("name", "draft")


def _same_failure(pending: _Failure, kind: EventKind, fields: Fields, *, weak: bool) -> bool:
    """Say whether two failure lines near each other tell of one failure."""
    if weak or pending.fields.get("_weak"):
        return True
    if kind != pending.kind:
        return False
    old = pending.fields
    for key in ("component", "reason", "api"):
        if old.get(key) is not None and fields.get(key) is not None and old[key] != fields[key]:
            return False
    if kind == "kernel-error":
        return False
    sizes = old.get("size_bytes"), fields.get("size_bytes")
    if sizes[0] is not None and sizes[1] is not None and abs(sizes[0] - sizes[1]) > max(1 << 20, sizes[0] // 100):
        return False
    if old.get("device") is None or fields.get("device") is None:
        return True
    first, second = str(old["device"]), str(fields["device"])
    if first == second:
        return True
    # "device 0" and "CUDA0" are the same one.
    return _index(first) == _index(second) and (first.isdigit() or second.isdigit())


def _index(device: str) -> str:
    return device[len(device.rstrip("0123456789")) :]


MOST_FURTHER = 4


def _further(fields: Fields, number: int, text: str) -> None:
    """Keep a line that tells more of a failure, as it was printed."""
    texts, numbers = fields.get("further", ()), fields.get("further_lines", ())
    if len(texts) < MOST_FURTHER and number not in numbers and number != fields.get("line"):
        fields["further"] = (*texts, text.strip()[:MAX_TEXT])
        fields["further_lines"] = (*numbers, number)


def _fill(fields: Fields, more: Fields, over: tuple[str, ...] = ()) -> None:
    """Add what is not known yet; a device's full name beats its bare number."""
    for key, value in more.items():
        if value is None or key in {"last_line", "_weak"}:
            continue
        known = fields.get(key)
        if known is None or key in over or (key == "device" and str(known).isdigit() and not str(value).isdigit()):
            fields[key] = value


def _event(kind: EventKind, fields: Fields) -> LogEvent:
    return LogEvent(
        event=kind, **{key: value for key, value in fields.items() if value is not None and key in EVENT_FIELDS}
    )


def _breakdown(row: dict[str, Any]) -> Found:
    """Read one row of llama.cpp's memory breakdown (MiB)."""

    def mib(key: str) -> int | None:
        value = row.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**42:
            return None
        return round(value * (1 << 20))

    name = row.get("name")
    if not isinstance(name, str) or not name:
        return []
    name = name[:200]
    parts = (("model", "weights"), ("context", "kv"), ("compute", "compute"))
    events: Found = [
        ("buffer", {"device": name, "component": component, "size_bytes": mib(key), "key": "breakdown"})
        for key, component in parts
        if mib(key) is not None
    ]
    if mib("total") is not None:
        description = row.get("description")
        events.append(
            (
                "device-found",
                {
                    "device": name,
                    "name": description[:200] if isinstance(description, str) else None,
                    "total_bytes": mib("total"),
                    "free_bytes": mib("free"),
                    "key": "breakdown",
                },
            )
        )
    return events


def read_log(log: Log, name: str | None = None, dialect: str | None = None) -> Iterator[LogEvent]:
    """Give every event of one log, in the order of its lines.

    ``log``: a path, ``-`` for standard input, or a binary stream; gz, bz2 and xz are unpacked. A regular file is read up to the size it has
    at the start. BadFileError if it cannot be opened or is no text; InputError for an unknown dialect.
    """
    source = open_source(log, name)
    parser = LineParser(source.name, dialect)
    for candidate in Scanner(parser.rules.wanted).candidates(source.blocks()):
        yield from parser.feed(candidate)
    yield from parser.flush()


def tail_events(text: str, name: str = "", dialect: str | None = None) -> list[LogEvent]:
    """Give every event of a piece of log text."""
    stream = io.BytesIO(text.encode("utf-8", "replace"))
    parser = LineParser(name, dialect)
    events: list[LogEvent] = []
    for candidate in Scanner(parser.rules.wanted).candidates(iter(lambda: stream.read(BLOCK), b"")):
        events.extend(parser.feed(candidate))
    events.extend(parser.flush())
    return events


def collect_log(
    log: Log, name: str | None = None, dialect: str | None = None, *, max_events: int = 5000, rotated: bool = False
) -> tuple[list[LogEvent], LogSummary]:
    """Give a log's events, frequent ones folded so that there are at most ``max_events``, and a summary.

    A folded event stands for ``count_seen`` lines up to ``last_line``; the first, the last and failures are kept longest. Of what several starts
    placed the last start's is kept. ``rotated`` reads the rotated predecessors of a path before it. Errors as in :func:`read_log`.
    """
    paths: list[Log] = [log]
    if rotated and isinstance(log, str | os.PathLike) and str(log) != "-":
        paths = list(rotation(log))
    folder = Folder(max_events)
    dialects: Counter[str] = Counter()
    lines = size = 0
    files: list[str] = []
    incomplete: list[str] = []
    for each in paths:
        newest = each is paths[-1]
        source = open_source(each, name if newest else None) if newest else _try_open(each)
        if source is None:
            continue
        parser = LineParser(source.name, dialect)
        scanner = Scanner(parser.rules.wanted, parser.rules.hot_after)
        try:
            for candidate in scanner.candidates(source.blocks()):
                for event in parser.feed(candidate):
                    dialects[event.dialect] += 1
                    folder.add(event)
            for event in parser.flush():
                dialects[event.dialect] += 1
                folder.add(event)
        except BadFileError as error:
            if newest:
                raise
            incomplete.append(str(error))
            continue
        finally:
            source.close()
        files.append(source.name)
        lines += scanner.lines
        size += source.read
        if source.incomplete is not None:
            incomplete.append(source.incomplete)
        if scanner.cut_lines:
            incomplete.append(f"{scanner.cut_lines} overlong lines were cut")
        folder.next_file()
    events = folder.events()
    counts = folder.counts
    summary = LogSummary(
        log=files[-1] if files else (name or "log"),
        dialects=tuple(one for one, _count in dialects.most_common(12) if one),
        lines=lines,
        size_bytes=size,
        verbose_load_lines=any(counts.get(kind) for kind in ("buffer", "kv-cache", "kv-pool")),
        incomplete="; ".join(incomplete)[:2000] or None,
        files=tuple(files) if len(files) > 1 else (),
        folded=max(0, sum(counts.values()) - len(events)),
        counts=dict(sorted(counts.items())),
    )
    return of_last_start(events), summary


def _try_open(log: Log) -> Any:
    try:
        return open_source(log)
    except BadFileError:
        return None


class LogFollower:
    """Follows a log while it grows; goes on in the new file when it was rotated or emptied.

    ``from_start`` False begins at the end that the file has now. A file that does not exist yet is waited for.
    """

    def __init__(self, path: str | os.PathLike[str], dialect: str | None = None, *, from_start: bool = True) -> None:
        self.path = Path(path)
        self._dialect = dialect
        self._identity: tuple[int, int] | None = None
        self._at = 0
        self._begin()
        if not from_start:
            try:
                status = self.path.stat()
            except OSError:
                return
            self._identity = (status.st_dev, status.st_ino)
            self._at = status.st_size

    def _begin(self) -> None:
        self._parser = LineParser(self.path.name, self._dialect)
        self._scanner = Scanner(self._parser.rules.wanted)
        self._at = 0

    def new_events(self) -> list[LogEvent]:
        """Give the events of the lines that were completed since the last look; an unfinished last line waits for its end."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise BadFileError(f"the log {self.path.name!r} cannot be followed: {error}") from error
        events: list[LogEvent] = []
        with file:
            status = os.fstat(file.fileno())
            identity = (status.st_dev, status.st_ino)
            if (self._identity is not None and identity != self._identity) or status.st_size < self._at:
                events.extend(self._end())
                self._begin()
            self._identity = identity
            file.seek(self._at)
            left = min(status.st_size - self._at, MAX_STEP)
            while left > 0:
                block = file.read(min(left, BLOCK))
                if not block:
                    break
                left -= len(block)
                self._at += len(block)
                for candidate in self._scanner.feed(block):
                    events.extend(self._parser.feed(candidate))
        events.extend(self._parser.flush())
        return events

    def _end(self) -> list[LogEvent]:
        events = [event for candidate in self._scanner.finish() for event in self._parser.feed(candidate)]
        events.extend(self._parser.flush())
        return events

    def close(self) -> list[LogEvent]:
        """Give what an unfinished last line holds, at the end of a run."""
        return [*self.new_events(), *self._end()]
