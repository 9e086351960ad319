"""What each kind of evidence says as facts: windows, positions, allocations, recall, counts, speed, cache, machine."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.answers import Answer
from probes.evidence.damage import ChainScore
from probes.evidence.events import LogEvent
from probes.evidence.machine import Device, DeviceProcess, DeviceReadings, HostReading, SampledPeaks, ServerMemory
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import (
    CacheReuse,
    Completion,
    ConcurrencyTrial,
    FailingLength,
    Launch,
    ProcessEnded,
    RequestError,
    TruncationReading,
)
from probes.evidence.rungs import CanaryScore, RecallBase, RungResult
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, Setting, WindowReading
from rules import facts as f
from rules.catalogue import facts_of
from rules.derive.numbers import fisher_less, ratio
from rules.derive.settings import backend_name, bits_of
from rules.derive.speed import change_point

GIB = 2**30
LLAMA = found(BackendIdentity(name="llama.cpp"), source="server")


def facts(*payloads, source="measured"):
    evidence = [
        p if not hasattr(p, "kind") or p.__class__.__name__ == "Evidence" else found(p, source=source) for p in payloads
    ]
    return facts_of(EvidenceSet(evidence))


def command(**settings_):
    return found(
        Configuration(
            settings={k: Setting(value=v, source="process") for k, v in settings_.items()}, command=("llama-server",)
        ),
        source="process",
    )


def answers(**given_):
    return [found(Answer(question=q, value=v), source="user", origin=q) for q, v in given_.items()]


def event(kind, **more):
    return found(LogEvent(event=kind, line=1, **more), source="log", origin="log:1")


@pytest.mark.parametrize(
    ("asked", "per_slot", "slots", "trained", "unified", "divided", "share"),
    [
        (8192, 2048, 4, 32768, None, True, 0.25),
        (8192, 8192, 1, 32768, None, False, 1.0),
        (8192, 8192, 4, 32768, True, False, 1.0),
        (131072, 40960, 4, 40960, True, False, 0.3125),
        (10000, 2560, 4, 32768, None, True, 0.256),
    ],
)
def test_windows_are_compared(asked, per_slot, slots, trained, unified, divided, share):
    """A share by slots, within the rounding of blocks, is told from a cap and from a shared pool."""
    window = WindowReading(
        asked=asked, per_slot=per_slot, slots=slots, trained=trained, in_force=per_slot, unified=unified
    )
    got = facts(found(window, source="server"))
    assert got.value(f.WINDOW_IS_DIVIDED) is divided
    assert got.value(f.WINDOW_SHARE_OF_ASKED) == pytest.approx(share)
    assert got.value(f.WINDOW_IN_FORCE_IS_TRAINED) is (per_slot == trained)


@pytest.mark.parametrize(
    ("unified", "per_slot", "divided"),
    [(False, 3072, True), (None, 3072, True), (True, 6144, False), (False, 6144, False)],
)
def test_a_log_alone_tells_a_divided_window(unified, per_slot, divided):
    """Law: without a command line, what was made for all slots together is the whole; the trained window is not."""
    lines = [
        LogEvent(event="window", line=1, text="n_ctx = 6144", dialect="llamacpp", which="in-force", tokens=6144),
        LogEvent(event="window", line=2, text="n_ctx_train", dialect="llamacpp", which="trained", tokens=16384),
        LogEvent(event="window", line=3, text="new slot", dialect="llamacpp", which="per-slot", tokens=per_slot),
        LogEvent(event="slots", line=4, text="n_slots = 2", dialect="llamacpp", count=2, unified=unified),
    ]
    assert facts(*lines, source="log").value(f.WINDOW_IS_DIVIDED) is divided


@pytest.mark.parametrize(("asked", "expected"), [(None, 65536), (65000, 65000)])
def test_a_log_alone_tells_that_more_was_asked_than_the_model_has(asked, expected):
    """Law: a window above the trained one was asked for by somebody; a command line that is known says it exactly."""
    lines = [
        LogEvent(event="window", line=1, text="n_ctx = 65536", dialect="llamacpp", which="in-force", tokens=65536),
        LogEvent(
            event="window-capped", line=2, text="capping", dialect="llamacpp", reason="trained", tokens=16384, of=32768
        ),
        LogEvent(event="slots", line=3, text="n_slots = 2", dialect="llamacpp", count=2, unified=False),
    ]
    told = [] if asked is None else [found(WindowReading(asked=asked), source="process")]
    got = facts(*told, *[found(line, source="log") for line in lines])
    assert got.value(f.WINDOW_ASKED) == expected
    assert got.value(f.WINDOW_IN_FORCE) == 16384
    assert got.value(f.WINDOW_DIFFERS) is True


def test_a_window_that_nobody_set_is_known_from_a_known_command_line():
    """An absent flag of a command line that was read means: not set."""
    assert facts(LLAMA, command()).value(f.WINDOW_SET) is False
    assert facts(LLAMA, command(ctx=4096)).value(f.WINDOW_SET) is True
    assert facts(LLAMA).value(f.WINDOW_SET) is None


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        (("llama-server", "-m", "m.gguf"), True),
        (("env", "GGML_X=1", "llama-server"), True),
        (("/opt/start.sh",), False),
        (("bash", "-e", "start.sh"), False),
        (("cmd", "/c", "START.BAT"), False),
    ],
)
def test_what_a_script_does_not_show_may_be_set_inside(line, whole):
    """Of a server's own command line what is absent is not set; of a script that starts it nobody knows."""
    got = facts(LLAMA, found(Configuration(settings={}, command=line), source="process"))
    assert got.value(f.WINDOW_SET) is (False if whole else None)
    assert got.value(f.ROPE_SET) is (False if whole else None)
    assert got.value(f.PROMPT_CACHE_ON) is (True if whole else None)


def model_file(**more):
    values = {
        "path": "m",
        "format": "gguf",
        "size_bytes": 10**8,
        "header_hash": "0",
        "trained_window": 32768,
        "rope_freq_base": 1e6,
        **more,
    }
    return found(ModelFile(**values), source="file")


@pytest.mark.parametrize(
    ("settings_", "base", "scale", "wrong"),
    [
        ({"rope_freq_base": 10000.0}, 0.01, 1.0, True),
        ({"rope_freq_scale": 0.5}, 1.0, 0.5, True),
        ({"rope_scale": 4.0}, 1.0, 0.25, True),
        ({"rope_freq_base": 0.0}, 1.0, 1.0, False),
        ({}, 1.0, 1.0, False),
        ({"rope_freq_base": 1e6}, 1.0, 1.0, False),
    ],
)
def test_positions_are_compared_with_the_file(settings_, base, scale, wrong):
    """Base and scale of the command line against the file's; what is not set is the file's own; zero stands for that too."""
    got = facts(
        LLAMA,
        command(ctx=4096, **settings_),
        model_file(),
        found(WindowReading(in_force=4096, trained=32768), source="server"),
    )
    assert got.value(f.ROPE_BASE_RATIO) == pytest.approx(base)
    assert got.value(f.ROPE_SCALE_RATIO) == pytest.approx(scale)
    assert got.value(f.ROPE_WRONG) is wrong


def test_scaling_beyond_the_training_is_what_scaling_is_for():
    """A window of four times the training with a scale of a quarter is no mistake; without it, scaling is missing."""
    beyond = found(WindowReading(in_force=131072, trained=32768), source="server")
    scaled = facts(LLAMA, command(rope_freq_scale=0.25, rope_scaling="yarn"), model_file(), beyond)
    assert scaled.value(f.ROPE_WRONG) is False
    assert scaled.value(f.ROPE_MISSING) is False
    bare = facts(LLAMA, command(), model_file(), beyond)
    assert bare.value(f.ROPE_MISSING) is True


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ([], 0),
        ([event("buffer", device="CUDA0", component="kv", size_bytes=2**30)], None),
        ([event("device-found", device="CUDA0", name="RTX", total_bytes=2**34, free_bytes=2**33)], 1),
        ([event("layers-offloaded", count=3, of=33)], None),
    ],
)
def test_a_log_whose_places_are_all_the_hosts_shows_that_no_accelerator_is_in_use(more, count):
    """Weights and work on the host, and nothing elsewhere: none is in use, and nothing can spill from a card. One line of a card says otherwise."""
    host = [
        event("buffer", device="CPU_Mapped", component="weights", size_bytes=2**30),
        event("buffer", device="CPU", component="compute", size_bytes=2**28),
    ]
    got = facts(*host, *more)
    assert got.value(f.DEVICE_COUNT) == count
    assert facts(host[1]).value(f.DEVICE_COUNT) is None


YARN = {"rope_scaling": "yarn", "rope_scale": 2.0, "yarn_orig_ctx": 8192}


@pytest.mark.parametrize("told", ["file", "log", "neither"])
@pytest.mark.parametrize("scale", [{"rope_scale": 2.0}, {"rope_freq_scale": 0.5}])
def test_a_training_length_that_a_server_stretched_is_not_the_models_own(told, scale):
    """A server with YaRN tells its stretched window as the trained one: the model's own length judges, and where nobody tells that, nothing is judged."""
    own = {
        "file": [model_file(trained_window=8192)],
        "log": [
            event("window", which="trained", tokens=8192, key="n_ctx_train"),
            event("window", which="stretched", tokens=16384, key="yarn"),
            event("rope", key="freq_scale", value=0.5),
            event("rope", key="freq_scale_train", value=1.0),
        ],
        "neither": [],
    }[told]
    got = facts(
        LLAMA,
        command(ctx=16384, **{**YARN, "rope_scale": None, **scale}),
        *own,
        found(ModelIdentity(name="m", trained_window=16384), source="server"),
        found(WindowReading(in_force=16384, trained=16384), source="server"),
    )
    assert got.value(f.WINDOW_TRAINED) == (None if told == "neither" else 8192)
    assert got.value(f.ROPE_WRONG) is (None if told == "neither" else False)
    assert got.value(f.ROPE_MISSING) is (None if told == "neither" else False)


@pytest.mark.parametrize(
    ("window", "more", "wrong"),
    [
        (16384, {}, False),
        (12288, {}, False),
        (8192, {}, True),
        (4096, {"rope_scale": 4.0}, True),
        (32768, {}, None),
        (16384, {"yarn_orig_ctx": 4096}, None),
        (16384, {"rope_scale": 0.5}, None),
    ],
)
def test_scaling_is_right_where_the_window_needs_it_and_it_reaches(window, more, wrong):
    """By the file's own length: wrong within it; right where length times scale covers the window; neither where it does not reach or starts elsewhere."""
    settings_ = {**YARN, **more}
    got = facts(
        LLAMA,
        command(ctx=window, **settings_),
        model_file(trained_window=8192),
        found(WindowReading(in_force=window, trained=round(8192 * settings_["rope_scale"])), source="server"),
    )
    assert got.value(f.WINDOW_TRAINED) == 8192
    assert got.value(f.ROPE_WRONG) is wrong


def test_the_log_tells_positions_without_a_command_line():
    """Load lines give base and scale, in force and trained."""
    got = facts(event("rope", key="freq_base", value=10000.0), event("rope", key="freq_base_train", value=1e6))
    assert got.value(f.ROPE_BASE_RATIO) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("f16", 16),
        ("BF16", 16),
        ("q8_0", 8.5),
        ("q4_0", 4.5),
        ("fp8_e4m3", 8),
        ("iq4_nl", 4.5),
        ("turbo3", 3.5),
        ("q7_9", 7),
        ("kvarn3", 3),
        ("int16", 16),
        ("weird", None),
        ("weird9", None),
    ],
)
def test_bits_of_cache_types(name, bits):
    """Every type that servers know, and a first digit where it is a new one."""
    assert bits_of(name) == bits


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Ollama", "ollama"),
        ("LM Studio", "lm-studio"),
        ("oMLX (mlx)", "mlx-other"),
        ("vMLX (mlx)", "mlx-other"),
        ("TabbyAPI (exllamav2)", "tabbyapi"),
        ("mlx_lm", "mlx_lm"),
        ("FreeToken", "other"),
        ("llama.cpp", "llama.cpp"),
        ("KoboldCpp", "koboldcpp"),
    ],
)
def test_servers_by_any_spelling(said, name):
    """People and logs spell servers in their own way."""
    assert backend_name(said) == name


def test_cache_types_are_sixteen_bits_where_a_known_command_line_sets_none():
    """Unset is known there, and only there."""
    assert facts(LLAMA, command()).value(f.KV_BITS) == 16
    assert facts(LLAMA).value(f.KV_BITS) is None
    mixed = facts(LLAMA, command(kv_type_k="q8_0", kv_type_v="q4_0"))
    assert (mixed.value(f.KV_BITS), mixed.value(f.KV_TYPES_DIFFER), mixed.value(f.V_QUANTISED)) == (4.5, True, True)


def test_the_allocation_that_failed_is_the_largest_with_its_component():
    """Several lines about one failure are one: size, component, free and place."""
    got = facts(
        event("alloc-failed", device="CUDA0", api="cuda", size_bytes=10 * GIB, free_bytes=4 * GIB),
        event("alloc-failed", device="CUDA0", component="compute", size_bytes=1 * GIB),
        event("buffer", device="CUDA0", component="kv", size_bytes=2 * GIB),
        *answers(gpu_gib=24.0),
    )
    assert got.value(f.ALLOC_COMPONENT) == "compute"
    assert got.value(f.ALLOC_BYTES) == 10 * GIB
    assert got.value(f.ALLOC_ROOM) is False
    assert got.value(f.ALLOC_OVER_LIMIT) is False
    assert got.value(f.COMPUTE_OF_KV) == pytest.approx(5.0)
    assert got.value(f.FAILURE_ABOUT) == "gpu-memory"


def test_a_guard_is_no_limit_of_one_piece():
    """A ceiling over all is another thing than a largest buffer."""
    guard = facts(event("alloc-failed", api="mlx", size_bytes=43, limit_bytes=42, reason="memory guard"))
    assert guard.value(f.ALLOC_OVER_LIMIT) is False
    assert guard.value(f.FAILURE_ABOUT) == "memory-guard"
    piece = facts(
        event("alloc-failed", api="mlx", size_bytes=43, limit_bytes=42, reason="over the largest single allocation")
    )
    assert piece.value(f.ALLOC_OVER_LIMIT) is True
    assert piece.value(f.FAILURE_ABOUT) == "one-piece"


def test_a_start_with_a_limit_gives_the_limit():
    """The address space of a child is the memory that it may use."""
    got = facts(
        Launch(command=("x",), healthy=False, seconds=1, address_space_limit_bytes=GIB),
        event("alloc-failed", api="cpu", component="kv", size_bytes=2 * GIB),
    )
    assert got.value(f.MEMORY_LIMIT_BYTES) == GIB
    assert got.value(f.KV_SHARE) == pytest.approx(2.0)
    assert got.value(f.ALLOC_ROOM) is False
    assert got.value(f.LAUNCH_FAILED) is True
    assert got.value(f.FAILURE_AT_START) is True


def rung(tokens, hit=None, asked=18, *, result="passed", kind=None, prefill=None, attempt=1, cold=True):
    score = None if hit is None else CanaryScore(hit=hit, asked=asked)
    return RungResult(
        rung=tokens,
        input_tokens=tokens,
        attempt=attempt,
        result=result,
        error_kind=kind,
        canaries=score,
        prefill_tps=prefill,
        cold=cold,
    )


@pytest.mark.parametrize(
    ("base", "curve", "sure"),
    [
        ((27, 27), [(4000, 17), (8000, 16)], False),
        ((27, 27), [(4000, 17), (8000, 5)], True),
        ((27, 27), [(4000, 5), (8000, 18)], None),
        ((19, 27), [(4000, 10), (8000, 4)], True),
        ((26, 27), [(8000, 14)], None),
    ],
)
def test_a_drop_is_sure_only_beyond_chance(base, curve, sure):
    """The binomial noise of a few canaries is no drop; a dip that comes back is none; a small one cannot be told."""
    own = RecallBase(style="completion", at_tokens=1024, hit=base[0], asked=base[1], able=True)
    assert facts(own, *(rung(t, h) for t, h in curve)).value(f.RECALL_DROP_SURE) is sure


def test_a_model_that_cannot_do_the_test_has_unknown_recall():
    """Unknown rather than passed or failed, with the reason."""
    own = RecallBase(style="completion", at_tokens=1024, hit=5, asked=27, able=False)
    window = found(WindowReading(in_force=8192, trained=8192), source="server")
    chains = ChainScore(hit=1, asked=8, single_hit=1, single_asked=8, at_tokens=1024, steps=2)
    got = facts(own, rung(8000, 1), window, chains)
    assert got.value(f.RECALL_ABLE) is False
    assert got.value(f.RECALL_HARMED_SHORT) is None
    for fact in (f.RECALL_DROP_SURE, f.CHAINS_RIGHT, f.CHAINS_BREAK):
        assert got.get(fact).why == "failed", fact.id
    able = RecallBase(style="completion", at_tokens=1024, hit=14, asked=27, able=True)
    assert facts(able, rung(8000, 1), window).value(f.RECALL_HARMED_SHORT) is True


@given(st.integers(1, 30), st.integers(1, 30), st.data())
@settings(max_examples=40, deadline=None)
def test_fishers_probability_is_one(asked_a, asked_b, data):
    """It lies in 0…1, and a better score is never less probable than a worse one."""
    hit_a, hit_b = data.draw(st.integers(0, asked_a)), data.draw(st.integers(0, asked_b - 1))
    one, two = fisher_less(hit_a, asked_a, hit_b, asked_b), fisher_less(hit_a, asked_a, hit_b + 1, asked_b)
    assert 0 <= one <= 1 + 1e-9
    assert math.isfinite(two)


@pytest.mark.parametrize(
    ("payload", "half", "seen", "whole"),
    [
        (
            TruncationReading(verdict="truncated", sent=70000, processed=32770, window=65536, rule="half-window"),
            True,
            True,
            False,
        ),
        (TruncationReading(verdict="refused", sent=70000, processed=70000, window=65536), None, False, None),
        (Completion(sent_tokens=5065, prompt_tokens=2048), False, True, False),
        (Completion(sent_tokens=5065, prompt_tokens=5061), False, False, True),
    ],
)
def test_sent_against_processed(payload, half, seen, whole):
    """A cut is seen in the counts, whatever the answer says."""
    got = facts(payload)
    assert got.value(f.TRUNCATED_SEEN) is seen
    assert got.value(f.NOT_CUT) is whole
    if half is not None and got.value(f.PROCESSED_TOKENS) is not None:
        assert got.value(f.PROCESSED_IS_HALF) is half


def test_an_answers_counts_are_read_like_measurements():
    """1026 processed, nothing set: half of a default of 2048 and two."""
    got = facts(*answers(processed_tokens=1026, window_set="not-set"))
    assert got.value(f.PROCESSED_IS_HALF) is True
    assert got.value(f.PROCESSED_IS_DEFAULT) is False


def test_a_refusal_on_purpose_is_no_failure():
    """What the truncation probe sends to be refused says nothing about what went wrong."""
    refusal = found(
        RequestError(error="exceeds-window", prompt_tokens=5000, window=4096), source="measured", origin="truncation"
    )
    got = facts(refusal, found(WindowReading(asked=4096, in_force=4096), source="server"))
    assert got.value(f.FAILURE_ABOUT) is None
    assert got.value(f.REFUSED_OVER_WINDOW) is True
    assert got.value(f.REFUSED_BELOW_ASKED) is False


def test_failing_lengths():
    """The bisection's result stands; rungs give it where there is none."""
    got = facts(FailingLength(longest_passed=70000, shortest_failed=72000, wanted=126000, resolution=256, tried=8))
    assert (got.value(f.PASSED_TOKENS), got.value(f.FAILURE_TOKENS)) == (70000, 72000)
    got = facts(
        rung(8000, 18),
        rung(16000, result="died", kind="connection-lost"),
        rung(16000, result="died", kind="connection-lost", attempt=2),
    )
    assert (got.value(f.PASSED_TOKENS), got.value(f.FAILURE_TOKENS), got.value(f.FAILURE_STABLE)) == (8000, 16000, True)


SMOOTH = [(n, 1 / (0.001 + 2e-8 * n)) for n in (8000, 32000, 64000, 72000, 96000, 126000)]


@pytest.mark.parametrize("fall", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("at", [64000, 72000, 96000])
def test_a_step_is_found_where_it_is(fall, at):
    """Speed that stays below the trend from one length on is a step there; the ordinary slope is none."""
    assert change_point(SMOOTH) is None
    stepped = [(n, s * (fall if n >= at else 1.0)) for n, s in SMOOTH]
    found_at = change_point(stepped)
    assert found_at is not None or at == 64000
    if found_at is not None:
        assert found_at[0] == max(at, 72000)


def test_speed_over_length_leaves_cached_attempts_out():
    """A prompt that came from the cache has no prefill speed."""
    got = facts(rung(8000, prefill=500.0), rung(16000, prefill=9000.0, cold=False), rung(32000, prefill=250.0))
    assert got.value(f.PREFILL_RATIO) == pytest.approx(0.5)
    assert got.value(f.LENGTH_RATIO) == pytest.approx(4.0)


def test_cache_and_slots():
    """What a repeated prompt cost, and what happened to requests together."""
    got = facts(
        CacheReuse(prefix_tokens=1000, cached_on_repeat=1000, cached_on_extension=500, switched_off_works=True),
        ConcurrencyTrial(
            concurrency=4,
            prompt_tokens=600,
            alone_passed=4,
            alone_tried=4,
            together_passed=1,
            together_tried=4,
            errors=(RequestError(error="pool-exhausted"),),
        ),
    )
    assert (got.value(f.CACHED_ON_REPEAT), got.value(f.CACHED_ON_EXTENSION)) == (1.0, 0.5)
    assert got.value(f.TOGETHER_FAILS) is True
    assert got.value(f.POOL_FULL_SEEN) is True


def test_the_machine():
    """Who holds memory, what grew, what was paged."""
    server = DeviceProcess(pid=1, used_bytes=4 * GIB, is_server=True)
    other = DeviceProcess(pid=2, used_bytes=3 * GIB, is_server=False)
    device = Device(
        id="nvidia:0",
        name="card",
        vendor="nvidia",
        total_bytes=24 * GIB,
        free_bytes=20 * GIB,
        processes=(server, other),
    )
    peaks = SampledPeaks(
        phase="rung 8000 attempt 1",
        samples=9,
        seconds=1,
        hz=9,
        shared_peak_bytes={"nvidia:0": 3 * GIB},
        shared_before_bytes={"nvidia:0": GIB},
        swap_peak_bytes=GIB,
        major_faults=7,
        server_before=ServerMemory(rss_bytes=GIB),
        server_after=ServerMemory(rss_bytes=2 * GIB),
    )
    host = HostReading(os="Linux 5.15 microsoft", virtualised="WSL2", ram_bytes=32 * GIB, swap_used_bytes=0)
    got = facts(DeviceReadings(devices=(device,), when="before-load"), peaks, host)
    assert got.value(f.OTHER_VRAM_BYTES) == 3 * GIB
    assert got.value(f.SHARED_GROWTH_BYTES) == 2 * GIB
    assert got.value(f.MAJOR_FAULTS) == 7
    assert got.value(f.SERVER_GROWTH_BYTES) == GIB
    assert got.value(f.OS) == "wsl"
    assert got.value(f.GPU_VENDOR) == ("nvidia",)
    assert got.value(f.DEVICE_FREE_BYTES) == 20 * GIB


def test_a_death_names_its_signal_and_stage():
    """A process that ended during a rung failed while reading."""
    got = facts(ProcessEnded(signal="SIGKILL", during="rung 8000 attempt 1", at_prompt_tokens=8000))
    assert (got.value(f.PROCESS_DIED), got.value(f.EXIT_SIGNAL), got.value(f.FAILURE_STAGE)) == (
        True,
        "SIGKILL",
        "reading",
    )


@given(
    st.lists(
        st.builds(
            LogEvent,
            event=st.sampled_from(
                [
                    "alloc-failed",
                    "buffer",
                    "kv-cache",
                    "window",
                    "window-capped",
                    "rope",
                    "refused",
                    "truncated",
                    "reply",
                    "memory-use",
                    "device-found",
                    "slots",
                    "model-info",
                    "layers-offloaded",
                    "context-shift",
                    "pipeline-copies",
                ]
            ),
            line=st.just(1),
            size_bytes=st.none() | st.integers(-5, 2**62),
            limit_bytes=st.none() | st.integers(-5, 2**62),
            free_bytes=st.none() | st.integers(-5, 2**62),
            total_bytes=st.none() | st.integers(-5, 2**62),
            tokens=st.none() | st.integers(-5, 2**40),
            of=st.none() | st.integers(-5, 2**40),
            kept=st.none() | st.integers(-5, 2**40),
            limit=st.none() | st.integers(-5, 2**40),
            count=st.none() | st.integers(-5, 2**40),
            which=st.none() | st.sampled_from(["per-slot", "trained", "in-force", "asked", "swa", "base"]),
            reason=st.none() | st.text(max_size=20),
            key=st.none() | st.sampled_from(["freq_base", "freq_scale", "n_swa", "file_size", "x"]),
            value=st.none()
            | st.text(max_size=10)
            | st.integers(-10, 2**70)
            | st.floats(allow_nan=False, allow_infinity=False),
            device=st.none() | st.text(max_size=8),
            component=st.none() | st.sampled_from(["weights", "kv", "compute"]),
            type_k=st.none() | st.text(max_size=6),
            streams=st.none() | st.integers(-2, 99),
        ),
        max_size=6,
    )
)
@settings(max_examples=60, deadline=None)
def test_no_log_makes_judging_fall(events):
    """Whatever a log says: values that cannot be are refused and listed, and nothing is raised."""
    got = facts(*(found(e, source="log") for e in events))
    for fact, known in got.known():
        assert fact.admit(known.value, source=known.source).value == known.value


@given(st.floats(allow_nan=True, allow_infinity=True), st.floats(allow_nan=True, allow_infinity=True))
@settings(max_examples=60, deadline=None)
def test_a_ratio_is_a_number_or_nothing(of, to):
    """No division by zero, no infinity, no NaN."""
    value = ratio(of, to)
    assert value is None or not math.isnan(value)


def test_what_speculation_gains_is_bounded_by_the_steps_that_were_made_and_the_time_that_drafting_took():
    """Law: without it each token takes a step, and a step takes no longer than one that checked a draft: so much, and no more, is known."""

    def line(number, kind, **more):
        return found(LogEvent(event=kind, line=number, log="server.log", **more), source="log", origin=f"log:{number}")

    written = line(10, "timing", phase="generation", tokens=101, seconds=5.0)
    accepted = line(13, "speculation", key="acceptance", accepted=40, count=200)
    drafted = line(15, "speculation", key="drafting", of=400, accepted=80, seconds=8.0)
    # 100 tokens in 60 steps: 4 s went into drafting 200 tokens, 1 s into 60 steps; 100 such steps take 1.67 s, and it took 5
    assert facts(written, accepted, drafted).value(f.SPECULATION_GAIN) == pytest.approx(100 * 1.0 / (60 * 5.0))
    assert facts(written, accepted).value(f.DRAFT_ACCEPTED_LONG) == pytest.approx(0.2)
    # with a draft that costs nothing it is what the acceptance gives
    free = line(15, "speculation", key="drafting", of=400, accepted=80, seconds=0.0)
    assert facts(written, accepted, free).value(f.SPECULATION_GAIN) == pytest.approx(100 / 60)
    # an answer of a few tokens, lines far apart or folded, or no log of the time: not known
    short = line(10, "timing", phase="generation", tokens=10, seconds=0.5)
    folded = line(10, "timing", phase="generation", tokens=101, seconds=5.0, count_seen=3, last_line=12)
    assert facts(short, accepted, drafted).value(f.SPECULATION_GAIN) is None
    assert facts(folded, accepted, drafted).value(f.SPECULATION_GAIN) is None
    assert (
        facts(written, line(90, "speculation", key="acceptance", accepted=40, count=200), drafted).value(
            f.SPECULATION_GAIN
        )
        is None
    )
    assert facts(written, accepted).value(f.SPECULATION_GAIN) is None


def test_the_share_of_accepted_drafts_is_read_from_any_line_that_says_it():
    """Law: one server's line counts what was drafted for one answer, another's since it began; both are that share."""
    assert facts(event("speculation", count=200, accepted=50)).value(f.DRAFT_ACCEPTED) == 0.25
    assert facts(event("speculation", of=400, accepted=300)).value(f.DRAFT_ACCEPTED) == 0.75


@pytest.mark.parametrize(
    ("repeated", "extended", "said"),
    [(9, 11, True), (1400, 1400, False), (0, 0, None), (1, 1, None), (1400, 9, None), (700, 300, None)],
)
def test_two_texts_that_part_after_their_first_tokens_were_changed_on_the_way(repeated, extended, said):
    """Law: a cache that gives the first few tokens of each prompt and no more works; none, or half of them, says another thing."""
    reuse = CacheReuse(prefix_tokens=1500, cached_on_repeat=repeated, cached_on_extension=extended, how="counted")
    assert facts(reuse).value(f.BEGINNING_CHANGED) is said


def test_where_every_length_ran_no_failure_is_about_memory():
    """Law: a full-size cache that was asked for and works is no cause of slowness; where lengths failed, or memory is complained of, it stays open."""

    def rung(number, **more):
        kept = {
            "rung": 1000 * number,
            "attempt": number,
            "input_tokens": 1000 * number,
            "output_tokens": 8,
            "result": "passed",
        }
        return RungResult(**{**kept, **more})

    ran = [rung(1), rung(2)]
    assert facts(*ran).value(f.IS_MEMORY_FAILURE) is False
    assert facts(*ran, *answers(symptom="slow-long-context")).value(f.IS_MEMORY_FAILURE) is False
    assert facts(*ran, *answers(symptom="immediate-oom")).value(f.IS_MEMORY_FAILURE) is None
    assert (
        facts(rung(1), rung(2, result="died", error="gone", error_kind="connection-lost")).value(f.IS_MEMORY_FAILURE)
        is not True
    )


def test_a_cache_that_a_draft_shares_the_log_with_is_not_held_against_the_architecture():
    """Law: a log gives the caches of a model and of its draft in the same words; together they say nothing about either."""
    file = model_file(kv_bytes_per_token=65_536)
    buffers = [event("buffer", component="kv", size_bytes=2 * GIB, device="CUDA0")]
    alone = facts(file, command(ctx=16_384, kv_type_k="f16", kv_type_v="f16"), *buffers)
    assert alone.value(f.KV_OVER_EXPECTED) == pytest.approx(2.0)
    drafted = facts(file, command(ctx=16_384, kv_type_k="f16", kv_type_v="f16", draft_model="/m/draft.gguf"), *buffers)
    assert drafted.value(f.SPECULATION) is True
    assert drafted.value(f.KV_OVER_EXPECTED) is None


def test_a_step_of_a_fifth_is_seen_where_it_stays_and_the_readings_before_it_agree():
    """Law: a fifth below the trend is a step where two lengths show it; not where one does, nor where readings scatter as much."""
    lengths = [8_000 * number for number in range(1, 7)]
    trend = [1.0 / (0.001 + 1e-8 * tokens) for tokens in lengths]
    stepped = [
        (tokens, speed * (0.75 if number > 3 else 1.0))
        for number, (tokens, speed) in enumerate(zip(lengths, trend, strict=True))
    ]
    assert change_point(stepped) == (lengths[4], pytest.approx(0.75))
    assert change_point(stepped[:5]) is None
    scattered = [(tokens, speed * (1.1 if number % 2 else 0.92)) for number, (tokens, speed) in enumerate(stepped)]
    assert change_point(scattered) is None


def test_speeds_of_what_is_read_in_no_time_have_no_shape():
    """Law: a tiny model whose speed halves from 1K to 2K tokens in a third of a second is no slow kernel; one that takes a minute may be."""
    quick = [rung(1005, prefill=6309.0), rung(2024, prefill=2776.0), rung(2024, prefill=3442.0, attempt=2)]
    assert facts(*quick).value(f.SPEED_SHAPE) is None
    slow = [rung(8000, prefill=400.0), rung(32000, prefill=60.0)]
    assert facts(*slow).value(f.SPEED_SHAPE) == "steep"


@pytest.mark.parametrize(
    ("dialects", "name"),
    [
        (("llamacpp",) * 9, None),
        (("llamacpp",) * 5 + ("ollama",) * 3, "ollama"),
        (("vllm",) * 3, "vllm"),
        (("vllm",) * 2, None),
        (("generic",) * 9, None),
    ],
)
def test_a_log_without_a_name_is_of_the_server_whose_lines_it_has(dialects, name):
    assert facts(*(event("slots", dialect=one) for one in dialects)).value(f.BACKEND) == name


def test_the_name_that_a_log_or_a_server_gives_counts_more_than_its_lines():
    lines = [event("slots", dialect="ollama") for _ in range(4)]
    assert facts(*lines, event("program", name="koboldcpp", dialect="koboldcpp")).value(f.BACKEND) == "koboldcpp"
    assert facts(*lines, BackendIdentity(name="vllm")).value(f.BACKEND) == "vllm"


def test_lines_that_one_program_quotes_of_another_are_no_sign_of_it():
    assert facts(*(event("refused", dialect="ollama") for _ in range(9))).value(f.BACKEND) is None


@pytest.mark.parametrize(
    ("device", "name", "makers"),
    [
        ("CUDA0", "NVIDIA GeForce RTX 3090", ("nvidia",)),
        ("ROCm0", "AMD Radeon RX 7900 XTX", ("amd",)),
        ("Vulkan0", "Intel(R) Arc(tm) A770", ("intel",)),
        ("Metal", None, ("apple",)),
        ("CUDA0", None, None),
    ],
)
def test_a_logs_devices_name_their_makers(device, name, makers):
    assert facts(event("device-found", device=device, name=name)).value(f.GPU_VENDOR) == makers


def test_measured_devices_count_and_not_those_of_a_log():
    measured = DeviceReadings(
        when="before-load", devices=(Device(id="amd:0", vendor="amd", name="x", total_bytes=GIB),)
    )
    assert facts(measured, event("device-found", device="CUDA0", name="NVIDIA RTX")).value(f.GPU_VENDOR) == ("amd",)


def test_what_a_log_says_of_our_own_unlike_texts_is_no_trouble_with_its_cache():
    """Law: a user's log names the layers; between texts of ours that share nothing a server says the same, until reuse itself was asked."""
    line = event("full-reprocess", reason="swa-or-hybrid")
    assert facts(line).value(f.FULL_REPROCESS_REASON) == "swa"
    assert facts(line, rung(1000)).value(f.FULL_REPROCESS_REASON) is None
    assert facts(line, rung(1000)).value(f.FULL_REPROCESS_SEEN) is True
    reuse = CacheReuse(prefix_tokens=1500, cached_on_repeat=1490, cached_on_extension=0, how="counted")
    assert facts(line, rung(1000), reuse).value(f.FULL_REPROCESS_REASON) == "swa"


def test_a_pool_of_blocks_is_shared_and_may_hold_every_slots_window():
    """vLLM and SGLang make one pool: that is no window of a request, and nobody takes cells of it that holds all of them."""
    given_ = event("window", which="per-slot", key="max_model_len", tokens=4096)
    small, large = (event("kv-pool", tokens=tokens) for tokens in (9000, 16_384))
    four = command(parallel=4)
    told = facts(given_, large, four)
    assert (told.value(f.WINDOW_IN_FORCE), told.value(f.WINDOW_POOL)) == (4096, 16_384)
    assert (told.value(f.WINDOW_UNIFIED), told.value(f.WINDOW_POOL_HOLDS_ALL)) == (True, True)
    assert told.value(f.WINDOW_IS_DIVIDED) is False
    assert facts(given_, small, four).value(f.WINDOW_POOL_HOLDS_ALL) is False
    assert facts(given_, large).value(f.WINDOW_POOL_HOLDS_ALL) is None
    # whatever its size: it was found full
    assert facts(given_, large, four, event("pool-full")).value(f.WINDOW_POOL_HOLDS_ALL) is False
    assert facts(given_, large, command(parallel=1)).value(f.WINDOW_POOL_HOLDS_ALL) is None


def test_a_window_that_was_given_and_never_came_into_force_was_asked_for():
    """The start failed: the window of each request was only ever asked for."""
    given_ = event("window", which="per-slot", key="max_model_len", tokens=131_072)
    told = facts(given_, event("load-failed"))
    assert (told.value(f.WINDOW_ASKED), told.value(f.WINDOW_IN_FORCE)) == (131_072, None)


def test_what_the_server_says_would_fit_is_asked_for_next():
    """vLLM names the longest window that its cache would hold; a whole number of thousands is asked for."""
    refused = event("alloc-failed", component="kv", tokens=131_072, limit=33_312)
    told = facts(event("alloc-failed", component="weights"), refused)
    assert (told.value(f.SERVER_NAMES_WINDOW), told.value(f.SAFE_CTX), told.value(f.SMALLER_WINDOW_WORKS)) == (
        True,
        32_768,
        True,
    )
    assert facts(event("alloc-failed", component="kv")).value(f.SERVER_NAMES_WINDOW) is False
    assert facts(event("alloc-failed", component="kv", tokens=131_072)).value(f.SAFE_CTX) is None
    assert facts(event("alloc-failed", component="compute", tokens=9, limit=3)).value(f.SAFE_CTX) is None


def test_slots_that_are_listed_count_where_nothing_tells_their_number():
    """The highest number of a slot says how many there are at least: what tells the number itself goes before it."""
    listed = event("window", which="per-slot", tokens=512, count=6)
    assert facts(listed).value(f.WINDOW_SLOTS) == 6
    assert facts(listed, event("slots", count=8)).value(f.WINDOW_SLOTS) == 8
    assert facts(event("window", which="per-slot", tokens=512)).value(f.WINDOW_SLOTS) is None


@pytest.mark.parametrize(
    ("status", "seconds_", "known", "round_"),
    [(500, 59.7, 59.7, True), (504, 60.0, 60.0, True), (200, 59.7, None, None)],
)
def test_the_time_of_a_request_that_came_to_nothing_is_when_it_failed(status, seconds_, known, round_):
    told = facts(event("http", status=status, seconds=seconds_))
    assert told.value(f.FAILURE_SECONDS) == known
    assert told.value(f.FAILURE_ROUND_SECONDS) is round_
