"""The line of progress while a length is measured says what is known, and nothing else."""

from types import SimpleNamespace

from probes.showing import length_line
from tests.probes.made_up import MadeUp, context

GIB = 1 << 30


def test_what_is_not_known_is_left_out():
    assert length_line(context(MadeUp()), 8000) == "8000 tokens"


def test_speed_wait_and_memory_stand_behind_the_length():
    """Law: rung and attempt are the title; the line holds tokens, speed seen so far, the wait, each device's memory and the server's."""
    around = context(MadeUp())
    around.prefill_tps = 400.0
    devices = {"cuda:0": SimpleNamespace(used_bytes=3 * GIB), "cuda:1": SimpleNamespace(used_bytes=None)}
    latest = SimpleNamespace(devices=devices, server=SimpleNamespace(rss=2 * GIB))
    around.sampler = SimpleNamespace(latest=lambda: latest)
    line = length_line(around, 8000)
    assert line.startswith("8000 tokens, 400 tokens/s, 20 s, cuda:0 3")
    assert "cuda:1" not in line
    assert "RAM 2" in line
