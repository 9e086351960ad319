"""What every server is asked, in one form. One file a server implements it; what a server cannot tell raises NotOfferedError."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from probes.evidence.errors import NotOfferedError

if TYPE_CHECKING:
    from probes.backends.http import Http
    from probes.evidence.request import Completion
    from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading

Feature = Literal[
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
    "memory",
    "logprobs",
    "streaming",
]


@dataclass(frozen=True, slots=True)
class Ask:
    """One completion to send. ``prompt`` is raw text (completion style); ``messages`` chat. Exactly one of both."""

    prompt: str | None = None
    messages: tuple[dict[str, str], ...] | None = None
    max_tokens: int = 1
    use_cache: bool = True
    cache_as_served: bool = False
    """Say nothing about the prompt cache: what the server does by itself, as an ordinary client finds it. Only with ``use_cache``."""
    salt: str = ""
    """Put at the very front where the server cannot switch its cache off for one request."""
    seed: int = 0
    stop: tuple[str, ...] = ()
    logprobs: int = 0
    deadline_s: float = 600.0
    slot: int | None = None
    stream: bool = True
    """False: the answer is asked for in one piece, where the server can."""
    on_progress: Callable[[int, int], None] | None = field(default=None, compare=False)
    """Called with (tokens processed, tokens in all) where the server reports its prefill progress."""


@dataclass(frozen=True, slots=True)
class Signs:
    """Answers to the harmless GETs of recognition: path → (status, headers, decoded JSON or text)."""

    answers: dict[str, tuple[int, dict[str, str], object]]

    def json(self, path: str) -> dict[str, object]:
        """Give the JSON object answered at ``path``, or an empty one."""
        _status, _headers, body = self.answers.get(path, (0, {}, None))
        return body if isinstance(body, dict) else {}

    def status(self, path: str) -> int:
        """Give the HTTP status answered at ``path``; 0 if it was not asked or did not answer."""
        return self.answers.get(path, (0, {}, None))[0]


class Backend(ABC):
    """A server of one kind at one address. Nothing here changes anything on the server."""

    name: ClassVar[str]
    apart: ClassVar[bool] = False
    """Whether the model runs in a process of its own, so that what answers here says nothing about its life."""
    offers: ClassVar[frozenset[Feature]] = frozenset()

    disturbed: ClassVar[bool] = False
    """Whether to be asked for its models breaks off an answer that it is giving: then it is not asked by the way."""

    def __init__(self, http: Http, model: str | None = None) -> None:
        self.http = http
        self.model = model

    @property
    def engine(self) -> str:
        """Name of the server that processes the prompts: where another stands behind this one, that one's."""
        return self.name

    def can(self, feature: Feature) -> bool:
        """Say whether this server, or the one behind it, offers something."""
        return feature in self.offers

    def holder(self) -> str:
        """Give the address at which the process that holds the model listens. Never raises; loads nothing."""
        return self.http.base_url

    @classmethod
    @abstractmethod
    def recognise(cls, signs: Signs) -> str | None:
        """Say by which sign this is such a server, or None."""

    @abstractmethod
    def identity(self) -> BackendIdentity:
        """Name, version, build."""

    @abstractmethod
    def model_identity(self) -> ModelIdentity:
        """Which model is loaded, as far as the server says."""

    @abstractmethod
    def window(self) -> WindowReading:
        """Windows as the server says: per slot, slots, trained, in force."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of raw text with the server's own tokenizer, without special tokens."""
        return len(self.tokenize(text))

    def tokenize(self, text: str) -> Sequence[int]:
        """Give the token ids of raw text, without special tokens. NotOfferedError where the server has no such endpoint."""
        del text
        raise NotOfferedError(f"{self.name} has no tokenizer endpoint; give --tokenizer")

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Give the text of token ids."""
        del tokens
        raise NotOfferedError(f"{self.name} has no detokenizer endpoint")

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """Count a chat's prompt tokens, template included, without running it."""
        del messages
        raise NotOfferedError(f"{self.name} cannot count a chat without running it")

    @abstractmethod
    def complete(self, ask: Ask) -> Completion:
        """Send one completion and wait for it. A server's refusal or failure is in ``Completion.error``; RequestFailedError is not raised.

        WrongKeyError, UnreachableError, BadAnswerError are raised: there is nothing to measure then.
        """

    def configuration(self) -> Configuration:
        """Settings that the server tells over HTTP (the process and the log are read elsewhere)."""
        raise NotOfferedError(f"{self.name} does not tell its settings over HTTP")

    def forget(self) -> None:  # noqa: B027 - most servers are asked anew each time
        """Forget what the server told of itself, so that it is asked anew."""

    def still_loading(self) -> None:  # noqa: B027 - most servers are recognised only once they have loaded
        """Raise StillLoadingError while the model under test is being loaded by a server of many models. Loads nothing."""

    def lost(self) -> bool:
        """Say whether the process that held the model has ended behind a server that goes on answering. Never raises."""
        return False

    def busy(self) -> bool | None:
        """Say whether someone else's request is running; None where the server does not tell."""
        return None
