"""The end of a command that judged something: files written, results printed, the exit code."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal, cast, get_args

from diagnose.case import Case, write_whole
from diagnose.console import Terminal, write_out
from diagnose.document import document_of
from diagnose.language import in_force
from probes.evidence.errors import CtxDoctorError, InputError
from probes.evidence.words import words
from reports.document import CaseDocument

Format = Literal["md", "html", "json", "bug-report", "terminal"]
FORMATS = get_args(Format)
REPORT = "ctxdoctor-report.md"


def check_format(name: str | None) -> Format | None:
    """Check a format's name. InputError lists them."""
    if name is not None and name not in FORMATS:
        raise InputError(f"--format is one of {', '.join(FORMATS)}, not {name!r}")
    return cast("Format | None", name)


def check_out(out: str | None) -> None:
    """Check that a report can be written where it is to go, before anything is measured. InputError."""
    if out is None or out == "-":
        return
    if not out.strip():
        raise InputError("--out is given without a name; give the name of a file, or - for standard output")
    path = Path(out)
    if path.is_dir():
        raise InputError(f"--out {out} is a folder; give the name of a file in it")
    if path.exists() and not path.is_file():
        raise InputError(f"--out {out} is a device, not a file; leave --out away and redirect standard output")
    if not path.parent.is_dir():
        raise InputError(f"--out {out}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK) or str(path.resolve()).startswith("/proc/"):
        raise InputError(f"--out {out} cannot be written; give a place that you may write to")


def reached_top(document: CaseDocument) -> bool:
    """Say whether the window was verified up to where it was to be: the longest planned length, which a budget may have cut off."""
    verified, ladder = document.window.verified_input_tokens, document.ladder
    return verified is not None and (ladder is None or not ladder.rungs or verified >= 0.85 * max(ladder.rungs))


def exit_code(document: CaseDocument, *, could_not_look: bool) -> int:
    """Give the contract's exit code for a judged run: the first that applies."""
    window = document.window
    target_missed = (
        False in (window.fits.ok, window.fast_enough.ok, window.recalls.ok)
        and document.ladder is not None
        and document.ladder.target is not None
    )
    if document.verdict.named or target_missed:
        return 1
    standing = [cause for cause in document.verdict.causes if cause.band in {"likely", "disputed", "possible"}]
    if could_not_look:
        return 3
    if reached_top(document) and not any(cause.band == "likely" for cause in standing):
        return 0
    if (
        not standing
        and window.fits.ok
        and window.recalls.ok is not False
        and window.fast_enough.ok is not False
        and window.recalls.ok is not None
    ):
        return 0
    return 4


def free_name(folder: Path, name: str = REPORT) -> Path:
    """Give a name that no file has yet: an existing report is kept."""
    path = folder / name
    number = 0
    while path.exists():
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path


def tell(
    case: Case,
    terminal: Terminal,
    *,
    format: Format | None,  # noqa: A002 - the option's own name
    out: str | None,
    target: str | None = None,
    redact: bool = True,
    lang: str | None = None,
    everything: bool = False,
    write_report: bool = True,
    could_not_look: bool = False,
    run: int | None = None,
) -> int:
    """Write ``case.json`` and the report, print what was asked for, and give the exit code. ``run`` None: the last one."""
    from reports.render import render  # noqa: PLC0415 - templates are loaded only when something is told
    from reports.terminal import summary  # noqa: PLC0415

    document = document_of(case, run)
    if everything:
        document = document_of(case, run, everything=True)
    case.write_file("case.json", document.to_json())
    markdown = render(document, "md", lang=lang or in_force(), redact=redact)
    case.write_file("report.md", markdown)
    written: Path | None = None
    there = False
    body = (
        markdown
        if format in {None, "md", "terminal", "json"}
        else render(
            document,
            format,
            target=target,
            lang=lang or ("en" if format == "bug-report" else in_force()),
            redact=redact,
        )
    )
    if write_report or (out is not None and out != "-"):
        suffix = ".html" if format == "html" else ".md"
        written = Path(out) if out and out != "-" else free_name(Path.cwd(), REPORT.replace(".md", suffix))
        content = document.to_json() if format == "json" and out else body
        there = written.exists()
        try:
            write_whole(written, content)
        except CtxDoctorError as error:
            terminal.say(words("The report was not written: {why}", why=str(error)))
            written = None
    if format == "json":
        write_out(document.to_json() + "\n")
    elif format in {"md", "html", "bug-report"}:
        if out is None or out == "-":
            write_out(body if body.endswith("\n") else body + "\n")
    else:
        from rich.console import Console  # noqa: PLC0415

        summary(
            document, Console(no_color=bool(os.environ.get("NO_COLOR")), highlight=False, emoji=False, markup=False)
        )
    if written is not None:
        terminal.say(words("Report: {path}", path=str(written)))
        if there:
            terminal.say(words("The file that was there is replaced."))
    terminal.say(words("Case: {name}", name=case.id))
    sys.stdout.flush()
    return exit_code(document, could_not_look=could_not_look)
