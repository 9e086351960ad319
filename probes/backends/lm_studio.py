"""LM Studio: the loaded window over its own API, new (0.4) and old; completions over the OpenAI protocol."""

from __future__ import annotations

from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import Http, count, seconds, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of
from probes.evidence.errors import NotOfferedError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

_LOADED = {
    "context_length": "ctx",
    "eval_batch_size": "batch",
    "parallel": "parallel",
    "offload_kv_cache_to_gpu": "kv_offload",
    "num_experts": "experts",
}


class LmStudioReading(StreamReading):
    """``stats`` of its own API: seconds to the first token, and of generation."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.stats: dict[str, Any] = {}
        self.runtime: dict[str, Any] = {}

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one event."""
        self.stats.update(object_of(event.get("stats")))
        self.runtime.update(object_of(event.get("runtime")))
        return super().event(event, at_s)

    def counts(self) -> dict[str, Any]:
        """Counts; its time to the first token is the server's own prompt time."""
        told = super().counts()
        told["server_prompt_s"] = seconds(self.stats.get("time_to_first_token"))
        told["server_generation_s"] = seconds(self.stats.get("generation_time"))
        return told


class LmStudio(OpenAiCompatible):
    """LM Studio."""

    name: ClassVar[str] = "lm-studio"
    apart: ClassVar[bool] = True
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "model",
            "window",
            "slots",
            "trained-window",
            "chat",
            "completion",
            "server-times",
            "configuration",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = LmStudioReading
    # Its own endpoints add the server's times to the protocol's answers.
    completion_path: ClassVar[str] = "/api/v0/completions"
    chat_path: ClassVar[str] = "/api/v0/chat/completions"

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._new: list[dict[str, Any]] | None = None
        self._old: list[dict[str, Any]] | None = None
        self.runtime: str | None = None

    def forget(self) -> None:
        """Forget every list of models."""
        super().forget()
        self._new = self._old = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/api/v1/models`` with loaded instances, or the older ``/api/v0/models`` with states."""
        new = [object_of(m) for m in list_of(signs.json("/api/v1/models").get("models"))]
        if any({"loaded_instances", "max_context_length"} <= m.keys() for m in new):
            return "/api/v1/models has loaded_instances"
        old = [object_of(m) for m in list_of(signs.json("/api/v0/models").get("data"))]
        if any({"state", "max_context_length"} <= m.keys() for m in old):
            return "/api/v0/models has state and max_context_length"
        entries = list_of(signs.json("/v1/models").get("data"))
        if any(object_of(e).get("owned_by") == "organization_owner" for e in entries):
            return "/v1/models owned by organization_owner"
        return None

    def _new_models(self) -> list[dict[str, Any]]:
        if self._new is None:
            self._new = [m for m in list_of(self.ask_object("/api/v1/models").get("models")) if isinstance(m, dict)]
        return self._new

    def _old_models(self) -> list[dict[str, Any]]:
        if self._old is None:
            self._old = [m for m in list_of(self.ask_object("/api/v0/models").get("data")) if isinstance(m, dict)]
        return self._old

    def instances(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """Give (model, loaded instance) of the newer API."""
        return [(m, object_of(i)) for m in self._new_models() for i in list_of(m.get("loaded_instances"))]

    def _mine(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Give the model under test and its loaded instance; empty ones of whatever is not told. NotOfferedError where none is loaded."""
        found = self.instances()
        if self.model is not None:
            found = [(m, i) for m, i in found if self.model in {i.get("id"), m.get("key")}]
        if found:
            return found[0]
        old = [m for m in self._old_models() if m.get("state") == "loaded" and m.get("type") != "embeddings"]
        if self.model is not None:
            old = [m for m in old if m.get("id") == self.model]
        if old:
            return old[0], {}
        raise NotOfferedError(
            "LM Studio has no such model loaded; load it there first, since asking would load it with its default window"
        )

    def model_name(self) -> str | None:
        """Give the loaded instance's name; a model that is not loaded is not asked, since that would load it."""
        if self.model is not None:
            return self.model
        model, instance = self._mine()
        return text_of(instance.get("id"), 500) or text_of(model.get("key"), 500) or text_of(model.get("id"), 500)

    def model_identity(self) -> ModelIdentity:
        """Model, as either API tells it."""
        model, _instance = self._mine()
        quantization = model.get("quantization")
        return ModelIdentity(
            name=self.model_name(),
            size_bytes=count(model.get("size_bytes")),
            quantization=text_of(
                object_of(quantization).get("name") if isinstance(quantization, dict) else quantization, 100
            ),
            architecture=text_of(model.get("architecture"), 200) or text_of(model.get("arch"), 200),
            trained_window=count(model.get("max_context_length")),
        )

    def window(self) -> WindowReading:
        """The loaded window; ``max_context_length`` is the model's own maximum."""
        model, instance = self._mine()
        config = object_of(instance.get("config"))
        loaded = count(config.get("context_length")) or count(model.get("loaded_context_length"))
        return WindowReading(
            trained=count(model.get("max_context_length")),
            per_slot=loaded,
            slots=count(config.get("parallel")),
            in_force=loaded,
        )

    def configuration(self) -> Configuration:
        """The loaded instance's configuration. The older API tells the window only."""
        model, instance = self._mine()
        config = object_of(instance.get("config"))
        settings: dict[str, Setting] = {}
        for key, name in _LOADED.items():
            value = config.get(key)
            if isinstance(value, int | float | bool) and (isinstance(value, bool) or count(value) is not None):
                settings[name] = Setting(value=value, source="server", raw=f"/api/v1/models {key}")
        if isinstance(config.get("flash_attention"), bool):
            settings["flash_attention"] = Setting(
                value="on" if config["flash_attention"] else "off",
                source="server",
                raw="/api/v1/models flash_attention",
            )
        told = count(model.get("loaded_context_length"))
        if "ctx" not in settings and told:
            settings["ctx"] = Setting(value=told, source="server", raw="/api/v0/models loaded_context_length")
        if not settings:
            raise NotOfferedError("this LM Studio does not tell how its model was loaded")
        why = "LM Studio does not tell this over HTTP"
        return Configuration(settings=settings, unread=dict.fromkeys(("kv_type_k", "kv_type_v", "gpu_layers"), why))

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Use its own endpoints where they are, else the protocol's."""
        path, body = super().request(ask)
        if not self._old_models():
            path = path.replace("/api/v0/", "/v1/")
        return path, body
