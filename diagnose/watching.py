"""A watch as a run of a case: what the server says of itself, what the client's settings say, each request that passed, and all of them together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from diagnose import look
from diagnose.case import Case
from diagnose.clients import as_evidence
from diagnose.judging import judge_run
from diagnose.options import RunOptions
from diagnose.running import Walk
from diagnose.triage import read_log
from diagnose.ui import Ui
from probes.backends.http import Http, normalise_url
from probes.evidence.answers import Answer
from probes.evidence.client import ClientSettings, WatchedRequest, WatchSummary, address_of
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import found, not_found
from probes.evidence.rungs import Criteria
from probes.evidence.subject import BackendIdentity
from probes.evidence.words import Words, words

LOADING_S = 5.0
"""A watch does not wait for a server that loads: the client will."""


@dataclass(frozen=True, slots=True)
class Session:
    """One watch: its case and what was asked for."""

    case: Case
    ui: Ui
    url: str
    api_key: str | None = None
    model: str | None = None
    backend: str | None = None
    logs: tuple[str, ...] = ()
    clients: tuple[ClientSettings, ...] = ()


def begin_watch(session: Session, answers: Sequence[Answer], watch: str | None = None) -> CtxDoctorError | None:
    """Begin a run: answers, the clients' settings, and what the server says. ``watch``: the address at which clients are to ask.

    Gives why the server could not be looked at, if it could not.
    """
    case = session.case
    options = RunOptions(url=session.url, model=session.model, backend=session.backend, logs=session.logs)
    run = case.run + 1
    case.append("run", {"options": options.model_dump(mode="json"), "mode": "watch"}, run=run)
    for answer in answers:
        case.add(found(answer, source="user", run=0, origin=answer.question))
    for settings in session.clients:
        case.add(as_evidence(_behind(settings, watch, session.url), run))
    try:
        with Http(session.url, session.api_key) as http:
            server = look.recognised(http, session.ui, hint=session.backend, model=session.model, deadline_s=LOADING_S)
            case.add_all(list(look.at_server(server, run)))
            process, why = look.find_process(server.holder())
            case.add_all(list(look.at_process(process, why, server.engine, run, server.model)))
    except CtxDoctorError as error:
        case.add(not_found(BackendIdentity, "failed", str(error), source="server", run=run, origin=session.url))
        session.ui.say(words("Note: {what}", what=str(error)))
        return error
    return None


def _behind(settings: ClientSettings, watch: str | None, server: str) -> ClientSettings:
    """Read an entry that points at the watch as one about the server behind it."""
    if watch is None:
        return settings
    url = normalise_url(server)
    models = tuple(
        one.model_copy(update={"base_url": url})
        if one.base_url is not None and address_of(one.base_url) == address_of(watch)
        else one
        for one in settings.models
    )
    return settings.model_copy(update={"models": models})


def keep(session: Session, request: WatchedRequest) -> None:
    """Write one request into the case."""
    run = session.case.run
    session.case.add(found(request, source="measured", run=run, origin=f"watch, request {request.number}"))
    session.ui.say(in_words(request))


def in_words(request: WatchedRequest) -> Words:
    """Say in one line what a request was."""
    same = ""
    if request.same_as_before_chars is not None and request.before_chars:
        shorter = min(request.before_chars, request.prompt_chars or request.before_chars)
        same = f"{request.same_as_before_chars / shorter:.0%}" if shorter else ""
    ended = request.error or request.finish or str(request.status)
    if request.prompt_tokens is None:
        # a stream without usage, or an answer that never came: the characters were seen all the same
        return words(
            "{number}. {path}: prompt {chars} characters (tokens were not told), {seconds} s, {ended}; beginning as before: {same}",
            number=request.number,
            path=request.path,
            chars=f"{request.prompt_chars:,}" if request.prompt_chars is not None else "-",
            seconds=f"{request.total_s:.1f}",
            ended=ended,
            same=same or "-",
        )
    return words(
        "{number}. {path}: prompt {tokens} tokens, {seconds} s, {ended}; beginning as before: {same}",
        number=request.number,
        path=request.path,
        tokens=request.prompt_tokens,
        seconds=f"{request.total_s:.1f}",
        ended=ended,
        same=same or "-",
    )


def end_watch(session: Session, summary: WatchSummary, unseen: CtxDoctorError | None = None) -> bool:
    """Put together what all requests show, read the logs, and judge. ``unseen``: why the server could not be looked at in the beginning.

    Says whether something was seen at all: a server that answered to nobody was not.
    """
    case = session.case
    case.add(found(summary, source="measured", run=case.run, origin="watch"))
    for log in session.logs:
        try:
            case.add_all([piece.model_copy(update={"run": case.run}) for piece in read_log(log)])
        except CtxDoctorError as error:
            case.add(not_found("log_summary", "failed", str(error), source="log", run=case.run, origin=log))
            session.ui.say(words("The log cannot be read: {why}", why=str(error)))
    judge_run(Walk(case, RunOptions(backend=session.backend), session.ui, Criteria(), mode="triage"))
    answered = any(one.status and one.error != "connection-lost" for one in case.payloads(WatchedRequest, case.run))
    case.append("run-ended", {"could_not_look": str(unseen) if unseen is not None and not answered else None})
    return unseen is None or answered


def summary_words(summary: WatchSummary) -> list[Words]:
    """Say what all requests show together, one sentence each."""
    said = [words("Requests seen: {number}", number=summary.requests)]
    if summary.longest_prompt_tokens is not None:
        said.append(words("Longest prompt: {tokens} tokens", tokens=summary.longest_prompt_tokens))
    if summary.errors:
        said.append(words("Errors: {errors}", errors=", ".join(f"{name} × {n}" for name, n in summary.errors.items())))
    if summary.turns_compared:
        said.append(
            words(
                "Turns whose beginning differs from the turn before: {broken} of {all}",
                broken=summary.prefix_broken,
                all=summary.turns_compared,
            )
        )
    if summary.changing_header_at_chars is not None:
        said.append(
            words(
                "The beginning changes again and again, at character {place} ({where}): the prompt cache is of no use after that.",
                place=summary.changing_header_at_chars,
                where=summary.changing_header_in or "?",
            )
        )
    if summary.history_shortened:
        said.append(words("Turns in which the history was shortened: {number}", number=summary.history_shortened))
    if summary.turns_lost:
        said.append(
            words(
                "Turns of which the server read less than of the shorter turn before, without an error: {number}; of about {sent} tokens it read {read}.",
                number=summary.turns_lost,
                sent=summary.lost_sent_tokens or 0,
                read=summary.lost_processed_tokens or 0,
            )
        )
    if summary.client_timeout_s is not None:
        said.append(words("The client hangs up after {seconds} s, again and again.", seconds=summary.client_timeout_s))
    elif summary.client_left:
        said.append(words("Requests on which the client hung up: {number}", number=summary.client_left))
    if summary.believed_window is not None:
        said.append(words("The window that the client keeps to: {tokens} tokens", tokens=summary.believed_window))
    return said
