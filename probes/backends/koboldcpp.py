"""KoboldCpp: cuts long prompts from the front without a word; its own counters tell counts and times afterwards."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from probes.backends.base import Ask, Feature, Signs
from probes.backends.http import Http, count, seconds, text_of
from probes.backends.logprobs import likeliest
from probes.backends.openai_compatible import OpenAiCompatible, StreamReading
from probes.evidence.errors import BadAnswerError, CouldNotLookError, NotOfferedError
from probes.evidence.request import Completion
from probes.evidence.subject import ModelIdentity, WindowReading

_DUMMY_USAGE = {"prompt_tokens": 100, "completion_tokens": 100, "total_tokens": 200}
_STOPPED = {0: "length", 1: "stop", 2: "stop"}
MOST_IDS = 65_535
CLOCKS_S = 0.05
SERVES_ONE_UP_TO = (1, 104)
"""The newest version that was seen without --parallelrequests; 1.115 has it."""
SETTLING_S = (0.1, 0.2, 0.4)
_FLOOR = math.log(1e-4) + 1e-4
"""It tells no smaller probability than one in ten thousand: what is told as that is smaller, nobody knows how much."""


class KoboldReading(StreamReading):
    """Its older versions answer made-up counts, which are no counts."""

    def counts(self) -> dict[str, Any]:
        """Counts as told, without the made-up ones."""
        if all(self.usage.get(key) == value for key, value in _DUMMY_USAGE.items()):
            self.usage = {}
        return super().counts()


class KoboldCpp(OpenAiCompatible):
    """KoboldCpp."""

    name: ClassVar[str] = "koboldcpp"
    offers: ClassVar[frozenset[Feature]] = frozenset(
        {
            "identity",
            "version",
            "model",
            "window",
            "slots",
            "tokenize",
            "chat",
            "completion",
            "server-times",
            "logprobs",
            "streaming",
        }
    )
    reading: ClassVar[type[StreamReading]] = KoboldReading

    def __init__(self, http: Http, model: str | None = None) -> None:
        super().__init__(http, model)
        self._told_window: int | None = None

    @classmethod
    def recognise(cls, signs: Signs) -> str | None:
        """By ``/api/extra/version``; it imitates Ollama and llama.cpp, so it is asked first."""
        if signs.json("/api/extra/version").get("result") == "KoboldCpp":
            return "/api/extra/version says KoboldCpp"
        software = signs.json("/.well-known/serviceinfo").get("software")
        return (
            "/.well-known/serviceinfo says KoboldCpp"
            if isinstance(software, dict) and software.get("name") == "KoboldCpp"
            else None
        )

    def version(self) -> str | None:
        """Version, from ``/api/extra/version``."""
        return text_of(self.ask_object("/api/extra/version").get("version"), 200)

    def model_identity(self) -> ModelIdentity:
        """Model's name, from ``/api/v1/model``; whether it has a chat template, from ``/props``."""
        name = text_of(self.ask_object("/api/v1/model").get("result"), 500)
        if name is None:
            raise NotOfferedError("KoboldCpp does not say which model is loaded")
        props = self.ask_object("/props")
        template = bool(props["chat_template"]) if isinstance(props.get("chat_template"), str) else None
        return ModelIdentity(name=name.removeprefix("koboldcpp/"), chat_template=template)

    def model_name(self) -> str | None:
        """Give the model's name; requests need none here."""
        return self.model or "koboldcpp"

    def window(self) -> WindowReading:
        """The real window, asked for or not; ``/api/v1/config/max_context_length`` may be another limit."""
        told = self._window()
        if not told:
            raise NotOfferedError("KoboldCpp's /api/extra/true_max_context_length does not answer")
        return WindowReading(per_slot=told, slots=1 if self._serves_one() else None, in_force=told)

    def _serves_one(self) -> bool:
        """Say whether this version cannot serve several at once: newer ones can (--parallelrequests), and still tell one slot."""
        match = re.match(r"(\d+)\.(\d+)", self.version() or "")
        return match is not None and (int(match[1]), int(match[2])) <= SERVES_ONE_UP_TO

    def _window(self) -> int | None:
        if self._told_window is None:
            self._told_window = count(self.ask_object("/api/extra/true_max_context_length").get("value")) or None
        return self._told_window

    def forget(self) -> None:
        """Forget the window, too: another configuration may be loaded in place."""
        super().forget()
        self._told_window = None

    def tokenize(self, text: str) -> Sequence[int]:
        """``POST /api/extra/tokencount``; asked in parts, since older versions answer 0 for more than 50,000 characters."""
        if len(text) > 50_000:
            raise NotOfferedError("KoboldCpp's tokenizer endpoint takes at most 50,000 characters at once")
        tokens = self.tokens_from("/api/extra/tokencount", {"prompt": text, "special": False}, "ids")
        if text and not tokens:
            raise BadAnswerError("KoboldCpp counted no tokens in a text that is not empty")
        return tokens

    def count_tokens(self, text: str) -> int:
        """Count in parts of at most 40,000 characters, cut at a line or space: exact to the token at each cut."""
        counted = 0
        while text:
            cut = len(text)
            if cut > 40_000:
                cut = max(text.rfind("\n", 20_000, 40_000), text.rfind(" ", 20_000, 40_000))
                cut = 40_000 if cut <= 0 else cut
            counted += len(self.tokenize(text[:cut]))
            text = text[cut:]
        return counted

    def count_chat_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        """``POST /api/extra/tokencount`` with messages, which newer versions write out by their template; older ones see no text in them."""
        body = {"messages": list(messages), "special": True}
        reply = self.http.post_json("/api/extra/tokencount", body, deadline_s=60)
        told = reply.json_object() if reply.status == 200 else {}
        counted = count(told.get("value"))
        if not counted or not told.get("prompt"):
            raise NotOfferedError("this version of KoboldCpp cannot count a chat without running it")
        return counted

    def detokenize(self, tokens: Sequence[int]) -> str:
        """``POST /api/extra/detokenize``; it answers an empty text for 65,536 ids or more."""
        if len(tokens) > MOST_IDS:
            raise NotOfferedError(f"KoboldCpp's detokenizer takes at most {MOST_IDS} tokens at once")
        reply = self.http.post_json("/api/extra/detokenize", {"ids": list(tokens)}, deadline_s=60)
        told = reply.json_object() if reply.status == 200 else {}
        text = told.get("result")
        if not isinstance(text, str):
            raise BadAnswerError("/api/extra/detokenize did not answer a text; is there a proxy in between?")
        return text

    def _perf(self) -> dict[str, Any]:
        try:
            return self.ask_object("/api/extra/perf", deadline_s=5)
        except CouldNotLookError:
            return {}

    def request(self, ask: Ask) -> tuple[str, dict[str, Any]]:
        """Log-probabilities are told of what its samplers leave: at temperature 0 that is one token. They are asked for without samplers."""
        path, body = super().request(ask)
        if ask.logprobs:
            body |= {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
            # An order of its own keeps it out of the batch of several requests, which tells none; without samplers it orders nothing.
            body["sampler_order"] = [6, 0, 1, 2, 3, 4, 5]
        return path, body

    def _last_logprobs(self) -> tuple[dict[str, float], ...]:
        """Give the log-probabilities of the last request: versions that stream none tell them afterwards."""
        try:
            reply = self.http.post_json("/api/extra/last_logprobs", {}, deadline_s=10)
            told = reply.json_object() if reply.status == 200 else {}
        except CouldNotLookError:
            return ()
        return tuple(likeliest(told))

    def complete(self, ask: Ask) -> Completion:
        """Send one completion; counts and times from its counters, if no other request came in between."""
        before = count(self._perf().get("total_gens"))
        path, body = self.request(ask)
        reading, total_s = self.read(ask, path, body)
        told = reading.result(total_s)
        if told.error is not None:
            return told
        told = told.model_copy(update={"logprobs": _above_floor(told.logprobs)})
        after = self._perf()
        if before is None or count(after.get("total_gens")) != before + 1:
            return told
        update: dict[str, Any] = {}
        if ask.logprobs and not told.logprobs:
            update["logprobs"] = _above_floor(self._last_logprobs())
        prompt, generated = count(after.get("last_input_count")), count(after.get("last_token_count"))
        if prompt:
            update["prompt_tokens"] = prompt
            if ask.salt and not ask.use_cache:
                update["processed_tokens"] = prompt
        if generated is not None:
            update["generated_tokens"] = generated
        counted = update.get("prompt_tokens", told.prompt_tokens)
        window, read_s = self._window(), seconds(after.get("last_process_time")) or None
        at_edge = counted is not None and window is not None and counted + ask.max_tokens >= window
        if (
            at_edge
            and read_s is not None
            and told.client_total_s is not None
            and read_s > told.client_total_s + CLOCKS_S
        ):
            # Where the front was cut off, the salt went with it: what is left was known already, at least in part.
            told, update = told.model_copy(update={"processed_tokens": None}), {**update, "processed_tokens": None}
        processed = update.get("processed_tokens", told.processed_tokens)
        if processed is not None and processed == counted:
            # It tells the time of a token that it read, times all tokens of the prompt: right only where none was read before.
            update["server_prompt_s"] = read_s
        update["server_generation_s"] = seconds(after.get("last_eval_time")) or None  # 0 is too short to be told
        stopped = after.get("stop_reason")
        if told.finish is None and isinstance(stopped, int):
            update["finish"] = _STOPPED.get(stopped)
        accepted, failed = count(after.get("last_draft_success")), count(after.get("last_draft_failed"))
        if accepted is not None and failed is not None and accepted + failed:
            update |= {"accepted_tokens": accepted, "drafted_tokens": accepted + failed}
        return Completion.model_validate({**told.model_dump(), **{k: v for k, v in update.items() if v is not None}})

    def busy(self) -> bool | None:
        """Say whether it works or has others waiting, from its counters; for some moments after an answer it is not idle yet."""
        for pause in (*SETTLING_S, None):
            perf = self._perf()
            idle, queue = perf.get("idle"), count(perf.get("queue"))
            if not isinstance(idle, int | float):
                return None
            if idle != 0 and not queue:
                return False
            if queue or pause is None:
                break
            time.sleep(pause)
        return True


def _above_floor(tables: Sequence[dict[str, float]]) -> tuple[dict[str, float], ...]:
    return tuple({token: value for token, value in table.items() if value > _FLOOR} for table in tables)
