"""The memory section of a report: prediction beside log, what overflowed, what each change gives; absent where nothing was predicted."""

from __future__ import annotations

import re
from html import unescape

import pytest

from reports import document as doc
from reports.redact import Redactor
from reports.render import render

from .samples import spill

GIB = 1024**3


def document(**changes: object) -> doc.CaseDocument:
    """Give the sample with a prediction in it."""
    values: dict[str, object] = {
        "basis": "log",
        "predicted_ctx": 131072,
        "error_bytes": 300 * 1024**2,
        "longest_window": 98304,
        "limited_by": "nvidia:1",
        "predicted": (doc.ComponentMemory(id="nvidia:1", weights_bytes=4 * GIB, kv_bytes=6 * GIB),),
        "compared": (
            doc.MemoryCompared(
                device="nvidia:1",
                predicted=doc.ComponentMemory(id="#1", weights_bytes=4 * GIB, kv_bytes=6 * GIB),
                logged=doc.ComponentMemory(id="#1", weights_bytes=4 * GIB, kv_bytes=8 * GIB),
                agrees=False,
            ),
        ),
        "overflowed": (
            doc.MemoryLacking(
                device="nvidia:1", component="kv", lacking_bytes=2 * GIB, basis="model", other_split=(20, 12)
            ),
            doc.MemoryLacking(device="CUDA1", component="compute", piece_bytes=GIB // 2, basis="log"),
        ),
        "levers": (
            doc.MemoryLever(lever="baseline", tokens=98304, gain=0, weights_bytes=4 * GIB, context_bytes=6 * GIB),
            doc.MemoryLever(
                lever="kv-q8_0",
                tokens=131072,
                gain=32768,
                weights_bytes=4 * GIB,
                context_bytes=3 * GIB,
                costs_quality=True,
            ),
        ),
        "cache_types": (doc.MemoryCacheType(kv="q4_0", tokens=131072), doc.MemoryCacheType(kv="q5_1", refused=True)),
        **changes,
    }
    return spill().model_copy(update={"memory": doc.MemoryByComponent(**values)})  # type: ignore[arg-type]


def drawn(one: doc.CaseDocument, format_: str = "md") -> str:
    """Draw it."""
    return render(one, format_, redactor=Redactor(local=False))  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["md", "html"])
def test_prediction_stands_beside_the_log(format_: str) -> None:
    """Law: what was predicted, logged, lacking and gained is said, each with its device, size and basis."""
    text = drawn(document(), format_)
    if format_ == "html":
        text = unescape(re.sub(r"<[^>]+>", "", text)).replace("\u00a0", " ")
    for part in (
        "Memory: predicted, by the log, and what would make room",
        "may be off by 300.00 MiB",
        "98,304; full first:",
        "lacks 2.00 GiB; what crosses the line: KV cache",
        "could not give 512.00 MiB; it was for: compute buffers",
        "20,12",
        "differ by more than 3",
        "12.00 GiB",
        "8-bit cache",
        "+32,768",
        "refused",
    ):
        assert part in text, part


def test_no_prediction_no_section() -> None:
    """Law: a report of a server whose model file was not read has no such section."""
    assert "Memory: predicted" not in drawn(document(predicted=(), predicted_ctx=None))
    assert "Memory: predicted" not in drawn(spill())


def test_names_from_outside_stay_text() -> None:
    """Law: a device's name cannot write into the report."""
    evil = "x`](http://evil.example) <script>alert(1)</script>"
    lacking = doc.MemoryLacking(device=evil, component=evil, lacking_bytes=GIB, basis="model")
    page = drawn(document(limited_by=evil, overflowed=(lacking,)), "html")
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert 'href="http://evil.example' not in page
