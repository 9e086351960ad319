"""llama-server's router mode: one address, many models, each a child with its own command line.

A request for a model that is not loaded would load it, so nothing is asked of one: its state is read first, and ``autoload=false`` is sent along.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

from probes.backends.base import Ask, Signs
from probes.backends.commands import parse_command, parse_preset
from probes.backends.fronts import ROUTER
from probes.backends.http import Http, Reply, is_loopback, text_of
from probes.backends.llamacpp import LlamaCpp
from probes.backends.openai_compatible import list_of, object_of
from probes.evidence.errors import CtxDoctorError, NotOfferedError, StillLoadingError
from probes.evidence.request import Completion
from probes.evidence.subject import BackendIdentity, Configuration, WindowReading

READY = frozenset({"loaded"})


@dataclass(frozen=True, slots=True)
class RouterModel:
    """A model that a router knows: its state, its child's command line, and what the child said of itself."""

    name: str
    state: str
    argv: tuple[str, ...] = ()
    preset: str = ""
    failed: bool = False
    exit_code: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()


def read_models(body: object) -> list[RouterModel]:
    """Read a router's ``/v1/models``. Entries of another shape are left out."""
    found: list[RouterModel] = []
    for entry in list_of(object_of(body).get("data"))[:1000]:
        status = object_of(object_of(entry).get("status"))
        name, state = text_of(object_of(entry).get("id"), 500), text_of(status.get("value"), 40)
        if name is None or state is None:
            continue
        args = [word for word in list_of(status.get("args")) if isinstance(word, str)]
        code = status.get("exit_code")
        found.append(
            RouterModel(
                name=name,
                state=state,
                argv=tuple(args[:2000]),
                preset=text_of(status.get("preset"), 20_000) or "",
                failed=status.get("failed") is True,
                exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
                meta=object_of(object_of(entry).get("meta")),
                aliases=tuple(word for word in list_of(object_of(entry).get("aliases"))[:50] if isinstance(word, str)),
            )
        )
    return found


class LlamaRouter(LlamaCpp):
    """A router, and one of its loaded models: the one given, else the only one loaded."""

    name: ClassVar[str] = "llama.cpp"
    apart: ClassVar[bool] = True

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._settled = False

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/props`` with ``"role": "router"``."""
        props = signs.json("/props")
        return "/props says role router" if props.get("role") == "router" and "build_info" in props else None

    def _router(self) -> bool:
        return True

    def models(self) -> list[RouterModel]:
        """Give every model that the router knows, loaded or not."""
        status, body = self.http.get_json("/v1/models")
        if status != 200:
            raise NotOfferedError(f"/v1/models answered HTTP {status}; the router's models cannot be told")
        return read_models(body)

    def chosen(self) -> RouterModel:
        """Give the model under test. NotOfferedError, with what to do, where none is loaded or several are and none was named."""
        models = self.models()
        if self.model is not None:
            mine = next((m for m in models if m.name == self.model or self.model in m.aliases), None)
            if mine is None:
                names = ", ".join(m.name for m in models[:5])
                raise NotOfferedError(
                    f"the router knows no model {self.model!r}; give one of its names ({names}) with --model"
                )
            if mine.state == "loading":
                raise StillLoadingError(f"the router is still loading {mine.name!r}; wait, or look at its log")
            if mine.state not in READY:
                how = f" (it failed with exit code {mine.exit_code})" if mine.failed else ""
                raise NotOfferedError(
                    f"the router's model {self.model!r} is {mine.state}{how}; send it one request, then look again"
                )
            return mine
        ready = [m for m in models if m.state in READY]
        if len(ready) == 1:
            return ready[0]
        if not ready and any(m.state == "loading" for m in models):
            raise StillLoadingError("the router is still loading a model; wait, or look at its log")
        if not ready:
            raise NotOfferedError("the router has no model loaded; send it one request, or name one with --model")
        names = ", ".join(m.name for m in ready[:5])
        raise NotOfferedError(f"the router has several models loaded ({names}); name one with --model")

    def holder(self) -> str:
        """Give the address of the chosen model's own process, a child of the router, which tells its port."""
        with contextlib.suppress(CtxDoctorError):
            port = parse_command(["llama-server", *_own_words(self.chosen().argv)], backend="llama.cpp").settings.get(
                "port"
            )
            if port is not None and is_loopback(self.http.base_url):
                return f"http://127.0.0.1:{port.value}"
        return super().holder()

    def still_loading(self) -> None:
        """Raise StillLoadingError while the model under test is being loaded."""
        with contextlib.suppress(NotOfferedError):
            self.chosen()

    def _settle(self) -> None:
        """Make sure that the model was loaded when it was first asked for anything. One that was evicted since is loaded again by what it is sent."""
        if not self._settled:
            self.model = self.chosen().name
            self._settled = True

    def _ask_props(self) -> dict[str, Any]:
        if self._props is None:
            self.model = self.chosen().name
            self._settled = True
            reply = self.http.get(f"/props?model={quote(self.model or '', safe='')}&autoload=false")
            if reply.status != 200:
                raise NotOfferedError(f"/props of model {self.model!r} answered HTTP {reply.status}")
            self._props = reply.json_object()
        return self._props

    def identity(self) -> BackendIdentity:
        """Name and build, from the router's own ``/props``; needs no model."""
        props = self.http.get("/props").json_object()
        build = text_of(props.get("build_info"))
        version = build.split("-")[0] if build and build.startswith("b") and not build.startswith("b0-") else None
        return BackendIdentity(
            name=self.name,
            version=version,
            build=build,
            url=self.http.base_url,
            recognised_by="/props says role router",
            router=True,
            front=ROUTER,
            front_model=self.model,
        )

    def window(self) -> WindowReading:
        """The chosen model's window, with what its child's command line asks for."""
        told = super().window()
        asked = self._told_settings().settings.get("ctx")
        if told.asked is None and asked is not None and isinstance(asked.value, int) and asked.value > 0:
            told = told.model_copy(update={"asked": asked.value})
        return told

    def _told_settings(self) -> Configuration:
        """What the router tells of the child: its preset, and over that its command line."""
        mine = self.chosen()
        self.model = mine.name
        read = parse_command(["llama-server", *_own_words(mine.argv)], backend="llama.cpp", source="server")
        settings = dict(parse_preset(mine.preset, source="server").settings) | dict(read.settings)
        return Configuration(settings=settings, command=read.command)

    def configuration(self) -> Configuration:
        """The child's own command line, which the router tells, and what the child says over HTTP."""
        told = self._told_settings()
        over_http = super().configuration()
        unread = {name: why for name, why in over_http.unread.items() if name not in told.settings}
        return Configuration(settings={**over_http.settings, **told.settings}, command=told.command, unread=unread)

    def tokenize(self, text: str) -> Sequence[int]:
        """Count with the chosen model's tokenizer."""
        return self._plain().tokenize(text)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Turn ids back with the chosen model's tokenizer."""
        return self._plain().detokenize(tokens)

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """Count with the chosen model's template."""
        return self._plain().count_chat_tokens(messages)

    def busy(self) -> bool | None:
        """Say whether a slot of the chosen model works."""
        self._settle()
        status, body = self.http.get_json(
            f"/slots?model={quote(self.model or '', safe='')}&autoload=false", deadline_s=5
        )
        if status != 200 or not isinstance(body, list):
            return None
        return any(object_of(slot).get("is_processing") is True for slot in body)

    def complete(self, ask: Ask) -> Completion:
        """Send one completion to the chosen model."""
        self._settle()
        return super().complete(ask)

    def _plain(self) -> LlamaCpp:
        """Let mainline's code ask, with the model's name in every request."""
        self._settle()
        return LlamaCpp(_WithModel(self.http, self.model or ""), None)


def _own_words(argv: Sequence[str]) -> list[str]:
    """Give the flags of a child's command line; its program stands first where the router tells it."""
    return list(argv[1:]) if argv and not argv[0].startswith("-") else list(argv)


class _WithModel(Http):
    """The router's client, putting the model's name into every body. Shares the connection; it is not closed here."""

    def __init__(self, http: Http, model: str) -> None:
        self._inner = http
        self._model = model
        self.base_url = http.base_url

    def get(self, path: str, *, deadline_s: float = 10.0) -> Reply:
        mark = "&" if "?" in path else "?"
        return self._inner.get(f"{path}{mark}model={quote(self._model, safe='')}&autoload=false", deadline_s=deadline_s)

    def get_json(self, path: str, *, deadline_s: float = 10.0) -> tuple[int, Any]:
        mark = "&" if "?" in path else "?"
        return self._inner.get_json(
            f"{path}{mark}model={quote(self._model, safe='')}&autoload=false", deadline_s=deadline_s
        )

    def post_json(self, path: str, body: object, *, deadline_s: float) -> Reply:
        told = {**body, "model": self._model} if isinstance(body, dict) else body
        return self._inner.post_json(path, told, deadline_s=deadline_s)
