"""``ctxdoctor check``: a look at a server within a minute and about 3,000 tokens. Which server, which windows, does it cut prompts, memory, red flags."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from diagnose import look
from diagnose.clients import as_evidence, at_home, clients_of, read_named
from diagnose.document import settings_of, subject_of
from diagnose.red_flags import Seen, Severity, raised
from diagnose.ui import Ui
from probes.backends.base import Backend
from probes.backends.http import Http
from probes.base import ProbeContext, Progress, Sent
from probes.counting import counter_for
from probes.evidence.errors import CtxDoctorError, ServerDiedError, UnreachableError, WrongKeyError
from probes.evidence.machine import DeviceReadings, HostReading
from probes.evidence.records import SCHEMA_VERSION, Evidence, EvidenceSet, Text, Unavailable
from probes.evidence.request import TruncationReading
from probes.evidence.subject import (
    BackendIdentity,
    Configuration,
    ModelFile,
    ModelIdentity,
    Setting,
    WindowReading,
)
from probes.truncation import REFUSES_UNPROCESSED, TruncationProbe
from reports.document import Amount, ClientValues, Count, Message, Model, Part, WindowValues, message
from reports.document import Sent as SentValues
from reports.escape import plain_json

CHECK_S = 55.0
"""The whole check, without ``--full``."""
LOADING_S = 40.0
"""How long a server that still loads is waited for."""
CHEAP_WINDOW = 2000
"""Up to here an overlong prompt costs little even where the server processes it."""
LONGEST_REFUSAL = 300_000
"""Above this even writing the prompt takes too long for a quick check."""
FULL_S = 3600.0


class CheckBackend(Part):
    """Which server answers. ``url`` and ``recognised_by`` are beside the contract."""

    name: Text | None = None
    version: Text | None = None
    build: Text | None = None
    url: Text | None = None
    recognised_by: Text | None = None


class CheckTruncation(Part):
    """What becomes of a prompt above the window. ``processed`` is 0 where it was refused unprocessed; ``would_cost_tokens``: with ``--full``."""

    verdict: Literal["none", "refused", "truncated", "unknown"] = "unknown"
    sent: Count | None = None
    processed: Count | None = None
    would_cost_tokens: Count | None = None
    rule: Text | None = Field(default=None, description="optional: the known rule by which it was cut")
    below_sent: Count | None = Field(default=None, description="optional: tokens of a prompt just below the window")
    below_processed: Count | None = None
    silent: bool = False
    note: Text | None = Field(default=None, description="optional: the server's own words, or why it was not tried")


class CheckProcess(Part):
    """A process that holds memory of a device."""

    pid: int
    name: Text | None = None
    used_bytes: Count | None = None
    is_server: bool | None = None


class CheckDevice(Part):
    """One device's memory now."""

    id: str
    name: Text | None = Field(default=None, description="optional")
    total_bytes: Count | None = None
    free_bytes: Count | None = None
    by_process: tuple[CheckProcess, ...] | None = ()


class CheckMemory(Part):
    """Memory in use."""

    devices: tuple[CheckDevice, ...] = ()
    ram_available_bytes: Count | None = None
    ram_bytes: Count | None = Field(default=None, description="optional")
    swap_used_bytes: Count | None = Field(default=None, description="optional")


class CheckFlag(Part):
    """One red flag."""

    id: str
    words: Text
    severity: Severity


class CheckDocument(Part):
    """The ``check`` document."""

    schema_version: int = SCHEMA_VERSION
    backend: CheckBackend
    model: Model
    window: WindowValues
    truncation: CheckTruncation
    memory: CheckMemory
    clients: tuple[ClientValues, ...] = Field(
        default=(), description="optional: what clients believe, by settings files that were named"
    )
    flags: tuple[CheckFlag, ...] = ()
    sent: SentValues = Field(
        default_factory=SentValues,
        description="prompt tokens count what the server processed; a refused prompt costs none",
    )
    unknown: dict[str, Unavailable] = Field(default_factory=dict)
    seconds: Amount | None = Field(default=None, description="optional: how long the check took")
    messages: tuple[Message, ...] = Field(
        default=(), description="optional: how to say this document's texts in other languages"
    )

    def to_json(self) -> str:
        """Give the document as JSON, every key of the contract present."""
        return plain_json(self.model_dump_json(by_alias=True, indent=2))

    @property
    def exit_code(self) -> int:
        """Give 1 where something is seriously wrong, 4 where neither a window nor what becomes of a prompt above it is known, else 0."""
        if self.truncation.verdict == "truncated" or any(flag.severity == "serious" for flag in self.flags):
            return 1
        window = self.window
        known = any(one is not None for one in (window.in_force, window.per_slot, window.asked, window.trained))
        return 0 if known or self.truncation.verdict != "unknown" else 4


@dataclass(slots=True)
class _Brief(ProbeContext):
    """A context in which no request may outlast the check."""

    def deadline_for(self, prompt_tokens: int, generated_tokens: int = 64) -> float:
        """Give a deadline within the time that is left."""
        return max(2.0, min(ProbeContext.deadline_for(self, prompt_tokens, generated_tokens), self.time_left()))


def check(
    url: str,
    ui: Ui,
    *,
    api_key: str | None = None,
    model: str | None = None,
    backend: str | None = None,
    tokenizer: str | None = None,
    clients: tuple[str, ...] = (),
    full: bool = False,
) -> CheckDocument:
    """Look at a server. CouldNotLookError and its leaves where there is nothing to see, InputError for a wrong address or name.

    ``clients``: settings files that were named; BadFileError for one that is none.
    """
    begun = time.monotonic()
    beliefs = [as_evidence(settings, 1) for settings in read_named(clients)]
    sent = Sent()
    with Http(url, api_key) as http:
        server = look.recognised(http, ui, hint=backend, model=model, deadline_s=LOADING_S)
        ui.progress("the server is looked at", 0.1, server.name)
        evidence = list(look.at_server(server, 1))
        _stop_if_gone(server, evidence)
        process, why = look.find_process(server.holder())
        evidence += look.at_process(process, why, server.engine, 1, server.model)
        ui.progress("the machine is looked at", 0.4, "")
        evidence += look.at_machine(1, process.pid if process else None, "check")
        seen = EvidenceSet(evidence)
        settings = settings_of(seen)
        path = _model_path(seen, settings)
        evidence += look.at_model_file(path, 1, local=process is not None)
        seen = EvidenceSet(evidence)
        settings = settings_of(seen)
        subject = subject_of(seen, settings)
        ends = (begun + CHECK_S) if not full else time.monotonic() + FULL_S
        window = subject.window.in_force or _window_by_command(seen)
        truncation = _truncation(server, window, settings, ui, sent, ends, tokenizer=tokenizer, path=path, full=full)
        if truncation.verdict == "unknown" and not truncation.would_cost_tokens and look.no_model(seen):
            truncation = truncation.model_copy(update={"message": look.no_model(seen)})
    if truncation.verdict == "refused" and truncation.processed and not subject.window.in_force:
        # a refusal with its numbers tells the window of a server that keeps it to itself
        subject = subject.model_copy(
            update={"window": subject.window.model_copy(update={"in_force": truncation.window})}
        )
    ui.finish_progress()
    believed = tuple(
        one.model_copy(update={"path": at_home(one.path) if one.path else None})
        for one in clients_of(EvidenceSet([*evidence, *beliefs]))
    )
    devices, host = seen.last(DeviceReadings), seen.last(HostReading)
    identity = seen.last(BackendIdentity)
    name = identity.name if identity is not None else server.name
    flags = list(
        raised(
            Seen(
                backend=name,
                settings=settings,
                command_seen=process is not None,
                window=subject.window,
                unified=subject.kv_cache.unified,
                pool=next((w.pool for _r, w in reversed(seen.of(WindowReading)) if w.pool), None),
                file=seen.last(ModelFile),
                devices=devices,
                host=host,
                truncation=truncation,
                clients=believed,
            )
        )
    )
    refused = truncation.verdict == "refused"
    return CheckDocument(
        backend=CheckBackend(
            name=name,
            version=identity.version if identity else None,
            build=identity.build if identity else None,
            url=server.http.base_url,
            recognised_by=identity.recognised_by or None if identity else None,
        ),
        model=subject.model,
        window=subject.window,
        truncation=CheckTruncation(
            verdict=truncation.verdict,
            sent=truncation.sent,
            processed=0 if refused else truncation.processed,
            would_cost_tokens=truncation.would_cost_tokens,
            rule=truncation.rule,
            below_sent=truncation.below_sent,
            below_processed=truncation.below_processed,
            silent=truncation.silent,
            note=truncation.message or None,
        ),
        memory=_memory(devices, host),
        clients=believed,
        flags=tuple(CheckFlag(id=flag.id, words=flag.words.english, severity=flag.severity) for flag in flags),
        sent=SentValues(
            requests=sent.requests,
            prompt_tokens=max(0, sent.prompt_tokens - (truncation.sent or 0)) if refused else sent.prompt_tokens,
            generated_tokens=sent.generated_tokens,
        ),
        unknown=_unknown(subject.model, subject.window, seen, truncation),
        seconds=round(time.monotonic() - begun, 2),
        messages=tuple(message(flag.words) for flag in flags),
    )


def _stop_if_gone(server: Backend, evidence: list[Evidence]) -> None:
    """Raise where every look failed because the server is gone or wants another key: there is nothing to show then."""
    if any(piece.data is not None for piece in evidence):
        return
    try:
        server.identity()
    except (UnreachableError, ServerDiedError, WrongKeyError):
        raise
    except CtxDoctorError:
        return


def _model_path(seen: EvidenceSet, settings: dict[str, Setting]) -> str | None:
    told = [one.path for _record, one in seen.of(ModelIdentity) if one.path]
    if told:
        return told[-1]
    setting = settings.get("model_path")
    return setting.value if setting is not None and isinstance(setting.value, str) else None


def _window_by_command(seen: EvidenceSet) -> int | None:
    """Give the window of a server that keeps it to itself: what its command asks for, or its default where a command was seen that asks for none."""
    readings = [one for _record, one in seen.of(WindowReading)]
    asked = [one.asked for one in readings if one.asked]
    if asked:
        return asked[-1]
    commands = [one for record, one in seen.of(Configuration) if record.source == "process" and one.command]
    return next((one.default for one in readings if one.default), None) if commands else None


def _truncation(
    server: Backend,
    window: int | None,
    settings: dict[str, Setting],
    ui: Ui,
    sent: Sent,
    ends: float,
    *,
    tokenizer: str | None,
    path: str | None,
    full: bool,
) -> TruncationReading:
    """Send one prompt above the window where that is cheap, or was asked for; else say what it would cost."""
    if not window:
        return TruncationReading(verdict="unknown", message="the server does not say its window")
    probe = TruncationProbe(window, below=full)
    shift = settings.get("context_shift")
    refuses = server.engine in REFUSES_UNPROCESSED and not (shift is not None and shift.value is True)
    if not full and window > CHEAP_WINDOW and not (refuses and window <= LONGEST_REFUSAL):
        return TruncationReading(verdict="unknown", window=window, would_cost_tokens=probe.length())
    try:
        counter = counter_for(server, tokenizer, path, sent)
    except CtxDoctorError as error:
        return TruncationReading(verdict="unknown", window=window, message=str(error))
    if counter is None:
        return TruncationReading(
            verdict="unknown", window=window, message="this server cannot count tokens; give --tokenizer"
        )
    context = _Brief(backend=server, counter=counter, progress=Progress(ui.progress), sent=sent, ends_at=ends)
    failed = ""
    for piece in probe.collect(context):
        if piece.unavailable is not None:
            failed = piece.unavailable.note
    return probe.reading or TruncationReading(verdict="unknown", window=window, message=failed)


def _memory(devices: DeviceReadings | None, host: HostReading | None) -> CheckMemory:
    return CheckMemory(
        devices=tuple(
            CheckDevice(
                id=one.id,
                name=one.name,
                total_bytes=one.total_bytes,
                free_bytes=one.free_bytes,
                by_process=None
                if one.processes is None
                else tuple(
                    CheckProcess(pid=each.pid, name=each.name, used_bytes=each.used_bytes, is_server=each.is_server)
                    for each in one.processes
                ),
            )
            for one in (devices.devices if devices else ())
        ),
        ram_available_bytes=host.ram_available_bytes if host else None,
        ram_bytes=host.ram_bytes if host else None,
        swap_used_bytes=host.swap_used_bytes if host else None,
    )


def _unknown(
    model: Model, window: WindowValues, seen: EvidenceSet, truncation: TruncationReading
) -> dict[str, Unavailable]:
    """Say of each value that is null why it is."""
    unknown: dict[str, Unavailable] = {}
    why_model = seen.why_not(ModelFile) or seen.why_not(ModelIdentity)
    process = seen.why_not(Configuration)
    for name, value in model:
        if value is None:
            unknown[f"model.{name}"] = why_model or Unavailable(
                why="not-offered", note="neither the server nor the model file says it"
            )
    for name, value in window:
        if value is None:
            asked = name == "asked" and process is not None
            unknown[f"window.{name}"] = (
                Unavailable(why="not-offered", note=process.note)
                if asked and process is not None
                else seen.why_not(WindowReading)
                or Unavailable(why="not-offered", note="the server does not say it, nor does its command line")
            )
    if truncation.verdict == "unknown":
        note = truncation.message or "--full sends a prompt above the window and counts what the server processed"
        unknown["truncation.verdict"] = Unavailable(
            why="failed" if truncation.sent else "not-run" if truncation.window else "not-offered", note=note
        )
    devices = seen.last(DeviceReadings)
    if devices is not None and not devices.devices:
        unknown["memory.devices"] = Unavailable(why="not-offered", note="no accelerator was found on this machine")
    return unknown
