"""Evidence becomes facts: declared, ordered, with sources weighed against each other."""

from __future__ import annotations

import pytest

from probes.evidence.answers import Answer
from probes.evidence.events import LogEvent
from probes.evidence.machine import Device, DeviceReadings, SampledPeaks
from probes.evidence.records import EvidenceSet, found, not_found
from probes.evidence.subject import ModelFile, WindowReading
from probes.evidence.words import words
from rules.catalogue import facts_of
from rules.derive import all_derivations
from rules.engine import Derivations, Fact, Known, Unknown, derivation, mirror, reading
from rules.facts import (
    CONFLICTS,
    DEVICE_FILL,
    DEVICE_USE,
    LINK_REPLAYS,
    LINK_SLOW,
    LINK_USE,
    POWER_RATIO,
    READ_OF_WEIGHTS,
    SYMPTOM,
    TOLD_SLOTS,
    VOCABULARY,
    WINDOW_IN_FORCE,
    WINDOW_SLOTS,
    WINDOW_TRAINED,
)

ONE = Fact("one.f", int, words("one"), low=0, high=100)
TWO = Fact("two.f", int, words("two"), low=0, high=100)
THREE = Fact("three.f", int, words("three"), low=0, high=100)


@derivation(needs=(TWO,), gives=(ONE,))
def one_from_two(sight):
    known = sight.known(TWO)
    if known is not None:
        yield reading(ONE, known.value, source=known.source)


@derivation(needs=(ONE,), gives=(TWO,))
def two_from_one(sight):
    yield from ()


@derivation(reads=(WindowReading,), gives=(TWO,))
def two_from_window(sight):
    for evidence, window in sight.of(WindowReading):
        yield reading(TWO, window.slots, evidence)


@derivation(reads=(WindowReading,), gives=(ONE,))
def sneaky_reader(sight):
    yield from (reading(ONE, 1) for _ in sight.of(LogEvent))


@derivation(reads=(WindowReading,), gives=(ONE,))
def sneaky_giver(sight):
    yield reading(THREE, 1)


def test_a_circle_is_refused_when_derivations_are_joined():
    """The graph is acyclic, or it does not load."""
    with pytest.raises(ValueError, match="circle"):
        Derivations([one_from_two, two_from_one])


def test_a_need_that_nothing_gives_is_refused():
    """A fact that can never be derived is a mistake of the graph."""
    with pytest.raises(ValueError, match=r"two\.f"):
        Derivations([one_from_two])


@pytest.mark.parametrize("cheat", [sneaky_reader, sneaky_giver])
def test_a_derivation_sees_and_gives_only_what_it_declares(cheat):
    """Reading or giving more raises: the declaration is what catalogue and plan rely on."""
    with pytest.raises(LookupError):
        Derivations([cheat]).derive(EvidenceSet([]))


def test_needs_are_derived_before_what_needs_them():
    """The order comes from the graph, not from the names."""
    facts = Derivations([one_from_two, two_from_window]).derive(
        EvidenceSet([found(WindowReading(slots=4), source="server")])
    )
    assert facts.value(ONE) == 4
    assert facts.get(ONE).source == "server"


@pytest.mark.parametrize(
    ("readings", "taken"),
    [
        ([("user", 9), ("server", 4)], 4),
        ([("measured", 7), ("server", 4), ("user", 9)], 7),
        ([("report", 9), ("user", 5)], 5),
        ([("server", 4), ("log", 8)], 8),
    ],
)
def test_measured_beats_read_beats_answered_and_the_contradiction_is_kept(readings, taken):
    """The best source stands, the latest of equals; what the others said is a conflict."""
    evidence = [found(WindowReading(slots=value), source=source) for source, value in readings]
    facts = Derivations([two_from_window]).derive(EvidenceSet(evidence))
    assert facts.value(TWO) == taken
    assert len(facts.conflicts) == 1
    assert {k.value for k in facts.conflicts[0].others} == {v for _, v in readings} - {taken}


def test_rounding_is_no_contradiction():
    """Two percent apart is the same number, said by two."""
    evidence = [found(WindowReading(slots=99), source="server"), found(WindowReading(slots=100), source="user")]
    assert Derivations([two_from_window]).derive(EvidenceSet(evidence)).conflicts == ()


def test_a_contradiction_is_a_fact():
    """The names of facts in conflict are themselves a fact, for rules and reports."""
    evidence = [
        found(Answer(question="slots", value=1), source="user"),
        found(WindowReading(slots=4, per_slot=1024), source="server"),
    ]
    facts = facts_of(EvidenceSet(evidence))
    assert facts.value(WINDOW_SLOTS) == 4
    assert "window.slots" in facts.value(CONFLICTS)


def test_an_impossible_value_is_refused_and_named_and_nothing_falls():
    """A log that claims a window of minus one: the fact stays unknown, and the refusal names source and value."""
    evidence = [
        found(Answer(question="slots", value=-3), source="user", origin="slots"),
        found(Answer(question="symptom", value="dizzy"), source="user"),
    ]
    facts = facts_of(EvidenceSet(evidence))
    assert isinstance(facts.get(SYMPTOM), Unknown)
    messages = " ".join(r.message for r in facts.refused)
    assert "-3" in messages
    assert "dizzy" in messages
    assert "user" in messages


def test_unknown_says_why_and_how_it_could_be_closed():
    """Not asked, not run, failed, not offered; and asking, probing or giving."""
    facts = facts_of(EvidenceSet([]))
    assert facts.get(SYMPTOM).why == "not-asked"
    assert facts.get(SYMPTOM).ways == {"ask"}
    assert facts.get(WINDOW_TRAINED).is_open()
    dont_know = facts_of(EvidenceSet([found(Answer(question="slots", value=None), source="user")]))
    assert dont_know.get(TOLD_SLOTS).why == "failed"
    senseless = facts_of(
        EvidenceSet([not_found(Answer, "not-offered", "one slot only", source="user", origin="slots")])
    )
    assert not senseless.get(TOLD_SLOTS).is_open()
    blind = facts_of(EvidenceSet([not_found(WindowReading, "not-offered", "this server does not tell")]))
    assert not blind.get(WINDOW_IN_FORCE).is_open(frozenset({"probe"}))


def test_a_mirror_is_open_exactly_while_its_answer_is():
    """What one answer stands for does not wait for others."""
    two = mirror(ONE, TWO, lambda value: value * 2)
    joined = Derivations(
        [
            two,
            derivation(reads=(WindowReading,), gives=(ONE,))(
                lambda s: (reading(ONE, w.slots, e) for e, w in s.of(WindowReading))
            ),
        ]
    )
    assert joined.derive(EvidenceSet([found(WindowReading(slots=4), source="user")])).get(TWO) == Known(8, "user", "")
    assert joined.derive(EvidenceSet([])).get(TWO).is_open()


def test_every_fact_can_be_derived_and_every_derivation_gives_facts_of_the_vocabulary():
    """No word without a source, no source without a word."""
    givers = all_derivations().givers
    assert {f for f in VOCABULARY if f not in givers} == {CONFLICTS}
    assert all(fact.id in VOCABULARY and VOCABULARY[fact.id] is fact for fact in givers)


def test_evidence_without_anything_is_judged_too():
    """A case with no evidence gives facts that are all open or explained, and raises nothing."""
    facts = facts_of(EvidenceSet([]))
    assert [f.id for f, _ in facts.known()] == ["evidence.conflicts"]


def _card(at, generation=4, lanes=16, now=1):
    return Device(
        id=f"nvidia:{at}", name="card", vendor="nvidia", link_generation=now, link_width=lanes, link_generation_max=generation, link_width_max=16
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lanes", "generation", "woken", "busy", "slow"),
    [
        (16, 4, 4, 90.0, False),  # as it should be
        (16, 4, 1, 3.0, False),  # at rest: the generation says nothing
        (16, 4, 1, 90.0, True),  # stays at the lowest generation under load
        (1, 4, 4, 90.0, True),  # a riser with a single lane
        (4, 3, 3, 90.0, True),
        (8, 3, 3, 90.0, False),
    ],
)
def test_a_link_is_slow_by_what_it_carries_under_load(lanes, generation, woken, busy, slow):
    """Law: lanes in use and the generation that both ends can do make it slow or not; only under load does the generation in force count."""
    peaks = SampledPeaks(
        phase="rung 8192", samples=9, seconds=9.0, hz=1.0, link_generation_best={"nvidia:0": woken}, utilization_max={"nvidia:0": busy},
        link_width_best={"nvidia:0": lanes},
    )  # fmt: skip
    readings = DeviceReadings(devices=(_card(0, generation, lanes),))
    facts = facts_of(EvidenceSet([found(readings, source="machine"), found(peaks, source="measured")]))
    assert facts.value(LINK_SLOW) is slow


def test_how_much_of_a_link_was_used_is_of_the_busiest_device_and_way():
    """Law: the larger of the two ways counts, as a share of that device's own link; replays add up; without a link nothing is known."""
    peaks = [
        SampledPeaks(
            phase=f"rung {at}", samples=9, seconds=9.0, hz=1.0, link_sent_max_bps={"nvidia:0": 100_000_000 * at, "nvidia:1": 500_000_000},
            link_received_max_bps={"nvidia:0": 3_000_000_000, "nvidia:1": 788_000_000 * at}, link_replays={"nvidia:1": 3}, link_width_best={"nvidia:1": 1},
        )
        for at in (1, 2)
    ]  # fmt: skip
    readings = DeviceReadings(devices=(_card(0), _card(1, generation=4, lanes=1)))
    pieces = [found(readings, source="machine"), *(found(one, source="measured") for one in peaks)]
    facts = facts_of(EvidenceSet(pieces))
    assert facts.value(LINK_USE) == pytest.approx(2 * 788 / 1969, abs=0.001)
    assert facts.value(LINK_REPLAYS) == 6
    assert facts.value(LINK_SLOW) is True
    assert facts_of(EvidenceSet(pieces[1:])).value(LINK_USE) is None
    told = facts_of(EvidenceSet([found(Answer(question="link", value="slow"), source="user")]))
    assert told.value(LINK_SLOW) is True


def test_a_card_that_is_full_and_waits_at_length_is_told_by_what_it_draws():
    """Law: fill, use and power are those of the longest length, power against the shortest; unified memory has no fill, one length no ratio."""

    def peaks(rung, used, watts, busy):
        return found(
            SampledPeaks(
                phase=f"rung {rung}", rung=rung, samples=9, seconds=9.0, hz=1.0, devices_peak_bytes={"nvidia:0": used, "apple:0": used},
                power_mean_watts={"nvidia:0": watts}, utilization_mean={"nvidia:0": busy},
            ),
            source="measured",
        )  # fmt: skip

    cards = DeviceReadings(
        devices=(
            Device(id="nvidia:0", name="card", vendor="nvidia", total_bytes=1000),
            Device(id="apple:0", name="M", vendor="apple", memory="unified", total_bytes=500),
        )
    )
    pieces = [
        found(cards, source="machine"),
        peaks(2048, 600, 200.0, 97.0),
        peaks(32768, 950, 80.0, 99.0),
        peaks(32768, 940, 120.0, 98.0),
    ]
    facts = facts_of(EvidenceSet(pieces))
    assert (facts.value(DEVICE_FILL), facts.value(DEVICE_USE), facts.value(POWER_RATIO)) == (0.95, 99.0, 0.5)
    one = facts_of(EvidenceSet(pieces[:2]))
    assert (one.value(DEVICE_FILL), one.value(POWER_RATIO)) == (0.6, None)
    assert facts_of(EvidenceSet(pieces[:1])).value(DEVICE_FILL) is None


def test_how_often_the_weights_were_read_counts_rungs_alone():
    """Law: what is read while the model loads is no paging; without a size of the weights nothing is known."""

    def peaks(read, **more):
        return found(
            SampledPeaks(phase="x", samples=1, seconds=1.0, hz=1.0, server_read_bytes=read, **more), source="measured"
        )

    file = found(ModelFile(path="m.gguf", format="gguf", size_bytes=1000, header_hash="0"), source="file")
    pieces = [file, peaks(900), peaks(200, rung=2048), peaks(2300, rung=8192)]
    assert facts_of(EvidenceSet(pieces)).value(READ_OF_WEIGHTS) == 2.5
    assert facts_of(EvidenceSet(pieces[:2])).value(READ_OF_WEIGHTS) is None
    assert facts_of(EvidenceSet(pieces[1:])).value(READ_OF_WEIGHTS) is None


def test_sources_that_count_a_little_differently_do_not_contradict_each_other():
    """Tensors alone against the whole file, and copies of some tensors: near, where a fact says how near; a real difference stays one."""
    from probes.evidence.events import LogEvent
    from probes.evidence.subject import ModelFile
    from rules.catalogue import facts_of

    def conflicts(in_log):
        return [
            conflict.fact.id
            for conflict in facts_of(
                EvidenceSet(
                    [
                        found(
                            ModelFile(path="m.gguf", format="gguf", header_hash="0" * 64, size_bytes=253_000_000),
                            source="file",
                        ),
                        found(LogEvent(event="model-info", key="file_size", size_bytes=in_log, line=1), source="log"),
                        found(LogEvent(event="rope", key="rope_scaling", value="linear", line=2), source="log"),
                    ]
                )
            ).conflicts
        ]

    assert conflicts(246_600_000) == []
    assert conflicts(500_000_000) == ["model.bytes"]
