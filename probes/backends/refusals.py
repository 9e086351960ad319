"""What a server's error answer means: one place for the texts of all servers, with the numbers that they carry.

Texts from llama.cpp, ik_llama.cpp, Ollama, LM Studio, mlx_lm, vLLM, SGLang, KoboldCpp, TabbyAPI, text-generation-webui, llama-cpp-python and
llama-manager; the same texts pass through routers and proxies, so each backend types errors here. A number is taken only where the text says
what it is: "at least 4097 tokens" is no count.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

from probes.evidence.errors import CtxDoctorError, NoAnswerInTimeError
from probes.evidence.request import ErrorKind, RequestError

MOST_MESSAGE = 2000

STATUS_KINDS: Mapping[int, ErrorKind] = {
    400: "bad-request",
    401: "wrong-key",
    403: "wrong-key",
    404: "not-found",
    405: "not-supported",
    408: "timeout",
    409: "busy",
    413: "bad-request",
    422: "bad-request",
    429: "busy",
    500: "server-error",
    501: "not-supported",
    502: "connection-lost",
    503: "busy",
    504: "timeout",
}

_N = r"(\d{1,15})"
_P = r"(?P<prompt>\d{1,15})"
_W = r"(?P<window>\d{1,15})"
_MOST = r" tokens, resulting in a maximum input length of (?P<most>\d{1,15})"
# First those with numbers, most telling first; then those without.
_EXCEEDS: tuple[re.Pattern[str], ...] = tuple(
    re.compile(text, re.IGNORECASE | re.DOTALL)
    for text in (
        # llama.cpp, TabbyAPI
        rf"request \({_P} tokens\) exceeds the available context size \({_W} tokens\)",
        rf"prompt length {_P} exceeds the available context size of {_W} tokens",
        rf"requires {_N} cache tokens, which exceeds the available context size of {_W} tokens",
        rf"input \({_P} tokens\) is larger than the max context size \({_W} tokens\)",
        # vLLM, OpenAI, llama-cpp-python
        rf"maximum context length is {_W} tokens\W+however, your prompt contains {_P} input tokens",
        rf"maximum context length is {_W} tokens\W+however, your (?:prompt|messages|request)s? (?:contains|has|resulted in) {_P} (?:input )?tokens",
        rf"maximum context length is {_W} tokens\W+however,? you requested {_N} tokens \({_P} in (?:the|your) (?:messages|prompt)",
        rf"maximum context length is {_W} tokens and your request has {_P} input tokens",
        rf"decoder prompt \(length {_P}\) is longer than the maximum model length of {_W}",
        # it cuts the prompt one token above what fits before it counts it: just so many are no count
        rf"passed {_P} input tokens? and requested {_N} output tokens?\W+however, the model'?s context length is only {_W}(?:{_MOST})?",
        rf"requested tokens \({_P}\) exceed context window of {_W}",
        rf"max_(?:completion_)?tokens={_N} ?cannot be greater than max_model_len=(?:\w{{1,40}}=)?{_W}",
        rf"maximum context length (?:is|of) {_W} tokens\W+you requested a total of {_N} tokens: {_P} tokens from the input",
        # SGLang, Ollama's MLX runner
        rf"input \({_P} tokens\) is longer than the model'?s context length \({_W} tokens\)",
        rf"input length \({_P} tokens\) exceeds the (?:maximum allowed length|model'?s maximum context length) \({_W} tokens\)",
        # LM Studio
        rf"keep the first {_P} tokens when context the overflows.{{0,120}}context length of only {_W} tokens",
        rf"n_keep:? ?\(?{_P}\)?\s*>=\s*n_ctx:? ?\(?{_W}\)?",
        rf"reached context length of {_W} tokens with model",
        # whoever else names the window
        rf"the model'?s context length is only {_W} tokens",
        rf"maximum context length (?:is|of) {_W} tokens",
        rf"(?:exceeds?|longer than|larger than) (?:the )?(?:available |maximum |max |model'?s )*context (?:length|size|window) ?(?:of |\(|: ?|is )?{_W}",
        # without numbers
        r"exceeds? the (?:available |maximum |model'?s )*context (?:size|length|window)",
        r"prompt is longer than the context length currently available",
        r"(?:input|prompt) (?:length )?exceeds the context",
        r"prompt is too long|too many (?:input )?tokens|input is too long|context_length_exceeded|context window (?:is )?(?:full|exceeded)",
        r"cannot truncate prompt with n_keep",
    )
)
_POOL = re.compile(
    r"input prompt is too big compared to kv size"
    r"|context size has been exceeded|failed to find (?:a )?memory slot|no kv slot|kv cache is full|could not find a kv slot"
    r"|no available (?:kv )?cache blocks?|kv cache pool is full|(?:prefill|decode) out of memory",
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|outofmemory|insufficient (?:memory|vram)|failed to allocate|alloc(?:ation)? (?:of .{0,60})?failed|unable to allocate"
    r"|cannot allocate memory|requires more system memory|not enough (?:gpu )?memory|no available memory|hip(?:error)?outofmemory|bad_alloc"
    r"|attempting to allocate \d+ bytes which is greater|kv cache is needed, which is larger than the available",
    re.IGNORECASE,
)
_LOADING = re.compile(
    r"loading model|model is (?:still )?loading|llm server loading|not ready yet|is starting|currently loading",
    re.IGNORECASE,
)
_BUSY = re.compile(
    r"server is busy|server busy|maximum pending requests|too many requests|concurren(?:cy|t).{0,20}limit|queue is full",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model .{0,200}(?:not found|does not exist|not loaded)|no models? (?:is |are )?loaded|unable to resolve model|no such model",
    re.IGNORECASE | re.DOTALL,
)
_CRASH = re.compile(
    r"(?:model|runner|process|server|llama) (?:has )?(?:crashed|terminated|exited)|crashed without additional information"
    r"|exit code",
    re.IGNORECASE,
)
_RUNNER_DIED = re.compile(
    r"error was encountered while running the model|model runner has unexpectedly stopped"
    r"|llama(?:-server| runner) process (?:has terminated|no longer running)",
    re.IGNORECASE,
)
"""Ollama's words for a runner that died. What follows is the last error that the runner printed, which may be of a request long before."""
_NOT_OFFERED = re.compile(r"not supported|does not support|not implemented|unsupported", re.IGNORECASE)
_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^<>]{0,2000}>", re.IGNORECASE | re.DOTALL)


def message_of(body: object) -> tuple[str, str, dict[str, Any]]:
    """Find an error's message, its type or code, and the object that holds them, in any server's shape of it."""
    held: dict[str, Any] = {}
    told: object = body
    for _depth in range(5):
        if isinstance(told, dict):
            held = {**held, **{str(k): v for k, v in told.items() if isinstance(v, str | int | float)}}
            # {"error": {...}}, {"error": "text"}, {"detail": …} (FastAPI, KoboldCpp), {"object": "error", "message": …} (SGLang)
            inner = next((told[k] for k in ("error", "detail", "message", "msg") if told.get(k)), None)
            if inner is None:
                break
            told = inner
        elif isinstance(told, list):
            told = next(iter(told), None)
        elif isinstance(told, str) and told.lstrip().startswith("{"):
            # Ollama hands its child's error object on as a text.
            try:
                told = json.loads(told)
            except (ValueError, RecursionError):
                break
        else:
            break
    message = told if isinstance(told, str) else "" if told is None else json.dumps(told, default=str)[:MOST_MESSAGE]
    if "<html" in message[:2000].lower() or "<!doctype" in message[:200].lower():
        message = html.unescape(_TAG.sub(" ", message[:20_000]))
    kind = next((str(held[k]) for k in ("type", "code", "error_type") if isinstance(held.get(k), str)), "")
    code = str(held.get("code", ""))
    return " ".join(message.split())[:MOST_MESSAGE], f"{kind} {code}".strip(), held


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 40 else None


GATEWAY_STATUSES = frozenset({502, 503, 504, *range(520, 528)})
_OF_SERVERS = frozenset({"error", "detail", "object", "err", "type", "code"})


def of_gateway(status: int, body: object) -> bool:
    """Say whether an answer is of a gateway that got none from the server behind it: a web page or a bare text, and no server's own error object."""
    return status in GATEWAY_STATUSES and not (isinstance(body, dict) and _OF_SERVERS & body.keys())


def unended(after_s: float) -> RequestError:
    """Make an error record of an answer that had begun and was still coming when the deadline passed."""
    message = f"the answer had begun, and its stream did not end within {after_s:.0f} s"
    return RequestError(error="timeout", message=message, after_s=round(after_s, 3), unended=True)


def type_refusal(status: int, body: object, after_s: float | None = None) -> RequestError:
    """Type an error answer: HTTP status, and the body decoded (or as text)."""
    message, given, held = message_of(body)
    kind: ErrorKind = STATUS_KINDS.get(status, "server-error" if status >= 500 or status < 400 else "bad-request")
    prompt, window = _whole(held.get("n_prompt_tokens")), _whole(held.get("n_ctx"))
    if _RUNNER_DIED.search(message):
        kind = "out-of-memory" if _OUT_OF_MEMORY.search(message) else "server-error"
    elif _POOL.search(message):
        kind = "pool-exhausted"
    elif "exceed_context_size" in given or "context_length_exceeded" in given or _exceeds(message) is not None:
        kind = "exceeds-window"
        found = _exceeds(message)
        groups = found.groupdict() if found is not None else {}
        counted = _whole(int(groups["prompt"])) if groups.get("prompt") else None
        if counted is not None and groups.get("most") and counted == int(groups["most"]) + 1:
            counted = None
        prompt = prompt if prompt is not None else counted
        window = window if window is not None else _whole(int(groups["window"])) if groups.get("window") else None
    elif _OUT_OF_MEMORY.search(message):
        kind = "out-of-memory"
    elif "authentication" in given or "permission" in given:
        kind = "wrong-key"
    elif _CRASH.search(message):
        kind = "server-error"
    elif _LOADING.search(message) or "unavailable_error" in given:
        kind = "loading"
    elif _BUSY.search(message):
        kind = "busy"
    elif _NO_MODEL.search(message):
        kind = "not-found"
    elif status in {400, 404, 422, 500} and _NOT_OFFERED.search(message):
        kind = "not-supported"
    if kind != "exceeds-window":
        prompt = window = None
    return RequestError(
        error=kind,
        status=status if 0 <= status < 1000 else 0,
        message=message,
        prompt_tokens=prompt,
        window=window,
        after_s=after_s,
        gateway=of_gateway(status, body),
    )


def _exceeds(message: str) -> re.Match[str] | None:
    for pattern in _EXCEEDS:
        found = pattern.search(message)
        if found is not None:
            return found
    return None


def type_failure(error: CtxDoctorError, after_s: float) -> RequestError:
    """Type a connection that broke, or a deadline that passed, while a request was under way."""
    kind: ErrorKind = "timeout" if isinstance(error, NoAnswerInTimeError) else "connection-lost"
    return RequestError(error=kind, message=str(error), after_s=round(after_s, 3))
