"""The engine picks the default window by the size of the card, or changed it with an upgrade.

What it looks for
    Nobody set a window; the one in force is long; the trouble is memory, spill or speed, and it began with another version or another card.

Why it happens
    An unset window follows a rule that depends on the free memory at start, the size of the card and the version. A larger card or an upgrade may
    turn four thousand tokens into a quarter of a million, and the cache takes the place of layers.

What would prove it wrong
    With the former window set by hand, the need and the speed stay as they are.

References
    - Ollama's "vram-based default context"; llama.cpp's fit; LM Studio's load presets.
    - Look-alikes: kv-cache-size (the window was asked for), memory-estimate-bug (the window is the same, the need is misjudged).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import FAIR, SLIGHT, STRONG, Clue, Computed, Expect, Rule, Test, all_of, any_of, before, not_
from rules.facts import (
    BACKEND,
    GENERATION_SHORT,
    KV_BYTES,
    LAYERS_ON_CPU,
    SMALLER_WINDOW_WORKS,
    TOLD_CHANGED,
    TOLD_LAYERS_FELL,
    TOLD_OLDER_VERSION,
    TOLD_ON_GPU,
    TOLD_WINDOW_SET,
    WINDOW_IN_FORCE,
    WINDOW_IN_FORCE_IS_TRAINED,
    WINDOW_SET,
    WINDOW_UNSET_LONG,
    WINDOW_WANTED,
)

RULE = Rule(
    cause="default-ctx-tier-changed",
    prior={"slow-long-context": SLIGHT, "immediate-oom": SLIGHT},
    explains=("kv-cache-size", "cpu-layer-offload", "vram-spill-shared-memory", "cpu-offload-transfer"),
    clues=(
        Clue(
            words("No window was set."),
            any_of(TOLD_WINDOW_SET.is_("not-set"), all_of(WINDOW_SET.is_(False), not_(TOLD_WINDOW_SET.known()))),
            if_true=SLIGHT,
            if_false=-STRONG,
        ),
        Clue(
            words("It began with another version of the server, or other hardware."),
            any_of(TOLD_CHANGED.has("server"), TOLD_CHANGED.has("hardware")),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The version before works with the same settings."),
            TOLD_OLDER_VERSION.is_(True),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("The window in force is long although nobody asked for it."),
            WINDOW_UNSET_LONG.is_(True),
            if_true=SLIGHT,
        ),
        Clue(
            words("Layers left the card."),
            any_of(TOLD_LAYERS_FELL.is_(True), TOLD_ON_GPU.is_("some-layers"), LAYERS_ON_CPU > 0),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words("The server is one that chooses its window by the machine."),
            BACKEND.one_of("ollama", "lm-studio"),
            if_true=SLIGHT,
            if_false=-FAIR,
        ),
        Clue(
            words("The window in force is the model's own: taken from the file, not from the machine."),
            WINDOW_IN_FORCE_IS_TRAINED.is_(True),
            if_true=-SLIGHT,
        ),
        Clue(words("It works with a smaller window."), SMALLER_WINDOW_WORKS.is_(True), if_true=SLIGHT, if_false=-FAIR),
    ),
    tests=(
        Test(
            variable="ctx",
            start=WINDOW_IN_FORCE,
            to=Computed(
                words("the window that is wanted, else 4096"), lambda facts: facts.value(WINDOW_WANTED) or 4096
            ),
            keep=("kv_type_k", "kv_type_v", "gpu_layers", "parallel"),
            minutes=4,
            reason=words("A window that is set by hand no longer depends on card and version."),
            also=("kv-cache-size", "cpu-layer-offload"),
            expects=(
                Expect(
                    "default-ctx-tier-changed",
                    any_of(
                        before(LAYERS_ON_CPU) > LAYERS_ON_CPU,
                        before(KV_BYTES) * 0.7 > KV_BYTES,
                        before(GENERATION_SHORT) * 1.2 < GENERATION_SHORT,
                    ),
                    words("The cache shrinks, the layers are back on the card, and it is as fast as before."),
                ),
            ),
        ),
    ),
)
