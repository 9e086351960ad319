# ruff: noqa: E501 - a pattern is read and compared best on one line
"""The operating system: dmesg and journal of Linux, macOS panics, Windows' display driver events."""

from __future__ import annotations

import re

from probes.evidence.events import EventKind
from probes.logs.rule import Fields, Found, Rule, integer, rule

NAME = "kernel"

_XID_FAULTS = frozenset([13, 31, 32, 43, 45, 68, 69, 109])
"""Xids that a program's own access can cause; the others speak of the card, its memory, its bus or its firmware."""


def _xid(match: re.Match[str], fields: Fields) -> Found:
    code = fields.get("code")
    fields["api"] = "xid"
    if code == 8:
        return [("watchdog", fields)]
    kind: EventKind = "kernel-error" if code in _XID_FAULTS else "hardware"
    found: Found = [(kind, fields)]
    if code == 79 or "fallen off the bus" in match.string:
        found.append(("device-lost", {"reason": "fallen off the bus", "device": fields.get("device")}))
    return found


def _killed(match: re.Match[str], fields: Fields) -> Found:
    resident = [integer(text) or 0 for text in re.findall(r"(?:anon|file|shmem)-rss:(\d+)kB", match.string)]
    if resident:
        fields["size_bytes"] = sum(resident) * 1024
    fields["reason"] = "cgroup" if "cgroup" in match.string.lower() or "CONSTRAINT_MEMCG" in match.string else "system"
    return [("oom-killer", fields)]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("oom-killer", ("Killed process ", "Out of memory: Kill", "oom-kill:", "oom_reaper", "killed by the OOM killer", "killed by TERM signal (oom", "invoked oom-killer", "systemd-oomd", "Out of memory: killed", "OOMKilled", "result 'oom-kill'", "global_oom", "global OOM killer"), r"(?:Killed process|Kill process|killed process|reaped process) (?P<pid>\d+) \((?P<name>[^)]{1,60})\)|task=(?P<name2>[^,\s]{1,60}),pid=(?P<pid2>\d+)|(?:(?<![\w@.-])(?P<name3>[\w@.-]{1,80}\.service): )?A process of this unit has been killed by the OOM killer|killed by the (?:global )?OOM killer|result 'oom-kill'|global_oom|(?<!\S)(?P<name4>\S{1,60}) invoked oom-killer|systemd-oomd\[?\d*\]?: Killed (?P<name5>\S+)|OOMKilled", make=_killed),
    rule("oom-killer", ("memorystatus: killing", "JetsamEvent", "low swap: killing"), r"killing(?:_\w+)? (?:process |pid )?(?P<pid>\d+)? ?\[?(?P<name>[\w.-]+)?|JetsamEvent", reason="system"),
    rule("watchdog", ("timeout, signaled seq", " timeout, but soft recovered", "ring gfx", "ring comp", "ring sdma", "Timedout job", "GPU HANG", "timedout job"), r"ring (?P<key>[\w.]+) timeout|Timedout job|GPU HANG|timedout job", api="drm"),
    rule("watchdog", ("stopped responding and has successfully recovered", "VIDEO_TDR", "LiveKernelEvent", "Display driver nvlddmkm", "Display driver amdkmdag", "TdrDelay", "DXGI_ERROR_DEVICE_HUNG", "DXGI_ERROR_DEVICE_REMOVED"), r"(?P<reason>stopped responding and has successfully recovered|VIDEO_TDR\w*|LiveKernelEvent(?:\W+(?P<code>\d{3}))?|Display driver \w+|DXGI_ERROR_DEVICE_\w+)", api="tdr"),
    rule("hardware", ("NVRM: Xid", "Xid ("), r"Xid \(PCI:(?P<device>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, (?:pid='?(?P<pid>\d+))?)?(?:.*?name=(?P<name>[^,\s]+))?", make=_xid),
    rule("device-lost", ("GPU reset begin", "device wedged", "VRAM is lost", "GPU has fallen off the bus", "GPU reset(", "Failed to evict queue", "MODE1 reset", "MODE2 reset"), r"(?P<reason>GPU reset begin|device wedged|VRAM is lost|fallen off the bus|GPU reset\(\d+\) \w+|Failed to evict queue|MODE\d reset)", api="drm", make=lambda m, f: [("device-lost", f)] if "succeeded" not in m["reason"] else [("generic-warning", {**f, "key": "gpu-reset"})]),
    rule("hardware", ("PCIe Bus Error", "AER: "), r"PCIe Bus Error: severity=(?P<reason>[\w ()-]+)|AER: (?P<reason2>(?:Multiple )?(?:Corrected|Uncorrected|Correctable|Uncorrectable)[\w ()-]*)", api="aer"),
    rule("hardware", ("Machine check events logged", "[Hardware Error]", "Uncorrectable ECC", "uncorrectable ECC", "Double Bit ECC"), r"(?P<reason>Machine check events logged|\[Hardware Error\][^\n]{0,100}|[Uu]ncorrectable ECC[^\n]{0,60}|Double Bit ECC[^\n]{0,60})", api="mce"),
    rule("device-lost", ("RmInitAdapter failed", "NVRM: GPU ", "Unable to determine the device handle"), r"RmInitAdapter failed|Unable to determine the device handle|NVRM: GPU \S+ (?:is lost|has been disabled)", api="nvrm"),
    rule("alloc-failed", "exceeds resident system memory limit", component="pinned", api="rocm", reason="resident system memory limit"),
    rule("alloc-failed", ("page allocation failure", "[TTM] Buffer eviction failed", "Not enough memory for command submission", "amdgpu_vm_validate"), r"page allocation failure|Buffer eviction failed|Not enough memory for command submission|amdgpu_vm_validate", api="drm", reason="driver"),
    rule("kernel-error", ("page fault (src_id", "[gfxhub", "[mmhub", "Memory access fault by GPU", "HSA_STATUS_ERROR", "CP is hung"), r"page fault|Memory access fault by GPU node-?(?P<device>\d+)?|(?P<reason>HSA_STATUS_ERROR_\w+)", api="rocm", make=lambda m, f: [("alloc-failed" if "OUT_OF_RES" in (m["reason"] or "") else "kernel-error", {**f, "reason": f.get("reason") or "page fault"})]),
    rule("crash", ("panic(cpu", "Kernel panic - not syncing", "kernel panic"), r"panic\(cpu \d+ caller \S+\): (?P<reason>[^\n]{0,200})|[Kk]ernel panic(?: - not syncing: (?P<reason2>[^\n]{0,160}))?", key="kernel-panic"),
    rule("crash", ("segfault at", "general protection fault", "trap invalid opcode", "traps: "), r"(?<![\w.-])(?P<name>[\w.-]{1,60})\[(?P<pid>\d{1,9})\]:? (?P<reason>segfault|general protection|trap invalid opcode)[^\n]{0,160}|(?P<reason2>segfault at [^\n]{0,120})", key="signal"),
    rule("throttled", ("cpu clock throttled", "thermal throttl", "Thermal throttl", "power brake", "SW Power Cap", "HW Slowdown"), r"(?P<reason>clock throttled|[Tt]hermal throttl\w*|power brake[\w ]*|SW Power Cap|HW Slowdown)"),
    rule("slept", ("PM: suspend entry", "PM: suspend exit", "PM: hibernation", "Wake from ", "System Sleep"), r"PM: (?P<key>suspend (?:entry|exit)|hibernation)|Wake from|System Sleep"),
    rule("crash", ("code=killed, status=", "exited with code 137", "exit code 137", "signal: killed", "exit status 137", "Exited (137)"), r"code=killed, status=(?P<code>\d+)/(?P<reason>\w+)|(?:code|status|Exited \()\s*(?P<code2>137)|signal: (?P<reason2>killed)", key="killed"),
    rule("hardware", ("I/O error, dev", "nvme nvme", "ata bus error"), r"I/O error, dev (?P<device>\w+)|nvme\d*: (?P<reason>I/O \d+ QID \d+ timeout|controller is down)", api="disk"),
)
# fmt: on
