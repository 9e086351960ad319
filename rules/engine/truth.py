"""Three-valued truth after Kleene: what is not known is neither true nor false, and says so."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NoReturn


class Truth(Enum):
    """True, false or unknown. ``bool()`` of it raises: an unknown that silently counts as false is a wrong diagnosis."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    def __bool__(self) -> NoReturn:
        """Refuse. TypeError, always: compare with ``is Truth.TRUE``."""
        raise TypeError("a Truth has no truth value of Python's; compare it: `truth is Truth.TRUE`")

    @property
    def settled(self) -> bool:
        """Say whether it is true or false."""
        return self is not Truth.UNKNOWN


def truth_of(value: bool) -> Truth:
    """Give the truth of something that is known."""
    return Truth.TRUE if value else Truth.FALSE


def negation(truth: Truth) -> Truth:
    """Kleene's not."""
    return {Truth.TRUE: Truth.FALSE, Truth.FALSE: Truth.TRUE, Truth.UNKNOWN: Truth.UNKNOWN}[truth]


def conjunction(truths: Iterable[Truth]) -> Truth:
    """Kleene's and: one false decides, one unknown leaves it open; of nothing it is true."""
    result = Truth.TRUE
    for truth in truths:
        if truth is Truth.FALSE:
            return Truth.FALSE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result


def disjunction(truths: Iterable[Truth]) -> Truth:
    """Kleene's or: one true decides, one unknown leaves it open; of nothing it is false."""
    result = Truth.FALSE
    for truth in truths:
        if truth is Truth.TRUE:
            return Truth.TRUE
        if truth is Truth.UNKNOWN:
            result = Truth.UNKNOWN
    return result
