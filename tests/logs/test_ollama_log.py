"""Ollama's real log (0.33.0-rc2, its llama-server's lines among its own): what each line says, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.evidence.events import LogEvent
from probes.logs import collect_log, tail_events

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
SLOG = "time=2026-11-30T07:15:38.279Z level=WARN source=x.go:1 msg="

REDUCED = (
    '"llama-server load failed; reducing automatic context and retrying once" model=/m old_num_ctx=32768 effective_num_ctx=32768 '
    'new_num_ctx=4096 old_num_batch=512 new_num_batch=512 loaded_count=0 evict_all=false error="cudaMalloc failed: out of memory"'
)


def of_kind(events: list[LogEvent], kind: str) -> list[LogEvent]:
    return [event for event in events if event.event == kind]


def test_the_recorded_load_and_its_answers():
    """A real log: the window of one request (its llama-server is started with one for each slot), the cut, the refusals, a runner that died."""
    events, summary = collect_log(RECORDED / "ollama-0.33.0-rc2-ok.log")
    assert {one.name for one in of_kind(events, "program")} - {None} == {"ollama"}
    windows = {(one.which, one.tokens) for one in of_kind(events, "window")}
    assert {("default", 4096), ("asked", 2048), ("per-slot", 2048), ("in-force", 4096), ("trained", 8192)} <= windows
    assert ("asked", 4096) not in windows
    assert {one.count for one in of_kind(events, "slots")} - {None} == {2}
    assert [(one.tokens, one.kept) for one in of_kind(events, "truncated")] == [(2703, 1026), (3017, 1026)]
    assert {(one.tokens, one.limit) for one in of_kind(events, "refused")} == {(2703, 2048), (3017, 2048)}
    crash = of_kind(events, "crash")
    assert crash
    assert {one.reason for one in crash} == {"signal: segmentation fault"}
    assert not of_kind(events, "load-failed") + of_kind(events, "alloc-failed")
    assert summary.verbose_load_lines


def test_the_recorded_loads_that_failed():
    """A setting that was no number, a client that went away while a model was loaded (no failure of the load), and a file that is broken."""
    events, _summary = collect_log(RECORDED / "ollama-0.33.0-rc2-bad.log")
    ignored = of_kind(events, "config-ignored")
    assert {(one.key, one.value) for one in ignored} == {("OLLAMA_CONTEXT_LENGTH", "abc")}
    assert len(of_kind(events, "cancelled")) >= 2
    assert not of_kind(events, "timeout")
    failed = of_kind(events, "load-failed")
    assert failed
    assert all("exceeds file size" in one.reason for one in failed)
    assert not of_kind(events, "crash")


def test_the_recorded_load_without_memory():
    """What failed and how large it was stand in the child's lines and again in Ollama's; that the child gave up then is no crash."""
    events, _summary = collect_log(RECORDED / "ollama-0.33.0-rc2-oom.log")
    failed = of_kind(events, "alloc-failed")
    assert failed
    assert {one.component for one in failed} == {"compute"}
    assert failed[0].size_bytes == pytest.approx(629_219_360, rel=1e-4)
    assert not of_kind(events, "crash")


@pytest.mark.parametrize(
    ("line", "kind", "fields"),
    [
        # sched.go: on an accelerator that had no room for the window that was taken by itself
        (REDUCED, "window-capped", {"of": 32_768, "tokens": 4096, "reason": "fit"}),
        ('"llama-server load failed; reducing automatic context and retrying once" error="exited"', "window-capped", {"tokens": None}),
        (
            '"llama-server model predicted to exceed available memory, evicting" predicted="9.0 GiB" predicted_num_ctx=8192 num_batch=512 available="8.0 GiB"',
            "fit",
            {"size_bytes": 9 << 30, "free_bytes": 8 << 30, "tokens": 8192},
        ),
        ('"llama-server model predicted to exceed available memory, evicting" predicted="9.0 GiB"', "memory-use", {"key": "evicting"}),
        ('"llama-server process no longer running" sys=11 string="signal: segmentation fault"', "crash", {"key": "runner"}),
        ('"llama-server terminated" error="exit status 0xc0000005" exit=0xc0000005', "crash", {"key": "runner"}),
        # so it ends each runner that it unloads
        ('"llama-server terminated" error="signal: killed" exit=unknown', "crash", None),
        ('"llama-server terminated" error="exit status 1" exit=1', "crash", None),
        ('"invalid environment variable, using default" key=OLLAMA_NUM_PARALLEL value=two default=1', "config-ignored", {"key": "OLLAMA_NUM_PARALLEL", "value": "two"}),
        ('"invalid environment variable, using default" key=OLLAMA_MAX_TRANSFER_STREAMS value=x default=4', "config-ignored", None),
        ('"model architecture does not currently support parallel requests" architecture=qwen35', "slots", {"count": 1}),
        ('"llama-server started in 3.25 seconds"', "model-loaded", {"seconds": 3.25}),
        ('"runtime OOM detected; expiring loaded models to clear memory before next request" model=/m error="out"', "memory-use", {"key": "evicting"}),
    ],
)  # fmt: skip
def test_lines_of_its_source(line, kind, fields):
    """Lines that this machine could not make it say, as its source writes them (v0.33.0-rc2: server/sched.go, llm/llama_server.go, envconfig)."""
    found = of_kind(list(tail_events(SLOG + line)), kind)
    if fields is None:
        assert not found
        return
    assert found
    assert {name: getattr(found[0], name) for name in fields} == fields


def test_slots_do_not_divide_what_was_asked_for():
    """The runner of a model with a window of 8192 for four requests at once is started with 32768."""
    line = '"starting llama-server" cmd="/usr/lib/ollama/llama-server --model /m --port 1 -c 32768 -np 4 --flash-attn auto"'
    events = list(tail_events(SLOG + line))
    assert [one.tokens for one in of_kind(events, "window")] == [8192]
    assert [one.count for one in of_kind(events, "slots")] == [4]
