"""A stand-in for Ollama that is a process of its own, with a real llama-server for a child, as Ollama has one for each model.

Started as ``python ollama_like.py PORT NUM_CTX PARALLEL MODEL.gguf [MODEL.gguf …]``; plays Ollama 0.33's API as its source has it: the native endpoints
with their counts in nanoseconds, the silent cut to the newest half of the window, and the OpenAI endpoint that takes no ``num_ctx``. What it processes
is really processed by the child. Another ``num_ctx`` than the loaded one would load the model anew; here that is an error, so that a test sees it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Runner:
    """One loaded model: its llama-server child, started with the flags that Ollama starts it with."""

    def __init__(self, model: Path, num_ctx: int, parallel: int) -> None:
        self.model, self.num_ctx, self.parallel = model, num_ctx, parallel
        self.name = f"{model.stem}:latest"
        self.port = free_port()
        argv = [
            "/usr/lib/ollama/llama-server",
            str(ROOT / "diagnose" / "llama_server.py"),
            *("--model", str(model), "--port", str(self.port), "--host", "127.0.0.1"),
            *("-c", str(num_ctx * parallel), "-np", str(parallel), "--log-verbosity", "4"),
            *("--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on", "-b", "512", "-ub", "256"),
            *("--no-kv-unified", "-t", "1", "-tb", "1", "--poll", "0", "--no-warmup"),
        ]
        # its name is the runner's, as the process table shows it; the program behind is the embedded server
        self.process = subprocess.Popen(
            argv, executable=sys.executable, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(method, path, data, {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())

    def wait(self) -> None:
        ends = time.monotonic() + 60
        while time.monotonic() < ends and self.process.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                if self.ask("GET", "/health").get("status") == "ok":
                    return
            time.sleep(0.1)
        raise SystemExit("the child did not start")

    def run(self, text: str, predict: int) -> tuple[str, dict[str, Any]]:
        tokens = self.ask("POST", "/tokenize", {"content": text, "add_special": False})["tokens"]
        if len(tokens) >= self.num_ctx:
            # nothing is said: the newest half of the window is kept, and the answer is HTTP 200
            tokens = tokens[-(self.num_ctx // 2) :]
        told = self.ask("POST", "/completion", {"prompt": tokens, "n_predict": predict, "temperature": 0})
        timings = told["timings"]
        return told["content"], {
            "prompt_eval_count": told["tokens_evaluated"],
            "prompt_eval_duration": int(timings["prompt_ms"] * 1e6),
            "eval_count": told["tokens_predicted"],
            "eval_duration": int(timings["predicted_ms"] * 1e6),
            "done_reason": "length" if told["stop_type"] == "limit" else "stop",
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    runners: tuple[Runner, ...] = ()

    def log_message(self, *_args: object) -> None:
        pass

    def give(self, told: Any, status: int = 200, kind: str = "application/json") -> None:
        data = told if isinstance(told, bytes) else json.dumps(told).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n"
        self.wfile.write(head.encode() + data)

    def do_GET(self) -> None:
        if self.path == "/":
            self.give(b"Ollama is running", kind="text/plain")
        elif self.path == "/api/version":
            self.give({"version": "0.33.0"})
        elif self.path == "/api/ps":
            models = [
                {"name": r.name, "model": r.name, "size": 100, "size_vram": 0, "context_length": r.num_ctx}
                for r in self.runners
            ]
            self.give({"models": models})
        elif self.path == "/v1/models":
            self.give({"object": "list", "data": [{"id": r.name, "owned_by": "library"} for r in self.runners]})
        else:
            self.give(b"404 page not found", 404, "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        runner = next((r for r in self.runners if r.name.split(":")[0] == body["model"].split(":")[0]), None)
        if runner is None:
            self.give({"error": f"model '{body['model']}' not found"}, 404)
        elif self.path == "/api/show":
            self.give(
                {
                    "modelfile": f"# Modelfile\nFROM {runner.model}\nPARAMETER num_ctx {runner.num_ctx}\n",
                    "parameters": f"num_ctx {runner.num_ctx}",
                    "template": "{{ .Prompt }}",
                    "details": {"family": "llama", "quantization_level": "F32"},
                    "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
                }
            )
        elif self.path in {"/api/generate", "/api/chat"}:
            wanted = body.get("options", {}).get("num_ctx", runner.num_ctx)
            if wanted != runner.num_ctx:
                self.give({"error": f"the model would be loaded anew with {wanted}"}, 500)
                return
            text = body.get("prompt") or "".join(f"{m['role']}: {m['content']}\n" for m in body["messages"])
            answer, counts = runner.run(text, body["options"]["num_predict"])
            shape = {"response": answer} if self.path == "/api/generate" else {"message": {"content": answer}}
            lines = [{**shape, "done": False}, {"response": "", "done": True, **counts}]
            self.give("".join(json.dumps(line) + "\n" for line in lines).encode(), kind="application/x-ndjson")
        elif self.path == "/v1/completions":
            answer, counts = runner.run(body["prompt"], body["max_tokens"])
            usage = {"prompt_tokens": counts["prompt_eval_count"], "completion_tokens": counts["eval_count"]}
            self.give({"choices": [{"text": answer, "finish_reason": counts["done_reason"]}], "usage": usage})
        else:
            self.give(b"404 page not found", 404, "text/plain")


def main(port: int, num_ctx: int, parallel: int, models: list[str]) -> None:
    runners = tuple(Runner(Path(model), num_ctx, parallel) for model in models)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for runner in runners:
            runner.wait()
        Handler.runners = runners
        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            server.serve_forever()
    finally:
        for runner in runners:
            runner.process.terminate()
        for runner in runners:
            with contextlib.suppress(subprocess.TimeoutExpired):
                runner.process.wait(5)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
