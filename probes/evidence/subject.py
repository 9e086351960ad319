"""What was under test: server, model, window, and the configuration in force, each value with who says it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from .records import Payload, Record, Source, Text, whole_characters

Tokens = int


class BackendIdentity(Payload):
    """Which server answers."""

    kind: ClassVar[str] = "backend"
    name: str = Field(
        description="llama.cpp, ik_llama.cpp, ollama, lm-studio, mlx_lm, vllm, sglang, koboldcpp, tabbyapi, …"
    )
    version: Text | None = None
    build: Text | None = None
    url: Text | None = None
    recognised_by: Text = Field(default="", description="the sign that told it")
    router: bool = False
    front: Text | None = Field(
        default=None, description="what stands before it and starts it: llama-swap, llama.cpp router"
    )
    front_model: Text | None = Field(default=None, description="the model's name there")
    local: bool | None = Field(default=None, description="whether it runs on this machine")
    pid: int | None = None


class ModelIdentity(Payload):
    """Which model is loaded, as the server, its process or its file says."""

    kind: ClassVar[str] = "model"
    name: Text | None = None
    path: Text | None = None
    size_bytes: int | None = Field(default=None, ge=0)
    quantization: Text | None = None
    architecture: Text | None = None
    trained_window: Tokens | None = Field(default=None, ge=0)
    header_hash: str | None = None
    parameters: int | None = Field(default=None, ge=0)
    chat_template: bool | None = None


class WindowReading(Payload):
    """Windows in tokens. ``in_force``: what one request may use, prompt and answer together."""

    kind: ClassVar[str] = "window"
    asked: Tokens | None = Field(default=None, ge=0, description="what the server was told at start")
    trained: Tokens | None = Field(default=None, ge=0)
    per_slot: Tokens | None = Field(default=None, ge=0)
    slots: int | None = Field(default=None, ge=0)
    pool: Tokens | None = Field(
        default=None, ge=0, description="cells that all slots share, where the cache is unified"
    )
    unified: bool | None = None
    in_force: Tokens | None = Field(default=None, ge=0)
    default: Tokens | None = Field(default=None, ge=0, description="what this server takes when nothing is set")


def _whole_text(value: Any) -> Any:
    return [whole_characters(part) for part in value] if isinstance(value, list | tuple) else whole_characters(value)


class Setting(Record):
    """One variable's value and who says it."""

    value: Annotated[Any, BeforeValidator(_whole_text)] = None
    source: Source
    raw: Text = Field(default="", description="the flag, variable or line as it was written")


class Configuration(Payload):
    """Settings in force by variable name.

    Names: ``ctx``, ``parallel``, ``kv_unified``, ``kv_type_k``, ``kv_type_v``, ``gpu_layers``, ``tensor_split``, ``split_mode``, ``main_gpu``,
    ``overrides``, ``cpu_moe``, ``kv_offload``, ``flash_attention``, ``batch``, ``ubatch``, ``swa_full``, ``rope_scaling``, ``rope_scale``,
    ``rope_freq_base``, ``rope_freq_scale``, ``yarn_orig_ctx``, ``mmproj``, ``mmproj_offload``, ``speculation``, ``draft_model``, ``draft_n_max``,
    ``context_shift``, ``keep``, ``cache_prompt``, ``cache_ram_mib``, ``cache_reuse``, ``ctx_checkpoints``, ``fit``, ``threads``, ``mmap``,
    ``mlock``, ``model_path``, ``env.<NAME>``. A variable that cannot be read is absent and listed in ``unread``.
    """

    kind: ClassVar[str] = "configuration"
    settings: dict[str, Setting] = Field(default_factory=dict)
    command: tuple[str, ...] | None = Field(default=None, description="the server's command line as its process has it")
    unread: dict[str, Text] = Field(default_factory=dict, description="variable → why it could not be read")


class ModelFile(Payload):
    """What the model file's header says: the values that decide about the window."""

    kind: ClassVar[str] = "model_file"
    path: Text
    format: str = Field(description="gguf or safetensors")
    size_bytes: int = Field(ge=0)
    header_hash: str
    architecture: Text | None = None
    name: Text | None = None
    quantization: Text | None = None
    trained_window: Tokens | None = None
    layers: int | None = None
    rope_freq_base: float | None = None
    rope_scaling_type: Text | None = None
    rope_scaling_factor: float | None = None
    rope_original_context: Tokens | None = None
    sliding_window: Tokens | None = None
    recurrent: bool | None = None
    chat_template: bool | None = None
    weights_bytes: int | None = Field(default=None, ge=0)
    vocabulary: int | None = Field(default=None, ge=0, description="tokens that the model knows")
    kv_bytes_per_token: float | None = Field(default=None, ge=0, description="f16 cache, full-attention layers")
