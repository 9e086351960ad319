"""Windows' counters: recorded instances, and the counters' library at its own border."""

import ctypes
import json
import shutil
import subprocess
from ctypes import wintypes
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import Device
from probes.gpu.base import DeviceSample, DeviceSource, Notes
from probes.gpu.matching import joined
from probes.gpu.sampler import Sampler
from probes.gpu.windows import COUNTERS, Adapter, Pdh, Windows, adapters_of, ask_kernel, parse_instance, usage_of

GIB, MIB = 1 << 30, 1 << 20
CARD, BASIC = (0, 0xD3A1), (0, 0x11B7C)
KEYS = [
    {"AdapterLuid": 0xD3A1, "Description": "NVIDIA GeForce RTX 4060 Ti", "VendorId": 0x10DE, "DedicatedVideoMemory": 16 * GIB, "SharedSystemMemory": 32 * GIB, "DriverVersion": 0x0020_0000_000F_1A4B},
    {"AdapterLuid": 0x11B7C, "Description": "Microsoft Basic Render Driver", "VendorId": 0x1414, "DedicatedVideoMemory": 0},
    {"AdapterLuid": 0x999, "Description": "a card that was sold", "VendorId": 0x1002, "DedicatedVideoMemory": 8 * GIB},
    {"Description": "no number"}, {"AdapterLuid": "odd"}, {"AdapterLuid": -1},
]  # fmt: skip


@pytest.fixture(scope="session")
def pdh_library(tmp_path_factory):
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler: the counters' library for the tests cannot be built")
    path = tmp_path_factory.mktemp("pdh") / "pdh.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", path, Path(__file__).parent / "fake_pdh.c"],
        check=True,
        timeout=60,
    )
    return path


@pytest.fixture
def counters(pdh_library, tmp_path, monkeypatch):
    """Hand readings to a fresh copy of the library; gives the library and a way to change what it answers."""
    scenario = tmp_path / "counters"
    monkeypatch.setenv("FAKE_PDH", str(scenario))

    def use(readings, *extra):
        lines = [
            f"{COUNTERS[name]}\t{instance}\t{value}" for name, items in readings.items() for instance, value in items
        ]
        scenario.write_text("\n".join([*lines, *extra]) + "\n")
        return ctypes.CDLL(str(pdh_library))

    return use


@pytest.fixture
def spill(recorded):
    return json.loads(recorded("pdh_spill.json"))


def test_names_of_instances_tell_process_and_adapter():
    """The names are the same on every language of Windows."""
    one = parse_instance("pid_4321_luid_0x00000000_0x0000D3A1_phys_0_eng_11_engtype_Cuda")
    assert (one.pid, one.luid, one.part, one.engine, one.kind) == (4321, CARD, 0, 11, "Cuda")
    assert parse_instance("luid_0x00000001_0x0000D3A1_phys_1").luid == (1, 0xD3A1)
    assert parse_instance("pid_4321_luid_0x00000000_0x0000D3A1_phys_0#1").pid == 4321
    for odd in (
        "",
        "_Total",
        "pid_x_luid_0x0_0x1_phys_0",
        "pid_1_luid_0x00000000_phys_0",
        "luid_0x000000000000_0x1_phys_0",
    ):
        assert parse_instance(odd) is None


def test_the_library_is_read_as_it_answers(counters, spill):
    """Every counter and instance arrives, whole numbers and fractions, also when the array grows while it is read."""
    pdh = Pdh(counters(spill, "grow\tx\t2"))
    assert pdh.add(COUNTERS) == {}
    assert {name: [list(one) for one in items] for name, items in pdh.collect().items()} == spill
    pdh.close()


def test_an_array_that_grows_for_ever_is_given_up(counters, spill):
    """Hanging is a bug: after a few tries there is no value."""
    pdh = Pdh(counters(spill, "grow\tx\t1000000"))
    pdh.add(COUNTERS)
    assert pdh.collect()["adapter-dedicated"] == []


def test_values_that_are_invalid_are_left_out(counters, spill):
    """An instance whose process just ended has a status, not a value."""
    spill["process-shared"][1][1] = "invalid"
    pdh = Pdh(counters(spill))
    pdh.add(COUNTERS)
    assert len(pdh.collect()["process-shared"]) == 1


def test_a_spill_is_seen_by_adapter_and_process(counters, spill):
    """The card is full, and the server's shared memory has grown: both sizes, apart, and by process."""
    source = Windows.over(Pdh(counters(spill)), lambda: adapters_of(KEYS))
    (card,) = source.devices()
    assert (card.id, card.name, card.vendor, card.memory) == (
        "windows:0",
        "NVIDIA GeForce RTX 4060 Ti",
        "nvidia",
        "dedicated",
    )
    assert (card.total_bytes, card.used_bytes, card.free_bytes) == (16 * GIB, 16911433728, 16 * GIB - 16911433728)
    assert (card.shared_used_bytes, card.shared_total_bytes, card.driver) == (6979321856, 32 * GIB, "32.0.15.6731")
    assert card.utilization_percent == 75.0
    assert [(one.pid, one.used_bytes, one.shared_bytes) for one in card.processes] == [
        (4321, 16106127360, 6871947674),
        (980, 524288000, 41943040),
    ]
    (sample,) = source.sample(frozenset({4321}))
    assert (sample.server_bytes, sample.server_shared_bytes, sample.shared_bytes) == (
        16106127360,
        6871947674,
        6979321856,
    )


def test_a_driver_that_restarts_gives_new_numbers_to_its_cards(counters, spill, tmp_path):
    """After a reset the adapter has another LUID: it is looked up again rather than lost for good."""
    keys = list(KEYS)
    source = Windows.over(Pdh(counters(spill)), lambda: adapters_of(keys))
    source.sample()
    text = (tmp_path / "counters").read_text()
    (tmp_path / "counters").write_text(text.replace("0x0000D3A1", "0x0000EEEE"))
    keys.append({**KEYS[0], "AdapterLuid": 0xEEEE})
    (sample,) = source.sample()
    assert (sample.lost, sample.used_bytes, sample.total_bytes) == (None, 16911433728, 16 * GIB)
    (tmp_path / "counters").write_text("")
    (sample,) = source.sample()
    assert sample.lost is not None


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("status\topen\tC0000BC5", "cannot be opened"),
        ("status\tadd\tC0000BB8", "1709"),
        ("status\tcollect\tC0000BC5", "cannot be read"),
    ],
)
def test_a_refusal_is_one_line(counters, spill, line, says):
    """No counters: why, in one line."""
    library = counters(spill, line)
    with pytest.raises(NotOfferedError, match=says):
        Windows.over(Pdh(library), lambda: adapters_of(KEYS))


def test_no_data_at_this_moment_is_no_error(counters, spill):
    """When nothing uses the GPU there are no instances."""
    assert Windows.over(Pdh(counters({}, "status\tcollect\t800007D5")), lambda: adapters_of(KEYS)).devices() == ()


class Gdi:
    """The graphics kernel: fills in what is asked for at the address that it is given."""

    def __init__(self, refused=()):
        self.refused = refused
        self.opened = 0

    def D3DKMTOpenAdapterFromLuid(self, pointer):  # noqa: N802
        opened = pointer._obj
        if "open" in self.refused:
            return -1
        assert (opened.low, opened.high) == (0xD3A1, 0)
        opened.handle = 77
        self.opened += 1
        return 0

    def D3DKMTQueryAdapterInfo(self, pointer):  # noqa: N802
        question = pointer._obj
        assert question.handle == 77
        if question.kind in self.refused:
            return -1
        values = (ctypes.c_ulonglong * 3)(17 * GIB, 0, 33 * GIB) if question.kind == 3 else (wintypes.UINT * 3)(1, 0, 0)
        assert question.size == ctypes.sizeof(values)
        ctypes.memmove(question.data, values, question.size)
        return 0

    def D3DKMTCloseAdapter(self, pointer):  # noqa: N802
        assert pointer._obj.value == 77
        self.opened -= 1
        return 0


def test_the_graphics_kernel_adds_sizes_and_address():
    """Sizes and the PCI address, by which the card is matched with the vendor's driver; what is refused stays as it was."""
    adapter = Adapter(CARD, "x", 0x10DE, 16 * GIB)
    gdi = Gdi()
    told = ask_kernel(adapter, gdi)
    assert (told.dedicated_total, told.shared_total, told.pci, gdi.opened) == (17 * GIB, 33 * GIB, "0000:01:00.0", 0)
    assert ask_kernel(adapter, Gdi(("open",))) == adapter
    told = ask_kernel(adapter, Gdi((6,)))
    assert (told.dedicated_total, told.pci) == (17 * GIB, None)


class Nvidia(DeviceSource):
    """What the vendor's own driver says of the same card."""

    name = "nvml"

    @classmethod
    def open(cls):
        return cls()

    def devices(self, holders=None):
        return self.identities()

    def identities(self):
        return (
            Device(
                id="nvidia:0",
                name="NVIDIA GeForce RTX 4060 Ti",
                vendor="nvidia",
                pci="00000000:01:00.0",
                used_bytes=5,
                driver_model="WDDM",
            ),
        )

    def sample(self, server_pids=frozenset(), *, full=False):
        return [DeviceSample("nvidia:0", used_bytes=5, free_bytes=7)]


@pytest.mark.parametrize("bus", [(1, 0, 0), None])
def test_one_card_seen_by_two_interfaces_stands_once(counters, spill, bus):
    """By PCI address, else by its name: the vendor's numbers stay, the shared memory is added, in readings and in samples."""
    adapters = [Adapter(CARD, "NVIDIA GeForce RTX 4060 Ti", 0x10DE, 16 * GIB, bus=bus), Adapter(BASIC, "basic", 0x1414)]
    source = Windows.over(Pdh(counters(spill)), lambda: adapters)
    (card,) = joined(Nvidia().devices(), source.devices(), Notes())
    assert (card.id, card.used_bytes, card.driver_model, card.shared_used_bytes) == ("nvidia:0", 5, "WDDM", 6979321856)
    assert len(card.processes) == 2
    with Sampler(None, hz=50, sources=[Nvidia(), source]) as sampler, sampler.phase("prefill") as phase:
        for _ in range(100):
            if phase.peaks.shared_peak_bytes:
                break
            sampler.phase("edge").end()
    assert phase.peaks.devices_peak_bytes == {"nvidia:0": 5}
    assert phase.peaks.shared_peak_bytes == {"nvidia:0": 6979321856}


def test_two_equal_cards_without_an_address_are_not_guessed():
    """Two cards of one name cannot be told apart by name: each interface's stand apart, with a note."""
    notes = Notes()
    cards = tuple(
        Device(id=f"nvidia:{i}", name="NVIDIA X", vendor="nvidia", pci=f"0000:0{i + 1}:00.0") for i in range(2)
    )
    others = tuple(Device(id=f"windows:{i}", name="NVIDIA X", vendor="nvidia", shared_used_bytes=1) for i in range(2))
    assert [one.shared_used_bytes for one in joined(cards, others, notes)] == [None, None, 1, 1]
    assert "stands apart" in notes.all()[0]


@given(
    st.dictionaries(
        st.sampled_from([*COUNTERS, "x"]),
        st.lists(
            st.tuples(
                st.one_of(
                    st.text(max_size=30), st.just("pid_1_luid_0x0_0x1_phys_0"), st.just("luid_0x0_0x1_phys_0_eng_3")
                ),
                st.floats(allow_nan=True),
            ),
            max_size=5,
        ),
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_counters_say_sizes_are_plausible(readings):
    """Odd names and values are left out."""
    for usage in usage_of(readings).values():
        assert usage.busy is None or 0 <= usage.busy <= 100
        for size in (usage.dedicated, usage.shared, *(part for pair in usage.processes.values() for part in pair)):
            assert size is None or 0 <= size <= 5 << 50


def test_elsewhere_it_is_not_offered():
    """On another system the source says that it is Windows' own."""
    with pytest.raises(NotOfferedError):
        Windows.open()
