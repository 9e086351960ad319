"""Facts of KoboldCpp: a window that was asked for is no default, and its cache follows the prompts that are sent to it."""

from __future__ import annotations

from typing import Any

from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, Payload, found
from probes.evidence.request import TruncationReading
from probes.evidence.rungs import RungResult
from probes.evidence.subject import Configuration, Setting, WindowReading
from rules import facts as f
from rules.catalogue import facts_of

CUT = TruncationReading(verdict="truncated", sent=2403, processed=2047, window=2048, rule="head-cut")


def facts(*payloads: Payload) -> Any:
    return facts_of(
        EvidenceSet([found(one, source="log" if isinstance(one, LogEvent) else "measured") for one in payloads])
    )


def asked(tokens: int, source: Any) -> Configuration:
    return Configuration(settings={"ctx": Setting(value=tokens, source=source, raw="x")})


def test_a_window_that_was_asked_for_is_no_default():
    """Law: what is cut to the window on the command line was not cut to a default, though the number is one elsewhere."""
    told = WindowReading(per_slot=2048, in_force=2048)
    assert facts(CUT, told, asked(2048, "process")).value(f.PROCESSED_IS_DEFAULT) is False
    assert facts(CUT, told, asked(8192, "process")).value(f.PROCESSED_IS_DEFAULT) is True
    assert facts(CUT, told).value(f.PROCESSED_IS_DEFAULT) is True


def test_its_cache_follows_what_we_send():
    """Law: KoboldCpp's shift in a user's log is one; beside lengths of ours, which differ at their beginning, it says nothing. Others' shifts do."""
    shift = {"event": "context-shift", "line": 5, "count": 18}
    rung = RungResult(rung=581, attempt=1, input_tokens=581, output_tokens=100, result="passed", cold=True)
    its, other = LogEvent(**shift, dialect="koboldcpp"), LogEvent(**shift, dialect="llamacpp")
    window = WindowReading(per_slot=2048, in_force=2048)
    assert facts(its).value(f.CONTEXT_SHIFT_SEEN) is True
    assert facts(its, window, rung).value(f.CONTEXT_SHIFT_SEEN) is False
    assert facts(other, window, rung).value(f.CONTEXT_SHIFT_SEEN) is True


def test_what_is_switched_off_at_the_load_is_off():
    """Law: a log that says that nothing is shifted says that shift is off; it is no shift."""
    off = LogEvent(event="context-shift", line=5, key="off", dialect="koboldcpp")
    assert facts(off).value(f.CONTEXT_SHIFT_ON) is False
    assert facts(off).value(f.CONTEXT_SHIFT_SEEN) is None
