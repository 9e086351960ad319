"""``ctxdoctor rules``, ``facts``, ``questions`` and ``schema``: what the tool knows, asks and writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from diagnose.cli import options as opt
from diagnose.cli.check import ResultFile, ShortFormat, put, put_json, text_or_json
from diagnose.language import document_of, spoken
from probes.evidence.errors import InputError
from probes.evidence.words import words


def rules_command(
    rule: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="One rule, or the rules of one cause or family.", show_default=False),
    ] = None,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Show the catalogue of rules: one line each, or one rule whole, with its clues, weights, tests and cases."""
    del lang, quiet  # the language was read before the command line was built; there is no talk here
    shown = text_or_json(format)
    from rules.catalogue import rules_document  # noqa: PLC0415 - the rules are loaded only where they are shown

    document = rules_document()
    if rule is not None:
        everything = document
        document = [one for one in everything if rule in {one["id"], one["cause"]}]
        document = document or [one for one in everything if rule == one["family"]]
        if not document:
            raise InputError(_no_such("rule", rule, [one["id"] for one in everything], "rules"))
    if shown == "json":
        put_json(document, out)
    elif rule is None or len(document) > 1:
        put("\n".join(_by_family(document)), out)
    else:
        put("\n".join(_one_rule(document[0])), out)
    return 0


def facts_command(
    fact: Annotated[
        str | None, typer.Argument(metavar="ID", help="One fact, or those that begin so.", show_default=False)
    ] = None,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Show the vocabulary: every fact with its words, type, unit and range."""
    del lang, quiet
    shown = text_or_json(format)
    from rules.catalogue import facts_document  # noqa: PLC0415

    document = facts_document()
    if fact is not None:
        everything = document
        document = [one for one in everything if one["id"] == fact or one["id"].startswith(f"{fact}.")]
        if not document:
            raise InputError(_no_such("fact", fact, [one["id"] for one in everything], "facts"))
    if shown == "json":
        put_json(document, out)
    else:
        put("\n".join(_one_fact(one) for one in document), out)
    return 0


def questions_command(
    question: Annotated[str | None, typer.Argument(metavar="ID", help="One question.", show_default=False)] = None,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Show the questionnaire, as an answers file (--answers) writes it: id = answer."""
    del lang, quiet
    shown = text_or_json(format)
    from diagnose.questions import to_document  # noqa: PLC0415

    document = to_document()
    if question is not None:
        everything = document
        document = [one for one in everything if one["id"] == question]
        if not document:
            raise InputError(_no_such("question", question, [one["id"] for one in everything], "questions"))
    if shown == "json":
        put_json(document, out)
    else:
        put("\n".join(line for one in document for line in _one_question(one)), out)
    return 0


def schema_command(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="One document (case, estimate, check, explain, rules, facts, questions, cases, answer, evidence, journal-entry) or kind of evidence.",
            show_default=False,
        ),
    ] = None,
    format: ShortFormat = "json",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Print the JSON Schemas of every document that this tool writes or reads; --format text lists their names."""
    del lang, quiet
    shown = text_or_json(format)
    from diagnose.schema import names, schema_of, schemas  # noqa: PLC0415

    if shown == "text":
        put("\n".join(names() if name is None else [name]), out)
        return 0
    if name is None:
        put_json(schemas(), out)
        return 0
    try:
        found = schema_of(name)
    except KeyError as error:
        raise InputError(_no_such("document", name, list(names()), "schema --format text")) from error
    put_json(found, out)
    return 0


def _no_such(what: str, name: str, known: list[str], command: str) -> str:
    import difflib  # noqa: PLC0415 - only for a name that is wrong

    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no {what} {name!r}{hint}; `ctxdoctor {command}` lists them"


# -- in text ------------------------------------------------------------------------------------------------------------------------------


def _by_family(document: list[dict[str, Any]]) -> Iterator[str]:
    from rules.causes import CAUSES, FAMILIES  # noqa: PLC0415

    wide = max(len(one["id"]) for one in document)
    families: dict[str, list[dict[str, Any]]] = {}
    for one in document:
        families.setdefault(one["family"], []).append(one)
    for number, (family, rules) in enumerate(families.items()):
        if number:
            yield ""
        yield f"{family}: {FAMILIES[family]}"
        for one in rules:
            yield f"  {one['id']:<{wide}}  {CAUSES[one['cause']].words}"


def _one_rule(one: dict[str, Any]) -> Iterator[str]:
    cause = "" if one["cause"] == one["id"] else f", {one['cause']}"
    yield f"{one['id']} ({one['family']}{cause})"
    yield ""
    yield from (
        line.rstrip() for line in document_of(one["id"], one["family"], str(one["document"])).strip().splitlines()
    )
    yield ""
    yield str(words("Clues (decibans if true, if false)"))
    for clue in one["clues"]:
        yield f"  {clue['if_true']:+4d} {clue['if_false']:+4d}  {spoken(clue['words'])}"
        yield f"              {clue['when']}"
    if one["prior"]:
        yield str(words("Known for: {symptoms}", symptoms=", ".join(sorted(one["prior"]))))
    if one["explains"]:
        yield str(words("Explains: {causes}", causes=", ".join(one["explains"])))
    for test in one["tests"]:
        change = f"{test['variable']}: {_value(test['from'])} → {_value(test['to'])}"
        yield ""
        yield str(
            words(
                "Next ({kind}): {what}",
                kind=test["kind"],
                what=change if test["kind"] == "change" else test["variable"],
            )
        )
        yield f"  {spoken(test['reason'])}"
        yield "  " + str(
            words(
                "Cost: {minutes} minutes, quality: {quality}",
                minutes=f"{test['cost']['minutes']:g}",
                quality=test["cost"]["quality"],
            )
        )
        for expected in test["expects"]:
            yield f"  {expected['cause']}: {spoken(expected['words'])}"
    yield ""
    yield str(words("Cases"))
    for case in one["cases"]:
        yield f"  {case['kind']}: {case['name']} → {', '.join(case['band'])}"
        yield "    " + ", ".join(f"{name} = {value}" for name, value in case["facts"].items())


def _value(value: object) -> str:
    return "?" if value is None else str(value)


def _one_fact(one: dict[str, Any]) -> str:
    parts = [one["type"]]
    if one["unit"]:
        parts.append(one["unit"])
    if one["low"] is not None:
        parts.append(f"{one['low']:g} … {one['high']:g}")
    if one["choices"]:
        parts.append(_joined(one["choices"]))
    return f"{one['id']}: {spoken(one['words'])} ({'; '.join(parts)})"


def _joined(values: Iterable[str]) -> str:
    return " | ".join(values)


def _one_question(one: dict[str, Any]) -> Iterator[str]:
    from diagnose.questions import question  # noqa: PLC0415

    asked = question(one["id"])
    answer = {
        "choice": _joined(one_choice.id for one_choice in asked.choices),
        "many": "[" + _joined(one_choice.id for one_choice in asked.choices) + "]",
        "yes-no": "true | false",
        "tokens": "N",
        "number": "N",
        "text": '"…"',
    }[asked.type]
    unit = f" {asked.unit}" if asked.unit else ""
    yield f"{asked.id} = {answer}{unit}"
    yield f"    {asked.words}"
    yield f"    {asked.why}"
