"""The client's side: what its settings file makes it believe, and what its requests looked like on their way through. Never text, never keys."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import Field

from .records import Payload, Record, Text
from .request import ErrorKind


class ClientModel(Record):
    """One model as a client's settings describe it. Fields that its file does not set are None."""

    provider: Text | None = None
    model: Text | None = None
    base_url: Text | None = None
    context: int | None = Field(default=None, ge=0, description="the window that the client believes in, in tokens")
    output: int | None = Field(default=None, ge=0, description="tokens that it asks for, or keeps free for, an answer")
    num_ctx: int | None = Field(default=None, ge=0, description="a window that it asks the server for")
    compact_at: int | None = Field(default=None, ge=0, description="tokens at which it shortens the history")
    timeout_s: float | None = Field(default=None, ge=0)


class ClientSettings(Payload):
    """A client's settings file: which client, and the models in it."""

    kind: ClassVar[str] = "client_settings"
    client: str = Field(description="opencode, continue, aider, zed, codex, crush, cline, goose, …")
    path: Text = ""
    models: tuple[ClientModel, ...] = ()
    default_model: Text | None = None
    compaction: bool | None = Field(default=None, description="whether it shortens long histories by itself")
    notes: tuple[Text, ...] = ()

    def about(self, url: str | None = None, names: Collection[str] = ()) -> tuple[ClientModel, ...]:
        """Give the entries that are about a server at ``url`` and a model of one of ``names``: by address, then by name, then the default one, else all.

        Empty where the file speaks of other servers only. Without ``url`` every entry may be about it.
        """
        served = {plain_name(name) for name in names} - {""}
        if url is None:
            return self._of_model(self.models, served)
        places = [(one, one.base_url or _OWN_PLACES.get((one.provider or "").lower())) for one in self.models]
        here = [one for one, place in places if place is not None and address_of(place) == address_of(url)]
        if here:
            return self._of_model(here, served)
        if self.client in _ADDRESS_ELSEWHERE and all(place is None for _one, place in places):
            return self._of_model(self.models, served)
        # an entry without an address is one at its provider's own place, unless it names this model;
        # one at the same port may be this machine by another of its names
        near = [one for one, place in places if place is None or address_of(place)[1] == address_of(url)[1]]
        return tuple(one for one in near if plain_name(one.model) in served)

    def belief(self, url: str | None = None, names: Collection[str] = ()) -> ClientModel | None:
        """Give what all entries about this server and model say alike; None where there is none. What they say differently is None in it."""
        meant = self.about(url, names)
        if not meant:
            return None
        told = {name: {getattr(one, name) for one in meant} - {None} for name in ClientModel.model_fields}
        return ClientModel(**{name: values.pop() for name, values in told.items() if len(values) == 1})

    def _of_model(self, entries: Iterable[ClientModel], served: Collection[str]) -> tuple[ClientModel, ...]:
        found = tuple(entries)
        named = tuple(one for one in found if plain_name(one.model) in served)
        if named or self.default_model is None:
            return named or found
        whole = tuple(one for one in found if self.default_model in {one.model, f"{one.provider}/{one.model}"})
        default = whole or tuple(one for one in found if plain_name(one.model) == plain_name(self.default_model))
        return default or found


_OWN_PLACES = {
    "ollama": "http://127.0.0.1:11434",
    "lmstudio": "http://127.0.0.1:1234",
    "lm-studio": "http://127.0.0.1:1234",
}
"""Where a provider is that a client knows without an address."""
_ADDRESS_ELSEWHERE = frozenset({"aider"})
"""Clients whose windows stand in a file of their own, and the address in another one or in a variable."""


def plain_name(name: str | None) -> str:
    """Give a model's name without folder, provider, file's ending, default tag and signs: names of one model are written in many ways."""
    last = re.split(r"[\\/]", name or "")[-1].lower()
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\.gguf$|:latest$", "", last))


_THIS_MACHINE = frozenset({"localhost", "::1", "0.0.0.0", "127.0.0.1", "host.docker.internal"})  # noqa: S104 - compared, not bound


def address_of(url: str) -> tuple[str, int]:
    """Give host and port of an address as people write it; the names of this machine are one. ("", 0) for what is none."""
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = (parts.hostname or "").lower(), parts.port
    except ValueError:
        return "", 0
    return "127.0.0.1" if host in _THIS_MACHINE else host, port or (443 if parts.scheme == "https" else 80)


class WatchedRequest(Payload):
    """One request that passed through the recording proxy: counts, times, errors, and how its prompt begins compared with an earlier one."""

    kind: ClassVar[str] = "watched_request"
    number: int = Field(ge=1)
    path: Text
    model: Text | None = None
    status: int = 0
    streamed: bool = False
    messages: int | None = Field(default=None, ge=0)
    tools: int | None = Field(default=None, ge=0)
    prompt_chars: int | None = Field(default=None, ge=0)
    prompt_hash: str | None = Field(
        default=None, description="keyed for this watch only: equal prompts are seen, texts are not"
    )
    same_as_before_chars: int | None = Field(
        default=None, ge=0, description="how much of its beginning equals the earlier prompt most like it"
    )
    before_chars: int | None = Field(default=None, ge=0, description="length of that earlier prompt")
    differs_in: str | None = Field(
        default=None, description="where the first difference lies: tools, or a message's number and role"
    )
    asked_tokens: int | None = Field(default=None, ge=0, description="max_tokens and the like")
    asked_window: int | None = Field(
        default=None, ge=0, description="num_ctx or a like option, where the client sends one"
    )
    prompt_tokens: int | None = Field(default=None, ge=0)
    cached_tokens: int | None = Field(default=None, ge=0)
    generated_tokens: int | None = Field(default=None, ge=0)
    first_token_s: float | None = Field(default=None, ge=0)
    total_s: float = Field(default=0.0, ge=0)
    finish: Text | None = None
    error: ErrorKind | None = None
    error_prompt_tokens: int | None = Field(default=None, ge=0)
    error_window: int | None = Field(default=None, ge=0)
    client_left_s: float | None = Field(
        default=None, ge=0, description="seconds after which the client hung up before the answer was whole"
    )


class WatchSummary(Payload):
    """What all watched requests show together."""

    kind: ClassVar[str] = "watch_summary"
    requests: int = Field(ge=0)
    errors: dict[str, int] = Field(default_factory=dict)
    longest_prompt_tokens: int | None = Field(default=None, ge=0)
    longest_prompt_chars: int | None = Field(default=None, ge=0)
    turns_compared: int = Field(default=0, ge=0, description="requests that continue an earlier prompt, or should have")
    prefix_broken: int = Field(default=0, ge=0, description="of these, whose beginning differed from it")
    changing_header_at_chars: int | None = Field(
        default=None, ge=0, description="where the beginning changes again and again"
    )
    changing_header_in: str | None = None
    history_shortened: int = Field(
        default=0, ge=0, description="turns with a shorter prompt than the turn before, its beginning kept"
    )
    client_timeout_s: float | None = Field(
        default=None, ge=0, description="the wait after which the client hung up, where it did so repeatedly"
    )
    client_left: int = Field(default=0, ge=0)
    asked_window: int | None = Field(default=None, ge=0)
    believed_window: int | None = Field(
        default=None,
        ge=0,
        description="a window that its requests name or keep to: num_ctx, or prompt and answer that stay just below it",
    )
    turns_lost: int = Field(
        default=0, ge=0, description="turns of which fewer tokens were counted than of the shorter turn before"
    )
    lost_sent_tokens: int | None = Field(
        default=None, ge=0, description="of the turn that lost most: its tokens, reckoned from the turn before"
    )
    lost_processed_tokens: int | None = Field(default=None, ge=0, description="and those that the server counted")
