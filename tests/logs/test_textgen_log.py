"""text-generation-webui's log: messages wrapped at the width of a terminal, between the lines of its llama-server."""

from __future__ import annotations

from pathlib import Path

import pytest

from probes.logs import collect_log, read_log, tail_events
from probes.logs.machine import program_in

RECORDED = Path(__file__).parent.parent / "recordings" / "logs"


def recorded(name: str) -> list:
    return list(read_log(RECORDED / f"text-generation-webui-4.7.3-{name}.log"))


def test_the_recorded_log_of_its_llama_cpp_loader():
    """Who wrote it, the window that was asked for, each answer with its counts, a prompt that was refused and a chat that was cut."""
    events = recorded("llamacpp")
    assert program_in(events).name == "text-generation-webui"
    assert {
        (one.which, one.tokens) for one in events if one.event == "window" and one.dialect == "text-generation-webui"
    } == {
        ("asked", 4096),
        ("in-force", 4096),
    }
    replies = [(one.tokens, one.count) for one in events if one.event == "reply"]
    assert replies == [(13, 12), (13, 12), (19, 4), (4092, 4)]
    assert any(one.event == "refused" and (one.tokens, one.limit) == (6141, 4096) for one in events)
    cut = next(one for one in events if one.event == "truncated" and one.reason == "messages-dropped")
    assert (cut.tokens, cut.kept) == (6137, 4075)
    assert cut.text.endswith("Increase ctx-size while loading the model to avoid truncation.")
    assert not [one for one in events if one.event == "timing" and one.dialect == "text-generation-webui"]


def test_the_recorded_log_of_its_transformers_loader():
    """What it read of a raw prompt is told by its log alone: the end of 3072 tokens that fits beside the answer."""
    events = recorded("transformers")
    assert [one.tokens for one in events if one.event == "reply"].count(2044) == 2
    assert {(one.which, one.tokens) for one in events if one.event == "window"} == {("in-force", 2048)}
    [error] = [one for one in events if "JSONDecodeError" in one.text]
    assert error.text.endswith("(char 1)")


def test_the_recorded_load_that_failed():
    """Its llama-server says what found no room; text-generation-webui, that it ended."""
    events, _summary = collect_log(RECORDED / "text-generation-webui-4.7.3-oom.log")
    failed = next(one for one in events if one.event == "alloc-failed")
    assert (failed.component, failed.size_bytes) == ("kv", 8_192_000_000)
    mine = next(one for one in events if one.event == "load-failed" and one.dialect == "text-generation-webui")
    assert "terminated unexpectedly with exit code: 1" in mine.text
    assert ("asked", 16_000_000) in {(one.which, one.tokens) for one in events if one.event == "window"}


FRAME = """07:40:58-252846 ERROR    Failed to generate reply (HF)
                         ╭───────── Traceback (most recent call last) ─────────╮
                         │ generate: out of memory                             │
                         ╰─────────────────────────────────────────────────────╯
                         OutOfMemoryError: CUDA out of memory. Tried to
                         allocate 2.50 GiB. GPU 0 has a total capacity of
                         23.68 GiB of which 1.31 GiB is free.
07:40:58-623858 INFO     Output generated in 0.37 seconds (0.00 tokens/s, 0
                         tokens, context 9001, seed 1841505796)
"""


def test_what_stands_below_a_traceback_is_one_message():
    """Memory that ran out, with its numbers on the lines that follow (the form as recorded, the text PyTorch's own)."""
    events = tail_events(FRAME)
    failed = next(one for one in events if one.event == "alloc-failed")
    assert (failed.line, failed.size_bytes, failed.total_bytes) == (
        5,
        2_684_354_560,
        pytest.approx(23.68 * 2**30, rel=1e-4),
    )
    assert not [one for one in events if one.event == "reply"]


def test_only_its_own_further_lines_are_joined():
    """A table that is set in as far, a line that follows without being set in, and one that was cut at the end of a file are what they are."""
    first = "0.00.452.156 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 8192000000\n"
    events = tail_events(
        first
        + " " * 25
        + "and a line that is set in\n"
        + "plain\n" * 20
        + " " * 25
        + "CUDA out of memory. Tried to allocate 2.50 GiB\n"
    )
    assert [(one.line, one.text.startswith("0.00")) for one in events if one.event == "alloc-failed"] == [
        (1, True),
        (23, False),
    ]
    assert all("set in" not in one.text for one in events)
    whole = "07:25:39-621781 INFO     Output generated in 1.00 seconds (12.00 tokens/s, 12 tokens, context 13, seed 0)"
    assert [one.line for one in tail_events(f"{whole}\nplain line\n{whole}") if one.event == "reply"] == [1, 3]
    half = (
        "07:25:39-621781 INFO     Output generated in 1.00 seconds (12.00 tokens/s, 12 tokens,\n"
        + " " * 25
        + "context 13, seed 0)"
    )
    assert [(one.tokens, one.count) for one in tail_events(f"{half}\n") if one.event == "reply"] == [(13, 12)]
    assert [(one.line, one.tokens) for one in tail_events(f"{half}\n{half}\n") if one.event == "reply"] == [
        (1, 13),
        (3, 13),
    ]
