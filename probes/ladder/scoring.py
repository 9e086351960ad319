"""Scoring what a model answered: strict about the value, lenient about case, punctuation and reasoning; and judging recall against the base."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probes.evidence.rungs import CanaryScore, Criteria, DepthHit
from probes.evidence.words import Words, words
from probes.ladder.binomial import at_most
from probes.ladder.canaries import VALUES, Canary, NonLiteral, Style

LONGEST_ANSWER = 65_536
"""Characters of an answer that are looked at."""

_OPEN = re.compile(r"<(think|thinking|thought|reasoning|reflection|scratchpad)\b[^>]{0,80}>", re.IGNORECASE)
_CLOSE = r"</{name}\s*>"
_ANY_CLOSE = re.compile(r"</(?:think|thinking|thought|reasoning|reflection|scratchpad)\s*>", re.IGNORECASE)
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)[^<]{0,80}(?:<\|message\|>)?", re.IGNORECASE)
_SPECIAL = re.compile(r"<\|[^|<>\n]{1,40}\|>|<(?:end_of_turn|eos|s|/s|bos)>")
_VALUES = frozenset(VALUES)


def bounded(text: str) -> str:
    """Cut an answer to the part that is looked at."""
    return text[:LONGEST_ANSWER]


def without_reasoning(text: str) -> str:
    """Cut reasoning out of an answer: closed blocks, one that never ends, one whose beginning stood in the prompt, and named channels."""
    text = bounded(text)
    channels = list(_CHANNEL.finditer(text))
    if channels:
        last = channels[-1]
        text = text[last.end() :] if last[1].lower() == "final" else ""
    while match := _OPEN.search(text):
        close = re.compile(_CLOSE.format(name=match[1]), re.IGNORECASE).search(text, match.end())
        if close is None:
            text = text[: match.start()]
            break
        text = text[: match.start()] + text[close.end() :]
    closes = list(_ANY_CLOSE.finditer(text))
    if closes:
        text = text[closes[-1].end() :]
    return _SPECIAL.sub("", text).strip()


def normalised(text: str) -> str:
    """Fold case, width, dashes and decoration; what is left compares by words."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = re.sub(r"[\u2010-\u2015\u2212]", "-", text)
    return re.sub(r"[*_`\"'\u2018-\u201f]+", "", text)


def _key_pattern(key: str) -> str:
    name, number = key.casefold().rsplit("-", 1)
    return rf"(?<![a-z0-9]){re.escape(name)}\s*[-\s]\s*{number}(?![0-9])"


def _stated(answer: str, key: str) -> list[str]:
    """Give the words that a normalised answer states for a key, in order."""
    pattern = _key_pattern(key) + r"\s*(?:=|:|->|\u2192|-|\||\bis\b|,|\()?\s*(?:the word\s+)?\W{0,3}([a-z]{2,24})\b"
    return re.findall(pattern, answer)


def hits_completion(answer: str, canary: Canary) -> bool:
    """Say whether a completion of ``KEY =`` begins with the value."""
    match = re.match(r"\W{0,6}([a-z]+)", normalised(without_reasoning(answer)))
    return match is not None and match[1] == canary.value


def hits_question(answer: str, canary: Canary) -> bool:
    """Say whether an answer about one canary gives its value, and no other one."""
    text = normalised(without_reasoning(answer))
    stated = set(_stated(text, canary.key)) & _VALUES
    if stated:
        return stated == {canary.value}
    found = [w for w in re.findall(r"[a-z]+", text) if w in _VALUES]
    return (
        bool(found)
        and set(found) == {canary.value}
        and not re.search(rf"\bnot\s+(?:the\s+word\s+)?{canary.value}\b", text)
    )


def hits_list(answer: str, canaries: Sequence[Canary]) -> tuple[bool, ...]:
    """Say for each canary whether an answer about all of them gives its value.

    A line names its canary; where no name is given at all, exactly one word a line in the order asked counts too. A name with two
    different values is a miss.
    """
    if len(canaries) == 1:
        return (hits_question(answer, canaries[0]),)
    text = normalised(without_reasoning(answer))
    if not any(re.search(_key_pattern(c.key), text) for c in canaries):
        lines = [
            re.sub(r"^\s*(?:\d{1,3}[.)]|[-\u2022])\s*", "", line).strip(" .,;")
            for line in text.splitlines()
            if line.strip()
        ]
        if len(lines) == 1:
            lines = [part.strip(" .;") for part in lines[0].split(",")]
        return tuple(
            len(lines) == len(canaries) and line == c.value
            for line, c in zip(lines + [""] * len(canaries), canaries, strict=False)
        )
    return tuple(set(_stated(text, c.key)) == {c.value} for c in canaries)


def hits_name(answer: str, item: NonLiteral, others: Sequence[NonLiteral] = (), style: Style = "question") -> bool:
    """Say whether an answer names the person of a non-literal fact, and none of the others."""
    text = normalised(without_reasoning(answer))
    if style == "completion":
        match = re.match(r"\W{0,6}(\w+)", text)
        return match is not None and match[1] == item.name.casefold()
    names = {o.name.casefold() for o in others} | {item.name.casefold()}
    return {w for w in re.findall(r"\w+", text) if w in names} == {item.name.casefold()}


def score(
    canaries: Sequence[Canary], hits: Sequence[bool], *, non_literal_hits: Sequence[bool] | None = None
) -> CanaryScore:
    """Put the hits of one attempt together, by depth."""
    return CanaryScore(
        hit=sum(hits),
        asked=len(canaries),
        by_depth=tuple(DepthHit(depth=min(1.0, max(0.0, c.depth)), hit=h) for c, h in zip(canaries, hits, strict=True)),
        non_literal_hit=None if non_literal_hits is None else sum(non_literal_hits),
        non_literal_asked=None if non_literal_hits is None else len(non_literal_hits),
    )


def pooled(scores: Sequence[CanaryScore]) -> CanaryScore:
    """Add up several attempts."""
    asked = [s.non_literal_asked for s in scores if s.non_literal_asked is not None]
    return CanaryScore(
        hit=sum(s.hit for s in scores),
        asked=sum(s.asked for s in scores),
        by_depth=tuple(d for s in scores for d in s.by_depth),
        non_literal_hit=sum(s.non_literal_hit or 0 for s in scores) if asked else None,
        non_literal_asked=sum(asked) if asked else None,
    )


def by_depth(scores: Sequence[CanaryScore], bins: int = 10) -> tuple[tuple[float, int, int], ...]:
    """Give (middle of the depth bin, hits, asked) over all attempts, empty bins left out."""
    table: dict[int, list[bool]] = {}
    for one in scores:
        for place in one.by_depth:
            table.setdefault(
                min(bins - 1, int(place.depth * bins + 0.5) if bins == 10 else int(place.depth * bins)), []
            ).append(place.hit)
    return tuple(
        ((n / bins if bins == 10 else (n + 0.5) / bins), sum(hits), len(hits)) for n, hits in sorted(table.items())
    )


# --- judging recall ------------------------------------------------------------------------------------------------------------------------

ABLE = 1 / 3
"""A base below this cannot do the test."""
BASE_CANARIES = 27
"""Fewer than this many make no base."""
NOISE = 0.05
"""A shortfall that chance alone gives more often than this is not called forgetting."""

RecallStanding = Literal["holds", "falls", "unsure", "unable"]


@dataclass(frozen=True, slots=True)
class RecallVerdict:
    """Recall at one length. ``needed`` and ``share`` are shares; ``chance`` how often a model at ``needed`` would do this badly or worse."""

    standing: RecallStanding
    share: float
    needed: float
    chance: float
    why: Words

    @property
    def ok(self) -> bool | None:
        """True where recall holds, False where it falls, None where that cannot be told."""
        return {"holds": True, "falls": False, "unsure": None, "unable": None}[self.standing]


def able(base_hit: int, base_asked: int) -> bool:
    """Say whether a model can do the test at all: its base is a third or more."""
    return base_asked > 0 and base_hit / base_asked >= ABLE


def needed_share(base_hit: int, base_asked: int, criteria: Criteria) -> float:
    """Give the share that has to be recalled: of the model's own base, and the absolute criterion where the base reaches that."""
    base = base_hit / base_asked if base_asked else 0.0
    own = criteria.min_of_own_base * base
    return max(own, criteria.min_canaries) if base >= criteria.min_canaries else own


def judge_recall(hit: int, asked: int, base_hit: int, base_asked: int, criteria: Criteria) -> RecallVerdict:
    """Judge recall at a length against the base.

    It *holds* where the share that was seen reaches what is needed; it *falls* where it does not and chance alone would rarely (5 %) give
    so few; otherwise more canaries must be asked. ValueError if nothing was asked.
    """
    if asked <= 0:
        raise ValueError("no canary was asked")
    share = hit / asked
    needed = needed_share(base_hit, base_asked, criteria)
    values = {"hit": hit, "asked": asked, "base_hit": base_hit, "base_asked": base_asked, "needed": f"{needed:.0%}"}
    if not able(base_hit, base_asked):
        why = words(
            "The model recalled {base_hit} of {base_asked} facts of a short text: it cannot do this test.", **values
        )
        return RecallVerdict("unable", share, needed, 1.0, why)
    chance = at_most(hit, asked, needed)
    if share >= needed - 1e-9:
        return RecallVerdict(
            "holds",
            share,
            needed,
            chance,
            words("{hit} of {asked} facts were recalled; {needed} are needed.", **values),
        )
    if chance <= NOISE:
        why = words(
            "Only {hit} of {asked} facts were recalled; {needed} are needed (base: {base_hit} of {base_asked}), and chance rarely gives so few.",
            **values,
        )
        return RecallVerdict("falls", share, needed, chance, why)
    why = words(
        "{hit} of {asked} facts were recalled, {needed} are needed: too few were asked to tell that from chance.",
        **values,
    )
    return RecallVerdict("unsure", share, needed, chance, why)
