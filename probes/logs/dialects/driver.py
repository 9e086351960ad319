# ruff: noqa: E501, ARG005 - a pattern is read best on one line; every maker takes the match and its fields
"""What GPU drivers and their libraries say, whichever engine is above them: CUDA, ROCm, Vulkan, SYCL, Metal."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, rule

NAME = "driver"


def _gpu_error(match: re.Match[str], fields: Fields) -> Found:
    api = {"cuda": "cuda", "rocm": "rocm", "hip": "rocm", "musa": "musa"}[match["api_name"].lower()]
    why = match["why"].strip().lower()
    fields.update(api=api, reason=why[:200])
    if "out of memory" in why or "memory allocation" in why:
        fields["reason"] = "out of memory"
        return [("alloc-failed", fields)]
    if re.search(
        r"device lost|no longer|device-side assert|unavailable|not ready|fell off|disconnected|unknown error", why
    ):
        lost = "not ready" not in why and "unknown error" not in why and "assert" not in why
        return [("device-lost" if lost else "kernel-error", fields)]
    if "timed out" in why or "timeout" in why:
        return [("watchdog", fields)]
    return [("kernel-error", fields)]


def _numbered_error(match: re.Match[str], fields: Fields) -> Found:
    """What older builds print: the number, the place, and the words behind it."""
    found = _gpu_error(match, {key: value for key, value in fields.items() if key not in {"api_name", "why"}})
    return [(kind, {**told, "code": integer(match["code"])}) for kind, told in found]


def _metal_reason(match: re.Match[str], fields: Fields) -> Found:
    fields["api"] = "metal"
    text = match.string
    if "nsufficient Memory" in text or "OutOfMemory" in text:
        return [("alloc-failed", {**fields, "reason": "Insufficient Memory"})]
    if "Interactivity" in text or "Timeout" in text or "timed out" in text:
        return [("watchdog", {**fields, "reason": "interactivity" if "Interactivity" in text else "timeout"})]
    return [("kernel-error", {**fields, "reason": fields.get("reason", "")[:200]})]


def _vulkan_alloc(match: re.Match[str], fields: Fields) -> Found:
    text = match.string
    fields["api"] = "vulkan"
    if "exceeds device" in text or "maxMemoryAllocationSize" in text or "max buffer" in text.lower():
        fields["reason"] = "over the largest single allocation"
    return [("alloc-failed", fields)]


def _sycl_error(match: re.Match[str], fields: Fields) -> Found:
    fields.update(api="sycl", reason=match["why"])
    if "OUT_OF" in match["why"] or "OUTOFMEMORY" in match["why"].upper():
        return [("alloc-failed", fields)]
    if "DEVICE_LOST" in match["why"]:
        return [("device-lost", fields)]
    return [("kernel-error", fields)]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("alloc-failed", "Device memory allocation of size", r"Device memory allocation of size (?P<size_b>\d+) failed", make=_vulkan_alloc),
    rule("alloc-failed", "ggml_vulkan: Memory allocation", r"Memory allocation of size (?P<size_b>\d+) failed", make=_vulkan_alloc),
    rule("alloc-failed", ("ErrorOutOfDeviceMemory", "ErrorOutOfHostMemory", "VK_ERROR_OUT_OF_DEVICE_MEMORY", "VK_ERROR_OUT_OF_HOST_MEMORY", "exceeds device buffer size limit", "exceeds device memory allocation limit", "No suitable memory type found", "maxMemoryAllocationSize", "maxBufferSize"), r"(?P<reason>Error(?:OutOf\w+Memory)|VK_ERROR_OUT_OF_\w+|exceeds device \w+ (?:size|allocation) limit|No suitable memory type found|exceeds.*(?:maxMemoryAllocationSize|maxBufferSize))", make=_vulkan_alloc),
    rule("alloc-failed", ("kIOGPUCommandBufferCallback", "Insufficient Memory (0"), r"(?<![\w ])(?P<reason>\w?[\w ]{0,80}) \([0-9a-fA-F]{8}:kIOGPU\w+\)|kIOGPUCommandBufferCallback\w+|Insufficient Memory", make=_metal_reason),
    rule("watchdog", "Impacting Interactivity", api="metal", reason="interactivity"),
    rule("alloc-failed", ("UR_RESULT_ERROR", "OUT_OF_RESOURCES", "ZE_RESULT_ERROR", "PI_ERROR_", "level_zero backend failed", "Native API failed"), r"(?P<why>(?:UR|ZE)_RESULT_ERROR_\w+|PI_ERROR_\w+|OUT_OF_\w+)", make=_sycl_error),
    rule("alloc-failed", ("can't allocate", "alloc_buffer: can't"), r"can.t allocate (?P<size_b>\d+) Bytes? of memory on device", api="sycl"),
    rule("kernel-error", "exceeds maximum value of", r"(?P<reason>Grid Dimension \w+|Block Dimension \w+|(?<![\w ])\w[\w ]{0,40}) of (?P<tokens>\d+) exceeds maximum value of (?P<limit>\d+)", api="cuda", level="error"),
    rule("kernel-error", ("CUDA error: ", "ROCm error: ", "HIP error: ", "MUSA error: "), r"(?P<api_name>CUDA|ROCm|HIP|MUSA) error: (?P<why>[^\n]+)", make=_gpu_error),
    rule("kernel-error", ("CUDA error ", "ROCm error ", "HIP error "), r"(?P<api_name>CUDA|ROCm|HIP) error (?P<code>\d{1,5}) at \S{1,200}?:\d{1,6}: (?P<why>[^\n]+)", make=_numbered_error),
    rule("kernel-error", (": CUDA error", ": ROCm error", ": HIP error"), r"\.cuh?:\d+: (?P<api>CUDA|ROCm|HIP) error", make=lambda m, f: [("kernel-error", {"_weak": True, "api": "cuda" if m["api"] == "CUDA" else "rocm"})]),
    rule("kernel-error", "in function ", r"current device: (?P<device>-?\d+), in function (?P<key>\S+)", make=lambda m, f: [("attach", f)]),
    rule("device-lost", ("ErrorDeviceLost", "VK_ERROR_DEVICE_LOST", "context is lost", "device lost on"), r"ErrorDeviceLost|VK_ERROR_DEVICE_LOST|The CS has been (?:cancelled|rejected)[^\n]*|context is lost|device lost on (?P<device>\S+)", api="vulkan"),
    rule("kernel-error", ("CUBLAS_STATUS_", "CUBLAS error", "rocBLAS error"), r"(?P<reason>CUBLAS_STATUS_\w+|rocBLAS error[^\n]{0,120})", make=lambda m, f: [("alloc-failed" if "ALLOC" in m["reason"] else "kernel-error", {**f, "api": "cuda" if "CUBLAS" in m["reason"] else "rocm"})]),
    rule("kernel-error", ("out of bounds", "illegal memory access", "misaligned address", "invalid configuration argument", "invalid device function", "no kernel image", "device-side assert", "unspecified launch failure"), r"(?P<reason>illegal memory access|misaligned address|invalid configuration argument|invalid device function|device-side assert(?!ions)|unspecified launch failure|no kernel image[\w ]*|(?<!index )(?<!range )out of bounds (?:read|write|access))"),
)
# fmt: on
