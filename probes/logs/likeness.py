"""Which cause's telling a report is most like: by its words, each weighed by how few causes' people use it.

A report is cut into its title and its sentences. Every word (and pair of neighbours) that the tellings of :mod:`.ways` know counts once a sentence,
more in the title. This orders causes where nothing else does; it is no evidence of what is wrong, and weighs slightly.
"""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter, defaultdict
from functools import cache

from .ways import USUAL, WAYS

MOST = 3
_WORD = re.compile(r"[a-z가-힣][a-z가-힣0-9]*(?:[._][a-z0-9]+)*|\d+%")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_LARGEST = 24_000
_LONGEST = 40
_TITLE, _REPORT = 2.5, 2.0
"""How much the title and the whole weigh against the likest sentence."""
_SHORT, _WHOLE = 4, 10
"""Words that a sentence and a report are taken to have more, so that a single word decides nothing."""
_LEAST = 3.0
_MANY_KNOWN = 6
"""So many known words are of the matter without a word of the field among them."""
_LEAST_KNOWN, _LEAST_OF_ONE, _LEAST_SHARE = 3, 2, 1 / 3
"""Below so many words that any telling knows, that the cause's own know, and below such a share of all that was said, nothing is alike: a text on something
else, or in a language that no telling is in, has a word of theirs by chance."""
_USUAL = 2.0
"""What a server's usual troubles have in advance: about one rare word of a sentence."""
_PAIR = 1.5
_COMMON = frozenset(
    re.findall(
        r"\w+",
        """
        a an and are as at be been but by can cannot could did do does doesn for from get gets got had has have how i if in into is isn it its just like
        me my no not now of off on one only or other our out so some still than that the their then there these they this to too up use used uses using
        very was we were what when where which while who why will with would you your also after again all any anyone am about because before being both
        don each even ever every few first here him his let more most much must new once own same she should since such them through until us want well
        whether
        issue bug question help please version model models server run running runs ran works work working try tried trying feature request problem
        error errors fail fails failed usage
        ollama vllm sglang llama cpp llamacpp lm studio koboldcpp kobold mlx qwen qwen2 qwen3 gemma mistral deepseek
        """,
    )
)
"""Words that all people use, and names that tell of nobody's trouble."""
_ENDINGS = (
    ("ies", "y"), ("ations", "at"), ("ation", "at"), ("ating", "at"), ("ated", "at"), ("ates", "at"), ("ings", ""), ("ing", ""), ("edly", ""), ("ed", ""),
    ("ers", "er"), ("ly", ""), ("es", ""), ("s", ""), ("e", ""),
)  # fmt: skip
_MEANT = {
    "gpu": "gpus card cards", "context": "ctx n_ctx", "truncat": "truncated truncation clipped", "garbage": "gibberish garbled nonsense rubbish incoherent",
    "reprocess": "reprocessing reprocesses reprocessed recomputed recompute reevaluated", "quant": "quantised quantized quantization quantisation",
    "hang": "hangs hung stuck freezes frozen", "deadlock": "deadlocks", "slow": "slower slowly slowdown slows", "long": "longer",
    "large": "larger bigger big huge",
    "uneven": "unequal unbalanced imbalance imbalanced asymmetric evenly unevenly uneven",
    "forget": "forgets forgot remember remembers recall recalls memorize",
    "timeout": "timeouts timed", "user": "users multiuser clients", "compact": "compaction compacting compacted compacts autocompact",
    "unload": "uninstalled unloaded eject ejected",
    "image": "images picture pictures screenshot", "specul": "mtp draft drafter eagle eagle3 speculative speculation dflash", "sleep": "suspend hibernate",
}  # fmt: skip
_SAME = {word: meant for meant, said in _MEANT.items() for word in said.split()}
"""Word → the word that stands for it here: what differs between people, not between troubles."""


_PHRASES = (
    (re.compile(r"\bout[ -]of[ -](?:\w{2,8}[ -])?memory\b|\boom(?:s|ed|ing)\b|outofmemory\w*"), "oom"),
    (re.compile(r"\b(?:t|toks?|tokens?) ?/ ?s(?:ec)?\b|\btokens? per second\b"), "tps"),
    (re.compile(r"\bre-(?=[a-z])"), "re"),
    (re.compile(r"\btim(?:es?|ed|ing)[ -]out\b|\btime-out"), "timeout"),
)
"""What is said in several words and means one."""


def _stem(word: str) -> str:
    if word in _SAME:
        return _SAME[word]
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            stem = word[: -len(ending)] + instead
            return stem[:-1] if len(stem) > 4 and stem[-1] == stem[-2] else stem
    return word


def _features(text: str) -> set[str]:
    plain = _CAMEL.sub(" ", text).lower()
    for said, meant in _PHRASES:
        plain = said.sub(meant, plain)
    words = _WORD.findall(plain.replace("'", ""))
    kept = [_stem(word) for word in words if word not in _COMMON and 1 < len(word) <= _LONGEST]
    return {*kept, *(f"{one} {two}" for one, two in itertools.pairwise(kept))}


_FIELD = frozenset(
    stem
    for word in re.findall(
        r"\w+",
        """
        gpu vram ram memory oom context ctx token tokens prompt prompts cache cached kv cuda rocm vulkan metal hip cpu processor driver kernel
        prefill batch ubatch layers offload weights quant q4 q8 quantized slot slots parallel request requests truncated truncation forgets crash crashes
        slow speed tps timeout hang stuck garbage gibberish leak swap load loads loading loaded unload allocate allocation allocated buffer nvml xid
        prefilling desktop pc documents recalled attention rope yarn template reasoning conversation conversations
        chat chats history answer answers reply replies output response generation
        decode speculative draft mtp image vision mmproj mmap reboot reboots sleep slept suspend nginx proxy stream streaming tool
        swa mamba hybrid sliding moe expert experts length max
        """,
    )
    for stem in (_stem(word),)
)
"""Words of which a report of any trouble that there is a cause for has one."""


def _speaks_of_it(features: set[str], like: list[str], weights: dict[str, dict[str, float]]) -> list[str]:
    """Keep the causes that enough words of a text are like; none for a text that is on something else."""
    words = {feature for feature in features if " " not in feature}
    known = words & weights.keys()
    plain = sum(word.isalpha() for word in words | known)
    if len(known) < _LEAST_KNOWN or len(known) < _LEAST_SHARE * plain:
        return []
    if len(known) < _MANY_KNOWN and not words & _FIELD:
        return []
    told = features & weights.keys()
    return [cause for cause in like if sum(cause in weights[feature] for feature in told) >= _LEAST_OF_ONE]


@cache
def _model() -> dict[str, dict[str, float]]:
    """Give, for each word and pair of words, the causes that it speaks for, and how much."""
    told: dict[str, Counter[str]] = {}
    for cause, lines in WAYS.items():
        told[cause] = Counter()
        for line in (*lines.strip().split("\n"), cause.replace("-", " ")):
            told[cause].update(_features(line))
    spread = Counter(feature for counter in told.values() for feature in counter)
    weights: dict[str, dict[str, float]] = {}
    for cause, counter in told.items():
        for feature, lines_with in counter.items():
            rare = math.log((len(told) + 1) / (spread[feature] + 0.5))
            often = 1 + 0.5 * math.log2(lines_with)
            weights.setdefault(feature, {})[cause] = often * rare * (_PAIR if " " in feature else 1.0)
    return weights


def likeness(
    title: str, parts: list[str], server: str | None = None, most: int = MOST, *, on_topic: bool = False
) -> tuple[str, ...]:
    """Give the ids of the causes whose telling a report is most like, the likest first; none where too few of its words are in any telling.

    ``title``: its heading, or empty; ``parts``: its sentences; ``server``: the program that it is about, whose usual troubles
    come first among what is alike; ``on_topic``: whether a log
    or a trouble that it tells shows that it is about a server, so that few words are enough.
    """
    weights = _model()
    marks: defaultdict[str, float] = defaultdict(float)
    best: dict[str, float] = {}

    def marked(features: set[str], extra: int) -> dict[str, float]:
        known = [feature for feature in features if feature in weights]
        found: defaultdict[str, float] = defaultdict(float)
        for feature in known:
            for cause, mark in weights[feature].items():
                found[cause] += mark
        length = math.sqrt(extra + len(known))
        return {cause: mark / length for cause, mark in found.items()}

    seen = _features(title)
    for cause, mark in marked(seen, _SHORT).items():
        marks[cause] += _TITLE * mark
    spent = len(title)
    for part in parts:
        spent += len(part)
        if spent > _LARGEST:
            break
        if part == title:
            continue
        features = _features(part)
        seen |= features
        for cause, mark in marked(features, _SHORT).items():
            best[cause] = max(best.get(cause, 0.0), mark)
    for cause, mark in best.items():
        marks[cause] += mark
    for cause, mark in marked(seen, _WHOLE).items():
        marks[cause] += _REPORT * mark
    for cause in USUAL.get(server or "", ()):
        if cause in marks:
            marks[cause] += _USUAL
    order = sorted(marks, key=lambda cause: (-marks[cause], cause))
    like = [cause for cause in order[:most] if marks[cause] >= _LEAST]
    return tuple(like if on_topic else _speaks_of_it(seen, like, weights))
