"""What differs between two runs, what that proves, and what it does not."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from diagnose import judging
from diagnose.case import Case
from diagnose.cli.rerun import tell_change
from diagnose.comparison import compare
from diagnose.document import document_of
from diagnose.history import compared_with, settle
from diagnose.judging import _mended
from diagnose.ledger import confirmed, kept_run, ledger, tried
from diagnose.options import RunOptions
from diagnose.prediction import attempts_in, measured_first, starts_needed
from diagnose.readback import difference, fingerprint, read_back
from diagnose.running import Walk
from diagnose.snapshots import snapshot_of
from probes.backends.commands import parse_command
from probes.evidence.changes import PredictionScored
from probes.evidence.events import LogEvent
from probes.evidence.machine import Device, DeviceProcess, DeviceReadings, HostReading
from probes.evidence.records import EvidenceSet, found, not_found
from probes.evidence.request import Launch
from probes.evidence.rungs import CanaryScore, Criteria, LadderPlan, RecallBase, RungResult
from probes.evidence.subject import BackendIdentity, Configuration, ModelFile, ModelIdentity, Setting, WindowReading
from reports.compose import build
from rules.catalogue import facts_of, judge_evidence, rule_of
from rules.engine import before
from rules.facts import LAUNCH_FAILED, PREDICTION_FAILED, WINDOW_IN_FORCE
from rules.verdict import Cost, Expectation, NextTest

GIB = 1 << 30
MIB = 1 << 20
COMMAND = "llama-server -m model.gguf -c 32768 -np 1 -ngl 99 -b 2048 -ub 512 -fa on -ctk f16 -ctv f16 -t 8 --port 8080 -ts 3,1"


class World:
    """One machine with a server on it; every attribute is something that can change."""

    def __init__(self):
        self.command = COMMAND
        self.environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
        self.build, self.name = "b9000-abc", "llama.cpp"
        self.size, self.header, self.path, self.quantization = 4 * GIB, "aa" * 16, "/models/model.gguf", "Q5_K_M"
        self.in_force, self.slots = 32768, 1
        self.driver, self.card, self.total, self.power = "560.10", "RTX 5060 Ti", 16 * GIB, 180.0
        self.free, self.ram, self.ram_free = 15 * GIB, 64 * GIB, 50 * GIB
        self.others = ()
        self.os = "Linux 6.8"
        self.seed = 0
        self.kv = ("f16", "f16")
        self.limit = None
        self.layers = 49
        self.over_http = {}
        self.command_seen = True

    def change(self, flag, value):
        """Put another value behind a flag of the command, or add the flag."""
        words = self.command.split()
        if flag in words:
            words[words.index(flag) + 1] = str(value)
        else:
            words += [flag] if value is None else [flag, str(value)]
        self.command = " ".join(words)
        return self

    def evidence(self, noise=None, run=1):
        rng = noise or random.Random(0)
        jitter = 0 if noise is None else 1
        own = 5 * GIB + jitter * rng.randrange(50 * MIB)
        pid = rng.randrange(1000, 60000)
        port = rng.randrange(1024, 60000)
        command = self.command.replace("8080", str(port)) if jitter else self.command
        settings = parse_command(command.split(), self.environment)
        pieces = []

        def device(when, free, processes=()):
            card = Device(
                id="nvidia:0",
                name=self.card,
                vendor="nvidia",
                total_bytes=self.total,
                free_bytes=free,
                driver=self.driver,
                power_limit_watts=self.power,
                processes=processes,
                temperature_c=40 + jitter * rng.randrange(30),
                utilization_percent=jitter * rng.randrange(100),
            )
            return found(DeviceReadings(devices=(card,), when=when), source="machine", origin=when, run=run)

        def host(when):
            available = self.ram_free - jitter * rng.randrange(2 * GIB)
            reading = HostReading(
                os=self.os,
                cores=16,
                ram_bytes=self.ram,
                ram_available_bytes=available,
                load_1min=jitter * rng.random(),
                swap_total_bytes=8 * GIB,
            )
            return found(reading, source="machine", origin=when, run=run)

        pieces += [device("before load", self.free - jitter * rng.randrange(200 * MIB)), host("before load")]
        launch = Launch(
            command=tuple(command.split()), healthy=True, seconds=2 + rng.random(), address_space_limit_bytes=self.limit
        )
        pieces.append(found(launch, source="measured", run=run))
        if self.command_seen:
            pieces.append(found(settings, source="process", run=run))
        server = {
            name: Setting(value=value, source="server")
            for name, value in {"parallel": self.slots, **self.over_http}.items()
        }
        pieces += [
            found(BackendIdentity(name=self.name, build=self.build), source="server", run=run),
            found(ModelIdentity(name="model", path=self.path), source="server", run=run),
            found(WindowReading(in_force=self.in_force, slots=self.slots), source="server", run=run),
            found(Configuration(settings=server, unread={"kv_type_k": "not told over HTTP"}), source="server", run=run),
            found(
                ModelFile(
                    path=self.path,
                    format="gguf",
                    size_bytes=self.size,
                    header_hash=self.header,
                    quantization=self.quantization,
                ),
                source="file",
                run=run,
            ),
            found(LogEvent(event="kv-cache", line=1, type_k=self.kv[0], type_v=self.kv[1]), source="log", run=run),
            found(LogEvent(event="layers-offloaded", line=2, count=self.layers, of=49), source="log", run=run),
        ]
        processes = (DeviceProcess(pid=pid, name="llama-server", used_bytes=own, is_server=True), *self.others)
        if jitter and rng.random() < 0.5:
            processes += (
                DeviceProcess(
                    pid=rng.randrange(9000), name="Xorg", used_bytes=rng.randrange(100 * MIB), is_server=False
                ),
            )
        pieces += [device("before run", self.free - own, processes), host("before run")]
        return EvidenceSet(pieces)

    def snapshot(self, noise=None):
        return read_back(self.evidence(noise), request={"seed": self.seed, "text_folder": None})


def edit(**values):
    def do(world):
        for name, value in values.items():
            setattr(world, name, value)

    return do


def flag(name, value=None, **also):
    def do(world):
        world.change(name, value)
        edit(**also)(world)

    return do


def drop(name, words=2):
    def do(world):
        parts = world.command.split()
        at = parts.index(name)
        world.command = " ".join(parts[:at] + parts[at + words :])

    return do


def both(*changes):
    def do(world):
        for one in changes:
            one(world)

    return do


VLLM = DeviceProcess(pid=7, name="python", server_kind="vllm", used_bytes=4 * GIB, is_server=False)
PLANTED = {
    # what is done → the one variable that it is
    "window": (flag("-c", 65536, in_force=65536), "ctx"),
    "slots, which divide the window": (flag("-np", 4, slots=4, in_force=8192), "parallel"),
    "micro-batch": (flag("-ub", 256), "ubatch"),
    "batch": (flag("-b", 1024), "batch"),
    "both cache types": (both(flag("-ctk", "q8_0"), flag("-ctv", "q8_0", kv=("q8_0", "q8_0"))), "kv_type"),
    "the K type alone": (flag("-ctk", "q8_0", kv=("q8_0", "f16")), "kv_type_k"),
    "the V type alone": (flag("-ctv", "q4_0", kv=("f16", "q4_0")), "kv_type_v"),
    "flash attention": (flag("-fa", "off"), "flash_attention"),
    "layers on the card": (flag("-ngl", 40, layers=40), "gpu_layers"),
    "split": (flag("-ts", "2,1"), "tensor_split"),
    "split mode": (flag("-sm", "row"), "split_mode"),
    "threads": (flag("-t", 4), "threads"),
    "cache in system memory": (flag("--no-kv-offload"), "kv_offload"),
    "experts on the processor": (flag("--n-cpu-moe", 12), "cpu_moe"),
    "one override": (flag("-ot", "exps=CPU"), "overrides"),
    "unified cache": (flag("--kv-unified"), "kv_unified"),
    "a draft model with its settings": (both(flag("-md", "draft.gguf"), flag("--draft-max", 4, over_http={"speculation": "draft-simple"})), "speculation"),
    "a projector": (both(flag("-mm", "mmproj.gguf"), edit(over_http={"mmproj_loaded": True})), "mmproj"),
    "position scaling by three flags": (both(flag("--rope-scaling", "yarn"), flag("--rope-scale", 4), flag("--yarn-orig-ctx", 32768)), "rope_scaling"),
    "the position base": (flag("--rope-freq-base", 10000), "rope_freq_base"),
    "context shift": (flag("--context-shift"), "context_shift"),
    "prompt cache size": (flag("--cache-ram", 0), "cache_ram_mib"),
    "sampling": (flag("--temp", 0.2), "temperature"),
    "a flag taken away": (drop("-ts"), "tensor_split"),
    "an environment variable": (edit(environment={"CUDA_VISIBLE_DEVICES": "0"}), "env.CUDA_VISIBLE_DEVICES"),
    "a new variable": (edit(environment={"CUDA_VISIBLE_DEVICES": "0,1", "GGML_CUDA_ENABLE_UNIFIED_MEMORY": "1"}), "env.GGML_CUDA_ENABLE_UNIFIED_MEMORY"),
    "a new build whose defaults moved": (edit(build="b9100-def", over_http={"n_predict": 512}, layers=48), "backend"),
    "another server program": (edit(name="ik_llama.cpp", build="b1"), "backend"),
    "another model file under the same name": (edit(header="bb" * 16), "model_path"),
    "smaller weights": (edit(path="/models/other.gguf", quantization="Q4_K_M", size=3 * GIB, header="cc" * 16), "model_path"),
    "a driver update": (edit(driver="570.00"), "driver"),
    "another card": (edit(card="RTX 3070", total=8 * GIB, free=int(7.5 * GIB)), "devices"),
    "another process on the card": (edit(others=(VLLM,), free=11 * GIB), "other_load"),
    "less free memory at the start": (edit(free=13 * GIB), "free_memory"),
    "a kernel update": (edit(os="Linux 6.9"), "os"),
    "an address-space limit": (edit(limit=8 * GIB), "address_space_limit"),
    "the seed of the test": (edit(seed=7), "seed"),
    "a power limit": (edit(power=120.0), "power_limit"),
    "the window in force, with no setting changed": (edit(in_force=16384), "window_in_force"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_each_planted_change_is_found_and_is_one_variable(name):
    """Law: one thing that a person changes (or that changes by itself) is one variable, whatever moves with it."""
    change, variable = PLANTED[name]
    world = World()
    first = world.snapshot(random.Random(1))
    change(world)
    differs = difference(first, world.snapshot(random.Random(2)))
    assert [one.name for one in differs.variables] == [variable]
    assert differs.single.before != differs.single.after
    back = difference(world.snapshot(random.Random(3)), World().snapshot(random.Random(4)))
    assert [one.name for one in back.variables] == [variable]


def test_at_least_thirty_changes_are_planted():
    assert len(PLANTED) >= 30


def test_thirty_repeats_without_a_change_report_nothing():
    """Law: free memory, ports, process ids, small other processes, temperature and load are noise."""
    world = World()
    for seed in range(30):
        differs = difference(world.snapshot(random.Random(seed)), world.snapshot(random.Random(1000 + seed)))
        assert differs.variables == (), seed
        assert differs.moved == ()
        assert differs.unread == {}


@pytest.mark.parametrize(
    "pair",
    [
        ("window", "micro-batch"),
        ("both cache types", "a new build whose defaults moved"),
        ("slots, which divide the window", "a driver update"),
        ("threads", "less free memory at the start"),
        ("smaller weights", "flash attention"),
    ],
)
def test_two_changes_are_two(pair):
    world = World()
    first = world.snapshot()
    for name in pair:
        PLANTED[name][0](world)
    names = {one.name for one in difference(first, world.snapshot()).variables}
    assert names == {PLANTED[name][1] for name in pair}


def test_defaults_that_moved_with_a_new_build_are_listed_and_not_counted():
    world = World()
    world.over_http = {"n_predict": -1}
    first = world.snapshot()
    edit(build="b9100-def", over_http={"n_predict": 512}, in_force=16384)(world)
    differs = difference(first, world.snapshot())
    assert [one.name for one in differs.variables] == ["backend"]
    assert {(one.name, one.before, one.after) for one in differs.moved} == {
        ("n_predict", -1, 512),
        ("window_in_force", 32768, 16384),
    }


def test_what_was_asked_for_counts_also_where_the_server_says_something_else():
    """A setting that the server does not show in its answers, or ignores, was changed all the same."""
    world = World()
    world.over_http = {"n_predict": -1}
    first = world.snapshot()
    one = difference(first, world.change("-n", 100).snapshot()).single
    assert (one.name, one.before, one.after) == ("n_predict", -1, 100)
    second = world.snapshot()
    one = difference(second, world.change("-n", 200).snapshot()).single
    assert (one.name, one.before, one.after) == ("n_predict", 100, 200)
    world.over_http = {"n_predict": 50}
    one = difference(second, world.change("-n", 100).snapshot()).single
    assert (one.name, one.asked) == ("n_predict", False)


def test_setting_just_the_default_changes_nothing():
    """``-ub 512`` where 512 holds anyway; a cache type that the log says was taken."""
    world = World()
    for name in ("-ub", "-b", "-ctk", "-ctv"):
        drop(name)(world)
    first = world.snapshot()
    for name, value in (("-ub", 512), ("-b", 2048), ("-ctk", "f16"), ("-ctv", "f16")):
        world.change(name, value)
    assert difference(first, world.snapshot()).variables == ()


def test_what_cannot_be_read_may_have_changed_and_is_not_counted():
    """A server whose command line nobody can see: what HTTP tells is compared, the rest is said to be unread."""
    world = World()
    world.command_seen = False
    first = world.snapshot()
    world.slots, world.in_force = 4, 8192
    differs = difference(first, world.snapshot())
    assert [one.name for one in differs.variables] == ["parallel"]
    assert differs.unread == {"kv_type_k": "not told over HTTP"}
    world = World()
    seen = world.snapshot()
    world.command_seen = False
    assert difference(seen, world.snapshot()).variables == ()


def test_a_file_is_told_apart_by_its_data(tmp_path):
    """Law: a replaced file of the same size and beginning is another one; a moved one is the same."""
    one, two = tmp_path / "a.gguf", tmp_path / "b.gguf"
    data = bytearray(random.Random(0).randbytes(3_000_000))
    one.write_bytes(data)
    two.write_bytes(data)
    assert fingerprint(one) == fingerprint(two)
    two.write_bytes(data[:100_000] + random.Random(1).randbytes(2_900_000))
    assert fingerprint(one) != fingerprint(two)
    assert fingerprint(tmp_path / "none") is None
    assert fingerprint(tmp_path) is None
    (tmp_path / "empty").write_bytes(b"")
    assert fingerprint(tmp_path / "empty") is not None


def test_every_value_has_its_source():
    values = World().snapshot().values
    assert values["ctx"].source == "process"
    assert values["ctx"].raw == "-c 32768"
    assert values["parallel"].source == "server"
    assert values["driver"].source == "machine"
    assert values["kv_type_in_force"].source == "log"
    assert values["model_path"].source == "file"
    assert not {"port", "host"} & set(values)


# -- what a change proves -------------------------------------------------------------------------------------------------------------------

GROWS = Expectation(cause="slots-divide-ctx", words="The window grows.", when=(WINDOW_IN_FORCE > 20000).to_json())
STAYS = Expectation(cause="ctx-capped-by-engine", words="It stays as it is.", when=(WINDOW_IN_FORCE <= 20000).to_json())


@pytest.fixture
def case(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path))
    with Case.create("fixed-length-error", tool_version="1", name="a") as one:
        yield one


def measured(
    case,
    world,
    lengths=(1024, 4096),
    *,
    result="passed",
    attempts=3,
    tps=1000.0,
    hit=9,
    step=None,
    healthy=True,
    load=0.1,
):
    """Put one whole run into the case."""
    run = case.run + 1
    case.append("run", {"options": {}}, run=run)
    rng = random.Random(run)
    for piece in world.evidence(rng, run).all:
        more = (
            {"load_1min": load * 16} if piece.kind == "host" else {"healthy": healthy} if piece.kind == "launch" else {}
        )
        case.add(piece.model_copy(update={"data": piece.data | more}))
    case.add(found(Criteria(), source="user", run=run))
    case.add(found(LadderPlan(rungs=lengths, target=None, output_tokens=64), source="measured", run=run))
    case.add(found(RecallBase(style="question", at_tokens=1024, hit=9, asked=9, able=True), source="measured", run=run))
    for length in lengths if healthy else ():
        for attempt in range(1, attempts + 1):
            case.add(
                found(
                    RungResult(
                        rung=length, input_tokens=length, attempt=attempt, result=result, cold=True,
                        prefill_tps=tps * rng.uniform(0.97, 1.03), generation_tps=50 * rng.uniform(0.97, 1.03),
                        canaries=CanaryScore(hit=hit, asked=9),
                    ),
                    source="measured", run=run,
                )
            )  # fmt: skip
    case.add(found(world.snapshot(rng), source="measured", run=run))
    line = settle(case, run)
    if step is not None:
        case.append("next-test", step.model_dump(mode="json"), run=run)
    case.append("run-ended", {}, run=run)
    return line


def slots_to_one(*expects):
    return NextTest(
        kind="change",
        variable="parallel",
        start=4,
        to=1,
        expects=expects or (GROWS, STAYS),
        cost=Cost(minutes=3),
        reason="one slot",
        cause="slots-divide-ctx",
    )


def divided():
    world = World().change("-np", 4)
    world.slots, world.in_force = 4, 8192
    return world


def whole(world):
    world.change("-np", 1)
    world.slots, world.in_force = 1, 32768
    return world


def test_the_first_run_has_nothing_to_be_compared_with(case):
    assert measured(case, divided()) is None
    assert ledger(case) == []


def test_one_change_whose_prediction_came_three_times_confirms_its_cause(case):
    """Law: confirmed only by a held prediction, exactly one change, three attempts; and it says which run did it."""
    world = divided()
    measured(case, world, step=slots_to_one())
    line = measured(case, whole(world), (1024, 4096, 30000))
    assert (line.single, line.prediction, line.cause, line.attempts, line.kept) == (
        True,
        "held",
        "slots-divide-ctx",
        3,
        True,
    )
    assert [(one.name, one.before, one.after, one.source) for one in line.variables] == [("parallel", 4, 1, "server")]
    assert "run 2 confirms slots-divide-ctx" in line.conclusion
    assert confirmed(case) == {"slots-divide-ctx": 2}
    assert confirmed(case, 1) == {}
    assert settle(case, 2) == line  # once only
    assert len(ledger(case)) == 1


def test_fewer_attempts_do_not_confirm_until_the_same_run_again_makes_them_three(case):
    """Law: attempts of runs of one configuration add up; a run in which it does not come takes it back."""
    world = divided()
    measured(case, world, step=slots_to_one())
    line = measured(case, whole(world), (1024, 30000), attempts=2)
    assert (line.prediction, line.attempts) == ("held", 2)
    assert "run it again unchanged" in line.conclusion
    assert confirmed(case) == {}
    line = measured(case, world, (1024, 30000), attempts=1)
    assert (line.variables, line.prediction, line.attempts) == ((), "held", 3)
    assert confirmed(case) == {"slots-divide-ctx": 3}
    world.in_force = 8192
    world.slots = 1
    again = measured(case, world, (1024,), attempts=1)
    assert (again.against, again.prediction) == (1, "failed")
    assert confirmed(case) == {}


def test_a_second_change_refuses_a_cause_and_gives_the_test_that_separates(case):
    """Law: two changes never confirm; the stack as a whole is what was tested, and the commands that tell them apart are given."""
    world = divided()
    measured(case, world, step=slots_to_one())
    whole(world).change("-ctk", "q8_0").change("-ctv", "q8_0")
    world.kv = ("q8_0", "q8_0")
    line = measured(case, world, (1024, 4096, 30000))
    assert (line.single, line.prediction, line.cause) == (False, "none", None)
    assert {one.name for one in line.variables} == {"parallel", "kv_type"}
    assert "stack as a whole" in line.conclusion
    assert "no single cause" in line.conclusion
    assert confirmed(case) == {}
    assert len(line.separate) == 2
    assert "-np 1" in line.separate[0]
    assert "q8_0" not in line.separate[0]
    assert line.separate[1].count("q8_0") == 2
    assert "-np 4" in line.separate[1]


def test_an_unasked_change_counts(case):
    """A driver update between the runs: two changes, and it is said that nobody asked for one of them."""
    world = divided()
    measured(case, world, step=slots_to_one())
    world.driver = "570.1"
    line = measured(case, whole(world), (1024, 30000))
    assert line.single is False
    assert any("Nobody asked" in note and "driver" in note for note in line.notes)
    assert confirmed(case) == {}


def test_what_changes_while_a_run_is_measured_counts(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    whole(world)
    run = case.run + 1
    other = World()
    other.__dict__.update(world.__dict__)
    other.others = (VLLM,)
    after = read_back(other.evidence(random.Random(5)), "after")
    # the second look of the run that follows
    case.add(found(after, source="measured", run=run))
    line = measured(case, world, (1024, 30000))
    assert line.single is False
    assert any("by itself" in note and "other_load" in note for note in line.notes)


def test_nothing_changed_shows_the_noise_and_proves_nothing(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    line = measured(case, world)
    assert (line.variables, line.single, line.prediction, line.kept) == ((), False, "none", None)
    assert "noise" in line.conclusion
    assert any("Prefill at 1,024 tokens" in note for note in line.notes)
    rows = {row.name: row for row in line.comparison}
    assert rows["Prefill at 1,024 tokens"].standing == "same"
    assert rows["Prefill at 1,024 tokens"].noise > 0
    assert confirmed(case) == {}


def test_a_prediction_that_did_not_come_is_strong_evidence_against_its_cause(case):
    """Law: also for the rivals' predictions; it stays evidence in the runs that follow, and wherever the evidence is judged."""
    world = divided()
    measured(case, world, step=slots_to_one())
    world.change("-np", 1)
    world.slots = 1  # and the window stays at 8192
    line = measured(case, world, (1024, 4096))
    assert (line.single, line.prediction, line.kept) == (True, "failed", False)
    assert "strong evidence against" in line.conclusion
    assert any("undo it" in note for note in line.notes)
    assert any("-np 4" in note for note in line.notes)
    judgement, facts = judge_evidence(case.evidence(2))
    assert facts.value(PREDICTION_FAILED) == ("slots-divide-ctx",)
    finding = next(one for one in judgement.findings if one.cause == "slots-divide-ctx")
    without, _facts = judge_evidence(
        EvidenceSet([one for one in case.evidence(2).all if one.kind != PredictionScored.kind])
    )
    assert finding.now == next(one for one in without.findings if one.cause == "slots-divide-ctx").now - 10
    measured(case, world.change("-t", 4))
    assert judge_evidence(case.evidence(3))[1].value(PREDICTION_FAILED) == ("slots-divide-ctx",)
    assert judge_evidence(case.evidence(1))[1].value(PREDICTION_FAILED) is None


def test_a_rival_whose_prediction_failed_is_spoken_against(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    measured(case, whole(world), (1024, 30000))
    assert judge_evidence(case.evidence(2))[1].value(PREDICTION_FAILED) == ("ctx-capped-by-engine",)


def test_another_value_than_proposed_neither_confirms_nor_refutes_but_is_said(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    world.change("-np", 2)
    world.slots, world.in_force = 2, 16384
    line = measured(case, world, (1024, 12000))
    assert line.prediction == "cannot-tell"
    assert any("was to set parallel to 1" in note for note in line.notes)
    assert confirmed(case) == {}


def test_another_variable_than_proposed_has_no_prediction(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    line = measured(case, world.change("-t", 4))
    assert (line.single, line.prediction, line.kept) == (True, "none", False)
    assert any("was about parallel" in note for note in line.notes)
    assert tried(case, 2) == set()


def test_a_step_after_one_that_was_undone_is_compared_with_the_run_before_both(case):
    """Undo A, make B: against the last run that is two changes, against the run before it one."""
    world = divided()
    measured(case, world, step=slots_to_one())
    line = measured(case, world.change("-t", 4))
    assert line.kept is False
    world.change("-t", 8)
    line = measured(case, whole(world), (1024, 30000))
    assert (line.against, line.single, line.prediction) == (1, True, "held")
    assert confirmed(case) == {"slots-divide-ctx": 3}
    assert tried(case, 3) == {("parallel", "1")}


def test_undoing_is_said(case):
    world = divided()
    measured(case, world)
    measured(case, world.change("-t", 4))
    line = measured(case, world.change("-t", 8))
    assert (line.against, [one.name for one in line.variables]) == (2, ["threads"])
    assert "was undone" in line.conclusion


def test_a_run_that_did_not_end_is_not_compared_with(case):
    world = divided()
    measured(case, world)
    case.append("run", {"options": {}}, run=2)
    case.add(found(whole(divided()).snapshot(), source="measured", run=2))
    case.append("run", {"options": {}}, run=3)
    case.add(found(world.snapshot(), source="measured", run=3))
    against, differs = compared_with(case, 3)
    assert (against, differs.variables) == (1, ())
    assert snapshot_of(case, 2) is not None


# -- what was gained ------------------------------------------------------------------------------------------------------------------------


def test_a_change_is_kept_only_for_a_gain_beyond_the_noise(case):
    """Law: capacity, speed or recall; a few per cent of speed are none, and neither is a single attempt."""
    world = World()
    measured(case, world, tps=1000)
    assert measured(case, world.change("-t", 4), tps=1040).kept is False
    line = measured(case, world.change("-t", 12), tps=1500)
    assert line.kept is True
    assert any("Prefill" in note for note in line.notes)
    assert measured(case, world.change("-t", 13), attempts=1, tps=1800).kept is False
    measured(case, world.change("-t", 14), hit=2)
    assert measured(case, world.change("-t", 15), hit=9).kept is True


def test_speeds_of_a_busy_machine_are_not_compared(case):
    world = World()
    measured(case, world, tps=1000)
    line = measured(case, world.change("-t", 12), tps=1500, load=0.9)
    row = next(row for row in line.comparison if row.name.startswith("Prefill"))
    assert (row.standing, row.note) == ("unknown", "The machine was busy with something else.")
    assert line.kept is False


def test_a_server_that_starts_now_is_a_gain_and_one_that_does_not_is_a_loss(case):
    world = World()
    measured(case, world, healthy=False)
    line = measured(case, world.change("-c", 16384))
    assert line.kept is True
    assert any("starts now" in note for note in line.notes)
    result = compare(case, 2, 1)
    assert [said.english for said in result.losses] == ["The server does not start any more."]


def test_a_run_that_saw_nothing_is_no_noise_and_nothing_is_held_against_it(case):
    """Law: a run that did not reach its server (the port was in use) repeats nothing; the next one is held against the last that saw something."""
    world = divided()
    measured(case, world, step=slots_to_one())
    run = case.run + 1
    case.append("run", {"options": {}}, run=run)
    case.add(found(parse_command(world.command.split()), source="process", run=run, origin="launch command"))
    case.add(not_found("session", "failed", "port 8080 is in use", run=run, origin="session"))
    case.add(found(world.snapshot(), source="measured", run=run))
    assert settle(case, run) is None
    assert ledger(case) == []
    said = []
    tell_change(case, run, SimpleNamespace(say=lambda one: said.append(one.english)))
    assert len(said) == 1
    assert "saw nothing of the server" in said[0]
    assert "port 8080 is in use" in said[0]
    case.append("run-ended", {"could_not_look": "port 8080 is in use"}, run=run)
    line = measured(case, whole(world), (1024, 4096, 30000))
    assert (line.against, line.single, line.prediction) == (1, True, "held")


def test_a_start_that_failed_was_seen(case):
    """Law: a server that does not start is a result; only where nothing was seen at all is nothing compared."""
    world = World()
    measured(case, world)
    case.add(not_found("session", "failed", "it ended", run=2, origin="session"))
    line = measured(case, world.change("-c", 65536), healthy=False)
    assert (line.against, [one.name for one in line.variables]) == (1, ["ctx"])


def test_where_nothing_can_be_compared_nothing_is_said_to_be_kept(case):
    world = World()
    measured(case, world, lengths=(1024,))
    for piece in world.change("-t", 4).evidence(random.Random(1), 2).all:
        if piece.kind not in {"launch", "backend"}:
            case.add(piece)
    case.append("run", {"options": {}}, run=2)
    case.add(found(world.snapshot(), source="measured", run=2))
    line = settle(case, 2)
    assert line.kept is None


# -- what a prediction needs ----------------------------------------------------------------------------------------------------------------


def test_what_a_prediction_needs_is_measured_first():
    """A window is read, and tried by one prompt above it; a failing length needs the ladder, which needs its way of asking."""
    from rules.facts import FAILURE_TOKENS

    assert measured_first([GROWS]) == ("truncation",)
    longer = Expectation(
        cause="kv-cache-size", words="later", when=(before(FAILURE_TOKENS) * 1.5 < FAILURE_TOKENS).to_json()
    )
    assert measured_first([longer])[:2] == ("recall", "ladder")
    gone = Expectation(cause="kv-cache-size", words="?", when={"fact": "no.such.fact", "op": "is", "value": 1})
    assert measured_first([gone]) == ()


def test_a_prediction_about_starting_wants_three_starts(case):
    loads = Expectation(cause="kv-cache-size", words="It loads.", when=LAUNCH_FAILED.is_(False).to_json())
    assert starts_needed([loads]) == 3
    assert starts_needed([GROWS]) == 1
    assert starts_needed([]) == 1
    world = World()
    measured(case, world, healthy=False)
    measured(case, world)
    assert attempts_in(case, 2, 1, loads) == 1
    for _ in range(2):
        case.add(found(Launch(command=("x",), healthy=True, seconds=1.0), source="measured", run=2))
    assert attempts_in(case, 2, 1, loads) == 3
    case.add(found(Launch(command=("x",), healthy=False, seconds=1.0), source="measured", run=2))
    assert attempts_in(case, 2, 1, loads) == 0


# -- before the next test -------------------------------------------------------------------------------------------------------------------


def test_a_change_that_is_taken_back_is_held_against_the_run_that_made_it(case):
    """Law: what gained nothing and is undone is said so, and counts as no new proof of what was confirmed before."""
    world = divided()
    measured(case, world, step=slots_to_one())
    measured(case, whole(world), (1024, 4096, 30000))
    useless = measured(case, world.change("-ub", 256), (1024, 4096, 30000))
    assert ([one.name for one in useless.variables], useless.kept) == (["ubatch"], False)
    back = measured(case, world.change("-ub", 512), (1024, 4096, 30000))
    assert (back.against, [one.name for one in back.variables], back.prediction) == (3, ["ubatch"], "none")
    assert "change of run 3 was undone" in back.conclusion
    assert confirmed(case) == {"slots-divide-ctx": 2}


def test_what_comes_next_is_made_from_the_last_run_that_is_kept(case):
    """Law: a change that gained nothing is no part of the next command; one that is undone, or gained, is where it goes on."""
    world = divided()
    measured(case, world)
    assert kept_run(case, 1) == 1
    measured(case, whole(world), (1024, 4096, 30000))
    assert kept_run(case, 2) == 2
    measured(case, world.change("-ub", 256), (1024, 4096, 30000))
    measured(case, world.change("-t", 4), (1024, 4096, 30000))
    assert [line.kept for line in ledger(case)] == [True, False, False]
    assert kept_run(case, 4) == 2
    measured(case, world.change("-t", 8).change("-ub", 512), (1024, 4096, 30000))
    assert kept_run(case, 5) == 5


def test_a_longer_window_alone_is_a_gain_only_where_no_longer_prompt_was_tried(case):
    """Where the new part of the window was tried, what ran there decides."""
    world = divided()
    measured(case, world, (1024, 4096))
    line = measured(case, whole(world), (1024, 4096))
    assert line.kept is True
    assert "Window in force: 8,192 tokens before, 32,768 after." in line.notes
    rows = {row.name: row.standing for row in compare(case, 1, 2).rows}
    assert rows["Window in force"] == "better"
    measured(case, world, (1024, 4096, 30000), result="failed")
    assert "Window in force" not in " ".join(one.english for one in compare(case, 1, 3).gains)


def test_the_test_of_a_confirmed_cause_is_not_proposed_again_once_the_goal_is_reached(case):
    world = divided()
    measured(case, world, step=slots_to_one())
    measured(case, whole(world), (1024, 4096, 30000))
    facts = facts_of(case.evidence(2))
    mended = _mended(case, 2, facts)
    assert {key[0] for key in mended} == {test.variable for test in rule_of("slots-divide-ctx").tests}
    assert _mended(case, 1, facts_of(case.evidence(1))) == set()
    measured(case, world, (1024, 4096, 30000), result="failed")
    assert _mended(case, 3, facts_of(case.evidence(3))) == set()


class _Silent:
    """Nobody reads."""

    def say(self, *_said):
        """Nothing."""


def _useless(case, monkeypatch, chosen):
    """Two runs, the second after slots that gained nothing; what is proposed is chosen from the facts that the choice is made on."""
    world = whole(World())
    measured(case, world)
    world.change("-np", 4)
    world.slots, world.in_force = 4, 8192
    line = measured(case, world)
    assert line.kept is False

    def choose(_judgement, facts, *_more):
        return chosen(facts)

    monkeypatch.setattr(judging, "next_step", choose)
    walk = Walk(case, RunOptions(), _Silent(), Criteria(), mode="run")
    return judging.judge_run(walk)[1]


def _shorter(facts):
    window = facts.value(WINDOW_IN_FORCE)
    return NextTest(
        kind="change",
        variable="ctx",
        start=window,
        to=window // 2,
        cost=Cost(minutes=1),
        reason="shorter",
        keep=("parallel",),
    )


def test_the_undoing_of_a_useless_change_is_said_as_a_step_of_its_own(case, monkeypatch):
    """Law: command, values and lead are of one configuration; two changes are never called one."""
    step = _useless(case, monkeypatch, _shorter)
    assert [(one.variable, one.start, one.to) for one in step.first] == [("parallel", 4, 1)]
    assert "-np 1" in step.command
    # 8,192 is the window with four slots, which is not what the command starts from
    assert (step.start, step.to) == (32768, 16384)
    assert "-c 16384" in step.command
    assert "-c 32768 -np 1" in step.undo
    lead = build(document_of(case)).next_test.lead.english
    assert lead.startswith("Two steps. First undo what gained nothing: parallel (4 → 1). Then change ctx from")
    assert "nothing else" not in lead


def test_where_nothing_is_left_but_the_undoing_that_is_the_step(case, monkeypatch):
    """Law: a test that only the useless change brought about is not proposed for the configuration that stands without it."""
    step = _useless(case, monkeypatch, lambda facts: _shorter(facts) if facts.value(WINDOW_IN_FORCE) < 20000 else None)
    assert (step.variable, step.start, step.to, step.first) == ("parallel", 4, 1, ())
    assert "-np 1" in step.command
    assert "-np 4" in step.undo


def test_a_change_that_is_kept_is_built_upon(case, monkeypatch):
    world = divided()
    measured(case, world, step=slots_to_one())
    assert measured(case, whole(world), (1024, 4096, 30000)).kept is True
    monkeypatch.setattr(judging, "next_step", lambda _judgement, facts, *_more: _shorter(facts))
    step = judging.judge_run(Walk(case, RunOptions(), _Silent(), Criteria(), mode="run"))[1]
    assert step.first == ()
    assert "-np 1" in step.command
    assert "nothing else" in build(document_of(case)).next_test.lead.english
