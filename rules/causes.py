"""The controlled vocabulary of causes: ids and families. A rule's cause, a report's cause and a replayed case use exactly these."""

from __future__ import annotations

from dataclasses import dataclass

from probes.evidence.words import Words, words

FAMILIES: dict[str, Words] = {
    "kv-format": words("What one token of cache costs, and whether that format works."),
    "backend-allocation": words("What the backend allocates, and how."),
    "uneven-split": words("Several devices."),
    "spill": words("Memory that went where it is slow."),
    "effective-context": words("It fits and it runs, but the text is not used."),
    "window-limits": words("The window in force is not the one that was set."),
    "time-and-size-limits": words("A limit that looks like memory and is not."),
    "speed": words("Slow with everything in its place."),
    "interference": words("Something beside the run, or over time."),
}
"""The families, in the order in which they are shown."""


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause: its id, its family, and what it is in one sentence."""

    id: str
    family: str
    words: Words


_ALL = (
    Cause("kv-cache-size", "kv-format", words("The cache at the asked (or defaulted) window and type does not fit.")),
    Cause(
        "parallel-multiplies-kv",
        "kv-format",
        words("Every parallel request reserves a whole window (need grows by a constant per slot)."),
    ),
    Cause(
        "engine-kv-overallocation",
        "kv-format",
        words("The engine allocates more cache than the architecture needs (full length for sliding-window layers)."),
    ),
    Cause(
        "kv-quant-needs-flash-attn",
        "kv-format",
        words("A quantised V cache asked for with flash attention off (fails at once, with memory to spare)."),
    ),
    Cause(
        "kv-quant-no-gpu-kernel",
        "kv-format",
        words(
            "No GPU attention kernel for that cache type or K/V pair; attention moves to the CPU, or the load fails."
        ),
    ),
    Cause(
        "kv-quant-quality",
        "kv-format",
        words("A low-bit cache harms reasoning or small models, while needle tests still pass."),
    ),
    Cause(
        "kv-cache-corruption-bug",
        "kv-format",
        words("Stored or restored cache state is wrong (garbage from the second turn, after a cache hit)."),
    ),
    Cause(
        "weights-leave-no-room",
        "backend-allocation",
        words("Hardly anything is free right after the weights are loaded."),
    ),
    Cause(
        "compute-buffer-too-big",
        "backend-allocation",
        words(
            "The graph/scratch buffer, about micro-batch × window, does not fit (fails after weights and KV were placed)."
        ),
    ),
    Cause(
        "pipeline-copies-buffer",
        "backend-allocation",
        words("Several devices turn on pipeline parallelism, and input buffers are kept n_copies times."),
    ),
    Cause(
        "memory-fragmentation",
        "backend-allocation",
        words(
            "Enough is free on the device, but not in one piece (often after other loads and unloads; a fresh start cures it)."
        ),
    ),
    Cause(
        "backend-single-allocation-limit",
        "backend-allocation",
        words(
            "One buffer is over what the driver or API allows in one piece (Vulkan, SYCL, Metal); the total would do."
        ),
    ),
    Cause(
        "memory-estimate-bug",
        "backend-allocation",
        words("The engine's own planner misjudges the need, or was given a wrong free value."),
    ),
    Cause(
        "engine-reserve-overhead",
        "backend-allocation",
        words("CUDA graphs or other reserves beyond weights and KV do not fit."),
    ),
    Cause("draft-mtp-vram", "backend-allocation", words("A draft model, an MTP head or their cache take the room.")),
    Cause(
        "mmproj-vram", "backend-allocation", words("A vision projector, or its spike while encoding, takes the room.")
    ),
    Cause(
        "pinned-host-memory-limit",
        "backend-allocation",
        words("Page-locked host memory is refused and reported as GPU out of memory (VRAM nearly empty)."),
    ),
    Cause(
        "metal-wired-limit",
        "backend-allocation",
        words("The share of unified memory that the GPU may hold is exceeded."),
    ),
    Cause(
        "prefill-activation-peak",
        "backend-allocation",
        words("Passing activations of a prefill chunk overflow; memory falls back after the failure."),
    ),
    Cause("uneven-gpu-split", "uneven-split", words("One card overflows while another has room.")),
    Cause(
        "gpu-split-no-headroom",
        "uneven-split",
        words("The split counts weights only and leaves no room for cache and activations on a card."),
    ),
    Cause(
        "gpu-transfer-bound",
        "uneven-split",
        words("Traffic between devices over a slow link is what limits speed at length."),
    ),
    Cause(
        "vram-spill-shared-memory",
        "spill",
        words("The driver moves pages to shared system memory: no error, GPU busy, hardly any memory traffic."),
    ),
    Cause("cpu-layer-offload", "spill", words("The window pushed whole layers to the CPU.")),
    Cause("cpu-offload-transfer", "spill", words("Weights kept in RAM are copied to the GPU; the bus is the limit.")),
    Cause("mmap-or-swap-paging", "spill", words("Mapped weights or anonymous memory are paged to and from disk.")),
    Cause(
        "effective-context-quality",
        "effective-context",
        words("The model itself is weaker at length; nothing is cut and nothing is misconfigured."),
    ),
    Cause(
        "rope-scaling-misuse",
        "effective-context",
        words("Position scaling missing, wrong, or chosen by the allocated window."),
    ),
    Cause(
        "context-shift",
        "effective-context",
        words("Old text is thrown away when the window is full, or the shift corrupts or crashes."),
    ),
    Cause(
        "backend-attention-bug",
        "effective-context",
        words("Wrong masks or windows for that architecture in that engine."),
    ),
    Cause(
        "long-session-drift",
        "effective-context",
        words("After many turns the state is lost and the model repeats itself, before any memory limit."),
    ),
    Cause(
        "silent-truncation-default-ctx", "window-limits", words("The prompt is cut to a default window, with no error.")
    ),
    Cause("silent-truncation-half-window", "window-limits", words("Overflow cuts to about half of the window.")),
    Cause("slots-divide-ctx", "window-limits", words("The window is divided by the number of slots.")),
    Cause("kv-pool-exhausted", "window-limits", words("Slots share one pool, or no free cells are left.")),
    Cause(
        "ctx-capped-by-engine",
        "window-limits",
        words("The engine clamps the window to the training length or the sliding window."),
    ),
    Cause(
        "default-ctx-tier-changed",
        "window-limits",
        words("The engine picks the default window by the size of the card, or changed it with an upgrade."),
    ),
    Cause("server-config-not-applied", "window-limits", words("The setting never reached the loader.")),
    Cause("request-option-ignored", "window-limits", words("The endpoint drops the option that was sent.")),
    Cause("client-ctx-mismatch", "window-limits", words("The client budgets with another window than the one loaded.")),
    Cause(
        "output-budget-eats-window",
        "window-limits",
        words("The reserve for the answer is taken from the window for the input."),
    ),
    Cause(
        "gpu-watchdog-timeout",
        "time-and-size-limits",
        words("The OS or driver ends a GPU job that takes too long; moves with micro-batch, not with memory."),
    ),
    Cause(
        "client-proxy-timeout",
        "time-and-size-limits",
        words("A client or proxy gives up after a round number of seconds during a long prefill."),
    ),
    Cause(
        "backend-kernel-bug",
        "time-and-size-limits",
        words("A kernel fails at size: 32-bit overflow, launch dimension over 65535, bounds."),
    ),
    Cause(
        "concurrency-limit", "time-and-size-limits", words("A proxy or engine refuses requests over a parallel limit.")
    ),
    Cause(
        "prompt-cache-miss-swa-hybrid",
        "speed",
        words("Sliding-window, hybrid or recurrent state cannot be resumed at the wanted position."),
    ),
    Cause(
        "prompt-cache-miss-prefix-changed",
        "speed",
        words("The client changes text near the start of the prompt each turn."),
    ),
    Cause("prompt-cache-evicted", "speed", words("Another request or an idle policy throws the cached prefix away.")),
    Cause("prompt-cache-not-implemented", "speed", words("The engine path keeps no prompt cache.")),
    Cause("attention-kernel-slow", "speed", words("The attention kernel is slow at depth for that GPU or head size.")),
    Cause("speculative-overhead", "speed", words("Speculation costs more than it gains at length.")),
    Cause(
        "depth-cost",
        "speed",
        words("The ordinary price of attention and bandwidth at this length; an operating boundary, not a fault."),
    ),
    Cause(
        "other-process-vram",
        "interference",
        words("Another program, or another process of the same server, holds video memory."),
    ),
    Cause("previous-instance-holds-memory", "interference", words("An earlier runner still holds it.")),
    Cause(
        "host-memory-growth",
        "interference",
        words("Prompt caches, checkpoints or pools grow in system memory until the kernel kills or swaps."),
    ),
    Cause("server-state-bug", "interference", words("Slot, pool or position accounting goes wrong over time.")),
    Cause("driver-kernel-bug", "interference", words("GPU driver, firmware or OS kernel fault.")),
    Cause(
        "gpu-lost-at-runtime", "interference", words("The device is lost to the process, which goes on with the CPU.")
    ),
    Cause("hardware-fault", "interference", words("Power supply, circuit, riser, card.")),
)

CAUSES: dict[str, Cause] = {cause.id: cause for cause in _ALL}
"""Every cause by id, in the order of the families."""

SYMPTOMS = ("immediate-oom", "fixed-length-error", "slow-long-context", "forgetting", "flaky")
"""What a user can come with."""
