"""A run under way: its case, its options, and what was opened for it; begun anew, or taken up where it was interrupted."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from diagnose.case import Case
from diagnose.options import RunOptions
from diagnose.ui import Ui
from probes.backends.base import Backend
from probes.base import Sent
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found
from probes.evidence.rungs import Criteria
from probes.ladder.text import Counter
from probes.launch import Server
from rules.catalogue import Mode


@dataclass
class Walk:
    """A run under way: its case and options, and what was opened for it."""

    case: Case
    options: RunOptions
    ui: Ui
    criteria: Criteria
    api_key: str | None = None
    mode: Mode = "session"
    backend: Backend | None = None
    counter: Counter | None = None
    server: Server | None = None
    """The server that was started here, where one was."""
    closing: ExitStack | None = None
    """Ends at the end of the run what was opened for it."""
    restarts: int = 0
    """How often the server was started anew in this run."""
    waited: bool = False
    """Whether somebody else's server went away, was waited for, and did not come back."""
    log_paths: list[Path] = field(default_factory=list)
    lines_before: dict[str, int] | None = None
    """How far each log went before we sent the first prompt of this run; None: nothing was sent."""
    lines_before_stop: dict[Path, int] = field(default_factory=dict)
    """How far a log went before we ended its server."""
    sent: Sent = field(default_factory=Sent)
    could_not_look: CtxDoctorError | None = None
    begun: float = field(default_factory=time.monotonic)
    """When the run began, by the monotonic clock: its budget counts from here."""

    @property
    def run(self) -> int:
        """The number of this run."""
        return self.case.run

    def add(self, evidence: Evidence) -> Evidence:
        """Put evidence into the journal."""
        return self.case.add(evidence)

    def mine(self, kind: type[Any]) -> list[Any]:
        """Give this run's payloads of a kind."""
        return self.case.payloads(kind, self.run)

    def last(self, kind: type[Any]) -> Any:
        """Give this run's newest payload of a kind, or None."""
        pieces = self.mine(kind)
        return pieces[-1] if pieces else None


def begin(case: Case, options: RunOptions, criteria: Criteria) -> tuple[RunOptions, Criteria, bool]:
    """Begin a run, or take up the one that was interrupted. Criteria are fixed here and never changed: gives those in force."""
    run = case.run
    resumed = run > 0 and not case.has_ended(run)
    if resumed:
        started = next(iter(case.of("run", run)))
        options = RunOptions.model_validate(started.data.get("options", {}))
        kept = case.payloads(Criteria, run)
        return options, (kept[-1] if kept else criteria), True
    case.append("run", {"options": options.model_dump(mode="json")}, run=run + 1)
    fixed = criteria.model_copy(update={"fixed_at": case.entries[-1].at})
    case.add(found(fixed, source="user", run=run + 1, origin="criteria"))
    return options, fixed, False
