"""A server that we did not start: settings are put into force through its own interface for one run, and put back at its end.

A note on disk, readable by its user alone, lets the next call put them back where this process is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from diagnose import look
from diagnose.case import Case
from diagnose.notes import Notes
from diagnose.options import RunOptions
from diagnose.ui import Ui
from probes.backends.base import Backend
from probes.backends.http import Http
from probes.backends.ollama import Ollama
from probes.backends.standing import OllamaStanding, Standing, standing_at, standing_of
from probes.evidence.errors import CtxDoctorError, LaunchFailedError
from probes.evidence.records import Evidence, found
from probes.evidence.request import Launch
from probes.evidence.subject import Configuration, Setting
from probes.evidence.words import Words, words

LOOK_S = 10.0


def put_into_force(backend: Backend, settings: Mapping[str, Any], run: int) -> Iterator[Evidence]:
    """Put settings into force, and yield what was asked for; a model that does not load with them is evidence too.

    NotOfferedError before anything is changed where the server does not take them, or could not be put back. LaunchFailedError.
    """
    if not settings:
        return
    standing = standing_of(backend)
    standing.before()
    told = standing.request(settings)
    asked = {name: Setting(value=value, source="user", raw=told) for name, value in settings.items()}
    yield found(Configuration(settings=asked), source="user", run=run, origin="put into force by its own interface")
    try:
        standing.put(settings)
    except LaunchFailedError as error:
        yield found(Launch(command=(told,), healthy=False, seconds=0, why=str(error)), source="measured", run=run)
        raise
    if isinstance(backend, Ollama) and isinstance(standing, OllamaStanding):
        backend.options = standing.written(settings)


@contextlib.contextmanager
def kept_as_it_was(case: Case, options: RunOptions, ui: Ui, api_key: str | None = None) -> Iterator[None]:
    """Put back what stood before, however the block ends; nothing is done where no setting is to be put into force."""
    if not options.settings or options.url is None:
        yield
        return
    with contextlib.ExitStack() as stack:
        note: Notes | None = None
        try:
            http = stack.enter_context(Http(options.url, api_key))
            backend = look.recognised(http, ui, hint=options.backend, model=options.model, deadline_s=LOOK_S)
            standing = standing_of(backend)
            before = standing.before()
        except CtxDoctorError:
            # the run itself says so, and puts nothing into force
            yield
            return
        note = Notes.write(
            {
                "case": case.id,
                "standing": {"backend": standing.name, "url": options.url, "model": standing.model, "before": before},
            }
        )
        try:
            yield
        finally:
            ui.say(_put_back(standing, before))
            note.remove()


def _put_back(standing: Standing, before: Mapping[str, Any]) -> Words:
    try:
        standing.put_back(before)
    except CtxDoctorError as error:
        return words(
            "The model of your server could not be put back as it was ({why}). It was: {before}",
            why=str(error),
            before=json.dumps(dict(before)),
        )
    return words("The model of your server is loaded as it was before: {model}", model=standing.model)


def put_back_noted(note: Mapping[str, Any]) -> Words:
    """Put back what the note of a killed process says."""
    url, model = str(note.get("url", "")), str(note.get("model", ""))
    before = note.get("before")
    try:
        with Http(url, os.environ.get("CTXDOCTOR_API_KEY") or None, connect_s=2.0) as http:
            return _put_back(
                standing_at(str(note.get("backend")), http, model), before if isinstance(before, dict) else {}
            )
    except CtxDoctorError as error:
        return words(
            "The model of your server could not be put back as it was ({why}). It was: {before}",
            why=str(error),
            before=json.dumps(before),
        )
