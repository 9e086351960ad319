"""vLLM's OpenAI server: one window for prompt and answer, its own tokenizer, pool and cache type in its metrics."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import count, text_of
from probes.backends.openai_compatible import OpenAiCompatible, list_of, object_of
from probes.evidence.errors import BadAnswerError, NotOfferedError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading


class Vllm(OpenAiCompatible):
    """vLLM."""

    name: ClassVar[str] = "vllm"
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
            "cache-off",
            "configuration",
            "logprobs",
            "streaming",
        }
    )

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``owned_by: vllm`` with a window, and a ``/version`` that is a text (ik_llama.cpp's is a number)."""
        entries = list_of(signs.json("/v1/models").get("data"))
        owned = any(
            object_of(e).get("owned_by") == "vllm" and count(object_of(e).get("max_model_len")) for e in entries
        )
        version = signs.json("/version").get("version")
        if owned and isinstance(version, str):
            return "/version, and /v1/models owned by vllm with max_model_len"
        if (
            signs.status("/v1/models") == 401
            and isinstance(version, str)
            and signs.json("/version").keys() == {"version"}
        ):
            # Its key guards /v1 only; what is open says the rest.
            return "/version is open and /v1 wants a key"
        return None

    def version(self) -> str | None:
        """``GET /version``."""
        return text_of(self.ask_object("/version").get("version"), 200)

    def model_identity(self) -> ModelIdentity:
        """Model and its path (``root``)."""
        entry = self.entry()
        return ModelIdentity(name=self.model_name(), path=text_of(entry.get("root")))

    def window(self) -> WindowReading:
        """``max_model_len``: prompt and answer together. The pool of all requests from its metrics where they are open."""
        told = count(self.entry().get("max_model_len"))
        if not told:
            raise NotOfferedError("vLLM's /v1/models names no max_model_len for this model; give --model")
        labels = self._cache_labels()
        pool = labels.get("kv_cache_size_tokens", "")
        return WindowReading(
            in_force=told, per_slot=told, pool=int(pool) if pool.isdigit() and len(pool) < 15 else None, unified=True
        )

    def _cache_labels(self) -> dict[str, str]:
        name = "vllm:cache_config_info"
        return self.metrics(name).get(name, (0.0, {}))[1]

    def configuration(self) -> Configuration:
        """What the metrics' labels tell: cache type, share of memory, prefix cache, block size."""
        labels = self._cache_labels()
        if not labels:
            raise NotOfferedError("vLLM's /metrics is not open; its settings are in its command line and log")
        settings: dict[str, Setting] = {}
        raw = "/metrics vllm:cache_config_info"
        if labels.get("cache_dtype"):
            for name in ("kv_type_k", "kv_type_v"):
                settings[name] = Setting(value=labels["cache_dtype"], source="server", raw=raw)
        for label, name in (
            ("gpu_memory_utilization", "memory_share"),
            ("block_size", "block_size"),
            ("cpu_offload_gb", "cpu_offload_gib"),
        ):
            try:
                value = float(labels[label])
            except (KeyError, ValueError):
                continue
            settings[name] = Setting(value=int(value) if name == "block_size" else value, source="server", raw=raw)
        if labels.get("enable_prefix_caching") in {"True", "False"}:
            settings["cache_prompt"] = Setting(
                value=labels["enable_prefix_caching"] == "True", source="server", raw=raw
            )
        window = count(self.entry().get("max_model_len"))
        if window:
            settings["ctx"] = Setting(value=window, source="server", raw="/v1/models max_model_len")
        return Configuration(settings=settings)

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Keep the prefix cache out with a salt of its own where asked; what follows on a salted text shares that text's blocks."""
        path, body = super().request(ask)
        if ask.salt:
            body["cache_salt"] = ask.salt.strip()
        elif not ask.use_cache:
            body["cache_salt"] = secrets.token_hex(8)
        return path, body

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /tokenize``, without special tokens."""
        return self.tokens_from(
            "/tokenize", {"model": self.model_name(), "prompt": text, "add_special_tokens": False}, "tokens"
        )

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /detokenize``."""
        reply = self.http.post_json("/detokenize", {"model": self.model_name(), "tokens": list(tokens)}, deadline_s=60)
        prompt = reply.json_object().get("prompt") if reply.status == 200 else None
        if not isinstance(prompt, str):
            raise BadAnswerError("/detokenize did not answer a text; is there a proxy in between?")
        return prompt

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """``POST /tokenize`` with messages: the template is included."""
        return self.number_from(
            "/tokenize",
            {"model": self.model_name(), "messages": list(messages), "add_generation_prompt": True},
            "count",
        )

    def busy(self) -> bool | None:
        """Say whether requests run or wait, from the metrics."""
        told = self.metrics("vllm:num_requests_running", "vllm:num_requests_waiting")
        return any(value > 0 for value, _labels in told.values()) if told else None
