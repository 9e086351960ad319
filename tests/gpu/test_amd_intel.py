"""AMD, Intel and other cards over recorded trees of the kernel's files, and the kernel's answers to questions."""

import ctypes
import shutil
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import NotOfferedError
from probes.gpu.amd import Amd
from probes.gpu.drm_fdinfo import Drm, FdinfoReader, cards, parse_fdinfo
from probes.gpu.drm_ioctl import (
    amd_is_integrated,
    i915_regions,
    parse_i915_regions,
    parse_xe_regions,
    request,
    xe_regions,
)
from probes.gpu.intel import Intel
from probes.gpu.none import cards_on_bus, silent_cards
from probes.gpu.sampler import Sampler

GIB, MIB = 1 << 30, 1 << 20


def refuse(file, code, buffer):
    """A kernel that answers nothing."""
    raise PermissionError("not allowed")


class Kernel:
    """A kernel that answers as told: request number → what it writes where the question points."""

    def __init__(self, reply: bytes, *, privileged: bool = True) -> None:
        self.reply = reply
        self.calls = 0

    def xe(self, file, code, buffer):
        assert code == request(0x00, 40, read=True) == 0xC0286440
        self.calls += 1
        _ext, query, size, where = struct.unpack_from("=QIIQ", buffer, 0)
        assert query == 1
        if where:
            assert size == len(self.reply)
            ctypes.memmove(where, self.reply, size)
        struct.pack_into("=I", buffer, 12, len(self.reply))

    def i915(self, file, code, buffer):
        assert code == request(0x39, 16, read=True) == 0xC0106479
        count, _flags, items = struct.unpack_from("=IIQ", buffer, 0)
        assert count == 1
        query, length, _flags, where = struct.unpack("=QiIQ", ctypes.string_at(items, 24))
        assert query == 4
        if where:
            assert length == len(self.reply)
            ctypes.memmove(where, self.reply, length)
        ctypes.memmove(items + 8, struct.pack("=i", len(self.reply)), 4)

    def amd(self, file, code, buffer):
        assert code == request(0x05, 32, read=False) == 0x40206445
        where, size, query = struct.unpack_from("=QII", buffer, 0)
        assert query == 0x16
        ctypes.memmove(where, self.reply, min(size, len(self.reply)))


def regions(head: bytes, *entries: tuple[int, int, int]) -> bytes:
    return head + b"".join(struct.pack("=HHIQQ64x", kind, 0, 0, total, second) for kind, total, second in entries)


def amd_answer(device: int, flags: int) -> bytes:
    return struct.pack("=I132xQ", device, flags)


# --- AMD ---


def test_a_card_beside_much_ram_is_dedicated(plant):
    """GTT as large as half of the RAM does not make a card part of the processor: memory chips of its own say it is not."""
    (card,) = Amd.open(plant("amdgpu_discrete.tree"), refuse).devices()
    assert card.memory == "dedicated"
    assert (card.total_bytes, card.used_bytes, card.free_bytes) == (17163091968, 12 * GIB, 17163091968 - 12 * GIB)
    assert (card.shared_used_bytes, card.shared_total_bytes) == (70 * MIB, 33554432000)
    assert card.link == "PCIe 4.0 x8 (of 4.0 x16)"
    assert (card.power_watts, card.power_limit_watts, card.temperature_c, card.utilization_percent) == (
        203.0,
        339.0,
        71.0,
        97.0,
    )
    assert (card.pci, card.uuid) == ("0000:03:00.0", "8c1f5e2a7b3d9046")


def test_a_process_that_opened_the_card_twice_is_counted_once(plant):
    """The same client through two open files is one; what is resident counts, not what is only reserved; the greatest comes first."""
    (card,) = Amd.open(plant("amdgpu_discrete.tree"), refuse).devices()
    assert [(one.pid, one.used_bytes, one.shared_bytes) for one in card.processes] == [
        (4321, 12000 * MIB, 70 * MIB),
        (5000, 200 * MIB, MIB),
    ]


def test_an_apu_is_unified_memory(plant):
    """A processor's own graphics: unified, and what its processes hold is the sum of both parts."""
    (card,) = Amd.open(plant("amdgpu_apu.tree"), refuse).devices()
    assert card.memory == "unified"
    assert (card.shared_used_bytes, card.shared_total_bytes) == (60 * GIB, 110 * GIB)
    assert card.processes[0].used_bytes == 60 * GIB + 256 * MIB
    assert card.power_watts == 88.0
    assert card.link is None
    assert any("part of the processor" in note for note in card.notes)


@pytest.mark.parametrize(("flags", "memory"), [(1, "unified"), (0, "dedicated")])
def test_the_drivers_own_word_decides_whether_it_is_an_apu(plant, flags, memory):
    """What the driver says of the chip beats every other sign, also with a large carve-out."""
    root = plant("amdgpu_apu.tree")
    (root / "sys/class/drm/card0/device/mem_info_vram_total").write_text(str(96 * GIB))
    (card,) = Amd.open(root, Kernel(amd_answer(0x1586, flags)).amd).devices()
    assert card.memory == memory


def test_a_large_carve_out_without_the_drivers_word_is_unknown(plant):
    """Nothing is guessed where no sign decides."""
    root = plant("amdgpu_apu.tree")
    (root / "sys/class/drm/card0/device/mem_info_vram_total").write_text(str(96 * GIB))
    (card,) = Amd.open(root, refuse).devices()
    assert card.memory == "unknown"
    assert any("could not be told" in note for note in card.notes)


def test_an_answer_about_another_chip_is_no_answer(plant):
    """The driver's answer names its chip; another one's (a layout that changed) is not believed."""
    assert amd_is_integrated(0, 0x1586, Kernel(amd_answer(0x744C, 1)).amd) is None
    assert amd_is_integrated(0, 0x1586, Kernel(b"").amd) is None


def test_more_in_use_than_there_is_is_not_given(plant):
    """A counter that contradicts the size is left out, with a note."""
    root = plant("amdgpu_discrete.tree")
    (root / "sys/class/drm/card1/device/mem_info_vram_used").write_text("99999999999999\n")
    (card,) = Amd.open(root, refuse).devices()
    assert (card.used_bytes, card.free_bytes) == (None, None)
    assert any("more is in use than there is" in note for note in card.notes)


@pytest.mark.parametrize("text", ["", "n/a", "-5", "1e9", "18446744073709551615", "\x00\x00", "12 34"])
def test_odd_contents_of_files_are_unknown(plant, text):
    """Whatever a file holds, it is a plausible size or unknown."""
    root = plant("amdgpu_discrete.tree")
    for name in (
        "mem_info_vram_total",
        "mem_info_vram_used",
        "mem_info_gtt_used",
        "gpu_busy_percent",
        "current_link_width",
    ):
        (root / "sys/class/drm/card1/device" / name).write_text(text)
    (card,) = Amd.open(root, refuse).devices()
    assert (card.total_bytes, card.used_bytes, card.shared_used_bytes, card.utilization_percent, card.link_width) == (
        None,
    ) * 5


def test_a_card_that_is_removed_while_sampled_is_lost(plant):
    """Its files vanish: the sample says lost, and the peaks until then stay."""
    root = plant("amdgpu_discrete.tree")
    source = Amd.open(root, refuse)
    with Sampler(None, hz=50, sources=[source]) as sampler, sampler.phase("load") as phase:
        gtt = root / "sys/class/drm/card1/device/mem_info_gtt_used"
        gtt.write_text(str(2 * GIB))
        sampler.phase("edge").end()
        gtt.write_text(str(70 * MIB))
        shutil.rmtree(root / "sys/class/drm/card1/device")
        sampler.phase("edge").end()
    peaks = phase.peaks
    assert peaks.shared_before_bytes == {"amd:0": 70 * MIB}
    assert peaks.shared_peak_bytes == {"amd:0": 2 * GIB}
    assert peaks.devices_peak_bytes == {"amd:0": 12 * GIB}
    assert "removed" in peaks.devices_lost["amd:0"]


def test_what_the_server_holds_is_told_apart(plant):
    """The server's own part of the card, by process."""
    source = Amd.open(plant("amdgpu_discrete.tree"), refuse)
    source.scan(frozenset({4321}))
    (sample,) = source.sample(frozenset({4321}), full=True)
    assert (sample.server_bytes, sample.server_shared_bytes) == (12000 * MIB, 70 * MIB)
    assert (sample.link_generation, sample.power_watts) == (4, 203.0)
    (sample,) = source.sample(frozenset({1}))
    assert sample.server_bytes is None


class Smi:
    """amdsmi as it answers: "N/A" for what it does not know, exceptions for what it cannot do."""

    def amdsmi_get_processor_handles(self):
        return ["a"]

    def amdsmi_get_gpu_device_bdf(self, handle):
        return "0000:03:00.0"

    def amdsmi_get_gpu_asic_info(self, handle):
        return {"market_name": "AMD Radeon RX 7900 XTX"}

    def amdsmi_get_gpu_driver_info(self, handle):
        return {"driver_version": "N/A"}

    def amdsmi_get_gpu_device_uuid(self, handle):
        raise RuntimeError("not supported")

    def amdsmi_get_gpu_process_list(self, handle):
        return [
            {"name": "llama-server", "pid": 3999999, "memory_usage": {"vram_mem": GIB, "gtt_mem": "N/A"}},
            {"name": "x", "pid": 4321, "memory_usage": {"vram_mem": 1}},
            {"name": "y", "pid": "N/A"},
            "N/A",
        ]

    def amdsmi_get_violation_status(self, handle):
        return {"active_ppt_pwr": True, "active_socket_thrm": False, "active_hbm_thrm": "N/A"}

    def amdsmi_shut_down(self):
        raise RuntimeError


def test_amdsmi_adds_names_and_processes(plant):
    """Where amdsmi answers it adds names and the processes that have no file here; its "N/A" is nothing."""
    root = plant("amdgpu_discrete.tree")
    source = Amd(cards(root=root), root, Smi(), refuse)
    (card,) = source.devices()
    source.close()
    assert (card.name, card.driver, card.uuid, card.throttle) == (
        "AMD Radeon RX 7900 XTX",
        "amdgpu",
        "8c1f5e2a7b3d9046",
        ("power-cap",),
    )
    assert [(one.pid, one.used_bytes) for one in card.processes] == [
        (4321, 12000 * MIB),
        (3999999, GIB),
        (5000, 200 * MIB),
    ]
    assert card.processes[1].name == "llama-server"


# --- Intel ---


def test_xe_without_rights_tells_the_size_but_not_what_is_free(plant):
    """An unprivileged question gives 0 as used: that is not told, and a note says so."""
    reply = regions(struct.pack("=II", 2, 0), (0, 64 * GIB, 0), (1, 12 * GIB, 0))
    (card,) = Intel.open(plant("intel_xe.tree"), Kernel(reply).xe).devices()
    assert (card.memory, card.total_bytes, card.free_bytes, card.used_bytes) == ("dedicated", 12 * GIB, None, None)
    assert any("privileged" in note for note in card.notes)
    assert [(one.pid, one.used_bytes, one.shared_bytes) for one in card.processes] == [
        (90, 8 * GIB, 96 * MIB),
        (91, 512 * MIB, None),
    ]
    assert card.throttle == ("pl1",)


def test_xe_with_rights_tells_what_is_free(plant):
    """With the right, used is what all hold."""
    reply = regions(struct.pack("=II", 2, 0), (0, 64 * GIB, GIB), (1, 12 * GIB, 9 * GIB))
    source = Intel.open(plant("intel_xe.tree"), Kernel(reply).xe)
    (card,) = source.devices()
    assert (card.free_bytes, card.used_bytes) == (3 * GIB, 9 * GIB)
    source.scan()
    (sample,) = source.sample(frozenset({90}), full=True)
    assert (sample.used_bytes, sample.free_bytes, sample.server_bytes, sample.shared_bytes) == (
        9 * GIB,
        3 * GIB,
        8 * GIB,
        96 * MIB,
    )


def test_i915_without_own_memory_is_unified(plant):
    """Only system memory: part of the processor."""
    reply = regions(struct.pack("=I12x", 1), (0, 32 * GIB, 32 * GIB))
    (card,) = Intel.open(plant("intel_i915.tree"), Kernel(reply).i915).devices()
    assert (card.memory, card.total_bytes, card.link) == ("unified", None, None)
    assert card.processes[0].used_bytes == 2 * GIB
    assert card.throttle == ()


def test_intel_whose_driver_refuses_is_unknown(plant):
    """No answer, no size: unknown, with why."""
    (card,) = Intel.open(plant("intel_xe.tree"), refuse).devices()
    assert (card.memory, card.total_bytes) == ("unknown", None)
    assert any("may not be opened" in note for note in card.notes)


def test_i915_that_answers_all_free_does_not_tell(plant):
    """All unallocated is what an unprivileged process sees whatever is in use."""
    told = parse_i915_regions(regions(struct.pack("=I12x", 2), (1, 8 * GIB, 8 * GIB), (1, 8 * GIB, GIB)))
    assert [one.free for one in told] == [None, GIB]


@given(st.binary(max_size=400))
@settings(max_examples=100, deadline=None)
def test_no_answer_of_a_driver_breaks_the_reader(reply):
    """Any bytes are regions or nothing."""
    for told in (
        parse_xe_regions(reply),
        parse_i915_regions(reply),
        xe_regions(0, Kernel(reply).xe),
        i915_regions(0, Kernel(reply).i915),
    ):
        for one in told or ():
            assert one.total is None or 0 <= one.total <= 1 << 50
            assert one.free is None or 0 <= one.free <= one.total


# --- others ---


def test_another_card_tells_what_processes_hold(plant):
    """A card without a file of its own here: what is known is by process, and the size is unknown."""
    source = Drm.open(plant("drm_other.tree"))
    (card,) = source.devices()
    assert (card.id, card.vendor, card.memory, card.total_bytes) == ("drm:0", "other", "unknown", None)
    assert [(one.pid, one.used_bytes, one.shared_bytes) for one in card.processes] == [(60, 512 * MIB, 64 * MIB)]
    source.scan(frozenset({60}))
    (sample,) = source.sample(frozenset({60}))
    assert (sample.server_bytes, sample.server_shared_bytes) == (512 * MIB, 64 * MIB)


@pytest.mark.parametrize("source", [Amd, Intel, Drm])
def test_no_such_card_says_so(source, tmp_path):
    """Nothing there is an answer."""
    with pytest.raises(NotOfferedError):
        source.open(tmp_path)


def test_each_vendor_takes_only_its_own(plant):
    """A card belongs to one source."""
    root = plant("amdgpu_discrete.tree")
    for other in (Intel, Drm):
        with pytest.raises(NotOfferedError):
            other.open(root)


def test_a_shared_client_is_counted_for_one_process_only(plant):
    """A client that a child inherited is the same memory, not twice as much."""
    root = plant("amdgpu_discrete.tree")
    shutil.copytree(root / "proc/4321", root / "proc/4322", symlinks=True)
    reader = FdinfoReader(root)
    reader.scan()
    assert reader.by_device()["0000:03:00.0"].keys() == {4321, 5000}


def test_a_process_that_ends_while_it_is_read_is_left_out(plant):
    """Files that vanish between finding and reading are no error."""
    root = plant("amdgpu_discrete.tree")
    reader = FdinfoReader(root)
    reader.scan()
    shutil.rmtree(root / "proc/4321")
    assert reader.clients().keys() == {5000}


@given(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            [
                "drm-total-vram:\t99999999999999999999 GiB",
                "drm-resident-vram: 5 KiB",
                "drm-memory-gtt: 1 MB",
                "drm-total-: 3",
                "drm-client-id:",
            ]
        ),
        max_size=5,
    ),
)
@settings(max_examples=100, deadline=None)
def test_fdinfo_is_understood_or_skipped(text, lines):
    """Lines that are odd are skipped; what is given is a plausible size; a file of another kind is none."""
    client = parse_fdinfo("\n".join(["drm-driver: amdgpu", text, *lines]))
    assert client is not None
    for size in (client.device_bytes, client.shared_bytes):
        assert size is None or 0 <= size <= 1 << 51
    assert parse_fdinfo("pos:\t0\nflags:\t02\n") is None


def test_a_card_without_a_driver_is_not_no_card(tmp_path):
    """On the bus but silent: said, with whether a driver is bound; a card that answered is not mentioned."""
    for address, vendor, kind, driver in (
        ("0000:01:00.0", "0x10de", "0x030000", None), ("0000:02:00.0", "0x1002", "0x038000", "vfio-pci"), ("0000:03:00.0", "0x8086", "0x030000", "xe"),
        ("0000:00:1f.0", "0x8086", "0x060100", None),
    ):  # fmt: skip
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor)
        (folder / "class").write_text(kind)
        if driver:
            (tmp_path / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
            (folder / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers" / driver)
    assert len(cards_on_bus(root=tmp_path)) == 3
    notes = silent_cards({"0000:03:00.0"}, root=tmp_path)
    assert len(notes) == 2
    assert "no kernel driver" in notes[0]
    assert "virtual machine" in notes[1]
    assert silent_cards(set(), root=tmp_path / "nowhere") == ()
