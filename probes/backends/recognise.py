"""Which server answers at an address: harmless GETs, in an order that imitators cannot fool, and nothing that would load a model.

At most :data:`MOST_GETS` requests and :data:`MOST_SECONDS` on this machine. KoboldCpp imitates Ollama and llama.cpp, and
TabbyAPI llama.cpp, so they are asked first; a server that is none of the known ones is taken as one of the OpenAI protocol.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from probes.backends.base import Backend, Signs
from probes.backends.beellama import BeeLlama
from probes.backends.commands import detect_backend
from probes.backends.http import Http, is_loopback
from probes.backends.ik_llama import IkLlamaCpp
from probes.backends.koboldcpp import KoboldCpp
from probes.backends.llama_cpp_python import LlamaCppPython
from probes.backends.llama_manager import LlamaManager
from probes.backends.llama_router import LlamaRouter
from probes.backends.llama_swap import LlamaSwap, owns_models
from probes.backends.llamacpp import LlamaCpp
from probes.backends.lm_studio import LmStudio
from probes.backends.mlx_lm import MlxLm
from probes.backends.ollama import Ollama
from probes.backends.openai_compatible import OpenAiCompatible
from probes.backends.sglang import Sglang
from probes.backends.tabbyapi import TabbyApi
from probes.backends.text_generation_webui import TextGenerationWebui
from probes.backends.vllm import Vllm
from probes.evidence.errors import (
    BadAnswerError,
    InputError,
    NoAnswerInTimeError,
    NotOfferedError,
    ServerDiedError,
    StillLoadingError,
    UnreachableError,
    WrongKeyError,
)

MOST_GETS = 16
MOST_SECONDS = 2.0
MOST_SECONDS_AWAY = 20.0
PROMPT_S = 0.1
"""A server on this machine answers a plain question within this."""

BACKENDS: dict[str, type[Backend]] = {
    cls.name: cls
    for cls in (
        KoboldCpp,
        TabbyApi,
        LlamaSwap,
        Ollama,
        LmStudio,
        Vllm,
        Sglang,
        IkLlamaCpp,
        LlamaCpp,
        BeeLlama,
        LlamaManager,
        TextGenerationWebui,
        LlamaCppPython,
        MlxLm,
        OpenAiCompatible,
    )
}
"""Name → class. Router mode of llama.cpp is told by its answers and has llama.cpp's name."""

# What is asked at each step, and who may say "that is me" once it is answered. A step's backends see all answers so far.
_STEPS: tuple[tuple[tuple[str, ...], tuple[type[Backend], ...]], ...] = (
    (("/api/extra/version",), (KoboldCpp,)),
    (("/.well-known/serviceinfo",), (TabbyApi, KoboldCpp)),
    # before the list of models: to ask llama-cpp-python for that breaks off an answer that it is giving
    (("/openapi.json",), (LlamaCppPython,)),
    (("/v1/models",), (LlamaManager,)),
    (("/api/version", "/running", "/"), (LlamaSwap, Ollama)),
    (("/props",), (LlamaRouter, IkLlamaCpp, LlamaCpp)),
    (("/api/v1/models", "/api/v0/models"), (LmStudio,)),
    (("/version",), (Vllm, IkLlamaCpp)),
    (("/server_info", "/get_server_info"), (Sglang,)),
    (("/v1/internal/model/info",), (TextGenerationWebui,)),
    ((), (LlamaCppPython,)),
    (("/health",), (IkLlamaCpp, LlamaCpp, MlxLm, OpenAiCompatible)),
)


@dataclass(slots=True)
class _Asked:
    """What was asked, and how it went."""

    gets: int = 0
    wrong_key: WrongKeyError | None = None
    silent: NoAnswerInTimeError | None = None
    broken: ServerDiedError | BadAnswerError | None = None
    answered: int = 0
    slow_s: float = 0.0
    """Seconds by which answers came later than from a server that is right here."""
    latest: float = field(default_factory=lambda: time.monotonic() + MOST_SECONDS_AWAY)


def recognise(http: Http, hint: str | None = None, *, model: str | None = None) -> Backend:
    """Find out which server answers, and give its backend.

    ``hint``: the name that the user gave with ``--backend``; it decides where the answers do not (a fork that looks like llama.cpp, a proxy that
    hides everything but the OpenAI protocol), and never against them. Raises UnreachableError, WrongKeyError, StillLoadingError (with the kind),
    NoAnswerInTimeError, BadAnswerError; InputError for an unknown hint.
    """
    if hint is not None and hint not in BACKENDS:
        raise InputError(f"no server is called {hint!r}; --backend takes {', '.join(sorted(BACKENDS))}")
    signs = Signs({})
    asked = _Asked()
    ends = time.monotonic() + (MOST_SECONDS if is_loopback(http.base_url) else MOST_SECONDS_AWAY)
    for paths, candidates in _STEPS:
        for path in paths:
            if _worth_asking(path, signs):
                _ask(http, path, signs, asked, ends)
        for candidate in candidates:
            sign = candidate.recognise(signs)
            if sign is not None and (candidate is not OpenAiCompatible or hint is None):
                if asked.wrong_key is not None and signs.status("/v1/models") == 401:
                    # What is open without a key told who it is.
                    if not http.key_given:
                        raise WrongKeyError(
                            f"this is {candidate.name}, and it wants a key; set CTXDOCTOR_API_KEY or give --api-key"
                        )
                    raise WrongKeyError(
                        f"this is {candidate.name}, and it wants another key; set CTXDOCTOR_API_KEY or give --api-key"
                    )
                return _made(candidate, sign, http, hint, model, signs)
    return _fallback(http, hint, model, signs, asked)


def _worth_asking(path: str, signs: Signs) -> bool:
    """Leave out what the answers so far make pointless."""
    if path == "/running":
        return "commit" in signs.json("/api/version") or owns_models(signs.json("/v1/models"))
    if path == "/":
        return isinstance(signs.json("/api/version").get("version"), str) and "commit" not in signs.json("/api/version")
    if path == "/get_server_info":
        return signs.status("/server_info") != 200
    if path == "/api/v0/models":
        return signs.status("/api/v1/models") != 200 or "models" not in signs.json("/api/v1/models")
    return True


def _ask(http: Http, path: str, signs: Signs, asked: _Asked, ends: float) -> None:
    left = min(ends + asked.slow_s, asked.latest) - time.monotonic()
    if asked.gets >= MOST_GETS or left <= 0:
        return
    asked.gets += 1
    begun = time.monotonic()
    try:
        reply = http.get(path, deadline_s=min(left, max(0.5, left / 3)))
    except WrongKeyError as error:
        asked.wrong_key = asked.wrong_key or error
        signs.answers[path] = (401, {}, None)
        asked.answered += 1
        return
    except NoAnswerInTimeError as error:
        asked.silent = asked.silent or error
        return
    except (BadAnswerError, ServerDiedError) as error:
        asked.broken = asked.broken or error
        return
    except UnreachableError:
        if asked.answered:
            # It answered before: too busy to take one more connection, or gone just now.
            return
        raise
    asked.answered += 1
    # a tunnel or proxy that is slow, but answers, is given the time that it takes; silence is not
    asked.slow_s += max(0.0, time.monotonic() - begun - PROMPT_S)
    body: object
    try:
        body = reply.json()
    except BadAnswerError:
        body = reply.text[:2000]
    signs.answers[path] = (reply.status, dict(reply.headers), body)


def _made(cls: type[Backend], sign: str, http: Http, hint: str | None, model: str | None, signs: Signs) -> Backend:
    if cls is LlamaCpp and hint == BeeLlama.name:
        cls, sign = BeeLlama, f"{sign}, and --backend says beellama.cpp"
    if issubclass(cls, LlamaCpp | IkLlamaCpp) and _loading(signs):
        raise StillLoadingError(f"{cls.name} at {http.base_url} is still loading its model; wait, or look at its log")
    backend = cls(http, model)
    if isinstance(backend, OpenAiCompatible):
        backend.recognised_by = sign
    if isinstance(backend, LlamaSwap):
        backend.look = recognise
    return backend


def _loading(signs: Signs) -> bool:
    """Say whether the server answers that it is loading, and nothing else yet."""
    told = signs.answers.get("/props") or signs.answers.get("/health") or signs.answers.get("/v1/models")
    if told is None or told[0] != 503 or not isinstance(told[2], dict):
        return False
    error = told[2].get("error")
    return isinstance(error, dict) and "loading" in str(error.get("message", "")).lower()


def _fallback(http: Http, hint: str | None, model: str | None, signs: Signs, asked: _Asked) -> Backend:
    """Decide where no sign did."""
    if asked.wrong_key is not None and not any(status == 200 for status, _headers, _body in signs.answers.values()):
        raise asked.wrong_key
    if hint is not None and asked.answered:
        return _made(BACKENDS[hint], "--backend", http, hint, model, signs)
    if asked.wrong_key is not None:
        raise asked.wrong_key
    # An answer that is none says more than one that was cut off because the time was up.
    if isinstance(asked.broken, BadAnswerError) and not asked.answered:
        raise asked.broken
    if asked.silent is not None and not asked.answered:
        raise asked.silent
    if asked.broken is not None and not asked.answered:
        raise asked.broken
    raise NotOfferedError(
        f"{http.base_url} answers, but as none of the servers that are known and without /v1/models; check the address, or give --backend"
    )


def recognise_command(argv: Sequence[str]) -> type[Backend] | None:
    """Give the backend that a command line starts, or None. The only way to tell a fork that answers as llama.cpp does."""
    return BACKENDS.get(detect_backend(argv) or "")
