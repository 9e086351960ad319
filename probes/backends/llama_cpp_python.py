"""llama-cpp-python's server: a tokenizer, exact refusals, no window over HTTP.

It serves one request at a time. A stream says nothing of its counts, an answer in one piece does. A stream whose prompt is too long breaks off without a
word, where the same in one piece is refused with its numbers; one during which another request comes is ended at once, as if it were done, but without
a reason to finish (``interrupt_requests``). Of several models it keeps one loaded, and any request that names another, or none, loads that one.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of
from probes.backends.refusals import type_failure
from probes.evidence.errors import BadAnswerError, CtxDoctorError, NoAnswerInTimeError, NotOfferedError
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import ModelIdentity, WindowReading

LISTED_S = 60.0
"""So long the list of models is waited for."""


class _Reading(StreamReading):
    """A stream that is marked as ended and has no reason to finish was broken off for another request."""

    def result(self, total_s: float) -> Completion:
        """As everywhere; a broken off stream is a refusal because others are served."""
        if self.streamed and self.ended and self.finish is None and self.error is None:
            self.error = RequestError(
                error="busy",
                message="the answer was broken off because another request came (interrupt_requests)",
                after_s=round(total_s, 3),
            )
        return super().result(total_s)


def _broke_off(reading: StreamReading) -> bool:
    """Say whether a stream ended, with an error of the connection or without, before its end was marked."""
    if reading.error is not None:
        return reading.error.error == "connection-lost"
    return not reading.ended and reading.finish is None


class LlamaCppPython(OpenAiCompatible):
    """llama-cpp-python's OpenAI server. One request at a time."""

    name: ClassVar[str] = "llama-cpp-python"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "version", "model", "tokenize", "chat", "completion", "logprobs", "streaming"}
    )
    reading: ClassVar[type[StreamReading]] = _Reading
    disturbed: ClassVar[bool] = True

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``owned_by: me`` and a tokenizer in ``/openapi.json``."""
        entries = list_of(signs.json("/v1/models").get("data"))
        if "/extras/tokenize" in object_of(signs.json("/openapi.json").get("paths")):
            return "/openapi.json has /extras/tokenize"
        if entries and all(
            object_of(e).get("owned_by") == "me" and object_of(e).get("permissions") == [] for e in entries
        ):
            return "/v1/models owned by me, without permissions"
        return None

    def version(self) -> str | None:
        """The package's version, which ``/openapi.json`` names."""
        return text_of(object_of(self.ask_object("/openapi.json").get("info")).get("version"), 40)

    def models(self) -> list[dict[str, Any]]:
        """Give the entries of ``/v1/models``, which waits for the answer that the server is giving."""
        if self._entries is None:
            _status, body = self.http.get_json("/v1/models", deadline_s=LISTED_S)
            self._entries = [entry for entry in list_of(object_of(body).get("data")) if isinstance(entry, dict)][:1000]
        return self._entries

    def model_name(self) -> str | None:
        """Give the model's name. NotOfferedError where several are served and none was named: to ask the wrong one would load it."""
        if self.model is None and len(self.models()) > 1:
            names = ", ".join(str(entry.get("id"))[:80] for entry in self.models()[:5])
            raise NotOfferedError(
                f"llama-cpp-python has several models ({names}) and keeps one of them loaded; name one with --model"
            )
        return super().model_name()

    def model_identity(self) -> ModelIdentity:
        """The model's name. Without an alias that is the path of its file as the server was given it."""
        told = super().model_identity()
        name = told.name or ""
        if name.lower().endswith(".gguf") and ("/" in name or "\\" in name):
            told = told.model_copy(update={"name": name.replace("\\", "/").rsplit("/", 1)[-1], "path": name})
        return told

    def window(self) -> WindowReading:
        """Only the default is known: the window in force is in its command line, or shown by its refusal."""
        return WindowReading(default=2048, slots=1)

    def read(self, ask: Ask, path: str, body: dict[str, Any]) -> tuple[StreamReading, float]:
        """Send and read to the end. A stream that breaks before its first token is asked once in one piece: that tells why."""
        reading, total_s = super().read(ask, path, body)
        if not body.get("stream") or reading.first_s is not None or not _broke_off(reading):
            return reading, total_s
        try:
            again, _seconds = super().read(ask, path, {**body, "stream": False, "max_tokens": 1})
        except CtxDoctorError:
            return reading, total_s
        return (again, total_s) if again.error is not None else (reading, total_s)

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """As everywhere. An answer of one token is asked for in one piece: it comes at the same moment, and is told with its counts."""
        return super().request(replace(ask, stream=False) if ask.max_tokens == 1 else ask)

    def complete(self, ask: Ask) -> Completion:
        """As everywhere. The prompt of a stream is counted by the server's tokenizer: it is read whole, or refused.

        An answer that ended for its length has the tokens that were asked for; else its text is counted. A chat's prompt stays uncounted.
        """
        began = time.monotonic()
        try:
            told = super().complete(ask)
        except NoAnswerInTimeError as error:
            # the list of models was waited for in vain: the server is busy with another answer
            return Completion(error=type_failure(error, time.monotonic() - began))
        if told.error is not None or told.prompt_tokens is not None:
            return told
        counted: dict[str, int] = {}
        with contextlib.suppress(CtxDoctorError):
            generated = self.count_tokens(told.text) if told.text else 0
            # near the window fewer are made than were asked for, and the reason to end is the same
            full = told.finish == "length" and generated >= ask.max_tokens // 2
            counted["generated_tokens"] = ask.max_tokens if full else generated
            if ask.prompt is not None:
                counted["prompt_tokens"] = self._count(ask.salt + ask.prompt)
                if ask.salt and not ask.use_cache:
                    counted["processed_tokens"] = counted["prompt_tokens"]
        return told.model_copy(update=counted)

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /extras/tokenize``; it puts the beginning-of-text token in front (counting takes it off)."""
        return self.tokens_from("/extras/tokenize", self._of_model({"input": text}), "tokens")

    def count_tokens(self, text: str) -> int:
        """Count without the special token that this endpoint puts in front of every text."""
        return max(0, self._count(text) - self._count(""))

    def _count(self, text: str) -> int:
        """Count a text; an empty one has the tokens that are added to every text."""
        return self.number_from("/extras/tokenize/count", self._of_model({"input": text}), "count")

    def _of_model(self, body: dict[str, Any]) -> dict[str, Any]:
        """Name the model: without a name the server would load its default one."""
        model = self.model_name()
        return body if model is None else {**body, "model": model}

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /extras/detokenize``."""
        reply = self.http.post_json("/extras/detokenize", self._of_model({"tokens": list(tokens)}), deadline_s=60)
        text = reply.json_object().get("text") if reply.status == 200 else None
        if not isinstance(text, str):
            raise BadAnswerError("/extras/detokenize did not answer a text; is there a proxy in between?")
        return text
