"""Two runs of a case side by side: window, speeds, recall and memory, before and after, each with its noise."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from diagnose.case import Case
from diagnose.window import by_rung, window_verdict
from probes.evidence.machine import HostReading
from probes.evidence.request import Launch
from probes.evidence.rungs import RungResult
from probes.evidence.subject import BackendIdentity, WindowReading
from probes.evidence.words import Words, words
from probes.ladder.flaky import Group, same_share
from probes.ladder.scoring import pooled
from reports.document import ComparedValue, Standing

SPEED_NOISE = 0.1
"""Speeds of two runs that differ by less than a tenth are the same."""
SPEED_NOISE_OF_FEW = 0.3
"""Where there are fewer than five attempts, or one on a side, less than this is the same."""
BUSY = 0.75
"""Of all cores busy when a run began: then speeds of two runs cannot be compared."""
SURELY_DIFFERENT = 0.05
"""Chance below which two shares of recalled facts are taken to differ."""
MIB = 1 << 20


@dataclass(slots=True)
class Comparison:
    """Two runs side by side. ``gains`` and ``losses``: in capacity, speed or recall, beyond the noise."""

    rows: list[ComparedValue] = field(default_factory=list)
    gains: list[Words] = field(default_factory=list)
    losses: list[Words] = field(default_factory=list)
    names: list[Words] = field(default_factory=list)
    comparable: bool = False

    def row(self, name: Words, before: Any, after: Any, standing: Standing, **more: Any) -> None:
        """Put one thing beside the other."""
        self.names.append(name)
        self.rows.append(ComparedValue(name=name.english, before=before, after=after, standing=standing, **more))


def compare(case: Case, before: int, after: int) -> Comparison:
    """Compare what two runs measured: window, speeds, recall and memory, each with its noise."""
    result = Comparison()
    _starts(case, before, after, result)
    _windows(case, before, after, result)
    first = by_rung(one for record, one in case.evidence(before).of(RungResult) if record.run == before)
    second = by_rung(one for record, one in case.evidence(after).of(RungResult) if record.run == after)
    common = [
        length
        for length in first
        if any(one.result == "passed" for one in first[length])
        and any(one.result == "passed" for one in second.get(length, ()))
    ]
    busy = _busy(case, before) or _busy(case, after)
    for length in dict.fromkeys((*common[:1], *common[-1:])):
        _speeds(length, first[length], second[length], result, busy=busy)
        _recall(length, first[length], second[length], result)
    if common:
        _memory(common[-1], first[common[-1]], second[common[-1]], result)
    result.comparable = result.comparable or bool(common)
    return result


def _starts(case: Case, before: int, after: int, result: Comparison) -> None:
    def started(run: int) -> bool | None:
        launches = [one.healthy for one in case.payloads(Launch, run)]
        if launches:
            return all(launches)
        return True if case.payloads(BackendIdentity, run) else None

    was, now = started(before), started(after)
    if was is None or now is None:
        return
    result.comparable = True
    if was and now:
        return
    standing: Standing = "same" if was == now else "better" if now else "worse"
    result.row(words("The server starts"), was, now, standing)
    if standing == "better":
        result.gains.append(words("The server starts now."))
    elif standing == "worse":
        result.losses.append(words("The server does not start any more."))


def _windows(case: Case, before: int, after: int, result: Comparison) -> None:
    one, two = window_verdict(case, before), window_verdict(case, after)
    in_force = [
        next((int(w.in_force) for w in reversed(case.payloads(WindowReading, run)) if w.in_force), None)
        for run in (before, after)
    ]
    tried = max((length.tokens for length in two.lengths), default=0)
    rows: tuple[tuple[Words, int | None, int | None, bool], ...] = (
        # a longer window is a gain of its own only where no length beyond the old one was tried; where one was, that decides
        (words("Window in force"), in_force[0], in_force[1], 0 < tried <= (in_force[0] or 0)),
        (words("Longest prompt that ran"), one.fits, two.fits, True),
        (words("Longest prompt that was fast enough"), one.fast_enough, two.fast_enough, False),
        (words("Longest prompt that was used"), one.recalls, two.recalls, True),
        (words("Verified prompt"), one.verified, two.verified, True),
    )
    for name, was, now, counts in rows:
        if was is None and now is None:
            continue
        noise = max(64, max(was or 0, now or 0) // 50)
        grown = (now or 0) - (was or 0)
        standing: Standing = "same" if abs(grown) <= noise else "better" if grown > 0 else "worse"
        measured_both = bool(one.lengths) and bool(two.lengths)
        if (was is None or now is None) and not measured_both:
            # no length was measured in one of them: there is nothing to hold the other against
            standing = "unknown"
        result.row(name, was, now, standing, unit="tokens", noise=noise)
        if counts and standing in {"better", "worse"}:
            said = words(
                "{what}: {before} tokens before, {after} after.", what=name.english, before=_told(was), after=_told(now)
            )
            (result.gains if standing == "better" else result.losses).append(said)


def _told(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def _busy(case: Case, run: int) -> bool:
    readings = case.payloads(HostReading, run)
    return any(one.load_1min is not None and one.cores and one.load_1min > BUSY * one.cores for one in readings[:1])


def _speeds(
    length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison, *, busy: bool
) -> None:
    speeds = (
        (words("Prefill at {length} tokens", length=f"{length:,}"), "prefill_tps"),
        (words("Generation at {length} tokens", length=f"{length:,}"), "generation_tps"),
    )
    for name, attribute in speeds:
        was = [float(value) for one in before if one.cold is not False and (value := getattr(one, attribute))]
        now = [float(value) for one in after if one.cold is not False and (value := getattr(one, attribute))]
        if not was or not now:
            continue
        old, new = statistics.median(was), statistics.median(now)
        spread = max(max(was) - min(was), max(now) - min(now)) / 2
        few = len(was) + len(now) < 5 or min(len(was), len(now)) < 2
        noise = max(spread, (SPEED_NOISE_OF_FEW if few else SPEED_NOISE) * old)
        standing: Standing = "same"
        note = None
        if abs(new - old) > noise:
            if busy:
                standing, note = "unknown", words("The machine was busy with something else.").english
            elif min(now) > max(was) or max(now) < min(was):
                standing = "better" if new > old else "worse"
        result.row(name, round(old, 1), round(new, 1), standing, unit="tokens/s", noise=round(noise, 1), note=note)
        if standing in {"better", "worse"}:
            said = words(
                "{what}: {before} tokens per second before, {after} after.",
                what=name.english,
                before=f"{old:,.0f}",
                after=f"{new:,.0f}",
            )
            (result.gains if standing == "better" else result.losses).append(said)


def _recall(length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison) -> None:
    scores = [
        pooled([one.canaries for one in attempts if one.canaries is not None and one.canaries.asked])
        for attempts in (before, after)
        if any(one.canaries is not None and one.canaries.asked for one in attempts)
    ]
    if len(scores) < 2:
        return
    was, now = scores[0].hit / scores[0].asked, scores[1].hit / scores[1].asked
    chance = same_share(Group(scores[0].hit, scores[0].asked, ()), Group(scores[1].hit, scores[1].asked, ()))
    standing: Standing = "same" if chance > SURELY_DIFFERENT else "better" if now > was else "worse"
    name = words("Recall at {length} tokens", length=f"{length:,}")
    noise = 1.96 * (0.25 / min(one.asked for one in scores)) ** 0.5
    result.row(name, round(was, 3), round(now, 3), standing, unit="share", noise=round(noise, 3))
    if standing in {"better", "worse"}:
        said = words(
            "{what}: {before} before, {after} after.", what=name.english, before=f"{was:.0%}", after=f"{now:.0%}"
        )
        (result.gains if standing == "better" else result.losses).append(said)


def _memory(length: int, before: Sequence[RungResult], after: Sequence[RungResult], result: Comparison) -> None:
    def peaks(attempts: Sequence[RungResult]) -> dict[str, list[int]]:
        table: dict[str, list[int]] = {}
        for one in attempts:
            for peak in one.devices:
                table.setdefault(peak.id, []).append(peak.peak_bytes)
            if one.host_peak_bytes is not None:
                table.setdefault("host", []).append(one.host_peak_bytes)
        return table

    was, now = peaks(before), peaks(after)
    for where in sorted(set(was) & set(now)):
        old, new = max(was[where]), max(now[where])
        noise = max(max(was[where]) - min(was[where]), max(now[where]) - min(now[where]), 32 * MIB, old // 100)
        standing: Standing = "same" if abs(new - old) <= noise else "better" if new < old else "worse"
        name = (
            words("Peak of the server's system memory at {length} tokens", length=f"{length:,}")
            if where == "host"
            else words("Peak memory of {device} at {length} tokens", device=where, length=f"{length:,}")
        )
        result.row(name, old, new, standing, unit="bytes", noise=noise)
