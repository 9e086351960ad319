"""Real logs of ik_llama.cpp's server: whose they are, what was allocated, what was cut, and what found no room."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.evidence.records import EvidenceSet, found
from probes.logs import collect_log, read_log, tail_events
from rules import facts as f
from rules.catalogue import facts_of

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"


def read(name: str):
    return collect_log(RECORDED / f"ik_llama.cpp-8337e4cd-{name}.log")[0]


def kinds(events) -> set[str]:
    return {event.event for event in events}


def test_whose_log_it_is():
    """Its own lines name it; a build is told where it has one, and older mainline tells its build in the same words."""
    for name in ("shift", "full", "oom"):
        facts = facts_of(EvidenceSet([found(one, source="log") for one in read(name)]))
        assert facts.value(f.BACKEND) == "ik_llama.cpp", name
    line = 'INFO [                    main] build info | tid="1" timestamp=1 build=4012 commit="8337e4cd"'
    [event] = [one for one in tail_events(line) if one.event == "program"]
    assert (event.name, event.version) == (None, "4012-8337e4cd")
    assert not [one for one in tail_events(line.replace("4012", "0")) if one.event == "program"]


def test_what_was_allocated_and_what_each_slot_has():
    """The whole window, a slot's part of it, the cache with its types, both clocks of each answer."""
    events = read("shift")
    assert {("in-force", 4096), ("per-slot", 2048), ("trained", 131_072)} <= {
        (one.which, one.tokens) for one in events if one.event == "window"
    }
    cache = next(one for one in events if one.event == "kv-cache" and one.size_bytes)
    assert (cache.type_k, cache.type_v, cache.size_bytes) == ("f16", "f16", 2 << 20)
    prefills = [one.tokens for one in events if one.event == "timing" and one.phase == "prefill"]
    assert 900 in prefills
    assert "alloc-failed" not in kinds(events)


def test_a_shift_while_an_answer_runs_over_its_window():
    """Half of what the slot holds is thrown away to go on."""
    shifts = [one for one in read("shift") if one.event == "context-shift" and one.key != "off"]
    assert shifts
    assert (shifts[0].count, shifts[0].kept) == (1023, 0)


def test_a_full_pool_is_not_a_long_prompt():
    """A prompt that is too long is refused; the next, which fits, finds no free cells, since the refused one was read all the same."""
    events = list(read_log(RECORDED / "ik_llama.cpp-8337e4cd-full.log"))
    refused = [one for one in events if one.event == "refused"]
    full = [one for one in events if one.event == "pool-full"]
    assert all("exceeds the available context size" in one.text for one in refused)
    assert any("too big compared to KV size" in one.text for one in full)
    assert any("KV cache is full" in one.text for one in full)


def test_a_cache_that_did_not_fit():
    """What failed is the cache, of so many bytes."""
    failed = next(one for one in read("oom") if one.event == "alloc-failed")
    assert (failed.component, failed.api) == ("kv", "cpu")
    assert failed.size_bytes == pytest.approx(512_098_336, rel=1e-4)
