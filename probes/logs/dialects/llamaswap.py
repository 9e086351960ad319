# ruff: noqa: E501 - a pattern is read and compared best on one line
"""llama-swap: what the proxy itself says about the servers behind it."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "llama-swap"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("load-failed", ": starting ", r"\w: starting (?P<name>\S+) failed: (?!health ?check)(?P<reason>[^\n]{1,200})"),
    rule("crash", ("upstream command exited prematurely", "process exited but not StateStopping", "ExitError >>", "exited unexpectedly", "upstream exited"), r"(?:exited prematurely|not StateStopping|ExitError|exited unexpectedly|upstream exited)[^\n]{0,120}", key="upstream"),
    rule("timeout", ("health check timed out", "healthcheck timed out", "Health check timed out"), r"[Hh]ealth ?check timed out(?: after (?P<seconds>[\d.]+) ?s)?", reason="load"),
    rule("http", "] Request ", r"\"(?P<key>[A-Z]+) (?P<name>\S+) HTTP/[\d.]+\" (?P<status>\d{3}) \d+ \"[^\"]*\" (?P<seconds_go>[\d.hmsµ]+)"),
    rule("refused", ("Too many requests", "concurrency limit"), r"[Tt]oo many requests|concurrency limit(?: of (?P<limit>\d+))?", reason="concurrency"),
    rule("command", "Executing start command: ", r"Executing start command: (?P<value>[^\n]{1,4000}?)(?:, env: [^\n]*)?$"),
    rule("http", "http: proxy error: ", r"http: proxy error: (?P<reason>[^\n]{1,120})", status=502),
    rule("slept", "Unloading model, TTL of ", r"<(?P<name>[^<>\n]{1,200})> Unloading model, TTL of (?P<seconds>\d{1,9})s reached", key="idle"),
    rule("loading", "loading upstream", r"loading upstream (?P<name>\S+)"),
)
# fmt: on
