# ruff: noqa: E501 - a pattern is read and compared best on one line
"""What clients and proxies print: usage counts of OpenAI-style answers, time-outs, broken connections, HTTP errors."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, integer, rule

NAME = "answers"


def _usage(match: re.Match[str], _fields: Fields) -> Found:
    def value(key: str) -> int | None:
        found = re.search(rf"[\"']?\b{key}[\"']?\s*[:=]\s*(\d+)", match.string)
        return integer(found[1]) if found else None

    prompt, reply, both = value("prompt_tokens"), value("completion_tokens"), value("total_tokens")
    if prompt is None and both is None:
        return []
    why = re.search(r"finish_reason[\"']?\s*[:=]\s*[\"'](\w+)", match.string)
    found: Found = [
        (
            "reply",
            {
                "tokens": prompt,
                "count": reply,
                "of": both if both is not None else (prompt or 0) + (reply or 0),
                "reason": why[1] if why else None,
                "key": "usage",
            },
        )
    ]
    cached = value("cached_tokens")
    if cached is not None:
        found.append(("cache-reuse", {"tokens": cached, "of": prompt, "key": "usage"}))
    return found


_AFTER = r"(?:\D{0,40}?\b(?P<seconds>\d+(?:\.\d+)?) ?(?:s\b|sec)|\D{0,40}?\b(?P<seconds_ms>\d{4,8}) ?ms\b|\D{0,40}?\b(?P<seconds_m>\d+) ?min)?"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("reply", ("prompt_tokens", "total_tokens"), r"(?:prompt|total)_tokens[\"']?\s*[:=]\s*\d+", make=_usage),
    rule("timeout", ("upstream timed out", "504 Gateway", "Gateway Time-out", "Gateway Timeout"), r"upstream timed out|504|Gateway Time-?out", reason="proxy"),
    rule("timeout", ("ReadTimeout", "APITimeoutError", "TimeoutError", "Client.Timeout exceeded", "context deadline exceeded", "ETIMEDOUT", "ESOCKETTIMEDOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "HeadersTimeoutError", "BodyTimeoutError", "Headers Timeout Error", "timed out after", "Request timed out", "request timed out", "timeout of ", "timeout exceeded", "imed out waiting", "operation timed out"), r"(?P<reason>ReadTimeout|APITimeoutError|TimeoutError|Client\.Timeout exceeded|context deadline exceeded|E(?:SOCKET)?TIMEDOUT|UND_ERR_\w+_TIMEOUT|(?:Headers|Body)Timeout ?Error|Headers Timeout Error|[Rr]equest timed out|timed out after|timeout of|timeout exceeded|imed out waiting|operation timed out)" + _AFTER, make=lambda m, f: [("timeout", {**f, "reason": "client", "key": m["reason"][:60]})]),
    rule("cancelled", ("ECONNRESET", "socket hang up", "Broken pipe", "BrokenPipeError", "ClientDisconnect", "Connection reset by peer", "connection reset by peer", "context canceled", "peer closed connection", "incomplete chunked read", "RemoteDisconnected", "Server disconnected"), r"(?P<reason>ECONNRESET|socket hang up|Broken ?[Pp]ipe|ClientDisconnect|[Cc]onnection reset by peer|context canceled|peer closed connection|incomplete chunked read|RemoteDisconnected|Server disconnected)", key="connection"),
    rule("refused", ("context_length_exceeded", "ContextWindowExceeded", "context window exceeded", "context length exceeded", "exceeds the context window", "exceeds context length", "prompt is too long"), r"context_length_exceeded|ContextWindowExceeded|(?i:context (?:window|length) exceeded)|exceeds (?:the )?context (?:window|length)(?: of (?P<limit>\d+))?|prompt is too long(?:: (?P<tokens>\d+) tokens > (?P<limit2>\d+))?"),
    rule("http", ("429 Too Many", "status=429", "status code 429", "503 Service", "502 Bad Gateway"), r"^(?!.{0,400}\b(?:GET|HEAD) /(?:health\w*|ping|ready\w*|livez?)\b).{0,2000}?\b(?P<status>429|50[23])\b", level="warning"),
)
# fmt: on
