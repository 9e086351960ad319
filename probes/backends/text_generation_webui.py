"""text-generation-webui: cuts long chats without a word; its llama.cpp loader runs a llama-server child that tells the rest.

What the program of version 4.7.3 does, by its sources and by running it: every loader counts the whole prompt of a completion in ``usage``, also
where only its end was read (all but llama.cpp: the last ``truncation_length - max_tokens`` tokens); a prompt that the llama-server refuses, and
everything else that fails while it generates, is answered with HTTP 200 and an empty text; generated tokens are counted by encoding the answer anew,
with the token that begins every text.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.children import LlamaChild, find_child
from probes.backends.commands import detect_backend
from probes.backends.http import Http, is_loopback, text_of
from probes.backends.openai_compatible import OpenAiCompatible, salted
from probes.evidence.errors import BadAnswerError, CouldNotLookError, NotOfferedError, ServerDiedError
from probes.evidence.request import Completion, RequestError
from probes.evidence.subject import Configuration, ModelIdentity, Setting, WindowReading

_INFO = "/v1/internal/model/info"
LEAST_FRONT, MOST_FRONT = 256, 8192
"""Words of the message that is dropped when a window is measured: a shorter one is no sign, a longer one costs more than several requests."""
MOST_WINDOW = 1 << 20
LONGEST_S = 10.0
TRIED = 64
"""Tokens to which a short prompt is cut to see whether this loader cuts."""
LOAD_S = 600.0
SETTLING_S = (0.1, 0.3)
DIFFERS = 0.02
"""So far apart are the log-probabilities of two different prompts at least; those of the same prompt are not."""


class TextGenerationWebui(OpenAiCompatible):
    """text-generation-webui's API."""

    name: ClassVar[str] = "text-generation-webui"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {"identity", "model", "window", "tokenize", "chat", "completion", "configuration", "logprobs", "streaming"}
    )

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._loader: str | None = None
        self._cut_at: int | None = None
        self._begins: tuple[int, ...] | None = None
        self._cuts: bool | None = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/v1/internal/model/info``."""
        told = signs.json(_INFO)
        return _INFO if {"model_name", "loader"} <= told.keys() or {"model_name", "lora_names"} <= told.keys() else None

    def forget(self) -> None:
        """Forget window and loader: another model may be loaded in place."""
        super().forget()
        self._loader = self._cut_at = self._begins = self._cuts = None

    def model_identity(self) -> ModelIdentity:
        """Model, from ``/v1/internal/model/info``, which names also one that could not be loaded; NotOfferedError where none is loaded."""
        name = self._loaded()
        return ModelIdentity(name=name, path=self._path(name))

    def _loaded(self) -> str:
        """Give the name of the model that is loaded. NotOfferedError, the same whoever asks, where there is none. Loads none."""
        told = self.ask_object(_INFO)
        name = text_of(told.get("model_name"), 500)
        if name is None or name == "None":
            raise NotOfferedError("text-generation-webui has no model loaded; load one, then look again")
        if told.get("loader") == "llama.cpp":
            gone = self._childless()
            if gone is not None:
                if gone:
                    raise _only_named()
                return name
        if self.cut_at() == 0:
            raise _only_named()
        return name

    def wake(self) -> None:
        """Have a model that was unloaded when idle loaded again, as the next request would. Nothing is done where one is loaded, or none is named."""
        with contextlib.suppress(CouldNotLookError):
            try:
                self._loaded()
            except NotOfferedError:
                if text_of(self.ask_object(_INFO).get("model_name"), 500) in {None, "None"}:
                    return
                # with --idle-timeout whoever counts tokens has it loaded; without, this is refused at once
                self.http.post_json("/v1/internal/token-count", {"text": "a"}, deadline_s=LOAD_S)
                self.forget()

    def _childless(self) -> bool | None:
        """Say whether its process is seen without a llama-server; None where its processes cannot be seen."""
        try:
            self.child()
        except NotOfferedError:
            from probes.process import process_behind  # noqa: PLC0415 - looks at processes only when asked

            try:
                own = is_loopback(self.http.base_url) and detect_backend(process_behind(self.http.base_url).argv)
            except NotOfferedError:
                return None
            return True if own == self.name else None
        return False

    def _path(self, name: str) -> str | None:
        """Give the model's file or folder, where the server's process tells where it keeps them and that is on this machine."""
        from probes.process import process_behind  # noqa: PLC0415 - looks at processes only when asked

        try:
            if not is_loopback(self.http.base_url):
                return None
            process = process_behind(self.http.base_url)
        except NotOfferedError:
            return None
        if process.cwd is None or detect_backend(process.argv) != self.name:
            return None
        user = _after(process.argv, "--user-data-dir") or "user_data"
        models = _after(process.argv, "--model-dir") or f"{user}/models"
        for place in (Path(process.cwd, name), Path(process.cwd, models, name)):
            with contextlib.suppress(OSError, ValueError):
                if place.exists():
                    return str(place)
        return None

    def model_name(self) -> str | None:
        """Give the model's name; requests need none here."""
        return self.model

    def loader(self) -> str | None:
        """Give what runs the model: llama.cpp, Transformers, ExLlamav3 …; None where it is not told."""
        if self._loader is None:
            self._loader = text_of(self.ask_object(_INFO).get("loader"), 100)
        return self._loader

    def child(self) -> LlamaChild:
        """Give the llama-server that its llama.cpp loader runs. NotOfferedError where it cannot be seen."""
        return find_child(self.http)

    # -- the window -------------------------------------------------------------------------------------------------------------------------

    def window(self) -> WindowReading:
        """The llama-server's window; with other loaders, and where that cannot be seen, the length to which chats are cut, found by trying."""
        self._loaded()
        try:
            return self.child().backend.window()
        except NotOfferedError as error:
            cut_at = self.cut_at()
            if not cut_at:
                raise NotOfferedError(str(error)) from error
            return WindowReading(in_force=cut_at)

    def cut_at(self) -> int | None:
        """Give the tokens, prompt and answer together, to which it cuts; 0 where it cuts nothing, having no tokenizer; None where it does not say.

        ``POST /v1/internal/chat-prompt`` writes a chat out as a prompt and runs nothing: the oldest message is left out where it has no room beside
        the answer, and the room for the answer is what is varied here. Loads no model.
        """
        if self._cut_at is None:
            with contextlib.suppress(CouldNotLookError):
                self._cut_at = self._measured()
        return self._cut_at

    def _measured(self) -> int | None:
        """Find the largest room for the answer beside which a chat is still written out whole. Each request costs no more than counting its tokens."""
        ends = time.monotonic() + LONGEST_S
        words = 0
        while words < MOST_FRONT and self._has_room(max(LEAST_FRONT, 2 * words), 1):
            words = max(LEAST_FRONT, 2 * words)
        if not words:
            return None
        room = 1
        while self._has_room(words, room + words):
            room += words
            if room > MOST_WINDOW:
                return 0
            if time.monotonic() > ends:
                return None
        low, high = room, room + words
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has_room(words, middle) else (low, middle)
        return low + self._counted(self._prompt(_front(words), low))

    def _has_room(self, words: int, room: int) -> bool:
        """Say whether a chat whose first message has so many words is written out whole beside so many tokens of answer."""
        return _MARK in self._prompt(_front(words), room)

    def _prompt(self, messages: Sequence[Mapping[str, str]], room: int, **more: int) -> str:
        body = {"messages": list(messages), "max_tokens": room, **more}
        reply = self.http.post_json("/v1/internal/chat-prompt", body, deadline_s=LONGEST_S)
        if reply.status != 200:
            raise NotOfferedError(f"text-generation-webui: /v1/internal/chat-prompt answered HTTP {reply.status}")
        prompt = reply.json_object().get("prompt")
        if not isinstance(prompt, str):
            raise BadAnswerError("/v1/internal/chat-prompt did not answer a prompt; is there a proxy in between?")
        return prompt

    def _counted(self, text: str) -> int:
        return self.number_from("/v1/internal/token-count", {"text": text}, "length")

    def configuration(self) -> Configuration:
        """The loader, and the child's command line; a cache type that the loader does not know is not handed on, so none is the whole type."""
        loader = self.loader()
        settings = {"loader": Setting(value=loader, source="server", raw=_INFO)} if loader else {}
        try:
            found = self.child().configuration
        except NotOfferedError:
            if loader in {None, "llama.cpp"}:
                raise
            return Configuration(settings=settings)
        whole = Setting(value="f16", source="server", raw="(none is handed on to llama-server)")
        types = {name: whole for name in ("kv_type_k", "kv_type_v") if name not in found.settings}
        # nobody starts that command: text-generation-webui's own is what is changed
        return found.model_copy(update={"settings": {**found.settings, **types, **settings}, "command": None})

    # -- tokens -----------------------------------------------------------------------------------------------------------------------------

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /v1/internal/encode``, without the special tokens that it puts around every text."""
        try:
            tokens = self.tokens_from("/v1/internal/encode", {"text": text}, "tokens")
        except NotOfferedError as error:
            if self.lost():
                raise ServerDiedError("text-generation-webui's llama-server has ended; see its log") from error
            raise
        if not text:
            return []
        begins = self._special()
        return tokens[len(begins) :] if begins and tuple(tokens[: len(begins)]) == begins else tokens

    def _special(self) -> tuple[int, ...]:
        """Give the tokens that stand before every text."""
        if self._begins is None:
            self._begins = tuple(self.tokens_from("/v1/internal/encode", {"text": ""}, "tokens"))
        return self._begins

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /v1/internal/decode``."""
        reply = self.http.post_json("/v1/internal/decode", {"tokens": list(tokens)}, deadline_s=60)
        if reply.status != 200:
            raise NotOfferedError(f"text-generation-webui: /v1/internal/decode answered HTTP {reply.status}")
        text = reply.json_object().get("text")
        if not isinstance(text, str):
            raise BadAnswerError("/v1/internal/decode did not answer a text; is there a proxy in between?")
        return text

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """Count a chat as it is written out, uncut."""
        return self._counted(self._prompt(messages, 1, truncation_length=1 << 40))

    # -- asking -----------------------------------------------------------------------------------------------------------------------------

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Log-probabilities are asked for in one piece where its own samplers choose: its streams tell the last ones twice and leave others out."""
        if ask.logprobs and ask.stream and self.loader() not in {None, "llama.cpp"}:
            ask = replace(ask, stream=False)
        return super().request(ask)

    def complete(self, ask: Ask) -> Completion:
        """Send one completion; say what an empty answer means, and count what was read and not what was sent."""
        told = super().complete(ask)
        if told.error is not None:
            if told.error.error in {"connection-lost", "server-error"} and self.lost():
                message = f"text-generation-webui's llama-server has ended; see its log ({told.error.message})"
                error = told.error.model_copy(update={"error": "connection-lost", "message": message})
                return told.model_copy(update={"error": error})
            return told
        with contextlib.suppress(CouldNotLookError):
            told = self._without_special(told, ask)
            if not told.text and not told.generated_tokens and ask.max_tokens > 0:
                why = self._why_empty(told, ask)
                if why is not None:
                    return Completion(error=why, client_total_s=told.client_total_s)
            told = self._as_read(told, ask)
        return told

    def _without_special(self, told: Completion, ask: Ask) -> Completion:
        """Take the token that begins every text off the count of the answer, which was encoded anew."""
        generated = told.generated_tokens
        if generated is None:
            return told
        return told.model_copy(
            update={"generated_tokens": min(max(0, generated - len(self._special())), max(0, ask.max_tokens))}
        )

    def _why_empty(self, told: Completion, ask: Ask) -> RequestError | None:
        """Say what failed where an answer is empty; None where the model ended it at once."""
        prompt, window = told.prompt_tokens, None
        if self.loader() == "llama.cpp":
            with contextlib.suppress(CouldNotLookError):
                window = self.window().in_force
            if prompt is not None and window is not None and prompt >= window:
                return RequestError(
                    error="exceeds-window",
                    status=200,
                    message=f"answered with an empty text: its llama-server refuses {prompt} tokens in a window of {window}",
                    prompt_tokens=prompt,
                    window=window,
                    after_s=told.client_total_s,
                )
        if told.logprobs:
            return None
        again = super().complete(replace(ask, max_tokens=1, logprobs=1, stream=True))
        if again.logprobs or again.error is not None:
            # a token was chosen, and it ended the answer
            return again.error
        return RequestError(
            error="server-error",
            status=200,
            message="answered with an empty text, and no token was generated: generating failed, and its log says why",
            prompt_tokens=prompt,
            after_s=told.client_total_s,
        )

    def _as_read(self, told: Completion, ask: Ask) -> Completion:
        """Count of a prompt what was read of it: all loaders but llama.cpp keep the end of it, and count the whole."""
        if self.loader() in {None, "llama.cpp"}:
            return told
        prompt, cut_at, more = told.prompt_tokens, self.cut_at(), {}
        if ask.messages is not None and prompt is None:
            # Transformers counts no chat: written out as it was, and as it was cut, it can be counted
            prompt = self._counted(self._prompt(salted(ask.messages, ask.salt), ask.max_tokens))
        elif ask.messages is None and prompt is not None and cut_at and prompt > cut_at - ask.max_tokens:
            prompt = max(0, cut_at - ask.max_tokens) if self.cuts() else None
            more = {"truncated": True} if prompt is not None else {}
        if self.loader() == "Transformers":
            # it keeps nothing from one request to the next
            return told.model_copy(
                update={
                    "prompt_tokens": prompt,
                    "cached_tokens": None if prompt is None else 0,
                    "processed_tokens": prompt,
                    **more,
                }
            )
        processed = prompt if told.processed_tokens is not None else None
        return told.model_copy(update={"prompt_tokens": prompt, "processed_tokens": processed, **more})

    def cuts(self) -> bool:
        """Say whether a raw prompt is cut without a word: a short one is sent twice, once with a limit of its own below its length.

        What follows is the same where all of it was read both times, and differs where it was not.
        """
        if self._cuts is None:
            text = "".join(f"{number * 7919 % 1000} " for number in range(2 * TRIED))
            path, body = self.request(Ask(prompt=text, max_tokens=1, logprobs=5))
            ask = Ask(prompt=text, max_tokens=1, logprobs=5, deadline_s=60)
            whole, cut = (
                self.read(ask, path, body | limit)[0].result(0.0).logprobs
                for limit in ({}, {"truncation_length": TRIED})
            )
            self._cuts = bool(whole and cut) and _differ(whole[0], cut[0])
        return self._cuts

    def lost(self) -> bool:
        """Say whether its llama-server has ended: text-generation-webui goes on answering, and starts no other."""
        try:
            return self.loader() == "llama.cpp" and self._childless() is True
        except CouldNotLookError:
            return False

    def busy(self) -> bool | None:
        """Say whether the child works. It goes on for a moment with an answer that was cut short by a stop word."""
        try:
            child = self.child().backend
        except NotOfferedError:
            return None
        told = child.busy()
        for pause in SETTLING_S:
            if not told:
                break
            time.sleep(pause)
            told = child.busy()
        return told


def _only_named() -> NotOfferedError:
    return NotOfferedError(
        "text-generation-webui names a model but has none loaded: it could not be loaded, ended, or was unloaded when idle; its log says which; "
        "load one, then look again"
    )


def _after(argv: Sequence[str], flag: str) -> str | None:
    """Give the value of a flag on a command line."""
    for word, following in zip(argv, (*argv[1:], ""), strict=True):
        if word == flag:
            return following
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _differ(one: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Say whether two tables of log-probabilities are those of two prompts."""
    return one.keys() != other.keys() or any(abs(value - other[token]) > DIFFERS for token, value in one.items())


_MARK = "seven of nine"


def _front(words: int) -> tuple[dict[str, str], ...]:
    """Give a chat whose first message is long and can be left out."""
    return (
        {"role": "user", "content": f"{_MARK}{' 7' * words}"},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "go"},
    )
