"""The client's side: what its settings file makes it believe, and what its requests looked like on their way through. Never text, never keys."""

from __future__ import annotations

from typing import ClassVar

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
