"""Servers that speak the OpenAI protocol: completions and chats, streamed, with counts, both clocks and typed errors.

The base of most backends here, and the last resort for a server that is none of the known ones. Shapes: the protocol's own, and what the servers
add to it (llama.cpp's ``timings``, TabbyAPI's times inside ``usage``). A number is taken where it makes sense, and left out where it contradicts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, ClassVar

from probes.backends.base import Ask, Backend, Feature, Signs
from probes.backends.http import Http, Reply, StreamPiece, count, seconds, strict_json, text_of
from probes.backends.logprobs import FEWER, MOST_POSITIONS, likeliest, not_offered, refused
from probes.backends.refusals import type_failure, type_refusal, unended
from probes.evidence.errors import (
    BadAnswerError,
    CtxDoctorError,
    NoAnswerInTimeError,
    NotOfferedError,
    ServerDiedError,
)
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import BackendIdentity, ModelIdentity, WindowReading

MOST_TEXT = 1_000_000
WINDOW_HINTS = (
    "loaded_context_length",
    "max_model_len",
    "context_length",
    "context_window",
    "max_context_length",
    "n_ctx",
)
"""Fields of a ``/v1/models`` entry that name a window, the one in force before the model's maximum."""


def object_of(value: object) -> dict[str, Any]:
    """Give the object, or an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """Give the list, or an empty one where it is none."""
    return value if isinstance(value, list) else []


def first_choice(event: Mapping[str, Any]) -> dict[str, Any]:
    """Give an answer's first choice, or an empty object."""
    choices = list_of(event.get("choices"))
    return object_of(choices[0]) if choices else {}


def prompt_bytes(ask: Ask) -> int:
    """Give the bytes of a prompt: it has hardly more tokens than that."""
    texts = [ask.prompt or "", *(message.get("content", "") for message in ask.messages or ())]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


ONE_PIECE_S = 20e-6
"""Tokens that follow each other faster than this did not come from a model as they were made: something kept them back."""
SEVERAL_TOKENS = 4


def at_once(first_s: float | None, last_s: float | None, pieces: int) -> bool | None:
    """Say whether a stream's tokens all came together, as through a proxy that buffers; None where too few came to tell."""
    if first_s is None or last_s is None or pieces < SEVERAL_TOKENS:
        return None
    return last_s - first_s < ONE_PIECE_S * pieces


class StreamReading:
    """Collects one answer, streamed or whole. Every number is checked; none is believed because it is there."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.most_events = 20_000 + 20 * ask.max_tokens + prompt_bytes(ask)
        """A server that ignores ``max_tokens`` is cut off here, long before the deadline. One that tells how far it has read may do so with each token."""
        self.events = 0
        self.parts: list[str] = []
        self.thoughts: list[str] = []
        self.size = 0
        self.first_s: float | None = None
        self.last_s: float | None = None
        self.tokens_seen = 0
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, Any] = {}
        self.final: dict[str, Any] = {}
        self.finish: str | None = None
        self.fingerprint: str | None = None
        self.ended = False
        self.streamed = False
        self.error: RequestError | None = None
        self.logprobs: list[dict[str, float]] = []

    # -- taking answers ----------------------------------------------------------------------------------------------------------------

    def piece(self, piece: StreamPiece) -> bool:
        """Take one event of a stream; true where the stream has marked its end."""
        self.streamed = True
        return self._data(piece.data, piece.at_s)

    def whole(self, reply: Reply) -> None:
        """Take a plain body: an error, a server that does not stream, or a stream under a wrong content type."""
        text = reply.text
        if reply.status < 400 and text.lstrip().startswith(("data:", "event:", ": ")):
            for line in text.splitlines():
                if line.startswith("data:") and self._data(line[5:].strip(), reply.elapsed_s):
                    break
            self.first_s = None
            return
        try:
            body: object = reply.json()
        except BadAnswerError:
            if reply.status < 400:
                raise
            body = text[:20_000]
        if reply.status >= 400 or self._is_error(body):
            self.error = type_refusal(reply.status, body, round(reply.elapsed_s, 3))
            return
        if not isinstance(body, dict):
            raise BadAnswerError("the server answered JSON, but not an object; is this a language model server?")
        self.event(body, reply.elapsed_s)
        # Nobody knows when the first token came, unless it is the only one.
        if self._generated() != 1:
            self.first_s = None
        self.ended = True

    def _data(self, data: str, at_s: float) -> bool:
        if data == "[DONE]":
            self.ended = True
            return True
        self.events += 1
        if self.events > self.most_events:
            raise BadAnswerError(
                f"the stream goes on after {self.events - 1} events, far beyond the tokens asked for; it was cut off"
            )
        event = strict_json(data)
        if not isinstance(event, dict):
            raise BadAnswerError("an event of the stream is no object; is this a language model server?")
        if self._is_error(event):
            code = count(object_of(event.get("error")).get("code")) or count(event.get("code")) or 500
            self.error = type_refusal(code if 400 <= code < 600 else 500, event, round(at_s, 3))
            return True
        return self.event(event, at_s)

    @staticmethod
    def _is_error(body: object) -> bool:
        return isinstance(body, dict) and (bool(body.get("error")) or body.get("object") == "error")

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one decoded event; true where it is the last one. Overridden where a server has its own shape."""
        for name, target in (("usage", self.usage), ("timings", self.timings)):
            target.update(object_of(event.get(name)))
        self.likeliest(event)
        self.fingerprint = text_of(event.get("system_fingerprint"), 200) or self.fingerprint
        choice = first_choice(event)
        for text in self.texts(event, choice):
            self.token(text, at_s)
        for thought in self.thinking(choice):
            self.token(thought, at_s, thought=True)
        for holder in (choice.get("delta"), choice.get("message")):
            if object_of(holder).get("tool_calls") and self.first_s is None:
                self.first_s = at_s
        finish = choice.get("finish_reason")
        if isinstance(finish, str) and finish:
            self.finish = finish[:40]
        return False

    def likeliest(self, event: Mapping[str, Any]) -> None:
        """Keep the log-probabilities that an event tells, where they were asked for."""
        if self.ask.logprobs and len(self.logprobs) < MOST_POSITIONS:
            self.logprobs += likeliest(event)

    def token(self, text: str, at_s: float, *, thought: bool = False) -> None:
        """Take generated text; the first that is not empty is the first token."""
        if not text:
            return
        if self.first_s is None:
            self.first_s = at_s
        self.last_s = at_s
        self.tokens_seen += 1
        self.size += len(text)
        if self.size <= MOST_TEXT:
            (self.thoughts if thought else self.parts).append(text)

    @staticmethod
    def texts(event: Mapping[str, Any], choice: Mapping[str, Any]) -> Iterator[str]:
        """Give the text that an event carries."""
        del event
        if isinstance(choice.get("text"), str):
            yield choice["text"]
        for holder in (choice.get("delta"), choice.get("message")):
            content = object_of(holder).get("content")
            if isinstance(content, str):
                yield content

    @staticmethod
    def thinking(choice: Mapping[str, Any]) -> Iterator[str]:
        """Give the reasoning that a server splits off: tokens too, and the first of them is the first token."""
        for holder in (choice.get("delta"), choice.get("message")):
            for key in ("reasoning_content", "reasoning"):
                if isinstance(object_of(holder).get(key), str):
                    yield object_of(holder)[key]
                    break

    # -- putting together -----------------------------------------------------------------------------------------------------------------

    def _generated(self) -> int | None:
        for number in (
            self.timings.get("predicted_n"),
            self.final.get("tokens_predicted"),
            self.usage.get("completion_tokens"),
        ):
            told = count(number)
            if told is not None:
                return told
        return None

    def counts(self) -> dict[str, Any]:
        """Give prompt, cached, processed, generated, drafted and accepted tokens, and the server's own times, as fields of a ``Completion``."""
        details = object_of(self.usage.get("prompt_tokens_details"))
        cached = count(self.timings.get("cache_n"))
        if cached is None:
            cached = count(details.get("cached_tokens"))
        processed = count(self.timings.get("prompt_n"))
        prompt = count(self.final.get("tokens_evaluated"))
        if prompt is None:
            prompt = count(self.usage.get("prompt_tokens"))
        if prompt is None and cached is not None and processed is not None:
            prompt = cached + processed
        if prompt == 0 and (self.ask.prompt or self.ask.messages):
            prompt = None
        predicted = object_of(self.usage.get("completion_tokens_details"))
        accepted, rejected = (
            count(predicted.get("accepted_prediction_tokens")),
            count(predicted.get("rejected_prediction_tokens")),
        )
        drafted = count(self.timings.get("draft_n"))
        if drafted is None and accepted is not None and rejected is not None:
            drafted = accepted + rejected
        told_accepted = count(self.timings.get("draft_n_accepted"))
        return {
            "prompt_tokens": prompt,
            "cached_tokens": cached,
            "processed_tokens": processed,
            "generated_tokens": self._generated(),
            "server_prompt_s": seconds(self.timings.get("prompt_ms"), 1000),
            "server_generation_s": seconds(self.timings.get("predicted_ms"), 1000),
            "drafted_tokens": drafted or None,
            "accepted_tokens": (told_accepted if told_accepted is not None else accepted) if drafted else None,
        }

    def truncated(self) -> bool | None:
        """Say whether the server itself calls the prompt truncated."""
        told = self.final.get("truncated")
        return told if isinstance(told, bool) else None

    def result(self, total_s: float) -> Completion:
        """Put one ``Completion`` together. Sums that cannot be are left out, not repaired."""
        told = self.counts()
        prompt, cached, processed = told["prompt_tokens"], told["cached_tokens"], told["processed_tokens"]
        if cached is not None and prompt is not None and cached > prompt:
            cached = None
        if processed is not None and prompt is not None and processed > prompt:
            processed = None
        if processed is None and prompt is not None:
            if cached is not None:
                processed = prompt - cached
            elif self.ask.salt and not self.ask.use_cache:
                # Nothing before the salt can be shared but the template's first few tokens.
                processed = prompt
        drafted, accepted = told["drafted_tokens"], told["accepted_tokens"]
        if drafted is not None and accepted is not None and accepted > drafted:
            drafted = accepted = None
        error = self.error
        if error is None and not self.ended and self.finish is None:
            error = RequestError(
                error="connection-lost",
                message="the stream ended without a finish reason or its end mark",
                after_s=round(total_s, 3),
            )
        if error is None and self.finish == "error":
            # KoboldCpp, and vLLM where a part of it failed: status 200, and the reason of the end is all that tells
            error = RequestError(
                error="server-error",
                message="the server ended its answer with the reason: error; its log may say why",
                after_s=round(total_s, 3),
            )
        thoughts = "".join(self.thoughts)
        text = (f"<think>{thoughts}</think>" if thoughts else "") + "".join(self.parts)
        return Completion(
            **{
                **told,
                "cached_tokens": cached,
                "processed_tokens": processed,
                "drafted_tokens": drafted,
                "accepted_tokens": accepted,
            },
            truncated=self.truncated(),
            finish=self.finish,
            client_first_token_s=None if self.first_s is None else round(self.first_s, 6),
            client_total_s=round(total_s, 6),
            at_once=at_once(self.first_s, self.last_s, self.tokens_seen) if self.streamed else None,
            error=error,
            logprobs=tuple(self.logprobs[:MOST_POSITIONS]),
            text=text[:65_000] if text else ("" if error is None else None),
        )


class OpenAiCompatible(Backend):
    """Any server of the OpenAI protocol."""

    name: ClassVar[str] = "openai-compatible"
    offers: ClassVar[frozenset[Feature]] = frozenset({"identity", "model", "chat", "completion", "streaming"})
    reading: ClassVar[type[StreamReading]] = StreamReading
    completion_path: ClassVar[str] = "/v1/completions"
    chat_path: ClassVar[str] = "/v1/chat/completions"

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self.recognised_by = ""
        self._entries: list[dict[str, Any]] | None = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By a list of models at ``/v1/models``; asked last, since every other server has one, too."""
        return "/v1/models lists models" if isinstance(signs.json("/v1/models").get("data"), list) else None

    # -- what is there --------------------------------------------------------------------------------------------------------------------

    def models(self) -> list[dict[str, Any]]:
        """Give the entries of ``/v1/models``; an empty list where there are none."""
        if self._entries is None:
            _status, body = self.http.get_json("/v1/models")
            self._entries = [entry for entry in list_of(object_of(body).get("data")) if isinstance(entry, dict)][:1000]
        return self._entries

    def forget(self) -> None:
        """Forget the list of models."""
        self._entries = None

    def entry(self) -> dict[str, Any]:
        """Give the ``/v1/models`` entry of the model under test: the one asked for, else the only or first one."""
        entries = self.models()
        if self.model is not None:
            return next((entry for entry in entries if entry.get("id") == self.model), {})
        return entries[0] if entries else {}

    def model_name(self) -> str | None:
        """Give the model's name as requests carry it."""
        return self.model or text_of(self.entry().get("id"), 500)

    def identity(self) -> BackendIdentity:
        """Give the server's name; its version where a subclass knows where it stands."""
        return BackendIdentity(
            name=self.name, version=self.version(), url=self.http.base_url, recognised_by=self.recognised_by
        )

    def version(self) -> str | None:
        """Give the server's version, or None where it does not tell."""
        return None

    def model_identity(self) -> ModelIdentity:
        """Give the model's name, and its path where the entry has one."""
        entry = self.entry()
        name = self.model_name()
        if name is None:
            raise NotOfferedError(f"{self.name} does not say which model is loaded; give --model")
        return ModelIdentity(
            name=name,
            path=text_of(entry.get("root")),
            trained_window=count(object_of(entry.get("meta")).get("n_ctx_train")),
        )

    def window(self) -> WindowReading:
        """Give the window that the model's entry names. NotOfferedError where it names none."""
        entry = self.entry()
        for holder in (entry, object_of(entry.get("meta"))):
            for hint in WINDOW_HINTS:
                told = count(holder.get(hint))
                if told:
                    return WindowReading(in_force=told, trained=count(object_of(entry.get("meta")).get("n_ctx_train")))
        raise NotOfferedError(f"{self.name} does not tell its window over HTTP; it can only be measured")

    # -- asking -----------------------------------------------------------------------------------------------------------------------------

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Give path and body of one completion or chat. Subclasses add what their server takes."""
        body: dict[str, Any] = {
            "max_tokens": ask.max_tokens,
            "temperature": 0,
            "seed": ask.seed,
            "stream": ask.stream,
        }
        if ask.stream:
            body["stream_options"] = {"include_usage": True}
        model = self.model_name()
        if model is not None:
            body["model"] = model
        if ask.stop:
            body["stop"] = list(ask.stop)
        if ask.messages is not None:
            if ask.logprobs:
                body |= {"logprobs": True, "top_logprobs": ask.logprobs}
            return self.chat_path, body | {"messages": salted(ask.messages, ask.salt)}
        if ask.logprobs:
            body["logprobs"] = ask.logprobs
        return self.completion_path, body | {"prompt": ask.salt + (ask.prompt or "")}

    def complete(self, ask: Ask) -> Completion:
        """Send one completion, streamed. ``ask.salt`` goes to the very front; a server's refusal is in ``Completion.error``."""
        path, body = self.request(ask)
        reading, total_s = self.read(ask, path, body)
        return reading.result(total_s)

    def read(self, ask: Ask, path: str, body: dict[str, Any]) -> tuple[StreamReading, float]:
        """Send and read to the end, or to what ended it: the reading, and the seconds it took.

        A refusal of log-probabilities is tried once with fewer of them, and is else said to be what it is: not offered.
        """
        reading, total_s = self._read(ask, path, body)
        if ask.logprobs and refused(reading.error):
            fewer = {key: min(FEWER, body[key]) for key in ("logprobs", "top_logprobs") if type(body.get(key)) is int}
            if any(body[key] > value for key, value in fewer.items()):
                reading, total_s = self._read(ask, path, body | fewer)
            if reading.error is not None and refused(reading.error):
                reading.error = not_offered(reading.error)
        return reading, total_s

    def _read(self, ask: Ask, path: str, body: dict[str, Any]) -> tuple[StreamReading, float]:
        started = time.monotonic()
        reading = self.reading(ask)
        try:
            with closing(self._pieces(path, body, ask.deadline_s)) as pieces:
                for piece in pieces:
                    if isinstance(piece, Reply):
                        reading.whole(piece)
                        break
                    if reading.piece(piece):
                        break
        except (ServerDiedError, NoAnswerInTimeError) as error:
            reading.error = type_failure(error, time.monotonic() - started)
            if isinstance(error, NoAnswerInTimeError) and reading.tokens_seen:
                reading.error = unended(time.monotonic() - started)
        return reading, time.monotonic() - started

    def _pieces(self, path: str, body: dict[str, Any], deadline_s: float) -> Generator[StreamPiece | Reply, None, None]:
        yield from self.http.stream(path, body, deadline_s=deadline_s)

    # -- for subclasses ---------------------------------------------------------------------------------------------------------------------

    def tokens_from(self, path: str, body: dict[str, Any], *keys: str) -> list[int]:
        """POST for a list of token ids under one of ``keys``. NotOfferedError where the server has no such endpoint."""
        reply = self.http.post_json(path, body, deadline_s=60)
        if reply.status != 200:
            raise NotOfferedError(
                f"{self.name}: {path} answered HTTP {reply.status}; the server's tokenizer is not offered",
                status=reply.status,
            )
        told = reply.json_object()
        for key in keys:
            tokens = told.get(key)
            if isinstance(tokens, list) and all(type(token) is int and 0 <= token < 1 << 32 for token in tokens):
                return tokens
        raise BadAnswerError(f"{path} did not answer a list of token ids; is there a proxy in between?")

    def number_from(self, path: str, body: dict[str, Any], key: str) -> int:
        """POST for a count under ``key``. NotOfferedError where the server has no such endpoint."""
        reply = self.http.post_json(path, body, deadline_s=60)
        if reply.status != 200:
            raise NotOfferedError(
                f"{self.name}: {path} answered HTTP {reply.status}; counting is not offered", status=reply.status
            )
        told = count(reply.json_object().get(key))
        if told is None:
            raise BadAnswerError(f"{path} did not answer a count; is there a proxy in between?")
        return told

    def ask_object(self, path: str, deadline_s: float = 10.0) -> dict[str, Any]:
        """GET an object; an empty one where the answer is none or is not there. Unreachable servers and wrong keys still raise."""
        try:
            status, body = self.http.get_json(path, deadline_s=deadline_s)
        except BadAnswerError:
            return {}
        return object_of(body) if status == 200 else {}

    def metrics(self, *names: str) -> dict[str, tuple[float, dict[str, str]]]:
        """Read Prometheus metrics by name: name → (value, labels), first series each. Empty where the server has no ``/metrics``."""
        try:
            reply = self.http.get("/metrics", deadline_s=5)
        except CtxDoctorError:
            return {}
        return parse_metrics(reply.text, names) if reply.status == 200 else {}


def salted(messages: Sequence[Mapping[str, str]], salt: str) -> list[dict[str, str]]:
    """Put the salt in front of the first message's text, which stands first after the template's own beginning."""
    result = [dict(message) for message in messages]
    if salt and result:
        result[0]["content"] = salt + result[0].get("content", "")
    return result


_METRIC = re.compile(r"([A-Za-z_:][\w:]*)(?:\{([^}]{0,4000})\})?\s+(-?[\d.eE+]+)\s*$")
_LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.){0,500})"')


def parse_metrics(text: str, names: Sequence[str]) -> dict[str, tuple[float, dict[str, str]]]:
    """Read Prometheus text: of each name its first series, as (value, labels). Lines that cannot be read are left out."""
    found: dict[str, tuple[float, dict[str, str]]] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.startswith(tuple(names)):
            continue
        match = _METRIC.match(line[:8000])
        if match is None or match.group(1) not in names or match.group(1) in found:
            continue
        try:
            value = float(match.group(3))
        except ValueError:
            continue
        if abs(value) < 1e300:
            found[match.group(1)] = (value, dict(_LABEL.findall(match.group(2) or "")))
    return found
