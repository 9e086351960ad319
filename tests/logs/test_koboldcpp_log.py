"""What KoboldCpp's console says, in its older and newer words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from probes.evidence.events import LogEvent
from probes.logs import collect_log, tail_events
from probes.logs.told import settings_told

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
NEWER = "[10:22:01] CtxLimit:1912/2048, Init:0.02s, Processed:300 in 3.00s (100.00T/s), Generated:112/512 in 4.00s (28.00T/s), Total:7.02s"
OLDER = "[10:22:01] CtxLimit:11892/12288, Amt:116/512, Init:0.02s, Process:34.76s (338.83T/s), Generate:9.61s (12.07T/s), Total:44.37s"
OLDEST = "CtxLimit:900/4096, Amt:100/100, Init:0.01s, Process:2.00s (2.5ms/T = 400.00T/s), Generate:5.00s (50.0ms/T = 20.00T/s), Total:7.00s (14.29T/s)"


def of_kind(line: str, kind: str) -> list[LogEvent]:
    return [event for event in tail_events(line) if event.event == kind]


@pytest.mark.parametrize(
    ("line", "reply", "prefill", "generation", "reused"),
    [
        (NEWER, (1800, 112, 1912, 2048), (300, 3.0, 100.0), (112, 4.0, 28.0), (1500, 1800)),
        (OLDER, (11776, 116, 11892, 12288), (11778, 34.76, 338.83), (116, 9.61, 12.07), None),
        (OLDEST, (800, 100, 900, 4096), (800, 2.0, 400.0), (100, 5.0, 20.0), None),
    ],
)
def test_the_line_of_an_answer(line, reply, prefill, generation, reused):
    """Prompt, answer, window and both speeds; newer versions say how much was really read, so how much was known already."""
    told = of_kind(line, "reply")[0]
    assert (told.tokens, told.count, told.of, told.limit) == reply
    assert of_kind(line, "window")[0].tokens == reply[3]
    timings = {one.phase: (one.tokens, one.seconds, one.tps) for one in of_kind(line, "timing")}
    assert timings == {"prefill": prefill, "generation": generation}
    assert [(one.tokens, one.of) for one in of_kind(line, "cache-reuse")] == ([reused] if reused else [])


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        ("Load Text Model OK: True", "model-loaded", {}),
        ("Load Text Model OK: False", "load-failed", {}),
        ("Continuous batching: prepared 4 GGUF sequence slots.", "slots", {"count": 4}),
        ("Automatic RoPE Scaling: Using (scale:1.000, base:26000.0).", "rope", {"key": "freq_scale", "value": 1.0}),
        ("Using Custom RoPE scaling (scale:0.500, base:10000.0).", "rope", {"key": "freq_scale", "value": 0.5}),
        ("Model Warmup Failed! (code:-3)", "decode-failed", {"code": -3}),
        ("Context shifting is DISABLED!", "context-shift", {"key": "off"}),
        ("MRope is used, context shift will be disabled!", "context-shift", {"key": "off"}),
        (
            "(Warning! Request max_context_length=32768 exceeds allocated context size of 8192. It will be reduced to fit.",
            "window-capped",
            {"of": 32768, "tokens": 8192, "reason": "request"},
        ),
        (
            "Warning: You are trying to generate text with max_length (1900) near or exceeding max_context_length limit (2048).",
            "truncated",
            {"count": 1900, "limit": 2048, "reason": "answer"},
        ),
        (
            "[10:22:01] BatchRequest:3, Prompt:800, Generated:50/50 in 2.00s (25.00T/s), Stop:0",
            "reply",
            {"tokens": 800, "count": 50},
        ),
    ],
)
def test_its_other_lines(line: str, kind: str, fields: dict[str, Any]):
    """Loads, slots, position scaling, what is ignored, and what a request asks for in vain."""
    event = of_kind(line, kind)[0]
    assert {name: getattr(event, name) for name in fields} == fields


def test_the_options_that_it_prints_tell_the_window_that_was_asked():
    """Without any other line of the start, the options tell it."""
    line = "Namespace(model=['/m/a.gguf'], contextsize=16384, noshift=True, batchsize=512, quantkv='q8_0')"
    assert [(one.which, one.tokens) for one in of_kind(line, "window")] == [("per-slot", 16384), ("asked", 16384)]
    assert of_kind(line, "context-shift")[0].key == "off"
    told = settings_told(tail_events(line))
    assert told is not None
    settings = {name: (one.value, one.source) for name, one in told[1].settings.items()}
    assert (settings["ctx"], settings["kv_type_v"], settings["batch"]) == (
        (16384, "log"),
        ("q8_0", "log"),
        (512, "log"),
    )


def test_a_default_that_is_printed_was_not_asked_for():
    """All options are printed, also those that nobody gave: the default is the window, and nobody asked for it."""
    line = "Namespace(model=['/m/a.gguf'], contextsize=8192, quantkv='f16')"
    assert [(one.which, one.tokens) for one in of_kind(line, "window")] == [("per-slot", 8192)]
    told = settings_told(tail_events(line))
    assert told is not None
    assert "ctx" not in told[1].settings
    assert "context_shift" not in told[1].settings


def test_what_it_asks_of_llama_cpp_is_not_its_window():
    """It asks for room beyond its window, and with several requests for one sequence more than it serves; elsewhere these lines are what they are."""
    inside = (
        "llama_context: n_seq_max     = 5\nllama_context: n_ctx         = 2304\nllama_context: n_ctx_seq     = 2304\n"
    )
    events = list(tail_events(f"Welcome to KoboldCpp - Version 1.116.1\n{inside}"))
    assert {one.which for one in events if one.event == "window"} == {"allocated"}
    assert [one.count for one in events if one.event == "slots"] == [4]
    events = list(tail_events(inside))
    assert {one.which for one in events if one.event == "window"} == {"in-force", "per-slot"}
    assert [one.count for one in events if one.event == "slots"] == [5]


def test_the_recorded_load_and_its_answers():
    """A real log: the window is the one that was asked for, not what llama.cpp within it was asked for; settings, sizes and every answer."""
    events, summary = collect_log(RECORDED / "koboldcpp-1.116.1-ok.log")
    assert {one.version for one in events if one.event == "program"} == {"1.116.1"}
    windows = {(one.which, one.tokens) for one in events if one.event == "window"}
    assert {("asked", 2048), ("per-slot", 2048), ("in-force", 2048), ("trained", 131_072)} <= windows
    assert {tokens for which, tokens in windows if which in {"in-force", "per-slot"}} == {2048}
    told = settings_told(events)
    assert told is not None
    assert {name: told[1].settings[name].value for name in ("ctx", "kv_type_k", "flash_attention", "parallel")} == {
        "ctx": 2048, "kv_type_k": "f16", "flash_attention": "on", "parallel": 1
    }  # fmt: skip
    kv = next(one for one in events if one.event == "kv-cache" and one.tokens)
    assert (kv.tokens, kv.type_k) == (2304, "f16")
    assert not [one for one in events if one.event == "model-info" and one.key == "n_batch"]
    replies = [(one.tokens, one.count, one.limit) for one in events if one.event == "reply"]
    assert (1803, 4, 2048) in replies
    assert (2044, 4, 2048) in replies
    assert any(one.event == "cache-reuse" and (one.tokens, one.of) == (1801, 2044) for one in events)
    assert not [
        one for one in events if one.event in {"load-failed", "alloc-failed", "config-ignored", "generic-error"}
    ]
    assert summary.verbose_load_lines


def test_the_recorded_load_that_failed():
    """A real log of a window whose working buffer found no room: what failed, how large it was, and that nothing was loaded."""
    events, _summary = collect_log(RECORDED / "koboldcpp-1.116.1-oom.log")
    failed = next(one for one in events if one.event == "alloc-failed")
    assert (failed.component, failed.api) == ("compute", "cpu")
    assert failed.size_bytes == pytest.approx(269_760_512, rel=1e-4)
    assert any(one.event == "load-failed" for one in events)
    assert {(one.key, one.value) for one in events if one.event == "rope" and one.key == "freq_base"} >= {
        ("freq_base", 19000.9)
    }
