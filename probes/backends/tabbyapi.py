"""TabbyAPI (ExLlama): window, cache and its type over HTTP, its times inside ``usage``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, ClassVar

from probes.backends.base import Feature, Signs
from probes.backends.http import Http, count, seconds, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, object_of
from probes.evidence.errors import BadAnswerError, NotOfferedError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading


class TabbyReading(StreamReading):
    """``usage`` carries the server's own times, in seconds."""

    def counts(self) -> dict[str, Any]:
        """Counts and times."""
        told = super().counts()
        told["server_prompt_s"] = seconds(self.usage.get("prompt_time"))
        told["server_generation_s"] = seconds(self.usage.get("completion_time"))
        return told


class TabbyApi(OpenAiCompatible):
    """TabbyAPI."""

    name: ClassVar[str] = "tabbyapi"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "model",
            "window",
            "slots",
            "tokenize",
            "chat",
            "completion",
            "server-times",
            "configuration",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = TabbyReading

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._loaded: dict[str, Any] | None = None

    def forget(self) -> None:
        """Forget ``/v1/model`` and the list of models."""
        super().forget()
        self._loaded = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/.well-known/serviceinfo``, which needs no key."""
        software = signs.json("/.well-known/serviceinfo").get("software")
        return (
            "/.well-known/serviceinfo says TabbyAPI"
            if isinstance(software, dict) and software.get("name") == "TabbyAPI"
            else None
        )

    def _model(self) -> dict[str, Any]:
        if self._loaded is None:
            told = self.ask_object("/v1/model")
            if "parameters" not in told:
                raise NotOfferedError("TabbyAPI has no model loaded; load one, then look again")
            self._loaded = told
        return self._loaded

    def _parameters(self) -> dict[str, Any]:
        return object_of(self._model().get("parameters"))

    def model_name(self) -> str | None:
        """Give the loaded model's name."""
        return self.model or text_of(self._model().get("id"), 500)

    def model_identity(self) -> ModelIdentity:
        """Model, from ``/v1/model``."""
        return ModelIdentity(
            name=text_of(self._model().get("id"), 500), chat_template=bool(self._parameters().get("prompt_template"))
        )

    def window(self) -> WindowReading:
        """``max_seq_len`` for one request; ``cache_size`` is shared by all jobs and may be smaller."""
        parameters = self._parameters()
        limit, pool = count(parameters.get("max_seq_len")), count(parameters.get("cache_size"))
        if not limit:
            raise NotOfferedError("TabbyAPI's /v1/model names no max_seq_len")
        return WindowReading(
            per_slot=limit,
            slots=count(parameters.get("max_batch_size")),
            pool=pool,
            unified=True if pool else None,
            in_force=min(limit, pool or limit),
        )

    def configuration(self) -> Configuration:
        """All that ``/v1/model`` tells."""
        parameters = self._parameters()
        settings: dict[str, Setting] = {}

        def put(name: str, value: object, raw: str) -> None:
            if isinstance(value, str | int | float | bool):
                settings[name] = Setting(
                    value=value[:500] if isinstance(value, str) else value, source="server", raw=f"/v1/model {raw}"
                )

        for key, name in (
            ("max_seq_len", "ctx"),
            ("cache_size", "pool"),
            ("max_batch_size", "parallel"),
            ("chunk_size", "batch"),
            ("rope_scale", "rope_scale"),
            ("rope_alpha", "rope_alpha"),
            ("use_vision", "mmproj_loaded"),
        ):
            put(name, parameters.get(key), key)
        mode = text_of(parameters.get("cache_mode"), 40)
        if mode is not None:
            parts = [part.strip().lower() for part in mode.split(",")]
            names = [_cache_type(part) for part in (parts if len(parts) == 2 else [parts[0], parts[0]])]
            put("kv_type_k", names[0], "cache_mode")
            put("kv_type_v", names[1], "cache_mode")
        put("draft_model", object_of(parameters.get("draft")).get("id"), "draft")
        return Configuration(settings=settings)

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /v1/token/encode``, without special tokens."""
        return self.tokens_from(
            "/v1/token/encode", {"text": text, "add_bos_token": False, "encode_special_tokens": False}, "tokens"
        )

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /v1/token/decode``."""
        reply = self.http.post_json("/v1/token/decode", {"tokens": list(tokens)}, deadline_s=60)
        text = reply.json_object().get("text") if reply.status == 200 else None
        if not isinstance(text, str):
            raise BadAnswerError("/v1/token/decode did not answer a text; is there a proxy in between?")
        return text

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """``POST /v1/token/encode`` with messages: the template is included."""
        return self.number_from(
            "/v1/token/encode", {"text": list(messages), "add_bos_token": True, "encode_special_tokens": True}, "length"
        )


def _cache_type(text: str) -> str:
    """Name a cache mode as command lines are read: ``f16``, or ``exl-q`` with its bits."""
    if re.fullmatch(r"q?\d", text):
        return f"exl-q{text[-1]}"
    return "f16" if text == "fp16" else text
