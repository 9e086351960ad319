# ruff: noqa: E501 - a pattern is read and compared best on one line
"""PyTorch, under vLLM, SGLang, ExLlama and Transformers."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, human_bytes, integer, rule

NAME = "torch"

_SIZE = r"([\d.]+ [KMGT]?i?B)"


def _size(pattern: str, text: str) -> int | None:
    match = re.search(pattern, text)
    return human_bytes(match[1]) if match else None


def _out_of_memory(match: re.Match[str], fields: Fields) -> Found:
    text = match.string
    device = re.search(r"GPU (\d+)", text)
    failure: Fields = {
        **fields,
        "api": "torch",
        "reason": "out of memory",
        "device": device[1] if device else None,
        "total_bytes": _size(rf"total capaci?ty of {_SIZE}", text) or _size(rf"{_SIZE} total capacity", text),
        "free_bytes": _size(rf"of which {_SIZE} is free", text) or _size(rf"{_SIZE} free", text),
    }
    found: Found = [("alloc-failed", failure)]
    reserved = _size(rf"{_SIZE} is reserved by PyTorch but unallocated", text)
    if reserved is not None:
        found.append(
            ("memory-use", {"key": "reserved-unallocated", "size_bytes": reserved, "device": failure["device"]})
        )
    for pid, size in re.findall(rf"Process (\d+) has {_SIZE} memory in use", text)[:16]:
        found.append(
            (
                "memory-use",
                {
                    "key": "other-process",
                    "pid": integer(pid),
                    "size_bytes": human_bytes(size),
                    "device": failure["device"],
                },
            )
        )
    return found


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("alloc-failed", ("out of memory. Tried to allocate", "OutOfMemoryError"), r"(?:(?:CUDA|HIP|XPU|MPS)[\w ]* out of memory|OutOfMemoryError)(?:.{0,80}?Tried to allocate (?P<size_h>[\d.]+ [KMGT]?i?B))?", make=_out_of_memory),
    rule("alloc-failed", "MPS backend out of memory", r"MPS backend out of memory(?:.*?Tried to allocate (?P<size_h>[\d.]+ [KMGT]?i?B))?", api="metal"),
    rule("crash", "INTERNAL ASSERT FAILED", r"(?P<reason>[^\s:]{0,80}) ?INTERNAL ASSERT FAILED at \"?(?P<key>[\w./]+)\"?:(?P<code>\d+)"),
    rule("kernel-error", "CUDA driver error", r"CUDA driver error: (?P<reason>[^\n]{0,120})", api="cuda"),
    rule("corrupt-output", ("probability tensor contains", "probabilities contain", "invalid sampling prob"), r"(?P<reason>probability tensor contains[^\n]{0,60}|probabilities contain[^\n]{0,60}|invalid sampling prob\w*)"),
    rule("watchdog", ("Watchdog caught collective operation timeout", "NCCL watchdog"), r"ran for (?P<seconds_ms>\d+) milliseconds|collective operation timeout|NCCL watchdog", api="nccl"),
    rule("kernel-error", ("NCCL error", "ncclUnhandledCudaError", "ncclSystemError"), r"(?P<reason>NCCL error[^\n]{0,80}|nccl\w+Error)", api="nccl"),
    rule("kernel-error", ("Triton Error", "triton.runtime.errors"), r"Triton Error \[(?P<key>\w+)\]: (?P<reason>[^\n]{0,120})|triton\.runtime\.errors\.(?P<reason2>\w+)", api="triton"),
)
# fmt: on
