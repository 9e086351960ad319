"""Laws of llama.cpp's own planner as a basis: asked with a deadline, read strictly, believed only where it speaks of what a server does."""

from __future__ import annotations

import contextlib
import json
import stat
import sys
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.cli import command_line
from probes.evidence.errors import BadAnswerError, CtxDoctorError, NoAnswerInTimeError, NotOfferedError
from probes.model_file.context import ContextSettings
from probes.model_file.own_planner import arguments, ask_planner, find_planner, parse_answer
from probes.model_file.planner import GivenDevice, Model, Options, Planner

MIB = 1024**2


@pytest.fixture
def program(tmp_path):
    """Make a program of that name which does what it is told to; gives its path."""

    def make(body, folder="bin"):
        path = tmp_path / folder / "llama-fit-params"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def test_its_lines_become_bytes():
    """The lines as b11434 printed them for SmolLM2 on a CPU, and for two devices."""
    (host,) = parse_answer("Host 28 180 109 \n")
    assert (host.name, host.weights, host.context, host.compute) == ("Host", 28 * MIB, 180 * MIB, 109 * MIB)
    lines = parse_answer("0.00.1 I something: 3\nCUDA0 4455 324 304 \nRPC0[127.0.0.1:9555] 1 2 3 \nHost 333 0 16 \n")
    assert [line.name for line in lines] == ["CUDA0", "RPC0[127.0.0.1:9555]", "Host"]


@settings(max_examples=80, deadline=None)
@given(st.text(max_size=300))
def test_whatever_it_prints_is_read_or_refused(text):
    with contextlib.suppress(BadAnswerError):
        assert parse_answer(text)[-1].name == "Host"


def test_the_command_says_what_was_asked():
    """Law: every setting that it knows is in its command line; what it cannot be asked is refused, not left out."""
    asked = ContextSettings(ctx=5000, kv_k="q8_0", kv_v="q8_0", parallel=3, ubatch=128, swa_full=True, flash_attn="on")
    options = Options(gpu_layers=7, tensor_split=(3.0, 1.0), overrides=(("exps", -1),), kv_offload=False)
    said = " ".join(arguments("m.gguf", asked, options))
    for part in (
        "--ctx-size 5000", "--cache-type-k q8_0", "--parallel 3", "--ubatch-size 128", "--swa-full", "--flash-attn on", "--n-gpu-layers 7",
        "--tensor-split 3,1", "--override-tensor exps=CPU", "--no-kv-offload", "--fit-print on",
    ):  # fmt: skip
        assert part in said
    assert "--parallel 1" in " ".join(arguments("m.gguf", ContextSettings(parallel=4, kv_unified=True), Options()))
    for settings_, options_ in (
        (ContextSettings(kv_k="q8_KV"), Options()),
        (ContextSettings(), Options(draft="mtp")),
        (ContextSettings(), Options(overrides=(("exps", 1),))),
    ):
        with pytest.raises(NotOfferedError):
            arguments("m.gguf", settings_, options_)


def test_it_is_found_beside_a_server(program, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    found = program("pass", folder="engine")
    server = tmp_path / "engine" / "llama-server"
    server.write_text("")
    assert find_planner(str(server)) == found
    assert find_planner(None, str(tmp_path / "nowhere" / "llama-server")) is None


def test_a_program_that_hangs_fails_or_babbles_is_an_error_in_time(program):
    """Law: a deadline ends it, with all that it started; what it says on failure is passed on, shortened; no output is without bounds."""
    begun = time.monotonic()
    with pytest.raises(NoAnswerInTimeError):
        ask_planner(program("time.sleep(60)"), "m.gguf", ContextSettings(), Options(), deadline_s=0.5)
    assert time.monotonic() - begun < 10
    with pytest.raises(BadAnswerError, match="error loading model: no such file"):
        ask_planner(
            program("sys.stderr.write('x: error loading model: no such file\\n'); sys.exit(1)"),
            "m.gguf", ContextSettings(), Options(),
        )  # fmt: skip
    with pytest.raises(BadAnswerError, match="printed no sizes"):
        ask_planner(program("sys.stdout.write('a' * (3 << 20))"), "m.gguf", ContextSettings(), Options())
    with pytest.raises(CtxDoctorError):
        ask_planner("/nowhere/llama-fit-params", "m.gguf", ContextSettings(), Options())


def planner_for(path, *frees, **how):
    devices = tuple(GivenDevice(f"gpu{at}", "card", size) for at, size in enumerate(frees))
    return Planner(Model.read(path), ContextSettings(**how), devices, GivenDevice("host", "host", 64 << 30), Options())


def test_its_work_space_is_taken_where_it_is_a_servers(truth_models):
    """Law: exact on a device without the output layer, and above what its own logits explain; elsewhere it only bounds the model's number."""
    path = truth_models["real-llama-3.1-8b.gguf"]
    plan = planner_for(path, 16 << 30, 16 << 30, ctx=8192)
    ours = [need.compute for need in plan.at(8192).all()]
    more = plan.corrected(8192, [ours[0] + 30 * MIB, 3000 * MIB, ours[2]])
    assert [need.compute for need in more.at(8192).all()] == [ours[0] + 30 * MIB, 3000 * MIB, ours[2]]
    assert more.error_bytes(more.at(8192)) == MIB
    logits = 512 * (128256 + 4096) * 4
    bound = plan.corrected(8192, [ours[0], logits, ours[2]])
    assert bound.at(8192).devices[1].compute == ours[1]
    assert bound.error_bytes(bound.at(8192)) > MIB
    less = plan.corrected(8192, [ours[0], ours[1] - MIB, ours[2]])
    assert less.at(8192).devices[1].compute == ours[1] - MIB
    half = more.pull("micro-batch")
    assert half.at(8192).devices[0].compute < more.at(8192).devices[0].compute


def test_estimate_marks_where_the_work_space_is_from(program, truth_models, capsys, monkeypatch):
    """Law: basis says planner only where it was believed; a planner of another number of devices, none, or one that fails leaves the model's and says why."""
    path = str(truth_models["real-llama-3.1-8b.gguf"])
    monkeypatch.setattr("diagnose.cli.estimate_run._machine_devices", lambda *_: ())

    def ask(*more):
        code = command_line(["estimate", path, "--ctx", "8192", "--parallel", "1", "--format", "json", *more])
        return code, json.loads(capsys.readouterr().out or "null")

    _code, modelled = ask()
    context = modelled["kv"]["bytes"] // MIB
    believed = program(f"print('Host 4685 {context} 700 ')")
    code, found = ask("--planner", believed)
    assert code == 0
    assert found["basis"] == {"compute": "planner", "error": MIB, "engine": "llama.cpp"}
    assert found["compute_bytes"] == 700 * MIB
    assert "basis.kv" not in found["unknown"]
    _code, other = ask("--planner", program("print('Host 4685 1 700 ')", folder="b"))
    assert "another version" in other["unknown"]["basis.kv"]["note"]
    for body, why in (("print('CUDA0 1 1 1 '); print('Host 1 1 1 ')", "not-offered"), ("sys.exit(3)", "failed")):
        code, found = ask("--planner", program(body, folder=why))
        assert code == 0
        assert found["basis"]["compute"] == "model"
        assert found["unknown"]["basis.compute"]["why"] == why
        assert found["compute_bytes"] == modelled["compute_bytes"]
    assert ask("--planner", believed, "--gpu", "8GiB")[1]["basis"]["compute"] == "model"
    assert ask("--planner", "/nowhere/at/all")[0] == 2
