"""A pasted report gives events, settings and answers, each with its source; a person's words never count as a program's."""

from __future__ import annotations

import base64
import json
import random
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.questions import QUESTIONS
from probes.evidence.errors import CtxDoctorError
from probes.evidence.records import Evidence
from probes.logs import kind_of, read_any, read_pasted
from probes.logs.pasted import is_log_line
from probes.logs.prose import read_prose
from probes.logs.sayings import SAYINGS
from rules.causes import CAUSES
from tests.replay import Report, judged

RECORDED = Path(__file__).parents[1] / "recordings" / "logs"
TYPES = {question.id: question for question in QUESTIONS}

STUCK = """### What happened
I'm running Qwen3.8-27B Q5_K_M on an RTX 5060 Ti 16GB + RTX 3070 8GB with llama.cpp b11434.
With `-c 131072` everything loads, but as soon as the prompt goes past roughly 72k tokens the server dies with a CUDA error. Below 70k it works every time.
Command: `llama-server -m qwen.gguf -c 131072 -ngl 99 -ctk q8_0 -ctv q8_0 -fa on -ub 2048 --tensor-split 16,8`
Restarting doesn't help. 18 tok/s at 64k, 36 tok/s at 2k.
"""
FORGOT = """Open WebUI with Ollama (0.12.3, Windows 11, RTX 4070 12 GB). I upload a 30-page PDF and ask about chapter one, but the model only
knows the last few pages and makes up the rest. No error anywhere. I never set num_ctx."""
KOREAN = "로컬 Qwen을 128K로 설정했는데 72K 부근에서 항상 오류가 나고 서버가 죽습니다. RTX 3090 24GB, 우분투, llama.cpp 사용. 짧은 프롬프트는 문제 없음."
SLOW = """Since I updated to the latest release my M3 Max 64GB takes ages before the first token. Every message in a long chat re-processes the
entire conversation, even if I only add one line. Claude Code through a local llama-server. Log says:

```
slot update_slots: id  0 | task 812 | forcing full prompt re-processing due to lack of cache data (likely due to SWA or hybrid/recurrent memory, see https://x)
slot print_timing: id  0 | task 812 | prompt eval time =   61234.00 ms / 45211 tokens (    1.35 ms per token,   738.33 tokens per second)
```
"""
TOGETHER = """Sometimes the server answers fine, sometimes it returns HTTP 500 "Context size has been exceeded" even though my prompts are only 20k
tokens and the context is 32k. It only happens when two agents use it at the same time. One request alone always works. LLAMA_ARG_N_PARALLEL=4"""
COMPOSE = """```yaml
services:
  ollama:
    environment:
      - OLLAMA_CONTEXT_LENGTH=65536
      - OLLAMA_NUM_PARALLEL=4
```
Loading gpt-oss:20b on my 16GB card spills to CPU:

NAME           ID              SIZE     PROCESSOR          CONTEXT    UNTIL
gpt-oss:20b    17052f91a42e    29 GB    45%/55% CPU/GPU    65536      4 minutes from now

Generation went from 60 t/s to 7 t/s after I raised the context."""
IMPATIENT = """The first request with a big repository always fails after exactly 300 seconds in my IDE extension, but if I press retry it completes
in a few seconds. Nothing in the server log."""
STARTUP = """vLLM 0.11 on 2x RTX 3090: `vllm serve Qwen/Qwen3-32B-AWQ --max-model-len 65536 --tensor-parallel-size 2` fails to start with

ValueError: To serve at least one request with the model's max seq len (65536), (16.00 GiB KV cache is needed, which is larger than the available KV cache memory (4.07 GiB). Based on the available memory, the estimated maximum model length is 16672.
"""

EXPECTED: list[tuple[str, dict[str, Any]]] = [
    (STUCK, {"symptom": "fixed-length-error", "fails_at": 72000, "works_at": 70000, "speed_by_length": "2048=36, 65536=18", "gpu_maker": "nvidia", "several_gpus": "unequal", "gpu_gib": 24.0, "fresh_start": "no", "backend": "llama.cpp"}),
    (FORGOT, {"symptom": "forgetting", "os": "windows", "client": "chat-app", "window_set": "not-set", "what_is_wrong": ["all-but-end-lost", "made-up"], "error_kind": "none", "backend": "ollama"}),
    (KOREAN, {"symptom": "fixed-length-error", "fails_at": 72000, "os": "linux", "short_is_right": True, "gpu_gib": 24.0}),
    (SLOW, {"symptom": "slow-long-context", "slow_part": "reading", "rereads": "all", "changed": ["server"], "os": "macos", "client": "agent", "ram_gib": 64.0}),
    (TOGETHER, {"symptom": "flaky", "alone_passes": True, "when": ["now-and-then", "together"], "sent_tokens": 20000, "window_asked": 32768, "slots": 4.0}),
    (COMPOSE, {"symptom": "slow-long-context", "on_gpu": "some-layers", "changed": ["window"]}),
    (IMPATIENT, {"symptom": "flaky", "seconds_to_failure": 300.0, "same_seconds": True, "retry_passes": True, "error_kind": "timeout"}),
    (STARTUP, {"symptom": "immediate-oom", "when": ["at-load"], "several_gpus": "equal", "backend": "vllm"}),
]  # fmt: skip


def answers(evidence: list[Evidence]) -> dict[str, Any]:
    return {one.data["question"]: one.data["value"] for one in evidence if one.kind == "answer" and one.data}


def settings_of(evidence: list[Evidence]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in evidence:
        if one.kind == "configuration" and one.data:
            found.update({key: value["value"] for key, value in one.data["settings"].items()})
    return found


def events(evidence: list[Evidence]) -> list[tuple[str, str, int]]:
    return [
        (one.source, one.data["event"], one.data["line"]) for one in evidence if one.kind == "log_event" and one.data
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    EXPECTED,
    ids=[answer["symptom"] + str(number) for number, (_t, answer) in enumerate(EXPECTED)],
)
def test_a_story_answers_the_questionnaire(text: str, expected: dict[str, Any]) -> None:
    found = answers(read_pasted(text))
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("text", [text for text, _answers in EXPECTED])
def test_answers_fit_their_questions(text: str) -> None:
    for question, value in answers(read_pasted(text)).items():
        asked = TYPES[question]
        if asked.type == "choice":
            assert value in asked.choice_ids()
        elif asked.type == "many":
            assert set(value) <= set(asked.choice_ids())
        elif asked.type == "yes-no":
            assert isinstance(value, bool)
        elif asked.type in {"tokens", "number"}:
            assert asked.low is None or value >= asked.low
            assert asked.high is None or value <= asked.high


def test_every_recogniser_answers_a_question_that_exists() -> None:
    for saying in SAYINGS:
        question = TYPES[saying.question]
        assert saying.many == (question.type == "many"), saying
        if question.choices:
            assert saying.value in question.choice_ids(), saying
        else:
            assert isinstance(saying.value, bool), saying


def test_commands_variables_and_settings_are_read_with_the_report_as_source() -> None:
    evidence = read_pasted(STUCK)
    assert settings_of(evidence)["ctx"] == 131072
    assert settings_of(evidence)["tensor_split"] == [16.0, 8.0]
    assert settings_of(evidence)["kv_type_k"] == "q8_0"
    assert settings_of(read_pasted(COMPOSE)) == {"ctx": 65536, "parallel": 4}
    listed = settings_of(read_pasted("- num_ctx: 65536\n- flash_attn: true\n- kv_type: q8_0\n- ubatch: 512\n"))
    assert {key: listed[key] for key in ("ctx", "flash_attention", "kv_type_k", "ubatch")} == {
        "ctx": 65536,
        "flash_attention": "on",
        "kv_type_k": "q8_0",
        "ubatch": 512,
    }
    modelfile = settings_of(read_pasted("My Modelfile:\n```\nFROM qwen3:8b\nPARAMETER num_ctx 40960\n```\n"))
    assert modelfile["ctx"] == 40960
    for one in [*evidence, *read_pasted(COMPOSE)]:
        assert one.source == "report"


def test_a_log_block_is_a_log_and_a_quoted_error_is_the_reports() -> None:
    assert ("log", "full-reprocess", 5) in events(read_pasted(SLOW))
    assert ("log", "alloc-failed", 3) in events(read_pasted(STARTUP))
    quoted = events(read_pasted("It worked until today. Now I get cudaMalloc failed: out of memory and then nothing."))
    assert quoted == [("report", "alloc-failed", 1)]


def test_a_denied_phrase_is_no_answer() -> None:
    found = read_prose(
        "Nothing is slow. There is no garbage and it does not forget anything. It did not run out of memory."
    )
    assert "what_is_wrong" not in found
    assert found.get("error_kind") != "gpu-memory"


def test_contradicting_phrases_leave_the_question_open() -> None:
    assert "os" not in read_prose("Runs on macOS. The other one has Windows.")


def test_text_without_a_complaint_has_no_symptom() -> None:
    assert "symptom" not in read_prose("How do I choose a good model for writing poems about spring?")
    assert read_pasted("") == []


def test_kinds_are_told_apart(tmp_path: Path) -> None:
    assert kind_of(STUCK) == kind_of(FORGOT) == kind_of(SLOW) == kind_of(KOREAN) == "report"
    for log in RECORDED.glob("*.log"):
        assert kind_of(log.read_text()) == "log", log.name
    assert kind_of('{"schema_version": 1, "case": {"id": "x"}}') == "case"
    assert kind_of('symptom = "flaky"\nwhen = ["at-load"]\n') == "answers"
    assert kind_of(json.dumps({"symptom": "flaky"})) == "answers"
    assert kind_of("CUDA error: out of memory") == "log"
    path = tmp_path / "issue.md"
    path.write_text(SLOW)
    kind, evidence = read_any(path)
    assert kind == "report"
    assert answers(evidence)["symptom"] == "slow-long-context"
    kind, evidence = read_any(str(RECORDED / "vllm-0.33.log"))
    assert kind == "log"
    assert {one.kind for one in evidence} == {"log_event", "log_summary"}
    assert all(one.source == "log" for one in evidence)
    assert read_any(FORGOT)[0] == "report"


def test_a_large_log_given_as_anything_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    path.write_text("W decode: failed to find a memory slot for batch of size 512\n" * 120_000)
    kind, evidence = read_any(path)
    assert kind == "log"
    assert len(evidence) < 100


@pytest.mark.parametrize(
    "piece",
    [
        "A",
        "1",
        " ",
        "word ",
        "llama-server -m x ",
        "a=",
        "`",
        "x: y\n",
        "> ",
        "83k tokens ",
        "OLLAMA_X=1 ",
        "srv x: error: CUDA error: out of memory\n",
        "(",
        "not ",
        "RTX 3090 24GB + ",
    ],
)
def test_no_repetition_makes_it_slow(piece: str) -> None:
    begun = time.perf_counter()
    read_pasted(piece * (200_000 // len(piece)))
    assert time.perf_counter() - begun < 5


PIECES = [
    *[word for text, _answers in EXPECTED for word in text.split()],
    "```",
    "\n",
    "\n\n",
    "```\n",
    "~~~",
    "|",
    "\x1b[1m",
    "\0",
    "{",
    "}",
    "9" * 30,
    "-1",
    "nan",
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=20)), max_size=80))
def test_no_text_makes_it_raise(pieces: list[str]) -> None:
    text = " ".join(pieces)
    for one in read_pasted(text):
        assert one.source in {"log", "report"}
    try:
        read_any(text)
    except CtxDoctorError:
        assert len(text) < sys.maxsize


# --- stories: what other users tell, as plain text ----------------------------------------------------------------------------------------

STORIES = tomllib.loads((Path(__file__).parent / "stories.toml").read_text(encoding="utf-8"))["story"]


def test_the_stories_tell_of_every_cause() -> None:
    assert {story["cause"] for story in STORIES} == set(CAUSES)


def test_the_cause_of_a_told_story_stands_in_front_and_no_wrong_one_is_named() -> None:
    outcomes = [judged(Report(story["cause"], story), read_pasted(story["story"])) for story in STORIES]
    wrong = {outcome.report.id: outcome.wrong for outcome in outcomes if outcome.wrong}
    assert not wrong
    assert sum(outcome.rank == 1 for outcome in outcomes) >= 0.85 * len(outcomes)
    assert sum(1 <= outcome.rank <= 3 for outcome in outcomes) >= 0.95 * len(outcomes)


def test_a_question_or_a_supposition_is_no_observation() -> None:
    for text in (
        "Could it be that it runs out of memory?",
        "Would it help if I set num_ctx to 8192?",
        "I wonder whether the model forgets the beginning.",
        "Should I try a smaller micro-batch so that it works?",
        "Is there a way to set the context window to 65536?",
        "I thought that the window was 4096 tokens.",
    ):
        assert read_prose(text) == {}, text


def test_no_trouble_is_no_trouble() -> None:
    for text in ("There is no OOM.", "It never runs out of memory.", "It did not crash.", "Without any OOM."):
        assert read_prose(text).get("error_kind") != "gpu-memory", text
    for text in (
        "Plenty of VRAM left.",
        "It's not a memory problem.",
        "The card still has 9 GB free.",
        "There was ample memory.",
    ):
        assert read_prose(text).get("room_left") == "plenty", text
    assert read_prose("There is nothing in shared memory.").get("shared_memory") is False


def test_what_helped_is_not_what_it_fails_with() -> None:
    evidence = read_pasted(
        "Since the update gemma no longer fits on my 24 GB card. I never set num_ctx. Setting OLLAMA_CONTEXT_LENGTH=4096 fixes it."
    )
    assert "ctx" not in settings_of(evidence)
    assert answers(evidence)["window_set"] == "not-set"
    found = answers(
        read_pasted("The request fails with max_tokens=8192. With max_tokens=2048 the same prompt goes through.")
    )
    assert found["answer_reserve"] == 8192


@pytest.mark.parametrize(
    ("text", "question", "value"),
    [
        ("Task manager: shared GPU memory goes from 0.2 to 5 GB.", "shared_memory", True),
        ("It spills into system RAM after 20k.", "shared_memory", True),
        ("공유 GPU 메모리가 6GB까지 올라갑니다.", "shared_memory", True),
        ("I bumped OLLAMA_NUM_PARALLEL from 1 to 6.", "slots", 6.0),
        ("max-num-seqs 16 is set.", "slots", 16.0),
        ("prompt_eval_count is suddenly only 16386.", "processed_tokens", 16386),
        ('The reply has "prompt_eval_count": 4096.', "processed_tokens", 4096),
        ("I feed it a contract (some 18,000 tokens).", "sent_tokens", 18000),
        ("문서는 약 2만 토큰입니다.", "sent_tokens", 20000),
        ("I loaded the model with 32768.", "window_asked", 32768),
        ("The n_ctx_train=40960 limit.", "window_trained", 40960),
        ("Each model still starts with 4096.", "window_shown", 4096),
        ("Cline shows a window of 128k for it.", "client_window", 131072),
        ('My file says "limit": { "context": 131072, "output": 8192 }.', "client_window", 131072),
        ("9100 in the messages, 8192 in the completion.", "answer_reserve", 8192),
        ("82 t/s at 1k, 70 at 16k, 58 at 32k.", "speed_by_length", "1024=82, 16384=70, 32768=58"),
        ("num_ctx 4096 -> 41 tokens/s. num_ctx 32768 -> 6 tokens/s.", "smaller_window", "cures"),
        ("RULER: 4k: 94, 16k: 87, 64k: 58.", "worse_when", "gradually"),
        ("It runs on a 3090.", "gpu_gib", 24.0),
        ("3090 (24GB) + 3060 (12GB).", "several_gpus", "unequal"),
        ("A restart brings it back until the next time.", "fresh_start", "for-a-while"),
        ("Restarting does not help.", "fresh_start", "no"),
        ("새 채팅은 다시 빠릅니다.", "new_chat", True),
        ("With -ub 256 instead of 2048 it gets through.", "smaller_batch", "cures"),
        ("All other models on this box are fine.", "other_models", "fine"),
        ("It is killed with exit code 137.", "kernel_log", ("killed",)),
        ("Prompts longer than 10,000 tokens give garbage.", "fails_at", 10000),
        ("- 2k context: 19162 MiB\n- 22k context: OOM", "smaller_window", "cures"),
        ("Each reply clears the cache after every request.", "same_prompt_again", "never"),
        ("It fails after five minutes.", "seconds_to_failure", 300.0),
    ],
)  # fmt: skip
def test_facts_are_read_in_the_words_that_people_use(text: str, question: str, value: Any) -> None:
    assert read_prose(text).get(question) == value


def test_flags_and_lists_without_a_command_are_settings() -> None:
    assert settings_of(read_pasted("I start it with -c 32768 -np 4 and requests of 9k tokens get 400.")) == {
        "ctx": 32768,
        "parallel": 4,
    }
    listed = settings_of(read_pasted("Setup:\n- ctx: 49152\n- KV cache type: q8_0\n- max_seq_len: 131072\n"))
    assert listed["ctx"] == 49152
    assert listed["kv_type_k"] == "q8_0"


def test_a_compose_file_spells_its_command_word_by_word() -> None:
    text = """Here:
```yaml
services:
  server:
    command:
      - "--cache-type-k"
      - "q4_0"
      - "--parallel"
      - "4"
      - "-c"
      - "65536"
```
"""
    found = settings_of(read_pasted(text))
    assert {key: found.get(key) for key in ("kv_type_k", "parallel", "ctx")} == {
        "kv_type_k": "q4_0",
        "parallel": 4,
        "ctx": 65536,
    }


def test_what_a_form_says_by_itself_is_not_what_happened() -> None:
    form = """### What happened?

It is slow in a long chat.

### Expected behavior

It should not run out of memory or forget the beginning.

### Checklist

- [x] I have searched for out of memory errors at load

### CPU

AMD

### GPU

NVIDIA RTX 4090
"""
    found = answers(read_pasted(form))
    assert found["symptom"] == "slow-long-context"
    assert found["gpu_maker"] == "nvidia"
    assert "error_kind" not in found
    assert "what_is_wrong" not in found


def test_counts_in_a_quoted_reply_are_read() -> None:
    found = answers(read_pasted("The head is gone.\n```\nprompt = 160,689 tokens\nprompt_eval_count: 16387\n```\n"))
    assert found["processed_tokens"] == 16387
    assert found["sent_tokens"] == 160689


def test_a_sentence_that_begins_like_a_program_is_a_sentence() -> None:
    text = "llama-swap: when it swaps from model A to model B, the second one fails to load and I have to wait for it."
    assert not is_log_line(text)
    assert is_log_line(
        "llama_context: n_ctx_per_seq (8192) < n_ctx_train (131072) -- the full capacity of the model will not be utilized"
    )


def test_a_story_is_read_in_well_under_a_moment() -> None:
    """50 ms a story on a quiet machine; the bound leaves room for a busy one."""
    for story in STORIES:
        read_pasted(story["story"])
    begun = time.process_time()
    for story in STORIES:
        read_pasted(story["story"])
    assert (time.process_time() - begun) / len(STORIES) < 0.05


@pytest.mark.parametrize(
    "piece",
    ["with the same context it works and ", "slow ", "every message the entire ", "from 4k to 8k at 3 t/s, ", "without with when if ", "4k: 94, ", "the other card has 9 GB free but ",
     "-c 4096 -np 4 ", "num_ctx 4096 -> 41 tokens/s "],
)  # fmt: skip
def test_no_varied_repetition_makes_it_slow(piece: str) -> None:
    """Each sentence differs, so that none is known from before."""
    text = " ".join(f"{piece}{number}{piece}." for number in range(60_000 // (2 * len(piece))))
    begun = time.process_time()
    read_pasted(text)
    assert time.process_time() - begun < 5


_ONE_CHARACTER = ("a", "0", " ", "`", "-", "/", ".", "=", '"', "(", "é", "\n", "{", "BASE64")


@pytest.mark.parametrize("what", _ONE_CHARACTER)
def test_a_megabyte_of_one_character_is_read_soon(what: str) -> None:
    """No pattern looks at a run of characters again and again: words, lines and blanks are cut before anything is looked for."""
    text = base64.b64encode(random.Random(1).randbytes(750_000)).decode() if what == "BASE64" else what * 1_000_000
    begun = time.process_time()
    assert kind_of(text[:262_144]) in {"report", "log"}
    read_pasted(text)
    assert time.process_time() - begun < 8
