"""Each backend against recorded or documented answers: who it is, its windows, its counts on both clocks, its refusals."""

from __future__ import annotations

import pytest

from probes.backends.base import Ask, Backend
from probes.backends.http import Http
from probes.backends.llama_manager import ask_memory
from probes.backends.ollama import default_window
from probes.backends.recognise import recognise
from probes.evidence.errors import BadAnswerError, CtxDoctorError, NotOfferedError, StillLoadingError, WrongKeyError
from probes.evidence.subject import WindowReading

from .loopback import Loopback, plain, silence

PROMPT = Ask(prompt="ORBIT-17 =", max_tokens=4, use_cache=False, salt="x9 ")
CHAT = Ask(messages=({"role": "user", "content": "hi"},), max_tokens=4, use_cache=False, salt="x9 ")


class Playing:
    """A recording that plays, and the backend that was recognised in it."""

    def __init__(self, name: str, model: str | None = None) -> None:
        self.server = Loopback.playing(name)
        self.model = model

    def __enter__(self) -> tuple[Loopback, Backend]:
        self.server.__enter__()
        self.http = Http(self.server.url)
        return self.server, recognise(self.http, model=self.model)

    def __exit__(self, *exc: object) -> None:
        self.http.close()
        self.server.__exit__(*exc)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama.cpp-b11434", WindowReading(trained=8192, per_slot=1024, slots=3, in_force=1024)),
        ("llama.cpp-b11434-router", WindowReading(asked=3000, trained=8192, per_slot=1024, slots=3, in_force=1024)),
        ("ik_llama.cpp-8337e4cd", WindowReading(asked=8192, trained=131_072, per_slot=4096, slots=2, in_force=4096)),
        ("ollama-0.33.0", WindowReading(asked=32_768, trained=131_072, per_slot=8192, in_force=8192)),
        ("lm-studio-0.4", WindowReading(trained=40_960, per_slot=4096, slots=4, in_force=4096)),
        ("lm-studio-0.3.17", WindowReading(trained=40_960, per_slot=4096, in_force=4096)),
        ("vllm-0.33.0", WindowReading(per_slot=32_768, pool=98_304, unified=True, in_force=32_768)),
        ("vllm-0.32.0", WindowReading(per_slot=4096, pool=4_194_304, unified=True, in_force=4096)),
        ("vllm-0.16.0", WindowReading(per_slot=4096, unified=True, in_force=4096)),
        (
            "sglang-0.5.23",
            WindowReading(asked=131_072, per_slot=131_072, slots=32, pool=60_000, unified=True, in_force=59_994),
        ),
        ("koboldcpp-1.102", WindowReading(per_slot=8192, slots=1, in_force=8192)),
        ("tabbyapi-e632af41", WindowReading(per_slot=65_536, slots=4, pool=32_768, unified=True, in_force=32_768)),
        ("llama-cpp-python-0.3.36", WindowReading(default=2048, slots=1)),
        ("llama-manager-2026", WindowReading(in_force=167_936)),
        ("llama-swap-250", WindowReading(asked=65_536, trained=8192, per_slot=1024, slots=3, in_force=1024)),
        ("llama-swap-170", WindowReading(trained=8192, per_slot=1024, slots=3, in_force=1024)),
        ("openai-compatible-proxy", WindowReading(in_force=16_384)),
    ],
)
def test_windows(name, expected):
    """Asked, trained, per slot, pool and in force, each from where that server says it."""
    with Playing(name) as (_server, backend):
        assert backend.window() == expected


@pytest.mark.parametrize("name", ["text-generation-webui-4.7.3", "mlx_lm-0.32.2"])
def test_a_window_that_cannot_be_told_is_not_offered(name):
    """No guess where the server tells none."""
    with Playing(name) as (_server, backend), pytest.raises(NotOfferedError):
        backend.window()


@pytest.mark.parametrize(
    ("name", "version", "model"),
    [
        ("llama.cpp-b11434", "b11434", "SmolLM2"),
        ("ik_llama.cpp-8337e4cd", None, "big"),
        ("ollama-0.33.0", "0.33.0", "qwen2.5:7b"),
        ("lm-studio-0.4", None, "qwen3-8b"),
        ("vllm-0.33.0", "0.33.0", "qwen"),
        ("vllm-0.32.0", "0.32.0", "/models/tiny"),
        ("vllm-0.16.0", "0.16.0", "tiny"),
        ("sglang-0.5.23", "0.5.23", "q"),
        ("koboldcpp-1.102", "1.102", "Mistral-7B"),
        ("tabbyapi-e632af41", None, "Q-exl3"),
        ("text-generation-webui-4.7.3", None, "tiny.gguf"),
        ("text-generation-webui-4.7.3-transformers", None, "tiny-hf"),
        ("llama-cpp-python-0.3.36", "0.3.36", "m.gguf"),
        ("llama-manager-2026", None, "big"),
        ("llama-swap-250", "b11434", "SmolLM2"),
        ("openai-compatible-proxy", None, "gpt-x"),
    ],
)
def test_identity_and_model(name, version, model):
    """Version where the server tells it, and the model's name."""
    with Playing(name) as (_server, backend):
        assert backend.identity().version == version
        assert backend.model_identity().name == model
        assert backend.identity().recognised_by


FIELDS = (
    "prompt_tokens",
    "cached_tokens",
    "processed_tokens",
    "generated_tokens",
    "server_prompt_s",
    "server_generation_s",
    "finish",
)


@pytest.mark.parametrize(
    ("name", "ask", "expected"),
    [
        ("llama.cpp-b11434", PROMPT, (812, 0, 812, 8, 3.1005, 0.21, "limit")),
        ("llama.cpp-b11434-router", PROMPT, (812, 0, 812, 8, 3.1005, 0.21, "limit")),
        ("llama-swap-250", PROMPT, (812, 0, 812, 8, 3.1005, 0.21, "limit")),
        ("ik_llama.cpp-8337e4cd", PROMPT, (1000, 700, 300, 4, 1.5, 0.1, "limit")),
        ("ollama-0.33.0", PROMPT, (5000, None, 5000, 8, 2.0, 0.4, "length")),
        ("ollama-0.33.0", CHAT, (40, None, 40, 3, 0.02, 0.09, "stop")),
        ("lm-studio-0.4", PROMPT, (4000, None, 4000, 16, 0.111, 0.954, "length")),
        ("mlx_lm-0.32.2", PROMPT, (900, 880, 20, 2, None, None, "length")),
        ("vllm-0.33.0", PROMPT, (2000, 0, 2000, 4, None, None, "length")),
        ("vllm-0.32.0", PROMPT, (270, None, 270, 4, None, None, "length")),
        ("vllm-0.32.0", CHAT, (19, None, 19, 4, None, None, "length")),
        ("vllm-0.16.0", PROMPT, (270, None, 270, 4, None, None, "length")),
        ("sglang-0.5.23", PROMPT, (900, 1, 899, 2, None, None, "length")),
        ("koboldcpp-1.102", PROMPT, (7900, None, 7900, 6, 15.8, 0.18, "length")),
        ("tabbyapi-e632af41", PROMPT, (5000, None, 5000, 4, 2.5, 0.1, "length")),
        ("text-generation-webui-4.7.3", PROMPT, (12, None, 12, 4, None, None, "length")),
        ("text-generation-webui-4.7.3", CHAT, (19, None, 19, 4, None, None, "length")),
        ("text-generation-webui-4.7.3-transformers", PROMPT, (13, 0, 13, 4, None, None, "length")),
        ("llama-cpp-python-0.3.36", PROMPT, (14, None, 14, 4, None, None, "length")),
        ("llama-manager-2026", CHAT, (44, 0, 44, 2, 0.1, 0.05, "stop")),
        ("openai-compatible-proxy", CHAT, (20, 4, 16, 3, None, None, "stop")),
    ],
)
def test_counts_and_both_clocks(name, ask, expected):
    """Whole prompt, cached and really processed apart; the server's times where it has them; the client's always."""
    with Playing(name) as (_server, backend):
        told = backend.complete(ask)
        assert told.error is None
        assert tuple(getattr(told, field) for field in FIELDS) == expected
        assert told.client_first_token_s is not None
        assert told.client_total_s is not None
        assert 0 <= told.client_first_token_s <= told.client_total_s


@pytest.mark.parametrize(
    "name",
    [
        "ik_llama.cpp-8337e4cd",
        "ollama-0.33.0",
        "lm-studio-0.4",
        "mlx_lm-0.32.2",
        "vllm-0.33.0",
        "sglang-0.5.23",
        "koboldcpp-1.102",
        "tabbyapi-e632af41",
    ],
)
def test_the_first_token_is_not_the_first_empty_chunk(name):
    """Each recording sends an empty chunk 60 ms before the first text."""
    with Playing(name) as (_server, backend):
        told = backend.complete(PROMPT)
        assert told.client_first_token_s >= 0.055
        assert told.text.strip() == "copper"


def test_thinking_is_kept_apart_and_counts_as_the_first_token():
    """Reasoning that a server splits off is generated text, too."""
    for name in ("openai-compatible-proxy", "ollama-0.33.0"):
        with Playing(name) as (_server, backend):
            assert backend.complete(CHAT).text == "<think>hm</think>copper"


@pytest.mark.parametrize(
    ("name", "route", "variant", "expected"),
    [
        ("llama.cpp-b11434", "POST /completion", "too-long", ("exceeds-window", 400, 1531, 1024)),
        ("llama.cpp-b11434", "POST /completion", "pool", ("pool-exhausted", 500, None, None)),
        ("ik_llama.cpp-8337e4cd", "POST /completion", "too-long", ("exceeds-window", 500, None, None)),
        ("ollama-0.33.0", "POST /api/generate", "loud", ("exceeds-window", 400, 9000, 8192)),
        ("ollama-0.33.0", "POST /api/generate", "no-shift", ("exceeds-window", 400, None, None)),
        ("ollama-0.33.0", "POST /api/generate", "ram", ("out-of-memory", 500, None, None)),
        ("lm-studio-0.4", "POST /api/v0/completions", "too-long", ("exceeds-window", 400, 6000, 4096)),
        ("lm-studio-0.4", "POST /api/v0/completions", "old-text", ("exceeds-window", 400, 6000, 4096)),
        ("lm-studio-0.4", "POST /api/v0/completions", "crash", ("server-error", 400, None, None)),
        ("mlx_lm-0.32.2", "POST /v1/completions", "died", ("out-of-memory", 404, None, None)),
        ("mlx_lm-0.32.2", "POST /v1/completions", "broken", ("server-error", 404, None, None)),
        ("vllm-0.33.0", "POST /v1/completions", "too-long", ("exceeds-window", 400, 40_000, 32_768)),
        ("vllm-0.33.0", "POST /v1/completions", "at-least", ("exceeds-window", 400, None, 32_768)),
        ("vllm-0.33.0", "POST /v1/completions", "older", ("exceeds-window", 400, 32_700, 32_768)),
        ("vllm-0.33.0", "POST /v1/completions", "decoder", ("exceeds-window", 400, 40_000, 32_768)),
        ("vllm-0.33.0", "POST /v1/completions", "request-has", ("exceeds-window", 400, 40_000, 32_768)),
        ("vllm-0.16.0", "POST /v1/completions", "too-long", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.16.0", "POST /v1/completions", "far", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.16.0", "POST /v1/completions", "answer", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.16.0", "POST /v1/completions", "no-model", ("not-found", 404, None, None)),
        ("vllm-0.16.0", "POST /v1/completions", "older", ("exceeds-window", 400, 4200, 4096)),
        ("vllm-0.16.0", "POST /v1/chat/completions", "too-long", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.32.0", "POST /v1/completions", "too-long", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.32.0", "POST /v1/completions", "far", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.32.0", "POST /v1/completions", "answer", ("exceeds-window", 400, None, 4096)),
        ("vllm-0.32.0", "POST /v1/completions", "no-model", ("not-found", 404, None, None)),
        ("vllm-0.32.0", "POST /v1/chat/completions", "too-long", ("exceeds-window", 400, None, 4096)),
        ("sglang-0.5.23", "POST /generate", "too-long", ("exceeds-window", 400, 140_000, 131_072)),
        ("sglang-0.5.23", "POST /generate", "total", ("exceeds-window", 400, 131_000, 131_072)),
        ("sglang-0.5.23", "POST /generate", "pool", ("exceeds-window", 400, 70_000, 59_994)),
        ("koboldcpp-1.102", "POST /v1/completions", "busy", ("busy", 503, None, None)),
        ("tabbyapi-e632af41", "POST /v1/completions", "too-long", ("exceeds-window", 400, 70_000, 65_536)),
        ("tabbyapi-e632af41", "POST /v1/completions", "job", ("exceeds-window", 400, None, 32_768)),
        ("llama-cpp-python-0.3.36", "POST /v1/completions", "too-long", ("exceeds-window", 400, 3000, 2048)),
        ("llama-cpp-python-0.3.36", "POST /v1/completions", "breaks-off", ("exceeds-window", 400, 3000, 2048)),
        ("llama-cpp-python-0.3.36", "POST /v1/chat/completions", "too-long", ("exceeds-window", 400, 3000, 2048)),
        ("llama-cpp-python-0.3.36", "POST /v1/completions", "interrupted", ("busy", 0, None, None)),
        ("llama-cpp-python-0.3.36", "POST /v1/completions", "raw", ("exceeds-window", 500, 3000, 2048)),
        ("text-generation-webui-4.7.3", "POST /v1/completions", "too-long", ("server-error", 200, 6141, None)),
        ("llama-swap-250", "POST /upstream/coder/completion", "too-long", ("exceeds-window", 400, 1531, 1024)),
        ("llama-manager-2026", "POST /v1/chat/completions", "late", ("exceeds-window", 500, 200_000, 167_936)),
    ],
)
def test_refusals_are_typed_with_their_numbers(name, route, variant, expected, monkeypatch):
    """Every server's text for a prompt that is too long, and its other failures, in the same words; "at least" is no count."""
    # a recording says for ever what it said: ik_llama.cpp's slot stays busy with the refused prompt
    monkeypatch.setattr("probes.backends.ik_llama.LONGEST_CLEARING_S", 0.5)
    with Playing(name) as (server, backend):
        server.choose[route] = variant
        told = backend.complete(CHAT if "chat" in route else PROMPT)
        assert told.error is not None
        assert (told.error.error, told.error.status, told.error.prompt_tokens, told.error.window) == expected
        assert told.error.message


def test_the_cache_is_kept_out_of_the_way():
    """Switched off where the server can, salted at the very front everywhere else."""
    for name, path, key in (
        ("ik_llama.cpp-8337e4cd", "/completion", "cache_prompt"),
        ("llama.cpp-b11434", "/completion", "cache_prompt"),
    ):
        with Playing(name) as (server, backend):
            backend.complete(PROMPT)
            assert server.bodies(path)[0][key] is False
    with Playing("vllm-0.33.0") as (server, backend):
        backend.complete(Ask(prompt="a", use_cache=False))
        backend.complete(Ask(prompt="a", use_cache=False))
        backend.complete(PROMPT)
        salts = [body["cache_salt"] for body in server.bodies("/v1/completions")]
        assert len(set(salts)) == 3
        # what follows on a salted text is resumed from it
        backend.complete(Ask(prompt="ORBIT-17 = copper", salt=PROMPT.salt))
        assert server.bodies("/v1/completions")[3]["cache_salt"] == salts[2]
        # and so is what goes on from a text that was sent cold, whatever came between, but nothing else, and nothing that is to be as served
        backend.complete(Ask(prompt="c", use_cache=False))
        backend.complete(Ask(prompt="a", use_cache=True))
        assert server.bodies("/v1/completions")[5]["cache_salt"] == salts[1]
        backend.complete(Ask(prompt="b", use_cache=True))
        backend.complete(Ask(prompt="a", use_cache=True, cache_as_served=True))
        assert all("cache_salt" not in body for body in server.bodies("/v1/completions")[6:])
    for name, path, key in (
        ("ollama-0.33.0", "/api/generate", "prompt"),
        ("sglang-0.5.23", "/generate", "text"),
        ("mlx_lm-0.32.2", "/v1/completions", "prompt"),
        ("koboldcpp-1.102", "/v1/completions", "prompt"),
    ):
        with Playing(name) as (server, backend):
            backend.complete(PROMPT)
            assert server.bodies(path)[0][key].startswith("x9 ORBIT")
    with Playing("openai-compatible-proxy") as (server, backend):
        backend.complete(CHAT)
        assert server.bodies("/v1/chat/completions")[0]["messages"][0]["content"] == "x9 hi"


def test_processed_is_not_claimed_where_the_cache_may_have_helped():
    """Without a cached count, only a salted request is known to have been processed whole."""
    with Playing("vllm-0.33.0") as (server, backend):
        server.choose["POST /v1/completions"] = "plain"
        assert backend.complete(Ask(prompt="a", use_cache=True)).processed_tokens is None
        assert backend.complete(PROMPT).processed_tokens == 2000
        assert backend.complete(Ask(prompt="a", use_cache=False)).processed_tokens == 2000
    with Playing("vllm-0.33.0") as (server, backend):
        # a version that takes the salt without knowing it
        server.choose["POST /v1/completions"] = "plain"
        server.answers["GET /version"]["json"]["version"] = "0.8.1"
        assert backend.complete(Ask(prompt="a", use_cache=False)).processed_tokens is None


def test_vllm_tells_cached_tokens_and_its_own_times_by_its_counters():
    """One request made them rise by so much; where another one ran beside it, they tell nothing of either."""
    with Playing("vllm-0.32.0") as (server, backend):
        server.choose["GET /metrics"] = "counted"
        told = backend.complete(Ask(prompt="a"))
        assert (told.prompt_tokens, told.cached_tokens, told.processed_tokens) == (270, 256, 14)
        assert 0 < told.server_prompt_s < told.server_generation_s < 0.1
    for name, rise in (("vllm:prefix_cache_queries_total", 300), ("vllm:request_prefill_time_seconds_count", 1)):
        with Playing("vllm-0.32.0") as (server, backend):
            server.choose["GET /metrics"] = "counted"
            after = server.answers["GET /metrics#counted"]["sequence"][1]
            after["text"] = "".join(
                f"{line.rsplit(' ', 1)[0]} {float(line.rsplit(' ', 1)[1]) + rise}\n" if line.startswith(name) else line
                for line in after["text"].splitlines(keepends=True)
            )
            told = backend.complete(Ask(prompt="a"))
            assert (told.cached_tokens, told.processed_tokens, told.server_prompt_s) == (None, None, None)


def test_vllm_tells_cached_tokens_and_its_own_times_in_its_answer():
    """Where it was started so; its counters are not read then."""
    with Playing("vllm-0.32.0") as (server, backend):
        server.choose["POST /v1/completions"] = "details"
        told = [backend.complete(Ask(prompt="a")) for _time in range(2)][1]
        assert (told.cached_tokens, told.processed_tokens, told.generated_tokens) == (256, 14, 6)
        assert (round(told.server_prompt_s, 4), round(told.server_generation_s, 4)) == (0.0048, 0.0175)
        assert server.paths.count("/metrics") <= 1 + 4
        asked = len(server.paths)
        backend.complete(Ask(prompt="a"))
        assert server.paths[asked:].count("/metrics") == 0


def test_vllm_tells_what_became_of_drafts():
    """In its answer, where it was started so, and by its counters; without a prefix cache nothing comes from one."""
    with Playing("vllm-0.32.0") as (server, backend):
        server.choose["POST /v1/completions"] = "drafts"
        told = backend.complete(Ask(prompt="a"))
        assert (told.generated_tokens, told.drafted_tokens, told.accepted_tokens) == (40, 28, 28)
    with Playing("vllm-0.32.0") as (server, backend):
        server.choose |= {"POST /v1/completions": "drafts", "GET /metrics": "drafts"}
        del server.answers["POST /v1/completions#drafts"]["sse"][-2]["metrics"]
        told = backend.complete(Ask(prompt="a"))
        assert (told.drafted_tokens, told.accepted_tokens) == (28, 28)
        assert (told.cached_tokens, told.processed_tokens) == (0, 270)


@pytest.mark.parametrize(
    ("name", "tokens"),
    [
        ("llama.cpp-b11434", 3),
        ("llama.cpp-b11434-router", 3),
        ("ik_llama.cpp-8337e4cd", 2),
        ("vllm-0.33.0", 3),
        ("vllm-0.32.0", 6),
        ("sglang-0.5.23", 4),
        ("koboldcpp-1.102", 3),
        ("tabbyapi-e632af41", 2),
        ("text-generation-webui-4.7.3", 9),
        ("text-generation-webui-4.7.3-transformers", 9),
        ("llama-swap-250", 3),
        ("llama-cpp-python-0.3.36", 3),
    ],
)
def test_the_servers_own_tokenizer_counts(name, tokens):
    """Exact counts from the server, without what it adds to every text."""
    with Playing(name) as (_server, backend):
        assert backend.count_tokens("some text") == tokens


@pytest.mark.parametrize(
    "name", ["lm-studio-0.4", "mlx_lm-0.32.2", "llama-manager-2026", "openai-compatible-proxy", "ollama-0.33.0"]
)
def test_no_tokenizer_is_said(name):
    """Servers without one say so (Ollama's stands in a llama-server of its own, which does not run here)."""
    with Playing(name) as (_server, backend), pytest.raises(NotOfferedError):
        backend.tokenize("text")


def test_chats_counted_without_running_them():
    """vLLM, SGLang, TabbyAPI and llama-manager count with their template."""
    for name, tokens in (
        ("vllm-0.33.0", 3),
        ("sglang-0.5.23", 4),
        ("tabbyapi-e632af41", 2),
        ("llama-manager-2026", 44),
    ):
        with Playing(name) as (_server, backend):
            assert backend.count_chat_tokens([{"role": "user", "content": "hi"}]) == tokens


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            "vllm-0.33.0",
            {
                "ctx": 32_768,
                "kv_type_k": "fp8",
                "kv_type_v": "fp8",
                "memory_share": 0.92,
                "block_size": 16,
                "cache_prompt": True,
            },
        ),
        ("lm-studio-0.4", {"ctx": 4096, "batch": 512, "parallel": 4, "flash_attention": "on", "kv_offload": True}),
        (
            "tabbyapi-e632af41",
            {
                "ctx": 65_536,
                "pool": 32_768,
                "kv_type_k": "exl-q8",
                "kv_type_v": "exl-q6",
                "parallel": 4,
                "draft_model": "D-exl3",
            },
        ),
        (
            "sglang-0.5.23",
            {
                "ctx": 131_072,
                "kv_type_k": "fp8_e5m2",
                "cache_prompt": True,
                "auto_truncate": False,
                "memory_share": 0.85,
            },
        ),
        ("ollama-0.33.0", {"ctx": 8192, "gpu_share": 0.75}),
        (
            "llama.cpp-b11434-router",
            {"ctx": 3000, "parallel": 3, "kv_type_k": "q8_0", "flash_attention": "on", "gpu_layers": 99},
        ),
        (
            "llama-swap-250",
            {"ctx": 65_536, "parallel": 2, "kv_type_k": "q8_0", "kv_type_v": "q8_0", "flash_attention": "on"},
        ),
        ("ik_llama.cpp-8337e4cd", {"ctx": 8192, "parallel": 2}),
    ],
)
def test_settings_over_http(name, expected):
    """What a server tells of its settings has the names that everyone uses."""
    with Playing(name) as (_server, backend):
        told = backend.configuration()
        assert {key: told.settings[key].value for key in expected} == expected
        assert "s3cret" not in told.model_dump_json()


def test_busy():
    """Whether someone else's request runs, where the server tells."""
    expected = {
        "vllm-0.33.0": True,
        "sglang-0.5.23": False,
        "ik_llama.cpp-8337e4cd": True,
        "llama.cpp-b11434": False,
        "llama.cpp-b11434-router": True,
        "lm-studio-0.4": None,
    }
    for name, busy in expected.items():
        with Playing(name) as (_server, backend):
            assert backend.busy() is busy
    with Playing("koboldcpp-1.102") as (server, backend):
        server.choose["GET /api/extra/perf"] = "busy"
        assert backend.busy() is True


# --- what is each server's own ---------------------------------------------------------------------------------------------------------------


def test_ollama_is_never_made_to_load_anew():
    """A request repeats the loaded window, also where the model was unloaded for idleness meanwhile; one of several has to be named."""
    with Playing("ollama-0.33.0") as (server, backend):
        backend.complete(PROMPT)
        body = server.bodies("/api/generate")[0]
        assert body["options"]["num_ctx"] == 8192
        assert body["raw"] is True
        assert "truncate" not in body
        server.choose["GET /api/ps"] = "none"
        backend.complete(PROMPT)
        assert server.bodies("/api/generate")[1]["options"]["num_ctx"] == 8192
        server.answers["GET /v1/models"]["json"]["data"].append({"id": "other:latest", "object": "model"})
        with Http(server.url) as http, pytest.raises(NotOfferedError, match="--model"):
            recognise(http).complete(PROMPT)


def test_ollama_shows_its_silent_cut():
    """HTTP 200 with half of what was sent is an answer, and its count the evidence."""
    with Playing("ollama-0.33.0") as (server, backend):
        server.choose["POST /api/generate"] = "half"
        told = backend.complete(PROMPT)
        assert (told.error, told.prompt_tokens) == (None, 4098)


def test_ollama_default_window_by_vram():
    """4,096 below 23 GiB of VRAM, 32,768 below 47, else 262,144."""
    assert [default_window(gib << 30) for gib in (8, 23, 24, 46, 48)] == [4096, 32_768, 32_768, 32_768, 262_144]


def test_ik_says_that_it_cut():
    """Context shift on: the prompt is cut without an error, and the answer says truncated."""
    with Playing("ik_llama.cpp-8337e4cd") as (server, backend):
        server.choose["POST /completion"] = "cut"
        assert backend.complete(PROMPT).truncated is True


def test_lm_studio_falls_back_to_the_protocol():
    """Without the older API the OpenAI endpoints are used; an unloaded model is not asked, since asking loads it."""
    with Playing("lm-studio-0.4") as (server, backend):
        del server.answers["GET /api/v0/models"]
        backend.complete(CHAT)
        assert server.asked[-1][1] == "/v1/chat/completions"
    with Playing("lm-studio-0.4") as (server, backend):
        server.answers["GET /api/v1/models"]["json"]["models"][0]["loaded_instances"] = []
        server.answers["GET /api/v0/models"]["json"]["data"][0]["state"] = "not-loaded"
        with pytest.raises(NotOfferedError, match="load it there first"):
            backend.complete(CHAT)
        assert server.bodies("/v1/chat/completions") == []


def test_mlx_is_confirmed_by_its_first_completion():
    """Before: no version. After: version and MLX build; a completion without that fingerprint is another server's."""
    with Playing("mlx_lm-0.32.2") as (_server, backend):
        assert backend.identity().version is None
        backend.complete(PROMPT)
        assert backend.identity().version == "0.32.2"
        assert "0.32.4" in backend.identity().build
    with Playing("mlx_lm-0.32.2") as (server, backend):
        server.answers["POST /v1/completions"] = {"json": {"choices": [{"text": "x", "finish_reason": "stop"}]}}
        backend.complete(PROMPT)
        assert backend.identity().name == "openai-compatible"


def test_llama_cpp_python_of_several_models_is_asked_for_none_that_was_not_named():
    """A request that names another model, or none, would load it."""
    with Playing("llama-cpp-python-0.3.36") as (server, backend):
        server.choose["GET /v1/models"] = "several"
        for act in (backend.model_identity, lambda: backend.complete(PROMPT), lambda: backend.count_tokens("x")):
            with pytest.raises(NotOfferedError, match="--model"):
                act()
        assert all(method == "GET" for method, _path, _body in server.asked)
    with Playing("llama-cpp-python-0.3.36", "small") as (server, backend):
        server.choose["GET /v1/models"] = "several"
        backend.count_tokens("x")
        backend.complete(PROMPT)
        assert {body["model"] for method, _path, body in server.asked if method == "POST"} == {"small"}


def test_llama_cpp_python_that_gives_another_answer_meanwhile(monkeypatch):
    """Its list of models waits for that; what was to be asked is then a time-out, and no answer of another kind."""
    monkeypatch.setattr("probes.backends.llama_cpp_python.LISTED_S", 0.3)
    with Playing("llama-cpp-python-0.3.36") as (server, backend):
        server.faults["GET /v1/models"] = silence
        told = backend.complete(PROMPT)
        assert told.error.error == "timeout"
        assert server.bodies("/v1/completions") == []


def test_llama_cpp_python_tells_counts_in_one_piece_only():
    """So one token is asked for in one piece, and a stream's prompt is counted by the tokenizer."""
    with Playing("llama-cpp-python-0.3.36") as (server, backend):
        server.choose["POST /v1/completions"] = "whole"
        told = backend.complete(Ask(prompt="x", max_tokens=1))
        assert (told.prompt_tokens, server.bodies("/v1/completions")[0]["stream"]) == (14, False)
        assert server.bodies("/extras/tokenize/count") == []


def test_koboldcpp_counts_only_its_own_request():
    """Made-up counts of older versions are no counts; another client's request in between spoils the counters."""
    with Playing("koboldcpp-1.102") as (server, backend):
        server.choose["GET /api/extra/perf"] = "others"
        server.choose["POST /v1/completions"] = "dummy"
        told = backend.complete(PROMPT)
        assert (told.prompt_tokens, told.generated_tokens, told.server_prompt_s) == (None, None, None)


def test_koboldcpp_counts_long_texts_in_parts():
    """Its endpoint answers nothing for more than 50,000 characters."""
    with Playing("koboldcpp-1.102") as (server, backend):
        assert backend.count_tokens("word " * 30_000) == 3 * len(server.bodies("/api/extra/tokencount"))
        assert "".join(body["prompt"] for body in server.bodies("/api/extra/tokencount")) == "word " * 30_000


def test_a_router_never_loads_a_model():
    """Only a loaded model is asked, by name and with autoload off; an unloaded one is said to be so."""
    with Playing("llama.cpp-b11434-router") as (server, backend):
        backend.window()
        backend.tokenize("x")
        asked = [path for path in server.paths if path.startswith(("/props?", "/slots?"))]
        assert asked
        assert all(path.endswith("model=big&autoload=false") for path in asked)
        assert server.bodies("/tokenize")[0]["model"] == "big"
    with Playing("llama.cpp-b11434-router", "small") as (_server, backend):
        with pytest.raises(NotOfferedError, match="unloaded"):
            backend.window()
        with pytest.raises(NotOfferedError, match="unloaded"):
            backend.complete(PROMPT)


def test_llama_swap_never_loads_a_model():
    """Nothing goes upstream while nothing runs; a model that starts is waited for elsewhere."""
    for variant, error in (("none", NotOfferedError), ("starting", StillLoadingError)):
        with Playing("llama-swap-250") as (server, backend):
            server.choose["GET /running"] = variant
            with pytest.raises(error):
                backend.window()
            assert not any("upstream" in path for path in server.paths)
    with Playing("llama-swap-250") as (server, backend):
        server.choose["GET /running"] = "none"
        assert backend.identity().name == "llama-swap"
    with Playing("llama-swap-250") as (_server, backend):
        identity = backend.identity()
        assert (identity.name, identity.router) == ("llama.cpp", True)


def test_llama_managers_child_tells_its_memory():
    """Weights, context and compute by device, with draft and projector apart."""
    with Loopback.playing("llama-manager-2026") as server, Http(server.url) as http:
        told = ask_memory(http, "big")
        assert {b.component: b.size_bytes for b in told.buffers} == {
            "weights": 16_000_000_000,
            "kv": 5_000_000_000,
            "compute": 500_000_000,
            "draft": 1_050_000_000,
            "projector": 1_000_000_000,
        }
        with pytest.raises(NotOfferedError):
            ask_memory(http, "other")


def test_llama_manager_takes_no_raw_prompts():
    """It says so instead of asking another endpoint."""
    with Playing("llama-manager-2026") as (server, backend):
        assert backend.complete(PROMPT).error.error == "not-supported"
        assert all(method == "GET" for method, _path, _body in server.asked)
        told = backend.complete(CHAT)
        assert (told.drafted_tokens, told.accepted_tokens, told.generated_tokens) == (4, 1, 2)


def test_tabby_without_a_model():
    """No model loaded is said in one line."""
    with Playing("tabbyapi-e632af41") as (server, backend):
        server.choose["GET /v1/model"] = "none"
        with pytest.raises(NotOfferedError, match="load one"):
            backend.window()


def test_a_wrong_key_is_raised_not_measured():
    """Nothing can be measured then."""
    for name in ("vllm-0.33.0", "tabbyapi-e632af41", "sglang-0.5.23"):
        with Playing(name) as (server, backend):
            backend.window()
            server.faults["POST /v1/completions"] = server.faults["POST /generate"] = plain(
                '{"error":"Unauthorized"}', status=401
            )
            with pytest.raises(WrongKeyError):
                backend.complete(PROMPT)


def test_sglang_streams_new_parts_or_the_whole_text():
    """Some versions repeat the text so far in each event, some send the new part only."""
    with Playing("sglang-0.5.23") as (server, backend):
        events = server.answers["POST /generate"]["sse"]
        events[3]["text"] = "per"
        assert backend.complete(PROMPT).text == " copper"


def test_offered_is_kept():
    """What a backend says it offers, it answers here; what it does not offer raises NotOfferedError or gives nothing."""
    asks = {
        "window": lambda b: b.window(),
        "tokenize": lambda b: b.tokenize("x"),
        "configuration": lambda b: b.configuration(),
    }
    # Those that need the server's process on this machine, or tell only a part.
    elsewhere = {
        ("ollama", "tokenize"),
        ("mlx_lm", "configuration"),
        ("text-generation-webui", "window"),
        ("text-generation-webui", "configuration"),
        ("llama-swap", "tokenize"),
        ("llama-cpp-python", "window"),
        ("openai-compatible", "window"),
        ("beellama.cpp", "x"),
    }
    from .test_recognise import RECORDED

    for name in RECORDED:
        with Playing(name) as (_server, backend):
            for feature, act in asks.items():
                if (backend.name, feature) in elsewhere:
                    continue
                if feature in backend.offers:
                    assert act(backend) is not None
                else:
                    with pytest.raises(NotOfferedError):
                        act(backend)


def test_bad_json_of_an_answer_is_a_typed_error():
    """An answer that is no JSON is told apart from a refusal."""
    with Playing("vllm-0.33.0") as (server, backend):
        backend.window()
        server.faults["POST /v1/completions"] = plain("<html>504</html>", "text/html")
        with pytest.raises(BadAnswerError):
            backend.complete(PROMPT)
        server.faults["POST /v1/completions"] = plain(
            "<html><body>504 Gateway Time-out</body></html>", "text/html", 504
        )
        told = backend.complete(PROMPT)
        assert (told.error.error, told.error.message) == ("timeout", "504 Gateway Time-out")
    assert issubclass(BadAnswerError, CtxDoctorError)
