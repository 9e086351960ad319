"""What every probe is: what it asks of the server, what it costs, and the evidence it yields."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from probes.backends.base import Backend
    from probes.evidence.records import Evidence
    from probes.gpu.sampler import Sampler


@dataclass(frozen=True, slots=True)
class Cost:
    """What a probe sends and how long it may take, said before it starts."""

    requests: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Progress:
    """How a probe reports: what, how far (0 to 1), and a line of detail."""

    report: Callable[[str, float, str], None] = field(default=lambda _what, _done, _detail: None)


@dataclass(slots=True)
class ProbeContext:
    """What a probe gets to work with."""

    backend: Backend
    sampler: Sampler | None
    progress: Progress
    run: int = 1
    seed: int = 0
    deadline_s: float = 600.0


class Probe(ABC):
    """One probe. ``collect`` yields evidence as it is found, so that each piece is on disk before the next measurement."""

    id: ClassVar[str]
    gives: ClassVar[tuple[str, ...]] = ()
    """Kinds of evidence that it may yield."""

    @abstractmethod
    def cost(self, context: ProbeContext) -> Cost:
        """Say beforehand what it would send."""

    @abstractmethod
    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Measure, and yield evidence; a failure is evidence too."""
