"""Log-probabilities of the next token come from every server in one form; where it gives none, or refuses, that is said, never a table that is none."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.backends.base import Ask
from probes.backends.http import Http
from probes.backends.logprobs import MOST_POSITIONS, likeliest, of_triples
from probes.backends.recognise import BACKENDS, recognise
from probes.base import ProbeContext
from probes.damage import DamageProbe, compare
from probes.evidence.damage import NextToken, NextTokens
from probes.evidence.request import Completion
from probes.ladder.text import Counter

from .loopback import Loopback, plain, streamed

ASK = Ask(prompt="ORBIT-17 =", max_tokens=1, logprobs=3)
CHAT = Ask(messages=({"role": "user", "content": "hi"},), max_tokens=1, logprobs=3)
TABLE = {" copper": -0.25, " iron": -1.5, " tin": -4.0}
WHOLE = [{"token": name, "logprob": value, "bytes": [32], "top_logprobs": []} for name, value in TABLE.items()]
OF_CHAT = {"content": [{**WHOLE[0], "top_logprobs": [dict(one) for one in WHOLE]}]}
OF_COMPLETION = {"tokens": [" copper"], "token_logprobs": [-0.25], "text_offset": [10], "top_logprobs": [TABLE]}
USAGE = {"prompt_tokens": 4, "completion_tokens": 1, "total_tokens": 5}


def of_protocol(logprobs, *, chat=False):
    choice = {"delta": {"content": " copper"}} if chat else {"text": " copper"}
    event = {"choices": [{"index": 0, **choice, "logprobs": logprobs, "finish_reason": "length"}]}
    return streamed(event, {"choices": [], "usage": USAGE})


SHAPES = [
    ("vllm-0.33.0", ASK, "POST /v1/completions", of_protocol(OF_COMPLETION), {"logprobs": 3}),
    (
        "vllm-0.33.0",
        CHAT,
        "POST /v1/chat/completions",
        of_protocol(OF_CHAT, chat=True),
        {"logprobs": True, "top_logprobs": 3},
    ),
    (
        "sglang-0.5.23",
        ASK,
        "POST /generate",
        streamed(
            {"text": "", "meta_info": {"prompt_tokens": 4}},
            {
                "text": " copper",
                "meta_info": {
                    "prompt_tokens": 4,
                    "completion_tokens": 1,
                    "finish_reason": {"type": "length"},
                    "output_top_logprobs": [[[-0.25, 7, None], [-1.5, 8, None], [-4.0, 9, None]]],
                },
            },
        ),
        {"return_logprob": True, "top_logprobs_num": 3},
    ),
    (
        "sglang-0.5.23",
        CHAT,
        "POST /v1/chat/completions",
        of_protocol(OF_CHAT, chat=True),
        {"logprobs": True, "top_logprobs": 3},
    ),
    ("llama-cpp-python-0.3.36", ASK, "POST /v1/completions", of_protocol(OF_COMPLETION), {"logprobs": 3}),
    ("tabbyapi-e632af41", ASK, "POST /v1/completions", of_protocol(OF_COMPLETION), {"logprobs": 3}),
    ("tabbyapi-e632af41", CHAT, "POST /v1/chat/completions", of_protocol(OF_CHAT, chat=True), {"top_logprobs": 3}),
    (
        "text-generation-webui-4.7.3",
        ASK,
        "POST /v1/completions",
        of_protocol({"top_logprobs": [TABLE]}),
        {"logprobs": 3},
    ),
    (
        "ollama-0.33.0",
        ASK,
        "POST /api/generate",
        {
            "ndjson": [
                {"response": " copper", "logprobs": OF_CHAT["content"]},
                {"response": "", "done": True, "done_reason": "length", "prompt_eval_count": 4, "eval_count": 1},
            ]
        },
        {"logprobs": True, "top_logprobs": 3},
    ),
    (
        "ollama-0.33.0",
        CHAT,
        "POST /api/chat",
        {
            "ndjson": [
                {"message": {"content": " copper"}, "logprobs": OF_CHAT["content"]},
                {"message": {}, "done": True, "done_reason": "length", "prompt_eval_count": 4, "eval_count": 1},
            ]
        },
        {"logprobs": True, "top_logprobs": 3},
    ),
    (
        "mlx_lm-0.32.2",
        ASK,
        "POST /v1/completions",
        {
            "json": {
                "system_fingerprint": "0.32.2-0.32.4-Linux-x-cpu",
                "choices": [
                    {
                        "text": " copper",
                        "finish_reason": "length",
                        "logprobs": {
                            "content": [
                                {
                                    "id": 8,
                                    "token": "Ġiron",
                                    "logprob": -1.5,
                                    "top_logprobs": [
                                        {"id": number, "token": "x", "logprob": value}
                                        for number, value in zip((8, 7, 9), (-1.5, -0.25, -4.0), strict=True)
                                    ],
                                }
                            ]
                        },
                    }
                ],
                "usage": USAGE,
            }
        },
        {"logprobs": True, "top_logprobs": 3, "stream": False},
    ),
    (
        "koboldcpp-1.102",
        ASK,
        "POST /v1/completions",
        of_protocol({**OF_CHAT, "tokens": [" copper"], "top_logprobs": [TABLE]}),
        {"logprobs": 3},
    ),
    ("openai-compatible-proxy", ASK, "POST /v1/completions", of_protocol(OF_COMPLETION), {"logprobs": 3}),
    ("openai-compatible-proxy", CHAT, "POST /v1/chat/completions", of_protocol(OF_CHAT, chat=True), {"logprobs": True}),
    ("lm-studio-0.4", CHAT, "POST /api/v0/chat/completions", of_protocol(OF_CHAT, chat=True), {"top_logprobs": 3}),
    (
        "ik_llama.cpp-8337e4cd",
        ASK,
        "POST /completion",
        streamed(
            {
                "content": " copper",
                "stop": True,
                "completion_probabilities": [
                    {
                        "content": " copper",
                        "probs": [{"tok_str": name, "prob": math.exp(value)} for name, value in TABLE.items()],
                    }
                ],
            },
            done=False,
        ),
        {"n_probs": 3},
    ),
    (
        "llama.cpp-b11434",
        ASK,
        "POST /completion",
        streamed(
            {
                "content": " copper",
                "stop": True,
                "stop_type": "limit",
                "completion_probabilities": [
                    {
                        "id": 7,
                        "top_logprobs": [
                            {"id": n, "token": t, "logprob": v}
                            for n, (t, v) in zip((7, 8, 9), TABLE.items(), strict=True)
                        ],
                    }
                ],
            },
            done=False,
        ),
        {"n_probs": 3},
    ),
]


@pytest.mark.parametrize(
    ("name", "ask", "route", "answer", "sent"), SHAPES, ids=[f"{s[0]}{s[2].split()[1]}" for s in SHAPES]
)
def test_every_shape_gives_the_same_table(name, ask, route, answer, sent):
    """One table a position, token to natural log-probability, by whatever names the server has for them."""
    with Loopback.playing(name) as server, Http(server.url) as http:
        backend = recognise(http)
        server.answers[route] = answer
        server.choose.pop(route, None)
        told = backend.complete(ask)
        assert told.error is None
        assert len(told.logprobs) == 1
        assert sorted(told.logprobs[0].values()) == pytest.approx(sorted(TABLE.values()))
        assert set(told.logprobs[0]) in ({" copper", " iron", " tin"}, {"7", "8", "9"})
        body = server.bodies(route.split()[1])[-1]
        assert {key: body.get(key) for key in sent} == sent


@pytest.mark.parametrize("name", ["vllm-0.33.0", "ollama-0.33.0", "tabbyapi-e632af41", "koboldcpp-1.102"])
def test_none_is_asked_for_where_none_is_wanted(name):
    """An ordinary request asks for no log-probabilities, and keeps none that come all the same."""
    with Loopback.playing(name) as server, Http(server.url) as http:
        told = recognise(http).complete(Ask(prompt="a", max_tokens=1))
        assert told.logprobs == ()
        body = next(body for method, _path, body in server.asked if method == "POST")
        assert not {"logprobs", "top_logprobs", "n_probs"} & set(body)


def test_koboldcpp_tells_them_afterwards():
    """A version that streams none is asked for those of its last request, unless another client's came in between."""
    for variant, expected in ((None, 1), ("others", 0)):
        with Loopback.playing("koboldcpp-1.102") as server, Http(server.url) as http:
            server.answers["POST /api/extra/last_logprobs"] = {"json": {"logprobs": OF_CHAT}}
            if variant:
                server.choose["GET /api/extra/perf"] = variant
            assert len(recognise(http).complete(ASK).logprobs) == expected


@pytest.mark.parametrize(
    ("name", "path", "message"),
    [
        (
            "llama-cpp-python-0.3.36",
            "/v1/completions",
            "logprobs is not supported for models created with logits_all=False",
        ),
        ("openai-compatible-proxy", "/v1/completions", "Extra inputs are not permitted: logprobs"),
        ("mlx_lm-0.32.2", "/v1/completions", "top_logprobs must be at most 9"),
        ("llama.cpp-b11434", "/completion", "n_probs is not supported"),
    ],
)
def test_a_refusal_of_them_is_not_offered(name, path, message):
    """Whatever status a server refuses them with: it is not a failure of the length, but something that it does not offer."""
    for status in (400, 500):
        with Loopback.playing(name) as server, Http(server.url) as http:
            server.faults[f"POST {path}"] = plain(json.dumps({"error": {"message": message}}), status=status)
            told = recognise(http).complete(Ask(prompt="x", max_tokens=1, logprobs=10))
            assert told.error is not None
            assert told.error.error == "not-supported"
            assert told.logprobs == ()


def test_a_server_that_gives_fewer_is_asked_for_fewer():
    """Some give five at the most: one more request, and an answer."""
    with Loopback.playing("openai-compatible-proxy") as server, Http(server.url) as http:
        refusal = {"status": 400, "json": {"error": {"message": "logprobs must be at most 5"}}}
        server.answers["POST /v1/completions"] = {"sequence": [refusal, of_protocol(OF_COMPLETION)]}
        told = recognise(http).complete(Ask(prompt="x", max_tokens=1, logprobs=10))
        assert told.error is None
        assert len(told.logprobs) == 1
        assert [body["logprobs"] for body in server.bodies("/v1/completions")] == [10, 5]


def test_damage_is_not_asked_of_a_server_that_gives_none():
    """The probe's record says not offered, not failed: nothing is wrong with the server."""
    with Loopback.playing("lm-studio-0.4") as server, Http(server.url) as http:
        server.answers["POST /api/v0/completions"] = of_protocol(None)
        server.answers["POST /api/v0/chat/completions"] = of_protocol(None, chat=True)
        backend = recognise(http)
        context = ProbeContext(backend=backend, counter=Counter(count=lambda text: len(text) // 4, name="test"))
        pieces = [piece for piece in DamageProbe(400).collect(context) if piece.kind == NextTokens.kind]
        assert [piece.unavailable.why for piece in pieces] == ["not-offered"]


def test_ids_and_texts_are_not_compared():
    """Another server's names for the same tokens have nothing in common with this one's, which says nothing about the cache."""
    by_id = NextTokens(text_hash="a", positions=(NextToken(at=3, top={"7": -0.1, "8": -3.0}),))
    by_text = NextTokens(text_hash="a", positions=(NextToken(at=3, top={" copper": -0.1, " tin": -3.0}),))
    assert compare(by_id, by_text, 1) is None
    assert compare(by_id, by_id, 1).median == 0
    assert compare(by_text, by_text, 1).median == 0


_values = st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False) | st.text(max_size=5)
_json = st.recursive(
    _values,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "logprobs",
                    "content",
                    "top_logprobs",
                    "token",
                    "id",
                    "logprob",
                    "prob",
                    "probs",
                    "tok_str",
                    "completion_probabilities",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=16,
)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(["choices", "logprobs", "completion_probabilities"]), _json, max_size=3), _json)
def test_any_event_gives_tables_of_log_probabilities_or_nothing(event, triples):
    """Whatever comes: at most so many positions, each with finite values at or below zero, that a record can hold."""
    tables = [*likeliest(event), *of_triples(triples)]
    assert len(tables) <= 2 * MOST_POSITIONS
    for table in tables:
        assert table
        assert all(math.isfinite(value) and value <= 0 for value in table.values())
    told = Completion(logprobs=tuple(tables))
    assert Completion.model_validate_json(told.model_dump_json()) == told


def test_all_of_the_protocol_collect_them():
    """Every backend whose offers name log-probabilities reads them: the shapes above have each of these servers."""
    tested = {name.rsplit("-", 1)[0] for name, *_rest in SHAPES}
    offering = {name for name, cls in BACKENDS.items() if "logprobs" in cls.offers}
    assert offering - {"beellama.cpp"} <= tested
