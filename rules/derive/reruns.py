"""What changes made on trial said: predictions that did not come."""

from __future__ import annotations

from collections.abc import Iterator

from probes.evidence.changes import PredictionScored
from rules.engine.derivation import Reading, Sight, derivation, reading
from rules.facts import PREDICTION_FAILED


@derivation(reads=(PredictionScored,), gives=(PREDICTION_FAILED,))
def predictions(sight: Sight) -> Iterator[Reading]:
    """Give the causes whose prediction failed, as scored last. What was never put to the test says nothing."""
    last = {scored.cause: (evidence, scored) for evidence, scored in sight.of(PredictionScored)}
    failed = sorted(cause for cause, (_evidence, scored) in last.items() if scored.outcome == "failed")
    if failed:
        yield reading(PREDICTION_FAILED, tuple(failed), last[failed[0]][0])
