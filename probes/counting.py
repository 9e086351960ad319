"""Who counts tokens: the server's own tokenizer first, else the model's own through transformers, else the server's usage counter, calibrated."""

from __future__ import annotations

import contextlib

from probes.backends.base import Ask, Backend
from probes.base import Sent
from probes.evidence.errors import CtxDoctorError, InputError, NotOfferedError
from probes.ladder.text import Counter, generated
from probes.tokenizer import calibrate, open_tokenizer

SAMPLE_CHARACTERS = 6000
SUSPICIOUS = 0.2
"""A share of the shorter text's count that no ordinary template adds."""


def counter_for(
    backend: Backend, tokenizer: str | None = None, model_folder: str | None = None, sent: Sent | None = None
) -> Counter | None:
    """Give the best counter that can be had; None where nothing can count. A tokenizer that was named by the user is used whatever else there is.

    ``sent`` counts the two short requests of a calibration.
    """
    if tokenizer is not None:
        return open_tokenizer(tokenizer, fetch=False).counter()
    counter = _of_server(backend)
    if counter is not None:
        return counter
    if model_folder is not None:
        with contextlib.suppress(CtxDoctorError):
            return open_tokenizer(model_folder).counter()
    return _calibrated(backend, sent)


def _of_server(backend: Backend) -> Counter | None:
    try:
        if backend.count_tokens("one two three") < 1:
            return None
    except CtxDoctorError:
        return None
    try:
        ids = backend.tokenize("one two three")
        back = backend.detokenize(ids)
    except CtxDoctorError:
        return Counter(count=backend.count_tokens, name="server")
    if "two" not in back:
        return Counter(count=backend.count_tokens, name="server")
    return Counter(count=backend.count_tokens, tokenize=backend.tokenize, detokenize=backend.detokenize, name="server")


def _calibrated(backend: Backend, sent: Sent | None) -> Counter | None:
    """Count by weight, scaled by what the server's usage counter says of two texts of different length. Two short requests."""
    text = ""
    for unit in generated(7):
        text += unit.text
        if len(text) > SAMPLE_CHARACTERS:
            break
    counts: list[tuple[str, int]] = []
    # a small window refuses the longer ones
    for share in (3, 1, 6, 12):
        if len(counts) < 2:
            part = text[: len(text) // share]
            counted = _counted(backend, part, sent)
            counts += [(part, counted)] if counted is not None else []
        if share == 1 and not counts:
            return None
    if len(counts) < 2:
        return None
    try:
        found = calibrate(counts)
        if found.overhead > SUSPICIOUS * min(counted for _part, counted in counts):
            # so much beside the text is a long template, or the longer text was cut: a shorter one tells which
            part = text[: len(text) // 6]
            counted = _counted(backend, part, sent)
            if counted is not None and (part, counted) not in counts:
                found = calibrate([(part, counted), counts[0]])
        return found.counter()
    except InputError:
        return None


def _counted(backend: Backend, part: str, sent: Sent | None) -> int | None:
    """Ask how many tokens a text has for the server, as raw text or, where it takes none, as a chat. None where it does not say."""
    for ask in (
        Ask(prompt=part, max_tokens=1, use_cache=False, deadline_s=120),
        Ask(messages=({"role": "user", "content": part},), max_tokens=1, use_cache=False, deadline_s=120),
    ):
        with contextlib.suppress(NotOfferedError):
            answer = backend.complete(ask)
            if sent is not None:
                sent.count(answer)
            if answer.error is None and answer.prompt_tokens:
                return answer.prompt_tokens
    return None
