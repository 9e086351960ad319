"""The engine's laws: what more knowledge may and may not change."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import ImpossibleValueError
from probes.evidence.words import words
from rules.engine import (
    ALL_WAYS,
    DECISIVE,
    FAIR,
    SLIGHT,
    STRONG,
    Clue,
    Fact,
    Facts,
    Known,
    Rule,
    Truth,
    Unknown,
    Vocabulary,
    all_of,
    any_of,
    before,
    from_json,
    judge,
    not_,
)
from rules.engine.judge import find

NUMBERS = [Fact(f"n.{i}", int, words("a number"), unit="tokens", low=0, high=9) for i in range(4)]
FLAGS = [Fact(f"b.{i}", bool, words("a flag")) for i in range(3)]
KINDS = [Fact(f"k.{i}", str, words("a kind"), choices=("x", "y", "z")) for i in range(2)]
BAGS = [Fact("t.0", tuple, words("a bag"), choices=("x", "y"))]
ALL = [*NUMBERS, *FLAGS, *KINDS, *BAGS]
VOCABULARY = Vocabulary(ALL)
LAWS = settings(max_examples=40, deadline=None)

values = {
    int: st.integers(0, 9),
    bool: st.booleans(),
    str: st.sampled_from(["x", "y", "z"]),
    tuple: st.lists(st.sampled_from(["x", "y"]), unique=True).map(tuple),
}
open_whys = st.sampled_from(["not-asked", "not-run"])
closed_whys = st.sampled_from(["failed", "not-offered"])


def leaf(facts):
    fact = st.sampled_from(facts)

    def make(f):
        if f.kind is int:
            number = st.integers(0, 9)
            return st.one_of(
                number.map(lambda n: f > n),
                number.map(lambda n: f < n),
                number.map(lambda n: f >= n),
                number.map(lambda n: f <= n),
                st.sampled_from(NUMBERS).map(lambda g: f > g * 0.5),
                st.just(f.known()),
            )
        if f.kind is bool:
            return st.one_of(st.booleans().map(f.is_), st.just(f.known()))
        if f.kind is tuple:
            return st.sampled_from(["x", "y"]).map(f.has)
        return st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True).map(lambda v: f.one_of(*v))

    return fact.flatmap(make)


def conditions(facts=ALL):
    return st.recursive(
        leaf(facts),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(lambda p: all_of(*p)),
            st.lists(inner, min_size=1, max_size=3).map(lambda p: any_of(*p)),
            inner.map(not_),
        ),
        max_leaves=6,
    )


@st.composite
def knowledge(draw, closed=True):
    """Facts of which some are known, some open, some closed for good."""
    known = {}
    for fact in ALL:
        kind = draw(st.sampled_from(["known", "open", "closed"] if closed else ["known", "open"]))
        if kind == "known":
            known[fact] = Known(draw(values[fact.kind]))
        else:
            known[fact] = Unknown(draw(open_whys if kind == "open" else closed_whys))
    return Facts(known)


@st.composite
def learned(draw, facts):
    """A step from unknown to known: some of what is open becomes known."""
    news = {}
    for fact, found in facts.values.items():
        if isinstance(found, Unknown) and found.is_open() and draw(st.booleans()):
            news[fact] = Known(draw(values[fact.kind]))
    return facts.learn(news)


@given(st.data())
@LAWS
def test_more_knowledge_never_overturns_a_settled_condition(data):
    """What is true or false stays so, whatever is learned."""
    facts, condition = data.draw(knowledge()), data.draw(conditions())
    truth = condition.evaluate(facts).truth
    later = condition.evaluate(data.draw(learned(facts))).truth
    if truth.settled:
        assert later is truth


@given(st.data())
@LAWS
def test_a_condition_has_open_facts_exactly_when_it_is_unsettled(data):
    """Where everything unknown can be closed: unsettled means that some fact is open, and settled that none is."""
    facts, condition = data.draw(knowledge(closed=False)), data.draw(conditions())
    truth = condition.evaluate(facts).truth
    assert bool(condition.open_facts(facts)) == (not truth.settled)
    assert condition.open_facts(facts) <= condition.facts()


@given(st.data())
@LAWS
def test_the_leaves_of_a_trace_are_exactly_the_facts_of_the_condition(data):
    """No part is skipped, whatever decides, and each leaf shows what was found."""
    facts, condition = data.draw(knowledge()), data.draw(conditions())
    leaves = list(condition.evaluate(facts).leaves())
    assert {one.fact for one in leaves} == condition.facts()
    assert len(leaves) == len(condition.facts())
    assert all(one.found == facts.get(one.fact) for one in leaves)


@given(st.data())
@LAWS
def test_what_a_condition_comes_to_was_within_its_reach(data):
    """Reach holds the truth now and every truth that closing what is open can bring, and only narrows."""
    facts, condition = data.draw(knowledge()), data.draw(conditions())
    later = data.draw(learned(facts))
    reach = condition.reach(facts)
    assert condition.evaluate(facts).truth in reach
    assert condition.evaluate(later).truth in reach
    assert condition.reach(later) <= reach


@given(st.data())
@LAWS
def test_a_condition_is_read_back_as_it_was(data):
    """Stored and read, a condition comes to the same on any facts."""
    facts, condition = data.draw(knowledge()), data.draw(conditions())
    again = from_json(condition.to_json(), VOCABULARY)
    assert again.evaluate(facts).truth is condition.evaluate(facts).truth
    assert again.facts() == condition.facts()


sizes = st.sampled_from([SLIGHT, FAIR, STRONG, DECISIVE])


@st.composite
def rules(draw, cause="a-cause"):
    """A rule whose clues rest on different facts."""
    groups = draw(
        st.permutations(
            [[NUMBERS[0], NUMBERS[1]], [NUMBERS[2]], [NUMBERS[3], FLAGS[0]], [FLAGS[1], KINDS[0]], [BAGS[0], KINDS[1]]]
        )
    )
    clues = []
    for group in groups[: draw(st.integers(1, 4))]:
        parts = draw(st.lists(leaf_of(group), min_size=1, max_size=2))
        when = draw(st.sampled_from([all_of, any_of]))(*parts)
        sign = draw(st.sampled_from([1, -1]))
        true, false = draw(st.sampled_from([(True, True), (True, False), (False, True)]))
        clues.append(
            Clue(words("a clue"), when, sign * draw(sizes) if true else 0, -sign * draw(sizes) if false else 0)
        )
    return Rule(cause, tuple(clues), ())


def leaf_of(group):
    def single(f):
        if f.kind is int:
            return st.integers(0, 9).flatmap(lambda n: st.sampled_from([f > n, f <= n]))
        if f.kind is bool:
            return st.booleans().map(f.is_)
        if f.kind is tuple:
            return st.sampled_from(["x", "y"]).map(f.has)
        return st.sampled_from(["x", "y", "z"]).map(f.is_)

    return st.sampled_from(group).flatmap(single)


@given(st.data())
@LAWS
def test_an_interval_only_narrows(data):
    """Low never falls, high never rises, and now stays between them."""
    facts, rule = data.draw(knowledge()), data.draw(rules())
    one = find(rule, facts)
    two = find(rule, data.draw(learned(facts)))
    assert one.low <= two.low <= two.now <= two.high <= one.high
    assert one.low <= one.now <= one.high


@given(st.data())
@LAWS
def test_the_order_of_clues_and_rules_does_not_matter(data):
    """The same judgement comes from any order."""
    facts = data.draw(knowledge())
    some = [data.draw(rules(cause=f"cause-{i}")) for i in range(3)]
    shuffled = [Rule(r.cause, tuple(data.draw(st.permutations(r.clues))), ()) for r in data.draw(st.permutations(some))]
    one, two = judge(some, facts), judge(shuffled, facts)
    assert [(f.cause, f.band, f.low, f.now, f.high) for f in one.findings] == [
        (f.cause, f.band, f.low, f.now, f.high) for f in two.findings
    ]
    assert one.named == two.named


@given(st.data())
@LAWS
def test_what_cannot_be_closed_counts_nothing_either_way(data):
    """A clue that rests on closed unknowns alone has no width."""
    rule = data.draw(rules())
    facts = Facts({fact: Unknown("not-offered") for fact in ALL})
    finding = find(rule, facts)
    assert (finding.low, finding.now, finding.high) == (0, 0, 0)


@given(st.data())
@LAWS
def test_ways_that_are_not_there_close_nothing(data):
    """With no way to close anything, the interval is a point; with fewer ways it lies within the wider one."""
    facts, rule = data.draw(knowledge()), data.draw(rules())
    point, wide = find(rule, facts, ways=frozenset()), find(rule, facts, ways=ALL_WAYS)
    assert point.low == point.now == point.high == wide.now
    assert wide.low <= point.low


@pytest.mark.parametrize(
    "thing",
    [Truth.TRUE, Truth.FALSE, Truth.UNKNOWN, NUMBERS[0] > 3, all_of(FLAGS[0].is_(True)), not_(FLAGS[0].is_(True))],
)
def test_python_does_not_decide(thing):
    """`and`, `or`, `not`, `if` on a truth or a condition raise: an unknown would count as false."""
    with pytest.raises(TypeError):
        bool(thing)


def test_a_chained_comparison_raises():
    """`1 < fact < 5` would keep its second half only."""
    with pytest.raises(TypeError):
        1 < NUMBERS[0] < 5  # noqa: B015


def test_before_is_frozen_to_a_number_and_kept():
    """A prediction about the run before becomes data that needs that run no longer."""
    condition = all_of(before(NUMBERS[0]).fact > before(NUMBERS[0]) * 1.5)
    was = Facts({NUMBERS[0]: Known(4)})
    frozen = from_json(condition.frozen(was).to_json(), VOCABULARY)
    assert frozen.evaluate(Facts({NUMBERS[0]: Known(7)})).truth is Truth.TRUE
    assert frozen.evaluate(Facts({NUMBERS[0]: Known(6)})).truth is Truth.FALSE
    assert frozen.evaluate(Facts()).truth is Truth.UNKNOWN
    never = from_json(condition.frozen(Facts()).to_json(), VOCABULARY)
    assert never.evaluate(Facts({NUMBERS[0]: Known(9)})).truth is Truth.UNKNOWN


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"op": "?"},
        {"op": ">", "fact": "gone.fact", "value": 1},
        {"op": "all", "of": []},
        {"op": "one-of", "fact": "n.0"},
        {"op": ">", "fact": "b.0", "value": 1},
    ],
)
def test_what_is_no_condition_is_refused(data):
    """Data that cannot be read as a condition gives a ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"not a stored condition|says nothing"):
        from_json(data, VOCABULARY)


@pytest.mark.parametrize(
    ("fact", "value"),
    [
        (NUMBERS[0], 10),
        (NUMBERS[0], -1),
        (NUMBERS[0], True),
        (NUMBERS[0], 1.5),
        (NUMBERS[0], "3"),
        (FLAGS[0], 1),
        (KINDS[0], "w"),
        (BAGS[0], ("w",)),
        (NUMBERS[0], float("nan")),
    ],
)
def test_an_impossible_value_is_refused_at_the_door_with_its_source(fact, value):
    """Out of range or of another type: the message names the fact and who said it."""
    with pytest.raises(ImpossibleValueError) as refused:
        fact.admit(value, source="user", origin="question x")
    assert fact.id in str(refused.value)
    assert "user" in str(refused.value)
    assert "question x" in str(refused.value)


def test_bounds_are_allowed_and_whole_numbers_fit_both_number_types():
    """Both ends of a range are plausible; 3.0 is a whole number."""
    assert NUMBERS[0].admit(9, source="log").value == 9
    assert NUMBERS[0].admit(3.0, source="log").value == 3
    share = Fact("s.0", float, words("a share"), low=0, high=1)
    assert share.admit(1, source="log").value == 1.0


def test_a_condition_that_can_never_be_true_is_refused_when_it_is_written():
    """A misspelt choice is a mistake of the rule, found at import."""
    with pytest.raises(ImpossibleValueError):
        KINDS[0].is_("w")
    with pytest.raises(TypeError):
        _ = FLAGS[0] > 1
