"""llama-manager: a proxy over a patched llama-server that changes the window by itself (its src/api/routes.ts and src/client/types.ts)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from probes.backends.base import Ask, Feature, Signs
from probes.backends.children import find_router
from probes.backends.http import Http, count, text_of
from probes.backends.openai_compatible import OpenAiCompatible, list_of, object_of
from probes.evidence.errors import NotOfferedError
from probes.evidence.machine import BufferTruth, MemoryBudget
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import ModelIdentity, WindowReading

_PARTS = (("main", "model", "weights"), ("main", "context", "kv"), ("main", "compute", "compute"))


class LlamaManager(OpenAiCompatible):
    """llama-manager."""

    name: ClassVar[str] = "llama-manager"
    apart: ClassVar[bool] = True
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "model", "window", "chat", "cached-count", "server-times", "memory", "streaming"}
    )

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``owned_by: llama-manager``."""
        entries = list_of(signs.json("/v1/models").get("data"))
        return (
            "/v1/models owned by llama-manager"
            if any(object_of(e).get("owned_by") == cls.name for e in entries)
            else None
        )

    def entry(self) -> dict[str, Any]:
        """Give the model's entry: by name or alias, else the active one."""
        entries = self.models()
        if self.model is not None:
            return next(
                (e for e in entries if e.get("id") == self.model or self.model in list_of(e.get("aliases"))), {}
            )
        return next((e for e in entries if e.get("active") is True), {})

    def model_name(self) -> str | None:
        """Give the active model's name. NotOfferedError where none is active: asking would load one."""
        name = self.model or text_of(self.entry().get("id"), 500)
        if name is None:
            raise NotOfferedError("llama-manager has no model active; name one with --model")
        return name

    def model_identity(self) -> ModelIdentity:
        """Model's name; the manager tells no more."""
        return ModelIdentity(name=self.model_name())

    def window(self) -> WindowReading:
        """The largest window that its ladder of settings reaches: it grows to it by itself, by giving up speculation and cache precision."""
        told = count(self.entry().get("n_ctx"))
        if not told:
            raise NotOfferedError("llama-manager names no window for this model; send it one request, then look again")
        return WindowReading(in_force=told)

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """``POST /v1/chat/completions/input_tokens``."""
        body = {"model": self.model_name(), "messages": list(messages)}
        return self.number_from("/v1/chat/completions/input_tokens", body, "input_tokens")

    def complete(self, ask: Ask) -> Completion:
        """Chats only: it has no endpoint for raw prompts."""
        if ask.messages is None:
            return Completion(
                error=RequestError(error="not-supported", message="llama-manager takes chats only, no raw prompts")
            )
        return super().complete(ask)

    def memory(self) -> MemoryBudget:
        """Where its own llama-server says that the memory is, by device and component; loads nothing.

        NotOfferedError where no model is active, or that server cannot be seen from here or does not tell.
        """
        model = text_of(self.entry().get("id"), 500) or self.model_name() or ""
        with find_router(self.http) as router:
            return ask_memory(router, model)

    def busy(self) -> bool | None:
        """Say whether requests wait for the model."""
        queued = self.entry().get("queued")
        return queued if isinstance(queued, bool) else None


def read_memory(body: object) -> MemoryBudget:
    """Read the child's ``/memory``: bytes of weights, context and compute by device, of the model, its draft and its projector.

    NotOfferedError where the answer is of another shape.
    """
    buffers: list[BufferTruth] = []
    for device in list_of(object_of(body).get("devices"))[:64]:
        name = text_of(object_of(device).get("name"), 200)
        components = object_of(object_of(device).get("components"))
        if name is None:
            continue
        for owner, part, component in _PARTS:
            size = count(object_of(components.get(owner)).get(part), 1 << 50)
            if size:
                buffers.append(BufferTruth.model_validate({"device": name, "component": component, "size_bytes": size}))
        for owner, component in (("spec", "draft"), ("mmproj", "projector")):
            size = sum(
                count(object_of(components.get(owner)).get(part), 1 << 50) or 0
                for part in ("model", "context", "compute")
            )
            if size:
                buffers.append(BufferTruth.model_validate({"device": name, "component": component, "size_bytes": size}))
    if not buffers:
        raise NotOfferedError("/memory did not answer sizes by device; only llama-manager's own llama-server has it")
    return MemoryBudget(basis="log", buffers=tuple(buffers))


def ask_memory(child: Http, model: str) -> MemoryBudget:
    """Ask llama-manager's llama-server (not the manager itself) where its memory is. NotOfferedError on any other llama-server."""
    status, body = child.get_json(f"/memory?model={quote(model, safe='')}&autoload=false")
    if status != 200:
        raise NotOfferedError(f"/memory answered HTTP {status}; only llama-manager's own llama-server has it")
    return read_memory(body)
