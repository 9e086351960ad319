"""What a server does with a prompt that is longer than its window, told from counts: sent, processed, and which end survived.

The known rules: Ollama cuts to about half of its window; an option that did not reach the loader leaves a default window;
KoboldCpp, LM Studio's rolling window and text-generation-webui drop the front, keeping room for the answer; SGLang's auto-truncate drops the end;
LM Studio's other policy drops the middle.
"""

from __future__ import annotations

from typing import Literal

Rule = Literal["half-window", "default-window", "head-cut", "tail-cut", "middle-cut", "window-cut", "unknown-cut"]

DEFAULT_WINDOWS: dict[str, tuple[int, ...]] = {
    "ollama": (4096, 2048, 8192, 32_768, 262_144),
    "lm-studio": (4096, 8192),
    "koboldcpp": (8192, 4096),
    "text-generation-webui": (8192,),
    "llama-cpp-python": (2048, 512),
    "tabbyapi": (8192,),
}
"""Backend → the windows that it takes when nothing is set, the newest version's first."""

_ANYONES_DEFAULTS = (4096, 2048, 8192)
"""Windows that one or the other server behind a proxy takes when nothing is set; one of them to the token is no chance."""
_DROPS_FRONT = frozenset({"koboldcpp", "text-generation-webui", "ik_llama.cpp", "ollama"})
_DROPS_END = frozenset({"sglang"})
_NEVER_HALF = frozenset({"koboldcpp", "sglang", "text-generation-webui", "lm-studio"})


def close(a: float, b: float, share: float = 0.02, least: int = 16) -> bool:
    """Say whether two counts are the same but for template tokens and rounding."""
    return abs(a - b) <= max(least, share * max(abs(a), abs(b)))


def cut(sent: int, processed: int, least: int = 4) -> bool:
    """Say whether fewer tokens were processed than sent: more than the few by which a template or a beginning token may differ."""
    return sent - processed > max(least, int(0.002 * sent))


def overflow_rule(
    sent: int,
    processed: int,
    window: int | None,
    *,
    backend: str = "",
    output_tokens: int = 0,
    keep: int = 0,
    front_survived: bool | None = None,
    end_survived: bool | None = None,
) -> Rule | None:
    """Say by which rule a prompt was cut; None where it was not.

    ``sent`` and ``processed``: prompt tokens, the cached part included in both. ``window``: what the server says, or what was asked of it.
    ``output_tokens``: room that was asked for the answer. ``front_survived``, ``end_survived``: whether a marker at that end was still known,
    where that was tried; without them the server's known habit decides which end is named.
    """
    if not cut(sent, processed):
        return None
    if front_survived is True and end_survived is True:
        return "middle-cut"
    if window and not (backend in _NEVER_HALF and _fills(processed, window, output_tokens)):
        if backend not in _NEVER_HALF and _halved(sent, processed, window, keep, backend):
            return "half-window"
        defaults = [d for d in DEFAULT_WINDOWS.get(backend, ()) if d < 0.9 * window]
        if backend == "ollama" and any(abs(processed - default / 2 - 2) <= 1 for default in defaults):
            return "half-window"
        if any(_fills(processed, default, output_tokens) for default in defaults):
            return "default-window"
        if any(backend == "ollama" and close(processed, default / 2, 0.06) for default in defaults):
            return "half-window"
        if backend not in DEFAULT_WINDOWS and backend not in _DROPS_FRONT | _DROPS_END:
            for default in (d for d in _ANYONES_DEFAULTS if d < 0.9 * window):
                if close(processed, default, 0, 8):
                    return "default-window"
                if close(processed, default / 2, 0, 8):
                    return "half-window"
    if window is not None and processed > window and not close(processed, window):
        return "unknown-cut"
    if front_survived is False or (front_survived is None and backend in _DROPS_FRONT):
        return "head-cut"
    if end_survived is False or (end_survived is None and backend in _DROPS_END):
        return "tail-cut"
    return "window-cut" if window is not None else "unknown-cut"


def _halved(sent: int, processed: int, window: int, keep: int, backend: str) -> bool:
    """Say whether about half of the window was kept, or whole blocks of half a window were dropped (older llama-server, its forks)."""
    half = (window - keep) / 2
    if close(processed, window / 2, 0.06) or close(processed, keep + half, 0.06):
        return True
    if backend not in {"llama.cpp", "ik_llama.cpp", "beellama.cpp"} or half < 64 or processed > window:
        return False
    over = (sent - processed) % half
    return min(over, half - over) <= 2


def _fills(processed: int, window: int, output_tokens: int) -> bool:
    """Say whether a cut prompt fills a window, with or without room for its answer."""
    return close(processed, window) or (output_tokens > 0 and close(processed, window - output_tokens))
