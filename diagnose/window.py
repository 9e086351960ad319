"""Three verdicts at each length — fits, fast enough, recalls — and the window that was proved by them.

What holds is decided by the criteria that were written down before the first rung. Recall is judged over all attempts at a length together,
against the model's own base and the noise of so few canaries (:mod:`probes.ladder.scoring`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from diagnose.case import Case
from probes.evidence.rungs import Criteria, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import WindowReading
from probes.evidence.words import Words, words
from probes.ladder.scoring import BASE_CANARIES, RecallVerdict, judge_recall


@dataclass(frozen=True, slots=True)
class LengthVerdict:
    """One length, all attempts. None: cannot be told. ``attempts``: those at the end that were cold and ran, in a row."""

    tokens: int
    attempts: int
    fits: bool | None
    fast_enough: bool | None
    recalls: bool | None
    recall: RecallVerdict | None = None
    died: str | None = None
    """What was said last where the server went away at this length."""
    late: bool = False
    """Whether an answer did not come in time."""
    why: tuple[Words, ...] = ()
    lives: bool = False
    """Whether the server lives, where ``died`` says what was lost: then it was the connection alone."""
    cut: int | None = None
    """Tokens that were left of the text where it was cut without an error."""

    def holds(self, repeats: int) -> bool:
        """Say whether all three hold, as often in a row as the criteria ask."""
        return self.attempts >= repeats and self.fits is True and self.fast_enough is True and self.recalls is True


@dataclass(frozen=True, slots=True)
class WindowVerdict:
    """What was proved over all lengths."""

    lengths: tuple[LengthVerdict, ...] = ()
    fits: int | None = None
    fast_enough: int | None = None
    recalls: int | None = None
    verified: int | None = None
    target_input: int | None = None
    target_reached: bool | None = None
    statement: Words = field(default_factory=lambda: words("No length was measured."))
    unable: bool = False


def judge_length(attempts: Sequence[RungResult], criteria: Criteria, base: RecallBase | None) -> LengthVerdict:
    """Judge one length. ``attempts`` are of one rung, oldest first."""
    # what was cut on the way is judged at the length that was sent, and not at what was left of it
    tokens = min(one.rung if one.error_kind == "truncated" else one.input_tokens for one in attempts)
    why: list[Words] = []
    bad = [one for one in attempts if one.result != "passed"]
    late = [one for one in bad if one.result == "timeout"]
    # one that did not answer in time is too slow (or hangs): that is no failure of capacity, and no proof of it either
    fits: bool | None = None if bad and len(late) == len(bad) else not bad
    why += [
        words(
            "Attempt {attempt}: {result}: {error}",
            attempt=one.attempt,
            result=one.result,
            error=one.error or "no message",
        )
        for one in bad
    ]
    good = [one for one in attempts if one.result == "passed"]
    fast = _fast_enough(good, criteria, why) if fits else False if late and fits is None else None
    recall, settled = _recall(good, criteria, base)
    if recall is not None:
        why.append(recall.why)
    constraints = [one.constraints for one in good if one.constraints is not None and one.constraints.asked]
    recalls = recall.ok if recall is not None else None
    if recall is not None and recall.standing == "unsure" and settled:
        # as many different facts as the base was made of, and chance alone explains what is missing
        recalls = True
    if constraints and recalls is not False and _keeps_rules_when_short(base, criteria):
        met = sum(one.met for one in constraints) / sum(one.asked for one in constraints)
        if met < criteria.min_constraints:
            recalls = False
            why.append(
                words(
                    "{met} of the coding constraints were met, {needed} are needed.",
                    met=f"{met:.0%}",
                    needed=f"{criteria.min_constraints:.0%}",
                )
            )
    gone = next((one for one in bad if one.result == "died" or one.error_kind == "connection-lost"), None)
    return LengthVerdict(
        tokens,
        _in_a_row(attempts),
        fits,
        fast,
        recalls if fits else None,
        recall,
        (gone.error or "no message") if gone is not None else None,
        bool(late),
        tuple(why),
        lives=gone is not None and gone.result != "died",
        cut=next((one.input_tokens for one in bad if one.error_kind == "truncated"), None),
    )


def _keeps_rules_when_short(base: RecallBase | None, criteria: Criteria) -> bool:
    """Say whether the model keeps the coding rules of a short text as well as asked; one that does not is not blamed for a long one."""
    if base is None or not base.constraints_asked or base.constraints_met is None:
        return False
    return base.constraints_met / base.constraints_asked >= criteria.min_constraints


def _recall(
    good: Sequence[RungResult], criteria: Criteria, base: RecallBase | None
) -> tuple[RecallVerdict | None, bool]:
    """Judge recall over the different facts that were asked, and say whether enough were asked for an unsure verdict to stand.

    The same text asked again gives no new facts: a fact counts once, as recalled if it was recalled in at least half of its attempts.
    """
    if base is None:
        return None, False
    facts: dict[tuple[str | None, float], list[bool]] = {}
    for one in good:
        for place in one.canaries.by_depth if one.canaries is not None else ():
            facts.setdefault((one.prompt_hash, place.depth), []).append(place.hit)
    if not facts:
        return None, False
    hit = sum(2 * sum(hits) >= len(hits) for hits in facts.values())
    return judge_recall(hit, len(facts), base.hit, base.asked, criteria), len(facts) >= min(base.asked, BASE_CANARIES)


def _in_a_row(attempts: Sequence[RungResult]) -> int:
    """Count the cold attempts in a row that ran; a reading on a warm cache neither counts nor breaks the row."""
    count = 0
    for one in attempts:
        if one.result != "passed":
            count = 0
        elif one.cold is not False:
            count += 1
    return count


def _fast_enough(good: Sequence[RungResult], criteria: Criteria, why: list[Words]) -> bool | None:
    """Every attempt has to reach every speed that was asked for; a speed that was not asked for is no hurdle."""
    verdict: bool | None = True
    limits = (
        ("prefill_tps", criteria.min_prefill_tps, words("prefill, tokens per second"), 1),
        ("generation_tps", criteria.min_generation_tps, words("generation, tokens per second"), 1),
        ("first_token_s", criteria.max_first_token_s, words("seconds to the first token"), -1),
    )
    for name, limit, said, sign in limits:
        if limit is None:
            continue
        found = [getattr(one, name) for one in good]
        if any(value is not None and sign * value < sign * limit for value in found):
            worst = min((value for value in found if value is not None), key=lambda value: sign * value)
            why.append(
                words("{what}: {found}, asked for {limit}", what=said.english, found=f"{worst:g}", limit=f"{limit:g}")
            )
            return False
        if any(value is None for value in found):
            verdict = None
    return verdict


def passes(criteria: Criteria, base: RecallBase | None, attempts: Sequence[RungResult]) -> bool | None:
    """Say whether a length may be claimed so far: False where one of the three fails, None where one cannot be told yet."""
    one = judge_length(attempts, criteria, base)
    three = (one.fits, one.fast_enough, one.recalls)
    if False in three:
        return False
    if one.recalls is None and base is not None and not base.able:
        # recall cannot be asked of this model; what fits and is fast enough is still worth repeating
        return None if None in three[:2] else True
    return None if None in three else True


def by_rung(results: Iterable[RungResult]) -> dict[int, list[RungResult]]:
    """Group attempts by planned length, shortest first. Attempts without canaries (speed alone) join the others of their length."""
    table: dict[int, list[RungResult]] = {}
    for one in results:
        table.setdefault(one.rung, []).append(one)
    return dict(sorted(table.items()))


SLACK = 128
"""Tokens by which the longest prompt of a rung may be shorter than the rung: its text ends a little early, so that the longest question fits."""


def reaches(tokens: int, aim: int) -> bool:
    """Say whether a prompt length is the wanted one, as near as texts can be made: within a hundredth, or a few tokens in a small window."""
    return tokens >= aim - max(aim // 100, min(SLACK, aim // 32))


def judge_window(
    results: Sequence[RungResult],
    criteria: Criteria,
    base: RecallBase | None,
    *,
    target_input: int | None,
    window: int | None,
) -> WindowVerdict:
    """Judge all lengths. ``target_input``: prompt tokens that the user wants; None: as much as the window holds."""
    if not results:
        return WindowVerdict(target_input=target_input)
    results, before = _under_one_window(results)
    lengths = [judge_length(attempts, criteria, base) for attempts in by_rung(results).values()]

    def longest(test: str) -> int | None:
        """The longest length at which it holds and below which it never failed."""
        best: int | None = None
        for one in lengths:
            value = getattr(one, test)
            if value is True:
                best = one.tokens
            elif value is False:
                break
        return best

    fits, fast, recalls = longest("fits"), longest("fast_enough"), longest("recalls")
    verified: int | None = None
    for one in lengths:
        if False in (one.fits, one.fast_enough, one.recalls):
            break
        if one.holds(criteria.repeats):
            verified = one.tokens
    unable = base is not None and not base.able
    proved_without_recall = max(
        (one.tokens for one in lengths if unable and one.fits and one.fast_enough and one.attempts >= criteria.repeats),
        default=None,
    )
    reached: bool | None = None
    if target_input is not None:
        if verified is not None and reaches(verified, target_input):
            reached = True
        elif (window is not None and window < target_input) or any(
            False in (one.fits, one.fast_enough, one.recalls) for one in lengths
        ):
            reached = False
    statement = _statement(
        criteria, lengths, verified, fits, fast, recalls, unable=unable, without_recall=proved_without_recall
    )
    if before is not None:
        # what was measured under another window says nothing about the one that is in force
        verified, reached = None, None
        statement = words(
            "The server's window changed from {before} to {after} tokens while it was measured; nothing is claimed. Measure again.",
            before=f"{before:,}",
            after=f"{results[-1].window or 0:,}",
        )
    return WindowVerdict(
        tuple(lengths),
        fits,
        fast,
        recalls,
        verified,
        target_input,
        reached,
        statement,
        unable,
    )


def _under_one_window(results: Sequence[RungResult]) -> tuple[Sequence[RungResult], int | None]:
    """Give the attempts under the window that was in force last, and the window before it where it changed."""
    told = [one.window for one in results if one.window]
    if not told or told[0] == told[-1]:
        return results, None
    return [one for one in results if one.window == told[-1]], told[0]


_TIMES = {1: words("once"), 2: words("twice in a row"), 3: words("three times in a row")}


def _statement(
    criteria: Criteria,
    lengths: Sequence[LengthVerdict],
    verified: int | None,
    fits: int | None,
    fast: int | None,
    recalls: int | None,
    *,
    unable: bool,
    without_recall: int | None,
) -> Words:
    times = _TIMES.get(criteria.repeats) or words("{number} times in a row", number=criteria.repeats)
    if verified is not None:
        failed = next(
            (one for one in lengths if one.tokens > verified and False in (one.fits, one.fast_enough, one.recalls)),
            None,
        )
        if failed is None or failed.cut is not None:
            passed = words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall.",
                tokens=f"{verified:,}",
                times=times,
            )
            return passed if failed is None else words("{passed} {above}", passed=passed, above=_failing(failed))
        if failed.died is not None and failed.lives:
            return words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; "
                "at {failed} tokens the connection was cut while the server lives, which proves no limit of the server: {error}",
                tokens=f"{verified:,}",
                times=times,
                failed=f"{failed.tokens:,}",
                error=failed.died,
            )
        if failed.died is not None:
            return words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; "
                "at {failed} tokens the server went away: {error}",
                tokens=f"{verified:,}",
                times=times,
                failed=f"{failed.tokens:,}",
                error=failed.died,
            )
        if failed.fits is False:
            return words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; {failed} tokens did not run.",
                tokens=f"{verified:,}",
                times=times,
                failed=f"{failed.tokens:,}",
            )
        if failed.late:
            return words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; "
                "at {failed} tokens no answer came in time: too slow or hanging, which is not known to be a capacity failure.",
                tokens=f"{verified:,}",
                times=times,
                failed=f"{failed.tokens:,}",
            )
        if failed.fast_enough is False:
            return words(
                "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; "
                "{failed} tokens run but are too slow: an operating boundary, not a capacity failure.",
                tokens=f"{verified:,}",
                times=times,
                failed=f"{failed.tokens:,}",
            )
        return words(
            "This model, backend, cache and hardware passed {tokens} tokens {times} with the required speed and recall; "
            "{failed} tokens run but the text is not used well enough: a limit of the effective context, not of capacity.",
            tokens=f"{verified:,}",
            times=times,
            failed=f"{failed.tokens:,}",
        )
    if unable:
        if without_recall is not None:
            ran = words(
                "{tokens} tokens ran {times} with the required speed; recall is unknown, because this model cannot do the recall test even at a short length.",
                tokens=f"{without_recall:,}",
                times=times,
            )
            failed = next(
                (one for one in lengths if one.tokens > without_recall and False in (one.fits, one.fast_enough)), None
            )
            return ran if failed is None else words("{passed} {above}", passed=ran, above=_failing(failed))
        return words(
            "No window was verified: this model cannot do the recall test even at a short length, so recall is unknown."
        )
    if fits is None:
        return words("No length passed: the shortest one that was tried did not run.")
    if recalls is None and any(one.recalls is False for one in lengths):
        return words(
            "{tokens} tokens run, but the text is not used well enough even at the shortest length.", tokens=f"{fits:,}"
        )
    if fast is None and any(one.fast_enough is False for one in lengths):
        return words("{tokens} tokens run, but none of the lengths was as fast as asked for.", tokens=f"{fits:,}")
    return words(
        "No window was verified {times} yet: {tokens} tokens ran at most.",
        times=times,
        tokens=f"{fits:,}",
    )


def _failing(failed: LengthVerdict) -> Words:
    """Say in a sentence of its own what became of a length that did not hold."""
    tokens = f"{failed.tokens:,}"
    if failed.cut is not None:
        return words(
            "Text of {failed} tokens was cut to {kept} without an error: the model does not see the rest.",
            failed=tokens,
            kept=f"{failed.cut:,}",
        )
    if failed.died is not None and failed.lives:
        return words(
            "At {failed} tokens the connection was cut while the server lives, which proves no limit of the server: {error}",
            failed=tokens,
            error=failed.died,
        )
    if failed.died is not None:
        return words("At {failed} tokens the server went away: {error}", failed=tokens, error=failed.died)
    if failed.fits is False:
        return words("{failed} tokens did not run.", failed=tokens)
    if failed.late:
        return words(
            "At {failed} tokens no answer came in time: too slow or hanging, which is not known to be a capacity failure.",
            failed=tokens,
        )
    return words("{failed} tokens run but are too slow: an operating boundary, not a capacity failure.", failed=tokens)


def other_criteria(case: Case, run: int) -> Words | None:
    """Say so where a run was judged by other criteria than the one before it: its verdict is another verdict."""
    mine = case.payloads(Criteria, run)
    before = [(other, kept[-1]) for other in range(1, run) if (kept := case.payloads(Criteria, other))]
    if not mine or not before or before[-1][1].hash == mine[-1].hash:
        return None
    other, old = before[-1]
    values = old.model_dump(exclude={"fixed_at"})
    changed = [name for name, value in mine[-1].model_dump(exclude={"fixed_at"}).items() if values[name] != value]
    return words(
        "This run was judged by other criteria than run {other} (changed: {names}; hash {hash_before}, now {hash_now}): it is another verdict, "
        "and says nothing about what a change to the server did.",
        other=other,
        names=", ".join(changed),
        hash_before=old.hash,
        hash_now=mine[-1].hash,
    )


def window_verdict(case: Case, run: int) -> WindowVerdict:
    """Judge the window that a run proved."""
    criteria = (case.payloads(Criteria, run) or [Criteria()])[-1]
    plans = case.payloads(LadderPlan, run)
    bases = case.payloads(RecallBase, run)
    base = bases[-1] if bases else None
    readings = [reading.in_force for reading in case.payloads(WindowReading, run) if reading.in_force]
    plan = plans[-1] if plans else None
    target = plan.target - plan.output_tokens if plan and plan.target else None
    window = readings[-1] - plan.output_tokens if readings and plan else None
    return judge_window(case.payloads(RungResult, run), criteria, base, target_input=target, window=window)
