"""What is going to be done, in one list: a run makes its probes from it, and the forecast adds up what the same probes would send.

A :class:`Known` holds all that a probe is made of, as far as it is known: nearly nothing before the first prompt, everything at the end of a run.
A new probe is added to :data:`MAKERS` and, where it belongs to a symptom, to ``diagnose.plan.ORDER``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from diagnose.plan import order_for, over_many_turns
from diagnose.shape import Shape
from diagnose.window import passes
from probes.allocation import AllocationProbe
from probes.asking import AskingProbe
from probes.attempt import Asking
from probes.base import Probe
from probes.cache_reuse import CacheReuseProbe
from probes.control import Connect, ControlProbe, control_at, same_origin
from probes.damage import DamageProbe
from probes.evidence.answers import Answer
from probes.evidence.damage import NextTokens
from probes.evidence.events import LogEvent
from probes.evidence.rungs import Criteria, LadderPlan, RecallBase, RungResult, WayOfAsking
from probes.fixed_length import FixedLengthProbe
from probes.ladder_walk import LadderProbe
from probes.recall import RecallProbe
from probes.repeat import RepeatProbe
from probes.soak import ROOM as SOAK_ROOM
from probes.soak import SoakProbe
from probes.speed import SpeedProbe
from probes.truncation import REFUSES_UNPROCESSED, TruncationProbe

UNQUANTISED = frozenset({"f16", "f32", "bf16", "fp16", "float16", "bfloat16", "auto", "default"})
DAMAGE_TOKENS = 2048
"""Length of the text on which cache types are compared: the same in each run, whatever its window."""
CUTS = frozenset({"ollama", "lm-studio", "koboldcpp", "text-generation-webui"})
"""Servers that cut what is too long: where, decides which lengths are worth measuring."""
STARTS_AGAIN = frozenset({"llama-swap", "llama-manager"})
"""Servers that start what died behind them."""
PROMPT_TPS = 50
"""Prompt tokens for each second of the budget that an overlong prompt may cost."""


@dataclass(frozen=True, slots=True)
class Known:
    """All that probes are made of. ``shape`` holds the window, the lengths and the texts; the rest is what was asked, read and measured so far."""

    shape: Shape
    plan: LadderPlan
    criteria: Criteria
    budget_s: float
    symptom: str | None = None
    answers: Sequence[Answer] = ()
    server: str = ""
    """The server's address."""
    backend: str = ""
    """Which program reads the prompts."""
    restartable: bool = False
    """Whether the server can be started again from here, should it die."""
    control_url: str | None = None
    api_key: str | None = None
    soak: int | None = None
    slots: int = 1
    model: str | None = None
    cache_types: tuple[str | None, str | None] = (None, None)
    quantised: bool = False
    way: WayOfAsking | None = None
    """How this run's model is asked, where that was found out."""
    base: RecallBase | None = None
    rungs: Sequence[RungResult] = ()
    refused_above: bool = False
    """Whether a prompt above the window was refused."""
    earlier: Sequence[tuple[int, NextTokens]] = field(default=())
    """Next tokens of the case's other runs."""
    this_run_too: bool = False
    """Whether next tokens were asked in this run or another."""
    events: Callable[[], Sequence[LogEvent]] = tuple
    """Reads the events of the logs as they are now."""
    log_was_read: bool = False

    @property
    def passed(self) -> list[int]:
        """Lengths that ran, in the order in which they were measured."""
        return [one.input_tokens for one in self.rungs if one.result == "passed"]

    @property
    def failed(self) -> list[int]:
        """Lengths that did not."""
        return [one.input_tokens for one in self.rungs if one.result != "passed"]

    @property
    def asking(self) -> Asking:
        """The way in which this model is asked, as the base found it."""
        if self.base is None:
            return Asking()
        return Asking(style=self.base.style, several=self.base.several, reasoning=self.base.reasoning)


def order(known: Known) -> tuple[str, ...]:
    """Give the probes of this run in their order."""
    soak = known.soak is not None or over_many_turns(known.symptom, known.answers)
    damage = known.symptom in {None, "forgetting"} and (known.quantised or known.this_run_too)
    names = order_for(known.symptom, control=bool(known.control_url), soak=soak, damage=damage)
    if known.restartable or known.symptom == "fixed-length-error" or known.backend in CUTS:
        return names
    # of all prompts the one above the window is the likeliest to end a server, and nobody may start this one again: what is shorter goes before
    # it. Before the lengths where the server checks before it reads: what it tells there says whether its counts can be believed.
    rest = [name for name in names if name != "truncation"]
    rest.insert(rest.index("ladder") + int(known.backend not in REFUSES_UNPROCESSED), "truncation")
    return tuple(rest)


def probe(name: str, known: Known) -> Probe | None:
    """Make a probe from what is known so far; None where it makes no sense here. ValueError: there is none of that name."""
    if name not in MAKERS:
        raise ValueError(f"no probe is called {name!r}")
    return MAKERS[name](known)


def _allocation(known: Known) -> Probe:
    return AllocationProbe(known.events(), ctx=known.shape.window, log_was_read=known.log_was_read)


def _truncation(known: Known) -> Probe:
    return TruncationProbe(known.shape.window, afford=int(known.budget_s * PROMPT_TPS), by_speed=True)


def _asking(known: Known) -> Probe:
    return AskingProbe(known.shape.rungs[0], reserve=known.shape.reserve)


def _recall(known: Known) -> Probe:
    return RecallProbe(known.shape.texts.rungs[0], task=known.shape.task, way=known.way)


def _ladder(known: Known) -> Probe:
    return LadderProbe(
        known.plan,
        known.shape.texts,
        known.asking,
        known.criteria,
        partial(passes, known.criteria, known.base),
        known.rungs,
        window=known.shape.window,
        task=known.shape.task,
        proof_first=known.symptom is None,
    )


def _fixed_length(known: Known) -> Probe | None:
    """Where it fails by length: only where the wanted length is not inside the window, or something failed already."""
    shape, failed = known.shape, known.failed
    wanted = shape.target_input or shape.window
    if wanted <= shape.window - shape.output_tokens and not failed:
        return None
    if known.refused_above and shape.target is None and not failed:
        return None
    lowest = min(failed, default=None)
    passed = max((n for n in known.passed if lowest is None or n < lowest), default=0)
    return FixedLengthProbe(wanted, passed=passed, failed=lowest)


def _repeat(known: Known) -> Probe:
    window, slots = known.shape.window, known.slots
    concurrency = min(max(2, slots), 4)
    # long enough that all together need more than one window: slots that share a pool then run out of it
    least = int(window * 1.1 / concurrency) if slots > 1 else 256
    return RepeatProbe(
        max(256, int(window * 0.6)), least=least, concurrency=concurrency, fresh=known.symptom == "flaky"
    )


def _cache_reuse(known: Known) -> Probe:
    return CacheReuseProbe(max(256, min(1536, known.shape.window // 4)))


def _speed(known: Known) -> Probe:
    shape = known.shape
    ran = {shape.rungs[0], *(one.rung for one in known.rungs if one.result == "passed")}
    # before anything ran, the longest is what it may have to time
    texts = [text for text in shape.texts.rungs if text.rung in ran or not known.rungs]
    return SpeedProbe([texts[0], texts[-1]] if len(texts) > 1 else texts, first_attempt=10)


def _connect(known: Known) -> Connect | None:
    """Give what opens the control server, where one was given. A key goes to the server that it is for, and to no other."""
    url = known.control_url
    return None if url is None else partial(control_at, url, known.api_key if same_origin(url, known.server) else None)


def _control(known: Known) -> Probe | None:
    """Make the control run, where a control server was given."""
    url, shape, connect = known.control_url, known.shape, _connect(known)
    if url is None or connect is None:
        return None
    same = same_origin(url, known.server)
    passed = {one.rung for one in known.rungs if one.result == "passed"}
    texts = [text for text in shape.texts.rungs if text.rung in passed or not known.rungs]
    return ControlProbe(connect, known.rungs, texts or shape.texts.rungs[:1], same_server=same)


def _damage(known: Known) -> Probe:
    """Make the look for damage, at a length that passed and that every run of the case asks alike."""
    shape, earlier = known.shape, known.earlier
    # beside a control it is asked before the ladder, when only the shortest length is known to pass
    most = DAMAGE_TOKENS if known.control_url else max(known.passed, default=DAMAGE_TOKENS)
    tokens = min(DAMAGE_TOKENS, most, shape.window // 2)
    if earlier and earlier[-1][1].tokens and earlier[-1][1].tokens <= shape.window - shape.output_tokens:
        tokens = earlier[-1][1].tokens
    style = known.base.style if known.base is not None else "completion"
    return DamageProbe(
        tokens, style=style, model=known.model, types=known.cache_types, earlier=earlier, control=_connect(known)
    )


def _soak(known: Known) -> Probe:
    """Make the session of many turns: as long as was asked for, or as the window that is wanted."""
    shape, base = known.shape, known.base
    most = min(shape.window, shape.target or shape.window) - shape.output_tokens - SOAK_ROOM
    target = min(known.soak, most) if known.soak else most
    chat = base is None or base.style == "question"
    return SoakProbe(max(SOAK_ROOM, target), chat=chat, reasoning=base.reasoning if base is not None else False)


MAKERS: Mapping[str, Callable[[Known], Probe | None]] = {
    "allocation": _allocation,
    "truncation": _truncation,
    "asking": _asking,
    "recall": _recall,
    "ladder": _ladder,
    "fixed-length": _fixed_length,
    "repeat": _repeat,
    "cache-reuse": _cache_reuse,
    "speed": _speed,
    "control": _control,
    "damage": _damage,
    "soak": _soak,
}
