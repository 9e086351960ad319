"""Replays public reports through the judging that ``ctxdoctor triage`` uses: ``python -m tests.replay`` prints cases × rank.

Two separate figures: answers, settings and log as a user would give them; and the story alone, pasted as plain text. A report's file under
tests/reports holds what goes in (``answers``, ``settings``, ``log``, ``story``) and what must come out (``cause``), which is never input.
"""

from __future__ import annotations

import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagnose.answers_file import check_answers
from diagnose.triage import assemble
from probes.evidence.records import Evidence, EvidenceSet
from rules.catalogue import judge_evidence
from rules.engine import Judgement

REPORTS = Path(__file__).parent / "reports"
GOLDEN = Path(__file__).parent / "golden" / "replay.txt"


@dataclass(frozen=True, slots=True)
class Report:
    """One report: its file's content."""

    id: str
    data: dict[str, Any]

    @property
    def cause(self) -> str | None:
        """The cause that must come out; None in a healthy case."""
        return self.data.get("cause")

    @property
    def has_log(self) -> bool:
        """Whether lines of a log are part of it."""
        return bool(self.data.get("log"))


def reports(folder: Path = REPORTS) -> list[Report]:
    """Read the reports of one folder, in the order of their names."""
    return [
        Report(path.stem, tomllib.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("*.toml"))
    ]


def imagined() -> list[Report]:
    """Read the reports that were thought up: other people's ways into each cause, so that no rule fits the public reports alone."""
    data = tomllib.loads((REPORTS / "imagined" / "reports.toml").read_text(encoding="utf-8"))
    return [Report(entry["about"], entry) for entry in data["report"]]


def given(report: Report) -> list[Evidence]:
    """Give the evidence of a report's answers, settings and log, put together as ``ctxdoctor triage`` does."""
    return assemble(
        answers=check_answers(report.data["answers"], name=report.id),
        settings=report.data.get("settings"),
        log=report.data.get("log", ""),
        name=report.id,
    )


def told(report: Report) -> list[Evidence]:
    """Give the evidence of a report's story alone, as plain text that somebody pastes."""
    from probes.logs.pasted import read_pasted

    return list(read_pasted(report.data["story"]))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came out: where the right cause stands (0: not in play), what was named, and how long it took."""

    report: Report
    rank: int
    judgement: Judgement
    seconds: float

    @property
    def wrong(self) -> tuple[str, ...]:
        """Causes that were named and are not the right one."""
        return tuple(cause for cause in self.judgement.named if cause != self.report.cause)


def judged(report: Report, evidence: list[Evidence]) -> Outcome:
    """Judge one report's evidence."""
    started = time.perf_counter()
    judgement, _facts = judge_evidence(EvidenceSet(evidence), "triage")
    seconds = time.perf_counter() - started
    order = [finding.cause for finding in judgement.findings if finding.now > 0 or finding.cause == report.cause]
    rank = order.index(report.cause) + 1 if report.cause in order else 0
    return Outcome(report, rank, judgement, seconds)


def share(part: int, whole: int) -> str:
    """Write a share as a count and a percentage."""
    return f"{part} of {whole} ({100 * part / whole:.0f} %)" if whole else "none"


def summary(title: str, outcomes: list[Outcome]) -> list[str]:
    """Write the figures of one way of replaying."""
    count = len(outcomes)
    sure = [o for o in outcomes if o.report.data.get("confidence") == "confirmed" and o.report.has_log]
    return [
        title,
        f"  right cause first: {share(sum(o.rank == 1 for o in outcomes), count)}",
        f"  in the first three: {share(sum(1 <= o.rank <= 3 for o in outcomes), count)}",
        f"  something named, confirmed cases with a log: {share(sum(bool(o.judgement.named) for o in sure), len(sure))}",
        f"  something named: {share(sum(bool(o.judgement.named) for o in outcomes), count)}",
        f"  a wrong cause named: {share(sum(bool(o.wrong) for o in outcomes), count)}",
    ]


def table(outcomes: list[Outcome]) -> list[str]:
    """Write one line a report: rank, the right cause with its band, and what leads where that is another."""
    lines = []
    for o in outcomes:
        right = next((f for f in o.judgement.findings if f.cause == o.report.cause), None)
        first = o.judgement.findings[0]
        score = f"{right.band} {right.low}/{right.now}/{right.high}" if right else "no rule"
        others = [
            f"{f.cause} {f.band} {f.low}/{f.now}/{f.high}"
            for f in o.judgement.findings[:3]
            if f.cause != o.report.cause
        ]
        named = f"  named: {', '.join(o.judgement.named)}" if o.judgement.named else ""
        lines.append(f"{o.rank:>2}  {o.report.id}")
        lines.append(f"      {o.report.cause}: {score}{named}")
        if first.cause != o.report.cause:
            lines.append(f"      before it: {'; '.join(others)}")
    return lines


def replay(folder: Path = REPORTS) -> tuple[list[Outcome], list[Outcome]]:
    """Replay every report of a folder both ways: what was given, and the story alone."""
    all_reports = reports(folder)
    return [judged(r, given(r)) for r in all_reports], [judged(r, told(r)) for r in all_reports if r.data.get("story")]


def printed(answers: list[Outcome], stories: list[Outcome]) -> str:
    """Write the whole table, without anything that changes from run to run."""
    lines = [
        "Public reports, replayed. Written by `python -m tests.replay --write`; weights are low/now/high in decibans.",
        "",
        *summary("Answers, settings and log", answers),
        "",
        *summary("The story alone, as plain text", stories),
        "",
        "Answers, settings and log",
        *table(answers),
        "",
        "The story alone: rank, and what leads",
        *(
            f"{o.rank:>2}  {o.report.id}: {o.judgement.findings[0].cause}{' (named)' if o.judgement.named else ''}"
            for o in stories
        ),
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Iterable[str]) -> int:
    """Print the table; ``--write`` also writes the golden file."""
    answers, stories = replay()
    text = printed(answers, stories)
    sys.stdout.write(text)
    slowest = max([*answers, *stories], key=lambda o: o.seconds)
    spent = sum(o.seconds for o in [*answers, *stories])
    sys.stderr.write(
        f"judging took {spent:.2f} s in all, {1000 * slowest.seconds:.0f} ms at most ({slowest.report.id})\n"
    )
    sys.stderr.write(f"wrongly named: {Counter(cause for o in answers for cause in o.wrong).most_common()}\n")
    if "--write" in arguments:
        GOLDEN.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
