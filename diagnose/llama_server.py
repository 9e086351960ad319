"""A real llama.cpp server in a process of its own, started with llama-server's own flags.

``xllamacpp`` is llama.cpp's C++ server as a Python module. This file is run by its path (``python …/llama_server.py -m MODEL -c 8192``), imports
nothing of ours, and is what ``ctxdoctor demo`` and the tests start. It logs to stderr as llama-server does. Flags that it does not know are
refused, not ignored. Source of flags and defaults: llama.cpp's ``common/arg.cpp``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
from typing import Any

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")

# flag names, environment variable, attribute of CommonParams, how to read the value (None: a switch)
_NUMBERS: tuple[tuple[tuple[str, ...], str, str, type], ...] = (
    (("-b", "--batch-size"), "LLAMA_ARG_BATCH", "n_batch", int),
    (("-ub", "--ubatch-size"), "LLAMA_ARG_UBATCH", "n_ubatch", int),
    (("-ngl", "--gpu-layers", "--n-gpu-layers"), "LLAMA_ARG_N_GPU_LAYERS", "n_gpu_layers", int),
    (("-mg", "--main-gpu"), "LLAMA_ARG_MAIN_GPU", "main_gpu", int),
    (("--rope-freq-base",), "LLAMA_ARG_ROPE_FREQ_BASE", "rope_freq_base", float),
    (("--rope-freq-scale",), "LLAMA_ARG_ROPE_FREQ_SCALE", "rope_freq_scale", float),
    (("--yarn-orig-ctx",), "LLAMA_ARG_YARN_ORIG_CTX", "yarn_orig_ctx", int),
    (("--yarn-ext-factor",), "LLAMA_ARG_YARN_EXT_FACTOR", "yarn_ext_factor", float),
    (("--yarn-attn-factor",), "LLAMA_ARG_YARN_ATTN_FACTOR", "yarn_attn_factor", float),
    (("--keep",), "LLAMA_ARG_KEEP", "n_keep", int),
    (("--ctx-checkpoints", "--swa-checkpoints"), "LLAMA_ARG_CTX_CHECKPOINTS", "n_ctx_checkpoints", int),
    (("--cache-ram", "-cram"), "LLAMA_ARG_CACHE_RAM", "cache_ram_mib", int),
    (("--cache-reuse",), "LLAMA_ARG_CACHE_REUSE", "n_cache_reuse", int),
    (("--kv-unified-per-slot",), "LLAMA_ARG_KV_UNIFIED_PER_SLOT", "kv_unified_per_slot", int),
    (("--port",), "LLAMA_ARG_PORT", "port", int),
    (("-lv", "--verbosity", "--log-verbosity"), "LLAMA_ARG_LOG_VERBOSITY", "verbosity", int),
    (("-to", "--timeout"), "LLAMA_ARG_TIMEOUT", "timeout_read", int),
    (("-n", "--predict", "--n-predict"), "LLAMA_ARG_N_PREDICT", "n_predict", int),
)

# flag names, environment variable, attribute, value that the flag sets
_SWITCHES: tuple[tuple[tuple[str, ...], str, str, bool], ...] = (
    (("--swa-full",), "LLAMA_ARG_SWA_FULL", "swa_full", True),
    (("--context-shift",), "LLAMA_ARG_CONTEXT_SHIFT", "ctx_shift", True),
    (("--no-context-shift",), "LLAMA_ARG_NO_CONTEXT_SHIFT", "ctx_shift", False),
    (("-nkvo", "--no-kv-offload"), "LLAMA_ARG_NO_KV_OFFLOAD", "no_kv_offload", True),
    (("--metrics",), "LLAMA_ARG_ENDPOINT_METRICS", "endpoint_metrics", True),
    (("--slots",), "LLAMA_ARG_ENDPOINT_SLOTS", "endpoint_slots", True),
    (("--no-slots",), "LLAMA_ARG_NO_ENDPOINT_SLOTS", "endpoint_slots", False),
    (("--no-warmup",), "LLAMA_ARG_NO_WARMUP", "warmup", False),
    (("--no-cache-prompt",), "LLAMA_ARG_NO_CACHE_PROMPT", "cache_prompt", False),
    (("--jinja",), "LLAMA_ARG_JINJA", "use_jinja", True),
    (("--no-jinja",), "LLAMA_ARG_NO_JINJA", "use_jinja", False),
    (("--log-jsonl",), "LLAMA_ARG_LOG_JSONL", "log_json", True),
    (("--no-cache-idle-slots",), "LLAMA_ARG_NO_CACHE_IDLE_SLOTS", "cache_idle_slots", False),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        sys.stderr.write(f"error: {message}\n")
        raise SystemExit(1)


def _env(name: str) -> str | None:
    value = os.environ.get(name)
    return value if value not in {None, ""} else None


def parser() -> argparse.ArgumentParser:
    """Build the parser: llama-server's names for what this build can be told."""
    arguments = _Parser(prog="llama-server", add_help=True, allow_abbrev=False)
    add = arguments.add_argument
    add("-m", "--model", default=_env("LLAMA_ARG_MODEL"))
    add("-a", "--alias", default=_env("LLAMA_ARG_ALIAS"))
    add("-c", "--ctx-size", type=int, default=_env("LLAMA_ARG_CTX_SIZE"))
    add("-np", "--parallel", type=int, default=_env("LLAMA_ARG_N_PARALLEL"))
    add("-kvu", "--kv-unified", action="store_true", default=None)
    add("-no-kvu", "--no-kv-unified", dest="kv_unified", action="store_false", default=None)
    add("-ctk", "--cache-type-k", choices=CACHE_TYPES, default=_env("LLAMA_ARG_CACHE_TYPE_K"))
    add("-ctv", "--cache-type-v", choices=CACHE_TYPES, default=_env("LLAMA_ARG_CACHE_TYPE_V"))
    add(
        "-fa",
        "--flash-attn",
        nargs="?",
        const="on",
        choices=("on", "off", "auto"),
        default=_env("LLAMA_ARG_FLASH_ATTN"),
    )
    add("-sm", "--split-mode", choices=("none", "layer", "row", "tensor"), default=_env("LLAMA_ARG_SPLIT_MODE"))
    add("-ts", "--tensor-split", default=_env("LLAMA_ARG_TENSOR_SPLIT"))
    add("--rope-scaling", choices=("none", "linear", "yarn"), default=_env("LLAMA_ARG_ROPE_SCALING_TYPE"))
    add("--rope-scale", type=float, default=_env("LLAMA_ARG_ROPE_SCALE"))
    add("-t", "--threads", type=int, default=_env("LLAMA_ARG_THREADS"))
    add("-tb", "--threads-batch", type=int, default=None)
    add("--poll", type=int, default=None)
    add("-fit", "--fit", choices=("on", "off"), default=_env("LLAMA_ARG_FIT"))
    add("--host", default=_env("LLAMA_ARG_HOST") or "127.0.0.1")
    add("--api-key", default=_env("LLAMA_API_KEY"))
    add("--slot-save-path", default=None)
    add("--no-mmap", action="store_true", default=_env("LLAMA_ARG_NO_MMAP") is not None)
    add("--mlock", action="store_true", default=_env("LLAMA_ARG_MLOCK") is not None)
    add("--chat-template", default=_env("LLAMA_ARG_CHAT_TEMPLATE"))
    add("-md", "--model-draft", "--spec-draft-model", dest="model_draft", default=_env("LLAMA_ARG_SPEC_DRAFT_MODEL"))
    add("--spec-type", default=_env("LLAMA_ARG_SPEC_TYPE"))
    add(
        "--draft-max",
        "--draft",
        "--spec-draft-n-max",
        dest="draft_max",
        type=int,
        default=_env("LLAMA_ARG_SPEC_DRAFT_N_MAX"),
    )
    add("--version", action="store_true")
    for names, variable, attribute, kind in _NUMBERS:
        value = _env(variable)
        add(*names, dest=attribute, type=kind, default=None if value is None else value)
    for names, variable, attribute, sets in _SWITCHES:
        add(*names, dest=attribute, action="store_const", const=sets, default=sets if _env(variable) else None)
    return arguments


def fill(params: Any, options: argparse.Namespace, xllamacpp: Any) -> None:
    """Put the options into ``CommonParams``, with llama-server's defaults where they differ."""
    params.model.path = options.model
    if options.alias:
        params.model_alias = {options.alias}
    if options.ctx_size is not None:
        params.n_ctx = options.ctx_size
    # llama-server: no -np means four slots over one shared pool
    if options.parallel is None or options.parallel < 0:
        params.n_parallel, params.kv_unified = 4, True
    else:
        params.n_parallel = options.parallel
    if options.kv_unified is not None:
        params.kv_unified = options.kv_unified
    for side in ("k", "v"):
        kind = getattr(options, f"cache_type_{side}")
        if kind:
            setattr(params, f"cache_type_{side}", getattr(xllamacpp.ggml_type, f"GGML_TYPE_{kind.upper()}"))
    if options.flash_attn:
        name = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}[options.flash_attn]
        params.flash_attn_type = getattr(xllamacpp.llama_flash_attn_type, f"LLAMA_FLASH_ATTN_TYPE_{name}")
    if options.split_mode:
        params.split_mode = getattr(xllamacpp.llama_split_mode, f"LLAMA_SPLIT_MODE_{options.split_mode.upper()}")
    if options.tensor_split:
        parts = [float(part) for part in options.tensor_split.replace("/", ",").split(",")]
        params.tensor_split = parts + [0.0] * (len(params.tensor_split) - len(parts))
    if options.rope_scaling:
        name = options.rope_scaling.upper()
        params.rope_scaling_type = getattr(xllamacpp.llama_rope_scaling_type, f"LLAMA_ROPE_SCALING_TYPE_{name}")
    if options.rope_scale:
        params.rope_freq_scale = 1.0 / options.rope_scale
    if options.threads:
        params.cpuparams.n_threads = options.threads
    if options.threads_batch:
        params.cpuparams_batch.n_threads = options.threads_batch
    if options.poll is not None:
        params.cpuparams.poll = params.cpuparams_batch.poll = options.poll
    if options.fit:
        params.fit_params = options.fit == "on"
    params.hostnames = [options.host]
    if options.api_key:
        params.api_keys = options.api_key.split(",")
    if options.slot_save_path:
        params.slot_save_path = options.slot_save_path
    if options.no_mmap or options.mlock:
        mode = "MLOCK" if options.no_mmap and options.mlock else "MMAP_MLOCK" if options.mlock else "NONE"
        params.load_mode = getattr(xllamacpp.llama_load_mode, f"LLAMA_LOAD_MODE_{mode}")
    if options.chat_template:
        params.chat_template = options.chat_template
    kinds = xllamacpp.common_speculative_type
    if options.spec_type and options.spec_type != "none":
        params.speculative.types = [
            getattr(kinds, f"COMMON_SPECULATIVE_TYPE_{one.strip().upper().replace('-', '_')}")
            for one in options.spec_type.split(",")
        ]
    if options.model_draft:
        params.speculative.draft.mparams.path = options.model_draft
        if not options.spec_type:
            params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
    if options.draft_max is not None:
        params.speculative.draft.n_max = options.draft_max
    params.port = 8080
    for _names, _variable, attribute, _kind in _NUMBERS:
        value = getattr(options, attribute)
        if value is not None:
            setattr(params, attribute, value)
    for _names, _variable, attribute, _sets in _SWITCHES:
        value = getattr(options, attribute)
        if value is not None:
            setattr(params, attribute, value)


def main(arguments: list[str]) -> int:
    """Serve until SIGTERM or Ctrl-C. 1: bad flags or the model cannot be loaded, as llama-server does."""
    options = parser().parse_args(arguments)
    import xllamacpp  # noqa: PLC0415 - a heavy import, and not needed for a wrong flag

    if options.version:
        sys.stderr.write(f"version: {xllamacpp.BUILD_INFO}\n")
        return 0
    if not options.model:
        sys.stderr.write("error: no model; give -m MODEL.gguf\n")
        return 1
    stop = threading.Event()
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, lambda *_: stop.set())
    params = xllamacpp.CommonParams()
    fill(params, options, xllamacpp)
    try:
        server = xllamacpp.Server(params)
    except Exception as error:  # the module raises RuntimeError for every failed load
        sys.stderr.write(f"E srv    main: exiting due to model loading error: {error}\n")
        sys.stderr.flush()
        return 1
    sys.stderr.write(f"main: server is listening on {server.listening_address}\n")
    sys.stderr.flush()
    parent = os.getppid()
    while not stop.wait(1.0):
        # started by a demo or test that is gone: nobody will stop this server any more
        if os.environ.get("CTXDOCTOR_END_WITH_PARENT") and os.getppid() != parent:
            break
    with contextlib.suppress(Exception):
        del server
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # C++ threads that still wait would keep the interpreter from ending
    os._exit(code)
