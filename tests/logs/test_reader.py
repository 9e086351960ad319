"""A log is read in constant memory whatever it holds, and every event keeps its line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.errors import BadFileError, CtxDoctorError, InputError
from probes.evidence.events import LogEvent
from probes.logs import LogFollower, collect_log, read_log, tail_events
from probes.logs.dialects import all_rules
from probes.logs.fold import Folder
from probes.logs.scan import Scanner
from probes.logs.source import rotation

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
BAD = "W decode: failed to find a memory slot for batch of size 512"
OOM = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 4096.00 MiB on device 0: cudaMalloc failed: out of memory"
TIMING = "slot print_timing: id  0 | task {n} | prompt eval time = 1000.00 ms / {n:5d} tokens ( 0.90 ms per token,  {n}.00 tokens per second)"


def kinds(events: list[LogEvent]) -> list[str]:
    return [event.event for event in events]


def test_real_llamacpp_load_is_read_whole() -> None:
    events, summary = collect_log(RECORDED / "llamacpp-b0-xllamacpp-2026.10.11549-ok.log")
    assert (summary.lines, summary.verbose_load_lines, summary.incomplete) == (251, True, None)
    by_component = {
        event.component: event.size_bytes for event in events if event.event == "buffer" and event.key is None
    }
    assert by_component["kv"] == 45 << 20
    assert {event.tokens for event in events if event.event == "window" and event.which == "per-slot"} == {1024}
    assert {event.tokens for event in events if event.event == "window" and event.which == "trained"} == {8192}
    refused = next(event for event in events if event.event == "refused")
    assert (refused.tokens, refused.limit) == (1500, 1024)
    assert [round(event.tps or 0, 2) for event in events if event.event == "timing" and event.phase == "prefill"] == [
        29.82,
        2.97,
    ]


def test_real_failed_allocation_is_one_event_with_its_component() -> None:
    events, _summary = collect_log(RECORDED / "llamacpp-b0-xllamacpp-2026.10.11549-oom.log")
    failures = [event for event in events if event.event == "alloc-failed"]
    assert len(failures) == 1
    assert (failures[0].component, failures[0].api, failures[0].size_bytes) == ("kv", "cpu", 7200 << 20)
    assert (failures[0].line, failures[0].last_line) == (149, 152)


def test_real_exhausted_pool_is_told_and_folded() -> None:
    events, summary = collect_log(RECORDED / "llamacpp-b0-xllamacpp-2026.10.11549-unified.log")
    assert summary.counts["pool-full"] == 35
    assert sum(event.event == "pool-full" for event in events) <= 6
    assert any(event.unified for event in events if event.event == "slots")


def test_lines_keep_their_numbers_over_block_borders(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    rng = random.Random(3)
    expected: list[int] = []
    with log.open("w") as file:
        for number in range(1, 60_001):
            if rng.random() < 0.0005:
                expected.append(number)
                file.write(BAD + "\n")
            else:
                file.write("I srv nothing of interest " + "x" * rng.randrange(80) + "\n")
    assert log.stat().st_size > 2 << 20
    assert [event.line for event in read_log(log)] == expected
    _events, summary = collect_log(log)
    assert summary.lines == 60_000
    assert summary.counts == {"pool-full": len(expected)}


def test_frequent_lines_are_counted_exactly_and_failures_among_them_kept(tmp_path: Path) -> None:
    log = tmp_path / "busy.log"
    with log.open("w") as file:
        for number in range(1, 40_001):
            file.write(TIMING.format(n=number) + "\n")
            if number == 33_333:
                file.write(OOM + "\n")
    events, summary = collect_log(log)
    assert summary.counts["timing"] == 40_000
    assert sum(event.count_seen for event in events if event.event == "timing") == 40_000
    assert len(events) < 500
    failure = next(event for event in events if event.event == "alloc-failed")
    assert failure.line == 33_334
    timings = [event for event in events if event.event == "timing"]
    assert timings[0].tokens == 1
    assert timings[-1].tokens == 40_000
    assert timings[-1].line == 40_001


def test_memory_stays_bounded_on_a_large_log(tmp_path: Path) -> None:
    log = tmp_path / "large.log"
    block = "".join(
        TIMING.format(n=number) + "\n" + "0.01 D res send: some chatter that means nothing at all\n" * 4
        for number in range(1, 4000)
    )
    with log.open("w") as file:
        for _ in range(120):
            file.write(block)
    script = (
        # the peak of this program alone: ru_maxrss would begin with that of the process that forked it
        "import re,sys;sys.path.insert(0,'.');from probes.logs import collect_log;"
        f"e,s=collect_log({str(log)!r});"
        "peak=re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1];"
        "print(len(e), int(peak)//1024, s.size_bytes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2]
    )
    count, megabytes, size = map(int, done.stdout.split())
    assert size > 150_000_000
    assert count <= 5000
    assert megabytes < 150


def test_an_endless_line_is_cut_and_reading_goes_on() -> None:
    stream = io.BytesIO(
        b"CUDA error: out of memory " + b"x" * (20 << 20) + b" " + BAD.encode() + b"\n" + BAD.encode() + b"\n"
    )
    events, summary = collect_log(stream, "x.log")
    assert [(event.event, event.line) for event in events] == [("alloc-failed", 1), ("pool-full", 2)]
    assert summary.lines == 2
    assert summary.incomplete is not None


@pytest.mark.parametrize(
    "junk",
    [b"\xff\xfe\xfa\x80 ", b"\x00\x00\x00", b"\x1b[31m\x1b[", "한글 🚀 ".encode(), b"\r\r\r", b"{" * 3000, b"\xc3"],
)
def test_junk_in_front_does_not_hide_a_line(junk: bytes) -> None:
    events, _summary = collect_log(
        io.BytesIO(b"plain first line of a log\n" + junk + b" " + BAD.encode() + b"\n"), "x.log"
    )
    assert kinds(events) == ["pool-full"]
    assert events[0].line == 2


def test_carriage_returns_of_progress_bars_split_lines() -> None:
    text = (
        "Processing Prompt [BLAS] (512 / 3000 tokens)\rProcessing Prompt [BLAS] (1024 / 3000 tokens)\r\n" + BAD + "\r\n"
    )
    events = tail_events(text)
    assert [(event.event, event.tokens, event.line) for event in events] == [
        ("prefill-progress", 512, 1),
        ("prefill-progress", 1024, 1),
        ("pool-full", None, 2),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"GGUF\x03\x00\x00\x00" + bytes(200),
        b"\x7fELF" + bytes(200),
        b"PK\x03\x04" + bytes(200),
        random.Random(1).randbytes(4000),
        b"\x00" * 5000,
    ],
)
def test_binary_files_are_refused_in_one_line(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    with pytest.raises(BadFileError) as caught:
        list(read_log(path))
    assert "\n" not in str(caught.value)
    with pytest.raises(BadFileError):
        collect_log(path)


def test_a_tail_of_nuls_is_a_log_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_bytes((BAD + "\n").encode() * 200 + bytes(30_000))
    _events, summary = collect_log(path)
    assert summary.counts["pool-full"] == 200


def test_missing_folders_and_devices_are_typed_errors(tmp_path: Path) -> None:
    for bad in (tmp_path / "none.log", tmp_path, Path("/dev/zero"), Path("a\0b")):
        if str(bad) == "/dev/zero" and not bad.exists():
            continue
        with pytest.raises(BadFileError):
            list(read_log(bad))
    with pytest.raises(InputError):
        tail_events("x", dialect="klingon")
    with pytest.raises(BadFileError):
        list(read_log(io.StringIO("text")))  # type: ignore[arg-type]


def test_packed_logs_are_read_and_broken_ones_end_with_a_reason(tmp_path: Path) -> None:
    text = (BAD + "\n").encode() * 20_000
    for name, pack in (("x.log.gz", gzip.compress), ("x.log.bz2", bz2.compress), ("x.log.xz", lzma.compress)):
        path = tmp_path / name
        path.write_bytes(pack(text))
        _events, summary = collect_log(path)
        assert summary.counts == {"pool-full": 20_000}
        path.write_bytes(pack(os.urandom(4) + text + os.urandom(200_000).hex().encode())[:-2000])
        _events, summary = collect_log(path)
        assert summary.incomplete is not None


def test_windows_redirection_in_utf16_is_read(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    for encoding in ("utf-16", "utf-16-le", "utf-16-be"):
        path.write_bytes(f"first\r\n{BAD}\r\n".encode(encoding))
        events, _summary = collect_log(path)
        assert [(event.event, event.line) for event in events] == [("pool-full", 2)]


def test_what_is_appended_while_reading_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text((BAD + "\n") * 100)
    events = []
    for event in read_log(path):
        events.append(event)
        with path.open("a") as file:
            file.write((BAD + "\n") * 20_000)
        if len(events) > 200:
            break
    assert len(events) == 100


def test_rotated_files_are_read_oldest_first(tmp_path: Path) -> None:
    for name, size in (("x.log", 1), ("x.log.1", 2), ("x.log.10", 5), ("y.log", 8)):
        (tmp_path / name).write_text(BAD.replace("512", str(size)) + "\n")
    (tmp_path / "x.log.2.gz").write_bytes(gzip.compress(BAD.replace("512", "3").encode()))
    (tmp_path / "x.log.bak").write_text("no")
    assert [path.name for path in rotation(tmp_path / "x.log")] == ["x.log.10", "x.log.2.gz", "x.log.1", "x.log"]
    events, summary = collect_log(tmp_path / "x.log", rotated=True)
    assert summary.files == ("x.log.10", "x.log.2.gz", "x.log.1", "x.log")
    assert summary.counts == {"pool-full": 4}
    assert events[0].log == "x.log.10"


def test_a_follower_sees_new_lines_once_and_survives_rotation(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    follower = LogFollower(path)
    assert follower.new_events() == []
    path.write_text("start\n" + BAD + "\nW decode: failed to find a mem")
    assert [(event.event, event.line) for event in follower.new_events()] == [("pool-full", 2)]
    with path.open("a") as file:
        file.write("ory slot for batch of size 64\n")
    assert [(event.count, event.line) for event in follower.new_events()] == [(64, 3)]
    assert follower.new_events() == []
    path.rename(tmp_path / "server.log.1")
    path.write_text(OOM + "\n")
    assert [(event.event, event.line) for event in follower.new_events()] == [("alloc-failed", 1)]
    path.write_text(BAD)
    assert kinds(follower.close()) == ["pool-full"]
    late = LogFollower(path, from_start=False)
    assert late.new_events() == []


def test_a_second_load_is_news_and_a_repeat_is_not() -> None:
    load = "llama_model_loader: loaded meta data with 33 key-value pairs and 272 tensors from /m/a.gguf (version GGUF V3)\nllama_kv_cache:      CUDA0 KV buffer size =   512.00 MiB\n"
    events, _summary = collect_log(io.BytesIO((load * 2).encode()), "x")
    assert kinds(events) == ["loading", "buffer", "loading", "buffer"]


def test_an_allocation_belongs_to_what_was_being_loaded() -> None:
    load = (
        "llama_model_loader: loaded meta data with 1 key-value pairs and 2 tensors from /m/a.gguf (version GGUF V3)\n"
    )
    assert tail_events(load + OOM)[-1].component == "weights"
    context = load + "llama_context: n_ctx                 = 131072\n"
    assert tail_events(context + OOM)[-1].component == "kv"
    cache = (
        context
        + "llama_kv_cache: size =   27.42 MiB (  1024 cells,  30 layers,  1/1 seqs), K (f16):   17.93 MiB, V (f16):    9.49 MiB\n"
    )
    assert tail_events(cache + OOM)[-1].component == "compute"
    running = cache + "srv  load_model: initializing, n_slots = 1, n_ctx_slot = 1024, kv_unified = 'false'\n"
    assert tail_events(running + OOM)[-1].component is None


def test_the_number_of_events_is_bounded_under_hostile_variety() -> None:
    text = "\n".join(
        f"ggml_gallocr_reserve_n: failed to allocate CUDA{n} buffer of size {n}\n\n\n\n\n\n\n\n\n" for n in range(4000)
    )
    events, summary = collect_log(io.BytesIO(text.encode()), "x", max_events=300)
    assert len(events) <= 300
    assert summary.counts["alloc-failed"] == 4000


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["timing", "alloc-failed", "window", "http"]), st.integers(0, 5), st.integers(0, 3)),
        max_size=400,
    ),
    st.integers(1, 60),
)
def test_folding_loses_no_line_and_keeps_the_bound(rows: list[tuple[str, int, int]], limit: int) -> None:
    folder = Folder(limit)
    for number, (kind, tokens, device) in enumerate(rows, start=1):
        folder.add(LogEvent(event=kind, line=number, tokens=tokens, device=str(device)))
    events = folder.events()
    assert len(events) <= limit
    assert sum(folder.counts.values()) == len(rows)
    if len({(kind, device) for kind, _tokens, device in rows}) <= limit // 2:
        assert sum(event.count_seen for event in events) == len(rows)
    assert [event.line for event in events] == sorted(event.line for event in events)


WORDS = sorted({literal for rule in all_rules() for literal in rule.literals})


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(WORDS),
            st.text(max_size=40),
            st.sampled_from(
                [
                    "=",
                    ": ",
                    "\n",
                    "\r",
                    "\x1b[1m",
                    "99999999999999999999999",
                    "-1",
                    "nan",
                    "(",
                    ")",
                    "{",
                    '"',
                    "\0",
                    " MiB",
                    " tokens",
                ]
            ),
        ),
        max_size=40,
    )
)
def test_no_text_makes_the_reader_raise(pieces: list[str]) -> None:
    text = "".join(pieces)
    for event in tail_events(text, "x"):
        assert 1 <= event.line <= text.count("\n") + 1
        assert len(event.text) <= 500


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=4000))
def test_no_bytes_raise_anything_but_a_typed_error(data: bytes) -> None:
    try:
        _events, summary = collect_log(io.BytesIO(data), "x")
    except CtxDoctorError:
        return
    assert summary.lines >= 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([BAD, "nothing", "", "x" * 300, TIMING.format(n=7)]), min_size=1, max_size=200),
    st.lists(st.integers(1, 5000), max_size=20),
)
def test_blocks_may_be_cut_anywhere(lines: list[str], cuts: list[int]) -> None:
    data = "\n".join(lines).encode()
    scanner = Scanner(WORDS)
    found: list[int] = []
    at = 0
    for cut in [*cuts, len(data)]:
        found.extend(candidate.line for candidate in scanner.feed(data[at : at + cut]))
        at += cut
    found.extend(candidate.line for candidate in scanner.feed(data[at:]))
    found.extend(candidate.line for candidate in scanner.finish())
    assert found == [number for number, line in enumerate(lines, start=1) if line == BAD or line.startswith("slot")]


def test_hostile_regular_expression_input_takes_no_time() -> None:
    lines = [
        "ggml_vulkan: " + "0 = " * 4000,
        "using device " + "(" * 8000,
        "buffer size " + "A" * 60_000,
        'level=ERROR msg="' + "a=" * 20_000,
        "offload to " + 'memory.available="[' + "1 " * 20_000,
        "Tried to allocate " * 3000,
        "timed out after " * 3000,
        "- kv 1: " + "a." * 30_000,
        "context checkpoint size = " * 2000,
        "params_fit: " + "reduced from " * 4000,
        "Avg prompt throughput: " * 3000,
        "compute capability " * 3000,
        "Device 0: " + ", " * 30_000 + "VMM: ",
    ]
    begun = time.perf_counter()
    for line in lines:
        tail_events(line)
    assert time.perf_counter() - begun < 5


def test_a_line_with_two_frequent_words_is_counted_once() -> None:
    line = "srv  log_server_r: done request: POST /v1/chat/completions 127.0.0.1 200\n"
    _events, summary = collect_log(io.BytesIO(line.encode() * 30_000), "x")
    assert summary.counts == {"http": 30_000}
