"""How a model is asked, found out on a short text before the ladder's texts are written: what it can do decides what stands in them.

Which way it answers best (chat question, several at once or one by one; completion), whether it tells near-duplicates apart (a chat model that does gets
them at every length), and whether it finds facts whose question shares no word with them (one that does is asked them at the claimed length).
"""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from typing import ClassVar

from probes.attempt import FEW, SEVERAL, WELL, Asking, Attempts, decide_asking
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError, InputError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.rungs import WayOfAsking
from probes.ladder.canaries import NonLiteral
from probes.ladder.rungs import DISTRACTORS, NEAR_DUPLICATES, RungText, build_ladder

TOKENS = 768
"""Length of the short texts at the most."""
NON_LITERAL = 6
"""So many non-literal facts are planted at each length."""
MOSTLY = 0.7
"""Share of near-duplicates in the short text on which a model shows whether it tells them apart: only those are asked."""
LEAST_TWINS = 4
SHARE = 0.08
"""Where the look for the way alone took more than this share of what the budget has left, nothing else is asked."""
FOUND = 0.5
"""A model that finds this share of them in a short text can be asked them: by chance, one of the six names is right as often as one in six."""


class AskingProbe(Probe):
    """Looks for the way of asking on a short text. ``reserve``: tokens that a question takes; ``tokens``: what the window leaves for a text."""

    id: ClassVar[str] = "asking"
    gives: ClassVar[tuple[str, ...]] = (WayOfAsking.kind,)
    stops_itself: ClassVar[bool] = True

    def __init__(self, tokens: int, *, reserve: int = 64) -> None:
        self.tokens = min(tokens, TOKENS)
        self.reserve = reserve
        self.way: WayOfAsking | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """Two short prefills, and the tails of up to three ways, of the facts found by meaning and of the near-duplicates."""
        del context
        asks = 10 + NON_LITERAL + 1
        return Cost(asks, 2 * self.tokens + asks * 64, asks * 16)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the way. Where no short text can be made, nothing is decided here and the base decides."""
        context.progress.report("how this model answers best", 0.0, f"{self.tokens} tokens")
        try:
            text = self._text(context, near_duplicates=0.0, non_literal=NON_LITERAL)
            begun = time.monotonic()
            asking, shares = decide_asking(context, text)
            # on a slow server the budget is for the lengths, not for what is reported apart
            slow = time.monotonic() - begun > SHARE * context.time_left()
            if not shares:
                note = "no way of asking was answered"
                if context.unended:
                    note = "no way of asking was answered to its end: the answer had begun and did not end"
                yield not_found(WayOfAsking, "failed", note, run=context.run, origin="asking")
                return
            best = 0.0 if slow else max(shares.values())
            named = self._named(context, text, asking, text.non_literal) if best > 0 else []
            twins = self._twins(context, asking) if asking.style == "question" and best >= WELL else []
        except CtxDoctorError as failure:
            yield not_found(WayOfAsking, "failed", str(failure), run=context.run, origin="asking")
            return
        self.way = WayOfAsking(
            style=asking.style,
            several=asking.several,
            reasoning=asking.reasoning,
            ways={name: round(share, 3) for name, share in shares.items()},
            at_tokens=text.tokens,
            near_duplicates=NEAR_DUPLICATES if twins and sum(twins) >= WELL * len(twins) else 0.0,
            twins_hit=sum(twins) if twins else None,
            twins_asked=len(twins) if twins else None,
            non_literal_hit=sum(named),
            non_literal_asked=len(named),
            non_literal=bool(named) and sum(named) >= FOUND * len(named),
        )
        yield found(self.way, source="measured", run=context.run, origin="asking")

    def _text(self, context: ProbeContext, *, near_duplicates: float, non_literal: int) -> RungText:
        lengths = (self.tokens,)
        try:
            return build_ladder(
                lengths,
                context.counter,
                seed=context.seed + 49_979_687,
                reserve=self.reserve,
                near_duplicates=near_duplicates,
                non_literal=non_literal,
                distractors=DISTRACTORS if near_duplicates else None,
            ).rungs[0]
        except InputError:
            return build_ladder(lengths, context.counter, seed=context.seed + 49_979_687, reserve=16).rungs[0]

    def _named(self, context: ProbeContext, text: RungText, asking: Asking, facts: Sequence[NonLiteral]) -> list[bool]:
        """Ask as long as enough may still be found; fewer where each one is a prefill of its own."""
        attempts = Attempts(context, asking)
        left = list(facts)
        while left and attempts.named.count(False) <= (1 - FOUND) * len(facts):
            if attempts.ask_non_literal(text.text, [left.pop(0)], text.tokens, text.non_literal) is not None:
                break
            if attempts.resumes is False and len(facts) > FEW:
                facts = facts[:FEW]
                left = left[: max(0, FEW - len(attempts.named))]
        return attempts.named

    def _twins(self, context: ProbeContext, asking: Asking) -> list[bool]:
        """Ask once from a text in which names are like others: whether this model tells them apart."""
        text = self._text(context, near_duplicates=MOSTLY, non_literal=0)
        attempts = Attempts(context, asking)
        everything = (*text.canaries, *text.distractors)
        words = Tally(one.key.split("-")[0] for one in everything)
        alike = [one for one in everything if words[one.key.split("-")[0]] > 1][:SEVERAL]
        if len(alike) < LEAST_TWINS:
            return []
        groups = [alike] if asking.several else [[one] for one in alike[:LEAST_TWINS]]
        for group in groups:
            completion = attempts.ask(text.text, group, cold=False, tokens=text.tokens, measured=False)
            if completion.error is not None:
                return []
            attempts.score(completion, group)
        return [hit for _canary, hit in attempts.hits]
