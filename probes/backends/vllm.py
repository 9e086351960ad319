"""vLLM's OpenAI server: one window for prompt and answer, its own tokenizer, pool and cache type in its metrics."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import Http, count, seconds, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of, parse_metrics
from probes.evidence.errors import BadAnswerError, CtxDoctorError, NotOfferedError
from probes.evidence.request import Completion
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

BEGINNING = 64
"""So many characters of a prompt tell whether one goes on from another."""
_MOST_FRESH = 16
_LOOKED, _FOUND = "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total"
_PREFILLS, _PREFILL_S = "vllm:request_prefill_time_seconds_count", "vllm:request_prefill_time_seconds_sum"
_DECODE_S = "vllm:request_decode_time_seconds_sum"
_DRAFTED, _ACCEPTED = "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total"
_RUNNING, _WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
_COUNTERS = (_LOOKED, _FOUND, _PREFILLS, _PREFILL_S, _DECODE_S, _DRAFTED, _ACCEPTED, _RUNNING, _WAITING)
_COUNTERS_S = 0.8
_MOST_MISSED = 3
_SETTLES_S = (0.0, 0.02, 0.05, 0.1)
"""The counters follow an answer's end by a moment."""


class VllmReading(StreamReading):
    """The last event has the server's own times, where it was started with ``--enable-per-request-metrics``, and what became of drafts."""

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self.metrics: dict[str, Any] = {}

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one event."""
        self.metrics.update(object_of(event.get("metrics")))
        return super().event(event, at_s)

    def counts(self) -> dict[str, Any]:
        """Counts and times: from being scheduled to the first token, from the first to the last; the wait in the queue is in neither."""
        told = super().counts()
        told["server_prompt_s"] = seconds(self.metrics.get("time_to_first_token_ms"), 1000)
        told["server_generation_s"] = seconds(self.metrics.get("generation_time_ms"), 1000)
        drafts = object_of(self.metrics.get("speculative_decoding"))
        drafted, accepted = count(drafts.get("num_draft_tokens")), count(drafts.get("num_accepted_draft_tokens"))
        if drafted and accepted is not None:
            told["drafted_tokens"], told["accepted_tokens"] = drafted, accepted
        return told


class Vllm(OpenAiCompatible):
    """vLLM."""

    name: ClassVar[str] = "vllm"
    reading: ClassVar[type[StreamReading]] = VllmReading
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
            "server-times",
            "cache-off",
            "configuration",
            "logprobs",
            "streaming",
        }
    )

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._fresh: dict[str, str] = {}
        """How the last prompts began that the cache had to leave out → their salts: what goes on from such a text shares its blocks."""
        self._salts: bool | None = None
        self._missed = 0
        """How often its counters were asked for in vain, one after the other; after the last of a few they are not asked for again."""
        self._tells_cached = self._tells_times = False
        """Whether its answers tell what came from the cache and how long it took (``--enable-prompt-tokens-details``, ``--enable-per-request-metrics``)."""

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
        """Keep the prefix cache out with a salt of its own where asked; what goes on from such a text shares its blocks, as with other servers.

        Tokens of log-probabilities are asked for by id: parts of a character have no text of their own.
        """
        path, body = super().request(ask)
        if ask.logprobs:
            body["return_tokens_as_token_ids"] = True
        salt = self._cache_salt(ask)
        if salt:
            body["cache_salt"] = salt
        return path, body

    def _cache_salt(self, ask: Ask) -> str | None:
        if ask.salt.strip():
            return ask.salt.strip()
        if ask.cache_as_served:
            return None
        text = ask.prompt if ask.prompt is not None else str((ask.messages or ({},))[0].get("content", ""))
        begins = text[:BEGINNING]
        if not ask.use_cache:
            self._fresh.pop(begins, None)
            self._fresh[begins] = secrets.token_hex(8)
            while len(self._fresh) > _MOST_FRESH:
                self._fresh.pop(next(iter(self._fresh)))
        return self._fresh.get(begins)

    def complete(self, ask: Ask) -> Completion:
        """Send one completion. What came from the cache, and the server's own times, are read off its counters where answers do not tell them."""
        before = None if self._tells_cached and self._tells_times else self._counted()
        told = super().complete(ask)
        self._tells_cached = self._tells_cached or told.cached_tokens is not None
        self._tells_times = self._tells_times or told.server_prompt_s is not None
        if told.error is not None or told.prompt_tokens is None:
            return told
        more = self._rise(before, told.prompt_tokens) if before is not None else {}
        if (
            told.processed_tokens is None
            and not ask.use_cache
            and "processed_tokens" not in more
            and self._knows_salt()
        ):
            more["processed_tokens"] = told.prompt_tokens
        return told.model_copy(update={key: value for key, value in more.items() if getattr(told, key) is None})

    def _counted(self) -> dict[str, float] | None:
        """Read its counters; None where they are not open, or someone else's request runs or waits. Never waits long: they only add to what is told."""
        if self._missed >= _MOST_MISSED:
            return None
        try:
            reply = self.http.get("/metrics", deadline_s=_COUNTERS_S)
        except CtxDoctorError:
            self._missed += 1
            return None
        told = {name: value for name, (value, _labels) in parse_metrics(reply.text, _COUNTERS).items()}
        self._missed = 0 if reply.status == 200 and _PREFILLS in told else _MOST_MISSED
        return None if self._missed or told.get(_RUNNING) or told.get(_WAITING) else told

    def _rise(self, before: dict[str, float], prompt: int) -> dict[str, Any]:
        """Give by what one request made the counters rise: its cached tokens, its drafts and its times; nothing where others were served, too."""
        after: dict[str, float] = {}
        for pause in _SETTLES_S:
            time.sleep(pause)
            after = self._counted() or {}
            if after.get(_PREFILLS, 0) > before[_PREFILLS]:
                break
        rise = {name: after[name] - before[name] for name in before if name in after}
        looked = rise.get(_LOOKED)
        if rise.get(_PREFILLS) != 1 or (looked and looked != prompt):
            return {}
        more: dict[str, Any] = {
            "server_prompt_s": seconds(rise.get(_PREFILL_S)),
            "server_generation_s": seconds(rise.get(_DECODE_S)),
        }
        if rise.get(_DRAFTED) and 0 <= rise.get(_ACCEPTED, -1) <= rise[_DRAFTED]:
            more |= {"drafted_tokens": int(rise[_DRAFTED]), "accepted_tokens": int(rise[_ACCEPTED])}
        cached = rise.get(_FOUND)
        if not looked:
            # a server without the cache looks for nothing
            cached = 0 if self._cache_labels().get("enable_prefix_caching") == "False" else None
        if cached is not None and 0 <= cached <= prompt:
            more |= {"cached_tokens": int(cached), "processed_tokens": prompt - int(cached)}
        return more

    def _knows_salt(self) -> bool:
        if self._salts is None:
            number = re.match(r"v?(\d+)\.(\d+)", self.version() or "")
            # a build from its sources counts from 0.1
            self._salts = number is None or (int(number[1]), int(number[2])) >= (0, 9) or number[0] == "0.1"
        return self._salts

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
        told = self.metrics(_RUNNING, _WAITING)
        return any(value > 0 for value, _labels in told.values()) if told else None
