"""Damage that needles do not see: chains of dependent facts, and next-token distributions that another run of the case is compared with.

A small model may fail chains whatever its cache: what counts is the difference between two runs of one model on one text, under two cache types. So
the readings are kept, and compared as soon as there are two.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import ClassVar

from probes.attempt import as_request_error
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.control import Connect, cache_types
from probes.evidence.damage import ChainScore, NextToken, NextTokens, TokenDivergence
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import Completion
from probes.ladder.canaries import Canary, Style, completion_tail, draw, question_tail
from probes.ladder.damage import Chain, chain_lines, divergence, draw_chains, summarise
from probes.ladder.scoring import hits_completion, hits_list
from probes.ladder.text import cut_to_tokens, generated

POSITIONS = 24
TOP = 10
CHAINS = 4
STEPS = 3
SINGLE = 8
ANSWER_TOKENS = 48


def compare(mine: NextTokens, other: NextTokens, other_run: int) -> TokenDivergence | None:
    """Compare two runs. None where the text or the model is another one, or no position is in both."""
    if mine.text_hash != other.text_hash or (mine.model and other.model and mine.model != other.model):
        return None
    if _by_id(mine) != _by_id(other):
        # one server names tokens by id, the other by text: nothing in common would say nothing about the cache
        return None
    known = {one.at: one.top for one in other.positions}
    pieces = [divergence(one.top, known[one.at]) for one in mine.positions if known.get(one.at) and one.top]
    if not pieces:
        return None
    taken = summarise(pieces)
    return TokenDivergence(
        positions=taken.positions,
        median=round(taken.median, 6),
        p95=round(taken.p95, 6),
        same_top=round(taken.same_top, 4),
        type_k=mine.type_k,
        type_v=mine.type_v,
        other_run=other_run,
        other_type_k=other.type_k,
        other_type_v=other.type_v,
    )


def _by_id(tokens: NextTokens) -> bool:
    """Say whether a reading names its tokens by id."""
    return all(name.isdecimal() for one in tokens.positions for name in one.top)


class DamageProbe(Probe):
    """Asks chains and single facts of one text of ``tokens`` tokens, then the next token after rising prefixes of it.

    ``earlier``: readings of other runs of the case, by run; those of another cache type are compared with. ``control``: opens a control server; where the
    same model runs there under another cache type, it is asked the same, and compared with first.
    """

    id: ClassVar[str] = "damage"
    gives: ClassVar[tuple[str, ...]] = (ChainScore.kind, NextTokens.kind, TokenDivergence.kind)

    def __init__(
        self,
        tokens: int,
        *,
        style: Style = "question",
        model: str | None = None,
        types: tuple[str | None, str | None] = (None, None),
        earlier: Sequence[tuple[int, NextTokens]] = (),
        control: Connect | None = None,
    ) -> None:
        self.tokens = tokens
        self.style: Style = style
        self.model = model
        self.types = types
        self.earlier = tuple(earlier)
        self.control = control
        self.chains: ChainScore | None = None
        self.next_tokens: NextTokens | None = None
        self.divergence: TokenDivergence | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """Two prefills of the text, one for the questions and one for the prefixes, and short answers."""
        asks = POSITIONS * (1 if self.control is None else 2) + CHAINS + SINGLE
        tokens = (2 if self.control is None else 3) * self.tokens
        speed = context.prefill_tps or 300.0
        return Cost(asks, asks * self.tokens, asks * 12, tokens / speed + asks * 0.5)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield the chains, the distributions, and the comparison where there is one to be made."""
        chains = draw_chains(context.seed + 15_487_469, CHAINS, STEPS)
        facts = draw(context.seed + 15_487_469, 0.0)
        singles = [next(facts) for _number in range(SINGLE)]
        text, prefixes = self._text(context, [*chain_lines(chains, context.seed), *(one.line for one in singles)])
        yield from self._ask_chains(context, text, chains, singles)
        yield from self._ask_next(context, text, prefixes)

    def _text(self, context: ProbeContext, lines: Sequence[str]) -> tuple[str, list[tuple[str, int]]]:
        """Write the text with its facts spread over it, and the prefixes whose next token is asked: each with its length."""
        parts: list[str] = []
        room = self.tokens
        for unit in generated(context.seed + 15_487_469):
            parts.append(unit.text)
            if len(parts) % 8 == 0 and context.counter.count("".join(parts)) > room:
                break
        body = "".join(parts)
        size, _tokens = cut_to_tokens(body, max(64, room - context.counter.count("\n\n".join(lines))), context.counter)
        body = body[:size]
        places = sorted(random.Random(f"damage {context.seed}").uniform(0.02, 0.95) for _line in lines)
        pieces: list[str] = []
        before = 0
        for place, line in zip(places, lines, strict=True):
            at = body.find("\n\n", int(place * len(body)))
            at = len(body) if at < 0 else at
            pieces += [body[before:at], f"\n\n{line}"]
            before = max(before, at)
        text = "".join([*pieces, body[before:]]).strip()
        prefixes = []
        for number in range(POSITIONS):
            # the far half of the text: there a next token rests on the most of the cache
            at = text.find(" ", int(len(text) * (0.5 + 0.5 * number / POSITIONS)))
            if at > 0:
                prefixes.append((text[:at], at))
        return text, prefixes

    def _complete(self, context: ProbeContext, ask: Ask) -> Completion:
        try:
            return context.complete(ask, sent_tokens=self.tokens, purpose="damage")
        except CtxDoctorError as failure:
            return Completion(error=as_request_error(failure))

    def _ask_chains(
        self, context: ProbeContext, text: str, chains: Sequence[Chain], singles: Sequence[Canary]
    ) -> Iterator[Evidence]:
        deadline = context.deadline_for(self.tokens, ANSWER_TOKENS)
        hit = asked = 0
        for number, chain in enumerate(chains):
            context.progress.report("chains of facts", number / (CHAINS + 1), f"{self.tokens} tokens")
            if self.style == "question":
                ask = Ask(
                    messages=({"role": "user", "content": text + chain.tail()},),
                    max_tokens=ANSWER_TOKENS,
                    deadline_s=deadline,
                )
            else:
                words = (
                    f"{text}\n\nStarting at box {chain.names[0]} and going from note to note, the word at the end is"
                )
                ask = Ask(prompt=words, max_tokens=8, deadline_s=deadline)
            answer = self._complete(context, ask)
            if answer.error is not None:
                yield not_found(ChainScore, "failed", answer.error.message, run=context.run, origin="damage")
                return
            asked += 1
            hit += chain.hit(answer.text or "")
        single_hit = self._ask_singles(context, text, singles, deadline)
        if single_hit is None:
            yield not_found(
                ChainScore, "failed", "the single facts could not be asked", run=context.run, origin="damage"
            )
            return
        self.chains = ChainScore(
            at_tokens=self.tokens, steps=STEPS, hit=hit, asked=asked, single_hit=single_hit, single_asked=len(singles)
        )
        yield found(self.chains, source="measured", run=context.run, origin="damage")

    def _ask_singles(self, context: ProbeContext, text: str, singles: Sequence[Canary], deadline: float) -> int | None:
        if self.style == "question":
            words = text + question_tail(singles)
            ask = Ask(messages=({"role": "user", "content": words},), max_tokens=16 * SINGLE, deadline_s=deadline)
            answer = self._complete(context, ask)
            return None if answer.error is not None else sum(hits_list(answer.text or "", singles))
        hits = 0
        for one in singles:
            answer = self._complete(context, Ask(prompt=text + completion_tail(one), max_tokens=8, deadline_s=deadline))
            if answer.error is not None:
                return None
            hits += hits_completion(answer.text or "", one)
        return hits

    def _ask_next(self, context: ProbeContext, text: str, prefixes: Sequence[tuple[str, int]]) -> Iterator[Evidence]:
        positions, why, offered = self._read_next(context, prefixes)
        if not positions:
            yield not_found(NextTokens, "failed" if offered else "not-offered", why, run=context.run, origin="damage")
            return
        self.next_tokens = NextTokens(
            text_hash=hashlib.sha256(text.encode()).hexdigest()[:16],
            tokens=self.tokens,
            model=self.model,
            type_k=self.types[0],
            type_v=self.types[1],
            positions=positions,
        )
        yield found(self.next_tokens, source="measured", run=context.run, origin="damage")
        if self.control is not None:
            self.divergence, why = self._at_control(context, self.control, self.next_tokens, prefixes)
            if self.divergence is not None:
                yield found(self.divergence, source="measured", run=context.run, origin="damage, control server")
                return
            yield not_found(TokenDivergence, "failed", f"the control server: {why}", run=context.run, origin="damage")
        for run, other in reversed(self.earlier):
            if (other.type_k, other.type_v) == self.types:
                continue
            self.divergence = compare(self.next_tokens, other, run)
            if self.divergence is not None:
                yield found(self.divergence, source="measured", run=context.run, origin=f"damage, run {run}")
                return

    def _read_next(
        self, context: ProbeContext, prefixes: Sequence[tuple[str, int]]
    ) -> tuple[tuple[NextToken, ...], str, bool]:
        """Ask what follows each prefix: the readings (none where fewer than half came), why no more, and whether they are offered at all."""
        deadline = context.deadline_for(self.tokens, 1)
        positions: list[NextToken] = []
        why, offered = "", True
        for number, (prefix, at) in enumerate(prefixes):
            context.progress.report("next tokens", number / len(prefixes), f"{number + 1} of {len(prefixes)}")
            if context.time_left() <= 0:
                why = "the budget was used up"
                break
            answer = self._complete(context, Ask(prompt=prefix, max_tokens=1, logprobs=TOP, deadline_s=deadline))
            if answer.error is not None:
                why, offered = answer.error.message, answer.error.error != "not-supported"
                break
            if not answer.logprobs:
                why = "this server does not give the log-probabilities of a completion's next token"
                offered = False
                break
            positions.append(NextToken(at=at, top=answer.logprobs[0]))
        enough = positions and len(positions) >= len(prefixes) // 2
        return (tuple(positions) if enough else ()), why, offered

    def _at_control(
        self, context: ProbeContext, connect: Connect, mine: NextTokens, prefixes: Sequence[tuple[str, int]]
    ) -> tuple[TokenDivergence | None, str]:
        """Ask the control the same. None and why where there is nothing to compare: another model, or the same cache type."""
        try:
            with connect() as (backend, counter):
                types, model = cache_types(backend), backend.model_identity().name
                if types == self.types:
                    return None, "it has the same cache type"
                if mine.model and model and mine.model != model:
                    return None, "it runs another model"
                positions, why, _offered = self._read_next(replace(context, backend=backend, counter=counter), prefixes)
        except CtxDoctorError as failure:
            return None, str(failure)
        other = mine.model_copy(update={"type_k": types[0], "type_v": types[1], "positions": positions})
        apart = compare(mine, other, context.run)
        if apart is None:
            return None, why or "no place could be compared"
        return apart.model_copy(update={"other_server": backend.http.base_url}), ""
