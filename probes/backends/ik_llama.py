"""ik_llama.cpp's llama-server: mainline's endpoints of an earlier day, with its own errors and silent truncation."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import count, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of
from probes.evidence.errors import BadAnswerError, CtxDoctorError, NotOfferedError, StillLoadingError
from probes.evidence.request import Completion
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

LONGEST_CLEARING_S = 120.0
MOST_SLOTS = 64


class IkReading(StreamReading):
    """Native events: ``content``, and at the end ``stop`` with ``stopped_…`` marks; ``timings`` without a cached count."""

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one event; the native endpoint marks its end with ``"stop": true``."""
        super().event(event, at_s)
        if "choices" in event:
            return False
        if isinstance(event.get("content"), str):
            self.token(event["content"], at_s)
        if event.get("stop") is True:
            self.final = event
            self.ended = True
            for mark in ("eos", "word", "limit"):
                if event.get(f"stopped_{mark}") is True:
                    self.finish = mark
            return True
        return False

    def likeliest(self, event: Mapping[str, Any]) -> None:
        """Its last event tells those of all positions again."""
        if not (event.get("stop") is True and self.logprobs):
            super().likeliest(event)

    def counts(self) -> dict[str, Any]:
        """Infer the cached part: prompt without what was processed; ``timings`` has no ``cache_n`` here."""
        told = super().counts()
        prompt, processed = told["prompt_tokens"], told["processed_tokens"]
        if told["cached_tokens"] is None and prompt is not None and processed is not None and processed <= prompt:
            told["cached_tokens"] = prompt - processed
        return told


class IkLlamaCpp(OpenAiCompatible):
    """llama-server of ik_llama.cpp."""

    name: ClassVar[str] = "ik_llama.cpp"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "model",
            "window",
            "slots",
            "trained-window",
            "tokenize",
            "chat",
            "completion",
            "cached-count",
            "server-times",
            "cache-off",
            "configuration",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = IkReading
    completion_path: ClassVar[str] = "/completion"

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By its ``Server`` header, or a numbered ``/version`` with features, or ``/props`` with a total window and no build."""
        for path, (_status, headers, _body) in signs.answers.items():
            if headers.get("server", "") == cls.name:
                return f"Server: ik_llama.cpp at {path}"
        version = signs.json("/version")
        if isinstance(version.get("version"), int) and isinstance(version.get("features"), dict):
            return "/version has a number and features"
        props = signs.json("/props")
        if {"n_ctx", "total_slots", "model_name"} <= props.keys() and "build_info" not in props:
            return "/props has n_ctx, total_slots and no build_info"
        return None

    def _props(self) -> dict[str, Any]:
        reply = self.http.get("/props")
        if reply.status == 503:
            raise StillLoadingError("the server is still loading its model; wait, or look at its log")
        if reply.status != 200:
            raise NotOfferedError(f"/props answered HTTP {reply.status}; a proxy may hide it")
        return reply.json_object()

    def model_identity(self) -> ModelIdentity:
        """Model by ``/props`` and the models' entry."""
        props = self._props()
        meta = object_of(self.entry().get("meta"))
        path = text_of(props.get("model_path"))
        name = text_of(props.get("model_alias")) or text_of(props.get("model_name")) or path
        return ModelIdentity(
            name=re.split(r"[\\/]", name)[-1] if name else None,
            path=path,
            size_bytes=count(meta.get("size")),
            parameters=count(meta.get("n_params")),
            trained_window=count(meta.get("n_ctx_train")),
            chat_template=bool(props.get("chat_template")) if "chat_template" in props else None,
        )

    def window(self) -> WindowReading:
        """Total window and slots; ``/props``' own ``n_ctx`` is the total, and slots share it evenly."""
        props = self._props()
        total, slots = count(props.get("n_ctx")), count(props.get("total_slots"))
        per_slot = count(object_of(props.get("default_generation_settings")).get("n_ctx"))
        if total and slots and (per_slot is None or per_slot * slots > total):
            # Its generation settings repeat the total; the slots divide it.
            per_slot = total // slots
        return WindowReading(
            asked=total,
            trained=count(object_of(self.entry().get("meta")).get("n_ctx_train")),
            per_slot=per_slot,
            slots=slots,
            in_force=per_slot,
        )

    def configuration(self) -> Configuration:
        """What HTTP tells: window and slots."""
        window = self.window()
        settings = {
            name: Setting(value=value, source="server", raw="/props")
            for name, value in (("ctx", window.asked), ("parallel", window.slots))
            if value is not None
        }
        return Configuration(settings=settings)

    def complete(self, ask: Ask) -> Completion:
        """Send one completion. A prompt that is refused for its length is read all the same, and stays in its slot: that is cleared away."""
        told = super().complete(ask)
        if told.error is not None and told.error.error == "exceeds-window":
            with contextlib.suppress(CtxDoctorError):
                self._clear_away(ask.deadline_s)
        return told

    def _clear_away(self, deadline_s: float) -> None:
        """Wait until the refused prompt was read, and put one token in each slot: else requests to other slots find no free cells, and fail."""
        slots = count(self._props().get("total_slots")) or 1
        ends = time.monotonic() + min(deadline_s, LONGEST_CLEARING_S)
        while self.busy():
            if time.monotonic() > ends:
                return
            time.sleep(0.2)
        for slot in range(slots if 1 < slots <= MOST_SLOTS else 0):
            body = {"prompt": " ", "n_predict": 1, "cache_prompt": False, "id_slot": slot, "stream": False}
            self.http.post_json(self.completion_path, body, deadline_s=10)

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Switch the cache off where asked; pin a slot where asked."""
        path, body = super().request(ask)
        if not (ask.use_cache and ask.cache_as_served):
            body["cache_prompt"] = ask.use_cache
        if ask.slot is not None:
            body["id_slot"] = ask.slot
        if path == self.completion_path:
            body["n_predict"] = body.pop("max_tokens")
            for gone in ("stream_options", "model", "logprobs"):
                body.pop(gone, None)
            if ask.logprobs:
                body["n_probs"] = ask.logprobs
        return path, body

    def tokenize(self, text: str) -> list[int]:
        """``POST /tokenize``, without special tokens."""
        return self.tokens_from("/tokenize", {"content": text, "add_special": False, "parse_special": False}, "tokens")

    def detokenize(self, tokens: Any) -> str:
        """``POST /detokenize``."""
        reply = self.http.post_json("/detokenize", {"tokens": list(tokens)}, deadline_s=60)
        content = reply.json_object().get("content") if reply.status == 200 else None
        if not isinstance(content, str):
            raise BadAnswerError("/detokenize did not answer a text; is there a proxy in between?")
        return content

    def busy(self) -> bool | None:
        """Say whether a slot works, from ``/slots``; ``/health`` would wait behind a long prompt."""
        try:
            status, body = self.http.get_json("/slots", deadline_s=2)
        except (BadAnswerError, NotOfferedError):
            return None
        if status != 200 or not isinstance(body, list):
            return None
        return any(
            object_of(slot).get("state") == 1 or object_of(slot).get("is_processing") is True for slot in list_of(body)
        )
