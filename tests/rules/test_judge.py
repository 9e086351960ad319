"""Bands, names, chains, and what to do next."""

from __future__ import annotations

import pytest

from probes.evidence.words import words
from rules.engine import (
    DECISIVE,
    FAIR,
    SLIGHT,
    STRONG,
    Closer,
    Clue,
    Expect,
    Fact,
    Facts,
    Known,
    Rule,
    Test,
    Unknown,
    all_of,
    before,
    can_change_verdict,
    judge,
    next_test,
    openings,
    tried_key,
)
from rules.engine.judge import find

A, B, C, D = (Fact(f"flag.{n}", bool, words("a flag")) for n in "abcd")
LENGTH = Fact("length.now", int, words("a length"), unit="tokens", low=0, high=10**6)
SYMPTOM = Fact("symptom", str, words("symptom"), choices=("oom", "slow"))


def clue(fact, true, false=0):
    return Clue(words(f"{fact.id} holds."), fact.is_(True), true, false)


def rule(cause, *clues, tests=(), **more):
    return Rule(cause, clues, tests, **more)


def known(**values):
    facts = {"a": A, "b": B, "c": C, "d": D}
    return Facts({facts[name]: Known(value) if isinstance(value, bool) else value for name, value in values.items()})


CLOSED = Unknown("not-offered")


@pytest.mark.parametrize(
    ("clues", "facts", "band"),
    [
        ((clue(A, STRONG), clue(B, -STRONG)), known(a=True, b=True), "disputed"),
        ((clue(A, STRONG),), known(a=True), "likely"),
        ((clue(A, STRONG), clue(B, 0, -SLIGHT)), known(a=True), "possible"),
        ((clue(A, 0, -STRONG),), known(a=False), "ruled-out"),
        ((clue(A, FAIR),), known(a=True), "possible"),
        ((clue(A, STRONG),), known(), "open"),
        ((clue(A, STRONG),), known(a=CLOSED), "unlikely"),
        ((clue(A, FAIR),), known(), "unlikely"),
        ((clue(A, STRONG, -STRONG), clue(B, DECISIVE)), known(a=False, b=True), "disputed"),
    ],
)
def test_bands_are_tested_in_their_order(clues, facts, band):
    """Disputed, likely, ruled out, possible, open, unlikely: the first that fits."""
    assert find(rule("x", *clues), facts).band == band


def test_a_cause_is_named_only_with_a_lead_over_every_rival():
    """Its low stands six above what each rival has now; less is no name."""
    one, near, far = (
        rule("one", clue(A, DECISIVE)),
        rule("near", clue(A, DECISIVE)),
        rule("far", clue(A, STRONG), clue(B, SLIGHT)),
    )
    facts = known(a=True)
    assert judge([one, far], facts).named == ("one",)
    judgement = judge([one, near, far], facts)
    assert judgement.named == ()
    assert "near" in judgement.abstained_because.english


def test_two_causes_on_their_own_grounds_are_both_named():
    """Each is likely by other facts: they are two faults, not two guesses at one."""
    judgement = judge([rule("one", clue(A, STRONG)), rule("two", clue(B, STRONG))], known(a=True, b=True))
    assert judgement.named == ("one", "two")


def test_a_root_need_not_beat_what_it_explains():
    """The consequence is shown in the chain, and the root is what is changed."""
    root = rule("root", clue(A, STRONG), explains=("effect",), tests=(change("r", "root"),))
    effect = rule("effect", clue(A, DECISIVE), tests=(change("e", "effect"),))
    judgement = judge([root, effect], known(a=True))
    assert "root" in judgement.named
    assert judgement.chains["root"] == ("effect",)
    assert next_test(judgement, known(a=True)).test.variable == "r"


def test_rivals_that_could_still_pass_are_listed():
    """What is named says what would overturn it."""
    judgement = judge([rule("one", clue(A, STRONG)), rule("open", clue(B, DECISIVE))], known(a=True))
    assert judgement.named == ("one",)
    assert judgement.overturns["one"] == ("open",)


def test_nothing_found_is_said_so():
    """No evidence: nothing is named, and the reason says that too little is known."""
    judgement = judge([rule("one", clue(A, STRONG))], known())
    assert judgement.named == ()
    assert judgement.abstained_because.english == "Too little is known yet. Open: one cause."
    two = judge([rule("one", clue(A, STRONG)), rule("two", clue(B, STRONG))], known())
    assert two.abstained_because.english == "Too little is known yet. Open: 2 causes."


def test_prose_weighs_at_most_fair():
    """A decisive clue that rests on a pasted report is worth six."""
    facts = Facts({A: Known(True, "report")})
    assert find(rule("x", clue(A, DECISIVE)), facts).now == FAIR
    assert (
        find(
            rule("x", Clue(words("both"), all_of(A.is_(True), B.is_(True)), DECISIVE)), facts.learn({B: Known(True)})
        ).now
        == FAIR
    )


def test_a_symptom_opens_and_never_decides():
    """The prior is slight, for, and nothing where the symptom is another."""
    priored = rule("x", clue(A, STRONG), prior={"oom": SLIGHT})
    assert find(priored, Facts({SYMPTOM: Known("oom")}), SYMPTOM).now == SLIGHT
    assert find(priored, Facts({SYMPTOM: Known("slow")}), SYMPTOM).now == 0
    with pytest.raises(ValueError, match="prior"):
        rule("x", clue(A, STRONG), prior={"oom": FAIR})


def test_two_clues_may_not_rest_on_one_fact():
    """One observation counts once; the mistake is found when the rule is made."""
    with pytest.raises(ValueError, match=r"flag\.a"):
        rule("x", clue(A, STRONG), Clue(words("also"), all_of(A.is_(True), B.is_(True)), FAIR))


@pytest.mark.parametrize("weights", [(4, 0), (0, 0), (3, 3), (-3, -6)])
def test_weights_have_names_and_directions(weights):
    """A weight is a named size; a clue moves something, and not the same way whether true or false."""
    with pytest.raises(ValueError, match=r"size|weighs nothing|same way"):
        clue(A, *weights)


def test_of_several_rules_for_one_cause_the_strongest_speaks():
    """Two ways to one cause are not added up."""
    judgement = judge([rule("x", clue(A, FAIR)), rule("x", clue(B, STRONG))], known(a=True, b=True))
    assert [(f.cause, f.now) for f in judgement.findings] == [("x", STRONG)]


def change(variable, cause, *, to=1, quality="none", minutes=5.0, also=(), when=None):
    return Test(
        variable=variable,
        reason=words("because"),
        start=0,
        to=to,
        quality=quality,
        minutes=minutes,
        also=also,
        when=when,
        expects=(Expect(cause, LENGTH > before(LENGTH) * 1.5, words("it moves")),),  # noqa: SIM300
    )


def test_the_test_that_splits_the_leaders_comes_first():
    """A change that cures both leaders tells nothing; the slower one that cures only one does."""
    both = rule(
        "one", clue(A, FAIR), tests=(change("both", "one", also=("two",), minutes=1), change("split", "one", minutes=9))
    )
    two = rule("two", clue(B, FAIR), tests=())
    choice = next_test(judge([both, two], known(a=True, b=True)), known(a=True, b=True))
    assert choice.test.variable == "split"
    assert choice.stays == ("two",)


def test_no_lever_that_costs_quality_while_a_free_one_is_untried():
    """Even if it splits better and is quicker. Tried, the free one gives way."""
    one = rule(
        "one",
        clue(A, FAIR),
        tests=(change("costly", "one", quality="much", minutes=1), change("free", "one", also=("two",), minutes=9)),
    )
    two = rule("two", clue(B, FAIR))
    facts = known(a=True, b=True)
    judgement = judge([one, two], facts)
    first = next_test(judgement, facts)
    assert first.test.variable == "free"
    assert next_test(judgement, facts, [tried_key(first.test, facts)]).test.variable == "costly"


def test_a_habit_comes_after_every_change():
    """A recommendation without a command is what is left when nothing can be changed."""
    habit = Test(variable="stop", kind="habit", reason=words("enough"), minutes=1)
    one = rule(
        "one",
        clue(A, STRONG),
        tests=(habit, change("free", "one", minutes=60), change("costly", "one", quality="some")),
    )
    facts, tried = known(a=True), []
    judgement = judge([one], facts)
    order = []
    for _ in range(3):
        choice = next_test(judgement, facts, tried)
        order.append(choice.test.variable)
        tried.append(tried_key(choice.test, facts))
    assert order == ["free", "costly", "stop"]
    assert next_test(judgement, facts, tried) is None


def test_a_change_that_changes_nothing_is_not_offered():
    """A target that is in force already, or cannot be worked out, or does not apply."""
    tests = (
        change("same", "one", to=0),
        change("unknown", "one", to=LENGTH),
        change("not-here", "one", when=B.is_(True)),
    )
    judgement = judge([rule("one", clue(A, STRONG), tests=tests)], known(a=True, b=False))
    assert next_test(judgement, known(a=True, b=False)) is None


def test_what_is_asked_next_carries_the_most_weight_a_minute():
    """A cheap question beats a dear probe of the same weight; what moves nothing in play is left out."""
    rules = [rule("one", clue(A, STRONG, -STRONG), clue(B, SLIGHT))]
    closers = [
        Closer("probe-a", "probe", frozenset({A}), 5.0),
        Closer("ask-a", "ask", frozenset({A}), 0.2),
        Closer("ask-b", "ask", frozenset({B}), 0.2),
        Closer("ask-d", "ask", frozenset({D}), 0.1),
    ]
    found = openings(judge(rules, known()), closers)
    assert [o.closer.id for o in found] == ["ask-a", "ask-b", "probe-a"]
    assert found[0].weight == 2 * STRONG


def test_what_tells_the_leaders_apart_is_asked_before_what_could_raise_many_others():
    """Law: a cause for which something speaks is not drowned by many for which nothing does; without one of the first, all count alike."""
    others = [rule(f"other{n}", clue(B, STRONG, -STRONG)) for n in range(5)]
    rules = [rule("leads", clue(C, STRONG), clue(A, FAIR, -FAIR)), *others]
    closers = [Closer("ask-a", "ask", frozenset({A}), 0.2), Closer("ask-b", "ask", frozenset({B}), 0.2)]
    first = openings(judge(rules, known(c=True)), closers)
    assert [o.closer.id for o in first] == ["ask-a", "ask-b"]
    assert openings(judge(rules, known()), closers)[0].closer.id == "ask-b"
    both = [Closer("ask-both", "ask", frozenset({A, B}), 0.2)]
    assert openings(judge(rules, known(c=True)), both)[0].causes[0] == "leads"


def test_questions_stop_when_they_can_change_nothing():
    """Once a cause is named out of reach of what is open, asking on is idle."""
    rules = [rule("one", clue(A, DECISIVE), clue(C, SLIGHT)), rule("two", clue(B, STRONG))]
    judgement = judge(rules, known(a=True))
    assert judgement.named == ("one",)
    assert not can_change_verdict(judgement, {B})
    assert can_change_verdict(judge(rules, known()), {B})
