"""What a client believes, beside what the server has: from settings files that were named, or that the person allowed. No other file is opened."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from diagnose.running import Walk
from probes.client_config import read_client_config
from probes.evidence.client import ClientModel, ClientSettings
from probes.evidence.errors import BadFileError, CtxDoctorError
from probes.evidence.records import Evidence, EvidenceSet, found, not_found
from probes.evidence.subject import BackendIdentity, ModelIdentity, WindowReading
from probes.evidence.words import Words, words
from reports.document import ClientValues

MORE, FEWER = 1.05, 0.6
"""From these shares of the window in force on, a client reckons with another one: as in the rule about it."""
MUCH_OF_WINDOW = 1 / 3


def read_named(paths: Sequence[str]) -> list[ClientSettings]:
    """Read the settings files that were named. BadFileError for one that is none of a known client."""
    return [read_client_config(Path(path).expanduser()) for path in paths]


def as_evidence(settings: ClientSettings, run: int) -> Evidence:
    """Give a settings file as evidence of a run."""
    return found(settings, source="file", run=run, origin=Path(settings.path).name)


def add_named(one: Walk) -> None:
    """Read a run's settings files into its case, once; one that can no longer be read is said to be so."""
    if one.mine(ClientSettings):
        return
    for path in one.options.clients:
        try:
            (settings,) = read_named([path])
        except BadFileError as error:
            one.add(cannot(path, str(error), one.run))
            one.ui.say(words("The client's settings cannot be read: {why}", why=str(error)))
        else:
            one.add(as_evidence(settings, one.run))


def cannot(path: str, why: str, run: int) -> Evidence:
    """Give as evidence that a settings file could not be read."""
    return not_found(ClientSettings, "failed", why, source="file", run=run, origin=Path(path).name)


def at_home(path: str) -> str:
    """Give a path with the home folder as ``~``."""
    try:
        return f"~/{Path(path).relative_to(Path.home()).as_posix()}"
    except (ValueError, RuntimeError):
        return path


# -- beside the server -------------------------------------------------------------------------------------------------------------------


def belief(settings: ClientSettings, evidence: EvidenceSet) -> ClientModel | None:
    """Give what a client's settings say of the server and model under test; None where they have no entry about them."""
    urls = [server.url for _record, server in evidence.of(BackendIdentity) if server.url]
    names = {model.name for _record, model in evidence.of(ModelIdentity) if model.name}
    return settings.belief(urls[-1] if urls else None, names)


def clients_of(evidence: EvidenceSet) -> tuple[ClientValues, ...]:
    """Give what every client's settings believe of the server and model under test, the file's newest reading each."""
    newest = {(settings.client, settings.path): settings for _record, settings in evidence.of(ClientSettings)}
    return tuple(values_of(settings, belief(settings, evidence)) for settings in newest.values())


def values_of(settings: ClientSettings, mine: ClientModel | None) -> ClientValues:
    """Put together what a report shows of one settings file. Addresses and names of other servers in it are left out."""
    return ClientValues(
        client=settings.client,
        path=settings.path or None,
        applies=mine is not None,
        compaction=settings.compaction,
        **({} if mine is None else mine.model_dump(exclude={"provider"})),
    )


def said_of(client: ClientValues, in_force: int | None) -> Iterator[Words]:
    """Say in whole sentences how a client's belief stands to the window in force. Nothing where both are alike."""
    name = {"client": client.client}
    if not client.applies:
        yield words("{client}: its settings file has no entry for this server and model.", **name)
        return
    if client.context is None:
        yield words("{client}: its settings name no window for this model, so it goes by a table of its own.", **name)
    elif in_force and client.context > MORE * in_force:
        yield words(
            "{client} reckons with a window of {believed} tokens and the server has {window}: what lies between is refused or cut.",
            **name,
            believed=f"{client.context:,}",
            window=f"{in_force:,}",
        )
    elif in_force and client.context < FEWER * in_force:
        yield words(
            "{client} reckons with a window of {believed} tokens and the server has {window}: it shortens its history too early.",
            **name,
            believed=f"{client.context:,}",
            window=f"{in_force:,}",
        )
    if in_force and client.output and client.output > MUCH_OF_WINDOW * in_force:
        yield words(
            "{client} keeps {output} tokens for the answer, which leaves little of the server's {window} for the prompt.",
            **name,
            output=f"{client.output:,}",
            window=f"{in_force:,}",
        )


_WHERE = {
    "opencode": "limit.context", "crush": "context_window", "zed": "max_tokens", "continue": "contextLength", "aider": "max_input_tokens",
    "codex": "model_context_window", "goose": "GOOSE_CONTEXT_LIMIT", "cline": "contextWindow", "librechat": "tokenConfig",
}  # fmt: skip
"""What the window is called in each client's settings."""


def steps_in_settings(evidence: EvidenceSet, window: object) -> tuple[Words, ...]:
    """Say where a person sets the window that a client reckons with, and how that is seen; nothing where no settings about this server were given."""
    for _record, settings in reversed(evidence.of(ClientSettings)):
        mine, name = belief(settings, evidence), _WHERE.get(settings.client)
        if mine is not None and mine.context is not None and name is not None and isinstance(window, int):
            return (
                words(
                    "In the settings of {client} ({file}), set {name} of this model to {value}.",
                    client=settings.client,
                    file=at_home(settings.path),
                    name=name,
                    value=window,
                ),
                words(
                    "Then measure again, so that the change is seen: {command}",
                    command=shlex.join(["ctxdoctor", "rerun", "--client", settings.path]),
                ),
            )
    return ()


def told_of(settings: ClientSettings, evidence: EvidenceSet) -> Iterator[Words]:
    """Say what was read in a file, for the person who allowed it."""
    told = [window.in_force for _record, window in evidence.of(WindowReading) if window.in_force]
    in_force = told[-1] if told else None
    values = values_of(settings, belief(settings, evidence))
    if values.context is None:
        yield from said_of(values, in_force)
    elif in_force:
        yield words(
            "{client}: it reckons with a window of {believed} tokens; the server has {window}.",
            client=values.client,
            believed=f"{values.context:,}",
            window=f"{in_force:,}",
        )
    else:
        yield words(
            "{client}: it reckons with a window of {believed} tokens; what the server has is not known.",
            client=values.client,
            believed=f"{values.context:,}",
        )


def read_allowed(one: Walk, paths: Sequence[Path]) -> list[ClientSettings]:
    """Read settings files that the person allowed into the case; what cannot be read is said."""
    read: list[ClientSettings] = []
    for path in paths:
        try:
            settings = read_client_config(path)
        except CtxDoctorError as error:
            one.add(cannot(str(path), str(error), one.run))
            one.ui.say(words("The client's settings cannot be read: {why}", why=str(error)))
        else:
            one.add(as_evidence(settings, one.run))
            read.append(settings)
    return read
