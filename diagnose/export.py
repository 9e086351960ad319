"""One case as one file without what is private: to be sent to somebody, who judges it again with ``ctxdoctor triage``, offline."""

from __future__ import annotations

from pathlib import Path

from diagnose.case import Case, write_whole
from diagnose.document import document_of
from probes.evidence.errors import CaseError, InputError
from reports.redact import redact_document


def export_case(case: Case, out: Path) -> Path:
    """Write the case document of the last run, with the evidence and the ledger of all runs, redacted. Gives the path.

    InputError where it cannot be written, or where a file that is no exported case lies there already.
    """
    if out.is_dir():
        out /= f"{case.id}.json"
    if out.exists() and not out.is_file():
        raise InputError(f"{out} is no regular file; give the name of a file with --out, or - for standard output")
    if out.exists() and not _is_export(out):
        raise InputError(f"{out} is there already and is no exported case; give another name with --out")
    text = exported(case)
    try:
        write_whole(out, text)
    except CaseError as error:
        raise InputError(f"{out} cannot be written; give another place with --out") from error
    return out


def exported(case: Case) -> str:
    """Give the exported case's text."""
    document, left_out = redact_document(document_of(case, everything=True))
    notes = (*document.notes, *(f"Left out of this file: {said.english}" for said in left_out))
    return document.model_copy(update={"notes": notes}).to_json() + "\n"


def _is_export(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(400)
    except OSError:
        return False
    return not head or (b'"schema_version"' in head and b'"ctxdoctor"' in head)
