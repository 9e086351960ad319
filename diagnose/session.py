"""One run of a case: open the server, look, measure, judge. A walk through the floors; what each step does lives there.

Every piece of evidence is in the journal before the next is measured. A run that was interrupted is gone on with: what is in the journal is not
measured again.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from diagnose import look, memory
from diagnose.case import Case
from diagnose.history import settle
from diagnose.ledger import confirmed, tried
from diagnose.leftovers import noted
from diagnose.options import RunOptions
from diagnose.plan import closers, order_for, over_many_turns
from diagnose.readback import read_back
from diagnose.snapshots import lengths_before, snapshot_of
from diagnose.steps import most_useful, with_command
from diagnose.ui import Ui
from diagnose.window import passes
from probes.allocation import AllocationProbe
from probes.attempt import SEVERAL, Asking
from probes.backends.base import Backend
from probes.backends.commands import detect_backend, parse_command
from probes.backends.http import Http
from probes.base import Probe, ProbeContext, Progress, Sent
from probes.cache_reuse import CacheReuseProbe
from probes.control import ControlProbe, control_at, same_origin
from probes.counting import counter_for
from probes.damage import DamageProbe
from probes.evidence.answers import Answer
from probes.evidence.damage import NextTokens
from probes.evidence.errors import (
    CouldNotLookError,
    CtxDoctorError,
    InputError,
    LaunchFailedError,
)
from probes.evidence.events import LogEvent, LogSummary
from probes.evidence.machine import MemoryBudget
from probes.evidence.records import Evidence, EvidenceSet, found, not_found
from probes.evidence.request import Launch, ProcessEnded, TruncationReading
from probes.evidence.rungs import Criteria, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, WindowReading
from probes.evidence.words import words
from probes.fixed_length import FixedLengthProbe
from probes.gpu.sampler import Sampler
from probes.ladder.canaries import completion_tail, draw, question_tail
from probes.ladder.constraints import Task, draw_task
from probes.ladder.rungs import SMALLEST_RUNG, Ladder, build_ladder, ladder_rungs
from probes.ladder.search import default_resolution
from probes.ladder.text import Counter, read_own
from probes.ladder_walk import LadderProbe
from probes.launch import Server, address_of, holder_of
from probes.logs.reader import collect_log
from probes.process import that_matters
from probes.recall import RecallProbe
from probes.repeat import RepeatProbe
from probes.soak import ROOM as SOAK_ROOM
from probes.soak import SoakProbe
from probes.speed import SpeedProbe
from probes.truncation import TruncationProbe
from reports.document import message
from rules.catalogue import Mode, judge_evidence
from rules.engine import Facts, Judgement
from rules.verdict import NextTest, Verdict, next_step, verdict_of

LEAST_S = 3.0
"""With less than this left, no probe is begun."""
LOG_EVENTS = 400
"""At most so many events of one log go into the case."""
SHORT_RUNG_CANARIES = 27
LOOK_AGAIN_S = 10.0
UNQUANTISED = frozenset({"f16", "f32", "bf16", "fp16", "float16", "bfloat16", "auto", "default"})
DAMAGE_TOKENS = 2048
"""Length of the text on which cache types are compared: the same in each run, whatever its window."""
TAIL_SLACK = 12
"""Tokens by which a question may be longer than the one that was counted: other names."""
CODE_WINDOW = 32_768
"""From this window on there is room for the code change and its answer beside the text."""
CODE_ROOM = 256
"""Left in each rung for the coding rules and the request on top of the longest question."""
DEFAULT_OUTPUT = (192, 2048)
"""Least and most that is reserved for the answer where nobody says; a 64th of the window between."""


@dataclass
class Walk:
    """A run under way: its case and options, and what was opened for it."""

    case: Case
    options: RunOptions
    ui: Ui
    criteria: Criteria
    api_key: str | None = None
    mode: Mode = "session"
    backend: Backend | None = None
    counter: Counter | None = None
    server: Server | None = None
    log_paths: list[Path] = field(default_factory=list)
    sent: Sent = field(default_factory=Sent)
    could_not_look: CtxDoctorError | None = None

    @property
    def run(self) -> int:
        """The number of this run."""
        return self.case.run

    def add(self, evidence: Evidence) -> Evidence:
        """Put evidence into the journal."""
        return self.case.add(evidence)

    def mine(self, kind: type[Any]) -> list[Any]:
        """Give this run's payloads of a kind."""
        return self.case.payloads(kind, self.run)

    def last(self, kind: type[Any]) -> Any:
        """Give this run's newest payload of a kind, or None."""
        pieces = self.mine(kind)
        return pieces[-1] if pieces else None


def begin(case: Case, options: RunOptions, criteria: Criteria) -> tuple[RunOptions, Criteria, bool]:
    """Begin a run, or take up the one that was interrupted. Criteria are fixed here and never changed: gives those in force."""
    run = case.run
    resumed = run > 0 and not case.has_ended(run)
    if resumed:
        started = next(iter(case.of("run", run)))
        options = RunOptions.model_validate(started.data.get("options", {}))
        kept = case.payloads(Criteria, run)
        return options, (kept[-1] if kept else criteria), True
    case.append("run", {"options": options.model_dump(mode="json")}, run=run + 1)
    fixed = criteria.model_copy(update={"fixed_at": case.entries[-1].at})
    case.add(found(fixed, source="user", run=run + 1, origin="criteria"))
    return options, fixed, False


def walk(one: Walk) -> None:
    """Do a run from its beginning to its judged end."""
    try:
        with _opened(one):
            if one.backend is not None:
                _look(one)
                _keep_configuration(one, "before")
                _measure(one)
                _look_again(one)
    except (CouldNotLookError, LaunchFailedError) as error:
        one.could_not_look = error
        one.add(not_found("session", "failed", str(error), run=one.run, origin="session"))
    finally:
        one.ui.finish_progress()
    _read_logs(one)
    _explain_memory(one)
    _keep_configuration(one, "before")
    settle(one.case, one.run)
    judge_run(one)
    one.case.append("run-ended", {"could_not_look": str(one.could_not_look) if one.could_not_look else None})


# -- opening ---------------------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(one: Walk) -> Iterator[None]:
    """Start the server where a command was given, and find out which one answers."""
    one.log_paths += [Path(path) for path in one.options.logs]
    with contextlib.ExitStack() as stack:
        url = one.options.url
        if one.options.launch:
            url = stack.enter_context(_launched(one))
            if url is None:
                yield
                return
        if url is None:
            raise InputError("no server: give its address, for example `ctxdoctor run 8080`, or --launch 'COMMAND'")
        http = stack.enter_context(Http(url, one.api_key))
        one.backend = _recognised(one, http)
        yield


@contextlib.contextmanager
def _launched(one: Walk) -> Iterator[str | None]:
    """Start the user's command; a failed start is evidence, and gives None."""
    command = one.options.launch or ()
    one.case.make_room()
    for evidence in look.at_machine(one.run, None, "before load"):
        one.add(evidence)
    log_path = one.case.folder / "logs" / f"server-run{one.run}-{len(one.mine(Launch)) + 1}.log"
    settings = parse_command(command, that_matters({**os.environ, **one.options.launch_env}))
    one.add(found(settings, source="process", run=one.run, origin="launch command"))
    name = one.options.backend or detect_backend(command)
    if name is not None:
        # a server that does not start can still be told by its command
        identity = BackendIdentity(name=name, recognised_by="its command line", local=True)
        one.add(found(identity, source="process", run=one.run, origin="launch command"))
    for evidence in look.asked_window(settings, one.run, "launch command"):
        one.add(evidence)
    server = Server(
        command,
        log_path=log_path,
        environment=one.options.launch_env,
        address_space_bytes=one.options.address_space_bytes,
    )
    one.server = server
    one.log_paths.append(log_path)
    port = settings.settings.get("port")
    wanted = port.value if port is not None and isinstance(port.value, int) else None
    one.ui.say(words("Starting the server: {command}", command=" ".join(settings.command or command)))
    holder = holder_of(wanted) if wanted is not None else None
    if holder is not None:
        # a second copy would fail at the port, or take the memory of the first
        why = f"port {wanted} is in use by {holder}; is the server running already? Stop it, or give its address without --launch"
        raise LaunchFailedError(why)
    shown = tuple(settings.command or command)
    _trial_starts(one, shown, wanted)
    with noted(shown, server.marker) as started, server:
        server.start()
        started(server.pid, server.created)
        launch = server.wait_healthy(
            lambda pid: address_of(pid, answers_health, wanted),
            one.options.load_deadline_s,
            lambda waited, deadline: one.ui.progress(
                "the server loads its model", waited / deadline, f"{waited:.0f} s"
            ),
        )
        given = one.options.url
        if launch.exit_code == 0 and given and answers_health(given):
            # a command that only tells a running server to load a model (`lms load`) ends well; the server is where its address says
            one.server = None
            launch = launch.model_copy(
                update={"healthy": True, "why": "the command told a running server what to load"}
            )
            server.url = given
        elif launch.healthy and given and answers_health(given):
            # started here and reached through something that stands before it: it is measured as its clients see it
            server.url = given
        one.add(found(launch.model_copy(update={"command": shown}), source="measured", run=one.run))
        if not launch.healthy:
            one.ui.say(words("The server did not start: {why}", why=launch.why))
        yield server.url if launch.healthy else None


def _trial_starts(one: Walk, shown: tuple[str, ...], port: int | None) -> None:
    """Start and stop the server some times before the run itself, where whether it starts is what was predicted."""
    ends = time.monotonic() + one.options.budget_s / 2
    for number in range(1, one.options.starts):
        if time.monotonic() > ends:
            return
        server = Server(
            one.options.launch or (),
            log_path=one.case.folder / "logs" / f"server-run{one.run}-start{number}.log",
            environment=one.options.launch_env,
            address_space_bytes=one.options.address_space_bytes,
        )
        with noted(shown, server.marker) as started, server:
            server.start()
            started(server.pid, server.created)
            launch = server.wait_healthy(lambda pid: address_of(pid, answers_health, port), one.options.load_deadline_s)
        one.add(
            found(
                launch.model_copy(update={"command": shown}), source="measured", run=one.run, origin=f"start {number}"
            )
        )


def answers_health(url: str) -> bool:
    """Say whether something at an address speaks HTTP and is done loading."""
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status != 503
    except CtxDoctorError:
        return False


def _recognised(one: Walk, http: Http) -> Backend:
    """Find out which server answers; one that still loads is waited for."""
    options = one.options
    return look.recognised(http, one.ui, hint=options.backend, model=options.model, deadline_s=options.load_deadline_s)


# -- looking ---------------------------------------------------------------------------------------------------------------------------


def _look(one: Walk) -> None:
    """Everything that is to be seen without sending a prompt; once a run."""
    backend = one.backend
    assert backend is not None
    process, why = look.find_process(backend.http.base_url)
    if "look" not in one.case.done_probes(one.run):
        one.case.make_room()
        for evidence in look.at_server(backend, one.run):
            one.add(evidence)
        for evidence in look.at_process(process, why, backend.name, one.run):
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
        log_file = parse_command(process.argv, process.environment, backend.name).settings.get("log_file")
        if log_file is not None and isinstance(log_file.value, str):
            one.log_paths.append(Path(process.cwd or ".") / log_file.value)
    one.counter = counter_for(backend, one.options.tokenizer, sent=one.sent)


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
    snapshot = read_back(evidence, when, events=_events_now(one), request=request)
    one.add(found(snapshot, source="measured", run=one.run, origin="configuration"))


def _look_again(one: Walk) -> None:
    """Read the configuration once more when all was measured: what changed meanwhile, nobody asked for."""
    backend = one.backend
    if backend is None or _ended(one, None) is not None:
        return
    try:
        fresh = look.recognised(
            backend.http, one.ui, hint=one.options.backend, model=one.options.model, deadline_s=LOOK_AGAIN_S
        )
    except CtxDoctorError:
        return
    process, why = look.find_process(fresh.http.base_url)
    again = [
        *look.at_server(fresh, one.run),
        *look.at_process(process, why, fresh.name, one.run),
        *look.at_machine(one.run, process.pid if process else None, "after run"),
    ]
    files = [piece for piece in one.case.evidence(one.run).all if piece.kind in {ModelFile.kind, Launch.kind}]
    snapshot = read_back(EvidenceSet([*files, *again]), "after", events=_events_now(one))
    one.add(found(snapshot, source="measured", run=one.run, origin="configuration"))


# -- measuring -------------------------------------------------------------------------------------------------------------------------


def _measure(one: Walk) -> None:
    """Run the probes of the plan, each within what is left of the budget."""
    backend, counter = one.backend, one.counter
    assert backend is not None
    if counter is None:
        raise CouldNotLookError(
            "this server cannot count tokens; give the model's tokenizer with --tokenizer FOLDER-OR-NAME"
        )
    process, _why = look.find_process(backend.http.base_url)
    ends = time.monotonic() + one.options.budget_s
    sampler = Sampler(process.pid if process else None)
    context = ProbeContext(
        backend=backend,
        counter=counter,
        sampler=sampler,
        progress=Progress(one.ui.progress),
        sent=one.sent,
        run=one.run,
        seed=one.options.seed,
        ends_at=ends,
        process_ended=partial(_ended, one, process.pid if process else None),
    )
    window = _window_of(one)
    shape = _shape(one, window)
    sampler.start()
    try:
        for name in dict.fromkeys((*one.options.first, *_order(one))):
            if name in one.case.done_probes(one.run):
                continue
            if context.process_ended() is not None:
                one.add(not_found(name, "failed", "the server's process has ended", run=one.run, origin=name))
                continue
            probe = _probe(name, one, shape)
            if probe is None:
                continue
            seconds = probe.cost(context).seconds
            if context.time_left() < LEAST_S or (seconds > context.time_left() and not probe.stops_itself):
                note = (
                    f"it would take about {seconds:.0f} s and the budget has {max(0, context.time_left()):.0f} s left"
                )
                one.add(not_found(name, "not-run", note, run=one.run, origin=name))
                continue
            one.case.make_room()
            for evidence in probe.collect(context):
                one.add(evidence)
            one.case.append("probe-done", {"probe": name})
            one.case.append(
                "sent",
                {
                    "requests": one.sent.requests,
                    "prompt_tokens": one.sent.prompt_tokens,
                    "generated_tokens": one.sent.generated_tokens,
                },
            )
    finally:
        sampler.stop()


@dataclass(frozen=True, slots=True)
class Shape:
    """What will be measured: lengths, texts, the answer's reserve."""

    window: int
    target: int | None
    output_tokens: int
    rungs: tuple[int, ...]
    texts: Ladder
    task: Task | None = None
    """The code change that is asked for; None where the window has no room for it."""

    @property
    def target_input(self) -> int | None:
        """Prompt tokens of the target window."""
        return None if self.target is None else self.target - self.output_tokens


def output_reserve(window: int, asked: int | None) -> int:
    """Give the part of a window that is kept for the answer."""
    if asked is not None:
        return asked
    least, most = DEFAULT_OUTPUT
    return max(least, min(most, window // 64))


def _window_of(one: Walk) -> int:
    """Give the window in force by what was read; where no server says it, the target."""
    readings = [reading.in_force for reading in one.mine(WindowReading) if reading.in_force]
    if readings:
        return int(readings[-1])
    asked = [
        reading.asked or reading.trained for reading in one.mine(WindowReading) if reading.asked or reading.trained
    ]
    window = one.options.target or (asked[-1] if asked else None)
    if window is None:
        raise CouldNotLookError("this server does not say its window; give the one you want with --target N")
    return int(window)


def wanted_window(one: Walk) -> int | None:
    """Give the window that the user wants: the option, else the answer."""
    if one.options.target is not None:
        return one.options.target
    for answer in reversed(one.case.payloads(Answer)):
        if answer.question == "window_wanted" and isinstance(answer.value, int) and not isinstance(answer.value, bool):
            return answer.value
    return None


def _shape(one: Walk, window: int) -> Shape:
    """Fix the ladder before its first rung, or take the one that was fixed before an interruption."""
    counter, backend = one.counter, one.backend
    assert counter is not None
    assert backend is not None
    target = wanted_window(one)
    plan = one.last(LadderPlan)
    output = plan.output_tokens if plan else output_reserve(min(window, target or window), one.options.output_tokens)
    question, completion = _tail_tokens(counter, one.options.seed)
    frame = _template_tokens(backend) + (CODE_ROOM if min(window, target or window) >= CODE_WINDOW else 0)
    reserve = question + frame
    # where no long question fits behind the lengths that are wanted, or behind any that the window holds, the short way is asked
    decisive = min(one.options.ladder) if one.options.ladder else min(window, target or window) - output
    if decisive - reserve < SMALLEST_RUNG // 2:
        reserve = completion + frame
    if plan is None:
        usable = [rung for rung in one.options.ladder or () if rung + output <= window]
        again = [
            length for length in lengths_before(one.case, one.run) if length + output <= min(window, target or window)
        ]
        rungs = tuple(usable) or tuple(sorted({*ladder_rungs(window, output, target), *again}))
        rungs = tuple(rung for rung in rungs if rung - reserve >= SMALLEST_RUNG // 2) or rungs[-1:]
        if rungs[0] - reserve < SMALLEST_RUNG // 2:
            raise CouldNotLookError(
                f"a window of {window} tokens leaves no room for a test: the questions alone take {reserve}; raise the window or --target"
            )
        why = "as asked with --ladder" if usable else "the standard lengths, scaled to the window in force"
        fits = memory.below_window(one.mine(MemoryBudget), window)
        plan = LadderPlan(
            rungs=rungs,
            predicted=None if usable or fits is None else max(0, fits - output),
            target=target,
            output_tokens=output,
            seed=one.options.seed,
            why=why,
            tokenizer=counter.name,
            resolution=None if usable else default_resolution(max(rungs)),
        )
        one.add(found(plan, source="measured", run=one.run, origin="plan"))
    filler = None
    if one.options.text_folder:
        own = read_own(Path(one.options.text_folder), one.options.seed)
        filler = partial(own.stream, one.options.seed)
    one.ui.progress("the text is written", 0.0, f"{max(plan.rungs)} tokens")
    depths = [(place + 0.5) / SHORT_RUNG_CANARIES for place in range(SHORT_RUNG_CANARIES)]
    texts = None
    wrong: InputError | None = None
    # short lengths and tokenizers that make many tokens leave less room: first the base is asked of fewer facts, then questions are short
    for room, base in ((reserve, depths), (reserve, None), (completion + frame, depths), (completion + frame, None)):
        try:
            texts = build_ladder(plan.rungs, counter, seed=plan.seed, reserve=room, base_depths=base, filler=filler)
            break
        except InputError as error:
            wrong = error
    if texts is None:
        # the lengths are ours, so what is wrong is how the server counts
        raise CouldNotLookError(
            f"no text could be made with this server's token counts ({wrong}); give --tokenizer"
        ) from wrong
    task = draw_task(plan.seed) if min(window, target or window) >= CODE_WINDOW else None
    return Shape(window, target, output, plan.rungs, texts, task)


def _tail_tokens(counter: Counter, seed: int) -> tuple[int, int]:
    """Count what follows a text: the longest question (all canaries of a rung in one), and the end of a completion."""
    facts = list(islice(draw(seed), SEVERAL))
    return counter.count(question_tail(facts)) + TAIL_SLACK, counter.count(completion_tail(facts[0])) + TAIL_SLACK


def _template_tokens(backend: Backend) -> int:
    """Count what the chat template adds, where the server can say so; a guess of 64 where it cannot."""
    try:
        return max(0, backend.count_chat_tokens([{"role": "user", "content": "."}]))
    except CtxDoctorError:
        return 64


def _ended(one: Walk, pid: int | None) -> ProcessEnded | None:
    """Say whether the server's process is gone."""
    if one.server is not None:
        return one.server.ended()
    if pid is None:
        return None
    import psutil  # noqa: PLC0415 - the system's own answer, needed only here

    try:
        if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return None
    except psutil.NoSuchProcess:
        pass
    except psutil.Error:
        return None
    return ProcessEnded()


def _asking(one: Walk) -> Asking:
    """Give the way in which this model is asked, as the base found it."""
    base = one.last(RecallBase)
    if base is None:
        return Asking()
    return Asking(style=base.style, several=base.several, reasoning=base.reasoning)


def _probe(name: str, one: Walk, shape: Shape) -> Probe | None:
    """Make a probe from what is known so far; None where it makes no sense here."""
    rungs = one.mine(RungResult)
    passed = [one_.input_tokens for one_ in rungs if one_.result == "passed"]
    failed = [one_.input_tokens for one_ in rungs if one_.result != "passed"]
    if name == "allocation":
        events = one.mine(LogEvent) or _events_now(one)
        return AllocationProbe(events, ctx=shape.window, log_was_read=bool(one.log_paths))
    if name == "truncation":
        return TruncationProbe(shape.window, afford=int(one.options.budget_s * 50))
    if name == "recall":
        return RecallProbe(shape.texts.rungs[0], task=shape.task)
    if name == "ladder":
        base = one.last(RecallBase)
        plan = one.last(LadderPlan)
        assert plan is not None
        return LadderProbe(
            plan,
            shape.texts,
            _asking(one),
            one.criteria,
            partial(passes, one.criteria, base),
            rungs,
            window=shape.window,
            task=shape.task,
            proof_first=one.case.symptom is None,
        )
    if name == "fixed-length":
        wanted = shape.target_input or shape.window
        refused = [
            reading for reading in one.mine(TruncationReading) if reading.verdict == "refused" and reading.window
        ]
        if wanted <= shape.window - shape.output_tokens and not failed:
            return None
        if refused and shape.target is None and not failed:
            return None
        lowest = min(failed, default=None)
        return FixedLengthProbe(
            wanted, passed=max((n for n in passed if lowest is None or n < lowest), default=0), failed=lowest
        )
    if name == "repeat":
        slots = max((reading.slots or 1 for reading in one.mine(WindowReading)), default=1)
        concurrency = min(max(2, slots), 4)
        # long enough that all together need more than one window: slots that share a pool then run out of it
        least = int(shape.window * 1.1 / concurrency) if slots > 1 else 256
        return RepeatProbe(max(256, int(shape.window * 0.6)), least=least, concurrency=concurrency)
    if name == "cache-reuse":
        return CacheReuseProbe(max(256, min(1536, shape.window // 4)))
    if name == "speed":
        texts = [
            text
            for text in shape.texts.rungs
            if text.rung in {shape.rungs[0], *(one_.rung for one_ in rungs if one_.result == "passed")}
        ]
        return SpeedProbe([texts[0], texts[-1]] if len(texts) > 1 else texts, first_attempt=10)
    if name == "control":
        return _control(one, shape, rungs)
    if name == "damage":
        return _damage(one, shape, passed)
    if name == "soak":
        return _soak(one, shape)
    raise ValueError(name)


def _order(one: Walk) -> tuple[str, ...]:
    """Give the probes of this run in their order."""
    soak = one.options.soak is not None or over_many_turns(one.case.symptom, one.case.payloads(Answer))
    damage = one.case.symptom in {None, "forgetting"} and (_quantised(one) or bool(one.case.payloads(NextTokens)))
    return order_for(one.case.symptom, control=bool(one.options.control_url), soak=soak, damage=damage)


def _cache_types(one: Walk) -> tuple[str | None, str | None]:
    """Give the types of the K and V cache that are set; None where none is."""
    found_types: dict[str, str] = {}
    for reading in one.mine(Configuration):
        for name in ("kv_type_k", "kv_type_v"):
            setting = reading.settings.get(name)
            if setting is not None and isinstance(setting.value, str):
                found_types[name] = setting.value.lower()
    return found_types.get("kv_type_k"), found_types.get("kv_type_v")


def _quantised(one: Walk) -> bool:
    return any(kind is not None and kind not in UNQUANTISED for kind in _cache_types(one))


def _damage(one: Walk, shape: Shape, passed: Sequence[int]) -> Probe:
    """Make the look for damage, at a length that passed and that every run of the case asks alike."""
    base = one.last(RecallBase)
    model = one.last(ModelIdentity)
    earlier = [(run, piece) for run in range(1, one.run) for piece in one.case.payloads(NextTokens, run)]
    tokens = min(DAMAGE_TOKENS, max(passed, default=DAMAGE_TOKENS), shape.window // 2)
    if earlier and earlier[-1][1].tokens and earlier[-1][1].tokens <= shape.window - shape.output_tokens:
        tokens = earlier[-1][1].tokens
    return DamageProbe(
        tokens,
        style=base.style if base is not None else "completion",
        model=model.name if model is not None else None,
        types=_cache_types(one),
        earlier=earlier,
    )


def _soak(one: Walk, shape: Shape) -> Probe:
    """Make the session of many turns: as long as was asked for, or as the window that is wanted."""
    most = min(shape.window, shape.target or shape.window) - shape.output_tokens - SOAK_ROOM
    target = min(one.options.soak, most) if one.options.soak else most
    base = one.last(RecallBase)
    chat = base is None or base.style == "question"
    return SoakProbe(max(SOAK_ROOM, target), chat=chat, reasoning=base.reasoning if base is not None else False)


def _control(one: Walk, shape: Shape, rungs: Sequence[RungResult]) -> Probe | None:
    """Make the control run, where a control server was given."""
    url = one.options.control_url
    if url is None:
        return None
    here = one.backend.http.base_url if one.backend is not None else ""
    same = same_origin(url, here)
    passed = {one_.rung for one_ in rungs if one_.result == "passed"}
    texts = [text for text in shape.texts.rungs if text.rung in passed] or list(shape.texts.rungs[:1])
    return ControlProbe(partial(control_at, url, one.api_key if same else None), rungs, texts, same_server=same)


# -- logs, judging ---------------------------------------------------------------------------------------------------------------------


def _events_now(one: Walk) -> Sequence[LogEvent]:
    """Read the logs as they are now, without keeping them: the whole is kept at the end of the run."""
    events: list[LogEvent] = []
    for path in one.log_paths:
        with contextlib.suppress(CtxDoctorError, OSError):
            events += collect_log(path, max_events=LOG_EVENTS)[0]
    return events


def _without_ours(events: Sequence[LogEvent], readings: Sequence[TruncationReading]) -> list[LogEvent]:
    """Leave out what a probe brought about on purpose: the refusal of its overlong prompt, and the end of that request."""
    sent = [reading.sent for reading in readings if reading.sent is not None]
    ours = {
        event.line
        for event in events
        if event.event == "refused" and event.tokens is not None and any(abs(event.tokens - n) <= 128 for n in sent)
    }
    return [
        event
        for event in events
        if event.line not in ours
        and not (event.event == "cancelled" and any(0 <= event.line - line <= 8 for line in ours))
    ]


def _read_logs(one: Walk) -> None:
    """Put every log's events into the case, once a run."""
    if "logs" in one.case.done_probes(one.run):
        return
    if not one.log_paths:
        one.add(
            not_found(
                LogEvent, "not-run", "no log was given; add it with --log FILE", source="log", run=one.run, origin="log"
            )
        )
    for path in one.log_paths:
        try:
            events, summary = collect_log(path, max_events=LOG_EVENTS)
        except CtxDoctorError as error:
            one.add(not_found(LogSummary, "failed", str(error), source="log", run=one.run, origin=str(path)))
            one.ui.say(words("The log cannot be read: {why}", why=str(error)))
            continue
        one.add(found(summary, source="log", run=one.run, origin=path.name))
        events = _without_ours(events, one.mine(TruncationReading))
        one.case.add_all(
            [found(event, source="log", run=one.run, origin=f"{path.name}:{event.line}") for event in events]
        )
    one.case.append("probe-done", {"probe": "logs"})


def judged(case: Case, run: int, mode: Mode) -> tuple[Judgement, Facts]:
    """Judge a run's evidence as it is in the journal."""
    return judge_evidence(case.evidence(run), mode)


def judge_run(one: Walk) -> tuple[Verdict, NextTest | None]:
    """Judge, and write the verdict and the next test into the journal."""
    judgement, facts = judged(one.case, one.run, one.mode)
    verdict = verdict_of(judgement, facts, run=one.run, confirmed=confirmed(one.case, one.run))
    answered = {answer.question: answer.value for answer in one.case.payloads(Answer)}
    ahead = closers(
        answered,
        one.case.done_probes(one.run),
        server=one.backend is not None and one.mode != "triage",
        person=one.mode != "run",
        logs=bool(one.mine(LogEvent)),
        facts=facts,
    )
    step = next_step(judgement, facts, ahead, tried(one.case, one.run))
    one.case.append("verdict", verdict.model_dump(mode="json"))
    if step is not None:
        step = with_command(step, one.case.evidence(one.run), one.options.backend)
    one.case.append("next-test", step.model_dump(mode="json") if step is not None else {})
    said = [message(each).model_dump(mode="json") for each in most_useful(judgement, ahead)]
    one.case.append("note", {"would_decide": said})
    return verdict, step
