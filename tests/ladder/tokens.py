"""A fake tokenizer for the ladder's tests."""

from __future__ import annotations

import re

from probes.ladder.text import Counter


def split(text: str) -> list[str]:
    """A tokenizer like real ones: a leading space belongs to the word, words break after five letters, digits stand alone."""
    return re.findall(r" ?[^\W\d_]{1,5}|\d|\n+| +|.", text, re.DOTALL)


class Tokens:
    """A fake tokenizer with ids and back, which counts how often it is asked."""

    def __init__(self) -> None:
        self.known: dict[str, int] = {}
        self.back: list[str] = []
        self.asked = 0

    def tokenize(self, text: str) -> list[int]:
        self.asked += 1
        out = []
        for piece in split(text):
            if piece not in self.known:
                self.known[piece] = len(self.back)
                self.back.append(piece)
            out.append(self.known[piece])
        return out

    def detokenize(self, ids) -> str:
        self.asked += 1
        return "".join(self.back[i] for i in ids)

    def counter(self, *, ids: bool = True) -> Counter:
        if ids:
            return Counter(count=lambda t: len(self.tokenize(t)), tokenize=self.tokenize, detokenize=self.detokenize)
        return Counter(count=lambda t: len(self.tokenize(t)))
