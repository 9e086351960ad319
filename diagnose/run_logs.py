"""The logs of a run: read as they are now, and at the end kept as events, without what a probe brought about on purpose."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from diagnose.look import told_in_log
from diagnose.readback import difference
from diagnose.running import Walk
from diagnose.snapshots import snapshot_of
from diagnose.steps import started_by
from probes.evidence.errors import CtxDoctorError
from probes.evidence.events import LogEvent, LogSummary
from probes.evidence.records import found, not_found
from probes.evidence.request import TruncationReading
from probes.evidence.subject import Configuration
from probes.evidence.words import words
from probes.logs.reader import collect_log
from probes.logs.rule import FAILURES
from probes.logs.told import settings_told

LOG_EVENTS = 400
"""At most so many events of one log go into the case."""


def events_now(one: Walk) -> Sequence[LogEvent]:
    """Read the logs as they are now, without keeping them: the whole is kept at the end of the run."""
    events: list[LogEvent] = []
    for path, earlier in _of_this_run(one):
        with contextlib.suppress(CtxDoctorError, OSError):
            events += [event for event in collect_log(path, max_events=LOG_EVENTS)[0] if event.line > earlier]
    return events


_BEFORE = "logs-before"


def _mark(path: Path, size: int | None = None) -> dict[str, Any] | None:
    """Tell how far a log goes, and by its end, whether it was written on or written anew: bytes, lines, a hash. None where it cannot be read."""
    try:
        with path.open("rb") as log:
            whole = os.fstat(log.fileno()).st_size if size is None else size
            lines = 0
            end = b""
            left = whole
            while left and (block := log.read(min(left, 1 << 20))):
                left -= len(block)
                lines += block.count(b"\n")
                end = (end + block)[-_END:]
            return {"bytes": whole - left, "lines": lines, "end": hashlib.sha256(end).hexdigest()[:16]}
    except OSError:
        return None


_END = 4096


def _of_this_run(one: Walk) -> list[tuple[Path, int]]:
    """Give the logs that tell of this run, each with the number of its lines that belong to earlier ones.

    A log that an earlier run has read, and to which another server than that run's wrote nothing since, tells nothing of this one.
    """
    return [
        (path, earlier) for path in dict.fromkeys(one.log_paths) if (earlier := _earlier_lines(one, path)) is not None
    ]


def _earlier_lines(one: Walk, path: Path) -> int | None:
    """Give how many of a log's first lines are those of earlier runs; None: all."""
    for run in range(one.run - 1, 0, -1):
        marks = [entry.data.get("logs", {}).get(str(path)) for entry in one.case.of("probe-done", run)]
        mark = next((mark for mark in marks if mark), None)
        if mark is None:
            continue
        if not _another_server(one, run) or _mark(path, mark["bytes"]) != mark:
            return 0
        now = _mark(path)
        return mark["lines"] if now is not None and now["bytes"] > mark["bytes"] else None
    return 0


def _another_server(one: Walk, run: int) -> bool:
    """Say whether this run's server is another than an earlier run's: we started it, or what it was started with differs."""
    if one.options.launch is not None:
        return True
    before, now = (started_by(one.case.evidence(each)) for each in (run, one.run))
    if before and now:
        return before != now
    then, mine = snapshot_of(one.case, run), snapshot_of(one.case, one.run)
    return then is not None and mine is not None and any(each.asked for each in difference(then, mine).variables)


def _without_ours(events: Sequence[LogEvent], readings: Sequence[TruncationReading]) -> list[LogEvent]:
    """Leave out what a probe brought about on purpose: the refusal of its overlong prompt, and the end of that request."""
    sent = [reading.sent for reading in readings if reading.sent is not None]
    ours = {
        event.line
        for event in events
        if event.event == "refused" and event.tokens is not None and any(abs(event.tokens - n) <= 128 for n in sent)
    }
    # a server that cuts a prompt before it counts it tells no length: ours are the last of its refusals
    mine = [reading.window for reading in readings if reading.verdict == "refused"]
    untold = [event for event in events if event.event == "refused" and event.tokens is None and event.limit in mine]
    ours |= {
        event.line for event in untold[len(untold) - min(len(untold), len(mine)) :] if event.count_seen <= len(mine)
    }
    return [
        event
        for event in events
        if event.line not in ours
        and not (event.event == "cancelled" and any(0 <= event.line - line <= 8 for line in ours))
    ]


TURNS = frozenset({"cache-reuse"})
"""What a log says of single prompts as a client builds them: of ours it says nothing about the user's client."""


def before_measuring(one: Walk) -> None:
    """Remember how far each log goes before we send anything; a run that is gone on with has sent some already."""
    kept = next((e.data["before"] for e in one.case.of("probe-done", one.run) if e.data["probe"] == _BEFORE), None)
    if kept is None:
        kept = {str(path): mark["lines"] for path in dict.fromkeys(one.log_paths) if (mark := _mark(path))}
        one.case.append("probe-done", {"probe": _BEFORE, "before": kept})
    one.lines_before = kept


def before_stop(one: Walk) -> None:
    """Remember how far each log goes before the server that we started is ended: what it complains of while it ends is none of its troubles."""
    if one.server is None or one.server.ended() is not None:
        return
    for path in one.log_paths:
        with contextlib.suppress(OSError), path.open("rb") as log:
            one.lines_before_stop[path] = sum(block.count(b"\n") for block in iter(lambda: log.read(1 << 20), b""))


def read_logs(one: Walk) -> None:
    """Put every log's events into the case, once a run."""
    if "logs" in one.case.done_probes(one.run):
        return
    logs = _of_this_run(one)
    if one.log_paths and not logs:
        one.add(
            not_found(
                LogEvent,
                "not-run",
                "the log that was given is that of an earlier run: nothing was written to it since; give this run's with --log FILE",
                source="log",
                run=one.run,
                origin="log",
            )
        )
    elif not logs:
        one.add(
            not_found(
                LogEvent, "not-run", "no log was given; add it with --log FILE", source="log", run=one.run, origin="log"
            )
        )
    marks = {str(path): _mark(path) for path, _earlier in logs}
    for path, earlier in logs:
        try:
            events, summary = collect_log(path, max_events=LOG_EVENTS)
        except CtxDoctorError as error:
            one.add(not_found(LogSummary, "failed", str(error), source="log", run=one.run, origin=str(path)))
            one.ui.say(words("The log cannot be read: {why}", why=str(error)))
            continue
        one.add(found(summary, source="log", run=one.run, origin=path.name))
        events = [event for event in events if event.line > earlier]
        told = settings_told(events)
        if told is not None:
            # how it was really started is known where its process, or its launch, was seen
            seen = any(reading.command for reading in one.mine(Configuration))
            printed = told[1].model_copy(update={"command": None}) if seen else told[1]
            for piece in told_in_log(printed, one.run, f"{path.name}:{told[0].line}"):
                one.add(piece)
        events = _without_ours(events, one.mine(TruncationReading))
        if one.lines_before is not None:
            # a log that came up since is that of a server which we started
            sent_from = one.lines_before.get(str(path), 0)
            events = [event for event in events if event.line <= sent_from or event.event not in TURNS]
        end = one.lines_before_stop.get(path)
        if end is not None:
            events = [event for event in events if event.line <= end or event.event not in FAILURES]
        one.case.add_all(
            [found(event, source="log", run=one.run, origin=f"{path.name}:{event.line}") for event in events]
        )
    one.case.append("probe-done", {"probe": "logs", "logs": {path: mark for path, mark in marks.items() if mark}})
