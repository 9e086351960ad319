"""What each architecture of llama.cpp keeps in memory, as facts: which mechanism, which window, which layers keep a state.

Facts only, read from llama.cpp's sources (build 11434: ``src/llama-model.cpp`` ``create_memory``, ``src/llama-arch.cpp``,
``load_arch_hparams`` of each model). The arithmetic is in :mod:`probes.model_file.shape` and :mod:`probes.model_file.context`; an architecture
that is not listed here is unknown, and is said to be.
"""

from __future__ import annotations

from typing import NamedTuple


class Window(NamedTuple):
    """How an architecture uses a sliding window.

    ``when``: ``always``, ``if-key`` (only if the file gives a size above 0), ``unless-zero`` (off only if the file says 0), ``64-layers``
    (only in the model of that depth). ``size`` stands in where the file gives none; ``fixed`` overrides the file. ``period``: one layer of so
    many is full, the last of each group, or the first with ``full_first``; 0: none is. Without a period the file must list the layers.
    """

    when: str = "always"
    size: int | None = None
    fixed: int | None = None
    period: int | None = None
    full_first: bool = False
    attention_layers: bool = False


class Rule(NamedTuple):
    """One architecture's mechanisms.

    ``memory``: ``attention``, ``none``, ``recurrent``, ``hybrid``, ``hybrid-indexed``, ``dsa``, ``dsa-window``, ``msa``, ``dsv4``.
    ``recurrent``: which layers keep a state: ``no-kv-heads``, ``no-kv-heads-no-ffn``, ``interval`` (all but every n-th), ``every``.
    ``mla``: whether compressed keys are read from the file. ``groups``: whether ``ssm.group_count`` is. ``rollback``: whether states can be
    kept several deep for speculation. ``draft``: whether its own prediction layers can run as a draft.
    """

    memory: str = "attention"
    window: Window | None = None
    recurrent: str = ""
    interval: int = 4
    mla: bool = False
    groups: bool = False
    rollback: bool = False
    draft: bool = False
    causal: bool = True
    needs: tuple[str, ...] = ()
    """Keys without which the engine does not load the file."""


_PLAIN = """
llama deci falcon gpt2 gptj gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe qwen2vl qwen3 qwen3moe qwen3vl qwen3vlmoe
phi2 phi3 phimoe plamo codeshell orion internlm2 minicpm minicpm3 gemma starcoder2 xverse command-r dbrx olmo olmoe openelm arctic deepseek
deepseek2-ocr chatglm glm4 bitnet t5 t5encoder jais jais2 nemotron exaone granite granitemoe graniteswitch chameleon plm bailingmoe
bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe hunyuan-moe hunyuan-dense hunyuan_vl smollm3 seed_oss grovemoe apertus hrm_text
minimax-m2 cogvlm pangu-embedded mistral3 eagle3 paddleocr llama-embed maincoder talkie nanbeige qwen3tts pockettts grok
""".split()  # noqa: SIM905 - a list of words reads better as words

_ENCODERS = (
    "bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert wavtokenizer-dec clef".split()  # noqa: SIM905
)
_DIFFUSION = "gemma-embedding dream llada llada-moe rnd1".split()  # noqa: SIM905
"""These attend to the whole input at once, whatever the file says."""

_SSM = ("ssm.conv_kernel", "ssm.inner_size", "ssm.state_size")
_INDEXER = ("attention.indexer.head_count", "attention.indexer.key_length", "attention.indexer.top_k")
_LISTED = Window()

RULES: dict[str, Rule] = {
    **{name: Rule() for name in _PLAIN},
    # Encoders and diffusion models keep nothing between two calls.
    **{name: Rule(memory="none") for name in _ENCODERS},
    **{name: Rule(memory="none", causal=False) for name in _DIFFUSION},
    # Sliding windows over plain attention.
    "gemma2": Rule(window=Window(size=4096, period=2)),
    "gemma3": Rule(window=Window("if-key", period=6)),
    "gemma3n": Rule(window=Window(period=5)),
    "gemma4": Rule(window=_LISTED, needs=("attention.key_length_swa", "attention.value_length_swa")),
    "gemma4-assistant": Rule(window=_LISTED, needs=("attention.key_length_swa", "attention.value_length_swa")),
    "gpt-oss": Rule(window=Window(period=2)),
    "cohere2": Rule(window=Window(period=4)),
    "cohere2moe": Rule(window=Window(period=4, full_first=True), draft=True),
    "llama4": Rule(window=Window("unless-zero", fixed=8192, period=4)),
    "exaone4": Rule(window=Window("64-layers", size=4096, period=4)),
    "exaone-moe": Rule(window=Window(period=4)),
    "olmo2": Rule(window=Window("if-key", period=4)),
    "afmoe": Rule(window=Window("if-key", period=4)),
    "mellum": Rule(window=Window("if-key", period=4)),
    "plamo3": Rule(window=Window("if-key", period=8)),
    "smallthinker": Rule(window=Window("if-key", fixed=4096, period=4, full_first=True)),
    "laguna": Rule(window=Window("if-key", period=4, full_first=True)),
    "muse-glimmer": Rule(window=Window(period=4)),
    "granite_swa": Rule(window=_LISTED),
    "maple": Rule(window=_LISTED),
    "mimo2": Rule(window=_LISTED, draft=True),
    "step35": Rule(window=_LISTED, draft=True),
    "spark2_5": Rule(window=_LISTED),
    "dflash": Rule(window=Window("if-key")),
    # Compressed keys (MLA), alone and with indexers.
    "deepseek2": Rule(mla=True, draft=True),
    "mistral4": Rule(mla=True, draft=True),
    "glm4moe": Rule(draft=True),
    "hy_v3": Rule(draft=True),
    "deepseek32": Rule("dsa", mla=True, draft=True, needs=_INDEXER),
    "glm-dsa": Rule("dsa", mla=True, draft=True, needs=_INDEXER),
    "hy_v4": Rule("dsa", mla=True, needs=("attention.key_length_mla", "attention.value_length_mla")),
    "dots3note": Rule(
        "dsa-window",
        window=_LISTED,
        mla=True,
        needs=("attention.key_length_mla", "attention.value_length_mla", "attention.indexer.types", *_INDEXER),
    ),
    "minimax-m3": Rule("msa", needs=_INDEXER),
    "deepseek4": Rule(
        "dsv4", window=Window(period=0), rollback=True, draft=True, needs=("attention.compress_ratios", *_INDEXER)
    ),
    # States instead of, or beside, a cache.
    "mamba": Rule("recurrent", needs=_SSM),
    "mamba2": Rule("recurrent", groups=True, needs=(*_SSM, "ssm.group_count")),
    "rwkv6": Rule("recurrent", needs=("wkv.head_size",)),
    "rwkv6qwen2": Rule("recurrent", needs=("wkv.head_size",)),
    "rwkv7": Rule("recurrent", needs=("wkv.head_size",)),
    "arwkv7": Rule("recurrent", needs=("wkv.head_size",)),
    "jamba": Rule("hybrid", recurrent="no-kv-heads", needs=_SSM),
    "falcon-h1": Rule("hybrid", recurrent="every", groups=True, needs=(*_SSM, "ssm.group_count")),
    "plamo2": Rule("hybrid", recurrent="no-kv-heads", groups=True, needs=(*_SSM, "ssm.group_count")),
    "granitehybrid": Rule("hybrid", recurrent="no-kv-heads", groups=True, needs=(*_SSM, "ssm.group_count")),
    "lfm2": Rule(
        "hybrid",
        recurrent="no-kv-heads",
        rollback=True,
        window=Window("if-key", attention_layers=True),
        needs=("shortconv.l_cache",),
    ),
    "lfm2moe": Rule("hybrid", recurrent="no-kv-heads", rollback=True, needs=("shortconv.l_cache",)),
    "nemotron_h": Rule(
        "hybrid", recurrent="no-kv-heads-no-ffn", groups=True, rollback=True, needs=(*_SSM, "ssm.group_count")
    ),
    "nemotron_h_moe": Rule(
        "hybrid",
        recurrent="no-kv-heads-no-ffn",
        groups=True,
        rollback=True,
        draft=True,
        needs=(*_SSM, "ssm.group_count"),
    ),
    "qwen3next": Rule("hybrid", recurrent="interval", groups=True, draft=True, needs=(*_SSM, "ssm.group_count")),
    "qwen35": Rule(
        "hybrid", recurrent="interval", groups=True, rollback=True, draft=True, needs=(*_SSM, "ssm.group_count")
    ),
    "qwen35moe": Rule(
        "hybrid", recurrent="interval", groups=True, rollback=True, draft=True, needs=(*_SSM, "ssm.group_count")
    ),
    "minimax-01": Rule("hybrid", recurrent="interval", interval=8),
    "kimi-linear": Rule(
        "hybrid",
        recurrent="no-kv-heads",
        mla=True,
        needs=("ssm.conv_kernel", "kda.head_dim", "attention.key_length_mla", "attention.value_length_mla"),
    ),
    "kimi-k3": Rule(
        "hybrid",
        recurrent="no-kv-heads",
        mla=True,
        rollback=True,
        needs=(
            "ssm.conv_kernel",
            "kda.head_dim",
            "attention.key_length_mla",
            "attention.value_length_mla",
            "attention.kv_lora_rank",
        ),
    ),
    "bailingmoe3": Rule(
        "hybrid",
        recurrent="no-kv-heads",
        mla=True,
        rollback=True,
        draft=True,
        needs=("ssm.conv_kernel", "kda.head_dim", "attention.key_length_mla", "attention.value_length_mla"),
    ),
    "glm5-next": Rule(
        "hybrid-indexed",
        recurrent="no-kv-heads",
        mla=True,
        rollback=True,
        draft=True,
        needs=(
            "ssm.conv_kernel",
            "kda.head_dim",
            "attention.key_length_mla",
            "attention.value_length_mla",
            "attention.kv_lora_rank",
            "attention.indexer.kpool",
            *_INDEXER,
        ),
    ),
    "qwen4exp": Rule(
        "hybrid-indexed",
        recurrent="interval",
        groups=True,
        rollback=True,
        draft=True,
        needs=(*_SSM, "ssm.group_count", "hyper_connection.count", *_INDEXER),
    ),
}
"""Architecture (``general.architecture``) → its rule. Names as llama.cpp build 11434 knows them."""

PROJECTORS = frozenset({"clip"})
"""Files that go beside a model: they are given with --mmproj."""

NEEDS_TARGET = frozenset({"gemma4-assistant", "eagle3", "dflash"})
"""Draft models that work only together with the model that they draft for."""
