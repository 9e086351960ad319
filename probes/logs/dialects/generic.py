# ruff: noqa: E501 - a pattern is read and compared best on one line
"""Any program: crashes, errors and warnings that no other dialect knows. An unknown log still says that something went wrong."""

from __future__ import annotations

import re

from probes.evidence.events import EventKind
from probes.logs.rule import Fields, Found, Rule, human_bytes, rule

NAME = "generic"

_DIGITS = re.compile(r"0x[0-9a-fA-F]+|\d+")
_MARKS = re.compile(r"^.*?(?:\b(?:ERROR|WARN(?:ING)?|CRITICAL|FATAL|error|warning|Error|Exception)\b\W*)")


_WITHIN = re.compile(
    r"\[\w{1,60}\.py:\d{1,6}\] (?:\s+\S|Traceback \(most recent|\^+$|(?:raise|return|await|async|with|for) \S)"
)
"""A line of a traceback whose every line was printed as an error of its own: what it is about stands in its last line."""


def _template(match: re.Match[str], fields: Fields) -> Found:
    """Lines that differ only in numbers are of one kind."""
    if _WITHIN.search(match.string[:300]):
        return []
    text = _MARKS.sub("", match.string[:400], count=1) or match.string[:400]
    fields["key"] = " ".join(_DIGITS.sub("#", text).split())[:80]
    kind: EventKind = (
        "generic-warning"
        if re.search(r"\b(?:WARN(?:ING)?|warning|Warning)\b", match.string[: match.end()])
        else "generic-error"
    )
    return [(kind, fields)]


def _memory(match: re.Match[str], fields: Fields) -> Found:
    size = re.search(r"(?:allocate|requested|need\w*|required)\D{0,30}?(\d+(?:\.\d+)? ?[KMGT]i?B)\b", match.string)
    if size is not None:
        fields["size_bytes"] = human_bytes(size[1])
    for component, pattern in _MEANT:
        if re.search(pattern, match.string, re.IGNORECASE):
            fields["component"] = component
            break
    return [("alloc-failed", fields)]


_MEANT = (
    ("kv", r"\bkv[ _-]?cache|kvcache|key.?value cache"),
    ("compute", r"compute buffer|scratch|workspace"),
    ("activation", r"activations?\b"),
    ("projector", r"mmproj|projector|vision (?:tower|encoder)"),
)
"""What a line of any program says that the memory was for."""


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("crash", "panic: ", r"\bpanic: (?P<reason>[^\n]{0,200})", key="panic"),
    rule("crash", ("terminate called", "terminating due to uncaught", "terminating with uncaught", "libc++abi"), r"(?:terminate called after throwing an instance of|uncaught exception of type) '?(?P<reason>[\w:<> ]+)'?|terminate called", key="uncaught"),
    rule("crash", ("Segmentation fault", "SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "core dumped", "Bus error", "Illegal instruction", "0xc0000005", "0xC0000005", "0xc0000409", "Access violation", "ACCESS_VIOLATION"), r"(?P<reason>Segmentation fault|SIG(?:SEGV|ABRT|BUS|ILL)|core dumped|Bus error|Illegal instruction|0x[cC]0000\w{3}|Access violation|ACCESS_VIOLATION)", key="signal"),
    rule("crash", "Assertion", r"Assertion [`'\"]?(?P<reason>.{1,120}?)['\"]? failed|Assertion failed(?:: (?P<reason2>[^\n]{0,120}))?|(?P<reason3>AssertionError[^\n]{0,120})", key="assertion"),
    rule("crash", "Killed", r"^(?:\S+: line \d+:\s+\d+ )?Killed(?:\s+\S.*)?$", key="killed"),
    rule("alloc-failed", ("out of memory", "Out of memory", "Out Of Memory", "OUT_OF_MEMORY", "ot enough memory", "nsufficient memory", "nsufficient VRAM", "ot enough VRAM", "MemoryError", "emory allocation failed", "failed to allocate", "Failed to allocate", "llocation failed", "OOM error", "OOM:", "OutOfMemory"), r"(?i:out of memory|OUT_OF_MEMORY|not enough (?:memory|vram)|insufficient (?:memory|vram)|MemoryError|(?:memory )?allocation failed|failed to allocate|\bOOM(?: error|:)|OutOfMemory)", make=_memory, reason="out of memory"),
    rule("corrupt-output", (" NaN ", "NaN values", "nan values", "logits are NaN"), r"NaN values|nan values|logits are NaN|\bNaN\b.{0,40}\b(?:logits|output|tensor|loss|detected)|\b(?:logits|output|tensor)\b.{0,40}\bNaN\b", level="error"),
    rule("spill", ("shared GPU memory", "sysmem fallback", "System Memory Fallback", "Sysmem Fallback"), r"(?i:shared gpu memory|sys(?:tem )?mem(?:ory)? fallback)"),
    rule("generic-error", ("level=ERROR", "level=FATAL", "level=WARN", " E srv", " E llama", " E ggml", " E common", " W srv", " E slot"), r"level=(?:ERROR|FATAL|WARN)\b|\b\d+\.\d\d\.\d{3}\.\d{3} [EW] ", make=lambda m, f: [(("generic-warning" if "WARN" in m[0] or " W " in m[0] else "generic-error"), {**f, "key": " ".join(_DIGITS.sub("#", re.sub(r"^.*?(?:msg=|[EW] )", "", m.string[:400])).split())[:80]})]),
    rule("generic-error", ("ERROR", "CRITICAL", "FATAL", "Traceback (most recent", "Exception:", "Error:", "error:", "Exception in", "fatal:", "fatal error", "Fatal error", "[error]", '"error"'), r"\bERROR\b|\bCRITICAL\b|\bFATAL\b|Traceback \(most recent|\b\w*(?:Exception|Error): ?\S|\berror: ?\S|Exception in|fatal:|[Ff]atal error|\[error\]|\"error\"", make=_template),
    rule("generic-warning", ("WARNING", "[WARN]", " WARN ", "warning:", "Warning:"), r"\bWARN(?:ING)?\b|\b[Ww]arning: ?\S", make=_template),
)
# fmt: on
