"""Laws of each memory mechanism, on models made here; numbers are worked out by hand from llama.cpp's rules (build 11434)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.model_file.architectures import RULES
from probes.model_file.context import CACHE_TYPES, ContextSettings, Refused, as_engine, memory_of
from probes.model_file.planner import Model
from probes.model_file.shape import UnknownShapeError, read_shape

MIB = 1024**2


def memory(path, **how):
    asked = ContextSettings(**how)
    planned = Model.read(path).plan(asked)
    assert not isinstance(planned, Refused), planned
    return memory_of(planned, asked)


def refusal(path, **how):
    planned = Model.read(path).plan(ContextSettings(**how))
    assert isinstance(planned, Refused)
    return str(planned)


def caches(found):
    return {cache.name: cache for cache in found.caches}


def test_published_vector_of_a_plain_model(model):
    """SmolLM2-135M with -c 3000 -np 3 -ctk q8_0 -ctv q4_0: 3072 tokens, 1024 a slot, K 17.93 MiB, V 9.49 MiB."""
    path = model(
        "llama",
        embedding_length=576,
        block_count=30,
        attention__head_count=9,
        attention__head_count_kv=3,
        context_length=8192,
    )
    found = memory(path, ctx=3000, parallel=3, kv_k="q8_0", kv_v="q4_0")
    assert (found.ctx, found.ctx_per_slot) == (3072, 1024)
    [cache] = found.caches
    assert (cache.cells, cache.streams) == (1024, 3)
    assert round(cache.k_bytes / MIB, 2) == 17.93
    assert round(cache.v_bytes / MIB, 2) == 9.49


def test_window_layers_pad_and_count_slots_and_micro_batch(model):
    """Gemma 3 tiny (window 32, layers 1 sliding, 1 full, 2 x 128), 5000 tokens, 2 slots split, q8_0: 2.66 and 0.80 MiB."""
    path = model(
        "gemma3", embedding_length=256, attention__head_count=2, attention__key_length=128, attention__value_length=128,
        attention__sliding_window=32, attention__sliding_window_pattern=[1, 0],
    )  # fmt: skip
    found = memory(path, ctx=5000, parallel=2, kv_k="q8_0", kv_v="q8_0")
    by = caches(found)
    assert (by["base"].cells, by["swa"].cells) == (2560, 768)
    assert round(2 * by["base"].k_bytes / MIB, 2) == 2.66
    assert round(2 * by["swa"].k_bytes / MIB, 2) == 0.80
    assert caches(memory(path, ctx=5000, swa_full=True))["swa"].cells == 5120
    assert caches(memory(path, ctx=50_000, parallel=4, kv_unified=True, ubatch=128))["swa"].cells == 256
    assert caches(memory(path, ctx=50_000, parallel=8, kv_unified=True, ubatch=512))["swa"].cells == 768


def test_compressed_keys_have_no_values(model):
    """DeepSeek 2 tiny: 576 wide, 2 layers, 2 slots of 2560 in q8_0: K 5.98 MiB, V 0. Files without the MLA keys hold everything."""
    keys = {"attention__head_count_kv": 1, "attention__key_length": 576, "attention__value_length": 512}
    path = model("deepseek2", **keys, attention__key_length_mla=192, attention__value_length_mla=128)
    found = memory(path, ctx=5000, parallel=2, kv_k="q8_0", kv_v="q8_0")
    assert round(found.caches[0].k_bytes / MIB, 2) == 5.98
    assert found.caches[0].v_bytes == 0
    assert "different K (q8_0) and V (f16)" in refusal(path, kv_k="q8_0")
    old = model("deepseek2", name="old.gguf", **keys, attention__key_length_mla=0, attention__value_length_mla=0)
    assert memory(old, ctx=256).caches[0].v_bytes == 2 * 512 * 256 * 2


def test_sparse_indexer_beside_compressed_keys(model):
    """DeepSeek 3.2 tiny, 5000 unified f16: main 11.25 MiB, indexer 2.50 MiB."""
    path = model(
        "deepseek32", attention__head_count_kv=1, attention__key_length=576, attention__value_length=512, attention__key_length_mla=192,
        attention__value_length_mla=128, attention__indexer__head_count=4, attention__indexer__key_length=128, attention__indexer__top_k=64,
    )  # fmt: skip
    by = caches(memory(path, ctx=5000, kv_unified=True))
    assert by["main"].k_bytes == 11.25 * MIB
    assert by["indexer"].k_bytes == 2.5 * MIB
    assert by["indexer"].v_bytes == 0


def test_indexer_of_minimax_m3_starts_after_the_dense_layers(model):
    path = model(
        "minimax-m3", block_count=4, attention__head_count_kv=2, leading_dense_block_count=1, attention__indexer__head_count=1,
        attention__indexer__key_length=32, attention__indexer__top_k=16,
    )  # fmt: skip
    by = caches(memory(path, ctx=256))
    assert by["main"].layers == (0, 1, 2, 3)
    assert by["indexer"].layers == (1, 2, 3)
    assert by["indexer"].k_bytes == 3 * 32 * 256 * 2
    assert by["indexer"].v_bytes == 3 * 16 * 256 * 2


def test_deepseek4_compresses_by_ratio_and_never_shares_streams(model):
    keys = {
        "attention__head_count_kv": 1, "attention__key_length": 64, "attention__sliding_window": 128, "attention__indexer__head_count": 2,
        "attention__indexer__key_length": 32, "attention__indexer__top_k": 8,
    }  # fmt: skip
    path = model("deepseek4", block_count=3, attention__compress_ratios=[0, 4, 128], **keys)
    found = memory(path, ctx=65536, parallel=2, kv_unified=True)
    by = caches(found)
    assert {name: (c.cells, c.streams, c.layers) for name, c in by.items()} == {
        "base": (65536, 2, ()),
        "swa": (768, 2, (0, 1, 2)),
        "csa": (16384, 2, (1,)),
        "hca": (512, 2, (2,)),
        "indexer": (16384, 2, (1,)),
    }
    assert by["swa"].k_bytes == 3 * 64 * 768 * 2 * 2
    assert by["indexer"].k_bytes == 32 * 16384 * 2 * 2
    assert found.state_bytes == 2 * (2 * 4 * 8 * (2 * 64 + 2 * 32) + 2 * 4 * 128 * 64)
    assert memory(path, ctx=4096, rollback=3).state_bytes == 4 * memory(path, ctx=4096).state_bytes
    assert "different K" in refusal(path, kv_k="q8_0", kv_v="f16")
    short = model("deepseek4", name="short.gguf", block_count=3, attention__compress_ratios=[0, 4], **keys)
    assert "compression ratios" in str(Model.read(short).unknown)


def test_state_models_keep_the_same_at_any_window(model):
    """Mamba 2 tiny (inner 512, state 128, 2 groups, convolution 4), 2 slots: R 0.05, S 1.00 MiB, in f32 whatever the cache type."""
    ssm = {"ssm__conv_kernel": 4, "ssm__inner_size": 512, "ssm__state_size": 128, "ssm__group_count": 2}
    path = model("mamba2", attention__head_count=None, **ssm)
    for window, kind in ((256, "f16"), (1 << 20, "q4_0")):
        found = memory(path, ctx=window, parallel=2, kv_k=kind, kv_v=kind)
        assert found.caches == ()
        assert found.state_bytes == 2 * 2 * 4 * (3 * (512 + 2 * 2 * 128) + 128 * 512)
    one_group = model("mamba", name="one.gguf", attention__head_count=None, **ssm)
    assert memory(one_group).state_bytes == 2 * 4 * (3 * 512 + 128 * 512)


def test_rwkv_and_short_convolutions(model):
    assert memory(model("rwkv7", attention__head_count=None, wkv__head_size=64)).state_bytes == 2 * 4 * (
        2 * 64 + 64 * 64
    )
    path = model("lfm2", name="lfm.gguf", block_count=3, attention__head_count_kv=[0, 2, 0], shortconv__l_cache=3)
    found = memory(path, ctx=256)
    assert found.caches[0].layers == (1,)
    assert found.state_bytes == 2 * 4 * 64 * 2
    sliding = model(
        "lfm2",
        name="s.gguf",
        block_count=3,
        attention__head_count_kv=[0, 2, 0],
        shortconv__l_cache=3,
        attention__sliding_window=64,
    )
    by = caches(memory(sliding, ctx=4096))
    assert (by["base"].layers, by["swa"].layers, by["swa"].cells) == ((), (1,), 768)


def test_hybrid_layers_by_interval_list_and_heads(model):
    """Qwen 3.5 tiny: one attention layer of 2 x 128, one delta net: KV 2.66 MiB in q8_0 over 2 slots of 2560; R 0.02, S 0.25 MiB."""
    keys = {
        "embedding_length": 256, "attention__head_count": 2, "attention__key_length": 128, "attention__value_length": 128, "ssm__conv_kernel": 4,
        "ssm__inner_size": 256, "ssm__state_size": 128, "ssm__group_count": 2,
    }  # fmt: skip
    path = model("qwen35", full_attention_interval=2, **keys)
    found = memory(path, ctx=5000, parallel=2, kv_k="q8_0", kv_v="q8_0")
    assert found.caches[0].layers == (1,)
    assert round(found.kv_bytes / MIB, 2) == 2.66
    assert found.state_bytes == 2 * 4 * (3 * (256 + 512) + 128 * 256)
    assert memory(path, rollback=3).state_bytes == 4 * memory(path).state_bytes
    listed = model("qwen35", name="l.gguf", attention__recurrent_layers=[True, True], **keys)
    assert memory(listed).caches[0].layers == ()
    # llama.cpp's own saver writes absent keys as 0: then no layer keeps a state
    saved = model("qwen35", name="z.gguf", attention__recurrent_layers=0, **keys)
    assert memory(saved).state_bytes == 0
    both = model("falcon-h1", name="f.gguf", **keys)
    assert memory(both).caches[0].layers == (0, 1)
    assert memory(both).state_bytes > 0


def test_kimi_delta_attention_and_minimax_linear(model):
    kimi = model(
        "kimi-linear", attention__head_count=1, attention__head_count_kv=[1, 0], attention__key_length=576, attention__key_length_mla=192,
        attention__value_length_mla=128, ssm__conv_kernel=4, kda__head_dim=128, attention__kv_lora_rank=512,
    )  # fmt: skip
    found = memory(kimi, ctx=5000, parallel=2, kv_unified=True)
    assert round(found.kv_bytes / MIB, 2) == 5.62
    assert found.state_bytes == 2 * 4 * (3 * 3 * 128 + 128 * 128)
    linear = model("minimax-01", name="m.gguf", full_attention_interval=2)
    assert memory(linear).state_bytes == 4 * 16 * 16 * 4


def test_shared_and_repeated_layers(model):
    """Gemma 4 shares the last layers' keys, Nanbeige runs its layers several times, Granite Switch has a router layer of one head."""
    shared = model(
        "gemma4", block_count=4, attention__sliding_window=32, attention__sliding_window_pattern=[1, 0, 1, 0], attention__shared_kv_layers=2,
        attention__key_length_swa=8, attention__value_length_swa=8,
    )  # fmt: skip
    by = caches(memory(shared, ctx=4096))
    assert (by["base"].layers, by["swa"].layers) == ((1,), (0,))
    assert by["swa"].k_bytes == 4 * 8 * 768 * 2
    loops = model("nanbeige", name="n.gguf", num_loops=3)
    assert memory(loops, ctx=256).caches[0].layers == (0, 1, 2, 3, 4, 5)
    router = model("graniteswitch", name="r.gguf")
    [cache] = memory(router, ctx=256).caches
    assert cache.layers == (0, 1, 2)
    assert cache.k_bytes == (4 + 4 + 1) * 16 * 256 * 2


def test_prediction_layers_are_a_context_of_their_own(model):
    path = model("glm4moe", block_count=3, nextn_predict_layers=1)
    assert memory(path, ctx=256).caches[0].layers == (0, 1)
    assert memory(path, ctx=256, kind="mtp").caches[0].layers == (2,)
    assert "doesn't contain MTP layers" in refusal(model("llama", name="l.gguf"), kind="mtp")
    assert "cannot run them" in refusal(
        model("bailingmoe2", name="b.gguf", block_count=3, nextn_predict_layers=1), kind="mtp"
    )


def test_without_flash_attention_values_are_as_wide_as_the_widest(model):
    path = model("deci", attention__head_count_kv=[4, 1])
    on, off = memory(path, ctx=256), memory(path, ctx=256, flash_attn="off")
    assert on.caches[0].v_bytes == 5 * 16 * 256 * 2
    assert off.caches[0].v_bytes == 8 * 16 * 256 * 2


def test_refusals_follow_the_model(model):
    path = model("llama", embedding_length=160)  # heads of 40
    assert "K cache type q8_0 with block size 32 does not divide n_embd_head_k=40" in refusal(path, kv_k="q8_0")
    assert "quantized V cache requires flash_attn" in refusal(path, kv_v="q8_0", flash_attn="off")
    assert "unsupported cache type" in refusal(path, kv_k="q3_K")
    assert "n_seq_max" in refusal(path, parallel=300)
    assert "quantized V" in refusal(model("grok", name="g.gguf"), kv_v="q8_0")
    assert "cannot both be zero" in refusal(model("llama", name="0.gguf", context_length=0), ctx=0)


def test_forks_cache_types_have_their_own_sizes(model):
    path = model("llama", embedding_length=512, attention__head_count_kv=4)  # heads of 128, rows of 512
    per_row = {
        "q6_0": 512 // 32 * 26,
        "q8_KV": 512 + 4 * 8,  # of each head
        "turbo4": 512 // 128 * 66,
        "turbo3": 512 // 128 * 50,
        "kvarn5": 512 // 64 * 43,
        "kvarn2": 512 // 64 * 19,
        "kvarn8": 512 // 64 * 67,
    }
    for kind, row in per_row.items():
        assert memory(path, ctx=256, kv_k=kind, kv_v=kind).caches[0].k_bytes == 2 * row * 256, kind
    # as its documentation measured it
    measured = CACHE_TYPES["kvarn4"]
    assert 49_152 * 16_384 // measured.block * measured.size == 420 * 2**20


def test_forks_allocate_more_than_the_window(model):
    """KoboldCpp 1.116.1 made 2,304 cells for a window of 2,048, 4,352 and 1,152 for 4,096 and a sliding one of 512; ik_llama.cpp makes whole windows."""
    plain, sliding = model("llama"), model("gemma3", name="g.gguf", attention__sliding_window=512)

    def cells(path, engine, **more):
        asked = as_engine(ContextSettings(**more), engine, None)
        return [cache.cells for cache in memory_of(Model.read(path).plan(asked), asked).caches]

    assert cells(plain, "koboldcpp", ctx=2048) == [2304]
    assert cells(plain, "llama.cpp", ctx=2048) == [2048]
    assert cells(sliding, "koboldcpp", ctx=4096) == [4352, 1152]
    assert cells(sliding, "koboldcpp", ctx=4096, swa_full=True) == [4352, 4352]
    assert cells(sliding, "ik_llama.cpp", ctx=4096) == [4096, 4096]
    assert cells(sliding, "llama.cpp", ctx=4096) == [4096, 1024]


@pytest.mark.parametrize(
    ("architecture", "keys", "missing"),
    [
        ("llama", {"block_count": None}, "llama.block_count"),
        ("llama", {"context_length": None, "embedding_length": None}, "llama.embedding_length"),
        ("llama", {"attention__head_count": None}, "llama.attention.head_count"),
        ("llama", {"attention__head_count": 0}, "llama.attention.head_count"),
        ("gpt-oss", {}, "gpt-oss.attention.sliding_window"),
        ("gemma4", {"attention__sliding_window": 5}, "gemma4.attention.sliding_window_pattern"),
        ("mamba2", {"ssm__conv_kernel": 4, "ssm__inner_size": 8, "ssm__state_size": 8}, "mamba2.ssm.group_count"),
        ("llama", {"attention__head_count_kv": [1, 2, 3]}, "llama.attention.head_count_kv"),
        ("llama", {"block_count": 100_000}, "llama.block_count"),
        ("llama", {"nextn_predict_layers": 9}, "llama.nextn_predict_layers"),
        ("llama", {"attention__key_length": ("i32", -4)}, "llama.attention.key_length"),
    ],
)
def test_a_key_that_decides_is_named_when_it_is_missing_or_impossible(model, architecture, keys, missing):
    """Law: nothing is guessed; the message names the key."""
    unknown = Model.read(model(architecture, **keys)).unknown
    assert unknown is not None
    assert missing in unknown.missing


def test_unknown_architectures_and_projectors_say_so(model):
    assert "unknown architecture 'nope'" in str(Model.read(model("nope")).unknown)
    assert "--mmproj" in str(Model.read(model("clip", name="c.gguf")).unknown)


def test_the_trap_of_zero_values(model):
    """Law: keys that llama.cpp's saver writes with 0 mean nothing: no window, no compression."""
    path = model(
        "gemma3",
        attention__sliding_window=0,
        attention__sliding_window_pattern=0,
        attention__key_length_mla=0,
        attention__value_length_mla=0,
    )
    assert [c.name for c in memory(path).caches] == ["base"]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    architecture=st.sampled_from(sorted(RULES)),
    low=st.integers(1, 40),
    step=st.integers(0, 40),
    slots=st.integers(1, 4),
    unified=st.booleans(),
    kind=st.sampled_from(sorted(CACHE_TYPES)),
)
def test_more_tokens_never_take_less(model, architecture, low, step, slots, unified, kind):
    """Law: memory does not shrink as the window grows, for every architecture and cache type, and nothing crashes."""
    path = model(
        architecture, embedding_length=512, attention__head_count_kv=[4, 0], attention__sliding_window=64, attention__sliding_window_pattern=[1, 0],
        attention__key_length_swa=128, attention__value_length_swa=128, attention__key_length_mla=128, attention__value_length_mla=128,
        attention__kv_lora_rank=128, attention__indexer__head_count=1, attention__indexer__key_length=128, attention__indexer__top_k=4,
        attention__indexer__kpool=2, attention__indexer__types=[1, 0], attention__compress_ratios=[4, 128], ssm__conv_kernel=4, ssm__inner_size=64,
        ssm__state_size=16, ssm__group_count=1, kda__head_dim=16, wkv__head_size=16, shortconv__l_cache=3, hyper_connection__count=2,
    )  # fmt: skip
    found = Model.read(path)
    assert found.unknown is None, found.unknown
    sizes = []
    for tokens in (low * 100, (low + step) * 100):
        asked = ContextSettings(ctx=tokens, kv_k=kind, kv_v=kind, parallel=slots, kv_unified=unified)
        planned = found.plan(asked)
        if isinstance(planned, Refused):
            return
        one = memory_of(planned, asked)
        assert one.ctx_per_slot % 256 == 0
        sizes.append(one.kv_bytes + one.state_bytes)
    assert sizes[0] <= sizes[1]


def test_reading_a_shape_raises_only_its_own_error(model):
    with pytest.raises(UnknownShapeError):
        read_shape(Model.read(model("llama", block_count=0)).header)
