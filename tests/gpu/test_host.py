"""The host: pressure, memory groups, limits, where it runs, and who else is busy."""

import os
import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.gpu.host import (
    HostWatch,
    busy_processes,
    memory_group,
    parse_keys,
    parse_limits,
    parse_pressure,
    read_host,
    virtualisation,
)
from probes.gpu.processes import parse_kib_field, parse_stat, parse_uss

GIB, MIB = 1 << 30, 1 << 20

PSI = (
    b"some avg10=12.34 avg60=3.00 avg300=0.50 total=987654321\nfull avg10=4.20 avg60=1.00 avg300=0.10 total=123456789\n"
)


def test_pressure_is_percent_and_microseconds():
    """Both lines, each with its own numbers; a kernel without the second one leaves it empty."""
    some, full = parse_pressure(PSI)
    assert (some.avg10, some.total_us, full.avg10, full.total_us) == (12.34, 987654321, 4.2, 123456789)
    some, full = parse_pressure(PSI.split(b"\n")[0])
    assert (some.avg10, full.avg10, full.total_us) == (12.34, None, None)


@given(st.binary(max_size=120))
@settings(max_examples=100, deadline=None)
def test_odd_files_give_nothing_or_something_plausible(data):
    """Whatever stands in a file: plausible or unknown."""
    for pressure in parse_pressure(b"some " + data):
        assert pressure.avg10 is None or 0 <= pressure.avg10 <= 100
    for value in (parse_kib_field(b"VmSwap:" + data, b"VmSwap"), *parse_uss(data)):
        assert value is None or 0 <= value <= 2 << 50
    parse_stat(data)
    parse_keys(data.decode("latin-1"))
    parse_limits(data.decode("latin-1"))


def test_the_tightest_group_above_counts(plant):
    """A service's limit holds for all within it, although the innermost group has none."""
    group = memory_group(root=plant("cgroup_v2.tree"))
    assert (group.version, group.limit, group.used, group.swap_limit) == (2, 4 * GIB, 4200000000, 0)
    assert (group.oom_kills, group.oom_events) == (2, 3)
    assert parse_keys(group.events_file.read_text())["oom_kill"] == 2
    assert int(group.usage_file.read_text()) == group.used


def test_a_containers_mount_shows_only_its_own_part(plant):
    """Version 1 within a container: the path of the process is that of the host, the mount begins at it."""
    group = memory_group(root=plant("cgroup_v1.tree"))
    assert (group.version, group.limit, group.used, group.swap_limit, group.oom_kills) == (1, 2 * GIB, GIB, GIB, 5)


def test_no_limit_is_none(plant):
    """ "max", and version 1's huge number, are no limit."""
    root = plant("cgroup_v1.tree")
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert memory_group(root=root).limit is None
    assert memory_group(root=root / "nowhere") is None


@pytest.mark.parametrize("path", ["/../../etc", "relative", "/" + "a/" * 5000])
def test_a_path_of_a_group_cannot_lead_elsewhere(plant, path):
    """A membership is text from outside: it never leaves the mount."""
    root = plant("cgroup_v2.tree")
    (root / "proc/self/cgroup").write_text(f"0::{path}\n")
    group = memory_group(root=root)
    assert group is None or root / "sys/fs/cgroup" in (group.folder, *group.folder.parents)


def test_limits_of_a_process():
    """Soft limits in bytes; unlimited is None."""
    text = (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        "Max locked memory         8388608              8388608              bytes     \n"
        "Max address space         2684354560           unlimited            bytes     \n"
        "Max resident set          unlimited            unlimited            bytes     \n"
    )
    assert parse_limits(text) == {
        "Max locked memory": 8 * MIB,
        "Max address space": 2560 * MIB,
        "Max resident set": None,
    }


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2"}, "WSL2"),
        ({"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft"}, "WSL1"),
        ({".dockerenv": ""}, "container (docker)"),
        ({"run/.containerenv": ""}, "container (podman)"),
        ({"proc/1/cgroup": "0::/kubepods/besteffort/pod1/abc"}, "container (kubepods)"),
        ({"proc/1/environ": "PATH=/bin\0container=lxc\0"}, "container (lxc)"),
        (
            {"sys/class/dmi/id/product_name": "Standard PC", "sys/class/dmi/id/sys_vendor": "QEMU"},
            "virtual machine (QEMU)",
        ),
        ({"proc/cpuinfo": "flags\t: fpu vme hypervisor lahf_lm"}, "virtual machine"),
        ({"proc/cpuinfo": "flags\t: fpu vme"}, None),
    ],
)
def test_where_it_runs(tmp_path, files, says):
    """Each kind of place by its own sign; none is None."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert virtualisation(root=tmp_path) == says


def test_this_machine_is_read_for_real():
    """The real machine agrees with psutil, and the limits of a real process are its own."""
    code = "import resource, time; resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30)); print(1, flush=True); time.sleep(30)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        host = read_host(child.pid, busy_window_s=0.05)
        child.kill()
    assert host.ram_bytes == psutil.virtual_memory().total
    assert host.cores == os.cpu_count()
    assert abs(host.ram_available_bytes - psutil.virtual_memory().available) < GIB
    if sys.platform == "linux":
        assert host.address_space_limit_bytes == 3 << 30
        assert host.major_faults is not None


def test_a_machine_without_files_is_unknown_not_wrong(tmp_path):
    """Nothing readable: None and a note, no error."""
    host = read_host(root=tmp_path)
    assert (host.ram_bytes, host.swap_used_bytes, host.cgroup_limit_bytes, host.pressure_some_percent) == (
        None,
        None,
        None,
        None,
    )
    assert any("meminfo" in note for note in host.notes)


def test_a_busy_process_is_found_and_the_server_is_not(monkeypatch):
    """Who takes much of a core is named; the server under test is not "someone else"."""
    monkeypatch.setattr("probes.gpu.host.BUSY_CPU_PERCENT", 4.0)  # on a crowded machine nobody gets half a core
    with subprocess.Popen(
        [sys.executable, "-c", "print(1, flush=True)\nwhile True: pass"], stdout=subprocess.PIPE
    ) as child:
        try:
            child.stdout.readline()
            deadline = time.monotonic() + 10
            found = []
            while not found and time.monotonic() < deadline:
                found = [one for one in busy_processes(None, None, window_s=0.3, most=1000) if one.pid == child.pid]
            assert found
            assert found[0].cpu_percent >= 4
            assert not [one for one in busy_processes(child.pid, None, window_s=0.1, most=1000) if one.pid == child.pid]
        finally:
            child.kill()


def test_host_counters_over_recorded_files(tmp_path):
    """Available memory, swap in use, and what swapped since boot, in bytes."""
    files = {
        "proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable:    400 kB\nSwapTotal: 2048 kB\nSwapFree: 1024 kB\n",
        "proc/vmstat": "nr_free_pages 1\npswpin 10\npswpout 20\npgmajfault 7\n",
        "proc/pressure/memory": PSI.decode(),
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    watch = HostWatch(root=tmp_path)
    watch.open()
    tick = watch.tick(full=True)
    watch.close()
    page = os.sysconf("SC_PAGE_SIZE")
    assert (tick.available, tick.swap_used, tick.swap_in, tick.swap_out) == (400 * 1024, MIB, 10 * page, 20 * page)
    assert (tick.stall_some_us, tick.stall_full_us, tick.pressure) == (987654321, 123456789, 12.34)
    assert watch.tick(full=True).available is None
