"""llama.cpp's llama-server: native endpoints, server clock, prompt cache switched off per request.

Facts checked live against the server of ``xllamacpp``; the HTTP shapes are those of llama.cpp's ``tools/server/README.md``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from probes.backends.base import Ask, Backend, Feature, Signs
from probes.backends.http import Http, Reply, StreamPiece, count, seconds, strict_json, text_of
from probes.backends.logprobs import MOST_POSITIONS, likeliest, not_offered, refused
from probes.backends.openai_compatible import at_once, prompt_bytes, salted
from probes.backends.refusals import of_gateway, unended
from probes.evidence.errors import (
    BadAnswerError,
    CtxDoctorError,
    NoAnswerInTimeError,
    NotOfferedError,
    ServerDiedError,
    StillLoadingError,
)
from probes.evidence.request import Completion, ErrorKind, RequestError
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, Setting, WindowReading

_OUT_OF_MEMORY = re.compile(
    r"out of memory|failed to allocate|insufficient memory|alloc(?:ation)? failed|compute error", re.IGNORECASE
)
_POOL = re.compile(
    r"context size has been exceeded|failed to find a memory slot|no kv slot|kv cache is full|too big compared to kv size",
    re.IGNORECASE,
)
_EXCEEDS = re.compile(
    r"request \((\d+) tokens\) exceeds the available context size \((\d+) tokens\)"
    r"|exceeds the available context size|prompt is too long",
    re.IGNORECASE,
)

STATUS_KINDS: dict[int, ErrorKind] = {
    400: "bad-request",
    404: "not-found",
    408: "timeout",
    413: "exceeds-window",
    429: "busy",
    500: "server-error",
    501: "not-supported",
    502: "connection-lost",
    503: "loading",
    504: "timeout",
}


NOT_OVER_HTTP = (
    "kv_type_k",
    "kv_type_v",
    "gpu_layers",
    "tensor_split",
    "flash_attention",
    "batch",
    "ubatch",
    "rope_scaling",
    "context_shift",
    "kv_unified",
)


def type_error(status: int, body: object, after_s: float | None = None) -> RequestError:
    """Type an error answer of llama-server: its status and decoded body (an object, or text)."""
    error: Any = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        message = text_of(error.get("message")) or json.dumps(error)[:500]
        kind_given = text_of(error.get("type")) or ""
        prompt, window = count(error.get("n_prompt_tokens")), count(error.get("n_ctx"))
    else:
        message, kind_given, prompt, window = str(error or "")[:2000], "", None, None
    kind: ErrorKind = STATUS_KINDS.get(status, "server-error" if status >= 500 else "bad-request")
    said = _EXCEEDS.search(message)
    if kind_given == "exceed_context_size_error" or said:
        kind = "exceeds-window"
        if said and said.group(1):
            prompt = prompt if prompt is not None else int(said.group(1))
            window = window if window is not None else int(said.group(2))
    elif _POOL.search(message):
        kind = "pool-exhausted"
    elif _OUT_OF_MEMORY.search(message):
        kind = "out-of-memory"
    elif kind_given == "authentication_error":
        kind = "wrong-key"
    elif kind_given == "unavailable_error" or "loading model" in message.lower():
        kind = "loading"
    elif status == 503:
        kind = "busy"
    return RequestError(
        error=kind,
        status=status,
        message=message,
        prompt_tokens=prompt,
        window=window,
        after_s=after_s,
        gateway=of_gateway(status, body),
    )


def lost(error: CtxDoctorError, after_s: float) -> RequestError:
    """Make an error record of a connection that broke or a deadline that passed."""
    kind: ErrorKind = "timeout" if isinstance(error, NoAnswerInTimeError) else "connection-lost"
    return RequestError(error=kind, message=str(error), after_s=round(after_s, 3))


SILENT_ROOM = 8192
"""Events without a text beyond what the prompt and the answer explain: a template has tokens too."""


class LlamaCpp(Backend):
    """llama-server of mainline llama.cpp, and forks that kept its endpoints."""

    name: ClassVar[str] = "llama.cpp"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "version",
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

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._props: dict[str, Any] | None = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/props`` with ``build_info`` and ``total_slots``, else by the ``Server`` header, else by the loading answer."""
        props = signs.json("/props")
        if "build_info" in props and ("total_slots" in props or props.get("role") == "router"):
            return "/props has build_info and total_slots"
        for path, (status, headers, body) in signs.answers.items():
            if headers.get("server", "") == "llama.cpp":
                return f"Server: llama.cpp at {path}"
            error = body.get("error") if isinstance(body, dict) else None
            if status == 503 and isinstance(error, dict) and error.get("message") == "Loading model":
                return f"503 Loading model at {path}"
        return None

    def _ask_props(self) -> dict[str, Any]:
        if self._props is None:
            suffix = f"?model={self.model}" if self.model and self._router() else ""
            reply = self.http.get(f"/props{suffix}")
            if reply.status == 503:
                raise StillLoadingError("the server is still loading its model; wait, or look at its log")
            if reply.status != 200:
                raise NotOfferedError(f"/props answered HTTP {reply.status}; a proxy may hide it")
            self._props = reply.json_object()
        return self._props

    def _router(self) -> bool:
        return False

    def _first_model(self) -> dict[str, Any]:
        _status, body = self.http.get_json("/v1/models")
        entries = body.get("data") if isinstance(body, dict) else None
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, dict) and (self.model is None or entry.get("id") == self.model):
                return entry
        return {}

    def identity(self) -> BackendIdentity:
        """Name and build, from ``/props``."""
        props = self._ask_props()
        build = text_of(props.get("build_info"))
        version = re.match(r"b(\d+)-", build or "")
        return BackendIdentity(
            name=self.name,
            version=version.group(0).rstrip("-") if version and version.group(1) != "0" else None,
            build=build,
            url=self.http.base_url,
            recognised_by="/props",
            router=props.get("role") == "router",
        )

    def model_identity(self) -> ModelIdentity:
        """Model by ``/props`` and ``/v1/models``."""
        props = self._ask_props()
        meta = self._first_model().get("meta")
        meta = meta if isinstance(meta, dict) else {}
        path = text_of(props.get("model_path"))
        alias = text_of(props.get("model_alias"))
        name = alias or path
        if name and ("/" in name or "\\" in name) and name == path:
            name = re.split(r"[\\/]", name)[-1]
        return ModelIdentity(
            name=name,
            path=path,
            size_bytes=count(meta.get("size")),
            quantization=text_of(props.get("model_ftype")) or text_of(meta.get("ftype")),
            trained_window=count(meta.get("n_ctx_train")),
            parameters=count(meta.get("n_params")),
            chat_template=bool(props.get("chat_template")) if "chat_template" in props else None,
        )

    def window(self) -> WindowReading:
        """Window of one slot, slots, trained window. What was asked at start is not told over HTTP."""
        props = self._ask_props()
        settings = props.get("default_generation_settings")
        per_slot = count(settings.get("n_ctx")) if isinstance(settings, dict) else None
        meta = self._first_model().get("meta")
        meta = meta if isinstance(meta, dict) else {}
        if not per_slot:
            per_slot = count(meta.get("n_ctx")) or None
        return WindowReading(
            trained=count(meta.get("n_ctx_train")),
            per_slot=per_slot,
            slots=count(props.get("total_slots")),
            in_force=per_slot,
        )

    def configuration(self) -> Configuration:
        """What HTTP tells: slots, whether a projector is loaded, speculation."""
        props = self._ask_props()
        settings: dict[str, Setting] = {}

        def put(name: str, value: object, raw: str) -> None:
            settings[name] = Setting(value=value, source="server", raw=raw)

        slots = count(props.get("total_slots"))
        if slots is not None:
            put("parallel", slots, "/props total_slots")
        modalities = props.get("modalities")
        if isinstance(modalities, dict) and isinstance(modalities.get("vision"), bool):
            put("mmproj_loaded", modalities["vision"], "/props modalities.vision")
        default = props.get("default_generation_settings")
        parameters = default.get("params") if isinstance(default, dict) else None
        if isinstance(parameters, dict):
            kinds = parameters.get("speculative.types")
            if isinstance(kinds, str):
                put("speculation", kinds[:200], "/props speculative.types")
            predict = parameters.get("n_predict")
            if isinstance(predict, int) and not isinstance(predict, bool):
                put("n_predict", predict, "/props n_predict")
        why = "llama-server does not tell this over HTTP; its command line or its log does"
        unread = dict.fromkeys(NOT_OVER_HTTP, why)
        return Configuration(settings=settings, unread=unread)

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /tokenize``, without special tokens."""
        reply = self.http.post_json(
            "/tokenize", {"content": text, "add_special": False, "parse_special": False}, deadline_s=60
        )
        if reply.status != 200:
            raise NotOfferedError(f"/tokenize answered HTTP {reply.status}", status=reply.status)
        tokens = reply.json_object().get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int and token >= 0 for token in tokens):
            raise BadAnswerError("/tokenize did not answer a list of token ids; is there a proxy in between?")
        return tokens

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /detokenize``."""
        reply = self.http.post_json("/detokenize", {"tokens": list(tokens)}, deadline_s=60)
        content = reply.json_object().get("content") if reply.status == 200 else None
        if not isinstance(content, str):
            raise NotOfferedError(f"/detokenize answered HTTP {reply.status}", status=reply.status)
        return content

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """Count with the chat template, without running it; falls back to ``/apply-template`` on older builds."""
        reply = self.http.post_json("/v1/chat/completions/input_tokens", {"messages": list(messages)}, deadline_s=60)
        if reply.status == 200:
            number = count(reply.json_object().get("input_tokens"))
            if number is not None:
                return number
        reply = self.http.post_json("/apply-template", {"messages": list(messages)}, deadline_s=60)
        prompt = reply.json_object().get("prompt") if reply.status == 200 else None
        if not isinstance(prompt, str):
            raise NotOfferedError("this build cannot count a chat without running it")
        counted = self.http.post_json(
            "/tokenize", {"content": prompt, "add_special": True, "parse_special": True}, deadline_s=60
        )
        tokens = counted.json_object().get("tokens")
        if not isinstance(tokens, list):
            raise BadAnswerError("/tokenize did not answer a list of token ids")
        return len(tokens)

    def forget(self) -> None:
        """Forget ``/props``."""
        self._props = None

    def busy(self) -> bool | None:
        """Say whether a slot is working, from ``/slots``."""
        try:
            status, body = self.http.get_json("/slots", deadline_s=5)
        except CtxDoctorError:
            return None
        if status != 200 or not isinstance(body, list):
            return None
        return any(isinstance(slot, dict) and slot.get("is_processing") is True for slot in body)

    def complete(self, ask: Ask) -> Completion:
        """Send one completion, streamed, so that the first token and the prefill's progress are seen."""
        body: dict[str, Any] = {
            "stream": ask.stream,
            "temperature": 0,
            "seed": ask.seed,
            "return_progress": ask.stream,
            "timings_per_token": False,
        }
        if not (ask.use_cache and ask.cache_as_served):
            body["cache_prompt"] = ask.use_cache
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.slot is not None:
            body["id_slot"] = ask.slot
        if ask.messages is not None:
            path = "/v1/chat/completions"
            body |= {
                "messages": salted(ask.messages, ask.salt),
                "max_tokens": ask.max_tokens,
            }
            if ask.stream:
                body["stream_options"] = {"include_usage": True}
            if ask.logprobs:
                body |= {"logprobs": True, "top_logprobs": ask.logprobs}
        else:
            path = "/completion"
            body |= {"prompt": ask.salt + (ask.prompt or ""), "n_predict": ask.max_tokens}
            if ask.logprobs:
                body["n_probs"] = ask.logprobs
        if self.model and self._router():
            body["model"] = self.model
        started = time.monotonic()
        reading = _Reading(ask)
        try:
            for piece in self.http.stream(path, body, deadline_s=ask.deadline_s):
                if isinstance(piece, Reply):
                    reading.whole(piece)
                    break
                if reading.piece(piece):
                    break
        except (ServerDiedError, NoAnswerInTimeError) as error:
            reading.error = lost(error, time.monotonic() - started)
            if isinstance(error, NoAnswerInTimeError) and reading.first_s is not None:
                reading.error = unended(time.monotonic() - started)
        if ask.logprobs and reading.error is not None and refused(reading.error):
            reading.error = not_offered(reading.error)
        return reading.result(time.monotonic() - started)


class _Reading:
    """Collects one streamed answer; every number is checked, none is believed because it is there."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.parts: list[str] = []
        self.size = 0
        self.pieces = 0
        self.silent = 0
        """Events without a text, as those that tell how far the prompt was read."""
        self.most_silent = prompt_bytes(ask) + 4 * ask.max_tokens + SILENT_ROOM
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.streamed = False
        self.final: dict[str, Any] = {}
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.finish: str | None = None
        self.ended = False
        self.error: RequestError | None = None
        self.logprobs: list[dict[str, float]] = []

    def whole(self, reply: Reply) -> None:
        """Take a plain body: an error, or a server that does not stream."""
        body: object
        try:
            body = reply.json()
        except BadAnswerError:
            body = reply.text[:500]
        if reply.status >= 400 or (isinstance(body, dict) and "error" in body):
            self.error = type_error(reply.status, body, round(reply.elapsed_s, 3))
            return
        if not isinstance(body, dict):
            raise BadAnswerError(f"the answer is not JSON (it begins {str(body)[:60]!r}); is a proxy in between?")
        self._event(body, reply.elapsed_s)
        self.ended = True

    def piece(self, piece: StreamPiece) -> bool:
        """Take one event; true where the stream has marked its end."""
        self.streamed = True
        if piece.data == "[DONE]":
            self.ended = True
            return True
        event = strict_json(piece.data)
        if not isinstance(event, dict):
            raise BadAnswerError("an event of the stream is no object; is this a language model server?")
        if "error" in event:
            error = event["error"]
            code = count(error.get("code")) if isinstance(error, dict) else None
            self.error = type_error(code or 500, event, round(piece.at_s, 3))
            return True
        return self._event(event, piece.at_s)

    def _event(self, event: dict[str, Any], at_s: float) -> bool:
        progress = event.get("prompt_progress")
        if isinstance(progress, dict) and self.ask.on_progress is not None:
            done, total = count(progress.get("processed")), count(progress.get("total"))
            if done is not None and total:
                self.ask.on_progress(done, total)
        for name, target in (("usage", self.usage), ("timings", self.timings)):
            if isinstance(event.get(name), dict):
                target.update(event[name])
        texts = list(_texts(event))
        if not any(texts) and (isinstance(progress, dict) or not texts):
            self.silent += 1
            if self.silent > self.most_silent:
                message = (
                    "the stream goes on and on without a text, far beyond the tokens of the prompt; it was cut off"
                )
                self.error = RequestError(error="bad-answer", message=message, after_s=round(at_s, 3))
                return True
            texts = []
        for text in texts:
            if text and self.first_s is None and not isinstance(progress, dict):
                self.first_s = at_s
            self.last_s = at_s
            self.size += len(text)
            self.pieces += 1
            if self.pieces > 4 * self.ask.max_tokens + 256:
                message = (
                    f"the server goes on past the {self.ask.max_tokens} tokens that were asked for; it was cut off"
                )
                self.error = RequestError(error="bad-answer", message=message, after_s=round(at_s, 3))
                return True
            if self.size <= 1_000_000:
                self.parts.append(text)
        if self.ask.logprobs and len(self.logprobs) < MOST_POSITIONS:
            self.logprobs += likeliest(event)
        choice = _choice(event)
        if isinstance(choice.get("finish_reason"), str):
            self.finish = choice["finish_reason"][:40]
        if event.get("stop") is True:
            self.final = event
            kind = event.get("stop_type")
            self.finish = kind[:40] if isinstance(kind, str) else self.finish
            self.ended = True
            # the native endpoint marks its end so; the OpenAI ones send [DONE] after the usage
            return "choices" not in event
        return False

    def result(self, total_s: float) -> Completion:
        """Put the counts together. Sums that cannot be are left out, not repaired."""
        timings = self.timings
        cached = count(timings.get("cache_n"))
        processed = count(timings.get("prompt_n"))
        prompt = count(self.final.get("tokens_evaluated"))
        if prompt is None:
            prompt = count(self.usage.get("prompt_tokens"))
        if prompt is None and cached is not None and processed is not None:
            prompt = cached + processed
        if cached is None:
            details = self.usage.get("prompt_tokens_details")
            cached = count(details.get("cached_tokens")) if isinstance(details, dict) else None
        if cached is not None and prompt is not None and cached > prompt:
            # more from the cache than there is prompt: one of both is wrong, so neither decides about the cache
            cached = None
        if processed is None and prompt is not None and cached is not None:
            processed = prompt - cached
        generated = count(timings.get("predicted_n"))
        if generated is None:
            generated = count(self.final.get("tokens_predicted"))
        if generated is None:
            generated = count(self.usage.get("completion_tokens"))
        error = self.error
        if error is None and not self.ended and self.finish is None:
            error = RequestError(
                error="connection-lost", message="the stream ended without its end mark", after_s=round(total_s, 3)
            )
        truncated = self.final.get("truncated")
        return Completion(
            prompt_tokens=prompt,
            cached_tokens=cached,
            processed_tokens=processed,
            generated_tokens=generated,
            truncated=truncated if isinstance(truncated, bool) else None,
            finish=self.finish,
            server_prompt_s=seconds(timings.get("prompt_ms"), 1000),
            server_generation_s=seconds(timings.get("predicted_ms"), 1000),
            client_first_token_s=None if self.first_s is None else round(self.first_s, 6),
            client_total_s=round(total_s, 6),
            at_once=at_once(self.first_s, self.last_s, self.pieces) if self.streamed else None,
            drafted_tokens=count(timings.get("draft_n")),
            accepted_tokens=count(timings.get("draft_n_accepted")),
            error=error,
            logprobs=tuple(self.logprobs[:MOST_POSITIONS]),
            text="".join(self.parts)[:65_000] if self.parts else ("" if self.ended and error is None else None),
        )


def _choice(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _texts(event: dict[str, Any]) -> Iterator[str]:
    if isinstance(event.get("content"), str):
        yield event["content"]
    choice = _choice(event)
    if isinstance(choice.get("text"), str):
        yield choice["text"]
    for holder in (choice.get("delta"), choice.get("message")):
        if isinstance(holder, dict):
            # reasoning comes first where the server splits it off; it counts for the first token and is cut before scoring
            for key in ("reasoning_content", "content"):
                if isinstance(holder.get(key), str) and holder[key]:
                    yield holder[key] if key == "content" else f"<think>{holder[key]}</think>"
