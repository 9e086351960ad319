"""Short texts as people paste them: a line of a program beside a command, a server's name or a sentence, and texts that are about nothing of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.triage import gather
from probes.evidence.answers import Answer, Mechanisms
from probes.evidence.events import LogEvent
from probes.evidence.records import EvidenceSet
from probes.logs.pasted import kind_of, read_pasted
from rules.catalogue import facts_of, judge_evidence
from rules.facts import ALLOC_FREE_BYTES, ALLOC_ROOM, BACKEND

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
REFUSED = "request (9012 tokens) exceeds the available context size (8192 tokens), try increasing it"
NEEDS_FLASH = "llama_init_from_model: V cache quantization requires flash_attn"
GIB = 1 << 30


def judged(tmp_path, text):
    """Give the judgement and the facts, as ``triage`` comes to them for a file with that text."""
    file = tmp_path / "pasted.txt"
    file.write_text(text, encoding="utf-8")
    evidence = EvidenceSet(gather([str(file)]).evidence)
    judgement, _facts = judge_evidence(evidence, "triage")
    return judgement, facts_of(evidence), evidence


def told(evidence):
    return {answer.question: answer.value for _record, answer in evidence.of(Answer)}


def of_torch(size, free, total="23.65 GiB", used="20.00 GiB"):
    return [
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of {total} of which {free} is free.",
        f"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacty of {total} of which {free} is free. Process 123 has {used} memory in use. Of the allocated memory {used} is allocated by PyTorch, and 300.00 MiB is reserved by PyTorch but unallocated.",
        f"RuntimeError: CUDA out of memory. Tried to allocate {size} (GPU 0; {total} total capacity; {used} already allocated; {free} free; {used} reserved in total by PyTorch)",
        f"When I send a long prompt it stops with CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of {total} of which {free} is free. Including non-PyTorch memory, this process has 20.5 GiB memory in use. What can I do?",
    ]


@pytest.mark.parametrize("free", ["1.10 GiB", "1.99 GiB", "10.12 MiB", "412.00 MiB"])
@pytest.mark.parametrize("form", range(4))
def test_what_is_free_is_what_pytorch_calls_free(tmp_path, free, form):
    """Less was free than was asked for, in whatever words: no other number of the message, and no part of a number, is what was free."""
    judgement, facts, evidence = judged(tmp_path, of_torch("2.00 GiB", free)[form])
    number, unit = free.split()
    expected = float(number) * (GIB if unit == "GiB" else 1 << 20)
    assert facts.value(ALLOC_FREE_BYTES) == pytest.approx(expected, rel=0.01)
    assert facts.value(ALLOC_ROOM) is False
    assert "room_left" not in told(evidence)
    assert "ram_gib" not in told(evidence)
    assert judgement.findings[0].cause != "memory-fragmentation"


@pytest.mark.parametrize("form", range(4))
def test_more_free_than_was_asked_for_is_still_seen(tmp_path, form):
    judgement, facts, _evidence = judged(tmp_path, of_torch("2.00 GiB", "6.10 GiB")[form])
    assert facts.value(ALLOC_ROOM) is True
    assert judgement.of("memory-fragmentation").now > 0


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 199), st.integers(2, 90), st.integers(0, 3))
def test_no_number_of_pytorch_is_read_as_room(hundredths, size, form):
    text = of_torch(f"{size}.00 GiB", f"{hundredths / 100:.2f} GiB", "95.00 GiB")[form]
    facts = facts_of(EvidenceSet(read_pasted(text)))
    assert facts.value(ALLOC_ROOM) is not True


@pytest.mark.parametrize(
    "command",
    [
        "llama-server -m q.gguf -c 32768 -np 4",
        "$ llama-server -m q.gguf -c 32768 -np 4",
        "./build/bin/llama-server -m q.gguf -c 32768 -np 4",
        "Command: llama-server -m q.gguf -c 32768 -np 4",
        "I start llama-server with -c 32768 -np 4 and get:",
        "> C:\\llama\\llama-server.exe -m q.gguf --ctx-size 32768 --parallel 4",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_a_command_beside_a_line_of_a_log_is_the_servers(tmp_path, command, first):
    """Its settings and its server are known, wherever it stands."""
    rows = [command, REFUSED] if first else [REFUSED, command]
    judgement, facts, _evidence = judged(tmp_path, "\n".join(rows))
    assert judgement.findings[0].cause == "slots-divide-ctx"
    assert facts.value(BACKEND) == "llama.cpp"


def test_the_window_that_a_refusal_names_is_not_the_one_asked_for():
    assert "window_asked" not in {
        one.data["question"] for one in read_pasted(f"It says: {REFUSED}") if one.kind == Answer.kind
    }


def test_a_log_stays_a_log_though_it_is_short_and_names_its_program():
    assert kind_of(REFUSED) == "log"
    for name in ("vllm-0.33", "koboldcpp-1.102", "mlx_lm-0.32.2", "sglang-0.5.23", "vllm-0.32.0-cpu"):
        rows = (RECORDED / f"{name}.log").read_text().split("\n")
        assert kind_of("\n".join(rows[:12])) == "log", name


@pytest.mark.parametrize(
    "text",
    [
        "the quick brown fox asdf qwer",
        "order a pizza with mushrooms",
        "Everything works great with llama.cpp, thank you!",
        "vLLM runs fine on my machine, great work!",
        "How do I change the color theme of the interface to dark mode?",
        "my cat sat on the keyboard and typed a long message",
        "What is the best recipe for a large cake with chocolate and a little sugar?",
        "When will the next version be released?",
        "Bonjour, j'utilise LM Studio avec un modèle Qwen sur mon Mac. Tout marche bien, mais comment changer la langue de l'interface ?",
        "Ich nutze LM Studio und möchte die Sprache der Oberfläche ändern. Alles läuft gut, danke!",
        "Hola, uso Ollama con un modelo en mi PC y quiero saber cómo cambiar el idioma de la aplicación, gracias",
    ],
)
def test_a_text_about_something_else_is_like_no_cause(tmp_path, text):
    """Below some words of the matter nothing is in play by likeness; what is open then is open for every text."""
    judgement, _facts, evidence = judged(tmp_path, text)
    assert not evidence.of(Mechanisms)
    assert [finding.cause for finding in judgement.findings if finding.band in {"likely", "disputed", "possible"}] == []


@pytest.mark.parametrize("text", ["my model forgets everything", "CUDA out of memory", "it is slow with a long prompt"])
def test_few_words_are_enough_where_they_tell_a_trouble(text):
    assert [
        payload for one in read_pasted(text) if one.kind == Mechanisms.kind for payload in [one.data] if payload["like"]
    ]


@pytest.mark.parametrize("marks", ['"{}"', "“{}”", "„{}“", "« {} »", "`{}`", "'{}'"])
@pytest.mark.parametrize(
    "said",
    [
        "With a quantised cache it fails: {}",
        "I run llama-server -m q.gguf -ctv q8_0 and it fails: {}",
        "llama-server -m q.gguf -ctk q8_0 -ctv q8_0 fails: {}",
        "Since yesterday I get {} when I start it.",
    ],
)
@pytest.mark.parametrize("broken", [False, True])
def test_a_message_quoted_in_a_sentence_is_read(tmp_path, marks, said, broken):
    """Also beside a command, and over the end of a line."""
    message = NEEDS_FLASH.replace("quantization requires", "quantization\nrequires") if broken else NEEDS_FLASH
    judgement, _facts, evidence = judged(tmp_path, said.format(marks.format(message)))
    assert [event.event for _record, event in evidence.of(LogEvent) if event.event != "command"] == ["load-failed"]
    assert judgement.findings[0].cause == "kv-quant-needs-flash-attn"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="\"'`“”„«» abc\n:", max_size=400))
def test_any_quotation_marks_are_read(text):
    read_pasted(f"{text}{NEEDS_FLASH}{text}")


OUT = "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 5120.00 MiB on device 0: cudaMalloc failed: out of memory"


@pytest.mark.parametrize(
    ("text", "server"),
    [
        (f"LM Studio 0.3.9\n{REFUSED}", "lm-studio"),
        (f"{REFUSED}\nThat is LM Studio 0.3.9", "lm-studio"),
        (f"mlx_lm.server --model mlx-community/Qwen3-8B-4bit\n{REFUSED}", "mlx_lm"),
        (
            "$ mlx_lm.server --model mlx-community/Qwen3-8B-4bit\nRuntimeError: [metal::malloc] Attempting to allocate 12884901888 bytes",
            "mlx_lm",
        ),
        (f"ik_llama.cpp llama-server\n{OUT}", "ik_llama.cpp"),
        (f"ik_llama.cpp llama-server -m q.gguf -c 65536\n{OUT}", "ik_llama.cpp"),
        (f"llama-server -m q.gguf -c 65536, it works in ik_llama.cpp but not in llama.cpp\n{OUT}", "llama.cpp"),
        (
            "WARNING 06-12 10:11:12 scheduler.py:1245] Sequence group 3 is preempted by PreemptionMode.RECOMPUTE mode because of too little space",
            "vllm",
        ),
        (
            "My requests wait for long, and I see\nINFO 06-12 10:11:12 [scheduler.py:245] Something new of this version\nwhenever many come.",
            "vllm",
        ),
    ],
)
def test_the_server_that_a_short_text_names_is_known(tmp_path, text, server):
    _judgement, facts, _evidence = judged(tmp_path, text)
    assert facts.value(BACKEND) == server


@pytest.mark.parametrize(
    "said",
    [
        "text-generation-webui: settings.yaml has truncation_length: 2048 and it forgets what I said, although the model was loaded with n_ctx = 32768",
        "I use text-generation-webui. My settings.yaml has truncation_length: 2048. It forgets the start of long chats. n_ctx = 32768.",
        "oobabooga: `truncation_length` is still 2048, it forgets the beginning. The model has n_ctx = 32768",
        "text-generation-webui. Truncate the prompt up to this length is 2048. It forgets the beginning of long chats. n_ctx = 32768.",
    ],
)
def test_the_length_that_text_generation_webui_cuts_to_is_read_from_a_sentence(tmp_path, said):
    judgement, _facts, evidence = judged(tmp_path, said)
    assert judgement.findings[0].cause == "silent-truncation-default-ctx"
    assert "silent-truncation-default-ctx" in evidence.of(Mechanisms)[0][1].named


def test_the_length_it_cuts_to_is_the_window_where_no_other_is_named(tmp_path):
    _judgement, _facts, evidence = judged(tmp_path, "text-generation-webui forgets the start, truncation_length: 3000")
    assert told(evidence)["window_shown"] == 3000
