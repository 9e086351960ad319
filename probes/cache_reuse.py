"""The same beginning sent twice: how much the server did not have to process again, and whether its cache can be kept out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from probes.attempt import as_request_error
from probes.backends.base import Ask
from probes.base import Cost, Probe, ProbeContext
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence, found, not_found
from probes.evidence.request import CacheReuse, Completion
from probes.ladder.rungs import build_ladder


def cached(completion: Completion) -> int | None:
    """Give the tokens that came from the cache, by the server's count, else by what it did not process."""
    if completion.cached_tokens is not None:
        return completion.cached_tokens
    if completion.prompt_tokens is not None and completion.processed_tokens is not None:
        return max(0, completion.prompt_tokens - completion.processed_tokens)
    return None


class CacheReuseProbe(Probe):
    """Sends a text, the same again with another ending, a longer one that begins with it, the first again, and once more with the cache off.

    The first four leave it to the server whether its cache is used: that is what an ordinary client finds.
    """

    id: ClassVar[str] = "cache-reuse"
    gives: ClassVar[tuple[str, ...]] = (CacheReuse.kind,)

    def __init__(self, tokens: int = 1536) -> None:
        self.tokens = tokens
        self.reading: CacheReuse | None = None

    def cost(self, context: ProbeContext) -> Cost:
        """Five requests; the first and the last are processed whole."""
        del context
        return Cost(requests=5, prompt_tokens=int(self.tokens * 2.7), generated_tokens=5)

    def collect(self, context: ProbeContext) -> Iterator[Evidence]:
        """Yield one reading."""
        long = int(self.tokens * 1.5)
        try:
            ladder = build_ladder((self.tokens, long), context.counter, seed=context.seed + 104_729, reserve=32)
            texts = [ladder.rungs[0].text, ladder.rungs[1].text]
            answers: list[Completion] = []
            plan = (
                (texts[0] + "\n\nThe first thing that comes to mind is", True),
                (texts[0] + "\n\nNobody could have known that", True),
                (texts[1] + "\n\nThe last thing to say is", True),
                (texts[0] + "\n\nIt was a long way back, and", True),
                (texts[0] + "\n\nThe first thing that comes to mind is", False),
            )
            for number, (wording, use_cache) in enumerate(plan):
                context.progress.report("prompt cache", number / len(plan), f"request {number + 1} of {len(plan)}")
                ask = Ask(
                    prompt=wording,
                    max_tokens=1,
                    use_cache=use_cache,
                    cache_as_served=use_cache,
                    deadline_s=context.deadline_for(long),
                )
                answer = context.complete(ask, sent_tokens=self.tokens, purpose="cache-reuse")
                if answer.error is not None:
                    yield found(answer.error, source="measured", run=context.run, origin="cache-reuse")
                    yield not_found(CacheReuse, "failed", answer.error.message, run=context.run, origin="cache-reuse")
                    return
                answers.append(answer)
        except CtxDoctorError as failure:
            yield found(as_request_error(failure), source="measured", run=context.run, origin="cache-reuse")
            yield not_found(CacheReuse, "failed", str(failure), run=context.run, origin="cache-reuse")
            return
        context.progress.report("prompt cache", 1.0, "done")
        counts = [cached(answer) for answer in answers]
        if counts[1] is None:
            yield not_found(
                CacheReuse,
                "not-offered",
                "this server does not say how many tokens came from its cache",
                run=context.run,
                origin="cache-reuse",
            )
            return
        prompt = answers[0].prompt_tokens or self.tokens
        off = counts[4]
        self.reading = CacheReuse(
            prefix_tokens=prompt,
            cached_on_repeat=counts[1],
            cached_on_extension=counts[2],
            cached_on_return=counts[3],
            switched_off_works=None if off is None else off <= 16,
            how="cached tokens as the server counts them",
        )
        yield found(self.reading, source="measured", run=context.run, origin="cache-reuse")
