"""vLLM's log, as a real start prints it: whose it is, its window and pool, its settings, and why it did not start."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.cli import command_line
from diagnose.run_logs import _without_ours
from diagnose.triage import gather
from probes.evidence.records import EvidenceSet
from probes.evidence.request import TruncationReading
from probes.evidence.subject import Configuration
from probes.logs import read_log, tail_events
from probes.logs.pasted import kind_of
from probes.logs.rule import FAILURES
from probes.logs.told import settings_told

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
STARTED, REFUSED = RECORDED / "vllm-0.32.0-cpu.log", RECORDED / "vllm-0.32.0-cpu-refused.log"
ARGS = "(APIServer pid=1) INFO 11-30 03:40:00 [api_utils.py:286] non-default args: "


def events(path):
    found = {}
    for one in read_log(path):
        found.setdefault(one.event, []).append(one)
    return found


def test_a_real_start_tells_its_version_window_and_pool_with_their_times():
    """The version stands beside a name drawn of blocks; the pool is of whatever device it runs on."""
    told = events(STARTED)
    assert {(one.name, one.version) for one in told["program"]} == {("vllm", "0.32.0")}
    [window] = told["window"]
    assert (window.which, window.tokens, window.time) == ("per-slot", 4096, "11-30 03:45:28")
    size, pool = told["kv-pool"]
    assert (size.size_bytes, size.device, size.key) == (1 << 30, "CPU", "available")
    assert (pool.tokens, pool.of, pool.value, pool.device) == (4_194_304, 4096, 1024, "CPU")
    speeds = {(one.phase, one.tps) for one in told["timing"]}
    assert ("prefill", 444.5) in speeds
    assert [one.similarity for one in told["cache-reuse"]][-1] == 0.051
    assert [one.value for one in told["memory-use"]][-1] == 0.0


def test_a_traceback_is_one_failure_whose_last_line_says_what_it_is():
    """Each of its lines is printed as an error of its own; those within it are none."""
    errors = [one for one in read_log(STARTED) if one.event in FAILURES]
    assert len(errors) == 2
    assert "greater than max allowed" in errors[-1].text


def test_a_start_that_is_refused_for_its_cache_says_so_with_what_would_fit():
    """The reason, and that it did not start; not that an engine crashed."""
    told = events(REFUSED)
    assert {(one.component, one.tokens, one.limit) for one in told["alloc-failed"]} == {("kv", 8192, 3968)}
    assert len(told["load-failed"]) == 1
    assert "crash" not in told


def test_a_log_with_long_tracebacks_is_a_log_and_a_report_with_one_is_a_report():
    """A traceback's lines are no prose, and a person's words around one stay a report."""
    text = REFUSED.read_text("utf-8")
    assert kind_of(text) == "log"
    trace = text[text.index("Process EngineCore") :]
    said = "My server does not start any more.\nI have changed the window and the model, and it was fine before.\n"
    assert kind_of(f"{said}What is wrong with it? This is the end of what it prints:\n{trace}{said}") == "report"


def test_triage_of_it_has_the_settings_as_its_command():
    """What it prints of its settings at each start is as good as its command line."""
    evidence = EvidenceSet(gather([str(REFUSED)]).evidence)
    [told] = [one for record, one in evidence.of(Configuration) if record.source == "log"]
    assert told.command[:3] == ("vllm", "serve", "/models/tiny")
    assert {name: told.settings[name].value for name in ("ctx", "parallel", "kv_bytes", "eager")} == {
        "ctx": 8192,
        "parallel": 4,
        "kv_bytes": "1048576",
        "eager": True,
    }


def test_settings_that_were_cut_off_are_read_without_claiming_that_they_are_all():
    """The command is known only where the line is whole; of two starts the newer one counts."""
    whole = "{'model_tag': 'q', 'max_model_len': 131072, 'kv_cache_dtype': 'fp8', 'enable_prefix_caching': False, "
    whole += "'speculative_config': {'method': 'ngram', 'num_speculative_tokens': 3}}"
    event, told = settings_told(tail_events(f"{ARGS}{{'max_model_len': 5}}\n{ARGS}{whole}", "log"))
    assert event.line == 2
    values = {name: one.value for name, one in told.settings.items()}
    assert values == {
        "model_path": "q", "ctx": 131_072, "kv_type_k": "fp8", "kv_type_v": "fp8", "cache_prompt": False, "speculation": "ngram",
        "draft_n_max": 3,
    }  # fmt: skip
    _event, told = settings_told(tail_events(ARGS + whole[:60], "log"))
    assert (told.command, {name: one.value for name, one in told.settings.items()}) == (
        None,
        {"model_path": "q", "ctx": 131_072},
    )
    assert settings_told(tail_events(f"{ARGS}{{'dtype': <object at 0x7f>, ", "log")) is None


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=300))
def test_whatever_stands_there_is_read_or_left(text):
    """Law: nothing that a log prints as settings raises."""
    settings_told(tail_events(ARGS + "{" + text, "log"))


ENGINE = "(APIServer pid=1) INFO 11-30 03:46:47 [loggers.py:335] Engine 000: Avg prompt throughput: 2150.3 tokens/s, Avg generation throughput: 31.0 tokens/s, "


@pytest.mark.parametrize(
    "rest",
    [
        "Running: 3 reqs, Waiting: 5 reqs, Preemptions: 2, GPU KV cache usage: 98.7%, Prefix cache hit rate: 12.5%",
        "Running: 3 reqs, Waiting: 5 reqs, Deferred: 1 reqs, Preemptions: 2, CPU KV cache usage: 98.7%, Prefix cache hit rate: 12.5%, MM cache hit rate: 3.0%",
        "Running: 3 reqs, Waiting: 5 reqs, KV fetch: 1 waiting to start, 0 in progress, 2 completed, Preemptions: 2, XPU KV cache usage: 98.7%, Prefix cache hit rate: 12.5%",
    ],
)
def test_the_parts_of_a_throughput_line_come_and_go(rest):
    """Queue, pool, cache and preemptions are told whatever else stands between them, of any device."""
    told = {one.event: one for one in tail_events(ENGINE + rest, "log")}
    assert (told["queue"].count, told["queue"].of) == (3, 5)
    assert told["preempted"].count == 2
    assert told["memory-use"].value == pytest.approx(0.987)
    assert told["cache-reuse"].similarity == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("Auto-fit max_model_len: reduced from 131072 to 33312 to fit in available KV cache memory (4.07 GiB GPU)", "window-capped", {"of": 131_072, "tokens": 33_312, "reason": "fit"}),
        ("Auto-fit max_model_len: full model context length 8192 fits in available KV cache memory (4.07 GiB GPU)", "window", {"tokens": 8192, "which": "per-slot"}),
        ("ValueError: Available memory on node 0 (3.20/19.96 GiB) on startup is less than desired CPU memory utilization (0.92, 18.36 GiB). On the CPU backend", "alloc-failed", {"device": "CPU", "reason": "held by others at start"}),
        ("ValueError: Available memory on node 0 (3.20/19.96 GiB) on kv cache allocation is less than requested memory for kv (4.00 GiB). Decrease", "alloc-failed", {"component": "kv", "device": "CPU"}),
        ("WARNING 11-30 03:40:00 [cpu.py:158] VLLM_CPU_KVCACHE_SPACE not set. Using 11.75 GiB for KV cache.", "kv-pool", {"size_bytes": round(11.75 * (1 << 30))}),
        ("SpecDecoding metrics: Mean acceptance length: 2.40, Accepted throughput: 7.00 tokens/s, Drafted throughput: 15.00 tokens/s, Accepted: 70 tokens, Drafted: 150 tokens, Per-position acceptance rate: 0.600, 0.500, 0.300, Avg Draft acceptance rate: 46.7%", "speculation", {"accepted": 70, "count": 150}),
        ("This model's maximum context length is 4096 tokens. However, your prompt contains 163840 characters (more than 16384 characters, which is the upper bound for 4096 input tokens).", "refused", {"limit": 4096, "tokens": None}),
        ("You passed 4093 input tokens and requested 4 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4092 tokens.", "refused", {"limit": 4096, "tokens": None}),
        ("You passed 5000 input tokens and requested 4 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4092 tokens.", "refused", {"limit": 4096, "tokens": 5000}),
        ("You passed 163840 input characters and requested 4 output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4092 tokens (at most 16368 characters).", "refused", {"limit": 4096, "tokens": None}),
        ("This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, which exceeds this limit", "refused", {"limit": 4096, "tokens": None}),
        ("max_tokens=9000cannot be greater than max_model_len=max_total_tokens=4096. Please request fewer output tokens.", "refused", {"limit": 4096, "reason": "output budget"}),
    ],
)  # fmt: skip
def test_other_lines(line, kind, fields):
    """In the words of the sources of 0.16 and 0.32."""
    [told] = [one for one in tail_events(line, "log") if one.event == kind]
    assert {name: getattr(told, name) for name in fields} == fields
    assert re.fullmatch(r"vllm", told.dialect)


def test_triage_of_a_refused_start_names_the_cache_and_the_window_that_fits(tmp_path, monkeypatch, capsys):
    """In the words of its own command where that was printed, else of its flag."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    bare = tmp_path / "bare.log"
    bare.write_text("".join(line for line in REFUSED.read_text("utf-8").splitlines(True) if "non-default" not in line))
    for path, command in (
        (REFUSED, "vllm serve /models/tiny"),
        (bare, "Add this to the command that starts the server: --max-model-len 3968"),
    ):
        command_line(["triage", str(path), "--format", "json", "--quiet"])
        told = json.loads(capsys.readouterr().out)
        assert told["verdict"]["named"] == ["kv-cache-size"], path
        assert (told["next_test"]["variable"], told["next_test"]["to"]) == ("ctx", 3968)
        assert command in told["next_test"]["command"]
        assert "3968" in told["next_test"]["command"]


def test_an_engine_that_dies_says_why_and_its_health_is_no_limit(tmp_path):
    """Of 0.16: the kernel's words are the reason; that /health answers 503 from then on turns nobody away."""
    told = events(RECORDED / "vllm-0.16.0-cpu-crash.log")
    assert {one.reason for one in told["kernel-error"]} == {"head_dim=32 isa=0"}
    assert {one.key for one in told["crash"]} == {"engine"}
    assert {(one.name, one.version) for one in told["program"]} == {("vllm", "0.16.0")}
    assert [one.tokens for one in told["kv-pool"]] == [4_194_304, None]
    assert "http" not in told
    refused = 'INFO:     127.0.0.1:50234 - "POST /v1/completions HTTP/1.1" 503 Service Unavailable'
    [one] = tail_events(refused, "log")
    assert (one.event, one.status) == ("http", 503)


@pytest.mark.parametrize(("before", "kept"), [(0, 0), (1, 1)])
def test_a_refusal_that_a_probe_asked_for_is_none_of_the_servers_troubles(before, kept):
    """Law: the last refusals without a length are our own overlong prompts; those before them stay."""
    line = "You passed 4093 input tokens and requested {n} output tokens. However, the model's context length is only 4096 tokens, resulting in a maximum input length of 4092 tokens."
    told = [tail_events(line.format(n=n), "log")[0].model_copy(update={"line": n}) for n in range(1, before + 2)]
    ours = TruncationReading(verdict="refused", window=4096, sent=4758)
    assert [one.line for one in _without_ours(told, [ours])] == list(range(1, kept + 1))
    assert _without_ours(told, []) == told
