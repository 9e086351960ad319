"""Laws of the budget: each device for itself, layers as llama.cpp places them, and levers that only help."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from probes.evidence.errors import InputError, RefusedSettingError
from probes.evidence.machine import Device, MemoryBudget
from probes.evidence.subject import Configuration, Setting
from probes.model_file import budget, memory
from probes.model_file.context import ContextSettings, Refused
from probes.model_file.placement import HOST, fill_in_order, place_layers
from probes.model_file.planner import LEVERS, GivenDevice, Model, Options, Planner
from probes.model_file.shape import UnknownShapeError

GIB = 1024**3
HOST_DEVICE = GivenDevice("host", "host memory", None)


def gpus(*sizes, margin=GIB):
    return tuple(
        GivenDevice(f"gpu{index}", f"GPU {index}", int(size * GIB), margin) for index, size in enumerate(sizes)
    )


@pytest.fixture(scope="module")
def llama(truth_models):
    return Model.read(truth_models["real-llama-3.1-8b.gguf"])


@pytest.fixture(scope="module")
def gemma(truth_models):
    return Model.read(truth_models["real-gemma-3-27b.gguf"])


def planner(model, *sizes, options=None, draft=None, margin=GIB, **how):
    return Planner(model, ContextSettings(**how), gpus(*sizes, margin=margin), HOST_DEVICE, options or Options(), draft)


def test_layers_go_to_devices_in_order_of_the_cumulated_split():
    assert place_layers(3, None, ()) == [HOST] * 4
    assert place_layers(3, None, (1.0,)) == [0, 0, 0, 0]
    assert place_layers(3, 2, (1.0,)) == [HOST, HOST, 0, 0]
    assert place_layers(7, None, (3.0, 1.0)) == [0, 0, 0, 0, 0, 0, 1, 1]
    assert place_layers(3, 0, (1.0, 1.0)) == [HOST] * 4
    assert place_layers(3, 99, (0.0, 1.0)) == [1, 1, 1, 1]
    with pytest.raises(InputError):
        place_layers(3, None, (0.0, 0.0))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any))
def test_a_split_of_layer_counts_gives_exactly_these_layers(counts):
    """Law: what is recommended as --tensor-split places as many layers on each device as it names."""
    place = place_layers(sum(counts) - 1, None, tuple(map(float, counts)))
    assert [place.count(device) for device in range(len(counts))] == counts


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 30), max_size=20), st.lists(st.integers(0, 100), min_size=1, max_size=4))
def test_filling_in_order_respects_every_device(costs, rooms):
    counts = fill_in_order(costs, rooms)
    if counts is None:
        return
    assert sum(counts) == len(costs)
    start = 0
    for count, room in zip(counts, rooms, strict=True):
        assert sum(costs[start : start + count]) <= room
        start += count


def test_the_sum_of_devices_is_the_whole(llama):
    """Law: weights, caches and states of all devices and the host add up to the model's, however it is split."""
    for options in (Options(), Options(gpu_layers=10), Options(tensor_split=(1.0, 9.0)), Options(kv_offload=False)):
        found = planner(llama, 16, 8, options=options, ctx=8192).at(8192)
        assert sum(need.weights for need in found.all()) == llama.weights_bytes
        assert sum(need.kv for need in found.all()) == found.memory.kv_bytes
    assert planner(llama, 16, options=Options(kv_offload=False)).at(8192).devices[0].kv == 0


def test_unequal_cards_are_not_one(llama):
    """16 GB and 8 GB are not 24 GB: the small one fills first at a length that together they would hold."""
    split = planner(llama, 16, 8, ctx=131072, ubatch=512)
    at = split.at(131072)
    assert [need.device.id for need in at.all() if need.fits is False] == ["gpu1"]
    assert sum(need.need for need in at.devices) + 2 * GIB < 24 * GIB
    longest = split.longest()
    assert longest.limited_by == "gpu1"
    assert longest.tokens % 256 == 0


@pytest.mark.parametrize("sizes", [(12,), (6, 6), (5, 16), (24,), (7,)])
def test_the_longest_window_is_the_longest(llama, sizes):
    """Law: it fits with margin, one step more does not, and the device that is named is the one that lacks."""
    one = planner(llama, *sizes)
    found = one.longest()
    if found.tokens:
        assert one.fits(found.tokens)
    if found.limited_by == "trained window":
        assert found.tokens == 131072
    else:
        over = one.at(found.tokens + 256)
        assert not one.fits(found.tokens + 256)
        assert found.limited_by in {need.device.id for need in over.all() if need.fits is False}


def test_the_margin_counts_on_every_device(llama):
    assert planner(llama, 12, margin=0).longest().tokens > planner(llama, 12, margin=2 * GIB).longest().tokens


def test_nothing_is_said_about_fitting_where_free_memory_is_not_known(llama):
    one = Planner(llama, ContextSettings(), (GivenDevice("a", "a", None),), HOST_DEVICE, Options())
    assert one.longest() is None
    assert one.levers() == []
    assert one.at(4096).devices[0].fits is None


def test_levers_are_pulled_in_order_and_those_that_keep_quality_come_first(gemma, llama):
    options = Options(draft="model", projector_bytes=GIB)
    levers = planner(gemma, 24, options=options, draft=llama, ctx=32768).levers()
    names = [lever.lever for lever in levers]
    assert names == ["baseline", "speculation-off", "projector-cpu", "micro-batch", "kv-q8_0", "kv-q4_0"]
    assert [lever.costs_quality for lever in levers] == [False, False, False, False, True, True]
    for before, lever in pairwise(levers):
        assert lever.gain == lever.tokens - before.tokens
        assert lever.gain >= 0
    assert sum(lever.gain for lever in levers[1:]) > 0
    other = planner(gemma, 24, options=options, draft=llama).levers(("kv-q8_0", "speculation-off"))
    assert [lever.lever for lever in other] == ["baseline", "kv-q8_0", "speculation-off"]


def test_a_lever_that_would_be_refused_is_left_out(model):
    path = model("llama", embedding_length=160, block_count=2, context_length=1 << 20)
    levers = planner(Model.read(path), 1.01, parallel=1).levers()
    assert [lever.lever for lever in levers] == ["baseline", "micro-batch"]


def test_evening_out_never_shortens_the_window(llama):
    """Law: the exact split of the lever gives at least the window before, and its counts are all layers and the output."""
    for sizes in ((16, 8), (5, 5), (4, 10)):
        one = planner(llama, *sizes)
        split = one.best_split()
        if split is None:
            continue
        assert sum(split) == 33
        evened = one.pull("split")
        assert evened.longest().tokens >= one.longest().tokens


def test_an_even_split_leaves_the_fullest_device_more_room(llama):
    one = planner(llama, 16, 8, ctx=65536)
    split = one.best_split(65536)
    evened = planner(llama, 16, 8, ctx=65536, options=Options(tensor_split=tuple(map(float, split))))

    def least(which):
        return min(need.device.free_bytes - need.need for need in which.at(65536).devices)

    assert least(evened) >= least(one)


def test_a_draft_and_its_states_count(truth_models):
    qwen = Model.read(truth_models["qwen35.gguf"])
    plain, drafted = planner(qwen, 8), planner(qwen, 8, options=Options(draft="mtp"))
    assert drafted.refused is None
    assert drafted.at(4096).draft_bytes > 0
    assert drafted.at(4096).memory.state_bytes == 4 * plain.at(4096).memory.state_bytes
    assert sum(n.weights for n in drafted.at(4096).all()) > sum(n.weights for n in plain.at(4096).all())
    assert planner(Model.read(truth_models["llama.gguf"]), 8, options=Options(draft="mtp")).refused is not None


def test_draft_only_models_need_their_target(model):
    assert "--draft" in str(planner(Model.read(model("eagle3", tensors=[("blk.0.x", (4,))])), 8).refused)


def test_tied_embeddings_are_held_twice_once_the_output_is_on_a_device(truth_models):
    tied = Model.read(truth_models["real-llama-3.2-1b.gguf"])
    assert not any(t.name == "output.weight" for t in tied.header.tensors)
    table = next(t.size_bytes for t in tied.header.tensors if t.name == "token_embd.weight")
    on_gpu, on_host = planner(tied, 8).at(4096), planner(tied).at(4096)
    assert sum(need.weights for need in on_gpu.all()) == tied.weights_bytes + table
    assert on_host.host.weights == tied.weights_bytes


def test_experts_can_be_moved_to_the_host(truth_models):
    mixtral = Model.read(truth_models["real-mixtral-8x7b.gguf"])
    moved = planner(mixtral, 8, options=Options(overrides=((r"ffn_(up|down|gate)_exps", HOST),)))
    kept = planner(mixtral, 8)
    assert moved.at(4096).devices[0].weights < 0.1 * kept.at(4096).devices[0].weights
    with pytest.raises(InputError, match="regular expression"):
        planner(mixtral, 8, options=Options(overrides=(("(", HOST),)))


def test_unified_memory_is_the_hosts_memory_too(llama):
    """Law: what a unified device holds is taken from the host as well, so the two are not added up as if they were apart."""
    device = GivenDevice("apple:0", "M", 16 * GIB, GIB, unified=True)
    roomy = Planner(llama, ContextSettings(), (device,), GivenDevice("host", "h", 32 * GIB), Options())
    tight = Planner(llama, ContextSettings(), (device,), GivenDevice("host", "h", 9 * GIB), Options())
    assert tight.longest().tokens < roomy.longest().tokens
    assert tight.longest().limited_by == "host"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 512), st.integers(1, 512), st.integers(1, 8), st.booleans())
def test_a_longer_window_never_needs_less(llama, one, other, slots, unified):
    low, high = sorted((one * 256, other * 256))
    plan = planner(llama, 16, 8, parallel=slots, kv_unified=unified)
    for before, after in zip(plan.at(low).all(), plan.at(high).all(), strict=True):
        assert before.need <= after.need


def test_the_session_gets_a_budget_and_memory(truth_models):
    path = truth_models["real-llama-3.1-8b.gguf"]
    device = Device(id="nvidia:0", name="A", vendor="nvidia", free_bytes=12 * GIB)
    configuration = Configuration(
        settings={
            "ctx": Setting(value="8k", source="process"),
            "kv_type_k": Setting(value="q8_0", source="process"),
            "kv_type_v": Setting(value="q8_0", source="process"),
            "parallel": Setting(value=1, source="process"),
            "flash_attention": Setting(value="on", source="process"),
        }
    )
    found = budget(path, configuration, [device], ram_available_bytes=16 * GIB)
    assert isinstance(found, MemoryBudget)
    assert found.ctx == 8192
    [kv] = [b for b in found.buffers if b.component == "kv"]
    assert kv.size_bytes == 32 * 2 * 1024 * 8192 * 34 // 32
    assert found.longest_window % 256 == 0
    assert 60_000 < found.longest_window <= 131_072
    assert memory(path, ContextSettings(ctx=8192)).kv_bytes == 1024**3
    assert isinstance(memory(path, ContextSettings(kv_v="q8_0", flash_attn="off")), Refused)
    with pytest.raises(RefusedSettingError):
        budget(path, ContextSettings(kv_v="q8_0", flash_attn="off"), [device])


def test_the_session_is_told_when_an_architecture_is_unknown(model):
    with pytest.raises(UnknownShapeError):
        memory(model("nope"), ContextSettings())


def test_every_lever_has_words():
    from diagnose.estimating import LEVER_WORDS

    assert {"baseline", *LEVERS} == set(LEVER_WORDS)
