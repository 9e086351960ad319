"""Apple's unified memory over recorded output of the system's programs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import NotOfferedError
from probes.gpu import apple
from probes.gpu.apple import (
    Apple,
    parse_footprint,
    parse_ioreg,
    parse_memory_pressure,
    parse_swapusage,
    parse_sysctl,
    parse_vm_stat,
    read_memory,
    run_tool,
)  # fmt: skip
from probes.gpu.processes import Holders
from probes.gpu.sampler import Sampler

GIB, MIB = 1 << 30, 1 << 20


@pytest.fixture
def machine(recorded):
    """Programs that print what was recorded; ``change`` replaces one program's output (None: it fails)."""

    def make(**change):
        texts = {
            name: recorded(f"{name}.txt") for name in ("vm_stat", "sysctl", "memory_pressure", "ioreg", "footprint")
        } | change
        return lambda command: texts.get(command[0])

    return make


def test_the_limit_is_not_the_memory(machine):
    """Total is what one process may use for the GPU, as Metal says; in use is the GPU's; the rest is free."""
    (gpu,) = Apple.open(machine(), lambda: 51 * GIB).devices()
    assert (gpu.id, gpu.name, gpu.vendor, gpu.memory) == ("apple:0", "Apple M2 Max", "apple", "unified")
    assert (gpu.total_bytes, gpu.working_set_limit_bytes, gpu.used_bytes, gpu.free_bytes) == (
        51 * GIB,
        51 * GIB,
        42 * GIB,
        9 * GIB,
    )
    assert gpu.utilization_percent == 94.0
    assert any("unified memory" in note for note in gpu.notes)


def test_a_limit_set_by_hand_is_the_limit(machine, recorded):
    """iogpu.wired_limit_mb beats the system's own, and the reading says so."""
    text = recorded("sysctl.txt").replace("iogpu.wired_limit_mb: 0", "iogpu.wired_limit_mb: 60000")
    (gpu,) = Apple.open(machine(sysctl=text), lambda: 51 * GIB).devices()
    assert gpu.working_set_limit_bytes == 60000 * MIB
    assert any("set by hand" in note for note in gpu.notes)


def test_a_limit_that_nobody_tells_is_unknown(machine):
    """Two thirds of the RAM would be a guess."""
    (gpu,) = Apple.open(machine(), lambda: None).devices()
    assert (gpu.total_bytes, gpu.free_bytes, gpu.used_bytes) == (None, None, 42 * GIB)
    assert any("is not known" in note for note in gpu.notes)


def test_the_servers_own_graphics_memory(machine):
    """What of the server's footprint is the GPU's."""
    (gpu,) = Apple.open(machine(), lambda: 51 * GIB).devices(Holders(None, frozenset({3999999})))
    assert [(one.pid, one.used_bytes, one.rss_bytes, one.is_server) for one in gpu.processes] == [
        (3999999, 41 * GIB, 43 * GIB, True)
    ]


def test_an_older_machine_with_a_card_has_both_kinds(machine, recorded):
    """A card with memory of its own is dedicated; the processor's graphics beside it are unified."""
    card, chip = Apple.open(machine(ioreg=recorded("ioreg_two_cards.txt")), lambda: None).devices()
    assert (card.name, card.memory, card.total_bytes, card.used_bytes, card.shared_used_bytes) == (
        "AMD Radeon Pro W6800X",
        "dedicated",
        32752 * MIB,
        8 * GIB,
        100 * MIB,
    )
    assert (chip.memory, chip.used_bytes) == ("unified", 50 * MIB)


def test_pressure_compressor_and_swap(machine):
    """The machine's own words and sizes."""
    memory = read_memory(machine())
    assert (memory.level, memory.free_percent, memory.swap_used) == ("warning", 23.0, int(1843.75 * MIB))
    assert (memory.wired, memory.compressed, memory.swapped_out_pages) == (2310144 * 16384, 402111 * 16384, 765432)
    assert memory.notes == ()


def test_programs_that_fail_leave_it_unknown(machine):
    """Nothing is guessed where a program fails, and a note says which."""
    memory = read_memory(lambda _command: None)
    assert (memory.level, memory.free_percent, memory.wired, memory.swap_used) == (None, None, None, None)
    assert len(memory.notes) == 2
    with pytest.raises(NotOfferedError):
        Apple.open(machine(ioreg=None), lambda: None)


def test_swap_with_a_decimal_comma():
    """Some languages write a comma."""
    assert parse_swapusage("total = 2048,00M  used = 1,50G  free = 0,00M") == {
        "total": 2048 * MIB,
        "used": 3 * GIB // 2,
        "free": 0,
    }


def test_sampled_beside_the_ticks_with_the_worst_pressure(machine):
    """Its counters are dear: they come through all the same, with the worst level of the phase."""
    with Sampler(None, hz=50, sources=[Apple.open(machine(), lambda: 51 * GIB)]) as sampler:
        phase = sampler.phase("prefill")
        for _ in range(200):
            if phase.peaks.devices_peak_bytes:
                break
            sampler.phase("edge").end()
        phase.end()
    assert phase.peaks.devices_peak_bytes == {"apple:0": 42 * GIB}
    assert phase.peaks.devices_min_free_bytes == {"apple:0": 9 * GIB}
    assert phase.peaks.pressure_level == "warning"


def test_a_program_that_does_not_end_is_given_up():
    """Every wait has an end; an absent program is none."""
    assert run_tool(("sleep", "5"), timeout_s=0.1) is None
    assert run_tool(("no-such-program-here",)) is None
    assert run_tool(("echo", "x")) == "x\n"


@given(
    st.text(max_size=300),
    st.sampled_from(["vm_stat", "sysctl", "memory_pressure", "ioreg", "footprint"]),
    st.integers(0, 400),
)
@settings(max_examples=100, deadline=None)
def test_cut_and_odd_output_is_understood_or_skipped(recorded, odd, name, at):
    """Any output gives plausible numbers or none."""
    text = recorded(f"{name}.txt")
    text = text[:at] + odd + text[at:]
    assert all(value >= 0 for value in parse_vm_stat(text).values())
    assert all(isinstance(value, str) for value in parse_sysctl(text).values())
    assert all(0 <= value <= 1 << 50 for value in parse_swapusage(text).values())
    percent = parse_memory_pressure(text)
    assert percent is None or 0 <= percent <= 100
    for one in parse_ioreg(text):
        assert one.in_use is None or 0 <= one.in_use <= 1 << 50
    parse_footprint(text)


def test_metal_is_asked_only_on_that_system():
    """Elsewhere there is no Metal."""
    assert apple.metal_working_set() is None
