"""What was sent is counted, also where the answer could not be read, and where a run is gone on with by another process."""

from __future__ import annotations

import pytest

from diagnose import session
from diagnose.case import Case
from diagnose.running import Walk
from probes.backends.base import Ask
from probes.base import Sent
from probes.evidence.errors import BadAnswerError, NotOfferedError
from probes.evidence.request import Completion
from tests.probes.made_up import MadeUp, context


class Unreadable(MadeUp):
    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self.failure = failure

    def complete(self, ask: Ask):
        raise self.failure


def test_a_request_whose_answer_cannot_be_read_was_sent():
    """Law: what reached the server counts; what is not offered was never sent."""
    around = context(Unreadable(BadAnswerError("NaN in the times")))
    with pytest.raises(BadAnswerError):
        around.complete(Ask(prompt="a"), sent_tokens=40)
    assert (around.sent.requests, around.sent.prompt_tokens) == (1, 40)
    around = context(Unreadable(NotOfferedError("no such endpoint")))
    with pytest.raises(NotOfferedError):
        around.complete(Ask(prompt="a"), sent_tokens=40)
    assert around.sent.requests == 0


def test_a_run_that_is_gone_on_with_counts_what_was_sent_before(tmp_path, monkeypatch):
    """Law: the sums of a run are those of all processes that worked on it, written down as they grow."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    with Case.create(None, tool_version="1", name="counted") as case:
        case.append("run", {"options": {}}, run=1)
        first = Walk.__new__(Walk)
        first.case, first.sent = case, Sent(requests=20, prompt_tokens=9000, generated_tokens=300)
        session._keep_sent(first)
        entries = len(case.entries)
        session._keep_sent(first)
        assert len(case.entries) == entries
        again = Walk.__new__(Walk)
        again.case, again.sent = case, Sent(requests=2, prompt_tokens=10)
        session._go_on_counting(again)
        assert (again.sent.requests, again.sent.prompt_tokens, again.sent.generated_tokens) == (22, 9010, 300)


def test_a_look_beside_a_measurement_that_fails_ends_nothing():
    """Law: an answer that cannot be read, where a stream is held against the same in one piece, costs that look alone."""
    around = context(Unreadable(BadAnswerError("HTML from a proxy")))
    assert around.held_against_whole(Ask(prompt="a"), Completion(text="b", sent_tokens=40)) is None
    assert around.torn is None
