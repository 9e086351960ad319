"""Laws of a load that fails for memory: what could not be had is a part of the need, and the log's own sizes settle where room was."""

from __future__ import annotations

import io

import pytest

from diagnose.triage import of_command
from probes.evidence.records import EvidenceSet, found
from probes.logs.reader import collect_log
from rules.catalogue import judge_evidence
from rules.engine import Known
from rules.facts import VOCABULARY
from tests.logs.oom_logs import OnCard, oom_log

BIG, SMALL = OnCard("NVIDIA GeForce RTX 3090", 23900, 9000, 13000), OnCard("NVIDIA GeForce RTX 3060", 11800, 4500, 7200)
MIB = 2**20


def judged(text, command=None):
    events, summary = collect_log(io.BytesIO(text.encode()), "server.log")
    evidence = [found(event, source="log", run=1, origin=f"server.log, line {event.line}") for event in events]
    evidence += [found(summary, source="log", run=1, origin="server.log"), *(of_command(command) if command else ())]
    judgement, facts = judge_evidence(EvidenceSet(evidence), "triage")

    def value(name):
        known = facts.get(VOCABULARY[name])
        return known.value if isinstance(known, Known) else None

    return judgement, value


@pytest.mark.parametrize("api", ["CUDA", "ROCm", "Vulkan"])
def test_the_need_holds_what_was_placed_and_what_was_refused(api):
    _judgement, value = judged(oom_log([BIG, SMALL], api=api))
    assert value("memory.kv_bytes") == (13000 + 7200) * MIB
    assert value("memory.kv_share") == pytest.approx((13000 + 7200) / (23900 + 11800))
    assert value("memory.need_of_devices") == pytest.approx((9000 + 4500 + 13000 + 7200) / (23900 + 11800))
    assert value("device.count") == 2
    assert value("device.unequal") is True
    assert (
        value("alloc.room_was_there") is False
    )  # 11800 - 4500 = 7300: the driver's own part is more than the 100 left


@pytest.mark.parametrize("api", ["CUDA", "ROCm", "Vulkan"])
def test_a_cache_that_fills_all_cards_is_named_with_a_shorter_window(api):
    judgement, _value = judged(oom_log([BIG, SMALL], api=api))
    assert judgement.named == ("kv-cache-size",)


def test_one_card_has_no_other_and_its_cache_leads():
    judgement, value = judged(oom_log([OnCard("NVIDIA GeForce RTX 3090", 23900, 13500, 16000)]))
    assert value("device.several") is not True
    assert value("memory.need_of_devices") == pytest.approx(29500 / 23900)
    assert value("alloc.room_was_there") is False
    assert judgement.findings[0].cause == "kv-cache-size"
    assert judgement.findings[0].band == "likely"


def test_a_card_that_refuses_while_the_other_has_room_is_a_matter_of_the_split():
    roomy = BIG._replace(kv=5500)
    judgement, value = judged(oom_log([roomy, SMALL._replace(free=7200, kv=2700)]))
    assert value("device.one_full_other_free") is True
    assert judgement.findings[0].cause == "uneven-gpu-split"
    assert judgement.findings[0].band == "likely"
    _judgement, value = judged(oom_log([BIG, SMALL]))
    assert value("device.one_full_other_free") is False


def test_cards_of_one_kind_are_equal_and_of_two_kinds_with_like_room_too():
    same = OnCard("NVIDIA GeForce RTX 3090", 23800, 8000, 16000)
    assert judged(oom_log([same, same._replace(free=23900)]))[1]("device.unequal") is False
    # another program may have a part of one of two equal cards
    assert judged(oom_log([same, same._replace(free=15000)]))[1]("device.unequal") is None


def test_much_room_is_seen_and_a_little_is_left_open():
    lone = OnCard("NVIDIA GeForce RTX 3090", 23900, 9000, 8000)
    assert judged(oom_log([lone]))[1]("alloc.room_was_there") is True
    assert judged(oom_log([lone._replace(kv=14400)]))[1]("alloc.room_was_there") is None


def test_a_compute_buffer_that_fails_is_no_part_of_the_cache():
    judgement, value = judged(oom_log([BIG._replace(kv=9000), SMALL._replace(kv=4000)], compute=6500))
    assert value("memory.kv_bytes") == 13000 * MIB
    assert value("memory.need_of_devices") == pytest.approx((13500 + 13000 + 6500) / (23900 + 11800))
    assert value("alloc.component") == "compute"
    assert judgement.findings[0].cause == "compute-buffer-too-big"


def test_a_second_attempt_begins_anew():
    twice = oom_log([BIG, SMALL]) + oom_log([BIG._replace(kv=6500), SMALL._replace(kv=7250)], window=24576)
    assert judged(twice)[1]("memory.kv_bytes") == 13750 * MIB


def test_a_load_that_failed_had_a_window_asked_for_and_none_in_force():
    _judgement, value = judged(oom_log([BIG, SMALL]))
    assert value("window.asked") == 49152
    assert value("window.in_force") is None
    # the trained window may be a default: nobody need have set it
    assert judged(oom_log([BIG, SMALL], window=32768))[1]("window.set") is None
    assert judged(oom_log([BIG, SMALL], window=32768), "llama-server -m a.gguf -c 32768")[1]("window.set") is True


def test_no_wrong_positions_without_a_server_that_answers():
    judgement, _value = judged(oom_log([BIG, SMALL]), "llama-server -m a.gguf -c 49152 -ngl 99")
    assert judgement.named == ("kv-cache-size",)
    assert judgement.of("rope-scaling-misuse").band not in {"disputed", "likely", "possible"}


def test_a_cache_of_sixteen_bits_is_known_by_its_size_and_no_other():
    # 40 layers, 8 heads of 128, keys and values of 2 bytes: 160 KiB a token
    held = [BIG._replace(kv=5000), SMALL._replace(kv=2680)]
    assert judged(oom_log(held))[1]("kv.bits") == 16
    assert judged(oom_log(held))[1]("kv.quantised") is False
    assert judged(oom_log([BIG, SMALL]))[1]("kv.bits") is None
