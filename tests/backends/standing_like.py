"""Servers on the loopback that keep state: a model that is loaded anew with other settings, by the interfaces of Ollama, LM Studio and llama-manager."""

from __future__ import annotations

import json
from typing import Any

from .loopback import Loopback, _Handler


def say(handler: _Handler, told: Any, status: int = 200) -> None:
    """Answer JSON."""
    data = json.dumps(told).encode()
    handler.send_head(
        status, {"Content-Type": "application/json", "Content-Length": str(len(data)), "Connection": "close"}, data
    )


def tokens(text: str) -> int:
    """Count tokens: one a byte."""
    return len(text.encode())


class OllamaLike(Loopback):
    """One model. A request with other options loads it anew; too long a prompt is cut without a word; above ``fits`` tokens it does not load."""

    def __init__(
        self, window: int = 1024, trained: int = 32_768, fits: int = 1 << 30, loaded: bool = True, modelfile: str = ""
    ) -> None:
        super().__init__(
            {
                "GET /": {"text": "Ollama is running"},
                "GET /api/version": {"json": {"version": "0.33.0"}},
                "GET /v1/models": {"json": {"data": [{"id": "tiny:latest", "owned_by": "library"}]}},
                "POST /api/show": {
                    "json": {
                        "parameters": modelfile,
                        "details": {"family": "llama", "quantization_level": "Q4_K_M"},
                        "model_info": {"general.architecture": "llama", "llama.context_length": trained},
                    }
                },
            }
        )
        self.default_window, self.trained, self.fits = window, trained, fits
        self.options: dict[str, Any] | None = {"num_ctx": window} if loaded else None
        self.loads: list[dict[str, Any]] = []
        self.faults = {"GET /api/ps": self._ps, "POST /api/generate": self._ask, "POST /api/chat": self._ask}

    def _ps(self, handler: _Handler) -> None:
        entry = {
            "name": "tiny:latest",
            "model": "tiny:latest",
            "size": 1000,
            "size_vram": 1000,
            "context_length": (self.options or {}).get("num_ctx"),
        }
        say(handler, {"models": [entry] if self.options is not None else []})

    def _ask(self, handler: _Handler) -> None:
        body = self.asked[-1][2]
        wanted = {k: v for k, v in (body.get("options") or {}).items() if k in {"num_ctx", "num_batch", "num_gpu"}}
        wanted = {"num_ctx": min(wanted.pop("num_ctx", self.default_window), self.trained), **wanted}
        if body.get("keep_alive") == 0:
            self.options = None
            say(handler, {"done": True, "done_reason": "unload"})
            return
        if wanted != self.options:
            self.loads.append(wanted)
            if wanted["num_ctx"] > self.fits:
                self.options = None
                say(handler, {"error": "model requires more system memory (9.1 GiB) than is available (4.0 GiB)"}, 500)
                return
            self.options = wanted
        text = body.get("prompt") or " ".join(str(m.get("content")) for m in body.get("messages", []))
        if not text:
            say(handler, {"done": True, "done_reason": "load"})
            return
        count, window = tokens(text), wanted["num_ctx"]
        processed = count if count <= window else window // 2 + 2
        final = {
            "response": " ok",
            "message": {"content": " ok"},
            "done": True,
            "done_reason": "length",
            "prompt_eval_count": processed,
            "prompt_eval_duration": processed * 1_000,
            "eval_count": 1,
            "eval_duration": 1_000_000,
        }
        handler.send_head(
            200, {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked", "Connection": "close"}
        )
        handler.chunk(json.dumps(final).encode() + b"\n")
        handler.wfile.write(b"0\r\n\r\n")


class LmStudioLike(Loopback):
    """LM Studio's newer API with one model on disk; ``fits``: the longest window that it loads."""

    def __init__(self, fits: int = 1 << 30, **config: Any) -> None:
        super().__init__({"GET /v1/models": {"json": {"data": [{"id": "m", "owned_by": "organization_owner"}]}}})
        self.fits = fits
        self.instances: dict[str, dict[str, Any]] = {
            "m": {"context_length": 4096, "eval_batch_size": 512, "flash_attention": True, **config}
        }
        self.faults = {
            "GET /api/v1/models": self._models,
            "POST /api/v1/models/load": self._load,
            "POST /api/v1/models/unload": self._unload,
        }

    def _models(self, handler: _Handler) -> None:
        loaded = [{"id": name, "config": config} for name, config in self.instances.items()]
        model = {"type": "llm", "key": "m", "loaded_instances": loaded, "max_context_length": 32_768}
        say(handler, {"models": [model]})

    def _unload(self, handler: _Handler) -> None:
        gone = self.instances.pop(self.asked[-1][2].get("instance_id"), None)
        say(handler, {} if gone is not None else {"error": {"message": "no such instance"}}, 200 if gone else 404)

    def _load(self, handler: _Handler) -> None:
        body = dict(self.asked[-1][2])
        key = body.pop("model")
        body.pop("echo_load_config")
        if body["context_length"] > self.fits:
            say(handler, {"error": {"message": "insufficient system resources"}}, 500)
            return
        name = key if key not in self.instances else f"{key}:2"
        self.instances[name] = body
        say(handler, {"instance_id": name, "load_config": body})


class RouterLike(Loopback):
    """llama-manager's own llama-server: ``/slots`` and ``/reload``."""

    def __init__(self, n_ctx: int = 8192, slots: int = 1, reloads: bool = True) -> None:
        super().__init__()
        self.n_ctx, self.slots = n_ctx, slots
        self.faults = {"GET /slots": self._slots}
        if reloads:
            self.faults["POST /reload"] = self._reload

    def _slots(self, handler: _Handler) -> None:
        say(handler, [{"id": one, "n_ctx": self.n_ctx} for one in range(self.slots)])

    def _reload(self, handler: _Handler) -> None:
        body = self.asked[-1][2]
        if body["n_ctx"] > 1 << 20:
            say(handler, {"success": False, "message": "failed to create context"})
            return
        self.n_ctx = body["n_ctx"]
        say(handler, {"success": True})
