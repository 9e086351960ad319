"""A server that goes on running while a setting of its model is changed by the server's own interface, and is put back as it was.

Ollama loads the model anew with the ``options`` of a request; LM Studio unloads and loads it (``/api/v1/models/unload``, ``/load``, from 0.4 on);
llama-manager's own llama-server reloads it (``/reload``; its src/client/llama-api.ts and types.ts). Nothing is changed that could not be read before,
since it could not be put back. All others are started again with another command.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import quote

from probes.backends.base import Backend
from probes.backends.children import find_router
from probes.backends.flags import LM_STUDIO_LOAD, MODELFILE
from probes.backends.http import Http, Reply, count
from probes.backends.lm_studio import LmStudio
from probes.backends.ollama import Ollama
from probes.backends.openai_compatible import object_of
from probes.evidence.errors import CtxDoctorError, LaunchFailedError, NotOfferedError, RefusedSettingError
from probes.evidence.words import Words, words

LOAD_S = 600.0
"""A model is waited for so long."""
LONGEST_REASON = 400


class Standing(ABC):
    """One model of a running server. ``before`` is plain data, so that it can be written down and put back by another process."""

    name: ClassVar[str]
    fields: ClassVar[Mapping[str, str]]
    """Our name of a setting → the interface's."""

    def __init__(self, http: Http, model: str) -> None:
        self.http = http
        self.model = model

    def takes(self, variable: str) -> bool:
        """Say whether this interface changes a setting, and gives it back."""
        return variable in self.fields

    def written(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Write settings in the interface's own names. NotOfferedError for one that it does not take; RefusedSettingError for a value."""
        told: dict[str, Any] = {}
        for variable, value in settings.items():
            if not self.takes(variable):
                raise NotOfferedError(
                    f"{self.name} cannot change {variable} while it runs; it takes {', '.join(sorted(self.fields))}"
                )
            if value is None:
                raise RefusedSettingError(f"{self.name} takes {variable} with a value only")
            told[self.fields[variable]] = value
        return told

    @abstractmethod
    def before(self) -> dict[str, Any]:
        """Give what stands now, as far as it is needed to put it back. NotOfferedError where it could not be put back."""

    @abstractmethod
    def put(self, settings: Mapping[str, Any]) -> None:
        """Put settings into force on top of what stands. LaunchFailedError, with the server's words, where the model does not load with them."""

    @abstractmethod
    def put_back(self, before: Mapping[str, Any]) -> None:
        """Put back what stood before. LaunchFailedError where that fails."""

    @abstractmethod
    def request(self, settings: Mapping[str, Any]) -> str:
        """Give what is sent, in one line for people."""

    def _sent(self, path: str, body: object) -> Reply:
        reply = self.http.post_json(path, body, deadline_s=LOAD_S)
        if reply.status >= 400:
            raise LaunchFailedError(f"{self.name} answered {path} with HTTP {reply.status}: {_reason(reply)}")
        return reply


def _reason(reply: Reply) -> str:
    try:
        error = reply.json_object().get("error")
    except CtxDoctorError:
        error = reply.text
    told = object_of(error).get("message") if isinstance(error, dict) else error
    return " ".join(str(told or "no reason given").split())[:LONGEST_REASON]


_OF_LOADING = {"ctx", "batch", "gpu_layers", "threads", "main_gpu", "mmap"}


class OllamaStanding(Standing):
    """Ollama: a request without a prompt loads the model with its ``options``; each request of a run then repeats them."""

    name: ClassVar[str] = "ollama"
    fields: ClassVar[Mapping[str, str]] = MappingProxyType(
        {variable: option for option, (variable, _kind) in MODELFILE.items() if variable in _OF_LOADING}
    )

    def _running(self) -> dict[str, Any]:
        return Ollama(self.http, self.model).running()

    def before(self) -> dict[str, Any]:
        """Whether it is loaded, and with which window; all else comes from its Modelfile again."""
        running = self._running()
        return {"loaded": bool(running), "num_ctx": count(running.get("context_length"))}

    def put(self, settings: Mapping[str, Any]) -> None:
        """Load it with these options; what is not among them is as the Modelfile says, the window as it is now."""
        window = count(self._running().get("context_length"))
        self._load(({"num_ctx": window} if window else {}) | self.written(settings))

    def _load(self, options: Mapping[str, Any]) -> None:
        stays = Ollama(self.http, self.model).stays_anew()
        self._sent("/api/generate", {"model": self.model, "options": dict(options), "stream": False, **stays})

    def put_back(self, before: Mapping[str, Any]) -> None:
        """Load it as it was, or unload it where it was not loaded."""
        if not before.get("loaded"):
            self._sent("/api/generate", {"model": self.model, "keep_alive": 0, "stream": False})
            return
        window = count(before.get("num_ctx"))
        self._load({"num_ctx": window} if window else {})

    def request(self, settings: Mapping[str, Any]) -> str:
        """The options of each request."""
        return f'each request with "options": {json.dumps(self.written(settings))}'


class LmStudioStanding(Standing):
    """LM Studio: the model is unloaded, and loaded with the configuration that it had and what is changed in it."""

    name: ClassVar[str] = "lm-studio"
    fields: ClassVar[Mapping[str, str]] = LM_STUDIO_LOAD

    def _mine(self) -> tuple[dict[str, Any], dict[str, Any]]:
        instances = LmStudio(self.http, self.model).instances()
        mine = [(m, i) for m, i in instances if self.model in {i.get("id"), m.get("key")}]
        if not mine:
            raise NotOfferedError(
                "LM Studio tells no loaded instance of this model; from 0.4 on it does, before that load it with: lms load"
            )
        if len(mine) > 1:
            raise NotOfferedError(f"LM Studio has {len(mine)} instances of this model loaded; name one with --model")
        return mine[0]

    def before(self) -> dict[str, Any]:
        """The loaded instance's configuration."""
        model, instance = self._mine()
        config = {
            field: object_of(instance.get("config"))[field]
            for field in LM_STUDIO_LOAD.values()
            if field in object_of(instance.get("config"))
        }
        if "context_length" not in config:
            raise NotOfferedError("LM Studio does not tell the window that the model is loaded with")
        return {"key": model.get("key"), "instance": instance.get("id"), "config": config}

    def written(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Flash attention is true or false here."""
        told = super().written(settings)
        for field in ("flash_attention", "offload_kv_cache_to_gpu"):
            if isinstance(told.get(field), str):
                told[field] = told[field].lower() in {"on", "true", "1"}
        return told

    def put(self, settings: Mapping[str, Any]) -> None:
        """Unload it, and load it with the changed configuration."""
        stands = self.before()
        self._unload(stands["instance"])
        self._load(stands["key"], {**stands["config"], **self.written(settings)})

    def _unload(self, instance: object) -> None:
        self._sent("/api/v1/models/unload", {"instance_id": instance})

    def _load(self, key: object, config: Mapping[str, Any]) -> None:
        self._sent("/api/v1/models/load", {"model": key, **config, "echo_load_config": True})

    def put_back(self, before: Mapping[str, Any]) -> None:
        """Unload what is loaded of it, and load it as it was; nothing is done where it stands as before."""
        instances = LmStudio(self.http, self.model).instances()
        for model, instance in instances:
            if model.get("key") == before.get("key"):
                config = object_of(instance.get("config"))
                if all(config.get(field) == value for field, value in object_of(before.get("config")).items()):
                    return
                self._unload(instance.get("id"))
        self._load(before.get("key"), object_of(before.get("config")))

    def request(self, settings: Mapping[str, Any]) -> str:
        """The call that loads it."""
        return f"unload, then POST /api/v1/models/load with {json.dumps(self.written(settings))}"


RELOAD: Mapping[str, str] = MappingProxyType({"ctx": "n_ctx"})
"""What can be read of the model before, too. Cache types, batches and the rest can be reloaded as well, but not read, so not put back."""


class LlamaManagerStanding(Standing):
    """llama-manager: its own llama-server behind it, which reloads a model in place. The manager goes on choosing by itself when it needs room."""

    name: ClassVar[str] = "llama-manager"
    fields: ClassVar[Mapping[str, str]] = RELOAD

    def __init__(self, http: Http, model: str, router: Http | None = None) -> None:
        super().__init__(http, model)
        self.router = router or find_router(http)

    def before(self) -> dict[str, Any]:
        """The window that its one slot has now. NotOfferedError with several slots: the whole cannot be told from one."""
        status, slots = self.router.get_json(f"/slots?model={quote(self.model, safe='')}&autoload=false")
        if status != 200 or not isinstance(slots, list):
            raise NotOfferedError(
                f"llama-manager's llama-server does not tell its slots (HTTP {status}); it needs --slots"
            )
        windows = [count(object_of(slot).get("n_ctx")) for slot in slots]
        if len(windows) != 1 or not windows[0]:
            raise NotOfferedError("llama-manager's llama-server has several slots; its whole window cannot be told")
        return {"n_ctx": windows[0]}

    def put(self, settings: Mapping[str, Any]) -> None:
        """Reload it with what is changed."""
        self._reload(self.written(settings))

    def _reload(self, told: Mapping[str, Any]) -> None:
        reply = self.router.post_json("/reload", {**told, "model": self.model}, deadline_s=LOAD_S)
        if reply.status == 404:
            raise NotOfferedError("this llama-server has no /reload; only llama-manager's own build has it")
        if reply.status >= 400:
            raise LaunchFailedError(f"llama-manager answered /reload with HTTP {reply.status}: {_reason(reply)}")
        if reply.json_object().get("success") is False:
            raise LaunchFailedError(f"llama-manager did not reload the model: {reply.json_object().get('message')}")

    def put_back(self, before: Mapping[str, Any]) -> None:
        """Reload it with the window that it had."""
        self._reload({"n_ctx": count(before.get("n_ctx"))})

    def request(self, settings: Mapping[str, Any]) -> str:
        """The call to the server behind the manager."""
        return f"POST {self.router.base_url}/reload with {json.dumps({**self.written(settings), 'model': self.model})}"


KINDS: Mapping[str, type[Standing]] = MappingProxyType(
    {one.name: one for one in (OllamaStanding, LmStudioStanding, LlamaManagerStanding)}
)


def standing_at(name: str, http: Http, model: str) -> Standing:
    """Give the interface of a server by its name. NotOfferedError where it has none that changes settings."""
    return _kind(name)(http, model)


def _kind(name: str) -> type[Standing]:
    kind = KINDS.get(name)
    if kind is None:
        raise NotOfferedError(
            f"{name} changes no settings while it runs; give the command that starts it with --launch"
        )
    return kind


def standing_of(backend: Backend) -> Standing:
    """Give the interface of the server and model under test. NotOfferedError."""
    kind = _kind(backend.name)
    named = getattr(backend, "model_name", None)
    model = named() if callable(named) else backend.model
    if not isinstance(model, str) or not model:
        raise NotOfferedError(f"{backend.name} does not say which model it has loaded; name one with --model")
    return kind(backend.http, model)


def reload_steps(variable: str, value: Any, model: str | None) -> tuple[Words, ...]:
    """Say how a setting is changed on llama-manager's own llama-server. NotOfferedError for what it does not reload."""
    if variable not in RELOAD or value is None:
        raise NotOfferedError(f"llama-manager chooses {variable} itself while it runs; its presets cannot fix it")
    body = json.dumps({"model": model or "MODEL", RELOAD[variable]: value})
    return (
        words(
            "Send the llama-server behind llama-manager (its address is `listen` in the configuration) POST /reload with {body}. "
            "The manager puts its own value there the next time that it makes room.",
            body=body,
        ),
    )
