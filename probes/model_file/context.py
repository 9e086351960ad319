"""What one context of llama.cpp allocates for a model: KV caches, states and the output buffer, exact to the byte, or why it is refused.

Facts: llama.cpp build 11434 (``llama_context`` constructor, ``llama_init_from_model``, ``create_memory``, ``llama_kv_cache*``,
``llama_memory_recurrent``). A :class:`Plan` is worked out once for a model, a pair of cache types and a mode; a window is then a few products.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .shape import _CSA, _HCA, Shape

PAD = 256
MOST_SEQUENCES = 256
DEFAULT_BATCH = 2048
DEFAULT_UBATCH = 512
DEFAULT_PARALLEL = 4
"""llama-server's own slots where nothing is set; they then share one cache."""


class CacheType(NamedTuple):
    """A cache's element type: ``block`` elements take ``size`` bytes. ``fork``: which fork has it, empty for llama.cpp itself."""

    name: str
    block: int
    size: int
    quantised: bool = False
    fork: str = ""
    row: int = 0
    """Bytes that each row takes besides: of keys, each head is a row."""
    exact_tokens: int = 0
    """So many newest tokens of each stream are kept in f16 besides."""


CACHE_TYPES: dict[str, CacheType] = {
    entry.name: entry
    for entry in (
        CacheType("f32", 1, 4),
        CacheType("f16", 1, 2),
        CacheType("bf16", 1, 2),
        CacheType("q8_0", 32, 34, quantised=True),
        CacheType("q5_1", 32, 24, quantised=True),
        CacheType("q5_0", 32, 22, quantised=True),
        CacheType("q4_1", 32, 20, quantised=True),
        CacheType("q4_0", 32, 18, quantised=True),
        CacheType("iq4_nl", 32, 18, quantised=True),
        CacheType("q6_0", 32, 26, quantised=True, fork="ik_llama.cpp"),
        CacheType("q8_KV", 1, 1, quantised=True, fork="ik_llama.cpp", row=8),
        CacheType("turbo2", 128, 34, quantised=True, fork="beellama.cpp"),
        CacheType("turbo3", 128, 50, quantised=True, fork="beellama.cpp"),
        CacheType("turbo4", 128, 66, quantised=True, fork="beellama.cpp"),
        CacheType("turbo3_tcq", 128, 52, quantised=True, fork="beellama.cpp"),
        CacheType("turbo2_tcq", 128, 36, quantised=True, fork="beellama.cpp"),
        # records of the width's bits and 0.375 bits of scales a value; docs/beellama-features.md measured 420 MiB of K for 49,152 tokens of
        # 16,384 values as kvarn4, which is the same 0.375
        *(
            CacheType(f"kvarn{width}", 64, 8 * width + 3, quantised=True, fork="beellama.cpp", exact_tokens=128)
            for width in (2, 3, 4, 5, 6, 8)
        ),
    )
}
"""Name → type: the nine of llama.cpp, and those of its forks whose sizes are documented."""


class Refused(NamedTuple):
    """The engine would not start with these settings. ``said``: what it says; ``advice``: what to do."""

    said: str
    advice: str

    def __str__(self) -> str:
        """Give both in one line."""
        return f"{self.said}; {self.advice}" if self.advice else self.said


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """What is asked of one context. ``ctx`` 0 is the trained window; ``flash_attn`` auto, on or off; ``kind`` default or mtp."""

    ctx: int = 0
    kv_k: str = "f16"
    kv_v: str = "f16"
    parallel: int = 1
    kv_unified: bool = False
    batch: int = DEFAULT_BATCH
    ubatch: int = DEFAULT_UBATCH
    swa_full: bool = False
    flash_attn: str = "auto"
    kind: str = "default"
    rollback: int = 0
    outputs: int = 0
    """For how many tokens of a micro-batch logits are reserved; 0: one a slot, as llama-server does from b9500 on."""
    wide_masks: bool = False
    """Whether attention masks are f32 (and f16 besides for flash attention), as before b9500."""
    spare: int = 0
    """Cells that are allocated beyond the window, which no prompt may use."""


@dataclass(slots=True)
class Part:
    """One cache of the plan: ``size`` says how its cells follow from the window; rows are bytes a cell, layer by layer."""

    name: str
    size: str
    layers: tuple[int, ...]
    k_rows: tuple[int, ...]
    v_rows: tuple[int, ...]
    always_split: bool = False
    k_row: int = 0
    v_row: int = 0
    exact_rows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        self.k_row = sum(self.k_rows)
        self.v_row = sum(self.v_rows)


@dataclass(slots=True)
class Cache:
    """One cache as it is allocated. Bytes count every stream; ``cells`` is of one stream."""

    name: str
    cells: int
    streams: int
    layers: tuple[int, ...]
    k_bytes: int
    v_bytes: int


@dataclass(slots=True)
class Plan:
    """A model's memory for one pair of cache types and one mode, ready for any window."""

    shape: Shape
    parts: tuple[Part, ...]
    state_rows: dict[int, int]
    """Layer → bytes of state for one sequence (and one step of rollback)."""
    kept_states: dict[int, int] = field(default_factory=dict)
    """The same for compressors' states, which count streams."""
    rollback: int = 0


@dataclass(slots=True)
class Memory:
    """What is allocated. ``kv_by_layer`` and ``state_by_layer`` place it on devices."""

    ctx: int
    ctx_per_slot: int
    batch: int
    ubatch: int
    caches: tuple[Cache, ...]
    kv_bytes: int
    state_bytes: int
    output_bytes: int


FEWER_LOGITS = 9500
"""From about this build on llama-server reserves logits for one token a slot, and makes masks as f16; before, for the whole micro-batch, and f32."""
KOBOLDCPP_SPARE = 128
"""Tokens that KoboldCpp adds to the window that it asks llama.cpp for, and to the cells of a sliding window."""
_RESERVES_ALL = frozenset({"ik_llama.cpp", "koboldcpp", "llama-cpp-python"})
"""Programs on llama.cpp's library that let it reserve logits for the whole micro-batch, whatever its build."""


def as_engine(settings: ContextSettings, engine: str | None, build: int | None) -> ContextSettings:
    """Give the settings with what this engine and build reserve. An unknown build is taken as a new one."""
    if engine == "koboldcpp":
        # one cache for all sequences, and some room for holes in it
        settings = replace(settings, kv_unified=True, spare=KOBOLDCPP_SPARE)
    if engine == "ik_llama.cpp":
        # it keeps whole windows for layers that look at a part, but for its option --swa-compress
        settings = replace(settings, swa_full=True)
    old = engine in {None, "llama.cpp"} and build is not None and build < FEWER_LOGITS
    if old or engine in _RESERVES_ALL:
        return replace(settings, outputs=max(1, settings.ubatch), wide_masks=old)
    return settings


def types_by_engine() -> str:
    """List the cache types, llama.cpp's own first and each fork's under its name."""
    forks: dict[str, list[str]] = {}
    for one in CACHE_TYPES.values():
        forks.setdefault(one.fork, []).append(one.name)
    return "; ".join(f"{fork}: {', '.join(names)}" if fork else ", ".join(names) for fork, names in forks.items())


def pad(value: int, to: int = PAD) -> int:
    """Round up to a multiple."""
    return -(-value // to) * to


def check(shape: Shape, settings: ContextSettings) -> Refused | None:
    """Say whether llama.cpp refuses these settings for this model, in the order in which it looks."""
    known = [CACHE_TYPES.get(name) for name in (settings.kv_k, settings.kv_v)]
    for name, entry in zip((settings.kv_k, settings.kv_v), known, strict=True):
        if entry is None:
            return Refused(f"unsupported cache type: {name}", f"use one of {types_by_engine()}")
    type_k, type_v = known
    assert type_k is not None
    assert type_v is not None
    if settings.parallel > MOST_SEQUENCES:
        return Refused(f"n_seq_max must be <= {MOST_SEQUENCES}", "use fewer slots")
    if settings.ctx == 0 and shape.trained_window == 0:
        return Refused("n_ctx and model->hparams.n_ctx_train cannot both be zero", "set the window with --ctx")
    flash = "off" if shape.architecture == "grok" else settings.flash_attn
    if (shape.compressed or shape.rule.memory == "dsv4") and type_k.name != type_v.name:
        return Refused(
            f"model does not support different K ({type_k.name}) and V ({type_v.name}) cache types",
            "its cache holds one compressed entry a token: give the same type for both",
        )
    if type_v.quantised and flash == "off":
        return Refused(
            "quantized V cache requires flash_attn to be enabled",
            "this architecture cannot use flash attention: keep V at f16"
            if shape.architecture == "grok"
            else "turn flash attention on, or keep V at f16",
        )
    if flash != "off":
        for letter, entry, width in (("K", type_k, shape.key_head), ("V", type_v, shape.value_head)):
            if not entry.quantised or entry.block == 1:
                continue
            for layer in range(shape.layers):
                if width(layer) % entry.block:
                    return Refused(
                        f"{letter} cache type {entry.name} with block size {entry.block} does not divide "
                        f"n_embd_head_{letter.lower()}={width(layer)}",
                        "use f16 or another type for it",
                    )
    return _check_mode(shape, settings)


def _check_mode(shape: Shape, settings: ContextSettings) -> Refused | None:
    if settings.kind == "mtp":
        if shape.draft_layers == 0 or shape.router:
            return Refused(
                "context type MTP requested but model doesn't contain MTP layers", "use a draft model or no speculation"
            )
        plain = shape.rule.memory not in {"none", "recurrent", "hybrid", "msa"} and shape.architecture != "t5encoder"
        if plain and not shape.rule.draft:
            return Refused(
                "failed to initialize the context: unordered_map::at",
                "the file has prediction layers, but llama.cpp cannot run them for this architecture",
            )
    if shape.windowed and not any(shape.in_window) and shape.rule.memory in {"attention", "dsv4"}:
        return Refused("GGML_ASSERT(hparams.is_swa_any()) failed", "the file gives a window, but no layer uses it")
    if shape.architecture == "t5" and settings.parallel > 1 and not settings.kv_unified:
        return Refused("GGML_ASSERT(ggml_can_repeat(b, a)) failed", "use one slot, or a unified cache")
    return None


def plan(shape: Shape, settings: ContextSettings) -> Plan | Refused:
    """Work out caches and states for the settings' types and mode; the window may change afterwards."""
    rule, mode = shape.rule, settings.kind
    type_k, type_v = CACHE_TYPES[settings.kv_k], CACHE_TYPES[settings.kv_v]
    flash = settings.flash_attn != "off" and shape.architecture != "grok"
    build = _Builder(shape, type_k, type_v, transposed=not flash)
    trunk = range(shape.layers)
    every = range(shape.layers_all)
    drafting = range(shape.layers, shape.layers_all)
    states: list[int] = []
    memory = rule.memory
    rollback = settings.rollback if rule.rollback else 0
    if memory == "none" or (shape.architecture == "gemma4-assistant"):
        return Plan(shape, (), {})
    if memory == "recurrent":
        states = list(trunk)
    elif (
        mode == "mtp"
        and memory in {"attention", "hybrid", "dsa", "dsa-window", "dsv4"}
        and (rule.draft or memory != "hybrid")  # other hybrids keep all they have
        and shape.architecture != "hy_v4"
    ):
        # A draft runs the prediction layers only, with a plain cache of its own, split by window where the model has one.
        windowed = shape.windowed and memory != "dsa-window"
        build.attention(drafting, windowed=windowed)
    elif memory == "attention":
        attended = trunk if shape.draft_layers and shape.layers and not shape.router else every
        build.attention(attended, windowed=shape.windowed)
    elif memory in {"hybrid", "hybrid-indexed"}:
        states = _hybrid(build, mode)
    elif memory in {"dsa", "dsa-window"}:
        _sparse(build)
    elif memory == "msa":
        build.add("main", "full", every)
        build.add_indexer([layer for layer in every if layer >= shape.dense_lead], values=True)
    elif memory == "dsv4":
        _deepseek4(build)
    if build.refused is not None:
        return build.refused
    size = 4 * (shape.conv_state + shape.state)
    rows = {layer: size + (4 * shape.ngram_state if layer in shape.ngram_layers else 0) for layer in states}
    kept: dict[int, int] = {}
    if memory == "dsv4" and mode != "mtp":
        kept = _compressor_states(shape)
    return Plan(shape, tuple(build.parts), rows, kept, rollback)


def memory_of(planned: Plan, settings: ContextSettings) -> Memory:
    """Give what the plan takes for the settings' window, slots and batches."""
    shape = planned.shape
    slots = max(1, settings.parallel)
    asked = settings.ctx or shape.trained_window
    batch = min(asked, settings.batch) if shape.causal else settings.batch
    ubatch = min(batch, settings.ubatch or settings.batch)
    ctx = pad(asked)
    if settings.kv_unified:
        per_slot = ctx
    else:
        per_slot = pad(ctx // slots)
        ctx = per_slot * slots
    streams = 1 if settings.kv_unified else slots
    caches = []
    kv_bytes = 0
    room = pad(asked + settings.spare) if settings.spare else per_slot
    for part in planned.parts:
        own = slots if part.always_split else streams
        cells = cells_of(part.size, room, shape, settings, ubatch, split=own > 1 or part.always_split)
        k_bytes, v_bytes = part.k_row * cells * own, part.v_row * cells * own
        if part.exact_rows:
            # The exact copy of the newest tokens is small, but it is not nothing.
            v_bytes += sum(part.exact_rows) * own
        kv_bytes += k_bytes + v_bytes
        caches.append(Cache(part.name, cells, own, part.layers, k_bytes, v_bytes))
    deep = 1 + planned.rollback
    state = sum(planned.state_rows.values()) * slots * deep + sum(planned.kept_states.values()) * slots * deep
    output = 4 * slots * (shape.vocabulary + (shape.output_width if shape.architecture == "t5" else 0))
    return Memory(ctx, per_slot, batch, ubatch, tuple(caches), kv_bytes, state, output)


def cells_of(size: str, per_slot: int, shape: Shape, settings: ContextSettings, ubatch: int, *, split: bool) -> int:
    """Count the cells of one stream of a cache. ``size``: full, window, csa or hca."""
    if size == "full":
        return per_slot
    if size == "window":
        if settings.swa_full:
            return per_slot
        slots = 1 if split or not settings.kv_unified else max(1, settings.parallel)
        return min(pad(min(per_slot, shape.window * slots + ubatch)) + settings.spare, per_slot)
    return pad(max(1, -(-per_slot // (_CSA if size == "csa" else _HCA))))


class _Builder:
    """Collects caches. A row that its type's blocks do not divide is refused, as ggml would."""

    def __init__(self, shape: Shape, type_k: CacheType, type_v: CacheType, *, transposed: bool) -> None:
        self.shape = shape
        self.type_k = type_k
        self.type_v = type_v
        self.transposed = transposed
        self.parts: list[Part] = []
        self.refused: Refused | None = None

    def attention(self, layers: range | list[int], *, windowed: bool, keys_only: bool | None = None) -> None:
        """Add the cache or caches of plain attention over these layers."""
        if not windowed:
            self.add("base", "full", layers, keys_only=keys_only)
            return
        inside = self.shape.in_window
        self.add("base", "full", [layer for layer in layers if not inside[layer]], keys_only=keys_only)
        self.add("swa", "window", [layer for layer in layers if inside[layer]], keys_only=keys_only)

    def add(
        self,
        name: str,
        size: str,
        layers: range | list[int],
        *,
        keys_only: bool | None = None,
        always_split: bool = False,
        width: int | None = None,
    ) -> None:
        """Add one cache. ``width``: of a single key head in place of the model's own (indexers)."""
        shape = self.shape
        kept = [layer for layer in layers if shape.kv_from_start < 0 or layer < shape.kv_from_start]
        only = shape.compressed if keys_only is None else keys_only
        k_rows = [shape.key_row(layer) if width is None else self._narrow(layer, width) for layer in kept]
        v_rows = [0] * len(kept) if only else [self._value_row(layer, single=width is not None) for layer in kept]
        exact = self.type_v.exact_tokens or self.type_k.exact_tokens
        self.parts.append(
            Part(
                name,
                size,
                tuple(kept),
                tuple(
                    self._bytes(self.type_k, row, 1 if shape.compressed or width is not None else shape.kv_heads[layer])
                    for layer, row in zip(kept, k_rows, strict=True)
                ),
                tuple(0 if only else self._bytes(self.type_v, row) for row in v_rows),
                always_split,
                exact_rows=tuple(2 * exact * (k + v) for k, v in zip(k_rows, v_rows, strict=True)) if exact else (),
            )
        )

    def add_indexer(self, layers: list[int], *, values: bool = False, keys_only: bool | None = None) -> None:
        """Add an indexer's key cache."""
        only = not values if keys_only is None else keys_only
        self.add("indexer", "full", layers, keys_only=only, width=self.shape.indexer * self.shape.indexer_rows)

    def _narrow(self, layer: int, width: int) -> int:
        # Only the full-attention width is replaced: a windowed layer with an indexer keeps its own head.
        return self.shape.head_k_window if self.shape.in_window[layer] else width

    def _value_row(self, layer: int, *, single: bool) -> int:
        shape = self.shape
        if not self.transposed:
            return shape.value_head(layer) * (1 if single else shape.kv_heads[layer])
        # Without flash attention values lie transposed, and every layer is as wide as the widest.
        rows = (shape.value_head(at) * (1 if single else shape.kv_heads[at]) for at in range(shape.layers_all))
        return max(rows)

    def _bytes(self, kind: CacheType, row: int, heads: int = 1) -> int:
        if row % kind.block:
            self.refused = self.refused or Refused(
                f"a row of {row} elements is no multiple of the block size {kind.block} of {kind.name}",
                "use f16 or another type for it",
            )
            return 0
        return row // kind.block * kind.size + (kind.row * max(1, heads) if row else 0)


def _hybrid(build: _Builder, mode: str) -> list[int]:
    """Add the caches of a model with states; give the layers that keep one."""
    shape = build.shape
    recurrent, trunk = shape.recurrent, range(shape.layers)
    if mode == "mtp" and shape.rule.memory == "hybrid-indexed":
        drafting = list(range(shape.layers, shape.layers_all))
        build.attention(drafting, windowed=False)
        build.add_indexer(drafting)
        return []
    if shape.rule.recurrent == "every":
        build.attention(range(shape.layers_all), windowed=False)
        return list(trunk)
    if shape.rule.recurrent == "no-kv-heads-no-ffn":
        plain = [layer for layer in range(shape.layers_all) if not recurrent[layer] and shape.feed_forward[layer] == 0]
        build.attention(plain, windowed=False)
        return [layer for layer in trunk if recurrent[layer]]
    trunk_only = shape.rule.recurrent == "interval" or shape.rule.memory == "hybrid-indexed"
    attended = [layer for layer in (trunk if trunk_only else range(shape.layers_all)) if not recurrent[layer]]
    build.attention(attended, windowed=shape.windowed)
    if shape.rule.memory == "hybrid-indexed" and shape.indexer:
        full = shape.indexer_full if shape.architecture == "glm5-next" else [True] * shape.layers_all
        build.add_indexer([layer for layer in attended if full[layer]])
    return [layer for layer in trunk if recurrent[layer]]


def _sparse(build: _Builder) -> None:
    """Add main, indexer and window caches of the sparse kinds over compressed keys."""
    shape = build.shape
    if shape.architecture == "hy_v4" and not shape.indexer:
        build.attention(range(shape.layers_all), windowed=False)
        return
    layers = range(shape.layers_all) if shape.architecture == "hy_v4" else range(shape.layers)
    inside = shape.in_window
    build.add("main", "full", [layer for layer in layers if not inside[layer]])
    build.add_indexer([layer for layer in range(shape.layers) if shape.indexer_full[layer]], keys_only=shape.compressed)
    if shape.rule.memory == "dsa-window":
        build.add("swa", "window", [layer for layer in layers if inside[layer]])


def _deepseek4(build: _Builder) -> None:
    """Add raw, compressed and indexer caches. They stay apart for each sequence, unified or not, and hold keys only."""
    shape = build.shape
    every = range(shape.layers_all)
    csa = [layer for layer in every if shape.ratios[layer] == _CSA]
    hca = [layer for layer in every if shape.ratios[layer] == _HCA]
    build.add(
        "base", "full", [layer for layer in every if not shape.in_window[layer]], keys_only=True, always_split=True
    )
    build.add("swa", "window", [layer for layer in every if shape.in_window[layer]], keys_only=True, always_split=True)
    build.add("csa", "csa", csa, keys_only=True, always_split=True)
    build.add("hca", "hca", hca, keys_only=True, always_split=True)
    before = shape.head_k_window
    shape.head_k_window = shape.indexer  # this indexer is as narrow in windowed layers
    build.add("indexer", "csa", csa, keys_only=True, always_split=True, width=shape.indexer)
    shape.head_k_window = before


def _compressor_states(shape: Shape) -> dict[int, int]:
    """Give each layer's compressor states for one sequence: keys and scores, f32."""
    states: dict[int, int] = {}
    head = shape.key_head(0)
    for layer in range(shape.layers):
        if shape.ratios[layer] == _CSA:
            states[layer] = 2 * 4 * (2 * _CSA) * (2 * head + 2 * shape.indexer)
        elif shape.ratios[layer] == _HCA:
            states[layer] = 2 * 4 * _HCA * head
    return states
