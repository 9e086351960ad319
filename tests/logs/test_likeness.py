"""What a report's words are like: every cause is told in many ways, thin reports are ordered by them, and nothing is named by them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.answers import Mechanisms
from probes.evidence.records import EvidenceSet, found
from probes.logs import read_pasted
from probes.logs.likeness import MOST, likeness
from probes.logs.ways import USUAL, WAYS
from rules.catalogue import judge_evidence
from rules.causes import CAUSES
from rules.engine.judge import IN_PLAY
from rules.facts import BACKEND

TOLD = [
    ("Phones home with 'window overflow' although my editor plugin says there are 90k tokens left", "client-ctx-mismatch"),
    ("Answer box is empty, the whole prompt plus max_tokens is over the limit", "output-budget-eats-window"),
    ("Desktop switches itself off when both 3090 start prefilling", "hardware-fault"),
    ("The laptop slept and now everything runs on the processor", "gpu-lost-at-runtime"),
    ("Every chat message takes the full minute again, it never remembers the prefix, only with the mamba model", "prompt-cache-miss-swa-hybrid"),
    ("Container gets exit code 137 after a night of requests, RAM kept climbing", "host-memory-growth"),
    ("the drafter eats the room: with speculative decoding it is out of memory, without it loads", "draft-mtp-vram"),
    ("screenshots kill it: CUDA OOM inside the vision encoder", "mmproj-vram"),
    ("ring timeout and GPU reset whenever I paste a long file", "gpu-watchdog-timeout"),
    ("second card sits idle while the first one overflows", "uneven-gpu-split"),
    ("the middle of my long documents is simply not recalled, in whatever engine", "effective-context-quality"),
    ("nginx gives me a 504 long before the first token comes", "client-proxy-timeout"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "cause"), TOLD)
def test_what_is_told_in_other_words_is_like_its_cause(said: str, cause: str) -> None:
    assert cause in likeness(said, [])


def test_every_cause_is_told_in_several_ways_and_each_way_is_like_it() -> None:
    assert set(WAYS) == set(CAUSES)
    lines = [(line, cause) for cause, told in WAYS.items() for line in told.strip().split("\n")]
    right = sum(cause in likeness(line, []) for line, cause in lines)
    assert right >= 0.95 * len(lines)
    assert min(len(told.strip().split("\n")) for told in WAYS.values()) >= 4


def test_a_servers_usual_troubles_are_causes_and_come_first_among_what_is_alike() -> None:
    assert set(USUAL) <= set(BACKEND.choices)
    assert {cause for causes in USUAL.values() for cause in causes} <= set(CAUSES)
    said = "The memory is wrong with a larger context"
    everywhere = {server: likeness(said, [], server, len(CAUSES)) for server in ("vllm", "ollama")}
    assert everywhere["vllm"].index("kv-cache-size") < everywhere["ollama"].index("kv-cache-size")


def test_words_that_all_people_use_are_like_nothing() -> None:
    assert likeness("", []) == ()
    assert likeness("Please help, this model does not work", ["It fails with an error."]) == ()


def test_a_title_weighs_more_than_a_sentence_beside_it() -> None:
    sleep, split = "The laptop slept and the GPU is no longer detected", "The split between the two cards is uneven."
    assert likeness(sleep, [split])[0] == "gpu-lost-at-runtime"
    assert likeness(split, [sleep])[0] == "uneven-gpu-split"


@pytest.mark.parametrize("cause", sorted(CAUSES))
def test_likeness_alone_orders_and_names_nothing(cause: str) -> None:
    payload = Mechanisms(named=(cause,), like=(cause,))
    judgement, _facts = judge_evidence(EvidenceSet([found(payload, source="report", origin="report")]), "triage")
    alone, _ = judge_evidence(
        EvidenceSet([found(Mechanisms(named=(cause,)), source="report", origin="report")]), "triage"
    )
    assert judgement.named == ()
    assert judgement.findings[0].cause == cause
    assert judgement.findings[0].band in IN_PLAY
    assert judgement.of(cause).low == alone.of(cause).low
    assert judgement.of(cause).now > alone.of(cause).now


def test_a_report_gives_its_likeness_as_the_reports_word() -> None:
    (told,) = [
        one
        for one in read_pasted("# Second card sits idle while the first one overflows\n")
        if one.kind == Mechanisms.kind
    ]
    assert told.source == "report"
    assert (told.data or {})["like"][0] == "uneven-gpu-split"


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300), st.lists(st.text(max_size=80), max_size=30))
def test_any_text_is_like_at_most_three_causes_and_always_the_same(title: str, parts: list[str]) -> None:
    like = likeness(title, parts)
    assert len(like) <= MOST
    assert set(like) <= set(CAUSES)
    assert likeness(title, parts) == like


def test_a_long_report_takes_no_longer_than_a_reader_waits() -> None:
    part = "prefill out of memory with a quantised cache and two cards " * 20
    likeness(part, [])
    started = time.process_time()
    likeness(part, [part] * 2000)
    likeness("a" * 100_000, ["-".join(["ab"] * 50_000)])
    assert time.process_time() - started < 1.0
