"""One run of one case, from its options to its exit code: the case is opened or made, the walk is done, the result is told."""

from __future__ import annotations

import difflib
import re
import signal
import threading
from collections.abc import Sequence
from types import FrameType

from diagnose.aftermath import put_right
from diagnose.case import Case, find, folders
from diagnose.clients import add_named
from diagnose.console import Terminal
from diagnose.options import RunOptions
from diagnose.running import Walk, begin
from diagnose.session import walk
from diagnose.standing import kept_as_it_was
from diagnose.version import version
from probes.evidence.answers import Answer
from probes.evidence.errors import CaseError
from probes.evidence.records import found
from probes.evidence.rungs import Criteria
from probes.evidence.words import words
from rules.catalogue import Mode

_STAMP = re.compile(r"\d{8}-")


def open_or_create(name: str | None, symptom: str | None) -> Case:
    """Open the case of that name, or make it; without a name a new one is made.

    The beginning of a name is enough for one that was made from the time: a person's own may be the beginning of another.
    """
    if name is not None:
        try:
            folder = find(name)
        except CaseError:
            return Case.create(symptom, tool_version=version(), name=name)
        if folder.name != name and folder.name.startswith(name) and not _STAMP.match(name):
            return Case.create(symptom, tool_version=version(), name=name)
        return Case.open(name)
    return Case.create(symptom, tool_version=version())


ENDING_SIGNALS = ("SIGTERM", "SIGHUP")
"""What ends the tool beside Ctrl-C. A terminal that is closed sends SIGHUP; Windows does not have it."""


def as_interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treat a signal that ends the tool as Ctrl-C: what was started is stopped, and the case is kept."""
    raise KeyboardInterrupt


def end_cleanly() -> None:
    """Treat every signal that ends the tool as Ctrl-C from now on. One that is ignored stays so: ``nohup`` means that the tool is to live on."""
    if threading.current_thread() is not threading.main_thread():
        return
    for name in ENDING_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, as_interrupt)


def perform(
    case: Case,
    options: RunOptions,
    criteria: Criteria,
    answers: Sequence[Answer],
    terminal: Terminal,
    *,
    api_key: str | None = None,
    mode: Mode = "session",
) -> Walk:
    """Do one run of an open case. KeyboardInterrupt passes through, after the case was told how to go on."""
    end_cleanly()
    put_right(terminal)
    for answer in answers:
        case.add(found(answer, source="user", run=0, origin=answer.question))
    options, criteria, resumed = begin(case, options, criteria)
    if resumed:
        terminal.say(words("Going on with run {run} of case {case}.", run=case.run, case=case.id))
    elif case.run == 1:
        terminal.say(
            words("New case {case}. If it is interrupted, go on with: ctxdoctor run --case {case}", case=case.id)
        )
        # names that were made are alike by their dates: that says nothing
        others = [one.name for one in folders() if one != case.folder] if case.named else []
        near = difflib.get_close_matches(case.id, others, n=1, cutoff=0.8)
        if near:
            terminal.say(
                words("There is a case of a similar name already, and this is another one: {near}", near=near[0])
            )
    else:
        terminal.say(
            words(
                "Case {case}, run {run}. If it is interrupted, go on with: ctxdoctor run --case {case}",
                case=case.id,
                run=case.run,
            )
        )
    if case.dropped:
        terminal.say(words("Note: {what}", what=case.dropped))
    one = Walk(case, options, terminal, criteria, api_key=api_key, mode=mode)
    add_named(one)
    try:
        with kept_as_it_was(case, options, terminal, api_key):
            walk(one)
    except KeyboardInterrupt:
        terminal.finish_progress()
        terminal.say(
            words(
                "Interrupted; everything measured so far is kept. Go on with: ctxdoctor run --case {case}", case=case.id
            )
        )
        raise
    return one
