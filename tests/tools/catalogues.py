"""Renews the catalogues from the sources: ``python -m tests.tools.catalogues``. ``--check`` only says what is missing or stale, ``--compile`` makes .mo.

What is a message: the text of every ``words("…")`` call, in Python and in the reports' templates; help texts of commands and options; what a progress
line says; and the sentences of errors, whose values become numbered places. Babel is needed here and nowhere else.
"""

from __future__ import annotations

import ast
import io
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from jinja2.ext import babel_extract

from diagnose.language import DOMAIN, LANGUAGES, LOCALES
from diagnose.locales.sentences import place_names

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("diagnose", "reports", "rules", "probes")
_NOT_OURS = frozenset(
    {"ValueError", "TypeError", "RuntimeError", "KeyError", "AttributeError", "NotImplementedError", "AssertionError"}
)
"""Errors that no user sees: they are caught, or they are faults of the program."""
PLACE = re.compile(r"\{(\w+)(?:![rsa])?(?::[^{}]*)?\}")

NOTES = (
    "rules/derive/",
    "rules/verdict.py",
    "diagnose/answers_file.py",
    "diagnose/document.py",
    "diagnose/look.py",
    "diagnose/check.py",
    "diagnose/opening.py",
    "diagnose/run_logs.py",
    "diagnose/session.py",
    "probes/launch.py",
    "probes/allocation.py",
    "probes/attempt.py",
    "probes/asking.py",
    "probes/control.py",
    "probes/repeat.py",
    "probes/gpu/host.py",
    "probes/gpu/nvml.py",
    "probes/gpu/matching.py",
)
"""Where sentences are written that are kept in a case as notes: why something is not known. They are told by their form when they are shown."""

Found = tuple[str, str]
"""A message and the file that it stands in."""


@cache
def messages() -> dict[str, set[str]]:
    """Give every message and the files that it stands in."""
    found: dict[str, set[str]] = {}
    for part in (of_words(), of_templates(), of_help(), of_code(), of_notes()):
        for message, path in part:
            found.setdefault(message, set()).add(path)
    return found


def _sources() -> Iterator[tuple[str, Path]]:
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path


def of_words() -> Iterator[Found]:
    """Give the texts of ``words("…")`` calls in Python. The tree is read, not the text: pieces that stand beside each other are one message."""
    for name, path in _sources():
        source = path.read_text(encoding="utf-8")
        if "words(" not in source:
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
            first = node.args[0]
            if called == "words" and isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value, name


def of_templates() -> Iterator[Found]:
    """Give the texts of ``words("…")`` calls in the reports' templates."""
    for path in sorted((ROOT / "reports" / "templates").glob("*.j2")):
        options = {"trim_blocks": "1", "lstrip_blocks": "1"}
        for _line, _function, message, _comments in babel_extract(
            io.BytesIO(path.read_bytes()), ("words",), (), options
        ):
            text = message if isinstance(message, str) or message is None else message[0]
            if text:
                yield text, path.relative_to(ROOT).as_posix()


def of_help() -> Iterator[Found]:
    """Give the help texts of every command and its options, as they are shown."""
    from diagnose.cli import COMMANDS, help_command

    for command, (module, about) in COMMANDS.items():
        yield about, "diagnose/cli/__init__.py"
        try:
            made = help_command(module, command)
        except ModuleNotFoundError:
            continue
        for text in help_texts(made):
            yield text, f"diagnose/cli/{module}.py"


def help_texts(command: Any) -> Iterator[str]:
    """Give the texts of one command's help."""
    if command.help:
        yield command.help
    for parameter in command.params:
        text = getattr(parameter, "help", None)
        if text:
            yield text


def of_code() -> Iterator[Found]:
    """Give what progress lines say, and the sentences of errors and of evidence that could not be had."""
    for name, path in _sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            function = getattr(node.func, "id", None) or getattr(node.func, "attr", None) or ""
            place = None
            an_error = function.endswith("Error") and function not in _NOT_OURS
            if an_error or function in {"progress", "report"}:
                place = 0
            elif function == "not_found":
                place = 2
            elif function in {"unread", "Unknown"} and len(node.args) > 1:
                place = len(node.args) - 1
            if place is None or place >= len(node.args):
                continue
            sentence = sentence_of(node.args[place])
            if sentence and " " in sentence:
                yield sentence, name
            if function in {"progress", "report"} and len(node.args) > 2:
                detail = sentence_of(node.args[2])
                if detail and len(re.findall(r"[A-Za-z]{2,}", detail)) > 1:
                    yield detail, name


def of_notes() -> Iterator[Found]:
    """Give the sentences of the files that write notes into a case."""
    for name, path in _sources():
        if not name.startswith(NOTES):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        aside = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                aside |= {id(part) for part in ast.walk(node) if part is not node}
            elif isinstance(node, ast.keyword) and node.arg == "description":
                aside.add(id(node.value))
        for node in ast.walk(tree):
            if id(node) in aside or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            sentence = sentence_of(node)
            if sentence and _is_note(sentence):
                yield sentence, name


def _is_note(text: str) -> bool:
    """Tell a sentence from a pattern or a name: four words at least, and no sign that only patterns have."""
    return (
        text.count(" ") >= 3 and len(re.findall(r"\b[A-Za-z]+\b", text)) >= 4 and not re.search(r"[\\|^$*]|\(\?", text)
    )


def sentence_of(node: ast.expr) -> str | None:
    """Give a text or f-string as a message: its values become ``{0}``, ``{1}`` …; None for anything else."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if not isinstance(node, ast.JoinedStr):
        return None
    parts: list[str] = []
    number = 0
    for piece in node.values:
        if isinstance(piece, ast.Constant):
            parts.append(str(piece.value).replace("{", "{{").replace("}", "}}"))
        else:
            parts.append(f"{{{number}}}")
            number += 1
    text = "".join(parts)
    # a sentence that is all values says nothing that could be translated
    return text if re.search(r"[A-Za-z]{3}", re.sub(r"\{\d+\}", "", text)) else None


def places(text: str) -> list[str]:
    """Give the names of a message's places, sorted."""
    return place_names(text)


def renew(language: str) -> tuple[list[str], list[str]]:
    """Write a language's catalogue again: new messages are added untranslated, stale ones go. Gives (missing, stale)."""
    path = LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.po"
    old = load(path)
    wanted = messages()
    new = Catalog(
        locale=language, domain=DOMAIN, project="ctxdoctor", charset="utf-8", fuzzy=False, header_comment=HEADER
    )
    new.revision_date = new.creation_date = datetime(2026, 1, 1, tzinfo=UTC)  # no change without a change
    for message in sorted(wanted, key=lambda text: (min(wanted[text]), text)):
        new.add(message, old.get(message, ""), locations=[(name, 0) for name in sorted(wanted[message])[:3]])
    sink = io.BytesIO()
    write_po(sink, new, width=0, include_lineno=False, omit_header=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(sink.getvalue())
    return [m for m in wanted if not old.get(m)], [m for m in old if m not in wanted]


HEADER = "# Translations of ctxdoctor. Renewed by `python -m tests.tools.catalogues`; edit the msgstr lines only."


def load(path: Path) -> dict[str, str]:
    """Give a catalogue as message → translation, untranslated ones as ""."""
    if not path.exists():
        return {}
    with path.open("rb") as file:
        catalog = read_po(file)
    return {str(one.id): str(one.string or "") for one in catalog if one.id}


def compile_one(language: str) -> Path:
    """Write the compiled catalogue beside the readable one."""
    path = LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.po"
    with path.open("rb") as file:
        catalog = read_po(file, locale=language)
    compiled = path.with_suffix(".mo")
    with compiled.open("wb") as file:
        write_mo(file, catalog)
    return compiled


def state(language: str) -> dict[str, list[str]]:
    """Say what is wrong with a catalogue: messages missing, stale ones, and translations whose places differ."""
    wanted = messages()
    have = load(LOCALES / language / "LC_MESSAGES" / f"{DOMAIN}.po")
    return {
        "missing": sorted(m for m in wanted if not have.get(m)),
        "stale": sorted(m for m in have if m not in wanted),
        "places": sorted(m for m, said in have.items() if said and places(m) != places(said)),
    }


def main(arguments: list[str]) -> int:
    """Do what the command line says; 1 where ``--check`` found something."""
    for language in LANGUAGES:
        if language == "en":
            continue
        if "--check" in arguments:
            found = state(language)
            for what, texts in found.items():
                for text in texts:
                    sys.stdout.write(f"{language}: {what}: {text}\n")
            if any(found.values()):
                return 1
        elif "--compile" in arguments:
            compile_one(language)
        else:
            missing, stale = renew(language)
            sys.stdout.write(f"{language}: {len(missing)} not translated, {len(stale)} stale ones taken out\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
