"""text-generation-webui: cuts long chats without a word; its llama.cpp loader runs a llama-server child that tells the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from probes.backends.base import Feature, Signs
from probes.backends.children import LlamaChild, find_child
from probes.backends.http import text_of
from probes.backends.openai_compatible import OpenAiCompatible
from probes.evidence.errors import NotOfferedError
from probes.evidence.subject import Configuration, ModelIdentity, WindowReading


class TextGenerationWebui(OpenAiCompatible):
    """text-generation-webui's API."""

    name: ClassVar[str] = "text-generation-webui"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "model", "window", "tokenize", "chat", "completion", "configuration", "logprobs", "streaming"}
    )

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/v1/internal/model/info``."""
        told = signs.json("/v1/internal/model/info")
        return (
            "/v1/internal/model/info"
            if {"model_name", "loader"} <= told.keys() or {"model_name", "lora_names"} <= told.keys()
            else None
        )

    def model_identity(self) -> ModelIdentity:
        """Model, from ``/v1/internal/model/info``."""
        name = text_of(self.ask_object("/v1/internal/model/info").get("model_name"), 500)
        if name in {None, "None"}:
            raise NotOfferedError("text-generation-webui has no model loaded; load one, then look again")
        return ModelIdentity(name=name)

    def model_name(self) -> str | None:
        """Give the model's name; requests need none here."""
        return self.model

    def child(self) -> LlamaChild:
        """Give the llama-server that its llama.cpp loader runs. NotOfferedError where it cannot be seen."""
        return find_child(self.http)

    def window(self) -> WindowReading:
        """The child's window; the API itself tells none."""
        return self.child().backend.window()

    def configuration(self) -> Configuration:
        """The child's command line."""
        return self.child().configuration

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /v1/internal/encode``; its special tokens cannot be switched off, so a leading one may be counted."""
        return self.tokens_from("/v1/internal/encode", {"text": text}, "tokens")

    def busy(self) -> bool | None:
        """Say whether the child works."""
        try:
            return self.child().backend.busy()
        except NotOfferedError:
            return None
