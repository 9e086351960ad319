"""Laws of memory that a device shares with the host: as much as can really be had, counted once, and never taken for a card's own."""

from __future__ import annotations

import pytest

from probes.evidence.machine import Device
from probes.model_file.context import ContextSettings
from probes.model_file.planner import GivenDevice, Model, Options, Planner
from probes.model_file.session import as_usable, given_device, given_devices

GIB = 1 << 30
APU = Device(
    id="amd:0", name="Radeon 8060S", vendor="amd", memory="unified", total_bytes=GIB, free_bytes=GIB // 2, used_bytes=GIB // 2,
    shared_total_bytes=110 * GIB, shared_used_bytes=10 * GIB, carved_bytes=GIB,
)  # fmt: skip
APPLE = Device(
    id="apple:0", name="M2 Max", vendor="apple", memory="unified", total_bytes=48 * GIB, free_bytes=40 * GIB, working_set_limit_bytes=48 * GIB
)  # fmt: skip
BOARD = Device(id="nvidia:0", name="NVIDIA GB10", vendor="nvidia", memory="unified")
CARD = Device(id="nvidia:0", name="card", vendor="nvidia", total_bytes=24 * GIB, free_bytes=20 * GIB)


@pytest.mark.parametrize(
    ("device", "ram", "free", "own"),
    [
        (APU, 64 * GIB, 64 * GIB + GIB // 2, GIB // 2),  # the RAM ends before GTT does
        (APU, 120 * GIB, 100 * GIB + GIB // 2, GIB // 2),  # GTT ends before the RAM does
        (APU, None, 100 * GIB + GIB // 2, GIB // 2),
        (APPLE, 8 * GIB, 40 * GIB, 0),  # the limit; that the RAM is short is the host's line
        (BOARD, 100 * GIB, 100 * GIB, 0),
        (BOARD, None, None, 0),
        (CARD, 8 * GIB, 20 * GIB, 0),
    ],
)
def test_what_can_be_had_in_a_device(device, ram, free, own):
    """Law: a processor's graphics reach what was set apart for them and the RAM through GTT; Apple's the working-set limit; a card its own memory."""
    given = given_device(as_usable(device, ram), 0)
    assert (given.free_bytes, given.own_bytes) == (free, own)
    assert given.unified is (device.memory == "unified")
    (same,) = given_devices([device], 0, ram)
    assert same == given


def test_the_part_set_apart_is_not_the_hosts(truth_models):
    """Law: the host bears what a unified device holds beyond the part that was set apart at start, once."""
    model = Model.read(truth_models["real-llama-3.1-8b.gguf"])
    host = GivenDevice("host", "host", 8 * GIB, 0)
    tokens = {}
    for apart in (0, 4 * GIB):
        device = GivenDevice("amd:0", "APU", 100 * GIB, 0, unified=True, own_bytes=apart)
        longest = Planner(model, ContextSettings(), (device,), host, Options()).longest()
        tokens[apart] = longest.tokens
        assert longest.limited_by == "host"
    # 128 KiB of cache a token
    assert tokens[4 * GIB] - tokens[0] == pytest.approx(4 * GIB / (128 * 1024), rel=0.02)
