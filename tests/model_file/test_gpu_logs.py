"""Law: what is predicted for each device is what real devices then logged: the total within 3 % or 100 MiB, caches and weights to the two decimals."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from probes.model_file.context import ContextSettings, as_engine
from probes.model_file.placement import HOST
from probes.model_file.planner import GivenDevice, Model, Options, Planner

from .published import write

MIB = 1024**2
RECORDED = tomllib.loads((Path(__file__).parent / "gpu_logs.toml").read_text())


def planned(gguf, folder, log):
    model = Model.read(write(gguf, folder / "model.gguf", RECORDED["models"][log["model"]]))
    assert model.shape is not None, model.unknown
    free = log.get("free", [1_000_000] * len(log["device"]))
    overrides = tuple((rule.rpartition("=")[0], HOST) for rule in log.get("overrides", ()))
    settings = ContextSettings(
        **log["settings"], outputs=log.get("outputs", 0), wide_masks=log.get("wide_masks", False)
    )
    planner = Planner(
        model,
        settings,
        tuple(GivenDevice(str(at), f"device {at}", size * MIB) for at, size in enumerate(free)),
        GivenDevice("host", "host", None),
        Options(
            gpu_layers=log.get("gpu_layers"),
            tensor_split=tuple(map(float, log.get("tensor_split", ()))),
            overrides=overrides,
        ),
    )
    assert planner.refused is None, planner.refused
    return planner.at(settings.ctx)


@pytest.mark.parametrize("log", RECORDED["logs"], ids=lambda log: log["id"])
def test_devices_hold_what_their_logs_say(log, gguf, tmp_path):
    budget = planned(gguf, tmp_path, log)
    weights_known = "quant" in RECORDED["models"][log["model"]]
    for need, logged in zip([*budget.devices, budget.host], [*log["device"], log.get("host")], strict=True):
        if logged is None:
            continue
        ours = {"kv": need.kv, "state": need.state, "compute": need.compute, "output": need.other}
        ours = {name: size / MIB for name, size in ours.items() if name in logged}
        said = {name: size for name, size in logged.items() if name != "model"}
        if "kv" in said:
            assert ours["kv"] == pytest.approx(said["kv"], abs=0.02), need.device.id
        if "model" in logged:
            compared = weights_known and need.device.id not in log.get("mapped_range", ())
            ours["model"] = need.weights / MIB if compared else logged["model"]
            said["model"] = logged["model"]
            assert ours["model"] == pytest.approx(said["model"], abs=0.05), need.device.id
        assert abs(sum(ours.values()) - sum(said.values())) <= max(0.03 * sum(said.values()), 100), (ours, said)
        # the law above forgives much to small parts: the work space itself stays within its stated share, or the same as for small models
        assert abs(ours["compute"] - said["compute"]) <= max(0.25 * said["compute"], 16), (ours, said)


def test_several_kinds_of_devices_and_engines_are_among_them():
    """Law: the set has at least ten logs, of CUDA, ROCm, Metal and Vulkan, one card and several, all and some layers."""
    names = {log["id"].split("-")[0] for log in RECORDED["logs"]}
    assert {"cuda", "rocm", "metal", "vulkan"} <= names
    assert len(RECORDED["logs"]) >= 10
    assert {len(log["device"]) for log in RECORDED["logs"]} == {1, 2}
    assert all(log["source"] and log["build"] for log in RECORDED["logs"])


@pytest.mark.parametrize(
    ("engine", "build", "outputs", "wide"),
    [
        ("llama.cpp", 11434, 0, False),
        ("llama.cpp", 5898, 256, True),
        (None, 5898, 256, True),
        ("llama.cpp", None, 0, False),
        ("koboldcpp", None, 256, False),
        ("ik_llama.cpp", None, 256, False),
        ("text-generation-webui", None, 0, False),
    ],
)
def test_older_builds_and_other_programs_reserve_more(engine, build, outputs, wide):
    asked = as_engine(ContextSettings(ubatch=256), engine, build)
    assert (asked.outputs, asked.wide_masks) == (outputs, wide)
