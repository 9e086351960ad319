"""What in a configuration is known to go wrong, as data: one row a flag, with its words, how serious it is, and when it is raised.

A flag is a hint from settings and counters alone, seen within seconds; that it is the cause of a failure is for the rules to say.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from diagnose.clients import FEWER, MORE, MUCH_OF_WINDOW
from probes.backends.ollama import default_window
from probes.evidence.machine import Device, DeviceReadings, HostReading
from probes.evidence.request import TruncationReading
from probes.evidence.subject import ModelFile, Setting
from probes.evidence.words import Words, words
from reports.document import ClientValues, WindowValues
from reports.figures import size

Severity = Literal["note", "warning", "serious"]
Values = dict[str, Any]

GIB = 2**30
LONG_WINDOW = 32_768
LLAMA_CPP_PYTHON_WINDOW = 2048
"""The window that llama-cpp-python takes when none is set."""
MUCH_FOR_SCORES = GIB // 2
LLAMA = frozenset({"llama.cpp", "ik_llama.cpp", "beellama.cpp", "llama-manager", "llama-swap"})
CUTS_SILENTLY = frozenset({"ollama", "koboldcpp", "text-generation-webui", "lm-studio"})
"""Servers that are known to shorten a prompt above their window instead of refusing it."""
LOW_BIT = frozenset({"q4_0", "q4_1", "iq4_nl", "turbo2", "turbo3", "kvarn2", "kvarn3", "q4", "4"})
FULL_BIT = frozenset({"f16", "bf16", "f32", "fp16", "auto", "float16", "bfloat16", "16"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What a short look at a server found. ``settings`` by variable name; None: not told."""

    backend: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    command_seen: bool = False
    window: WindowValues = field(default_factory=WindowValues)
    unified: bool | None = None
    pool: int | None = None
    file: ModelFile | None = None
    devices: DeviceReadings | None = None
    host: HostReading | None = None
    truncation: TruncationReading | None = None
    clients: tuple[ClientValues, ...] = ()

    def value(self, name: str) -> Any:
        """Give a setting's value, or None."""
        setting = self.settings.get(name)
        return None if setting is None else setting.value

    def number(self, name: str) -> float | None:
        """Give a setting's value where it is a finite number."""
        value = self.value(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return value

    def text(self, name: str) -> str:
        """Give a setting's value as lower-case text; empty where it is none."""
        value = self.value(name)
        return value.lower() if isinstance(value, str) else ""

    @property
    def gpus(self) -> tuple[Device, ...]:
        """The accelerators that were seen."""
        return self.devices.devices if self.devices is not None else ()


@dataclass(frozen=True, slots=True)
class RedFlag:
    """One kind of trouble. ``when`` gives the values of its words where it is raised, None where it is not, or where that cannot be told."""

    id: str
    severity: Severity
    words: Words
    when: Callable[[Seen], Values | None]


@dataclass(frozen=True, slots=True)
class Raised:
    """A flag that is up."""

    id: str
    severity: Severity
    words: Words


def raised(seen: Seen, flags: tuple[RedFlag, ...] | None = None) -> Iterator[Raised]:
    """Give every flag that is up, the serious ones first."""
    order = {"serious": 0, "warning": 1, "note": 2}
    up = [
        Raised(flag.id, flag.severity, Words(flag.words.text, values))
        for flag in (FLAGS if flags is None else flags)
        if (values := flag.when(seen)) is not None
    ]
    yield from sorted(up, key=lambda one: order[one.severity])


# -- when ---------------------------------------------------------------------------------------------------------------------------------


def _cut(seen: Seen) -> Values | None:
    reading = seen.truncation
    if reading is None or reading.verdict != "truncated":
        return None
    return {"sent": reading.sent, "processed": reading.processed}


def _cuts_by_habit(seen: Seen) -> Values | None:
    told = seen.truncation is not None and seen.truncation.verdict != "unknown"
    return {"server": seen.backend} if seen.backend in CUTS_SILENTLY and not told else None


MULTIPLIES = frozenset({"ollama"})
"""Servers whose window is that of one request: they make it as many times as they serve requests at once."""


def _slots_divide(seen: Seen) -> Values | None:
    window = seen.window
    if not window.slots or window.slots < 2 or not window.per_slot or seen.unified or seen.backend in MULTIPLIES:
        return None
    whole = window.asked or (window.per_slot * window.slots if seen.unified is False else 0)
    if window.per_slot > 0.75 * whole:
        return None
    return {"slots": window.slots, "whole": whole, "each": window.per_slot}


def _several_slots(seen: Seen) -> Values | None:
    window = seen.window
    if seen.backend not in LLAMA or (window.slots or 0) < 2 or not window.per_slot:
        return None
    if window.asked or seen.unified is not None:
        return None
    return {"slots": window.slots, "each": window.per_slot}


def _pool_shared(seen: Seen) -> Values | None:
    window = seen.window
    slots, each = window.slots or 0, window.in_force or 0
    pool = seen.pool or (window.asked if seen.unified else None) or (each if seen.unified else None)
    if slots < 2 or not each or not pool or pool >= 0.95 * slots * each:
        return None
    return {"slots": slots, "each": each, "pool": pool}


def _above_trained(seen: Seen) -> Values | None:
    window = seen.window
    if not window.trained or not window.in_force or window.in_force <= window.trained or _scaled(seen):
        return None
    return {"window": window.in_force, "trained": window.trained}


def _sharing(seen: Seen) -> int:
    """Give the number of slots that share the window that was asked for."""
    return 1 if seen.unified or seen.backend in MULTIPLIES else seen.window.slots or 1


def _asked_above_trained(seen: Seen) -> Values | None:
    window = seen.window
    if not window.trained or not window.asked or window.asked <= window.trained or _scaled(seen):
        return None
    slots = _sharing(seen)
    if window.in_force is None or window.in_force > window.trained or window.asked / slots <= window.trained:
        return None
    return {"asked": window.asked, "trained": window.trained, "window": window.in_force}


def _scaled(seen: Seen) -> bool:
    scale = seen.number("rope_scale")
    return (
        seen.text("rope_scaling") in {"yarn", "linear", "longrope", "dynamic"}
        or (scale is not None and scale > 1)
        or (seen.file is not None and (seen.file.rope_scaling_factor or 1) > 1)
    )


def _less_than_asked(seen: Seen) -> Values | None:
    window = seen.window
    if not window.asked or not window.in_force or _asked_above_trained(seen) is not None:
        return None
    expected = window.asked // _sharing(seen)
    if window.in_force >= 0.95 * expected or (window.trained and window.in_force >= window.trained):
        return None
    return {"asked": window.asked, "window": window.in_force}


def _tier_default(seen: Seen) -> Values | None:
    window = seen.window
    if seen.backend not in {"ollama", "lm-studio", "llama-cpp-python"} or window.asked or not window.in_force:
        return None
    if window.in_force not in {2048, 4096, 8192, 32_768} or (window.trained and window.trained <= window.in_force):
        return None
    return {"window": window.in_force, "server": seen.backend}


def _tier_to_come(seen: Seen) -> Values | None:
    window = seen.window
    if seen.backend != "ollama" or not seen.command_seen or seen.devices is None or not window.trained:
        return None
    if window.asked or window.in_force:
        return None
    total = sum(device.total_bytes or 0 for device in seen.gpus)
    takes = default_window(total)
    if window.trained <= takes:
        return None
    return {"window": takes, "trained": window.trained, "memory": size(total)}


def _api_default(seen: Seen) -> Values | None:
    return {} if seen.backend == "ollama" else None


def _chats_lose(seen: Seen) -> Values | None:
    return {"server": "Ollama"} if seen.backend == "ollama" and seen.window.in_force else None


def _answer_budget(seen: Seen) -> Values | None:
    budget = seen.number("n_predict")
    return {"tokens": int(budget)} if budget is not None and budget >= 0 else None


def _v_without_flash(seen: Seen) -> Values | None:
    kind = seen.text("kv_type_v")
    return {"kind": kind} if kind and kind not in FULL_BIT and seen.text("flash_attention") == "off" else None


def _mixed_types(seen: Seen) -> Values | None:
    key, value = seen.text("kv_type_k"), seen.text("kv_type_v")
    if seen.backend not in LLAMA or not seen.command_seen or not (key or value):
        return None
    key, value = key or "f16", value or "f16"
    return {"k": key, "v": value} if key != value else None


def _low_bit(seen: Seen) -> Values | None:
    low = [kind for kind in (seen.text("kv_type_k"), seen.text("kv_type_v")) if kind in LOW_BIT]
    return {"kind": low[0]} if low else None


def _base_differs(seen: Seen) -> Values | None:
    given = seen.number("rope_freq_base")
    own = seen.file.rope_freq_base if seen.file is not None else None
    if not given or not own or abs(given - own) <= 0.001 * own:
        return None
    return {"given": f"{given:g}", "own": f"{own:g}"}


_ROPE = ("rope_scaling", "rope_scale", "rope_freq_base", "rope_freq_scale", "yarn_orig_ctx")
_NEUTRAL = (None, 0, 1, "", "none", "auto")
"""Values that change nothing: the model file's own stay in force."""


def _rope_by_hand(seen: Seen) -> Values | None:
    given = [name for name in _ROPE if seen.value(name) not in _NEUTRAL]
    given = [name for name in given if seen.settings[name].source in {"process", "user", "server"}]
    if not given or _base_differs(seen) is not None:
        return None
    return {"settings": ", ".join(f"{name} = {seen.value(name)}" for name in given)}


def _scores_kept(seen: Seen) -> Values | None:
    vocabulary = seen.file.vocabulary if seen.file is not None else None
    if seen.backend != "llama-cpp-python" or not seen.command_seen or not vocabulary:
        return None
    if seen.value("logits_all") is False:
        return None
    tokens = seen.window.in_force or seen.window.asked or LLAMA_CPP_PYTHON_WINDOW
    kept = 4 * vocabulary * tokens
    return {"tokens": tokens, "size": size(kept)} if kept >= MUCH_FOR_SCORES else None


def _context_shift(seen: Seen) -> Values | None:
    return {} if seen.value("context_shift") is True else None


def _cache_ram(seen: Seen) -> Values | None:
    if seen.backend not in {"llama.cpp", "beellama.cpp"} or not seen.command_seen or seen.host is None:
        return None
    limit, ram = seen.number("cache_ram_mib"), _ram(seen.host)
    if ram is None or limit == 0:
        return None
    room = ram if limit is not None and limit < 0 else (limit if limit is not None else 8192) * 2**20
    if room < 0.25 * ram:
        return None
    if limit is not None and limit < 0:
        return {"limit": words("no limit"), "ram": size(ram)}
    return {"limit": size(room), "ram": size(ram)}


def _ram(host: HostReading) -> int | None:
    known = [one for one in (host.ram_bytes, host.cgroup_limit_bytes) if one]
    return min(known, default=None)


def _cache_off(seen: Seen) -> Values | None:
    return {} if seen.value("cache_prompt") is False else None


def _swap(seen: Seen) -> Values | None:
    host = seen.host
    if host is None or not host.swap_used_bytes or host.swap_used_bytes < max(GIB, 0.05 * (host.ram_bytes or 0)):
        return None
    return {"used": size(host.swap_used_bytes)}


def _ram_tight(seen: Seen) -> Values | None:
    host = seen.host
    if host is None or not host.ram_bytes or host.ram_available_bytes is None:
        return None
    if host.ram_available_bytes >= max(GIB, 0.07 * host.ram_bytes):
        return None
    return {"free": size(host.ram_available_bytes), "all": size(host.ram_bytes)}


def _group_limit(seen: Seen) -> Values | None:
    host = seen.host
    if host is None or not host.cgroup_limit_bytes or host.cgroup_used_bytes is None:
        return None
    if host.cgroup_used_bytes < 0.9 * host.cgroup_limit_bytes:
        return None
    return {"used": size(host.cgroup_used_bytes), "limit": size(host.cgroup_limit_bytes)}


def _killed(seen: Seen) -> Values | None:
    kills = seen.host.oom_kills if seen.host is not None else None
    return {"times": kills} if kills else None


def _others_on_device(seen: Seen) -> Values | None:
    held: list[str] = []
    for device in seen.gpus:
        for process in device.processes or ():
            if process.is_server is not False or not process.used_bytes or process.used_bytes < GIB:
                continue
            held.append(f"{process.name or process.pid} ({size(process.used_bytes)}, {device.id})")
    return {"processes": ", ".join(held[:4])} if held else None


def _device_full(seen: Seen) -> Values | None:
    full = [
        f"{device.id} ({size(device.free_bytes)})"
        for device in seen.gpus
        if device.memory == "dedicated"
        and device.free_bytes is not None
        and device.total_bytes
        and device.free_bytes < max(GIB // 2, 0.03 * device.total_bytes)
    ]
    return {"devices": ", ".join(full[:4])} if full else None


def _spilled(seen: Seen) -> Values | None:
    over = [
        f"{device.id} ({size(device.shared_used_bytes)})"
        for device in seen.gpus
        if device.memory == "dedicated" and device.shared_used_bytes and device.shared_used_bytes >= GIB
    ]
    return {"devices": ", ".join(over[:4])} if over else None


def _narrow_link(seen: Seen) -> Values | None:
    narrow = [
        f"{device.id} (x{device.link_width} of x{device.link_width_max})"
        for device in seen.gpus
        if device.link_width and device.link_width_max and device.link_width * 2 <= device.link_width_max
    ]
    return {"devices": ", ".join(narrow[:4])} if len(seen.gpus) > 1 and narrow else None


def _throttled(seen: Seen) -> Values | None:
    hot = sorted({reason for device in seen.gpus for reason in device.throttle or ()})
    return {"reasons": ", ".join(hot[:4])} if hot else None


def _cache_in_host(seen: Seen) -> Values | None:
    return {} if seen.value("kv_offload") is False and seen.gpus else None


def _part_on_cpu(seen: Seen) -> Values | None:
    layers = seen.file.layers if seen.file is not None else None
    given = seen.number("gpu_layers")
    if not seen.gpus or given is None or layers is None or not 0 <= given <= layers - 1:
        return None
    return {"given": int(given), "layers": layers}


def _flash_off(seen: Seen) -> Values | None:
    long = (seen.window.in_force or 0) >= LONG_WINDOW
    if seen.text("flash_attention") != "off" or not long or _v_without_flash(seen) is not None:
        return None
    return {"window": seen.window.in_force}


def _large_ubatch(seen: Seen) -> Values | None:
    ubatch = seen.number("ubatch")
    if seen.backend not in LLAMA or ubatch is None or ubatch <= 2048:
        return None
    return {"ubatch": int(ubatch)}


def _swa_full(seen: Seen) -> Values | None:
    return {} if seen.value("swa_full") is True else None


def _vllm_share(seen: Seen) -> Values | None:
    share = seen.number("memory_share")
    if share is None:
        share = seen.number("gpu_memory_utilization")
    return {"share": f"{share:.2f}"} if share is not None and share > 0.95 else None


def _other_servers(seen: Seen) -> Values | None:
    names = [f"{one.server_kind or one.name} ({one.pid})" for one in (seen.host.other_servers if seen.host else ())]
    return {"servers": ", ".join(names[:4])} if names else None


def _busy(seen: Seen) -> Values | None:
    host = seen.host
    if host is None or not host.load_1min or not host.cores or host.load_1min < 1.5 * host.cores:
        return None
    return {"load": f"{host.load_1min:.1f}", "cores": host.cores}


def _client_above(seen: Seen) -> Values | None:
    window = seen.window.in_force
    over = [one for one in seen.clients if window and one.context and one.context > MORE * window]
    return {"client": over[0].client, "believed": over[0].context, "window": window} if over else None


def _client_below(seen: Seen) -> Values | None:
    window = seen.window.in_force
    under = [one for one in seen.clients if window and one.context and one.context < FEWER * window]
    return {"client": under[0].client, "believed": under[0].context, "window": window} if under else None


def _client_reserves(seen: Seen) -> Values | None:
    window = seen.window.in_force
    much = [one for one in seen.clients if window and one.output and one.output > MUCH_OF_WINDOW * window]
    return {"client": much[0].client, "output": much[0].output, "window": window} if much else None


# -- what ---------------------------------------------------------------------------------------------------------------------------------


FLAGS: tuple[RedFlag, ...] = (
    RedFlag(
        "prompts-cut-silently",
        "serious",
        words("A prompt above the window was cut without an error: {sent} tokens sent, {processed} processed."),
        _cut,
    ),
    RedFlag(
        "window-above-trained",
        "serious",
        words(
            "The window in force ({window}) is longer than the model was trained for ({trained}), and no position scaling is set."
        ),
        _above_trained,
    ),
    RedFlag(
        "rope-base-differs",
        "serious",
        words(
            "The position base was set by hand to {given}; the model file says {own}. Wrong positions look like forgetting."
        ),
        _base_differs,
    ),
    RedFlag(
        "v-cache-quantised-without-flash-attention",
        "serious",
        words("The V cache is {kind} and flash attention is off: servers refuse this, or compute it in the slow way."),
        _v_without_flash,
    ),
    RedFlag(
        "spilled-to-shared-memory",
        "serious",
        words("Video memory has overflowed into system memory, which is many times slower: {devices}."),
        _spilled,
    ),
    RedFlag(
        "memory-group-nearly-full",
        "serious",
        words("The container or service may use {limit} of memory and uses {used}: the kernel kills it when it grows."),
        _group_limit,
    ),
    RedFlag(
        "slots-divide-window",
        "warning",
        words("{slots} slots divide the window: {whole} tokens in all, {each} for one request."),
        _slots_divide,
    ),
    RedFlag(
        "several-slots",
        "note",
        words(
            "{slots} slots of {each} tokens each. Whether they divide the window that was set is not seen from here."
        ),
        _several_slots,
    ),
    RedFlag(
        "pool-smaller-than-slots",
        "warning",
        words("{slots} slots of {each} tokens share one pool of {pool}: long requests at the same time fail."),
        _pool_shared,
    ),
    RedFlag(
        "window-capped-at-trained",
        "warning",
        words("{asked} tokens were asked for, but the model was trained for {trained}: the server gives {window}."),
        _asked_above_trained,
    ),
    RedFlag(
        "window-smaller-than-asked",
        "warning",
        words(
            "{asked} tokens were asked for; {window} are in force. The server fitted the window to memory, or ignored the setting."
        ),
        _less_than_asked,
    ),
    RedFlag(
        "default-window",
        "warning",
        words(
            "Nobody set a window: {window} tokens are the default of {server} for this machine, not what the model can do."
        ),
        _tier_default,
    ),
    RedFlag(
        "default-window-to-come",
        "note",
        words(
            "No window is set: Ollama takes {window} tokens by itself on a machine with {memory} of video memory; the model was trained for {trained}."
        ),
        _tier_to_come,
    ),
    RedFlag(
        "known-to-cut-silently",
        "warning",
        words(
            "{server} is known to shorten a prompt above its window without an error; --full proves whether it does here."
        ),
        _cuts_by_habit,
    ),
    RedFlag(
        "client-window-above-server",
        "warning",
        words(
            "{client} reckons with a window of {believed} tokens and the server has {window}: what lies between is refused or cut."
        ),
        _client_above,
    ),
    RedFlag(
        "client-answer-takes-window",
        "warning",
        words(
            "{client} keeps {output} tokens for the answer, which leaves little of the server's {window} for the prompt."
        ),
        _client_reserves,
    ),
    RedFlag(
        "client-window-below-server",
        "note",
        words(
            "{client} reckons with a window of {believed} tokens and the server has {window}: it shortens its history too early."
        ),
        _client_below,
    ),
    RedFlag(
        "chats-lose-messages",
        "note",
        words(
            "A chat on {server} that is longer than the window loses its oldest messages whole, without an error; one message that is longer is refused or cut."
        ),
        _chats_lose,
    ),
    RedFlag(
        "window-of-request-ignored",
        "note",
        words(
            "On the OpenAI endpoint of Ollama a request cannot set the window (num_ctx is ignored there); set it in the model or the environment."
        ),
        _api_default,
    ),
    RedFlag(
        "answer-budget-set",
        "note",
        words("The server ends an answer after {tokens} tokens unless the request says otherwise (n_predict)."),
        _answer_budget,
    ),
    RedFlag(
        "mixed-cache-types",
        "warning",
        words(
            "Keys are kept as {k}, values as {v}: without a kernel for this pair attention runs on the CPU or slowly."
        ),
        _mixed_types,
    ),
    RedFlag(
        "low-bit-cache",
        "warning",
        words("The cache is kept in four bits or fewer ({kind}): recall suffers first, and most at length."),
        _low_bit,
    ),
    RedFlag(
        "rope-set-by-hand",
        "warning",
        words(
            "Position scaling was set by hand ({settings}): a wrong value shows as forgetting, also at short lengths."
        ),
        _rope_by_hand,
    ),
    RedFlag(
        "context-shift-on",
        "warning",
        words("Context shift is on: when the window is full the oldest text is dropped without a word."),
        _context_shift,
    ),
    RedFlag(
        "scores-of-every-token",
        "warning",
        words(
            "llama-cpp-python keeps the scores of every token that it reads: {size} of system memory once {tokens} tokens are read. "
            "It reads faster with --logits_all false, and then tells no log-probabilities."
        ),
        _scores_kept,
    ),
    RedFlag(
        "prompt-cache-large",
        "warning",
        words("The server may keep prompts in system memory up to {limit} (--cache-ram); this machine has {ram}."),
        _cache_ram,
    ),
    RedFlag(
        "prompt-cache-off",
        "warning",
        words("The prompt cache is off: every turn of a conversation is read again from its beginning."),
        _cache_off,
    ),
    RedFlag(
        "swap-in-use", "warning", words("{used} of swap are in use: what was paged out is slow to come back."), _swap
    ),
    RedFlag("memory-nearly-full", "warning", words("Only {free} of {all} of system memory are available."), _ram_tight),
    RedFlag(
        "killed-for-memory-before",
        "warning",
        words("The kernel has killed for lack of memory here: {times} times."),
        _killed,
    ),
    RedFlag(
        "other-process-on-device",
        "warning",
        words("Other processes hold video memory that the model could use: {processes}."),
        _others_on_device,
    ),
    RedFlag(
        "device-nearly-full",
        "warning",
        words("Hardly any video memory is free: {devices}. A longer prompt or a picture may not fit."),
        _device_full,
    ),
    RedFlag("narrow-link", "note", words("A device runs at half its link width or less: {devices}."), _narrow_link),
    RedFlag("device-throttled", "note", words("A device is held back just now: {reasons}."), _throttled),
    RedFlag(
        "cache-in-host-memory",
        "warning",
        words("The KV cache is kept in system memory (--no-kv-offload): generation slows with every token."),
        _cache_in_host,
    ),
    RedFlag(
        "part-on-cpu",
        "warning",
        words("{given} of {layers} layers are on the GPU; the rest runs on the CPU and slows everything."),
        _part_on_cpu,
    ),
    RedFlag(
        "flash-attention-off",
        "warning",
        words("Flash attention is off at a window of {window}: work space grows with the window and prefill slows."),
        _flash_off,
    ),
    RedFlag(
        "large-micro-batch",
        "note",
        words("The micro-batch is {ubatch}: its work space is taken from what the window could use."),
        _large_ubatch,
    ),
    RedFlag(
        "full-cache-for-sliding-layers",
        "note",
        words("Sliding-window layers keep the whole length (--swa-full): several times the memory."),
        _swa_full,
    ),
    RedFlag(
        "memory-share-high",
        "note",
        words("The engine takes {share} of the device's memory at start: reserves and graphs beyond that may not fit."),
        _vllm_share,
    ),
    RedFlag(
        "other-servers-running", "note", words("Other model servers run on this machine: {servers}."), _other_servers
    ),
    RedFlag(
        "machine-busy",
        "note",
        words("The machine is busy: a load of {load} on {cores} cores; speeds are not its best."),
        _busy,
    ),
)
"""Every flag, in the order in which equals are shown."""
