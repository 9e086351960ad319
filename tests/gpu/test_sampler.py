"""Peaks over phases: real memory of a real process, and sources that misbehave."""

import contextlib
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import NoAnswerInTimeError, NotOfferedError
from probes.evidence.machine import SampledPeaks
from probes.gpu import open_sources, read_devices, within
from probes.gpu.base import DeviceSample, DeviceSource
from probes.gpu.host import HostWatch
from probes.gpu.processes import ServerWatch
from probes.gpu.sampler import Sampler
from probes.gpu.spans import MOST_SPANS, Counter, DeviceSpan, Span, fold, peaks_of

MIB = 1 << 20


class Scripted(DeviceSource):
    """A source that does as told at each sample."""

    name = "scripted"

    def __init__(self, *steps):
        self.steps = list(steps)
        self.asked = 0

    @classmethod
    def open(cls):
        return cls()

    def devices(self, holders=None):
        return ()

    def sample(self, server_pids=frozenset(), *, full=False):
        step = self.steps[min(self.asked, len(self.steps) - 1)]
        self.asked += 1
        if isinstance(step, BaseException):
            raise step
        return step() if callable(step) else [DeviceSample("x:0", used_bytes=step, free_bytes=1000 - step)]


@contextlib.contextmanager
def child(code):
    """A real process that takes one line to go on, and says one line when it is done."""
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            process.stdout.readline()

            def go():
                process.stdin.write("\n")
                process.stdin.flush()
                return process.stdout.readline()

            yield process, go
        finally:
            process.kill()


ALLOCATE = "import sys\nprint('ready')\nsys.stdin.readline()\nx = b'x' * 200_000_000\nprint('full')\nsys.stdin.readline()\ndel x\nprint('free')\nsys.stdin.readline()"


def test_the_peak_of_a_real_process_is_seen():
    """A process that takes 200 MB and gives it back: the peak has it, before and after do not; its own pages are told as well."""
    with child(ALLOCATE) as (process, go), Sampler(process.pid, dear_s=0.3) as sampler:
        with sampler.phase("rung 1 attempt 1", rung=1, attempt=1) as phase:
            go()
            deadline = time.monotonic() + 15
            while (phase.peaks.server_peak.uss_bytes or 0) < 195_000_000 and time.monotonic() < deadline:
                time.sleep(0.1)  # its own pages are read seldom, and more seldom on a crowded machine
            go()
        peaks = phase.peaks
    assert peaks.server_peak.rss_bytes - peaks.server_before.rss_bytes >= 195_000_000
    assert peaks.server_after.rss_bytes < peaks.server_before.rss_bytes + 50_000_000
    assert peaks.server_peak.uss_bytes >= 195_000_000
    assert (peaks.rung, peaks.attempt, peaks.phase) == (1, 1, "rung 1 attempt 1")
    assert peaks.host_min_available_bytes > 0
    assert peaks.samples >= 3
    assert 0 < peaks.hz <= peaks.asked_hz == 10


def test_a_peak_between_two_samples_is_seen_by_the_kernels_own_mark():
    """Memory that is taken and given back between two samples: the kernel's high-water mark of the process has it."""
    with child(ALLOCATE) as (process, go), Sampler(process.pid, hz=0.2) as sampler:
        with sampler.phase("load") as phase:
            go()
            go()
        peaks = phase.peaks
    if sys.platform == "linux":
        assert peaks.server_peak.rss_bytes - peaks.server_before.rss_bytes >= 195_000_000


def test_children_of_the_server_count():
    """What the server's children hold is the server's; an ended child takes nothing off the counters."""
    code = f"import subprocess, sys\nprint('ready')\nsys.stdin.readline()\nc = subprocess.Popen([sys.executable, '-c', 'x = b\"x\" * 100_000_000; print(1, flush=True); import time; time.sleep({30})'], stdout=subprocess.PIPE)\nc.stdout.readline()\nprint('full')\nsys.stdin.readline()\nc.kill(); c.wait()\nprint('gone')\nsys.stdin.readline()"
    with child(code) as (process, go):
        watch = ServerWatch(process.pid)
        watch.refresh()
        alone = watch.tick(full=True)
        go()
        watch.refresh()
        both = watch.tick(full=True)
        assert len(watch.pids) == 2
        go()
        after = watch.tick(full=True)
        watch.close()
    assert both.rss - alone.rss >= 95_000_000
    assert after.rss < both.rss - 90_000_000
    assert after.faults >= both.faults >= alone.faults
    assert after.alive


def test_a_server_that_dies_is_seen_to_be_gone():
    """The process ends in the middle: when, and the peaks until then; nothing is raised, also for a child that nobody has waited for."""
    with child(ALLOCATE) as (process, go), Sampler(process.pid) as sampler:
        with sampler.phase("rung") as phase:
            go()
            time.sleep(0.3)
            os.kill(process.pid, signal.SIGKILL)
            time.sleep(0.4)
        peaks = phase.peaks
        assert sampler.latest().server.alive is False
    assert 0.2 <= peaks.server_gone_after_s <= 5
    assert peaks.server_peak.rss_bytes >= 195_000_000
    assert peaks.server_after is None


def test_a_process_that_never_was():
    """A pid of nothing is a server that is gone, from the beginning."""
    with Sampler(2**22 - 3) as sampler, sampler.phase("x") as phase:
        pass
    assert phase.peaks.server_peak is None
    assert phase.peaks.server_gone_after_s is not None


def test_real_major_faults_are_counted(tmp_path):
    """A file that is mapped, pushed out of memory and read again is read from disk: major faults, and bytes read by the server."""
    if sys.platform != "linux":
        pytest.skip("only Linux tells major faults of a process this way")
    path = tmp_path / "model"
    path.write_bytes(os.urandom(32 * MIB))
    code = (
        "import mmap, os, sys\n"
        f"f = os.open({str(path)!r}, os.O_RDONLY)\nos.fsync(f)\nm = mmap.mmap(f, 0, prot=mmap.PROT_READ)\nm.madvise(mmap.MADV_RANDOM)\n"
        "print('ready')\nsys.stdin.readline()\n"
        "os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)\nx = sum(m[i] for i in range(0, len(m), 65536))\n"
        "print('read')\nsys.stdin.readline()"
    )
    assert mmap.PAGESIZE
    with child(code) as (process, go), Sampler(process.pid) as sampler:
        with sampler.phase("prefill") as phase:
            go()
        peaks = phase.peaks
    if not peaks.major_faults and peaks.server_read_bytes == 0:
        pytest.skip("this file system keeps everything in memory")
    assert peaks.major_faults >= 100
    assert peaks.server_after.major_faults - peaks.server_before.major_faults == peaks.major_faults
    assert peaks.server_read_bytes is None or peaks.server_read_bytes >= MIB


# --- phases ---


def test_phases_nest_and_each_has_its_own_peak():
    """A peak in prefill is the rung's as well, but not that of generation."""
    source = Scripted(100)
    with Sampler(None, hz=50, sources=[source]) as sampler, sampler.phase("rung 8192 attempt 1") as rung:
        with sampler.phase("prefill") as prefill:
            source.steps = [700]
            time.sleep(0.1)
            source.steps = [300]
        with sampler.phase("generation") as generation:
            time.sleep(0.05)
    assert rung.peaks.devices_peak_bytes == prefill.peaks.devices_peak_bytes == {"x:0": 700}
    assert rung.peaks.devices_min_free_bytes == {"x:0": 300}
    assert generation.peaks.devices_peak_bytes == {"x:0": 300}
    assert (rung.peaks.devices_before_bytes, generation.peaks.devices_before_bytes) == ({"x:0": 100}, {"x:0": 300})


def test_a_part_is_cut_out_when_its_times_are_known_afterwards():
    """When the first token came is often known only from the answer: the two parts have their own peaks."""
    source = Scripted(100)
    with Sampler(None, hz=50, sources=[source]) as sampler, sampler.phase("rung") as phase:
        source.steps = [900]
        time.sleep(0.3)
        source.steps = [200]
        time.sleep(0.3)
    assert phase.part("prefill", 0.0, 0.25).devices_peak_bytes == {"x:0": 900}
    generation = phase.part("generation", 0.4, 99.0)
    assert (generation.phase, generation.devices_peak_bytes) == ("generation", {"x:0": 200})
    assert generation.seconds <= phase.peaks.seconds - 0.39
    assert phase.part("nothing", 50.0, 60.0).seconds == 0


def test_a_phase_too_short_for_a_tick_still_has_both_ends():
    """The edges are sampled whatever the rate."""
    source = Scripted(5)
    with Sampler(None, hz=0.1, sources=[source]) as sampler:
        phase = sampler.phase("short")
        source.steps = [9]
        phase.end()
        phase.end()
    assert phase.peaks.devices_before_bytes == {"x:0": 5}
    assert phase.peaks.devices_peak_bytes == {"x:0": 9}
    assert phase.peaks.hz <= 0.1


def test_peaks_do_not_change_after_the_end():
    """What was written down stays what it was."""
    source = Scripted(5)
    with Sampler(None, hz=50, sources=[source]) as sampler:
        with sampler.phase("first") as phase:
            pass
        first = phase.peaks
        source.steps = [999]
        time.sleep(0.1)
        assert phase.peaks == first
    assert SampledPeaks.model_validate_json(first.model_dump_json()) == first


def test_an_open_phase_ends_with_the_sampler_and_a_stopped_one_starts_again():
    """Stopping leaves no phase open; the next phase starts sampling again."""
    sampler = Sampler(None, hz=50, sources=[Scripted(1)])
    phase = sampler.phase("x")
    sampler.stop()
    sampler.stop()
    assert phase.ended is not None
    with sampler.phase("y") as again:
        pass
    sampler.stop()
    assert again.peaks.devices_peak_bytes == {"x:0": 1}


def test_another_process_can_be_followed_later():
    """The server is often started after the sampler."""
    with child(ALLOCATE) as (process, go), Sampler(None, hz=50, sources=[]) as sampler:
        with sampler.phase("before") as before:
            pass
        sampler.follow(process.pid)
        with sampler.phase("load") as load:
            go()
    assert before.peaks.server_peak is None
    assert load.peaks.server_peak.rss_bytes >= 195_000_000


def test_the_rate_that_was_reached_is_stated():
    """A source so slow that the rate is not reached: the rate is given as it was, with a note."""

    def slow():
        time.sleep(0.2)
        return [DeviceSample("x:0", used_bytes=1)]

    with Sampler(None, hz=20, sources=[Scripted(slow)]) as sampler, sampler.phase("x") as phase:
        time.sleep(1.2)
    assert phase.peaks.hz < 8
    assert any("times a second instead of 20" in note for note in phase.peaks.notes)


def test_a_dear_source_is_slowed_down_to_the_budget():
    """What costs too much CPU is asked less often: the budget holds, and the rate says so."""

    def burn():
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass
        return [DeviceSample("x:0", used_bytes=1)]

    with Sampler(None, hz=10, sources=[Scripted(burn)]) as sampler:
        time.sleep(0.3)
        with sampler.phase("x") as phase:
            time.sleep(2.5)
    # 20 ms for each of 25 ticks would be 20 % of a core; the two edges are sampled in any case
    assert phase.peaks.samples <= 5


# --- sources that misbehave ---


def test_a_source_that_raises_anything_does_not_stop_the_others():
    """One binding's exception is a note; the other device is sampled."""
    other = Scripted(3)
    with Sampler(None, hz=50, sources=[Scripted(KeyError("symbol")), other]) as sampler, sampler.phase("x") as phase:
        time.sleep(0.1)
    assert phase.peaks.devices_peak_bytes == {"x:0": 3}
    assert any("KeyError" in note for note in phase.peaks.notes)


def test_a_driver_that_hangs_does_not_hang_the_phase():
    """A call that never returns: the phase begins and ends all the same, within a second or so, and says that samples are missing."""
    release = threading.Event()

    def hang():
        release.wait(20)
        return []

    sampler = Sampler(None, hz=50, sources=[Scripted(1, 1, hang)])
    try:
        sampler.start()
        time.sleep(0.2)
        began = time.monotonic()
        with sampler.phase("x") as phase:
            pass
        sampler.stop()
        assert time.monotonic() - began < 6
        assert any("did not answer" in note for note in phase.peaks.notes)
    finally:
        release.set()


def test_opening_and_asking_have_a_deadline():
    """A driver that hangs while it is opened is absent, with the reason; the others are opened."""
    release = threading.Event()
    try:
        with pytest.raises(NoAnswerInTimeError, match="hangs"):
            within(0.05, "a driver", lambda: release.wait(20))
        sources, absent = open_sources(
            deadline_s=0.05, asked={"slow": lambda: release.wait(20), "good": lambda: Scripted(1)}
        )
    finally:
        release.set()
    assert [one.name for one in sources] == ["scripted"]
    assert "did not answer within" in absent["slow"]


def test_without_a_device_it_says_what_was_asked():
    """No GPU: empty devices, the interfaces that were asked, and why each has nothing; nothing heavy is imported for it."""
    readings = read_devices(os.getpid())
    assert readings.absent.keys() <= set(readings.sources)
    assert readings.sources
    code = "import sys, probes.gpu, probes.gpu.sampler; print([name for name in ('pynvml', 'amdsmi', 'winreg') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
        timeout=60,
    )
    assert done.stdout.strip() == "[]"


# --- arithmetic ---


def test_a_counter_that_goes_backwards_is_a_new_beginning():
    """Growth is never negative; the step back is remembered and told."""
    counter = Counter()
    assert [counter.grown(value) for value in (10, 15, None, 3, 8)] == [None, 5, None, 0, 5]
    assert counter.went_back


def test_a_counter_that_went_back_is_told_by_the_phase_in_which_it_did(tmp_path):
    """The machine's swap counter begins anew in the middle: a note of that phase, not of one long after."""
    proc = tmp_path / "proc"
    proc.mkdir()
    (proc / "meminfo").write_text("MemAvailable: 9 kB\nSwapTotal: 100 kB\nSwapFree: 50 kB\n")
    (proc / "vmstat").write_text("x 1\npswpin 700\npswpout 500\n")
    with Sampler(None, hz=50, sources=[], host=HostWatch(root=tmp_path), dear_s=0.1) as sampler:
        with sampler.phase("first") as first:
            (proc / "vmstat").write_text("x 1\npswpin 3\npswpout 510\n")
        time.sleep(0.2)
        with sampler.phase("second") as second:
            (proc / "vmstat").write_text("x 1\npswpin 5\npswpout 510\n")
    page = os.sysconf("SC_PAGE_SIZE")
    assert (first.peaks.swapped_in_bytes, first.peaks.swapped_out_bytes, second.peaks.swapped_in_bytes) == (
        0,
        10 * page,
        2 * page,
    )
    assert any("swapped in went backwards" in note for note in first.peaks.notes)
    assert not any("backwards" in note for note in second.peaks.notes)


def test_growth_before_the_phase_is_not_its_own():
    """The first span is the state before."""
    spans = [
        Span(0, 0.1, grown_faults=1000, server_faults=1000, rss=5),
        Span(0.1, 0.2, grown_faults=3, server_faults=1003, rss=7),
        Span(0.2, 0.3, rss=6),
    ]
    spans[0].high, spans[2].high = 99, 8
    peaks = peaks_of(spans, phase="x", begun=0.1, ended=0.3, asked_hz=10)
    assert (peaks.server_after.rss_bytes, peaks.server_before.rss_bytes) == (6, 5)  # a mark is a peak, not a level
    assert (peaks.major_faults, peaks.server_before.major_faults, peaks.server_peak.rss_bytes) == (3, 1000, 8)


def test_no_span_is_said():
    """A phase without a sample has no peaks and says so."""
    peaks = peaks_of([], phase="x", begun=0, ended=1, asked_hz=10)
    assert peaks.samples == 0
    assert peaks.notes == ("no sample was taken in this phase",)


spans = st.builds(
    Span, start=st.just(0.0), end=st.just(1.0), available=st.none() | st.integers(0, 99), rss=st.none() | st.integers(0, 99), grown_faults=st.none() | st.integers(0, 9),
    devices=st.dictionaries(st.sampled_from("ab"), st.builds(DeviceSpan, used=st.none() | st.integers(0, 99), free=st.none() | st.integers(0, 99), busy_sum=st.integers(0, 9).map(float), busy_count=st.integers(0, 2))),
)  # fmt: skip


@given(st.lists(spans, min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_folding_changes_no_peak(many):
    """A phase of days, folded to stay small, has the same peaks, sums and means as the whole."""

    def told(these):
        return peaks_of(these, phase="x", begun=0, ended=1, asked_hz=10).model_dump()

    folded = fold(list(many))
    assert told(folded) == told(many)
    assert len(folded) <= max(3, len(many) // 2 + 2)


def test_a_long_phase_stays_small():
    """Memory does not grow with the length of a phase."""
    sampler = Sampler(None, sources=[])
    phase = sampler.phase("x")
    for _ in range(MOST_SPANS * 2 + 10):
        sampler._keep(Span(0.0, 1.0, rss=1), sampler._asked)
    assert len(phase.spans) <= MOST_SPANS
    assert phase.peaks.samples >= MOST_SPANS * 2
    sampler.stop()


def test_a_rate_that_makes_no_sense_is_refused():
    """Zero, negative or endless rates are a mistake of the caller."""
    for hz in (0, -1, 1e6, float("nan")):
        with pytest.raises(ValueError, match="rate"):
            Sampler(None, hz)


def test_not_offered_marks_only_that_sources_devices():
    """When one driver goes away, its devices are lost and no other's."""
    other = Scripted(lambda: [DeviceSample("y:0", used_bytes=2)])
    with (
        Sampler(None, hz=50, sources=[Scripted(1, 1, NotOfferedError("away")), other]) as sampler,
        sampler.phase("x") as phase,
    ):
        time.sleep(0.2)
        with sampler.phase("later") as later:
            pass
    assert phase.peaks.devices_lost == later.peaks.devices_lost == {"x:0": "away"}
    assert phase.peaks.devices_peak_bytes["y:0"] == 2


@contextlib.contextmanager
def memory_limit(limit):
    """Give a real memory group with a limit, as a context; skip where this machine allows none."""
    from probes.gpu.host import memory_group

    own = memory_group()
    if own is None or own.limit is not None:
        pytest.skip("no memory group that one below could be made in")
    folder = own.folder / f"ctxdoctor-test-{os.getpid()}"
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("memory groups may not be made here")
    try:
        try:
            (folder / ("memory.max" if own.version == 2 else "memory.limit_in_bytes")).write_text(str(limit))
        except OSError:
            pytest.skip("memory groups may not be limited here")
        yield folder
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                folder.rmdir()
            if not folder.exists():
                break
            time.sleep(0.1)


def test_a_real_kill_for_want_of_memory_is_seen(tmp_path):
    """A process in a group of 80 MiB that takes 200 MB is killed by the kernel: the group's peak, the kill, and when it was gone."""
    if sys.platform != "linux":
        pytest.skip("memory groups are Linux' own")
    with memory_limit(80 * MIB) as folder, child(ALLOCATE) as (process, go):
        try:
            (folder / "cgroup.procs").write_text(str(process.pid))
        except OSError:
            pytest.skip("processes may not be moved between groups here")
        with Sampler(process.pid, hz=50) as sampler, sampler.phase("load") as phase:
            assert go() == ""
            process.wait(10)
            time.sleep(0.1)
        peaks = phase.peaks
    assert process.returncode == -signal.SIGKILL
    assert peaks.oom_kills == 1
    assert peaks.server_gone_after_s is not None
    assert peaks.cgroup_peak_bytes is not None
