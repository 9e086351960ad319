"""The same request many times: how outcomes group, what the number of tries can say, and times that look like somebody's timeout."""

from __future__ import annotations

import math
import re
from collections import Counter as Tally
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from probes.evidence.request import ConcurrencyTrial, Outcome
from probes.evidence.words import Words, words
from probes.ladder.binomial import at_most, clopper_pearson, lower_bound, upper_bound

TIMEOUTS_S: tuple[int, ...] = (5, 10, 15, 20, 30, 45, 60, 90, 100, 120, 180, 240, 300, 600, 900, 1200, 1800, 3600)
"""Round numbers of seconds that clients and proxies give up after."""

Stage = Literal["first-after-load", "cold", "warm"]


@dataclass(frozen=True, slots=True)
class Try:
    """One try of the same request."""

    outcome: Outcome
    seconds: float
    error_kind: str | None = None
    error: str = ""
    cached_tokens: int | None = None
    first_after_load: bool = False
    concurrency: int = 1
    peak_bytes: int | None = None
    busy_beside: bool | None = None
    """Whether other load was seen on the server or the machine meanwhile."""

    @property
    def passed(self) -> bool:
        """Whether it went through."""
        return self.outcome == "passed"

    @property
    def stage(self) -> Stage:
        """What the server had to do: the first request after loading does work that no later one does; a cold one reads everything."""
        if self.first_after_load:
            return "first-after-load"
        return "warm" if self.cached_tokens else "cold"


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Errors that are the same but for numbers, addresses and names."""

    kind: str
    pattern: str
    count: int
    example: str
    seconds: tuple[float, ...]
    timeout_s: int | None
    """The round number of seconds after which they happened, if they did."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tries under one condition."""

    passed: int
    tried: int
    seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class FlakyReading:
    """All tries taken together."""

    passed: int
    tried: int
    standing: Literal["steady", "fails-always", "flaky", "first-only", "load-only", "cold-only", "nothing"]
    """*first-only*, *load-only*, *cold-only*: failures only in the first after loading, only beside other requests, only without the cache."""
    errors: tuple[ErrorGroup, ...]
    by_stage: dict[Stage, Group]
    by_concurrency: dict[int, Group]
    beside: int
    """Tries during which other load was seen."""
    bounds: Words


def bounds_in_words(passed: int, tried: int) -> Words:
    """Say what a number of tries leaves open, at 95 %: "3 of 3 leaves up to 63 %"."""
    if tried <= 0:
        return words("Nothing was tried.")
    failed = tried - passed
    if failed == 0:
        most = _percent(upper_bound(0, tried))
        return words(
            "{passed} of {tried} passed: that leaves a failure rate of up to {high}.",
            passed=passed,
            tried=tried,
            high=most,
        )
    if passed == 0:
        return words(
            "0 of {tried} passed: the failure rate is at least {low}.",
            tried=tried,
            low=_percent(lower_bound(tried, tried), down=True),
        )
    low, high = clopper_pearson(failed, tried)
    return words(
        "{passed} of {tried} passed: the failure rate lies between {low} and {high}.",
        passed=passed, tried=tried, low=_percent(low, down=True), high=_percent(high),
    )  # fmt: skip


def _percent(share: float, *, down: bool = False) -> str:
    """Give whole percent, and one more digit near both ends, so that nothing is called 0 % or 100 % that is not."""
    if share in (0.0, 1.0):
        return f"{share * 100:.0f} %"
    if 0.01 <= share <= 0.99:
        return f"{share * 100:.0f} %"
    return f"{share * 100:.1f} %" if not down or share >= 0.001 else "0.1 %"


_STANDING: dict[str, Words] = {
    "fails-always": words("It failed each time: the failure is not flaky here."),
    "flaky": words("It failed at some times and passed at others, under the same conditions."),
    "first-only": words("It failed only as the first request after the load."),
    "load-only": words("It failed only while other requests ran."),
    "cold-only": words("It failed only where the whole prompt had to be read, and passed from the cache."),
}


def trial_in_words(trial: ConcurrencyTrial) -> tuple[Words, ...]:
    """Say what a trial showed, sentence by sentence: alone, at once, to which condition the failures belong, limits, other load."""
    said: list[Words] = []
    if trial.alone_tried:
        said.append(
            words("The same request of {tokens} tokens was sent again and again, alone.", tokens=trial.prompt_tokens)
        )
        said.append(bounds_in_words(trial.alone_passed, trial.alone_tried))
    if trial.together_tried:
        said.append(words("Then {count} such requests were sent at the same time.", count=trial.concurrency))
        said.append(bounds_in_words(trial.together_passed, trial.together_tried))
    if trial.standing in _STANDING:
        said.append(_STANDING[trial.standing])
    said += _needed(trial)
    groups = Tally((error.error, pattern_of(error.message)) for error in trial.errors)
    for (kind, pattern), count in groups.most_common(3):
        said.append(words("{count} times {kind}: {message}", count=count, kind=kind, message=pattern[:160]))
    if trial.round_timeout_s is not None:
        said.append(
            words(
                "The failures came after {seconds} seconds each time, a round number: a client's or a proxy's time limit ends so.",
                seconds=trial.round_timeout_s,
            )
        )
    if trial.busy_beside:
        said.append(
            words(
                "Somebody else's request was running on the server before {count} of the tries.",
                count=trial.busy_beside,
            )
        )
    return tuple(said)


SELDOM = 0.05
"""A failure that comes less often than this is said to be seldom."""


def _needed(trial: ConcurrencyTrial) -> tuple[Words, ...]:
    """Say how many passes in a row say something: after a change where it fails now and then, at all where it never failed."""
    groups = ((trial.alone_passed, trial.alone_tried), (trial.together_passed, trial.together_tried))
    shares = [1 - passed / tried for passed, tried in groups if tried]
    mixed = [share for share in shares if 0 < share < 1]
    if mixed:
        return (
            words(
                "If it fails as often as here, {count} passes in a row come by chance only once in 20 times: "
                "so many are needed before a change can be said to have helped.",
                count=tries_needed(mixed[0]),
            ),
        )
    if shares and not any(shares):
        return (
            words(
                "It takes {count} passes in a row to say that it fails in fewer than 1 of 20 tries.",
                count=tries_needed(SELDOM),
            ),
        )
    return ()


def tries_needed(rate: float, confidence: float = 0.95) -> int:
    """Say how many passes in a row show that fewer than ``rate`` of the tries fail. ValueError for a rate that is no share between 0 and 1."""
    if not 0 < rate < 1:
        raise ValueError("a failure rate lies between 0 and 1")
    return max(1, math.ceil(math.log(1 - confidence) / math.log1p(-rate) - 1e-9))


def round_timeout(seconds: float, *, slack: float = 0.03, most_slack_s: float = 1.5) -> int | None:
    """Give the round number of seconds that a time stands just at or after, or None. Timers fire late, never early by more than a moment."""
    for limit in TIMEOUTS_S:
        if -0.1 <= seconds - limit <= min(max(0.3, slack * limit), most_slack_s):
            return limit
    return None


_VARIABLE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "<address>"),
    (re.compile(r"\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{13,36}\b"), "<id>"),
    (re.compile(r"\b(?=\w*\d)(?=\w*[a-f])[0-9a-f]{12,64}\b"), "<id>"),
    (re.compile(r"(?:/[\w.+-]+){2,}"), "<path>"),
    (re.compile(r"\d+(?:[.,:]\d+)*"), "#"),
)


def pattern_of(message: str) -> str:
    """Give an error's text without what differs from time to time: numbers, addresses, ids, paths."""
    text = " ".join(message[:2000].split())
    for pattern, mark in _VARIABLE:
        text = pattern.sub(mark, text)
    return text[:300]


def group_errors(tries: Sequence[Try]) -> tuple[ErrorGroup, ...]:
    """Group the failures, the commonest first."""
    table: dict[tuple[str, str], list[Try]] = {}
    for one in tries:
        if not one.passed:
            table.setdefault((one.error_kind or one.outcome, pattern_of(one.error)), []).append(one)
    groups = []
    for (kind, pattern), members in table.items():
        limits = {round_timeout(m.seconds) for m in members}
        seconds = tuple(m.seconds for m in members)
        groups.append(
            ErrorGroup(
                kind, pattern, len(members), members[0].error[:500], seconds, limits.pop() if len(limits) == 1 else None
            )
        )
    return tuple(sorted(groups, key=lambda g: (-g.count, g.kind, g.pattern)))


def read_tries(tries: Sequence[Try]) -> FlakyReading:
    """Take tries together: which condition the failures belong to, and what the numbers can say."""
    passed, tried = sum(t.passed for t in tries), len(tries)
    stages: dict[Stage, Group] = {}
    for stage in ("first-after-load", "cold", "warm"):
        members = [t for t in tries if t.stage == stage]
        if members:
            stages[stage] = _group(members)
    levels = {n: _group([t for t in tries if t.concurrency == n]) for n in sorted({t.concurrency for t in tries})}
    return FlakyReading(
        passed,
        tried,
        _standing(tries),
        group_errors(tries),
        stages,
        levels,
        sum(bool(t.busy_beside) for t in tries),
        bounds_in_words(passed, tried),
    )


def _group(members: Sequence[Try]) -> Group:
    return Group(sum(t.passed for t in members), len(members), tuple(t.seconds for t in members))


def _standing(
    tries: Sequence[Try],
) -> Literal["steady", "fails-always", "flaky", "first-only", "load-only", "cold-only", "nothing"]:
    if not tries:
        return "nothing"
    failed = [t for t in tries if not t.passed]
    if not failed:
        return "steady"
    if len(failed) == len(tries):
        return "fails-always"
    if all(t.stage == "first-after-load" for t in failed):
        return "first-only"
    if _explains([t.concurrency > 1 for t in tries], tries):
        return "load-only"
    if _explains([t.stage == "cold" for t in tries], tries):
        return "cold-only"
    return "flaky"


def _explains(inside: Sequence[bool], tries: Sequence[Try]) -> bool:
    """Whether all failures lie inside a condition, and enough tries outside it passed that chance would rarely (10 %) spare them all."""
    within, outside = sum(inside), len(tries) - sum(inside)
    failed = [here for here, t in zip(inside, tries, strict=True) if not t.passed]
    return bool(within and outside) and all(failed) and at_most(0, outside, len(failed) / within) <= 0.1


def same_share(first: Group, second: Group) -> float:
    """Give the chance that two groups differ this much or more although their true shares are the same (Fisher's exact test, two-sided)."""
    hits, n, m = first.passed + second.passed, first.tried, second.tried
    whole = math.comb(n + m, hits)

    def weight(k: int) -> float:
        return math.comb(n, k) * math.comb(m, hits - k) / whole if 0 <= k <= n and 0 <= hits - k <= m else 0.0

    seen = weight(first.passed)
    return min(1.0, sum(w for k in range(n + 1) if (w := weight(k)) <= seen * (1 + 1e-9)))
