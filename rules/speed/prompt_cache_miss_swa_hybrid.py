"""Sliding-window, hybrid or recurrent state cannot be resumed at the wanted position.

What it looks for
    A model with sliding-window or recurrent layers whose chats are read again in whole or by a fixed part of hundreds or thousands of tokens, while other
    models on the same server read only what is new; the log says that all must be processed again; the very same prompt is quick only the third time.

Why it happens
    A plain cache can be cut at any token. A recurrent state, or a window that has slid on, holds only the newest position: going back needs a checkpoint, and
    those are kept at coarse steps, in small number, or only once a prefix is known to repeat. Between two checkpoints all is read again.

What would prove it wrong
    A plain-attention model in the same chat reads as much again; or two consecutive prompts differ near their beginning.

References
    - llama.cpp: "forcing full prompt re-processing", `--ctx-checkpoints`, `--swa-full`; vLLM: prefix caching for Mamba layers in "align" mode; SGLang.
    - Look-alikes: prompt-cache-miss-prefix-changed (the client changed the text), prompt-cache-evicted (others came between).
"""

from __future__ import annotations

from probes.evidence.words import words
from rules.engine import DECISIVE, FAIR, SLIGHT, STRONG, Clue, Expect, Rule, Test, all_of, any_of
from rules.facts import (
    CACHED_ON_EXTENSION,
    CACHED_ON_REPEAT,
    CACHED_ON_RETURN,
    FULL_REPROCESS_REASON,
    PROMPT_CACHE_ON,
    RECURRENT,
    SLIDING_WINDOW,
    SPEED_COMPLAINT,
    SWA_FULL,
    TOLD_CHANGED,
    TOLD_MODEL_KIND,
    TOLD_OTHER_CLIENT,
    TOLD_OTHER_MODELS,
    TOLD_PREFIX_CHANGES,
    TOLD_REQUESTS_BETWEEN,
    TOLD_REREADS,
    TOLD_SAME_PROMPT_AGAIN,
    TOLD_SLOW_PART,
)

RULE = Rule(
    cause="prompt-cache-miss-swa-hybrid",
    prior={"slow-long-context": SLIGHT},
    clues=(
        Clue(
            words("The log names sliding-window or recurrent layers as the reason for reading all again."),
            FULL_REPROCESS_REASON.one_of("swa", "hybrid"),
            if_true=DECISIVE,
            if_false=-FAIR,
        ),
        Clue(
            words("The very same prompt is fast only the third time."),
            TOLD_SAME_PROMPT_AGAIN.is_("third"),
            if_true=STRONG,
        ),
        Clue(
            words("The model has sliding-window or recurrent layers."),
            all_of(
                any_of(
                    RECURRENT.is_(True),
                    SLIDING_WINDOW > 0,
                    TOLD_MODEL_KIND.has("hybrid"),
                    TOLD_MODEL_KIND.has("sliding"),
                ),
                SPEED_COMPLAINT.is_(True),
            ),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("All of a chat, or a fixed part of it, is read again at each message."),
            TOLD_REREADS.one_of("all", "some-thousand"),
            if_true=FAIR,
            if_false=-FAIR,
        ),
        Clue(
            words("Other models on the same server are fine."),
            TOLD_OTHER_MODELS.is_("fine"),
            if_true=FAIR,
            if_false=-SLIGHT,
        ),
        Clue(
            words("Reading is what is slow."),
            TOLD_SLOW_PART.one_of("reading", "both"),
            if_true=SLIGHT,
            if_false=-SLIGHT,
        ),
        Clue(
            words(
                "A repeated prompt comes from the cache; an extended one, or one that goes back in the chat, does not."
            ),
            all_of(CACHED_ON_REPEAT > 0.8, any_of(CACHED_ON_EXTENSION < 0.5, CACHED_ON_RETURN < 0.5)),
            if_true=STRONG,
        ),
        Clue(
            words("The client changes the prompt near its beginning."), TOLD_PREFIX_CHANGES.is_(True), if_true=-STRONG
        ),
        Clue(words("The server was changed before it began."), TOLD_CHANGED.has("server"), if_true=SLIGHT),
        Clue(words("The server's settings switch the prompt cache off."), PROMPT_CACHE_ON.is_(False), if_true=-FAIR),
        Clue(words("Other requests come between."), TOLD_REQUESTS_BETWEEN.is_(True), if_true=-FAIR),
        Clue(
            words("Another client is fast with the same server and model."), TOLD_OTHER_CLIENT.is_(True), if_true=-FAIR
        ),
    ),
    tests=(
        Test(
            variable="swa_full",
            start=False,
            to=True,
            when=all_of(SLIDING_WINDOW > 0, SWA_FULL.is_(False)),
            keep=("ctx", "kv_type_k", "kv_type_v", "parallel", "cache_prompt"),
            minutes=6,
            reason=words(
                "A whole-length cache for the sliding layers can be cut anywhere. It costs memory, and no quality."
            ),
            expects=(
                Expect(
                    "prompt-cache-miss-swa-hybrid",
                    CACHED_ON_EXTENSION > 0.8,
                    words("A longer prompt with the same beginning comes mostly from the cache."),
                ),
                Expect(
                    "prompt-cache-not-implemented",
                    CACHED_ON_EXTENSION < 0.5,
                    words("If nothing is ever kept, it is read in whole again."),
                ),
            ),
        ),
        Test(
            variable="cache-reuse",
            kind="probe",
            minutes=4,
            reason=words(
                "Send one prompt three times, then with text added, and note how much comes from the cache each time: slow, slow, fast marks this cause."
            ),
        ),
    ),
)
