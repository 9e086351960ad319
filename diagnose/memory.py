"""What a server's memory must hold, before it is measured; afterwards, what the log says of it and what did not fit.

The prediction is llama.cpp's arithmetic over the model file's header. What there is for it is found out by difference where a server runs: what is free
now, and what it must be holding by the same arithmetic; so the program's own needs, which no header tells, cancel out. Where it did not start, what it
had mapped when it failed, less what it had allocated by then, are the program's own needs.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from probes.allocation import logged_buffers
from probes.backends.commands import detect_backend
from probes.evidence.errors import CtxDoctorError
from probes.evidence.events import LogEvent
from probes.evidence.machine import (
    BufferTruth,
    Device,
    DeviceReadings,
    HostReading,
    MemoryBudget,
    MemoryOverflow,
    MemoryScore,
)
from probes.evidence.records import Evidence, EvidenceSet, Why, found, not_found
from probes.evidence.request import Launch
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, Setting, WindowReading
from probes.model_file.context import ContextSettings, as_engine
from probes.model_file.explain import ORDER, failed_allocation, overflows, place_of, score
from probes.model_file.planner import DEFAULT_MARGIN, GivenDevice, Model, Options
from probes.model_file.projector import read_projector
from probes.model_file.session import as_usable, budget_of, given_device, options_of, settings_of

SERVES_SLOTS = frozenset({"llama.cpp", "ik_llama.cpp", "beellama.cpp"})
SERVES_ONE = frozenset({"llama-cpp-python", "koboldcpp", "text-generation-webui"})
"""Programs of the same arithmetic that keep one sequence unless told otherwise."""


STACKS_BYTES = 32 * 1024**2
"""What stacks of threads that a server starts after its load began map of an address space."""
ARENAS_BYTES = 128 * 1024**2
"""The same of glibc's arenas, 64 MiB a thread: one to three come after the load began, and without them it runs too."""


class _CannotTellError(Exception):
    def __init__(self, why: Why, note: str) -> None:
        super().__init__(note)
        self.why: Why = why


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the server was told, as far as it decides about memory."""

    model: Model
    settings: ContextSettings
    options: Options
    draft: Model | None
    mapped: bool
    """Whether the weights are mapped from the file: their pages are the system's to take back."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Room:
    """What the server can have in all. ``host_is_rough``: the program's own needs are in it, and not known."""

    devices: tuple[Device, ...]
    margin: int
    host: int | None
    host_is_rough: bool
    error: int
    """By how much ``host`` may be off, beside the work space."""
    notes: tuple[str, ...]


def predict(
    evidence: EvidenceSet, run: int, *, pid: int | None = None, margin_bytes: int | None = None
) -> Iterator[Evidence]:
    """Yield the predicted budget, and what does not fit by it; where it cannot be told, why. ``pid``: of a server that runs now."""
    origin = "model file"
    running = pid is not None
    try:
        asked = _asked(evidence, running=running)
        needs = _needs(asked, _visible(evidence, running=running), running=running)
        room = _room(evidence, asked, needs, pid=pid, margin_bytes=margin_bytes)
        budget = _budget(asked, room)
    except _CannotTellError as error:
        yield not_found(MemoryBudget, error.why, str(error), source="file", run=run, origin=origin)
        yield not_found(MemoryOverflow, error.why, str(error), source="file", run=run, origin=origin)
        return
    except (CtxDoctorError, OSError) as error:
        yield not_found(MemoryBudget, "failed", str(error)[:2000], source="file", run=run, origin=origin)
        yield not_found(MemoryOverflow, "failed", str(error)[:2000], source="file", run=run, origin=origin)
        return
    yield found(budget, source="file", run=run, origin=origin)
    short = overflows(budget, room.devices, host_free_bytes=None if room.host_is_rough else room.host)
    if running:
        # it did load: what lacks less than the prediction may be off by lacks nothing
        short = [one for one in short if (one.lacking_bytes or 0) > (budget.error_bytes or 0)]
    for one in short:
        split = budget.steps.tensor_split if budget.steps is not None and one.device != "host" else ()
        yield found(one.model_copy(update={"other_split": split}), source="file", run=run, origin=origin)
    if not short:
        why = "by the model file everything fits"
        yield not_found(MemoryOverflow, "not-offered", why, source="file", run=run, origin=origin)


def explain(evidence: EvidenceSet, run: int) -> Iterator[Evidence]:
    """Yield what the log says: buffers where no probe has added them up, the prediction's score, and the allocation that failed."""
    origin = "log"
    events = [event for _record, event in evidence.of(LogEvent)]
    budgets = [budget for _record, budget in evidence.of(MemoryBudget)]
    predicted = next((one for one in reversed(budgets) if one.basis == "model"), None)
    logged = next((one for one in reversed(budgets) if one.basis == "log"), None)
    buffers = logged_buffers(events)
    if logged is None and buffers:
        logged = MemoryBudget(basis="log", buffers=buffers)
        yield found(logged, source="log", run=run, origin=origin)
    devices = [one.id for one in _visible(evidence, running=False)]
    failure = failed_allocation(events, predicted)
    if predicted is not None and logged is not None:
        compared = predicted if failure is None else _as_far_as(predicted, logged, devices)
        yield found(score(compared, logged, devices), source="log", run=run, origin=origin)
    elif predicted is not None:
        why = "the log names no buffers; llama-server prints them with -lv 4"
        yield not_found(MemoryScore, "not-run", why, source="log", run=run, origin=origin)
    if failure is not None:
        yield found(failure, source="log", run=run, origin=origin)
    elif not evidence.of(MemoryOverflow) and evidence.why_not(MemoryOverflow) is None:
        why = "no server's memory could be predicted or read"
        yield not_found(MemoryOverflow, "not-offered", why, source="file", run=run, origin=origin)


def below_window(budgets: Sequence[MemoryBudget], window: int) -> int | None:
    """Give the predicted longest window where memory ends it below the one in force; None where the whole window is expected to fit."""
    for budget in reversed(budgets):
        if budget.basis == "model" and budget.longest_window is not None:
            ends = budget.limited_by != "trained window" and 0 < budget.longest_window < window
            return budget.longest_window if ends else None
    return None


def _as_far_as(predicted: MemoryBudget, logged: MemoryBudget, devices: Sequence[str]) -> MemoryBudget:
    """Leave out of a prediction what a server that failed had not come to: components that its log does not name on that device."""
    reached = {(place_of(one.device, devices), one.component) for one in logged.buffers}
    kept = tuple(one for one in predicted.buffers if (place_of(one.device, devices), one.component) in reached)
    return predicted.model_copy(update={"buffers": kept})


# -- what was asked --------------------------------------------------------------------------------------------------------------------


def configuration_of(evidence: EvidenceSet) -> Configuration:
    """Merge a run's configurations for memory: the command line beats what the server says, whose window is one slot's."""
    merged: dict[str, Setting] = {}
    command: tuple[str, ...] | None = None
    pieces = evidence.of(Configuration)
    for record, one in sorted(pieces, key=lambda piece: piece[0].source == "process"):
        told = dict(one.settings)
        if record.source != "process":
            told.pop("ctx", None)
        merged |= told
        command = one.command or command
    return Configuration(settings=merged, command=command)


def _value(configuration: Configuration, name: str) -> object:
    setting = configuration.settings.get(name)
    return None if setting is None else setting.value


def _asked(evidence: EvidenceSet, *, running: bool) -> _Asked:
    """Read what was asked, or say why it cannot be known."""
    file = evidence.last(ModelFile)
    if file is None:
        missing = evidence.why_not(ModelFile)
        raise _CannotTellError("not-offered", missing.note if missing else "the model file was not looked at")
    if file.format != "gguf":
        raise _CannotTellError("not-offered", "the arithmetic is that of GGUF files; this model has another format")
    configuration = configuration_of(evidence)
    identity = evidence.last(BackendIdentity)
    engine = identity.name if identity is not None else None
    if engine not in SERVES_SLOTS | SERVES_ONE:
        # a router or a manager starts llama.cpp; its command line tells
        engine = detect_backend(configuration.command) if configuration.command else None
    if engine not in SERVES_SLOTS | SERVES_ONE:
        raise _CannotTellError("not-offered", "the arithmetic is llama.cpp's, and this is another server")
    settings = settings_of(configuration)
    if engine in SERVES_ONE and "parallel" not in configuration.settings:
        settings = replace(settings, parallel=1, kv_unified=False)
    settings = as_engine(settings, engine, _build_number(identity))
    if _value(configuration, "swa_compress") is True:
        settings = replace(settings, swa_full=False)
    if settings.ctx == 0 and running:
        settings = replace(settings, ctx=_ctx_in_force(evidence, settings) or 0)
    model = Model.read(file.path)
    if model.shape is None:
        raise _CannotTellError("not-offered", f"{model.unknown}; nothing is predicted from it")
    options, draft, notes = _options(configuration, model, len(_visible(evidence, running=running)))
    if options.draft == "mtp" and not model.shape.draft_layers:
        options = replace(options, draft="")
    return _Asked(model, settings, options, draft, _value(configuration, "mmap") is not False, notes)


def _build_number(identity: BackendIdentity | None) -> int | None:
    """Read llama.cpp's build number, as in b11434; None where it is not told."""
    match = re.match(r"b(\d{3,6})\b", (identity.version if identity is not None else None) or "")
    return int(match[1]) if match else None


def _ctx_in_force(evidence: EvidenceSet, settings: ContextSettings) -> int | None:
    slot = next((one.in_force for _record, one in reversed(evidence.of(WindowReading)) if one.in_force), None)
    if slot is None:
        return None
    return slot if settings.kv_unified else slot * settings.parallel


def _options(configuration: Configuration, model: Model, devices: int) -> tuple[Options, Model | None, tuple[str, ...]]:
    """Read placement, projector and draft; what cannot be read is left out and said."""
    options = options_of(configuration, devices)
    notes: list[str] = []
    overrides: list[tuple[str, int]] = []
    moe = _value(configuration, "cpu_moe")
    if moe is True:
        overrides.append((r"\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1))
    elif isinstance(moe, int) and not isinstance(moe, bool) and moe > 0:
        layers = "|".join(map(str, range(min(moe, 4096))))
        overrides.append((rf"^blk\.({layers})\.ffn_(up|down|gate|gate_up)_(ch|)exps", -1))
    given = _value(configuration, "overrides")
    for each in given if isinstance(given, list | tuple) else [given] if isinstance(given, str) else []:
        for rule in str(each).split(","):
            pattern, _equals, place = rule.rpartition("=")
            if pattern and place.upper() == "CPU":
                overrides.append((pattern, -1))
            elif pattern:
                notes.append(f"the override {rule[:80]} is not counted: only those to the CPU are")
    options = replace(options, overrides=tuple(overrides))
    path = _value(configuration, "mmproj")
    size = _size_of(path)
    if size:
        work = inputs = 0
        with contextlib.suppress(CtxDoctorError, OSError):
            projector = read_projector(str(path), flash_attn=str(_value(configuration, "flash_attention") or "auto"))
            size, work, inputs = projector.weights, projector.compute or 0, projector.inputs or 0
        if not work:
            notes.append(
                "of the projector only the weights are counted: how much work space its kind takes is not known"
            )
        options = replace(
            options,
            projector_bytes=size + work,
            projector_on_host=_value(configuration, "mmproj_offload") is False,
            projector_inputs=inputs,
            projector_error=work // 4,
        )
    draft = None
    path = _value(configuration, "draft_model")
    if isinstance(path, str) and path:
        with contextlib.suppress(CtxDoctorError, OSError):
            draft = Model.read(path)
        if draft is not None and draft.shape is not None:
            options = replace(options, draft="model")
        else:
            draft = None
            notes.append("the draft model is not counted: its file cannot be read from here")
    if model.missing_bytes:
        notes.append(f"{model.missing_bytes} bytes are missing at the end of the model file")
    return options, draft, tuple(notes)


def _size_of(path: object) -> int:
    if not isinstance(path, str) or not path:
        return 0
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


# -- what there is ---------------------------------------------------------------------------------------------------------------------


def _visible(evidence: EvidenceSet, *, running: bool) -> tuple[Device, ...]:
    """Give the devices that the server can use: before it loaded where it did not start, else as they are now."""
    readings = [one for _record, one in evidence.of(DeviceReadings)]
    before = [one for one in readings if "load" in one.when]
    chosen = (readings if running else before or readings)[-1:]
    host = evidence.last(HostReading)
    free, ram = (host.ram_available_bytes, host.ram_bytes) if host is not None else (None, None)
    devices = tuple(as_usable(one, free, ram) for one in chosen[0].devices) if chosen else ()
    if chosen and chosen[0].visibility and any(one.cuda_index is not None for one in devices):
        seen = [one for one in devices if one.cuda_index is not None]
        return tuple(sorted(seen, key=lambda one: one.cuda_index or 0))
    return devices


def _needs(asked: _Asked, devices: Sequence[Device], *, running: bool) -> dict[tuple[str, str], int]:
    """Give what the arithmetic says is held at the settings asked: (device's id, component) → bytes.

    Shares that nobody set follow what was free before loading; while the server runs, the whole device stands for that.
    """
    given = tuple(given_device(one, 0, whole=running) for one in devices)
    host = GivenDevice("host", "host memory", None, 0)
    sums: dict[tuple[str, str], int] = {}
    for one in budget_of(asked.model, asked.settings, given, host, asked.options, asked.draft).buffers:
        key = (one.device, one.component)
        sums[key] = sums.get(key, 0) + one.size_bytes
    return sums


def _room(
    evidence: EvidenceSet,
    asked: _Asked,
    needs: Mapping[tuple[str, str], int],
    *,
    pid: int | None,
    margin_bytes: int | None,
) -> _Room:
    """Find out what the server can have in all of each device and of the host."""
    running = pid is not None
    notes = list(asked.notes)
    held: dict[str, int] = {}
    for (device, _component), size in needs.items():
        held[device] = held.get(device, 0) + size
    given = _visible(evidence, running=running)
    devices = tuple(_with_own(one, held.get(one.id, 0)) for one in given) if running else _as_logged(evidence, given)
    margin = margin_bytes if margin_bytes is not None else 0 if running else DEFAULT_MARGIN
    host = evidence.last(HostReading)
    pages = needs.get(("host", "weights"), 0) if asked.mapped else 0
    shared = sum(max(0, held.get(one.id, 0) - (one.carved_bytes or 0)) for one in given if one.memory == "unified")
    own = held.get("host", 0) - pages + shared if running else 0
    rooms = []
    if host is not None and host.ram_available_bytes is not None:
        rooms.append(min(host.ram_available_bytes + own, host.ram_bytes or host.ram_available_bytes + own))
    if host is not None and host.cgroup_limit_bytes and host.cgroup_used_bytes is not None:
        rooms.append(min(host.cgroup_limit_bytes, host.cgroup_limit_bytes - host.cgroup_used_bytes + own))
    limit = _address_limit(evidence)
    rough, error = False, 0
    if limit is not None:
        program = _own_mapping(pid, held.get("host", 0)) if pid is not None else _mapped_at_failure(evidence, needs)
        if program is not None and pid is None:
            one_arena = str(_value(configuration_of(evidence), "env.MALLOC_ARENA_MAX")) == "1"
            program += STACKS_BYTES if one_arena else ARENAS_BYTES
            if not rooms or limit - program < min(rooms):
                error = 0 if one_arena else ARENAS_BYTES
                notes.append(
                    "threads that the server starts late take part of the limited address space; that is counted"
                )
        rough = program is None and (not rooms or limit < min(rooms))
        if rough:
            notes.append("the address-space limit is counted whole: what the program itself takes of it is not known")
        rooms.append(max(0, limit - (program or 0)))
    return _Room(devices, margin, min(rooms, default=None), rough, error, tuple(notes))


def _with_own(device: Device, need: int) -> Device:
    """Add what the running server must be holding to what is free, up to what is not another's."""
    if device.free_bytes is None:
        return device
    room = device.free_bytes + need
    if device.total_bytes is not None:
        others = sum(one.used_bytes or 0 for one in device.processes or () if one.is_server is False)
        room = min(room, device.total_bytes - others - (device.reserved_bytes or 0))
    return device.model_copy(update={"free_bytes": max(0, room)})


def _as_logged(evidence: EvidenceSet, devices: Sequence[Device]) -> tuple[Device, ...]:
    """Take what the server itself found free, where its log tells: its driver context is out of that already."""
    names = [one.id for one in devices]
    logged = {
        place_of(event.device, names): event.free_bytes
        for _record, event in evidence.of(LogEvent)
        if event.event == "device-found" and event.device and event.free_bytes
    }
    return tuple(
        one.model_copy(update={"free_bytes": min(logged[f"#{at}"], one.free_bytes or logged[f"#{at}"])})
        if f"#{at}" in logged
        else one
        for at, one in enumerate(devices)
    )


def _address_limit(evidence: EvidenceSet) -> int | None:
    launches = [one.address_space_limit_bytes for _record, one in evidence.of(Launch) if one.address_space_limit_bytes]
    host = evidence.last(HostReading)
    own = host.address_space_limit_bytes if host is not None else None
    known = [*launches[-1:], *([own] if own else [])]
    return min(known, default=None)


def _own_mapping(pid: int, held: int) -> int | None:
    """Give what a running server has mapped beside what the arithmetic counts; None where it cannot be read."""
    import psutil  # noqa: PLC0415 - the system's own answer, needed only here

    try:
        mapped = int(psutil.Process(pid).memory_info().vms)
    except psutil.Error:
        return None
    return max(0, mapped - held)


def _mapped_at_failure(evidence: EvidenceSet, needs: Mapping[tuple[str, str], int]) -> int | None:
    """Give what a server that did not start had mapped beside model, cache and work space when it failed; None where that is not known.

    What it had allocated by then is in its log; where the log names no buffers, it is what is allocated before the component that failed.
    """
    peaks = [one.address_space_peak_bytes for _record, one in evidence.of(Launch) if one.address_space_peak_bytes]
    if not peaks:
        return None
    events = [event for _record, event in evidence.of(LogEvent)]
    buffers = [one for one in logged_buffers(events) if _is_of_file(one)]
    if buffers:
        allocated = sum(one.size_bytes for one in buffers)
    else:
        failure = failed_allocation(events)
        if failure is None or failure.component not in ORDER:
            return None
        before = ORDER[: ORDER.index(failure.component)]
        allocated = sum(size for (device, component), size in needs.items() if device == "host" and component in before)
    # less mapped than allocated: what was watched was not the server but what started it
    return peaks[-1] - allocated if peaks[-1] > allocated else None


def _is_of_file(buffer: BufferTruth) -> bool:
    """Say whether the prediction counts such a buffer: on the host, and no rearranged copy of weights."""
    return place_of(buffer.device) == "host" and "REPACK" not in buffer.device.upper()


def _budget(asked: _Asked, room: _Room) -> MemoryBudget:
    given = tuple(given_device(one, room.margin) for one in room.devices)
    host = GivenDevice("host", "host memory", room.host, 0)
    budget = budget_of(asked.model, asked.settings, given, host, asked.options, asked.draft, more_error=room.error)
    steps = None if room.host_is_rough else budget.steps
    return budget.model_copy(update={"notes": room.notes, "steps": steps})
