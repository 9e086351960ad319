"""The ladder's numbers, printed as ratios: ``uv run python tests/benchmarks/bench_ladder.py``.

Building a 131,072-token prompt (at most 4 calls to the tokenizer, exact to 0.1 %), and uncached prompt tokens to the verdict against the plain
procedure (at most 45 % where the top passes, 55 % where it breaks between two rungs), on made-up servers.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from probes.ladder.rungs import WANTED_RUNGS, build_ladder
from probes.ladder.search import SearchPlan, forecast
from tests.ladder.test_search import PLAIN, Server, walk
from tests.ladder.tokens import Tokens

LIMITS = (60_001, 70_000, 80_000, 90_000, 97_000, 110_000, 120_000, 128_500)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")


def build() -> None:
    """A 131,072-token prompt, with ids and with counts alone."""
    for ids in (True, False):
        tokens = Tokens()
        counter = tokens.counter(ids=ids)
        begun = time.perf_counter()
        rung = build_ladder([131_072], counter, reserve=0).rungs[0]
        seconds = time.perf_counter() - begun
        off = abs(rung.tokens - 131_072) / 131_072
        say(
            f"131,072 tokens, {'ids' if ids else 'counts'}: {tokens.asked} calls (at most 4), off by {off:.4%} (at most 0.1 %), {seconds:.2f} s"
        )


def search() -> None:
    """Tokens to the verdict."""
    say(f"plain procedure: {PLAIN:,} tokens")
    server = Server(200_000)
    walk(server)
    say(f"top passes: {server.processed / PLAIN:.1%} (at most 45 %)")
    for kind in ("refused", "slow", "forgetful"):
        shares = []
        for limit in LIMITS:
            server = Server(limit, kind)
            found, _, _ = walk(server)
            assert found.verified
            assert found.above_proved
            shares.append(server.processed / PLAIN)
        say(f"{kind}, breaks between two rungs: {', '.join(f'{s:.1%}' for s in shares)} (each at most 55 %)")
    for cache in ("resumes", "none"):
        told = forecast(SearchPlan(WANTED_RUNGS, cache=cache))
        say(
            f"announced, cache {cache}: {told.if_top_passes / PLAIN:.1%} if the top passes, {told.at_most / PLAIN:.1%} at the most"
        )


if __name__ == "__main__":
    build()
    search()
