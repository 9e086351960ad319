"""Law: for every record of the reference set, caches, states, windows and output buffer are what llama.cpp allocated, to the byte."""

from __future__ import annotations

from collections import Counter

import pytest

from probes.model_file.architectures import RULES
from probes.model_file.compute import ERROR_BYTES, ERROR_SHARE, compute_bytes
from probes.model_file.context import ContextSettings, Refused, memory_of
from probes.model_file.planner import Model
from tests.tools.architectures import PAGE
from tests.tools.architectures import main as architectures_page

MIB = 1024**2


def settings_of(record):
    s = record["settings"]
    return ContextSettings(
        ctx=s["n_ctx"], kv_k=s["cache_type_k"], kv_v=s["cache_type_v"], parallel=s["n_parallel"], kv_unified=s["kv_unified"],
        batch=s["n_batch"], ubatch=s["n_ubatch"], swa_full=s["swa_full"], flash_attn=s["flash_attn"],
        kind=s.get("context_type", "default"), rollback=s.get("n_rs_seq", 0),
    )  # fmt: skip


@pytest.fixture(scope="module")
def models(truth_models):
    return {name: Model.read(path) for name, path in truth_models.items()}


def test_every_model_is_known(models):
    assert {name: str(model.unknown) for name, model in models.items() if model.unknown} == {}


def test_every_ok_record_is_exact(truth, models):
    """Bytes, windows and batches, and each cache's cells, streams, layers, key and value bytes; states and output buffer too."""
    wrong = []
    seen = 0
    for record in truth["records"]:
        if record["result"] != "ok":
            continue
        seen += 1
        settings = settings_of(record)
        planned = models[record["gguf"]].plan(settings)
        if isinstance(planned, Refused):
            wrong.append((record["id"], str(planned)))
            continue
        memory = memory_of(planned, settings)
        state = sum(record.get("recurrent", {}).values())
        expected = (
            record["n_ctx"], record["n_ctx_seq"], record["n_batch"], record["n_ubatch"], record["memory_bytes"], state, record["output_bytes"],
            [(c["name"], c["cells"], c["streams"], c["layers"], c["k_bytes"], c["v_bytes"]) for c in record["caches"]],
        )  # fmt: skip
        got = (
            memory.ctx, memory.ctx_per_slot, memory.batch, memory.ubatch, memory.kv_bytes + memory.state_bytes, memory.state_bytes,
            memory.output_bytes, [(c.name, c.cells, c.streams, list(c.layers), c.k_bytes, c.v_bytes) for c in memory.caches],
        )  # fmt: skip
        if got != expected:
            wrong.append((record["id"], got, expected))
    assert wrong == []
    assert seen == 2590


def test_refusals_are_predicted_with_their_reason(truth, models):
    """At least 95 of 100 refused records are predicted with what llama.cpp says; here all are. Aborted ones are refused as well."""
    outcomes = Counter()
    for record in truth["records"]:
        if record["result"] == "ok":
            continue
        planned = models[record["gguf"]].plan(settings_of(record))
        said = record["error"].split(": ", 1)[-1]
        if not isinstance(planned, Refused):
            outcomes[record["result"], "missed"] += 1
        else:
            outcomes[record["result"], "reason" if said in str(planned) else "predicted"] += 1
    assert outcomes["refused", "reason"] == 206
    assert outcomes["aborted", "missed"] == 0
    assert outcomes["refused", "missed"] == 0


def test_work_space_is_within_its_stated_error(truth, models):
    """Of models of published size nine in ten contexts are within the stated share; of all, 97 in 100 within share or floor."""
    real, all_of_them = [], []
    for record in truth["records"]:
        if record["result"] != "ok":
            continue
        settings = settings_of(record)
        planned = models[record["gguf"]].plan(settings)
        guess = compute_bytes(planned, memory_of(planned, settings), settings)
        off = abs(guess - record["compute_bytes"])
        all_of_them.append(off <= max(ERROR_BYTES, ERROR_SHARE * record["compute_bytes"]))
        if record["gguf"].startswith("real-"):
            real.append(off / record["compute_bytes"])
    real.sort()
    assert real[len(real) // 2] < 0.01
    assert real[len(real) * 9 // 10] < ERROR_SHARE / 4
    assert sum(all_of_them) / len(all_of_them) > 0.97


def test_weights_on_the_host_are_the_files_tensors(truth, models):
    """Without devices the host holds all tensors; prediction layers are loaded only for a draft (mapped ranges round up a little)."""
    checked = 0
    for record in truth["records"]:
        model = models[record["gguf"]]
        if record["result"] != "ok" or not record["gguf"].startswith("real-") or "gemma-3n" in record["gguf"]:
            continue
        weights = model.weights(drafting=record["settings"].get("context_type") == "mtp")
        _on, host = weights.on_devices([-1] * (model.shape.layers_all + 1), 0)
        assert host == record["weight_bytes"], record["id"]
        checked += 1
    assert checked > 400


def test_the_second_set_is_exact_too(truth_models, more_truth, more_truth_models):
    """Law: on architectures that the first set lacks, with layouts drawn by chance, every number is what llama.cpp allocated as well."""
    first = {Model.read(path).header.architecture for path in truth_models.values()}
    models = {name: Model.read(path) for name, path in more_truth_models.items()}
    assert {name: str(model.unknown) for name, model in models.items() if model.unknown} == {}
    assert len({model.header.architecture for model in models.values()} - first) >= 80
    wrong = []
    outcomes = Counter()
    for record in more_truth["records"]:
        settings = ContextSettings(**record["settings"])
        planned = models[record["gguf"]].plan(settings)
        refused = isinstance(planned, Refused)
        outcomes[record["result"], "refused" if refused else "ok"] += 1
        if record["result"] != "ok" or refused:
            continue
        memory = memory_of(planned, settings)
        got = (memory.ctx, memory.ctx_per_slot, memory.batch, memory.ubatch, memory.kv_bytes + memory.state_bytes)
        expected = tuple(record[name] for name in ("n_ctx", "n_ctx_seq", "n_batch", "n_ubatch", "memory_bytes"))
        caches = [
            [cache.cells, len(cache.layers), round(cache.k_bytes / MIB, 2), round(cache.v_bytes / MIB, 2)]
            for cache in memory.caches
        ]
        if got != expected or caches != record["caches"]:
            wrong.append((record["gguf"], record["settings"], got, expected, caches, record["caches"]))
    assert wrong == []
    assert outcomes["ok", "refused"] == 0
    assert outcomes["refused", "ok"] <= 0.05 * outcomes["refused", "refused"]
    assert outcomes["ok", "ok"] > 1500


def test_the_page_of_architectures_is_fresh():
    """Law: the page says of every known architecture what was compared; run python -m tests.tools.architectures where this fails."""
    assert architectures_page(["--check"]) == 0
    text = PAGE.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in RULES)
