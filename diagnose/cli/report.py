"""``ctxdoctor report``: a case, drawn again."""

from __future__ import annotations

from typing import Annotated

import typer

from diagnose.cli import options as opt
from diagnose.cli.check import ResultFile, put
from diagnose.finish import check_format, check_out
from diagnose.language import in_force
from probes.evidence.errors import InputError

CaseArgument = Annotated[
    str | None,
    typer.Argument(metavar="CASE", help="A case's name or path; absent: the newest.", show_default=False),
]


def report_command(
    case_name: CaseArgument = None,
    case_option: Annotated[
        str | None, typer.Option("--case", help="The case, as the argument.", show_default=False)
    ] = None,
    run: Annotated[
        int | None, typer.Option("--run", min=1, help="As of this run of the case.", show_default="the last")
    ] = None,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: ResultFile = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    everything: opt.Everything = False,
    quiet: opt.Quiet = False,
) -> int:
    """Draw a case again: Markdown (the default), HTML, JSON, a filled bug form, or the terminal's summary."""
    del quiet  # there is no talk here
    shown = check_format(format) or ("bug-report" if report_for is not None else "md")
    check_out(out)
    from diagnose.case import Case  # noqa: PLC0415 - a case is opened only where one is shown
    from diagnose.document import document_of  # noqa: PLC0415
    from reports.render import render  # noqa: PLC0415

    case = Case.open(case_name or case_option, read_only=True)
    if run is not None and run > case.run:
        raise InputError(f"case {case.id} has {case.run} runs; --run {run} is none of them")
    document = document_of(case, run, everything=everything)
    put(
        render(
            document,
            shown,
            target=report_for,
            lang=lang or ("en" if shown == "bug-report" else in_force()),
            redact=not no_redact,
        ),
        out,
    )
    return 0
