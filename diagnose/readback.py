"""The configuration of a run, read back variable by variable with its source, and what differs between two of them.

A variable is what a person changes, not how it is spelled: both cache types moved as a pair are one, a new build is one whatever its defaults
did, and turning speculation on is one however many flags it takes. What the server makes of a setting (the window in force, layers offloaded)
follows from it and is no change of its own. What nobody can read is unknown, and said: it may have changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.clients import belief
from probes.evidence.changes import ReadBack, Snapshot
from probes.evidence.client import ClientSettings
from probes.evidence.events import LogEvent
from probes.evidence.machine import Device, DeviceProcess, DeviceReadings, HostReading
from probes.evidence.records import EvidenceSet, Source
from probes.evidence.request import Launch
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, WindowReading

MIB = 1 << 20
GIB = 1 << 30
PIECES, PIECE_BYTES = 32, 4096
"""A file's data is told apart by so many pieces, spread over it: a replaced model of the same size and header is seen without reading it whole."""

UNIMPORTANT = frozenset(
    {
        "host", "port", "alias", "log_file", "log_verbosity", "log_verbose", "log_jsonl", "metrics", "slots_endpoint", "slot_save_path",
        "model_path", "model_repo", "model_repo_file", "model_url", "mmproj_url", "api_key", "load_mode", "mmproj_auto",
    }
)  # fmt: skip
"""Settings that say where to listen and what to log, and those that another name stands for here: the model by its content, mappings by mmap and mlock."""

DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "llama.cpp": {"kv_type_k": "f16", "kv_type_v": "f16", "batch": 2048, "ubatch": 512, "kv_offload": True, "mmap": True, "mlock": False,
                  "context_shift": False, "cache_prompt": True, "flash_attention": "auto", "split_mode": "layer", "swa_full": False,
                  "cont_batching": True, "mmproj_offload": True, "op_offload": True, "repack": True},
}  # fmt: skip
"""What a server takes where nothing is set, as it documents: setting just that changes nothing."""
_DEFAULTS_OF = {
    "llama.cpp": "llama.cpp",
    "beellama.cpp": "llama.cpp",
    "llama-manager": "llama.cpp",
    "llama-swap": "llama.cpp",
}

GROUPS: tuple[tuple[str, frozenset[str], frozenset[str]], ...] = (
    # name, the settings that are one thing if several of them move, and those of which one has to be among them (empty: any two)
    ("kv_type", frozenset({"kv_type_k", "kv_type_v"}), frozenset()),
    ("draft_kv_type", frozenset({"draft_kv_type_k", "draft_kv_type_v"}), frozenset()),
    ("kv_type_swa", frozenset({"kv_type_k_swa", "kv_type_v_swa"}), frozenset()),
    (
        "speculation",
        frozenset(
            {"speculation", "draft_model", "draft_n_max", "draft_n_min", "draft_ctx", "draft_gpu_layers", "draft_device", "draft_kv_type", "draft_kv_type_k",
             "draft_kv_type_v", "draft_params", "draft_controller", "dflash_cross_ctx"}
        ),
        frozenset({"speculation", "draft_model"}),
    ),
    ("mmproj", frozenset({"mmproj", "mmproj_offload", "mmproj_loaded", "image_max_tokens"}), frozenset({"mmproj", "mmproj_loaded"})),
    (
        "rope_scaling",
        frozenset(
            {"rope_scaling", "rope_scale", "rope_freq_scale", "yarn_orig_ctx", "yarn_ext_factor", "yarn_attn_factor", "yarn_beta_slow", "yarn_beta_fast"}
        ),
        frozenset({"rope_scaling"}),
    ),
)  # fmt: skip

OUTCOMES = ("window_in_force", "slots_in_force", "gpu_layers_in_force", "flash_attention_in_force", "kv_type_in_force")
"""What the server made of its settings: follows from them, and is a change of its own only where nothing else changed."""

Value = Any


@dataclass(frozen=True, slots=True)
class Changed:
    """One variable that differs. ``asked``: somebody set it; else it changed without being asked."""

    name: str
    before: Value
    after: Value
    source: Source
    asked: bool = True


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs between two configurations. ``moved``: what followed from a change; ``unread``: what may have changed unseen, with why."""

    variables: tuple[Changed, ...] = ()
    moved: tuple[Changed, ...] = ()
    unread: dict[str, str] = field(default_factory=dict)

    @property
    def single(self) -> Changed | None:
        """The one variable that differs, or None."""
        return self.variables[0] if len(self.variables) == 1 else None


# -- reading back ------------------------------------------------------------------------------------------------------------------------


def fingerprint(path: str | Path) -> str | None:
    """Tell a file's data apart by pieces spread over it; None where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.sha256(str(size).encode())
            last = max(0, size - PIECE_BYTES)
            for number in range(PIECES):
                file.seek(last * number // (PIECES - 1))
                digest.update(file.read(PIECE_BYTES))
    except OSError:
        return None
    return digest.hexdigest()[:16]


class _Reading:
    """Collects values; of two sources for one variable the later put wins only where it says so."""

    def __init__(self) -> None:
        self.values: dict[str, ReadBack] = {}
        self.unknown: dict[str, str] = {}

    def put(
        self, name: str, value: Value, source: Source, *, asked: bool = False, raw: str = "", asked_value: Value = None
    ) -> None:
        if value is None:
            return
        self.values[name] = ReadBack(
            value=_plain(value), source=source, asked=asked, raw=raw[:500], asked_value=_plain(asked_value)
        )
        self.unknown.pop(name, None)

    def cannot(self, name: str, why: str) -> None:
        if name not in self.values:
            self.unknown[name] = why


def read_back(
    evidence: EvidenceSet,
    when: str = "before",
    *,
    events: Sequence[LogEvent] = (),
    request: Mapping[str, Value] | None = None,
) -> Snapshot:
    """Read the configuration back from a run's evidence.

    ``events``: the log as far as it is not in the evidence yet. ``request``: what the test itself fixes (seed, text, output budget).
    """
    reading = _Reading()
    _of_settings(reading, evidence)
    _of_model(reading, evidence)
    _of_backend(reading, evidence)
    _of_window(reading, evidence)
    _of_log(reading, [event for _record, event in evidence.of(LogEvent)] or list(events))
    _of_machine(reading, evidence)
    _of_clients(reading, evidence)
    for name, value in (request or {}).items():
        reading.put(name, value, "measured", asked=True)
    command_seen = any(one.command for _record, one in evidence.of(Configuration))
    return Snapshot(
        when="after" if when == "after" else "before",
        values=reading.values,
        # what is not on a command line that was read is not set, whatever else is not told over HTTP
        unknown={name: why for name, why in reading.unknown.items() if not command_seen or name in _SPECIAL},
        command_seen=command_seen,
    )


_RANK: Mapping[str, int] = {
    "server": 3,
    "process": 2,
    "log": 2,
    "file": 1,
    "user": 0,
    "report": 0,
    "measured": 4,
    "machine": 1,
}


def _of_settings(reading: _Reading, evidence: EvidenceSet) -> None:
    best: dict[str, tuple[int, Value, Source, str]] = {}
    asked: dict[str, Value] = {}
    unread: dict[str, str] = {}
    for _record, configuration in evidence.of(Configuration):
        for name, setting in configuration.settings.items():
            if name in UNIMPORTANT:
                continue
            rank = _RANK.get(setting.source, 0)
            if name not in best or rank >= best[name][0]:
                best[name] = (rank, setting.value, setting.source, setting.raw)
            if setting.source in {"process", "file", "user"}:
                asked[name] = setting.value
        unread |= dict(configuration.unread)
    for name, (_rank, value, source, raw) in best.items():
        other = asked.get(name) if name in asked and not _same(asked[name], value) else None
        reading.put(name, value, source, asked=name in asked, raw=raw, asked_value=other)
    for name, why in unread.items():
        if name not in UNIMPORTANT:
            reading.cannot(name, why)


def _of_model(reading: _Reading, evidence: EvidenceSet) -> None:
    file = evidence.last(ModelFile)
    identity = evidence.last(ModelIdentity)
    settings = [
        setting
        for _record, configuration in evidence.of(Configuration)
        for name, setting in configuration.settings.items()
        if name in {"model_path", "model_repo"} and isinstance(setting.value, str)
    ]
    path = (
        (file.path if file else None)
        or (identity.path if identity else None)
        or (settings[-1].value if settings else None)
    )
    parts: dict[str, Value] = {
        "path": path,
        "name": (identity.name if identity else None) or (file.name if file else None),
    }
    if file is not None:
        parts |= {"size": file.size_bytes, "header": file.header_hash, "quantization": file.quantization}
    elif identity is not None:
        parts |= {"size": identity.size_bytes, "header": identity.header_hash, "quantization": identity.quantization}
    if path and Path(path).is_file():
        parts["data"] = fingerprint(path)
    known = {name: value for name, value in parts.items() if value is not None}
    if known:
        source: Source = (
            "file" if "data" in known or file is not None else "server" if identity is not None else "process"
        )
        reading.put("model_path", known, source, asked=True)
    else:
        reading.cannot("model_path", "neither the server nor its command line says which model it is")


def _of_backend(reading: _Reading, evidence: EvidenceSet) -> None:
    identity = evidence.last(BackendIdentity)
    parts: dict[str, Value] = {}
    if identity is not None:
        parts |= {"name": identity.name, "version": identity.version, "build": identity.build}
    commands = [one.command for _record, one in evidence.of(Configuration) if one.command]
    if commands:
        program = _program(commands[-1])
        if program is not None:
            parts["program"] = program
            parts["data"] = fingerprint(program)
    known = {name: value for name, value in parts.items() if value is not None}
    if known:
        reading.put("backend", known, "server" if identity is not None else "process", asked=True)
    else:
        reading.cannot("backend", "the server did not say which program it is")


_SCRIPT = re.compile(r".*\.(?:py|sh)")


def _program(command: Sequence[str]) -> str | None:
    """Give the file of the program that a command runs: the script where an interpreter runs one."""
    words_left = [word for word in command if not re.match(r"[A-Za-z_]\w*=", word)]
    if not words_left:
        return None
    script = next((word for word in words_left[1:3] if _SCRIPT.fullmatch(word) and Path(word).is_file()), None)
    return script or shutil.which(words_left[0])


def _of_window(reading: _Reading, evidence: EvidenceSet) -> None:
    for record, window in evidence.of(WindowReading):
        if window.in_force:
            reading.put("window_in_force", window.in_force, record.source)
        if window.slots and record.source == "server":
            reading.put("slots_in_force", window.slots, record.source)
        if window.asked and "ctx" not in reading.values:
            reading.put("ctx", window.asked, record.source, asked=True)


def _of_log(reading: _Reading, events: Iterable[LogEvent]) -> None:
    for event in events:
        if event.event == "kv-cache" and (event.type_k or event.type_v):
            reading.put("kv_type_in_force", f"{event.type_k or '?'}/{event.type_v or '?'}", "log", raw=event.text)
        elif event.event == "flash-attention" and event.on is not None:
            reading.put("flash_attention_in_force", "on" if event.on else "off", "log", raw=event.text)
        elif event.event == "layers-offloaded" and event.count is not None:
            reading.put("gpu_layers_in_force", event.count, "log", raw=event.text)


def _of_machine(reading: _Reading, evidence: EvidenceSet) -> None:
    host = evidence.last(HostReading)
    if host is not None:
        reading.put("os", host.os, "machine")
        reading.put("ram", host.ram_bytes, "machine")
        reading.put("swap", host.swap_total_bytes, "machine")
        reading.put("memory_limit", host.cgroup_limit_bytes, "machine")
    launches = evidence.of(Launch)
    limit = (
        launches[-1][1].address_space_limit_bytes or "unlimited"
        if launches
        else host.address_space_limit_bytes
        if host
        else None
    )
    reading.put("address_space_limit", limit, "process", asked=True)
    readings = evidence.of(DeviceReadings)
    if not readings:
        reading.cannot("devices", "no device interface could be asked")
        return
    devices = readings[-1][1].devices
    reading.put("devices", {one.id: f"{one.name}, {one.total_bytes or 'unknown'} bytes" for one in devices}, "machine")
    drivers = {one.id: " ".join(filter(None, (one.driver, one.driver_model))) for one in devices if one.driver}
    if drivers:
        reading.put("driver", drivers, "machine")
    limits = {one.id: round(one.power_limit_watts) for one in devices if one.power_limit_watts is not None}
    if limits:
        reading.put("power_limit", limits, "machine")
    for variable, value in readings[-1][1].visibility.items():
        if f"env.{variable}" not in reading.values:
            reading.put(f"env.{variable}", value, "process", asked=True)
    first = next((one for _record, one in readings if one.when == "before load"), None) or readings[0][1]
    _free_memory(reading, first, host_at(evidence, first.when))
    _other_load(reading, readings[-1][1], host)


def _of_clients(reading: _Reading, evidence: EvidenceSet) -> None:
    """Read the window that a client reckons with, where its settings were given: a person changes it there."""
    for _record, settings in evidence.of(ClientSettings):
        mine = belief(settings, evidence)
        if mine is not None:
            reading.put("client.ctx", mine.context, "file", asked=True)
            reading.put("client.output_tokens", mine.output, "file", asked=True)


def host_at(evidence: EvidenceSet, when: str) -> HostReading | None:
    """Give the host as it was read at that moment."""
    return next((one for record, one in evidence.of(HostReading) if record.origin == when), None)


def _free_memory(reading: _Reading, first: DeviceReadings, host: HostReading | None) -> None:
    """Free memory at the start: before the server was loaded, else what is free now and what the server itself holds, where that is told."""
    free: dict[str, int] = {}
    for device in first.devices:
        if device.free_bytes is None:
            continue
        if first.when == "before load":
            free[device.id] = device.free_bytes
            continue
        mine = [one.used_bytes for one in device.processes or () if one.is_server]
        if mine and None not in mine:
            free[device.id] = device.free_bytes + sum(one or 0 for one in mine)
    if first.when == "before load" and host is not None and host.ram_available_bytes is not None:
        free["ram"] = host.ram_available_bytes
    sizes = {device.id: device.total_bytes or 0 for device in first.devices}
    if host is not None:
        sizes["ram"] = host.ram_bytes or 0
    if free:
        reading.put(
            "free_memory", {name: {"free": value, "of": sizes.get(name, 0)} for name, value in free.items()}, "machine"
        )
    elif first.devices:
        reading.cannot("free_memory", "the server was loaded already, and the driver does not say how much is its own")


LEAST_LOAD = 128 * MIB
"""Another process counts from so much of a device's memory on."""


def _other_load(reading: _Reading, now: DeviceReadings, host: HostReading | None) -> None:
    load: dict[str, int] = {}
    told = True
    for device in now.devices:
        if device.processes is None:
            told = False
            continue
        for process in device.processes:
            if not process.is_server and _matters(process, device):
                load[f"{_name(process)} on {device.id}"] = load.get(f"{_name(process)} on {device.id}", 0) + (
                    process.used_bytes or 0
                )
    if host is not None:
        least = max(GIB, (host.ram_bytes or 0) // 20)
        for process in host.other_servers:
            if not process.is_server and (process.rss_bytes or 0) >= least:
                load[f"{_name(process)} in system memory"] = process.rss_bytes or 0
    reading.put("other_load", load, "machine")
    if not told:
        reading.cannot("other_load_on_devices", "the driver does not say which processes hold memory of a device")


def _matters(process: DeviceProcess, device: Device) -> bool:
    if process.used_bytes is None:
        return process.server_kind is not None
    return process.used_bytes >= max(LEAST_LOAD, (device.total_bytes or 0) // 100)


def _name(process: DeviceProcess) -> str:
    return process.server_kind or process.name or "a process"


def _plain(value: Value) -> Value:
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    return value


# -- what differs ------------------------------------------------------------------------------------------------------------------------


def difference(before: Snapshot, after: Snapshot) -> Difference:
    """Say which variables differ. See the module's words for what counts as one."""
    found: dict[str, Changed] = {}
    unread: dict[str, str] = {}
    defaults = _defaults(before, after)
    for name in sorted({*before.values, *after.values, *before.unknown, *after.unknown}):
        if name in OUTCOMES:
            continue
        one, two = before.values.get(name), after.values.get(name)
        if name in _SPECIAL:
            changed = _SPECIAL[name](name, one, two)
            if changed is not None:
                found[name] = changed
            elif one is None or two is None:
                _cannot(unread, name, before, after)
            continue
        if one is not None and two is not None:
            was, now = (each.value if each.asked_value is None else each.asked_value for each in (one, two))
            if one.asked and two.asked and not _same(was, now):
                # what was asked for differs, whatever the server says that it took
                found[name] = Changed(name, was, now, two.source)
            elif not _same(one.value, two.value):
                found[name] = Changed(name, one.value, two.value, two.source, asked=one.asked is not two.asked)
            elif one.asked is not two.asked and not _same(was, now):
                found[name] = Changed(name, was, now, two.source)
            continue
        here, other = (one, after) if one is not None else (two, before)
        if here is None:
            _cannot(unread, name, before, after)
        elif here.asked and other.command_seen:
            # the other command line was read and does not have it: there the default holds
            default = _default_of(name, other, defaults)
            if default is None or not _same(here.value, default):
                known = (here.value, default) if one is not None else (default, here.value)
                found[name] = Changed(name, *known, here.source)
        elif name in _ABSENT_IS_NOTHING:
            found[name] = Changed(
                name, one.value if one else None, two.value if two else None, here.source, asked=here.asked
            )
        else:
            _cannot(unread, name, before, after)
    found = _grouped(found)
    return _consequences(found, unread, before, after)


_ABSENT_IS_NOTHING = frozenset({"text_folder", "output_tokens", "memory_limit"})


def _cannot(unread: dict[str, str], name: str, before: Snapshot, after: Snapshot) -> None:
    if before.command_seen and after.command_seen and name not in _SPECIAL:
        # both command lines were read, and neither sets it
        return
    why = before.unknown.get(name) or after.unknown.get(name)
    if why is None and name in _SPECIAL:
        why = "it was read in one of the two runs only"
    if why is not None:
        unread[name] = why


def _defaults(before: Snapshot, after: Snapshot) -> Mapping[str, Value]:
    for one in (after, before):
        backend = one.values.get("backend")
        name = backend.value.get("name") if backend is not None and isinstance(backend.value, dict) else None
        if name in _DEFAULTS_OF:
            return DEFAULTS[_DEFAULTS_OF[str(name)]]
    return {}


def _default_of(name: str, snapshot: Snapshot, defaults: Mapping[str, Value]) -> Value:
    """Give what holds where a setting is not set: what the log says was taken, else what the server documents."""
    taken = snapshot.values.get("kv_type_in_force")
    if name in {"kv_type_k", "kv_type_v"} and taken is not None:
        return str(taken.value).split("/")[0 if name == "kv_type_k" else -1]
    if name == "parallel" and "slots_in_force" in snapshot.values:
        return snapshot.values["slots_in_force"].value
    return defaults.get(name)


def _same(one: Value, two: Value) -> bool:
    if isinstance(one, bool) or isinstance(two, bool):
        return one is two or str(one).lower() == str(two).lower()
    if isinstance(one, int | float) and isinstance(two, int | float):
        return abs(one - two) <= 1e-6 * max(abs(one), abs(two))
    if isinstance(one, list | tuple) and isinstance(two, list | tuple):
        return len(one) == len(two) and all(_same(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, str) and isinstance(two, str):
        return one.strip().lower() == two.strip().lower()
    return bool(one == two) or str(one).lower() == str(two).lower()


def _by_content(name: str, one: ReadBack | None, two: ReadBack | None) -> Changed | None:
    """A model or a program is the same where its content is, wherever it lies; where that is not known, where its name is."""
    if one is None or two is None or not isinstance(one.value, dict) or not isinstance(two.value, dict):
        return None
    strong = ("size", "header", "data", "quantization", "version", "build")
    shared = [key for key in strong if key in one.value and key in two.value]
    differs = [key for key in shared if one.value[key] != two.value[key]]
    identity = (
        "name" in one.value and "name" in two.value and one.value["name"] != two.value["name"] and name == "backend"
    )
    if not shared:
        differs = [
            key
            for key in ("path", "program", "name")
            if key in one.value and key in two.value and one.value[key] != two.value[key]
        ][:1]
    if not differs and not identity:
        return None
    return Changed(name, _told(one.value), _told(two.value), two.source)


def _told(parts: Mapping[str, Value]) -> str:
    path = parts.get("path") or parts.get("program")
    name = Path(str(path)).name if path else parts.get("name")
    if "version" in parts or "build" in parts or "program" in parts:
        said = [str(parts[key]) for key in ("name", "version", "build") if key in parts]
        if "build" not in parts or "data" in parts:
            said += [f"program {parts['data']}"] if "data" in parts else [str(name)]
        return " ".join(said)
    details = [
        f"{parts['size']} bytes" if "size" in parts else "",
        str(parts.get("quantization", "")),
        f"header {str(parts['header'])[:12]}" if "header" in parts else "",
        f"data {str(parts['data'])[:12]}" if "data" in parts else "",
    ]
    inside = ", ".join(part for part in details if part)
    return f"{name} ({inside})" if inside else str(name)


def _free(name: str, one: ReadBack | None, two: ReadBack | None) -> Changed | None:
    """Free memory at the start differs from a few hundred MiB on a card, and from a gigabyte of system memory on: less is noise."""
    if one is None or two is None:
        return None
    before, after = {}, {}
    for where in sorted(set(one.value) & set(two.value)):
        was, now = one.value[where]["free"], two.value[where]["free"]
        total = max(one.value[where]["of"], two.value[where]["of"])
        noise = max(GIB, total * 15 // 100) if where == "ram" else max(256 * MIB, total * 3 // 100)
        if abs(was - now) > noise:
            before[where], after[where] = was, now
    return Changed(name, before, after, two.source, asked=False) if before else None


def _load(name: str, one: ReadBack | None, two: ReadBack | None) -> Changed | None:
    if one is None or two is None or set(one.value) == set(two.value):
        return None
    gone, come = sorted(set(one.value) - set(two.value)), sorted(set(two.value) - set(one.value))
    return Changed(name, gone or None, come or None, two.source, asked=False)


def _limit(name: str, one: ReadBack | None, two: ReadBack | None) -> Changed | None:
    if one is None or two is None or _same(one.value, two.value):
        return None
    return Changed(name, one.value, two.value, two.source)


def _machine(name: str, one: ReadBack | None, two: ReadBack | None) -> Changed | None:
    if one is None or two is None or _same(one.value, two.value):
        return None
    return Changed(name, one.value, two.value, two.source, asked=False)


_SPECIAL = {
    "model_path": _by_content,
    "backend": _by_content,
    "address_space_limit": _limit,
    "client.ctx": _limit,
    "client.output_tokens": _limit,
    "free_memory": _free,
    "other_load": _load,
    "other_load_on_devices": _machine,
    "devices": _machine,
    "driver": _machine,
    "power_limit": _machine,
    "os": _machine,
    "ram": _machine,
    "swap": _machine,
}


def _grouped(found: dict[str, Changed]) -> dict[str, Changed]:
    """Take what moved together as one thing for one variable."""
    for name, members, needs in GROUPS:
        moving = {one: found[one] for one in sorted(members) if one in found}
        if len(moving) < 2 or (needs and not needs & set(moving)):
            continue
        for one in moving:
            del found[one]
        first = next(iter(moving.values()))
        found[name] = Changed(
            name,
            _together(moving, lambda change: change.before),
            _together(moving, lambda change: change.after),
            first.source,
            asked=any(change.asked for change in moving.values()),
        )
    return dict(sorted(found.items()))


def _together(moving: Mapping[str, Changed], side: Any) -> Value:
    values = {name: side(change) for name, change in moving.items()}
    shown = list(values.values())
    if all(_same(value, shown[0]) for value in shown):
        return shown[0]
    if len(values) == 2 and all(name.endswith(("_k", "_v", "_k_swa", "_v_swa")) for name in values):
        return "/".join("not set" if value is None else str(value) for value in shown)
    return ", ".join(f"{name}={value}" for name, value in values.items() if value is not None) or None


def _consequences(found: dict[str, Changed], unread: dict[str, str], before: Snapshot, after: Snapshot) -> Difference:
    """Tell what was changed from what moved with it."""
    moved: list[Changed] = []
    new_program = {"backend", "model_path"} & set(found)
    for name in list(found):
        change = found[name]
        told_by_itself = not change.asked and change.source in {"server", "log"}
        another = [one for one in found if one != name]
        if told_by_itself and (new_program - {name} or (before.command_seen and after.command_seen and another)):
            # a default of the new build or model, or what the server made of another setting
            moved.append(found.pop(name))
    if "free_memory" in found and set(found) & {"other_load", "devices", "driver"}:
        moved.append(found.pop("free_memory"))
    outcomes = [
        Changed(name, before.values[name].value, after.values[name].value, after.values[name].source, asked=False)
        for name in OUTCOMES
        if name in before.values
        and name in after.values
        and not _same_outcome(before.values[name].value, after.values[name].value)
    ]
    if outcomes and not found:
        first = outcomes.pop(0)
        found[first.name] = first
    moved += outcomes
    return Difference(tuple(found.values()), tuple(moved), unread)


def _same_outcome(one: Value, two: Value) -> bool:
    if isinstance(one, int) and isinstance(two, int) and not isinstance(one, bool):
        # what a server fits to the free memory differs a little from start to start
        return abs(one - two) <= 0.02 * max(one, two)
    return _same(one, two)
