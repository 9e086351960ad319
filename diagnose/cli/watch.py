"""``ctxdoctor watch``: a client's own requests, seen on their way to the server; counts and times, never text."""

from __future__ import annotations

import contextlib
import queue
import time
from typing import TYPE_CHECKING, Annotated

import typer

from diagnose.cli import options as opt
from diagnose.cli.run import answers_of, symptom_in
from diagnose.console import Terminal, write_out
from diagnose.finish import check_format
from probes.evidence.errors import InputError
from probes.evidence.words import words

if TYPE_CHECKING:
    from diagnose.watching import Session
    from probes.evidence.client import WatchedRequest


def watch_command(
    url: opt.Url = None,
    url_option: opt.UrlOption = None,
    listen: Annotated[
        str, typer.Option("--listen", help="Where the client is to be pointed: a loopback address and port, 0 for any.")
    ] = "127.0.0.1:0",
    budget: Annotated[
        str | None, typer.Option("--budget", help="Stop after this time: 90s, 30m, 2h.", show_default="until Ctrl-C")
    ] = None,
    client: opt.Client = None,
    api_key: opt.ApiKey = None,
    model: opt.Model = None,
    backend: opt.BackendName = None,
    case_name: opt.CaseName = None,
    log: opt.Logs = None,
    symptom: opt.Symptom = None,
    answers: opt.Answers = None,
    everything: opt.Everything = False,
    format: opt.Format = None,  # noqa: A002 - the option's own name
    report_for: opt.For = None,
    out: opt.Out = None,
    lang: opt.Lang = None,
    no_redact: opt.NoRedact = False,
    quiet: opt.Quiet = False,
) -> int:
    """Stand between a client and its server: point the client at the address that is shown, work as usual, end with Ctrl-C.

    Requests and answers pass unchanged. What is kept: counts, times, errors, and how much of each prompt's beginning equals the one before.
    """
    shown = check_format(format)
    where = url or url_option
    if where is None:
        raise InputError("no server: give its address, for example `ctxdoctor watch 8080`")
    seconds = opt.duration(budget) if budget is not None else None
    given = answers_of(answers, symptom)
    key = opt.key_of(api_key)

    from diagnose.clients import read_named  # noqa: PLC0415 - what asks servers is loaded only when one is asked
    from diagnose.finish import tell  # noqa: PLC0415
    from diagnose.perform import open_or_create  # noqa: PLC0415
    from diagnose.watching import Session, begin_watch, end_watch, summary_words  # noqa: PLC0415
    from probes.watch import Watch  # noqa: PLC0415

    settings = read_named(client or ())
    terminal = Terminal(quiet=quiet)
    seen: queue.SimpleQueue[WatchedRequest] = queue.SimpleQueue()
    with open_or_create(case_name, symptom_in(given)) as case:
        session = Session(
            case=case,
            ui=terminal,
            url=where,
            api_key=key,
            model=model,
            backend=backend,
            logs=tuple(log or ()),
            clients=tuple(settings),
        )
        with Watch(where, listen=listen, on_request=seen.put) as watch:
            unseen = begin_watch(session, given, watch.url)
            terminal.say(words("Point the client at {url} (for OpenAI clients {url}/v1); Ctrl-C ends.", url=watch.url))
            interrupted = _wait(session, seen, seconds)
            summary = watch.summary()
            seen_any = end_watch(session, summary, unseen)
        code = tell(
            case,
            terminal,
            format=shown,
            out=out,
            target=report_for,
            redact=not no_redact,
            lang=lang,
            everything=everything,
            write_report=False,
            could_not_look=not seen_any,
        )
    if shown in {None, "terminal"} and (out is None or out == "-"):
        write_out("\n" + "".join(f"{said}\n" for said in summary_words(summary)))
    return 130 if interrupted and seconds is not None else code


def _wait(session: Session, seen: queue.SimpleQueue[WatchedRequest], seconds: float | None) -> bool:
    """Keep each request as it ends, until the time is up or the user stops; says whether the user did."""
    from diagnose.perform import end_cleanly  # noqa: PLC0415
    from diagnose.watching import keep  # noqa: PLC0415

    end_cleanly()
    ends = None if seconds is None else time.monotonic() + seconds
    interrupted = False
    try:
        while ends is None or time.monotonic() < ends:
            left = 0.5 if ends is None else max(0.01, min(0.5, ends - time.monotonic()))
            with contextlib.suppress(queue.Empty):
                keep(session, seen.get(timeout=left))
    except KeyboardInterrupt:
        interrupted = True
    while not seen.empty():
        keep(session, seen.get())
    return interrupted
