"""Which lengths are tried, and the nested text of a ladder: each rung's text is the beginning of the next one's.

A rung has its nine canaries at 10 % … 90 % of its *own* length; those of other rungs stand there as distractors.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from probes.evidence.errors import InputError
from probes.ladder.canaries import DEPTHS, Canary, NonLiteral, draw, draw_non_literal
from probes.ladder.text import Counter, Unit, cut_to_tokens, generated, weigh

WANTED_RUNGS: tuple[int, ...] = (8192, 32768, 65536, 73728, 98304, 129024)
"""8K, 32K, 64K, 72K, 96K and 126K tokens."""
SMALLEST_RUNG = 256
"""Below this a text is mostly canaries."""
BASE_RUNG = 768
"""A scaled ladder does not start below this where it can: a base of 27 facts and the text between them need room."""
ROOM_FOR_FACT = 16
"""Tokens of a text for each fact in it, at the least."""
TAIL_ROOM = 40
"""No fact is planted so close to a text's end that it may be cut off."""
SAMPLE = 6000
"""Length of the first look at a text's density."""
DRIFT = 0.01
"""How far the places of facts may slip before the text is written again."""
SHARE = 0.025
"""Two rungs share a fact whose place is this close to what both want, as a share of the shorter one's length."""
SLIP = 0.01
SLIP_TOKENS = 12
"""A fact waits for the end of a paragraph no longer than this share of its rung, or this many tokens."""
MOST_TURNS = 6
LEAST_SCALE = 1 / 16
"""A tokenizer that counts this far from a rough guess does not count tokens."""
NEAR_DUPLICATES = 0.3
"""A share of near-duplicate names for models that can tell them apart (chat models). The default is none: with a tenth of them a base model of 270M
recalls 77 % up to 4K tokens where it recalls 90 % without, and that would measure spelling, not memory."""
DISTRACTORS = 9
DISTRACTORS_FROM = 900
"""A single rung of this length gets this many facts that are not asked for; in a shorter one they would be most of the text."""
NEAR = 0.03
"""A wanted rung this close below the target makes room for the target itself."""


def ladder_rungs(
    window: int, output_tokens: int, target: int | None = None, wanted: Sequence[int] = WANTED_RUNGS
) -> tuple[int, ...]:
    """Give the prompt lengths to try, in tokens, rising.

    ``window`` is what one request may use, prompt and answer together; ``target`` the window that the user wants, answer included. Wanted rungs
    that do not leave room for the answer are dropped; if fewer than four remain, all are scaled so that the highest fills what there is. With
    a target the ladder ends exactly there (or at the window, if that is smaller). InputError if the window leaves no room for a rung.
    """
    top = min(window, target if target is not None else window) - output_tokens
    if top < SMALLEST_RUNG:
        raise InputError(
            f"a window of {min(window, target or window)} tokens with {output_tokens} for the answer leaves no room for a prompt of "
            f"{SMALLEST_RUNG}: lower --output-tokens or raise the target"
        )
    rungs = [r for r in sorted(set(wanted)) if r <= top]
    if len(rungs) < min(4, len(set(wanted))):
        highest = max(wanted)
        lowest = max(SMALLEST_RUNG, min(BASE_RUNG, top // 3))
        rungs = [max(lowest, r * top // highest) for r in sorted(set(wanted))]
    elif target is not None and rungs[-1] < top:
        rungs = [*(r for r in rungs if r < top * (1 - NEAR)), top]
    return tuple(sorted(set(rungs)))


def parse_length(text: str) -> int:
    """Read a length in tokens: 8192, 8k, 128K (times 1024), 1M. InputError if it is none, or not between 1 and 100 million."""
    match = re.fullmatch(r"\s*(\d{1,9})\s*([kKmM]?)\s*", text)
    value = int(match[1]) * {"": 1, "k": 1024, "m": 1 << 20}[match[2].lower()] if match else 0
    if not 1 <= value <= 100_000_000:
        raise InputError(f"{text.strip()[:40]!r} is not a length in tokens: write 8192, 8k or 128K")
    return value


def parse_ladder(text: str) -> tuple[int, ...] | None:
    """Read ``--ladder``: lengths with commas between, given back rising and once each; None for ``auto``. InputError says which one is wrong."""
    if text.strip().lower() == "auto":
        return None
    rungs = sorted({parse_length(part) for part in text.split(",") if part.strip()})
    if not rungs:
        raise InputError("--ladder holds no length: write 8192,32k,64k or auto")
    if len(rungs) > 64:
        raise InputError("--ladder holds more than 64 lengths: name fewer")
    if rungs[0] < SMALLEST_RUNG:
        raise InputError(
            f"--ladder starts at {rungs[0]} tokens: the shortest rung that can hold its canaries is {SMALLEST_RUNG}"
        )
    return tuple(rungs)


@dataclass(frozen=True, slots=True)
class RungText:
    """One rung's text, without the question that comes after it."""

    rung: int
    """The prompt's planned length in tokens, room for the question included."""
    text: str
    tokens: int
    """Tokens of ``text`` as counted."""
    canaries: tuple[Canary, ...]
    """To be asked, at their true depths in this text."""
    distractors: tuple[Canary, ...]
    """Facts of other rungs that stand in this text."""
    non_literal: tuple[NonLiteral, ...] = ()

    @property
    def hash(self) -> str:
        """Sixteen hex digits of the text."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Ladder:
    """The nested texts of all rungs, rising."""

    rungs: tuple[RungText, ...]
    seed: int
    tokenizer: str
    calls: int
    """How often the tokenizer was asked."""

    def at(self, rung: int) -> RungText:
        """Give the text of a rung. KeyError if it was not planned."""
        for text in self.rungs:
            if text.rung == rung:
                return text
        raise KeyError(rung)


@dataclass(frozen=True, slots=True)
class _Spot:
    """A place where a fact is to be planted, in tokens from the start, and the rungs (by their text's length) that ask for it."""

    tokens: float
    rungs: tuple[int, ...]
    literal: bool = True

    @property
    def slip(self) -> float:
        """How far the fact may slip, in tokens."""
        return max(SLIP * min(self.rungs, default=0), SLIP_TOKENS)


def _due(spot: _Spot, tokens: float, *, at_end: bool) -> bool:
    """Whether a fact is to be planted here: between two paragraphs as soon as its place is reached, inside one only when it would slip too far."""
    late = tokens - spot.tokens
    return late >= (0 if at_end else spot.slip)


class _Place(NamedTuple):
    """Where a fact stands: its first character, and the weight of the text before it."""

    at: int
    weight: float


def build_ladder(
    rungs: Sequence[int],
    counter: Counter,
    *,
    seed: int = 0,
    reserve: int = 64,
    depths: Sequence[float] = DEPTHS,
    base_depths: Sequence[float] | None = None,
    non_literal: int = 0,
    distractors: int | None = None,
    near_duplicates: float = 0.0,
    filler: Callable[[], Iterator[Unit]] | None = None,
    start: str = "",
) -> Ladder:
    """Write the text of a ladder.

    ``reserve`` tokens of each rung are left for what comes after the text (question, chat template). ``base_depths`` replaces the depths of the
    shortest rung, so that a base of 27 or more canaries can be asked there. ``non_literal`` facts (at most 18) are planted in every rung's own
    length, and ``distractors`` facts that nobody asks for (default: nine where there is one rung, none where the rungs have each other's).
    ``near_duplicates``: the share of facts whose name is like another one's. ``filler`` gives a fresh stream of units (default: generated from the
    seed); ``start`` stands at the very beginning.
    With ids and back the cut is exact; with counts alone it is within 0.1 % of 128K tokens, for at most four calls to the tokenizer.
    InputError if a rung is shorter than its reserve allows.
    """
    lengths = sorted(set(rungs))
    bodies = [r - reserve for r in lengths]
    if not bodies or bodies[0] < SMALLEST_RUNG // 2:
        raise InputError(
            f"the shortest rung leaves {bodies[0] if bodies else 0} tokens for its text: use longer rungs or a shorter question"
        )
    stream = filler or (lambda: generated(seed))
    before = counter.calls
    if distractors is None:
        distractors = DISTRACTORS if len(bodies) == 1 and bodies[0] >= DISTRACTORS_FROM else 0
    wanted = _spots(bodies, depths, base_depths, non_literal, distractors)
    # A first look at a short piece tells how dense this text is for this tokenizer; then the whole is written a little too long.
    sample, _ = _write(stream(), [], min(bodies[-1], SAMPLE), "")
    sample_tokens, _ids = counter.ids(sample)
    known = 0
    scale = sample_tokens / max(weigh(sample), 1.0)
    squeeze = dict.fromkeys(bodies, 1.0)
    out: list[RungText] = []
    for turn in range(MOST_TURNS):
        if not LEAST_SCALE <= scale <= 1 / LEAST_SCALE:
            raise InputError(
                f"the tokenizer counts {known or sample_tokens} tokens where many more or fewer stand: give another one with --tokenizer"
            )
        # what came out too short at several scales is written longer: in a short text one unit more or less is much
        margin = bodies[-1] * (1.03 + 0.03 * max(0, turn - 1)) + 40
        facts = draw(seed, near_duplicates)
        hidden = itertools.cycle(draw_non_literal(seed, non_literal * len(bodies)))
        placed = sorted(
            (replace(s, tokens=s.tokens * min((squeeze[r] for r in s.rungs), default=1.0)) for s in wanted),
            key=operator.attrgetter("tokens"),
        )
        spots = [(s, next(facts) if s.literal else next(hidden)) for s in placed]
        text, places = _write(stream(), spots, margin, start, scale)
        known, ids = counter.ids(text)
        drift = known / margin
        last = turn == MOST_TURNS - 1
        # Facts stand where the text was thought to be; a ladder whose places slipped is written again, a single rung only if it is too short.
        if known < bodies[-1] or (abs(drift - 1) > DRIFT and len(bodies) > 1 and not last):
            scale *= drift
            continue
        out, cut_off = [], False
        for rung, body in zip(lengths, bodies, strict=True):
            cut, tokens = cut_to_tokens(text, body, counter, known=known, ids=ids)
            out.append(_rung_text(rung, body, text[:cut], tokens, spots, places))
            if len(out[-1].canaries) + len(out[-1].non_literal) < sum(body in s.rungs for s in wanted):
                # Facts are denser than filler: in a short rung with many of them the last ones would be cut off. They move closer together.
                squeeze[body] *= min(0.98, weigh(text[:cut]) * scale / body)
                cut_off = True
        if not cut_off:
            break
    if not out:
        raise InputError("the tokenizer counts the same text differently each time: give another one with --tokenizer")
    return Ladder(tuple(out), seed, counter.name, counter.calls - before)


def _spots(
    bodies: Sequence[int], depths: Sequence[float], base: Sequence[float] | None, non_literal: int, distractors: int
) -> list[_Spot]:
    """Plan where facts stand.

    A fact that stands near enough to a wanted place of a shorter rung is asked for there too: the fewer facts a text has, the less it is a list.
    """
    spots: list[_Spot] = []
    for number, body in reversed(list(enumerate(bodies))):
        own = base if base is not None and number == 0 else depths
        most = max(1, body // ROOM_FOR_FACT)
        if len(own) > most:
            own = [own[n * len(own) // most] for n in range(most)]
        end = body - TAIL_ROOM
        for depth in own:
            at = min(body * depth, end)
            near = [s for s in spots if abs(s.tokens - at) <= SHARE * body and body not in s.rungs]
            if near:
                shared = min(near, key=lambda s: abs(s.tokens - at))
                spots[spots.index(shared)] = replace(shared, rungs=(*shared.rungs, body))
            else:
                spots.append(_Spot(at, (body,)))
    for body in bodies:
        hidden = [(n + 0.5) / non_literal for n in range(non_literal)]
        spots += [_Spot(min(body * d, body - TAIL_ROOM), (body,), literal=False) for d in hidden]
    # Facts that no rung asks for; where there are several rungs, each has those of the others.
    spots += [_Spot(bodies[-1] * (n + 0.5) / distractors, ()) for n in range(distractors)]
    return spots


def _write(
    stream: Iterator[Unit],
    spots: Sequence[tuple[_Spot, Canary | NonLiteral]],
    want: float,
    start: str,
    scale: float = 1.0,
) -> tuple[str, list[_Place]]:
    """Write filler with its facts until it weighs ``want`` tokens: the text, and where each fact stands that is in it."""
    parts = [start] if start else []
    tokens = weigh(start) * scale
    size = len(start)
    places: list[_Place] = []
    while tokens < want:
        end = parts[-1][-2:] if parts else "\n\n"
        while len(places) < len(spots) and _due(spots[len(places)][0], tokens, at_end=end == "\n\n"):
            lead = "" if end == "\n\n" else "\n" if end.endswith("\n") else "\n\n"
            line = f"{lead}{spots[len(places)][1].line}\n\n"
            places.append(_Place(size + len(lead), tokens / scale))
            parts.append(line)
            size += len(line)
            tokens += weigh(line) * scale
            end = "\n\n"
        unit = next(stream).text
        parts.append(unit)
        size += len(unit)
        tokens += weigh(unit) * scale
    return "".join(parts), places


def _rung_text(
    rung: int,
    body: int,
    text: str,
    tokens: int,
    spots: Sequence[tuple[_Spot, Canary | NonLiteral]],
    places: Sequence[_Place],
) -> RungText:
    """Sort the facts that stand whole in a rung's text into its own and those of others."""
    own: list[Canary] = []
    others: list[Canary] = []
    hidden: list[NonLiteral] = []
    weight = weigh(text)
    for (spot, fact), place in zip(spots, places, strict=False):
        if place.at + len(fact.line) >= len(text):
            continue
        placed = fact.moved(round(min(1.0, place.weight / weight), 4), place.at)
        if isinstance(placed, NonLiteral):
            if body in spot.rungs:
                hidden.append(placed)
        elif body in spot.rungs:
            own.append(placed)
        else:
            others.append(placed)
    return RungText(rung, text, tokens, tuple(own), tuple(others), tuple(hidden))
