"""NVIDIA devices, through the real binding and a driver library that answers as told."""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from probes.evidence.errors import NotOfferedError
from probes.gpu.base import DeviceSample
from probes.gpu.nvml import Nvml, memory_of, throttle_reasons
from probes.gpu.processes import Holders
from probes.gpu.readings import collect
from probes.gpu.sampler import Sampler
from probes.gpu.spans import DeviceSpan

GIB, MIB = 1 << 30, 1 << 20
ROOT = Path(__file__).parents[2]


@pytest.fixture
def both(nvml, two_uneven_cards):
    nvml(two_uneven_cards)
    source = Nvml.open()
    yield source
    source.close()


def test_each_of_two_uneven_cards_is_told_apart(both):
    """16 + 8 is not 24: every size, link and name belongs to one card, and what the driver keeps is not in use by programs."""
    first, second = both.devices()
    assert (first.id, first.name, first.total_bytes, first.free_bytes) == (
        "nvidia:0",
        "NVIDIA GeForce RTX 4060 Ti",
        16 * GIB,
        15 * GIB,
    )
    assert (second.total_bytes, second.free_bytes) == (8 * GIB, 2 * GIB)
    assert first.reserved_bytes == 300 * MIB
    assert first.used_bytes == GIB - 300 * MIB
    assert second.used_bytes == 6 * GIB - 200 * MIB
    assert (first.memory, first.driver, first.driver_model, first.pci) == (
        "dedicated",
        "580.95.05",
        None,
        "00000000:01:00.0",
    )
    assert first.link == "PCIe 1.0 x8 (of 4.0 x8)"
    assert second.link == "PCIe 3.0 x4 (of 3.0 x16)"
    assert (second.power_watts, second.power_limit_watts, second.temperature_c, second.utilization_percent) == (
        180.0,
        215.0,
        79.0,
        99.0,
    )
    assert first.throttle == ()
    assert second.throttle == ("power-cap", "thermal-software")


def test_links_tell_topology_and_why_there_is_no_peer_access(nvml, two_uneven_cards):
    """Peer access that is refused says why; unknown is unknown, not no."""
    nvml(two_uneven_cards + "peer 1\nlevel 30\n")
    (link,) = Nvml.open().links()
    assert (link.a, link.b, link.path, link.peer_access, link.nvlink) == (
        "nvidia:0",
        "nvidia:1",
        "host-bridge",
        False,
        False,
    )
    assert link.peer_why_not == "the chipset does not support it"
    nvml(two_uneven_cards + "peer 6\nlevel 77\n")
    (link,) = Nvml.open().links()
    assert (link.path, link.peer_access, link.peer_why_not) == (None, None, None)


def test_holders_have_names_and_the_server_is_known(nvml, two_uneven_cards):
    """A process that holds memory is named; the server under test is marked; the greatest comes first; one unseen has no name and a note."""
    me, parent = os.getpid(), os.getppid()
    nvml(two_uneven_cards + f"1 process {parent} {GIB}\n1 process {me} {4 * GIB}\n1 process 4000000 {MIB}\n")
    held = Nvml.open().devices(Holders(me))[1]
    assert [(one.pid, one.used_bytes) for one in held.processes] == [(me, 4 * GIB), (parent, GIB), (4000000, MIB)]
    assert [one.is_server for one in held.processes] == [True, False, False]
    assert held.processes[0].name
    assert held.processes[2].name is None
    assert any("have no name here" in note for note in held.notes)


def test_wddm_tells_no_sizes_by_process_and_says_so(nvml, two_uneven_cards):
    """On Windows (WDDM) a process's size is not told: None, never 0, with why."""
    nvml(two_uneven_cards + f"0 model 0\n0 process {os.getpid()} none\n")
    device = Nvml.open().devices(Holders(os.getpid()))[0]
    assert device.driver_model == "WDDM"
    assert [one.used_bytes for one in device.processes] == [None]
    assert any("WDDM" in note for note in device.notes)
    (sample, _) = Nvml.open().sample(frozenset({os.getpid()}), full=True)
    assert sample.server_bytes is None


def test_no_process_list_is_not_an_empty_list(nvml, two_uneven_cards):
    """No permission for the list: None and a note. An empty list beside much memory in use: a note too."""
    nvml(two_uneven_cards + "0 process_error 4\n")
    first, second = Nvml.open().devices()
    assert first.processes is None
    assert any("does not list processes" in note for note in first.notes)
    assert second.processes == ()
    assert any("no process is listed" in note for note in second.notes)


def test_an_old_driver_without_version_2_still_tells_memory(nvml, two_uneven_cards):
    """Without the newer call, used is total - free and the reserved part is unknown, not zero."""
    nvml(two_uneven_cards + "0 memory_v2_error 13\n1 power_error 3\n")
    first, second = Nvml.open().devices()
    assert (first.used_bytes, first.reserved_bytes) == (GIB, None)
    assert second.reserved_bytes == 200 * MIB
    assert second.power_watts is None
    assert second.temperature_c == 79.0


def test_a_board_with_unified_memory_is_no_card(nvml):
    """Where the driver refuses the memory question on a board known to share the RAM, the RAM is what there is; elsewhere it is unknown."""
    nvml("0 name NVIDIA GB10\n0 memory_error 3\n1 name NVIDIA Something\n1 memory_error 3\n")
    board, other = Nvml.open().devices()
    assert board.memory == "unified"
    assert board.total_bytes is not None
    assert any("machine's own memory" in note for note in board.notes)
    assert (other.memory, other.total_bytes, other.free_bytes) == ("unknown", None, None)
    assert any("does not tell" in note for note in other.notes)


@pytest.mark.parametrize(
    ("code", "says"),
    [(9, "kernel driver is not loaded"), (18, "restart the machine"), (4, "may not be used"), (999, "does not start")],
)
def test_a_driver_that_does_not_start_says_why(nvml, code, says):
    """No driver is a reason in one line, not an exception of the binding."""
    nvml(f"init_error {code}\n")
    with pytest.raises(NotOfferedError, match=says):
        Nvml.open()


def test_a_card_that_is_lost_does_not_take_the_other_along(nvml, two_uneven_cards):
    """One card falls off the bus in the middle: it is lost, the other goes on."""
    nvml(two_uneven_cards + "0 lost_after 3\n")
    source = Nvml.open()
    seen = [source.sample(full=True) for _ in range(6)]
    assert [samples[0].lost is None for samples in seen] == [True, True, True, False, False, False]
    assert all(samples[1].lost is None and samples[1].free_bytes == 2 * GIB for samples in seen)
    first, second = source.devices()
    assert (first.memory, first.free_bytes, second.free_bytes) == ("unknown", None, 2 * GIB)
    assert any("does not answer" in note for note in first.notes)


def test_a_driver_that_goes_away_and_comes_back(nvml, two_uneven_cards):
    """The driver as a whole goes away: a typed error; when it is back it is asked again."""
    scenario = nvml(two_uneven_cards + "gone_after 4\n")
    source = Nvml.open()
    source.sample()
    source.sample()
    with pytest.raises(NotOfferedError, match="went away"):
        source.sample()
    scenario.write_text("init_error 9\n")
    with pytest.raises(NotOfferedError, match="not loaded"):
        source.sample()
    scenario.write_text(two_uneven_cards)
    assert [one.free_bytes for one in source.sample()] == [15 * GIB, 2 * GIB]


def test_the_sampler_keeps_the_peaks_of_a_driver_that_goes_away(nvml, two_uneven_cards):
    """Memory that grows is seen at its peak, by card; when the driver goes away the peaks until then stay, and the phase says so."""
    nvml(two_uneven_cards + f"0 step {100 * MIB}\ngone_after 25\n")
    with Sampler(None, hz=50, sources=[Nvml.open()]) as sampler:
        with sampler.phase("rung 8192 attempt 1", rung=8192, attempt=1) as phase:
            time.sleep(0.6)
        peaks = phase.peaks
    assert peaks.devices_peak_bytes["nvidia:0"] > peaks.devices_before_bytes["nvidia:0"] >= GIB - 300 * MIB
    assert peaks.devices_min_free_bytes["nvidia:0"] < 15 * GIB
    assert peaks.devices_peak_bytes["nvidia:1"] == 6 * GIB - 200 * MIB
    assert peaks.devices_lost.keys() == {"nvidia:0", "nvidia:1"}
    assert any("went away" in note for note in peaks.notes)
    assert peaks.utilization_mean["nvidia:1"] == 99.0
    assert peaks.throttle == {"nvidia:1": ("power-cap", "thermal-software")}
    assert peaks.link_generation_best == {"nvidia:0": 1, "nvidia:1": 3}


def test_all_readings_from_a_clean_process(fake_nvml_library, two_uneven_cards, tmp_path):
    """A process that finds the library as any program does reads both cards, and numbers them as the server's environment says."""
    scenario = tmp_path / "scenario"
    scenario.write_text(two_uneven_cards)
    code = (
        "import os; from probes.gpu import read_devices; print(read_devices(os.getpid(), when='now').model_dump_json())"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=60,
        env={**os.environ, "LD_LIBRARY_PATH": str(fake_nvml_library.parent), "FAKE_NVML": str(scenario), "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"},
    )  # fmt: skip
    readings = json.loads(done.stdout)
    assert [one["cuda_index"] for one in readings["devices"]] == [1, 0]
    assert readings["sources"][0] == "nvml"
    assert "nvml" not in readings["absent"]
    assert readings["visibility"] == {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1,0"}
    assert len(readings["links"]) == 1


def test_a_name_that_is_no_text_does_not_stop_the_reading(nvml, two_uneven_cards, tmp_path):
    """Bytes that are no UTF-8 in a name: the device is there under a plain name."""
    scenario = nvml("")
    scenario.write_bytes(two_uneven_cards.encode().replace(b"GeForce RTX 4060 Ti", b"\xff\xfe\x80"))
    first, _ = Nvml.open().devices()
    assert first.name == "NVIDIA device"
    assert first.free_bytes == 15 * GIB


def test_processes_that_hold_more_than_there_is_are_not_believed(nvml, two_uneven_cards):
    """Sizes that contradict the card's are left out, with a note."""
    nvml(two_uneven_cards + f"0 process 1 {30 * GIB}\n0 process 2 {30 * GIB}\n")
    device = Nvml.open().devices()[0]
    assert [one.used_bytes for one in device.processes] == [None, None]
    assert any("cannot be trusted" in note for note in device.notes)


def test_collect_goes_on_when_one_source_breaks(nvml, two_uneven_cards):
    """A binding that raises something of its own is a reason under ``absent``; the others are read."""
    nvml(two_uneven_cards)

    def broken():
        raise KeyError("no such symbol")

    readings = collect(asked={"amd": broken, "nvml": Nvml.open})
    assert len(readings.devices) == 2
    assert readings.absent == {"amd": "KeyError: 'no such symbol'"}
    assert readings.sources == ("nvml", "amd")


@given(
    st.one_of(st.none(), st.integers(-(2**70), 2**70), st.floats(), st.text()),
    st.integers(-(2**66), 2**66),
    st.one_of(st.none(), st.integers(0, 2**66)),
    st.integers(-5, 2**66),
)
@example(1, 1, -1, 1)
@example(4, 3, None, 2)
@settings(max_examples=150, deadline=None)
def test_sizes_are_taken_as_they_are_or_not_at_all(total, free, reserved, used):
    """Whatever the driver says: every size that is given is plausible, and free + used + reserved never exceed the total."""
    memory = memory_of(total, free, reserved, used)
    for size in (memory.total, memory.free, memory.used, memory.reserved):
        assert size is None or 0 <= size <= 1 << 50
    if memory.total is not None and memory.free is not None and memory.used is not None:
        assert memory.free + memory.used + (memory.reserved or 0) <= memory.total
    if memory.total is None or memory.free is None:
        assert memory.odd is not None


def test_throttle_bits_have_names_and_unknown_ones_stay_visible():
    """Idle is no throttling; a bit without a name is shown as it is."""
    assert throttle_reasons(0x1) == ()
    assert throttle_reasons(0x4 | 0x40) == ("power-cap", "thermal-hardware")
    assert throttle_reasons(0x8000) == ("0x8000",)


def test_what_goes_over_the_link_is_measured_now_and_then(nvml, two_uneven_cards, monkeypatch):
    """Law: throughput is asked of one card at a time and every few seconds; lanes, replays and traffic belong to the card."""
    nvml(
        two_uneven_cards
        + "0 sent 500000\n0 received 2000000\n0 replays 7\n0 replay_step 2\n1 sent 1000\n1 received 3000\n1 replays 0\n"
    )
    source = Nvml.open()
    now = [100.0]
    monkeypatch.setattr("probes.gpu.nvml.time.monotonic", lambda: now[0])
    first = source.sample(full=True)
    assert [(one.link_sent, one.link_received) for one in first] == [(500_000_000, 2_000_000_000), (None, None)]
    assert [(one.link_width, one.link_replays) for one in first] == [(8, 7), (4, 0)]
    assert all(one.link_sent is None for one in source.sample(full=True))
    now[0] += 2.0
    second = source.sample(full=True)
    assert [one.link_sent for one in second] == [None, 1_000_000]
    now[0] += 2.0
    third = source.sample(full=True)
    assert [one.link_received for one in third] == [2_000_000_000, None]
    assert [one.link_replays for one in third] == [13, 0]
    source.close()


def test_a_card_that_does_not_tell_its_link_is_not_asked_again(nvml, two_uneven_cards, monkeypatch):
    nvml(two_uneven_cards + "0 link_error 3\n")
    source = Nvml.open()
    now = [100.0]
    monkeypatch.setattr("probes.gpu.nvml.time.monotonic", lambda: now[0])
    for _ in range(3):
        first, _second = source.sample(full=True)
        assert (first.link_sent, first.link_received, first.link_replays) == (None, None, None)
        assert first.used_bytes is not None
        now[0] += 10
    source.close()


@given(st.lists(st.none() | st.integers(0, 1000), max_size=12))
@settings(max_examples=60, deadline=None)
def test_replays_add_up_whatever_is_missing_and_never_go_below_zero(readings):
    """Law: however samples are merged, replays grow by what the counter grew; one that went back starts anew."""
    spans = [DeviceSpan.of(DeviceSample("nvidia:0", link_replays=one)) for one in readings]
    whole = DeviceSpan()
    for span in spans:
        whole = whole.merged(span)
    told = [one for one in readings if one is not None]
    grown = [max(0, b - a) if b >= a else 0 for a, b in itertools.pairwise(told)]
    assert (whole.replays_grown or 0) == sum(grown)
    middle = len(spans) // 2
    halves = [DeviceSpan(), DeviceSpan()]
    for at, span in enumerate(spans):
        halves[at >= middle] = halves[at >= middle].merged(span)
    assert (halves[0].merged(halves[1]).replays_grown or 0) == sum(grown)
