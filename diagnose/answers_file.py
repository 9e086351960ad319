"""Reads an answers file (TOML or JSON) as the answers to the questionnaire; what is wrong in it is told with its line, in one line."""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from probes.evidence.answers import Answer
from probes.evidence.errors import BadFileError
from probes.evidence.records import Evidence, Source, found

from .questions import DO_NOT_KNOW, QUESTIONS, Question, Value, question

MAX_BYTES = 1_000_000
"""An answers file is written by hand: what is larger is something else."""

MAX_TEXT = 60_000
_IDS = tuple(q.id for q in QUESTIONS)
_LENGTH = re.compile(r"(\d+(?:[._,]\d+)*)\s*([kKmM]?)(?:i?[bB])?(?:\s*tokens?)?", re.ASCII)
_AMOUNT = re.compile(r"(-?\d+(?:\.\d+)?)\s*([KMGT]i?B|s|tok/s|tokens/s)?", re.ASCII | re.IGNORECASE)
_GIB = {
    "kib": 2**-20,
    "mib": 2**-10,
    "gib": 1.0,
    "tib": 1024.0,
    "kb": 1e3 / 2**30,
    "mb": 1e6 / 2**30,
    "gb": 1e9 / 2**30,
    "tb": 1e12 / 2**30,
}
_ALSO_UNKNOWN = frozenset({DO_NOT_KNOW, "don't know", "i don't know", "dunno", "unknown", "?"})


def parse_length(text: str) -> int | None:
    """Read a length in tokens: 8192, 8k, 128K (×1024), 1M (×1024²), 131,072. None if it is no length."""
    match = _LENGTH.fullmatch(text.strip())
    if match is None or len(match[1]) > 20:
        return None
    number, factor = match[1], {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]
    grouped = re.fullmatch(r"\d{1,3}(?:[._,]\d{3})+", number)
    in_groups = grouped is not None and factor == 1
    number = re.sub(r"[._,]", "", number) if in_groups else number.replace("_", "").replace(",", ".")
    try:
        value = float(number) * factor
    except ValueError:
        return None
    return round(value) if math.isfinite(value) else None


def parse_amount(text: str, unit: str | None) -> float | None:
    """Read a number, or a size where the unit is GiB ("24 GB" is 22.35). None if it is no such amount."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or len(match[1]) > 30:
        return None
    value, suffix = float(match[1]), (match[2] or "").lower()
    if suffix in _GIB:
        return value * _GIB[suffix] if unit == "GiB" else None
    if suffix == "s":
        return value if unit == "s" else None
    if suffix:
        return value if unit == "tokens/s" else None
    return value


def _closest(wrong: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(
        wrong.lower().replace("-", "_"), [k.replace("-", "_") for k in known], n=1, cutoff=0.6
    )
    if not close:
        return ""
    match = next(k for k in known if k.replace("-", "_") == close[0])
    return f"; did you mean {match!r}?"


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def check_value(asked: Question, given: object) -> Value:
    """Turn what was given into the kept value of one answer. ValueError says in one line what is wrong.

    A string "dont-know" (and JSON's null) is "I don't know" for every question.
    """
    if given is None or (isinstance(given, str) and given.strip().lower() in _ALSO_UNKNOWN):
        return None
    if asked.type == "yes-no":
        return _yes_no(given)
    if asked.type == "choice":
        return _choice(asked, given)
    if asked.type == "many":
        members = given if isinstance(given, (list, tuple)) else [given]
        if any(isinstance(m, str) and m.strip().lower() in _ALSO_UNKNOWN for m in members):
            raise ValueError(f'"{DO_NOT_KNOW}" stands alone, not in a list')
        if not members:
            raise ValueError(f'an empty list says nothing; leave the line out or give "{DO_NOT_KNOW}"')
        chosen = {_choice(asked, member) for member in members}
        return tuple(c for c in asked.choice_ids() if c in chosen)
    if asked.type == "text":
        if not isinstance(given, str):
            raise ValueError(f"needs text in quotes, not {_show(given)}")
        return given[:MAX_TEXT]
    return _number(asked, given)


def _yes_no(given: object) -> bool:
    if isinstance(given, bool):
        return given
    word = given.strip().lower() if isinstance(given, str) else ""
    if word in {"yes", "true", "y"}:
        return True
    if word in {"no", "false", "n"}:
        return False
    raise ValueError(f'needs true, false or "{DO_NOT_KNOW}", not {_show(given)}')


def _choice(asked: Question, given: object) -> str:
    ids = asked.choice_ids()
    if isinstance(given, str) and given.strip().lower() in ids:
        return given.strip().lower()
    raise ValueError(
        f"{_show(given)} is not one of: {', '.join(ids)}{_closest(given, ids) if isinstance(given, str) else ''}"
    )


def _number(asked: Question, given: object) -> int | float:
    value: float | None
    if isinstance(given, bool):
        value = None
    elif isinstance(given, (int, float)):
        value = given
    elif isinstance(given, str):
        value = parse_length(given) if asked.type == "tokens" else parse_amount(given, asked.unit)
    else:
        value = None
    unit = f" ({asked.unit})" if asked.unit else ""
    example = f", such as {asked.example}" if asked.example else ""
    if value is None or not math.isfinite(value):
        raise ValueError(f"needs a number{unit}{example}, not {_show(given)}")
    low, high = asked.low, asked.high
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(f"{value:g} is outside {low:g} to {high:g}{unit}")
    if asked.type == "tokens":
        if value != int(value):
            raise ValueError(f"needs a whole number of tokens, not {_show(given)}")
        return int(value)
    return value


def check_answers(
    given: Mapping[str, Any], where: Mapping[str, int] | None = None, name: str = "answers"
) -> list[Answer]:
    """Turn a mapping of question id to value into answers, in the order of the questionnaire.

    ``where`` gives the line of each key. BadFileError on the first thing that is wrong: a key that is no question, a choice that does not
    exist, a value of another type or outside its range.
    """
    lines = where or {}

    def place(key: str) -> str:
        return f"{name}, line {lines[key]}" if key in lines else name

    for key in given:
        if key not in _IDS:
            raise BadFileError(
                f"{place(key)}: no question is called {_show(key)}{_closest(key, _IDS)} (ctxdoctor questions lists them)"
            )
    answers = []
    for question_id in _IDS:
        if question_id not in given:
            continue
        try:
            value = check_value(question(question_id), given[question_id])
        except ValueError as wrong:
            raise BadFileError(f"{place(question_id)}: {question_id}: {wrong}") from None
        answers.append(Answer(question=question_id, value=value))
    return answers


def read_answers(path: Path) -> list[Answer]:
    """Read an answers file: TOML, or JSON where it ends in .json or begins with a brace. Answers stand at the top or under [answers].

    BadFileError, one line: unreadable, too large, no TOML or JSON, or an answer that is wrong (see :func:`check_answers`).
    """
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as wrong:
        raise BadFileError(
            f"the answers file {path} cannot be read: {wrong.strerror or wrong}; give another path"
        ) from None
    if len(raw) > MAX_BYTES:
        raise BadFileError(f"{path} is larger than {MAX_BYTES} bytes; an answers file has one line for each question")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as wrong:
        line = raw[: wrong.start].count(b"\n") + 1
        raise BadFileError(f"{path}, line {line}: not UTF-8; save the file as UTF-8") from None
    return parse_answers(text, name=path.name, as_json=path.suffix.lower() == ".json" or text.lstrip().startswith("{"))


def parse_answers(text: str, *, name: str = "answers", as_json: bool = False) -> list[Answer]:
    """Parse the text of an answers file. BadFileError as :func:`read_answers`."""
    document = _json(text, name) if as_json else _toml(text, name)
    given: Mapping[str, Any] = document
    if "answers" in document:
        inner = document["answers"]
        if not isinstance(inner, dict):
            raise BadFileError(f'{name}: "answers" must be a table of question = answer')
        outside = [key for key in document if key != "answers"]
        if outside:
            key = outside[0]
            line = key_lines(text, as_json=as_json).get(key)
            at = f"{name}, line {line}" if line else name
            raise BadFileError(
                f"{at}: {_show(key)} stands outside of [answers]{_closest(key, _IDS)}; put every answer in one place"
            )
        given = inner
    return check_answers(given, key_lines(text, as_json=as_json), name)


def _toml(text: str, name: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as wrong:
        raise BadFileError(f'{name}: not TOML: {wrong}; write lines such as symptom = "flaky"') from None
    except RecursionError:
        raise BadFileError(f"{name}: nested too deeply; an answers file has one line for each question") from None
    except ValueError as wrong:  # an integer of thousands of digits
        raise BadFileError(f"{name}: not TOML: {wrong}") from None


def _json(text: str, name: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in pairs:
            if key in seen:
                line = key_lines(text, as_json=True).get(key, 1)
                raise BadFileError(f"{name}, line {line}: {_show(key)} is answered twice")
            seen[key] = value
        return seen

    try:
        document = json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as wrong:
        raise BadFileError(f"{name}, line {wrong.lineno}: not JSON: {wrong.msg}") from None
    except RecursionError:
        raise BadFileError(f"{name}: nested too deeply; an answers file has one line for each question") from None
    except ValueError as wrong:
        raise BadFileError(f"{name}: not JSON: {wrong}") from None
    if not isinstance(document, dict):
        raise BadFileError(f"{name}: needs an object of question: answer, not {_show(document)}")
    return document


_TOML_KEY = re.compile(r"""[ \t]*(?:"([^"\\\n]{1,200})"|'([^'\n]{1,200})'|([A-Za-z0-9_-]{1,200}))[ \t]*=""")
_TOML_TEXT = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'', re.DOTALL)
_JSON_KEY = re.compile(r'"((?:[^"\\\n]|\\.){1,200})"\s*:')


def key_lines(text: str, *, as_json: bool = False) -> dict[str, int]:
    """Find the line (from 1) on which each key stands; the last one counts where a key stands twice."""
    lines: dict[str, int] = {}
    if as_json:
        number, counted = 1, 0
        for match in _JSON_KEY.finditer(text):
            number += text.count("\n", counted, match.start())
            counted = match.start()
            lines[match[1]] = number
        return lines
    # What stands inside of quoted text is no key: every quoted value is blanked, its line breaks kept.
    number = 1
    position = 0
    while position < len(text):
        key = _TOML_KEY.match(text, position)
        if key is not None:
            lines[next(g for g in key.groups() if g is not None)] = number
            position = key.end()
        while position < len(text) and text[position] != "\n":
            quoted = _TOML_TEXT.match(text, position) if text[position] in "\"'" else None
            if quoted is not None:
                number += text.count("\n", quoted.start(), quoted.end())
                position = quoted.end()
            elif text[position] == "#":
                end = text.find("\n", position)
                position = len(text) if end < 0 else end
            else:
                position += 1
        number += 1
        position += 1
    return lines


def as_evidence(answers: list[Answer], *, run: int = 1, source: Source = "user") -> list[Evidence]:
    """Make evidence of answers; its origin is the question's id. An error's text, word for word, is read like a log as well."""
    evidence = [found(answer, source=source, run=run, origin=answer.question) for answer in answers]
    for answer in answers:
        if answer.question == "error_text" and isinstance(answer.value, str) and answer.value.strip():
            from probes.logs.reader import tail_events  # noqa: PLC0415 - the dialects are loaded only where there is a log

            said: Source = "log" if source == "user" else source
            evidence += [
                found(event, source=said, run=run, origin=f"error_text, line {event.line}")
                for event in tail_events(answer.value, "error_text")
            ]
    return evidence
