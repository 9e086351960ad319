"""Laws of triage of a load that fails for memory: the log alone ends with a change, fills the report, and nobody is asked for what it says."""

from __future__ import annotations

import json

import pytest

from diagnose.cli import command_line
from tests.logs.oom_logs import PATH, OnCard, oom_log

CARDS = (
    OnCard("NVIDIA GeForce RTX 3090", 23900, 9000, 13000),
    OnCard("NVIDIA GeForce RTX 3060", 11800, 4500, 7200),
)
SAID_BY_THE_LOG = {
    "window_asked", "window_shown", "window_trained", "gpu_gib", "weights_gib", "cache_gib", "error_kind", "when", "sent_tokens", "symptom",
}  # fmt: skip


@pytest.fixture
def triaged(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(text, *more):
        (tmp_path / "server.log").write_text(text)
        command_line(["triage", "server.log", "--format", "json", "--no-redact", *more])
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize("command", [(), ("--command", f"llama-server -m {PATH} -c 49152 -ngl 99")])
def test_the_log_alone_names_the_cache_and_gives_a_change(triaged, command):
    document = triaged(oom_log(CARDS), *command)
    assert document["verdict"]["named"] == ["kv-cache-size"]
    assert document["next_test"]["variable"] == "ctx"
    assert (document["next_test"]["from"], document["next_test"]["to"]) == (49152, 32768)


def test_no_next_step_asks_for_what_the_log_says(triaged):
    for cards in (CARDS, (CARDS[0]._replace(weights=13500, kv=16000),)):
        for more in ({}, {"window": 32768}, {"compute": 6500.0}):
            document = triaged(oom_log(cards, **more))
            step = document["next_test"]
            assert step["kind"] != "answer" or step["variable"] not in SAID_BY_THE_LOG
            for said in document["verdict"]["would_decide"]:
                assert not any(f"Answer {one}:" in said for one in SAID_BY_THE_LOG), said


def test_the_report_says_what_the_log_printed(triaged):
    subject = triaged(oom_log(CARDS))["subject"]
    model = subject["model"]
    assert (model["name"], model["path"], model["quantization"], model["architecture"]) == (
        "Example 24B Instruct",
        PATH,
        "Q4_K - Medium",
        "llama",
    )
    assert model["size_bytes"] == pytest.approx(13.34 * 2**30, rel=0.01)
    assert model["parameters"] == 23_570_000_000
    assert subject["window"] == {"asked": 49152, "trained": 32768, "per_slot": 49152, "slots": 1, "in_force": None}
    assert subject["kv_cache"]["placement"] == "CUDA0, CUDA1"
    assert subject["kv_cache"]["size_bytes"] == 20200 * 2**20
    assert subject["kv_cache"]["unified"] is False
    assert (subject["placement"]["layers"], subject["placement"]["gpu_layers"]) == (40, 41)
    runtime = subject["runtime"]
    assert (runtime["batch"], runtime["ubatch"], runtime["flash_attention"], runtime["threads"]) == (
        2048,
        256,
        "off",
        6,
    )
    assert runtime["rope"]["rope_scaling"] == "linear"
    assert subject["hardware"]["os"] == "Linux"


def test_where_no_server_was_asked_none_is_said_to_be_silent(triaged):
    unknown = triaged(oom_log(CARDS))["unknown"]
    assert unknown
    assert not any("HTTP" in one["note"] for one in unknown.values())


def test_the_lines_that_decide_are_shown_before_details(triaged):
    lines = [one["text"] for one in triaged(oom_log(CARDS))["log_lines"]]
    for part in (
        "alloc_tensor_range: failed to allocate CUDA1 buffer",
        "failed to allocate buffer for kv cache",
        "cudaMalloc failed",
        "using device CUDA0",
        "using device CUDA1",
        "file size",
        "flash_attn",
        "CUDA0 KV buffer size",
    ):
        assert any(part in line for line in lines), part
    assert not any("freq_scale" in line or "rope type" in line for line in lines)


def test_what_a_command_says_is_no_answer(triaged):
    document = triaged(oom_log(CARDS), "--command", "llama-server -m a.gguf -c 49152 -ngl 99", "--all")
    told = [fact for cause in document["verdict"]["causes"] for clue in cause["clues"] for fact in clue["facts"]]
    assert any(fact["source"] == "--command" for fact in told)
    assert not any(fact["source"] == "user" for fact in told)


def test_what_a_change_saves_is_said_where_the_log_tells_it(triaged):
    # 40 layers, 8 heads of 128, keys and values of 2 bytes: 160 KiB a token
    held = (CARDS[0]._replace(kv=5000), CARDS[1]._replace(kv=2680))
    notes = " ".join(triaged(oom_log(held))["notes"])
    assert (
        "49,152 tokens takes 7.50 GiB in all; 2.62 GiB of it could not be had. Half of the window saves 3.75 GiB"
        in notes
    )
    assert "q8_0 for keys and values (with flash attention on) would save 3.52 GiB" in notes
    other = " ".join(triaged(oom_log(CARDS))["notes"])
    assert "could not be had" in other
    assert "q8_0" not in other  # its size is none of f16, so its type is not known
