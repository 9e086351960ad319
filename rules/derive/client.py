"""The client's side: the window that it reckons with, by its settings or by what it sent, beginnings that change, and when it hangs up."""

from __future__ import annotations

import re
from collections.abc import Iterator

from probes.evidence.client import ClientModel, ClientSettings, WatchSummary
from probes.evidence.subject import ModelIdentity
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import CANCELLED_SECONDS, CLIENT_WINDOW, OUTPUT_TOKENS, TOLD_PREFIX_CHANGES

ENOUGH_TURNS = 3
"""So many turns that go on from the one before, before their beginnings are said to stay."""


def _plain(name: str | None) -> str:
    """Give a model's name without its folder, its file's ending, and signs: names of one model are written in many ways."""
    last = re.split(r"[\\/]", name or "")[-1].lower()
    return re.sub(r"[^a-z0-9]", "", re.sub(r"\.gguf$", "", last))


def _meant(settings: ClientSettings, served: set[str]) -> tuple[ClientModel, ...]:
    """Give the models of a client's settings that may be the one under test: by its name, else the default one, else all."""
    named = tuple(one for one in settings.models if _plain(one.model) in served)
    default = tuple(one for one in settings.models if settings.default_model and one.model == settings.default_model)
    return named or default or settings.models


@derivation(reads=(ClientSettings, ModelIdentity), gives=(CLIENT_WINDOW, OUTPUT_TOKENS))
def believed(sight: Sight) -> Iterator[Reading]:
    """Give the window and the answer's budget by the client's settings, where they say one value for the model under test."""
    served = {_plain(model.name) for _evidence, model in sight.of(ModelIdentity) if model.name}
    for evidence, settings in sight.of(ClientSettings):
        meant = _meant(settings, served - {""})
        for fact, values in (
            (CLIENT_WINDOW, {one.context for one in meant if one.context}),
            (OUTPUT_TOKENS, {one.output for one in meant if one.output}),
        ):
            if len(values) == 1:
                yield reading(fact, values.pop(), evidence)


@derivation(reads=(WatchSummary,), gives=(CLIENT_WINDOW, TOLD_PREFIX_CHANGES, CANCELLED_SECONDS))
def watched(sight: Sight) -> Iterator[Reading]:
    """Give what a client's requests showed on their way: its window, whether their beginnings change, and after what time it gives up."""
    for evidence, summary in sight.of(WatchSummary):
        yield reading(CLIENT_WINDOW, summary.believed_window or None, evidence)
        yield reading(CANCELLED_SECONDS, summary.client_timeout_s, evidence)
        if summary.changing_header_at_chars is not None:
            yield reading(TOLD_PREFIX_CHANGES, True, evidence)
        elif summary.turns_compared >= ENOUGH_TURNS and summary.prefix_broken == 0:
            yield reading(TOLD_PREFIX_CHANGES, False, evidence)
