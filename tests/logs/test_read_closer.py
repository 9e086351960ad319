"""Things that held-out public reports showed to be read wrongly, each as its class."""

from __future__ import annotations

from typing import Any

import pytest

from probes.evidence.records import EvidenceSet
from probes.logs import read_pasted, tail_events
from rules.catalogue import judge_evidence


def settings_of(text: str) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for one in read_pasted(text):
        if one.kind == "configuration" and one.data:
            told |= {name: setting["value"] for name, setting in one.data["settings"].items()}
    return told


def kinds(log: str) -> list[str]:
    return [event.event for event in tail_events(log)]


def test_a_command_goes_on_in_indented_lines() -> None:
    told = settings_of("It crashes.\n\n```\nllama-server -m model.gguf\n    --ctx-size 65536\n    --parallel 2\n```\n")
    assert (told["ctx"], told["parallel"]) == (65536, 2)


def test_a_clients_settings_are_its_own_words() -> None:
    answers = {
        one.data["question"]: one.data["value"]
        for one in read_pasted(
            'My client forgets.\n\n```json\n{"baseURL": "http://localhost:11434/v1", "limit": {"context": 65536, "output": 8192}}\n```\n'
        )
        if one.kind == "answer" and one.data
    }
    assert 65536 in answers.values()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("systemd[1]: llama.service: A process of this unit has been killed by the OOM killer.", "oom-killer"),
        ("request (41000 tokens) exceeds the available", "refused"),
        ("INFO 12-20 20:25:49 model_runner.py:1413] Capturing cudagraphs for decoding.", "graph"),
        ("Error: Prefill context too large for available memory (preflight safety guard): predicted peak would require ~25.53 GB", "alloc-failed"),
    ],
)  # fmt: skip
def test_a_line_is_the_event_that_it_tells(line: str, kind: str) -> None:
    assert kind in kinds(line + "\n")


def test_what_torch_advises_is_no_error() -> None:
    assert "kernel-error" not in kinds("Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n")
    assert "kernel-error" in kinds("RuntimeError: CUDA error: device-side assert triggered\n")


def test_a_plain_line_says_what_the_memory_was_for() -> None:
    (event,) = [
        one
        for one in tail_events("ERROR: out of memory while allocating the KV cache, need 6.5 GiB\n")
        if one.event == "alloc-failed"
    ]
    assert event.component == "kv"


OOM_THEN_CRASH = """It ends at start.
```
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 6564.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 6882852864
llama_init_from_model: failed to initialize the context: failed to allocate buffer for kv cache
Segmentation fault (core dumped)
```
"""


def test_a_crash_after_a_refused_allocation_is_its_consequence() -> None:
    judgement, _facts = judge_evidence(EvidenceSet(read_pasted(OOM_THEN_CRASH)), "triage")
    assert judgement.findings[0].cause == "kv-cache-size"


def answers_of(text: str) -> dict[str, Any]:
    return {one.data["question"]: one.data["value"] for one in read_pasted(text) if one.kind == "answer" and one.data}


def named_in(text: str) -> list[str]:
    return [cause for one in read_pasted(text) if one.kind == "mechanisms" and one.data for cause in one.data["named"]]


@pytest.mark.parametrize(
    ("said", "unset"),
    [
        ("I never set num_ctx.", True),
        ("It runs without any num_ctx.", True),
        ("When num_ctx is not set, it answers at once; with a larger one it is slow.", False),
        ("The bridge does not forward num_ctx.", False),
        ("Compaction never fires regardless of context size.", False),
        ("The limit of the context is hard-coded.", False),
    ],
)
def test_a_window_that_is_unset_is_told_as_such_and_not_as_the_other_half_of_a_comparison(
    said: str, unset: bool
) -> None:
    assert (answers_of(f"# Ollama\n\n{said}\n").get("window_set") == "not-set") is unset


def test_a_later_command_that_works_is_not_the_one_that_fails() -> None:
    told = (
        "# Out of memory\n\n```\nllama-server -m big.gguf -md small.gguf -c 65536\n```\n\nIt dies at once. {}\n\n"
        "```\nllama-server -m big.gguf -c 65536 -ub 256\n```\n"
    )
    assert "ubatch" not in settings_of(told.format("However, if I run it this way it is fine:"))
    assert "ubatch" in settings_of(told.format("This one does not work either:"))


def test_a_word_that_ends_in_on_is_no_beginning() -> None:
    assert "at-load" not in answers_of("# A\n\nEvery message in the same conversation starts a new dialogue.").get(
        "when", ()
    )
    assert "at-load" in answers_of("# A\n\nIt crashes on start.")["when"]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("After a day of idling the container no longer uses the GPU.", "gpu-lost-at-runtime"),
        ("It reverts to the CPU over time and needs a restart.", "gpu-lost-at-runtime"),
        ("The GPU ends with a page fault in dmesg.", "driver-kernel-bug"),
        ("Auto-compaction never runs, the limit is the wrong one.", "client-ctx-mismatch"),
        ("Compaction comes far too early, most is reserved for the output.", "output-budget-eats-window"),
    ],
)
def test_what_is_lost_over_time_and_what_a_client_does_too_early_or_never_are_named(said: str, cause: str) -> None:
    assert cause in named_in(f"# Trouble\n\n{said}\n")


def test_a_gpu_that_hangs_is_no_line_of_a_kernels_log() -> None:
    assert "kernel_log" not in answers_of("# A\n\nThe GPU hangs now and then.")
    assert "gpu-timeout" in answers_of("# A\n\ndmesg has: ring gfx_0.0.0 timeout")["kernel_log"]


@pytest.mark.parametrize(
    ("said", "question", "value"),
    [
        ("The processor is 100% GPU and it is still very slow.", "busy", "cpu"),
        ("It only processed the tokens of my last message before.", "what_is_wrong", "all-but-end-lost"),
        ("I only altered the last sentence or two.", "what_is_wrong", "all-but-end-lost"),
        ("With long input the program crashes immediately after it finishes its answer.", "when", "at-load"),
    ],
)
def test_what_sounds_like_a_trouble_and_is_none(said: str, question: str, value: str) -> None:
    told = answers_of(f"# Trouble\n\n{said}\n").get(question, ())
    assert value != told
    assert value not in (told if isinstance(told, (list, tuple)) else ())
