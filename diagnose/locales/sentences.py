"""Says an English sentence that was made long ago (an error, a note in a case) in another language: by the form that it was made from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache

_PLACE = re.compile(r"\{(\w+)(?:![rsa])?(?::[^{}]*)?\}")
_PIECE = re.compile(r"\{\{|\}\}|" + _PLACE.pattern)
_ESCAPED = re.compile(r"\{\{|\}\}")
_LONGEST = 2000
"""A sentence that is longer is not taken apart: no error of ours is, and its values may be anything."""


def place_names(text: str) -> list[str]:
    """Give the names of a message's places, sorted, each as often as it stands there."""
    return sorted(_PLACE.findall(_ESCAPED.sub("", text)))


@cache
def _pattern(form: str) -> re.Pattern[str]:
    pieces: list[str] = []
    at = 0
    seen: set[str] = set()
    for place in _PLACE.finditer(form):
        pieces.append(re.escape(form[at : place.start()].replace("{{", "{").replace("}}", "}")))
        name = f"p{place[1]}"
        pieces.append(f"(?P={name})" if name in seen else f"(?P<{name}>.*?)")
        seen.add(name)
        at = place.end()
    pieces.append(re.escape(form[at:].replace("{{", "{").replace("}}", "}")))
    return re.compile("".join(pieces), re.DOTALL)


def _is_plain(form: str) -> bool:
    """Say whether a form has so many words of its own that nothing else is mistaken for it; those of errors are told by fewer."""
    own = len(re.findall(r"[A-Za-z]{2,}", _PLACE.sub("", form)))
    return own >= (2 if re.search(r"\{\d+\}", form) else 5)


def _fixed(form: str) -> tuple[str, str]:
    """Give what a sentence of this form begins and ends with."""
    places = list(_PLACE.finditer(form))
    if not places:
        return form, ""
    return form[: places[0].start()].replace("{{", "{"), form[places[-1].end() :].replace("}}", "}")


def _filled(form: str, values: dict[str, str]) -> str:
    """Put values into a form, in one pass: what stands in a value chooses nothing."""

    def piece(one: re.Match[str]) -> str:
        if one[0] in {"{{", "}}"}:
            return one[0][0]
        return values.get(f"p{one[1]}", one[0])

    return _PIECE.sub(piece, form)


class Sentences:
    """The forms of one language that a sentence can be recognised by: those of errors, and those with words enough of their own."""

    def __init__(self, forms: Iterable[str], look_up: Callable[[str], str]) -> None:
        self._look_up = look_up
        # the most said in fixed words comes first: it cannot be mistaken for a shorter one
        told = [form for form in forms if _PLACE.search(form) and _is_plain(form)]
        self._forms = sorted(told, key=lambda form: -len(_PLACE.sub("", form)))

    def say(self, sentence: str) -> str:
        """Give the sentence in the language, or as it is where no form fits."""
        whole = self._look_up(sentence)
        if whole != sentence or len(sentence) > _LONGEST:
            return whole
        for form in self._forms:
            begins, ends = _fixed(form)
            if not (sentence.startswith(begins) and sentence.endswith(ends)):
                continue
            match = _pattern(form).fullmatch(sentence)
            if match is not None:
                translated = self._look_up(form)
                if translated == form:
                    return sentence
                # A sentence within this one was made from a form too; it is shorter than what it stands in, so this ends.
                values = {
                    name: self.say(value) if " " in value else value for name, value in match.groupdict("").items()
                }
                return _filled(translated, values)
        return sentence
