"""By which rule a prompt was cut, from counts and from which end survived."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes.backends.overflow import overflow_rule


@pytest.mark.parametrize(
    ("sent", "processed", "window", "more", "rule"),
    [
        (8000, 8000, 8192, {}, None),
        (8000, 7997, 8192, {}, None),  # a template counts a few tokens otherwise
        (9000, 4098, 8192, {"backend": "ollama"}, "half-window"),
        (9000, 4200, 8192, {"keep": 200}, "half-window"),
        (40_000, 4096, 32_768, {"backend": "ollama"}, "default-window"),
        (
            100_000,
            16_400,
            131_072,
            {"backend": "ollama"},
            "half-window",
        ),  # half of a default: the option was ignored, too
        (40_000, 4090, 32_768, {"backend": "lm-studio"}, "default-window"),
        (10_000, 7680, 8192, {"backend": "koboldcpp", "output_tokens": 512}, "head-cut"),
        (10_000, 4096, 8192, {"backend": "koboldcpp", "output_tokens": 4096}, "head-cut"),
        (70_000, 59_994, 59_994, {"backend": "sglang"}, "tail-cut"),
        (10_000, 8000, 8192, {"front_survived": False}, "head-cut"),
        (10_000, 8000, 8192, {"front_survived": True, "end_survived": False}, "tail-cut"),
        (10_000, 8000, 8192, {"front_survived": True, "end_survived": True}, "middle-cut"),
        (10_000, 8000, 8192, {}, "window-cut"),
        (10_000, 5000, None, {}, "unknown-cut"),
        (9000, 9000 - 2048, 4096 * 2, {"backend": "openai-compatible"}, "window-cut"),
        (6000, 6000 - 2048, 4096, {"backend": "ik_llama.cpp"}, "half-window"),  # whole blocks of half a window
        (
            20_000,
            10_000,
            8192,
            {"backend": "openai-compatible"},
            "unknown-cut",
        ),  # more than the window: it is another one
    ],
)
def test_rules(sent, processed, window, more, rule):
    """The known rules of the known servers."""
    assert overflow_rule(sent, processed, window, **more) == rule


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**7),
    st.integers(0, 10**7),
    st.none() | st.integers(0, 10**7),
    st.integers(0, 10**5),
    st.sampled_from(["", "ollama", "sglang", "koboldcpp", "llama.cpp"]),
)
def test_nothing_is_called_cut_that_was_not(sent, processed, window, output, backend):
    """A rule is named exactly when clearly fewer tokens were processed than sent."""
    rule = overflow_rule(sent, processed, window, output_tokens=output, backend=backend)
    assert (rule is None) == (sent - processed <= max(4, int(0.002 * sent)))
