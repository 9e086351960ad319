"""The options that ``run`` and ``rerun`` have in common, and what becomes of them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

from diagnose.case import Case
from diagnose.cli import options as opt
from diagnose.console import Terminal
from diagnose.finish import check_format, check_out, tell
from diagnose.options import RunOptions
from probes.backends.http import normalise_url
from probes.evidence.rungs import Criteria


@dataclass(frozen=True)
class Measuring:
    """Options of every command that measures a case. Each field is an option; its type says which."""

    api_key: opt.ApiKey = None
    model: opt.Model = None
    backend: opt.BackendName = None
    tokenizer: opt.Tokenizer = None
    log: opt.Logs = None
    client: opt.Client = None
    launch: opt.Launch = None
    set: opt.Settings = None
    target: opt.Target = None
    output_tokens: opt.OutputTokens = None
    ladder: opt.LadderOption = None
    repeat: opt.Repeat = None
    criteria: opt.CriteriaFile = None
    min_canaries: opt.MinCanaries = None
    min_constraints: opt.MinConstraints = None
    min_prefill: opt.MinPrefill = None
    min_generation: opt.MinGeneration = None
    max_first_token: opt.MaxFirstToken = None
    margin: opt.Margin = None
    budget: opt.Budget = "30m"
    control_url: opt.ControlUrl = None
    soak: opt.Soak = None
    text: opt.TextFolder = None
    everything: opt.Everything = False
    format: opt.Format = None
    report_for: opt.For = None
    out: opt.Out = None
    lang: opt.Lang = None
    no_redact: opt.NoRedact = False
    quiet: opt.Quiet = False

    def check(self) -> None:
        """Check what is told at the end before anything is measured. InputError."""
        check_format(self.format)
        check_out(self.out)
        check_clients(self.client)

    def pass_criteria(self) -> Criteria:
        """Put the pass criteria together. InputError."""
        return opt.criteria_of(
            self.criteria,
            self.repeat,
            self.min_canaries,
            self.min_constraints,
            self.min_prefill,
            self.min_generation,
            self.max_first_token,
            self.margin,
        )

    def options(self, url: str | None, seed: int) -> RunOptions:
        """Give the options of a run. InputError."""
        from probes.ladder.rungs import parse_ladder  # noqa: PLC0415 - only where something is measured

        return RunOptions(
            url=normalise_url(url) if url else None,
            model=self.model,
            backend=self.backend,
            tokenizer=self.tokenizer,
            logs=tuple(str(Path(path).resolve()) for path in self.log or ()),
            clients=client_files(self.client),
            launch=launch_words(self.launch),
            settings=opt.settings_of(self.set),
            target=opt.length(self.target, "--target"),
            output_tokens=opt.length(self.output_tokens, "--output-tokens"),
            ladder=parse_ladder(self.ladder) if self.ladder else None,
            budget_s=opt.duration(self.budget),
            control_url=self.control_url,
            soak=opt.soak_length(self.soak),
            text_folder=opt.text_folder(self.text),
            seed=seed,
        )

    def key(self) -> str | None:
        """Give the server's key."""
        return opt.key_of(self.api_key)

    def told(self, case: Case, terminal: Terminal, *, could_not_look: bool, run: int | None = None) -> int:
        """Tell the result, and give the exit code."""
        return tell(
            case,
            terminal,
            format=check_format(self.format),
            out=self.out,
            target=self.report_for,
            redact=not self.no_redact,
            lang=self.lang,
            everything=self.everything,
            could_not_look=could_not_look,
            run=run,
        )


def measures(command: Callable[..., int]) -> Callable[..., int]:
    """Give a command whose parameter ``given`` is a :class:`Measuring` each of its fields as an option, in its place."""
    types = get_type_hints(Measuring, include_extras=True)
    shared = [
        inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=types[one.name])
        for one in fields(Measuring)
    ]
    own = inspect.signature(command, eval_str=True).parameters.values()
    laid: list[inspect.Parameter] = []
    for parameter in own:
        laid += shared if parameter.name == "given" else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

    @functools.wraps(command)
    def called(**values: Any) -> int:
        names = {one.name for one in fields(Measuring)}
        rest = {name: value for name, value in values.items() if name not in names}
        return command(given=Measuring(**{name: value for name, value in values.items() if name in names}), **rest)

    # the option library reads these, and not the wrapped function
    called.__dict__.pop("__wrapped__", None)
    called.__signature__ = inspect.Signature(laid, return_annotation=int)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in laid} | {"return": int}
    return called


def check_clients(paths: list[str] | None) -> None:
    """Read the clients' settings that were named, so that a wrong file is told before anything is measured. BadFileError."""
    if paths:
        from diagnose.clients import read_named  # noqa: PLC0415 - only where a file was named

        read_named(paths)


def client_files(paths: list[str] | None) -> tuple[str, ...]:
    """Give the whole paths of the files that were named."""
    return tuple(str(Path(path).expanduser().resolve()) for path in paths or ())


def launch_words(text: str | None) -> tuple[str, ...] | None:
    """Split a launch command; a shell is never used. InputError where one would be needed."""
    if text is None:
        return None
    from probes.launch import split_command  # noqa: PLC0415

    return tuple(split_command(text))
