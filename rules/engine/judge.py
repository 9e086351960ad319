"""Judging: rules and facts → findings in bands, what is named, or why nothing is.

A score is an interval in decibans: *low* if everything still open turns against the cause, *now* on what is known, *high* if everything still
open speaks for it. Bands are words, never percentages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from probes.evidence.words import Words, words

from .condition import Condition, Trace
from .fact import ALL_WAYS, Fact, Facts, Known, Way
from .rule import FAIR, SLIGHT, STRONG, Clue, Rule
from .truth import Truth

Band = Literal["disputed", "likely", "ruled-out", "possible", "open", "unlikely"]
ORDER: Mapping[Band, int] = {"likely": 0, "possible": 1, "disputed": 2, "open": 3, "unlikely": 4, "ruled-out": 5}
"""How findings sort: most likely first. What is disputed stands with the possible where its score says so, else below them."""

IN_PLAY: frozenset[Band] = frozenset({"likely", "disputed", "possible", "open"})

LEAD = 6
"""How far a named cause's low must stand above what every rival has now."""


@dataclass(frozen=True, slots=True)
class ClueFinding:
    """What came of one clue: its trace, its weight now, and the least and most that it can come to."""

    clue: Clue
    trace: Trace
    low: int
    now: int
    high: int

    @property
    def truth(self) -> Truth:
        """Give the truth now."""
        return self.trace.truth

    @property
    def open(self) -> bool:
        """Say whether it could still weigh something else."""
        return self.low != self.high


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one rule."""

    rule: Rule
    clues: tuple[ClueFinding, ...]
    low: int
    now: int
    high: int
    band: Band

    @property
    def cause(self) -> str:
        """Give the cause's id."""
        return self.rule.cause

    @property
    def sort_key(self) -> tuple[int, int, int, str, str]:
        """Order: band, now, low, id."""
        band: Band = "possible" if self.band == "disputed" and self.now >= FAIR else self.band
        return (ORDER[band], -self.now, -self.low, self.cause, self.rule.id)

    def open_facts(self, ways: frozenset[Way] = ALL_WAYS) -> frozenset[Fact[Any]]:
        """Give the facts that could still move this finding."""
        facts: set[Fact[Any]] = set()
        for clue in self.clues:
            if clue.open:
                facts |= {
                    leaf.fact
                    for leaf in clue.trace.unsettled()
                    if not isinstance(leaf.found, Known) and leaf.found.is_open(ways)
                }
        return frozenset(facts)

    def grounds(self) -> frozenset[Fact[Any]]:
        """Give the facts on which what speaks for this cause rests, slight clues aside."""
        return frozenset(leaf.fact for clue in self.clues if clue.now >= FAIR for leaf in clue.trace.leaves())


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings, most likely first, one for each cause; what is named; or why nothing is.

    ``overturns``: named cause → causes that are still open and could pass it. ``chains``: named cause → causes in play that it explains.
    """

    findings: tuple[Finding, ...]
    named: tuple[str, ...]
    abstained_because: Words | None
    overturns: Mapping[str, tuple[str, ...]]
    chains: Mapping[str, tuple[str, ...]]
    ways: frozenset[Way]
    complaint: bool = True
    """Whether anyone said that something is wrong: where nobody did, a weak possibility is no reason to change anything."""

    def of(self, cause: str) -> Finding:
        """Give the finding about a cause. KeyError."""
        for finding in self.findings:
            if finding.cause == cause:
                return finding
        raise KeyError(cause)

    def in_play(self) -> tuple[Finding, ...]:
        """Give the findings that are neither unlikely nor ruled out."""
        return tuple(finding for finding in self.findings if finding.band in IN_PLAY)

    def leaders(self) -> tuple[Finding, ...]:
        """Give the causes between which the next step should decide: at most four, within ten decibans of the best.

        What a leader explains is no leader of its own: the root is changed first.
        """
        standing = [
            f
            for f in self.findings
            if f.band == "likely" or (f.band in {"disputed", "possible"} and (self.complaint or f.now >= STRONG))
        ]
        if self.named:
            standing = [f for f in standing if f.cause in self.named] + [
                f for f in standing if f.cause not in self.named
            ]
        if not standing:
            return ()
        best = max(f.now for f in standing)
        near = [f for f in standing if f.now >= best - STRONG or f.cause in self.named][:4]
        explained = {cause for f in near for cause in f.rule.explains}
        return tuple(f for f in near if f.cause not in explained) or tuple(near)


def weigh(clue: Clue, facts: Facts, ways: frozenset[Way] = ALL_WAYS) -> ClueFinding:
    """Weigh one clue. What rests on pasted prose weighs at most fair."""
    trace = clue.when.evaluate(facts)
    prose = any(isinstance(leaf.found, Known) and leaf.found.source == "report" for leaf in trace.leaves())

    def weight(truth: Truth) -> int:
        size = {Truth.TRUE: clue.if_true, Truth.FALSE: clue.if_false, Truth.UNKNOWN: 0}[truth]
        return max(-FAIR, min(FAIR, size)) if prose else size

    possible = [weight(truth) for truth in clue.when.reach(facts, ways)]
    least = min(possible) if clue.firm else min(0, *possible)
    return ClueFinding(clue, trace, least, weight(trace.truth), max(possible))


def band_of(clues: Iterable[ClueFinding], low: int, now: int, high: int) -> Band:
    """Give the band, tested in the order of the design."""
    settled = [clue.now for clue in clues if clue.truth.settled]
    if any(weight >= STRONG for weight in settled) and any(weight <= -STRONG for weight in settled):
        return "disputed"
    if low >= STRONG:
        return "likely"
    if high <= -STRONG:
        return "ruled-out"
    if now >= FAIR:
        return "possible"
    if high >= STRONG:
        return "open"
    return "unlikely"


def find(rule: Rule, facts: Facts, symptom: Fact[str] | None = None, ways: frozenset[Way] = ALL_WAYS) -> Finding:
    """Judge one rule. ``symptom`` is the fact that priors are about."""
    clues = [*rule.clues]
    if symptom is not None and any(rule.prior.values()):
        clues.append(_prior(rule, symptom))
    weighed = tuple(weigh(clue, facts, ways) for clue in clues)
    low, now, high = (sum(getattr(clue, name) for clue in weighed) for name in ("low", "now", "high"))
    return Finding(rule, weighed, low, now, high, band_of(weighed, low, now, high))


_PRIORS: dict[tuple[str, str, tuple[str, ...]], Clue] = {}
_PRIOR_WORDS = words("The symptom is one that this cause is known for.")


def _prior(rule: Rule, symptom: Fact[str]) -> Clue:
    symptoms = tuple(sorted(s for s, weight in rule.prior.items() if weight))
    key = (rule.cause, symptom.id, symptoms)
    if key not in _PRIORS:
        _PRIORS[key] = Clue(_PRIOR_WORDS, symptom.one_of(*symptoms), if_true=SLIGHT)
    return _PRIORS[key]


def judge(
    rules: Iterable[Rule], facts: Facts, *, symptom: Fact[str] | None = None, ways: frozenset[Way] = ALL_WAYS
) -> Judgement:
    """Judge all rules on these facts.

    ``ways``: how what is unknown could still be closed. A session with a person and a server has them all; in triage there is no probing, so
    that what needs a live server counts nothing; a run without a person has no asking. Of several rules for one cause the strongest speaks.
    """
    best: dict[str, Finding] = {}
    for rule in rules:
        finding = find(rule, facts, symptom, ways)
        known = best.get(finding.cause)
        if known is None or finding.sort_key < known.sort_key:
            best[finding.cause] = finding
    findings = tuple(sorted(best.values(), key=lambda f: f.sort_key))
    explained = _closure({f.cause: f.rule.explains for f in findings})
    named = tuple(f.cause for f in findings if f.band == "likely" and not _blocking(f, findings, explained))
    overturns = {
        cause: tuple(
            f.cause
            for f in findings
            if f.cause != cause
            and f.cause not in explained[cause]
            and f.high > f.now
            and f.high > best[cause].low
            and f.band in IN_PLAY
        )
        for cause in named
    }
    chains = {
        cause: tuple(f.cause for f in findings if f.cause in explained[cause] and f.band in IN_PLAY) for cause in named
    }
    complaint = symptom is None or isinstance(facts.get(symptom), Known)
    return Judgement(
        findings, named, None if named else _why_none(findings, explained), overturns, chains, ways, complaint
    )


def _closure(explains: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    closed: dict[str, frozenset[str]] = {}
    for cause in explains:
        seen: set[str] = set()
        waiting = list(explains[cause])
        while waiting:
            effect = waiting.pop()
            if effect not in seen and effect != cause:
                seen.add(effect)
                waiting.extend(explains.get(effect, ()))
        closed[cause] = frozenset(seen)
    return closed


def _blocking(
    finding: Finding, findings: tuple[Finding, ...], explained: Mapping[str, frozenset[str]]
) -> list[Finding]:
    """Give the rivals that stand too close for this cause to be named.

    A rival that is itself likely, on other grounds, is no alternative but a second cause: both are named.
    """
    grounds = finding.grounds()
    blocking = []
    for rival in findings:
        if rival is finding or rival.cause in explained[finding.cause]:
            continue
        beside = (
            rival.band == "likely" and finding.cause not in explained[rival.cause] and not grounds & rival.grounds()
        )
        if not beside and finding.low < rival.now + LEAD:
            blocking.append(rival)
    return blocking


def _why_none(findings: tuple[Finding, ...], explained: Mapping[str, frozenset[str]]) -> Words:
    likely = [f for f in findings if f.band == "likely"]
    if likely:
        first = likely[0]
        rivals = ", ".join(rival.cause for rival in _blocking(first, findings, explained)[:4])
        return words(
            "More than one cause explains what was found. First: {first}; too close to it: {rivals}.",
            first=first.cause,
            rivals=rivals,
        )
    best = max((f.now for f in findings if f.band == "possible"), default=None)
    # what is refuted as strongly as it is suggested says nothing about why a better one is not named
    disputed = [f for f in findings if f.band == "disputed" and (best is None or f.now >= best)]
    if disputed:
        return words(
            "Strong clues speak both for and against: {causes}.", causes=", ".join(f.cause for f in disputed[:4])
        )
    possible = [f for f in findings if f.band == "possible"]
    if possible:
        return words(
            "The clues are too weak to name a cause. Possible: {causes}.",
            causes=", ".join(f.cause for f in possible[:4]),
        )
    still_open = [f for f in findings if f.band == "open"]
    if len(still_open) == 1:
        return words("Too little is known yet. Open: one cause.")
    if still_open:
        return words("Too little is known yet. Open: {count} causes.", count=len(still_open))
    return words("Nothing that was found speaks for any known cause.")


def identified(rule: Rule, *, rule_id: str, family: str, document: str) -> Rule:
    """Give the rule with what its file says: id, family, document."""
    return replace(rule, id=rule_id, family=family, document=document)


def decides(condition: Condition, facts: Facts) -> Truth:
    """Give the truth of a condition on these facts."""
    return condition.evaluate(facts).truth
