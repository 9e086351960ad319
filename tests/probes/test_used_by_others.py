"""Somebody else's request is told from one of ours that we gave up and the server still works on."""

from probes.backends.base import Ask
from probes.evidence.request import Completion, RequestError
from tests.probes.made_up import MadeUp, context


class Busy(MadeUp):
    def __init__(self):
        super().__init__()
        self.working = True
        self.error = None

    def busy(self):
        return self.working

    def complete(self, ask):
        return Completion(error=self.error) if self.error else super().complete(ask)


def test_a_slot_that_works_before_we_asked_anything_is_somebody_elses():
    assert context(Busy()).used_by_others() is True


def test_what_we_gave_up_is_not_taken_for_somebody_else_until_the_server_was_idle():
    """Law: after a request that ended for us alone, a busy slot says nothing; once the server was idle, it does again."""
    server = Busy()
    around = context(server)
    for kind in ("timeout", "connection-lost"):
        server.error = RequestError(error=kind, message="")
        around.complete(Ask(prompt="a b c", max_tokens=1))
        assert around.used_by_others() is None
        assert around.used_by_others() is None
        server.working = False
        assert around.used_by_others() is False
        server.working = True
        assert around.used_by_others() is True
    server.error = RequestError(error="exceeds-window", message="")
    around.complete(Ask(prompt="a b c", max_tokens=1))
    assert around.used_by_others() is True
