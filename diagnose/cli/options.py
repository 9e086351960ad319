"""Options that mean the same in every command, and how their texts become values."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any

import typer

from probes.evidence.errors import InputError
from probes.evidence.rungs import Criteria
from probes.evidence.sizes import parse_length, parse_memory
from rules.causes import SYMPTOMS

Url = Annotated[
    str | None, typer.Argument(help="The server: http://127.0.0.1:8080, or just its port.", show_default=False)
]
UrlOption = Annotated[
    str | None, typer.Option("--url", help="The server's address, as the argument.", show_default=False)
]
ApiKey = Annotated[
    str | None, typer.Option("--api-key", help="Key of the server; better in CTXDOCTOR_API_KEY.", show_default=False)
]
Model = Annotated[
    str | None, typer.Option("--model", help="Which model, where the server has several.", show_default=False)
]
BackendName = Annotated[
    str | None,
    typer.Option("--backend", help="Which server program it is, where it cannot be told.", show_default=False),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        "--tokenizer", help="The model's tokenizer: a folder, a tokenizer.json, or a cached name.", show_default=False
    ),
]
CaseName = Annotated[
    str | None, typer.Option("--case", help="Go on with this case (or name a new one).", show_default=False)
]
Logs = Annotated[
    list[str] | None, typer.Option("--log", help="A log of the server; may be given several times.", show_default=False)
]
Client = Annotated[
    list[str] | None,
    typer.Option(
        "--client",
        help="A client's settings file (OpenCode, Aider, Continue, …): the window it believes in is held against the server's. "
        "Keys in it are not read. May be given several times.",
        show_default=False,
    ),
]
Launch = Annotated[
    str | None,
    typer.Option(
        "--launch", help="The command that starts the server; it is started, watched and stopped.", show_default=False
    ),
]
Symptom = Annotated[
    str | None, typer.Option("--symptom", help="What went wrong: " + ", ".join(SYMPTOMS) + ".", show_default=False)
]
Answers = Annotated[
    str | None,
    typer.Option("--answers", help="A file with answers to the questionnaire, TOML or JSON.", show_default=False),
]
Target = Annotated[
    str | None,
    typer.Option("--target", help="The window wanted, answer included: 98304, 96k, 128K.", show_default=False),
]
OutputTokens = Annotated[
    str | None, typer.Option("--output-tokens", help="Tokens kept for the answer.", show_default=False)
]
LadderOption = Annotated[
    str | None, typer.Option("--ladder", help="Lengths to measure: 8192,32768,… or auto.", show_default=False)
]
Repeat = Annotated[
    int | None, typer.Option("--repeat", help="How often the important length has to pass.", show_default="3")
]
CriteriaFile = Annotated[
    str | None, typer.Option("--criteria", help="A TOML or JSON file with the pass criteria.", show_default=False)
]
MinCanaries = Annotated[
    str | None,
    typer.Option("--min-canaries", help="Share of facts to be recalled, as 9/10 or 0.9.", show_default=False),
]
MinConstraints = Annotated[
    str | None,
    typer.Option("--min-constraints", help="Share of coding constraints to be met, as 3/3.", show_default=False),
]
MinPrefill = Annotated[
    float | None, typer.Option("--min-prefill", help="Prefill speed wanted, tokens per second.", show_default=False)
]
MinGeneration = Annotated[
    float | None,
    typer.Option("--min-generation", help="Generation speed wanted, tokens per second.", show_default=False),
]
MaxFirstToken = Annotated[
    float | None,
    typer.Option("--max-first-token", help="Longest wait for the first token, seconds.", show_default=False),
]
Margin = Annotated[
    str | None, typer.Option("--margin", help="Memory to be left free on each device: 1GiB.", show_default=False)
]
Budget = Annotated[str, typer.Option("--budget", help="Time for the whole run: 90s, 30m, 2h.")]
ControlUrl = Annotated[
    str | None,
    typer.Option(
        "--control-url",
        help="A server with a model that surely fits, for comparison; URL#MODEL for another model of one server.",
        show_default=False,
    ),
]
Soak = Annotated[
    str | None,
    typer.Option(
        "--soak",
        help="Also hold a session of many turns up to this length: 32k; or max, as far as the window goes.",
        show_default=False,
    ),
]
TextFolder = Annotated[
    str | None,
    typer.Option(
        "--text", help="A folder of your own files as filler; sent to the server under test only.", show_default=False
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of text and canaries.")]
Everything = Annotated[bool, typer.Option("--all", help="Every cause, unlikely ones too.")]
Format = Annotated[
    str | None, typer.Option("--format", help="md, html, json, bug-report or terminal.", show_default=False)
]
For = Annotated[
    str | None, typer.Option("--for", help="Whose bug form: llama.cpp, ollama, vllm, …", show_default=False)
]
Out = Annotated[str | None, typer.Option("--out", help="Where the report goes.", show_default=False)]
Lang = Annotated[str | None, typer.Option("--lang", help="Language: en or ko.", show_default=False)]
NoRedact = Annotated[
    bool, typer.Option("--no-redact", help="Keep names, paths and addresses in the report: for private use.")
]
Auto = Annotated[
    bool,
    typer.Option(
        "--auto",
        help="Change one thing after another until the target is verified; each is shown before. "
        "With --launch, or where a running server changes settings itself: Ollama, LM Studio, llama-manager.",
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="For this run only, a setting such as ctx=16384: in the command of --launch, or through the running server's own interface.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Go on without asking.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No talk and no progress.")]


def key_of(given: str | None) -> str | None:
    """Give the server's key: the option, else CTXDOCTOR_API_KEY. InputError if no HTTP header can carry it."""
    from probes.backends.http import check_key  # noqa: PLC0415 - what asks servers is loaded only when one is asked

    key = given or os.environ.get("CTXDOCTOR_API_KEY") or None
    if key is not None:
        check_key(key)
    return key


def text_folder(given: str | None) -> str | None:
    """Give the folder of ``--text``, whole. InputError if it is none."""
    if given is None:
        return None
    folder = Path(given)
    if not folder.is_dir():
        raise InputError(f"{given[:200]} is not a folder: give --text a folder with your own text files")
    return str(folder.resolve())


def soak_length(text: str | None) -> int | None:
    """Read ``--soak``: a length, or ``max`` (0: as far as the window goes). InputError if it is neither."""
    if text is not None and text.strip().lower() in {"max", "full"}:
        return 0
    return length(text, "--soak")


def length(text: str | None, name: str) -> int | None:
    """Read a length in tokens. InputError names the option."""
    if text is None:
        return None
    try:
        value = parse_length(text)
    except InputError as error:
        raise InputError(f"{name}: {error}") from error
    if value < 1:
        raise InputError(f"{name} has to be at least 1 token")
    return value


def duration(text: str) -> float:
    """Read a time: 90, 90s, 30m, 2h. InputError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|m|min|h)?\s*", text)
    if match is None or float(match[1]) <= 0:
        raise InputError(f"--budget {text!r} is no time; write 90s, 30m or 2h")
    return float(match[1]) * {"s": 1, None: 1, "m": 60, "min": 60, "h": 3600}[match[2]]


def share(text: str | None, name: str) -> float | None:
    """Read a share: 9/10, 0.9 or 90%. InputError names the option."""
    if text is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?:/\s*(\d+)|(%))?\s*", text)
    if match is not None:
        value = float(match[1])
        value = value / float(match[2]) if match[2] and float(match[2]) else value / 100 if match[3] else value
        if 0 <= value <= 1 and not (match[2] and float(match[2]) == 0):
            return value
    raise InputError(f"{name} {text!r} is no share; write 9/10, 0.9 or 90%")


def settings_of(texts: list[str] | None) -> dict[str, Any]:
    """Read ``--set``: names as in the report, each with a value: a number, a length, true, false or a word. InputError."""
    settings: dict[str, Any] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z0-9_.]*", name) or not value.strip():
            raise InputError(f"--set {text[:80]!r}: write NAME=VALUE, for example --set ctx=16384")
        settings[name] = _value_of(name, value.strip())
    return settings


def _value_of(name: str, text: str) -> Any:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if name == "ctx":
        return length(text, "--set ctx")
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def symptom_of(text: str | None) -> str | None:
    """Check a symptom's id. InputError lists them."""
    if text is not None and text not in SYMPTOMS:
        raise InputError(f"--symptom is one of {', '.join(SYMPTOMS)}, not {text!r}")
    return text


def criteria_of(
    file: str | None,
    repeat: int | None,
    min_canaries: str | None,
    min_constraints: str | None,
    min_prefill: float | None,
    min_generation: float | None,
    max_first_token: float | None,
    margin: str | None = None,
) -> Criteria:
    """Put the pass criteria together: a file, then single options over it. InputError, one line."""
    given: dict[str, Any] = {}
    if file is not None:
        given = _criteria_file(Path(file))
    single = {
        "repeats": repeat,
        "min_canaries": share(min_canaries, "--min-canaries"),
        "min_constraints": share(min_constraints, "--min-constraints"),
        "min_prefill_tps": min_prefill,
        "min_generation_tps": min_generation,
        "max_first_token_s": max_first_token,
        "margin_bytes": parse_memory(margin, "--margin") if margin is not None else None,
    }
    given |= {name: value for name, value in single.items() if value is not None}
    from pydantic import ValidationError  # noqa: PLC0415

    try:
        return Criteria(**given)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"criteria: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from error


def _criteria_file(path: Path) -> dict[str, Any]:
    import json  # noqa: PLC0415
    import tomllib  # noqa: PLC0415

    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise InputError(f"the criteria file {path} cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"the criteria file {path} is neither TOML nor JSON ({error})") from error
    data = data.get("criteria", data) if isinstance(data, dict) else None
    if not isinstance(data, dict):
        raise InputError(f"the criteria file {path} has to hold names and values, such as repeats = 3")
    known = set(Criteria.model_fields) - {"fixed_at"}
    for name, value in list(data.items()):
        if name not in known:
            raise InputError(f"the criteria file {path} has {name!r}, which is none of {', '.join(sorted(known))}")
        if isinstance(value, str) and name.startswith("min_"):
            data[name] = share(value, name)
    return data
