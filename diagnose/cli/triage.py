"""``ctxdoctor triage``: no server and no network; what the user has is judged as it is."""

from __future__ import annotations

import os
import select
import sys
from typing import Annotated

import typer

from diagnose.cli import options as opt
from diagnose.cli.run import answers_of
from diagnose.console import Terminal, write_out
from diagnose.finish import check_format, check_out
from diagnose.language import spoken
from probes.evidence.errors import InputError
from probes.evidence.words import Words, words
from reports.document import Message

Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE…|-",
        help="Logs, a pasted bug report, an exported case or a case's folder, answers, a client's or a server's settings; - is standard input.",
        show_default=False,
    ),
]
Command = Annotated[
    str | None,
    typer.Option("--command", help="The command that starts the server: 'llama-server -m …'.", show_default=False),
]


def triage_command(
    files: Files = None,
    log: opt.Logs = None,
    client: opt.Client = None,
    answers: opt.Answers = None,
    command: Command = None,
    symptom: opt.Symptom = None,
    backend: opt.BackendName = None,
    model: opt.Model = None,
    case_name: Annotated[
        str | None, typer.Option("--case", help="Name of the case that is made.", show_default=False)
    ] = None,
    everything: opt.Everything = False,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: opt.Out = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    quiet: opt.Quiet = False,
) -> int:
    """Judge logs, a pasted bug report, an exported case, answers or a command, without a server and without a network."""
    shown = check_format(format)
    check_out(out)
    given = answers_of(answers, symptom)

    from diagnose.triage import gather, judge_gathered  # noqa: PLC0415 - options are checked before anything heavy is loaded

    terminal = Terminal(quiet=quiet)
    if not (files or log or client or answers or command or symptom or backend) and _piped():
        terminal.say(words("Reading standard input."))
        files = ["-"]
    nothing = not (files or log or client or answers or command or symptom or backend)
    if sys.stdin is None and "-" in (*(files or ()), *(log or ())):
        raise InputError("standard input is closed; give the name of a file, or pipe the text into it")
    gathered = gather(
        files or (), logs=log or (), clients=client or (), answers=given, command=command, backend=backend, model=model
    )
    for problem in gathered.problems:
        terminal.say(words("Note: {what}", what=problem))
    from diagnose.finish import tell  # noqa: PLC0415

    with judge_gathered(gathered, terminal, name=case_name, backend=backend) as case:
        code = tell(
            case,
            Terminal(quiet=True) if nothing and case_name is None else terminal,
            format=shown,
            out=out,
            target=report_for,
            redact=not no_redact,
            lang=lang,
            everything=everything,
            write_report=False,
        )
        if shown in {None, "terminal"} and (out is None or out == "-"):
            write_out(_more(case))
        if nothing and case_name is None:
            # there is nothing to come back to, and the case would be the newest, which `report` takes
            case.discard()
        return code


FIRST_BYTE_S = 5.0
"""A pipe from which nothing comes for so long holds nothing for us."""


def _piped() -> bool:
    """Say whether something waits on standard input: a file or a pipe that holds at least a byte."""
    try:
        if sys.stdin is None or sys.stdin.isatty():
            return False
        if os.name == "posix":
            ready, _, _ = select.select([sys.stdin], [], [], FIRST_BYTE_S)
            if not ready:
                return False
        look = getattr(sys.stdin.buffer, "peek", None)
        return look is not None and bool(look(1))
    except (OSError, ValueError, AttributeError):
        return False


def _more(case: object) -> str:
    """Give the lines on which the leading causes rest, and what is most useful to do next while nothing is named."""
    from diagnose.case import Case  # noqa: PLC0415
    from diagnose.document import shown_lines, would_decide  # noqa: PLC0415
    from reports.escape import visible  # noqa: PLC0415

    assert isinstance(case, Case)
    text = ""
    lines = shown_lines(case)
    if lines:
        text += f"\n{words('Lines that show it')}\n"
        text += "".join(f"  {one.cause}: {one.where}\n    {visible(one.text)}\n" for one in lines)
    if not any(entry.data.get("named") for entry in case.of("verdict")):
        todo = would_decide(case, case.run)
        if todo:
            text += f"\n{words('Most useful next')}\n"
            text += "".join(f"  {number}. {visible(_said(one))}\n" for number, one in enumerate(todo, start=1))
    return text


def _said(one: Message) -> str:
    """Say a message in the language in force, and the question in it too; a single word is an id, which stays."""
    values = {name: spoken(str(value)) if " " in str(value) else value for name, value in one.values.items()}
    return str(Words(one.text, values))
