"""``ctxdoctor cases``: the history, and one case as one file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from diagnose.cli import options as opt
from diagnose.cli.check import ShortFormat, put, put_json, text_or_json
from probes.evidence.errors import InputError
from probes.evidence.records import SCHEMA_VERSION
from probes.evidence.words import words

ListOrExport = Annotated[
    str | None,
    typer.Option(
        "--out",
        help="A file for the result; -: standard output. Absent: standard output for the list, CASE.json in the current folder for an export.",
        show_default=False,
    ),
]
_SCHEMA = re.compile(rb'"schema_version":\s*(\d{1,6})')
_TYPE = re.compile(rb'"type":\s*"([a-z-]+)"')
_LONGEST_LINE = 8 << 20


def cases_command(
    action: Annotated[
        str | None, typer.Argument(metavar="export", help="export: write one redacted file.", show_default=False)
    ] = None,
    case_name: Annotated[
        str | None, typer.Argument(metavar="CASE", help="Which case; absent: the newest.", show_default=False)
    ] = None,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ListOrExport = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """List the cases, one line each, newest first; or write one as a single redacted file: cases export CASE --out FILE."""
    del lang, quiet  # the language was read before the command line was built; there is no talk here
    shown = text_or_json(format)
    if action == "export":
        return _export(case_name, out)
    if action is not None:
        raise InputError(f"cases {action!r}: the one thing to do with a case here is `ctxdoctor cases export CASE`")
    from diagnose.case import folders  # noqa: PLC0415

    listed = [glance(folder) for folder in folders()]
    if shown == "json":
        put_json(listed, out)
        return 0
    if not listed:
        put(str(words("There is no case yet; start with `ctxdoctor run URL` or `ctxdoctor demo`.")), out)
        return 0
    put("\n".join(_line(one) for one in listed), out)
    return 0


def _export(name: str | None, out: str | None) -> int:
    from diagnose.case import Case  # noqa: PLC0415 - a case is opened only where one is written
    from diagnose.export import export_case, exported  # noqa: PLC0415

    if out is not None and not out.strip():
        raise InputError("--out is given without a name; give the name of a file, or - for standard output")
    case = Case.open(name, read_only=True)
    if out == "-":
        put(exported(case), None)
    else:
        put(str(export_case(case, Path(out) if out else Path.cwd() / f"{case.id}.json")), None)
    return 0


def glance(folder: Path) -> dict[str, Any]:
    """Give one case's line without reading its evidence: id, created, symptom, runs, model, named, verified_input_tokens, path, error.

    A journal that cannot be read gives its error instead of a failure: one bad case must not hide the others.
    """
    told: dict[str, Any] = {
        "id": folder.name,
        "created": None,
        "symptom": None,
        "runs": 0,
        "model": None,
        "named": [],
        "confirmed": [],
        "verified_input_tokens": None,
        "path": str(folder),
        "error": None,
    }
    try:
        with (folder / "journal.jsonl").open("rb") as file:
            _all_of(told, file)
    except (OSError, ValueError) as error:
        told["error"] = f"cannot be read ({getattr(error, 'strerror', None) or type(error).__name__})"
    told |= _derived(folder)
    return told


def _all_of(told: dict[str, Any], file: Iterable[bytes]) -> None:
    """Read a journal's lines; the first that is damaged, or of a newer version, is said. A torn last line is no damage."""
    whole, torn = 0, ""
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        if torn:
            told["error"] = torn
            return
        schema = _SCHEMA.search(line[:120])
        if schema is not None and int(schema[1]) > SCHEMA_VERSION:
            told["error"] = f"written by a newer ctxdoctor (schema {int(schema[1])}); update this one"
            return
        if not (line.startswith(b"{") and line.rstrip().endswith(b"}") and _TYPE.search(line[:120])):
            torn = f"damaged: line {number} of its journal cannot be read"
            continue
        whole += 1
        _take(told, line)
    if not whole:
        told["error"] = "damaged: its journal holds no record"


def _take(told: dict[str, Any], line: bytes) -> None:
    kind = _TYPE.search(line[:120])
    if kind is None or len(line) > _LONGEST_LINE:
        return
    wanted = kind[1] in {b"case", b"run", b"verdict"} or (
        kind[1] == b"evidence" and (b'"symptom"' in line or b'"kind":"model"' in line)
    )
    if not wanted:
        return
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        # a line torn by a crash is the last one; a damaged one in between is said when the case is opened
        return
    data = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(data, dict):
        return
    if kind[1] == b"case":
        told["created"], told["symptom"] = entry.get("at"), data.get("symptom")
    elif kind[1] == b"run":
        told["runs"] = max(told["runs"], entry.get("run", 0) if isinstance(entry.get("run"), int) else 0)
    elif kind[1] == b"verdict":
        for which in ("named", "confirmed"):
            causes = data.get(which)
            told[which] = [str(one) for one in causes] if isinstance(causes, list) else []
    else:
        inner = data.get("data")
        inner = inner if isinstance(inner, dict) else {}
        if data.get("kind") == "answer" and inner.get("question") == "symptom" and inner.get("value"):
            told["symptom"] = str(inner["value"])
        elif data.get("kind") == "model" and inner.get("name"):
            told["model"] = str(inner["name"])


def _derived(folder: Path) -> dict[str, Any]:
    """Give what only the derived document holds: the window that was verified."""
    try:
        path = folder / "case.json"
        if path.stat().st_size > 256 << 20:
            return {}
        match = re.search(r'"verified_input_tokens":\s*(\d{1,12})', path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {"verified_input_tokens": int(match[1])} if match else {}


def _line(one: dict[str, Any]) -> str:
    from reports.escape import visible  # noqa: PLC0415

    if one["error"]:
        return f"{one['id']}  {one['error']}"
    proved = one["confirmed"]
    results = [*(cause for cause in one["named"] if cause not in proved)]
    results += [str(words("{cause} (confirmed)", cause=cause)) for cause in proved]
    result = ", ".join(results) or str(words("nothing named"))
    if one["verified_input_tokens"]:
        result += "; " + str(words("verified {tokens} tokens", tokens=one["verified_input_tokens"]))
    created = str(one["created"] or "")[:16].replace("T", " ")
    return "  ".join(
        visible(part)
        for part in (
            one["id"],
            created,
            str(one["symptom"] or "-"),
            str(words("runs: {number}", number=one["runs"])),
            str(one["model"] or "-"),
            result,
        )
    )
