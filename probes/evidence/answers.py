"""An answer of the questionnaire: evidence whose source is the user (or a pasted report)."""

from __future__ import annotations

from typing import ClassVar

from .records import Payload, Text


class Answer(Payload):
    """What was answered to one question. ``value`` None is "I don't know"."""

    kind: ClassVar[str] = "answer"
    question: str
    value: Text | int | float | bool | tuple[str, ...] | None


class Mechanisms(Payload):
    """Causes that a pasted report names itself: its author's opinion, by the ids of the knowledge base."""

    kind: ClassVar[str] = "mechanisms"
    named: tuple[str, ...] = ()
    like: tuple[str, ...] = ()
    """Causes whose telling its words are most like, the likest first."""
