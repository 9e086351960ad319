"""Settings files of clients: the window, output budget and address that a client believes in. Reads only a file that was named.

Known by their shape: OpenCode, Crush, Zed, Continue, Aider, Codex, Cline and Roo Code, Goose, LibreChat, Claude Code. Keys are never read.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from probes.evidence.client import ClientModel, ClientSettings
from probes.evidence.errors import BadFileError

MOST_BYTES = 2 * 1024 * 1024
MOST_MODELS = 500

_Object = dict[str, Any]


def known_places(home: Path | None = None, folder: Path | None = None) -> list[tuple[str, Path]]:
    """List settings files of known clients that exist, as (client, path), without opening any: to be offered to the user."""
    home = home or Path.home()
    config = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") if home == Path.home() else home / ".config"
    folder = folder or Path.cwd()
    places = [
        ("opencode", folder / "opencode.json"),
        ("opencode", folder / "opencode.jsonc"),
        ("opencode", config / "opencode" / "opencode.json"),
        ("opencode", config / "opencode" / "opencode.jsonc"),
        ("crush", folder / "crush.json"),
        ("crush", folder / ".crush.json"),
        ("crush", config / "crush" / "crush.json"),
        ("zed", config / "zed" / "settings.json"),
        ("continue", home / ".continue" / "config.yaml"),
        ("continue", home / ".continue" / "config.json"),
        ("aider", folder / ".aider.model.metadata.json"),
        ("aider", folder / ".aider.model.settings.yml"),
        ("aider", folder / ".aider.conf.yml"),
        ("aider", home / ".aider.conf.yml"),
        ("codex", home / ".codex" / "config.toml"),
        ("goose", config / "goose" / "config.yaml"),
        ("claude-code", home / ".claude" / "settings.json"),
    ]
    found: list[tuple[str, Path]] = []
    for client, path in places:
        try:
            if path.is_file():
                found.append((client, path))
        except OSError:
            continue
    return found


def read_client_config(path: Path) -> ClientSettings:
    """Read one settings file that the user named. BadFileError, in one line, if it is none that is known."""
    data = _load(path)
    name = path.name.lower()
    for reads, reader in _READERS:
        if reads(name, data):
            try:
                told = reader(data)
            except (AttributeError, TypeError, ValueError, KeyError, RecursionError) as error:
                raise BadFileError(
                    f"{path} looks like a client's settings, but its values do not ({type(error).__name__})"
                ) from error
            return told.model_copy(update={"path": str(path)[:4096], "models": told.models[:MOST_MODELS]})
    raise BadFileError(
        f"{path} is no settings file of a client that is known (OpenCode, Crush, Zed, Continue, Aider, Codex, Cline, Goose)"
    )


# --- files -----------------------------------------------------------------------------------------------------------------------------


def _load(path: Path) -> _Object:
    try:
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise BadFileError(f"{path} cannot be read ({error.strerror or type(error).__name__})") from error
    if len(raw) > MOST_BYTES:
        raise BadFileError(f"{path} is larger than {MOST_BYTES >> 20} MiB: no settings file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFileError(f"{path} is no text file") from error
    ending = path.suffix.lower()
    try:
        if ending == ".toml":
            data: Any = tomllib.loads(text)
        elif ending in {".yml", ".yaml"}:
            data = _yaml(text)
        else:
            data = json.loads(without_comments(text))
    except (ValueError, RecursionError) as error:
        where = f", line {error.lineno}" if isinstance(error, json.JSONDecodeError) else ""
        raise BadFileError(
            f"{path} cannot be read as settings{where} ({' '.join(str(error).split())[:120]})"
        ) from error
    if isinstance(data, list):
        data = {"": data}
    if not isinstance(data, dict):
        raise BadFileError(f"{path} holds no settings")
    return data


def _yaml(text: str) -> Any:
    try:
        yaml: Any = importlib.import_module("yaml")  # only for the clients that write YAML
    except ImportError as error:
        raise BadFileError(
            "this file is YAML, and PyYAML is not installed; install it, or give the client's JSON settings"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from error


def without_comments(text: str) -> str:
    """Take comments and trailing commas out of JSON as people write it (JSONC); strings stay as they are."""
    parts: list[str] = []
    at = 0
    for match in re.finditer(
        r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])|,(?=(?:\s|//[^\n]*\n|/\*.*?\*/)*[}\]])', text, re.DOTALL
    ):
        parts.append(text[at : match.start()])
        found = match.group()
        parts.append(found if found.startswith('"') else " ")
        at = match.end()
    parts.append(text[at:])
    return "".join(parts)


# --- values ----------------------------------------------------------------------------------------------------------------------------


def _object(value: object) -> _Object:
    return value if isinstance(value, dict) else {}


def _items(value: object) -> Iterator[_Object]:
    if isinstance(value, list):
        yield from (item for item in value[:MOST_MODELS] if isinstance(item, dict))


def _pairs(value: object) -> Iterator[tuple[str, _Object]]:
    for key, item in list(_object(value).items())[:MOST_MODELS]:
        if isinstance(item, dict):
            yield str(key)[:500], item


def _count(*values: object) -> int | None:
    """Give the first that is a count of tokens; ``131072``, ``"131072"``, ``"128k"``."""
    for value in values:
        if isinstance(value, str) and re.fullmatch(r"\d{1,12}[kK]?", value.strip()):
            text = value.strip()
            return int(text[:-1]) * 1024 if text[-1] in "kK" else int(text)
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and 0 < value < 1 << 40
        ):
            return int(value)
    return None


def _text(*values: object) -> str | None:
    for value in values:
        if isinstance(value, str) and value:
            return value[:500]
    return None


def _url(*values: object) -> str | None:
    """Give the first that is an address, without user, password and query."""
    text = _text(*values)
    if text is None:
        return None
    return re.sub(r"//[^/@]*@", "//", text).split("?", maxsplit=1)[0]


def _seconds(value: object, per: float = 1.0) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        return None
    return round(value / per, 3)


# --- one reader a client ---------------------------------------------------------------------------------------------------------------


def _opencode(data: _Object) -> ClientSettings:
    models: list[ClientModel] = []
    notes: list[str] = []
    for provider, told in _pairs(data.get("provider")):
        options = _object(told.get("options"))
        shared = {
            "provider": provider,
            "base_url": _url(options.get("baseURL"), told.get("api")),
            "timeout_s": _seconds(options.get("timeout"), 1000),
        }
        named = list(_pairs(told.get("models")))
        if not named:
            models.append(ClientModel(**shared))
        for name, model in named:
            limit = _object(model.get("limit"))
            models.append(
                ClientModel(
                    **shared,
                    model=_text(model.get("id"), name),
                    context=_count(limit.get("context")),
                    output=_count(limit.get("output")),
                    num_ctx=_count(_object(model.get("options")).get("num_ctx")),
                )
            )
            if not limit:
                notes.append(f"{name}: no limit is set, so the client does not know this model's window")
    automatic = _object(data.get("compaction")).get("auto")
    return ClientSettings(
        client="opencode",
        models=tuple(models),
        default_model=_text(data.get("model")),
        compaction=automatic if isinstance(automatic, bool) else None,
        notes=tuple(notes[:20]),
    )


def _crush(data: _Object) -> ClientSettings:
    models = [
        ClientModel(
            provider=provider,
            base_url=_url(told.get("base_url")),
            model=_text(model.get("id"), model.get("name")),
            context=_count(model.get("context_window")),
            output=_count(model.get("default_max_tokens")),
        )
        for provider, told in _pairs(data.get("providers"))
        for model in _items(told.get("models"))
    ]
    disabled = _object(data.get("options")).get("disable_auto_summarize")
    large = _object(_object(data.get("models")).get("large"))
    return ClientSettings(
        client="crush",
        models=tuple(models),
        default_model=_text(large.get("model")),
        compaction=not disabled if isinstance(disabled, bool) else None,
    )


def _zed(data: _Object) -> ClientSettings:
    models: list[ClientModel] = []
    told = _object(data.get("language_models"))
    providers = [*((k, v) for k, v in _pairs(told) if k != "openai_compatible"), *_pairs(told.get("openai_compatible"))]
    for provider, settings in providers:
        url = _url(settings.get("api_url"))
        named = list(_items(settings.get("available_models")))
        models += [
            ClientModel(
                provider=provider,
                base_url=url,
                model=_text(model.get("name")),
                context=_count(model.get("max_tokens")),
                output=_count(model.get("max_output_tokens")),
                num_ctx=_count(model.get("max_tokens")) if provider == "ollama" else None,
            )
            for model in named or [{}]
        ]
    agent = _object(_object(data.get("agent")).get("default_model"))
    return ClientSettings(client="zed", models=tuple(models), default_model=_text(agent.get("model")))


def _continue(data: _Object) -> ClientSettings:
    models: list[ClientModel] = []
    for model in _items(data.get("models")):
        options = _object(model.get("defaultCompletionOptions")) or _object(model.get("completionOptions"))
        window = _count(model.get("contextLength"), options.get("contextLength"))
        provider = _text(model.get("provider"))
        models.append(
            ClientModel(
                provider=provider,
                model=_text(model.get("model"), model.get("name"), model.get("title")),
                base_url=_url(model.get("apiBase")),
                context=window,
                output=_count(options.get("maxTokens")),
                num_ctx=window if provider == "ollama" else None,
                timeout_s=_seconds(_object(model.get("requestOptions")).get("timeout"), 1000),
            )
        )
    return ClientSettings(client="continue", models=tuple(models))


def _aider_metadata(data: _Object) -> ClientSettings:
    models = [
        ClientModel(
            provider=_text(told.get("litellm_provider")),
            model=name,
            context=_count(told.get("max_input_tokens"), told.get("max_tokens")),
            output=_count(told.get("max_output_tokens")),
        )
        for name, told in _pairs(data)
    ]
    return ClientSettings(client="aider", models=tuple(models))


def _aider_settings(data: _Object) -> ClientSettings:
    models = [
        ClientModel(
            model=_text(told.get("name")), num_ctx=_count(extra.get("num_ctx")), output=_count(extra.get("max_tokens"))
        )
        for told in _items(data.get(""))
        for extra in (_object(told.get("extra_params")),)
    ]
    return ClientSettings(client="aider", models=tuple(models))


def _aider(data: _Object) -> ClientSettings:
    model = ClientModel(
        model=_text(data.get("model")),
        base_url=_url(data.get("openai-api-base")),
        compact_at=_count(data.get("max-chat-history-tokens")),
        timeout_s=_seconds(data.get("timeout")),
    )
    return ClientSettings(client="aider", models=(model,), default_model=model.model)


def _codex(data: _Object) -> ClientSettings:
    provider = _text(data.get("model_provider"))
    providers = dict(_pairs(data.get("model_providers")))
    told = providers.get(provider or "", {})
    mine = ClientModel(
        provider=provider,
        model=_text(data.get("model")),
        base_url=_url(told.get("base_url")),
        context=_count(data.get("model_context_window")),
        output=_count(data.get("model_max_output_tokens")),
        compact_at=_count(data.get("model_auto_compact_token_limit")),
        timeout_s=_seconds(told.get("stream_idle_timeout_ms"), 1000),
    )
    others = [
        ClientModel(provider=name, base_url=_url(p.get("base_url")))
        for name, p in providers.items()
        if name != provider
    ]
    return ClientSettings(client="codex", models=(mine, *others), default_model=mine.model)


def _cline(data: _Object) -> ClientSettings:
    """Roo Code's and Cline's exported profiles, or one profile alone."""
    profiles = (
        _object(_object(data.get("providerProfiles")).get("apiConfigs"))
        or _object(data.get("apiConfigs"))
        or {"": data}
    )
    models: list[ClientModel] = []
    for name, told in _pairs(profiles):
        info = _object(told.get("openAiCustomModelInfo")) or _object(told.get("openAiModelInfo"))
        models.append(
            ClientModel(
                provider=_text(told.get("apiProvider"), name),
                model=_text(
                    told.get("openAiModelId"),
                    told.get("ollamaModelId"),
                    told.get("lmStudioModelId"),
                    told.get("apiModelId"),
                ),
                base_url=_url(told.get("openAiBaseUrl"), told.get("ollamaBaseUrl"), told.get("lmStudioBaseUrl")),
                context=_count(
                    info.get("contextWindow"), told.get("ollamaApiOptionsCtxNum"), told.get("lmStudioMaxTokens")
                ),
                output=_count(info.get("maxTokens")),
                num_ctx=_count(told.get("ollamaNumCtx"), told.get("ollamaApiOptionsCtxNum")),
                timeout_s=_seconds(told.get("requestTimeoutMs"), 1000),
            )
        )
    return ClientSettings(client="cline", models=tuple(models))


def _goose(data: _Object) -> ClientSettings:
    model = ClientModel(
        provider=_text(data.get("GOOSE_PROVIDER")),
        model=_text(data.get("GOOSE_MODEL")),
        base_url=_url(data.get("OLLAMA_HOST"), data.get("OPENAI_HOST")),
        context=_count(data.get("GOOSE_CONTEXT_LIMIT")),
        timeout_s=_seconds(data.get("OLLAMA_TIMEOUT") or data.get("OPENAI_TIMEOUT")),
    )
    return ClientSettings(client="goose", models=(model,), default_model=model.model)


def _librechat(data: _Object) -> ClientSettings:
    models = [
        ClientModel(
            provider=_text(told.get("name")),
            base_url=_url(told.get("baseURL")),
            model=_text(name),
            context=_count(
                _object(_object(told.get("tokenConfig")).get(name if isinstance(name, str) else "")).get("context")
            ),
        )
        for told in _items(_object(data.get("endpoints")).get("custom"))
        for name in (_object(told.get("models")).get("default") or [None])[:100]
    ]
    return ClientSettings(client="librechat", models=tuple(models))


def _claude_code(data: _Object) -> ClientSettings:
    told = _object(data.get("env"))
    model = ClientModel(
        model=_text(told.get("ANTHROPIC_MODEL"), data.get("model")),
        base_url=_url(told.get("ANTHROPIC_BASE_URL")),
        output=_count(told.get("CLAUDE_CODE_MAX_OUTPUT_TOKENS")),
        timeout_s=_seconds(_count(told.get("API_TIMEOUT_MS")), 1000),
    )
    return ClientSettings(client="claude-code", models=(model,), default_model=model.model)


def _has(*keys: str) -> Callable[[str, _Object], bool]:
    return lambda _name, data: any(key in data for key in keys)


def _is_opencode(name: str, data: _Object) -> bool:
    return (
        name.startswith("opencode")
        or "opencode.ai" in (_text(data.get("$schema")) or "")
        or isinstance(data.get("provider"), dict)
    )


def _is_crush(name: str, data: _Object) -> bool:
    signs = (
        "crush" in name
        or "crush" in (_text(data.get("$schema")) or "")
        or any(key in data for key in ("lsp", "mcp", "models"))
    )
    return isinstance(data.get("providers"), dict) and signs


def _is_aider_settings(name: str, data: _Object) -> bool:
    return "model.settings" in name or any("edit_format" in i or "extra_params" in i for i in _items(data.get("")))


def _is_claude_code(_name: str, data: _Object) -> bool:
    return any(str(key).startswith(("ANTHROPIC_", "CLAUDE_CODE_")) for key in _object(data.get("env")))


def _is_continue(_name: str, data: _Object) -> bool:
    return any("provider" in model or "apiBase" in model for model in _items(data.get("models")))


_READERS: tuple[tuple[Callable[[str, _Object], bool], Callable[[_Object], ClientSettings]], ...] = (
    (_is_opencode, _opencode),
    (_is_crush, _crush),
    (_has("language_models"), _zed),
    (_has("providerProfiles", "apiConfigs", "apiProvider"), _cline),
    (lambda name, data: name.endswith("model.metadata.json") or _metadata(data), _aider_metadata),
    (_is_aider_settings, _aider_settings),
    (lambda name, data: "aider.conf" in name or "openai-api-base" in data, _aider),
    (_has("model_providers", "model_provider", "model_context_window"), _codex),
    (_has("GOOSE_PROVIDER", "GOOSE_MODEL"), _goose),
    (lambda _name, data: "custom" in _object(data.get("endpoints")), _librechat),
    (_is_claude_code, _claude_code),
    (_is_continue, _continue),
)


def _metadata(data: _Object) -> bool:
    told = [_object(value) for value in data.values()]
    return bool(told) and all("max_input_tokens" in one or "max_tokens" in one for one in told)
