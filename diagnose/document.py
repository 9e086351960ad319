"""From a case's journal to the one document that every report is drawn from: gathered here, worded by what made it, drawn by ``reports``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from diagnose.case import Case
from diagnose.clients import clients_of, said_of
from diagnose.findings import said_by_probes
from diagnose.logged import Logged, told_by_log
from diagnose.questions import QUESTIONS
from diagnose.version import version
from diagnose.window import WindowVerdict, other_criteria, reaches, window_verdict
from probes.allocation import NOT_ALLOCATED
from probes.backends.commands import detect_backend
from probes.evidence.events import LogEvent
from probes.evidence.machine import (
    BufferTruth,
    DeviceReadings,
    HostReading,
    MemoryBudget,
    MemoryOverflow,
    MemoryScore,
)
from probes.evidence.records import EvidenceSet, Unavailable
from probes.evidence.request import Launch, TruncationReading
from probes.evidence.rungs import Criteria, LadderFound, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, Setting, WindowReading
from probes.logs.machine import devices_in, program_in
from probes.model_file.explain import place_of
from reports import document as doc
from rules.causes import CAUSES
from rules.derive.cards import never_started
from rules.derive.window import stretched
from rules.facts import VOCABULARY
from rules.verdict import NextTest, Verdict

FAILURES = {
    "alloc-failed": 10.0,
    "load-failed": 9.5,
    "decode-failed": 9.0,
    "kernel-error": 9.5,
    "crash": 9.5,
    "device-lost": 10.0,
    "watchdog": 10.0,
    "oom-killer": 10.0,
    "corrupt-output": 9.0,
    "refused": 8.5,
    "truncated": 9.0,
    "context-shift": 8.0,
    "pool-full": 9.0,
    "full-reprocess": 8.0,
    "window-capped": 9.0,
    "hardware": 9.5,
    "timeout": 8.0,
    "unsupported": 7.5,
    "config-ignored": 8.0,
    "preempted": 7.5,
    "spill": 9.0,
}
TELLING = {
    "window": 6.0,
    "slots": 6.0,
    "kv-cache": 6.0,
    "kv-pool": 6.0,
    "rope": 5.5,
    "buffer": 5.0,
    "layers-offloaded": 5.0,
    "fit": 5.0,
    "command": 4.0,
}
MOST_LOG_LINES = 60


def settings_of(evidence: EvidenceSet) -> dict[str, Setting]:
    """Merge all configurations of a run: the server's own word beats its command line, which beats an answer."""
    rank = {"server": 3, "log": 2, "process": 2, "file": 1, "user": 0, "report": 0}
    merged: dict[str, Setting] = {}
    for _evidence, reading in evidence.of(Configuration):
        for name, setting in reading.settings.items():
            known = merged.get(name)
            if known is None or rank.get(setting.source, 1) >= rank.get(known.source, 1):
                merged[name] = setting
    return merged


def document_of(case: Case, run: int | None = None, *, everything: bool = False) -> doc.CaseDocument:
    """Build the document of a case as of one run (by default its last)."""
    run = run or case.run or 1
    evidence = case.evidence(run)
    verdicts = {entry.run: Verdict.model_validate(entry.data) for entry in case.of("verdict")}
    steps = {entry.run: NextTest.model_validate(entry.data) if entry.data else None for entry in case.of("next-test")}
    window = window_verdict(case, run)
    settings = settings_of(evidence)
    verdict = verdicts.get(run) or Verdict(run=run, named=(), abstained_because="nothing was judged yet", causes=())
    step = steps.get(run)
    all_runs = case.evidence()
    last_sent: dict[int, dict[str, Any]] = {entry.run: entry.data for entry in case.of("sent")}
    decide = would_decide(case, run)
    changes = tuple(doc.ChangeMade.model_validate(entry.data) for entry in case.of("change"))
    clients = clients_of(evidence)
    in_force = _window_value(evidence, "in_force")
    findings = (*said_by_probes(evidence), *(said for one in clients for said in said_of(one, in_force)))
    messages = [doc.message(window.statement), *decide, *(said for change in changes for said in change.said)]
    messages += [doc.message(said) for said in findings]
    subject = subject_of(evidence, settings)
    return doc.CaseDocument(
        tool=doc.Tool(version=version()),
        case=doc.CaseHead(
            id=case.id,
            symptom=case.symptom,
            created=case.created,
            runs=tuple(doc.RunStamp(id=entry.run, at=entry.at) for entry in case.of("run")),
        ),
        subject=subject,
        criteria=_criteria(case, run),
        rungs=tuple(_rung(record.run, one) for record, one in all_runs.of(RungResult)),
        window=_window(window, evidence, case, run),
        verdict=verdict_part(verdict, everything=everything).model_copy(
            update={"would_decide": tuple(each.english for each in decide)}
        ),
        verdicts=tuple(verdict_part(one) for _run, one in sorted(verdicts.items())),
        next_test=next_test_part(step) if step is not None else None,
        changes=changes,
        evidence=all_runs.all,
        sent=doc.Sent(
            requests=sum(int(one.get("requests", 0)) for one in last_sent.values()),
            prompt_tokens=sum(int(one.get("prompt_tokens", 0)) for one in last_sent.values()),
            generated_tokens=sum(int(one.get("generated_tokens", 0)) for one in last_sent.values()),
        ),
        unknown=_unknown(evidence, settings, subject),
        log_lines=_log_lines(evidence, verdict),
        conflicts=_conflicts(verdict),
        memory=_memory(evidence),
        ladder=_ladder(case, run),
        clients=clients,
        notes=(*_notes(case, run, window), *(said.english for said in findings)),
        messages=tuple(messages),
    )


def would_decide(case: Case, run: int) -> list[doc.Message]:
    """Give what could still decide, as it was said when the run was judged last."""
    said: list[Any] = []
    for entry in case.of("note", run):
        said = entry.data.get("would_decide", said)
    return [doc.Message.model_validate(each) for each in said]


@dataclass(frozen=True, slots=True)
class ShownLine:
    """One line of a log or report on which a clue for a leading cause rests: which cause, where it stands, the line."""

    cause: str
    where: str
    text: str


def shown_lines(case: Case, run: int | None = None, most: int = 6) -> list[ShownLine]:
    """Give the lines that speak for the leading causes, those of the likeliest first."""
    run = run or case.run
    verdicts = [Verdict.model_validate(entry.data) for entry in case.of("verdict", run)]
    if not verdicts:
        return []
    texts = {
        record.origin: (event.log, event.line, event.text)
        for record, event in case.evidence(run).of(LogEvent)
        if event.text
    }
    found: list[ShownLine] = []
    for origin, cause in cited_origins(verdicts[-1]).items():
        if origin in texts:
            log, line, text = texts[origin]
            found.append(ShownLine(cause, f"{log or 'log'}:{line}" if line else log or origin, text))
    return found[:most]


def _last(evidence: EvidenceSet, kind: type[Any], name: str) -> Any:
    """Give the newest value of a field that is not None, over all payloads of a kind."""
    for _record, payload in reversed(evidence.of(kind)):
        value = getattr(payload, name)
        if value is not None:
            return value
    return None


_WHICH = {"asked": "asked", "per_slot": "per-slot", "in_force": "in-force"}


def _trained(evidence: EvidenceSet) -> int | None:
    """Give the training length as the server or its log tells it; the model file's own where what they tell is a stretched one."""
    told = [window.trained for _record, window in evidence.of(WindowReading) if window.trained]
    logged, files = evidence.of(LogEvent), evidence.of(ModelFile)
    told = [e.tokens for _r, e in logged if e.event == "window" and e.which == "trained" and e.tokens] + told
    no_training = stretched(logged, evidence.of(Configuration), files, evidence.of(WindowReading))
    plain = [one for one in told if one not in no_training]
    own = [file.trained_window for _record, file in files if file.trained_window]
    chosen = plain or own
    return chosen[-1] if chosen else None


def _window_value(evidence: EvidenceSet, name: str) -> Any:
    """Give a window as the server or its process says, else as its log does."""
    value = _last(evidence, WindowReading, name)
    if name == "trained":
        return _trained(evidence)
    if name == "in_force":
        # by what a server refuses it shows its window, whatever it, or what stands before it, tells of itself
        shown = [
            cut.window for _record, cut in evidence.of(TruncationReading) if cut.verdict == "refused" and cut.window
        ]
        if shown and (value is None or shown[-1] < 0.95 * value):
            return shown[-1]
    if value is not None:
        return value
    events = [event for _record, event in evidence.of(LogEvent)]
    # a server whose load failed had no window in force: what its log calls so is what it was told to make
    which = _WHICH.get(name)
    if name in {"asked", "in_force"} and never_started(events):
        which = "in-force" if name == "asked" else None
    for event in reversed(events):
        if name == "slots" and event.event == "slots" and event.count:
            return event.count
        if event.event == "window" and which is not None and event.which == which and event.tokens:
            return event.tokens
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def subject_of(evidence: EvidenceSet, settings: Mapping[str, Setting]) -> doc.Subject:
    """Say what was under test, as far as the evidence goes."""

    def setting(name: str) -> Any:
        found = settings.get(name)
        return None if found is None else found.value

    def shown(name: str) -> Any:
        value = setting(name)
        return (
            value
            if value is None or isinstance(value, str | bool)
            else ", ".join(map(str, value))
            if isinstance(value, list | tuple)
            else str(value)
        )

    file = evidence.last(ModelFile)
    read = evidence.last(DeviceReadings)
    said = [event for _record, event in evidence.of(LogEvent)]
    devices = read.devices if read is not None and read.devices else devices_in(said)
    logged = told_by_log(said)
    program = program_in(said)
    backend = _last(evidence, BackendIdentity, "name")
    if program is not None and backend is not None and program.name != backend:
        program = None
    host = evidence.last(HostReading)
    launch = evidence.last(Launch)
    configurations = [reading for _record, reading in evidence.of(Configuration) if reading.command]
    kv_events = [
        event
        for _record, event in evidence.of(LogEvent)
        if event.event == "kv-cache" and event.key not in NOT_ALLOCATED
    ]
    per_token = file.kv_bytes_per_token if file is not None else None
    rope = {
        name: setting(name)
        for name in ("rope_scaling", "rope_scale", "rope_freq_base", "rope_freq_scale", "yarn_orig_ctx")
        if setting(name) is not None
    }
    command = configurations[-1].command if configurations else None
    return doc.Subject(
        model=doc.Model(
            name=_last(evidence, ModelIdentity, "name") or (file.name if file else None) or logged.name,
            path=_last(evidence, ModelIdentity, "path") or (file.path if file else None) or logged.path,
            size_bytes=(file.size_bytes if file else None)
            or _last(evidence, ModelIdentity, "size_bytes")
            or logged.size_bytes,
            quantization=_last(evidence, ModelIdentity, "quantization")
            or (file.quantization if file else None)
            or logged.quantization,
            architecture=(file.architecture if file else None)
            or _last(evidence, ModelIdentity, "architecture")
            or logged.architecture,
            trained_window=(file.trained_window if file else None)
            or _last(evidence, ModelIdentity, "trained_window")
            or logged.trained_window,
            header_hash=file.header_hash if file else None,
            parameters=_last(evidence, ModelIdentity, "parameters") or logged.parameters,
        ),
        backend=doc.Server(
            name=backend or (program.name if program else None),
            version=_last(evidence, BackendIdentity, "version") or (program.version if program else None),
            build=_last(evidence, BackendIdentity, "build") or (program.build if program else None),
            url=_last(evidence, BackendIdentity, "url"),
            how_run=_how_run(evidence, launch),
            command=command,
            environment={
                name.removeprefix("env."): str(one.value) for name, one in settings.items() if name.startswith("env.")
            },
        ),
        window=doc.WindowValues(
            asked=_window_value(evidence, "asked"),
            trained=_window_value(evidence, "trained"),
            per_slot=_window_value(evidence, "per_slot"),
            slots=_window_value(evidence, "slots"),
            in_force=_window_value(evidence, "in_force"),
        ),
        kv_cache=doc.KvCache(
            type_k=shown("kv_type_k") or next((event.type_k for event in kv_events if event.type_k), None),
            type_v=shown("kv_type_v") or next((event.type_v for event in kv_events if event.type_v), None),
            placement=_placement_of_cache(logged, setting("kv_offload")),
            bytes_per_token=per_token,
            unified=_either(_last(evidence, WindowReading, "unified"), logged.kv_unified),
            size_bytes=sum(event.size_bytes or 0 for event in kv_events) or logged.kv_bytes,
        ),
        hardware=doc.Hardware(
            devices=tuple(
                doc.DeviceValues(
                    id=one.id,
                    name=one.name,
                    vendor=one.vendor,
                    total_bytes=one.total_bytes,
                    free_bytes=one.free_bytes,
                    driver=one.driver,
                    link=getattr(one, "link", None),
                )
                for one in devices
            ),
            ram_bytes=host.ram_bytes if host else None,
            os=host.os if host else logged.os,
            cpu=host.cpu if host else None,
            ram_available_bytes=host.ram_available_bytes if host else None,
            swap_bytes=host.swap_total_bytes if host else None,
        ),
        placement=doc.Placement(
            gpu_layers=_either(setting("gpu_layers"), logged.gpu_layers),
            tensor_split=shown("tensor_split"),
            split_mode=shown("split_mode"),
            overrides=shown("overrides"),
            layers=file.layers if file else logged.layers,
        ),
        runtime=doc.Runtime(
            batch=_either(_whole(setting("batch")), logged.batch),
            ubatch=_either(_whole(setting("ubatch")), logged.ubatch),
            flash_attention=_either(shown("flash_attention"), logged.flash_attention),
            parallel=_whole(setting("parallel")) or _window_value(evidence, "slots"),
            speculation=shown("speculation"),
            projector=shown("mmproj") or setting("mmproj_loaded"),
            rope=rope or logged.rope or None,
            threads=setting("threads") if isinstance(setting("threads"), int) else logged.threads,
            sampling={"temperature": 0, "seed": plan.seed} if (plan := evidence.last(LadderPlan)) is not None else None,
            output_tokens=_last(evidence, LadderPlan, "output_tokens"),
        ),
    )


def _how_run(evidence: EvidenceSet, launch: Launch | None) -> str | None:
    """Say how the server was run, where that was seen."""
    if launch is not None:
        return "started by ctxdoctor from the user's command"
    seen = any(record.source == "server" for record, _identity in evidence.of(BackendIdentity))
    return "was running already" if seen else None


def _either(one: Any, other: Any) -> Any:
    return other if one is None else one


def _placement_of_cache(logged: Logged, offload: object) -> str | None:
    """Say where the cache lies, or was to lie: a place that refused its piece is one of its places."""
    if logged.kv_places:
        return ", ".join(logged.kv_places)
    return "host" if offload is False else None


def _criteria(case: Case, run: int) -> doc.CriteriaValues:
    kept = case.payloads(Criteria, run)
    if not kept:
        return doc.CriteriaValues()
    one = kept[-1]
    return doc.CriteriaValues(**one.model_dump(exclude={"fixed_at"}), fixed_at=one.fixed_at, hash=one.hash)


def _rung(run: int, one: RungResult) -> doc.Rung:
    return doc.Rung(
        run=run,
        input_tokens=one.input_tokens,
        output_tokens=one.output_tokens,
        cached_tokens=one.cached_tokens,
        attempt=one.attempt,
        result=one.result,
        error=one.error,
        prefill_tps=one.prefill_tps,
        generation_tps=one.generation_tps,
        first_token_s=one.first_token_s,
        canaries=None
        if one.canaries is None
        else doc.Canaries(
            hit=one.canaries.hit,
            asked=one.canaries.asked,
            by_depth=tuple(doc.DepthScore(depth=place.depth, hit=place.hit) for place in one.canaries.by_depth),
            non_literal_hit=one.canaries.non_literal_hit,
            non_literal_asked=one.canaries.non_literal_asked,
        ),
        constraints=None
        if one.constraints is None
        else doc.Constraints(met=one.constraints.met, asked=one.constraints.asked),
        devices=tuple(doc.DevicePeakValue(id=peak.id, peak_bytes=peak.peak_bytes) for peak in one.devices),
        host_peak_bytes=one.host_peak_bytes,
        planned_tokens=one.rung,
        error_kind=one.error_kind,
        total_s=one.total_s,
    )


def _window(window: WindowVerdict, evidence: EvidenceSet, case: Case, run: int) -> doc.WindowResult:
    plans = case.payloads(LadderPlan, run)
    aim = window.target_input

    def reached(tokens: int | None, test: str) -> doc.Reached:
        values = [getattr(one, test) for one in window.lengths]
        if test == "recalls" and window.unable:
            # a model that cannot do the test has neither passed nor failed it
            return doc.Reached(tokens=None, ok=None)
        too_small = test == "fits" and window.target_reached is False and False not in values
        if aim is not None:
            there = tokens is not None and reaches(tokens, aim)
            return doc.Reached(tokens=tokens, ok=True if there else False if False in values or too_small else None)
        if not window.lengths or tokens is None:
            return doc.Reached(tokens=tokens, ok=False if values and values[0] is False else None)
        # without a target the longest planned length is what was wanted; a budget may have ended the way before it
        top = 0.85 * max(plans[-1].rungs) if plans else 0
        return doc.Reached(tokens=tokens, ok=True if tokens >= top else False if False in values else None)

    return doc.WindowResult(
        asked=_window_value(evidence, "asked"),
        trained=_window_value(evidence, "trained"),
        in_force=_window_value(evidence, "in_force"),
        verified_input_tokens=window.verified,
        output_tokens=plans[-1].output_tokens if plans else None,
        fits=reached(window.fits, "fits"),
        fast_enough=reached(window.fast_enough, "fast_enough"),
        recalls=reached(window.recalls, "recalls"),
        statement=window.statement.english,
    )


def verdict_part(one: Verdict, *, everything: bool = False) -> doc.VerdictValues:
    """Turn the judge's record into the document's; ``everything`` shows unlikely causes in full too."""
    shown = [cause for cause in one.causes if everything or cause.band not in {"unlikely", "ruled out", "ruled-out"}]
    aside = [cause for cause in one.causes if cause not in shown]
    return doc.VerdictValues(
        run=one.run,
        named=one.named,
        confirmed=one.confirmed,
        abstained_because=one.abstained_because,
        causes=tuple(_cause(cause, one) for cause in shown),
        set_aside=tuple(
            doc.SetAside(
                id=cause.id,
                band=cause.band,
                words=CAUSES[cause.id].words.english if cause.id in CAUSES else None,
                because_holds=_because_holds(cause),
                because=min(cause.clues, key=lambda clue: clue.weight).words
                if cause.clues and min(c.weight for c in cause.clues) < 0
                else None,
            )
            for cause in aside
        ),
    )


_GIVEN = frozenset({"--command"})
"""What a user gave that is no answer to a question."""


def _because_holds(cause: Any) -> bool | None:
    """Say whether the clue that speaks strongest against a cause holds, or does not."""
    against = [clue for clue in cause.clues if clue.weight < 0]
    if not against:
        return None
    return {"true": True, "false": False}.get(min(against, key=lambda clue: clue.weight).truth)


def _cause(cause: Any, one: Verdict) -> doc.CauseFound:
    return doc.CauseFound(
        id=cause.id,
        family=cause.family,
        band=cause.band,
        low=cause.low,
        now=cause.now,
        high=cause.high,
        explains=cause.explains,
        words=CAUSES[cause.id].words.english if cause.id in CAUSES else None,
        overturned_by=one.overturned_by.get(cause.id, ()),
        clues=tuple(
            doc.ClueFound(
                words=clue.words,
                truth=clue.truth,
                weight=clue.weight,
                facts=tuple(
                    doc.FactFound(
                        id=fact.id,
                        found=fact.found,
                        source=fact.origin if fact.origin in _GIVEN else fact.source,
                        why_unknown=fact.why_unknown,
                        words=VOCABULARY[fact.id].words.english if fact.id in VOCABULARY else None,
                        unit=VOCABULARY[fact.id].unit if fact.id in VOCABULARY else None,
                        found_words=_choices_in_words(fact.id, fact.found),
                    )
                    for fact in clue.facts
                ),
            )
            for clue in cause.clues
        ),
    )


def _choices_in_words(fact_id: str, found: object) -> tuple[str, ...]:
    """Say what was found in words, where it is one or more of the choices of a question; empty otherwise."""
    values = found if isinstance(found, list | tuple) else (found,)
    asked = VOCABULARY[fact_id].question if fact_id in VOCABULARY else None
    if not values or not all(isinstance(value, str) for value in values):
        return ()
    if asked is None and not fact_id.startswith(("failure.", "told.")):
        return ()
    for one in QUESTIONS:
        choices = {choice.id: choice.words.english for choice in one.choices}
        if (asked is None or one.id == asked) and all(value in choices for value in values):
            return tuple(choices[str(value)] for value in values)
    return ()


def next_test_part(step: NextTest) -> doc.NextTest:
    """Turn the chosen step into the document's."""
    asked = next((one for one in QUESTIONS if step.kind == "answer" and one.id == step.variable), None)
    opens = step.kind in {"answer", "probe"}
    return doc.NextTest(
        question=asked.words.english if asked is not None else None,
        choices=tuple(doc.ChoiceOffered(id=one.id, words=one.words.english) for one in asked.choices) if asked else (),
        decides=tuple(CAUSES[one].words.english for one in step.splits if opens and one in CAUSES),
        tells=tuple(VOCABULARY[one].words.english for one in step.closes if one in VOCABULARY),
        kind=step.kind,
        variable=step.variable,
        from_=step.start,
        to=step.to,
        command=step.command,
        undo=step.undo,
        keep=step.keep,
        expects=tuple(doc.Expectation(cause=one.cause, words=one.words) for one in step.expects),
        cost=doc.TestCost(minutes=step.cost.minutes, tokens=step.cost.tokens, quality=step.cost.quality),
        reason=step.reason,
        first=tuple(doc.PutBack(variable=one.variable, from_=one.start, to=one.to) for one in step.first),
    )


_PATHS = {
    "kv_type_k": "subject.kv_cache.type_k",
    "kv_type_v": "subject.kv_cache.type_v",
    "gpu_layers": "subject.placement.gpu_layers",
    "tensor_split": "subject.placement.tensor_split",
    "split_mode": "subject.placement.split_mode",
    "overrides": "subject.placement.overrides",
    "batch": "subject.runtime.batch",
    "ubatch": "subject.runtime.ubatch",
    "flash_attention": "subject.runtime.flash_attention",
    "threads": "subject.runtime.threads",
    "speculation": "subject.runtime.speculation",
}


def _at(subject: doc.Subject, path: str) -> Any:
    """Give the value at a path such as ``subject.kv_cache.type_k``."""
    value: Any = subject
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def _unknown(evidence: EvidenceSet, settings: Mapping[str, Setting], subject: doc.Subject) -> dict[str, Unavailable]:
    found: dict[str, Unavailable] = {}
    present = {path for path in _PATHS.values() if _at(subject, path) is not None}
    # a program that starts the server by its own means shows no flags: then nothing is known of what was set
    had_process = any(
        record.source == "process" and reading.command and detect_backend(reading.command) is not None
        for record, reading in evidence.of(Configuration)
    )
    had_server = any(record.source == "server" for record in evidence.all)
    had_log = bool(evidence.of(LogEvent))
    for name, path in _PATHS.items():
        if name not in settings and path not in present:
            if had_process:
                note = "not on the server's command line, so its default holds"
            elif had_server:
                note = "the server does not tell it over HTTP, and no command line that sets it was seen"
            elif had_log:
                note = "the log does not tell it, and no command line that sets it was seen"
            else:
                note = "no server, no log and no command line that sets it was seen"
            found[path] = Unavailable(why="not-offered", note=note)
    for record in evidence.all:
        # that nothing overflows is no gap in what is known; where nothing could be predicted, the budget's own record says why
        if record.unavailable is not None and record.kind != MemoryOverflow.kind:
            found.setdefault(f"evidence.{record.kind}", record.unavailable)
    return found


CITED = 9.8
"""Worth of a line on which a clue for a leading cause rests, whatever kind of line it is."""


def cited_origins(verdict: Verdict, most: int = 6) -> dict[str, str]:
    """Give where the clues that speak for the leading causes were read: origin → the cause that it speaks for, the likeliest first."""
    cited: dict[str, str] = {}
    for cause in verdict.causes[:most]:
        if cause.band not in {"likely", "possible", "disputed"} and cause.id not in verdict.named:
            continue
        for clue in sorted(cause.clues, key=lambda one: -one.weight):
            if clue.weight <= 0:
                break
            for fact in clue.facts:
                if fact.origin and fact.source in {"log", "report"}:
                    cited.setdefault(fact.origin, cause.id)
    return cited


def _refusals_on_purpose(evidence: EvidenceSet) -> tuple[int, ...]:
    """Give the lengths that a probe sent in order to be refused: their refusal is no failure of the server."""
    return tuple(reading.sent for _record, reading in evidence.of(TruncationReading) if reading.sent is not None)


_MEMORY = frozenset({"memory", "alloc", "device", "kv"})
_SIZES = frozenset({"buffer", "kv-cache", "kv-pool", "layers-offloaded", "fit", "flash-attention"})
_OF_MEMORY = 2.0
"""So much more a line of sizes is worth where a leading cause rests on sizes."""


def _matters(verdict: Verdict, most: int = 3) -> frozenset[str]:
    """Give what the leading causes rest on: the first parts of their facts' names. Empty where nothing leads."""
    leading = [c for c in verdict.causes if c.id in verdict.named or c.band in {"likely", "possible", "disputed"}]
    return frozenset(
        fact.id.partition(".")[0]
        for cause in leading[:most]
        for clue in cause.clues
        if clue.weight > 0
        for fact in clue.facts
        if fact.found is not None
    )


def _telling(event: LogEvent, about: frozenset[str]) -> float:
    """Say what a line is worth that is no failure: more where a leading cause rests on what it tells, nothing where none does and it is a detail."""
    worth = TELLING.get(event.event, 0.0)
    sizes = bool(about & _MEMORY)
    if event.event == "rope" and about and "rope" not in about:
        return 0.0
    if event.event in {"device-found", "flash-attention"} or (event.event == "model-info" and event.size_bytes):
        worth = 4.5 if event.event != "device-found" or event.free_bytes or event.total_bytes else 0.0
    told = event.event in _SIZES or event.event in {"device-found", "model-info"}
    return worth + _OF_MEMORY if sizes and worth and told else worth


def _follows(event: LogEvent) -> bool:
    """Say whether a shift is only a cache that follows a prompt which lacks some of the one before: KoboldCpp's is no failure."""
    return event.event == "context-shift" and event.dialect == "koboldcpp"


def _log_lines(evidence: EvidenceSet, verdict: Verdict) -> tuple[doc.LogLine, ...]:
    lines: dict[tuple[str, int, str], doc.LogLine] = {}
    cited = cited_origins(verdict)
    ours = _refusals_on_purpose(evidence)
    about = _matters(verdict)
    for record, event in evidence.of(LogEvent):
        if (
            event.event == "refused"
            and event.tokens is not None
            and any(abs(event.tokens - sent) <= 128 for sent in ours)
        ):
            continue
        worth = FAILURES.get(event.event) or _telling(event, about)
        if record.origin in cited:
            worth = max(worth, CITED)
        if worth <= 0 or not event.text:
            continue
        printed = [(event.line, event.text), *zip(event.further_lines, event.further, strict=False)]
        for after, (number, text) in enumerate(printed):
            key = (event.log, number, text)
            known = lines.get(key)
            if known is None or worth > known.worth:
                lines[key] = doc.LogLine(
                    text=text,
                    log=event.log or None,
                    line=number or None,
                    run=record.run,
                    event=event.event,
                    worth=max(worth - 0.01 * after, 0.0),
                    is_error=(event.event in FAILURES and not _follows(event)) or event.level == "error",
                    cause=cited.get(record.origin) if after == 0 else None,
                )
    best = sorted(lines.values(), key=lambda one: -one.worth)[:MOST_LOG_LINES]
    return tuple(sorted(best, key=lambda one: (one.log or "", one.line or 0)))


def _conflicts(verdict: Verdict) -> tuple[doc.Conflict, ...]:
    return tuple(
        doc.Conflict(
            fact=one.id,
            words=VOCABULARY[one.id].words.english if one.id in VOCABULARY else None,
            unit=VOCABULARY[one.id].unit if one.id in VOCABULARY else None,
            believed=one.taken.found,
            believed_source=one.taken.source,
            other=other.found,
            other_source=other.source,
        )
        for one in verdict.conflicts
        for other in one.others[:1]
    )


def _components(buffers: Iterable[BufferTruth], name_of: Callable[[str], str]) -> dict[str, dict[str, int]]:
    """Add up buffers by device and column of the document."""
    table: dict[str, dict[str, int]] = {}
    for buffer in buffers:
        own = buffer.component in {"weights", "kv", "state", "compute"}
        column = f"{buffer.component}_bytes" if own else "other_bytes"
        row = table.setdefault(name_of(buffer.device), {})
        row[column] = row.get(column, 0) + buffer.size_bytes
    return table


def _memory(evidence: EvidenceSet) -> doc.MemoryByComponent | None:
    budgets = evidence.of(MemoryBudget)
    predicted = next((one for _record, one in reversed(budgets) if one.basis == "model"), None)
    by, measured = next(((record, one) for record, one in reversed(budgets) if one.basis != "model"), (None, None))
    shown = measured or predicted
    if shown is None:
        return None
    told = by is not None and by.source == "server"
    devices = {one.id: one for reading in [evidence.last(DeviceReadings)] if reading for one in reading.devices}

    def rows(buffers: Iterable[BufferTruth]) -> tuple[doc.ComponentMemory, ...]:
        return tuple(
            doc.ComponentMemory(
                id=name,
                name=devices[name].name if name in devices else None,
                total_bytes=devices[name].total_bytes if name in devices else None,
                **row,
            )
            for name, row in _components(buffers, str).items()
        )

    memory = doc.MemoryByComponent(basis="server" if told else shown.basis, ctx=shown.ctx, devices=rows(shown.buffers))
    if predicted is None:
        return memory
    overflows = [one for _record, one in evidence.of(MemoryOverflow)]
    questioned = bool(overflows) or predicted.limited_by not in {None, "trained window"}
    return memory.model_copy(
        update={
            "predicted": rows(predicted.buffers),
            "predicted_ctx": predicted.ctx,
            "error_bytes": predicted.error_bytes,
            "longest_window": predicted.longest_window,
            "limited_by": predicted.limited_by,
            "compared": _compared(evidence, predicted, measured, list(devices)),
            "overflowed": tuple(
                doc.MemoryLacking(
                    device=one.device,
                    component=one.component,
                    lacking_bytes=one.lacking_bytes,
                    piece_bytes=one.piece_bytes,
                    basis=one.basis,
                    other_split=one.other_split,
                )
                for one in overflows
            ),
            "levers": tuple(
                doc.MemoryLever(**lever.model_dump()) for lever in (predicted.levers if questioned else ())
            ),
            "cache_types": tuple(
                doc.MemoryCacheType(kv=one.kv, tokens=one.tokens, refused=one.refused_because is not None)
                for one in (predicted.by_cache_type if questioned else ())
            ),
        }
    )


def _compared(
    evidence: EvidenceSet, predicted: MemoryBudget, logged: MemoryBudget | None, names: list[str]
) -> tuple[doc.MemoryCompared, ...]:
    """Put prediction and log of each device side by side. A log of a start that failed is not whole, so it neither agrees nor not."""
    score = evidence.last(MemoryScore)
    launch = evidence.last(Launch)
    whole = launch is None or launch.healthy
    agrees = {one.device: one.agrees for one in score.differences} if score is not None and whole else {}

    def place(device: str) -> str:
        return place_of(device, names)

    expected = _components(predicted.buffers, place)
    found = _components(logged.buffers, place) if logged is not None else {}
    shown = {place(name): name for name in ("host", *names)}
    return tuple(
        doc.MemoryCompared(
            device=shown.get(at, at),
            predicted=doc.ComponentMemory(id=at, **expected[at]) if at in expected else None,
            logged=doc.ComponentMemory(id=at, **found[at]) if at in found else None,
            agrees=agrees.get(at),
        )
        for at in sorted({*expected, *found})
    )


def _ladder(case: Case, run: int) -> doc.LadderValues | None:
    plans = case.payloads(LadderPlan, run)
    if not plans:
        return None
    plan, bases = plans[-1], case.payloads(RecallBase, run)
    ends = case.payloads(LadderFound, run)
    base = bases[-1] if bases else None
    return doc.LadderValues(
        rungs=plan.rungs,
        target=plan.target,
        style=base.style if base else None,
        able=base.able if base else None,
        base_hit=base.hit if base else None,
        base_asked=base.asked if base else None,
        tokenizer=plan.tokenizer,
        seed=plan.seed,
        stopped=ends[-1].stopped if ends else None,
    )


def _notes(case: Case, run: int, window: WindowVerdict) -> Iterable[str]:
    if case.dropped:
        yield f"The tool was interrupted while writing: {case.dropped}."
    starts = case.payloads(Launch, run)
    if starts and not starts[-1].healthy:
        yield f"The server did not start: {starts[-1].why}"
    for ended in case.payloads(LadderFound, run):
        if ended.stopped in {"budget", "died"}:
            yield f"The way up the lengths ended early. {ended.why}"
    other = other_criteria(case, run)
    if other is not None:
        yield other.english
    if window.unable:
        yield "This model cannot do the recall test even at a short length, so nothing is said about recall."
    for entry in case.of("run-ended", run):
        if entry.data.get("could_not_look"):
            yield f"The session could not look further: {entry.data['could_not_look']}"
