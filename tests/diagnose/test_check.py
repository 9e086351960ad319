"""A check says in a minute what can be seen, proves truncation where that is cheap, and never spends more than it said."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from diagnose import check as check_module
from diagnose import look
from diagnose.check import CheckDocument
from diagnose.cli import command_line
from diagnose.red_flags import FLAGS, Seen, raised
from probes.evidence.machine import Device, DeviceProcess, DeviceReadings, HostReading
from probes.evidence.request import TruncationReading
from probes.evidence.subject import ModelFile, Setting
from reports.document import ClientValues, WindowValues
from tests.backends.loopback import RECORDINGS, Loopback, plain
from tests.diagnose.llama_like import LlamaLike, answer

GIB = 2**30


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CTXDOCTOR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("CTXDOCTOR_API_KEY", raising=False)
    # The process behind the loopback server is the test runner, whose command line is none of a server's.
    monkeypatch.setattr(look, "find_process", lambda _url: (None, "not looked for"))


def checked(capsys, *arguments):
    code = command_line(["check", *arguments, "--format", "json", "--quiet"])
    told = capsys.readouterr()
    return code, json.loads(told.out) if told.out else None, told.err


# -- truncation ---------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [1024, 32_768])
def test_a_refused_prompt_proves_it_and_costs_nothing(capsys, window):
    with LlamaLike(window) as server:
        code, document, _said = checked(capsys, server.url)
        assert document["truncation"]["verdict"] == "refused"
        assert document["truncation"]["sent"] > window
        assert document["truncation"]["processed"] == 0
        assert document["sent"] == {"requests": 1, "prompt_tokens": 0, "generated_tokens": 0}
        assert len(server.prompts) == 1
        assert code == 0
        assert document["window"]["in_force"] == window


def test_a_prompt_that_is_cut_is_serious(capsys):
    with LlamaLike(1024, complete=lambda handler, count: answer(handler, min(count, 512))) as server:
        code, document, _said = checked(capsys, server.url)
    assert document["truncation"]["verdict"] == "truncated"
    assert document["truncation"]["processed"] == 512
    assert document["flags"][0]["id"] == "prompts-cut-silently"
    assert document["flags"][0]["severity"] == "serious"
    assert code == 1
    assert document["sent"]["prompt_tokens"] < 3000


def test_what_would_cost_much_is_not_done_and_its_price_is_said(capsys):
    with Loopback.playing("koboldcpp-1.102") as server:
        code, document, _said = checked(capsys, server.url)
        assert document["truncation"]["verdict"] == "unknown"
        assert document["truncation"]["would_cost_tokens"] > document["window"]["in_force"]
        assert "truncation.verdict" in document["unknown"]
        assert not [path for method, path, _body in server.asked if method == "POST"]
    assert code == 0


def test_full_sends_it_all_the_same(capsys):
    """A server that may shift its context could process the whole prompt: only --full sends it."""
    with LlamaLike(4096) as server:
        seen = Setting(value=True, source="process")
        quick = check_module._truncation
        assert (
            quick(
                _backend(server),
                4096,
                {"context_shift": seen},
                _Ui(),
                _sent(),
                time.monotonic() + 50,
                tokenizer=None,
                path=None,
                full=False,
            ).verdict
            == "unknown"
        )
        assert server.prompts == []
        reading = quick(
            _backend(server),
            4096,
            {"context_shift": seen},
            _Ui(),
            _sent(),
            time.monotonic() + 50,
            tokenizer=None,
            path=None,
            full=True,
        )
        assert reading.verdict == "refused"
        above, below = server.prompts
        assert above > 4096 > below
        assert reading.below_processed == below


def _backend(server):
    from probes.backends.http import Http
    from probes.backends.llamacpp import LlamaCpp

    return LlamaCpp(Http(server.url))


def _sent():
    from probes.base import Sent

    return Sent()


class _Ui:
    def say(self, _said):
        pass

    def progress(self, _what, _done, _detail):
        pass

    def finish_progress(self):
        pass


def test_a_server_that_never_answers_the_prompt_does_not_hold_the_check(capsys, monkeypatch):
    monkeypatch.setattr(check_module, "CHECK_S", 1.0)
    with LlamaLike(1024, complete=lambda handler, _count: handler.owner.stopping.wait(30)) as server:
        started = time.monotonic()
        code, document, _said = checked(capsys, server.url)
        assert time.monotonic() - started < 12
    assert document["truncation"]["verdict"] == "unknown"
    assert code == 0


# -- the document -------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", sorted(p.name for p in RECORDINGS.iterdir() if not p.name.endswith(("-key", "-loading")))
)
def test_every_server_is_checked_within_its_means(name, capsys):
    """Law: the document is whole, every null says why, few tokens are sent, and the text can be drawn."""
    with Loopback.playing(name) as server:
        code, document, _said = checked(capsys, server.url)
        told = [document["window"][key] for key in ("in_force", "per_slot", "asked", "trained")]
        known = any(value is not None for value in told) or document["truncation"]["verdict"] != "unknown"
        # a server of which neither a window nor a cut is known is inconclusive, never well, whatever it calls itself
        assert code in ({0, 1} if known else {1, 4})
        assert set(document) >= {
            "schema_version",
            "backend",
            "model",
            "window",
            "truncation",
            "memory",
            "flags",
            "sent",
            "unknown",
        }
        assert set(document["window"]) == {"asked", "trained", "per_slot", "slots", "in_force"}
        for part in ("model", "window"):
            for key, value in document[part].items():
                assert value is not None or f"{part}.{key}" in document["unknown"], f"{part}.{key}"
        assert document["sent"]["prompt_tokens"] <= 3000
        read = CheckDocument.model_validate(document)
        from diagnose.cli.check import in_text

        text = in_text(read)
        assert document["backend"]["name"] in text
        assert all(flag["id"] in text for flag in document["flags"])


def test_text_from_outside_stays_text(capsys):
    with LlamaLike(1024, model_alias="evil\x1b[31m\nname") as server:
        command_line(["check", server.url, "--quiet"])
    assert "\x1b" not in capsys.readouterr().out


# -- what goes wrong ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["http://127.0.0.1:1"], 3),
        (["ftp://x"], 2),
        (["http://u:p@127.0.0.1:1"], 2),
        (["127.0.0.1:1", "--backend", "llamma"], 2),
        (["127.0.0.1:1", "--format", "pdf"], 2),
        (["127.0.0.1:1", "--api-key", "ключ"], 2),
    ],
)
def test_what_cannot_be_looked_at_is_one_line(capsys, arguments, code):
    assert command_line(["check", *arguments]) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert len([line for line in told.err.splitlines() if line.startswith("ctxdoctor: ")]) == 1
    assert "Traceback" not in told.err


def test_a_wrong_key_says_what_to_set(capsys):
    with Loopback.playing("llama.cpp-b11434-key") as server:
        code, document, said = checked(capsys, server.url)
    assert (code, document) == (3, None)
    assert "CTXDOCTOR_API_KEY" in said


def test_a_server_that_loads_is_waited_for_with_progress(capsys, monkeypatch):
    loading = json.dumps({"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}})
    with LlamaLike(1024) as server:
        monkeypatch.setattr(time, "sleep", lambda _s, real=time.sleep: (server.faults.pop("*", None), real(0.01)))
        server.faults["*"] = plain(loading, status=503)
        code = command_line(["check", server.url, "--format", "json"])
    told = capsys.readouterr()
    assert code == 0
    assert json.loads(told.out)["backend"]["name"] == "llama.cpp"
    assert "loads its model" in told.err


def test_a_server_that_never_stops_loading_ends_with_3(capsys, monkeypatch):
    monkeypatch.setattr(check_module, "LOADING_S", 0.2)
    with Loopback.playing("llama.cpp-b11434-loading") as server:
        code, document, said = checked(capsys, server.url)
    assert (code, document) == (3, None)
    assert "still loading" in said


# -- what a client believes ---------------------------------------------------------------------------------------------------------------


def opencode(path, url, context):
    limit = {"context": context, "output": 1024}
    provider = {"options": {"baseURL": f"{url}/v1", "apiKey": "sk-very-secret"}, "models": {"tiny": {"limit": limit}}}
    path.write_text(json.dumps({"$schema": "https://opencode.ai/config.json", "provider": {"local": provider}}))
    return str(path)


def test_a_clients_settings_that_are_named_are_held_against_the_server(tmp_path, capsys, monkeypatch):
    """Law: what it believes stands beside the window in force, with the file, without its keys."""
    monkeypatch.setattr("pathlib.Path.home", lambda: tmp_path)
    with LlamaLike(4096) as server:
        file = opencode(tmp_path / "opencode.json", server.url, 131_072)
        code, document, _said = checked(capsys, server.url, "--client", file)
        command_line(["check", server.url, "--client", file, "--quiet"])
        shown = capsys.readouterr().out
    (told,) = document["clients"]
    assert (told["client"], told["path"], told["applies"], told["context"], told["output"]) == (
        "opencode",
        "~/opencode.json",
        True,
        131_072,
        1024,
    )
    assert "client-window-above-server" in {flag["id"] for flag in document["flags"]}
    assert code == 0
    assert "opencode (~/opencode.json): window 131,072 tokens, answer 1,024 tokens" in shown
    assert "secret" not in json.dumps(document) + shown


def test_a_client_that_asks_another_server_is_said_to(tmp_path, capsys):
    with LlamaLike(4096) as server:
        file = opencode(tmp_path / "opencode.json", "http://127.0.0.1:9", 131_072)
        _code, document, _said = checked(capsys, server.url, "--client", file)
    assert [one["applies"] for one in document["clients"]] == [False]
    assert not [flag for flag in document["flags"] if flag["id"].startswith("client-")]


def test_without_a_named_file_no_clients_settings_are_looked_at(capsys, monkeypatch):
    def never(*_more):
        raise AssertionError("nobody named a file")

    monkeypatch.setattr("probes.client_config.known_places", never)
    monkeypatch.setattr("probes.client_config._load", never)
    with LlamaLike(4096) as server:
        _code, document, _said = checked(capsys, server.url)
    assert document["clients"] == []


def test_a_file_that_is_no_clients_settings_is_2_and_nothing_is_sent(tmp_path, capsys):
    (tmp_path / "x.json").write_text("{}")
    with LlamaLike(4096) as server:
        code, document, said = checked(capsys, server.url, "--client", str(tmp_path / "x.json"))
        assert server.asked == []
    assert (code, document) == (2, None)
    assert len(said.splitlines()) == 1


# -- red flags ----------------------------------------------------------------------------------------------------------------------------


def settings(**values):
    return {name: Setting(value=value, source="process") for name, value in values.items()}


def device(**more):
    return DeviceReadings(devices=(Device(id="nvidia:0", name="X", vendor="nvidia", total_bytes=24 * GIB, **more),))


def host(**more):
    return HostReading(os="Linux", ram_bytes=16 * GIB, ram_available_bytes=8 * GIB, cores=8, **more)


def client(**more):
    return ClientValues(client="opencode", path="~/opencode.json", applies=True, **more)


FILE = ModelFile(path="m", format="gguf", size_bytes=1, header_hash="0", layers=32, rope_freq_base=1e6)
UP = {
    "prompts-cut-silently": Seen(truncation=TruncationReading(verdict="truncated", sent=100, processed=50)),
    "window-above-trained": Seen(window=WindowValues(in_force=65_536, trained=8192)),
    "rope-base-differs": Seen(file=FILE, settings=settings(rope_freq_base=10_000.0)),
    "v-cache-quantised-without-flash-attention": Seen(settings=settings(kv_type_v="q8_0", flash_attention="off")),
    "scores-of-every-token": Seen(
        backend="llama-cpp-python",
        command_seen=True,
        file=FILE.model_copy(update={"vocabulary": 151_936}),
        window=WindowValues(asked=32_768),
    ),
    "spilled-to-shared-memory": Seen(devices=device(shared_used_bytes=3 * GIB)),
    "memory-group-nearly-full": Seen(host=host(cgroup_limit_bytes=8 * GIB, cgroup_used_bytes=int(7.8 * GIB))),
    "slots-divide-window": Seen(window=WindowValues(asked=32_768, slots=4, per_slot=8192, in_force=8192)),
    "several-slots": Seen(backend="llama.cpp", window=WindowValues(slots=4, per_slot=8192, in_force=8192)),
    "pool-smaller-than-slots": Seen(unified=True, window=WindowValues(asked=32_768, slots=4, in_force=32_768)),
    "window-capped-at-trained": Seen(window=WindowValues(asked=65_536, trained=8192, in_force=8192)),
    "window-smaller-than-asked": Seen(window=WindowValues(asked=65_536, trained=131_072, in_force=20_480)),
    "default-window-to-come": Seen(
        backend="ollama", command_seen=True, devices=device(), window=WindowValues(trained=131_072)
    ),
    "client-window-above-server": Seen(window=WindowValues(in_force=8192), clients=(client(context=131_072),)),
    "client-window-below-server": Seen(window=WindowValues(in_force=8192), clients=(client(context=4096),)),
    "client-answer-takes-window": Seen(window=WindowValues(in_force=8192), clients=(client(output=8192),)),
    "default-window": Seen(backend="ollama", window=WindowValues(trained=131_072, in_force=4096)),
    "known-to-cut-silently": Seen(backend="koboldcpp"),
    "chats-lose-messages": Seen(backend="ollama", window=WindowValues(in_force=4096)),
    "window-of-request-ignored": Seen(backend="ollama"),
    "answer-budget-set": Seen(settings=settings(n_predict=512)),
    "mixed-cache-types": Seen(backend="llama.cpp", command_seen=True, settings=settings(kv_type_k="q8_0")),
    "low-bit-cache": Seen(settings=settings(kv_type_k="q4_0", kv_type_v="q4_0")),
    "rope-set-by-hand": Seen(settings=settings(rope_scaling="yarn", rope_scale=4.0)),
    "context-shift-on": Seen(settings=settings(context_shift=True)),
    "prompt-cache-large": Seen(backend="llama.cpp", command_seen=True, host=host()),
    "prompt-cache-off": Seen(settings=settings(cache_prompt=False)),
    "swap-in-use": Seen(host=host(swap_total_bytes=8 * GIB, swap_used_bytes=4 * GIB)),
    "memory-nearly-full": Seen(host=HostReading(os="x", ram_bytes=16 * GIB, ram_available_bytes=GIB // 2)),
    "killed-for-memory-before": Seen(host=host(oom_kills=2)),
    "other-process-on-device": Seen(
        devices=device(processes=(DeviceProcess(pid=1, name="game", used_bytes=4 * GIB, is_server=False),))
    ),
    "device-nearly-full": Seen(devices=device(free_bytes=GIB // 4)),
    "narrow-link": Seen(
        devices=DeviceReadings(
            devices=tuple(
                Device(id=f"nvidia:{n}", name="X", vendor="nvidia", link_width=1, link_width_max=16) for n in (0, 1)
            )
        )
    ),
    "device-throttled": Seen(devices=device(throttle=("thermal",))),
    "cache-in-host-memory": Seen(devices=device(), settings=settings(kv_offload=False)),
    "part-on-cpu": Seen(devices=device(), file=FILE, settings=settings(gpu_layers=20)),
    "flash-attention-off": Seen(window=WindowValues(in_force=65_536), settings=settings(flash_attention="off")),
    "large-micro-batch": Seen(backend="llama.cpp", settings=settings(ubatch=4096)),
    "full-cache-for-sliding-layers": Seen(settings=settings(swa_full=True)),
    "memory-share-high": Seen(backend="vllm", settings=settings(memory_share=0.98)),
    "other-servers-running": Seen(host=host(other_servers=(DeviceProcess(pid=7, server_kind="ollama"),))),
    "machine-busy": Seen(host=host(load_1min=20.0)),
}
HEALTHY = Seen(
    backend="llama.cpp",
    command_seen=True,
    settings=settings(
        ctx=32_768, parallel=1, kv_type_k="q8_0", kv_type_v="q8_0", flash_attention="on", gpu_layers=99, cache_ram_mib=1024,
        rope_scale=1.0, rope_scaling="none", context_shift=False, cache_prompt=True, n_predict=-1, ubatch=512,
    ),
    window=WindowValues(asked=32_768, trained=131_072, per_slot=32_768, slots=1, in_force=32_768),
    unified=False,
    file=FILE,
    devices=device(free_bytes=6 * GIB, processes=(DeviceProcess(pid=1, used_bytes=17 * GIB, is_server=True),)),
    host=host(load_1min=2.0, swap_total_bytes=8 * GIB, swap_used_bytes=0, oom_kills=0),
    truncation=TruncationReading(verdict="refused", sent=40_000),
    clients=(client(context=32_768, output=4096),),
)  # fmt: skip


def test_every_flag_has_a_case_and_an_own_id():
    assert {flag.id for flag in FLAGS} == set(UP)
    assert len({flag.id for flag in FLAGS}) == len(FLAGS)


@pytest.mark.parametrize("name", UP)
def test_a_flag_is_raised_and_its_words_are_whole(name):
    found = {one.id: one for one in raised(UP[name])}
    assert name in found
    assert "{" not in found[name].words.english
    assert "None" not in found[name].words.english


def test_scores_are_kept_where_that_is_not_switched_off():
    """Four bytes for each token of the vocabulary and each token read; nothing is said where they are few, or not kept."""
    up = UP["scores-of-every-token"]
    [flag] = [one for one in raised(up) if one.id == "scores-of-every-token"]
    assert "18.55 GiB" in flag.words.english
    for down in (
        replace(up, settings=settings(logits_all=False)),
        replace(up, command_seen=False),
        replace(up, file=FILE),
        replace(up, window=WindowValues(asked=512)),
        replace(up, backend="llama.cpp"),
    ):
        assert "scores-of-every-token" not in {one.id for one in raised(down)}


def test_nothing_is_raised_on_a_healthy_server_or_on_nothing():
    assert [one.id for one in raised(HEALTHY)] == []
    assert [one.id for one in raised(Seen())] == []


def test_the_serious_ones_come_first():
    seen = Seen(backend="ollama", settings=settings(context_shift=True, kv_type_v="q8_0", flash_attention="off"))
    order = [{"serious": 0, "warning": 1, "note": 2}[one.severity] for one in raised(seen)]
    assert order == sorted(order)
    assert len(set(order)) == 3


@pytest.mark.parametrize("value", [True, "many", [1], float("nan"), None, -1, 10**30])
def test_values_that_make_no_sense_raise_nothing(value):
    """Law: whatever a server says of its settings, looking for flags never fails."""
    names = (
        "rope_scale",
        "rope_freq_base",
        "n_predict",
        "ubatch",
        "gpu_layers",
        "kv_type_v",
        "flash_attention",
        "memory_share",
        "gpu_memory_utilization",
        "cache_ram_mib",
        "context_shift",
    )
    seen = Seen(
        backend="llama.cpp",
        command_seen=True,
        settings=settings(**dict.fromkeys(names, value)),
        file=FILE,
        devices=device(),
        host=host(),
    )
    for one in raised(seen):
        assert one.words.english
