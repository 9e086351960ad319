'''The engine: three-valued truth, facts, conditions, rules, judging, openings. It knows no fact and no cause of its own.

How to write a rule
===================

One file a rule, ``rules/<family>/<fault>.py`` (underscores; the id is the same with hyphens), and ``<fault>.toml`` beside it. The file holds a
docstring with fixed headings and one ``RULE``::

    """The window is divided by the number of slots.

    What it looks for
        ...
    Why it happens
        ...
    What would prove it wrong
        ...
    References
        ...
    """

    from probes.evidence.words import words
    from rules.engine import FAIR, STRONG, Clue, Expect, Rule, Test, before
    from rules.facts import SLOTS, WINDOW_IN_FORCE, WINDOW_SHARE_OF_ASKED

    RULE = Rule(
        cause="slots-divide-ctx",                       # an id of rules/causes.py
        prior={"fixed-length-error": SLIGHT},           # symptom → SLIGHT; a symptom opens and closes nothing
        explains=("kv-pool-exhausted",),                # causes that follow from this one: it need not beat them to be named
        clues=(
            Clue(words("Each slot has less than the window that was asked for."), when=PER_SLOT_SHARE < 0.9, if_true=STRONG, if_false=-STRONG),
            Clue(words("..."), when=all_of(SLOTS > 1, not_(UNIFIED.is_(True))), if_true=FAIR),
        ),
        tests=(
            Test(
                variable="parallel", start=SLOTS, to=1, keep=("ctx",), quality="none", minutes=3,
                reason=words("One slot gets the whole window."),
                expects=(Expect("slots-divide-ctx", WINDOW_IN_FORCE > before(WINDOW_IN_FORCE) * 1.5, words("The window grows.")),),
            ),
        ),
    )

Weights are SLIGHT 3, FAIR 6, STRONG 10, DECISIVE 20 decibans; a minus speaks against. ``likely`` needs a low of 10: what is still open counts at
its worst, so give ``if_false`` only where the opposite really speaks against. Two clues of one rule may not look at one fact (put such things in
one condition with ``any_of``, or make a derived fact). The symptom is the prior's; no clue looks at it.

Conditions: ``F > x``, ``<``, ``>=``, ``<=`` with a number or ``G * 0.9``; ``F.above(G)``, ``F.below(G)``; ``.is_(v)``, ``.one_of(a, b)``, ``.has(member)`` for
tuples, ``.known()``; ``all_of``, ``any_of``, ``not_``. Never ``and``, ``or``, ``not`` or ``a < F < b``: they raise.
``before(F)`` is F's value in the run before the change, only in ``Expect``.

Tests: ``variable`` is a name of ``probes.evidence.subject.Configuration``; ``start``/``to`` a value, a fact, or ``Computed(words, lambda facts: …)``
(None: cannot be offered). ``when``: not offered where false. ``also``: causes that the same change cures too.
Further ``Expect`` about rivals say what would be seen instead.
``kind="habit"`` needs no ``expects`` and no command. ``kind="probe"``/``"answer"``: ``variable`` is the probe's or question's id.

Cases, ``<fault>.toml``: at least one each of ``fires``, ``silent``, ``cannot-tell``; facts by id; ``band`` is what must come out with every other fact
unknown and not obtainable (``open = true``: unknown, but obtainable)::

    [[case]]
    name = "four slots on an 8K window"
    kind = "fires"            # fires | silent | cannot-tell | look-alike
    band = "likely"           # one band, or a list
    [case.facts]
    "window.slots" = 4

How to add a fact
=================

In ``rules/facts.py``: ``NAME = Fact("area.name", int, words("…"), unit="tokens", low=0, high=…)``; bool and str need no range; str takes ``choices``;
``question="id"`` if a question of diagnose/questions.py asks for it directly (its choice ids are then the fact's values, or true/false, a number).
Only a few facts are measured; give a boolean its opposite only where that was really looked at: what a log excerpt lacks is unknown, not false.

How to add a derivation
=======================

In a file of ``rules/derive/`` (found by walking the package)::

    @derivation(reads=(LogEvent,), needs=(WINDOW_ASKED,), gives=(POOL_FULL_SEEN,))
    def pool_full(sight: Sight) -> Iterator[Reading]:
        for evidence, event in sight.of(LogEvent):
            if event.event == "pool-full":
                yield reading(POOL_FULL_SEEN, True, evidence)

An answer that stands for a fact that can also be measured is one line in ``rules/derive/mirrors.py``: ``mirror(TOLD_X, FACT, convert)``. Keep derivations
narrow: as long as something that one needs is open, all that it gives counts as open.

It sees only what it declares. Several derivations may give one fact: measured beats read beats answered, and the contradiction is kept. Yield
``unread(FACT, "not-offered", "why")`` where you know why; silence is explained from what was read. Values out of range are refused, not raised.

Judging
=======

``rules.catalogue.judge_evidence(evidence_set, mode)`` does all of it; by hand: ``judge(all_rules(), facts, symptom=SYMPTOM, ways=WAYS[mode])``.
'''

from __future__ import annotations

from .condition import (
    Condition,
    Leaf,
    Outcome,
    Trace,
    all_of,
    any_of,
    describe,
    from_json,
    not_,
    outcome_of,
)
from .derivation import Derivation, Derivations, Reading, Sight, derivation, mirror, reading, unread
from .fact import ALL_WAYS, Conflict, Fact, Facts, Known, Refusal, Term, Unknown, Vocabulary, Way, before
from .judge import Band, ClueFinding, Finding, Judgement, find, judge, weigh
from .openings import Choice, Closer, Opening, can_change_verdict, next_test, openings, tried_key
from .rule import DECISIVE, FAIR, SIZES, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test
from .truth import Truth

__all__ = [
    "ALL_WAYS",
    "DECISIVE",
    "FAIR",
    "SIZES",
    "SLIGHT",
    "STRONG",
    "Band",
    "Choice",
    "Closer",
    "Clue",
    "ClueFinding",
    "Computed",
    "Condition",
    "Conflict",
    "Derivation",
    "Derivations",
    "Expect",
    "Fact",
    "Facts",
    "Finding",
    "Judgement",
    "Known",
    "Leaf",
    "Opening",
    "Outcome",
    "Reading",
    "Refusal",
    "Rule",
    "Sight",
    "Term",
    "Test",
    "Trace",
    "Truth",
    "Unknown",
    "Vocabulary",
    "Way",
    "all_of",
    "any_of",
    "before",
    "can_change_verdict",
    "derivation",
    "describe",
    "find",
    "from_json",
    "judge",
    "mirror",
    "next_test",
    "not_",
    "openings",
    "outcome_of",
    "reading",
    "tried_key",
    "unread",
    "weigh",
]
