# ruff: noqa: E501, ARG001, ARG005 - a pattern is read best on one line; every maker takes the match and its fields
"""Ollama: its slog lines of the Go runner and of the llama-server child, ``ollama ps``, ``--verbose``, and its JSON answers."""

from __future__ import annotations

import re

from probes.logs.rule import Fields, Found, Rule, go_seconds, human_bytes, integer, number, rule

NAME = "ollama"

_PAIR = re.compile(r"([A-Za-z_][\w.]*)=(\"(?:[^\"\\]|\\.)*\"|\S+)")
_TELLING = frozenset(
    [
        "OLLAMA_CONTEXT_LENGTH", "OLLAMA_NUM_PARALLEL", "OLLAMA_KV_CACHE_TYPE", "OLLAMA_FLASH_ATTENTION", "OLLAMA_GPU_OVERHEAD",
        "OLLAMA_MAX_LOADED_MODELS", "OLLAMA_KEEP_ALIVE", "OLLAMA_LOAD_TIMEOUT", "OLLAMA_SCHED_SPREAD", "OLLAMA_NEW_ENGINE",
        "OLLAMA_LLM_LIBRARY", "LLAMA_ARG_FIT", "LLAMA_ARG_FIT_TARGET", "LLAMA_ARG_CACHE_RAM", "OLLAMA_NUM_GPU",
    ]
)  # fmt: skip
_ENV = re.compile(r"\b((?:OLLAMA|LLAMA_ARG)_\w+):([^\s\]]*)")


def pairs(line: str) -> dict[str, str]:
    """Read the key=value pairs of a slog line."""
    return {
        key: value[1:-1].replace('\\"', '"') if value.startswith('"') else value
        for key, value in _PAIR.findall(line[:20_000])
    }


def _server_config(match: re.Match[str], _fields: Fields) -> Found:
    found: Found = [("program", {"name": "ollama"})]
    for name, value in _ENV.findall(match.string[:20_000]):
        if name in _TELLING and value:
            found.append(("command", {"key": name, "value": value[:200], "which": "environment"}))
    return found


def _starting(match: re.Match[str], _fields: Fields) -> Found:
    command = pairs(match.string).get("cmd", "")
    found: Found = [("command", {"value": command[:500]})] if command else []
    context = re.search(r"(?:--ctx-size|\s-c)[ =](\d+)", command)
    slots = re.search(r"(?:--parallel|\s-np)[ =](\d+)", command)
    count = integer(slots[1]) if slots is not None else None
    whole = integer(context[1]) if context is not None else None
    if whole is not None:
        # the window that was asked for is that of one request; its runner is started with one for each slot
        found.append(("window", {"which": "asked", "tokens": whole // max(1, count or 1), "key": "ctx-size"}))
    if count is not None:
        found.append(("slots", {"count": count, "key": "parallel"}))
    return found


_NO_MEMORY = re.compile(
    r"out of memory|cudaMalloc|failed to allocate|unable to allocate|insufficient memory|bad_alloc", re.IGNORECASE
)
_ENDED_BY_OLLAMA = re.compile(r"signal: (?:killed|terminated|interrupt)")
"""So Ollama ends a runner that it unloads; a kernel that is out of memory ends it so, too, and says so in its own log."""


def _load_failed(match: re.Match[str], _fields: Fields) -> Found:
    """Read why a load failed; one that ran out of memory is told by the allocation's own words on the same line."""
    error = pairs(match.string).get("error", "")
    if "context canceled" in error:
        return [("cancelled", {"reason": "the client went away while the model was loaded"})]
    if _NO_MEMORY.search(error):
        return []
    return [("load-failed", {"reason": error[:200] or None, "key": "runner"})]


def _died(match: re.Match[str], _fields: Fields) -> Found:
    values = pairs(match.string)
    how = values.get("string") or values.get("error") or ""
    if _ENDED_BY_OLLAMA.search(how):
        # said of it here, so that no other rule takes the word for a kill
        return [("generic-warning", {"key": "runner-ended", "reason": how[:200]})]
    status = re.fullmatch(r"exit status (\d{1,3})", how)
    if not how or status is not None or _NO_MEMORY.search(how):
        # it gave up in good order, and its own lines say why
        return [("generic-warning", {"key": "runner-ended", "reason": how[:200] or None})]
    return [("crash", {"key": "runner", "reason": how[:200]})]


def _ignored(match: re.Match[str], _fields: Fields) -> Found:
    values = pairs(match.string)
    if values.get("key") not in _TELLING:
        return []
    return [
        (
            "config-ignored",
            {
                "key": values.get("key"),
                "value": values.get("value", "")[:200],
                "reason": "no value that Ollama can read",
            },
        )
    ]


def _one_slot(match: re.Match[str], _fields: Fields) -> Found:
    architecture = pairs(match.string).get("architecture")
    return [
        ("config-ignored", {"key": "OLLAMA_NUM_PARALLEL", "reason": f"one request at a time: {architecture}"}),
        ("slots", {"count": 1}),
    ]


def _predicted(match: re.Match[str], _fields: Fields) -> Found:
    """Read what the scheduler reckons a model needs, and what is free, before it unloads others for it."""
    values = pairs(match.string)
    sizes = {
        "size_bytes": human_bytes(values.get("predicted", "")),
        "free_bytes": human_bytes(values.get("available", "")),
    }
    found: Found = [("fit", {**sizes, "tokens": integer(values.get("predicted_num_ctx", "")), "key": "planner"})]
    return [*found, ("memory-use", {"key": "evicting"})] if "evicting" in match.string else found


def _offload(match: re.Match[str], _fields: Fields) -> Found:
    values = pairs(match.string)
    found: Found = []
    if "layers.offload" in values:
        found.append(
            (
                "layers-offloaded",
                {
                    "count": integer(values["layers.offload"]),
                    "of": integer(values.get("layers.model", "")),
                    "key": "planner",
                },
            )
        )
    for key, component in (
        ("memory.required.kv", "kv"),
        ("memory.weights.total", "weights"),
        ("memory.graph.full", "compute"),
    ):
        size = human_bytes(values.get(key, ""))
        if size is not None:
            found.append(
                ("buffer", {"device": "planner", "component": component, "size_bytes": size, "key": "planner"})
            )
    full, available = (
        human_bytes(values.get("memory.required.full", "")),
        values.get("memory.available", "").strip("[]"),
    )
    free = [size for part in re.findall(r"[\d.]+ [KMGT]?i?B", available) if (size := human_bytes(part)) is not None]
    if full is not None:
        found.append(
            (
                "fit",
                {
                    "size_bytes": full,
                    "free_bytes": sum(free) if free else None,
                    "key": "planner",
                    "count": len(free) or None,
                },
            )
        )
    return found


def _device_size(match: re.Match[str], fields: Fields) -> Found:
    values = pairs(match.string)
    component = {"model weights": "weights", "kv cache": "kv", "compute graph": "compute"}[match["what"]]
    size = human_bytes(values.get("size", ""))
    return (
        [("buffer", {**fields, "device": values.get("device"), "component": component, "size_bytes": size})]
        if size is not None
        else []
    )


def _compute(match: re.Match[str], _fields: Fields) -> Found:
    values = pairs(match.string)
    name = values.get("description") or values.get("name")
    if (
        name
        and values.get("description") is None
        and values.get("library")
        and re.fullmatch(r"(?:CUDA|ROCm|Vulkan|Metal|CPU)\d*", name)
    ):
        name = None
    device = values.get("name") if values.get("description") else values.get("id")
    return [
        ("device-found", {
            "device": device or values.get("library"), "name": name, "total_bytes": human_bytes(values.get("total", "")), "key": values.get("library"),
            "free_bytes": human_bytes(values.get("available", "")), "value": values.get("driver"),
        })
    ]  # fmt: skip


def _gin(match: re.Match[str], fields: Fields) -> Found:
    fields["seconds"] = go_seconds(match["took"])
    found: Found = [("http", fields)]
    if fields.get("status") == 499:
        found.append(("cancelled", {"seconds": fields["seconds"], "key": fields.get("name")}))
    return found


def _ps(match: re.Match[str], fields: Fields) -> Found:
    processor = match["processor"]
    found: Found = []
    split = re.match(r"(\d+)%(?:/(\d+)%)?\s+(CPU/GPU|GPU|CPU)", processor)
    share = None
    if split is not None:
        share = (
            float(split[2] or 0) / 100 if split[3] == "CPU/GPU" else float(split[1]) / 100 if split[3] == "GPU" else 0.0
        )
    size = human_bytes(match["size"] or "") if match["size"] else None
    found.append(("placement", {"name": fields.get("name"), "size_bytes": size, "value": share, "reason": processor}))
    if fields.get("tokens"):
        found.append(("window", {"which": "in-force", "tokens": fields["tokens"], "key": "ps"}))
    return found


def _cli(match: re.Match[str], fields: Fields) -> Found:
    prompt = bool(match["prompt"])
    what, text = match["what"], match["text"].strip()
    phase = "prefill" if prompt else "generation"
    if what == "count":
        tokens = integer(text.split()[0]) if text else None
        return [
            ("reply", {"tokens" if prompt else "count": tokens, "key": "prompt-count" if prompt else "reply-count"})
        ]
    if what == "rate":
        return [("timing", {"phase": phase, "tps": number(text.split()[0]) if text else None, "key": "rate"})]
    return [("timing", {"phase": phase, "seconds": go_seconds(text), "key": "duration"})]


def _json_reply(match: re.Match[str], _fields: Fields) -> Found:
    def value(key: str) -> int | None:
        found = re.search(rf"\"{key}\"\s*:\s*(\d+)", match.string)
        return integer(found[1]) if found else None

    prompt, reply = value("prompt_eval_count"), value("eval_count")
    why = re.search(r"\"done_reason\"\s*:\s*\"(\w+)\"", match.string)
    found: Found = [
        (
            "reply",
            {
                "tokens": prompt,
                "count": reply,
                "of": (prompt or 0) + (reply or 0),
                "reason": why[1] if why else None,
                "key": "ollama-json",
            },
        )
    ]
    for phase, tokens, key in (("prefill", prompt, "prompt_eval_duration"), ("generation", reply, "eval_duration")):
        nanoseconds = value(key)
        if tokens and nanoseconds:
            seconds = nanoseconds / 1e9
            found.append(
                ("timing", {"phase": phase, "tokens": tokens, "seconds": seconds, "tps": round(tokens / seconds, 4)})
            )
    return found


def _runner_ended(match: re.Match[str], fields: Fields) -> Found:
    found: Found = [("crash", {**fields, "key": "runner"})]
    why = fields.get("reason") or ""
    if _NO_MEMORY.search(why):
        found.append(("alloc-failed", {"reason": "out of memory", "api": "cuda" if "cuda" in why.lower() else None}))
    return found


def _loading_slot(match: re.Match[str], _fields: Fields) -> Found:
    values = pairs(match.string)
    return [
        (
            "cache-reuse",
            {
                "tokens": integer(values.get("used", "")),
                "of": integer(values.get("prompt", "")),
                "slot": integer(values.get("id", "")),
                "key": "cache-slot",
            },
        )
    ]


# fmt: off
RULES: tuple[Rule, ...] = (
    rule("truncated", "truncating input prompt", r"truncating input prompt\"?.*?\blimit=(?P<limit>\d+)\s+prompt=(?P<tokens>\d+)\s+(?:keep=(?P<of>\d+)\s+)?new=(?P<kept>\d+)", reason="input-prompt", level="warning", make=lambda m, f: [("truncated", {k: v for k, v in f.items() if k != "of"})]),
    rule("truncated", ("messages which exceed context length", "truncating input messages"), r"truncating (?:input|native chat) messages.*?(?:truncated=(?P<count>\d+))?$", reason="messages-dropped"),
    rule("window-capped", "requested context size too large", r"requested context size too large for model(?:.*?num_ctx=(?P<of>\d+)(?:\s+num_parallel=\d+)?\s+n_ctx_train=(?P<tokens>\d+))?", reason="trained", level="warning"),
    rule("window", "vram-based default context", r"total_vram=\"?(?P<total_h>[\d.]+ ?[KMGT]?i?B)\"? default_num_ctx=(?P<tokens>\d+)", which="default", key="vram-tier"),
    rule("program", ('msg="server config"', 'server config\\" env', 'msg="server config'), r"server config\\?\".*?env=", make=_server_config),
    rule("command", ("starting llama-server", "starting llama server", "starting runner", "starting ollama engine"), r"starting (?:llama[- ]server|runner|ollama engine)\\?\"", make=_starting),
    rule("window-capped", "reducing automatic context", r"reducing automatic context and retrying(?:.*?\bold_num_ctx=(?P<of>\d+).*?\bnew_num_ctx=(?P<tokens>\d+))?", reason="fit", level="warning"),
    rule("config-ignored", "invalid environment variable, using default", level="warning", make=_ignored),
    rule("config-ignored", "model architecture does not currently support parallel requests", level="warning", make=_one_slot),
    rule("load-failed", ('msg="Load failed"', 'msg="failed to load model metadata"', 'msg="failed to create server"'), level="error", make=_load_failed),
    rule("crash", ('msg="llama-server terminated"', 'msg="llama-server process no longer running"'), level="error", make=_died),
    rule("cancelled", "client connection closed before llama-server finished loading", level="warning"),
    rule("fit", ("llama-server model predicted to exceed available memory", "llama-server model fits alongside existing models"), make=_predicted),
    rule("memory-use", ("evicting all other models and retrying", "evicting all other loaded models for OOM retry", "expiring loaded models to clear memory"), key="evicting", level="warning"),
    rule("alloc-failed", "model requires more system memory", r"model requires more system memory \((?P<size_h>[\d.]+ ?[KMGT]?i?B)\) than is available \((?P<free_h>[\d.]+ ?[KMGT]?i?B)\)", device="CPU", api="cpu", reason="planner: system memory"),
    rule("fit", ("offload to ", "msg=offload "), r"msg=\"?offload(?: to \w+)?\"? ", make=_offload),
    rule("buffer", ('msg="model weights"', 'msg="kv cache"', 'msg="compute graph"', 'msg=\\"kv cache'), r"msg=\\?\"(?P<what>model weights|kv cache|compute graph)\\?\"", make=_device_size),
    rule("device-found", "inference compute", r"msg=\\?\"inference compute\\?\"", make=_compute),
    rule("memory-use", "didn't recover within timeout", r"VRAM usage didn't recover within timeout\"?(?:.*?seconds=(?P<seconds>[\d.]+))?", key="not-freed", level="warning"),
    rule("memory-use", ("evicting a model to make space", "evicting model to make space"), key="evicting", level="info"),
    rule("layers-offloaded", ("too little memory to allocate any layers", "insufficient VRAM to load any model layers"), count=0, reason="no room for any layer"),
    rule("fit", "did not fit, applying backoff", r"did not fit, applying backoff(?:.*?backoff=(?P<number>[\d.]+))?", key="failed"),
    rule("timeout", ("timed out waiting for llama runner", "timed out waiting for runner", "timed out waiting for llama-server"), r"timed out waiting for (?:llama )?(?:runner|llama-server)(?! to start: context canceled)", reason="load"),
    rule("context-shift", "context limit hit - shifting", r"shifting\"?.*?limit=(?P<limit>\d+).*?input=(?P<of>\d+).*?keep=(?P<kept>\d+).*?discard=(?P<count>\d+)|context limit hit - shifting"),
    rule("config-ignored", ("kv cache requested but flash attention disabled", "quantized kv cache requested", "kv cache type not supported by model"), r"quantized kv cache requested but flash attention disabled|kv cache type not supported by model|quantized kv cache requested[^\n\"]*", key="kv_cache_type", level="warning"),
    rule("flash-attention", ("flash attention enabled but not supported", "enabling flash attention"), r"flash attention enabled but not supported by (?P<reason>\w+)|(?P<yes>enabling flash attention)", make=lambda m, f: [("flash-attention", {"on": bool(m["yes"]), "reason": f.get("reason")})]),
    rule("crash", ("has unexpectedly stopped", "runner process has terminated", "llama runner process no longer running"), r"(?:unexpectedly stopped|process has terminated|no longer running):? ?(?P<reason>[^\n]{0,200})", make=_runner_ended),
    rule("cancelled", ("closing the connection", "client closing the connection"), r"aborting \w+ request due to client closing"),
    rule("cache-reuse", "loading cache slot", r"loading cache slot", make=_loading_slot),
    rule("device-lost", ("cudart init failure", "cudaSetDevice err", "nvcuda init failure", "cuda driver library init failure", "unable to load cuda driver", "rocm init failure"), r"(?:init failure|cudaSetDevice err|unable to load cuda driver)[^\d\n]*(?P<code>\d+)?", api="cuda"),
    rule("generic-warning", "unable to refresh free memory", key="free-memory-unknown"),
    rule("model-loaded", ("runner started in", "llama-server started in"), r"(?:runner|llama-server) started in (?P<seconds>[\d.]+) seconds"),
    rule("http", "[GIN]", r"\|\s*(?P<status>\d{3})\s*\|\s*(?P<took>[\d.hmsµun]+)\s*\|[^|]*\|\s*(?P<key>[A-Z]+)\s+\"(?P<name>[^\"]{1,200})\"", make=_gin),
    rule("placement", ("% GPU", "% CPU"), r"(?:(?<!\S)(?P<name>\S{1,120})\s{1,40}[0-9a-f]{12}\s{1,40}(?P<size>[\d.]+ ?[KMGT]?B)\s{1,40}|(?i:processor)[\s:|]{1,40})(?P<processor>\d+%(?:/\d+%)? (?:CPU/GPU|GPU|CPU))(?:\s+(?P<tokens>\d{3,8})\b)?", make=_ps),
    rule("window", "CONTEXT  ", r"^\W*CONTEXT\s+(?P<tokens>\d{3,8})\s*$", which="in-force", key="ps"),
    rule("placement", "SIZE  ", r"^\W*SIZE\s+(?P<size_h>[\d.]+ ?[KMGT]B)\s*$"),
    rule("timing", ("eval count:", "eval rate:", "eval duration:"), r"(?P<prompt>prompt )?eval (?P<what>count|rate|duration):\s*(?P<text>[^\n]{1,60})", make=_cli),
    rule("reply", "prompt_eval_count", r"\"prompt_eval_count\"\s*:", make=_json_reply),
    rule("refused", ("the prompt is longer than the context length", "exceeds the model's maximum context length"), r"the prompt is longer than the context length|input length \((?P<tokens>\d+) tokens\) exceeds the model's maximum context length \((?P<limit>\d+) tokens\)"),
)
# fmt: on
