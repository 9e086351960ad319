"""What a report names as behind its trouble: an opinion of few words, in any order, never a question, never a flood."""

from __future__ import annotations

import time
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.answers import Mechanisms
from probes.logs import read_pasted
from probes.logs.mechanisms import MOST, mechanisms
from rules.causes import CAUSES


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("The context is divided by the number of slots.", "slots-divide-ctx"),
        ("K and V cache types differ and flash attention falls back to the CPU, so it is slow.", "kv-quant-no-gpu-kernel"),
        ("Prefix caching does not work with this server.", "prompt-cache-not-implemented"),
        ("With MTP on it runs out of memory.", "draft-mtp-vram"),
        ("The transient activations during prefill run out of memory.", "prefill-activation-peak"),
        ("The memory estimate does not account for the context.", "memory-estimate-bug"),
    ],
)  # fmt: skip
def test_a_sentence_names_its_mechanism(said: str, cause: str) -> None:
    assert cause in mechanisms("", [said])


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("After the client disconnects, the server keeps generating and never frees the slot.", "server-state-bug"),
        ("The scheduler hangs after serving for some hours.", "server-state-bug"),
        ("The new default context length takes far more memory.", "default-ctx-tier-changed"),
        ("Memory access fault by GPU with flash attention on.", "backend-kernel-bug"),
        ("The cache must hold n_ctx * n_parallel tokens.", "parallel-multiplies-kv"),
        ("My front-end cannot set the context length.", "request-option-ignored"),
        ("It only uses 10 GB of the 24 GB.", "memory-estimate-bug"),
        ("After some inactivity the server drops its KV cache.", "prompt-cache-evicted"),
        ("The same model gets loaded several times.", "previous-instance-holds-memory"),
        ("The re-tokenized reply differs from what was generated.", "prompt-cache-miss-prefix-changed"),
        ("It aborts with LaunchTimeout.", "gpu-watchdog-timeout"),
        ("It ignores --tensor-split.", "server-config-not-applied"),
        ("The model loads on one GPU but fails on two.", "pipeline-copies-buffer"),
        ("With -ctk q5_1 attention runs on the CPU.", "kv-quant-no-gpu-kernel"),
        ("The extension defaults to 16k context.", "client-ctx-mismatch"),
    ],
)
def test_a_trouble_is_told_by_what_happens(said: str, cause: str) -> None:
    assert cause in mechanisms("", [said])


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("The server does not stop after the client disconnects.", "client-proxy-timeout"),
        ("The engine hangs, and then requests time out.", "client-proxy-timeout"),
        ("KV cache quantization is broken for this model.", "prompt-cache-not-implemented"),
        ("The default context size is larger than before and fills the memory.", "silent-truncation-default-ctx"),
        ("The cache pool holds the full-attention layers of Qwen.", "kv-pool-exhausted"),
        ("I run Nous-Yarn-Mistral and get garbage.", "rope-scaling-misuse"),
        ("The clocks of the two machines drift over a day.", "long-session-drift"),
    ],
)
def test_a_word_of_the_trade_that_means_something_else_names_nothing(said: str, cause: str) -> None:
    assert cause not in mechanisms("", [said])


def test_the_order_of_the_words_does_not_matter() -> None:
    pieces = ["mixed K and V cache types", "on the CPU", "very slow"]
    for order in permutations(pieces):
        assert "kv-quant-no-gpu-kernel" in mechanisms("", [", ".join(order) + "."]), order


def test_a_title_counts_more_than_a_sentence() -> None:
    title, other = "The context is divided by the slots", "With MTP on it runs out of memory."
    assert mechanisms(title, [other])[0] == "slots-divide-ctx"


def test_a_question_names_nothing() -> None:
    assert mechanisms("", ["Could it be that the context is divided by the slots?"]) == ()


def test_a_report_gives_it_as_the_reports_word() -> None:
    (named,) = [
        one
        for one in read_pasted("# The context is divided by the slots\n\nEach of four gets 2048.\n")
        if one.kind == Mechanisms.kind
    ]
    assert named.source == "report"


@settings(max_examples=60, deadline=None)
@given(
    st.text(max_size=200),
    st.lists(
        st.sampled_from(
            [
                "cache",
                "slow",
                "MTP",
                "OOM",
                "slots",
                "divided",
                "context",
                "not",
                "?",
                ".",
                "prefill",
                "q4_0",
                "GPU",
                "\n",
            ]
        ),
        max_size=200,
    ),
)
def test_at_most_a_few_and_only_causes_that_exist(title: str, words: list[str]) -> None:
    named = mechanisms(title, [" ".join(words)])
    assert len(named) <= MOST
    assert len(set(named)) == len(named)
    assert set(named) <= set(CAUSES)


@pytest.mark.parametrize(
    "piece", ["cache ", "the memory of the context ", "slow not ", "gpu split ", "a" * 40, "prefill peak memory, "]
)
def test_no_length_makes_it_slow(piece: str) -> None:
    began = time.process_time()
    mechanisms(piece * 20, [piece * 400] * 40)
    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("I use q8_0 for the KV cache and 32k.", "q8_0"),
        ("Since the KV cache is set to q4_0 it babbles.", "q4_0"),
        ("It fails with a q4_0 KV cache and works with a q8_0 KV cache.", None),
        ("The model is a Q4_K_M and the cache is default.", None),
        ("Should I use a q8_0 KV cache?", None),
    ],
)
def test_the_type_of_the_cache_is_read_from_a_sentence_where_there_is_one(said: str, kept: str | None) -> None:
    told = [
        one.data["settings"] for one in read_pasted(f"It crashes. {said}") if one.kind == "configuration" and one.data
    ]
    types = {settings["kv_type_k"]["value"] for settings in told if "kv_type_k" in settings}
    assert types == ({kept} if kept else set())
