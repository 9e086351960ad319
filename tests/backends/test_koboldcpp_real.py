"""KoboldCpp itself, with a model of random weights: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_KOBOLDCPP`` (``CTXDOCTOR_KOBOLDCPP='python koboldcpp.py'``, or the path of a
release); model, window and address are added here.
"""

from __future__ import annotations

import os
import shlex
import time

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import MOST_GETS, recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.request import TruncationReading
from probes.logs import read_log
from probes.process import free_port
from probes.truncation import TruncationProbe
from tests.tiny_model import make_model

from .started import started

GIVEN = os.environ.get("CTXDOCTOR_KOBOLDCPP", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_KOBOLDCPP gives no command that starts KoboldCpp"),
]
WINDOW = 2048


@pytest.fixture(scope="module")
def kobold(tmp_path_factory):
    """KoboldCpp with a window of 2048: its address, and its log."""
    folder = tmp_path_factory.mktemp("kobold")
    model = make_model(folder / "tiny.gguf")
    port = free_port()
    command = [*shlex.split(GIVEN), "--model", str(model), "--contextsize", str(WINDOW), "--threads", "1"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--skiplauncher", "--quiet"]
    with started(command, port, folder / "log", path="/api/extra/version", seconds=180) as url:
        yield url, folder / "log"


@pytest.fixture
def backend(kobold):
    with Http(kobold[0]) as http:
        yield recognise(http)


def test_recognised_with_its_window_and_model(kobold, backend):
    """Before the servers that it imitates; the window is the one that was asked for."""
    assert backend.name == "koboldcpp"
    assert backend.identity().version
    assert backend.window().in_force == WINDOW
    assert backend.model_identity().name == "tiny"
    assert MOST_GETS


def test_tokens_are_counted_and_written_back(backend):
    """One token a byte here; a text and its tokens are each other's."""
    text = "ORBIT-17 = copper.\n"
    assert backend.count_tokens(text * 10) == len(text) * 10
    assert backend.detokenize(backend.tokenize(text)) == text


def test_counts_and_both_clocks(backend):
    """Exact counts; the server's time of a cold prompt is within what the client saw; a prompt that is known already has none."""
    text = "abcdefgh " * 100
    told = backend.complete(Ask(prompt=text, max_tokens=4, use_cache=False, salt="x9 "))
    assert told.error is None
    assert (told.prompt_tokens, told.processed_tokens) == (903, 903)
    assert told.generated_tokens == 4
    assert 0 < told.server_prompt_s <= told.client_total_s
    again = backend.complete(Ask(prompt="x9 " + text, max_tokens=4))
    assert (again.prompt_tokens, again.server_prompt_s) == (903, None)
    assert again.client_total_s is not None


def test_log_probabilities(backend):
    """They are the model's own, not what its samplers leave: several tokens, of which none is certain."""
    told = backend.complete(Ask(prompt="abc", max_tokens=3, logprobs=10))
    assert len(told.logprobs) == 3
    assert all(len(table) >= 5 for table in told.logprobs)
    assert all(-9.3 < value < -0.1 for table in told.logprobs for value in table.values())
    again = backend.complete(Ask(prompt="abc", max_tokens=1, logprobs=10))
    assert again.logprobs[0] == pytest.approx(told.logprobs[0], abs=1e-3)


def test_its_silent_cut_is_seen(backend):
    """Above the window: an answer, and fewer tokens than were sent, the front being gone; just below it, every token."""
    counter = counter_for(backend)
    context = ProbeContext(backend=backend, counter=counter, ends_at=time.monotonic() + 600)
    probe = TruncationProbe(WINDOW)
    found = [one.payload() for one in probe.collect(context) if one.data is not None]
    reading = next(one for one in found if isinstance(one, TruncationReading))
    assert (reading.verdict, reading.rule) == ("truncated", "head-cut")
    assert reading.processed == WINDOW - 1
    assert 0 <= reading.below_processed - reading.below_sent <= 8  # the salt


def test_what_its_log_tells(kobold, backend):
    """Version, the options as settings, buffers, the load, and each answer with its window."""
    backend.complete(Ask(prompt="abc " * 50, max_tokens=2))
    events = list(read_log(kobold[1]))
    kinds = {event.event for event in events}
    assert {"program", "command", "model-loaded", "reply", "timing"} <= kinds
    assert {event.tokens for event in events if event.event == "window" and event.which == "asked"} == {WINDOW}
