"""SGLang: all its settings over HTTP, a native endpoint with cached counts, a limit that is the pool's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.commands import parse_command, split_command
from probes.backends.http import Http, count, text_of
from probes.backends.logprobs import MOST_POSITIONS, of_triples
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of
from probes.evidence.errors import BadAnswerError, NotOfferedError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

_SETTINGS = {
    "context_length": "ctx",
    "max_running_requests": "parallel",
    "max_total_tokens": "pool",
    "chunked_prefill_size": "ubatch",
    "max_prefill_tokens": "batch",
    "mem_fraction_static": "memory_share",
    "tp_size": "tensor_parallel",
    "attention_backend": "attention_backend",
    "speculative_algorithm": "speculation",
    "speculative_draft_model_path": "draft_model",
    "speculative_num_draft_tokens": "draft_n_max",
    "page_size": "page_size",
    "cpu_offload_gb": "cpu_offload_gib",
    "allow_auto_truncate": "auto_truncate",
    "model_path": "model_path",
}


class SglangReading(StreamReading):
    """Native events of ``/generate``: the text so far, or the text that is new, and ``meta_info`` with counts."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.so_far = ""
        self.meta: dict[str, Any] = {}
        self.triples: list[Any] = []

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one event."""
        if "choices" in event or not isinstance(event.get("text"), str):
            return super().event(event, at_s)
        text = event["text"]
        # By default every event repeats all the text; with --incremental-streaming-output it holds the new part.
        new = text[len(self.so_far) :] if self.so_far and text.startswith(self.so_far) else text
        self.so_far = text if text.startswith(self.so_far) else self.so_far + text
        self.so_far = self.so_far[:1_000_000]
        self.token(new, at_s)
        meta = object_of(event.get("meta_info"))
        self.meta.update(meta)
        if self.ask.logprobs:
            triples = list_of(meta.get("output_top_logprobs"))
            # like the text: all so far, or the new part
            known = triples[: len(self.triples)] == self.triples
            self.triples = triples if known else (self.triples + triples)[:MOST_POSITIONS]
            self.logprobs = of_triples(self.triples)
        reason = self.meta.get("finish_reason")
        kind = object_of(reason).get("type") if isinstance(reason, dict) else reason
        if isinstance(kind, str) and kind:
            self.finish = kind[:40]
        return False

    def counts(self) -> dict[str, Any]:
        """Counts from ``meta_info``, else as the OpenAI protocol has them."""
        told = super().counts()
        for name, key in (
            ("prompt_tokens", "prompt_tokens"),
            ("cached_tokens", "cached_tokens"),
            ("generated_tokens", "completion_tokens"),
        ):
            number = count(self.meta.get(key))
            if number is not None:
                told[name] = number
        return told


class Sglang(OpenAiCompatible):
    """SGLang."""

    name: ClassVar[str] = "sglang"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "version",
            "model",
            "window",
            "tokenize",
            "chat",
            "completion",
            "cached-count",
            "configuration",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = SglangReading
    completion_path: ClassVar[str] = "/generate"

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._info: dict[str, Any] | None = None

    def forget(self) -> None:
        """Forget ``/server_info`` and the list of models."""
        super().forget()
        self._info = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/server_info`` (older: ``/get_server_info``) with its pool, or ``owned_by: sglang``."""
        for path in ("/server_info", "/get_server_info"):
            info = signs.json(path)
            if "max_total_num_tokens" in info or {"launch_command", "internal_states"} <= info.keys():
                return f"{path} has max_total_num_tokens"
        if any(object_of(e).get("owned_by") == "sglang" for e in list_of(signs.json("/v1/models").get("data"))):
            return "/v1/models owned by sglang"
        return None

    def info(self) -> dict[str, Any]:
        """Give ``/server_info``. NotOfferedError where neither its new nor its old name answers."""
        if self._info is None:
            told = self.ask_object("/server_info") or self.ask_object("/get_server_info")
            if not told:
                raise NotOfferedError("SGLang's /server_info does not answer; an admin key may guard it")
            self._info = told
        return self._info

    def _first(self, key: str) -> Any:
        info = self.info()
        if key in info:
            return info[key]
        states = list_of(info.get("internal_states"))
        return object_of(states[0]).get(key) if states else None

    def version(self) -> str | None:
        """Version, from ``/server_info``."""
        return text_of(self.info().get("version"), 200)

    def model_identity(self) -> ModelIdentity:
        """Model, from ``/model_info``."""
        told = self.ask_object("/model_info") or self.ask_object("/get_model_info")
        architectures = list_of(told.get("architectures"))
        return ModelIdentity(
            name=self.model_name() or text_of(told.get("served_model_name"), 500),
            path=text_of(told.get("model_path")),
            architecture=text_of(told.get("model_type"), 200)
            or text_of(architectures[0] if architectures else None, 200),
        )

    def window(self) -> WindowReading:
        """``max_req_input_len`` is what one prompt may have, often far below ``max_model_len``; the pool is shared by all requests."""
        asked, pool = count(self._first("context_length")), count(self._first("max_total_num_tokens"))
        limit = count(self._first("max_req_input_len"))
        model = count(self.entry().get("max_model_len"))
        in_force = limit if limit is not None else min((n for n in (model, pool) if n), default=None)
        return WindowReading(
            asked=asked,
            per_slot=model,
            slots=count(self._first("max_running_requests")),
            pool=pool,
            unified=True,
            in_force=in_force,
        )

    def configuration(self) -> Configuration:
        """All resolved settings, from ``/server_info``; the command line as the server prints it."""
        info = self.info()
        settings: dict[str, Setting] = {}
        for key, name in _SETTINGS.items():
            value = info.get(key)
            if isinstance(value, str | int | float | bool) and value == value:  # noqa: PLR0124 - no NaN
                settings[name] = Setting(
                    value=value[:4096] if isinstance(value, str) else value, source="server", raw=f"/server_info {key}"
                )
        if isinstance(info.get("kv_cache_dtype"), str):
            for name in ("kv_type_k", "kv_type_v"):
                settings[name] = Setting(
                    value=info["kv_cache_dtype"][:100], source="server", raw="/server_info kv_cache_dtype"
                )
        if isinstance(info.get("disable_radix_cache"), bool):
            settings["cache_prompt"] = Setting(
                value=not info["disable_radix_cache"], source="server", raw="/server_info disable_radix_cache"
            )
        launched = text_of(info.get("launch_command"), 20_000)
        command = parse_command(split_command(launched), None, self.name, source="server").command if launched else None
        return Configuration(settings=settings, command=command)

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Ask the native endpoint for raw prompts: it tells the cached count. The cache cannot be switched off for one request: the salt does it."""
        path, body = super().request(ask)
        if path != self.completion_path:
            return path, body
        sampling: dict[str, Any] = {"max_new_tokens": ask.max_tokens, "temperature": 0}
        if ask.stop:
            sampling["stop"] = list(ask.stop)
        native: dict[str, Any] = {"text": body["prompt"], "sampling_params": sampling, "stream": ask.stream}
        if ask.logprobs:
            native |= {"return_logprob": True, "top_logprobs_num": ask.logprobs}
        return path, native

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /tokenize``, without special tokens."""
        return self.tokens_from(
            "/tokenize", {"model": self.model_name(), "prompt": text, "add_special_tokens": False}, "tokens"
        )

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /detokenize``."""
        reply = self.http.post_json("/detokenize", {"model": self.model_name(), "tokens": list(tokens)}, deadline_s=60)
        told = reply.json_object() if reply.status == 200 else {}
        text = told.get("text") if isinstance(told.get("text"), str) else told.get("prompt")
        if not isinstance(text, str):
            raise BadAnswerError("/detokenize did not answer a text; is there a proxy in between?")
        return text

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """``POST /tokenize`` with messages: the template is included."""
        return self.number_from("/tokenize", {"model": self.model_name(), "messages": list(messages)}, "count")

    def busy(self) -> bool | None:
        """Say whether requests run or wait, from the metrics where they are on."""
        told = self.metrics("sglang:num_running_reqs", "sglang:num_queue_reqs")
        return any(value > 0 for value, _labels in told.values()) if told else None
