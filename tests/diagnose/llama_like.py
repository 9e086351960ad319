"""A llama-server on the loopback that counts tokens by itself: whole words, so that prompts can be built to the token; what it does with them is chosen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from tests.backends.loopback import Loopback, _Handler

_PIECE = re.compile(r"\s*\S+|\s+")


class LlamaLike(Loopback):
    """``window`` tokens a slot. ``complete``: what becomes of a prompt of so many tokens; by default a refusal above the window, else an answer."""

    def __init__(
        self, window: int = 1024, slots: int = 1, complete: Callable[[_Handler, int], None] | None = None, **props: Any
    ) -> None:
        super().__init__(
            {
                "GET /props": {
                    "json": {
                        "build_info": "b11434-abc",
                        "total_slots": slots,
                        "model_alias": "tiny",
                        "default_generation_settings": {"n_ctx": window, "params": {"n_predict": -1}},
                        **props,
                    }
                },
                "GET /v1/models": {
                    "json": {"data": [{"id": "tiny", "owned_by": "llamacpp", "meta": {"n_ctx_train": 1 << 20}}]}
                },
                "GET /health": {"json": {"status": "ok"}},
            }
        )
        self.window = window
        self.complete = complete
        self.vocabulary: dict[str, int] = {}
        self.pieces: list[str] = []
        self.prompts: list[int] = []
        self.faults = {
            "POST /tokenize": self._tokenize,
            "POST /detokenize": self._detokenize,
            "POST /completion": self._complete,
            "POST /v1/chat/completions": self._complete,
        }

    def _tokenize(self, handler: _Handler) -> None:
        say(handler, {"tokens": self.tokens(self.asked[-1][2]["content"])})

    def tokens(self, text: str) -> list[int]:
        found = []
        for piece in _PIECE.findall(text):
            if piece not in self.vocabulary:
                self.vocabulary[piece] = len(self.pieces)
                self.pieces.append(piece)
            found.append(self.vocabulary[piece])
        return found

    def _detokenize(self, handler: _Handler) -> None:
        say(handler, {"content": "".join(self.pieces[one] for one in self.asked[-1][2]["tokens"])})

    def _complete(self, handler: _Handler) -> None:
        body = self.asked[-1][2]
        text = body.get("prompt") or " ".join(str(m.get("content")) for m in body.get("messages", []))
        count = len(self.tokens(text))
        self.prompts.append(count)
        if self.complete is not None:
            self.complete(handler, count)
        elif count > self.window:
            refuse(handler, count, self.window)
        else:
            answer(handler, count)


def say(handler: _Handler, told: Any, status: int = 200) -> None:
    """Answer JSON."""
    data = json.dumps(told).encode()
    handler.send_head(
        status, {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"}, data
    )


def refuse(handler: _Handler, count: int, window: int) -> None:
    """Refuse a prompt as llama-server does."""
    message = f"the request exceeds the available context size. try increasing the context size or enable context shift ({count} > {window})"
    error = {
        "code": 400,
        "message": message,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": count,
        "n_ctx": window,
    }
    say(handler, {"error": error}, 400)


def answer(handler: _Handler, processed: int) -> None:
    """Answer as if so many tokens had been processed, streamed, in one piece."""
    final = {
        "content": " ok",
        "stop": True,
        "stop_type": "limit",
        "tokens_evaluated": processed,
        "tokens_predicted": 1,
        "timings": {"cache_n": 0, "prompt_n": processed, "prompt_ms": 10.0, "predicted_n": 1, "predicted_ms": 1.0},
    }
    handler.send_head(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked", "Connection": "close"})
    handler.chunk(b"data: " + json.dumps(final).encode() + b"\n\n")
    handler.wfile.write(b"0\r\n\r\n")
