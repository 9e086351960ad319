"""The same request as a freshly started server's first one: what only the first request does is told from what each one does."""

import pytest

from probes.evidence.records import EvidenceSet
from probes.evidence.replay import FreshReplay
from probes.evidence.request import Completion, RequestError
from probes.repeat import REPLAYS, RepeatProbe
from rules.catalogue import judge_evidence
from rules.facts import FIRST_AFTER_LOAD_FAILS, FRESH_FAILS
from tests.probes.made_up import MadeUp, context


class Moody(MadeUp):
    """Fails the requests that ``fails`` says of their number since the last start."""

    def __init__(self, fails):
        super().__init__()
        self.fails = fails
        self.since = 0
        self.starts = 1

    def start(self):
        self.since, self.starts = 0, self.starts + 1
        return True

    def complete(self, ask):
        self.since += 1
        if self.fails(self.since, self.starts):
            return Completion(error=RequestError(error="server-error", status=500, message="it broke", after_s=0.1))
        return super().complete(ask)


def replayed(server, *, fresh=True, may=True):
    around = context(server, start_anew=server.start if may else None)
    evidence = list(RepeatProbe(600, fresh=fresh).collect(around))
    pieces = [one for one in evidence if one.kind == FreshReplay.kind]
    _judgement, facts = judge_evidence(EvidenceSet(evidence), "run")
    return pieces, facts


@pytest.mark.parametrize(
    ("fails", "first", "later", "says"),
    [
        (lambda n, _starts: n == 1, "failed", REPLAYS, (True, True)),
        (lambda _n, _starts: True, "failed", 0, (False, True)),
        (lambda _n, starts: starts == 1, "passed", REPLAYS, (False, False)),
        (lambda n, starts: starts == 2 and n > 1, "passed", 0, (False, True)),
    ],
    ids=["first-only", "always", "only-after-long", "later-only"],
)
def test_first_after_load_is_told_from_later(fails, first, later, says):
    """Law: the first request after the start and those after it are counted apart, and two facts say which of them fail."""
    server = Moody(fails)
    (piece,), facts = replayed(server)
    replay = piece.payload()
    assert server.starts == 2
    assert (replay.first, replay.later_passed, replay.later_tried) == (first, later, REPLAYS)
    assert (facts.value(FIRST_AFTER_LOAD_FAILS), facts.value(FRESH_FAILS)) == says
    assert (replay.error is None) is (says[1] is False)


def test_a_server_that_may_not_be_started_is_left_alone():
    """Law: without --launch nothing is started, and the piece of evidence says why there is no replay."""
    server = Moody(lambda n, _starts: n == 1)
    (piece,), _facts = replayed(server, may=False)
    assert piece.data is None
    assert "--launch" in piece.unavailable.note
    assert server.starts == 1


def test_where_nothing_failed_and_nobody_asked_there_is_no_replay():
    """Law: a healthy server is not started anew for another symptom."""
    pieces, _facts = replayed(Moody(lambda _n, _starts: False), fresh=False)
    assert pieces == []
