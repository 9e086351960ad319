"""Servers that keep their settings in files: KoboldCpp, TabbyAPI, text-generation-webui, llama-cpp-python, vLLM, SGLang, llama-swap, LM Studio.

The same variables come out as of a command line. A file is read for a server on this machine whose command line or working folder names it
(:func:`with_files`), or because the user gave it (:func:`read_settings_file`); nothing is looked for elsewhere, and nothing is written. Keys and
passwords have no variable and are not kept.

Forms: KoboldCpp's ``.kcpps`` (JSON, the names of its options); TabbyAPI's ``config.yml``; text-generation-webui's ``CMD_FLAGS.txt``,
``settings.yaml`` and ``config-user.yaml``; llama-cpp-python's ``--config_file``; vLLM's and SGLang's ``--config`` (the names of their flags);
llama-swap's ``config.yaml`` (each model's command); llama-server's presets (``.ini``); a model's load settings as LM Studio's SDK names them.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from probes.backends.commands import detect_backend, parse_command, parse_named, parse_preset, split_command
from probes.evidence.errors import BadFileError, CtxDoctorError, InputError
from probes.evidence.subject import Configuration, Setting

if TYPE_CHECKING:
    from probes.process import ServerProcess

MOST_BYTES = 512 * 1024
"""The largest of these files in the wild is a tenth of it; YAML of this size is read in seconds."""
MOST_VALUES = 20_000
MOST_MODELS = 500
NAMES = frozenset({"cmd_flags.txt"})
SUFFIXES = frozenset({".kcpps", ".kcppt", ".json", ".yml", ".yaml", ".ini"})

_LM_STUDIO = {
    "llm.load.contextLength": "ctx",
    "llm.load.llama.evalBatchSize": "batch",
    "llm.load.llama.flashAttention": "flash_attention",
    "llm.load.llama.kCacheQuantizationType": "kv_type_k",
    "llm.load.llama.vCacheQuantizationType": "kv_type_v",
    "llm.load.offloadKVCacheToGpu": "kv_offload",
    "llm.load.llama.acceleration.offloadRatio": "gpu_ratio",
    "llm.load.llama.ropeFrequencyBase": "rope_freq_base",
    "llm.load.llama.ropeFrequencyScale": "rope_freq_scale",
    "llm.load.llama.tryMmap": "mmap",
    "llm.load.llama.keepModelInMemory": "mlock",
    "llm.load.numParallelSessions": "parallel",
}


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What one file says, and whose file it is."""

    backend: str
    configuration: Configuration


def read_settings_file(path: Path, model: str | None = None) -> SettingsFile:
    """Read a server's settings file that was given. BadFileError, in one line, where it is none that is known; InputError for an unknown model.

    ``model``: which of several models the settings are wanted of.
    """
    text = _text(path)
    name, ending = path.name.lower(), path.suffix.lower()
    if name in NAMES:
        return SettingsFile("text-generation-webui", _cmd_flags(text))
    if ending == ".ini":
        read = parse_preset(text, model)
        if not read.settings:
            raise BadFileError(f"{path} holds none of llama-server's settings")
        return SettingsFile("llama.cpp", read)
    data = _data(text, path)
    backend = _whose(data, ending)
    if backend is None:
        raise BadFileError(f"{path} is no settings file of a server that is known")
    return SettingsFile(backend, _of(backend, data, model))


def with_files(process: ServerProcess, backend: str | None, model: str | None = None) -> Configuration:
    """Give the settings of a server's process: its command line and environment, and below them the files that these name.

    ``model``: which of the models that a file names. What cannot be read, or is said twice and differs where the server's versions disagree about
    who wins, is in ``unread``. Never raises.
    """
    if detect_backend(process.argv) == "llama-swap":
        return _behind_swap(process, model)
    command = parse_command(process.argv, process.environment, backend)
    name = backend if backend not in {None, "openai-compatible"} else detect_backend(process.argv)
    settings, unread = dict(command.settings), dict(command.unread)
    for path, form in _named(process, name, command):
        try:
            read = _read(path, form, name or "", command)
        except CtxDoctorError as error:
            unread[f"file {path.name}"[:200]] = str(error)[:500]
            continue
        for variable, setting in read.settings.items():
            before = command.settings.get(variable)
            if before is None:
                settings.setdefault(variable, setting)
            elif name == "koboldcpp" and before.value != setting.value and variable not in {"host", "port"}:
                # older versions let the file win, newer ones the command line
                settings.pop(variable, None)
                unread[variable] = f"its command line says {before.value!r}, its file {setting.value!r}"[:500]
        unread.update({key: why for key, why in read.unread.items() if key not in settings})
    return command.model_copy(update={"settings": settings, "unread": unread})


def _behind_swap(process: ServerProcess, model: str | None) -> Configuration:
    """Give the settings of the model that llama-swap starts, by its file. Its own command line is none of the server's."""
    command = parse_command(process.argv, process.environment, "llama-swap")
    given = command.settings.get("config_file")
    path = _of_process(process, given.value) if given is not None and isinstance(given.value, str) else None
    if path is None:
        return Configuration(unread={"command": "llama-swap's configuration, which starts the server, cannot be seen"})
    try:
        return _llama_swap(_data(_text(path), path), model)
    except CtxDoctorError as error:
        return Configuration(unread={f"file {path.name}"[:200]: str(error)[:500]})


# -- which files ------------------------------------------------------------------------------------------------------------------------


def _named(process: ServerProcess, backend: str | None, command: Configuration) -> Iterator[tuple[Path, str]]:
    """Give the files that a process's command line or working folder names and that are there: path, and how to read it."""
    told = command.settings.get("config_file")
    given = told.value if told is not None and isinstance(told.value, str) else None
    wanted: list[tuple[str, str]] = []
    if backend == "koboldcpp":
        given = given or next((w for w in process.argv[1:] if w.lower().endswith((".kcpps", ".kcppt"))), None)
        wanted = [(given, "koboldcpp")] if given else []
    elif backend == "tabbyapi":
        wanted = [(given or "config.yml", "tabbyapi")]
    elif backend == "text-generation-webui":
        user = _after(process.argv, "--user-data-dir") or "user_data"
        models = _after(process.argv, "--model-dir") or f"{user}/models"
        wanted = [
            (f"{user}/CMD_FLAGS.txt", "cmd-flags"),
            ("CMD_FLAGS.txt", "cmd-flags"),
            (_after(process.argv, "--settings") or f"{user}/settings.yaml", "text-generation-webui"),
            (f"{models}/config-user.yaml", "text-generation-webui-models"),
            ("models/config-user.yaml", "text-generation-webui-models"),
        ]
    elif backend in {"llama-cpp-python", "vllm", "sglang"} and given:
        wanted = [(given, backend)]
    for name, form in wanted:
        path = _of_process(process, name)
        if path is not None:
            yield path, form


def _after(argv: tuple[str, ...], flag: str) -> str | None:
    for at, word in enumerate(argv):
        if word == flag and at + 1 < len(argv):
            return argv[at + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def _of_process(process: ServerProcess, name: str) -> Path | None:
    """Give a file as a process sees it: below its own root where that is another one (a container's), else on this machine. None: not there."""
    path = PurePath(name)
    if not path.is_absolute():
        if process.cwd is None:
            return None
        path = PurePath(process.cwd) / path
    root = Path(f"/proc/{process.pid}/root")
    try:
        if os.access(root, os.X_OK) and not root.samefile("/"):
            # in a container a link may lead to a file of this machine, which is not the server's
            found = root / path.relative_to(path.anchor)
            return found if stat.S_ISREG(found.lstat().st_mode) else None
        return Path(path) if stat.S_ISREG(Path(path).stat().st_mode) else None
    except (OSError, ValueError):
        return None


def _read(path: Path, form: str, backend: str, command: Configuration) -> Configuration:
    text = _text(path)
    if form == "cmd-flags":
        return _cmd_flags(text)
    data = _data(text, path)
    if form == "text-generation-webui-models":
        told = command.settings.get("model_path")
        return _of_model(data, PurePath(told.value).name) if told and isinstance(told.value, str) else Configuration()
    return _of(form if form in _READERS else backend, data, None)


# -- reading ----------------------------------------------------------------------------------------------------------------------------


def _text(path: Path) -> str:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadFileError(f"{path} is no plain file")
        with path.open("rb") as file:
            raw = file.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise BadFileError(f"{str(path)[:300]} cannot be read ({why})") from error
    if len(raw) > MOST_BYTES:
        raise BadFileError(f"{path} is larger than {MOST_BYTES >> 10} KiB: no settings file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFileError(f"{path} is no text file") from error
    if "\0" in text:
        raise BadFileError(f"{path} is no text file")
    return text


def _data(text: str, path: Path) -> dict[str, Any]:
    try:
        if path.suffix.lower() in {".yml", ".yaml"}:
            data: Any = _yaml(text)
        else:
            data = json.loads(text)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:120]
        raise BadFileError(f"{path} cannot be read as settings ({why})") from error
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise BadFileError(f"{path} holds no settings")
    cleaned = _plain(data, [MOST_VALUES], 6)
    return cleaned if isinstance(cleaned, dict) else {}


def _plain(value: Any, left: list[int], depth: int) -> Any:
    """Give plain values only: texts for keys, numbers that a record can hold, a bounded number of them however often YAML repeats one."""
    left[0] -= 1
    if left[0] < 0 or depth < 0:
        return None
    if isinstance(value, dict):
        names = [key for key in list(value)[:5000] if isinstance(key, str) or type(key) is float or _whole(key)]
        return {str(key)[:500]: _plain(value[key], left, depth - 1) for key in names}
    if isinstance(value, list):
        return [_plain(one, left, depth - 1) for one in value[:5000]]
    if isinstance(value, bool | str) or _whole(value):
        return value
    return value if isinstance(value, float) and math.isfinite(value) else None


def _whole(value: object) -> bool:
    return type(value) is int and abs(value) < 1 << 63


def _yaml(text: str) -> Any:
    yaml: Any = importlib.import_module("yaml")  # heavy, and only for the servers that write YAML
    try:
        return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from error
    except (TypeError, OverflowError, AttributeError) as error:
        # a key that cannot be one, a number or date that is none
        raise ValueError(type(error).__name__) from error


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _whose(data: Mapping[str, Any], ending: str) -> str | None:
    """Say whose settings these are, by what only that server's have; None where none fits."""
    keys = {key.replace("-", "_") for key in data}
    models = data.get("models")
    fields = _object(data.get("load")).get("fields")
    if ending in {".kcpps", ".kcppt"} or {"contextsize", "gpulayers"} <= keys:
        return "koboldcpp"
    if {"max_seq_len", "cache_size", "cache_mode", "model_name"} & _object(data.get("model")).keys():
        return "tabbyapi"
    if isinstance(models, dict) and any("cmd" in _object(one) for one in list(models.values())[:MOST_MODELS]):
        return "llama-swap"
    if isinstance(models, list) and any({"n_ctx", "n_gpu_layers"} & _object(one).keys() for one in models[:50]):
        return "llama-cpp-python"
    if isinstance(fields, list) and any(str(_object(one).get("key")).startswith("llm.load.") for one in fields[:500]):
        return "lm-studio"
    if {"truncation_length", "max_new_tokens"} & keys and {"preset", "mode", "character"} & keys:
        return "text-generation-webui"
    if {"max_model_len", "gpu_memory_utilization", "max_num_seqs"} & keys:
        return "vllm"
    if {"mem_fraction_static", "max_total_tokens", "chunked_prefill_size"} & keys:
        return "sglang"
    return None


def _of(backend: str, data: Mapping[str, Any], model: str | None) -> Configuration:
    read: Configuration = _READERS[backend](data, model)
    return read


def _koboldcpp(data: Mapping[str, Any], _model: str | None) -> Configuration:
    told = {key: value for key, value in data.items() if value not in ("", None, [])}
    # every option stands in the file, also those that were never set: these values mean that nothing was
    if told.get("moecpu") == 0:
        del told["moecpu"]
    if told.get("gpulayers") == -1:
        told["gpulayers"] = "auto"
    for newer, older in (("noflashattention", "flashattention"), ("noswa", "useswa")):
        # versions in which it is on by itself write the option of before as well, and look at it no more
        if newer in told:
            told.pop(older, None)
    if told.get("autofit") is False:
        del told["autofit"]  # layers that are left to the server are fitted without it, too
    path = told.pop("model_param", None)
    if isinstance(told.get("model"), list):
        told["model"] = told["model"][0]
    if isinstance(path, str):
        told.setdefault("model", path)
    return parse_named(told, "koboldcpp")


_OPTIONS = re.compile(r"\bNamespace\((?P<told>[^\n]{20,20000})\)[^\S\n]*$", re.MULTILINE)


def read_printed_options(text: str) -> Configuration | None:
    """Read the options that KoboldCpp prints when it starts, ``Namespace(model=[…], contextsize=8192, …)``: the last in the text, None without any."""
    for match in reversed(list(_OPTIONS.finditer(text))[-20:]):
        told: dict[str, Any] = {}
        try:
            call = ast.parse(f"_({match['told']})", mode="eval").body
            for word in call.keywords if isinstance(call, ast.Call) else ():
                if word.arg is not None:
                    told[word.arg] = ast.literal_eval(word.value)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            continue
        if "contextsize" in told:
            return _koboldcpp(told, None)
    return None


def _tabbyapi(data: Mapping[str, Any], _model: str | None) -> Configuration:
    told: dict[str, Any] = {}
    for section in ("network", "model", "draft_model"):
        told |= {key: value for key, value in _object(data.get(section)).items() if value not in ("", None, [], "auto")}
    if told.get("max_seq_len") == -1:
        del told["max_seq_len"]
    folder, name = told.get("model_dir"), told.get("model_name")
    if isinstance(folder, str) and isinstance(name, str) and not PurePath(name).is_absolute():
        told["model_name"] = f"{folder}/{name}"
    return parse_named(told, "tabbyapi")


def _cmd_flags(text: str) -> Configuration:
    """Read ``CMD_FLAGS.txt``: flags on lines, ``#`` before comments."""
    try:
        found = [word for line in text.splitlines()[:2000] for word in shlex.split(line, comments=True)]
    except ValueError as error:
        raise BadFileError(f"CMD_FLAGS.txt cannot be read ({error})") from error
    read = parse_command(["server.py", *found], None, "text-generation-webui", source="file")
    return read.model_copy(update={"command": None})


def _textgen(data: Mapping[str, Any], _model: str | None) -> Configuration:
    """Read ``settings.yaml``: where chats are cut, and how long an answer may be."""
    settings: dict[str, Setting] = {}
    for key, name in (("truncation_length", "truncation_length"), ("max_new_tokens", "n_predict")):
        value = data.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 40:
            settings[name] = Setting(value=value, source="file", raw=f"{key}: {value}")
    return Configuration(settings=settings)


def _of_model(data: Mapping[str, Any], model: str) -> Configuration:
    """Read ``config-user.yaml``: settings kept for one model, whose section is named by a pattern made of the file's name."""
    for key, told in data.items():
        plain = re.sub(r"\\(.)", r"\1", key.removeprefix("^").removesuffix("$"))
        if plain.lower() == model.lower() and isinstance(told, dict):
            read = parse_named(told, "text-generation-webui")
            return read.model_copy(update={"settings": {**read.settings, **_textgen(told, None).settings}})
    return Configuration()


def _llama_cpp_python(data: Mapping[str, Any], model: str | None) -> Configuration:
    models = [_object(one) for one in data.get("models") or () if isinstance(one, dict)][:MOST_MODELS]
    mine = [one for one in models if model in {one.get("model_alias"), one.get("model")}] if model else models[:1]
    told = {**{k: v for k, v in data.items() if k in {"host", "port"}}, **(mine[0] if mine else {})}
    return parse_named(told, "llama-cpp-python")


def _llama_swap(data: Mapping[str, Any], model: str | None) -> Configuration:
    """Read the command of one model, its macros put in. InputError where several are there and none was named."""
    models = {str(name): _object(told) for name, told in list(_object(data.get("models")).items())[:MOST_MODELS]}
    names = [name for name, told in models.items() if isinstance(told.get("cmd"), str)]
    if model is None and len(names) != 1:
        shown = ", ".join(names[:8])
        raise InputError(f"this llama-swap configuration holds {len(names)} models; name one with --model: {shown}")
    mine = models.get(model if model is not None else names[0], {})
    if not isinstance(mine.get("cmd"), str):
        raise InputError(f"this llama-swap configuration has no model {model!r}")
    macros = {**_object(data.get("macros")), **_object(mine.get("macros"))}
    command = mine["cmd"][:100_000]
    for _round in range(4):
        for name, value in list(macros.items())[:200]:
            if isinstance(value, str | int | float):
                command = command.replace("${" + str(name) + "}", str(value))[:100_000]
    # comments on lines of their own are llama-swap's, not the shell's
    command = "\n".join(line for line in command.splitlines() if not line.lstrip().startswith("#"))
    return parse_command(split_command(command.replace("\n", " ")), source="file")


def _lm_studio(data: Mapping[str, Any], _model: str | None) -> Configuration:
    settings: dict[str, Setting] = {}
    for field in _object(data.get("load")).get("fields", [])[:500]:
        key, value = _object(field).get("key"), _object(field).get("value")
        if isinstance(value, dict):
            # a value with a box before it counts only where the box is ticked
            value = value.get("value") if value.get("checked") is True else None
        name = _LM_STUDIO.get(key) if isinstance(key, str) else None
        if name is None or not isinstance(value, bool | int | float | str):
            continue
        if isinstance(value, float) and not math.isfinite(value):
            continue
        if name == "flash_attention" and isinstance(value, bool):
            value = "on" if value else "off"
        settings[name] = Setting(value=value[:200] if isinstance(value, str) else value, source="file", raw=str(key))
    return Configuration(settings=settings)


def _by_flags(backend: str) -> Any:
    return lambda data, _model: parse_named(data, backend)


_READERS: Mapping[str, Any] = {
    "koboldcpp": _koboldcpp,
    "tabbyapi": _tabbyapi,
    "text-generation-webui": _textgen,
    "llama-cpp-python": _llama_cpp_python,
    "llama-swap": _llama_swap,
    "lm-studio": _lm_studio,
    "vllm": _by_flags("vllm"),
    "sglang": _by_flags("sglang"),
}
