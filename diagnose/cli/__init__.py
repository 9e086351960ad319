"""The command line: a table of commands, each in a module that is imported only when it is called.

The table answers ``--help`` by itself, so that asking for help costs no more than starting Python. Exit codes are the contract's.
"""

from __future__ import annotations

import errno
import os
import sys
from contextvars import copy_context
from importlib import import_module

TYPE_CHECKING = False  # typing costs more to import than the launcher; type checkers know this name
if TYPE_CHECKING:
    from typing import Any

COMMANDS: dict[str, tuple[str, str]] = {
    # command → (module in this folder, what it does)
    "run": ("run", "measure a running server (or one that is started with --launch) and write the report"),
    "check": ("check", "within a minute: which server, windows, truncation, memory, red flags"),
    "triage": ("triage", "no server: judge logs, a pasted bug report, an exported case, or answers"),
    "estimate": ("estimate", "what a model, window and cache type need on each device"),
    "watch": ("watch", "a loopback proxy between a client and its server that keeps counts and times, never text"),
    "rerun": ("rerun", "after one change: measure again and score the prediction"),
    "report": ("report", "render a case again: md, html, json or bug-report"),
    "explain": ("explain", "the trace: clues for, against and unknown, with the values found"),
    "cases": ("cases", "the history, newest first; `cases export CASE` writes one redacted file"),
    "rules": ("show", "the catalogue of rules"),
    "facts": ("show", "the vocabulary of facts"),
    "questions": ("show", "the questionnaire"),
    "schema": ("show", "the JSON Schemas of every document"),
    "demo": ("demo", "an embedded llama.cpp with a small model, really run: healthy or a symptom"),
}

LOOKS_BACK = frozenset({"check", "watch", "triage", "report", "explain", "cases"})
"""Commands that first put right what a killed call left. Those that measure a case do so by themselves; those that neither touch a machine nor a
case (the catalogue, the schema, an estimate) do not."""

QUICK = {"estimate": "estimate_run"}
"""Commands whose plain command lines are answered without the option library (``quick`` in that module), because it costs more than they do."""

_SYMPTOMS = "immediate-oom, fixed-length-error, slow-long-context, forgetting, flaky"


def help_text() -> str:
    """Give the overview that ``--help`` prints."""
    from probes.evidence.words import words  # noqa: PLC0415 - nothing is imported for --version

    lines = [
        str(words("Usage: ctxdoctor [COMMAND] [OPTIONS]")),
        "",
        str(
            words(
                "Finds out why a local language model fails before its configured context length, says what single thing to change next,"
            )
        ),
        str(
            words(
                "and proves the window that really works. Without a command, in a terminal: the guided questionnaire."
            )
        ),
        "",
        str(words("Commands:")),
    ]
    lines += [f"  {name:<10} {words(text)}" for name, (_module, text) in COMMANDS.items()]
    lines += [
        "",
        str(words("Symptoms: {symptoms}", symptoms=_SYMPTOMS)),
        str(
            words(
                "`ctxdoctor COMMAND --help` shows a command's options. --lang en|ko, --version, --debug and --no-color work with every command."
            )
        ),
        str(
            words(
                "Exit codes: 0 verified or nothing wrong, 1 a cause was named or the target not reached, 2 bad input, 3 could not look,"
            )
        ),
        str(words("4 inconclusive, 130 interrupted (the case is kept).")),
    ]
    return "\n".join(lines) + "\n"


def _without_language(arguments: list[str]) -> list[str]:
    """Give the arguments without ``--lang``."""
    kept: list[str] = []
    skip = False
    for one in arguments:
        if skip or one.startswith("--lang="):
            skip = False
        elif one == "--lang":
            skip = True
        else:
            kept.append(one)
    return kept


def _take_language(arguments: list[str]) -> list[str]:
    """Read ``--lang`` before anything is built, so that help and errors speak it too; it stays for the command."""
    given = os.environ.get("CTXDOCTOR_LANG", "")
    for place, one in enumerate(arguments):
        if one == "--":
            break
        if one == "--lang" and place + 1 < len(arguments):
            given = arguments[place + 1]
        elif one.startswith("--lang="):
            given = one.partition("=")[2]
    if given or any(os.environ.get(name, "").startswith("ko") for name in ("LC_ALL", "LC_MESSAGES", "LANG")):
        from diagnose.language import choose  # noqa: PLC0415

        choose(given or None)
    if arguments and arguments[0].partition("=")[0] == "--lang":
        # before the command: it belongs to the command's own options
        told = 2 if arguments[0] == "--lang" else 1
        return [*arguments[told:], *arguments[:told]]
    return arguments


def command_line(arguments: list[str]) -> int:
    """Run one command; gives its exit code. Nothing but a bug escapes as a traceback, and with ``--debug`` every error does."""
    try:
        from diagnose.cli.interrupts import never_lost  # noqa: PLC0415 - nothing is imported for --version
        from diagnose.cli.pipes import unbreakable  # noqa: PLC0415

        with unbreakable(), never_lost():
            # in a context of its own: the language of one command is not that of the next
            return copy_context().run(_command_line, arguments)
    except KeyboardInterrupt:
        # it came before the command had begun, or after its last word
        if "--debug" in arguments:
            raise
        return 130


def _command_line(arguments: list[str]) -> int:
    debug = "--debug" in arguments
    if "--no-color" in arguments:
        os.environ["NO_COLOR"] = "1"
    try:
        while arguments[:1] in (["--debug"], ["--no-color"]):
            # they work before the command too
            arguments = arguments[1:]
        arguments = _take_language(arguments)
        if _without_language(arguments) in (["--help"], ["-h"], ["help"]):
            sys.stdout.write(help_text())
            return 0
        if "--version" in arguments[:1]:
            from diagnose.version import version  # noqa: PLC0415

            sys.stdout.write(f"ctxdoctor {version()}\n")
            return 0
        return _dispatch(arguments)
    except KeyboardInterrupt:
        if debug:
            raise
        from diagnose.cli.interrupts import once_is_enough  # noqa: PLC0415 - nothing is imported for --version

        with once_is_enough():
            from probes.evidence.words import words  # noqa: PLC0415

            sys.stderr.write(f"{words('interrupted')}\n")
        return 130
    except Exception as error:
        from probes.evidence.errors import CtxDoctorError  # noqa: PLC0415

        if debug:
            raise
        if isinstance(error, CtxDoctorError):
            from diagnose.language import spoken  # noqa: PLC0415

            sys.stderr.write(f"ctxdoctor: {spoken(str(error))}\n")
            return error.exit_code
        if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}:
            sys.stderr.write(
                f"ctxdoctor: the output cannot be written ({error.strerror}); make room, or send it elsewhere\n"
            )
            return 3
        first = " ".join(str(error).split())[:300]
        sys.stderr.write(
            f"ctxdoctor: this is a fault in ctxdoctor ({type(error).__name__}: {first}); run again with --debug and report the traceback\n"
        )
        return 3


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        if sys.stdin.isatty() and sys.stdout.isatty():
            return _call("run", "guided", [])
        sys.stderr.write(help_text())
        return 2
    name, rest = arguments[0], arguments[1:]
    if name in QUICK:
        code = import_module(f"diagnose.cli.{QUICK[name]}").quick(rest)
        if isinstance(code, int):
            return code
    if name in COMMANDS:
        return _call(COMMANDS[name][0], name, rest)
    if name.startswith("-") and sys.stdin.isatty() and sys.stdout.isatty():
        # options without a command, in a terminal: the guided walk with them
        return _call("run", "guided", arguments)
    if name.startswith("-"):
        import shlex  # noqa: PLC0415

        sys.stderr.write(
            "ctxdoctor: options without a command begin the guided walk, which needs a terminal; "
            f"without one, name a command: {shlex.join(['ctxdoctor', 'run', *arguments])}\n"
        )
        return 2
    import difflib  # noqa: PLC0415

    near = difflib.get_close_matches(name, COMMANDS, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    sys.stderr.write(f"ctxdoctor: there is no command {name!r}{hint} `ctxdoctor --help` lists them\n")
    return 2


def _app(module_name: str, command: str) -> Any:
    os.environ.setdefault("TYPER_USE_RICH", "0")
    import typer  # noqa: PLC0415 - dear, and not needed for help

    module = import_module(f"diagnose.cli.{module_name}")
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(command)(getattr(module, f"{command}_command"))
    return app


def help_command(module_name: str, command: str) -> Any:
    """Give a command as the option library sees it: what its help texts are read from. ModuleNotFoundError where it is not built."""
    import typer  # noqa: PLC0415 - dear, and not needed for help

    return typer.main.get_command(_app(module_name, command))


def _call(module_name: str, command: str, rest: list[str]) -> int:
    import typer  # noqa: PLC0415 - dear, and not needed for help

    app = _app(module_name, command)
    if "--help" in rest:
        from diagnose.language import help_in_words, in_force  # noqa: PLC0415

        if in_force() != "en":
            sys.stdout.write(help_in_words(typer.main.get_command(app), f"ctxdoctor {command}"))
            return 0
    rest = [one for one in rest if one not in {"--debug", "--no-color"}]
    if command in LOOKS_BACK and "--help" not in rest:
        from diagnose.aftermath import put_right  # noqa: PLC0415
        from diagnose.console import Terminal  # noqa: PLC0415

        # these show something: the user's server is started again, and not waited for
        put_right(Terminal(quiet="--quiet" in rest), wait_s=1.0)
    try:
        result = app(args=rest, prog_name=f"ctxdoctor {command}", standalone_mode=False)
    except typer.Exit as error:
        return error.exit_code
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 2
    except Exception as error:
        # typer's own usage errors carry an exit code and can show themselves; they are no faults of ours
        show = getattr(error, "format_message", None)
        if show is None:
            raise
        sys.stderr.write(f"ctxdoctor {command}: {show()} `ctxdoctor {command} --help` shows the options\n")
        return 2
    return result if isinstance(result, int) else 0
