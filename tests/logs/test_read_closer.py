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
        ("init: the tokens of sequence 1 in the input batch have inconsistent sequence positions:", "decode-failed"),
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


@pytest.mark.parametrize(
    "told",
    [
        "A reasoning model is used.",
        "The GPU kernel spins in an endless loop.",
        "Reason: the queue was empty.",
    ],
)
def test_words_of_programs_are_no_complaint_about_answers(told: str) -> None:
    wrong = answers_of(f"# It stops\n\n{told}\n").get("what_is_wrong", ())
    assert not {"reasoning", "repeats", "lost-thread"} & set(wrong)


def test_a_server_that_goes_on_after_its_client_left_has_no_time_limit() -> None:
    told = "# Work goes on\n\nThe client disconnects, but the server keeps processing the request for minutes.\n"
    assert answers_of(told).get("error_kind") != "timeout"


def test_another_settings_number_is_no_failing_length() -> None:
    told = (
        "# Out of memory\n\nIt crashes with max_new_tokens above 2000 tokens and blas batch size of some 2048 tokens.\n"
    )
    assert "fails_at" not in answers_of(told)


def test_a_commit_found_by_bisecting_is_a_changed_server() -> None:
    told = "# Crash\n\nIt crashes on long prompts. git bisect shows the first bad commit.\n"
    assert "server" in answers_of(told).get("changed", ())


@pytest.mark.parametrize(
    "told", ["It ignores the system prompt.", "The system prompt is simply ignored.", "It ignores all of the context."]
)
def test_an_ignored_prompt_is_a_lost_beginning(told: str) -> None:
    answers = answers_of(f"# Strange answers\n\n{told} Short prompts are fine.\n")
    assert "beginning-lost" in answers.get("what_is_wrong", ())


def test_a_variable_without_a_value_does_not_take_the_next_ones_name() -> None:
    told = settings_of(
        "It is slow.\n\n```\nOLLAMA_FLASH_ATTENTION:false OLLAMA_KV_CACHE_TYPE: OLLAMA_LLM_LIBRARY: OLLAMA_NUM_PARALLEL:2\n```\n"
    )
    assert "kv_type_k" not in told
    assert told["parallel"] == 2


def test_a_crash_at_start_is_no_window_divided_by_slots() -> None:
    told = """# It dies at once
```
llama_context: n_seq_max     = 2
llama_context: n_ctx         = 16384
llama_context: n_ctx_seq     = 8192
srv    load_model: initializing slots, n_slots = 2
Illegal instruction (core dumped)
```
It ends with SIGILL.
"""
    judgement, _facts = judge_evidence(EvidenceSet(read_pasted(told)), "triage")
    (slots,) = [one for one in judgement.findings if one.cause == "slots-divide-ctx"]
    assert slots.band not in {"likely", "confirmed"}


def test_a_cache_of_four_bits_and_a_complaint_are_not_enough() -> None:
    told = "# Worse answers\n\n`llama-server -c 16384 -ctk q4_0 -ctv q4_0 -fa on`\n\nThe reasoning is bad and tool calls fail.\n"
    judgement, _facts = judge_evidence(EvidenceSet(read_pasted(told)), "triage")
    (quant,) = [one for one in judgement.findings if one.cause == "kv-quant-quality"]
    assert quant.band == "possible"


def test_a_time_limit_of_a_server_that_stands_still_is_no_clients() -> None:
    assert answers_of("# It ends\n\nThe engine hangs and every request times out.\n").get("error_kind") != "timeout"
    assert answers_of("# It ends\n\nThe request times out after 300 s.\n").get("error_kind") == "timeout"


def test_a_batch_that_does_not_go_with_the_slots_state_is_the_servers_own_failure() -> None:
    told = """# Error 500
```
init: the tokens of sequence 1 in the input batch have inconsistent sequence positions:
decode: failed to initialize batch
llama_decode: failed to decode, ret = -1
```
From then on each request fails.
"""
    judgement, _facts = judge_evidence(EvidenceSet(read_pasted(told)), "triage")
    assert judgement.findings[0].cause == "server-state-bug"


def pasted_kinds(text: str) -> list[str]:
    return [one.data["event"] for one in read_pasted(text) if one.kind == "log_event" and one.data]


def test_marks_of_markdown_are_no_part_of_a_setting() -> None:
    told = "# It forgets\n\n- **OLLAMA_KV_CACHE_TYPE:** \n- **OLLAMA_CONTEXT_LENGTH:** 8192\n- **OLLAMA_NUM_PARALLEL**: 2\n"
    settings = settings_of(told)
    assert "kv_type_k" not in settings
    assert (settings["ctx"], settings["parallel"]) == (8192, 2)


def test_a_quoted_log_line_is_a_log_line() -> None:
    told = "# It dies\n\n> CUDA error 2 at ggml-cuda.cu:3844: out of memory\n"
    assert pasted_kinds(told) == ["alloc-failed"]
    assert answers_of(told)["error_kind"] == "gpu-memory"


BROKEN = """# It is slow

llama_context: n_ctx         = 65536
out of memory handling
llama_context: n_batch       = 2048
"""


def test_the_rest_of_a_log_line_that_was_broken_is_not_the_reporters_own_words() -> None:
    assert "error_kind" not in answers_of(BROKEN)
    assert answers_of("# It is slow\n\nThen it ended, out of memory.\n")["error_kind"] == "gpu-memory"


JOB = (
    "Job requires 33 pages (only 32 available) and cannot be enqueued. Total cache allocated is 32 * 256 = 8192 tokens"
)


def test_a_title_that_repeats_a_line_shown_below_is_no_event_of_its_own() -> None:
    body = f"```\nAssertionError: {JOB}\n```\n"
    assert pasted_kinds(f"# [BUG] {JOB}\n\nIt ends with:\n\n{body}") == ["refused"]
    assert pasted_kinds(f"# [BUG] {JOB}\n\nIt ends with this.\n") == ["refused"]


@pytest.mark.parametrize(
    "told",
    [
        "The discovery watchdog restarted the runner.",
        "The health watchdog of our gateway took the server out.",
        "nvidia-smi then prints GPU reset required.",
    ],
)
def test_a_programs_own_watchdog_is_no_time_limit_of_the_gpu(told: str) -> None:
    text = f"# It stops\n\n{told}\n"
    assert "gpu-watchdog-timeout" not in named_in(text)
    assert "gpu-timeout" not in answers_of(text).get("kernel_log", ())


def test_a_cached_slot_that_is_loaded_is_a_failure_only_where_something_fails() -> None:
    fine = "# It forgets\n\nThe server loads the cached slot for each request.\n"
    assert answers_of(fine).get("failed_while") != "restoring"
    broken = "# It ends\n\nIt crashes while restoring the saved slot.\n"
    assert answers_of(broken).get("failed_while") == "restoring"


def test_layers_that_the_user_takes_off_did_not_fall_off() -> None:
    assert "layers_fell" not in answers_of("# Slow\n\nI tried to use fewer layers and it stays slow.\n")
    assert answers_of("# Slow\n\nAt 64k fewer layers are on the GPU and it is slow.\n").get("layers_fell") is True


@pytest.mark.parametrize(
    ("told", "gib"),
    [
        ("I offload 10 GPU layers of it.", 24),
        ("There were two GPU crashes today.", 24),
        ("There are two GPUs in it.", 48),
    ],
)
def test_a_number_before_gpu_is_a_count_of_gpus_only_where_it_counts_them(told: str, gib: int) -> None:
    assert answers_of(f"# It is slow\n\n{told} It is slow on an RTX 4090.\n")["gpu_gib"] == gib


@pytest.mark.parametrize(
    ("told", "question", "value"),
    [
        ("The server silently truncates my text.", "said_truncated", False),
        ("Every request is read from token 0.", "rereads", "all"),
        ("The second time it shows 0% cache hits for the prefix: 0% prefix cache hits.", "same_prompt_again", "never"),
        ("It is no longer caching prompts.", "same_prompt_again", "never"),
        ("It is slower when I use both GPUs.", "one_card_faster", True),
        ("The slowness continues until the machine is rebooted.", "fresh_start", "reboot-only"),
        ("After a few minutes the CPU usage rises to 100 %.", "gpu_seen", "unused"),
        ("ollama ps shows it in VRAM.", "on_gpu", "all"),
        ("It should not use that much VRAM.", "need_excess", True),
        ("The second GPU is not used at all.", "which_card", "one"),
    ],
)
def test_what_is_told_in_other_words_is_the_same(told: str, question: str, value: object) -> None:
    assert answers_of(f"# Trouble\n\n{told}\n").get(question) == value


@pytest.mark.parametrize(
    ("told", "lost"),
    [
        ("It truncates the beginning of my prompt.", True),
        ("The system message gets dropped at length.", True),
        ("Please truncate the beginning instead of failing.", False),
    ],
)
def test_a_beginning_is_lost_where_the_report_says_that_it_is(told: str, lost: bool) -> None:
    assert ("beginning-lost" in answers_of(f"# Trouble\n\n{told}\n").get("what_is_wrong", ())) is lost


@pytest.mark.parametrize(
    ("told", "cause"),
    [
        ("Since the update it is no longer caching prompts.", "prompt-cache-not-implemented"),
        ("After a few minutes it becomes slow and only the CPU works, until I reboot.", "gpu-lost-at-runtime"),
    ],
)
def test_a_cache_that_ended_and_a_card_that_is_lost_in_time_are_named(told: str, cause: str) -> None:
    assert cause in named_in(f"# Trouble\n\n{told}\n")


def test_a_server_that_refuses_by_a_rule_of_its_own_has_no_internal_error() -> None:
    body = "It answers with an internal server error.\n\n```\n{}\n```\n"
    assert answers_of("# Error 500\n\n" + body.format(f"AssertionError: {JOB}")).get("error_kind") != "internal"
    assert answers_of("# Error 500\n\n" + body.format("nothing else")).get("error_kind") == "internal"


def test_a_request_that_ended_badly_says_when() -> None:
    line = '[GIN] 2024/05/01 - 10:00:00 | {} |  59.69s |  127.0.0.1 | POST "/api/chat"'
    for status, kept in ((500, True), (200, False)):
        told = f"# It ends\n\n```\n{line.format(status)}\n```\n"
        assert ("http" in pasted_kinds(told)) is kept


def test_the_highest_slot_that_a_log_lists_says_how_many_there_are() -> None:
    lines = "".join(f"slot         init: id  {slot} | task -1 | new slot, n_ctx = 512\n" for slot in range(6))
    told = [
        one.data for one in read_pasted(f"# It repeats\n\n```\n{lines}```\n") if one.kind == "log_event" and one.data
    ]
    assert [one["count"] for one in told if one["which"] == "per-slot"] == [6]
