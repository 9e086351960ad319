"""The logs of a run: read as they are now, and at the end kept as events, without what a probe brought about on purpose."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from diagnose.look import told_in_log
from diagnose.running import Walk
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
    for path in one.log_paths:
        with contextlib.suppress(CtxDoctorError, OSError):
            events += collect_log(path, max_events=LOG_EVENTS)[0]
    return events


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
    if not one.log_paths:
        one.add(
            not_found(
                LogEvent, "not-run", "no log was given; add it with --log FILE", source="log", run=one.run, origin="log"
            )
        )
    for path in one.log_paths:
        try:
            events, summary = collect_log(path, max_events=LOG_EVENTS)
        except CtxDoctorError as error:
            one.add(not_found(LogSummary, "failed", str(error), source="log", run=one.run, origin=str(path)))
            one.ui.say(words("The log cannot be read: {why}", why=str(error)))
            continue
        one.add(found(summary, source="log", run=one.run, origin=path.name))
        told = settings_told(events)
        if told is not None:
            # how it was really started is known where its process, or its launch, was seen
            seen = any(reading.command for reading in one.mine(Configuration))
            printed = told[1].model_copy(update={"command": None}) if seen else told[1]
            for piece in told_in_log(printed, one.run, f"{path.name}:{told[0].line}"):
                one.add(piece)
        events = _without_ours(events, one.mine(TruncationReading))
        end = one.lines_before_stop.get(path)
        if end is not None:
            events = [event for event in events if event.line <= end or event.event not in FAILURES]
        one.case.add_all(
            [found(event, source="log", run=one.run, origin=f"{path.name}:{event.line}") for event in events]
        )
    one.case.append("probe-done", {"probe": "logs"})
