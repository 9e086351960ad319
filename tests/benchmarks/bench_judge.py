"""How long judging and rendering a case take. By hand: ``python -m tests.benchmarks.bench_judge CASE-FOLDER`` (the newest case without one)."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

from diagnose.case import Case
from diagnose.document import document_of
from reports.render import render
from rules.catalogue import judge_evidence


def median_ms(act: Callable[[], object], runs: int = 15) -> float:
    """Median of several calls, after one that is not counted."""
    act()
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        act()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)


def main() -> None:
    """Print medians in milliseconds, with the goals."""
    case = Case.open(sys.argv[1] if len(sys.argv) > 1 else None, read_only=True)
    evidence = case.evidence(case.run)
    document = document_of(case)
    print(
        f"judging {len(evidence.all)} pieces of evidence: {median_ms(lambda: judge_evidence(evidence, 'run')):.1f} ms (at most 50)"
    )
    print(f"rendering Markdown: {median_ms(lambda: render(document, 'md')):.1f} ms (at most 300)")


if __name__ == "__main__":
    main()
