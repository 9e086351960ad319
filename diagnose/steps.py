"""The next test as the user can run it: their own command with only that setting changed, and how to undo it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from diagnose.clients import steps_in_settings
from diagnose.questions import QUESTIONS, question
from diagnose.scripts import deaf_script
from probes.backends.commands import as_text, change_command, change_steps, detect_backend, truncation_steps
from probes.backends.flags import MODELFILE
from probes.backends.fronts import front_steps
from probes.backends.standing import reload_steps
from probes.evidence.errors import CtxDoctorError
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading
from probes.evidence.words import Words, words
from probes.logs.machine import program_in
from rules.engine import Closer, Judgement, openings
from rules.verdict import NextTest

MOST_USEFUL = 3


def _as_question(step: NextTest) -> NextTest:
    """Say what is to be answered or given in words, with the choices, in front of the reason."""
    if step.variable in {one.id for one in QUESTIONS}:
        asked = question(step.variable)
        choices = "; ".join(f"{choice.id}: {choice.words.english}" for choice in asked.choices)
        how = f'{asked.words.english} Put it into a file as {step.variable} = "…" and give it with --answers.'
        if choices:
            how += f" Choices: {choices}."
    elif step.variable == "log":
        how = "Give the server's log with --log FILE."
    else:
        return step
    return step.model_copy(update={"reason": f"{how} {step.reason}"})


def with_command(step: NextTest, evidence: EvidenceSet, backend_hint: str | None = None) -> NextTest:
    """Fill in command and undo of a change; a habit, a question or a probe has none."""
    if step.kind == "answer":
        return _as_question(step)
    if step.kind != "change":
        return step
    if step.variable == "client.ctx":
        how, back = (steps_in_settings(evidence, to) for to in (step.to, step.start))
        return step.model_copy(update={"command": _lines(how), "undo": _lines(back[:1])}) if how else step
    identity = evidence.last(BackendIdentity)
    model = evidence.last(ModelIdentity)
    argv = started_by(evidence)
    backend = (
        (identity.name if identity is not None else None) or backend_hint or (detect_backend(argv) if argv else None)
    )
    if backend is None:
        wrote = program_in(event for _record, event in evidence.of(LogEvent))
        backend = wrote.name if wrote is not None else None
    value: Any = list(step.to) if isinstance(step.to, tuple) else step.to
    start: Any = list(step.start) if isinstance(step.start, tuple) else step.start
    front, started = (identity.front, identity.front_model) if identity is not None else (None, None)
    deaf = deaf_script(argv)
    by_files = step.variable == "ctx" and backend == "text-generation-webui" and _loader(evidence) == "transformers"
    if (
        argv
        and not by_files
        and deaf is None
        and front is None
        and not (backend == "ollama" and _by_its_own(step.variable))
    ):
        try:
            changed = change_command(argv, backend, step.variable, value)
        except CtxDoctorError:
            changed = []
        if changed and list(changed) != list(argv):
            return step.model_copy(update={"command": as_text(changed), "undo": as_text(argv)})
    name = model.name if model is not None else None

    def steps(to: Any) -> tuple[Words, ...]:
        if front is not None:
            return front_steps(front, backend or "llama.cpp", step.variable, to, started or name or "MODEL")
        if by_files and isinstance(to, int):
            return truncation_steps(name or "MODEL", to)
        if backend == "llama-manager":
            return reload_steps(step.variable, to, name)
        in_model = step.variable == "ctx" and _window_of_model(evidence)
        return change_steps(backend or "llama.cpp", step.variable, to, model=name, in_model=in_model)

    try:
        how, back = steps(value), steps(start)
    except CtxDoctorError:
        return step
    if deaf is not None:
        where = words("Inside {script}, which does not pass settings on to the server:", script=deaf)
        how, back = (where, *how), (where, *back)
    return step.model_copy(update={"command": _lines(how), "undo": _lines(back)})


def _loader(evidence: EvidenceSet) -> str | None:
    """Give what runs the model within a server of several loaders, in small letters: as the server says, else as it was told."""
    told = [
        (record.source == "server", str(setting.value).lower())
        for record, one in evidence.of(Configuration)
        if (setting := one.settings.get("loader")) is not None
    ]
    return max(told, key=lambda one: one[0])[1] if told else None


def _lines(steps: Iterable[Words]) -> str:
    return "\n".join(one.english for one in steps)


def _window_of_model(evidence: EvidenceSet) -> bool:
    """Say whether the model brings its window with it: what is asked for is another than what its server would take by default."""
    told = [one for record, one in evidence.of(WindowReading) if record.source == "server"]
    return bool(told) and told[-1].asked is not None and told[-1].asked != told[-1].default


def _by_its_own(variable: str) -> bool:
    """Say whether Ollama's requests and Modelfiles set it: they go before the environment of ``ollama serve``."""
    return any(name == variable for name, _kind in MODELFILE.values())


def started_by(evidence: EvidenceSet) -> tuple[str, ...]:
    """Give the command that a person starts the server with: what they launched, else the process's own with the variables that hold for it."""
    readings = [(record, one) for record, one in evidence.of(Configuration) if one.command]
    launched = [one.command or () for record, one in readings if record.origin == "launch command"]
    if launched:
        return launched[0]
    identity = evidence.last(BackendIdentity)
    if identity is not None and identity.name == "ollama":
        # what it tells is the command of its own llama-server, which no person starts
        readings = [(record, one) for record, one in readings if record.source == "process"]
    if not readings:
        return ()
    _record, reading = next((one for one in reversed(readings) if one[0].source == "process"), readings[-1])
    argv = reading.command or ()
    variables = [
        setting.raw
        for setting in reading.settings.values()
        if setting.source == "process"
        and re.match(r"[A-Z][A-Z0-9_]*=", setting.raw)
        and not setting.raw.endswith(("=(set)", "=***"))
        and setting.raw not in argv
    ]
    return (*dict.fromkeys(variables), *argv)


def most_useful(judgement: Judgement, closers: Iterable[Closer], most: int = MOST_USEFUL) -> list[Words]:
    """Say in whole sentences what could still decide, the most weight per minute first."""
    return [_in_words(opening.closer, opening.causes) for opening in openings(judgement, closers)[:most]]


def _in_words(closer: Closer, causes: tuple[str, ...]) -> Words:
    about = ", ".join(causes[:3])
    if closer.kind == "ask":
        return words(
            "Answer {id}: {question} It could decide about: {causes}.",
            id=closer.id,
            question=question(closer.id).words,
            causes=about,
        )
    if closer.id == "log":
        return words(
            "Give the server's log, from its start to the failure (--log FILE). It could decide about: {causes}.",
            causes=about,
        )
    if closer.kind == "give":
        return words("Give this: {id}. It could decide about: {causes}.", id=closer.id, causes=about)
    return words(
        "Measure with the running server (ctxdoctor run URL): {id}. It could decide about: {causes}.",
        id=closer.id,
        causes=about,
    )
