"""The text that fills a rung: written by the project from a seed, or a user's own files; and cutting a text to the token.

Filler is a stream of :class:`Unit` (a sentence or a line, with the white space that follows it), grouped in blocks of prose, source code, logs
and documentation. The stream depends on the seed alone, so a longer text always begins with the shorter one.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from probes.evidence.errors import BadFileError

Kind = Literal["prose", "code", "log", "docs", "own"]

MIX: dict[Kind, int] = {"prose": 5, "code": 2, "log": 1, "docs": 2}
"""How often a block of each kind is drawn."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A sentence or line, with the white space after it. A fact may be planted between two units."""

    text: str
    kind: Kind


def listed(text: str) -> tuple[str, ...]:
    """Read a vocabulary: words with bars between."""
    return tuple(text.split("|"))


# --- prose ---------------------------------------------------------------------------------------------------------------------------------
# No word here is a value of a canary, and no line has a canary's form (a test sees to both).

_LOOKS = listed(
    "old|young|tall|quiet|careful|tired|clever|stubborn|cheerful|nervous|patient|former|second|local|foreign|busy|famous|absent|honest|elderly"
)
_ROLES = listed(
    "editor|clerk|surveyor|lecturer|gardener|translator|pilot|archivist|nurse|judge|manager|keeper|mayor|baker|inspector|master|accountant|"
    "observer|teacher|collector|guard|officer|salesman|secretary|engineer|printer|warden|registrar|driver|delegate|plumber|architect|"
    "librarian|tailor|farmer|fisherman|reporter|lawyer|painter|waiter|student|widow|cousin|neighbour|soldier|captain|chemist|electrician|"
    "carpenter|musician"
)
_ROOMS = listed(
    "reading room|customs house|platform|canteen|reservoir|town hall|landing|records office|cottage|market|flood gate|village|assembly hall|"
    "terrace|printing works|depot|hospital|quay|theatre|courtyard|pump house|crossing|waiting room|kitchen|hut|boat shed|post office|chamber|"
    "stairway|workshop|valley|observatory|cellar|attic|garden|bakery|station|harbour|bridge|schoolhouse"
)
_WHERE = listed(
    "behind the church|near Halden|on the north side|of the old mill|by the canal|at Brennick|next to the bank|under the arches|across the square|"
    "above the shop|outside Tarn|at the end of the lane|of the insurance company|beyond the fence|facing the sea|on the second floor"
)
_OBJECTS = listed(
    "agreement|receipt|key|timetable|letter|table|map|book|ledger|list|page|summary|plan|lamp|paper|calendar|photograph|report|register|"
    "regulation|newspaper|note|permit|inventory|voucher|envelope|rota|sample|sketch|contract|umbrella|coat|suitcase|telegram|cheque|poster|"
    "drawing|chair|clock|radio|notebook|manual|form|invitation|certificate|bill|brochure|diary|catalogue"
)
_STATES = listed(
    "draft|spare|revised|unopened|torn|missing|annual|broken|faded|new|folded|lost|long|heavy|yellowed|official|private|stamped|copied|"
    "forgotten|expensive|handwritten|damp|recent|incomplete"
)
# Many people, places and things: a text in which the same few come back in each sentence is easier to continue than to read, and a small
# model then copies the nearest one instead of looking for a fact.
_PEOPLE = tuple(f"the {look} {role}" for look in _LOOKS for role in _ROLES)
_PLACES = tuple(f"the {room} {where}" for room in _ROOMS for where in _WHERE)
_THINGS = tuple(f"the {state} {thing}" for state in _STATES for thing in _OBJECTS)
_VERBS = listed(
    "carried|examined|misplaced|copied out|signed|returned|described|asked about|brought back|refused to discuss|measured against the records|"
    "wrapped up|handed over|quietly corrected|read aloud|put aside|argued over|locked away|delivered|went looking for|compared|photographed|"
    "promised to send|forgot about|insisted on seeing|counted twice|labelled|explained|sorted through|recognised"
)
_TIMES = listed(
    "on the first Monday of the month|shortly before noon|after the long heatwave|in the middle of the week|late that evening|during the strike|"
    "the summer before|when the office closed|at half past four|a few days later|before the committee met|towards the end of winter|"
    "on the morning of the fair|while the others were at lunch|once the road had dried|the following spring|just after the holidays|"
    "as soon as the ferry docked|in the year of the flood|on the way home"
)
_FEELINGS = listed(
    "nobody thought it strange|that seemed reasonable enough|the explanation satisfied no one|it took longer than expected|"
    "the matter was dropped without a vote|there was very little to add|everyone had a different version of it|the cost was never mentioned|"
    "the answer came two weeks too late|it made the work a good deal easier|the rest of the story is well known|few people noticed at the time|"
    "a second opinion was never asked for|the idea was older than any of them|it was not the first time|the weather had the last word"
)
_PROSE = (
    "{Time}, {person} {verb} {thing} in {place}.",
    "{Person} {verb} {thing}, and {feeling}.",
    "It was {person} who first {verb} {thing} near {place}.",
    "Between {place} and {place} there was nothing to do but wait, so {person} {verb} {thing}.",
    "{Feeling}, although {person} had {verb} {thing} only the day before.",
    "Nobody in {place} could say why {person} {verb} {thing} {time}.",
    "There were {n} chairs in {place}, and {person} sat down on the nearest one with {thing}.",
    "{Time} the door of {place} stood open and {feeling}.",
    "When {person} came back from {place}, {thing} had been moved again.",
    "{Person} and {person} disagreed about {thing} for the better part of {n} days.",
    "What mattered more, at least in {place}, was that {person} still {verb} {thing}.",
    "The walk from {place} took {n} minutes, which {person} thought was too long {time}.",
    "Some said that {thing} belonged to {person}; others that it had always been kept in {place}.",
    "{Feeling}, and {time} the whole question came up once more.",
    "In a note of {n} lines {person} set out what had happened in {place} {time}.",
    "{Thing} lay on the table between {person} and {person} until {feeling}.",
    "If {person} had {verb} {thing} {time}, {place} would have been closed by then.",
    "The windows of {place} had been painted shut, so {person} worked with the lamp on {time}.",
    "A crowd of about {n} gathered outside {place}; {feeling}.",
    "{Person} kept a careful record of {thing}, beginning {time}.",
)

# --- code ----------------------------------------------------------------------------------------------------------------------------------

_ACTS = listed(
    "load|merge|parse|collect|flush|resolve|update|split|encode|validate|render|schedule|expand|compare|normalise|read|group|trim"
)
_NOUNS = listed(
    "invoice|session|packet|region|account|header|window|bucket|schema|worker|ticket|payload|segment|cursor|buffer|profile|record|address|"
    "route|batch|token|report|setting|channel|entry|layout"
)
_FIELDS = listed(
    "status|owner|size|offset|created|label|limit|version|weight|parent|score|index|retries|deadline|source|total|state|locale"
)
_TYPES = listed("int|str|float|bytes|bool")

# --- logs, docs ----------------------------------------------------------------------------------------------------------------------------

_SERVICES = listed("gateway|scheduler|indexer|mailer|billing|storage|auth|frontend|replicator|metrics|uploader|search")
_EVENTS = listed(
    "request finished|connection accepted|retrying after timeout|configuration reloaded|lease renewed|job queued|snapshot written|"
    "slow query|client disconnected|worker started|checksum verified|rate limit reached|queue drained|certificate expires soon|"
    "file rotated|heartbeat missed"
)
_SUBJECTS = listed(
    "the retry limit|an expired session|the import job|a second worker|the export format|the nightly backup|the list of locales|"
    "an empty response|the storage path|the connection pool|a rejected upload|the search index|the audit trail|the default profile|"
    "a partial update|the address book"
)
_DOCS = (
    "Set `{field}_{noun}` to a value between {n} and {m} to control {subject}.",
    "By default {subject} is checked every {n} seconds; see also `{act}-{noun}`.",
    "If {subject} does not match, the command prints a warning and continues with the previous `{field}`.",
    "Changes to {subject} take effect after the next restart, never during a running `{act}`.",
    "Use `--{act}-{noun}` when {subject} should be ignored for a single call.",
    "Before version {n}.{m} this page described {subject} under another name.",
    "The `{noun}` object holds at most {m} entries, and {subject} is counted as one of them.",
    "Administrators can restrict {subject} with the `{field}` role; ordinary users see only their own `{noun}`.",
    "Every `{noun}` that refers to {subject} keeps its `{field}` for {n} days.",
)


class _Writer:
    """Draws blocks of one seed. Each block has its own generator, so that block n is the same whatever was asked before."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)

    def block(self, index: int) -> list[Unit]:
        self.rng = random.Random(f"filler {self.seed} {index}")
        kind = self.rng.choices(tuple(MIX), weights=tuple(MIX.values()))[0] if index else "prose"
        lines = {"prose": self._prose, "code": self._code, "log": self._log, "docs": self._docs}[kind]()
        return [Unit(text, kind) for text in lines]

    def _fill(self, template: str) -> str:
        rng = self.rng

        def pick(match: re.Match[str]) -> str:
            name = match[1]
            pool = {
                "person": _PEOPLE, "place": _PLACES, "thing": _THINGS, "verb": _VERBS, "time": _TIMES, "feeling": _FEELINGS,
                "act": _ACTS, "noun": _NOUNS, "field": _FIELDS, "subject": _SUBJECTS, "type": _TYPES,
            }.get(name.lower())  # fmt: skip
            if pool is None:
                return str(rng.randrange(2, 40) if name == "n" else rng.randrange(40, 900))
            word = rng.choice(pool)
            return word[0].upper() + word[1:] if name[0].isupper() else word

        return re.sub(r"\{(\w+)\}", pick, template)

    def _prose(self) -> list[str]:
        sentences = [self._fill(self.rng.choice(_PROSE)) for _ in range(self.rng.randrange(3, 7))]
        return [s + " " for s in sentences[:-1]] + [sentences[-1] + "\n\n"]

    def _code(self) -> list[str]:
        return self.rng.choice((self._python, self._c, self._sql, self._toml))()

    def _python(self) -> list[str]:
        rng, fill = self.rng, self._fill
        noun, field_, act = rng.choice(_NOUNS), rng.choice(_FIELDS), rng.choice(_ACTS)
        lines = [
            f"def {act}_{noun}_{rng.choice(_FIELDS)}({noun}: {rng.choice(_TYPES)}, {field_}: int = {rng.randrange(2, 400)}) -> list[{rng.choice(_TYPES)}]:\n",
            f'    """{fill("{Act} every {noun} whose {field} is known.")}"""\n',
            f"    {rng.choice(_FIELDS)}s = []\n",
        ]
        body = (
            "    for {noun}, {field} in enumerate({act}_{noun}s({noun}_{field})):\n",
            '    if {field}_{noun} is None or {field} > {m}:\n        raise ValueError("{subject} is out of range")\n',
            "    {noun}_{field} = self.{noun}s.get({field}, {n})\n",
            '    logger.debug("{act} %s with {field} %d", {noun}, {field})\n',
            "    {field}s.append({act}_{noun}({noun}, {field}={n}))\n",
            "    while {noun}.{field} < {m}:\n        {noun}.{field} += {n}\n",
            '    with open_{noun}({field}, "r") as {noun}_file:\n        {field} = {noun}_file.read({m})\n',
        )
        lines += [fill(line) for line in rng.sample(body, rng.randrange(3, 6))]
        return [*lines, f"    return {field_}s\n\n"]

    def _c(self) -> list[str]:
        rng, fill = self.rng, self._fill
        noun = rng.choice(_NOUNS)
        lines = [f"static int {noun}_{rng.choice(_ACTS)}(struct {noun} *p, size_t {rng.choice(_FIELDS)}) {{\n"]
        body = (
            "    if (p->{field} == {n}) return -{n}; /* {subject} */\n",
            "    for (size_t i = 0; i < p->{field}; i++) p->{noun}[i] ^= 0x{m};\n",
            "    memcpy(p->{noun}, {field}_{noun}, sizeof({type}) * {n});\n",
            "    p->{field} = {noun}_{act}(p, {m}) + p->{field};\n",
        )
        lines += [fill(line) for line in rng.sample(body, rng.randrange(2, 5))]
        return [*lines, "    return 0;\n", "}\n\n"]

    def _sql(self) -> list[str]:
        fill = self._fill
        return [
            fill("SELECT {noun}.{field}, COUNT({noun}_id), MAX({field})\n"),
            fill("  FROM {noun}s JOIN {noun}_{field} USING ({noun}_id)\n"),
            fill(" WHERE {field} > {m} AND {field} LIKE '{act}%'\n"),
            fill(" GROUP BY {noun}.{field} HAVING COUNT({noun}_id) < {n};\n\n"),
        ]

    def _toml(self) -> list[str]:
        fill, rng = self._fill, self.rng
        keys = rng.sample(_FIELDS, rng.randrange(3, 6))
        return [
            fill("[{noun}.{act}]\n"),
            *(fill(f"{k}_{{noun}} = {{m}}\n") for k in keys),
            fill('path_{noun} = "/srv/{noun}/{act}"\n\n'),
        ]

    def _log(self) -> list[str]:
        rng = self.rng
        second, lines = rng.randrange(86_000), []
        day = f"20{rng.randrange(19, 27)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"
        for _ in range(rng.randrange(4, 9)):
            second = min(86_399, second + rng.randrange(1, 40))
            clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
            level = rng.choice(("INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"))
            lines.append(
                f"{day}T{clock}Z {level} {rng.choice(_SERVICES)}: {rng.choice(_EVENTS)}, {rng.choice(_NOUNS)} {rng.randrange(100, 9999)}, "
                f"{rng.choice(_FIELDS)}={rng.randrange(2, 5000)}\n"
            )
        lines[-1] += "\n"
        return lines

    def _docs(self) -> list[str]:
        rng, fill = self.rng, self._fill
        head = fill("## {Act} {subject}\n\n")
        if rng.random() < 0.5:
            sentences = [fill(s) for s in rng.sample(_DOCS, rng.randrange(2, 5))]
            return [head, *(s + " " for s in sentences[:-1]), sentences[-1] + "\n\n"]
        rows = [f"- `{fill('{field}_{noun}')}`: {fill(s)}\n" for s in rng.sample(_DOCS, rng.randrange(2, 5))]
        return [head, *rows[:-1], rows[-1] + "\n"]


def generated(seed: int, *, skip: int = 0) -> Iterator[Unit]:
    """Give the endless filler of a seed, unit by unit, from its block ``skip``."""
    writer, index = _Writer(seed), skip
    while True:
        yield from writer.block(index)
        index += 1


# --- a user's own files --------------------------------------------------------------------------------------------------------------------

OWN_FILE_BYTES = 4 << 20
OWN_TOTAL_BYTES = 64 << 20
OWN_FILES = 20_000


@dataclass(frozen=True, slots=True)
class OwnText:
    """A user's own files, read once and bounded. Their text goes to the server under test and nowhere else."""

    units: tuple[Unit, ...]
    files: int
    left_out: int
    """Files that were not text, or beyond the bounds."""

    def stream(self, seed: int) -> Iterator[Unit]:
        """Give the files' text, then generated filler where it ends: a text never repeats itself."""
        yield from self.units
        yield from generated(seed)


def read_own(folder: Path, seed: int = 0) -> OwnText:
    """Read the text files under ``folder`` in an order that depends on the seed.

    Links are not followed and hidden folders are left out; at most 4 MiB of a file and 64 MiB in all are read. BadFileError if there is no text.
    """
    if not folder.is_dir():
        raise BadFileError(f"{folder} is not a folder: give --text a folder with your own text files")
    names: list[str] = []
    for root, folders, files in os.walk(folder, followlinks=False):
        folders[:] = sorted(d for d in folders if not d.startswith("."))
        names += [os.path.join(root, name) for name in sorted(files)]  # noqa: PTH118
        if len(names) > OWN_FILES:
            break
    random.Random(f"own {seed}").shuffle(names)
    units: list[Unit] = []
    total = used = 0
    for name in names[:OWN_FILES]:
        text = _read_text(Path(name), min(OWN_FILE_BYTES, OWN_TOTAL_BYTES - total))
        if text is None:
            continue
        total += len(text)
        used += 1
        units += [Unit(line, "own") for line in _lines(text)]
        if total >= OWN_TOTAL_BYTES:
            break
    if not units:
        raise BadFileError(
            f"{folder} holds no readable text file (UTF-8): give --text a folder with text, source code or logs"
        )
    return OwnText(tuple(units), used, len(names) - used)


def _read_text(path: Path, limit: int) -> str | None:
    """Read a regular file as text; None if it is no file, cannot be read or is not text."""
    if limit <= 0 or path.is_symlink() or not path.is_file():
        return None
    try:
        with path.open("rb") as f:
            raw = f.read(limit)
    except OSError:
        return None
    if not raw.strip() or b"\0" in raw:
        return None
    text = raw.decode("utf-8", errors="ignore")
    # Some bytes are lost at the cut of a long file; a file that loses more is in another encoding, or no text.
    if len(text.encode()) < 0.99 * len(raw) - 4:
        return None
    return text.replace("\r\n", "\n")


def _lines(text: str) -> Iterator[str]:
    """Cut a text into lines of at most 2,000 characters, its last line ended by an empty one."""
    lines = text.rstrip("\n").split("\n")
    for number, line in enumerate(lines, 1):
        end = "\n\n" if number == len(lines) else "\n"
        for start in range(0, max(1, len(line)), 2000):
            piece = line[start : start + 2000]
            yield piece + (end if start + 2000 >= len(line) else "")


# --- counting and cutting ------------------------------------------------------------------------------------------------------------------

_PIECES = re.compile(r"[^\W\d_]+|\d|[^\w\s]|_|\n+|[ \t]{2,}")


def weigh(text: str) -> float:
    """Guess a text's tokens without a tokenizer, for comparing pieces of one text; scale it by a count of the whole."""
    total = 0.0
    for match in _PIECES.finditer(text):
        piece = match[0]
        total += max(1.0, len(piece) / 6) if piece[0].isalpha() else 1.0
    return total


@dataclass(slots=True)
class Counter:
    """A tokenizer as callables, and how often it was asked. ``count`` alone is enough; ids and back make cutting exact at once."""

    count: Callable[[str], int]
    tokenize: Callable[[str], Sequence[int]] | None = None
    detokenize: Callable[[Sequence[int]], str] | None = None
    name: str = ""
    """Who counts, for the report: server, transformers, calibration."""
    calls: int = field(default=0, init=False)

    def ids(self, text: str) -> tuple[int, Sequence[int] | None]:
        """Count a text, and give its ids where both ways are offered."""
        self.calls += 1
        if self.tokenize is None:
            return self.count(text), None
        ids = self.tokenize(text)
        return len(ids), ids if self.detokenize is not None else None

    def text(self, ids: Sequence[int]) -> str:
        """Give the text of ids."""
        assert self.detokenize is not None
        self.calls += 1
        return self.detokenize(ids)


def cut_to_tokens(
    text: str,
    want: int,
    counter: Counter,
    *,
    known: int | None = None,
    ids: Sequence[int] | None = None,
    calls: int = 2,
) -> tuple[int, int]:
    """Find where ``text`` must be cut to hold ``want`` tokens: (characters, tokens that the cut text really has).

    ``known``/``ids``: the whole text's count and ids if they were asked for already. Asks the tokenizer at most ``calls`` times more (plus once
    where the count is not known), and gives the best cut that it saw. A text that is too short is given whole.
    """
    if known is None:
        known, ids = counter.ids(text)
    if want >= known:
        return len(text), known
    if want <= 0:
        return 0, 0
    best, best_tokens = 0, 0
    low, high = (0, 0), (len(text), known)
    aim = want
    while calls > 0 and best_tokens != want:
        if ids is not None and counter.detokenize is not None and calls >= 2:
            cut = _cut_by_ids(text, ids[:aim], counter)
            calls -= 1
            if cut is None:  # the server's text is not ours (it normalises): search by words
                ids = None
                continue
        else:
            cut = _cut_between(text, low, high, want)
        if not low[0] < cut < high[0]:
            break
        tokens, _ = counter.ids(text[:cut])
        calls -= 1
        if abs(tokens - want) < abs(best_tokens - want):
            best, best_tokens = cut, tokens
        if tokens < want:
            low = max(low, (cut, tokens))
        else:
            high = min(high, (cut, tokens))
        aim += want - tokens
    return best, best_tokens


def _cut_by_ids(text: str, ids: Sequence[int], counter: Counter) -> int | None:
    """Give the cut at which the text of the ids ends, or None where that text is not a beginning of ours."""
    part = counter.text(ids)
    for candidate in (part, part.removeprefix(" "), part.rstrip("\ufffd"), part.removeprefix(" ").rstrip("\ufffd")):
        if candidate and text.startswith(candidate):
            return len(candidate)
    return None


def _cut_between(text: str, low: tuple[int, int], high: tuple[int, int], want: int) -> int:
    """Guess the cut between two known (characters, tokens) points by weight, at a word's beginning or end."""
    (a, tokens_a), (b, tokens_b) = low, high
    share = (want - tokens_a) / (tokens_b - tokens_a)
    middle = text[a:b]
    target, total = 0.0, weigh(middle)
    for match in _PIECES.finditer(middle):
        piece = match[0]
        target += max(1.0, len(piece) / 6) if piece[0].isalpha() else 1.0
        if target >= share * total:
            return a + match.end()
    return b
