"""llama-server processes that another server runs behind its own address: Ollama's, text-generation-webui's, llama-manager's. Found on this machine only."""

from __future__ import annotations

import re
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING

from probes.backends.commands import parse_command
from probes.backends.http import Http, is_loopback
from probes.backends.llamacpp import LlamaCpp
from probes.evidence.errors import NotOfferedError
from probes.evidence.subject import Configuration

if TYPE_CHECKING:
    from probes.process import ServerProcess

_LLAMA_SERVER = re.compile(
    r"(?:^|[\\/])(?:llama-server|ollama_llama_server|llama[-_]?cpp[-_]?binaries[^ ]*)(?:\.exe)?$", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class LlamaChild:
    """One such process: who it is, how it was started, and a backend that asks it directly."""

    pid: int
    configuration: Configuration
    backend: LlamaCpp


def find_child(http: Http, model_path: str | None = None) -> LlamaChild:
    """Find the llama-server behind a server at a loopback address. NotOfferedError, with why, where there is none or it cannot be seen.

    ``model_path``: the end of the path of the file that it has to hold; None where that is not known.
    """
    if not is_loopback(http.base_url):
        raise NotOfferedError("the llama-server behind it can be seen on its own machine only")
    from probes.process import process_behind, read_process  # noqa: PLC0415 - looks at processes only when asked

    parent = process_behind(http.base_url)
    found: list[tuple[ServerProcess, Configuration]] = []
    for pid in parent.children[:64]:
        try:
            process = read_process(pid)
        except NotOfferedError:
            continue
        if process.argv and (_LLAMA_SERVER.search(process.argv[0]) or "llama-server" in process.argv[:2]):
            found.append((process, parse_command(process.argv, process.environment, "llama.cpp")))
    if model_path is not None:
        named = [
            one
            for one in found
            if str(one[1].settings["model_path"].value if "model_path" in one[1].settings else "").endswith(model_path)
        ]
        if found and not named:
            # another model's llama-server knows nothing of this one
            raise NotOfferedError("none of the llama-servers that it runs holds this model just now")
        found = named
    if not found:
        raise NotOfferedError("it runs no llama-server of its own just now, or this user may not see it")
    if len(found) > 1:
        raise NotOfferedError(f"it runs {len(found)} llama-servers, and which one holds the model cannot be told")
    process, read = found[0]
    port = read.settings.get("port")
    if port is None or not isinstance(port.value, int) or not 0 < port.value < 65536:
        raise NotOfferedError("the port of its llama-server cannot be read from its command line")
    child = Http(f"http://127.0.0.1:{port.value}", None, http.connect_s)
    backend = LlamaCpp(child)
    weakref.finalize(backend, child.close)
    return LlamaChild(process.pid, read, backend)


def find_router(http: Http) -> Http:
    """Find llama-manager's llama-server: a child of its process that serves presets. NotOfferedError where it cannot be seen."""
    if not is_loopback(http.base_url):
        raise NotOfferedError("the llama-server behind llama-manager can be seen on its own machine only")
    from probes.process import process_behind, read_process  # noqa: PLC0415 - looks at processes only when asked

    for pid in process_behind(http.base_url).children[:64]:
        try:
            process = read_process(pid)
        except NotOfferedError:
            continue
        if "--models-preset" not in process.argv:
            continue
        port = parse_command(process.argv, process.environment, "llama.cpp").settings.get("port")
        if port is not None and isinstance(port.value, int) and 0 < port.value < 65536:
            return Http(f"http://127.0.0.1:{port.value}", None, http.connect_s)
    raise NotOfferedError(
        "llama-manager runs no llama-server that this user may see, so nothing more can be told or reloaded"
    )
