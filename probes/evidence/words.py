"""Messages that can be translated: marked where they live, looked up when they are shown.

A :class:`Words` is whole sentences with named values, never glued pieces. JSON and journals carry its English.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

_translate: ContextVar[Callable[[str], str] | None] = ContextVar("ctxdoctor_translate", default=None)


def use_translation(look_up: Callable[[str], str] | None) -> None:
    """Set what turns an English message into the reader's language; None is English."""
    _translate.set(look_up)


def looking_up() -> Callable[[str], str] | None:
    """Give what turns an English message into the reader's language; None is English."""
    return _translate.get()


@contextmanager
def speaking(look_up: Callable[[str], str] | None) -> Iterator[None]:
    """Speak another language for a while; None is English."""
    token = _translate.set(look_up)
    try:
        yield
    finally:
        _translate.reset(token)


@dataclass(frozen=True, slots=True)
class Words:
    """A lazy message: English text with ``{named}`` places, and the values that fill them."""

    text: str
    values: dict[str, Any] = field(default_factory=dict, hash=False)

    def __str__(self) -> str:
        """Give the message in the language in force."""
        look_up = _translate.get()
        text = look_up(self.text) if look_up is not None else self.text
        return text.format_map(self.values) if self.values else text

    @property
    def english(self) -> str:
        """Give the message in English, whatever language is in force: for journals and JSON."""
        if not self.values:
            return self.text
        # A sentence within this one is English here too, whatever the reader speaks.
        return self.text.format_map({k: v.english if isinstance(v, Words) else v for k, v in self.values.items()})


def words(text: str, /, **values: object) -> Words:
    """Mark ``text`` as a message of the interface. Babel extracts calls of this name."""
    return Words(text, dict(values))
