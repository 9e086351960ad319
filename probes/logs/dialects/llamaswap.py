# ruff: noqa: E501 - a pattern is read and compared best on one line
"""llama-swap: what the proxy itself says about the servers behind it."""

from __future__ import annotations

from probes.logs.rule import Rule, rule

NAME = "llama-swap"

# fmt: off
RULES: tuple[Rule, ...] = (
    rule("crash", ("upstream command exited prematurely", "process exited but not StateStopping", "ExitError >>", "exited unexpectedly", "upstream exited"), r"(?:exited prematurely|not StateStopping|ExitError|exited unexpectedly|upstream exited)[^\n]{0,120}", key="upstream"),
    rule("timeout", ("health check timed out", "healthcheck timed out", "Health check timed out"), r"[Hh]ealth ?check timed out(?: after (?P<seconds>[\d.]+) ?s)?", reason="load"),
    rule("http", "] Request ", r"\"(?P<key>[A-Z]+) (?P<name>\S+) HTTP/[\d.]+\" (?P<status>\d{3}) \d+ \"[^\"]*\" (?P<seconds_go>[\d.hmsµ]+)"),
    rule("refused", ("Too many requests", "concurrency limit"), r"[Tt]oo many requests|concurrency limit(?: of (?P<limit>\d+))?", reason="concurrency"),
    rule("command", "Executing start command: ", r"Executing start command: (?P<value>[^\n]{1,500})"),
    rule("loading", "loading upstream", r"loading upstream (?P<name>\S+)"),
)
# fmt: on
