"""Log-probabilities of the likeliest tokens, from every server's shape of them into one: for each position a table token → natural log-probability.

Shapes: the OpenAI protocol's of chats (``logprobs.content[].top_logprobs[]``) and of completions (``logprobs.top_logprobs[]``, one table a position),
llama.cpp's native ``completion_probabilities`` (older builds and forks: ``probs`` with probabilities, not their logarithms), Ollama's native list, SGLang's
native triples, KoboldCpp's and mlx_lm's variants of the first two. A token is named by its id where one is told, else by its text. What is no
log-probability is left out; a position without any is left out, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from probes.evidence.request import RequestError

MOST_POSITIONS = 256
"""Positions of one answer whose log-probabilities are kept."""
MOST_TOP = 64
LEAST = -1000.0
FEWER = 5
"""As many as every server of the protocol gives that gives any."""

VLLM_ID = "token_id:"
"""How vLLM writes an id in the place of a token's text, where it is asked for ids."""

_ABOUT = re.compile(r"log_?probs|logits_all|n_probs", re.IGNORECASE)


def likeliest(event: Mapping[str, Any]) -> Iterator[dict[str, float]]:
    """Give the likeliest tokens of each position that an event tells, in whichever shape."""
    native = event.get("completion_probabilities")
    if isinstance(native, list):
        yield from _positions(native)
        return
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    # Ollama's native events hold the list themselves; the protocol's stand in the choice.
    told = first.get("logprobs") if isinstance(first, dict) else event.get("logprobs")
    if isinstance(told, list):
        yield from _positions(told)
    elif isinstance(told, dict):
        content = told.get("content")
        if isinstance(content, list) and content:
            yield from _positions(content)
            return
        tables = told.get("top_logprobs")
        for table in tables[:MOST_POSITIONS] if isinstance(tables, list) else []:
            kept = _table(table.items()) if isinstance(table, dict) else _of_list(table)
            if kept:
                yield kept


def of_triples(told: object) -> list[dict[str, float]]:
    """Read SGLang's native ``output_top_logprobs``: for each position a list of (log-probability, token id, text or null)."""
    found: list[dict[str, float]] = []
    for position in told[:MOST_POSITIONS] if isinstance(told, list) else []:
        pairs = [
            (triple[1], triple[0])
            for triple in (position[:MOST_TOP] if isinstance(position, list) else [])
            if isinstance(triple, list) and len(triple) >= 2
        ]
        table = _table(pairs)
        if table:
            found.append(table)
    return found


def _positions(told: list[Any]) -> Iterator[dict[str, float]]:
    for position in told[:MOST_POSITIONS]:
        if not isinstance(position, dict):
            continue
        tops = position.get("top_logprobs")
        table = _of_list(tops) if tops is not None else _of_list(position.get("probs"), linear=True)
        if table:
            yield table


def _of_list(told: object, *, linear: bool = False) -> dict[str, float]:
    """Read one position's list of objects. ``linear``: they hold probabilities, as older builds of llama.cpp and its forks tell them."""
    pairs: list[tuple[object, object]] = []
    for one in told[:MOST_TOP] if isinstance(told, list) else []:
        if not isinstance(one, dict):
            continue
        token = next((one[key] for key in ("id", "token_id", "token", "tok_str") if one.get(key) is not None), None)
        value = one.get("prob") if linear else one.get("logprob")
        if linear:
            whole = isinstance(value, int | float) and not isinstance(value, bool)
            value = math.log(float(value)) if whole and value is not None and 0 < value <= 1 else None
        pairs.append((token, value))
    return _table(pairs)


def _table(pairs: Any) -> dict[str, float]:
    """Keep what is a token with a log-probability. Two tokens of the same text (parts of a character) are one with both their shares."""
    table: dict[str, float] = {}
    for token, value in list(pairs)[:MOST_TOP]:
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST < value <= 1e-6:
            continue
        if isinstance(token, bool) or not isinstance(token, int | str):
            continue
        name = str(token).removeprefix(VLLM_ID)[:100]
        before = table.get(name)
        given = min(0.0, float(value))
        table[name] = given if before is None else min(0.0, math.log(math.exp(before) + math.exp(given) or 5e-324))
    return table


def refused(error: RequestError | None) -> bool:
    """Say whether a request was refused because it asked for log-probabilities."""
    return (
        error is not None
        and error.error in {"bad-request", "not-supported", "server-error", "not-found"}
        and bool(_ABOUT.search(error.message))
    )


def not_offered(error: RequestError) -> RequestError:
    """Give the same refusal as what it is: this server does not give log-probabilities."""
    return error.model_copy(update={"error": "not-supported"})
