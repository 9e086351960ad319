"""The verdict and the next test as records: what the published interface calls ``verdict`` and ``next_test``, and how a prediction is scored later.

:func:`verdict_of` and :func:`next_step` make them from a judgement; ``document()`` gives the plain data. The command line of a change is not known
here: ``command`` and ``undo`` are filled in by whoever can write the server's command (``model_copy(update=…)``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from pydantic import Field

from probes.evidence.records import Record, Source, Text, Why
from rules.causes import CAUSES
from rules.engine import (
    Band,
    Choice,
    Closer,
    ClueFinding,
    Expect,
    Fact,
    Facts,
    Finding,
    Judgement,
    Known,
    Opening,
    Outcome,
    Unknown,
    Vocabulary,
    can_change_verdict,
    from_json,
    next_test,
    openings,
    outcome_of,
)
from rules.engine.rule import Quality, TestKind
from rules.facts import VOCABULARY

Found = Text | int | float | bool | tuple[Text, ...] | None


class FactFound(Record):
    """One fact that a clue looked at. ``found`` None: unknown, and ``why_unknown`` says why."""

    id: str
    found: Found = None
    source: Source | None = None
    origin: Text = ""
    why_unknown: Why | None = None
    note: Text = ""


class ClueVerdict(Record):
    """One clue: its words, its truth, and what it weighs now in decibans."""

    words: Text
    truth: Literal["true", "false", "unknown"]
    weight: int
    low: int
    high: int
    facts: tuple[FactFound, ...]


class CauseVerdict(Record):
    """One cause: its band, its interval in decibans, and its clues."""

    id: str
    rule: str
    family: str
    band: Band
    low: int
    now: int
    high: int
    explains: tuple[str, ...]
    clues: tuple[ClueVerdict, ...]


class ConflictFound(Record):
    """Sources that disagree about one fact: what was taken, and what the others said."""

    id: str
    taken: FactFound
    others: tuple[FactFound, ...]


class Verdict(Record):
    """What one run says. ``causes`` holds every cause, most likely first; :meth:`document` leaves out what is unlikely."""

    run: int = Field(ge=0)
    named: tuple[str, ...]
    confirmed: tuple[str, ...] = ()
    abstained_because: Text | None
    causes: tuple[CauseVerdict, ...]
    overturned_by: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    chains: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    conflicts: tuple[ConflictFound, ...] = ()
    refused: tuple[Text, ...] = ()

    def document(self, *, everything: bool = False) -> dict[str, Any]:
        """Give the ``verdict`` document; ``everything`` keeps unlikely and ruled-out causes."""
        data = self.model_dump(mode="json")
        if not everything:
            data["causes"] = [c for c in data["causes"] if c["band"] not in {"unlikely", "ruled-out"}]
        return data


class Expectation(Record):
    """What a re-run shows if ``cause`` is what is wrong: words for people, and the condition as data, to be evaluated then."""

    cause: str
    words: Text
    when: dict[str, Any]


class Cost(Record):
    """What a step costs. ``tokens``: prompt tokens that a re-run sends, where it is known."""

    minutes: float = Field(ge=0)
    tokens: int | None = Field(default=None, ge=0)
    quality: Quality = "none"


class Undone(Record):
    """A setting that is put back first, because its change gained nothing."""

    variable: str
    start: Found = None
    to: Found = None


class NextTest(Record):
    """One step. ``start`` is the document's ``from``. ``splits``: the leaders that this test tells from the others.

    ``first``: what is undone before it, as a step of its own; ``start`` and ``to`` hold once that is done.
    ``closes``: the ids of the facts that an answer or a probe would find out.
    """

    kind: TestKind
    variable: str
    start: Found = None
    to: Found = None
    command: Text | None = None
    undo: Text | None = None
    first: tuple[Undone, ...] = ()
    keep: tuple[str, ...] = ()
    expects: tuple[Expectation, ...] = ()
    cost: Cost
    reason: Text
    cause: str | None = None
    rule: str | None = None
    splits: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """Give the ``next_test`` document."""
        data = self.model_dump(mode="json")
        return {"kind": data.pop("kind"), "variable": data.pop("variable"), "from": data.pop("start"), **data}


def verdict_of(judgement: Judgement, facts: Facts, *, run: int = 1, confirmed: Collection[str] = ()) -> Verdict:
    """Make the verdict of a run."""
    return Verdict(
        run=run,
        named=judgement.named,
        confirmed=tuple(sorted(confirmed)),
        abstained_because=judgement.abstained_because.english if judgement.abstained_because else None,
        causes=tuple(_cause(finding) for finding in judgement.findings),
        overturned_by=dict(judgement.overturns),
        chains={cause: effects for cause, effects in judgement.chains.items() if effects},
        conflicts=tuple(
            ConflictFound(
                id=conflict.fact.id,
                taken=_found(conflict.fact, conflict.taken),
                others=tuple(_found(conflict.fact, other) for other in conflict.others),
            )
            for conflict in facts.conflicts
        ),
        refused=tuple(refusal.message for refusal in facts.refused),
    )


def _cause(finding: Finding) -> CauseVerdict:
    return CauseVerdict(
        id=finding.cause,
        rule=finding.rule.id,
        family=finding.rule.family or CAUSES[finding.cause].family,
        band=finding.band,
        low=finding.low,
        now=finding.now,
        high=finding.high,
        explains=finding.rule.explains,
        clues=tuple(_clue(clue) for clue in finding.clues),
    )


def _clue(clue: ClueFinding) -> ClueVerdict:
    return ClueVerdict(
        words=clue.clue.words.english,
        truth=clue.truth.value,
        weight=clue.now,
        low=clue.low,
        high=clue.high,
        facts=tuple(_found(leaf.fact, leaf.found) for leaf in clue.trace.leaves()),
    )


def _found(fact: Fact[Any], found: Known[Any] | Unknown) -> FactFound:
    if isinstance(found, Known):
        return FactFound(id=fact.id, found=found.value, source=found.source, origin=found.origin)
    return FactFound(id=fact.id, why_unknown=found.why, note=found.note)


def expectations_of(expects: Iterable[Expect], facts: Facts) -> tuple[Expectation, ...]:
    """Freeze predictions on the facts of the run before the change, so that they can be kept and evaluated later."""
    return tuple(
        Expectation(cause=e.cause, words=e.words.english, when=e.when.frozen(facts).to_json()) for e in expects
    )


def score_each(
    expectations: Sequence[Expectation], facts_of_rerun: Facts, vocabulary: Vocabulary = VOCABULARY
) -> dict[str, Outcome]:
    """Judge every prediction: cause → outcome."""
    outcomes: dict[str, Outcome] = {}
    for expectation in expectations:
        try:
            condition = from_json(expectation.when, vocabulary)
        except ValueError:
            outcomes[expectation.cause] = "cannot-tell"
            continue
        outcomes[expectation.cause] = outcome_of(condition, facts_of_rerun)
    return outcomes


def next_step(
    judgement: Judgement,
    facts: Facts,
    closers: Iterable[Closer] = (),
    tried: Collection[tuple[str, str]] = (),
) -> NextTest | None:
    """Choose what to do next; None when there is nothing left to try.

    What is named is tested by its change. While nothing is named, a question, probe or file that could still change that comes first, the most
    weight per minute; then the change that tells the leaders apart; then whatever else is open.
    """
    ahead = openings(judgement, closers)
    choice = next_test(judgement, facts, tried)
    if not judgement.named:
        useful = next(
            (o for o in ahead if can_change_verdict(judgement, o.closer.facts) and o.closer.minutes <= _QUICK), None
        )
        if useful is not None:
            return _step_of_opening(useful)
    if choice is not None:
        return _step_of_choice(choice, facts)
    return _step_of_opening(ahead[0]) if ahead else None


_QUICK = 2.0
"""Minutes: what is found out as quickly as this is looked at before anything is changed."""


def _step_of_opening(opening: Opening) -> NextTest:
    closer = opening.closer
    names = ", ".join(sorted(fact.id for fact in closer.facts)[:6])
    causes = ", ".join(opening.causes[:4])
    return NextTest(
        kind="probe" if closer.kind == "probe" else "answer",
        variable=closer.id,
        cost=Cost(minutes=closer.minutes),
        reason=f"It can still decide about {causes}, by {names}.",
        splits=opening.causes[:4],
        closes=tuple(sorted(fact.id for fact in closer.facts)[:6]),
    )


def _step_of_choice(choice: Choice, facts: Facts) -> NextTest:
    test = choice.test
    return NextTest(
        kind=test.kind,
        variable=test.variable,
        start=test.value_of(test.start, facts),
        to=test.value_of(test.to, facts),
        keep=test.keep,
        expects=expectations_of(test.expects, facts),
        cost=Cost(minutes=test.minutes, quality=test.quality),
        reason=test.reason.english,
        cause=choice.rule.cause,
        rule=choice.rule.id,
        splits=choice.stays,
    )
