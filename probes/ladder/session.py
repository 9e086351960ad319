"""Long sessions: whether the model repeats itself, and whether it still knows the state of the task."""

from __future__ import annotations

import random
import re
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probes.ladder.canaries import CODE_WORDS, VALUES, Canary
from probes.ladder.scoring import bounded, hits_list, without_reasoning

LoopKind = Literal["inside", "across"]
LONGEST_COMPARED = 4000
"""Characters of an answer that are compared by edit distance."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A repetition: inside one answer (``share`` of its words that stand in repeats) or of an earlier turn (``share``: likeness, 0 to 1)."""

    kind: LoopKind
    turn: int
    share: float
    sample: str = ""
    like_turn: int | None = None


def repeated_share(text: str, n: int = 8) -> tuple[float, str]:
    """Give the share of a text's words that stand in an n-gram seen before in it, and the commonest such n-gram."""
    # A rule of dashes or a table's edge is one piece, not many.
    found = [m[0] for m in re.finditer(r"\w+|([^\w\s])\1*", bounded(text))]
    grams = [tuple(found[i : i + n]) for i in range(len(found) - n + 1)]
    if not grams:
        return 0.0, ""
    seen: set[tuple[str, ...]] = set()
    covered = bytearray(len(found))
    for i, gram in enumerate(grams):
        if gram in seen:
            covered[i : i + n] = b"\1" * n
        seen.add(gram)
    common, count = Tally(grams).most_common(1)[0]
    return sum(covered) / len(found), " ".join(common) if count > 1 else ""


def tail_cycle(text: str, most: int = 400) -> int:
    """Say how often the shortest unit repeats at the very end of a text (a model that loops for ever ends so); 1 where nothing repeats."""
    text = bounded(text).rstrip()[-4 * most :]
    best = 1
    for size in range(1, min(most, len(text) // 2) + 1):
        unit = text[-size:]
        count = 1
        while text.endswith(unit * (count + 1)) and count < 4 * most:
            count += 1
        # Short units repeat in ordinary text: only a run of some length counts, and a longer one for dots, dashes and blanks.
        if count >= 3 and count * size >= (24 if re.search(r"\w", unit) else most):
            best = max(best, count)
    return best


def likeness(first: str, second: str) -> float:
    """Give 1 minus the edit distance of two texts by the longer one's length: 1 the same, 0 nothing in common."""
    a, b = first[:LONGEST_COMPARED], second[:LONGEST_COMPARED]
    if not a and not b:
        return 1.0
    words_a, words_b = re.findall(r"\w+|[^\w\s]", a), re.findall(r"\w+|[^\w\s]", b)
    longest = max(len(words_a), len(words_b))
    return 1 - _edit_distance(words_a, words_b) / longest if longest else 1.0


def _shared(first: str, second: str) -> float:
    """Give an upper bound of the likeness: the share of words that both have, in whatever order."""
    a, b = (Tally(re.findall(r"\w+|[^\w\s]", t[:LONGEST_COMPARED])) for t in (first, second))
    return (a & b).total() / max(a.total(), b.total(), 1)


def _edit_distance(a: Sequence[str], b: Sequence[str]) -> int:
    previous = list(range(len(b) + 1))
    for i, left in enumerate(a, 1):
        current = [i]
        for j, right in enumerate(b, 1):
            current.append(min(previous[j] + 1, current[-1] + 1, previous[j - 1] + (left != right)))
        previous = current
    return previous[-1]


INSIDE = 0.4
ACROSS = 0.9
SHORTEST_LOOP = 12
"""Answers of fewer words may well be the same twice."""


def find_loops(answers: Sequence[str], *, back: int = 4) -> tuple[Loop, ...]:
    """Find answers that repeat themselves or one of the ``back`` turns before. Turns are counted from 1."""
    loops: list[Loop] = []
    texts = [without_reasoning(a) for a in answers]
    for turn, text in enumerate(texts, 1):
        share, sample = repeated_share(text)
        cycle = tail_cycle(text)
        if share >= INSIDE or cycle >= 4:
            loops.append(Loop("inside", turn, max(share, min(1.0, cycle / 10)), sample[:200]))
        if len(text.split()) < SHORTEST_LOOP:
            continue
        for earlier in range(max(1, turn - back), turn):
            if _shared(texts[earlier - 1], text) < ACROSS:  # cannot be alike enough: saves the long comparison
                continue
            same = likeness(texts[earlier - 1], text)
            if same >= ACROSS:
                loops.append(Loop("across", turn, same, text[:200], earlier))
                break
    return tuple(loops)


# --- the task's state ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Change:
    """One turn's change of the state: a name gets a word, or another word than before."""

    turn: int
    key: str
    value: str

    @property
    def line(self) -> str:
        """The change as the user says it."""
        return f"From now on {self.key} = {self.value}."


@dataclass(frozen=True, slots=True)
class StatePlan:
    """A session's changes. Some names change twice: the latest word counts, the older one is what a model falls back to."""

    changes: tuple[Change, ...]

    def at(self, turn: int) -> dict[str, str]:
        """Give the state after a turn."""
        state: dict[str, str] = {}
        for change in self.changes:
            if change.turn <= turn:
                state[change.key] = change.value
        return state


@dataclass(frozen=True, slots=True)
class StateScore:
    """What of the state was still known: names asked, right ones, and those answered with an outdated word."""

    asked: int
    right: int
    stale: int


def draw_state(seed: int, turns: int, names: int = 6) -> StatePlan:
    """Plan the changes of a session: each turn one, all names set first, then changed in turn."""
    rng = random.Random(f"state {seed}")
    keys = [f"{w}-{rng.randrange(10, 100)}" for w in rng.sample(CODE_WORDS, names)]
    values = rng.sample(VALUES, len(VALUES))
    order = keys + [rng.choice(keys) for _ in range(max(0, turns - names))]
    return StatePlan(
        tuple(Change(turn, key, values[(turn - 1) % len(values)]) for turn, key in enumerate(order[:turns], 1))
    )


def state_tail(state: dict[str, str]) -> str:
    """Give the question for the whole state."""
    return (
        f"Which word belongs to each of these names now: {', '.join(state)}?\n"
        "Answer with one line for each name, in this order and in this form, and nothing else:\nNAME-NUMBER = word"
    )


def score_state(answer: str, plan: StatePlan, turn: int) -> StateScore:
    """Score an answer to :func:`state_tail` after a turn."""
    state = plan.at(turn)
    right = hits_list(answer, [Canary(k, v) for k, v in state.items()])
    stale = 0
    for (key, value), hit in zip(state.items(), right, strict=True):
        older = {c.value for c in plan.changes if c.key == key and c.turn <= turn} - {value}
        stale += not hit and any(hits_list(answer, [Canary(key, old)])[0] for old in older)
    return StateScore(len(state), sum(right), stale)
