"""What can be seen before anything is measured: server, model, windows, settings, model file, machine. Every look is evidence, also a vain one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from diagnose.ui import Ui
from probes.backends.base import Backend
from probes.backends.commands import as_text, detect_backend
from probes.backends.http import Http, is_loopback
from probes.backends.llama_manager import LlamaManager
from probes.backends.ollama import Ollama
from probes.backends.recognise import recognise
from probes.backends.settings_files import with_files
from probes.backends.text_generation_webui import TextGenerationWebui
from probes.evidence.errors import BadFileError, CtxDoctorError, NotOfferedError, StillLoadingError
from probes.evidence.machine import MemoryBudget
from probes.evidence.records import Evidence, EvidenceSet, Payload, Source, found, not_found
from probes.evidence.request import RequestError
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, WindowReading
from probes.gpu import read_devices
from probes.gpu.host import read_host
from probes.model_file import read_model
from probes.process import ServerProcess, process_behind

P = TypeVar("P", bound=Payload)


def _tried(kind: type[P], look: Callable[[], P], *, source: Source, run: int, origin: str) -> Evidence:
    try:
        return found(look(), source=source, run=run, origin=origin)
    except NotOfferedError as error:
        return not_found(kind, "not-offered", str(error), source=source, run=run, origin=origin)
    except CtxDoctorError as error:
        return not_found(kind, "failed", str(error), source=source, run=run, origin=origin)


def recognised(http: Http, ui: Ui, *, hint: str | None, model: str | None, deadline_s: float) -> Backend:
    """Find out which server answers; one that still loads is waited for, with progress. StillLoadingError after the deadline."""
    begun = time.monotonic()
    while True:
        try:
            backend = recognise(http, hint, model=model)
            backend.still_loading()
        except StillLoadingError:
            waited = time.monotonic() - begun
            if waited > deadline_s:
                raise
            ui.progress("the server loads its model", waited / deadline_s, f"{waited:.0f} s")
            time.sleep(0.5)
        else:
            return backend


def awake(backend: Backend, ui: Ui) -> RequestError | None:
    """Have the model under test loaded before it is looked at, where a request loads it and what is to be seen of it is seen only then.

    Gives why the server did not load it, in its own words.
    """
    if isinstance(backend, Ollama | TextGenerationWebui):
        ui.progress("the server loads its model", 0.0, "")
        with contextlib.suppress(CtxDoctorError):
            return backend.wake()
    return None


def at_machine(run: int, pid: int | None, when: str) -> Iterator[Evidence]:
    """Devices and host, now."""
    yield found(read_devices(pid, when=when), source="machine", run=run, origin=when)
    yield found(read_host(pid), source="machine", run=run, origin=when)


def at_server(backend: Backend, run: int) -> Iterator[Evidence]:
    """What the server says of itself over HTTP."""
    url = backend.http.base_url
    yield _tried(BackendIdentity, backend.identity, source="server", run=run, origin=url)
    yield _tried(ModelIdentity, backend.model_identity, source="server", run=run, origin=url)
    yield _tried(WindowReading, backend.window, source="server", run=run, origin=url)
    yield _tried(Configuration, backend.configuration, source="server", run=run, origin=url)
    if isinstance(backend, LlamaManager):
        # the only server that tells where its memory is; all others print it into their logs, if anywhere
        yield _tried(MemoryBudget, backend.memory, source="server", run=run, origin=url)


def no_model(seen: EvidenceSet) -> str:
    """Give why the server has no model to be measured, in its backend's words with what to do (nothing is loaded, several are); else empty."""
    notes = {piece.kind: piece.unavailable.note for piece in seen.all if piece.unavailable is not None}
    known = any(piece.kind == ModelIdentity.kind and piece.data is not None for piece in seen.all)
    model, window = notes.get(ModelIdentity.kind, ""), notes.get(WindowReading.kind, "")
    # a server that merely keeps one of them to itself says something else of the other
    return model if model == window and not known else ""


def find_process(url: str) -> tuple[ServerProcess | None, str]:
    """Give the process behind a loopback address, or why there is none to be seen."""
    if not is_loopback(url):
        return None, "the server is on another machine"
    try:
        return process_behind(url), ""
    except CtxDoctorError as error:
        return None, str(error)


def at_process(
    process: ServerProcess | None, why: str, backend: str | None, run: int, model: str | None = None
) -> Iterator[Evidence]:
    """Settings from the command line and environment of the server's process and the files that these name, and the window that was asked for there.

    ``model``: which one, where a file names several.
    """
    if process is None:
        yield not_found(Configuration, "not-offered", why, source="process", run=run, origin="process")
        return
    settings = with_files(process, backend, model)
    if detect_backend(process.argv) is None:
        # a program that starts the server by its own means: flags that it does not show are not the server's defaults
        shown = as_text(settings.command or ())[:400]
        unread = {
            **settings.unread,
            "command": f"the server is started by a program that shows no flags of it: {shown}",
        }
        settings = settings.model_copy(update={"command": None, "unread": unread})
    if backend == Ollama.name:
        # the window in its environment is for models that set none: which one does, and what is asked for then, its backend knows
        own = {name: value for name, value in settings.settings.items() if name != "ctx"}
        settings = settings.model_copy(update={"settings": own})
    yield found(settings, source="process", run=run, origin=f"process {process.pid}")
    yield from asked_window(settings, run, f"process {process.pid}")


def told_in_log(settings: Configuration, run: int, origin: str) -> Iterator[Evidence]:
    """Give the settings that a log prints, and the window that they ask for."""
    yield found(settings, source="log", run=run, origin=origin)
    yield from asked_window(settings, run, origin, source="log")


def asked_window(settings: Configuration, run: int, origin: str, source: Source = "process") -> Iterator[Evidence]:
    """Give the window that a command line asks for, as a reading of its own."""
    asked, slots, unified = (settings.settings.get(name) for name in ("ctx", "parallel", "kv_unified"))
    values = {
        "asked": asked.value if asked and isinstance(asked.value, int) and asked.value > 0 else None,
        "slots": slots.value if slots and isinstance(slots.value, int) and slots.value > 0 else None,
        "unified": unified.value if unified and isinstance(unified.value, bool) else None,
    }
    if any(value is not None for value in values.values()):
        yield found(WindowReading(**values), source=source, run=run, origin=origin)


def at_model_file(path: str | None, run: int, *, local: bool) -> Iterator[Evidence]:
    """The model file's header, where the path is one on this machine."""
    if not path or not local:
        why = "the server does not say which file" if not path else "the file is on the server's machine"
        yield not_found(ModelFile, "not-offered", why, source="file", run=run, origin=path or "")
        return
    try:
        if not Path(path).exists():
            raise NotOfferedError(f"{path} is not on this machine or may not be looked at")
        yield found(read_model(path), source="file", run=run, origin=path)
    except NotOfferedError as error:
        yield not_found(ModelFile, "not-offered", str(error), source="file", run=run, origin=path)
    except (BadFileError, OSError) as error:
        yield not_found(ModelFile, "failed", str(error), source="file", run=run, origin=path)
