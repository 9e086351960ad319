"""Facts that cannot be guessed, where they stand, and how they are asked for.

A literal canary is ``ORBIT-17 = copper.`` in a paragraph of its own: a name drawn from 56 code words and two digits, a value drawn from 117
everyday words, both from a seeded generator. A non-literal canary is a sentence whose question shares no word with it, so
that it cannot be found by matching words.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from probes.ladder.text import listed

DEPTHS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Where a rung's canaries stand, as shares of its length."""

# Common words on purpose: most tokenizers know them in capitals as one token. With names in pieces (GLACIER as G, LAC, IER) a small model
# recalls 15 of 18 where it recalls 18 of 18 with these: that would measure spelling, not memory.
CODE_WORDS = listed(
    "ALPHA|BRIDGE|CAMERA|CARBON|CASCADE|CHICAGO|CIRCLE|CLOCK|CLOUD|DELTA|ELECTRON|EMBER|ENERGY|ENGINE|FACTORY|FAMILY|FILTER|GAMMA|GLASS|GUARD|"
    "HOUSE|HYDRO|JORDAN|LAUNCH|LIBRARY|LIGHT|LONDON|MAGNET|MARINE|MATRIX|METAL|MISSION|MOTOR|MUSIC|NEUTRON|NORTH|NUCLEAR|PHOTO|PLASMA|POWER|"
    "PROTON|RADIO|RANGER|REACTOR|SCHOOL|SIGNAL|SPRING|STEAM|STONE|TRAVEL|UNION|VECTOR|WATER|WINDOW|WORLD|ORBIT"
)

# Everyday words on purpose: a small model that half remembers falls back to the commoner word (blizzard becomes snow).
VALUES = listed(
    "red|green|blue|yellow|purple|orange|pink|brown|black|white|horse|dog|cat|tiger|lion|bear|wolf|fox|eagle|snake|rabbit|elephant|monkey|"
    "sheep|cow|pig|mouse|duck|goat|fish|whale|shark|chicken|camel|donkey|frog|spider|apple|lemon|banana|cherry|grape|peach|bread|butter|cheese|"
    "honey|sugar|coffee|salt|pepper|rice|potato|tomato|onion|garlic|milk|wine|gold|silver|copper|iron|steel|bronze|wood|leather|cotton|wool|"
    "silk|diamond|ruby|marble|pearl|snow|rain|wind|fire|moon|star|sun|river|ocean|forest|mountain|desert|jungle|volcano|thunder|hammer|guitar|"
    "piano|drum|violin|candle|mirror|basket|knife|sword|castle|button|ladder|helmet|rocket|bicycle|tractor|pirate|dragon|robot|doctor|tulip|"
    "rose|maple|walnut|bamboo|mushroom|chocolate|pumpkin"
)

Style = Literal["question", "completion"]


@dataclass(frozen=True, slots=True)
class Canary:
    """One planted fact. ``depth`` is its place in the rung it is asked at (0 to 1); ``at`` its first character in the text."""

    key: str
    value: str
    depth: float = 0.0
    at: int = -1

    @property
    def line(self) -> str:
        """The fact as it stands in the text."""
        return f"{self.key} = {self.value}."

    @property
    def completion(self) -> str:
        """What a base model is given to go on with."""
        return f"{self.key} ="

    def moved(self, depth: float, at: int) -> Canary:
        """The same fact at a place."""
        return replace(self, depth=depth, at=at)


def draw(seed: int, near: float = 0.0) -> Iterator[Canary]:
    """Give the endless facts of a seed: no key twice.

    A share ``near`` of them (and all, once each code word was used) are near-duplicates of one before: the same word with its digits swapped or the
    next number (17 and 71, 17 and 18), so that half a key is not enough. A value is drawn again only after all others.
    """
    rng = random.Random(f"canaries {seed}")
    unused: list[str] = []
    single: list[tuple[str, int]] = []
    values: list[str] = []
    seen: set[str] = set()
    rounds = 0
    while True:
        twin = single.pop(rng.randrange(len(single))) if single and rng.random() < near else None
        if twin is not None:
            word, number = twin[0], _twin(twin[1])
        else:
            if not unused:
                unused, rounds = rng.sample(CODE_WORDS, len(CODE_WORDS)), rounds + 1
            word, number = unused.pop(), rng.randrange(10, 100)
        while f"{word}-{number}" in seen:
            # Where the two-digit names are nearly used up, go on with three digits.
            number = rng.randrange(10, 100) if rounds < 60 else rng.randrange(100, 100 + 10 * rounds)
        if twin is None:
            single.append((word, number))
        seen.add(f"{word}-{number}")
        if not values:
            values = rng.sample(VALUES, len(VALUES))
        yield Canary(f"{word}-{number}", values.pop())


def _twin(number: int) -> int:
    """Give a two-digit number that is easily taken for this one."""
    swapped = number % 10 * 10 + number // 10
    if number < 100 and swapped >= 10 and swapped != number:
        return swapped
    return number + 1 if number % 100 != 99 else number - 1


# --- asking --------------------------------------------------------------------------------------------------------------------------------

INSTRUCTION = "The text above states facts of the form NAME-NUMBER = word. Answer from that text only."


# With this heading a small base model recalls 8 to 9 of 9 at 2K and 4K tokens; with the bare name it recalls 6 (it goes on with the story).
HEADING = "List of all facts in the text above:"


def completion_tail(canary: Canary) -> str:
    """Give the end of a prompt for a base model: it goes on with the value.

    All tails of a text begin alike, so that from the second question on a server with a prompt cache reads a handful of tokens.
    """
    return f"\n\n{HEADING}\n\n{canary.completion}"


def question_tail(canaries: Sequence[Canary]) -> str:
    """Give the end of a chat message that asks for one or several canaries in one request, a line each."""
    if len(canaries) == 1:
        return f"\n\n{INSTRUCTION}\nWhich word belongs to {canaries[0].key}? Answer with that one word."
    keys = ", ".join(c.key for c in canaries)
    return (
        f"\n\n{INSTRUCTION}\nWhich words belong to these names: {keys}?\n"
        "Answer with one line for each name, in this order and in this form, and nothing else:\nNAME-NUMBER = word"
    )


def answer_tokens(canaries: int, style: Style) -> int:
    """Give an output budget that holds the answer, and not much more. Reasoning models need room of their own on top."""
    return 8 if style == "completion" else 24 + 16 * canaries


# --- non-literal ---------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NonLiteral:
    """A fact and a question about it that share no word; the answer is the person's name."""

    fact: str
    question: str
    completion: str
    name: str
    depth: float = 0.0
    at: int = -1

    def moved(self, depth: float, at: int) -> NonLiteral:
        """The same fact at a place."""
        return replace(self, depth=depth, at=at)

    @property
    def line(self) -> str:
        """The fact as it stands in the text."""
        return self.fact


NAMES = listed(
    "Yuki|Calvin|Megan|Stuart|Katie|Veronica|Mandy|Diana|Oskar|Priya|Tomas|Ingrid|Farid|Lucia|Henrik|Amara|Bogdan|Chiara|Dmitri|Esther|"
    "Felipe|Greta|Hamid|Ilse"
)

NON_LITERAL: tuple[tuple[str, str, str], ...] = (
    # fact ({name} in it), question, completion up to the name
    ("{name} lives next to the Eiffel Tower.", "Who has a home in Paris?", "The one whose home is in Paris is called"),
    ("{name} keeps a greyhound at home.", "Which person owns a dog?", "The person who owns a dog is called"),
    ("{name} has never eaten meat or fish.", "Who is a vegetarian?", "The vegetarian is called"),
    ("{name} repairs violins for a living.", "Who works with musical instruments?", "The person who works with musical instruments is called"),
    ("{name} was born on an island near Athens.", "Who comes from Greece?", "The person who comes from Greece is called"),
    ("{name} spends every winter teaching skiing.", "Who gives sports lessons?", "The person who gives sports lessons is called"),
    ("{name} cannot sleep on aeroplanes.", "Who stays awake during flights?", "The person who stays awake during flights is called"),
    ("{name} photographs the pyramids each year.", "Who travels to Egypt?", "The person who travels to Egypt is called"),
    ("{name} delivers babies at the clinic.", "Who is a midwife?", "The midwife is called"),
    ("{name} lost a leg in the war.", "Who is a disabled veteran?", "The disabled veteran is called"),
    ("{name} sold the family vineyard.", "Who used to grow grapes?", "The person who used to grow grapes is called"),
    ("{name} lives within sight of the Kremlin.", "Who has a home in Russia?", "The one whose home is in Russia is called"),
    ("{name} cannot drink milk without falling ill.", "Who does not tolerate lactose?", "The person who does not tolerate lactose is called"),
    ("{name} translates novels from Tokyo.", "Who understands Japanese?", "The person who understands Japanese is called"),
    ("{name} has a twin and two younger sisters.", "Who is one of four children?", "The child with three siblings is called"),
    ("{name} flies jets for the navy.", "Who is a military pilot?", "The military pilot is called"),
    ("{name} grows tulips outside Amsterdam.", "Who farms flowers in Holland?", "The person who farms flowers in Holland is called"),
    ("{name} always carries an inhaler.", "Who suffers from asthma?", "The person who suffers from asthma is called"),
)  # fmt: skip


def draw_non_literal(seed: int, count: int) -> tuple[NonLiteral, ...]:
    """Give ``count`` (at most 18) facts with names drawn by the seed, no name and no fact twice."""
    rng = random.Random(f"non-literal {seed}")
    names = rng.sample(NAMES, min(count, len(NON_LITERAL)))
    rows = rng.sample(NON_LITERAL, len(names))
    return tuple(
        NonLiteral(fact.format(name=name), question, end, name)
        for name, (fact, question, end) in zip(names, rows, strict=True)
    )


def non_literal_tail(item: NonLiteral, style: Style) -> str:
    """Give the end of a prompt that asks for one non-literal fact."""
    if style == "completion":
        return f"\n\n{item.completion}"
    return f"\n\nAnswer from the text above only, with one first name.\n{item.question}"
