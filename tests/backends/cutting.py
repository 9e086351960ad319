"""Servers on the loopback that cut an overlong prompt without a word, each by its own known rule and in its own shape of an answer.

A token is a word, so that every count is exact. ``law`` says how many of the tokens sent are kept, for so many tokens of answer.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from tests.backends.loopback import Loopback, _Handler, recording
from tests.diagnose.llama_like import _PIECE, say

Law = Callable[[int, int], int]


def words_of(text: str) -> list[str]:
    return _PIECE.findall(text)


class Cutting(Loopback):
    """One of the recordings, with a window and a law of its own; every request's counts are in ``processed``, sent beside kept."""

    def __init__(self, name: str, window: int, law: Law) -> None:
        told = copy.deepcopy(recording(name))
        super().__init__(told["answers"], default=told.get("default"))
        self.window, self.law = window, law
        self.count = lambda text: len(words_of(text))
        self.processed: list[tuple[int, int]] = []
        self._set_window()
        routes = {
            "/api/generate": self._ollama,
            "/api/extra/tokencount": self._count,
            "/api/extra/detokenize": self._nothing,
            "/tokenize": self._count,
            "/detokenize": self._nothing,
            "/v1/internal/encode": self._count,
            "/v1/completions": self._protocol,
            "/v1/chat/completions": self._protocol,
            "/api/v0/completions": self._protocol,
            "/generate": self._sglang,
            "/completion": self._ik,
        }
        self.faults = {f"POST {path}": act for path, act in routes.items()}
        self.faults["GET /api/extra/perf"] = self._perf

    def _set_window(self) -> None:
        answers, window = self.answers, self.window
        if "GET /api/ps" in answers and "GET /api/extra/version" not in answers:
            answers["GET /api/ps"]["json"]["models"][0]["context_length"] = window
            answers["POST /api/show"]["json"]["parameters"] = f"num_ctx {window}"
        if "GET /api/extra/true_max_context_length" in answers:
            answers["GET /api/extra/true_max_context_length"]["json"]["value"] = window
        if "GET /server_info" in answers:
            answers["GET /server_info"]["json"] |= {
                "max_req_input_len": window,
                "max_total_num_tokens": window + 6,
                "allow_auto_truncate": True,
            }
        if "GET /api/v1/models" in answers:
            answers["GET /api/v1/models"]["json"]["models"][0]["loaded_instances"][0]["config"]["context_length"] = (
                window
            )
        if "GET /props" in answers and "n_ctx" in answers["GET /props"].get("json", {}):
            answers["GET /props"]["json"] |= {"n_ctx": window, "total_slots": 1}
            answers["GET /props"]["json"]["default_generation_settings"] = {"n_ctx": window}

    def _kept(self, text: str, output: int) -> int:
        sent = self.count(text)
        kept = min(sent, self.law(sent, output))
        self.processed.append((sent, kept))
        return kept

    def _body(self) -> dict[str, Any]:
        return self.asked[-1][2]

    def _count(self, handler: _Handler) -> None:
        body = self._body()
        text = next(body[key] for key in ("prompt", "content", "text", "input") if isinstance(body.get(key), str))
        ids = list(range(len(words_of(text))))
        say(handler, {"value": len(ids), "ids": ids, "tokens": ids, "count": len(ids), "length": len(ids)})

    def _nothing(self, handler: _Handler) -> None:
        say(handler, {"error": "not here"}, 404)

    def _perf(self, handler: _Handler) -> None:
        kept = self.processed[-1][1] if self.processed else 0
        told = {"last_input_count": kept, "last_token_count": 1, "last_process_time": 0.01, "last_eval_time": 0.001}
        say(handler, {**told, "total_gens": len(self.processed), "idle": 1, "queue": 0, "stop_reason": 0})

    def _ollama(self, handler: _Handler) -> None:
        body = self._body()
        kept = self._kept(body["prompt"], body["options"]["num_predict"])
        lines = [
            {"response": " x", "done": False},
            {"response": "", "done": True, "done_reason": "length", "prompt_eval_count": kept, "eval_count": 1},
        ]
        _stream(handler, "application/x-ndjson", [json.dumps(line) + "\n" for line in lines])

    def _protocol(self, handler: _Handler) -> None:
        body = self._body()
        text = body["prompt"] if "prompt" in body else "".join(m["content"] for m in body["messages"])
        kept = self._kept(text, body["max_tokens"])
        usage = {"prompt_tokens": kept, "completion_tokens": 1, "total_tokens": kept + 1}
        events = [{"choices": [{"text": " x", "delta": {"content": " x"}, "finish_reason": "length"}], "usage": usage}]
        _sse(handler, [*events, "[DONE]"])

    def _sglang(self, handler: _Handler) -> None:
        body = self._body()
        kept = self._kept(body["text"], body["sampling_params"]["max_new_tokens"])
        meta = {"prompt_tokens": kept, "completion_tokens": 1, "cached_tokens": 0, "finish_reason": {"type": "length"}}
        _sse(handler, [{"text": " x", "meta_info": meta}, "[DONE]"])

    def _ik(self, handler: _Handler) -> None:
        body = self._body()
        kept = self._kept(body["prompt"], body["n_predict"])
        cut = self.processed[-1][0] > kept
        timings = {"prompt_n": kept, "prompt_ms": 10.0, "predicted_n": 1, "predicted_ms": 1.0}
        _sse(
            handler,
            [
                {
                    "content": " x",
                    "stop": True,
                    "stopped_limit": True,
                    "truncated": cut,
                    "tokens_evaluated": kept,
                    "tokens_predicted": 1,
                    "timings": timings,
                }
            ],
        )


def _sse(handler: _Handler, events: list[Any]) -> None:
    _stream(
        handler,
        "text/event-stream",
        [f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in events],
    )


def _stream(handler: _Handler, kind: str, parts: list[str]) -> None:
    handler.send_head(200, {"Content-Type": kind, "Transfer-Encoding": "chunked", "Connection": "close"})
    for part in parts:
        handler.chunk(part.encode())
    handler.wfile.write(b"0\r\n\r\n")


def half(window: int) -> Law:
    """Ollama: the newest half of the window."""
    return lambda sent, _output: sent if sent < window else window // 2 + 2


def front(window: int) -> Law:
    """KoboldCpp, text-generation-webui: the newest tokens that leave room for the answer."""
    return lambda _sent, output: window - output


def tail(window: int) -> Law:
    """SGLang with auto-truncate: the oldest tokens; the end is dropped."""
    return lambda _sent, _output: window


def blocks(window: int) -> Law:
    """ik_llama.cpp, older llama-server: whole blocks of half a window are dropped from the front."""

    def law(sent: int, _output: int) -> int:
        while sent >= window:
            sent -= window // 2
        return sent

    return law
