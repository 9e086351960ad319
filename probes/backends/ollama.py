"""Ollama: its native API with its own clock; the window of the loaded model; the llama-server that it runs.

A request that names another ``num_ctx`` would load the model anew, so each request repeats the window that is loaded. Prompts that are too long
are cut without a word, which is what the truncation probe wants to see: nothing here switches that off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar, TypeVar

from probes.backends.base import Ask, Backend, Feature, Signs
from probes.backends.children import LlamaChild, find_child
from probes.backends.commands import parse_command, parse_modelfile
from probes.backends.http import Http, count, is_loopback, seconds, text_of
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading, list_of, object_of, salted
from probes.backends.refusals import type_refusal
from probes.evidence.errors import BadAnswerError, CouldNotLookError, NotOfferedError, ServerDiedError, UnreachableError
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

T = TypeVar("T")

DEFAULT_TIERS = ((47, 262_144), (23, 32_768), (0, 4_096))
"""(GiB of all VRAM at least, default window): what Ollama takes when nothing sets it (0.33)."""

_BY_CHILD = ("parallel", "kv_type_k", "kv_type_v", "flash_attention", "batch", "ubatch")
REPEATED = 8
"""So many pieces alike at the end of an answer that has no end: Ollama itself broke it off (it does after some 30, of which not all need be seen)."""
MOST_NAMED = 5
LOAD_S = 600.0
"""A model is waited for so long."""
STAYS = "5m"
"""So long Ollama keeps a model by itself; one that it would unload sooner is kept so long after what it is asked here."""
LEAST_S = 300.0
SOON_S = 120.0
FOR_EVER_S = 1e9
"""A model that is to stay for good is said to be unloaded in centuries."""


class OllamaReading(StreamReading):
    """Native NDJSON events, the last with ``done``; durations in nanoseconds.

    An answer whose tokens repeat, blanks set aside, is broken off by Ollama (0.33, llm/llama_server.go, at 30 repeats): its stream ends in good order, but
    without ``done``, a reason or counts. That is the end of an answer, and no lost connection; how many tokens came is counted here.
    """

    def __init__(self, ask: Ask) -> None:
        super().__init__(ask)
        self._last = ""
        self._alike = 0

    def token(self, text: str, at_s: float, *, thought: bool = False) -> None:
        """Take generated text, and see whether it is the same again."""
        super().token(text, at_s, thought=thought)
        if text:
            self._alike = self._alike + 1 if text.strip() == self._last else 1
            self._last = text.strip()

    @property
    def broken_off(self) -> bool:
        """Whether the answer ended as Ollama ends one that repeats itself."""
        return self.streamed and self.error is None and not self.ended and self._alike >= REPEATED

    def result(self, total_s: float) -> Completion:
        """Put it together; the reason of an answer that was broken off is ``repetition``."""
        if self.broken_off:
            self.finish = "repetition"
        return super().result(total_s)

    def event(self, event: dict[str, Any], at_s: float) -> bool:
        """Take one line."""
        if "choices" in event:
            return super().event(event, at_s)
        self.likeliest(event)
        message = object_of(event.get("message"))
        for holder in (event, message):
            if isinstance(holder.get("thinking"), str):
                self.token(holder["thinking"], at_s, thought=True)
        for text in (event.get("response"), message.get("content")):
            if isinstance(text, str):
                self.token(text, at_s)
        if message.get("tool_calls") and self.first_s is None:
            self.first_s = at_s
        if event.get("done") is True:
            self.final = event
            self.ended = True
            self.finish = text_of(event.get("done_reason"), 40) or self.finish
            return True
        return False

    def counts(self) -> dict[str, Any]:
        """Counts and the server's own times."""
        told = super().counts()
        if self.finish == "repetition":
            return told | {"generated_tokens": self.tokens_seen}
        if self.final:
            told |= {
                # Counts the cached part, too; there is no cached count of its own.
                "prompt_tokens": count(self.final.get("prompt_eval_count")) or told["prompt_tokens"],
                "generated_tokens": count(self.final.get("eval_count")),
                "server_prompt_s": seconds(self.final.get("prompt_eval_duration"), 1e9),
                "server_generation_s": seconds(self.final.get("eval_duration"), 1e9),
            }
        return told


class Ollama(OpenAiCompatible):
    """Ollama."""

    name: ClassVar[str] = "ollama"
    apart: ClassVar[bool] = True
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "version",
            "model",
            "window",
            "trained-window",
            "tokenize",
            "chat",
            "completion",
            "server-times",
            "configuration",
            "memory",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = OllamaReading
    completion_path: ClassVar[str] = "/api/generate"
    chat_path: ClassVar[str] = "/api/chat"

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._shown: dict[str, Any] | None = None
        self._meant: str | None = None
        self._window: int | None = None
        """The window that the model was seen loaded with last: unloaded for idleness meanwhile, it is loaded with it again."""
        self.options: dict[str, Any] = {}
        """Options that the model was loaded with for this run; each request repeats them, since it would be loaded anew without."""

    def forget(self) -> None:
        """Forget ``/api/show`` and the list of models."""
        super().forget()
        self._shown = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By its greeting at ``/`` and a version without a commit (llama-swap's has one)."""
        _status, _headers, body = signs.answers.get("/", (0, {}, None))
        version = signs.json("/api/version")
        if isinstance(body, str) and body.strip() == "Ollama is running" and isinstance(version.get("version"), str):
            return "/ says Ollama is running"
        return None

    def version(self) -> str | None:
        """``GET /api/version``."""
        return text_of(self.ask_object("/api/version").get("version"), 200)

    def loaded(self) -> list[dict[str, Any]]:
        """Give the loaded models, from ``/api/ps``."""
        return [m for m in list_of(self.ask_object("/api/ps").get("models")) if isinstance(m, dict)][:100]

    def running(self) -> dict[str, Any]:
        """Give the loaded model under test: the one named, else the only one; empty where it is not loaded."""
        models = self.loaded()
        asked = self.model or self._meant
        if asked is not None:
            return next(
                (m for m in models if full_name(asked) in {full_name(m.get(key)) for key in ("name", "model")}), {}
            )
        return models[0] if len(models) == 1 else {}

    def wake(self) -> RequestError | None:
        """Load the model under test as its next request would, where it is not loaded; why that failed, where it did."""
        if self.running():
            return None
        body = {"model": self.model_name(), "options": self._loads_with(), "stream": False, "keep_alive": STAYS}
        reply = self.http.post_json("/api/generate", body, deadline_s=LOAD_S)
        if reply.status < 400:
            return None
        try:
            told: object = reply.json()
        except BadAnswerError:
            told = reply.text
        return type_refusal(reply.status, told, round(reply.elapsed_s, 3))

    def _loads_with(self) -> dict[str, Any]:
        """Give the options that the model is loaded with, so that a request of ours does not load it anew with others."""
        self._window = count(self.running().get("context_length")) or self._window
        return ({"num_ctx": self._window} if self._window else {}) | self.options

    def left_s(self) -> float | None:
        """Give the seconds until Ollama unloads the model, were nothing asked of it; None where it is not loaded or does not say."""
        ends = text_of(self.running().get("expires_at"), 60)
        if ends is None:
            return None
        try:
            # nanoseconds are more digits than are read
            at = datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", ends))
        except ValueError:
            return None
        return (at - datetime.now(UTC)).total_seconds() if at.tzinfo is not None else None

    def stays(self) -> dict[str, str | int]:
        """Give what a request says so that the model stays to be measured: nothing where Ollama does not unload it soon by itself."""
        left = self.left_s()
        return {"keep_alive": STAYS} if left is None or left < SOON_S else {}

    def stays_anew(self) -> dict[str, str | int]:
        """Give what a request that loads the model anew says, so that it stays as long as it would have, and no shorter than is needed here."""
        left = self.left_s()
        if left is None or left < LEAST_S:
            return {"keep_alive": STAYS}
        return {"keep_alive": -1 if left > FOR_EVER_S else f"{math.ceil(left)}s"}

    def model_name(self) -> str | None:
        """Give the model's name: the one that is loaded, or the only one that there is. NotOfferedError, with names, where several could be meant."""
        name = self.model or self._meant or text_of(self.running().get("name"), 500)
        if name is not None:
            # once it is under test it stays so, also when Ollama unloads it meanwhile
            self._meant = name
            return name
        loaded = self._names(self.loaded(), "name")
        names = loaded or self._names(self.models(), "id")
        if len(names) == 1:
            self._meant = names[0]
            return names[0]
        if not names:
            raise NotOfferedError("Ollama has no models yet; get one with ollama pull")
        some = ", ".join(names[:MOST_NAMED]) + (", …" if len(names) > MOST_NAMED else "")
        if loaded:
            raise NotOfferedError(f"Ollama has {len(loaded)} models loaded; name one with --model ({some})")
        raise NotOfferedError(f"Ollama has none of its {len(names)} models loaded; name one with --model ({some})")

    @staticmethod
    def _names(entries: Sequence[dict[str, Any]], key: str) -> list[str]:
        return [name for entry in entries if (name := text_of(entry.get(key), 500))]

    def _show(self) -> dict[str, Any]:
        if self._shown is None:
            reply = self.http.post_json("/api/show", {"model": self.model_name()}, deadline_s=20)
            if reply.status != 200:
                raise NotOfferedError(
                    f"Ollama does not know the model {self.model_name()!r}; ollama list shows the names"
                )
            self._shown = reply.json_object()
        return self._shown

    def _header(self, ending: str) -> int | None:
        told = object_of(self._show().get("model_info"))
        architecture = text_of(told.get("general.architecture"), 200)
        return count(told.get(f"{architecture}.{ending}")) if architecture else None

    def model_identity(self) -> ModelIdentity:
        """Model, from ``/api/ps`` and ``/api/show``."""
        shown, running = self._show(), self.running()
        details, header = object_of(shown.get("details")), object_of(shown.get("model_info"))
        quantization = text_of(details.get("quantization_level"), 100)
        return ModelIdentity(
            name=self.model_name(),
            size_bytes=count(running.get("size")) if not running.get("size_vram") else None,
            quantization=None if quantization == "unknown" else quantization,
            architecture=text_of(header.get("general.architecture"), 200) or text_of(details.get("family"), 200),
            trained_window=self._header("context_length"),
            parameters=count(header.get("general.parameter_count")),
            header_hash=None,
            chat_template=bool(shown.get("template")) if "template" in shown else None,
        )

    def window(self) -> WindowReading:
        """The window that the model is loaded with, and what is asked for: by this run's requests, by the Modelfile, else by the server's environment.

        A request of anybody goes before the last two: a longer window than they ask for was asked for by one.
        """
        written = parse_modelfile(text_of(self._show().get("parameters"), 100_000) or "").settings.get("ctx")
        default = self._default()
        asked = written.value if written is not None and isinstance(written.value, int) else default
        asked = count(self.options.get("num_ctx")) or asked
        in_force = count(self.running().get("context_length")) or None
        if in_force and asked and in_force > asked:
            asked = in_force
        self._window = in_force or self._window
        slots: int | None = None
        try:
            parallel = self.child().configuration.settings.get("parallel")
            slots = parallel.value if parallel is not None and isinstance(parallel.value, int) else None
        except CouldNotLookError:
            pass
        return WindowReading(
            asked=asked,
            trained=self._header("context_length"),
            per_slot=in_force,
            slots=slots,
            in_force=in_force,
            default=default,
        )

    def _default(self) -> int | None:
        """Give the window of each model that sets none (OLLAMA_CONTEXT_LENGTH), where the server's process may be looked at and has one."""
        if not is_loopback(self.http.base_url):
            return None
        from probes.process import process_behind  # noqa: PLC0415 - looks at processes only when asked

        try:
            process = process_behind(self.http.base_url)
        except CouldNotLookError:
            return None
        setting = parse_command(process.argv, process.environment, self.name).settings.get("ctx")
        return setting.value if setting is not None and isinstance(setting.value, int) and setting.value > 0 else None

    def child(self) -> LlamaChild:
        """Give the llama-server that holds the model, on this machine. NotOfferedError where it cannot be seen (or an older Ollama has none).

        Models that are made of one file share one llama-server: while another of them is loaded, this one is not.
        """
        if not self.running():
            raise NotOfferedError("this model is not loaded just now, so there is no llama-server of it")
        return find_child(self.http, self._blob())

    def _blob(self) -> str | None:
        """Give the file that the model is made of, by which its llama-server is told from those of other loaded models."""
        try:
            made_of = parse_modelfile(text_of(self._show().get("modelfile"), 1_000_000) or "").settings.get(
                "model_path"
            )
        except CouldNotLookError:
            return None
        name = made_of.value if made_of is not None and isinstance(made_of.value, str) else ""
        *folders, file = re.split(r"[\\/]", name)
        return file if folders and file else None

    def configuration(self) -> Configuration:
        """The Modelfile's parameters, the share of the model on the GPU, and the child's command line where it can be seen."""
        settings: dict[str, Setting] = dict(
            parse_modelfile(text_of(self._show().get("parameters"), 100_000) or "", source="server").settings
        )
        running = self.running()
        size, on_gpu = count(running.get("size")), count(running.get("size_vram"))
        if size and on_gpu is not None and on_gpu <= size:
            settings["gpu_share"] = Setting(
                value=round(on_gpu / size, 4), source="server", raw="/api/ps size_vram / size"
            )
        if isinstance(self._show().get("projector_info"), dict):
            settings["mmproj_loaded"] = Setting(value=True, source="server", raw="/api/show projector_info")
        window = count(running.get("context_length"))
        if window:
            settings["ctx"] = Setting(value=window, source="server", raw="/api/ps context_length")
        command = None
        try:
            child = self.child()
        except CouldNotLookError as error:
            why = str(error)
            return Configuration(
                settings=settings,
                unread={name: why for name in _BY_CHILD if name not in settings},
            )
        command = child.configuration.command
        # The child is told the window of all slots together; what one request may use is what /api/ps says.
        merged = {**dict(child.configuration.settings), **settings}
        return Configuration(settings=merged, command=command)

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Ask the native API: raw for prompts, so that no template is put around them."""
        options: dict[str, Any] = {"num_predict": ask.max_tokens, "temperature": 0, "seed": ask.seed}
        if ask.stop:
            options["stop"] = list(ask.stop)
        options |= self._loads_with()
        body: dict[str, Any] = {"model": self.model_name(), "stream": ask.stream, "options": options}
        body |= self.stays()
        if ask.logprobs:
            body |= {"logprobs": True, "top_logprobs": ask.logprobs}
        if ask.messages is not None:
            return self.chat_path, body | {"messages": salted(ask.messages, ask.salt)}
        return self.completion_path, body | {"prompt": ask.salt + (ask.prompt or ""), "raw": True}

    def tokenize(self, text: str) -> Sequence[int]:
        """By the llama-server that it runs; Ollama itself has no such endpoint."""
        return self._directly(lambda server: server.tokenize(text))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """By the llama-server that it runs."""
        return self._directly(lambda server: server.detokenize(tokens))

    def _directly(self, ask: Callable[[Backend], T]) -> T:
        """Ask its llama-server. A model that was unloaded since is loaded again: a count of its tokens is of the measuring."""
        if self._window is None:
            return ask(self.child().backend)
        self.wake()
        try:
            return ask(self.child().backend)
        except (UnreachableError, ServerDiedError):
            # it was unloaded between the two
            self.wake()
            return ask(self.child().backend)

    def busy(self) -> bool | None:
        """Say whether its llama-server works."""
        try:
            return self.child().backend.busy()
        except CouldNotLookError:
            return None


def full_name(name: object) -> str:
    """Write a model's name as Ollama compares it: with its tag, without the host and folder that it takes by itself, whatever its case."""
    told = (text_of(name, 500) or "").casefold()
    told = told.removeprefix("registry.ollama.ai/").removeprefix("library/")
    return told if ":" in told.rsplit("/", maxsplit=1)[-1] or not told else f"{told}:latest"


def default_window(vram_bytes: int) -> int:
    """Give the window that Ollama 0.33 takes by itself on a machine with that much VRAM in all."""
    gib = vram_bytes / (1 << 30)
    return next(window for least, window in DEFAULT_TIERS if gib >= least)
