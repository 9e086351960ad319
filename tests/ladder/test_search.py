"""The search for the boundary, on made-up servers: right to the resolution, proved, within its budget, and for few tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.rungs import CanaryScore, RungResult
from probes.ladder.rungs import WANTED_RUNGS
from probes.ladder.search import (
    Found,
    Reading,
    SearchPlan,
    Step,
    default_resolution,
    forecast,
    next_step,
    reading_of,
    resumes,
    stand,
)

PLAIN = 3 * sum(WANTED_RUNGS)
"""Prompt tokens of the plain procedure: every rung three times, cold."""


@dataclass
class Server:
    """A server that passes up to ``limit`` tokens and then refuses, slows down, forgets or dies; with or without a prompt cache."""

    limit: int
    kind: str = "slow"
    cache: bool = True
    tells: bool = False
    questions: int = 9
    tps: float = 1000.0
    kept: int = 0
    processed: int = 0

    def read(self, step: Step) -> Reading:
        ok = step.length <= self.limit
        if not ok and self.kind == "refused":
            return Reading(
                step.length,
                False,
                step.cold,
                "refused",
                0,
                0,
                limit=self.limit if self.tells else None,
                cache_asked=not step.cold,
            )
        if not ok and self.kind == "died":
            self.kept = 0
            self.processed += step.length
            return Reading(step.length, False, step.cold, "died", step.length, 0, cache_asked=not step.cold)
        cached = min(self.kept, step.length - 1) if self.cache and not step.cold else 0
        self.kept = max(self.kept, step.length)
        # Nine questions are asked one by one: each costs its own few tokens, the text before comes from the cache; a server without one
        # gets all nine in a single request.
        tokens = step.length - cached + (64 * self.questions if self.cache else 64)
        self.processed += tokens
        return Reading(
            step.length, ok, not cached, "passed", tokens, cached, tokens / self.tps, cache_asked=not step.cold
        )


def walk(server, plan=None, most=100):
    """Run a search to its end."""
    plan = plan or SearchPlan(WANTED_RUNGS)
    readings: list[Reading] = []
    steps: list[Step] = []
    while isinstance(step := next_step(plan, readings), Step):
        assert len(steps) < most, "the search does not end"
        steps.append(step)
        readings.append(server.read(step))
    return step, steps, readings


class TestGoals:
    """Uncached tokens against the plain procedure: 8K, 32K, 64K, 72K, 96K, 126K, three times each, cold: 1,194K."""

    def test_the_plain_procedure(self):
        """What it is compared with."""
        assert PLAIN == 1194 * 1024

    def test_where_the_top_passes(self):
        """At most 45 %."""
        server = Server(200_000)
        found, _steps, _ = walk(server)
        assert (found.length, found.passes, found.above, found.stop) == (129_024, 3, None, "verified")
        assert server.processed == found.tokens <= 0.45 * PLAIN

    @pytest.mark.parametrize("kind", ["refused", "slow", "forgetful"])
    @pytest.mark.parametrize("limit", [80_000, 97_000, 110_000, 128_500, 60_001, 33_000, 72_999])
    def test_where_it_breaks_between_two_rungs(self, kind, limit):
        """At most 55 %, the proof above included; right to the resolution."""
        server = Server(limit, kind)
        found, steps, readings = walk(server)
        assert found.length <= limit < found.above
        assert found.above - found.length <= 2048
        assert found.verified
        assert found.above_proved
        assert server.processed == found.tokens <= 0.55 * PLAIN
        cold = [r for r in readings if r.cold and r.ok and r.length == found.length]
        assert len(cold) >= 3
        above = [r for r in readings if r.length == found.above]
        assert above[-1].outcome == "refused" if kind == "refused" else above[-1].cold
        assert len(steps) <= 16

    def test_a_server_that_tells_its_limit_is_believed_and_proved(self):
        """Straight to the limit, then one resolution above: fewer requests than halving."""
        told, silent = walk(Server(80_000, "refused", tells=True)), walk(Server(80_000, "refused"))
        assert told[0].length == 80_000
        assert told[0].above - 80_000 <= 2048
        assert len(told[1]) < len(silent[1])


class TestWithoutCache:
    """A server that reads everything anew each time is noticed and planned for."""

    def test_it_is_noticed(self):
        """After the second warm request; then fewer rungs, and each reading counts as cold."""
        server = Server(200_000, cache=False)
        found, steps, readings = walk(server)
        assert found.verified
        assert resumes(readings, SearchPlan(WANTED_RUNGS)) == "none"
        assert len([s for s in steps if s.purpose == "climb"]) < 6
        assert len([s for s in steps if s.purpose == "verify"]) == 2

    def test_the_boundary_is_right(self):
        """Still to the resolution, still proved."""
        found, _steps, _readings = walk(Server(80_000, cache=False))
        assert found.length <= 80_000 < found.above <= found.length + 2048
        assert found.verified
        assert found.above_proved


class TestLaws:
    """Whatever the server."""

    @settings(max_examples=120, deadline=None)
    @given(
        st.integers(100, 150_000),
        st.sampled_from(["refused", "slow"]),
        st.booleans(),
        st.booleans(),
        st.none() | st.integers(1000, 140_000),
    )
    def test_the_boundary_is_found(self, limit, kind, cache, tells, predicted):
        """The claim passes, the length above does not, they are a resolution apart, and the search ends."""
        found, _steps, readings = walk(Server(limit, kind, cache, tells), SearchPlan(WANTED_RUNGS, predicted=predicted))
        if found.length is None:
            assert limit < 2048
            assert found.stop == "nothing-passes"
            return
        assert found.length <= limit
        assert found.verified
        assert found.above_proved
        if found.above is None:
            assert found.length == WANTED_RUNGS[-1]
        else:
            assert limit < found.above <= found.length + 2048
        assert found.tokens == sum(r.processed_tokens for r in readings)

    @settings(max_examples=60, deadline=None)
    @given(st.integers(1000, 150_000), st.sampled_from(["refused", "slow", "died"]), st.integers(0, 12), st.booleans())
    def test_an_interrupted_search_goes_on_where_it_stood(self, limit, kind, cut, cache):
        """The same readings give the same next step: nothing is read twice, nothing is lost."""
        plan = SearchPlan(WANTED_RUNGS)
        _found, steps, readings = walk(Server(limit, kind, cache), plan)
        cut = min(cut, len(steps))
        again = next_step(plan, readings[:cut])
        assert again == (steps[cut] if cut < len(steps) else _found)

    @settings(max_examples=80, deadline=None)
    @given(st.integers(5000, 150_000), st.sampled_from(["refused", "slow"]), st.booleans(), st.integers(0, 700_000))
    def test_the_budget_is_kept(self, limit, kind, cache, budget):
        """Never more tokens than announced, questions aside; what is claimed is never more than was proved."""
        server = Server(limit, kind, cache, questions=1)
        found, _steps, _readings = walk(server, SearchPlan(WANTED_RUNGS, budget_tokens=budget))
        # A cold reading costs its questions on top of its length.
        assert server.processed <= budget + 64 * 20
        if found.verified:
            assert found.length <= limit
        else:
            assert found.stop in ("budget", "nothing-passes")

    def test_the_time_is_kept(self):
        """With the pace seen so far: a search of ten minutes ends within them, and says how far it came."""
        server = Server(200_000)
        found, _steps, _ = walk(server, SearchPlan(WANTED_RUNGS, budget_s=300.0))
        assert found.seconds <= 300.0
        assert found.stop in ("budget", "verified")
        assert found.verified
        assert found.length < 129_024

    @pytest.mark.parametrize("cache", ["resumes", "none"])
    def test_the_forecast_holds(self, cache):
        """What is announced is not exceeded by a server that does as expected."""
        plan = SearchPlan(WANTED_RUNGS, cache=cache)
        announced = forecast(plan)
        for limit in (200_000, 129_000, 100_000, 80_000, 50_000, 10_000):
            server = Server(limit, cache=cache == "resumes", questions=0)
            found, steps, _ = walk(server, plan)
            assert found.tokens <= announced.at_most * 1.02 + 64 * 20
            assert len(steps) <= announced.requests_at_most + 1
        assert announced.if_top_passes <= announced.at_most
        assert announced.seconds(1000.0)[1] == announced.at_most / 1000

    def test_small_windows_get_a_finer_resolution(self):
        """A 4K window is not searched in steps of 2K."""
        assert default_resolution(131_072) == 2048
        assert default_resolution(4096) == 128
        plan = SearchPlan((256, 1007, 2015, 2267, 3023, 3968), resolution=default_resolution(3968))
        found, _, _ = walk(Server(2500, questions=1), plan)
        assert found.length <= 2500 < found.above <= found.length + 128

    def test_a_senseless_plan_is_refused(self):
        """Rungs must rise."""
        for bad in ((), (5, 5), (0, 5), (9, 3)):
            with pytest.raises(ValueError, match="rungs"):
                SearchPlan(bad)
        with pytest.raises(ValueError, match="repeats"):
            SearchPlan((512,), repeats=0)


class TestBadLuck:
    """Servers that die, waver, or change."""

    def test_a_death_ends_the_search_unless_it_may_restart(self):
        """It is a result; nothing is claimed that was not proved."""
        found, steps, _ = walk(Server(80_000, "died"))
        assert found.stop == "died"
        assert found.length == 73_728
        assert not found.verified
        assert steps[-1].length == 98_304
        found, _, readings = walk(Server(80_000, "died"), SearchPlan(WANTED_RUNGS, restarts=10))
        assert found.verified
        assert found.length <= 80_000 < found.above <= found.length + 2048
        # A length that killed the server is not tried again to prove it.
        dead = [r.length for r in readings if r.outcome == "died"]
        assert len(dead) == len(set(dead))

    def test_a_connection_that_is_cut_is_walked_as_a_death_and_not_called_one(self):
        """The planner treats it alike: proof enough, bounded, not repeated; the words say that the server lives."""
        shape = {"attempt": 1, "input_tokens": 4096, "rung": 4096, "output_tokens": 0, "error": "gone"}
        cut = reading_of(RungResult(result="failed", error_kind="connection-lost", **shape), False)
        died = reading_of(RungResult(result="died", error_kind="connection-lost", **shape), False)
        assert (cut.hard, cut.cut, died.cut) == (True, True, False)
        plan = SearchPlan((2048, 4096))
        below = Reading(2048, True, True)
        for last, said in ((cut, "while the server lives"), (died, "The server died")):
            found = next_step(plan, [below, last])
            assert found.stop == "died"
            assert said in found.why.english

    def test_a_length_that_fails_once_is_not_claimed(self):
        """Two passes and a failure are no three passes in a row: the search goes below."""
        server = Server(200_000)
        plan = SearchPlan(WANTED_RUNGS)
        readings: list[Reading] = []
        while isinstance(step := next_step(plan, readings), Step):
            reading = server.read(step)
            if step.purpose == "verify" and step.length == 129_024 and step.attempt == 3:
                reading = replace(reading, ok=False, outcome="failed")
            readings.append(reading)
            assert len(readings) < 40
        assert step.length < 129_024
        assert step.verified
        assert step.above <= 129_024

    def test_unsure_recall_asks_for_more_and_then_gives_up(self):
        """More facts at the same length, twice at the most; a length that stays unsure is not claimed."""
        plan = SearchPlan((8192, 16_384), resolution=4096)
        readings = [Reading(8192, True, True), Reading(16_384, None, False)]
        step = next_step(plan, readings)
        assert (step.purpose, step.length) == ("more", 16_384)
        assert next_step(plan, [*readings, Reading(16_384, True, False)]).purpose == "verify"
        readings += [Reading(16_384, None, False)] * 2
        assert next_step(plan, readings).purpose == "bisect"

    def test_nothing_passes(self):
        """It looks below the shortest rung, and ends."""
        found, steps, _ = walk(Server(50))
        assert (found.length, found.stop) == (None, "nothing-passes")
        assert len(steps) < 12


class TestFixedLadder:
    """``--ladder``: the lengths that were named, then the longest that passes until it is verified."""

    def test_every_rung_is_read(self):
        """A rung that is forgotten does not end the ladder (the curve is wanted), a refusal does."""
        plan = SearchPlan((1000, 2000, 3000, 4000), resolution=None)
        found, steps, _ = walk(Server(2500), plan)
        assert [s.length for s in steps if s.purpose == "climb"] == [1000, 2000, 3000, 4000]
        assert (found.length, found.passes, found.above) == (2000, 3, 3000)
        _, steps, _ = walk(Server(2500, "refused"), plan)
        assert [s.length for s in steps if s.purpose == "climb"] == [1000, 2000, 3000]


class TestReadBack:
    """An attempt from the journal, as the planner sees it."""

    def result(self, **changes):
        values = {
            "rung": 8192, "input_tokens": 8190, "attempt": 1, "result": "passed", "prefill_tps": 500.0, "generation_tps": 20.0,
            "first_token_s": 16.0, "canaries": CanaryScore(hit=9, asked=9), "cold": True,
        }  # fmt: skip
        return RungResult(**{**values, **changes})

    def test_a_recorded_attempt_is_read_back(self):
        """From the journal to the planner."""
        reading = reading_of(self.result(cached_tokens=8000, cold=False, total_s=2.0, cache_asked=True), True)
        assert (reading.processed_tokens, reading.cached_tokens, reading.seconds, reading.cold) == (
            190,
            8000,
            2.0,
            False,
        )


def test_found_speaks():
    """The end of a search is a sentence."""
    found, _, _ = walk(Server(80_000))
    assert isinstance(found, Found)
    assert "79872" in str(found.why)
    assert "3 times" in str(found.why)


@pytest.mark.parametrize("budget", [9_000, 20_000, 40_000, 80_000, 160_000])
def test_a_budget_that_ends_after_a_proof_is_not_said_to_end_before_it(budget):
    """Law: one sentence never says both that a length passed as often as asked and that the budget ended before the proof."""
    server = Server(10**9)
    plan = SearchPlan(WANTED_RUNGS, budget_tokens=budget)
    found, _steps, _readings = walk(server, plan)
    said = found.why.english
    assert ("before the proof" in said) == (
        found.stop == "budget" and found.length is not None and found.passes < found.repeats
    )


def test_both_ends_by_the_budget_are_said():
    """Proved already, and not yet: each in its own words."""
    plan = SearchPlan(WANTED_RUNGS, budget_tokens=1)
    length = WANTED_RUNGS[0]
    once = [Reading(length, True, True, "passed", length, 0)]
    assert "before the proof" in stand(plan, once, "budget").why.english
    proved = stand(plan, once * plan.repeats, "budget").why.english
    assert "3 times in a row, cold; then the budget ended" in proved
    assert "before the proof" not in proved
