"""The fast way through a log: a multi-literal search finds the few lines that any rule could match; the rest is never decoded.

Hyperscan searches for all literals at once. A literal that has been seen often enough becomes *hot*: it is taken out of that search, its
lines are counted (a second, small Aho-Corasick search), and of each megabyte only the first and the last are read. So the time of a
log of many gigabytes is the time of the search.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import hyperscan
from ahocorasick_rs import BytesAhoCorasick, MatchKind

from .frame import MAX_LINE

_LONGEST_CARRY = 1 << 20
"""A line without an end is kept up to here, then cut."""
_WORTH_NUMPY = 8 << 20
"""From this size on, importing numpy pays for itself in counting lines."""

_SMALL = 1 << 17

_which = itemgetter(0)

Mark = tuple[int, int, int]
"""A line to look at: where it begins, how many lines it stands for, where the last of those begins."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A line that may say something: its number from 1, its bytes (cut), how many lines it stands for, and the last of them."""

    line: int
    raw: bytes
    weight: int = 1
    last: int | None = None


class Scanner:
    """Finds candidate lines. ``literals`` are what at least one of must be in a line; ``hot_after`` (by literal) when counting begins."""

    def __init__(self, literals: Sequence[str], hot_after: Sequence[int] | None = None) -> None:
        self._literals = [literal.encode() for literal in literals]
        self._left = list(hot_after) if hot_after is not None else None
        self._hot: list[int] = []
        self._cold: list[int] = list(range(len(self._literals)))
        self._becoming_hot: set[int] = set()
        self._search = _database(self._literals)
        self._hot_search: BytesAhoCorasick | None = None
        self._found: list[tuple[int, int]] = []
        self.lines = 0
        self.cut_lines = 0
        self._carry = b""
        self._skipping = False
        self._bytes = 0

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
        yield from self._find_in_pieces(data)
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

    def _find_in_pieces(self, data: bytes) -> Iterator[Candidate]:
        """Take the beginning of a log in small steps: what it is full of becomes hot before much of it has been read."""
        at = 0
        while self._left is not None and self._bytes < _WORTH_NUMPY and len(data) - at > _SMALL:
            end = data.find(b"\n", at + _SMALL) + 1 or len(data)
            yield from self._find(data[at:end])
            at = end
        if at < len(data):
            yield from self._find(data[at:] if at else data)

    def _find(self, data: bytes) -> Iterator[Candidate]:
        self._bytes += len(data)
        marks = self._marks(data)
        count = _fast_counter(data) if self._bytes > _WORTH_NUMPY else _counter(data)
        before, begun = self.lines, -1
        for marked, weight, last_start in marks:
            start, raw = whole_line(data, marked)
            if start == begun:
                continue
            begun = start
            line = before + count(start) + 1
            last = before + count(last_start) + 1 if last_start > start else None
            yield Candidate(line, raw, weight, last)
        self.lines = before + count(len(data)) + (0 if data.endswith(b"\n") else 1)

    def _note(self, which: int, _begin: int, end: int, _flags: int, _context: Any) -> None:
        self._found.append((end, which))

    def _marks(self, data: bytes) -> list[Mark]:
        """Say which lines are to be looked at, in their order."""
        marks: dict[int, tuple[int, int]] = {}
        found = self._found
        found.clear()
        self._search.scan(data, match_event_handler=self._note)
        if found:
            found.sort()
            self._cold_marks(data, marks)
        if self._hot_search is not None:
            self._hot_marks(data, marks, self._hot_search)
        if self._becoming_hot:
            self._rebuild()
        return [(start, weight, last) for start, (weight, last) in sorted(marks.items())]

    def _cold_marks(self, data: bytes, marks: dict[int, tuple[int, int]]) -> None:
        left, cold, literals = self._left, self._cold, self._literals
        end = -1
        seen: set[int] = set()
        for stop, number in self._found:
            which = cold[number]
            begin = stop - len(literals[which])
            if begin >= end:  # another line than the one before
                start = data.rfind(b"\n", max(end, 0), begin) + 1 or max(end + 1, 0)
                newline = data.find(b"\n", stop)
                end = newline if newline >= 0 else len(data)
                marks[start] = (1, start)
                seen.clear()
            if left is not None and which not in seen:
                seen.add(which)
                left[which] -= 1
                if left[which] <= 0:
                    self._becoming_hot.add(which)

    def _hot_marks(self, data: bytes, marks: dict[int, tuple[int, int]], search: BytesAhoCorasick) -> None:
        hits = search.find_matches_as_indexes(data)
        if not hits:
            return
        # A line with several hot words gives one mark: they are first (and last) seen in the same line.
        for which, count in Counter(map(_which, hits)).items():
            literal = self._literals[self._hot[which]]
            start = data.rfind(b"\n", 0, data.find(literal)) + 1
            last = data.rfind(b"\n", 0, data.rfind(literal)) + 1
            if last == start:
                marks.setdefault(start, (1, start))
                continue
            if marks.get(start, (0, 0))[0] < count - 1:
                marks[start] = (count - 1, start)
            marks.setdefault(last, (1, last))

    def _rebuild(self) -> None:
        self._hot = sorted({*self._hot, *self._becoming_hot}, key=lambda which: -len(self._literals[which]))
        self._becoming_hot.clear()
        hot = set(self._hot)
        self._cold = [which for which in range(len(self._literals)) if which not in hot]
        self._search = _database([self._literals[which] for which in self._cold])
        # Longest first: of two that begin at one place the more telling one wins.
        self._hot_search = BytesAhoCorasick(
            [self._literals[which] for which in self._hot], matchkind=MatchKind.LeftmostFirst
        )


_COLUMN = b" " * 25
"""What stands before the further lines of a message in text-generation-webui's logs (rich's), below its time and level."""
_HEADED = re.compile(rb"\d\d:\d\d:\d\d-\d{6} (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) +\S")
_FRAME_BEGINS, _FRAME_ENDS = "╭".encode(), "╰".encode()
MOST_WRAPPED = 8


def whole_line(data: bytes, start: int) -> tuple[int, bytes]:
    """Give where the line at ``start`` begins, and its bytes (cut): a message that was wrapped at the width of a terminal is one line again.

    So is the last line of a traceback, which stands below the traceback's frame.
    """
    first, framed = start, False
    for _line in range(MOST_WRAPPED):
        if not data.startswith(_COLUMN, first) or not first:
            break
        above = data.rfind(b"\n", 0, first - 1) + 1
        framed = data.startswith(_FRAME_ENDS, above + len(_COLUMN))
        if framed:
            break
        first = above
    if not framed and _HEADED.match(data, first) is None:
        first = start
    end = data.find(b"\n", first, first + MAX_LINE)
    raw = data[first : end if end >= 0 else first + MAX_LINE]
    if not framed and _HEADED.match(raw) is None:
        return first, raw
    for _line in range(MOST_WRAPPED):
        if end < 0 or not data.startswith(_COLUMN, end + 1):
            break
        begin, end = end + 1, data.find(b"\n", end + 1, end + 1 + MAX_LINE)
        more = data[begin : end if end >= 0 else begin + MAX_LINE].strip()
        if not more or more.startswith(_FRAME_BEGINS):
            break  # a paragraph ends here: what follows is a text of its own
        raw = raw.rstrip() + b" " + more
    return first, raw[:MAX_LINE]


def _database(literals: Sequence[bytes]) -> hyperscan.Database:
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    # An empty search is not allowed: a literal that no text has takes its place.
    words = list(literals) or [b"\xff\xfe\xff\xfe\xff"]
    database.compile(expressions=words, ids=list(range(len(words))), elements=len(words), flags=0, literal=True)
    return database


class _counter:  # noqa: N801 - a function with a memory
    """Counts the line ends before a place; places must come in rising order, last places apart."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._count = 0

    def __call__(self, place: int) -> int:
        if place < self._at:
            return self._count - self._data.count(b"\n", place, self._at)
        self._count += self._data.count(b"\n", self._at, place)
        self._at = place
        return self._count


def _fast_counter(data: bytes) -> Any:
    import numpy as np  # noqa: PLC0415 - only where a log is large

    ends = np.flatnonzero(np.frombuffer(data, dtype=np.uint8) == 10)
    return lambda place: int(np.searchsorted(ends, place))
