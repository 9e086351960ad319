"""llama-cpp-python's server: a tokenizer, exact refusals, no window over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from probes.backends.base import Feature, Signs
from probes.backends.openai_compatible import OpenAiCompatible, list_of, object_of
from probes.evidence.errors import BadAnswerError
from probes.evidence.subject import WindowReading


class LlamaCppPython(OpenAiCompatible):
    """llama-cpp-python's OpenAI server. One request at a time."""

    name: ClassVar[str] = "llama-cpp-python"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "model", "tokenize", "chat", "completion", "logprobs", "streaming"}
    )

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

    def window(self) -> WindowReading:
        """Only the default is known: the window in force is in its command line, or shown by its refusal."""
        return WindowReading(default=2048, slots=1)

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /extras/tokenize``; it puts the beginning-of-text token in front (counting takes it off)."""
        return self.tokens_from("/extras/tokenize", {"input": text}, "tokens")

    def count_tokens(self, text: str) -> int:
        """Count without the special token that this endpoint puts in front of every text."""
        return max(0, self.number_from("/extras/tokenize/count", {"input": text}, "count") - self._extra())

    def _extra(self) -> int:
        """Give how many tokens an empty text has: those that are added to every text."""
        return self.number_from("/extras/tokenize/count", {"input": ""}, "count")

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /extras/detokenize``."""
        reply = self.http.post_json("/extras/detokenize", {"tokens": list(tokens)}, deadline_s=60)
        text = reply.json_object().get("text") if reply.status == 200 else None
        if not isinstance(text, str):
            raise BadAnswerError("/extras/detokenize did not answer a text; is there a proxy in between?")
        return text
