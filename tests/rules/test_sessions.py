"""What a session's evidence comes to: live servers as the probes record them, judged by all rules, with and without a person to ask."""

from __future__ import annotations

import pytest

from probes.evidence.answers import Answer
from probes.evidence.events import LogEvent, LogSummary
from probes.evidence.machine import BufferTruth, DeviceReadings, HostReading, MemoryBudget
from probes.evidence.records import Evidence, EvidenceSet, found, not_found
from probes.evidence.request import CacheReuse, Launch, ProcessEnded, RequestError, TruncationReading
from probes.evidence.rungs import CanaryScore, DepthHit, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, Setting, WindowReading
from rules.catalogue import judge_evidence
from rules.engine import STRONG
from rules.facts import KV_SMALLER_TYPE_SET
from rules.verdict import next_step

GIB = 2**30
MODES = ("session", "run")


def configuration(**settings) -> Evidence:
    values = {name: Setting(value=value, source="process") for name, value in settings.items()}
    return found(Configuration(settings=values, command=("llama-server",)), source="process")


def host() -> list[Evidence]:
    return [
        found(
            HostReading(
                os="Linux 6.1",
                cores=2,
                ram_bytes=16 * GIB,
                ram_available_bytes=12 * GIB,
                swap_total_bytes=0,
                swap_used_bytes=0,
            ),
            source="machine",
        ),
        found(DeviceReadings(devices=(), when="before-run", sources=("nvml",)), source="machine"),
    ]


def model(trained=32768, base=1_000_000.0) -> list[Evidence]:
    file = ModelFile(
        path="m.gguf",
        format="gguf",
        size_bytes=240_000_000,
        header_hash="00",
        architecture="gemma3",
        trained_window=trained,
        layers=18,
        rope_freq_base=base,
        sliding_window=512,
        weights_bytes=230_000_000,
        kv_bytes_per_token=1024.0 * 18,
    )
    return [found(file, source="file"), found(ModelIdentity(name="m", trained_window=trained), source="server")]


def server(asked, per_slot, slots, trained=32768, unified=None) -> list[Evidence]:
    window = WindowReading(trained=trained, per_slot=per_slot, slots=slots, in_force=per_slot, unified=unified)
    return [found(BackendIdentity(name="llama.cpp", version="b11434"), source="server"), found(window, source="server")]


def rung(tokens, hit=None, asked=18, result="passed", error_kind=None, tps=500.0, depths=()) -> Evidence:
    canaries = None if hit is None else CanaryScore(hit=hit, asked=asked, by_depth=depths)
    return found(
        RungResult(
            rung=tokens,
            input_tokens=tokens,
            attempt=1,
            result=result,
            error_kind=error_kind,
            canaries=canaries,
            cold=True,
            cached_tokens=0,
            prefill_tps=tps if result == "passed" else None,
            generation_tps=60.0 if result == "passed" else None,
        ),
        source="measured",
    )


def recall(base, at=1024, asked=27, able=True) -> Evidence:
    return found(RecallBase(style="completion", at_tokens=at, hit=base, asked=asked, able=able), source="measured")


def refused(window) -> list[Evidence]:
    sent = int(window * 1.15) + 64
    return [
        found(
            RequestError(error="exceeds-window", status=400, prompt_tokens=sent, window=window),
            source="measured",
            origin="truncation",
        ),
        found(TruncationReading(verdict="refused", sent=sent, processed=sent, window=window), source="measured"),
    ]


def load_log(
    freq_base=1_000_000.0, trained_base=1_000_000.0, scale=1.0, window=4096, slots=1, kv="f16"
) -> list[Evidence]:
    events = [
        LogEvent(event="rope", line=1, key="freq_base_train", value=trained_base),
        LogEvent(event="rope", line=2, key="freq_scale_train", value=1),
        LogEvent(event="rope", line=3, key="freq_base", value=freq_base),
        LogEvent(event="rope", line=4, key="freq_scale", value=scale),
        LogEvent(event="slots", line=5, count=slots),
        LogEvent(event="window", line=6, which="per-slot", tokens=window),
        LogEvent(
            event="kv-cache",
            line=7,
            which="base",
            tokens=window,
            layers=18,
            streams=slots,
            type_k=kv,
            type_v=kv,
            size_bytes=18 * 1024 * window * slots,
        ),
        LogEvent(event="flash-attention", line=8, on=None, reason="auto"),
        LogEvent(event="buffer", line=9, device="CPU", component="compute", size_bytes=300_000_000),
    ]
    return [
        found(LogSummary(log="server.log", lines=300, size_bytes=30_000, verbose_load_lines=True), source="log")
    ] + [found(e, source="log") for e in events]


def told(symptom, **answers) -> list[Evidence]:
    return [
        found(Answer(question=q, value=v), source="user", origin=q) for q, v in {"symptom": symptom, **answers}.items()
    ]


def bands(evidence, mode="session"):
    judgement, facts = judge_evidence(EvidenceSet(evidence), mode)
    return judgement, {f.cause: f.band for f in judgement.findings}, facts


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("base", [0, 5])
def test_a_cache_of_few_bits_is_not_named_for_what_the_model_cannot_do(mode, base):
    """Law: the setting alone is no harm, and the score of a model that cannot do the test at a short length shows none."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        *load_log(kv="q4_0"),
        configuration(ctx=4096, parallel=1, kv_type_k="q4_0", kv_type_v="q4_0"),
        recall(base, able=False),
        rung(3800, base),
        *told("forgetting"),
    ]
    judgement, band, facts = bands(evidence, mode)
    assert facts.value(KV_SMALLER_TYPE_SET) is True
    finding = next(one for one in judgement.findings if one.cause == "kv-quant-quality")
    assert finding.now < STRONG, [(str(one.clue.words), one.now) for one in finding.clues]
    assert band["kv-quant-quality"] != "likely"
    assert not judgement.named


HEALTHY = [
    *host(),
    *model(),
    *server(4096, 4096, 1),
    configuration(ctx=4096, parallel=1),
    *load_log(),
    recall(26),
    rung(1024, 17),
    rung(2048, 18),
    rung(3072, 17),
    rung(3900, 16),
    *refused(4096),
    found(
        CacheReuse(prefix_tokens=1000, cached_on_repeat=999, cached_on_extension=990, switched_off_works=True),
        source="measured",
    ),
    found(LadderPlan(rungs=(1024, 2048, 3072, 3900), target=3900, output_tokens=48), source="measured"),
    found(Launch(command=("llama-server",), healthy=True, seconds=2.0), source="process"),
    found(
        MemoryBudget(
            basis="planner",
            ctx=4096,
            buffers=(
                BufferTruth(device="CPU", component="kv", size_bytes=18 * 1024 * 4096),
                BufferTruth(device="CPU", component="compute", size_bytes=300_000_000),
            ),
        ),
        source="file",
    ),
    found(
        MemoryBudget(
            basis="log",
            ctx=4096,
            buffers=(
                BufferTruth(device="CPU", component="kv", size_bytes=18 * 1024 * 4096),
                BufferTruth(device="CPU", component="weights", size_bytes=230_000_000),
            ),
        ),
        source="log",
    ),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "symptom", [None, "immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky"]
)
def test_a_healthy_server_gives_nothing_likely(mode, symptom):
    """Whatever symptom is claimed: where everything was measured and is right, no cause is likely."""
    judgement, found_bands, _ = bands(HEALTHY + (told(symptom) if symptom else []), mode)
    assert judgement.named == ()
    assert [c for c, band in found_bands.items() if band == "likely"] == []


@pytest.mark.parametrize("mode", MODES)
def test_slots_that_divide_the_window_are_named(mode):
    """Window, slots, command line and refusal agree: the share by slots is named, nothing else."""
    evidence = [
        *host(),
        *model(),
        *server(8192, 2048, 4),
        configuration(ctx=8192, parallel=4),
        *load_log(window=2048, slots=4),
        recall(26, at=512),
        rung(512, 17),
        rung(1024, 18),
        rung(1900, 17),
        *refused(2048),
        found(LadderPlan(rungs=(512, 1024, 1900), target=8000, output_tokens=48), source="measured"),
    ]
    judgement, _, _ = bands(evidence + told("fixed-length-error"), mode)
    assert judgement.named == ("slots-divide-ctx",)


@pytest.mark.parametrize("mode", MODES)
def test_a_window_capped_at_the_training_is_named(mode):
    """More was asked for than the model was trained for, and the trained window is in force."""
    evidence = [
        *host(),
        *model(trained=2048),
        *server(8192, 2048, 1, trained=2048),
        configuration(ctx=8192, parallel=1),
        *load_log(window=2048),
        recall(26, at=512),
        rung(512, 17),
        rung(1024, 18),
        rung(1900, 17),
        *refused(2048),
        found(LogEvent(event="window-capped", line=20, tokens=2048, of=8192, reason="trained"), source="log"),
    ]
    judgement, _, _ = bands(evidence + told("fixed-length-error"), mode)
    assert judgement.named == ("ctx-capped-by-engine",)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("with_log", [True, False])
def test_a_wrong_position_base_is_named(mode, with_log):
    """The log's or the command line's base differs from the file's, and recall is harmed: the setting is named, not the model."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        configuration(ctx=4096, parallel=1, rope_freq_base=10000.0),
        recall(19),
        rung(1024, 14),
        rung(2048, 10),
        rung(3072, 7),
        rung(3900, 5),
        *refused(4096),
        *(load_log(freq_base=10000.0) if with_log else []),
    ]
    judgement, found_bands, _ = bands(evidence + told("forgetting"), mode)
    assert judgement.named == ("rope-scaling-misuse",)
    assert found_bands["effective-context-quality"] != "likely"


@pytest.mark.parametrize("mode", MODES)
def test_a_wrong_scale_that_leaves_nothing_to_measure_is_still_named(mode):
    """Where positions are so wrong that the model cannot do the test at all, the values alone have to do."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        configuration(ctx=4096, parallel=1, rope_freq_scale=0.1),
        recall(3, able=False),
        rung(1024, 2),
        rung(3900, 0),
        *refused(4096),
        *load_log(scale=0.1),
    ]
    judgement, _, _ = bands(evidence + told("forgetting"), mode)
    assert judgement.named == ("rope-scaling-misuse",)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_that_is_weaker_at_length_is_named_only_where_the_rest_is_known_to_be_right(mode):
    """Recall that falls is the model's where positions, cache and counts are known and right; where positions are unknown, nothing is named."""
    curve = [recall(26), rung(1024, 17), rung(2048, 14), rung(3072, 9), rung(3900, 6), *refused(4096)]
    known = [*host(), *model(), *server(4096, 4096, 1), configuration(ctx=4096, parallel=1), *load_log(), *curve]
    judgement, _, _ = bands(known + told("forgetting"), mode)
    assert judgement.named == ("effective-context-quality",)
    blind = [*server(4096, 4096, 1), not_found(Configuration, "not-offered", "another machine"), *curve]
    judgement, found_bands, _ = bands(blind + told("forgetting"), mode)
    assert judgement.named == ()
    assert found_bands["rope-scaling-misuse"] in {"possible", "open"}


@pytest.mark.parametrize(
    ("limit", "component", "size", "cause", "mode"),
    [
        (5 * GIB // 2, "kv", 131072 * 18 * 1024, "kv-cache-size", "run"),
        (5 * GIB // 2, "kv", 131072 * 18 * 1024, "kv-cache-size", "session"),
        (int(0.4 * GIB), "weights", 230_000_000, "weights-leave-no-room", "run"),
        (int(0.6 * GIB), "weights", 230_000_000, "weights-leave-no-room", "run"),
    ],
)
def test_a_start_that_fails_for_memory_names_what_did_not_fit(mode, limit, component, size, cause):
    """The last allocation that was asked for, and its size against the limit, tell weights from cache."""
    command = ("llama-server", "-c", "131072")
    evidence = [
        *host(),
        *model(trained=131072),
        configuration(ctx=131072),
        found(BackendIdentity(name="llama.cpp"), source="process"),
        found(
            Launch(command=command, healthy=False, exit_code=1, seconds=1.0, address_space_limit_bytes=limit),
            source="process",
        ),
        found(
            LogEvent(event="alloc-failed", line=30, device="CPU", component=component, api="cpu", size_bytes=size),
            source="log",
        ),
        found(LogEvent(event="load-failed", line=31, text="failed to load model"), source="log"),
    ]
    judgement, _, _ = bands(evidence + told("immediate-oom"), mode)
    assert judgement.named == (cause,)


@pytest.mark.parametrize("mode", MODES)
def test_a_low_bit_cache_is_disputed_with_the_model_until_more_bits_were_tried(mode):
    """Few bits and recall that falls: the cache is possible, and not named by itself."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        configuration(ctx=4096, parallel=1, kv_type_k="q4_0", kv_type_v="q4_0"),
        *load_log(kv="q4_0"),
        recall(22),
        rung(1024, 16),
        rung(2048, 14),
        rung(3072, 9),
        rung(3900, 6),
        *refused(4096),
    ]
    judgement, found_bands, _ = bands(evidence + told("forgetting"), mode)
    assert found_bands["kv-quant-quality"] in {"possible", "likely"}
    assert "effective-context-quality" not in judgement.named
    better, _, _ = bands(evidence + told("forgetting", cache_more_bits="cures"), "session")
    assert better.findings[0].cause == "kv-quant-quality"


def test_a_window_beyond_the_training_is_cut_before_any_lever_that_costs():
    """A million tokens asked of a model for 32768: the free change is to ask for what it can use; no cause about answers is named."""
    evidence = [
        *host(),
        *model(),
        configuration(ctx=1048576),
        found(BackendIdentity(name="llama.cpp"), source="process"),
        found(
            Launch(command=("x",), healthy=False, exit_code=1, seconds=1.0, address_space_limit_bytes=2 * GIB),
            source="process",
        ),
        found(LogEvent(event="window", line=1, which="per-slot", tokens=1048576), source="log"),
        found(
            LogEvent(event="alloc-failed", line=30, device="CPU", component="kv", api="cpu", size_bytes=3 * GIB),
            source="log",
        ),
    ]
    judgement, found_bands, facts = bands(evidence + told("immediate-oom"), "run")
    assert judgement.named == ("kv-cache-size",)
    assert found_bands["rope-scaling-misuse"] not in {"likely", "possible"}
    step = next_step(judgement, facts)
    assert (step.variable, step.to, step.cost.quality, step.cause) == ("ctx", 32768, "none", "kv-cache-size")


@pytest.mark.parametrize(
    ("setting", "value", "variable"),
    [
        ("rope_freq_base", 10000.0, "rope_freq_base"),
        ("rope_freq_scale", 0.25, "rope_freq_scale"),
        ("rope_scale", 4.0, "rope_scale"),
    ],
)
def test_a_wrong_position_setting_is_taken_out_by_its_own_name(setting, value, variable):
    """One variable: the one that was set, from its value to nothing."""
    evidence = [
        *model(),
        *server(4096, 4096, 1),
        configuration(ctx=4096, **{setting: value}),
        recall(19),
        rung(1024, 14),
        rung(3900, 5),
    ]
    judgement, _, facts = bands(evidence + told("forgetting"), "run")
    step = next_step(judgement, facts)
    assert (step.variable, step.start, step.to) == (variable, value, None)


@pytest.mark.parametrize("mode", MODES)
def test_a_run_that_was_cut_short_says_nothing_of_recall(mode):
    """Where only a length near the base was answered, nobody has looked whether recall falls; the wrong base is named by its value."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        configuration(ctx=4096, parallel=1, rope_freq_base=10000.0),
        *load_log(freq_base=10000.0),
        recall(26, at=160),
        rung(185, 16),
        *refused(4096),
    ]
    judgement, _, _ = bands(evidence + told("forgetting"), mode)
    assert judgement.named == ("rope-scaling-misuse",)


def test_a_server_that_died_in_the_middle_is_judged_on_what_is_there():
    """A lost process is evidence: judging goes on, and says why it names nothing."""
    evidence = [
        *host(),
        *model(),
        *server(4096, 4096, 1),
        rung(1024, 17),
        rung(3000, None, result="died", error_kind="connection-lost"),
        found(ProcessEnded(signal="SIGKILL", during="rung 3000 attempt 1", at_prompt_tokens=3000), source="machine"),
    ]
    judgement, _, facts = bands(evidence, "run")
    assert judgement.named == ()
    assert judgement.abstained_because is not None
    assert facts.refused == ()


def test_the_start_of_a_cut_prompt_is_what_is_lost():
    """Depths tell a cut from a weak model: what stood first is gone, what stood last is found."""
    depths = tuple(DepthHit(depth=d / 10, hit=d >= 6) for d in range(1, 10)) * 2
    evidence = [recall(26, at=512), rung(512, 17), rung(4000, 8, depths=depths), rung(8000, 8, depths=depths)]
    _, _, facts = bands(evidence)
    from rules.facts import RECALL_START_LOST

    assert facts.value(RECALL_START_LOST) is True
