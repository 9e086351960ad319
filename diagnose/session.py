"""One run of a case: open the server, look, measure, judge. A walk through the floors; what each step does lives there.

Every piece of evidence is in the journal before the next is measured. A run that was interrupted is gone on with: what is in the journal is not
measured again.
"""

from __future__ import annotations

import contextlib
import time
from functools import partial
from pathlib import Path
from typing import Literal

from diagnose import agenda, forecast, look, memory
from diagnose.history import settle
from diagnose.judging import judge_run
from diagnose.opening import opened
from diagnose.readback import read_back
from diagnose.reviving import ended, revive, start_anew, still_answers
from diagnose.run_logs import before_measuring, before_stop, events_now, read_logs
from diagnose.running import Walk
from diagnose.shape import Shape, shape_of, window_of
from diagnose.snapshots import snapshot_of
from probes.backends.base import Backend
from probes.backends.commands import parse_command
from probes.backends.deadline import until
from probes.base import UNENDED, USED_UP, ProbeContext, Progress
from probes.control import types_in
from probes.counting import LITTLE_S, counter_for, within
from probes.evidence.answers import Answer
from probes.evidence.damage import NextTokens
from probes.evidence.errors import BudgetEndedError, CouldNotLookError, CtxDoctorError, LaunchFailedError
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet, found, not_found
from probes.evidence.request import TURNED_AWAY, Launch, RequestError, Restarted, TornStream, TruncationReading
from probes.evidence.rungs import LadderPlan, RecallBase, RungResult, WayOfAsking
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, WindowReading
from probes.gpu.sampler import Sampler
from probes.logs import tail_events
from probes.process import ServerProcess

LEAST_LOOK_S = 10.0
"""So long a server that came up at last is looked at, also where its start used the budget up."""
LEAST_S = 3.0
"""With less than this left, no probe is begun."""
LOOK_AGAIN_S = 10.0


def walk(one: Walk) -> None:
    """Do a run from its beginning to its judged end."""
    try:
        with opened(one):
            try:
                if one.backend is not None:
                    _look(one)
                    _keep_configuration(one, "before")
                    _measure(one)
                    _look_again(one)
            finally:
                before_stop(one)
    except (CouldNotLookError, LaunchFailedError) as error:
        one.could_not_look = error
        one.add(not_found("session", "failed", str(error), run=one.run, origin="session"))
    except BudgetEndedError:
        one.add(not_found("session", "not-run", USED_UP, run=one.run, origin="session"))
    finally:
        one.ui.finish_progress()
    read_logs(one)
    _explain_memory(one)
    _keep_configuration(one, "before")
    settle(one.case, one.run)
    judge_run(one)
    one.case.append("run-ended", {"could_not_look": str(one.could_not_look) if one.could_not_look else None})


# -- looking ---------------------------------------------------------------------------------------------------------------------------


def _look(one: Walk) -> None:
    """Everything that is to be seen without sending a prompt; once a run."""
    backend = one.backend
    assert backend is not None
    refused = look.awake(backend, one.ui)
    process, why = look.find_process(backend.holder())
    if "look" not in one.case.done_probes(one.run):
        one.case.make_room()
        for evidence in look.at_server(backend, one.run):
            one.add(evidence)
        for evidence in look.at_process(process, why, backend.engine, one.run, backend.model):
            one.add(evidence)
        for evidence in look.at_machine(one.run, process.pid if process else None, "before run"):
            one.add(evidence)
        model = one.last(ModelIdentity)
        path = model.path if model is not None else None
        settings = [
            setting
            for reading in one.mine(Configuration)
            for name, setting in reading.settings.items()
            if name == "model_path"
        ]
        if path is None and settings and isinstance(settings[-1].value, str):
            path = settings[-1].value
        for evidence in look.at_model_file(path, one.run, local=process is not None):
            one.add(evidence)
        if process is not None:
            _predict_memory(one, process.pid)
        one.case.append("probe-done", {"probe": "look"})
    if process is not None and one.server is None:
        log_file = parse_command(process.argv, process.environment, backend.engine).settings.get("log_file")
        if log_file is not None and isinstance(log_file.value, str):
            one.log_paths.append(Path(process.cwd or ".") / log_file.value)
    if refused is not None:
        one.add(found(refused, source="measured", run=one.run, origin="load"))
        # what it answers is what its runner printed: read as its log is
        for event in tail_events(refused.message, "the server's answer"):
            one.add(found(event, source="server", run=one.run, origin="load"))
        raise CouldNotLookError(f"{backend.name} does not load the model: {refused.message}")
    one.counter = counter_for(backend, one.options.tokenizer, sent=one.sent, ends_at=_ends(one))


def _ends(one: Walk) -> float:
    """Give when the run's time is over, by the monotonic clock: what the start took is of the same budget."""
    return max(one.begun + one.options.budget_s, time.monotonic() + LEAST_LOOK_S)


def _predict_memory(one: Walk, pid: int | None) -> None:
    """Predict where the memory goes, and the longest window that fits, from the model file."""
    for evidence in memory.predict(
        one.case.evidence(one.run), one.run, pid=pid, margin_bytes=one.criteria.margin_bytes
    ):
        one.add(evidence)


def _explain_memory(one: Walk) -> None:
    """Hold the prediction against the log, and say what overflowed; once a run. A server that did not start is predicted from its command."""
    if "memory" in one.case.done_probes(one.run):
        return
    launches = one.mine(Launch)
    if launches and not launches[-1].healthy and not one.mine(ModelFile):
        settings = memory.configuration_of(one.case.evidence(one.run)).settings
        path = settings["model_path"].value if "model_path" in settings else None
        for evidence in look.at_model_file(path if isinstance(path, str) else None, one.run, local=True):
            one.add(evidence)
        _predict_memory(one, None)
    for evidence in memory.explain(one.case.evidence(one.run), one.run):
        one.add(evidence)
    one.case.append("probe-done", {"probe": "memory"})


def _keep_configuration(one: Walk, when: Literal["before", "after"]) -> None:
    """Read the configuration back and keep it, once a run; where nothing at all was seen there is nothing to keep."""
    if snapshot_of(one.case, one.run, when) is not None:
        return
    evidence = one.case.evidence(one.run)
    if one.backend is None and not evidence.of(Configuration):
        return
    request = {"seed": one.options.seed, "text_folder": one.options.text_folder}
    snapshot = read_back(evidence, when, events=events_now(one), request=request)
    one.add(found(snapshot, source="measured", run=one.run, origin="configuration"))


def _look_again(one: Walk) -> None:
    """Read the configuration once more when all was measured: what changed meanwhile, nobody asked for."""
    backend = one.backend
    if backend is None or ended(one, None) is not None:
        return
    with contextlib.suppress(CtxDoctorError):
        # some servers are known for sure only by their answers: mlx_lm.server by its first completion
        told = backend.identity()
        if told != one.last(BackendIdentity):
            one.add(found(told, source="server", run=one.run, origin=backend.http.base_url))
    try:
        fresh = look.recognised(
            backend.http, one.ui, hint=one.options.backend, model=one.options.model, deadline_s=LOOK_AGAIN_S
        )
    except CtxDoctorError:
        return
    process, why = look.find_process(fresh.holder())
    again = [
        *look.at_server(fresh, one.run),
        *look.at_process(process, why, fresh.engine, one.run, fresh.model),
        *look.at_machine(one.run, process.pid if process else None, "after run"),
    ]
    _note_swap(one, process, fresh)
    files = [piece for piece in one.case.evidence(one.run).all if piece.kind in {ModelFile.kind, Launch.kind}]
    snapshot = read_back(EvidenceSet([*files, *again]), "after", events=events_now(one))
    one.add(found(snapshot, source="measured", run=one.run, origin="configuration"))


def _note_swap(one: Walk, process: ServerProcess | None, fresh: Backend) -> None:
    """Keep that another process holds the model now, where something stands before it that unloads and loads it."""
    origins = {
        piece.origin
        for piece in one.case.evidence(one.run).all
        if piece.kind == Configuration.kind and piece.source == "process"
    }
    if process is None or fresh.holder() == fresh.http.base_url or f"process {process.pid}" in origins or not origins:
        return
    why = "the model was unloaded and loaded again while it was measured"
    swapped = Restarted(because="swapped", healthy=True, seconds=0.0, why=why)
    one.add(found(swapped, source="measured", run=one.run, origin=f"process {process.pid}"))


# -- measuring -------------------------------------------------------------------------------------------------------------------------


def _measure(one: Walk) -> None:
    """Run the probes of the plan, each within what is left of the budget."""
    backend, counter = one.backend, one.counter
    assert backend is not None
    if counter is None:
        raise CouldNotLookError(
            look.no_model(one.case.evidence(one.run))
            or "this server cannot count tokens; give the model's tokenizer with --tokenizer FOLDER-OR-NAME"
        )
    process, _why = look.find_process(backend.http.base_url)
    ends = _ends(one)
    within(counter, ends)
    pid = process.pid if process else None
    sampler = Sampler(pid)
    context = ProbeContext(
        backend=backend,
        counter=counter,
        sampler=sampler,
        progress=Progress(one.ui.progress),
        sent=one.sent,
        run=one.run,
        seed=one.options.seed,
        ends_at=ends,
        process_ended=partial(ended, one, pid),
        answers=partial(still_answers, one, pid, ends),
        revive=lambda: _watched_anew(one, sampler, revive(one, pid, ends)),
        start_anew=(lambda: _watched_anew(one, sampler, start_anew(one, "fresh", ends))) if one.server else None,
        torn=one.last(TornStream),
    )
    before_measuring(one)
    _go_on_counting(one)
    with until(ends + LITTLE_S):
        shape = shape_of(one, window_of(one))
    if one.mode == "run":
        # the guided walk has said it before it asked whether to start
        for line in forecast.told(forecast.of(known_of(one, shape), backend.engine), one.options.budget_s):
            one.ui.say(line)
    sampler.start()
    try:
        first = one.options.first if not one.options.first else ("asking", *one.options.first)
        for name in dict.fromkeys((*first, *agenda.order(known_of(one, shape)))):
            if name in one.case.done_probes(one.run):
                continue
            if context.process_ended() is not None and not (context.time_left() > LEAST_S and context.revive()):
                one.add(not_found(name, "failed", "the server's process has ended", run=one.run, origin=name))
                continue
            try:
                probe = agenda.probe(name, known_of(one, shape))
            except BudgetEndedError:
                one.add(not_found(name, "not-run", USED_UP, run=one.run, origin=name))
                continue
            if probe is None:
                continue
            seconds = probe.cost(context).seconds
            if context.time_left() < LEAST_S or (seconds > context.time_left() and not probe.stops_itself):
                note = (
                    f"it would take about {seconds:.0f} s and the budget has {context.time_left():.0f} s left"
                    if context.time_left() >= LEAST_S
                    else (UNENDED if context.unended else USED_UP)
                )
                one.add(not_found(name, "not-run", note, run=one.run, origin=name))
                continue
            one.case.make_room()
            try:
                for evidence in probe.collect(context):
                    _add_noticed(one, context, name)
                    one.add(evidence)
                    _keep_sent(one)
            except BudgetEndedError:
                _add_noticed(one, context, name)
                one.add(not_found(name, "not-run", USED_UP, run=one.run, origin=name))
                continue
            _add_noticed(one, context, name)
            one.case.append("probe-done", {"probe": name})
            _keep_sent(one)
    finally:
        sampler.stop()
        _keep_sent(one)


def _sent_before(one: Walk) -> dict[str, int]:
    """Give what this run has sent by its journal: a run that is gone on with has sent more than this process did."""
    kept = [entry.data for entry in one.case.of("sent", one.run)]
    return {name: int(kept[-1].get(name, 0)) if kept else 0 for name in _SENT}


_SENT = ("requests", "prompt_tokens", "generated_tokens")


def _go_on_counting(one: Walk) -> None:
    """Begin where the process stopped that this run is taken over from."""
    for name, so_far in _sent_before(one).items():
        setattr(one.sent, name, getattr(one.sent, name) + so_far)


def _keep_sent(one: Walk) -> None:
    """Write down what was sent so far, where that is more than the journal says."""
    now = {name: getattr(one.sent, name) for name in _SENT}
    if now != _sent_before(one):
        one.case.append("sent", now)


def _add_noticed(one: Walk, context: ProbeContext, name: str) -> None:
    """Keep what was noticed beside what a probe looks for: torn streams, who counts tokens now, and what was refused because others were served.

    A stream once a run, a refusal once for each probe and message.
    """
    if context.torn is not None and not one.mine(TornStream):
        one.add(found(context.torn, source="measured", run=one.run, origin=name))
    plan = one.last(LadderPlan)
    if plan is not None and one.counter is not None and plan.tokenizer != one.counter.name:
        # from here on others count: who does belongs to the plan
        told = plan.model_copy(update={"tokenizer": one.counter.name})
        one.add(found(told, source="measured", run=one.run, origin="plan"))
    refused, context.turned_away[:] = list(context.turned_away), []
    known = {error.message for error in one.mine(RequestError) if error.error == "busy"}
    for error in refused:
        if error.message not in known:
            known.add(error.message)
            one.add(found(error, source="measured", run=one.run, origin=f"{name}, {TURNED_AWAY}"))


def _watched_anew(one: Walk, sampler: Sampler, back: bool) -> bool:
    """Sample the process that runs now; gives ``back``."""
    if back and one.server is not None:
        sampler.follow(one.server.pid)
    return back


def known_of(one: Walk, shape: Shape) -> agenda.Known:
    """Gather what is known so far, for the probe that comes next."""
    plan, model = one.last(LadderPlan), one.last(ModelIdentity)
    types = types_in({name: value for told in one.mine(Configuration) for name, value in told.settings.items()})
    refused = [reading for reading in one.mine(TruncationReading) if reading.verdict == "refused" and reading.window]
    return agenda.Known(
        shape=shape,
        plan=plan,
        criteria=one.criteria,
        budget_s=one.options.budget_s,
        symptom=one.case.symptom,
        answers=one.case.payloads(Answer),
        server=one.backend.http.base_url if one.backend is not None else "",
        backend=one.backend.engine if one.backend is not None else "",
        restartable=one.server is not None or (one.backend is not None and one.backend.name in agenda.STARTS_AGAIN),
        control_url=one.options.control_url,
        api_key=one.api_key,
        soak=one.options.soak,
        slots=max((reading.slots or 1 for reading in one.mine(WindowReading)), default=1),
        model=model.name if model is not None else None,
        cache_types=types,
        quantised=any(kind is not None and kind not in agenda.UNQUANTISED for kind in types),
        way=one.last(WayOfAsking),
        base=one.last(RecallBase),
        rungs=one.mine(RungResult),
        refused_above=bool(refused),
        earlier=[(run, piece) for run in range(1, one.run) for piece in one.case.payloads(NextTokens, run)],
        this_run_too=bool(one.case.payloads(NextTokens)),
        events=lambda: one.mine(LogEvent) or events_now(one),
        log_was_read=bool(one.log_paths),
    )
