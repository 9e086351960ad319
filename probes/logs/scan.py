"""The fast way through a log: an Aho-Corasick search finds the few lines that any rule could match; the rest is never decoded.

Lines of a kind that has been seen often enough are sampled (first and last of each megabyte) and the others only counted, so that the time
of a log of many gigabytes is the time of the search.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from .frame import MAX_LINE

_LONGEST_CARRY = 1 << 20
"""A line without an end is kept up to here, then cut."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that may say something: its number from 1, its bytes (cut), how many lines it stands for, and the last of them."""

    line: int
    raw: bytes
    weight: int = 1
    last: int | None = None


class Scanner:
    """Finds candidate lines. ``literals`` are what at least one of must be in a line; ``hot_after`` (by literal) when sampling begins."""

    def __init__(self, literals: Sequence[str], hot_after: Sequence[int] | None = None) -> None:
        order = sorted(range(len(literals)), key=lambda index: -len(literals[index]))
        # Longest first: of two that begin at one place the more telling one wins.
        self._search = BytesAhoCorasick(
            [literals[index].encode() for index in order], matchkind=MatchKind.LeftmostFirst, implementation=Implementation.DFA
        )
        self._hot_after = [hot_after[index] for index in order] if hot_after is not None else None
        self._seen = [0] * len(order)
        self._hot: set[int] = set()
        self.lines = 0
        self.cut_lines = 0
        self._carry = b""
        self._skipping = False

    def candidates(self, blocks: Iterable[bytes]) -> Iterator[Candidate]:
        """Give the candidates of a whole log in the order of their lines."""
        for block in blocks:
            yield from self.feed(block)
        yield from self.finish()

    def feed(self, block: bytes) -> Iterator[Candidate]:
        """Give the candidates of the lines that are complete with this block."""
        if self._skipping:
            end = block.find(b"\n")
            if end < 0:
                return
            self._skipping = False
            self.lines += 1
            block = block[end + 1 :]
        end = block.rfind(b"\n")
        if end < 0:
            self._carry += block
            if len(self._carry) > _LONGEST_CARRY:
                yield from self._cut()
            return
        data, carry = self._carry + block[: end + 1] if self._carry else block[: end + 1], block[end + 1 :]
        self._carry = b""
        yield from self._find(data)
        self._carry = carry
        if len(carry) > _LONGEST_CARRY:
            yield from self._cut()

    def finish(self) -> Iterator[Candidate]:
        """Give what is left: a last line without its end."""
        carry, self._carry = self._carry, b""
        if carry:
            yield from self._find(carry)
        elif self._skipping:
            self.lines += 1
        self._skipping = False

    def _cut(self) -> Iterator[Candidate]:
        head, self._carry = self._carry[:MAX_LINE], b""
        self.cut_lines += 1
        yield from self._find(head)
        self.lines -= 1  # counted when its end is found
        self._skipping = True

    def _find(self, data: bytes) -> Iterator[Candidate]:
        first = self.lines + 1
        total = data.count(b"\n") + (0 if data.endswith(b"\n") else 1)
        hits = self._search.find_matches_as_indexes(data)
        self.lines += total
        if not hits:
            return
        marks = self._marks(data, hits)
        at, line = 0, first
        for start in sorted(marks):
            weight, last_start = marks[start]
            line += data.count(b"\n", at, start)
            at = start
            end = data.find(b"\n", start, start + MAX_LINE)
            raw = data[start : end if end >= 0 else start + MAX_LINE]
            last = line + data.count(b"\n", start, last_start) if last_start > start else None
            yield Candidate(line, raw, weight, last)

    def _marks(self, data: bytes, hits: list[tuple[int, int, int]]) -> dict[int, tuple[int, int]]:
        """Say where the lines begin that are to be looked at, how many each stands for, and where the last of those begins."""
        marks: dict[int, tuple[int, int]] = {}
        hot, seen, limits = self._hot, self._seen, self._hot_after
        sampled: dict[int, list[int]] = {}
        end = -1
        for which, found, stop in hits:
            if which in hot:
                entry = sampled.get(which)
                if entry is None:
                    sampled[which] = [found, found, 1]
                else:
                    entry[1] = found
                    entry[2] += 1
                continue
            if found < end:
                continue
            start = data.rfind(b"\n", max(end, 0), found) + 1 if end >= 0 else data.rfind(b"\n", 0, found) + 1
            if start == 0 and end > 0:
                start = end + 1
            newline = data.find(b"\n", stop)
            end = newline if newline >= 0 else len(data)
            marks[start] = (1, start)
            if limits is not None:
                seen[which] += 1
                if seen[which] >= limits[which]:
                    hot.add(which)
        for found, found_last, count in sampled.values():
            start = data.rfind(b"\n", 0, found) + 1
            last = data.rfind(b"\n", 0, found_last) + 1
            if last == start or count == 1:
                marks.setdefault(start, (1, start))
                continue
            if marks.get(start, (0, 0))[0] < count - 1:
                marks[start] = (count - 1, max(start, data.rfind(b"\n", 0, max(last - 1, 0)) + 1))
            marks.setdefault(last, (1, last))
        return marks
