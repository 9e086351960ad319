"""KoboldCpp's settings in its older and newer spellings: its command line, its files, and the options that it prints when it starts."""

from __future__ import annotations

import json

import pytest

from probes.backends.base import Ask
from probes.backends.commands import change_command, parse_command, split_command
from probes.backends.http import Http
from probes.backends.recognise import recognise
from probes.backends.settings_files import read_printed_options, read_settings_file
from probes.logs.pasted import read_pasted

from .loopback import Loopback

NEWER = {
    "model_param": "/models/Q-Q4_K_M.gguf",
    "contextsize": 16384,
    "gpulayers": -1,
    "quantkv": "q8_0",
    "flashattention": False,
    "noflashattention": False,
    "useswa": False,
    "noswa": False,
    "noshift": False,
    "batchsize": 1024,
    "parallelrequests": 1,
    "smartcache": 0,
    "autofit": False,
    "moecpu": 0,
}
"""A part of what 1.116 writes: also the options of before, which it looks at no more."""


def told(text: str) -> dict:
    read = parse_command(split_command(text), None, "koboldcpp")
    return {name: setting.value for name, setting in read.settings.items()}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("koboldcpp -m a.gguf -c 4096 -ngl 20 -b 256", {"ctx": 4096, "gpu_layers": 20, "batch": 256, "ubatch": 256}),
        ("koboldcpp a.gguf --ctx-size 4096 --quantkv q5_1", {"ctx": 4096, "kv_type_k": "q5_1", "kv_type_v": "q5_1"}),
        ("koboldcpp a.gguf --quantkv q8_0 --no-flash-attn", {"kv_type_k": "q8_0", "kv_type_v": "f16"}),
        ("koboldcpp a.gguf --quantkv bf16 -nofa", {"kv_type_k": "bf16", "kv_type_v": "bf16"}),
        ("koboldcpp a.gguf --parallelrequests 4", {"parallel": 4, "context_shift": False}),
        ("koboldcpp a.gguf --parallelrequests 0", {"parallel": 1}),
        ("koboldcpp a.gguf --noswa", {"swa_full": True}),
        ("koboldcpp a.gguf --batchsize -1", {"batch": 1, "ubatch": 1}),
        ("koboldcpp a.gguf --moecpu --smartcache 3", {"cpu_moe": 999, "smart_cache": 3}),
        ("koboldcpp a.gguf --no-context-shift", {"context_shift": False}),
    ],
)
def test_newer_spellings(text, expected):
    """llama.cpp's spellings are taken; one option quantises the keys alone without flash attention; several at once are never shifted."""
    found = told(text)
    assert {name: found.get(name) for name in expected} == expected


def test_the_physical_batch_is_changed_by_the_one_batch_option():
    """There is one batch here, and it is both of llama.cpp's."""
    changed = change_command(["koboldcpp", "--model", "a.gguf", "--batchsize", "512"], None, "ubatch", 256)
    assert list(changed)[-2:] == ["--batchsize", "256"]


def test_a_newer_file_says_what_is_on_by_itself(tmp_path):
    """Flash attention and the small sliding cache are on unless the newer options turn them off."""
    path = tmp_path / "x.kcpps"
    path.write_text(json.dumps(NEWER))
    read = {name: one.value for name, one in read_settings_file(path).configuration.settings.items()}
    assert (read["flash_attention"], read["swa_full"], read["context_shift"]) == ("on", False, True)
    assert (read["kv_type_k"], read["kv_type_v"], read["gpu_layers"], read["parallel"]) == ("q8_0", "q8_0", "auto", 1)
    assert (read["batch"], read["ubatch"]) == (1024, 1024)
    assert "fit" not in read
    path.write_text(json.dumps({**NEWER, "noflashattention": True}))
    read = {name: one.value for name, one in read_settings_file(path).configuration.settings.items()}
    assert (read["flash_attention"], read["kv_type_k"], read["kv_type_v"]) == ("off", "q8_0", "f16")


PRINTED = (
    "Namespace(model=['/m/a.gguf'], model_param='/m/a.gguf', config=None, contextsize=8192, gpulayers=-1, host='', tensor_split=None, threads=4, "
    "quantkv='q4_0', noflashattention=False, flashattention=False, noshift=True, ropeconfig=[0.0, 10000.0], password='s3cret', batchsize=512)"
)


def test_printed_options():
    """The options at the start of its log are its settings; a password is no setting; what cannot be read is none."""
    read = read_printed_options(f"***\nWelcome to KoboldCpp - Version 1.116.1\n{PRINTED}\n==========\n")
    values = {name: one.value for name, one in read.settings.items()}
    assert (values["ctx"], values["kv_type_v"], values["context_shift"]) == (8192, "q4_0", False)
    assert (values["flash_attention"], values["batch"]) == ("on", 512)
    assert "s3cret" not in read.model_dump_json()
    for bad in (
        "Namespace(contextsize=8192",
        f"Namespace({'(' * 5000}, contextsize=1)",
        "Namespace(contextsize=__import__('os'))",
        "",
    ):
        assert read_printed_options(bad) is None


def test_a_pasted_report_with_the_printed_options():
    """Who pastes what the console shows has told the settings."""
    text = f"KoboldCpp gets slow after some turns.\n\n```\nWelcome to KoboldCpp - Version 1.116.1\n{PRINTED}\n```\n"
    found = [one.payload() for one in read_pasted(text) if one.kind == "configuration" and one.data]
    settings = {name: (one.value, one.source) for each in found for name, one in each.settings.items()}
    assert settings["ctx"] == (8192, "report")
    assert settings["kv_type_k"] == ("q4_0", "report")


def test_an_answer_that_ends_with_an_error_is_none():
    """Where it cannot compute it answers HTTP 200 without a text, and the reason of the end says error."""
    with Loopback.playing("koboldcpp-1.102") as server:
        end = {"choices": [{"index": 0, "finish_reason": "error", "text": ""}]}
        server.answers["POST /v1/completions"] = {"sse": [end, "[DONE]"]}
        with Http(server.url) as http:
            told = recognise(http).complete(Ask(prompt="abc", max_tokens=2))
    assert told.error is not None
    assert told.error.error == "server-error"


def test_log_probabilities_are_asked_for_without_samplers():
    """Those of what a sampler leaves would all be certain; what stands at the floor is no value."""
    with Loopback.playing("koboldcpp-1.102") as server:
        tops = [
            {"token": "a", "token_id": 1, "logprob": -0.5},
            {"token": "b", "token_id": 2, "logprob": -9.210340371976182},
        ]
        event = {"choices": [{"index": 0, "text": "a", "logprobs": {"content": [{"top_logprobs": tops}]}}]}
        end = {"choices": [{"index": 0, "finish_reason": "length", "text": ""}]}
        server.answers["POST /v1/completions"] = {"sse": [event, end, "[DONE]"]}
        with Http(server.url) as http:
            told = recognise(http).complete(Ask(prompt="abc", max_tokens=1, logprobs=10))
        body = server.bodies("/v1/completions")[0]
    assert (body["temperature"], body["top_k"], body["top_p"], body["min_p"]) == (1.0, 0, 1.0, 0.0)
    assert sorted(body["sampler_order"]) == list(range(7))  # which keeps it out of a batch, whose answers tell none
    assert told.logprobs == ({"1": -0.5},)


def test_it_is_given_a_moment_after_an_answer():
    """Just after an answer it is not idle yet: that is no one else's request; a queue is, and so is work that goes on."""
    with Loopback.playing("koboldcpp-1.102") as server, Http(server.url) as http:
        backend = recognise(http)
        server.answers["GET /api/extra/perf"] = {
            "sequence": [
                {"json": {"idle": 0, "queue": 0}},
                {"json": {"idle": 0, "queue": 0}},
                {"json": {"idle": 1, "queue": 0}},
            ]
        }
        assert backend.busy() is False
        server.answers["GET /api/extra/perf"] = {"json": {"idle": 0, "queue": 0}}
        assert backend.busy() is True
        server.answers["GET /api/extra/perf"] = {"json": {"idle": 0, "queue": 1}}
        asked = len(server.asked)
        assert backend.busy() is True
        assert len(server.asked) == asked + 1


RECORDED = "koboldcpp-1.116.1"


def test_the_recorded_server():
    """What 1.116.1 answered: who it is, its window, its tokens, a chat counted by its template, both clocks of a cold prompt."""
    salted = Ask(prompt="abcdefgh " * 200, max_tokens=4, use_cache=False, salt="x9 ")
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        backend = recognise(http)
        assert (backend.name, backend.identity().version, backend.model_identity().name) == (
            "koboldcpp",
            "1.116.1",
            "tiny",
        )
        assert backend.model_identity().chat_template is True
        server.answers["GET /props"]["json"]["chat_template"] = ""
        assert backend.model_identity().chat_template is False
        window = backend.window()
        assert (window.in_force, window.per_slot, window.slots, window.asked) == (2048, 2048, None, None)
        assert backend.count_tokens("some text") == len("some text")
        told = backend.complete(salted)
        assert (told.prompt_tokens, told.processed_tokens, told.generated_tokens, told.finish) == (
            1803,
            1803,
            4,
            "length",
        )
        assert told.server_prompt_s == pytest.approx(0.189, abs=1e-6)
        assert told.server_generation_s == pytest.approx(0.001, abs=1e-6)
        server.choose["POST /api/extra/tokencount"] = "chat"
        assert backend.count_chat_tokens([{"role": "user", "content": "hi"}]) == 36


def test_the_recorded_cut():
    """The front is gone, with the salt: how much of the rest was read is not told, and neither is a time for it."""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        backend = recognise(http)
        server.choose["POST /v1/completions"] = "cut"
        perf = server.answers["GET /api/extra/perf"]["sequence"]
        server.answers["GET /api/extra/perf"] = {"sequence": [perf[1], server.answers["GET /api/extra/perf#cut"]]}
        told = backend.complete(Ask(prompt="abcdefgh " * 260, max_tokens=4, use_cache=False, salt="y7 "))
    assert (told.error, told.prompt_tokens, told.processed_tokens, told.server_prompt_s) == (None, 2044, None, None)


def test_the_recorded_log_probabilities():
    """A streamed answer tells them in one event after the last token: ten, of which none is certain."""
    with Loopback.playing(RECORDED) as server, Http(server.url) as http:
        server.choose["POST /v1/completions"] = "likely"
        told = recognise(http).complete(Ask(prompt="abc", max_tokens=1, logprobs=10))
    assert len(told.logprobs) == 1
    assert len(told.logprobs[0]) == 10
    assert max(told.logprobs[0].values()) == pytest.approx(-4.4838, abs=1e-3)
