"""The recording proxy: bytes pass unchanged and at once; counts, times and errors stay, text never."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.evidence.client import WatchedRequest
from probes.evidence.errors import InputError, UnreachableError
from probes.watch import BLOCK, Watch, _shape, _Tap, summarise
from tests.backends.loopback import Loopback, cut_short, endless, silence, streamed

SECRET = "TOP-SECRET-WORD"
SYSTEM = f"You are {SECRET}. " + "Obey the rules. " * 40
USAGE = {
    "prompt_tokens": 321,
    "completion_tokens": 7,
    "total_tokens": 328,
    "prompt_tokens_details": {"cached_tokens": 300},
}
CHUNKS = streamed(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
    {"wait_s": 0.15},
    {"choices": [{"index": 0, "delta": {"content": SECRET + " é ☃"}, "finish_reason": None}]},
    {"wait_s": 0.15},
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    {"choices": [], "usage": USAGE},
)


def send(
    url: str, path: str, body: object, method: str = "POST", **headers: str
) -> tuple[int, dict[str, str], bytes, list[float]]:
    """Send and read the raw body, with the time of each piece."""
    host, port = url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=20)
    started = time.monotonic()
    connection.request(
        method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json", **headers}
    )
    response = connection.getresponse()
    pieces, times = [], []
    while data := response.read1(65536):
        pieces.append(data)
        times.append(time.monotonic() - started)
    told = (response.status, {k.lower(): v for k, v in response.getheaders()}, b"".join(pieces), times)
    connection.close()
    return told


def waited(watch: Watch, number: int) -> tuple[WatchedRequest, ...]:
    """Wait until that many requests are recorded."""
    deadline = time.monotonic() + 5
    while len(watch.requests) < number and time.monotonic() < deadline:
        time.sleep(0.02)
    return watch.requests


def chat(*messages: str, **more: object) -> dict[str, object]:
    roles = ["system", *["user", "assistant"] * 20]
    return {
        "model": "m",
        "messages": [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)],
        **more,
    }


def test_a_stream_passes_unchanged_and_at_once():
    """The same bytes as without the proxy, each piece when it came; counts and both times recorded."""
    with Loopback({"POST /v1/chat/completions": CHUNKS}) as server, Watch(server.url) as watch:
        direct = send(server.url, "/v1/chat/completions", chat(SYSTEM, "hi", stream=True))
        through = send(
            watch.url,
            "/v1/chat/completions",
            chat(SYSTEM, "hi", stream=True, max_tokens=99),
            Authorization=f"Bearer {SECRET}",
        )
        assert through[0] == direct[0] == 200
        assert through[2] == direct[2]
        assert through[1]["content-type"] == direct[1]["content-type"]
        # Not collected: the first piece is there long before the last.
        assert through[3][0] < 0.14
        assert through[3][-1] > 0.28
        (one,) = waited(watch, 1)
        assert (one.status, one.streamed, one.model, one.messages, one.asked_tokens) == (200, True, "m", 2, 99)
        assert (one.prompt_tokens, one.cached_tokens, one.generated_tokens, one.finish, one.error) == (
            321,
            300,
            7,
            "stop",
            None,
        )
        # The first text, not the first empty chunk.
        assert 0.14 <= one.first_token_s <= one.total_s
        assert server.asked[-1][2]["messages"][0]["content"] == SYSTEM


def test_no_text_and_no_key_is_kept():
    """Neither prompt, nor answer, nor header, nor query."""
    with Loopback({"POST /v1/chat/completions": CHUNKS}) as server, Watch(server.url) as watch:
        send(
            watch.url,
            f"/v1/chat/completions?key={SECRET}",
            chat(SYSTEM, "hi", stream=True),
            Authorization=f"Bearer {SECRET}",
        )
        (one,) = waited(watch, 1)
        assert SECRET not in one.model_dump_json() + watch.summary().model_dump_json()
        assert SECRET not in repr({k: v for k, v in vars(watch).items() if k != "_server"}) + repr(list(watch._before))


def test_other_answers_pass_too():
    """GETs, plain answers, errors, Ollama's lines, statuses without a body; only completions are recorded."""
    answers = {
        "GET /v1/models": {"json": {"data": []}, "headers": {"X-Mark": "kept"}},
        "POST /v1/completions": {"json": {"choices": [{"text": "a", "finish_reason": "length"}], "usage": USAGE}},
        "POST /api/chat": {
            "ndjson": [
                {"message": {"content": "x"}, "done": False},
                {"done": True, "done_reason": "stop", "prompt_eval_count": 12, "eval_count": 3},
            ]
        },
        "POST /completion": {
            "status": 400,
            "json": {
                "error": {
                    "type": "exceed_context_size_error",
                    "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 8192,
                }
            },
        },
        "POST /v1/messages": streamed(
            {"type": "message_start", "message": {"usage": {"input_tokens": 50, "cache_read_input_tokens": 40}}},
            {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
            {"type": "message_delta", "usage": {"output_tokens": 4}},
            {"type": "message_stop"},
            done=False,
        ),
        "DELETE /x": {"json": {}},
    }
    with Loopback(answers) as server, Watch(server.url + "/v1") as watch:
        status, headers, body, _times = send(watch.url, "/v1/models", None, "GET")
        assert (status, headers["x-mark"], json.loads(body)) == (200, "kept", {"data": []})
        assert send(watch.url, "/v1/completions", {"prompt": "a"})[0] == 200
        assert send(watch.url, "/api/chat", {"messages": [], "options": {"num_ctx": 4096, "num_predict": 5}})[0] == 200
        assert send(watch.url, "/completion", {"prompt": "a"})[0] == 400
        assert send(watch.url, "/v1/messages", {"system": "s", "messages": []})[0] == 200
        assert send(watch.url, "/v1/nothing", None, "GET")[0] == 404
        plain, ollama, refused, messages = waited(watch, 4)
        assert (plain.prompt_tokens, plain.finish, plain.streamed, plain.first_token_s) == (321, "length", False, None)
        assert (ollama.prompt_tokens, ollama.generated_tokens, ollama.asked_window, ollama.asked_tokens) == (
            12,
            3,
            4096,
            5,
        )
        assert (refused.error, refused.error_prompt_tokens, refused.error_window) == ("exceeds-window", 9000, 8192)
        assert (messages.prompt_tokens, messages.cached_tokens, messages.generated_tokens, messages.error) == (
            50,
            40,
            4,
            None,
        )


def test_a_beginning_that_changes_every_turn_is_shown():
    """A date in the system text breaks every prefix; a steady one does not; one-shot requests under one system text are no such thing."""
    with Loopback({"POST /v1/chat/completions": {"json": {"choices": [{"finish_reason": "stop"}]}}}) as server:
        with Watch(server.url) as watch:
            history = [f"question {n} " * 30 for n in range(12)]
            for turn in range(1, 7):
                send(
                    watch.url,
                    "/v1/chat/completions",
                    chat(SYSTEM[:300] + f"It is 10:0{turn}. " + SYSTEM, *history[: 2 * turn - 1]),
                )
            waited(watch, 6)
            summary = watch.summary()
            assert summary.turns_compared == 5
            assert summary.prefix_broken == 5
            assert summary.changing_header_in == "message 1, system"
            assert 300 - BLOCK <= summary.changing_header_at_chars <= 320
        with Watch(server.url) as watch:
            for turn in range(1, 7):
                send(watch.url, "/v1/chat/completions", chat(SYSTEM, *history[: 2 * turn - 1]))
            waited(watch, 6)
            assert (watch.summary().prefix_broken, watch.summary().changing_header_at_chars) == (0, None)
            last = watch.requests[-1]
            assert last.differs_in is None
            assert last.same_as_before_chars >= last.before_chars - 2 * BLOCK
        with Watch(server.url) as watch:
            for n in range(6):
                send(watch.url, "/v1/chat/completions", chat(SYSTEM, f"{n} another task entirely " * 60))
            waited(watch, 6)
            assert watch.summary().changing_header_at_chars is None


def test_a_client_that_hangs_up_is_seen_and_the_server_is_told():
    """The time it waited is recorded, and the server's connection is closed so that it stops working for nobody."""
    with Loopback() as server, Watch(server.url) as watch:
        server.faults["POST /v1/chat/completions"] = silence
        with socket.create_connection(("127.0.0.1", int(watch.url.rsplit(":", 1)[1])), 5) as client:
            body = json.dumps(chat(SYSTEM, "hi", stream=True)).encode()
            client.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            time.sleep(0.6)
        (one,) = waited(watch, 1)
        assert 0.4 <= one.client_left_s <= 2
        assert one.error is None
        assert watch.summary().client_left == 1


def test_a_server_that_dies_or_is_not_there():
    """An answer that breaks off breaks off for the client, too, and is recorded as lost; no server: 502 in the proxy's own name."""
    with Loopback() as server, Watch(server.url) as watch:
        server.faults["POST /v1/completions"] = cut_short('{"choices": [')
        host, port = watch.url.removeprefix("http://").split(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=10)
        connection.request("POST", "/v1/completions", "{}")
        response = connection.getresponse()
        with pytest.raises(http.client.IncompleteRead):
            response.read()
        response.close()
        connection.close()
        assert waited(watch, 1)[0].error == "connection-lost"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        gone = f"http://127.0.0.1:{probe.getsockname()[1]}"
    with Watch(gone) as watch:
        status, _headers, body, _times = send(watch.url, "/v1/completions", {"prompt": "a"})
        assert status == 502
        assert json.loads(body)["error"]["type"] == "ctxdoctor_watch"
        assert waited(watch, 1)[0].error == "connection-lost"


def test_hostile_requests_are_refused_or_passed_never_kept():
    """Broken lengths, bodies that are no JSON, endless answers: the proxy lives on."""
    with Loopback({"POST /v1/completions": {"json": {"ok": 1}}}) as server, Watch(server.url) as watch:
        port = int(watch.url.rsplit(":", 1)[1])
        for raw in (
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n",
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"\x16\x03\x01\x00\xa5",
            b"GET\r\n\r\n",
        ):
            with socket.create_connection(("127.0.0.1", port), 5) as client:
                client.sendall(raw)
                client.shutdown(socket.SHUT_WR)
                client.settimeout(5)
                while client.recv(65536):
                    pass
        for body in (
            "{",
            "[" * 5000,
            "[1]",
            '{"messages": {"a": 1}, "model": [], "prompt": [[1]], "options": "x", "max_tokens": 1e999}',
            '{"prompt": "\\ud83d"}',
        ):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("POST", "/v1/completions", body)
            assert connection.getresponse().read()
            connection.close()
        server.faults["POST /v1/completions"] = endless(b'data: {"choices":[{"text":"x"}]}\n\n', pause_s=0.01)
        with socket.create_connection(("127.0.0.1", port), 5) as client:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
            assert client.recv(100)
        assert waited(watch, 6)[-1].client_left_s is not None


def test_requests_at_the_same_time_do_not_mix():
    """Twelve at once, each with its own counts."""
    with Loopback({"POST /v1/chat/completions": CHUNKS}) as server, Watch(server.url) as watch:
        results: list[bytes] = []
        threads = [
            threading.Thread(
                target=lambda: results.append(send(watch.url, "/v1/chat/completions", chat("a", stream=True))[2])
            )
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert len(results) == 12
        assert len(set(results)) == 1
        assert sorted(r.number for r in waited(watch, 12)) == list(range(1, 13))


def test_it_listens_on_the_loopback_only():
    """Prompts pass through, so no other machine may."""
    for listen in ("0.0.0.0:0", "192.0.2.1:80", "x", "127.0.0.1:99999", "127.0.0.1:"):
        with pytest.raises(InputError):
            Watch("http://127.0.0.1:1", listen=listen)
    with Watch("http://127.0.0.1:1", listen="127.0.0.1:0") as watch, pytest.raises(UnreachableError, match="--listen"):
        Watch("http://127.0.0.1:1", listen=watch.url.removeprefix("http://"))


def request(number: int, **more: object) -> WatchedRequest:
    return WatchedRequest(number=number, path="/v1/chat/completions", **more)


def test_a_time_out_is_told_from_people_who_press_stop():
    """The same wait again and again is a setting; different waits are not."""
    assert (
        summarise([request(1, client_left_s=60.1), request(2, client_left_s=60.3), request(3)]).client_timeout_s == 60.2
    )
    assert (
        summarise(
            [request(1, client_left_s=12.0), request(2, client_left_s=43.0), request(3, client_left_s=7.0)]
        ).client_timeout_s
        is None
    )
    assert summarise([request(1, client_left_s=60.0)]).client_timeout_s is None


def test_a_window_that_the_client_believes_in():
    """It names one, or shortens its history each time just below the same count."""
    assert summarise([request(1, asked_window=8192), request(2, asked_window=8192)]).believed_window == 8192
    saw = [10_000, 20_000, 30_500, 8000, 19_000, 30_900, 9000]
    assert summarise([request(n + 1, prompt_tokens=t) for n, t in enumerate(saw)]).believed_window == 30_900
    assert (
        summarise([request(n + 1, prompt_tokens=t) for n, t in enumerate([10, 20_000, 30, 900])]).believed_window
        is None
    )


def turn(number: int, chars: int, tokens: int | None, before: int = 0, same: int | None = None) -> WatchedRequest:
    shared = before if same is None else same
    return request(number, prompt_chars=chars, prompt_tokens=tokens, before_chars=before, same_as_before_chars=shared)


def test_a_turn_of_which_the_server_read_less_than_of_the_one_before_lost_something():
    """A prompt that goes on from another cannot have fewer tokens: what was sent is reckoned from the shorter one. Nothing else is taken for it."""
    lost = summarise([turn(1, 2000, 1000), turn(2, 4000, 1100, before=2000), turn(3, 3000, 600, before=2000)])
    assert (lost.turns_lost, lost.lost_sent_tokens, lost.lost_processed_tokens) == (1, 1500, 600)
    for kept in (
        [turn(1, 2000, 1000), turn(2, 4000, 950, before=2000)],  # a template that leaves out what was thought
        [turn(1, 2000, 1000), turn(2, 1000, 500, before=2000)],  # shortened by the client
        [turn(1, 2000, 1000), turn(2, 4000, 600, before=2000, same=100)],  # another conversation
        [turn(1, 2000, None), turn(2, 4000, 600, before=2000)],
        [turn(1, 2000, 1000), turn(2, 4000, None, before=2000)],
    ):
        assert summarise(kept).turns_lost == 0


def test_an_answer_that_the_server_broke_off_for_its_repeats_was_not_lost():
    """Ollama's way to end one that repeats itself (recorded): no end mark, no reason, and no fault of the connection."""
    with Loopback.playing("ollama-0.33.0-rc2") as server, Watch(server.url) as watch:
        server.choose["POST /api/generate"] = "repeats"
        send(watch.url, "/api/generate", {"model": "tiny", "prompt": "abc"})
        server.choose["POST /api/generate"] = "few"
        server.answers["POST /api/generate#few"] = {"ndjson": [{"response": "a", "done": False}]}
        send(watch.url, "/api/generate", {"model": "tiny", "prompt": "abc"})
        repeated, lost = waited(watch, 2)
    assert (repeated.finish, repeated.error) == ("repetition", None)
    assert lost.error == "connection-lost"


def test_a_client_that_closes_when_it_has_the_whole_answer_did_not_hang_up(monkeypatch):
    """However soon it does, and however late the answer is put together here: that it is whole is known before its last byte is sent."""
    finished = _Tap.finished
    monkeypatch.setattr(_Tap, "finished", lambda tap: (time.sleep(0.6), finished(tap))[-1])
    with (
        Loopback({"POST /v1/chat/completions": CHUNKS, "POST /v1/completions": {"json": {}}}) as server,
        Watch(server.url) as watch,
    ):
        send(watch.url, "/v1/chat/completions", chat(SYSTEM, "hi", stream=True))
        send(watch.url, "/v1/completions", {"model": "m", "prompt": "hi"})
        assert [one.client_left_s for one in waited(watch, 2)] == [None, None]


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "messages",
                "prompt",
                "tools",
                "system",
                "model",
                "options",
                "max_tokens",
                "input",
                "text",
                "sampling_params",
            ]
        ),
        _json,
    )
)
def test_any_body_has_a_shape(body):
    """Whatever a client sends."""
    shape = _shape(body, b"k" * 32)
    assert len(shape.blocks) == len(shape.ends)
    assert shape.ends == sorted(shape.ends)
    assert shape.chars - BLOCK < (shape.ends[-1] if shape.ends else 0) <= shape.chars or shape.chars == 0


@settings(max_examples=120, deadline=None)
@given(st.text(max_size=600), st.text(max_size=300), st.text(max_size=300))
def test_equal_beginnings_have_equal_hashes(start, one, other):
    """As many blocks are equal as whole blocks of the common beginning, under one key; under another key none."""
    common = len(start)
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        common += 1
    first, second = (_shape({"prompt": start + end}, b"k" * 32) for end in (one, other))
    equal = sum(a == b for a, b in zip(first.blocks, second.blocks, strict=False))
    assert equal == min(common // BLOCK, len(first.blocks), len(second.blocks))
    assert not set(first.blocks) & set(_shape({"prompt": start + one}, b"q" * 32).blocks)
