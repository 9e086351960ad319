"""text-generation-webui as version 4.7.3 answers (its modules/api/completions.py, modules/chat.py, modules/text_generation.py; each was seen running).

It counts what was sent and not what was read, answers failures with an empty text and HTTP 200, and tells no window; so none of that is believed.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import pytest

from diagnose.steps import with_command
from probes.backends import text_generation_webui as module
from probes.backends.base import Ask, Backend
from probes.backends.children import LlamaChild
from probes.backends.commands import change_command, parse_command, truncation_steps
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.backends.settings_files import with_files
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.errors import NotOfferedError, RefusedSettingError, ServerDiedError
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import TruncationReading
from probes.evidence.subject import BackendIdentity, Configuration, ModelIdentity, Setting, WindowReading
from probes.process import ServerProcess
from probes.truncation import TruncationProbe
from rules.verdict import Cost, NextTest
from tests.diagnose.llama_like import _PIECE

from .loopback import Loopback, _Handler

BEGIN = 900_001
WINDOW = 1024


class Webui(Loopback):
    """The server, a token a word. ``cut_at``: its truncation_length; ``slot``: the window of its llama-server, with that loader."""

    def __init__(self, loader: str, cut_at: int, *, slot: int | None = None, begins: bool = False) -> None:
        super().__init__({}, default={"status": 404, "json": {"detail": "Not Found"}, "headers": {"server": "uvicorn"}})
        self.loader, self.cut_at, self.slot, self.begins = loader, cut_at, slot, begins
        self.loaded, self.fails, self.ends_at_once = True, False, False
        self.words: list[str] = []
        self.warned = 0
        self.read: list[int] = []
        self.answers["GET /v1/internal/model/info"] = {
            "json": {"model_name": "m", "lora_names": [], "loader": loader},
        }
        self.answers["GET /v1/models"] = {
            "json": {"object": "list", "data": [{"id": "m", "object": "model", "created": 0, "owned_by": "user"}]}
        }
        for path, act in (
            ("encode", self._encode),
            ("decode", self._decode),
            ("token-count", self._count),
            ("chat-prompt", self._chat_prompt),
        ):
            self.faults[f"POST /v1/internal/{path}"] = act
        self.faults["POST /v1/completions"] = self._complete
        self.faults["POST /v1/chat/completions"] = self._complete

    def tokens(self, text: str) -> list[int]:
        ids = []
        for word in _PIECE.findall(text):
            if word not in self.words:
                self.words.append(word)
            ids.append(self.words.index(word))
        return ([BEGIN] if self.begins else []) + ids

    def _body(self) -> Any:
        return self.asked[-1][2]

    def _say(self, handler: _Handler, told: Any, status: int = 200) -> None:
        handler.answer(
            {"status": status, "json": told} if status == 200 else {"status": status, "text": "Internal Server Error"}
        )

    def _needs_model(self, handler: _Handler, told: Any) -> None:
        self._say(handler, told, 200 if self.loaded else 500)

    def _encode(self, handler: _Handler) -> None:
        ids = self.tokens(self._body()["text"])
        self._needs_model(handler, {"tokens": ids, "length": len(ids)})

    def _count(self, handler: _Handler) -> None:
        self._needs_model(handler, {"length": len(self.tokens(self._body()["text"]))})

    def _decode(self, handler: _Handler) -> None:
        self._needs_model(
            handler, {"text": "".join(self.words[token] for token in self._body()["tokens"] if token != BEGIN)}
        )

    def written(self, messages: list[dict[str, str]], room: int, limit: int) -> str:
        """Write a chat out; the oldest messages are left out without a word, the last one is cut with a warning."""
        messages = list(messages)
        while self.loaded:
            text = "".join(f"{one['role']}: {one['content']}\n" for one in messages) + "assistant:"
            if len(self.tokens(text)) <= limit - room:
                return text
            if len(messages) > 1:
                messages.pop(0)
            else:
                self.warned += 1
                return "".join(_PIECE.findall(text)[: max(0, limit - room - self.begins)])
        return "".join(f"{one['role']}: {one['content']}\n" for one in messages) + "assistant:"

    def _chat_prompt(self, handler: _Handler) -> None:
        body = self._body()
        limit = body.get("truncation_length") or self.cut_at
        self._say(handler, {"prompt": self.written(body["messages"], body["max_tokens"], limit)})

    def _complete(self, handler: _Handler) -> None:
        if not self.loaded:
            handler.answer({"status": 200, "sse": [], "cut": True})
            return
        body = self._body()
        limit, most = body.get("truncation_length") or self.cut_at, body["max_tokens"]
        chat = "messages" in body
        text = self.written(body["messages"], most, limit) if chat else body["prompt"]
        ids = self.tokens(text)
        kept = ids if self.loader == "llama.cpp" else ids[-(limit - most) :]
        refused = self.slot is not None and len(ids) >= self.slot
        silent = refused or self.fails
        self.read.append(0 if silent else len(kept))
        answer = "" if silent or self.ends_at_once else " copper" * most
        table = {} if silent else {f"t{n}": -1.0 - n - (hash(tuple(kept)) % 97) / 100 for n in range(5)}
        logprobs = (
            {"top_logprobs": [table] * (1 if self.ends_at_once else most)} if table and body.get("logprobs") else None
        )
        counted = 0 if chat and self.loader == "Transformers" else len(ids)
        told = len(self.tokens(answer))
        usage = {"prompt_tokens": counted, "completion_tokens": told, "total_tokens": counted + told}
        shape = {"delta": {"content": answer}} if chat else {"text": answer}
        if not body.get("stream"):
            self._say(
                handler,
                {"choices": [{"index": 0, **shape, "finish_reason": "length", "logprobs": logprobs}], "usage": usage},
            )
            return
        events = [
            {"choices": [{"index": 0, "finish_reason": None, **shape, "logprobs": logprobs}], "usage": None},
            {
                "choices": [
                    {
                        "index": 0,
                        "finish_reason": "length" if told else "stop",
                        **(({"delta": {}}) if chat else {"text": ""}),
                    }
                ]
            },
            {"choices": [], "usage": usage},
        ]
        handler.answer({"sse": [*events, "[DONE]"]})


@contextlib.contextmanager
def asked(server: Webui) -> Iterator[Backend]:
    with server, Http(server.url) as http:
        backend = recognise(http)
        assert http.requests_sent <= MOST_GETS
        yield backend


def probed(backend: Backend, window: int) -> TruncationReading:
    context = ProbeContext(backend=backend, counter=counter_for(backend), ends_at=time.monotonic() + 600)
    told = [one.payload() for one in TruncationProbe(window).collect(context) if one.data is not None]
    return next(one for one in told if isinstance(one, TruncationReading))


@pytest.mark.parametrize("cut_at", [600, 1024, 8192, 32_768, 100_003])
@pytest.mark.parametrize("begins", [False, True])
def test_the_window_is_found_by_writing_chats_out(cut_at, begins):
    """To the token, in few requests that run nothing, and without a line in the server's log."""
    server = Webui("Transformers", cut_at, begins=begins)
    with asked(server) as backend:
        assert backend.window() == WindowReading(in_force=cut_at)
        assert len(server.asked) < 60
        assert server.warned == 0
        assert not server.read
        backend.window()
        assert backend.http.requests_sent < 60


def test_a_raw_prompt_that_is_cut_is_counted_as_it_was_read():
    """Its own count is that of the whole prompt, above the window as well; that its end alone was read is proven by what follows on it."""
    server = Webui("Transformers", WINDOW, begins=True)
    with asked(server) as backend:
        told = backend.complete(Ask(prompt="word " * 2000, max_tokens=4, use_cache=False, salt="x9 "))
        assert told.error is None
        assert (told.prompt_tokens, told.processed_tokens, told.cached_tokens) == (WINDOW - 4, WINDOW - 4, 0)
        assert told.truncated is True
        assert told.prompt_tokens == server.read[0]
        fits = backend.complete(Ask(prompt="word " * 300, max_tokens=4))
        assert (fits.prompt_tokens, fits.truncated) == (server.read[-1], None)
        reading = probed(backend, WINDOW)
    assert (reading.verdict, reading.rule, reading.processed) == ("truncated", "head-cut", WINDOW - 1)
    assert WINDOW > reading.below_processed >= 0.9 * WINDOW


def test_what_cannot_be_proven_is_not_counted(monkeypatch):
    """Where a short limit changes nothing of what follows, it is not known how much was read."""
    server = Webui("ExLlamav3", WINDOW)
    with asked(server) as backend:
        monkeypatch.setattr(module, "_differ", lambda _one, _other: False)
        told = backend.complete(Ask(prompt="word " * 2000, max_tokens=4))
        assert (told.error, told.prompt_tokens, told.processed_tokens) == (None, None, None)


def test_generated_tokens_are_counted_without_the_one_that_begins_every_text():
    """It encodes its answer anew, as it does every text."""
    for begins in (False, True):
        with asked(Webui("Transformers", WINDOW, begins=begins)) as backend:
            assert backend.complete(Ask(prompt="a b c", max_tokens=5)).generated_tokens == 5
            ids = backend.tokenize("one two three")
            assert BEGIN not in ids
            assert backend.count_tokens("one two three") == len(ids)
            assert backend.detokenize(ids) == "one two three"


def test_chats_are_counted_as_they_are_written_out():
    """Transformers counts none itself; one that is cut is counted as it was cut, and can be counted whole without running it."""
    server = Webui("Transformers", WINDOW)
    long = (
        {"role": "user", "content": "old " * 900},
        {"role": "assistant", "content": "yes"},
        {"role": "user", "content": "new " * 300},
    )
    with asked(server) as backend:
        told = backend.complete(Ask(messages=long, max_tokens=4))
        assert 300 < told.prompt_tokens == server.read[-1] < WINDOW
        assert backend.count_chat_tokens(long) > WINDOW


def test_an_empty_answer_above_the_window_is_a_refusal(monkeypatch):
    """Its llama-server refused the prompt; the answer is HTTP 200, an empty text and the count of all that was sent."""
    server = Webui("llama.cpp", 2 * WINDOW, slot=WINDOW)
    with asked(server) as backend:
        monkeypatch.setattr(backend, "child", lambda: child_of(WINDOW))
        told = backend.complete(Ask(prompt="word " * 1500, max_tokens=4))
        assert (told.error.error, told.error.window) == ("exceeds-window", WINDOW)
        assert told.error.prompt_tokens >= 1500
        assert (told.text, told.prompt_tokens, told.processed_tokens, told.generated_tokens) == (None,) * 4
        reading = probed(backend, WINDOW)
    assert (reading.verdict, reading.window, reading.silent) == ("refused", WINDOW, True)


def test_where_raw_prompts_are_refused_chats_are_cut(monkeypatch):
    """What most clients send is shortened without a word: that is what the probe tells, and not a refusal."""
    server = Webui("llama.cpp", WINDOW, slot=WINDOW)
    with asked(server) as backend:
        monkeypatch.setattr(backend, "child", lambda: child_of(WINDOW))
        reading = probed(backend, WINDOW)
    assert (reading.verdict, reading.rule, reading.silent) == ("truncated", "window-cut", False)
    assert reading.processed == WINDOW - 1 < reading.sent
    assert WINDOW > reading.below_processed >= 0.9 * WINDOW
    assert "a raw prompt" in reading.message


def test_an_empty_answer_without_a_token_is_a_failure_and_with_one_is_none():
    """What fails while it generates (memory that ran out, for one) is answered so; a model that ends at once has chosen a token."""
    for loader in ("llama.cpp", "Transformers"):
        server = Webui(loader, WINDOW)
        with asked(server) as backend:
            server.fails = True
            told = backend.complete(Ask(prompt="a b c", max_tokens=4))
            assert told.error.error == "server-error"
            assert "its log says why" in told.error.message
            server.fails, server.ends_at_once = False, True
            told = backend.complete(Ask(prompt="a b c", max_tokens=4))
            assert (told.error, told.text, told.generated_tokens) == (None, "", 0)


def test_no_model_and_a_model_that_is_only_named():
    """One that could not be loaded keeps its name; both are said in the same words by whoever asks."""
    for loader, name in (("Transformers", "m"), ("llama.cpp", "None"), (None, "None")):
        server = Webui(loader or "llama.cpp", WINDOW)
        server.loaded = False
        server.answers["GET /v1/internal/model/info"]["json"] |= {"model_name": name, "loader": loader}
        with asked(server) as backend:
            said = []
            for look in (backend.model_identity, backend.window):
                with pytest.raises(NotOfferedError) as error:
                    look()
                said.append(str(error.value))
            assert said[0] == said[1]
            assert "load one, then look again" in said[0]
            assert not {path for path in server.paths if path.endswith(("/encode", "/token-count", "/load"))}


def test_a_model_that_was_unloaded_when_idle_is_loaded_before_a_run_and_by_no_look():
    """Counting tokens loads it, as any request does; where none is named, or it cannot be loaded, nothing else is tried."""
    server = Webui("Transformers", WINDOW)
    server.loaded = False

    def load(handler: _Handler) -> None:
        server.loaded = True
        server._count(handler)

    with asked(server) as backend:
        with pytest.raises(NotOfferedError):
            backend.window()
        server.faults["POST /v1/internal/token-count"] = load
        backend.wake()
        assert server.loaded
        assert backend.window().in_force == WINDOW
        before = len(server.asked)
        backend.wake()
        assert "/v1/internal/model/load" not in server.paths
        assert len(server.asked) <= before + 2
    server = Webui("Transformers", WINDOW)
    server.loaded = False
    server.answers["GET /v1/internal/model/info"]["json"]["model_name"] = "None"
    with asked(server) as backend:
        backend.wake()
        assert "/v1/internal/token-count" not in server.paths


def test_a_llama_server_that_ended_is_a_dead_server(monkeypatch):
    """text-generation-webui goes on answering, with streams that break off and HTTP 500."""
    server = Webui("llama.cpp", WINDOW, slot=WINDOW)
    with asked(server) as backend:
        assert not backend.lost()
        monkeypatch.setattr(backend, "_childless", lambda: True)
        server.loaded = False
        told = backend.complete(Ask(prompt="a b c", max_tokens=4))
        assert told.error.error == "connection-lost"
        assert "llama-server has ended" in told.error.message
        with pytest.raises(ServerDiedError):
            backend.tokenize("a")
        assert backend.lost()


def test_a_cache_type_that_was_not_handed_on_is_the_whole_one(monkeypatch):
    """Of the cache types its llama.cpp loader hands on fp16, q8_0 and q4_0; any other is left out without a word."""
    with asked(Webui("llama.cpp", WINDOW)) as backend:
        monkeypatch.setattr(backend, "child", lambda: child_of(WINDOW))
        settings = backend.configuration().settings
        assert (settings["kv_type_k"].value, settings["kv_type_k"].source) == ("f16", "server")


class _Direct:
    def __init__(self, window: int) -> None:
        self._window = window

    def window(self) -> WindowReading:
        return WindowReading(per_slot=self._window, in_force=self._window)


def child_of(window: int) -> LlamaChild:
    return LlamaChild(1, Configuration(), _Direct(window))  # type: ignore[arg-type]


def test_the_model_is_found_where_the_process_keeps_it(monkeypatch, tmp_path):
    """Below --model-dir, else below user_data/models of its working folder."""
    for flags, folder in (
        ((), "user_data/models"),
        (("--model-dir", "elsewhere"), "elsewhere"),
        (("--user-data-dir=u",), "u/models"),
    ):
        place = tmp_path / folder / "m"
        place.mkdir(parents=True)
        argv = ("python", "server.py", "--api", *flags)
        monkeypatch.setattr(
            "probes.process.process_behind", lambda _url, argv=argv: ServerProcess(1, 0.0, argv, {}, str(tmp_path))
        )
        with asked(Webui("Transformers", WINDOW)) as backend:
            assert backend.model_identity().path == str(place)


# --- its command line (modules/shared.py, modules/llama_cpp_server.py of 4.7.3) --------------------------------------------------------------

STARTED = ("python", "server.py", "--api", "--model", "m.gguf", "--ctx-size", "4096")


@pytest.mark.parametrize(
    ("more", "variable", "value", "expected"),
    [
        ((), "ctx", 8192, [*STARTED[:-1], "8192"]),
        ((), "kv_type", "q8_0", [*STARTED, "--cache-type", "q8_0"]),
        (("--cache-type", "q4_0"), "kv_type", "f16", [*STARTED, "--cache-type", "fp16"]),
        ((), "split_mode", "row", [*STARTED, "--split-mode", "row"]),
        ((), "mmap", False, [*STARTED, "--no-mmap"]),
        (("--no-mmap",), "mmap", True, list(STARTED)),
        ((), "mmap", True, list(STARTED)),
        ((), "rope_freq_base", 1e6, [*STARTED, "--extra-flags=--rope-freq-base 1000000"]),
        ((), "flash_attention", "off", [*STARTED, "--extra-flags=-fa off"]),
        (
            ("--extra-flags", "--swa-full --ctx-checkpoints 8"),
            "ctx_checkpoints",
            4,
            [*STARTED, "--extra-flags=--swa-full --ctx-checkpoints 4"],
        ),
        (("--extra-flags=--ctx-size 9000",), "ctx", 2048, [*STARTED, "--extra-flags=--ctx-size 2048"]),
        (("--extra-flags=--swa-full",), "swa_full", None, list(STARTED)),
    ],
)
def test_only_flags_that_it_takes_are_written(more, variable, value, expected):
    """It ends at a flag that it does not know; what only its llama-server takes is handed on, as one word with its equals sign."""
    changed = change_command([*STARTED, *more], None, variable, value)
    assert changed == expected
    if value is not None:
        name = "kv_type_k" if variable == "kv_type" else variable
        read = parse_command(changed).settings.get(name)
        assert read is None or read.value == value


def test_what_it_would_leave_out_or_not_take_is_not_written():
    """A cache type that is not handed on; a window for a loader that takes none."""
    with pytest.raises(RefusedSettingError):
        change_command(STARTED, None, "kv_type", "q5_1")
    with pytest.raises(NotOfferedError):
        change_command([*STARTED, "--loader", "Transformers"], None, "ctx", 8192)
    with pytest.raises(NotOfferedError):
        change_command([*STARTED, "--loader", "ExLlamav3"], None, "rope_freq_base", 1e6)
    [step] = truncation_steps("folder/Q-2.5 (x)", 8192)
    assert r"{Q-2\.5 \(x\)$: {truncation_length: 8192}}" in step.english


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("fp16", ("f16", "f16")),
        ("q8_0", ("q8_0", "q8_0")),
        ("q6", ("exl-q6", "exl-q6")),
        ("q4_q8", ("exl-q4", "exl-q8")),
    ],
)
def test_cache_types_are_read_as_each_loader_means_them(text, types):
    """llama.cpp's by name, ExLlamaV3's by bits, keys before values."""
    settings = parse_command(["python", "server.py", "--api", "--cache-type", text]).settings
    assert tuple(settings[name].value for name in ("kv_type_k", "kv_type_v")) == types


def test_its_file_of_models_is_read_where_it_keeps_them(tmp_path):
    """Beside the models, wherever --model-dir puts them; a length to cut to is among its settings."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "config-user.yaml").write_text("tiny-hf$:\n  truncation_length: 4096\n")
    argv = ("python", "server.py", "--model", "tiny-hf", "--model-dir", "elsewhere")
    settings = with_files(ServerProcess(1, 0.0, argv, {}, str(tmp_path)), "text-generation-webui").settings
    assert (settings["truncation_length"].value, settings["truncation_length"].source) == (4096, "file")


def test_the_next_test_says_where_that_loader_takes_its_window_from():
    """Not on the command line, where it would change nothing."""
    step = NextTest(kind="change", variable="ctx", start=2048, to=4096, reason="x", cost=Cost(minutes=1))
    evidence = EvidenceSet(
        [
            found(
                BackendIdentity(name="text-generation-webui", url="http://127.0.0.1:1"),
                source="server",
                run=1,
                origin="x",
            ),
            found(ModelIdentity(name="tiny-hf"), source="server", run=1, origin="x"),
            found(parse_command([*STARTED]), source="process", run=1, origin="process 1"),
            found(
                Configuration(settings={"loader": Setting(value="Transformers", source="server")}),
                source="server",
                run=1,
                origin="x",
            ),
        ]
    )
    told = with_command(step, evidence)
    assert "{tiny-hf$: {truncation_length: 4096}}" in told.command
    assert "truncation_length: 2048" in told.undo
