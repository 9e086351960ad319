"""The trace of a verdict as a document: each clue with the values found and where they came from, the runner-up, and what would overturn it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from diagnose.case import Case
from diagnose.document import would_decide
from probes.evidence.errors import InputError
from probes.evidence.records import SCHEMA_VERSION, Source, Text, Why
from reports.document import Band, Part, TruthName
from reports.escape import plain_json
from rules.causes import CAUSES
from rules.facts import VOCABULARY
from rules.verdict import CauseVerdict, ClueVerdict, FactFound, Verdict

IN_PLAY = frozenset({"likely", "disputed", "possible", "open"})


class ExplainedFact(Part):
    """One fact that a clue looked at: the value, who says it and where, or why it is not known."""

    id: str
    words: Text | None = None
    unit: Text | None = None
    found: Any = None
    source: Source | None = None
    origin: Text = ""
    why_unknown: Why | None = None
    note: Text = ""


class ExplainedClue(Part):
    """One clue: whether it holds, what it weighs now, and the least and most that it can come to (decibans)."""

    words: Text
    truth: TruthName
    weight: int
    low: int
    high: int
    facts: tuple[ExplainedFact, ...] = ()


class ExplainedCause(Part):
    """One cause with its trace, the strongest clues first in each group."""

    id: str
    rule: str
    family: str
    words: Text | None = None
    band: Band
    low: int
    now: int
    high: int
    named: bool = False
    explains: tuple[str, ...] = ()
    clues_for: tuple[ExplainedClue, ...] = ()
    clues_against: tuple[ExplainedClue, ...] = ()
    clues_unknown: tuple[ExplainedClue, ...] = ()


class Overturn(Part):
    """What could still change the verdict: a rival, or the named cause itself, and the open clues that would do it."""

    cause: str
    words: Text | None = None
    now: int
    high: int
    by: tuple[Text, ...] = ()


class ExplainedConflict(Part):
    """Sources that disagree on a fact: what was believed, and what the others said."""

    fact: str
    believed: ExplainedFact
    others: tuple[ExplainedFact, ...] = ()


class ExplainDocument(Part):
    """The ``explain`` document."""

    schema_version: int = SCHEMA_VERSION
    case: str
    run: int
    named: tuple[str, ...] = ()
    abstained_because: Text | None = None
    causes: tuple[ExplainedCause, ...] = ()
    runner_up: str | None = Field(
        default=None, description="the cause that stands second, or first where nothing is named"
    )
    would_overturn: tuple[Overturn, ...] = ()
    conflicts: tuple[ExplainedConflict, ...] = ()
    would_decide: tuple[Text, ...] = ()
    others: tuple[str, ...] = Field(
        default=(), description="causes that are likely, disputed or possible and whose trace is not shown here"
    )
    open: int = Field(default=0, ge=0, description="how many more causes nothing speaks for or against yet")

    def to_json(self) -> str:
        """Give the document as JSON."""
        return plain_json(self.model_dump_json(by_alias=True, indent=2))


def explain(
    case: Case, causes: tuple[str, ...] = (), run: int | None = None, *, everything: bool = False
) -> ExplainDocument:
    """Explain a run's verdict: the causes given, or the leader and the runner-up, or all. InputError for a cause that does not exist."""
    run = run or case.run
    verdicts = [Verdict.model_validate(entry.data) for entry in case.of("verdict", run)]
    if not verdicts:
        raise InputError(f"case {case.id} was not judged yet; go on with `ctxdoctor run --case {case.id}`")
    verdict = verdicts[-1]
    for cause in causes:
        if cause not in CAUSES:
            raise InputError(_no_such_cause(cause))
    in_play = [one for one in verdict.causes if one.band in IN_PLAY or one.id in verdict.named]
    rivals = [one for one in in_play if one.id not in verdict.named]
    if causes:
        shown = [one for one in verdict.causes if one.id in causes]
    elif everything:
        shown = list(verdict.causes)
    else:
        shown = [one for one in in_play if one.id in verdict.named]
        shown += rivals[: 1 if shown else 2]
    missing = [cause for cause in causes if cause not in {one.id for one in shown}]
    if missing:
        raise InputError(f"no rule judged {missing[0]!r} in case {case.id}; it was judged by another version")
    runner_up = rivals[0].id if rivals and verdict.named else rivals[1].id if len(rivals) > 1 else None
    return ExplainDocument(
        case=case.id,
        run=run,
        named=verdict.named,
        abstained_because=verdict.abstained_because,
        causes=tuple(_cause(one, verdict) for one in shown),
        runner_up=runner_up,
        would_overturn=tuple(_overturns(verdict)),
        conflicts=tuple(
            ExplainedConflict(
                fact=one.id, believed=_fact(one.taken), others=tuple(_fact(other) for other in one.others)
            )
            for one in verdict.conflicts
        ),
        would_decide=tuple(each.english for each in would_decide(case, run)),
        others=tuple(one.id for one in in_play if one not in shown and one.band != "open"),
        open=sum(one.band == "open" and one not in shown for one in in_play),
    )


def _no_such_cause(name: str) -> str:
    import difflib  # noqa: PLC0415 - only for a name that is wrong

    near = difflib.get_close_matches(name, CAUSES, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no cause {name!r}{hint}; `ctxdoctor rules` lists them"


def _overturns(verdict: Verdict) -> list[Overturn]:
    """Give the rivals that could pass what is named, else those that could become likely, with what is open about each."""
    by_id = {one.id: one for one in verdict.causes}
    if verdict.named:
        wanted = [cause for name in verdict.named for cause in verdict.overturned_by.get(name, ())]
        wanted += [name for name in verdict.named if by_id[name].low < 10]
    else:
        wanted = [one.id for one in verdict.causes if one.band in IN_PLAY and one.high >= 10][:4]
    return [
        Overturn(
            cause=one.id,
            words=CAUSES[one.id].words.english if one.id in CAUSES else None,
            now=one.now,
            high=one.high,
            by=tuple(
                clue.words for clue in sorted(one.clues, key=lambda c: -(c.high - c.weight)) if clue.high > clue.weight
            )[:4],
        )
        for cause in dict.fromkeys(wanted)
        if (one := by_id.get(cause)) is not None
    ]


def _cause(one: CauseVerdict, verdict: Verdict) -> ExplainedCause:
    def clues(chosen: list[ClueVerdict]) -> tuple[ExplainedClue, ...]:
        ordered = sorted(chosen, key=lambda clue: (-abs(clue.weight), -(clue.high - clue.low)))
        return tuple(_clue(clue) for clue in ordered)

    return ExplainedCause(
        id=one.id,
        rule=one.rule,
        family=one.family,
        words=CAUSES[one.id].words.english if one.id in CAUSES else None,
        band=one.band,
        low=one.low,
        now=one.now,
        high=one.high,
        named=one.id in verdict.named,
        explains=one.explains,
        clues_for=clues([c for c in one.clues if c.truth != "unknown" and c.weight > 0]),
        clues_against=clues([c for c in one.clues if c.truth != "unknown" and c.weight <= 0]),
        clues_unknown=clues([c for c in one.clues if c.truth == "unknown"]),
    )


def _clue(clue: ClueVerdict) -> ExplainedClue:
    return ExplainedClue(
        words=clue.words,
        truth=clue.truth,
        weight=clue.weight,
        low=clue.low,
        high=clue.high,
        facts=tuple(_fact(fact) for fact in clue.facts),
    )


def _fact(fact: FactFound) -> ExplainedFact:
    known = VOCABULARY[fact.id] if fact.id in VOCABULARY else None  # noqa: SIM401 - it has no get
    return ExplainedFact(
        id=fact.id,
        words=known.words.english if known else None,
        unit=known.unit if known else None,
        found=fact.found,
        source=fact.source,
        origin=fact.origin,
        why_unknown=fact.why_unknown,
        note=fact.note,
    )
