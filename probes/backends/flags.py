"""Every server's settings: how a variable is written on its command line and in its environment.

One row a spelling family; :mod:`probes.backends.commands` reads and writes with these tables. Values, by kind of flag:

``int``, ``float``, ``text`` as they say; ``tokens`` an integer that may be written 32k (×1000) or 32K (×1024); ``layers`` an integer, ``"auto"``
or ``"all"``; ``onoff`` ``"on"``, ``"off"`` or ``"auto"``; ``bool`` True or False with a value, ``switch`` True or False by which flag stands there;
``floats`` and ``texts`` lists; ``map`` through ``values``. Spellings are compared without regard to ``_`` and ``-`` after a double dash.

Sources: llama.cpp's server README and common/arg.cpp, ik_llama.cpp's docs/parameters.md, beellama.cpp's docs/beellama-args.md, mlx_lm.server's own
parser (0.32.2), vLLM 0.33, SGLang 0.5.23, KoboldCpp 1.102 and 1.116, TabbyAPI, text-generation-webui 4.7.3, llama-cpp-python 0.3.35, Ollama 0.33, lms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

Kind = Literal["int", "float", "text", "tokens", "layers", "onoff", "bool", "switch", "floats", "texts", "map"]

_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Flag:
    """One setting's spellings. ``variables``: the names in ``Configuration`` that it sets (a flag may set both K and V)."""

    variables: tuple[str, ...]
    kind: Kind
    names: tuple[str, ...] = ()
    """Spellings that take a value (or, for a switch, turn it on). The first is written when the flag is added."""
    off: tuple[str, ...] = ()
    """Spellings that turn it off."""
    env: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    """Text → value, for ``map``."""
    repeats: bool = False
    """Whether several occurrences add up (else the last one counts)."""
    writes: Mapping[str, str] = field(default_factory=lambda: _NONE)
    """A value's name as every server has it → as this one writes it; where there are some, a quantised type beyond them is none that it takes."""
    bare: Any = None
    """The value where the flag stands without one (``-fa`` of older builds); None: a value always follows."""

    @property
    def takes_value(self) -> bool:
        """Say whether a value follows the spelling."""
        return self.kind != "switch"


def _flag(variables: str, kind: Kind, names: str, *, off: str = "", env: str = "", **more: Any) -> Flag:
    return Flag(tuple(variables.split()), kind, tuple(names.split()), tuple(off.split()), tuple(env.split()), **more)


LLAMA_SERVER: tuple[Flag, ...] = (
    _flag("model_path", "text", "-m --model", env="LLAMA_ARG_MODEL"),
    _flag("model_repo", "text", "-hf -hfr --hf-repo", env="LLAMA_ARG_HF_REPO"),
    _flag("model_repo_file", "text", "-hff --hf-file", env="LLAMA_ARG_HF_FILE"),
    _flag("model_url", "text", "-mu --model-url", env="LLAMA_ARG_MODEL_URL"),
    _flag("alias", "text", "-a --alias", env="LLAMA_ARG_ALIAS"),
    _flag("ctx", "int", "-c --ctx-size", env="LLAMA_ARG_CTX_SIZE"),
    _flag("n_predict", "int", "-n --predict --n-predict", env="LLAMA_ARG_N_PREDICT"),
    _flag("batch", "int", "-b --batch-size", env="LLAMA_ARG_BATCH"),
    _flag("ubatch", "int", "-ub --ubatch-size", env="LLAMA_ARG_UBATCH"),
    _flag("parallel", "int", "-np --parallel", env="LLAMA_ARG_N_PARALLEL"),
    _flag(
        "kv_unified",
        "switch",
        "-kvu --kv-unified",
        off="-no-kvu --no-kv-unified",
        env="LLAMA_ARG_KV_UNIFIED",
    ),
    _flag("kv_unified_per_slot", "int", "--kv-unified-per-slot", env="LLAMA_ARG_KV_UNIFIED_PER_SLOT"),
    _flag(
        "flash_attention",
        "onoff",
        "-fa --flash-attn",
        off="-no-fa --no-fa --no-flash-attn",
        env="LLAMA_ARG_FLASH_ATTN",
        bare="on",
    ),
    _flag("kv_type_k", "text", "-ctk --cache-type-k", env="LLAMA_ARG_CACHE_TYPE_K"),
    _flag("kv_type_v", "text", "-ctv --cache-type-v", env="LLAMA_ARG_CACHE_TYPE_V"),
    _flag("gpu_layers", "layers", "-ngl --gpu-layers --n-gpu-layers", env="LLAMA_ARG_N_GPU_LAYERS"),
    _flag("split_mode", "text", "-sm --split-mode", env="LLAMA_ARG_SPLIT_MODE"),
    _flag("tensor_split", "floats", "-ts --tensor-split", env="LLAMA_ARG_TENSOR_SPLIT"),
    _flag("main_gpu", "int", "-mg --main-gpu", env="LLAMA_ARG_MAIN_GPU"),
    _flag("device", "texts", "-dev --device", env="LLAMA_ARG_DEVICE"),
    _flag("rpc", "texts", "--rpc", env="LLAMA_ARG_RPC"),
    _flag("kv_offload", "switch", "-kvo --kv-offload", off="-nkvo --no-kv-offload", env="LLAMA_ARG_KV_OFFLOAD"),
    _flag("op_offload", "switch", "--op-offload", off="--no-op-offload"),
    _flag("repack", "switch", "--repack", off="-nr --no-repack", env="LLAMA_ARG_REPACK"),
    _flag("overrides", "texts", "-ot --override-tensor", env="LLAMA_ARG_OVERRIDE_TENSOR", repeats=True),
    _flag("cpu_moe", "switch", "-cmoe --cpu-moe", env="LLAMA_ARG_CPU_MOE"),
    _flag("cpu_moe", "int", "-ncmoe --n-cpu-moe", env="LLAMA_ARG_N_CPU_MOE"),
    _flag("cpu_ffn", "int", "-ncffn --n-cpu-ffn", env="LLAMA_ARG_N_CPU_FFN"),
    _flag("moe_cache_mib", "int", "--moe-cache-mib", env="LLAMA_ARG_MOE_CACHE_MIB"),
    _flag("swa_full", "switch", "--swa-full", env="LLAMA_ARG_SWA_FULL"),
    _flag("rope_scaling", "text", "--rope-scaling", env="LLAMA_ARG_ROPE_SCALING_TYPE"),
    _flag("rope_scale", "float", "--rope-scale", env="LLAMA_ARG_ROPE_SCALE"),
    _flag("rope_freq_base", "float", "--rope-freq-base", env="LLAMA_ARG_ROPE_FREQ_BASE"),
    _flag("rope_freq_scale", "float", "--rope-freq-scale", env="LLAMA_ARG_ROPE_FREQ_SCALE"),
    _flag("yarn_orig_ctx", "int", "--yarn-orig-ctx", env="LLAMA_ARG_YARN_ORIG_CTX"),
    _flag("yarn_ext_factor", "float", "--yarn-ext-factor", env="LLAMA_ARG_YARN_EXT_FACTOR"),
    _flag("yarn_attn_factor", "float", "--yarn-attn-factor", env="LLAMA_ARG_YARN_ATTN_FACTOR"),
    _flag("yarn_beta_slow", "float", "--yarn-beta-slow", env="LLAMA_ARG_YARN_BETA_SLOW"),
    _flag("yarn_beta_fast", "float", "--yarn-beta-fast", env="LLAMA_ARG_YARN_BETA_FAST"),
    _flag("group_attention_n", "int", "-gan --grp-attn-n", env="LLAMA_ARG_GRP_ATTN_N"),
    _flag("group_attention_w", "float", "-gaw --grp-attn-w", env="LLAMA_ARG_GRP_ATTN_W"),
    _flag("model_overrides", "texts", "--override-kv", repeats=True),
    _flag("mmproj", "text", "-mm --mmproj", env="LLAMA_ARG_MMPROJ"),
    _flag("mmproj_url", "text", "-mmu --mmproj-url", env="LLAMA_ARG_MMPROJ_URL"),
    _flag("mmproj_auto", "switch", "--mmproj-auto", off="--no-mmproj --no-mmproj-auto", env="LLAMA_ARG_MMPROJ_AUTO"),
    _flag("mmproj_offload", "switch", "--mmproj-offload", off="--no-mmproj-offload", env="LLAMA_ARG_MMPROJ_OFFLOAD"),
    _flag("image_max_tokens", "int", "--image-max-tokens", env="LLAMA_ARG_IMAGE_MAX_TOKENS"),
    _flag("speculation", "texts", "--spec-type", env="LLAMA_ARG_SPEC_TYPE"),
    _flag(
        "draft_model",
        "text",
        "-md --spec-draft-model --model-draft",
        env="LLAMA_ARG_SPEC_DRAFT_MODEL LLAMA_ARG_MODEL_DRAFT",
    ),
    _flag(
        "draft_model",
        "text",
        "-hfd -hfrd --spec-draft-hf --hf-repo-draft",
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO LLAMA_ARG_HFD_REPO",
    ),
    _flag(
        "draft_n_max",
        "int",
        "--spec-draft-n-max --draft --draft-n --draft-max",
        env="LLAMA_ARG_SPEC_DRAFT_N_MAX LLAMA_ARG_DRAFT_MAX",
    ),
    _flag(
        "draft_n_min",
        "int",
        "--spec-draft-n-min --draft-min --draft-n-min",
        env="LLAMA_ARG_SPEC_DRAFT_N_MIN LLAMA_ARG_DRAFT_MIN",
    ),
    _flag("draft_ctx", "int", "-cd --ctx-size-draft --spec-draft-ctx-size", env="LLAMA_ARG_CTX_SIZE_DRAFT"),
    _flag(
        "draft_gpu_layers",
        "layers",
        "-ngld --spec-draft-ngl --gpu-layers-draft --n-gpu-layers-draft",
        env="LLAMA_ARG_N_GPU_LAYERS_DRAFT",
    ),
    _flag("draft_device", "texts", "-devd --spec-draft-device --device-draft"),
    _flag(
        "draft_kv_type_k",
        "text",
        "-ctkd --spec-draft-type-k --cache-type-k-draft",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K",
    ),
    _flag(
        "draft_kv_type_v",
        "text",
        "-ctvd --spec-draft-type-v --cache-type-v-draft",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V",
    ),
    _flag("context_shift", "switch", "--context-shift", off="--no-context-shift", env="LLAMA_ARG_CONTEXT_SHIFT"),
    _flag("keep", "int", "--keep"),
    _flag("cache_prompt", "switch", "--cache-prompt", off="--no-cache-prompt", env="LLAMA_ARG_CACHE_PROMPT"),
    _flag("cache_ram_mib", "int", "-cram --cache-ram", env="LLAMA_ARG_CACHE_RAM"),
    _flag("cache_reuse", "int", "--cache-reuse", env="LLAMA_ARG_CACHE_REUSE"),
    _flag(
        "cache_idle_slots",
        "switch",
        "--cache-idle-slots",
        off="--no-cache-idle-slots",
        env="LLAMA_ARG_CACHE_IDLE_SLOTS",
    ),
    _flag("slot_prompt_similarity", "float", "-sps --slot-prompt-similarity"),
    _flag("ctx_checkpoints", "int", "-ctxcp --ctx-checkpoints --swa-checkpoints", env="LLAMA_ARG_CTX_CHECKPOINTS"),
    _flag("checkpoint_min_step", "int", "-cms --checkpoint-min-step", env="LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT"),
    _flag("fit", "onoff", "-fit --fit", env="LLAMA_ARG_FIT", bare="on"),
    _flag("fit_target_mib", "floats", "-fitt --fit-target", env="LLAMA_ARG_FIT_TARGET"),
    _flag("fit_ctx", "int", "-fitc --fit-ctx", env="LLAMA_ARG_FIT_CTX"),
    _flag("threads", "int", "-t --threads", env="LLAMA_ARG_THREADS"),
    _flag("threads_batch", "int", "-tb --threads-batch"),
    _flag("load_mode", "text", "-lm --load-mode", env="LLAMA_ARG_LOAD_MODE"),
    _flag("mmap", "switch", "--mmap", off="--no-mmap", env="LLAMA_ARG_MMAP"),
    _flag("mlock", "switch", "--mlock", env="LLAMA_ARG_MLOCK"),
    _flag("direct_io", "switch", "-dio --direct-io", off="-ndio --no-direct-io", env="LLAMA_ARG_DIO"),
    _flag("numa", "text", "--numa", env="LLAMA_ARG_NUMA"),
    _flag(
        "cont_batching", "switch", "-cb --cont-batching", off="-nocb --no-cont-batching", env="LLAMA_ARG_CONT_BATCHING"
    ),
    _flag("warmup", "switch", "--warmup", off="--no-warmup"),
    _flag("jinja", "switch", "--jinja", off="--no-jinja", env="LLAMA_ARG_JINJA"),
    _flag("chat_template", "text", "--chat-template", env="LLAMA_ARG_CHAT_TEMPLATE"),
    _flag("chat_template_file", "text", "--chat-template-file", env="LLAMA_ARG_CHAT_TEMPLATE_FILE"),
    _flag("reasoning_budget", "int", "--reasoning-budget", env="LLAMA_ARG_THINK_BUDGET"),
    _flag("timeout_s", "int", "-to --timeout", env="LLAMA_ARG_TIMEOUT"),
    _flag("log_verbosity", "int", "-lv --verbosity --log-verbosity", env="LLAMA_ARG_LOG_VERBOSITY LLAMA_LOG_VERBOSITY"),
    _flag("log_verbose", "switch", "-v --verbose --log-verbose"),
    _flag("log_file", "text", "--log-file", env="LLAMA_ARG_LOG_FILE LLAMA_LOG_FILE"),
    _flag("log_jsonl", "switch", "--log-jsonl", off="--no-log-jsonl", env="LLAMA_ARG_LOG_JSONL"),
    _flag("metrics", "switch", "--metrics", env="LLAMA_ARG_ENDPOINT_METRICS"),
    _flag("slots_endpoint", "switch", "--slots", off="--no-slots", env="LLAMA_ARG_ENDPOINT_SLOTS"),
    _flag("slot_save_path", "text", "--slot-save-path", env="LLAMA_ARG_SLOT_SAVE_PATH"),
    _flag("models_preset", "text", "--models-preset", env="LLAMA_ARG_MODELS_PRESET"),
    _flag("models_dir", "text", "--models-dir", env="LLAMA_ARG_MODELS_DIR"),
    _flag("models_max", "int", "--models-max", env="LLAMA_ARG_MODELS_MAX"),
    _flag(
        "models_autoload", "switch", "--models-autoload", off="--no-models-autoload", env="LLAMA_ARG_MODELS_AUTOLOAD"
    ),
    _flag("lora", "texts", "--lora --lora-scaled", repeats=True),
    _flag("host", "text", "--host", env="LLAMA_ARG_HOST"),
    _flag("port", "int", "--port", env="LLAMA_ARG_PORT"),
    _flag("temperature", "float", "--temp --temperature", env="LLAMA_ARG_TEMPERATURE"),
    _flag("repeat_penalty", "float", "--repeat-penalty", env="LLAMA_ARG_REPEAT_PENALTY"),
    _flag("embedding", "switch", "--embedding --embeddings", env="LLAMA_ARG_EMBEDDINGS"),
)

IK_ONLY: tuple[Flag, ...] = (
    _flag("mla", "int", "-mla --mla-use"),
    _flag("attention_max_batch_mib", "int", "-amb --attention-max-batch"),
    _flag("fused_moe", "switch", "-fmoe --fused-moe", off="-no-fmoe --no-fmoe --no-fused-moe"),
    _flag("grouped_expert_routing", "switch", "-ger --grouped-expert-routing"),
    _flag("smart_expert_reduction", "text", "-ser --smart-expert-reduction"),
    _flag("run_time_repack", "switch", "-rtr --run-time-repack"),
    _flag("k_hadamard", "switch", "-khad --k-cache-hadamard"),
    _flag("v_hadamard", "switch", "-vhad --v-cache-hadamard"),
    _flag("graph_reuse", "switch", "-gr --graph-reuse", off="-no-gr --no-gr --no-graph-reuse"),
    _flag("merge_qkv", "switch", "-mqkv --merge-qkv"),
    _flag("merge_up_gate_experts", "switch", "-muge --merge-up-gate-experts"),
    _flag("scheduler_async", "switch", "-sas --scheduler_async"),
    _flag("cache_ram_similarity", "float", "-crs --cache-ram-similarity"),
    _flag("cache_ram_n_min", "int", "-cram-n-min --cache-ram-n-min"),
    _flag("kv_type_k_first", "text", "-ctk-first --cache-type-k-first"),
    _flag("kv_type_k_last", "text", "-ctk-last --cache-type-k-last"),
    _flag("kv_type_indexer", "text", "-ictk --indexer-cache-type-k"),
    _flag("draft_params", "text", "-draft --draft-params"),
    _flag("swa_compress", "switch", "--swa-compress"),
)

BEELLAMA_ONLY: tuple[Flag, ...] = (
    _flag("kv_type_k_swa", "text", "--cache-type-k-swa", env="LLAMA_ARG_CACHE_TYPE_K_SWA"),
    _flag("kv_type_v_swa", "text", "--cache-type-v-swa", env="LLAMA_ARG_CACHE_TYPE_V_SWA"),
    _flag("kv_tail_tokens", "text", "--kv-tail-tokens", env="LLAMA_ARG_KV_TAIL_TOKENS"),
    _flag("kv_tail_type", "text", "--kv-tail-type", env="LLAMA_ARG_KV_TAIL_TYPE"),
    _flag("dflash_cross_ctx", "int", "--spec-dflash-cross-ctx"),
    _flag("draft_controller", "text", "--spec-dm-controller", env="LLAMA_ARG_SPEC_DM_CONTROLLER"),
    _flag("reasoning_loop_guard", "text", "--reasoning-loop-guard", env="LLAMA_ARG_REASONING_LOOP_GUARD"),
)

# ik_llama.cpp's context shift takes a value; mainline's is a switch. A value that is not on/off/auto is not eaten (see commands.py).
IK_LLAMA: tuple[Flag, ...] = (
    *(f for f in LLAMA_SERVER if f.variables != ("context_shift",)),
    _flag(
        "context_shift", "onoff", "--context-shift", off="--no-context-shift", env="LLAMA_ARG_CONTEXT_SHIFT", bare="on"
    ),
    *IK_ONLY,
)
BEELLAMA: tuple[Flag, ...] = (*LLAMA_SERVER, *BEELLAMA_ONLY)

OLLAMA: tuple[Flag, ...] = (
    _flag("ctx", "int", "", env="OLLAMA_CONTEXT_LENGTH"),
    _flag("parallel", "int", "", env="OLLAMA_NUM_PARALLEL"),
    _flag("kv_type_k kv_type_v", "text", "", env="OLLAMA_KV_CACHE_TYPE"),
    _flag(
        "flash_attention",
        "bool",
        "",
        env="OLLAMA_FLASH_ATTENTION",
        values=MappingProxyType({"true": "on", "false": "off"}),
    ),
    _flag("gpu_overhead_bytes", "int", "", env="OLLAMA_GPU_OVERHEAD"),
    _flag("max_loaded_models", "int", "", env="OLLAMA_MAX_LOADED_MODELS"),
    _flag("sched_spread", "bool", "", env="OLLAMA_SCHED_SPREAD"),
    _flag("keep_alive", "text", "", env="OLLAMA_KEEP_ALIVE"),
    _flag("load_timeout", "text", "", env="OLLAMA_LOAD_TIMEOUT"),
    _flag("new_engine", "bool", "", env="OLLAMA_NEW_ENGINE"),
    _flag("fit", "onoff", "", env="LLAMA_ARG_FIT"),
    _flag("fit_target_mib", "floats", "", env="LLAMA_ARG_FIT_TARGET"),
)

MODELFILE: Mapping[str, tuple[str, Kind]] = MappingProxyType(
    {
        "num_ctx": ("ctx", "int"),
        "num_batch": ("batch", "int"),
        "num_gpu": ("gpu_layers", "layers"),
        "num_thread": ("threads", "int"),
        "num_keep": ("keep", "int"),
        "num_predict": ("n_predict", "int"),
        "main_gpu": ("main_gpu", "int"),
        "use_mmap": ("mmap", "bool"),
        "use_mlock": ("mlock", "bool"),
        "rope_frequency_base": ("rope_freq_base", "float"),
        "rope_frequency_scale": ("rope_freq_scale", "float"),
        "draft_num_predict": ("draft_n_max", "int"),
        "temperature": ("temperature", "float"),
        "repeat_penalty": ("repeat_penalty", "float"),
    }
)
"""Ollama's model parameters, as in a Modelfile's PARAMETER lines, ``/api/show`` and a request's ``options``."""

LMS: tuple[Flag, ...] = (
    _flag("ctx", "int", "--context-length -c"),
    _flag("gpu_ratio", "text", "--gpu"),
    _flag("parallel", "int", "--parallel"),
    _flag("ttl_s", "int", "--ttl"),
    _flag("alias", "text", "--identifier"),
    _flag("speculation", "text", "--speculative-decoding"),
)
LM_STUDIO_LOAD: Mapping[str, str] = MappingProxyType(
    {
        "ctx": "context_length",
        "flash_attention": "flash_attention",
        "batch": "eval_batch_size",
        "kv_offload": "offload_kv_cache_to_gpu",
        "experts": "num_experts",
        "parallel": "parallel",
    }
)
"""Fields of LM Studio's load call and of a loaded instance's configuration."""

_VLLM_TYPES = MappingProxyType({"q8_0": "fp8", "f16": "auto", "bf16": "auto"})
_SGLANG_TYPES = MappingProxyType({"q8_0": "fp8_e5m2", "f16": "auto", "bf16": "bf16"})
"""Eight bits are floats there."""

VLLM: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model"),
    _flag("config_file", "text", "--config"),
    _flag("ctx", "tokens", "--max-model-len"),
    _flag("parallel", "tokens", "--max-num-seqs"),
    _flag("batch", "tokens", "--max-num-batched-tokens"),
    _flag("kv_type_k kv_type_v", "text", "--kv-cache-dtype", writes=_VLLM_TYPES),
    _flag("memory_share", "float", "--gpu-memory-utilization --device-memory-utilization"),
    _flag("kv_bytes", "text", "--kv-cache-memory-bytes"),
    _flag("kv_blocks", "int", "--num-gpu-blocks-override"),
    _flag("tensor_parallel", "int", "-tp --tensor-parallel-size"),
    _flag("pipeline_parallel", "int", "-pp --pipeline-parallel-size"),
    _flag("data_parallel", "int", "-dp --data-parallel-size"),
    _flag("cpu_offload_gib", "float", "--cpu-offload-gb"),
    _flag("swap_gib", "float", "--swap-space"),
    _flag("block_size", "int", "--block-size"),
    _flag("cache_prompt", "switch", "--enable-prefix-caching", off="--no-enable-prefix-caching"),
    _flag("chunked_prefill", "switch", "--enable-chunked-prefill", off="--no-enable-chunked-prefill"),
    _flag("eager", "switch", "--enforce-eager", off="--no-enforce-eager"),
    _flag("quantization", "text", "-q --quantization"),
    _flag("dtype", "text", "--dtype"),
    _flag("rope_scaling", "text", "--rope-scaling"),
    _flag("rope_freq_base", "float", "--rope-theta"),
    _flag("model_overrides", "text", "--hf-overrides"),
    _flag("speculation", "text", "--speculative-config -sc --spec-method"),
    _flag("draft_model", "text", "--speculative-model --spec-model"),
    _flag("draft_n_max", "int", "--num-speculative-tokens --spec-tokens"),
    _flag("attention_backend", "text", "--attention-backend"),
    _flag("disable_sliding_window", "switch", "--disable-sliding-window", off="--no-disable-sliding-window"),
    _flag("mmproj_limit", "text", "--limit-mm-per-prompt"),
    _flag("prompt_tokens_details", "switch", "--enable-prompt-tokens-details"),
    _flag("load_format", "text", "--load-format"),
    _flag("alias", "text", "--served-model-name"),
    _flag("host", "text", "--host"),
    _flag("port", "int", "--port"),
)

SGLANG: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model-path --model"),
    _flag("config_file", "text", "--config"),
    _flag("ctx", "int", "--context-length"),
    _flag("parallel", "int", "--max-running-requests"),
    _flag("pool", "int", "--max-total-tokens"),
    _flag("ubatch", "int", "--chunked-prefill-size"),
    _flag("batch", "int", "--max-prefill-tokens"),
    _flag("kv_type_k kv_type_v", "text", "--kv-cache-dtype", writes=_SGLANG_TYPES),
    _flag("memory_share", "float", "--mem-fraction-static"),
    _flag("tensor_parallel", "int", "--tp-size --tp --tensor-parallel-size"),
    _flag("data_parallel", "int", "--dp-size --dp --data-parallel-size"),
    _flag("pipeline_parallel", "int", "--pp-size --pp --pipeline-parallel-size"),
    _flag("cpu_offload_gib", "float", "--cpu-offload-gb"),
    _flag("page_size", "int", "--page-size"),
    _flag("cache_prompt", "switch", "--enable-radix-cache", off="--disable-radix-cache"),
    _flag("auto_truncate", "switch", "--allow-auto-truncate"),
    _flag("attention_backend", "text", "--attention-backend"),
    _flag("speculation", "text", "--speculative-algorithm --speculative-algo"),
    _flag("draft_model", "text", "--speculative-draft-model-path --speculative-draft-model"),
    _flag("draft_n_max", "int", "--speculative-num-draft-tokens"),
    _flag("quantization", "text", "--quantization"),
    _flag("dtype", "text", "--dtype"),
    _flag("swa_full", "float", "--swa-full-tokens-ratio"),
    _flag("cuda_graph", "switch", "--enable-cuda-graph", off="--disable-cuda-graph"),
    _flag("cache_report", "switch", "--enable-cache-report"),
    _flag("alias", "text", "--served-model-name"),
    _flag("host", "text", "--host"),
    _flag("port", "int", "--port"),
)

MLX_LM: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model"),
    _flag("n_predict", "int", "--max-tokens"),
    _flag("batch", "int", "--prefill-step-size"),
    _flag("parallel", "int", "--decode-concurrency"),
    _flag("prompt_parallel", "int", "--prompt-concurrency"),
    _flag("cache_sequences", "int", "--prompt-cache-size"),
    _flag("cache_bytes", "text", "--prompt-cache-bytes"),
    _flag(
        "kv_type_k kv_type_v",
        "map",
        "--kv-bits",
        values=MappingProxyType({"8": "mlx-q8", "6": "mlx-q6", "4": "mlx-q4", "3": "mlx-q3", "2": "mlx-q2"}),
    ),
    _flag("kv_group_size", "int", "--kv-group-size"),
    _flag("kv_quant_start", "int", "--quantized-kv-start"),
    _flag("draft_model", "text", "--draft-model"),
    _flag("draft_n_max", "int", "--num-draft-tokens"),
    _flag("pipeline", "switch", "--pipeline"),
    _flag("chat_template", "text", "--chat-template"),
    _flag("log_level", "text", "--log-level"),
    _flag("host", "text", "--host"),
    _flag("port", "int", "--port"),
)

KOBOLDCPP: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model -m"),
    _flag("config_file", "text", "--config"),
    _flag("ctx", "int", "--contextsize --ctx-size -c"),
    _flag("gpu_layers", "layers", "--gpulayers --gpu-layers --n-gpu-layers -ngl", bare=1),
    _flag("tensor_split", "floats", "--tensor_split --tensorsplit -ts", repeats=True),
    _flag("split_mode", "text", "--splitmode --split-mode -sm"),
    _flag("main_gpu", "int", "--maingpu --main-gpu -mg"),
    _flag(
        "flash_attention",
        "switch",
        "--flashattention --flash_attn -fa",
        off="--noflashattention --no-flash-attn -nofa",
    ),
    # numbers in older versions, which newer ones still take
    _flag(
        "kv_type_k kv_type_v",
        "map",
        "--quantkv",
        values=MappingProxyType(
            {"0": "f16", "1": "q8_0", "2": "q4_0", "3": "bf16"}
            | {name: name for name in ("f16", "bf16", "q8_0", "q5_1", "q4_0")}
        ),
    ),
    _flag("batch ubatch", "int", "--blasbatchsize --batchsize --batch-size -b"),
    _flag("rope", "floats", "--ropeconfig", repeats=True),
    _flag("model_overrides", "texts", "--overridekv --override-kv", repeats=True),
    _flag("overrides", "texts", "--overridetensors --override-tensor -ot", repeats=True),
    _flag("cpu_moe", "int", "--moecpu --n-cpu-moe -ncmoe", bare=999),
    _flag("mmproj", "text", "--mmproj"),
    _flag("mmproj_offload", "switch", "--mmprojgpu", off="--mmprojcpu --no-mmproj-offload"),
    _flag("draft_model", "text", "--draftmodel --model-draft -md"),
    _flag("draft_n_max", "int", "--draftamount --draft-max --draft-n --spec-draft-n-max"),
    _flag("draft_gpu_layers", "layers", "--draftgpulayers --gpu-layers-draft --n-gpu-layers-draft -ngld"),
    _flag("context_shift", "switch", "--contextshift", off="--noshift --no-context-shift"),
    _flag("fast_forward", "switch", "--fastforward", off="--nofastforward"),
    _flag("smart_context", "switch", "--smartcontext"),
    _flag("smart_cache", "int", "--smartcache", bare=1),
    _flag("swa_full", "switch", "--noswa --swa-full", off="--useswa"),
    _flag("parallel", "int", "--parallelrequests --continuous-batching --contbatch"),
    _flag("fit", "switch", "--autofit --fit -fit"),
    _flag("threads", "int", "-t --threads"),
    _flag("threads_batch", "int", "--blasthreads --batchthreads --threadsbatch --threads-batch"),
    _flag("mmap", "switch", "--usemmap", off="--nommap"),
    _flag("mlock", "switch", "--usemlock --mlock"),
    _flag("low_vram", "switch", "--lowvram -nkvo --no-kv-offload"),
    _flag("default_output", "int", "--defaultgenamt"),
    _flag("multiuser", "int", "--multiuser", bare=1),
    _flag("host", "text", "--host"),
    _flag("port", "int", "--port"),
)

TABBYAPI: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model-name"),
    _flag("model_dir", "text", "--model-dir"),
    _flag("config_file", "text", "--config"),
    _flag("ctx", "int", "--max-seq-len"),
    _flag("pool", "int", "--cache-size"),
    _flag("kv_type_k kv_type_v", "text", "--cache-mode"),
    _flag("parallel", "int", "--max-batch-size"),
    _flag("batch", "int", "--chunk-size"),
    _flag("tensor_split", "floats", "--gpu-split"),
    _flag("gpu_split_auto", "bool", "--gpu-split-auto"),
    _flag("tensor_parallel", "bool", "--tensor-parallel"),
    _flag("rope_scale", "float", "--rope-scale"),
    _flag("rope_alpha", "float", "--rope-alpha"),
    _flag("draft_model", "text", "--draft-model-name"),
    _flag("draft_kv_type", "text", "--draft-cache-mode"),
    _flag("mmproj", "bool", "--vision"),
    _flag("host", "text", "--host"),
    _flag("port", "int", "--port"),
)

_TEXTGEN_TYPES = MappingProxyType({"f16": "fp16", "q8_0": "q8_0", "q4_0": "q4_0"})
"""Its llama.cpp loader hands no other type on, without a word (modules/llama_cpp_server.py of 4.7.3)."""

TEXT_GENERATION_WEBUI: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model"),
    _flag("loader", "text", "--loader"),
    _flag("ctx", "int", "--ctx-size --n_ctx --max_seq_len"),
    _flag("gpu_layers", "layers", "--gpu-layers --n-gpu-layers"),
    _flag("kv_type_k kv_type_v", "text", "--cache-type --cache_type", writes=_TEXTGEN_TYPES),
    _flag("tensor_split", "floats", "--tensor-split --gpu-split"),
    _flag("batch", "int", "--batch-size"),
    _flag("ubatch", "int", "--ubatch-size"),
    _flag("parallel", "int", "--parallel"),
    _flag("split_mode", "text", "--split-mode"),
    _flag("split_mode", "switch", "--row-split"),  # before 2026
    _flag("kv_offload", "switch", "", off="--no-kv-offload"),
    _flag("cpu_moe", "switch", "--cpu-moe"),
    _flag("fit_target_mib", "floats", "--fit-target"),
    _flag("mmproj", "text", "--mmproj"),
    _flag("draft_model", "text", "--model-draft"),
    _flag("draft_n_max", "int", "--draft-max"),
    _flag("draft_ctx", "int", "--ctx-size-draft"),
    _flag("draft_gpu_layers", "layers", "--gpu-layers-draft"),
    _flag("speculation", "text", "--spec-type"),
    _flag("mmap", "switch", "", off="--no-mmap"),
    _flag("mlock", "switch", "--mlock"),
    _flag("threads", "int", "--threads"),
    _flag("threads_batch", "int", "--threads-batch"),
    _flag("ik", "switch", "--ik"),
    _flag("extra_flags", "text", "--extra-flags"),
    _flag("port", "int", "--api-port"),
)

_GGML_TYPES: Mapping[str, Any] = MappingProxyType(
    {
        "0": "f32",
        "1": "f16",
        "2": "q4_0",
        "3": "q4_1",
        "6": "q5_0",
        "7": "q5_1",
        "8": "q8_0",
        "20": "iq4_nl",
        "30": "bf16",
    }
)
LLAMA_CPP_PYTHON: tuple[Flag, ...] = (
    _flag("model_path", "text", "--model", env="MODEL"),
    _flag("config_file", "text", "--config_file", env="CONFIG_FILE"),
    _flag("ctx", "int", "--n_ctx", env="N_CTX"),
    _flag("gpu_layers", "layers", "--n_gpu_layers", env="N_GPU_LAYERS"),
    _flag("tensor_split", "floats", "--tensor_split", repeats=True),
    _flag("main_gpu", "int", "--main_gpu", env="MAIN_GPU"),
    _flag("batch", "int", "--n_batch", env="N_BATCH"),
    _flag("ubatch", "int", "--n_ubatch", env="N_UBATCH"),
    _flag("threads", "int", "--n_threads", env="N_THREADS"),
    _flag(
        "flash_attention",
        "bool",
        "--flash_attn",
        env="FLASH_ATTN",
        values=MappingProxyType({"true": "on", "false": "off"}),
    ),
    _flag("kv_type_k", "map", "--type_k", values=_GGML_TYPES),
    _flag("kv_type_v", "map", "--type_v", values=_GGML_TYPES),
    _flag("kv_offload", "bool", "--offload_kqv", env="OFFLOAD_KQV"),
    _flag("logits_all", "bool", "--logits_all", env="LOGITS_ALL"),
    _flag("mmap", "bool", "--use_mmap", env="USE_MMAP"),
    _flag("mlock", "bool", "--use_mlock", env="USE_MLOCK"),
    _flag("rope_freq_base", "float", "--rope_freq_base", env="ROPE_FREQ_BASE"),
    _flag("rope_freq_scale", "float", "--rope_freq_scale", env="ROPE_FREQ_SCALE"),
    _flag("yarn_orig_ctx", "int", "--yarn_orig_ctx", env="YARN_ORIG_CTX"),
    _flag("draft_model", "text", "--draft_model"),
    _flag("cache_prompt", "bool", "--cache", env="CACHE"),
    _flag("mmproj", "text", "--clip_model_path"),
    _flag("port", "int", "--port", env="PORT"),
)

LLAMA_SWAP: tuple[Flag, ...] = (
    _flag("config_file", "text", "-config --config"),
    _flag("listen", "text", "-listen --listen"),
    _flag("watch_config", "switch", "-watch-config --watch-config"),
)

FLAGS: Mapping[str, tuple[Flag, ...]] = MappingProxyType(
    {
        "llama.cpp": LLAMA_SERVER,
        "ik_llama.cpp": IK_LLAMA,
        "beellama.cpp": BEELLAMA,
        "ollama": OLLAMA,
        "lm-studio": LMS,
        "vllm": VLLM,
        "sglang": SGLANG,
        "mlx_lm": MLX_LM,
        "koboldcpp": KOBOLDCPP,
        "tabbyapi": TABBYAPI,
        "text-generation-webui": TEXT_GENERATION_WEBUI,
        "llama-cpp-python": LLAMA_CPP_PYTHON,
        "llama-swap": LLAMA_SWAP,
    }
)
"""Backend → its flags."""

VALUED_ELSEWHERE: frozenset[str] = frozenset(
    [
        *(
            "--api-key",
            "--api-key-file",
            "--chat-template-kwargs",
            "--override-kv",
            "--grammar",
            "--json-schema",
            "-j",
            "-p",
            "--prompt",
        ),
        *(
            "--reverse-prompt",
            "-r",
            "--samplers",
            "--alias",
            "--path",
            "--ssl-key-file",
            "--ssl-cert-file",
            "-hft",
            "--hf-token",
        ),
        *(
            "--seed",
            "-s",
            "--top-k",
            "--top-p",
            "--min-p",
            "--host",
            "--port",
            "--logit-bias",
            "-l",
            "--log-prompts-dir",
            "--ui-config",
        ),
    ]
)
"""Flags that are not read but take a value, so that the value is not taken for a flag."""

SECRET_FLAGS: frozenset[str] = frozenset(
    [
        "--api-key",
        "--api-key-file",
        "-hft",
        "--hf-token",
        "--password",
        "--admin-key",
        "--adminpassword",
        "--ssl-key-file",
        "--auth",
    ]
)
"""Flags whose value is never kept."""

# Environment variables that change where memory goes or which device is used; kept as env.<NAME> where no flag stands for them.
ENVIRONMENT_PREFIXES: tuple[str, ...] = (
    *(
        "CUDA_VISIBLE_",
        "CUDA_DEVICE_",
        "CUDA_LAUNCH_",
        "CUDA_SCALE_",
        "GGML_",
        "LLAMA_ARG_",
        "OLLAMA_",
        "HIP_VISIBLE_",
        "ROCR_VISIBLE_",
    ),
    *(
        "HSA_",
        "AMD_",
        "ZE_",
        "SYCL_",
        "ONEAPI_",
        "UR_",
        "PYTORCH_",
        "VLLM_",
        "SGLANG_",
        "NCCL_",
        "MLX_",
        "OMP_NUM_",
        "GPU_MAX_",
        "RADV_",
    ),
    *("TORCH_", "MALLOC_"),
)
SECRET_NAMES: tuple[str, ...] = ("KEY", "TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH")
