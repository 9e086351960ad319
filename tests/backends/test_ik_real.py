"""ik_llama.cpp's llama-server itself, with a model of random weights: everything that the recordings claim, for real.

It is no dependency: give the command that starts it in ``CTXDOCTOR_IK_LLAMA`` (``CTXDOCTOR_IK_LLAMA=/path/to/llama-server``); model, window, slots and
address are added here.
"""

from __future__ import annotations

import os
import shlex
import time

import pytest

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.base import ProbeContext
from probes.counting import counter_for
from probes.evidence.request import TruncationReading
from probes.logs import read_log
from probes.process import free_port
from probes.truncation import TruncationProbe
from tests.tiny_model import make_model

from .started import started

GIVEN = os.environ.get("CTXDOCTOR_IK_LLAMA", "")
pytestmark = [
    pytest.mark.real_server,
    pytest.mark.slow,
    pytest.mark.skipif(not GIVEN, reason="CTXDOCTOR_IK_LLAMA gives no command that starts ik_llama.cpp's server"),
]
WINDOW, SLOTS = 4096, 2
PER_SLOT = WINDOW // SLOTS


@pytest.fixture(scope="module", params=[True, False], ids=["shift", "no-shift"])
def ik(request, tmp_path_factory):
    """The server with two slots, with and without context shift: its address, its log, and whether it shifts."""
    folder = tmp_path_factory.mktemp("ik")
    model = make_model(folder / "tiny.gguf")
    port = free_port()
    # it would write a trace of its own into the current folder
    command = [*shlex.split(GIVEN), "-m", str(model), "-c", str(WINDOW), "-np", str(SLOTS), "-t", "1", "--log-disable"]
    command += ["--host", "127.0.0.1", "--port", str(port), *(() if request.param else ("--no-context-shift",))]
    with started(command, port, folder / "log", seconds=120) as url:
        yield url, folder / "log", request.param


@pytest.fixture
def backend(ik):
    with Http(ik[0]) as http:
        yield recognise(http)


def test_recognised_with_its_windows(backend):
    """By its header; the total window and what each slot has of it."""
    assert backend.name == "ik_llama.cpp"
    window = backend.window()
    assert (window.asked, window.per_slot, window.slots, window.in_force) == (WINDOW, PER_SLOT, SLOTS, PER_SLOT)
    assert window.trained == 131_072
    assert backend.busy() is False


def test_counts_both_clocks_and_the_cache(backend):
    """Exact counts, the cache off where asked, the server's own times within the client's; a repeated prompt comes from the cache."""
    text = "abcdefgh " * 100
    assert backend.count_tokens(text) == 900
    assert backend.detokenize(backend.tokenize(text)) == text
    cold = backend.complete(Ask(prompt=text, max_tokens=4, use_cache=False, slot=0))
    assert cold.error is None
    assert (cold.prompt_tokens, cold.cached_tokens, cold.processed_tokens, cold.generated_tokens) == (900, 0, 900, 4)
    assert 0 < cold.server_prompt_s <= cold.client_total_s
    assert cold.client_first_token_s is not None
    backend.complete(Ask(prompt=text, max_tokens=1, slot=0))
    again = backend.complete(Ask(prompt=text, max_tokens=1, slot=0))
    assert again.cached_tokens >= 890


def test_log_probabilities(backend):
    """The native endpoint tells the likeliest tokens of each position."""
    told = backend.complete(Ask(prompt="abc", max_tokens=2, logprobs=5))
    assert len(told.logprobs) == 2
    assert all(len(table) >= 5 and all(value <= 0 for value in table.values()) for table in told.logprobs)


def test_an_overlong_prompt(ik, backend):
    """Cut without an error, and called truncated, where it shifts; refused where it does not."""
    counter = counter_for(backend)
    context = ProbeContext(backend=backend, counter=counter, ends_at=time.monotonic() + 600)
    probe = TruncationProbe(PER_SLOT)
    found = [one.payload() for one in probe.collect(context) if one.data is not None]
    reading = next(one for one in found if isinstance(one, TruncationReading))
    told = backend.complete(Ask(prompt="abcdefgh " * 300, max_tokens=1, use_cache=False))
    if ik[2]:
        assert reading.verdict == "truncated"
        assert reading.processed < PER_SLOT
        assert told.truncated is True
    else:
        assert reading.verdict == "refused"
        assert told.error is not None
        assert told.error.error == "exceeds-window"
    # what was refused is read all the same; after that every slot serves again
    for slot in range(SLOTS):
        fits = backend.complete(Ask(prompt="abcdefgh " * 200, max_tokens=1, use_cache=False, slot=slot))
        assert (fits.error, fits.prompt_tokens) == (None, 1800)


def test_what_its_log_tells(ik, backend):
    """Buffers, windows, slots, times."""
    backend.complete(Ask(prompt="abc " * 50, max_tokens=2, use_cache=False))
    events = list(read_log(ik[1]))
    kinds = {event.event for event in events}
    assert {"buffer", "window", "timing"} <= kinds
    assert PER_SLOT in {event.tokens for event in events if event.event == "window" and event.which == "per-slot"}
