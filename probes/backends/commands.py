"""A server's command line, read into settings and written again with only one of them changed.

Reading: :func:`split_command` (text to words), :func:`parse_command` (words and environment to a ``Configuration``), :func:`parse_modelfile`,
:func:`parse_preset`. Writing: :func:`change_command`, :func:`as_text`, and :func:`change_steps` where a setting has no place in a command.
The tables of spellings are in :mod:`probes.backends.flags`.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PureWindowsPath
from typing import Any

from probes.backends.flags import (
    ENVIRONMENT_PREFIXES,
    FLAGS,
    IK_ONLY,
    LM_STUDIO_LOAD,
    MODELFILE,
    SECRET_FLAGS,
    SECRET_NAMES,
    VALUED_ELSEWHERE,
    Flag,
)
from probes.backends.shell import Simple, rewritten, server_in, simple_commands
from probes.evidence.errors import NotOfferedError, RefusedSettingError
from probes.evidence.records import Source
from probes.evidence.subject import Configuration, Setting
from probes.evidence.words import Words, words

MOST_WORDS = 4096
MOST_WORD = 32_768

_TRUE = frozenset({"on", "enabled", "true", "1", "yes"})
_FALSE = frozenset({"off", "disabled", "false", "0", "no"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_IK_TYPES = frozenset({"q6_0", "q8_kv"})
_BEE_TYPE = re.compile(r"(kvarn[234568]|turbo[234](_tcq)?)$", re.IGNORECASE)


# --- text to words ---------------------------------------------------------------------------------------------------------------------


def split_command(text: str) -> list[str]:
    r"""Split a command as people paste it: quotes, continued lines (``\``, ``^``, backquote), a prompt sign, Windows paths. Never raises.

    What follows a pipe, a redirection or ``&&`` is left out.
    """
    text = text.replace("\r\n", "\n").strip()[: MOST_WORDS * 64]
    text = re.sub(r"^\s*(?:[\w.~@:/\\-]*[$#>]|PS [^>\n]*>)\s+", "", text)
    text = re.sub(r"[ \t]*[\\^`][ \t]*\n[ \t]*", " ", text)
    windows = bool(re.search(r"[A-Za-z]:\\|\.exe\b|\\\w+\\", text))
    found: list[str] = []
    quoted: set[int] = set()
    word: list[str] = []
    quote = ""
    started = False
    position = 0
    while position < len(text) and len(found) < MOST_WORDS:
        character = text[position]
        position += 1
        if quote:
            if character == quote:
                quote = ""
            elif (
                character == "\\" and quote == '"' and position < len(text) and text[position] in '"\\' and not windows
            ):
                word.append(text[position])
                position += 1
            else:
                word.append(character)
        elif character in "'\"":
            quote = character
            started = True
        elif character == "\\" and not windows and position < len(text):
            word.append(text[position])
            position += 1
        elif character.isspace():
            if word or started:
                quoted |= {len(found)} if started else set()
                found.append("".join(word))
            word, started = [], False
            if character == "\n" and found and not _goes_on(text, position):
                break
        else:
            word.append(character)
    if word or started:
        quoted |= {len(found)} if started else set()
        found.append("".join(word))
    return _before_operators(found, quoted)


def _goes_on(text: str, position: int) -> bool:
    """Say whether the next line is more of the same command: it begins with a flag."""
    return bool(re.match(r"\s*-{1,2}[A-Za-z]", text[position : position + 200]))


def _before_operators(found: list[str], quoted: Collection[int]) -> list[str]:
    for number, word in enumerate(found):
        if number in quoted:
            # what stands in quotes is no operator of the shell
            continue
        if word in {"|", "||", "&&", "&", ";", ">", ">>", "2>", "2>&1", "<", "|&"} or re.fullmatch(
            r"(?:\d|&)?>{1,2}\S*", word
        ):
            return found[:number]
        if word.endswith(";") and number and not word.startswith("-"):
            return [*found[:number], word[:-1]]
    return found


def as_text(argv: Sequence[str]) -> str:
    """Write words as one line that a POSIX shell reads back; leading ``NAME=value`` words stay assignments."""
    parts: list[str] = []
    leading = True
    for word in argv:
        match = _ASSIGNMENT.match(word) if leading else None
        if match:
            parts.append(match.group() + shlex.quote(word[match.end() :]) if word[match.end() :] else match.group())
        else:
            leading = word == "env" and leading
            parts.append(shlex.quote(word))
    return " ".join(parts)


def split_environment(argv: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Take the leading ``NAME=value`` words (after an ``env``, too) off a command: variables, and the rest."""
    rest = list(argv)
    if rest and _program(rest[0]) == "env":
        rest = rest[1:]
    variables: dict[str, str] = {}
    while rest and _ASSIGNMENT.match(rest[0]):
        name, _, value = rest.pop(0).partition("=")
        variables[name] = value
    return variables, rest


# --- where the server's own words begin --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Located:
    """A command taken apart. ``words``: the whole; the server's own begin at ``start``; ``nested``: index of a shell's text, if inside one."""

    words: list[str]
    start: int
    environment: dict[str, str] = field(default_factory=dict)
    nested: int | None = None
    container: int | None = None
    """Index after ``docker run``, where its own options begin."""


_WRAPPERS = {
    "sudo": {"-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T"},
    "doas": {"-u", "-C"},
    "nohup": set(),
    "nice": {"-n"},
    "ionice": {"-c", "-n", "-p"},
    "taskset": set(),  # the list of -c is the positional
    "numactl": {"-C", "-N", "-m", "-i", "-p"},
    "time": set(),
    "stdbuf": {"-i", "-o", "-e"},
    "setsid": set(),
    "exec": set(),
    "systemd-run": {"-p", "--property", "--unit", "-u"},
    "timeout": {"-s", "-k"},
    "catchsegv": set(),
    "start": set(),
    "call": set(),
    "uv": set(),
    "uvx": set(),
    "pipx": set(),
    "conda": set(),
}
_WRAPPER_POSITIONALS = {"taskset": 1, "timeout": 1, "uv": 1, "pipx": 1, "conda": 1}
_WITH_MORE = frozenset(
    ["uv", "conda", "mamba", "micromamba", "pixi", "poetry", "pipenv", "chrt", "prlimit", "setarch", "xvfb-run", "strace", "gdb", "firejail",
     "cgexec", "cpulimit", "dbus-run-session", "unshare", "rlwrap"]
)  # fmt: skip
"""Wrappers with options and arguments of many kinds: the server begins at the first word behind them that is one."""
_WRAPPERS |= {name: set() for name in _WITH_MORE if name not in _WRAPPERS}
_CONTAINERS = frozenset({"docker", "podman", "nerdctl"})
_CONTAINER_SWITCHES = frozenset(
    [
        "-d",
        "--detach",
        "-i",
        "--interactive",
        "-t",
        "--tty",
        "-it",
        "-ti",
        "-dit",
        "-itd",
        "-dti",
        "-id",
        "-td",
        "--rm",
        "--init",
        "--privileged",
        "-P",
        "--publish-all",
        "--read-only",
        "--no-healthcheck",
        "--oom-kill-disable",
        "--sig-proxy",
        "-q",
        "--quiet",
    ]
)


def _program(word: str) -> str:
    """Give a program's bare name: without folder, ``.exe`` and case."""
    name = PureWindowsPath(word.replace("/", "\\")).name.lower()
    return name.removesuffix(".exe")


def _locate(argv: Sequence[str]) -> _Located:
    """Find where the server's own words begin, through ``env``, ``sudo``, ``docker run``, ``sh -c`` and the like."""
    all_words = [str(word)[:MOST_WORD] for word in list(argv)[:MOST_WORDS]]
    at = 0
    environment: dict[str, str] = {}
    while at < len(all_words):
        word = all_words[at]
        name = _program(word)
        if _ASSIGNMENT.match(word) and not word.startswith("-"):
            key, _, value = word.partition("=")
            environment[key] = value
            at += 1
        elif name in {"env", "set", "export"}:
            at += 1
            while at < len(all_words) and all_words[at].startswith("-"):
                at += 2 if all_words[at] in {"-u", "-C", "-S"} else 1
        elif name in _CONTAINERS and "run" in all_words[at : at + 4]:
            begin = all_words.index("run", at) + 1
            return _in_container(all_words, begin, environment)
        elif (
            name in {"sh", "bash", "zsh", "dash", "ash"}
            and at + 2 < len(all_words)
            and re.fullmatch(r"-[a-z]*c", all_words[at + 1])
        ):
            return _Located(all_words, at + 2, environment, nested=at + 2)
        elif name in _WRAPPERS:
            takes, positionals = _WRAPPERS[name], _WRAPPER_POSITIONALS.get(name, 0)
            at += 1
            begin = at
            while at < len(all_words) and all_words[at].startswith("-"):
                at += 2 if all_words[at] in takes else 1
            at += positionals
            if name in _WITH_MORE:
                at = _first_server(all_words, begin, at)
        else:
            break
    return _Located(all_words, min(at, len(all_words)), environment)


def _first_server(all_words: list[str], begin: int, otherwise: int) -> int:
    """Give the index of the first word from ``begin`` that is a server's program, a variable in front of one, or a shell; else ``otherwise``.

    One that stands right behind an option may be the option's value (``conda run -n llama llama-server``), so another goes before it.
    """
    behind_option: int | None = None
    for at in range(begin, min(begin + 24, len(all_words))):
        word = all_words[at]
        sure = not all_words[at - 1].startswith("-")
        known = _program(word) in {"env", "sh", "bash", *_WRAPPERS} or bool(_ASSIGNMENT.match(word))
        if known or (not word.startswith("-") and _backend_of_program(_Located(all_words, at)) is not None):
            if sure:
                return at
            behind_option = behind_option if behind_option is not None else at
    return otherwise if behind_option is None else behind_option


def _in_container(all_words: list[str], begin: int, environment: dict[str, str]) -> _Located:
    at = begin
    entry: str | None = None
    while at < len(all_words) and all_words[at].startswith("-"):
        word = all_words[at]
        name, equals, value = word.partition("=")
        if word in _CONTAINER_SWITCHES:
            at += 1
            continue
        if not equals:
            value = all_words[at + 1] if at + 1 < len(all_words) else ""
            at += 1
        at += 1
        if name in {"-e", "--env"} and "=" in value:
            key, _, text = value.partition("=")
            environment[key] = text
        elif name == "--entrypoint":
            entry = value
    image = all_words[at] if at < len(all_words) else ""
    start = min(at + 1, len(all_words))
    located = _Located(all_words, start, environment, container=begin)
    located.environment.setdefault("_IMAGE", image if entry is None else entry)
    return located


# --- which server --------------------------------------------------------------------------------------------------------------------------

_MODULES = {
    "mlx_lm": "mlx_lm",
    "mlx_lm.server": "mlx_lm",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.api_server": "vllm",
    "sglang.launch_server": "sglang",
    "sglang_router.launch_server": "sglang",
    "llama_cpp.server": "llama-cpp-python",
    "koboldcpp": "koboldcpp",
}


def _backend_of_program(located: _Located) -> str | None:
    own = located.words[located.start :]
    image = located.environment.get("_IMAGE", "").lower()
    for sign, name in (
        ("ik_llama", "ik_llama.cpp"),
        ("ik-llama", "ik_llama.cpp"),
        ("beellama", "beellama.cpp"),
        ("llama-swap", "llama-swap"),
        ("llama.cpp", "llama.cpp"),
        ("llama-server", "llama.cpp"),
        ("llamacpp", "llama.cpp"),
        ("ollama", "ollama"),
        ("vllm", "vllm"),
        ("sglang", "sglang"),
        ("koboldcpp", "koboldcpp"),
        ("tabbyapi", "tabbyapi"),
    ):
        if sign in image:
            return name
    if not own:
        return None
    name = _program(own[0])
    if name.startswith("llama-swap"):
        # its downloads carry system and version in their names
        return "llama-swap"
    if name in {
        "llama-server",
        "llama-cli",
        "llama-completion",
        "llama-bench",
        "server",
        "main",
        "llamafile",
        "llama",
    } or re.match(r"(?:ik[-_]llama|llama[-_.]?(?:cpp|server))", name):
        folder = own[0].lower()
        return (
            "ik_llama.cpp"
            if "ik_llama" in folder or "ik-llama" in folder
            else "beellama.cpp"
            if "beellama" in folder
            else "llama.cpp"
        )
    if name in {"ollama", "lms", "vllm", "sglang"}:
        return {"ollama": "ollama", "lms": "lm-studio", "vllm": "vllm", "sglang": "sglang"}[name]
    if name.startswith("koboldcpp"):
        return "koboldcpp"
    if name.startswith("mlx_lm"):
        return "mlx_lm"
    if re.fullmatch(r"(?:python|py|pypy)[\d.]*w?", name):
        return _backend_of_python(own[1:])
    return None


def _backend_of_python(own: Sequence[str]) -> str | None:
    for number, word in enumerate(own[:8]):
        if word == "-m" and number + 1 < len(own):
            return _MODULES.get(own[number + 1]) or (
                _MODULES["mlx_lm"] if own[number + 1].startswith("mlx_lm") else None
            )
        if word.endswith(".py"):
            path = word.lower().replace("\\", "/")
            if "koboldcpp" in path:
                return "koboldcpp"
            if path.endswith(("tabbyapi/main.py", "tabbyapi/start.py")) or any(
                w.startswith(("--max-seq-len", "--cache-mode")) for w in own
            ):
                return "tabbyapi"
            if re.search(r"llama[-_.]?(?:cpp[-_.])?server[^/]*\.py$", path):
                # llama.cpp's server embedded in Python, started with llama-server's own flags
                return "llama.cpp"
            if path.rsplit("/", 1)[-1] in {"llama_server.py", "llama-server.py"}:
                return "llama.cpp"
            if path.rsplit("/", 1)[-1] == "server.py":
                return "text-generation-webui"
            return None
        if "/" in word or "\\" in word:
            script = _program(word)
            if script in {"vllm", "sglang"} or script.startswith("mlx_lm"):
                return "mlx_lm" if script.startswith("mlx_lm") else script
    return None


def detect_backend(argv: Sequence[str]) -> str | None:
    """Say which server a command starts (a name of ``BackendIdentity.name``), or None."""
    located = _locate(argv)
    if located.nested is not None:
        inner = _inside(located)
        return detect_backend(inner.argv) if inner is not None else None
    name = _backend_of_program(located)
    return (
        _variant(located.words[located.start :])
        if name in {"llama.cpp", "ik_llama.cpp"} and name == "llama.cpp"
        else name
    )


def _inside(located: _Located) -> Simple | None:
    """Give the command that starts a server in a shell's text; where no server is known in it, the only command."""
    text = located.words[located.nested or 0]
    found = server_in(text, lambda argv: detect_backend(argv) is not None)
    if found is None:
        every = simple_commands(text)
        found = every[0] if len(every) == 1 else None
    return found


def server_words(argv: Sequence[str]) -> list[str]:
    """Give the server's own words of a command: without wrappers, variables and shell around them."""
    located = _locate(argv)
    if located.nested is not None:
        inner = _inside(located)
        return server_words(inner.argv) if inner is not None else []
    return located.words[located.start :]


_IK_SIGNS = frozenset(n for f in IK_ONLY for n in (*f.names, *f.off)) - {"-draft", "--draft-params"}


def _variant(own: Sequence[str]) -> str:
    """Tell llama.cpp from its forks by flags and cache types that only a fork takes."""
    for number, word in enumerate(own):
        flag = word.partition("=")[0]
        value = (word.partition("=")[2] or (own[number + 1] if number + 1 < len(own) else "")).lower()
        if flag in {"-ctk", "-ctv", "--cache-type-k", "--cache-type-v"}:
            if _BEE_TYPE.match(value):
                return "beellama.cpp"
            if value in _IK_TYPES:
                return "ik_llama.cpp"
        if flag == "--spec-type" and {"dflash", "copyspec"} & set(value.split(",")):
            return "beellama.cpp"
        if flag.startswith(("--spec-dflash-", "--spec-dm-", "--kv-tail-", "--spec-draft-ctx-size", "--spec-copyspec")):
            return "beellama.cpp"
        if flag in _IK_SIGNS:
            return "ik_llama.cpp"
    return "llama.cpp"


# --- reading -------------------------------------------------------------------------------------------------------------------------------


def _spelled(name: str) -> str:
    """Write a spelling in its comparable form: underscores count as dashes after a double dash."""
    return "--" + name[2:].replace("_", "-") if name.startswith("--") else name


class _Table:
    """A backend's flags, found by spelling and by variable."""

    def __init__(self, flags: Iterable[Flag]) -> None:
        self.flags = tuple(flags)
        self.on: dict[str, Flag] = {}
        self.turned_off: dict[str, Flag] = {}
        for flag in self.flags:
            for name in flag.names:
                self.on.setdefault(_spelled(name), flag)
            for name in flag.off:
                self.turned_off.setdefault(_spelled(name), flag)

    def for_variable(self, variable: str) -> list[Flag]:
        """Give the flags that set a variable, the preferred one first."""
        return [
            f
            for f in self.flags
            if variable in f.variables or (variable == "kv_type" and f.variables[0] in {"kv_type_k", "kv_type_v"})
        ]


_tables: dict[str, _Table] = {}


def _table(backend: str) -> _Table:
    if backend not in _tables:
        _tables[backend] = _Table(FLAGS[backend])
    return _tables[backend]


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """A flag where it stands: word index, number of words, its value's text (None: bare or a switch), and whether it turns off."""

    flag: Flag
    at: int
    length: int
    text: str | None
    off: bool
    equals: bool


def _looks_like_value(text: str) -> bool:
    """Say whether a word can be a value: no flag, or a negative number, or flags that are handed on in one word."""
    return not text.startswith("-") or bool(re.match(r"-\d", text)) or text == "-" or " " in text


def _occurrences(own: Sequence[str], table: _Table) -> list[_Occurrence]:
    found: list[_Occurrence] = []
    at = 0
    while at < len(own):
        word = own[at]
        if not word.startswith("-") or word == "-":
            at += 1
            continue
        name, equals, inline = word.partition("=")
        spelled = _spelled(name)
        if spelled in table.turned_off:
            found.append(
                _Occurrence(table.turned_off[spelled], at, 1, inline if equals else None, off=True, equals=bool(equals))
            )
            at += 1
            continue
        flag = table.on.get(spelled)
        if flag is None:
            at += 2 if name in VALUED_ELSEWHERE and not equals else 1
            continue
        if equals or not flag.takes_value:
            found.append(_Occurrence(flag, at, 1, inline if equals else None, off=False, equals=bool(equals)))
            at += 1
            continue
        text = own[at + 1] if at + 1 < len(own) else None
        if text is not None and flag.bare is not None:
            # A value that may be left out: only what fits is taken for it.
            fits = (
                text.lower() in _TRUE | _FALSE | {"auto"}
                if flag.kind == "onoff"
                else bool(re.fullmatch(r"-?\d+", text))
            )
            text = text if fits else None
        elif text is not None and not _looks_like_value(text):
            text = None
        length = 1 if text is None else 2
        if text is not None and flag.repeats and flag.kind == "floats":
            # argparse's nargs="+": numbers as separate words
            while at + length < len(own) and re.fullmatch(r"-?\d+(?:\.\d+)?", own[at + length]):
                text += "," + own[at + length]
                length += 1
        found.append(_Occurrence(flag, at, length, text, off=False, equals=False))
        at += length
    return found


def _tokens(text: str) -> int:
    match = re.fullmatch(r"(-?\d+(?:\.\d+)?)([kKmMgG]?)", text.strip())
    if not match:
        raise ValueError(text)
    scale = {"": 1, "k": 1000, "m": 10**6, "g": 10**9, "K": 1024, "M": 1024**2, "G": 1024**3}[match.group(2)]
    return int(float(match.group(1)) * scale)


def _layers(text: str) -> int | str:
    lowered = text.strip().lower()
    return lowered if lowered in {"auto", "all", "max"} else int(lowered)


def _onoff(text: str) -> str:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return "on"
    if lowered in _FALSE:
        return "off"
    if lowered in {"auto", "-1"}:
        return "auto"
    raise ValueError(text)


def _bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(text)


def _floats(text: str) -> list[float]:
    values = [float(part) for part in re.split(r"[,/;\s]+", text.strip()) if part]
    if not values or len(values) > 256 or not all(math.isfinite(v) for v in values):
        raise ValueError(text)
    return values


def _texts(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


_READ: Mapping[str, Callable[[str], Any]] = {
    "int": lambda text: int(text.strip()),
    "float": lambda text: _floats(text)[0],
    "text": lambda text: text,
    "tokens": _tokens,
    "layers": _layers,
    "onoff": _onoff,
    "bool": _bool,
    "switch": _bool,
    "floats": _floats,
    "texts": _texts,
}


def _value(flag: Flag, text: str) -> Any:
    """Read a value's text. ValueError if it does not fit."""
    if len(text) > MOST_WORD:
        raise ValueError("too long")
    if flag.kind == "map":
        if text.strip() not in flag.values:
            raise ValueError(text)
        return flag.values[text.strip()]
    value = _READ[flag.kind](text)
    if flag.kind in {"int", "tokens"} and abs(value) > 1 << 62:
        raise ValueError(text)
    if flag.kind == "bool" and flag.values:
        return flag.values["true" if value else "false"]
    return value


class _Reader:
    """Collects settings; what is read later wins."""

    def __init__(self, source: Source) -> None:
        self.source: Source = source
        self.settings: dict[str, Setting] = {}
        self.unread: dict[str, str] = {}

    def put(self, variables: Sequence[str], value: Any, raw: str) -> None:
        for variable in variables:
            self.settings[variable] = Setting(value=value, source=self.source, raw=raw[:4096])
            self.unread.pop(variable, None)

    def fail(self, variables: Sequence[str], raw: str) -> None:
        for variable in variables:
            self.settings.pop(variable, None)
            self.unread[variable] = f"{raw[:200]} is not understood"

    def flag(self, flag: Flag, text: str, raw: str) -> None:
        try:
            value = _value(flag, text)
        except (ValueError, OverflowError):
            self.fail(flag.variables, raw)
            return
        if flag.repeats and flag.kind == "texts" and flag.variables[0] in self.settings:
            value = [*self.settings[flag.variables[0]].value, *value]
        self.put(flag.variables, value, raw)


def parse_command(
    argv: Sequence[str],
    environment: Mapping[str, str] | None = None,
    backend: str | None = None,
    *,
    source: Source = "process",
) -> Configuration:
    """Read a server's command line and environment into settings by variable name. The command line wins over the environment.

    ``backend`` None: told from the command. An unknown server gives the environment's settings only. Values that do not fit are in ``unread``;
    keys and passwords are masked in ``command``. Never raises on bad input.
    """
    located = _locate(argv)
    if located.nested is not None:
        inner = _inside(located)
        argv, before = (inner.argv, inner.environment) if inner is not None else ([], {})
        read = parse_command(argv, {**(environment or {}), **located.environment, **before}, backend, source=source)
        return read.model_copy(update={"command": masked(located.words)})
    if backend is None:
        backend = detect_backend(argv)
    elif backend in {"llama.cpp", "openai-compatible"}:
        backend = _variant(located.words[located.start :])
    table = _table(backend) if backend is not None and backend in FLAGS else _Table(())
    variables = {**(environment or {}), **{k: v for k, v in located.environment.items() if k != "_IMAGE"}}
    reader = _Reader(source)
    _read_environment(reader, table, variables)
    own = located.words[located.start :]
    seen: set[str] = set()
    for item in _occurrences(own, table):
        raw = " ".join(own[item.at : item.at + item.length])
        first = item.flag.variables[0]
        if item.flag.repeats and first not in seen:
            # What the environment said is replaced, not added to.
            reader.settings.pop(first, None)
        seen.add(first)
        _read_occurrence(reader, item, raw)
    _read_positionals(reader, own, backend)
    _settle(reader, backend)
    return Configuration(settings=reader.settings, command=masked(located.words), unread=reader.unread)


def _read_occurrence(reader: _Reader, item: _Occurrence, raw: str) -> None:
    flag = item.flag
    if item.off:
        reader.put(flag.variables, "off" if flag.kind == "onoff" else False, raw)
    elif flag.kind == "switch" and item.text is None:
        reader.put(flag.variables, _switched_on(flag), raw)
    elif item.text is not None:
        reader.flag(flag, item.text, raw)
    elif flag.bare is not None:
        reader.put(flag.variables, flag.bare, raw)
    else:
        reader.fail(flag.variables, raw)


def _switched_on(flag: Flag) -> Any:
    return "on" if "flash_attention" in flag.variables else "row" if "split_mode" in flag.variables else True


def _read_environment(reader: _Reader, table: _Table, environment: Mapping[str, str]) -> None:
    known: set[str] = set()
    for flag in table.flags:
        for name in flag.env:
            known.add(name)
            if name in environment and environment[name] != "":
                raw = f"{name}={environment[name]}"
                reader.flag(flag, environment[name], raw)
            # llama.cpp: LLAMA_ARG_NO_… turns a two-way flag off by being there, whatever its value.
            negative = name.replace("LLAMA_ARG_", "LLAMA_ARG_NO_", 1)
            if flag.off and negative != name:
                known.add(negative)
                if negative in environment:
                    reader.put(
                        flag.variables, "off" if flag.kind == "onoff" else False, f"{negative}={environment[negative]}"
                    )
    for name in sorted(environment):
        if name in known or not name.startswith(ENVIRONMENT_PREFIXES) or any(part in name for part in SECRET_NAMES):
            continue
        reader.put([f"env.{name}"], environment[name][:4096], f"{name}={environment[name]}")


def _read_positionals(reader: _Reader, own: Sequence[str], backend: str | None) -> None:
    """Read a model that is named without a flag."""
    if "model_path" in reader.settings:
        return
    index: int | None = None
    if backend in {"vllm", "sglang"} and "serve" in own[:4]:
        index = own.index("serve") + 1
    elif backend == "lm-studio" and "load" in own[:3]:
        index = own.index("load") + 1
    elif backend == "ollama" and "run" in own[:3]:
        index = own.index("run") + 1
    elif backend == "koboldcpp":
        index = next(
            (
                n
                for n, word in enumerate(own)
                if n and word.lower().endswith((".gguf", ".ggml", ".bin")) and not own[n - 1].startswith("-")
            ),
            None,
        )
    if index is not None and index < len(own) and not own[index].startswith("-"):
        reader.put(["model_path"], own[index], own[index])


def _settle(reader: _Reader, backend: str | None) -> None:
    """Bring spellings that mean several settings into the names that everyone uses."""
    mode = reader.settings.get("load_mode")
    if mode is not None and isinstance(mode.value, str):
        parts = set(mode.value.lower().split("+"))
        if parts & {"none", "mmap", "mlock", "dio"}:
            reader.put(["mmap"], "mmap" in parts, mode.raw)
            reader.put(["mlock"], "mlock" in parts, mode.raw)
    auto = reader.settings.get("mmproj_auto")
    if auto is not None and auto.value is False and "mmproj" not in reader.settings:
        reader.put(["mmproj"], False, auto.raw)
    fit = reader.settings.get("fit")
    if fit is not None and fit.value in {"on", "off"}:
        reader.put(["fit"], fit.value == "on", fit.raw)
    shift = reader.settings.get("context_shift")
    if shift is not None and shift.value in {"on", "off"}:
        reader.put(["context_shift"], shift.value == "on", shift.raw)
    if backend == "koboldcpp":
        _settle_koboldcpp(reader)
    spec = reader.settings.get("speculation")
    if spec is not None and isinstance(spec.value, list):
        reader.put(["speculation"], ",".join(spec.value), spec.raw)
    elif spec is not None and backend == "vllm" and isinstance(spec.value, str):
        _read_speculative_json(reader, spec)
    if backend == "tabbyapi":
        _read_tabby_cache(reader)
    if backend == "text-generation-webui":
        _read_webui_cache(reader)
    extra = reader.settings.get("extra_flags")
    if backend == "text-generation-webui" and extra is not None and isinstance(extra.value, str):
        _read_extra_flags(reader, extra)


def _settle_koboldcpp(reader: _Reader) -> None:
    if "rope" in reader.settings:
        rope = reader.settings.pop("rope")
        # a scale of 0 means that the server chooses both by itself
        if rope.value[0] > 0:
            reader.put(["rope_freq_scale"], rope.value[0], rope.raw)
            if len(rope.value) > 1:
                reader.put(["rope_freq_base"], rope.value[1], rope.raw)
    flash, values = reader.settings.get("flash_attention"), reader.settings.get("kv_type_v")
    off = flash is not None and flash.value in {False, "off"}
    if off and flash is not None and values is not None and values.value not in {"f16", "bf16"}:
        # without flash attention the one option quantises the keys alone
        reader.put(["kv_type_v"], "f16", f"{values.raw} {flash.raw}")
    batch = reader.settings.get("batch")
    if batch is not None and isinstance(batch.value, int) and batch.value <= 0:
        reader.put(["batch", "ubatch"], 1, batch.raw)  # -1 is written, and token by token is meant
    slots = reader.settings.get("parallel")
    if slots is not None and isinstance(slots.value, int):
        if slots.value > 1:
            reader.put(["context_shift"], False, slots.raw)  # several at once are never shifted
        else:
            reader.put(["parallel"], 1, slots.raw)


def _read_speculative_json(reader: _Reader, spec: Setting) -> None:
    try:
        told = json.loads(spec.value)
    except (ValueError, RecursionError):
        return
    if not isinstance(told, dict):
        return
    if isinstance(told.get("model"), str):
        reader.put(["draft_model"], told["model"], spec.raw)
    if isinstance(told.get("num_speculative_tokens"), int):
        reader.put(["draft_n_max"], told["num_speculative_tokens"], spec.raw)
    reader.put(["speculation"], str(told.get("method", "draft"))[:200], spec.raw)


def _own_flags(text: str) -> list[str]:
    """Give the flags that are handed on to the llama-server behind: ``--ctx-checkpoints 8`` or, older, ``flag1,flag2=value``."""
    text = text.strip()[:MOST_WORD]
    if text[:1] in {'"', "'"} and text[-1:] == text[:1]:
        text = text[1:-1].strip()
    if text.startswith("-"):
        return split_command(text)
    handed: list[str] = []
    for part in (piece.strip() for piece in text.split(",")):
        name, equals, value = part.partition("=")
        if name:
            handed += [("--" if len(name) > 3 else "-") + name, *([value] if equals else [])]
    return handed


def _read_extra_flags(reader: _Reader, extra: Setting) -> None:
    """Read what is handed on to the llama-server behind. It stands last, so it wins."""
    read = parse_command(["llama-server", *_own_flags(extra.value)], None, "llama.cpp", source=reader.source)
    for variable, setting in read.settings.items():
        reader.put([variable], setting.value, f"{extra.raw[:40]}… {setting.raw}" if len(extra.raw) > 40 else extra.raw)


def _read_webui_cache(reader: _Reader) -> None:
    """Read ``fp16``, and ExLlamaV3's bits: ``q6``, or ``q4_q8`` for keys and values."""
    setting = reader.settings.get("kv_type_k")
    if setting is None or not isinstance(setting.value, str):
        return
    value = setting.value.strip().lower()
    bits = re.fullmatch(r"q(\d)(?:_q(\d))?", value)
    if bits:
        reader.put(["kv_type_k"], f"exl-q{bits[1]}", setting.raw)
        reader.put(["kv_type_v"], f"exl-q{bits[2] or bits[1]}", setting.raw)
    elif value == "fp16":
        reader.put(["kv_type_k", "kv_type_v"], "f16", setting.raw)


def _read_tabby_cache(reader: _Reader) -> None:
    """Read ``FP16``, ``Q8``, or bits as ``k,v``."""
    setting = reader.settings.get("kv_type_k")
    if setting is None or not isinstance(setting.value, str):
        return
    parts = [p.strip() for p in setting.value.split(",")]
    if len(parts) == 2 and all(re.fullmatch(r"\d", p) for p in parts):
        reader.put(["kv_type_k"], f"exl-q{parts[0]}", setting.raw)
        reader.put(["kv_type_v"], f"exl-q{parts[1]}", setting.raw)
        return
    value = setting.value.strip().lower()
    match = re.fullmatch(r"q(\d)", value)
    named = f"exl-q{match.group(1)}" if match else "f16" if value == "fp16" else value
    reader.put(["kv_type_k", "kv_type_v"], named, setting.raw)


def masked(argv: Sequence[str]) -> tuple[str, ...]:
    """Give a command with the values of keys and passwords replaced by ``***``."""
    result: list[str] = []
    hide = False
    for word in argv:
        name, equals, _rest = word.partition("=")
        if hide:
            result.append("***")
            hide = False
        elif name in SECRET_FLAGS:
            result.append(f"{name}=***" if equals else word)
            hide = not equals
        elif _ASSIGNMENT.match(word) and any(part in name.upper() for part in SECRET_NAMES):
            result.append(f"{name}=***")
        else:
            result.append(word[:4096])
    return tuple(result)


def parse_modelfile(text: str, *, source: Source = "file") -> Configuration:
    """Read an Ollama Modelfile's (or ``/api/show``'s) parameters: ``PARAMETER num_ctx 8192`` or ``num_ctx 8192``, one a line."""
    reader = _Reader(source)
    for line in text[:1_000_000].splitlines():
        match = re.match(r"\s*(?:PARAMETER\s+)?([a-z_]+)\s+(\S.*?)\s*$", line, re.IGNORECASE)
        if match and match.group(1).lower() in MODELFILE:
            variable, kind = MODELFILE[match.group(1).lower()]
            reader.flag(Flag((variable,), kind), match.group(2).strip('"'), line.strip())
        elif re.match(r"\s*FROM\s+\S", line, re.IGNORECASE):
            reader.put(["model_path"], line.split(None, 1)[1].strip()[:4096], line.strip())
    return Configuration(settings=reader.settings, unread=reader.unread)


def parse_preset(text: str, section: str | None = None, *, source: Source = "file") -> Configuration:
    """Read a llama-server preset (``.ini``): keys are long flags without dashes, or their LLAMA_ARG_ names; ``[*]`` holds for all.

    ``section`` None reads every section's keys, the last one winning.
    """
    table = _table("llama.cpp")
    by_env = {name: flag for flag in table.flags for name in flag.env}
    reader = _Reader(source)
    here = "*"
    for line in text[:1_000_000].splitlines():
        stripped = line.strip()
        if stripped.startswith(("#", ";")) or not stripped:
            continue
        if stripped.startswith("[") and stripped.endswith("]"):
            here = stripped[1:-1].strip()
            continue
        if section is not None and here not in {"*", section}:
            continue
        key, equals, value = (part.strip() for part in stripped.partition("="))
        if not equals:
            continue
        spelled = _spelled("--" + key)
        flag = by_env.get(key) or table.on.get(spelled) or table.on.get("-" + key)
        if flag is not None:
            reader.flag(flag, value, stripped)
        elif spelled in table.turned_off or "-" + key in table.turned_off:
            off = table.turned_off.get(spelled) or table.turned_off["-" + key]
            reader.put(off.variables, value.lower() in _FALSE, stripped)
    _settle(reader, "llama.cpp")
    return Configuration(settings=reader.settings, unread=reader.unread)


def parse_named(told: Mapping[str, Any], backend: str, *, source: Source = "file") -> Configuration:
    """Read settings that a file gives by the names of a server's long flags, with or without dashes: ``max_seq_len: 8192``.

    An entry that is none of that server's flags is left out, and so is one that is null. Never raises on bad input.
    """
    table = _table(backend)
    reader = _Reader(source)
    entries = list(told.items())[:MOST_WORDS]
    names = {_spelled("--" + str(name)[:200]) for name, _value in entries}
    for name, value in entries:
        spelled = _spelled("--" + str(name)[:200])
        flag, off = table.on.get(spelled), table.turned_off.get(spelled)
        if value is None or (flag is None and off is None) or spelled in SECRET_FLAGS:
            continue
        raw = f"{name}: {value}"[:4096] if isinstance(value, str | int | float) else f"{name}: …"
        if isinstance(value, bool):
            _read_switch(reader, flag, off, names, value=value, raw=raw)
        elif flag is not None and isinstance(value, list):
            if value and all(isinstance(part, str | int | float) and not isinstance(part, bool) for part in value):
                reader.flag(flag, ",".join(str(part) for part in value[:256]), raw)
        elif flag is not None and isinstance(value, str | int | float):
            whole = isinstance(value, float) and math.isfinite(value) and value.is_integer() and abs(value) < 1 << 53
            reader.flag(
                flag, str(int(value)) if whole and flag.kind in {"int", "tokens", "layers"} else str(value), raw
            )
    _settle(reader, backend)
    return Configuration(settings=reader.settings, unread=reader.unread)


def _read_switch(
    reader: _Reader, flag: Flag | None, off: Flag | None, names: set[str], *, value: bool, raw: str
) -> None:
    """Read a switch that a file says is on or off. Where both directions stand there, only the one that is on says something."""
    if flag is not None:
        both = any(_spelled(name) in names for name in flag.off)
        if value or not both:
            if flag.kind in {"switch", "onoff"}:
                on = _switched_on(flag) if flag.kind == "switch" else "on"
                if value or on in {"on", True}:
                    reader.put(flag.variables, on if value else "off" if on == "on" else False, raw)
            else:
                reader.flag(flag, "true" if value else "false", raw)
    elif off is not None:
        both = any(_spelled(name) in names for name in off.names)
        if value or not both:
            on = "on" if off.kind == "onoff" else _switched_on(off)
            reader.put(off.variables, ("off" if on == "on" else False) if value else on, raw)


# --- writing -------------------------------------------------------------------------------------------------------------------------------


def _written(flag: Flag, value: Any) -> str:
    """Write a value as the flag takes it."""
    if flag.writes and isinstance(value, str):
        if value in flag.writes:
            return flag.writes[value]
        if re.match(r"i?q\d", value):
            raise RefusedSettingError(
                f"{flag.variables[0]} cannot be {value!r} here; of eight bits it takes {flag.writes['q8_0']}"
            )
    if flag.kind == "map" or (flag.kind == "bool" and flag.values):
        for text, meaning in flag.values.items():
            if meaning == value:
                return {"true": "1", "false": "0"}.get(text, text) if flag.kind == "bool" else text
        raise RefusedSettingError(
            f"{flag.variables[0]} cannot be {value!r} here; it takes {', '.join(str(v) for v in flag.values.values())}"
        )
    if flag.kind == "onoff":
        return value if isinstance(value, str) else "on" if value else "off"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return ",".join(_number(v) for v in value)
    return _number(value)


def _number(value: Any) -> str:
    return (
        f"{value:g}"
        if isinstance(value, float) and abs(value) < 1e6
        else str(int(value))
        if isinstance(value, float) and value.is_integer()
        else str(value)
    )


def change_command(argv: Sequence[str], backend: str | None, variable: str, value: Any) -> list[str]:
    """Write the same command with only one setting changed; ``value`` None takes the setting out, so that the server's default holds.

    The flag is changed where it stands, in the spelling that the user chose; else added at the end; a setting that comes from an assignment in
    front of the command, or from ``docker run -e``, is changed there. ``kv_type`` stands for ``kv_type_k`` and ``kv_type_v`` together.
    NotOfferedError if this server's command has no place for it (see :func:`change_steps`); RefusedSettingError if the value cannot be written.
    """
    located = _locate(argv)
    if located.nested is not None:
        inner = _inside(located)
        if inner is None:
            raise NotOfferedError(
                f"which of the shell's commands starts the server cannot be told; change {variable} by hand"
            )
        new = rewritten(located.words[located.nested], inner, change_command(inner.argv, backend, variable, value))
        return [*located.words[: located.nested], new, *located.words[located.nested + 1 :]]
    name = backend or detect_backend(argv)
    if name in {None, "llama.cpp"}:
        name = _variant(located.words[located.start :]) if name else None
    if name is None or name not in FLAGS:
        raise NotOfferedError(
            f"how {name or 'this server'} takes its settings on a command line is not known; change {variable} by hand"
        )
    if variable.startswith("env."):
        return _set_variable(located, variable[4:], None if value is None else str(value))
    if name == "lm-studio" and "load" not in located.words[located.start : located.start + 3]:
        raise NotOfferedError("LM Studio's server takes no settings of a model; they belong to lms load")
    table = _table(name)
    flags = table.for_variable(variable)
    if name == "text-generation-webui":
        loader = _loader_of(located)
        if variable == "ctx" and loader == "transformers":
            raise NotOfferedError("the Transformers loader takes no --ctx-size; it cuts to what the model's files say")
        if loader in {None, "llama.cpp"} and (not flags or _is_handed_on(located, variable)):
            return _hand_on(located, table, variable, value)
    if not flags:
        raise NotOfferedError(f"{name} has no command-line setting for {variable}")
    if name in {"llama.cpp", "ik_llama.cpp", "beellama.cpp"}:
        special = _llama_special(located, table, variable, value, name)
        if special is not None:
            return special
    if variable == "kv_type" and len({f.variables for f in flags}) > 1:
        once = change_command(argv, name, "kv_type_k", value)
        return change_command(once, name, "kv_type_v", value)
    return _change(located, table, flags, value)


def _loader_of(located: _Located) -> str | None:
    """Give the loader that text-generation-webui is told to take, in small letters; None where it chooses by the model."""
    told = parse_command(located.words, None, "text-generation-webui").settings.get("loader")
    return told.value.lower() if told is not None and isinstance(told.value, str) else None


def _handed_on(located: _Located) -> list[str]:
    """Give what text-generation-webui hands on to its llama-server, as that one's own flags."""
    reader = parse_command(located.words, None, "text-generation-webui").settings.get("extra_flags")
    return _own_flags(reader.value) if reader is not None and isinstance(reader.value, str) else []


def _is_handed_on(located: _Located, variable: str) -> bool:
    """Say whether a setting stands among them: they come last, so they win."""
    names = ("kv_type_k", "kv_type_v") if variable == "kv_type" else (variable,)
    read = parse_command(["llama-server", *_handed_on(located)], None, "llama.cpp").settings
    return any(name in read for name in names)


def _hand_on(located: _Located, table: _Table, variable: str, value: Any) -> list[str]:
    """Change a setting among the flags that are handed on to the llama-server."""
    changed = change_command(["llama-server", *_handed_on(located)], "llama.cpp", variable, value)[1:]
    flags = table.for_variable("extra_flags")
    if not changed:
        return _change(located, table, flags, None)
    # argparse takes one word that begins with a dash for a flag of its own
    words_left = _locate(_change(located, table, flags, None)).words
    return [*words_left, f"--extra-flags={as_text(changed)}"]


def _llama_special(located: _Located, table: _Table, variable: str, value: Any, backend: str) -> list[str] | None:
    """Change what llama-server spells in more than one flag. None: nothing special about it."""
    own = located.words[located.start :]
    spelled = {item.flag.variables[0] for item in _occurrences(own, table)}
    if variable == "speculation" and value in (None, False, "none"):
        # Without a draft model and a type there is no speculation; what is left of its options has no effect.
        return _drop(located, table, {"speculation", "draft_model"})
    if variable == "mmproj" and value in (None, False):
        dropped = _drop(located, table, {"mmproj", "mmproj_url"})
        return (
            _change(_locate(dropped), table, table.for_variable("mmproj_auto"), value=False)
            if "model_repo" in spelled
            else dropped
        )
    if (
        variable in {"mmap", "mlock"}
        and value is not None
        and ("load_mode" in spelled or (backend == "llama.cpp" and variable not in spelled))
    ):
        read = parse_command(located.words, None, backend).settings
        now = (
            {"mmap": True, "mlock": False}
            | {k: bool(read[k].value) for k in ("mmap", "mlock") if k in read}
            | {variable: bool(value)}
        )
        mode = "+".join(k for k in ("mmap", "mlock") if now[k]) or "none"
        cleaned = _locate(_drop(located, table, {"mmap", "mlock"}))
        return _change(cleaned, table, table.for_variable("load_mode"), mode)
    if variable == "cpu_moe":
        cleaned = _locate(_drop(located, table, {"cpu_moe"}))
        flags = table.for_variable("cpu_moe")
        if value in (None, False):
            return cleaned.words
        return _change(cleaned, table, [f for f in flags if (f.kind == "switch") is (value is True)], value)
    return None


def _drop(located: _Located, table: _Table, variables: set[str]) -> list[str]:
    """Take every occurrence of these settings out, flags and assignments."""
    result = located.words[: located.start]
    own = located.words[located.start :]
    gone: set[int] = set()
    for item in _occurrences(own, table):
        if item.flag.variables[0] in variables:
            gone.update(range(item.at, item.at + item.length))
    result += [word for number, word in enumerate(own) if number not in gone]
    for flag in table.flags:
        if flag.variables[0] in variables:
            for name in flag.env:
                if name in located.environment:
                    result = _set_variable(_locate(result), name, None)
    return result


def _change(located: _Located, table: _Table, flags: Sequence[Flag], value: Any) -> list[str]:
    head = located.words[: located.start]
    own = located.words[located.start :]
    places = [item for item in _occurrences(own, table) if item.flag in flags]
    if not places:
        return _add(located, flags, value)
    last = places[-1]
    # Repeated lists add up, so all their places are replaced by one.
    drop = places[:-1] if last.flag.repeats or value is None else []
    new_words = [] if value is None else _rewritten(last, own[last.at], value)
    gone = {n for item in [*drop, last] for n in range(item.at, item.at + item.length)}
    result: list[str] = []
    for number, word in enumerate(own):
        if number == last.at:
            result += new_words
        if number not in gone:
            result.append(word)
    return head + result


def _rewritten(item: _Occurrence, spelling: str, value: Any) -> list[str]:
    flag = item.flag
    name = spelling.partition("=")[0]
    if item.off or flag.kind == "switch":
        wanted_off = value in (False, "off")
        if not wanted_off and value not in (True, "on") and flag.kind == "switch":
            raise RefusedSettingError(f"{flag.variables[0]} is switched on or off; it takes no value {value!r}")
        if wanted_off == item.off:
            return [name]
        if wanted_off:
            return [_same_length(name, flag.off)] if flag.off else []
        if not flag.names:
            return []
        return [_same_length(name, flag.names), *([] if flag.kind == "switch" else [_written(flag, value)])]
    text = _written(flag, value)
    if item.text is None and flag.bare is not None and value == flag.bare:
        return [name]
    if item.text is None and flag.kind == "onoff" and flag.bare is not None and text == "off":
        # An older build's bare switch: off is its absence, and it takes no value.
        return []
    if item.equals:
        return [f"{name}={text}"]
    if flag.repeats and flag.kind == "floats":
        return [name, *text.split(",")]
    return [name, text]


def _same_length(name: str, choices: Sequence[str]) -> str:
    """Choose the spelling of the same style: long for long, short for short."""
    style = [c for c in choices if c.startswith("--") == name.startswith("--")]
    return (style or list(choices))[0]


def _add(located: _Located, flags: Sequence[Flag], value: Any) -> list[str]:
    own_environment = [(f, name) for f in flags for name in f.env if name in located.environment]
    if own_environment:
        flag, name = own_environment[-1]
        return _set_variable(located, name, None if value is None else _written(flag, value))
    if value is None:
        return located.words
    flag = flags[0]
    if not flag.names and flag.kind == "switch" and flag.off:
        return [*located.words, flag.off[0]] if value in (False, "off") else located.words
    if not flag.names:
        if not flag.env:
            raise NotOfferedError(f"{flag.variables[0]} has no place in this command")
        return _set_variable(located, flag.env[0], _written(flag, value))
    if flag.kind == "switch":
        off = value in (False, "off")
        if off and not flag.off:
            return located.words
        new = [flag.off[0] if off else flag.names[0]]
    elif flag.repeats and flag.kind == "floats":
        new = [flag.names[0], *_written(flag, value).split(",")]
    else:
        new = [flag.names[0], _written(flag, value)]
    return located.words + new


def _set_variable(located: _Located, name: str, value: str | None) -> list[str]:
    """Set or take out an environment variable where the command gives it: ``NAME=value …``, or ``docker run -e NAME=value``."""
    result = list(located.words)
    for at, word in enumerate(result[: located.start]):
        if word.startswith(f"{name}="):
            if value is not None:
                result[at] = f"{name}={value}"
                return result
            option = at > 0 and located.container is not None and result[at - 1] in {"-e", "--env"}
            return result[: at - 1 if option else at] + result[at + 1 :]
        for prefix in ("-e=", "--env="):
            if located.container is not None and word.startswith(f"{prefix}{name}="):
                return result[:at] + ([f"{prefix}{name}={value}"] if value is not None else []) + result[at + 1 :]
    if value is None:
        return result
    if located.container is not None:
        return [*result[: located.container], "-e", f"{name}={value}", *result[located.container :]]
    return [f"{name}={value}", *result]


# --- where there is no command ---------------------------------------------------------------------------------------------------------------


def change_steps(
    backend: str,
    variable: str,
    value: Any,
    *,
    model: str | None = None,
    argv: Sequence[str] = (),
    in_model: bool = False,
) -> tuple[Words, ...]:
    """Say in steps how one setting is changed on this server, the shortest way first; each step is a whole sentence with its command or line.

    Used where :func:`change_command` has no place to write it, and beside it for Ollama and LM Studio, which are rarely started by hand.
    ``in_model``: the model itself sets it (a Modelfile), against which the server's environment does nothing.
    NotOfferedError if this server has no such setting.
    """
    named = model or "MODEL"
    if backend == "ollama":
        return _ollama_steps(variable, value, named, in_model=in_model)
    if backend == "lm-studio":
        return _lm_studio_steps(variable, value, named)
    if backend == "llama-manager":
        raise NotOfferedError(f"llama-manager chooses {variable} itself while it runs; its presets cannot fix it")
    if argv:
        return (
            words("Start the server with: {command}", command=as_text(change_command(argv, backend, variable, value))),
        )
    if backend not in FLAGS:
        raise NotOfferedError(f"how {backend} takes its settings is not known; change {variable} by hand")
    if not _table(backend).for_variable(variable):
        raise NotOfferedError(f"{backend} has no setting for {variable}")
    changed = change_command(["SERVER"], backend, variable, value)
    if value is None or len(changed) == 1:
        names = sorted({n for f in _table(backend).for_variable(variable) for n in (*f.names, *f.off, *f.env)})
        return (words("Take this setting out of the command that starts the server: {flags}", flags=", ".join(names)),)
    return (
        words(
            "Add this to the command that starts the server: {flags}",
            flags=as_text([w for w in changed if w != "SERVER"]),
        ),
    )


def truncation_steps(model: str, tokens: int) -> tuple[Words, ...]:
    """Say how the length is changed to which text-generation-webui's Transformers loader cuts."""
    named = re.sub(r"([.+*?()\[\]{}^$|\\])", r"\\\1", model.replace("\\", "/").rsplit("/", 1)[-1])
    return (
        words(
            "Write this into config-user.yaml in its folder of models, and load the model again: {lines}. Its Transformers loader takes no "
            "--ctx-size; prompts are cut to what the model's own files say.",
            lines=f"{{{named}$: {{truncation_length: {tokens}}}}}",
        ),
    )


def _ollama_steps(variable: str, value: Any, model: str, *, in_model: bool = False) -> tuple[Words, ...]:
    steps: list[Words] = []
    # its num_batch is both of its runner's batch sizes
    variable = "batch" if variable == "ubatch" else variable
    parameter = next(((name, kind) for name, (v, kind) in MODELFILE.items() if v == variable), None)
    if parameter is not None:
        name, _kind = parameter
        base = model.split(":", maxsplit=1)[0]
        text = str(value).lower() if isinstance(value, bool) else _number(value)
        if value is None:
            steps.append(words("In the Modelfile, take out the line that begins with: PARAMETER {name}", name=name))
        else:
            steps += [
                words("For one session, in ollama run, type: /set parameter {name} {value}", name=name, value=text),
                words(
                    'For one request of the native API, send: "options": {options}', options=json.dumps({name: value})
                ),
                words(
                    "For good, put these two lines into a file named Modelfile: {lines}",
                    lines=f"FROM {model} / PARAMETER {name} {text}",
                ),
                words(
                    "Then make a model of it: {command}",
                    command=as_text(["ollama", "create", f"{base}-changed", "-f", "Modelfile"]),
                ),
            ]
    flags = [f for f in _table("ollama").for_variable(variable) if f.env]
    if flags and not (in_model and parameter is not None):
        flag = flags[0]
        if value is None:
            steps.append(
                words(
                    "Take the variable {name} out of the server's environment and start Ollama again.", name=flag.env[0]
                )
            )
        else:
            assignment = f"{flag.env[0]}={_written(flag, value)}"
            steps += [
                words(
                    'Where systemd runs Ollama: sudo systemctl edit ollama, add Environment="{assignment}" under '
                    "[Service], then restart it.",
                    assignment=assignment,
                ),
                words("Where you start it yourself: {command}", command=as_text([assignment, "ollama", "serve"])),
                words(
                    "On macOS: launchctl setenv {name} {value}, then quit and open Ollama.",
                    name=flag.env[0],
                    value=_written(flag, value),
                ),
                words(
                    "On Windows: set the variable {assignment} in the account's environment, then quit and start Ollama.",
                    assignment=assignment,
                ),
            ]
    if not steps:
        raise NotOfferedError(f"Ollama has no setting for {variable}")
    return tuple(steps)


def _lm_studio_steps(variable: str, value: Any, model: str) -> tuple[Words, ...]:
    steps: list[Words] = []
    flags = _table("lm-studio").for_variable(variable)
    if flags and value is not None:
        command = as_text(["lms", "load", model, flags[0].names[0], _written(flags[0], value)])
        steps.append(words("Unload the model, then load it with: {command}", command=command))
    if variable in LM_STUDIO_LOAD and value is not None:
        told: Any = {"on": True, "off": False}.get(value, value) if isinstance(value, str) else value
        body = json.dumps({"model": model, LM_STUDIO_LOAD[variable]: told, "echo_load_config": True})
        steps.append(words("Or over its API: POST /api/v1/models/load with {body}", body=body))
    if not steps:
        raise NotOfferedError(f"LM Studio has no command for {variable}; look for it in the model's load settings")
    return tuple(steps)
