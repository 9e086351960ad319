"""vLLM's and SGLang's settings as their newer versions spell them, and values that every server has in their words."""

import pytest

from probes.backends.commands import change_command, parse_command
from probes.evidence.errors import RefusedSettingError


def values(command):
    return {name: one.value for name, one in parse_command(command.split()).settings.items()}


def test_the_newer_spellings_are_read():
    """Speculation by flags of its own, the share of any device, and the pool in blocks."""
    told = values(
        "vllm serve m --spec-method ngram --spec-tokens 3 --spec-model d --device-memory-utilization 0.8 --num-gpu-blocks-override 64"
    )
    expected = {"speculation": "ngram", "draft_n_max": 3, "draft_model": "d", "memory_share": 0.8, "kv_blocks": 64}
    assert {name: told[name] for name in expected} == expected
    told = values("""vllm serve m -sc {"method":"ngram","num_speculative_tokens":4}""")
    assert (told["speculation"], told["draft_n_max"]) == ("ngram", 4)


@pytest.mark.parametrize(
    ("command", "written"),
    [("vllm serve m", "fp8"), ("python -m sglang.launch_server --model-path m", "fp8_e5m2")],
)
def test_a_cache_of_eight_bits_is_asked_for_in_their_words(command, written):
    """They know no q8_0; less than eight bits is refused rather than written."""
    argv = command.split()
    assert change_command(argv, None, "kv_type_k", "q8_0") == [*argv, "--kv-cache-dtype", written]
    assert change_command([*argv, "--kv-cache-dtype", written], None, "kv_type_k", "f16")[-1] == "auto"
    assert change_command(argv, None, "kv_type_k", "fp8_e4m3")[-1] == "fp8_e4m3"
    with pytest.raises(RefusedSettingError, match=written):
        change_command(argv, None, "kv_type_k", "q4_0")
