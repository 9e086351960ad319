"""Which server a process is, whose it is, and which device is which."""

import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.machine import Device
from probes.gpu.base import Notes, describe_link, generation_of_speed, plausible, plausible_float
from probes.gpu.matching import cuda_order, match_named, pci_key, visible
from probes.gpu.processes import Holders, family, look_up, other_servers, parse_stat, server_kind

GIB = 1 << 30


@pytest.mark.parametrize(
    ("name", "command", "kind"),
    [
        ("llama-server", ["/opt/llama.cpp/build/bin/llama-server", "-m", "x.gguf"], "llama.cpp"),
        ("llama-server.exe", [r"C:\llama\llama-server.exe", "-c", "8192"], "llama.cpp"),
        ("ollama", ["/usr/local/bin/ollama", "serve"], "ollama"),
        ("ollama_llama_se", ["/tmp/ollama123/runners/cuda/ollama_llama_server", "--port", "1"], "ollama"),
        ("python3", ["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server"], "vllm"),
        ("vllm", ["/venv/bin/python", "/venv/bin/vllm", "serve", "m"], "vllm"),
        ("VLLM::EngineCor", ["VLLM::EngineCore"], "vllm"),
        ("python", ["python", "-u", "-X", "dev", "-m", "sglang.launch_server"], "sglang"),
        ("python3.11", ["python3.11", "-m", "mlx_lm.server", "--model", "x"], "mlx_lm"),
        ("python", ["python", "-m", "mlx_lm", "server"], "mlx_lm"),
        ("python", ["python", "koboldcpp.py", "--model", "x"], "koboldcpp"),
        ("python", ["python", "/home/me/tabbyAPI/main.py"], "tabbyapi"),
        ("LM Studio", ["/Applications/LM Studio.app/Contents/MacOS/LM Studio"], "lm-studio"),
        ("python", ["python", "-m", "llama_cpp.server"], "llama-cpp-python"),
        ("python", ["python", "/x/diagnose/llama_server.py", "-m", "x.gguf"], "llama.cpp"),
        # what only speaks of a server is none
        ("vim", ["vim", "llama-server.log"], None),
        ("grep", ["grep", "-r", "ollama", "."], None),
        ("python", ["python", "test_vllm.py"], None),
        ("python", ["python", "-c", "import vllm"], None),
        ("bash", ["bash", "-c", "llama-server -m x"], None),
        ("python", ["python", "-m"], None),
        ("", [], None),
    ],
)
def test_what_runs_decides_not_what_is_mentioned(name, command, kind):
    """A server is known by its program, module or script; an editor, a search or a test that names it is none."""
    assert server_kind(name, command) == kind


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=6))
@settings(max_examples=100, deadline=None)
def test_any_command_line_is_read(name, command):
    """Command lines are text from outside."""
    kind = server_kind(name, command)
    assert kind is None or kind


@pytest.fixture
def two_servers(tmp_path):
    """Two real processes that run under a server's name, one after the other; gives their pids."""
    program = tmp_path / "llama-server"
    shutil.copy(shutil.which("sleep"), program)
    running = [subprocess.Popen([program, "60"]) for _ in range(2)]
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        yield [one.pid for one in (*running, other)]
    finally:
        for one in (*running, other):
            one.kill()
            one.wait()


def test_a_previous_instance_of_the_server_is_told(two_servers, monkeypatch):
    """The same program, started before, still there: a previous instance; one started after is not; another program is not."""
    old, new, other = two_servers
    started = {old: 100.0, new: 200.0, other: 50.0}
    real = look_up

    def known(pid):
        found = real(pid)
        return (
            None
            if found is None
            else type(found)(
                found.pid, found.name, found.kind, found.program, started.get(pid, found.started), found.rss
            )
        )

    monkeypatch.setattr("probes.gpu.processes.look_up", known)
    holders = Holders(new)
    told = holders.describe(old, 5 * GIB)
    assert (told.server_kind, told.previous_instance, told.is_server, told.used_bytes) == (
        "llama.cpp",
        True,
        False,
        5 * GIB,
    )
    assert holders.describe(new, 1).is_server is True
    assert holders.describe(new, 1).previous_instance is False
    assert holders.describe(other, 1).previous_instance is False
    assert Holders(old).describe(new, 1).previous_instance is False
    assert Holders(new).describe(os.getpid(), 1).previous_instance is False
    assert Holders(None).describe(old, 1).previous_instance is None


def test_other_servers_on_this_machine_are_found(two_servers):
    """Every server but the one under test, by name and kind, with its memory."""
    old, new, other = two_servers
    found = {one.pid: one for one in other_servers(new)}
    assert found[old].server_kind == "llama.cpp"
    assert found[old].name == "llama-server"
    assert found[old].rss_bytes > 0
    assert not {new, other, os.getpid()} & found.keys()


def test_a_pid_of_nothing_is_nothing():
    """Numbers of processes that are not there, or cannot be."""
    for pid in (-1, 2**22 - 1, 2**70):
        assert look_up(pid) is None
        assert family(pid) == frozenset()
    told = Holders(None).describe(2**22 - 1, 7, name="as the driver says")
    assert (told.name, told.used_bytes, told.is_server) == ("as the driver says", 7, None)


def test_a_name_with_brackets_and_spaces_is_read():
    """Fields count from the last bracket: a process may call itself anything."""
    assert parse_stat(b"12 (a) R 9) S 1 2 3 4 5 6 7 8 77 10 11") == ("S", 77)
    assert parse_stat(b"12 (x") is None


# --- which device is which ---


def card(index, name="NVIDIA X", **more):
    return Device(
        id=f"nvidia:{index}",
        name=name,
        vendor="nvidia",
        pci=f"00000000:0{index + 1}:00.0",
        uuid=f"GPU-{index}000-aa",
        **more,
    )


def test_addresses_are_one_in_every_spelling():
    """Eight digits of domain, four, or none; capitals or not."""
    assert (
        pci_key("00000000:0A:00.0")
        == pci_key("0000:0a:00.0")
        == pci_key("0A:00.0")
        == pci_key(" 0a:00 ")
        == "0000:0a:00.0"
    )
    for odd in (None, "", "N/A", "0000:zz:00.0", "0a:00.9"):
        assert pci_key(odd) is None


@pytest.mark.parametrize(
    ("text", "seen", "odd"),
    [
        (None, [0, 1, 2], False), ("2,0", [2, 0], False), ("1", [1], False), ("0,7,1", [0], True), ("-1", [], True), ("", [], True),
        ("0,0", [], True), ("GPU-2000-aa,GPU-0", [2, 0], False), ("GPU-9", [], True), ("1,GPU-9,0", [1], True), (" 1 , 2 ", [1, 2], False),
        ("NoDevFiles", [], True), ("MIG-1234", None, True),
    ],
)  # fmt: skip
def test_visible_devices_are_read_as_cuda_does(text, seen, odd):
    """The list ends at the first entry that is no device; a device named twice hides all; parts of cards cannot be told."""
    told, why = visible(text, ["GPU-0000-aa", "GPU-1000-aa", "GPU-2000-aa"])
    assert told == seen
    assert (why is not None) == odd


def test_the_order_of_unlike_cards_is_not_guessed():
    """CUDA puts the fastest first unless told otherwise: unlike cards have no certain index, alike ones do, and so do those by UUID."""
    unlike = (card(0, "NVIDIA A"), card(1, "NVIDIA B"))

    def order(devices, environment):
        notes = Notes()
        return [one.cuda_index for one in cuda_order(devices, environment, notes)], notes.all()

    assert order(unlike, {})[0] == [None, None]
    assert "fastest first" in order(unlike, {})[1][0]
    assert order(unlike, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}) == ([0, 1], ())
    assert order(unlike, {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "1"}) == ([None, 0], ())
    assert order(unlike, {"CUDA_VISIBLE_DEVICES": "GPU-1000,GPU-0000"}) == ([1, 0], ())
    assert order((card(0), card(1)), {}) == ([0, 1], ())
    assert order((card(0), card(1)), None)[0] == [None, None]
    assert order((card(0),), None)[0] == [0]
    assert order((card(0),), {"CUDA_VISIBLE_DEVICES": ""})[0] == [None]
    assert order((), {}) == ([], ())


def test_a_log_names_its_devices_by_name_address_or_size():
    """What a server calls its first device is matched, or left open where two fit."""
    a, b, c = (
        card(0, "NVIDIA GeForce RTX 4060 Ti", total_bytes=16 * GIB),
        card(1, "NVIDIA GeForce RTX 4060 Ti", total_bytes=8 * GIB),
        card(2, "NVIDIA B"),
    )
    assert match_named(
        [("NVIDIA B", None, None), ("NVIDIA GeForce RTX 4060 Ti", None, 15 * GIB + GIB // 2)], [a, b, c]
    ) == ("nvidia:2", "nvidia:0")
    assert match_named([("whatever", "0000:02:00.0", None)], [a, b, c]) == ("nvidia:1",)
    assert match_named([("NVIDIA GeForce RTX 4060 Ti", None, None)], [a, b, c]) == (None,)
    assert match_named([("NVIDIA GeForce RTX 4060 Ti", None, None)] * 2, [a, b, c]) == ("nvidia:0", "nvidia:1")
    assert match_named([("NVIDIA Z", None, None)], [a]) == (None,)


def test_links_for_people():
    """Generation and width, now and at most."""
    assert describe_link(3, 4, 4, 16) == "PCIe 3.0 x4 (of 4.0 x16)"
    assert describe_link(None, 8, None, None) == "PCIe x8"
    assert describe_link(None, None, 4, 16) is None
    assert generation_of_speed("8.0 GT/s PCIe\n") == 3
    assert generation_of_speed("Unknown") is None


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 2**64 - 1, True, "5", None, b"1"])
def test_what_is_no_plausible_number_is_none(value):
    """Numbers from outside are taken as they are or not at all."""
    assert plausible(value) is None
    assert plausible_float(value) is None
