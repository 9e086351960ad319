"""What clients' settings files make them believe; no key is read, no file is opened that was not named."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.client_config import known_places, read_client_config, without_comments
from probes.evidence.client import ClientModel, ClientSettings, address_of, plain_name
from probes.evidence.errors import BadFileError, CtxDoctorError

OPENCODE = """{
  // where models are
  "$schema": "https://opencode.ai/config.json",
  "model": "local/qwen3-coder",
  "provider": {
    "local": {
      "npm": "@ai-sdk/openai-compatible",
      "options": { "baseURL": "http://user:secret@localhost:8080/v1?k=v", "apiKey": "sk-very-secret", "timeout": 300000 },
      "models": {
        "qwen3-coder": { "name": "Qwen // not a comment", "limit": { "context": 131072, "output": 8192 }, },
        "small": {},
      },
    },
  },
  "compaction": { "auto": true }, /* yes */
}"""


def written(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return path


def test_opencode(tmp_path):
    """Limits, address and time-out of each model; comments and trailing commas as people write them; no key anywhere."""
    told = read_client_config(written(tmp_path, "opencode.jsonc", OPENCODE))
    assert told.client == "opencode"
    assert told.default_model == "local/qwen3-coder"
    assert told.compaction is True
    mine = told.models[0]
    assert (mine.model, mine.context, mine.output, mine.base_url, mine.timeout_s) == (
        "qwen3-coder",
        131_072,
        8192,
        "http://localhost:8080/v1",
        300.0,
    )
    assert told.models[1].context is None
    assert "small: no limit" in told.notes[0]
    assert "secret" not in told.model_dump_json()
    assert told.belief("http://127.0.0.1:8080").context == 131_072
    assert told.belief("http://127.0.0.1:8080", ["small"]).context is None
    assert told.belief("http://127.0.0.1:9999") is None


@pytest.mark.parametrize(
    ("name", "content", "client", "expected"),
    [
        (
            "crush.json",
            {
                "providers": {
                    "l": {
                        "base_url": "http://h:1/v1",
                        "models": [{"id": "m", "context_window": 32768, "default_max_tokens": 4096}],
                    }
                }
            },
            "crush",
            {"context": 32768, "output": 4096, "base_url": "http://h:1/v1"},
        ),
        (
            "settings.json",
            {
                "language_models": {
                    "ollama": {
                        "api_url": "http://localhost:11434",
                        "available_models": [{"name": "q", "max_tokens": 16384}],
                    }
                }
            },
            "zed",
            {"context": 16384, "num_ctx": 16384},
        ),
        (
            "settings.json",
            {
                "language_models": {
                    "openai_compatible": {
                        "X": {
                            "api_url": "http://h:2",
                            "available_models": [{"name": "q", "max_tokens": 9000, "max_output_tokens": 100}],
                        }
                    }
                }
            },
            "zed",
            {"context": 9000, "num_ctx": None, "output": 100},
        ),
        (
            "config.yaml",
            "models:\n  - name: Q\n    provider: ollama\n    model: q\n    apiBase: http://h:3\n    defaultCompletionOptions: {contextLength: 8192, maxTokens: 512}\n",
            "continue",
            {"context": 8192, "num_ctx": 8192, "output": 512},
        ),
        (
            "config.json",
            {"models": [{"title": "Q", "provider": "llama.cpp", "model": "q", "contextLength": 4096}]},
            "continue",
            {"context": 4096, "num_ctx": None},
        ),
        (
            ".aider.model.metadata.json",
            {"openai/q": {"max_input_tokens": 100000, "max_output_tokens": 4096, "litellm_provider": "openai"}},
            "aider",
            {"context": 100000, "output": 4096, "model": "openai/q"},
        ),
        (
            ".aider.model.settings.yml",
            "- name: ollama/q\n  extra_params:\n    num_ctx: 65536\n",
            "aider",
            {"num_ctx": 65536, "model": "ollama/q"},
        ),
        (
            ".aider.conf.yml",
            "model: openai/q\nopenai-api-base: http://h:4/v1\nopenai-api-key: sk-secret\n",
            "aider",
            {"base_url": "http://h:4/v1"},
        ),
        (
            "config.toml",
            'model = "q"\nmodel_provider = "l"\nmodel_context_window = 128000\nmodel_auto_compact_token_limit = 100000\n[model_providers.l]\nbase_url = "http://h:5/v1"\n',
            "codex",
            {"context": 128000, "compact_at": 100000, "base_url": "http://h:5/v1"},
        ),
        (
            "roo.json",
            {
                "providerProfiles": {
                    "apiConfigs": {
                        "a": {
                            "apiProvider": "openai",
                            "openAiBaseUrl": "http://h:6",
                            "openAiModelId": "q",
                            "openAiApiKey": "sk-secret",
                            "openAiCustomModelInfo": {"contextWindow": 64000, "maxTokens": -1},
                        }
                    }
                }
            },
            "cline",
            {"context": 64000, "output": None, "base_url": "http://h:6"},
        ),
        (
            "c.json",
            {
                "apiProvider": "ollama",
                "ollamaModelId": "q",
                "ollamaBaseUrl": "http://h:7",
                "ollamaApiOptionsCtxNum": "32768",
                "requestTimeoutMs": 30000,
            },
            "cline",
            {"context": 32768, "num_ctx": 32768, "timeout_s": 30.0},
        ),
        (
            "config.yaml",
            "GOOSE_PROVIDER: ollama\nGOOSE_MODEL: q\nOLLAMA_HOST: http://h:8\nGOOSE_CONTEXT_LIMIT: 128k\n",
            "goose",
            {"context": 131072},
        ),
        (
            "settings.json",
            {
                "env": {
                    "ANTHROPIC_BASE_URL": "http://h:9",
                    "ANTHROPIC_AUTH_TOKEN": "sk-secret",
                    "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "32000",
                    "API_TIMEOUT_MS": "600000",
                }
            },
            "claude-code",
            {"output": 32000, "base_url": "http://h:9", "timeout_s": 600.0},
        ),
        (
            "librechat.yaml",
            "endpoints:\n  custom:\n    - name: L\n      baseURL: http://h:10/v1\n      models: {default: [q]}\n      tokenConfig: {q: {context: 12000}}\n",
            "librechat",
            {"context": 12000, "model": "q"},
        ),
    ],
)
def test_each_client(tmp_path, name, content, client, expected):
    """Told by their shape, in the same words."""
    told = read_client_config(written(tmp_path, name, content))
    assert told.client == client
    assert {key: getattr(told.models[0], key) for key in expected} == expected
    assert "secret" not in told.model_dump_json()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{"),
        ("a.json", ""),
        ("a.json", "[1]"),
        ("a.json", "null"),
        ("a.json", '{"unrelated": 1}'),
        ("a.json", "[" * 100_000),
        ("a.toml", "= 3"),
        ("a.yaml", "a: [b"),
        ("a.yaml", "!!python/object/apply:os.system ['true']"),
    ],
)
def test_other_files_are_refused_in_one_line(tmp_path, name, content):
    """Broken, empty, foreign, hostile: one line, no traceback."""
    with pytest.raises(BadFileError) as caught:
        read_client_config(written(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_binary_large_and_missing_files(tmp_path):
    """Nothing is read beyond two MiB."""
    (tmp_path / "b.json").write_bytes(bytes(range(256)))
    (tmp_path / "l.json").write_bytes(b" " * (3 << 20))
    for name in ("b.json", "l.json", "none.json", ""):
        with pytest.raises(BadFileError):
            read_client_config(tmp_path / name)


HERE, CLOUD = "http://127.0.0.1:8080", "https://api.example.com/v1"


def entry(model, context, base_url=None, **more):
    return ClientModel(model=model, context=context, base_url=base_url, **more)


@pytest.mark.parametrize(
    ("models", "default", "url", "names", "context"),
    [
        # one name at two providers: the one at this address, by whatever name of this machine
        (
            [entry("qwen3", 262_144, CLOUD), entry("qwen3", 8192, "http://localhost:8080/v1")],
            None,
            HERE,
            ["qwen3"],
            8192,
        ),
        ([entry("qwen3", 8192, "http://host.docker.internal:8080/v1")], None, HERE, [], 8192),
        # another server altogether
        ([entry("qwen3", 262_144, CLOUD)], "qwen3", HERE, ["qwen3"], None),
        # a server that calls the model something else
        (
            [entry("local", 8192, HERE), entry("other", 4096, HERE)],
            "p/local",
            HERE,
            ["/models/Qwen3-Q4_K_M.gguf"],
            8192,
        ),
        ([entry("local", 8192, HERE), entry("other", 4096, HERE)], None, HERE, ["/models/Qwen3-Q4_K_M.gguf"], None),
        # settings that name no address are those of models by name
        ([entry("openai/qwen3-q4_k_m", 4096), entry("openai/x", 1)], None, HERE, ["/m/Qwen3-Q4_K_M.gguf"], 4096),
        ([entry("openai/x", 4096)], "openai/x", HERE, ["/m/Qwen3-Q4_K_M.gguf"], None),
        # a provider that has a place of its own
        ([entry("qwen3", 4096, provider="ollama")], None, "http://localhost:11434", [], 4096),
        ([entry("qwen3", 4096, provider="ollama")], None, HERE, [], None),
        ([entry("claude", 200_000), entry("mine", 8192, "http://10.0.0.9:1")], None, HERE, ["qwen3"], None),
        # this machine by another of its names: same port and model
        ([entry("qwen3:latest", 8192, "http://big-box:8080/v1")], None, HERE, ["qwen3"], 8192),
        ([entry("qwen3", 8192, "http://big-box:8081/v1")], None, HERE, ["qwen3"], None),
        # nothing is known of the server
        ([entry("a", 1), entry("b", 2)], "prov/b", None, [], 2),
        ([entry("b", 1, provider="x"), entry("b", 2, provider="y")], "y/b", None, [], 2),
    ],
)
def test_the_entry_about_this_server_and_model_is_found_or_none_is(models, default, url, names, context):
    """Law: by address, then by name, then the default; an entry about another server is never taken."""
    told = ClientSettings(client="opencode", models=tuple(models), default_model=default)
    mine = told.belief(url, names)
    assert (mine.context if mine is not None else None) == context


def test_windows_that_stand_apart_from_the_address_are_about_any_server():
    """Aider's table of models names no server; a client of a cloud that names none is about that cloud."""
    for client, context in (("aider", 4096), ("claude-code", None), ("codex", None)):
        told = ClientSettings(client=client, models=(entry("openai/x", 4096),), default_model="openai/x")
        mine = told.belief(HERE, ["qwen3"])
        assert (mine.context if mine is not None else None) == context


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_names_and_addresses_of_any_kind_are_compared(name, url):
    assert plain_name(plain_name(name)) == plain_name(name) or not name.isascii()
    host, port = address_of(url)
    assert isinstance(host, str)
    assert isinstance(port, int)


def test_known_places_are_listed_without_being_opened(tmp_path):
    """Only what exists is offered; reading is the user's choice."""
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    path = tmp_path / ".config" / "opencode" / "opencode.json"
    path.write_bytes(b"\x00")
    path.chmod(0)
    assert known_places(tmp_path, tmp_path / "nowhere") == [("opencode", path)]


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "provider",
                    "providers",
                    "models",
                    "limit",
                    "context",
                    "options",
                    "baseURL",
                    "language_models",
                    "openai_compatible",
                    "available_models",
                    "env",
                    "ANTHROPIC_MODEL",
                    "endpoints",
                    "custom",
                    "default",
                    "tokenConfig",
                    "apiConfigs",
                    "model_providers",
                    "model",
                    "compaction",
                    "agent",
                    "default_model",
                    "extra_params",
                    "max_tokens",
                    "name",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=150, deadline=None)
@given(_values, st.sampled_from(["opencode.json", "crush.json", "x.json", ".aider.conf.json", "a.model.settings.json"]))
def test_any_settings_are_read_or_refused(tmp_path_factory, data, name):
    """Whatever the file holds: settings that can be written, or a typed error."""
    path = tmp_path_factory.getbasetemp() / name
    path.write_text(json.dumps(data))
    try:
        told = read_client_config(path)
    except CtxDoctorError:
        return
    assert type(told).model_validate_json(told.model_dump_json()) == told


@settings(max_examples=150, deadline=None)
@given(_values.filter(lambda v: "nan" not in json.dumps(v).lower() and "infinity" not in json.dumps(v).lower()))
def test_taking_out_comments_changes_no_plain_json(data):
    """JSON without comments means the same afterwards."""
    assert json.loads(without_comments(json.dumps(data, indent=1))) == data
