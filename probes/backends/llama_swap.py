"""llama-swap: asked for what runs behind it, then through to the server itself.

``/upstream/MODEL/…`` would load a model, so only a model that is ready is asked, and before each look it is made sure that it still runs: it may have
been unloaded for idleness, or for another client's model. A completion, or a count of its tokens, is what a model is loaded for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from urllib.parse import quote

from probes.backends.base import Ask, Backend, Feature, Signs
from probes.backends.commands import parse_command, split_command
from probes.backends.fronts import LLAMA_SWAP
from probes.backends.http import Http, Reply, StreamPiece, is_loopback, text_of
from probes.backends.openai_compatible import list_of, object_of
from probes.evidence.errors import CtxDoctorError, NotOfferedError, StillLoadingError
from probes.evidence.request import Completion
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, WindowReading

AT_ONCE_S = 0.5
"""A gateway's error that comes within this time was none of the server's."""


@dataclass(frozen=True, slots=True)
class RunningModel:
    """A model that llama-swap runs: its state and the command behind it."""

    name: str
    state: str
    command: str
    proxy: str


def read_running(body: object) -> list[RunningModel]:
    """Read ``/running``. Entries of another shape are left out."""
    found: list[RunningModel] = []
    for entry in list_of(object_of(body).get("running"))[:200]:
        told = object_of(entry)
        name = text_of(told.get("model"), 500)
        if name is not None:
            found.append(
                RunningModel(
                    name,
                    text_of(told.get("state"), 40) or "",
                    text_of(told.get("cmd"), 20_000) or "",
                    text_of(told.get("proxy"), 500) or "",
                )
            )
    return found


def owns_models(body: object) -> bool:
    """Say whether a list of models has one that is llama-swap's own."""
    return any(object_of(entry).get("owned_by") == "llama-swap" for entry in list_of(object_of(body).get("data"))[:200])


class Upstream(Http):
    """llama-swap's client for one model: every path stands below ``/upstream/MODEL``. It shares the connection; closing is its giver's.

    ``runs`` raises where the model runs no more, before a GET would load it.
    """

    def __init__(self, http: Http, prefix: str, runs: Callable[[], object]) -> None:
        self._inner = http
        self._prefix = prefix
        self._runs = runs
        self.base_url = http.base_url + prefix
        self.connect_s = http.connect_s

    def get(self, path: str, *, deadline_s: float = 10.0) -> Reply:
        """As the client's own, below the prefix."""
        self._runs()
        return self._inner.get(self._prefix + path, deadline_s=deadline_s)

    def get_json(self, path: str, *, deadline_s: float = 10.0) -> tuple[int, Any]:
        """As the client's own, below the prefix."""
        self._runs()
        return self._inner.get_json(self._prefix + path, deadline_s=deadline_s)

    def post_json(self, path: str, body: object, *, deadline_s: float) -> Reply:
        """As the client's own, below the prefix."""
        return self._inner.post_json(self._prefix + path, body, deadline_s=deadline_s)

    def stream(
        self, path: str, body: object, *, deadline_s: float, idle_s: float | None = None
    ) -> Iterator[StreamPiece | Reply]:
        """As the client's own, below the prefix."""
        return self._inner.stream(self._prefix + path, body, deadline_s=deadline_s, idle_s=idle_s)

    def close(self) -> None:
        """Close nothing."""


class LlamaSwap(Backend):
    """llama-swap, and through it the server of the model that is running."""

    name: ClassVar[str] = "llama-swap"
    apart: ClassVar[bool] = True
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "version", "model", "window", "chat", "completion", "configuration", "streaming"}
    )

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._behind: Backend | None = None
        self.look: Callable[[Http], Backend] | None = None
        """How the server behind is recognised; set by :func:`probes.backends.recognise.recognise`."""

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/running``, and a version with a commit (Ollama's has none) or, before the end of 2025, models that are its own."""
        if not isinstance(signs.json("/running").get("running"), list):
            return None
        if {"version", "commit"} <= signs.json("/api/version").keys():
            return "/running, and /api/version with a commit"
        return "/running, and models owned by llama-swap" if owns_models(signs.json("/v1/models")) else None

    @property
    def engine(self) -> str:
        """Name of the server behind, once it was looked at."""
        return self._behind.engine if self._behind is not None else self.name

    def can(self, feature: Feature) -> bool:
        """Say whether llama-swap or the server behind it offers something."""
        return super().can(feature) or (self._behind is not None and self._behind.can(feature))

    def holder(self) -> str:
        """Give the address of the server that runs the model, where that is on this machine; before 2026 llama-swap does not tell it."""
        with contextlib.suppress(CtxDoctorError):
            proxy = self.chosen().proxy
            if is_loopback(self.http.base_url) and proxy and is_loopback(proxy):
                return proxy
        return super().holder()

    def running(self) -> list[RunningModel]:
        """Give every model that runs or starts."""
        status, body = self.http.get_json("/running")
        if status != 200:
            raise NotOfferedError(f"llama-swap's /running answered HTTP {status}")
        return read_running(body)

    def chosen(self) -> RunningModel:
        """Give the running model under test. NotOfferedError, with what to do, where there is none; StillLoadingError while it starts."""
        models = self.running()
        if self.model is not None:
            named = self.model if any(m.name == self.model for m in models) else self._named()
            models = [m for m in models if m.name == named]
        ready = [m for m in models if m.state == "ready"]
        if ready:
            if len(ready) > 1:
                names = ", ".join(m.name for m in ready[:5])
                raise NotOfferedError(f"llama-swap runs several models ({names}); name one with --model")
            return ready[0]
        if any(m.state == "starting" for m in models):
            raise StillLoadingError("llama-swap is still starting the model; wait, or look at its /logs")
        raise NotOfferedError(
            "llama-swap has no such model running; send it one request, or name one with --model, then look again (its /logs say why where it does not start)"
        )

    def _named(self) -> str | None:
        """Give the id of the model that was named by one of its aliases, where the list of models tells them."""
        _status, body = self.http.get_json("/v1/models")
        for entry in list_of(object_of(body).get("data"))[:1000]:
            told = object_of(object_of(object_of(entry).get("meta")).get("llamaswap"))
            if self.model in list_of(told.get("aliases")):
                return text_of(object_of(entry).get("id"), 500)
            if told.get("type") == "alias" and object_of(entry).get("id") == self.model:
                return text_of(told.get("modelID"), 500)
        return self.model

    def still_loading(self) -> None:
        """Raise StillLoadingError while the model under test is being started."""
        with contextlib.suppress(NotOfferedError):
            self.chosen()

    def forget(self) -> None:
        """Forget what the server behind told. NotOfferedError where its model runs no more: then there is nothing to be asked."""
        self.chosen()
        if self._behind is not None:
            self._behind.forget()

    def behind(self) -> Backend:
        """Give the backend of the server that runs the model, asked through llama-swap."""
        if self._behind is None:
            mine = self.chosen()
            self.model = mine.name
            http = Upstream(self.http, f"/upstream/{quote(mine.name, safe='')}", self.chosen)
            if self.look is None:
                raise NotOfferedError("the server behind llama-swap was not looked for")
            self._behind = self.look(http)
        return self._behind

    def version(self) -> str | None:
        """llama-swap's own version."""
        _status, body = self.http.get_json("/api/version")
        return text_of(object_of(body).get("version"), 200)

    def identity(self) -> BackendIdentity:
        """The server behind, as seen through llama-swap; llama-swap itself where nothing runs."""
        try:
            inner = self.behind().identity()
        except NotOfferedError as error:
            if self._behind is not None:
                # it was looked at, and is not running just now
                raise
            return BackendIdentity(
                name=self.name,
                version=self.version(),
                url=self.http.base_url,
                recognised_by=f"/running ({error})"[:500],
                router=True,
            )
        return inner.model_copy(
            update={
                "router": True,
                "front": LLAMA_SWAP,
                "front_model": self.model,
                "recognised_by": f"{inner.recognised_by}, behind llama-swap {self.version() or ''}".strip(),
            }
        )

    def model_identity(self) -> ModelIdentity:
        """The model, as the server behind tells it."""
        return self.behind().model_identity()

    def window(self) -> WindowReading:
        """The window of the server behind, with what its command asks for."""
        told = self.behind().window()
        if told.asked is None:
            asked = self._command().settings.get("ctx")
            if asked is not None and isinstance(asked.value, int):
                told = told.model_copy(update={"asked": asked.value})
        return told

    def _command(self) -> Configuration:
        command = self.chosen().command
        return parse_command(split_command(command), source="server") if command else Configuration()

    def configuration(self) -> Configuration:
        """The command behind, which ``/running`` tells in full, and what the server itself tells."""
        read = self._command()
        try:
            inner = self.behind().configuration()
        except NotOfferedError:
            return read
        unread = {name: why for name, why in inner.unread.items() if name not in read.settings}
        return Configuration(
            settings={**inner.settings, **read.settings}, command=read.command, unread={**unread, **read.unread}
        )

    def tokenize(self, text: str) -> Sequence[int]:
        """By the server behind."""
        return self.behind().tokenize(text)

    def count_tokens(self, text: str) -> int:
        """By the server behind."""
        return self.behind().count_tokens(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """By the server behind."""
        return self.behind().detokenize(tokens)

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """By the server behind."""
        return self.behind().count_chat_tokens(messages)

    def complete(self, ask: Ask) -> Completion:
        """Send to the server behind, through llama-swap.

        llama-swap keeps connections to it open, and now and then takes one that the server has just closed: it then answers 502 at once, and nothing
        was asked. Such a request is sent once more where the model runs on.
        """
        told = self.behind().complete(ask)
        error = told.error
        if error is None or error.status != 502 or error.after_s is None or error.after_s > AT_ONCE_S:
            return told
        try:
            self.chosen()
        except CtxDoctorError:
            return told
        return self.behind().complete(ask)

    def busy(self) -> bool | None:
        """Say whether the server behind works."""
        return self.behind().busy()
