"""``ctxdoctor report``: a case, drawn again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli import options as opt
from diagnose.cli.check import ResultFile, put
from diagnose.finish import check_format, check_out
from diagnose.language import in_force
from probes.evidence.errors import BadFileError, CaseNewerError, InputError

if TYPE_CHECKING:
    from reports.document import CaseDocument

CaseArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="CASE",
        help="A case's name or path, or the JSON file of a case; absent: the newest.",
        show_default=False,
    ),
]


MOST_BYTES = 64 << 20
"""A document of more is none of ours."""


def read_document(file: Path) -> CaseDocument:
    """Read what ``--format json`` or ``cases export`` wrote. BadFileError, CaseNewerError."""
    from pydantic import ValidationError  # noqa: PLC0415 - only where a file was given

    from probes.evidence.records import SCHEMA_VERSION  # noqa: PLC0415
    from reports.document import CaseDocument  # noqa: PLC0415

    try:
        if file.stat().st_size > MOST_BYTES:
            raise BadFileError(f"{file} is larger than {MOST_BYTES >> 20} MiB, and is no case's document")
        value = json.loads(file.read_bytes())
        version = value.get("schema_version") if isinstance(value, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise CaseNewerError(f"{file} was written by a newer ctxdoctor (schema {version}); update this one")
        return CaseDocument.model_validate(value)
    except OSError as error:
        raise BadFileError(f"{file} cannot be read ({error.strerror})") from error
    except (ValidationError, ValueError, RecursionError) as error:
        raise BadFileError(
            f"{file} is no case's document; give a case's name, its folder, or what `ctxdoctor cases export` wrote"
        ) from error


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

    name = case_name or case_option
    if name is not None and (file := Path(name)).suffix == ".json" and file.is_file():
        if run is not None or everything:
            raise InputError(f"{name} holds one judged run; --run and --all need the case itself")
        document = read_document(file)
    else:
        case = Case.open(name, read_only=True)
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
