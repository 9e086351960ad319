"""One request to the server and what came of it: counts, both clocks, outcome."""

from __future__ import annotations

from typing import ClassVar, Literal, get_args

from pydantic import Field

from .records import Payload, Text

ErrorKind = Literal[
    "exceeds-window",
    "pool-exhausted",
    "loading",
    "wrong-key",
    "out-of-memory",
    "connection-lost",
    "timeout",
    "bad-answer",
    "bad-request",
    "busy",
    "not-found",
    "not-supported",
    "server-error",
]
ERROR_KINDS: tuple[str, ...] = get_args(ErrorKind)

Outcome = Literal["passed", "failed", "refused", "died", "timeout"]


TURNED_AWAY = "turned away, and sent again"
"""How the origin of a refusal ends whose request was sent again because others were served."""


class RequestError(Payload):
    """An error as the server (or the connection) gave it."""

    kind: ClassVar[str] = "request_error"
    error: ErrorKind
    status: int = 0
    message: Text = ""
    prompt_tokens: int | None = Field(default=None, ge=0, description="as the server counted")
    window: int | None = Field(default=None, ge=0, description="as the server said")
    after_s: float | None = Field(default=None, ge=0)
    gateway: bool = Field(
        default=False, exclude=True, description="said by what stands before the server, which did not answer itself"
    )
    unended: bool = Field(default=False, exclude=True, description="an answer had begun and did not end")


class Completion(Payload):
    """One completion: tokens and times. Server times (``server_…``) and the client's clock are kept apart."""

    kind: ClassVar[str] = "completion"
    purpose: str = Field(default="", description="which probe asked")
    sent_tokens: int | None = Field(default=None, ge=0, description="prompt tokens as counted before sending")
    prompt_tokens: int | None = Field(
        default=None, ge=0, description="whole prompt as the server counted, cached part included"
    )
    cached_tokens: int | None = Field(default=None, ge=0)
    processed_tokens: int | None = Field(
        default=None, ge=0, description="really evaluated: prompt without the cached part"
    )
    generated_tokens: int | None = Field(default=None, ge=0)
    truncated: bool | None = None
    finish: Text | None = Field(default=None, description="stop, length, eos, word, limit, tool_calls, … as given")
    server_prompt_s: float | None = Field(default=None, ge=0)
    server_generation_s: float | None = Field(default=None, ge=0)
    client_first_token_s: float | None = Field(
        default=None, ge=0, description="from sending to the first token, empty chunks ignored"
    )
    client_total_s: float | None = Field(default=None, ge=0)
    at_once: bool | None = Field(
        default=None,
        description="the whole stream came in one piece: our clock cannot tell its first token from its last",
    )
    drafted_tokens: int | None = Field(default=None, ge=0)
    accepted_tokens: int | None = Field(default=None, ge=0)
    error: RequestError | None = None
    logprobs: tuple[dict[str, float], ...] = Field(
        default=(), description="for each generated token the likeliest ones: id (or text) to natural log-probability"
    )
    text: Text | None = Field(default=None, description="the model's answer; never the user's own prompt")

    @property
    def prefill_tps(self) -> float | None:
        """Prompt tokens really evaluated per second, by the server's clock, else up to the first token by ours."""
        n = self.processed_tokens
        seconds = self.server_prompt_s
        if seconds is None and not (self.at_once and (self.generated_tokens or 0) > 1):
            seconds = self.client_first_token_s
        return n / seconds if n and seconds else None

    @property
    def generation_tps(self) -> float | None:
        """Generated tokens per second. The first token belongs to prefill: n−1 steps in the time after it."""
        n = self.generated_tokens
        if n is None or n < 2:
            return None
        if self.server_generation_s:
            return (n - 1) / self.server_generation_s
        if self.client_total_s is None or self.client_first_token_s is None or self.at_once:
            return None
        seconds = self.client_total_s - self.client_first_token_s
        return (n - 1) / seconds if seconds > 0 else None


class TornStream(Payload):
    """The same request answered piece by piece and in one piece: the pieces do not make up the whole."""

    kind: ClassVar[str] = "torn_stream"
    streamed_characters: int = Field(ge=0)
    whole_characters: int = Field(ge=0)
    moved: bool = Field(description="nothing was lost, but pieces changed places")


class TruncationReading(Payload):
    """Tokens sent against tokens processed, below and above the window."""

    kind: ClassVar[str] = "truncation"
    verdict: Literal["none", "refused", "truncated", "unknown"]
    sent: int | None = Field(default=None, ge=0)
    processed: int | None = Field(default=None, ge=0)
    window: int | None = Field(default=None, ge=0)
    would_cost_tokens: int | None = Field(default=None, ge=0)
    rule: str | None = Field(
        default=None, description="half-window, default-window, tail-cut, head-cut, … where it fits a known rule"
    )
    below_sent: int | None = Field(
        default=None, ge=0, description="tokens of a prompt just below the window, where one was sent, too"
    )
    below_processed: int | None = Field(default=None, ge=0)
    silent: bool = Field(
        default=False, description="refused without an error that a client sees: HTTP 200 and an empty answer"
    )
    message: Text = ""


class FailingLength(Payload):
    """Where a failure by length lies, bisected. ``shortest_failed`` None: nothing failed up to ``wanted``."""

    kind: ClassVar[str] = "failing_length"
    longest_passed: int | None = Field(default=None, ge=0)
    shortest_failed: int | None = Field(default=None, ge=0)
    wanted: int = Field(ge=0)
    resolution: int = Field(ge=0)
    error: RequestError | None = None
    died: bool = False
    tried: int = Field(ge=0)


class CacheReuse(Payload):
    """The same prefix sent twice: how much of it did not have to be processed again."""

    kind: ClassVar[str] = "cache_reuse"
    prefix_tokens: int = Field(ge=0)
    cached_on_repeat: int | None = Field(default=None, ge=0)
    cached_on_extension: int | None = Field(default=None, ge=0, description="second prompt = first + more text")
    cached_on_return: int | None = Field(
        default=None,
        ge=0,
        description="the first prompt again after the longer one, with another ending: going back in a chat",
    )
    switched_off_works: bool | None = Field(
        default=None, description="whether a request can be sent that uses no cache"
    )
    how: Text = ""


class Launch(Payload):
    """A server was started from a command; how that went."""

    kind: ClassVar[str] = "launch"
    command: tuple[str, ...]
    healthy: bool
    exit_code: int | None = None
    signal: str | None = None
    seconds: float = Field(ge=0)
    log_path: Text | None = None
    why: Text = ""
    address_space_limit_bytes: int | None = Field(default=None, ge=0)
    address_space_peak_bytes: int | None = Field(
        default=None,
        ge=0,
        description="the most that the process had mapped, as last seen; read where there is a limit",
    )


class Restarted(Payload):
    """A server was started anew within a run.

    One that was started here had died, or a request was to be sent to a fresh one; or what stands before it had unloaded its model (``swapped``).
    """

    kind: ClassVar[str] = "restarted"
    because: Literal["died", "fresh", "swapped"]
    healthy: bool
    seconds: float = Field(ge=0)
    log_path: Text | None = None
    why: Text = ""


class ProcessEnded(Payload):
    """The server's process was seen to end."""

    kind: ClassVar[str] = "process_ended"
    exit_code: int | None = None
    signal: str | None = None
    during: Text = ""
    at_prompt_tokens: int | None = Field(default=None, ge=0)


class ConcurrencyTrial(Payload):
    """The same requests alone and at the same time."""

    kind: ClassVar[str] = "concurrency"
    concurrency: int = Field(ge=1)
    prompt_tokens: int = Field(ge=0)
    alone_passed: int = Field(ge=0)
    alone_tried: int = Field(ge=0)
    together_passed: int = Field(ge=0)
    together_tried: int = Field(ge=0)
    errors: tuple[RequestError, ...] = ()
    alone_s: tuple[float, ...] = ()
    together_s: tuple[float, ...] = ()
    warm_passed: bool | None = Field(
        default=None, description="whether it passed once more with the cache left to the server"
    )
    standing: Literal["", "steady", "fails-always", "flaky", "first-only", "load-only", "cold-only", "nothing"] = Field(
        default="", description="which condition the failures belong to, where enough others passed to say so"
    )
    round_timeout_s: int | None = Field(
        default=None, ge=1, description="round number of seconds after which failures of one kind came, twice at least"
    )
    busy_beside: int = Field(default=0, ge=0, description="tries before which someone else's request was running")
