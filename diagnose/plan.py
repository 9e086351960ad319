"""From the symptom and what is still open to the probes: which, in which order, within the budget."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from diagnose.questions import QUESTIONS, Value, closes
from probes.evidence.answers import Answer
from probes.evidence.events import LogEvent
from probes.evidence.records import Payload
from probes.evidence.request import CacheReuse, ConcurrencyTrial, FailingLength, TruncationReading
from probes.evidence.rungs import RecallBase, RungResult
from rules.derive import all_derivations
from rules.engine import Closer, Fact, Facts, Known
from rules.facts import VOCABULARY

ORDER: Mapping[str | None, tuple[str, ...]] = {
    # symptom → probes in the order in which they tell most for that symptom
    "immediate-oom": ("allocation", "truncation", "asking", "recall", "ladder", "fixed-length"),
    "fixed-length-error": ("allocation", "truncation", "fixed-length", "asking", "recall", "ladder", "repeat"),
    # a few short requests tell most causes of slow turns: they come before the lengths take the budget
    "slow-long-context": ("allocation", "truncation", "cache-reuse", "asking", "recall", "ladder", "speed"),
    "forgetting": ("allocation", "truncation", "asking", "recall", "ladder", "cache-reuse"),
    "flaky": ("allocation", "truncation", "asking", "recall", "repeat", "ladder", "fixed-length", "cache-reuse"),
    None: ("allocation", "truncation", "asking", "recall", "ladder"),
}

GIVES: Mapping[str, tuple[type[Payload], ...]] = {
    "truncation": (TruncationReading,),
    "recall": (RecallBase,),
    "ladder": (RungResult,),
    "fixed-length": (FailingLength,),
    "repeat": (ConcurrencyTrial,),
    "cache-reuse": (CacheReuse,),
    "speed": (RungResult,),
}
MINUTES: Mapping[str, float] = {
    "truncation": 0.2,
    "recall": 1.0,
    "ladder": 10.0,
    "fixed-length": 2.0,
    "repeat": 2.0,
    "cache-reuse": 0.5,
    "speed": 2.0,
}
QUESTION_MINUTES = 0.3


def order_for(
    symptom: str | None, *, control: bool = False, soak: bool = False, damage: bool = False
) -> tuple[str, ...]:
    """Give the probes of a symptom in their order.

    ``control``: a control server was given; without one nothing is compared. ``soak``: a session of many turns was asked for, or the answers say that
    it happens in one (:func:`over_many_turns`). ``damage``: the cache is quantised, or another run of the case under another type was asked the same.
    """
    order = list(ORDER.get(symptom, ORDER[None]))
    if damage and control:
        # two servers side by side answer in one run what else takes two, for less than the ladder costs
        order.insert(order.index("ladder"), "damage")
    more = (("damage", damage and not control), ("control", control), ("soak", soak))
    return (*order, *(name for name, wanted in more if wanted))


def over_many_turns(symptom: str | None, answers: Iterable[Answer]) -> bool:
    """Say whether the answers, the newest of each question, say that it happens in long sessions."""
    if symptom not in {"forgetting", "flaky"}:
        return False
    said = {answer.question: answer.value for answer in answers}
    when = said.get("when")
    return said.get("worse_when") == "turns" or (isinstance(when, tuple | list) and "over-time" in when)


@cache
def _facts_read_from(kind: type[Payload]) -> frozenset[Fact[object]]:
    derivations = all_derivations()
    return frozenset(
        fact for fact, givers in derivations.givers.items() if any(kind in giver.reads for giver in givers)
    )


@cache
def _stands_for(fact: Fact[object]) -> tuple[Fact[object], ...]:
    """Give the facts that an answer stands for, where it is good for nothing else: empty where more is derived from it."""
    users = [one for one in all_derivations().ordered if fact in one.needs]
    if any(one.reads or len(one.needs) > 1 for one in users):
        return ()
    return tuple(given for one in users for given in one.gives)


def settled(question_fact: str, facts: Facts) -> bool:
    """Say whether an answer could tell nothing new: all that it stands for was read or measured, or said by the user, already."""
    if question_fact not in VOCABULARY:
        return False
    fact = VOCABULARY[question_fact]

    def known(one: Fact[object]) -> bool:
        found = facts.get(one)
        return isinstance(found, Known) and found.source != "report"

    if any(all(known(VOCABULARY[each]) for each in way) for way in _TELLS_AS_MUCH.get(question_fact, ())):
        return True
    return all(known(one) for one in (_stands_for(fact) or (fact,)))


_TELLS_AS_MUCH: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "told.gpu_gib": (("device.total_bytes",), ("device.free_bytes", "memory.limit_bytes")),
    "told.weights_gib": (("memory.weights_bytes",), ("model.bytes",)),
    "told.cache_gib": (("memory.kv_bytes",),),
    "told.window_asked": (("window.asked",),),
    "told.window_trained": (("window.trained",),),
    "told.several_gpus": (("device.count", "device.several", "device.unequal"),),
    "told.refused_gib": (("alloc.bytes",),),
    "told.error_kind": (("failure.about",),),
    "told.failed_while": (("failure.stage",),),
}
"""Question's fact → ways in which other facts tell as much. Nobody is asked for what a log says."""


_OF_A_REQUEST = ("window_shown", "sent_tokens", "processed_tokens", "total_tokens", "requests_at_once", "client")
"""Questions about a server that answers."""


def _told_by_failing(facts: Facts | None) -> dict[str, Value]:
    """Give the answers that a load which failed gives: when it happens, and with memory what went wrong. The server never ran, so shows no window."""
    if facts is None:
        return {}

    def true(one: str) -> bool:
        found = facts.get(VOCABULARY[one])
        return isinstance(found, Known) and found.source not in {"report", "user"} and found.value is True

    if not true("failure.at_start"):
        return {}
    told: dict[str, Value] = {"when": ("at-load",), **dict.fromkeys(_OF_A_REQUEST)}
    if true("failure.is_memory"):
        told["symptom"] = "immediate-oom"
    return told


def closers(
    answered: Collection[str] | Mapping[str, Value],
    done: Collection[str],
    *,
    server: bool,
    person: bool,
    logs: bool,
    facts: Facts | None = None,
) -> list[Closer]:
    """Give what could still close unknowns: probes not run (with a server), questions not answered (with a person), a log not given.

    With ``facts``, a question whose answer is known from elsewhere already is left out; with ``answered`` as question → value, one that makes no
    sense after those answers.
    """
    found: list[Closer] = []
    implied = _told_by_failing(facts)
    after = {**implied, **answered} if isinstance(answered, Mapping) else {}
    if server:
        found += [
            Closer(name, "probe", frozenset().union(*(_facts_read_from(kind) for kind in kinds)), MINUTES[name])
            for name, kinds in GIVES.items()
            if name not in done
        ]
    if person:
        found += [
            Closer(
                one.id,
                "ask",
                frozenset(VOCABULARY[fact] for fact in closes(one.id) if fact in VOCABULARY),
                QUESTION_MINUTES,
            )
            for one in QUESTIONS
            if one.id not in answered
            and one.id not in implied
            and (facts is None or not settled(one.fact, facts))
            and not (isinstance(answered, Mapping) and one.applies(after) is False)
        ]
    if not logs:
        found.append(Closer("log", "give", _facts_read_from(LogEvent), 1.0))
    return found


@dataclass(frozen=True, slots=True)
class Step:
    """One probe of a plan, and whether the budget holds it."""

    probe: str
    seconds: float
    fits: bool


def within(names: Iterable[str], seconds_of: Callable[[str], float], budget_s: float) -> list[Step]:
    """Lay probes into the budget in their order; one that does not fit is kept, marked, so that it can be said."""
    left = budget_s
    steps: list[Step] = []
    for name in names:
        seconds = seconds_of(name)
        fits = seconds <= left
        if fits:
            left -= seconds
        steps.append(Step(name, seconds, fits))
    return steps
