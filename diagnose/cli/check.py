"""``ctxdoctor check``: what a short look at a server shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagnose.cli import options as opt
from diagnose.console import Terminal, write_out
from probes.evidence.errors import CaseError, InputError
from probes.evidence.words import Words, words
from reports.escape import plain_json

if TYPE_CHECKING:
    from diagnose.check import CheckDocument

ResultFile = Annotated[
    str | None,
    typer.Option("--out", help="A file for the result; absent or -: standard output.", show_default=False),
]
ShortFormat = Annotated[str, typer.Option("--format", help="text or json.")]


def text_or_json(name: str) -> Literal["text", "json"]:
    """Check the format of a command that knows two. InputError."""
    if name in {"text", "terminal"}:
        return "text"
    if name == "json":
        return "json"
    raise InputError(f"--format is text or json here, not {name!r}")


def put_json(value: Any, out: str | None) -> None:
    """Write a value as JSON that no terminal makes anything of."""
    put(plain_json(json.dumps(value, indent=2, ensure_ascii=False)), out)


def put(text: str, out: str | None) -> None:
    """Write a result to a file, or to stdout where none (or ``-``) was given. DiskFullError, CaseError."""
    text = text if text.endswith("\n") else text + "\n"
    if out is None or out == "-":
        write_out(text)
        return
    from diagnose.case import write_whole  # noqa: PLC0415
    from diagnose.finish import check_out  # noqa: PLC0415 - only where a file is written

    check_out(out)
    path = Path(out)
    there = path.exists()
    try:
        write_whole(path, text)
    except CaseError as error:
        why = getattr(error.__cause__, "strerror", None) or "no such place"
        raise InputError(
            f"--out {out} cannot be written ({why}); give the name of a file that you may write"
        ) from error
    if there:
        sys.stderr.write(f"{words('Replaced: {path}', path=out)}\n")


def check_command(
    url: opt.Url = None,
    url_option: opt.UrlOption = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    tokenizer: opt.Tokenizer = None,
    client: opt.Client = None,
    full: Annotated[
        bool, typer.Option("--full", help="Prove truncation also where the server would have to read a long prompt.")
    ] = False,
    format: ShortFormat = "text",  # noqa: A002 - the option's own name
    out: ResultFile = None,
    lang: opt.Lang = None,
    quiet: opt.Quiet = False,
) -> int:
    """Look at a server for at most a minute and about 3,000 tokens: windows, truncation, memory in use, red flags."""
    del lang  # it was read before the command line was built
    shown = text_or_json(format)
    where = url or url_option
    if where is None:
        raise InputError("no server: give its address, for example `ctxdoctor check 8080`")
    from diagnose.check import check  # noqa: PLC0415 - what asks servers is loaded only when one is asked

    document = check(
        where,
        Terminal(quiet=quiet),
        api_key=opt.key_of(api_key),
        model=model,
        backend=backend,
        tokenizer=tokenizer,
        clients=tuple(client or ()),
        full=full,
    )
    put(document.to_json() if shown == "json" else in_text(document), out)
    return document.exit_code


def in_text(document: CheckDocument) -> str:
    """Give the check as a person reads it."""
    from reports.baseline import client_words  # noqa: PLC0415
    from reports.escape import visible  # noqa: PLC0415
    from reports.figures import count, size  # noqa: PLC0415

    def told(value: object) -> str:
        return visible(str(value)) if value is not None else str(words("unknown"))

    def tokens(value: int | None) -> str:
        return str(count(value)) if value is not None else str(words("unknown"))

    server, model, window, cut = document.backend, document.model, document.window, document.truncation
    lines: list[Words | str] = [
        words("Server: {name} {version}", name=told(server.name), version=visible(server.version or "")),
        words(
            "Model: {name}, {kind}, {quantization}",
            name=told(model.name),
            kind=told(model.architecture),
            quantization=told(model.quantization),
        ),
        words(
            "Window: asked {asked}, trained {trained}, slots {slots}, per slot {each}, in force {window}",
            asked=tokens(window.asked),
            trained=tokens(window.trained),
            slots=told(window.slots),
            each=tokens(window.per_slot),
            window=tokens(window.in_force),
        ),
    ]
    lines += [words("Client's own settings: {what}", what=visible(str(client_words(one)))) for one in document.clients]
    lines.append(
        {
            "refused": words("A prompt above the window is answered with an empty text and NO error.")
            if cut.silent
            else words("A prompt above the window is refused with an error, as it should be."),
            "none": words("A prompt above the window was processed whole: nothing was cut."),
            "truncated": words(
                "A prompt above the window is CUT without an error: {sent} tokens sent, {processed} processed.",
                sent=tokens(cut.sent),
                processed=tokens(cut.processed),
            ),
            "unknown": words(
                "Whether a prompt above the window is cut: unknown. With --full: about {tokens} tokens.",
                tokens=tokens(cut.would_cost_tokens),
            )
            if cut.would_cost_tokens
            else words("Whether a prompt above the window is cut: unknown ({why}).", why=visible(cut.note or "")),
        }[cut.verdict]
    )
    for device in document.memory.devices:
        lines.append(
            words(
                "Device {id} {name}: {free} free of {all}",
                id=device.id,
                name=visible(device.name or ""),
                free=size(device.free_bytes) if device.free_bytes is not None else words("unknown"),
                all=size(device.total_bytes) if device.total_bytes is not None else words("unknown"),
            )
        )
        lines += [
            f"  {process.pid} {visible(process.name or '')}: "
            f"{size(process.used_bytes) if process.used_bytes is not None else words('unknown')}"
            for process in device.by_process or ()
        ]
    if not document.memory.devices:
        lines.append(words("No accelerator was found on this machine."))
    if document.memory.ram_available_bytes is not None:
        lines.append(words("System memory available: {size}", size=size(document.memory.ram_available_bytes)))
    marks = {"serious": "!!", "warning": "! ", "note": "- "}
    by_english = {one.english: Words(one.text, one.values) for one in document.messages}
    if document.flags:
        lines.append("")
    lines += [
        f"{marks[flag.severity]} {visible(str(by_english.get(flag.words, flag.words)))} [{flag.id}]"
        for flag in document.flags
    ]
    if not document.flags:
        lines.append(words("No red flags."))
    lines.append(
        words(
            "Sent: {requests} requests, {prompt} prompt tokens processed.",
            requests=document.sent.requests,
            prompt=tokens(document.sent.prompt_tokens),
        )
    )
    return "\n".join(str(line).rstrip() for line in lines) + "\n"
