"""Configuration, model header and load lines → the settings in force, positions among them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from probes.evidence.events import LogEvent
from probes.evidence.records import Evidence
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, Setting
from rules.derive.numbers import positive, ratio
from rules.engine.derivation import Reading, Sight, derivation, reading, unread
from rules.engine.fact import Known
from rules.facts import (
    BACKEND,
    BATCH,
    CONTEXT_SHIFT_ON,
    FLASH_ATTENTION,
    FLASH_FORCED_OFF,
    GPU_LAYERS,
    KV_BITS,
    KV_SMALLER_TYPE_SET,
    KV_TYPE_K,
    KV_TYPE_V,
    KV_TYPES_DIFFER,
    LAYERS_ON_CPU,
    MEMORY_SHARE_SET,
    MODEL_BYTES,
    PARALLEL_SET,
    PROJECTOR,
    PROMPT_CACHE_ON,
    RECURRENT,
    ROPE_BASE_RATIO,
    ROPE_BASE_SET,
    ROPE_CHOSEN_BY_WINDOW,
    ROPE_MISSING,
    ROPE_SCALE_FLAG,
    ROPE_SCALE_RATIO,
    ROPE_SCALE_SET,
    ROPE_SET,
    ROPE_TYPE_FILE,
    ROPE_WRONG,
    SLIDING_WINDOW,
    SPECULATION,
    SWA_FULL,
    UBATCH,
    V_QUANTISED,
    WINDOW_IN_FORCE,
    WINDOW_TRAINED,
)

LLAMA_FAMILY = frozenset(
    {"llama.cpp", "ik_llama.cpp", "beellama.cpp", "llama-manager", "llama-swap", "llama-cpp-python"}
)
"""Servers whose unset settings have llama.cpp's defaults."""

_BITS: Mapping[str, float] = {
    "f32": 32, "f16": 16, "bf16": 16, "fp16": 16, "auto": 16, "none": 16, "fp8": 8, "fp8_e4m3": 8, "fp8_e5m2": 8, "int8": 8, "q8": 8, "q8_0": 8.5,
    "q8_kv": 8.5, "q6_0": 6.5, "q6": 6, "q5_1": 6, "q5_0": 5.5, "q5": 5, "q4_1": 5, "q4_0": 4.5, "q4": 4, "iq4_nl": 4.5, "int4": 4, "nvfp4": 4.5,
    "mxfp4": 4.25, "q3": 3, "tbq4_0": 4.5, "tbq3_0": 3.5, "tbq2_0": 2.5, "turbo4": 4.5, "turbo3": 3.5, "turbo2": 2.5, "q2": 2,
}  # fmt: skip

_SPELLINGS: Mapping[str, str] = {
    "mlx": "mlx_lm", "mlx-lm": "mlx_lm", "lm studio": "lm-studio", "lmstudio": "lm-studio", "llamacpp": "llama.cpp", "llama-server": "llama.cpp",
    "llama.cpp server": "llama.cpp", "koboldcpp": "koboldcpp", "text-generation-webui": "text-generation-webui", "oobabooga": "text-generation-webui",
    "llama_cpp": "llama-cpp-python", "openai": "openai-compatible", "generic": "openai-compatible",
}  # fmt: skip


def backend_name(said: str) -> str:
    """Give the vocabulary's name of a server from any spelling; "other" for one that is not in it."""
    name = " ".join(said.lower().split())
    name = name.partition("(")[0].strip() or name
    name = _SPELLINGS.get(name, name)
    if name in BACKEND.choices:
        return name
    if "mlx" in said.lower():
        return "mlx-other"
    for choice in BACKEND.choices:
        if choice != "other" and name.startswith(choice):
            return choice
    return "other"


@derivation(reads=(BackendIdentity, LogEvent), gives=(BACKEND,))
def backend(sight: Sight) -> Iterator[Reading]:
    """Say which server it is, by itself or by its log. A command cannot tell a fork from llama.cpp, whose program it calls the same."""
    said = [
        (evidence, backend_name(event.name))
        for evidence, event in sight.of(LogEvent)
        if event.event == "program" and event.name
    ]
    said = [(evidence, name) for evidence, name in said if name != "other"]
    told = [(evidence, identity, backend_name(identity.name)) for evidence, identity in sight.of(BackendIdentity)]
    forked = bool(_FORKS & {name for *_rest, name in (*told, *said)})
    for evidence, identity, name in told:
        if not (forked and name == "llama.cpp" and "command" in (identity.recognised_by or "")):
            yield reading(BACKEND, name, evidence)
    for evidence, name in said:
        yield reading(BACKEND, name, evidence)
    if not said and not sight.of(BackendIdentity):
        yield from _by_lines(sight)


_FORKS = frozenset({"ik_llama.cpp", "beellama.cpp"})
_WRITES: Mapping[str, str] = {
    "ollama": "ollama", "koboldcpp": "koboldcpp", "lmstudio": "lm-studio", "text-generation-webui": "text-generation-webui",
    "llama-cpp-python": "llama-cpp-python", "ik": "ik_llama.cpp", "beellama": "beellama.cpp", "vllm": "vllm", "sglang": "sglang",
    "tabbyapi": "tabbyapi", "mlx": "mlx_lm",
}  # fmt: skip
"""Dialect → the server that writes it. llama.cpp's lines tell of no server: half of these have it inside."""
_QUOTED = frozenset({"refused", "http", "generic-error", "generic-warning", "crash", "command"})
_LINES_ENOUGH = 3
_FRAMES: Mapping[str, re.Pattern[str]] = {
    "vllm": re.compile(
        r"\b(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d (?:\[[\w/.]{1,80}\.py:\d+\]|[\w/.]{1,80}\.py:\d+\])"
    )
}
"""How a server begins its lines and no other does: one such line is enough."""


def _by_lines(sight: Sight) -> Iterator[Reading]:
    """Say whose log it is by whose lines it has, where it never says its name: three at least, or one that only that server begins so."""
    lines: dict[str, list[Evidence]] = {}
    framed: set[str] = set()
    for evidence, event in sight.of(LogEvent):
        if event.dialect in _WRITES and event.event not in _QUOTED:
            lines.setdefault(event.dialect, []).append(evidence)
            frame = _FRAMES.get(event.dialect)
            if frame is not None and frame.search(event.text or ""):
                framed.add(event.dialect)
    for dialect, name in _WRITES.items():
        if dialect in framed or len(lines.get(dialect, ())) >= _LINES_ENOUGH:
            yield reading(BACKEND, name, lines[dialect][0])
            return


def bits_of(type_name: str) -> float | None:
    """Give the bits of one element of a cache type, or None for one that is not known."""
    name = type_name.strip().lower()
    if name in _BITS:
        return float(_BITS[name])
    first = re.match(r"(?:[a-z]*?q|fp|bf|f|int|turbo|kvarn)(\d+)", name)
    return float(first[1]) if first else None


def _settings(sight: Sight) -> Iterator[tuple[Evidence, Configuration]]:
    yield from sight.of(Configuration)


def _value(setting: Setting | None) -> Any:
    return None if setting is None else setting.value


def _whole(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,18}", value.strip()):
        return int(value)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _flag(value: object) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bool(value)
    if isinstance(value, str):
        return {
            "on": True,
            "true": True,
            "1": True,
            "enabled": True,
            "off": False,
            "false": False,
            "0": False,
            "disabled": False,
        }.get(value.lower())
    return None


_NUMBERS = {"ubatch": UBATCH, "batch": BATCH, "parallel": PARALLEL_SET, "gpu_layers": GPU_LAYERS}


@derivation(
    reads=(Configuration, LogEvent),
    gives=(UBATCH, BATCH, PARALLEL_SET, GPU_LAYERS, MEMORY_SHARE_SET, LAYERS_ON_CPU, SWA_FULL),
)
def numbers(sight: Sight) -> Iterator[Reading]:
    """Give batch sizes, slots asked for, layers on the GPU, the engine's share of the device."""
    for evidence, event in sight.of(LogEvent):
        if event.event == "model-info" and event.key in {"n_ubatch", "n_batch"}:
            number = _whole(event.value)
            if number:
                yield reading(UBATCH if event.key == "n_ubatch" else BATCH, number, evidence)
        elif (
            event.event == "layers-offloaded"
            and event.count is not None
            and event.of is not None
            and event.of >= event.count
        ):
            yield reading(LAYERS_ON_CPU, event.of - event.count, evidence)
    for evidence, configuration in _settings(sight):
        for name, fact in _NUMBERS.items():
            number = _whole(_value(configuration.settings.get(name)))
            if number is not None and (number > 0 or name in {"gpu_layers", "parallel"}):
                yield reading(fact, number, evidence, source=configuration.settings[name].source)
        names = ("memory_share", "gpu_memory_utilization", "mem_fraction_static")
        shares = [_number(_value(configuration.settings.get(name))) for name in names]
        share = next((found for found in shares if found is not None), None)
        if share is not None and 0 < share <= 1:
            yield reading(MEMORY_SHARE_SET, share, evidence)
        full = _flag(_value(configuration.settings.get("swa_full")))
        if full is not None:
            yield reading(SWA_FULL, full, evidence)


@derivation(
    reads=(Configuration, LogEvent),
    needs=(BACKEND,),
    gives=(KV_TYPE_K, KV_TYPE_V, KV_BITS, KV_TYPES_DIFFER, V_QUANTISED, KV_SMALLER_TYPE_SET),
)
def cache_types(sight: Sight) -> Iterator[Reading]:
    """Give the cache types, from the command line or the log. An unset type of a known command line is the default, 16 bits."""
    for evidence, event in sight.of(LogEvent):
        if event.event == "kv-cache" and event.type_k and event.which in {None, "base", "main"}:
            yield from _types(event.type_k, event.type_v or event.type_k, evidence)
    for evidence, configuration in _settings(sight):
        k, v = (_value(configuration.settings.get(name)) for name in ("kv_type_k", "kv_type_v"))
        known = sight.known(BACKEND)
        if (
            k is None
            and v is None
            and (configuration.command is None or known is None or known.value not in LLAMA_FAMILY)
        ):
            continue
        yield from _types(str(k or "f16"), str(v or "f16"), evidence)


def _types(k: str, v: str, evidence: Evidence) -> Iterator[Reading]:
    yield reading(KV_TYPE_K, k, evidence)
    yield reading(KV_TYPE_V, v, evidence)
    bits_k, bits_v = bits_of(k), bits_of(v)
    yield reading(KV_TYPES_DIFFER, k.lower() != v.lower(), evidence)
    if bits_v is not None:
        yield reading(V_QUANTISED, bits_v < 16, evidence)
    if bits_k is not None and bits_v is not None:
        yield reading(KV_BITS, min(bits_k, bits_v), evidence)
        yield reading(KV_SMALLER_TYPE_SET, min(bits_k, bits_v) < 16, evidence)


@derivation(
    reads=(Configuration, LogEvent),
    needs=(BACKEND,),
    gives=(FLASH_ATTENTION, FLASH_FORCED_OFF, SPECULATION, PROJECTOR, CONTEXT_SHIFT_ON),
)
def switches(sight: Sight) -> Iterator[Reading]:
    """Give what is on and off: flash attention, speculation, projector, context shift."""
    for evidence, event in sight.of(LogEvent):
        if (
            event.event == "flash-attention"
            and event.on is False
            and event.reason not in {"disabled", "0", "false", "off", None}
        ):
            yield reading(FLASH_FORCED_OFF, True, evidence)
            yield reading(FLASH_ATTENTION, "forced-off", evidence)
        elif event.event == "flash-attention" and event.on is not None:
            yield reading(FLASH_ATTENTION, "on" if event.on else "off", evidence)
        elif event.event == "context-shift" and event.key == "off":
            yield reading(CONTEXT_SHIFT_ON, False, evidence)
        elif event.event == "projector":
            yield reading(PROJECTOR, True, evidence)
        elif event.event == "speculation":
            yield reading(SPECULATION, True, evidence)
    for evidence, configuration in _settings(sight):
        settings = configuration.settings
        known = sight.known(BACKEND)
        complete = known is not None and known.value in LLAMA_FAMILY and tells_all(configuration)
        flash = _value(settings.get("flash_attention"))
        if flash is not None:
            on = _flag(flash)
            yield reading(FLASH_ATTENTION, "auto" if on is None else "on" if on else "off", evidence)
        speculation = [_value(settings.get(name)) for name in ("speculation", "draft_model")]
        if any(speculation):
            yield reading(SPECULATION, any(s not in (None, "", "none", "off", False) for s in speculation), evidence)
        elif complete or (configuration.command is not None and known is not None and known.value == "vllm"):
            yield reading(SPECULATION, False, evidence)
        projector = _value(settings.get("mmproj"))
        loaded = _flag(_value(settings.get("mmproj_loaded")))
        if projector or loaded is not None or complete:
            yield reading(PROJECTOR, bool(projector) or bool(loaded), evidence)
        shift = _flag(_value(settings.get("context_shift")))
        if shift is not None:
            yield reading(CONTEXT_SHIFT_ON, shift, evidence)


@derivation(reads=(Configuration,), needs=(BACKEND,), gives=(PROMPT_CACHE_ON,))
def prompt_cache(sight: Sight) -> Iterator[Reading]:
    """Say whether prompts are kept, by the settings. Where no settings were read, that is not held open: a measured repeat tells it better."""
    said = False
    for evidence, configuration in _settings(sight):
        known = sight.known(BACKEND)
        complete = known is not None and known.value in LLAMA_FAMILY and tells_all(configuration)
        cache = _flag(_value(configuration.settings.get("cache_prompt")))
        if cache is not None or complete:
            said = True
            yield reading(PROMPT_CACHE_ON, cache is not False, evidence)
    if not said:
        yield unread(PROMPT_CACHE_ON, "not-offered", "the settings do not tell")


@derivation(
    reads=(ModelFile, ModelIdentity, LogEvent),
    gives=(SLIDING_WINDOW, RECURRENT, MODEL_BYTES, ROPE_TYPE_FILE, ROPE_CHOSEN_BY_WINDOW),
)
def model(sight: Sight) -> Iterator[Reading]:
    """Give what the model is: sliding window, recurrent layers, size, position scaling of its file."""
    for evidence, file in sight.of(ModelFile):
        yield reading(MODEL_BYTES, file.size_bytes, evidence)
        yield reading(SLIDING_WINDOW, file.sliding_window or 0, evidence)
        if file.recurrent is not None:
            yield reading(RECURRENT, file.recurrent, evidence)
        yield reading(ROPE_TYPE_FILE, (file.rope_scaling_type or "none")[:64], evidence)
        yield reading(ROPE_CHOSEN_BY_WINDOW, (file.rope_scaling_type or "") == "longrope", evidence)
    for evidence, identity in sight.of(ModelIdentity):
        if identity.size_bytes:
            yield reading(MODEL_BYTES, identity.size_bytes, evidence)
    in_file = any(True for _one in sight.of(ModelFile))
    for evidence, event in sight.of(LogEvent):
        if event.event == "model-info" and event.key == "n_swa":
            window = _whole(event.value)
            if window is not None and window >= 0:
                yield reading(SLIDING_WINDOW, window, evidence)
        elif event.event == "model-info" and event.key == "file_size" and event.size_bytes:
            yield reading(MODEL_BYTES, event.size_bytes, evidence)
        elif event.event == "rope" and event.key == "rope_scaling" and event.value is not None:
            if in_file and event.value == "linear":
                # what llama.cpp prints also where the file asks for none
                continue
            yield reading(ROPE_TYPE_FILE, str(event.value)[:64], evidence)


@derivation(
    reads=(Configuration, ModelFile, LogEvent),
    needs=(BACKEND,),
    gives=(ROPE_BASE_RATIO, ROPE_SCALE_RATIO, ROPE_SET, ROPE_BASE_SET, ROPE_SCALE_SET, ROPE_SCALE_FLAG),
)
def positions(sight: Sight) -> Iterator[Reading]:
    """Compare position base and scale in force with the model file's, by the log's load lines, or by command line and file."""
    in_force: dict[str, tuple[float, Evidence]] = {}
    trained: dict[str, float] = {}
    for evidence, event in sight.of(LogEvent):
        if event.event != "rope" or event.key is None:
            continue
        number = _number(event.value)
        if number is None or number <= 0:
            continue
        if event.key in {"freq_base", "freq_scale"}:
            in_force[event.key] = (number, evidence)
        elif event.key in {"freq_base_train", "freq_scale_train"}:
            trained[event.key.removesuffix("_train")] = number
    for name, fact in (("freq_base", ROPE_BASE_RATIO), ("freq_scale", ROPE_SCALE_RATIO)):
        if name in in_force and name in trained:
            yield reading(fact, ratio(in_force[name][0], trained[name]), in_force[name][1])
    file = sight.last(ModelFile)
    last = sight.last(Configuration)
    if last is not None:
        yield from _positions_set(last[0], last[1], file[1] if file else None, sight)


def tells_all(configuration: Configuration) -> bool:
    """Say whether a command line was read and what it does not set is not set. A script that starts the server sets inside what its command does not show."""
    command = [word for word in configuration.command or () if "=" not in word]
    while command and _name_of(command[0]) in _SHELLS:
        command = [word for word in command[1:] if not word.startswith(("-", "/c", "/C"))]
    return bool(command) and not command[0].lower().endswith(_SCRIPTS)


def _name_of(program: str) -> str:
    return re.split(r"[\\/]", program)[-1].lower().removesuffix(".exe")


_SHELLS = frozenset({"sh", "bash", "zsh", "dash", "fish", "env", "cmd", "powershell", "pwsh", "nohup", "sudo"})
_SCRIPTS = (".sh", ".bash", ".zsh", ".fish", ".bat", ".cmd", ".ps1")


def stretch_of(configuration: Configuration) -> float | None:
    """Give by how much the settings stretch positions (2.0: twice the length); None where they set no scale."""
    settings = configuration.settings
    scale = positive(_number(_value(settings.get("rope_freq_scale"))))
    return 1.0 / scale if scale is not None else positive(_number(_value(settings.get("rope_scale"))))


def _positions_set(
    evidence: Evidence, configuration: Configuration, file: ModelFile | None, sight: Sight
) -> Iterator[Reading]:
    settings = configuration.settings
    base = positive(_number(_value(settings.get("rope_freq_base"))))
    scale = positive(_number(_value(settings.get("rope_freq_scale"))))
    stretch = positive(_number(_value(settings.get("rope_scale"))))
    yield reading(ROPE_BASE_SET, base, evidence)
    yield reading(ROPE_SCALE_SET, scale or stretch, evidence)
    if scale is not None or stretch is not None:
        yield reading(ROPE_SCALE_FLAG, "rope_freq_scale" if scale is not None else "rope_scale", evidence)
    if scale is None and stretch is not None:
        scale = 1.0 / stretch
    kind = _value(settings.get("rope_scaling"))
    known = sight.known(BACKEND)
    complete = known is not None and known.value in LLAMA_FAMILY and tells_all(configuration)
    if base is not None or scale is not None or kind not in {None, "", "none"}:
        yield reading(ROPE_SET, True, evidence)
    elif complete:
        yield reading(ROPE_SET, False, evidence)
    if base is not None and file is not None and file.rope_freq_base:
        yield reading(ROPE_BASE_RATIO, ratio(base, file.rope_freq_base), evidence)
    elif base is None and complete:
        # What is not set is taken from the file.
        yield reading(ROPE_BASE_RATIO, 1.0, evidence)
    if scale is not None and file is not None:
        yield reading(ROPE_SCALE_RATIO, ratio(scale, 1.0 / (file.rope_scaling_factor or 1.0)), evidence)
    elif scale is None and complete:
        yield reading(ROPE_SCALE_RATIO, 1.0, evidence)


def _reaches(sight: Sight, scale: Known[float] | None, window: int, trained: int) -> bool:
    """Say whether the scale, from the model's own length on, covers the window. How far a base reaches, no arithmetic tells."""
    last = sight.last(Configuration)
    original = _number(_value(last[1].settings.get("yarn_orig_ctx"))) if last is not None else None
    if original and abs(original - trained) > 0.02 * trained:
        return False
    return scale is None or scale.value > 0.98 or trained / scale.value >= 0.98 * window


@derivation(
    reads=(Configuration,),
    needs=(ROPE_BASE_RATIO, ROPE_SCALE_RATIO, ROPE_SET, ROPE_TYPE_FILE, WINDOW_IN_FORCE, WINDOW_TRAINED),
    gives=(ROPE_WRONG, ROPE_MISSING),
)
def positions_judged(sight: Sight) -> Iterator[Reading]:
    """Say whether positions are off within the training, or unscaled beyond it. Scaling beyond the training is what scaling is for."""
    base, scale = sight.known(ROPE_BASE_RATIO), sight.known(ROPE_SCALE_RATIO)
    ratios = [known for known in (base, scale) if known is not None]
    window, trained = sight.known(WINDOW_IN_FORCE), sight.known(WINDOW_TRAINED)
    beyond = None if window is None or trained is None or not trained.value else window.value > trained.value * 1.02
    off = [known for known in ratios if not 0.98 <= known.value <= 1.02]
    # a base that is greater and a scale that is smaller than the file's stretch: right beyond the training, wrong within it
    stretched = all(known.value > 1 if known is base else known.value < 1 for known in off)
    reaches = window is not None and trained is not None and _reaches(sight, scale, window.value, trained.value)
    if off and beyond is None and stretched:
        note = "whether the window is longer than the training length of the model file is not known"
        yield unread(ROPE_WRONG, "not-run", note)
    elif off and beyond is True and not (stretched and reaches):
        yield unread(ROPE_WRONG, "failed", "positions are scaled, but not by what this window needs")
    elif off and beyond is not True:
        yield reading(ROPE_WRONG, True, source=off[0].source, origin=off[0].origin)
    elif len(ratios) == 2:
        yield reading(ROPE_WRONG, False, source=ratios[0].source, origin=ratios[0].origin)
    scaled = sight.known(ROPE_SET)
    in_file = sight.known(ROPE_TYPE_FILE)
    if beyond is not None and window is not None:
        file_scales = in_file is not None and in_file.value not in {"none", "linear", ""}
        if not beyond:
            yield reading(ROPE_MISSING, False, source=window.source, origin=window.origin)
        elif off:
            yield reading(ROPE_MISSING, False, source=off[0].source, origin=off[0].origin)
        elif scaled is not None:
            yield reading(
                ROPE_MISSING, not scaled.value and not file_scales, source=scaled.source, origin=scaled.origin
            )
