"""All rules, all facts, all derivations in one place: loaded by walking the packages, shown as documents, written as rules/README.md.

``python -m rules.catalogue`` writes the README again; ``--check`` only says whether it is stale.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from probes.evidence.records import EvidenceSet
from probes.evidence.words import words
from rules.causes import CAUSES, FAMILIES
from rules.derive import all_derivations
from rules.engine import (
    ALL_WAYS,
    FAIR,
    SLIGHT,
    STRONG,
    Clue,
    Fact,
    Facts,
    Judgement,
    Known,
    Rule,
    Test,
    Way,
    describe,
    judge,
)
from rules.engine.judge import identified
from rules.facts import CONFLICTS, LIKE_CAUSES, LIKEST_CAUSE, NAMED_MECHANISMS, PREDICTION_FAILED, SYMPTOM, VOCABULARY

Mode = Literal["session", "run", "triage"]

WAYS: Mapping[Mode, frozenset[Way]] = {
    "session": ALL_WAYS,
    "run": frozenset({"probe"}),
    "triage": frozenset({"ask", "give"}),
}
"""How what is unknown can still be closed: with a person and a server; without a person; without a server."""

HERE = Path(__file__).parent
HEADINGS = ("What it looks for", "Why it happens", "What would prove it wrong", "References")


@dataclass(frozen=True, slots=True)
class Case:
    """One case of a rule: facts, and the band that must come out. ``open``: whether what is not said could still be found out."""

    name: str
    kind: Literal["fires", "silent", "cannot-tell", "look-alike"]
    bands: tuple[str, ...]
    facts: Mapping[str, Any]
    open: bool = False


@cache
def all_rules() -> tuple[Rule, ...]:
    """Give every rule, in the order of families and ids. ValueError or TypeError on a rule that does not fit its file."""
    found: list[Rule] = []
    for family in FAMILIES:
        package_name = f"rules.{family.replace('-', '_')}"
        if not (HERE / family.replace("-", "_")).is_dir():
            continue
        package = importlib.import_module(package_name)
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda i: i.name):
            module = importlib.import_module(f"{package_name}.{info.name}")
            rule = getattr(module, "RULE", None)
            if not isinstance(rule, Rule):
                raise TypeError(f"{module.__name__} holds no RULE")
            found.append(
                _with_opinion(
                    _checked(
                        identified(
                            rule, rule_id=info.name.replace("_", "-"), family=family, document=module.__doc__ or ""
                        )
                    )
                )
            )
    return tuple(found)


def _checked(rule: Rule) -> Rule:
    cause = CAUSES.get(rule.cause)
    if cause is None:
        raise ValueError(f"{rule.id}: no such cause: {rule.cause}")
    if cause.family != rule.family:
        raise ValueError(f"{rule.id} lies in {rule.family}, its cause in {cause.family}")
    named = {*rule.explains, *(c for test in rule.tests for c in (*test.also, *(e.cause for e in test.expects)))}
    unknown = named - CAUSES.keys()
    if unknown:
        raise ValueError(f"{rule.id}: no such cause: {', '.join(sorted(unknown))}")
    for heading in HEADINGS:
        if f"\n{heading}\n" not in rule.document:
            raise ValueError(f"{rule.id}: its docstring lacks the heading {heading!r}")
    for clue in rule.clues:
        strangers = [
            fact.id for fact in clue.when.facts() if fact.id not in VOCABULARY or VOCABULARY[fact.id] is not fact
        ]
        if strangers:
            raise ValueError(f"{rule.id}: facts that are not in the vocabulary: {', '.join(strangers)}")
        if SYMPTOM in clue.when.facts():
            raise ValueError(f"{rule.id}: the symptom is the prior's; no clue looks at it")
    return rule


_OPINION = words("The report names this itself: its author saw it, or suspects it.")


def _with_opinion(rule: Rule) -> Rule:
    """Give a rule with the clue that all have: a report's own words for what is behind it are an opinion, and weigh fairly at most."""
    return replace(rule, clues=(*rule.clues, Clue(_OPINION, NAMED_MECHANISMS.has(rule.cause), if_true=FAIR)))


@cache
def rule_of(rule_id: str) -> Rule:
    """Give the rule of that id. KeyError."""
    for rule in all_rules():
        if rule.id == rule_id:
            return rule
    raise KeyError(rule_id)


def cases_of(rule: Rule) -> tuple[Case, ...]:
    """Read the cases beside a rule. ValueError on a file that is no list of cases."""
    path = HERE / rule.family.replace("-", "_") / f"{rule.id.replace('-', '_')}.toml"
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    cases = []
    for entry in data.pop("case", []):
        band = entry.pop("band")
        cases.append(Case(bands=(band,) if isinstance(band, str) else tuple(band), **entry))
    if data:
        raise ValueError(f"{path.name}: unknown keys: {', '.join(data)}")
    return tuple(cases)


def facts_of(evidence: EvidenceSet) -> Facts:
    """Give what the evidence says, as facts, with conflicts and refusals. That sources disagree is a fact as well."""
    facts = all_derivations().derive(evidence)
    return facts.learn({CONFLICTS: Known(tuple(sorted(conflict.fact.id for conflict in facts.conflicts)))})


def judge_evidence(evidence: EvidenceSet, mode: Mode = "session") -> tuple[Judgement, Facts]:
    """Judge a run's evidence with all rules."""
    facts = facts_of(evidence)
    return judge_facts(facts, mode), facts


def judge_facts(facts: Facts, mode: Mode = "session") -> Judgement:
    """Judge facts with all rules."""
    rules = tuple(_as_told(_after_trial(rule, facts), facts) for rule in all_rules())
    return judge(rules, facts, symptom=SYMPTOM, ways=WAYS[mode])


_TRIED = words("The one change that would show this cause was made, and what it predicts did not come.")


def _after_trial(rule: Rule, facts: Facts) -> Rule:
    """Give a rule with what a change on trial says against its cause: strong evidence, and a clue like any other."""
    if rule.cause not in (facts.value(PREDICTION_FAILED) or ()):
        return rule
    return replace(rule, clues=(*rule.clues, Clue(_TRIED, PREDICTION_FAILED.has(rule.cause), if_true=-STRONG)))


_LIKE = words("The report's words are like those that people have for this.")
_LIKEST = words("There is nothing that the report's words are more like.")


def _as_told(rule: Rule, facts: Facts) -> Rule:
    """Give a rule with what a report's choice of words says for its cause: fairly, and slightly more where nothing is more like it.

    It is no firm ground: it orders what little else tells apart, and makes nothing likely.
    """
    if rule.cause not in (facts.value(LIKE_CAUSES) or ()):
        return rule
    clues = [Clue(_LIKE, LIKE_CAUSES.has(rule.cause), if_true=FAIR, firm=False)]
    if facts.value(LIKEST_CAUSE) == rule.cause:
        clues.append(Clue(_LIKEST, LIKEST_CAUSE.is_(rule.cause), if_true=SLIGHT, firm=False))
    return replace(rule, clues=(*rule.clues, *clues))


# Documents


def _test_document(test: Test) -> dict[str, Any]:
    def plain(value: object) -> Any:
        if isinstance(value, Fact):
            return value.id
        words = getattr(value, "words", None)
        return words.english if words is not None else value

    return {
        "kind": test.kind,
        "variable": test.variable,
        "from": plain(test.start),
        "to": plain(test.to),
        "keep": list(test.keep),
        "reason": test.reason.english,
        "expects": [{"cause": e.cause, "words": e.words.english} for e in test.expects],
        "cost": {"minutes": test.minutes, "quality": test.quality},
    }


def rules_document() -> list[dict[str, Any]]:
    """Give the catalogue as the ``rules`` document."""
    return [
        {
            "id": rule.id,
            "cause": rule.cause,
            "family": rule.family,
            "words": CAUSES[rule.cause].words.english,
            "document": rule.document,
            "explains": list(rule.explains),
            "prior": dict(rule.prior),
            "clues": [
                {
                    "words": clue.words.english,
                    "if_true": clue.if_true,
                    "if_false": clue.if_false,
                    "facts": sorted(fact.id for fact in clue.when.facts()),
                    "when": describe(clue.when),
                }
                for clue in rule.clues
            ],
            "next_test": _test_document(rule.tests[0]) if rule.tests else None,
            "tests": [_test_document(test) for test in rule.tests],
            "cases": [
                {"name": c.name, "kind": c.kind, "band": list(c.bands), "facts": dict(c.facts)} for c in cases_of(rule)
            ],
        }
        for rule in all_rules()
    ]


def facts_document() -> list[dict[str, Any]]:
    """Give the vocabulary as the ``facts`` document. ``derived_from``: kinds of evidence and facts that it can come from."""
    givers = all_derivations().givers
    return [
        {
            "id": fact.id,
            "words": fact.words.english,
            "type": fact.kind.__name__,
            "unit": fact.unit,
            "low": fact.low,
            "high": fact.high,
            "choices": list(fact.choices),
            "question": fact.question,
            "derived_from": sorted(
                {kind.kind for one in givers.get(fact, []) for kind in one.reads}
                | {need.id for one in givers.get(fact, []) for need in one.needs}
            ),
        }
        for fact in VOCABULARY
    ]


def readme() -> str:
    """Give rules/README.md as it should be."""
    lines = [
        "# Rules",
        "",
        "One rule a cause and file. Generated by `python -m rules.catalogue`: change the rules, not this page.",
        "",
        "Weights are decibans: slight 3, fair 6, strong 10, decisive 20; a minus speaks against. Unknown weighs nothing.",
        "",
    ]
    by_family: dict[str, list[Rule]] = {}
    for rule in all_rules():
        by_family.setdefault(rule.family, []).append(rule)
    for family, rules in by_family.items():
        lines += [f"## {family}", "", FAMILIES[family].english, ""]
        for rule in rules:
            lines += _section(rule)
    return "\n".join(lines).rstrip() + "\n"


def _section(rule: Rule) -> list[str]:
    title, _, body = rule.document.strip().partition("\n")
    lines = [f"### {rule.id}", "", title.strip(), ""]
    paragraph: list[str] = []

    def flush() -> None:
        if paragraph:
            lines.extend([" ".join(paragraph), ""])
            paragraph.clear()

    for raw in body.splitlines():
        line = raw.strip()
        if line in HEADINGS:
            flush()
            lines.extend([f"**{line}**", ""])
        elif line.startswith("- "):
            flush()
            paragraph.append(line)
        elif line:
            paragraph.append(line)
        else:
            flush()
    flush()
    lines += ["| clue | true | false | looks at |", "| --- | ---: | ---: | --- |"]
    lines += [
        f"| {clue.words.english} | {clue.if_true:+d} | {clue.if_false:+d} | `{describe(clue.when)}` |".replace(
            "+0", "0"
        )
        for clue in rule.clues
    ]
    lines.append("")
    if rule.prior:
        lines += [f"Known for: {', '.join(sorted(s for s, w in rule.prior.items() if w))}.", ""]
    if rule.explains:
        lines += [f"Explains: {', '.join(rule.explains)}.", ""]
    for test in rule.tests:
        document = _test_document(test)
        what = f"`{test.variable}` → {document['to']}" if test.kind == "change" else f"{test.kind}: {test.variable}"
        expected = f" Expected: {document['expects'][0]['words']}" if document["expects"] else ""
        lines.append(f"- Next ({what}; quality cost: {test.quality}): {document['reason']}{expected}")
    if rule.tests:
        lines.append("")
    lines += [f"- Case, {case.kind}: {case.name} → {' or '.join(case.bands)}" for case in cases_of(rule)]
    lines.append("")
    return lines


def main(arguments: list[str]) -> int:
    """Write the README, or with ``--check`` say by 1 that it is stale."""
    path = HERE / "README.md"
    wanted = readme()
    if "--check" in arguments:
        return int(not path.exists() or path.read_text(encoding="utf-8") != wanted)
    path.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
