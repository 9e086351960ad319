"""Typed events that a log's lines become. One class, one vocabulary: every dialect says the same thing in the same fields."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from .records import Payload, Text

EventKind = Literal[
    # load
    "program",  # program started, its version or build: name, version
    "command",  # the command line or environment as the log prints it: message; values: flag → text
    "model-info",  # key, text value: arch, n_ctx_train, n_layer, file type, rope scaling …
    "device-found",  # device, total_bytes, free_bytes
    "buffer",  # device, component, size_bytes
    "layers-offloaded",  # count, of
    "kv-cache",  # tokens (cells), layers, streams, type_k, type_v, size_bytes; cache = base|swa|main|indexer|state
    "kv-pool",  # vLLM, SGLang: tokens, concurrency, size_bytes
    "window",  # which = asked|in-force|per-slot|trained|default|pool; tokens
    "window-capped",  # tokens = new, of = asked; reason = trained|fit|per-slot|pool
    "slots",  # count, unified
    "flash-attention",  # on = true|false; reason
    "pipeline-copies",  # count
    "fit",  # the planner: message; tokens, size_bytes
    "rope",  # key, value: freq_base, freq_scale, scaling type, orig ctx
    "speculation",  # kind, accepted, drafted
    "projector",  # size_bytes
    "model-loaded",
    # failures
    "alloc-failed",  # device, component if told, size_bytes, api = cuda|rocm|vulkan|sycl|metal|cpu|torch|mlx|host-pinned, free_bytes, total_bytes, limit_bytes
    "load-failed",
    "decode-failed",  # code, reason = no-slot|compute|batch
    "kernel-error",  # api, message: illegal access, invalid configuration, launch failure, unsupported op
    "crash",  # abort, assertion, panic, signal: message
    "device-lost",
    "watchdog",  # a GPU job took too long: api
    "oom-killer",  # pid, name, size_bytes
    "corrupt-output",  # NaN, garbage, invalid token
    "unsupported",  # what is not supported and set to disabled
    # requests
    "request",  # tokens = prompt
    "refused",  # tokens, limit: prompt exceeds the window
    "truncated",  # tokens = before, kept, limit
    "context-shift",  # count, discarded
    "pool-full",
    "preempted",  # count
    "full-reprocess",  # reason = swa|hybrid|prefix|unknown; tokens
    "checkpoint",  # action = created|restored|erased; tokens, size_bytes
    "cache-reuse",  # tokens = reused, of = prompt, similarity
    "cache-store",  # stored prompt cache: count, size_bytes, tokens, limit_bytes
    "cache-evicted",
    "prefill-progress",  # tokens, of
    "timing",  # phase = prefill|generation; tokens, seconds, tps
    "first-token",  # seconds
    "cancelled",  # client went away; seconds
    "timeout",  # seconds
    "queue",  # running, waiting
    "http",  # status, path, seconds
    "config-ignored",  # a setting that was dropped: key
    "memory-growth",  # size_bytes
    "throttled",
    "hardware",  # Xid, AER, bus, ECC: code
    "spill",  # memory went to shared/host
    "placement",  # how much of the model is on the GPU: value = share 0 to 1; size_bytes, of size total_bytes
    "loading",  # a load begins: name
    "reply",  # an answer's own counts as printed: tokens = prompt, count = generated, of = both together, reason = why it ended
    "memory-use",  # device or process, size_bytes, limit_bytes
    "graph",  # count = splits or nodes reused; key
    "slept",  # the machine or server slept or woke: key
    "generic-error",  # an unknown dialect's error line
    "generic-warning",
]


class LogEvent(Payload):
    """One thing that a log says. Fields that do not apply are None; sizes in bytes, times in seconds."""

    kind: ClassVar[str] = "log_event"
    event: EventKind
    line: int = Field(ge=0, description="line number in its file, from 1; 0 where it is not known")
    last_line: int | None = Field(default=None, ge=0, description="last line, where repeats were folded")
    count_seen: int = Field(default=1, ge=1, description="how many lines were folded into this event")
    text: Text = Field(default="", description="the line itself, at most 500 characters, without terminal codes")
    dialect: str = ""
    log: Text = Field(default="", description="name of the log")
    time: Text | None = None
    level: Literal["error", "warning", "info", "debug"] | None = None
    device: Text | None = None
    component: (
        Literal["weights", "kv", "state", "compute", "output", "draft", "projector", "activation", "pinned", "other"]
        | None
    ) = None
    api: str | None = None
    size_bytes: int | None = None
    free_bytes: int | None = None
    total_bytes: int | None = None
    limit_bytes: int | None = None
    tokens: int | None = None
    of: int | None = None
    kept: int | None = None
    limit: int | None = None
    count: int | None = None
    layers: int | None = None
    streams: int | None = None
    type_k: Text | None = None
    type_v: Text | None = None
    which: str | None = None
    on: bool | None = None
    unified: bool | None = None
    reason: Text | None = None
    key: Text | None = None
    value: Text | float | int | None = None
    seconds: float | None = None
    tps: float | None = None
    phase: str | None = None
    similarity: float | None = None
    accepted: int | None = None
    status: int | None = None
    code: int | None = None
    pid: int | None = None
    name: Text | None = None
    version: Text | None = None
    slot: int | None = None
    task: int | None = None
    tps_low: float | None = Field(
        default=None, description="lowest and highest speed among the lines folded into this event"
    )
    tps_high: float | None = None
    tokens_high: int | None = Field(
        default=None, description="highest token count among the lines folded into this event"
    )
    further: tuple[Text, ...] = Field(
        default=(), description="the lines that tell more of the same failure, the first few, as printed"
    )
    further_lines: tuple[int, ...] = Field(default=(), description="their line numbers")


class LogSummary(Payload):
    """One log as a whole: what it is, how much was read, where reading stopped."""

    kind: ClassVar[str] = "log_summary"
    log: Text
    dialects: tuple[str, ...] = ()
    lines: int = Field(ge=0)
    size_bytes: int = Field(ge=0)
    verbose_load_lines: bool = Field(default=False, description="whether buffer sizes and windows are in it at all")
    incomplete: Text | None = None
    files: tuple[Text, ...] = Field(
        default=(), description="the files that were read, oldest first, where a log was rotated"
    )
    folded: int = Field(default=0, ge=0, description="how many events were folded into others")
    counts: dict[str, int] = Field(default_factory=dict, description="lines by event kind, folded ones included")
